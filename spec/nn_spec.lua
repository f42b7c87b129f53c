-- Modules, layers, losses.
local U = require "support.util"
local limn = U.limn
local nn = limn.nn

local function example()
  local Block = nn.Module:extend "Block"
  function Block:init(n) self.fc = nn.Linear(n, n) end
  function Block:forward(x) return x + self.fc(x):tanh() end
  local Net = nn.Module:extend "Net"
  function Net:init()
    self.stem = nn.Linear(4, 3)
    self.blocks = {Block(3), Block(3)}
    self.scale = nn.Parameter(limn.ones(3))
    self.seen = nn.Buffer(limn.zeros {})
    self.table = limn.ones(3)
  end
  function Net:forward(x)
    x = self.stem(x)
    for i = 1, #self.blocks do x = self.blocks[i](x) end
    return x * self.scale
  end
  return Net, Block
end

local function names(iterator, ...)
  local list = {}
  for name in iterator(...) do list[#list + 1] = name end
  return list
end

describe("A module", function()
  it("finds its parameters by walking fields in definition order", function()
    local Net = example()
    local m = Net()
    assert.are.same({
      "stem.weight", "stem.bias", "blocks.1.fc.weight", "blocks.1.fc.bias",
      "blocks.2.fc.weight", "blocks.2.fc.bias", "scale",
    }, names(m.named_parameters, m))
    assert.are.equal(7, #m:parameters())
    assert.are.equal(4, #m:parameters "blocks.*")
    assert.are.same({"seen"}, names(m.named_buffers, m))
    U.message(function() m:parameters "nothing*" end, "nothing")
  end)

  it("is called with its forward, eager and traced, on all devices",
     function()
    local Net = example()
    local m = Net()
    local g = limn.trace(m, limn.ones(2, 4))
    U.each_device(function(dev)
      local x = limn.randn(5, 4)
      U.close(g(x:to(dev)), m(x), 1e-5)
      local y = limn.on(dev, function() return m(x:to(dev)) end)
      U.close(y, m(x), 1e-5)
      assert.are.equal(dev, y.device)
    end)
    assert.is_truthy(tostring(g):find "blocks.1.fc", tostring(g))
  end)

  it("prints as a tree with shapes and counts", function()
    local Net = example()
    local text = tostring(Net())
    for _, p in ipairs {"Net", "stem = Linear%(4, 3%)", "blocks", "Block",
                        "%[3%]", "parameters"} do
      assert.is_truthy(text:find(p), text)
    end
  end)

  it("gives and takes its state by name", function()
    local Net = example()
    local a, b = Net(), Net()
    local state = a:state_dict()
    U.shape(state["stem.weight"], {3, 4})
    b:load_state_dict(state)
    U.equal(b.stem.weight, a.stem.weight)
    local w = b.stem.weight
    a.stem.weight:assign(a.stem.weight * 0)
    assert.is_true(rawequal(w, b.stem.weight))
    assert.is_not_nil(U.difference(b.stem.weight, a.stem.weight, 0))
    state.scale = nil
    U.message(function() b:load_state_dict(state) end, "missing: scale",
              "hint:")
    b:load_state_dict(state, {strict = false})
    U.message(function() b:load_state_dict {scale = limn.ones(4)} end,
              "scale", "%[4%]", "%[3%]")
    U.message(function()
      b:load_state_dict({scal = limn.ones(3)}, {strict = true})
    end, "scal")
  end)

  it("takes a part of a state, and says what is no tensor", function()
    local layer, part = nn.Linear(2, 3), {other = limn.ones(1)}
    for k, v in pairs(nn.Linear(2, 3):state_dict()) do part["a." .. k] = v end
    layer:load_state_dict(part, {base = "a"})
    U.equal(layer.weight, part["a.weight"])
    part["a.wieght"] = limn.ones(1)
    U.message(function() layer:load_state_dict(part, {base = "a"}) end,
              "not of this model: a.wieght", "a.weight")
    U.message(function()
      layer:load_state_dict {weight = "w", bias = limn.ones(3)}
    end, "weight is a string there, not a tensor")
    local _, e = pcall(layer.load_state_dict, layer, {weight = limn.ones(3),
                                                      bias = limn.ones(3)})
    assert.is_nil(tostring(e):find "hint:") -- being lenient would not help
  end)

  it("clones with cells of its own; what was tied stays tied", function()
    local Tied = nn.Module:extend "Tied"
    function Tied:init()
      self.a = nn.Linear(3, 3)
      self.b = nn.Linear(3, 3)
      self.b.weight = self.a.weight
    end
    function Tied:forward(x) return self.b(self.a(x)) end
    local m = Tied()
    assert.are.same({"a.weight", "a.bias", "b.bias"},
                    names(m.named_parameters, m))
    local c = m:clone()
    assert.is_true(c.a.weight.id == c.b.weight.id)
    assert.is_false(c.a.weight.id == m.a.weight.id)
    local _, g = limn.value_and_grad(function(x)
      return m(x):sum()
    end, m)(limn.ones(1, 3))
    assert.is_not_nil(g["a.weight"])
    assert.is_nil(rawget(g, "b.weight"))
  end)

  it("freezes: no gradient, no step", function()
    local Net = example()
    local m = Net()
    m.stem:freeze()
    local _, g = limn.value_and_grad(function(x) return m(x):sum() end, m)(
      limn.ones(1, 4))
    assert.is_nil(g["stem.weight"])
    assert.is_not_nil(g.scale)
  end)

  it("applies a function to itself and all below", function()
    local Net = example()
    local n = 0
    Net():apply(function() n = n + 1 end)
    assert.are.equal(6, n)
  end)

  it("raises where a mistake would be silent", function()
    local Net = example()
    local line = U.here(1)
    U.message(function() local m = Net(); m.parameters = 1 end, line,
              "parameters")
    U.message(function() nn.Module.extend "X" end, "colon")
    U.message(function() local m = Net(); m.layer = nn.ReLU end, "class ReLU",
              "parentheses")
    U.message(function() nn.Sequential(nn.Linear(2, 2), nil, nn.ReLU()) end,
              "layer 2")
    U.message(function() nn.Linear(2.5, 2) end, "2.5")
    U.message(function() nn.Module:extend "E"()(1) end, "no forward")
    U.message(function() return Net():nothing() end, "nothing")
  end)
end)

describe("Layers", function()
  it("Linear is x * transpose(weight) + bias", function()
    U.each_device(function(dev)
      local l = nn.Linear(2, 3)
      l.weight:assign(limn.tensor {{1, 2}, {3, 4}, {5, 6}})
      l.bias:assign(limn.tensor {10, 20, 30})
      U.equal(limn.on(dev, l, limn.tensor({{1, 1}}, dev)), {13, 27, 41})
      U.equal(limn.on(dev, l, limn.tensor({1, 1}, dev)), {13, 27, 41})
      assert.is_nil(rawget(nn.Linear(2, 3, {bias = false}), "bias"))
    end)
  end)

  it("Dropout keeps the mean, and is the identity in eval mode", function()
    U.each_device(function(dev)
      limn.manual_seed(1)
      local d = nn.Dropout(0.25)
      local x = limn.ones(20000, dev)
      local y = d(x)
      assert.is_true(math.abs(y:mean():item() - 1) < 0.03)
      local kept = y:gt(0):to "float32":mean():item()
      assert.is_true(math.abs(kept - 0.75) < 0.02)
      d:eval()
      U.equal(d(x):sum(), {20000})
    end)
  end)

  it("activations are the ops of their names", function()
    local x = limn.tensor {-2, -0.5, 0.5, 2}
    for _, row in ipairs {{"ReLU", "relu"}, {"Tanh", "tanh"},
                          {"Sigmoid", "sigmoid"}, {"GELU", "gelu"},
                          {"SiLU", "silu"}, {"Softplus", "softplus"}} do
      U.equal(nn[row[1]]()(x), limn[row[2]](x), row[1])
    end
    U.close(nn.LeakyReLU(0.1)(x), {-0.2, -0.05, 0.5, 2})
    U.close(nn.Softmax(-1)(x):sum(), {1}, 1e-6)
  end)

  it("Sequential keeps its children at 1..n and takes functions", function()
    local s = nn.Sequential(nn.Linear(2, 2), function(x) return x * 2 end)
    assert.are.equal(2, #s)
    U.close(s(limn.ones(1, 2)), s[1](limn.ones(1, 2)) * 2)
  end)
end)

-- PyTorch's numbers; these come with convolutions.
local skipped = {
  "^conv", "pool2d", "^interpolate",
}
local function left_out(name)
  for _, pattern in ipairs(skipped) do
    if name:find(pattern) then return true end
  end
  return false
end

describe("PyTorch's numbers, nn:", function()
  for _, case in ipairs(dofile "spec/golden/nn.lua") do
    if not left_out(case.name) and U.selected(case.name) then
      it(case.name, function()
        local f = assert(loadstring("local limn, nn = ... return function("
          .. "a, b, c, d, e) return " .. case.expr .. " end"))(limn, nn)
        local function inputs(dtype, dev)
          local x, at = {}, {}
          for i, k in ipairs {"a", "b", "c", "d", "e"} do
            local s = case.inputs[k]
            if s then
              x[i] = U.tensor(s.data, s.shape, s.dtype == "float64" and dtype
                              or s.dtype, dev)
              if case.grads[k] then at[#at + 1] = i end
            end
          end
          return x, at
        end
        local _, at = inputs("float64", "cpu")
        local function both(...)
          local x, wrt = {...}, {}
          for i, n in ipairs(at) do wrt[i] = x[n] end
          local function loss()
            local y = f(unpack(x))
            if y:dim() == 0 then return y * math.cos(1) end
            local w = limn.arange(1, y:numel(), {dtype = y.dtype,
                                                 device = y.device}):cos()
            return (y * w:reshape_like(y)):sum()
          end
          local y = f(...)
          local _, g = limn.value_and_grad(loss, wrt)()
          return y, g
        end
        U.each_pair(function(from, dev)
          local g = limn.trace(both, unpack((inputs("float32", from))))
          for _, dtype in ipairs {"float64", "float32"} do
            local tol = dtype == "float64" and 1e-11 or 1e-5
            local function check(y, grads, how)
              how = how .. " on " .. dev .. " in " .. dtype
              U.close(y, case.outputs[1].data, tol, "max", how)
              for i, n in ipairs(at) do
                local want = case.grads[("abcde"):sub(n, n)]
                U.close(grads[i], want.data, tol, 1, how .. ", gradient")
              end
            end
            local x = inputs(dtype, dev)
            if from == dev and (dev == "cpu" or dtype == "float64") then
              local y, grads = both(unpack(x))
              check(y, grads, "eager")
            end
            local y, grads = g(unpack(x))
            check(y, grads, "traced on " .. from)
          end
        end)
      end)
    end
  end
end)

describe("Training", function()
  it("lowers the loss on every device, wherever the model was made",
     function()
    U.each_pair(function(made, dev)
      limn.manual_seed(2)
      local m = limn.on(made, function()
        return nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))
      end)
      local opt = limn.optim.Adam(m, {lr = 0.05})
      local loss = limn.value_and_grad(function(x, t)
        return nn.cross_entropy(m(x), t)
      end, m)
      local step = limn.jit(function(x, t)
        local l, g = loss(x, t)
        opt:step(g)
        return l
      end)
      local x = limn.tensor({{0, 0}, {0, 1}, {1, 0}, {1, 1}}, dev)
      local t = limn.tensor({1, 2, 2, 1}, "int64", dev)
      local first = step(x, t):item()
      for _ = 1, 80 do step(x, t) end
      local last = step(x, t):item()
      assert.is_true(last < first / 5, made .. " on " .. dev .. ": " .. last)
    end)
  end)
end)
