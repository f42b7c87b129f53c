-- Activations: functions under the op's name, layers under PyTorch's.
local read_options = require "limn.options"
local Module = require "limn.nn.module"

local limn = require "limn.lazy"

local M = {}

-- Layer name, op, and its option with a default (both may be absent).
local rows = {
  {"ReLU", "relu"}, {"Tanh", "tanh"}, {"Sigmoid", "sigmoid"},
  {"GELU", "gelu"}, {"SiLU", "silu"}, {"Mish", "mish"}, {"SELU", "selu"},
  {"Softplus", "softplus"}, {"LogSigmoid", "logsigmoid"},
  {"Hardswish", "hardswish"}, {"Hardsigmoid", "hardsigmoid"},
  {"LeakyReLU", "leaky_relu", "slope", 0.01}, {"ELU", "elu", "alpha", 1},
  {"Softmax", "softmax", "dim", -1},
  {"LogSoftmax", "log_softmax", "dim", -1},
}

for _, row in ipairs(rows) do
  local name, op, option, default = row[1], row[2], row[3], row[4]
  local Class = Module:extend(name)
  M[op] = function(x, ...)
    local y = limn[op](x, ...)
    return y
  end
  M[name] = Class
  if option then
    function Class:init(v)
      if type(v) == "table" then
        v = read_options(v, {option}, name)[option]
      end
      self[option] = v or default
    end
    function Class:forward(x)
      local y = limn[op](x, self[option])
      return y
    end
    function Class:describe() return tostring(self[option]) end
  else
    function Class:forward(x) -- luacheck: no self
      local y = limn[op](x)
      return y
    end
  end
end

local Identity = Module:extend "Identity"
function Identity:forward(x) return x end -- luacheck: no self
M.Identity = Identity

-- Flatten(first, last): dims first..last as one; all but the rows by default.
local Flatten = Module:extend "Flatten"
function Flatten:init(first, last)
  self.first, self.last = first or 2, last or -1
end
function Flatten:forward(x)
  local y = limn.flatten(x, self.first, self.last)
  return y
end
function Flatten:describe() return self.first .. ", " .. self.last end
M.Flatten = Flatten

return M
