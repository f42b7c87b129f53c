-- Train on one device, use on another: handwritten digits, start to end.
--   luajit examples/digits.lua [--device opencl:0] [--epochs 12] [--quick]
local here = arg[0]:match "(.*/)" or "./"
package.path = here .. "../lua/?.lua;" .. here .. "../lua/?/init.lua;"
  .. package.path
package.cpath = here .. "../build/?.so;" .. package.cpath

io.stdout:setvbuf "line"

local limn = require "limn"
local nn, optim, data = limn.nn, limn.optim, limn.data

local options = {device = limn.accelerator(), epochs = 12, file = nil}
do
  local i = 1
  while arg[i] do
    if arg[i] == "--quick" then
      options.epochs, options.quick = 4, true
    elseif arg[i]:match "^%-%-%a+$" and arg[i + 1] then
      options[arg[i]:sub(3)] = arg[i + 1]
      i = i + 1
    else
      io.stderr:write("usage: digits.lua [--device NAME] [--epochs N] ",
                      "[--file PATH] [--quick]\n")
      os.exit(1)
    end
    i = i + 1
  end
end
local device, epochs = options.device, tonumber(options.epochs)
local file = options.file or os.tmpname()

-- 1. The data: 8 x 8 images of 0..255, and labels, which count from 1 in limn.
local images = data.idx(here .. "data/train-images-idx3-ubyte")
local labels = data.idx(here .. "data/train-labels-idx1-ubyte"):to "int64" + 1
local test_images = data.idx(here .. "data/test-images-idx3-ubyte")
local test_labels =
  data.idx(here .. "data/test-labels-idx1-ubyte"):to "int64" + 1
print(#images .. " images to train on, " .. #test_images .. " to test")

-- 2. The model: a Lua module.
local Net = nn.Module:extend "Net"
function Net:init(n_in, n_out)
  self.hidden = nn.Linear(n_in, 128)
  self.dropout = nn.Dropout(0.1)
  self.out = nn.Linear(128, n_out)
end
function Net:forward(images_)
  local x = images_:flatten(2) / 255
  local h = self.dropout(self.hidden(x):relu())
  return self.out(h)
end

limn.manual_seed(1)
local net = Net(64, 10)
print(net)

-- Traced on the CPU with eight images; the graph knows neither.
local infer = limn.trace(net, test_images[{{1, 8}}])
print(infer)

local opt = optim.Adam(net, {lr = 3e-3})
local loss = limn.value_and_grad(function(x, t)
  return nn.cross_entropy(net(x), t)
end, net)
local step = limn.trace(function(x, t)
  local l, grads = loss(x, t)
  opt:step(grads)
  return l
end, images[{{1, 8}}], labels[{{1, 8}}])

-- 3. Train on the device.
print("training on " .. device)
local started = data.seconds()
net:train()
for epoch = 1, epochs do
  local total, n, last = 0, 0, nil
  local batches = data.batches(images, labels, {
    size = 64, shuffle = true, progress = true,
    label = string.format("epoch %2d/%d", epoch, epochs)})
  for x, t in batches do
    local l = step(x:to(device), t:to(device))
    -- Reading a loss waits for the device: one step late, it does not.
    if last then
      total, n = total + last:item(), n + 1
      batches:note(string.format("loss %.4f", total / n))
    end
    last = l
  end
  total, n = total + last:item(), n + 1
  print(string.format("epoch %2d: loss %.4f", epoch, total / n))
end
print(string.format("trained for %.1f s", data.seconds() - started))

-- 4. The same graph on any device, with the weights just trained.
local function accuracy(graph, name)
  local guess = graph(test_images:to(name)):argmax(2)
  local right = guess:eq(test_labels:to(name)):sum():item()
  return 100 * right / #test_images
end
infer:eval()
net:eval()
local needed = options.quick and 85 or 96
local good
for _, name in ipairs(limn.devices()) do
  local percent = accuracy(infer, name)
  print(string.format("%.1f %% right on %s", percent, name))
  good = percent
  assert(percent >= needed, "less than " .. needed .. " % right on " .. name)
end

-- 5. One file; another process runs and trains it without this source.
limn.save(file, {infer = infer, step = step})
print("saved to " .. file)
local function quote(s) return "'" .. s:gsub("'", "'\\''") .. "'" end
local command = table.concat({
  quote(arg[-1] or "luajit"), quote(here .. "digits_again.lua"), quote(file),
  string.format("%.3f", good)}, " ")
local ok = os.execute(command)
if not options.file then os.remove(file) end
assert(ok == true or ok == 0, "the second process failed")
