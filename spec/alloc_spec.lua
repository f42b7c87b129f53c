-- Any allocation may fail: a C host whose Nth one does, for every N.
local U = require "support.util"
local limn = U.limn
local nn = limn.nn

describe("A failing allocation", function()
  it("at any point of load, plan, run is an error without leak or crash",
     function()
    local program = U.build .. "/alloc"
    if not io.open(program) then
      pending("make " .. program .. " builds it")
      return
    end
    limn.manual_seed(1)
    local m = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Dropout(0.5),
                            nn.Linear(5, 2))
    local opt = limn.optim.Adam(m, {lr = 0.1})
    local loss = limn.value_and_grad(function(x, t)
      return nn.cross_entropy(m(x), t)
    end, m)
    local step = limn.trace(function(x, t)
      local l, g = loss(x, t)
      opt:step(g)
      return l
    end, limn.ones(3, 4), limn.ones(3, "int64"))
    local infer = limn.trace(function(x) return m(x):softmax(-1) end,
                             limn.ones(3, 4))
    U.with_file(function(path)
      limn.save(path, {step = step, infer = infer})
      local text, ok = U.run(("LIMN_DEVICES=cpu %s %s 3 4"):format(program,
                                                                   path))
      assert.is_true(ok, text)
      assert.is_truthy(text:find "%d+ allocations", text)
    end)
  end)
end)
