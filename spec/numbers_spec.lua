-- Lua numbers beside tensors of narrow dtypes, alike on every device.
local limn = require "limn"
local U = require "support.util"
local T = limn.tensor

describe("A number beside a narrow dtype", function()
  it("is added in full, and the sum wraps", function()
    U.each_device(function(dev)
      U.equal(T({1, 2}, "uint8"):to(dev) + 300, {45, 46})
      U.equal(T({100, -100}, "int8"):to(dev) + 100, {-56, 0})
    end)
  end)

  it("is compared in full", function()
    U.each_device(function(dev)
      local x = T({1, 200}, "uint8"):to(dev)
      U.equal(x:lt(300):to "int64", {1, 1})
      U.equal(x:gt(-1):to "int64", {1, 1})
    end)
  end)

  it("bounds clamp in full", function()
    U.each_device(function(dev)
      local x = T({1, 120}, "int8"):to(dev)
      U.equal(x:clamp {max = 1000}, {1, 120})
      U.equal(x:clamp {min = -1000, max = 100}, {1, 100})
      U.equal(x:clamp {min = 3}, {3, 120})
    end)
  end)

  it("keeps its precision beside halves", function()
    U.each_device(function(dev)
      -- 2049 / 2048 is not a float16; rounding it first would give 1.
      local y = T({2048}, "float16"):to(dev) * (2050 / 2048)
      U.equal(y, {2050})
    end)
  end)
end)

describe("cat and stack", function()
  it("join more tensors than a step has inputs, with gradients", function()
    U.each_device(function(dev)
      local x = limn.arange(150):to(dev)
      local function join(v)
        local parts = {}
        for i = 1, 150 do parts[i] = v[{{151 - i}}] end
        local y = limn.cat(parts, 1)
        return y
      end
      local flipped = x:flip(1):totable()
      U.equal(join(x), flipped)
      U.equal(limn.trace(join, x)(x), flipped)
      U.equal(limn.stack({x, x, x}, 2):sum(1), {11325, 11325, 11325})
      local df = limn.grad(function(v)
        local s = (join(v) * x):sum()
        return s
      end)
      U.equal(df(x), flipped)
    end)
  end)
end)
