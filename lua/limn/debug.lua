--- limn.debug: what limn watches for while code runs, and what graphs keep.
local core = require "limn.core"

local M = {}
local names = {"nan", "keep", "trace"} -- bits in this order

--- limn.debug({nan =, keep =, trace =}) -> what was set before: nan makes the
-- first op fail that makes NaN or infinity out of finite operands, eager or in
-- a graph, on every device, with its line, path and operands' ranges (runs are
-- slow then); keep lets graph:value find what a path or line gave; trace writes
-- a line for each trace and plan, with the reason. Without arguments: what is
-- set. LIMN_DEBUG=nan,keep,trace does the same.
function M.debug(options)
  core.options(options, names, "debug")
  local old, bits, was = core.debug(), 0, {}
  for i, name in ipairs(names) do
    local bit = 2 ^ (i - 1)
    was[name] = old % (2 * bit) >= bit
    local on = was[name]
    if options and options[name] ~= nil then on = options[name] end
    if on then bits = bits + bit end
  end
  core.debug(bits)
  return was
end

--- graph:value(name) -> tensor: what the module at a path ("policy.head") or a
-- line ("net.lua:14") gave in the last run with limn.debug {keep = true}.
function M.value(g, name)
  local kept = core.graph_kept(g)
  if kept[name] then return kept[name] end
  if next(kept) == nil then
    core.fail("the graph has kept no values",
      "limn.debug {keep = true} before it runs")
  end
  core.fail("the graph has kept nothing of '" .. tostring(name) .. "'"
    .. core.near(tostring(name), kept),
    "it keeps nothing of what is inside a branch or the body of a loop")
end

-- A line about a trace, where that is wanted.
function M.tell(text)
  if core.debug() >= 4 then io.stderr:write("limn: ", text, "\n") end
end

return M
