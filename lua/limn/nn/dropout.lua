-- Dropout: in training, each value becomes 0 with probability p and the others
-- are scaled so that the mean stays.
local core = require "limn.core"
local read_options = require "limn.options"
local Module = require "limn.nn.module"

local limn = require "limn.lazy"

local M = {}

local function check(p)
  if type(p) ~= "number" or not (p >= 0 and p <= 1) then
    core.fail("dropout: the probability is a number from 0 to 1, got "
              .. tostring(p))
  end
  return p
end

local function drop(x, p)
  local keep = limn.rand_like(x):ge(p)
  -- At p = 1 nothing is kept; 1 / 0 would make the gradient 0 * inf.
  local y = limn.where(keep, x * (p < 1 and 1 / (1 - p) or 0), 0)
  return y
end

-- dropout(x, p, training), or dropout(x, {p = 0.5, training = true})
function M.dropout(x, options, training)
  if type(options) == "number" then
    options = {p = options, training = training}
  end
  options = read_options(options, {"p", "training"}, "dropout")
  if options.training == false then return x end
  local y = drop(x, check(options.p or 0.5))
  return y
end

local Dropout = Module:extend "Dropout"

function Dropout:init(p)
  if type(p) == "table" then
    p = read_options(p, {"p"}, "Dropout").p
  end
  self.p = check(p or 0.5)
end

-- One graph serves both modes: the mode chooses at plan time.
function Dropout:forward(x)
  local mode = self:mode()
  if core.tracing() then
    local y = limn.where(mode:read(), drop(x, self.p), x)
    return y
  elseif mode:get() then
    local y = drop(x, self.p)
    return y
  end
  limn.rand(0) -- take the draw that a trace takes, so that words stay equal
  return x
end

function Dropout:describe() return tostring(self.p) end

M.Dropout = Dropout
return M
