--- limn.jit: a function that is traced when it is first called, and again
-- where no trace of it fits.
local core = require "limn.core"
local callable = require "limn.callable"
local pack = require "limn.pack"

local fail, upvalues = core.fail, callable.upvalues
local M = {}

-- What runs is jit[1], jit[2], ...: the traces made with the upvalues as they
-- are now, which are those of one of `sets`.
local Jit, methods = {}, {}
Jit.__call = core.jit
Jit.__index = function(_, k)
  local m = methods[k]
  if m == nil and type(k) == "string" then
    fail("a jit function has no method '" .. k .. "'" .. core.near(k, methods))
  end
  return m
end

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

-- Value number i + 1 of a list of upvalues, in words.
local function shown(ups, i)
  local v = ups[i + 1]
  if (ups[i] or -1) < 0 then return "nil" end
  if type(v) == "string" then return ("%q"):format(v) end
  if type(v) == "number" or type(v) == "boolean" then return tostring(v) end
  return "another " .. (core.type(v) or type(v))
end

-- The set's traces stand at 1..n of the function, where C looks first.
local function jit_show(self, set)
  for i = 1, math.max(#self, #set) do self[i] = set[i] end
end

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
      set.why = ("upvalue %s: %s -> %s"):format(name, shown(self.ups, at),
        shown(ups, at))
    end
    if #self.sets >= most_traces then
      self.evicted = self.evicted + #table.remove(self.sets, 1)
    end
    self.sets[#self.sets + 1] = set
  end
  jit_show(self, set)
  self.ups = ups
  return set
end

-- Warns at the third trace for one argument or upvalue.
local function jit_note(self, why)
  self.reasons[#self.reasons + 1] = why
  if #self.reasons > 100 then table.remove(self.reasons, 2) end
  local what = why:match "^argument %d+" or why:match "^upvalue %S+"
  if not what then return end
  self.changed[what] = (self.changed[what] or 0) + 1
  if self.changed[what] == 2 then
    io.stderr:write(("limn: %s was traced three times: %s\n  pass what "
      .. "changes as an argument; limn.number(v) makes a number an input\n")
      :format(self.name, why))
  end
end

-- A new trace joins the set; the oldest goes where there are too many.
local function jit_add(self, set, why, ...)
  local before = upvalues(self.f, self.skip)
  why = why or set.why or "first use"
  local g = callable.trace(self.f, pack(...), {name = self.name, why = why})
  jit_skip(self, before)
  jit_note(self, why)
  if #set >= most_traces then
    table.remove(set, 1)
    self.evicted = self.evicted + 1
  end
  set[#set + 1] = g
  jit_show(self, set)
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
  local r = pack(core.try(g, ...))
  if r[1] then return nil, r end
  set[#set] = nil -- one that its own arguments do not fit is of no use
  jit_show(self, set)
  return g
end

local function jit_slow(self, ...)
  local g, r = jit_find(self, ...)
  if r then return unpack(r, 2, r.n) end
  local out = pack(g(...)) -- raises
  return unpack(out, 1, out.n)
end

--- jit:graph(...): the graph for these arguments.
function methods:graph(...)
  local set = jit_select(self)
  local fits, why
  for i = 1, #set do
    fits, why = core.fits(set[i], ...)
    if fits then return set[i] end
  end
  local g = jit_add(self, set, why, ...)
  return g
end

--- jit:graphs(): all traces of the function so far.
function methods:graphs()
  local all = {}
  for _, set in ipairs(self.sets) do
    for i = 1, #set do all[#all + 1] = set[i] end
  end
  return all
end

--- jit:stats() -> {traces, evicted, reasons, graphs}: how many traces there
-- are, at most 64 for one set of upvalues, and how many went; why each was made
-- (the argument, upvalue or guard, what it was and is); each graph's stats().
function methods:stats()
  local t = {traces = #self:graphs(), evicted = self.evicted,
             reasons = self.reasons, graphs = {}}
  for i, g in ipairs(self:graphs()) do t.graphs[i] = g:stats() end
  return t
end

function methods:train()
  for _, g in ipairs(self:graphs()) do g:train() end
  return self
end

function methods:eval()
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
    fail("jit: a function or a module is wanted, not " .. callable.noun(f))
  end
  return setmetatable({f = f, slow = jit_slow, sets = {}, reasons = {},
    skip = {}, changed = {}, evicted = 0, ups = upvalues(f),
    name = options and options.name or callable.name(f)}, Jit)
end
--- limn.is_jit(v) -> boolean: whether v came from limn.jit.
function M.is_jit(v) return type(v) == "table" and getmetatable(v) == Jit end

return M
