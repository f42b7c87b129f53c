-- limn.script: ordinary control flow becomes nodes of the graph where it
-- depends on values of a trace, and runs as plain Lua elsewhere.
local U = require "support.util"
local S = require "support.script"
local limn = U.limn
local nn = limn.nn

local agrees, numbers = S.agrees, S.numbers
local line = {{-3}, {-1}, {0}, {1}, {2}, {5}, {12}}
local plane = {{0, 0}, {1, 2}, {2, 1}, {-3, 4}, {7, 7}, {9, -2}}

describe("limn.script: if", function()
  it("chooses among branches, with elseif and else", function()
    agrees(function(x)
      local y
      if x > 4 then y = x * 2
      elseif x > 0 then y = -x
      elseif x == 0 then y = x + 100
      else y = x * x end
      return y
    end, line)
  end)

  it("without else leaves variables as they were", function()
    agrees(function(x, y)
      local z = x
      if x < y then z = z + 10 end
      if y < x then x, y = y, x end
      return x, y, z
    end, plane)
  end)

  it("nests, and sees what was assigned before in its branch", function()
    agrees(function(x, y)
      local n = 0
      if x > 0 then
        n = n + 1
        if y > x then
          n = n + 10
          x = x + n
        else
          y = y + n
        end
        n = n + x
      end
      return n, x, y
    end, plane)
  end)

  it("takes numbers, booleans and tables of values through both paths",
     function()
    agrees(function(x)
      local n, flag, s = 0, false, {x, k = {x + 1}}
      if x > 0 then
        n, flag, s = 2.5, true, {x * 2, k = {3}}
      end
      if flag then n = n + 1 end
      return n, s[1], s.k[1], flag
    end, line)
  end)

  it("assigns to elements of a copy that a branch makes", function()
    local f = limn.script(function(x)
      local y = x * 2
      if x:sum() > 0 then
        y = y:clone()
        y[1] = 0
        y[{{2, 3}}] = x[{{2, 3}}]
      end
      return y
    end)
    local g = limn.trace(f, limn.ones(3))
    U.each_device(function(dev)
      for _, v in ipairs {{1, 2, 3}, {-1, -2, -3}} do
        local x = limn.tensor(v):to(dev)
        U.close(g(x), f(x))
      end
    end)
  end)

  it("keeps a value that is the same on both paths as it is", function()
    local f = limn.script(function(x)
      local name, n
      if x:sum() > 0 then name, n, x = "some", 7, x * 2
      else name, n, x = "some", 7, -x end
      assert(name == "some" and n == 7)
      return x
    end)
    local g = limn.trace(f, limn.ones(3))
    assert.are.same({2, 2}, U.flat(g(limn.ones(2))))
  end)

  it("returns from branches, and goes on after them otherwise", function()
    agrees(function(x)
      if x > 4 then return x, x end
      local y = x * 3
      if y < 0 then
        if y < -5 then return y, x end
        y = y - 1
      elseif x == 0 then
        return 100, 7
      end
      return y + 0.5, y
    end, {{-3}, {-1}, {0}, {1}, {2}})
  end)

  it("is followed by all that comes after, in enclosing blocks too", function()
    agrees(function(x, y)
      local n = 0
      do
        if x > y then
          if x > 8 then return n + 1000 end
          n = n + 1
        else
          if y > 6 then return n + 2000 end
          n = n + 2
        end
        n = n * 10
      end
      n = n + x
      return n
    end, plane)
  end)

  it("on ordinary values is plain Lua: one path is taken", function()
    local calls = {}
    local f = limn.script(function(x, mode)
      if mode == "double" then
        calls[#calls + 1] = mode
        return x * 2
      elseif mode then
        error "not this one"
      end
      if x:size(1) > 100 then calls[#calls + 1] = "large" end
      return x
    end)
    local g = limn.trace(f, limn.ones(3), "double")
    assert.are.same({"double"}, calls)
    assert.are.same({2}, U.flat(g(limn.ones(1), "double")))
    assert.is_nil(tostring(limn.trace(f, limn.ones(3))):find "cond")
  end)

  it("on a size records a guard, as elsewhere", function()
    local f = limn.script(function(x)
      if x:size(1) > 3 then return x * 2 end
      return x
    end)
    local g = limn.jit(f)
    assert.are.same({1, 1}, U.flat(g(limn.ones(2))))
    assert.are.same({2, 2, 2, 2}, U.flat(g(limn.ones(4))))
    assert.are.equal(2, g:stats().traces)
  end)

  it("on a number input chooses in each run, and never traces again",
     function()
    local g = limn.jit(limn.script(function(x, speed)
      if speed > 0.5 and speed < 2 then return x * 2
      elseif not (speed < 0.25 or speed > 0.25) then return x * 4 end
      return -x
    end))
    local x = limn.ones(1)
    for speed, want in pairs {[0.1] = -1, [0.25] = 4, [0.75] = 2, [3] = -1} do
      assert.are.same({want}, U.flat(g(x, limn.number(speed))))
    end
    assert.are.equal(1, g:stats().traces)
  end)
end)

describe("limn.script: loops", function()
  it("while, with a condition on values, zero iterations too", function()
    agrees(function(x)
      local n = 0
      while x < 10 and n < 20 do
        x = x * 2 + 3
        n = n + 1
      end
      return x, n
    end, line)
  end)

  it("repeat runs once at least, and `until` sees the body's locals",
     function()
    agrees(function(x)
      local n = 0
      repeat
        local y = x + n
        n = n + 1
        x = x + y
      until y > 10 or n >= 9
      return x, n
    end, line)
  end)

  it("for with bounds that are values, upwards and downwards", function()
    agrees(function(x)
      local s, n = 0, 0
      for i = 1, x do s = s + i end
      for i = x, -2, -2 do
        n = n + 1
        s = s + i * n
      end
      return s, n
    end, {{-3}, {-1}, {0}, {1}, {2}, {5}})
  end)

  it("for over a size is one node, whatever the size of the run", function()
    local f = limn.script(function(x)
      local s, last = 0, x[1] * 0
      for i = 1, x:size(1) do
        s = s + x[i] * i
        last = x[i]
      end
      return s, last
    end)
    U.each_pair(function(a, b)
      local g = limn.trace(f, limn.tensor({1, 2, 3}):to(a))
      assert.is_truthy(tostring(g):find "scan")
      for _, x in ipairs {{5}, {1, 2, 3}, {4, 3, 2, 1, 9, 8}} do
        local t = limn.tensor(x):to(b)
        local s, last = g(t)
        local want = {f(t)}
        U.close(s, want[1])
        U.close(last, want[2])
      end
    end)
  end)

  it("for over no rows has a body that these sizes would not allow", function()
    local f = limn.script(function(x)
      local s = limn.zeros()
      for i = 1, x:size(1) do s = s + x[i]:sum() + x:max() + x[{1, 1}] end
      return s
    end)
    U.each_pair(function(a, b)
      local g = limn.trace(f, limn.ones({2, 3}, a))
      local slope = limn.trace(limn.grad(limn.script(function(x)
        local s = limn.zeros()
        for i = 1, x:size(1) do s = s + (x[i] * x[i]):sum() end
        return s
      end)), limn.ones({2, 3}, a))
      assert.are.equal(5, g(limn.ones({1, 3}, b)):item())
      assert.are.equal(0, g(limn.zeros({0, 3}, b)):item())
      U.equal(slope(limn.ones({1, 2}, b)), {2, 2})
      U.shape(slope(limn.zeros({0, 3}, b)), {0, 3})
    end)
  end)

  it("for with numbers as bounds is unrolled", function()
    local f = limn.script(function(x)
      for i = 1, 3 do x = x * i end
      return x
    end)
    local g = limn.trace(f, limn.ones(2))
    assert.is_nil(tostring(g):find "scan")
    assert.are.same({6, 6}, U.flat(g(limn.ones(2))))
  end)

  it("break, and goto to the end of the body", function()
    agrees(function(x)
      local s = 0
      for i = 1, x do
        if i == 2 then goto continue end
        if s > 12 then break end
        s = s + i * 3
        ::continue::
      end
      local n = 0
      while true do
        n = n + 1
        if n + s > 8 then break end
      end
      return s, n
    end, line)
  end)

  it("break and return under conditions on values, in a loop of numbers",
     function()
    agrees(function(x)
      local s = 0
      for i = 1, 4 do
        if x + i > 5 then break end
        s = s + i
      end
      for i = 1, 3 do
        local y = x * i
        if y == 4 then return y, i end
        s = s + y
      end
      for _, k in ipairs {3, 1, 2} do
        if x == k then return s, k end
      end
      return s, 0
    end, line)
  end)

  it("return from loops of the graph, from the inner one of two", function()
    agrees(function(x, y)
      local n, at = 0, 0
      for i = 1, x do
        at = i
        for j = 1, y do
          n = n + i * j
          if n > 20 then return n, at, 1 end
          if n == 3 then return n, at, 2 end
        end
      end
      return n, at, 0
    end, {{0, 0}, {1, 2}, {2, 1}, {7, 7}, {2, 3}})
  end)

  it("return and break from a loop over a size", function()
    local f = limn.script(function(x)
      local s, at = 0, 0
      for i = 1, #x do
        at = i
        if x[i] == 0 then goto continue end
        if x[i] < 0 then return s, at end
        if s > 20 then break end
        s = s + x[i]
        ::continue::
      end
      return s + 100, at
    end)
    U.each_device(function(dev)
      local g = limn.trace(f, limn.ones(2):to(dev))
      for _, v in ipairs {{1, 2}, {1, -2, 3}, {9, 0, 9, 9, 5}, {-1}} do
        local x = limn.tensor(v):to(dev)
        assert.are.same(numbers(f(x)), numbers(g(x)))
      end
    end)
  end)

  it("return from a loop without end", function()
    agrees(function(x)
      local n = 0
      while true do
        x = x + 3
        n = n + 1
        if x > 10 then return x, n end
      end
    end, line)
  end)

  it("with more numbers than can be nested become nodes", function()
    agrees(function(x)
      local at = 0
      for i = 1, 100 do
        at = i
        if x + i > 30 then return at end
      end
      return at
    end, line)
  end)

  it("over lists are unrolled, with what they hold", function()
    local layers = {nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)}
    local f = limn.script(function(x)
      for i, layer in ipairs(layers) do
        if x:sum() > 1e6 then break end
        x = layer(x) * i
      end
      return x
    end)
    local g = limn.trace(f, limn.ones(1, 2))
    U.each_device(function(dev)
      local x = limn.randn(5, 2):to(dev)
      U.close(g(x), f(x))
    end)
  end)

  it("carry numbers that become floats, whatever they start as", function()
    agrees(function(x)
      local s, n = 0, 1
      while n < 5 do
        if x > n then s = s + x / 2 else s = s + 1 end
        n = n + 1
      end
      return s, n
    end, line)
  end)

  it("read what they start with, if only to keep it", function()
    agrees(function(x, y)
      if x > 0 then
        local n = 2
        while n < x do
          n = n + 1
          y = n * 3
        end
      else
        y = 5
      end
      return y
    end, plane)
  end)

  it("that run no time leave everything", function()
    local f = limn.script(function(x)
      local s = x:sum()
      for i = 1, x:size(1) do s = s + i end
      while s < 0 do s = s + 1 end
      return s
    end)
    local g = limn.trace(f, limn.ones(3))
    assert.are.equal(0, g(limn.zeros(0)):item())
    assert.are.equal(0, f(limn.zeros(0)):item())
  end)

  it("print in order, and assign to cells, each iteration", function()
    local cell = nn.Parameter(limn.zeros {})
    local f = limn.script(function(x)
      for i = 1, x:size(1) do
        if x[i] > 0 then cell:assign(cell + x[i]) end
      end
      return x
    end)
    U.each_device(function(dev)
      local g = limn.trace(f, limn.ones(2):to(dev))
      cell:assign(limn.zeros {})
      g(limn.tensor({1, -5, 2, 4}):to(dev))
      assert.are.equal(7, cell:value():item())
    end)
  end)
end)

describe("limn.script: and, or, not, comparisons", function()
  it("are as in Lua", function()
    agrees(function(x, y)
      local a = x > 0 and y > 0
      local b = x > 0 or y > 0
      local c = not a and x ~= y
      local d = (x == y or x >= 9) and not (y <= -2 and b)
      local e = x > y and x or y
      local f = a and 1 or b and 2 or 3
      return a, b, c, d, e, f
    end, plane)
  end)

  it("do not evaluate what Lua would not", function()
    local calls = 0
    local function probe(v)
      calls = calls + 1
      return v
    end
    local f = limn.script(function(x)
      return x > 3 and probe(x) < 5 or x == 0, nil and probe(x)
    end)
    f(limn.tensor(0))
    assert.are.equal(0, calls)
    local table_at = limn.script(function(t, i, x)
      if i > 0 and t[i] > 2 then return x end
      return -x
    end)
    U.each_device(function(dev)
      local t, x = limn.tensor({1, 5}):to(dev), limn.tensor(3):to(dev)
      local i = limn.tensor(0, "int64"):to(dev)
      local g = limn.trace(table_at, t, i, x)
      assert.are.equal(-3, g(t, i, x):item()) -- t[0] is never read
      assert.are.equal(3, g(t, i + 2, x):item())
    end)
  end)

  it("x == 0 asks the tensor", function()
    local f = limn.script(function(x) return x == 0, x ~= 0, x == nil end)
    U.each_device(function(dev)
      local x = limn.tensor({0, 1}):to(dev)
      local a, b, c = f(x)
      assert.are.same({1, 0}, U.flat(a))
      assert.are.same({0, 1}, U.flat(b))
      assert.is_false(c)
    end)
    assert.is_false(limn.script(function(x, y) return x == y end)(
      limn.ones(2), "a"))
  end)

  it("of ordinary values are those of Lua, errors and metamethods too",
     function()
    local mt = {__lt = function(a, b) return a.v < b.v end,
                __eq = function(a, b) return a.v == b.v end}
    local f = limn.script(function(a, b)
      return a < b, a == b, a ~= b, a > b, a and b, a or b, not a
    end)
    local a, b = setmetatable({v = 1}, mt), setmetatable({v = 2}, mt)
    assert.are.same({true, false, true, false, b, a, false}, {f(a, b)})
    assert.are.same({true, false, true, false, "y", "x", false},
                    {f("x", "y")})
    local ok, e = pcall(f, 1, nil)
    assert.is_false(ok)
    assert.is_truthy(e:find("attempt to compare number with nil", 1, true))
    assert.is_truthy(e:find "script_spec.lua:%d+: ")
  end)

  it("a number or tensor of numbers is true, as to Lua, a bool is read",
     function()
    local f = limn.script(function(x, mask)
      if mask then x = x + 1 end
      return x or 5
    end)
    assert.are.same({2}, U.flat(f(limn.ones(1), limn.zeros(3))))
    assert.are.same({1}, U.flat(f(limn.ones(1), limn.tensor(false))))
    assert.are.same({1}, U.flat(f(limn.ones(1))))
  end)
end)
