-- The specs that say most about a device, on CUDA's stand-in, as part of the
-- ordinary suite; `make test DEVICE=cuda:0 CUDA=standin` runs all of them.
local U = require "support.util"

local standin = U.quote(U.build .. "/cuda_standin/libcuda.so.1")

describe("On cuda:0 of the stand-in", function()
  if not U.has_cxx() then
    pending "the important specs hold, where g++ is installed"
    return
  elseif (os.getenv "LIMN_TEST_DEVICE" or "") ~= "" or U.asan then
    return
  end
  for _, name in ipairs {"cells", "random", "norm", "tensor", "trace", "plan",
                         "footguns_runs", "half"} do
    it(name .. "_spec holds", function()
      local text, ok = U.run(([[
        LIMN_TEST_DEVICE=cuda:0 LIMN_DEVICES=cpu,cuda LIMN_CUDA_LIB=%s
        LIMN_NVRTC_LIB=%s LIMN_CUBLAS_LIB=%s LIMN_CUDNN_LIB=%s LIMN_CACHE=%s
        busted -o TAP spec/%s_spec.lua]]):gsub("\n", " "):format(
          standin, standin, standin, standin,
          U.quote(U.build .. "/cuda_standin/kernels"), name))
      local _, count = text:gsub("\nok ", "")
      assert(ok and count > 3, text)
    end)
  end
end)
