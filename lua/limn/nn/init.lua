-- limn.nn: layers have capitals (nn.Linear), functions have not
-- (nn.cross_entropy); `nn.functional` is `nn`.
local check = require "limn.nn.check"
local core = require "limn.core"
local instead = require "limn.instead"

local nn = {Module = require "limn.nn.module",
            init = require "limn.nn.initializers"}
for _, part in ipairs {"linear", "containers", "activation", "dropout",
                       "loss", "normalize", "norm", "embedding", "attention",
                       "transformer", "conv", "pool", "unpool", "recurrent"} do
  for name, v in pairs(require("limn.nn." .. part)) do nn[name] = v end
end
local called = core.raw "called"
for name, f in pairs(nn) do -- of two names the first in the alphabet
  if type(f) == "function" and (called[f] or name) >= name then
    called[f] = name
  end
end

-- What layers and functions of limn's are given is looked at once, here: a
-- first argument that must be a tensor, and surplus ones of constructors. What
-- users make of them by `extend` has its own forward and init.
local any = {Module = true, Sequential = true, ModuleList = true,
             ModuleDict = true, Identity = true}
-- Losses look for themselves: their first argument is the prediction.
for name in pairs(require "limn.nn.loss") do any[name] = "loss" end

local function checked(f, name)
  local function all(...) return ... end
  return function(x, ...)
    check.tensor(x, name)
    return all(f(x, ...))
  end
end

for name, v in pairs(nn) do
  if type(v) == "table" and v.is_limn_class and any[name] ~= true then
    local info = debug.getinfo(v.init, "u")
    v.own_init, v.own_forward = v.init, not any[name] and v.forward or nil
    v.own_places = info.isvararg and math.huge or math.max(info.nparams - 1, 0)
  elseif type(v) == "function" and name:find "^%l" and not core.ops[name]
    and not any[name] then
    nn[name] = checked(v, name)
    called[nn[name]] = name
  end
end
nn.functional = nn

local function cell(kind, name)
  return function(t)
    local is = core.type(t)
    if type(t) == "number" or type(t) == "table" then
      t = require "limn".tensor(t)
    elseif is ~= "tensor" then
      core.fail("nn." .. name .. " wants a tensor, got " .. (is or type(t)),
                "self.scale = nn." .. name .. "(limn.ones(3))")
    end
    if kind == "param" and type(t.dtype) == "string"
      and not t.dtype:find "float" then
      core.fail("nn.Parameter: " .. t.dtype .. " cannot be trained",
                "nn.Buffer is for what is only saved; :to \"float32\" converts")
    end
    local c = core.cell(kind, t)
    return c
  end
end
--- nn.Parameter(t): a cell that is trained, with the value t at first (a float
-- tensor, or a table or number to make one of).
--- nn.Buffer(t): a cell that is saved with the model but not trained.
nn.Parameter = cell("param", "Parameter")
nn.Buffer = cell("buffer", "Buffer")

return setmetatable(nn, {__index = function(_, key)
  if type(key) ~= "string" then return nil end
  local names = {}
  for name in pairs(nn) do names[#names + 1] = name end
  table.sort(names)
  local hint = instead.nn[key]
    or core.raw "methods"[key] and ("it is limn.%s, x:%s"):format(key, key)
  core.fail("nn has no '" .. key .. "'"
    .. (hint and "" or core.near(key, names)), hint)
end})
