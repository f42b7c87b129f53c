-- Dropout: in training, each value becomes 0 with probability p and the others
-- are scaled so that the mean stays.
local core = require "limn.core"
local read_options = require "limn.options"
local check = require "limn.nn.check"
local Module = require "limn.nn.module"

local limn = require "limn.lazy"

local M = {}

local function probability(p)
  if type(p) ~= "number" or not (p >= 0 and p <= 1) then
    core.fail("dropout: the probability is a number from 0 to 1, got "
              .. tostring(p))
  end
  return p
end

local function drop(x, p)
  if p == 0 then return x end
  local keep = limn.rand_like(x):ge(p)
  -- At p = 1 nothing is kept; 1 / 0 would make the gradient 0 * inf.
  local y = limn.where(keep, x * (p < 1 and 1 / (1 - p) or 0), 0)
  return y
end

--- nn.dropout(x, p = 0.5, training = true), or with {p, training}: each element
-- becomes 0 with probability p, the others are divided by 1 - p.
function M.dropout(x, options, training)
  if type(options) == "number" then
    options = {p = options, training = training}
  end
  options = read_options(options, {"p", "training"}, "dropout")
  if options.training == false then return x end
  local y = drop(x, probability(options.p or 0.5))
  return y
end

--- nn.Dropout(p = 0.5): dropout in training, x itself in eval mode. One graph
-- serves both modes.
local Dropout = Module:extend "Dropout"

function Dropout:init(p)
  if type(p) == "table" then
    p = read_options(p, {"p"}, "Dropout").p
  end
  self.p = probability(p or 0.5)
end

function Dropout:forward(x)
  local p = self.p
  local y = self:when_training(function(v) return (drop(v, p)) end, x)
  return y
end

function Dropout:describe() return tostring(self.p) end

M.Dropout = Dropout

-- -- Whole channels ---------------------------------------------------------

-- As drop, with one draw for all positions of a channel [rows, channels, ...].
local function drop_channels(x, p)
  if p == 0 then return x end
  local size = {x:size(1), x:size(2)}
  for i = 3, x:dim() do size[i] = 1 end
  local keep = limn.rand(size, {dtype = "float32", device = x.device}):ge(p)
  local y = limn.where(keep, x * (p < 1 and 1 / (1 - p) or 0), 0)
  return y
end

--- nn.dropout1d(x, p = 0.5, training = true): dropout of whole channels of
-- [rows, channels, size].
--- nn.dropout2d(x, p = 0.5, training = true): dropout of whole channels of
-- [rows, channels, height, width].
--- nn.Dropout1d(p = 0.5): dropout1d in training.
--- nn.Dropout2d(p = 0.5): dropout2d in training.
local function channel_layer(nd)
  local name = "Dropout" .. nd .. "d"
  local Class = Module:extend(name)
  Class.init, Class.describe = Dropout.init, Dropout.describe
  function Class:forward(x)
    check.fits(self, x, nd + 2, nd + 2, nil, nil, "[rows, channels"
               .. (", position"):rep(nd) .. "]")
    local p = self.p
    local y = self:when_training(function(v)
      return (drop_channels(v, p))
    end, x)
    return y
  end
  M[name] = Class
  M["dropout" .. nd .. "d"] = function(x, options, training)
    if type(options) == "number" then
      options = {p = options, training = training}
    end
    options = read_options(options, {"p", "training"}, name:lower())
    if options.training == false then return x end
    local y = drop_channels(x, probability(options.p or 0.5))
    return y
  end
end
channel_layer(1)
channel_layer(2)

return M
