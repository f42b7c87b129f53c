-- limn.data: reading idx files, walking data in batches, progress.
local core = require "limn.core"
local read_options = require "limn.options"
local has_ffi, ffi = pcall(require, "ffi")

local limn = require "limn.lazy"

local data = {}

-- -- Files -----------------------------------------------------------------

local function read(path)
  local f, why = io.open(path, "rb")
  if not f then core.fail("cannot open the data file: " .. why) end
  local s, failed = f:read "*a"
  f:close()
  if not s then core.fail("cannot read " .. path .. ": " .. failed) end
  return s
end

-- idx's element types: dtype, bytes. 16-bit ones become int32.
local idx_types = {
  [0x08] = {"uint8", 1}, [0x09] = {"int8", 1}, [0x0B] = {"int32", 2},
  [0x0C] = {"int32", 4}, [0x0D] = {"float32", 4}, [0x0E] = {"float64", 8},
}

local function big_endian(s, at)
  local a, b, c, d = s:byte(at, at + 3)
  return ((a * 256 + b) * 256 + c) * 256 + d
end

-- The machine's order from the file's (big-endian), which is its reverse;
-- 16-bit integers are widened with their sign.
local function reorder(body, bytes)
  if bytes == 1 then return body end
  local parts, n = {}, 0
  for i = 1, #body, bytes do
    local e = body:sub(i, i + bytes - 1)
    if bytes == 2 then
      local fill = e:byte(1) >= 128 and "\255\255" or "\0\0"
      e = fill .. e
    end
    n = n + 1
    parts[n] = e:reverse()
  end
  return table.concat(parts)
end

-- The tensor in an idx file's bytes; `name` is for messages.
function data.idx_string(s, name)
  name = name or "idx data"
  local function bad(what) core.fail(name .. " is not a sound idx file: "
                                     .. what) end
  if s:sub(1, 2) == "\31\139" then
    core.fail(name .. " is compressed", "gunzip it first")
  elseif #s < 4 then
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
  local t = limn.from_string(reorder(s:sub(5 + 4 * ndim), kind[2]), kind[1],
                             shape)
  return t
end

-- The tensor in an idx file, as MNIST and its kin are shipped.
function data.idx(path)
  local t = data.idx_string(read(path), path)
  return t
end

-- -- Progress --------------------------------------------------------------

local clock = os.clock -- taken now: a trace replaces os.clock
local seconds = function() return os.time() end
local isatty = function() return false end
if has_ffi then
  pcall(ffi.cdef, [[
    typedef struct { long s, ns; } limn_timespec;
    int clock_gettime(int, limn_timespec *);
    int isatty(int);
  ]])
  local ok, now = pcall(ffi.new, "limn_timespec")
  if ok and pcall(function() return ffi.C.clock_gettime(1, now) end) then
    seconds = function()
      ffi.C.clock_gettime(1, now) -- CLOCK_MONOTONIC
      return tonumber(now.s) + tonumber(now.ns) * 1e-9
    end
  elseif not ok then
    seconds = clock
  end
  if pcall(function() return ffi.C.isatty(2) end) then
    isatty = function(fd) return ffi.C.isatty(fd) == 1 end
  end
end

-- Wall-clock seconds from some start.
function data.seconds() return seconds() end

local function span(s)
  if s ~= s or s == math.huge then return "?" end
  s = math.floor(s + 0.5)
  if s < 60 then return s .. " s" end
  if s < 3600 then return string.format("%d:%02d", s / 60, s % 60) end
  return string.format("%d:%02d:%02d", s / 3600, s / 60 % 60, s % 60)
end

local Bar = {}
Bar.__index = Bar

-- A progress bar on stderr. It stays silent where stderr is no terminal, unless
-- {progress = "always"} asks.
function data.progress(total, options)
  options = options or {}
  local show = options.progress == "always"
    or (options.progress ~= false and isatty(2))
  return setmetatable({total = total, done = 0, start = seconds(), last = -1,
                       show = show, label = options.label or "",
                       out = options.out or io.stderr, text = ""}, Bar)
end

function Bar:line()
  local part = self.total > 0 and self.done / self.total or 1
  local full = math.floor(part * 24)
  local passed = seconds() - self.start
  local rate = passed > 0 and self.done / passed or 0
  local s = string.format("%s%3d%% [%s%s] %d/%d", self.label == "" and ""
    or self.label .. " ", part * 100, ("="):rep(full), (" "):rep(24 - full),
    self.done, self.total)
  if rate > 0 then
    s = s .. string.format(rate < 10 and "  %.2g/s  " or "  %.0f/s  ", rate)
      .. (self.done < self.total and span((self.total - self.done) / rate)
          .. " left" or span(passed))
  end
  if self.text ~= "" then s = s .. "  " .. self.text end
  return s
end

-- Set how far things are; drawn ten times a second at most.
function Bar:update(done)
  self.done = done
  local now = seconds()
  if not self.show or (now - self.last < 0.1 and done < self.total) then
    return
  end
  self.last = now
  self.out:write("\r", self:line(), "\27[K")
  self.out:flush()
end

-- Text after the bar, such as the loss.
function Bar:note(text) self.text = text end

function Bar:finish()
  if self.show and not self.ended then
    self.last = -1
    self:update(self.done)
    self.out:write "\n"
    self.out:flush()
  end
  self.ended = true
end

-- -- Batches ---------------------------------------------------------------

local Batches = {}
Batches.__index = Batches

local allowed = {"size", "shuffle", "drop_last", "progress", "label"}

-- for x, t in data.batches(images, labels, {size = 64}) do
-- {size = 32, shuffle = false, drop_last = false, progress = false}; progress
-- is true or "always", `label` stands before the bar. The iterator's
-- `:note(text)` puts text after it, its `n` is the number of batches.
function data.batches(...)
  local args, n = {...}, select("#", ...)
  local options = {}
  if type(args[n]) == "table" then
    options = read_options(args[n], allowed, "data.batches")
    args[n], n = nil, n - 1
  end
  local size = options.size or 32
  if type(size) ~= "number" or size < 1 or size % 1 ~= 0 then
    core.fail("data.batches: size is a whole number above 0, got "
              .. tostring(size))
  elseif n == 0 then
    core.fail("data.batches: no tensors given",
              "data.batches(images, labels, {size = 64})")
  end
  for i = 1, n do
    if core.type(args[i]) ~= "tensor" then
      core.fail("data.batches: argument " .. i .. " is a "
                .. (core.type(args[i]) or type(args[i])) .. ", not a tensor")
    elseif args[i]:size(1) ~= args[1]:size(1) then
      core.fail("data.batches: argument " .. i .. " has " .. args[i]:size(1)
                .. " rows, the first has " .. args[1]:size(1))
    end
  end
  local rows = args[1]:size(1)
  local full = math.floor(rows / size)
  local self = setmetatable({
    tensors = args, count = n, rows = rows, size = size, i = 0,
    n = options.drop_last and full or math.ceil(rows / size),
    order = options.shuffle and rows > 0 and limn.randperm(rows) or nil,
  }, Batches)
  if options.progress then self.bar = data.progress(self.n, options) end
  return self
end

function Batches:note(text)
  if self.bar then self.bar:note(text) end
end

function Batches:__call()
  if self.bar then
    self.bar:update(self.i)
    if self.i == self.n then self.bar:finish() end
  end
  if self.i == self.n then return nil end
  local first = self.i * self.size + 1
  local last = math.min(first + self.size - 1, self.rows)
  self.i = self.i + 1
  local out = {}
  local index = self.order and self.order[{{first, last}}]
  for k = 1, self.count do
    local t = self.tensors[k]
    out[k] = index and t[index] or t[{{first, last}}]
  end
  return unpack(out, 1, self.count)
end

return data
