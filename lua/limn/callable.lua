--- What can be called, and what its parameters are called.
local core = require "limn.core"

local M = {}

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

--- The name of parameter i, or "x2".
function M.param(f, i)
  local t, skip = M.target(f)
  if not t or debug.getinfo(t, "S").what == "C" then return "x" .. i end
  local ok, name = pcall(debug.getlocal, t, i + skip)
  return ok and name and not name:find "%W" and name or "x" .. i
end

return M
