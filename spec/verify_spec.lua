-- LIMN_VERIFY=1 computes each run a second time, unfused, and compares; what it
-- does beside is not seen by the run.
local U = require "support.util"

local function verified(source)
  local text, ok = U.lua('local limn = require "limn"\n' .. source,
                         "LIMN_VERIFY=1")
  assert.is_true(ok, text)
  return text
end

describe("LIMN_VERIFY=1", function()
  it("takes noise for noise: a bias before BatchNorm under Adam", function()
    -- The bias has the gradient 0 and some rounding, which Adam scales up.
    local text = verified [[
      local nn = limn.nn
      for seed = 1, 3 do
        limn.manual_seed(seed)
        local net = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6),
                                  nn.ReLU(), nn.Linear(6, 1))
        local opt = limn.optim.Adam(net, {lr = 0.05})
        local loss = limn.value_and_grad(function(x, t)
          return nn.mse_loss(net(x), t)
        end, net)
        local step = limn.jit(function(x, t)
          local l, g = loss(x, t)
          opt:step(g)
          return l
        end)
        local x, t = limn.randn(16, 4), limn.randn(16, 1)
        for _, dev in ipairs(limn.devices()) do
          for _ = 1, 15 do step(x:to(dev), t:to(dev)) end
        end
      end
      io.write "fine"]]
    assert.are.equal("fine", text)
  end)

  it("leaves plans, counters, launches and random numbers as they are",
     function()
    local text = verified [[
      local core = require "limn.core"
      local g = limn.trace(function(x) return (x * 2 + limn.rand_like(x)):sum()
        end, limn.ones(2))
      for _, dev in ipairs(limn.devices()) do
        local x = limn.ones(8, dev)
        limn.manual_seed(3)
        local want = g(x):item()
        limn.manual_seed(3)
        local before = core.counters()
        assert(g(x):item() == want)
        local after = core.counters()
        assert(after.plans == before.plans)
        assert(after.compiles == before.compiles)
        assert(after.downloads - before.downloads <= 1)
      end
      local s = g:stats()
      assert(s.plans == #limn.devices() and s.hits == s.plans)
      assert(s.misses[#s.misses] == "first run")
      io.write "fine"]]
    assert.are.equal("fine", text)
  end)
end)
