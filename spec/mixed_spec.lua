-- Eager code on an accelerator with weights that were made on the CPU, and
-- sizes that products over several dims must agree on.
local U = require "support.util"
local limn = U.limn
local nn, optim = limn.nn, limn.optim

describe("Eager layers follow their input", function()
  it("whichever device the weights were made on", function()
    U.each_device(function(dev)
      local x = limn.randn(2, 4, 6, 6):to(dev)
      for _, layer in ipairs {nn.Conv2d(4, 16, 3), nn.ConvTranspose2d(4, 2, 3),
                              nn.BatchNorm2d(4), nn.GroupNorm(2, 4)} do
        assert.are.equal(dev, layer(x).device)
      end
    end)
  end)

  it("and so do an optimizer's steps, back and forth", function()
    local function train(devices)
      limn.manual_seed(4)
      local m = nn.Linear(3, 2)
      local opt = optim.Adam(m, {lr = 0.1})
      local loss = limn.value_and_grad(function(x)
        local y = m(x)
        return y:square():sum()
      end, m)
      local x = limn.randn(5, 3)
      for i = 1, 4 do
        local _, grads = loss(x:to(devices[(i - 1) % #devices + 1]))
        opt:step(grads)
      end
      return m.weight:flatten():totable()
    end
    local want = train {"cpu"}
    U.each_device(function(dev)
      U.close(limn.tensor(train {dev}), want, 1e-5)
      U.close(limn.tensor(train {"cpu", dev}), want, 1e-5)
    end)
  end)
end)

describe("Sums of products", function()
  it("compare every size, in eager code", function()
    U.message(function()
      return limn.tensordot(limn.ones(5, 2, 3), limn.ones(3, 2, 4),
                            {{2, 3}, {1, 2}})
    end, "tensordot", "size 2", "3")
  end)

  it("and on each run of a trace", function()
    local g = limn.trace(function(a, b)
      local y = limn.einsum("ijk,jkl->il", a, b)
      return y
    end, limn.ones(2, 2, 3), limn.ones(2, 3, 4))
    U.equal(g(limn.ones(1, 2, 5), limn.ones(2, 5, 1)), {10})
    U.message(function() g(limn.ones(1, 2, 3), limn.ones(3, 2, 1)) end, "size")
    local d = limn.trace(function(a)
      local y = limn.einsum("ii->i", a)
      return y
    end, limn.ones(3, 3))
    U.equal(d(limn.ones(2, 2)), {1, 1})
    U.message(function() d(limn.ones(2, 5)) end, "size")
  end)
end)

describe("A convolution's bias", function()
  it("has one value per channel", function()
    U.message(function()
      return nn.conv2d(limn.ones(1, 1, 3, 3), limn.ones(1, 1, 3, 3),
                       limn.ones(4))
    end, "bias")
  end)
end)

describe("Linear interpolation", function()
  it("refuses whole numbers, which have nothing in between", function()
    U.message(function()
      return nn.interpolate(limn.tensor({0, 100}, "uint8"):reshape(1, 1, 2),
                            {size = 4, mode = "linear"})
    end, "whole", "float32")
  end)
end)
