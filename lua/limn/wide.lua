--- Compositions of ops on float16 and bfloat16 compute in float32 and round
-- once, at the end. Other dtypes pass unchanged; a trace, which has none,
-- records that.
local core = require "limn.core"

local ops = core.ops
local M = {}

local halves = {float16 = true, bfloat16 = true}

local function is_tensor(x)
  local kind = core.type(x)
  return kind == "tensor" or kind == "cell"
end

local function may_be_half(x)
  return is_tensor(x) and (core.tracing() or halves[x.dtype] == true)
end

--- x with halves as float32; what is no tensor unchanged.
function M.widen(x)
  if may_be_half(x) then x = ops.widen(x) end
  return x
end

--- y rounded to the half that all tensors among the others are.
function M.unwiden(y, ...)
  local like, some = {}, false
  for i = 1, select("#", ...) do
    local x = select(i, ...)
    if is_tensor(x) then like[#like + 1] = x end
    some = some or may_be_half(x)
  end
  if some then y = ops.unwiden(y, like) end
  return y
end

return M
