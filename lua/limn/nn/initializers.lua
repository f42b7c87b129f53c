-- nn.init: give parameters their first values. Each takes a cell, assigns it
-- and returns it.
local core = require "limn.core"

local limn = require "limn.lazy"

local M = {}

-- A tensor of random values: "uniform" in a..b, or "normal" with mean a and
-- deviation b.
function M.values(how, shape, a, b, dtype)
  local options = {dtype = dtype or "float32"}
  if how == "uniform" then
    local x = limn.rand(shape, options) * (b - a) + a
    return x
  end
  local x = limn.randn(shape, options) * b + a
  return x
end

local function fill(cell, how, a, b)
  if core.type(cell) ~= "cell" then
    core.fail("nn.init works on parameters and buffers, got " .. type(cell),
              "nn.init.zeros(net.hidden.bias)")
  end
  cell:assign(M.values(how, cell.shape, a, b, cell.dtype))
  return cell
end

function M.constant(cell, v)
  cell:assign(limn.full(cell.shape, v, {dtype = cell.dtype}))
  return cell
end
function M.zeros(cell) return M.constant(cell, 0) end
function M.ones(cell) return M.constant(cell, 1) end

function M.uniform(cell, low, high)
  return fill(cell, "uniform", low or 0, high or 1)
end
function M.normal(cell, mean, std)
  return fill(cell, "normal", mean or 0, std or 1)
end

-- Values that flow into and out of each unit. Dims after the second are a
-- convolution's window.
local function fans(cell)
  local s = cell.shape
  if #s < 2 then
    core.fail("this initialisation needs two dims or more, got " .. #s,
              "nn.init.uniform or nn.init.zeros suit a bias")
  end
  local window = 1
  for i = 3, #s do window = window * s[i] end
  return s[2] * window, s[1] * window
end

-- Glorot and Bengio 2010.
function M.xavier_uniform(cell, gain)
  local n_in, n_out = fans(cell)
  local bound = (gain or 1) * math.sqrt(6 / (n_in + n_out))
  return fill(cell, "uniform", -bound, bound)
end
function M.xavier_normal(cell, gain)
  local n_in, n_out = fans(cell)
  return fill(cell, "normal", 0, (gain or 1) * math.sqrt(2 / (n_in + n_out)))
end

-- He et al. 2015; the gain fits relu.
function M.kaiming_uniform(cell, gain)
  local bound = (gain or math.sqrt(2)) * math.sqrt(3 / (fans(cell)))
  return fill(cell, "uniform", -bound, bound)
end
function M.kaiming_normal(cell, gain)
  return fill(cell, "normal", 0,
              (gain or math.sqrt(2)) / math.sqrt((fans(cell))))
end

return M
