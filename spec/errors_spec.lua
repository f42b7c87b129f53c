-- Wrong use is an error at the user's line: what was wrong, the operands with
-- shape, dtype and device, and what to do.
local U = require "support.util"
local limn = U.limn
local nn = limn.nn

describe("Operands on different devices", function()
  U.each_device(function(dev)
    if dev == "cpu" then return end
    it("are named, eager, with " .. dev, function()
      local a, b = limn.ones(2, 3), limn.ones(2, 3, dev)
      local line = U.here(1)
      U.message(function() return a + b end, line, "add",
                "float32 %[2, 3%] on cpu", "float32 %[2, 3%] on " .. dev,
                "hint:.*:to")
    end)
    it("are named as arguments of a graph, and nothing runs, with " .. dev,
       function()
      local p = nn.Parameter(limn.zeros(2))
      local g = limn.trace(function(x, y)
        p:assign(x + y)
        return x + y
      end, limn.ones(2), limn.ones(2))
      local x, y = limn.ones(2), limn.ones(2, dev)
      local line = U.here(1)
      U.message(function() g(x, y) end, line, "x: float32 %[2%] on cpu",
                "y: float32 %[2%] on " .. dev, "hint:")
      U.equal(p, {0, 0})
    end)
    it("0-dim CPU tensors and numbers mix with any, such as " .. dev,
       function()
      local s = limn.tensor(2)
      local y = limn.ones(2, dev) * s + 1
      U.equal(y, {3, 3})
      assert.are.equal(dev, y.device)
      local g = limn.trace(function(x, k) return x * k end, limn.ones(2), s)
      U.equal(g(limn.ones(2, dev), limn.tensor(5)), {5, 5})
    end)
  end)

  it("a device that is not here is named, with those that are", function()
    local line = U.here(1)
    U.message(function() limn.ones(2):to "cuda:7" end, line, "cuda:7", "cpu")
    U.message(function() limn.zeros(2, "opencl:9") end, "opencl:9", "cpu")
    U.message(function() limn.on("nowhere", function() end) end, "nowhere")
  end)
end)

describe("Wrong shapes", function()
  it("name the op, the operands and their shapes", function()
    U.each_device(function(dev)
      local a, b = limn.ones(2, 3, dev), limn.ones(4, 3, dev)
      local line = U.here(1)
      U.message(function() return a + b end, line, "add", "%[2, 3%]",
                "%[4, 3%]", "float32", dev, "hint:")
      U.message(function() return a:matmul(b) end, "matmul", "3 and 4",
                "%[2, 3%]", "%[4, 3%]", "hint:.*y:t%(%)")
      U.message(function() return a:reshape(4, 2) end, "reshape", "6 elements")
      U.message(function() return a:sum(3) end, "sum", "dim 3", "2 dims")
      U.message(function() return a:squeeze(1) end, "squeeze", "size 2")
      U.message(function() return a:expand(2, 5) end, "expand", "%[2, 3%]")
      U.message(function() return limn.cat({a, b}, 2) end, "cat", "%[4, 3%]")
    end)
  end)

  it("are found while tracing, at the line, with the module path", function()
    local Net = nn.Module:extend "Net"
    function Net:init() self.inner = nn.Linear(4, 2) end
    function Net:forward(x)
      local y = self.inner(x)
      return y
    end
    local net = Net()
    U.message(function() limn.trace(net, limn.ones(3, 5)) end,
              "errors_spec.lua:%d+: Linear 'inner': the input is %[3, 5%], "
              .. "where %[..., 4%] is needed", "\nhint: ")
    local Scores = nn.Module:extend "Scores"
    function Scores:init() self.inner = nn.Sequential(function(x)
      local y = x:matmul(limn.ones(4, 2))
      return y
    end) end
    function Scores:forward(x)
      local y = self.inner(x)
      return y
    end
    local scores = Scores()
    U.message(function() limn.trace(scores, limn.ones(3, 5)) end,
              "errors_spec.lua:%d+", "matmul", "%[3, 5%]", "%[4, 2%]",
              "in .*inner", "hint:")
  end)

  it("of a run name the line that made the node", function()
    local line = U.here(1)
    local g = limn.trace(function(x, y) return x + y end,
                         limn.ones(2, 3), limn.ones(2, 3))
    U.each_device(function(dev)
      U.message(function()
        g(limn.ones(2, 3, dev), limn.ones(4, 3, dev))
      end, (line:gsub(":$", "")), "add", "%%x", "%%y", "%[4, 3%]", dev)
    end)
    U.message(function() g(limn.ones(2), limn.ones(2)) end, "x", "1 dim",
              "2", "hint:")
  end)
end)

describe("Wrong dtypes", function()
  it("a float tensor where an index is wanted suggests a conversion",
     function()
    U.each_device(function(dev)
      local x, i = limn.ones(2, 3, dev), limn.ones(2, dev)
      local line = U.here(1)
      U.message(function() local _ = x:index_select(1, i) end, line,
                "float32", "int64")
      U.message(function() return x[i] end, "int64")
      U.message(function() return x:masked_fill(x, 1) end, "bool", "hint:")
      U.message(function() return limn.ones(2, "bool"):matmul(limn.ones(2,
                  "bool")) end, "bool")
    end)
  end)

  it("an unknown dtype or option lists the near ones", function()
    U.message(function() limn.zeros(2, "flaot32") end, "flaot32")
    U.message(function() limn.zeros(2, {dtyp = "int8"}) end, "dtyp")
    U.message(function() limn.ones(2, 2):sum {dims = 1} end, "dims", "'dim'")
    U.message(function() return limn.ones(2):tahn() end, "tahn", "'tanh'")
    U.message(function() return limn.tahn(1) end, "tahn", "tanh")
    U.message(function() return nn.Liner(2, 3) end, "Liner", "'Linear'")
    U.message(function() return limn.ones(2):sum(1, false, 3) end, "sum")
  end)
end)

describe("An index out of range", function()
  it("raises for views at once, on every device", function()
    U.each_device(function(dev)
      local x = limn.ones(3, 4, dev)
      local line = U.here(1)
      U.message(function() return x[4] end, line, "4", "1%.%.3", "dim 1")
      U.message(function() return x[0] end, "0")
      U.message(function() return x[{{}, {2, 5}}] end, "5")
      U.message(function() return x[{{3, 1}}] end, "backwards", "hint:")
      U.message(function() return x:at(1, 9) end, "9", "1%.%.4")
    end)
  end)

  it("raises for index tensors, on a GPU at the next wait, once", function()
    U.each_device(function(dev)
      local x = limn.ones(3, 4, dev)
      local bad = limn.tensor({1, 7}, "int64", dev)
      -- An accelerator raises where it is waited for, with the op's line.
      local line = U.here(2)
      U.message(function()
        local y = x:index_select(1, bad)
        y:totable()
      end, line, "index_select", "index 7", "position 2", "size is 3")
      U.equal(x:index_select(1, limn.tensor({1}, "int64", dev)),
              {1, 1, 1, 1}, "the error is raised once")
      U.message(function()
        local y = x:gather(2, limn.tensor({{0}}, "int64", dev))
        return y:totable()
      end, "gather", "index 0", "position 1")
    end)
  end)

  it("in a graph names the node's line", function()
    local line = U.here(1)
    local g = limn.trace(function(x, i) return x[i] * 2 end, limn.ones(3),
                         limn.tensor({1}, "int64"))
    U.each_device(function(dev)
      U.message(function()
        return g(limn.ones(3, dev), limn.tensor({4}, "int64", dev)):totable()
      end, (line:gsub(":$", "")), "index 4")
    end)
  end)

  it("in labels says that they count from 1", function()
    U.each_device(function(dev)
      local x = limn.ones(2, 3, dev)
      U.message(function()
        return nn.cross_entropy(x, limn.tensor({1, 0}, "int64", dev)):item()
      end, "label 0", "row 2", "1%.%.3", "add 1")
    end)
  end)
end)

describe("A size that", function()
  it("overflows is an error", function()
    U.each_device(function(dev)
      local line = U.here(1)
      U.message(function() limn.zeros(2 ^ 40, 2 ^ 40, dev) end, line,
                "more elements than fit", "1099511627776")
      U.message(function() limn.zeros(2 ^ 61, dev) end, "2305843009213693952")
    end)
  end)
  it("is negative or not whole is an error", function()
    U.message(function() limn.zeros(-1) end, "negative")
    U.message(function() limn.zeros(2.5) end, "2.5", "whole", "limn.floor")
  end)
  it("does not fit into memory is an error, and all goes on", function()
    U.message(function() limn.zeros(2 ^ 45) end, "memory")
    U.equal(limn.zeros(2), {0, 0})
  end)
  it("overflows in a plan is an error at the line", function()
    local line = U.here(2)
    local g = limn.trace(function(x)
      return limn.zeros((x:size(1) - 1) * 2 ^ 62) + 1
    end, limn.ones(1))
    U.message(function() g(limn.ones(3)) end, (line:gsub(":$", "")), "64 bits")
    line = U.here(2)
    local h = limn.trace(function(x)
      local z = limn.zeros(x:size(1) - 3)
      return z
    end, limn.ones(5))
    U.message(function() h(limn.ones(1)) end, (line:gsub(":$", "")),
              "negative", "-2")
  end)
end)

describe("In traced code", function()
  it("a literal device is an error with the line and the advice", function()
    U.each_device(function(dev)
      local line = U.here(2)
      U.message(function()
        limn.trace(function(x) return x + limn.zeros(2, dev) end, limn.ones(2))
      end, line, "x.device")
      U.message(function()
        limn.trace(function(x) return x:to(dev) end, limn.ones(2))
      end, "x.device")
      U.message(function()
        limn.trace(function(x, d) return limn.zeros(2, d) + x end,
                   limn.ones(2), dev)
      end, "x.device")
    end)
  end)

  it("item, totable, at, rows and ipairs are errors with the line", function()
    local line = U.here(2)
    U.message(function()
      limn.trace(function(x) return x * x:sum():item() end, limn.ones(2))
    end, line, "item", "hint:")
    for _, f in ipairs {
      function(x) return x:totable() end, function(x) return x:at(1) end,
      function(x) x:rows() end,
      function(x) return x:data() end,
    } do
      U.message(function() limn.trace(f, limn.ones(2)) end, "errors_spec")
    end
  end)

  it("a comparison that nothing uses was an if", function()
    local line = U.here(3)
    U.message(function()
      limn.trace(function(x)
        if x:sum():gt(0) then return x end
        return -x
      end, limn.ones(2))
    end, (line:gsub(":$", "")), "gt", "limn.where")
  end)

  it("comparing the device is an error with advice", function()
    U.message(function()
      limn.trace(function(x)
        if x.device == "cpu" then return x end
        return -x
      end, limn.ones(2))
    end, "device", "by_device")
  end)

  it("math.random, os.time, os.clock and tonumber raise for traced code",
     function()
    for _, f in ipairs {
      function(x) return x * math.random() end,
      function(x) return x * os.time() end,
      function(x) return x * os.clock() end,
    } do
      U.message(function() limn.trace(f, limn.ones(2)) end, "errors_spec")
    end
    assert.is_number(math.random())
    assert.is_number(os.time())
    local g = limn.trace(function(x) return x + tonumber "3" end, limn.ones(2))
    U.equal(g(limn.ones(2)), {4, 4})
  end)

  it("making a cell, seeding, saving and yielding are errors", function()
    U.message(function()
      limn.trace(function(x) return x + nn.Parameter(limn.ones(2)) end,
                 limn.ones(2))
    end, "while a trace records")
    U.message(function()
      limn.trace(function(x)
        limn.manual_seed(1)
        return x
      end, limn.ones(2))
    end, "seed")
    U.message(function()
      limn.trace(function(x)
        limn.save(os.tmpname(), {x = limn.ones(2)})
        return x
      end, limn.ones(2))
    end, "sav")
    U.message(function()
      local co = coroutine.wrap(function()
        limn.trace(function(x)
          coroutine.yield()
          return x
        end, limn.ones(2))
      end)
      co()
      co()
    end, "yield")
    U.equal(limn.ones(2) + 1, {2, 2}, "eager code goes on")
  end)

  it("assigning to an argument or a capture is an error with the remedy",
     function()
    local c = limn.zeros(2)
    local line = U.here(3)
    U.message(function()
      limn.trace(function(x)
        x[1] = 0
        return x
      end, limn.ones(2))
    end, line, "argument", "clone")
    U.message(function()
      limn.trace(function(x)
        c[1] = x:sum()
        return x
      end, limn.ones(2))
    end, "captured", "clone")
  end)

  it("a placeholder that is kept is found when the trace ends", function()
    local kept = {}
    local upvalue
    U.message(function()
      limn.trace(function(x)
        upvalue = x * 2
        return x
      end, limn.ones(2))
    end, "upvalue", "errors_spec")
    local Net = nn.Module:extend "Net"
    function Net:forward(x)
      self.memory = x * 2
      return x
    end
    U.message(function() limn.trace(Net(), limn.ones(2)) end, "memory")
    -- One that was hidden too well raises when it is used.
    local line = U.here(2)
    limn.trace(function(x)
      kept.deep = {{{x * 3}}}
      return x
    end, limn.ones(2))
    U.message(function() return kept.deep[1][1][1] + 1 end,
              (line:gsub(":$", "")), "over")
    assert.is_not_nil(upvalue)
  end)

  it("Lua's own complaints about sizes become advice", function()
    U.message(function()
      limn.trace(function(x)
        for _ = 1, x:size(1) do x = x + 1 end
        return x
      end, limn.ones(2))
    end, "errors_spec.lua:%d+", "limn.value")
    U.message(function()
      limn.trace(function(x) return x + math.floor(x:size(1) / 2) end,
                 limn.ones(2))
    end, "errors_spec.lua:%d+", "limn.floor")
  end)

  it("after any error the next trace works", function()
    local g = limn.trace(function(x) return x + 1 end, limn.ones(2))
    U.equal(g(limn.ones(2)), {2, 2})
  end)
end)

describe("A gradient", function()
  it("of an op that has none says so at its line", function()
    local line = U.here(2)
    local f = limn.grad(function(x)
      local y = x:floor()
      return (y * 2):sum()
    end)
    U.message(function() f(limn.ones(2)) end, (line:gsub(":$", "")), "floor",
              "no gradient", "hint:")
    U.message(function() limn.trace(f, limn.ones(2)) end,
              (line:gsub(":$", "")), "floor", "no gradient")
  end)
  it("of a loss that is not one float says so", function()
    U.message(function() limn.grad(function(x) return x * 2 end)(limn.ones(2))
      end, "1 dim", "hint:")
    U.message(function()
      limn.grad(function(x) return x:argmax() end)(limn.ones(2))
    end, "loss")
  end)
  it("with respect to what the loss does not reach names it", function()
    local net = nn.Linear(2, 2)
    local p = nn.Parameter(limn.ones(2))
    p.name = "lonely"
    U.message(function()
      limn.value_and_grad(function(x) return net(x):sum() end, {p})(
        limn.ones(1, 2))
    end, "lonely", "unused")
    local _, g = limn.value_and_grad(function(x) return net(x):sum() end, {p},
                                     {unused = "zeros"})(limn.ones(1, 2))
    U.equal(g[1], {0, 0})
  end)
end)

describe("A call with the wrong arguments", function()
  it("is an error that says what was expected", function()
    local g = limn.trace(function(x, k) return x * k end, limn.ones(2), 3)
    U.equal(g(limn.ones(2), 3), {3, 3})
    U.message(function() g(limn.ones(2), 4) end, "3", "4", "limn.number")
    U.message(function() g(5, 3) end, "tensor", "5")
    U.message(function() g(limn.ones(2), 3, 1) end, "argument")
    U.message(function() g(nil, 3) end, "nil")
  end)
  it("outputs of run_into that do not fit are refused before the run",
     function()
    local p = nn.Parameter(limn.zeros(2))
    local g = limn.trace(function(x)
      p:assign(x)
      return x + 1
    end, limn.ones(2))
    local x = limn.ones(2)
    U.message(function() g:run_into({limn.ones(3)}, x) end, "%[3%]", "%[2%]")
    U.message(function() g:run_into({limn.ones(2, "int64")}, x) end, "int64")
    U.message(function() g:run_into({x}, x) end, "shares")
    U.each_device(function(dev)
      if dev == "cpu" then return end
      U.message(function() g:run_into({limn.ones(2, dev)}, x) end, dev)
    end)
    U.equal(p, {0, 0})
  end)
end)

describe("An index out of range in eager code", function()
  it("is reported with the line of the op on every device", function()
    U.each_device(function(dev)
      local x = limn.ones(2, 3):to(dev)
      local index = limn.tensor({{5, 1, 1}}, "int64"):to(dev)
      local line
      U.message(function()
        line = U.here(1)
        local y = x:gather(1, index)
        local z = y * 2 -- an accelerator has not looked yet
        return z:totable()
      end, "gather", "index 5", "position 1")
      local _, message = pcall(function()
        line = U.here(1)
        local y = x:gather(1, index)
        local z = y * 2
        return z:totable()
      end)
      assert.truthy(message:find(line), message)
    end)
  end)

  it("of a layer names its path in eager code, too", function()
    local net = limn.nn.Sequential(limn.nn.Linear(4, 5),
                                   limn.nn.Sequential(limn.nn.Linear(6, 2)))
    local want = {"errors_spec.lua:%d+: Linear '2.1': the input is %[2, 5%], "
                  .. "where %[..., 6%] is needed", "\n  in 2%.1\nhint: "}
    U.message(function() net(limn.ones(2, 4)) end, unpack(want))
    U.message(function()
      limn.grad(function(x) return net(x):sum() end)(limn.ones(2, 4))
    end, unpack(want))
    U.message(function() limn.nn.Linear(3, 1)(limn.ones(2)) end,
              "\n  in Linear")
    local ok, err = pcall(function() return limn.ones(2) + limn.ones(3) end)
    assert.is_false(ok)
    assert.is_nil(tostring(err):find("\n  in ", 1, true))
  end)
end)
