-- Two nets against each other learn to draw digits (Goodfellow et al. 2014):
--   luajit examples/gan.lua [--device NAME] [--epochs N] [--seed N] [--quick]
local here = arg[0]:match "(.*/)" or "./"
package.path = here .. "../lua/?.lua;" .. here .. "../lua/?/init.lua;"
  .. package.path
package.cpath = here .. "../build/?.so;" .. package.cpath

io.stdout:setvbuf "line"

local limn = require "limn"
local nn, optim, data = limn.nn, limn.optim, limn.data

local options = {device = limn.accelerator(), epochs = 150, seed = 1}
for key, value in table.concat(arg, " "):gmatch "%-%-(%a+) ?([^ -]*)" do
  options[key] = value
end
local device = options.device
local epochs = options.quick and 40 or tonumber(options.epochs)
limn.manual_seed(tonumber(options.seed))

-- 1. Digits of 8 x 8 grey levels, as rows of -1..1; the labels only judge.
local function open(set)
  local images = data.idx(here .. "data/" .. set .. "-images-idx3-ubyte")
  local labels = data.idx(here .. "data/" .. set .. "-labels-idx1-ubyte")
  return images:flatten(2):to "float32" / 127.5 - 1, labels:to "int64" + 1
end
local real, labels = open "train"
local unseen = open "test"

-- 2. The drawer makes a digit out of noise; the judge tells how real one is.
local noise = 32
local drawer = nn.Sequential(
  nn.Linear(noise, 128), nn.BatchNorm1d(128), nn.ReLU(),
  nn.Linear(128, 256), nn.BatchNorm1d(256), nn.ReLU(),
  nn.Linear(256, 64), nn.Tanh())
local judge = nn.Sequential(
  nn.Linear(64, 256), nn.LeakyReLU(0.2), nn.Dropout(0.3),
  nn.Linear(256, 128), nn.LeakyReLU(0.2), nn.Dropout(0.3),
  nn.Linear(128, 1))

-- 3. One traced step for both. The judge learns from a drawing that is
-- detached: nothing of its loss reaches the drawer.
local drawer_opt = optim.Adam(drawer, {lr = 1e-3, betas = {0.5, 0.999}})
local judge_opt = optim.Adam(judge, {lr = 5e-4, betas = {0.5, 0.999}})

local function says(y, what)
  local z = judge(y)
  return nn.binary_cross_entropy_with_logits(z, limn.full_like(z, what))
end
local judge_loss = limn.value_and_grad(function(x, drawn)
  return says(x, 0.9) + says(drawn:detach(), 0)
end, judge)
local drawer_loss = limn.value_and_grad(function(z)
  local drawn = drawer(z)
  return says(drawn, 1), drawn
end, drawer)

local step = limn.jit(function(x)
  local z = limn.randn(x:size(1), noise)
  local fooled, by_drawer, drawn = drawer_loss(z)
  local told, by_judge = judge_loss(x, drawn)
  drawer_opt:step(by_drawer)
  judge_opt:step(by_judge)
  return told, fooled
end)

local started = data.seconds()
for epoch = 1, epochs do
  local told, fooled
  for x in data.batches(real, {size = 64, shuffle = true, drop_last = true}) do
    told, fooled = step(x:to(device))
  end
  if epoch % 10 == 0 then
    print(("epoch %3d: the judge loses %.3f, the drawer %.3f"):format(
      epoch, told:item(), fooled:item()))
  end
end
print(("trained on %s for %.1f s"):format(device, data.seconds() - started))

-- 4. New digits, as pictures and in numbers: how far they are from the nearest
-- real one, and whether all ten are drawn.
drawer:eval()
local draw = limn.trace(drawer, limn.zeros(2, noise))
local drawn = draw(limn.randn(500, noise, device)):to "cpu"

local shades = {[0] = " ", ".", ":", "+", "*", "#", "@", "@"}
for row = 1, 8 do
  local line = {}
  for digit = 1, 8 do
    for column = 1, 8 do
      local level = drawn:at(digit, (row - 1) * 8 + column)
      line[#line + 1] = shades[math.floor((level + 1) * 3.5)]:rep(2)
    end
  end
  print(table.concat(line))
end

local function nearest(x)
  local d = x:square():sum(2, true) + real:square():sum(2)
    - 2 * limn.matmul(x, real, false, true)
  return d:min(2):clamp(0):sqrt():mean():item(), labels[d:argmin(2)]
end
local distance, kinds = nearest(drawn)
print(("a real digit is %.2f away; %.2f from digits held out, %.2f from noise")
  :format(distance, (nearest(unseen)),
          (nearest(limn.rand(500, 64) * 2 - 1))))
local count = kinds:bincount {minlength = 10}
print("of 500 drawn, 0 to 9 each: " .. table.concat(count:totable(), " "))
local far, few = options.quick and 4.5 or 3.2, options.quick and 1 or 10
assert(distance < far, "the drawings are no digits")
assert(count:min():item() >= few, "some digit is hardly ever drawn")
