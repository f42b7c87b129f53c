-- options(given, allowed, who): the table of options, or {} for nil. An unknown
-- one raises and names the near ones.
local core = require "limn.core"

return function(given, allowed, who)
  core.options(given, allowed, who)
  return given or {}
end
