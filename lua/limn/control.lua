--- Control flow on traced values: cond, while_loop, scan, map, by_device.
local core = require "limn.core"

local ops, fail = core.ops, core.fail
local M = {}

local function pack(...) return {n = select("#", ...), ...} end

local function sorted_keys(t)
  local keys = {}
  for k in pairs(t) do keys[#keys + 1] = k end
  table.sort(keys, function(a, b) return tostring(a) < tostring(b) end)
  return keys
end

local function check_function(f, who)
  if type(f) == "function" or getmetatable(f) then return end
  fail(who .. ": a function is wanted, not a " .. type(f))
end

local function map_leaves(a, b, f, who)
  if core.type(a) or type(a) ~= "table" then return f(a, b) end
  if type(b) ~= "table" then
    fail(who .. ": the results differ in structure")
  end
  local out = {}
  for _, k in ipairs(sorted_keys(a)) do
    out[k] = map_leaves(a[k], b[k], f, who)
  end
  return out
end

--- f(...) where pred holds, else g(...). In a trace both are recorded and
-- the results chosen, so both must be without side effects.
function M.cond(pred, f, g, ...)
  check_function(f, "cond")
  check_function(g, "cond")
  if core.type(pred) == "tensor" and not core.of_trace(pred)
    and not core.tracing() then
    pred = pred:item()
  end
  if type(pred) == "boolean" then
    local r
    if pred then r = pack(f(...)) else r = pack(g(...)) end
    return unpack(r, 1, r.n)
  end
  local a, b = pack(f(...)), pack(g(...))
  if a.n ~= b.n then
    fail "cond: the functions return different numbers of results"
  end
  local out = {}
  for i = 1, a.n do
    out[i] = map_leaves(a[i], b[i], function(x, y)
      if rawequal(x, y) then return x end
      return (ops.where(pred, x, y))
    end, "cond")
  end
  return unpack(out, 1, a.n)
end

--- Repeat `... = body(...)` while test(...) holds; gives the last values.
function M.while_loop(test, body, ...)
  check_function(test, "while_loop")
  check_function(body, "while_loop")
  if core.tracing() then
    fail("while_loop cannot be traced yet",
      "run the loop in Lua around a traced body")
  end
  local v = pack(...)
  while true do
    local go = test(unpack(v, 1, v.n))
    if core.type(go) then go = go:item() end
    if not go or go == 0 then break end
    v = pack(body(unpack(v, 1, v.n)))
  end
  return unpack(v, 1, v.n)
end

local function each(xs, i)
  if core.type(xs) then return (xs[i]) end
  local out = {}
  for k, v in pairs(xs) do out[k] = each(v, i) end
  return out
end

local function count(xs)
  if core.type(xs) then return (core.value(xs:size(1))) end
  local k = sorted_keys(xs)[1]
  if k == nil then fail "scan: nothing to walk over" end
  return (count(xs[k]))
end
local function stack(list)
  local first = list[1]
  if first == nil then return nil end
  if core.type(first) then return (ops.stack(list, 1)) end
  if type(first) ~= "table" then return list end
  local out = {}
  for k in pairs(first) do
    local column = {}
    for i = 1, #list do column[i] = list[i][k] end
    out[k] = stack(column)
  end
  return out
end

--- carry, y = f(carry, x) over dim 1 of xs; the last carry and the stacked y.
-- In a trace the steps are recorded one by one, with a guard on their number.
function M.scan(f, init, xs)
  check_function(f, "scan")
  local carry, ys = init, {}
  for i = 1, count(xs) do
    local y
    carry, y = f(carry, each(xs, i))
    ys[i] = y
  end
  return carry, stack(ys)
end

--- f of every slice along dim 1, stacked.
function M.map(f, xs)
  check_function(f, "map")
  local ys = {}
  for i = 1, count(xs) do ys[i] = f(each(xs, i)) end
  local out = stack(ys)
  return out
end

--- The function for the kind of device that runs: {cpu = f, gpu = g}. A trace
-- records both.
function M.by_device(t, ...)
  core.options(t, {"cpu", "gpu"}, "by_device")
  if not core.tracing() then
    local kind = "cpu"
    for i = 1, select("#", ...) do
      local v = select(i, ...)
      if core.type(v) == "tensor" and v.device ~= "cpu" then kind = "gpu" end
    end
    local r = pack(t[kind](...))
    return unpack(r, 1, r.n)
  end
  local r = pack(M.cond(core.on_kind "cpu", t.cpu, t.gpu, ...))
  return unpack(r, 1, r.n)
end

return M
