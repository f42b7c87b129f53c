-- The CUDA device beyond what every device does: libraries that are missing,
-- the cache of compiled kernels, recorded launches, memory that runs out, calls
-- that fail, several devices. Each runs in a process of its own, on the
-- stand-in; what it computes with CUDA is compared with the CPU.
local U = require "support.util"

local standin = U.build .. "/cuda_standin/libcuda.so.1"

-- A small net and what it gives on a device.
local opening = [[
local limn = require "limn"
local nn = limn.nn
limn.manual_seed(7)
local function close(a, b)
  local off = (a:to "cpu" - b:to "cpu"):abs():max():item()
  assert(off < 1e-4, off)
end
local function same(a, b)
  assert(a:to "cpu":eq(b:to "cpu"):all():item())
end
local function net(n)
  return nn.Sequential(nn.Linear(n, 32), nn.Tanh(), nn.Linear(32, 8))
end
local m = net(64)
local infer = limn.trace {m, limn.randn(1, 64)}
local function right(dev)
  local x = limn.randn(4, 64)
  close(infer(x:to(dev or "cuda:0")), infer(x))
end
]]

local function environment(env)
  local lib = U.quote(standin)
  return ("LIMN_DEVICES=cpu,cuda LIMN_CUDA_LIB=%s LIMN_NVRTC_LIB=%s "
    .. "LIMN_CUBLAS_LIB=%s LIMN_CUDNN_LIB=%s LIMN_CACHE=off %s"):format(
    lib, lib, lib, lib, env or "")
end

local function run(source, env)
  return U.lua(opening .. source, environment(env))
end

-- The source runs to its end without an error.
local function works(source, env)
  local text, ok = run(source, env)
  assert(ok, text)
  return text
end

local function says(source, pattern, env)
  local text = run(source, env)
  assert(text:find(pattern, 1, true), text)
end

describe("CUDA #cuda", function()
  if not U.has_cxx() then
    pending "runs on the stand-in, where g++ is installed"
    return
  end

  describe("says what is missing:", function()
    local notes = "print((select(3, limn.devices {all = true})))"
    it("the driver", function()
      says(notes, "cuda: cannot load /none/libcuda.so, the NVIDIA driver",
           "LIMN_CUDA_LIB=/none/libcuda.so")
    end)
    it("the compiler", function()
      says(notes, "cuda: cannot load /none/nvrtc.so, the compiler",
           "LIMN_NVRTC_LIB=/none/nvrtc.so")
    end)
    it("a GPU", function()
      says(notes, "cuda: the driver finds no GPU", "STANDIN_DEVICES=none")
    end)
    it("what a library is too old for", function()
      says(notes, "cuda: the driver lacks cuInit", "LIMN_CUDA_LIB=libm.so.6")
      says(notes, "cuda: NVRTC lacks nvrtcVersion", "LIMN_NVRTC_LIB=libm.so.6")
      says([[
        local a = limn.randn(200, 200):to "cuda:0"
        a:matmul(a)
      ]] .. notes, "cuda: cuBLAS lacks cublasCreate_v2",
           "LIMN_CUBLAS_LIB=libm.so.6")
    end)
    it("a driver that does not start", function()
      says(notes, "cuda: the driver does not start: CUDA_ERROR_",
           "STANDIN_FAIL=cuInit:1")
      -- As a toolkit's stub of the driver does.
      says(notes, "cuda: the driver does not start: error 34",
           "STANDIN_FAIL=cuInit:1:34")
    end)
    it("a compiler that knows no architecture of the device", function()
      says(notes, "cannot compile for stand-in sm_35 (compute capability 3.5)",
           "STANDIN_DEVICES=35")
    end)
    it("cuBLAS, and makes products itself", function()
      says([[
        local a = limn.randn(200, 200)
        close(a:to "cuda:0":matmul(a:to "cuda:0"), a:matmul(a))
      ]] .. notes, "cuda: cannot load /none/cublas.so, products are slower",
           "LIMN_CUBLAS_LIB=/none/cublas.so")
    end)
    it("cuBLAS and cuDNN, before anything has wanted them", function()
      says(notes, "cuda: cannot load /none/a.so, products are slower without; "
           .. "cuda: cannot load /none/b.so, convolutions are slower without",
           "LIMN_CUBLAS_LIB=/none/a.so LIMN_CUDNN_LIB=/none/b.so")
    end)
  end)

  it("opens cuBLAS and cuDNN only for who asks for them all", function()
    U.with_file(function(path)
      U.run(("cp %s %s"):format(U.quote(standin), U.quote(path)))
      works(([[
        local function opened()
          for line in io.lines "/proc/self/maps" do
            if line:find(%q, 1, true) then return true end
          end
        end
        limn.devices()
        limn.devices {}
        right()
        assert(not opened())
        limn.devices {all = true}
        assert(opened())
      ]]):format(path), ("LIMN_CUBLAS_LIB=%s LIMN_CUDNN_LIB=%s"):format(
        U.quote(path), U.quote(path)))
    end)
  end)

  it("prefers libraries that are no newer than the driver", function()
    U.with_file(function(folder)
      os.remove(folder)
      local to = U.quote(folder)
      U.run("mkdir " .. to)
      for _, release in ipairs {"13", "12"} do
        U.run(("cp %s %s/libnvrtc.so.%s"):format(U.quote(standin), to, release))
      end
      for version, want in pairs {["13010"] = "13", ["12080"] = "12"} do
        says([[
          limn.devices()
          for line in io.lines "/proc/self/maps" do
            local release = line:match "libnvrtc.so.(%d+)"
            if release then print("release " .. release) break end
          end
        ]], "release " .. want, ("LIMN_NVRTC_LIB= LD_LIBRARY_PATH=%s "
            .. "STANDIN_VERSION=%s"):format(to, version))
      end
      U.run("rm -r " .. to)
    end)
  end)

  describe("replays", function()
    it("a plan from its second run on, with new inputs and weights", function()
      works [[
        local x = limn.randn(4, 64):to "cuda:0"
        local keep = {infer(x)}
        assert(limn.counters().records == 0)
        for i = 1, 6 do
          right()
          keep[#keep + 1] = infer(limn.randn(4, 64):to "cuda:0")
          m[1].weight:assign(limn.randn(32, 64))
        end
        local k = limn.counters()
        assert(k.records == 1 and k.replays == 12, k.records .. k.replays)
      ]]
    end)
    it("random numbers and number inputs anew in every run", function()
      works [[
        local g = limn.trace {function(x, k)
          return (x + limn.rand_like(x)):sum(1) * k
        end, limn.randn(500, 3), limn.number(2)}
        local x = limn.randn(500, 3)
        for i = 1, 5 do
          limn.manual_seed(i)
          local want = g(x, i)
          limn.manual_seed(i)
          close(g(x:to "cuda:0", i) * 0.01, want * 0.01)
        end
        assert(limn.counters().replays > 0)
      ]]
    end)
    it("up to what is printed, and after it", function()
      local text = works [[
        local g = limn.trace {function(x)
          local a = (x * 2):sum(1)
          limn.print(a:sum())
          return (a + 1):softmax(1):cumsum(1)
        end, limn.ones(3, 4)}
        for i = 1, 4 do close(g((limn.ones(3, 4) * i):to "cuda:0"),
                              limn.tensor {0.25, 0.5, 0.75, 1}) end
        assert(limn.counters().replays > 0)
      ]]
      assert(text:find("6.*12.*18.*24") or text:find("24.*48.*72.*96"), text)
    end)
    it("products of the vendor's whose operands move, after a while", function()
      works [[
        local g = limn.trace {function(a, b)
          return a:matmul(b) + 1, a:matmul(b)
        end, limn.randn(2, 256), limn.randn(256, 2)}
        local h = limn.trace {net(256), limn.randn(2, 256)}
        local keep = {}
        for i = 1, 14 do
          local x, y = limn.randn(300, 256), limn.randn(100, 256):t()
          local X, Y = x:to "cuda:0", y:to "cuda:0"
          local u, v = g(X, Y)
          local w = h(X)
          local U, V = g(x, y)
          close(u, U)
          close(v, V)
          close(w, h(x))
          keep[i] = {u, v, w, X, Y}
        end
        local k = limn.counters()
        assert(k.records < 8 and k.replays > 20, k.records .. k.replays)
      ]]
    end)
    it("products whose operands are large and move, no more", function()
      works [[
        local g = limn.trace {function(a) return a:matmul(a):softmax(1) end,
                              limn.randn(2, 2)}
        local keep = {}
        for i = 1, 8 do
          local x = limn.randn(1100, 1100) * 0.01
          keep[i] = {x:to "cuda:0"}
          keep[i][2] = g(keep[i][1])
        end
        local k = limn.counters()
        assert(k.records > 0 and k.replays < 6, k.records .. k.replays)
        close(keep[8][2], g(keep[8][1]:to "cpu"))
      ]]
    end)
    local large = [[
      local g = limn.trace {function(a) return a:matmul(a):softmax(1) end,
                            limn.randn(2, 2)}
      local function large() return (limn.randn(1100, 1100) * 0.01) end
    ]]
    it("products on, though an operand has moved once", function()
      works(large .. [[
        local small = limn.trace {function(a)
          return a:matmul(a):softmax(1)
        end, limn.randn(2, 2)}
        for _, c in ipairs {{g, large}, {small, function()
          return limn.randn(300, 300) * 0.01
        end}} do
          local keep, k = {}, limn.counters()
          local records, replays = k.records, k.replays
          for i = 1, 12 do
            local x = i % 6 == 1 and c[2]() or keep[i - 1][1]
            keep[i] = {x, i % 6 == 1 and x:to "cuda:0" or keep[i - 1][2]}
            keep[i][3] = c[1](keep[i][2])
          end
          k = limn.counters()
          records, replays = k.records - records, k.replays - replays
          assert(records == 2 and replays == 11, records .. " " .. replays)
          local before = limn.counters().kernels
          c[1](keep[12][2])
          assert(limn.counters().kernels - before == 2) -- nothing is copied
          close(keep[12][3], c[1](keep[12][1]))
        end
      ]])
    end)
    it("again, when what kept moving stays", function()
      works(large .. [[
        local keep, at = {}, nil
        for i = 1, 40 do
          if i <= 10 then at = large() end
          keep[i % 12] = {at:to "cuda:0", g(at:to "cuda:0")}
        end
        local x = at:to "cuda:0"
        local before = limn.counters().replays
        for i = 1, 40 do keep[1] = g(x) end
        assert(limn.counters().replays > before)
        close(keep[1], g(at))
      ]])
    end)
    for _, call in ipairs {"cuGraphInstantiateWithFlags", "cuGraphLaunch"} do
      it("later, where " .. call .. " has no memory for it now", function()
        works([[
          for i = 1, 12 do right() end
          assert(limn.counters().replays == 0)
          for i = 1, 12 do right() end
          assert(limn.counters().replays > 0)
        ]], "STANDIN_FAIL=" .. call .. ":1:2")
      end)
    end
    it("what fails as one of several steps", function()
      says([[
        local g = limn.trace {function(x)
          local y = x:cumsum(1)
          return y:softmax(1):cumsum(1)
        end, limn.randn(4)}
        local x = limn.randn(4):to "cuda:0"
        g(x)
        print(select(2, pcall(g, x)))
      ]], ("one of 3 steps, from cumsum to cumsum ("),
           "STANDIN_FAIL=cuGraphLaunch:1")
    end)
    for _, call in ipairs {"cuStreamBeginCapture:1",
                           "cuGraphInstantiateWithFlags:1",
                           "cuStreamGetCaptureInfo:2",
                           "cuGraphExecKernelNodeSetParams:1"} do
      it("nothing where " .. call:match "%w+" .. " fails, and says nothing",
         function()
        works("for i = 1, 4 do right() end", "STANDIN_FAIL=" .. call)
      end)
    end
  end)

  describe("keeps compiled kernels", function()
    local once = "right() print(limn.counters().compiles)"
    local function in_folder(f)
      U.with_file(function(path)
        os.remove(path)
        f(path, "LIMN_CACHE=" .. U.quote(path))
        U.run("rm -r " .. U.quote(path))
      end)
    end
    -- Nothing may be compiled.
    local function from_cache(env)
      works("right()", env .. " STANDIN_FAIL=nvrtcCompileProgram:1")
    end

    it("for later processes", function()
      in_folder(function(_, env)
        works(once, env)
        from_cache(env)
      end)
    end)
    it("in whole files only: one that is damaged is made anew", function()
      in_folder(function(path, env)
        works(once, env)
        U.run(("cd %s && for f in *; do printf x | dd of=$f bs=1 seek=200 "
          .. "conv=notrunc; done"):format(U.quote(path)))
        works(once, env)
        from_cache(env)
        U.run(("cd %s && for f in *; do truncate -s 60 $f; done")
          :format(U.quote(path)))
        works(once, env)
        U.run(("cd %s && for f in *; do : > $f; done"):format(U.quote(path)))
        works(once, env)
        from_cache(env)
      end)
    end)
    it("where several processes write at once", function()
      in_folder(function(path, env)
        local source = os.tmpname()
        U.write_file(source, opening .. "right()")
        local one = ("LUA_PATH=%s LUA_CPATH=%s %s luajit %s"):format(
          U.quote "lua/?.lua;lua/?/init.lua;;", U.quote(U.build .. "/?.so;;"),
          environment(env), source)
        local text, ok = U.run(("for i in 1 2 3 4; do %s & p=\"$p $!\"; done; "
          .. "for i in $p; do wait $i || exit 1; done"):format(one))
        os.remove(source)
        assert(ok, text)
        assert.equal("", (U.run("ls " .. U.quote(path) .. " | grep tmp")))
        from_cache(env)
      end)
    end)
    it("nowhere when the folder cannot be written", function()
      works(once, "LIMN_CACHE=/proc/none/at/all")
    end)
    it("apart by architecture", function()
      in_folder(function(_, env)
        works("right 'cuda:0'", env)
        says("right 'cuda:1'", "NVRTC error",
             env .. " STANDIN_FAIL=nvrtcCompileProgram:1")
      end)
    end)
  end)

  describe("memory", function()
    local full = [[
      local keep = {}
      local ok, e = pcall(function()
        for i = 1, 100 do keep[i] = limn.zeros(1024, 1024, "cuda:0") end
      end)
      assert(not ok)
      e = tostring(e)
      assert(e:find("out of device memory", 1, true), e)
      assert(#keep >= 10 and #keep < 16, #keep)
      keep = nil
      for i = 1, 100 do
        keep = limn.ones(1024, 1024, "cuda:0") * i
        right()
      end
      assert(keep[3][4]:item() == 100)
    ]]
    it("that runs out is an error, and there again when it is freed", function()
      works(full, "STANDIN_MEMORY=67108864")
    end)
    it("comes by plain allocations where there are no pools", function()
      works(full, "STANDIN_MEMORY=67108864 STANDIN_FAIL=cuMemPoolCreate:1")
    end)
    it("that is kept for reuse is given up for other sizes", function()
      works([[
        local x = limn.zeros(5000000, "cuda:0")
        x = nil
        collectgarbage()
        local y = {}
        for i = 1, 9 do y[i] = limn.zeros(1500000, "cuda:0") end
        y = nil
        collectgarbage()
        x = limn.ones(12000000, "cuda:0")
        assert(x:sum():item() == 12000000)
      ]], "STANDIN_MEMORY=67108864")
    end)
    it("that replays hold is given up, and taken anew", function()
      works([[
        local g = limn.trace {function(x) return x:sort(1) end,
                              limn.randn(4)}
        local full = {}
        for i = 1, 3 do -- each size holds its buffers
          for n = 200000, 1000000, 50000 do
            local x = limn.randn(n)
            for _ = 1, 2 do same(g(x:to "cuda:0"), x:sort(1)) end
          end
          full[i] = limn.ones({i == 3 and 9000000 or 1}, "cuda:0")
        end
        local k = limn.counters()
        assert(full[3]:sum():item() == 9000000)
        assert(k.records > 40 and k.replays > 40, k.records .. k.replays)
      ]], "STANDIN_MEMORY=67108864")
    end)
    it("that is kept goes back for what the driver itself has no room for",
       function()
      for _, call in ipairs {"cuModuleLoadData", "cublasCreate"} do
        works([[
          local a = limn.randn(200, 200)
          local b = a:to "cuda:0"
          close(b:matmul(b):tanh(), a:matmul(a):tanh())
          local ffi = require "ffi"
          ffi.cdef "int standin_calls(const char *);"
          local lib = ffi.load(os.getenv "LIMN_CUDA_LIB")
          assert(lib.standin_calls "cuMemPoolTrimTo" == 1)
        ]], "STANDIN_FAIL=" .. call .. ":1:2")
      end
    end)
    it("is copied whole through pinned parts, and without them", function()
      local copies = [[
        for _, n in ipairs {1, 1000, 262144, 262145, 3000001} do
          local x = limn.arange(n)
          same(x:to "cuda:0", x)
        end
      ]]
      works(copies)
      works(copies, "STANDIN_FAIL=cuMemAllocHost:1")
    end)
  end)

  it("computes on several devices, whose copies and cells follow", function()
    works [[
      local opt = limn.optim.Adam(m, {lr = 1e-2})
      local loss = limn.value_and_grad(function(x, t)
        return nn.cross_entropy(m(x), t)
      end, m)
      local step = limn.trace {function(x, t)
        local l, g = loss(x, t)
        opt:step(g)
        return l
      end, limn.randn(8, 64), limn.randint(1, 8, 8)}
      local x, t = limn.randn(8, 64), limn.randint(1, 8, 8)
      local first = step(x, t):item()
      local last
      for i = 1, 12 do
        local dev = ({"cuda:0", "cuda:1", "cpu"})[i % 3 + 1]
        last = step(x:to(dev), t:to(dev)):item()
        right(dev)
      end
      assert(last < first * 0.8, first .. " " .. last)
      local a = limn.randn(700, 900):to "cuda:0"
      same(a:to "cuda:1", a)
    ]]
  end)

  describe("copies between devices", function()
    local copies = [[
      local ffi = require "ffi"
      ffi.cdef "int standin_calls(const char *);"
      local function reads()
        return ffi.load(os.getenv "LIMN_CUDA_LIB").standin_calls(
          "cuMemcpyDtoHAsync")
      end
      local a = limn.randn(70, 90)
      local b = a:to "cuda:0"
      local n = reads()
      local c, d = b:to "cuda:1", b:t():to "cuda:1"
      local host = reads() > n
      same(c, a)
      same(d, a:t())
      same(c:to "cuda:0", a)
      print(host and "by the host" or "directly")
    ]]
    it("directly, from a pool that they may read or from plain memory",
       function()
      says(copies, "directly")
      says(copies, "directly", "STANDIN_FAIL=cuMemPoolCreate:1")
    end)
    for what, env in pairs {
      ["the copy fails"] = "STANDIN_FAIL=cuMemcpyPeerAsync:1",
      ["access is refused"] = "STANDIN_FAIL=cuMemPoolSetAccess:1",
      ["they do not reach each other"] = "STANDIN_PEERS=0",
    } do
      it("by the host where " .. what, function()
        says(copies, "by the host", env)
      end)
    end
  end)

  it("gives its contexts back, and opens them again", function()
    works [[
      local ffi = require "ffi"
      ffi.cdef "void *luaL_newstate(); void luaL_openlibs(void *);"
      ffi.cdef "int luaL_loadstring(void *, const char *);"
      ffi.cdef "int lua_pcall(void *, int, int, int); void lua_close(void *);"
      for i = 1, 3 do
        local L = ffi.C.luaL_newstate()
        ffi.C.luaL_openlibs(L)
        assert(ffi.C.luaL_loadstring(L, [=[
          local limn = require "limn"
          local x = limn.randn(100, 100):to "cuda:0"
          assert(x:matmul(x):tanh():to "cuda:1":sum():item())
        ]=]) == 0)
        assert(ffi.C.lua_pcall(L, 0, 0, 0) == 0)
        if i == 2 then right() end
        ffi.C.lua_close(L)
      end
      right()
    ]]
  end)

  it("names the line of a step whose launch fails", function()
    local text = run([[
      local g = limn.trace {function(x)
        local y = x:tanh() -- the line
        return y:cumsum(1)
      end, limn.randn(4)}
      local x = limn.randn(4):to "cuda:0"
      local ok, e = pcall(g, x)
      print(e)
    ]], "STANDIN_FAIL=cuLaunchKernel:1")
    local _, before = opening:gsub("\n", "")
    assert(text:find((":%d: tanh on cuda:0: CUDA: cuLaunchKernel failed: "
      .. "CUDA_ERROR_"):format(before + 2)), text)
  end)

  it("names the line of a step whose kernel does not compile", function()
    local text = run([[
      local g = limn.trace {function(x)
        return (x * 2):cumsum(1) -- the line
      end, limn.randn(4)}
      print(select(2, pcall(g, limn.randn(4):to "cuda:0")))
    ]], "STANDIN_FAIL=nvrtcCompileProgram:1")
    local _, before = opening:gsub("\n", "")
    assert(text:find((":%d: cuda:0: CUDA: a kernel did not compile"):format(
      before + 2)), text)
  end)

  it("says that a fault may be an earlier step's", function()
    says([[
      local x = limn.randn(4):to "cuda:0"
      print(select(2, pcall(function() return x:tanh() end)))
    ]], "this may come from any step since the last wait",
         "STANDIN_FAIL=cuLaunchKernel:1:700")
  end)

  it("says that NVRTC may be newer than the driver", function()
    says("right()", "NVRTC 13.0 may be newer than the driver",
         "STANDIN_DEVICES=86 STANDIN_VERSION=12080")
    works("right()", "STANDIN_DEVICES=86") -- by PTX of an older architecture
  end)

  it("makes products itself where cuBLAS cannot have its workspace", function()
    says([[
      local a = limn.randn(200, 200)
      close(a:to "cuda:0":matmul(a:to "cuda:0"), a:matmul(a))
      local ffi = require "ffi"
      ffi.cdef "int standin_calls(const char *);"
      local lib = ffi.load(os.getenv "LIMN_CUDA_LIB")
      print("products", lib.standin_calls "cublasGemmEx")
    ]], "products\t0", "STANDIN_MEMORY=6000000")
  end)

  it("starts cuBLAS once memory that is kept has been given back", function()
    local source = [[
      local a = limn.randn(200, 200)
      close(a:to "cuda:0":matmul(a:to "cuda:0"), a:matmul(a))
      print((select(3, limn.devices {all = true})))
      local ffi = require "ffi"
      ffi.cdef "int standin_calls(const char *);"
      local lib = ffi.load(os.getenv "LIMN_CUDA_LIB")
      print("products", lib.standin_calls "cublasGemmEx")
    ]]
    says(source, "products\t1", "STANDIN_FAIL=cublasCreate:1")
    says(source, "cuda: cuBLAS does not start (error 14)",
         "STANDIN_FAIL=cublasCreate:1+")
  end)

  it("rounds to TensorFloat-32 only when asked, in its own plan", function()
    works [[
      local a = limn.randn(4, 64):to "cuda:0"
      infer(a)
      local plans = limn.counters().plans
      infer(a)
      assert(limn.counters().plans == plans)
      limn.allow_tf32(true)
      infer(a)
      assert(limn.counters().plans == plans + 1)
      limn.allow_tf32(false)
      infer(a)
      assert(limn.counters().plans == plans + 1)
      assert(not pcall(limn.allow_tf32, 1))
    ]]
  end)

  -- Whatever fails, once: the run is right or says so, and all is given back.
  -- Calls that only undo what another did are left out.
  local function undoes(name)
    for _, word in ipairs {"Destroy", "Free", "Unload", "Release", "Pop"} do
      if name:find(word, 1, true) then return true end
    end
  end
  it("stands any call that fails", function()
    local header = U.read_file "core/cuda_api.h"
    for name in header:gmatch "F%(%w+, (%w+)[,_]" do
      local text, ok = "", true
      if not undoes(name) then text, ok = run([[
        local ok, e = pcall(function()
          for i = 1, 3 do right() end
          local a = limn.randn(200, 200)
          local b = limn.randn(200)
          local f = limn.trace {function(x, y) return x:matmul(x) + y end, a, b}
          close(f(a:to "cuda:0", b:to "cuda:0"), f(a, b))
        end)
        e = tostring(e)
        assert(ok or e:find "CUDA: " or e:find "no device" or
               e:find "out of .*memory", e)
      ]], "STANDIN_DEVICES=75 STANDIN_FAIL=" .. name .. ":1") end
      assert(ok, name .. ": " .. text)
    end
  end)
end)
