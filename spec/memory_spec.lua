-- Loops keep resident memory flat without help from collectgarbage.
local U = require "support.util"
local limn = U.limn
local nn, optim = limn.nn, limn.optim

local many = U.asan and 300 or 10000

-- f(i) runs `count` times. How much higher memory peaks in the last quarter
-- than in the second, in bytes: collecting makes it go up and down between, so
-- it is looked at often.
local function growth(count, f)
  local peaks = {0, 0, 0, 0}
  local quarter, step = count / 4, math.ceil(count / 400)
  for q = 1, 4 do
    for i = 1, quarter do
      f(i)
      if i % step == 0 then peaks[q] = math.max(peaks[q], U.resident()) end
    end
  end
  return peaks[4] - peaks[2]
end
local flat = 8e6

describe("Resident memory stays flat over", function()
  if U.asan or not U.resident() then return end

  U.each_device(function(dev)
    it("an eager loop on " .. dev, function()
      local x = limn.randn(64, 256, dev)
      local w = limn.randn(256, 256, dev)
      local grown = growth(many, function(i)
        local y = (x * i + 1):tanh()
        local s = y:sum(1)
        if i % 50 == 0 then y = y:matmul(w) end
        return y, s
      end)
      assert.is_true(grown < flat, dev .. ": " .. grown)
    end)

    it("a traced training loop on " .. dev, function()
      local m = nn.Sequential(nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 4))
      local opt = optim.Adam(m, {lr = 1e-3})
      local loss = limn.value_and_grad(function(x, t)
        return nn.cross_entropy(m(x), t)
      end, m)
      local step = limn.jit(function(x, t)
        local l, g = loss(x, t)
        opt:step(g)
        return l
      end)
      local x, t = limn.randn(16, 32, dev), limn.randint(1, 4, 16, dev)
      local grown = growth(many, function(i)
        local l = step(x, t)
        if i % 100 == 0 then l:item() end
      end)
      assert.is_true(grown < flat, dev .. ": " .. grown)
    end)
  end)

  it("large results whose handles look small to Lua", function()
    local grown = growth(400, function() return limn.zeros(1024, 1024) end)
    assert.is_true(grown < flat, grown)
  end)

  it("traces that come and go", function()
    local grown = growth(2000, function(i)
      local g = limn.trace(function(x) return x * i + x:sum() end,
                           limn.ones(3))
      return g(limn.ones(4))
    end)
    assert.is_true(grown < flat, grown)
  end)
end)

describe("Everything is given back", function()
  it("when handles are collected", function()
    local core = require "limn.core"
    local function work()
      local m = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 2))
      local g = limn.trace(m, limn.ones(1, 8))
      U.each_device(function(dev)
        g(limn.ones(3, 8, dev))
        local _ = limn.ones(1000, dev) * 3
      end)
      local l = limn.load_string(limn.save_string {g = g})
      l.g(limn.ones(2, 8))
      pcall(limn.trace, function(x) error(x) end, limn.ones(1))
    end
    work()
    for _ = 1, 3 do collectgarbage() end
    local before = core.counters()
    for _ = 1, 20 do work() end
    for _ = 1, 3 do collectgarbage() end
    local after = core.counters()
    assert.is_true(after.bytes - before.bytes < 3e5,
                   after.bytes - before.bytes)
    assert.is_true(after.device_bytes <= before.device_bytes + 1e5,
                   after.device_bytes - before.device_bytes)
  end)
end)

describe("Large blocks of a tensor that is gone", function()
  it("serve the next one of that size, and count as free", function()
    local x = limn.ones(512, 1024)
    local function churn()
      local y = x + 1
      assert.are.equal(2, y:at(-1, -1))
      y = nil -- luacheck: ignore
      collectgarbage()
    end
    for _ = 1, 3 do churn() end
    collectgarbage()
    local before = limn.counters()
    for _ = 1, 10 do churn() end
    local after = limn.counters()
    assert.are.equal(before.bytes, after.bytes)
    -- The same with tensors too small to be kept takes one more each time.
    x = limn.ones(64, 1024)
    for _ = 1, 3 do churn() end
    local at = limn.counters().allocs
    for _ = 1, 10 do churn() end
    assert.are.equal(limn.counters().allocs - at - 10,
                     after.allocs - before.allocs)
  end)
end)

describe("A large block", function()
  local maps, known = io.open "/proc/self/smaps",
    io.open "/sys/kernel/mm/transparent_hugepage/enabled"
  if known then known:close() end
  if maps then maps:close() end
  if not (maps and known) or U.asan then return end -- sanitizers have their own

  it("asks the system for large pages, which a small one does not", function()
    local text = U.lua [[
      local limn = require "limn"
      local function asked()
        local f = io.open "/proc/self/smaps"
        local flags = f:read "*a"
        f:close()
        return flags:find "VmFlags:[^\n]* hg[ \n]" ~= nil
      end
      local small = limn.ones(256, 1024)
      print(small.shape[1], asked())
      local large = limn.ones(1024, 1024)
      print(large.shape[1], asked())]]
    assert.are.equal("256\tfalse\n1024\ttrue\n", text)
  end)
end)
