-- Liveness: which variables are read after a statement before they are
-- assigned again. Computed backwards over the tree, function by function.
--
-- Rewritten statements get .live_out, and loops .live_head: what the test and
-- the next iteration read. A function with gotos other than `continue` counts
-- every variable as live everywhere.
local M = {}

local function union(a, b)
  local out = {}
  for v in pairs(a) do out[v] = true end
  for v in pairs(b) do out[v] = true end
  return out
end

local function includes(a, b)
  for v in pairs(b) do
    if not a[v] then return false end
  end
  return true
end

local function without(a, vars)
  local out = {}
  for v in pairs(a) do out[v] = true end
  for _, v in ipairs(vars) do out[v] = nil end
  return out
end

-- All variables that the text of n names.
local function reads(n)
  if n.reads then return n.reads end
  local set = {}
  if n.kind == "name" then
    if n.var then set[n.var] = true end
  else
    for _, k in ipairs(n.kids) do
      for v in pairs(reads(k)) do set[v] = true end
    end
  end
  n.reads = set
  return set
end

local function reads_all(list, out)
  for _, e in ipairs(list) do out = union(out, reads(e)) end
  return out
end

local stat = {} -- (node, live after it, ctx) -> live before it

local function before(n, out, ctx)
  local f = stat[n.kind]
  if f then return (f(n, out, ctx)) end
  return union(out, reads(n)) -- calls, functions
end

local function block(b, out, ctx)
  for i = #b.kids, 1, -1 do out = before(b.kids[i], out, ctx) end
  return out
end

local function same(_, out) return out end
stat.label, stat.empty = same, same

stat["local"] = function(n, out)
  return reads_all(n.exprs, without(out, n.vars))
end

stat.localfunc = function(n, out)
  return union(without(out, n.vars), reads(n.func))
end

stat.assign = function(n, out)
  local set = union(out, {})
  for _, t in ipairs(n.targets) do
    if t.kind == "name" and t.var then set[t.var] = nil end
  end
  for _, t in ipairs(n.targets) do
    if t.kind ~= "name" then set = union(set, reads(t)) end
  end
  return reads_all(n.exprs, set)
end

stat["return"] = function(n) return reads_all(n.exprs, {}) end
stat["break"] = function(_, _, ctx) return ctx.brk end
stat["goto"] = function(n, _, ctx)
  return n.continue and ctx.cont or ctx.all
end

stat["do"] = function(n, out, ctx)
  n.live_out = out
  return (block(n.body, out, ctx))
end

stat["if"] = function(n, out, ctx)
  n.live_out = out
  local set = n.orelse and block(n.orelse, out, ctx) or out
  for i = #n.clauses, 1, -1 do
    local c = n.clauses[i]
    set = union(union(set, block(c.body, out, ctx)), reads(c.cond))
  end
  return set
end

-- `step(head)` is what is live at the loop's head if `head` is at its next.
local function fixpoint(n, out, ctx, step)
  local head = out
  while true do
    local inner = {brk = out, cont = head, all = ctx.all}
    local set = union(step(head, inner), head)
    if includes(head, set) then break end
    head = set
  end
  n.live_out, n.live_head = out, head
  return head
end

stat["while"] = function(n, out, ctx)
  return (fixpoint(n, out, ctx, function(head, inner)
    return union(union(out, reads(n.cond)), block(n.body, head, inner))
  end))
end

stat["repeat"] = function(n, out, ctx)
  return (fixpoint(n, out, ctx, function(head, inner)
    local set = union(union(head, out), reads(n.cond))
    return (block(n.body, set, inner))
  end))
end

local function for_loop(n, out, ctx)
  local head = fixpoint(n, out, ctx, function(h, inner)
    return union(out, without(block(n.body, h, inner), n.vars))
  end)
  return reads_all(n.exprs, head)
end
stat.fornum, stat.forin = for_loop, for_loop

local function has_jump(n)
  if n.kind == "goto" and not n.continue then return true end
  for _, k in ipairs(n.kids) do
    if k.kind ~= "function" and has_jump(k) then return true end
  end
  return false
end

local function each_function(n)
  for _, k in ipairs(n.kids) do
    if k.kind == "function" then M.run(k) else each_function(k) end
  end
end

-- Annotate the statements of function f and of those inside it.
function M.run(f)
  local all = {}
  for _, v in ipairs(f.vars) do all[v] = true end
  if has_jump(f.body) then
    -- Everything live: as if each statement were followed by a use of all.
    local function flood(n)
      n.live_out, n.live_head = all, all
      for _, k in ipairs(n.kids) do
        if k.kind ~= "function" then flood(k) end
      end
    end
    flood(f.body)
  else
    block(f.body, {}, {brk = {}, cont = {}, all = all})
  end
  each_function(f.body)
end

M.reads = reads
return M
