-- What the README shows and says of Lua holds.
local U = require "support.util"
local limn = U.limn

-- A new directory for f; it and what it holds go afterwards.
local function with_directory(f)
  local path = os.tmpname()
  os.remove(path)
  os.execute("mkdir " .. U.quote(path))
  local ok, e = pcall(f, path)
  os.execute("rm -r " .. U.quote(path))
  if not ok then error(e, 0) end
end

local function here()
  local p = io.popen "pwd"
  local path = p:read "*l"
  p:close()
  return path
end

-- A block runs as a user would run it: alone, in a process and a directory of
-- its own.
local function run(block)
  local text
  with_directory(function(dir)
    U.write_file(dir .. "/block.lua", block)
    local root = here()
    local build = U.build:sub(1, 1) == "/" and U.build or root .. "/" .. U.build
    local ok
    text, ok = U.run(("cd %s && LUA_PATH=%s LUA_CPATH=%s luajit block.lua")
      :format(U.quote(dir), U.quote(("%s/lua/?.lua;%s/lua/?/init.lua;;")
      :format(root, root)), U.quote(build .. "/?.so;;")))
    assert.is_true(ok, text)
  end)
  return text
end

describe("The README", function()
  local readme = U.read_file "README.md"

  it("shows Lua that runs as it stands", function()
    local n = 0
    for block in readme:gmatch "```lua\n(.-)```" do
      n = n + 1
      run(block)
    end
    assert.is_true(n > 0)
  end)

  it("learns a product in its first model, and prints no device or size",
     function()
    local text = run(readme:match "```lua\n(.-)```")
    local product = tonumber(text:match "%[%[([-%d.]+)%]%]")
    assert.is_true(math.abs(product + 1) < 0.1, text)
    local graph = text:match "graph .-\n}"
    assert.is_nil(graph:find "cpu" or graph:find "opencl" or graph:find "8",
                  graph)
  end)

  it("tells of comparisons: only numbers go unasked", function()
    local x = limn.tensor {0, 1}
    assert.is_false(x == 0)
    U.equal(x:eq(0), {1, 0})
    U.message(function() return x < limn.ones(2) end, "lt")
    U.message(function() return x == limn.ones(2) end, "eq")
    U.message(function() return x < 3 end, "compare")
  end)

  it("tells of indices that count from 1, ranges that include both ends",
     function()
    local x = limn.arange(6):reshape(3, 2)
    U.equal(x[{{2, 3}}], {3, 4, 5, 6})
    U.equal(x[-1], {5, 6})
    U.equal(limn.arange(3), {1, 2, 3})
    local line = U.here(1)
    U.message(function() x[1][2] = 7 end, line, "lost", "x%[{1, 2}%] = v")
    x[{1, 2}] = 7
    assert.are.equal(7, x:at(1, 2))
  end)

  it("tells of dtypes", function()
    assert.are.equal("float32", limn.tensor {3, 1, 2}.dtype)
    U.message(function() return limn.ones(3)[limn.tensor {3}] end, "int64")
    U.equal(limn.arange(3)[limn.tensor {3}:to "int64"], {3})
  end)

  it("tells of sizes in a trace", function()
    local g = limn.trace(function(x)
      local n = x:size(1)
      assert.are.equal("cdata", type(n))
      assert.is_nil(({[3] = 1})[n])
      assert.are.equal("size(%x, 1)", tostring(n))
      if n > 2 then x = x * n end
      return x, n + 1, x:reshape(limn.floor(n / 2) + limn.floor((n + 1) / 2))
    end, limn.ones(3))
    local y, m = g(limn.ones(4))
    U.equal(y, {4, 4, 4, 4})
    assert.are.equal(5, m)
    U.message(function() g(limn.ones(2)) end, "size%(%%x, 1%) > 2 %(it is 2%)")
    local half = limn.trace(function(x) return limn.zeros(x:size(1) / 2) end,
                            limn.ones(4))
    U.equal(half(limn.ones(6)), {0, 0, 0})
    U.message(function() half(limn.ones(5)) end, "2.5, not a whole number")
  end)
end)
