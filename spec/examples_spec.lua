-- The examples run as their first lines say.
local U = require "support.util"

local function example(command)
  local text, ok = U.run(("LUA_PATH=%s LUA_CPATH=%s luajit %s"):format(
    U.quote "lua/?.lua;lua/?/init.lua;;", U.quote(U.build .. "/?.so;;"),
    command))
  assert.is_true(ok, text)
  return text
end

describe("The examples", function()
  it("seed.lua prints the run's own device and the sum", function()
    local text = example "examples/seed.lua"
    U.each_device(function(dev)
      assert.is_truthy(text:find("are on\t" .. dev), text)
      assert.is_truthy(text:find("the sum is on\t" .. dev), text)
    end)
    local graph = text:match "limn 1\n(.-)\n}"
    assert.is_nil(graph:find "cpu", graph)
  end)

  U.each_device(function(dev)
    it("mnist_cnn.lua learns digits on " .. dev, function()
      local text = example("examples/mnist_cnn.lua --quick --device " .. dev)
      assert.is_truthy(text:find "% right", text)
    end)

    it("cartpole.lua learns to balance on " .. dev, function()
      local text = example("examples/cartpole.lua --quick --device " .. dev)
      local stood = tonumber(text:match "carts stand for ([%d.]+) steps")
      assert.is_true(stood >= 100, text)
    end)

    it("gan.lua draws all ten digits on " .. dev, function()
      local text = example("examples/gan.lua --quick --device " .. dev)
      local n = 0
      for count in text:match "each: ([%d ]+)":gmatch "%d+" do
        assert.is_true(tonumber(count) > 0, text)
        n = n + 1
      end
      assert.equal(10, n)
    end)

    it("tiny_gpt.lua learns and writes on " .. dev, function()
      local text = example("examples/tiny_gpt.lua --quick --device " .. dev)
      assert.equal(100, #text:match "written:\n## (.*)\n")
    end)

    it("char_lstm.lua learns, writes, is saved and learns on on " .. dev,
       function()
      local text = example("examples/char_lstm.lua --quick --device " .. dev)
      assert.equal(100, #text:match "written:\n## (.*)\nloaded, and")
      assert.is_truthy(text:find "20 steps more: loss [%d.]+", text)
    end)

    it("digits.lua trains on " .. dev .. ", and a second process goes on",
       function()
      local text = example("examples/digits.lua --quick --device " .. dev)
      assert.is_truthy(text:find "another process", text)
      local graph = text:match "limn 1\n(.-)\n}"
      for _, word in ipairs {"cpu", "opencl"} do
        assert.is_nil(graph:find(word, 1, true), graph)
      end
    end)
  end)
end)

describe("make bench", function()
  it("runs the benchmark of the device that is asked for", function()
    local function plan(more)
      -- Not what a make that runs this spec was told.
      local p = io.popen("env -u MAKEFLAGS -u DEVICE make -n bench " .. more
        .. " 2>&1")
      local text = p:read "*a"
      p:close()
      return (text:gsub("[%s\\]+", " "))
    end
    assert.is_truthy(plan "":find " bench/bench%.lua build")
    assert.is_truthy(plan "DEVICE=cpu":find " bench/bench%.lua build")
    assert.is_truthy(
      plan "DEVICE=cuda:0":find " bench/gpu%.lua build cuda:0")
    assert.is_truthy(
      plan "PEERS=1 PYTHON=py":find " bench/bench%.lua build py")
  end)
end)
