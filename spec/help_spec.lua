-- limn.help, and that all that is public is documented.
local limn = require "limn"

describe("limn.help", function()
  local function shown(what)
    local out, old = {}, print
    _G.print = function(s) out[#out + 1] = tostring(s) end
    local ok, err = pcall(limn.help, what)
    _G.print = old
    assert.is_true(ok, err)
    return table.concat(out, "\n")
  end

  it("finds functions, layers and ops by name, and by themselves", function()
    assert.is_truthy(shown "conv2d":find("nn.conv2d(x, weight", 1, true))
    assert.is_truthy(shown "nn.Conv2d":find("nn.Conv2d(n_in, n_out", 1, true))
    assert.are.equal(shown "nn.Linear", shown(limn.nn.Linear))
    assert.are.equal(shown "nn.Linear", shown(limn.nn.Linear(2, 3)))
    assert.are.equal(shown "limn.trace", shown(limn.trace))
    assert.is_truthy(shown "argwhere":find("x:nonzero(", 1, true))
    assert.is_truthy(shown "tanh":find "[Hh]yperbolic tangent")
    assert.is_truthy(shown "nn.init.zeros_":find("nn.init.zeros(", 1, true))
  end)

  it("tells what modules, graphs and parts of limn have, and fields of tensors",
     function()
    assert.is_truthy(limn.help.text "Module":find "Module has apply, .*extend")
    assert.is_truthy(limn.help.text "graph":find "graph has .*run_into")
    assert.is_truthy(limn.help.text "nn":find "nn has .*Conv2d")
    assert.is_truthy(limn.help.text "shape":find "x.shape: a list")
    assert.is_truthy(tostring(limn.help):find "limn.help \"conv2d\"")
  end)

  it("fits a terminal of 80 columns", function()
    for line in (shown "cross_entropy" .. "\n"):gmatch "(.-)\n" do
      assert.is_true(#line <= 80)
    end
  end)

  it("names what is near to a misspelt name", function()
    local ok, err = pcall(limn.help, "conv9d")
    assert.is_false(ok)
    assert.is_truthy(tostring(err):find("conv2d", 1, true))
  end)

  it("has an entry for all that is public", function()
    local known, missing = {}, {}
    for _, e in ipairs(limn.help.entries()) do
      for _, name in ipairs(e.names) do known[name] = true end
    end
    -- What only limn's own parts, or a subclass, call.
    local internal = {["nn.Module"] = true, ["nn.init.values"] = true,
      ["Module:init"] = true, ["Module:mode"] = true, ["Module:to"] = true,
      ["Module:named_modes"] = true, ["Module:describe"] = true}
    local function walk(t, prefix)
      for name, v in pairs(t) do
        local full = prefix .. tostring(name)
        local class = type(v) == "table" and rawget(v, "class_name")
        if type(name) == "string" and not name:find "^_"
          and (type(v) == "function" or class) and not known[full]
          and not (prefix == "limn." and known["x:" .. name])
          and not (prefix == "nn.init." and known[full:gsub("_$", "")])
          and not internal[full] then
          missing[#missing + 1] = full
        end
      end
    end
    walk(limn, "limn.")
    walk(limn.nn, "nn.")
    walk(limn.linalg, "linalg.")
    walk(limn.nn.init, "nn.init.")
    walk(limn.nn.Module, "Module:")
    walk(limn.optim, "optim.")
    walk(limn.optim.schedule, "optim.schedule.")
    walk(limn.data, "data.")
    walk(limn.linalg, "linalg.")
    table.sort(missing)
    assert.are.equal("", table.concat(missing, " "))
  end)

  it("is what docs/reference.md says: `make docs` writes it", function()
    local out, old = {}, print
    _G.print = function(text) out[#out + 1] = text .. "\n" end
    local ok, err = pcall(dofile, "scripts/reference.lua")
    _G.print = old
    assert.is_true(ok, err)
    local f = assert(io.open "docs/reference.md")
    local text = f:read "*a"
    f:close()
    assert.is_true(text == table.concat(out), "run `make docs`")
  end)
end)
