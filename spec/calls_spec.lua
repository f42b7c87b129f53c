-- The host's calls, misused from C on every device.
local U = require "support.util"
local limn = U.limn
local nn = limn.nn

describe("The host's calls", function()
  local program = U.build .. "/calls"
  local there = io.open(program, "rb")
  if not there then
    pending("make " .. program .. " builds it")
    return
  end
  there:close()

  it("refuse wrong outputs, overlaps, stale modes, sizes of one name that "
     .. "differ, guards that fail and arguments that are missing, give strings "
     .. "and numbers, and open no driver before a device is asked for",
     function()
    local path = os.tmpname()
    local drop = nn.Dropout(0.5)
    limn.save(path, {
      twice = limn.trace {function(x)
        local y = x:flip(1) * 2
        return y
      end, limn.ones(4)},
      drop = limn.trace {function(x)
        local y = drop(x)
        return y
      end, limn.ones(4)},
      pair = limn.trace {function(x, y) return x + y end, limn.spec {"rows"},
                         limn.spec {"rows"}},
      guarded = limn.trace {function(x)
        if x:size(1) > 2 then return x * 2 end
        return x
      end, limn.ones(4)},
      told = limn.trace(function(x) return "good", x:size(1), true end,
                        limn.ones(4)),
    })
    U.each_device(function(dev)
      local pipe = io.popen(("%s '%s' %s 2>&1"):format(program, path, dev))
      local text = pipe:read "*a"
      pipe:close()
      assert.are.equal("ok\n", text)
    end)
    os.remove(path)
  end)
end)
