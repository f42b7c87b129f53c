-- Model files: what is saved comes back, what is damaged is refused.
local U = require "support.util"
local limn = U.limn
local nn, optim = limn.nn, limn.optim

local function trained()
  limn.manual_seed(4)
  local m = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
  local opt = optim.Adam(m, {lr = 0.1})
  local loss = limn.value_and_grad(function(x, t)
    return nn.mse_loss(m(x), t)
  end, m)
  local step = limn.jit(function(x, t)
    local l, g = loss(x, t)
    opt:step(g)
    return l
  end)
  local x, t = limn.randn(5, 3), limn.randn(5, 2)
  step(x, t)
  return m, opt, step, x, t
end

describe("A saved model", function()
  it("is saved again whole, as limn.save's only argument", function()
    local m, _, step, x = trained()
    local infer = limn.trace(m, x)
    local l = limn.load_string(limn.save_string {infer = infer, step = step,
                                                 note = limn.ones(2)})
    local again = limn.load_string(limn.save_string(l))
    U.close(again.infer(x), m(x), 1e-6)
    U.equal(again.note, {1, 1})
    assert.are.equal(tostring(l), tostring(again))
  end)

  it("comes back without its Lua source: graphs over one weight set",
     function()
    local m, _, step, x, t = trained()
    local infer = limn.trace(m, x)
    local double = limn.trace(function(v) return m(v) * 2 end, x)
    U.with_file(function(path)
      limn.save(path, {infer = infer, double = double, step = step})
      local l = limn.load(path)
      U.each_device(function(dev)
        U.close(l.infer(x:to(dev)), m(x), 1e-6)
        U.close(l.double(x:to(dev)), m(x) * 2, 1e-6)
      end)
      local before = l.infer(x)
      U.close(l.step(x, t), step(x, t), 1e-6)
      assert.is_not_nil(U.difference(l.infer(x), before, 1e-4))
      U.close(l.infer(x), m(x), 1e-6, 1, "both were trained one step")
      U.close(l.double(x), l.infer(x) * 2, 1e-6)
      local names = {}
      for name in l:named_parameters() do names[#names + 1] = name end
      table.sort(names)
      assert.are.same({"1.bias", "1.weight", "3.bias", "3.weight"}, names)
      assert.are.equal(tostring(infer), tostring(l.infer))
    end)
  end)

  it("trains on where indices have several dims", function()
    limn.manual_seed(4)
    local table_ = nn.Embedding(5, 3)
    local loss = limn.value_and_grad(function(t)
      local y = table_(t)
      return (y * y):sum()
    end, table_)
    local opt = optim.SGD(table_, {lr = 0.1})
    local t = limn.tensor({{1, 2}, {2, 5}}, "int64")
    local step = limn.trace({function(v)
      local l, g = loss(v)
      opt:step(g)
      return l
    end, t, name = "step"})
    U.with_file(function(path)
      limn.save(path, {step = step, table_ = table_})
      local l = limn.load(path)
      U.each_device(function(dev)
        local first = l.step(t:to(dev)):item()
        assert.is_true(l.step(t:to(dev)):item() < first)
      end)
    end)
  end)

  it("in another process runs on each device", function()
    local m, _, _, x = trained()
    U.with_file(function(path)
      limn.save(path, {infer = limn.trace(m, x), x = x})
      local text, ok = U.lua(([[
        local limn = require "limn"
        local l = limn.load(%q)
        for _, dev in ipairs(limn.devices()) do
          print(("%%.5f"):format(l.infer(l.x:to(dev)):sum():item()))
        end]]):format(path))
      assert.is_true(ok, text)
      for v in text:gmatch "%S+" do
        assert.is_true(math.abs(tonumber(v) - m(x):sum():item()) < 1e-4, text)
      end
      text, ok = U.lua(([[
        local limn = require "limn"
        assert(#limn.devices() == 1)
        local l = limn.load(%q)
        io.write(l.infer(l.x).device)]]):format(path), "LIMN_DEVICES=cpu")
      assert.is_true(ok and text == "cpu", text)
    end)
  end)

  it("goes through memory and is saved again with the same bytes", function()
    local m, _, step, x = trained()
    U.with_file(function(path)
      limn.save(path, {infer = limn.trace(m, x), step = step})
      local bytes = U.read_file(path)
      local l = limn.load_string(bytes)
      U.equal(l.infer(x), m(x))
      l:save(path)
      assert.is_true(bytes == U.read_file(path))
    end)
  end)

  it("has no size of the graph that grows with the weights", function()
    local function graph_size(n)
      local l = nn.Linear(n, n)
      local s = limn.save_string({f = limn.trace(l, limn.ones(1, n))})
      return #s - n * n * 4 - n * 4
    end
    assert.is_true(math.abs(graph_size(8) - graph_size(200)) < 200)
  end)

  it("can leave out the source lines", function()
    local m, _, _, x = trained()
    local g = limn.trace(m, x)
    assert.is_truthy(limn.save_string({f = g}):find "files_spec.lua")
    assert.is_nil(limn.save_string({f = g}, {lines = false}):find
                  "files_spec.lua")
  end)

  it("is in eval mode and keeps buffers, constants, tied cells", function()
    local a = nn.Linear(2, 2)
    local b = nn.Linear(2, 2)
    b.weight = a.weight
    local m = nn.Sequential(a, b)
    m.count = nn.Buffer(limn.tensor {5})
    local c = limn.tensor {1, 2}
    local g = limn.trace(function(x)
      m.count:assign(m.count + 1)
      return m(x) + c
    end, limn.ones(1, 2))
    local l = limn.load_string(limn.save_string {g = g, m = m})
    U.close(l.g(limn.ones(1, 2)), g(limn.ones(1, 2)), 1e-6)
    U.equal(l:var "count", {6})
    U.equal(l:var "1.weight", a.weight)
  end)

  it("holds every dtype", function()
    for _, dtype in ipairs {"float64", "float32", "float16", "bfloat16",
                            "int64", "int32", "int8", "uint8", "bool"} do
      local t = limn.tensor({0, 1, 1}, dtype)
      local l = limn.load_string(limn.save_string {t = t})
      assert.are.equal(dtype, l.t.dtype)
      U.equal(l.t, t)
    end
    local l = limn.load_string(limn.save_string {
      empty = limn.zeros(0, 3), zero = limn.tensor(7)})
    U.shape(l.empty, {0, 3})
    U.equal(l.zero, {7})
  end)
end)

describe("limn.restore", function()
  it("puts state into live objects, which go on as if never stopped",
     function()
    local m, opt, step, x, t = trained()
    U.with_file(function(path)
      limn.save(path, {net = m, opt = opt})
      local want = {}
      for i = 1, 3 do want[i] = step(x, t):item() end
      local m2, opt2, step2 = trained()
      step2(x, t)
      limn.restore(path, {net = m2, opt = opt2})
      for i = 1, 3 do
        U.close(step2(x, t), {want[i]}, 1e-5, 1, "step " .. i)
      end
    end)
  end)

  it("finds what belongs to each object of a list", function()
    local net = nn.Linear(2, 3)
    local opt = limn.optim.Adam(net)
    U.with_file(function(path)
      limn.save(path, {net = net, opt = opt, ema = limn.optim.EMA(net)})
      local net2 = nn.Linear(2, 3)
      local opt2, ema2 = limn.optim.Adam(net2), limn.optim.EMA(net2)
      opt2:set {lr = 0.5}
      local report = limn.restore(path, {ema2, net2, opt2})
      assert.are.same({missing = {}, extra = {}, misshaped = {}}, report)
      U.equal(net2.weight:value(), net.weight:value())
      U.close(limn.scalar(opt2:get "lr"), {1e-3}, 1e-6)
    end)
  end)

  it("refuses an object of which the file has nothing, or that fits two, and "
     .. "changes nothing", function()
    local a, b = nn.Linear(2, 3), nn.Linear(2, 3)
    U.with_file(function(path)
      limn.save(path, {a = a, b = b})
      local c = nn.Linear(2, 3)
      local before = c.weight:value()
      local line = U.here(1)
      U.message(function() limn.restore(path, {c}) end, line, "object 1",
                'fits both "a" and "b"', "{a = ...}")
      line = U.here(1)
      U.message(function() limn.restore(path, {c = c}) end, line,
                'nothing for "c"', "begin with a, b")
      U.message(function() limn.restore(path, {a = c, nn.PReLU()}) end,
                "nothing for object 1")
      U.equal(c.weight:value(), before)
      limn.restore(path, {b = c})
      U.equal(c.weight:value(), b.weight:value())
    end)
  end)

  it("says what is missing, extra or misshaped; strict refuses, unchanged",
     function()
    local m = nn.Linear(2, 3)
    U.with_file(function(path)
      limn.save(path, {net = m})
      local Other = nn.Module:extend "Other"
      function Other:init()
        self.weight = nn.Parameter(limn.ones(4, 2))
        self.gain = nn.Parameter(limn.ones(1))
      end
      local other = Other()
      local before = other.weight:value()
      local report = limn.restore(path, {net = other})
      assert.are.same({"gain"}, report.missing)
      assert.are.same({"bias"}, report.extra)
      assert.are.same({"weight"}, report.misshaped)
      U.equal(other.weight, before)
      local line = U.here(2)
      U.message(function()
        limn.restore(path, {net = other}, {strict = true})
      end, line, "gain", "weight")
    end)
  end)
end)

describe("A file", function()
  local bytes
  local function example()
    if not bytes then
      local m, _, step, x = trained()
      bytes = limn.save_string {infer = limn.trace(m, x), step = step}
    end
    return bytes
  end

  it("that is truncated anywhere is refused", function()
    local s = example()
    for n = 0, #s - 1, math.max(1, math.floor(#s / 400)) do
      U.message(function() limn.load_string(s:sub(1, n)) end, "files_spec")
    end
    U.message(function() limn.load_string(s .. "x") end, "%a")
    U.with_file(function(path)
      U.write_file(path, s:sub(1, #s - 10))
      local line = U.here(1)
      U.message(function() limn.load(path) end, line)
    end)
  end)

  it("that is damaged anywhere is refused or runs without harm", function()
    local s = example()
    local r = U.random(8)
    local refused, n = 0, U.asan and 100 or 600
    for _ = 1, n do
      local at = 1 + math.floor(r() * #s)
      local byte = string.char(math.floor(r() * 256))
      local ok, l = pcall(limn.load_string, s:sub(1, at - 1) .. byte
                          .. s:sub(at + 1))
      if not ok then
        refused = refused + 1
        assert.is_string(l)
      else
        pcall(function() return l.infer(limn.ones(2, 3)):totable() end)
      end
    end
    assert.is_true(refused > n / 10, refused)
  end)

  it("with a false header is refused: sizes, overlaps, holes, duplicates",
     function()
    local function file(header, data)
      local n = #header
      local len = ""
      for _ = 1, 8 do
        len = len .. string.char(n % 256)
        n = math.floor(n / 256)
      end
      return len .. header .. (data or "")
    end
    local four = ("\0"):rep(4)
    local good = '{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
    U.equal(limn.load_string(file(good, four)).a, {0})
    for what, s in pairs {
      ["nothing"] = "",
      ["no length"] = "abc",
      ["a huge header"] = ("\255"):rep(8) .. "{}",
      ["no JSON"] = file("nonsense"),
      ["an open brace"] = file('{"a":{'),
      ["a shape that does not fit"] =
        file('{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}', four),
      ["a range beyond the end"] =
        file('{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}', four),
      ["an overlap"] = file('{"a":{"dtype":"F32","shape":[1],"data_offsets":'
        .. '[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}',
        four),
      ["a hole"] = file('{"a":{"dtype":"F32","shape":[1],"data_offsets":'
        .. '[4,8]}}', four .. four),
      ["a duplicate"] = file('{"a":{"dtype":"F32","shape":[1],"data_offsets":'
        .. '[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}',
        four .. four),
      ["an unknown dtype"] =
        file('{"a":{"dtype":"Q99","shape":[1],"data_offsets":[0,4]}}', four),
      ["a negative size"] =
        file('{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}', four),
      ["an overflow"] = file('{"a":{"dtype":"F32","shape":[4294967296,'
        .. '4294967296,4294967296],"data_offsets":[0,4]}}', four),
      ["a newer format"] = file('{"__metadata__":{"limn.format":"99"},"a":{'
        .. '"dtype":"F32","shape":[1],"data_offsets":[0,4]}}', four),
    } do
      local ok, err = pcall(limn.load_string, s)
      assert.is_false(ok, what)
      assert.is_truthy(err:find "files_spec.lua:%d+", what .. ": " .. err)
    end
  end)

  it("that is not there, or a folder, is an error with its path", function()
    local line = U.here(1)
    U.message(function() limn.load "/nowhere/x.limn" end, line,
              "/nowhere/x.limn")
    U.message(function() limn.load "spec" end, "spec")
    U.message(function()
      limn.save("/nowhere/x.limn", {x = limn.ones(1)})
    end, "/nowhere/x.limn")
  end)

  it("is replaced as a whole: a failed save leaves the old one", function()
    U.with_file(function(path)
      limn.save(path, {x = limn.ones(1)})
      local before = U.read_file(path)
      U.message(function() limn.save(path, {f = print}) end, "function")
      assert.is_true(before == U.read_file(path))
    end)
  end)

  it("is a safetensors file that Python reads", function()
    local _, ok = U.run "python3 -c 'import safetensors.numpy'"
    if not ok then
      pending "python3 has no safetensors"
      return
    end
    local m = trained()
    U.with_file(function(path)
      limn.save(path, {m = m, i = limn.tensor({1, 2, 3}, "int64")})
      local text, fine = U.run(("python3 -c %s %s"):format(U.quote(
        "import sys, safetensors.numpy as s\n"
        .. "for k, v in sorted(s.load_file(sys.argv[1]).items()):\n"
        .. "  print(k, list(v.shape), v.dtype, round(float(v.sum()), 4))"),
        path))
      assert.is_true(fine, text)
      assert.is_truthy(text:find "1.weight %[4, 3%] float32", text)
      assert.is_truthy(text:find "i %[3%] int64 6.0", text)
    end)
  end)
end)
