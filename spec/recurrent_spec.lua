-- Recurrent layers: nn.RNN, LSTM, GRU and their cells.
local U = require "support.util"
local layers = require "support.layers"
local limn = U.limn
local nn = limn.nn

local kinds = {"RNN", "LSTM", "GRU"}

-- The layer computed by cells, step by step, layer by layer.
local function cell_of(layer, kind, suffix, n_in)
  local cell = nn[kind .. "Cell"](n_in, layer.hidden_size, {
    bias = layer["bias_ih" .. suffix] ~= nil, dtype = layer.weight_ih_l0.dtype})
  for _, name in ipairs {"weight_ih", "weight_hh", "bias_ih", "bias_hh"} do
    if cell[name] then cell[name]:assign(layer[name .. suffix]:value()) end
  end
  return cell
end

local function by_cells(layer, kind, x, state)
  local last = {}
  for l = 0, layer.num_layers - 1 do
    local directions = {}
    for d = 0, layer.bidirectional and 1 or 0 do
      local suffix = "_l" .. l .. (d == 1 and "_reverse" or "")
      local cell = cell_of(layer, kind, suffix, x:size(3))
      local s = state and state[#last + 1]
      local out, steps = {}, x:size(1)
      for i = 1, steps do
        local t = d == 1 and steps + 1 - i or i
        if kind == "LSTM" then
          s = {cell(x[t], s)}
          out[t] = s[1]
        else
          s = cell(x[t], s)
          out[t] = s
        end
      end
      last[#last + 1] = s
      directions[d + 1] = limn.stack(out, 1)
    end
    x = #directions == 1 and directions[1] or limn.cat(directions, -1)
  end
  return x, last
end

local function count(text, what)
  local _, n = text:gsub(what, "")
  return n
end

describe("Recurrent layers", function()
  before_each(function() limn.manual_seed(1) end)

  for _, kind in ipairs(kinds) do
    it(kind .. " computes what its cell does step by step", function()
      for _, o in ipairs {
        {}, {bias = false}, {num_layers = 2}, {bidirectional = true},
        {num_layers = 2, bidirectional = true},
      } do
        o.dtype = "float64"
        local layer = nn[kind](3, 4, o)
        local x = limn.randn({5, 2, 3}, {dtype = "float64"})
        local want, last = by_cells(layer, kind, x)
        local y, state = layer(x)
        U.close(y, want, 1e-13, 1)
        local h = kind == "LSTM" and state[1] or state
        U.shape(h, {#last, 2, 4})
        for i, s in ipairs(last) do
          U.close(h[i], kind == "LSTM" and s[1] or s, 1e-13, 1)
          if kind == "LSTM" then U.close(state[2][i], s[2], 1e-13, 1) end
        end
        layers.everywhere(layer, {x}, want, 1e-12)
      end
    end)

    it(kind .. " goes on from the state it gave", function()
      local layer = nn[kind](3, 4, {num_layers = 2})
      local x = limn.randn(6, 2, 3)
      local y = layer(x)
      local a, state = layer(x[{{1, 4}}])
      local b = layer(x[{{5, 6}}], state)
      U.close(limn.cat({a, b}, 1), y, 1e-6)
      U.each_device(function(dev)
        local g = limn.trace(function(v, s)
          local r, last = layer(v, s)
          return r, last
        end, x, state)
        local function to(s)
          if kind ~= "LSTM" then return s:to(dev) end
          return {s[1]:to(dev), s[2]:to(dev)}
        end
        U.close(g(x[{{5, 6}}]:to(dev), to(state)), b, 1e-5)
      end)
    end)

    it(kind .. " takes any number of steps and rows", function()
      local layer = nn[kind](3, 4)
      local g = limn.trace(function(x)
        local y, s = layer(x)
        return y, s
      end, limn.randn(5, 2, 3))
      U.each_device(function(dev)
        for _, size in ipairs {{1, 1}, {7, 3}, {0, 2}, {3, 0}, {64, 1}} do
          local x = limn.randn(size[1], size[2], 3):to(dev)
          local y, s = layer(x)
          local z, t = g(x)
          U.shape(y, {size[1], size[2], 4})
          U.shape(z, {size[1], size[2], 4})
          U.close(z, y, 1e-5)
          if kind == "LSTM" then s, t = s[1], t[1] end
          U.shape(t, {1, size[2], 4})
          U.close(t, s, 1e-5)
        end
      end)
    end)

    it(kind .. " is one scan per layer and direction, whatever the length",
       function()
      local layer = nn[kind](3, 4, {num_layers = 2, bidirectional = true})
      local function text(steps)
        local g = limn.trace(layer, limn.randn(steps, 2, 3))
        return (tostring(g):gsub(" *#[^\n]*", ""))
      end
      local short, long = text(2), text(50)
      assert.are.equal(short, long)
      assert.are.equal(4, count(short, "= scan%("))
    end)

    it(kind .. " has the same gradient eager and traced, on every device",
       function()
      local layer = nn[kind](3, 4, {num_layers = 2, bidirectional = true,
                                    dtype = "float64"})
      local x0 = limn.randn({5, 2, 3}, {dtype = "float64"})
      local function grads(x)
        local _, g, gx = limn.value_and_grad(function()
          local y, s = layer(x)
          if kind == "LSTM" then s = s[1] + s[2] end
          return U.weigh(y) + U.weigh(s)
        end, layer)(x)
        return g, gx
      end
      local want = grads(x0)
      U.each_device(function(dev)
        local x = x0:to(dev)
        local eager, traced = grads(x), limn.trace(grads, x0)(x)
        for name, g in pairs(want) do
          U.close(eager[name], g, 1e-10, "max", name .. " eager on " .. dev)
          U.close(traced[name], g, 1e-10, "max", name .. " traced, " .. dev)
        end
      end)
    end)

    it(kind .. " has gradients that differences agree with", function()
      local layer = nn[kind](2, 3, {dtype = "float64"})
      local x = limn.randn({4, 2, 2}, {dtype = "float64"})
      local function value()
        local y = layer(x)
        return U.weigh(y)
      end
      local _, grads = limn.value_and_grad(value, layer)()
      for name, cell in layer:named_parameters() do
        local w, g = cell:value(), U.flat(grads[name])
        local flat, d = U.flat(w), 1e-6
        for i = 1, #flat, 5 do
          local function at(v)
            local keep = flat[i]
            flat[i] = v
            cell:assign(U.tensor(flat, w.shape, "float64"))
            flat[i] = keep
            return value():item()
          end
          local slope = (at(flat[i] + d) - at(flat[i] - d)) / (2 * d)
          cell:assign(w)
          assert.is_true(math.abs(slope - g[i]) < 1e-7 * (1 + math.abs(slope)),
                         ("%s[%d]: %g, not %g"):format(name, i, g[i], slope))
        end
      end
    end)

    it(kind .. " takes inputs with the rows first, and without rows",
       function()
      local layer = nn[kind](3, 4, {bidirectional = true})
      local first = nn[kind](3, 4, {bidirectional = true, batch_first = true})
      first:load_state_dict(layer:state_dict())
      local x = limn.randn(5, 2, 3)
      local y, s = layer(x)
      local z, t = first(x:transpose(1, 2))
      U.close(z:transpose(1, 2), y, 1e-6)
      local one, u = layer(x[{{}, 1}], kind == "LSTM"
        and {limn.zeros(2, 4), limn.zeros(2, 4)} or limn.zeros(2, 4))
      U.close(one, y[{{}, 1}], 1e-6)
      if kind == "LSTM" then s, t, u = s[2], t[2], u[2] end
      U.close(t, s, 1e-6)
      U.close(u, s[{{}, 1}], 1e-6)
      layers.everywhere(first, {x:transpose(1, 2)})
      layers.everywhere(layer, {x[{{}, 1}]})
    end)

    it(kind .. " starts as PyTorch's does", function()
      limn.manual_seed(3)
      local layer = nn[kind](3, 16, {num_layers = 2, bidirectional = true})
      local names = {}
      for name, cell in layer:named_parameters() do
        names[#names + 1] = name
        assert.is_true(cell:abs():max():item() <= 0.25)
        assert.is_true(cell:abs():max():item() > 0.2)
      end
      local gates = ({RNN = 1, LSTM = 4, GRU = 3})[kind]
      assert.are.same({
        "weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0",
        "weight_ih_l0_reverse", "weight_hh_l0_reverse", "bias_ih_l0_reverse",
        "bias_hh_l0_reverse",
        "weight_ih_l1", "weight_hh_l1", "bias_ih_l1", "bias_hh_l1",
        "weight_ih_l1_reverse", "weight_hh_l1_reverse", "bias_ih_l1_reverse",
        "bias_hh_l1_reverse"}, names)
      U.shape(layer.weight_ih_l1, {16 * gates, 32})
      U.shape(layer.weight_hh_l1, {16 * gates, 16})
      U.shape(layer.bias_ih_l1, {16 * gates})
    end)

    it(kind .. " names what does not fit", function()
      layers.refuses(nn[kind](3, 4), {limn.ones(5, 2, 7)}, kind, "%[5, 2, 7%]",
                     "%[steps, rows, 3%]")
      layers.refuses(nn[kind](3, 4), {limn.ones(3)}, kind, "%[3%]")
      local s = limn.zeros(1, 3, 4)
      if kind == "LSTM" then s = {s, s} end
      layers.refuses(nn[kind](3, 4), {limn.ones(5, 2, 3), s}, "%[1, 3, 4%]",
                     "%[1, 2, 4%]")
      U.message(function() nn[kind](3) end, kind, "hidden_size")
      U.message(function() nn[kind](3, 4, 2) end, "num_layers = 2")
      U.message(function() nn[kind](3, 4, {num_layer = 2}) end, "num_layers")
    end)

    it(kind .. " follows the dtype and the device of the run", function()
      local layer = nn[kind](3, 4)
      local g = limn.trace(layer, limn.randn(5, 2, 3))
      local text = tostring(g)
      U.each_device(function(dev)
        assert.is_nil(text:find(dev, 1, true))
        local x = limn.randn(4, 3, 3):to(dev)
        assert.are.equal(dev, (layer(x)).device)
        assert.are.equal(dev, (g(x)).device)
        local y = g(x:to "float64")
        assert.are.equal("float64", y.dtype)
        U.close(y, g(x), 1e-5)
      end)
    end)
  end

  it("RNN takes relu, and LSTM a projection", function()
    local layer = nn.RNN(3, 4, {nonlinearity = "relu", dtype = "float64"})
    local x = limn.randn({5, 2, 3}, {dtype = "float64"})
    local y = layer(x)
    local h = limn.zeros({2, 4}, "float64")
    for t = 1, 5 do
      h = (nn.linear(x[t], layer.weight_ih_l0, layer.bias_ih_l0)
        + nn.linear(h, layer.weight_hh_l0, layer.bias_hh_l0)):relu()
      U.close(y[t], h, 1e-13, 1)
    end
    layer = nn.LSTM(3, 6, {proj_size = 2, num_layers = 2, dtype = "float64"})
    U.shape(layer.weight_hh_l0, {24, 2})
    U.shape(layer.weight_hr_l0, {2, 6})
    U.shape(layer.weight_ih_l1, {24, 2})
    local z, s = layer(x)
    U.shape(z, {5, 2, 2})
    U.shape(s[1], {2, 2, 2})
    U.shape(s[2], {2, 2, 6})
    local one = nn.LSTM(3, 6, {proj_size = 2, dtype = "float64"})
    for _, name in ipairs {"weight_ih", "weight_hh", "bias_ih", "bias_hh",
                           "weight_hr"} do
      one[name .. "_l0"]:assign(layer[name .. "_l0"]:value())
    end
    h = limn.zeros({2, 2}, "float64")
    local c = limn.zeros({2, 6}, "float64")
    local got = one(x)
    for t = 1, 5 do
      local gates = nn.linear(x[t], one.weight_ih_l0, one.bias_ih_l0)
        + nn.linear(h, one.weight_hh_l0, one.bias_hh_l0)
      local i, f, g, o = unpack(gates:chunk(4, 2))
      c = f:sigmoid() * c + i:sigmoid() * g:tanh()
      h = nn.linear(o:sigmoid() * c:tanh(), one.weight_hr_l0)
      U.close(got[t], h, 1e-13, 1)
    end
    layers.everywhere(layer, {x}, nil, 1e-12)
    U.message(function() nn.LSTM(3, 6, {proj_size = 6}) end, "proj_size")
    U.message(function() nn.GRU(3, 6, {proj_size = 2}) end, "proj_size")
    U.message(function() nn.RNN(3, 6, {nonlinearity = "sin"}) end, "sin")
  end)

  it("drop out between the layers, in training only", function()
    local layer = nn.LSTM(3, 8, {num_layers = 2, dropout = 0.5})
    local plain = nn.LSTM(3, 8, {num_layers = 2})
    plain:load_state_dict(layer:state_dict())
    local x = limn.randn(5, 2, 3)
    local g = limn.trace(layer, x)
    layer:eval()
    U.close(layer(x), plain(x), 1e-6)
    U.close(g(x), plain(x), 1e-5)
    layer:train()
    U.each_device(function(dev)
      limn.manual_seed(5)
      local y = layer(x:to(dev))
      limn.manual_seed(5)
      U.close(g(x:to(dev)), y, 1e-5)
      assert.is_not_nil(U.difference(y, plain(x), 1e-3))
    end)
    layer = nn.LSTM(3, 8, {dropout = 0.5}) -- nothing lies between
    local y = layer(x)
    U.close(y, layer(x), 0)
  end)

  it("cells take one row without its dim, and refuse what does not fit",
     function()
    for _, kind in ipairs(kinds) do
      local cell = nn[kind .. "Cell"](3, 4)
      local x = limn.randn(2, 3)
      local h, c = cell(x)
      local one, d = cell(x[1])
      U.shape(one, {4})
      U.close(one, h[1], 1e-6)
      if kind == "LSTM" then U.close(d, c[1], 1e-6) end
      layers.everywhere(cell, {x})
      layers.refuses(cell, {limn.ones(2, 5)}, kind .. "Cell", "%[2, 5%]")
    end
    U.message(function()
      nn.LSTMCell(3, 4)(limn.ones(2, 3), limn.zeros(2, 4))
    end, "{h, c}")
  end)

  it("have second derivatives, eager and traced", function()
    local layer = nn.GRU(2, 3, {dtype = "float64"})
    local x = limn.randn({4, 2, 2}, {dtype = "float64"})
    local function penalty(v) -- the size of the gradient by the input
      local g = limn.grad(function(u)
        local y = layer(u)
        return U.weigh(y)
      end)(v)
      return (g * g):sum()
    end
    local got = limn.grad(penalty)(x)
    local traced = limn.trace(limn.grad(penalty), x)
    local flat, want, d = U.flat(x), {}, 1e-5
    for i = 1, #flat do
      local keep = flat[i]
      flat[i] = keep + d
      local up = penalty(U.tensor(flat, x.shape, "float64")):item()
      flat[i] = keep - d
      local down = penalty(U.tensor(flat, x.shape, "float64")):item()
      flat[i], want[i] = keep, (up - down) / (2 * d)
    end
    U.close(got, want, 1e-7, "max", "eager")
    U.each_device(function(dev)
      U.close(traced(x:to(dev)), want, 1e-7, "max", "traced, on " .. dev)
    end)
  end)

  it("compute in float16 and bfloat16, with weights of any float dtype",
     function()
    for _, kind in ipairs(kinds) do
      local layer = nn[kind](3, 4)
      local x = limn.randn(5, 2, 3)
      local want = layer(x)
      for _, dtype in ipairs {"float16", "bfloat16"} do
        local half = nn[kind](3, 4, {dtype = dtype})
        half:load_state_dict(layer:state_dict())
        local g = limn.trace(half, x:to(dtype))
        U.each_device(function(dev)
          local h = x:to(dtype):to(dev)
          local y, z = half(h), g(h)
          assert.are.equal(dtype, y.dtype)
          assert.are.equal(dtype, z.dtype)
          U.close(y, want, 0.03, 1)
          U.close(z, y, 0.02, 1)
          y = layer(h) -- float32 weights
          assert.are.equal("float32", y.dtype)
          U.close(y, want, 0.03, 1)
        end)
      end
    end
  end)

  it("of a graph are differentiated in eager code, too", function()
    local layer = nn.LSTM(3, 4, {num_layers = 2, dtype = "float64"})
    local x = limn.randn({5, 2, 3}, {dtype = "float64"})
    local g = limn.trace(layer, x)
    local function grad(f, v)
      return (limn.grad(function(u)
        local y = f(u)
        return U.weigh(y)
      end)(v))
    end
    local want = grad(layer, x)
    U.each_device(function(dev)
      U.close(grad(g, x:to(dev)), want, 1e-11, "max", dev)
    end)
    limn.manual_seed(3) -- and what they drop out
    local drop = nn.GRU(3, 8, {num_layers = 2, dropout = 0.5})
    local h = limn.trace(drop, limn.randn(5, 2, 3))
    U.each_device(function(dev)
      local v = limn.randn(5, 2, 3)
      limn.manual_seed(4)
      local a = grad(drop, v)
      limn.manual_seed(4)
      U.close(grad(h, v:to(dev)), a, 1e-5, "max", dev)
    end)
  end)

  it("are saved, loaded and trained on elsewhere", function()
    local Net = nn.Module:extend "Net"
    function Net:init()
      self.lstm = nn.LSTM(2, 8)
      self.out = nn.Linear(8, 1)
    end
    function Net:forward(x)
      local y = self.lstm(x)
      return self.out(y[-1])
    end
    U.each_device(function(dev)
      limn.manual_seed(1)
      local net = Net()
      local opt = limn.optim.Adam(net, {lr = 0.02})
      local loss = limn.value_and_grad(function(x, t)
        return nn.mse_loss(net(x), t)
      end, net)
      local step = limn.trace({function(x, t)
        local l, g = loss(x, t)
        opt:step(g)
        return l
      end, limn.randn(3, 2, 2), limn.randn(2, 1), name = "step"})
      U.with_file(function(path)
        limn.save(path, {step = step, infer = limn.trace(net,
          limn.randn(3, 2, 2)), net = net, opt = opt})
        local m = limn.load(path)
        local x = limn.randn(6, 32, 2)
        local t = x:sum(1):sum(2, true):tanh()
        local before = m.step(x:to(dev), t:to(dev)):item()
        for _ = 1, 150 do m.step(x:to(dev), t:to(dev)) end
        local after = m.step(x:to(dev), t:to(dev)):item()
        assert.is_true(after < before / 10, before .. " to " .. after)
        local y = m.infer(x)
        U.close(y, t, 0.5)
      end)
    end)
  end)
end)
