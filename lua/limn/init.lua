--- limn: trace Lua functions and models to graphs that run on any device.
local callable = require "limn.callable"
local core = require "limn.core"
local pack = require "limn.pack"

do -- sources beside this file are limn's own: errors name the line outside
  local source = debug.getinfo(1, "S").source
  core.setup((source:gsub("init%.lua$", "")))
end

local limn = {_VERSION = "limn " .. core.version(), core = core}

-- -- Parts ----------------------------------------------------------------

-- Order matters: trace.lua's floor, max, ... also take sizes and numbers.
local ops = require "limn.tensor"
for _, part in ipairs {ops, require "limn.order", require "limn.arrange",
  require "limn.arith", require "limn.shapes", require "limn.statistics",
  require "limn.einsum", require "limn.trace", require "limn.jit",
  require "limn.grad", require "limn.control", require "limn.bounded",
  require "limn.print", require "limn.files"} do
  for name, f in pairs(part) do limn[name] = f end
end
limn.check = nil

require "limn.shape"
local instead = require "limn.instead"

limn.linalg = require "limn.linalg"
for _, name in ipairs {"det", "slogdet", "logdet", "inverse", "pinverse",
  "cholesky"} do
  limn[name] = core.raw "methods"[name]
end

local lazy = {nn = true, optim = true, data = true, repl = true, help = true,
  script = true}

setmetatable(limn, {
  __index = function(t, key)
    if lazy[key] then
      local part = require("limn." .. key)
      rawset(t, key, part)
      return part
    end
    if type(key) ~= "string" then return nil end
    local hint = instead.limn[key]
    core.fail("limn has no '" .. key .. "'"
      .. (hint and "" or core.near(key, t)), hint)
  end,
})

-- Compositions of ops by name, for errors of the ops that they are made of; map
-- is made of a scan.
local called = core.raw "called"
for _, part in ipairs {core.raw "methods", ops, require "limn.order",
  require "limn.arrange", require "limn.arith", require "limn.shapes",
  require "limn.statistics", require "limn.einsum", limn.linalg,
  {map = limn.map}} do
  for name, f in pairs(part) do
    if type(f) == "function" and (called[f] or name) >= name then
      called[f] = name
    end
  end
end

-- tensor.lua and others are loaded before this table is complete.
package.loaded["limn"] = limn
ops.value, ops.floor = limn.value, limn.floor
require("limn.dims").limn = limn

limn.debug = require "limn.debug".debug
limn.type = core.type
limn.tracing = core.tracing
limn.counters = core.counters

-- A number of things or bytes, or an error that names it.
local function count(v, who, what)
  if type(v) ~= "number" or not (v >= 0 and v < 2 ^ 53) or v % 1 ~= 0 then
    core.fail(("%s: %s is a whole number of at least 0, not %s"):format(who,
      what, tostring(v)))
  end
end

--- limn.plans_limit(entries, bytes): bounds of the plan cache.
function limn.plans_limit(entries, bytes)
  count(entries, "plans_limit", "the number of entries")
  count(bytes, "plans_limit", "the number of bytes")
  core.plans_limit(math.min(entries, 2 ^ 32 - 1), bytes)
end

--- limn.wait([device]): wait until all that was launched there (or anywhere) is
-- done; raises what failed.
function limn.wait(device)
  if device ~= nil and type(device) ~= "string" then
    core.fail("wait: a device is a name, not a " .. (core.type(device)
      or type(device)))
  end
  core.wait(device)
end

--- limn.policy {precise, deterministic, max_bytes}: how runs are to be made;
-- part of every plan's key, never of a graph. max_bytes bounds host memory; 0
-- is no bound.
function limn.policy(options)
  if type(options) ~= "table" then
    core.fail("policy: a table of options is wanted",
      "limn.policy {deterministic = true}")
  end
  core.options(options, {"precise", "deterministic", "tf32", "max_bytes"},
    "policy")
  for _, name in ipairs {"precise", "deterministic", "tf32"} do
    if options[name] ~= nil and type(options[name]) ~= "boolean" then
      core.fail(("policy: %s is true or false, not %s"):format(name,
        tostring(options[name])))
    end
  end
  if options.max_bytes ~= nil then
    count(options.max_bytes, "policy", "max_bytes")
  end
  core.policy(options)
end

--- limn.allow_tf32(on): whether float32 products on NVIDIA GPUs may round
-- their factors to TensorFloat-32 (10 bits of mantissa), which is several
-- times faster. They may not until this is called.
function limn.allow_tf32(on)
  if type(on) ~= "boolean" then
    core.fail("limn.allow_tf32: true or false is wanted, not " .. type(on))
  end
  core.policy {tf32 = on}
end

--- limn.is_tensor(v) -> boolean: whether v is a tensor.
function limn.is_tensor(v) return core.type(v) == "tensor" end

-- -- Devices and random numbers -------------------------------------------

--- limn.devices([{all = true}]) -> list: the names of the devices here; with
-- all also what is known of each, and a text that says why others are missing
-- and which libraries would make those that are here faster.
function limn.devices(options)
  core.options(options, {"all"}, "devices")
  if options and options.all then return core.devices(true) end
  return (core.devices())
end

--- limn.accelerator() -> string: the first accelerator, or "cpu".
function limn.accelerator()
  for _, name in ipairs((core.devices())) do
    if name ~= "cpu" then return name end
  end
  return "cpu"
end

--- limn.on(device, f, ...) -> what f returns: f(...) where what is made without
-- a device is made on this one.
function limn.on(device, f, ...)
  if core.tracing() then
    core.fail("limn.on would write a device into the trace",
      "with no device given the run decides")
  end
  if type(device) ~= "string" then
    core.fail("limn.on(device, f, ...): the device is a name, not "
      .. type(device))
  end
  callable.check(f, "limn.on(device, f, ...)")
  local old = core.set_device(device)
  local r = pack(pcall(f, ...))
  core.set_device(old)
  if not r[1] then error(r[2], 0) end
  return unpack(r, 2, r.n)
end

--- limn.manual_seed(n): start the random numbers of this context anew, from
-- seed n (a whole number); graphs that exist draw the new ones.
function limn.manual_seed(n)
  if type(n) ~= "number" or n ~= math.floor(n) or math.abs(n) >= 2 ^ 63 then
    core.fail("manual_seed: a whole number is wanted, not " .. tostring(n))
  end
  core.seed(n)
end
limn.seed = limn.manual_seed

-- -- limn.scope -----------------------------------------------------------

local keeping -- tensors of the innermost scope that live on

local function keep_all(v, set, seen)
  if core.type(v) == "tensor" then
    set[v] = true
  elseif type(v) == "table" and not seen[v] then
    seen[v] = true
    for _, x in pairs(v) do keep_all(x, set, seen) end
  end
end

--- limn.scope(f, ...) -> what f returns: free at once what f makes, except what
-- it returns, assigns to a cell or gives to limn.keep. Using a freed tensor is
-- an error.
function limn.scope(f, ...)
  callable.check(f, "limn.scope(f, ...)")
  local made, outer = {}, keeping
  local old = core.scope_enter(made)
  keeping = {}
  local set = keeping
  local r = pack(pcall(f, ...))
  core.scope_enter(old)
  keeping = outer
  if r[1] then
    for i = 2, r.n do keep_all(r[i], set, {}) end
  end
  core.scope_free(made, set)
  if old then
    for t in pairs(set) do old[#old + 1] = t end -- the outer scope decides
  end
  if not r[1] then error(r[2], 0) end
  return unpack(r, 2, r.n)
end

--- limn.keep(...) -> ...: let tensors outlive the scope that makes them.
function limn.keep(...)
  if keeping then
    for i = 1, select("#", ...) do keep_all((select(i, ...)), keeping, {}) end
  end
  return ...
end

return limn
