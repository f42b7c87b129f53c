--- limn.print and the text of graphs' statistics.
local core = require "limn.core"

local M = {}

local function text(v)
  local kind = core.type(v)
  if kind == nil and type(v) == "table" and not getmetatable(v) then
    local out = {}
    for i, x in ipairs(v) do out[i] = text(x) end
    return "{" .. table.concat(out, ", ") .. "}"
  end
  if kind == "cell" then v = v:clone() end -- its value, as a graph shows it
  return tostring(v)
end

--- limn.print(...): show values when the code runs: at once in eager code, on
-- each run of the graph in a trace.
function M.print(...)
  local n = select("#", ...)
  local parts, values = {}, {}
  for i = 1, n do
    local v = select(i, ...)
    if core.tracing() and core.type(v) then
      parts[i] = "{}"
      values[#values + 1] = v
    else
      parts[i] = text(v)
      if core.tracing() then parts[i] = parts[i]:gsub("{", "{{") end
    end
  end
  local line = table.concat(parts, "\t")
  if core.tracing() then
    core.print_node(line, values)
  else
    print(line)
  end
end

return M
