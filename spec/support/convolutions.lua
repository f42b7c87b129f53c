-- luajit spec/support/convolutions.lua DEVICE [DTYPE]: conv, conv_transpose and
-- conv_weights on a device, each result against sums in plain Lua. The sizes
-- choose between the tiles of kernels/conv.k, and sums in one part or several.
package.path = "lua/?.lua;lua/?/init.lua;spec/?.lua;" .. package.path
local limn = require "limn"
local U = require "support.util"

local device, only = arg[1], arg[2]
local next_number = U.random(7)

-- Small whole numbers: their sums are exact in every dtype but int8's.
local function numbers(n)
  local out = {}
  for i = 1, n do out[i] = math.floor(next_number() * 3) end
  return out
end

-- f(place, ...) for all places of a list of sizes, 0-based.
local function each(sizes, f)
  local at = {}
  local function walk(d)
    if d > #sizes then return f(at) end
    for i = 0, sizes[d] - 1 do
      at[d] = i
      walk(d + 1)
    end
  end
  walk(1)
end

local function index(shape, first, second, at)
  local i = first * shape[2] + second
  for d = 1, #at do i = i * shape[d + 2] + at[d] end
  return i + 1
end

-- All terms of a convolution: f(index in x, in w, in y).
local function terms(c, f)
  local outs, position = c.w[1] / c.groups, {}
  local window, positions = {unpack(c.w, 3)}, {unpack(c.y, 3)}
  each(positions, function(p)
    each(window, function(k)
      for d = 1, #p do
        position[d] = p[d] * c.stride[d] - c.padding[d] + k[d] * c.dilation[d]
        if position[d] < 0 or position[d] >= c.x[d + 2] then return end
      end
      for row = 0, c.x[1] - 1 do
        for o = 0, c.w[1] - 1 do
          for i = 0, c.w[2] - 1 do
            local channel = math.floor(o / outs) * c.w[2] + i
            f(index(c.x, row, channel, position), index(c.w, o, i, k),
              index(c.y, row, o, p))
          end
        end
      end
    end)
  end)
end

-- x [rows, groups * ins, size...], w [groups * outs, ins, window...].
local function case(rows, groups, ins, outs, size, window, o)
  o = o or {}
  local c = {groups = groups, x = {rows, groups * ins},
             w = {groups * outs, ins}, y = {rows, groups * outs}, more = {}}
  for _, name in ipairs {"stride", "padding", "dilation"} do
    local list, least = {}, name == "padding" and 0 or 1
    for d = 1, #size do list[d] = o[name] and o[name][d] or least end
    c[name] = list
  end
  for d = 1, #size do
    local span = (window[d] - 1) * c.dilation[d] + 1
    local room = size[d] + 2 * c.padding[d] - span
    c.x[d + 2], c.w[d + 2] = size[d], window[d]
    c.y[d + 2] = math.floor(room / c.stride[d]) + 1
    c.more[d] = room % c.stride[d]
  end
  return c
end

local n = 0
local function check(what, c, dtype, got, want)
  if device ~= "cpu" then got = got:to "cpu" end
  got = U.flat(got:to "float64")
  for i = 1, #want do
    if got[i] ~= want[i] then
      error(("%s of %s, x %s, w %s: element %d is %s, not %s"):format(
        what, dtype, table.concat(c.x, " "), table.concat(c.w, " "), i, got[i],
        want[i]))
    end
  end
  assert(#got == #want)
  n = n + 1
end

local function run(c, dtype)
  local list, dev, want = {}, {}, {}
  for _, k in ipairs {"x", "w", "y"} do
    list[k] = numbers(U.numel(c[k]))
    dev[k] = U.tensor(list[k], c[k], dtype, device)
    want[k] = {}
    for i = 1, #list[k] do want[k][i] = 0 end
  end
  terms(c, function(x, w, y)
    want.y[y] = want.y[y] + list.x[x] * list.w[w]
    want.x[x] = want.x[x] + list.y[y] * list.w[w]
    want.w[w] = want.w[w] + list.x[x] * list.y[y]
  end)
  if dtype == "int8" then
    for _, t in pairs(want) do
      for i = 1, #t do t[i] = (t[i] + 128) % 256 - 128 end
    end
  end
  check("conv", c, dtype, limn.conv(dev.x, dev.w, c.stride, c.padding,
                                    c.dilation, c.groups), want.y)
  check("conv_transpose", c, dtype, limn.conv_transpose(
    dev.y, dev.w, c.stride, c.padding, c.more, c.dilation, c.groups), want.x)
  check("conv_weights", c, dtype, limn.conv_weights(
    dev.x, dev.y, dev.w, c.stride, c.padding, c.dilation, c.groups), want.w)
end

local plain = case(2, 1, 3, 5, {6, 7}, {3, 2}, {padding = {1, 1}})
for _, dtype in ipairs {"float64", "float32", "float16", "bfloat16", "int64",
                        "int32", "int8", "uint8"} do
  if not only or only == dtype then run(plain, dtype) end
end
if not only then
  for _, c in ipairs {
    case(1, 1, 70, 66, {5, 5}, {3, 3}, {padding = {1, 1}}), -- many channels
    case(3, 1, 2, 20, {9, 30}, {3, 3}), -- few channels
    case(2, 6, 1, 1, {12, 13}, {3, 3}, {padding = {1, 1}}), -- one each
    case(2, 2, 3, 4, {11, 9}, {2, 3}, -- phases, and places that none sees
         {stride = {3, 2}, padding = {2, 1}, dilation = {1, 2}}),
    case(1, 1, 2, 3, {13, 17}, {3, 3}, -- stride and dilation share a factor
         {stride = {4, 2}, padding = {1, 0}, dilation = {2, 4}}),
    case(2, 1, 2, 2, {9}, {2}, {stride = {5}}), -- a stride beyond the window
    case(40, 1, 3, 2, {30}, {5}, {padding = {2}}), -- long sums for few weights
    case(2, 3, 2, 2, {4, 5, 3}, {2, 3, 2}, {stride = {1, 2, 1},
                                            padding = {0, 1, 1}}),
    case(1, 1, 2, 2, {2, 3, 2, 3, 2, 2}, {2, 1, 2, 2, 1, 2},
         {padding = {1, 0, 0, 1, 0, 0}, stride = {2, 1, 1, 2, 1, 1}}),
    case(1, 1, 400, 3, {3, 3}, {3, 3}), -- long sums for few outputs
    case(0, 1, 3, 2, {5, 5}, {3, 3}), -- no rows
    case(2, 1, 0, 2, {5, 5}, {3, 3}), -- no channels
  } do
    run(c, "float32")
  end
  -- Margins that only 64 bits can count.
  local far = 2 ^ 31
  local y = limn.conv(U.tensor({1, 2, 3}, {1, 1, 3}, "float32", device),
                      U.tensor({5}, {1, 1, 1}, "float32", device), {far + 1},
                      {far}, {1}, 1)
  check("a far margin", plain, "float32", y, {0, 10, 0})
end
print(n .. " right")
