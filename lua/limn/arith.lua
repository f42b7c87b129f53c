--- Arithmetic made of several ops: lerp, addcmul, addcdiv, cross, nan_to_num.
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

for _, name in ipairs {"lerp", "addcmul", "addcdiv", "cross", "nan_to_num"} do
  M[name] = methods[name]
end

return M
