-- Regions and nodes of control flow, for scripted functions.
local core = require "limn.core"

local M = {}

-- f(region) is recorded as a region; the region and what f gives. Others that
-- are open are closed when it fails.
function M.region(name, f, open)
  local region = core.trace_begin(name, "region")
  local ok, r = pcall(f, region)
  if not ok then
    core.trace_abort(region)
    if open then core.trace_abort(open) end
    error(r, 0)
  end
  core.region_leave(region)
  return region, r
end

-- build() makes a node of regions that have been left.
local function build(a, b, f)
  local ok, r = pcall(f)
  core.trace_abort(a)
  if b then core.trace_abort(b) end
  if not ok then error(r, 0) end
  return r
end
M.build = build

local function falses(n)
  local t = {}
  for i = 1, n do t[i] = false end
  return t
end

-- Placeholders like the tensors of a list.
local function inputs(region, list, names)
  local args = {}
  for i, x in ipairs(list) do
    args[i] = core.region_input(region, names[i], x, false)
  end
  return args
end

-- A while node: the first of `list` says whether it goes on; body(args) gives
-- the next values. The last values. Once the body is known, begin(region, next
-- values, list) may give other values to begin with.
function M.loop(list, names, body, begin)
  local test, on = M.region("while", function(region)
    return inputs(region, list, names)[1]
  end)
  local region, out = M.region("while", function(region)
    return body(inputs(region, list, names))
  end, test)
  return build(test, region, function()
    core.region_give(test, {on}, {false})
    list = begin(region, out, list)
    core.region_give(region, out, falses(#out))
    local r = core.while_node(list, test, region)
    return r
  end)
end

-- A scan node over the elements of xs: body(args, x) gives the next values.
function M.scan(list, names, xs, name, body, begin)
  local region, out = M.region("for", function(region)
    local args = inputs(region, list, names)
    return body(args, core.region_input(region, name, xs, true))
  end)
  return build(region, nil, function()
    list = begin(region, out, list)
    core.region_give(region, out, falses(#out))
    local r = core.scan_node(list, {xs}, region, false)
    return r
  end)
end

return M
