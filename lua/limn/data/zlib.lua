-- gzip and raw deflate through the system's zlib, loaded when first needed.
local core = require "limn.core"
local has_ffi, ffi = pcall(require, "ffi")
local bit = require "bit"

local M = {names = {"libz.so.1", "z", "libz.dylib"}}

-- Names of our own, so that another part of the program may declare zlib too.
local declarations = [[
  typedef struct {
    const unsigned char *next_in;
    unsigned avail_in;
    unsigned long total_in;
    unsigned char *next_out;
    unsigned avail_out;
    unsigned long total_out;
    const char *msg;
    void *state, *zalloc, *zfree, *opaque;
    int data_type;
    unsigned long adler, reserved;
  } limn_zlib;
  const char *limn_zlib_version(void) __asm__("zlibVersion");
  int limn_inflate_init(limn_zlib *, int, const char *, int)
    __asm__("inflateInit2_");
  int limn_inflate(limn_zlib *, int) __asm__("inflate");
  int limn_inflate_end(limn_zlib *) __asm__("inflateEnd");
  int limn_deflate_init(limn_zlib *, int, int, int, int, int, const char *,
    int) __asm__("deflateInit2_");
  int limn_deflate(limn_zlib *, int) __asm__("deflate");
  int limn_deflate_end(limn_zlib *) __asm__("deflateEnd");
]]

local lib

-- zlib, or an error that says who wants it and what else helps.
local function open(what, hint)
  if lib then return lib end
  if has_ffi then
    pcall(ffi.cdef, declarations)
    for _, name in ipairs(M.names) do
      local ok, l = pcall(ffi.load, name)
      if ok and pcall(function() return l.limn_zlib_version() end) then
        lib = l
        return lib
      end
    end
  end
  core.fail(what .. ", and zlib (" .. M.names[1] .. ") is not on this machine",
            hint)
end

-- Forget the library; the next use looks for it again.
function M.close() lib = nil end

local chunk = 65536
local finish, stream_end, buf_error, mem_error = 4, 1, -5, -4

-- One stream of `s` from `at` (1-based): its contents and the position behind
-- it, or nil and why. `bits` is zlib's windowBits; more than `most` bytes are
-- refused.
local function inflate(z, s, at, bits, most)
  local strm, out = ffi.new "limn_zlib", ffi.new("unsigned char[?]", chunk)
  if z.limn_inflate_init(strm, bits, z.limn_zlib_version(),
                         ffi.sizeof "limn_zlib") ~= 0 then
    return nil, "there is no memory for zlib"
  end
  strm.next_in = ffi.cast("const unsigned char *", s) + (at - 1)
  strm.avail_in = #s - at + 1
  local parts, n, rc, total = {}, 0, 0, 0
  while rc == 0 and total <= most do
    strm.next_out, strm.avail_out = out, chunk
    rc = z.limn_inflate(strm, 0)
    local got = chunk - strm.avail_out
    n, total = n + 1, total + got
    parts[n] = ffi.string(out, got)
  end
  local why = strm.msg ~= nil and ffi.string(strm.msg) or "it is damaged"
  local behind = #s - strm.avail_in + 1 -- also keeps `s` alive until here
  z.limn_inflate_end(strm)
  if total > most then return nil, "it holds more than it says" end
  if rc == stream_end then return table.concat(parts), behind end
  if rc == buf_error then return nil, "it ends too early" end
  return nil, rc == mem_error and "there is no memory for zlib" or why
end

-- 2^32 is what one call of zlib can see.
local function check_size(s, name)
  if #s >= 4294967295 then core.fail(name .. " is too large to unpack") end
end

-- `s` itself, or what it holds where it is a gzip file (of several members).
function M.gunzip(s, name)
  if s:sub(1, 2) ~= "\31\139" then return s end
  local z = open(name .. " is compressed", "gunzip it first")
  check_size(s, name)
  local parts, at = {}, 1
  repeat
    local part, next_at = inflate(z, s, at, 31, math.huge)
    if not part then
      core.fail(name .. " is not a sound gzip file: " .. next_at)
    end
    parts[#parts + 1], at = part, next_at
  until s:sub(at, at + 1) ~= "\31\139"
  if s:find("[^%z]", at) then
    core.fail(name .. " is not a sound gzip file: something stands behind its "
              .. "end")
  end
  return table.concat(parts)
end

-- The contents of raw deflated data that are `size` bytes long, or nil, why.
function M.inflate(s, size, name)
  local z = open(name .. " is compressed", "numpy.savez writes it stored")
  check_size(s, name)
  return inflate(z, s, 1, -15, size)
end

-- `s` as raw deflated data.
function M.deflate(s, name)
  local z = open(name .. " is to be compressed",
                 "leave {compressed = true} out")
  check_size(s, name)
  local strm, out = ffi.new "limn_zlib", ffi.new("unsigned char[?]", chunk)
  -- Level 6, method 8 (deflate), raw, memory level 8, default strategy.
  if z.limn_deflate_init(strm, 6, 8, -15, 8, 0, z.limn_zlib_version(),
                         ffi.sizeof "limn_zlib") ~= 0 then
    core.fail(name .. ": there is no memory for zlib")
  end
  strm.next_in = ffi.cast("const unsigned char *", s)
  strm.avail_in = #s
  local parts, n, rc = {}, 0, 0
  while rc == 0 do
    strm.next_out, strm.avail_out = out, chunk
    rc = z.limn_deflate(strm, finish)
    n = n + 1
    parts[n] = ffi.string(out, chunk - strm.avail_out)
  end
  local left = #s > 0 and strm.avail_in or 0
  z.limn_deflate_end(strm)
  if rc ~= stream_end or left ~= 0 then
    core.fail(name .. " cannot be compressed: zlib says " .. rc)
  end
  return table.concat(parts)
end

-- CRC-32 of a string as zip has it (polynomial 0xEDB88320, reflected).
local crc_table
function M.crc32(s)
  local band, bxor, rshift = bit.band, bit.bxor, bit.rshift
  if not crc_table then
    crc_table = {}
    for i = 0, 255 do
      local c = i
      for _ = 1, 8 do
        c = band(c, 1) == 1 and bxor(rshift(c, 1), 0xEDB88320) or rshift(c, 1)
      end
      crc_table[i] = c
    end
  end
  local c = -1
  for i = 1, #s do
    c = bxor(rshift(c, 8), crc_table[band(bxor(c, s:byte(i)), 255)])
  end
  return bit.bnot(c) % 4294967296
end

return M
