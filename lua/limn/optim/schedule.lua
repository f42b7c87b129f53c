-- Learning-rate schedules: objects that change an optimizer's lr by opt:set, so
-- that nothing is traced again. Options have PyTorch's names. Their state lies
-- in cells and goes into files:
--
--   local s = optim.schedule.cosine(opt, {T_max = 100, warmup = 5})
--   for epoch = 1, 100 do ... s:step() end
local core = require "limn.core"
local read_options = require "limn.options"
local walk = require "limn.nn.walk"

local limn = require "limn.lazy"

local M = {}

local Schedule = {}
Schedule.__index = Schedule

-- -- Options ---------------------------------------------------------------

local function wrong(who, what, got, hint)
  core.fail(who .. ": " .. what .. ", got " .. tostring(got), hint)
end

-- An option that is a number from `low` to `high`.
local function number(o, key, who, low, high)
  local v = o[key]
  if type(v) ~= "number" or not (v >= low and v <= (high or math.huge)) then
    wrong(who, ("%s is a number %s"):format(key, high and high < math.huge
      and ("from %g to %g"):format(low, high) or "of at least " .. low), v)
  end
  return v
end

local function whole(o, key, who, low)
  local v = o[key]
  if type(v) ~= "number" or v % 1 ~= 0 or v < low then
    wrong(who, key .. " is a whole number of at least " .. low, v)
  end
  return v
end

-- A number for all groups, or a list with one for each: a list.
local function per_group(v, self, key)
  local list = {}
  for i = 1, #self.opt.groups do
    list[i] = type(v) == "table" and v[i] or v
    if type(list[i]) ~= "number" or list[i] < 0 then
      wrong(self.who, key .. " is a number of at least 0, or one for each of "
            .. "the " .. #self.opt.groups .. " parameter groups", list[i])
    end
  end
  return list
end

-- -- State -----------------------------------------------------------------

-- A number (or a list of them) that is saved; float64 keeps any count.
local function cell(self, name, v)
  local c = core.cell("state", limn.tensor(v, "float64"))
  c.name = "schedule." .. name
  self.cells[name] = c
  self.order[#self.order + 1] = c
end

local function new(class, opt, o, allowed, defaults)
  local who = "schedule." .. class.kind
  if type(opt) ~= "table" or type(opt.set) ~= "function" or not opt.groups then
    core.fail(who .. " wants an optimizer, got " .. (core.type(opt)
              or type(opt)), "optim." .. who .. "(opt, {...})")
  end
  o = read_options(o, allowed, who)
  local full = {}
  for k, v in pairs(defaults) do full[k] = v end
  for k, v in pairs(o) do full[k] = v end
  local self = setmetatable({opt = opt, o = full, who = who, cells = {},
                             order = {}}, class)
  local base = {}
  for i = 1, #opt.groups do base[i] = opt:get("lr", i) end
  cell(self, "t", 0)
  cell(self, "base", base)
  return self
end

-- for path, cell in s:named_cells() do: the state, as a file stores it.
function Schedule:named_cells()
  local list = {}
  for i, c in ipairs(self.order) do list[i] = {c.name, c, self} end
  return walk.each(list)
end

-- The learning rate now, of the first or i-th group.
function Schedule:lr(i) return (self.opt:get("lr", i)) end

-- How many steps were made.
function Schedule:count() return (self.cells.t:item()) end

function Schedule:__tostring()
  return self.kind .. " schedule after " .. self:count() .. " steps, lr = "
    .. self:lr()
end

local function put(self)
  local t, base = self.cells.t:item(), self.cells.base:totable()
  for i = 1, #base do
    self.opt:set(self:options_at(t, base[i], i), i)
  end
end

-- The next step of the schedule: after each epoch or each training step.
function Schedule:step(metric)
  if core.tracing() then
    core.fail("schedule:step cannot be traced; the recorded step reads the lr "
              .. "that the schedule sets", "call it after the traced step")
  elseif metric ~= nil then
    core.fail(self.who .. ":step takes no metric",
              "schedule.plateau looks at one")
  end
  self.cells.t:assign(self.cells.t:item() + 1)
  put(self)
end

-- What is set at step t. The first `warmup` steps rise linearly to the group's
-- own lr, from `warmup_start` of it; then the schedule begins.
function Schedule:options_at(t, base, i)
  local o = self.o
  if t < o.warmup then
    local from = o.warmup_start
    return {lr = base * (from + (1 - from) * t / o.warmup)}
  end
  return {lr = self:rate(t - o.warmup, base, i)}
end

-- A schedule that is known from the number of steps alone: `defaults` and
-- `needed` are its options, `check` looks at them; `spec` has `rate`, the lr at
-- a step, or the whole of options_at.
local function closed(kind, defaults, needed, check, spec)
  local class = setmetatable(spec, {__index = Schedule})
  class.kind, class.__index = kind, class
  class.__tostring = Schedule.__tostring
  if spec.rate then defaults.warmup, defaults.warmup_start = 0, 0 end
  local allowed = {}
  for k in pairs(defaults) do allowed[#allowed + 1] = k end
  for _, k in ipairs(needed) do allowed[#allowed + 1] = k end
  table.sort(allowed)
  M[kind] = function(opt, o)
    local self = new(class, opt, o, allowed, defaults)
    if spec.rate then
      whole(self.o, "warmup", self.who, 0)
      number(self.o, "warmup_start", self.who, 0, 1)
    end
    check(self, self.o, self.who)
    put(self)
    return self
  end
end

-- -- Closed forms ----------------------------------------------------------

--- optim.schedule.step(opt, {step_size, gamma = 0.1, warmup = 0}): lr falls by
-- gamma every step_size steps. All schedules change lr by opt:set when
-- schedule:step() is called; warmup is a number of steps that lr rises first.
closed("step", {gamma = 0.1}, {"step_size"}, function(_, o, who)
  whole(o, "step_size", who, 1)
  number(o, "gamma", who, 0)
end, {rate = function(self, t, base)
  return base * self.o.gamma ^ math.floor(t / self.o.step_size)
end})

--- optim.schedule.multistep(opt, {milestones, gamma = 0.1}): lr falls by gamma
-- at each of the milestones.
closed("multistep", {gamma = 0.1}, {"milestones"}, function(_, o, who)
  number(o, "gamma", who, 0)
  if type(o.milestones) ~= "table" then
    wrong(who, "milestones are a list of steps", o.milestones,
          "milestones = {30, 80}")
  end
  for i in ipairs(o.milestones) do whole(o.milestones, i, who, 0) end
end, {rate = function(self, t, base)
  local n = 0
  for _, m in ipairs(self.o.milestones) do
    if t >= m then n = n + 1 end
  end
  return base * self.o.gamma ^ n
end})

--- optim.schedule.exponential(opt, {gamma}): lr falls by gamma in every step.
closed("exponential", {}, {"gamma"}, function(_, o, who)
  number(o, "gamma", who, 0)
end, {rate = function(self, t, base) return base * self.o.gamma ^ t end})

--- optim.schedule.cosine(opt, {T_max, eta_min = 0}): half a cosine from lr to
-- eta_min in T_max steps (Loshchilov and Hutter 2017, without restarts); it
-- rises again after that.
closed("cosine", {eta_min = 0}, {"T_max"}, function(_, o, who)
  whole(o, "T_max", who, 1)
  number(o, "eta_min", who, 0)
end, {rate = function(self, t, base)
  local low = self.o.eta_min
  return low + (base - low) * (1 + math.cos(math.pi * t / self.o.T_max)) / 2
end})

--- optim.schedule.linear(opt, {start_factor = 1 / 3, end_factor = 1,
-- total_iters = 5}): from start_factor to end_factor of lr in total_iters
-- steps.
closed("linear", {start_factor = 1 / 3, end_factor = 1, total_iters = 5}, {},
       function(_, o, who)
  whole(o, "total_iters", who, 1)
  number(o, "start_factor", who, 0, 1)
  number(o, "end_factor", who, 0, 1)
end, {rate = function(self, t, base)
  local o = self.o
  local part = math.min(t / o.total_iters, 1)
  return base * (o.start_factor + (o.end_factor - o.start_factor) * part)
end})

-- -- One cycle (Smith and Topin 2019) --------------------------------------

local function anneal(o, from, to, part)
  if o.anneal_strategy == "linear" then return from + (to - from) * part end
  return to + (from - to) / 2 * (1 + math.cos(math.pi * part))
end

-- The value at step t where it goes low, high, low, least; `ends` are the
-- steps at which the phases end. Momentum goes the other way.
local function cycle(o, t, values, ends)
  local first = 0
  for k = 1, #ends do
    if t <= ends[k] or k == #ends then
      local part = (t - first) / (ends[k] - first)
      return anneal(o, values[k], values[k + 1], math.min(part, 1))
    end
    first = ends[k]
  end
end

-- What cycles against the lr: cells that can be set tell what there is.
local function inertia_of(group, wanted, who)
  if wanted == false then return nil end
  if group.cells.momentum and not group.off.momentum then return "momentum" end
  if group.cells.beta1 then return "betas" end
  if wanted then
    core.fail(who .. ": the optimizer has no momentum to cycle",
              "leave cycle_momentum out")
  end
end

local function check_cycle(self, o, who)
  whole(o, "total_steps", who, 2)
  number(o, "pct_start", who, 0, 1)
  number(o, "div_factor", who, 1e-30)
  number(o, "final_div_factor", who, 1e-30)
  number(o, "base_momentum", who, 0, 1)
  number(o, "max_momentum", who, 0, 1)
  if o.anneal_strategy ~= "cos" and o.anneal_strategy ~= "linear" then
    wrong(who, 'anneal_strategy is "cos" or "linear"', o.anneal_strategy)
  end
  self.high = per_group(o.max_lr, self, "max_lr")
  local up = o.pct_start * o.total_steps - 1
  local last = o.total_steps - 1
  self.ends = o.three_phase and {up, 2 * up, last} or {up, last}
  local before = 0
  for _, e in ipairs(self.ends) do
    if e <= before then
      wrong(who, "with pct_start = " .. o.pct_start .. " a phase has no steps;"
            .. " total_steps is too small", o.total_steps)
    end
    before = e
  end
  self.inertia = {}
  for i, group in ipairs(self.opt.groups) do
    self.inertia[i] = inertia_of(group, o.cycle_momentum, who)
  end
end

local function cycle_at(self, t, _, i)
  local o, high = self.o, self.high[i]
  local low = high / o.div_factor
  local least = low / o.final_div_factor
  local rates = o.three_phase and {low, high, low, least}
    or {low, high, least}
  local out = {lr = cycle(o, t, rates, self.ends)}
  if self.inertia[i] then
    local a, b = o.max_momentum, o.base_momentum
    local m = cycle(o, t, o.three_phase and {a, b, a, a} or {a, b, a},
                    self.ends)
    if self.inertia[i] == "momentum" then out.momentum = m
    else out.betas = {m, self.opt:get("betas", i)[2]} end
  end
  return out
end

--- optim.schedule.one_cycle(opt, {max_lr, total_steps, pct_start = 0.3,
-- anneal_strategy = "cos", base_momentum = 0.85, max_momentum = 0.95,
-- div_factor = 25, final_div_factor = 1e4, three_phase = false,
-- cycle_momentum}): Smith and Topin 2019.
closed("one_cycle", {pct_start = 0.3, anneal_strategy = "cos",
                     base_momentum = 0.85, max_momentum = 0.95,
                     div_factor = 25, final_div_factor = 1e4,
                     three_phase = false},
       {"max_lr", "total_steps", "cycle_momentum"}, check_cycle,
       {options_at = cycle_at})

-- -- Plateau ---------------------------------------------------------------

local Plateau = setmetatable({kind = "plateau"}, {__index = Schedule})
Plateau.__index, Plateau.__tostring = Plateau, Schedule.__tostring

local plateau_defaults = {
  mode = "min", factor = 0.1, patience = 10, threshold = 1e-4,
  threshold_mode = "rel", cooldown = 0, min_lr = 0, eps = 1e-8,
}

--- optim.schedule.plateau(opt, {mode = "min", factor = 0.1, patience = 10,
-- threshold = 1e-4, threshold_mode = "rel", cooldown = 0, min_lr = 0, eps =
-- 1e-8}): schedule:step(metric) lowers lr by factor after more than patience
-- steps without a better metric (a loss, or with mode = "max" an accuracy).
function M.plateau(opt, o)
  local allowed = {}
  for k in pairs(plateau_defaults) do allowed[#allowed + 1] = k end
  table.sort(allowed)
  local self = new(Plateau, opt, o, allowed, plateau_defaults)
  o = self.o
  if o.mode ~= "min" and o.mode ~= "max" then
    wrong(self.who, 'mode is "min" or "max"', o.mode)
  elseif o.threshold_mode ~= "rel" and o.threshold_mode ~= "abs" then
    wrong(self.who, 'threshold_mode is "rel" or "abs"', o.threshold_mode)
  elseif number(o, "factor", self.who, 0) >= 1 then
    wrong(self.who, "factor is below 1", o.factor)
  end
  whole(o, "patience", self.who, 0)
  whole(o, "cooldown", self.who, 0)
  number(o, "threshold", self.who, 0)
  number(o, "eps", self.who, 0)
  self.low = per_group(o.min_lr, self, "min_lr")
  cell(self, "best", o.mode == "min" and math.huge or -math.huge)
  cell(self, "bad", 0)
  cell(self, "rest", 0)
  return self
end

-- NaN is never better.
local function better(o, a, best)
  local margin = o.threshold
  if o.threshold_mode == "rel" then
    if best == math.huge or best == -math.huge then
      margin = 0
    else
      margin = margin * best -- as PyTorch has it, signed
    end
  end
  if o.mode == "min" then return a < best - margin end
  return a > best + margin
end

local function reduce(self)
  for i = 1, #self.opt.groups do
    local old = self.opt:get("lr", i)
    local lr = math.max(old * self.o.factor, self.low[i])
    if old - lr > self.o.eps then self.opt:set({lr = lr}, i) end
  end
end

function Plateau:step(metric)
  if core.tracing() then
    core.fail("schedule:step cannot be traced", "call it after the traced step")
  end
  local v = metric
  if core.type(v) == "tensor" or core.type(v) == "cell" then v = v:item() end
  if type(v) ~= "number" then
    core.fail("schedule.plateau:step wants the metric, a number, got "
              .. (core.type(v) or type(v)), "s:step(loss)")
  end
  local c, o = self.cells, self.o
  local bad, rest = c.bad:item(), c.rest:item()
  c.t:assign(c.t:item() + 1)
  if better(o, v, c.best:item()) then
    c.best:assign(v)
    bad = 0
  else
    bad = bad + 1
  end
  if rest > 0 then bad, rest = 0, rest - 1 end
  if bad > o.patience then
    reduce(self)
    bad, rest = 0, o.cooldown
  end
  c.bad:assign(bad)
  c.rest:assign(rest)
end

return setmetatable(M, {__index = function(_, key)
  if type(key) ~= "string" then return nil end
  local names = {}
  for name in pairs(M) do names[#names + 1] = name end
  table.sort(names)
  core.fail("there is no schedule '" .. key .. "'" .. core.near(key, names))
end})
