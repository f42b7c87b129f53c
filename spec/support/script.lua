-- Scripted functions beside plain Lua: f on numbers is what the scripted f
-- gives on 0-dim tensors, in eager code and traced on one device and run on
-- another.
local assert = require "luassert"
local U = require "support.util"
local limn = U.limn

local M = {}

local function number(v)
  if limn.is_tensor(v) then return v:item() end
  return v
end

function M.numbers(...)
  local out = {n = select("#", ...)}
  for i = 1, out.n do out[i] = number((select(i, ...))) end
  return out
end

-- f agrees for every list of arguments in `inputs`.
function M.agrees(f, inputs)
  local g = limn.script(f)
  U.each_pair(function(a, b)
    local first = {}
    for i, v in ipairs(inputs[1]) do first[i] = limn.tensor(v):to(a) end
    local traced = limn.trace(g, unpack(first))
    for _, x in ipairs(inputs) do
      local want, given = M.numbers(f(unpack(x))), {}
      for i, v in ipairs(x) do given[i] = limn.tensor(v):to(b) end
      assert.are.same(want, M.numbers(g(unpack(given))))
      assert.are.same(want, M.numbers(traced(unpack(given))))
    end
  end)
end

return M
