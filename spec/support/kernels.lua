-- Runs, on the device that arg names, a little of everything that has a kernel:
-- each op and dtype (or those named after the device), most of them fused, and
-- the shapes that choose between kernels. Only the sources are of interest.
package.path = "lua/?.lua;lua/?/init.lua;spec/?.lua;" .. package.path
local limn = require "limn"
local nn = require "limn.nn"
local core = require "limn.core"
local T = require "support.optable"

local device = arg[1]
local every = {"float64", "float32", "float16", "bfloat16", "int64", "int32",
               "int8", "uint8", "bool"}
local floats = {float64 = true, float32 = true, float16 = true,
                bfloat16 = true}

local function make(shape, dtype)
  return limn.ones(shape, {dtype = dtype, device = device})
end

local function elementwise(dtype)
  for part = 0, 3 do -- a group has its limits
    local function all(x, y, z)
      local out, n = {}, 0
      for row in T.each "E" do
        n = n + 1
        if n % 4 == part and T.takes(row, dtype) then
          local a = row.name == "where" and x:ne(0) or x
          out[#out + 1] = core.ops[row.name](unpack({a, y, z}, 1, row.arity))
        end
      end
      return out
    end
    limn.trace(all, make({2, 3}, dtype), make({2, 3}, dtype),
               make({2, 3}, dtype))(make({4, 5}, dtype), make({1, 5}, dtype),
                                    make({5, 4}, dtype):t())
  end
  for _, to in ipairs(every) do make({3}, dtype):to(to) end
end

local function lines(dtype)
  local x = make({3, 40, 5}, dtype)
  for row in T.each "R" do
    if row.rule == "LOG" or dtype ~= "bool" then
      for _, dim in ipairs {1, 2, 3} do core.ops[row.name](x, {dim = dim}) end
      core.ops[row.name](make({2 ^ 20}, dtype)) -- in two kernels
    end
  end
  if dtype == "bool" then return end
  for _, dim in ipairs {2, 3} do
    x:argmax(dim)
    x:argmin(dim)
    x:argsort(dim)
    x:argsort {dim = dim, descending = true}
    x:cumsum(dim)
    x:cumprod(dim)
    x:cummax(dim)
    core.ops.cummin(x, dim)
    x:logcumsumexp(dim)
    if floats[dtype] then
      x:softmax(dim)
      x:log_softmax(dim)
    end
  end
end

local function indices(dtype)
  local x, v = make({4, 6}, dtype), make({4, 3}, dtype)
  local list = limn.tensor({1, 2, 2}, "int64"):to(device)
  local at = limn.ones({4, 3}, {dtype = "int64", device = device})
  x:index_select(2, list)
  x:gather(2, at)
  if dtype == "bool" then return end
  x:index_add(2, list, v)
  x:scatter_add(2, at, v)
  x:scatter(2, at, v)
end

local function products(dtype)
  local x, w = make({70, 30}, dtype), make({30, 90}, dtype)
  x:matmul(w)
  x:t():matmul(make({70, 2}, dtype))
  make({3, 8, 5}, dtype):matmul(make({5, 4}, dtype))
  make({1, 300}, dtype):matmul(make({300, 1}, dtype))
  for n = 1, 3 do -- dims of a window
    local one, zero, sizes = {1, 1, 1}, {0, 0, 0}, {2, 4, 9, 9, 9}
    local v = make({unpack(sizes, 1, n + 2)}, dtype)
    local k = make({4, 4, unpack(one, 1, n)}, dtype)
    one, zero = {unpack(one, 1, n)}, {unpack(zero, 1, n)}
    limn.conv(v, k, one, zero, one, 1)
    limn.conv_transpose(v, k, one, zero, zero, one, 1)
    limn.conv_weights(v, v, k, one, zero, one, 1)
  end
  -- Margins that only 64 bits can count.
  local far, three = 2 ^ 31, make({1, 1, 3}, dtype)
  local single = make({1, 1, 1}, dtype)
  limn.conv(three, single, {far + 1}, {far}, {1}, 1)
  limn.conv_transpose(three, single, {far + 1}, {far}, {0}, {1}, 1)
  limn.conv_weights(three, three, single, {far + 1}, {far}, {1}, 1)
  if not floats[dtype] then return end
  nn.linear(x, w:t(), make({90}, dtype)):relu()
  local image = make({2, 3, 9, 9}, dtype)
  local kernel = make({4, 3, 3, 3}, dtype)
  limn.value_and_grad(function()
    return nn.conv2d(image, kernel, nil, {padding = 1}):relu():sum()
  end, {image, kernel})()
  nn.max_pool2d(image, 2)
  nn.avg_pool2d(image, 2)
  for _, n in ipairs {6, 3000} do
    local a, b, c = make({5, n}, dtype), make({n}, dtype), make({n}, dtype)
    limn.value_and_grad(function()
      return (limn.layer_norm(a, b, c) + limn.rms_norm(a, b)):sum()
    end, {a, b, c})()
  end
end

local function generators(dtype)
  local o = {dtype = dtype, device = device}
  limn.arange(1, 10, o)
  limn.randint(1, 6, {7}, o)
  limn.rand_bits({7}, {device = device})
  if not floats[dtype] then return end
  limn.trace(function(x) -- reads nothing
    return (-limn.full_like(x, 2, {dtype = "float64"})):sum()
  end, make({4}, dtype))(make({9}, dtype))
  limn.rand({7}, o)
  limn.randn({7}, o)
  limn.trace(function(x) return (limn.rand_like(x) * x):sum() end,
             make({4}, dtype))(make({9}, dtype))
end

for _, dtype in ipairs(arg[2] and {unpack(arg, 2)} or every) do
  elementwise(dtype)
  lines(dtype)
  indices(dtype)
  if dtype ~= "bool" then
    products(dtype)
    generators(dtype)
  end
end
-- Views whose elements lie further apart than 32 bits reach.
local far = make({2 ^ 16, 2 ^ 15 + 1}, "int8")
far:t():add(1)
far:sum(2)
