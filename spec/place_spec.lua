-- Values that are made where they belong: parts of cat, gradients of slices.
local U = require "support.util"
local limn = U.limn

-- Steps of the plan, as explain lists them.
local function steps(g, ...)
  local n = tonumber(g:explain(...):match ": (%d+) steps?")
  return n
end

-- The same numbers eager and traced, on every device.
local function everywhere(f, ...)
  local inputs = {...}
  local want = {f(...)}
  local g = limn.trace(f, ...)
  U.each_device(function(dev)
    local x = {}
    for i, v in ipairs(inputs) do x[i] = v:to(dev) end
    local got = {g(unpack(x))}
    for i = 1, #want do
      U.close(got[i], want[i], 1e-5, "max", "result " .. i .. " on " .. dev)
    end
  end)
  return g
end

describe("Parts", function()
  it("of cat are computed in its memory", function()
    local function f(x, y)
      return limn.cat({x:exp(), y * 2, x:tanh()}, 2)
    end
    local x, y = limn.randn(3, 4), limn.randn(3, 2)
    local g = everywhere(f, x, y)
    assert.are.equal(3, steps(g, x, y))
  end)

  it("of cat of one shape are computed by one step, but not where each ends a "
     .. "product", function()
    local function f(x, y) return limn.cat({x:exp(), y * 2, y:sin()}, 2) end
    local x, y, w = limn.randn(3, 4), limn.randn(3, 4), limn.randn(4, 4)
    assert.are.equal(1, steps(everywhere(f, x, y), x, y))
    local function products(a, b, m)
      return limn.cat({limn.matmul(a, m):tanh(), limn.matmul(b, m):exp()}, 2)
    end
    local g = everywhere(products, x, y, w)
    local text = g:explain(x, y, w)
    local _, n = text:gsub("matmul[^\n]*{ load ", "")
    assert.are.equal(2, n, text)
  end)

  it("of cat that are used twice, given or broadcast are right, too",
     function()
    everywhere(function(x, y)
      local e = x:exp()
      local both = limn.cat({e, x, e, y:expand(3, 4)}, 1)
      return both, both:sum(), e + 1, limn.cat({both, both:neg()}, 2)
    end, limn.randn(3, 4), limn.randn(1, 4))
    everywhere(function(x) -- a result that is a part
      local e = x:exp()
      return e, limn.cat({e, x}, 1)
    end, limn.randn(3, 4))
    everywhere(function(x) return limn.cat({x:exp(), x:neg()}, 1) end,
               limn.zeros(0, 3))
  end)

  it("of a cell's new value leave the old one to its readers", function()
    U.each_device(function(dev)
      local c = limn.nn.Buffer(limn.tensor {1, 2, 3, 4})
      local f = limn.trace(function(x)
        local a, b = c[{{1, 2}}], c[{{3, 4}}]
        c:assign(limn.cat({b + x, a * x}, 1))
        return a - b
      end, limn.ones {})
      U.close(f(limn.full({}, 2, {device = dev})), {-2, -2})
      U.close(c, {5, 6, 2, 4})
    end)
  end)

  it("that slices took have a gradient that is put together in place",
     function()
    local function f(x)
      return limn.grad(function(v)
        local a, b, c = v[{{}, 1}], v[{{}, 2}], v[{{}, 3}]
        return (a:sin() * b + c:exp() * a):sum()
      end)(x)
    end
    local x = limn.randn(5, 3, 4)
    local g = everywhere(f, x)
    -- No zeros, no sums of them, no copies: all parts in one step.
    assert.are.equal(1, steps(g, x), g:explain(x))
  end)

  it("that slices took in part, or twice, have the right gradient",
     function()
    everywhere(limn.grad(function(v) -- nothing took row 2
      return (v[1] * v[3]:exp()):sum()
    end), limn.randn(3, 4))
    everywhere(limn.grad(function(v) -- overlapping
      return (v[{{1, 2}}] * v[{{2, 3}}]:exp()):sum()
    end), limn.randn(3, 4))
    everywhere(limn.grad(function(v) -- by steps, which interleave
      return (v[{{1, 4, 2}}] * v[{{2, 4, 2}}]:exp()):sum()
    end), limn.randn(4, 4))
    everywhere(limn.grad(function(v) -- and as a whole
      return (v[1] * v[2]:exp()):sum() + v:tanh():sum()
    end), limn.randn(2, 4))
    everywhere(limn.grad(function(v) -- positions from the end
      return (v[-1] * v[{{1, -2}}]:exp()):sum()
    end), limn.randn(3, 4))
  end)

  it("that a body gives twice, or passes on, are stored by one step",
     function()
    local function f(x, h)
      local last, ys = limn.scan(function(s, row)
        local n = (s.h + row):tanh()
        return {h = n, before = s.h}, {n, s.h, n * row, n}
      end, {h = h, before = h}, x)
      return last.h, last.before, ys[1], ys[2], ys[3], ys[4]
    end
    local x, h = limn.randn(5, 2, 3), limn.randn(2, 3)
    local g = everywhere(f, x, h)
    local _, n = g:explain(x, h):gsub("\n        %d", "")
    assert.are.equal(1, n, g:explain(x, h))
  end)

  it("are put into a value in the order of the assignments", function()
    local g = everywhere(function(x, y)
      local z = limn.zeros(4, 3)
      z[{{1, 2}}] = x
      z[{{2, 3}}] = y * 2
      z[{{}, 3}] = 7
      return z
    end, limn.randn(2, 3), limn.randn(2, 3))
    assert.is_truthy(g)
    everywhere(function(x) -- an earlier value that is used again
      local z = x * 1
      z[1] = 5
      local before = z
      local w = before * 1
      w[2] = 6
      return w, before
    end, limn.randn(3, 3))
  end)
end)
