-- Files and op rows of earlier releases: spec/compat/ holds, for each of them
-- and for what comes next ("unreleased"), a file of graphs, what these give,
-- and the rows of the op table. See spec/compat/make.lua.
local C = require "support.compat"
local U = require "support.util"
local limn = U.limn

local function releases()
  local list = {}
  local p = io.popen "ls spec/compat/*.limn"
  for name in p:lines() do
    list[#list + 1] = name:match "([^/]*)%.limn$"
  end
  p:close()
  return list
end

local function reproduces(model, cases, dev)
  C.run(model, cases, dev, function(c, results)
    for _, part in ipairs {"values", "state"} do
      C.check({of = results[part]}, {of = c.results[part]},
              c.graph .. " on " .. dev .. ": " .. part)
    end
  end)
end

local function text_of(name)
  local f = assert(io.open(name, "rb"))
  local text = f:read "*a"
  f:close()
  return text
end

-- What is to be done about rows that changed.
local function advice(name)
  if name ~= "unreleased" then
    return "limn " .. name .. " published these rows: they stay as they were. "
      .. "Give a changed op a row of a new name"
  end
  return "if no release has these rows, `make compat` makes spec/compat/"
    .. "unreleased.* anew; else give the changed op a row of a new name"
end

assert(#releases() > 0)
for _, name in ipairs(releases()) do
  local path = "spec/compat/" .. name
  local cases = dofile(path .. ".values")

  describe("What limn " .. name .. " has saved", function()
    it("is loaded and gives the same on each device", function()
      assert.is_true(#cases > 20)
      U.each_device(function(dev)
        reproduces(limn.load(path .. ".limn"), cases, dev)
      end)
    end)

    it("gives the same when it is saved again", function()
      local model, copy = limn.load(path .. ".limn"), os.tmpname()
      model:save(copy)
      reproduces(limn.load(copy), cases, "cpu")
      os.remove(copy)
    end)

    it("names only rows of its list, and most of them", function()
      local listed, named, missing = {}, C.named(limn.load(path .. ".limn")), 0
      for line in io.lines(path .. ".rows") do
        listed[line:match "^%S+ (%S+)"] = true
      end
      for row in pairs(listed) do
        if not named[row] then missing = missing + 1 end
      end
      assert.is_true(missing < 10)
      for row in pairs(C.rows_of(named)) do assert.is_true(listed[row]) end
    end)
  end)

  describe("The op rows of limn " .. name, function()
    it("are as they were", function()
      local changed = C.changed(text_of(path .. ".rows"))
      if #changed > 0 then
        error(table.concat(changed, "\n") .. "\n" .. advice(name), 0)
      end
    end)
  end)
end

describe("A row of the op table", function()
  it("may be new, but not changed, moved to another name or gone", function()
    local rows = C.rows()
    assert.are.same({}, C.changed(table.concat(rows, "\n")))
    assert.are.same({}, C.changed(rows[3]))
    local add
    for i, line in ipairs(rows) do
      if line:find "^E2 add " then add = i end
    end
    rows[add] = "E2 add FLT x:T y:T"
    assert.are.same({"add was 'E2 add FLT x:T y:T' and is "
      .. "'E2 add NUM x:T y:T'"}, C.changed(table.concat(rows, "\n")))
    rows[add] = "E2 plus NUM x:T y:T"
    assert.are.same({"plus is gone"}, C.changed(table.concat(rows, "\n")))
  end)
end)
