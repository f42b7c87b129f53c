-- The statements of random programs: shapes, values, and makers that put an op
-- of the table, a composition or control flow to values that suit it.
local T = require "support.optable"

local M = {}

local most = 6000 -- elements of a value

-- -- Shapes: lists of dims, each a text such as "A", "1" or "(A + B)" --

local function dim_value(d, set)
  local f = assert(loadstring("local A, B, C, N, floor = ... return " .. d))
  return f(set.A, set.B, set.C, set.N, math.floor)
end

local function fits(shape, sets)
  for _, set in ipairs(sets) do
    local n = 1
    for _, d in ipairs(shape) do n = n * dim_value(d, set) end
    if n > most then return false end
  end
  return true
end

local function copy(list)
  local t = {}
  for i, v in ipairs(list) do t[i] = v end
  return t
end

local function without(shape, d)
  local t = copy(shape)
  table.remove(t, d)
  return t
end

-- What elementwise ops give, or nil.
local function broadcast(a, b)
  local out, n = {}, math.max(#a, #b)
  for i = 1, n do
    local x, y = a[#a - n + i] or "1", b[#b - n + i] or "1"
    if x ~= y and x ~= "1" and y ~= "1" then return nil end
    out[i] = x == "1" and y or x
  end
  return out
end

-- -- Values: {name, shape, kind = "f" | "i" | "b", bits, range} --
-- bits: how many bits an exact value has; nil where it was rounded. range: a
-- bound of its size.

local function pick(p, list) return list[1 + math.floor(p.r() * #list)] end

local function some(p, want)
  local list = {}
  for _, v in ipairs(p.values) do
    if want(v) then list[#list + 1] = v end
  end
  return #list > 0 and pick(p, list) or nil
end

local function is_float(v) return v.kind == "f" end
local function is_exact(v) return v.kind == "f" and v.bits ~= nil end
local function of_rank(n) return function(v)
  return v.kind == "f" and #v.shape >= n
end end

local function more_bits(v, n)
  return v.bits and v.bits + n <= 9 and v.bits + n or nil
end

local function result(v, changes)
  local out = {shape = v.shape, kind = v.kind, bits = v.bits, range = v.range}
  for k, x in pairs(changes or {}) do out[k] = x end
  if changes and changes.bits == false then out.bits = nil end
  return out
end

-- An operand text within a domain of the op table.
local function within(v, domain)
  local x = v.name
  if domain == "POS" then return ("(%s:abs() + 0.5)"):format(x) end
  if domain == "NZ" then return ("(%s:abs() + 0.5)"):format(x) end
  if domain == "GE1" then return ("(%s:abs() + 1.5)"):format(x) end
  if domain == "NEAR" then return ("(%s:tanh() * 0.7 + 1)"):format(x) end
  if domain == "UNIT" then return ("(%s:tanh() * 0.7)"):format(x) end
  return x
end

local rows = {}
for row in T.each "E" do
  -- polygamma wants whole orders; bits are ints', which no value here is.
  if (row.rule ~= "LOG" or row.arity < 3) and row.rule ~= "BIT"
    and row.name ~= "polygamma" then rows[#rows + 1] = row end
end

local keeps_exact = {neg = 0, abs = 0, relu = 0, maximum = 0, minimum = 0,
                     add = 1, sub = 1, sign = 0, floor = 0, ceil = 0, trunc = 0,
                     round = 0}
local jumps = {sign = true, floor = true, ceil = true, round = true,
               trunc = true, floor_div = true, remainder = true,
               fmod = true, frac = true}
local grows = {exp = true, exp2 = true, expm1 = true, sinh = true, cosh = true,
               square = true, mul = true, pow = true, tan = true, atanh = true,
               acosh = true}

-- Makers of statements: f(p) gives text, the values used, and the result; nil
-- where nothing fits.
local makers = {}

local function elementwise(p)
  local row = pick(p, rows)
  local want = (jumps[row.name] or row.rule == "CMP") and is_exact or is_float
  if row.rule == "LOG" then want = function(v) return v.kind == "b" end end
  if row.name == "where" or row.name == "clamp" then return nil end
  local a = some(p, want)
  if not a then return nil end
  local domain = row.name == "pow" and "NEAR" or row.domain
  local used, texts, shape = {a}, {within(a, domain)}, a.shape
  if row.arity == 2 then
    local b = some(p, function(v)
      return want(v) and broadcast(shape, v.shape)
    end)
    if not b then return nil end
    used[2] = b
    texts[2] = within(b, domain)
    shape = broadcast(shape, b.shape)
    if p.r() < 0.25 and row.rule == "NUM" then
      used[2], texts[2], shape = nil, pick(p, {"0.5", "2", "-1.25"}), a.shape
    end
  end
  local out = result(a, {shape = shape})
  local n = keeps_exact[row.name]
  local b = used[2]
  out.bits = n and a.bits and (not b or b.bits)
    and more_bits({bits = math.max(a.bits, b and b.bits or 3)}, n) or nil
  if row.rule == "CMP" or row.rule == "TST" or row.rule == "LOG" then
    out.kind, out.bits, out.range = "b", nil, 1
  end
  out.range = grows[row.name] and a.range * 8
    or a.range + (b and b.range or 2)
  return ("%s(%s)"):format("limn." .. row.name, table.concat(texts, ", ")),
    used, out
end

for _ = 1, 9 do makers[#makers + 1] = elementwise end

local function unary(want, f)
  makers[#makers + 1] = function(p)
    local v = some(p, want)
    if not v then return nil end
    local text, out = f(p, v)
    if text then return text:gsub("@", v.name), {v}, out end
  end
end

-- Reductions.
unary(of_rank(1), function(p, v)
  local d = 1 + math.floor(p.r() * #v.shape)
  local keep = p.r() < 0.5
  local name = pick(p, {"sum", "mean", "max", "min", "prod", "var", "std",
                        "logsumexp", "norm"})
  local shape = without(v.shape, d)
  if keep then table.insert(shape, d, "1") end
  local x = name == "prod" and "(@:tanh() * 0.5 + 1)" or "@"
  local out = result(v, {shape = shape, bits = (name == "max" or name == "min")
    and v.bits or false, range = v.range * (name == "sum" and 64 or 2)})
  if name == "norm" then
    return ("(@ * @ + 0.5):sqrt():norm {2, dim = %d, keepdim = %s}"):format(d,
      tostring(keep)), out
  elseif name == "std" then
    return ("(@:var {dim = %d, unbiased = false, keepdim = %s} + 0.5):sqrt()")
      :format(d, tostring(keep)), out
  elseif name == "var" then
    return ("@:var {dim = %d, unbiased = false, keepdim = %s}"):format(d,
      tostring(keep)), out
  end
  return ("%s:%s(%d, %s)"):format(x, name, d, tostring(keep)), out
end)
unary(of_rank(1), function(p, v)
  return pick(p, {"@:sum()", "@:mean()"}), result(v, {shape = {}, bits = false,
    range = v.range * 64})
end)
unary(function(v) return is_exact(v) and #v.shape >= 1 end, function(p, v)
  local d = 1 + math.floor(p.r() * #v.shape)
  return ("@:%s(%d)"):format(pick(p, {"argmax", "argmin"}), d),
    {shape = without(v.shape, d), kind = "i", range = 64}
end)
unary(function(v) return v.kind == "b" and #v.shape >= 1 end, function(p, v)
  local d = 1 + math.floor(p.r() * #v.shape)
  return ("@:%s(%d)"):format(pick(p, {"any", "all"}), d),
    {shape = without(v.shape, d), kind = "b", range = 1}
end)

-- Views.
unary(of_rank(2), function(p, v)
  local a = 1 + math.floor(p.r() * #v.shape)
  local b = 1 + math.floor(p.r() * #v.shape)
  local shape = copy(v.shape)
  shape[a], shape[b] = shape[b], shape[a]
  return ("@:transpose(%d, %d)"):format(a, b), result(v, {shape = shape})
end)
unary(of_rank(1), function(p, v)
  return ("@:flip(%d)"):format(1 + math.floor(p.r() * #v.shape)), result(v)
end)
unary(function(v) return is_float(v) and #v.shape < 4 end, function(p, v)
  local d, shape = 1 + math.floor(p.r() * (#v.shape + 1)), copy(v.shape)
  table.insert(shape, d, "1")
  return ("@:unsqueeze(%d)"):format(d), result(v, {shape = shape})
end)
unary(of_rank(1), function(p, v)
  for d, s in ipairs(v.shape) do
    if s == "1" then
      if p.r() < 0.5 then
        return ("@:squeeze(%d)"):format(d),
          result(v, {shape = without(v.shape, d)})
      end
      local list, shape = {}, copy(v.shape)
      for k = 1, #shape do list[k] = "-1" end
      shape[d], list[d] = "B", "B"
      return ("@:expand(%s)"):format(table.concat(list, ", ")),
        result(v, {shape = shape})
    end
  end
end)
unary(of_rank(2), function(_, v)
  local shape = copy(v.shape)
  local last = table.remove(shape)
  shape[#shape] = ("(%s * %s)"):format(shape[#shape], last)
  return ("@:flatten(%d)"):format(#shape), result(v, {shape = shape})
end)
unary(of_rank(2), function(_, v)
  return "@:reshape(" .. v.shape[#v.shape] .. ", " .. (function()
    local rest = copy(v.shape)
    table.remove(rest)
    return table.concat(rest, " * ")
  end)() .. ")", result(v, {shape = {v.shape[#v.shape], "(" .. table.concat(
    without(v.shape, #v.shape), " * ") .. ")"}})
end)
unary(of_rank(1), function(p, v)
  local d = 1 + math.floor(p.r() * #v.shape)
  local key, shape = {}, copy(v.shape)
  for k = 1, #shape do key[k] = "{}" end
  local n = shape[d]
  if p.r() < 0.5 then
    key[d] = ("{1, floor(%s / 2)}"):format(n)
    shape[d] = ("floor(%s / 2)"):format(n)
  else
    key[d] = "{1, -1, 2}"
    shape[d] = ("floor((%s + 1) / 2)"):format(n)
  end
  return "@[{" .. table.concat(key, ", ") .. "}]", result(v, {shape = shape})
end)

-- Products and joins.
makers[#makers + 1] = function(p)
  local a = some(p, of_rank(2))
  local b = a and some(p, function(v)
    return is_float(v) and #v.shape >= 2 and #v.shape <= #a.shape
      and v.shape[#v.shape - 1] == a.shape[#a.shape]
      and (#v.shape == 2 or v.shape[1] == a.shape[1] and #a.shape == 3)
  end)
  if not b then return nil end
  local shape = copy(a.shape)
  shape[#shape] = b.shape[#b.shape]
  return ("%s:matmul(%s)"):format(a.name, b.name), {a, b},
    {shape = shape, kind = "f", range = a.range * b.range * 64}
end
makers[#makers + 1] = function(p)
  local a = some(p, of_rank(1))
  local b = a and some(p, function(v)
    return is_float(v) and table.concat(v.shape, ",") == table.concat(a.shape,
                                                                    ",")
  end)
  if not b then return nil end
  local d, shape = 1 + math.floor(p.r() * #a.shape), copy(a.shape)
  local bits = a.bits and b.bits and math.max(a.bits, b.bits) or false
  local range = math.max(a.range, b.range)
  if p.r() < 0.3 then
    table.insert(shape, d, "2")
    return ("limn.stack({%s, %s}, %d)"):format(a.name, b.name, d), {a, b},
      result(a, {shape = shape, bits = bits, range = range})
  end
  shape[d] = ("(%s + %s)"):format(shape[d], shape[d])
  return ("limn.cat({%s, %s}, %d)"):format(a.name, b.name, d), {a, b},
    result(a, {shape = shape, bits = bits, range = range})
end
unary(of_rank(1), function(p, v)
  local shape = copy(v.shape)
  shape[#shape] = ("(%s + 3)"):format(shape[#shape])
  return ("@:pad({1, 2}, %s)"):format(pick(p, {"0", "0.5"})),
    result(v, {shape = shape, bits = v.bits and math.max(v.bits, 3)})
end)
unary(of_rank(1), function(_, v)
  local shape, counts = copy(v.shape), {}
  for d = 1, #shape do counts[d] = "1" end
  counts[1], shape[1] = "2", ("(2 * %s)"):format(shape[1])
  return "@:tile(" .. table.concat(counts, ", ") .. ")",
    result(v, {shape = shape})
end)

-- Rows, running sums, normalising.
unary(of_rank(1), function(p, v)
  local name = pick(p, {"softmax", "log_softmax", "cumsum"})
  local d = 1 + math.floor(p.r() * #v.shape)
  return ("@:%s(%d)"):format(name, d), result(v, {bits = false,
    range = v.range * (name == "cumsum" and 64 or 2)})
end)
unary(of_rank(1), function(p)
  return pick(p, {"limn.layer_norm(@, nil, nil, -1, 0.1)",
                  "limn.rms_norm(@, nil, nil, -1, 0.1)"}),
    {shape = nil, kind = "f", range = 8}
end)
unary(of_rank(2), function(p, v)
  return ("@:%s(%d)"):format(pick(p, {"tril", "triu"}),
    math.floor(p.r() * 3) - 1), result(v)
end)
unary(function(v) return is_exact(v) and #v.shape >= 1 end, function(_, v)
  return ("(@:sort(%d))"):format(#v.shape), result(v)
end)

-- Choosing and placing.
makers[#makers + 1] = function(p)
  local m = some(p, function(v) return v.kind == "b" end)
  local a = m and some(p, function(v)
    return is_float(v) and broadcast(m.shape, v.shape)
  end)
  if not a then return nil end
  return ("limn.where(%s, %s, %s)"):format(m.name, a.name,
    pick(p, {"0", "1.5", a.name .. " * 2"})), {m, a},
    result(a, {shape = broadcast(m.shape, a.shape), bits = false,
               range = a.range * 2})
end
unary(of_rank(1), function(_, v)
  return ("@:index_select(%d, index(@, %s))"):format(#v.shape,
    v.shape[#v.shape]), result(v)
end)
unary(of_rank(1), function(_, v)
  return ("put(@, floor(%s / 2))"):format(v.shape[1]),
    result(v, {bits = v.bits and math.max(v.bits, 3)})
end)
unary(of_rank(1), function(p, v)
  local new = {shape = v.shape, kind = "f", bits = 8, range = 64}
  if p.r() < 0.3 then
    new.bits = nil
    return "limn.rand_like(@)", new
  end
  new.shape = {v.shape[#v.shape]}
  return ("(limn.arange(%s, {dtype = @.dtype, device = @.device}) * 0.25)")
    :format(v.shape[#v.shape]), new
end)
unary(is_float, function(p, v)
  return ("@ / %s"):format(pick(p, {"(A + 1)", "4", "(#@.shape + 1)"})),
    result(v, {bits = false})
end)

unary(is_float, function(p, v)
  return pick(p, {"@ * n", "@ + n", "limn.where(@:gt(n), n, @)",
                  "@:clamp(-n, n)", "@:detach()"}),
    result(v, {bits = false, range = v.range * 8})
end)
unary(of_rank(1), function(_, v)
  local shape = copy(v.shape)
  shape[#shape] = ("(%s + N)"):format(shape[#shape])
  return "@:pad({0, n})", result(v, {shape = shape})
end)
unary(of_rank(1), function(_, v)
  return ("@:%s(1, index(@, %s), @ * 0.5)"):format("index_add", v.shape[1]),
    result(v, {bits = more_bits(v, 2) or false, range = v.range * 2})
end)
unary(of_rank(2), function(p, v)
  if #v.shape ~= 2 then return nil end
  return pick(p, {
    'limn.einsum("ij,kj->ik", @, @):tanh()', "conv(@)", "pool(@)",
    "@:gather(1, index(@, " .. v.shape[1] .. "):unsqueeze(2):expand(-1, "
      .. v.shape[2] .. "))", "(@:tanh() * 0.5 + 1):cumprod(2):tanh()"}),
    {shape = {v.shape[1], "0 * A"}, kind = "f", range = 4, last = true}
end)

-- Other dtypes.
unary(is_float, function(p, v)
  local half = p.r() < 0.3
  return half and '@:to "float16"' or pick(p, {'@:to "float64"',
    '@:to "float32"'}), result(v)
end)
unary(is_exact, function(p, v)
  if p.odd then return nil end -- no int is infinite
  return '(@ * 4):to "int64"', {shape = v.shape, kind = "i", range = 1e4}
end)
unary(function(v) return v.kind == "i" and v.range < 1e7 end, function(p, v)
  return pick(p, {"@ + 3", "@ * -2", "@:floor_div(3)", "@ % 5", "@:abs()",
                  "@:maximum(1)", "limn.where(@:gt(2), @, -1)", "@:square()",
                  "@:to(x1.dtype):to(@.dtype)", "(@ / 4):floor():to(@.dtype)"}),
    {shape = v.shape, kind = "i", range = v.range * v.range}
end)
unary(function(v) return v.kind == "i" and #v.shape > 0 and v.range < 1e6 end,
      function(p, v)
  local d = 1 + math.floor(p.r() * #v.shape)
  return ("@:%s(%d)"):format(pick(p, {"sum", "max", "min"}), d),
    {shape = without(v.shape, d), kind = "i", range = v.range * 64}
end)
unary(function(v) return v.kind ~= "f" end, function(_, v)
  return "@:to(x1.dtype):tanh()", {shape = v.shape, kind = "f", range = 1}
end)

-- Control flow.
unary(is_float, function(p, v)
  local pred = some(p, function(x) return x.kind == "b" end)
  if not pred or v.range > 30 then return nil end
  return ("limn.cond(%s:any(), function(t) return t * 2 + w end, "
    .. "function(t) return t:tanh() - w end, @)"):format(pred.name):gsub("w",
    p.values[1].name .. ":sum():tanh()"), result(v, {bits = false,
    range = v.range * 2 + 2, extra = {pred, p.values[1]}})
end)
unary(of_rank(2), function(_, v)
  return "({limn.scan(function(c, t) local n = c * 0.5 + t return n, n:tanh() "
    .. "end, @:new_zeros(" .. table.concat(without(v.shape, 1), ", ")
    .. "), @)})[2]", result(v, {bits = false, range = 1})
end)
unary(of_rank(2), function(_, v)
  return "limn.map(function(t) return t:sin() + t:mean() end, @)",
    result(v, {bits = false, range = v.range + 1})
end)
unary(function(v) return is_float(v) and v.range < 30 end, function(_, v)
  return "(limn.no_grad(limn.while_loop, function(i) return i:lt(3) end, "
    .. "function(i, t) "
    .. "return i + 1, t * 0.5 + 1 end, limn.zeros({}, @.device), @))",
    nil and v
end)

M.makers, M.pick, M.dim_value, M.fits = makers, pick, dim_value, fits
M.copy, M.result = copy, result

return M
