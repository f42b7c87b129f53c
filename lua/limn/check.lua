--- limn.trace {f, x, check = true}: the graph against the function, on fresh
-- inputs, with the example's sizes and others, on every device.
local core = require "limn.core"
local callable = require "limn.callable"
local limn = require "limn.lazy"
local pack = require "limn.pack"

local fail, plain = core.fail, callable.plain

-- -- Inputs ---------------------------------------------------------------

local kinds = {} -- metatables of limn.spec and limn.number, set by trace.lua

-- Calls f(size) for every size of the examples: a number or a name.
local function each_size(v, f)
  if core.type(v) == "tensor" then
    for _, n in ipairs(v.shape) do f(n) end
  elseif getmetatable(v) == kinds.spec then
    for _, n in ipairs(v.sizes) do f(n) end
  elseif plain(v) then
    for _, x in pairs(v) do each_size(x, f) end
  end
end

local function whole(dtype) return not dtype:find "float" end

-- Values of the example's kind under other sizes: normal with its mean and
-- spread; of ints and bools its own over and over, as they may be positions.
local function fresh(shape, dtype, example)
  local n = example and example:numel() or 0
  if whole(dtype) and n > 0 then
    local one = example:flatten()
    local count = 1
    for _, d in ipairs(shape) do count = count * d end
    local y = one:tile(math.ceil(count / n))[{{1, count}}]:reshape(shape)
    return y
  elseif whole(dtype) then
    local y = limn.ones(shape, dtype)
    return y
  end
  local y = limn.randn(shape)
  if n > 1 then
    local x = example:to "float32"
    y = y * x:std():clamp(1e-3, 1e3) + x:mean()
  end
  y = y:to(dtype)
  return y
end

-- An argument like the example, with sizes as `map` says, on a device.
local function argument(v, map, device)
  local spec = getmetatable(v) == kinds.spec
  if core.type(v) == "tensor" or spec then
    local shape = {}
    for d, s in ipairs(spec and v.sizes or v.shape) do
      shape[d] = map[s] or type(s) == "number" and s or 3
    end
    local x = fresh(shape, v.dtype, not spec and v:to "cpu" or nil)
    return (x:to(device))
  elseif getmetatable(v) == kinds.number then
    return v.v
  elseif plain(v) then
    local t = {}
    for k, x in pairs(v) do t[k] = argument(x, map, device) end
    return t
  end
  return v
end

-- The example's sizes; each of them one larger; all of them.
local function size_maps(examples)
  local order, all = {}, {}
  for i = 1, examples.n do
    each_size(examples[i], function(s)
      if all[s] == nil then
        order[#order + 1] = s
        all[s] = (type(s) == "number" and s or 3) + 1
      end
    end)
  end
  local maps = {{}}
  for _, s in ipairs(order) do maps[#maps + 1] = {[s] = all[s]} end
  if #order > 1 then maps[#maps + 1] = all end
  return maps
end

-- -- Comparing ------------------------------------------------------------

local tolerance = {float64 = 1e-7, float32 = 1e-3, float16 = 3e-2,
                   bfloat16 = 2e-1}

local function shape_text(x)
  return x.dtype .. " [" .. table.concat(x.shape, ", ") .. "]"
end

-- What differs between two tensors, or nil.
local function differs(got, want)
  local a, b = shape_text(got), shape_text(want)
  if a ~= b then return "is " .. a .. " instead of " .. b end
  local x, y = got:to "cpu":to "float64", want:to "cpu":to "float64"
  if y:numel() == 0 then return nil end
  local same = limn.logical_or(x:eq(y), limn.logical_and(x:isnan(), y:isnan()))
  local scale = limn.where(y:isfinite(), y:abs(), 0):max():item()
  local near = (x - y):abs():le((tolerance[want.dtype] or 0)
                                * math.max(scale, 1))
  local bad = limn.logical_or(same, near):logical_not():flatten()
  if not bad:any():item() then return nil end
  local at = bad:to "int64":argmax():item()
  return ("is %g instead of %g at element %d of %s"):format(
    x:flatten():at(at), y:flatten():at(at), at, b)
end

-- The first difference between results, nested as they are.
local function compare(got, want, name)
  if core.type(want) == "tensor" then
    local why = core.type(got) == "tensor" and differs(got, want)
    if core.type(got) ~= "tensor" then why = "is no tensor" end
    return why and name .. " " .. why
  elseif plain(want) then
    for k, v in pairs(want) do
      local why = compare(plain(got) and got[k] or nil, v, name .. "."
        .. tostring(k))
      if why then return why end
    end
  elseif got ~= want and core.type(want) == nil then
    return ("%s is %s instead of %s"):format(name, tostring(got),
      tostring(want))
  end
end

-- -- A run ----------------------------------------------------------------

local function text_of(map, device)
  local parts = {}
  for s, n in pairs(map) do
    parts[#parts + 1] = ("%s -> %d"):format(tostring(s), n)
  end
  table.sort(parts)
  return (#parts > 0 and "sizes " .. table.concat(parts, ", ") .. " "
    or "the example's sizes ") .. "on " .. device
end

-- f(...) with cells and random numbers as they were; they are put back.
local function from(state, f, ...)
  core.draws(state.draws)
  local r = pack(pcall(f, ...))
  for cell, value in pairs(state.cells) do cell:assign(value) end
  return r
end

-- The first line whose last value differs.
local function find_line(state, f, kept, args)
  local tape
  from(state, function()
    tape = core.trace_begin("check", "tape")
    f(unpack(args, 1, args.n))
  end)
  local last, order = {}, {}
  for _, e in ipairs(core.trace_lines(tape)) do
    if not last[e.line] then order[#order + 1] = e.line end
    last[e.line] = e.value
  end
  core.trace_abort(tape)
  for _, line in ipairs(order) do
    local why = kept[line] and differs(kept[line], last[line])
    if why then return line .. ": the value " .. why end
  end
end

local function check_one(g, f, state, args, where)
  local want = from(state, f, unpack(args, 1, args.n))
  if not want[1] then return end -- sizes that the function itself refuses
  local got = from(state, core.try, g, unpack(args, 1, args.n))
  if not got[1] then
    fail("check: the graph raises with " .. where .. ", the function does "
      .. "not:\n" .. tostring(got[2]))
  elseif not got[2] then
    return -- a guard: the graph says what it was not made for
  end
  for i = 2, math.max(want.n, got.n - 1) do
    local why = compare(got[i + 1], want[i], "result " .. i - 1)
    if why then
      local line = find_line(state, f, core.graph_kept(g), args)
      fail(("check: the graph and the function differ with %s\n  %s%s"):format(
        where, line and line .. "\n  " or "", why),
        "what the function computes must follow from its arguments and cells "
          .. "alone")
    end
  end
end

local function check_all(g, f, examples, state)
  for _, device in ipairs((core.devices())) do
    for _, map in ipairs(size_maps(examples)) do
      local args = {n = examples.n}
      for i = 1, examples.n do
        args[i] = argument(examples[i], map, device)
      end
      check_one(g, f, state, args, text_of(map, device))
    end
  end
end

local M = {kinds = kinds}

--- Compares the graph with f, which runs again for each device and each set of
-- sizes; cells, random numbers and output stay as they were.
function M.check(g, f, examples)
  local state = {draws = core.draws(), cells = {}}
  for _, e in ipairs(core.graph_cells(g)) do
    if e.written then state.cells[e.cell] = e.cell:value() end
  end
  local shown, bits = print, core.debug()
  rawset(_G, "print", function() end) -- limn.print of each run
  core.debug(2)
  local ok, e = pcall(check_all, g, f, examples, state)
  core.debug(bits)
  rawset(_G, "print", shown)
  core.draws(state.draws)
  if not ok then error(e, 0) end
end

return M
