-- limn.optim: optimizers, schedules of their learning rate, clipping, averages.
local core = require "limn.core"
local instead = require "limn.instead"

local optim = {schedule = require "limn.optim.schedule",
               EMA = require "limn.optim.ema",
               CMAES = require "limn.optim.cmaes"}
for _, part in ipairs {"rules", "clip"} do
  for name, v in pairs(require("limn.optim." .. part)) do optim[name] = v end
end

return setmetatable(optim, {__index = function(_, key)
  if type(key) ~= "string" then return nil end
  local names = {}
  for name in pairs(optim) do names[#names + 1] = name end
  table.sort(names)
  local hint = instead.optim[key]
  core.fail("optim has no '" .. key .. "'"
    .. (hint and "" or core.near(key, names)), hint)
end})
