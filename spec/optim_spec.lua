-- Optimizers take the steps that PyTorch's take, eager and recorded.
local U = require "support.util"
local limn = U.limn
local optim, nn = limn.optim, limn.nn

local later = {RMSprop = true, Adagrad = true, Adadelta = true}

-- The parameter, its optimizer and the loss of the files.
local function problem(case)
  local p = nn.Parameter(U.tensor(case.start.data, case.start.shape,
                                  "float64"))
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
    if not later[kind] and U.selected(kind) then
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
      end)
    end
  end

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

  it("clipped gradients have the norm that was asked for", function()
    local g = {a = limn.tensor {3, 0}, b = limn.tensor {0, 4}}
    local c, norm = optim.clip_grad_norm(g, 1)
    U.close({norm:item()}, {5})
    U.close(c.a, {0.6, 0}, 1e-5)
    U.close(c.b, {0, 0.8}, 1e-5)
    local same = optim.clip_grad_norm(g, 10)
    U.close(same.b, {0, 4})
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
