-- NumPy's .npy: one array. The format is NEP 1's, versions 1 to 3.
local core = require "limn.core"
local bytes = require "limn.data.bytes"

local limn = require "limn.lazy"

local M = {}

-- NumPy's types: dtype, bytes there and here, signed. Unsigned integers that
-- have no dtype here take the next larger one.
local types = {
  b1 = {"uint8", 1, 1}, u1 = {"uint8", 1, 1}, i1 = {"int8", 1, 1},
  i2 = {"int32", 2, 4, true}, u2 = {"int32", 2, 4},
  i4 = {"int32", 4, 4, true}, u4 = {"int64", 4, 8}, i8 = {"int64", 8, 8, true},
  f2 = {"float16", 2, 2}, f4 = {"float32", 4, 4}, f8 = {"float64", 8, 8},
}
local names = {
  bool = "|b1", uint8 = "|u1", int8 = "|i1", int32 = "i4", int64 = "i8",
  float16 = "f2", float32 = "f4", float64 = "f8",
}

-- {shape}, or nil: "(3, 4)" between its parentheses.
local function shape_of(text)
  if text:find "[^%d%s,L]" then return nil end -- old files write 3L
  local shape, reversed, count = {}, {}, 1
  for n in text:gmatch "%d+" do
    shape[#shape + 1] = tonumber(n)
    count = count * tonumber(n)
    if tonumber(n) > 2 ^ 50 then return nil end
  end
  for i, n in ipairs(shape) do reversed[#shape + 1 - i] = n end
  return shape, reversed, count
end

-- The header's text and the position of the data.
local function header_of(s, bad)
  if s:sub(1, 6) ~= "\147NUMPY" then
    bad "it does not begin with NumPy's mark"
  elseif #s < 12 then
    bad "it ends within its header"
  end
  local major = s:byte(7)
  if major < 1 or major > 3 then bad("its version is " .. major) end
  local width = major == 1 and 2 or 4
  local from = 9 + width
  local length = bytes.number(s, 9, width)
  if from + length - 1 > #s then bad "it ends within its header" end
  return s:sub(from, from + length - 1), from + length
end

--- data.npy_string(bytes): the tensor in an .npy file's bytes.
function M.npy_string(s, name)
  name = name or "npy data"
  local function bad(what, hint)
    core.fail(name .. " is not a sound npy file: " .. what, hint)
  end
  local head, at = header_of(s, bad)
  head = head:gsub('"', "'")
  local order, code = head:match "'descr'%s*:%s*'([<>|=]?)(%w+)'"
  local fortran = head:match "'fortran_order'%s*:%s*(%a+)"
  local text = head:match "'shape'%s*:%s*%(([^)]*)%)"
  if head:find "'descr'%s*:%s*%[" then
    core.fail(name .. " holds records, not numbers",
              "save each field as an array of its own")
  elseif not code or not text or (fortran ~= "True" and fortran ~= "False")
  then
    bad "its header lacks descr, fortran_order or shape"
  end
  local kind = types[code]
  if not kind then
    core.fail(("%s holds elements of NumPy's type '%s', which limn has not")
              :format(name, code), "convert it with .astype first")
  end
  local shape, reversed, count = shape_of(text)
  if not shape then bad("its shape is (" .. text .. ")") end
  if #shape > 8 then
    core.fail(name .. " has " .. #shape .. " dims; at most 8 are possible")
  end
  local want, have = count * kind[2], #s - at + 1
  if want ~= have then
    bad(string.format("%s of (%s) need %.0f bytes of data, the file has %d",
                      code, text, want, have))
  end
  local body = bytes.convert(s:sub(at), kind[2], kind[3], order == ">",
                             kind[4])
  if fortran == "True" and #shape > 1 then shape = reversed
  else fortran = "False" end
  local t = limn.from_string(body, kind[1], shape)
  if code == "b1" then t = t:ne(0) end -- any other byte than 0 is true
  if fortran == "True" then
    local dims = {}
    for d = 1, #shape do dims[d] = #shape + 1 - d end
    t = t:permute(dims):contiguous()
  end
  return t
end

--- data.npy_bytes(t) -> string: the bytes of an .npy file.
function M.npy_bytes(t, who)
  who = who or "npy_bytes"
  local kind = core.type(t)
  if kind ~= "tensor" and kind ~= "cell" then
    core.fail(who .. ": a tensor is wanted, got " .. (kind or type(t)))
  end
  local descr = names[t.dtype]
  if not descr then
    core.fail(who .. ": NumPy has no " .. tostring(t.dtype),
              't:to "float32" converts')
  end
  if descr:sub(1, 1) ~= "|" then descr = (bytes.big and ">" or "<") .. descr end
  local shape = table.concat(t.shape, ", ")
  if #t.shape == 1 then shape = shape .. "," end
  local head = ("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }")
    :format(descr, shape)
  local pad = -(10 + #head + 1) % 64 -- the data starts at a multiple of 64
  head = head .. (" "):rep(pad) .. "\n"
  return "\147NUMPY\1\0" .. bytes.little(#head, 2) .. head .. t:bytes()
end

--- data.read_npy(path): the tensor in an .npy file.
function M.read_npy(path)
  local t = M.npy_string(bytes.read(path), path)
  return t
end

--- data.write_npy(path, t): write a tensor as an .npy file.
function M.write_npy(path, t)
  bytes.write(path, M.npy_bytes(t, "write_npy"))
end

return M
