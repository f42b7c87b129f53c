-- Errors of control flow, in eager code, in traces and when a plan is made, and
-- what the text of a region may not say.
local U = require "support.util"
local core = require "limn.core"
local limn = U.limn

local function pack(...) return {n = select("#", ...), ...} end

describe("Errors of control flow", function()
  local function trace(f, ...)
    local args = pack(...)
    return function() limn.trace(f, unpack(args, 1, args.n)) end
  end

  it("show both shapes of what a loop carries, with the line", function()
    U.message(trace(function(x)
      local h = limn.scan(function(h, r)
        local now = limn.cat({h, r})
        return now
      end, limn.zeros(2), x)
      return h
    end, limn.ones(3, 4)), U.here(-5), "the carried value %%h is float32 %[2%]",
      "becomes float32 %[6%] at [^\n]*" .. U.here(-5):sub(1, -2))
    U.message(trace(function(x)
      return limn.while_loop(function(i) return i:lt(2) end,
                             function(i) return i:to "int64" end, x:sum())
    end, limn.ones(3)), "the carried value %%i is float32 %[%] and becomes "
      .. "int64 %[%]")
    U.message(function()
      limn.scan(function(h, r) return limn.cat({h, r}) end, limn.zeros(2),
                limn.ones(3, 4))
    end, U.here(-2), "float32 %[2%] .* becomes float32 %[6%]")
  end)

  it("show what two branches give", function()
    local function f(x)
      local y = limn.cond(x:sum():gt(0), function() return x end,
                          function() return x:sum(1, {keepdim = true}) end)
      return y
    end
    U.message(trace(f, limn.ones(3, 2)), U.here(-4), "result 1 is "
      .. "float32 %[3, 2%] in one branch and float32 %[1, 2%] in the other")
    -- Sizes that agree in the example may not in the run.
    local g = limn.trace(f, limn.ones(1, 2))
    U.equal(g(limn.ones(1, 2)), {1, 1})
    U.message(function() g(limn.ones(4, 2)) end, U.here(-9),
              "float32 %[4, 2%] in one branch and float32 %[1, 2%]")
    U.message(trace(function(x)
      return limn.cond(x:sum():gt(0), function() return x end,
                       function() return x:sum() end)
    end, limn.ones(3)), "result 1 has 1 dim in one branch and 0")
    U.message(trace(function(x)
      return limn.cond(x:sum():gt(0), function() return {a = x} end,
                       function() return {b = x} end)
    end, limn.ones(3)), "has the key a in one branch only")
    U.message(trace(function(x)
      return limn.cond(x:sum():gt(0), function() return x end,
                       function() return 1 end)
    end, limn.ones(3)), "is a tensor in one branch and 1 in the other",
      "full_like")
  end)

  it("say what a condition and a test must be", function()
    local function id(x) return x end
    local x = limn.ones(2)
    U.message(function() limn.cond(x, id, id, x) end, U.here(),
              "float32 %[2%]; one bool is wanted", ":any%(%) or :all%(%)")
    U.message(trace(function(v) return limn.cond(v, id, id, v) end, x),
              "float32 %[2%]; one bool is wanted")
    U.message(function() limn.cond(nil, id, id) end, "the condition is nil")
    U.message(trace(function(v)
      return limn.cond(v:size(1), id, id, v)
    end, x), "the condition is")
    U.message(function() limn.cond(x:sum():gt(0), id) end, U.here(),
              "a function is wanted, not nil")
    U.message(function()
      limn.while_loop(function(v) return v end, id, x)
    end, "one bool is wanted")
    U.message(trace(function(v)
      return limn.while_loop(function(w) return w:lt(1) end, id, v)
    end, x), "the test gives bool %[2%]; one bool is wanted")
    U.message(trace(function(v)
      return limn.while_loop(function() return true end, id, v)
    end, x), "the test gives true; one bool tensor is wanted")
  end)

  it("say what a scan goes over", function()
    local function f(c, r) return c + r:sum(), r end
    U.message(function() limn.scan(f, 0, limn.ones()) end, "has no rows")
    U.message(function() limn.scan(f, 0, {}) end, "no tensors to go over",
              "limn.arange")
    U.message(function()
      limn.map(function(r) return r.a + r.b end,
               {a = limn.ones(2), b = limn.ones(3)})
    end, "2 rows .* and 3")
    U.message(trace(function(a, b)
      return limn.map(function(r) return r[1] + r[2] end, {a, b})
    end, limn.ones(2), limn.ones(3)), "goes over 2 rows of .* and 3 of ")
    U.message(function()
      limn.scan(function() return {1} end, {1, 2}, limn.ones(2))
    end, "2 entries and becomes one with 1")
    U.message(function() limn.map(nil, limn.ones(2)) end,
              "a function is wanted, not nil")
    U.message(function() limn.scan(f, 0, limn.ones(2), {revers = true}) end,
              "revers")
  end)

  it("refuse an `if` on a value in a body, and values that leak", function()
    U.message(trace(function(x)
      return limn.map(function(r)
        if r:sum():gt(0) then return r end
        return -r
      end, x)
    end, limn.ones(2, 2)), U.here(-3), "nothing uses the result of this "
      .. "comparison")
    local kept
    U.message(trace(function(x)
      limn.map(function(r)
        kept = r
        return r
      end, x)
      return x + kept
    end, limn.ones(2, 2)), "while map was traced")
  end)

  it("come from the line of the body, with its values", function()
    local g = limn.trace(function(x, y)
      return limn.map(function(r)
        return r + y
      end, x)
    end, limn.ones(2, 3), limn.ones(3))
    U.message(function() g(limn.ones(2, 3), limn.ones(4)) end, U.here(-3),
              "add", "%%r float32 %[3%]", "%%y float32 %[4%]")
    U.each_device(function(dev)
      local h = limn.trace(function(x, i)
        local s = limn.scan(function(c, r) return c + x:index_select(1, r):sum()
        end, 0, i:unsqueeze(2))
        return s
      end, limn.ones(3), limn.ones(2, "int64"))
      U.equal(h(limn.ones(3, dev), limn.tensor({1, 3}, "int64"):to(dev)), {2})
      U.message(function()
        h(limn.ones(3, dev), limn.tensor({1, 9}, "int64"):to(dev)):item()
      end, "index 9")
    end)
  end)

  it("stop nesting that has no end", function()
    local function deep(x, n)
      if n == 0 then return x end
      return limn.cond(x:sum():gt(0), function() return (deep(x, n - 1)) end,
                       function() return x end)
    end
    U.message(trace(function(x) return (deep(x, 50)) end, limn.ones(1)),
              "nested more than 32 deep")
    local g = limn.trace(function(x) return (deep(x, 12)) end, limn.ones(1))
    U.equal(g(limn.ones(1)), {1})
  end)
end)

describe("The text of regions", function()
  local head = "limn 1\ngraph f(%x: [_, _], %p: []) {\n  draws 1\n  "

  it("reads back", function()
    local text = head .. [[%1 = gt(%p, 0)
      %2 = cond(%1, [%x, size(%x, 1), true], draw=0) {
        (%a: [_, _], %n: int, %b: bool) => %3 = mul(%a, %n)  yield %3
      } { (%a: [_, _], %n: number, %b: bool) => guard %b  yield %a }
      %4 = pick(%2, 1)
      return %4 }]]
    local g = core.graph_parse(text)
    g:verify()
    assert.are.equal(tostring(g), tostring(core.graph_parse(tostring(g))))
    U.each_device(function(dev)
      U.equal(g(limn.ones(2, 2, dev), limn.ones(dev)), {2, 2, 2, 2})
      U.equal(g(limn.ones(2, 2, dev), limn.zeros(dev)), {1, 1, 1, 1})
    end)
  end)

  it("is checked: operands, results and draws fit", function()
    local same = "{(%a: [_, _]) => yield %a} "
    for _, case in ipairs {
      {"%1 = cond(%p, [%x], draw=0) {(%a: []) => yield %a} " .. same,
        "operand 1 does not fit input 1"},
      {"%1 = cond(%p, [%x, %x], draw=0) " .. same .. same,
        "2 operands for a region with 1 inputs"},
      {"%1 = cond(%x, [%x], draw=0) " .. same .. same, "pred must be one bool"},
      {"%1 = cond(7, [%x], draw=0) " .. same .. same, "pred must be one bool"},
      {"%1 = cond(%p, [%x], draw=1) " .. same .. same, "no draw 1"},
      {"%1 = cond(%p, [%x]) " .. same .. same, "draw is missing"},
      {"%1 = cond(%p, [%x], draw=0) " .. same, "expected '{'"},
      {"%1 = cond(%p, [%x], draw=0) " .. same .. "{(%a: [_, _]) => yield}",
        "1 and 0 results"},
      {"%1 = cond(%p, [%x], draw=0) " .. same
         .. "{(%a: [_, _]) => %2 = sum(%a, dim=[1, 2]) yield %2}",
        "2 dims in one branch and 0 in the other"},
      {"%1 = cond(%p, [%x], draw=0) " .. same .. "{(%a: [_, _]) => yield 3}",
        "result 1 of a region is no tensor"},
      {"%1 = cond(%p, [%x], draw=0) " .. same .. "{(%b: [_, _]) => yield %a}",
        "there is no %%a here"},
      {"%1 = cond(%p, [%x], f=0, draw=0) " .. same .. same, "f is given twice"},
      {"%1 = cond(%p, [%x], draw=0) " .. same .. same .. "%2 = neg(%1)",
        "must be a tensor"},
      {"%1 = cond(%p, [%x], draw=0) " .. same .. same .. "%2 = pick(%1, 2)",
        "no result 2"},
      {"%1 = scan([%p], [%p], [], reverse=false, draw=0) "
         .. "{(%a: [], %b: []) => yield %a}", "does not fit input 2"},
      {"%1 = scan([%p], [], [], reverse=false, draw=0) "
         .. "{(%a: []) => yield %a}", "nothing to go over"},
      {"%1 = scan([%x], [%x], [], reverse=false, draw=0) "
         .. "{(%a: [_, _], %b: [_]) => yield %b}",
        "has 2 dims and becomes one with 1"},
      {"%1 = scan([%p, %p], [%x], [], reverse=false, draw=0) "
         .. "{(%a: [], %b: [], %c: [_]) => yield %a}",
        "1 values for 2 carried"},
      {"%1 = while([%p], [], draw=0) {(%a: []) => yield %a} "
         .. "{(%a: []) => yield %a, %a}", "2 values for 1 carried"},
      {"%1 = while([3], [], draw=0) {(%a: int) => yield} {(%a: int) => yield}",
        "test must give one bool"},
      {"%1 = cond(%p, [%x], draw=0) {(%a: [_, _]) => buffer @b: f32[] "
         .. "yield %a} " .. same, "no value for @b"},
    } do
      U.message(function()
        core.graph_parse(head .. case[1] .. "\n  return %x\n}\n")
      end, case[2])
    end
    U.message(function()
      core.graph_parse "limn 1\ngraph f(%n: int) {\n  return %n\n}\n"
    end, "input 1 is a plan value")
  end)
end)

describe("limn.map in eager code", function()
  it("and in graphs is called map", function()
    local function f(a, b)
      local y = limn.map(function(r) return r[1] * r[2] end, {a, b})
      return y
    end
    local g = limn.trace(f, limn.ones(2, 3), limn.ones(2, 3))
    U.message(function() g(limn.ones(2, 3), limn.ones(4, 3)) end,
              "spec.lua:%d+: map: .*2 rows of float32 %[2, 3%]")
    U.message(function() f(limn.ones(2, 3), limn.ones(4, 3)) end,
              "map: it goes over 2 rows of one tensor and 4 of another")
  end)

  it("wants one structure of all rows", function()
    local x = limn.tensor {{1, 2}, {3, 4}}
    local function each(a, b)
      local i = 0
      return function()
        return limn.map(function()
          i = i + 1
          if i == 1 then return a end
          return b
        end, x)
      end
    end
    U.message(each(x, {x}), "a tensor for one row and a table for another")
    U.message(each(x, nil), "a tensor for one row and nil for another")
    U.message(each({a = x}, {a = x, b = x}), "has the key b for some rows only")
    U.message(each({a = x, b = x}, {a = x}), "has the key b for some rows only")
    U.message(each({"on"}, {"off"}),
      'map: result.1 is "on" for one row and "off" for another')
  end)
end)

describe("when_training and limn.cond", function()
  it("say what they were given instead of a function", function()
    local net, x = limn.nn.ReLU(), limn.ones(2)
    U.message(function() net:when_training(x, function(v) return v end) end,
      "when_training: a function is wanted, not a tensor", "function%(x%)")
    U.message(function() limn.cond(limn.tensor(true), x, x) end,
      "cond: a function is wanted, not a tensor")
  end)
end)
