-- Gradients through limn.cond and limn.scan, in traces.
local U = require "support.util"
local limn = U.limn
local nn = limn.nn

local f64 = {dtype = "float64"}
local function randn(...) return (limn.randn({...}, f64)) end

-- Slopes of value() (a 0-dim tensor) by each element of a cell.
local function slopes(value, cell, d)
  local keep, out = cell:value(), {}
  local flat = U.flat(keep)
  for i = 1, #flat do
    local x, y = flat[i], {}
    for k, s in ipairs {1, -1} do
      flat[i] = x + s * d
      cell:assign(U.tensor(flat, keep.shape, "float64"))
      y[k] = value():item()
    end
    flat[i], out[i] = x, (y[1] - y[2]) / (2 * d)
  end
  cell:assign(keep)
  return out
end

-- loss(x) is traced, differentiated by x and by the cells, and compared with
-- differences, on every device, with each of the inputs.
local function check(loss, cells, ...)
  local inputs = {...}
  local g = limn.trace(function(x)
    local wrt = {x}
    for i, c in ipairs(cells) do wrt[i + 1] = c end
    local l, grads = limn.value_and_grad(loss, wrt)(x)
    return l, grads
  end, inputs[1])
  for n, x in ipairs(inputs) do
    local input = nn.Parameter(x)
    local function value() return (loss(input:value())) end
    local want = {slopes(value, input, 1e-6)}
    for i, c in ipairs(cells) do want[i + 1] = slopes(value, c, 1e-6) end
    U.each_device(function(dev)
      local l, grads = g(x:to(dev))
      local how = "input " .. n .. " on " .. dev
      U.close(l, value(), 1e-10, 1, how)
      for i = 1, #want do
        U.close(grads[i], want[i], 1e-6, "max", how .. ", gradient " .. i)
      end
    end)
  end
  return g
end

describe("The gradient of a cond", function()
  before_each(function() limn.manual_seed(1) end)

  it("is that of the branch that ran, parameters too", function()
    local w, v = nn.Parameter(randn(3, 3)), nn.Parameter(randn(3))
    local g = check(function(x)
      local y, z = limn.cond(x:sum():gt(0), function(a)
        return limn.matmul(a, w):tanh(), a * 2
      end, function(a) return (a * v):sin(), v + a * 0 end, x)
      return U.weigh(y) + U.weigh(z * z)
    end, {w, v}, randn(2, 3):abs(), -randn(4, 3):abs(), randn(1, 3):abs())
    local _, n = tostring(g):gsub("= cond%(", "")
    assert.are.equal(2, n)
  end)

  it("passes through branches in branches", function()
    local w = nn.Parameter(randn(3))
    check(function(x)
      local y = limn.cond(x:sum():gt(0), function()
        return (limn.cond(x:max():gt(1), function() return x * w end,
                          function() return x:exp() * w end))
      end, function() return w * w + x end)
      return U.weigh(y)
    end, {w}, limn.tensor({2, 1, 0}, "float64"),
      limn.tensor({0.5, 0.2, 0}, "float64"), -randn(3):abs())
  end)

  it("has zeros for what the branch did not use", function()
    local g = limn.trace(function(x, y)
      return limn.grad(function(v)
        local z = limn.cond(v[1]:sum():gt(0), function() return v[1] * 3 end,
                            function() return v[2] * 4 end)
        return z:sum()
      end)({x, y})
    end, limn.ones(2), limn.ones(2))
    U.each_device(function(dev)
      local one = limn.ones(2):to(dev)
      local r = g(one, one)
      U.close(r[1], {3, 3})
      U.close(r[2], {0, 0})
      r = g(-one, one)
      U.close(r[1], {0, 0})
      U.close(r[2], {4, 4})
    end)
  end)

  it("sees the random numbers that the branch saw", function()
    local function f(x)
      local l, g = limn.value_and_grad(function(v)
        local y = limn.cond(v:sum():gt(0), function()
          return nn.dropout(v, 0.5) * 3
        end, function() return v end)
        return y:sum(), y
      end, {x})(x)
      return l, g[1]
    end
    local g = limn.trace(f, limn.ones(64))
    U.each_device(function(dev)
      local _, n = g(limn.ones(64):to(dev))
      local zeros, sixes = 0, 0
      for _, v in ipairs(U.flat(n)) do
        zeros = zeros + (v == 0 and 1 or 0)
        sixes = sixes + (v == 6 and 1 or 0)
      end
      assert.are.equal(64, zeros + sixes)
      assert.is_true(zeros > 10 and sixes > 10)
      limn.manual_seed(7)
      local l, got = g(limn.ones(64):to(dev))
      U.close(got:sum(), l, 1e-6) -- each kept value gave 6, and has slope 6
    end)
  end)

  it("of a plan value keeps one branch, and there its gradient", function()
    local w = nn.Parameter(randn(3))
    local g = limn.trace(function(x)
      local _, grad = limn.value_and_grad(function()
        local y = limn.cond(limn.gt(x:size(1), 2), function() return x * w end,
                            function() return x * w * w end)
        return y:sum()
      end, w)(x)
      return grad
    end, randn(3, 3))
    U.each_device(function(dev)
      local a, b = randn(4, 3), randn(2, 3)
      U.close(g(a:to(dev)), a:sum(1), 1e-12, 1)
      U.close(g(b:to(dev)), b:sum(1) * w * 2, 1e-12, 1)
    end)
  end)
end)

describe("The gradient of a scan", function()
  before_each(function() limn.manual_seed(1) end)

  it("goes through carry, rows and parameters", function()
    local w, b = nn.Parameter(randn(3, 3)), nn.Parameter(randn(3))
    local function loss(x)
      local last, ys = limn.scan(function(h, row)
        h = (limn.matmul(h, w) + row * b):tanh()
        return h, h * row
      end, x[1] * 0.5, x)
      return U.weigh(ys) + U.weigh(last * last)
    end
    local g = check(loss, {w, b}, randn(5, 2, 3), randn(1, 2, 3),
                    randn(9, 4, 3))
    local _, n = tostring(g):gsub("= scan%(", "")
    assert.are.equal(2, n)
  end)

  it("goes backwards through one that goes backwards", function()
    local w = nn.Parameter(randn(3))
    check(function(x)
      local last, ys = limn.scan(function(h, row)
        h = (h * w + row):sin()
        return h, h * 2
      end, limn.zeros({3}, f64), x, {reverse = true})
      return U.weigh(ys) + U.weigh(last)
    end, {w}, randn(5, 3), randn(1, 3))
  end)

  it("is that of no step where there is none", function()
    local w, b = nn.Parameter(randn(3, 3)), nn.Parameter(randn(3))
    local g = limn.trace(function(x, h)
      local l, grads = limn.value_and_grad(function()
        local last, ys = limn.scan(function(s, row)
          s = (limn.matmul(s, w) + row * b):tanh()
          return s, s * row
        end, h, x)
        return U.weigh(last * last) + ys:sum()
      end, {w, b, x, h})()
      return l, grads
    end, randn(5, 2, 3), randn(2, 3))
    U.each_device(function(dev)
      local h = randn(2, 3)
      local _, r = g(randn(0, 2, 3):to(dev), h:to(dev))
      U.close(r[1], limn.zeros(3, 3))
      U.close(r[2], limn.zeros(3))
      U.shape(r[3], {0, 2, 3})
      local want = limn.grad(function(v) return U.weigh(v * v) end)(h)
      U.close(r[4], want, 1e-12, 1)
    end)
  end)

  it("multiplies stacked factors once for each matrix, after the scan",
     function()
    local w, b = nn.Parameter(randn(3, 4)), nn.Parameter(randn(4))
    local function loss(x)
      local _, ys = limn.scan(function(h, row)
        local y = (limn.matmul(row, w) + b):tanh()
        return h + y:sum(), y
      end, limn.zeros({}, f64), x)
      return U.weigh(ys)
    end
    local g = check(loss, {w, b}, randn(6, 2, 3))
    local text = tostring(g)
    local inner = text:match "reverse=true.-\n  }"
    assert.is_nil(inner:find "trans_x=true", inner)
    assert.is_truthy(text:match "reverse=true.*\n  %%%d+ = matmul%(.-trans_x")
  end)

  it("does so for a matrix that was transposed", function()
    local w = nn.Parameter(randn(4, 3))
    local g = check(function(x)
      local h = limn.scan(function(h, row)
        h = (limn.matmul(row, w:t()) + h):tanh()
        return h, h
      end, limn.zeros({2, 4}, f64), x)
      return U.weigh(h)
    end, {w}, randn(5, 2, 3))
    assert.is_truthy(tostring(g):match "reverse=true.*\n  %%%d+ = matmul%(.-tr")
  end)

  it("adds up what is no product of matrices", function()
    local w, m = nn.Parameter(randn(2, 3)), nn.Parameter(randn(3, 3))
    check(function(x)
      local h = limn.scan(function(h, row)
        -- m takes part as a factor, elementwise, and of a vector.
        local k = limn.matmul(h * w, m) + limn.matmul(row, m * m)
        return (k * limn.matmul(m, row) * 0.1):tanh(), row
      end, limn.ones({2, 3}, f64), x)
      return U.weigh(h)
    end, {w, m}, randn(4, 3))
  end)

  it("passes through a cond in a scan and a scan in a cond", function()
    local w = nn.Parameter(randn(3))
    check(function(x)
      local h, ys = limn.scan(function(h, row)
        local k = limn.cond(row:sum():gt(0), function()
          return h * w + row
        end, function() return (h - row):sin() end)
        return k, k * row
      end, limn.ones({3}, f64), x)
      return U.weigh(h) + U.weigh(ys)
    end, {w}, randn(6, 3))
    check(function(x)
      local y = limn.cond(x:sum():gt(0), function()
        local h = limn.scan(function(h, row)
          h = (h * w + row):tanh()
          return h, h
        end, limn.zeros({3}, f64), x)
        return h
      end, function() return x[1] * w end)
      return U.weigh(y)
    end, {w}, randn(4, 3):abs(), -randn(4, 3):abs())
  end)

  it("passes through a scan in a scan", function()
    local w = nn.Parameter(randn(3))
    check(function(x)
      local h, ys = limn.scan(function(h, rows)
        local k, zs = limn.scan(function(k, row)
          k = (k * w + row):sin()
          return k, k * h
        end, h, rows)
        return k:tanh(), zs:sum(1)
      end, limn.zeros({3}, f64), x)
      return U.weigh(h) + U.weigh(ys)
    end, {w}, randn(3, 4, 3), randn(2, 1, 3))
  end)

  it("keeps the random numbers of each step", function()
    local g = limn.trace(function(x)
      local l, grads = limn.value_and_grad(function(v)
        local _, ys = limn.scan(function(h, row)
          return h, nn.dropout(row, 0.5) * 3
        end, limn.zeros {}, v)
        return ys:sum()
      end, {x})(x)
      return l, grads[1]
    end, limn.ones(4, 16))
    U.each_device(function(dev)
      local l, n = g(limn.ones(8, 16):to(dev))
      U.close(n:sum(), l, 1e-6)
      local rows = {}
      for i = 1, 8 do rows[table.concat(U.flat(n[i]), " ")] = true end
      local count = 0
      for _ in pairs(rows) do count = count + 1 end
      assert.is_true(count > 4)
    end)
  end)

  it("keeps those of a cond in a step", function()
    local g = limn.trace(function(x)
      local l, grads = limn.value_and_grad(function(v)
        local _, ys = limn.scan(function(h, row)
          local y = limn.cond(row:sum():gt(0), function()
            return nn.dropout(row, 0.5) * 3
          end, function() return row end)
          return h, y
        end, limn.zeros {}, v)
        return ys:sum()
      end, {x})(x)
      return l, grads[1]
    end, limn.ones(4, 16))
    U.each_device(function(dev)
      local l, n = g(limn.ones(8, 16):to(dev))
      U.close(n:sum(), l, 1e-6)
      assert.is_true(n:max():item() == 6 and n:min():item() == 0)
    end)
  end)

  it("keeps those of a layer that drops out in training", function()
    local drop = nn.Dropout(0.5)
    local g = limn.trace(function(x)
      local l, grads = limn.value_and_grad(function(v)
        local _, ys = limn.scan(function(h, row)
          return h, drop(row) * 3
        end, limn.zeros {}, v)
        return ys:sum()
      end, {x})(x)
      return l, grads[1]
    end, limn.ones(4, 16))
    U.each_device(function(dev)
      g:train()
      local l, n = g(limn.ones(8, 16):to(dev))
      U.close(n:sum(), l, 1e-6)
      assert.is_true(n:max():item() == 6 and n:min():item() == 0)
      g:eval()
      local _, m = g(limn.ones(8, 16):to(dev))
      U.close(m, limn.full({8, 16}, 3))
    end)
  end)

  it("knows counters, masks and sizes among what is carried", function()
    local w = nn.Parameter(randn(3))
    check(function(x)
      local s = limn.scan(function(s, row)
        local on = s.n:lt(x:size(1) - 1)
        local h = limn.where(on, (s.h * w + row):sin(), s.h)
        return {h = h, n = s.n + 1}, h
      end, {h = limn.ones({3}, f64), n = limn.tensor(0, "int64")}, x)
      return U.weigh(s.h) * x:size(1)
    end, {w}, randn(5, 3), randn(3, 3))
  end)

  it("is differentiated again", function()
    local w = nn.Parameter(randn(2, 2))
    local function loss(x)
      local h, ys = limn.scan(function(h, row)
        h = (limn.matmul(h, w) + row):tanh()
        return h, h * row
      end, x[1], x)
      return U.weigh(h) + U.weigh(ys)
    end
    local function penalty(x)
      local g = limn.grad(loss)(x)
      return (g * g):sum()
    end
    local f = limn.trace(function(x)
      local _, grads = limn.value_and_grad(penalty, {x, w})(x)
      return grads
    end, randn(3, 2, 2))
    local p = limn.trace(penalty, randn(3, 2, 2))
    for _, steps in ipairs {4, 1} do
      local x = nn.Parameter(randn(steps, 2, 2))
      local function value() return (p(x:value())) end
      local want = {slopes(value, x, 1e-5), slopes(value, w, 1e-5)}
      U.each_device(function(dev)
        local got = f(x:value():to(dev))
        U.close(got[1], want[1], 1e-6, "max", "by x, on " .. dev)
        U.close(got[2], want[2], 1e-6, "max", "by w, on " .. dev)
      end)
    end
  end)

  it("runs in a step that trains, saved and loaded", function()
    local w = nn.Parameter(limn.zeros(1))
    local opt = limn.optim.SGD({w}, {lr = 0.05})
    local loss = limn.value_and_grad(function(x)
      local s = limn.scan(function(s, row) return s + row * w, s end,
                          limn.zeros(1), x)
      return ((s - 6) ^ 2):sum()
    end, {w})
    local step = limn.trace({function(x)
      local l, g = loss(x)
      opt:step(g)
      return l
    end, limn.ones(3, 1), name = "step"})
    U.with_file(function(path)
      limn.save(path, {step = step, w = w})
      local m = limn.load(path)
      U.each_device(function(dev)
        for _ = 1, 60 do m.step(limn.ones(3, 1):to(dev)) end
        assert.is_true(m.step(limn.ones(3, 1):to(dev)):item() < 1e-3)
      end)
    end)
  end)
end)

describe("A gradient is refused", function()
  it("through while_loop, with advice", function()
    local function f(x)
      local y = limn.while_loop(function(a) return a:sum():lt(10) end,
                                function(a) return a * 2 end, x)
      return y:sum()
    end
    U.message(function() limn.trace(limn.grad(f), limn.ones(3)) end,
              "control_grad_spec.lua:%d+: while_loop has no gradient",
              "limn.scan")
  end)

  it("with respect to what a branch or a body never sees", function()
    local w = nn.Parameter(limn.ones(3))
    U.message(function()
      limn.trace(function(x)
        return limn.value_and_grad(function()
          local y = limn.cond(x:sum():gt(0), function() return x end,
                              function() return x * 2 end)
          return y:sum()
        end, w)()
      end, limn.ones(3))
    end, "does not depend on")
  end)
end)

describe("the gradient of a loop of no rows", function()
  it("is zero for all that the body uses, in eager code too", function()
    local w, none = nn.Parameter(limn.ones(2)), limn.zeros(0, 2)
    local function stacked(x)
      return limn.map(function(r) return (w * r):sum() end, x):sum()
    end
    local function carried(x)
      return (limn.scan(function(c, r) return c + (w * r):sum() end, 0, x))
    end
    for _, f in ipairs {stacked, carried} do
      local loss, slope = limn.value_and_grad(f, w)(none)
      assert.are.equal(0, loss:item())
      U.equal(slope, {0, 0})
      U.shape(limn.grad(f)(none), {0, 2})
      U.shape(limn.trace(limn.grad(f), limn.ones(3, 2))(none), {0, 2})
    end
    U.equal(limn.grad(function(v)
      return limn.map(function(r) return v * r end, none):sum()
    end)(limn.ones(2)), {0, 0})
  end)
end)

describe("The gradient of what only the branch not taken reaches", function()
  local w = nn.Parameter(limn.tensor {3, 4})

  -- Eager code and its trace, with respect to x and to w.
  local function zeros(f, x)
    local g = limn.trace(limn.grad(f), x)
    local h = limn.value_and_grad(f, w)
    local t = limn.trace(h, x)
    U.each_device(function(dev)
      local v = x:to(dev)
      for _, slope in ipairs {limn.grad(f), g} do
        local y = slope(v)
        U.equal(y, {0, 0})
        assert.are.equal(dev, tostring(y.device))
      end
      for _, slope in ipairs {h, t} do
        local _, y = slope(v)
        U.equal(y, {0, 0})
      end
    end)
  end

  it("is zero in eager code as in a trace", function()
    zeros(function(x)
      local y = limn.cond(x:sum():gt(9), function() return (x * w):sum() end,
                          function() return x:new_zeros() end)
      return y
    end, limn.ones(2))
    zeros(limn.script(function(x)
      local y = 0
      if x:sum() > 9 then y = (x * w):sum() end
      return limn.zeros(x.device) + y
    end), limn.ones(2))
    zeros(limn.script(function(x)
      local y = x:sum() > 9 and (x * w):sum() or x:new_zeros()
      return y
    end), limn.ones(2))
  end)

  it("is zero for what only the other mode or device uses", function()
    local Net = nn.Module:extend "Net"
    function Net:init() self.w = nn.Parameter(limn.ones(2)) end
    function Net:forward(x)
      return (self:when_training(function(v) return v * self.w end, x))
    end
    local net = Net()
    local loss = limn.value_and_grad(function(x) return net(x):sum() end, net)
    local step = limn.jit(loss)
    for _, f in ipairs {loss, step} do
      net:eval()
      local _, grads = f(limn.full({2}, 3))
      U.equal(grads.w, {0, 0})
      net:train()
      _, grads = f(limn.full({2}, 3))
      U.equal(grads.w, {3, 3})
    end
  end)

  it("is an error where no branch was left out since, or the op has none",
     function()
    local function dead(x)
      local y = limn.cond(x:sum():gt(0), function() return x end,
                          function() return x * 2 end)
      return y:sum()
    end
    dead(limn.ones(2))
    U.message(limn.value_and_grad(function() return limn.ones() end, w),
              "does not depend on")
    U.message(function()
      return limn.grad(function(x)
        return x:argmax(1):to "float32" + dead(limn.ones(2))
      end)(limn.ones(2))
    end, "argmax has no gradient")
  end)
end)
