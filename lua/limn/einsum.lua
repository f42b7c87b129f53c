--- Sums of products over named dims: einsum and tensordot, made of permute,
-- matmul, mul and sum.
local core = require "limn.core"
local D = require "limn.dims"

local ops, methods, fail = core.ops, core.raw "methods", core.fail
local M = {}

-- -- Dims by label --------------------------------------------------------
-- An operand is {x = tensor, names = labels of its dims}.

local function place(names)
  local at = {}
  for i, name in ipairs(names) do at[name] = i end
  return at
end

-- The operand with its dims in the order of `names`, which are all its own.
local function arranged(o, names)
  local at, order, same = place(o.names), {}, true
  for i, name in ipairs(names) do
    order[i] = at[name]
    same = same and order[i] == i
  end
  if same then return o.x end
  local y = ops.permute(o.x, order)
  return y
end

-- Without the dims that are not in `keep`: those are summed.
local function summed(o, keep)
  local dims, names = {}, {}
  for i, name in ipairs(o.names) do
    if keep[name] then
      names[#names + 1] = name
    else
      dims[#dims + 1] = i
    end
  end
  if #dims == 0 then return o end
  return {x = ops.sum(o.x, dims), names = names}
end

local function joined(...)
  local out = {}
  for i = 1, select("#", ...) do
    for _, name in ipairs((select(i, ...))) do out[#out + 1] = name end
  end
  return out
end

-- x with n dims of 1 put in after dim `at`.
local function opened(x, at, n)
  for _ = 1, n do x = ops.unsqueeze(x, at + 1) end
  return x
end

-- Dims first + 1 .. first + n as one.
local function merged(x, first, n)
  local y
  if n == 0 then
    y = ops.unsqueeze(x, first + 1)
  elseif n == 1 then
    y = x
  else
    y = ops.flatten(x, first + 1, first + n)
  end
  return y
end

-- [both..., left..., right...] from the matrix product [both..., 1, 1].
local function split(y, a, b, both, left, right)
  local nb = #both
  if #left == 0 then y = ops.squeeze(y, {nb + 1}) end
  if #right == 0 then y = ops.squeeze(y, {-1}) end
  if #left > 1 or #right > 1 then
    local size, pa, pb = {}, place(a.names), place(b.names)
    for i = 1, nb do size[i] = y:size(i) end
    for _, name in ipairs(left) do size[#size + 1] = a.x:size(pa[name]) end
    for _, name in ipairs(right) do size[#size + 1] = b.x:size(pb[name]) end
    y = ops.reshape(y, size)
  end
  return y
end

-- Two operands as one; dims that are not in `keep` are summed.
local function product(a, b, keep)
  local in_a, in_b = place(a.names), place(b.names)
  local need_a, need_b = {}, {}
  for name in pairs(in_a) do need_a[name] = keep[name] or in_b[name] end
  for name in pairs(in_b) do need_b[name] = keep[name] or in_a[name] end
  a, b = summed(a, need_a), summed(b, need_b)
  local both, over, left, right = {}, {}, {}, {}
  for _, name in ipairs(a.names) do
    local list = not in_b[name] and left or keep[name] and both or over
    list[#list + 1] = name
  end
  for _, name in ipairs(b.names) do
    if not in_a[name] then right[#right + 1] = name end
  end
  local names = joined(both, left, right)
  local y
  if #over == 0 or #left + #right == 0 then
    local x1 = arranged(a, joined(both, left, over))
    local x2 = arranged(b, joined(both, right, over))
    y = ops.mul(opened(x1, #both + #left, #right), opened(x2, #both, #left))
    local dims = {}
    for i = 1, #over do dims[i] = -i end
    if #over > 0 then y = ops.sum(y, dims) end
  else
    local x1 = arranged(a, joined(both, left, over))
    local x2 = arranged(b, joined(both, over, right))
    x1 = merged(merged(x1, #both + #left, #over), #both, #left)
    x2 = merged(merged(x2, #both + #over, #right), #both, #over)
    y = split(ops.matmul(x1, x2), a, b, both, left, right)
  end
  return {x = y, names = names}
end

-- -- einsum ---------------------------------------------------------------

-- The labels of one operand; "..." stands for as many dims as are left, named
-- from the last.
local function labels(text, rank, who)
  local names, dots = {}, nil
  local before, after = text:match "^(%a*)%.%.%.(%a*)$"
  if not before then
    before = text:match "^(%a*)$"
    if not before then
      fail(("einsum: '%s' is no list of letters for %s"):format(text, who))
    end
  end
  for ch in before:gmatch "%a" do names[#names + 1] = ch end
  if after then
    dots = rank - #before - #after
    for i = math.max(dots, 0), 1, -1 do names[#names + 1] = "." .. i end
    for ch in after:gmatch "%a" do names[#names + 1] = ch end
  end
  if #names ~= rank then
    fail(("einsum: '%s' has %d letters for %s with %d dims"):format(text,
      #before + #(after or ""), who, rank))
  end
  return names, dots and math.max(dots, 0) or 0
end

-- Letters that stand twice in one operand: the diagonal of those dims.
local function single(o)
  local at = {}
  for i, name in ipairs(o.names) do
    if at[name] then
      local names = {}
      for j, other in ipairs(o.names) do
        if j ~= i and j ~= at[name] then names[#names + 1] = other end
      end
      names[#names + 1] = name
      local y = single {x = methods.diagonal(o.x, 0, at[name], i),
        names = names}
      return y
    end
    at[name] = i
  end
  return o
end

-- The size of each letter. Those of one must agree, or be 1; in a trace
-- comparing them records a guard.
local function check_sizes(operands)
  local size, where, dim = {}, {}, {}
  for k, o in ipairs(operands) do
    for i, name in ipairs(o.names) do
      local n = D.known(o.x:size(i))
      if size[name] and n and size[name] ~= n and size[name] ~= 1 and n ~= 1
      then
        fail(("einsum: '%s' has size %d in operand %d and %d in operand %d")
          :format(name:sub(1, 1) == "." and "..." or name, size[name],
          where[name], n, k))
      end
      if n and n == size[name] and n ~= 1 then
        assert(dim[name] == o.x:size(i))
      end
      if n and (not size[name] or size[name] == 1) then
        size[name], where[name], dim[name] = n, k, o.x:size(i)
      end
    end
  end
  return dim
end

-- A dim of 1 is repeated where the letter's size is another one.
local function spread(operands, size)
  for _, o in ipairs(operands) do
    local to, some = {}, false
    for i, name in ipairs(o.names) do
      to[i] = -1
      local n = o.x:size(i)
      if D.known(n) == 1 and size[name] and D.known(size[name]) ~= 1 then
        assert(n == 1) -- of a trace: a guard
        to[i], some = size[name], true
      end
    end
    if some then o.x = ops.expand(o.x, to) end
  end
end

-- With no "->": what occurs once, in alphabetical order, after "...".
local function implicit(operands, dots)
  local count, out, rest = {}, {}, {}
  for i = dots, 1, -1 do out[#out + 1] = "." .. i end
  for _, o in ipairs(operands) do
    for _, name in ipairs(o.names) do count[name] = (count[name] or 0) + 1 end
  end
  for name, n in pairs(count) do
    if n == 1 and name:sub(1, 1) ~= "." then rest[#rest + 1] = name end
  end
  table.sort(rest)
  return joined(out, rest)
end

local function explicit(text, operands, dots)
  local there, out, seen = {}, {}, {}
  for _, o in ipairs(operands) do
    for _, name in ipairs(o.names) do there[name] = true end
  end
  local letters = text:gsub("%.%.%.", "")
  local rank = #letters + (letters ~= text and dots or 0)
  local names = labels(text, rank, "the result")
  for i, name in ipairs(names) do
    if not there[name] then
      fail(("einsum: '%s' of the result is in no operand"):format(name))
    end
    if seen[name] then
      fail(("einsum: '%s' stands twice in the result"):format(name))
    end
    seen[name], out[i] = true, name
  end
  return out
end

--- limn.einsum(text, ...): sum of products over dims named by letters:
-- "bhqd,bhkd->bhqk". Letters that the result lacks are summed; one that an
-- operand has twice takes its diagonal; "..." stands for any dims.
function M.einsum(text, ...)
  local list = {...}
  if type(text) ~= "string" then
    fail "einsum(equation, tensors...): the equation is a string"
  end
  if #list == 1 and type(list[1]) == "table" then list = list[1] end
  local equation = text:gsub("%s", "")
  local from, to = equation:match "^(.-)%->(.*)$"
  local operands, dots = {}, 0
  for part in ((from or equation) .. ","):gmatch "([^,]*)," do
    local k = #operands + 1
    if core.type(list[k]) == nil then
      fail(("einsum: operand %d of '%s' must be a tensor"):format(k, text))
    end
    local names, n = labels(part, list[k]:dim(), "operand " .. k)
    operands[k], dots = {x = list[k], names = names}, math.max(dots, n)
  end
  if #list ~= #operands then
    fail(("einsum: '%s' names %d operands; there are %d"):format(text,
      #operands, #list))
  end
  spread(operands, check_sizes(operands))
  local out
  if to then
    out = explicit(to, operands, dots)
  else
    out = implicit(operands, dots)
  end
  for k, o in ipairs(operands) do operands[k] = single(o) end
  local y = operands[1]
  for k = 2, #operands do
    local keep = place(out)
    for later = k + 1, #operands do
      for _, name in ipairs(operands[later].names) do keep[name] = true end
    end
    y = product(y, operands[k], keep)
  end
  y = arranged(summed(y, place(out)), out)
  return y
end

--- x:tensordot(y, dims = 2): sum of products over pairs of dims: {{dims of x},
-- {dims of y}}, or a number of the last dims of x with the first of y.
function methods.tensordot(x, y, ...)
  local a = D.args("tensordot", {"dims"}, ...)
  D.tensor(x, "tensordot")
  D.tensor(y, "tensordot")
  local dims = a.dims or 2
  local dx, dy = {}, {}
  if type(dims) == "number" then
    if dims < 0 or dims > math.min(x:dim(), y:dim()) then
      fail(("tensordot: %d dims of tensors with %d and %d"):format(dims,
        x:dim(), y:dim()))
    end
    for i = 1, dims do dx[i], dy[i] = x:dim() - dims + i, i end
  else
    dx, dy = dims[1], dims[2]
    if type(dx) == "number" then dx, dy = {dx}, {dy} end
    if type(dx) ~= "table" or type(dy) ~= "table" or #dx ~= #dy then
      fail "tensordot: dims is a number or {{dims of x}, {dims of y}}"
    end
  end
  local p, q, keep = {x = x, names = {}}, {x = y, names = {}}, {}
  for i = 1, x:dim() do p.names[i] = "x" .. i end
  for i = 1, y:dim() do q.names[i] = "y" .. i end
  for i = 1, #dx do
    local a1 = D.whole(x, dx[i], "tensordot")
    local b1 = D.whole(y, dy[i], "tensordot")
    if x:size(a1) ~= y:size(b1) then
      fail(("tensordot: dim %d of x has size %s, dim %d of y %s"):format(a1,
        tostring(D.known(x:size(a1))), b1, tostring(D.known(y:size(b1)))))
    end
    p.names[a1], q.names[b1] = "over" .. i, "over" .. i
  end
  for _, name in ipairs(joined(p.names, q.names)) do
    if not name:find "^over" then keep[name] = true end
  end
  local z = product(p, q, keep).x
  return z
end
M.tensordot = methods.tensordot

return M
