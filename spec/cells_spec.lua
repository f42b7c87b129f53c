-- Parameters, buffers and state follow the run; writes commit together.
local U = require "support.util"
local limn = U.limn
local nn, optim = limn.nn, limn.optim

local function model(dropout)
  limn.manual_seed(9)
  local m = nn.Sequential(nn.Linear(5, 8), nn.Tanh())
  if dropout then m:append(nn.Dropout(0.5)) end
  m:append(nn.Linear(8, 3))
  return m
end

-- A recorded Adam step on a net, and the net.
local function training()
  local m = model()
  local opt = optim.Adam(m, {lr = 0.05})
  local loss = limn.value_and_grad(function(x, t)
    return nn.cross_entropy(m(x), t)
  end, m)
  local step = limn.trace(function(x, t)
    local l, grads = loss(x, t)
    opt:step(grads)
    return l
  end, limn.ones(2, 5), limn.ones(2, "int64"))
  return step, m, opt
end

local function batch(i)
  limn.manual_seed(100 + i)
  return limn.randn(7, 5), limn.randint(1, 3, 7)
end

-- Run steps first..last on a device; all weights as one list.
local function run(step, first, last, dev)
  for i = first, last do
    local x, t = batch(i)
    step(x:to(dev), t:to(dev))
  end
end
local function weights(m)
  local out = {}
  for _, p in m:named_parameters() do
    for _, v in ipairs(U.flat(p)) do out[#out + 1] = v end
  end
  return out
end

describe("Six Adam steps on one device equal three there and three on another",
         function()
  local function reference()
    local step, m = training()
    run(step, 1, 6, "cpu")
    return weights(m)
  end

  it("in one process", function()
    local want = reference()
    U.each_pair(function(a, b)
      local step, m = training()
      run(step, 1, 3, a)
      run(step, 4, 6, b)
      U.close(weights(m), want, 2e-5, 1, a .. " then " .. b)
    end)
  end)

  it("across save and load", function()
    local want = reference()
    U.each_pair(function(a, b)
      local step, m = training()
      run(step, 1, 3, a)
      local infer = limn.trace(m, limn.ones(1, 5))
      U.with_file(function(path)
        limn.save(path, {step = step, infer = infer})
        local l = limn.load(path)
        run(l.step, 4, 6, b)
        local x = batch(50)
        local step2, m2 = training()
        run(step2, 1, 6, "cpu")
        U.close(l.infer(x:to(a)), m2(x), 5e-5, 1, a .. " then " .. b)
        assert.is_not_nil(U.difference(infer(x), m2(x), 1e-4))
      end)
      U.close(want, want)
    end)
  end)
end)

describe("Cells", function()
  it("are copied to a device when a run needs them there, and only then",
     function()
    local core = require "limn.core"
    local dev = U.other()
    if not dev then return end
    local p = nn.Parameter(limn.ones(1000))
    local g = limn.trace(function(x) return x + p end, limn.ones(1))
    local x = limn.ones(1, dev)
    g(x)
    local before = core.counters().uploads
    for _ = 1, 3 do g(x) end
    assert.are.equal(before, core.counters().uploads)
    p:assign(limn.full({1000}, 5))
    assert.are.equal(6, g(x):at(1))
    assert.are.equal(6, g(limn.ones(1)):at(1))
  end)

  it("refuse another shape, convert the dtype, and assign in part", function()
    U.each_device(function(dev)
      local p = nn.Parameter(limn.zeros(2, 2))
      p.name = "w"
      U.message(function() p:assign(limn.ones(3)) end, "w", "%[2, 2%]", "%[3%]")
      p:assign(limn.ones(2, 2, {dtype = "float64", device = dev}))
      assert.are.equal("float32", p.dtype)
      U.equal(p, {1, 1, 1, 1})
      p[{1, {1, 2}}] = limn.tensor {8, 9}
      p[{2, 1}] = 5
      U.equal(p, {8, 9, 5, 1})
      p:assign(4)
      U.equal(p, {4, 4, 4, 4})
    end)
  end)

  it("take the last value of several writes; reads see the newest", function()
    U.each_device(function(dev)
      local p = nn.Buffer(limn.zeros(2))
      local g = limn.trace(function(x)
        local before = p:value()
        p:assign(p + x)
        local between = p * 1
        p:assign(p * 2)
        return before, between, p:value()
      end, limn.ones(2))
      local a, b, c = g(limn.ones(2, dev))
      U.equal(a, {0, 0})
      U.equal(b, {1, 1})
      U.equal(c, {2, 2})
      U.equal(p, {2, 2})
      local text = tostring(g)
      local _, n = text:gsub("<%-", "")
      assert.are.equal(1, n, text)
    end)
  end)

  it("keep a value that was handed out, though they move on in place",
     function()
    U.each_device(function(dev)
      local p = nn.Buffer(limn.zeros(3))
      local g = limn.trace(function(x)
        p:assign(p + x)
        return p:value()
      end, limn.ones(3))
      local x = limn.ones(3, dev)
      local first = g(x)
      local held = p:value()
      g(x)
      g(x)
      U.equal(first, {1, 1, 1})
      U.equal(held, {1, 1, 1})
      U.equal(p, {3, 3, 3})
    end)
  end)

  it("swap their values in one step", function()
    U.each_device(function(dev)
      local a, b = nn.Buffer(limn.zeros(2)), nn.Buffer(limn.ones(2))
      local g = limn.trace(function(x)
        local old = a:value()
        a:assign(b + x)
        b:assign(old + x)
      end, limn.zeros(2))
      for _ = 1, 3 do g(limn.zeros(2, dev)) end
      U.equal(a, {1, 1})
      U.equal(b, {0, 0})
    end)
  end)

  it("names of a model are its paths", function()
    local names = {}
    for name, p in model():named_parameters() do
      names[#names + 1] = name
      assert.are.equal(name, p.name)
    end
    assert.are.same({"1.weight", "1.bias", "3.weight", "3.bias"}, names)
  end)
end)

describe("Mode", function()
  it("is read at each run: one graph drops out in training only", function()
    U.each_device(function(dev)
      local m = model(true)
      local g = limn.trace(m, limn.ones(2, 5)) -- has no mode of its own yet
      local x = limn.ones(4, 5, dev)
      m:train()
      assert.is_not_nil(U.difference(g(x), g(x), 0))
      m:eval()
      U.equal(g(x), g(x))
      g:train()
      assert.is_not_nil(U.difference(g(x), g(x), 0))
      g:eval()
      m:train()
      U.equal(g(x), g(x))
      U.with_file(function(path)
        limn.save(path, {infer = g})
        local l = limn.load(path)
        U.equal(l.infer(x), l.infer(x), "loaded files are in eval mode")
        l.infer:train()
        assert.is_not_nil(U.difference(l.infer(x), l.infer(x), 0))
      end)
    end)
  end)

  it("asked for in Lua is a guard, when_training records both", function()
    local Net = nn.Module:extend "Net"
    function Net:forward(x)
      local y = self:when_training(function(v) return v * 10 end, x)
      return y
    end
    local m = Net()
    local g = limn.trace(m, limn.ones(1))
    assert.is_nil(tostring(g):find "guard")
    U.each_device(function(dev)
      U.equal(m:train() and g(limn.ones(1, dev)), {10})
      m:eval()
      U.equal(g(limn.ones(1, dev)), {1})
      U.equal(m(limn.ones(1, dev)), {1})
    end)
    local Asks = nn.Module:extend "Asks"
    function Asks:forward(x)
      if self.training then return x * 10 end
      return x
    end
    local a = Asks()
    local h = limn.trace(a, limn.ones(1))
    U.equal(h(limn.ones(1)), {10})
    a:eval()
    U.message(function() h(limn.ones(1)) end, "training", "hint:")
    local j = limn.jit(a)
    U.equal(j(limn.ones(1)), {1})
    a:train()
    U.equal(j(limn.ones(1)), {10})
  end)
end)

describe("A run that fails", function()
  local function graph()
    local p = nn.Buffer(limn.zeros(2))
    p.name = "memory"
    local g = limn.trace(function(x, i)
      p:assign(p + 1)
      return x[i] * p
    end, limn.ones(3), limn.ones(2, "int64"))
    return g, p
  end

  it("before its first step has changed nothing", function()
    U.each_device(function(dev)
      local g, p = graph()
      local i = limn.ones(5, {dtype = "int64", device = dev})
      U.message(function() g(limn.ones(3, dev), i) end, "mul")
      U.equal(p, {0, 0})
    end)
  end)

  it("on its data leaves the cells that it wrote void until assigned",
     function()
    U.each_device(function(dev)
      local g, p = graph()
      local bad = limn.tensor({1, 9}, "int64", dev)
      U.message(function()
        local y = g(limn.ones(3, dev), bad)
        return y:totable()
      end, "index 9")
      U.message(function() return p:totable() end, "memory", "index 9")
      U.message(function()
        return g(limn.ones(3, dev), limn.ones(2, {dtype = "int64",
                                                  device = dev}))
      end, "memory")
      p:assign(limn.full({2}, 4))
      U.equal(p, {4, 4})
      local good = limn.tensor({1, 2}, "int64", dev)
      U.equal(g(limn.ones(3, dev), good), {5, 5})
    end)
  end)
end)

describe("An assignment inside a differentiated function", function()
  it("is differentiated through, in eager code as in a trace", function()
    U.each_device(function(dev)
      local p = nn.Parameter(limn.ones(3))
      p.name = "p"
      local f = limn.value_and_grad(function(y)
        p:assign(p * 2)
        return (p * y):sum()
      end, p)
      local x = limn.ones(3, dev)
      local loss, grad = f(x)
      U.equal(loss, {6})
      U.equal(grad, {2, 2, 2})
      U.equal(p, {2, 2, 2})
      p:assign(limn.ones(3))
      local g = limn.trace(function(y) local l, d = f(y) return l, d end, x)
      loss, grad = g(x)
      U.equal(loss, {6})
      U.equal(grad, {2, 2, 2})
      U.equal(p, {2, 2, 2})
    end)
  end)
end)
