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

-- The dtypes that a result is to be made in or converted to on both paths, or
-- false; and whether it is made of numbers. A number follows the tensor beside
-- it: no dtype of the example is in the graph.
local given_dtypes
function given_dtypes(left, a, right, b)
  local dtype = values.common(a, b)
  if values.is_number(a) and values.is_number(b) then
    return dtype, dtype, dtype ~= "bool"
  elseif values.is_number(a) then
    local right_dtype, left_dtype = given_dtypes(right, b, left, a)
    return left_dtype, right_dtype
  elseif dtype == "bool" then
    return false, dtype
  elseif values.is_number(b) and not values.is_whole(b) then
    dtype = core.region_dtype(left, a, true, {})
    return dtype, dtype
  elseif values.is_number(b) or values.dtype_of(b) ~= dtype then
    return false, core.region_dtype(left, a, false, {})
  elseif values.dtype_of(a) ~= dtype then
    return core.region_dtype(right, b, false, {}), false
  end
  return false, false
end

return function(predicate, f, g, names)
  local left, a = graph.region("if", f)
  local right, b = graph.region("if", g, left)
  local merged, place, numbers = {}, {}, {}
  local results = graph.build(left, right, function()
    local of_left, of_right, dtypes_left, dtypes_right = {}, {}, {}, {}
    a, b = values.leaves(a, names), values.leaves(b, names)
    values.agree(a, b, paths)
    for i, x in ipairs(a) do
      local y = b[i]
      merged[i] = x.v
      if not same(x, y) then
        local n = #place + 1
        place[n], of_left[n], of_right[n] = i, x.v, y.v
        dtypes_left[n], dtypes_right[n], numbers[n] =
          given_dtypes(left, x.v, right, y.v)
      end
    end
    core.region_give(left, of_left, dtypes_left)
    core.region_give(right, of_right, dtypes_right)
    local r = core.cond_node(predicate, left, right)
    return r
  end)
  for k, i in ipairs(place) do
    merged[i] = numbers[k] and values.number(results[k]) or results[k]
  end
  return values.join(a, merged)
end
