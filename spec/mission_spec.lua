-- What limn is for: a model is traced once, on any device, to one file; that
-- file trains and infers on every device, in other processes, and what is
-- learnt on one all others know, without anyone copying a parameter.
local U = require "support.util"

-- CUDA is the stand-in where there is no GPU.
local devices, environment = {}, ""
for _, name in ipairs(U.limn.devices()) do devices[name] = true end
if not devices["cuda:0"] and U.has_cxx() then
  local lib = U.quote(U.build .. "/cuda_standin/libcuda.so.1")
  environment = ("LIMN_DEVICES=cpu,cuda%s LIMN_CUDA_LIB=%s LIMN_NVRTC_LIB=%s "
    .. "LIMN_CUBLAS_LIB=%s LIMN_CUDNN_LIB=%s LIMN_CACHE=%s"):format(
      devices["opencl:0"] and ",opencl" or "", lib, lib, lib, lib,
      U.quote(U.build .. "/cuda_standin/kernels"))
  devices["cuda:0"] = true
end
local all = {}
for _, name in ipairs {"cpu", "opencl:0", "cuda:0"} do
  if devices[name] then all[#all + 1] = name end
end

-- A process of its own: `device` is one, `devices` are all; prints lines
-- "key number...", which come back as a table.
local function process(device, source)
  local opening = ([[
    local limn = require "limn"
    local device, devices = %q, {"%s"}
    -- y = 2 a - b of each row, and the rows that are asked about
    limn.manual_seed(3)
    local x, some = limn.randn(64, 2), limn.tensor {{1, 2}, {-1, 0.5}}
    local y = x[{{}, {1}}] * 2 - x[{{}, {2}}]
    local function show(key, t)
      io.write(key)
      local flat = t:reshape(-1):totable()
      for _, v in ipairs(flat) do io.write((" %%.7g"):format(v)) end
      io.write "\n"
    end
    ]]):format(device, table.concat(all, '", "'))
  local text, ok = U.lua(opening .. source, environment)
  assert(ok, text)
  local lines = {}
  for line in text:gmatch "[^\n]+" do
    local key, rest = line:match "^(%S+) (.*)$"
    assert(key, text)
    lines[key] = {}
    for v in rest:gmatch "%S+" do table.insert(lines[key], tonumber(v)) end
  end
  return lines
end

-- The only process that has the model's Lua: trains a little where it traced.
local function trace(device, path)
  return process(device, ([[
    local nn = limn.nn
    local net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.LayerNorm(16),
                              nn.Linear(16, 1))
    local opt = limn.optim.Adam(net, {lr = 0.03})
    local loss = limn.value_and_grad(function(a, b)
      return nn.mse_loss(net(a), b)
    end, net)
    local infer = limn.trace(net, x:to(device))
    local step = limn.trace(function(a, b)
      local l, g = loss(a, b)
      opt:step(g)
      return l
    end, x:to(device), y:to(device))
    local l = step(x:to(device), y:to(device))
    limn.save(%q, {infer = infer, step = step})
    show("loss", l)
    show("text", limn.tensor {#tostring(infer), #tostring(step)})
    ]]):format(path))
end

-- Loads the file, trains on one device, infers on all.
local function train(device, from, to)
  return process(device, ([[
    local l = limn.load(%q)
    local losses = {}
    for i = 1, 60 do losses[i] = l.step(x:to(device), y:to(device)) end
    show("losses", limn.stack(losses))
    for _, d in ipairs(devices) do show(d, l.infer(some:to(d))) end
    limn.save(%q, l)]]):format(from, to))
end

-- Loads what was trained, infers on all devices, trains on each in turn.
local function use(path)
  return process("cpu", ([[
    local l = limn.load(%q)
    for _, d in ipairs(devices) do show(d, l.infer(some:to(d))) end
    local losses = {}
    for i = 1, 3 * #devices do
      local d = devices[i %% #devices + 1]
      losses[i] = l.step(x:to(d), y:to(d)):to "cpu"
    end
    show("losses", limn.stack(losses))]]):format(path))
end

describe("One file, traced on", function()
  local texts
  for _, traced in ipairs(all) do
    it(traced .. ", trains and infers on every device", function()
      U.with_file(function(path)
        local text = trace(traced, path).text
        texts = texts or text
        assert.are.same(texts, text) -- the graph is the same everywhere
        local first
        for _, trained in ipairs(all) do
          U.with_file(function(path2)
            local a = train(trained, path, path2)
            local what = ("traced on %s, trained on %s"):format(traced, trained)
            assert(a.losses[60] < a.losses[1] / 4, what)
            first = first or a
            U.close(a.losses, first.losses, 1e-3, 1, what)
            local b = use(path2)
            for _, d in ipairs(all) do
              U.close(a[d], a.cpu, 1e-4, 1, what .. ", run on " .. d)
              U.close(b[d], a.cpu, 1e-4, 1, what .. ", loaded, run on " .. d)
              U.close(a[d], {0, -2.5}, 1, 1, what) -- it has learnt
            end
            assert(b.losses[1] < a.losses[60] * 1.5, what)
            assert(b.losses[#b.losses] < b.losses[1] * 1.5, what)
          end)
        end
      end)
    end)
  end

  it("OpenCL was among them", function()
    if devices["opencl:0"] then return end
    pending "no OpenCL device, which PoCL makes of any CPU, is here"
  end)

  it("CUDA was among them", function()
    if devices["cuda:0"] then return end
    pending "neither a GPU nor g++, which the stand-in needs, is here"
  end)
end)
