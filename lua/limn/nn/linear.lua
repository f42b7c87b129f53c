-- Linear: y = x * transpose(weight) + bias, over the last dim.
local core = require "limn.core"
local D = require "limn.dims"
local read_options = require "limn.options"
local check = require "limn.nn.check"
local Module = require "limn.nn.module"
local init = require "limn.nn.initializers"

local limn = require "limn.lazy"

local M = {}

--- nn.linear(x, weight [, bias]): x times the transpose of weight, plus bias. x
-- is [..., in], weight [out, in], bias [out].
function M.linear(x, weight, bias)
  local y = limn.matmul(x, weight, false, true)
  if bias ~= nil then y = y + bias end
  return y
end

local Linear = Module:extend "Linear"

local function whole(n, what)
  if type(n) ~= "number" or n < 1 or n % 1 ~= 0 then
    core.fail("Linear: " .. what .. " is a whole number above 0, got "
              .. tostring(n), "nn.Linear(64, 10) maps 64 values to 10")
  end
end

--- nn.Linear(n_in, n_out [, {bias = true, dtype = "float32"}]): linear with
-- trained weight [n_out, n_in] and bias [n_out], uniform within 1 / sqrt(n_in)
-- at first.
function Linear:init(n_in, n_out, options)
  whole(n_in, "the number of inputs")
  whole(n_out, "the number of outputs")
  options = read_options(options, {"bias", "dtype"}, "Linear")
  local bound = 1 / math.sqrt(n_in)
  self.weight = core.cell("param", init.values("uniform", {n_out, n_in},
    -bound, bound, options.dtype))
  if options.bias ~= false then
    self.bias = core.cell("param", init.values("uniform", {n_out}, -bound,
      bound, options.dtype))
  end
end

function Linear:forward(x)
  local n = x:dim() > 0 and D.known(x:size(-1)) or nil -- records no guard
  local want = D.known(self.weight:size(2))
  if x:dim() == 0 or n and want and n ~= want then
    check.misfit(self, x, ("[..., %s]"):format(want or "any"),
      n and ("nn.Linear(%d, %s) takes %d values"):format(n,
        D.known(self.weight:size(1)) or "n", n))
  end
  local y = M.linear(x, self.weight, self.bias)
  return y
end

function Linear:describe()
  local s = self.weight.shape
  return s[2] .. ", " .. s[1] .. (self.bias and "" or ", {bias = false}")
end

M.Linear = Linear
return M
