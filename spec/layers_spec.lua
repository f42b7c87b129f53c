-- Layers beyond Linear: embeddings, attention, transformers, lists; losses.
local U = require "support.util"
local L = require "support.layers"
local limn = U.limn
local nn = limn.nn
local everywhere, inside, refuses = L.everywhere, L.inside, L.refuses

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

  it("MultiheadAttention projects one tensor in one product", function()
    limn.manual_seed(5)
    local m = nn.MultiheadAttention(6, 3, {batch_first = true})
    m.in_proj_bias:assign(limn.randn(18))
    local x = limn.randn(2, 4, 6)
    local function itself(a) return (m(a, a, a)) end
    everywhere(itself, {x}, by_head(m, x, x, x))
    U.close(m(x[1], x[1], x[1]), m(x, x, x)[1], 1e-5)
    local function count(f)
      local _, n = tostring(limn.trace(f, x)):gsub("= matmul%(", "")
      return n
    end
    assert.are.equal(2, count(function(a) return (m(a, a + 0, a)) end)
                     - count(itself))
    -- The parts' gradients, against those of three products.
    local function grads(f)
      return limn.grad(function(net, a) return (f(net, a) ^ 2):sum() end)(m, x)
    end
    local one = grads(function(net, a) return (net(a, a, a)) end)
    local three = grads(function(net, a) return (net(a, a + 0, a)) end)
    U.close(one.in_proj_weight, three.in_proj_weight, 1e-4)
    U.close(one.in_proj_bias, three.in_proj_bias, 1e-4)
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
    for _, shape in ipairs {{3, 8}, {8, 3}, {3, 2, 4}} do
      local w = nn.Parameter(limn.zeros(shape))
      local m = nn.init.orthogonal_(w, 2):value():reshape(shape[1], -1)
      if shape[1] == 8 then m = m:t() end
      U.close(limn.matmul(m, m, false, true), limn.eye(3) * 4, 1e-5, 1)
    end
    U.message(function() nn.init.kaiming_normal_(c, {mode = "in"}) end, "in")
    U.message(function() nn.init.calculate_gain "swish" end, "swish")
  end)
end)

describe("A query that a mask leaves no key", function()
  for _, device in ipairs(limn.devices()) do
    it("gets zeros, and no NaN in the gradients, on " .. device, function()
      local x = limn.randn(2, 3, 4):to(device)
      local sees = limn.tensor({{true, false, true}, {false, false, false},
                                {true, true, true}}):to(device)
      for _, mask in ipairs {sees, limn.where(sees, 0, -math.huge)} do
        local function f(v, m)
          local y, d = limn.value_and_grad(function(w)
            local z = nn.scaled_dot_product_attention(w, w, w, {mask = m})
            return z:square():sum(), z
          end, v)(v, m)
          return d, y
        end
        local function check(d)
          assert.is_false(d:isnan():any():item())
        end
        check((f(x, mask)))
        check((limn.trace(f, x, mask)(x, mask)))
        local y = nn.scaled_dot_product_attention(x, x, x, {mask = mask})
        assert.are.equal(0, y[{{}, 2}]:abs():max():item())
        assert.is_true(y[{{}, 3}]:abs():max():item() > 0)
      end
    end)
  end
end)
