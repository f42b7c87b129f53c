-- EMA: an exponential moving average of a model's weights (Polyak averaging).
-- The averages are cells, so `update` can be recorded with the training step.
--
--   local ema = optim.EMA(net, {decay = 0.999})
--   in each step, after opt:step(grads):   ema:update()
--   to measure with the averages:          ema:swap(function() ... end)
local core = require "limn.core"
local read_options = require "limn.options"
local walk = require "limn.nn.walk"

local limn = require "limn.lazy"

local EMA = {}
EMA.__index = EMA

local function check_decay(v)
  if type(v) ~= "number" or not (v >= 0 and v <= 1) then
    core.fail("EMA: decay is a number from 0 to 1, got " .. tostring(v))
  end
  return v
end

local function state(self, name, value)
  local c = core.cell("state", value)
  c.name = "ema." .. name
  self.order[#self.order + 1] = c
  return c
end

--- optim.EMA(net [, {decay = 0.999, warmup = false}]): a moving average of the
-- weights: ema:update() in each step, ema:swap(f) to run f with the averages.
-- With warmup the decay is at most (1 + t) / (10 + t) in step t, so that a
-- short run forgets its start.
local function new(net, options)
  options = read_options(options, {"decay", "warmup"}, "optim.EMA")
  local decay = check_decay(options.decay or 0.999)
  if (type(net) ~= "table" and type(net) ~= "userdata")
    or core.type(net) == "tensor" or core.type(net) == "cell"
    or walk.kind(net) == "class" or walk.kind(net) == "table" then
    core.fail("optim.EMA wants a model, got " .. (core.type(net)
              or type(net)), "optim.EMA(net, {decay = 0.999})")
  end
  local self = setmetatable({pairs = {}, order = {}}, EMA)
  for name, p in net:named_parameters() do
    self.pairs[#self.pairs + 1] = {p, state(self, name, p:value())}
  end
  if #self.pairs == 0 then core.fail("optim.EMA: the model has no parameters")
  end
  self.decay = state(self, "decay",
                     limn.full({}, decay, {dtype = "float32"}))
  if options.warmup then
    self.t = state(self, "t", limn.zeros({}, {dtype = "float32"}))
  end
  return self
end

-- Take the weights of now into the averages.
function EMA:update()
  local decay = self.decay
  if self.t then
    local t = self.t + 1
    self.t:assign(t)
    decay = limn.minimum(decay, (1 + t) / (10 + t))
  end
  local rest = 1 - decay
  for _, pair in ipairs(self.pairs) do
    local p, mean = pair[1], pair[2]
    mean:assign(mean + (p - mean) * rest)
  end
end

-- Another decay; nothing is traced again.
function EMA:set(options)
  options = read_options(options, {"decay"}, "ema:set")
  if options.decay ~= nil then self.decay:assign(check_decay(options.decay)) end
end

-- Make the averages the model's weights.
function EMA:apply()
  for _, pair in ipairs(self.pairs) do pair[1]:assign(pair[2]) end
end

local function exchange(self)
  for _, pair in ipairs(self.pairs) do
    local p = pair[1]:value()
    pair[1]:assign(pair[2])
    pair[2]:assign(p)
  end
end

local function back(self, ok, ...)
  exchange(self)
  if not ok then error(..., 0) end
  return ...
end

-- Exchange weights and averages; a second swap undoes it. With a function, call
-- it between the two, and return its results.
function EMA:swap(f, ...)
  exchange(self)
  if f == nil then return end
  return back(self, pcall(f, ...))
end

-- for path, cell in ema:named_cells() do: the state, as a file stores it.
function EMA:named_cells()
  local list = {}
  for i, c in ipairs(self.order) do list[i] = {c.name, c, self} end
  return walk.each(list)
end

function EMA:__tostring()
  return ("EMA of %d parameters {decay = %.6g}"):format(#self.pairs,
    self.decay:item())
end

return new
