-- Orders, positions and margins beyond what ops_spec.lua compares: NaN and
-- equal elements, results whose size depends on data, random choices, errors.
local U = require "support.util"
local limn = U.limn

local nan, inf = 0 / 0, math.huge
local words = {float64 = true, float32 = true, float16 = true, bfloat16 = true}
local every = {"float64", "float32", "float16", "bfloat16", "int64", "int32",
               "int8", "uint8", "bool"}

describe("Sorting", function()
  it("takes NaN as the largest, 0 and -0 as equal, and keeps equals' order",
     function()
    U.each_device(function(dev)
      for dtype in pairs(words) do
        local x = limn.tensor({3, nan, 0, inf, -0.0, nan, -inf, 1}, dtype)
        x = x:to(dev)
        local y, at = x:sort()
        U.equal(y, {-inf, 0, 0, 1, 3, inf, nan, nan}, dtype)
        U.equal(at, {7, 3, 5, 8, 1, 4, 2, 6}, dtype)
        y, at = x:sort {descending = true}
        U.equal(y, {nan, nan, inf, 3, 1, 0, 0, -inf}, dtype)
        U.equal(at, {2, 6, 4, 1, 8, 3, 5, 7}, dtype)
        y, at = x:topk(3)
        U.equal(y, {nan, nan, inf}, dtype)
        U.equal(at, {2, 6, 4}, dtype)
      end
    end)
  end)

  it("is stable for lines of every length, dtype and layout", function()
    local r = U.random(5)
    for _, n in ipairs {1, 8, 9, 49, 300} do
      local data = {}
      for i = 1, 3 * n do data[i] = math.floor(r() * 9) end
      local base = U.tensor(data, {3, n}, "float32")
      for _, dtype in ipairs(every) do
        local want -- the CPU's, which is compared with the definition
        U.each_device(function(dev)
          for _, x in ipairs {base:to(dtype):to(dev),
                              base:t():to(dtype):to(dev):t()} do
            local y, at = x:sort(2)
            want = want or U.flat(at)
            U.equal(at, want, ("%d %s on %s"):format(n, dtype, dev))
            U.equal(x:gather(2, at), y)
            local p, v = U.flat(at), U.flat(y)
            for i = 1, 3 * n do
              if i % n ~= 1 and n > 1 then
                assert.is_true(v[i - 1] < v[i]
                  or v[i - 1] == v[i] and p[i - 1] < p[i])
              end
            end
          end
        end)
      end
    end
  end)

  it("of a hundred thousand elements is the same on every device", function()
    local x = limn.randint(1, 5000, 100000)
    local want = x:argsort {descending = true}
    U.each_device(function(dev)
      local at = x:to(dev):argsort {descending = true}
      assert.is_true(at:to "cpu":eq(want):all():item(), dev)
    end)
  end)

  it("says what is wrong", function()
    local x = limn.ones(2, 3)
    local line = U.here(1)
    U.message(function() local _ = x:sort(3) end, line, "sort", "dim 3",
              "2 dims")
    U.message(function() local _ = x:topk(4) end, "topk", "4", "3", "dim 2")
    U.message(function() local _ = x:sort {descend = true} end, "descend",
              "'descending'")
    U.message(function() local _ = x:topk() end, "topk", "k")
    U.message(function()
      limn.trace(function(t) return (t:topk(4)) end, x)
    end, "topk", "4")
    local g = limn.trace(function(t)
      local y, at = t:topk(3)
      return y, at
    end, limn.ones(2, 5))
    U.message(function() g(x[{{}, {1, 2}}]) end, "order_spec.lua:%d+",
              "range")
  end)

  it("passes gradients to what was taken", function()
    U.each_device(function(dev)
      local x = limn.tensor({3, 1, 2}):to(dev)
      local w = limn.tensor({1, 10, 100}):to(dev)
      local g = limn.grad(function(t)
        local y = t:sort()
        return (y * w):sum()
      end)(x)
      U.equal(g, {100, 1, 10})
      g = limn.grad(function(t)
        local y = t:topk(2)
        return (y * y):sum()
      end)(x)
      U.equal(g, {6, 0, 4})
    end)
  end)
end)

describe("scatter", function()
  it("leaves the last of several, whose gradient alone is not 0", function()
    U.each_device(function(dev)
      local x = limn.zeros(3, dev)
      local at = limn.tensor({2, 3, 2, 2}, "int64"):to(dev)
      local v = limn.tensor({5, 6, 7, 8}):to(dev)
      U.equal(x:scatter(1, at, v), {0, 8, 6})
      local w = limn.tensor({1, 10, 100}):to(dev)
      local function loss(a, b)
        local y = a:scatter(1, at, b)
        return (y * w):sum()
      end
      local _, g = limn.value_and_grad(function() return loss(x, v) end,
                                       {x, v})()
      U.equal(g[1], {1, 0, 0})
      U.equal(g[2], {0, 100, 0, 10})
    end)
  end)

  it("works on every dtype and takes a 0-dim tensor for all places",
     function()
    U.each_device(function(dev)
      local at = limn.tensor({{2}, {1}}, "int64"):to(dev)
      for _, dtype in ipairs(every) do
        local x = limn.zeros(2, 2, {dtype = dtype, device = dev})
        local y = x:scatter(2, at, limn.tensor(1, dtype):to(dev))
        U.equal(y, {0, 1, 1, 0}, dtype)
        assert.are.equal(dtype, y.dtype)
      end
    end)
  end)

  it("reports what is out of range on every device", function()
    U.each_device(function(dev)
      local x = limn.zeros(2, 2, dev)
      local at = limn.tensor({{2}, {3}}, "int64"):to(dev)
      U.message(function()
        local y = x:scatter(2, at, 1)
        limn.wait()
        return U.flat(y)
      end, "scatter", "3", "2")
      U.message(function() local _ = x:scatter(2, at, limn.ones(2, 2, dev)) end,
                "scatter", "%[2, 1%]", "%[2, 2%]")
      U.message(function() local _ = x:scatter(2, at:to "float32", 1) end,
                "int64")
    end)
  end)
end)

describe("Results whose size depends on data", function()
  it("are made in eager code, on every device", function()
    U.each_device(function(dev)
      local x = limn.tensor({{0, 1, 0}, {2, 0, 3}}):to(dev)
      U.equal(x:nonzero(), {1, 2, 2, 1, 2, 3})
      U.equal(x:nonzero {as_tuple = true}[2], {2, 1, 3})
      U.shape(limn.zeros(2, 3, dev):nonzero(), {0, 2})
      U.equal(x[x:gt(0)], {1, 2, 3})
      U.equal(x:masked_select(x:gt(1)), {2, 3})
      U.equal(x[limn.tensor({false, true}):to(dev)], {2, 0, 3})

      local v, inverse, count = limn.tensor({{3, 1, 2}, {1, 3, 3}}):to(dev)
        :unique {return_inverse = true, return_counts = true}
      U.equal(v, {1, 2, 3})
      U.shape(inverse, {2, 3})
      U.equal(inverse, {3, 1, 2, 1, 3, 3})
      U.equal(count, {2, 1, 3})
      U.equal(limn.tensor({nan, 1, nan, 1}):to(dev):unique(), {1, nan, nan})
      v, inverse, count = limn.zeros(0, dev):unique {return_inverse = true,
                                                     return_counts = true}
      U.shape(v, {0})
      U.shape(inverse, {0})
      U.shape(count, {0})
      v, inverse, count = limn.tensor({3, 3, 1, 3}, "int64"):to(dev)
        :unique_consecutive {return_inverse = true, return_counts = true}
      U.equal(v, {3, 1, 3})
      U.equal(inverse, {1, 1, 2, 3})
      U.equal(count, {2, 1, 1})

      local n = limn.tensor({1, 3, 3, 1}, "int64"):to(dev)
      U.equal(n:bincount(), {2, 0, 2})
      U.equal(n:bincount {minlength = 5}, {2, 0, 2, 0, 0})
      U.equal(n:bincount(limn.tensor({0.5, 1, 2, 4}):to(dev)), {4.5, 0, 3})
      U.shape(limn.zeros(0, "int64", dev):bincount(), {0})
      U.message(function()
        return U.flat(limn.tensor({0, 1}, "int64"):to(dev):bincount())
      end, "index 0")
    end)
  end)

  it("are refused in a trace, with what to use there", function()
    local calls = {
      nonzero = function(x) local _ = x:nonzero() end,
      unique = function(x) local _ = x:unique() end,
      bincount = function(x) local _ = x:to "int64":bincount() end,
      masked_select = function(x) local _ = x:masked_select(x:gt(0)) end,
      mask = function(x) local _ = x[x:gt(0)] end,
      allclose = function(x) local _ = x:allclose(x) end,
    }
    for _, call in pairs(calls) do
      U.message(function()
        limn.trace(function(x)
          call(x)
          return x
        end, limn.ones(3))
      end, "order_spec.lua:%d+", "trace", "hint:")
    end
  end)
end)

describe("Random choices", function()
  it("bernoulli gives x's dtype and its probabilities, traced too", function()
    U.each_device(function(dev)
      limn.manual_seed(3)
      local p = limn.tensor({0, 0.25, 1}):to(dev):expand(4000, 3)
      local y = p:bernoulli()
      assert.are.equal("float32", y.dtype)
      U.close(y:mean(1), {0, 0.25, 1}, 0.03, 1)
      limn.manual_seed(3)
      local g = limn.trace(function(x)
        local z = x:bernoulli()
        return z
      end, p)
      U.equal(g(p), U.flat(y))
      U.close(limn.zeros(4000, dev):bernoulli(0.75):mean(), {0.75}, 0.03, 1)
    end)
  end)

  it("multinomial follows the weights and never takes one of 0", function()
    U.each_device(function(dev)
      limn.manual_seed(4)
      local w = limn.tensor({0, 1, 3, 0, 4, 0}):to(dev)
      local y = w:multinomial(4000, true)
      assert.are.equal("int64", y.dtype)
      U.close(y:bincount {minlength = 6} / 4000, {0, 0.125, 0.375, 0, 0.5, 0},
              0.03, 1)
      local rows = limn.tensor({{0, 1, 3}, {2, 1, 0}}):to(dev)
      local first = rows[{{1}}]:expand(4000, 3):multinomial(1)
      U.close(first:reshape(-1):bincount() / 4000, {0, 0.25, 0.75}, 0.03, 1)
      local both = rows:multinomial(2):sort(2)
      U.equal(both, {2, 3, 1, 2})
      local g = limn.trace(function(x)
        local z = x:multinomial(2)
        return z
      end, rows)
      U.equal((g(rows):sort(2)), {2, 3, 1, 2})
      U.message(function() local _ = rows:multinomial(3) end, "multinomial",
                "3 different")
      U.message(function() local _ = (rows - 1):multinomial(1) end, "negative")
      U.message(function() local _ = rows:multinomial(4) end, "4", "3",
                "replacement")
    end)
  end)
end)

describe("Closeness, margins and sums of products", function()
  it("isclose and allclose treat infinity and NaN as PyTorch does", function()
    U.each_device(function(dev)
      local a = limn.tensor({1, 2, inf, nan, inf}):to(dev)
      local b = limn.tensor({1 + 1e-7, 2.1, inf, nan, 1}):to(dev)
      U.equal(limn.isclose(a, b), {1, 0, 1, 0, 0})
      U.equal(limn.isclose(b, a, {equal_nan = true}), {1, 0, 1, 1, 0})
      assert.is_true(a[{{1}}]:allclose(b[{{1}}]))
      assert.is_false(a:allclose(b))
    end)
  end)

  it("pad refuses margins that its mode cannot fill", function()
    local x = limn.ones(2, 3)
    local line = U.here(1)
    U.message(function() local _ = x:pad({3, 0}, {mode = "reflect"}) end, line,
              "margin of 3", "dim 2", "reflect", "at least 4")
    U.message(function() local _ = x:pad({0, 4}, {mode = "circular"}) end,
              "at least 4")
    U.message(function() local _ = x:pad({1}, {mode = "circular"}) end,
              "1 margins", "2 dims", "hint:")
    U.message(function() local _ = x:pad({1, 1}, {mode = "mirror"}) end,
              "mirror", "reflect")
    U.message(function() local _ = x:pad({-1, 1}, {mode = "reflect"}) end,
              "margin of %-1", "hint:")
    U.message(function()
      limn.trace(function(t)
        local y = t:pad({3, 0}, {mode = "reflect"})
        return y
      end, x)
    end, "at least 4")
  end)

  it("einsum names what does not fit", function()
    local x = limn.ones(3, 4)
    local line = U.here(1)
    U.message(function() local _ = limn.einsum("ij,jk->ik", x, x) end, line,
              "'j'", "4 in operand 1", "3 in operand 2")
    U.message(function() local _ = limn.einsum("ij->iz", x) end, "'z'",
              "no operand")
    U.message(function() local _ = limn.einsum("ij->ii", x) end, "twice")
    U.message(function() local _ = limn.einsum("ijk->i", x) end, "3 letters",
              "2 dims")
    U.message(function() local _ = limn.einsum("ij,jk->ik", x) end,
              "operand 2")
    U.message(function() local _ = limn.einsum("ij->ij", x, x) end,
              "1 operands; there are 2")
    U.message(function()
      limn.trace(function(t)
        local y = limn.einsum("ij,jk->ik", t, t)
        return y
      end, x)
    end, "order_spec.lua:%d+", "'j'")
    local g = limn.trace(function(a, b)
      local y = limn.einsum("ij,jk->ik", a, b)
      return y
    end, x, x:t())
    U.message(function() g(x, x) end, "they are 4 and 3")
  end)

  it("diagonal and roll say what is wrong", function()
    U.message(function() local _ = limn.ones(3):diagonal() end, "two dims")
    U.message(function() local _ = limn.ones(3, 3):diagonal(0, 2, 2) end,
              "the same")
    U.message(function() local _ = limn.ones(3):roll({1, 2}, 1) end,
              "2 shifts for 1 dims")
    U.message(function() local _ = limn.ones(3):roll(1, 2) end, "dim 2")
  end)
end)
