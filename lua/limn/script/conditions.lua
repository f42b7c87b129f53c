-- Conditions of scripted functions: what is true, comparisons, and, or, not.
--
-- Ordinary values go the way Lua itself goes. A bool tensor of no dims is read
-- in eager code; while a trace records it is the predicate of a choice that the
-- graph makes. Other tensors are true, as all numbers are to Lua.
local core = require "limn.core"
local values = require "limn.script.values"
local choose = require "limn.script.choose"

local ops, fail = core.ops, core.fail
local is_tensor = values.is_tensor
local M = {}

-- The truth of v: a boolean, or nil and the predicate that a trace records.
-- A third result is true where a tensor was read.
function M.truth(v)
  if type(v) == "cdata" and core.kind(v) == "bool" then
    return nil, v -- a plan value, of a number input
  elseif type(v) ~= "userdata" or not is_tensor(v) then
    return v and true or false
  end
  if core.hint_of(v) ~= "bool" then
    -- What is no bool now must not be one in a run: this records a guard.
    if core.of_trace(v) and v.dtype == "bool" then return true end
    return true
  elseif v:dim() > 0 then
    fail("a condition is one bool; this is " .. values.what(v),
      "write x:any() or x:all(); x ~= nil asks whether it is there")
  elseif core.tracing() then
    return nil, v
  end
  core.chose()
  return v:item(), nil, true
end
local truth = M.truth

-- What is to be called where a script calls `f` as assert: a tensor is read,
-- and a condition that a trace records cannot be checked there.
function M.assert_of(f)
  return function(v, ...)
    local t, predicate, read = truth(v)
    if predicate then
      fail("assert(...) has a condition that only a run knows, and a graph "
        .. "cannot raise", "return the condition, and assert it after the run")
    elseif read then
      f(t, ...)
      return v, ...
    end
    return f(v, ...)
  end
end

-- -- Comparisons ----------------------------------------------------------

local plain = {
  lt = function(a, b) return a < b end,
  le = function(a, b) return a <= b end,
  gt = function(a, b) return a > b end,
  ge = function(a, b) return a >= b end,
}

local own = debug.getinfo(1, "S").short_src

-- Lua's own comparison; its complaint at the line of the script.
local function ordinary(name, a, b)
  local ok, r = pcall(plain[name], a, b)
  if ok then return r end
  if type(r) == "string" and r:sub(1, #own + 1) == own .. ":" then
    r = core.located(r:sub(#own + 2):match "^%d+: (.*)$")
  end
  error(r, 0)
end

-- Is it something that the elements of a tensor can be compared with?
local function comparable(v)
  return type(v) == "number" or is_tensor(v) or core.type(v) == "dim"
end

-- A number of a run: a number input, or what was made of one. (Comparing sizes
-- records a guard, here as elsewhere: a wrong size is mostly an error.)
local function of_run(v)
  return type(v) == "cdata" and core.kind(v) == "real"
end

local function graphic(a, b)
  return is_tensor(a) or is_tensor(b) or of_run(a) or of_run(b)
end

for name in pairs(plain) do
  local op, f = ops[name], plain[name]
  M[name] = function(a, b)
    if type(a) == "number" and type(b) == "number" then return f(a, b) end
    if not graphic(a, b) then
      local r = ordinary(name, a, b)
      return r
    elseif not comparable(a) or not comparable(b) then
      fail(("attempt to compare %s with %s"):format(values.what(a),
        values.what(b)))
    end
    local y = op(a, b)
    return y
  end
end

local function equal(a, b)
  if not is_tensor(a) and not of_run(a) then a, b = b, a end
  if type(b) == "boolean" and values.dtype_of(a) == "bool" then
    if b then return a end
    local y = ops.logical_not(a)
    return y
  elseif not comparable(b) then
    return false
  end
  local y = ops.eq(a, b)
  return y
end

function M.eq(a, b)
  if graphic(a, b) then
    local y = equal(a, b)
    return y
  end
  return a == b
end

function M.ne(a, b)
  if not graphic(a, b) then return a ~= b end
  local y
  if comparable(a) and comparable(b) then
    y = ops.ne(a, b)
  else
    y = M.negate(equal(a, b))
  end
  return y
end

-- -- and, or, not ---------------------------------------------------------

function M.negate(v)
  local t, predicate, read = truth(v)
  if not predicate and not read then return not t end
  local y = ops.logical_not(v)
  return y
end

-- The second operand beside a predicate: it must be a bool too.
local function beside(site, b)
  if type(b) == "boolean" then return b end
  local _, predicate = truth(b)
  if predicate then return predicate end
  fail(("`%s` joins a condition on values of the trace with %s"):format(
    site.what, values.what(b)), site.what == "and"
    and "both sides must be bools; `a and b or c` and `if` choose values"
    or "both sides must be bools; use `if` to choose values")
end

-- `on` is what the first operand is where the second decides.
local function join(site, predicate, second, on)
  local op = on and ops.logical_and or ops.logical_or
  if site.simple then
    local b = beside(site, second())
    if type(b) == "boolean" then b = values.tensor(b) end
    local y = op(predicate, b)
    return y
  end
  local function decided() return {n = 1, beside(site, second())} end
  local function settled() return {n = 1, not on} end
  local r = choose(predicate, on and decided or settled,
    on and settled or decided, {"`" .. site.what .. "`"})
  return r[1]
end

-- a and b
function M.both(site, a, second)
  local t, predicate = truth(a)
  if predicate then
    local y = join(site, predicate, second, true)
    return y
  elseif t then
    return second()
  end
  return a
end

-- a or b
function M.either(site, a, second)
  local t, predicate = truth(a)
  if predicate then
    local y = join(site, predicate, second, false)
    return y
  elseif t then
    return a
  end
  return second()
end

-- a and b or c
function M.choice(_, a, second, third)
  local t, predicate, read = truth(a)
  local function chosen()
    local b = second()
    local tb, pb = truth(b)
    if pb then
      local y = join({what = "or"}, pb, third, false)
      return y
    end
    if tb then return b end
    return third()
  end
  if predicate then
    local r = choose(predicate,
      function() return {n = 1, (chosen())} end,
      function() return {n = 1, (third())} end, {"`a and b or c`"})
    return r[1]
  elseif read then
    return core.region_run(t and chosen or third), nil
  elseif t then
    return chosen()
  end
  return third()
end

return M
