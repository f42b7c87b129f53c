--- Arithmetic made of several ops, element by element or of vectors.
local core = require "limn.core"
local D = require "limn.dims"
local wide = require "limn.wide"

local ops, methods = core.ops, core.raw "methods"
local M = {}

--- x:lerp(y, weight): x + weight * (y - x), the weight a number or a tensor.
function methods.lerp(x, y, weight)
  D.tensor(x, "lerp")
  D.tensor(y, "lerp")
  local a, b, w = wide.widen(x), wide.widen(y), wide.widen(weight)
  local d = ops.sub(b, a)
  -- From the nearer end, so that a weight of 1 gives y itself.
  local low, high = a + d * w, b - d * (1 - w)
  local z
  if type(w) == "number" then
    z = w < 0.5 and low or high
  else
    z = ops.where(ops.lt(w, 0.5), low, high)
  end
  z = wide.unwiden(z, x, y, weight)
  return z
end

local function with_product(name, op)
  methods[name] = function(x, a, b, ...)
    local o = D.args(name, {"value"}, ...)
    D.tensor(x, name)
    local z = op(wide.widen(a), wide.widen(b))
    if o.value ~= nil then z = z * o.value end
    z = wide.unwiden(wide.widen(x) + z, x, a, b)
    return z
  end
end

--- x:addcmul(a, b [, {value = 1}]): x + value * a * b.
with_product("addcmul", ops.mul)
--- x:addcdiv(a, b [, {value = 1}]): x + value * a / b.
with_product("addcdiv", ops.div)

--- x:cross(y [, {dim = -1}]): the cross product of vectors of 3 along dim.
function methods.cross(x, y, ...)
  local a = D.args("cross", {"dim"}, ...)
  local d = D.whole(x, a.dim or -1, "cross") - x:dim() - 1
  D.whole(y, d, "cross")
  for _, v in ipairs {x, y} do
    local n = v:size(d)
    x = D.expect(x, D.eq(n, 3), "cross: vectors of 3 are wanted"
      .. (type(n) == "number" and ", not of " .. n or ""))
  end
  local z = x:roll(-1, d) * y:roll(-2, d) - x:roll(-2, d) * y:roll(-1, d)
  return z
end

--- x:gelu([{approximate = "none"}]): x times the normal distribution function;
-- approximate = "tanh": by a formula with tanh instead, as GPT-2 has it.
function methods.gelu(x, ...)
  local how = "none" -- most often nothing is said: no table of arguments
  if select("#", ...) > 0 then
    how = D.args("gelu", {"approximate"}, ...).approximate or how
  end
  if how ~= "none" and how ~= "tanh" then
    core.fail(("gelu: approximate is 'none' or 'tanh', not '%s'"):format(
      tostring(how)))
  end
  local y = (how == "tanh" and ops.gelu_tanh or ops.gelu)(x)
  return y
end

--- x:logit([eps]): log(x / (1 - x)); with eps of x within eps..1 - eps.
function methods.logit(x, eps)
  D.tensor(x, "logit")
  local v = wide.widen(x)
  if eps ~= nil then v = ops.clamp(v, eps, 1 - eps) end
  local y = ops.log(v) - ops.log1p(-v)
  y = wide.unwiden(y, x)
  return y
end

--- x:sinc(): sin(pi x) / (pi x), and 1 at 0.
function methods.sinc(x)
  D.tensor(x, "sinc")
  local zero = ops.eq(x, 0)
  local v = ops.where(zero, 1, wide.widen(x)) * math.pi
  local y = ops.where(zero, 1, ops.sin(v) / v)
  y = wide.unwiden(y, x)
  return y
end

--- limn.cdist(x, y [, {p = 2}]): the distances of all rows of x from all rows
-- of y, by the norm p: [..., n, k] and [..., m, k] give [..., n, m].
function methods.cdist(x, y, ...)
  local a = D.args("cdist", {"p"}, ...)
  for _, v in ipairs {x, y} do
    D.tensor(v, "cdist")
    if v:dim() < 2 then
      core.fail(("cdist: rows are wanted, not a tensor with %d dim%s"):format(
        v:dim(), v:dim() == 1 and "" or "s"))
    end
  end
  local n, m = x:size(-1), y:size(-1)
  local known = type(n) == "number" and type(m) == "number"
  x = D.expect(x, D.eq(n, m), "cdist: the rows differ in length"
    .. (known and (": %d and %d"):format(n, m) or ""))
  local d = ops.sub(ops.unsqueeze(x, -2), ops.unsqueeze(y, -3))
  local z = ops.norm(d, a.p or 2, -1)
  return z
end

-- The largest finite number of x's dtype, which a trace does not know: of the
-- largest of each dtype the greatest that this one holds.
local function largest(x)
  local y
  for _, v in ipairs {65504, 3.3895313892515355e38, 3.4028234663852886e38,
                      1.7976931348623157e308} do
    local t = x:new_full({}, v)
    y = y and ops.where(ops.isfinite(t), t, y) or t
  end
  return y
end

--- x:nan_to_num([{nan = 0, posinf, neginf}]): other numbers for NaN and the
-- infinities; for these the largest and lowest of the dtype unless given.
function methods.nan_to_num(x, ...)
  local a = D.args("nan_to_num", {"nan", "posinf", "neginf"}, ...)
  D.tensor(x, "nan_to_num")
  if core.whole(x) then return x:clone() end
  local high, low = a.posinf, a.neginf
  if high == nil then high = largest(x) end
  if low == nil then low = ops.neg(largest(x)) end
  local y = ops.where(ops.eq(x, math.huge), high, x)
  y = ops.where(ops.eq(x, -math.huge), low, y)
  y = ops.where(ops.isnan(x), a.nan or 0, y)
  return y
end

for _, name in ipairs {"lerp", "addcmul", "addcdiv", "cross", "gelu", "logit",
  "sinc", "cdist", "nan_to_num"} do
  M[name] = methods[name]
end

return M
