-- Loops in scripted functions.
--
-- A loop whose condition and bounds are ordinary values runs as Lua would run
-- it. Where a trace records and they are values of the trace, the loop becomes
-- a node: `while` and `repeat` a while node, `for` over sizes a scan node. Its
-- body runs once, as a region, on placeholders for the variables that it sets.
local core = require "limn.core"
local values = require "limn.script.values"
local choose = require "limn.script.choose"
local conditions = require "limn.script.conditions"
local branches = require "limn.script.branches"
local graph = require "limn.script.graph"

local ops, fail, truth = core.ops, core.fail, conditions.truth
local BRK, CONT, DONE = branches.BRK, branches.CONT, branches.DONE
local pack, go_on, course_of = branches.pack, branches.go_on, branches.course
local M = {}

local function nothing() end

-- The node for the end of the loop's body. Paths meet there, unless a return
-- leaves the loop: then they are followed through what the loop still does
-- (`resume`) and what comes after it.
local function new_root(loop, resume)
  local k, up = loop.k, loop.k
  if loop.rest then
    up = {run = loop.rest, up = k, root = k and k.root,
      closed = k and k.closed}
  end
  local root = {loop = true, site = loop.site, accessor = loop.accessor,
    up = up, resume = resume, returns = {}}
  root.root = root
  if resume then root.closed = k and k.closed else root.closed = root end
  return root
end

local function new_loop(site, k, body, accessor, rest)
  return {site = site, k = k, body = body, accessor = accessor or nothing,
    rest = rest, names = branches.names_later(site)}
end

-- -- In the graph ---------------------------------------------------------

-- The variables that the loop carries, taken apart, and their first values.
local function begin(loop)
  loop.before = pack(loop.accessor())
  loop.leaves = values.leaves(branches.read_later(loop.site,
    unpack(loop.before, 1, loop.before.n)), loop.names)
  local list = {}
  loop.place = {}
  for i, l in ipairs(loop.leaves) do
    if l.value then
      list[#list + 1] = values.tensor(l.v, loop.wanted[i])
      loop.place[#list] = i
    end
  end
  return list
end

-- Names of the carried values after those in `names`.
local function carried_names(loop, names)
  local skip = #names
  for j, i in ipairs(loop.place) do
    names[skip + j] = loop.leaves[i].name:gsub("'", "")
  end
  return names
end

-- Set the variables from a list of carried values that starts after `skip`.
local function set(loop, list, skip)
  local merged = {}
  for i, l in ipairs(loop.leaves) do merged[i] = l.v end
  for j, i in ipairs(loop.place) do merged[i] = list[skip + j] end
  branches.set_later(loop.site, loop.accessor, loop.before,
    values.join(loop.leaves, merged))
end

local paths = {"before the loop", "after an iteration"}

-- What the variables hold after the body, as tensors after those in `list`.
local function finish(loop, list)
  local now = values.leaves(branches.read_later(loop.site, loop.accessor()),
    loop.names)
  local was = {shape = loop.leaves.shape, n = loop.leaves.n}
  for i, l in ipairs(loop.leaves) do
    was[i] = {value = l.value, v = l.v, name = l.name}
  end
  for j, i in ipairs(loop.place) do was[i].v = loop.args[loop.skip + j] end
  values.agree(was, now, paths, true)
  for i, l in ipairs(now) do
    if l.value then
      local first = was[i].v -- a token of its dtype suits every run
      local other = values.is_number(l.v) and values.dtype_of(l.v) ~= "bool"
        or values.dtype_of(l.v) ~= values.dtype_of(first)
      list[#list + 1] = values.tensor(l.v, other and first.dtype)
    end
  end
  return list
end

-- Does the loop begin with a number here, or with one made a float?
local function begins_with_number(loop, i)
  local v = loop.leaves[i].v
  return values.is_number(v) and values.dtype_of(v) ~= "bool" or loop.wanted[i]
end

-- Numbers that the loop begins with get the dtypes of what the body, in
-- `region`, makes of them (`out`). It may make it of other such numbers, so
-- that those come first which are numbers to none of it. `list` with them.
local function numbers_follow(loop, region, out, list, row)
  local own, now, open = {}, {}, {}
  for i, x in ipairs(list) do own[i], now[i] = x, x end
  own[#own + 1] = row
  for j, i in ipairs(loop.place) do
    local at, v = loop.skip + j, loop.leaves[i].v
    if begins_with_number(loop, i) then
      open[#open + 1] = {at = at, v = v}
      if not values.is_tensor(v) then own[at] = v end
    end
  end
  repeat
    local rest = {}
    for _, x in ipairs(open) do
      local dtype = core.region_dtype(region, out[x.at],
        not values.is_whole(x.v), own)
      now[x.at] = values.tensor(x.v, dtype)
      if values.dtype_of(now[x.at]) ~= values.dtype_of(out[x.at]) then
        rest[#rest + 1] = x
      end
    end
    local settled = #rest < #open
    open = rest
    local waits = {}
    for _, x in ipairs(open) do waits[x.at] = true end
    for at, x in ipairs(now) do
      if not waits[at] then own[at] = x end
    end
  until not settled or #open == 0
  return now
end

-- Calls record(); once more where a whole number before the loop becomes a
-- float in it: it starts as one then.
local function recorded(loop, record)
  return values.without_clash(record, function(name, dtypes)
    for i, l in ipairs(loop.leaves) do
      if l.name == name and values.is_whole(l.v) and not loop.wanted[i] then
        loop.wanted[i] = dtypes[1] ~= "int64" and dtypes[1] or dtypes[2]
        loop.accessor(true, unpack(loop.before, 1, loop.before.n))
        return values.floats[loop.wanted[i]]
      end
    end
  end)
end

-- course == 0 and test(): whether the loop goes on, as a 0-dim bool.
local function goes_on(loop, course, test)
  if type(course) == "number" then
    if course ~= 0 then return values.tensor(false) end
    local t, predicate = truth(test())
    return predicate or values.tensor(t)
  end
  local y = conditions.both({what = "and", simple = loop.site.simple},
    ops.eq(course, 0), test)
  y = values.tensor(y)
  return y
end

-- The return that ended the loop follows it: the i-th of those met, or a later
-- one. An endless loop ends in no other way.
local function after(loop, root, course, i)
  local r = root.returns[i]
  if not r then return nil end
  if loop.site.endless and not root.returns[i + 1] then
    return branches.leave(r.site, root.up, r.thunk)
  end
  return branches.leaving(loop.site, root.up, (ops.eq(course, 1 + i)),
    function(node) return branches.leave(r.site, node, r.thunk) end,
    function() return after(loop, root, course, i + 1) end)
end

-- What a while node carries before the variables: whether it goes on, which
-- return follows where there is one, the index of a `for`.
local function head(loop, on, course, index)
  local list = {values.tensor(on)}
  if loop.site.returns then list[2] = values.tensor(course) end
  list[#list + 1] = index
  return list
end

-- The loop from here on as a while node. `on` says whether it begins; test()
-- whether it goes on. With `index`, the body gets it, and next_index(i).
local function graph_while(loop, on, test, index, next_index)
  local root
  loop.wanted = {}
  local out = recorded(loop, function()
    local carry = begin(loop)
    local list, names = head(loop, on, 0, index), {"on"}
    if loop.site.returns then names[2] = "course" end
    if index then names[#names + 1] = loop.site.name end
    loop.skip = #list
    for _, x in ipairs(carry) do list[#list + 1] = x end
    return graph.loop(list, carried_names(loop, names), function(args)
      root = new_root(loop)
      root.traced, loop.args = true, args
      set(loop, args, loop.skip)
      local i = index and args[loop.skip]
      local r = pack(loop.body(root, i))
      local course = course_of(r[1], r[2])
      local i_next = index and next_index(i)
      local on_again = goes_on(loop, course, function() return test(i_next) end)
      return finish(loop, head(loop, on_again, course, i_next))
    end, function(region, now, first)
      return numbers_follow(loop, region, now, first)
    end)
  end)
  set(loop, out, loop.skip)
  if loop.site.returns then return after(loop, root, out[2], 1) end
end

-- One more iteration where course is 0; gives the next course.
local function guarded(loop, root, course, ...)
  local before = pack(loop.accessor())
  local names, args = {"the way on", unpack(loop.names)}, pack(...)
  local function path(run)
    return function()
      loop.accessor(true, unpack(before, 1, before.n))
      local c = run()
      local now = branches.read_later(loop.site, loop.accessor())
      return {n = now.n + 1, c, unpack(now, 1, now.n)}
    end
  end
  local list = choose(ops.eq(course, 0), path(function()
    local r = pack(loop.body(root, unpack(args, 1, args.n)))
    return (course_of(r[1], r[2]))
  end), path(function() return course end), names)
  branches.set_later(loop.site, loop.accessor, before, {n = list.n - 1,
    unpack(list, 2, list.n)})
  return list[1]
end

-- A `for` over the elements of xs, of this dtype, as a scan node.
local function graph_scan(loop, xs, dtype)
  local jumps = loop.site.exits
  local root
  loop.wanted = {}
  local out = recorded(loop, function()
    local list = begin(loop)
    loop.skip = jumps and 1 or 0
    if jumps then table.insert(list, 1, values.tensor(0)) end
    local names = carried_names(loop, jumps and {"course"} or {})
    return graph.scan(list, names, xs, loop.site.name, function(args, i)
      root = new_root(loop)
      root.traced, loop.args = true, args
      set(loop, args, loop.skip)
      if not jumps then
        loop.body(root, i)
        return finish(loop, {})
      end
      local course = guarded(loop, root, args[1], i)
      return finish(loop, {values.tensor(course)})
    end, function(region, now, first)
      return numbers_follow(loop, region, now, first,
        core.full({}, 1, dtype))
    end)
  end)
  set(loop, out, loop.skip)
  if jumps then return after(loop, root, out[1], 1) end
end

-- -- while and repeat -----------------------------------------------------

-- What a body gave: nil where it goes on, BRK, or all packed.
local function caught(code, ...)
  if code == nil or code == CONT then return nil end
  if code == BRK then return code end
  return pack(code, ...)
end

-- From what the body gave: whether the loop is over, and what it gives then.
-- A course of the graph is given as a third.
local function over(root, r)
  if r == nil then return false end
  if r == BRK then return true end
  if r[1] ~= DONE or root.closed ~= root then return true, r end
  if r[2] == 0 then return false end
  if r[2] == 1 then return true end
  return true, nil, r[2]
end

-- A loop whose condition is read in eager code, with the random numbers that
-- the node would give: each iteration has a key of its own.
local function eager_while(loop, on, test, root)
  local n = 0
  return core.region_run(function()
    while on do
      core.region_step(n)
      local done, r = over(root, caught(loop.body(root)))
      if done then
        if r then return unpack(r, 1, r.n) end
        return
      end
      n = n + 1
      on = truth(test())
    end
  end)
end

-- c: what the first test gave.
local function run_while(loop, test, c)
  local root = new_root(loop, loop.site.returns and function(code)
    if code == BRK then return end
    local t, predicate = truth(test())
    if not predicate and not t then return end
    return graph_while(loop, predicate or true, test)
  end)
  while true do
    local t, predicate, read = truth(c)
    if predicate then return graph_while(loop, predicate, test) end
    if read then return eager_while(loop, t, test, root) end
    if not t then return end
    local done, r, course = over(root, caught(loop.body(root)))
    if course then
      return graph_while(loop, goes_on(loop, course, test), test)
    end
    if done then
      if r then return unpack(r, 1, r.n) end
      return
    end
    c = test()
  end
end

-- The root for iterations that surely are plain Lua.
local PLAIN = {loop = true}
PLAIN.root, PLAIN.closed = PLAIN, PLAIN

-- while test() do body() end
function M.loop(site, k, test, body, accessor, rest)
  local c = test()
  while type(c) == "boolean" and not site.exits do
    if not c then return go_on(rest) end
    body(PLAIN)
    c = test()
  end
  return go_on(rest, run_while(new_loop(site, k, body, accessor, rest), test,
    c))
end

local function always() return true end

-- A `repeat` whose condition is read, from its second iteration on.
local function eager_until(loop, on, root)
  local course
  local function body(at)
    local function took(code, value, ...)
      if code ~= branches.UNTIL then return code, value, ... end
      course = course_of(code, value)
    end
    return took(loop.body(at))
  end
  return eager_while({body = body}, on, function() return course == 0 end,
    root)
end

local function run_until(loop)
  local root = new_root(loop, loop.site.returns and function(code, value)
    local course = course_of(code, value)
    if course == 1 then return end
    return graph_while(loop, goes_on(loop, course, always), always)
  end)
  while true do
    local r = pack(loop.body(root))
    local code = r[1]
    if code == branches.RET or type(code) == "number"
      or code == DONE and root.closed ~= root then
      return unpack(r, 1, r.n)
    end
    local course, read = course_of(code, r[2])
    if read then return eager_until(loop, course == 0, root) end
    if course == 1 then return end
    if course ~= 0 then
      return graph_while(loop, goes_on(loop, course, always), always)
    end
  end
end

-- repeat body() until ...: the body gives the condition.
function M.loop_until(site, k, body, accessor, rest)
  return go_on(rest, run_until(new_loop(site, k, body, accessor, rest)))
end

-- -- for ------------------------------------------------------------------

-- items(state) gives the next state and its packed values, or nil.
local function run_items(loop, items, state)
  local root = not loop.site.returns and new_root(loop) or nil
  local course, args
  while true do
    state, args = items(state)
    if state == nil then return end
    if course then
      course = guarded(loop, root, course, unpack(args, 1, args.n))
      if course == 1 then return end
      if course == 0 then course, root.traced = nil, nil end
    else
      local here, now = root, state
      here = here or new_root(loop, function(code)
        if code == BRK then return end
        if loop.many and loop.many(now) then return loop.rest_of(now) end
        return run_items(loop, items, now)
      end)
      local done, r, c = over(here, caught(loop.body(here,
        unpack(args, 1, args.n))))
      course = c
      if course then
        root.traced = true
      elseif done then
        if r then return unpack(r, 1, r.n) end
        return
      end
    end
  end
end

local function counter(a, b, c)
  return function(i)
    if i == nil then i = a else i = i + c end
    if c > 0 and i <= b or c <= 0 and i >= b then return i, {n = 1, i} end
  end
end

local parts = {"initial", "limit", "step"}

-- A bound as a number, a size or a 0-dim tensor of the trace.
local function bound(v, i)
  if type(v) == "string" then v = tonumber(v) end
  if type(v) == "number" then return v end
  if core.type(v) == "dim" then return v, "size" end
  if values.is_tensor(v) then
    if v:dim() > 0 then
      fail(("the %s of a `for` is one number, not %s"):format(parts[i],
        values.what(v)), "write x:size(1) or #x to count its rows")
    elseif core.tracing() then
      return v, "tensor"
    end
    return v:item()
  end
  fail(("the %s%s of a `for` is a number, not %s"):format(parts[i],
    i == 1 and " value" or "", values.what(v)))
end

local function whole(v) return type(v) ~= "number" or v % 1 == 0 end

-- for i = a, b, c where only a run knows b: a while node that counts.
local function graph_count(loop, a, b, c)
  if type(c) ~= "number" or c == 0 then
    fail("the step of this `for` must be a number other than 0, not "
      .. values.what(c))
  end
  local dtype = whole(c) and "int64" or "float32"
  local i = values.is_tensor(a) and a or core.full({}, a, dtype)
  local function test(at)
    local y = c > 0 and ops.le(at, b) or ops.ge(at, b)
    return y
  end
  return graph_while(loop, test(i), test, i, function(at) return at + c end)
end

-- A return under a condition on values of the trace takes the iterations that
-- follow into its other branch, one inside the other; not more than this many.
local most_nested = 16

-- With ordinary numbers.
local function count(loop, a, b, c)
  if c > 0 and a > b or c < 0 and a < b then core.chose() end
  if loop.site.exits then
    loop.many = function(i) return (b - i) / c > most_nested end
    loop.rest_of = function(i) return graph_count(loop, i + c, b, c) end
    return run_items(loop, counter(a, b, c))
  end
  local root, body = new_root(loop), loop.body
  for i = a, b, c do body(root, i) end
end

local function for_count(loop, a, b, c)
  local kinds = {}
  a, kinds[1] = bound(a, 1)
  b, kinds[2] = bound(b, 2)
  c, kinds[3] = bound(c == nil and 1 or c, 3)
  if kinds[1] == "tensor" or kinds[2] == "tensor" or kinds[3] == "tensor" then
    return graph_count(loop, a, b, c)
  elseif kinds[1] or kinds[2] or kinds[3] then
    local dtype = whole(a) and whole(c) and "int64" or "float32"
    local xs = core.arange(a, b, c, {dtype = dtype})
    return graph_scan(loop, xs, dtype)
  end
  return count(loop, a, b, c)
end

-- for i = a, b, c do body(i) end
function M.range(site, k, a, b, c, body, accessor, rest)
  return go_on(rest, for_count(new_loop(site, k, body, accessor, rest), a, b,
    c))
end

-- for ... in e do body(...) end
function M.each(site, k, e, body, accessor, rest)
  local f, s, control = e[1], e[2], e[3]
  local seen = {} -- what the iterator gave: paths may start again from there
  local function items(at)
    at = (at or 0) + 1
    if not seen[at] then
      local got = pack(f(s, control))
      if got[1] == nil then return nil end
      control, seen[at] = got[1], got
    end
    local got = seen[at]
    if not site.returns then seen[at] = nil end
    return at, got
  end
  local mt = getmetatable(f)
  if type(f) ~= "function" and not (type(mt) == "table" and mt.__call) then
    fail(("attempt to call a %s value"):format(type(f)))
  end
  return go_on(rest, run_items(new_loop(site, k, body, accessor, rest), items))
end

return M
