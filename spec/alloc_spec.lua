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
    -- Control flow: a loop over the rows with a branch and a loop in it.
    local infer = limn.trace(function(x)
      local y = m(x):softmax(-1)
      local w = m[4].weight
      local _, ys = limn.scan(function(c, r)
        c = limn.cond(r:sum():gt(0), function() return c + w:sum() * 0 end,
                      function() return c - 1 end)
        local n = limn.while_loop(function(i) return i:lt(3) end,
                                  function(i) return i + 1 end, c * 0)
        return c, r + n * 0 + limn.rand(2) * 0
      end, limn.zeros(), y)
      return ys
    end, limn.ones(3, 4))
    -- Whose gradient is taken: a scan, a branch and a scan in it.
    local w = nn.Parameter(limn.randn(4, 4))
    local lost = limn.trace(function(x)
      local h, ys = limn.scan(function(h, r)
        h = (limn.matmul(h, w) + r):tanh()
        local y = limn.cond(h:sum():gt(0), function()
          return (limn.map(function(v) return v:sin() * h:sum() end, h))
        end, function() return h * r end)
        return h, y
      end, limn.zeros(2, 4), x)
      return h:sum() + ys:sum()
    end, limn.ones(3, 4))
    U.with_file(function(path)
      limn.save(path, {step = step, infer = infer, loss = lost, w = w})
      local text, ok = U.run(("LIMN_DEVICES=cpu %s %s 3 4"):format(program,
                                                                   path))
      assert.is_true(ok, text)
      assert.is_truthy(text:find "%d+ allocations", text)
    end)
  end)
end)
