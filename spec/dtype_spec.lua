-- Dtypes: which two make which, what ints do where they overflow or divide by
-- zero, and what becomes of numbers that a dtype lacks. Alike on every device,
-- eager and traced, fused and not.
local ffi = require "ffi"
local U = require "support.util"
local limn = U.limn

local order = {"float64", "float32", "float16", "bfloat16", "int64", "int32",
               "int8", "uint8", "bool"}
local short = {f64 = "float64", f32 = "float32", f16 = "float16",
               bf16 = "bfloat16", i64 = "int64", i32 = "int32", i8 = "int8",
               u8 = "uint8", bool = "bool"}

local function parse(text)
  local rows = {}
  for line in text:gmatch "[^\n]+" do
    local row = {}
    for w in line:gmatch "%S+" do row[#row + 1] = short[w] end
    rows[#rows + 1] = row
  end
  return rows
end

-- PyTorch's torch.result_type, rows and columns in the order above; of equal
-- standing (both with dims, or both 0-dim). uint8 with int8 is int16 there.
local equal_standing = parse [[
f64 f64 f64  f64  f64  f64  f64  f64  f64
f64 f32 f32  f32  f32  f32  f32  f32  f32
f64 f32 f16  f32  f16  f16  f16  f16  f16
f64 f32 f32  bf16 bf16 bf16 bf16 bf16 bf16
f64 f32 f16  bf16 i64  i64  i64  i64  i64
f64 f32 f16  bf16 i64  i32  i32  i32  i32
f64 f32 f16  bf16 i64  i32  i8   i32  i8
f64 f32 f16  bf16 i64  i32  i32  u8   u8
f64 f32 f16  bf16 i64  i32  i8   u8   bool
]]

-- A row has dims, a column is 0-dim: it counts only beyond the category.
local beside_zero_dim = parse [[
f64  f64  f64  f64  f64  f64  f64  f64  f64
f32  f32  f32  f32  f32  f32  f32  f32  f32
f16  f16  f16  f16  f16  f16  f16  f16  f16
bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16
f64  f32  f16  bf16 i64  i64  i64  i64  i64
f64  f32  f16  bf16 i32  i32  i32  i32  i32
f64  f32  f16  bf16 i8   i8   i8   i8   i8
f64  f32  f16  bf16 u8   u8   u8   u8   u8
f64  f32  f16  bf16 i64  i32  i8   u8   bool
]]

-- Beside a real, a whole number, true.
local beside_number = parse [[
f64  f64  f64
f32  f32  f32
f16  f16  f16
bf16 bf16 bf16
f32  i64  i64
f32  i32  i32
f32  i8   i8
f32  u8   u8
f32  i64  bool
]]

local function is_float(dtype) return dtype:find "float" ~= nil end

-- Ops of two operands by what they make of the promoted dtype.
local function same(dtype) return dtype end
local function float(dtype) return is_float(dtype) and dtype or "float32" end
local function bool() return "bool" end
local binary = {
  add = same, mul = same, maximum = same, minimum = same, pow = same,
  remainder = same, floor_div = same, div = float, atan2 = float, lt = bool,
  ge = bool, eq = bool, ne = bool, logical_and = bool,
}

describe("Promotion", function()
  local function check(x, y, want, what)
    for name, rule in pairs(binary) do
      local got = limn[name](x, y).dtype
      if got ~= rule(want) then
        error(("%s, %s: %s instead of %s"):format(what, name, got, rule(want)))
      end
      got = limn[name](y, x).dtype
      if got ~= rule(want) then
        error(("%s, %s, exchanged: %s instead of %s"):format(what, name, got,
          rule(want)))
      end
    end
    local m = limn.tensor {true, false}
    assert.are.equal(want, limn.where(m, x, y).dtype, what)
  end

  it("is PyTorch's for all pairs of dtypes", function()
    for a, da in ipairs(order) do
      for b, db in ipairs(order) do
        local x, y = limn.ones(2, da), limn.ones(2, db)
        local want = equal_standing[a][b]
        check(x, y, want, da .. " and " .. db)
        assert.are.equal(want, limn.cat({x, y}, 1).dtype)
        assert.are.equal(want, limn.stack({x, y}, 1).dtype)
        if want ~= "bool" then
          assert.are.equal(want, (x - y).dtype)
          assert.are.equal(want, limn.matmul(x, y).dtype)
        end
        local p, q = limn.ones({}, {dtype = da}), limn.ones({}, {dtype = db})
        check(p, q, want, da .. " and " .. db .. ", both 0-dim")
      end
    end
  end)

  it("is PyTorch's beside 0-dim tensors and Lua numbers", function()
    for a, da in ipairs(order) do
      local x = limn.ones(2, da)
      for b, db in ipairs(order) do
        check(x, limn.ones({}, {dtype = db}), beside_zero_dim[a][b],
              da .. " and 0-dim " .. db)
      end
      for k, v in ipairs {1.5, 1, true} do
        check(x, v, beside_number[a][k], da .. " and " .. tostring(v))
      end
    end
  end)

  it("is the same in a trace, whose dtypes come with the run", function()
    U.each_device(function(dev)
      local f = function(x, y)
        local z = x + y
        return z, x * 2, x:lt(y), x:sum(), x / y
      end
      local g = limn.trace(f, limn.ones(2), limn.ones(2))
      local function pair(a, b)
        local da, db = order[a], order[b]
        local x = limn.ones(2, {dtype = da, device = dev})
        local y = limn.ones(2, {dtype = db, device = dev})
        local got, want = {g(x, y)}, {f(x, y)}
        assert.are.equal(equal_standing[a][b], got[1].dtype)
        for i = 1, #want do
          assert.are.equal(want[i].dtype, got[i].dtype, da .. ", " .. db)
          U.equal(got[i], U.flat(want[i]), da .. ", " .. db)
        end
      end
      for a = 1, #order do
        -- Other devices share the planner; their kernels take time to build.
        local step = dev == "cpu" and 1 or 4
        for b = (a - 1) % step + 1, #order, step do pair(a, b) end
      end
    end)
  end)

  it("sums ints in int64, and makes reals where values are real", function()
    for _, d in ipairs(order) do
      local x = limn.ones(2, d)
      local sum = is_float(d) and d or "int64"
      for _, f in ipairs {"sum", "prod"} do
        assert.are.equal(sum, x[f](x).dtype, f .. " of " .. d)
      end
      assert.are.equal(sum, x:cumsum(1).dtype)
      assert.are.equal(d, x:max().dtype)
      assert.are.equal("bool", x:any().dtype)
      for _, f in ipairs {"exp", "sqrt", "sigmoid", "mean", "var", "norm"} do
        assert.are.equal(float(d), x[f](x).dtype, f .. " of " .. d)
      end
    end
  end)
end)

-- -- Ints -----------------------------------------------------------------

local limits = {
  int8 = {-128, 127}, uint8 = {0, 255}, int32 = {-2 ^ 31, 2 ^ 31 - 1},
}
local i64 = ffi.typeof "int64_t"

-- v, an int64, as the dtype's store leaves it.
local function wrap(v, dtype)
  local lo, hi = limits[dtype][1], limits[dtype][2]
  local n = i64(hi - lo + 1)
  local r = (v - i64(lo)) % n
  if r < 0 then r = r + n end
  return tonumber(r + i64(lo))
end

local function floor_div(a, b)
  if b == 0 then return i64(0) end
  local q = a / b -- towards zero
  if q * b ~= a and (a < 0) ~= (b < 0) then q = q - 1 end
  return q
end

local ints = {
  add = function(a, b) return a + b end,
  sub = function(a, b) return a - b end,
  mul = function(a, b) return a * b end,
  floor_div = floor_div,
  remainder = function(a, b)
    return b == 0 and i64(0) or a - floor_div(a, b) * b
  end,
  maximum = function(a, b) return a > b and a or b end,
  minimum = function(a, b) return a < b and a or b end,
}

-- Every pair of these: the ends, around zero, and some between.
local function samples(dtype)
  local lo, hi = limits[dtype][1], limits[dtype][2]
  local list = {lo, lo + 1, hi, hi - 1, 0, 1, 2, 3, 7, math.floor(hi / 3)}
  if lo < 0 then
    for _, v in ipairs {-1, -2, -3, -7, math.ceil(lo / 3)} do
      list[#list + 1] = v
    end
  end
  return list
end

describe("Ints", function()
  for dtype in pairs(limits) do
    it(dtype .. " wraps, and divides by zero to 0, everywhere alike", function()
      local a, b, want = {}, {}, {}
      for _, x in ipairs(samples(dtype)) do
        for _, y in ipairs(samples(dtype)) do
          a[#a + 1], b[#b + 1] = x, y
        end
      end
      for name, f in pairs(ints) do
        want[name] = {}
        for i = 1, #a do
          want[name][i] = wrap(f(i64(a[i]), i64(b[i])), dtype)
        end
      end
      local names = {}
      for name in pairs(ints) do names[#names + 1] = name end
      table.sort(names)
      -- All at once is one fused group in a trace.
      local function all(x, y)
        local out = {}
        for i, name in ipairs(names) do out[i] = limn[name](x, y) end
        return unpack(out)
      end
      U.each_device(function(dev)
        local x, y = limn.tensor(a, dtype, dev), limn.tensor(b, dtype, dev)
        local eager = {all(x, y)}
        local traced = {limn.trace(all, x, y)(x, y)}
        for i, name in ipairs(names) do
          local what = name .. " of " .. dtype .. " on " .. dev
          assert.are.equal(dtype, eager[i].dtype)
          U.equal(eager[i], want[name], what)
          U.equal(traced[i], want[name], what .. ", traced")
        end
        -- A chain rounds at each link, stored or not.
        local function chain(p, q)
          local z = (p + q) * q - p
          return z:floor_div(3), z % 5, z:lt(0), -z, z:abs(), z:square()
        end
        local got, stored = {limn.trace(chain, x, y)(x, y)}, {chain(x, y)}
        for i = 1, #stored do
          U.equal(got[i], U.flat(stored[i]), "chain " .. i .. " of " .. dtype)
        end
      end)
    end)
  end

  it("int64 wraps at its ends", function()
    U.each_device(function(dev)
      local low = limn.tensor({-2 ^ 63}, "int64", dev)
      local one = limn.tensor({1}, "int64", dev)
      local high = low - one
      U.equal(high:gt(low):to "uint8", {1})
      U.equal((high + one):eq(low):to "uint8", {1})
      U.equal((-low):eq(low):to "uint8", {1})
      U.equal(low:abs():eq(low):to "uint8", {1})
      U.equal(low:floor_div(-one):eq(low):to "uint8", {1})
      U.equal(low % -one, {0})
      U.equal(low:floor_div(0), {0})
      U.equal((low * 2), {0})
      U.equal((high * 2), {-2})
    end)
  end)

  it("have powers that wrap, and none that are negative numbers", function()
    U.each_device(function(dev)
      local x = limn.tensor({-3, -1, 0, 1, 2, 7}, "int32", dev)
      U.equal(x ^ 3, {-27, -1, 0, 1, 8, 343})
      U.equal(x ^ 40, {wrap(i64(9) ^ 20, "int32"), 1, 0, 1, 0,
                       wrap(i64(49) ^ 20, "int32")})
      U.equal(x ^ x, {0, -1, 1, 1, 4, 823543})
      local function f(y) return y ^ -1 end
      U.message(function() f(x) end, "negative powers", "hint:", "float32")
      U.message(function() limn.trace(f, x)(x) end, "negative powers")
      U.equal((x:to "float32" ^ -1)[{{4, 5}}], {1, 0.5})
    end)
  end)

  it("divide to reals, with infinities", function()
    U.each_device(function(dev)
      local x = limn.tensor({-1, 0, 1, 7}, "int8", dev)
      local y = x / limn.tensor({0, 0, 0, 2}, "int8", dev)
      U.equal(y, {-math.huge, 0 / 0, math.huge, 3.5})
    end)
  end)

  it("sum in int64 what would wrap in their own dtype", function()
    U.each_device(function(dev)
      local x = limn.full({1000}, 127, "int8"):to(dev)
      U.equal(x:sum(), {127000})
      U.equal(x:cumsum(1)[1000], {127000})
      U.equal(limn.full({4}, 2 ^ 31 - 1, "int32"):to(dev):sum(),
              {4 * (2 ^ 31 - 1)})
      U.equal(limn.full({3}, 200, "uint8"):to(dev):prod(), {8e6})
      U.equal(limn.ones({300}, "bool"):to(dev):sum(), {300})
      U.close(x:mean(), {127})
    end)
  end)
end)

describe("A number that an int dtype lacks", function()
  local function both(f, x, ...)
    local parts = {...}
    U.message(function() f(x) end, unpack(parts))
    U.message(function() limn.trace(f, x)(x) end, unpack(parts))
  end

  it("wraps in sums, differences and products", function()
    U.each_device(function(dev)
      local function f(x)
        return x + 300, x * -1, 300 - x, x + 2 ^ 40, x * (2 ^ 40 + 1)
      end
      for dtype in pairs(limits) do
        local x = limn.tensor({1, 5, limits[dtype][2]}, dtype, dev)
        local got, traced = {f(x)}, {limn.trace(f, x)(x)}
        local v = U.flat(x)
        for i, g in ipairs {
          function(a) return a + 300 end, function(a) return -a end,
          function(a) return 300 - a end, function(a) return a + 2LL ^ 40 end,
          function(a) return a * (2LL ^ 40 + 1) end,
        } do
          local want = {}
          for k = 1, #v do want[k] = wrap(g(i64(v[k])), dtype) end
          U.equal(got[i], want, dtype .. " " .. i .. " on " .. dev)
          U.equal(traced[i], want, dtype .. " " .. i .. " traced on " .. dev)
        end
      end
    end)
  end)

  it("compares as it is", function()
    U.each_device(function(dev)
      local function f(x, n)
        return x:lt(n), x:le(n), x:gt(n), x:ge(n), x:eq(n), x:ne(n)
      end
      for dtype, l in pairs(limits) do
        local x = limn.tensor({l[1], 1, l[2]}, dtype, dev)
        for _, n in ipairs {2 ^ 40, -2 ^ 40, l[2] + 1, l[1] - 1} do
          local function g(y) return f(y, n) end
          local less = n > 0 and 1 or 0
          for _, got in ipairs {{g(x)}, {limn.trace(g, x)(x)}} do
            for i, want in ipairs {less, less, 1 - less, 1 - less, 0, 1} do
              U.equal(got[i], {want, want, want}, dtype .. ", " .. n)
            end
          end
        end
      end
    end)
  end)

  it("is a bound where it bounds nothing, else an error", function()
    U.each_device(function(dev)
      for dtype, l in pairs(limits) do
        local x = limn.tensor({l[1], 1, l[2]}, dtype, dev)
        local v = U.flat(x)
        local function f(y)
          return y:minimum(2 ^ 40), y:maximum(-2 ^ 40),
            y:clamp(-2 ^ 40, 2 ^ 40)
        end
        for _, got in ipairs {{f(x)}, {limn.trace(f, x)(x)}} do
          for i = 1, 3 do U.equal(got[i], v, dtype) end
        end
        local n = l[2] + 1
        local text = ("%.0f does not fit "):format(n) .. dtype
        both(function(y) return y:maximum(n) end, x, text, "maximum", "hint:")
        both(function(y) return y:clamp {min = n} end, x, text, "clamp")
        both(function(y) return y % n end, x, text, "remainder")
        both(function(y) return y:floor_div(n) end, x, text)
        both(function(y) return limn.where(y:gt(1), y, n) end, x, text)
        both(function(y) return y:masked_fill(y:gt(1), n) end, x, text)
        both(function(y) return y:minimum(l[1] - 1) end, x, "does not fit")
      end
    end)
  end)
end)

-- -- Conversion -----------------------------------------------------------

describe("Conversion", function()
  local nan, inf = 0 / 0, math.huge
  local reals = {nan, inf, -inf, 3e9, -3e9, 1e30, -1e30, 1.9, -1.9, 300, -300,
                 0.5, -0.5, 0}
  local whole = { -- truncated, kept within the dtype's range; NaN is 0
    int64 = {0, 2 ^ 63, -2 ^ 63, 3e9, -3e9, 2 ^ 63, -2 ^ 63, 1, -1, 300, -300,
             0, 0, 0},
    int32 = {0, 2 ^ 31 - 1, -2 ^ 31, 2 ^ 31 - 1, -2 ^ 31, 2 ^ 31 - 1, -2 ^ 31,
             1, -1, 300, -300, 0, 0, 0},
    int8 = {0, 127, -128, 127, -128, 127, -128, 1, -1, 127, -128, 0, 0, 0},
    uint8 = {0, 255, 0, 255, 0, 255, 0, 1, 0, 255, 0, 0, 0, 0},
    bool = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0},
  }

  it("of reals to ints truncates and keeps to the range; NaN is 0", function()
    U.each_device(function(dev)
      for dtype, want in pairs(whole) do
        for _, from in ipairs {"float64", "float32"} do
          local x = limn.tensor(reals, from, dev)
          local function f(v) return v:to(dtype) end
          -- Fused with what comes before, and with what reads it.
          local function fused(v)
            return (v * 1.0):to(dtype):to "float64" * 1
          end
          local what = from .. " to " .. dtype .. " on " .. dev
          local exact = limn.tensor(want, "float64")
          U.equal(f(x):to "float64", U.flat(exact), what)
          U.equal(limn.trace(f, x)(x):to "float64", U.flat(exact), what)
          U.equal(limn.trace(fused, x)(x), U.flat(exact), what .. ", fused")
        end
        for _, from in ipairs {"float16", "bfloat16"} do
          local x = limn.tensor({nan, inf, -inf, 1.5, -1.5, -0.25}, from, dev)
          local l = limits[dtype] or {-2 ^ 63, 2 ^ 63}
          local yes = {0, l[2], l[1], 1, math.max(-1, l[1]), 0}
          if dtype == "bool" then yes = {1, 1, 1, 1, 1, 1} end
          U.equal(x:to(dtype):to "float64", yes, from .. " to " .. dtype)
        end
      end
    end)
  end)

  it("of ints to narrower ints wraps; to bool it is ~= 0", function()
    U.each_device(function(dev)
      local v = {-1, 255, 256, 300, 129, -129, 2 ^ 31, -2 ^ 31 - 1, 2 ^ 40, 0}
      local x = limn.tensor(v, "int64", dev)
      for dtype in pairs(limits) do
        local want = {}
        for i = 1, #v do want[i] = wrap(i64(v[i]), dtype) end
        U.equal(x:to(dtype), want, dtype .. " on " .. dev)
      end
      U.equal(x:to "bool", {1, 1, 1, 1, 1, 1, 1, 1, 1, 0})
      local y = limn.tensor({-1, 128, 300}, "int32", dev)
      U.equal(y:to "int8", {-1, -128, 44})
      U.equal(y:to "uint8", {255, 128, 44})
      U.equal(limn.tensor({-1, 5}, "int8", dev):to "uint8", {255, 5})
      U.equal(limn.tensor({255, 5}, "uint8", dev):to "int8", {-1, 5})
    end)
  end)

  it("to halves rounds to even, and overflows to infinity", function()
    U.each_device(function(dev)
      local h = limn.tensor({1 / 3, 65504, 65519, 65520, 1e6, 2 ^ -24, 2 ^ -25,
                             2049, 2051, nan}, "float32", dev)
      U.equal(h:to "float16", {0.333251953125, 65504, 65504, inf, inf, 2 ^ -24,
                               0, 2048, 2052, nan})
      local b = limn.tensor({1 / 3, 1e6, 257, 259, 3.4e38, nan}, "float32", dev)
      U.equal(b:to "bfloat16", {0.333984375, 999424, 256, 260, inf, nan})
      U.equal(limn.tensor({2 ^ 40, 7}, "int64", dev):to "float16", {inf, 7})
      U.equal(limn.tensor({true, false}, "bool", dev):to "float16", {1, 0})
    end)
  end)

  it("there and back keeps what fits", function()
    U.each_device(function(dev)
      for _, dtype in ipairs(order) do
        local x = limn.tensor({0, 1, 1, 0}, dtype, dev)
        for _, via in ipairs(order) do
          U.equal(x:to(via):to(dtype), {0, 1, 1, 0}, dtype .. ", " .. via)
        end
      end
    end)
  end)
end)
