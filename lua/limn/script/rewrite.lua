-- The rewriting of limn.script: the text of a function in which statements
-- that may depend on values of a trace are calls of the runtime.
--
-- Branches and bodies become closures, so they see the function's variables;
-- an accessor `function(set, ...)` reads and sets those that a statement
-- assigns. Tokens keep their order and lines. With L for the runtime, s for a
-- site (what is known of the statement), k for the continuation around:
--
--   if c then A else B end          L.cond(s, c, function(p) A end,
--                                     function(p) B end, accessor)
--   the same where A or B leaves    return L.leaving(s, k, c, function(p) A
--     the statement; REST follows     end, function(p) B end, accessor,
--                                     function(p) REST end)
--   while c do A end                L.loop(s, k, function() return c end,
--                                     function(p) A end, accessor)
--   repeat A until c                L.loop_until(s, k, function(p) A
--                                     return L.UNTIL, c end, accessor)
--   for i = a, b do A end           L.range(s, k, a, b, nil,
--                                     function(p, i) A end, accessor)
--   for k, v in e do A end          L.each(s, k, L.pack(e),
--                                     function(p, k, v) A end, accessor)
--   return e   (in a closure)       return L.RET, e
--   a < b, a and b, not a           L.lt(a, b), L.both(s, a, function() return
--                                     b end), L.negate(a)
--
-- A statement from which control leaves otherwise than at its end takes the
-- rest of its block along as a closure, because a graph has no jumps: each
-- branch is followed to where the paths meet again.
local analysis = require "limn.script.analysis"
local live = require "limn.script.live"
local plainness = require "limn.script.plain"
local Writer = require "limn.script.writer"

local M = {}
local plain = plainness.plain

local R = {} -- the rewriter: {w = writer, tokens, sites, L, f, ctx}
R.__index = R

local emit = {} -- by kind of node

function R:put(...) self.w:put(...) end
function R:at(i) self.w:at(i) end
function R:line(i) return self.tokens[i].line end

-- A node as it is, but for what its kids become.
function R:copy(n)
  local i = n.first
  for _, k in ipairs(n.kids) do
    self.w:copy(i, k.first - 1)
    self:emit(k)
    i = k.last + 1
  end
  self.w:copy(i, n.last)
end

function R:emit(n)
  local f = emit[n.kind]
  if f then f(self, n) else self:copy(n) end
end

function R:fresh()
  self.count = self.count + 1
  return self.prefix .. self.count
end

-- Note what is known of a place; the text by which the code gets it.
function R:site(t)
  local sites = self.sites
  sites[#sites + 1] = t
  return ("%s[%d]"):format(self.L, #sites)
end

-- Run f with the context changed.
function R:within(changes, f)
  local old, new = self.ctx, {}
  for k, v in pairs(old) do new[k] = v end
  for k, v in pairs(changes) do new[k] = v end
  self.ctx = new
  f()
  self.ctx = old
end

-- Run f inside a closure that may be part of a graph, whose first parameter is
-- p; n is the statement that it belongs to.
function R:region(n, p, changes, f)
  local regions = {}
  for i, r in ipairs(self.ctx.regions) do regions[i] = r end
  regions[#regions + 1] = {p = p, first = n.first}
  changes.regions, changes.closed = regions, true
  self:within(changes, f)
end

-- -- Variables ------------------------------------------------------------

-- function(set, ...) for the variables in a list, or "nil" for none.
function R:accessor(vars)
  if #vars == 0 then return "nil" end
  local names, given = {}, {}
  local p = self:fresh()
  for i, v in ipairs(vars) do
    names[i], given[i] = v.name, p .. "_" .. i
  end
  local left, right = table.concat(names, ","), table.concat(given, ",")
  return ("function(%s,%s) if %s then %s=%s end return %s end"):format(p,
    right, p, left, right, left)
end

-- What messages call the variables, and which are read later.
local function describe(t, n)
  t.names, t.live = {}, {}
  for i, v in ipairs(n.sets) do t.names[i], t.live[i] = v.name, n.live[i] end
  return t
end

-- All variables that may have another value when a branch has run to the end
-- of the function: they are put back before the next branch.
function R:changing(n)
  local list = {}
  for _, v in ipairs(self.f.vars) do
    if (v.assigned > 0 or v.shared) and analysis.outside(v, n, self.f) then
      list[#list + 1] = v
    end
  end
  return list
end

-- -- if -------------------------------------------------------------------

-- The closure of one branch; `ends` writes what closes it.
function R:branch(n, body, leaving)
  local p = self:fresh()
  self:put(("function(%s)"):format(p))
  self:region(n, p, leaving and {k = p} or {}, function() body() end)
  self:put "end"
end

-- The statement from clause i on, as a call.
function R:clauses(n, i, leaving, rest)
  local c = n.clauses[i]
  local site = {line = self:line(c.at), what = "if"}
  self:at(c.at)
  if leaving then
    self:put(("%s.leaving(%s, %s,"):format(self.L, self:site(site),
      self.ctx.k))
  else
    self:put(("%s.cond(%s,"):format(self.L, self:site(describe(site, n))))
  end
  self:emit(c.cond)
  self:at(c.ends)
  self:put ","
  self:branch(n, function() self:block(c.body) end, leaving)
  self:put ","
  if n.clauses[i + 1] then
    self:at(n.clauses[i + 1].at)
    self:branch(n, function()
      if leaving then self:put "return" end
      self:clauses(n, i + 1, leaving)
    end, leaving)
  elseif n.orelse then
    self:at(n.else_at)
    self:branch(n, function() self:block(n.orelse) end, leaving)
  else
    self:put "nil"
  end
  if i == 1 then self:at(n.stop) end
  self:put("," .. self:accessor(leaving and self:changing(n) or n.sets))
  if rest then rest() end
  self:put ")"
end

emit["if"] = function(self, n)
  if not n.rw then return self:copy(n) end
  self:clauses(n, 1, false)
end

-- -- Statements that control leaves ---------------------------------------

local leaving = {} -- by kind: writes the call; rest() writes the last argument

leaving["if"] = function(self, n, rest) self:clauses(n, 1, true, rest) end

leaving["do"] = function(self, n, rest)
  local site = self:site {line = self:line(n.first), what = "do"}
  self:at(n.first)
  self:put(("%s.leaving(%s, %s, true,"):format(self.L, site, self.ctx.k))
  self:branch(n, function() self:block(n.body) end, true)
  self:at(n.stop)
  self:put(", nil," .. self:accessor(self:changing(n)))
  rest()
  self:put ")"
end

-- `return` the statement n, and give it what follows it in its block: the
-- statements from i on.
function R:leave(n, block, i)
  local outer = not self.ctx.closed
  self:at(n.first)
  self:put(outer and ("return %s.result("):format(self.L) or "return")
  leaving[n.kind](self, n, function()
    if not block.kids[i] and not block.tail then return end
    local p = self:fresh()
    self:put((", function(%s)"):format(p))
    self:region(n, p, {}, function() self:statements(block, i) end)
    self:put "end"
  end)
  if outer then self:put ")" end
end

local ends = {["return"] = true, ["break"] = true}

function R:statements(b, from)
  local last
  for i = from, #b.kids do
    local s = b.kids[i]
    if s.rw and next(s.leaves) then return (self:leave(s, b, i + 1)) end
    self:emit(s)
    last = s
  end
  if b.tail and not (last and ends[last.kind]) then b.tail() end
end

function R:block(b) self:statements(b, 1) end
emit.block = R.block

-- -- Loops ----------------------------------------------------------------

-- The body of a loop as a closure, its names as further parameters.
function R:body(n, names)
  local p = self:fresh()
  local list = {p}
  for i, at in ipairs(names or {}) do list[i + 1] = self.tokens[at].text end
  self:put(("function(%s)"):format(table.concat(list, ", ")))
  self:region(n, p, {k = p, loop = "code", looped = true}, function()
    self:block(n.body)
  end)
  self:put "end"
end

function R:loop_site(n, t)
  t.line = self:line(n.first)
  t.returns = n.leaves.ret
  t.exits = next(n.body.leaves) ~= nil
  return self:site(describe(t, n))
end

-- An expression as a closure that gives one value.
function R:thunk(e)
  local many = e.kind == "call" or e.kind == "method" or e.kind == "vararg"
  self:put(many and "function() return (" or "function() return")
  self:within({closed = true}, function() self:emit(e) end)
  self:put(many and ") end" or "end")
end

-- Cheap, and safe where it would not be evaluated: no calls, no indexing.
local function simple(e)
  if e.kind == "call" or e.kind == "method" or e.kind == "index"
    or e.kind == "function" or e.kind == "table" then
    return false
  end
  for _, k in ipairs(e.kids) do
    if not simple(k) then return false end
  end
  return true
end

local open = {} -- by kind: writes the call up to the accessor

open["while"] = function(self, n)
  local s = self:loop_site(n, {what = "while", simple = simple(n.cond),
    endless = n.cond.kind == "true" and not n.body.leaves.brk})
  self:put(("%s.loop(%s, %s,"):format(self.L, s, self.ctx.k))
  self:thunk(n.cond)
  self:at(n.opens)
  self:put ","
  self:body(n)
end

open["repeat"] = function(self, n)
  local s = self:loop_site(n, {what = "repeat"})
  self:put(("%s.loop_until(%s, %s,"):format(self.L, s, self.ctx.k))
  n.body.tail = function()
    self:at(n.closes)
    self:put(("return %s.UNTIL,"):format(self.L))
    self:emit(n.cond)
  end
  self:body(n)
end

open.fornum = function(self, n)
  local s = self:loop_site(n, {what = "for",
    name = self.tokens[n.names[1]].text})
  self:put(("%s.range(%s, %s,"):format(self.L, s, self.ctx.k))
  for i = 1, 3 do
    if n.exprs[i] then self:emit(n.exprs[i]) else self:put "nil" end
    self:put ","
  end
  self:at(n.opens)
  self:body(n, n.names)
end

open.forin = function(self, n)
  local s = self:loop_site(n, {what = "for", count = #n.names})
  self:put(("%s.each(%s, %s, %s.pack("):format(self.L, s, self.ctx.k, self.L))
  self.w:copy(n.in_at + 1, n.exprs[1].first - 1)
  for i, e in ipairs(n.exprs) do
    if i > 1 then self:put "," end
    self:emit(e)
  end
  self:at(n.opens)
  self:put "),"
  self:body(n, n.names)
end

local function loop(self, n, rest)
  if not n.rw then
    return (self:within({loop = "native"}, function() self:copy(n) end))
  end
  self:at(n.first)
  open[n.kind](self, n)
  self:at(n.stop)
  self:put("," .. self:accessor(n.sets))
  if rest then rest() end
  self:put ")"
end
for kind in pairs(analysis.loops) do emit[kind], leaving[kind] = loop, loop end

-- -- Jumps ----------------------------------------------------------------

emit["return"] = function(self, n)
  if not self.ctx.closed then return self:copy(n) end
  self:at(n.first)
  if self.ctx.looped then -- may have to wait until a loop of the graph ends
    local t = {line = self:line(n.first), inside = self:inside(n)}
    self:put(("return %s.leave(%s, %s, function() return"):format(self.L,
      self:site(t), self.ctx.k))
  else
    self:put(("return %s.RET"):format(self.L)
      .. (n.exprs[1] and "," or ""))
  end
  for i, e in ipairs(n.exprs) do
    if i > 1 then self:put "," end
    self:emit(e)
  end
  if self.ctx.looped then self:put "end)" end
end

-- What a return inside loops names that exists only inside one of them: for
-- each line where a loop begins, the name.
function R:inside(n)
  local found, vars = {}, {}
  for _, e in ipairs(n.exprs) do
    for v in pairs(live.reads(e)) do
      vars[#vars + 1] = v
    end
  end
  table.sort(vars, function(a, b) return a.at < b.at end)
  local p = n.parent
  while p ~= self.f do
    if analysis.loops[p.kind] and p.rw then
      for _, v in ipairs(vars) do
        if v.func == self.f and v.at > p.first then
          found[self:line(p.first)] = v.name
        end
      end
    end
    p = p.parent
  end
  return found
end

emit["break"] = function(self, n)
  if self.ctx.loop ~= "code" then return self:copy(n) end
  self:at(n.first)
  self:put(("do return %s.BRK end"):format(self.L))
end

emit["goto"] = function(self, n)
  if not n.continue or self.ctx.loop ~= "code" then return self:copy(n) end
  self:at(n.first)
  self:put(("do return %s.CONT end"):format(self.L))
end

-- -- Assignments that no graph can hold ------------------------------------

-- The text of a base that may be evaluated twice: names and fields of them.
local function base_text(e)
  if e.kind == "name" then return e.name end
  local base = e.kind == "field" and base_text(e.base)
  return base and base .. "." .. e.name or nil
end

local function root_of(e)
  while e.base do e = e.base end
  return e.kind == "name" and e or nil
end

-- The parameters of the closures around that may be part of a graph while v is
-- from outside of them; all where v is nil.
function R:around(v)
  local list = {}
  for _, r in ipairs(self.ctx.regions) do
    if not v or v.func ~= self.f or v.at <= r.first then
      list[#list + 1] = r.p
    end
  end
  return table.concat(list, ", ")
end

function R:check_target(t)
  if t.kind == "name" then
    if t.var and t.var.func == self.f then return end
    local s = self:site {line = self:line(t.first), name = t.name,
      what = t.var and "upvalue" or "global"}
    self:put(("%s.outer(%s, %s);"):format(self.L, s, self:around()))
    return
  end
  local base = root_of(t)
  local regions = self:around(base and base.var)
  if regions == "" then return end
  local s = self:site {line = self:line(t.first), name = base_text(t),
    base = base_text(t.base)}
  self:put(("%s.write(%s, %s, %s);"):format(self.L, s,
    base_text(t.base) or "nil", regions))
end

emit.assign = function(self, n)
  self:at(n.first)
  if self.ctx.regions[1] then
    for _, t in ipairs(n.targets) do self:check_target(t) end
  end
  self:copy(n)
end

emit.funcstat = function(self, n)
  self:at(n.first)
  if self.ctx.regions[1] then self:check_target(n.target) end
  self:copy(n)
end

-- error(...) where only a run decides would be raised by the trace itself.
emit.callstat = function(self, n)
  local callee = n.call.callee
  self:at(n.first)
  if callee and callee.kind == "name" and callee.name == "error"
    and not callee.var and self.ctx.regions[1] then
    local s = self:site {line = self:line(n.first)}
    self:put(("%s.raise(%s, %s);"):format(self.L, s, self:around()))
  end
  self:copy(n)
end

-- -- Expressions ----------------------------------------------------------

local compare = {["<"] = "lt", [">"] = "gt", ["<="] = "le", [">="] = "ge",
  ["=="] = "eq", ["~="] = "ne"}

local function strip(e)
  while e.kind == "paren" do e = e.value end
  return e
end

-- The operands of a chain of `or`, from left to right.
local function operands(e, list)
  local s = strip(e)
  if s.kind == "binary" and s.op == "or" then
    operands(s.a, list)
    operands(s.b, list)
  else
    list[#list + 1] = e
  end
  return list
end

-- Text of ours as a closure that gives one value.
function R:closure(write)
  self:put "function() return"
  self:within({closed = true}, write)
  self:put "end"
end

-- Operands i... of an `or`; `a and b or c` is one choice, whatever b is.
function R:either(list, i, n)
  local e = strip(list[i])
  local function rest()
    if list[i + 2] then self:either(list, i + 1, n) else
      self:put "("
      self:emit(list[i + 1])
      self:put ")"
    end
  end
  local choice = e.op == "and" and not plain(e.a)
  local s = self:site {line = self:line(n.at), what = "or",
    simple = simple(list[i + 1])}
  self:at(e.first)
  self:put(("%s.%s(%s,"):format(self.L, choice and "choice" or "either", s))
  if choice then
    self:emit(e.a)
    self:put ","
    self:thunk(e.b)
  else
    self:emit(list[i])
  end
  self:put ","
  self:closure(rest)
  self:put ")"
end

function R:compare(n, name)
  self:at(n.first)
  self:put(("%s.%s("):format(self.L, name))
  self:emit(n.a)
  self:put ","
  self:emit(n.b)
  self:put ")"
end

emit.binary = function(self, n)
  local name = compare[n.op]
  if plain(n) or not name and n.op ~= "and" and n.op ~= "or" then
    return self:copy(n)
  elseif name then
    return self:compare(n, name)
  elseif n.op == "or" then
    local list = operands(n, {})
    for i = 1, #list - 1 do
      if not plain(list[i]) then return self:either(list, 1, n) end
    end
    return self:copy(n)
  elseif plain(n.a) then
    return self:copy(n)
  end
  local s = self:site {line = self:line(n.at), what = "and",
    simple = simple(n.b)}
  self:at(n.first)
  self:put(("%s.both(%s,"):format(self.L, s))
  self:emit(n.a)
  self:put ","
  self:thunk(n.b)
  self:put ")"
end

emit.unary = function(self, n)
  if n.op ~= "not" or plain(n.value) then return self:copy(n) end
  self:at(n.first)
  self:put(self.L .. ".negate(")
  self:emit(n.value)
  self:put ")"
end

emit.vararg = function(self, n)
  if not self.ctx.closed then return self:copy(n) end
  self:at(n.first)
  self.uses_rest = true
  self:put(("%s.unpack(%s)"):format(self.L, self.rest))
end

-- assert, where it is Lua's, must read a condition that is a tensor.
emit.call = function(self, n)
  local callee = n.callee
  if not callee or callee.kind ~= "name" or callee.name ~= "assert"
    or callee.var then
    return self:copy(n)
  end
  self:at(n.first)
  self:put(self.L .. ".assert_of(assert)")
  local i = callee.last + 1
  for _, k in ipairs(n.kids) do
    if k ~= callee then
      self.w:copy(i, k.first - 1)
      self:emit(k)
      i = k.last + 1
    end
  end
  self.w:copy(i, n.last)
end

-- -- Functions ------------------------------------------------------------

-- From the parentheses on; `first` is put before the parameters.
function R:function_body(f, first)
  local old, old_ctx, old_rest, old_uses = self.f, self.ctx, self.rest,
    self.uses_rest
  self.f, self.rest, self.uses_rest = f, self:fresh(), false
  self.ctx = {closed = false, k = "nil", loop = "native", looped = false,
    regions = {}}
  self:put("(" .. (first and (first .. (f.close > f.params + 1 and "," or ""))
    or ""))
  self.w:copy(f.params + 1, f.close)
  local out = self.w.out
  out[#out + 1] = "" -- the place for the packed arguments
  local at = #out
  self:block(f.body)
  self.w:copy(f.last, f.last)
  if self.uses_rest then
    out[at] = ("local %s = %s.pack(...) "):format(self.rest, self.L)
  end
  self.f, self.ctx, self.rest, self.uses_rest = old, old_ctx, old_rest,
    old_uses
end

emit["function"] = function(self, f)
  self.w:copy(f.first, f.params - 1)
  self:at(f.params)
  self:function_body(f)
end

-- A word that begins no name of the source.
local function prefix_for(tokens)
  local p = "_limn"
  for _, t in ipairs(tokens) do
    while t.text:sub(1, #p) == p do p = "_" .. p end
  end
  return p
end

-- Names of the variables that f uses from the functions around it.
local function upvalues(f)
  local names, seen = {}, {}
  local function walk(n)
    local v = n.var
    if n.kind == "name" and v and not seen[v] and v.at <= f.first
      and v.func ~= f then
      seen[v], names[#names + 1] = true, n.name
    end
    for _, k in ipairs(n.kids) do walk(k) end
  end
  walk(f.body)
  return names
end

-- The text that gives function f when it is run with the runtime as its
-- argument, the names of its upvalues, its sites.
function M.rewrite(f, tokens)
  local prefix = prefix_for(tokens)
  local self = setmetatable({w = Writer.new(tokens, 1), tokens = tokens,
    sites = {}, prefix = prefix, L = prefix, count = 0}, R)
  local names = upvalues(f)
  self:at(f.defined)
  self:put(("local %s = ..."):format(prefix))
  if #names > 0 then self:put("local " .. table.concat(names, ",")) end
  self:put "return function"
  self:function_body(f, f.method and "self")
  return self.w:text(), names, self.sites, prefix
end

-- The same for the text as it is: what Lua made of it can be compared.
function M.plain(f, tokens)
  local w = Writer.new(tokens, 1)
  local names = upvalues(f)
  w:at(f.defined)
  if #names > 0 then w:put("local " .. table.concat(names, ",")) end
  w:put("return function(" .. (f.method
    and "self" .. (f.close > f.params + 1 and "," or "") or ""))
  w:copy(f.params + 1, f.last)
  return w:text()
end

return M
