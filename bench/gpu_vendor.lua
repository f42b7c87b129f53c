-- What the GPU benchmarks share: time, and the vendor's own libraries, called
-- without limn.
local ffi = require "ffi"
local V = {}

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
function V.measure(f, wait)
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

-- -- The vendor's ------------------------------------------------------------

function V.library(variable, names)
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

function V.get(type, f, ...)
  local p = ffi.new(type .. "[1]")
  local code = f(p, ...)
  if code ~= 0 then error("the driver fails with " .. code, 0) end
  return p[0]
end

-- Runs f with the device's context current and a stream.
function V.with_context(device, f, ...)
  local cu = V.library("LIMN_CUDA_LIB", {"libcuda.so.1"})
  if not V.context then
    cu.cuInit(0)
    V.context = V.get("void *", cu.cuDevicePrimaryCtxRetain,
                      tonumber(device:match "%d+"))
  end
  cu.cuCtxPushCurrent_v2(V.context)
  V.stream = V.stream or V.get("void *", cu.cuStreamCreate, 1)
  local ok, r = pcall(f, cu, ...)
  cu.cuCtxPopCurrent_v2(ffi.new "void *[1]")
  if not ok then error(r, 0) end
  return r
end

-- Nanoseconds a byte that the driver's copy reads and writes.
function V.copy_cost(cu, bytes)
  local a = V.get("uint64_t", cu.cuMemAlloc_v2, bytes)
  local b = V.get("uint64_t", cu.cuMemAlloc_v2, bytes)
  local ns = V.measure(function()
    cu.cuMemcpyDtoDAsync_v2(a, b, bytes, V.stream)
  end, function() cu.cuStreamSynchronize(V.stream) end)
  cu.cuMemFree_v2(a)
  cu.cuMemFree_v2(b)
  return ns / bytes / 2
end

-- Numbers from 1 to 2 and their negatives, at random: a GPU multiplies noughts
-- with less power, and so faster.
function V.fill(cu, to, n, dtype)
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
function V.cublas_cost(cu, n, dtype)
  local blas = V.library("LIMN_CUBLAS_LIB", {"libcublas.so.13",
                                             "libcublas.so.12",
                                             "libcublas.so.11"})
  local kind, size = unpack(types[dtype])
  if not V.blas then
    V.blas = V.get("void *", blas.cublasCreate_v2)
    blas.cublasSetStream_v2(V.blas, V.stream)
  end
  local p = {}
  for i = 1, 3 do p[i] = V.get("uint64_t", cu.cuMemAlloc_v2, n * n * size) end
  for i = 1, 2 do V.fill(cu, p[i], n * n, dtype) end
  local one, zero = ffi.new("float[1]", 1), ffi.new "float[1]"
  local ns = V.measure(function()
    local code = blas.cublasGemmEx(V.blas, 0, 0, n, n, n, one, p[1], kind, n,
                                   p[2], kind, n, zero, p[3], kind, n, 68, -1)
    if code ~= 0 then error("cuBLAS fails with " .. code, 0) end
  end, function() cu.cuStreamSynchronize(V.stream) end)
  for i = 1, 3 do cu.cuMemFree_v2(p[i]) end
  return ns
end

return V
