-- What the losses take and refuse beside PyTorch's cases (nn_spec.lua).
local limn = require "limn"
local nn = limn.nn

describe("cross_entropy", function()
  for _, device in ipairs(limn.devices()) do
    it("explains labels that count from 0, on " .. device, function()
      local x = limn.randn(20, 10):to(device)
      local t = limn.ones(20, "int64")
      t[17] = 0
      local ok, e = pcall(function()
        return nn.cross_entropy(x, t:to(device)):item()
      end)
      assert.is_false(ok)
      assert.is_truthy(tostring(e):find("class label 0 in row 17: labels are "
        .. "1..10; data that counts from 0: add 1", 1, true), tostring(e))
    end)
  end
  it("takes probabilities in place of labels", function()
    local x, t = limn.randn(5, 4), limn.tensor({1, 2, 3, 4, 1}, "int64")
    local a = nn.cross_entropy(x, t):item()
    local b = nn.cross_entropy(x, t:one_hot(4):to "float32"):item()
    assert.is_true(math.abs(a - b) < 1e-6)
  end)
  it("takes labels of more dims", function()
    local x = limn.randn(2, 3, 4)
    local t = limn.ones({2, 4}, "int64")
    local all = nn.cross_entropy(x, t, {reduction = "none"})
    assert.same({2, 4}, all.shape)
    local mean = nn.cross_entropy(x, t):item()
    assert.is_true(math.abs(mean - all:mean():item()) < 1e-6)
  end)
  it("refuses labels of the wrong rank", function()
    local ok, e = pcall(nn.cross_entropy, limn.randn(2, 3, 4),
                        limn.ones(2, "int64"))
    assert.is_false(ok)
    assert.is_truthy(tostring(e):find("wants labels of 2, got 1", 1, true))
  end)
end)

it("targets of other sizes are refused, in a trace too", function()
  local labels = limn.ones(2, "int64")
  local function refuses(f, x, y)
    local ok, e = pcall(f, x, y)
    assert.is_false(ok)
    e = tostring(e)
    assert.is_truthy(e:find(": the prediction ", 1, true), e)
  end
  refuses(nn.cross_entropy, limn.randn(3, 4), labels)
  refuses(nn.nll_loss, limn.randn(3, 4, 5), limn.ones({3, 4}, "int64"))
  refuses(nn.cross_entropy, limn.randn(3, 4), limn.ones(3, 1))
  refuses(nn.bce_with_logits, limn.randn(3, 4), limn.ones(1, 4))
  refuses(nn.binary_cross_entropy, limn.rand(3, 4), limn.ones(3, 1))
  local g = limn.trace(nn.cross_entropy, limn.randn(2, 4), labels)
  refuses(g, limn.randn(3, 4), labels)
  assert.is_true(g(limn.randn(5, 4), limn.ones(5, "int64")):item() > 0)
end)

it("weights of other classes and odd halves are refused", function()
  local x, t = limn.randn(2, 3), limn.ones(2, "int64")
  for _, case in ipairs {
    {"of 5 classes, the prediction of 3", nn.cross_entropy, x, t,
     {weight = limn.ones(5)}},
    {"of 5 classes, the prediction of 3", nn.nll_loss, x, t,
     {weight = limn.ones(5)}},
    {"from 0 to 1, got 2", nn.cross_entropy, x, t, {label_smoothing = 2}},
    {"the weight must be a tensor, not a table", nn.cross_entropy, x, t,
     {weight = {1, 2, 3}}},
    {"the pos_weight must be a tensor", nn.bce_with_logits, x, x,
     {pos_weight = {1, 2, 3}}},
    {"dim -1 has size 3, which has no half", nn.glu, x},
  } do
    local ok, e = pcall(unpack(case, 2))
    assert.is_false(ok)
    assert.is_truthy(tostring(e):find(case[1], 1, true), tostring(e))
  end
end)

it("mse_loss refuses ranks that would broadcast", function()
  local ok, e = pcall(nn.mse_loss, limn.zeros(8, 1), limn.zeros(8))
  assert.is_false(ok)
  assert.is_truthy(tostring(e):find "has 2 dims and the target 1")
end)

-- The gradients of f's sum for x, on each device, eagerly and in a graph.
local function slopes(x, f, target)
  local all = {}
  for _, device in ipairs(limn.devices()) do
    local a, t = x:to(device), target and target:to(device)
    local function g(v)
      local _, d = limn.value_and_grad(function(w) return f(w, t):sum() end,
                                       v)(v)
      return d
    end
    all[#all + 1] = g(a):to "cpu":flatten()
    all[#all + 1] = limn.trace(g, limn.ones_like(x))(a):to "cpu":flatten()
  end
  return all
end

it("binary_cross_entropy has PyTorch's gradient at 0 and 1", function()
  local x = limn.tensor({0, 1, 0.5, 1, 0, 0.2}, "float64")
  local t = limn.tensor({0, 1, 0.5, 0, 1, 0.7}, "float64")
  local want = {0, 0, 0, 1e12, -1e12, -3.125}
  for _, d in ipairs(slopes(x, function(v, y)
    return nn.binary_cross_entropy(v, y, {reduction = "sum"})
  end, t)) do
    for i, w in ipairs(want) do
      assert.is_true(math.abs(d:at(i) - w) <= 1e-9 * (1 + math.abs(w)),
                     ("%d: %g"):format(i, d:at(i)))
    end
  end
end)

it("cosine_similarity of a vector of zeros has a gradient", function()
  local x = limn.zeros({1, 2}, "float64")
  for _, d in ipairs(slopes(x, function(v, y)
    return nn.cosine_similarity(v, y, {eps = 0.5})
  end, limn.tensor({{3, 4}}, "float64"))) do
    assert.is_true(math.abs(d:at(1) - 1.2) < 1e-12)
    assert.is_true(math.abs(d:at(2) - 1.6) < 1e-12)
  end
end)

it("slopes on the bounds of hardtanh, relu6, hardswish and celu are PyTorch's",
   function()
  for _, case in ipairs {
    {nn.hardtanh, {-1, 0, 1, 2}, {0, 1, 0, 0}},
    {nn.relu6, {0, 3, 6, -1}, {0, 1, 0, 0}},
    {nn.hardswish, {-3, 3, -4, 4}, {0, 1, 0, 1}},
    {nn.celu, {0, 1, 0, 2}, {1, 1, 1, 1}},
  } do
    for _, d in ipairs(slopes(limn.tensor(case[2]), case[1])) do
      for i, w in ipairs(case[3]) do assert.are.equal(w, d:at(i)) end
    end
  end
end)
