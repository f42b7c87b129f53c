-- Module: what all models and layers are made of. A class is made with
-- `nn.Module:extend "Name"`, an instance by calling the class.
local callable = require "limn.callable"
local core = require "limn.core"
local read_options = require "limn.options"
local check = require "limn.nn.check"
local walk = require "limn.nn.walk"

local limn = require "limn.lazy"

local Module = {is_limn_class = true, class_name = "Module"}

-- -- Classes ---------------------------------------------------------------

local function construct(class, ...)
  local self = setmetatable({}, class)
  if class.init == class.own_init and select("#", ...) > class.own_places then
    core.fail(("%s has no place for argument %d"):format(class.class_name,
      class.own_places + 1))
  end
  walk.info(self)
  class.init(self, ...)
  return self
end

-- An absent field is nil, as in any table, but for what can only be meant as
-- one of the methods with long names.
local function misspelt(key)
  local long = {}
  for name, v in pairs(Module) do
    if type(v) == "function" and #name >= 8 then long[#long + 1] = name end
  end
  local near = core.near(key, long)
  if near ~= "" then
    core.fail("a module has no method or field '" .. key .. "'" .. near)
  end
end

-- The fields of an instance: its own, then its class's; `training` is a mode,
-- because reading it in a trace has to be noticed.
local function index(self, key)
  if key == "training" then return Module.mode(self):get() end
  local v = getmetatable(self)[key]
  if v == nil and type(key) == "string" and #key >= 8 then misspelt(key) end
  return v
end

local function newindex(self, key, value)
  local class = getmetatable(self)
  if key == "training" then
    core.fail("'training' is not a plain field",
              "call :train() or :eval()")
  elseif type(key) == "string" and Module[key] ~= nil then
    core.fail("a field named '" .. key .. "' would hide the method "
              .. class.class_name .. ":" .. key .. "()",
              "give the field another name")
  elseif walk.kind(value) == "class" then
    core.fail("field '" .. tostring(key) .. "' gets the class "
              .. value.class_name .. ", where an instance is needed",
              "write self." .. tostring(key) .. " = " .. value.class_name
              .. "(...), with parentheses")
  end
  rawset(self, key, value)
  local t = type(key)
  if t == "string" or t == "number" then
    walk.note(self, key)
    walk.own(self, tostring(key), value)
  end
end

local function leave(...)
  core.path_pop()
  return ...
end

-- net(x): forward, with the module path noted while a trace records. `leave`
-- keeps this frame alive below forward.
local function call(self, ...)
  local forward = self.forward
  if not forward then
    core.fail(getmetatable(self).class_name .. " has no forward",
              "define function " .. getmetatable(self).class_name
              .. ":forward(x) ... end")
  end
  if forward == getmetatable(self).own_forward then
    check.tensor((...), self)
  end
  if not core.tracing() then
    local function all(...) return ... end
    return all(forward(self, ...))
  end
  walk.name_cells(self, true)
  core.path_push(walk.key(self) or getmetatable(self).class_name, forward,
                 self)
  return leave(forward(self, ...))
end

core.modules(call, function(self)
  local path = walk.path(self)
  return path == "" and getmetatable(self).class_name or path
end)

local class_meta = {__call = construct, __tostring = function(class)
  return "class " .. class.class_name
end}

local function class_of(parent, name)
  local class = {
    is_limn_class = true, class_name = name, super = parent,
    __index = index, __newindex = newindex, __call = call,
    __tostring = Module.__tostring,
  }
  return setmetatable(class, {
    __index = parent, __call = class_meta.__call,
    __tostring = class_meta.__tostring,
  })
end

--- Module:extend(name) -> class: a class of modules. Its `init(self, ...)`
-- is called by Class(...), its `forward(self, ...)` by instance(...). Fields
-- that hold parameters, buffers and modules, also in plain tables, are found by
-- walking them in the order in which they were set.
function Module.extend(parent, name)
  if type(parent) ~= "table" or not rawget(parent, "is_limn_class") then
    local shown = type(parent) == "string" and parent or "Net"
    core.fail("extend is called without its class",
              'write nn.Module:extend "' .. shown .. '", with a colon')
  elseif type(name) ~= "string" then
    core.fail("extend wants the new class's name, got " .. type(name),
              'local Net = nn.Module:extend "Net"')
  end
  return class_of(parent, name)
end

function Module.init() end

-- -- Walking ---------------------------------------------------------------

-- Glob to pattern: "*" is any text, all else stands for itself.
local function glob(pattern)
  local p = pattern:gsub("[%^%$%(%)%%%.%[%]%+%-%?]", "%%%0")
  return "^" .. p:gsub("%*", ".*") .. "$"
end

local function instance(self, who)
  if walk.kind(self) == "module" then return self end
  if walk.kind(self) == "class" then
    core.fail(who .. " is called on the class " .. self.class_name,
              "make an instance first: " .. self.class_name .. "(...)")
  end
  core.fail(who .. " is called without its module",
            "net:" .. who .. "(...), with a colon")
end

--- Module:parameters([pattern]) -> list of cells: the parameters, or those
-- whose name matches, as in "head.*". Each once, in the order of definition.
function Module:parameters(pattern)
  instance(self, "parameters")
  local list, names = {}, {}
  local p = pattern and glob(pattern)
  for _, item in ipairs(walk.cells(self, "param")) do
    names[#names + 1] = item[1]
    if not p or item[1]:find(p) then list[#list + 1] = item[2] end
  end
  if pattern and #list == 0 then
    core.fail("no parameter matches '" .. pattern .. "'"
              .. core.near(pattern, names),
              "the parameters are " .. table.concat(names, ", "))
  end
  return list
end

--- Module:named_parameters(): for name, parameter in net:named_parameters() do.
function Module:named_parameters()
  instance(self, "named_parameters")
  walk.name_cells(self)
  return walk.each(walk.cells(self, "param"))
end

--- Module:named_buffers(): for name, buffer in net:named_buffers() do.
function Module:named_buffers()
  instance(self, "named_buffers")
  walk.name_cells(self)
  return walk.each(walk.cells(self, "buffer"))
end

--- Module:named_cells(): for path, cell, owner in net:named_cells() do;
-- whatever a file stores.
function Module:named_cells()
  instance(self, "named_cells")
  walk.name_cells(self)
  return walk.each(walk.cells(self))
end

--- Module:named_modules(): for path, module in net:named_modules() do; itself
-- ("") and all below.
function Module:named_modules()
  local list = {}
  walk.walk(instance(self, "named_modules"), function(kind, path, v, _, again)
    if kind == "module" and not again then list[#list + 1] = {path, v} end
  end)
  return walk.each(list)
end

function Module:named_modes()
  local list = {}
  for path, m in Module.named_modules(self) do
    local mode = walk.info(m).mode
    if mode then list[#list + 1] = {path, mode} end
  end
  return walk.each(list)
end

--- Module:apply(f) -> itself: call f with every module, children before their
-- parents.
function Module:apply(f)
  local list = {}
  for _, m in Module.named_modules(self) do list[#list + 1] = m end
  for i = #list, 1, -1 do f(list[i]) end
  return self
end

-- -- Mode ------------------------------------------------------------------

-- The module's mode object, made when first asked for.
function Module:mode()
  local i = walk.info(self)
  if not i.mode then
    i.mode = core.mode(i.training ~= false, walk.path(self))
  end
  return i.mode
end

local function set_training(self, on)
  for _, m in Module.named_modules(self) do
    local i = walk.info(m)
    i.training = on
    if i.mode then i.mode:set(on) end
  end
  return self
end

--- Module:train(on = true) -> itself: training mode of it and all below.
--- Module:eval() -> itself: the same as train(false).
function Module:train(on)
  return set_training(instance(self, "train"), on ~= false)
end

function Module:eval()
  return set_training(instance(self, "eval"), false)
end

-- Nothing to move: what others would try first gets the reason.
function Module:to(where)
  local name = getmetatable(self).class_name
  if type(where) == "string" and where:find "^%l+%d+$" then -- "float16"
    core.fail(name .. ": parameters keep the dtype that they were made with",
              'give the layers {dtype = "' .. where .. '"}, or convert in '
              .. 'forward: nn.linear(x, net.weight:to "' .. where .. '")')
  end
  core.fail(name .. ": a model is on no device; its parameters follow each run",
            "move the arguments: net(x:to(device))")
end

local function same(x) return x end

--- Module:when_training(f, x): f(x) in training, x itself otherwise; a trace
-- records both, and a plan keeps the one of its mode.
function Module:when_training(f, x)
  local mode = Module.mode(self)
  local y
  if not callable.is(f) then
    core.fail("when_training: a function is wanted, not " .. callable.noun(f),
      "self:when_training(function(x) return self.drop(x) end, x)")
  end
  if core.tracing() then
    y = limn.cond(mode:read(), f, same, x)
  else -- as a cond in a graph does, it takes one draw in either mode
    core.chose()
    y = core.region_run(mode:get() and f or same, x)
  end
  return y
end

-- -- State -----------------------------------------------------------------

--- Module:freeze(on = true) -> itself: stop (or, with false, resume) training
-- the parameters.
function Module:freeze(on)
  for _, item in ipairs(walk.cells(instance(self, "freeze"), "param")) do
    item[2].frozen = on ~= false
  end
  return self
end

--- Module:state_dict() -> table: all parameters and buffers by name, as tensors
-- that later training leaves alone.
function Module:state_dict()
  local t = {}
  for _, item in ipairs(walk.cells(instance(self, "state_dict"))) do
    t[item[1]] = item[2]:value()
  end
  return t
end

local function shape_text(x)
  return "[" .. table.concat(x.shape, ", ") .. "]"
end

local function same_shape(a, b)
  if #a.shape ~= #b.shape then return false end
  for i = 1, #a.shape do
    if a.shape[i] ~= b.shape[i] then return false end
  end
  return true
end

local function sorted(t)
  local list = {}
  for k in pairs(t) do list[#list + 1] = k end
  table.sort(list, function(a, b) return tostring(a) < tostring(b) end)
  return list
end

--- Module:load_state_dict(t [, {strict = true, base = ""}]): assign the values
-- in t by name, to those below the path `base`. With strict, missing and
-- surplus names raise; a shape that differs always does, before anything is
-- assigned.
function Module:load_state_dict(t, options)
  options = read_options(options, {"strict", "base"}, "load_state_dict")
  local strict = options.strict ~= false
  if type(t) ~= "table" then
    core.fail("load_state_dict wants a table of tensors by name, got "
              .. (core.type(t) or type(t)))
  end
  local base = options.base or ""
  if base ~= "" then base = base .. "." end
  local list, left, problems, names, loose = {}, {}, {}, {}, true
  for k in pairs(t) do
    left[k] = base == "" or tostring(k):sub(1, #base) == base or nil
  end
  for _, item in ipairs(walk.cells(instance(self, "load_state_dict"))) do
    local path, cell = base .. item[1], item[2]
    local v = t[path]
    names[#names + 1] = path
    left[path] = nil
    if type(v) == "table" or type(v) == "number" then v = limn.tensor(v) end
    local kind = core.type(v)
    if v == nil then
      if strict then problems[#problems + 1] = "missing: " .. path end
    elseif kind ~= "tensor" and kind ~= "cell" then
      loose = false
      problems[#problems + 1] = path .. " is a " .. (kind or type(v))
        .. " there, not a tensor"
    elseif not same_shape(v, cell) then
      loose = false
      problems[#problems + 1] = path .. " is " .. shape_text(v)
        .. " there and " .. shape_text(cell) .. " here"
    else
      list[#list + 1] = {cell, v}
    end
  end
  if strict then
    for _, k in ipairs(sorted(left)) do
      problems[#problems + 1] = "not of this model: " .. tostring(k)
        .. core.near(tostring(k), names)
    end
  end
  if #problems > 0 then
    core.fail("load_state_dict: " .. table.concat(problems, "; "),
              strict and loose and "{strict = false} takes what fits" or nil)
  end
  for _, item in ipairs(list) do item[1]:assign(item[2]) end
  return self
end

--- Module:clone() -> module: a deep copy with cells of its own; cells shared
-- inside stay shared.
function Module:clone()
  local copies = {}
  local function copy(v)
    local kind = walk.kind(v)
    if kind ~= "module" and kind ~= "cell" and kind ~= "table" then
      return v
    elseif copies[v] then
      return copies[v]
    elseif kind == "cell" then
      copies[v] = core.cell(v.kind, v:value())
      copies[v].frozen = v.frozen
      return copies[v]
    elseif kind == "table" then
      local t = {}
      copies[v] = t
      for k, x in pairs(v) do t[k] = copy(x) end
      return t
    end
    local class, i = getmetatable(v), walk.info(v)
    local m = setmetatable({}, class)
    copies[v] = m
    walk.info(m).training = i.training
    for n = 1, i.n do
      local key = i.order[n]
      local x = rawget(v, key)
      if x ~= nil then newindex(m, key, copy(x)) end
    end
    return m
  end
  return copy(instance(self, "clone"))
end

-- -- Printing --------------------------------------------------------------

-- 8970 -> "8,970"
local function thousands(n)
  local s = string.format("%d", n)
  local head = #s % 3
  local out = s:sub(1, head)
  for i = head + 1, #s, 3 do
    out = out .. (out == "" and "" or ",") .. s:sub(i, i + 2)
  end
  return out
end

-- What stands in the parentheses of a layer when it is printed.
function Module.describe() return "" end

local function count(self)
  local n = 0
  for _, item in ipairs(walk.cells(self, "param")) do
    n = n + item[2]:numel()
  end
  return n
end

local function tree(v, name, indent, lines, seen)
  local kind = walk.kind(v)
  if kind == "module" then
    local class, i = getmetatable(v), walk.info(v)
    local text = class.class_name .. "(" .. v:describe() .. ")"
    if seen[v] then
      lines[#lines + 1] = indent .. name .. text .. ", as above"
      return
    end
    seen[v] = true
    local n = count(v)
    if n > 0 then
      text = text .. ": " .. thousands(n) .. " parameter"
        .. (n == 1 and "" or "s")
    end
    lines[#lines + 1] = indent .. name .. text
    for k = 1, i.n do
      local key = i.order[k]
      tree(rawget(v, key), tostring(key) .. " = ", indent .. "  ", lines,
           seen)
    end
  elseif kind == "cell" then
    local note = seen[v] and ", tied" or ""
    seen[v] = true
    if v.kind ~= "param" then note = ", " .. v.kind .. note end
    if v.frozen then note = note .. ", frozen" end
    lines[#lines + 1] = indent .. name .. tostring(v.dtype) .. " "
      .. shape_text(v) .. note
  elseif kind == "table" and not seen[v] and walk.has_model(v) then
    seen[v] = true
    lines[#lines + 1] = indent .. name:gsub(" = $", "")
    for k, x in ipairs(v) do
      tree(x, tostring(k) .. " = ", indent .. "  ", lines, seen)
    end
    for _, k in ipairs(sorted(v)) do
      if type(k) == "string" then
        tree(v[k], k .. " = ", indent .. "  ", lines, seen)
      end
    end
  elseif type(v) == "function" and name:find "^%d" then
    lines[#lines + 1] = indent .. name .. "function"
  end
end

function Module:__tostring()
  local lines = {}
  tree(self, "", "", lines, {})
  return table.concat(lines, "\n")
end

Module.__index, Module.__newindex, Module.__call = index, newindex, call

return setmetatable(Module, class_meta)
