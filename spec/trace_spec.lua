-- Tracing: sizes, guards, numbers, captures, structure, jit, and one graph for
-- all devices, sizes and dtypes.
local U = require "support.util"
local limn = U.limn
local nn = limn.nn

-- Nothing that a text of a graph may hold.
local function check_text(text)
  for _, word in ipairs {"cpu", "opencl", "cuda", "gpu"} do
    assert.is_nil(text:find(word, 1, true), word .. " in:\n" .. text)
  end
end

local function net()
  limn.manual_seed(3)
  local Net = nn.Module:extend "Net"
  function Net:init()
    self.hidden = nn.Linear(6, 5)
    self.out = nn.Linear(5, 3)
  end
  function Net:forward(x)
    local y = self.out(self.hidden(x):tanh())
    return y:softmax(-1)
  end
  return Net()
end

describe("The problem that limn was made for", function()
  it("zeros on the example's device follow the run", function()
    U.each_device(function(from)
      local Inner = nn.Module:extend "Inner"
      function Inner:forward(x) -- luacheck: no self
        local z = limn.zeros(x:size(1), x.device)
        return z
      end
      local Outer = nn.Module:extend "Outer"
      function Outer:init() self.inner = Inner() end
      function Outer:forward(x) return x + self.inner(x) end
      local g = limn.trace(Outer(), limn.ones(10, from))
      check_text(tostring(g))
      assert.is_nil(tostring(g):find "10")
      U.each_device(function(dev)
        local x = limn.arange(20, dev)
        local y = g(x)
        assert.are.equal(dev, y.device)
        U.equal(y, x)
      end)
    end)
  end)

  it("creation without a device follows the run as well", function()
    local function f(x)
      local n = x:size(1)
      return x + limn.zeros(n) + limn.ones_like(x) + limn.arange(n)
        + x:new_zeros(n) + limn.full({n}, 2) + limn.tensor {1}:to(x.device)
    end
    U.each_pair(function(from, to)
      local g = limn.trace(f, limn.ones(4, from))
      check_text(tostring(g))
      local y = g(limn.ones(3, to))
      assert.are.equal(to, y.device)
      U.equal(y, {6, 7, 8})
    end)
  end)
end)

describe("One graph", function()
  it("traced with 8 rows runs with 1, 500 and 0, in both float dtypes, on "
     .. "all devices, in any order", function()
    local m = net()
    U.each_device(function(from)
      local g = limn.trace(m, limn.randn(8, 6, from))
      local order = {}
      U.each_device(function(dev)
        for _, rows in ipairs {1, 500, 0, 8} do
          for _, dtype in ipairs {"float32", "float64"} do
            order[#order + 1] = {dev, rows, dtype}
          end
        end
      end)
      local r = U.random(17)
      for i = #order, 2, -1 do
        local j = 1 + math.floor(r() * i)
        order[i], order[j] = order[j], order[i]
      end
      for _, o in ipairs(order) do
        local dev, rows, dtype = unpack(o)
        limn.manual_seed(rows)
        local x = limn.randn(rows, 6, {dtype = "float64"}):to(dtype)
        local y = g(x:to(dev))
        local what = ("%d rows of %s on %s"):format(rows, dtype, dev)
        U.shape(y, {rows, 3}, what)
        assert.are.equal(dtype, y.dtype, what)
        assert.are.equal(dev, y.device, what)
        U.close(y, m(x), 1e-5, 1, what)
      end
    end)
  end)

  it("and its file have the same bytes whatever device it was traced on",
     function()
    local m = net()
    local text, bytes
    U.each_device(function(from)
      for _, rows in ipairs {8, 3} do
        local g = limn.trace(m, limn.randn(rows, 6, from))
        check_text(tostring(g))
        text = text or tostring(g)
        assert.are.equal(text, tostring(g))
        U.with_file(function(path)
          limn.save(path, {infer = g})
          bytes = bytes or U.read_file(path)
          assert.is_true(bytes == U.read_file(path), "the files differ")
        end)
      end
    end)
    check_text(bytes)
  end)

  it("holds plain nodes with the lines and the path that made them", function()
    local line = U.here(1)
    local g = limn.trace(function(x) return (x * 2):relu() end, limn.ones(3))
    local text = tostring(g)
    assert.is_truthy(text:find "mul%(%%x, 2%)", text)
    assert.is_truthy(text:find("spec/" .. line:gsub(":$", "")), text)
    text = tostring(limn.trace(net(), limn.ones(2, 6)))
    assert.is_truthy(text:find "param @hidden.weight: f32%[5, 6%]", text)
    assert.is_truthy(text:find "# .-trace_spec.lua:%S+ hidden", text)
    assert.is_truthy(text:find "# .-trace_spec.lua:%S+ out", text)
  end)

  it("runs the Lua function exactly once", function()
    local n = 0
    local g = limn.trace(function(x)
      n = n + 1
      return x
    end, limn.ones(2))
    g(limn.ones(2))
    g(limn.ones(5))
    assert.are.equal(1, n)
  end)

  it("called twice gives outputs of their own", function()
    U.each_device(function(dev)
      local g = limn.trace(function(x) return x * 2 end, limn.ones(2))
      local a = g(limn.ones(2, dev))
      local b = g(limn.full({2}, 5, dev))
      U.equal(a, {2, 2})
      U.equal(b, {10, 10})
    end)
  end)

  it("gives an argument that is returned unchanged", function()
    U.each_device(function(dev)
      local g = limn.trace(function(x) return x, x + 0 end, limn.ones(2))
      local x = limn.ones(2, dev)
      local y = g(x)
      U.equal(y, x)
      x[1] = 5
      U.equal(y, {1, 1})
    end)
  end)
end)

describe("Sizes in a trace", function()
  it("compute as numbers do, and again in each run", function()
    local function f(x)
      local n, m = x:size(1), x:size(2)
      return x / n, limn.zeros(n * 2 + m, m - 1), x * (n / m),
        limn.zeros(limn.floor(n / 2), limn.max(n, m)),
        limn.full({}, limn.sqrt(n)), n + m, n / m, x:numel(), #x,
        -n % 3, x:reshape(m, n), limn.min(n, 3)
    end
    local function check(y, x)
      local e = {f(x)}
      for i = 1, #e do
        if type(e[i]) == "number" then
          assert.is_true(math.abs(e[i] - y[i]) < 1e-12,
                         i .. ": " .. e[i] .. " " .. tostring(y[i]))
        else
          U.shape(y[i], e[i].shape, i)
          U.close(y[i], e[i], 1e-6, 1, i)
        end
      end
    end
    U.each_pair(function(from, to)
      local g = limn.trace(f, limn.ones(4, 6, from))
      for _, s in ipairs {{4, 6}, {1, 1}, {9, 2}} do
        local x = limn.ones(s[1], s[2], to)
        check({g(x)}, x)
      end
    end)
  end)

  it("of 1 broadcast in the run as they are there", function()
    U.each_pair(function(from, to)
      local g = limn.trace(function(a, b) return a + b end,
                           limn.ones(1, 3, from), limn.ones(4, 3, from))
      U.shape(g(limn.ones(4, 3, to), limn.ones(1, 3, to)), {4, 3})
      U.shape(g(limn.ones(2, 1, to), limn.ones(2, 5, to)), {2, 5})
      local h = limn.trace(function(a) return a:sum(1) end, limn.ones(1, 2,
                                                                     from))
      U.equal(h(limn.ones(4, 2, to)), {4, 4})
    end)
  end)

  it("compared give guards, which raise in a trace", function()
    local line = U.here(2)
    local g = limn.trace(function(x)
      if x:size(2) == 3 then return x * 2 end
      return x
    end, limn.ones(1, 3))
    assert.is_truthy(tostring(g):find "guard eq%(size%(%%x, 2%), 3%)"
                     or tostring(g):find "guard size%(%%x, 2%) == 3",
                     tostring(g))
    U.each_device(function(dev)
      U.equal(g(limn.ones(2, 3, dev)), {2, 2, 2, 2, 2, 2})
      U.message(function() g(limn.ones(2, 4, dev)) end,
                (line:gsub(":$", "")), "size", "3", "4", "hint:.*limn.jit")
    end)
    local h = limn.trace(function(x)
      return x:size(1) > 2 and x or -x
    end, limn.ones(1))
    U.equal(h(limn.ones(2)), {-1, -1})
    U.message(function() h(limn.ones(3)) end, "size")
  end)

  it("taken with limn.value are guarded", function()
    local g = limn.trace(function(x)
      local y = x
      for _ = 1, limn.value(x:size(1)) do y = y + 1 end
      return y
    end, limn.ones(3))
    U.equal(g(limn.ones(3)), {4, 4, 4})
    U.message(function() g(limn.ones(20)) end, "size", "3", "20")
    assert.are.equal(7, limn.value(7))
  end)

  it("print and join as text, and show no number of the example", function()
    local seen
    limn.trace(function(x)
      seen = "n is " .. x:size(1) .. ", " .. tostring(x)
      return x
    end, limn.ones(37))
    assert.is_nil(seen:find "37", seen)
    assert.is_truthy(seen:find "size%(%%x, 1%)", seen)
  end)

  it("of a spec agree by name and need no example", function()
    local g = limn.trace(function(x, y) return x:matmul(y), x:size(1) end,
                         limn.spec({"batch", 64}, "float32"),
                         limn.spec {64, "batch"})
    U.each_device(function(dev)
      local y, n = g(limn.ones(2, 64, dev), limn.ones(64, 2, dev))
      assert.are.equal(2, n)
      U.equal(y, {64, 64, 64, 64})
      U.message(function()
        g(limn.ones(2, 64, dev), limn.ones(64, 3, dev))
      end, "batch", "2", "3")
    end)
  end)

  it("split and chunk record what makes their number true", function()
    local g = limn.trace(function(x)
      local a, b = unpack(x:chunk(2))
      return a + b
    end, limn.ones(4))
    U.shape(g(limn.ones(10)), {5})
    local h = limn.trace(function(x) return x:split(2) end, limn.ones(4))
    assert.are.equal(2, #h(limn.ones(4)))
    U.message(function() h(limn.ones(6)) end, "size", "4", "6")
  end)

  it("layers record no guard", function()
    local m = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Dropout(0.5),
                            nn.Linear(3, 2), nn.LogSoftmax(-1))
    local g = limn.trace(function(x, t)
      return nn.cross_entropy(m(x), t), nn.mse_loss(x, x)
    end, limn.ones(2, 4), limn.ones(2, "int64"))
    assert.is_nil(tostring(g):find "guard", tostring(g))
  end)
end)

describe("Dtypes and devices in a trace", function()
  it("are the run's; a test of a dtype is a guard", function()
    local g = limn.trace(function(x)
      return limn.zeros(2, {dtype = x.dtype, device = x.device}), x:to "int64",
        x.dtype
    end, limn.ones(2))
    U.each_device(function(dev)
      for _, dtype in ipairs {"float64", "float16", "int8"} do
        local z, i, d = g(limn.ones(2, {dtype = dtype, device = dev}))
        assert.are.equal(dtype, z.dtype)
        assert.are.equal(dev, z.device)
        assert.are.equal("int64", i.dtype)
        assert.are.equal(dtype, d)
      end
    end)
    local h = limn.trace(function(x)
      if x.dtype == "float32" then return x * 2 end
      return x
    end, limn.ones(2))
    U.equal(h(limn.ones(2)), {2, 2})
    U.message(function() h(limn.ones(2, "float64")) end, "float")
  end)

  it("nothing is computed in another dtype than the input's", function()
    local m = net()
    local g = limn.trace(m, limn.ones(2, 6))
    local half = m:clone()
    for _, p in ipairs(half:parameters()) do assert.are.equal("float32",
                                                              p.dtype) end
    U.each_device(function(dev)
      local y = g(limn.ones(2, 6, {dtype = "float64", device = dev}))
      assert.are.equal("float64", y.dtype)
    end)
  end)
end)

describe("Number inputs", function()
  it("change without another trace or plan, also as sizes", function()
    local g = limn.trace(function(x, dt) return x + dt * 2, dt end,
                         limn.ones(2), limn.number(0.5))
    U.each_device(function(dev)
      local x = limn.ones(2, dev)
      for i = 1, 5 do
        local y, dt = g(x, i / 4)
        U.close(y, {1 + i / 2, 1 + i / 2})
        assert.are.equal(i / 4, dt)
      end
    end)
    assert.are.equal(#U.devices, g:stats().plans)
    local h = limn.trace(function(x, n)
      return limn.arange(n, x.device) * x
    end, limn.ones(1), limn.number(256))
    U.each_device(function(dev)
      U.shape(h(limn.ones(1, dev), 128), {128})
      U.equal(h(limn.ones(1, dev), 3), {1, 2, 3})
    end)
    U.message(function() g(limn.ones(2), "x") end, "number", "x")
  end)
end)

describe("Captures", function()
  it("follow the run and are listed with name and line", function()
    local c = limn.tensor {1, 2}
    local line = U.here(1)
    local g = limn.trace(function(x) return x + c end, limn.ones(2))
    U.each_device(function(dev)
      U.equal(g(limn.ones(2, dev)), {2, 3})
    end)
    local list = g:captures()
    assert.are.equal(1, #list)
    assert.is_truthy((list[1].where .. ":"):find(line), list[1].where)
    U.equal(list[1].value, {1, 2})
  end)

  it("are uploaded once per device", function()
    local core = require "limn.core"
    local dev = U.other()
    if not dev then return end
    local c = limn.tensor {1, 2, 3}
    local g = limn.trace(function(x) return x * c end, limn.ones(3))
    local x = limn.ones(3, dev)
    g(x)
    local before = core.counters().uploads
    g(x)
    g(x)
    assert.are.equal(before, core.counters().uploads)
  end)

  it("are refused by strict, numbers are not captures", function()
    local c = limn.tensor {1, 2}
    U.message(function()
      limn.trace {function(x) return x + c end, limn.ones(2), strict = true}
    end, "strict", "hint:")
    local k = 3
    local g = limn.trace {function(x)
      return limn.where(x:gt(0.5), x * k, 1)
    end, limn.ones(2), strict = true, name = "step"}
    assert.are.equal(0, #g:captures())
    assert.is_truthy(tostring(g):find "graph step%(")
    U.equal(g(limn.ones(2)), {3, 3})
  end)

  it("graph:check names upvalues and fields that changed", function()
    local k, flag = 2, true
    local g = limn.trace(function(x)
      if flag then return x * k end
      return x
    end, limn.ones(2))
    assert.is_true(g:check())
    k = 5
    U.message(function() g:check() end, "k")
    U.equal(g(limn.ones(2)), {2, 2})
    local m = net()
    m.scale = 2
    local h = limn.trace(m, limn.ones(1, 6))
    m.scale = 3
    U.message(function() h:check() end, "scale")
  end)
end)

describe("limn.print in a trace", function()
  it("shows the value of a buffer, as it does in eager code", function()
    local lines, old = {}, print
    local b = nn.Buffer(limn.full({2}, 3))
    local g = limn.trace(function()
      limn.print(b)
      return limn.zeros(1)
    end)
    rawset(_G, "print", function(line) lines[#lines + 1] = line end)
    local ok, err = pcall(function() g() limn.print(b) end)
    rawset(_G, "print", old)
    assert.is_true(ok, err)
    assert.is_truthy(lines[1]:find("^%[3%.0, 3%.0%]\nfloat32 %[2%] on cpu"))
    assert.are.equal("[3.0, 3.0]\nfloat32 [2] on cpu", lines[2])
  end)

  it("shows braces as they were given", function()
    local shown, old = nil, print
    local g = limn.trace(function(x)
      limn.print("a{}b", {1, 2}, x:size(1))
      return x
    end, limn.ones(3))
    rawset(_G, "print", function(line) shown = line end)
    local ok, err = pcall(g, limn.ones(5))
    rawset(_G, "print", old)
    assert.is_true(ok, err)
    assert.are.equal("a{}b\t{1, 2}\t5", shown)
  end)

  it("shows the values in tables, named ones and circles too", function()
    local shown, old = nil, print
    local circle = {1}
    circle[2] = circle
    local function f(x) limn.print(x.shape, {n = x:size(1), {x:sum()}}) end
    local g = limn.trace(function(x) f(x) return x end, limn.ones(3))
    rawset(_G, "print", function(line) shown = line end)
    local ok, err = pcall(g, limn.ones(5))
    local in_run = shown
    f(limn.ones(5))
    local eager = shown
    limn.print(circle)
    rawset(_G, "print", old)
    assert.is_true(ok, err)
    assert.are.equal("{5}\t{{5.0 float32 on cpu}, n = 5}", in_run)
    assert.are.equal(in_run, eager)
    assert.is_truthy(shown:find "^{1, {1, .*{%.%.%.}")
  end)

  it("prints the run's own values, in order, on each run", function()
    local lines, old = {}, print
    local function collect(...)
      local t = {...}
      for i = 1, #t do t[i] = tostring(t[i]) end
      lines[#lines + 1] = table.concat(t, "\t")
    end
    local g = limn.trace(function(x)
      limn.print("x is on", x.device, x:size(1))
      local y = x * 2
      limn.print("sum", y:sum())
      return y
    end, limn.ones(3))
    assert.are.equal(0, #lines)
    U.each_device(function(dev)
      lines = {}
      rawset(_G, "print", collect)
      local ok, err = pcall(g, limn.ones(5, dev))
      rawset(_G, "print", old)
      assert.is_true(ok, err)
      assert.are.equal(2, #lines, table.concat(lines, "|"))
      assert.is_truthy(lines[1]:find(dev, 1, true), lines[1])
      assert.is_truthy(lines[1]:find "5", lines[1])
      assert.is_truthy(lines[2]:find "10", lines[2])
    end)
  end)
end)

describe("Arguments and results", function()
  it("nest: lists, names, both, constants and nothing", function()
    local function f(t)
      return {sum = t.a + t.list[1], {t.list[2], x = t.deep.x}}, 7, "ok", nil,
        true
    end
    local function example(dev, v)
      return {a = limn.full({2}, v, dev), list = {limn.full({2}, 2 * v, dev),
              limn.full({1}, 3 * v, dev)}, deep = {x = limn.ones(1, dev)}}
    end
    U.each_pair(function(from, to)
      local g = limn.trace(f, example(from, 1))
      local y, n, s, nothing, yes = g(example(to, 10))
      U.equal(y.sum, {30, 30})
      U.equal(y[1][1], {30})
      U.equal(y[1].x, {1})
      assert.are.equal(7, n)
      assert.are.equal("ok", s)
      assert.is_nil(nothing)
      assert.is_true(yes)
    end)
  end)

  it("that are not tensors are static: others raise, or jit traces again",
     function()
    local function f(x, flag, k) return flag and x * k or x end
    local g = limn.trace(f, limn.ones(2), true, 3)
    U.equal(g(limn.ones(2), true, 3), {3, 3})
    U.message(function() g(limn.ones(2), false, 3) end, "true")
    local j = limn.jit(f)
    U.equal(j(limn.ones(2), true, 3), {3, 3})
    U.equal(j(limn.ones(2), false, 3), {1, 1})
    U.equal(j(limn.ones(2), true, 3), {3, 3})
    assert.are.equal(2, j:stats().traces)
  end)

  it("rank is part of the signature", function()
    local j = limn.jit(function(x) return x:sum(-1) end)
    U.equal(j(limn.ones(3)), {3})
    U.equal(j(limn.ones(2, 3)), {3, 3})
    assert.are.equal(2, j:stats().traces)
  end)
end)

describe("limn.jit", function()
  it("traces once for all sizes, dtypes and devices", function()
    local n = {0} -- a number would be an upvalue that changes
    local j = limn.jit(function(x)
      n[1] = n[1] + 1
      return x * 2
    end)
    U.each_device(function(dev)
      for _, size in ipairs {1, 7, 0} do
        U.shape(j(limn.ones(size, dev)), {size})
      end
    end)
    assert.are.equal(1, n[1])
  end)

  it("traces again only where a guard differs", function()
    local n = {0}
    local j = limn.jit(function(x)
      n[1] = n[1] + 1
      if x:size(1) > 2 then return x * 2 end
      return x
    end)
    U.equal(j(limn.ones(3)), {2, 2, 2})
    U.equal(j(limn.ones(1)), {1})
    U.equal(j(limn.ones(5)), {2, 2, 2, 2, 2})
    U.equal(j(limn.ones(2)), {1, 1})
    assert.are.equal(2, n[1])
  end)

  it("traces again when an upvalue of its function or a capture changed",
     function()
    local k, c = 2, limn.ones(2)
    local j = limn.jit(function(x) return x * k + c end)
    U.equal(j(limn.ones(2)), {3, 3})
    k = 5
    U.equal(j(limn.ones(2)), {6, 6})
    c[1] = 10
    U.equal(j(limn.ones(2)), {15, 6})
  end)

  it("works inside a trace and inside another jit", function()
    local inner = limn.jit(function(x) return x * 3 end)
    local g = limn.trace(function(x) return inner(x) + 1 end, limn.ones(2))
    local h = limn.trace(function(x) return g(x) * 2 end, limn.ones(2))
    U.each_device(function(dev)
      U.equal(g(limn.ones(2, dev)), {4, 4})
      U.equal(h(limn.ones(2, dev)), {8, 8})
    end)
  end)

  it("gives its graph and explains itself", function()
    local j = limn.jit(function(x) return x * 2 end)
    local g = j:graph(limn.ones(2))
    U.equal(g(limn.ones(3)), {2, 2, 2})
    local s = j:stats()
    assert.are.equal(1, s.traces)
    assert.is_table(s.reasons)
  end)
end)

describe("Gradients", function()
  local function f(x) return (x ^ 3):sum() end
  it("are the same eager and traced, on all devices", function()
    local df = limn.grad(f)
    U.each_pair(function(from, to)
      local g = limn.trace(function(x) return df(x), f(x) end,
                           limn.tensor({1, 2}, from))
      local x = limn.tensor({3, -1}, to)
      U.close(df(x), {27, 3})
      local d, y = g(x)
      U.close(d, {27, 3})
      U.close(y, {26})
    end)
  end)

  it("of gradients work", function()
    local ddf = limn.grad(function(x) return limn.grad(f)(x):sum() end)
    local g = limn.trace(function(x) return ddf(x) end, limn.tensor {1, 2})
    U.close(g(limn.tensor {1, 2}), {6, 12})
  end)

  it("come with the value and whatever else was returned", function()
    local w = limn.tensor {2, 3}
    local vg = limn.value_and_grad(function(x)
      local y = x * w
      return y:sum(), y, "aux"
    end, {w})
    local l, g, y, aux = vg(limn.tensor {4, 5})
    U.close(l, {23})
    U.close(g[1], {4, 5})
    U.close(y, {8, 15})
    assert.are.equal("aux", aux)
  end)

  it("undo broadcasting by the sizes of the run", function()
    local g = limn.trace(function(a, b)
      return limn.grad(function(v) return (v * b):sum() end)(a)
    end, limn.ones(1), limn.ones(4))
    U.each_device(function(dev)
      U.close(g(limn.ones(1, dev), limn.ones(7, dev)), {7})
      U.close(g(limn.ones(3, dev), limn.ones(3, dev)), {1, 1, 1})
    end)
  end)

  it("stop at detach and no_grad, and by custom are what vjp says", function()
    local function both(h, x, want)
      U.close(limn.grad(h)(x), want)
      local g = limn.trace(function(v) return limn.grad(h)(v) end, x)
      U.each_device(function(dev) U.close(g(x:to(dev)), want) end)
    end
    local x = limn.tensor {2, 3}
    both(function(v) return (v * v:detach()):sum() end, x, {2, 3})
    both(function(v)
      local c = limn.no_grad(function() return v * 10 end)
      return (v * c):sum()
    end, x, {20, 30})
    local clipped = limn.custom(function(v) return v * 2 end,
                                function(g, _, v) return g * v end)
    both(function(v) return clipped(v):sum() end, x, {2, 3})
    U.close(clipped(x), {4, 6})
  end)

  it("in eager code f runs eagerly: item and if work", function()
    local df = limn.grad(function(x)
      if x:sum():item() > 0 then return (x * 2):sum() end
      return (x * 3):sum()
    end)
    U.close(df(limn.tensor {1, 1}), {2, 2})
    U.close(df(limn.tensor {-1, -1}), {3, 3})
  end)
end)

describe("Assignment inside a trace", function()
  it("to values made there gives what eager code gives", function()
    local function f(x)
      local y = x * 1
      y[{{2, 3}, 1}] = 9
      y[1] = x[2] * 10
      return y
    end
    U.each_pair(function(from, to)
      local x = limn.arange(6):reshape(3, 2):to(to)
      local g = limn.trace(f, limn.ones(3, 2, from))
      U.equal(g(x), f(x))
      U.equal(x, {1, 2, 3, 4, 5, 6})
    end)
  end)
end)

describe("A tail call of the traced function", function()
  it("has the function's lines, as its frame is gone", function()
    local first = debug.getinfo(1, "l").currentline + 1
    local function f(x)
      local y = x * 2
      return y:sum(1)
    end
    local text = tostring(limn.trace(f, limn.ones(2, 3)))
    assert.truthy(text:find(("trace_spec.lua:%d-%d"):format(first, first + 3),
                            1, true), text)
    assert.truthy(text:find(("trace_spec.lua:%d\n"):format(first + 1), 1, true),
                  text)
  end)
end)
