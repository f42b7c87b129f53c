--- Elements in other places: roll, diagonals, and margins made of x itself.
local core = require "limn.core"
local D = require "limn.dims"

local ops, methods, fail = core.ops, core.raw "methods", core.fail
local M = {}

-- -- roll -----------------------------------------------------------------

local function roll_one(x, shift, dim)
  local n = x:size(dim)
  local k
  if type(n) == "number" then
    if n == 0 then return x end
    k = shift % n
    if k == 0 then return x end
  else
    k = shift % D.limn.max(n, 1)
  end
  local y = ops.cat({D.part(x, dim, n - k + 1, n), D.part(x, dim, 1, n - k)},
    dim)
  return y
end

--- x:roll(shift [, dim]): x rolled along dim: what leaves at the end comes in
-- at the front. Lists roll along several dims; with no dim x is one row.
function methods.roll(x, ...)
  local a = D.args("roll", {"shift", "dim"}, ...)
  local shift, dim = a.shift, a.dim
  D.tensor(x, "roll")
  if shift == nil then fail "roll(shift, dim)" end
  if dim == nil then
    if type(shift) == "table" then
      fail "roll: a dim for each shift is wanted"
    end
    D.size(shift, "roll: the shift")
    local y = roll_one(ops.flatten(x), shift, 1)
    y = ops.reshape_like(y, x)
    return y
  end
  if type(shift) ~= "table" then shift = {shift} end
  if type(dim) ~= "table" then dim = {dim} end
  if #shift ~= #dim then
    fail(("roll: %d shifts for %d dims"):format(#shift, #dim))
  end
  local y = x
  for i, d in ipairs(dim) do
    D.size(shift[i], "roll: the shift")
    y = roll_one(y, shift[i], D.whole(x, d, "roll"))
  end
  if rawequal(y, x) then y = x:clone() end
  return y
end

-- -- Diagonals ------------------------------------------------------------

-- Zero for sure: comparing a size of a trace would bind the graph to it.
local function none(n) return type(n) == "number" and n == 0 end

--- x:diagonal([{offset = 0, dim1 = 1, dim2 = 2}]): the elements where dim2's
-- position is dim1's plus offset, along a new last dim instead of those two.
function methods.diagonal(x, ...)
  local a = D.args("diagonal", {"offset", "dim1", "dim2"}, ...)
  D.tensor(x, "diagonal")
  local k, rank = a.offset or 0, x:dim()
  if rank < 2 then
    fail(("diagonal: at least two dims are needed, not %d"):format(rank))
  end
  local d1 = D.whole(x, a.dim1 or 1, "diagonal")
  local d2 = D.whole(x, a.dim2 or 2, "diagonal")
  if d1 == d2 then fail "diagonal: dim1 and dim2 are the same" end
  D.size(k, "diagonal: the offset")
  local order = {}
  for d = 1, rank do
    if d ~= d1 and d ~= d2 then order[#order + 1] = d end
  end
  order[rank - 1], order[rank] = d1, d2
  local y = ops.permute(x, order)
  -- Rows and columns from where the diagonal starts; then every size + 1'th
  -- element of them as one row.
  local limn = D.limn
  local rows, columns = y:size(rank - 1), y:size(rank)
  local from_row, from_column = limn.max(-k, 0), limn.max(k, 0)
  if not none(from_row) then
    y = D.part(y, rank - 1, limn.min(rows, from_row) + 1, rows)
  end
  if not none(from_column) then
    y = D.part(y, rank, limn.min(columns, from_column) + 1, columns)
  end
  local n, m = y:size(rank - 1), y:size(rank)
  local less = limn.min(n, m)
  y = D.part(D.part(y, rank - 1, 1, less), rank, 1, less)
  y = ops.flatten(y, rank - 1, rank)
  local key = {}
  for d = 1, rank - 2 do key[d] = {} end
  key[rank - 1] = {1, less * less, less + 1}
  y = y[key]
  return y
end

--- x:diag(offset = 0): of a matrix its diagonal, of a vector the matrix that
-- has it there.
function methods.diag(x, offset)
  D.tensor(x, "diag")
  local k, rank = offset or 0, x:dim()
  if rank == 2 then
    local y = methods.diagonal(x, k)
    return y
  elseif rank ~= 1 then
    fail(("diag: a vector or a matrix is wanted, not %d dims"):format(rank))
  end
  local n = x:size(1)
  local here = core.eye(n, {dtype = "bool", device = x.device})
  local y = ops.where(here, ops.expand(ops.unsqueeze(x, 1), {n, -1}), false)
  if not none(k) then
    local right, down = D.limn.max(k, 0), D.limn.max(-k, 0)
    y = ops.pad(y, {right, down, down, right})
  end
  return y
end

-- -- Margins --------------------------------------------------------------

local least = { -- elements for a margin of m
  reflect = function(m) return m + 1 end,
  circular = function(m) return m end,
  replicate = function() return 1 end,
}

local margins = { -- the parts before and after x, of dim's size n
  reflect = function(x, dim, n, before, after)
    return ops.flip(D.part(x, dim, 2, before + 1), dim),
      ops.flip(D.part(x, dim, n - after, n - 1), dim)
  end,
  circular = function(x, dim, n, before, after)
    return D.part(x, dim, n - before + 1, n), D.part(x, dim, 1, after)
  end,
  replicate = function(x, dim, n, before, after)
    local function many(at, count)
      local size = {}
      for d = 1, x:dim() do size[d] = d == dim and count or -1 end
      local y = ops.expand(D.part(x, dim, at, at), size)
      return y
    end
    return many(1, before), many(n, after)
  end,
}

local function margin(x, dim, before, after, mode)
  if none(before) and none(after) then return x end
  local n = x:size(dim)
  local b, a = D.known(before), D.known(after)
  if b and b < 0 or a and a < 0 then
    fail(("pad: a margin of %d"):format(b < 0 and b or a),
      "the mode 'constant' cuts off; so does a range: x[{{2, -2}}]")
  end
  -- Looked at in each run: a margin may fit the example alone.
  local wide = D.limn.max(before, after)
  local need = least[mode](wide)
  x = D.expect(x, D.le(need, n), ("pad: a margin of %s of mode '%s' needs at "
    .. "least %s elements in dim %d%s"):format(tostring(wide), mode,
    tostring(need), dim, type(n) == "number" and ", which has " .. n or ""))
  local first, last = margins[mode](x, dim, n, before, after)
  local y = ops.cat({first, x, last}, dim)
  return y
end

local function pad_around(x, pads, mode)
  if not margins[mode] then
    fail(("pad: there is no mode '%s': constant, reflect, replicate, circular")
      :format(tostring(mode)))
  end
  if #pads % 2 == 1 or #pads > 2 * x:dim() then
    fail(("pad: %d margins for a tensor with %d dims"):format(#pads, x:dim()),
      "give {before, after} of the last dim, then of the one before it, and "
        .. "so on")
  end
  local y = x
  for i = 1, #pads / 2 do
    y = margin(y, x:dim() + 1 - i, pads[2 * i - 1], pads[2 * i], mode)
  end
  return y
end

-- x without what negative margins cut off, and the other margins.
local function cropped(x, pads)
  local y, rest = x, {}
  for i, n in ipairs(pads) do rest[i] = n end
  for i = 1, #pads, 2 do
    local before, after = pads[i], pads[i + 1]
    local function cut(n) return type(n) == "number" and n < 0 and -n or 0 end
    local first, last = cut(before), cut(after)
    if first + last > 0 then
      local dim = D.whole(x, x:dim() - (i - 1) / 2, "pad")
      local n = x:size(dim)
      y = D.expect(y, D.le(first + last, n), ("pad: %d elements are cut off "
        .. "dim %d%s"):format(first + last, dim,
        type(n) == "number" and ", which has " .. n or ""))
      y = D.part(y, dim, first + 1, n - last)
      if first > 0 then rest[i] = 0 end
      if last > 0 then rest[i + 1] = 0 end
    end
  end
  return y, rest
end

local function negative(pads)
  for _, n in ipairs(pads) do
    if type(n) == "number" and n < 0 then return true end
  end
end

--- x:pad(pads [, {mode = "constant", value = 0}]): margins around x: {before,
-- after} of the last dim, then of the one before it, and so on. Modes: constant
-- (of value), reflect, replicate, circular. Margins below 0 cut off (constant).
function methods.pad(x, ...)
  D.tensor(x, "pad")
  local n, given = select("#", ...), {...}
  local last = given[n]
  local options = type(last) == "table" and core.type(last) == nil and last
    or {}
  local mode = options.mode or type(given[1]) == "table" and given[3]
    or "constant"
  local pads = options.pads or #options > 0 and options or given[1]
  if type(pads) ~= "table" or pads == last and #last == 0 then
    pads = {unpack(given, 1, options == last and n - 1 or n)}
  end
  local y
  if mode ~= "constant" then
    core.options(options, {"pads", "value", "mode"}, "pad")
    y = pad_around(x, pads, mode)
  elseif negative(pads) and #pads % 2 == 0 then
    if #options == 0 then
      core.options(options, {"pads", "value", "mode"}, "pad")
    end
    local value = options.value or type(given[1]) == "table" and given[2]
    y, pads = cropped(x, pads)
    y = ops.pad(y, pads, type(value) == "number" and value or 0)
  else
    y = ops.pad(x, ...)
  end
  return y
end

for _, name in ipairs {"roll", "diagonal", "diag", "pad"} do
  M[name] = methods[name]
end

return M
