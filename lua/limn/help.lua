-- limn.help: what a function does, from the comments beside its code and from
-- the op table. A comment that opens with three dashes documents what it names
-- first: "nn.linear(x, weight [, bias]): ...".
local core = require "limn.core"

local help = {}

-- -- What C defines ----------------------------------------------------------

--- limn.tensor(values [, dtype [, device]]): a tensor of nested tables of
-- numbers (float32) or booleans (bool); options may also stand in a table
-- {dtype, device}.
--- limn.from_string(s, dtype [, sizes] [, device]): a tensor of the bytes of a
-- string in row-major order and the machine's byte order; one dim unless sizes
-- are given.
--- limn.zeros(n, ... [, {dtype = "float32", device}]): a tensor of zeros. Sizes
-- are numbers, or sizes of a trace, or a list of these; a dtype or device may
-- stand for the options; without a device it is made where the run is.
-- limn.ones and limn.empty alike.
--- limn.ones(n, ... [, options]): a tensor of ones.
--- limn.empty(n, ... [, options]): a tensor of zeros, too: nothing is left
-- undefined.
--- limn.full(sizes, value [, options]): a tensor of one value.
--- limn.rand(n, ... [, options]): uniform values, at least 0 and below 1.
--- limn.randn(n, ... [, options]): normal values with mean 0 and deviation 1.
--- limn.randint(low, high [, n, ...] [, {dtype = "int64", device}]): whole
-- numbers from low to high, both included; randint(6) is a die.
--- limn.arange(last) or limn.arange(first, last [, step]) [, options]: first
-- (1), first + step, ... up to last, which is included.
--- limn.eye(n [, m [, options]]): an n x m matrix with ones on its diagonal.
--- limn.rand_bits(n, ... [, options]): random 32-bit words, int64.
--- x:zeros_like([dtype]): zeros in x's shape, dtype and device; x:ones_like(),
-- x:empty_like(), x:full_like(v), x:rand_like(), x:randn_like() alike.
--- x:ones_like([dtype]): ones in x's shape, dtype and device.
--- x:empty_like([dtype]): zeros in x's shape, dtype and device.
--- x:full_like(v [, dtype]): one value in x's shape, dtype and device.
--- x:new_zeros(n, ...): zeros in x's dtype and where x is.
--- x.shape: a list of the sizes; it prints, compares (==) and joins as text. In
-- a trace they are Dims, and == records guards.
--- x.dtype: its name, as in "float32"; in a trace a token that can be given on.
--- x.device: its name, as in "cpu" or "opencl:0"; in a trace where the run is.
--- x:size(d), x:size(): the size of dim d (from 1; -1 is the last), or a list
-- of all. A number, in a trace a Dim.
--- x:dim() -> number: how many dims there are.
--- x:numel(): how many elements there are; in a trace a Dim.
--- x:item() -> value: the one element, as a Lua number or boolean. Waits for a
-- GPU; outside traces.
--- x:at(i, j, ...) -> value: one element, as a Lua number or boolean. Outside
-- traces.
--- x:totable() -> table: all elements as nested tables. Outside traces.
--- x:bytes() -> string: the elements in row-major order, in the machine's byte
-- order.
--- x:to(dtype or device [, device]): x in another dtype, on another device, or
-- both; x itself where nothing changes.
--- x:clone(): a copy with memory of its own.
--- x:contiguous(): x, or a copy whose elements lie in row-major order.
--- x:copy_from(y): give the handle x the elements of y; its shape, dtype and
-- device stay.
--- x:detach(): x as a constant: no gradient goes through.
--- x:masked_select(mask): the elements where the bool mask holds, in one row.
-- Outside traces.
--- x:view(sizes), x:amax(dim, keepdim), x:amin(dim, keepdim), x:multiply(y),
-- x:subtract(y), x:divide(y), x:negative(), x:mm(y), x:mv(y), x:bmm(y),
-- x:swapaxes(a, b), limn.concat(list, dim): other names of reshape, max, min,
-- mul, sub, div, neg, matmul, transpose and cat.
--- limn.value(n) -> number: the number in a Dim; in a trace this records a
-- guard, so that a run with another one is refused.
--- limn.tracing() -> boolean: whether a trace records here.
--- limn.type(v) -> string or nil: "tensor", "cell", "graph", "dim", ... for
-- limn's objects.
--- limn.seed(n): another name of limn.manual_seed.
--- limn.counters() -> table: what the context has counted: traces, plans,
-- launches, bytes. For tests.
--- cell:assign(v): give the cell a new value of its shape; the dtype is
-- converted. In a trace this is recorded. cell:value() is its tensor.
--- cell:value() -> tensor: the value now.
--- graph:run_into({out, ...}, ...): run, and write the results to these
-- tensors; allocates nothing.
--- graph:prepare(...): make the plan for these arguments and warm it up.
--- graph:explain(...) -> string: time, kernel and memory of each step, by line
-- and module path.
--- graph:on(device) -> function: the graph, run there whatever its arguments.
--- graph:captures() -> list of {name, value, where}: the tensors it took from
-- outside.
--- graph:stats() -> table: hits and misses of its plans, and why.
--- graph:text() -> string: the graph as it is stored.

-- -- Comments --------------------------------------------------------------

-- help.split(text) -> head, rest: an entry at the first colon outside
-- brackets: "x:nonzero(...), x:argwhere()" and what they do.
function help.split(text)
  local depth = 0
  for at = 1, #text do
    local ch = text:sub(at, at)
    if ch:find "[%(%[{]" then depth = depth + 1 end
    if ch:find "[%)%]}]" then depth = depth - 1 end
    if depth == 0 and text:find("^: ", at) then
      return text:sub(1, at - 1), text:sub(at + 2)
    end
  end
  return text, ""
end

-- The names at the head of an entry. Commas within brackets separate
-- arguments, not names.
local function names_of(text)
  local names = {}
  local head = help.split(text):gsub("%b()", "()"):gsub("%b{}", "{}")
  for part in (head .. ","):gmatch "%s*([^,]*)," do
    names[#names + 1] = part:match "^[%a_][%w_]*[.:][%w_.]+"
  end
  return names
end

-- Append the entries in the comments of one source file.
local function read(path, list)
  local f = io.open(path)
  if not f then return end -- limn may have been loaded from elsewhere
  local text
  local function finish()
    local names = text and names_of(text) or {}
    local head, rest = help.split(text or "")
    if names[1] and head:find "[%({]" and rest ~= ""
      or head:find "^x%.%l+$" then
      list[#list + 1] = {names = names, text = text}
    end
    text = nil
  end
  for line in f:lines() do
    local first, more = line:match "^%-%-%- (.*)", line:match "^%-%- (.*)"
    if first then
      finish()
      text = first
    elseif more and text then
      text = text .. " " .. more
    else
      finish()
    end
  end
  finish()
  f:close()
end

-- -- The op table ----------------------------------------------------------

-- "x:T dim:d keepdim:b=false" as an argument list, and whether the first is a
-- tensor x that has the method. Users give no draws and no words for messages.
local function arguments(sig)
  local list, method = {}, false
  for name, rest in sig:gmatch "([%w_]+):%a(%S*)" do
    local default = rest:match "=(.*)"
    if name == "x" and #list == 0 and rest == "" then
      method = true
    elseif name ~= "draw" and name ~= "what" then
      if default then name = name .. " = " .. default end
      if rest:find "%?" then name = "[" .. name .. "]" end
      list[#list + 1] = name
    end
  end
  return method, table.concat(list, ", ")
end

local function op_entries(list)
  local limn = require "limn"
  local known = {}
  for _, e in ipairs(list) do
    for _, name in ipairs(e.names) do known[name] = true end
  end
  for _, op in ipairs(core.ops_info()) do
    local method, args = arguments(op.sig)
    local name = (method and "x:" or "limn.") .. op.name
    if op.row ~= "H" and not known[name] and not known["x:" .. op.name]
      and rawget(limn, op.name) then
      list[#list + 1] = {names = {name}, op = true,
                         text = ("%s(%s): %s"):format(name, args, op.doc)}
    end
  end
end

-- -- Looking up ------------------------------------------------------------

local entries -- read when first asked for

-- help.entries() -> list of {names, text, op}: all that is documented.
function help.entries()
  if entries then return entries end
  local limn = require "limn"
  local _ = {limn.nn, limn.optim, limn.data} -- loaded when first asked for
  local list, files = {}, {}
  for name in pairs(package.loaded) do
    if name == "limn" or name:find "^limn%." then files[#files + 1] = name end
  end
  table.sort(files)
  for _, name in ipairs(files) do
    local path = package.searchpath(name, package.path)
    if path then read(path, list) end
  end
  op_entries(list)
  entries = list
  return list
end

-- "nn.Conv2d", "Conv2d", "conv2d" or the function or class itself.
local function sought(what)
  if type(what) == "string" then return what end
  local limn = require "limn"
  for prefix, t in pairs {["limn."] = limn, ["nn."] = limn.nn,
                          ["linalg."] = limn.linalg,
                          ["optim."] = limn.optim, ["data."] = limn.data,
                          ["nn.init."] = limn.nn.init} do
    for name, v in pairs(t) do
      if v == what then return prefix .. name end
    end
  end
  local mt = getmetatable(what)
  return type(mt) == "table" and rawget(mt, "class_name") or tostring(what)
end

-- "Module has apply, clone, ...", or nil.
function help.members(owner)
  local list = {}
  for _, e in ipairs(help.entries()) do
    for _, n in ipairs(e.names) do
      if (n:match "^(.-)[.:][%w_]+$" or ""):match "[%w_]+$" == owner then
        list[#list + 1] = n:match "[%w_]+$"
      end
    end
  end
  table.sort(list)
  return list[1] and owner .. " has " .. table.concat(list, ", ") or nil
end

-- help.text(what) -> string or nil, near names: the entries that match a
-- name, a function or a class.
function help.text(what)
  local name = sought(what)
  local last = (name:match "[%w_]+$" or name):gsub("_$", "")
  local whole, part, all = {}, {}, {}
  for _, e in ipairs(help.entries()) do
    for _, n in ipairs(e.names) do
      all[#all + 1] = n:match "[%w_]+$"
      if n == name then whole[#whole + 1] = e.text end
      if n:match "[%w_]+$" == last then part[#part + 1] = e.text end
    end
  end
  local found = whole[1] and whole or part
  found[#found + 1] = help.members(name)
  if not found[1] then return nil, core.near(last, all) end
  return table.concat(found, "\n\n")
end

local function wrapped(text, width)
  local out, at = {}, 0
  for word in text:gmatch "%S+" do
    if at > 0 and at + #word >= width then
      out[#out + 1] = "\n  "
      at = 2
    elseif at > 0 then
      out[#out + 1] = " "
      at = at + 1
    end
    out[#out + 1] = word
    at = at + #word
  end
  return table.concat(out)
end

local how = 'limn.help "conv2d" or limn.help(nn.Conv2d) shows an entry, '
  .. 'limn.help "nn" or "Module" what there is'

--- limn.help(what): print what a function, layer or op does, as in
-- limn.help "conv2d" or limn.help(nn.Conv2d), or what limn.help "nn", "Module"
-- or "graph" has.
setmetatable(help, {__tostring = function() return how end,
  __call = function(_, what)
  if what == nil then
    print(how)
    return
  end
  local text, near = help.text(what)
  if not text then
    core.fail("there is no help on '" .. sought(what) .. "'" .. (near or ""))
  end
  for part in (text .. "\n\n"):gmatch "(.-)\n\n" do
    print(wrapped(part, 78))
  end
end})

return help
