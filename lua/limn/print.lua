--- limn.print and the text of graphs' statistics.
local core = require "limn.core"
local sorted_keys = require "limn.sorted_keys"

local M = {}

local deepest = 8 -- tables inside tables; a circle ends there

-- v as text. In a trace `values` takes what each run shows in place of a "{}".
local function text(v, values, depth)
  local kind = core.type(v)
  if kind == nil and type(v) == "table" and not getmetatable(v) then
    local out = {}
    for i, k in ipairs(depth < deepest and sorted_keys(v) or {"..."}) do
      out[i] = k == "..." and k or (type(k) == "string" and k .. " = " or "")
        .. text(v[k], values, depth + 1)
    end
    return (values and "{{" or "{") .. table.concat(out, ", ") .. "}"
  elseif kind and values then
    values[#values + 1] = v
    return "{}"
  end
  if kind == "cell" then v = v:clone() end -- its value, as a graph shows it
  local s = tostring(v)
  if values then s = s:gsub("{", "{{") end
  return s
end

--- limn.print(...): show values when the code runs: at once in eager code, on
-- each run of the graph in a trace.
function M.print(...)
  local values = core.tracing() and {} or nil
  local parts = {}
  for i = 1, select("#", ...) do
    parts[i] = text((select(i, ...)), values, 0)
  end
  local line = table.concat(parts, "\t")
  if values then
    core.print_node(line, values)
  else
    print(line)
  end
end

return M
