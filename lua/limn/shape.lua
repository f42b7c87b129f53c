--- What x.shape and x:size() give: a list of sizes like any other, but one that
-- prints, joins and compares by what is in it. In a trace `==` records guards,
-- as that of sizes does.
local core = require "limn.core"

local Shape = {__metatable = false} -- a plain list to whoever asks

function Shape.__tostring(s)
  local out = {}
  for i = 1, #s do out[i] = tostring(s[i]) end
  return "{" .. table.concat(out, ", ") .. "}"
end

function Shape.__concat(a, b) return tostring(a) .. tostring(b) end

function Shape.__eq(a, b)
  if #a ~= #b then return false end
  for i = 1, #a do
    if a[i] ~= b[i] then return false end
  end
  return true
end

core.set_shape(Shape)

return Shape
