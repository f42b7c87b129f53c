-- The benchmark of a GPU: luajit bench/gpu.lua BUILD DEVICE [PYTHON]
-- Each case against what the hardware or its vendor's library takes for the
-- same: ratio = our time / theirs, and the limit that we have set ourselves.
-- Memory-bound cases are compared with the driver's own copy of as many bytes,
-- products with cuBLAS called alone. Prints a table and writes bench-gpu.json.
local ffi = require "ffi"
local limn = require "limn"
local nn, optim = limn.nn, limn.optim
local build, device, python = arg[1] or "build", arg[2] or "cuda:0", arg[3]

ffi.cdef [[
typedef struct { long s, ns; } bench_time;
int clock_gettime(int, bench_time *);
int cuInit(unsigned);
int cuDevicePrimaryCtxRetain(void **, int);
int cuCtxPushCurrent_v2(void *);
int cuCtxPopCurrent_v2(void **);
int cuMemAlloc_v2(uint64_t *, size_t);
int cuMemFree_v2(uint64_t);
int cuMemcpyHtoD_v2(uint64_t, const void *, size_t);
int cuMemcpyDtoDAsync_v2(uint64_t, uint64_t, size_t, void *);
int cuStreamCreate(void **, unsigned);
int cuStreamSynchronize(void *);
int cublasCreate_v2(void **);
int cublasSetStream_v2(void *, void *);
int cublasGemmEx(void *, int, int, int, int, int, const float *, uint64_t, int,
                 int, uint64_t, int, int, const float *, uint64_t, int, int,
                 int, int);
]]

local time = ffi.new "bench_time"
local function now()
  ffi.C.clock_gettime(1, time)
  return tonumber(time.s) * 1e9 + tonumber(time.ns)
end

-- Median nanoseconds of f, which `wait` ends: rounds of about 20 ms.
local function measure(f, wait)
  local n, rounds = 1, {}
  f()
  wait()
  repeat
    local t = now()
    for _ = 1, n do f() end
    wait()
    t = now() - t
    if t < 5e6 and n < 1e6 then
      n = n * math.max(2, math.min(10, math.floor(2e7 / (t + 1))))
    else
      rounds[#rounds + 1] = t / n
    end
  until #rounds == 9
  table.sort(rounds)
  return rounds[5]
end
local function wait() limn.wait(device) end

-- -- The vendor's ------------------------------------------------------------

local vendor = {}
local function library(variable, names)
  local named = os.getenv(variable)
  if named and named ~= "" then names = {named} end
  for _, name in ipairs(names) do
    for _, folder in ipairs {"", "/usr/local/cuda/lib64/"} do
      local ok, lib = pcall(ffi.load, folder .. name)
      if ok then return lib end
    end
  end
  error("no " .. names[1], 0)
end

local function get(type, f, ...)
  local p = ffi.new(type .. "[1]")
  local code = f(p, ...)
  if code ~= 0 then error("the driver fails with " .. code, 0) end
  return p[0]
end

-- Runs f with the device's context current and a stream.
local function with_context(f, ...)
  local cu = library("LIMN_CUDA_LIB", {"libcuda.so.1"})
  if not vendor.context then
    cu.cuInit(0)
    vendor.context = get("void *", cu.cuDevicePrimaryCtxRetain,
                         tonumber(device:match "%d+"))
  end
  cu.cuCtxPushCurrent_v2(vendor.context)
  vendor.stream = vendor.stream or get("void *", cu.cuStreamCreate, 1)
  local ok, r = pcall(f, cu, ...)
  cu.cuCtxPopCurrent_v2(ffi.new "void *[1]")
  if not ok then error(r, 0) end
  return r
end

-- Nanoseconds a byte that the driver's copy reads and writes.
local function copy_cost(cu, bytes)
  local a = get("uint64_t", cu.cuMemAlloc_v2, bytes)
  local b = get("uint64_t", cu.cuMemAlloc_v2, bytes)
  local ns = measure(function()
    cu.cuMemcpyDtoDAsync_v2(a, b, bytes, vendor.stream)
  end, function() cu.cuStreamSynchronize(vendor.stream) end)
  cu.cuMemFree_v2(a)
  cu.cuMemFree_v2(b)
  return ns / bytes / 2
end

-- Numbers from 1 to 2 and their negatives, at random: a GPU multiplies noughts
-- with less power, and so faster.
local function fill(cu, to, n, dtype)
  local wide = dtype == "float32"
  local one = wide and 0x3f800000 or dtype == "float16" and 0x3c00 or 0x3f80
  local rest = wide and 2 ^ 23 or dtype == "float16" and 2 ^ 10 or 2 ^ 7
  local sign = wide and 2 ^ 31 or 2 ^ 15
  local host = ffi.new(wide and "uint32_t[?]" or "uint16_t[?]", n)
  for i = 0, n - 1 do
    host[i] = one + math.random(0, rest - 1) + sign * math.random(0, 1)
  end
  cu.cuMemcpyHtoD_v2(to, host, ffi.sizeof(host))
end

local types = {float32 = {0, 4}, float16 = {2, 2}, bfloat16 = {14, 2}}
local function cublas_cost(cu, n, dtype)
  local blas = library("LIMN_CUBLAS_LIB", {"libcublas.so.13",
                                           "libcublas.so.12",
                                           "libcublas.so.11"})
  local kind, size = unpack(types[dtype])
  if not vendor.blas then
    vendor.blas = get("void *", blas.cublasCreate_v2)
    blas.cublasSetStream_v2(vendor.blas, vendor.stream)
  end
  local p = {}
  for i = 1, 3 do p[i] = get("uint64_t", cu.cuMemAlloc_v2, n * n * size) end
  for i = 1, 2 do fill(cu, p[i], n * n, dtype) end
  local one, zero = ffi.new("float[1]", 1), ffi.new "float[1]"
  local ns = measure(function()
    local code = blas.cublasGemmEx(vendor.blas, 0, 0, n, n, n, one, p[1], kind,
                                   n, p[2], kind, n, zero, p[3], kind, n, 68,
                                   -1)
    if code ~= 0 then error("cuBLAS fails with " .. code, 0) end
  end, function() cu.cuStreamSynchronize(vendor.stream) end)
  for i = 1, 3 do cu.cuMemFree_v2(p[i]) end
  return ns
end

-- -- Cases -------------------------------------------------------------------

local results = {}
local function case(name, ours, ref, limit)
  results[#results + 1] = {name = name, ours = ours, ref = ref, limit = limit}
end

local MEGA = tonumber(os.getenv "LIMN_BENCH_SIZE") or 64 -- 2^20 elements
local rows, cols = math.ceil(MEGA * 256), 4096
local ok, byte = pcall(with_context, copy_cost, MEGA * 4 * 2 ^ 20)
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
  local fine, ref = pcall(with_context, cublas_cost, n, c[1])
  if not fine then print("no cuBLAS to compare with: " .. tostring(ref)) end
  case(("product %d^3, %s"):format(n, c[1]), ns, fine and ref or nil, 1.03)
end

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
