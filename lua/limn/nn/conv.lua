-- Convolutions over one to three dims: functions of (x, weight, bias, options)
-- and layers. x is [rows, channels, size...], or without rows.
local core = require "limn.core"
local check = require "limn.nn.check"
local dims = require "limn.dims"
local read_options = require "limn.options"
local Module = require "limn.nn.module"
local init = require "limn.nn.initializers"

local limn = require "limn.lazy"
local part = require "limn.nn.sizes"
local per_dim, tensor, list_text = part.per_dim, part.tensor, part.list_text
local with_rows = part.with_rows

local M = {}

local function add_bias(y, bias, n)
  if bias == nil then return y end
  tensor(bias, "the bias", "conv")
  local shape = {-1}
  for i = 1, n do shape[i + 1] = 1 end
  local channels = y:dim() - n
  if bias:dim() ~= 1
    or dims.known(bias:size(1)) ~= dims.known(y:size(channels)) then
    core.fail("conv: the bias has one value per channel of the result",
              "the weight's size decides how many channels there are")
  end
  y = y + check.near(bias, y):reshape(shape)
  return y
end

-- padding = "same" keeps the size: more after than before when odd.
local function same(x, weight, stride, dilation, n, who, mode)
  local pads = {mode = mode ~= "zeros" and mode or nil}
  for i = 1, n do
    if stride[i] ~= 1 then
      core.fail(who .. ": padding = 'same' needs a stride of 1")
    end
    local total = (weight:size(i + 2) - 1) * dilation[i]
    local before = limn.floor(total / 2)
    pads[2 * (n - i) + 1], pads[2 * (n - i) + 2] = before, total - before
  end
  local y = limn.pad(x, pads)
  return y
end

-- Margins made of x itself; the convolution then adds none.
local function around(x, padding, mode, n)
  local pads = {}
  for i = 1, n do
    pads[2 * (n - i) + 1], pads[2 * (n - i) + 2] = padding[i], padding[i]
  end
  pads.mode = mode
  local y = limn.pad(x, pads)
  return y
end

local function convolve(x, weight, bias, o, n, who)
  local stride = per_dim(o.stride, n, 1, "stride", who)
  local dilation = per_dim(o.dilation, n, 1, "dilation", who)
  local padding, mode = o.padding, o.padding_mode
  if padding == "same" then
    x, padding = same(x, weight, stride, dilation, n, who, mode), 0
  elseif padding == "valid" then
    padding = 0
  end
  padding = per_dim(padding, n, 0, "padding", who)
  if mode and mode ~= "zeros" and o.padding ~= "same" then
    x, padding = around(x, padding, mode, n), per_dim(0, n)
  end
  local y = limn.conv(x, weight, stride, padding, dilation, o.groups or 1)
  y = add_bias(y, bias, n)
  return y
end

local function convolve_back(x, weight, bias, o, n, who)
  local y = limn.conv_transpose(x, weight,
    per_dim(o.stride, n, 1, "stride", who),
    per_dim(o.padding, n, 0, "padding", who),
    per_dim(o.output_padding, n, 0, "output_padding", who),
    per_dim(o.dilation, n, 1, "dilation", who), o.groups or 1)
  y = add_bias(y, bias, n)
  return y
end

local allowed = {"stride", "padding", "padding_mode", "dilation", "groups"}
local allowed_back = {"stride", "padding", "output_padding", "dilation",
                      "groups"}

--- nn.conv1d(x, weight [, bias [, {stride = 1, padding = 0, padding_mode =
-- "zeros", dilation = 1, groups = 1}]]): x is [rows, channels, size] or without
-- rows, weight [out, channels / groups, kernel], bias [out]. padding may be
-- "same" or "valid"; padding_mode reflect, replicate or circular.
--- nn.conv2d(x, weight [, bias [, {stride = 1, padding = 0, padding_mode =
-- "zeros", dilation = 1, groups = 1}]]): the same for [rows, channels, height,
-- width]; options are a number for both dims or a list of two.
--- nn.conv3d(x, weight [, bias [, options]]): the same for [rows, channels,
-- depth, height, width].
--- nn.conv_transpose1d(x, weight [, bias [, {stride = 1, padding = 0,
-- output_padding = 0, dilation = 1, groups = 1}]]): the transpose of conv1d as
-- a linear map; weight is [channels, out / groups, kernel].
--- nn.conv_transpose2d(x, weight [, bias [, {stride = 1, padding = 0,
-- output_padding = 0, dilation = 1, groups = 1}]]): the same of conv2d.
--- nn.conv_transpose3d(x, weight [, bias [, options]]): the same of conv3d.
for n = 1, 3 do
  local who, back = "conv" .. n .. "d", "conv_transpose" .. n .. "d"
  M[who] = function(x, weight, bias, options)
    options = read_options(options, allowed, who)
    tensor(weight, "the weight", who)
    local y = with_rows(x, n + 2, who, convolve, weight, bias, options, n,
                        who)
    return y
  end
  M[back] = function(x, weight, bias, options)
    options = read_options(options, allowed_back, back)
    tensor(weight, "the weight", back)
    local y = with_rows(x, n + 2, back, convolve_back, weight, bias, options,
                        n, back)
    return y
  end
end

-- -- Layers --

local function whole(v, what, who)
  if type(v) ~= "number" or v < 1 or v % 1 ~= 0 then
    core.fail(("%s: %s is a whole number above 0, got %s"):format(who, what,
      tostring(v)), "nn." .. who .. "(3, 16, 3, {padding = 1})")
  end
end

-- Uniform within 1 / sqrt(values that flow into one unit), as PyTorch.
local function parameters(self, shape, n_out, options)
  local fan = 1
  for i = 2, #shape do fan = fan * shape[i] end
  local bound = 1 / math.sqrt(fan)
  self.weight = core.cell("param", init.values("uniform", shape, -bound, bound,
    options.dtype))
  if options.bias ~= false then
    self.bias = core.cell("param", init.values("uniform", {n_out}, -bound,
      bound, options.dtype))
  end
end

local modes = {zeros = true, reflect = true, replicate = true, circular = true}

-- What would else be found when the layer is called.
local function check_options(o, n, who)
  for _, key in ipairs {"stride", "padding", "output_padding", "dilation"} do
    local v = o[key]
    if key == "padding" and type(v) == "string" then
      if v ~= "same" and v ~= "valid" then
        core.fail(("%s: padding is numbers, 'same' or 'valid', not '%s'")
          :format(who, v))
      end
    elseif v ~= nil then
      per_dim(v, n, nil, key, who)
    end
  end
  if o.padding_mode ~= nil and not modes[o.padding_mode] then
    core.fail(("%s: padding_mode is 'zeros', 'reflect', 'replicate' or "
      .. "'circular', not '%s'"):format(who, tostring(o.padding_mode)))
  end
end

--- nn.Conv1d(n_in, n_out, kernel [, {stride = 1, padding = 0, padding_mode =
-- "zeros", dilation = 1, groups = 1, bias = true, dtype = "float32"}]): conv1d
-- with trained weight [n_out, n_in / groups, kernel] and bias [n_out].
--- nn.Conv2d(n_in, n_out, kernel [, {stride = 1, padding = 0, padding_mode =
-- "zeros", dilation = 1, groups = 1, bias = true, dtype = "float32"}]): conv2d
-- with trained weight [n_out, n_in / groups, kernel, kernel] and bias [n_out].
--- nn.ConvTranspose1d(n_in, n_out, kernel [, {stride = 1, padding = 0,
-- output_padding = 0, dilation = 1, groups = 1, bias = true, dtype}]):
-- conv_transpose1d with trained weight [n_in, n_out / groups, kernel].
--- nn.ConvTranspose2d(n_in, n_out, kernel [, {stride = 1, padding = 0,
-- output_padding = 0, dilation = 1, groups = 1, bias = true, dtype}]):
-- conv_transpose2d with trained weight [n_in, n_out / groups, kernel, kernel].
--- nn.Conv3d(n_in, n_out, kernel [, options]): conv3d likewise.
--- nn.ConvTranspose3d(n_in, n_out, kernel [, options]): conv_transpose3d.
local function layer(name, n, transposed)
  local Class = Module:extend(name)
  local f = M[(transposed and "conv_transpose" or "conv") .. n .. "d"]
  local keys = transposed and allowed_back or allowed

  function Class:init(n_in, n_out, kernel, options)
    whole(n_in, "the number of input channels", name)
    whole(n_out, "the number of output channels", name)
    local all = {"bias", "dtype"}
    for _, k in ipairs(keys) do all[#all + 1] = k end
    options = read_options(options, all, name)
    kernel = per_dim(kernel, n, nil, "kernel", name)
    local groups = options.groups or 1
    whole(groups, "groups", name)
    for i = 1, n do whole(kernel[i], "kernel", name) end
    check_options(options, n, name)
    if n_in % groups ~= 0 or n_out % groups ~= 0 then
      core.fail(("%s: %d and %d channels cannot be shared out among %d groups")
        :format(name, n_in, n_out, groups))
    end
    local shape = {n_out, n_in / groups}
    if transposed then shape = {n_in, n_out / groups} end
    for i = 1, n do shape[i + 2] = kernel[i] end
    self.options = {}
    for _, k in ipairs(keys) do self.options[k] = options[k] end
    parameters(self, shape, n_out, options)
  end

  function Class:forward(x)
    local y = f(x, self.weight, self.bias, self.options)
    return y
  end

  function Class:describe()
    local s, o = self.weight.shape, self.options
    local a, b = s[2] * (o.groups or 1), s[1]
    if transposed then a, b = b, a end
    local text, more = ("%d, %d, "):format(a, b), {}
    text = text .. (n == 1 and s[3] or list_text {unpack(s, 3)})
    for _, k in ipairs(keys) do
      if o[k] then more[#more + 1] = k .. " = " .. list_text(o[k]) end
    end
    if not self.bias then more[#more + 1] = "bias = false" end
    if more[1] then text = text .. ", {" .. table.concat(more, ", ") .. "}" end
    return text
  end

  M[name] = Class
end

for n = 1, 3 do
  layer("Conv" .. n .. "d", n, false)
  layer("ConvTranspose" .. n .. "d", n, true)
end

return M
