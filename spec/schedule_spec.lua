-- Schedules of the learning rate: PyTorch's rates, no new traces, saved state.
local U = require "support.util"
local limn = U.limn
local optim, nn = limn.optim, limn.nn
local schedule = optim.schedule

local function sgd(options)
  options = options or {}
  options.lr = options.lr or 0.5
  return optim.SGD({nn.Parameter(limn.zeros(2))}, options)
end

-- lr before the first step and after each of n.
local function rates(s, n)
  local list = {s:lr()}
  for i = 1, n do
    s:step()
    list[i + 1] = s:lr()
  end
  return list
end

-- The same by a rule that makes each rate from the one before it.
local function chain(first, n, rule)
  local list = {first}
  for t = 1, n do list[t + 1] = rule(list[t], t) end
  return list
end

describe("optim.schedule", function()
  it("step, multistep and exponential multiply", function()
    U.close(rates(schedule.step(sgd(), {step_size = 3, gamma = 0.5}), 9),
            chain(0.5, 9, function(lr, t)
      return t % 3 == 0 and lr * 0.5 or lr
    end))
    U.close(rates(schedule.multistep(sgd(), {milestones = {2, 5}}), 7),
            {0.5, 0.5, 0.05, 0.05, 0.05, 0.005, 0.005, 0.005})
    U.close(rates(schedule.exponential(sgd(), {gamma = 0.9}), 6),
            chain(0.5, 6, function(lr) return lr * 0.9 end))
  end)

  it("cosine falls to eta_min", function()
    local low = 0.1
    U.close(rates(schedule.cosine(sgd(), {T_max = 8, eta_min = low}), 7),
            chain(0.5, 7, function(lr, t)
      return (1 + math.cos(math.pi * t / 8))
        / (1 + math.cos(math.pi * (t - 1) / 8)) * (lr - low) + low
    end))
    local s = schedule.cosine(sgd(), {T_max = 8, eta_min = low})
    for _ = 1, 8 do s:step() end
    U.close({s:lr()}, {low})
    assert.equal(8, s:count())
    assert.is_truthy(tostring(s):find "cosine schedule after 8 steps")
  end)

  it("linear rises, alone or before another schedule", function()
    U.close(rates(schedule.linear(sgd(), {start_factor = 0.2,
                                          total_iters = 4}), 6),
            {0.1, 0.2, 0.3, 0.4, 0.5, 0.5, 0.5})
    local list = rates(schedule.exponential(sgd(), {gamma = 0.5, warmup = 2}),
                       4)
    U.close(list, {0, 0.25, 0.5, 0.25, 0.125})
    U.close(rates(schedule.cosine(sgd(), {T_max = 4, warmup = 5,
                                          warmup_start = 0.5}), 1),
            {0.25, 0.3})
  end)

  it("one_cycle rises, falls, and moves the momentum against it", function()
    local opt = sgd {momentum = 0.9}
    local s = schedule.one_cycle(opt, {max_lr = 1, total_steps = 10,
                                       pct_start = 0.3})
    local function cos(a, b, part)
      return b + (a - b) / 2 * (1 + math.cos(math.pi * part))
    end
    U.close({opt:get "momentum"}, {0.95})
    local want, first = {0.04, cos(0.04, 1, 0.5), 1}, 2
    for t = 3, 9 do want[t + 1] = cos(1, 0.04 / 1e4, (t - first) / 7) end
    U.close(rates(s, 2), {want[1], want[2], want[3]})
    U.close({opt:get "momentum"}, {0.85})
    for t = 3, 9 do
      s:step()
      U.close({s:lr()}, {want[t + 1]})
    end
    U.close({opt:get "momentum"}, {0.95})
    local adam = optim.Adam({nn.Parameter(limn.zeros(2))}, {lr = 1})
    s = schedule.one_cycle(adam, {
      max_lr = 0.1, total_steps = 20, three_phase = true, div_factor = 10,
      anneal_strategy = "linear", pct_start = 0.25})
    U.close(adam:get "betas", {0.95, 0.999})
    local list = rates(s, 19)
    U.close({list[1], list[5], list[9], list[20]}, {0.01, 0.1, 0.01, 1e-6})
    s = schedule.one_cycle(sgd(), {max_lr = 1, total_steps = 10})
    s:step()
  end)

  it("plateau waits, reduces, rests", function()
    local opt = sgd {lr = 1}
    local s = schedule.plateau(opt, {factor = 0.5, patience = 1, cooldown = 1,
                                     min_lr = 0.2})
    local seen = {}
    for i, loss in ipairs {3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 0 / 0} do
      s:step(i % 2 == 0 and loss or limn.tensor(loss))
      seen[i] = s:lr()
    end
    U.close(seen, {1, 1, 1, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.2, 0.2, 0.2,
                   0.2})
    s = schedule.plateau(sgd {lr = 1}, {mode = "max", patience = 0,
                                        threshold = 0.5,
                                        threshold_mode = "abs"})
    s:step(1)
    s:step(1.4)
    U.close({s:lr()}, {0.1})
    s:step(1.6)
    U.close({s:lr()}, {0.1})
  end)

  it("gives each parameter group its own rate", function()
    local a, b = nn.Parameter(limn.zeros(1)), nn.Parameter(limn.zeros(1))
    local opt = optim.SGD({{params = {a}, lr = 1}, {params = {b}}}, {lr = 2})
    local s = schedule.exponential(opt, {gamma = 0.5})
    s:step()
    U.close({opt:get("lr", 1), opt:get("lr", 2)}, {0.5, 1})
    opt = optim.SGD({{params = {a}, lr = 1}, {params = {b}}}, {lr = 2})
    schedule.one_cycle(opt, {max_lr = {1, 5}, total_steps = 10})
    U.close({opt:get("lr", 1), opt:get("lr", 2)}, {0.04, 0.2})
  end)

  it("never traces or plans again", function()
    U.each_device(function(dev)
      local p = nn.Parameter(limn.zeros(2))
      local opt = optim.SGD({p}, {lr = 1, momentum = 0.5})
      local step = limn.jit(function(g)
        opt:step {g}
        return p:value()
      end)
      local g = limn.ones(2):to(dev)
      local buf = opt.groups[1].entries[1].state.momentum
      local all = {
        schedule.step(opt, {step_size = 1}),
        schedule.one_cycle(opt, {max_lr = 1, total_steps = 10}),
        schedule.plateau(opt, {patience = 0}),
      }
      step(g)
      local plans = step:graph(g):stats().plans
      assert.is_truthy(plans)
      for _, s in ipairs(all) do
        for _ = 1, 2 do
          if s.kind == "plateau" then s:step(1) else s:step() end
          local before, m = p:totable(), buf:totable()
          step(g)
          local lr, mu = opt:get "lr", opt:get "momentum"
          U.close(p, {before[1] - lr * (mu * m[1] + 1),
                      before[2] - lr * (mu * m[2] + 1)}, 1e-5)
        end
      end
      assert.equal(1, step:stats().traces)
      assert.same(plans, step:graph(g):stats().plans)
    end)
  end)

  it("is saved with the model", function()
    local opt = sgd {lr = 1}
    local s = schedule.exponential(opt, {gamma = 0.5})
    local w = schedule.plateau(opt, {patience = 1})
    s:step()
    s:step()
    w:step(3)
    w:step(4)
    U.with_file(function(path)
      limn.save(path, {opt = opt, s = s, w = w})
      local opt2 = sgd {lr = 7}
      local s2 = schedule.exponential(opt2, {gamma = 0.5})
      local w2 = schedule.plateau(opt2, {patience = 1})
      local report = limn.restore(path, {opt = opt2, s = s2, w = w2})
      assert.same({}, report.missing)
      U.close({s2:lr()}, {0.25})
      s2:step()
      U.close({s2:lr()}, {0.125})
      w2:step(3)
      U.close({s2:lr()}, {0.0125})
    end)
  end)

  it("says what it cannot do", function()
    local opt = sgd()
    local line = U.here(1)
    U.message(function() schedule.step(opt, {}) end, line,
              "step_size is a whole number of at least 1, got nil")
    U.message(function() schedule.cosine({}, {T_max = 1}) end,
              "schedule.cosine wants an optimizer")
    U.message(function() schedule.cosine(opt, {Tmax = 1}) end, "T_max")
    U.message(function() schedule.plateau(opt, {mode = "least"}) end,
              'mode is "min" or "max", got least')
    U.message(function() schedule.plateau(opt, {}):step() end,
              "wants the metric")
    U.message(function() schedule.exponential(opt, {gamma = 1}):step(3) end,
              "takes no metric")
    U.message(function() schedule.multistep(opt, {milestones = {1.5}}) end,
              "whole number")
    U.message(function()
      schedule.one_cycle(opt, {max_lr = 1, total_steps = 3})
    end, "total_steps is too small")
    U.message(function()
      schedule.one_cycle(opt, {max_lr = 1, total_steps = 10,
                               cycle_momentum = true})
    end, "no momentum to cycle")
    U.message(function()
      schedule.one_cycle(opt, {max_lr = {}, total_steps = 10})
    end, "max_lr is a number")
    local s = schedule.exponential(opt, {gamma = 1})
    U.message(function()
      limn.trace(function(x)
        s:step()
        return x
      end, limn.zeros(1))
    end, "cannot be traced")
    U.message(function() return schedule.cosin end, "cosine")
  end)
end)
