-- The benchmark of a GPU: luajit bench/gpu.lua BUILD DEVICE [PYTHON]
-- Each case against what the hardware or its vendor's library takes for the
-- same: ratio = our time / theirs, and the limit that we have set ourselves.
-- Memory-bound cases are compared with the driver's own copy of as many bytes,
-- products with cuBLAS and convolutions with cuDNN called alone. Prints a table
-- and writes bench-gpu.json.
package.path = "bench/?.lua;" .. package.path
local limn = require "limn"
local nn, optim = limn.nn, limn.optim
local vendor, conv = require "gpu_vendor", require "gpu_conv"
local build, device, python = arg[1] or "build", arg[2] or "cuda:0", arg[3]

-- -- Cases -------------------------------------------------------------------

local measure = vendor.measure
local function wait() limn.wait(device) end

local results = {}
local function case(name, ours, ref, limit)
  results[#results + 1] = {name = name, ours = ours, ref = ref, limit = limit}
end

local MEGA = tonumber(os.getenv "LIMN_BENCH_SIZE") or 64 -- 2^20 elements
local rows, cols = math.ceil(MEGA * 256), 4096
local ok, byte = pcall(vendor.with_context, device, vendor.copy_cost,
                       MEGA * 4 * 2 ^ 20)
if not ok then
  print("no copy to compare with: " .. tostring(byte))
  byte = nil
end

-- n tensors of the large shape, read or written once each.
local function streams(name, n, f, dtype)
  local x = limn.randn(rows, cols, device)
  if dtype then x = x:to(dtype) end
  local size = dtype and 2 or 4
  local g = limn.trace {f, x, name = "bench"}
  local y = g(x)
  local ns = measure(function() y = g(x) end, wait)
  assert(y)
  case(name, ns, byte and byte * n * size * rows * cols, 1 / 0.85)
end

streams("copy", 2, function(x) return x:clone() + 0 end)
streams("tanh(x * 2 + 1) * x", 2, function(x)
  return (x * 2 + 1):tanh() * x
end)
streams("the same, float16", 2, function(x)
  return (x * 2 + 1):tanh() * x
end, "float16")
streams("sum of all", 1, function(x) return x:sum() end)
streams("sum over rows", 1, function(x) return x:sum(2) end)
streams("sum over columns", 1, function(x) return x:sum(1) end)
streams("softmax", 2, function(x) return x:softmax(2) end)
streams("layer_norm", 2, function(x) return x:layer_norm() end)
streams("layer_norm, bfloat16", 2, function(x) return x:layer_norm() end,
        "bfloat16")
collectgarbage()

for _, c in ipairs {{"float32", 2048}, {"float16", 4096}, {"bfloat16", 4096}} do
  local n = math.floor(c[2] * math.sqrt(MEGA / 64))
  local a = limn.randn(n, n, device):to(c[1])
  local g = limn.trace {function(x) return x:matmul(x) end, a, name = "bench"}
  local y = g(a)
  local ns = measure(function() y = g(a) end, wait)
  assert(y)
  local fine, ref = pcall(vendor.with_context, device, vendor.cublas_cost,
                          n, c[1])
  if not fine then print("no cuBLAS to compare with: " .. tostring(ref)) end
  case(("product %d^3, %s"):format(n, c[1]), ns, fine and ref or nil, 1.03)
end

-- The middle of a ResNet, in limn as it is and by its own kernel.
local images_at_once = math.max(1, math.floor(MEGA))
for _, c in ipairs {{"float32", true, 1.03}, {"float16", true, 1.03},
                    {"float32", false, 2}} do
  local dtype, by_cudnn, limit = unpack(c)
  local fine, ref = pcall(vendor.with_context, device, conv.cudnn_cost, dtype,
                          images_at_once)
  if not fine then print("no cuDNN to compare with: " .. tostring(ref)) end
  local ns = by_cudnn and conv.cost(device, dtype, images_at_once) or
             conv.own_cost(device, dtype, images_at_once)
  case(("convolution 3 x 3, %s%s"):format(dtype, by_cudnn and "" or
    ", own kernel"), ns, fine and ref or nil, limit)
end
collectgarbage()

local policy = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64),
                             nn.Tanh(), nn.Linear(64, 8))
local infer = limn.trace {policy, limn.randn(1, 64), name = "policy"}
local x = limn.randn(1, 64, device)
case("policy net, batch 1, against 15 us",
     measure(function() infer(x) end, wait), 15e3, 1)

-- The net of examples/mnist_cnn.lua, a step of Adam on 128 images.
local cnn = nn.Sequential(
  nn.Conv2d(1, 32, 3, {padding = 1}), nn.ReLU(), nn.MaxPool2d(2),
  nn.Conv2d(32, 64, 3, {padding = 1}), nn.ReLU(), nn.MaxPool2d(2),
  nn.Flatten(), nn.Linear(64 * 49, 128), nn.ReLU(), nn.Linear(128, 10))
local opt = optim.Adam(cnn, {lr = 1e-3})
local loss = limn.value_and_grad(function(images, labels)
  return nn.cross_entropy(cnn(images), labels)
end, cnn)
local step = limn.trace {function(images, labels)
  local l, grads = loss(images, labels)
  opt:step(grads)
  return l
end, limn.randn(2, 1, 28, 28), limn.randint(1, 10, {2}, "int64"), name = "step"}
local images = limn.randn(128, 1, 28, 28, device)
local labels = limn.randint(1, 10, {128}, "int64"):to(device)
local torch
if python then
  local pipe = io.popen(("'%s' bench/peers_gpu.py 2>/dev/null"):format(python))
  torch = tonumber(pipe:read "*a")
  pipe:close()
end
case("MNIST CNN, training step of 128, PyTorch",
     measure(function() step(images, labels) end, wait), torch, 1)

-- -- The table ---------------------------------------------------------------

local json, over = {}, 0
print(("%-42s %12s %12s %7s %7s"):format(device, "ours us", "reference",
                                          "ratio", "limit"))
for i, r in ipairs(results) do
  local ratio = r.ref and r.ours / r.ref
  local mark = ratio and ratio > r.limit
  if mark then over = over + 1 end
  print(("%-42s %12.2f %12s %7s %7.2f %s"):format(r.name, r.ours / 1e3,
    r.ref and ("%.2f"):format(r.ref / 1e3) or "none here",
    ratio and ("%.2f"):format(ratio) or "", r.limit, mark and "OVER" or ""))
  json[i] = ('  {"name": "%s", "us": %.3f, "ratio": %s, "limit": %g}'):format(
    r.name, r.ours / 1e3, ratio and ("%.4f"):format(ratio) or "null", r.limit)
end
local f = assert(io.open(build .. "/bench-gpu.json", "w"))
f:write("[\n", table.concat(json, ",\n"), "\n]\n")
f:close()
print(over == 0 and "no case is over its limit" or over .. " over the limit")
