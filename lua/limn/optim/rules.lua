-- The optimizers' rules, each after its paper and with PyTorch's options.
local core = require "limn.core"
local class = require "limn.optim.base"

local limn = require "limn.lazy"

local M = {}

-- The cell of an option that a step made without it has no term for, or nil.
local function term(group, name)
  if not group.off[name] then return group.cells[name] end
end

--- optim.SGD(params [, {lr = 1e-3, momentum = 0, dampening = 0, weight_decay =
-- 0, nesterov = false}]): gradient descent, with momentum. params is a model, a
-- cell, a list of them, or groups {{params = ..., lr = ...}, ...}.
-- opt:step(grads) takes what value_and_grad gives; opt:set {lr = ...} and
-- opt:get "lr" trace nothing anew. All optimizers take maximize = false.
M.SGD = class("SGD", {
  defaults = {lr = 1e-3, momentum = 0, dampening = 0, weight_decay = 0,
              nesterov = false},
  numbers = {"lr", "momentum", "dampening", "weight_decay"},
  slots_of = function(o)
    if o.nesterov and (o.momentum == 0 or o.dampening ~= 0) then
      core.fail("SGD: nesterov needs a momentum, and no dampening",
                "{momentum = 0.9, nesterov = true}")
    end
    if o.momentum == 0 then return {} end
    -- The first gradient is not dampened; `started` says that it came.
    return o.dampening ~= 0 and {"momentum", {flag = "started"}}
      or {"momentum"}
  end,
  prepare = function(_, group)
    local c = group.cells
    return {lr = c.lr, momentum = c.momentum, decay = term(group,
            "weight_decay"), dampening = c.dampening,
            nesterov = group.settings.nesterov}
  end,
  update = function(_, s, p, g, state)
    if s.decay then g = g + p * s.decay end
    local buf = state.momentum
    if buf then
      local part = g
      if state.started then
        part = g * (1 - s.dampening * state.started)
        state.started:assign(1)
      end
      local m = buf * s.momentum + part
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
    decay = term(group, "weight_decay"), beta1 = c.beta1, beta2 = c.beta2,
    rest1 = 1 - c.beta1, rest2 = 1 - c.beta2, apart = self.apart,
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
--- optim.Adam(params [, {lr = 1e-3, betas = {0.9, 0.999}, eps = 1e-8,
-- weight_decay = 0, amsgrad = false}]): Kingma and Ba 2015.
--- optim.AdamW(params [, {lr, betas, eps, weight_decay = 0.01, amsgrad}]): with
-- the decay apart from the gradient, Loshchilov and Hutter 2019.
M.Adam = adam("Adam", 0, false)
M.AdamW = adam("AdamW", 0.01, true)

--- optim.RMSprop(params [, {lr = 0.01, alpha = 0.99, eps = 1e-8, weight_decay =
-- 0, momentum = 0, centered = false}]): Tieleman and Hinton 2012; centered
-- subtracts the mean, Graves 2013.
M.RMSprop = class("RMSprop", {
  defaults = {lr = 0.01, alpha = 0.99, eps = 1e-8, weight_decay = 0,
              momentum = 0, centered = false},
  numbers = {"lr", "alpha", "eps", "weight_decay", "momentum"},
  slots_of = function(o)
    local list = {"v"}
    if o.momentum ~= 0 then list[#list + 1] = "momentum" end
    if o.centered then list[#list + 1] = "mean" end
    return list
  end,
  prepare = function(_, group)
    local c = group.cells
    return {lr = c.lr, alpha = c.alpha, rest = 1 - c.alpha, eps = c.eps,
            momentum = c.momentum, decay = term(group, "weight_decay")}
  end,
  update = function(_, s, p, g, state)
    if s.decay then g = g + p * s.decay end
    local v = state.v * s.alpha + g:square() * s.rest
    state.v:assign(v)
    if state.mean then
      local mean = state.mean * s.alpha + g * s.rest
      state.mean:assign(mean)
      -- Rounding may take a variance below 0.
      v = (v - mean:square()):clamp {min = 0}
    end
    local step = g / (v:sqrt() + s.eps)
    if state.momentum then
      step = state.momentum * s.momentum + step
      state.momentum:assign(step)
    end
    p:assign(p - step * s.lr)
  end,
})

--- optim.Adagrad(params [, {lr = 0.01, lr_decay = 0, weight_decay = 0, eps =
-- 1e-10, initial_accumulator_value = 0}]): Duchi, Hazan and Singer 2011.
M.Adagrad = class("Adagrad", {
  defaults = {lr = 0.01, lr_decay = 0, weight_decay = 0, eps = 1e-10,
              initial_accumulator_value = 0},
  numbers = {"lr", "lr_decay", "weight_decay", "eps"},
  counts = "lr_decay",
  slots_of = function() return {"sum"} end,
  start = function(o) return o.initial_accumulator_value end,
  prepare = function(_, group, t)
    local c = group.cells
    local fall = term(group, "lr_decay")
    return {lr = fall and c.lr / (1 + (t - 1) * fall) or c.lr, eps = c.eps,
            decay = term(group, "weight_decay")}
  end,
  update = function(_, s, p, g, state)
    if s.decay then g = g + p * s.decay end
    local sum = state.sum + g:square()
    state.sum:assign(sum)
    p:assign(p - g * s.lr / (sum:sqrt() + s.eps))
  end,
})

--- optim.Adadelta(params [, {lr = 1, rho = 0.9, eps = 1e-6, weight_decay =
-- 0}]): Zeiler 2012.
M.Adadelta = class("Adadelta", {
  defaults = {lr = 1, rho = 0.9, eps = 1e-6, weight_decay = 0},
  numbers = {"lr", "rho", "eps", "weight_decay"},
  slots_of = function() return {"v", "delta"} end,
  prepare = function(_, group)
    local c = group.cells
    return {lr = c.lr, rho = c.rho, rest = 1 - c.rho, eps = c.eps,
            decay = term(group, "weight_decay")}
  end,
  update = function(_, s, p, g, state)
    if s.decay then g = g + p * s.decay end
    local v = state.v * s.rho + g:square() * s.rest
    local delta = g * ((state.delta + s.eps):sqrt() / (v + s.eps):sqrt())
    state.v:assign(v)
    state.delta:assign(state.delta * s.rho + delta:square() * s.rest)
    p:assign(p - delta * s.lr)
  end,
})

--- optim.Lion(params [, {lr = 1e-4, betas = {0.9, 0.99}, weight_decay = 0}]):
-- every step has the size lr, only its sign is learned (Chen et al. 2023).
M.Lion = class("Lion", {
  defaults = {lr = 1e-4, betas = {0.9, 0.99}, weight_decay = 0},
  numbers = {"lr", "beta1", "beta2", "weight_decay"},
  slots_of = function() return {"m"} end,
  prepare = function(_, group)
    local c = group.cells
    return {lr = c.lr, beta1 = c.beta1, beta2 = c.beta2, rest1 = 1 - c.beta1,
            rest2 = 1 - c.beta2, decay = term(group, "weight_decay")}
  end,
  update = function(_, s, p, g, state)
    local way = (state.m * s.beta1 + g * s.rest1):sign()
    local w = s.decay and p * (1 - s.lr * s.decay) or p
    state.m:assign(state.m * s.beta2 + g * s.rest2)
    p:assign(w - way * s.lr)
  end,
})

return M
