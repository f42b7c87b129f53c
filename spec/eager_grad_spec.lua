-- Gradients in eager code are those of its trace where values have two names.
local U = require "support.util"
local limn = U.limn

-- f(x) in eager code and traced, on every device.
local function both(f, x, want)
  local g = limn.trace(f, x)
  U.each_device(function(dev)
    U.close(f(x:to(dev)), want, 1e-5, 1, "eager on " .. dev)
    U.close(g(x:to(dev)), want, 1e-5, 1, "traced on " .. dev)
  end)
end

describe("A gradient", function()
  local reverse = limn.custom(function(x) return x end,
                              function(g) return g * -3 end)

  it("tells what a custom function passes on from what it was given",
     function()
    both(limn.grad(function(x)
      local y = reverse(x)
      return (x * x + y * 5):sum()
    end), limn.tensor {1, 2}, {2 - 15, 4 - 15})
    both(limn.grad(function(x)
      local y = limn.custom(function(v) return v:detach() end,
                            function(g, _, v) return g * v end)(x)
      return (x * y):sum()
    end), limn.tensor {1, 2}, {1 + 1, 2 + 4})
    -- twice the same, and through a second order
    both(limn.grad(function(x)
      return (limn.grad(function(v)
        return (reverse(v) * v * v + reverse(v)):sum()
      end)(x)):sum()
    end), limn.tensor {1, 2}, {-10, -20})
  end)

  it("is with respect to the argument alone, where the function reaches the "
     .. "same value under another name", function()
    both(function(x)
      local y = x * 1
      return (limn.grad(function(v) return (v * y):sum() end)(y))
    end, limn.tensor {1, 2}, {1, 2})
    -- the outer gradient goes through both
    both(limn.grad(function(x)
      return (limn.grad(function(v) return (v * v * x):sum() end)(x)):sum()
    end), limn.tensor {1, 2}, {4, 8})
  end)

  it("of a gradient takes as many draws as in a trace, without rows too",
     function()
    local function second(x, y)
      return (limn.grad(function(b)
        return (limn.grad(function(v)
          local h, all = limn.scan(function(c, r)
            local now = (c + r):tanh()
            return now, now
          end, v, x)
          return h:sum() + all:sum()
        end)(b) * b):sum()
      end)(y))
    end
    local y = limn.tensor {0.5, 0.25}
    local g = limn.trace(second, limn.ones(1, 2), y)
    for n = 0, 2 do
      local x = limn.ones(n, 2)
      local function next_number(f)
        limn.manual_seed(4)
        U.close(f(x, y), second(x, y), 1e-5)
        limn.manual_seed(4)
        f(x, y)
        return limn.rand():item()
      end
      assert.are.equal(next_number(g), next_number(second))
    end
  end)

  it("of a gradient goes through functions of limn.custom and control flow in "
     .. "the gradient of limn.custom", function()
    local cube = limn.custom(function(v) return v * v * v end,
                             function(g, _, v) return g * v * v * 3 end)
    local inside = {
      function(g, v) return g * cube(v) end,
      function(g, v)
        return (limn.cond(v:sum():gt(0), function() return g * v * v * v end,
                          function() return g end))
      end,
      function(g, v)
        local y = limn.scan(function(c, r) return c * r end, g,
                            limn.stack({v, v, v}))
        return y
      end,
      function(g, v)
        return (limn.while_at_most(3, function() return g:sum():gt(-9) end,
                                   function(c) return c * v end, g))
      end,
    }
    for _, vjp in ipairs(inside) do
      local f = limn.custom(function(v) return v:detach() end,
                            function(g, _, v) return vjp(g, v) end)
      both(limn.grad(function(x)
        return (limn.grad(function(v) return f(v):sum() end)(x)):sum()
      end), limn.tensor {1, 2}, {3, 12})
    end
  end)

  it("of a gradient by parameters is taken where the arguments are", function()
    local w = limn.nn.Parameter(limn.tensor {1, 2})
    both(function(x)
      local _, slope = limn.value_and_grad(function()
        local _, d = limn.value_and_grad(function()
          return (x * w * w * w):sum()
        end, w)()
        return (d * d):sum()
      end, w)()
      return slope
    end, limn.tensor {0.5, 0.25}, {36 * 0.25, 36 * 0.0625 * 8})
  end)

  it("that is zero because nothing is reached is where the others are",
     function()
    local w = limn.nn.Parameter(limn.ones(2))
    local v = limn.nn.Parameter(limn.ones(3))
    U.each_device(function(dev)
      local _, grads = limn.value_and_grad(function(x) return (x * w):sum() end,
        {w, v}, {unused = "zeros"})(limn.ones(2, dev))
      for i = 1, 2 do assert.are.equal(dev, tostring(grads[i].device)) end
      U.equal(grads[2], {0, 0, 0})
      assert(limn.optim.clip_grad_norm(grads, 1))
    end)
  end)
end)
