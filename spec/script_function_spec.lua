-- What limn.script does to functions and modules: their text, upvalues, lines,
-- what is inside them, gradients, files, random numbers.
local U = require "support.util"
local S = require "support.script"
local limn = U.limn
local nn = limn.nn

local agrees = S.agrees
local line = {{-3}, {-1}, {0}, {1}, {2}, {5}, {12}}

describe("limn.script", function()
  it("gives the same function for the same function", function()
    local function f(x) return x end
    local g = limn.script(f)
    assert.are.equal(g, limn.script(f))
    assert.are.equal(g, limn.script(g))
  end)

  it("shares upvalues: assignments on either side are seen on the other",
     function()
    local n = 1
    local function f(x)
      n = n + 1
      if x > 0 then return x * n end
      return x
    end
    local g = limn.script(f)
    assert.are.equal(4, g(2))
    n = 10
    assert.are.equal(22, g(2))
    assert.are.equal(11, n)
    f(1)
    assert.are.equal(12, n)
  end)

  it("keeps the environment, arguments beyond the named ones, and names",
     function()
    local env = setmetatable({factor = 3}, {__index = _G})
    local f = setfenv(assert(loadstring [[
      return function(x, ...)
        local a, b = ...
        if x > 0 then return select("#", ...), factor, a, b end
        return ...
      end]])(), env)
    setfenv(f, env)
    local g = limn.script(f)
    assert.are.same({3, 3, "a"}, {g(1, "a", nil, nil)})
    assert.are.same({"p", "q"}, {g(-1, "p", "q")})
    assert.are.equal("x", debug.getlocal(g, 1))
  end)

  it("has the lines of the source, in errors and tracebacks", function()
    local text = [[
return function(x, fail)
  local y = x
  if x > 0 then
    while y < 3 do

      y = y + 1
      if fail then y =
        y .. {} end
    end
  end
  return y
end]]
    local f = assert(loadstring(text, text))()
    local ok, e = pcall(limn.script(f), 1, true)
    assert.is_false(ok)
    assert.is_truthy(e:find(":8: attempt to concatenate", 1, true), e)
    assert.are.equal(3, limn.script(f)(1))
    local i = debug.getinfo(limn.script(f), "S")
    assert.are.equal(1, i.linedefined)
    assert.are.equal(12, i.lastlinedefined)
  end)

  it("tells functions on one line apart", function()
    local f, g = function(x) return x > 0 end, function(x) return x < 0 end
    assert.is_true(limn.script(f)(3))
    assert.is_false(limn.script(g)(3))
    local h = {}
    for i = 1, 2 do h[i] = function(x) return x > 4 and i end end
    assert.are.equal(1, limn.script(h[1])(5))
    assert.are.equal(2, limn.script(h[2])(5))
  end)

  it("refuses a text that is not the function's any more", function()
    local path = os.tmpname()
    local function changed(before, after)
      U.write_file(path, before)
      local f = assert(loadfile(path))()
      U.write_file(path, after)
      local ok, e = pcall(limn.script, f)
      assert.is_false(ok)
      return e
    end
    local text = "return function(x)\n  return x > 1\nend\n"
    assert.is_truthy(changed(text, text:gsub("1", "2"))
      :find("has changed since it was loaded", 1, true))
    assert.is_truthy(changed(text, "\n\n" .. text)
      :find("there is no function at this line any more", 1, true))
    assert.is_truthy(changed(text, "return (")
      :find(":1: script: unexpected symbol", 1, true))
    os.remove(path)
    assert.is_truthy(select(2, pcall(limn.script, assert(loadstring(text,
      "@" .. path))())):find("cannot be read", 1, true))
  end)

  it("scripts what is inside: local functions, closures, methods", function()
    agrees(function(x)
      local function half(y)
        if y > 3 then return y - 2 end
        return y
      end
      local t = {}
      function t:twice(y) return self and half(half(y)) end
      local total = 0
      local function add(y) total = total + y end
      if x > 1 then add(t:twice(x)) else add(1) end
      return total
    end, line)
  end)

  it("yields and runs in coroutines where nothing is traced", function()
    local co = coroutine.wrap(limn.script(function(n)
      for i = 1, n do
        if i % 2 == 0 then coroutine.yield(i) end
      end
      return "end"
    end))
    assert.are.same({2, 4, "end"}, {co(5), co(), co()})
  end)

  it("is differentiated through if and for, and again", function()
    local f = limn.script(function(x)
      local y
      if x:sum() > 0 then y = x * x * x else y = -x end
      for i = 1, x:size(1) do y = y * x[i] end
      return y:sum()
    end)
    local df = limn.grad(f)
    local ddf = limn.grad(function(x) return df(x):sum() end)
    U.each_device(function(dev)
      for _, v in ipairs {{1, 2}, {-3, 1}, {0.5, 0.25}} do
        local x = limn.tensor(v):to(dev)
        U.close(limn.jit(df)(x), df(x), 1e-5)
        U.close(limn.jit(ddf)(x), ddf(x), 1e-5)
      end
    end)
  end)

  it("is differentiated through break, return and choices", function()
    local list = {
      function(x)
        local s = x:sum() * 0
        for i = 1, #x do
          if x[i] < 0 then break end
          s = s + x[i] * x[i] * i
        end
        return s
      end,
      function(x)
        local s = x:sum()
        for i = 1, #x do
          if x[i] == 2 then goto continue end
          s = s + x[i] * s
          if s > 50 then return s * 2 end
          ::continue::
        end
        return s * s
      end,
      function(x)
        local y = x:sum() > 3 and x * x or x * 3
        for i = 1, 3 do
          if y:sum() > i * 10 then y = y * i
          elseif y:max() < 2 then y = y + x
          else y = y * y end
          if y:max() > 100 then return y:sum() end
        end
        if not (y:sum() > 5 and x[1] > 0) then y = -y end
        return (y * x):sum()
      end,
    }
    for _, f in ipairs(list) do
      local df = limn.grad(limn.script(f))
      local g = limn.jit(df)
      for _, v in ipairs {{1, 2, 3}, {1, -1, 2}, {5, 6}, {0.5, 0.25, 2, 1}} do
        U.each_device(function(dev)
          local x = limn.tensor(v):to(dev)
          U.close(g(x), df(x), 1e-4)
        end)
      end
    end
  end)

  it("trains a module with branches and loops as eager code does", function()
    local Net = nn.Module:extend "Net"
    function Net:init()
      self.cell, self.out = nn.Linear(3, 4), nn.Linear(4, 1)
    end
    function Net:forward(x)
      local h = limn.zeros(4, x.device)
      for t = 1, x:size(1) do
        if x[t]:sum() > 0 then
          h = (self.cell(x[t]) + h):tanh()
        else
          h = h * 0.5
        end
      end
      return self.out(h)
    end
    local net = limn.script(Net())
    local loss = limn.value_and_grad(function(x, y)
      return nn.mse_loss(net(x), y)
    end, net)
    local step = limn.jit(loss)
    U.each_device(function(dev)
      for _, rows in ipairs {{{1, 2, 3}, {-5, 1, 1}, {0, 1, 2}}, {{1, 1, 1}}} do
        local x, y = limn.tensor(rows):to(dev), limn.ones(1):to(dev)
        local l, grads = loss(x, y)
        local l2, grads2 = step(x, y)
        U.close(l2, l, 1e-5)
        for name, g in pairs(grads) do U.close(grads2[name], g, 1e-5) end
      end
    end)
  end)

  it("scripts a module's methods and those of modules in it", function()
    local Inner = nn.Module:extend "Inner"
    function Inner:init() self.lin = nn.Linear(2, 2) end
    function Inner:forward(x)
      if x:sum() > 0 then return self:more(x) end
      return -x
    end
    function Inner:more(x)
      if x:max() > 5 then x = x / 2 end
      return self.lin(x)
    end
    local Outer = nn.Module:extend "Outer"
    function Outer:init() self.inner, self.list = Inner(), {Inner()} end
    function Outer:forward(x) return self.list[1](self.inner(x)) + 1 end
    local net = Outer()
    assert.are.equal(net, limn.script(net))
    assert.are.equal("Outer", getmetatable(net).class_name)
    local g = limn.trace(net, limn.ones(3, 2))
    U.each_device(function(dev)
      for _, v in ipairs {1, -1, 9} do
        local x = (limn.ones(4, 2) * v):to(dev)
        U.close(g(x), net(x), 1e-5)
      end
    end)
    assert.are.equal(4, #net:clone():parameters())
    local copy = net:clone()
    U.close(limn.trace(copy, limn.ones(1, 2))(limn.ones(1, 2)),
            net(limn.ones(1, 2)))
    -- a scripted module in one that is not, and a scripted class
    local plain = Outer()
    plain.inner = limn.script(Inner())
    plain.list[1] = limn.script(Inner)()
    assert.is_truthy(tostring(limn.trace(plain, limn.ones(3, 2))):find "cond")
  end)

  it("a module that makes zeros on x's device, scripted in a traced one, and "
     .. "the reverse", function()
    local Inner = nn.Module:extend "Inner"
    function Inner:forward(x) -- luacheck: no self
      local zeros = limn.zeros(x:size(1), x.device)
      if x:sum() > 0 then zeros = zeros + 1 end
      return zeros
    end
    local Wrapper = nn.Module:extend "Wrapper"
    function Wrapper:init(inner) self.inner = inner end
    function Wrapper:forward(x) return x + self.inner(x) end
    local scripted_inner = Wrapper(limn.script(Inner()))
    local inner = limn.trace(limn.script(Inner()), limn.ones(10))
    local scripted_outer = limn.script(function(x)
      if x:sum() > 0 then return x + inner(x) end
      return x
    end)
    U.each_device(function(dev)
      local x = limn.arange(20):to(dev)
      for _, f in ipairs {scripted_inner, scripted_outer} do
        local y = limn.trace(f, limn.ones(10))(x)
        assert.are.equal(dev, tostring(y.device))
        U.close(y, x + 1)
      end
    end)
  end)

  it("is saved and loaded with its control flow", function()
    local f = limn.script(function(x)
      local n = 0
      while x:sum() < 100 do x, n = x * 2, n + 1 end
      return x, n
    end)
    local path = os.tmpname()
    limn.save(path, {f = limn.trace(f, limn.ones(2))})
    local g = limn.load(path).f
    os.remove(path)
    U.each_device(function(dev)
      local x = limn.tensor({1, 2, 3}):to(dev)
      local y, n = g(x)
      local want, m = f(x)
      U.close(y, want)
      assert.are.equal(m, n:item())
    end)
  end)

  it("draws the random numbers that eager code draws", function()
    local f = limn.script(function(x)
      local y = limn.rand(2, x.device)
      if x:sum() > 0 then y = y + limn.rand(2, x.device) end
      local n = x:sum()
      while n > 0 do y, n = y + limn.rand(2, x.device), n - 1 end
      return y + limn.rand(2, x.device)
    end)
    local g = limn.trace(f, limn.ones(2))
    U.each_device(function(dev)
      for _, v in ipairs {{1, 2}, {-1, -2}} do
        local x = limn.tensor(v):to(dev)
        limn.manual_seed(3)
        local want = f(x)
        limn.manual_seed(3)
        U.close(g(x), want, 1e-6)
      end
    end)
  end)
end)

describe("assert in a scripted function", function()
  local positive = limn.script(function(x, m)
    local sum = assert(x:sum() > 0, "not positive") and x:sum() or 0
    assert(m == nil or m == "m", "which mode?")
    return sum, assert(2, 3)
  end)

  it("reads a condition that is a tensor in eager code", function()
    U.each_device(function(dev)
      local y, two, three = positive(limn.ones(2, dev))
      U.equal(y, {2})
      assert.are.same({2, 3}, {two, three})
      U.message(function() positive(-limn.ones(2, dev)) end, "not positive")
      U.message(function() positive(limn.ones(2, dev), "n") end, "which mode")
    end)
  end)

  it("is refused where only a run knows the condition, and checks ordinary "
     .. "values in a trace", function()
    U.message(function() limn.trace(positive, limn.ones(2)) end,
              "script_function_spec.lua:%d+: assert%(...%) has a condition "
              .. "that only a run knows", "hint: return the condition")
    local sized = limn.script(function(x)
      assert(x:size(1) == 2, "two of them")
      return x * 2
    end)
    local g = limn.trace(sized, limn.ones(2))
    U.equal(g(limn.ones(2)), {2, 2})
    U.message(function() g(limn.ones(3)) end, "size%(%%x, 1%) == 2")
    U.message(function() limn.trace(sized, limn.ones(3)) end, "two of them")
  end)

  it("is what the function calls so", function()
    local function check(assert) return (assert(1, 2)) end
    local f = limn.script(function(x)
      local assert = function(a, b) return a + b end
      return check(assert) + assert(x, x)
    end)
    U.equal(f(limn.ones(1)), {5})
  end)
end)
