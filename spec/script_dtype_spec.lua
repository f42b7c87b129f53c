-- Scripted functions in other dtypes than the example's: a number beside a
-- tensor, in another branch or before a loop, follows the tensor.
local U = require "support.util"
local limn = U.limn

local dtypes = {"float32", "float64", "float16", "bfloat16", "int64", "int32",
  "uint8"}
local some_dtypes = {"float32", "float16", "int64"}

-- f traced once with float32, saved and loaded, gives on every device and in
-- each dtype what f gives in eager code, where that is a tensor in its dtype.
local function follows(f, inputs, ints)
  f = limn.script(f)
  local g = limn.trace(f, limn.tensor(inputs[1]))
  local path = os.tmpname()
  limn.save(path, {g = g})
  local loaded = limn.load(path).g
  os.remove(path)
  U.each_device(function(dev)
    for _, dtype in ipairs(dev == "cpu" and dtypes or some_dtypes) do
      for _, data in ipairs(inputs) do
        local x = limn.tensor(data, dtype):to(dev)
        if ints ~= false or dtype:find "float" then
          local want = f(x)
          for _, h in ipairs {g, loaded} do
            local got = h(x)
            U.close(got, limn.tensor(want), 1e-2, 1, dtype .. " on " .. dev)
            if type(want) ~= "number" then
              assert.are.equal(tostring(want.dtype), tostring(got.dtype))
            end
          end
        end
      end
    end
  end)
  return tostring(g), g
end

local some = {{1, 2, 3}, {0, 0, 0}, {3, 1, 0}}

describe("A number in a scripted function", function()
  it("has the dtype of the tensor in the other branch, whatever a run brings",
     function()
    local text, g = follows(function(x)
      local y = 0
      if x:sum() > 4 then y = x:max() end
      return y
    end, some)
    assert.is_nil(text:find "f32")
    assert.are.equal("float64", tostring(g(limn.zeros(2, "float64")).dtype))
    assert.are.equal("float16", tostring(g(limn.zeros(2, "float16")).dtype))
    follows(function(x)
      local y
      if x:sum() > 5 then y = 3 elseif x:sum() > 3 then y = x[1] * 2
      elseif x:sum() > 0 then y = 4 else y = x[2] end
      return y
    end, some)
  end)

  it("that is no whole one makes a float of ints beside it", function()
    local f = limn.script(function(x)
      local y = 0.5
      if x:sum() > 4 then y = x:max() end
      return y
    end)
    local g = limn.trace(f, limn.ones(2))
    for dtype, want in pairs {int64 = "float32", float64 = "float64",
                              float16 = "float16"} do
      for _, k in ipairs {0, 4} do
        local y = g(limn.tensor({k, k}, dtype))
        assert.are.equal(want, tostring(y.dtype))
        U.equal(y, {k == 0 and 0.5 or 4})
      end
    end
  end)

  it("follows it through choices of numbers, in any order of the branches",
     function()
    follows(function(x)
      local y
      if x:sum() > 5 then y = x[1] elseif x:sum() > 3 then y = 0.5
      elseif x:sum() > 0 then y = 2 else y = 1 end
      return y
    end, some, false)
    follows(function(x)
      local y
      if x:sum() > 5 then y = 0.5 elseif x:sum() > 3 then y = 2
      elseif x:sum() > 0 then y = 1 else y = x[1] end
      return y
    end, some, false)
    follows(function(x)
      local y = x:sum() > 4 and x[1] or x:sum() > 0 and 7 or 9
      return y
    end, some)
  end)

  it("that a loop begins with has the dtype of what the loop makes of it",
     function()
    local text = follows(function(x)
      local sum, product, late = 0, 1, 0
      for i = 1, x:size(1) do
        late = late + sum
        sum = sum + x[i]
        if x[i] > 1 then product = product * x[i] end
      end
      return late + product
    end, some)
    assert.is_nil(text:find "f32")
    follows(function(x)
      local p = 0.5
      for i = 1, #x do p = p + x[i] * 0.5 end
      return p
    end, some, false)
    follows(function(x)
      local n, y = 0, 0
      while y < x:sum() + 1 and n < 9 do
        n = n + 1
        y = y + x[1] + 1
      end
      return y
    end, some)
  end)

  it("is a whole number where nothing else is beside it", function()
    local g = limn.trace(limn.script(function(x)
      local n = 0
      for i = 1, #x do if x[i] > 1 then n = n + 1 end end
      return n
    end), limn.ones(3))
    for _, dtype in ipairs(dtypes) do
      local n = g(limn.tensor({1, 2, 3}, dtype))
      assert.are.equal("int64", tostring(n.dtype))
      assert.are.equal(2, n:item())
    end
  end)

  it("follows what a loop, a function of limn.custom, random numbers or a "
     .. "buffer give, which stay what they are", function()
    local seen = limn.nn.Buffer(limn.zeros())
    local twice = limn.custom(function(v) return v * 2 end,
                              function(g) return g * 2 end)
    local f = limn.script(function(x)
      local a, b, c, d = 0, 0, 0, 1
      if x:sum() > 4 then
        local _, ys = limn.scan(function(s, v) return s + v, v end, x[1] * 0, x)
        a = ys:sum()
        b = twice(x[1])
        c = x[1] * limn.rand()
        seen:assign(seen + 1)
        d = seen
      end
      return a, b, c, d
    end)
    local g = limn.trace(f, limn.ones(2))
    for _, dtype in ipairs {"float64", "float32", "float16"} do
      local low, x = limn.zeros(2, dtype), limn.full({2}, 4):to(dtype)
      for i, y in ipairs {g(low)} do U.equal(y, {i == 4 and 1 or 0}) end
      limn.manual_seed(3)
      local n = seen:item()
      local want = {f(x)}
      seen:assign(limn.tensor(n))
      limn.manual_seed(3)
      local got = {g(x)}
      for i = 1, 4 do
        U.equal(got[i], U.flat(want[i]), dtype .. " " .. i)
        assert.are.equal(tostring(want[i].dtype), tostring(got[i].dtype))
      end
    end
  end)

  it("has a gradient in each dtype", function()
    local f = limn.script(function(x)
      local y = 0
      for i = 1, #x do
        if x[i] > 0 then y = y + x[i] * x[i] end
      end
      return y
    end)
    local g = limn.trace(limn.grad(f), limn.ones(3))
    U.each_device(function(dev)
      for _, dtype in ipairs {"float64", "float32", "float16"} do
        local x = limn.tensor({2, -1, 3}, dtype):to(dev)
        local y = g(x)
        U.equal(y, {4, 0, 6})
        assert.are.equal(dtype, tostring(y.dtype))
      end
    end)
  end)

  it("costs no step: what only tells a dtype is not computed", function()
    local g = limn.trace(limn.script(function(x)
      local y = 0
      if x:sum() > 4 then y = x:cumsum(1):max() end
      return y
    end), limn.ones(3))
    local _, sums = tostring(g):gsub("cumsum", "")
    local _, steps = tostring(g:explain(limn.ones(3))):gsub("cum cumsum", "")
    assert.are.same({2, 1}, {sums, steps})
  end)
end)
