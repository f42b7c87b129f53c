-- Arguments of convolutions and pools: one number for all dims or a list with
-- one for each, and inputs with or without rows.
local core = require "limn.core"

local limn = require "limn.lazy"

local M = {}

-- The least that a number may be.
local least = {kernel = 1, stride = 1, dilation = 1, padding = 0,
               output_padding = 0}

-- A number for all n dims, or a list with one for each, as a list.
function M.per_dim(v, n, default, what, who)
  if v == nil then v = default end
  local list = {}
  for i = 1, n do
    if type(v) == "table" then list[i] = v[i] else list[i] = v end
  end
  local kind = type(list[1])
  if list[n] == nil or type(v) == "table" and #v ~= n
    or kind ~= "number" and kind ~= "cdata" then
    core.fail(("%s: %s is a number%s"):format(who, what, n == 1 and ""
      or " or a list of " .. n), who .. "(..., {" .. what .. " = 1})")
  end
  for i = 1, n do
    local is, low = list[i], least[what]
    if low and type(is) == "number" and (is < low or is % 1 ~= 0) then
      core.fail(("%s: %s is %s; it is "):format(who, what, tostring(is))
        .. (is < low and "at least " .. low or "a whole number"))
    end
  end
  return list
end

function M.tensor(v, what, who)
  local kind = core.type(v)
  if kind ~= "tensor" and kind ~= "cell" then
    core.fail(("%s: %s is a tensor, not %s"):format(who, what,
      v == nil and "nil" or "a " .. (kind or type(v))))
  end
end

-- f(x) for x with rows (one result or two); one example without gets them, and
-- loses them again.
function M.with_rows(x, rank, who, f, ...)
  M.tensor(x, "the input", who)
  if x:dim() == rank then
    local y, z = f(x, ...)
    return y, z
  elseif x:dim() == rank - 1 then
    local y, z = f(limn.unsqueeze(x, 1), ...)
    return limn.squeeze(y, 1), z and limn.squeeze(z, 1)
  end
  core.fail(("%s: the input has %d dims instead of %d (or %d for one example)")
    :format(who, x:dim(), rank, rank - 1),
    "rows, channels" .. (rank == 3 and ", length"
      or rank == 4 and ", height, width" or ", depth, height, width"))
end

-- A number, or {2, 1}.
function M.list_text(v)
  if type(v) ~= "table" then return tostring(v) end
  local t = {}
  for i, x in ipairs(v) do t[i] = tostring(x) end
  return "{" .. table.concat(t, ", ") .. "}"
end

return M
