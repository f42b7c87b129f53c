-- A convolution for bench/gpu.lua: what limn takes for it, with cuDNN and by
-- its own kernel, and what cuDNN called alone does. As a program, luajit
-- bench/gpu_conv.lua DEVICE DTYPE ROWS, it prints limn's nanoseconds.
package.path = "bench/?.lua;" .. package.path
local ffi = require "ffi"
local limn = require "limn"
local vendor = require "gpu_vendor"
local C = {}
local channels, size = 64, 56 -- windows of 3 x 3

ffi.cdef [[
int cudnnCreate(void **);
int cudnnSetStream(void *, void *);
int cudnnCreateTensorDescriptor(void **);
int cudnnSetTensorNdDescriptor(void *, int, int, const int *, const int *);
int cudnnCreateFilterDescriptor(void **);
int cudnnSetFilterNdDescriptor(void *, int, int, int, const int *);
int cudnnCreateConvolutionDescriptor(void **);
int cudnnSetConvolutionNdDescriptor(void *, int, const int *, const int *,
                                    const int *, int, int);
int cudnnSetConvolutionMathType(void *, int);
typedef struct {
  int algo, status;
  float time;
  size_t memory;
  int determinism, math, reserved[3];
} bench_found;
int cudnnGetConvolutionForwardAlgorithm_v7(void *, void *, void *, void *,
                                           void *, int, int *, bench_found *);
int cudnnConvolutionForward(void *, const float *, void *, uint64_t, void *,
                            uint64_t, void *, int, uint64_t, size_t,
                            const float *, void *, uint64_t);
]]

-- limn's.
function C.cost(device, dtype, rows)
  local one = {1, 1}
  local x = limn.randn(rows, channels, size, size, device):to(dtype)
  local w = limn.randn(channels, channels, 3, 3, device):to(dtype)
  local g = limn.trace {function(a, b)
    return limn.conv(a, b, one, one, one, 1)
  end, x, w, name = "bench"}
  local y = g(x, w)
  local ns = vendor.measure(function() y = g(x, w) end,
                            function() limn.wait(device) end)
  assert(y)
  return ns
end

-- limn's without cuDNN: which libraries there are is read once in a process.
function C.own_cost(device, dtype, rows)
  local pipe = io.popen(("LIMN_CUDNN_LIB=off '%s' bench/gpu_conv.lua %s %s %d")
    :format(arg[-1] or "luajit", device, dtype, rows))
  local ns = tonumber(pipe:read "*a")
  pipe:close()
  return ns
end

local function check(code)
  if code ~= 0 then error("cuDNN fails with " .. code, 0) end
end

local function ints(...) return ffi.new("int[?]", select("#", ...), ...) end

local function describe(dnn, rows, kind, half)
  local get, c, s = vendor.get, channels, size
  local x = get("void *", dnn.cudnnCreateTensorDescriptor)
  check(dnn.cudnnSetTensorNdDescriptor(x, kind, 4, ints(rows, c, s, s),
                                       ints(c * s * s, s * s, s, 1)))
  local w = get("void *", dnn.cudnnCreateFilterDescriptor)
  check(dnn.cudnnSetFilterNdDescriptor(w, kind, 0, 4, ints(c, c, 3, 3)))
  local v = get("void *", dnn.cudnnCreateConvolutionDescriptor)
  check(dnn.cudnnSetConvolutionNdDescriptor(v, 2, ints(1, 1), ints(1, 1),
                                            ints(1, 1), 1, 0))
  check(dnn.cudnnSetConvolutionMathType(v, half and 1 or 3))
  return x, w, v
end

-- The first algorithm of cuDNN's list, within 256 MiB.
local function choose(dnn, h, x, w, v)
  local found, n = ffi.new "bench_found[10]", ints(0)
  check(dnn.cudnnGetConvolutionForwardAlgorithm_v7(h, x, w, v, x, 10, n, found))
  for i = 0, n[0] - 1 do
    if found[i].status == 0 and found[i].memory <= 2 ^ 28 then
      if found[i].math ~= 0 then
        check(dnn.cudnnSetConvolutionMathType(v, found[i].math))
      end
      return found[i].algo, tonumber(found[i].memory)
    end
  end
  error("cuDNN has no algorithm", 0)
end

-- cuDNN's.
function C.cudnn_cost(cu, dtype, rows)
  local dnn = vendor.library("LIMN_CUDNN_LIB", {"libcudnn.so.9",
                                                "libcudnn.so.8"})
  local half = dtype == "float16"
  vendor.dnn = vendor.dnn or vendor.get("void *", dnn.cudnnCreate)
  check(dnn.cudnnSetStream(vendor.dnn, vendor.stream))
  local x, w, v = describe(dnn, rows, half and 2 or 0, half)
  local algo, space = choose(dnn, vendor.dnn, x, w, v)
  local one, zero = ffi.new("float[1]", 1), ffi.new "float[1]"
  local wide, narrow = rows * channels * size ^ 2, channels ^ 2 * 9
  local p = {}
  for i, n in ipairs {wide, narrow, wide} do
    p[i] = vendor.get("uint64_t", cu.cuMemAlloc_v2, n * (half and 2 or 4))
    if i < 3 then vendor.fill(cu, p[i], n, dtype) end
  end
  p[4] = vendor.get("uint64_t", cu.cuMemAlloc_v2, math.max(space, 256))
  local ns = vendor.measure(function()
    check(dnn.cudnnConvolutionForward(vendor.dnn, one, x, p[1], w, p[2], v,
                                      algo, p[4], space, zero, x, p[3]))
  end, function() cu.cuStreamSynchronize(vendor.stream) end)
  for i = 1, 4 do cu.cuMemFree_v2(p[i]) end
  return ns
end

if arg[0]:find "gpu_conv%.lua$" then
  print(C.cost(arg[1], arg[2], tonumber(arg[3])))
end
return C
