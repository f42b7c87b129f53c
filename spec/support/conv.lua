-- Convolutions by definition, in plain Lua: each pair of a position and a tap
-- adds one product to the result, and one to the gradient of either operand.
local U = require "support.util"
local limn = U.limn

local D = {}

-- rows, channels and results of a group, groups; then size, kernel, stride,
-- padding and dilation of each dim.
D.cases = {
  {2, 3, 4, 1, {{17, 3, 1, 1, 1}}},
  {3, 2, 3, 2, {{70, 5, 2, 3, 2}}},
  {2, 4, 5, 1, {{9, 3, 2, 1, 1}, {11, 2, 1, 0, 1}}},
  {1, 1, 2, 3, {{8, 3, 1, 1, 1}, {9, 3, 2, 1, 1}}},
  {2, 2, 3, 1, {{5, 3, 1, 1, 1}, {6, 2, 3, 2, 2}, {7, 4, 2, 1, 1}}},
  {5, 3, 2, 1, {{3, 1, 1, 0, 1}, {4, 1, 1, 0, 1}}},
  {2, 3, 2, 1, {{12, 1, 2, 0, 1}, {9, 1, 3, 1, 1}}},
  {2, 17, 18, 1, {{9, 3, 1, 1, 1}, {10, 3, 1, 1, 1}}},
  {2, 16, 16, 1, {{5, 3, 1, 2, 1}, {3, 3, 1, 0, 1}}},
  {1, 40, 33, 1, {{6, 3, 1, 1, 1}, {13, 3, 1, 1, 2}}},
  {0, 2, 2, 1, {{5, 3, 1, 0, 1}}},
  {2, 1, 1, 9, {{7, 3, 1, 1, 1}, {36, 3, 1, 1, 1}}},
  {1, 1, 1, 3, {{150, 5, 2, 2, 1}}},
  {1, 2, 4, 2, {{5, 3, 1, 1, 1}, {9, 5, 2, 1, 1}}},
}

local function count(t)
  local n = 1
  for _, v in ipairs(t) do n = n * v end
  return n
end

local function shape(a, b, dims)
  local s = {a, b}
  for _, v in ipairs(dims) do s[#s + 1] = v end
  return s
end

local function zeros(n)
  local t = {}
  for i = 1, n do t[i] = 0 end
  return t
end

-- fn(position, tap, where in the source it reads), all from 0.
local function each_pair(k, fn)
  for p = 0, count(k.out) - 1 do
    for t = 0, count(k.kernel) - 1 do
      local at, stride, pp, tt = 0, 1, p, t
      for i = #k.size, 1, -1 do
        local j = pp % k.out[i] * k.stride[i] +
          tt % k.kernel[i] * k.dilation[i] - k.padding[i]
        pp, tt = math.floor(pp / k.out[i]), math.floor(tt / k.kernel[i])
        if j < 0 or j >= k.size[i] then at = nil end
        at = at and at + j * stride
        stride = stride * k.size[i]
      end
      if at then fn(p, t, at) end
    end
  end
end

-- The result and the gradients of x and w, from x, w and the result's g.
local function define(k, x, w, g)
  local S, K, P = count(k.size), count(k.kernel), count(k.out)
  local y, gx, gw = zeros(k.rows * k.O * P), zeros(#x), zeros(#w)
  each_pair(k, function(p, t, s)
    for row = 0, k.rows - 1 do
      for o = 0, k.O - 1 do
        local yi = (row * k.O + o) * P + p + 1
        for c = 0, k.c - 1 do
          local from = math.floor(o / k.o) * k.c + c
          local xi = (row * k.C + from) * S + s + 1
          local wi = (o * k.c + c) * K + t + 1
          y[yi] = y[yi] + x[xi] * w[wi]
          gx[xi] = gx[xi] + g[yi] * w[wi]
          gw[wi] = gw[wi] + g[yi] * x[xi]
        end
      end
    end
  end)
  return y, gx, gw
end

local function read(case)
  local k = {rows = case[1], c = case[2], o = case[3], groups = case[4],
             size = {}, kernel = {}, stride = {}, padding = {}, dilation = {},
             out = {}, more = {}}
  k.C, k.O = k.c * k.groups, k.o * k.groups
  for i, d in ipairs(case[5]) do
    local span = (d[2] - 1) * d[5] + 1
    k.size[i], k.kernel[i], k.stride[i], k.padding[i], k.dilation[i] = unpack(d)
    k.out[i] = math.floor((d[1] + 2 * d[4] - span) / d[3]) + 1
    k.more[i] = d[1] - ((k.out[i] - 1) * d[3] - 2 * d[4] + span)
  end
  return k
end

-- Whole numbers so small that sums are exact in every dtype; of ints some that
-- wrap.
local function numbers(s, dtype, dev)
  local most = dtype:find "int" and 9 or 1
  return limn.randint(-most, most, s, "int64"):to(dtype):to(dev)
end

local function same(y, want, s, how)
  U.shape(y, s, how)
  local bits = tostring(y.dtype):match "int8$" and 256
  local unsigned = tostring(y.dtype) == "uint8"
  for i = 1, bits and #want or 0 do
    local v = want[i] % 256
    want[i] = (v > 127 and not unsigned) and v - 256 or v
  end
  U.equal(y:to "float64", want, how)
end

function D.check(case, dtype, dev)
  local k = read(case)
  local x = numbers(shape(k.rows, k.C, k.size), dtype, dev)
  local w = numbers(shape(k.O, k.c, k.kernel), dtype, dev)
  local g = numbers(shape(k.rows, k.O, k.out), dtype, dev)
  local y, gx, gw = define(k, U.flat(x), U.flat(w), U.flat(g))
  local how = ("%s on %s: %d x %d, %d groups, of {%s} by {%s}"):format(dtype,
    dev, k.C, k.O, k.groups, table.concat(k.size, " "),
    table.concat(k.kernel, " "))
  local by = {groups = k.groups}
  same(limn.conv(x, w, k.stride, k.padding, k.dilation, by), y,
       shape(k.rows, k.O, k.out), how)
  same(limn.conv_transpose(g, w, k.stride, k.padding, k.more, k.dilation, by),
       gx, shape(k.rows, k.C, k.size), how .. ", transposed")
  same(limn.conv_weights(x, g, w, k.stride, k.padding, k.dilation, by), gw,
       w.shape, how .. ", weights")
end

return D
