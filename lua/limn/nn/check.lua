-- Checks that layers share: arguments of constructors, and inputs that do not
-- fit, named by the layer's path and both shapes.
local core = require "limn.core"
local D = require "limn.dims"
local walk = require "limn.nn.walk"

local limn = require "limn.lazy"

local M = {}

-- "[2, 3]"; sizes of a trace show as in the example.
function M.shape(x)
  local s = {}
  for i = 1, x:dim() do
    s[i] = tostring(D.known(x:size(i)) or "?")
  end
  return "[" .. table.concat(s, ", ") .. "]"
end

function M.whole(n, who, what, hint)
  if type(n) ~= "number" or n < 1 or n % 1 ~= 0 then
    core.fail(who .. ": " .. what .. " is a whole number above 0, got "
              .. tostring(n), hint)
  end
  return n
end

-- "LayerNorm 'body.norm'", or "LayerNorm" for a layer of its own.
function M.who(self)
  local path = walk.path(self)
  local class = getmetatable(self).class_name
  return path == "" and class or class .. " '" .. path .. "'"
end

-- Raise for an input x of layer `self` (or a function's name).
function M.misfit(self, x, want, hint)
  local who = type(self) == "string" and self or M.who(self)
  core.fail(who .. ": the input is " .. M.shape(x) .. ", where " .. want
            .. " is needed", hint)
end

function M.tensor(x, who, what)
  local kind = core.type(x)
  if kind ~= "tensor" and kind ~= "cell" then
    core.fail(("%s: the %s must be a tensor, not %s"):format(
      type(who) == "string" and who or M.who(who), what or "input",
      x == nil and "nil" or "a " .. (kind or type(x))))
  end
end

-- x has between low and high dims, and size n at dim `dim` where given.
function M.fits(self, x, low, high, dim, n, want)
  M.tensor(x, self)
  local rank = x:dim()
  if rank < low or rank > high then M.misfit(self, x, want) end
  if n and x:size(dim) ~= n then M.misfit(self, x, want) end
end

-- A cell where x is, as a tensor: an op on a cell alone works where the cell
-- is, and only together with x would it follow. Traces place by themselves.
function M.near(cell, x)
  if core.tracing() or core.type(cell) ~= "cell" or cell.device == x.device
  then
    return cell
  end
  local y = cell:reshape_like(limn.empty(cell.shape, {device = x.device}))
  return y
end

return M
