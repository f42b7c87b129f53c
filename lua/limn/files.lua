--- Files: limn.save, limn.load, limn.restore, and loaded models.
local callable = require "limn.callable"
local core = require "limn.core"
local sorted_keys = require "limn.sorted_keys"

local fail, plain = core.fail, callable.plain
local M = {}

local function method(v, name)
  if type(v) ~= "table" and core.type(v) ~= "graph" then return nil end
  local ok, f = pcall(function() return v[name] end)
  return ok and type(f) == "function" and f or nil
end

-- -- Graphs as objects ----------------------------------------------------

local graph = core.raw "graph".__index

setmetatable(graph, {__index = function(_, k)
  if type(k) ~= "string" then return nil end
  fail("a graph has no method '" .. k .. "'" .. core.near(k, graph))
end})

local function each(list)
  local i = 0
  return function()
    i = i + 1
    local e = list[i]
    if e then return e[1], e[2] end
  end
end

local function graph_cells(g, kind)
  local list = {}
  for _, e in ipairs(core.graph_cells(g)) do
    if not kind or e.cell.kind == kind then
      list[#list + 1] = {e.name, e.cell}
    end
  end
  return list
end

function graph.named_cells(g) return each(graph_cells(g)) end
function graph.named_parameters(g) return each(graph_cells(g, "param")) end
function graph.named_buffers(g) return each(graph_cells(g, "buffer")) end

local function cell_list(list)
  local out = {}
  for i, e in ipairs(list) do out[i] = e[2] end
  return out
end

function graph.parameters(g) return cell_list(graph_cells(g, "param")) end

local function state_dict(v)
  local out = {}
  for name, cell in v:named_cells() do out[name] = cell:value() end
  return out
end
graph.state_dict = state_dict

local function load_state_dict(v, values, options)
  core.options(options, {"strict"}, "load_state_dict")
  local used = {}
  for name in v:named_cells() do
    local t = values[name]
    if t == nil and (not options or options.strict ~= false) then
      fail("load_state_dict: " .. name .. " is missing"
        .. core.near(name, values))
    elseif t ~= nil then
      used[name] = t
    end
  end
  for name in pairs(values) do
    if used[name] == nil and (not options or options.strict ~= false) then
      fail("load_state_dict: there is no " .. tostring(name))
    end
  end
  for name, cell in v:named_cells() do
    if used[name] ~= nil then cell:assign(used[name]) end
  end
  return v
end
graph.load_state_dict = load_state_dict

function graph.name(g) return (core.graph_name(g)) end
function graph.value(g, name) return require "limn.debug".value(g, name) end
function graph.check(g) return require "limn.trace".check(g) end
function graph.save(g, path) return M.save(path, {graph = g}) end

-- -- Saving ---------------------------------------------------------------

local function is_jit(v) return require "limn.jit".is_jit(v) end

-- The one graph of a jit function; {jit, example...} chooses among several.
local function jit_graph(key, v, examples)
  if examples then return (v:graph(unpack(examples))) end
  local all = v:graphs()
  if #all == 0 then
    fail(key .. ": this jit function was never traced",
      "call it once, or save {f, example...}")
  elseif #all > 1 then
    fail(key .. ": this jit function has " .. #all .. " traces",
      "save {f, example...} to choose one")
  end
  return all[1]
end

local function check_path(path, message)
  if type(path) ~= "string" or path:find "%z" then fail(message) end
end

-- What is to be saved, by kind, in the order of sorted keys.
local function sort_out(t)
  local s = {graphs = {}, roots = {}, tensors = {}}
  for _, key in ipairs(sorted_keys(t)) do
    local v = t[key]
    local kind, name = core.type(v), tostring(key)
    if name:find "%z" then fail "save: a name has a zero byte" end
    if kind == "graph" then
      s.graphs[#s.graphs + 1] = {name, v}
    elseif is_jit(v) then
      s.graphs[#s.graphs + 1] = {name, jit_graph(name, v)}
    elseif plain(v) and is_jit(v[1]) then
      s.graphs[#s.graphs + 1] = {name, jit_graph(name, v[1], {unpack(v, 2)})}
    elseif kind == "tensor" then
      s.tensors[#s.tensors + 1] = {name, v}
    elseif kind == "cell" then
      s.tensors[#s.tensors + 1] = {name, v, cell = true}
    elseif method(v, "named_cells") then
      s.roots[#s.roots + 1] = {name, v}
    else
      fail(("save: %s is a %s"):format(name, kind or type(v)),
        "graphs, jit functions, modules, optimizers, cells and tensors can be "
          .. "saved")
    end
  end
  return s
end

-- -- Names of what no key names ---------------------------------------------

-- Modules and optimizers that f reaches through upvalues, with the name of the
-- upvalue; through functions too, as a loss is one. A module itself: its class.
local function reached(f, name, list, seen, depth)
  if seen[f] or depth > 8 then return list end
  seen[f] = true
  if type(f) ~= "function" then
    if method(f, "named_cells") then
      local mt = getmetatable(f)
      list[#list + 1] = {name or mt.class_name or mt.kind or "model", f}
    end
    return list
  end
  for i = 1, 255 do
    local up, v = debug.getupvalue(f, i)
    if not up then break end
    if type(v) == "table" or type(v) == "function" then
      reached(v, up, list, seen, depth + 1)
    end
  end
  return list
end

-- Cells of graphs that would have one name get that of their root before it.
local function name_roots(m, s, taken)
  local clash, seen = false, {}
  for _, e in ipairs(s.graphs) do
    for _, c in ipairs(core.graph_cells(e[2])) do
      local id = c.cell.id
      local name = taken[id] or c.name
      clash = clash or seen[name] ~= nil and seen[name] ~= id
      seen[name] = id
    end
  end
  if not clash then return end
  local functions = {}
  for _, e in ipairs(s.graphs) do
    local f = core.graph_data(e[2]).f
    for _, r in ipairs(f and reached(f, nil, {}, functions, 0) or {}) do
      for path, cell in r[2]:named_cells() do
        if not taken[cell.id] then
          taken[cell.id] = r[1] .. "." .. path
          core.model_add(m, taken[cell.id], cell)
        end
      end
    end
  end
end

local parts_of = setmetatable({}, {__mode = "k"}) -- of loaded models

local function build(t, who)
  if parts_of[t] then return parts_of[t].handle end -- under its names
  if not plain(t) then
    t = {graph = t}
    if not core.type(t.graph) and not method(t.graph, "named_cells")
      and not is_jit(t.graph) then
      fail(who .. ": a table of what to save is wanted",
        'limn.save("net.limn", {infer = infer, net = net})')
    end
  end
  if core.tracing() then
    fail("a file cannot be saved while a trace records", "save after the trace")
  end
  local s = sort_out(t)
  local m = core.model_new()
  -- One root: no prefix. Several: the key of each is its prefix.
  local taken = {} -- names by cell
  for _, r in ipairs(s.roots) do
    local prefix = #s.roots > 1 and r[1] .. "." or ""
    for path, cell in r[2]:named_cells() do
      core.model_add(m, prefix .. path, cell)
      taken[cell.id] = taken[cell.id] or prefix .. path
    end
    if method(r[2], "named_modes") then
      for path, mode in r[2]:named_modes() do
        core.model_add(m, (prefix .. path):gsub("%.$", ""), mode)
      end
    end
  end
  for _, e in ipairs(s.tensors) do
    core.model_add(m, e[1], e[2])
    if e.cell then taken[e[2].id] = e[1] end
  end
  name_roots(m, s, taken)
  for _, e in ipairs(s.graphs) do core.model_add(m, e[1], e[2]) end
  return m
end

--- limn.save(path, {name = object, ...}): write graphs, jit functions, modules,
-- optimizers and tensors to one file (safetensors, graphs as text); weights
-- that several share are stored once. {lines = false} as third argument leaves
-- source lines out. The file is written aside and renamed.
function M.save(path, t, options)
  core.options(options, {"lines"}, "save")
  check_path(path, "save(path, table): a path comes first")
  core.model_save(build(t, "save"), path,
    not options or options.lines ~= false)
end

--- limn.save_string({name = object, ...}) -> string: the same as bytes.
function M.save_string(t, options)
  core.options(options, {"lines"}, "save_string")
  return (core.model_write(build(t, "save_string"),
    not options or options.lines ~= false))
end

-- -- Loading --------------------------------------------------------------

local Model = {}

local function model_index(m, key)
  local v = Model[key]
  if v ~= nil then return v end
  if type(key) == "string" then
    local names = {}
    for k in pairs(m) do names[#names + 1] = k end
    for k in pairs(Model) do names[#names + 1] = k end
    fail("the file holds no '" .. key .. "'" .. core.near(key, names))
  end
end

local mt = {__index = model_index}

function mt.__tostring(m)
  local out, p = {}, parts_of[m]
  for _, e in ipairs(p.graphs) do out[#out + 1] = "graph " .. e[1] end
  for _, e in ipairs(p.vars) do
    out[#out + 1] = core.type(e[2]) == "cell" and tostring(e[2])
      or ("const %s: %s [%s]"):format(e[1], e[2].dtype,
        table.concat(e[2].shape, ", "))
  end
  return "loaded model\n  " .. table.concat(out, "\n  ")
end

local function cells_of(m, kind)
  local list = {}
  for _, e in ipairs(parts_of[m].vars) do
    if core.type(e[2]) == "cell" and (not kind or e[2].kind == kind) then
      list[#list + 1] = e
    end
  end
  return list
end

function Model.named_cells(m) return each(cells_of(m)) end
function Model.named_parameters(m) return each(cells_of(m, "param")) end
function Model.named_buffers(m) return each(cells_of(m, "buffer")) end
function Model.named_modes(m) return each(parts_of[m].modes) end
function Model.parameters(m) return cell_list(cells_of(m, "param")) end
Model.state_dict, Model.load_state_dict = state_dict, load_state_dict

function Model.graphs(m) return each(parts_of[m].graphs) end

--- The cell or constant of that name, or nil.
function Model.var(m, name)
  local p = parts_of[m]
  for _, e in ipairs(p.aliases) do
    if e[1] == name then name = e[2] end
  end
  for _, e in ipairs(p.vars) do
    if e[1] == name then return e[2] end
  end
end

local function set_mode(m, training)
  for _, e in ipairs(parts_of[m].modes) do e[2]:set(training) end
  return m
end
function Model.train(m) return set_mode(m, true) end
function Model.eval(m) return set_mode(m, false) end

function Model.freeze(m)
  for _, e in ipairs(cells_of(m, "param")) do e[2].frozen = true end
  return m
end

--- Save the model again, under its names.
function Model.save(m, path, options)
  core.options(options, {"lines"}, "save")
  core.model_save(parts_of[m].handle, path,
    not options or options.lines ~= false)
end

local function open(text, is_bytes)
  if core.tracing() then
    fail("a file cannot be loaded while a trace records",
      "load before: a loaded graph can be called in the trace")
  end
  local handle = core.model_load(text, is_bytes)
  local parts = core.model_parts(handle)
  parts.handle = handle
  local m = setmetatable({}, mt)
  parts_of[m] = parts
  for _, e in ipairs(parts.graphs) do m[e[1]] = e[2] end
  for _, e in ipairs(parts.vars) do
    if core.type(e[2]) == "tensor" and rawget(m, e[1]) == nil then
      m[e[1]] = e[2]
    end
  end
  return m
end

--- limn.load(path) -> model: read a file: its graphs, modules and tensors are
-- fields of the result, in eval mode, on no device.
function M.load(path, options)
  core.options(options, {}, "load")
  check_path(path, "load(path): a path is wanted")
  return (open(path, false))
end

--- limn.load_string(bytes) -> model: the same from a string.
function M.load_string(bytes, options)
  core.options(options, {}, "load_string")
  if type(bytes) ~= "string" then
    fail "load_string(bytes): a string is wanted"
  end
  return (open(bytes, true))
end

-- What a file holds by name, the first parts of its cells' names, and the
-- names behind aliases.
local function contents(m)
  local by_name, roots, behind = {}, {}, {}
  for _, e in ipairs(parts_of[m].vars) do
    by_name[e[1]] = e[2]
    local root = core.type(e[2]) == "cell" and e[1]:match "^(.-)%."
    if root and not roots[root] then
      roots[root], roots[#roots + 1] = true, root
    end
  end
  for _, e in ipairs(parts_of[m].aliases) do
    by_name[e[1]], behind[e[1]] = by_name[e[2]], e[2]
  end
  return by_name, roots, behind
end

local function same_shape(a, b)
  local same = a:dim() == b:dim()
  for d = 1, same and a:dim() or 0 do same = same and a:size(d) == b:size(d) end
  return same
end

-- The prefix under which the file has most of an object's cells: the key's or
-- none, or, of an object without a key, none or the one that fits best.
local function prefix_for(key, object, by_name, roots)
  local keyed, prefixes = type(key) == "string", {""}
  if keyed then table.insert(prefixes, 1, key .. ".") end
  for i = 1, keyed and 0 or #roots do prefixes[i + 1] = roots[i] .. "." end
  local best, most, rival, any = "", 0, nil, false
  for _, p in ipairs(prefixes) do
    local n = 0
    for name, cell in object:named_cells() do
      local v = by_name[p .. name]
      n, any = n + (v and (keyed or same_shape(v, cell)) and 1 or 0), true
    end
    if n > most then best, most, rival = p, n, nil
    elseif n == most and n > 0 and best ~= "" then rival = p end
  end
  local what = keyed and '"' .. key .. '"' or "object " .. tostring(key)
  if rival and not keyed then
    fail(("restore: %s fits both \"%s\" and \"%s\" in the file"):format(what,
      best:sub(1, -2), rival:sub(1, -2)),
      ("give it a key: {%s = ...}"):format(best:sub(1, -2)))
  elseif any and most == 0 then
    fail("restore: the file has nothing for " .. what, roots[1]
      and "its names begin with " .. table.concat(roots, ", ", 1,
                                                  math.min(#roots, 8))
      or "leave out what was not saved")
  end
  return best
end

--- limn.restore(path, {net = net, opt = opt} [, {strict = false}]) -> {missing,
-- extra, misshaped}: put a file's state into live objects by name; returns
-- lists of the names that the file lacks, has besides, and has in another
-- shape; strict raises for these. Without keys, {net, opt}, each gets what fits
-- it. One for which the file has nothing is an error.
function M.restore(path, objects, options)
  core.options(options, {"strict"}, "restore")
  if type(path) ~= "string" and not parts_of[path] then
    fail "restore(path, {net, opt}): a path is wanted"
  elseif type(objects) ~= "table" and type(objects) ~= "userdata" then
    fail("restore: the objects to fill are wanted, not " .. type(objects),
      "limn.restore(path, {net = net, opt = opt})")
  end
  local m = type(path) == "string" and M.load(path) or path
  if not plain(objects) then objects = {objects} end
  local by_name, roots, behind = contents(m)
  local used, missing, extra, misshaped, todo = {}, {}, {}, {}, {}
  for _, key in ipairs(sorted_keys(objects)) do
    local object = objects[key]
    if not method(object, "named_cells") then
      fail("restore: " .. tostring(key) .. " has no cells")
    end
    local prefix = prefix_for(key, object, by_name, roots)
    for name, cell in object:named_cells() do
      local there = prefix .. name
      local v = by_name[there]
      used[behind[there] or there] = true
      if not v then missing[#missing + 1] = name
      elseif same_shape(v, cell) then todo[#todo + 1] = {cell, v}
      else misshaped[#misshaped + 1] = name end
    end
  end
  for _, e in ipairs(parts_of[m].vars) do
    if core.type(e[2]) == "cell" and not used[e[1]] then
      extra[#extra + 1] = e[1]
    end
  end
  local report = {missing = missing, extra = extra, misshaped = misshaped}
  if options and options.strict and #missing + #misshaped > 0 then
    fail("restore: missing " .. table.concat(missing, ", ")
      .. "; misshaped " .. table.concat(misshaped, ", "))
  end
  for _, e in ipairs(todo) do e[1]:assign(e[2]) end
  return report
end

return M
