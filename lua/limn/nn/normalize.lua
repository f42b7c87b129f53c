-- Normalize: shift and scale inputs to mean 0 and deviation 1, by numbers that
-- ship with the model as buffers.
local core = require "limn.core"
local read_options = require "limn.options"
local Module = require "limn.nn.module"

local limn = require "limn.lazy"

local M = {}

local Normalize = Module:extend "Normalize"

local function to_tensor(v, what)
  if type(v) == "number" or type(v) == "table" then v = limn.tensor(v) end
  if core.type(v) ~= "tensor" then
    core.fail("Normalize: " .. what .. " is a tensor or a number, got "
              .. (core.type(v) or type(v)))
  end
  return v:to "float32"
end

-- Mean and deviation of x over `dim`, counted in float64.
local function measure(x, dim)
  local wide = x:to "float64"
  if x:numel() == 0 then
    core.fail("Normalize: the data has no rows to measure")
  end
  local keep = type(dim) == "table" or dim ~= 1 -- dim 1 are the rows
  local mean = wide:mean(dim, keep)
  local std = wide:std(dim, false, keep)
  if not mean:isfinite():all():item() then
    core.fail("Normalize: the data holds NaN or infinity",
              "data.read_csv's {missing = 0} fills what is absent")
  end
  return mean, std
end

--- nn.Normalize(x [, {dim = 1}]): shift and scale inputs by the mean and
-- deviation of the training data x, which ship with the model. dim says what
-- the mean is taken over (1: each column has its own; {1, 3, 4}: each channel).
-- nn.Normalize {mean = m, std = s} takes given numbers. What is constant in x
-- becomes 0. Buffers: mean, std.
function Normalize:init(x, options)
  local mean, std
  if type(x) == "table" and not getmetatable(x) and (x.mean or x.std) then
    local o = read_options(x, {"mean", "std"}, "Normalize")
    mean, std = to_tensor(o.mean or 0, "mean"), to_tensor(o.std or 1, "std")
  elseif core.type(x) == "tensor" or type(x) == "table" then
    options = read_options(options, {"dim"}, "Normalize")
    if type(x) == "table" then x = limn.tensor(x) end
    mean, std = measure(x, options.dim or 1)
  else
    core.fail("Normalize wants the data to measure, got " .. (core.type(x)
              or type(x)), "nn.Normalize(x), or nn.Normalize {mean = 0.5, "
              .. "std = 0.2}")
  end
  std = limn.where(std:gt(0), std, 1)
  self.mean = core.cell("buffer", mean:to "float32":to "cpu")
  self.std = core.cell("buffer", std:to "float32":to "cpu")
end

function Normalize:forward(x)
  local y = (x - self.mean) / self.std
  return y
end

-- From normalized values back to the data's.
function Normalize:inverse(y)
  local x = y * self.std + self.mean
  return x
end

function Normalize:describe()
  return "[" .. table.concat(self.mean.shape, ", ") .. "]"
end

M.Normalize = Normalize
return M
