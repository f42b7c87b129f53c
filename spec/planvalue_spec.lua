-- Plan values: wherever a size or a number can stand, one that only a run
-- knows can too. Each case is traced with one value of n and run with others,
-- n being the size of an argument or a number input.
local U = require "support.util"
local limn = U.limn
local nn = limn.nn

local function image(x) return x:reshape(1, 1, 4, 6) end
local one = limn.tensor({1}, "int64")

-- {name, f(x, n), n of the trace, n of runs...}; x is [4, 6] with 1..24.
local cases = {
  {"zeros", function(_, n) return limn.zeros(n, 2) end, 3, 5, 0},
  {"zeros of a list", function(_, n) return limn.zeros {2, n} end, 3, 5, 0},
  {"ones", function(_, n) return limn.ones(n) end, 3, 5, 0},
  {"full, its size and value", function(_, n) return limn.full({n}, n) end,
   3, 5, 0},
  {"full_like", function(x, n) return limn.full_like(x, n) end, 3, 5, 0},
  {"new_zeros", function(x, n) return x:new_zeros(n, n) end, 3, 5, 0},
  {"new_full", function(x, n) return x:new_full({n}, n) end, 3, 5, 0},
  {"empty", function(_, n) return limn.empty(n):zeros_like() end, 3, 5, 0},
  {"tensor of numbers", function(_, n) return limn.tensor {{n, 2}, {1, n + 1}}
   end, 3, 5, 0},
  {"tensor of one number", function(_, n) return limn.tensor(n) end, 3, 5, 0},
  {"scalar", function(_, n) return limn.scalar(n) end, 3, 5, 0},
  {"rand", function(_, n) return limn.rand(n) end, 3, 5, 0},
  {"randn", function(_, n) return limn.randn(2, n) end, 3, 5, 0},
  {"randint, bounds and size", function(_, n) return limn.randint(-n, n, n) end,
   3, 5, 0},
  {"rand_bits", function(_, n) return limn.rand_bits(n) end, 3, 5, 0},
  {"eye", function(_, n) return limn.eye(n) end, 3, 5, 0},
  {"eye, not square", function(_, n) return limn.eye(n, n + 1) end, 3, 5, 0},
  {"arange to n", function(_, n) return limn.arange(n) end, 3, 5, 0},
  {"arange from n", function(_, n) return limn.arange(n, 2 * n + 1) end, 3, 5,
   0},
  {"arange by n", function(_, n) return limn.arange(0, 20, n) end, 3, 5},
  {"linspace, how many", function(_, n) return limn.linspace(0, 1, n) end, 3, 5,
   1, 0},
  {"linspace, bounds", function(_, n) return limn.linspace(-n, n, 4) end, 3, 5,
   0},
  {"reshape", function(x, n) return x:reshape(n, -1) end, 3, 2, 24},
  {"reshape to a quotient", function(x, n)
     return x:reshape(n, limn.floor(24 / n))
   end, 3, 2, 1},
  {"view", function(x, n) return x:view {-1, n * 2} end, 3, 2, 4},
  {"expand", function(x, n) return x:unsqueeze(1):expand(n, -1, -1) end, 3, 5,
   1, 0},
  {"a slice's end", function(x, n) return x[{{1, n}}] end, 3, 2, 4, 0},
  {"a slice's start", function(x, n) return x[{{n, -1}}] end, 3, 2, 4},
  {"a slice's both ends", function(x, n) return x[{{}, {n, 2 * n}}] end, 3, 2,
   1},
  {"a slice's step", function(x, n) return x[{{}, {1, -1, n}}] end, 3, 2, 6},
  {"a slice from the end", function(x, n) return x[{{-n, -1}}] end, 3, 2, 4},
  {"an index", function(x, n) return x[n] end, 3, 2, 4},
  {"an index from the end", function(x, n) return x[-n] end, 3, 2, 4},
  {"two indices", function(x, n) return x[{n, n + 1}] end, 3, 2, 4},
  {"assignment to a row", function(x, n)
     local y = x * 1
     y[n] = 7
     return y
   end, 3, 2, 4},
  {"assignment of n to a part", function(x, n)
     local y = x * 1
     y[{{1, n}, n}] = n
     return y
   end, 3, 2, 4},
  {"narrow's start", function(x, n) return x:narrow(1, n, 2) end, 3, 2, 1},
  {"narrow's length", function(x, n) return x:narrow(2, 1, n) end, 3, 2, 0},
  {"select", function(x, n) return x:select(2, n) end, 3, 2, 6},
  {"pad", function(x, n) return x:pad {n, 1} end, 3, 5, 0},
  {"pad by a difference", function(x, n)
     return x:pad({limn.max(n - 3, 0), 0, 0, limn.max(3 - n, 0)}, 9)
   end, 3, 5, 0},
  {"pad's value", function(x, n) return x:pad({1, 1}, n) end, 3, 5, 0},
  {"pad by reflection", function(x, n)
     return x:pad({n, 1}, {mode = "reflect"})
   end, 3, 2, 5},
  {"pad by replication", function(x, n)
     return x:pad({n, 1}, {mode = "replicate"})
   end, 3, 5, 0},
  {"pad in a circle", function(x, n)
     return x:pad({n, 1}, {mode = "circular"})
   end, 3, 2, 6},
  {"tile", function(x, n) return x:tile(n, 2) end, 3, 5, 1, 0},
  {"tile to more dims", function(x, n) return x:tile(1, n, 1) end, 3, 5, 0},
  {"roll", function(x, n) return x:roll(n, 2) end, 3, 5, 0, 6},
  {"roll of all", function(x, n) return x:roll(-n) end, 3, 5, 0, 24},
  {"tril", function(x, n) return x:tril(n - 3) end, 3, 5, 0},
  {"triu", function(x, n) return x:triu(n - 3) end, 3, 5, 0},
  {"diagonal", function(x, n) return x:diagonal(n - 3) end, 3, 5, 0, 20},
  {"diag of a vector", function(x, n) return limn.diag(x[1], n - 3) end, 3, 5,
   0},
  {"one_hot", function(_, n) return one:one_hot(n) end, 3, 5, 1},
  {"topk", function(x, n) return (x:topk(n, 2)) end, 3, 2, 6},
  {"clamp", function(x, n) return x:clamp(n, 2 * n) end, 3, 5, 0},
  {"an operand of + and -", function(x, n) return x + n - (n - x) end, 3, 5, 0},
  {"a divisor", function(x, n) return x / n end, 3, 5, 0},
  {"a dividend", function(x, n) return n / x end, 3, 5, 0},
  {"an operand of %", function(x, n) return x % n end, 3, 5, 1},
  {"an exponent", function(x, n) return (x / 24) ^ n end, 3, 2, 0},
  {"an operand of where", function(x, n)
     return limn.where(x:gt(n), n, x)
   end, 3, 5, 0},
  {"a comparand", function(x, n) return x:eq(n) end, 3, 5, 0},
  {"masked_fill", function(x, n) return x:masked_fill(x:gt(4), n) end, 3, 5, 0},
  {"index_fill", function(x, n) return x:index_fill(2, one, n) end, 3, 5, 0},
  {"elu's alpha", function(x, n) return (x - 12):elu(n) end, 3, 5, 0},
  {"norm's p", function(x, n) return x:norm(n) end, 3, 2, 1},
  {"a mean by hand", function(x, n) return x:sum(1) / x:size(1) * n end, 3, 5,
   0},
  {"cat of a part", function(x, n)
     return limn.cat({x, limn.zeros(n, 6)}, 1)
   end, 3, 5, 0},
  {"Unflatten", function(x, n)
     return x:reshape(2, n, limn.floor(12 / n))
   end, 3, 2, 12},
  {"max_pool2d's kernel", function(x, n)
     return nn.max_pool2d(image(x), n)
   end, 1, 2, 4},
  {"avg_pool2d's kernel and stride", function(x, n)
     return nn.avg_pool2d(image(x), {n, 2}, {stride = {n, 1}})
   end, 1, 2, 4},
  {"max_pool2d's padding and dilation", function(x, n)
     return nn.max_pool2d(image(x), 2, {padding = limn.floor(n / 2),
                                        dilation = n, stride = 1})
   end, 1, 2},
  {"adaptive_avg_pool2d", function(x, n)
     return nn.adaptive_avg_pool2d(image(x), {n, 2 * n})
   end, 2, 1, 3},
  {"adaptive_max_pool2d", function(x, n)
     return nn.adaptive_max_pool2d(image(x), n)
   end, 2, 1, 4},
  {"interpolate to n, nearest", function(x, n)
     return nn.interpolate(image(x), {size = {n, 2 * n}})
   end, 3, 5, 1},
  {"interpolate to n, bilinear", function(x, n)
     return nn.interpolate(image(x), {size = {n, n}, mode = "bilinear"})
   end, 3, 5, 1},
  {"interpolate by n", function(x, n)
     return nn.interpolate(image(x), {scale_factor = n})
   end, 2, 3, 1},
  {"conv2d's padding", function(x, n)
     return nn.conv2d(image(x), limn.ones(1, 1, 2, 2), nil, {padding = n})
   end, 1, 2, 0},
  {"conv2d's stride and dilation", function(x, n)
     return nn.conv2d(image(x), limn.ones(1, 1, 2, 2), nil,
                      {stride = n, dilation = n})
   end, 1, 2, 3},
  {"unfold's kernel", function(x, n) return nn.unfold(image(x), n) end, 1, 2,
   4},
  {"windows", function(x, n)
     return limn.windows(x, {2, n}, {1, n}, {1, 1})
   end, 1, 2, 6},
  {"eps of a norm", function(x, n) return nn.layer_norm(x, {eps = n}) end, 3, 5,
   0},
  {"a result", function(_, n) return n * 2 + limn.max(n, 3) end, 3, 7, 0},
  {"arithmetic", function(x, n)
     return x * (limn.sqrt(n) + limn.abs(3 - n) + limn.ceil(n / 2)
                 + limn.min(n, 4) + n ^ 2 + n % 4 - limn.exp(-n))
   end, 3, 7, 0},
}

local random = {rand = true, randn = true, rand_bits = true,
                ["randint, bounds and size"] = true}

local function check(case, how, from, to, g, n)
  local name, f = case[1], case[2]
  local x = limn.arange(24):reshape(4, 6)
  local what = ("%s, n = %d as a %s, traced on %s, run on %s"):format(name, n,
    how, from, to)
  limn.manual_seed(n)
  local want = f(x, n)
  limn.manual_seed(n)
  local got = g(x:to(to), how == "size" and limn.zeros(n, to) or n)
  if type(want) == "number" then
    assert.are.equal(want, got, what)
    return
  end
  U.shape(got, want.shape, what)
  assert.are.equal(want.dtype, got.dtype, what)
  assert.are.equal(to, got.device, what)
  if random[name] and want.dtype == "int64" then U.equal(got, want, what) end
  U.close(got, want, 1e-5, 1, what)
end

describe("A size, or a number input, may stand in", function()
  for _, case in ipairs(cases) do
    it(case[1], function()
      for _, how in ipairs {"size", "number"} do
        U.each_device(function(from)
          local function f(x, n)
            if how == "size" then n = n:size(1) end
            local y = case[2](x, n)
            return y
          end
          local n = case[3]
          local g = limn.trace(f, limn.ones(4, 6, from), how == "size"
            and limn.zeros(n, from) or limn.number(n))
          assert.is_nil(tostring(g):find "guard", tostring(g))
          U.each_device(function(to)
            for i = 3, #case do check(case, how, from, to, g, case[i]) end
          end)
        end)
      end
    end)
  end
end)

describe("A number input", function()
  it("may be whole as a size and any as an operand, without another trace",
     function()
    local n_traced = {0}
    local j = limn.jit(function(x, n)
      n_traced[1] = n_traced[1] + 1
      return x * n
    end)
    U.each_device(function(dev)
      for _, n in ipairs {2, 2.5, -1, 1e300, 0} do
        local y = j(limn.ones(2, {dtype = "float64", device = dev}),
                    limn.number(n))
        U.equal(y, {n, n})
      end
    end)
    assert.are.equal(1, n_traced[1])
  end)

  it("that is not whole, negative or too large is an error at the size's line",
     function()
    local line = debug.getinfo(1, "l").currentline + 2
    local g = limn.trace(function(n)
      local y = limn.zeros(n)
      return y
    end, limn.number(3))
    local at = "planvalue_spec.lua:" .. line
    U.shape(g(4), {4})
    U.message(function() g(2.5) end, at, "2.5", "not a whole number", "floor")
    U.message(function() g(-1) end, at, "negative", "-1")
    U.message(function() g(0 / 0) end, at, "nan")
    U.message(function() g(1e30) end, at, "1e%+30")
    U.shape(g(0), {0})
  end)

  it("compared gives a guard; by jit each side is traced once", function()
    local function f(x, n)
      if n > 2 then return x * n end
      return x
    end
    local g, j = limn.trace(f, limn.ones(1), limn.number(3)), limn.jit(f)
    U.equal(g(limn.ones(1), 7), {7})
    U.message(function() g(limn.ones(1), 1.5) end, "%%n > 2", "1.5")
    for _, n in ipairs {3, 1, 9, 0.5} do
      U.equal(j(limn.ones(1), limn.number(n)), {n > 2 and n or 1})
    end
    assert.are.equal(2, j:stats().traces)
  end)
end)

describe("Sizes go through traced functions:", function()
  it("as arguments of a graph that is called inside a trace", function()
    local inner = limn.trace(function(x, n)
      return limn.zeros(n) + x:sum(), n * 2
    end, limn.ones(2), limn.number(2))
    U.each_pair(function(from, to)
      local g = limn.trace(function(x)
        local y, n = inner(x, x:size(1) + 1)
        return y, n
      end, limn.ones(3, from))
      for _, n in ipairs {3, 5, 0} do
        local y, twice = g(limn.ones(n, to))
        U.equal(y, limn.full({n + 1}, n))
        assert.are.equal(2 * n + 2, twice)
      end
    end)
  end)

  it("as arguments of jit functions, modules and plain ones", function()
    local Net = nn.Module:extend "Net"
    function Net:forward(x, n) -- luacheck: no self
      local y = x:reshape(n, -1)
      return y
    end
    local net = Net()
    local j = limn.jit(function(x, n) return x[{{1, n}}] end)
    local function plain(x, n) return x:tile(n) end
    local function f(x, y)
      return net(x, #y), j(x, y:size(1)), plain(x, y:size(1))
    end
    U.each_pair(function(from, to)
      local g = limn.trace(f, limn.arange(12):to(from), limn.zeros(3, from))
      for _, n in ipairs {3, 2, 6} do
        local x, y = limn.arange(12), limn.zeros(n)
        local want, got = {f(x, y)}, {g(x:to(to), y:to(to))}
        for i = 1, 3 do
          U.shape(got[i], want[i].shape)
          U.equal(got[i], want[i])
        end
      end
    end)
  end)

  it("and gradients through them follow the run's sizes", function()
    local f = limn.grad(function(x, w)
      local n = w:size(1)
      local y = x[{{1, n}}] * w
      y = y:pad {n, 0}:reshape(2, n):tile(n, 1):mean(1)
      return (y ^ 2):sum() / n
    end)
    U.each_pair(function(from, to)
      local g = limn.trace(function(x, w) return f(x, w) end,
                           limn.randn(6, from), limn.randn(3, from))
      for _, n in ipairs {3, 1, 6} do
        local x, w = limn.randn(6), limn.randn(n)
        U.close(g(x:to(to), w:to(to)), f(x, w), 1e-5, "max")
      end
    end)
  end)
end)

describe("A named size", function()
  local function f(x, y) return x:matmul(y), x:size(1) end
  local function specs()
    return limn.spec {"batch", "width"}, limn.spec {"width", "batch"}
  end

  it("agrees across inputs, or the call says both values, before anything "
     .. "runs: traced, by jit and after a file", function()
    local g = limn.trace(f, specs())
    local j = limn.jit(f)
    j:graph(specs())
    local loaded = limn.load_string(limn.save_string {g = g}).g
    assert.is_truthy(tostring(g):find("%x: [batch, width]", 1, true))
    assert.are.equal(tostring(g), tostring(loaded))
    for _, h in ipairs {g, j, loaded} do
      U.each_device(function(dev)
        local y, n = h(limn.ones(2, 3, dev), limn.ones(3, 2, dev))
        U.shape(y, {2, 2})
        assert.are.equal(2, n)
        U.message(function() h(limn.ones(2, 3, dev), limn.ones(3, 5, dev)) end,
                  "size batch is 2 in x %(dim 1%) but 5 in y %(dim 2%)")
        U.message(function() h(limn.ones(2, 3, dev), limn.ones(4, 2, dev)) end,
                  "size width is 3 in x %(dim 2%) but 4 in y %(dim 1%)")
      end)
    end
    assert.are.equal(1, j:stats().traces)
  end)

  it("in one input must agree too, and takes no example's value", function()
    local g = limn.trace(function(x) return x + x:t() end, limn.spec {"n", "n"})
    U.each_device(function(dev)
      for _, n in ipairs {1, 4, 0} do
        U.shape(g(limn.ones(n, n, dev)), {n, n})
      end
      U.message(function() g(limn.ones(2, 3, dev)) end,
                "size n is 2 in x %(dim 1%) but 3 in x %(dim 2%)")
    end)
  end)
end)
