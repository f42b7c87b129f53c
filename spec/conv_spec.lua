-- Convolution, pooling, resizing: PyTorch's numbers (spec/golden/nn.lua),
-- gradients, traced sizes, layers, errors.
local U = require "support.util"
local limn = U.limn
local nn = limn.nn

local definition = require "support.conv"
local letters = {"a", "b", "c"}

-- The case as a function of its inputs in alphabetical order.
local function compile(case)
  local f = assert(loadstring("local limn, nn = ... return function(a, b, c) "
    .. "return " .. case.expr .. " end", "=" .. case.name))
  return f(limn, nn)
end

local function inputs(case, dtype, dev)
  local list = {}
  for _, k in ipairs(letters) do
    local spec = case.inputs[k]
    if spec then
      list[#list + 1] = U.tensor(spec.data, spec.shape, dtype, dev)
    end
  end
  return list
end

-- The output and the gradients of all inputs.
local function both(f, x)
  local y = f(unpack(x))
  local _, g = limn.value_and_grad(function() return U.weigh(f(unpack(x))) end,
                                   x)()
  return y, g
end

local function compare(case, y, g, dtype, dev, how)
  local tol = dtype == "float64" and 1e-12 or 1e-5
  local want = case.outputs[1]
  how = ("%s on %s in %s"):format(how, dev, dtype)
  U.shape(y, want.shape, how)
  assert.are.equal(dtype, tostring(y.dtype), how)
  assert.are.equal(dev, tostring(y.device), how)
  U.close(y, want.data, tol, "max", how)
  for i = 1, #g do
    local grad = case.grads[letters[i]]
    U.shape(g[i], grad.shape, how)
    U.close(g[i], grad.data, tol, "max", how .. ", gradient " .. i)
  end
end

local function golden(case)
  local f = compile(case)
  U.each_device(function(dev)
    for _, dtype in ipairs {"float64", dev == "cpu" and "float32" or nil} do
      local y, g = both(f, inputs(case, dtype, dev))
      compare(case, y, g, dtype, dev, "eager")
    end
  end)
  local text
  U.each_device(function(from)
    local graph = limn.trace(function(...)
      local y, g = both(f, {...})
      return y, g
    end, unpack(inputs(case, "float64", from)))
    text = text or tostring(graph)
    assert.are.equal(text, tostring(graph))
    U.each_device(function(dev)
      for _, dtype in ipairs {"float64", "float32"} do
        local y, g = graph(unpack(inputs(case, dtype, dev)))
        compare(case, y, g, dtype, dev, "traced on " .. from .. ", run")
      end
    end)
  end)
end

local wanted = {"conv", "pool", "interpolate"}

describe("PyTorch's numbers:", function()
  for _, case in ipairs(dofile "spec/golden/nn.lua") do
    for _, word in ipairs(wanted) do
      if case.name:find(word, 1, true) and U.selected(case.name) then
        it(case.name, function() golden(case) end)
      end
    end
  end
end)

-- A convolution by definition, in plain Lua: x [N, C, H, W], w [O, C, k, k].
local function plain(x, w, pad)
  local xs, ws, out = x.shape, w.shape, {}
  local X, W = x:totable(), w:totable()
  for n = 1, xs[1] do
    for o = 1, ws[1] do
      for i = 1, xs[3] + 2 * pad - ws[3] + 1 do
        for j = 1, xs[4] + 2 * pad - ws[4] + 1 do
          local v = 0
          for c = 1, xs[2] do
            for y = 1, ws[3] do
              for z = 1, ws[4] do
                local row = X[n][c][i + y - 1 - pad]
                v = v + (row and row[j + z - 1 - pad] or 0) * W[o][c][y][z]
              end
            end
          end
          out[#out + 1] = v
        end
      end
    end
  end
  return out
end

describe("Views whose elements share memory", function()
  it("are assigned to element by element", function()
    local function alone(y)
      collectgarbage()
      collectgarbage()
      return y
    end
    local y = alone((limn.zeros(4) + 0):windows({2}, {1}, {1}))
    y[{1, 2}] = 9
    U.equal(y, {0, 9, 0, 0, 0, 0})
    y = alone((limn.zeros(1) + 0):expand(3))
    y[{1}] = 9
    U.equal(y, {9, 0, 0})
    y = alone((limn.zeros(1) + 0):expand(3))
    y:copy_from(limn.tensor {1, 2, 3})
    U.equal(y, {1, 2, 3})
  end)
end)

describe("Convolutions", function()
  it("of a graph take other sizes than those of the trace", function()
    local net = nn.Conv2d(3, 4, 3, {padding = 1})
    local g = limn.trace(net, limn.randn(2, 3, 8, 8))
    U.each_device(function(dev)
      for _, s in ipairs {{1, 3, 5, 9}, {3, 3, 1, 1}, {2, 3, 17, 4}} do
        local x = limn.randn(s)
        local want = plain(x, net.weight, 1)
        local y = g(x:to(dev)) - net.bias:reshape(-1, 1, 1):to(dev)
        U.close(y, want, 1e-5, 1)
      end
    end)
    U.shape(g(limn.randn(0, 3, 6, 6)), {0, 4, 6, 6})
  end)

  -- Enough of them for Winograd's tiles, on the CPU.
  it("with many channels agree with the definition", function()
    for _, c in ipairs {{{2, 17, 5, 9}, 16, 1}, {{1, 16, 3, 3}, 18, 0},
                        {{3, 16, 8, 31}, 16, 2}, {{1, 16, 1, 1}, 16, 3},
                        {{1, 16, 3, 281}, 16, 1}, {{9, 16, 6, 6}, 16, 1}} do
      local x, w = limn.randn(c[1]), limn.randn(c[2], c[1][2], 3, 3)
      local want = plain(x, w, c[3])
      U.close(nn.conv2d(x, w, nil, {padding = c[3]}), want, 1e-5, "max")
      U.close(nn.conv2d(x:to "float64", w:to "float64", nil, {padding = c[3]}),
              want, 1e-12, "max")
      U.each_device(function(dev)
        local o = {padding = c[3]}
        U.close(nn.conv2d(x:to(dev), w:to(dev), nil, o), want, 1e-5, "max")
      end)
      local function loss(a, b)
        return (nn.conv2d(a, b, nil, {padding = c[3]}) / 10):sin():sum()
      end
      local _, g = limn.value_and_grad(loss, {x, w})(x, w)
      local x64, w64 = x:to "float64", w:to "float64"
      local _, want_g = limn.value_and_grad(loss, {x64, w64})(x64, w64)
      U.close(g[1], U.flat(want_g[1]), 1e-5, "max")
      U.close(g[2], U.flat(want_g[2]), 1e-5, "max")
    end
  end)

  it("and their gradients agree with the definition in every dtype",
     function()
    local dtypes = {"float32", "float64", "float16", "bfloat16", "int64",
                    "int32", "int8", "uint8"}
    for i, case in ipairs(definition.cases) do
      U.each_device(function(dev)
        for j, dtype in ipairs(dtypes) do
          -- All dtypes over the cases, all cases in float32.
          if j == 1 or (i + j) % 4 == 0 then
            definition.check(case, dtype, dev)
          end
        end
      end)
    end
  end)

  it("do what follows element by element in their own step", function()
    local one, none = {1, 1}, {0, 0}
    local forms = {
      {{2, 5, 13, 12}, {7, 5, 3, 2}, {2, 1}}, {{3, 4, 5, 5}, {6, 4, 1, 1}, one},
      {{3, 16, 9, 8}, {18, 16, 3, 3}, one}, -- Winograd's
      {{2, 5, 7, 6}, {5, 4, 3, 4}, {3, 2}, true}, {{2, 3, 6, 5}, {3, 4, 2, 2},
      one, true}}
    for _, form in ipairs(forms) do
      local x, w = limn.randn(form[1]), limn.randn(form[2])
      local function conv(v)
        if not form[4] then return v:conv(w, form[3], none, one) end
        return v:conv_transpose(w, form[3], none, none, one)
      end
      local y = conv(x)
      local b, r = limn.randn(y:size(2), 1, 1), limn.randn(y.shape)
      local g = limn.trace(function(v, m)
        local z = (conv(v) + b):relu() * m
        return z + limn.rand(z:size()):gt(0.5):to "float32"
      end, x, r)
      limn.manual_seed(3)
      local want = (y + b):relu() * r
      want = want + limn.rand(y.shape):gt(0.5):to "float32"
      U.each_device(function(dev)
        limn.manual_seed(3)
        U.close(g(x:to(dev), r:to(dev)), U.flat(want), 1e-4, "max")
      end)
      assert.is_truthy(g:explain(x, r):find ": 1 step", g:explain(x, r))
    end
  end)

  it("give the same bits for every number of threads", function()
    local code = [[
      local limn = require "limn"
      limn.manual_seed(1)
      local x, w = limn.randn(3, 20, 21, 19), limn.randn(24, 20, 3, 3)
      local v, out = limn.randn(24, 10, 2, 4), {}
      for _, o in ipairs {{x, w, {1, 1}, 1}, {x, v, {2, 3}, 2}} do
        local p, d, groups = {1, 1}, {1, 1}, {groups = o[4]}
        local y = limn.conv(o[1], o[2], o[3], p, d, groups)
        local back = limn.conv_transpose(y, o[2], o[3], p, {0, 0}, d, groups)
        local g = limn.conv_weights(o[1], y, o[2], o[3], p, d, groups)
        out[#out + 1] = y:bytes() .. back:bytes() .. g:bytes()
      end
      io.write(table.concat(out))
    ]]
    local function run(threads)
      local pipe = io.popen(("LIMN_THREADS=%d luajit -e '%s'"):format(threads,
                                                                     code))
      local bytes = pipe:read "*a"
      pipe:close()
      return bytes
    end
    local one = run(1)
    assert.is_true(#one > 100000)
    for _, threads in ipairs {2, 3} do
      assert.is_true(one == run(threads), threads .. " threads")
    end
  end)

  -- The windows of these would take 110 MB.
  it("take no memory for windows, however many rows", function()
    local w, v = limn.randn(8, 8, 5, 5), limn.randn(8, 8, 4, 4)
    local function all(rows)
      local x = limn.randn(rows, 8, 33, 33)
      local y = nn.conv2d(x, w, nil, {padding = 2})
      limn.conv_weights(x, y, w, {1, 1}, {2, 2}, {1, 1})
      nn.conv_transpose2d(y, w, nil, {padding = 2})
      nn.conv_transpose2d(y, v, nil, {stride = 2})
    end
    local function held()
      collectgarbage()
      collectgarbage()
      return limn.counters().bytes
    end
    all(2)
    local before = held()
    all(128)
    assert.is_true(held() - before < 200000)
  end)

  it("of no rows give none", function()
    local w = limn.randn(16, 16, 3, 3)
    U.shape(nn.conv2d(limn.zeros(0, 16, 5, 5), w), {0, 16, 3, 3})
  end)

  it("differentiate twice", function()
    local x, w = limn.randn(1, 2, 4, 4), limn.randn(2, 2, 3, 3)
    local function slope(v)
      local _, g = limn.value_and_grad(function()
        return nn.conv2d(x, v, nil, {stride = 2, padding = 1}):square():sum()
      end, {v})()
      return g[1]
    end
    local f = limn.trace(function(v)
      local h = limn.grad(function(u)
        local g = limn.grad(function(t)
          return nn.conv2d(x, t, nil, {stride = 2, padding = 1}):square():sum()
        end)(u)
        return (g * g):sum()
      end)(v)
      return h
    end, w)
    local eps, got = 1e-2, U.flat(f(w))
    for _, k in ipairs {1, 7, 20} do
      local d = limn.zeros(36)
      d[k] = eps
      d = d:reshape(2, 2, 3, 3)
      local a, b = slope(w + d):square():sum(), slope(w - d):square():sum()
      U.close({(a:item() - b:item()) / (2 * eps)}, {got[k]}, 1e-2)
    end
  end)

  it("take one example without rows, 'same' and 'valid' padding", function()
    local x, w = limn.randn(2, 6, 5), limn.randn(3, 2, 4, 2)
    U.shape(nn.conv2d(x, w), {3, 3, 4})
    U.shape(nn.conv2d(x, w, nil, {padding = "valid"}), {3, 3, 4})
    U.shape(nn.conv2d(x, w, nil, {padding = "same"}), {3, 6, 5})
    U.shape(nn.conv1d(limn.randn(2, 9), limn.randn(4, 2, 3)), {4, 7})
  end)

  it("of halves compute in float32", function()
    local x, w = limn.randn(1, 2, 5, 5), limn.randn(3, 2, 3, 3)
    U.each_device(function(dev)
      local y = nn.conv2d(x:to(dev):to "float16", w:to(dev):to "float16")
      assert.are.equal("float16", tostring(y.dtype))
      U.close(y:to "float32", nn.conv2d(x, w), 1e-2, "max")
    end)
  end)
end)

describe("Pools", function()
  it("take the first of equals, and give it the gradient", function()
    local x = limn.zeros(1, 1, 4, 5)
    U.each_device(function(dev)
      local v = x:to(dev)
      local _, g = limn.value_and_grad(function()
        return nn.max_pool2d(v, 2):sum()
      end, {v})()
      U.equal(g[1], {1, 0, 1, 0, 0, 0, 0, 0, 0, 0,
                     1, 0, 1, 0, 0, 0, 0, 0, 0, 0})
      _, g = limn.value_and_grad(function()
        return nn.max_pool2d(v, 3, {stride = 1}):sum()
      end, {v})()
      U.equal(g[1], {1, 1, 1, 0, 0, 1, 1, 1, 0, 0,
                     0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
    end)
  end)

  -- max_pool2, max_pool2_back, and max_pool2_f32 and max_pool2_f32_back behind
  -- them, against one dim after another.
  it("over two dims agree with pools along each, and their gradients",
     function()
    local function one(x, o)
      for i = 2, 1, -1 do
        x = limn.pool(x, i - 3, o[1][i], o[2][i], 1, "max")
      end
      return x
    end
    local function two(x, o)
      return limn.max_pool2(x, o[1][1], o[1][2], o[2][1], o[2][2])
    end
    local function results(f, o, x, t)
      local g = limn.grad(function(u) return (f(u, o) * t):sum() end)
      local h = limn.grad(function(u) return (g(u) * u):square():sum() end)
      return f(x, o), g(x), h(x)
    end
    local shapes = {{2, 3, 9, 37}, {1, 6, 70}, {2, 8, 8}}
    local options = {{{2, 2}, {2, 2}}, {{3, 2}, {1, 3}}, {{1, 3}, {2, 1}},
                     {{2, 2}, {3, 2}}, {{4, 4}, {2, 2}}}
    U.each_device(function(dev)
      for _, shape in ipairs(shapes) do
        for _, o in ipairs(options) do
          -- Whole numbers: many windows hold equals.
          local x = limn.randint(1, 3, shape, "float32"):to(dev)
          local t = limn.randn(two(x, o):size()):to(dev)
          local g = limn.trace(function(a, b)
            return results(two, o, a, b)
          end, x, t)
          local want = {results(one, o, x, t)}
          for i, y in ipairs {g(x, t)} do U.close(y, want[i], 1e-5, "max") end
          local y = two(limn.where(x:eq(2), 0 / 0, x), o)
          local w = one(limn.where(x:eq(2), 0 / 0, x), o)
          U.equal(y:isnan():to "int64", w:isnan():to "int64")
        end
      end
    end)
    U.message(function()
      limn.core.ops.max_pool2_f32(limn.ones {2, 2, dtype = "int8"}, 2, 2, 2, 2)
    end, "float32", "int8")
  end)

  it("pass NaN on and ignore their margins", function()
    local x = limn.tensor({-1, 0 / 0, -3, -4}):reshape(1, 1, 4)
    local y = nn.max_pool1d(x, 2, {stride = 2, padding = 1})
    U.equal(y, {-1, 0 / 0, -4})
  end)

  it("give NaN the gradient of its windows", function()
    local x = limn.arange(1, 16):to "float32":reshape(1, 1, 4, 4)
    x[{1, 1, 2, 2}] = 0 / 0
    for _, o in ipairs {{2, 1}, {3, 1}, {{kernel = 3, stride = 1}, 4}} do
      local g = limn.trace(limn.grad(function(v)
        return nn.max_pool2d(v, o[1]):sum()
      end), x)
      U.each_device(function(dev)
        assert.are.equal(o[2], g(x:to(dev)):at(1, 1, 2, 2))
      end)
    end
  end)

  it("average with and without their margins", function()
    local x = limn.tensor({1, 2, 3, 4}):reshape(1, 1, 4)
    local o = {stride = 2, padding = 1}
    U.close(nn.avg_pool1d(x, 2, o), {0.5, 2.5, 2})
    o.count_include_pad = false
    U.close(nn.avg_pool1d(x, 2, o), {1, 2.5, 4})
    U.close(nn.avg_pool1d(x, {kernel = 2, divisor = 1}), {3, 7})
  end)

  it("adapt to any size, traced too", function()
    local f = limn.trace(function(x)
      return nn.adaptive_avg_pool1d(x, 3), nn.adaptive_max_pool1d(x, 3),
        nn.adaptive_avg_pool2d(x:unsqueeze(3), 1),
        nn.adaptive_max_pool2d(x:unsqueeze(3), 1)
    end, limn.randn(1, 2, 9))
    U.each_device(function(dev)
      local x = limn.tensor({1, 5, 3, 9, 2, -1, -2, -3}):reshape(1, 2, 4)
      local a, b, c, d = f(x:to(dev))
      U.close(a, {3, 4, 6, 0.5, -1.5, -2.5})
      U.close(b, {5, 5, 9, 2, -1, -2})
      U.close(c, {4.5, -1})
      U.close(d, {9, 2})
      U.close((f(limn.ones(1, 2, 2):to(dev))), {1, 1, 1, 1, 1, 1})
    end)
  end)

  it("that adapt give the largest the gradient", function()
    local x = limn.tensor({1, 5, 3, 9}):reshape(1, 1, 4)
    local _, g = limn.value_and_grad(function()
      return nn.adaptive_max_pool1d(x, 3):sum()
    end, {x})()
    U.close(g[1], {0, 2, 0, 1})
  end)
end)

describe("unfold and fold", function()
  it("are each other's transpose", function()
    U.each_device(function(dev)
      local x = limn.randn(2, 3, 5, 4):to(dev)
      local o = {kernel = {3, 2}, stride = {2, 1}, padding = {1, 0}}
      local u = nn.unfold(x, o)
      U.shape(u, {2, 18, 9})
      local v = limn.randn(2, 18, 9):to(dev)
      local back = nn.fold(v, {5, 4}, o)
      U.shape(back, {2, 3, 5, 4})
      U.close((u * v):sum(), U.flat((x * back):sum()), 1e-4)
      local _, g = limn.value_and_grad(function()
        return (nn.unfold(x, o) * v):sum()
      end, {x})()
      U.close(g[1], U.flat(back), 1e-5)
    end)
  end)

  it("make a convolution a product", function()
    local x, w = limn.randn(2, 3, 6, 5), limn.randn(4, 3, 3, 3)
    local y = w:reshape(4, 27):matmul(nn.unfold(x, 3)):reshape(2, 4, 4, 3)
    U.close(y, U.flat(nn.conv2d(x, w)), 1e-5)
  end)
end)

describe("interpolate", function()
  local x = limn.tensor({1, 2, 3, 4}):reshape(1, 1, 4)
  it("scales by a factor", function()
    U.close(nn.interpolate(x, {scale_factor = 2}), {1, 1, 2, 2, 3, 3, 4, 4})
    U.close(nn.interpolate(x, {scale_factor = 0.5}), {1, 3})
    U.close(nn.interpolate(x, {scale_factor = 2, mode = "linear"}),
            {1, 1.25, 1.75, 2.25, 2.75, 3.25, 3.75, 4})
  end)
  it("lets corners meet", function()
    U.close(nn.interpolate(x, {size = 7, mode = "linear",
                               align_corners = true}),
            {1, 1.5, 2, 2.5, 3, 3.5, 4})
    U.close(nn.interpolate(x, {size = 1, mode = "linear",
                               align_corners = true}), {1})
  end)
  it("resizes any size of a trace", function()
    local f = limn.trace(nn.Upsample {scale_factor = 2},
                         limn.randn(1, 1, 2, 2))
    U.each_device(function(dev)
      U.close(f(limn.tensor({1, 2}):reshape(1, 1, 1, 2):to(dev)),
              {1, 1, 2, 2, 1, 1, 2, 2})
    end)
  end)
end)

describe("Layers", function()
  it("have PyTorch's shapes and first values", function()
    limn.manual_seed(3)
    local c = nn.Conv2d(4, 6, {3, 5}, {groups = 2, stride = {2, 1},
                                       padding = 1, bias = false})
    U.shape(c.weight, {6, 2, 3, 5})
    assert.is_nil(c.bias)
    local bound = 1 / math.sqrt(30)
    local top = c.weight:abs():max():item()
    assert.is_true(top <= bound and top > 0.9 * bound)
    U.shape(c(limn.randn(1, 4, 7, 8)), {1, 6, 4, 6})
    assert.is_truthy(tostring(c):find("Conv2d(4, 6, {3, 5}, {stride = {2, 1}, "
      .. "padding = 1, groups = 2, bias = false})", 1, true), tostring(c))
    local t = nn.ConvTranspose2d(4, 6, 3, {stride = 2, groups = 2})
    U.shape(t.weight, {4, 3, 3, 3})
    U.shape(t(limn.randn(1, 4, 5, 5)), {1, 6, 11, 11})
    U.shape(nn.ConvTranspose1d(2, 3, 4)(limn.randn(1, 2, 5)), {1, 3, 8})
    U.shape(nn.Conv1d(2, 3, 4)(limn.randn(1, 2, 5)), {1, 3, 2})
  end)

  it("train in a net on each device", function()
    U.each_device(function(dev)
      limn.manual_seed(1)
      local net = nn.Sequential(nn.Conv2d(1, 4, 3, {padding = 1}), nn.ReLU(),
        nn.MaxPool2d(2), nn.Conv2d(4, 8, 3), nn.ReLU(),
        nn.AvgPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(8, 2))
      local x = limn.randn(16, 1, 12, 12)
      local t = x[{{}, 1, {1, 6}}]:mean({2, 3}):gt(0):to "int64" + 1
      local opt = limn.optim.Adam(net, {lr = 0.02})
      local loss = limn.value_and_grad(function(a, b)
        return nn.cross_entropy(net(a), b)
      end, net)
      local step = limn.jit(function(a, b)
        local l, g = loss(a, b)
        opt:step(g)
        return l
      end)
      local first, last
      for _ = 1, 60 do
        last = step(x:to(dev), t:to(dev)):item()
        first = first or last
      end
      assert.is_true(last < 0.5 * first, first .. " " .. last)
    end)
  end)
end)

describe("Errors of convolutions and pools", function()
  local net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(4, 8, 3))
  it("name the layer's path, both shapes and the line", function()
    U.message(function() limn.trace(net, limn.randn(2, 3, 9, 9)) end,
      "conv_spec.lua", "x has 8 channels where w takes 4",
      "%[2, 8, 7, 7%]", "%[8, 4, 3, 3%]", "3")
    U.message(function() nn.conv2d(limn.randn(1, 3, 5, 5),
                                   limn.randn(4, 3, 7, 7)) end,
      "window of 7 does not fit into dim 3, whose size is 5")
    U.message(function()
      nn.conv2d(limn.randn(1, 3, 5, 5), limn.randn(4, 1, 3, 3), nil,
                {groups = 2})
    end, "3 channels cannot be shared out among 2 groups", "%[1, 3, 5, 5%]")
  end)
  it("come in a run whose sizes do not fit", function()
    local g = limn.trace(nn.Conv2d(1, 1, 3), limn.randn(1, 1, 5, 5))
    U.each_device(function(dev)
      U.message(function() g(limn.randn(1, 1, 2, 5):to(dev)) end,
                "window of 3 does not fit into dim 3, whose size is 2")
    end)
  end)
  it("say what is wrong with an argument", function()
    local x = limn.randn(1, 1, 4, 4)
    U.message(function() nn.max_pool2d(x, 5) end,
              "window of 5 does not fit", "size is 4")
    U.message(function() nn.max_pool2d(x, {kernel = 2, padding = 2}) end,
              "padding of 2 is more than half of the kernel 2")
    U.message(function() nn.max_pool2d(x) end, "the kernel is missing")
    U.message(function() nn.max_pool2d(x, {kernels = 2}) end, "kernel")
    U.message(function() nn.conv2d(limn.randn(3, 4), x) end,
              "the input has 2 dims instead of 4")
    U.message(function() nn.conv2d(x, x, nil, {stride = {1, 2, 3}}) end,
              "stride is a number or a list of 2")
    U.message(function() nn.conv2d(x, x, nil, {stride = 0}) end,
              "stride is 0; it is at least 1")
    U.message(function()
      nn.conv_transpose2d(x, limn.randn(1, 1, 2, 2), nil,
                          {output_padding = 1})
    end, "output_padding is 1")
    U.message(function() nn.Conv2d(3, 8, 3, {groups = 2}) end,
              "3 and 8 channels cannot be shared out among 2 groups")
    U.message(function() nn.interpolate(x, {size = 2, mode = "linear"}) end,
              "no mode 'linear' for an input with 4 dims")
    U.message(function() x:windows({5, 1}, {1, 1}, {1, 1}) end,
              "window of 5 does not fit into dim 3")
  end)
end)
