-- A host without Lua loads a file from memory and classifies; its process has
-- no Lua in it.
local U = require "support.util"

describe("examples/host.c", function()
  it("classifies the digits with a model that Lua saved", function()
    local host = U.build .. "/host"
    if not io.open(host) then
      pending("make " .. host .. " builds it")
      return
    end
    U.with_file(function(path)
      local text, ok = U.lua(([[
        arg = {[-1] = "luajit", [0] = "examples/digits.lua", "--quick",
               "--device", "cpu", "--file", %q}
        dofile "examples/digits.lua"]]):format(path))
      assert.is_true(ok, text)
      U.each_device(function(dev)
        local out, fine = U.run(("%s %s examples/data %s"):format(host, path,
                                                                  dev))
        assert.is_true(fine, out)
        local percent = tonumber(out:match "([%d.]+) %%")
        assert.is_true(percent and percent > 85, out)
      end)
      local out, fine = U.run(host .. " " .. path .. " examples/data cuda:9")
      assert.is_false(fine)
      assert.is_truthy(out:find "cuda:9", out)
      out, fine = U.run(host .. " README.md examples/data")
      assert.is_false(fine, out)
    end)
    local needed = U.run("ldd " .. host)
    assert.is_nil(needed:find "lua", needed)
  end)
end)
