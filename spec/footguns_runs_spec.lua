-- What users of tracing compilers ran into: side effects, assignment, memory,
-- caches and messages.
local U = require "support.util"
local F = require "support.footguns"
local core = require "limn.core"
local limn = U.limn
local nn = limn.nn
local agrees = F.agrees

describe("Side effects:", function()
  it("a function runs once per trace, however often the graph is checked",
     function()
    local n = {0}
    local function f(x)
      n[1] = n[1] + 1
      return x * 2
    end
    local g = limn.trace(f, limn.ones(2))
    g:check()
    g:verify()
    g:explain(limn.ones(2))
    U.each_device(function(dev) g(limn.ones(3, dev)) end)
    assert.are.equal(1, n[1])
  end)

  it("limn.print shows each run's values and device, print symbols alone",
     function()
    local lines, old = {}, print
    rawset(_G, "print", function(...)
      local t = {...}
      for i = 1, #t do t[i] = tostring(t[i]) end
      lines[#lines + 1] = table.concat(t, " ")
    end)
    local ok, err = pcall(function()
      local g = limn.trace(function(x)
        print(x, x:size(1), x.device)
        limn.print(x.device, x:size(1), x:sum())
        return x
      end, limn.full({37}, 41))
      assert.are.equal(1, #lines)
      assert.is_nil(lines[1]:find "37" or lines[1]:find "41", lines[1])
      assert.is_nil(lines[1]:find "cpu", lines[1])
      U.each_device(function(dev)
        lines = {}
        g(limn.full({3}, 2, dev))
        assert.are.equal(dev .. "\t3\t6 float32 on " .. dev,
                         (lines[1]:gsub("%.0", "")))
      end)
    end)
    rawset(_G, "print", old)
    assert.is_true(ok, err)
  end)

  it("a placeholder that outlives its trace raises, with where it was made",
     function()
    local deep = {{}}
    local line = debug.getinfo(1, "l").currentline + 2
    local g = limn.trace(function(x)
      deep[1].kept = x * 3
      return x
    end, limn.ones(2))
    U.equal(g(limn.ones(2)), {1, 1})
    local kept = deep[1].kept
    for _, f in ipairs {
      function() return kept + 1 end, function() return kept:size(1) end,
      function() return kept:item() end, function() return kept:totable() end,
      function() return g(kept) end,
      function()
        return limn.trace(function(x) return x + kept end, limn.ones(2))
      end,
    } do
      U.message(f, "footguns_runs_spec.lua:" .. line, "a function was traced",
                "over")
    end
    assert.is_string(tostring(kept))
  end)
end)

describe("Assignment and memory:", function()
  it("x[...] = v on a value of the trace gives what eager code gives",
     function()
    agrees(function(x)
      local y = x * 1
      y[1] = 7
      y[{{2, 3}, 2}] = x[{{1, 2}, 1}]
      y[y:gt(2)] = 0
      return y
    end, function(n) return limn.arange(n * 2):reshape(n, 2) end,
           {{3}, {6}, {4}})
  end)

  it("an assignment to a cell happens on each run; one to an argument or a "
     .. "capture is refused, never dropped", function()
    local count, c = nn.Buffer(limn.zeros(2)), limn.zeros(2)
    local g = limn.trace(function(x)
      count:assign(count + x)
      return x
    end, limn.ones(2))
    local n = 0
    U.each_device(function(dev)
      for _ = 1, 3 do g(limn.ones(2, dev)) end
      n = n + 3
      U.equal(count, {n, n})
    end)
    for _, f in ipairs {
      function(x) x[1] = 0 return x end,
      function(x) c[1] = x:sum() return x end,
      function(x) x:copy_from(x * 2) return x end,
      function(x) c:copy_from(x) return x end,
    } do
      U.message(function() limn.trace(f, limn.ones(2)) end,
                "footguns_runs_spec.lua:%d+", "clone")
    end
    U.equal(c, {0, 0})
  end)

  it("a second run leaves the first one's results alone", function()
    U.each_device(function(dev)
      local g = limn.trace(function(x) return x * 2, x:sum() end, limn.ones(2))
      local a, s = g(limn.full({2}, 1, dev))
      local b = g(limn.full({2}, 5, dev))
      U.equal(a, {2, 2})
      U.equal(b, {10, 10})
      local out, sum = a:clone(), s:clone()
      local keep = out:clone()
      g:run_into({out, sum}, limn.full({2}, 9, dev))
      U.equal(out, {18, 18})
      U.equal(keep, {2, 2})
      U.equal(a, {2, 2})
    end)
  end)
end)

describe("Gradients and buffers:", function()
  it("a captured tensor that a gradient wants gets one, traced too",
     function()
    local w = limn.tensor {2, 3}
    local vg = limn.value_and_grad(function(x) return (x * w):sum() end, {w})
    U.each_pair(function(from, to)
      local g = limn.trace(function(x)
        local l, grads = vg(x)
        return l, grads[1]
      end, limn.ones(2, from))
      local l, d = g(limn.tensor({4, 5}, to))
      U.close(l, {23})
      U.close(d, {4, 5})
      assert.are.equal(to, d.device)
    end)
  end)

  it("an evaluating run leaves every buffer's bits, a training run updates "
     .. "once, a trace never", function()
    local function buffers(m)
      local all = {}
      for name, b in m:named_buffers() do all[name] = U.flat(b) end
      return all
    end
    U.each_device(function(dev)
      limn.manual_seed(1)
      local m, other = nn.BatchNorm1d(3), nn.BatchNorm1d(3)
      local x = limn.randn(8, 3)
      local first = buffers(m)
      local g = limn.trace(m, x)
      assert.are.same(first, buffers(m), "a trace updates nothing")
      m:eval()
      for _ = 1, 3 do g(x:to(dev)) end
      assert.are.same(first, buffers(m))
      m:train()
      g(x:to(dev))
      other(x)
      for name, b in other:named_buffers() do
        U.close(limn.tensor(buffers(m)[name]), limn.tensor(U.flat(b)), 1e-5, 1,
                name)
      end
    end)
  end)
end)

describe("Caches:", function()
  it("are bounded by entries and bytes, and results stay the same at the limit",
     function()
    U.each_device(function(dev)
      local many = U.asan and 200 or dev == "cpu" and 10000 or 1000
      local g = limn.trace(function(x) return x * 2 end, limn.ones(1))
      local x = limn.ones(many, dev)
      core.plans_limit(64, 1e6)
      for n = 1, 200 do g(x[{{1, n}}]) end
      collectgarbage()
      local bytes = core.counters().bytes
      for n = 1, many do g(x[{{1, n}}]) end
      collectgarbage()
      local s = g:stats()
      assert.is_true(s.entries <= 64 and s.bytes <= 1e6, dev)
      assert.is_true(core.counters().bytes - bytes < 2e6, dev)
      U.equal(g(x[{{1, 2}}]), {2, 2})
      core.plans_limit(512, 2 ^ 28)
    end)
    local made = setmetatable({}, {__mode = "k"})
    local function once()
      local g = limn.trace(function(x) return x * 2 end, limn.ones(1))
      made[g] = true
      for n = 1, 20 do g(limn.ones(n)) end
    end
    once()
    for _ = 1, 2 do collectgarbage() end
    local bytes = core.counters().bytes
    for _ = 1, 20 do once() end
    for _ = 1, 3 do collectgarbage() end
    assert.is_nil(next(made), "a plan keeps its graph")
    assert.is_true(core.counters().bytes - bytes < 1e5)
  end)

  it("drop the plan used longest ago, and stats tell hits, misses and the "
     .. "field that differed", function()
    U.each_device(function(dev)
      local g = limn.trace(function(x) return x + 1 end, limn.ones(1))
      core.plans_limit(3, 2 ^ 28)
      for _, n in ipairs {1, 2, 3, 1, 4, 1, 2} do -- 4 drops 2, 2 drops 3
        U.shape(g(limn.ones(n, dev)), {n})
      end
      local s = g:stats()
      core.plans_limit(512, 2 ^ 28)
      assert.are.equal(7, s.runs)
      assert.are.equal(5, s.plans)
      assert.are.equal(2, s.hits)
      assert.are.equal(2, s.evicted)
      assert.are.equal("size 1 of %x: 1 -> 2", s.misses[1])
    end)
  end)
end)

describe("Planning and errors:", function()
  it("a plan changes nothing in the graph: the same text and file after three "
     .. "runs on each device", function()
    local net = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    local g = limn.trace(net, limn.ones(2, 3))
    local text, bytes = tostring(g), limn.save_string {g = g}
    U.each_device(function(dev)
      for i = 1, 3 do
        U.close(g(limn.ones(i, 3, dev)), net(limn.ones(i, 3)), 1e-5)
      end
      g:verify()
      assert.are.equal(text, tostring(g))
      assert.is_true(bytes == limn.save_string {g = g})
    end)
  end)

  it("what a device cannot run is found before anything is launched, and "
     .. "inputs and cells are as before", function()
    local p = nn.Buffer(limn.zeros(2))
    local line = debug.getinfo(1, "l").currentline + 3
    local g = limn.trace(function(x, y)
      p:assign(x * 2)
      local z = x:matmul(y)
      return z
    end, limn.ones(2), limn.ones(2))
    U.each_device(function(dev)
      local x, y = limn.ones(2, "bool", dev), limn.ones(2, "bool", dev)
      local before = F.info(dev).launches
      U.message(function() g(x, y) end, "footguns_runs_spec.lua:" .. line,
                "matmul", "bool", dev)
      assert.are.equal(before, F.info(dev).launches)
      U.equal(p, {0, 0})
      U.equal(x, {1, 1})
      U.equal(g(limn.ones(2, dev), limn.ones(2, dev)), {2})
      p:assign(limn.zeros(2))
    end)
  end)

  it("a mismatch tells argument, device, dtype and shape of every operand, the "
     .. "op, the line and one thing to do", function()
    local line = debug.getinfo(1, "l").currentline + 1
    local g = limn.trace(function(x, w) return x:matmul(w) end,
                         limn.ones(2, 3), limn.ones(3, 4))
    U.each_device(function(dev)
      local e = U.message(function()
        g(limn.ones(2, 3, dev), limn.ones(2, 5, dev))
      end)
      assert.are.equal(([[
spec/footguns_runs_spec.lua:%d: matmul: the inner sizes differ: 3 and 2
  x: %%x float32 [2, 3] on %s
  y: %%w float32 [2, 5] on %s
hint: x:t() would fit]]):format(line,
        dev, dev), (e:gsub("\n%s*hint", "\nhint")))
    end)
    U.each_pair(function(a, b)
      if a == b then return end
      local e = U.message(function()
        g(limn.ones(2, 3, a), limn.ones(3, 4, b))
      end)
      e = e:gsub("^spec/footguns_runs_spec.lua:%d+: ", "")
      assert.are.equal(([[
the arguments are on different devices
  x: float32 [2, 3] on %s
  w: float32 [3, 4] on %s
hint: move one with :to(...)]]):format(a, b), (e:gsub("\n%s*hint", "\nhint")))
    end)
  end)
end)
