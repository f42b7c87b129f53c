-- Tensors: creation, reading, indexing, views, handles, dtypes, printing.
local U = require "support.util"
local limn = U.limn

describe("Creation", function()
  it("from tables is float32, bool for booleans, or as told", function()
    local t = limn.tensor {{1, 2, 3}, {4, 5, 6}}
    assert.are.equal("float32", t.dtype)
    U.shape(t, {2, 3})
    U.equal(t, {1, 2, 3, 4, 5, 6})
    assert.are.equal("bool", limn.tensor({true, false}).dtype)
    assert.are.equal("int64", limn.tensor({1, 2}, "int64").dtype)
    assert.are.equal("int8", limn.tensor({1, 2}, {dtype = "int8"}).dtype)
    U.shape(limn.tensor(7), {})
    U.shape(limn.tensor {}, {0})
  end)

  it("takes sizes as numbers or as a list, and options", function()
    U.each_device(function(dev)
      for _, t in ipairs {
        limn.zeros(2, 3, dev), limn.zeros {2, 3}:to(dev),
        limn.zeros(2, 3, {device = dev}), limn.zeros({2, 3}, dev),
      } do
        U.shape(t, {2, 3})
        U.equal(t, {0, 0, 0, 0, 0, 0})
        assert.are.equal(dev, t.device)
        assert.are.equal("float32", t.dtype)
      end
      local t = limn.ones(2, {dtype = "int64", device = dev})
      assert.are.equal("int64", t.dtype)
      U.equal(t, {1, 1})
      U.equal(limn.zeros({}, dev), {0})
      U.shape(limn.zeros {}, {})
      U.equal(limn.full({2, 2}, 7, {device = dev}), {7, 7, 7, 7})
      U.shape(limn.ones(0, 3, dev), {0, 3})
      U.equal(limn.ones_like(t), {1, 1})
      assert.are.equal("int64", limn.zeros_like(t).dtype)
      assert.are.equal(dev, limn.zeros_like(t).device)
      assert.are.equal(dev, t:new_zeros(3).device)
      assert.are.equal("int64", t:new_zeros(3).dtype)
      U.equal(t:new_full({2}, 4), {4, 4})
    end)
  end)

  it("of ranges includes both ends", function()
    U.each_device(function(dev)
      U.equal(limn.arange(4, dev), {1, 2, 3, 4})
      U.equal(limn.arange(0, 3, dev), {0, 1, 2, 3})
      U.equal(limn.arange(0, 1, 0.25, dev), {0, 0.25, 0.5, 0.75, 1})
      U.equal(limn.arange(5, 1, -2, dev), {5, 3, 1})
      U.equal(limn.arange(3, {dtype = "int64", device = dev}), {1, 2, 3})
      U.shape(limn.arange(0), {0})
      U.close(limn.linspace(0, 1, 5), {0, 0.25, 0.5, 0.75, 1})
      U.equal(limn.eye(2, 3, dev), {1, 0, 0, 0, 1, 0})
    end)
  end)

  it("from bytes takes them as they lie", function()
    local t = limn.from_string("\1\2\255", "uint8")
    U.equal(t, {1, 2, 255})
    U.equal(limn.from_string("\1\2\3\4\5\6", "uint8", {2, 3}),
            {1, 2, 3, 4, 5, 6})
    U.equal(limn.from_string("\0\0\128\63", "float32"), {1})
    U.message(function() limn.from_string("abc", "float32") end, "3 bytes")
  end)

  it("limn.on moves the generators of a function", function()
    U.each_device(function(dev)
      local x = limn.on(dev, function() return limn.ones(2) end)
      assert.are.equal(dev, x.device)
      assert.are.equal("cpu", limn.ones(2).device)
    end)
  end)
end)

describe("Reading", function()
  it("have shapes that print, join and compare by their sizes, and are lists",
     function()
    local x = limn.ones(2, 3)
    assert.are.equal("{2, 3}", tostring(x.shape))
    assert.are.equal("x is {2, 3}", "x is " .. x:size())
    assert.is_true(x.shape == limn.zeros(2, 3).shape)
    assert.is_false(x.shape == x:t().shape)
    assert.is_false(x.shape == limn.ones(2).shape)
    assert.is_nil((getmetatable(x.shape)) or nil)
    U.shape(limn.zeros(x.shape), {2, 3})
    local g = limn.trace(function(a, b)
      if a.shape == b.shape then return a.shape, a:reshape(b:t().shape) end
      return {}, a
    end, x, x)
    local sizes, y = g(limn.ones(4, 1), limn.ones(4, 1))
    assert.are.same({4, 1}, sizes)
    U.shape(y, {1, 4})
    U.message(function() g(x, limn.ones(1, 3)) end, "size")
  end)

  it("gives Lua values", function()
    U.each_device(function(dev)
      local t = limn.tensor({{1, 2}, {3, 4}}, dev)
      assert.are.same({{1, 2}, {3, 4}}, t:totable())
      assert.are.equal(3, t:at(2, 1))
      assert.are.equal(4, t:at(-1, -1))
      assert.are.equal(2.5, (t:sum() / 4):item())
      assert.are.equal(true, limn.tensor({true}, dev):item())
      assert.are.same({2, 2}, t.shape)
      assert.are.same({2, 2}, t:size())
      assert.are.equal(2, t:size(-1))
      assert.are.equal(2, #t)
      assert.are.equal(2, t:dim())
      assert.are.equal(4, t:numel())
      assert.are.equal("sum 10", "sum " .. t:sum())
      local seen = {}
      for i, row in t:rows() do seen[i] = U.flat(row) end
      assert.are.same({{1, 2}, {3, 4}}, seen)
    end)
  end)

  it("through an ffi pointer sees the elements", function()
    local p, n = limn.tensor({1, 2, 3}, "int32"):data()
    assert.are.equal(3, n)
    assert.are.equal(3, p[2])
  end)

  it("an int64 beyond 2^53 raises", function()
    U.each_device(function(dev)
      local t = limn.full({1}, 2 ^ 52, {dtype = "int64", device = dev})
      assert.are.equal(2 ^ 52, t:item())
      local line = U.here(1)
      U.message(function() local _ = (t * 8 + 1):item() end, line, "2%^53")
    end)
  end)

  it("keeps float64, infinities and NaN", function()
    U.each_device(function(dev)
      local data = {1 / 3, math.huge, -math.huge, 0 / 0, 1e-300}
      U.equal(limn.tensor(data, "float64", dev), data)
    end)
  end)
end)

describe("Indexing", function()
  local function example(dev)
    return limn.arange(12):reshape(3, 4):to(dev)
  end

  it("counts from 1, -1 is the last, ranges include both ends", function()
    U.each_device(function(dev)
      local x = example(dev)
      U.equal(x[2], {5, 6, 7, 8})
      U.equal(x[-1], {9, 10, 11, 12})
      U.equal(x[2][3], {7})
      U.equal(x[{2, 3}], {7})
      U.equal(x[{{2, 3}, 1}], {5, 9})
      U.equal(x[{{}, {2, -2}}], {2, 3, 6, 7, 10, 11})
      U.equal(x[{{1, -1, 2}}], {1, 2, 3, 4, 9, 10, 11, 12})
      U.equal(x[{{2}}], {5, 6, 7, 8})
      U.shape(x[{{2}}], {1, 4})
      U.shape(x[{{2, 1}}], {0, 4})
      U.shape(x[{{4, 3}}], {0, 4})
      U.equal(x:narrow(2, 2, 2), {2, 3, 6, 7, 10, 11})
      U.equal(x:select(2, -1), {4, 8, 12})
    end)
  end)

  it("by an int tensor gathers rows, by a bool tensor selects", function()
    U.each_device(function(dev)
      local x = example(dev)
      local rows = limn.tensor({3, 1, 3}, "int64", dev)
      U.equal(x[rows], {9, 10, 11, 12, 1, 2, 3, 4, 9, 10, 11, 12})
      U.equal(x[{{}, rows}], {3, 1, 3, 7, 5, 7, 11, 9, 11})
      U.equal(x[x:gt(10)], {11, 12})
      U.equal(x[x:sum(2):gt(20)], {5, 6, 7, 8, 9, 10, 11, 12})
    end)
  end)

  it("assigns numbers, tables, tensors and masks", function()
    U.each_device(function(dev)
      local x = example(dev)
      x[1] = 0
      x[{2, {2, 3}}] = {60, 70}
      x[{{}, 4}] = limn.tensor({-1, -2, -3}, dev)
      U.equal(x, {0, 0, 0, -1, 5, 60, 70, -2, 9, 10, 11, -3})
      x[x:lt(0)] = 100
      U.equal(x[{{}, 4}], {100, 100, 100})
      x[{1, 1}] = 2.5
      assert.are.equal(2.5, x:at(1, 1))
      assert.are.equal("float32", x.dtype)
      local i = limn.zeros(3, {dtype = "int64", device = dev})
      i[2] = 7
      assert.are.equal("int64", i.dtype)
      U.equal(i, {0, 7, 0})
    end)
  end)

  it("assigns at the positions of an int tensor, in traces too", function()
    local function put(x, at, v)
      local y = x:clone()
      y[at] = v
      y[{1, {}, at}] = 7
      return y
    end
    local g = limn.trace(put, limn.ones(1, 2, 3),
                         limn.tensor({1}, "int64"), limn.ones(1, 1, 1))
    U.each_device(function(dev)
      local x = limn.arange(1, 12):reshape(2, 2, 3):to(dev)
      local at = limn.tensor({2, 3}, "int64", dev)
      local y = x:clone()
      y[{{}, {}, at}] = limn.tensor({0, -1}, dev)
      U.equal(y, {1, 0, -1, 4, 0, -1, 7, 0, -1, 10, 0, -1})
      local ok, err = pcall(function()
        y[at] = 1
        return y:at(1, 1, 1) -- a GPU tells when it is waited for
      end)
      assert.is_false(ok)
      assert.is_truthy(tostring(err):find("index 3 at position 2", 1, true))
      local z = limn.zeros(3, 2, {device = dev})
      local v = limn.tensor({{2}, {5}}, dev)
      z[at] = v
      U.equal(z, {0, 0, 2, 2, 5, 5})
      local d = limn.grad(function(u)
        local w = limn.zeros(3, 2, {device = u.device})
        w[at] = u
        return (w * w):sum()
      end)(v)
      U.equal(d, {8, 20})
      x = limn.arange(1, 18):reshape(3, 2, 3):to(dev)
      at = limn.tensor({2, 1}, "int64", dev)
      local want = limn.arange(1, 18):totable()
      for k = 1, 12 do want[k] = k <= 6 and k % 3 ~= 0 and 7 or 5 end
      v = limn.full({2, 1, 1}, 5, {device = dev})
      U.equal(g(x, at, v), want)
      U.equal(put(x, at, v), want)
    end)
  end)
end)

describe("A handle that is assigned to", function()
  it("shows the new value under all its names, views and clones the old",
     function()
    U.each_device(function(dev)
      local x = limn.zeros(2, 2, dev)
      local y, view, copy, row = x, x:t(), x:clone(), x[1]
      local flat = x:reshape(4)
      x[{1, 2}] = 5
      U.equal(y, {0, 5, 0, 0})
      U.equal(view, {0, 0, 0, 0})
      U.equal(copy, {0, 0, 0, 0})
      U.equal(row, {0, 0})
      U.equal(flat, {0, 0, 0, 0})
      copy[1] = 1
      U.equal(x, {0, 5, 0, 0})
      view[1] = 9
      U.equal(x, {0, 5, 0, 0})
      U.equal(view, {9, 9, 0, 0})
    end)
  end)

  it("is not seen by a graph that captured it: the next run says so",
     function()
    U.each_device(function(dev)
      local c = limn.ones(2, dev)
      local g = limn.trace(function(x) return x + c end, limn.zeros(2, dev))
      U.equal(g(limn.zeros(2, dev)), {1, 1})
      c[1] = 7
      U.message(function() g(limn.zeros(2, dev)) end, "captured", "hint:")
    end)
  end)

  it("copies from another tensor, keeping dtype and device", function()
    U.each_pair(function(a, b)
      local x = limn.zeros(2, {dtype = "float64", device = a})
      local y, copy = x, x:clone()
      x:copy_from(limn.tensor({1, 2}, b))
      U.equal(y, {1, 2})
      U.equal(copy, {0, 0})
      assert.are.equal("float64", y.dtype)
      assert.are.equal(a, y.device)
    end)
    U.message(function() limn.zeros(2):copy_from(limn.zeros(3)) end,
              "copy_from", "%[2%]", "%[3%]")
  end)

  it("refuses where the change would be lost", function()
    local x = limn.zeros(2, 2)
    local line = U.here(1)
    U.message(function() x[1][2] = 5 end, line, "lost", "x%[{1, 2}%] = v",
              ":clone%(%)")
    U.message(function() x.name = 5 end, "name")
  end)
end)

describe("Views", function()
  it("are descriptors: no kernel runs, no plan is made", function()
    local core = require "limn.core"
    U.each_device(function(dev)
      local x = limn.arange(24):reshape(2, 3, 4):to(dev)
      local before = core.counters()
      local v = x:transpose(1, 3):permute(2, 1, 3)[{{}, 2}]:unsqueeze(1)
      v = v:expand(5, 3, 2):flip(2)[{{2, 3}, {1, -1, 2}}]
      local after = core.counters()
      assert.are.equal(before.plans, after.plans)
      assert.are.equal(before.compiles, after.compiles)
      assert.are.equal(before.kernels, after.kernels)
      U.shape(v, {2, 2, 2})
      U.equal(v, {10, 22, 2, 14, 10, 22, 2, 14})
      U.equal(v:contiguous(), {10, 22, 2, 14, 10, 22, 2, 14})
      U.equal(v + 1, {11, 23, 3, 15, 11, 23, 3, 15})
    end)
  end)

  it("split, chunk and unbind cut along a dim", function()
    U.each_device(function(dev)
      local x = limn.arange(7):to(dev)
      local s = x:split {1, 4, 2}
      U.equal(s[2], {2, 3, 4, 5})
      local c = x:chunk(3)
      assert.are.equal(3, #c)
      U.equal(c[3], {7})
      U.equal(x:split(3)[3], {7})
      U.equal(x:unbind()[7], {7})
    end)
  end)
end)

local order = {"float64", "float32", "float16", "bfloat16", "int64", "int32",
               "int8", "uint8", "bool"}

describe("Conversion", function()
  it("between devices keeps every bit", function()
    U.each_pair(function(a, b)
      for _, dtype in ipairs(order) do
        local x = limn.tensor({0, 1, 1, 0}, dtype, a)
        local y = x:to(b)
        assert.are.equal(b, y.device)
        assert.are.equal(dtype, y.dtype)
        U.equal(y, x)
      end
      local strided = limn.arange(6):reshape(2, 3):to(a):t()
      U.equal(strided:to(b), {1, 4, 2, 5, 3, 6})
    end)
  end)
end)

describe("Printing", function()
  it("shows elements, dtype, shape and device", function()
    U.each_device(function(dev)
      local s = tostring(limn.tensor({{1, 2}, {3, 4}}, dev))
      for _, p in ipairs {"1", "4", "float32", "%[2, 2%]", dev} do
        assert.is_truthy(s:find(p), s)
      end
      assert.is_truthy(tostring(limn.ones({}, dev)):find "1")
      assert.is_truthy(tostring(limn.ones(0, 3, dev)):find "%[0, 3%]")
    end)
  end)

  it("of a large tensor shows its edges and copies no more", function()
    U.each_device(function(dev)
      local x = limn.arange(1e6):reshape(1000, 1000):to(dev)
      local s = tostring(x)
      assert.is_true(#s < 2000, "too long: " .. #s)
      assert.is_truthy(s:find "%.%.%.")
      assert.is_truthy(s:find "%[1000, 1000%]")
      assert.is_truthy(s:find "999999" or s:find "1e%+0?6", s)
    end)
  end)
end)

describe("Comparison by operators", function()
  it("raises with what to write instead", function()
    local x, y = limn.ones(2), limn.ones(2)
    local line = U.here(1)
    U.message(function() return x < y end, line, "x:lt%(y%)")
    U.message(function() return x == y end, "x:eq%(y%)")
    assert.is_false(x == 0)
  end)
end)

describe("limn.scope", function()
  it("frees what was made inside, but not what it returns or keeps",
     function()
    U.each_device(function(dev)
      local lost, kept
      local y = limn.scope(function()
        lost = limn.ones(2, dev)
        kept = limn.keep(lost + 1)
        return lost + kept
      end)
      U.equal(y, {3, 3})
      U.equal(kept, {2, 2})
      U.message(function() return lost + 1 end, "freed")
    end)
  end)
end)

describe("Devices", function()
  it("are listed by name, the CPU first", function()
    local list = limn.devices()
    assert.are.equal("cpu", list[1])
    local all = limn.devices {all = true}
    assert.is_true(#all >= #list)
  end)
  it("are counted by their own launches", function()
    local core = require "limn.core"
    local function launches(dev)
      local _, info = core.devices()
      for _, d in ipairs(info) do
        if d.name == dev then return d.launches end
      end
    end
    U.each_pair(function(a, b)
      if a == b then return end
      local x = limn.ones(3, a)
      local before_a, before_b = launches(a), launches(b)
      U.equal(x * 3, {3, 3, 3})
      assert.is_true(launches(a) > before_a)
      assert.are.equal(before_b, launches(b))
    end)
  end)
end)
