-- Compile the sources in a folder by the real NVRTC for every target and show
-- what it says: luajit scripts/nvrtc.lua FOLDER [PART OF]
-- What passed is noted in FOLDER.passed, and not compiled again: the names of
-- sources are hashes of them.
package.path = "spec/?.lua;" .. package.path
local nvrtc = require "support.nvrtc"

local folder, part, of = arg[1], tonumber(arg[2] or 1), tonumber(arg[3] or 1)
if not nvrtc.found then
  print "NVRTC is not installed: nothing was compiled"
  os.exit(0)
end
local passed, seen, bad, n, known = {}, {}, 0, 0, 0
local notes = assert(io.open(folder .. ".passed", "a+"))
for line in notes:lines() do passed[line] = true end
notes:setvbuf "line" -- others write, too
for _, path in ipairs(nvrtc.sources(folder, part, of)) do
  local f = assert(io.open(path))
  local source = f:read "*a"
  f:close()
  for _, target in ipairs(nvrtc.targets) do
    local note = ("%s %s %s"):format(path:match "[^/]+$", target, nvrtc.version)
    local words = passed[note] and "" or nvrtc.compile(source, target)
    n = n + 1
    if passed[note] then
      known = known + 1
    elseif words == "" then
      notes:write(note, "\n")
    else
      bad = bad + 1
      local short = words:gsub("%(%d+%)", "")
      if not seen[short] then
        seen[short] = true
        print(("%s, %s:\n%s"):format(path, target, words))
      end
    end
  end
end
print(("%d compilations, %d of them done before, %d with words"):format(
  n, known, bad))
os.exit(bad == 0 and 0 or 1)
