-- What users of tracing compilers ran into: parameters, constants and
-- optimizers that stayed behind.
local U = require "support.util"
local F = require "support.footguns"
local core = require "limn.core"
local limn = U.limn
local nn, optim = limn.nn, limn.optim
local info, alone, model = F.info, F.alone, F.model

describe("Parameters, constants and optimizers:", function()
  it("parameters, buffers and captured constants all follow the first run "
     .. "after a load", function()
    local c = limn.tensor {1, 2, 3, 4}
    local Net = nn.Module:extend "Net"
    function Net:init()
      self.lin, self.shift = nn.Linear(3, 4), nn.Buffer(limn.ones(4))
    end
    function Net:forward(x) return self.lin(x) * c + self.shift end
    local net = Net()
    local x = limn.randn(2, 3)
    local bytes = limn.save_string {g = limn.trace(net, x)}
    U.each_device(function(dev)
      local l = limn.load_string(bytes)
      local before = info(dev).bytes
      local y = l.g(x:to(dev))
      assert.are.equal(dev, y.device)
      U.close(y, net(x), 1e-5)
      if dev ~= "cpu" then
        assert.is_true(info(dev).bytes - before >= 4 * (12 + 4 + 4 + 4))
      end
    end)
  end)

  it("a file of an accelerator's host loads with every accelerator off",
     function()
    local m = model()
    local dev = limn.accelerator()
    m.step(m.x:to(dev), m.t:to(dev))
    U.with_file(function(path)
      limn.save(path, {net = m.net, opt = m.opt, infer = m.infer})
      local text = alone(([[
        local limn = require "limn"
        local nn = limn.nn
        local net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
        local opt = limn.optim.Adam(net, {lr = 0.05})
        limn.restore(%q, {net = net, opt = opt})
        io.write(("%%.5f"):format(net(limn.ones(1, 3)):item()))]]):format(
          path))
      assert.is_true(math.abs(tonumber(text)
        - m.net(limn.ones(1, 3)):item()) < 1e-4, text)
    end)
  end)

  it("one function loads all, and an option that it does not have is an error",
     function()
    local m = model()
    U.with_file(function(path)
      limn.save(path, {infer = m.infer, net = m.net, x = m.x})
      local l = limn.load(path)
      U.close(l.infer(l.x), m.net(m.x))
      for _, option in ipairs {"map_location", "device"} do
        U.message(function() limn.load(path, {[option] = "cpu"}) end, option)
      end
      U.message(function() limn.load(path, "cpu") end, "load")
    end)
  end)

  it("helper tensors in upvalues, fields, tables and globals are captured, "
     .. "listed and follow the run", function()
    local up, t = limn.arange(3), {deep = {limn.full({3}, 10)}}
    rawset(_G, "footgun_global", limn.full({3}, 100))
    local Net = nn.Module:extend "Net"
    function Net:init() self.positions = limn.full({3}, 1000) end
    function Net:forward(x)
      return x + up + t.deep[1] + footgun_global -- luacheck: ignore 113
        + self.positions
    end
    local line = debug.getinfo(1, "l").currentline - 3
    local net = Net()
    U.each_device(function(from)
      local g = limn.trace(net, limn.zeros(3, from))
      local list = g:captures()
      assert.are.equal(4, #list)
      for _, c in ipairs(list) do
        assert.is_truthy(c.name ~= "" and c.where:find(
          "footguns_state_spec.lua:" .. line) or c.where:find(
          "footguns_state_spec.lua:" .. line + 1), c.where)
      end
      U.each_device(function(dev)
        U.equal(g(limn.zeros(3, dev)), {1111, 1112, 1113})
      end)
    end)
    rawset(_G, "footgun_global", nil)
  end)

  it("a capture is refused by strict; given another value it makes the next "
     .. "run raise, and jit trace again", function()
    local c = limn.tensor {1, 2}
    local function f(x) return x + c end
    U.message(function() limn.trace {f, limn.ones(2), strict = true} end,
              "footguns_state_spec", "strict", "hint:")
    U.each_device(function(dev)
      c = limn.tensor {1, 2}
      local g, j = limn.trace(f, limn.ones(2)), limn.jit(f)
      local x = limn.zeros(2, dev)
      U.equal(g(x), {1, 2})
      U.equal(j(x), {1, 2})
      c[1] = 5
      U.message(function() g(x) end, "another value",
                "footguns_state_spec.lua:%d+")
      U.equal(j(x), {5, 2})
      assert.are.equal(1, #j:graphs())
    end)
  end)

  it("weights are no constants: the graph's text is as long for large ones, "
     .. "and a new value needs no trace", function()
    local function traced(n)
      local net = nn.Linear(n, n)
      return limn.trace(net, limn.ones(1, n)), net
    end
    local small, net = traced(4)
    local large = traced(128)
    assert.is_true(math.abs(#tostring(small) - #tostring(large)) < 30)
    U.each_device(function(dev)
      net.weight:assign(limn.zeros(4, 4))
      net.bias:assign(limn.full({4}, 7))
      U.equal(small(limn.ones(1, 4, dev)), {7, 7, 7, 7})
      net.bias:assign(limn.full({4}, 8))
      U.equal(small(limn.ones(1, 4, dev)), {8, 8, 8, 8})
    end)
  end)

  it("an optimizer's state follows: three steps here and three there are six",
     function()
    for _, make in ipairs {optim.Adam, optim.RMSprop, optim.AdamW} do
      local want = model(make)
      for _ = 1, 6 do want.step(want.x, want.t) end
      U.each_pair(function(a, b)
        local m = model(make)
        for i = 1, 6 do
          local dev = i <= 3 and a or b
          m.step(m.x:to(dev), m.t:to(dev))
        end
        for i, p in ipairs(m.net:parameters()) do
          U.close(p, want.net:parameters()[i], 1e-4)
        end
      end)
    end
    U.each_device(function(dev)
      local m = model()
      for _ = 1, 3 do m.step(m.x:to(dev), m.t:to(dev)) end
      U.with_file(function(path)
        limn.save(path, {step = m.step, x = m.x, t = m.t})
        for _ = 1, 3 do m.step(m.x:to(dev), m.t:to(dev)) end
        local text = alone(([[
          local limn = require "limn"
          local l = limn.load(%q)
          for _ = 1, 3 do l.step(l.x, l.t) end
          io.write(("%%.5f"):format(l.step(l.x, l.t):item()))]]):format(path))
        local l = m.step(m.x:to(dev), m.t:to(dev)):item()
        assert.is_true(math.abs(tonumber(text) - l) < 1e-4, text)
      end)
    end)
  end)

  it("a parameter's identity has no place: an optimizer made before a move "
     .. "updates what the graph reads", function()
    U.each_pair(function(a, b)
      local m = model()
      local weight = m.net[1].weight
      m.infer(m.x:to(a))
      m.step(m.x:to(b), m.t:to(b))
      assert.is_true(rawequal(weight, m.net[1].weight))
      U.close(m.infer(m.x:to(a)), m.net(m.x), 1e-5)
      U.close(m.infer(m.x:to(b)), m.net(m.x), 1e-5)
    end)
    U.message(function() nn.Linear(1, 1):to "cpu" end, "follow")
  end)

  it("training works wherever the model was made, and says what a loss does "
     .. "not reach", function()
    U.each_pair(function(a, b)
      local m = limn.on(a, model)
      local x, t = m.x:to(b), m.t:to(b)
      local first = m.step(x, t):item()
      for _ = 1, 20 do m.step(x, t) end
      assert.is_true(m.step(x, t):item() < first * 0.7)
    end)
    local m, other = model(), nn.Linear(2, 2)
    U.message(function()
      limn.value_and_grad(function(x)
        return m.net(x):sum()
      end, other)(m.x)
    end, "weight", "not depend")
  end)

  it("a load places nothing: what limn.on says then does not matter",
     function()
    local m = model()
    local bytes = limn.save_string {infer = m.infer}
    U.each_pair(function(a, b)
      collectgarbage()
      collectgarbage()
      local before = a ~= "cpu" and info(a).bytes
      local l = limn.on(a, limn.load_string, bytes)
      if a ~= "cpu" then assert.are.equal(before, info(a).bytes) end
      local y = l.infer(m.x:to(b))
      assert.are.equal(b, y.device)
      U.close(y, m.net(m.x), 1e-5)
    end)
  end)

  it("no layer, loss or optimizer makes a constant on the CPU: a run on an "
     .. "accelerator uploads nothing the second time", function()
    U.each_device(function(dev)
      local net = nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6), nn.GELU(),
                                nn.Dropout(0.3), nn.Linear(6, 3),
                                nn.LogSoftmax(-1))
      local opt = optim.AdamW(net, {lr = 0.01})
      local loss = limn.value_and_grad(function(x, t)
        return nn.cross_entropy(net(x), t)
      end, net)
      local step = limn.jit(function(x, t)
        local l, g = loss(x, t)
        opt:step(optim.clip_grad_norm(g, 1))
        return l
      end)
      local x, t = limn.randn(4, 6, dev), limn.randint(1, 3, 4, dev)
      step(x, t)
      local before = core.counters()
      step(x, t)
      local after = core.counters()
      assert.are.equal(before.uploads, after.uploads, dev)
      assert.are.equal(before.downloads, after.downloads, dev)
    end)
  end)

  it("dropping what an accelerator holds of a parameter costs an upload, "
     .. "nothing else", function()
    local m = model()
    U.each_device(function(dev)
      local x = m.x:to(dev)
      local want = m.infer(x)
      for _, p in ipairs(m.net:parameters()) do
        p:assign(p:value():to "cpu") -- the copy on `dev` is old news now
      end
      local before = core.counters().uploads
      U.close(m.infer(x), want, 1e-6)
      local count = core.counters().uploads - before
      -- LIMN_VERIFY's own run comes first, and uploads them.
      if os.getenv "LIMN_VERIFY" ~= "1" then
        assert.are.equal(dev == "cpu" and 0 or 4, count)
      end
    end)
  end)
end)
