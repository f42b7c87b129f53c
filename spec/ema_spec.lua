-- Moving averages of weights: eager, recorded, swapped, saved.
local U = require "support.util"
local limn = U.limn
local optim, nn = limn.optim, limn.nn

local function model()
  local net = nn.Linear(1, 1, {bias = false})
  net.weight:assign(limn.ones(1, 1))
  return net
end

describe("optim.EMA", function()
  it("averages, eager and recorded", function()
    U.each_device(function(dev)
      for _, how in ipairs {"eager", "recorded"} do
        local net = model()
        local ema = optim.EMA(net, {decay = 0.75})
        local function body(x)
          net.weight:assign(net.weight + x)
          ema:update()
          return x + 1
        end
        local step = how == "recorded" and limn.jit(body) or body
        local w, mean = 1, 1
        for _ = 1, 4 do
          limn.on(dev, function() step(limn.ones(1, 1):to(dev)) end)
          w = w + 1
          mean = 0.75 * mean + 0.25 * w
        end
        U.close(net.weight, {w})
        ema:swap()
        U.close(net.weight, {mean})
        ema:swap()
        U.close(net.weight, {w})
        ema:set {decay = 0.5}
        limn.on(dev, function() step(limn.ones(1, 1):to(dev)) end)
        mean = 0.5 * mean + 0.5 * (w + 1)
        ema:apply()
        U.close(net.weight, {mean})
        if how == "recorded" then assert.equal(1, step:stats().traces) end
      end
    end)
  end)

  it("is used for the time of a call, even one that fails", function()
    local net = model()
    local ema = optim.EMA(net, {decay = 0.5})
    net.weight:assign(limn.full({1, 1}, 3))
    ema:update()
    local a, b = ema:swap(function(x) return net.weight:item(), x end, 7)
    assert.same({2, 7}, {a, b})
    U.equal(net.weight, {3})
    U.message(function() ema:swap(function() error "oh" end) end, "oh")
    U.equal(net.weight, {3})
  end)

  it("forgets the start sooner with warmup", function()
    local net = model()
    local ema = optim.EMA(net, {decay = 0.999, warmup = true})
    net.weight:assign(limn.full({1, 1}, 12))
    ema:update()
    ema:apply()
    U.close(net.weight, {1 + 11 * (1 - 2 / 11)})
  end)

  it("is saved with the model", function()
    local net = model()
    local ema = optim.EMA(net, {decay = 0.5, warmup = true})
    net.weight:assign(limn.full({1, 1}, 3))
    ema:update()
    U.with_file(function(path)
      limn.save(path, {net = net, ema = ema})
      local net2 = model()
      local ema2 = optim.EMA(net2, {warmup = true})
      local report = limn.restore(path, {net = net2, ema = ema2})
      assert.same({}, report.missing)
      assert.equal(tostring(ema), tostring(ema2))
      ema:update()
      ema2:update()
      ema:apply()
      ema2:apply()
      U.equal(net2.weight, U.flat(net.weight))
      -- A loaded file is a model like any other.
      local m = limn.load(path)
      optim.EMA(m)
    end)
  end)

  it("says what it wants", function()
    local line = U.here(1)
    U.message(function() optim.EMA(3) end, line, "wants a model, got number")
    U.message(function() optim.EMA(nn.Linear) end, "wants a model")
    U.message(function() optim.EMA(nn.ReLU()) end, "no parameters")
    U.message(function() optim.EMA(model(), {decay = 2}) end,
              "decay is a number from 0 to 1, got 2")
  end)
end)
