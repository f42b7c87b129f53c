--- What compositions of ops share: dims, parts, options, sizes that are known.
local core = require "limn.core"

local fail = core.fail
local D = {}

function D.tensor(x, who)
  local kind = core.type(x)
  if kind ~= "tensor" and kind ~= "cell" then
    fail(who .. ": a tensor is wanted, not " .. (x == nil and "nil" or "a "
      .. (kind or type(x))))
  end
end

--- v is a whole number or a size of the trace.
function D.size(v, who)
  if type(v) == "number" and v % 1 ~= 0 then -- NaN and infinity, too
    fail(("%s is a whole number, not %s"):format(who, tostring(v)))
  elseif type(v) ~= "number" and core.type(v) ~= "dim" then
    fail(who .. " is a whole number, not "
      .. (v == nil and "nil" or "a " .. (core.type(v) or type(v))))
  end
end

--- dim (counts from 1, or from the end) of x as 1..n.
function D.whole(x, dim, who)
  D.tensor(x, who)
  local n = x:dim()
  if type(dim) ~= "number" or dim % 1 ~= 0 then
    fail(who .. ": a dim must be a whole number")
  end
  local d = dim < 0 and dim + n + 1 or dim
  if d < 1 or d > n then
    fail(("%s: there is no dim %d in a tensor with %d dims"):format(
      who, dim, n))
  end
  return d
end

--- Positions first..last of one dim.
function D.part(x, dim, first, last)
  local key = {}
  for k = 1, dim - 1 do key[k] = {} end
  key[dim] = {first, last}
  local y = x[key]
  return y
end

local function named(t)
  if type(t) ~= "table" or core.type(t) then return false end
  for k in pairs(t) do
    if type(k) == "string" then return true end
  end
  return false
end

--- Positional arguments in the order of `names`, then one table of options,
-- as a table by name.
function D.args(who, names, ...)
  local given, n, out = {...}, select("#", ...), {}
  local options = given[n]
  if named(options) then
    core.options(options, names, who)
    for _, name in ipairs(names) do out[name] = options[name] end
    given[n] = nil
    for i = 1, #options do given[n - 1 + i] = options[i] end
    n = n - 1 + #options -- a list with options, such as {2, stable = true}
  end
  if n > #names then
    fail(("%s has no place for argument %d: it takes (%s)"):format(who,
      #names + 1, table.concat(names, ", ")))
  end
  for i = 1, n do
    if given[i] ~= nil then
      if out[names[i]] ~= nil then
        fail(("%s: %s is given twice"):format(who, names[i]))
      end
      out[names[i]] = given[i]
    end
  end
  return out
end

--- A size as a number: in a trace that of the example, which no graph keeps;
-- nil where that is not known.
function D.known(n)
  if type(n) == "number" then return n end
  local hint = core.hint(n)
  return hint
end

--- Whether a <= b: a boolean for numbers, a plan value for sizes of a trace.
-- (Lua's own a <= b would bind the trace to what holds for the example.)
function D.le(a, b)
  if type(a) == "number" and type(b) == "number" then return a <= b end
  local ok = core.ops.le(a, b)
  return ok
end

--- Whether a == b, likewise.
function D.eq(a, b)
  if type(a) == "number" and type(b) == "number" then return a == b end
  local ok = core.ops.eq(a, b)
  return ok
end

--- x, if `ok` holds, else the error `text` [and a hint]: at once for a boolean;
-- a plan value of a trace is looked at when a plan is made.
function D.expect(x, ok, text, hint)
  if type(ok) ~= "boolean" then
    x = core.ops.expect(x, ok, text)
  elseif not ok then
    fail(text, hint)
  end
  return x
end

--- Refuses traced values: what `who` gives has a size that depends on data.
function D.eager(x, who, advice)
  D.tensor(x, who)
  if core.tracing() or core.of_trace(x) then
    fail(who .. ": the size of the result depends on data, which a trace "
      .. "cannot have", advice)
  end
end

return D
