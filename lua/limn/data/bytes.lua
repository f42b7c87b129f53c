-- Whole files as strings, and elements in other byte orders and widths.
local core = require "limn.core"
local has_ffi, ffi = pcall(require, "ffi")

local M = {}

-- Does this machine store the high byte first?
M.big = has_ffi and ffi.abi "be"

function M.read(path)
  if type(path) ~= "string" then
    core.fail("a data file's path is wanted, got " .. (core.type(path)
              or type(path)))
  end
  local f, why = io.open(path, "rb")
  if not f then core.fail("cannot open the data file: " .. why) end
  local s, failed = f:read "*a"
  f:close()
  if not s then core.fail("cannot read " .. path .. ": " .. failed) end
  return s
end

function M.write(path, s)
  if type(path) ~= "string" then
    core.fail("a data file's path is wanted, got " .. (core.type(path)
              or type(path)))
  end
  local f, why = io.open(path, "wb")
  if not f then core.fail("cannot write the data file: " .. why) end
  local ok, failed = f:write(s)
  local closed, late = f:close()
  if not ok or not closed then
    core.fail("cannot write " .. path .. ": " .. tostring(failed or late))
  end
end

-- An unsigned little-endian number of n bytes at a position.
function M.number(s, at, n)
  local v = 0
  for i = at + n - 1, at, -1 do v = v * 256 + s:byte(i) end
  return v
end

-- The n low bytes of a whole number, the lowest first.
function M.little(v, n)
  local parts = {}
  for i = 1, n do
    parts[i] = string.char(v % 256)
    v = math.floor(v / 256)
  end
  return table.concat(parts)
end

-- One element: its bytes, lowest first, widened.
local function element(e, big, width, signed)
  if big then e = e:reverse() end
  local fill = signed and e:byte(#e) >= 128 and "\255" or "\0"
  e = e .. fill:rep(width - #e)
  return M.big and e:reverse() or e
end

-- Elements of `size` bytes in the given order to the machine's order and to
-- `width` bytes each; integers that grow keep their sign if they have one.
function M.convert(body, size, width, big, signed)
  if size == width and (size == 1 or not big == not M.big) then return body end
  local n = #body / size
  if not has_ffi or M.big then
    local parts = {}
    for i = 1, n do
      parts[i] = element(body:sub((i - 1) * size + 1, i * size), big, width,
                         signed)
    end
    return table.concat(parts)
  end
  local from = ffi.cast("const uint8_t *", body)
  local to = ffi.new("uint8_t[?]", n * width) -- zeros
  local last = big and 0 or size - 1
  for i = 0, n - 1 do
    local a, b = i * size, i * width
    for k = 0, size - 1 do
      to[b + k] = from[a + (big and size - 1 - k or k)]
    end
    if signed and from[a + last] >= 128 then
      for k = size, width - 1 do to[b + k] = 255 end
    end
  end
  return ffi.string(to, #body / size * width)
end

return M
