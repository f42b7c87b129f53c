-- The Lua parser of limn.script: it takes what Lua takes, and what it prints is
-- the same program on the same lines.
local limn = require "limn"
local lexer = require "limn.script.lexer"
local parser = require "limn.script.parser"
local Writer = require "limn.script.writer"
local U = require "support.util"
assert(limn)

local function read(path)
  local f = assert(io.open(path, "rb"))
  local s = f:read "*a"
  f:close()
  return s
end

local function files(where)
  local list = {}
  for f in io.popen("find " .. where .. " -name '*.lua' 2>/dev/null"):lines()
  do
    list[#list + 1] = f
  end
  table.sort(list)
  return list
end

local function print_back(tokens)
  local w = Writer.new(tokens, 1)
  w:copy(1, #tokens - 1)
  w:at(#tokens) -- the line where the text ends
  return w:text()
end

-- Lua's own opinion: nothing, or its message without the place.
local function lua_says(text)
  local f, e = loadstring(text:gsub("^#[^\n]*", ""), "=t")
  return f, e and e:gsub("^t:%d+: ", ""), e and tonumber(e:match "^t:(%d+):")
end

local function parse(text)
  local ok, root, tokens = pcall(parser.parse, text)
  if ok then return root, tokens end
  assert.is_table(root, tostring(root)) -- {line =, message =}, no bug of ours
  return nil, root
end

-- Printed back it is the same bytecode: the same lines, names and constants.
local function check_file(path)
  local text = read(path)
  local f = lua_says(text)
  local root, tokens = parse(text)
  assert.are.equal(f ~= nil, root ~= nil, path)
  if not f then return end
  local g = assert(loadstring(print_back(tokens), "=t"), path)
  assert.is_true(string.dump(f) == string.dump(g), path)
end

describe("The parser of limn.script", function()
  it("reads every Lua file of the project, and prints it back to the same "
     .. "bytecode", function()
    local list = files "lua spec examples bench bin scripts"
    assert.is_true(#list > 80)
    for _, path in ipairs(list) do check_file(path) end
    check_file "bin/limn"
  end)

  it("reads the Lua files that this machine has installed", function()
    local list = files "/usr/share/lua /usr/local/share/lua /usr/share/luajit*"
    for i = 1, #list, math.max(1, math.floor(#list / 80)) do
      check_file(list[i])
    end
  end)

  local function same(text)
    local f = assert(lua_says(text))
    local root, tokens = parse(text)
    assert.is_truthy(root, text .. ": " .. tostring(tokens.message))
    local g = assert(loadstring(print_back(tokens), "=t"))
    assert.is_true(string.dump(f) == string.dump(g), text)
  end

  it("knows all literals of LuaJIT", function()
    for _, n in ipairs {"3", "3.0", "3.1416", "314.16e-2", "0.31416E1", ".5",
      "5.", "0xff", "0x56", "0xA.8p1", "0x.1p-3", "0X1P4", "0x1.8", "42LL",
      "42ull", "0x2aLL", "0xffULL", "12i", "12.5i", "0x10i", "1e3i", "0b101",
      "1e+10", "1E-10"} do
      same("return " .. n)
      same("return -" .. n .. " + " .. n .. " ..''")
    end
    for _, s in ipairs {[["a\n\t\\\"b"]], [['\65\066\0677']], [["\x41\x7a"]],
      [["\u{48}\u{20AC}"]], '"a\\\nb"', '"a\\\r\nb"', '"a\\z  \n \n  b" .. x',
      "[[\nlong\n]]", "[==[ ]] ]=] ]==]", "[[\r\na\r\n]]", [['"']]} do
      same("return " .. s .. "\n, y")
    end
  end)

  it("knows comments, line ends and what looks like something else", function()
    same "#!/usr/bin/luajit\nreturn 1"
    same "--[==[ a\n ]] \n]==] return 1 -- end"
    same "--[ not long\nreturn --[[ in\nside ]] 1"
    same "local a\r\nlocal b\n\rlocal c\rlocal d\n\nreturn d"
    same "return a.b.c[1]['x']:m 'y' {z = 1} (2)(3)"
    same "local goto = 1 goto = goto + 1 return goto"
    same "goto done; do local x; goto done end ::done::"
    same "for i = 1, 3 do if i == 2 then goto go_on end f(i) ::go_on:: end"
    same "return {1, 2; 3, a = 1; [f(x)] = 2, function() end, ...}"
    same "local f = function(a, b, ...) local c = ... return c, ... end"
    same "function a.b.c:d(x, ...) return self, x end local function g() end"
    same "return not a == b, - x ^ - y ^ 2, a .. b .. c, #a + 1, (f())"
    same "return 1 ..2, a and b or c and not d, 1 < 2 == true"
    same "repeat local x = f() until x > 3; while true do break end"
    same "do return end"
    same "if a then elseif b then else end"
    same "local \195\164\195\182 = 1 return \195\164\195\182"
  end)

  it("refuses what Lua refuses, at Lua's line", function()
    for _, s in ipairs {"x =", "x = = 2", "if a then\n\nreturn 1", "f(", "(f)",
      "local 3", "return 'abc", "return 'a\nb'", "--[[ never\n\n", "[[ a\n\n",
      "x = 3e", "x = 0xg", "x = 3..2", "for i = 1 do end", "for i, 2 in x do",
      "a.b:c = 1", "x = }", "end", "goto 3", "::a", "x = 1 + ", "@", "f() = 1",
      "local function a.b() end", "function f(a, ..., b) end", "return return",
      "a, b", "x = {1, 2", "repeat f()", "\n\nx = \n\n]", "x = 5lll"} do
      local f, message, line = lua_says(s)
      assert.is_nil(f, s)
      local root, problem = parse(s)
      assert.is_nil(root, s .. ": " .. message)
      assert.are.equal(line, problem.line, s .. ": " .. message .. " / "
                       .. problem.message)
    end
  end)

  it("agrees with Lua on texts with tokens left out, doubled and swapped",
     function()
    local tokens = lexer.tokens(read "lua/limn/script/parser.lua")
    local random, n = U.random(7), #tokens - 1
    -- What Lua says of code that has the grammar's form.
    local other = {"outside a vararg function", "no loop to break",
      "undefined label", "ambiguous syntax", "jumps into", "too many",
      "duplicate label", "no visible label", "cannot use '...'"}
    local parsed = 0
    for _ = 1, 200 do
      local first = 1 + math.floor(random() * (n - 60))
      local words = {}
      for i = first, first + 50 do words[#words + 1] = tokens[i].text end
      local a = 1 + math.floor(random() * #words)
      local b = 1 + math.floor(random() * #words)
      local kind = random()
      if kind < 0.3 then table.remove(words, a)
      elseif kind < 0.6 then table.insert(words, a, words[b])
      else words[a], words[b] = words[b], words[a] end
      for k = 0, 50 do
        local text = table.concat(words, " ", 1, #words - k)
        local f, message = lua_says(text)
        for _, m in ipairs(other) do
          if message and message:find(m, 1, true) then message = nil end
        end
        local root = parse(text)
        if f then assert.is_truthy(root, text) parsed = parsed + 1 end
        if message then assert.is_nil(root, text .. "\n" .. message) end
      end
    end
    assert.is_true(parsed > 100)
  end)
end)
