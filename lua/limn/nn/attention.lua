-- Attention: softmax(q k' / sqrt(width)) v, and the layer of several heads.
local core = require "limn.core"
local read_options = require "limn.options"
local check = require "limn.nn.check"
local D = require "limn.dims"
local dropout = require "limn.nn.dropout"
local init = require "limn.nn.initializers"
local Module = require "limn.nn.module"
local linear = require "limn.nn.linear"

local limn = require "limn.lazy"

local M = {}

-- Whether position j of n may be seen from position i of m: j <= i.
local function not_later(q, k)
  local at = {dtype = "int64", device = q.device}
  local row = limn.arange(1, q:size(-2), at):unsqueeze(2)
  local y = row:ge(limn.arange(1, k:size(-2), at))
  return y
end

-- Scores with a mask: one of bools says what takes part (or with `out`, what
-- does not), another is added.
local function masked(s, mask, out)
  if mask.dtype ~= "bool" then
    s = s + mask
  elseif out then
    s = limn.where(mask, -math.huge, s)
  else
    s = limn.where(mask, s, -math.huge)
  end
  return s
end

-- The softmax of masked scores; zeros where the mask leaves a row no key.
local function weights(s)
  local some = limn.any(s:ne(-math.huge), -1, true)
  local w = limn.where(some, limn.where(some, s, 0):softmax(-1), 0)
  return w
end

-- The result and the weights [..., queries, keys]. `drop` maps the weights.
local function attend(q, k, v, o, drop)
  -- Scaled before the product, which is less likely to overflow halves.
  q = q * (o.scale or 1 / limn.sqrt(q:size(-1)))
  local s = limn.matmul(q, k, false, true)
  if o.causal then s = limn.where(not_later(q, k), s, -math.huge) end
  if o.mask ~= nil then s = masked(s, o.mask) end
  for _, mask in ipairs(o.out or {}) do s = masked(s, mask, true) end
  local w
  if o.mask ~= nil or o.out and o.out[1] ~= nil then
    w = weights(s)
  else
    w = s:softmax(-1)
  end
  if drop then w = drop(w) end
  local y = limn.matmul(w, v)
  return y, w
end

--- nn.scaled_dot_product_attention(q, k, v [, {mask, causal = false, dropout =
-- 0, scale}]): softmax(q k' * scale) v. q is [..., queries, width], k [...,
-- keys, width], v [..., keys, any]; scale is 1 / sqrt(width) unless given. A
-- bool mask holds true for what takes part, another is added to the scores;
-- causal hides later keys. A query that sees no key gets zeros.
function M.scaled_dot_product_attention(q, k, v, options)
  local who = "scaled_dot_product_attention"
  local o = read_options(options, {"mask", "causal", "dropout", "scale"}, who)
  check.fits(who, q, 2, 8, nil, nil, "[..., queries, width]")
  check.fits(who, k, 2, 8, nil, nil, "[..., keys, width] as the keys")
  check.fits(who, v, 2, 8, nil, nil, "[..., keys, any] as the values")
  if o.mask ~= nil then check.tensor(o.mask, who, "mask") end
  local drop
  if o.dropout and o.dropout > 0 then
    drop = function(w)
      local y = dropout.dropout(w, o.dropout)
      return y
    end
  end
  local y = attend(q, k, v, o, drop)
  return y
end

--- nn.MultiheadAttention(embed_dim, num_heads [, {dropout = 0, bias = true,
-- batch_first = false, dtype}]): attention(query, key, value [, options]) gives
-- the result and the weights [rows, queries, keys], the mean of the heads.
-- Inputs are [positions, rows, embed_dim] ([rows, positions, embed_dim] with
-- batch_first), or without rows. Options of the call: attn_mask [queries, keys]
-- and key_padding_mask [rows, keys] (bool: true is left out; others are added),
-- is_causal, need_weights = true, average_attn_weights = true. Parameters:
-- in_proj_weight, in_proj_bias, out_proj.
local MHA = Module:extend "MultiheadAttention"

function MHA:init(width, heads, options)
  local who = "MultiheadAttention"
  local o = read_options(options, {"dropout", "bias", "batch_first", "dtype"},
                         who)
  check.whole(width, who, "embed_dim")
  check.whole(heads, who, "num_heads")
  if width % heads ~= 0 then
    core.fail(("%s: embed_dim %d is not a multiple of num_heads %d"):format(
      who, width, heads))
  end
  self.embed_dim, self.num_heads = width, heads
  self.batch_first = o.batch_first or false
  -- PyTorch's: Glorot's for all three at once, no bias at first.
  local bound = math.sqrt(6 / (4 * width))
  self.in_proj_weight = core.cell("param", init.values("uniform",
    {3 * width, width}, -bound, bound, o.dtype))
  if o.bias ~= false then
    self.in_proj_bias = core.cell("param",
      limn.zeros({3 * width}, {dtype = o.dtype}))
  end
  self.out_proj = linear.Linear(width, width, {bias = o.bias, dtype = o.dtype})
  if self.out_proj.bias then init.zeros(self.out_proj.bias) end
  if o.dropout and o.dropout > 0 then
    self.dropout = dropout.Dropout(o.dropout)
  end
end

-- The joined projection, or the rows of it that query, key or value take.
local function project(self, x, part)
  local e = self.embed_dim
  local weight = check.near(self.in_proj_weight, x)
  local bias = self.in_proj_bias and check.near(self.in_proj_bias, x)
  if part then
    local rows = {{(part - 1) * e + 1, part * e}}
    weight, bias = weight[rows], bias and bias[rows]
  end
  local y = linear.linear(x, weight, bias)
  return y
end

-- Query, key and value, given as [rows, positions, width], as the heads see
-- them: [rows, heads, positions, n]. Of one tensor they are one product.
local function projections(self, list, same)
  local heads, parts = self.num_heads, {}
  local n = self.embed_dim / heads
  local function split(x, ...)
    local y = x:reshape {x:size(1), x:size(2), ...}
    return y
  end
  local joined = same and split(project(self, list[1]), 3, heads, n)
  for i = 1, 3 do
    local x = joined and joined[{{}, {}, i}]
      or split(project(self, list[i], i), heads, n)
    parts[i] = x:transpose(2, 3)
  end
  return parts
end

-- The masks, in the rank of the scores [rows, heads, queries, keys]. As
-- PyTorch's they hold true for what does NOT take part.
local function masks(self, o, q, k)
  local mask, pad, list = o.attn_mask, o.key_padding_mask, {}
  local rows, queries = D.known(q:size(1)), D.known(q:size(3))
  local keys = D.known(k:size(3))
  -- Sizes of a trace's example are looked at too: no guard.
  local function fit(m, d, n, want)
    local is = D.known(m:size(d))
    if is and n and is ~= n and is ~= 1 then
      core.fail(("%s: the mask is %s, where %s is needed"):format(
        check.who(self), check.shape(m), want))
    end
  end
  if mask ~= nil then
    check.fits(self, mask, 2, 3, nil, nil, "a mask of [queries, keys] or "
               .. "[rows * heads, queries, keys]")
    local want = ("[%s, %s]"):format(queries or "queries", keys or "keys")
    fit(mask, -2, queries, want)
    fit(mask, -1, keys, want)
    if mask:dim() == 3 then
      mask = mask:reshape {-1, self.num_heads, mask:size(2), mask:size(3)}
    end
    list[1] = mask
  end
  if pad ~= nil then
    check.fits(self, pad, 1, 2, nil, nil, "a mask of [rows, keys]")
    if pad:dim() == 1 then pad = pad:unsqueeze(1) end
    local want = ("[%s, %s]"):format(rows or "rows", keys or "keys")
    fit(pad, 1, rows, want)
    fit(pad, 2, keys, want)
    list[#list + 1] = pad:unsqueeze(2):unsqueeze(2)
  end
  return list
end

-- The value, if all three have as many rows, and it as many positions as the
-- key.
function MHA:agree(query, key, value)
  for _, x in ipairs {key, value} do
    if x:dim() ~= query:dim() then
      check.misfit(self, x, "a tensor with the query's number of dims")
    end
  end
  local rank, ok = query:dim(), nil
  local rows = self.batch_first and 1 or 2
  local positions = rank == 2 and 1 or 3 - rows
  local function same(x, y, d, what)
    ok = D.eq(x:size(d), y:size(d))
    value = D.expect(value, ok, check.who(self) .. ": " .. what
      .. (type(ok) == "boolean" and ": " .. check.shape(x) .. " and "
          .. check.shape(y) or ""))
  end
  same(key, value, positions, "key and value differ in positions")
  if rank == 3 then
    same(query, key, rows, "query and key differ in rows")
    same(query, value, rows, "query and value differ in rows")
  end
  return value
end

function MHA:forward(query, key, value, options)
  local o = read_options(options, {"attn_mask", "key_padding_mask",
    "is_causal", "need_weights", "average_attn_weights"},
    "MultiheadAttention")
  key = key == nil and query or key
  value = value == nil and key or value
  local e, first = self.embed_dim, self.batch_first
  local names = {"query", "key", "value"}
  for i, x in ipairs {query, key, value} do
    check.fits(self, x, 2, 3, -1, e, ("[%s, %d] as the %s"):format(
      first and "rows, positions" or "positions, rows", e, names[i]))
  end
  local same = rawequal(query, key) and rawequal(key, value)
  local list = {query, key, self:agree(query, key, value)}
  local single = false
  for i, x in ipairs(list) do
    single = x:dim() == 2
    if single then x = x:unsqueeze(1) elseif not first then
      x = x:transpose(1, 2)
    end
    list[i] = x
  end
  list = projections(self, list, same)
  local y, w = attend(list[1], list[2], list[3],
                      {out = masks(self, o, list[1], list[2]),
                       causal = o.is_causal},
                      self.dropout)
  y = self.out_proj(y:transpose(2, 3):flatten(3, 4))
  if o.average_attn_weights ~= false then w = w:mean(2) end
  if single then
    y, w = y:squeeze(1), w:squeeze(1)
  elseif not first then
    y = y:transpose(1, 2)
  end
  if o.need_weights == false then w = nil end
  return y, w
end

function MHA:describe() return self.embed_dim .. ", " .. self.num_heads end
M.MultiheadAttention = MHA
return M
