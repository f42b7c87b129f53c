-- Finding the text of a function: its source, parsed once, and its node.
local core = require "limn.core"
local parser = require "limn.script.parser"
local analysis = require "limn.script.analysis"
local rewrite = require "limn.script.rewrite"

local fail = core.fail
local M = {}

local function read(path)
  local file = io.open(path, "rb")
  if not file then return nil end
  local text = file:read "*a"
  file:close()
  return text
end

-- The text that a function was loaded from.
local function text_of(info)
  local source = info.source
  if source:sub(1, 1) == "@" then
    local text = read(source:sub(2))
    if text then return text end
    fail(("script: the source of this function, %s, cannot be read"):format(
      source:sub(2)), "limn.script needs the text of a function; script it "
        .. "where the working directory is the one it was loaded in")
  elseif source:sub(1, 1) == "=" then
    fail(("script: the text of this function is not known; its chunk is called "
      .. "%s"):format(source:sub(2)), "load it from a file, or with loadstring "
        .. "and no name, so that the name is the text")
  end
  return source
end

-- Sources are parsed once each; a changed file is another text.
local parsed = setmetatable({}, {__mode = "v"})

local function parse(info)
  local text = text_of(info)
  local p = parsed[text]
  if p then return p end
  local ok, root, tokens = pcall(parser.parse, text)
  if ok then
    p = {root = root, tokens = tokens}
    ok, p.funcs = pcall(analysis.run, root, tokens)
    root = p.funcs
  end
  if not ok then
    if type(root) ~= "table" then error(root, 0) end
    error(("%s:%d: script: %s"):format(info.short_src, root.line,
      root.message), 0)
  end
  parsed[text] = p
  return p
end

-- A number in LEB128, and where it ends.
local function uleb(s, i)
  local v, unit = 0, 1
  repeat
    local b = s:byte(i)
    v, unit, i = v + b % 128 * unit, unit * 128, i + 1
  until b < 128
  return v, i
end

-- LuaJIT's bytecode of f and the functions in it, but for where upvalues come
-- from: two bytes each after the instructions (LuaJIT's lj_bcdump.h).
local function code_of(f)
  local s, parts = string.dump(f, true), {}
  local _, i = uleb(s, 5) -- after the magic number and the version: flags
  while true do
    local size, first = uleb(s, i)
    if size == 0 then return table.concat(parts) end
    local ups, count = s:byte(first + 3), nil
    local at = first + 4
    for _ = 1, 3 do count, at = uleb(s, at) end -- constants, instructions
    at = at + 4 * count
    parts[#parts + 1] = s:sub(first, at - 1)
    parts[#parts + 1] = s:sub(at + 2 * ups, first + size - 1)
    i = first + size
  end
end

-- What tells a function from another: names of upvalues, and its code.
local function describe(f)
  local names = {}
  for i = 1, debug.getinfo(f, "u").nups do
    names[i] = debug.getupvalue(f, i)
  end
  return table.concat(names, ",") .. ";" .. code_of(f)
end

-- Does the text of the node give a function like f?
local function matches(node, tokens, f, info)
  local chunk = loadstring(rewrite.plain(node, tokens), info.source)
  return chunk and describe(chunk()) == describe(f)
end

-- Do these nodes have the same text?
local function alike(nodes, tokens)
  local first = nodes[1]
  for i = 2, #nodes do
    local n = nodes[i]
    if n.last - n.params ~= first.last - first.params then return false end
    for k = 0, n.last - n.params do
      if tokens[n.params + k].text ~= tokens[first.params + k].text then
        return false
      end
    end
  end
  return true
end

-- The node of f in its source, {root =, tokens =, funcs =}, what Lua says.
function M.find(f)
  local info = debug.getinfo(f, "S")
  if info.what == "C" then
    fail("script: a C function has no Lua text")
  end
  local p = parse(info)
  if info.what == "main" then
    fail("script: a whole chunk cannot be scripted", "script a function in it")
  end
  local found, near = {}, 0
  for _, node in ipairs(p.funcs) do
    if p.tokens[node.defined].line == info.linedefined
      and p.tokens[node.last].line == info.lastlinedefined then
      near = near + 1
      if matches(node, p.tokens, f, info) then found[#found + 1] = node end
    end
  end
  local place = ("%s:%d"):format(info.short_src, info.linedefined)
  if #found == 0 then
    error(place .. ": script: " .. (near == 0
      and "there is no function at this line any more"
      or "the text of this function has changed since it was loaded")
      .. "\nhint: load the file again", 0)
  elseif #found > 1 and not alike(found, p.tokens) then
    error(place .. ": script: two functions begin and end on this line, and "
      .. "they cannot be told apart\nhint: put them on lines of their own", 0)
  end
  return found[1], p, info
end

return M
