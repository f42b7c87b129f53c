-- Normalisation: over the last dims, over groups of channels, over a batch.
-- Channels are dim 2.
local core = require "limn.core"
local read_options = require "limn.options"
local check = require "limn.nn.check"
local D = require "limn.dims"
local wide = require "limn.wide"
local Module = require "limn.nn.module"

local limn = require "limn.lazy"

local M = {}

-- A tensor of one value per channel, in the rank of x.
local function channels(v, x)
  v = check.near(v, x)
  for _ = 3, x:dim() do v = v:unsqueeze(-1) end
  return v
end

-- A list of sizes; n stands for {n}.
local function sizes(shape, who)
  if type(shape) == "number" then shape = {shape} end
  if type(shape) ~= "table" or #shape == 0 then
    core.fail(who .. ": the shape is a number or a list, got "
              .. tostring(shape), "nn." .. who .. "(64)")
  end
  for _, n in ipairs(shape) do check.whole(n, who, "a size") end
  return shape
end

-- Do the last dims of x have these sizes? Else x * weight would broadcast.
local function last_dims(self, x, shape)
  check.tensor(x, self)
  local rank = x:dim()
  local fits = rank >= #shape
  for i = 1, #shape do
    fits = fits and x:size(rank - #shape + i) == shape[i]
  end
  if not fits then
    check.misfit(self, x, "[..., " .. table.concat(shape, ", ") .. "]")
  end
end

local function ones(shape, o)
  return core.cell("param", limn.ones(shape, {dtype = o.dtype}))
end
local function zeros(shape, o)
  return core.cell("param", limn.zeros(shape, {dtype = o.dtype}))
end

-- -- Over the last dims ----------------------------------------------------

-- How many dims from the end: those of the shape or the weight, or one.
local function span(o, who)
  local n = 1
  if o.shape ~= nil then
    n = #sizes(o.shape, who)
  elseif o.weight ~= nil then
    n = o.weight:dim()
  elseif o.bias ~= nil then
    n = o.bias:dim()
  end
  return -n
end

--- nn.layer_norm(x [, {shape, weight, bias, eps = 1e-5}]): x to mean 0 and
-- variance 1 over its last dims: those of `shape` or of the weight, else one
-- (Ba et al. 2016); then times weight, plus bias.
function M.layer_norm(x, options)
  local o = read_options(options, {"shape", "weight", "bias", "eps"},
                         "layer_norm")
  check.tensor(x, "layer_norm")
  local y = limn.layer_norm(x, o.weight, o.bias, span(o, "layer_norm"),
                            o.eps or 1e-5)
  return y
end

--- nn.rms_norm(x [, {shape, weight, eps = 2^-23}]): x over the root of its mean
-- square over the last dims (Zhang and Sennrich 2019).
function M.rms_norm(x, options)
  local o = read_options(options, {"shape", "weight", "eps"}, "rms_norm")
  check.tensor(x, "rms_norm")
  local y = limn.rms_norm(x, o.weight, nil, span(o, "rms_norm"),
                          o.eps or 2 ^ -23)
  return y
end

--- nn.LayerNorm(shape [, {eps = 1e-5, elementwise_affine = true, bias = true,
-- dtype}]): layer_norm over the last dims, of sizes `shape` (a number or a
-- list). Parameters: weight and bias of that shape.
local LayerNorm = Module:extend "LayerNorm"
function LayerNorm:init(shape, options)
  local o = read_options(options, {"eps", "elementwise_affine", "bias",
                                   "dtype"}, "LayerNorm")
  self.shape = sizes(shape, "LayerNorm")
  self.eps = o.eps or 1e-5
  if o.elementwise_affine ~= false then
    self.weight = ones(self.shape, o)
    if o.bias ~= false then self.bias = zeros(self.shape, o) end
  end
end
function LayerNorm:forward(x)
  last_dims(self, x, self.shape)
  local y = limn.layer_norm(x, self.weight, self.bias, -#self.shape, self.eps)
  return y
end
function LayerNorm:describe() return table.concat(self.shape, ", ") end
M.LayerNorm = LayerNorm

--- nn.RMSNorm(shape [, {eps, elementwise_affine = true, dtype}]): rms_norm over
-- the last dims. Parameters: weight.
local RMSNorm = Module:extend "RMSNorm"
function RMSNorm:init(shape, options)
  local o = read_options(options, {"eps", "elementwise_affine", "dtype"},
                         "RMSNorm")
  self.shape = sizes(shape, "RMSNorm")
  self.eps = o.eps or (o.dtype == "float64" and 2 ^ -52 or 2 ^ -23)
  if o.elementwise_affine ~= false then self.weight = ones(self.shape, o) end
end
function RMSNorm:forward(x)
  last_dims(self, x, self.shape)
  local y = limn.rms_norm(x, self.weight, nil, -#self.shape, self.eps)
  return y
end
function RMSNorm:describe() return table.concat(self.shape, ", ") end
M.RMSNorm = RMSNorm

-- -- Over groups of channels -----------------------------------------------

local function by_group(x, groups, eps)
  local y = wide.widen(x):flatten(2)
  y = y:reshape {x:size(1), groups, limn.floor(y:size(2) / groups)}
  y = limn.layer_norm(y, nil, nil, 3, eps)
  y = y:reshape_like(x)
  return y
end

-- y * weight + bias, either of which may be absent, by channel: the result for
-- an input x.
local function by_channel(y, weight, bias, x)
  if weight ~= nil then y = y * channels(weight, y) end
  if bias ~= nil then y = y + channels(bias, y) end
  y = wide.unwiden(y, x, weight, bias)
  return y
end

--- nn.group_norm(x, {groups, weight, bias, eps = 1e-5}): x of [rows, channels,
-- ...] to mean 0 and variance 1 over each group of channels of a row (Wu and He
-- 2018); weight and bias are [channels].
function M.group_norm(x, options)
  local o = read_options(options, {"groups", "weight", "bias", "eps"},
                         "group_norm")
  check.whole(o.groups, "group_norm", "groups",
              "nn.group_norm(x, {groups = 2})")
  check.fits("group_norm", x, 2, 8, nil, nil, "[rows, channels, ...]")
  if x:size(2) % o.groups ~= 0 then
    check.misfit("group_norm", x, "a multiple of " .. o.groups
                 .. " channels in dim 2")
  end
  local y = by_group(x, o.groups, o.eps or 1e-5)
  y = by_channel(y, o.weight, o.bias, x)
  return y
end

--- nn.GroupNorm(groups, channels [, {eps = 1e-5, affine = true, dtype}]):
-- group_norm. Parameters: weight and bias [channels].
local GroupNorm = Module:extend "GroupNorm"
function GroupNorm:init(groups, n, options)
  local o = read_options(options, {"eps", "affine", "dtype"}, "GroupNorm")
  check.whole(groups, "GroupNorm", "the number of groups")
  check.whole(n, "GroupNorm", "the number of channels")
  if n % groups ~= 0 then
    core.fail("GroupNorm: " .. n .. " channels are not a multiple of "
              .. groups .. " groups")
  end
  self.groups, self.channels, self.eps = groups, n, o.eps or 1e-5
  if o.affine ~= false then
    self.weight, self.bias = ones({n}, o), zeros({n}, o)
  end
end
function GroupNorm:forward(x)
  check.fits(self, x, 2, 8, 2, self.channels,
             "[rows, " .. self.channels .. ", ...]")
  local y = by_group(x, self.groups, self.eps)
  y = by_channel(y, self.weight, self.bias, x)
  return y
end
function GroupNorm:describe() return self.groups .. ", " .. self.channels end
M.GroupNorm = GroupNorm

local function each_channel(x, eps)
  local y = wide.widen(x):flatten(3, -1)
  y = limn.layer_norm(y, nil, nil, 3, eps)
  y = y:reshape_like(x)
  return y
end

--- nn.instance_norm(x [, {weight, bias, eps = 1e-5}]): group_norm with a group
-- for each channel.
function M.instance_norm(x, options)
  local o = read_options(options, {"weight", "bias", "eps"}, "instance_norm")
  check.fits("instance_norm", x, 3, 8, nil, nil,
             "[rows, channels, positions...]")
  local y = each_channel(x, o.eps or 1e-5)
  y = by_channel(y, o.weight, o.bias, x)
  return y
end

-- What layers of `nd` dims of positions take.
local function layout(n, nd)
  return "[rows, " .. n .. (", position"):rep(nd) .. "]"
end

--- nn.InstanceNorm1d(channels [, {eps = 1e-5, affine = false, dtype}]):
-- instance_norm of [rows, channels, size]. It keeps no running statistics.
--- nn.InstanceNorm2d(channels [, {eps = 1e-5, affine = false, dtype}]):
-- instance_norm of [rows, channels, height, width].
--- nn.InstanceNorm3d(channels [, options]): of [rows, channels, depth, height,
-- width].
local function instance(nd)
  local name = "InstanceNorm" .. nd .. "d"
  local Class = Module:extend(name)
  function Class:init(n, options)
    local o = read_options(options, {"eps", "affine", "dtype"}, name)
    self.channels = check.whole(n, name, "the number of channels")
    self.eps = o.eps or 1e-5
    if o.affine then
      self.weight, self.bias = ones({n}, o), zeros({n}, o)
    end
  end
  function Class:forward(x)
    check.fits(self, x, nd + 2, nd + 2, 2, self.channels,
               layout(self.channels, nd))
    local y = each_channel(x, self.eps)
    y = by_channel(y, self.weight, self.bias, x)
    return y
  end
  function Class:describe() return tostring(self.channels) end
  M[name] = Class
end
instance(1)
instance(2)
instance(3)

-- -- Over a batch ----------------------------------------------------------

-- How many elements a channel has.
local function per_channel(x)
  local n = x:size(1)
  for d = 3, x:dim() do n = n * x:size(d) end
  return n
end

-- x, if it has more than n = 1 value per channel, or does not train: `on` is a
-- boolean or a plan value, as n may be.
local function trains(self, x, n, on)
  local ok
  if type(n) == "number" and type(on) == "boolean" then
    ok = not on or n ~= 1
  else
    ok = core.ops.logical_or(core.ops.logical_not(on), core.ops.ne(n, 1))
  end
  local text = (type(self) == "string" and self or check.who(self))
    .. ": training needs more than 1 value per channel (:eval() needs none)"
  if type(ok) == "boolean" then
    text = text .. "; the input is " .. check.shape(x)
  end
  local y = D.expect(x, ok, text)
  return y
end

-- v, or what stands for the NaN that nothing has as its mean or variance.
local function some(v, n, other)
  if type(n) ~= "number" then
    v = limn.where(core.ops.gt(n, 0), v, other)
  elseif n == 0 then
    v = v:full_like(other)
  end
  return v
end

-- Mean and biased variance of n values per channel, in the rank of x; of
-- halves in float32.
local function statistics(x, n)
  local two = core.ops.batch_norm_stats(x)
  local mean, var = two[{{1, 1}}], two[{{2, 2}}]
  return some(mean, n, 0), some(var, n, 1)
end

-- own: mean and var are x's, and its gradient goes through them.
local function normalise(x, mean, var, own, o)
  local y = limn.batch_norm(wide.widen(x), wide.widen(mean), wide.widen(var),
                            o.weight, o.bias, own, o.eps)
  y = wide.unwiden(y, x, o.weight, o.bias)
  return y
end

-- What a buffer becomes: a share of the new value, the rest stays.
local function blend(old, new, share)
  new = new:detach():reshape_like(old):to(old.dtype)
  local y = old * (1 - share) + new * share
  return y
end

-- With n elements per channel; one alone counts as no deviation.
local function unbiased(var, n)
  local less = type(n) == "number" and math.max(n - 1, 1) or limn.max(n - 1, 1)
  local y = var * (n / less)
  return y
end

-- put(cell, f, v, share) assigns f(cell, v, share), if the layer trains (`on`)
-- on n > 0 values per channel: an empty batch says nothing. The write of a
-- value just read is none, so other runs leave the cells alone.
local function writer(n, on)
  if type(n) == "number" and type(on) == "boolean" then
    on = on and n > 0
  else
    on = core.ops.logical_and(on, core.ops.gt(n, 0))
  end
  return function(cell, f, v, share)
    local known = type(on) == "boolean"
    if known and not on then return end
    local new = f(v and check.near(cell, v) or cell, v, share)
    if not known then new = limn.where(on, new, cell) end
    cell:assign(new)
  end
end

--- nn.batch_norm(x [, {weight, bias, running_mean, running_var, training =
-- false, momentum = 0.1, eps = 1e-5}]): x of [rows, channels, ...] to mean 0
-- and variance 1 per channel (Ioffe and Szegedy 2015). In training the batch's
-- own statistics count, and running ones that are buffers take them up.
function M.batch_norm(x, options)
  local o = read_options(options, {"weight", "bias", "running_mean",
    "running_var", "training", "momentum", "eps"}, "batch_norm")
  check.fits("batch_norm", x, 2, 8, nil, nil, "[rows, channels, ...]")
  local own = {weight = o.weight, bias = o.bias, eps = o.eps or 1e-5}
  local running = o.running_mean ~= nil and o.running_var ~= nil
  if not o.training then
    if not running then
      core.fail("batch_norm: running_mean and running_var are missing",
                "{training = true} takes the batch's own")
    end
    local y = normalise(x, channels(o.running_mean, x):unsqueeze(1),
                        channels(o.running_var, x):unsqueeze(1), false, own)
    return y
  end
  local n = per_channel(x)
  x = trains("batch_norm", x, n, true)
  local mean, var = statistics(x, n)
  if running and core.type(o.running_mean) == "cell" then
    local put, share = writer(n, true), o.momentum or 0.1
    put(o.running_mean, blend, mean, share)
    put(o.running_var, blend, unbiased(var, n), share)
  end
  local y = normalise(x, mean, var, true, own)
  return y
end

local function take_up(self, mean, var, n, on)
  local put = writer(n, on)
  local count = self.num_batches_tracked + 1
  local share = self.momentum
  -- Without a momentum all batches count the same.
  if not share then share = 1 / count:to(self.running_mean.dtype) end
  put(self.running_mean, blend, mean, share)
  put(self.running_var, blend, unbiased(var, n), share)
  put(self.num_batches_tracked, function() return count end)
end

--- nn.BatchNorm1d(channels [, {eps = 1e-5, momentum = 0.1 (false: the plain
-- average), affine = true, track_running_stats = true, dtype}]): batch_norm of
-- [rows, channels] or [rows, channels, size], by the running statistics in eval
-- mode. Parameters: weight and bias; buffers: running_mean, running_var,
-- num_batches_tracked.
--- nn.BatchNorm2d(channels [, {eps, momentum, affine, track_running_stats,
-- dtype}]): the same of [rows, channels, height, width].
--- nn.BatchNorm3d(channels [, options]): of [rows, channels, depth, height,
-- width].
local function batch(nd, low)
  local name = "BatchNorm" .. nd .. "d"
  local Class = Module:extend(name)

  function Class:init(n, options)
    local o = read_options(options, {"eps", "momentum", "affine",
      "track_running_stats", "dtype"}, name)
    self.channels = check.whole(n, name, "the number of channels")
    self.eps = o.eps or 1e-5
    self.momentum = o.momentum == nil and 0.1 or o.momentum
    if self.momentum and type(self.momentum) ~= "number" then
      core.fail(name .. ": momentum is a number, or false for the plain "
                .. "average, not " .. tostring(self.momentum))
    end
    if o.affine ~= false then
      self.weight, self.bias = ones({n}, o), zeros({n}, o)
    end
    if o.track_running_stats ~= false then
      local as = {dtype = o.dtype}
      self.running_mean = core.cell("buffer", limn.zeros({n}, as))
      self.running_var = core.cell("buffer", limn.ones({n}, as))
      self.num_batches_tracked = core.cell("buffer",
        limn.zeros({}, {dtype = "int64"}))
    end
  end

  -- One graph serves both modes: the mode chooses at plan time.
  function Class:forward(x)
    check.fits(self, x, low, nd + 2, 2, self.channels,
               layout(self.channels, nd))
    if not self.running_mean then
      local n = per_channel(x)
      x = trains(self, x, n, true)
      local mean, var = statistics(x, n)
      local y = normalise(x, mean, var, true, self)
      return y
    end
    local old_mean = channels(self.running_mean, x):unsqueeze(1)
    local old_var = channels(self.running_var, x):unsqueeze(1)
    local tracing, mode = core.tracing(), self:mode()
    local on
    if tracing then on = mode:read() else on = mode:get() end
    if not tracing and not on then
      local y = normalise(x, old_mean, old_var, false, self)
      return y
    end
    local n = per_channel(x)
    x = trains(self, x, n, on)
    local mean, var = statistics(x, n)
    take_up(self, mean, var, n, on)
    if tracing then
      mean = limn.where(on, mean, old_mean)
      var = limn.where(on, var, old_var)
    end
    local y = normalise(x, mean, var, on, self)
    return y
  end

  function Class:describe() return tostring(self.channels) end
  M[name] = Class
end
batch(1, 2)
batch(2, 4)
batch(3, 5)

return M
