-- Compile the sources in a folder by the real NVRTC for every target and show
-- what it says: luajit scripts/nvrtc.lua FOLDER [PART OF]
package.path = "spec/?.lua;" .. package.path
local nvrtc = require "support.nvrtc"

local folder, part, of = arg[1], tonumber(arg[2] or 1), tonumber(arg[3] or 1)
if not nvrtc.found then
  print "NVRTC is not installed: nothing was compiled"
  os.exit(0)
end
local seen, bad, n = {}, 0, 0
for _, path in ipairs(nvrtc.sources(folder, part, of)) do
  local f = assert(io.open(path))
  local source = f:read "*a"
  f:close()
  for _, target in ipairs(nvrtc.targets) do
    local words = nvrtc.compile(source, target)
    n = n + 1
    if words ~= "" then
      bad = bad + 1
      local short = words:gsub("%(%d+%)", "")
      if not seen[short] then
        seen[short] = true
        print(("%s, %s:\n%s"):format(path, target, words))
      end
    end
  end
end
print(("%d compilations, %d with words"):format(n, bad))
os.exit(bad == 0 and 0 or 1)
