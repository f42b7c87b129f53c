-- `make fuzz`: random programs from a seed on, until stopped or N are done.
-- What fails is printed as Lua, and the exit status tells.
package.path = "spec/?.lua;" .. package.path
local F = require "support.fuzz"

local first = tonumber(arg[1]) or os.time() % 1e6
local count = tonumber(arg[2]) or math.huge
local failed, seed = 0, first
io.stderr:write("SEED=", first, "\n")
while seed < first + count do
  local report = F.check(F.program(seed, 12))
  if report then
    failed = failed + 1
    print(report)
    io.stdout:flush()
  end
  if (seed - first) % 50 == 49 then
    io.stderr:write(seed - first + 1, " programs, ", failed, " failed\n")
  end
  seed = seed + 1
end
os.exit(failed == 0 and 0 or 1)
