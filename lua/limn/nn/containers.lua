-- Sequential: layers and plain functions, one after another. ModuleList and
-- ModuleDict: layers by number and by name, which only their owner calls.
local core = require "limn.core"
local Module = require "limn.nn.module"
local walk = require "limn.nn.walk"

local Sequential = Module:extend "Sequential"

local function check(layer, i, who)
  local kind = walk.kind(layer)
  who = who or "Sequential"
  if layer == nil then
    core.fail(who .. ": layer " .. i .. " is nil",
              "a misspelt name, perhaps; nn.Identity() does nothing")
  elseif kind == "class" then
    core.fail(who .. ": layer " .. i .. " is the class "
              .. layer.class_name .. ", where an instance is needed",
              "write " .. layer.class_name .. "(), with parentheses")
  elseif kind ~= "module" and type(layer) ~= "function" then
    local mt = getmetatable(layer)
    if type(mt) ~= "table" or not mt.__call then
      core.fail(who .. ": layer " .. i .. " is a " .. type(layer)
                .. ", not a module or function")
    end
  end
end

--- nn.Sequential(a, b, ...) or nn.Sequential {a, b, ...}: layers and plain
-- functions, each called with what the one before gave. Children stand at 1..n;
-- `seq:append(layer)` adds one.
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

--- nn.ModuleList {a, b, ...}: layers that only their owner calls, as list[i];
-- #list, list:append(layer).
local ModuleList = Module:extend "ModuleList"
function ModuleList:init(layers)
  for i, layer in ipairs(layers or {}) do
    check(layer, i, "ModuleList")
    self[i] = layer
  end
end
function ModuleList:append(layer)
  check(layer, #self + 1, "ModuleList")
  self[#self + 1] = layer
  return self
end

--- nn.ModuleDict {name = layer, ...}: layers that only their owner calls, as
-- dict.name; dict:keys() lists the names, first those of the constructor,
-- sorted.
local ModuleDict = Module:extend "ModuleDict"
function ModuleDict:init(layers)
  local names = {}
  for name in pairs(layers or {}) do
    if type(name) ~= "string" then
      core.fail("ModuleDict: a name is a string, got " .. type(name),
                "nn.ModuleList holds layers by number")
    end
    names[#names + 1] = name
  end
  table.sort(names)
  for _, name in ipairs(names) do
    check(layers[name], "'" .. name .. "'", "ModuleDict")
    self[name] = layers[name]
  end
end
function ModuleDict:keys()
  local list, info = {}, walk.info(self)
  for i = 1, info.n do
    local key = info.order[i]
    if rawget(self, key) ~= nil then list[#list + 1] = key end
  end
  return list
end

return {Sequential = Sequential, ModuleList = ModuleList,
        ModuleDict = ModuleDict}
