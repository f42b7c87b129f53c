-- The prompt of bin/limn: what it completes, prints and says.
local U = require "support.util"
local limn = U.limn
local repl = limn.repl

-- What a session of these lines prints after the banner, errors too.
local function session(...)
  local path = os.tmpname()
  U.write_file(path, table.concat({...}, "\n") .. "\n")
  local out = U.run(("LIMN_DEVICES=cpu luajit bin/limn < %s 2>&1"):format(path))
  os.remove(path)
  return out:gsub("^limn .-leaves\n", "")
end

describe("The prompt", function()
  it("completes globals, parts of limn, methods, fields and layers", function()
    local function has(text, want)
      local list = repl.complete(text)
      for _, s in ipairs(list) do
        assert.are.equal(text, s:sub(1, #text))
        if s == want then return end
      end
      error(("%s gives %s, not %s"):format(text, table.concat(list, " "), want))
    end
    rawset(_G, "repl_x", limn.ones(2))
    rawset(_G, "repl_net", {net = limn.nn.Linear(2, 3)})
    rawset(_G, "repl_limn", limn)
    has("repl_", "repl_x")
    has("whi", "while")
    has("repl_limn.zer", "repl_limn.zeros")
    has("repl_limn.nn.Conv", "repl_limn.nn.Conv2d")
    has("repl_x:su", "repl_x:sum")
    has("repl_x.sh", "repl_x.shape")
    has("repl_net.net.we", "repl_net.net.weight")
    has("repl_net.net:para", "repl_net.net:parameters")
    has("repl_net.net.weight:ass", "repl_net.net.weight:assign")
    assert.are.same({}, repl.complete "repl_x.nothing.there")
    assert.are.same({}, repl.complete "nothing.at.all")
    rawset(_G, "repl_x", nil)
    rawset(_G, "repl_net", nil)
    rawset(_G, "repl_limn", nil)
  end)

  it("prints short lists in a line, and large or deep tables in part",
     function()
    assert.are.equal("{2, 3}", repl.show(limn.ones(2, 3).shape))
    assert.are.equal('{1, "b", [7] = {}, c = {true}}',
                     repl.show {1, "b", c = {true}, [7] = {}})
    assert.are.equal("{{{{...}}}}", repl.show {{{{5}}}})
    local long = {}
    for i = 1, 200 do long[i] = i end
    assert.is_truthy(repl.show(long):find "%.%.%. 140 more")
    local circle = {}
    circle[1] = circle
    assert.are.equal("{{...}}", repl.show(circle))
    assert.are.equal("{\n  [[1.0, 1.0],\n [1.0, 1.0]]\nfloat32 [2, 2] on cpu"
                     .. "\n}", repl.show {limn.ones(2, 2)})
  end)

  it("runs lines, waits for the rest of a statement, and names lines in errors",
     function()
    local out = session("1 + 1 -- a comment", "= 'a' .. 'b'", "nil, 2",
      "function f()", "return 5", "end", "f()",
      "limn.ones(2) + limn.ones(3)", "limn.ones(2).nothing", "error {7}",
      "x x", "limn.help")
    assert.are.equal(1, select(2, out:gsub("> 2\n", "")), out)
    assert.is_truthy(out:find('> "ab"\n> nil\n2\n> >> >> > 5\n', 1, true), out)
    assert.is_truthy(out:find "stdin:1: add: shapes %[2%] and %[3%]", out)
    assert.is_truthy(out:find "stdin:1: tensors have no method 'nothing'", out)
    assert.is_truthy(out:find("error: {7}", 1, true), out)
    assert.is_truthy(out:find "'=' expected near 'x'", out)
    assert.is_truthy(out:find 'limn.help "conv2d"', out)
  end)

  it("finds limn where it was installed, wherever that is", function()
    local dir = os.tmpname()
    os.remove(dir)
    local text, ok = U.run(([[
      D=%s; B=$(cd %s && pwd); mkdir -p $D/bin $D/share/lua/5.1 $D/lib/lua/5.1
      cp bin/limn $D/bin && cp -r lua/limn $D/share/lua/5.1 &&
      ln -s $B/limn $D/lib/lua/5.1/limn && cd / && unset LUA_PATH LUA_CPATH &&
      luajit $D/bin/limn -e 'print(limn.ones(1))'; rm -r $D]]):format(dir,
      U.build))
    assert.is_true(ok, text)
    assert.are.equal("[1.0]\nfloat32 [1] on cpu\n", text)
  end)

  it("is told by limn -h; limn -v tells the version, limn -e runs code",
     function()
    local function limn_with(arguments)
      return U.run("LIMN_DEVICES=cpu luajit bin/limn " .. arguments .. " 2>&1")
    end
    assert.is_truthy(limn_with "-h":find "usage: limn")
    assert.are.equal(limn._VERSION .. " on cpu\n", (limn_with "-v"))
    assert.are.equal("2\n", (limn_with "-e 'print(#limn.ones(2))'"))
    assert.is_truthy(limn_with "-q":find "usage: limn")
    assert.is_truthy(limn_with "none.lua":find "cannot open none.lua")
  end)
end)
