-- limn.debug: where NaN comes from, what modules and lines gave, and a line for
-- each trace and plan.
local U = require "support.util"
local limn = U.limn
local nn = limn.nn

local Net = nn.Module:extend "Net"
function Net:init(n) self.head, self.tail = nn.Linear(n, n), nn.Tanh() end
function Net:forward(x)
  local y = self.tail(self.head(x))
  return y
end

-- f() with these options, which are as before afterwards.
local function with(options, f)
  local was = limn.debug(options)
  local ok, e = pcall(f)
  limn.debug(was)
  if not ok then error(e, 0) end
end

describe("limn.debug {nan = true}", function()
  it("names the first op that makes NaN or infinity, its line, place and "
     .. "operands, eager and traced", function()
    local line = debug.getinfo(1, "l").currentline + 2
    local function f(x)
      local y = (x * 2):log()
      local z = y * 3 + x
      return z
    end
    local g = limn.trace(f, limn.ones(2, 2))
    with({nan = true}, function()
      U.each_device(function(dev)
        local x = limn.tensor({{1, 2}, {-1.5, 0}}, dev)
        for _, h in ipairs {f, g, limn.jit(f)} do
          U.message(function() h(x) end, "debug_spec.lua:" .. line,
                    "log makes NaN out of finite operands, at %[2, 1%] "
                    .. "%(2 of 4 elements%)", "float32 %[2, 2%] on " .. dev
                    .. ", from %-3 to 4", "hint: log is")
        end
        U.message(function() f(limn.tensor({0.0}, dev)) end, "%-infinity")
        U.close(g(x:abs() + 1), f(x:abs() + 1), 1e-5)
        U.message(function() return limn.ones(2, dev) / 0 end,
                  "div makes infinity", "divisor is 0")
      end)
    end)
    U.equal(g(limn.tensor {{-1, -1}}):isnan(), {1, 1}, "and not afterwards")
  end)

  it("has the module path, finds it in gradients, and leaves cells as they "
     .. "were", function()
    local Bad = nn.Module:extend "Bad"
    function Bad:init() self.scale = nn.Parameter(limn.tensor {-1, -1}) end
    function Bad:forward(x)
      local y = (x * self.scale):sqrt()
      return y
    end
    local Outer = nn.Module:extend "Outer"
    function Outer:init() self.inner = Bad() end
    function Outer:forward(x)
      local y = self.inner(x)
      return y
    end
    local net = Outer()
    local loss = limn.value_and_grad(function(x) return net(x):sum() end, net)
    local opt = limn.optim.SGD(net, {lr = 1})
    local step = limn.jit(function(x)
      local l, grads = loss(x)
      opt:step(grads)
      return l
    end)
    -- sqrt(0) is finite, its gradient is not.
    local slope = limn.grad(function(x) return x:sqrt():sum() end)
    with({nan = true}, function()
      U.each_device(function(dev)
        U.message(function() step(limn.ones(2, dev)) end,
                  "sqrt makes NaN", "in .*inner", "debug_spec.lua:%d+")
        U.equal(net.inner.scale, {-1, -1})
        U.message(function() slope(limn.zeros(2, dev)) end,
                  "makes infinity")
      end)
    end)
  end)

  it("looks into branches and loops", function()
    local line = debug.getinfo(1, "l").currentline + 3
    local function branch(x)
      local y = limn.cond(x:sum():gt(0), function(t)
        local u = t:log()
        return u
      end, function(t) return t * 2 end, x)
      return y
    end
    local function loop(x)
      local _, y = limn.scan(function(c, t)
        local s = c + t
        return s, 1 / s
      end, x:new_zeros(), x)
      return y
    end
    local g, h = limn.trace(branch, limn.ones(2)), limn.trace(loop,
                                                              limn.ones(2))
    with({nan = true}, function()
      U.each_device(function(dev)
        U.message(function() g(limn.tensor({3, -1}, dev)) end, "log makes NaN",
                  "debug_spec.lua:" .. line, "at %[2%]")
        U.equal(g(limn.tensor({-3, -1}, dev)), {-6, -2})
        U.message(function() h(limn.tensor({1, -1, 2}, dev)) end,
                  "makes infinity", "debug_spec.lua:%d+",
                  "\n  in step 2 of the loop")
        U.equal(h(limn.tensor({1, 1}, dev)), {1, 0.5})
      end)
    end)
  end)

  it("excuses what comes from NaN or infinity that was there", function()
    with({nan = true}, function()
      U.each_device(function(dev)
        local x = limn.tensor({1, 0 / 0, math.huge}, dev)
        assert.is_true(U.flat(x * 2 + 1)[1] == 3)
        local masked = limn.where(limn.tensor({1, 2, 3}, dev):gt(2), 1,
                                  -math.huge)
        U.equal(masked:softmax(1), {0, 0, 1})
        local y = nn.scaled_dot_product_attention(limn.ones(2, 2, dev),
          limn.ones(2, 2, dev), limn.ones(2, 2, dev), {causal = true})
        U.close(y, {1, 1, 1, 1})
      end)
    end)
  end)
end)

describe("limn.debug {keep = true}", function()
  it("lets a graph tell what a path or a line gave in its last run, on each "
     .. "device", function()
    limn.manual_seed(2)
    local net = Net(3)
    local line = debug.getinfo(1, "l").currentline + 2
    local g = limn.trace(function(x)
      local y = x * 2
      local z = net(y)
      return z, y:size(1)
    end, limn.ones(2, 3))
    U.message(function() g:value "head" end, "keep = true")
    with({keep = true}, function()
      U.each_device(function(dev)
        for _, n in ipairs {4, 1} do
          local x = limn.randn(n, 3)
          local y, rows = g(x:to(dev))
          assert.are.equal(n, rows)
          U.close(y, net(x * 2), 1e-5)
          local h = g:value "head"
          assert.are.equal(dev, h.device)
          U.close(h, net.head(x * 2), 1e-5)
          U.close(g:value "tail", net(x * 2), 1e-5)
          U.close(g:value("spec/debug_spec.lua:" .. line), x * 2)
        end
      end)
      U.message(function() g:value "haed" end, "'haed'", "'head'",
        "nothing of what is inside a branch or the body of a loop")
    end)
  end)

  it("runs assignments once, as without", function()
    local count = nn.Buffer(limn.zeros(1))
    local g = limn.trace(function(x)
      count:assign(count + 1)
      return x * 2
    end, limn.ones(1))
    with({keep = true}, function()
      g(limn.ones(1))
      local out = limn.zeros(1)
      g:run_into({out}, limn.ones(1))
      U.equal(out, {2})
    end)
    U.equal(count, {2})
  end)
end)

describe("limn.debug {trace = true}", function()
  it("writes a line for each trace and retrace, with the reason", function()
    with({trace = true}, function()
      local text = U.said(function()
        local j = limn.jit(function(x, k) return x * k end, {name = "scale"})
        j:graph(limn.ones(1), 2)
        j:graph(limn.ones(1), 3)
        j:graph(limn.ones(1), 3)
      end)
      local first, second, rest = text:match "(.-)\n(.-)\n(.*)"
      assert.is_truthy(first:find "limn: trace of scale %(.*debug_spec.lua:%d+"
                       and first:find "first use", text)
      assert.is_truthy(second:find "argument 2 of scale was 2 .* number 3",
                       text)
      assert.are.equal("", rest)
    end)
  end)

  it("writes one for each plan, too, and LIMN_DEBUG asks for it", function()
    local text, ok = U.lua([[
      local limn = require "limn"
      assert(limn.debug().trace and not limn.debug().nan)
      local g = limn.trace {function(x) return x * 2 end, limn.ones(2),
                            name = "twice"}
      g(limn.ones(2))
      g(limn.ones(2))
      g(limn.ones(5))]], "LIMN_DEBUG=trace")
    assert.is_true(ok, text)
    local _, n = text:gsub("limn: plan of twice on cpu", "")
    assert.are.equal(2, n, text)
    assert.is_truthy(text:find("first run\n", 1, true), text)
    assert.is_truthy(text:find("size 1 of %x: 2 -> 5\n", 1, true), text)
  end)

  it("an option that does not exist lists the near ones", function()
    U.message(function() limn.debug {nans = true} end, "nans", "'nan'")
    assert.are.same({nan = false, keep = false, trace = false}, limn.debug())
  end)
end)

describe("graph:explain(...)", function()
  it("gives time, kernel and memory of each step, by line and by module, and "
     .. "changes nothing", function()
    limn.manual_seed(3)
    local net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4),
                              nn.Dropout(0.5))
    local g = limn.trace(function(x)
      local y = net(x)
      local z = y * 2 + 1
      return z
    end, limn.ones(2, 4))
    local line = debug.getinfo(1, "l").currentline - 4
    U.each_device(function(dev)
      local x = limn.randn(8, 4, dev)
      local core = require "limn.core"
      local draws, mean = core.counters().draws, U.flat(net[2].running_mean)
      local text = g:explain(x)
      assert.are.equal(draws, core.counters().draws)
      U.equal(net[2].running_mean, mean)
      assert.is_truthy(text:find("on " .. dev, 1, true), text)
      assert.is_truthy(text:find " us +[%d.]+ KB +%d+ matmul", text)
      local lines, modules = text:match "by line:\n(.-)by module:\n(.*)"
      assert.is_truthy(lines, text)
      local _, n = lines:gsub(" us +[%d.]+ KB  [^\n]*debug_spec.lua:%d+\n", "")
      assert.is_true(n >= 2, text)
      assert.is_truthy(lines:find("debug_spec.lua:" .. line + 1), text)
      assert.is_truthy(modules:find " KB  1\n" and modules:find " KB  2\n",
                       text)
    end)
  end)
end)
