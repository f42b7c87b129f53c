--- Tracing: limn.trace, and sizes in traces.
local core = require "limn.core"
local callable = require "limn.callable"
local tell = require "limn.debug".tell
local sorted_keys = require "limn.sorted_keys"
local pack = require "limn.pack"

local ops, fail = core.ops, core.fail
local noun, plain, place = callable.noun, callable.plain, callable.place
local has_ffi, ffi = pcall(require, "ffi")
local M = {}

-- -- Sizes ----------------------------------------------------------------
-- A Dim is a cdata, because only a cdata's `n == 10` can be intercepted. C
-- knows it by a weak-keyed table, never by its bytes.

local dim = core.dim_meta
if has_ffi then
  local mt = {}
  for name, f in pairs(dim) do
    if name:find "^__" then mt[name] = f end
  end
  mt.__index = function(_, k)
    fail("a size, dtype or device of a trace has no field '" .. tostring(k)
      .. "'",
      "limn.floor, limn.min, ... work on sizes, numbers and tensors")
  end
  mt.__newindex = mt.__index
  mt.__call = function() fail "a size of a trace cannot be called" end
  local ctype = ffi.metatype(ffi.typeof "struct { int32_t limn_dim; }", mt)
  core.set_maker(function() return ctype() end)
end

M.value = core.value
for _, name in ipairs {"floor", "ceil", "sqrt", "abs", "log", "exp"} do
  local f, d, op = math[name], dim[name], ops[name]
  M[name] = function(x, ...)
    if type(x) == "number" then return (f(x)) end
    local y
    if type(x) == "cdata" then y = d(x) else y = op(x, ...) end
    return y
  end
end
for _, name in ipairs {"max", "min"} do
  local f, d, reduce = math[name], dim[name], ops[name]
  local both = ops[name .. "imum"]
  M[name] = function(a, b, ...)
    if type(a) == "number" and type(b) == "number" then
      return (f(a, b, ...))
    end
    local y
    if type(a) == "userdata" and not core.type(b) then
      y = reduce(a, b, ...)
    elseif type(a) == "userdata" or type(b) == "userdata" then
      y = both(a, b)
    else
      y = d(a, b)
      for i = 1, select("#", ...) do y = d(y, (select(i, ...))) end
    end
    return y
  end
end

-- -- Examples -------------------------------------------------------------

local Spec, Number = {}, {limn_number = true} -- C unwraps these
Spec.__index, Number.__index = Spec, Number
local kinds = require "limn.check".kinds
kinds.spec, kinds.number = Spec, Number

--- limn.spec(sizes, dtype = "float32"): stands for an example tensor:
-- limn.spec({"batch", 64}, "float32"). A string names a size that must agree
-- across inputs; a number is a hint, as an example's size is.
function M.spec(sizes, dtype, name)
  if type(sizes) ~= "table" then
    fail("spec: the first argument is a list of sizes",
      'limn.spec({"batch", 64}, "float32")')
  end
  for _, s in ipairs(sizes) do
    if type(s) ~= "string" and type(s) ~= "number" then
      fail("spec: a size is a number or a name, not a " .. type(s))
    elseif type(s) == "number" and (s < 0 or s ~= math.floor(s)) then
      fail("spec: " .. s .. " is no size")
    end
  end
  if dtype ~= nil and type(dtype) ~= "string" then
    fail("spec: a dtype is a name, not a " .. type(dtype))
  end
  return setmetatable({sizes = sizes, dtype = dtype or "float32", name = name},
    Spec)
end

--- limn.number(v): as an example, a number that becomes an input of the graph:
-- calls pass a plain Lua number, and no value of it traces or compiles anew.
function M.number(v)
  if type(v) ~= "number" then
    fail("number: an example number is wanted, not " .. noun(v))
  end
  return setmetatable({v = v}, Number)
end

local primes = {7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67}

-- Placeholders for an example, in the structure of the example.
local function placeholder(s, v, name, depth)
  local kind = core.type(v)
  depth = depth or 0
  if depth > 60 then
    fail("the argument " .. name:sub(1, 20) .. "... is nested too deep, or in "
      .. "a circle")
  end
  local base, n = name, 2
  while s.taken[name] do
    name, n = base .. n, n + 1
  end
  if kind == "tensor" then
    s.taken[name] = true
    return (core.trace_input(s.tr, name, v))
  elseif getmetatable(v) == Spec then
    s.taken[name] = true
    local sizes, names = {}, {}
    for i, d in ipairs(v.sizes) do
      names[i] = type(d) == "string" and d or false
      if names[i] and not s.sizes[d] then
        s.nsizes = s.nsizes + 1
        s.sizes[d] = primes[s.nsizes] or 71 + 2 * s.nsizes
      end
      sizes[i] = names[i] and s.sizes[d] or d
    end
    return (core.trace_spec(s.tr, v.name or name, v.dtype, sizes, names))
  elseif getmetatable(v) == Number then
    s.taken[name] = true
    return (core.trace_number(s.tr, name, v.v))
  elseif plain(v) then
    local out = {}
    local dict = false
    for k in pairs(v) do dict = dict or type(k) == "string" end
    if not dict then
      for i = 1, #v do
        out[i] = placeholder(s, v[i], name .. "." .. i, depth + 1)
      end
    else
      for _, k in ipairs(sorted_keys(v)) do
        out[k] = placeholder(s, v[k], name .. "." .. tostring(k), depth + 1)
      end
    end
    return out
  end
  return v
end

-- -- While a trace runs ---------------------------------------------------

local function refuse(name, hint)
  return function()
    fail(name .. " would be called once, while tracing, and its result frozen "
      .. "into the graph", hint)
  end
end

-- Put in versions of Lua functions that know Dims or raise; gives back a
-- function that puts the old ones back.
-- luacheck: push ignore 121 122
local function patch_globals()
  local old_tonumber, old_random = tonumber, math.random
  local old_time, old_clock = os.time, os.clock
  local old_yield, me = coroutine.yield, coroutine.running()
  local old_tostring, old_print = tostring, print
  -- tostring(x.dtype) == "float32" must not be false for ever: the text of a
  -- dtype is the example's, with a guard, and a device has none. What is only
  -- shown binds nothing.
  tostring = function(v)
    local kind = type(v) == "cdata" and core.kind(v)
    if kind == "dtype" then return core.value(v) end
    if kind == "device" then
      fail("the device of a trace is known when it runs, and has no text here",
        "limn.by_device {cpu = f, gpu = g} records both ways; "
        .. "limn.print(x.device) shows it at each run")
    end
    return old_tostring(v)
  end
  print = function(...)
    local t = pack(...)
    for i = 1, t.n do t[i] = old_tostring(t[i]) end
    old_print(unpack(t, 1, t.n))
  end
  tonumber = function(v, ...)
    if type(v) == "cdata" and core.type(v) == "dim" then return v end
    return old_tonumber(v, ...)
  end
  math.random = refuse("math.random",
    "limn.rand(...) gives new numbers on each run")
  os.time = refuse("os.time", "pass the time in with limn.number")
  os.clock = refuse("os.clock", "pass the time in with limn.number")
  coroutine.yield = function(...)
    if coroutine.running() == me then
      fail("a traced function cannot yield: it runs once, to be recorded",
        "yield outside the trace")
    end
    return old_yield(...)
  end
  return function()
    tonumber, tostring, print = old_tonumber, old_tostring, old_print
    math.random, os.time, os.clock = old_random, old_time, old_clock
    coroutine.yield = old_yield
  end
end
-- luacheck: pop

local compared = "Lua cannot compare a tensor with a number"
local compare_hint = "limn.script(f) makes such comparisons part of the graph; "
  .. "else write x:gt(0), x:lt(0), ..."
local sizes = "a size of the trace is no plain number"

-- {pattern, what it means, hint [, the functions with a twin in limn]}
local advice = {
  {"'for' %a+ [%a ]*must be a number",
    "a size of the trace is none, it differs from run to run",
    "limn.script(f) makes it a loop of the graph; limn.value(n) binds the "
      .. "graph to this size"},
  {"attempt to compare number with userdata", compared, compare_hint},
  {"attempt to compare userdata with number", compared, compare_hint},
  {"to '(%a+)' %(number expected, got cdata", sizes, "limn.%s works on sizes",
    {floor = true, ceil = true, sqrt = true, min = true, max = true,
      abs = true, log = true, exp = true}},
  {"in table for 'concat'", sizes,
    "n .. \"\" makes its text; limn.value(n) takes the number"},
  {"got cdata", sizes,
    "limn.value(n) takes the number and binds the graph to it"},
  {"cannot convert 'struct", sizes,
    "limn.value(n) takes the number and binds the graph to it"},
  {"'struct %d+'", "a size of the trace cannot be used like this",
    "limn.value(n) takes the number and binds the graph to it"},
}

local own = debug.getinfo(1, "S").short_src

-- Where a tail call dropped the user's frame, Lua names a line of this file:
-- the function's place stands for it.
local function translate(msg, f)
  if type(msg) ~= "string" or msg:find "\nhint: " then return msg end
  if msg:sub(1, #own + 1) == own .. ":" then
    local rest = msg:sub(#own + 2):match "^%d+: (.*)$"
    if rest then msg = place(f) .. ": " .. rest end
  end
  for _, a in ipairs(advice) do
    local name = msg:match(a[1])
    if name and (not a[4] or a[4][name]) then
      return (core.located(msg)) .. ": " .. a[2] .. "\nhint: "
        .. (a[4] and a[3]:format(name) or a[3])
    end
  end
  return msg
end

-- -- What a trace must not leave behind, and what it has read -------------

local function leaked(what, name, where)
  fail(("%s '%s' holds a value of the trace%s"):format(what, name, where),
    "return it from the traced function instead")
end

local function check_leaks(f, modules, tr)
  local fn = type(f) == "function" and f or nil
  for i = 1, fn and 255 or 0 do
    local name, v = debug.getupvalue(fn, i)
    if not name then break end
    if core.of_trace(v, tr) then
      leaked("the upvalue", name, " (function at " .. place(fn) .. ")")
    elseif plain(v) then
      for k, x in pairs(v) do
        if core.of_trace(x, tr) then
          leaked("the upvalue", name .. "." .. tostring(k),
            " (function at " .. place(fn) .. ")")
        end
      end
    end
  end
  for m, mname in pairs(modules) do
    for k, v in pairs(m) do
      if core.of_trace(v, tr) then
        leaked("the field", tostring(mname) .. "." .. tostring(k), "")
      end
    end
  end
end

local function fields(modules)
  local list = {}
  for m, mname in pairs(modules) do
    for k, v in pairs(m) do
      if callable.remembered[type(v)] and type(k) ~= "userdata"
        and k ~= "training" then
        list[#list + 1] = {m, mname, k, v}
      end
    end
  end
  return list
end

-- -- limn.trace -----------------------------------------------------------

local function record(f, s, examples)
  local args = {n = examples.n}
  for i = 1, examples.n do
    args[i] = placeholder(s, examples[i], callable.param(f, i))
  end
  s.statics = core.trace_signature(s.tr, args)
  if type(f) == "function" then core.path_push("", f) end
  local results = pack(f(unpack(args, 1, args.n)))
  local g = core.trace_end(s.tr, results)
  return g
end

-- Ends the trace that records now: called at its end, and when its function has
-- yielded by a local copy of coroutine.yield and somebody else calls limn.
local leave
core.on_left(function() if leave then leave() end end)

local function trace(f, examples, options)
  if core.tracing() then
    fail("limn.trace is called inside a trace",
      "call the function itself: it becomes part of the trace")
  end
  f = callable.behind(f)
  if not callable.is(f) then
    fail("trace: a function or a module is wanted, not " .. noun(f))
  end
  local s = {taken = {}, sizes = {}, nsizes = 0}
  local name = options.name or callable.name(f)
  local start = os.clock()
  s.tr = core.trace_begin(name, "trace")
  if options.strict then core.trace_strict(s.tr, true) end
  local modules = {}
  local old_modules = core.trace_modules(modules)
  local depth = core.path_reset()
  local restore = patch_globals()
  local mine
  mine = function()
    if leave == mine then
      leave = nil
      restore()
      core.path_reset(depth)
      core.trace_modules(old_modules)
    end
  end
  leave = mine
  local ok, g = xpcall(function()
    local made = record(f, s, examples)
    return made
  end, function(msg) return (translate(msg, f)) end)
  mine()
  if not ok then
    core.trace_abort(s.tr)
    error(g, 0)
  end
  check_leaks(f, modules, s.tr)
  local data = core.graph_data(g)
  data.statics = next(s.statics) and s.statics or nil
  data.f = f
  data.ups = callable.upvalues(f)
  data.fields = fields(modules)
  if core.debug() >= 4 then
    local made = g:stats()
    tell(("trace of %s (%s), %d nodes, %d guard%s, %.1f ms: %s"):format(name,
      place(f), made.nodes, made.guards, made.guards == 1 and "" or "s",
      (os.clock() - start) * 1e3, options.why or "limn.trace"))
  end
  return g
end

callable.trace = trace -- for limn.jit

--- limn.trace(f, ...) -> graph: run f once on placeholders for the examples and
-- record what it does. With options everything stands in one table: limn.trace
-- {f, x, t, strict = true, name = "step"}; strict refuses captured tensors;
-- check compares the graph with f on fresh inputs, with other sizes, on every
-- device, and names the first line that differs. The
-- graph holds no device, size or dtype of the examples; it is called as f was.
-- Methods: run_into, prepare, on, stats, captures, check, explain, train, eval.
function M.trace(f, ...)
  local g
  if plain(f) and select("#", ...) == 0 then
    core.options(f, {"strict", "name", "check"}, "trace")
    local n = table.maxn and table.maxn(f) or #f
    local examples = {n = n - 1}
    for i = 2, n do examples[i - 1] = f[i] end
    g = trace(f[1], examples, f)
    if f.check then require "limn.check".check(g, f[1], examples) end
  else
    g = trace(f, pack(...), {})
  end
  return g
end

--- Upvalues and module fields that changed since the trace raise.
local function check(g)
  local d, changed = core.graph_data(g), {}
  local ups = d.ups or {}
  for i = 1, #ups, 2 do
    local name, v = debug.getupvalue(d.f, math.abs(ups[i]))
    local was = ups[i + 1]
    if ups[i] < 0 then was = nil end
    if not rawequal(v, was) then changed[#changed + 1] = "upvalue " .. name end
  end
  for _, e in ipairs(d.fields or {}) do
    if not rawequal(rawget(e[1], e[3]), e[4]) then
      changed[#changed + 1] = ("field %s.%s"):format(tostring(e[2]),
        tostring(e[3]))
    end
  end
  for _, c in ipairs(g:captures()) do
    if c.changed then changed[#changed + 1] = "captured tensor " .. c.name end
  end
  if #changed > 0 then
    fail("changed since the trace: " .. table.concat(changed, ", "),
      "trace again, or pass it as an argument")
  end
  return true
end
M.check = check

return M
