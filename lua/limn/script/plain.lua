-- Which expressions of a function are surely ordinary Lua: no tensor can be
-- their value, so an `if` or a comparison on them may stay as it is written.
--
-- A local variable is plain when all that is assigned to it is, and nothing is
-- assigned to it inside a construct that may become part of a graph.
local M = {}

local constant = {["nil"] = true, ["true"] = true, ["false"] = true,
  number = true, string = true, ["function"] = true, table = true}
local untensor = {["nil"] = true, string = true, ["function"] = true,
  table = true} -- what no tensor equals
local certain = {type = true, tostring = true, tonumber = false}

local function paren(e)
  while e.kind == "paren" do e = e.value end
  return e
end

local plain

local function binary(e)
  if e.op == "==" or e.op == "~=" then
    if untensor[paren(e.a).kind] or untensor[paren(e.b).kind] then
      return true
    end
  end
  return plain(e.a) and plain(e.b)
end

-- Is the value of e surely no tensor?
function plain(e)
  e = paren(e)
  local k = e.kind
  if constant[k] then return true end
  if k == "name" then return e.var ~= nil and not e.var.unplain end
  if k == "unary" then return plain(e.value) end
  if k == "binary" then return binary(e) end
  return k == "call" and e.callee.kind == "name" and not e.callee.var
    and certain[e.callee.name] or false
end
M.plain = plain

local multiple = {call = true, method = true, vararg = true}

-- The values that a list of expressions gives to the variables of a list:
-- sources[i] is an expression, false (unknown) or nil (nothing, so nil).
local function give(vars, exprs)
  local last = exprs[#exprs]
  for i, v in ipairs(vars) do
    local e = exprs[i]
    if i >= #exprs and last and multiple[last.kind] and i ~= #exprs then
      e = false
    end
    if v and e ~= nil then v.sources[#v.sources + 1] = e end
  end
end

local function targets(n)
  local vars = {}
  for i, t in ipairs(n.targets) do vars[i] = t.kind == "name" and t.var end
  return vars
end

local function gather(n)
  if n.kind == "local" then
    give(n.vars, n.exprs)
  elseif n.kind == "assign" then
    give(targets(n), n.exprs)
  elseif n.kind == "fornum" then
    for _, e in ipairs(n.exprs) do give(n.vars, {e}) end
  elseif n.kind == "forin" then
    local e = n.exprs[1]
    local counts = e.kind == "call" and e.callee.kind == "name"
      and not e.callee.var and e.callee.name == "ipairs"
    for i, v in ipairs(n.vars) do
      if i > 1 or not counts then v.unplain = true end
    end
  end
  for _, k in ipairs(n.kids) do gather(k) end
end

-- Begin: every local of these functions is plain until shown otherwise.
function M.begin(root, funcs)
  for _, f in ipairs(funcs) do
    for _, v in ipairs(f.vars) do
      v.sources = {}
      v.unplain = v.shared or v.at == f.params or nil -- parameters
    end
  end
  for _, v in ipairs(root.vars) do v.sources, v.unplain = {}, true end
  gather(root)
end

-- Draw the conclusions from what is known not to be plain.
function M.settle(funcs)
  local changed = true
  while changed do
    changed = false
    for _, f in ipairs(funcs) do
      for _, v in ipairs(f.vars) do
        for _, e in ipairs(v.unplain and {} or v.sources) do
          if not e or not plain(e) then v.unplain, changed = true, true end
        end
      end
    end
  end
end

return M
