-- Optimizers take the steps that PyTorch's take, eager and recorded.
local U = require "support.util"
local limn = U.limn
local optim, nn = limn.optim, limn.nn

-- The parameter, its optimizer and the loss of the files.
local function problem(case, dtype)
  local p = nn.Parameter(U.tensor(case.start.data, case.start.shape,
                                  dtype or "float64"))
  local options = {}
  for k, v in pairs(case.options) do options[k] = v end
  local make = optim[case.expr:match "%w+$"]
  local opt = make({p}, options)
  local loss = limn.value_and_grad(function()
    return ((p - 1) ^ 4 + (3 * p):sin()):sum()
  end, p)
  return p, opt, loss
end

-- Optimizer scalars are float32, so float64 parameters agree to about 1e-6.
local tol = 2e-6

describe("Optimizers follow PyTorch's path:", function()
  for _, case in ipairs(dofile "spec/golden/optim.lua") do
    local kind = case.expr:match "%w+$"
    if U.selected(kind) then
      U.each_device(function(dev)
        it(case.name .. ", eager on " .. dev, function()
          local p, opt, loss = problem(case)
          for i, want in ipairs(case.path) do
            limn.on(dev, function()
              local _, grads = loss()
              opt:step(grads)
            end)
            U.close(p, want.data, tol, "max", "step " .. i)
          end
        end)
        it(case.name .. ", recorded and run on " .. dev, function()
          local p, opt, loss = problem(case)
          local step = limn.jit(function(x)
            local l, grads = loss()
            opt:step(grads)
            return l + x
          end)
          local x = limn.tensor({0}, "float64"):to(dev)
          for i, want in ipairs(case.path) do
            local l = step(x)
            assert.are.equal(dev, tostring(l.device))
            U.close(p, want.data, tol, "max", "step " .. i)
          end
          assert.are.equal(1, step:stats().traces)
        end)
        it(case.name .. ", in float32, from a file on " .. dev, function()
          local p, opt, loss = problem(case, "float32")
          local function step(x)
            local l, grads = loss()
            opt:step(grads)
            return l + x
          end
          p.name = "p"
          local x = limn.zeros(1)
          local m = limn.load_string(limn.save_string {
            step = limn.trace(step, x), p = p, opt = opt})
          x = x:to(dev)
          for i, want in ipairs(case.path) do
            m.step(x)
            U.close(m:var "p", want.data, 1e-5, "max", "step " .. i)
          end
          U.close(p, case.start.data, 1e-6)
        end)
      end)
    end
  end

  -- f(x): the optimizer's steps on (x - 1)^4 + sin(3 x), as plain numbers.
  local function slope(x) return 4 * (x - 1) ^ 3 + 3 * math.cos(3 * x) end
  local function follows(make, rule)
    local start = {-1.2, 0.3, 0.8}
    U.each_device(function(dev)
      for _, how in ipairs {"eager", "recorded"} do
        local p = nn.Parameter(limn.tensor(start, "float64"))
        local opt = make(p)
        local loss = limn.value_and_grad(function()
          return ((p - 1) ^ 4 + (3 * p):sin()):sum()
        end, p)
        local function body(x)
          local l, grads = loss()
          opt:step(grads)
          return l + x
        end
        local step = how == "recorded" and limn.jit(body) or body
        local want, state = {unpack(start)}, {{}, {}, {}}
        for t = 1, 5 do
          limn.on(dev, function()
            step(limn.tensor({0}, "float64"):to(dev))
          end)
          for i = 1, 3 do
            want[i] = rule(want[i], slope(want[i]), state[i], t)
          end
          U.close(p, want, tol, "max", how .. " on " .. dev .. ", step " .. t)
        end
      end
    end)
  end

  it("dampened momentum takes the first gradient whole", function()
    follows(function(p)
      return optim.SGD({p}, {lr = 0.02, momentum = 0.9, dampening = 0.5})
    end, function(x, g, s)
      s.m = s.m and 0.9 * s.m + 0.5 * g or g
      return x - 0.02 * s.m
    end)
  end)

  it("Lion steps by the sign of a mean", function()
    follows(function(p)
      return optim.Lion({p}, {lr = 0.02, weight_decay = 0.1})
    end, function(x, g, s)
      local m = s.m or 0
      local c = 0.9 * m + 0.1 * g
      s.m = 0.99 * m + 0.01 * g
      return x * (1 - 0.02 * 0.1) - 0.02 * (c > 0 and 1 or c < 0 and -1 or 0)
    end)
  end)

  it("Adagrad's rate decays, from a sum that can be given", function()
    follows(function(p)
      return optim.Adagrad({p}, {lr = 0.1, lr_decay = 0.2, weight_decay = 0.1,
                                 initial_accumulator_value = 0.5})
    end, function(x, g, s, t)
      g = g + 0.1 * x
      s.sum = (s.sum or 0.5) + g * g
      return x - 0.1 / (1 + (t - 1) * 0.2) * g / (math.sqrt(s.sum) + 1e-10)
    end)
  end)

  it("RMSprop and Adadelta decay weights, and any of them can climb", function()
    follows(function(p)
      return optim.RMSprop({p}, {lr = 0.02, alpha = 0.9, weight_decay = 0.1,
                                 maximize = true})
    end, function(x, g, s)
      g = -g + 0.1 * x
      s.v = 0.9 * (s.v or 0) + 0.1 * g * g
      return x - 0.02 * g / (math.sqrt(s.v) + 1e-8)
    end)
    follows(function(p)
      return optim.Adadelta({p}, {lr = 0.5, weight_decay = 0.1})
    end, function(x, g, s)
      g = g + 0.1 * x
      s.v = 0.9 * (s.v or 0) + 0.1 * g * g
      local d = g * math.sqrt((s.d or 0) + 1e-6) / math.sqrt(s.v + 1e-6)
      s.d = 0.9 * (s.d or 0) + 0.1 * d * d
      return x - 0.5 * d
    end)
  end)

  it("the state's cells have names and go into a file", function()
    local p = nn.Parameter(limn.ones(2))
    p.name = "p"
    local opt = optim.Adam({p}, {amsgrad = true})
    local names = {}
    for name in opt:named_cells() do names[name] = true end
    for _, name in ipairs {"opt.p.m", "opt.p.v", "opt.p.vmax", "opt.t",
                           "opt.lr"} do
      assert.is_true(names[name], name)
    end
  end)

  it("a new learning rate takes effect without another trace", function()
    U.each_device(function(dev)
      local p = nn.Parameter(limn.zeros(2))
      local opt = optim.SGD({p}, {lr = 1})
      local step = limn.jit(function(g)
        opt:step {g}
        return p:value()
      end)
      local g = limn.ones(2):to(dev)
      U.equal(step(g), {-1, -1})
      opt:set {lr = 0.5}
      assert.are.equal(0.5, opt:get "lr")
      U.equal(step(g), {-1.5, -1.5})
      assert.are.equal(1, step:stats().traces)
    end)
  end)

  it("groups have options of their own", function()
    local a, b = nn.Parameter(limn.zeros(1)), nn.Parameter(limn.zeros(1))
    local opt = optim.SGD({{params = {a}, lr = 1}, {params = {b}}}, {lr = 2})
    opt:step {limn.ones(1), limn.ones(1)}
    U.equal(a, {-1})
    U.equal(b, {-2})
  end)

  it("a group of its own momentum has it", function()
    local a, b = nn.Parameter(limn.zeros(1)), nn.Parameter(limn.zeros(1))
    local opt = optim.SGD({{params = {a}, momentum = 0.5}, {params = {b}}},
                          {lr = 1})
    for _ = 1, 2 do opt:step {limn.ones(1), limn.ones(1)} end
    U.equal(a, {-2.5})
    U.equal(b, {-2})
  end)

  it("every kind of state is saved and goes on where it was", function()
    for _, case in ipairs(dofile "spec/golden/optim.lua") do
      local p, opt, loss = problem(case)
      for _ = 1, 2 do
        local _, grads = loss()
        opt:step(grads)
      end
      U.with_file(function(path)
        p.name = "p"
        limn.save(path, {p = p, opt = opt})
        local p2, opt2, loss2 = problem(case)
        p2.name = "p"
        p2:assign(p)
        local report = limn.restore(path, {opt = opt2})
        assert.same({}, report.missing)
        local _, grads = loss2()
        opt2:step(grads)
        U.close(p2, case.path[3].data, tol, "max", case.name)
      end)
    end
  end)

  it("clipped gradients have the norm that was asked for", function()
    local g = {a = limn.tensor {3, 0}, b = limn.tensor {0, 4}}
    local c, norm = optim.clip_grad_norm(g, 1)
    U.close({norm:item()}, {5})
    U.close(c.a, {0.6, 0}, 1e-5)
    U.close(c.b, {0, 0.8}, 1e-5)
    local same = optim.clip_grad_norm(g, 10)
    U.close(same.b, {0, 4})
  end)

  it("clipping knows other norms, and values", function()
    local g = {limn.tensor {3, 0}, {b = limn.tensor {0, -4}}}
    for p, want in pairs {[1] = 7, [3] = (27 + 64) ^ (1 / 3),
                          [math.huge] = 4} do
      local c, norm = optim.clip_grad_norm(g, 1, {norm_type = p})
      U.close({norm:item()}, {want}, 1e-6)
      U.close(c[1], {3 / want, 0}, 1e-5)
      U.close(c[2].b, {0, -4 / want}, 1e-5)
    end
    local c = optim.clip_grad_value(g, 2)
    U.equal(c[1], {2, 0})
    U.equal(c[2].b, {0, -2})
    U.each_device(function(dev)
      local step = limn.jit(function(a, b)
        local r, norm = optim.clip_grad_norm({a, b}, 1, {norm_type = math.huge})
        local v = optim.clip_grad_value({a, b}, 0.5)
        return r[1], norm, v[2]
      end)
      local a, norm, b = step(g[1]:to(dev), g[2].b:to(dev))
      U.close(a, {0.75, 0}, 1e-5)
      U.close({norm:item()}, {4})
      U.equal(b, {0, -0.5})
    end)
    local line = U.here(1)
    U.message(function() optim.clip_grad_norm(g, 1, {norm_type = 0}) end, line,
              "norm_type is a number above 0")
    U.message(function() optim.clip_grad_value(g, -1) end, "below 0")
    U.message(function() optim.clip_grad_value({}, 1) end, "no gradients")
    U.message(function() optim.clip_grad_norm({1}, 1) end,
              "gradients are wanted, got number")
  end)

  it("a missing gradient and a misspelt option say so", function()
    local p = nn.Parameter(limn.ones(2))
    local opt = optim.SGD({p}, {lr = 1})
    local line = U.here(1)
    U.message(function() opt:step {} end, line, "no gradient for")
    U.message(function() optim.Adam({p}, {lrr = 1}) end, "no option 'lrr'",
              "'lr'")
    U.message(function() optim.Adm({p}) end, "Adm", "'Adam'")
  end)
end)
