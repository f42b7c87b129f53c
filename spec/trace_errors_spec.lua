-- Every way to misuse tracing and limn.script that we know of: the message word
-- by word, as spec/golden/*_errors.txt has it. Each says the user's line, what
-- happened, with what, and one thing to do. LIMN_TEST_WRITE=1 writes the files
-- anew, to be read before they are kept.
local U = require "support.util"
local limn = U.limn

-- The entries of a file: {sentence, code, message}.
local function entries(path)
  local list, entry = {}, nil
  for line in U.read_file(path):gmatch "([^\n]*)\n" do
    local sentence, code = line:match "^# (.*)", line:match "^    (.*)"
    if sentence then
      entry = {sentence, "", ""}
      list[#list + 1] = entry
    elseif code and entry[3] == "" then
      entry[2] = entry[2] .. code .. "\n"
    elseif entry and line ~= "" then
      entry[3] = entry[3] .. line .. "\n"
    end
  end
  return list
end

-- What the code raises, run from a file called game.lua.
local function raised(code)
  local dir = os.tmpname()
  os.remove(dir)
  os.execute("mkdir " .. U.quote(dir))
  local path = dir .. "/game.lua"
  U.write_file(path, code)
  local f = setfenv(assert(loadfile(path)), setmetatable({limn = limn,
    nn = limn.nn, x = limn.ones(3)}, {__index = _G}))
  local ok, e = pcall(f)
  os.execute("rm -r " .. U.quote(dir))
  assert.is_false(ok, code)
  return (tostring(e):gsub(dir:gsub("%p", "%%%0") .. "/", "")) .. "\n"
end

local function write(path, list)
  local out = {(U.read_file(path):match "^(.-\n)\n#")}
  for _, e in ipairs(list) do
    out[#out + 1] = ("\n# %s\n%s%s"):format(e[1], (e[2]:gsub("[^\n]+",
      "    %0")), raised(e[2]))
  end
  U.write_file(path, table.concat(out))
end

local function check(path, least)
  local list = entries(path)
  assert(#list >= least)
  if os.getenv "LIMN_TEST_WRITE" == "1" then
    write(path, list)
    list = entries(path)
  end
  for _, e in ipairs(list) do
    it(e[1] .. " is refused in words that help", function()
      assert.are.equal(e[3], raised(e[2]))
      assert.is_truthy(e[3]:find "^game%.lua:%d")
      assert.is_false(limn.tracing())
    end)
  end
end

describe("While tracing,", function()
  check("spec/golden/trace_errors.txt", 60)
end)

describe("In a scripted function,", function()
  check("spec/golden/script_errors.txt", 31)
end)
