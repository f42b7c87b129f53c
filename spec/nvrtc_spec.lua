-- NVRTC compiles without a GPU: kernels of every kind and dtype, for each
-- architecture that limn supports, and without a warning. `make check-cuda`
-- does the same with all that the whole suite runs.
local U = require "support.util"
local nvrtc = require "support.nvrtc"

-- What support/kernels.lua makes for these dtypes, as files in a folder.
local function sources(folder, ...)
  local standin = U.quote(U.build .. "/cuda_standin/libcuda.so.1")
  local text, ok = U.run(([[
    LUA_PATH='lua/?.lua;lua/?/init.lua;;' LUA_CPATH=%s LIMN_DEVICES=cpu,cuda
    LIMN_CUDA_LIB=%s LIMN_NVRTC_LIB=%s LIMN_CUBLAS_LIB=off LIMN_CUDNN_LIB=off
    LIMN_CACHE= STANDIN_DRY=1 STANDIN_SOURCES=%s STANDIN_MEMORY=100000000000
    luajit spec/support/kernels.lua cuda:0 %s]]):gsub("\n", " "):format(
      U.quote(U.build .. "/?.so;;"), standin, standin, folder,
      table.concat({...}, " ")))
  assert(ok, text)
  return nvrtc.sources(folder)
end

describe("NVRTC", function()
  if not nvrtc.found then
    pending "compiles every kind of kernel, where it is installed"
    return
  end

  -- One dtype for one target, all dtypes by samples for the others.
  it("compiles every kind of kernel without a word", function()
    U.with_file(function(path)
      os.remove(path)
      local n, wide = 0, 0
      for _, what in ipairs {{"float16", 1}, {"", 25}} do
        for i, file in ipairs(sources(path, what[1])) do
          if i % what[2] == 0 then
            local source = U.read_file(file)
            if what[1] == "float16" and source:find "#define IX u64" then
              wide = wide + 1
            end
            for _, target in ipairs(nvrtc.targets) do
              if what[2] > 1 or target == "sm_75" then
                local words = nvrtc.compile(source, target)
                n = n + 1
                assert(words == "", ("%s for %s:\n%s\n%s"):format(
                  file, target, words, source))
              end
            end
          end
        end
      end
      assert(n > 150, n)
      assert(wide == 3, wide) -- convolutions that count by 64 bits
      U.run("rm -r " .. U.quote(path))
    end)
  end)

  it("says what is wrong with a kernel", function()
    local words = nvrtc.compile("__global__ void k() { nonsense; }", "sm_75")
    assert(words:find("nonsense", 1, true), words)
  end)
end)
