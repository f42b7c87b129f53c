-- What users of tracing compilers ran into: devices baked into graphs.
-- (footguns_state_spec.lua: parameters and optimizers; footguns_code_spec.lua:
-- shapes, branches, dtypes, modes; footguns_runs_spec.lua: effects, memory,
-- caches, messages.)
local U = require "support.util"
local F = require "support.footguns"
local T = require "support.optable"
local core = require "limn.core"
local limn = U.limn
local nn = limn.nn
local info, alone, model, check_text = F.info, F.alone, F.model, F.check_text

describe("A device in the graph:", function()
  it("zeros sized and placed by the input are made where the run is",
     function()
    U.each_pair(function(from, to)
      local g = limn.trace(function(x)
        return limn.zeros(x:size(1), x.device) + x
      end, limn.randn(10, from))
      check_text(tostring(g))
      local x = limn.randn(20, to)
      local y = g(x)
      assert.are.equal(to, y.device)
      U.shape(y, {20})
      U.equal(y, x)
    end)
  end)

  it("zeros_like and its kin follow each run of one handle", function()
    U.each_device(function(from)
      local g = limn.trace(function(x)
        return limn.zeros_like(x), limn.ones_like(x), limn.empty_like(x),
          limn.full_like(x, 3), limn.rand_like(x), x:new_zeros(2)
      end, limn.ones(3, from))
      for _ = 1, 2 do
        U.each_device(function(dev)
          for i, y in ipairs {g(limn.ones(4, dev))} do
            assert.are.equal(dev, y.device, i)
          end
        end)
      end
    end)
  end)

  it("a device left out is no literal: text and file are the same bytes "
     .. "wherever the trace was made", function()
    local text, bytes
    U.each_device(function(from)
      local g = limn.trace(function(x)
        return limn.zeros_like(x) + limn.zeros(3)
      end, limn.ones(3, from))
      local b = limn.save_string {g = g}
      check_text(tostring(g))
      check_text(b)
      text, bytes = text or tostring(g), bytes or b
      assert.are.equal(text, tostring(g))
      assert.is_true(bytes == b)
    end)
  end)

  it("a literal tensor moved to the input's device is host data that each "
     .. "device gets once", function()
    U.each_pair(function(from, to)
      local g = limn.trace(function(a)
        return limn.tensor {1}:to(a.device) + a
      end, limn.ones(2, from))
      check_text(tostring(g))
      local a = limn.ones(2, to)
      local before = core.counters().uploads
      U.equal(g(a), {2, 2})
      local y = g(a)
      assert.are.equal(to, y.device)
      assert.is_true(core.counters().uploads - before <= 1)
      if to ~= "cpu" then
        assert.are.equal(1, core.counters().uploads - before)
      end
    end)
  end)

  it("noise in a module is made where the run is, and nowhere else",
     function()
    local Noise = nn.Module:extend "Noise"
    function Noise:forward(x) -- luacheck: no self
      local y = x + limn.rand_like(x)
      return y
    end
    U.each_pair(function(from, to)
      if from == to then return end
      local g = limn.trace(Noise(), limn.ones(8, from))
      local x = limn.ones(1000, to)
      collectgarbage()
      local launches, bytes = info(from).launches, info(from).bytes
      local y = g(x)
      assert.are.equal(to, y.device)
      assert.are.equal(launches, info(from).launches)
      assert.are.equal(bytes, info(from).bytes)
    end)
  end)

  it("arange takes its device from one input and its bound from another",
     function()
    U.each_pair(function(from, to)
      local g = limn.trace(function(t, n)
        return limn.arange(n, t.device) * t
      end, limn.ones(1, from), limn.number(256))
      for _, n in ipairs {128, 3, 0} do
        local y = g(limn.full({1}, 2, to), n)
        assert.are.equal(to, y.device)
        U.shape(y, {n})
      end
      U.equal(g(limn.full({1}, 2, to), 3), {2, 4, 6})
    end)
  end)

  it("a recurrent cell's implicit zero state follows batch and device",
     function()
    local Cell = nn.Module:extend "Cell"
    function Cell:init(n, h)
      self.h, self.i, self.r = h, nn.Linear(n, h), nn.Linear(h, h)
    end
    function Cell:forward(x, state)
      state = state or x:new_zeros(x:size(1), self.h)
      for k = 1, 3 do
        state = (self.i(x[{{}, k}]) + self.r(state)):tanh()
      end
      return state
    end
    for _, cell in ipairs {Cell(2, 5), nn.LSTM(2, 5, {batch_first = true}),
                           nn.GRU(2, 5, {batch_first = true})} do
      U.each_pair(function(from, to)
        local g = limn.trace(cell, limn.randn(4, 3, 2, from))
        check_text(tostring(g))
        for _, rows in ipairs {7, 1, 0} do
          local x = limn.randn(rows, 3, 2)
          local y = g(x:to(to))
          assert.are.equal(to, y.device)
          U.close(y, (cell(x)), 1e-5)
        end
      end)
    end
  end)

  it("no op leaks a constant to the device of the trace: all of the op table",
     function()
    -- ops_spec.lua traces each row on each device and runs it on all others;
    -- it fails for a row that has no reference. Here: no row is left out, and
    -- the ops that are known to decompose.
    local R, S = require "support.reference", require "support.special"
    for row in T.each "ERVGS" do
      assert.is_truthy(R.e[row.name] or R.r[row.name] or S.cases[row.name]
                       or S.elsewhere[row.name], row.name)
    end
    local function f(x)
      local mask = x:gt(0)
      return mask:logical_not(), 1 - mask:to(x.dtype), x:gelu(), x:std(),
        x:logsumexp(1), x:clamp(-0.5, 0.5), x % 0.3
    end
    U.each_pair(function(from, to)
      local g = limn.trace(f, limn.randn(4, from))
      local x = limn.randn(7)
      local want, got = {f(x)}, {g(x:to(to))}
      for i, y in ipairs(got) do
        assert.are.equal(to, y.device)
        U.close(y, want[i], 1e-5, 1, i)
      end
    end)
  end)

  it("a number operand is an immediate, not a tensor on some device",
     function()
    local g = limn.trace(function(x) return limn.where(x:gt(0.5), x, 1.0) end,
                         limn.rand(4))
    assert.are.equal(0, #g:captures())
    assert.is_nil(tostring(g):find "const")
    U.each_device(function(dev)
      U.close(g(limn.tensor({0.25, 0.75}, dev)), {1, 0.75})
    end)
  end)

  it("a 0-dim tensor constant reaches no kernel as a host pointer",
     function()
    U.each_pair(function(from, to)
      local two = limn.tensor(2)
      local g = limn.trace(function(x)
        return x * two * limn.tensor(3), x:sum() * two
      end, limn.ones(4, from))
      local y, s = g(limn.ones(4, to))
      U.equal(y, {6, 6, 6, 6})
      U.equal(s, {8})
    end)
  end)

  it("folded constants are planned for each device from one host master",
     function()
    local c = limn.tensor {1, 2, 3}
    local g = limn.trace(function(x)
      return x + (c * 2 + limn.ones(3)):exp():log()
    end, limn.ones(3))
    for _ = 1, 2 do
      U.each_device(function(dev)
        U.close(g(limn.zeros(3, dev)), {3, 5, 7}, 1e-5)
      end)
    end
    assert.are.equal("cpu", g:captures()[1].value.device)
  end)

  it("a literal device in traced code is an error with line and advice",
     function()
    for _, f in ipairs {
      function(x) return x + x:to "cpu" end,
      function(x) return x + limn.zeros(2, "cpu") end,
      function(x) return x + limn.tensor({1, 2}, "cpu") end,
      function(x) return x + limn.zeros(2, {device = "cpu"}) end,
    } do
      U.message(function() limn.trace(f, limn.ones(2)) end,
                "^spec/footguns_spec.lua:%d+", "x.device")
    end
  end)

  it("nothing converts a graph: it runs wherever its arguments are",
     function()
    local m = model()
    for _, name in ipairs {"to", "cuda", "cpu", "move"} do
      U.message(function() return m.infer[name] end, "no method", name)
    end
    U.each_device(function(dev)
      assert.are.equal(dev, m.infer(m.x:to(dev)).device)
    end)
  end)

  it("runs alternate between devices, and dropped plans come again",
     function()
    local m = model()
    local want = m.net(m.x)
    for round = 1, 3 do
      U.each_device(function(dev)
        U.close(m.infer(m.x:to(dev)), want, 1e-5, 1, dev)
      end)
      if round == 2 then m.infer:forget() end
    end
  end)

  it("kernels are chosen by where the operands are", function()
    local g = limn.trace(function(x) return (x * 2):tanh() end, limn.ones(2))
    U.each_device(function(dev)
      g(limn.ones(2, dev))
      local before = {}
      for _, d in ipairs(U.devices) do before[d] = info(d).launches end
      g(limn.ones(2, dev))
      for _, d in ipairs(U.devices) do
        assert.are.equal(d == dev, info(d).launches > before[d], d)
      end
    end)
    if U.other() then
      U.message(function()
        local h = limn.trace(function(a, b) return a + b end, limn.ones(2),
                             limn.ones(2))
        h(limn.ones(2), limn.ones(2, U.other()))
      end, "different devices", "cpu", U.other())
    end
  end)

  it("x.device is the same in eager code and in a trace, for every factory",
     function()
    local function f(x)
      local d = x.device
      return x + limn.zeros(2, d) + limn.ones(2, {device = d})
        + limn.full({2}, 2, d) + limn.arange(2, d) + limn.tensor({1, 1}, d)
        + limn.eye(2, d)[1] + limn.empty(2, d) * 0 + limn.linspace(0, 1, 2, d)
        + limn.rand(2, d) * 0 + limn.randn(2, d) * 0
        + limn.randint(1, 1, 2, d) + limn.tensor {0, 0}:to(d)
    end
    U.each_pair(function(from, to)
      local g = limn.trace(f, limn.ones(2, from))
      local y = g(limn.ones(2, to))
      assert.are.equal(to, y.device)
      U.equal(y, f(limn.ones(2, to)))
      U.equal(y, {8, 9})
    end)
  end)

  it("a plan is keyed by its device and code by its architecture, also with "
     .. "two accelerators of one kind", function()
    if not U.other() then return end
    local text, ok = U.lua([[
      local limn = require "limn"
      local core = require "limn.core"
      if #limn.devices() < 3 then print "ok" return end
      local g = limn.trace(function(x) return (x * 3 + 1):tanh() end,
                           limn.ones(2))
      local want = g(limn.full({2}, 0.1)):totable()
      local function launches(name)
        local _, all = core.devices()
        for _, d in ipairs(all) do
          if d.name == name then return d.launches end
        end
      end
      for _ = 1, 3 do
        for _, dev in ipairs(limn.devices()) do
          local x = limn.full({2}, 0.1, dev)
          local before = {}
          for _, d in ipairs(limn.devices()) do before[d] = launches(d) end
          local y = g(x)
          for _, d in ipairs(limn.devices()) do
            assert((launches(d) > before[d]) == (d == dev), d)
          end
          assert(y.device == dev)
          for i, v in ipairs(y:totable()) do
            assert(math.abs(v - want[i]) < 1e-6)
          end
        end
      end
      assert(g:stats().plans == #limn.devices())
      -- Memory of one context in another: limn's own error, no driver code.
      local ok, e = pcall(function()
        return limn.ones(2, "opencl:0") + limn.ones(2, "opencl:1")
      end)
      assert(not ok and e:find "opencl:0" and e:find "opencl:1"
             and not e:find "CL_", e)
      print "ok"]], "POCL_DEVICES='basic pthread'")
    assert.is_true(ok and text == "ok\n", text)
  end)

  it("calls on one device, another and the first again each run there",
     function()
    local g = limn.jit(function(x) return x * 2 + 1 end)
    local order = {}
    for i = 1, #U.devices do order[#order + 1] = U.devices[i] end
    for i = #U.devices, 1, -1 do order[#order + 1] = U.devices[i] end
    for _, dev in ipairs(order) do
      local x = limn.ones(3, dev)
      local before = info(dev).launches
      assert.are.equal(dev, g(x).device)
      assert.are.equal(1, info(dev).launches - before)
    end
    assert.are.equal(1, g:stats().traces)
  end)

  it("a file holds no device: written with all, read without accelerators, "
     .. "and the other way round", function()
    local m = model()
    U.each_device(function(dev) m.step(m.x:to(dev), m.t:to(dev)) end)
    U.with_file(function(path)
      U.with_file(function(back)
        limn.save(path, {infer = m.infer, x = m.x})
        check_text(U.read_file(path))
        local text = alone(([[
          local limn = require "limn"
          local l = limn.load(%q)
          local f = function(v) return l.infer(v) * 2 end
          limn.save(%q, {twice = limn.trace(f, l.x)})
          io.write(("%%.4f"):format(l.infer(l.x):sum():item()))]]):format(
            path, back))
        local want = m.net(m.x):sum():item()
        assert.is_true(math.abs(tonumber(text) - want) < 1e-3, text)
        local l = limn.load(back)
        U.each_device(function(dev)
          U.close(l.twice(m.x:to(dev)), m.net(m.x) * 2, 1e-5)
        end)
      end)
    end)
  end)

  it("an artefact of a host with several devices loads where there is one",
     function()
    local m = model()
    local dev = U.other() or "cpu"
    for _ = 1, 3 do m.step(m.x:to(dev), m.t:to(dev)) end
    U.with_file(function(path)
      limn.save(path, {infer = m.infer, step = m.step, x = m.x, t = m.t})
      local text = alone(([[
        local limn = require "limn"
        local l = limn.load(%q)
        local a = l.step(l.x, l.t):item()
        local b = l.step(l.x, l.t):item()
        assert(b < a)
        io.write(("%%.5f"):format(a))]]):format(path))
      local l = m.step(m.x:to(dev), m.t:to(dev)):item()
      assert.is_true(math.abs(tonumber(text) - l) < 1e-4, text)
    end)
  end)

  it("an output bound on another device than the run is refused, and nothing "
     .. "runs", function()
    local p = nn.Buffer(limn.zeros(2))
    local g = limn.trace(function(x)
      p:assign(x)
      return x * 2
    end, limn.ones(2))
    U.each_pair(function(a, b)
      if a == b then return end
      local out, x = limn.full({2}, 7, a), limn.ones(2, b)
      local before = info(b).launches
      U.message(function() g:run_into({out}, x) end, a, b)
      U.equal(out, {7, 7})
      U.equal(p, {0, 0})
      assert.are.equal(before, info(b).launches)
    end)
  end)

  it("a device's name as an argument is refused in a trace, and decides in "
     .. "eager code", function()
    local function f(x, dev)
      local y = limn.zeros(2, dev)
      return x:to(dev) + y
    end
    U.each_device(function(dev)
      U.message(function() limn.trace(f, limn.ones(2), dev) end,
                "footguns_spec.lua:%d+", "x.device")
      U.message(function() limn.jit(f)(limn.ones(2), dev) end, "x.device")
    end)
    U.each_pair(function(a, b)
      assert.are.equal(a, f(limn.ones(2), a).device)
      assert.are.equal(b, f(limn.ones(2), b).device)
    end)
  end)

  it("a tensor's device alone decides what it mixes with: made eager, by a "
     .. "graph, from a file or by a copy", function()
    local g = limn.trace(function() return limn.ones(2) end)
    local loaded = limn.load_string(limn.save_string {x = limn.ones(2)}).x
    U.each_device(function(dev)
      local all = {limn.ones(2, dev), g:on(dev)(), loaded:to(dev),
                   limn.ones(2):to(dev)}
      for _, a in ipairs(all) do
        for _, b in ipairs(all) do U.equal(a + b, {2, 2}) end
        U.equal(a + 1, {2, 2})
        U.equal(limn.tensor(3) * a, {3, 3})
        if dev ~= "cpu" then
          U.message(function() return a + loaded end, "cpu", dev)
        end
      end
    end)
  end)

  it("memory of two devices in one op is limn's error, never a driver's",
     function()
    U.each_pair(function(a, b)
      if a == b then return end
      local e = U.message(function()
        return limn.ones(2, 2, a):matmul(limn.ones(2, 2, b))
      end, "matmul", a, b, "hint:")
      assert.is_nil(e:find "CL_")
      assert.is_nil(e:find "CUDA_")
    end)
  end)
end)
