-- The stand-in for CUDA's libraries must catch what it claims to catch: each
-- spec drives it directly, in a process of its own.
local U = require "support.util"

local standin = U.build .. "/cuda_standin/libcuda.so.1"

-- A device, its context, a stream s, and helpers.
local opening = [[
local ffi = require "ffi"
ffi.cdef [=[
int cuInit(unsigned);
int cuDevicePrimaryCtxRetain(void **, int);
int cuDevicePrimaryCtxRelease_v2(int);
int cuCtxPushCurrent_v2(void *);
int cuCtxPopCurrent_v2(void **);
int cuStreamCreate(void **, unsigned);
int cuStreamSynchronize(void *);
int cuStreamDestroy_v2(void *);
int cuMemAlloc_v2(uint64_t *, size_t);
int cuMemFree_v2(uint64_t);
int cuMemFreeAsync(uint64_t, void *);
int cuMemFreeHost(void *);
int cuMemPoolCreate(void **, const void *);
int cuMemPoolSetAccess(void *, const void *, size_t);
int cuMemAllocFromPoolAsync(uint64_t *, size_t, void *, void *);
int cuMemcpyPeerAsync(uint64_t, void *, uint64_t, void *, size_t, void *);
int cuEventCreate(void **, unsigned);
int cuEventRecord(void *, void *);
int cuEventDestroy_v2(void *);
int cuStreamWaitEvent(void *, void *, unsigned);
int cuMemAllocHost_v2(void **, size_t);
int cuMemcpyHtoDAsync_v2(uint64_t, const void *, size_t, void *);
int cuMemcpyDtoHAsync_v2(void *, uint64_t, size_t, void *);
int cuModuleLoadData(void **, const void *);
int cuModuleUnload(void *);
int cuModuleGetFunction(void **, void *, const char *);
int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned,
                   unsigned, unsigned, void *, void **, void **);
int cuStreamBeginCapture_v2(void *, int);
int cuStreamEndCapture(void *, void **);
int cuStreamGetCaptureInfo_v2(void *, int *, uint64_t *, void **, void ***,
                              size_t *);
int cuGraphInstantiateWithFlags(void **, void *, unsigned long long);
typedef struct { void *f; unsigned grid[3], block[3], shared;
                 void **params, **extra; } node_params;
int cuGraphExecKernelNodeSetParams(void *, void *, const node_params *);
int cuGraphLaunch(void *, void *);
int cuGraphExecDestroy(void *);
int cuGraphDestroy(void *);
int nvrtcCreateProgram(void **, const char *, const char *, int,
                       const char **, const char **);
int nvrtcCompileProgram(void *, int, const char **);
int nvrtcDestroyProgram(void **);
int nvrtcGetProgramLog(void *, char *);
int nvrtcGetCUBINSize(void *, size_t *);
int nvrtcGetCUBIN(void *, char *);
int nvrtcGetPTXSize(void *, size_t *);
int nvrtcGetPTX(void *, char *);
int cublasCreate_v2(void **);
int cublasSetStream_v2(void *, void *);
int cublasSetWorkspace_v2(void *, uint64_t, size_t);
int cublasGemmEx(void *, int, int, int, int, int, const float *, uint64_t, int,
                 int, uint64_t, int, int, const float *, uint64_t, int, int,
                 int, int);
]=]
local cu = ffi.load(os.getenv "STANDIN")
local function ok(rc) if rc ~= 0 then error("error " .. rc, 2) end end
local function get(f, ...)
  local p = ffi.new "void *[1]"
  ok(f(p, ...))
  return p[0]
end
local function alloc(n)
  local p = ffi.new "uint64_t[1]"
  ok(cu.cuMemAlloc_v2(p, n))
  return p[0]
end
ok(cu.cuInit(0))
local c = get(cu.cuDevicePrimaryCtxRetain, 0)
ok(cu.cuCtxPushCurrent_v2(c))
local s = get(cu.cuStreamCreate, 1)
local function image(source, arch)
  local p = get(cu.nvrtcCreateProgram, source, "k", 0, nil, nil)
  local options = ffi.new("const char *[2]",
                          {"--gpu-architecture=" .. (arch or "sm_75"),
                           "--fmad=false"})
  local rc = cu.nvrtcCompileProgram(p, 2, options)
  if rc ~= 0 then
    local log = ffi.new "char[10000]"
    ok(cu.nvrtcGetProgramLog(p, log))
    error(ffi.string(log))
  end
  local n = ffi.new "size_t[1]"
  local form = (arch or ""):find "compute" and "PTX" or "CUBIN"
  ok(cu["nvrtcGet" .. form .. "Size"](p, n))
  local data = ffi.new("char[?]", n[0])
  ok(cu["nvrtcGet" .. form](p, data))
  return data
end
local function kernel(source)
  local m = get(cu.cuModuleLoadData, image(source))
  return get(cu.cuModuleGetFunction, m, "k"), m
end
-- launch(f, groups, threads, addresses...)
local function launch(f, groups, threads, ...)
  local n = select("#", ...)
  local value = ffi.new("uint64_t[?]", n + 1, {...})
  local param = ffi.new("void *[?]", n + 1)
  for i = 0, n - 1 do param[i] = value + i end
  return cu.cuLaunchKernel(f, groups, 1, 1, threads, 1, 1, 0, s, param, nil)
end
-- Another device's context, made current.
local function second()
  local other = get(cu.cuDevicePrimaryCtxRetain, 1)
  ok(cu.cuCtxPushCurrent_v2(other))
  return other
end
-- A product of 8 x 8 matrices of a type.
local blas
local function product(a, b, out, type)
  if not blas then
    blas = get(cu.cublasCreate_v2)
    ok(cu.cublasSetStream_v2(blas, s))
  end
  local one, zero = ffi.new("float[1]", 1), ffi.new "float[1]"
  return cu.cublasGemmEx(blas, 0, 0, 8, 8, 8, one, a, type or 0, 8, b,
                         type or 0, 8, zero, out, type or 0, 8, 68, -1)
end
local function floats(p, n)
  local out = ffi.new("float[?]", n)
  ok(cu.cuMemcpyDtoHAsync_v2(out, p, n * 4, s))
  local t = {}
  for i = 0, n - 1 do -- some NaN look like nil to LuaJIT
    t[i + 1] = out[i] == out[i] and out[i] or "nan"
  end
  return table.concat(t, " ")
end
]]

-- What these compile is none of limn's sources.
local function run(source, env)
  local text, ok, code = U.run(("STANDIN=%s STANDIN_SOURCES= LIMN_DEVICES=cpu "
    .. "%s luajit -e %s"):format(U.quote(standin), env or "",
                                 U.quote(opening .. source)))
  return text, ok, code
end

local function right(source, pattern, env)
  local text, ok = run(source, env)
  assert(ok, text)
  assert(text:find(pattern, 1, true), text)
end

-- The process must say so and end with the status of wrong use.
local function caught(source, pattern, env)
  local text, _, code = run(source, env)
  assert.equal(86, code, text)
  assert(text:find(pattern, 1, true), text)
end

describe("the stand-in for CUDA #standin", function()
  if not U.has_cxx() then
    pending "runs kernels, where g++ is installed"
    return
  end

  it("runs blocks, barriers and shuffles as a GPU would", function()
    right([[
      local f = kernel [=[
        extern "C" __global__ void k(float *out) {
          __shared__ float all[64];
          float v = (float)threadIdx.x;
          for (int h = 16; h > 0; h /= 2)
            v += __shfl_down_sync(0xffffffffu, v, h);
          if (threadIdx.x % 32 == 0) all[threadIdx.x / 32] = v;
          __syncthreads();
          out[blockIdx.x * blockDim.x + threadIdx.x] = all[0] + all[1];
        }]=]
      local p = alloc(128 * 4)
      ok(launch(f, 2, 64, p))
      print(floats(p + 4 * 100, 2))]], "2016 2016")
  end)

  it("runs nothing before something waits", function()
    right([[
      local p = alloc(8)
      local host = ffi.cast("float *", get(cu.cuMemAllocHost_v2, 8))
      local f = kernel [=[
        extern "C" __global__ void k(float *out) { out[threadIdx.x] = 3; }]=]
      ok(launch(f, 1, 2, p))
      ok(cu.cuMemcpyDtoHAsync_v2(host, p, 8, s))
      local before = host[0]
      ok(cu.cuStreamSynchronize(s))
      print(before ~= 3, host[0])]], "true\t3")
  end)

  it("captures a graph and launches it twice", function()
    right([[
      local p, one = alloc(4), ffi.new("float[1]", 1)
      local f = kernel [=[
        extern "C" __global__ void k(float *out) { out[0] += 1; }]=]
      ok(cu.cuMemcpyHtoDAsync_v2(p, one, 4, s))
      ok(cu.cuStreamBeginCapture_v2(s, 2))
      ok(launch(f, 1, 1, p))
      local g = get(function(out) return cu.cuStreamEndCapture(s, out) end)
      local x = get(cu.cuGraphInstantiateWithFlags, g, 0)
      ok(cu.cuGraphLaunch(x, s))
      ok(cu.cuGraphLaunch(x, s))
      print(floats(p, 1))]], "3")
  end)

  it("lets a call fail when told to, once", function()
    right([[
      local p = ffi.new "uint64_t[1]"
      print(cu.cuMemAlloc_v2(p, 8), cu.cuMemAlloc_v2(p, 8),
            cu.cuMemAlloc_v2(p, 8))]], "0\t2\t0", "STANDIN_FAIL=cuMemAlloc:2")
  end)

  it("lets a call fail from then on", function()
    right([[
      local p = ffi.new "uint64_t[1]"
      print(cu.cuMemAlloc_v2(p, 8), cu.cuMemAlloc_v2(p, 8),
            cu.cuMemAlloc_v2(p, 8))]], "0\t2\t2", "STANDIN_FAIL=cuMemAlloc:2+")
  end)

  it("refuses a damaged image and one of another architecture", function()
    right([[
      local data = image('extern "C" __global__ void k(int *p) { *p = 1; }')
      local p = ffi.new "void *[1]"
      local a = cu.cuModuleLoadData(p, data)
      data[40] = data[40] + 1
      print(a, cu.cuModuleLoadData(p, data),
        cu.cuModuleLoadData(p, image(
          'extern "C" __global__ void k(int *p) { *p = 1; }', "sm_90")))]],
      "0\t200\t209")
  end)

  it("gives the compiler's words in the log", function()
    local text = run "image 'extern \"C\" __global__ void k() { nonsense; }'"
    assert(text:find("nonsense", 1, true), text)
  end)

  it("catches a host that reads device memory", function()
    right([[
      ffi.cdef "long write(int, const void *, size_t);"
      local p = ffi.cast("const void *", alloc(8))
      print(tonumber(ffi.C.write(2, p, 1)))]], "-1") -- a bad address
  end)

  it("catches what is done in no context or in another one", function()
    caught("cu.cuCtxPopCurrent_v2(nil) cu.cuMemAlloc_v2("
           .. "ffi.new 'uint64_t[1]', 8)", "no context is current")
    caught([[
      local other = get(cu.cuDevicePrimaryCtxRetain, 1)
      ok(cu.cuCtxPushCurrent_v2(other))
      cu.cuStreamSynchronize(s)]], "the stream is of another context")
  end)

  it("catches memory that is freed twice or used after it", function()
    caught("local p = alloc(8) ok(cu.cuMemFree_v2(p)) cu.cuMemFree_v2(p)",
           "is not allocated")
    local store = [[
      local f = kernel 'extern "C" __global__ void k(int *p) { *p = 1; }'
      local p = alloc(8)
      ]]
    caught(store .. "ok(cu.cuMemFree_v2(p)) launch(f, 1, 1, p)",
           "memory that was freed")
    caught(store .. "ok(cu.cuMemFreeAsync(p, s)) launch(f, 1, 1, p)",
           "used after cuMemFreeAsync")
  end)

  it("catches a pinned buffer that changes before it was copied", function()
    caught([[
      local p, host = alloc(8), ffi.cast("char *", get(cu.cuMemAllocHost_v2, 8))
      ok(cu.cuMemcpyHtoDAsync_v2(p, host, 8, s))
      host[0] = 1
      cu.cuStreamSynchronize(s)]], "pinned memory changed")
  end)

  it("catches kernels that reach past their memory", function()
    caught([[
      local f = kernel [=[
        extern "C" __global__ void k(int *p) { p[1024 * threadIdx.x] = 1; }]=]
      ok(launch(f, 1, 4, alloc(4096)))
      cu.cuStreamSynchronize(s)]], "an illegal address")
  end)

  it("catches what is written past the end of a small block", function()
    caught([[
      local f = kernel [=[
        extern "C" __global__ void k(int *p) { p[threadIdx.x] = 1; }]=]
      local p = alloc(8)
      ok(launch(f, 1, 3, p))
      ok(cu.cuMemFree_v2(p))]], "memory of 8 bytes was written past its end")
  end)

  it("catches threads that part at a barrier", function()
    caught([[
      local f = kernel [=[
        extern "C" __global__ void k(int *p) {
          if (threadIdx.x < 3) __syncthreads();
          p[threadIdx.x] = 1;
        }]=]
      ok(launch(f, 1, 4, alloc(4096)))
      cu.cuStreamSynchronize(s)]], "some threads returned before a barrier")
  end)

  it("catches a barrier that is missing", function()
    local body = [[
      extern "C" __global__ void k(float *p) {
        __shared__ float t[2];
        t[threadIdx.x] = (float)threadIdx.x;
        %s
        p[threadIdx.x] = t[1 - threadIdx.x];
      }]]
    local source = [[
      local f, p = kernel [=[%s]=], alloc(8)
      ok(launch(f, 1, 2, p))
      print(floats(p, 2))]]
    right(source:format(body:format "__syncthreads();"), "1 0")
    local text = run(source:format(body:format ""))
    assert(text:find "nan", text)
  end)

  it("gives NaN from a lane that has returned", function()
    right([[
      local f = kernel [=[
        extern "C" __global__ void k(float *p) {
          if (threadIdx.x == 1) return;
          float there = __shfl_down_sync(0xffffffffu, 1.0f, 2);
          float gone = __shfl_down_sync(0xffffffffu, 1.0f, 1);
          if (threadIdx.x == 0) p[0] = there, p[1] = gone;
        }]=]
      local p = alloc(8)
      ok(launch(f, 1, 3, p))
      print(floats(p, 2))]], "1 nan")
  end)

  it("catches launches that do not fit", function()
    local store = [[
      local f = kernel 'extern "C" __global__ void k(int *p) { *p = 1; }'
      ]]
    caught(store .. "launch(f, 1, 2048, alloc(8))", "a block of 2048 x 1 x 1")
    caught(store .. "launch(f, 0, 1, alloc(8))", "a grid of 0 x 1 x 1")
    caught(store .. "launch(f, 2 ^ 31, 1, alloc(8))",
           "a grid of 2147483648 x 1 x 1")
    for _, grid in ipairs {"1, 65536, 1", "1, 1, 65536"} do
      caught(store .. "local p = ffi.new('uint64_t[1]', alloc(8))"
             .. "local list = ffi.new('void *[2]') list[0] = p "
             .. "cu.cuLaunchKernel(f, " .. grid
             .. ", 1, 1, 1, 0, s, list, nil)", "a grid of 1 x ")
    end
    caught(store .. "launch(f, 1, 1)", "parameter 1 of 1 is missing")
    caught(store .. "launch(f, 1, 1, 12345)", "is no device address")
    caught(store .. "launch(f, 1, 1, alloc(8), 0)", "more than 1 parameters")
  end)

  it("catches what is left when the last user of a context goes", function()
    for make, words in pairs {
      ["alloc(8)"] = "memory of 8 bytes was not freed",
      [""] = "the stream was not destroyed",
      ["get(cu.cuEventCreate, 2)"] = "the event was not destroyed",
      ["kernel 'extern \"C\" __global__ void k() {}'"] =
        "the module was not destroyed",
    } do
      caught(make .. [[
        cu.cuCtxPopCurrent_v2(nil)
        cu.cuDevicePrimaryCtxRelease_v2(0)]], words)
    end
    caught("cu.cuDevicePrimaryCtxRelease_v2(0)", "is still current")
  end)

  it("catches more parameters and shared memory than there may be", function()
    local body = "kernel [=[ struct much { char c[%d]; }; "
      .. "extern \"C\" __global__ void k(much m, char *out) {"
      .. "__shared__ char t[%d]; t[threadIdx.x] = m.c[0]; __syncthreads();"
      .. "out[0] = t[m.c[1]]; }]=]"
    right(body:format(4088, 48 * 1024) .. " print 'fits'", "fits")
    caught(body:format(4096, 1), "4104 bytes of parameters")
    caught(body:format(8, 48 * 1024 + 4), "bytes of shared memory")
  end)

  it("catches vectors at addresses that are no multiple of their size",
     function()
    local body = [[
      local f = kernel [=[
        extern "C" __global__ void k(float4 *p) {
          float4 v = p[0]; v.x = 1; p[1] = v;
        }]=]
      ok(launch(f, 1, 1, alloc(64) + %d))
      print(cu.cuStreamSynchronize(s))]]
    right(body:format(16), "0")
    caught(body:format(4), "a misaligned address")
  end)

  it("catches an event of another context, and one that is gone", function()
    caught([[
      second()
      cu.cuEventRecord(get(cu.cuEventCreate, 2), s)]],
      "the stream is of another context")
    caught([[
      local e = get(cu.cuEventCreate, 2)
      ok(cu.cuEventDestroy_v2(e))
      cu.cuStreamWaitEvent(s, e, 0)]], "no event that lives")
  end)

  -- A stream's event may be waited for by another device's stream.
  it("lets work wait for another device's", function()
    right([[
      local p, host = alloc(4), ffi.new("float[1]", 7)
      local e = get(cu.cuEventCreate, 2)
      ok(cu.cuMemcpyHtoDAsync_v2(p, host, 4, s))
      ok(cu.cuEventRecord(e, s))
      local other = second()
      local t, q = get(cu.cuStreamCreate, 1), alloc(4)
      ok(cu.cuStreamWaitEvent(t, e, 0))
      ok(cu.cuMemcpyPeerAsync(q, other, p, c, 4, t))
      s = t
      print(floats(q, 1))]], "7")
  end)

  it("spoils a capture by what none may have", function()
    local calls = {
      ["cu.cuMemAlloc_v2(ffi.new 'uint64_t[1]', 8)"] = "an allocation",
      ["cu.cuMemFree_v2(p)"] = "a free",
      ["cu.cuMemAllocHost_v2(ffi.new 'void *[1]', 8)"] =
        "an allocation of pinned memory",
      ["cu.cuModuleLoadData(ffi.new 'void *[1]', data)"] = "loading a module",
      ["cu.cuStreamSynchronize(s)"] = "a wait",
      ["cu.cuMemFreeAsync(p, s)"] = "a free",
    }
    local body = [[
      local p = alloc(8)
      local data = image('extern "C" __global__ void k() {}')
      ok(cu.cuStreamBeginCapture_v2(s, %d))
      local rc = %s
      print("then", rc, cu.cuStreamEndCapture(s, ffi.new "void *[1]"))]]
    for call, what in pairs(calls) do
      caught(body:format(0, call), what .. " while the stream is captured")
      local text = run(body:format(1, call))
      assert(text:find "then\t900\t901", text)
    end
    -- The relaxed mode allows what does not wait for the stream.
    right(body:format(2, "cu.cuMemAlloc_v2(ffi.new 'uint64_t[1]', 8)"),
          "then\t0\t0")
    caught(body:format(2, "cu.cuStreamSynchronize(s)"), "a wait while")
  end)

  it("makes several nodes of a product in a graph, which take no parameters",
     function()
    right([[
      local p, q = alloc(256), alloc(256)
      local space = alloc(1024)
      assert(product(p, p, q) == 0)
      ok(cu.cublasSetWorkspace_v2(blas, space, 1024))
      for _ = 1, 3 do
        ok(cu.cuStreamBeginCapture_v2(s, 2))
        ok(product(p, p, q))
        local g = get(function(o) return cu.cuStreamEndCapture(s, o) end)
        local x = get(cu.cuGraphInstantiateWithFlags, g, 0)
        ok(cu.cuGraphLaunch(x, s))
        ok(cu.cuStreamSynchronize(s))
      end
      ffi.cdef "int standin_graph_nodes(void);"
      print("nodes", cu.standin_graph_nodes())]], "nodes\t6")
    caught([[
      local p, q = alloc(256), alloc(256)
      local f = kernel 'extern "C" __global__ void k(int *p) { *p = 1; }'
      assert(product(p, p, q) == 0)
      ok(cu.cublasSetWorkspace_v2(blas, alloc(1024), 1024))
      ok(cu.cuStreamBeginCapture_v2(s, 2))
      ok(product(p, p, q))
      local status, n = ffi.new "int[1]", ffi.new "size_t[1]"
      local nodes = ffi.new "void **[1]"
      ok(cu.cuStreamGetCaptureInfo_v2(s, status, nil, nil, nodes, n))
      local node = nodes[0][0]
      local g = get(function(o) return cu.cuStreamEndCapture(s, o) end)
      local x = get(cu.cuGraphInstantiateWithFlags, g, 0)
      cu.cuGraphExecKernelNodeSetParams(x, node, ffi.new("node_params", {f}))
      ]], "no kernel's node of this graph")
  end)

  it("catches new parameters for a node of another graph", function()
    caught([[
      local p = alloc(8)
      local f = kernel 'extern "C" __global__ void k(int *p) { *p = 1; }'
      local node, x
      for i = 1, 2 do
        ok(cu.cuStreamBeginCapture_v2(s, 2))
        for _ = 1, i do ok(launch(f, 1, 1, p)) end
        local n, nodes = ffi.new "size_t[1]", ffi.new "void **[1]"
        ok(cu.cuStreamGetCaptureInfo_v2(s, ffi.new "int[1]", nil, nil, nodes,
                                        n))
        node = node or nodes[0][0]
        local g = get(function(o) return cu.cuStreamEndCapture(s, o) end)
        x = get(cu.cuGraphInstantiateWithFlags, g, 0)
      end
      cu.cuGraphExecKernelNodeSetParams(x, node, ffi.new("node_params", {f}))
      ]], "no kernel's node of this graph")
  end)

  it("catches a product that is captured without a workspace", function()
    caught([[
      local p, q = alloc(256), alloc(256)
      ok(product(p, p, q))
      ok(cu.cuStreamBeginCapture_v2(s, 2))
      product(p, p, q)]], "a product is captured without workspace")
    caught([[
      local p, q = alloc(256), alloc(256)
      ok(product(p, p, q))
      ok(cu.cublasSetWorkspace_v2(blas, alloc(1024), 1024))
      ok(cu.cublasSetStream_v2(blas, s)) -- forgets it
      ok(cu.cuStreamBeginCapture_v2(s, 2))
      product(p, p, q)]], "a product is captured without workspace")
  end)

  it("refuses a type that the device's products do not have", function()
    right([[
      local p, q = alloc(128), alloc(128)
      print("float16", product(p, p, q, 2), "bfloat16", product(p, p, q, 14))
      ]], "float16\t0\tbfloat16\t15")
  end)

  it("keeps a pool's memory from other devices until it is told", function()
    right([[
      local props = ffi.new "int[24]"
      props[0], props[2] = 1, 1
      local pool = get(cu.cuMemPoolCreate, props)
      local p = ffi.new "uint64_t[1]"
      ok(cu.cuMemAllocFromPoolAsync(p, 8, pool, s))
      ok(cu.cuStreamSynchronize(s))
      local other = second()
      local t, q = get(cu.cuStreamCreate, 1), alloc(8)
      local a = cu.cuMemcpyPeerAsync(q, other, p[0], c, 8, t)
      ok(cu.cuMemPoolSetAccess(pool, ffi.new("int[3]", 1, 1, 3), 1))
      print(a, cu.cuMemcpyPeerAsync(q, other, p[0], c, 8, t))]], "217\t0")
  end)

  it("refuses PTX for newer devices and newer drivers", function()
    local source = [[
      print(cu.cuModuleLoadData(ffi.new "void *[1]", image(
        'extern "C" __global__ void k() {}', "compute_%d")))]]
    right(source:format(75), "0\n")
    right(source:format(80), "209")
    right(source:format(75), "222", "STANDIN_VERSION=12080")
  end)
end)
