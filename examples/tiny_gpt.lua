-- A small transformer learns to write as this project's README does:
--   luajit examples/tiny_gpt.lua [--device NAME] [--steps N] [--quick]
local here = arg[0]:match "(.*/)" or "./"
package.path = here .. "../lua/?.lua;" .. here .. "../lua/?/init.lua;"
  .. package.path
package.cpath = here .. "../build/?.so;" .. package.cpath

io.stdout:setvbuf "line"

local limn = require "limn"
local nn, optim, data = limn.nn, limn.optim, limn.data

local options = {device = limn.accelerator(), steps = 1500}
for key, value in table.concat(arg, " "):gmatch "%-%-(%a+) ?([^ -]*)" do
  options[key] = value
end
local device = options.device
local steps = options.quick and 40 or tonumber(options.steps)
limn.manual_seed(1)

-- 1. The text as numbers: each of its characters has one, from 1.
local file = assert(io.open(here .. "../README.md"))
local text = file:read "*a"
file:close()
local chars, number = {}, {}
for c in text:gmatch "." do
  if not number[c] then
    chars[#chars + 1] = c
    number[c] = #chars
  end
end
local function encode(s)
  local t = {}
  for c in s:gmatch "." do t[#t + 1] = number[c] end
  return limn.tensor(t, "int64")
end
local all = encode(text)
print(("%d characters, %d different ones"):format(#all, #chars))

-- 2. The model: every position sees itself and what stands before.
local context, width = 64, 128

local Gpt = nn.Module:extend "Gpt"
function Gpt:init()
  self.token = nn.Embedding(#chars, width)
  self.place = nn.Embedding(context, width)
  self.blocks = nn.TransformerEncoder(nn.TransformerEncoderLayer(width, 4, {
    dim_feedforward = 4 * width, activation = "gelu", norm_first = true,
    batch_first = true}), 2, nn.LayerNorm(width))
  self.out = nn.Linear(width, #chars)
end
function Gpt:forward(t) -- [rows, positions] to [rows, positions, characters]
  local x = self.token(t) + self.place(limn.arange(1, t:size(2), "int64"))
  return self.out(self.blocks(x, {is_causal = true}))
end
local net = Gpt()
print(net)

-- 3. Train: pieces from anywhere in the text, each the next one's question.
local opt = optim.AdamW(net, {lr = 4e-3})
local rate = optim.schedule.cosine(opt, {T_max = steps, warmup = steps / 20})
local loss = limn.value_and_grad(function(piece)
  local n = piece:size(2)
  local scores = net(piece[{{}, {1, n - 1}}])
  return nn.cross_entropy(scores:flatten(1, 2), piece[{{}, {2, n}}]:flatten())
end, net)
local step = limn.jit(function(piece)
  local l, grads = loss(piece)
  opt:step(optim.clip_grad_norm(grads, 1))
  return l
end)

local started, total, mean = data.seconds(), 0, nil
for i = 1, steps do
  local first = limn.randint(1, #all - context, {12, 1}, "int64")
  local piece = all[first + limn.arange(0, context, "int64")]
  total = total + step(piece:to(device)):item()
  rate:step()
  if i % 20 == 0 then
    mean, total = total / 20, 0
  end
  if i % 100 == 0 then print(("step %4d: loss %.3f"):format(i, mean)) end
end
print(("trained on %s for %.1f s"):format(device, data.seconds() - started))

-- 4. Write: the last positions tell what comes next, one character at a time.
net:eval()
local next_char = limn.trace {function(t, temperature)
  local scores = net(t)[{{}, -1}] / temperature
  return scores:softmax(-1):multinomial(1)
end, all[{{1, 8}}]:unsqueeze(1), limn.number(0.8), name = "next_char"}

-- A file holds the graph and the weights; no model is needed to use it.
local path = os.tmpname()
limn.save(path, {next_char = next_char})
local model = limn.load(path)
os.remove(path)

local function write(prompt, n)
  local t, out = encode(prompt):unsqueeze(1):to(device), {prompt}
  for _ = 1, n do
    local c = model.next_char(t, 0.7)
    out[#out + 1] = chars[c:item()]
    t = limn.cat({t, c}, 2)
    t = t[{{}, {math.max(1, t:size(2) - context + 1), -1}}]
  end
  return table.concat(out)
end
print "written:"
print(write("## ", options.quick and 100 or 400))
local needed = options.quick and 3.5 or 1
assert(mean < needed, ("a loss of %.3f, not below %g"):format(mean, needed))
