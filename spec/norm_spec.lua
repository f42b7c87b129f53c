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
