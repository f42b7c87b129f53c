-- idx files, as MNIST and its kin are shipped; compressed ones (.gz) too.
local core = require "limn.core"
local bytes = require "limn.data.bytes"
local zlib = require "limn.data.zlib"

local limn = require "limn.lazy"

local M = {}

-- idx's element types: dtype, bytes there and here. 16-bit ones become int32.
local idx_types = {
  [0x08] = {"uint8", 1, 1}, [0x09] = {"int8", 1, 1},
  [0x0B] = {"int32", 2, 4}, [0x0C] = {"int32", 4, 4},
  [0x0D] = {"float32", 4, 4}, [0x0E] = {"float64", 8, 8},
}

local function big_endian(s, at)
  local a, b, c, d = s:byte(at, at + 3)
  return ((a * 256 + b) * 256 + c) * 256 + d
end

--- data.idx_string(bytes): the tensor in an idx file's bytes.
function M.idx_string(s, name)
  name = name or "idx data"
  local function bad(what) core.fail(name .. " is not a sound idx file: "
                                     .. what) end
  s = zlib.gunzip(s, name)
  if #s < 4 then
    bad("it has " .. #s .. " bytes, a header has 4 or more")
  end
  local zero, zero2, code, ndim = s:byte(1, 4)
  local kind = idx_types[code]
  if zero ~= 0 or zero2 ~= 0 or not kind then
    bad(string.format("it begins with %02x %02x %02x, not 00 00 and a type",
                      zero, zero2, code))
  elseif ndim > 8 then
    bad("it claims " .. ndim .. " dims; at most 8 are possible")
  elseif #s < 4 + 4 * ndim then
    bad("it ends within its header")
  end
  local shape, count = {}, 1
  for d = 1, ndim do
    shape[d] = big_endian(s, 1 + 4 * d)
    count = count * shape[d]
  end
  local want, have = count * kind[2], #s - 4 - 4 * ndim
  if want ~= have then
    bad(string.format("%s of [%s] need %.0f bytes of data, the file has %d",
                      kind[1], table.concat(shape, ", "), want, have))
  end
  local body = bytes.convert(s:sub(5 + 4 * ndim), kind[2], kind[3], true, true)
  local t = limn.from_string(body, kind[1], shape)
  return t
end

--- data.idx(path): the tensor in an idx file (MNIST's format), also of one that
-- gzip compressed.
function M.idx(path)
  local t = M.idx_string(bytes.read(path), path)
  return t
end

return M
