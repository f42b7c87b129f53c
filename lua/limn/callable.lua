--- What is known of the functions and modules that are traced: names, places,
-- parameters, upvalues.
local core = require "limn.core"

local M = {}

function M.noun(v)
  return v == nil and "nil" or "a " .. (core.type(v) or type(v))
end

--- Is v a table that is nothing else?
function M.plain(v) return type(v) == "table" and not getmetatable(v) end

--- The function behind a callable that names its parameters, and how many of
-- them to skip.
function M.target(f)
  if type(f) == "function" then return f, 0 end
  if type(f) == "table" then
    local forward = f.forward
    if type(forward) == "function" then return forward, 1 end
    local mt = getmetatable(f)
    local call = type(mt) == "table" and rawget(mt, "__call")
    if type(call) == "function" then return call, 1 end
  end
end

function M.is(f)
  if type(f) == "function" or core.type(f) == "graph" then return true end
  local mt = getmetatable(f)
  return type(f) == "table" and type(mt) == "table" and mt.__call ~= nil
end

--- Refuses what cannot be called.
function M.check(f, who)
  if not M.is(f) then
    core.fail(who .. ": a function is wanted, not " .. M.noun(f))
  end
end

--- The name of parameter i, or "x2".
function M.param(f, i)
  local t, skip = M.target(f)
  if not t or debug.getinfo(t, "S").what == "C" then return "x" .. i end
  local ok, name = pcall(debug.getlocal, t, i + skip)
  return ok and name and not name:find "%W" and name or "x" .. i
end

--- "net.lua:14", where it is defined.
function M.place(f)
  local t = M.target(f)
  if not t then return "" end
  local i = debug.getinfo(t, "S")
  return ("%s:%d"):format(i.short_src, i.linedefined)
end

function M.name(f)
  if type(f) == "table" and type(f.class_name) == "string" then
    return f.class_name
  end
  return "function"
end

--- The function behind a jit function; what else is traced, as it is.
function M.behind(f)
  local mt = type(f) == "table" and getmetatable(f)
  return type(mt) == "table" and mt.__call == core.jit and rawget(f, "f") or f
end

M.remembered = {number = true, boolean = true, string = true,
  ["function"] = true, table = true, userdata = true}

--- {index, value, ...} of the upvalues that a trace has frozen (-index where it
-- was nil); those in `skip` are the function's own to change.
function M.upvalues(f, skip)
  local list = {}
  if type(f) ~= "function" then return list end
  for i = 1, 255 do
    local name, v = debug.getupvalue(f, i)
    if not name then break end
    if v == nil and not (skip and skip[i]) then
      list[#list + 1], list[#list + 2] = -i, false
    elseif M.remembered[type(v)] and not (skip and skip[i]) then
      list[#list + 1], list[#list + 2] = i, v
    end
  end
  return list
end

return M
