-- limn.while_at_most: a while loop with a gradient.
local U = require "support.util"
local limn = U.limn
local nn = limn.nn

-- x * y until the sum is large.
local function grow(x, y, most)
  local n, v = limn.while_at_most(most or 8, function(_, v)
    return v:sum():lt(20)
  end, function(n, v) return n + 1, v * y end, 0, x)
  return v, n
end

local function plain(x, y)
  local n, v = limn.while_loop(function(_, v) return v:sum():lt(20) end,
                               function(n, v) return n + 1, v * y end, 0, x)
  return v, n
end

local function examples(dev, dtype)
  local x, y = limn.tensor({1, 1.5}, dtype), limn.tensor({2, 1.1}, dtype)
  return x:to(dev), y:to(dev)
end

local function saved(g)
  local path = os.tmpname()
  limn.save(path, {g = g})
  local h = limn.load(path).g
  os.remove(path)
  return h
end

describe("limn.while_at_most", function()
  it("gives what while_loop gives, eager, traced and loaded, on each device",
     function()
    local g = limn.trace(grow, limn.ones(2), limn.ones(2))
    local h = saved(g)
    U.each_device(function(dev)
      for _, k in ipairs {1, 3, 30} do -- four turns, fewer, none
        local x, y = examples(dev)
        x = x * k
        local want, turns = plain(x, y)
        for _, f in ipairs {grow, g, h, limn.jit(grow)} do
          local v, n = f(x, y)
          U.close(v, want, 1e-6)
          U.equal(n, U.flat(turns))
          assert.are.equal(dev, tostring(v.device))
        end
      end
    end)
  end)

  it("stops after so many turns, of which there may be none or a size's",
     function()
    local function f(x, most)
      local v, n = grow(x, x * 0 + 2, most:size(1))
      return v, n
    end
    local g = limn.trace(f, limn.ones(1), limn.ones(2))
    U.each_device(function(dev)
      for most = 0, 6 do
        for _, h in ipairs {f, g} do
          local v, n = h(limn.ones(1, dev), limn.ones(most, dev))
          assert.are.equal(math.min(most, 5), n:item())
          U.equal(v, {2 ^ n:item()})
        end
      end
    end)
    U.equal(grow(limn.ones(1), limn.full({1}, 2), 0), {1})
  end)

  it("has gradients of every order, the same in eager code, in a trace and "
     .. "loaded, on each device", function()
    local function slope(x, y)
      return (limn.grad(function(a, b) return grow(a, b):sum() end)(x, y))
    end
    local function curve(x, y)
      return (limn.grad(function(b)
        local v = slope(x, b) * b:new_ones(2):cumsum(1)
        return v:sum()
      end)(y))
    end
    local x, y = examples("cpu", "float64")
    local gs, gc = limn.trace(slope, x, y), limn.trace(curve, x, y)
    local forms = {{slope, curve}, {gs, gc}, {saved(gs), saved(gc)}}
    U.each_device(function(dev)
      local a, b = examples(dev)
      for _, f in ipairs(forms) do
        U.close(f[1](a, b), {2 ^ 5, 1.1 ^ 5}, 1e-5)
        U.close(f[2](a, b), {5 * 2 ^ 4, 2 * 5 * 1.1 ^ 4}, 1e-5)
        -- no turn at all
        U.equal(f[1](a * 100, b), {1, 1})
        U.equal(f[2](a * 100, b), {0, 0})
      end
    end)
  end)

  it("agrees with differences where the test reads what the body makes",
     function()
    local function f(x)
      local _, y = limn.while_at_most(20, function(e)
        return e:abs():gt(1e-12)
      end, function(_, r) -- Newton's square root
        local now = 0.5 * (r + x / r)
        return now - r, now
      end, x * 0 + 1, x)
      return y:sum()
    end
    local x = limn.tensor(3, "float64")
    U.close(f(x), {math.sqrt(3)}, 1e-12)
    local g = limn.trace(limn.grad(f), x)
    for _, slope in ipairs {limn.grad(f), g} do
      U.close(slope(x), {0.5 / math.sqrt(3)}, 1e-9)
    end
  end)

  it("nests in itself, in branches and in scans, and carries tables", function()
    local function f(x, w)
      local y = limn.map(function(row)
        local s = limn.while_at_most(4, function(s)
          return s.a:sum():lt(10)
        end, function(s)
          local inner = limn.while_at_most(3, function(v)
            return v:max():lt(4)
          end, function(v) return v + v * w end, s.a)
          local more = limn.cond(inner:sum():gt(6), function() return w end,
                                 function() return w * 2 end)
          return {a = inner * 1.5, b = {s.b[1] + more}}
        end, {a = row, b = {w:new_zeros(w:size(1))}})
        return s.a:sum() + s.b[1]:sum()
      end, x)
      return y:sum()
    end
    local x = limn.tensor({{0.5, 1}, {2, 3}, {9, 9}}, "float64")
    local w = limn.tensor({0.3, 0.6}, "float64")
    local by_w = limn.grad(function(b, a) return f(a, b) end)
    local g, gx = limn.trace(f, x, w), limn.trace(limn.grad(f), x, w)
    local gw = saved(limn.trace(by_w, w, x))
    local dw, dx, small = by_w(w, x), limn.grad(f)(x, w), 1e-6
    U.close(g(x, w), f(x, w), 1e-12)
    for i = 1, 2 do
      local up, down = w:clone(), w:clone()
      up[i], down[i] = w[i] + small, w[i] - small
      U.close(dw[i], (f(x, up) - f(x, down)) / (2 * small), 1e-6)
    end
    U.each_device(function(dev)
      local a, b = x:to "float32":to(dev), w:to "float32":to(dev)
      U.close(gx(a, b), U.flat(dx), 1e-5)
      U.close(gw(b, a), U.flat(dw), 1e-5)
    end)
  end)

  it("reads and writes parameters and buffers, prints and draws as eager code "
     .. "does", function()
    local w, seen = nn.Parameter(limn.tensor {2}), nn.Buffer(limn.zeros())
    local function f(x)
      local y = limn.while_at_most(6, function(v)
        return (v:sum() + limn.rand(x.device) * 0.01):lt(30)
      end, function(v)
        seen:assign(seen + 1)
        return v * w + limn.rand(1, x.device)
      end, x)
      return y:sum() + limn.rand(x.device)
    end
    local step = limn.value_and_grad(f, w)
    local g = limn.trace(step, limn.ones(1))
    U.each_device(function(dev)
      local want
      for _, h in ipairs {step, g, g} do
        limn.manual_seed(5)
        seen:assign(limn.zeros())
        local loss, slope = h(limn.ones(1, dev))
        local got = {loss:item(), slope:item(), seen:item()}
        want = want or got
        U.close(got, want, 1e-5)
        assert.are.equal(5, got[3])
      end
    end)
  end)

  it("can be trained through, in a scripted function too", function()
    local w = nn.Parameter(limn.tensor {0.5})
    local loss = limn.value_and_grad(limn.script(function(x)
      local y = limn.while_at_most(5, function(v) return v:sum() < 8 end,
                                   function(v) return v + w end, x)
      if y:sum() > 100 then y = y * 0 end
      return ((y - 3.5) ^ 2):sum()
    end), w)
    local opt = limn.optim.SGD({w}, {lr = 0.01})
    local step = limn.jit(function(x)
      local l, grads = loss(x)
      opt:step(grads)
      return l
    end)
    for _ = 1, 60 do step(limn.ones(1)) end
    U.close(w, {0.5}, 1e-3)
  end)

  it("says what it was given instead", function()
    local x = limn.ones(2)
    local function go() return x:sum():lt(0) end
    local function same(v) return v end
    U.message(function() limn.while_at_most(2.5, go, same, x) end,
              "the most turns are a whole number, not 2.5")
    U.message(function() limn.while_at_most(go, same, x) end, "whole number")
    U.message(function() limn.while_at_most(3, x, same, x) end,
              "a function is wanted, not a tensor")
    local function traced(f) return function() limn.trace(f, x) end end
    for _, form in ipairs {function(f) return function() f(x) end end, traced}
    do
      U.message(form(function(v)
        return (limn.while_at_most(3, function() return 1 end, same, v))
      end), "the test gives 1; one bool tensor is wanted")
      U.message(form(function(v)
        return (limn.while_at_most(3, function() return v:sum():gt(0) end,
                                   function() return v, v end, v))
      end), "the body gives 2 values for 1")
      U.message(form(function(v)
        return (limn.while_at_most(3, function() return v:sum():gt(0) end,
                                   function() return "v" end, v))
      end), 'the carried value .* is a tensor and becomes "v"')
    end
    U.message(function()
      limn.while_at_most(3, function() return x:sum():gt(0) end,
                         function(v) return limn.cat {v, v} end, x)
    end, "a carried value is float32 %[2%] and becomes float32 %[4%]")
  end)

  it("is what while_loop advises to whom wants a gradient", function()
    U.message(function()
      limn.trace(limn.grad(function(x)
        return limn.while_loop(function(v) return v:sum():lt(9) end,
                               function(v) return v * 2 end, x):sum()
      end), limn.ones(2))
    end, "while_loop has no gradient", "limn.while_at_most%(n, test, body")
  end)
end)
