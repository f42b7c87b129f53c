-- What the specs of layers share.
local U = require "support.util"
local limn = U.limn
local nn = limn.nn

local M = {}

-- f is a module of cells made on the CPU: the same numbers eager on every
-- device, and from one graph traced on each device and run on every other.
function M.everywhere(f, inputs, want, tol)
  local function on(dev)
    local x = {}
    for i, v in ipairs(inputs) do x[i] = v:to(dev) end
    return x
  end
  want = want or f(unpack(inputs))
  U.each_device(function(dev)
    local y = limn.on(dev, function() return (f(unpack(on(dev)))) end)
    U.close(y, want, tol or 1e-5, "max", "eager on " .. dev)
  end)
  U.each_pair(function(from, dev)
    local g = limn.trace(function(...) return (f(...)) end, unpack(on(from)))
    local y = g(unpack(on(dev)))
    U.close(y, want, tol or 1e-5, "max", "traced on " .. from .. ", run on "
            .. dev)
  end)
end

-- The layer inside a model, whose path the error has to name.
function M.inside(layer)
  local Net = nn.Module:extend "Net"
  function Net:init() self.body = {nn.Identity(), layer} end
  function Net:forward(...) return (self.body[2](...)) end
  return Net()
end

-- Eager and traced: the path, what came and what is needed.
function M.refuses(layer, inputs, ...)
  local m = M.inside(layer)
  local parts = {...}
  U.message(function() m(unpack(inputs)) end, "body%.2", unpack(parts))
  U.message(function() limn.trace(m, unpack(inputs)) end, "body%.2",
            unpack(parts))
end

function M.state(m)
  local list = {}
  for name, cell in m:named_buffers() do list[name] = U.flat(cell:value()) end
  return list
end

return M
