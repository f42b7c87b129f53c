-- Graphs as text: a round trip, passes that change no result, and planning
-- that changes no graph.
local U = require "support.util"
local core = require "limn.core"
local limn = U.limn
local nn = limn.nn

-- Graphs of every kind that need no cells (graph_parse gives none).
local function plain_graphs()
  local x, y = limn.ones(3, 4), limn.ones(3, 4)
  return {
    {limn.trace(function(a, b)
      return {loss = (a * b + 1.5):sum(), n = a:size(1), {a:t(), b[2]}}, 7,
        "text", nil, true
    end, x, y), function(d)
      return {limn.arange(12):reshape(3, 4):to(d), limn.ones(3, 4, d)}
    end},
    {limn.trace(function(a)
      if a:size(2) == 4 then a = a:softmax(-1) end
      return a:matmul(a:t()), limn.cat({a, a}, 1), a:pad({1, 1}),
        a:sum {dim = {1, 2}, keepdim = true}, a:clamp {min = 0.1},
        a[{{2, -1}, 3}], a:flip(1):reshape(-1), a:argmax(2), a:to "int64",
        limn.arange(a:size(1), {dtype = a.dtype}), limn.rand_like(a):gt(2)
    end, x), function(d) return {limn.arange(12):reshape(3, 4):to(d)} end},
    {limn.trace(function(a, dt)
      return limn.grad(function(v) return (v:tanh() * dt):sum() end)(a)
    end, x, limn.number(0.25)), function(d)
      return {limn.ones(3, 4, d), -0.75}
    end},
  }
end

local function compare(a, b, what)
  if type(a) == "table" then
    for k, v in pairs(a) do compare(v, b[k], what) end
  elseif core.type(a) == "tensor" then
    U.shape(b, a.shape, what)
    U.equal(b, a, what)
  else
    assert.are.equal(a, b, what)
  end
end

describe("The text of a graph", function()
  it("reads back as the same graph with the same results", function()
    for n, case in ipairs(plain_graphs()) do
      local g, args = case[1], case[2]
      local text = tostring(g)
      local back = core.graph_parse(text)
      assert.are.equal(text, tostring(back))
      back:verify()
      U.each_device(function(dev)
        compare({g(unpack(args(dev)))}, {back(unpack(args(dev)))},
                "graph " .. n .. " on " .. dev)
      end)
    end
  end)

  it("begins with the format's version and has no lines when told", function()
    local g = limn.trace(function(x) return x * 2 end, limn.ones(2))
    assert.is_truthy(tostring(g):find "^limn 1\n")
    assert.is_truthy(g:text(true):find "graph_spec.lua")
    assert.is_nil(g:text(false):find "graph_spec.lua")
  end)

  it("holds reals that read back exactly, and the special ones", function()
    local g = limn.trace(function(x)
      return x + 0.1, x * 1e-300, x:clamp(-math.huge, 1 / 3)
    end, limn.ones(2, "float64"))
    local text = tostring(g)
    for _, p in ipairs {"0%.1", "1e%-300", "%-inf", "0%.333333333333333"} do
      assert.is_truthy(text:find(p), text)
    end
    local y = {core.graph_parse(text)(limn.ones(2, "float64"))}
    assert.are.equal(1.1, y[1]:at(1))
    assert.are.equal(1 / 3, y[3]:at(1))
  end)

  it("that is damaged is refused with a line, never believed", function()
    local text = tostring(plain_graphs()[2][1])
    local refused = 0
    for i = 1, #text, 7 do
      local cut = pcall(core.graph_parse, text:sub(1, i))
      local swapped = text:sub(1, i - 1) .. "9" .. text:sub(i + 1)
      local ok, g = pcall(core.graph_parse, swapped)
      if not cut then refused = refused + 1 end
      if ok then g:verify() end
    end
    assert.is_true(refused > #text / 7 - 3)
    for _, bad in ipairs {
      "", "limn 2\n", "limn 1\ngraph f() {\n  return {}\n",
      "limn 1\ngraph f(%x: [_]) {\n  %1 = tanh(%2)\n  return {%1}\n}\n",
      "limn 1\ngraph f(%x: [_]) {\n  %1 = nothing(%x)\n  return {%1}\n}\n",
      "limn 1\ngraph f(%x: [_]) {\n  %1 = sum(%x, dim=[9])\n  return {%1}\n}\n",
      "limn 1\ngraph f(%x: [_]) {\n  %1 = add(%x)\n  return {%1}\n}\n",
    } do
      U.message(function() return core.graph_parse(bad) end, "%a")
    end
    local newer = U.message(function()
      return core.graph_parse(text:gsub("^limn 1", "limn 99"))
    end, "99")
    assert.is_truthy(newer:find "newer" or newer:find "version", newer)
  end)

  it("nested without end is refused", function()
    local deep = "limn 1\ngraph f(%x: [_]) {\n  return "
      .. ("{"):rep(100000) .. "%x" .. ("}"):rep(100000) .. "\n}\n"
    U.message(function() return core.graph_parse(deep) end, "%a")
  end)
end)

describe("Planning", function()
  it("never changes the graph's text", function()
    local m = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 2))
    local g = limn.trace(function(x, t)
      local l, grads = limn.value_and_grad(function()
        return nn.mse_loss(m(x), t)
      end, m)()
      for name, p in m:named_parameters() do p:assign(p - grads[name] * 0.1) end
      return l
    end, limn.ones(3, 4), limn.ones(3, 2))
    local before = g:text(true)
    U.each_device(function(dev)
      for _, n in ipairs {1, 5, 2} do
        g(limn.ones(n, 4, dev), limn.ones(n, 2, dev))
      end
    end)
    assert.are.equal(before, g:text(true))
  end)
end)

describe("Passes", function()
  local source = [[
    local limn = require "limn"
    local nn, optim = limn.nn, limn.optim
    limn.manual_seed(1)
    local m = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))
    local opt = optim.Adam(m, {lr = 0.01})
    local loss = limn.value_and_grad(function(x, t)
      return nn.cross_entropy(m(x), t)
    end, m)
    local step = limn.jit(function(x, t)
      local l, g = loss(x, t)
      opt:step(g)
      return l
    end)
    local f = limn.trace(function(a, b)
      local u = a * b + a * b
      local v = (u:t() - 1):reshape(-1):sum() + (a + 0):max()
      local w = a:gt(b):to "float32":sum():expand(16, 16, 3, 3)
      w = w + limn.arange(0, 2):reshape(3, 1)
      local c = limn.ones(1, 16, 6, 6):conv(w, {1, 1}, {1, 1}, {1, 1})
      return u:relu():softmax(-1), v, (a:gt(b)):to "float32":cumsum(1), c:sum(2)
    end, limn.ones(2, 2), limn.ones(2, 2))
    for _, dev in ipairs(limn.devices()) do
      local x, t = limn.randn(4, 5):to(dev), limn.randint(1, 3, 4):to(dev)
      for _ = 1, 3 do print(("%.5f"):format(step(x, t):item())) end
      local a, b = limn.randn(3, 4):to(dev), limn.randn(3, 4):to(dev)
      for _, y in ipairs {f(a, b)} do
        local list = y:reshape(-1):totable()
        for i, e in ipairs(list) do list[i] = ("%.5f"):format(e + 0) end
        print(table.concat(list, " "):gsub("-0%.00000", "0.00000"))
      end
    end]]
  local plain = {}
  -- Accelerators take time to start: what concerns the CPU alone runs there.
  local function same(env, where)
    where = where or ""
    if not plain[where] then
      local text, ok = U.lua(source, where)
      assert.is_true(ok, text)
      plain[where] = text
    end
    local text, ok = U.lua(source, env .. " " .. where)
    assert.is_true(ok, env .. ": " .. text)
    assert.are.equal(plain[where], text, env)
  end

  it("take a part of what cat joins for that part, where it is one", function()
    local a = limn.randn(2, 3)
    local function steps(f)
      local g = limn.trace(f, a)
      for _, n in ipairs {2, 1, 4} do
        local x = limn.randn(n, 3)
        U.equal(g(x), U.flat(f(x)))
      end
      return tonumber(g:explain(limn.randn(2, 3)):match ": (%d+) steps")
    end
    local function joined(x, k)
      return limn.cat({x:unsqueeze(1), (-x):unsqueeze(1)}, 1)[{{k, k}}]
    end
    local one = steps(function(x) return x:unsqueeze(1):exp() end)
    local two = steps(function(x) return (-x):unsqueeze(1):exp() end)
    assert.are.equal(one, steps(function(x) return joined(x, 1):exp() end))
    assert.are.equal(two, steps(function(x) return joined(x, 2):exp() end))
    -- Of other sizes or dtypes they stay as they are.
    assert.is_true(two < steps(function(x)
      return limn.cat({x, -x}, 1)[{{2, 2}}]:exp()
    end))
    assert.is_true(one < steps(function(x)
      local y = limn.cat({x:unsqueeze(1), x:to "float64":unsqueeze(1)}, 1)
      return y[{{1, 1}}]:exp()
    end))
  end)

  it("can be switched off one by one, and results stay", function()
    for _, opt in ipairs {"-all", "-fuse", "-simplify"} do
      same("LIMN_OPT=" .. opt)
    end
    for _, opt in ipairs {"-inplace", "-gemm", "-prepack", "-pairs",
                          "-winograd"} do
      same("LIMN_OPT=" .. opt, "LIMN_DEVICES=cpu")
    end
  end)

  it("and instruction sets give the same numbers", function()
    for _, isa in ipairs {"base", "avx2"} do
      same("LIMN_ISA=" .. isa, "LIMN_DEVICES=cpu")
    end
  end)

  it("can be looked at: LIMN_DUMP writes what each stage made", function()
    local text = U.lua([[
      local limn = require "limn"
      local f = limn.trace(function(x) return (x * 2 + 1):tanh() end,
                           limn.ones(2))
      f(limn.ones(3))]], "LIMN_DUMP=gfp")
    assert.is_truthy(text:find "tanh", text)
  end)

  it("LIMN_VERIFY computes each run a second time and finds no difference",
     function()
    same "LIMN_VERIFY=1"
  end)
end)

describe("limn.grad", function()
  it("gives the gradients of a table of tensors in its form", function()
    local f = limn.grad(function(p, x)
      return (p.w * x + p.more[1] * p.more[2]):sum()
    end)
    local function p(dev)
      return {w = limn.tensor({1, 2}, dev),
              more = {limn.tensor({3, 4}, dev), limn.tensor(5, dev)}}
    end
    local g = limn.trace(function(q, x) return f(q, x) end, p "cpu",
                         limn.ones(2))
    U.each_device(function(dev)
      local x = limn.tensor({6, 7}, dev)
      for _, grads in ipairs {f(p(dev), x), g(p(dev), x)} do
        U.close(grads.w, {6, 7})
        U.close(grads.more[1], {5, 5})
        U.close(grads.more[2], {7})
      end
    end)
  end)

  it("names what is no tensor in a table", function()
    U.message(function()
      limn.grad(function(q) return q.w:sum() end) {w = limn.ones(2), n = 3}
    end, "not number")
  end)
end)
