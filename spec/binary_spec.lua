-- What the library calls and needs.
local U = require "support.util"

local lib = U.build .. "/liblimn.so"

describe("The library", function()
  if U.asan then return end
  it("never aborts, exits or prints", function()
    local text, ok = U.run("nm -D -u " .. lib)
    assert.is_true(ok, text)
    local forbidden = {}
    for _, name in ipairs {
      "abort", "exit", "_exit", "_Exit", "quick_exit", "printf", "puts",
      "putchar", "fprintf", "vfprintf", "vprintf", "fputs", "fputc", "putc",
      "perror", "__assert_fail", "__assert", "__printf_chk",
      "__fprintf_chk", "__vfprintf_chk", "longjmp", "siglongjmp", "_longjmp",
      "__longjmp_chk", "stdout", "stderr", "raise", "kill", "signal",
      "dprintf", "err", "errx", "warn",
    } do
      forbidden[name] = true
    end
    for line in text:gmatch "[^\n]+" do
      local name = line:match "([%w_]+)@?[^ ]*$"
      assert.is_nil(forbidden[name], "it calls " .. tostring(name))
    end
  end)

  it("needs no library but libc, libm, libmvec, libdl, pthread, OpenBLAS",
     function()
    for _, path in ipairs {lib, U.build .. "/limn/core.so"} do
      local text, ok = U.run("readelf -d " .. path)
      assert.is_true(ok, text)
      local n = 0
      for name in text:gmatch "%(NEEDED%)[^%[]*%[([^%]]+)%]" do
        n = n + 1
        assert.is_truthy(name:find "^libc%." or name:find "^libm%."
          or name:find "^libmvec%." or name:find "^libdl%."
          or name:find "^libpthread%." or name:find "^libopenblas"
          or name:find "^ld%-linux", path .. " needs " .. name)
      end
      assert.is_true(n > 0)
    end
  end)

  it("exports limn_ names only, the static one too", function()
    local function only(command, path, more)
      local n = 0
      for line in (U.run(command .. path)):gmatch "%x+ %a ([^\n]+)" do
        local name = line:match "^[%w_]+"
        n = n + 1
        assert.is_truthy(name:find "^limn_" or name:find(more),
                         path .. " exports " .. tostring(name))
      end
      assert.is_true(n > 0, path .. " exports nothing")
      return n
    end
    local n = only("nm -D --defined-only ", lib, "^$")
    assert.are.equal(n, only("nm -g --defined-only ", U.build .. "/liblimn.a",
                             "^$"))
    only("nm -D --defined-only ", U.build .. "/limn/core.so", "^luaopen_")
  end)

  it("has no mutable global data but the lock under which drivers start",
     function()
    local text, ok = U.run("objdump -t " .. lib)
    assert.is_true(ok, text)
    for line in text:gmatch "[^\n]+" do
      local section, name = line:match "O (%.[%w_.]+)%s+%x+%s+([%w_.]+)"
      -- .data.rel.ro is read-only once it is loaded.
      if section and section:find "^%.[tb]?data$" or section == ".bss" then
        assert.is_truthy(name:find "^_" or name:find "^completed"
                         or name:find "^drivers_lock",
                         name .. " is a writable global")
      end
    end
  end)
end)
