-- How a model's tree is walked: fields in the order of their definition, plain
-- tables 1..n and then by sorted keys, every object once. Names are paths.
local core = require "limn.core"

local M = {}

-- Side tables, so that an instance stays a plain table of the user's fields.
-- `info` holds strings and modes only: a reference from there to a module
-- would keep it alive for ever.
local info = setmetatable({}, {__mode = "k"}) -- module -> {n, order, mode}
local parents = setmetatable({}, {__mode = "kv"}) -- module -> first owner
local keys = setmetatable({}, {__mode = "k"}) -- module -> field in its owner
local auto = setmetatable({}, {__mode = "k"}) -- cell -> name given here
local pinned = setmetatable({}, {__mode = "k"}) -- cell -> true once traced
local paths = setmetatable({}, {__mode = "k"}) -- cell -> set of its paths

-- What a value is to a walk: "module", "class", "table", "cell" or nil.
function M.kind(v)
  if type(v) == "userdata" then
    return core.type(v) == "cell" and "cell" or nil
  elseif type(v) ~= "table" then
    return nil
  end
  local mt = getmetatable(v)
  if mt == nil then return "table" end
  if rawget(v, "is_limn_class") then return "class" end
  return type(mt) == "table" and rawget(mt, "is_limn_class") and "module"
    or nil
end

function M.info(module)
  local i = info[module]
  if not i then
    i = {n = 0, order = {}, at = {}}
    info[module] = i
  end
  return i
end

-- Note a field of `module`; a field that comes back keeps its place.
function M.note(module, key)
  local i = M.info(module)
  if not i.at[key] then
    i.n = i.n + 1
    i.order[i.n], i.at[key] = key, true
  end
end

-- Remember who owned the modules in `v` first; `key` is the way to it.
function M.own(owner, key, v, depth)
  local kind = M.kind(v)
  if kind == "module" and v ~= owner and not parents[v] then
    parents[v], keys[v] = owner, key
  elseif kind == "table" and (depth or 0) < 4 then
    for k, x in pairs(v) do -- order does not matter: only links are made
      M.own(owner, key .. "." .. tostring(k), x, (depth or 0) + 1)
    end
  end
end

function M.key(module) return keys[module] end

local function no_class(path, class)
  core.fail("field '" .. path .. "' is the class " .. class.class_name
            .. ", where an instance is needed",
            "write " .. class.class_name .. "(...), with parentheses")
end

-- The keys of a plain table: 1..n, then strings sorted. Raises for holes.
local function table_keys(t, path)
  local list, n, top, strings = {}, 0, 0, {}
  for k in pairs(t) do
    if type(k) == "string" then
      strings[#strings + 1] = k
    elseif type(k) == "number" and k >= 1 and k % 1 == 0 then
      n = n + 1
      if k > top then top = k end
    end
  end
  if top > n and M.has_model(t) then
    local hole = 1
    while t[hole] ~= nil do hole = hole + 1 end
    core.fail("the list '" .. path .. "' has a hole: item " .. hole
              .. " is nil, but there is an item " .. top,
              "fill it, or use nn.Identity()")
  end
  for i = 1, n do list[i] = i end
  table.sort(strings)
  for _, k in ipairs(strings) do list[#list + 1] = k end
  return list
end

-- Whether a plain table holds a module or cell directly: others may have any
-- form (a table of settings is nobody's list of layers).
function M.has_model(t)
  for _, v in pairs(t) do
    local kind = M.kind(v)
    if kind == "module" or kind == "cell" then return true end
  end
  return false
end

local function join(path, key)
  return path == "" and tostring(key) or path .. "." .. tostring(key)
end

local function go(v, path, owner, seen, visit)
  local kind = M.kind(v)
  if not kind then return end
  if kind == "class" then no_class(path, v) end
  local again = seen[v]
  visit(kind, path, v, owner, again)
  if again or kind == "cell" then return end
  seen[v] = true
  if kind == "module" then
    local i = M.info(v)
    for n = 1, i.n do
      local key = i.order[n]
      go(rawget(v, key), join(path, key), v, seen, visit)
    end
  else
    for _, key in ipairs(table_keys(v, path)) do
      go(v[key], join(path, key), owner, seen, visit)
    end
  end
end

-- Call visit(kind, path, value, owner, again) for the root and all below it in
-- definition order; `again` is true where the value was met before.
function M.walk(root, visit)
  local seen = {}
  go(root, "", root, seen, function(kind, path, v, owner, again)
    if kind == "cell" then seen[v] = true end
    visit(kind, path, v, owner, again)
  end)
end

-- The topmost module that owns this one, as far as links tell.
function M.root(module)
  local up, steps = module, 0
  while parents[up] and steps < 1000 do
    up, steps = parents[up], steps + 1
  end
  return up
end

-- The module's path below its root, as far as links tell.
function M.path(module)
  local path, up = "", module
  while parents[up] and #path < 1000 do
    path = path == "" and keys[up] or keys[up] .. "." .. path
    up = parents[up]
  end
  return path
end

-- Name the cells and modes below the root of `module` by their paths. Names
-- follow when a root gets an owner of its own, until a trace has used them.
function M.name_cells(module, pin)
  local root = M.root(module)
  M.walk(root, function(kind, path, v, owner, again)
    if again then return end
    if kind == "cell" then
      local name = v.name
      if name == nil or (auto[v] == name and not pinned[v]) then
        if name ~= path then v.name = path end
        auto[v] = path
      end
      if pin then pinned[v] = true end
    elseif kind == "module" then
      if v ~= root and not parents[v] then
        parents[v], keys[v] = owner, path:match "[^.]*$"
      end
      local mode = M.info(v).mode
      if mode then mode.name = path end
    end
  end)
end

-- All (path, cell, owner) of a kind ("param", "buffer" or nil) below `module`,
-- each cell once.
function M.cells(module, want)
  local list = {}
  M.walk(module, function(kind, path, v, owner, again)
    if kind ~= "cell" then return end
    local p = paths[v]
    if not p then
      p = {}
      paths[v] = p
    end
    p[path] = true
    if not again and (want == nil or v.kind == want) then
      list[#list + 1] = {path, v, owner}
    end
  end)
  return list
end

-- Every path by which a walk has met the cell, the longest first.
function M.paths(cell)
  local list = {}
  for p in pairs(paths[cell] or {}) do list[#list + 1] = p end
  table.sort(list, function(a, b)
    if #a ~= #b then return #a > #b end
    return a < b
  end)
  return list
end

-- An iterator over a list of tuples, for the generic `for`.
function M.each(list)
  local i = 0
  return function()
    i = i + 1
    local item = list[i]
    if item then return item[1], item[2], item[3] end
  end
end

return M
