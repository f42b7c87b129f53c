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

it("mse_loss refuses ranks that would broadcast", function()
  local ok, e = pcall(nn.mse_loss, limn.zeros(8, 1), limn.zeros(8))
  assert.is_false(ok)
  assert.is_truthy(tostring(e):find "has 2 dims and the target 1")
end)
