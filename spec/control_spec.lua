-- Control flow: cond, while_loop, scan, map and by_device, in eager code and in
-- graphs that were traced on one device and run on every one.
local U = require "support.util"
local limn = U.limn
local nn = limn.nn

-- The tensors and numbers of a nested value, in order.
local function leaves(v, out)
  out = out or {}
  if type(v) == "table" then
    local keys = {}
    for k in pairs(v) do keys[#keys + 1] = k end
    table.sort(keys, function(a, b) return tostring(a) < tostring(b) end)
    for _, k in ipairs(keys) do leaves(v[k], out) end
  else
    out[#out + 1] = v
  end
  return out
end

local function pack(...) return {n = select("#", ...), ...} end

local function same(got, want, what)
  local a, b = leaves(got), leaves(want)
  assert.are.equal(#b, #a, what)
  for i = 1, #b do
    local name = ("%s, value %d"):format(what, i)
    if limn.is_tensor(b[i]) then
      U.shape(a[i], b[i].shape, name)
      assert.are.equal(tostring(b[i].dtype), tostring(a[i].dtype), name)
      U.close(a[i], b[i], 1e-5, 1, name)
    else
      assert.are.equal(b[i], a[i], name)
    end
  end
end

-- f in eager code is what its graph computes: traced on one device, run on
-- each, for every set of arguments (made on the CPU), with the same random
-- numbers. The text of the graph reads back as itself, and runs as well.
local function check(f, sets)
  U.each_pair(function(from, to)
    local function at(set, dev)
      local args = {n = #set}
      for i = 1, #set do
        args[i] = limn.is_tensor(set[i]) and set[i]:to(dev) or set[i]
      end
      return args
    end
    local first = at(sets[1], from)
    for i = 1, first.n do
      if type(first[i]) == "number" then first[i] = limn.number(first[i]) end
    end
    local g = limn.trace(f, unpack(first, 1, first.n))
    local loaded
    U.with_file(function(path)
      limn.save(path, {g = g})
      loaded = limn.load(path).g
    end)
    assert.are.equal((tostring(g):gsub("#[^\n]*", "")),
                     (tostring(loaded):gsub("#[^\n]*", "")))
    for k, set in ipairs(sets) do
      local args = at(set, to)
      local what = ("set %d, %s to %s"):format(k, from, to)
      limn.manual_seed(5)
      local want = pack(limn.on(to, f, unpack(args, 1, args.n)))
      for _, h in ipairs {g, loaded} do
        limn.manual_seed(5)
        local on = h:on(to)
        same(pack(on(unpack(args, 1, args.n))), want, what)
      end
    end
  end)
end

local function rows(n, k)
  local r = U.random(n + 1)
  local t = {}
  for i = 1, n * k do t[i] = r() - 0.5 end
  return limn.tensor(t, "float32"):reshape(n, k)
end

describe("limn.cond", function()
  it("runs the branch that the data decides on", function()
    check(function(x)
      local y, n = limn.cond(x:sum():gt(0),
                             function(a) return a * 2, "same" end,
                             function(a) return a - x:size(1), "same" end, x)
      return y, n
    end, {{rows(3, 2)}, {rows(3, 2):abs()}, {rows(5, 4)}, {-rows(1, 1):abs()},
          {limn.zeros(0, 3)}})
  end)

  it("nests, and its branches see all that is around them", function()
    check(function(x)
      local s = x:sum()
      local k = x * 3
      local y = limn.cond(s:gt(0), function()
        return limn.cond(s:gt(1), function() return k + 1 end,
                         function() return k:relu() + s end)
      end, function() return limn.cond(s:lt(-1), function() return -k end,
                                       function() return x end) end)
      return y
    end, {{rows(2, 3) + 1}, {rows(2, 3)}, {rows(2, 3) - 1},
          {rows(4, 1) * 0.1}})
  end)

  it("gives tables of any depth, and tensors for numbers that differ",
     function()
    check(function(x)
      local r = limn.cond(x:sum():gt(0), function()
        return {a = x, list = {x:sum(1), 1}, k = 7, name = "n"}
      end, function()
        return {a = -x, list = {x:mean(1), 2.5}, k = 7, name = "n"}
      end)
      assert.are.equal(7, r.k)
      assert.are.equal("n", r.name)
      if limn.is_tensor(r.list[2]) then r.list[2] = r.list[2]:to "float32"
      else r.list[2] = limn.full({}, r.list[2]) end
      return r
    end, {{rows(2, 3):abs()}, {-rows(3, 3):abs()}})
  end)

  it("decides at once by a Lua boolean", function()
    local g = limn.trace(function(x)
      local y = limn.cond(true, function() return x + 1 end, error)
      return y
    end, limn.ones(2))
    assert.is_nil(tostring(g):find "cond")
    U.equal(g(limn.ones(2)), {2, 2})
  end)

  it("keeps one branch of a plan value's, whose sizes may differ", function()
    local g = limn.trace(function(x)
      local y = limn.cond(limn.gt(x:size(1), 3),
                          function() return x:sum(1, {keepdim = true}) end,
                          function() return x * x:size(1) end)
      return y
    end, limn.ones(2, 3))
    U.each_device(function(dev)
      U.shape(g(limn.ones(5, 3, dev)), {1, 3})
      U.equal(g(limn.ones(5, 3, dev)), {5, 5, 5})
      U.equal(g(limn.ones(2, 3, dev)), {2, 2, 2, 2, 2, 2})
      assert.is_nil(g:explain(limn.ones(5, 3, dev)):find "cond")
    end)
  end)

  it("takes a number input as its condition without planning anew", function()
    local function f(x, n)
      local y = limn.cond(limn.gt(n, 0.5), function() return x * n end,
                          function() return x - n end)
      return y
    end
    check(f, {{rows(2, 2), 1}, {rows(2, 2), 0}, {rows(2, 2), 0.75}})
    local g = limn.trace(f, limn.ones(2), limn.number(1))
    for i = 1, 20 do g(limn.ones(2), i / 20) end
    assert.are.equal(1, g:stats().plans)
  end)

  it("may do nothing but print, in the order of the code", function()
    local g = limn.trace(function(x)
      limn.print "first"
      limn.cond(x:sum():gt(0), function() limn.print("yes", x) end,
                function() limn.print "no" end)
      limn.print "last"
      return x
    end, limn.ones(1))
    local shown, old = {}, print
    rawset(_G, "print", function(s) shown[#shown + 1] = s end)
    local ok, err = pcall(function()
      g(limn.ones(1))
      g(-limn.ones(1))
    end)
    rawset(_G, "print", old)
    assert.is_true(ok, err)
    local text = table.concat(shown, "|")
    assert.is_truthy(text:find "^first|yes.*1%.0.*|last|first|no|last$", text)
  end)
end)

describe("limn.while_loop", function()
  it("repeats until the test fails, also not at all", function()
    check(function(x, limit)
      local i, y = limn.while_loop(
        function(i) return i:lt(limit) end,
        function(i, y) return i + 1, {v = y.v * 2 + x, k = y.k} end,
        0, {v = x, k = "kept"})
      assert.are.equal("kept", y.k)
      return i, y.v
    end, {{rows(2, 2), 5}, {rows(3, 1), 4}, {rows(1, 2), 0}, {rows(1, 2), 1},
          {rows(1, 2), -3}, {limn.zeros(0, 2), 2}})
  end)

  it("stops where the data says", function()
    local function f(x) -- Newton's square root of each element
      local y, n = limn.while_loop(
        function(y) return (y * y - x):abs():max():gt(1e-4) end,
        function(y, n) return (y + x / y) / 2, n + 1 end, x, 0)
      return y, n
    end
    check(f, {{rows(2, 3):abs() + 1}, {limn.full({1, 1}, 9)}})
    U.close(limn.trace(f, limn.ones(1))(limn.full({1}, 9)), {3}, 1e-5)
  end)

  it("has random numbers of its own in each turn, in test and body", function()
    check(function(x)
      local a = limn.rand(2)
      local s, n = limn.while_loop(
        function(s) return (s + limn.rand() * 0.1):lt(3) end,
        function(s, n)
          return s + limn.rand() + x:sum() * 0, n + limn.rand(2)
        end, 0, limn.zeros(2))
      return a, s, n, limn.rand(2)
    end, {{rows(1, 2)}})
  end)
end)

describe("limn.scan", function()
  it("folds rows and stacks what each step gives", function()
    check(function(x)
      local c, y = limn.scan(function(c, r)
        c = c * 0.5 + r
        return c, {sum = c:sum(), row = r * 2}
      end, limn.zeros(x:size(2)), x)
      return c, y
    end, {{rows(4, 3)}, {rows(1, 2)}, {rows(2, 5)}, {rows(3, 1)}, {rows(7, 2)}})
  end)

  it("of no rows gives what it started with, and nothing stacked", function()
    check(function(x)
      local c, y = limn.scan(function(c, r)
        return c + r, {c, r:sum()}
      end, limn.ones(x:size(2)), x)
      return c, y
    end, {{limn.zeros(0, 3)}, {rows(2, 3)}, {limn.zeros(0, 1)}})
  end)

  it("of no rows has a body that these sizes would not allow", function()
    check(function(x)
      local c = limn.scan(function(c, i)
        return c + x[i]:sum()
      end, 0, limn.arange(x:size(1)):to "int64")
      return c, limn.while_loop(function(i) return i:lt(x:size(1)) end,
        function(i) return i + x[(i + 1):to "int64"]:gt(-9):all() end, 0)
    end, {{rows(4, 3)}, {limn.zeros(0, 3)}})
  end)

  it("goes over tables of tensors, of any rank and dtype", function()
    check(function(x)
      local xs = {x, other = {limn.arange(x:size(1)):to "int64",
                              x:unsqueeze(2):expand(-1, 2, -1):transpose(2, 3)}}
      local c, y = limn.scan(function(c, r)
        return {n = c.n + r.other[1], b = c.b:logical_xor(r[1]:sum():gt(0))},
               r.other[2] * r[1]:unsqueeze(2)
      end, {n = limn.zeros("int64"), b = false}, xs)
      return c.n, c.b, y
    end, {{rows(3, 2)}, {rows(5, 4)}})
  end)

  it("goes from the last row to the first with {reverse = true}", function()
    check(function(x)
      local c, y = limn.scan(function(c, r) return c + r, c end,
                             limn.zeros(x:size(2)), x, {reverse = true})
      return c, y
    end, {{rows(4, 2)}, {rows(1, 3)}, {rows(5, 1)}})
    local _, y = limn.scan(function(c, r) return c + r, c end, 0,
                           limn.tensor {1, 2, 4}, {reverse = true})
    U.equal(y, {6, 4, 0})
  end)

  it("nests, with loops and branches inside", function()
    check(function(x)
      local total, y = limn.scan(function(c, r)
        local inner = limn.scan(function(d, e)
          return limn.cond(e:gt(0), function() return d + e * c end,
                           function() return d - 1 end)
        end, 0, r)
        local n = limn.while_loop(function(n) return n:lt(inner:abs()) end,
                                  function(n) return n + x:size(2) end, 0)
        return c + inner * 0.1, n
      end, 1, x)
      return total, y
    end, {{rows(3, 4) * 4}, {rows(2, 1)}, {rows(5, 2) * 9}})
  end)

  it("has the random numbers of its steps, whatever runs it", function()
    check(function(x)
      local before = limn.rand(2)
      local c, y = limn.scan(function(c, r)
        local noise = limn.randn(r:size(1))
        local z = limn.cond(noise:sum():gt(0),
                            function() return limn.rand(2) end,
                            function() return limn.rand(2) * 2 end)
        return c + noise, {z, limn.randint(1, 6, {2})}
      end, limn.zeros(x:size(2)), x)
      return before, c, y, limn.rand(2)
    end, {{rows(4, 3)}, {rows(1, 1)}})
    limn.manual_seed(1)
    local _, y = limn.scan(function(c) return c, limn.rand() end, 0,
                           limn.zeros(3))
    y = U.flat(y)
    assert.are_not.equal(y[1], y[2])
    assert.are_not.equal(y[2], y[3])
  end)

  it("makes sizes of what it captures", function()
    check(function(x, k)
      local n = x:size(2)
      local big = limn.arange(n) * 2
      local _, y = limn.scan(function(c, r)
        return c, (limn.zeros(k, n) + r + big[{{1, n}}] / n):sum(1)
          + limn.ones(n, r.dtype, r.device)
      end, 0, x)
      return y
    end, {{rows(3, 2), 2}, {rows(2, 5), 4}, {rows(1, 1), 1}})
  end)

  it("keeps what nothing uses out of the plan", function()
    local g = limn.trace(function(x, unused)
      local c = limn.scan(function(c, r)
        return {a = c.a + r, dead = c.dead * r + unused:sum()}, r * 3
      end, {a = x[1] * 0, dead = x[1]}, x)
      return c.a
    end, limn.ones(3, 2), limn.ones(4))
    local plan = g:explain(limn.ones(3, 2), limn.ones(4))
    assert.is_nil(plan:find "input1:f32%[4%]", plan)
    local _, adds = plan:gsub(" add ", "")
    assert.are.equal(1, adds, plan)
    U.equal(g(limn.ones(3, 2), limn.ones(4)), {3, 3})
  end)
end)

describe("limn.map", function()
  it("stacks f of each row", function()
    check(function(x)
      local y = limn.map(function(r) return {r:sum(), r:sort(1)} end, x)
      return y, limn.map(function(r) return r.a + r.b:sum() end,
                         {a = x:sum(2), b = x})
    end, {{rows(4, 3)}, {rows(1, 2)}, {limn.zeros(0, 2)}})
  end)

  it("stacks numbers and booleans, too", function()
    check(function(x)
      return limn.map(function() return {2.5, x:size(2), b = true} end, x)
    end, {{rows(4, 3)}, {rows(1, 2)}, {limn.zeros(0, 2)}})
    U.equal(limn.map(function(r) return r:sum():item() end,
                     limn.tensor {{1, 2}, {3, 4}}), limn.tensor {3, 7})
  end)
end)

describe("limn.by_device", function()
  it("records both and runs the one that is for the device", function()
    local function pair(x)
      local y = limn.by_device({
        cpu = function(v) return v + 1 end,
        gpu = function(v) return limn.cat({v, v}) end}, x)
      return y
    end
    U.each_pair(function(from, to)
      local g = limn.trace(pair, limn.ones(2, from))
      local want = to == "cpu" and {2, 2} or {1, 1, 1, 1}
      U.equal(g(limn.ones(2, to)), want)
      U.equal(pair(limn.ones(2, to)), want)
    end)
  end)

  it("refuses a run on a device that it has nothing for", function()
    local function only(kind)
      return function(x)
        local y = limn.by_device({[kind] = function(v) return v * 2 end}, x)
        return y
      end
    end
    U.each_device(function(dev)
      local here, other = "gpu", "cpu"
      if dev == "cpu" then here, other = other, here end
      local g = limn.trace(only(here), limn.ones(2))
      U.equal(g(limn.ones(2, dev)), {2, 2})
      U.equal(only(here)(limn.ones(2, dev)), {2, 2})
      local bad = limn.trace(only(other), limn.ones(2))
      U.message(function() bad(limn.ones(2, dev)) end, "control_spec",
                "for which limn.by_device has nothing", here .. " = function")
      U.message(function() only(other)(limn.ones(2, dev)) end, "by_device",
                here .. " = function")
    end)
  end)
end)

describe("Cells in control flow", function()
  local function counter()
    local Net = nn.Module:extend "Net"
    function Net:init()
      self.w = nn.Parameter(limn.tensor {{1, 2}, {3, 4}})
      self.seen = nn.Buffer(limn.zeros())
      self.last = nn.Buffer(limn.zeros(2))
    end
    function Net:forward(x)
      local y = limn.map(function(r)
        self.seen:assign(self.seen + 1)
        self.last:assign(r - self.last)
        limn.cond(r:sum():gt(0),
                  function() self.seen:assign(self.seen + 10) end,
                  function() end)
        return r:matmul(self.w) * self.seen
      end, x)
      return y
    end
    return Net()
  end

  it("are read and assigned in order, as in eager code", function()
    U.each_pair(function(from, to)
      local a, b = counter(), counter()
      local g = limn.trace(a, limn.ones(2, 2, from))
      U.equal(a.seen, {0}) -- a trace runs nothing
      for _, x in ipairs {rows(3, 2), rows(4, 2), limn.zeros(0, 2)} do
        x = x:to(to)
        U.close(g(x), b(x), 1e-5, 1)
        U.close(a.seen, b.seen)
        U.close(a.last, b.last)
      end
      assert.is_true(a.seen:item() > 7)
    end)
  end)

  it("keep what they had in the branch that does not assign", function()
    local c = nn.Buffer(limn.zeros(2))
    local g = limn.trace(function(x)
      c:assign(c + 1)
      limn.cond(x:sum():gt(0), function() c:assign(c * 10) end, function() end)
      local after = c + 0
      c:assign(c + 1)
      return after
    end, limn.ones(2))
    U.each_device(function(dev)
      c:assign(limn.zeros(2))
      U.equal(g(-limn.ones(2, dev)), {1, 1})
      U.equal(c, {2, 2})
      U.equal(g(limn.ones(2, dev)), {30, 30})
      U.equal(c, {31, 31})
    end)
  end)

  it("are void when a step of a loop fails", function()
    U.each_device(function(dev)
      local c = nn.Buffer(limn.zeros())
      local g = limn.trace(function(x, i)
        local y = limn.map(function(r)
          c:assign(c + 1)
          return x:index_select(1, r:unsqueeze(1))
        end, i)
        return y
      end, limn.ones(3), limn.ones(2, "int64"))
      local function run(...)
        local y = g(limn.ones(3, dev), limn.tensor({...}, "int64"):to(dev))
        return y:sum():item()
      end
      assert.are.equal(2, run(1, 2))
      U.message(function() run(1, 7, 2) end, U.here(-11), "index 7")
      U.message(function() return c:item() end, "void")
      c:assign(limn.zeros())
      assert.are.equal(3, run(1, 2, 3))
      U.equal(c, {3})
    end)
  end)

  it("and results may lie in memory that the caller gives", function()
    local c = nn.Buffer(limn.zeros(3))
    local g = limn.trace(function(x)
      local y = limn.scan(function(h, r)
        c:assign(c + r)
        return h + r
      end, limn.zeros(3), x)
      return y, c + 0
    end, limn.ones(2, 3))
    U.each_device(function(dev)
      local a, b = limn.zeros(3, dev), limn.zeros(3, dev)
      c:assign(limn.zeros(3))
      for i = 1, 3 do
        g:run_into({a, b}, limn.ones(4, 3, dev))
        U.equal(a, {4, 4, 4})
        U.equal(b, {4 * i, 4 * i, 4 * i})
        U.equal(c, b)
      end
    end)
  end)

  it("may be assigned by the body of a loop, not by its test", function()
    local c = nn.Buffer(limn.zeros())
    local function f(x)
      local i = limn.while_loop(function(i) return (i + c):lt(x:sum()) end,
                                function(i)
        c:assign(c + 1)
        return i + 1
      end, 0)
      return i
    end
    U.each_device(function(dev)
      local g = limn.trace(f, limn.ones(3))
      for _, h in ipairs {f, g} do
        c:assign(limn.zeros())
        U.equal(h(limn.full({5}, 2, dev)), {5})
        U.equal(c, {5})
      end
    end)
    U.message(function()
      limn.trace(function(x)
        return limn.while_loop(function(i)
          c:assign(c + 1)
          return i:lt(3)
        end, function(i) return i + x:sum() end, 0)
      end, limn.ones(1))
    end, "control_spec", "the test of a loop assigns")
  end)
end)

describe("A graph with control flow", function()
  local function make()
    local net = nn.Sequential(nn.Linear(3, 4), nn.Tanh())
    limn.manual_seed(2)
    local function f(x)
      local y = net(x)
      return limn.scan(function(c, r)
        c = limn.cond(r:sum():gt(c:sum()), function() return c + r end,
                      function() return (c - r) * x:size(1) end)
        return c, r:max()
      end, limn.zeros(4, y.device), y)
    end
    return f, net
  end

  it("is inlined in a trace and in the body of a loop", function()
    local f = make()
    local g = limn.trace(f, limn.ones(2, 3))
    check(function(x)
      local c, y = f(x * 2)
      return c, y, limn.map(function(r)
        local d = f(r:unsqueeze(1))
        return d
      end, x)
    end, {{rows(3, 3)}})
    local h = limn.trace(function(x)
      local c, y = g(x * 2)
      return c, y, limn.map(function(r)
        local d = g(r:unsqueeze(1))
        return d
      end, x)
    end, limn.ones(2, 3))
    local x = rows(4, 3)
    local c, y = f(x * 2)
    local got = pack(h(x))
    U.close(got[1], c, 1e-5, 1)
    U.close(got[2], y, 1e-5, 1)
    U.shape(got[3], {4, 4})
  end)

  it("is differentiated on a tape as its function is", function()
    local f, net = make()
    local g = limn.trace(f, limn.ones(2, 3))
    local function loss(h)
      return limn.value_and_grad(function(x)
        local c, y = h(x)
        return c:sum() + y:sum()
      end, net)
    end
    U.each_device(function(dev)
      local x = rows(5, 3):to(dev)
      local a, ga = loss(f)(x)
      local b, gb = loss(g)(x)
      U.close(b, a)
      for name, v in pairs(ga) do U.close(gb[name], v, 1e-5, 1, name) end
    end)
  end)

  it("does the same unfused, and with writes apart", function()
    for _, opt in ipairs {"-fuse", "-simplify", "-inplace", "-all"} do
      local text, ok = U.lua([[
        local limn = require "limn"
        local c = limn.nn.Buffer(limn.zeros(3))
        local function f(x)
          local y = limn.map(function(r)
            c:assign(c + r)
            return limn.cond(r:sum():gt(0), function() return r * 2 end,
                             function() return -r end)
          end, x)
          return y:sum() + limn.while_loop(function(i) return i:lt(5) end,
            function(i) return i * 2 + 1 end, 1)
        end
        local g = limn.trace(f, limn.ones(2, 3))
        for _, d in ipairs(limn.devices()) do
          c:assign(limn.zeros(3))
          local x = limn.tensor {{1, 2, 3}, {-1, -2, -4}}:to(d)
          print(g(x):item(), c:sum():item())
          c:assign(limn.zeros(3))
          print(f(x):item(), c:sum():item())
        end]], "LIMN_VERIFY=1 LIMN_OPT=" .. opt)
      assert.is_true(ok, text)
      for line in text:gmatch "[^\n]+" do
        assert.are.equal("26\t-1", line, opt)
      end
    end
  end)

  it("runs in a process without Lua: branches, guards, modes", function()
    local program = U.build .. "/run"
    if not io.open(program) then
      pending("make " .. program .. " builds it")
      return
    end
    local Net = nn.Module:extend "Net"
    function Net:init() self.w = nn.Parameter(limn.tensor {1, 2, 3}) end
    function Net:forward(x)
      local n = x:size(2)
      if n ~= 3 then error "traced for three" end
      local c, y = limn.scan(function(c, r)
        local z = limn.cond(r:sum():gt(0), function() return r * self.w end,
                            function() return r - x:size(1) end)
        return c + z, z:max() + limn.rand() * 0.01
      end, limn.zeros(n), x)
      local k = limn.while_loop(function(k) return k:lt(c:abs():sum()) end,
                                function(k) return k * 2 + 1 end, 0)
      local m = limn.cond(self:mode():read(), function() return c * 2 end,
                          function() return c:sum(1, {keepdim = true}) end)
      return c, y, k, m
    end
    local net = Net()
    local g = limn.trace(net, rows(2, 3))
    local t = {}
    for i = 0, 11 do t[i + 1] = (17 * i % 7 - 3) / 4 end
    U.with_file(function(path)
      limn.save(path, {g = g})
      for _, mode in ipairs {"train", "eval"} do
        if mode == "eval" then net:eval() end
        U.each_device(function(dev)
          local m = limn.load(path)
          if mode == "train" then m.g:train() end
          local out, ok = U.run(("%s %s g %s 4 3 %s"):format(program, path, dev,
                                                             mode))
          assert.is_true(ok, out)
          local want = leaves(pack(m.g(U.tensor(t, {4, 3}, "float32", dev))))
          local got = {}
          for v in out:gmatch "[^\n]+" do got[#got + 1] = tonumber(v) end
          local at = 0
          for i, v in ipairs(want) do
            if limn.is_tensor(v) and i ~= 2 then
              local flat = U.flat(v)
              for k = 1, #flat do
                assert.is_true(math.abs(got[at + k] - flat[k]) < 1e-5,
                               ("output %d: %s"):format(i, out))
              end
            end
            if limn.is_tensor(v) then at = at + v:numel() end
          end
          assert.are.equal(2 * at, #got)
          local bad, fine = U.run(("%s %s g %s 4 2 %s"):format(program, path,
                                                               dev, mode))
          assert.is_false(fine)
          assert.is_truthy(bad:find "was traced for size%(%%x, 2%) == 3", bad)
        end)
      end
    end)
  end)

  it("is traced again by jit where a guard of a body does not hold",
     function()
    local f = limn.jit(function(x)
      local y = limn.map(function(r)
        if r:size(1) == 3 then return r * 2 end
        return r * 3
      end, x)
      return y
    end)
    U.each_device(function(dev)
      U.equal(f(limn.ones(1, 3, dev)), {2, 2, 2})
      U.equal(f(limn.ones(1, 2, dev)), {3, 3})
      U.equal(f(limn.ones(1, 3, dev)), {2, 2, 2})
    end)
    assert.are.equal(2, #f:graphs())
  end)

  it("prints in the order of its steps", function()
    local g = limn.trace(function(x)
      limn.map(function(r)
        limn.print("row", r)
        return r
      end, x)
      return x
    end, limn.ones(2, 1))
    U.each_device(function(dev)
      local shown, old = {}, print
      rawset(_G, "print", function(s) shown[#shown + 1] = s end)
      local ok, err = pcall(g, limn.tensor {{3}, {4}, {5}}:to(dev))
      rawset(_G, "print", old)
      assert.is_true(ok, err)
      assert.are.equal(3, #shown)
      for i = 1, 3 do assert.is_truthy(shown[i]:find(i + 2 .. "%.0")) end
    end)
  end)
end)
