-- Functions made of ops (shapes, statistics, distances, special functions):
-- from one graph for every size, differentiable twice, in every dtype. Their
-- values are PyTorch's: golden_spec.lua.
local U = require "support.util"
local limn = U.limn
local linalg = limn.linalg

-- Values in 0.1..0.9, [n, n + 1], all different.
local function input(n, dtype, dev)
  local r, data = U.random(n), {}
  for k = 1, n * (n + 1) do data[k] = 0.1 + 0.8 * r() end
  local x = U.tensor(data, {n, n + 1}, dtype or "float64", dev)
  return x
end

local cases = {
  frac = function(x) return (x * 3):frac() end,
  erfinv = function(x) return x:erfinv() end,
  lgamma = function(x) return x:lgamma() end,
  digamma = function(x) return x:digamma() end,
  polygamma = function(x) return limn.polygamma(2, x + 1) end,
  logit = function(x) return x:logit(0.01) end,
  sinc = function(x) return x:sinc() end,
  ["gelu by tanh"] = function(x) return x:gelu {approximate = "tanh"} end,
  hypot = function(x) return x:hypot(x + 1) end,
  logaddexp = function(x) return x:logaddexp(x * x) end,
  xlogy = function(x) return x:xlogy(x + 1) end,
  fmod = function(x) return (x * 5):fmod(2) end,
  logcumsumexp = function(x) return x:logcumsumexp(1) end,
  cummax = function(x) return (x:cummax(2)) end,
  cummin = function(x) return (x:cummin(1)) end,
  diff = function(x) return x:diff {dim = 2} end,
  mode = function(x) return (x:mode(1)) end,
  quantile = function(x) return x:quantile(0.3, {dim = 2}) end,
  ["quantile of all"] = function(x) return x:quantile {0.5, 0.2} end,
  ["quantile, nearest"] = function(x)
    local y = x:quantile(0.5, {dim = 1, interpolation = "nearest"})
    return y
  end,
  cov = function(x) return x:cov {correction = 0} end,
  nansum = function(x) return x:nansum(1) end,
  nanmean = function(x) return x:nanmean(2) end,
  cdist = function(x) return limn.cdist(x, x * 2 + 1) end,
  kron = function(x) return x:kron(x) end,
  unfold = function(x) return x:unfold(2, 2, 1) end,
  rot90 = function(x) return x:rot90() end,
  movedim = function(x) return x:movedim(1, 2) end,
  unflatten = function(x) return x:unflatten(2, {1, -1}) end,
  ["repeat_interleave"] = function(x) return x:repeat_interleave(3, 1) end,
  ["repeat_interleave by a size"] = function(x)
    local y = x:repeat_interleave(x:size(1), 2)
    return y
  end,
  ["pad that crops"] = function(x) return x:pad {-1, 1} end,
  meshgrid = function(x)
    local a, b = limn.meshgrid(x[1], x[{{}, 1}])
    return a * b
  end,
  broadcast_tensors = function(x)
    local a, b = limn.broadcast_tensors(x, x[{{1}}])
    return a * b
  end,
  masked_scatter = function(x)
    local y = x:masked_scatter(x:gt(0.5), x:flatten() * 2)
    return y
  end,
  trace = function(x) return linalg.trace(x) end,
  norm = function(x) return linalg.norm(x, "fro") end,
  ["norm by columns"] = function(x) return linalg.norm(x, 1) end,
}
local names = {}
for name in pairs(cases) do names[#names + 1] = name end
table.sort(names)

local function squares(f)
  return function(x)
    local y = f(x):square():sum()
    return y
  end
end

-- The gradient of the gradient's squares.
local function second(f)
  local g = limn.grad(squares(limn.grad(squares(f))))
  return g
end

describe("Functions of ops:", function()
  for _, name in ipairs(names) do
    local f = cases[name]
    if U.selected(name) then
      it(name .. " has one graph for all sizes and dtypes", function()
        U.each_device(function(dev)
          local g = limn.trace(f, input(3, "float64", dev))
          for _, n in ipairs {2, 3, 5} do
            local x = input(n, "float64", dev)
            U.close(g(x), f(x), 1e-12, "max", name .. " on " .. dev)
          end
          local half = input(3, "float16", dev)
          local y = g(half)
          assert.are.equal("float16", y.dtype)
          assert.are.equal("float16", f(half).dtype)
          -- As rounded once: computed in float32.
          U.close(y, g(half:to "float32"):to "float16", 2e-3, "max",
                  "float16 on " .. dev)
        end)
      end)

      it(name .. " can be differentiated twice, at every size", function()
        local h = second(f)
        local g = limn.trace(h, input(3))
        for _, n in ipairs {2, 4} do
          local x = input(n)
          local y = h(x)
          assert.is_true(y:isfinite():all():item())
          U.close(g(x), y, 1e-9, "max", name)
        end
      end)
    end
  end

  it("ints and bools keep their dtype where values only move", function()
    U.each_device(function(dev)
      for _, dtype in ipairs {"int8", "uint8", "int32", "int64", "bool"} do
        local x = limn.tensor({1, 0, 1, 1}, "int64", dev):to(dtype)
        local v, at = x:cummax(1)
        U.equal(v, {1, 1, 1, 1})
        U.equal(at, {1, 1, 3, 4})
        assert.are.equal(dtype, v.dtype)
        U.equal((x:cummin(1)), {1, 0, 0, 0})
        local mode, where = x:mode()
        U.equal(mode, {1})
        U.equal(where, {4})
        assert.are.equal(dtype, mode.dtype)
        local r = x:repeat_interleave(2)
        U.equal(r, {1, 1, 0, 0, 1, 1, 1, 1})
        assert.are.equal(dtype, r.dtype)
        assert.are.equal(3, x:count_nonzero():item())
        assert.are.equal("float32", x:logcumsumexp(1).dtype)
        U.equal(x:isin {0}, {0, 1, 0, 0})
      end
    end)
  end)

  it("nothing gives nothing", function()
    U.each_device(function(dev)
      local x = limn.zeros(0, 3):to(dev)
      U.shape(x:diff {dim = 1}, {0, 3})
      U.shape((x:cummax(1)), {0, 3})
      U.shape(x:logcumsumexp(1), {0, 3})
      U.shape(x:repeat_interleave(2, 1), {0, 3})
      U.shape(limn.cdist(x, limn.ones(2, 3):to(dev)), {0, 2})
      U.shape(x:isin {1}, {0, 3})
      U.shape(x:quantile(0.5, {dim = 2}), {0})
      U.equal(x:count_nonzero(1), {0, 0, 0})
      U.equal(x:nansum(1), {0, 0, 0})
      U.equal(x:histc {bins = 2, min = 0, max = 1}, {0, 0})
      U.equal(x:logsumexp(1), {-math.huge, -math.huge, -math.huge})
      local g = limn.trace(function(v)
        local y = v:logsumexp(1)
        return y
      end, limn.ones(2, 3):to(dev))
      U.equal(g(x), {-math.huge, -math.huge, -math.huge})
      local d = limn.grad(function(v)
        local y = v:logsumexp(1):sum()
        return y
      end)(x)
      U.shape(d, {0, 3})
    end)
  end)

  it("repeat_interleave by a count for each position", function()
    U.each_device(function(dev)
      local x = limn.tensor({1, 2, 3}, dev)
      local n = limn.tensor({2, 0, 3}, "int64", dev)
      U.equal(x:repeat_interleave(n), {1, 1, 3, 3, 3})
      U.message(function()
        local _ = x:repeat_interleave(limn.tensor({1, 2}, "int64", dev))
      end, "repeat_interleave: a count for each of the 3 positions")
      U.message(function()
        local _ = x:repeat_interleave(n - 1)
      end, "repeat_interleave: a count is below 0")
    end)
  end)

  it("running extremes of NaN: it is the extreme", function()
    U.each_device(function(dev)
      local x = limn.tensor({1, 0 / 0, 0, 2}, dev)
      local v, at = x:cummin(1)
      U.close(v, {1, 0 / 0, 0 / 0, 0 / 0})
      U.equal(at, {1, 2, 2, 2})
    end)
  end)

  it("solve takes vectors in a batch where the sizes say so, and a trace keeps "
     .. "which", function()
    local a, b = limn.randn(3, 3, 3) + limn.eye(3) * 4, limn.randn(3, 3)
    local g = limn.trace(function(p, q)
      local y = linalg.solve(p, q)
      return y
    end, a, b)
    U.close(g(a, b), linalg.solve(a, b), 1e-6)
    local more = limn.randn(5, 3, 3) + limn.eye(3) * 4
    U.shape(g(more, limn.randn(5, 3)), {5, 3})
    U.message(function() g(more, limn.randn(3, 7)) end, "size%(%%q, 1%)")
  end)
end)

describe("What functions of ops refuse", function()
  local x = limn.ones(2, 3)
  for _, case in ipairs {
    {function() local _ = limn.bitwise_and(x, 3) end, "bitwise_and",
     "whole numbers or bools", "float32"},
    {function() local _ = x:gt(0):bitwise_left_shift(x:gt(0)) end,
     "bitwise_left_shift"},
    {function() local _ = x:gelu {aproximate = "tanh"} end, "gelu",
     "'approximate'"},
    {function() local _ = x:gelu "tan" end, "gelu", "'tanh'"},
    {function() local _ = x:quantile(2) end, "quantile", "from 0 to 1"},
    {function() local _ = x:quantile(0.5, {interpolation = "cubic"}) end,
     "quantile", "cubic", "midpoint"},
    {function() local _ = limn.zeros(0):quantile(0.5) end, "quantile",
     "no elements"},
    {function() local _ = x:histc(0) end, "histc", "bins"},
    {function() local _ = x:histc {min = 2, max = 1} end, "histc", "2 and 1"},
    {function() local _ = x:diff {n = 0.5} end, "diff", "0.5"},
    {function() local _ = x:cummax(3) end, "cummax", "no dim 3"},
    {function() local _ = x:movedim(1, 3) end, "movedim", "no dim 3"},
    {function() local _ = x:movedim({1, 2}, 1) end, "movedim", "2 dims to 1"},
    {function() local _ = x:unfold(2, 5) end, "unfold", "window of 5"},
    {function() local _ = x:unflatten(2, {2, 2}) end, "unflatten"},
    {function() local _ = x:rot90(1, {1, 1}) end, "rot90", "same"},
    {function() local _ = x:pad {-2, -2} end, "pad", "cut off", "has 3"},
    {function() local _ = x:pad({-1, 1}, {mode = "reflect"}) end, "pad",
     "constant"},
    {function() local _ = limn.cdist(x, limn.ones(2, 4)) end, "cdist",
     "3 and 4"},
    {function() local _ = limn.meshgrid(x) end, "meshgrid", "vectors"},
    {function() local _ = linalg.norm(x, "fru") end, "norm", "'fru'", "'fro'"},
    {function() local _ = linalg.norm(limn.ones(2, 2, 2), 1) end, "norm",
     "3 dims"},
    {function() local _ = linalg.trace(limn.ones(3)) end, "trace", "matrix"},
    {function() local _ = limn.zeros({0}, {dtype = "int64"}):one_hot() end,
     "one_hot", "no labels"},
    {function()
      limn.trace(function(v) return v:one_hot() end,
                 limn.ones({2}, {dtype = "int64"}))
    end, "one_hot", "x:one_hot%(10%)"},
    {function()
      limn.trace(function() return limn.tril_indices(2, 2) end, x)
    end, "tril_indices", "outside the trace"},
  } do
    it(case[2] .. ": " .. (case[3] or "bools"), function()
      U.message(case[1], unpack(case, 2))
    end)
  end
end)
