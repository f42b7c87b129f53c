--- Methods of tensors and functions of limn beyond the op table.
--
-- The ops themselves are C functions made from the table (core.ops); here are
-- the calls whose arguments differ from an op's, and compositions of ops.
local core = require "limn.core"
local D = require "limn.dims"

local ops, methods = core.ops, core.raw "methods"
local fail = core.fail

-- Ops whose arguments are internal: their public forms are below or in C.
local internal = {
  slice = true, update = true, full = true, full_like = true, arange = true,
  rand = true, randn = true, randint = true, eye = true, rand_bits = true,
  convert = true, fold_like = true, none = true, scatter = true,
  widen = true, unwiden = true, expect = true, pinv = true, cholesky = true,
  solve = true, solve_triangular = true, gelu_tanh = true, peak = true,
  cummax = true, cummin = true,
}
-- So are steps of others: gradients, statistics, what an op becomes.
for name in pairs(ops) do
  for _, ending in ipairs {"_back$", "_sums$", "_stats$", "_parts$", "_f32$"} do
    if name:find(ending) then internal[name] = true end
  end
end

local limn = {}

for name, f in pairs(ops) do
  if not internal[name] then
    methods[name] = f
    limn[name] = f
  end
end
methods.detach, limn.detach = core.detach, core.detach
for name, f in pairs(methods) do
  if name:find "_like$" then limn[name] = f end
end
for _, name in ipairs {"tensor", "from_string", "zeros", "ones", "empty",
  "full", "rand", "randn", "randint", "arange", "eye",
  "rand_bits"} do
  limn[name] = core[name]
end
limn.masked_select = methods.masked_select

-- -- Other names ----------------------------------------------------------

local alias = {
  view = "reshape", amax = "max", amin = "min", multiply = "mul",
  subtract = "sub", divide = "div", negative = "neg", mm = "matmul",
  mv = "matmul", bmm = "matmul", concat = "cat", swapaxes = "transpose",
}
for new, old in pairs(alias) do
  methods[new] = methods[old]
  limn[new] = limn[old]
end

for name, dtype in pairs {
  float = "float32", double = "float64", half = "float16",
  bfloat16 = "bfloat16", long = "int64", int = "int32", char = "int8",
  byte = "uint8", bool = "bool",
} do
  methods[name] = function(x)
    local y = x:to(dtype)
    return y
  end
end

local check = D.tensor

--- x:t(): x of two dims transposed; of one dim itself.
function methods.t(x)
  check(x, "t")
  local n = x:dim()
  if n > 2 then
    fail("t needs a matrix, not " .. n .. " dims", "use :transpose(dim1, dim2)")
  end
  if n < 2 then return x:clone() end
  local y = ops.transpose(x, 1, 2)
  return y
end

--- x:dot(y): the sum of the products of two vectors of one length, 0-dim.
function methods.dot(x, y)
  check(x, "dot")
  check(y, "dot")
  if x:dim() ~= 1 or y:dim() ~= 1 then fail "dot needs two vectors" end
  local z = ops.matmul(x, y)
  return z
end
limn.dot = methods.dot

--- Repeat along dims, as PyTorch's name has it.
methods.repeat_ = methods.tile

-- -- Parts ----------------------------------------------------------------

local whole_dim, part, check_size = D.whole, D.part, D.size

--- x:narrow(dim, start, length): `length` positions of dim from `start`, which
-- counts from 1. A view.
function methods.narrow(x, dim, start, length)
  local d = whole_dim(x, dim, "narrow")
  check_size(start, "narrow(dim, start, length): start")
  check_size(length, "narrow(dim, start, length): length")
  local y = part(x, d, start, start + length - 1)
  return y
end

--- x:select(dim, i): position i of dim, which vanishes; -1 is the last. A view.
function methods.select(x, dim, i)
  local d = whole_dim(x, dim, "select")
  local key = {}
  for k = 1, d - 1 do key[k] = {} end
  key[d] = i
  local y = x[key]
  return y
end

--- x:split(size, dim = 1) -> list: parts of a given size (the last may be
-- smaller), or of the sizes in a list, along dim.
function methods.split(x, size, dim)
  local d = whole_dim(x, dim or 1, "split")
  local out, at = {}, 1
  local n = limn.value(x:size(d)) -- the number of parts depends on it
  if type(size) == "table" then
    local sum = 0
    for _, s in ipairs(size) do
      check_size(s, "split: a size")
      sum = sum + s
    end
    if sum ~= n then
      fail(("split: the sizes sum to %s, dim %d has %s"):format(
        tostring(sum), d, tostring(n)))
    end
    for i, s in ipairs(size) do
      out[i] = part(x, d, at, at + s - 1)
      at = at + s
    end
    return out
  end
  local s = limn.value(size)
  if type(s) ~= "number" or s % 1 ~= 0 or s < 1 then
    fail("split: a size is a whole number of at least 1, not " .. tostring(s))
  end
  while at <= n do
    out[#out + 1] = part(x, d, at, math.min(at + s - 1, n))
    at = at + s
  end
  if n == 0 then out[1] = part(x, d, 1, 0) end
  return out
end

--- x:chunk(count, dim = 1) -> list: at most `count` parts of equal size along
-- dim; the last may be smaller.
function methods.chunk(x, count, dim)
  if type(count) ~= "number" or count < 1 or count % 1 ~= 0 then
    fail "chunk: the number of parts is a whole number above 0"
  end
  local d = whole_dim(x, dim or 1, "chunk")
  local size = x:size(d)
  -- Where the size is a multiple in the example it is one in every run: the
  -- parts are fractions of the size then, and no run is bound to the example.
  local n = type(size) == "number" and size or core.hint(size)
  if type(size) ~= "number" and n and n % count == 0 and n > 0
    and size % count == 0 then
    local step, out = limn.floor(size / count), {}
    for i = 1, count do
      local first = i == 1 and 1 or step * (i - 1) + 1
      out[i] = part(x, d, first, i == 1 and step or step * i)
    end
    return out
  end
  local out = methods.split(x, math.max(1, math.ceil(n / count)), d)
  return out
end
limn.split, limn.chunk = methods.split, methods.chunk
limn.narrow, limn.select = methods.narrow, methods.select

--- x:unbind(dim = 1) -> list: the slices along dim, which vanishes.
function methods.unbind(x, dim)
  local d, out = whole_dim(x, dim or 1, "unbind"), {}
  for i = 1, limn.value(x:size(d)) do out[i] = x:select(d, i) end
  return out
end
limn.unbind = methods.unbind

--- x:rows(): for i, row in x:rows() do.
function methods.rows(x)
  if core.of_trace(x) then
    fail("a trace cannot walk over rows: their number differs between runs",
      "limn.map(f, x) calls f for every row of a run")
  end
  local n, i = x:size(1), 0
  return function()
    i = i + 1
    if i <= n then return i, x[i] end
  end
end

-- -- Memory ---------------------------------------------------------------

local ctypes = {
  float64 = "double *", float32 = "float *", float16 = "uint16_t *",
  bfloat16 = "uint16_t *", int64 = "int64_t *", int32 = "int32_t *",
  int8 = "int8_t *", uint8 = "uint8_t *", bool = "uint8_t *",
}
local anchors = setmetatable({}, {__mode = "k"})

--- x:data() -> ffi pointer, count: the elements of a dense CPU tensor. The
-- tensor lives as long as the pointer; write only to what nobody else reads.
function methods.data(x)
  local ok, ffi = pcall(require, "ffi")
  if not ok then fail "data needs LuaJIT's ffi library" end
  local p, n = x:pointer()
  local q = ffi.cast(ctypes[x.dtype], p)
  anchors[q] = x
  return q, n
end

-- -- Makers ---------------------------------------------------------------

--- limn.linspace(first, last, n [, {dtype, device}]): n values from first to
-- last, both included, at equal distance.
function limn.linspace(first, last, n, options)
  for i, v in ipairs {first or "", last or "", n or ""} do
    if type(v) ~= "number" and not core.type(v) then
      fail(("linspace(first, last, n): argument %d is not a number"):format(i))
    end
  end
  D.size(n, "linspace: the number of values")
  if type(n) == "number" and n < 0 then
    fail(("linspace: %d values"):format(n))
  end
  local step = (last - first) / D.limn.max(n - 1, 1)
  local y = limn.arange(0, n - 1, 1, options) * step + first
  return y
end

--- limn.randperm(n [, {dtype = "int64", device}]): the whole numbers 1..n in
-- random order: the order of n random numbers of 62 bits.
function limn.randperm(n, ...)
  D.size(n, "randperm(n): n")
  local like = limn.randint(1, 1, 0, ...) -- has the dtype and device asked for
  local words = limn.rand_bits({n, 2}, {device = like.device})
  words = limn.floor_div(words, 2)
  local y = (words[{{}, 1}] * 2 ^ 31 + words[{{}, 2}]):argsort(1)
  if select("#", ...) > 0 then y = y:to(like.dtype) end
  return y
end

-- A table in which sizes of a trace stand, as a tensor that each run makes.
local function of_sizes(v, ...)
  if type(v) ~= "table" then
    local y = limn.full({}, v, ...)
    return y
  end
  local rows = {}
  for i, x in ipairs(v) do rows[i] = of_sizes(x, ...) end
  local y = ops.stack(rows, 1)
  return y
end

local function has_size(v)
  if type(v) ~= "table" then return type(v) == "cdata" end
  for _, x in ipairs(v) do
    if has_size(x) then return true end
  end
  return false
end

--- limn.tensor(table or number [, dtype] [, device]): a tensor of numbers or
-- booleans, in a trace also of sizes: limn.tensor {{1, 2}, {3, 4}}.
function limn.tensor(v, ...)
  local make = core.tracing() and has_size(v) and of_sizes or core.tensor
  local y = make(v, ...)
  return y
end

--- limn.scalar(v [, {dtype, device}]): a 0-dim tensor of a number.
function limn.scalar(v, options)
  local y = limn.full({}, v, options)
  return y
end

return limn
