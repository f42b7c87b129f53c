-- `limn` for limn's own parts: they are loaded while "limn" itself still is, so
-- what they use of it is looked up when used.
return setmetatable({}, {__index = function(_, k)
  return require "limn"[k]
end})
