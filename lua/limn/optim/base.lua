-- What all optimizers share: parameters, groups, options, and state that lies
-- wholly in cells, so that a recorded step keeps working after `set`, after
-- save and load, and on any device.
local core = require "limn.core"
local instead = require "limn.instead"
local read_options = require "limn.options"
local walk = require "limn.nn.walk"

local limn = require "limn.lazy"

-- -- Parameters and groups -------------------------------------------------

-- Append {name, cell} of a module, loaded model, cell, or list of these.
local function collect(v, list, seen, where)
  if core.type(v) == "cell" then
    if seen[v.id] then
      core.fail("the parameter '" .. (v.name or "?")
                .. "' is given to the optimizer twice")
    end
    seen[v.id] = list
    list[#list + 1] = {name = v.name, cell = v}
  elseif walk.kind(v) == "class" then
    core.fail("the optimizer got the class " .. v.class_name
              .. ", where a model is needed",
              "make an instance first: net = " .. v.class_name .. "(...)")
  elseif type(v) == "table" and not getmetatable(v) then
    for i = 1, #v do collect(v[i], list, seen, where) end
  elseif (type(v) == "table" or type(v) == "userdata")
    and core.type(v) ~= "tensor" and v.named_parameters then
    for name, cell in v:named_parameters() do
      if seen[cell.id] and seen[cell.id] ~= list then
        core.fail("the parameter '" .. name .. "' is in two groups")
      elseif not seen[cell.id] then
        seen[cell.id] = list
        list[#list + 1] = {name = name, cell = cell}
      end
    end
  else
    core.fail("an optimizer needs a model, parameters or a list of them, got "
              .. (core.type(v) or type(v)),
              where .. "(net, {lr = 1e-3})")
  end
end

-- {{params = ..., lr = ...}, ...}, or all else, to a list of groups.
local function groups_of(params, who)
  local list, seen = {}, {}
  if type(params) == "table" and not getmetatable(params)
    and type(params[1]) == "table" and walk.kind(params[1]) == "table"
    and next(params[1]) ~= nil and params[1][1] == nil then
    for i, g in ipairs(params) do
      local group = {own = {}, entries = {}}
      for k, v in pairs(g) do
        if k ~= "params" then group.own[k] = v end
      end
      if g.params == nil then
        core.fail("parameter group " .. i .. " has no 'params'",
                  "optim." .. who .. "({{params = net, lr = 1e-4}, ...})")
      end
      collect(g.params, group.entries, seen, "optim." .. who)
      list[i] = group
    end
  else
    list[1] = {own = {}, entries = {}}
    collect(params, list[1].entries, seen, "optim." .. who)
  end
  local n = 0
  for _, group in ipairs(list) do n = n + #group.entries end
  if n == 0 then
    core.fail("optim." .. who .. " got no parameters",
              "does the model hold nn.Parameter or layers as fields?")
  end
  return list
end

-- Give every entry a name no other has: its cell's, its path, its position.
local function name_entries(groups)
  local seen, n = {}, 0
  for i, group in ipairs(groups) do
    for _, e in ipairs(group.entries) do
      n = n + 1
      local name = e.cell.name or e.name or tostring(n)
      if seen[name] then name = i .. "." .. (e.name or n) end
      if seen[name] then name = n .. "." .. name end
      seen[name], e.name, e.at = true, name, n
    end
  end
end

-- -- The base class --------------------------------------------------------

local Optimizer = {}
Optimizer.__index = Optimizer

local function number_cell(name, v)
  local c = core.cell("state", limn.full({}, v, {dtype = "float32"}))
  c.name = name
  return c
end

-- State in the form of the parameter, or (slots whose form is "flag") a number
-- of its own that starts at 0.
local function state_cell(self, e, slot, start)
  local suffix = slot.flag or slot
  local c = slot.flag and number_cell("", 0)
    or core.cell("state", limn.full(e.cell.shape, start or 0,
                                    {dtype = e.cell.dtype}))
  c.name = "opt." .. e.name .. "." .. suffix
  e.state[suffix] = c
  self.state[#self.state + 1] = c
end

-- The cells that an entry needs, made when the optimizer is.
local function make_state(self, e, group)
  if e.state then return end
  if core.tracing() then
    core.fail("'" .. e.name .. "' was frozen when the optimizer was made, so "
              .. "it has no state to record", "run one opt:step before tracing")
  end
  e.state = {}
  for _, slot in ipairs(group.slots) do
    state_cell(self, e, slot, self.start and self.start(group.settings))
  end
end

local function option_list(defaults)
  local list = {}
  for k in pairs(defaults) do list[#list + 1] = k end
  table.sort(list)
  return list
end

local function check_number(what, v)
  if type(v) ~= "number" then
    core.fail(what .. " must be a number, got " .. (core.type(v) or type(v)))
  elseif v < 0 or v ~= v then
    core.fail(what .. " must not be below 0, got " .. v)
  end
end

-- A step made without these has no terms for them.
local terms = {momentum = true, dampening = true, weight_decay = true,
               lr_decay = true}

-- The value at which option `name` of a group stands at first; betas are two.
local function scalars(self, group, prefix, settings)
  group.cells, group.settings, group.off = {}, settings, {}
  for _, name in ipairs(self.numbers) do
    local v = settings[name]
    if name == "beta1" or name == "beta2" then
      local betas = settings.betas
      if type(betas) ~= "table" then
        core.fail(self.kind .. ": betas are two numbers, got " .. type(betas),
                  "betas = {0.9, 0.999}")
      end
      v = betas[name == "beta1" and 1 or 2]
    end
    check_number(self.kind .. ": " .. name, v)
    group.off[name] = v == 0 and terms[name]
    group.cells[name] = number_cell(prefix .. name, v)
    self.state[#self.state + 1] = group.cells[name]
  end
end

-- Fields that some optimizers do not have.
local absent = {t = true, start = true, counts = true}

-- A class of optimizers: `defaults` are its options, `numbers` those that live
-- in cells, `slots_of(settings)` the state per parameter, `start(settings)` the
-- value it has at first, `counts` whether steps are counted (true, or the
-- option that needs it), `update` the rule. `maximize` is an option of all.
local function class(kind, spec)
  spec.defaults.maximize = false
  setmetatable(spec, {__index = Optimizer})
  local mt = {__index = function(_, k)
    local v = spec[k]
    if v == nil and type(k) == "string" and not absent[k] then
      local hint = instead.optimizer[k]
      core.fail("an optimizer has no method '" .. k .. "'"
                .. (hint and "" or core.near(k, Optimizer)), hint)
    end
    return v
  end}
  mt.__tostring = function(self) return self:describe() end
  local allowed = option_list(spec.defaults)
  spec.kind, spec.allowed = kind, allowed
  return function(params, options)
    options = read_options(options, allowed, "optim." .. kind)
    local self = setmetatable({state = {}}, mt)
    self.groups = groups_of(params, kind)
    name_entries(self.groups)
    local base = {}
    for k, v in pairs(spec.defaults) do base[k] = v end
    for k, v in pairs(options) do base[k] = v end
    local counts = spec.counts == true
    for i, group in ipairs(self.groups) do
      read_options(group.own, allowed, "a group of optim." .. kind)
      local settings = {}
      for k, v in pairs(base) do settings[k] = v end
      for k, v in pairs(group.own) do settings[k] = v end
      group.slots = spec.slots_of(settings)
      scalars(self, group, #self.groups == 1 and "opt." or "opt." .. i .. ".",
              settings)
      counts = counts or spec.counts and settings[spec.counts] ~= 0
    end
    if counts then
      self.t = number_cell("opt.t", 0)
      self.state[#self.state + 1] = self.t
    end
    for _, group in ipairs(self.groups) do
      for _, e in ipairs(group.entries) do
        if not e.cell.frozen then make_state(self, e, group) end
      end
    end
    return self
  end
end

-- The gradient of an entry in what value_and_grad gave: a table by name, a
-- list in the order of the parameters, or one table per group.
local function gradient(grads, e, i)
  local g = grads[e.name]
  if g ~= nil then return g end
  for _, path in ipairs(walk.paths(e.cell)) do
    g = grads[path]
    if g ~= nil then return g end
  end
  local part = grads[i]
  if type(part) == "table" and not getmetatable(part) then
    return gradient(part, e, -1)
  end
  return grads[e.at]
end

-- Eager ops on cells alone happen where the cells are, so these move to their
-- gradient; a recorded step places all of them by itself.
local function follow(e, g)
  if core.tracing() or core.type(g) ~= "tensor" then return end
  local function move(cell)
    if cell.device ~= g.device then cell:assign(cell:value():to(g.device)) end
  end
  move(e.cell)
  for _, cell in pairs(e.state) do move(cell) end
end

-- One step along the gradients (of limn.grad or limn.value_and_grad).
function Optimizer:step(grads)
  if core.type(grads) == "tensor" then grads = {grads} end
  if type(grads) ~= "table" then
    core.fail("opt:step wants the gradients, got " .. (core.type(grads)
              or type(grads)), "local l, grads = loss(x, t); opt:step(grads)")
  end
  local todo = {}
  for i, group in ipairs(self.groups) do
    for _, e in ipairs(group.entries) do
      if not e.cell.frozen then
        local g = gradient(grads, e, i)
        if g == nil then
          core.fail("opt:step: there is no gradient for '" .. e.name .. "'",
                    "differentiate with respect to the same model, or freeze "
                    .. "the parameter")
        end
        if core.type(g) ~= "tensor" then
          core.fail("opt:step: the gradient of '" .. e.name .. "' is a "
                    .. (core.type(g) or type(g)) .. ", not a tensor")
        end
        make_state(self, e, group)
        if group.settings.maximize then g = -g end
        todo[#todo + 1] = {group, e, g}
      end
    end
  end
  local t
  if self.t then
    t = self.t + 1
    self.t:assign(t)
  end
  local shared = {} -- what all parameters of a group use
  for _, item in ipairs(todo) do
    local group = item[1]
    shared[group] = shared[group] or self:prepare(group, t)
    follow(item[2], item[3])
    self:update(shared[group], item[2].cell, item[3], item[2].state)
  end
end

function Optimizer.prepare(_, group) return group.cells end

local function group_at(self, i, who)
  local group = self.groups[i or 1]
  if not group then
    core.fail(who .. ": there are " .. #self.groups
              .. " parameter groups, not " .. tostring(i))
  end
  return group
end

-- Change options, of all groups or of the i-th. Nothing is traced again.
function Optimizer:set(options, i)
  options = read_options(options, self.allowed, "opt:set")
  local first, last = i or 1, i or #self.groups
  for n = first, last do
    local group = group_at(self, n, "opt:set")
    for _, k in ipairs(option_list(options)) do
      local v = options[k]
      if k == "betas" then
        if type(v) ~= "table" then v = {} end
        check_number("opt:set: beta1", v[1])
        check_number("opt:set: beta2", v[2])
        group.cells.beta1:assign(v[1])
        group.cells.beta2:assign(v[2])
      elseif group.cells[k] and not group.off[k] then
        if not core.type(v) then check_number("opt:set: " .. k, v) end
        group.cells[k]:assign(v)
      else
        core.fail("opt:set: '" .. k .. "' decides what a step computes, so it "
                  .. "stays as it was made",
                  "make a new optimizer with {" .. k .. " = "
                  .. tostring(v) .. "}")
      end
      group.settings[k] = v
    end
  end
end

-- The shortest number that is this float32.
local function short(v)
  for digits = 6, 9 do
    local s = tonumber(string.format("%." .. digits .. "g", v))
    if math.abs(s - v) <= math.abs(v) * 2 ^ -24 then return s end
  end
  return v
end

-- The value of an option now, of the first or i-th group.
function Optimizer:get(name, i)
  local group = group_at(self, i, "opt:get")
  if name == "betas" and group.cells.beta1 then
    return {short(group.cells.beta1:item()), short(group.cells.beta2:item())}
  elseif group.cells[name] then
    return short(group.cells[name]:item())
  elseif self.defaults[name] == nil then
    core.fail("opt:get: no option '" .. tostring(name) .. "'"
              .. core.near(tostring(name), self.allowed))
  end
  return group.settings[name]
end

-- for path, cell in opt:named_cells() do: the state, as a file stores it.
function Optimizer:named_cells()
  local list = {}
  for i, c in ipairs(self.state) do list[i] = {c.name, c, self} end
  return walk.each(list)
end

function Optimizer:describe()
  local n = 0
  for _, g in ipairs(self.groups) do n = n + #g.entries end
  local parts = {}
  for _, k in ipairs(self.allowed) do
    local v = self:get(k)
    if type(v) == "table" then v = "{" .. table.concat(v, ", ") .. "}" end
    parts[#parts + 1] = k .. " = " .. tostring(v)
  end
  return self.kind .. " of " .. n .. " parameter" .. (n == 1 and "" or "s")
    .. " {" .. table.concat(parts, ", ") .. "}"
end

return class
