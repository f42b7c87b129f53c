-- limn.trace {f, ..., check = true}: the graph against the function on fresh
-- inputs of other sizes, on each device.
local U = require "support.util"
local core = require "limn.core"
local limn = U.limn
local nn = limn.nn

describe("limn.trace with check = true", function()
  it("passes what traces truly: sizes, structure, numbers, guards, randomness",
     function()
    local g = limn.trace {function(t, k, word)
      local x = t.x
      if x:size(2) == 3 then x = x * k end
      if word == "half" then x = x / 2 end
      return {y = x:matmul(t.w) + limn.rand_like(t.w)[1], n = x:size(1)}, "ok"
    end, {x = limn.randn(4, 3), w = limn.randn(3, 5)}, limn.number(2.5), "half",
      check = true}
    U.each_device(function(dev)
      local r = g({x = limn.ones(2, 3, dev), w = limn.zeros(3, 1, dev)}, 1,
                  "half")
      assert.are.equal(2, r.n)
    end)
    limn.trace {function(x, i) return x[i] end, limn.spec {"rows", 2},
                limn.tensor({1, 3, 2}, "int64"), check = true}
  end)

  it("shows nothing of what the function prints", function()
    local lines, old = 0, print
    rawset(_G, "print", function() lines = lines + 1 end)
    local ok, e = pcall(limn.trace, {function(x)
      limn.print(x)
      return x
    end, limn.ones(2), check = true})
    rawset(_G, "print", old)
    assert.is_true(ok, e)
    assert.are.equal(0, lines)
  end)

  it("leaves cells, buffers and random numbers as they were", function()
    limn.manual_seed(4)
    local net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4),
                              nn.Dropout(0.5), nn.Linear(4, 1))
    local opt = limn.optim.Adam(net, {lr = 0.1})
    local loss = limn.value_and_grad(function(x, t)
      return nn.mse_loss(net(x), t)
    end, net)
    local x, t = limn.randn(8, 4), limn.randn(8, 1)
    local before, draws = {}, core.counters().draws
    for name, c in net:named_cells() do before[name] = U.flat(c) end
    local step = limn.trace {function(a, b)
      local l, g = loss(a, b)
      opt:step(g)
      return l
    end, x, t, check = true}
    for name, c in net:named_cells() do U.equal(c, before[name], name) end
    assert.are.equal(draws, core.counters().draws)
    local first = step(x, t):item()
    for _ = 1, 10 do step(x, t) end
    assert.is_true(step(x, t):item() < first)
  end)

  it("names the first line that differs, with sizes and device", function()
    local calls = 0
    local line = debug.getinfo(1, "l").currentline + 6
    local e = U.message(function()
      limn.trace {function(x)
        local y = x * 2
        calls = calls + 1
        local z = y:tanh()
        z = z + calls
        return z * 3
      end, limn.ones(3), check = true}
    end, "check_spec.lua:" .. line, "the value is",
      "example's sizes on cpu", "result 1 is", "hint:")
    assert.is_nil(e:find("check_spec.lua:" .. line - 3, 1, true), e)
  end)

  it("finds a size of the example that was frozen", function()
    local random = {4} -- escapes through a table that the trace changes
    U.message(function()
      limn.trace {function(x)
        local n = random[1]
        if type(x:size(1)) == "number" then n = x:size(1) end
        return x:sum() / n
      end, limn.ones(4), check = true}
    end, "sizes 4 %-> 5 on cpu", "result 1")
  end)
end)
