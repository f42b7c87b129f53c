-- The models that layers.c times, each saved as a file of its own. peers.py has
-- the same in PyTorch.
local limn = require "limn"
local nn, optim = limn.nn, limn.optim

-- infer(x) and step(x, t), which trains by Adam.
local function save_model(path, net, x, t, criterion)
  local opt = optim.Adam(net, {lr = 1e-3})
  local loss = limn.value_and_grad(function(a, b)
    return criterion(net(a), b)
  end, net)
  local step = limn.trace {function(a, b)
    local l, grads = loss(a, b)
    opt:step(grads)
    return l
  end, x, t, name = "step"}
  local infer = limn.trace {net, x, name = "infer"}
  limn.save(path, {infer = infer, step = step, net = net, opt = opt})
end

-- forward(x), and back(x, g, w): the gradients of x and of what the op is
-- weighted by, where its result has the gradient g.
local function save_op(path, f, x, w)
  local back = limn.grad(function(p, g) return (f(p.x, p.w) * g):sum() end)
  limn.save(path, {
    forward = limn.trace {f, x, w, name = "forward"},
    back = limn.trace {function(a, g, p)
      return back({x = a, w = p}, g)
    end, x, x, w, name = "back"}})
end

local Lstm = nn.Module:extend "Lstm" -- its results without the last state
function Lstm:init() self.lstm = nn.LSTM(128, 256) end
function Lstm:forward(x)
  local y = self.lstm(x)
  return y
end

return function(folder)
  save_model(folder .. "/cnn.limn", nn.Sequential(
    nn.Conv2d(1, 32, 3, {padding = 1}), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(32, 64, 3, {padding = 1}), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Linear(64 * 7 * 7, 10)),
    limn.randn(2, 1, 28, 28), limn.randint(1, 10, {2}, "int64"),
    nn.cross_entropy)
  save_model(folder .. "/block.limn", nn.TransformerEncoderLayer(256, 4, {
    dim_feedforward = 1024, dropout = 0, activation = "gelu",
    batch_first = true}), limn.randn(2, 8, 256), limn.randn(2, 8, 256),
    nn.mse_loss)
  save_model(folder .. "/lstm.limn", Lstm(), limn.randn(3, 2, 128),
             limn.randn(3, 2, 256), nn.mse_loss)
  local x, w = limn.randn(8, 16), limn.randn(2, 16)
  save_op(folder .. "/layer_norm.limn", function(a, p)
    return nn.layer_norm(a, {weight = p[1], bias = p[2]})
  end, x, w)
  save_op(folder .. "/batch_norm.limn", function(a, p)
    return nn.batch_norm(a, {weight = p[1], bias = p[2], training = true})
  end, limn.randn(8, 16, 4, 4), w)
  local soft = function(a) return a:softmax(-1) end
  limn.save(folder .. "/softmax.limn", {
    forward = limn.trace {soft, x, name = "forward"},
    back = limn.trace {limn.grad(function(a, g)
      return (soft(a) * g):sum()
    end), x, x, name = "back"}})
end
