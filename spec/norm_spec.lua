-- Layers that normalise: over the last dims, groups and batches.
local U = require "support.util"
local L = require "support.layers"
local limn = U.limn
local nn = limn.nn
local everywhere, refuses, state = L.everywhere, L.refuses, L.state

describe("Normalising layers", function()
  it("LayerNorm works over the dims of its shape", function()
    limn.manual_seed(1)
    local l = nn.LayerNorm {3, 4}
    l.weight:assign(limn.randn(3, 4))
    l.bias:assign(limn.randn(3, 4))
    local x = limn.randn(2, 3, 4)
    local m = x:mean {dim = {2, 3}, keepdim = true}
    local v = x:var {dim = {2, 3}, keepdim = true, unbiased = false}
    everywhere(l, {x}, (x - m) / (v + 1e-5):sqrt() * l.weight + l.bias)
    assert.is_nil(rawget(nn.LayerNorm(3, {elementwise_affine = false}),
                         "weight"))
    assert.is_nil(rawget(nn.LayerNorm(3, {bias = false}), "bias"))
    refuses(nn.LayerNorm(4), {limn.ones(2, 1)}, "%[2, 1%]", "%[%.%.%., 4%]")
    refuses(nn.LayerNorm {3, 4}, {limn.ones(4)}, "%[4%]", "3, 4")
    U.message(function() nn.LayerNorm(2.5) end, "2.5")
    U.message(function() nn.LayerNorm(4, {epsilon = 1}) end, "epsilon")
  end)

  it("a graph of LayerNorm runs for any number of rows", function()
    local l = nn.LayerNorm(5)
    local g = limn.trace(l, limn.spec({"rows", 5}))
    for _, n in ipairs {0, 1, 7} do
      local x = limn.randn(n, 5)
      U.close(g(x), l(x), 1e-6)
    end
  end)

  it("RMSNorm takes no mean off", function()
    local l = nn.RMSNorm(4, {eps = 0.5})
    l.weight:assign(limn.tensor {1, 2, 3, 4})
    local x = limn.randn(3, 4)
    local v = x:square():mean {dim = 2, keepdim = true}
    everywhere(l, {x}, x / (v + 0.5):sqrt() * l.weight)
    refuses(nn.RMSNorm(4), {limn.ones(2, 3)}, "%[2, 3%]", "4%]")
  end)

  it("GroupNorm and InstanceNorm work over channels", function()
    local g = nn.GroupNorm(2, 4)
    g.weight:assign(limn.tensor {1, 2, 3, 4})
    local x = limn.randn(2, 4, 3)
    local z = x:reshape(2, 2, 6)
    z = z - z:mean {dim = 3, keepdim = true}
    z = z / (z:square():mean {dim = 3, keepdim = true} + 1e-5):sqrt()
    everywhere(g, {x}, z:reshape(2, 4, 3) * g.weight:unsqueeze(2))
    local i = nn.InstanceNorm1d(4)
    everywhere(i, {x}, nn.GroupNorm(4, 4, {affine = false})(x))
    local x2 = limn.randn(2, 3, 4, 5)
    everywhere(nn.InstanceNorm2d(3, {affine = true}), {x2},
               nn.instance_norm(x2))
    refuses(nn.GroupNorm(2, 4), {limn.ones(2, 6, 3)}, "%[2, 6, 3%]",
            "%[rows, 4, %.%.%.%]")
    refuses(nn.InstanceNorm2d(3), {limn.ones(2, 3, 4)}, "%[2, 3, 4%]",
            "%[rows, 3, position, position%]")
    U.message(function() nn.GroupNorm(3, 4) end, "4 channels", "3 groups")
  end)
end)

describe("Halves", function()
  it("are normalised in float32", function()
    local x = limn.randn(3, 1500) * 4
    for dtype, tol in pairs {float16 = 4e-3, bfloat16 = 3e-2} do
      U.each_device(function(dev)
        local h = x:to(dtype)
        local want = nn.layer_norm(h:to "float64")
        local l = nn.LayerNorm(1500, {dtype = dtype})
        local y = limn.on(dev, function() return l(h:to(dev)) end)
        assert.are.equal(dtype, y.dtype)
        U.close(y:to "float32", want, tol, 1)
        y = nn.rms_norm(h:to(dev), {eps = 1e-5})
        want = h:to "float64":square():mean {dim = 2, keepdim = true}
        U.close(y:to "float32", h:to "float64" / (want + 1e-5):sqrt(), tol, 1)
      end)
    end
  end)
end)

-- First and second gradients, against those of plain compositions; the rows
-- behind them are layer_norm_back, layer_norm_sums, rms_norm_back,
-- rms_norm_sums, softmax_back and log_softmax_back.
describe("Gradients of", function()
  -- Of the sum of f(x...) * t with respect to x, then of x[1]'s.
  local function gradients(f, x, t)
    local function first()
      local _, g = limn.value_and_grad(function()
        return (f(unpack(x)) * t):sum()
      end, x)()
      return g
    end
    local out = first()
    local _, second = limn.value_and_grad(function()
      return (first()[1] * t):square():sum()
    end, {x[1]}, {unused = "zeros"})()
    out[#out + 1] = second[1]
    return unpack(out)
  end

  -- mine and plain take tensors of these shapes, the first as their result's.
  local function agree(mine, plain, shapes, dev)
    local x = {}
    for i, shape in ipairs(shapes) do
      x[i] = limn.randn(shape, {dtype = "float64"}):to(dev)
    end
    local t = limn.randn(shapes[1], {dtype = "float64"}):to(dev)
    local want = {gradients(plain, x, t)}
    local list = {unpack(x)}
    list[#list + 1] = t
    local g = limn.trace(function(...)
      local v = {...}
      local u = table.remove(v)
      return gradients(mine, v, u)
    end, unpack(list))
    for how, got in pairs {eager = {gradients(mine, x, t)},
                           traced = {g(unpack(list))}} do
      assert.are.equal(#want, #got)
      for i, w in ipairs(want) do
        U.close(got[i], w, 1e-9, "max", how .. " " .. i)
      end
    end
    for i, v in ipairs(list) do list[i] = v:to "float32" end
    for i, v in ipairs {g(unpack(list))} do
      if i <= #shapes then U.close(v, want[i], 1e-4, "max") end
    end
    for i, v in ipairs(list) do list[i] = v:to "bfloat16" end
    for i, v in ipairs {g(unpack(list))} do
      if i <= #shapes then U.close(v:to "float32", want[i], 6e-2, "max") end
    end
  end

  local function centre(x, dims)
    return x - x:mean {dim = dims, keepdim = true}
  end
  local function scaled(x, dims)
    return x / (x:square():mean {dim = dims, keepdim = true} + 1e-3):sqrt()
  end

  for _, name in ipairs {"layer_norm", "rms_norm"} do
    it(name .. " agree with compositions", function()
      local function plain(x, w, b)
        if name == "layer_norm" then x = centre(x, {-1}) end
        local y = scaled(x, {-1})
        if w then y = y * w end
        return b and y + b or y
      end
      U.each_device(function(dev)
        for _, shape in ipairs {{2, 3, 5}, {140, 5}, {2, 3, 1300}} do
          local n = shape[#shape]
          local shapes = {shape, {n}, {n}}
          if name == "rms_norm" then shapes[3] = nil end
          while #shapes > 0 do
            agree(function(x, w, b)
              return nn[name](x, {shape = n, weight = w, eps = 1e-3, bias = b})
            end, plain, shapes, dev)
            table.remove(shapes)
          end
        end
      end)
    end)
  end

  it("batch_norm agree with compositions, in training and not", function()
    local mean = limn.tensor({1, 2, 3}, "float64")
    local var = limn.tensor({0.5, 2, 1}, "float64")
    local function channels(v, x)
      return v:reshape {3, unpack({1, 1}, 1, x:dim() - 2)}
    end
    U.each_device(function(dev)
      for _, shape in ipairs {{4, 3}, {2, 3, 4, 50}} do
        for _, training in ipairs {true, false} do
          local m, v = mean:to(dev), var:to(dev)
          local shapes = {shape, {3}, {3}}
          while #shapes > 0 do
            agree(function(x, w, b)
              return nn.batch_norm(x, {weight = w, bias = b, eps = 1e-3,
                training = training, running_mean = m, running_var = v})
            end, function(x, w, b)
              local dims = {1, unpack({3, 4}, 1, x:dim() - 2)}
              local y
              if training then
                y = scaled(centre(x, dims), dims)
              else
                y = (x - channels(m, x)) / (channels(v, x) + 1e-3):sqrt()
              end
              if w then y = y * channels(w, x) end
              return b and y + channels(b, x) or y
            end, shapes, dev)
            table.remove(shapes)
          end
        end
      end
    end)
  end)

  it("softmax and log_softmax agree with compositions", function()
    U.each_device(function(dev)
      for _, shape in ipairs {{3, 5}, {2, 1300}, {2, 7, 300}} do
        agree(function(x) return x:softmax(2) end, function(x)
          return x:exp() / x:exp():sum(2, true)
        end, {shape}, dev)
        agree(function(x) return x:log_softmax(2) end, function(x)
          return x - x:exp():sum(2, true):log()
        end, {shape}, dev)
      end
    end)
  end)

  it("softmax in float32 takes rows of any length", function()
    U.each_device(function(dev)
      for _, n in ipairs {1, 15, 63, 64, 65, 130, 4096, 4170} do
        local x = limn.randn(3, n) * 4
        U.close(x:to(dev):softmax(2), U.flat(x:to "float64":softmax(2)), 1e-5,
                "max")
      end
    end)
  end)
end)

describe("Steps over rows", function()
  it("give large tensors what they give a part of them, bit for bit",
  function()
    for _, n in ipairs {64, 1024, 3000} do
      local rows = math.ceil(5e6 / n)
      local x = limn.randn(rows, n)
      local w, b = limn.randn(n), limn.randn(n)
      local part = math.floor(rows / 3)
      for name, f in pairs {
        softmax = function(y) return y:softmax(2) end,
        log_softmax = function(y) return y:log_softmax(2) end,
        layer_norm = function(y)
          return nn.layer_norm(y, {weight = w, bias = b})
        end,
        rms_norm = function(y) return nn.rms_norm(y, {weight = w}) end,
        elementwise = function(y) return y * 2 + w end,
        softmax_grad = limn.grad(function(y)
          return (y:softmax(2) * w):sum()
        end),
        layer_norm_grad = limn.grad(function(y)
          return (nn.layer_norm(y, {weight = w}) * b):sum()
        end)} do
        local want = f(x[{{part, part + 20}}])
        local got = f(x)[{{part, part + 20}}]
        assert.are.equal(0, (got - want):abs():max():item(), name .. " " .. n)
      end
      collectgarbage()
    end
  end)

  it("give the gradients of layer norm, its weight and bias in one",
  function()
    local x, w = limn.randn(5, 7), limn.randn(7)
    for _, name in ipairs {"layer_norm", "rms_norm"} do
      local g = limn.trace(function(...)
        return limn.grad(function(p)
          return nn[name](p[1], {weight = p[2]}):square():sum()
        end) {...}
      end, x, w)
      local text = g:explain(x, w)
      assert.matches("norm " .. name .. "_back [^<]*%[1, 2, 7%] <%-", text)
      assert.is_nil(text:find("norm " .. name .. "_sums", 1, true), text)
    end
  end)
end)

-- What batch norm takes of the channels, forwards and backwards: rows
-- batch_norm_stats and batch_norm_sums.
describe("Statistics of channels", function()
  local ops = require "limn.core".ops

  -- Two numbers per channel of x, and of x and g, in double from x:to(dtype).
  local function two(x, g, dims)
    local mean = x:mean {dim = dims, keepdim = true}
    local d = x - mean
    return limn.cat({mean, d:square():mean {dim = dims, keepdim = true}}, 1),
      limn.cat({(g * d):sum(dims, true), g:sum(dims, true)}, 1)
  end

  local function agree(x, g, dev, name)
    local dims = {1}
    for i = 3, x:dim() do dims[#dims + 1] = i end
    for dtype, tol in pairs {float32 = 1e-5, float64 = 1e-12,
                             float16 = 1e-5} do
      local a, b = x:to(dtype):to(dev), g:to(dtype):to(dev)
      local want, sums = two(a:to "float64", b:to "float64", dims)
      local got = ops.batch_norm_stats(a)
      local wide = dtype == "float64" and "float64" or "float32"
      assert.are.equal(wide, got.dtype)
      U.close(got:to "float64", want, tol, "max", name .. " " .. dtype)
      got = ops.batch_norm_sums(a, b, want[{{1, 1}}]:to(wide))
      assert.are.equal(wide, got.dtype)
      U.close(got:to "float64", sums, tol, "max", name .. " " .. dtype)
    end
  end

  it("are those of float64 for rows of any length and number", function()
    U.each_device(function(dev)
      for _, shape in ipairs {{1000, 3}, {5, 64}, {37, 300}, {7, 5, 2},
                              {300, 7, 3, 3}, {4, 8, 130}, {9, 2, 1000},
                              {3, 2, 4097}, {1, 1, 70000}} do
        local x = limn.randn(shape) * 2 + 3
        agree(x, limn.randn(shape), dev, table.concat(shape, " "))
      end
    end)
  end)

  it("take channels that lie last, or anyhow", function()
    U.each_device(function(dev)
      local x, g = limn.randn(6, 50, 7) + 1, limn.randn(6, 50, 7)
      x, g = x:to(dev), g:to(dev)
      agree(x:transpose(2, 3), g:transpose(2, 3), dev, "both")
      agree(x:transpose(2, 3), g:transpose(2, 3) + 0, dev, "one")
      agree(x:permute(3, 2, 1), g:permute(3, 2, 1), dev, "other dims")
    end)
  end)

  it("do not cancel where the mean is large and moves", function()
    local steps = limn.arange(1, 4096):reshape(64, 1, 64):to "float32"
    for _, x in ipairs {limn.randn(64, 2, 64) * 0.1 + 4096,
                        limn.randn(64, 2, 64) + steps,
                        (limn.randn(64, 2, 64) + steps):reshape(64, 128),
                        limn.randn(2, 2, 9000) * 0.1 + 4096} do
      local dims = {1, x:dim() > 2 and 3 or nil}
      local got = ops.batch_norm_stats(x)[2]
      local want = x:to "float64":var {dim = dims, unbiased = false}
      U.close(got, U.flat(want), 1e-4)
    end
  end)

  it("of no values are no numbers, and sums of none are 0", function()
    U.each_device(function(dev)
      for _, shape in ipairs {{0, 3}, {0, 3, 5}, {2, 3, 0}} do
        local x = limn.ones(shape):to(dev)
        local got = ops.batch_norm_stats(x)
        assert.are.equal(6, got:isnan():to "int64":sum():item())
        got = ops.batch_norm_sums(x, x, got[{{1, 1}}])
        U.close(got, {0, 0, 0, 0, 0, 0}, 0, 1)
      end
    end)
  end)

  it("are the same bit for bit for every number of threads", function()
    local source = [[
      local limn = require "limn"
      local ops = require "limn.core".ops
      limn.manual_seed(2)
      for _, shape in ipairs {{40000, 8}, {8, 3, 20000}, {64, 64, 33}} do
        local x, g = limn.randn(shape), limn.randn(shape)
        local two = ops.batch_norm_stats(x)
        for _, y in ipairs {two, ops.batch_norm_sums(x, g, two[{{1, 1}}])} do
          for _, v in ipairs(y:reshape(-1):totable()) do
            io.write(("%.17g "):format(v))
          end
        end
      end]]
    local one = U.lua(source, "LIMN_THREADS=1 LIMN_DEVICES=cpu")
    assert.matches("^[%d%.e -]+$", one)
    for _, n in ipairs {2, 3} do
      local text = U.lua(source, "LIMN_DEVICES=cpu LIMN_THREADS=" .. n)
      assert.are.equal(one, text)
    end
  end)

  it("are a step on the CPU, and nothing is copied for them elsewhere",
  function()
    local function f(x, w, b)
      return (nn.batch_norm(x, {weight = w, bias = b, training = true}))
    end
    local x, w, b = limn.randn(4, 3, 5), limn.randn(3), limn.randn(3)
    local forward = limn.trace(f, x, w, b)
    local back = limn.trace(function(...)
      return limn.grad(function(p) return f(unpack(p)):square():sum() end) {...}
    end, x, w, b)
    U.each_device(function(dev)
      local on = {x:to(dev), w:to(dev), b:to(dev)}
      local text = forward:explain(unpack(on))
      assert.matches(dev == "cpu" and ": 3 steps" or ": 5 steps", text)
      text = back:explain(unpack(on))
      if dev == "cpu" then
        assert.matches("batch_norm_sums", text)
        assert.is_nil(text:find "reduce")
      else
        assert.is_nil(text:find("{ load store }", 1, true), text)
      end
    end)
  end)
end)

describe("BatchNorm", function()
  it("multiplies and adds once per element in inference", function()
    local function call(x, p)
      return (nn.batch_norm(x, {running_mean = p[1], running_var = p[2],
                                weight = p[3], bias = p[4]}))
    end
    local x, p = limn.randn(4, 3, 5), limn.rand(4, 3) + 1
    local layer = nn.BatchNorm1d(3)
    layer:eval()
    for _, text in ipairs {limn.trace(call, x, p):explain(x, p),
                           limn.trace(layer, x):explain(x)} do
      assert.matches("{ load load mul load add store }", text, 1, true)
    end
    local function c(i) return p[i]:reshape(1, 3, 1) end
    local want = (x - c(1)) / (c(2) + 1e-5):sqrt() * c(3) + c(4)
    U.close(call(x, p), U.flat(want), 1e-5, "max")
  end)

  it("takes up the batch's statistics in training, as PyTorch does", function()
    for _, shape in ipairs {{5, 3}, {4, 3, 2}, {4, 3, 2, 2}} do
      local Class = #shape == 4 and nn.BatchNorm2d or nn.BatchNorm1d
      local b = Class(3, {momentum = 0.2})
      local x = limn.randn(shape) * 3 + 1
      local rows = x:transpose(1, 2):reshape(3, -1)
      local y = b(x)
      U.close(b.running_mean, rows:mean(2) * 0.2, 1e-5)
      U.close(b.running_var, rows:var(2) * 0.2 + 0.8, 1e-5)
      U.equal(b.num_batches_tracked, {1})
      local z = y:transpose(1, 2):reshape(3, -1)
      U.close(z:mean(2), {0, 0, 0}, 1e-5, 1)
      U.close(z:var {dim = 2, unbiased = false}, {1, 1, 1}, 1e-4)
      b:eval()
      local before = state(b)
      local want = (rows - b.running_mean:unsqueeze(2))
        / (b.running_var:unsqueeze(2) + 1e-5):sqrt()
      U.close(b(x):transpose(1, 2):reshape(3, -1), want, 1e-5)
      assert.are.same(before, state(b))
    end
  end)

  it("one graph serves both modes; only a training run writes", function()
    local b = nn.BatchNorm1d(3)
    local m = nn.Sequential(nn.Linear(3, 3), b)
    local x = limn.randn(6, 3)
    U.each_pair(function(from, dev)
      local g = limn.on(from, function() return limn.trace(m, x:to(from)) end)
      local twin = m:clone()
      m:eval()
      local before = state(m)
      local y = g(x:to(dev))
      assert.are.same(before, state(m))
      U.close(y, twin:eval()(x), 1e-5)
      m:train()
      local n = b.num_batches_tracked:value():item()
      y = g(x:to(dev))
      U.close(y, twin:train()(x), 1e-5)
      U.equal(b.num_batches_tracked, {n + 1})
      for name, values in pairs(state(twin)) do
        U.close(limn.tensor(state(m)[name]), values, 1e-5, "max", name)
      end
    end)
  end)

  it("trains: gradients in a step, with one update of the buffers", function()
    U.each_device(function(dev)
      limn.manual_seed(3)
      local m = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(),
                              nn.Linear(8, 1))
      local x, t = limn.randn(16, 4), limn.randn(16, 1)
      local twin = m:clone()
      local function step(net)
        local opt = limn.optim.SGD(net, {lr = 0.1})
        local loss = limn.value_and_grad(function(a, b)
          return nn.mse_loss(net(a), b)
        end, net)
        return function(a, b)
          local l, g = loss(a, b)
          opt:step(g)
          return l
        end
      end
      local eager, traced = step(twin), limn.jit(step(m))
      for _ = 1, 3 do
        local l = traced(x:to(dev), t:to(dev))
        U.close(l, eager(x, t), 1e-4)
      end
      U.equal(m[2].num_batches_tracked, {3})
      U.close(m[2].running_var, twin[2].running_var, 1e-4)
      U.close(m[1].weight, twin[1].weight, 1e-3)
    end)
  end)

  it("averages all batches without a momentum; may track nothing", function()
    local b = nn.BatchNorm1d(2, {momentum = false})
    local x, y = limn.randn(4, 2), limn.randn(4, 2)
    b(x)
    b(y)
    U.close(b.running_mean, (x:mean(1) + y:mean(1)) / 2, 1e-5)
    local free = nn.BatchNorm1d(2, {track_running_stats = false}):eval()
    U.close(free(x):mean(1), {0, 0}, 1e-5, 1)
  end)

  it("keeps its buffers' dtype, and writes none in eval mode", function()
    local b = nn.BatchNorm1d(3)
    local x = limn.randn({4, 3}, {dtype = "float64"})
    local g = limn.trace(b, x)
    g(x)
    assert.are.equal("float32", b.running_mean.dtype)
    U.close(b.running_mean, x:mean(1) * 0.1, 1e-5)
    b:eval()
    local before, at = state(b), b.running_mean.version
    U.close(g(x), b(x), 1e-6)
    assert.are.same(before, state(b))
    assert.are.equal(at, b.running_mean.version)
  end)

  it("names what does not fit", function()
    refuses(nn.BatchNorm2d(3), {limn.ones(2, 4, 5, 5)}, "%[2, 4, 5, 5%]",
            "%[rows, 3, position, position%]")
    refuses(nn.BatchNorm1d(3), {limn.ones(3)}, "%[3%]", "rows, 3")
    U.message(function() nn.BatchNorm1d(3)(limn.ones(1, 3)) end,
              "more than 1 value", "eval")
  end)
end)
