-- Losses and functions of nn against PyTorch's values and gradients.
local limn = require "limn"
local nn = limn.nn

local covered = {linear = true, mse_loss = true, l1_loss = true,
                 huber_loss = true, smooth_l1_loss = true,
                 bce_with_logits = true, nll_loss = true,
                 cross_entropy = true}

local function tensor(t, dtype, device)
  local is = t.dtype == "float64" and dtype or t.dtype
  return limn.tensor(t.data, is):reshape(t.shape):to(device)
end

local function near(got, want, tolerance)
  assert.same(want.shape, got.shape)
  local list = got:to("float64"):flatten():totable()
  for i, w in ipairs(want.data) do
    assert.is_true(math.abs(list[i] - w) <= tolerance * (1 + math.abs(w)),
                   i .. ": " .. list[i] .. ", PyTorch has " .. w)
  end
end

-- The case as a function of its inputs in alphabetical order.
local function compile(case, names)
  local text = "local limn, nn = ...; return function("
    .. table.concat(names, ", ") .. ") return " .. case.expr .. " end"
  return assert(loadstring(text))(limn, nn)
end

-- The loss of which the fixture holds the gradient: sum(y * cos(1..n)).
local function weighted(f, case)
  local n = #case.outputs[1].data
  local w = {}
  for i = 1, n do w[i] = math.cos(i) end
  return function(...)
    local y = f(...)
    local flat = y:reshape(n)
    return (flat * limn.tensor(w, y.dtype):to(y.device)):sum()
  end
end

for _, case in ipairs(dofile "spec/golden/nn.lua") do
  local names, wanted = {}, {}
  for name in pairs(case.inputs) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do
    if case.grads and case.grads[name] then wanted[#wanted + 1] = name end
  end
  if covered[case.expr:match "functional%.([%w_]+)"] then
    for _, device in ipairs(limn.devices()) do
      for _, dtype in ipairs {"float64", "float32"} do
        it(case.name .. " equals PyTorch's, " .. dtype .. " on " .. device,
           function()
          local tolerance = dtype == "float64" and 1e-10 or 1e-5
          local f, args, cpu = compile(case, names), {}, {}
          for i, name in ipairs(names) do
            args[i] = tensor(case.inputs[name], dtype, device)
            cpu[i] = tensor(case.inputs[name], dtype, "cpu")
          end
          near(f(unpack(args)), case.outputs[1], tolerance)
          near(limn.trace(f, unpack(cpu))(unpack(args)), case.outputs[1],
               tolerance)
          local wrt = {}
          for _, name in ipairs(wanted) do
            for i, n in ipairs(names) do
              if n == name then wrt[#wrt + 1] = args[i] end
            end
          end
          local g = weighted(f, case)
          local _, grads = limn.value_and_grad(function()
            return g(unpack(args))
          end, wrt)()
          for i, name in ipairs(wanted) do
            near(grads[i], case.grads[name], tolerance)
          end
        end)
      end
    end
  end
end

describe("cross_entropy", function()
  for _, device in ipairs(limn.devices()) do
    it("explains labels that count from 0, on " .. device, function()
      local x = limn.randn(20, 10):to(device)
      local t = limn.ones(20, "int64")
      t[17] = 0
      local ok, e = pcall(function()
        return nn.cross_entropy(x, t:to(device)):item()
      end)
      assert.is_false(ok)
      assert.is_truthy(tostring(e):find("class label 0 in row 17: labels are "
        .. "1..10; data that counts from 0: add 1", 1, true), tostring(e))
    end)
  end
  it("takes probabilities in place of labels", function()
    local x, t = limn.randn(5, 4), limn.tensor({1, 2, 3, 4, 1}, "int64")
    local a = nn.cross_entropy(x, t):item()
    local b = nn.cross_entropy(x, t:one_hot(4):to "float32"):item()
    assert.is_true(math.abs(a - b) < 1e-6)
  end)
  it("takes labels of more dims", function()
    local x = limn.randn(2, 3, 4)
    local t = limn.ones({2, 4}, "int64")
    local all = nn.cross_entropy(x, t, {reduction = "none"})
    assert.same({2, 4}, all.shape)
    local mean = nn.cross_entropy(x, t):item()
    assert.is_true(math.abs(mean - all:mean():item()) < 1e-6)
  end)
  it("refuses labels of the wrong rank", function()
    local ok, e = pcall(nn.cross_entropy, limn.randn(2, 3, 4),
                        limn.ones(2, "int64"))
    assert.is_false(ok)
    assert.is_truthy(tostring(e):find("wants labels of 2, got 1", 1, true))
  end)
end)

it("mse_loss refuses ranks that would broadcast", function()
  local ok, e = pcall(nn.mse_loss, limn.zeros(8, 1), limn.zeros(8))
  assert.is_false(ok)
  assert.is_truthy(tostring(e):find "has 2 dims and the target 1")
end)
