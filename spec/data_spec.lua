-- idx files, batches and the progress bar.
local limn = require "limn"
local data = limn.data

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
    says("compressed", "\31\139\8\0")
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
