-- limn.data: reading and writing data files, walking data in batches.
local core = require "limn.core"

local data = {}
for _, part in ipairs {"idx", "csv", "npy", "npz", "batches", "progress"} do
  for name, v in pairs(require("limn.data." .. part)) do data[name] = v end
end

return setmetatable(data, {__index = function(_, key)
  if type(key) ~= "string" then return nil end
  local names = {}
  for name in pairs(data) do names[#names + 1] = name end
  table.sort(names)
  core.fail("data has no '" .. key .. "'" .. core.near(key, names))
end})
