-- One choice in the graph: choose(predicate, f, g, names).
--
-- f and g give packed lists of values; each runs once, as a region. The result
-- is the packed list of what they agree on: what is the same on both paths
-- stays what it is, the rest are results of the cond node.
local core = require "limn.core"
local values = require "limn.script.values"
local graph = require "limn.script.graph"

local paths = {"if the condition holds", "if not"}

-- Is it the same value on both paths, so that no node need choose?
local function same(a, b)
  return rawequal(a.v, b.v) or type(a.v) == "number" and a.v == b.v
end

-- The dtype that a result is to be made in or converted to, or false.
local function given_dtype(v, dtype)
  if values.is_tensor(v) and values.dtype_of(v) == dtype then return false end
  return dtype
end

return function(predicate, f, g, names)
  local left, a = graph.region("if", f)
  local right, b = graph.region("if", g, left)
  local merged, place = {}, {}
  local results = graph.build(left, right, function()
    local of_left, of_right, dtypes_left, dtypes_right = {}, {}, {}, {}
    a, b = values.leaves(a, names), values.leaves(b, names)
    values.agree(a, b, paths)
    for i, x in ipairs(a) do
      local y = b[i]
      merged[i] = x.v
      if not same(x, y) then
        local n, dtype = #place + 1, values.common(x.v, y.v)
        place[n], of_left[n], of_right[n] = i, x.v, y.v
        dtypes_left[n] = given_dtype(x.v, dtype)
        dtypes_right[n] = given_dtype(y.v, dtype)
      end
    end
    core.region_give(left, of_left, dtypes_left)
    core.region_give(right, of_right, dtypes_right)
    local r = core.cond_node(predicate, left, right)
    return r
  end)
  for k, i in ipairs(place) do merged[i] = results[k] end
  return values.join(a, merged)
end
