-- A recurrent net learns to write as this project's README does:
--   luajit examples/char_lstm.lua [--device NAME] [--steps N] [--quick]
local here = arg[0]:match "(.*/)" or "./"
package.path = here .. "../lua/?.lua;" .. here .. "../lua/?/init.lua;"
  .. package.path
package.cpath = here .. "../build/?.so;" .. package.cpath

io.stdout:setvbuf "line"

local limn = require "limn"
local nn, optim, data = limn.nn, limn.optim, limn.data

local options = {device = limn.accelerator(), steps = 600}
for key, value in table.concat(arg, " "):gmatch "%-%-(%a+) ?([^ -]*)" do
  options[key] = value
end
local device = options.device
local steps = options.quick and 60 or tonumber(options.steps)
limn.manual_seed(1)

-- 1. The text as numbers: each of its characters has one, from 1. Rows of it
-- are read side by side, a piece at a time.
local file = assert(io.open(here .. "../README.md"))
local text = file:read "*a"
file:close()
local chars, number, list = {}, {}, {}
for c in text:gmatch "." do
  if not number[c] then
    chars[#chars + 1] = c
    number[c] = #chars
  end
  list[#list + 1] = number[c]
end
local rows, length = 16, 64
local pieces = math.floor((#list / rows - 1) / length)
local all = limn.tensor(list, "int64")
print(("%d characters, %d different ones"):format(#list, #chars))

-- Piece i of every row, and one character more: [rows, length + 1].
local function piece(i)
  local first = limn.arange(0, rows - 1, "int64"):unsqueeze(2)
    * (pieces * length) + (i - 1) * length
  return all[first + limn.arange(1, length + 1, "int64")]
end

-- 2. The model: what it has read so far is in its state.
local width, hidden = 64, 256
local Net = nn.Module:extend "Net"
function Net:init()
  self.token = nn.Embedding(#chars, width)
  self.lstm = nn.LSTM(width, hidden, {batch_first = true})
  self.out = nn.Linear(hidden, #chars)
end
function Net:forward(t, state) -- [rows, steps] to [rows, steps, characters]
  local y, last = self.lstm(self.token(t), state)
  return self.out(y), last
end
local net = Net()
print(net)

-- 3. Train: a piece begins with the state that the one before it ended with.
local opt = optim.Adam(net, {lr = 4e-3})
local rate = optim.schedule.cosine(opt, {T_max = steps, warmup = steps / 20})
local loss = limn.value_and_grad(function(t, state)
  local scores, last = net(t[{{}, {1, -2}}], state)
  local l = nn.cross_entropy(scores:flatten(1, 2), t[{{}, {2, -1}}]:flatten())
  return l, last
end, net)
local zero = limn.zeros({1, rows, hidden}, {device = device})
local step = limn.trace({function(t, state)
  local l, grads, last = loss(t, state)
  opt:step(optim.clip_grad_norm(grads, 1))
  return l, last
end, piece(1):to(device), {zero, zero}, name = "step"})

-- Steps `from` to `to` of this one or of one that was loaded.
local function train(f, from, to)
  local state, total, mean = nil, 0, nil
  for i = from, to do
    local at = (i - 1) % pieces + 1
    if at == 1 or not state then state = {zero, zero} end
    local l
    l, state = f(piece(at):to(device), state)
    total = total + l:item()
    if f == step then rate:step() end
    if i % 20 == 0 then mean, total = total / 20, 0 end
    if i % 100 == 0 then print(("step %4d: loss %.3f"):format(i, mean)) end
  end
  return mean
end
local started = data.seconds()
local mean = train(step, 1, steps)
print(("trained on %s for %.1f s"):format(device, data.seconds() - started))

-- 4. A file holds the graphs and the weights: it writes, and trains on.
local next_char = limn.trace({function(t, state, temperature)
  local scores, last = net(t, state)
  return (scores[{{}, -1}] / temperature):softmax(-1):multinomial(1), last
end, all[{{1, 8}}]:unsqueeze(1), {zero[{{}, {1, 1}}], zero[{{}, {1, 1}}]},
  limn.number(0.7), name = "next_char"})
local path = os.tmpname()
limn.save(path, {next_char = next_char, step = step, net = net, opt = opt})
local model = limn.load(path)
os.remove(path)

local function write(prompt, n)
  local t, out = {}, {prompt}
  for c in prompt:gmatch "." do t[#t + 1] = number[c] end
  local at = limn.zeros({1, 1, hidden}, {device = device})
  local state, c = {at, at}, limn.tensor({t}, "int64"):to(device)
  for _ = 1, n do
    c, state = model.next_char(c, state, 0.6)
    out[#out + 1] = chars[c:item()]
  end
  return table.concat(out)
end
print "written:"
print(write("## ", options.quick and 100 or 400))

local needed = options.quick and 3 or 1
assert(mean < needed, ("a loss of %.3f, not below %g"):format(mean, needed))
local more = train(model.step, steps + 1, steps + 20)
print(("loaded, and trained for 20 steps more: loss %.3f"):format(more))
assert(more < mean + 0.2, "the loaded step does not go on")
