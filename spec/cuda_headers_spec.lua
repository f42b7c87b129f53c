-- core/cuda_api.h is written by hand: where CUDA's own headers are installed,
-- both must say the same.
local U = require "support.util"

local include = "/usr/local/cuda/include"
-- cuDNN's may lie in a folder of their own, as Python's packages have them.
local dnn = os.getenv "LIMN_TEST_CUDNN_INCLUDE" or include

describe("CUDA's interfaces as the core declares them", function()
  local _, there = U.run("test -f " .. include .. "/cublasLt.h")
  if not there or not U.has_cxx() then
    pending "fit the toolkit's headers, where those and g++ are installed"
    return
  end

  -- C++ has no typedef of a pointer that is named as its struct.
  local function check(change)
    local text = U.read_file "core/cuda_api.h"
      :gsub("typedef struct ([%w_]+) %*", "typedef struct %1_ *")
    if change then text = text:gsub(change[1], change[2]) end
    local folder = os.tmpname()
    os.remove(folder)
    U.run("mkdir " .. folder)
    U.write_file(folder .. "/cuda_api.h", text)
    local out, ok = U.run(("LD_PRELOAD= g++ -w -std=c++17 -fsyntax-only -I%s "
      .. "-I%s -I%s spec/support/cuda_headers.cc"):format(include, dnn, folder))
    U.run("rm -r " .. folder)
    return out, ok
  end

  it("have the same parameters, constants and layouts", function()
    local text, ok = check()
    assert(ok, text)
  end)

  local _, has_dnn = U.run("test -f " .. dnn .. "/cudnn.h")
  if has_dnn then
    it("are really compared, cuDNN's too", function()
      local text = check {"CUDNN_BF16 = 9", "CUDNN_BF16 = 8"}
      assert(text:find("CUDNN_BF16", 1, true), text)
      text = check {"int determinism, math;", "int math, determinism;"}
      assert(text:find("cudnn_found.math", 1, true), text)
    end)
  else
    pending "fit cuDNN's headers, where LIMN_TEST_CUDNN_INCLUDE names them"
  end

  it("are really compared", function()
    local text = check {"CU_MINOR = 76", "CU_MINOR = 77"}
    assert(text:find("CU_MINOR", 1, true), text)
    text = check {"cuModuleUnload, %(cu_module%)", "cuModuleUnload, (int)"}
    assert(text:find("cuModuleUnload", 1, true), text)
  end)
end)
