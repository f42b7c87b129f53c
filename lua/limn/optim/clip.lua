-- Clipping of gradients by their common norm, and by value.
local core = require "limn.core"
local read_options = require "limn.options"
local walk = require "limn.nn.walk"
local wide = require "limn.wide"

local limn = require "limn.lazy"

local M = {}

-- The keys of a (nested) table of gradients in a fixed order: 1..n, strings.
local function keys_of(t)
  local strings, keys = {}, {}
  for i = 1, #t do keys[i] = i end
  for k in pairs(t) do
    if type(k) == "string" then strings[#strings + 1] = k end
  end
  table.sort(strings)
  for _, k in ipairs(strings) do keys[#keys + 1] = k end
  return keys
end

-- All gradients, in that order; `who` is for messages.
local function leaves(t, list, who)
  local kind = core.type(t) or walk.kind(t)
  local optimizer = type(t) == "table" and type(t.step) == "function"
  if kind == "tensor" and not core.whole(t) then
    list[#list + 1] = t
  elseif type(t) == "table" and kind ~= "module" and not optimizer then
    for _, k in ipairs(keys_of(t)) do leaves(t[k], list, who) end
  else
    local is = kind == "tensor" and "whole numbers"
      or kind == "cell" and "parameters" or kind == "module" and "a module"
      or optimizer and "an optimizer" or kind or type(t)
    core.fail(who .. ": gradients are wanted, got " .. is,
      "they are what limn.value_and_grad gives: local l, grads = loss(x, t)")
  end
  return list
end

-- The same structure with f of every gradient.
local function mapped(t, f)
  if type(t) ~= "table" then
    local y = f(t)
    return y
  end
  local out = {}
  for k, v in pairs(t) do out[k] = v end -- in the order that t has
  for _, k in ipairs(keys_of(t)) do out[k] = mapped(t[k], f) end
  return out
end

local function limit(v, who)
  if type(v) == "number" and (v < 0 or v ~= v) then
    core.fail(who .. ": the limit must not be below 0, got " .. v)
  elseif type(v) ~= "number" and not core.type(v) then
    core.fail(who .. ": the limit is a number, got " .. type(v),
              "optim." .. who .. "(grads, 1)")
  end
end

-- The norm of all gradients together as one vector; of halves in float32.
local function total_norm(list, p)
  local total
  for _, v in ipairs(list) do
    local g = wide.widen(v)
    local part
    if p == 2 then part = g:square():sum()
    elseif p == 1 then part = g:abs():sum()
    elseif p == math.huge then part = g:abs():max()
    else part = (g:abs() ^ p):sum() end
    if not total then total = part
    elseif p == math.huge then total = limn.maximum(total, part)
    else total = total + part end
  end
  if p == 2 then return total:sqrt() end
  if p == 1 or p == math.huge then return total end
  return total ^ (1 / p)
end

--- optim.clip_grad_norm(grads, max [, {norm_type = 2}]) -> grads, norm: the
-- gradients scaled down so that their common norm is at most max, and the norm
-- they had. The originals stay: opt:step(optim.clip_grad_norm(grads, 1)).
-- norm_type math.huge is the largest absolute value.
function M.clip_grad_norm(grads, max, options)
  if type(options) == "number" then options = {norm_type = options} end
  options = read_options(options, {"norm_type"}, "clip_grad_norm")
  local p = options.norm_type or 2
  if type(p) ~= "number" or p <= 0 or p ~= p then
    core.fail("clip_grad_norm: norm_type is a number above 0, got "
              .. tostring(p), "2, 1 or math.huge")
  end
  limit(max, "clip_grad_norm")
  local list = leaves(grads, {}, "clip_grad_norm")
  if #list == 0 then core.fail("clip_grad_norm: no gradients") end
  local norm = total_norm(list, p)
  local by = limn.clamp(max / (norm + 1e-6), {max = 1})
  return mapped(grads, function(g) return g * by end), norm
end

--- optim.clip_grad_value(grads, max) -> grads: every element clamped to
-- -max..max.
function M.clip_grad_value(grads, max)
  limit(max, "clip_grad_value")
  if #leaves(grads, {}, "clip_grad_value") == 0 then
    core.fail("clip_grad_value: no gradients")
  end
  local out = mapped(grads, function(g)
    return g:clamp {min = -max, max = max}
  end)
  return out
end

return M
