-- Embedding: rows of a table by their positions, which count from 1. Bilinear:
-- a product of two inputs and a weight.
local core = require "limn.core"
local read_options = require "limn.options"
local check = require "limn.nn.check"
local init = require "limn.nn.initializers"
local Module = require "limn.nn.module"

local limn = require "limn.lazy"

local M = {}

--- nn.embedding(index, weight [, {padding_idx}]): the rows of weight [count,
-- width] at the positions in index (ints, from 1), [..., width]; the row
-- padding_idx gets no gradient. A position out of range is an error.
function M.embedding(index, weight, options)
  local o = read_options(options, {"padding_idx"}, "embedding")
  check.tensor(index, "embedding", "index")
  check.tensor(weight, "embedding", "weight")
  if weight:dim() ~= 2 then
    core.fail(("embedding: the weight is %s, where [count, width] is needed")
      :format(check.shape(weight)))
  end
  local y = limn.index_select(weight, 1, index)
  if o.padding_idx ~= nil then
    local pad = index:eq(o.padding_idx):unsqueeze(-1)
    y = limn.where(pad, y:detach(), y)
  end
  return y
end

--- nn.Embedding(count, width [, {padding_idx, dtype}]): embedding with a
-- trained table. Parameters: weight [count, width], normal at first.
local Embedding = Module:extend "Embedding"
function Embedding:init(count, width, options)
  local o = read_options(options, {"padding_idx", "dtype"}, "Embedding")
  check.whole(count, "Embedding", "the number of rows",
              "nn.Embedding(1000, 64) holds 1000 rows of 64 values")
  check.whole(width, "Embedding", "the width of a row")
  local pad = o.padding_idx
  local values = init.values("normal", {count, width}, 0, 1, o.dtype)
  if pad ~= nil then
    check.whole(pad, "Embedding", "padding_idx")
    if pad > count then
      core.fail(("Embedding: padding_idx is %d, but there are %d rows"):format(
        pad, count))
    end
    values = limn.where(limn.arange(1, count):ne(pad):unsqueeze(2), values, 0)
    self.padding_idx = pad
  end
  self.weight = core.cell("param", values)
end
function Embedding:forward(index)
  check.tensor(index, self, "index")
  local y = M.embedding(index, self.weight, {padding_idx = self.padding_idx})
  return y
end
function Embedding:describe()
  local s = self.weight.shape
  return s[1] .. ", " .. s[2]
end
M.Embedding = Embedding

--- nn.bilinear(x, y, weight [, bias]): element o of the result is x' weight[o]
-- y; x is [..., n1], y [..., n2], weight [out, n1, n2], bias [out].
function M.bilinear(x, y, weight, bias)
  check.tensor(x, "bilinear", "first input")
  check.tensor(y, "bilinear", "second input")
  check.tensor(weight, "bilinear", "weight")
  if weight:dim() ~= 3 then
    core.fail(("bilinear: the weight is %s, where [out, n1, n2] is needed")
      :format(check.shape(weight)))
  end
  local out, n1, n2 = weight:size(1), weight:size(2), weight:size(3)
  local w = check.near(weight, x):permute {2, 1, 3}:reshape {n1, -1}
  local z = limn.matmul(x, w)
  local size = {}
  for i = 1, x:dim() - 1 do size[i] = x:size(i) end
  size[#size + 1], size[#size + 2] = out, n2
  z = limn.matmul(z:reshape(size), y:unsqueeze(-1)):squeeze(-1)
  if bias ~= nil then z = z + bias end
  return z
end

--- nn.Bilinear(n_in1, n_in2, n_out [, {bias = true, dtype}]): bilinear with
-- trained weight and bias.
local Bilinear = Module:extend "Bilinear"
function Bilinear:init(n1, n2, out, options)
  local o = read_options(options, {"bias", "dtype"}, "Bilinear")
  check.whole(n1, "Bilinear", "the size of the first input")
  check.whole(n2, "Bilinear", "the size of the second input")
  check.whole(out, "Bilinear", "the size of the output")
  local bound = 1 / math.sqrt(n1)
  self.weight = core.cell("param", init.values("uniform", {out, n1, n2},
    -bound, bound, o.dtype))
  if o.bias ~= false then
    self.bias = core.cell("param", init.values("uniform", {out}, -bound,
      bound, o.dtype))
  end
end
function Bilinear:forward(x, y)
  local s = self.weight.shape
  check.fits(self, x, 1, 8, -1, s[2], "[..., " .. s[2] .. "]")
  check.fits(self, y, 1, 8, -1, s[3], "[..., " .. s[3] .. "] as the second")
  local z = M.bilinear(x, y, self.weight, self.bias)
  return z
end
function Bilinear:describe()
  local s = self.weight.shape
  return s[2] .. ", " .. s[3] .. ", " .. s[1]
end
M.Bilinear = Bilinear

return M
