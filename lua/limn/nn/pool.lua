-- Pooling, resizing, and windows as columns: functions and layers.
local core = require "limn.core"
local read_options = require "limn.options"
local D = require "limn.dims"
local wide = require "limn.wide"
local Module = require "limn.nn.module"
local part = require "limn.nn.sizes"

local limn = require "limn.lazy"
local per_dim, with_rows = part.per_dim, part.with_rows

local M = {}

-- -- Windows: max_pool, avg_pool --

-- nn.max_pool2d(x, 2), (x, {2, 3}, {padding = 1}) or (x, {kernel = 2}).
local function kernel_options(kernel, options, keys, who)
  if type(kernel) == "table" and kernel[1] == nil then
    options, kernel = kernel, nil
  end
  local all = {"kernel"}
  for _, k in ipairs(keys) do all[#all + 1] = k end
  options = read_options(options, all, who)
  kernel = kernel or options.kernel
  if kernel == nil then
    core.fail(who .. ": the kernel is missing", who .. "(x, {kernel = 2})")
  end
  return kernel, options
end

local no_margins = {0, 0, 0}

-- 0..n - 1, where x is.
local function positions(x, n, dtype)
  local y = limn.arange(0, n - 1, {dtype = dtype, device = x.device})
  return y
end

-- x between margins of `value`; `more` (or 0) is added to those at the end.
local function margins(x, padding, n, value, more)
  local pads, some = {}, more ~= nil
  for i = 1, n do
    local p = padding[i]
    some = some or type(p) ~= "number" or p ~= 0
    pads[2 * (n - i) + 1] = p
    pads[2 * (n - i) + 2] = more and p + more[i] or p
  end
  if some then x = limn.pad(x, pads, {value = value}) end
  return x
end

-- Whether v is the number 1; comparing a size of a trace would record a guard.
local function is_one(v) return type(v) == "number" and v == 1 end

-- The last dim first: of equals the first in row-major order is taken. A kernel
-- that only a run knows is a reduction over windows.
local function along(x, n, o, how)
  if o.open then
    local y = limn.windows(x, o.kernel, o.stride, o.dilation)
    for _ = 1, n do
      if how == "max" then y = y:max(-1) else y = y:sum(-1) end
    end
    return y
  end
  local k, s, d = o.kernel, o.stride, o.dilation
  if n == 2 and how == "max" and is_one(d[1]) and is_one(d[2]) then
    return (limn.max_pool2(x, k[1], k[2], s[1], s[2]))
  end
  for i = n, 1, -1 do
    x = limn.pool(x, i - n - 1, k[i], s[i], d[i], how)
  end
  return x
end

local function lists(kernel, options, n, who)
  local o = {kernel = per_dim(kernel, n, nil, "kernel", who)}
  o.stride = per_dim(options.stride, n, o.kernel, "stride", who)
  o.padding = per_dim(options.padding, n, 0, "padding", who)
  o.dilation = per_dim(options.dilation, n, 1, "dilation", who)
  for i = 1, n do
    local k, p = o.kernel[i], o.padding[i]
    if type(k) ~= "number" then
      o.open = true
    elseif type(p) == "number" and p > k / 2 then
      core.fail(("%s: padding of %s is more than half of the kernel %s")
        :format(who, p, k))
    end
  end
  return o
end

-- With ceil_mode: what each dim lacks for a last window that begins inside x or
-- the margin before it.
local function beyond(x, o, n)
  local more = {}
  for i = 1, n do
    local size, p, s = x:size(i - n - 1), o.padding[i], o.stride[i]
    local room = size + 2 * p - (o.kernel[i] - 1) * o.dilation[i] - 1
    local count = limn.min(limn.floor((room + s - 1) / s),
                           limn.floor((size + p - 1) / s))
    more[i] = limn.max(count * s - room, 0)
  end
  return more
end

-- The largest of each window of w (margins are in), and where x of `size` has
-- it: the position from 1 in a channel's values in a row.
local function max_places(w, size, o, n)
  local windows = limn.windows(w, o.kernel, o.stride, o.dilation)
  local rank = w:dim()
  local flat = n == 1 and windows or windows:flatten(rank + 1, -1)
  local at = flat:argmax(-1)
  local y = flat:gather(-1, at:unsqueeze(-1)):squeeze(-1)
  local rest, place, step = at - 1, 1, 1
  for i = n, 1, -1 do -- the last dim first
    local inside = i > 1 and rest % o.kernel[i] or rest
    if i > 1 then rest = rest:floor_div(o.kernel[i]) end
    local window = positions(w, at:size(i - n - 1), "int64")
    for _ = i + 1, n do window = window:unsqueeze(-1) end
    local at_i = inside * o.dilation[i] + window * o.stride[i] - o.padding[i]
    -- all are -inf, so the margin's came first: take the first of x
    at_i = limn.where(at_i:lt(0), at_i % o.dilation[i], at_i)
    place = place + step * at_i
    step = step * size[i]
  end
  return y, place
end

local function max_pool(x, kernel, options, n, who)
  local o = lists(kernel, options, n, who)
  local more = options.ceil_mode and beyond(x, o, n) or nil
  local w = margins(x, o.padding, n, -math.huge, more)
  if options.return_indices then
    local size = {}
    for i = 1, n do size[i] = x:size(i - n - 1) end
    return max_places(w, size, o, n)
  end
  local y = along(w, n, o, "max")
  return y
end

local function avg_pool(x, kernel, options, n, who)
  local o = lists(kernel, options, n, who)
  local more = options.ceil_mode and beyond(x, o, n) or nil
  local y = along(margins(wide.widen(x), o.padding, n, 0, more), n, o, "sum")
  local count = 1
  for i = 1, n do count = count * o.kernel[i] end
  local whole = options.count_include_pad ~= false
  if options.divisor then
    count = options.divisor
  elseif more or not whole then -- what ceil_mode adds never counts
    local ones = wide.widen(limn.ones_like(x):detach())
    ones = margins(ones, o.padding, n, whole and 1 or 0)
    if more then ones = margins(ones, no_margins, n, 0, more) end
    count = along(ones, n, o, "sum")
  end
  y = wide.unwiden(y / count, x)
  return y
end

--- nn.max_pool1d(x, kernel [, {stride = kernel, padding = 0, dilation = 1,
-- ceil_mode = false, return_indices = false}]): the largest value of each
-- window of [rows, channels, size]; padding counts as -inf. ceil_mode: a window
-- that begins inside counts though it ends beyond; return_indices: also where
-- each was found, from 1 in the values of its channel.
--- nn.max_pool2d(x, kernel [, {stride = kernel, padding = 0, dilation = 1,
-- ceil_mode = false, return_indices = false}]): the same of [rows, channels,
-- height, width].
--- nn.avg_pool1d(x, kernel [, {stride = kernel, padding = 0, ceil_mode = false,
-- count_include_pad = true, divisor}]): the mean of each window of [rows,
-- channels, size].
--- nn.avg_pool2d(x, kernel [, {stride = kernel, padding = 0, ceil_mode = false,
-- count_include_pad = true, divisor}]): the same of [rows, channels, height,
-- width].
--- nn.max_pool3d(x, kernel [, options]): max_pool2d of [rows, channels, depth,
-- height, width].
--- nn.avg_pool3d(x, kernel [, options]): avg_pool2d likewise.
for n = 1, 3 do
  for name, rule in pairs {
    max_pool = {max_pool, {"stride", "padding", "dilation", "ceil_mode",
                           "return_indices"}},
    avg_pool = {avg_pool, {"stride", "padding", "ceil_mode",
                           "count_include_pad", "divisor"}},
  } do
    local who = name .. n .. "d"
    M[who] = function(x, kernel, options)
      kernel, options = kernel_options(kernel, options, rule[2], who)
      local y, at = with_rows(x, n + 2, who, rule[1], kernel, options, n, who)
      return y, at
    end
  end
end

-- -- Bins of equal or nearly equal width: adaptive pooling --

-- For an output of n positions over a dim of `size`: [n, size], whether a
-- position is in the bin. Bin i covers floor(i * size / n) up to
-- ceil((i + 1) * size / n), from 0.
local function bins(x, n)
  local size = x:size(-1)
  local at = positions(x, size, "int64")
  local bin = positions(x, n, "int64"):unsqueeze(2)
  local first = (bin * size):floor_div(n)
  local last = ((bin + 1) * size + (n - 1)):floor_div(n)
  return limn.logical_and(at:ge(first), at:lt(last)), last - first
end

-- Bins along the last dim.
local function bin_mean(x, n)
  if type(n) == "number" and n == 1 then
    local y = x:mean(-1, true)
    return y
  end
  -- Chosen, not multiplied by 0 or 1: an infinity stays in its own bins.
  local inside, count = bins(x, n)
  local y = limn.where(inside, x:unsqueeze(-2), 0):sum(-1) / count:squeeze(-1)
  return y
end

local function bin_max(x, n)
  if type(n) == "number" and n == 1 then
    local k = x:argmax(-1):unsqueeze(-1)
    local y = x:gather(-1, k)
    return y
  end
  local inside = bins(x, n)
  local rows = limn.where(inside, x:unsqueeze(-2), -math.huge)
  local y = x:gather(-1, rows:argmax(-1))
  return y
end

local function adaptive(x, size, bin, n)
  local y = bin(wide.widen(x), size[n])
  for i = n - 1, 1, -1 do
    local dim = i - n - 1
    y = bin(y:transpose(-1, dim), size[i]):transpose(-1, dim)
  end
  y = wide.unwiden(y, x)
  return y
end

-- Sizes to make, of n dims. Those that only a run knows are ints from here on.
local function wanted(size, n, who)
  size = per_dim(size, n, nil, "size", who)
  for i = 1, n do
    local s = size[i]
    if type(s) ~= "number" then
      size[i] = limn.floor(s)
    elseif s < 1 or s % 1 ~= 0 then
      core.fail(who .. ": a size is a whole number above 0, got " .. s)
    end
  end
  return size
end

--- nn.adaptive_avg_pool1d(x, size): the means of `size` bins of nearly equal
-- width of [rows, channels, any].
--- nn.adaptive_avg_pool2d(x, {height, width}): the same of two dims; a number
-- stands for both.
--- nn.adaptive_avg_pool3d(x, {depth, height, width}): the same of three.
--- nn.adaptive_max_pool1d(x, size): the largest values of the bins.
--- nn.adaptive_max_pool2d(x, {height, width}): the same of two dims.
--- nn.adaptive_max_pool3d(x, {depth, height, width}): the same of three.
for n = 1, 3 do
  for name, bin in pairs {adaptive_avg_pool = bin_mean,
                          adaptive_max_pool = bin_max} do
    local who = name .. n .. "d"
    -- adaptive_avg_pool2d(x, {height, width}), or one number for both
    M[who] = function(x, size)
      size = wanted(size, n, who)
      local y = with_rows(x, n + 2, who, adaptive, size, bin, n)
      return y
    end
  end
end

-- -- Resizing --

-- Where the positions of a dim of `n` lie in one of `size`: from 0, not whole.
-- By `scale`, or so that both ends meet (corners).
local function sources(x, size, n, scale, corners)
  local at = positions(x, n, "float64")
  local y
  if corners then
    y = at * ((size - 1) / limn.max(n - 1, 1))
  else
    y = (at + 0.5) * scale - 0.5
  end
  return y
end

local function nearest(x, dim, n, scale)
  local size = x:size(dim)
  local at = positions(x, n, "int64")
  if scale then
    at = (at:to "float64" * scale):floor():to "int64"
  else -- in whole numbers, which are exact
    at = (at * size):floor_div(n)
  end
  at = at:minimum(size - 1) + 1
  local y = x:index_select(dim, at)
  return y
end

-- A weight for each position of dim, to broadcast with x.
local function weights(w, x, dim)
  if core.whole(x) then
    core.fail("interpolate: whole numbers have no values in between",
              'convert it first: x:to "float32", or use mode = "nearest"')
  end
  local shape = {-1}
  for i = 1, -dim - 1 do shape[i + 1] = 1 end
  local y = w:reshape(shape):to(x.dtype)
  return y
end

local function linear(x, dim, n, scale, corners)
  local size = x:size(dim)
  local at = limn.clamp(sources(x, size, n, scale or size / n, corners), 0)
  local low = at:floor()
  local first = low:to "int64"
  local second = limn.minimum(first + 1, size - 1)
  local w = weights(at - low, x, dim)
  local a, b = x:index_select(dim, first + 1), x:index_select(dim, second + 1)
  local y = a * (1 - w) + b * w
  return y
end

-- The weights of four neighbours for a place t beyond the second of them
-- (Keys 1981, with his a = -0.75).
local function cubic_weights(t)
  local a = -0.75
  local function near(u) return ((a + 2) * u - (a + 3)) * u * u + 1 end
  local function far(u) return ((a * u - 5 * a) * u + 8 * a) * u - 4 * a end
  return {far(t + 1), near(t), near(1 - t), far(2 - t)}
end

local function cubic(x, dim, n, scale, corners)
  local size = x:size(dim)
  local at = sources(x, size, n, scale or size / n, corners)
  local low, y = at:floor(), nil
  for k, w in ipairs(cubic_weights(at - low)) do
    local place = limn.clamp(low + (k - 2), 0, size - 1):to "int64" + 1
    local share = x:index_select(dim, place) * weights(w, x, dim)
    y = y and y + share or share
  end
  return y
end

local modes = {nearest = 0, linear = 1, bilinear = 2, bicubic = 2}

local function resized(x, n, o, who)
  local mode = o.mode or "nearest"
  if not modes[mode] or mode ~= "nearest" and modes[mode] ~= n then
    core.fail(("%s: no mode '%s' for an input with %d dims"):format(who,
      tostring(mode), n + 2),
      "nearest, linear for 3 dims, bilinear and bicubic for 4")
  end
  local size, factor
  if o.size ~= nil then
    size = wanted(o.size, n, who)
  else
    factor = per_dim(o.scale_factor, n, nil, "scale_factor", who)
  end
  local from = x
  if mode ~= "nearest" then x = wide.widen(x) end
  for i = 1, n do
    local dim = i - n - 1
    local to = size and size[i] or limn.floor(x:size(dim) * factor[i])
    x = D.expect(x, D.le(1, to), ("%s: a size of %s; at least 1 is possible")
      :format(who, tostring(to)))
    local scale = factor and 1 / factor[i]
    if mode == "nearest" then
      x = nearest(x, dim, to, scale)
    else
      local f = mode == "bicubic" and cubic or linear
      x = f(x, dim, to, scale, o.align_corners)
    end
  end
  if mode ~= "nearest" then x = wide.unwiden(x, from) end
  return x
end

--- nn.interpolate(x, {size, scale_factor, mode = "nearest", align_corners =
-- false}): [rows, channels, size] or [rows, channels, height, width] resized to
-- `size` (a number or list) or by scale_factor. Modes: nearest, linear (3
-- dims), bilinear and bicubic (4 dims).
function M.interpolate(x, options)
  local who = "interpolate"
  local o = read_options(options, {"size", "scale_factor", "mode",
    "align_corners"}, who)
  if (o.size == nil) == (o.scale_factor == nil) then
    core.fail(who .. ": give either size or scale_factor")
  end
  local kind = core.type(x)
  if kind ~= "tensor" and kind ~= "cell" then
    core.fail(who .. ": the input is a tensor, not a " .. (kind or type(x)))
  end
  if x:dim() ~= 3 and x:dim() ~= 4 then
    core.fail(("%s: the input has %d dims; 3 or 4 are possible"):format(who,
      x:dim()), "rows, channels, then one or two sizes")
  end
  local y = resized(x, x:dim() - 2, o, who)
  return y
end

-- -- Windows as columns --

local function unfold(x, o)
  local n = 2
  x = margins(x, o.padding, n, 0)
  local w = limn.windows(x, o.kernel, o.stride, o.dilation)
  w = w:permute(1, 2, 5, 6, 3, 4):flatten(2, 4):flatten(3)
  return w
end

local column_keys = {"stride", "padding", "dilation"}

--- nn.unfold(x, kernel [, {stride = 1, padding = 0, dilation = 1}]): the
-- windows of [rows, channels, h, w] as columns [rows, channels * window,
-- positions].
function M.unfold(x, kernel, options)
  kernel, options = kernel_options(kernel, options, column_keys, "unfold")
  if not options.stride then
    options = {stride = 1, padding = options.padding,
               dilation = options.dilation}
  end
  local o = lists(kernel, {stride = options.stride,
                           dilation = options.dilation}, 2, "unfold")
  o.padding = per_dim(options.padding, 2, 0, "padding", "unfold")
  local y = with_rows(x, 4, "unfold", unfold, o)
  return y
end

local function fold(x, o)
  local size, k = o.size, o.kernel
  local window = k[1] * k[2]
  local h, w = size[1] + 2 * o.padding[1], size[2] + 2 * o.padding[2]
  local channels = limn.floor(x:size(2) / window)
  local at = (positions(x, h * w, "int64") + 1):reshape(h, w)
  at = limn.windows(at, k, o.stride, o.dilation):permute(3, 4, 1, 2)
  local rows, columns = x:size(2), x:size(3)
  local fit = at:size(-2) * at:size(-1)
  if type(rows) == "number" and type(window) == "number"
    and rows % window ~= 0 then
    core.fail(("fold: the columns have %d values, which is no multiple of the "
      .. "window's %d"):format(rows, window))
  elseif type(columns) == "number" and type(fit) == "number"
    and columns ~= fit then
    core.fail(("fold: %d columns, where windows fit into the size at %d "
      .. "positions"):format(columns, fit))
  end
  local from = x
  x = wide.widen(x:reshape(x:size(1) * channels, window * x:size(3)))
  local y = limn.index_add(x:new_zeros {x:size(1), h * w}, 2, at:flatten(), x)
  y = y:reshape(-1, channels, h, w)
  y = y[{{}, {}, {o.padding[1] + 1, o.padding[1] + size[1]},
         {o.padding[2] + 1, o.padding[2] + size[2]}}]
  y = wide.unwiden(y, from)
  return y
end

--- nn.fold(x, {height, width}, kernel [, {stride = 1, padding = 0, dilation =
-- 1}]): columns as unfold makes them, added up where they came from: [rows,
-- channels, height, width].
function M.fold(x, size, kernel, options)
  kernel, options = kernel_options(kernel, options, column_keys, "fold")
  local o = lists(kernel, {stride = options.stride or 1,
                           dilation = options.dilation}, 2, "fold")
  o.padding = per_dim(options.padding, 2, 0, "padding", "fold")
  o.size = per_dim(size, 2, nil, "size", "fold")
  local y = with_rows(x, 3, "fold", fold, o)
  return y
end

-- -- Layers --

local function options_text(o, keys)
  local more = {}
  for _, k in ipairs(keys) do
    if o[k] ~= nil then more[#more + 1] = k .. " = " .. part.list_text(o[k]) end
  end
  return more[1] and "{" .. table.concat(more, ", ") .. "}"
end

--- nn.MaxPool1d(kernel [, {stride, padding, dilation, ceil_mode,
-- return_indices}]): max_pool1d.
--- nn.MaxPool2d(kernel [, options]): max_pool2d.
--- nn.MaxPool3d(kernel [, options]): max_pool3d.
--- nn.AvgPool1d(kernel [, {stride, padding, ceil_mode, count_include_pad,
-- divisor}]): avg_pool1d.
--- nn.AvgPool2d(kernel [, options]): avg_pool2d.
--- nn.AvgPool3d(kernel [, options]): avg_pool3d.
local function pool_layer(name, n, f, keys)
  local Class = Module:extend(name)
  function Class:init(kernel, options)
    self.kernel, self.options = kernel_options(kernel, options, keys, name)
    per_dim(self.kernel, n, nil, "kernel", name)
    for _, key in ipairs {"stride", "padding", "dilation"} do
      if self.options[key] ~= nil then
        per_dim(self.options[key], n, nil, key, name)
      end
    end
  end
  function Class:forward(x)
    local y, at = f(x, self.kernel, self.options)
    return y, at
  end
  function Class:describe()
    local more = options_text(self.options, keys)
    return part.list_text(self.kernel) .. (more and ", " .. more or "")
  end
  M[name] = Class
end

--- nn.AdaptiveAvgPool1d(size): adaptive_avg_pool1d.
--- nn.AdaptiveAvgPool2d {height, width}: adaptive_avg_pool2d.
--- nn.AdaptiveAvgPool3d {depth, height, width}: adaptive_avg_pool3d.
--- nn.AdaptiveMaxPool1d(size): adaptive_max_pool1d.
--- nn.AdaptiveMaxPool2d {height, width}: adaptive_max_pool2d.
--- nn.AdaptiveMaxPool3d {depth, height, width}: adaptive_max_pool3d.
local function adaptive_layer(name, n, f)
  local Class = Module:extend(name)
  function Class:init(size)
    per_dim(size, n, nil, "size", name)
    self.size = size
  end
  function Class:forward(x)
    local y = f(x, self.size)
    return y
  end
  function Class:describe() return part.list_text(self.size) end
  M[name] = Class
end

for n = 1, 3 do
  pool_layer("MaxPool" .. n .. "d", n, M["max_pool" .. n .. "d"],
             {"stride", "padding", "dilation", "ceil_mode",
              "return_indices"})
  pool_layer("AvgPool" .. n .. "d", n, M["avg_pool" .. n .. "d"],
             {"stride", "padding", "ceil_mode", "count_include_pad",
              "divisor"})
end
for n = 1, 3 do
  adaptive_layer("AdaptiveAvgPool" .. n .. "d", n,
                 M["adaptive_avg_pool" .. n .. "d"])
  adaptive_layer("AdaptiveMaxPool" .. n .. "d", n,
                 M["adaptive_max_pool" .. n .. "d"])
end

--- nn.Upsample {size, scale_factor, mode, align_corners}: interpolate as a
-- layer.
local Upsample = Module:extend "Upsample"
local upsample_keys = {"size", "scale_factor", "mode", "align_corners"}
function Upsample:init(options)
  self.options = read_options(options, upsample_keys, "Upsample")
end
function Upsample:forward(x)
  local y = M.interpolate(x, self.options)
  return y
end
function Upsample:describe()
  return options_text(self.options, upsample_keys) or ""
end
M.Upsample = Upsample

return M
