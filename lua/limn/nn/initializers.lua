-- nn.init: give parameters their first values. Each takes a cell, assigns it
-- and returns it.
local core = require "limn.core"
local read_options = require "limn.options"

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

--- nn.init.constant(cell, v): all elements v. Each of nn.init assigns the cell
-- and returns it, and exists under PyTorch's name with an underscore too.
function M.constant(cell, v)
  cell:assign(limn.full(cell.shape, v, {dtype = cell.dtype}))
  return cell
end
--- nn.init.zeros(cell): all elements 0.
--- nn.init.ones(cell): all elements 1.
function M.zeros(cell) return M.constant(cell, 0) end
function M.ones(cell) return M.constant(cell, 1) end

--- nn.init.uniform(cell, low = 0, high = 1): uniform values.
function M.uniform(cell, low, high)
  return fill(cell, "uniform", low or 0, high or 1)
end
--- nn.init.normal(cell, mean = 0, std = 1): normal values.
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

--- nn.init.xavier_uniform(cell, gain = 1): uniform within gain * sqrt(6 / (in +
-- out)) (Glorot and Bengio 2010). A convolution's window counts on both sides.
function M.xavier_uniform(cell, gain)
  local n_in, n_out = fans(cell)
  local bound = (gain or 1) * math.sqrt(6 / (n_in + n_out))
  return fill(cell, "uniform", -bound, bound)
end
--- nn.init.xavier_normal(cell, gain = 1): normal with deviation gain * sqrt(2 /
-- (in + out)).
function M.xavier_normal(cell, gain)
  local n_in, n_out = fans(cell)
  return fill(cell, "normal", 0, (gain or 1) * math.sqrt(2 / (n_in + n_out)))
end

--- nn.init.calculate_gain(name [, a]) -> number: the factor that keeps a
-- signal's size through an activation: linear, sigmoid, tanh, relu, selu, or
-- leaky_relu with slope a.
function M.calculate_gain(name, a)
  local gains = {linear = 1, sigmoid = 1, conv1d = 1, conv2d = 1,
                 tanh = 5 / 3, relu = math.sqrt(2), selu = 3 / 4}
  if name == "leaky_relu" then
    return math.sqrt(2 / (1 + (a or 0.01) ^ 2))
  elseif not gains[name] then
    core.fail("calculate_gain: unknown activation '" .. tostring(name) .. "'",
              "linear, sigmoid, tanh, relu, leaky_relu or selu")
  end
  return gains[name]
end

-- Gain over the square root of the fan. `how` is the gain, or a table {a = 0,
-- mode = "fan_in" or "fan_out", nonlinearity = "leaky_relu"}.
local function kaiming(cell, how, who)
  local n_in, n_out = fans(cell)
  if type(how) == "number" then return how / math.sqrt(n_in) end
  local o = read_options(how, {"a", "mode", "nonlinearity"}, who)
  local gain = M.calculate_gain(o.nonlinearity or "leaky_relu", o.a or 0)
  if o.mode ~= nil and o.mode ~= "fan_in" and o.mode ~= "fan_out" then
    core.fail(who .. ": the mode is fan_in or fan_out, got "
              .. tostring(o.mode))
  end
  return gain / math.sqrt(o.mode == "fan_out" and n_out or n_in)
end

--- nn.init.kaiming_uniform(cell [, {a = 0, mode = "fan_in", nonlinearity =
-- "leaky_relu"}]): uniform within gain * sqrt(3 / fan) (He et al. 2015). A
-- number instead of the options is the gain.
function M.kaiming_uniform(cell, how)
  local bound = kaiming(cell, how, "kaiming_uniform") * math.sqrt(3)
  return fill(cell, "uniform", -bound, bound)
end
--- nn.init.kaiming_normal(cell [, options]): normal with deviation gain /
-- sqrt(fan); kaiming_uniform's options.
function M.kaiming_normal(cell, how)
  return fill(cell, "normal", 0, kaiming(cell, how, "kaiming_normal"))
end

--- nn.init.trunc_normal(cell, mean = 0, std = 1, low = -2, high = 2): normal,
-- with what lies outside low..high drawn anew.
function M.trunc_normal(cell, mean, std, low, high)
  mean, std, low, high = mean or 0, std or 1, low or -2, high or 2
  fill(cell, "normal", mean, std)
  for _ = 1, 100 do
    local bad = cell:lt(low):logical_or(cell:gt(high))
    if bad:any():item() == 0 or bad:any():item() == false then break end
    cell:assign(limn.where(bad, M.values("normal", cell.shape, mean, std,
                                         cell.dtype), cell))
  end
  cell:assign(cell:clamp(low, high))
  return cell
end

--- nn.init.eye(cell): ones on the diagonal of a matrix, else 0.
function M.eye(cell)
  local s = cell.shape
  if #s ~= 2 then core.fail("eye needs two dims, got " .. #s) end
  cell:assign(limn.eye(s[1], s[2], {dtype = cell.dtype}))
  return cell
end

--- nn.init.orthogonal(cell, gain = 1): rows (or columns, where there are more
-- rows) that are orthogonal and of length gain; dims after the first count as
-- one (Saxe et al. 2013). By Gram and Schmidt's method, twice over.
function M.orthogonal(cell, gain)
  local s = cell.shape
  if #s < 2 then core.fail("orthogonal needs two dims or more, got " .. #s) end
  local rows, cols = s[1], 1
  for i = 2, #s do cols = cols * s[i] end
  local n, width = math.min(rows, cols), math.max(rows, cols)
  local a, q = limn.randn({n, width}, {dtype = "float64"}), {}
  for i = 1, n do
    local v = a[i]
    for _ = 1, i > 1 and 2 or 0 do
      local before = limn.stack(q, 1)
      v = v - limn.matmul(limn.matmul(before, v), before)
    end
    q[i] = v / v:norm()
  end
  local y = limn.stack(q, 1) * (gain or 1)
  if rows > cols then y = y:t() end
  cell:assign(y:reshape(s):to(cell.dtype))
  return cell
end

-- PyTorch's names.
for _, name in ipairs {"constant", "zeros", "ones", "uniform", "normal",
  "xavier_uniform", "xavier_normal", "kaiming_uniform", "kaiming_normal",
  "trunc_normal", "eye", "orthogonal"} do
  M[name .. "_"] = M[name]
end

return M
