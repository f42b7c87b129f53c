-- Values of a scripted function on the paths of a graph: which of them are
-- results of a node, and how two paths become one value.
--
-- A value is taken apart into leaves: a tensor, number or boolean is a result
-- ("value"); all else (nil, strings, functions, objects) is "other" and must be
-- the same on both paths. Plain tables are taken apart, and put together anew.
local core = require "limn.core"

local fail = core.fail
local M = {}

-- The dtypes of plan values: sizes, number inputs, what was made of these.
local kinds = {int = "int64", real = "float32", bool = "bool"}

local deepest = 20 -- tables nested deeper (or in a circle) are "other"

local function is_tensor(v)
  if type(v) ~= "userdata" then return false end -- without leaving Lua
  local kind = core.type(v)
  return kind == "tensor" or kind == "cell"
end
M.is_tensor = is_tensor

local function sorted_keys(t)
  local keys = {}
  for k in pairs(t) do
    if type(k) ~= "string" and type(k) ~= "number" then return nil end
    keys[#keys + 1] = k
  end
  table.sort(keys, function(a, b)
    if type(a) == type(b) then return a < b end
    return type(a) == "number"
  end)
  return keys
end

local function take(out, v, name, depth)
  local kind = type(v)
  if kind == "table" and not getmetatable(v) and depth < deepest then
    local keys = sorted_keys(v)
    if keys then
      out.shape[#out.shape + 1] = {"table", keys, v}
      for _, k in ipairs(keys) do
        take(out, v[k], name .. (type(k) == "number" and "[" .. k .. "]"
          or "." .. k), depth + 1)
      end
      return
    end
  end
  local value = kind == "number" or kind == "boolean" or is_tensor(v)
    or kind == "cdata" and kinds[core.kind(v)] ~= nil
  out.shape[#out.shape + 1] = {"leaf"}
  out[#out + 1] = {value = value, v = v, name = name}
end

-- The leaves of `n` values with their names: a list of {value =, v =, name =},
-- with .shape, how they were put together.
function M.leaves(values, names)
  local out = {shape = {}, n = values.n}
  for i = 1, values.n do
    take(out, values[i], names and names[i] or "result " .. i, 0)
  end
  return out
end

-- Put values together as `leaves` were: leaf i becomes list[i].
function M.join(leaves, list)
  local at, next_leaf = 0, 0
  local function build()
    at = at + 1
    local s = leaves.shape[at]
    if s[1] == "leaf" then
      next_leaf = next_leaf + 1
      return list[next_leaf]
    end
    local t = {}
    for _, k in ipairs(s[2]) do t[k] = build() end
    return t
  end
  local values = {n = leaves.n}
  for i = 1, leaves.n do values[i] = build() end
  return values
end

local function what(v)
  if v == nil then return "nil" end
  local kind = core.type(v)
  if kind == "tensor" or kind == "cell" then
    local dtype, sizes = core.hint_of(v)
    if #sizes == 0 then return "a 0-dim " .. dtype .. " tensor" end
    return ("%s %s tensor of %d dim%s"):format(dtype:find "^int" and "an"
      or "a", dtype, #sizes, #sizes == 1 and "" or "s")
  elseif type(v) == "number" or type(v) == "boolean" then
    return tostring(v)
  elseif type(v) == "string" then
    return ('"%s"'):format(v)
  end
  return "a " .. (kind or type(v))
end
M.what = what

local function same_shape(a, b)
  if #a.shape ~= #b.shape then return false end
  for i, s in ipairs(a.shape) do
    local t = b.shape[i]
    if s[1] ~= t[1] then return false end
    if s[2] then
      if #s[2] ~= #t[2] then return false end
      for j, k in ipairs(s[2]) do
        if k ~= t[2][j] then return false end
      end
    end
  end
  return true
end

-- While a loop is recorded, a clash of dtypes is raised as a Clash: the loop
-- may have given a number the wrong one.
local Clash = {}
local recording = 0

local function raise_clash(x, y, paths, loop)
  local text = ("%s is %s %s, and %s %s"):format(x.name, what(x.v), paths[1],
    what(y.v), paths[2])
  local hint
  local v, like = x.v, "zeros of that shape"
  if v == nil then v = y.v end
  if M.dtype_of(v) == "bool" then
    like = "false"
  elseif not is_tensor(v) or v:dim() == 0 then
    like = "0"
  end
  if not M.dtype_of(v) then
    hint = "only tensors, numbers and booleans can depend on a run"
  elseif x.v == nil or y.v == nil then
    hint = ("give %s a value before, of the same kind: %s, for instance")
      :format(x.name, like)
  elseif not is_tensor(x.v) or not is_tensor(y.v) then
    hint = "only tensors, numbers and booleans can depend on a run"
  else
    hint = ("%s needs one %s %s"):format(x.name,
      x.v:dim() ~= y.v:dim() and "number of dims" or "dtype",
      loop and "in every iteration" or "on both paths")
  end
  if recording == 0 then fail(text, hint) end
  text = core.located(text)
  error(setmetatable({text = text .. "\nhint: " .. hint,
    name = x.name, dtypes = {M.dtype_of(x.v), M.dtype_of(y.v)}}, Clash), 0)
end

-- Calls f; if it raises a clash, repair(name, dtypes) may say that it is
-- worth another try.
function M.without_clash(f, repair)
  while true do
    recording = recording + 1
    local ok, r = pcall(f)
    recording = recording - 1
    if ok then return r end
    if getmetatable(r) ~= Clash then error(r, 0) end
    if not repair(r.name, r.dtypes) then
      error(recording == 0 and r.text or r, 0)
    end
  end
end

local floats = {float64 = true, float32 = true, float16 = true,
  bfloat16 = true}
M.floats = floats

-- 0-dim tensors that stand for numbers only: a choice between two of them.
local numbers = setmetatable({}, {__mode = "k"})

function M.number(v)
  numbers[v] = true
  return v
end

-- Does v take the dtype of a tensor beside it?
local function is_number(v) return not is_tensor(v) or numbers[v] or false end
M.is_number = is_number

-- The dtype that a takes beside b, or nil: a number that of a tensor, and what
-- is whole that of a float.
local function taken(a, b)
  local da, db = M.dtype_of(a), M.dtype_of(b)
  if da == "bool" or db == "bool" then return nil end
  if M.is_whole(a) and (is_number(a) or floats[db]) then return db end
  if is_number(a) and floats[db] then return db end
end

-- The dtype that both paths get, or nil.
function M.common(a, b)
  local da, db = M.dtype_of(a), M.dtype_of(b)
  if da == db then return da end
  if da ~= "bool" and db ~= "bool" and is_number(a) and is_number(b) then
    return "float32"
  end
  return taken(a, b) or taken(b, a)
    or (floats[da] and M.is_whole(b) or floats[db] and M.is_whole(a))
    and "float32" or nil
end

local function dims(v) return is_tensor(v) and v:dim() or 0 end

-- strict: the second takes the dtype of the first.
local function clash(x, y, strict)
  if x.value ~= y.value then return true end
  if not x.value then return not rawequal(x.v, y.v) end
  if dims(x.v) ~= dims(y.v) then return true end
  local dtype = M.common(x.v, y.v)
  return dtype == nil or strict and dtype ~= M.dtype_of(x.v)
end

-- "'state'" of "'state'.h[1]".
local function stem(name) return name:match "^'[^']*'" or name end

-- The first name under which two lists of leaves are put together otherwise.
local function differing(a, b)
  for i, x in ipairs(a) do
    if not b[i] or b[i].name ~= x.name then
      return stem(x.name)
    end
  end
  return b[#a + 1] and stem(b[#a + 1].name) or "a value"
end

-- Do the leaves of two paths fit each other? Raises at the user's line.
-- `paths` says what the two are: {"if the condition holds", "if not"}; strict:
-- the second must be like the first, in a loop.
function M.agree(a, b, paths, strict)
  if a.n ~= b.n then
    fail(("the function returns %d value%s %s, and %d %s"):format(a.n,
      a.n == 1 and "" or "s", paths[1], b.n, paths[2]),
      "return as many values on each path")
  end
  if not same_shape(a, b) then
    fail(("%s has other parts %s than %s"):format(differing(a, b),
      paths[1], paths[2]), "give tables the same keys on both paths")
  end
  for i, x in ipairs(a) do
    if clash(x, b[i], strict) then raise_clash(x, b[i], paths, strict) end
  end
end

-- The dtype that a leaf has in the example, or would get.
function M.dtype_of(v)
  if type(v) == "boolean" then return "bool" end
  if type(v) == "number" then
    return v % 1 == 0 and math.abs(v) < 2 ^ 53 and "int64" or "float32"
  end
  if is_tensor(v) then return (core.hint_of(v)) end
  return type(v) == "cdata" and kinds[core.kind(v)] or nil
end

-- May this value become a float where the other path has one? Whole numbers
-- may, and what was made of them.
function M.is_whole(v)
  if not is_tensor(v) then return M.dtype_of(v) == "int64" end
  return v:dim() == 0 and core.hint_of(v) == "int64"
end

-- A leaf as a tensor: numbers become 0-dim, of the dtype given or their own,
-- and what is whole a float where a float's dtype is given.
function M.tensor(v, dtype)
  if is_tensor(v) then
    if dtype and M.is_whole(v) then
      v = v:to(dtype)
    end
    return v
  end
  if type(v) == "boolean" then
    v, dtype = v and 1 or 0, "bool"
  end
  local y = core.full({}, v, dtype or M.dtype_of(v))
  return y
end

return M
