-- idx files, batches and the progress bar.
local U = require "support.util"
local limn = U.limn
local data, nn = limn.data, limn.nn

local function header(code, ...)
  local s = string.char(0, 0, code, select("#", ...))
  for _, n in ipairs {...} do
    s = s .. string.char(math.floor(n / 16777216) % 256,
                         math.floor(n / 65536) % 256,
                         math.floor(n / 256) % 256, n % 256)
  end
  return s
end
local function says(text, s)
  local ok, e = pcall(data.idx_string, s, "x.idx")
  assert.is_false(ok)
  assert.is_truthy(tostring(e):find(text, 1, true), tostring(e))
end

describe("data.idx", function()
  it("reads the shipped digits", function()
    local x = data.idx "examples/data/test-images-idx3-ubyte"
    assert.same({360, 8, 8}, x.shape)
    assert.equal(255, x:max():item())
    assert.equal(360, #data.idx "examples/data/test-labels-idx1-ubyte")
  end)
  it("reads every element type in the file's byte order", function()
    assert.same({1, 255}, data.idx_string(header(8, 2) .. "\1\255"):totable())
    assert.same({-1}, data.idx_string(header(9, 1) .. "\255"):totable())
    assert.same({-2, 258}, data.idx_string(header(11, 2)
                                           .. "\255\254\1\2"):totable())
    assert.same({66051}, data.idx_string(header(12, 1)
                                         .. "\0\1\2\3"):totable())
    assert.same({1.5}, data.idx_string(header(13, 1)
                                       .. "\63\192\0\0"):totable())
    assert.same({1.5}, data.idx_string(header(14, 1)
                                       .. "\63\248\0\0\0\0\0\0"):totable())
  end)
  it("refuses what is not sound, with the reason", function()
    says("it has 2 bytes", "\0\0")
    says("not 00 00 and a type", "GIF89a..")
    says("at most 8", header(8):sub(1, 3) .. "\9")
    says("ends within its header", header(8, 1, 2):sub(1, 7))
    says("the file has 3", header(8, 2, 2) .. "abc")
    says("the file has 5", header(8, 2, 2) .. "abcde")
    says("need 18446744065119617024 bytes", header(8, 4294967295, 4294967295)
         .. "abc")
    says("not a sound gzip file: it ends too early", "\31\139\8\0")
    local ok, e = pcall(data.idx, "no/such/file")
    assert.is_false(ok)
    assert.is_truthy(tostring(e):find "no/such/file")
  end)
end)

describe("data.batches", function()
  local x = limn.arange(10)
  it("walks all rows in order, with a smaller last batch", function()
    local seen, sizes = {}, {}
    for b in data.batches(x, {size = 4}) do
      sizes[#sizes + 1] = #b
      for _, v in ipairs(b:totable()) do seen[#seen + 1] = v end
    end
    assert.same({4, 4, 2}, sizes)
    assert.same(x:totable(), seen)
  end)
  it("drops the last batch if asked", function()
    local n = 0
    for b in data.batches(x, {size = 4, drop_last = true}) do
      n = n + #b
    end
    assert.equal(8, n)
  end)
  it("shuffles rows together, as manual_seed says", function()
    local function order()
      limn.manual_seed(9)
      local list = {}
      for a, b in data.batches(x, x * 2, {size = 3, shuffle = true}) do
        assert.same((a * 2):totable(), b:totable())
        for _, v in ipairs(a:totable()) do list[#list + 1] = v end
      end
      return list
    end
    local a = order()
    assert.same(a, order())
    assert.are_not.same(x:totable(), a)
    table.sort(a)
    assert.same(x:totable(), a)
  end)
  -- All rows of all shards, in the order of the walk.
  local function shards(t, n, o)
    local list, counts = {}, {}
    for rank = 1, n do
      local options = {}
      for k, v in pairs(o) do options[k] = v end
      options.shard = {rank, n}
      limn.manual_seed(3)
      local it = data.batches(t, options)
      counts[rank] = it.n
      for b in it do
        for _, v in ipairs(b:totable()) do list[#list + 1] = v end
      end
    end
    return list, counts
  end
  it("gives each shard its part of a common order", function()
    local list, counts = shards(x, 3, {size = 2})
    assert.same({1, 4, 7, 10, 2, 5, 8, 1, 3, 6, 9, 2}, list)
    assert.same({2, 2, 2}, counts)
    list = shards(x, 3, {size = 2, drop_last = true})
    assert.same({1, 4, 2, 5, 3, 6}, list) -- three rows, one batch of two
    for _, seed in ipairs {false, 5} do
      list = shards(x, 5, {size = 3, shuffle = true, seed = seed or nil})
      assert.are_not.same(x:totable(), list)
      table.sort(list)
      assert.same(x:totable(), list)
    end
    list = shards(limn.arange(2), 5, {})
    assert.same({1, 2, 1, 2, 1}, list)
    list, counts = shards(limn.arange(2), 5, {drop_last = true})
    assert.same({{}, {0, 0, 0, 0, 0}}, {list, counts})
  end)
  it("shuffles by a seed alone, if one is given", function()
    local function order(seed)
      local list = {}
      for b in data.batches(limn.arange(50), {shuffle = true, seed = seed}) do
        for _, v in ipairs(b:totable()) do list[#list + 1] = v end
      end
      return list
    end
    local a = order(7)
    limn.rand(3)
    assert.same(a, order(7))
    assert.are_not.same(a, order(8))
    table.sort(a)
    assert.same(limn.arange(50):totable(), a)
  end)
  it("hands out batches on a device, from tensors on any", function()
    U.each_pair(function(from, to)
      local there, list = x:to(from), {}
      local b2 = data.batches(there, (there * 2), {
        size = 4, device = to, shuffle = true})
      for a, b in b2 do
        assert.equal(to, tostring(a.device))
        assert.same((a * 2):totable(), b:totable())
        for _, v in ipairs(a:totable()) do list[#list + 1] = v end
      end
      table.sort(list)
      assert.same(x:totable(), list)
      for a in data.batches(there, {size = 4}) do
        assert.equal(from, tostring(a.device))
      end
    end)
  end)
  it("refuses options that make no sense", function()
    local line = U.here(2)
    local function refuses(o, ...)
      U.message(function() data.batches(x, o) end, line, ...)
    end
    refuses({shard = {0, 2}}, "shard is {rank, n}")
    refuses({shard = {3, 2}}, "shard is {rank, n}")
    refuses({shard = 2}, "shard is {rank, n}")
    refuses({device = 1}, "device is a name")
    refuses({device = "nothing:7"}, "nothing:7")
    refuses({shuffle = true, seed = "a"}, "seed is a whole number")
  end)
  it("refuses tensors of different length", function()
    local ok, e = pcall(data.batches, x, limn.arange(9), {})
    assert.is_false(ok)
    assert.is_truthy(tostring(e):find "has 9 rows, the first has 10")
  end)
  it("draws a bar with rate, time and note", function()
    local text = {}
    local out = {write = function(_, ...)
      for _, s in ipairs {...} do text[#text + 1] = s end
    end, flush = function() end}
    local bar = data.progress(4, {progress = "always", out = out,
                                  label = "epoch 1"})
    bar:note "loss 0.5"
    bar:update(4)
    bar:finish()
    local s = table.concat(text)
    assert.is_truthy(s:find("epoch 1 100%% %[=+%] 4/4"), s)
    assert.is_truthy(s:find("loss 0.5", 1, true))
  end)
end)

describe("data.split", function()
  local x = limn.arange(10)
  it("parts rows together, in a common random order", function()
    local a, ta, b, tb = data.split(x, x * 2, 0.7)
    assert.equal(7, #a)
    assert.equal(3, #tb)
    assert.same((a * 2):totable(), ta:totable())
    assert.same((b * 2):totable(), tb:totable())
    local list = limn.cat({a, b}, 1):totable()
    assert.are_not.same(x:totable(), list)
    table.sort(list)
    assert.same(x:totable(), list)
    local c, d = data.split(x, {fraction = 0.7, seed = 4})
    local e, f = data.split(x, {fraction = 0.7, seed = 4})
    assert.same({c:totable(), d:totable()}, {e:totable(), f:totable()})
  end)
  it("keeps the order if asked, on any device", function()
    U.each_device(function(dev)
      local a, b = data.split(x:to(dev), {fraction = 0.5, shuffle = false})
      assert.same({1, 2, 3, 4, 5}, a:totable())
      assert.same({6, 7, 8, 9, 10}, b:totable())
      assert.equal(dev, tostring(b.device))
      a = data.split(x:to(dev), 0.5)
      assert.equal(dev, tostring(a.device))
    end)
  end)
  it("refuses what leaves nothing", function()
    local line = U.here(1)
    U.message(function() data.split(x, 0.01) end, line, "one part empty")
    U.message(function() data.split(x, 1) end, "between 0 and 1, got 1")
    U.message(function() data.split(x) end, "fraction")
    U.message(function() data.split(0.5) end, "no tensors")
    U.message(function() data.split(x, limn.arange(9), 0.5) end, "9 rows")
  end)
end)

describe("nn.Normalize", function()
  local rows = {{1, 10, 5}, {3, 20, 5}, {5, 60, 5}}
  it("has columns' means and deviations, saved with the model", function()
    local n = nn.Normalize(limn.tensor(rows))
    U.close(n.mean, {3, 30, 5})
    U.close(n.std, {math.sqrt(8 / 3), math.sqrt(1400 / 3), 1})
    local y = n(limn.tensor(rows))
    U.close(y:mean(1), {0, 0, 0}, 1e-6)
    U.close(y:std(1, false), {1, 1, 0}, 1e-6)
    U.close(n:inverse(y), U.flat(limn.tensor(rows)), 1e-5)
    assert.same(y:totable(), nn.Normalize(rows)(limn.tensor(rows)):totable())
    local net = nn.Sequential(n, nn.Linear(3, 2))
    U.with_file(function(path)
      limn.save(path, {net = net, infer = limn.trace(net,
                       limn.spec({"n", 3}))})
      local m = limn.load(path)
      local x = limn.tensor {{2, 4, 6}}
      U.each_device(function(dev)
        U.close(m.infer(x:to(dev)), U.flat(net(x)), 1e-5)
      end)
      local other = nn.Sequential(nn.Normalize {
        mean = {0, 0, 0}, std = {1, 1, 1}}, nn.Linear(3, 2))
      limn.restore(path, {net = other})
      U.equal(other[1].mean, {3, 30, 5})
    end)
    assert.same({}, n:parameters())
  end)
  it("measures other dims, and takes given numbers", function()
    local images = limn.arange(2 * 2 * 4):reshape {2, 2, 2, 2}:to "uint8"
    local n = nn.Normalize(images, {dim = {1, 3, 4}})
    U.shape(n.mean, {1, 2, 1, 1})
    U.close(n.mean, {6.5, 10.5})
    U.close(n(images):mean({1, 3, 4}), {0, 0}, 1e-6)
    U.close(nn.Normalize {mean = 1, std = 2}(limn.tensor {5}), {2})
  end)
  it("keeps small differences of large numbers", function()
    local x = limn.tensor({{1e6}, {1e6 + 1}}, "float64")
    U.close(nn.Normalize(x).std, {0.5})
  end)
  it("refuses what cannot be measured", function()
    local line = U.here(1)
    U.message(function() nn.Normalize(limn.tensor {{1}, {0 / 0}}) end, line,
              "holds NaN")
    U.message(function() nn.Normalize(limn.zeros(0, 2)) end, "no rows")
    U.message(function() nn.Normalize() end, "wants the data to measure")
    U.message(function() nn.Normalize {mean = "a"} end, "mean is a tensor")
  end)
end)
