-- What every elementwise and reduction op computes, in plain doubles.
local ffi = require "ffi"
ffi.cdef [[
double expm1(double); double log1p(double); double erf(double);
double exp2(double); double log2(double); double rint(double);
double trunc(double); double asinh(double); double acosh(double);
double atanh(double); double fmod(double, double); double lgamma(double);
double hypot(double, double);
]]
local C = ffi.C
local abs, exp, sqrt, floor = math.abs, math.exp, math.sqrt, math.floor
local inf = math.huge

local function b(v) return v and 1 or 0 end
local function max(x, y)
  if x ~= x then return x end
  if y ~= y then return y end
  return x > y and x or y
end
local function min(x, y)
  if x ~= x then return x end
  if y ~= y then return y end
  return x < y and x or y
end
local function sigmoid(x) return 1 / (1 + exp(-x)) end
local function softplus(x) return max(x, 0) + C.log1p(exp(-abs(x))) end


-- Newton's method, from a bisection.
local function erfinv(y)
  if y ~= y or y > 1 or y < -1 then return 0 / 0 end
  if y == 1 or y == -1 then return y * inf end
  local low, high = -7, 7
  for _ = 1, 40 do
    local mid = (low + high) / 2
    if C.erf(mid) < y then low = mid else high = mid end
  end
  local x = (low + high) / 2
  for _ = 1, 3 do
    x = x - (C.erf(x) - y) * sqrt(math.pi) / 2 * exp(x * x)
  end
  return x
end

-- Upwards to where few terms of the asymptotic series do.
local function digamma(x)
  if x ~= x then return x end
  if x < 0 then return digamma(1 - x) - math.pi / math.tan(math.pi * x) end
  local r = 0
  while x < 60 do
    r = r - 1 / x
    x = x + 1
  end
  return r + math.log(x) - 1 / (2 * x) - 1 / (12 * x ^ 2)
    + 1 / (120 * x ^ 4) - 1 / (252 * x ^ 6)
end

local function polygamma(n, x) -- x above 0
  if x ~= x or n ~= n or n % 1 ~= 0 then return 0 / 0 end
  if n == 0 then return digamma(x) end
  local s, f, sign = 0, 1, n % 2 == 1 and 1 or -1
  while x < 200 do
    s = s + x ^ -(n + 1)
    x = x + 1
  end
  for k = 2, n do f = f * k end
  s = s + x ^ -n / n + x ^ -(n + 1) / 2 + (n + 1) * x ^ -(n + 2) / 12
    - (n + 1) * (n + 2) * (n + 3) * x ^ -(n + 4) / 720
  return sign * f * s
end

-- Shifts of whole numbers; what does not fit is wrapped by who stores it.
local function left(x, n) return n < 0 and 0 or x * 2 ^ n end
local function right(x, n)
  if n < 0 then return x < 0 and -1 or 0 end
  return floor(x / 2 ^ n)
end

local R = {max = max, min = min}

-- Elementwise. `int` is the operands' dtype if that holds whole numbers, where
-- division by zero gives 0.
R.e = {
  neg = function(x) return -x end,
  abs = abs,
  sign = function(x) return x ~= x and x or b(x > 0) - b(x < 0) end,
  square = function(x) return x * x end,
  floor = floor,
  ceil = math.ceil,
  round = function(x) return C.rint(x) end,
  trunc = function(x) return C.trunc(x) end,
  frac = function(x) return x - C.trunc(x) end,
  lgamma = function(x) return C.lgamma(x) end,
  erfinv = erfinv,
  digamma = digamma,
  bitwise_not = function(x, dtype)
    if dtype == "bool" then return 1 - x end
    return -1 - x
  end,
  relu = function(x) return x < 0 and 0 or x end,
  exp = exp,
  exp2 = function(x) return C.exp2(x) end,
  expm1 = function(x) return C.expm1(x) end,
  log = function(x) return math.log(x) end, -- not of two numbers
  log2 = function(x) return C.log2(x) end,
  log10 = math.log10,
  log1p = function(x) return C.log1p(x) end,
  sqrt = sqrt,
  rsqrt = function(x) return 1 / sqrt(x) end,
  reciprocal = function(x) return 1 / x end,
  sin = math.sin, cos = math.cos, tan = math.tan,
  asin = math.asin, acos = math.acos, atan = math.atan,
  sinh = math.sinh, cosh = math.cosh, tanh = math.tanh,
  asinh = function(x) return C.asinh(x) end,
  acosh = function(x) return C.acosh(x) end,
  atanh = function(x) return C.atanh(x) end,
  erf = function(x) return C.erf(x) end,
  sigmoid = sigmoid,
  silu = function(x) return x * sigmoid(x) end,
  softplus = softplus,
  logsigmoid = function(x) return -softplus(-x) end,
  mish = function(x) return x * math.tanh(softplus(x)) end,
  gelu = function(x) return x * 0.5 * (1 + C.erf(x / sqrt(2))) end,
  gelu_tanh = function(x)
    return x * 0.5 * (1 + math.tanh(sqrt(2 / math.pi)
      * (x + 0.044715 * x ^ 3)))
  end,
  selu = function(x)
    local s, a = 1.0507009873554805, 1.6732632423543772
    return x > 0 and s * x or s * a * C.expm1(x)
  end,
  hardswish = function(x) return x * min(max(x + 3, 0), 6) / 6 end,
  hardsigmoid = function(x) return min(max(x + 3, 0), 6) / 6 end,
  isnan = function(x) return b(x ~= x) end,
  isinf = function(x) return b(x == inf or x == -inf) end,
  isfinite = function(x) return b(x - x == 0) end,
  logical_not = function(x) return b(x == 0) end,

  add = function(x, y) return x + y end,
  sub = function(x, y) return x - y end,
  mul = function(x, y) return x * y end,
  div = function(x, y) return x / y end,
  floor_div = function(x, y, int)
    if int and y == 0 then return 0 end
    return floor(x / y)
  end,
  remainder = function(x, y, int)
    if int and y == 0 then return 0 end
    return x - floor(x / y) * y
  end,
  fmod = function(x, y, int)
    if int and y == 0 then return 0 end
    return C.fmod(x, y)
  end,
  hypot = function(x, y) return C.hypot(x, y) end,
  logaddexp = function(x, y) return max(x, y) + C.log1p(exp(-abs(x - y))) end,
  xlogy = function(x, y) return x == 0 and y == y and 0 or x * math.log(y) end,
  polygamma = polygamma,
  bitwise_and = function(x, y) return tonumber(bit.band(x, y)) end,
  bitwise_or = function(x, y) return tonumber(bit.bor(x, y)) end,
  bitwise_xor = function(x, y) return tonumber(bit.bxor(x, y)) end,
  bitwise_left_shift = left,
  bitwise_right_shift = right,
  pow = function(x, y) return x ^ y end,
  maximum = max,
  minimum = min,
  atan2 = math.atan2,
  elu = function(x, y) return x > 0 and x or y * C.expm1(x) end,
  leaky_relu = function(x, y) return x > 0 and x or x * y end,
  lt = function(x, y) return b(x < y) end,
  le = function(x, y) return b(x <= y) end,
  gt = function(x, y) return b(x > y) end,
  ge = function(x, y) return b(x >= y) end,
  eq = function(x, y) return b(x == y) end,
  ne = function(x, y) return b(x ~= y) end,
  logical_and = function(x, y) return b(x ~= 0 and y ~= 0) end,
  logical_or = function(x, y) return b(x ~= 0 or y ~= 0) end,
  logical_xor = function(x, y) return b((x ~= 0) ~= (y ~= 0)) end,

  where = function(c, x, y) if c ~= 0 then return x end return y end,
  clamp = function(x, lo, hi)
    return min(max(x, lo or -inf), hi or inf)
  end,
}

-- Reductions: start, step.
R.r = {
  sum = {0, function(acc, x) return acc + x end},
  prod = {1, function(acc, x) return acc * x end},
  max = {nil, function(acc, x) return acc == nil and x or max(acc, x) end},
  peak = {-inf, max},
  min = {nil, function(acc, x) return acc == nil and x or min(acc, x) end},
  any = {0, function(acc, x) return b(acc ~= 0 or x ~= 0) end},
  all = {1, function(acc, x) return b(acc ~= 0 and x ~= 0) end},
}

-- -- Arrays: {shape = , data = row-major} --

function R.numel(shape)
  local n = 1
  for i = 1, #shape do n = n * shape[i] end
  return n
end

-- The 0-based position of row-major number k, by dim.
local function position(shape, k)
  local at = {}
  for d = #shape, 1, -1 do
    at[d] = k % shape[d]
    k = floor(k / shape[d])
  end
  return at
end

local function offset(shape, at, skip)
  local k = 0
  for d = 1, #shape do
    local i = at[d + (skip or 0)]
    k = k * shape[d] + (shape[d] == 1 and 0 or i)
  end
  return k + 1
end
R.position, R.offset = position, offset

function R.broadcast(shapes)
  local n = 0
  for _, s in ipairs(shapes) do n = math.max(n, #s) end
  local out = {}
  for d = 1, n do
    out[d] = 1
    for _, s in ipairs(shapes) do
      local size = s[d - n + #s]
      if size and size ~= 1 then out[d] = size end
    end
  end
  return out
end

-- An elementwise op of arrays (or numbers): an array.
function R.map(f, args, int)
  local shapes = {}
  for _, a in ipairs(args) do
    shapes[#shapes + 1] = type(a) == "table" and a.shape or {}
  end
  local shape = R.broadcast(shapes)
  local out = {shape = shape, data = {}}
  for k = 0, R.numel(shape) - 1 do
    local at, v = position(shape, k), {}
    for i, a in ipairs(args) do
      v[i] = type(a) == "table"
        and a.data[offset(a.shape, at, #shape - #a.shape)] or a
    end
    if #args < 3 then v[#args + 1] = int end
    out.data[k + 1] = f(unpack(v, 1, 4))
  end
  return out
end

-- A reduction over a set of dims (absent: all).
function R.reduce(op, a, dims, keep)
  local start, step = R.r[op][1], R.r[op][2]
  local gone, shape, kept = {}, {}, {}
  for d = 1, #a.shape do gone[d] = not dims end
  for _, d in ipairs(dims or {}) do
    gone[d < 0 and d + 1 + #a.shape or d] = true
  end
  for d = 1, #a.shape do
    kept[d] = gone[d] and 1 or a.shape[d]
    if not gone[d] then
      shape[#shape + 1] = a.shape[d]
    elseif keep then
      shape[#shape + 1] = 1
    end
  end
  local data = {}
  for k = 1, R.numel(kept) do data[k] = start end
  for k = 0, R.numel(a.shape) - 1 do
    local at = position(a.shape, k)
    for d = 1, #a.shape do if gone[d] then at[d] = 0 end end
    local o = offset(kept, at)
    data[o] = step(data[o], a.data[k + 1])
  end
  return {shape = shape, data = data}
end

return R
