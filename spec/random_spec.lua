-- Random numbers: the same words everywhere, a new draw each time.
local U = require "support.util"
local limn = U.limn
local nn = limn.nn

-- Philox4x32-10 of counter 0 and key 0 (Salmon et al. 2011, known answers).
local zero = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}

describe("rand_bits", function()
  it("are the words of Philox: the known answer for key and counter 0",
     function()
    U.each_device(function(dev)
      limn.manual_seed(0)
      local w = limn.rand_bits(4, dev)
      assert.are.equal("int64", w.dtype)
      U.equal(w, zero)
    end)
  end)

  it("are equal on all devices, in eager and traced code, in any shape",
     function()
    local want
    U.each_device(function(dev)
      limn.manual_seed(1234)
      limn.rand(1)
      local w = limn.rand_bits(5, 7, dev)
      want = want or w
      U.equal(w, want)
    end)
    U.each_pair(function(from, to)
      local g = limn.trace(function(x)
        local a = limn.rand(1)
        return limn.rand_bits(x:size(1), 7), a
      end, limn.ones(2, from))
      limn.manual_seed(1234)
      U.equal(g(limn.ones(5, to)), want, from .. " to " .. to)
    end)
  end)

  it("2^20 of them are equal on all devices", function()
    local want
    U.each_device(function(dev)
      limn.manual_seed(5)
      local w = limn.rand_bits(2 ^ 20, dev):to "cpu"
      want = want or w
      assert.are.equal(0, w:ne(want):sum():item())
    end)
  end)
end)

local function kinds(like, n, options)
  return {
    limn.rand(n, options), limn.randn(n, options),
    limn.randint(1, 6, n, {device = options.device}),
    limn.rand_like(like), limn.randn_like(like), nn.dropout(like + 1),
  }
end

describe("All kinds of random numbers", function()
  it("are the same eager and traced, on every device", function()
    for _, dtype in ipairs {"float32", "float64"} do
      local want
      U.each_device(function(dev)
        local like = limn.zeros(9, {dtype = dtype, device = dev})
        limn.manual_seed(7)
        local y = kinds(like, 9, {dtype = dtype, device = dev})
        want = want or y
        for i, t in ipairs(y) do
          if i == 2 or i == 5 then -- normal numbers pass through libm
            U.close(t, want[i], dtype == "float64" and 1e-13 or 1e-5)
          else
            U.equal(t, want[i], i .. " on " .. dev)
          end
        end
      end)
      U.each_pair(function(from, to)
        local g = limn.trace(function(x)
          return kinds(x, 9, {dtype = x.dtype, device = x.device})
        end, limn.zeros(9, {dtype = "float32", device = from}))
        limn.manual_seed(7)
        local y = g(limn.zeros(9, {dtype = dtype, device = to}))
        for i, t in ipairs(y) do
          if i == 2 or i == 5 then
            U.close(t, want[i], dtype == "float64" and 1e-13 or 1e-5)
          else
            U.equal(t, want[i], i .. ", " .. from .. " to " .. to)
          end
        end
      end)
    end
  end)

  it("do not depend on the passes", function()
    local source = [[
      local limn = require "limn"
      local f = limn.trace(function(x)
        local a, b = limn.rand(3), limn.rand(3)
        local unused = limn.rand(3)
        return a + b * 0, limn.rand_like(x) * 2, limn.randint(1, 9, 4)
      end, limn.ones(2))
      limn.manual_seed(3)
      for _ = 1, 2 do
        for _, t in ipairs {f(limn.ones(5))} do
          print(table.concat(t:totable(), " "))
        end
      end]]
    local plain = U.lua(source)
    assert.is_truthy(plain:find "%d", plain)
    for _, opt in ipairs {"-all", "-fuse", "-simplify", "-inplace"} do
      assert.are.equal(plain, U.lua(source, "LIMN_OPT=" .. opt), opt)
    end
  end)

  it("differ between two runs; a seed repeats them, for old graphs too",
     function()
    U.each_device(function(dev)
      local g = limn.trace(function(x) return limn.rand_like(x) end,
                           limn.ones(8))
      local x = limn.ones(8, dev)
      limn.manual_seed(11)
      local a, b = g(x), g(x)
      assert.is_not_nil(U.difference(a, b, 0))
      limn.manual_seed(11)
      U.equal(g(x), a)
      U.equal(g(x), b)
      limn.manual_seed(12)
      assert.is_not_nil(U.difference(g(x), a, 0))
    end)
  end)

  it("two nodes of one graph differ, also where they look alike", function()
    U.each_device(function(dev)
      local g = limn.trace(function(x)
        return limn.rand_like(x), limn.rand_like(x)
      end, limn.ones(8))
      local a, b = g(limn.ones(8, dev))
      assert.is_not_nil(U.difference(a, b, 0))
    end)
  end)

  it("tracing takes no draw, a run as many as were recorded", function()
    limn.manual_seed(21)
    local a = limn.rand(4)
    limn.manual_seed(21)
    local g = limn.trace(function(x)
      local unused = limn.rand(3) -- luacheck: ignore
      return limn.rand_like(x)
    end, limn.ones(4))
    U.equal(limn.rand(4), a)
    limn.manual_seed(21)
    g(limn.ones(4))
    local after = limn.rand(4)
    limn.manual_seed(21)
    limn.rand(1)
    limn.rand(1)
    U.equal(limn.rand(4), after)
  end)
end)

describe("Distributions", function()
  local n = 20000
  local function moments(t)
    local m = t:to "float64":mean():item()
    return m, ((t:to "float64" - m) ^ 2):mean():item()
  end
  it("rand is uniform in [0, 1)", function()
    U.each_device(function(dev)
      limn.manual_seed(1)
      for _, dtype in ipairs {"float32", "float64", "float16"} do
        local t = limn.rand(n, {dtype = dtype, device = dev})
        local m, v = moments(t)
        assert.is_true(math.abs(m - 0.5) < 0.02, dtype .. " " .. m)
        assert.is_true(math.abs(v - 1 / 12) < 0.005, dtype .. " " .. v)
        assert.is_true(t:min():item() >= 0 and t:max():item() < 1, dtype)
      end
    end)
  end)
  it("randn is normal", function()
    U.each_device(function(dev)
      limn.manual_seed(2)
      local t = limn.randn(n, dev)
      local m, v = moments(t)
      assert.is_true(math.abs(m) < 0.03, m)
      assert.is_true(math.abs(v - 1) < 0.05, v)
      local beyond = t:abs():gt(1.959964):to "float32":mean():item()
      assert.is_true(math.abs(beyond - 0.05) < 0.01, beyond)
      assert.is_true(t:isfinite():all():item())
    end)
  end)
  it("randint is a die: both ends, all alike", function()
    U.each_device(function(dev)
      limn.manual_seed(3)
      local t = limn.randint(1, 6, n, dev)
      assert.are.equal("int64", t.dtype)
      for face = 1, 6 do
        local part = t:eq(face):to "float32":mean():item()
        assert.is_true(math.abs(part - 1 / 6) < 0.02, face .. ": " .. part)
      end
      assert.are.equal(1, t:min():item())
      assert.are.equal(6, t:max():item())
    end)
  end)
  it("randperm is a permutation", function()
    limn.manual_seed(4)
    local seen, moved = {}, 0
    for i, v in ipairs(U.flat(limn.randperm(50))) do
      assert.is_nil(seen[v])
      seen[v] = true
      if v ~= i then moved = moved + 1 end
    end
    assert.is_true(moved > 30)
    assert.are.equal("int32", limn.randperm(5, "int32").dtype)
    U.equal(limn.randperm(0), {})
  end)
  it("randperm finds all orders alike, and traces with any size", function()
    limn.manual_seed(5)
    local count = {}
    for _ = 1, 1200 do
      local s = table.concat(limn.randperm(3):totable(), " ")
      count[s] = (count[s] or 0) + 1
    end
    for _, s in ipairs {"1 2 3", "1 3 2", "2 1 3", "2 3 1", "3 1 2",
                        "3 2 1"} do
      assert.is_true(count[s] > 150 and count[s] < 250, s)
    end
    local g = limn.trace(function(x)
      return x[limn.randperm(x:size(1), x.device)]
    end, limn.ones(2))
    limn.manual_seed(6)
    local want = U.flat(limn.randperm(9))
    U.each_device(function(dev)
      limn.manual_seed(6)
      U.equal(g(limn.arange(9):to(dev)), want)
    end)
  end)
end)
