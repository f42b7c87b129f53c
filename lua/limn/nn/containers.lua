-- Sequential: layers and plain functions, one after another.
local core = require "limn.core"
local Module = require "limn.nn.module"
local walk = require "limn.nn.walk"

local Sequential = Module:extend "Sequential"

local function check(layer, i)
  local kind = walk.kind(layer)
  if layer == nil then
    core.fail("Sequential: layer " .. i .. " is nil",
              "a misspelt name, perhaps; nn.Identity() does nothing")
  elseif kind == "class" then
    core.fail("Sequential: layer " .. i .. " is the class "
              .. layer.class_name .. ", where an instance is needed",
              "write " .. layer.class_name .. "(), with parentheses")
  elseif kind ~= "module" and type(layer) ~= "function" then
    local mt = getmetatable(layer)
    if type(mt) ~= "table" or not mt.__call then
      core.fail("Sequential: layer " .. i .. " is a " .. type(layer)
                .. ", not a module or function")
    end
  end
end

-- nn.Sequential(a, b, ...) or nn.Sequential {a, b, ...}
function Sequential:init(first, ...)
  local n = select("#", ...) + 1
  local layers = {first, ...}
  if walk.kind(first) == "table" and n == 1 then
    layers, n = first, 0
    for k in pairs(first) do
      if type(k) == "number" and k > n then n = k end
    end
  end
  if first == nil and n == 1 then n = 0 end
  for i = 1, n do
    check(layers[i], i)
    self[i] = layers[i]
  end
end

function Sequential:append(layer)
  local i = #self + 1
  check(layer, i)
  self[i] = layer
  return self
end

function Sequential:forward(x)
  for i = 1, #self do x = self[i](x) end
  return x
end

return {Sequential = Sequential}
