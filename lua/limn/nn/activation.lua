-- Activations: functions under the op's name, layers under PyTorch's.
local core = require "limn.core"
local read_options = require "limn.options"
local check = require "limn.nn.check"
local D = require "limn.dims"
local Module = require "limn.nn.module"

local limn = require "limn.lazy"

local M = {}

--- nn.relu(x), nn.ReLU(): x where it is above 0, else 0.
--- nn.tanh(x), nn.Tanh(): hyperbolic tangent.
--- nn.sigmoid(x), nn.Sigmoid(): 1 / (1 + exp(-x)).
--- nn.gelu(x [, {approximate = "none"}]), nn.GELU(options): x * P(X <= x) for a
-- normal X (Hendrycks and Gimpel 2016), by the error function, or with
-- approximate = "tanh" nearly so.
--- nn.silu(x), nn.SiLU(): x * sigmoid(x).
--- nn.mish(x), nn.Mish(): x * tanh(softplus(x)) (Misra 2019).
--- nn.selu(x), nn.SELU(): scaled ELU (Klambauer et al. 2017).
--- nn.softplus(x), nn.Softplus(): log(1 + exp(x)).
--- nn.logsigmoid(x), nn.LogSigmoid(): log(sigmoid(x)), exact for large -x.
--- nn.hardswish(x), nn.Hardswish(): x * hardsigmoid(x).
--- nn.hardsigmoid(x), nn.Hardsigmoid(): x / 6 + 1 / 2 within 0..1.
--- nn.leaky_relu(x, slope = 0.01), nn.LeakyReLU(slope): x, or slope * x below
-- 0.
--- nn.elu(x, alpha = 1), nn.ELU(alpha): x, or alpha * (exp(x) - 1) below 0.
--- nn.softmax(x, dim), nn.Softmax(dim = -1): exp(x) over its sum along dim.
--- nn.log_softmax(x, dim), nn.LogSoftmax(dim = -1): the logarithm of softmax.

-- What an activation's option holds: a number; a dim is a whole one.
local function valid(v, name, who)
  local kind = core.type(v)
  local ok = type(v) == "number" or kind == "tensor" or kind == "cell"
    or kind == "dim"
  if name == "approximate" then ok = v == "none" or v == "tanh" end
  if name == "dim" then ok = type(v) == "number" and v % 1 == 0 end
  if v ~= nil and not ok then
    core.fail(("%s: %s is %s, not %s"):format(who, name,
      name == "approximate" and "'none' or 'tanh'"
        or name == "dim" and "a whole number" or "a number",
      type(v) == "string" and "'" .. v .. "'" or tostring(v)))
  end
  return v
end

-- Layer name, op, and its option with a default (both may be absent).
local rows = {
  {"ReLU", "relu"}, {"Tanh", "tanh"}, {"Sigmoid", "sigmoid"},
  {"GELU", "gelu", "approximate"}, {"SiLU", "silu"}, {"Mish", "mish"},
  {"SELU", "selu"},
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
      v = valid(v, option, name)
      self[option] = v == nil and default or v
    end
    function Class:forward(x)
      local y = limn[op](x, self[option])
      return y
    end
    function Class:describe()
      local v = self[option]
      return v == nil and "" or tostring(v)
    end
  else
    function Class:forward(x) -- luacheck: no self
      local y = limn[op](x)
      return y
    end
  end
end

-- -- Compositions -----------------------------------------------------------

--- nn.hardtanh(x, low = -1, high = 1), nn.Hardtanh(min_val, max_val): x kept
-- within bounds. On a bound it has no gradient, unlike clamp.
function M.hardtanh(x, low, high)
  low, high = low or -1, high or 1
  local y = limn.where(x:le(low), low, limn.where(x:ge(high), high, x))
  return y
end
--- nn.relu6(x), nn.ReLU6(): x kept within 0..6, as by hardtanh.
function M.relu6(x)
  local y = M.hardtanh(x, 0, 6)
  return y
end
--- nn.softsign(x), nn.Softsign(): x / (1 + |x|).
function M.softsign(x)
  local y = x / (x:abs() + 1)
  return y
end
--- nn.tanhshrink(x), nn.Tanhshrink(): x - tanh(x).
function M.tanhshrink(x)
  local y = x - x:tanh()
  return y
end
--- nn.hardshrink(x, lambda = 0.5), nn.Hardshrink(lambd): 0 within
-- -lambda..lambda, else x.
function M.hardshrink(x, lambda)
  local y = limn.where(x:abs():gt(lambda or 0.5), x, 0)
  return y
end
--- nn.softshrink(x, lambda = 0.5), nn.Softshrink(lambd): 0 within
-- -lambda..lambda, else x moved by lambda towards 0.
function M.softshrink(x, lambda)
  lambda = lambda or 0.5
  local y = limn.where(x:abs():gt(lambda), x - x:sign() * lambda, 0)
  return y
end
--- nn.threshold(x, threshold, value), nn.Threshold(threshold, value): x above
-- the threshold, else value.
function M.threshold(x, threshold, value)
  local y = limn.where(x:gt(threshold), x, value)
  return y
end
--- nn.celu(x, alpha = 1), nn.CELU(alpha): x, or alpha * (exp(x / alpha) - 1)
-- below 0.
function M.celu(x, alpha)
  alpha = alpha or 1
  local above = x:gt(0)
  local below = limn.where(above, 0, x) -- minimum would halve the slope at 0
  local y = limn.where(above, x, (below / alpha):expm1() * alpha)
  return y
end
--- nn.softmin(x, dim = -1), nn.Softmin(dim): softmax(-x).
function M.softmin(x, dim)
  local y = limn.softmax(-x, dim or -1)
  return y
end
--- nn.glu(x, dim = -1), nn.GLU(dim): the first half of dim, times the sigmoid
-- of the second.
function M.glu(x, dim)
  local n = x:size(dim or -1)
  if type(n) == "number" and n % 2 ~= 0 then
    core.fail(("glu: dim %d has size %d, which has no half"):format(dim or -1,
                                                                    n))
  end
  local parts = x:chunk(2, dim or -1)
  local y = parts[1] * parts[2]:sigmoid()
  return y
end
--- nn.prelu(x, weight): x, or weight * x below 0; weight is [1], or [channels]
-- for x of [rows, channels, ...].
function M.prelu(x, weight)
  check.tensor(x, "prelu")
  check.tensor(weight, "prelu", "weight")
  weight = check.near(weight, x)
  local n, dim = weight:size(1), x:dim() > 1 and 2 or 1
  if type(n) == "number" and n ~= 1 then
    local m = x:dim() > 0 and x:size(dim) or 1
    x = D.expect(x, D.eq(m, n), ("prelu: %d slopes are for %d channels in "
      .. "dim %d"):format(n, n, dim) .. (type(m) == "number"
      and ", where x has " .. m or ""))
  end
  for _ = 3, x:dim() do weight = weight:unsqueeze(-1) end
  local y = limn.where(x:gt(0), x, x * weight)
  return y
end

local compositions = {
  {"Hardtanh", "hardtanh", "min_val", "max_val"}, {"ReLU6", "relu6"},
  {"Softsign", "softsign"}, {"Tanhshrink", "tanhshrink"},
  {"Hardshrink", "hardshrink", "lambd"},
  {"Softshrink", "softshrink", "lambd"},
  {"Threshold", "threshold", "threshold", "value"}, {"CELU", "celu", "alpha"},
  {"Softmin", "softmin", "dim"}, {"GLU", "glu", "dim"},
}
for _, row in ipairs(compositions) do
  local name, f, first, second = row[1], M[row[2]], row[3], row[4]
  local Class = Module:extend(name)
  function Class:init(a, b)
    if type(a) == "table" then
      a = read_options(a, {first, second}, name)
      a, b = a[first], a[second]
    end
    if first then self[first] = valid(a, first, name) end
    if second then self[second] = valid(b, second, name) end
    if name == "Threshold" and (a == nil or b == nil) then
      core.fail("Threshold: a threshold and a value are wanted",
                "nn.Threshold(0.1, 0)")
    end
  end
  function Class:forward(x)
    local y = f(x, first and self[first], second and self[second])
    return y
  end
  function Class:describe()
    local a, b = first and self[first], second and self[second]
    return (a and tostring(a) or "") .. (b and ", " .. tostring(b) or "")
  end
  M[name] = Class
end

--- nn.PReLU(count = 1 [, {init = 0.25, dtype}]): prelu with trained slopes, one
-- or one per channel. Parameters: weight [count].
local PReLU = Module:extend "PReLU"
function PReLU:init(count, options)
  local o = read_options(options, {"init", "dtype"}, "PReLU")
  if count ~= nil then check.whole(count, "PReLU", "the number of slopes") end
  valid(o.init, "init", "PReLU")
  self.weight = core.cell("param", limn.full({count or 1}, o.init or 0.25,
                                             {dtype = o.dtype}))
end
function PReLU:forward(x)
  local y = M.prelu(x, self.weight)
  return y
end
function PReLU:describe() return tostring(self.weight.shape[1]) end
M.PReLU = PReLU

--- nn.Identity(): x itself.
local Identity = Module:extend "Identity"
function Identity:forward(x) return x end -- luacheck: no self
M.Identity = Identity

--- nn.Flatten(first = 2, last = -1): dims first..last as one.
local Flatten = Module:extend "Flatten"
function Flatten:init(first, last)
  self.first = valid(first, "dim", "Flatten") or 2
  self.last = valid(last, "dim", "Flatten") or -1
end
function Flatten:forward(x)
  local y = limn.flatten(x, self.first, self.last)
  return y
end
function Flatten:describe() return self.first .. ", " .. self.last end
M.Flatten = Flatten

--- nn.Unflatten(dim, sizes): one dim as several; one size may be -1.
local Unflatten = Module:extend "Unflatten"
function Unflatten:init(dim, sizes)
  if type(dim) ~= "number" or type(sizes) ~= "table" then
    core.fail("Unflatten: a dim and a list of sizes are needed",
              "nn.Unflatten(2, {3, 8, 8})")
  end
  self.dim, self.sizes = dim, sizes
end
function Unflatten:forward(x)
  local at = self.dim < 0 and self.dim + x:dim() + 1 or self.dim
  if at < 1 or at > x:dim() then
    check.misfit(self, x, "a dim " .. self.dim)
  end
  local y = x:unflatten(at, self.sizes)
  return y
end
function Unflatten:describe()
  return self.dim .. ", {" .. table.concat(self.sizes, ", ") .. "}"
end
M.Unflatten = Unflatten

return M
