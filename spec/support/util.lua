-- What the specs share: devices to run on, numbers out of tensors, closeness,
-- errors as text, other processes.
local limn = require "limn"

local U = {limn = limn}

-- -- Devices: all that limn lists; LIMN_TEST_DEVICE=opencl:0 leaves that one
-- and the CPU, which is the oracle. --

local wanted = os.getenv "LIMN_TEST_DEVICE"
if wanted == "" then wanted = nil end
U.asan = os.getenv "LIMN_TEST_ASAN" == "1"

U.devices = {}
for _, name in ipairs(limn.devices()) do
  name = tostring(name)
  if not wanted or name == "cpu" or name == wanted then
    U.devices[#U.devices + 1] = name
  end
end

function U.each_device(f)
  for _, dev in ipairs(U.devices) do f(dev) end
end

-- f(a, b): every ordered pair, equal ones too: trace on a, run on b.
function U.each_pair(f)
  for _, a in ipairs(U.devices) do
    for _, b in ipairs(U.devices) do f(a, b) end
  end
end

-- A device other than the CPU, or nil.
function U.other() return U.devices[2] end

-- Does LIMN_TEST_OP leave this op (or case) in?
function U.selected(name)
  local only = os.getenv "LIMN_TEST_OP"
  return not only or only == "" or name:find(only, 1, true) ~= nil
end

-- -- Values --

local function flatten(v, out)
  if type(v) == "table" then
    for i = 1, #v do flatten(v[i], out) end
  else
    if v == true then v = 1 elseif v == false then v = 0 end
    out[#out + 1] = v
  end
  return out
end
U.flatten = flatten

-- The elements of a tensor (or cell) in row-major order; bools are 0 and 1.
function U.flat(t)
  local list = flatten(t:totable(), {})
  return list
end

-- Deterministic numbers in [0, 1) (Lehmer 1951), the same on all machines.
function U.random(seed)
  local state = seed or 1
  return function()
    state = state * 16807 % 2147483647
    return (state - 1) / 2147483646
  end
end

function U.numel(shape)
  local n = 1
  for i = 1, #shape do n = n * shape[i] end
  return n
end

-- A tensor from row-major numbers.
function U.tensor(data, shape, dtype, device)
  local t = limn.tensor(data, dtype or "float32")
  t = t:reshape(shape)
  if device and device ~= "cpu" then t = t:to(device) end
  return t
end

-- -- Assertions --

local function same(a, b)
  return a == b or (a ~= a and b ~= b)
end

-- |a - b| <= tol * max(|b|, scale): what is wrong, or nil.
function U.difference(got, want, tol, scale)
  if type(got) ~= "table" then got = U.flat(got) end
  if type(want) ~= "table" then want = U.flat(want) end
  if #got ~= #want then
    return ("%d elements instead of %d"):format(#got, #want)
  end
  if scale == "max" then
    scale = 0
    for i = 1, #want do
      local m = math.abs(want[i])
      if m < math.huge and m > scale then scale = m end
    end
  end
  for i = 1, #want do
    local a, b = got[i], want[i]
    local limit = tol * math.max(math.abs(b), scale or 1)
    local near = math.abs(a - b) <= limit -- false for NaN
    if not near and not same(a, b) then
      return ("element %d is %.17g instead of %.17g (off by %.3g)"):format(
        i, a, b, math.abs(a - b))
    end
  end
end

-- Error levels: a failed closeness is reported at the spec's line.
function U.close(got, want, tol, scale, what)
  local d = U.difference(got, want, tol or 1e-6, scale)
  if d then error((what and what .. ": " or "") .. d, 2) end
end

function U.equal(got, want, what)
  local d = U.difference(got, want, 0)
  if d then error((what and what .. ": " or "") .. d, 2) end
end

function U.shape(t, want, what)
  local got = "[" .. table.concat(t.shape, ", ") .. "]"
  local text = "[" .. table.concat(want, ", ") .. "]"
  if got ~= text then
    error((what and what .. ": " or "") .. "shape " .. got .. " instead of "
          .. text, 2)
  end
end

-- The message that f(...) raises; every pattern must be found in it.
function U.message(f, ...)
  local ok, err = pcall(f)
  if ok then error("no error was raised", 2) end
  err = tostring(err)
  for _, pattern in ipairs {...} do
    if not err:find(pattern) then
      error(("the message lacks '%s':\n%s"):format(pattern, err), 2)
    end
  end
  return err
end

-- The line that called, as messages show it: "errors_spec.lua:12:" plus n.
function U.here(n)
  local info = debug.getinfo(2, "Sl")
  local file = info.short_src:match "[^/]*$"
  return file:gsub("%p", "%%%0") .. ":" .. (info.currentline + (n or 0)) .. ":"
end

-- The loss whose gradient the golden files hold: sum(y * cos(1..n)).
function U.weigh(y)
  local w = limn.arange(1, y:numel(), {dtype = y.dtype, device = y.device})
  local loss = (y * w:cos():reshape_like(y)):sum()
  return loss
end

-- What f writes to standard error from Lua.
function U.said(f)
  local err, lines = io.stderr, {}
  rawset(io, "stderr", {write = function(_, ...)
    lines[#lines + 1] = table.concat {...}
  end})
  local ok, e = pcall(f)
  rawset(io, "stderr", err)
  if not ok then error(e, 0) end
  return table.concat(lines)
end

-- -- The rest --

function U.read_file(path)
  local f = assert(io.open(path, "rb"))
  local s = f:read "*a"
  f:close()
  return s
end

function U.write_file(path, s)
  local f = assert(io.open(path, "wb"))
  f:write(s)
  f:close()
end

-- A path for a temporary file, removed after f(path).
function U.with_file(f)
  local path = os.tmpname()
  local ok, err = pcall(f, path)
  os.remove(path)
  if not ok then error(err, 0) end
end

local function quote(s) return "'" .. s:gsub("'", "'\\''") .. "'" end
U.quote = quote

-- What a shell command prints (both streams), and whether it succeeded.
function U.run(command)
  local p = assert(io.popen("(" .. command .. ") 2>&1; echo \"=$?\""))
  local s = p:read "*a"
  p:close()
  local text, code = s:match "^(.*)=(%d+)\n$"
  return text, code == "0", tonumber(code)
end

-- Whether there is the C++ compiler that the stand-in for CUDA needs. (What a
-- sanitizer preloads would look for leaks in it.)
function U.has_cxx()
  local _, ok = U.run "LD_PRELOAD= g++ --version"
  return ok
end

-- The build folder: where limn.core came from.
U.build = os.getenv "LIMN_TEST_BUILD"
if not U.build then
  for part in package.cpath:gmatch "[^;]+" do
    local path = part:gsub("%?", "limn/core")
    local f = io.open(path)
    if f then
      f:close()
      U.build = part:gsub("/%?%.so$", "")
      break
    end
  end
end

-- Run Lua source in a process of its own, with environment settings.
function U.lua(source, env)
  local path = os.tmpname()
  U.write_file(path, source)
  if not U.devices[2] then env = "LIMN_DEVICES=cpu " .. (env or "") end
  local text, ok = U.run(("LUA_PATH=%s LUA_CPATH=%s %s luajit %s"):format(
    quote "lua/?.lua;lua/?/init.lua;spec/?.lua;;",
    quote(U.build .. "/?.so;;"), env or "", path))
  os.remove(path)
  return text, ok
end

-- Bytes of memory that this process has resident.
function U.resident()
  local f = io.open "/proc/self/statm"
  if not f then return nil end
  local _, pages = f:read("*n", "*n")
  f:close()
  return pages * 4096
end

return U
