-- limn.optim: optimizers whose whole state lies in cells, so that a recorded
-- step keeps working after `set`, after save and load, and on any device.
local core = require "limn.core"
local read_options = require "limn.options"
local walk = require "limn.nn.walk"

local limn = require "limn.lazy"

local optim = {}

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

-- State in the form of the parameter.
local function state_cell(self, e, suffix)
  local c = core.cell("state", limn.zeros(e.cell.shape,
                                          {dtype = e.cell.dtype}))
  c.name = "opt." .. e.name .. "." .. suffix
  e.state[suffix] = c
  self.state[#self.state + 1] = c
end

-- The cells that an entry needs, made when the optimizer is.
local function make_state(self, e)
  if e.state then return end
  if core.tracing() then
    core.fail("'" .. e.name .. "' was frozen when the optimizer was made, so "
              .. "it has no state to record", "run one opt:step before tracing")
  end
  e.state = {}
  for _, suffix in ipairs(self.slots) do state_cell(self, e, suffix) end
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
    -- A step made without momentum or decay has no terms for them.
    group.off[name] = v == 0 and (name == "momentum"
                                  or name == "weight_decay")
    group.cells[name] = number_cell(prefix .. name, v)
    self.state[#self.state + 1] = group.cells[name]
  end
end

-- A class of optimizers: `defaults` are its options, `numbers` those that live
-- in cells, `slots(settings)` the state per parameter, `update` the rule.
local function class(kind, spec)
  local mt = {__index = setmetatable(spec, {__index = Optimizer})}
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
    self.slots = spec.slots_of(base)
    for i, group in ipairs(self.groups) do
      read_options(group.own, allowed, "a group of optim." .. kind)
      local settings = {}
      for k, v in pairs(base) do settings[k] = v end
      for k, v in pairs(group.own) do settings[k] = v end
      scalars(self, group, #self.groups == 1 and "opt." or "opt." .. i .. ".",
              settings)
    end
    if spec.counts then
      self.t = number_cell("opt.t", 0)
      self.state[#self.state + 1] = self.t
    end
    for _, group in ipairs(self.groups) do
      for _, e in ipairs(group.entries) do
        if not e.cell.frozen then make_state(self, e) end
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
        make_state(self, e)
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

-- -- Rules -----------------------------------------------------------------

optim.SGD = class("SGD", {
  defaults = {lr = 1e-3, momentum = 0, weight_decay = 0, nesterov = false},
  numbers = {"lr", "momentum", "weight_decay"},
  slots_of = function(o)
    if o.nesterov and o.momentum == 0 then
      core.fail("SGD: nesterov needs a momentum",
                "{momentum = 0.9, nesterov = true}")
    end
    return o.momentum ~= 0 and {"momentum"} or {}
  end,
  prepare = function(_, group)
    local c = group.cells
    return {lr = c.lr, momentum = c.momentum,
            decay = not group.off.weight_decay and c.weight_decay or nil,
            nesterov = group.settings.nesterov}
  end,
  update = function(_, s, p, g, state)
    if s.decay then g = g + p * s.decay end
    local buf = state.momentum
    if buf then
      local m = buf * s.momentum + g
      buf:assign(m)
      g = s.nesterov and g + m * s.momentum or m
    end
    p:assign(p - g * s.lr)
  end,
})

-- What a step of Adam needs once. 1 - beta^t is -expm1(t log beta): in float32
-- the plain form is wrong by 1e-5 for beta = 0.999.
local function adam_prepare(self, group, t)
  local c = group.cells
  local fix1 = -((t * c.beta1:log()):expm1())
  local fix2 = -((t * c.beta2:log()):expm1())
  return {
    size = c.lr / fix1, root = fix2:rsqrt(), lr = c.lr, eps = c.eps,
    decay = not group.off.weight_decay and c.weight_decay or nil,
    beta1 = c.beta1, beta2 = c.beta2, rest1 = 1 - c.beta1,
    rest2 = 1 - c.beta2, apart = self.apart,
  }
end

-- Kingma and Ba 2015; `apart` is Loshchilov and Hutter 2019, whose decay acts
-- on the weights, not through the gradient.
local function adam_update(_, s, p, g, state)
  local w = p
  if s.decay and s.apart then
    w = p * (1 - s.lr * s.decay)
  elseif s.decay then
    g = g + p * s.decay
  end
  local m = state.m * s.beta1 + g * s.rest1
  local v = state.v * s.beta2 + g:square() * s.rest2
  state.m:assign(m)
  state.v:assign(v)
  if state.vmax then -- AMSGrad, Reddi et al. 2018
    v = limn.maximum(state.vmax, v)
    state.vmax:assign(v)
  end
  p:assign(w - m * s.size / (v:sqrt() * s.root + s.eps))
end

local function adam(kind, decay, apart)
  return class(kind, {
    defaults = {lr = 1e-3, betas = {0.9, 0.999}, eps = 1e-8,
                weight_decay = decay, amsgrad = false},
    numbers = {"lr", "beta1", "beta2", "eps", "weight_decay"},
    counts = true, apart = apart,
    slots_of = function(o)
      return o.amsgrad and {"m", "v", "vmax"} or {"m", "v"}
    end,
    prepare = adam_prepare, update = adam_update,
  })
end
optim.Adam = adam("Adam", 0, false)
optim.AdamW = adam("AdamW", 0.01, true)

-- -- Clipping --------------------------------------------------------------

-- All gradients of a (nested) table, in a fixed order.
local function leaves(t, list)
  if type(t) ~= "table" then
    list[#list + 1] = t
    return list
  end
  local strings = {}
  for i = 1, #t do leaves(t[i], list) end
  for k in pairs(t) do
    if type(k) == "string" then strings[#strings + 1] = k end
  end
  table.sort(strings)
  for _, k in ipairs(strings) do leaves(t[k], list) end
  return list
end

local function scaled(t, by)
  if type(t) ~= "table" then
    local y = t * by
    return y
  end
  local out = {}
  for k, v in pairs(t) do out[k] = v end -- in the order that t has
  local strings = {}
  for i = 1, #t do out[i] = scaled(t[i], by) end
  for k in pairs(t) do
    if type(k) == "string" then strings[#strings + 1] = k end
  end
  table.sort(strings)
  for _, k in ipairs(strings) do out[k] = scaled(t[k], by) end
  return out
end

-- The gradients scaled down so that their common norm is at most `max`, and
-- the norm they had. The originals stay: opt:step(clip_grad_norm(grads, 1)).
function optim.clip_grad_norm(grads, max)
  local total
  for _, g in ipairs(leaves(grads, {})) do
    local part = g:square():sum()
    total = total and total + part or part
  end
  if not total then core.fail("clip_grad_norm: no gradients") end
  local norm = total:sqrt()
  local by = limn.clamp(max / (norm + 1e-6), {max = 1})
  return scaled(grads, by), norm
end

return setmetatable(optim, {__index = function(_, key)
  if type(key) ~= "string" then return nil end
  core.fail("optim has no '" .. key .. "'"
            .. core.near(key, {"SGD", "Adam", "AdamW", "clip_grad_norm"}))
end})
