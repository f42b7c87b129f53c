-- Plans: numbers do not compile, caches are bounded, misses are explained, a
-- run into given memory allocates nothing.
local U = require "support.util"
local core = require "limn.core"
local limn = U.limn
local nn = limn.nn

local function compiles() return core.counters().compiles end
local function plans() return core.counters().plans end

describe("A thousand different", function()
  local many = U.asan and 100 or 1000

  it("scalars compile nothing after the first, eager and traced", function()
    U.each_device(function(dev)
      local x = limn.ones(4, dev)
      local g = limn.trace(function(v, s)
        return v * s + 1, limn.full({2}, s), limn.clamp(v, s, 9)
      end, x, limn.number(2.5))
      g(x, 0.5)
      -- Whole numbers and others are two kinds: they promote differently.
      local _ = x * 1.5 + 2.5
      _ = x * 2 + 3
      local before, planned = compiles(), plans()
      for i = 1, many do
        g(x, i / 7)
        _ = x * (i / 3) + i / 5
      end
      assert.are.equal(before, compiles(), dev)
      assert.are.equal(planned, plans(), dev)
      U.close(x * 3.25 + 0.5, {3.75, 3.75, 3.75, 3.75})
    end)
  end)

  it("sizes compile nothing after the first", function()
    U.each_device(function(dev)
      local g = limn.trace(function(x)
        return (x * 2 + x:sum(1)):tanh(), x:t():matmul(x)
      end, limn.ones(3, 4, dev))
      local function use(n, m)
        local y = g(limn.ones(n, m, dev))
        local z = limn.ones(n, dev) + 1
        return y, z
      end
      -- A dim of 1 has no stride to speak of: other layouts, few in number.
      for _, s in ipairs {{3, 5}, {1, 1}, {5, 1}, {1, 5}, {64, 64}} do
        use(s[1], s[2])
      end
      local before = compiles()
      local r = U.random(3)
      for _ = 1, many / 4 do
        use(1 + math.floor(r() * 300), 1 + math.floor(r() * 30))
      end
      assert.are.equal(before, compiles(), dev)
    end)
  end)

  it("offsets compile nothing after the first", function()
    U.each_device(function(dev)
      local x = limn.arange(2000):to(dev)
      local _ = x[{{2, 3}}] * 2
      local y = limn.zeros(2000, dev)
      y[2] = 1
      local g = limn.trace(function(v) return v + 1 end, limn.ones(2, dev))
      g(x[{{3, 4}}])
      local before = compiles()
      for i = 1, many do
        _ = x[{{i, i + 1}}] * 2
        y[i] = i
        g(x[{{i, i + 1}}])
      end
      assert.are.equal(before, compiles(), dev)
      U.equal(y[{{1, 3}}], {1, 2, 3})
    end)
  end)
end)

describe("The plans of a graph", function()
  it("are made once per key, and a miss is explained by what differed",
     function()
    U.each_device(function(dev)
      local g = limn.trace(function(x) return x * 2 end, limn.ones(2, 3))
      g(limn.ones(8, 3, dev))
      g(limn.ones(8, 3, dev))
      local s = g:stats()
      assert.are.equal(2, s.runs)
      assert.are.equal(1, s.plans)
      assert.are.equal(1, s.hits)
      g(limn.ones(16, 3, dev))
      local miss = g:stats().misses[1]
      assert.is_truthy(miss:find "8" and miss:find "16", miss)
      g(limn.ones(16, 3, {dtype = "float64", device = dev}))
      miss = g:stats().misses[1]
      assert.is_truthy(miss:find("dtype of %x: float32 -> float64", 1, true),
                       miss)
    end)
  end)

  it("are bounded: ten thousand sizes keep entries and memory flat",
     function()
    local many = U.asan and 1000 or 10000
    U.each_device(function(dev)
      if dev ~= "cpu" then many = many / 10 end
      local g = limn.trace(function(x) return x * 2 end, limn.ones(1))
      local x = limn.ones(math.max(many, 600), dev)
      for n = 1, 600 do g(x[{{1, n}}]) end
      collectgarbage()
      local bytes = core.counters().bytes
      for n = 1, many do g(x[{{1, n}}]) end
      collectgarbage()
      local s = g:stats()
      assert.is_true(s.entries <= 512, s.entries)
      assert.is_true(s.evicted > 0)
      local grown = core.counters().bytes - bytes
      assert.is_true(grown < 4e6, dev .. " grew by " .. grown)
      U.equal(g(x[{{1, 2}}]), {2, 2})
    end)
  end)

  it("go with the graph", function()
    local function once()
      local g = limn.trace(function(x) return (x * 2):sum() end, limn.ones(1))
      for n = 1, 50 do g(limn.ones(n)) end
    end
    once()
    collectgarbage()
    collectgarbage()
    local bytes = core.counters().bytes
    for _ = 1, 10 do once() end
    collectgarbage()
    collectgarbage()
    assert.is_true(core.counters().bytes - bytes < 1e5,
                   core.counters().bytes - bytes)
  end)

  it("can be made before the first run", function()
    U.each_device(function(dev)
      local g = limn.trace(function(x) return x:exp() end, limn.ones(2))
      g:prepare(limn.ones(5, dev))
      local before, compiled = plans(), compiles()
      U.close(g(limn.zeros(5, dev)), {1, 1, 1, 1, 1})
      assert.are.equal(before, plans())
      assert.are.equal(compiled, compiles())
    end)
  end)

  it("can be read", function()
    local g = limn.trace(function(x) return (x * 2):tanh() end, limn.ones(2))
    local text = g:explain(limn.ones(3))
    assert.is_truthy(text:find "1 steps", text)
    assert.is_truthy(text:find("{ load number mul tanh store }", 1, true),
                     text)
  end)

  it("compute a shared difference again rather than store it", function()
    local g = limn.trace(function(x)
      local d = x - x:mean(2, true)
      return d:square():sum(2), d:abs():sum(2), (d * 1):exp():sum(1)
    end, limn.ones(2, 3))
    U.each_device(function(dev)
      local x = limn.randn(40, 50)
      local text = g:explain(x:to(dev))
      assert.is_truthy(text:find "5 steps", text)
      assert.is_truthy(text:find("{ load load sub exp store }", 1, true), text)
      local a, b, c = g(x:to(dev))
      local d = x - x:mean(2, true)
      U.close(a, d:square():sum(2), 1e-5)
      U.close(b, d:abs():sum(2), 1e-5)
      U.close(c, d:exp():sum(1), 1e-5)
    end)
  end)

  it("fuse chains: one kernel for an elementwise expression", function()
    local dev = U.other()
    if not dev then return end
    local g = limn.trace(function(a, b, c) return (a * b + c):tanh() * a end,
                         limn.ones(2), limn.ones(2), limn.ones(2))
    local x = limn.ones(64, dev)
    g(x, x, x)
    local function launches()
      local _, info = core.devices()
      for _, d in ipairs(info) do
        if d.name == dev then return d.launches end
      end
    end
    local before = launches()
    g(x, x, x)
    assert.are.equal(1, launches() - before)
  end)
end)

describe("run_into", function()
  it("allocates nothing", function()
    U.each_device(function(dev)
      local m = nn.Sequential(nn.Linear(6, 7), nn.Tanh(), nn.Linear(7, 2))
      local g = limn.trace(m, limn.ones(3, 6))
      local x, out = limn.ones(5, 6, dev), limn.zeros(5, 2, dev)
      local want = g(x)
      g:run_into({out}, x)
      local before = core.counters()
      for _ = 1, 100 do g:run_into({out}, x) end
      local after = core.counters()
      assert.are.equal(before.allocs, after.allocs, dev)
      assert.are.equal(before.bytes, after.bytes, dev)
      assert.are.equal(before.device_bytes, after.device_bytes, dev)
      U.close(out, want, 1e-6)
    end)
  end)

  it("refuses more tensors than there are results", function()
    local g = limn.trace(function(x) return x * 3 end, limn.ones(2))
    U.message(function()
      g:run_into({limn.zeros(2), limn.zeros(2)}, limn.ones(2))
    end, "2 tensors for 1 result")
  end)

  it("writes what the handle shows; a clone keeps the old value", function()
    U.each_device(function(dev)
      local g = limn.trace(function(x) return x * 3 end, limn.ones(2))
      local out = limn.zeros(2, dev)
      local alias, copy = out, out:clone()
      g:run_into({out}, limn.ones(2, dev))
      U.equal(alias, {3, 3})
      U.equal(copy, {0, 0})
    end)
  end)
end)

describe("A run", function()
  it("repeated gives the same bits", function()
    U.each_device(function(dev)
      limn.manual_seed(6)
      for _, n in ipairs {5, 33} do
        local m = nn.Sequential(nn.Linear(n, n + 3), nn.Tanh(),
                                nn.Linear(n + 3, 3))
        local g = limn.trace(m, limn.ones(1, n))
        for _, rows in ipairs {1, 4, 9} do
          local x = limn.randn(rows, n, dev)
          local y = g(x)
          for i = 1, 5 do U.equal(g(x), y, "run " .. i .. " on " .. dev) end
        end
      end
    end)
  end)

  it("of a graph without arguments is on the CPU, or where it is put",
     function()
    local g = limn.trace(function() return limn.arange(3) * 2 end)
    U.equal(g(), {2, 4, 6})
    assert.are.equal("cpu", g().device)
    U.each_device(function(dev)
      local y = g:on(dev)()
      U.equal(y, {2, 4, 6})
      assert.are.equal(dev, y.device)
      assert.are.equal(dev, limn.on(dev, g).device)
    end)
  end)

  it("takes strided arguments of any layout", function()
    U.each_device(function(dev)
      local g = limn.trace(function(a, b)
        return a * 2 + b, a:matmul(b:t()), a:sum(1)
      end, limn.ones(2, 3), limn.ones(2, 3))
      local base = limn.arange(24):reshape(4, 6):to(dev)
      local views = {base[{{1, 3}, {1, 4}}], base:t()[{{1, 3}}],
                     base:flip(1)[{{2, 4}, {2, 5}}],
                     base[{{1}, {1, 4}}]:expand(3, 4)}
      for i, a in ipairs(views) do
        local b = views[i % #views + 1]
        local y = {g(a, b)}
        local z = {g(a:contiguous(), b:contiguous())}
        for k = 1, 3 do U.close(y[k], z[k], 1e-6, "max", i .. " on " .. dev) end
      end
    end)
  end)
end)

describe("Without fusing", function()
  it("what a slice's gradient fills in does not cover its parts", function()
    local f = limn.grad(function(x) return (x[{{1, -1, 2}}] * 3):sum() end)
    U.each_device(function(dev)
      local g = limn.trace(function(x)
        local y = f(x)
        return y
      end, limn.ones(3))
      for _, off in ipairs {"-fuse", "-simplify", "-all", "+all"} do
        local old = core.passes(off)
        local ok, e = pcall(function()
          U.equal(g(limn.ones(1, dev)), {3}, off)
          U.equal(g(limn.ones(3, dev)), {3, 0, 3}, off)
        end)
        core.passes(old)
        assert.is_true(ok, e)
      end
    end)
  end)

  it("has no step for what `where` leaves out on a bool that is known",
     function()
    local g = require "limn.core".graph_parse [[
limn 1
graph f(%x: [_]) {
  %1 = cumsum(%x, dim=1, reverse=false)
  %2 = cumprod(%x, dim=1)
  %3 = where(true, %1, %2)
  %4 = where(false, %2, %3)
  return %4
}
]]
    U.each_device(function(dev)
      local x = limn.tensor({1, 2, 3}, dev)
      U.equal(g(x), {1, 3, 6})
      local text = tostring(g:explain(x))
      assert(text:find "cumsum" and not text:find "cumprod", text)
    end)
  end)
end)
