-- Layers beyond Linear: norms, embeddings, attention, transformers, lists.
local U = require "support.util"
local limn = U.limn
local nn = limn.nn

-- f is a module of cells made on the CPU: the same numbers eager on every
-- device, and from one graph traced on each device and run on every other.
local function everywhere(f, inputs, want, tol)
  local function on(dev)
    local x = {}
    for i, v in ipairs(inputs) do x[i] = v:to(dev) end
    return x
  end
  want = want or f(unpack(inputs))
  U.each_device(function(dev)
    local y = limn.on(dev, function() return (f(unpack(on(dev)))) end)
    U.close(y, want, tol or 1e-5, "max", "eager on " .. dev)
  end)
  U.each_pair(function(from, dev)
    local g = limn.trace(function(...) return (f(...)) end, unpack(on(from)))
    local y = g(unpack(on(dev)))
    U.close(y, want, tol or 1e-5, "max", "traced on " .. from .. ", run on "
            .. dev)
  end)
end

-- The layer inside a model, whose path the error has to name.
local function inside(layer)
  local Net = nn.Module:extend "Net"
  function Net:init() self.body = {nn.Identity(), layer} end
  function Net:forward(...) return (self.body[2](...)) end
  return Net()
end

-- Eager and traced: the path, what came and what is needed.
local function refuses(layer, inputs, ...)
  local m = inside(layer)
  local parts = {...}
  U.message(function() m(unpack(inputs)) end, "body%.2", unpack(parts))
  U.message(function() limn.trace(m, unpack(inputs)) end, "body%.2",
            unpack(parts))
end

local function state(m)
  local list = {}
  for name, cell in m:named_buffers() do list[name] = U.flat(cell:value()) end
  return list
end

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
-- behind them are layer_norm_back and rms_norm_back.
describe("Gradients of norms", function()
  local function plain(centred, x, w, b)
    if centred then x = x - x:mean {dim = -1, keepdim = true} end
    local v = x:square():mean {dim = -1, keepdim = true}
    local y = x / (v + 1e-3):sqrt()
    if w then y = y * w end
    return b and y + b or y
  end
  for _, name in ipairs {"layer_norm", "rms_norm"} do
    it("agree with compositions: " .. name, function()
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
        end, {x[1]})()
        out[#out + 1] = second[1]
        return unpack(out)
      end
      U.each_device(function(dev)
        for _, n in ipairs {5, 1300} do
          for count = 1, name == "layer_norm" and 3 or 2 do
            local x = {}
            for i, shape in ipairs {{2, 3, n}, {n}, {n}} do
              if i <= count then
                x[i] = limn.randn(shape, {dtype = "float64"}):to(dev)
              end
            end
            local t = limn.randn({2, 3, n}, {dtype = "float64"}):to(dev)
            local want = {gradients(function(a, w, b)
              return plain(name == "layer_norm", a, w, b)
            end, x, t)}
            local function mine(a, w, b)
              return nn[name](a, {shape = n, weight = w, eps = 1e-3,
                                  bias = b})
            end
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
              if i <= count then U.close(v, want[i], 1e-4, "max") end
            end
          end
        end
      end)
    end)
  end
end)

describe("BatchNorm", function()
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
              "more than one value", "eval")
  end)
end)

describe("Embedding and Bilinear", function()
  it("Embedding gives rows by positions that count from 1", function()
    local e = nn.Embedding(5, 3, {padding_idx = 2})
    U.equal(e.weight[2], {0, 0, 0})
    local at = limn.tensor({{1, 2}, {5, 2}}, "int64")
    local w = e.weight
    everywhere(e, {at}, limn.stack({w[1], w[2], w[5], w[2]}, 1))
    local _, g = limn.value_and_grad(function() return e(at):sum() end, e)()
    U.equal(g.weight, {1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1})
    U.each_device(function(dev)
      local m = inside(nn.Embedding(5, 3))
      local bad = limn.tensor({1, 6}, "int64", dev)
      U.message(function()
        limn.on(dev, function() return U.flat(m(bad)) end)
      end, "6", "5")
      local graph = limn.trace(m, at)
      U.message(function() U.flat(graph(bad:unsqueeze(1))) end, "6", "5",
                "body%.2")
    end)
    U.message(function() nn.Embedding(3, 2, {padding_idx = 4}) end, "4", "3")
  end)

  it("Bilinear is x' W y", function()
    local b = nn.Bilinear(3, 4, 2)
    local x, y = limn.randn(5, 3), limn.randn(5, 4)
    local want = {}
    for o = 1, 2 do
      want[o] = (limn.matmul(x, b.weight[o]) * y):sum(2) + b.bias[o]
    end
    everywhere(b, {x, y}, limn.stack(want, 2))
    U.close(b(x:unsqueeze(1), y:unsqueeze(1))[1], b(x, y), 1e-5)
    refuses(nn.Bilinear(3, 4, 2), {limn.ones(2, 4), y}, "%[2, 4%]", "3%]")
    refuses(nn.Bilinear(3, 4, 2), {x, limn.ones(2, 3)}, "%[2, 3%]",
            "4%] as the second")
  end)
end)

-- Attention of several heads, one head at a time.
local function by_head(m, q, k, v, allow)
  local e, n = m.embed_dim, m.num_heads
  local d, parts = e / n, {}
  local w, b = m.in_proj_weight, m.in_proj_bias
  local function part(x, at, h)
    local rows = {{at * e + (h - 1) * d + 1, at * e + h * d}}
    return nn.linear(x, w[rows], b[rows])
  end
  for h = 1, n do
    local s = limn.matmul(part(q, 0, h), part(k, 1, h):transpose(2, 3))
      / math.sqrt(d)
    if allow then s = limn.where(allow, s, -math.huge) end
    parts[h] = limn.matmul(s:softmax(-1), part(v, 2, h))
  end
  return m.out_proj(limn.cat(parts, -1))
end

describe("Attention", function()
  it("takes masks of bools and causal ones", function()
    local q, k = limn.randn(2, 3, 4), limn.randn(2, 5, 4)
    local mask = limn.randn(3, 5):gt(0):logical_or(limn.arange(5):eq(1))
    local added = limn.where(mask, limn.zeros(3, 5), -math.huge)
    local f = nn.scaled_dot_product_attention
    everywhere(function(a, b, m) return f(a, b, b, {mask = m}) end,
               {q, k, mask}, f(q, k, k, {mask = added}))
    local lower = limn.ones(3, 5):tril():gt(0)
    everywhere(function(a, b) return f(a, b, b, {causal = true}) end, {q, k},
               f(q, k, k, {mask = lower}))
    U.message(function() f(limn.ones(3), k, k) end, "%[3%]", "queries")
  end)

  it("MultiheadAttention joins its heads", function()
    limn.manual_seed(4)
    local m = nn.MultiheadAttention(6, 3, {batch_first = true})
    m.in_proj_bias:assign(limn.randn(18))
    local q, k, v = limn.randn(2, 4, 6), limn.randn(2, 5, 6),
                    limn.randn(2, 5, 6)
    everywhere(m, {q, k, v}, by_head(m, q, k, v))
    local y, w = m(q, k, v)
    U.shape(y, {2, 4, 6})
    U.shape(w, {2, 4, 5})
    U.close(w:sum(-1), limn.ones(2, 4), 1e-5)
    local _, each = m(q, k, v, {average_attn_weights = false})
    U.shape(each, {2, 3, 4, 5})
    assert.is_nil((select(2, m(q, k, v, {need_weights = false}))))
    -- Rows second, and no rows.
    local s = m:clone()
    s.batch_first = false
    U.close(s(q:transpose(1, 2), k:transpose(1, 2),
              v:transpose(1, 2)):transpose(1, 2), y, 1e-5)
    U.close(m(q[1], k[1], v[1]), y[1], 1e-5)
  end)

  it("MultiheadAttention leaves out what its masks name", function()
    local m = nn.MultiheadAttention(4, 2, {batch_first = true})
    local x = limn.randn(2, 3, 4)
    local later = limn.ones(3, 3):triu(1):gt(0)
    local want = by_head(m, x, x, x, later:logical_not())
    everywhere(function(a, mask)
      return (m(a, a, a, {attn_mask = mask}))
    end, {x, later}, want)
    U.close(m(x, x, x, {is_causal = true}), want, 1e-5)
    local pad = limn.tensor({{0, 0, 1}, {0, 1, 1}}, "bool")
    local allow = pad:logical_not():unsqueeze(2):reshape(2, 1, 3)
    U.close(m(x, x, x, {key_padding_mask = pad}),
            by_head(m, x, x, x, allow), 1e-5)
    refuses(m, {limn.ones(2, 3, 5)}, "%[2, 3, 5%]", "4%] as the query")
    U.message(function() nn.MultiheadAttention(5, 2) end, "5", "2")
  end)
end)

describe("Transformer layers", function()
  local function parts(l, x, norm_first, mask)
    local function att(z)
      return (l.self_attn(z, z, z, {attn_mask = mask}))
    end
    local function feed(z) return l.linear2(l.linear1(z):relu()) end
    if norm_first then
      x = x + att(l.norm1(x))
      return x + feed(l.norm2(x))
    end
    x = l.norm1(x + att(x))
    return l.norm2(x + feed(x))
  end

  it("the encoder's adds attention and a wide layer, with norms", function()
    for _, first in ipairs {false, true} do
      local l = nn.TransformerEncoderLayer(8, 2, {dim_feedforward = 16,
        batch_first = true, norm_first = first}):eval()
      local x = limn.randn(2, 5, 8)
      everywhere(l, {x}, parts(l, x, first))
      local mask = limn.ones(5, 5):triu(1):gt(0)
      U.close(l(x, {src_mask = mask}), parts(l, x, first, mask), 1e-5)
      U.close(l(x, {is_causal = true}), parts(l, x, first, mask), 1e-5)
    end
    local names = {}
    for name in nn.TransformerEncoderLayer(8, 2):named_parameters() do
      names[#names + 1] = name
    end
    assert.are.same({"self_attn.in_proj_weight", "self_attn.in_proj_bias",
      "self_attn.out_proj.weight", "self_attn.out_proj.bias",
      "linear1.weight", "linear1.bias", "linear2.weight", "linear2.bias",
      "norm1.weight", "norm1.bias", "norm2.weight", "norm2.bias"}, names)
  end)

  it("the decoder's looks at a memory too", function()
    local l = nn.TransformerDecoderLayer(8, 2, {dim_feedforward = 16,
      batch_first = true, activation = "gelu"}):eval()
    local x, memory = limn.randn(2, 5, 8), limn.randn(2, 3, 8)
    local z = l.norm1(x + l.self_attn(x))
    z = l.norm2(z + l.multihead_attn(z, memory))
    z = l.norm3(z + l.linear2(l.linear1(z):gelu()))
    everywhere(l, {x, memory}, z)
  end)

  it("stacks train, for any length from one graph", function()
    limn.manual_seed(5)
    local m = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2,
      {dim_feedforward = 16, batch_first = true, dropout = 0}), 2,
      nn.LayerNorm(8))
    assert.are.equal(2 * 12 + 2, #m:parameters())
    local opt = limn.optim.Adam(m, {lr = 0.01})
    local loss = limn.value_and_grad(function(x, t)
      return nn.mse_loss(m(x), t)
    end, m)
    local step = limn.jit(function(x, t)
      local l, g = loss(x, t)
      opt:step(g)
      return l
    end)
    local x = limn.randn(4, 6, 8)
    local first = step(x, x):item()
    for _ = 1, 15 do step(x, x) end
    assert.is_true(step(x, x):item() < first * 0.7)
    step(limn.randn(2, 9, 8), limn.randn(2, 9, 8))
  end)
end)

describe("Small layers", function()
  it("ModuleList and ModuleDict hold layers for their owner", function()
    local list = nn.ModuleList {nn.Linear(2, 3), nn.Linear(3, 2)}
    list:append(nn.Linear(2, 2))
    assert.are.equal(3, #list)
    assert.are.equal(6, #list:parameters())
    local dict = nn.ModuleDict {b = nn.Linear(2, 3), a = nn.ReLU()}
    assert.are.same({"a", "b"}, dict:keys())
    assert.are.equal(2, #dict:parameters "b.*")
    U.message(function() nn.ModuleList {nn.ReLU} end, "class ReLU")
    U.message(function() nn.ModuleDict {nn.ReLU()} end, "string")
    U.message(function() list(limn.ones(2)) end, "no forward")
  end)

  it("Flatten and Unflatten undo each other", function()
    local x = limn.randn(2, 3, 4)
    everywhere(nn.Sequential(nn.Flatten(), nn.Unflatten(2, {3, 4})), {x}, x)
    everywhere(nn.Unflatten(-1, {2, 2}), {x}, x:reshape(2, 3, 2, 2))
    refuses(nn.Unflatten(4, {1}), {x}, "%[2, 3, 4%]", "dim 4")
  end)

  it("Dropout1d and Dropout2d drop whole channels", function()
    U.each_device(function(dev)
      limn.manual_seed(6)
      local d = nn.Dropout2d(0.5)
      local x = limn.ones({20, 50, 2, 3}, dev)
      local graph = limn.trace(d, limn.ones(2, 3, 4, 5))
      for _, f in ipairs {d, graph} do
        d:train()
        local y = f(x)
        U.equal(y:max {dim = {3, 4}}, y:min {dim = {3, 4}})
        assert.is_true(math.abs(y:mean():item() - 1) < 0.1)
        d:eval()
        U.equal(f(x):sum(), {6000})
      end
    end)
    refuses(nn.Dropout1d(), {limn.ones(2, 3)}, "%[2, 3%]",
            "%[rows, channels, position%]")
  end)

  it("activations without an op are compositions", function()
    local x = limn.tensor {-8, -1, -0.25, 0, 0.25, 1, 8}
    local function check(layer, want)
      everywhere(layer, {x}, limn.tensor(want))
    end
    check(nn.ReLU6(), {0, 0, 0, 0, 0.25, 1, 6})
    check(nn.Hardtanh(-2, 0.5), {-2, -1, -0.25, 0, 0.25, 0.5, 0.5})
    check(nn.Softsign(), {-8 / 9, -0.5, -0.2, 0, 0.2, 0.5, 8 / 9})
    check(nn.Hardshrink(), {-8, -1, 0, 0, 0, 1, 8})
    check(nn.Softshrink(0.5), {-7.5, -0.5, 0, 0, 0, 0.5, 7.5})
    check(nn.Threshold(0.5, 20), {20, 20, 20, 20, 20, 1, 8})
    check(nn.PReLU(), {-2, -0.25, -0.0625, 0, 0.25, 1, 8})
    local e, t = math.exp, math.tanh or function(v)
      return (math.exp(2 * v) - 1) / (math.exp(2 * v) + 1)
    end
    check(nn.CELU(2), {2 * (e(-4) - 1), 2 * (e(-0.5) - 1),
                       2 * (e(-0.125) - 1), 0, 0.25, 1, 8})
    check(nn.Tanhshrink(), {-8 - t(-8), -1 - t(-1), -0.25 - t(-0.25), 0,
                            0.25 - t(0.25), 1 - t(1), 8 - t(8)})
    U.close(nn.Softmin()(x), (-x):softmax(-1), 1e-6)
    local z = limn.randn(3, 4)
    everywhere(nn.GLU(), {z}, z[{{}, {1, 2}}] * z[{{}, {3, 4}}]:sigmoid())
    for _, name in ipairs {"Mish", "SELU", "Hardswish", "Hardsigmoid",
                           "LogSigmoid", "ELU", "LeakyReLU"} do
      U.shape(nn[name]()(x), {7}, name)
    end
  end)

  it("tied parameters are one, trained once and stored once", function()
    local Net = nn.Module:extend "Net"
    function Net:init()
      self.table = nn.Embedding(7, 4)
      self.out = nn.Linear(4, 7, {bias = false})
      self.out.weight = self.table.weight
    end
    function Net:forward(i) return self.out(self.table(i)) end
    local m = Net()
    assert.are.equal(1, #m:parameters())
    local n = 0
    for _ in pairs(m:state_dict()) do n = n + 1 end
    assert.are.equal(1, n)
    assert.is_truthy(tostring(m):find "tied")
    local at = limn.tensor({1, 3}, "int64")
    local _, g = limn.value_and_grad(function() return m(at):sum() end, m)()
    local rows = m.table.weight:sum(1)
    local used = (m.table.weight[1] + m.table.weight[3])
    U.close(g["table.weight"][2], used, 1e-5)
    U.close(g["table.weight"][1], used + rows, 1e-5)
  end)
end)

describe("Losses with options", function()
  it("leave out labels that are to be ignored", function()
    local x = limn.randn(4, 3)
    local t = limn.tensor({1, -100, 3, 2}, "int64")
    local keep = limn.tensor({1, 3, 4}, "int64")
    local w = limn.tensor {1, 2, 3}
    local xs, ts = x:index_select(1, keep), t:index_select(1, keep)
    for _, o in ipairs {{}, {weight = w}, {label_smoothing = 0.1},
                        {reduction = "sum"},
                        {weight = w, label_smoothing = 0.2}} do
      local with = {ignore_index = -100}
      for k, v in pairs(o) do with[k] = v end
      everywhere(function(a, b, v)
        with.weight = o.weight and v
        return nn.cross_entropy(a, b, with)
      end, {x, t, w}, nn.cross_entropy(xs, ts, o))
    end
    U.close(nn.nll_loss(x, t, {ignore_index = -100, reduction = "none"})[2],
            {0}, 1e-6)
    U.message(function() U.flat(nn.cross_entropy(x, t)) end, "-100", "label")
  end)

  it("kl_div knows zeros, logarithms and batchmean", function()
    local y = limn.tensor {{0, 0.25, 0.75}, {0.5, 0.5, 0}}
    local x = limn.randn(2, 3):log_softmax(2)
    local l = nn.kl_div(x, y, {reduction = "sum"})
    U.close(nn.kl_div(x, y, {reduction = "batchmean"}) * 2, l, 1e-6)
    U.close(nn.kl_div(x, y) * 6, l, 1e-6)
    local z = limn.randn(2, 3):log_softmax(2)
    U.close(nn.kl_div(x, z, {log_target = true}), nn.kl_div(x, z:exp()), 1e-5)
    local _, g = limn.value_and_grad(function() return
      nn.kl_div(x, y, {reduction = "sum"}) end, {x})()
    U.close(g[1], -y, 1e-6)
    U.message(function() nn.kl_div(x, y, {reduction = "max"}) end, "max")
  end)

  it("exist as layers, and for probabilities", function()
    local x, y = limn.randn(4), limn.tensor {0, 1, 1, 0}
    U.close(nn.BCELoss()(x:sigmoid(), y), nn.BCEWithLogitsLoss()(x, y), 1e-5)
    U.equal(nn.MSELoss {reduction = "sum"}(x, y), (x - y):square():sum())
    U.close(nn.cosine_similarity(x, x, {dim = 1}), {1}, 1e-6)
  end)
end)

describe("nn.init", function()
  it("gives the spread that its rules say", function()
    limn.manual_seed(7)
    local c = nn.Parameter(limn.zeros(200, 100))
    local function deviation() return c:value():std():item() end
    local function near(f, want, ...)
      assert.is_true(rawequal(nn.init[f](c, ...), c))
      local got = deviation()
      assert.is_true(math.abs(got / want - 1) < 0.05, f .. ": " .. got)
    end
    near("uniform_", 1 / math.sqrt(3), -1, 1)
    near("normal_", 3, 0, 3)
    near("xavier_uniform_", math.sqrt(2 / 300))
    near("xavier_normal_", math.sqrt(2 / 300))
    near("kaiming_uniform_", math.sqrt(2 / 100))
    near("kaiming_normal_", math.sqrt(2 / 200), {mode = "fan_out",
         nonlinearity = "relu"})
    near("kaiming_uniform_", math.sqrt(2 / 6 / 100), {a = math.sqrt(5)})
    near("trunc_normal_", 0.8796, 0, 1)
    assert.is_true(c:value():abs():max():item() <= 2)
    nn.init.eye_(c)
    U.equal(c:sum(), {100})
    nn.init.ones_(c)
    U.equal(c:sum(), {20000})
    U.message(function() nn.init.kaiming_normal_(c, {mode = "in"}) end, "in")
    U.message(function() nn.init.calculate_gain "swish" end, "swish")
  end)
end)
