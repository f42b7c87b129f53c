-- core/ops.h as data: the rows' names, rules, domains and signatures.
local T = {rows = {}, order = {}}

-- The arguments of a macro call, split at its own commas.
local function split(text)
  local parts, depth, from, quoted = {}, 0, 1, false
  local i = 1
  while i <= #text do
    local ch = text:sub(i, i)
    if quoted then
      if ch == "\\" then i = i + 1 elseif ch == '"' then quoted = false end
    elseif ch == '"' then
      quoted = true
    elseif ch == "(" then
      depth = depth + 1
    elseif ch == ")" then
      depth = depth - 1
    elseif ch == "," and depth == 0 then
      parts[#parts + 1] = text:sub(from, i - 1)
      from = i + 1
    end
    i = i + 1
  end
  parts[#parts + 1] = text:sub(from)
  for k, p in ipairs(parts) do
    p = p:match "^%s*(.-)%s*$"
    parts[k] = p:match '^"(.*)"$' or p
  end
  return parts
end

local function balanced(text)
  local n = 0
  for ch in text:gsub('"[^"]*"', ""):gmatch "[()]" do
    n = n + (ch == "(" and 1 or -1)
  end
  return n == 0
end

local function add(kind, a)
  local row = {kind = kind, name = a[1]}
  if kind:sub(1, 1) == "E" then
    row.arity = tonumber(kind:sub(2))
    row.meta, row.rule, row.domain, row.sig = a[2], a[3], a[4], a[5]
    row.grads = {}
    for i = 1, row.arity do row.grads[i] = a[6 + i] end
    row.doc = a[7 + row.arity]
  elseif kind == "R" then
    row.rule, row.sig, row.grads, row.doc = a[2], a[3], {a[6]}, a[7]
  elseif kind == "V" then
    row.sig, row.grads = a[2], {a[5]}
  elseif kind == "G" then
    row.rule, row.sig = a[2], a[3]
  else
    row.sig = a[2]
  end
  T.rows[row.name] = row
  T.order[#T.order + 1] = row
end

local pending
for line in io.lines "core/ops.h" do
  if pending then
    pending = pending .. " " .. line:match "^%s*(.-)%s*$"
  elseif line:match "^[ERVGSH][123]?%(%l" then
    pending = line
  end
  if pending and balanced(pending) then
    local kind, args = pending:match "^(%u%d?)%((.*)%)%s*$"
    add(kind, split(args))
    pending = nil
  end
end

-- Rows of kinds "E", "R", ...
function T.each(kinds)
  local i = 0
  return function()
    repeat
      i = i + 1
    until not T.order[i] or kinds:find(T.order[i].kind:sub(1, 1), 1, true)
    return T.order[i]
  end
end

local floats = {float64 = true, float32 = true, float16 = true,
                bfloat16 = true}

-- Whether the row takes the dtype; bools where arithmetic on them means
-- something.
function T.takes(row, dtype)
  if row.rule == "BIT" then
    return not floats[dtype]
      and not (dtype == "bool" and row.name:find "shift")
  end
  if dtype ~= "bool" then return row.rule ~= "TST" or floats[dtype] end
  return row.rule ~= "NUM" and row.rule ~= "TST"
end

return T
