-- if and jumps in scripted functions.
--
-- What a closure of the script returns is how control left it: nothing (at its
-- end), or a code and what belongs to it:
--   RET, values...   the function returns them
--   BRK  CONT        out of the innermost loop; to its next iteration
--   UNTIL, value     the end of a `repeat` body with its condition
--   DONE, ...        a choice in the graph has been followed on both paths to
--                    where they meet: the function's end (the values returned),
--                    or the end of a loop's body (how the loop goes on)
--   a number         in a loop of the graph: which `return` is to follow it
--
-- Where the paths of a choice lead is told by a chain of nodes, from the
-- innermost on: {run = the rest of a block, up = next node}, or {loop = true,
-- up =} for the end of a loop's body. `closed` is the nearest loop where the
-- paths meet, nil if they meet where the function ends.
local core = require "limn.core"
local choose = require "limn.script.choose"
local conditions = require "limn.script.conditions"
local pack = require "limn.pack"

local fail, truth = core.fail, conditions.truth
local M = {}

local RET, BRK, CONT, UNTIL, DONE = {}, {}, {}, {}, {}
M.RET, M.BRK, M.CONT, M.UNTIL, M.DONE = RET, BRK, CONT, UNTIL, DONE

-- Given to closures that run as a region: branches, what follows a `return`.
local TRACED, AFTER = {traced = true}, {traced = true, after = true}

M.pack = pack

function M.unpack(t) return unpack(t, 1, t.n) end

-- -- if without jumps -----------------------------------------------------

-- Those of a packed list that are read later.
local function read_later(site, ...)
  local out, n = {}, 0
  for i, live in ipairs(site.live) do
    if live then
      n = n + 1
      out[n] = (select(i, ...))
    end
  end
  out.n = n
  return out
end
M.read_later = read_later

-- Set the variables that are read later from a packed list, others to what
-- `before` holds.
function M.set_later(site, accessor, before, list)
  local all, n = {}, 0
  for i, live in ipairs(site.live) do
    if live then
      n = n + 1
      all[i] = list[n]
    else
      all[i] = before[i]
    end
  end
  accessor(true, unpack(all, 1, #site.live))
end

function M.names_later(site)
  if site.later then return site.later end
  local names = {}
  for i, live in ipairs(site.live) do
    if live then names[#names + 1] = "'" .. site.names[i] .. "'" end
  end
  site.later = names
  return names
end

local function nothing() end

-- The choice between f and g; the variables become what they are on each path.
function M.merge(site, predicate, f, g, accessor)
  accessor = accessor or nothing
  local before = pack(accessor())
  local function path(run)
    return function()
      accessor(true, unpack(before, 1, before.n))
      if run then run(TRACED) end
      local now = read_later(site, accessor())
      return now
    end
  end
  local list = choose(predicate, path(f), path(g), M.names_later(site))
  M.set_later(site, accessor, before, list)
end

-- if c then f() else g() end
function M.cond(site, c, f, g, accessor)
  local t, predicate, read = truth(c)
  if predicate then
    M.merge(site, predicate, f, g, accessor)
  elseif read then -- with the random numbers that the node would give
    core.region_run(t and f or g or nothing)
  elseif t then
    f()
  elseif g then
    g()
  end
end

-- -- if with jumps --------------------------------------------------------

local function go_on(rest, code, ...)
  if code ~= nil or not rest then return code, ... end
  return rest()
end

-- From what a closure gave, the chain is followed to where paths meet.
local function complete(node, r)
  while true do
    local code = r[1]
    if code == DONE or code == RET or type(code) == "number" then return r end
    if code ~= nil then node = node.root end
    if node == nil or node.loop and node == node.closed then return r end
    if node.loop then
      r = pack(node.resume(unpack(r, 1, r.n)))
    elseif node.run then
      r = pack(node.run(AFTER))
    end
    node = node.up
  end
end

-- How a loop goes on after its body gave this: 0 (on), 1 (it ends), or which
-- `return` follows; a number or a 0-dim int64 tensor. True if it was read.
function M.course(code, value)
  if code == nil or code == CONT then return 0 end
  if code == BRK then return 1 end
  if code == DONE then return value end
  if code ~= UNTIL then return code end
  local t, predicate, read = truth(value)
  if not predicate then return t and 1 or 0, read end
  local y = predicate:to "int64"
  return y
end

local function leaving_traced(k, predicate, f, g, accessor, rest)
  accessor = accessor or nothing
  local closed = k and k.closed
  local before = pack(accessor())
  local names = {"the way on"}
  for i, name in ipairs(closed and M.names_later(closed.site) or {}) do
    names[i + 1] = name
  end
  local function path(run)
    return function()
      accessor(true, unpack(before, 1, before.n))
      local node = {run = rest, up = k, root = k and k.root, closed = closed,
        traced = true}
      local r = complete(node, run and pack(run(node)) or {n = 0})
      if not closed then
        if r[1] == nil then return {n = 0} end
        return {n = r.n - 1, unpack(r, 2, r.n)}
      end
      local now = read_later(closed.site, closed.accessor())
      return {n = now.n + 1, (M.course(r[1], r[2])), unpack(now, 1, now.n)}
    end
  end
  local list = choose(predicate, path(f), path(g), closed and names)
  if not closed then return DONE, unpack(list, 1, list.n) end
  local now = pack(closed.accessor())
  M.set_later(closed.site, closed.accessor, now, {n = list.n - 1,
    unpack(list, 2, list.n)})
  return DONE, list[1]
end

-- The same where control may leave f or g otherwise; `rest` follows.
function M.leaving(_, k, c, f, g, accessor, rest)
  local t, predicate = truth(c)
  if predicate then
    return leaving_traced(k, predicate, f, g, accessor, rest)
  end
  local run = f
  if not t then run = g end
  if not run then
    if rest then return rest() end
    return
  end
  local node = {run = rest, up = k, root = k and k.root,
    closed = k and k.closed}
  return go_on(rest, run(node))
end
M.go_on = go_on

-- What the function returns, of what its last statement gave.
function M.result(code, ...)
  if code == nil then return end
  return ...
end

-- A return inside a loop: in one of the graph it waits until the loop ends.
function M.leave(site, k, thunk)
  local closed = k and k.closed
  if not closed then return RET, thunk() end
  local name = site.inside[closed.site.line]
  if name then
    fail(("this return leaves a loop of the graph (line %d), and '%s' exists "
      .. "only inside it"):format(closed.site.line, name),
      "keep it in a variable that has a value before the loop")
  end
  local list = closed.returns
  for i, r in ipairs(list) do
    if r.site == site then return 1 + i end
  end
  list[#list + 1] = {site = site, thunk = thunk}
  return 1 + #list
end

-- -- What no graph can hold ------------------------------------------------

-- Where the code is if one of these closures runs as a region, else nil.
local function where(...)
  for i = select("#", ...), 1, -1 do
    local p = select(i, ...)
    if p and p.traced then
      return (p.after and "after a return or break" or "inside an `if` or loop")
        .. " that depends on values of a run"
    end
  end
end

-- Before an assignment to a variable from outside the function.
function M.outer(site, ...)
  local inside = where(...)
  if not inside then return end
  fail(("'%s' is set %s, and it is %s"):format(site.name, inside,
    site.what == "global" and "a global" or "a variable of another function"),
    "set a local variable and return it; a cell (nn.Buffer) keeps a value "
      .. "between runs")
end

-- Before error(...).
function M.raise(_, ...)
  local inside = where(...)
  if not inside then return end
  fail("error(...) stands " .. inside .. ", and a graph cannot raise",
    "return a flag, and check it after the run")
end

-- Before an assignment to a part of something from outside the branch.
function M.write(site, base, ...)
  local inside = where(...)
  if not inside or core.type(base) == "cell" or core.is_own(base) then
    return
  end
  local name = site.base or "x"
  if core.type(base) == "tensor" then
    fail(("elements of %s are set %s"):format(name, inside),
      ("copy it there first: %s = %s:clone()"):format(name, name))
  end
  fail(("%s is set %s: the table would change once, while tracing"):format(
    site.name or name .. "[...]", inside), site.name
    and "set a local variable there, and the field after it"
    or "limn.map and limn.scan stack what each step gives")
end

return M
