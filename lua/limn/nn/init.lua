-- limn.nn: layers have capitals (nn.Linear), functions have not
-- (nn.cross_entropy); `nn.functional` is `nn`.
local core = require "limn.core"

local nn = {Module = require "limn.nn.module",
            init = require "limn.nn.initializers"}
for _, part in ipairs {"linear", "containers", "activation", "dropout",
                       "loss", "normalize", "norm", "embedding", "attention",
                       "transformer", "conv", "pool", "recurrent"} do
  for name, v in pairs(require("limn.nn." .. part)) do nn[name] = v end
end
local called = core.raw "called"
for name, f in pairs(nn) do
  if type(f) == "function" then called[f] = name end
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
  core.fail("nn has no '" .. key .. "'" .. core.near(key, names))
end})
