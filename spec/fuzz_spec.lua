-- Random programs: traced on one device and run on all, with three sets of
-- sizes, give what eager code gives, optimised or not; so do their gradients.
-- `make fuzz` goes on without end; SEED= and N= say where and how long.
local U = require "support.util"
local F = require "support.fuzz"

local first = tonumber(os.getenv "LIMN_FUZZ_SEED" or "") or 1
local count = tonumber(os.getenv "LIMN_FUZZ_N" or "") or U.asan and 2 or 12

describe("A random program", function()
  for seed = first, first + count - 1 do
    it("runs as eager code does, seed " .. seed, function()
      local report = F.check(F.program(seed, 8))
      assert.is_nil(report, report)
    end)
  end
end)
