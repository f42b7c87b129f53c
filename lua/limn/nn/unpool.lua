-- What max_pool took, put back where it was found: functions and layers.
local core = require "limn.core"
local read_options = require "limn.options"
local check = require "limn.nn.check"
local Module = require "limn.nn.module"
local part = require "limn.nn.sizes"

local limn = require "limn.lazy"
local per_dim = part.per_dim

local M = {}

local allowed = {"stride", "padding", "output_size"}

-- The size of dim i: as asked for, or the least that gives x when pooled.
local function sizes(x, kernel, o, n, who)
  local k = per_dim(kernel, n, nil, "kernel", who)
  local s = o.stride == nil and k or per_dim(o.stride, n, nil, "stride", who)
  local p = per_dim(o.padding, n, 0, "padding", who)
  if o.output_size ~= nil then
    return per_dim(o.output_size, n, nil, "output_size", who)
  end
  local out = {}
  for i = 1, n do
    out[i] = (x:size(i - n - 1) - 1) * s[i] - 2 * p[i] + k[i]
  end
  return out
end

local function same_shape(x, at, who)
  if x:dim() ~= at:dim() then
    core.fail(("%s: the values have %d dims and their places %d"):format(who,
      x:dim(), at:dim()))
  end
  if not core.whole(at) then
    core.fail(who .. ": places are whole numbers, as max_pool gives them with "
              .. "{return_indices = true}")
  end
end

--- nn.max_unpool1d(x, indices, kernel [, {stride = kernel, padding = 0,
-- output_size}]): zeros, and the values that max_pool1d gave where it found
-- them (its second result with return_indices). Several windows may give one
-- size: output_size tells which.
--- nn.max_unpool2d(x, indices, kernel [, options]): the same of two dims.
--- nn.max_unpool3d(x, indices, kernel [, options]): the same of three.
--- nn.MaxUnpool1d(kernel [, {stride, padding}]): layer(x, indices [,
-- output_size]) is max_unpool1d.
--- nn.MaxUnpool2d(kernel [, options]): max_unpool2d.
--- nn.MaxUnpool3d(kernel [, options]): max_unpool3d.
for n = 1, 3 do
  local who, name = "max_unpool" .. n .. "d", "MaxUnpool" .. n .. "d"
  M[who] = function(x, at, kernel, options)
    local o = read_options(options, allowed, who)
    check.fits(who, x, n + 1, n + 2, nil, nil, "rows, channels and "
      .. (n == 1 and "a dim" or n .. " dims"))
    check.tensor(at, who, "list of places")
    same_shape(x, at, who)
    local out, shape, count = sizes(x, kernel, o, n, who), {}, 1
    local lead = x:dim() - n
    for d = 1, lead do shape[d] = x:size(d) end
    for i = 1, n do count = count * out[i] end
    shape[lead + 1] = count
    local y = x:new_zeros(shape)
    y = y:scatter(-1, limn.flatten(at, lead + 1, -1),
                  limn.flatten(x, lead + 1, -1))
    for i = 1, n do shape[lead + i] = out[i] end
    y = y:reshape(shape)
    return y
  end

  local Class = Module:extend(name)
  function Class:init(kernel, options)
    local o = read_options(options, {"stride", "padding"}, name)
    per_dim(kernel, n, nil, "kernel", name)
    for _, key in ipairs {"stride", "padding"} do
      if o[key] ~= nil then per_dim(o[key], n, nil, key, name) end
    end
    self.kernel, self.options = kernel, o
  end
  function Class:forward(x, at, output_size)
    local o = self.options
    local y = M[who](x, at, self.kernel, {stride = o.stride,
      padding = o.padding, output_size = output_size})
    return y
  end
  function Class:describe() return part.list_text(self.kernel) end
  M[name] = Class
end

return M
