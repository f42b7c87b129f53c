-- Scopes of limn.script: which variable each name means.
--
-- A name node gets .var: {name, func, at, stop, assigned, shared, read}. func
-- is the function node that owns it, at..stop the tokens where it may be used,
-- assigned how often it is given a value after its declaration, shared whether
-- another function assigns to it, captured whether another one uses it. A name
-- without .var is a global.
local M = {}

local visit -- by kind of node

local function each(list, scope)
  for _, n in ipairs(list) do visit[n.kind](n, scope) end
end

local function kids(n, scope) each(n.kids, scope) end

local function open(scope, func, stop)
  return {up = scope, func = func or scope.func, vars = {}, stop = stop,
    tokens = scope.tokens, funcs = scope.funcs}
end

-- A new variable; `from` is the first token where it is known.
local function declare(scope, name, from)
  local v = {name = name, func = scope.func, at = from, stop = scope.stop,
    assigned = 0}
  scope.vars[name] = v
  scope.func.vars[#scope.func.vars + 1] = v
  return v
end

local function find(scope, name)
  while scope do
    local v = scope.vars[name]
    if v then return v end
    scope = scope.up
  end
end

local function names(n, scope, from)
  n.vars = {}
  for i, at in ipairs(n.names) do
    n.vars[i] = declare(scope, scope.tokens[at].text, from)
  end
end

local function block(b, scope)
  local inner = open(scope, nil, b.last)
  each(b.kids, inner)
  return inner
end

local function use(n, scope, assigned)
  local v = find(scope, n.name)
  n.var = v
  if not v then return end
  if assigned then v.assigned = v.assigned + 1 end
  if v.func ~= scope.func then
    v.captured = true
    v.shared = v.shared or assigned
  end
end

local function func(n, scope)
  n.vars, n.up = {}, scope.func
  local inner = open(scope, n, n.last)
  if n.method then declare(inner, "self", n.params) end
  for _, at in ipairs(n.names) do
    declare(inner, scope.tokens[at].text, n.params)
  end
  scope.funcs[#scope.funcs + 1] = n
  block(n.body, inner)
end

visit = {
  ["nil"] = kids, ["true"] = kids, ["false"] = kids, vararg = kids,
  number = kids, string = kids, paren = kids, table = kids, index = kids,
  field = kids, call = kids, method = kids, binary = kids, unary = kids,
  callstat = kids, ["return"] = kids, ["break"] = kids, label = kids,
  empty = kids, ["goto"] = kids, ["function"] = func, block = block,
  name = use,
  ["do"] = kids, ["while"] = kids, ["if"] = kids,
}

visit["local"] = function(n, scope)
  each(n.exprs, scope)
  names(n, scope, n.stop + 1)
end

visit.localfunc = function(n, scope)
  names(n, scope, n.names[1])
  visit["function"](n.func, scope)
end

visit.funcstat = function(n, scope)
  if n.target.kind == "name" then use(n.target, scope, true)
  else kids(n.target, scope) end
  visit["function"](n.func, scope)
end

visit.assign = function(n, scope)
  each(n.exprs, scope)
  for _, t in ipairs(n.targets) do
    if t.kind == "name" then use(t, scope, true) else kids(t, scope) end
  end
end

visit["repeat"] = function(n, scope)
  local inner = block(n.body, scope)
  for _, v in pairs(inner.vars) do v.stop = n.last end -- until sees them
  inner.stop = n.last
  visit[n.cond.kind](n.cond, inner)
end

local function loop(n, scope)
  each(n.exprs, scope)
  local inner = open(scope, nil, n.last)
  names(n, inner, n.opens)
  block(n.body, inner)
end
visit.fornum, visit.forin = loop, loop

-- Resolve the names of a whole source; gives its functions in text order.
function M.resolve(root, tokens)
  local funcs = {}
  root.vars = {}
  block(root.body, {func = root, vars = {}, stop = root.last, tokens = tokens,
    funcs = funcs})
  return funcs
end

return M
