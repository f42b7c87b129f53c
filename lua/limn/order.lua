--- Orders and positions: sort, topk, scatter, unique, nonzero, bincount, and
-- random choices.
local core = require "limn.core"
local D = require "limn.dims"
local wide = require "limn.wide"

local ops, methods, fail = core.ops, core.raw "methods", core.fail
local M = {}

-- -- Orders ---------------------------------------------------------------

--- x:sort([{dim = -1, descending = false}]) -> values, positions: in rising
-- order along dim. Equal ones keep their order; NaN counts as the largest.
function methods.sort(x, ...)
  local a = D.args("sort", {"dim", "descending", "stable"}, ...)
  D.tensor(x, "sort")
  if x:dim() == 0 then -- a line of one
    local y, at = methods.sort(ops.unsqueeze(x, 1), 1)
    return ops.squeeze(y, {1}), ops.squeeze(at, {1})
  end
  local dim = D.whole(x, a.dim or -1, "sort")
  local at = ops.argsort(x, dim, a.descending or false)
  local y = ops.gather(x, dim, at)
  return y, at
end

--- x:topk(k [, {dim = -1, largest = true}]) -> values, positions: the k largest
-- (or smallest) values along dim, best first; of equal ones the first.
function methods.topk(x, ...)
  local a = D.args("topk", {"k", "dim", "largest", "sorted"}, ...)
  local dim = D.whole(x, a.dim or -1, "topk")
  D.size(a.k, "topk(k, dim): k")
  local k, n = D.known(a.k), D.known(x:size(dim))
  if k and n and (k < 0 or k > n or k % 1 ~= 0) then
    fail(("topk: the %g largest of %d, the size of dim %d"):format(k, n, dim))
  end
  local at = ops.argsort(x, dim, a.largest ~= false)
  at = D.part(at, dim, 1, a.k)
  local y = ops.gather(x, dim, at)
  return y, at
end

-- The k-th of each line along dim in rising order (NaN last), and where it is.
local function nth(x, dim, k)
  local at = ops.argsort(x, dim)
  at = D.part(at, dim, k, k)
  local y = ops.gather(x, dim, at)
  return y, at
end

local function dropped(y, at, dim, keep)
  if not keep then y, at = ops.squeeze(y, {dim}), ops.squeeze(at, {dim}) end
  return y, at
end

--- x:kthvalue(k [, {dim = -1, keepdim = false}]) -> values, positions: the k-th
-- smallest along dim; NaN counts as the largest.
function methods.kthvalue(x, ...)
  local a = D.args("kthvalue", {"k", "dim", "keepdim"}, ...)
  local dim = D.whole(x, a.dim or -1, "kthvalue")
  D.size(a.k, "kthvalue(k, dim): k")
  local n = x:size(dim)
  x = D.expect(x, D.le(a.k, n), ("kthvalue: number %s of dim %d"):format(
    tostring(a.k), dim) .. (type(n) == "number" and ", which has " .. n or ""))
  local y, at = nth(x, dim, a.k)
  return dropped(y, at, dim, a.keepdim)
end

-- The lower of the two in the middle; NaN if there is one.
local function middle(x, dim)
  local n = x:size(dim)
  local y, at = nth(x, dim, D.limn.floor((n + 1) / 2))
  local last, last_at = nth(x, dim, n)
  local nan = ops.ne(last, last)
  return ops.where(nan, last, y), ops.where(nan, last_at, at)
end

--- x:median() -> tensor, or x:median(dim [, {keepdim = false}]) -> values,
-- positions: the value in the middle, of two the lower; NaN if any is.
function methods.median(x, ...)
  local a = D.args("median", {"dim", "keepdim"}, ...)
  D.tensor(x, "median")
  if a.dim == nil then
    local y = middle(ops.flatten(x), 1)
    return (ops.squeeze(y, {1}))
  end
  local dim = D.whole(x, a.dim, "median")
  local y, at = middle(x, dim)
  return dropped(y, at, dim, a.keepdim)
end

--- limn.searchsorted(sorted, v [, {right = false}]): for each of v (a tensor or
-- number) the position from 1 at which it would be put into `sorted`, a vector
-- in rising order or the rows for those of v: before its equals, or (right)
-- after them. NaN counts as the largest.
function M.searchsorted(sorted, v, ...)
  local a = D.args("searchsorted", {"right"}, ...)
  D.tensor(sorted, "searchsorted")
  local less, kind = a.right and ops.le or ops.lt, core.type(v)
  local one = kind == nil or kind == "dim"
  local before
  if not one then
    if sorted:dim() > 1 then sorted = ops.unsqueeze(sorted, -2) end
    v = ops.unsqueeze(v, -1)
    local last = ops.isnan(v)
    if not a.right then
      last = ops.logical_and(last, ops.logical_not(ops.isnan(sorted)))
    end
    before = ops.logical_or(less(sorted, v), last)
  elseif kind == "dim" or v == v then
    before = less(sorted, v)
  else
    before = ops.logical_not(ops.isnan(sorted))
    if a.right then before = ops.logical_or(before, true) end
  end
  local y = ops.sum(before, {-1}) + 1
  return y
end

--- x:bucketize(bounds [, {right = false}]): which of the n + 1 parts between
-- the n rising bounds holds each of x, from 1; a bound itself belongs to the
-- part below it, or (right) above.
function methods.bucketize(x, bounds, ...)
  local a = D.args("bucketize", {"right"}, ...)
  D.tensor(x, "bucketize")
  if type(bounds) == "table" and core.type(bounds) == nil then
    bounds = core.tensor(bounds)
  end
  local y = M.searchsorted(bounds, x, {right = a.right or false})
  return y
end

-- -- Writing at positions -------------------------------------------------

--- x:scatter(dim, index, src): x with src (a tensor of index's shape, or one
-- value) where gather would read: out[index[i][j]][j] = src[i][j] for dim 1. Of
-- several for one place the last stays.
function methods.scatter(x, ...)
  local a = D.args("scatter", {"dim", "index", "src", "base"}, ...)
  local index, src = a.index, a.src
  if core.type(index) == nil then
    fail "scatter(dim, index, src): the index must be an int tensor"
  end
  if src == nil then fail "scatter(dim, index, src): src is missing" end
  local dim = D.whole(x, a.dim, "scatter")
  if not core.type(src) or core.type(src) == "dim" then
    src = index:full_like(src, {dtype = x.dtype})
  elseif src:dim() == 0 and index:dim() > 0 then
    src = ops.expand_like(src, index)
  end
  local y = ops.scatter(x, dim, index, src, a.base)
  return y
end

-- x with the largest of src's values for each place, found by scattering them
-- in rising order: the last stays.
local function scatter_largest(x, dim, index, src)
  local order = ops.argsort(src, dim)
  local y = ops.scatter(x, dim, ops.gather(index, dim, order),
    ops.gather(src, dim, order))
  return y
end

local function scatter_mean(x, dim, index, src, whole)
  local one = ops.full_like(src, 1, "int64")
  local n = ops.scatter_add(ops.full_like(x, whole and 1 or 0, "int64"), dim,
    index, one)
  n = ops.maximum(n, 1) -- what is not written to keeps its value
  local sum = ops.scatter_add(wide.widen(x), dim, index, wide.widen(src))
  local y = core.whole(x) and ops.floor_div(sum, n) or ops.div(sum, n)
  y = wide.unwiden(y, x, src)
  return y
end

--- x:scatter_reduce(dim, index, src, reduce [, {include_self = true}]): x with
-- the src values that fall on one place (where gather would read) reduced with
-- the value there, or without it (include_self = false). reduce: sum, mean,
-- amax or amin; of equal extremes one gets the gradient.
function methods.scatter_reduce(x, ...)
  local who = "scatter_reduce"
  local a = D.args(who, {"dim", "index", "src", "reduce", "include_self"}, ...)
  local dim, index, src, how = D.whole(x, a.dim, who), a.index, a.src, a.reduce
  D.tensor(index, who)
  D.tensor(src, who)
  local whole = a.include_self ~= false
  local y
  if how == "sum" or how == "mean" then
    local from = x
    if not whole then -- what is written to starts from 0
      from = ops.scatter(x, dim, index, ops.full_like(src, 0))
    end
    if how == "sum" then
      y = ops.scatter_add(from, dim, index, src)
    else
      y = scatter_mean(from, dim, index, src, whole)
    end
  elseif how == "amax" then
    y = scatter_largest(x, dim, index, src)
    if whole then y = ops.maximum(x, y) end
  elseif how == "amin" then
    y = ops.neg(scatter_largest(ops.neg(x), dim, index, ops.neg(src)))
    if whole then y = ops.minimum(x, y) end
  else
    fail(("scatter_reduce: there is no '%s': sum, mean, amax, amin"):format(
      tostring(how)))
  end
  return y
end

--- x:index_fill(dim, index, value): x with one value in the slices at the
-- positions in index along dim.
function methods.index_fill(x, dim, index, value)
  dim = D.whole(x, dim, "index_fill")
  if value == nil then fail "index_fill(dim, index, value)" end
  local y = ops.index_copy(x, dim, index, value)
  return y
end

--- x:masked_scatter(mask, source): x where the mask holds with the elements of
-- source in its stead, one after the other.
function methods.masked_scatter(x, mask, source)
  D.tensor(x, "masked_scatter")
  D.tensor(mask, "masked_scatter")
  D.tensor(source, "masked_scatter")
  mask = ops.logical_and(mask, ops.full_like(x, 1, "bool")) -- in its shape
  local at = ops.cumsum(ops.reshape(mask, -1), 1)
  local v = ops.index_select(ops.reshape(source, -1), 1, ops.maximum(at, 1))
  v = ops.convert(ops.reshape_like(v, mask), x.dtype)
  local y = ops.where(mask, v, x)
  return y
end

--- x:isin(values [, {invert = false}]): whether each element is among the
-- values (a tensor or a list), or (invert) is not.
function methods.isin(x, values, ...)
  local a = D.args("isin", {"invert"}, ...)
  D.tensor(x, "isin")
  if type(values) == "table" and not core.type(values) then
    values = core.tensor(values, {device = x.device})
  end
  local y = ops.eq(ops.unsqueeze(x, -1), ops.reshape(values, -1))
  y = ops.any(y, -1)
  if a.invert then y = ops.logical_not(y) end
  return y
end

--- x:one_hot([classes]): int64 rows with a 1 at the position x, which counts
-- from 1. Without classes there are as many as x's largest, outside traces.
function methods.one_hot(x, ...)
  local a = D.args("one_hot", {"classes", "base"}, ...)
  local n, base = a.classes, a.base or 1
  D.tensor(x, "one_hot")
  if n == nil then
    D.eager(x, "one_hot without a number of classes", "x:one_hot(10)")
    if x:numel() == 0 then
      fail("one_hot: the number of classes of no labels is not known",
        "x:one_hot(10)")
    end
    n = ops.max(x):item() + 1 - base
  end
  local y = ops.one_hot(x, n, base)
  return y
end

-- -- Sizes that depend on data: eager only --------------------------------

--- x:nonzero([{as_tuple = false}]), x:argwhere(): positions of what is not 0: a
-- row of indices for each, counted from 1; with as_tuple a list of one vector
-- per dim. Outside traces.
function methods.nonzero(x, ...)
  local a = D.args("nonzero", {"as_tuple"}, ...)
  D.eager(x, "nonzero", "where and masked_fill keep the shape")
  local at = ops.reshape(ops.ne(x, 0), -1):positions()
  local rest, columns = at - 1, {}
  for d = x:dim(), 1, -1 do
    local n = x:size(d)
    columns[d] = ops.remainder(rest, n) + 1
    rest = ops.floor_div(rest, n)
  end
  if a.as_tuple then return columns end
  local y
  if #columns == 0 then
    y = at:new_zeros(at:size(1), 0)
  else
    y = ops.stack(columns, 2)
  end
  return y
end
methods.argwhere = methods.nonzero

-- Sorted values v of x and where they came from, to the different ones.
local function distinct(v, a, inverse)
  local n = v:size(1)
  local k = math.min(n, 1)
  local first = ops.ne(v[{{k + 1, n}}], v[{{1, n - k}}])
  first = ops.cat {v[{{1, k}}]:full_like(1, "bool"), first}
  local starts, out = first:positions(), {}
  out[1] = ops.index_select(v, 1, starts)
  if a.return_inverse then
    out[2] = inverse(ops.cumsum(first, 1))
  end
  if a.return_counts then
    local last = starts:new_full({k}, n + 1)
    out[#out + 1] = ops.cat {starts[{{k + 1, starts:size(1)}}], last} - starts
  end
  return unpack(out, 1, #out)
end

--- x:unique([{return_inverse, return_counts}]): the different values in rising
-- order; then, if asked, the position of each element's value, and how many
-- there are of each. NaNs are all different. Outside traces.
function methods.unique(x, ...)
  local a = D.args("unique", {"sorted", "return_inverse", "return_counts"},
    ...)
  D.eager(x, "unique", "sort keeps the shape")
  local flat = ops.reshape(x, -1)
  local at = ops.argsort(flat)
  return distinct(ops.index_select(flat, 1, at), a, function(group)
    local y = ops.scatter(group:full_like(0), 1, at, group)
    y = ops.reshape_like(y, x)
    return y
  end)
end

--- x:unique_consecutive([options]): as unique, of neighbours only and without
-- sorting.
function methods.unique_consecutive(x, ...)
  local a = D.args("unique_consecutive", {"return_inverse", "return_counts"},
    ...)
  D.eager(x, "unique_consecutive", "x:ne of shifted slices keeps the shape")
  return distinct(ops.reshape(x, -1), a, function(group)
    local y = ops.reshape_like(group, x)
    return y
  end)
end

--- x:bincount([{weights, minlength}]): how often 1, 2, 3, ... occur in a vector
-- of ints, or the sums of their weights. Counts from 1. Outside traces.
function methods.bincount(x, ...)
  local a = D.args("bincount", {"weights", "minlength"}, ...)
  D.eager(x, "bincount", "limn.one_hot(x, n):sum(1) counts n classes")
  if x:dim() ~= 1 then
    fail(("bincount: a vector is wanted, not %d dims"):format(x:dim()))
  end
  local n = x:size(1) > 0 and x:max():item() or 0
  n = math.max(n, a.minlength or 0)
  local v = a.weights or x:full_like(1, "int64")
  local y = ops.index_add(v:new_zeros(n), 1, x, v)
  return y
end

-- -- Random choices -------------------------------------------------------

--- x:bernoulli([p]): 1 with the probability that stands in x (or p), else 0, in
-- x's dtype.
function methods.bernoulli(x, p)
  local y = ops.lt(ops.rand_like(x), p or x)
  y = y:to(x.dtype)
  return y
end

-- A bad row of weights is found where there are values to look at.
local function weights_check(x, n, again)
  if core.tracing() or core.of_trace(x) then return end
  local good = ops.logical_and(ops.ge(x, 0), ops.isfinite(x))
  if not good:all():item() then
    fail "multinomial: weights must be finite and not negative"
  end
  local most = ops.ne(x, 0):sum(-1)
  if most:numel() > 0 and most:min():item() < (again and 1 or n) then
    fail(("multinomial: %d different positions are wanted of fewer with a "
      .. "weight above 0"):format(again and 1 or n))
  end
end

-- The first n of a race: exponential times with the weights as rates.
local function draw_without(x, n)
  local u = ops.rand_like(x)
  local time = ops.div(ops.neg(ops.log1p(ops.neg(u))), x)
  local y = D.part(ops.argsort(time, -1), x:dim(), 1, n)
  return y
end

-- How many running sums are at or below u * total; those equal to the total
-- never count, so that a weight of 0 at the end is never taken.
local function draw_with(x, n)
  local size = {}
  for d = 1, x:dim() - 1 do size[d] = x:size(d) end
  size[x:dim()] = n
  local u = core.rand(size, {dtype = x.dtype, device = x.device})
  local upto = ops.cumsum(x, -1)
  local total = D.part(upto, x:dim(), -1, -1)
  local below = ops.le(ops.unsqueeze(upto, -2),
    ops.unsqueeze(ops.mul(u, total), -1))
  below = ops.logical_and(below,
    ops.unsqueeze(ops.lt(upto, total), -2))
  local y = ops.sum(below, -1) + 1
  return y
end

--- x:multinomial(n [, {replacement = false}]): n positions (from 1) of each row
-- of weights, drawn with those weights.
function methods.multinomial(x, ...)
  local a = D.args("multinomial", {"n", "replacement"}, ...)
  local n = a.n or 1
  D.tensor(x, "multinomial")
  D.size(n, "multinomial: n")
  if x:dim() < 1 or x:dim() > 2 then
    fail(("multinomial: weights are a vector or rows, not %d dims"):format(
      x:dim()))
  end
  local most, want = D.known(x:size(-1)), D.known(n)
  if most and want and (want < 1 or want > most and not a.replacement) then
    fail(("multinomial: %d different positions out of %d"):format(want, most),
      "{replacement = true} draws with repetitions")
  end
  weights_check(x, want, a.replacement)
  local y
  if a.replacement then y = draw_with(x, n) else y = draw_without(x, n) end
  return y
end

-- -- Closeness ------------------------------------------------------------

--- x:isclose(y [, {rtol = 1e-5, atol = 1e-8, equal_nan = false}]): whether |x -
-- y| <= atol + rtol * |y|, element by element.
function methods.isclose(x, y, ...)
  local a = D.args("isclose", {"rtol", "atol", "equal_nan"}, ...)
  D.tensor(x, "isclose")
  -- As reals: differences of narrow ints wrap, and bools have none.
  local u, v = ops.div(x, 1), ops.div(y, 1)
  local room = ops.abs(v) * (a.rtol or 1e-5) + (a.atol or 1e-8)
  local near = ops.le(ops.abs(ops.sub(u, v)), room)
  near = ops.logical_and(near, ops.isfinite(v))
  near = ops.logical_or(near, ops.eq(x, y))
  if a.equal_nan then
    near = ops.logical_or(near, ops.logical_and(ops.isnan(x), ops.isnan(y)))
  end
  return near
end

--- x:allclose(y [, options]) -> boolean: whether all are close. Outside traces.
function methods.allclose(x, y, ...)
  D.tensor(x, "allclose")
  if core.tracing() or core.of_trace(x) then
    fail("allclose gives a Lua value, which a trace does not have",
      "isclose(...):all() is a tensor")
  end
  local near = methods.isclose(x, y, ...):all():item()
  return near
end

for _, name in ipairs {"sort", "topk", "kthvalue", "median", "bucketize",
  "scatter", "scatter_reduce", "index_fill", "nonzero", "argwhere", "unique",
  "unique_consecutive", "masked_scatter", "isin", "one_hot", "bincount",
  "bernoulli", "multinomial", "isclose", "allclose"} do
  M[name] = methods[name]
end

return M
