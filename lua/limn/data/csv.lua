-- CSV: RFC 4180's quoted fields, a header, columns of numbers and a label.
local core = require "limn.core"
local read_options = require "limn.options"
local bytes = require "limn.data.bytes"
local zlib = require "limn.data.zlib"

local limn = require "limn.lazy"

local M = {}

-- A field as messages show it: short, with no control characters.
local function shown(field)
  return (field:sub(1, 40):gsub("[%c%z]", "?"))
end

-- -- Text to rows of fields ------------------------------------------------

-- A quoted field that begins at `i`: its text and the position behind it.
local function quoted(s, i, line, bad)
  local parts, from = {}, i + 1
  while true do
    local j = s:find('"', from, true)
    if not j then bad("the quote that opens in line " .. line
                      .. " is never closed") end
    parts[#parts + 1] = s:sub(from, j - 1)
    if s:byte(j + 1) ~= 34 then return table.concat(parts), j + 1 end
    parts[#parts + 1] = '"'
    from = j + 2
  end
end

local function count_lines(text)
  local n = 0
  for _ in text:gmatch "\n" do n = n + 1 end
  return n
end

-- A list of rows; a row is a list of fields with its `line`.
local function parse(s, separator, bad)
  local rows, row, line = {}, {line = 1}, 1
  local stop = "[%" .. separator .. "\r\n]"
  local i, n = s:sub(1, 3) == "\239\187\191" and 4 or 1, #s
  while i <= n do
    local j = s:find("[^ ]", i) or n + 1
    local field
    if s:byte(j) == 34 then
      field, i = quoted(s, j, line, bad)
      line = line + count_lines(field)
      i = s:find("[^ ]", i) or n + 1
      if i <= n and not s:find("^" .. stop, i) then
        bad("text follows a quoted field in line " .. line)
      end
    else
      i = s:find(stop, j) or n + 1
      field = s:sub(j, i - 1):match "^(.-) *$"
    end
    row[#row + 1] = field
    local c = s:byte(i)
    i = i + 1
    if c ~= separator:byte() then -- the row's end
      if c == 13 and s:byte(i) == 10 then i = i + 1 end
      if #row > 1 or row[1] ~= "" then rows[#rows + 1] = row end
      line = line + 1
      row = {line = line}
    elseif i > n then
      row[#row + 1] = ""
      rows[#rows + 1] = row
    end
  end
  for k = 2, #rows do
    if #rows[k] ~= #rows[1] then
      bad(("line %d has %d fields, line %d has %d"):format(rows[k].line,
          #rows[k], rows[1].line, #rows[1]))
    end
  end
  return rows
end

-- -- Columns ---------------------------------------------------------------

local function all_numbers(row)
  for _, field in ipairs(row) do
    if not tonumber(field) then return false end
  end
  return true
end

-- The names of all columns; takes the header away from the rows.
local function column_names(rows, header, name)
  local list = {}
  if not header then
    for i = 1, #rows[1] do list[i] = tostring(i) end
    return list
  elseif all_numbers(rows[1]) then
    core.fail(name .. ": the first row holds numbers, where the columns' names "
              .. "are expected", "{header = false} if there are none")
  end
  local row, seen = table.remove(rows, 1), {}
  for i, field in ipairs(row) do
    if seen[field] then
      core.fail(name .. ": two columns are named '" .. field .. "'")
    end
    list[i], seen[field] = field, true
  end
  return list
end

-- The position of a column given by its name or its position (-1 is the last).
local function position(column, list, name)
  for i, c in ipairs(list) do
    if c == column then return i end
  end
  local i = type(column) == "number" and column < 0 and #list + 1 + column
    or column
  if type(i) ~= "number" or not list[i] then
    core.fail(("%s has no column '%s'"):format(name, tostring(column))
              .. core.near(tostring(column), list),
              "the columns are " .. table.concat(list, ", "))
  end
  return i
end

local no_value = {[""] = true, NA = true, ["N/A"] = true, null = true,
                  ["?"] = true}

-- The numbers of the columns at `places`, row by row.
local function numbers(rows, places, list, missing, name)
  local out, n = {}, 0
  for _, row in ipairs(rows) do
    for _, p in ipairs(places) do
      local v = tonumber(row[p])
      if not v and no_value[row[p]] then
        v = missing
        if not v then
          core.fail(("%s: there is no value in line %d, column '%s'"):format(
            name, row.line, shown(list[p])),
            "{missing = 0} puts a number there")
        end
      elseif not v then
        core.fail(("%s: '%s' in line %d, column '%s' is no number"):format(
          name, shown(row[p]), row.line, shown(list[p])),
          "{label = \"" .. shown(list[p]) .. "\"} makes it the label, "
          .. "{columns = {...}} chooses others")
      end
      n = n + 1
      out[n] = v
    end
  end
  return out
end

-- -- Labels ----------------------------------------------------------------

local function class_list(rows, p)
  local list, seen, plain = {}, {}, true
  for _, row in ipairs(rows) do
    local field = row[p]
    if not seen[field] then
      list[#list + 1], seen[field] = field, true
      plain = plain and tonumber(field) ~= nil
    end
  end
  table.sort(list, plain and function(a, b) return tonumber(a) < tonumber(b)
    end or nil)
  return list
end

-- y of the label in column p, and the classes. Text has classes; numbers have
-- them where `classes` is true or a list.
local function labels(rows, p, o, list, name)
  local classes = o.classes
  if classes == nil then
    for _, row in ipairs(rows) do
      classes = classes or not (tonumber(row[p]) or no_value[row[p]])
    end
  end
  if not classes then
    return limn.tensor(numbers(rows, {p}, list, nil, name), o.dtype), nil
  end
  if classes == true then classes = class_list(rows, p) end
  local at, out = {}, {}
  for i, c in ipairs(classes) do at[tostring(c)] = i end
  for i, row in ipairs(rows) do
    if row[p] == "" then
      core.fail(("%s: there is no label in line %d"):format(name, row.line))
    end
    out[i] = at[row[p]]
    if not out[i] then
      core.fail(("%s: '%s' in line %d is none of the classes"):format(name,
        shown(row[p]), row.line) .. core.near(row[p], classes),
        "the classes are " .. table.concat(classes, ", ", 1,
                                           math.min(#classes, 20)))
    end
  end
  return limn.tensor(out, "int64"), classes
end

-- -- The whole -------------------------------------------------------------

local allowed = {"label", "header", "separator", "columns", "missing",
                 "classes", "dtype"}

local function check(o)
  if type(o.separator) ~= "string" or not o.separator:find "^[^%w\"\r\n ]$" then
    core.fail("read_csv: separator is one character, got "
              .. tostring(o.separator), '{separator = ";"}')
  elseif o.columns ~= nil and type(o.columns) ~= "table" then
    core.fail("read_csv: columns is a list of names or positions, got "
              .. type(o.columns))
  elseif o.missing ~= nil and type(o.missing) ~= "number" then
    core.fail("read_csv: missing is a number, got " .. type(o.missing))
  elseif o.classes ~= nil and type(o.classes) ~= "boolean"
    and type(o.classes) ~= "table" then
    core.fail("read_csv: classes is true, false or a list, got "
              .. type(o.classes))
  end
end

--- data.csv_string(s [, options]): read_csv for a string.
function M.csv_string(s, options, name)
  options = read_options(options, allowed, "read_csv")
  name = name or "csv data"
  local o = {header = true, separator = ",", dtype = "float32"}
  for k, v in pairs(options) do o[k] = v end
  check(o)
  local rows = parse(zlib.gunzip(s, name), o.separator, function(what)
    core.fail(name .. " is not sound CSV: " .. what)
  end)
  if #rows == 0 then core.fail(name .. " has no rows") end
  local list = column_names(rows, o.header, name)
  if #rows == 0 then core.fail(name .. " has a header and no rows") end
  local label = o.label ~= nil and position(o.label, list, name) or nil
  local places, columns = {}, {}
  for _, c in ipairs(o.columns or list) do
    local p = position(c, list, name)
    if p ~= label then
      places[#places + 1], columns[#columns + 1] = p, list[p]
    end
  end
  if #places == 0 then
    core.fail(name .. " has no columns beside the label")
  end
  local x = limn.tensor(numbers(rows, places, list, o.missing, name), o.dtype)
  local r = {x = x:reshape {#rows, #places}, columns = columns}
  if label then r.y, r.classes = labels(rows, label, o, list, name) end
  return r
end

--- data.read_csv(path [, {label, header = true, separator = ",", columns = all,
-- missing, classes, dtype = "float32"}]) -> {x, y, columns, classes}: x is
-- [rows, columns]; y is the column `label` (a name, or a position): text as
-- classes from 1 in sorted order, numbers as they are unless classes is true or
-- a list; missing is the number for empty fields.
function M.read_csv(path, options)
  local r = M.csv_string(bytes.read(path), options, path)
  return r
end

return M
