-- Convolutions by cuDNN, or by kernels of our own where it is missing, refuses
-- or fails. Each runs in a process of its own, on the stand-in.
local U = require "support.util"

local standin = U.build .. "/cuda_standin/libcuda.so.1"

-- right(f) compares a function of x, w and y on the device and on the CPU;
-- calls "Forward" counts what cuDNN was asked to do.
local opening = [[
local limn = require "limn"
local ffi = require "ffi"
ffi.cdef "int standin_calls(const char *); int standin_dnn_last();"
local lib = ffi.load(os.getenv "LIMN_CUDA_LIB")
local function calls(what)
  local n = 0
  for name in what:gmatch "%a+" do
    n = n + lib.standin_calls("cudnnConvolution" .. name)
  end
  return n
end
local function all() return calls "Forward BackwardData BackwardFilter" end
limn.manual_seed(5)
local x, w = limn.randn(2, 8, 40, 40), limn.randn(16, 8, 3, 3)
local y = limn.randn(2, 16, 40, 40)
local one, none = {1, 1}, {0, 0}
local function off(a, b)
  b = b:to "float64"
  return ((a:to "cpu":to "float64" - b):abs():max() / b:abs():max()):item()
end
local function conv(a, b) return limn.conv(a, b, one, one, one, 1) end
local function back(c, b)
  return limn.conv_transpose(c, b, one, one, none, one, 1)
end
local function weights(a, c, b)
  return limn.conv_weights(a, c, b, one, one, one, 1)
end
local function right(dev, most)
  local X, W, Y = x:to(dev), w:to(dev), y:to(dev)
  for _, v in ipairs {{conv(X, W), conv(x, w)}, {back(Y, W), back(y, w)},
                      {weights(X, Y, W), weights(x, y, w)}} do
    local e = off(v[1], v[2])
    assert(e < (most or 1e-6), e)
  end
end
local function notes() return (select(3, limn.devices {all = true})) end
]]

local function run(source, env)
  local lib = U.quote(standin)
  return U.lua(opening .. source, ("LIMN_DEVICES=cpu,cuda LIMN_CUDA_LIB=%s "
    .. "LIMN_NVRTC_LIB=%s LIMN_CUBLAS_LIB=%s LIMN_CUDNN_LIB=%s LIMN_CACHE=%s "
    .. "%s"):format(lib, lib, lib, lib,
    U.quote(U.build .. "/cuda_standin/kernels"), env or ""))
end

local function works(source, env)
  local text, ok = run(source, env)
  assert(ok, text)
end

describe("cuDNN #cuda", function()
  if not U.has_cxx() then
    pending "makes convolutions on the stand-in, where g++ is installed"
    return
  end

  it("makes convolutions and their gradients in every real dtype", function()
    works [[
      right("cuda:0")
      for dtype, most in pairs {float64 = 1e-12, float16 = 1e-2,
                                bfloat16 = 1e-1} do
        x, w, y = x:to(dtype), w:to(dtype), y:to(dtype)
        right(dtype == "bfloat16" and "cuda:1" or "cuda:0", most)
      end
      for _, name in ipairs {"Forward", "BackwardData", "BackwardFilter"} do
        assert(calls(name) == 4, name .. calls(name))
      end
    ]]
  end)

  it("makes those of one and three dims, with strides, dilation and groups",
     function()
    works [[
      for _, c in ipairs {
        {limn.randn(4, 16, 900), limn.randn(32, 8, 5), {2}, {3}, {2}, 2},
        {limn.randn(1, 8, 12, 14, 13), limn.randn(16, 8, 3, 3, 3), {1, 2, 1},
         {1, 0, 1}, {1, 1, 2}, 1},
      } do
        local a, b = c[1], c[2]
        local how = {unpack(c, 3)}
        local e = off(limn.conv(a:to "cuda:0", b:to "cuda:0", unpack(how)),
                      limn.conv(a, b, unpack(how)))
        assert(e < 1e-6, e)
      end
      assert(calls "Forward" == 2)
    ]]
  end)

  it("is left alone with what is small, or has other positions than it makes",
     function()
    works [[
      local a, b = limn.randn(1, 2, 5, 5), limn.randn(3, 2, 3, 3)
      assert(off(conv(a:to "cuda:0", b:to "cuda:0"), conv(a, b)) < 1e-6)
      assert(lib.standin_calls "cudnnCreate" == 0)
      local function wide(c, d) -- margins beyond what any window reaches
        return limn.conv_transpose(c, d, one, one, one, {2, 2}, 1)
      end
      local e = off(wide(y:to "cuda:0", w:to "cuda:0"), wide(y, w))
      assert(e < 1e-6, e)
      local whole = limn.ones({2, 8, 40, 40}, {dtype = "int32",
                                               device = "cuda:0"})
      local ones = limn.ones({16, 8, 3, 3}, {dtype = "int32",
                                             device = "cuda:0"})
      assert(conv(whole, ones):max():item() == 72)
      assert(all() == 0)
    ]]
  end)

  it("is left alone where an input has no elements", function()
    works [[
      local wide, v = {3, 3}, limn.randn(32, 16, 3, 3)
      local function zero(a, b)
        local got = limn.conv(a:to "cuda:0", b:to "cuda:0", one, wide, one, 1)
        local want = limn.conv(a, b, one, wide, one, 1)
        assert(got:numel() == want:numel())
        assert(got:to "cpu":eq(want):all():item())
      end
      zero(limn.zeros {64, 16, 0, 50}, v)
      zero(limn.zeros {64, 0, 40, 50}, limn.zeros {32, 0, 3, 3})
      local got = limn.conv_weights(
        limn.zeros({8, 16, 0, 50}, "cuda:0"),
        limn.ones({8, 32, 4, 54}, "cuda:0"), v:to "cuda:0", one, wide, one, 1)
      assert(got:abs():max():item() == 0)
      for name in ("Create SetTensorNdDescriptor SetFilterNdDescriptor")
        :gmatch "%w+" do
        assert(lib.standin_calls("cudnn" .. name) == 0, name)
      end
    ]]
  end)

  it("is left alone where it is switched off", function()
    works("right('cuda:0') assert(all() == 0 and not notes():find 'cuDNN' and "
          .. "not notes():find 'convolutions')", "LIMN_CUDNN_LIB=off")
  end)

  it("is noted as missing, and is not needed", function()
    works([[
      right("cuda:0")
      assert(notes():find("cuda: cannot load /none/dnn.so, convolutions are "
                          .. "slower without", 1, true), notes())
    ]], "LIMN_CUDNN_LIB=/none/dnn.so")
  end)

  it("is noted as not starting", function()
    works([[
      right("cuda:0")
      assert(notes():find("cuda: cuDNN does not start (error 4000)", 1, true))
      assert(all() == 0)
    ]], "STANDIN_FAIL=cudnnCreate:1+")
  end)

  it("starts once memory that is kept for reuse has been given back", function()
    works([[
      right("cuda:0")
      assert(all() == 3 and not notes():find "cuDNN", notes())
      assert(lib.standin_calls "cuMemPoolTrimTo" == 1)
    ]], "STANDIN_FAIL=cudnnCreate:1")
  end)

  -- A folder with stand-ins for cuDNN's own files: f(it).
  local function with_folder(f)
    U.with_file(function(folder)
      os.remove(folder)
      U.run("mkdir " .. U.quote(folder))
      local ok, e = pcall(f, folder)
      U.run("rm -r " .. U.quote(folder))
      assert(ok, e)
    end)
  end
  local function make(folder, name, source, flags)
    local from = folder .. "/source.c"
    U.write_file(from, source)
    local text, ok = U.run(("LD_PRELOAD= ${CC:-cc} -shared -fPIC -o %s %s "
      .. "-Wl,-soname,%s %s -ldl"):format(U.quote(folder .. "/" .. name),
      U.quote(from), name, flags or ""))
    assert(ok, text)
  end
  -- Like cuDNN's, the library ends the process if it lacks a part.
  local function make_dnn(folder, release, part)
    make(folder, "libcudnn.so." .. release, ([[
      #include <dlfcn.h>
      #include <stdlib.h>
      int cudnnCreate(void **out) {
        void *lib = dlopen("%s", RTLD_NOW);
        int (*create)(void **);
        if (!dlopen("%s", RTLD_NOW)) abort();
        *(void **)&create = dlsym(lib, "cudnnCreate");
        return create(out);
      }
      %s
    ]]):format(standin, part, release == 9 and
               "const char *cudnnGetLastErrorString(void) { return 0; }" or ""),
      "-Wl,--no-as-needed " .. U.quote(standin))
  end
  local parts = {
    [8] = {"ops_infer", "cnn_infer", "ops_train", "cnn_train"},
    [9] = {"graph", "ops", "cnn"},
  }
  local function make_all(folder, release)
    local file
    for _, name in ipairs(parts[release]) do
      file = ("libcudnn_%s.so.%d"):format(name, release)
      make(folder, file, "int part;")
    end
    make_dnn(folder, release, file)
    return folder .. "/libcudnn.so." .. release
  end

  for release, names in pairs(parts) do
    it("of version " .. release .. " is used when all its parts are there, and "
       .. "the one that is missing is named", function()
      with_folder(function(folder)
        local path = make_all(folder, release)
        local env = "LIMN_CUDNN_LIB=" .. U.quote(path)
        works("right('cuda:0') assert(all() == 3)", env)
        local function missing(name, more)
          works(([[
            right("cuda:0")
            assert(notes():find("cuda: cannot load %s of cuDNN, convolutions "
                                .. "are slower without", 1, true), notes())
            assert(all() == 0)
          ]]):format(name), more)
        end
        for i = #names, 1, -1 do
          local name = ("libcudnn_%s.so.%d"):format(names[i], release)
          -- An empty file is in the way of one that is installed here.
          U.write_file(folder .. "/" .. name, "")
          missing(name, env .. " LD_LIBRARY_PATH=" .. U.quote(folder))
        end
        local plain = folder .. "/libcudnn.so"
        U.run(("ln -s %s %s"):format(U.quote(path), U.quote(plain)))
        missing(("libcudnn_%s.so.%d"):format(names[1], release),
                ("LIMN_CUDNN_LIB=%s LD_LIBRARY_PATH=%s"):format(
                  U.quote(plain), U.quote(folder)))
      end)
    end)
  end

  it("of version 8 is used where version 9 is of no use", function()
    with_folder(function(folder)
      make_all(folder, 8)
      make(folder, "libcudnn.so.9", "int cudnnCreate(void);")
      works("right('cuda:0') assert(all() == 3 and not notes():find 'cuDNN')",
            "LIMN_CUDNN_LIB= LD_LIBRARY_PATH=" .. U.quote(folder))
    end)
  end)

  -- What is made to fail once costs one of the three, not the result; an
  -- algorithm without a workspace, only that.
  local header = U.read_file "core/cuda_api.h"
  for name in header:gmatch "F%(%w+, (cudnn[%w_]+)," do
    if name:find "^cudnnCreate%u" or name:find "^cudnnSet" or
       name:find "^cudnnGet" then
      it("may fail in " .. name, function()
        works(([[
          right("cuda:0")
          assert(all() == %d, all())
        ]]):format((name:find "Stream$" or name:find "Size$") and 3 or 2),
              ("STANDIN_FAIL=%s:1"):format((name:gsub("_v7$", ""))))
      end)
    end
  end

  it("says so when it fails in a run", function()
    works([[
      local ok, e = pcall(conv, x:to "cuda:0", w:to "cuda:0")
      e = tostring(e)
      assert(not ok and e:find("cuDNN failed with error 4000", 1, true), e)
      right("cuda:0")
    ]], "STANDIN_FAIL=cudnnConvolutionForward:1")
  end)

  it("takes a workspace within bounds", function()
    works [[right("cuda:0") assert(lib.standin_dnn_last() == 1)]]
    works([[
      right("cuda:0")
      assert(lib.standin_dnn_last() == 0)
    ]], "STANDIN_MEMORY=6000000") -- a sixteenth is less than 460800 bytes
  end)

  it("gives the same each time where that is asked for", function()
    works [[
      limn.policy {deterministic = true}
      right("cuda:0")
      assert(lib.standin_dnn_last() == 0)
    ]]
  end)

  it("rounds to TensorFloat-32 only when asked", function()
    works [[
      right("cuda:1")
      limn.allow_tf32(true)
      local e = off(conv(x:to "cuda:1", w:to "cuda:1"), conv(x, w))
      assert(e > 1e-5 and e < 1e-2, e)
      limn.allow_tf32(false)
      right("cuda:1")
      assert(calls "Forward" == 3)
    ]]
  end)

  it("is replayed with operands that move, and with those that stay", function()
    works [[
      local g = limn.trace {function(a, b, c)
        local h = conv(a, b):relu()
        return h, weights(a, h + c, b), back(h, b)
      end, x, w, y}
      local W, keep = w:to "cuda:0", {}
      for i = 1, 12 do
        local a, c = limn.randn(2, 8, 40, 40), limn.randn(2, 16, 40, 40)
        local got = {g(a:to "cuda:0", W, c:to "cuda:0")}
        local want = {g(a, w, c)}
        for j = 1, 3 do
          local e = off(got[j], want[j])
          assert(e < 1e-6, e)
        end
        keep[i] = got
      end
      local k = limn.counters()
      assert(k.records < 6 and k.replays > 8, k.records .. " " .. k.replays)
    ]]
  end)

  it("keeps one workspace for all that is replayed together", function()
    works([[
      local g = limn.trace {function(a, b, c)
        for i = 1, 12 do a = back(conv(a, b), c) end
        return a
      end, x, w * 0.01, w}
      -- 24 workspaces would be 11 of 9 million bytes.
      local X, W, V = x:to "cuda:0", (w * 0.01):to "cuda:0", w:to "cuda:0"
      local want = g(x, w * 0.01, w)
      for i = 1, 5 do
        local got = g(X, W, V)
        assert(off(got, want) < 1e-5)
        assert(lib.standin_dnn_last() == 1)
      end
      assert(limn.counters().replays > 0)
    ]], "STANDIN_MEMORY=9000000")
  end)

  it("gives up the workspaces of what was replayed for other sizes", function()
    works([[
      local g = limn.trace {function(a, b)
        return conv(a, b):softmax(2)
      end, x, w}
      local W = w:to "cuda:0"
      for i = 1, 40 do
        local a = limn.ones {1, 8, 100 + i, 100}
        for _ = 1, 2 do
          local got = g(a:to "cuda:0", W)
          if i % 10 == 0 then assert(off(got, g(a, w)) < 1e-5) end
        end
      end
      assert(limn.counters().replays >= 40)
    ]], "STANDIN_MEMORY=67108864")
  end)

  it("trains a net as the CPU does", function()
    works [[
      local nn = limn.nn
      local net = nn.Sequential(nn.Conv2d(3, 16, 3, {padding = 1}), nn.ReLU(),
        nn.MaxPool2d(2), nn.Conv2d(16, 16, 3), nn.ReLU(), nn.Flatten(),
        nn.Linear(16 * 14 * 14, 4))
      local loss = limn.value_and_grad(function(a, t)
        return nn.cross_entropy(net(a), t)
      end, net)
      local function first(l, g)
        local list = {l}
        for _, v in ipairs(g) do list[#list + 1] = v end
        return list
      end
      local a, t = limn.randn(8, 3, 32, 32), limn.randint(1, 4, {8})
      local got = first(loss(a:to "cuda:0", t:to "cuda:0"))
      local want = first(loss(a, t))
      for i = 1, #want do assert(off(got[i], want[i]) < 1e-5, i) end
      assert(calls "Forward" == 2 and calls "BackwardFilter" == 2)
    ]]
  end)
end)
