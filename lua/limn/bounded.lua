--- limn.while_at_most: a while loop with a gradient, because it is known how
-- many turns it takes at most: in a graph a scan over them, whose steps do
-- nothing once the test does not hold. Eager code stops there.
local core = require "limn.core"
local callable = require "limn.callable"
local nested = require "limn.nested"
local control = require "limn.control"
local pack = require "limn.pack"

local ops, fail = core.ops, core.fail
local M = {}

-- The values as an argument list.
local function spread(values) return unpack(values, 1, values.n) end

-- One loop: {test, body, n, shape = {of each value}}. A turn's values are a
-- list of their tensors.
local function values_of(loop, list)
  local values = {n = loop.n}
  for i = 1, loop.n do values[i] = nested.give(loop.shape[i], list) end
  return values
end

local function holds(loop, list)
  local y = pack(loop.test(spread(values_of(loop, list))))
  if y.n ~= 1 or not nested.is_tensor(y[1]) then
    fail(("while_at_most: the test gives %s; one bool tensor is wanted"):format(
      y.n == 1 and nested.describe(y[1]) or y.n .. " values"))
  end
  return y[1]
end

local function turn(loop, list)
  local made, out = pack(loop.body(spread(values_of(loop, list)))), {}
  if made.n ~= loop.n then
    fail(("while_at_most: the body gives %d values for %d"):format(made.n,
      loop.n))
  end
  for i = 1, loop.n do
    nested.follow("while_at_most", loop.shape[i], made[i], list,
      callable.param(loop.body, i), out)
  end
  for i, v in ipairs(out) do
    if nested.is_number(v) then out[i] = ops.full_like(list[i], v) end
  end
  return out
end

local function record(loop, list, most)
  local function step(carry)
    local on = control.cond(carry.on, function()
      return (holds(loop, carry.list))
    end, function() return carry.on end)
    local now = control.cond(on, function()
      return (turn(loop, carry.list))
    end, function() return carry.list end)
    return {on = on, list = now}
  end
  local last = control.scan(step, {on = ops.full({}, true, "bool"),
    list = list}, core.arange(most))
  return last.list
end

-- With the random numbers that the graph draws: in each turn, one draw is for
-- the test and one for the body.
local function run(loop, list, most)
  for i = 1, most do
    core.region_step(i - 1)
    local on = core.region_run(holds, loop, list)
    core.chose()
    if not on:item() then break end
    local now = core.region_run(turn, loop, list)
    for k = 1, #list do
      core.region_same("while_at_most", list[k], now[k])
    end
    list = now
  end
  return list
end

local function check(most, test, body)
  if core.type(most) ~= "dim" and (type(most) ~= "number" or most < 0
    or most % 1 ~= 0) then
    fail("while_at_most: the most turns are a whole number, not "
      .. nested.describe(most), "limn.while_at_most(100, test, body, x)")
  end
  callable.check(test, "while_at_most")
  callable.check(body, "while_at_most")
end

--- limn.while_at_most(n, test, body, ...): repeats ... = body(...) while
-- test(...) holds, n times at most (n may be a size); returns the last values.
-- Unlike while_loop it has a gradient, for which a graph keeps what n turns
-- need.
function M.while_at_most(n, test, body, ...)
  check(n, test, body)
  local args, loop, list = pack(...), {test = test, body = body, shape = {}}, {}
  loop.n = args.n
  for i = 1, args.n do
    loop.shape[i] = nested.take(nested.carried("while_at_most", args[i]), list)
  end
  if core.tracing() then
    list = record(loop, list, n)
  else
    list = core.region_run(run, loop, list, n)
  end
  return spread(values_of(loop, list))
end

return M
