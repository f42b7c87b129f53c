--- Other shapes: dims moved and taken apart, windows, grids, repeated elements,
-- Kronecker products, positions in triangles.
local core = require "limn.core"
local D = require "limn.dims"
local order = require "limn.order"

local ops, methods, fail = core.ops, core.raw "methods", core.fail
local M = {}

-- -- Dims -----------------------------------------------------------------

local function list(v) return type(v) == "table" and v or {v} end

--- x:movedim(from, to): a dim (or each of a list) at another place; the others
-- keep their order. A view.
function methods.movedim(x, from, to)
  D.tensor(x, "movedim")
  if from == nil or to == nil then fail "movedim(from, to)" end
  local rank, at, moved = x:dim(), {}, {}
  from, to = list(from), list(to)
  if #from ~= #to then
    fail(("movedim: %d dims to %d places"):format(#from, #to))
  end
  for i = 1, #from do
    local f, t = D.whole(x, from[i], "movedim"), D.whole(x, to[i], "movedim")
    if moved[f] or at[t] then fail "movedim: a dim stands there twice" end
    moved[f], at[t] = true, f
  end
  local next = 1
  for d = 1, rank do
    if not at[d] then
      while moved[next] do next = next + 1 end
      at[d], next = next, next + 1
    end
  end
  local y = ops.permute(x, at)
  return y
end

--- x:unflatten(dim, sizes): one dim as several; one size may be -1.
function methods.unflatten(x, dim, sizes)
  dim = D.whole(x, dim, "unflatten")
  if type(sizes) ~= "table" or core.type(sizes) then
    fail("unflatten: a list of sizes is wanted, not " .. type(sizes),
      "x:unflatten(2, {3, -1})")
  end
  local size = {}
  for d = 1, dim - 1 do size[d] = x:size(d) end
  for _, n in ipairs(sizes) do size[#size + 1] = n end
  for d = dim + 1, x:dim() do size[#size + 1] = x:size(d) end
  local y = ops.reshape(x, size)
  return y
end

--- x:unfold(dim, size [, step = 1]): windows of that size over dim, `step`
-- apart: dim counts the windows, a new last dim is within them. A view.
function methods.unfold(x, dim, size, step)
  dim = D.whole(x, dim, "unfold")
  D.size(size, "unfold(dim, size, step): size")
  D.size(step or 1, "unfold(dim, size, step): step")
  local y = methods.movedim(x, dim, -1)
  y = ops.windows(y, {size}, {step or 1}, {1})
  y = methods.movedim(y, -2, dim)
  return y
end

--- x:rot90(k = 1, dims = {1, 2}): turned k times by 90 degrees, from the first
-- of the two dims to the second. A view.
function methods.rot90(x, k, dims)
  D.tensor(x, "rot90")
  k, dims = k or 1, dims or {1, 2}
  if type(k) ~= "number" or k % 1 ~= 0 or type(dims) ~= "table" or #dims ~= 2
  then
    fail "rot90(k, dims): k is a whole number, dims are two"
  end
  local a, b = D.whole(x, dims[1], "rot90"), D.whole(x, dims[2], "rot90")
  if a == b then fail "rot90: the two dims are the same" end
  k = k % 4
  local y
  if k == 0 then return x:clone() end
  if k == 2 then
    y = ops.flip(x, {a, b})
  else
    y = ops.transpose(ops.flip(x, {k == 1 and b or a}), a, b)
  end
  return y
end

-- -- Several tensors ------------------------------------------------------

local function tensors(who, ...)
  local xs = {...}
  if #xs == 1 and type(xs[1]) == "table" and not core.type(xs[1]) then
    xs = xs[1]
  end
  if #xs == 0 then fail(who .. ": no tensors") end
  for _, x in ipairs(xs) do D.tensor(x, who) end
  return xs
end

--- limn.broadcast_tensors(x, y, ...) -> x, y, ...: all expanded to the shape
-- that they have together. Views.
function M.broadcast_tensors(...)
  local xs, out = tensors("broadcast_tensors", ...), {}
  local like = xs[1] -- its shape alone counts
  for i = 2, #xs do like = ops.ne(like, xs[i]) end
  for i, x in ipairs(xs) do out[i] = ops.expand_like(x, like) end
  return unpack(out)
end

--- limn.meshgrid(x, y, ... [, {indexing = "ij"}]) -> grids: the coordinates of
-- all combinations: each vector along a dim of its own, repeated along the
-- others. indexing "xy" exchanges the first two dims. Views.
function M.meshgrid(...)
  local xs, indexing = {...}, "ij"
  local last = xs[#xs]
  if type(last) == "table" and not core.type(last) then
    core.options(last, {"indexing"}, "meshgrid")
    indexing = last.indexing or indexing
    xs[#xs] = nil
    if #last > 0 then xs = last end
  end
  if indexing ~= "ij" and indexing ~= "xy" then
    fail(("meshgrid: the indexing is 'ij' or 'xy', not '%s'"):format(
      tostring(indexing)))
  end
  xs = tensors("meshgrid", unpack(xs))
  local size, out = {}, {}
  for i, x in ipairs(xs) do
    if x:dim() > 1 then
      fail(("meshgrid: vectors are wanted; number %d has %d dims"):format(i,
        x:dim()))
    end
    size[i] = x:dim() == 0 and 1 or x:size(1)
  end
  for i, x in ipairs(xs) do
    local shape = {}
    for d = 1, #xs do shape[d] = d == i and size[d] or 1 end
    local y = ops.expand(ops.reshape(x, shape), size)
    if indexing == "xy" and #xs > 1 then y = ops.transpose(y, 1, 2) end
    out[i] = y
  end
  return unpack(out)
end

-- -- Repeated elements ----------------------------------------------------

--- x:repeat_interleave(n [, dim]): each element n times, one after the other,
-- along dim (of all in a row without one). n may be a vector with a count for
-- each position, outside traces.
function methods.repeat_interleave(x, ...)
  local a = D.args("repeat_interleave", {"n", "dim"}, ...)
  local n = a.n
  D.tensor(x, "repeat_interleave")
  if a.dim == nil then x = ops.flatten(x) end
  local dim = D.whole(x, a.dim or 1, "repeat_interleave")
  if core.type(n) == "tensor" then
    D.eager(n, "repeat_interleave of counts", "a number repeats all alike")
    if n:dim() ~= 1 or n:size(1) ~= x:size(dim) then
      fail(("repeat_interleave: a count for each of the %d positions is "
        .. "wanted"):format(x:size(dim)))
    end
    if n:lt(0):any():item() then
      fail "repeat_interleave: a count is below 0"
    end
    local upto = ops.cumsum(n, 1)
    local total = n:size(1) > 0 and upto:at(-1) or 0
    local at = core.arange(1, total, {dtype = "int64", device = n.device})
    local y = ops.index_select(x, dim, order.searchsorted(upto, at))
    return y
  end
  D.size(n, "repeat_interleave(n, dim): n")
  local size = {}
  for d = 1, x:dim() + 1 do size[d] = d == dim + 1 and n or -1 end
  local y = ops.expand(ops.unsqueeze(x, dim + 1), size)
  y = ops.flatten(y, dim, dim + 1)
  return y
end

--- x:kron(y): the Kronecker product: each element of x times all of y.
function methods.kron(x, y)
  D.tensor(x, "kron")
  D.tensor(y, "kron")
  local rank = math.max(x:dim(), y:dim())
  for _ = x:dim() + 1, rank do x = ops.unsqueeze(x, 1) end
  for _ = y:dim() + 1, rank do y = ops.unsqueeze(y, 1) end
  for d = 1, rank do
    x, y = ops.unsqueeze(x, 2 * d), ops.unsqueeze(y, 2 * d - 1)
  end
  local z = ops.mul(x, y)
  for d = 1, rank do z = ops.flatten(z, d, d + 1) end
  return z
end

-- -- Triangles ------------------------------------------------------------

local function triangle(name)
  local who = name .. "_indices"
  M[who] = function(rows, columns, ...)
    local a = D.args(who, {"offset", "device"}, ...)
    for _, n in ipairs {rows or "", columns or ""} do
      if type(n) ~= "number" then
        fail(who .. "(rows, columns, offset): whole numbers are wanted")
      end
    end
    local x = core.ones(rows, columns, {device = a.device})
    D.eager(x, who, "made outside the trace they are captured")
    local y = methods.nonzero(ops[name](x, a.offset or 0))
    y = ops.transpose(y, 1, 2)
    return y
  end
end
--- limn.tril_indices(rows, columns [, {offset = 0, device}]): where the lower
-- triangle of a matrix is: a row of rows and a row of columns, from 1. Outside
-- traces.
triangle "tril"
--- limn.triu_indices(rows, columns [, {offset = 0, device}]): the same of the
-- upper one.
triangle "triu"

for _, name in ipairs {"movedim", "unflatten", "unfold", "rot90",
  "repeat_interleave", "kron"} do
  M[name] = methods[name]
end

return M
