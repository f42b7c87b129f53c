-- Random programs out of the op table: made, run every way, and cut down to
-- what fails.
--
-- A program is a list of statements over symbolic shapes (dims are named A, B,
-- C, or expressions of these), so that one text runs with any sizes. Values
-- that are exact (small multiples of 1/4) are told from rounded ones: what
-- jumps (floor, comparisons, argmax) is applied to exact values only, because
-- devices may differ in the last bit of the others.
local U = require "support.util"
local M = require "support.fuzz_makers"
local core = require "limn.core"
local limn = U.limn

local pick, dim_value, copy, result = M.pick, M.dim_value, M.copy, M.result
local F = {}

local sizes = {0, 1, 2, 3, 7, 64}

-- -- Programs --

local env = {limn = limn, floor = limn.floor}
local weight = {{{0.5, -1, 0.25}}, {{1, 0.5, -0.75}}}
function env.conv(x)
  local w = limn.tensor(weight, x.device):to(x.dtype)
  local y = limn.nn.conv1d(x:unsqueeze(2), w, nil, {padding = 1})
  return y:flatten(2):tanh()
end
function env.pool(x)
  local y = limn.nn.max_pool1d(x:unsqueeze(2), 2, {stride = 1})
  return y:flatten(2)
end
-- 1, n, n - 1, ... as positions; half of x assigned.
function env.index(x, n)
  n = limn.floor(n) -- a number input is a real
  local y = limn.arange(0, n - 1, {dtype = "int64", device = x.device})
  return n - y
end
function env.put(x, n)
  local y = x:clone()
  y[{{1, n}}] = 0.5
  return y
end

local function build(p, list, out)
  local names = {}
  for _, v in ipairs(p.inputs) do names[#names + 1] = v.name end
  names[#names + 1] = "n"
  local lines = {"local " .. table.concat(names, ", ") .. " = ..."}
  lines[#lines + 1] = "local A, B, C, N = x1:size(1), x1:size(2), "
    .. "x2:size(2), n"
  for _, s in ipairs(list) do
    lines[#lines + 1] = ("local %s = %s"):format(s.name, s.text)
  end
  lines[#lines + 1] = "return " .. table.concat(out, ", ")
  return table.concat(lines, "\n")
end

local function compile(text)
  local f = assert(loadstring(text, "=program"))
  setfenv(f, setmetatable({}, {__index = function(_, k)
    return env[k] or _G[k]
  end}))
  return f
end

-- Exact inputs of a size set: x1 [A, B], x2 [B, C], x3 [A, B], x4 [B].
local function arguments(p, set, dev)
  local list = {}
  for i, v in ipairs(p.inputs) do
    local shape, n = {}, 1
    for d, s in ipairs(v.shape) do
      shape[d] = dim_value(s, set)
      n = n * shape[d]
    end
    local r = U.random(p.seed * 7 + i)
    local data = {}
    for k = 1, n do data[k] = math.floor(r() * 17) / 4 - 2 end
    if i == 1 and n > 0 then data[1] = p.odd or data[1] end
    list[i] = U.tensor(data, shape, v.dtype):to(dev)
  end
  list[#list + 1] = set.N
  return list
end

-- A program of about n statements from a seed.
function F.program(seed, n)
  local r = U.random(seed * 16807 % 2147483646 + 1)
  for _ = 1, 5 do r() end
  local p = {seed = seed, r = r, list = {}, sets = {}}
  local function size(big)
    return sizes[1 + math.floor(r() * (big and 6 or 5))]
  end
  for i = 1, 3 do
    local at = 1 + math.floor(r() * 3)
    p.sets[i] = {A = size(at == 1), B = size(at == 2), C = size(at == 3),
                 N = i + 1}
  end
  if r() < 0.1 then p.odd = pick(p, {0 / 0, math.huge, -math.huge}) end
  local dtype = pick(p, {"float32", "float32", "float64"})
  p.inputs = {}
  for i, shape in ipairs {{"A", "B"}, {"B", "C"}, {"A", "B"}, {"B"}} do
    p.inputs[i] = {name = "x" .. i, shape = shape, kind = "f", bits = 4,
                   range = 2, dtype = r() < 0.1 and "float64" or dtype}
  end
  p.values = copy(p.inputs)
  for _ = 1, 12 * n do
    if #p.list == n then break end
    local text, used, out = pick(p, M.makers)(p)
    if text then
      out = out or result(used[1], {bits = false, range = 2})
      out.shape = out.shape or used[1].shape
      for _, v in ipairs(out.extra or {}) do used[#used + 1] = v end
      if #out.shape <= 4 and M.fits(out.shape, p.sets) then
        if out.kind == "f" and not out.bits and (out.range or 0) > 30 then
          text, out.range = "(" .. text .. "):tanh()", 1
        end
        out.name, out.text, out.uses = "v" .. #p.list + 1, text, used
        p.list[#p.list + 1] = out
        -- What a shape is not known of goes into a sum.
        if out.last then
          out.text, out.shape = "(" .. out.text .. "):sum():tanh()", {}
        end
        p.values[#p.values + 1] = out
      end
    end
  end
  return p
end

-- Statements that `value` needs.
local function slice(p, value)
  local need = {[value] = true}
  for i = #p.list, 1, -1 do
    if need[p.list[i]] then
      for _, v in ipairs(p.list[i].uses) do need[v] = true end
    end
  end
  local list = {}
  for _, s in ipairs(p.list) do
    if need[s] then list[#list + 1] = s end
  end
  return list
end

-- By the narrowest dtype that the values went through.
local function tolerance(dtype, narrow)
  if not dtype:find "float" then return 0 end
  return narrow == "float16" and 4e-2 or narrow == "float64" and 1e-8 or 1e-3
end

-- At least 1: of what cancels out only the rounding is left.
local function scale_of(t)
  local m = 1
  for _, v in ipairs(U.flat(t)) do
    v = math.abs(v)
    if v < math.huge and v > m then m = v end
  end
  return m
end

local function narrowest(p, text)
  if text:find "float16" then return "float16" end
  if text:find "float32" then return "float32" end
  for _, v in ipairs(p.inputs) do
    if v.dtype ~= "float64" then return v.dtype end
  end
  return "float64"
end

-- What is different, or nil.
local function compare(got, want, what, narrow)
  if not got.n then
    return want.n and ("%s raises, eager code does not: %s"):format(what,
      tostring(got))
  elseif not want.n then
    return ("%s does not raise, eager code does: %s"):format(what,
      tostring(want))
  end
  for i = 1, want.n do
    local a, b = got[i], want[i]
    local sa, sb = table.concat(a.shape, ", "), table.concat(b.shape, ", ")
    if sa ~= sb or a.dtype ~= b.dtype then
      return ("%s: %s [%s] instead of %s [%s]"):format(what, a.dtype, sa,
        b.dtype, sb)
    end
    local d = U.difference(a, b, tolerance(b.dtype, narrow), scale_of(b))
    if d then return what .. ": " .. d end
  end
end

local message = {}
message.__tostring = function(m) return m[1] end
local function call(f, args)
  limn.manual_seed(11)
  local r = {pcall(f, unpack(args))}
  if not r[1] then return setmetatable({tostring(r[2])}, message) end
  table.remove(r, 1)
  r.n = #r
  return r
end

-- The gradients of all float results with respect to the inputs.
local function gradient(f, list)
  return function(...)
    local args = {...}
    local wrt = {unpack(args, 1, #args - 1)}
    local r = {limn.value_and_grad(function()
      local loss, y = args[1]:sum() * 0, {f(unpack(args))}
      for i = 1, #y do
        if list[i].kind == "f" then loss = loss + U.weigh(y[i]) end
      end
      return loss, unpack(y)
    end, wrt, {unused = "zeros"})()}
    local out = r[2] -- the gradients, then what the program returns
    for i = 3, #r do out[#out + 1] = r[i] end
    return unpack(out)
  end
end

local function set_text(set)
  return ("A = %d, B = %d, C = %d, n = %d"):format(set.A, set.B, set.C, set.N)
end

-- Runs statements every way and compares those of `list`: the first
-- difference, or nil.
local function try(p, text, how, list)
  local f, narrow = compile(text), narrowest(p, text)
  if how == "gradient" then f = gradient(f, list) end
  for k, from in ipairs(U.devices) do
    local example = arguments(p, p.sets[1], from)
    example[#example] = limn.number(example[#example])
    local ok, g = pcall(limn.trace, f, unpack(example))
    for _, set in ipairs(p.sets) do
      local want = call(f, arguments(p, set, "cpu"))
      if not ok then
        if want.n and set == p.sets[1] then
          return ("tracing on %s raises, eager code does not: %s"):format(from,
            tostring(g))
        end
        break
      end
      for _, dev in ipairs(U.devices) do
        local where = ("%s, traced on %s, run on %s with %s"):format(how, from,
          dev, set_text(set))
        local args = arguments(p, set, dev)
        local why = compare(call(g, args), want, where, narrow)
        if not why and k == 1 then
          local old = core.passes "-all"
          why = compare(call(g, args), want, where .. ", unoptimised", narrow)
          core.passes(old)
        end
        if not why and k == 1 and dev ~= "cpu" then
          why = compare(call(f, args), want, how .. ", eager on " .. dev
                        .. " with " .. set_text(set), narrow)
        end
        if why then return why end
      end
    end
  end
end

-- Checks a program: nil, or a report with the smallest failing part as Lua.
function F.check(p)
  local out = {}
  for i, s in ipairs(p.list) do out[i] = s.name end
  for _, how in ipairs {"values", "gradient"} do
    local why = #out > 0 and try(p, build(p, p.list, out), how, p.list)
    if why then
      local text = build(p, p.list, out)
      for _, s in ipairs(p.list) do -- the first value that fails alone
        local small = build(p, slice(p, s), {s.name})
        local w = try(p, small, how, {s})
        if w then
          why, text = w, small
          break
        end
      end
      return ("seed %d: %s\n\n%s\n"):format(p.seed, why, text)
    end
  end
end

return F
