-- Compositions of ops: errors name what was called, not only the op inside that
-- failed; and results that one op alone gets wrong.
local U = require "support.util"
local limn = U.limn
local nn = limn.nn

-- f(inputs...) fails at once, and as a graph traced with `good`, with its name
-- and these parts.
local function refuses(f, good, bad, ...)
  local parts = {...}
  U.message(function() f(unpack(bad)) end, unpack(parts))
  local g = limn.trace(f, unpack(good))
  U.message(function() g(unpack(bad)) end, unpack(parts))
end

describe("An error inside a composition names what was called:", function()
  it("topk of more than there is, in a run", function()
    local function f(x, k)
      local y = x:topk(k:size(1))
      return y
    end
    refuses(f, {limn.randn(2, 4), limn.zeros(2)},
            {limn.randn(2, 4), limn.zeros(5)}, "topk", "4")
  end)

  it("fold, cross_entropy, multinomial, einsum, nll_loss", function()
    local ints = {dtype = "int64"}
    refuses(function(x) local y = nn.fold(x, {4, 4}, 2) return y end,
            {limn.randn(1, 4, 9)}, {limn.randn(1, 5, 9)}, "fold: ")
    refuses(function(x, t) local y = nn.cross_entropy(x, t) return y end,
            {limn.randn(2, 3), limn.ones({2}, ints)},
            {limn.randn(2, 3), limn.ones({4}, ints)}, "cross_entropy")
    U.message(function()
      local _ = limn.ones({3}, ints):multinomial(2)
    end, "multinomial: ", "int64")
    U.message(function()
      local _ = limn.tensor({1, 0}, "int64"):bincount()
    end, "bincount: ", "index 0")
    U.message(function()
      local _ = limn.einsum("ij,jk->ik", limn.ones(3, 4), limn.ones(2, 4))
    end, "einsum: ", "size 4", "2 in operand 2")
  end)

  it("the graph keeps the name beside the module's path", function()
    local Net = nn.Module:extend "Net"
    function Net:init() self.head = nn.Linear(4, 4) end
    function Net:forward(x, k)
      local y = self.head(x):topk(k:size(1))
      return y
    end
    local net = Net()
    local text = tostring(limn.trace(net, limn.ones(2, 4), limn.zeros(2)))
    assert.is_truthy(text:find("gather%([^\n]*:topk"), text)
    assert.is_nil(text:find("matmul%([^\n]*:topk"), text)
    local dir = os.tmpname()
    limn.save(dir, {net = limn.trace(net, limn.ones(2, 4), limn.zeros(2))})
    local m = limn.load(dir)
    os.remove(dir)
    U.message(function() m.net(limn.ones(2, 4), limn.zeros(7)) end, "topk: ")
  end)

  it("attention whose inputs do not belong together", function()
    local m = nn.MultiheadAttention(4, 2, {batch_first = true})
    local function f(q, k, v)
      local y = m(q, k, v)
      return y
    end
    local function x(rows, n) return limn.randn(rows, n, 4) end
    refuses(f, {x(2, 3), x(2, 5), x(2, 5)}, {x(2, 3), x(4, 5), x(4, 5)},
            "MultiheadAttention", "query and key differ in rows")
    refuses(f, {x(2, 3), x(2, 5), x(2, 5)}, {x(2, 3), x(2, 5), x(2, 4)},
            "MultiheadAttention", "key and value differ in positions")
    U.message(function() f(x(2, 3), x(2, 5), limn.ones(5, 4)) end,
              "number of dims")
  end)

  it("layers and losses, eager and while a trace records", function()
    local function x(...) return (limn.randn(...)) end
    for _, case in ipairs {
      {"Linear: the input is [4, 5], where [..., 3] is needed",
       nn.Linear(3, 2), x(4, 5)},
      {"Bilinear: matmul: shapes", nn.Bilinear(3, 2, 4), x(4, 3), x(5, 2)},
      {"PReLU: 3 slopes are for 3 channels in dim 2", nn.PReLU(3), x(4, 5)},
      {"RNNCell: the state h is [2, 5], where [2, 4] is needed",
       nn.RNNCell(3, 4), x(2, 3), x(2, 5)},
      {"GRUCell: the state h is [3, 4], where [2, 4] is needed",
       nn.GRUCell(3, 4), x(2, 3), x(3, 4)},
      {"LSTMCell: the state c is [2, 5], where [2, 4] is needed",
       nn.LSTMCell(3, 4), x(2, 3), {x(2, 4), x(2, 5)}},
      {"GRU: the state h is [1, 2, 5], where [1, 2, 4] is needed",
       nn.GRU(3, 4), x(5, 2, 3), x(1, 2, 5)},
      {"Conv2d: x has 4 channels where w takes 3", nn.Conv2d(3, 2, 3),
       x(1, 4, 8, 8)},
      {"MaxPool2d: a window of 2 does not fit", nn.MaxPool2d(2),
       x(1, 2, 1, 4)},
      {"AvgPool1d: pool: a window of 3 does not fit", nn.AvgPool1d(3),
       x(1, 2, 2)},
      {"Embedding: index_select: index must hold whole numbers",
       nn.Embedding(5, 3), x(4)},
      {"Normalize: sub: shapes", nn.Normalize {mean = {1, 2, 3}, std = 1},
       x(4, 4)},
      {"MSELoss: the prediction has size 3 in dim 2 and the target 2",
       nn.MSELoss(), x(4, 3), x(4, 2)},
      {"KLDivLoss: the prediction has size 4 in dim 1",
       nn.KLDivLoss(), x(4, 3), x(5, 3)},
      {"CosineSimilarity: the inputs have sizes 3 and 2 in dim 2",
       nn.CosineSimilarity(), x(4, 3), x(4, 2)},
      {"MultiheadAttention: the mask is [2, 2], where [3, 3] is needed",
       nn.MultiheadAttention(4, 2), x(3, 2, 4), x(3, 2, 4), x(3, 2, 4),
       {attn_mask = x(2, 2)}},
    } do
      local function call(...)
        local y = case[2](...)
        return y
      end
      for _, f in ipairs {call, function(...) limn.trace(call, ...) end} do
        local ok, e = pcall(f, unpack(case, 3))
        assert.is_false(ok, case[1])
        e = tostring(e)
        assert.is_truthy(e:find(": " .. case[1], 1, true), e)
        assert.is_truthy(e:find "^spec/composition_spec", e)
      end
    end
  end)

  it("det and svd, whose ops nobody calls", function()
    for name, f in pairs {det = limn.linalg.det, slogdet = limn.linalg.slogdet}
    do
      U.message(function() local _ = f(limn.ones(2, 3)) end,
                name .. ": x must be square")
      local g = limn.trace(function(v) local y = f(v) return y end,
                           limn.ones(2, 2))
      U.message(function() g(limn.ones(2, 3)) end,
                name .. ": x must be square")
    end
    U.message(function() limn.linalg.svd(limn.ones({2, 2}, "float16")) end,
              "svd: x is float16")
  end)

  it("interpolate to no size, or to a part of one", function()
    local x = limn.randn(1, 1, 4)
    for _, size in ipairs {-1, 0, 2.5} do
      U.message(function() nn.interpolate(x, {size = size}) end,
                "interpolate", "whole number above 0")
    end
    local function f(v)
      local y = nn.interpolate(v, {scale_factor = 0.5})
      return y
    end
    refuses(f, {x}, {limn.randn(1, 1, 1)}, "interpolate", "at least 1")
  end)
end)

describe("Compositions", function()
  it("average bins without spreading infinity and NaN along the row",
     function()
    U.each_device(function(dev)
      local x = U.tensor({1, 2, 3, 4, 5, math.huge, 0 / 0, 1, 2}, {1, 1, 9})
      local y = nn.adaptive_avg_pool1d(x:to(dev), 4)
      U.close(y, {2, 4, 0 / 0, 0 / 0})
      local z = x:to(dev)[{{}, {}, {1, 6}}]
      U.close(nn.adaptive_avg_pool1d(z, 3), {1.5, 3.5, math.huge})
      local d = limn.grad(function(v)
        local s = nn.adaptive_avg_pool1d(v, 4):sum()
        return s
      end)(limn.ones(1, 1, 6):to(dev))
      U.close(d, {0.5, 1, 0.5, 0.5, 1, 0.5})
    end)
  end)

  it("isclose of narrow ints and bools counts without wrapping", function()
    U.each_device(function(dev)
      local a = limn.tensor({-128, 127, 5}, "int8", dev)
      local b = limn.tensor({127, -128, 6}, "int8", dev)
      U.equal(a:isclose(b), {0, 0, 0})
      U.equal(a:isclose(b, {atol = 1}), {0, 0, 1})
      local u = limn.tensor({1, 250}, "uint8", dev)
      U.equal(u:isclose(limn.tensor({2, 249}, "uint8", dev), {atol = 1}),
              {1, 1})
      local t = limn.tensor({true, false}, "bool", dev)
      U.equal(t:isclose(limn.tensor({true, true}, "bool", dev)), {1, 0})
      assert.is_true(u:allclose(u))
      assert.is_false(a:allclose(b))
    end)
  end)
end)
