-- The second half of digits.lua, in a process that has no source of the model:
--   luajit examples/digits_again.lua FILE [ACCURACY]
local here = arg[0]:match "(.*/)" or "./"
package.path = here .. "../lua/?.lua;" .. here .. "../lua/?/init.lua;"
  .. package.path
package.cpath = here .. "../build/?.so;" .. package.cpath

local limn = require "limn"
local data = limn.data

local model = limn.load(arg[1])
local images = data.idx(here .. "data/test-images-idx3-ubyte")
local labels = data.idx(here .. "data/test-labels-idx1-ubyte"):to "int64" + 1

local function accuracy(device)
  local guess = model.infer(images:to(device)):argmax(2)
  return 100 * guess:eq(labels:to(device)):sum():item() / #images
end

print "another process:"
for _, device in ipairs(limn.devices()) do
  local percent = accuracy(device)
  print(string.format("  %.1f %% right on %s", percent, device))
  assert(not arg[2] or math.abs(percent - tonumber(arg[2])) < 1e-3,
         "not the accuracy it was saved with")
end

-- Train on, a step on each device in turn: the weights follow the runs.
local x = data.idx(here .. "data/train-images-idx3-ubyte")
local t = data.idx(here .. "data/train-labels-idx1-ubyte"):to "int64" + 1
local devices = limn.devices()
local first, last
for epoch = 1, 3 do
  local total, n = 0, 0
  for bx, bt in data.batches(x, t, {size = 64, shuffle = true}) do
    local device = devices[n % #devices + 1]
    total = total + model.step(bx:to(device), bt:to(device)):item()
    n = n + 1
  end
  last = total / n
  first = first or last
  print(string.format("  epoch %d on %s: loss %.4f", epoch,
                      table.concat(devices, " and "), last))
end
assert(last < first, "training on did not lower the loss")
print(string.format("  %.1f %% right on cpu after that", accuracy "cpu"))
