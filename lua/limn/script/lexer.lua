-- The lexer of limn.script: the tokens of Lua 5.1 and LuaJIT source.
--
-- A token is {type, text, line, last, at}: type is "name", "keyword",
-- "number", "string", "op" or "eof"; text is as it was written; line is where
-- it begins and last where it ends (a long string may span many); at is its
-- first byte. Comments and white space are left out: the line is what counts.
local M = {}

local keywords = {}
for word in ([[and break do else elseif end false for function if in local nil
  not or repeat return then true until while]]):gmatch "%a+" do
  keywords[word] = true
end

-- `goto` is a name to LuaJIT unless a name follows: the parser decides.

local ops3 = {["..."] = true}
local ops2 = {[".."] = true, ["=="] = true, ["~="] = true, ["<="] = true,
  [">="] = true, ["::"] = true}
local ops1 = "[%+%-%*/%%%^#<>=%(%){}%[%];:,%.]"

-- Raises {line =, message =}: source that Lua itself would not load.
local function fail(line, message)
  error({line = line, message = message}, 0)
end
M.fail = fail

-- How many lines end in s; "\r\n" and "\n\r" end one.
local function newlines(s)
  local n, i = 0, 1
  while true do
    i = s:find("[\r\n]", i)
    if not i then return n end
    local a, b = s:byte(i, i + 1)
    i = i + ((b == 10 or b == 13) and a ~= b and 2 or 1)
    n = n + 1
  end
end

-- The end of a long bracket that opens at i, or nil where none opens.
local function long_bracket(s, i, line)
  local level = s:match("^%[(=*)%[", i)
  if not level then return nil end
  local _, stop = s:find("]" .. level .. "]", i, true)
  if not stop then
    fail(line + newlines(s:sub(i)), "a long string or comment has no end")
  end
  return stop
end

-- The end of a string that opens at i.
local function short_string(s, i, line)
  local quote = s:sub(i, i)
  local p = i + 1
  while true do
    local q, _, c = s:find("([\\\r\n" .. quote .. "])", p)
    if not q or c == "\r" or c == "\n" then
      fail(line, "a string has no end")
    elseif c == quote then
      return q
    end
    local e = s:sub(q + 1, q + 1)
    if e == "z" then -- skips white space, line ends too
      p = s:find("[^ \t\r\n\f\v]", q + 2) or #s + 1
    elseif e == "\r" or e == "\n" then
      local f = s:sub(q + 2, q + 2)
      p = q + ((f == "\r" or f == "\n") and f ~= e and 3 or 2)
    else
      p = q + 2
    end
  end
end

local decimal, suffix = "^%d*%.?%d*", {[""] = true, ll = true, ull = true,
  i = true}

-- Is the text one of LuaJIT's numbers?
local function is_number(text)
  local t = text:lower()
  local hex = t:match "^0x(.*)$"
  if t:match "^0b[01]+$" or t:match "^0b[01]+u?ll$" then return true end
  if hex then
    local digits, rest = hex:match "^([%x%.]*)(.*)$"
    if not digits:find "%x" or digits:find "%..*%." then return false end
    local whole = not digits:find "%."
    local p = rest:match "^p[+-]?%d+"
    rest = rest:sub(p and #p + 1 or 1)
    return suffix[rest] and (rest == "" or rest == "i" or whole and not p)
      or false
  end
  local digits = t:match(decimal)
  if not digits:find "%d" then return false end
  local rest = t:sub(#digits + 1)
  local e = rest:match "^e[+-]?%d+"
  rest = rest:sub(e and #e + 1 or 1)
  local whole = not e and not digits:find "%."
  return suffix[rest] and (rest == "" or rest == "i" or whole) or false
end

-- The end of the number that begins at i: what LuaJIT would take for one.
local function number(s, i, line)
  local exponent = s:find("^0[xX]", i) and "[pP]" or "[eE]"
  local p = i
  while true do
    p = s:find("[^%w%._\128-\255]", p)
    if not p then
      p = #s + 1
      break
    end
    if not (s:find("^[+-]", p) and s:find("^" .. exponent, p - 1)) then
      break
    end
    p = p + 1
  end
  if not is_number(s:sub(i, p - 1)) then
    fail(line, "malformed number near '" .. s:sub(i, p - 1) .. "'")
  end
  return p - 1
end

-- The first byte that is neither white space nor comment; the line there.
local function skip(s, i, line)
  while true do
    local _, stop = s:find("^[ \t\r\n\f\v]+", i)
    if not stop and s:find("^%-%-", i) then
      stop = long_bracket(s, i + 2, line)
        or (s:find("[\r\n]", i) or #s + 1) - 1
    end
    if not stop then return i, line end
    line = line + newlines(s:sub(i, stop))
    i = stop + 1
  end
end

-- Type and last byte of the token that begins at i.
local function classify(s, i, line)
  local c = s:sub(i, i)
  if c:find "[%a_\128-\255]" then
    local _, stop = s:find("^[%w_\128-\255]+", i)
    return keywords[s:sub(i, stop)] and "keyword" or "name", stop
  elseif s:find("^%.?%d", i) then
    return "number", number(s, i, line)
  elseif c == '"' or c == "'" then
    return "string", short_string(s, i, line)
  elseif c == "[" and long_bracket(s, i, line) then
    return "string", long_bracket(s, i, line)
  elseif ops3[s:sub(i, i + 2)] then
    return "op", i + 2
  elseif ops2[s:sub(i, i + 1)] then
    return "op", i + 1
  elseif c:find(ops1) then
    return "op", i
  end
  fail(line, "unexpected symbol near '" .. c .. "'")
end

-- The tokens of a source text, with one of type "eof" at the end.
function M.tokens(s)
  local list, i, line = {}, 1, 1
  if s:find "^\239\187\191" then i = 4 end -- a byte order mark
  if s:find("^#", i) then i = s:find("[\r\n]", i) or #s + 1 end
  while true do
    i, line = skip(s, i, line)
    if i > #s then break end
    local kind, stop = classify(s, i, line)
    local text = s:sub(i, stop)
    local last = kind == "string" and line + newlines(text) or line
    list[#list + 1] = {type = kind, text = text, line = line, last = last,
      at = i}
    i, line = stop + 1, last
  end
  list[#list + 1] = {type = "eof", text = "<eof>", line = line, last = line,
    at = i}
  return list
end

return M
