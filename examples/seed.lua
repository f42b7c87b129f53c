-- The problem limn was made for: a module makes a tensor on "the device of x".
-- Traced on the CPU, that must not become "the CPU".
local here = arg[0]:match "(.*/)" or "./"
package.path = here .. "../lua/?.lua;" .. here .. "../lua/?/init.lua;"
  .. package.path
package.cpath = here .. "../build/?.so;" .. package.cpath

local limn = require "limn"
local nn = limn.nn

local Inner = nn.Module:extend "Inner"
function Inner:forward(x) -- luacheck: no self
  local zeros = limn.zeros(x:size(1), x.device)
  limn.print("  the inner module's zeros are on", zeros.device)
  return zeros
end

local Wrapper = nn.Module:extend "Wrapper"
function Wrapper:init() self.inner = Inner() end
function Wrapper:forward(x)
  limn.print("  the wrapper's x is on", x.device)
  local zeros = self.inner(x)
  return x + zeros
end

local wrapper = limn.trace(Wrapper(), limn.ones(10)) -- ten values, on the CPU
print(wrapper)

for _, device in ipairs {"cpu", limn.accelerator()} do
  print("twenty values on " .. device .. ":")
  local x = limn.arange(20):to(device)
  local y = wrapper(x)
  print("  the sum is on", y.device)
  assert(tostring(y.device) == device and y:size(1) == 20)
  assert((y - x):abs():max():item() == 0)
end
