-- options(given, allowed, who): the table of options, or {} for nil. An unknown
-- one raises and names the near ones, and so does one of a wrong kind.
local core = require "limn.core"

-- Kinds of values; a traced size or dtype (cdata) is looked at in each run.
local function flag(v)
  return type(v) == "boolean" or type(v) == "cdata", "true or false"
end
local function number(v)
  return type(v) == "number" or type(v) == "cdata", "a number"
end
local function probability(v)
  return type(v) == "number" and v >= 0 and v <= 1, "a number from 0 to 1"
end
local function above(v)
  return type(v) == "number" and v > 0, "a number above 0"
end
local function not_below(v)
  return type(v) == "number" and v >= 0, "a number from 0 on"
end
local floats = {float64 = true, float32 = true, float16 = true,
                bfloat16 = true}
local function float_dtype(v)
  return floats[v] or type(v) == "cdata",
    "float64, float32, float16 or bfloat16"
end

-- What options hold, by name: wherever they stand, and of layers alone (whose
-- names have a capital; functions take tensors under some of these).
local kinds = {
  dropout = probability, label_smoothing = probability, eps = number,
  layer_norm_eps = number, delta = above, beta = not_below,
}
for _, name in ipairs {
  "batch_first", "bidirectional", "ceil_mode", "return_indices",
  "count_include_pad", "align_corners", "log_target", "causal", "is_causal",
  "need_weights", "average_attn_weights", "norm_first", "nesterov", "amsgrad",
  "centered", "maximize", "elementwise_affine", "affine",
  "track_running_stats",
} do
  kinds[name] = flag
end
local of_layers = {bias = flag, dtype = float_dtype}

local function shown(v)
  if type(v) == "string" then return "'" .. v .. "'" end
  if type(v) == "number" or type(v) == "boolean" then return tostring(v) end
  return "a " .. (core.type(v) or type(v))
end

return function(given, allowed, who)
  core.options(given, allowed, who)
  if given == nil then return {} end
  local layer = who:find "^%u" ~= nil
  for _, name in ipairs(allowed) do
    local v = given[name]
    local kind = kinds[name] or layer and of_layers[name]
    if v ~= nil and kind then
      local ok, want = kind(v)
      if not ok then
        core.fail(("%s: %s is %s, got %s"):format(who, name, want, shown(v)))
      end
    end
  end
  if layer and given[1] ~= nil then
    core.fail(("%s: %s stands without a name among the options"):format(who,
      shown(given[1])), "options are written {" .. allowed[1] .. " = ...}")
  end
  return given
end
