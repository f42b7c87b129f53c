-- Ops and options of layers beyond the goldens, against numbers worked out by
-- hand or by plain Lua, eager and traced on another size, on every device.
local U = require "support.util"
local limn = U.limn
local nn = limn.nn

-- f(inputs...) gives the lists in `want`, eager and from a graph that was
-- traced with `example`.
local function check(f, example, inputs, want, tol)
  U.each_device(function(dev)
    local function on(list)
      local out = {}
      for i, v in ipairs(list) do out[i] = v:to(dev) end
      return unpack(out)
    end
    local g = limn.trace(f, on(example))
    for k, got in ipairs {{f(on(inputs))}, {g(on(inputs))}} do
      for i = 1, #want do
        U.close(got[i], want[i], tol or 1e-6, nil,
                (k == 1 and "eager" or "traced") .. " on " .. dev .. ", " .. i)
      end
    end
  end)
end

local T = limn.tensor

describe("Order", function()
  it("kthvalue and median, with NaN", function()
    local x = T {{5, 1, 3, 2}, {7, 7, 0, 9}}
    check(function(v)
      local a, b = v:kthvalue(2)
      local c, d = v:median(-1)
      local e, f = v:median(1, {keepdim = true})
      return a, b, c, d, e, f, v:median()
    end, {limn.randn(3, 6)}, {x}, {{2, 7}, {4, 1}, {2, 7}, {4, 1},
      {5, 1, 0, 2}, {1, 1, 2, 1}, {3}})
    check(function(v)
      local y = v:median()
      return y, (v:median(1))
    end, {limn.randn(2)}, {T {1, 0 / 0, 3}}, {{0 / 0}, {0 / 0}})
    U.equal(limn.grad(function(v) return (v:median()) end)(T {5, 1, 3}),
            {0, 0, 1})
    U.message(function() x:kthvalue(5) end, "kthvalue", "number 5 of dim 2",
              "has 4")
    local g = limn.trace(function(v) return (v:kthvalue(3)) end, x)
    U.message(function() g(limn.ones(2, 2)) end, "kthvalue", "number 3")
  end)

  it("einsum repeats dims of 1, and sort takes one number", function()
    check(function(a, b, c)
      return limn.einsum("ij,jk->ik", a, b), limn.einsum("ij,ij->j", a, c)
    end, {limn.randn(2, 5), limn.randn(1, 2), limn.randn(1, 5)},
      {T {{1, 2, 3}, {4, 5, 6}}, T {{10, 1}}, T {{1, 2, 0}}},
      {{60, 6, 150, 15}, {5, 14, 0}})
    local y, at = T {7}[1]:sort()
    U.equal(y, {7})
    U.equal(at, {1})
    U.shape(y, {})
  end)

  it("searchsorted and bucketize count from 1", function()
    check(function(s, v)
      return limn.searchsorted(s, v), limn.searchsorted(s, v, {right = true}),
        v:bucketize(s), v:bucketize(s, {right = true}),
        limn.searchsorted(s, 4)
    end, {T {1, 2}, T {1, 2, 3}}, {T {1, 3, 5, 7}, T {3, 6, 0, 9}},
      {{2, 4, 1, 5}, {3, 4, 1, 5}, {2, 4, 1, 5}, {3, 4, 1, 5}, {3}})
    U.equal(limn.searchsorted(T {{1, 2, 3}, {5, 6, 7}}, T {{2, 9}, {2, 6}}),
            {2, 4, 1, 2})
    U.equal(T {0.5, 2.5}:bucketize {1, 2}, {1, 3})
    assert.are.equal("int64", limn.searchsorted(T {1}, T {1}).dtype)
  end)

  it("searchsorted puts NaN where sort does", function()
    local nan = 0 / 0
    check(function(s, v)
      return limn.searchsorted(s, v), limn.searchsorted(s, v, {right = true}),
        limn.searchsorted(s, nan), limn.searchsorted(s, nan, {right = true})
    end, {T {1, 2}, T {1, 2, 3}}, {T {1, 3, nan}, T {3, nan, 0, 9}},
      {{2, 3, 1, 3}, {3, 4, 1, 3}, {3}, {4}})
  end)
end)

describe("scatter_reduce", function()
  it("reduces what falls on one place, with its value or without", function()
    local x, i = T {1, 2, 3, 4}, T({1, 1, 2, 4, 1}, "int64")
    local s = T {5, -6, 7, 0, 1}
    for how, want in pairs {
      sum = {{1, 9, 3, 4}, {0, 7, 3, 0}},
      mean = {{0.25, 4.5, 3, 2}, {0, 7, 3, 0}},
      amax = {{5, 7, 3, 4}, {5, 7, 3, 0}},
      amin = {{-6, 2, 3, 0}, {-6, 7, 3, 0}},
    } do
      check(function(a, b, c)
        return a:scatter_reduce(1, b, c, how),
          a:scatter_reduce(1, b, c, how, {include_self = false})
      end, {limn.randn(3), T({1, 2}, "int64"), limn.randn(2)}, {x, i, s}, want)
    end
    local rows = limn.zeros(2, 3):scatter_reduce(2,
      T({{1, 1}, {3, 3}}, "int64"), T {{1, 4}, {-2, -5}}, "amax")
    U.equal(rows, {4, 0, 0, 0, 0, 0})
    U.equal(T {1, 5}:scatter_reduce(1, T({1, 1}, "int64"), T {0 / 0, 2},
                                    "amin"), {0 / 0, 5})
    U.equal(T({7, 1}, "int32"):scatter_reduce(1, T({1}, "int64"),
                                              T({2}, "int32"), "mean"), {4, 1})
    U.message(function() x:scatter_reduce(1, i, s, "prod") end, "amax")
  end)

  it("has the gradient of finite differences", function()
    local i = T({1, 1, 2, 4, 1}, "int64")
    for _, how in ipairs {"sum", "mean", "amax", "amin"} do
      for _, whole in ipairs {true, false} do
        local function f(v)
          local y = v[{{1, 4}}]:scatter_reduce(1, i, v[{{5, 9}}], how,
                                               {include_self = whole})
          return (y * limn.arange(1, 4)):sum()
        end
        local v = {1, 2, 3, 4, 5, -6, 7, 0.5, 1.5}
        local want = {}
        for k = 1, 9 do
          local up, down = {unpack(v)}, {unpack(v)}
          up[k], down[k] = v[k] + 0.125, v[k] - 0.125
          want[k] = (f(T(up, "float64")):item() - f(T(down, "float64")):item())
            * 4
        end
        U.close(limn.grad(f)(T(v, "float64")), want, 1e-9, 1,
                how .. ", " .. tostring(whole))
      end
    end
  end)
end)

describe("Arithmetic", function()
  it("lerp, addcmul, addcdiv", function()
    check(function(x, y, w)
      return x:lerp(y, 0.25), x:lerp(y, w), x:addcmul(y, w),
        x:addcmul(y, w, {value = 2}), x:addcdiv(y, w, {value = -1})
    end, {limn.randn(5), limn.randn(5), limn.randn(5)},
      {T {0, 10}, T {4, 20}, T {0.5, 1}},
      {{1, 12.5}, {2, 20}, {2, 30}, {4, 50}, {-8, -10}})
    -- A weight of 1 gives the end itself, though the difference rounds.
    U.equal(T {1e8}:lerp(T {1}, 1), {1})
    local h = T({300, 2}, "float16"):addcmul(T({300, 1}, "float16"),
      T({300, 1}, "float16"), {value = 0.01})
    U.equal(h, {1200, 2.009765625})
  end)

  it("cross", function()
    check(function(x, y) return x:cross(y), y:cross(x, {dim = -1}) end,
      {limn.randn(4, 3), limn.randn(4, 3)},
      {T {{1, 0, 0}, {1, 2, 3}}, T {{0, 1, 0}, {4, 5, 6}}},
      {{0, 0, 1, -3, 6, -3}, {0, 0, -1, 3, -6, 3}})
    U.equal(T {{1}, {0}, {0}}:cross(T {{0}, {1}, {0}}, {dim = 1}), {0, 0, 1})
    U.message(function() T {1, 2}:cross(T {1, 2}) end, "cross", "of 2")
  end)

  it("nan_to_num takes the largest of each dtype", function()
    U.each_device(function(dev)
      local most = {float16 = 65504, bfloat16 = 3.3895313892515355e38,
        float32 = 3.4028234663852886e38, float64 = 1.7976931348623157e308}
      local function f(x) return x:nan_to_num(), x:nan_to_num {nan = 7,
        posinf = 1, neginf = -2} end
      local g = limn.trace(f, limn.ones(2))
      for dtype, v in pairs(most) do
        local x = T({0 / 0, math.huge, -math.huge, 3}, dtype, dev)
        for _, got in ipairs {{f(x)}, {g(x)}} do
          U.equal(got[1]:to "float64", {0, v, -v, 3}, dtype .. " on " .. dev)
          U.equal(got[2], {7, 1, -2, 3})
          assert.are.equal(dtype, got[1].dtype)
        end
      end
      U.equal(T({1, 2}, "int32", dev):nan_to_num(), {1, 2})
      U.equal(limn.grad(function(x) return x:nan_to_num():sum() end)(
        T({0 / 0, 2}, "float32", dev)), {0, 1})
    end)
  end)
end)

describe("Pools", function()
  local x = limn.arange(1, 25):reshape(1, 1, 5, 5)

  it("with ceil_mode take a last window that ends beyond", function()
    local o = {stride = 2, ceil_mode = true}
    check(function(v)
      return nn.max_pool2d(v, 2, o), nn.avg_pool2d(v, 2, o),
        nn.max_pool2d(v, 3, {stride = 2, padding = 1, ceil_mode = true})
    end, {limn.randn(2, 1, 8, 6)}, {x}, {
      {7, 9, 10, 17, 19, 20, 22, 24, 25},
      {4, 6, 7.5, 14, 16, 17.5, 21.5, 23.5, 25},
      {7, 9, 10, 17, 19, 20, 22, 24, 25}})
    -- No window begins in the margin at the end.
    local line = limn.arange(1, 4):reshape(1, 1, 4)
    check(function(v)
      local p = {stride = 3, padding = 1, ceil_mode = true}
      return nn.max_pool1d(v, 2, p), nn.avg_pool1d(v, 2, p),
        nn.avg_pool1d(v, 2, {stride = 3, padding = 1, ceil_mode = true,
                             count_include_pad = false})
    end, {limn.randn(1, 1, 9)}, {line}, {{1, 4}, {0.5, 3.5}, {1, 3.5}})
  end)

  it("fold says which columns do not fit", function()
    U.message(function() nn.fold(limn.randn(1, 7, 4), {4, 4}, 2) end,
              "fold", "7 values", "window's 4")
    U.message(function() nn.fold(limn.randn(1, 8, 5), {4, 4}, 2) end,
              "fold: 5 columns", "at 9 positions")
  end)

  it("max_pool finds only what is not in the margins", function()
    local function low(v) return v:log() end -- of 0: -inf
    check(function(v)
      local _, a = nn.max_pool2d(low(v), 3, {padding = 1,
                                             return_indices = true})
      local _, b = nn.max_pool1d(low(v[1]), 2, {padding = 1, dilation = 3,
                                   stride = 1, return_indices = true})
      return a, b
    end, {limn.rand(1, 1, 5, 7)}, {limn.zeros(1, 1, 4, 4)},
      {{1, 3, 9, 11}, {3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2}})
  end)

  it("return where the largest was found", function()
    check(function(v)
      local y, at = nn.max_pool2d(v, 2, {return_indices = true})
      local z, k = nn.max_pool2d(v, 3, {stride = 2, padding = 1,
                                        return_indices = true})
      return y, at, z, k, v:flatten(3):gather(3, at:flatten(3))
    end, {limn.randn(1, 1, 4, 4)}, {x}, {{7, 9, 17, 19}, {7, 9, 17, 19},
      {7, 9, 10, 17, 19, 20, 22, 24, 25}, {7, 9, 10, 17, 19, 20, 22, 24, 25},
      {7, 9, 17, 19}})
    check(function(v)
      local y, at = nn.max_pool1d(v, 2, {return_indices = true, stride = 1,
                                         dilation = 2})
      return y, at
    end, {limn.randn(1, 1, 7)}, {T {{{4, 1, 3, 9}}}}, {{4, 9}, {1, 4}})
    local y, at = nn.MaxPool2d(2, {return_indices = true})(x[1])
    U.shape(y, {1, 2, 2})
    U.shape(at, {1, 2, 2})
    local d = limn.grad(function(v)
      local z = nn.max_pool2d(v, 2, {return_indices = true})
      return z:sum()
    end)(x)
    U.equal(d:sum(), {4})
    U.equal(d[{1, 1, 2, 2}], {1})
  end)
end)

describe("Interpolation", function()
  it("bicubic is Keys' with a = -0.75, its ends repeated", function()
    local function weights(t)
      local a = -0.75
      local function far(u) return ((a * u - 5 * a) * u + 8 * a) * u - 4 * a end
      local function near(u) return ((a + 2) * u - (a + 3)) * u * u + 1 end
      return {far(t + 1), near(t), near(1 - t), far(2 - t)}
    end
    local v = {3, -1, 4, 1, 5}
    local function line(n, step, shift)
      local out = {}
      for i = 0, n - 1 do
        local at = (i + shift) * step - shift
        local low, sum = math.floor(at), 0
        for k, w in ipairs(weights(at - math.floor(at))) do
          sum = sum + w * v[math.max(0, math.min(4, low + k - 2)) + 1]
        end
        out[i + 1] = sum
      end
      return out
    end
    local x = T({{{v, v}}}, "float64")
    local plain, corners = {}, {}
    for row = 0, 1 do
      for i, y in ipairs(line(7, 5 / 7, 0.5)) do plain[row * 7 + i] = y end
      for i, y in ipairs(line(7, 4 / 6, 0)) do corners[row * 7 + i] = y end
    end
    check(function(t)
      return nn.interpolate(t, {size = {2, 7}, mode = "bicubic"}),
        nn.interpolate(t, {size = {2, 7}, mode = "bicubic",
                           align_corners = true})
    end, {limn.randn(1, 1, 2, 9):to "float64"}, {x}, {plain, corners}, 1e-12)
    local up = nn.Upsample {scale_factor = 2, mode = "bicubic"}
    U.close(up(limn.ones(1, 2, 3, 3)), limn.ones(1, 2, 6, 6), 1e-6)
  end)
end)

describe("Convolutions", function()
  it("make margins of x by padding_mode", function()
    local x = T {{{1, 2, 3, 4}}}
    local w = T {{{1, 10, 100}}}
    for mode, want in pairs {
      zeros = {210, 321, 432, 43}, replicate = {211, 321, 432, 443},
      reflect = {212, 321, 432, 343}, circular = {214, 321, 432, 143},
    } do
      for _, padding in ipairs {1, "same"} do
        check(function(v, k)
          local y = nn.conv1d(v, k, nil, {padding = padding,
                                          padding_mode = mode})
          return y
        end, {limn.randn(2, 1, 6), w}, {x, w}, {want})
      end
    end
    local m = nn.Conv2d(2, 3, 3, {padding = 1, padding_mode = "circular"})
    local z = limn.randn(1, 2, 4, 5)
    U.close(m(z), nn.conv2d(z:pad({1, 1, 1, 1}, {mode = "circular"}), m.weight,
                            m.bias), 1e-5)
    U.message(function()
      nn.conv1d(x, w, nil, {padding = 1, padding_mode = "mirror"})
    end, "mirror", "reflect")
  end)

  it("of three dims are sums over windows, and their transposes", function()
    local function numbers(shape, seed)
      local r, out = U.random(seed), {}
      for i = 1, U.numel(shape) do out[i] = math.floor(9 * r()) - 4 end
      return out
    end
    local xs, ws = {1, 2, 3, 4, 5}, {2, 2, 2, 3, 2}
    local x, w = numbers(xs, 1), numbers(ws, 2)
    local function at(list, s, a, b, c, d, e)
      return list[(((a * s[2] + b) * s[3] + c) * s[4] + d) * s[5] + e + 1]
    end
    local want = {}
    for o = 0, 1 do
      for i = 0, 1 do for j = 0, 1 do for k = 0, 3 do
        local sum = 0
        for c = 0, 1 do
          for p = 0, 1 do for q = 0, 2 do for r = 0, 1 do
            sum = sum + at(x, xs, 0, c, i + p, j + q, k + r)
              * at(w, ws, o, c, p, q, r)
          end end end
        end
        want[#want + 1] = sum
      end end end
    end
    local tx, tw = U.tensor(x, xs), U.tensor(w, ws)
    check(function(v, k)
      local y = nn.conv3d(v, k)
      -- <conv(x), y> = <x, transpose(y)>
      local back = nn.conv_transpose3d(y, k)
      return y, (y * y):sum() - (back * v):sum()
    end, {limn.randn(2, 2, 4, 4, 4), tw}, {tx, tw}, {want, {0}}, 1e-4)
    local m = nn.Conv3d(4, 4, {1, 3, 3}, {groups = 2, padding = {0, 1, 1}})
    U.shape(m(limn.randn(2, 4, 3, 5, 5)), {2, 4, 3, 5, 5})
    assert.is_truthy(tostring(m):find("4, 4, {1, 3, 3}", 1, true), tostring(m))
    local d = limn.grad(function(v) return nn.conv3d(tx, v):sum() end)(tw)
    U.close(d[{1, 1, 1, 1, 1}], {tx[{1, 1, {1, 2}, {1, 2}, {1, 4}}]:sum()
      :item()}, 1e-5)
  end)

  it("pools of three dims", function()
    local x = limn.arange(1, 64):reshape(1, 1, 4, 4, 4)
    check(function(v)
      local y, i = nn.max_pool3d(v, 2, {return_indices = true})
      return y, i, nn.avg_pool3d(v, 2), nn.max_pool3d(v, 2)
    end, {limn.randn(2, 1, 2, 6, 4)}, {x}, {
      {22, 24, 30, 32, 54, 56, 62, 64}, {22, 24, 30, 32, 54, 56, 62, 64},
      {11.5, 13.5, 19.5, 21.5, 43.5, 45.5, 51.5, 53.5},
      {22, 24, 30, 32, 54, 56, 62, 64}})
  end)
end)
