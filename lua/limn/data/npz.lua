-- NumPy's .npz: several arrays by name, a zip archive of .npy files.
local core = require "limn.core"
local read_options = require "limn.options"
local bytes = require "limn.data.bytes"
local npy = require "limn.data.npy"
local zlib = require "limn.data.zlib"

local number, little = bytes.number, bytes.little
local M = {}

-- -- Reading: the directory at the end of the file tells where all is. --

local function directory(s, bad)
  local at
  for i = #s - 21, math.max(1, #s - 65556), -1 do
    if s:byte(i) == 80 and s:sub(i, i + 3) == "PK\5\6" then
      at = i
      break
    end
  end
  if not at then bad "it has no zip directory at its end" end
  local count, first = number(s, at + 10, 2), number(s, at + 16, 4) + 1
  if count == 65535 or first > 4294967295 then
    bad "it is a zip64 archive, of more than 4 GB or 65,535 arrays"
  elseif first - 1 + number(s, at + 12, 4) > at - 1 then
    bad "its directory lies outside the file"
  end
  return count, first
end

-- One entry of the directory, and the position of the next.
local function entry(s, at, bad)
  if s:sub(at, at + 3) ~= "PK\1\2" or at + 45 > #s then
    bad "its directory is damaged"
  end
  local name_length = number(s, at + 28, 2)
  local e = {
    flags = number(s, at + 8, 2), method = number(s, at + 10, 2),
    crc = number(s, at + 16, 4), packed = number(s, at + 20, 4),
    size = number(s, at + 24, 4), at = number(s, at + 42, 4) + 1,
    name = s:sub(at + 46, at + 45 + name_length),
  }
  return e, at + 46 + name_length + number(s, at + 30, 2)
    + number(s, at + 32, 2)
end

-- What an entry holds.
local function contents(s, e, bad)
  local what = "'" .. e.name .. "' "
  if s:sub(e.at, e.at + 3) ~= "PK\3\4" or e.at + 29 > #s then
    bad(what .. "is not where the directory says")
  elseif e.flags % 2 == 1 then
    bad(what .. "is encrypted")
  elseif e.method ~= 0 and e.method ~= 8 then
    bad(what .. "is compressed by method " .. e.method .. ", not deflate")
  end
  local from = e.at + 30 + number(s, e.at + 26, 2) + number(s, e.at + 28, 2)
  if from + e.packed - 1 > #s then bad(what .. "ends too early") end
  local body = s:sub(from, from + e.packed - 1)
  if e.method == 8 then
    local whole, why = zlib.inflate(body, e.size, e.label)
    if not whole then bad(what .. "is damaged: " .. why) end
    body = whole
  end
  if #body ~= e.size then
    bad(("%shas %d bytes instead of %.0f"):format(what, #body, e.size))
  elseif zlib.crc32(body) ~= e.crc then
    bad(what .. "is damaged: its checksum differs")
  end
  return body
end

--- data.npz_string(bytes) -> table: the tensors by name in an .npz file's
-- bytes; what is no array is left out.
function M.npz_string(s, name)
  name = name or "npz data"
  local function bad(what)
    core.fail(name .. " is not a sound npz file: " .. what)
  end
  local out = {}
  local count, at = directory(s, bad)
  for _ = 1, count do
    local e
    e, at = entry(s, at, bad)
    local key = e.name:match "^(.*)%.npy$"
    e.label = name .. ": '" .. e.name .. "'"
    if key then out[key] = npy.npy_string(contents(s, e, bad), e.label) end
  end
  return out
end

-- -- Writing --

-- The fields that stand in front of an array and in the directory alike. Date
-- and time are the first of all, so that equal arrays make equal files.
local function fields(e)
  return little(20, 2) .. little(0, 2) .. little(e.method, 2) .. little(0, 2)
    .. little(33, 2) .. little(e.crc, 4) .. little(#e.body, 4)
    .. little(e.size, 4) .. little(#e.name, 2) .. little(0, 2)
end

--- data.npz_bytes({name = tensor, ...} [, {compressed = false}]) -> string: the
-- bytes of an .npz file.
function M.npz_bytes(t, options)
  options = read_options(options, {"compressed"}, "npz_bytes")
  local keys = {}
  if type(t) ~= "table" or getmetatable(t) then
    core.fail("npz_bytes: a table of tensors by name is wanted, got "
              .. (core.type(t) or type(t)), "{images = x, labels = y}")
  end
  for k in pairs(t) do
    if type(k) ~= "string" then
      core.fail("npz_bytes: arrays have names, not " .. tostring(k),
                "{images = x, labels = y}")
    end
    keys[#keys + 1] = k
  end
  table.sort(keys)
  local parts, dir, at = {}, {}, 0
  for i, k in ipairs(keys) do
    local body = npy.npy_bytes(t[k], "npz_bytes: " .. k)
    local e = {name = k .. ".npy", size = #body, crc = zlib.crc32(body),
               method = options.compressed and 8 or 0}
    e.body = e.method == 8 and zlib.deflate(body, "'" .. k .. "'") or body
    parts[i] = "PK\3\4" .. fields(e) .. e.name .. e.body
    dir[i] = "PK\1\2" .. little(20, 2) .. fields(e) .. little(0, 2)
      .. little(0, 2) .. little(0, 2) .. little(0, 4) .. little(at, 4)
      .. e.name
    at = at + #parts[i]
    if at > 4294967294 or i > 65534 then
      core.fail "npz_bytes: an archive of more than 4 GB is not written"
    end
  end
  local directory_bytes = table.concat(dir)
  return table.concat(parts) .. directory_bytes .. "PK\5\6" .. little(0, 4)
    .. little(#keys, 2):rep(2) .. little(#directory_bytes, 4)
    .. little(at, 4) .. little(0, 2)
end

--- data.read_npz(path) -> table: the tensors in an .npz file, by name.
function M.read_npz(path)
  local t = M.npz_string(bytes.read(path), path)
  return t
end

--- data.write_npz(path, {name = tensor, ...} [, {compressed = false}]): write
-- an .npz file; compressed needs zlib.
function M.write_npz(path, t, options)
  bytes.write(path, M.npz_bytes(t, options))
end

return M
