--- Tracing: limn.trace, limn.jit, and sizes in traces.
local core = require "limn.core"
local callable = require "limn.callable"
local sorted_keys = require "limn.sorted_keys"

local ops, fail = core.ops, core.fail
local has_ffi, ffi = pcall(require, "ffi")
local M = {}

local function pack(...) return {n = select("#", ...), ...} end

local function noun(v) return v == nil and "nil" or "a " .. type(v) end

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

local function plain(v) return type(v) == "table" and getmetatable(v) == nil end

local function place(f)
  local t = callable.target(f)
  if not t then return "" end
  local i = debug.getinfo(t, "S")
  return ("%s:%d"):format(i.short_src, i.linedefined)
end

local function name_of(f)
  if type(f) == "table" and type(f.class_name) == "string" then
    return f.class_name
  end
  return "function"
end

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
  local old_yield = coroutine.yield
  tonumber = function(v, ...)
    if type(v) == "cdata" and core.type(v) == "dim" then return v end
    return old_tonumber(v, ...)
  end
  math.random = refuse("math.random",
    "limn.rand(...) gives new numbers on each run")
  os.time = refuse("os.time", "pass the time in with limn.number")
  os.clock = refuse("os.clock", "pass the time in with limn.number")
  coroutine.yield = refuse("coroutine.yield", "yield outside the trace")
  return function()
    tonumber = old_tonumber
    math.random, os.time, os.clock = old_random, old_time, old_clock
    coroutine.yield = old_yield
  end
end
-- luacheck: pop

local advice = {
  {"'for' %a+ [%a ]*must be a number",
    "a loop over a size of the trace would be unrolled for the example",
    "use ops on the whole tensor; limn.value(n) binds the graph "
      .. "to this size"},
  {"number expected, got cdata",
    "a size of the trace is no plain number",
    "limn.floor ceil sqrt min max abs log exp work on sizes; limn.value(n) "
      .. "takes the number and binds the graph to it"},
  {"in table for 'concat'", "a size of the trace is no plain number",
    "n .. \"\" makes its text; limn.value(n) takes the number"},
  {"got cdata", "a size of the trace is no plain number",
    "limn.value(n) takes the number and binds the graph to it"},
  {"cannot convert 'struct", "a size of the trace is no plain number",
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
    if msg:find(a[1]) then
      return (core.located(msg)) .. ": " .. a[2] .. "\nhint: " .. a[3]
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

local remembered = {number = true, boolean = true, string = true,
  ["function"] = true, table = true, userdata = true}

-- {index, value, ...} of the upvalues that a trace has frozen (-index where it
-- was nil); those in `skip` are the function's own to change.
local function upvalues(f, skip)
  local list = {}
  if type(f) ~= "function" then return list end
  for i = 1, 255 do
    local name, v = debug.getupvalue(f, i)
    if not name then break end
    if v == nil and not (skip and skip[i]) then
      list[#list + 1], list[#list + 2] = -i, false
    elseif remembered[type(v)] and not (skip and skip[i]) then
      list[#list + 1], list[#list + 2] = i, v
    end
  end
  return list
end

local function fields(modules)
  local list = {}
  for m, mname in pairs(modules) do
    for k, v in pairs(m) do
      if remembered[type(v)] and type(k) ~= "userdata" and k ~= "training"
      then
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

local function trace(f, examples, options)
  if core.tracing() then
    fail("limn.trace is called inside a trace",
      "call the function itself: it becomes part of the trace")
  end
  if not callable.is(f) then
    fail("trace: a function or a module is wanted, not " .. noun(f))
  end
  local s = {taken = {}, sizes = {}, nsizes = 0}
  local name = options.name or name_of(f)
  s.tr = core.trace_begin(name, "trace")
  if options.strict then core.trace_strict(s.tr, true) end
  local modules = {}
  local old_modules = core.trace_modules(modules)
  local depth = core.path_reset()
  local restore = patch_globals()
  local ok, g = xpcall(function()
    local made = record(f, s, examples)
    return made
  end, function(msg) return (translate(msg, f)) end)
  restore()
  core.path_reset(depth)
  core.trace_modules(old_modules)
  if not ok then
    core.trace_abort(s.tr)
    error(g, 0)
  end
  check_leaks(f, modules, s.tr)
  local data = core.graph_data(g)
  data.statics = next(s.statics) and s.statics or nil
  data.f = f
  data.ups = upvalues(f)
  data.fields = fields(modules)
  return g
end

--- limn.trace(f, ...) -> graph: run f once on placeholders for the examples and
-- record what it does. With options everything stands in one table: limn.trace
-- {f, x, t, strict = true, name = "step"}; strict refuses captured tensors. The
-- graph holds no device, size or dtype of the examples; it is called as f was.
-- Methods: run_into, prepare, on, stats, captures, check, explain, train, eval.
function M.trace(f, ...)
  local g
  if plain(f) and select("#", ...) == 0 then
    core.options(f, {"strict", "name"}, "trace")
    local n = table.maxn and table.maxn(f) or #f
    local examples = {n = n - 1}
    for i = 2, n do examples[i - 1] = f[i] end
    g = trace(f[1], examples, f)
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

-- -- limn.jit -------------------------------------------------------------

local Jit = {}
Jit.__index = Jit
Jit.__call = core.jit

-- The place in a list of upvalues where two differ, or nil.
local function ups_differ(a, b)
  for i = 1, math.max(#a, #b) do
    if not rawequal(a[i], b[i]) then return i end
  end
end

-- Upvalues that the trace itself has changed (a counter, say) say nothing
-- about whether it fits.
local function jit_skip(self, before)
  local after = upvalues(self.f, self.skip)
  local i, j = 1, 1
  while before[i] or after[j] do
    local a = math.abs(before[i] or math.huge)
    local b = math.abs(after[j] or math.huge)
    if before[i] ~= after[j] or not rawequal(before[i + 1], after[j + 1]) then
      self.skip[math.min(a, b)] = true
    end
    if a <= b then i = i + 2 end
    if b <= a then j = j + 2 end
  end
  for _, x in ipairs(self.sets) do
    for k = #x.ups - 1, 1, -2 do
      if self.skip[math.abs(x.ups[k])] then
        table.remove(x.ups, k)
        table.remove(x.ups, k)
      end
    end
  end
  self.ups = upvalues(self.f, self.skip)
end

local most_traces = 64

-- The traces made with the upvalues as they are now come to the front.
local function jit_select(self)
  local ups = upvalues(self.f, self.skip)
  local set, at
  for _, x in ipairs(self.sets) do
    local i = ups_differ(x.ups, ups)
    if i then at = i + i % 2 - 1 else set = x end
  end
  if not set then
    set = {ups = ups}
    if at then
      local name = debug.getupvalue(self.f, math.abs(ups[at]))
      set.why = "the upvalue " .. name .. " has another value"
    end
    if #self.sets >= most_traces then table.remove(self.sets, 1) end
    self.sets[#self.sets + 1] = set
  end
  for i = 1, math.max(#self, #set) do self[i] = set[i] end
  self.ups = ups
  return set
end

local function jit_note(self, why)
  self.reasons[#self.reasons + 1] = why or "first use"
  if #self.reasons > 100 then table.remove(self.reasons, 2) end
  if why and (why:find "with the argument" or why:find "^the upvalue ") then
    self.nstatic = (self.nstatic or 0) + 1
    if self.nstatic == 2 then
      io.stderr:write(("limn: %s was traced three times: %s\n  pass what "
        .. "changes as an argument; limn.number(v) makes a number an input\n")
        :format(self.name, why))
    end
  end
end

-- A new trace joins the set; the oldest goes where there are too many.
local function jit_add(self, set, why, ...)
  local before = upvalues(self.f, self.skip)
  local g = trace(self.f, pack(...), {name = self.name})
  jit_skip(self, before)
  jit_note(self, why or set.why)
  if #set >= most_traces then table.remove(set, 1) end
  set[#set + 1] = g
  for i = 1, math.max(#self, #set) do self[i] = set[i] end
  return g
end

-- Which set of traces, then the first trace that fits, then a new one.
local function jit_find(self, ...)
  local set = jit_select(self)
  local why
  local i = 1
  while set[i] do
    local r = pack(core.try(set[i], ...))
    if r[1] then return nil, r end
    why = r[2]
    if r[3] then -- a capture moved on: this trace is of no use any more
      table.remove(set, i)
    else
      i = i + 1
    end
  end
  local g = jit_add(self, set, why, ...)
  return g
end

local function jit_slow(self, ...)
  local g, r = jit_find(self, ...)
  if r then return unpack(r, 2, r.n) end
  local out = pack(g(...))
  return unpack(out, 1, out.n)
end

--- The graph for these arguments.
function Jit:graph(...)
  local set = jit_select(self)
  for i = 1, #set do
    if (core.fits(set[i], ...)) then return set[i] end
  end
  local g = jit_add(self, set, nil, ...)
  return g
end

--- All traces of the function so far.
function Jit:graphs()
  local all = {}
  for _, set in ipairs(self.sets) do
    for i = 1, #set do all[#all + 1] = set[i] end
  end
  return all
end

function Jit:stats()
  local t = {traces = #self:graphs(), reasons = self.reasons, graphs = {}}
  for i, g in ipairs(self:graphs()) do t.graphs[i] = g:stats() end
  return t
end

function Jit:train()
  for _, g in ipairs(self:graphs()) do g:train() end
  return self
end

function Jit:eval()
  for _, g in ipairs(self:graphs()) do g:eval() end
  return self
end

function Jit:__tostring()
  local out = {}
  for i, g in ipairs(self:graphs()) do out[i] = tostring(g) end
  if #out == 0 then return "jit function, not traced yet" end
  return table.concat(out, "\n")
end

--- limn.jit(f [, options]) -> function: trace f on first use of a signature,
-- and again only where a guard or a static argument differs. Methods:
-- graph(...), stats(), train, eval.
function M.jit(f, options)
  core.options(options, {"name"}, "jit")
  if not callable.is(f) then
    fail("jit: a function or a module is wanted, not " .. noun(f))
  end
  return setmetatable({f = f, slow = jit_slow, sets = {}, reasons = {},
    skip = {}, name = options and options.name or name_of(f)}, Jit)
end
--- limn.is_jit(v) -> boolean: whether v came from limn.jit.
function M.is_jit(v) return type(v) == "table" and getmetatable(v) == Jit end

return M
