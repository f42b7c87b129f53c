-- Modules: names, patterns, modes, Dropout, and the mistakes that are told.
local limn = require "limn"
local nn = limn.nn

local function message(f, ...)
  local ok, e = pcall(f, ...)
  assert.is_false(ok)
  return tostring(e)
end
local function says(text, f, ...)
  local m = message(f, ...)
  assert.is_truthy(m:find(text, 1, true), m)
  assert.is_truthy(m:find("module_spec.lua", 1, true), m)
end

local Net = nn.Module:extend "Net"
function Net:init()
  self.zeta = nn.Linear(3, 4)
  self.layers = {nn.Linear(4, 4), nn.Dropout(0.5), b = nn.Linear(4, 1),
                 a = nn.Linear(4, 1)}
  self.alpha = nn.Parameter(limn.ones(2))
  self.mean = nn.Buffer(limn.zeros(2))
end
function Net:forward(x)
  local h = self.layers[2](self.layers[1](self.zeta(x)))
  return self.layers.a(h)
end

local function names(net)
  local list = {}
  for name in net:named_parameters() do list[#list + 1] = name end
  return list
end

describe("a module", function()
  it("names its cells by their paths from the root", function()
    local Big = nn.Module:extend "Big"
    function Big:init() self.one, self.two = Net(), Net() end
    local big = Big()
    names(big.two)
    assert.equal("two.zeta.weight", big.two.zeta.weight.name)
  end)

  it("lists a tied parameter once", function()
    local net = Net()
    net.again = net.zeta
    net.weight_too = net.zeta.weight
    assert.equal(9, #names(net))
  end)

  it("selects parameters by a pattern", function()
    assert.equal(2, #Net():parameters "layers.1.*")
    says("no parameter matches", function() Net():parameters "hea.*" end)
  end)

  it("is in training until eval, and so are the modules below", function()
    local net = Net()
    assert.is_true(net.training)
    net:eval()
    assert.is_false(net.training)
    assert.is_false(net.layers[2].training)
    assert.is_true(net:train().layers[2].training)
  end)

  it("says what is wrong with a field that hides a method", function()
    says("would hide the method", function() Net().apply = 1 end)
  end)
  it("says what is wrong with a class where an instance is needed",
     function()
    says("is the class ReLU, where an instance is needed", function()
      nn.Sequential(nn.Linear(2, 2), nn.ReLU)
    end)
    says("write self.child = Net(...), with parentheses", function()
      Net().child = Net
    end)
  end)
  it("says what is wrong with a hole in a list of layers", function()
    says("has a hole: item 2 is nil", function()
      local net = Net()
      net.list = {nn.ReLU(), nil, nn.ReLU()}
      names(net)
    end)
  end)
  it("says what is wrong with extend without its colon", function()
    says('write nn.Module:extend "Other", with a colon', function()
      nn.Module.extend "Other"
    end)
  end)
  it("says that forward is missing", function()
    says("Empty has no forward", function()
      nn.Module:extend "Empty"()(limn.zeros(1))
    end)
  end)
end)

describe("Sequential", function()
  it("is traced as what it calls", function()
    local s = nn.Sequential(nn.Flatten(), nn.Linear(4, 2), nn.Tanh())
    local g = limn.trace(s, limn.randn(3, 2, 2))
    for _, rows in ipairs {1, 7, 0} do
      assert.same({rows, 2}, g(limn.randn(rows, 2, 2)).shape)
    end
  end)
end)

describe("Dropout", function()
  for _, device in ipairs(limn.devices()) do
    it("serves both modes with one graph on " .. device, function()
      local net = nn.Sequential(nn.Dropout(0.25))
      local g = limn.trace(net, limn.ones(8))
      local x = limn.ones(4000):to(device)
      local y = g(x)
      local kept = y:gt(0):sum():item()
      assert.is_true(kept > 2800 and kept < 3200)
      assert.is_true(math.abs(y:max():item() - 4 / 3) < 1e-6)
      assert.is_true((g(x) - y):abs():max():item() > 0)
      net:eval()
      assert.equal(0, (g(x) - x):abs():max():item())
      net:train()
      assert.is_true((g(x) - x):abs():max():item() > 0)
    end)
  end
  it("draws nothing where nothing is to be dropped", function()
    for _, layer in ipairs {nn.Dropout(0), nn.Dropout2d(0)} do
      local g = limn.trace(layer, limn.ones(2, 3, 4, 5))
      assert.is_nil(tostring(g):find "rand")
      local x = limn.randn(2, 3, 4, 5)
      assert.equal(0, (g(x) - x):abs():max():item())
      assert.equal(0, (layer(x) - x):abs():max():item())
    end
    assert.equal(1, nn.dropout(limn.ones(2), 0):min():item())
  end)
  it("drops the same values eagerly and traced", function()
    local net = nn.Dropout(0.5)
    local g = limn.trace(net, limn.ones(3))
    limn.manual_seed(5)
    local a = net(limn.ones(64)):totable()
    limn.manual_seed(5)
    assert.same(a, g(limn.ones(64)):totable())
  end)
end)
