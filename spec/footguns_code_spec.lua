-- What users of tracing compilers ran into: shapes, branches, dtypes and modes
-- of the example.
local U = require "support.util"
local F = require "support.footguns"
local T = require "support.optable"
local core = require "limn.core"
local limn = U.limn
local nn = limn.nn
local agrees = F.agrees

describe("Shapes:", function()
  it("size, #, numel and shape all stay symbolic, whatever they size",
     function()
    local function f(x)
      local n, m = x.shape[1], x:size(2)
      local all = x:size()
      return limn.zeros(n), limn.ones(#x, m), limn.arange(x:numel()),
        x:reshape(m, n), limn.full({all[1], 1}, 2), limn.zeros(#x.shape), n,
        x:numel(), limn.rand(n, m), limn.randint(1, n + 1, m)
    end
    agrees(f, function(n, m) return limn.ones(n, m) end,
           {{20, 3}, {5, 2}, {1, 1}, {0, 4}})
  end)

  it("a batch of 3 in the trace is 1, 6 or none in the run, for convolutions, "
     .. "recurrence and attention", function()
    limn.manual_seed(2)
    local conv = nn.Sequential(nn.Conv2d(2, 3, 3, {padding = 1}), nn.ReLU(),
                               nn.MaxPool2d(2), nn.Flatten(), nn.Linear(12, 2))
    agrees(function(x) return (conv(x)) end,
           function(n) return limn.randn(n, 2, 4, 4) end,
           {{3}, {1}, {6}, {0}})
    local cell = nn.LSTMCell(2, 3)
    agrees(function(x)
      local h, c
      for k = 1, 2 do h, c = cell(x[{{}, k}], h and {h, c}) end
      return h
    end, function(n) return limn.randn(n, 2, 2) end, {{3}, {1}, {6}, {0}})
    local encoder = nn.TransformerEncoderLayer(4, 2, {dim_feedforward = 8,
                                                      dropout = 0})
    agrees(function(x) return (encoder(x)) end,
           function(n, t) return limn.randn(n, t, 4) end,
           {{3, 5}, {1, 2}, {6, 5}, {0, 3}})
  end)

  it("padding to the longest is computed in each run", function()
    agrees(function(x, y)
      local n = limn.max(x:size(1), y:size(1))
      return limn.stack {x:pad {0, n - x:size(1)}, y:pad {0, n - y:size(1)}}
    end, function(n, m) return limn.ones(n), limn.full({m}, 2) end,
           {{3, 7}, {9, 2}, {4, 4}, {0, 1}})
  end)

  it("a loop over a size is refused at its line, or guarded: 5 rows after a "
     .. "trace of 20 never give 20", function()
    local line = debug.getinfo(1, "l").currentline + 2
    local function count(x, n)
      for _ = 1, n do x = x + 1 end
      return x
    end
    U.message(function()
      limn.trace(function(x) return (count(x, x:size(1))) end, limn.zeros(20))
    end, "footguns_code_spec.lua:" .. line, "run to run", "hint:")
    local g = limn.trace(function(x)
      return (count(x, limn.value(x:size(1))))
    end, limn.zeros(20))
    local j = limn.jit(function(x)
      return (count(x, limn.value(x:size(1))))
    end)
    local loop = limn.trace(function(x)
      local n = limn.scan(function(c, _)
        c = c + 1
        return c, c
      end, x:new_zeros(), x)
      return n
    end, limn.zeros(20))
    U.each_device(function(dev)
      U.equal(loop(limn.zeros(5, dev)), {5})
      U.equal(loop(limn.zeros(20, dev)), {20})
      U.equal(g(limn.zeros(20, dev))[1], {20})
      U.message(function() g(limn.zeros(5, dev)) end,
                "footguns_code_spec.lua:%d+", "size%(%%x, 1%) == 20", "5")
      U.equal(j(limn.zeros(5, dev)), {5, 5, 5, 5, 5})
    end)
  end)

  it("flatten, reshape and all that changes shapes hold expressions: three "
     .. "shapes from one graph", function()
    agrees(function(x)
      local a, b, c = x:size(1), x:size(2), x:size(3)
      return x:flatten(2), x:reshape(a, b * c), x:reshape(-1, c), x:flatten(),
        x:unsqueeze(1):expand(2, -1, -1, -1), x:permute(3, 1, 2),
        x:tile(1, 2, 1), x:mean(2):reshape(c, a)
    end, function(a, b, c)
      return limn.arange(a * b * c):reshape(a, b, c)
    end, {{2, 3, 4}, {1, 1, 1}, {5, 2, 3}})
  end)

  it("an example size of 1 is not special, nor is one that becomes 1",
     function()
    local function f(a, b)
      return a + b, a * a:sum(1, true), a:max(2), (a - b):mean()
    end
    local function make(n, m, k) return limn.randn(n, m), limn.randn(k, m) end
    agrees(f, make, {{1, 3, 1}, {4, 3, 4}, {4, 1, 1}, {1, 2, 5}})
    agrees(f, make, {{4, 2, 4}, {1, 2, 1}, {3, 1, 1}})
    local g = limn.trace(function(x) return x:squeeze(1) end, limn.ones(1, 3))
    U.message(function() g(limn.ones(4, 3)) end, "squeeze", "4")
  end)

  it("no op keeps a value between runs", function()
    local function f(x)
      return x:sum(), x:max(1), x:argmax(2), x:cumsum(1), x:std(2),
        x:softmax(1), x:var(), x:sort(1), x:norm(), limn.rand_like(x)
    end
    U.each_device(function(dev)
      local g = limn.trace(f, limn.randn(4, 4))
      for i = 1, 3 do
        for _, s in ipairs {{4, 4}, {2, 5}, {7, 3}} do
          limn.manual_seed(i * s[1])
          local x = limn.randn(s[1], s[2])
          local want = {f(x)}
          limn.manual_seed(i * s[1])
          limn.randn(s[1], s[2])
          local got = {g(x:to(dev))}
          for k = 1, #want do U.close(got[k], want[k], 1e-4, "max", k) end
        end
      end
    end)
  end)

  it("every op has a rule for shapes: there is none without", function()
    for row in T.each "VGS" do
      local text = U.read_file "core/ops.h"
      local rule = text:match("%f[%w]" .. row.kind .. "%(" .. row.name
        .. ",%s*\"[^\"]*\",%s*([%w_]+)")
      assert.is_truthy(rule and rule ~= "NULL" or row.kind == "G", row.name)
    end
  end)

  it("a size reads, prints, adds, divides and compares in a trace as in eager "
     .. "code; its type() alone differs", function()
    local function f(x)
      local n = x:size(1)
      return n + 1, n - 1, 2 * n, n / 4, n % 3, n ^ 2, -n, limn.max(n, 3),
        limn.floor(n / 2), n == 7, n < 8, n >= 7, "n " .. n ~= "n "
    end
    local x = limn.ones(7)
    local want, got = {f(x)}, {limn.trace(f, x)(x)}
    assert.are.same(want, got)
    local kind
    limn.trace(function(v)
      kind = type(v:size(1))
      return v
    end, x)
    assert.are.equal("cdata", kind)
    assert.is_truthy(U.read_file "README.md":find('`type%(%)` is%s+"cdata"'))
  end)
end)

describe("Branches and host values:", function()
  it("an if on a value is an error with its line; one on a size, dtype or mode "
     .. "can never give the other branch's value", function()
    local line = debug.getinfo(1, "l").currentline + 3
    U.message(function()
      limn.trace(function(x)
        if x:sum():gt(0) then return x * 2 end
        return x
      end, limn.ones(2))
    end, "footguns_code_spec.lua:" .. line, "same way", "limn.where")
    local Net = nn.Module:extend "Net"
    function Net:forward(x)
      if self.training then return x * 2 end
      return x
    end
    local net = Net()
    for _, case in ipairs {
      {function(x) if x:size(1) > 2 then return x * 2 end return x end,
       limn.ones(3), limn.ones(2), "size"},
      {function(x) if x.dtype == "float32" then return x * 2 end return x end,
       limn.ones(3), limn.ones(3, "float64"), "dtype"},
      {function(x) return (net(x)) end, limn.ones(3), nil, "training"},
    } do
      local f, yes, no, word = unpack(case)
      net:train()
      local g, j = limn.trace(f, yes), limn.jit(f)
      U.each_device(function(dev)
        net:train()
        U.equal(g(yes:to(dev)), {2, 2, 2})
        U.equal(j(yes:to(dev)), {2, 2, 2})
        if not no then net:eval() end
        local other = (no or yes):to(dev)
        U.message(function() g(other) end, "footguns_code_spec.lua:%d+", word)
        U.equal(j(other), f(other))
      end)
      assert.are.equal(2, j:stats().traces)
    end
  end)

  it("a boolean, number or string argument is part of the key", function()
    local function f(x, flag, k, word)
      if flag then x = x * k end
      if word == "neg" then x = -x end
      return x
    end
    local g, j = limn.trace(f, limn.ones(1), true, 3, "neg"), limn.jit(f)
    U.each_device(function(dev)
      local x = limn.ones(1, dev)
      U.equal(g(x, true, 3, "neg"), {-3})
      for _, a in ipairs {{false, 3, "neg"}, {true, 4, "neg"}, {true, 3, "-"},
                          {true, 3}} do
        U.message(function() g(x, unpack(a, 1, 3)) end, "argument %d was")
        U.equal(j(x, unpack(a, 1, 3)), f(x, unpack(a, 1, 3)))
      end
    end)
    assert.are.equal(4, j:stats().traces)
  end)

  it("an outer number, flag, string, function or field that changed is named "
     .. "by check, and makes jit trace again", function()
    local k, flag, word, fn = 2, true, "a", function(v) return v end
    local Net = nn.Module:extend "Net"
    function Net:init() self.scale = 3 end
    function Net:forward(x) return x * self.scale end
    local net = Net()
    local function f(x)
      x = fn(net(x) * k)
      if flag and word == "a" then x = x + 1 end
      return x
    end
    local g, j = limn.trace(f, limn.ones(1)), limn.jit(f)
    local x = limn.ones(1)
    assert.is_true(g:check())
    U.equal(j(x), {7})
    k = 5
    U.message(function() g:check() end, "upvalue k")
    U.equal(j(x), {16})
    flag = false
    U.message(function() g:check() end, "upvalue k, upvalue flag")
    U.equal(j(x), {15})
    word, flag = "b", true
    U.equal(j(x), {15})
    fn = function(v) return -v end
    U.message(function() g:check() end, "upvalue fn", "upvalue k")
    U.equal(j(x), {-15})
    net.scale = 4
    U.message(function() g:check() end, "field Net.scale")
  end)
end)

describe("Dtypes:", function()
  it("a model of layers traced with float32 and run with float16 gives "
     .. "float16 after each layer", function()
    local half = {dtype = "float16"}
    local net = nn.Sequential(nn.Linear(4, 4, half), nn.LayerNorm(4, half),
                              nn.GELU(), nn.Dropout(0.5),
                              nn.Linear(4, 3, half), nn.Softmax(-1))
    local function f(x)
      local n = {dtype = x.dtype, device = x.device}
      local y = x * limn.ones_like(x) + x:new_zeros(4) + limn.arange(4, n)
        + limn.rand_like(x) * 2
      local all = {y, y:var(2), y:mean(), nn.mse_loss(y, x)}
      for i = 1, 6 do
        y = net[i](y)
        all[#all + 1] = y
      end
      return all
    end
    U.each_pair(function(from, to)
      local g = limn.trace(f, limn.ones(2, 4, from))
      local x = limn.ones(2, 4, {dtype = "float16", device = to})
      for i, y in ipairs(g(x)) do assert.are.equal("float16", y.dtype, i) end
    end)
  end)

  it("a precision policy is no part of the graph: text and parameters are the "
     .. "same with and without", function()
    local net = nn.Linear(3, 2)
    local x = limn.ones(1, 3)
    local function traced()
      local g = limn.trace(net, x)
      return g
    end
    local plain = traced()
    local y = plain(x)
    limn.policy {precise = true}
    local precise = traced()
    local z = plain(x)
    limn.policy {precise = false}
    assert.are.equal(tostring(plain), tostring(precise))
    U.close(z, y, 1e-6)
    assert.are.equal(2, plain:stats().plans)
  end)
end)

describe("Modes and random numbers:", function()
  it("the mode is read by each run: one graph drops out or does not, also "
     .. "after a file", function()
    local net = nn.Sequential(nn.Dropout(0.5), nn.Identity())
    local g = limn.trace(net, limn.ones(100))
    local loaded = limn.load_string(limn.save_string {g = g})
    local function zeros(h, x)
      local n = 0
      for _, v in ipairs(U.flat(h(x))) do n = n + (v == 0 and 1 or 0) end
      return n
    end
    U.each_device(function(dev)
      local x = limn.ones(100, dev)
      for _, h in ipairs {g, loaded.g} do
        h:eval()
        U.equal(h(x), x)
        h:train()
        assert.is_true(zeros(h, x) > 20, dev)
      end
    end)
    local fresh = limn.trace(net, limn.ones(100))
    net:eval()
    U.equal(fresh(limn.ones(100)), limn.ones(100))
    net:train()
    assert.is_true(zeros(fresh, limn.ones(100)) > 20)
    local again = limn.load_string(limn.save_string {g = fresh})
    U.equal(again.g(limn.ones(100)), limn.ones(100), "files are in eval mode")
  end)

  it("random tensors differ from run to run, repeat with the seed, and tracing "
     .. "takes no draw", function()
    local function f(x)
      return limn.rand_like(x) + limn.randn(4, x.device)
    end
    U.each_pair(function(from, to)
      local x = limn.ones(4, to)
      local before = core.counters().draws
      local g = limn.trace(f, limn.ones(4, from))
      assert.are.equal(before, core.counters().draws)
      limn.manual_seed(9)
      local a, b = g(x), g(x)
      assert.is_truthy(U.difference(a, b, 1e-3))
      limn.manual_seed(9)
      U.equal(g(x), a)
      U.equal(g(x), b)
      limn.manual_seed(9)
      U.close(f(x), a, 1e-6)
    end)
  end)

  it("the seed is the context's, read at each run, whoever traced", function()
    local co = coroutine.create(function()
      coroutine.yield(limn.trace(function(x) return limn.rand_like(x) end,
                                 limn.ones(4)))
    end)
    local _, g = coroutine.resume(co)
    local function words(seed)
      limn.manual_seed(seed)
      return U.flat(g(limn.ones(4)))
    end
    assert.are.same(words(1), words(1))
    assert.are_not.same(words(1), words(2))
    local inside
    coroutine.wrap(function() inside = words(1) end)()
    assert.are.same(words(1), inside)
  end)

  it("the words are the same on every device, for any number of them",
     function()
    local n = U.asan and 2 ^ 16 or 2 ^ 22
    local g = limn.trace(function(x) return limn.rand_bits(x:size(1)) end,
                         limn.ones(1))
    local want
    U.each_device(function(dev)
      limn.manual_seed(77)
      local y = g(limn.ones(1, dev):expand(n)):to "cpu"
      want = want or y
      assert.is_true(want:eq(y):all():item(), dev)
    end)
  end)

  it("Lua's random numbers and clocks raise in a trace; local copies escape, "
     .. "as README says", function()
    local random = math.random
    for _, f in ipairs {
      function(x) return x * math.random() end,
      function(x) return x * os.time() end,
      function(x) return x * os.clock() end,
    } do
      U.message(function() limn.trace(f, limn.ones(2)) end,
                "^spec/footguns_code_spec.lua:%d+: %S+ would be called once",
                "hint:")
    end
    limn.trace(function(x) return x * random() end, limn.ones(2))
    assert.is_truthy(U.read_file "README.md":find(
      "local copy of `math.random`", 1, true))
  end)
end)
