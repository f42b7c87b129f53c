-- The analysis of limn.script: which statements of a function are to be
-- rewritten, and what each of them needs to know.
--
-- Every statement node gets
--   .leaves   how control may leave it other than at its end: a set of "ret",
--             "brk" and "cont" (a goto to the end of the loop's body)
--   .rw       it is rewritten: its condition may be a value of a trace, or such
--             a statement inside it leaves it
-- and a rewritten one
--   .sets     the variables from outside that it assigns, in order
--   .live     which of them are read after it (in the next iteration, in a
--             return)
local scope = require "limn.script.scope"
local plainness = require "limn.script.plain"
local live = require "limn.script.live"
local fail = require "limn.script.lexer".fail

local M = {}

local loops = {["while"] = true, ["repeat"] = true, fornum = true,
  forin = true}

-- -- Parents and jumps ----------------------------------------------------

local function link(n)
  for _, k in ipairs(n.kids) do
    k.parent = n
    link(k)
  end
end

-- The label that a goto jumps to, and the block that holds it.
local function find_label(n)
  local b = n.parent
  while b and b.kind ~= "function" do
    if b.kind == "block" then
      for i, s in ipairs(b.kids) do
        if s.kind == "label" and s.name == n.name then return b, i end
      end
    end
    b = b.parent
  end
end

local function ends_at(block, i)
  for j = i + 1, #block.kids do
    local k = block.kids[j].kind
    if k ~= "label" and k ~= "empty" then return false end
  end
  return true
end

-- A goto to the end of the body of the innermost loop is a `continue`.
local function mark_goto(n, tokens)
  local b, i = find_label(n)
  if not b then
    fail(tokens[n.first].line, "there is no label '" .. n.name .. "' here")
  end
  local p = n.parent
  while not loops[p.kind] and p ~= b do p = p.parent end
  n.label_block = b
  n.continue = p == b and loops[b.parent.kind] and b.parent.kind ~= "repeat"
    and ends_at(b, i)
end

local function mark_gotos(n, tokens)
  if n.kind == "goto" then mark_goto(n, tokens) end
  for _, k in ipairs(n.kids) do mark_gotos(k, tokens) end
end

-- -- What is rewritten ----------------------------------------------------

local function add(to, from)
  for k in pairs(from) do to[k] = true end
end

local leave = {["return"] = "ret", ["break"] = "brk"}

-- Ordinary conditions and bounds: the statement may stay as it is.
local function ordinary(n)
  if n.kind == "if" then
    for _, c in ipairs(n.clauses) do
      if not plainness.plain(c.cond) then return false end
    end
  elseif n.kind == "while" or n.kind == "repeat" then
    return plainness.plain(n.cond)
  elseif n.kind == "fornum" then
    for _, e in ipairs(n.exprs) do
      if not plainness.plain(e) then return false end
    end
  end
  return true
end

local compound = {["if"] = true, ["do"] = true, ["while"] = true,
  ["repeat"] = true, fornum = true, forin = true}

-- How control leaves n (`leaves`), and how it does so from inside rewritten
-- statements (`jumps`): those cannot use Lua's own `return` and `break`.
local function mark(n)
  local leaves, jumps = {}, {}
  if leave[n.kind] then leaves[leave[n.kind]] = true end
  if n.kind == "goto" and n.continue then leaves.cont = true end
  if n.kind ~= "function" then
    for _, k in ipairs(n.kids) do
      mark(k)
      add(leaves, k.leaves)
      add(jumps, k.jumps)
    end
  end
  n.rw = compound[n.kind] and (not ordinary(n) or next(jumps) ~= nil) or false
  if loops[n.kind] then leaves.brk, leaves.cont = nil, nil end
  n.leaves = leaves
  n.jumps = n.rw and leaves or {}
  if n.kind == "block" then n.jumps = jumps end
  if n.kind == "function" then
    mark(n.body)
    n.leaves, n.jumps = {}, {}
  end
end

-- The variables that the statements of n assign, nested functions left out.
local function assigned(n)
  if n.assigned then return n.assigned end
  local set = {}
  n.assigned = set
  if n.kind == "assign" then
    for _, t in ipairs(n.targets) do
      if t.kind == "name" and t.var then set[t.var] = true end
    end
  elseif n.kind == "funcstat" and n.target.kind == "name" and n.target.var then
    set[n.target.var] = true
  end
  if n.kind ~= "function" then
    for _, k in ipairs(n.kids) do add(set, assigned(k)) end
  end
  return set
end

-- Is v a variable of the function around n, declared outside n and known in
-- it?
local function outside(v, n, f)
  return v.func == f and v.at <= n.first and v.stop >= n.last
end

-- What n assigns is not plain any more; true when that is news.
local function unsettle(n)
  local news = false
  if n.rw then
    for v in pairs(assigned(n)) do
      if not v.unplain and v.at <= n.first then
        v.unplain, news = true, true
      end
    end
  end
  for _, k in ipairs(n.kids) do news = unsettle(k) or news end
  return news
end

-- -- What the rewritten ones need to know ---------------------------------

local function by_place(a, b) return a.at < b.at or a.at == b.at
  and a.name < b.name end

-- What the returns inside a loop read: they are evaluated after it.
local function returned(n, out)
  if n.kind == "return" then add(out, live.reads(n)) end
  for _, k in ipairs(n.kids) do
    if k.kind ~= "function" then returned(k, out) end
  end
  return out
end

local function describe(n, f)
  local set = {}
  for v in pairs(assigned(n)) do set[v] = outside(v, n, f) or nil end
  for _, v in ipairs(f.vars) do -- a call may reach the closure that assigns
    if v.shared and outside(v, n, f) then set[v] = true end
  end
  local list = {}
  for v in pairs(set) do list[#list + 1] = v end
  table.sort(list, by_place)
  n.sets, n.live = list, {}
  local after = n.live_out
  if loops[n.kind] then
    after = returned(n, {})
    add(after, n.live_out)
    add(after, n.live_head)
  end
  for i, v in ipairs(list) do
    n.live[i] = v.captured or after[v] or false
  end
end

local function describe_all(n, f)
  if n.kind == "function" then f = n end
  if n.rw then describe(n, f) end
  for _, k in ipairs(n.kids) do describe_all(k, f) end
end

-- A goto that is no `continue` must stay inside one closure.
local function check_gotos(n, tokens)
  if n.kind == "goto" and not n.continue then
    local p = n.parent
    while p ~= n.label_block do
      if p.rw then
        fail(tokens[n.first].line, ("goto %s jumps out of a statement (line "
          .. "%d) that may depend on values of a trace; only a jump to the "
          .. "end of a loop's body is known here"):format(n.name,
            tokens[p.first].line))
      end
      p = p.parent
    end
    if next(n.label_block.jumps) then
      fail(tokens[n.first].line, ("goto %s and a return or break under a "
        .. "condition on values of a trace do not go together in one block")
        :format(n.name))
    end
  end
  for _, k in ipairs(n.kids) do check_gotos(k, tokens) end
end

-- Annotate a whole source; gives its functions in the order of the text.
function M.run(root, tokens)
  local funcs = scope.resolve(root, tokens)
  link(root)
  mark_gotos(root, tokens)
  plainness.begin(root, funcs)
  repeat
    plainness.settle(funcs)
    mark(root)
  until not unsettle(root)
  return funcs
end

-- What follows costs more, and is done for the function that is scripted.
function M.finish(f, tokens)
  check_gotos(f, tokens)
  live.run(f)
  describe_all(f, f)
end

M.outside, M.loops = outside, loops
return M
