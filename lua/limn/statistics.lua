--- Counts and statistics: modes, quantiles, histograms, running extremes,
-- differences, covariances, and sums that leave NaN out.
local core = require "limn.core"
local D = require "limn.dims"
local wide = require "limn.wide"

local ops, methods, fail = core.ops, core.raw "methods", core.fail
local M = {}

-- -- Sums and counts ------------------------------------------------------

--- x:count_nonzero([dim]): how many elements are not 0, over dims or all.
function methods.count_nonzero(x, ...)
  local a = D.args("count_nonzero", {"dim"}, ...)
  D.tensor(x, "count_nonzero")
  local y = ops.sum(ops.ne(x, 0), a.dim)
  return y
end

--- x:nansum([dim], keepdim = false): sum in which NaN counts as 0.
function methods.nansum(x, ...)
  local a = D.args("nansum", {"dim", "keepdim"}, ...)
  D.tensor(x, "nansum")
  local y = ops.sum(ops.where(ops.isnan(x), 0, x), a.dim, a.keepdim or false)
  return y
end

--- x:nanmean([dim], keepdim = false): the mean of what is not NaN.
function methods.nanmean(x, ...)
  local a = D.args("nanmean", {"dim", "keepdim"}, ...)
  D.tensor(x, "nanmean")
  local keep, nan = a.keepdim or false, ops.isnan(x)
  local sum = ops.sum(ops.where(nan, 0, wide.widen(x)), a.dim, keep)
  local y = sum / ops.sum(ops.logical_not(nan), a.dim, keep)
  y = wide.unwiden(y, x)
  return y
end

-- -- Along a dim ----------------------------------------------------------

-- 1..n of x's dim, in a shape that broadcasts to x's.
local function positions(x, dim)
  local n, size = x:size(dim), {}
  for d = 1, x:dim() do size[d] = d == dim and n or 1 end
  local at = core.arange(1, n, {dtype = "int64", device = x.device})
  at = ops.reshape(at, size)
  return at
end

-- The last place so far where x was the extreme, from the running extremes.
local function running(x, dim, op, who)
  dim = D.whole(x, dim == nil and -1 or dim, who)
  local best = op(ops.detach(x), dim)
  local here = ops.logical_or(ops.eq(x, best), ops.isnan(x))
  local at = ops.where(here, positions(x, dim), 1)
  at = ops.cummax(at, dim)
  local y = ops.gather(x, dim, at)
  return y, at
end

--- x:cummax(dim) -> values, positions: the largest so far along dim and where
-- it stands, of equals the last; NaN is the largest.
function methods.cummax(x, dim)
  local y, at = running(x, dim, ops.cummax, "cummax")
  return y, at
end

--- x:cummin(dim) -> values, positions: the smallest so far, likewise; NaN is
-- the smallest.
function methods.cummin(x, dim)
  local y, at = running(x, dim, ops.cummin, "cummin")
  return y, at
end

-- Elements 2..n along dim, and 1..n - 1; none of none.
local function neighbours(x, dim)
  local n = x:size(dim)
  local k = D.limn.min(n, 1)
  return D.part(x, dim, k + 1, n), D.part(x, dim, 1, n - k)
end

--- x:diff([{n = 1, dim = -1}]): the differences of neighbours along dim, n
-- times over.
function methods.diff(x, ...)
  local a = D.args("diff", {"n", "dim"}, ...)
  local dim, n = D.whole(x, a.dim or -1, "diff"), a.n or 1
  if type(n) ~= "number" or n < 0 or n % 1 ~= 0 then
    fail("diff: n is a whole number from 0 on, not " .. tostring(n))
  end
  for _ = 1, n do
    local after, before = neighbours(x, dim)
    x = ops.sub(after, before)
  end
  return x
end

local function dropped(y, at, dim, keep)
  if not keep then y, at = ops.squeeze(y, {dim}), ops.squeeze(at, {dim}) end
  return y, at
end

--- x:mode([{dim = -1, keepdim = false}]) -> values, positions: the most
-- frequent value along dim, of several the smallest, and where it stands last.
function methods.mode(x, ...)
  local a = D.args("mode", {"dim", "keepdim"}, ...)
  local dim = D.whole(x, a.dim or -1, "mode")
  -- Equals stand together once sorted; how far each is into its run.
  local v, at = methods.sort(x, dim)
  local after, before = neighbours(v, dim)
  local here = positions(x, dim)
  local first = ops.ne(after, before)
  first = ops.cat({ops.full_like(D.part(v, dim, 1, 1), 1, "bool"), first}, dim)
  local start = ops.cummax(ops.where(first, here, 0), dim)
  local best = ops.argmax(here - start, dim, true)
  return dropped(ops.gather(v, dim, best), ops.gather(at, dim, best), dim,
    a.keepdim)
end

-- -- Quantiles ------------------------------------------------------------

-- The nearest whole number, halves to even.
local function nearest(at)
  if type(at) ~= "number" then return ops.round(at) end
  local n = math.floor(at + 0.5)
  if n - at == 0.5 and n % 2 == 1 then n = n - 1 end
  return n
end

local between = { -- of the values at whole positions, what is at `at`
  linear = function(value, at)
    local first = D.limn.floor(at)
    local low, high = value(first), value(D.limn.ceil(at))
    return low + (high - low) * (at - first)
  end,
  lower = function(value, at) return value(D.limn.floor(at)) end,
  higher = function(value, at) return value(D.limn.ceil(at)) end,
  nearest = function(value, at) return value(nearest(at)) end,
  midpoint = function(value, at)
    return (value(D.limn.floor(at)) + value(D.limn.ceil(at))) * 0.5
  end,
}

-- One quantile of values sorted along dim, which it drops.
local function quantile(v, dim, q, how)
  local y = between[how](function(i)
    local part = D.part(v, dim, i + 1, i + 1)
    return ops.squeeze(part, {dim})
  end, q * (v:size(dim) - 1))
  return y
end

--- x:quantile(q [, {dim, keepdim = false, interpolation = "linear"}]): the
-- value below which the part q of x lies, over dim or of all. A list of q gives
-- a first dim. Between two values: linear, lower, higher, nearest or midpoint.
-- NaN where any is.
function methods.quantile(x, ...)
  local a = D.args("quantile", {"q", "dim", "keepdim", "interpolation"}, ...)
  local q, how = a.q, a.interpolation or "linear"
  D.tensor(x, "quantile")
  for _, v in ipairs(type(q) == "table" and q or {q or "nil"}) do
    if type(v) ~= "number" or not (v >= 0 and v <= 1) then
      fail("quantile: q is a number from 0 to 1 or a list of these, not "
        .. tostring(v))
    end
  end
  if not between[how] then
    fail(("quantile: there is no interpolation '%s': linear, lower, higher, "
      .. "nearest, midpoint"):format(tostring(how)))
  end
  local v = wide.widen(x)
  if a.dim == nil then v = ops.flatten(v) end
  local dim = D.whole(v, a.dim or 1, "quantile")
  local n = v:size(dim)
  v = D.expect(v, D.le(1, n), "quantile: no elements to choose from in dim "
    .. dim)
  v = methods.sort(v, dim)
  local list = {}
  for i, one in ipairs(type(q) == "table" and q or {q}) do
    local y = quantile(v, dim, one, how)
    if a.keepdim and a.dim then y = ops.unsqueeze(y, dim) end
    list[i] = y
  end
  -- NaN is sorted last: it is any's if it is the last.
  local last = D.part(v, dim, n, n)
  if not (a.keepdim and a.dim) then last = ops.squeeze(last, {dim}) end
  local y = type(q) == "table" and ops.stack(list, 1) or list[1]
  y = ops.where(ops.isnan(last), 0 / 0, y)
  if a.keepdim and not a.dim then
    for _ = 1, x:dim() do y = ops.unsqueeze(y, -1) end
  end
  y = wide.unwiden(y, x)
  return y
end

-- -- Histograms -----------------------------------------------------------

--- x:histc([{bins = 100, min = 0, max = 0}]): how many elements lie in each of
-- `bins` equal parts of min..max, or if these are equal of the smallest to the
-- largest of x. Others and NaN do not count.
function methods.histc(x, ...)
  local a = D.args("histc", {"bins", "min", "max"}, ...)
  local bins, low, high = a.bins or 100, a.min or 0, a.max or 0
  D.tensor(x, "histc")
  if type(bins) ~= "number" or bins < 1 or bins % 1 ~= 0 then
    fail("histc: bins is a whole number above 0, not " .. tostring(bins))
  elseif type(low) ~= "number" or type(high) ~= "number" or low > high then
    fail(("histc: min and max are numbers, min not above max, not %s and %s")
      :format(tostring(low), tostring(high)))
  end
  local v = ops.flatten(ops.div(x, 1))
  if low == high then
    low, high = -ops.peak(-v), ops.peak(v)
    local one = ops.eq(low, high)
    low, high = ops.where(one, low - 1, low), ops.where(one, high + 1, high)
  end
  local inside = ops.logical_and(ops.ge(v, low), ops.le(v, high))
  local at = ops.floor((v - low) / (high - low) * bins) + 1
  at = ops.where(inside, ops.clamp(at, 1, bins), bins + 1):to "int64"
  local y = v:new_zeros(bins + 1):index_add(1, at, ops.full_like(v, 1))
  y = D.part(y, 1, 1, bins)
  return y
end

-- -- Covariance -----------------------------------------------------------

--- x:cov([{correction = 1}]): the covariances of the rows of x [variables,
-- observations], or the variance of a vector; divided by n - correction.
function methods.cov(x, ...)
  local a = D.args("cov", {"correction"}, ...)
  D.tensor(x, "cov")
  local rank = x:dim()
  if rank < 1 or rank > 2 then
    fail(("cov: a matrix or a vector is wanted, not %d dims"):format(rank))
  end
  local v = wide.widen(x)
  if rank == 1 then v = ops.unsqueeze(v, 1) end
  local n = v:size(2) - (a.correction or 1)
  local d = v - ops.mean(v, 2, true)
  local y = ops.matmul(d, d, false, true) / D.limn.max(n, 0)
  if rank == 1 then y = ops.squeeze(y, {1, 2}) end
  y = wide.unwiden(y, x)
  return y
end

--- x:corrcoef(): the correlation coefficients of the rows of x [variables,
-- observations], within -1..1; of a vector 1.
function methods.corrcoef(x)
  D.tensor(x, "corrcoef")
  local c = methods.cov(wide.widen(x))
  local y
  if x:dim() == 1 then
    y = c / c
  else
    local s = ops.sqrt(methods.diagonal(c))
    y = ops.clamp(c / ops.unsqueeze(s, 2) / s, -1, 1)
  end
  y = wide.unwiden(y, x)
  return y
end

for _, name in ipairs {"count_nonzero", "nansum", "nanmean", "cummax",
  "cummin", "diff", "mode", "quantile", "histc", "cov", "corrcoef"} do
  M[name] = methods[name]
end

return M
