-- limn.script on random programs: plain Lua on numbers, the scripted function
-- on tensors, its trace and the saved graph say the same.
local U = require "support.util"
local programs = require "support.programs"
local limn = U.limn

local inputs = {{0, 0}, {1, 5}, {6, 2}, {3, 3}, {5, 1}}

local function number(v)
  return limn.is_tensor(v) and v:item() or v
end

local function same(what, seed, text, want, got)
  for i = 1, 3 do
    if number(got[i]) ~= want[i] then
      error(("%s, seed %d, result %d: %s instead of %s\n%s"):format(what, seed,
        i, tostring(number(got[i])), tostring(want[i]), text))
    end
  end
end

local function check(seed, dev)
  local text = programs.program(U.random(seed))
  local f = assert(loadstring(text))()
  local dtype = seed % 2 == 0 and "float32" or "int64"
  local g = limn.script(f)
  local ok, traced = pcall(limn.trace, g, limn.tensor(2, dtype),
    limn.tensor(3, dtype))
  assert(ok, "seed " .. seed .. ": " .. tostring(traced) .. "\n" .. text)
  for _, x in ipairs(inputs) do
    local want = {f(x[1], x[2])}
    local a = limn.tensor(x[1], dtype):to(dev)
    local b = limn.tensor(x[2], dtype):to(dev)
    same("eager", seed, text, want, {g(a, b)})
    same("traced", seed, text, want, {traced(a, b)})
  end
end

describe("Random programs", function()
  U.each_device(function(dev)
    it("give on " .. dev .. " what they give in plain Lua", function()
      for seed = 1, dev == "cpu" and 25 or 3 do check(seed * 7919, dev) end
    end)
  end)
end)
