-- Matrix products on the CPU with something added to them.
local U = require "support.util"

-- In a process of its own: products [m, k] x [k, n] with either factor
-- transposed, and what is added read from a part of a wider tensor.
local source = [[
  local limn = require "limn"
  local shapes = {
    {2, 33, 9}, {3, 300, 70}, {4, 600, 1}, {5, 0, 7}, {16, 40, 48},
    {31, 257, 65}, {33, 520, 130}, {70, 64, 1}, {300, 70, 37}, {450, 300, 40},
    {32, 256, 1024}}
  limn.manual_seed(3)
  local function compare(what, got, want)
    local a, b = got:reshape(-1):totable(), want:reshape(-1):totable()
    for i = 1, #b do
      if a[i] ~= b[i] then
        error(("%s: element %d is %.9g, not %.9g"):format(what, i, a[i], b[i]))
      end
    end
  end
  for _, s in ipairs(shapes) do
    local m, k, n = unpack(s)
    for turned = 0, 3 do
      local ta, tb = turned % 2 == 1, turned >= 2
      local a = ta and limn.randn(k, m) or limn.randn(m, k)
      local b = tb and limn.randn(n, k) or limn.randn(k, n)
      local d = limn.randn(m, 2 * n)[{{}, {1, n}}]
      local wide, row = limn.randn(3, m, n), limn.randn(n)
      local function product(x, y) return limn.matmul(x, y, ta, tb) end
      local function biased(x, y, r) return product(x, y) + r end
      local function all(x, y, r, z)
        return (z[2] + biased(x, y, r)):relu() * z[1]
      end
      local what = table.concat(s, " x ") .. " " .. turned
      compare(what, limn.trace(function(x, y, z)
        return z + product(x, y)
      end, a, b, d)(a, b, d), product(a, b) + d) -- each a graph of its own
      local g = limn.trace(biased, a, b, row)
      compare(what .. ", all",
              limn.trace(all, a, b, row, wide)(a, b, row, wide),
              (wide[2] + g(a, b, row)):relu() * wide[1])
    end
  end
  print "same"]]

describe("A product with something added", function()
  it("has the bits of the two ops one after the other", function()
    for _, isa in ipairs {"base", "avx2", "avx512"} do
      for threads = 1, 2 do
        local text, ok = U.lua(source, ("LIMN_DEVICES=cpu LIMN_ISA=%s " ..
                                        "LIMN_THREADS=%d"):format(isa, threads))
        assert.is_true(ok, text)
        assert.are.equal("same\n", text)
      end
    end
  end)
end)
