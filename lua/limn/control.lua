--- Control flow: limn.cond, limn.while_loop, limn.scan, limn.map and
-- limn.by_device. A trace records both branches, or a loop's body once; eager
-- code runs them as plain Lua would.
local core = require "limn.core"
local callable = require "limn.callable"
local nested = require "limn.nested"
local limn = require "limn.lazy"
local pack = require "limn.pack"

local ops, fail = core.ops, core.fail
local plain, check_function = callable.plain, callable.check
local is_tensor, is_number = nested.is_tensor, nested.is_number
local Static, keys, take, give = nested.Static, nested.keys, nested.take,
  nested.give
local describe, at, dtype_of = nested.describe, nested.at, nested.dtype_of
local carried, follow = nested.carried, nested.follow
local M = {}

-- -- Recording a body -----------------------------------------------------

-- f(...) is recorded as a region: it and the results.
local function record(name, f, make)
  local region = core.trace_begin(name, "region")
  local ok, r = pcall(function()
    local r = pack(f(make(region)))
    core.region_leave(region)
    return r
  end)
  if not ok then
    core.trace_abort(region)
    error(r, 0)
  end
  return region, r
end

-- Run a builder of nodes; regions that are open are closed when it fails.
local function build(regions, f)
  local ok, r = pcall(f)
  for i = 1, #regions do core.trace_abort(regions[i]) end
  if not ok then error(r, 0) end
  return r
end

-- -- cond -----------------------------------------------------------------

-- The dtype of a tensor that holds either number.
local function either(a, b)
  if type(a) == "boolean" and type(b) == "boolean" then return "bool" end
  for _, v in ipairs {a, b} do
    if type(v) == "number" and v ~= math.floor(v) then return "float32" end
    if type(v) == "boolean" then return nil end
    if type(v) == "cdata" and core.kind(v) ~= "int" then return "float32" end
  end
  return "int64"
end

-- What the branches return, side by side: the structure of the result, and the
-- tensors of each. Equal values stay what they are; numbers that differ become
-- tensors.
local function align(a, b, out, path)
  if is_tensor(a) and is_tensor(b) then
    if a:dim() ~= b:dim() then
      fail(("%s has %d dim%s in one branch and %d in the other"):format(path,
        a:dim(), a:dim() == 1 and "" or "s", b:dim()),
        "both branches must give as many dims; :reshape changes them")
    end
    out.n = out.n + 1
    out.a[out.n], out.b[out.n], out.dtype[out.n] = a, b, false
    return out.n
  elseif plain(a) and plain(b) then
    local s, ka, kb = {}, keys(a), keys(b)
    if #ka ~= #kb then
      fail(("%s has %d entries in one branch and %d in the other"):format(path,
        #ka, #kb))
    end
    for i, k in ipairs(ka) do
      if kb[i] ~= k then
        fail(("%s has the key %s in one branch only"):format(path,
          tostring(k)))
      end
      s[k] = align(a[k], b[k], out, at(path, k))
    end
    return s
  elseif rawequal(a, b) then
    return setmetatable({v = a}, Static)
  end
  local dtype = is_number(a) and is_number(b) and either(a, b)
  if not dtype then
    fail(("%s is %s in one branch and %s in the other"):format(path,
      describe(a), describe(b)),
      is_number(a) ~= is_number(b)
        and "limn.full_like(x, v) makes a tensor of a number" or nil)
  end
  out.n = out.n + 1
  out.a[out.n], out.b[out.n], out.dtype[out.n] = a, b, dtype
  return out.n
end

local function record_cond(who, pred, f, g, args)
  local function make() return unpack(args, 1, args.n) end
  local fr, ra = record(who, f, make)
  local gr, rb
  local out = {n = 0, a = {}, b = {}, dtype = {}}
  local shape = {}
  local results = build({fr}, function()
    gr, rb = record(who, g, make)
    local list = build({gr}, function()
      for i = 1, math.max(ra.n, rb.n) do
        shape[i] = align(ra[i], rb[i], out, who .. ": result " .. i)
      end
      core.region_give(fr, out.a, out.dtype)
      core.region_give(gr, out.b, out.dtype)
      local made = core.cond_node(pred, fr, gr)
      return made
    end)
    return list
  end)
  local r = {n = math.max(ra.n, rb.n)}
  for i = 1, r.n do r[i] = give(shape[i], results) end
  return unpack(r, 1, r.n)
end

-- A tensor's one bool, in eager code.
local function decide(who, pred)
  if not is_tensor(pred) then
    fail(("%s: the condition is %s, not a bool"):format(who, describe(pred)),
      "compare first: x:gt(0):any(), limn.gt(n, 3)")
  end
  if pred:dim() ~= 0 or tostring(pred.dtype) ~= "bool" then
    fail(("%s: the condition is %s [%s]; one bool is wanted"):format(who,
      tostring(pred.dtype), table.concat(pred.shape, ", ")),
      "compare, and reduce with :any() or :all()")
  end
  core.chose()
  return (pred:item())
end

--- limn.cond(pred, f, g, ...): f(...) if pred holds, else g(...). pred is a
-- 0-dim bool tensor, or a plan value (limn.gt(n, 3) of a size or a number
-- input); a trace records both branches. A Lua boolean decides at once, as `if`
-- does.
function M.cond(pred, f, g, ...)
  check_function(f, "cond")
  check_function(g, "cond")
  if type(pred) == "boolean" then
    local r = pack((pred and f or g)(...))
    return unpack(r, 1, r.n)
  end
  if core.tracing() then
    if not is_tensor(pred) and core.type(pred) ~= "dim" then
      decide("cond", pred)
    end
    local r = pack(record_cond("cond", pred, f, g, pack(...)))
    return unpack(r, 1, r.n)
  end
  local r = pack(core.region_run(decide("cond", pred) and f or g, ...))
  return unpack(r, 1, r.n)
end

--- limn.by_device({cpu = f, gpu = g}, ...): f(...) or g(...), by where the run
-- happens: in eager code where the first tensor among the arguments is, or
-- where limn.on says. A branch may be missing; a run that needs it raises.
function M.by_device(branches, ...)
  if not plain(branches) then
    fail("by_device: a table of functions is wanted, not "
      .. describe(branches), "limn.by_device {cpu = f, gpu = g}")
  end
  core.options(branches, {"cpu", "gpu"}, "by_device")
  local f, g = branches.cpu, branches.gpu
  if f == nil and g == nil then
    fail("by_device: there is no branch", "limn.by_device {cpu = f, gpu = g}")
  end
  if f ~= nil then check_function(f, "by_device: cpu") end
  if g ~= nil then check_function(g, "by_device: gpu") end
  local kind = not core.tracing() and core.kind_of(...)
  local r
  if f == nil or g == nil then
    local only = f and "cpu" or "gpu"
    if not kind then
      core.on_guard(only)
    elseif kind ~= only then
      fail(("by_device: this runs on a %s, for which there is nothing"):format(
        kind), ("give it %s = function(...) ... end, too"):format(kind))
    end
    r = pack((f or g)(...))
  elseif kind then
    core.chose()
    r = pack(core.region_run(branches[kind], ...))
  else
    r = pack(record_cond("by_device", core.on_node "cpu", f, g, pack(...)))
  end
  return unpack(r, 1, r.n)
end

-- -- Loops ----------------------------------------------------------------

-- Placeholders for the tensors of a structure, named after their place.
local function placeholders(region, s, list, name, row, out)
  if type(s) == "number" then
    out[s] = core.region_input(region, name, list[s], row)
  elseif getmetatable(s) ~= Static then
    for _, k in ipairs(keys(s)) do
      placeholders(region, s[k], list, at(name, k), row, out)
    end
  end
end

-- -- while_loop -----------------------------------------------------------

-- The n values of a loop, made of these tensors.
local function loop_values(shape, n, list)
  local r = {n = n}
  for i = 1, n do r[i] = give(shape[i], list) end
  return r
end

-- The tensors of what the body gave for the n values that it was called with.
local function next_turn(body, shape, n, made, like)
  local out = {}
  if made.n ~= n then
    fail(("while_loop: the body gives %d values for %d"):format(made.n, n))
  end
  for i = 1, n do
    follow("while_loop", shape[i], made[i], like, callable.param(body, i), out)
  end
  return out
end

local function record_while(test, body, shape, list, args)
  local inputs
  local function make(region)
    inputs = {}
    for i = 1, args.n do
      placeholders(region, shape[i], list, callable.param(body, i), false,
        inputs)
    end
    return unpack(loop_values(shape, args.n, inputs), 1, args.n)
  end
  local tr, go = record("while_loop", test, make)
  local results = build({tr}, function()
    if go.n ~= 1 or not is_tensor(go[1]) then
      fail("while_loop: the test gives "
        .. (go.n == 1 and describe(go[1]) or go.n .. " values")
        .. "; one bool tensor is wanted")
    end
    core.region_give(tr, {go[1]}, {false})
    local br, r = record("while_loop", body, make)
    local made = build({br}, function()
      core.region_give(br, next_turn(body, shape, args.n, r, inputs), inputs)
      local node = core.while_node(list, tr, br)
      return node
    end)
    return made
  end)
  return unpack(loop_values(shape, args.n, results), 1, args.n)
end

local function run_while(test, body, shape, list, args)
  local r, n = args, 0
  while true do
    core.region_step(n)
    if not decide("while_loop", (test(unpack(r, 1, r.n)))) then break end
    local now = pack(body(unpack(r, 1, r.n)))
    local out = next_turn(body, shape, args.n, now, list)
    for i = 1, #list do
      core.region_same("while_loop", list[i], out[i])
    end
    r = loop_values(shape, args.n, out)
    n = n + 1
  end
  return unpack(r, 1, r.n)
end

--- limn.while_loop(test, body, ...): repeats ... = body(...) while test(...)
-- holds; returns the last values. test gives a 0-dim bool tensor. Numbers among
-- the values become 0-dim tensors; values keep their shape and dtype.
function M.while_loop(test, body, ...)
  check_function(test, "while_loop")
  check_function(body, "while_loop")
  local args, shape, list = pack(...), {}, {}
  for i = 1, args.n do
    args[i] = carried("while_loop", args[i])
    shape[i] = take(args[i], list)
  end
  local r
  if core.tracing() then
    r = pack(record_while(test, body, shape, list, args))
  else
    r = pack(core.region_run(run_while, test, body, shape, list, args))
  end
  return unpack(r, 1, r.n)
end

-- -- scan -----------------------------------------------------------------

local function check_rows(who, xs)
  if #xs == 0 then
    fail(who .. ": there are no tensors to go over",
      "limn.arange(n) counts the steps")
  end
  for _, x in ipairs(xs) do
    if x:dim() == 0 then
      fail(who .. ": a tensor with 0 dims has no rows")
    end
  end
end

local function record_scan(who, f, init, list, rows, xs, reverse)
  local inputs, x = {}, {}
  local body, r = record(who, f, function(region)
    placeholders(region, init, list, callable.param(f, 1), false, inputs)
    placeholders(region, rows, xs, callable.param(f, who == "map" and 1 or 2),
      true, x)
    if who == "map" then return (give(rows, x)) end
    return give(init, inputs), give(rows, x)
  end)
  local shape, carry
  local results = build({body}, function()
    local ys, out, likes = {}, {}, {}
    carry = who ~= "map"
    if carry then
      follow(who, init, r[1], inputs, callable.param(f, 1), out)
    end
    for i = 1, #list do likes[i] = inputs[i] end
    shape = take(r[carry and 2 or 1], ys, 0, true)
    for i = 1, #ys do
      out[#list + i] = ys[i]
      likes[#list + i] = is_number(ys[i]) and dtype_of(ys[i])
    end
    core.region_give(body, out, likes)
    local made = core.scan_node(list, xs, body, reverse)
    return made
  end)
  local ys = {}
  for i = #list + 1, #results do ys[i - #list] = results[i] end
  return give(init, results), give(shape, ys)
end

-- What two rows give, s and t, is stacked: it has one structure.
local function stacks(who, s, t, path)
  local a, b = getmetatable(s) == Static, getmetatable(t) == Static
  if type(s) == "table" and type(t) == "table" and not a and not b then
    for _, from in ipairs {s, t} do
      for _, k in ipairs(keys(from)) do
        if s[k] == nil or t[k] == nil then
          fail(("%s: %s has the key %s for some rows only"):format(who, path,
            tostring(k)))
        end
        stacks(who, s[k], t[k], at(path, k))
      end
    end
  elseif s ~= t and not (a and b and rawequal(s.v, t.v)) then
    local function shown(x)
      if type(x) == "number" then return "a tensor" end
      return describe(getmetatable(x) ~= Static and x or x.v)
    end
    fail(("%s: %s is %s for one row and %s for another"):format(who, path,
      shown(s), shown(t)), "each row must give the same kind of value")
  end
end

local function run_scan(who, f, init, list, rows, xs, reverse)
  local n = xs[1]:size(1)
  local c, out, shape = give(init, list), {}, nil
  for _, x in ipairs(xs) do
    if x:size(1) ~= n then
      fail(("%s: it goes over %d rows of one tensor and %d of another"):format(
        who, n, x:size(1)))
    end
  end
  for k = 1, n do
    local t = reverse and n + 1 - k or k
    local row, now, y = {}, {}
    for i = 1, #xs do row[i] = xs[i][t] end
    core.region_step(t - 1)
    if who == "map" then
      y = f(give(rows, row))
    else
      c, y = f(c, give(rows, row))
      follow(who, init, c, list, callable.param(f, 1), now)
      for i = 1, #list do core.region_same(who, list[i], now[i]) end
      c = give(init, now)
    end
    local ys = {}
    local s = take(carried(who, y), ys)
    if shape then stacks(who, shape, s, "result") end
    shape = shape or s
    for i = 1, #ys do
      out[i] = out[i] or {}
      out[i][t] = ys[i]
    end
  end
  for i = 1, #out do out[i] = ops.stack(out[i], 1) end
  return c, give(shape, out)
end

-- Without a step only a trace knows what f would give. The call stands on the
-- tape of a gradient, for which the result depends on all that f uses.
local function run_none(who, f, init, list, rows, xs, reverse)
  local g = limn.trace(function(a, b)
    local c, y = record_scan(who, f, init, a, rows, b, reverse)
    return c, y
  end, list, xs)
  return g(list, xs)
end

local function scan(who, f, init, xs, reverse)
  local list, tensors = {}, {}
  local shape = take(init, list)
  local rows = take(xs, tensors)
  local c, y
  check_rows(who, tensors)
  if core.tracing() then
    c, y = record_scan(who, f, shape, list, rows, tensors, reverse)
  elseif tensors[1]:size(1) == 0 then
    c, y = run_none(who, f, shape, list, rows, tensors, reverse)
  else
    c, y = core.region_run(run_scan, who, f, shape, list, rows, tensors,
      reverse)
  end
  return c, y
end

--- limn.scan(f, init, xs [, {reverse = false}]) -> carry, ys: folds carry, y =
-- f(carry, x) over dim 1 of xs (a tensor, or a table of them); returns the last
-- carry and every y, stacked. {reverse = true} goes from the last to the first;
-- each y keeps the place of its x.
function M.scan(f, init, xs, options)
  check_function(f, "scan")
  core.options(options, {"reverse"}, "scan")
  local c, y = scan("scan", f, carried("scan", init), xs,
    options and options.reverse or false)
  return c, y
end

--- limn.map(f, xs): f(x) of every row x along dim 1 of xs (a tensor, or a table
-- of them), stacked.
function M.map(f, xs)
  check_function(f, "map")
  local _, y = scan("map", f, nil, xs, false)
  return y
end

-- -- A graph inside a gradient ------------------------------------------

local function joined(...)
  local all, n = {}, 0
  for i = 1, select("#", ...) do
    local list = select(i, ...)
    for k = 1, #list do all[n + k] = list[k] end
    n = n + #list
  end
  return all, n
end

-- f(..., and these)
local function closed(f, outer)
  return function(...)
    local all, n = joined({...}, outer)
    return unpack(pack(f(unpack(all, 1, n))))
  end
end

local replay = {}

function replay.cond(pred, xs, f, g)
  if type(pred) ~= "boolean" then pred = decide("cond", pred) end
  core.chose()
  local r = {core.region_run(pred and f or g, unpack(xs))}
  return r
end

replay["while"] = function(carry, outer, test, body)
  local shape, args = {}, {n = #carry, unpack(carry)}
  for i = 1, #carry do shape[i] = i end
  local r = {core.region_run(run_while, closed(test, outer),
    closed(body, outer), shape, carry, args)}
  return r
end

function replay.scan(carry, xs, outer, body, reverse)
  local function f(c, x)
    local all, n = joined(c, x, outer)
    local r, now, y = {body(unpack(all, 1, n))}, {}, {}
    for i = 1, #carry do now[i] = r[i] end
    for i = #carry + 1, #r do y[i - #carry] = r[i] end
    return now, y
  end
  local c, y = scan("scan", f, carry, xs, reverse)
  return (joined(c, y))
end

function replay.custom(xs, f, vjp)
  return {(core.custom_node(xs, f, vjp))}
end

function replay.print(values, text)
  local i = 0
  local line = text:gsub("{[{}]", function(s)
    if s == "{{" then return "{" end
    i = i + 1
    return tostring(values[i])
  end)
  print(line)
  return {}
end

core.set_replay(function(device, op, ...)
  return (limn.on(device, replay[op], ...))
end)

return M
