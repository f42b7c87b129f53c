-- Transformer layers (Vaswani et al. 2017), with norms before or after.
local core = require "limn.core"
local read_options = require "limn.options"
local activation = require "limn.nn.activation"
local attention = require "limn.nn.attention"
local check = require "limn.nn.check"
local dropout = require "limn.nn.dropout"
local linear = require "limn.nn.linear"
local norm = require "limn.nn.norm"
local Module = require "limn.nn.module"
local walk = require "limn.nn.walk"

local M = {}

-- What both layers are made of; `n` norms and dropouts.
local function build(self, width, heads, options, n, who)
  local o = read_options(options, {"dim_feedforward", "dropout", "activation",
    "layer_norm_eps", "batch_first", "norm_first", "bias", "dtype"}, who)
  check.whole(width, who, "d_model", "nn." .. who .. "(256, 4)")
  local p = o.dropout or 0.1
  local hidden = o.dim_feedforward or 2048
  local inner = {dropout = p, bias = o.bias, batch_first = o.batch_first,
                 dtype = o.dtype}
  local plain = {bias = o.bias, dtype = o.dtype}
  self.norm_first = o.norm_first or false
  self.self_attn = attention.MultiheadAttention(width, heads, inner)
  if n == 3 then
    self.multihead_attn = attention.MultiheadAttention(width, heads, inner)
  end
  self.linear1 = linear.Linear(width, hidden, plain)
  self.dropout = dropout.Dropout(p)
  self.linear2 = linear.Linear(hidden, width, plain)
  for i = 1, n do
    self["norm" .. i] = norm.LayerNorm(width, {eps = o.layer_norm_eps,
      bias = o.bias, dtype = o.dtype})
  end
  for i = 1, n do self["dropout" .. i] = dropout.Dropout(p) end
  local act = o.activation or "relu"
  self.activation = type(act) == "string" and activation[act] or act
  if type(self.activation) ~= "function" and not walk.kind(act) then
    core.fail(("%s: there is no activation '%s'"):format(who, tostring(act))
      .. (type(act) == "string" and core.near(act, activation) or ""),
      "a name such as 'gelu', a function or a layer")
  end
end

local function feed_forward(self, x)
  local y = self.linear2(self.dropout(self.activation(self.linear1(x))))
  return y
end

-- One part with its way around: x + f(x), the norm before f or after the sum.
local function around(self, i, x, f)
  local layer, drop = self["norm" .. i], self["dropout" .. i]
  local y
  if self.norm_first then
    y = x + drop(f(layer(x)))
  else
    y = layer(x + drop(f(x)))
  end
  return y
end

--- nn.TransformerEncoderLayer(d_model, nhead [, {dim_feedforward = 2048,
-- dropout = 0.1, activation = "relu", layer_norm_eps = 1e-5, batch_first =
-- false, norm_first = false, bias = true, dtype}]): self-attention and a
-- feed-forward part, each with a norm and a way around (Vaswani et al. 2017).
-- The call layer(src [, {src_mask, src_key_padding_mask, is_causal}]) takes src
-- and masks as nn.MultiheadAttention does. activation may be a function.
local Encoder = Module:extend "TransformerEncoderLayer"
function Encoder:init(width, heads, options)
  build(self, width, heads, options, 2, "TransformerEncoderLayer")
end
function Encoder:forward(src, options)
  local o = read_options(options, {"src_mask", "src_key_padding_mask",
                                   "is_causal"}, "TransformerEncoderLayer")
  local x = around(self, 1, src, function(z)
    local y = self.self_attn(z, z, z, {attn_mask = o.src_mask,
      key_padding_mask = o.src_key_padding_mask, is_causal = o.is_causal,
      need_weights = false})
    return y
  end)
  x = around(self, 2, x, function(z) return (feed_forward(self, z)) end)
  return x
end
M.TransformerEncoderLayer = Encoder

--- nn.TransformerDecoderLayer(d_model, nhead [, options]): with attention to
-- `memory` between the encoder layer's parts; its arguments. The call is
-- layer(tgt, memory [, {tgt_mask, memory_mask, tgt_key_padding_mask,
-- memory_key_padding_mask, tgt_is_causal, memory_is_causal}]).
local Decoder = Module:extend "TransformerDecoderLayer"
function Decoder:init(width, heads, options)
  build(self, width, heads, options, 3, "TransformerDecoderLayer")
end
function Decoder:forward(tgt, memory, options)
  local o = read_options(options, {"tgt_mask", "memory_mask",
    "tgt_key_padding_mask", "memory_key_padding_mask", "tgt_is_causal",
    "memory_is_causal"}, "TransformerDecoderLayer")
  local x = around(self, 1, tgt, function(z)
    local y = self.self_attn(z, z, z, {attn_mask = o.tgt_mask,
      key_padding_mask = o.tgt_key_padding_mask, is_causal = o.tgt_is_causal,
      need_weights = false})
    return y
  end)
  x = around(self, 2, x, function(z)
    local y = self.multihead_attn(z, memory, memory, {
      attn_mask = o.memory_mask, is_causal = o.memory_is_causal,
      key_padding_mask = o.memory_key_padding_mask, need_weights = false})
    return y
  end)
  x = around(self, 3, x, function(z) return (feed_forward(self, z)) end)
  return x
end
M.TransformerDecoderLayer = Decoder

--- nn.TransformerEncoder(layer, count [, norm]): `count` copies of the layer in
-- a row, and a norm.
--- nn.TransformerDecoder(layer, count [, norm]): the same of decoder layers.
local function stack(name, Class, with_memory)
  local Stack = Module:extend(name)
  function Stack:init(layer, count, last)
    if walk.kind(layer) ~= "module" then
      check.tensor(nil, name, "first argument, a " .. Class.class_name .. ",")
    end
    check.whole(count, name, "the number of layers")
    self.layers = {}
    for i = 1, count do self.layers[i] = layer:clone() end
    self.norm = last
  end
  if with_memory then
    function Stack:forward(x, memory, options)
      for i = 1, #self.layers do x = self.layers[i](x, memory, options) end
      if self.norm then x = self.norm(x) end
      return x
    end
  else
    function Stack:forward(x, options)
      for i = 1, #self.layers do x = self.layers[i](x, options) end
      if self.norm then x = self.norm(x) end
      return x
    end
  end
  M[name] = Stack
end
stack("TransformerEncoder", Encoder, false)
stack("TransformerDecoder", Decoder, true)

return M
