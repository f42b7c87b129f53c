-- Data files: gzip, npy, npz and CSV, whole, damaged and absent.
local U = require "support.util"
local limn = U.limn
local data = limn.data
local zlib = require "limn.data.zlib"

local function hex(s)
  return (s:gsub("%s", ""):gsub("..", function(h)
    return string.char(tonumber(h, 16))
  end))
end

-- Made by gzip and NumPy: uint8 {1, 2, 3}; int16 {{1, -2}, {300, 4}}, the high
-- byte first, in columns; a = float32 {1.5, -2}, b = 7, deflated.
local idx_gz = hex [[
  1f8b08000000000002036360e0606460606066646206008be5bda40b000000]]
local fortran = hex [[
  934e554d5059010076007b276465736372273a20273e6932272c2027666f727472616e5f
  6f72646572273a20547275652c20277368617065273a2028322c2032292c207d20202020
  202020202020202020202020202020202020202020202020202020202020202020202020
  202020202020202020202020202020202020200a0001012cfffe0004]]
local numpy_npz = hex [[
  504b03042d000000080000002100d6434b05ffffffffffffffff05001400612e6e707901
  00100088000000000000004b000000000000009bec17ea1b10c9c850c650ad9e925a9c5c
  a46ea5a06e9366a2aea3a09e965f54529498179f5f94920a12774bcc294e058a17672416
  a402f91a463a9a3a0ab50a14002e068603f60c400200504b03042d000000080000002100
  23b8f06cffffffffffffffff05001400622e6e7079010010008800000000000000460000
  00000000009bec17ea1b10c9c850c650ad9e925a9c5ca46ea5a06e9369a1aea3a09e965f
  54529498179f5f94920a12774bcc294e058a17672416a402f91a9a3a0ab50a14012e7606
  080000504b01022d032d000000080000002100d6434b054b000000880000000500000000
  00000000000000800100000000612e6e7079504b01022d032d00000008000000210023b8
  f06c4600000088000000050000000000000000000000800182000000622e6e7079504b05
  06000000000200020066000000ff0000000000]]

-- f(s) raises for every proper beginning of s, and for none of them anything
-- but a located error that names the file.
local function cut_anywhere(f, s)
  for n = 0, #s - 1 do
    local err = U.message(function() f(s:sub(1, n), "file") end,
                          "datafiles_spec%.lua:%d+: ", "file")
    if err:find "lua/limn" then error(err) end
  end
end

-- Single changed bytes either raise such an error or are not seen.
local function change_anywhere(f, s, from, to)
  for n = from, to do
    local c = string.char((s:byte(n) + 1) % 256)
    local bad = s:sub(1, n - 1) .. c .. s:sub(n + 1)
    local ok, err = pcall(function() f(bad, "file") end)
    if not ok and not tostring(err):find "file.*\n?" then error(err) end
    if not ok and tostring(err):find "lua/limn" then error(err) end
  end
end

-- f without zlib on the machine.
local function without_zlib(f)
  local names = zlib.names
  zlib.close()
  zlib.names = {"libnone.so.9"}
  local ok, err = pcall(f)
  zlib.names = names
  if not ok then error(err, 0) end
end

local has_zlib = pcall(zlib.deflate, "x", "x")
local zit = has_zlib and it or pending

describe("gzip", function()
  zit("is unpacked where idx and CSV are read", function()
    U.equal(data.idx_string(idx_gz), {1, 2, 3})
    U.with_file(function(path)
      U.write_file(path, idx_gz)
      U.equal(data.idx(path), {1, 2, 3})
      assert.is_true(os.execute("gzip -c README.md > " .. path) == 0)
      assert.equal(U.read_file "README.md", zlib.gunzip(U.read_file(path), ""))
    end)
  end)
  zit("may have several members and zeros behind them", function()
    local two = zlib.gunzip(idx_gz .. idx_gz .. "\0\0", "x")
    assert.equal(zlib.gunzip(idx_gz, "x"):rep(2), two)
    U.message(function() zlib.gunzip(idx_gz .. "rest", "x") end,
              "something stands behind its end")
  end)
  zit("is refused where it is damaged", function()
    cut_anywhere(data.idx_string, idx_gz)
    change_anywhere(data.idx_string, idx_gz, 1, #idx_gz)
  end)
  it("asks for zlib where it is absent", function()
    without_zlib(function()
      local line = U.here(1)
      U.message(function() data.idx_string(idx_gz, "x.gz") end, line,
                "x.gz is compressed, and zlib %(libnone.so.9%) is not on this",
                "hint: gunzip it first")
      U.message(function() data.npz_bytes({a = limn.ones(1)},
                                          {compressed = true}) end,
                "leave {compressed = true} out")
      U.message(function() data.npz_string(numpy_npz) end, "numpy.savez ")
    end)
  end)
end)

describe("npy", function()
  it("is read as NumPy writes it", function()
    local t = data.npy_string(fortran)
    assert.equal("int32", t.dtype)
    assert.same({{1, -2}, {300, 4}}, t:totable())
  end)
  it("keeps every dtype and shape", function()
    for _, dtype in ipairs {"bool", "uint8", "int8", "int32", "int64",
                            "float16", "float32", "float64"} do
      for _, shape in ipairs {{}, {3}, {0, 2}, {2, 1, 3}} do
        local t = limn.arange(0, U.numel(shape) - 1):to(dtype):reshape(shape)
        local s = data.npy_bytes(t)
        local u = data.npy_string(s)
        assert.equal(dtype, u.dtype)
        U.shape(u, shape, dtype)
        U.equal(u, U.flat(t), dtype)
      end
    end
  end)
  it("writes what any device and any view holds", function()
    U.each_device(function(dev)
      local t = limn.arange(6):reshape({2, 3}):to(dev):transpose(1, 2)
      U.with_file(function(path)
        data.write_npy(path, t)
        assert.same({{1, 4}, {2, 5}, {3, 6}}, data.read_npy(path):totable())
      end)
    end)
  end)
  it("reads booleans of any byte, and versions 2 and 3", function()
    local s = data.npy_bytes(limn.tensor {true, false, true})
    assert.same({true, false, true},
                data.npy_string(s:sub(1, -4) .. "\7\0\1"):totable())
    for v = 2, 3 do
      local long = s:sub(1, 6) .. string.char(v) .. s:sub(8, 10) .. "\0\0"
        .. s:sub(11)
      assert.same({true, false, true}, data.npy_string(long):totable())
    end
  end)
  it("is refused where it is damaged", function()
    cut_anywhere(data.npy_string, fortran)
    change_anywhere(data.npy_string, fortran, 1, 128)
    local line = U.here(1)
    U.message(function() data.npy_string(fortran .. "x", "a.npy") end, line,
              "a.npy is not a sound npy file",
              "need 8 bytes of data, the file has 9")
    U.message(function() data.npy_string("GIF89a", "a.npy") end, "mark")
    local function with(from, to)
      local at = assert(fortran:find(from, 1, true))
      return fortran:sub(1, at - 1) .. to .. fortran:sub(at + #from)
    end
    U.message(function() data.npy_string(with(">i2", "<c8")) end,
              "NumPy's type 'c8'", "astype")
    U.message(function() data.npy_string(with("'>i2'", "[('a'")) end, "records")
    U.message(function() data.npy_string(with("(2, 2)", "(2,-2)")) end, "shape")
    U.message(function() data.npy_string(with("(2, 2), }  ", "(2, 9999999)}"))
    end, "need 39999996 bytes")
    U.message(function() data.npy_string(with("\1\0", "\9\0")) end,
              "version is 9")
    U.message(function() data.read_npy "no/such/file" end, "no/such/file")
    U.message(function() data.read_npy(3) end, "path is wanted, got number")
    U.message(function() data.write_npy("x", 3) end, "a tensor is wanted")
    U.message(function() data.write_npy("no/such/dir/x", limn.ones(1)) end,
              "cannot write the data file")
    U.message(function() data.npy_bytes(limn.ones(1):to "bfloat16") end,
              "NumPy has no bfloat16")
  end)
end)

describe("npz", function()
  zit("is read as NumPy writes it", function()
    local t = data.npz_string(numpy_npz)
    U.equal(t.a, {1.5, -2})
    assert.equal(7, t.b:item())
    assert.equal("int64", t.b.dtype)
  end)
  it("keeps tensors by name", function()
    local t = {x = limn.rand(5, 4), y = limn.arange(3), e = limn.ones(0)}
    for _, compressed in ipairs {false, has_zlib} do
      U.with_file(function(path)
        data.write_npz(path, t, {compressed = compressed})
        local u = data.read_npz(path)
        for k in pairs(t) do U.equal(u[k], U.flat(t[k])) end
        for k in pairs(u) do assert.is_truthy(t[k]) end
      end)
    end
    assert.same({}, data.npz_string(data.npz_bytes {}))
    assert.equal(data.npz_bytes(t), data.npz_bytes(t))
  end)
  zit("makes less of what repeats", function()
    local t = {x = limn.zeros(200000)}
    local s = data.npz_bytes(t, {compressed = true})
    assert.is_true(#s < 5000)
    U.equal(data.npz_string(s).x:sum(), {0})
  end)
  it("is refused where it is damaged", function()
    local s = data.npz_bytes {x = limn.arange(3)}
    cut_anywhere(data.npz_string, s)
    change_anywhere(data.npz_string, s, 1, #s)
    local at = assert(s:find("NUMPY", 1, true)) + 130
    U.message(function()
      data.npz_string(s:sub(1, at - 1) .. "!" .. s:sub(at + 1), "a.npz")
    end, "a.npz is not a sound npz file: 'x.npy' is damaged: its checksum")
    U.message(function() data.npz_string("PK\3\4", "a.npz") end,
              "no zip directory")
    U.message(function() data.npz_bytes {limn.ones(1)} end,
              "arrays have names, not 1")
    U.message(function() data.npz_bytes {x = 3} end, "x: a tensor is wanted")
    U.message(function() data.npz_bytes(limn.ones(1)) end, "by name")
  end)
  zit("is refused where what is deflated is damaged", function()
    cut_anywhere(data.npz_string, numpy_npz)
    change_anywhere(data.npz_string, numpy_npz, 1, #numpy_npz)
  end)
end)

local flowers = [[
length,"width, in cm",kind,count
5.1, 3.5 ,setosa,1
4.9,3,"the ""big"" one",2

-1e1,0,setosa,3
]]

describe("data.read_csv", function()
  it("gives numbers, labels, columns and classes", function()
    U.with_file(function(path)
      U.write_file(path, flowers)
      local r = data.read_csv(path, {label = "kind"})
      assert.same({"length", "width, in cm", "count"}, r.columns)
      assert.same({'setosa', 'the "big" one'}, r.classes)
      assert.equal("float32", r.x.dtype)
      U.shape(r.x, {3, 3})
      U.close(r.x, {5.1, 3.5, 1, 4.9, 3, 2, -10, 0, 3})
      assert.equal("int64", r.y.dtype)
      U.equal(r.y, {1, 2, 1})
    end)
  end)
  it("takes numbers as labels, or as classes", function()
    local s = "1;10;0.5\r\n2;9;0.25\r\n3;10;1"
    local o = {header = false, separator = ";", label = -1, dtype = "float64"}
    local r = data.csv_string(s, o)
    assert.same({"1", "2"}, r.columns)
    U.equal(r.x, {1, 10, 2, 9, 3, 10})
    U.equal(r.y, {0.5, 0.25, 1})
    assert.equal("float64", r.y.dtype)
    assert.is_nil(r.classes)
    o.label, o.classes = 2, true
    r = data.csv_string(s, o)
    assert.same({"9", "10"}, r.classes)
    U.equal(r.y, {2, 1, 2})
    o.classes = {10, 9}
    U.equal(data.csv_string(s, o).y, {1, 2, 1})
  end)
  it("reads without a label, some columns, other separators", function()
    local r = data.csv_string("a\tb\tc\n1\t\"x\ny\"\t3\n", {separator = "\t",
                              columns = {"c", 1}})
    assert.same({"c", "a"}, r.columns)
    U.equal(r.x, {3, 1})
    assert.is_nil(r.y)
    r = data.csv_string("\239\187\191a,b\n,2\nNA,", {missing = -1})
    assert.same({"a", "b"}, r.columns)
    U.equal(r.x, {-1, 2, -1, -1})
  end)
  it("says where the file is not sound", function()
    local line = U.here(2)
    local function says(s, o, ...)
      U.message(function() data.csv_string(s, o, "f.csv") end, line, "f%.csv",
                ...)
    end
    says("a,b\n1,2\n3\n", nil, "line 3 has 1 fields, line 1 has 2")
    says("a,b\n1,\"2\n3\n", nil, "quote that opens in line 2 is never closed")
    says("a,b\n1,\"2\"3\n", nil, "text follows a quoted field in line 2")
    says("a,b\n1,x\n", nil, "'x' in line 2, column 'b' is no number",
         'label = "b"')
    says("a,b\n\"1\n2\",3\n4,\n", {label = "a"}, "no value in line 4",
         "missing = 0")
    says("", nil, "has no rows")
    says("a,b\n", nil, "a header and no rows")
    says("1,2\n3,4", nil, "first row holds numbers", "header = false")
    says("a,a\n3,4", nil, "two columns are named 'a'")
    says("a,b\n3,4", {label = "c"}, "no column 'c'", "columns are a, b")
    says("a,b\n3,4", {label = 3}, "no column '3'")
    says("a\nx", {label = "a"}, "no columns beside the label")
    says("a,b\n1,x\n2,\n", {label = "b"}, "no label in line 3")
    says("a,b\n1,x\n", {label = "b", classes = {"y", "z"}},
         "'x' in line 2 is none of the classes", "y, z")
    says("\0\1\2\n\5", nil, "is no number")
    U.message(function() data.csv_string("a", {separator = "ab"}) end,
              "separator is one character")
    U.message(function() data.csv_string("a", {seperator = ","}) end,
              "separator")
    U.message(function() data.read_csv "no/such.csv" end, "no/such.csv")
  end)
end)

describe("data", function()
  it("names what is near a misspelt part", function()
    U.message(function() return data.read_cvs end, "read_csv")
  end)
end)
