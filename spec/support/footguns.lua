-- What the specs of footguns share.
local U = require "support.util"
local core = require "limn.core"
local limn = U.limn
local nn, optim = limn.nn, limn.optim

local F = {}

-- No text or file names a kind of device.
function F.check_text(text)
  for _, word in ipairs {"cpu", "opencl", "cuda", "gpu"} do
    if text:find(word, 1, true) then error(word .. " in:\n" .. text, 2) end
  end
end

-- What the context knows of a device: launches, bytes, ...
function F.info(dev)
  local _, all = core.devices()
  for _, d in ipairs(all) do if d.name == dev then return d end end
end

-- What a program prints in a process that has no accelerator.
function F.alone(source)
  local text, ok = U.lua(source, "LIMN_DEVICES=cpu")
  if not ok then error(text, 2) end
  return text
end

-- Two layers and a training step: {net, opt, step, infer, x, t}.
function F.model(make_opt)
  limn.manual_seed(5)
  local m = {}
  m.net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
  m.opt = (make_opt or optim.Adam)(m.net, {lr = 0.05})
  local loss = limn.value_and_grad(function(x, t)
    return nn.mse_loss(m.net(x), t)
  end, m.net)
  m.x, m.t = limn.randn(6, 3), limn.randn(6, 1)
  m.step = limn.jit(function(x, t)
    local l, g = loss(x, t)
    m.opt:step(g)
    return l
  end)
  m.infer = limn.trace(m.net, m.x)
  return m
end

-- f traced on each device with the example of make(sizes[1]) gives on every
-- device, for all sizes, what eager f gives.
function F.agrees(f, make, sizes, tol)
  U.each_pair(function(from, to)
    local function on(dev, s)
      local list = {}
      for i, v in ipairs {make(unpack(s))} do list[i] = v:to(dev) end
      return unpack(list)
    end
    local g = limn.trace(f, on(from, sizes[1]))
    for _, s in ipairs(sizes) do
      limn.manual_seed(s[1])
      local want = {f(on("cpu", s))}
      limn.manual_seed(s[1])
      local got = {g(on(to, s))}
      for i = 1, math.max(#want, #got) do
        local what = ("result %d for %s, traced on %s, run on %s"):format(i,
          table.concat(s, " "), from, to)
        if type(want[i]) == "number" then
          if want[i] ~= got[i] then
            error(what .. ": " .. tostring(got[i]) .. " instead of "
                  .. want[i], 2)
          end
        else
          U.shape(got[i], want[i].shape, what)
          U.close(got[i], want[i], tol or 1e-5, "max", what)
        end
      end
    end
  end)
end

return F
