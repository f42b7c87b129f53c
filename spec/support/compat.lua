-- What spec/compat/ is made of: values as plain tables and text, and the list
-- of the op table's rows.
local T = require "support.optable"
local U = require "support.util"
local limn = U.limn

local M = {}

-- -- Values ----------------------------------------------------------------

-- A tensor as {dtype =, shape =, data =}, a table as {of = {...}}.
function M.pack(v)
  local kind = limn.type(v)
  if kind == "tensor" or kind == "cell" then
    return {dtype = tostring(v.dtype), shape = v.shape, data = U.flat(v)}
  elseif type(v) == "table" then
    local of = {}
    for k, x in pairs(v) do of[k] = M.pack(x) end
    return {of = of}
  end
  return v
end

function M.unpack(v, device)
  if type(v) ~= "table" then return v end
  if v.dtype then
    return U.tensor(v.data, v.shape, v.dtype, device)
  end
  local t = {}
  for k, x in pairs(v.of) do t[k] = M.unpack(x, device) end
  return t
end

local tolerance = {float64 = 1e-9, float32 = 1e-4, float16 = 4e-3,
  bfloat16 = 3e-2}

-- What is packed twice is the same, up to rounding; errors name the place.
function M.check(got, want, where)
  if type(want) ~= "table" then
    local near = got == want or type(got) == "number"
      and type(want) == "number" and math.abs(got - want) <= 1e-9
    if near or got ~= got and want ~= want then return end
    error(("%s is %s instead of %s"):format(where, tostring(got),
      tostring(want)), 0)
  elseif type(got) ~= "table" or got.dtype ~= want.dtype then
    error(("%s is %s instead of %s"):format(where, type(got) == "table"
      and got.dtype or tostring(got), want.dtype or "a table"), 0)
  elseif want.dtype then
    local shape = table.concat(got.shape, ", ")
    if shape ~= table.concat(want.shape, ", ") then
      error(("%s has shape [%s]"):format(where, shape), 0)
    end
    local most = 1
    for _, v in ipairs(want.data) do
      if math.abs(v) < math.huge then most = math.max(most, math.abs(v)) end
    end
    local wrong = U.difference(got.data, want.data,
      tolerance[want.dtype] or 0, most)
    if wrong then error(where .. ": " .. wrong, 0) end
    return
  end
  for k, x in pairs(want.of) do
    M.check(got.of[k], x, where .. "." .. tostring(k))
  end
  for k in pairs(got.of) do
    if want.of[k] == nil then error(where .. "." .. k .. " is new", 0) end
  end
end

-- -- Cases -----------------------------------------------------------------

-- A case for a file: its arguments packed.
function M.case(c)
  local args = {}
  for i, v in ipairs(c.args) do
    local number = type(v) == "table" and getmetatable(v) -- limn.number
    args[i] = number and v.v or M.pack(v)
  end
  return {graph = c.graph, args = args, cpu = c.cpu, train = c.train,
    seed = c.seed, times = c.times}
end

-- Runs the cases of a loaded file in order, on a device; each(case, results)
-- gets all that a case gave, packed: the results of its last run, and what the
-- graph's cells hold then.
function M.run(model, cases, device, each)
  for _, c in ipairs(cases) do
    local g = model[c.graph]
    if not c.cpu or device == "cpu" then
      local args, results = {}, nil
      for i, v in ipairs(c.args) do args[i] = M.unpack(v, device) end
      limn.manual_seed(c.seed or 0)
      if c.train then g:train() else g:eval() end
      for _ = 1, c.times or 1 do results = {g(unpack(args))} end
      local state = {}
      for name, cell in g:named_cells() do state[name] = cell end
      each(c, {values = M.pack(results).of, state = M.pack(state).of})
    end
  end
end

-- -- Text ------------------------------------------------------------------

local function number(v, digits)
  if v ~= v then return "0 / 0" end
  if v == math.huge then return "1 / 0" end
  if v == -math.huge then return "-1 / 0" end
  return ("%." .. digits .. "g"):format(v)
end

local digits = {float64 = 15, float32 = 7, float16 = 4, bfloat16 = 3}

-- Lua for a packed value, keys in order.
function M.write(v, out, indent)
  if type(v) == "number" then
    out[#out + 1] = number(v, 15)
  elseif type(v) ~= "table" then
    out[#out + 1] = type(v) == "string" and ("%q"):format(v) or tostring(v)
  elseif v.dtype then
    local list = {}
    for i, x in ipairs(v.data) do list[i] = number(x, digits[v.dtype] or 17) end
    out[#out + 1] = ("{dtype = %q, shape = {%s}, data = {%s}}"):format(v.dtype,
      table.concat(v.shape, ", "), table.concat(list, ", "))
  else
    local keys = {}
    for k in pairs(v) do keys[#keys + 1] = k end
    table.sort(keys, function(a, b)
      if type(a) == type(b) then return a < b end
      return type(a) == "number"
    end)
    out[#out + 1] = "{"
    for _, k in ipairs(keys) do
      out[#out + 1] = ("\n%s[%s] = "):format(indent .. " ",
        type(k) == "number" and k or ("%q"):format(k))
      M.write(v[k], out, indent .. " ")
      out[#out + 1] = ","
    end
    out[#out + 1] = "}"
  end
  return out
end

-- -- Rows ------------------------------------------------------------------

-- "E2 add NUM x:T y:T" for each row, in the order of the op table: its kind,
-- dtype rule ("-": of its own) and signature.
function M.rows()
  local lines = {}
  for i, row in ipairs(T.order) do
    lines[i] = ("%s %s %s %s"):format(row.kind, row.name, row.rule or "-",
      row.sig)
      :gsub("%s+$", "")
  end
  return lines
end

-- What became of the rows in a text of such lines: a list of complaints.
function M.changed(text)
  local now, list = {}, {}
  for _, line in ipairs(M.rows()) do now[line:match "^%S+ (%S+)"] = line end
  for line in text:gmatch "[^\n]+" do
    local name = line:match "^%S+ (%S+)"
    if not now[name] then
      list[#list + 1] = ("%s is gone"):format(name)
    elseif now[name] ~= line then
      list[#list + 1] = ("%s was '%s' and is '%s'"):format(name, line,
        now[name])
    end
  end
  return list
end

-- The ops that the graphs of a loaded file name.
function M.named(model)
  local found = {}
  for _, g in model:graphs() do
    for name in tostring(g):gmatch "([%a_][%w_]*)%(" do found[name] = true end
    for name in tostring(g):gmatch "%f[%a](%a+) @" do found[name] = true end
  end
  return found
end

-- Those of these names that are rows.
function M.rows_of(named)
  local found = {}
  for name in pairs(named) do
    if T.rows[name] then found[name] = true end
  end
  return found
end

return M
