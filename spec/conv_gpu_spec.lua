-- The kernels of convolutions on GPUs, where the machine need have none: on the
-- stand-in for CUDA, and on OpenCL devices that are CPUs.
local U = require "support.util"
local limn = U.limn

local standin = U.quote(U.build .. "/cuda_standin/libcuda.so.1")
local on_standin = ("LIMN_DEVICES=cpu,cuda LIMN_CUDA_LIB=%s LIMN_NVRTC_LIB=%s "
  .. "LIMN_CUBLAS_LIB=%s LIMN_CUDNN_LIB=off LIMN_CACHE=%s "):format(
  standin, standin, standin, U.quote(U.build .. "/cuda_standin/kernels"))
local on_opencl = "LIMN_DEVICES=cpu,opencl LIMN_OPENCL_GPU=1 "

local function right(env, arguments)
  local text, ok = U.run(("LUA_PATH='lua/?.lua;lua/?/init.lua;;' LUA_CPATH=%s "
    .. "%s luajit spec/support/convolutions.lua %s"):format(
    U.quote(U.build .. "/?.so;;"), env, arguments))
  assert(ok and text:find "%d right", text)
end

describe("Convolutions on a GPU", function()
  if U.has_cxx() then
    it("are right in every dtype, for every tile, stride and rank #cuda",
       function() right(on_standin, "cuda:0") end)

    it("take no memory for their windows #cuda", function()
      local text, ok = U.lua([[
        local limn = require "limn"
        -- The windows would be 49 times as large: 98 MiB.
        local x = limn.ones({1, 2, 512, 512}, "cuda:0")
        local w = limn.ones({2, 2, 7, 7}, "cuda:0")
        local o, p = {1, 1}, {3, 3}
        local y = limn.conv(x, w, o, p, o, 1)
        assert(y[1][1][9][9]:item() == 98)
        local v = limn.conv_weights(x, y, w, o, p, o, 1)
        assert(v:to "cpu":min():item() > 0)
      ]], on_standin .. " STANDIN_MEMORY=33554432")
      assert(ok, text)
    end)
  else
    pending "are right on the stand-in, where g++ is installed"
  end

  local opencl
  for _, name in ipairs(limn.devices()) do
    opencl = opencl or tostring(name):match "^opencl:%d+$"
  end
  if opencl then
    it("are right in OpenCL", function()
      right(on_opencl, opencl .. " float32")
    end)
  else
    pending "are right in OpenCL, where that is installed"
  end
end)
