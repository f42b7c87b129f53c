-- Nested values of control flow, taken apart and put together again.
--
-- A nested value is a list of its tensors and a structure: a table where it
-- has a table, the tensor's place in the list where it has a tensor, and what
-- else there is in a Static.
local core = require "limn.core"
local plain = require("limn.callable").plain

local ops, fail = core.ops, core.fail
local M = {}

local Static = {}
M.Static = Static

local function is_tensor(v)
  local kind = core.type(v)
  return kind == "tensor" or kind == "cell"
end

local function is_number(v)
  return type(v) == "number" or type(v) == "boolean" or core.type(v) == "dim"
end

-- 1..n, then the other keys in order.
local function keys(t)
  local list, rest = {}, {}
  for i = 1, #t do list[i] = i end
  for k in pairs(t) do
    if type(k) == "string" then rest[#rest + 1] = k end
  end
  table.sort(rest)
  for _, k in ipairs(rest) do list[#list + 1] = k end
  return list
end

local function take(v, list, depth, numbers)
  depth = depth or 0
  if is_tensor(v) or numbers and is_number(v) then
    list[#list + 1] = v
    return #list
  elseif not plain(v) then
    return setmetatable({v = v}, Static)
  elseif depth > 60 then
    fail "a table is nested too deep, or in a circle"
  end
  local s = {}
  for _, k in ipairs(keys(v)) do s[k] = take(v[k], list, depth + 1, numbers) end
  return s
end

-- The value again, with these tensors.
local function give(s, list)
  if type(s) == "number" then return list[s] end
  if getmetatable(s) == Static then return s.v end
  local v = {}
  for k, x in pairs(s) do v[k] = give(x, list) end
  return v
end

local function describe(v)
  local kind = core.type(v)
  if kind then return "a " .. kind end
  if v == nil then return "nil" end
  if type(v) == "string" then return ("%q"):format(v) end
  if type(v) == "table" then return "a table" end
  if is_number(v) then return tostring(v) end
  return "a " .. type(v)
end

local function at(path, k)
  return path == "" and tostring(k) or path .. "." .. tostring(k)
end

-- A tensor's dtype for a number.
local function dtype_of(v)
  return type(v) == "boolean" and "bool" or "float32"
end

-- What a loop carries has tensors for its numbers.
local function carried(who, v, depth)
  depth = depth or 0
  if is_number(v) then
    return (ops.full({}, v, dtype_of(v)))
  elseif is_tensor(v) or not plain(v) then
    return v
  elseif depth > 60 then
    fail(who .. ": a table is nested too deep, or in a circle")
  end
  local t = {}
  for _, k in ipairs(keys(v)) do t[k] = carried(who, v[k], depth + 1) end
  return t
end

-- The tensors of v, which a body gives back for what has structure s, and
-- whose numbers stand for tensors like `like`.
local function follow(who, s, v, like, path, out)
  if type(s) == "number" then
    if is_number(v) then
      v = core.tracing() and v or ops.full_like(like[s], v)
    elseif not is_tensor(v) then
      fail(("%s: the carried value %s is a tensor and becomes %s"):format(who,
        path, describe(v)))
    end
    out[s] = v
  elseif getmetatable(s) == Static then
    if not rawequal(s.v, v) then
      fail(("%s: the carried value %s is %s and becomes %s"):format(who, path,
        describe(s.v), describe(v)), "only tensors and numbers can change")
    end
  else
    if not plain(v) then
      fail(("%s: the carried value %s is a table and becomes %s"):format(who,
        path, describe(v)))
    end
    local have, want = keys(v), keys(s)
    for i = 1, math.max(#have, #want) do
      if have[i] ~= want[i] then
        fail(("%s: the carried value %s has %d entries and becomes one with %d"
          .. " (%s)"):format(who, path, #want, #have,
          tostring(have[i] or want[i])))
      end
      follow(who, s[want[i]], v[want[i]], like, at(path, want[i]), out)
    end
  end
end

M.is_tensor, M.is_number = is_tensor, is_number
M.keys, M.take, M.give = keys, take, give
M.describe, M.at, M.dtype_of = describe, at, dtype_of
M.carried, M.follow = carried, follow

return M
