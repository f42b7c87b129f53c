-- Prints the reference in Markdown: all that limn.help knows, by part.
local limn = require "limn"

local parts = {
  {"limn", "Functions", "^limn%."}, {"tensor", "Tensors", "^x[.:]"},
  {"cell", "Cells", "^cell:"}, {"graph", "Graphs", "^graph:"},
  {"jit", "Functions of limn.jit", "^jit:"},
  {"Module", "Modules", "^Module:"}, {"linalg", "Linear algebra", "^linalg%."},
  {"init", "First values", "^nn%.init%."},
  {"nn", "Layers and losses", "^nn%."},
  {"schedule", "Learning rates", "^optim%.schedule%."},
  {"optim", "Optimizers", "^optim%."}, {"data", "Data", "^data%."},
}

print "# Reference\n"
print [[
Made by `make docs` from the comments beside the code and the op table; at the
prompt `limn.help "conv2d"` shows the same. Dims, indices and class labels count
from 1, and ranges include both ends. `x` is a tensor; its methods are functions
of `limn`, too. Square brackets enclose what may be left out, braces an options
table.]]

local taken = {}
for _, part in ipairs(parts) do
  local list = {}
  for _, e in ipairs(limn.help.entries()) do
    if not taken[e] and e.names[1]:find(part[3]) then
      taken[e] = true
      list[#list + 1] = e
    end
  end
  table.sort(list, function(a, b)
    if a.names[1] ~= b.names[1] then return a.names[1] < b.names[1] end
    return a.text < b.text
  end)
  print(("\n## %s\n"):format(part[2]))
  for _, e in ipairs(list) do
    local head, text = limn.help.split(e.text)
    print(("- `%s`: %s"):format(head, text))
  end
end
for _, e in ipairs(limn.help.entries()) do
  if not taken[e] then error("no part for " .. e.names[1]) end
end
