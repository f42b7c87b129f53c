-- CMA-ES finds minima with no gradient, and its state goes into files.
local U = require "support.util"
local limn = U.limn
local optim, nn = limn.optim, limn.nn

local function rosenbrock(p)
  return limn.jit(function()
    local x, y = p[{{1, 3}}], p[{{2, 4}}]
    return ((y - x:square()):square() * 100 + (1 - x):square()):sum()
  end)
end

describe("optim.CMAES", function()
  it("goes along Rosenbrock's valley", function()
    limn.manual_seed(1)
    local p = nn.Parameter(limn.zeros(4, {dtype = "float64"}))
    local es = optim.CMAES({p}, {sigma = 0.5})
    local f = rosenbrock(p)
    local best, mean
    for _ = 1, 400 do
      best, mean = es:step(f)
      if best < 1e-12 then break end
    end
    assert.is_true(best < 1e-12 and mean >= best, best)
    U.close(p, {1, 1, 1, 1}, 1e-4)
    assert.equal(1, f:stats().traces)
  end)

  it("learns the form of a long ellipse, in full and by its diagonal",
     function()
    for _, diagonal in ipairs {false, true} do
      limn.manual_seed(2)
      local p = nn.Parameter(limn.ones(6, {dtype = "float64"}))
      local scale = limn.tensor({1, 10, 100, 1e3, 1e4, 1e5}, "float64")
      local es = optim.CMAES({p}, {diagonal = diagonal, maximize = true})
      local f = limn.jit(function() return -(p:square() * scale):sum() end)
      for _ = 1, 400 do
        if es:step(f) > -1e-10 then break end
      end
      U.close(p, {0, 0, 0, 0, 0, 0}, 1e-4)
    end
  end)

  it("trains a model in place, on any device", function()
    U.each_device(function(dev)
      limn.manual_seed(3)
      local net = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))
      local x = limn.tensor {{0, 0}, {0, 1}, {1, 0}, {1, 1}}:to(dev)
      local t = limn.tensor {{0}, {1}, {1}, {0}}:to(dev)
      local loss = limn.jit(function(a, b) return (net(a) - b):square():mean()
      end)
      local es = optim.CMAES(net, {sigma = 1})
      local best
      for _ = 1, 150 do
        best = es:step(function() return loss(x, t) end)
        if best < 0.01 then break end
      end
      assert.is_true(best < 0.01, best)
      assert.equal(1, loss:stats().traces)
    end)
  end)

  it("leaves what is frozen, and survives NaN and errors", function()
    local a, b = nn.Parameter(limn.ones(2)), nn.Parameter(limn.ones(2))
    b.frozen = true
    local es = optim.CMAES({a, b})
    es:step(function() return 0 / 0 end)
    local before = a:totable()
    U.message(function() es:step(function() error "oh" end) end, "oh")
    assert.same(before, a:totable())
    U.equal(b, {1, 1})
  end)

  it("goes on from a file as if it had not stopped", function()
    local function make()
      local p = nn.Parameter(limn.zeros(4, {dtype = "float64"}))
      return p, optim.CMAES({p}, {sigma = 0.5}), rosenbrock(p)
    end
    local p, es, f = make()
    for _ = 1, 5 do es:step(f) end
    U.with_file(function(path)
      limn.save(path, {es = es})
      local p2, es2, f2 = make()
      assert.same({}, limn.restore(path, {es = es2}).missing)
      assert.equal(tostring(es), tostring(es2))
      limn.manual_seed(5)
      for _ = 1, 3 do es:step(f) end
      limn.manual_seed(5)
      for _ = 1, 3 do es2:step(f2) end
      U.equal(p2, U.flat(p))
    end)
  end)

  it("says what it wants", function()
    local p = nn.Parameter(limn.ones(2))
    local line = U.here(1)
    U.message(function() optim.CMAES(3) end, line, "wants a model")
    U.message(function() optim.CMAES({p}, {sigma = 0}) end, "sigma")
    U.message(function() optim.CMAES({p}, {population = 1}) end, "population")
    U.message(function() optim.CMAES({}) end, "no parameters")
    local es = optim.CMAES({p})
    U.message(function() es:step() end, "wants a function")
    U.message(function() es:step(function() return "a" end) end,
              "gives a string, not a loss")
  end)
end)
