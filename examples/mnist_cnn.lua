-- A convolutional net on handwritten digits in MNIST's files:
--   luajit examples/mnist_cnn.lua --data FOLDER [--device NAME] [--epochs N]
-- FOLDER holds train-images-idx3-ubyte, train-labels-idx1-ubyte, and the same
-- with `test` or `t10k`. Without it the small digits beside this file serve,
-- with --quick for a moment only.
local here = arg[0]:match "(.*/)" or "./"
package.path = here .. "../lua/?.lua;" .. here .. "../lua/?/init.lua;"
  .. package.path
package.cpath = here .. "../build/?.so;" .. package.cpath

io.stdout:setvbuf "line"

local limn = require "limn"
local nn, optim, data = limn.nn, limn.optim, limn.data

local options = {device = limn.accelerator(), epochs = 6}
do
  local i = 1
  while arg[i] do
    local key = arg[i]:match "^%-%-(%a+)$"
    if key == "quick" then
      options.quick = true
    elseif key and arg[i + 1] then
      options[key] = arg[i + 1]
      i = i + 1
    else
      io.stderr:write("usage: mnist_cnn.lua [--data FOLDER] [--device NAME] ",
                      "[--epochs N] [--quick]\n")
      os.exit(1)
    end
    i = i + 1
  end
end
local device, epochs = options.device, tonumber(options.epochs)
local folder = (options.data or here .. "data") .. "/"

-- 1. Images [n, 1, height, width] of 0..1, and labels from 1.
local function open(set)
  local images = data.idx(folder .. set .. "-images-idx3-ubyte")
  local labels = data.idx(folder .. set .. "-labels-idx1-ubyte")
  return images:unsqueeze(2):to "float32" / images:max():item(),
    labels:to "int64" + 1
end
local function exists(set)
  local f = io.open(folder .. set .. "-images-idx3-ubyte", "rb")
  if f then f:close() end
  return f ~= nil
end
local x, t = open "train"
local test_x, test_t = open(exists "test" and "test" or "t10k")
local size = x:size(3)
print(("%d images of %d x %d to train on, %d to test"):format(#x, size, size,
                                                              #test_x))

-- 2. The net: the last layers' width follows from the images'.
limn.manual_seed(1)
local net = nn.Sequential(
  nn.Conv2d(1, 32, 3, {padding = 1}), nn.ReLU(), nn.MaxPool2d(2),
  nn.Conv2d(32, 64, 3, {padding = 1}), nn.ReLU(), nn.MaxPool2d(2),
  nn.Flatten(), nn.Linear(64 * math.floor(size / 4) ^ 2, 128), nn.ReLU(),
  nn.Dropout(0.3), nn.Linear(128, 10))
print(net)

-- 3. One traced step; the learning rate falls to 0 along a cosine.
local opt = optim.Adam(net, {lr = 2e-3})
local loss = limn.value_and_grad(function(a, b)
  return nn.cross_entropy(net(a), b)
end, net)
local step = limn.trace(function(a, b)
  local l, grads = loss(a, b)
  opt:step(grads)
  return l
end, x[{{1, 8}}], t[{{1, 8}}])

if not options.data then epochs = options.quick and 6 or 12 end
local batch, done = 32, 0
local steps = epochs * math.ceil(#x / batch)
local started = data.seconds()
net:train()
for epoch = 1, epochs do
  local total, n = 0, 0
  for a, b in data.batches(x, t, {size = batch, shuffle = true,
      progress = true, label = "epoch " .. epoch}) do
    opt:set {lr = 1e-3 * (1 + math.cos(math.pi * done / steps))}
    total, n, done = total + step(a:to(device), b:to(device)):item(), n + 1,
      done + 1
  end
  print(("epoch %d: loss %.4f"):format(epoch, total / n))
end
print(("trained on %s for %.1f s"):format(device, data.seconds() - started))

-- 4. How many of the held-out images are told right.
net:eval()
local infer = limn.trace(net, x[{{1, 8}}])
local right = 0
for a, b in data.batches(test_x, test_t, {size = 200}) do
  local guess = infer(a:to(device)):argmax(2)
  right = right + guess:eq(b:to(device)):sum():item()
end
local percent = 100 * right / #test_x
print(("%.2f %% right"):format(percent))
local needed = options.data and 97.5 or options.quick and 90 or 95
assert(percent >= needed, "less than " .. needed .. " % right")
