-- Guards: what a graph was recorded for is printed, saved, checked once for
-- each plan and told; limn.jit traces again, within bounds, and says why.
local U = require "support.util"
local core = require "limn.core"
local limn = U.limn
local nn = limn.nn

-- A guard of each kind, on each of its lines.
local Net = nn.Module:extend "Net"
function Net:forward(x, y, n)
  if self.training then x = x + 1 end
  if x:size(1) >= 2 then x = x * 2 end
  if x:size(1) == y:size(1) then x = x + y end
  if x.dtype == y.dtype then x = x * 1 end
  if x.dtype ~= "int64" then x = x * 1 end
  if n < 10 then x = x * n end
  if limn.value(y:size(1) * 2) == 8 then x = -x end
  return x
end

local function example() return limn.ones(4), limn.ones(4), limn.number(3) end

describe("A graph's guards", function()
  it("are printed with their lines and come back from a file", function()
    local net = Net()
    local g = limn.trace(net, example())
    local text = tostring(g)
    local line = debug.getinfo(Net.forward, "S").linedefined
    for i, pattern in ipairs {
      'guard mode%("self"%)', "guard size%(%%1, 1%) >= 2",
      "guard size%(%%2, 1%) == size%(%%y, 1%)", "guard is%(",
      "guard logical_not%(is%(", "guard %%n < 10",
      "guard .-size%(%%y, 1%).-8",
    } do
      local found = text:match("\n  (" .. pattern .. "[^\n]*)")
      assert.is_truthy(found, pattern .. " in\n" .. text)
      assert.is_truthy(found:find("guards_spec.lua:" .. line + i, 1, true),
                       found)
    end
    assert.are.equal(7, g:stats().guards)
    local loaded = limn.load_string(limn.save_string {g = g}).g
    loaded:train()
    assert.are.equal(text, tostring(loaded))
    U.each_device(function(dev)
      local x, y = limn.ones(4, dev), limn.ones(4, dev)
      U.equal(loaded(x, y, 3), g(x, y, 3))
      U.message(function() loaded(limn.ones(3, dev), limn.ones(3, dev), 3) end,
                "guards_spec.lua:%d+", "== 8 %(it is 6%)")
    end)
  end)

  it("say which does not hold, with the values that it met", function()
    local net = Net()
    local g = limn.trace(net, example())
    U.each_device(function(dev)
      local x = limn.ones(4, dev)
      U.message(function() g(limn.ones(1, dev), limn.ones(1, dev), 3) end,
                "size%(%%1, 1%) >= 2 %(it is 1%)")
      U.message(function() g(x, limn.ones(1, dev), 3) end,
                "size%(%%2, 1%) == size%(%%y, 1%) %(they are 4 and 1%)")
      local wide = limn.ones(4, {dtype = "float64", device = dev})
      U.message(function() g(wide, x, 3) end, "dtypeof%(%%3%) == dtypeof%(%%y%)"
                .. " %(they are float64 and float32%)")
      U.message(function() g(x, x, 10.5) end, "%%n < 10 %(it is 10.5%)")
      net:eval()
      U.message(function() g(x, x, 3) end, "self.training")
      net:train()
      U.equal(g(x, x, 3), net(x, x, 3))
    end)
  end)

  it("hold for all sizes that the branch holds for", function()
    local g = limn.trace(function(x)
      if x:size(1) > 2 then return x * 2 end
      return x
    end, limn.ones(3))
    U.each_device(function(dev)
      for _, n in ipairs {3, 64, 7} do
        U.equal(g(limn.ones(n, dev)), limn.full({n}, 2))
      end
    end)
  end)

  it("are checked when a plan is made and not again, held or not", function()
    local g = limn.trace(function(x)
      local y = x
      for i = 1, 50 do
        if x:size(1) > i then y = y * 1 end
      end
      return y
    end, limn.ones(60))
    local x, short = limn.ones(64), limn.ones(5)
    g(x)
    local plans = core.counters().plans
    local function time(f)
      local best = math.huge
      for _ = 1, 5 do
        local t = os.clock()
        for _ = 1, 200 do f() end
        best = math.min(best, os.clock() - t)
      end
      return best
    end
    for _ = 1, 10 do g(x) end
    assert.are.equal(plans, core.counters().plans)
    -- A key that was refused once is refused without another plan.
    assert.is_false(core.try(g, short))
    local before = core.counters().allocs
    for _ = 1, 100 do core.try(g, short) end
    assert.are.equal(before, core.counters().allocs)
    assert.is_true(time(function() core.try(g, short) end) < 1)
    assert.are.equal("first run", g:stats().misses[1])
  end)
end)

describe("limn.jit", function()
  it("says why it traced again: the argument or guard, what was and what is",
     function()
    local k, word = 2, "a"
    local c = limn.ones(1)
    local j = limn.jit(function(x, flag)
      local y = flag and x * k or x
      if word == "b" then y = y + c end
      if x:dim() == 1 and x:size(1) > 2 then y = y * 10 end
      return y
    end)
    j(limn.ones(1), true)
    j(limn.ones(1), false)
    j(limn.ones(3), false)
    j(limn.ones(1, 1), false)
    k = 5
    j(limn.ones(1), false)
    word = "b"
    j(limn.ones(1), false)
    c[1] = 3
    j(limn.ones(1), false)
    local reasons = j:stats().reasons
    for i, pattern in ipairs {
      "^first use$", "^argument 2 was true .* false here",
      "size%(%%x, 1%) <= 2 %(it is 3%)", "^argument x: 1 dim %-> 2",
      "^upvalue k: 2 %-> 5", '^upvalue word: "a" %-> "b"',
      "captured tensor .* another value",
    } do
      assert.is_truthy(reasons[i] and reasons[i]:find(pattern),
                       pattern .. ": " .. tostring(reasons[i]))
    end
    assert.are.equal(7, #reasons)
  end)

  it("keeps at most 64 traces, and results stay right", function()
    local err, said = io.stderr, {}
    rawset(io, "stderr", {write = function(_, s) said[#said + 1] = s end})
    local j = limn.jit(function(x, k) return x * k end)
    local ok, e = pcall(function()
      for k = 1, 100 do U.equal(j(limn.ones(1), k), {k}) end
      for _, k in ipairs {1, 50, 100} do U.equal(j(limn.ones(1), k), {k}) end
    end)
    rawset(io, "stderr", err)
    assert.is_true(ok, e)
    local s = j:stats()
    assert.are.equal(64, s.traces)
    assert.are.equal(101 - 64, s.evicted)
    assert.are.equal(1, #said, "one warning, at the third trace")
    assert.is_truthy(said[1]:find "traced three times: argument 2", said[1])
  end)

  it("explains each plan of its graphs by the field that differed", function()
    local net = nn.Sequential(nn.Dropout(0.5))
    local j = limn.jit(function(x, n) return net(x) * limn.zeros(n):sum() end)
    local base = limn.ones(6, 6)
    local function miss(x, n)
      j(x, limn.number(n))
      return j:stats().graphs[1].misses[1]
    end
    assert.are.equal("first run", miss(limn.ones(2, 3), 1))
    assert.are.equal("size 1 of %x: 2 -> 4", miss(limn.ones(4, 3), 1))
    assert.are.equal("size 2 of %x: 3 -> 6", miss(limn.ones(4, 6), 1))
    assert.are.equal("dtype of %x: float32 -> float64",
                     miss(limn.ones(4, 6, "float64"), 1))
    assert.are.equal("dtype of %x: float64 -> float32", miss(limn.ones(4, 6),
                                                             1) and
                     miss(limn.ones(6, 6, "float64"), 1) and
                     miss(base, 1))
    assert.are.equal("layout of %x: dense -> strided", miss(base:t(), 1))
    assert.are.equal("number %n: 1 -> 7", miss(base:t(), 7))
    net:eval()
    local mode = miss(base:t(), 7)
    assert.is_truthy(mode:find "^mode of .*: training %-> evaluating$", mode)
    limn.policy {precise = true}
    local policy = miss(base:t(), 7)
    limn.policy {precise = false}
    assert.are.equal("policy: precise", policy)
    local dev = U.other()
    if dev then
      assert.are.equal("device: cpu -> " .. dev, miss(base:t():to(dev), 7))
    end
  end)
end)

describe("A misspelt method lists the near ones:", function()
  it("jit functions, graphs, optimizers, modules, loaded models", function()
    local net = nn.Linear(1, 1)
    local g = limn.trace(net, limn.ones(1, 1))
    local file = limn.load_string(limn.save_string {g = g})
    for _, case in ipairs {
      {limn.jit(net), "grahp", "'graph'"}, {limn.jit(net), "statistics"},
      {g, "run_itno", "'run_into'"}, {g, "chekc", "'check'"},
      {limn.optim.Adam(net), "stpe", "'step'"},
      {limn.optim.SGD(net), "sett", "'set'"},
      {net, "paramters", "'parameters'"},
      {net, "load_statedict", "'load_state_dict'"},
      {file, "paramters", "'parameters'"}, {limn.ones(1), "tahn", "'tanh'"},
    } do
      U.message(function() return case[1][case[2]] end, "guards_spec.lua",
                "'" .. case[2] .. "'", case[3])
    end
    assert.is_nil(net.anything, "an absent field is nil")
  end)
end)

describe("A trace that its own arguments do not fit", function()
  it("is not kept by jit", function()
    local f = limn.jit(function(x)
      return limn.by_device({gpu = function(y) return y + 1 end}, x)
    end)
    for _ = 1, 3 do
      U.message(function() f(limn.ones(2)) end, "guards_spec.lua",
                "by_device has nothing", "give it cpu")
    end
    assert.are.equal(0, f:stats().traces)
    local dev = U.other()
    if dev then
      U.equal(f(limn.ones(2, dev)), {2, 2})
      assert.are.equal(1, f:stats().traces)
    end
  end)
end)

describe("The text of what a trace does not know", function()
  it("of a dtype records a guard, of a device raises, unless it is shown",
     function()
    local g = limn.trace(function(x)
      if tostring(x.dtype) == "float32" then return x + 1 end
      return x
    end, limn.ones(2))
    U.equal(g(limn.ones(3)), {2, 2, 2})
    U.message(function() g(limn.ones(2, "float64")) end, "guards_spec.lua",
              "dtypeof%(%%x%) == float32 %(it is float64%)")
    U.message(function()
      limn.trace(function(x)
        if tostring(x.device) == "cpu" then return x + 1 end
        return x
      end, limn.ones(2))
    end, "guards_spec.lua", "device of a trace", "by_device")
    local shown, old = {}, print
    _G.print = function(...) shown[#shown + 1] = table.concat({...}, " ") end
    g = limn.trace(function(x)
      print(x.dtype, x.device, x:size(1))
      return x * 2
    end, limn.ones(2))
    _G.print = old
    assert.are.equal("dtype(%x) device size(%x, 1)", shown[1])
    U.equal(g(limn.ones(2, "float64")), {2, 2})
    assert.are.equal("float32", tostring(limn.ones(1).dtype))
  end)
end)
