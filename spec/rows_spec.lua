-- Batches of no rows, and of one: every layer takes the former as PyTorch does,
-- eager and from one graph that was traced with rows.
local U = require "support.util"
local limn = U.limn
local nn = limn.nn
local activation = require "limn.nn.activation"

local int64 = {dtype = "int64"}

-- Layers, and the shapes of inputs whose dim `rows` (1) holds the rows; ints
-- are labels.
local cases = {
  Linear = {function() return nn.Linear(3, 2) end, {{4, 3}}},
  Bilinear = {function() return nn.Bilinear(3, 2, 4) end, {{4, 3}, {4, 2}}},
  Identity = {function() return nn.Identity() end, {{4, 3}}},
  Flatten = {function() return nn.Flatten() end, {{4, 3, 2}}},
  Conv1d = {function() return nn.Conv1d(2, 3, 3) end, {{4, 2, 8}}},
  Conv2d = {function() return nn.Conv2d(2, 4, 3, {groups = 2}) end,
            {{4, 2, 8, 8}}},
  ConvTranspose1d = {function() return nn.ConvTranspose1d(2, 3, 3) end,
                     {{4, 2, 8}}},
  ConvTranspose2d = {function()
      return nn.ConvTranspose2d(2, 3, 3, {stride = 2})
    end, {{4, 2, 5, 5}}},
  RNN = {function() return nn.RNN(3, 4, {batch_first = true}) end,
         {{4, 2, 3}}},
  GRU = {function() return nn.GRU(3, 4, {batch_first = true}) end,
         {{4, 2, 3}}},
  LSTM = {function() return nn.LSTM(3, 4, {batch_first = true}) end,
          {{4, 2, 3}}},
  RNNCell = {function() return nn.RNNCell(3, 4) end, {{4, 3}}},
  GRUCell = {function() return nn.GRUCell(3, 4) end, {{4, 3}}},
  LSTMCell = {function() return nn.LSTMCell(3, 4) end, {{4, 3}}},
  Conv3d = {function() return nn.Conv3d(2, 3, 2) end, {{4, 2, 3, 4, 3}}},
  ConvTranspose3d = {function() return nn.ConvTranspose3d(2, 3, 2) end,
                     {{4, 2, 3, 2, 3}}},
  MaxPool3d = {function() return nn.MaxPool3d(2) end, {{4, 2, 4, 4, 4}}},
  AvgPool3d = {function() return nn.AvgPool3d(2, {ceil_mode = true}) end,
               {{4, 2, 4, 4, 3}}},
  BatchNorm3d = {function() return nn.BatchNorm3d(3) end, {{4, 3, 2, 2, 2}}},
  InstanceNorm3d = {function() return nn.InstanceNorm3d(3) end,
                    {{4, 3, 2, 2, 2}}},
  MaxPool1d = {function() return nn.MaxPool1d(2) end, {{4, 2, 8}}},
  MaxPool2d = {function() return nn.MaxPool2d(2) end, {{4, 2, 8, 8}}},
  AvgPool1d = {function() return nn.AvgPool1d(2) end, {{4, 2, 8}}},
  AvgPool2d = {function()
      return nn.AvgPool2d(3, {padding = 1, count_include_pad = false})
    end, {{4, 2, 8, 8}}},
  AdaptiveAvgPool1d = {function() return nn.AdaptiveAvgPool1d(3) end,
                       {{4, 2, 8}}},
  AdaptiveAvgPool2d = {function() return nn.AdaptiveAvgPool2d {1, 3} end,
                       {{4, 2, 8, 8}}},
  AdaptiveMaxPool1d = {function() return nn.AdaptiveMaxPool1d(3) end,
                       {{4, 2, 8}}},
  AdaptiveMaxPool2d = {function() return nn.AdaptiveMaxPool2d {1, 3} end,
                       {{4, 2, 8, 8}}},
  AdaptiveAvgPool3d = {function() return nn.AdaptiveAvgPool3d {1, 3, 2} end,
                       {{4, 2, 4, 5, 4}}},
  AdaptiveMaxPool3d = {function() return nn.AdaptiveMaxPool3d(2) end,
                       {{4, 2, 4, 5, 4}}},
  MaxUnpool1d = {function() return nn.MaxUnpool1d(2) end,
                 {{4, 2, 3}, {4, 2, 3, int = true}}},
  MaxUnpool2d = {function() return nn.MaxUnpool2d(2) end,
                 {{4, 2, 3, 3}, {4, 2, 3, 3, int = true}}},
  MaxUnpool3d = {function() return nn.MaxUnpool3d(2) end,
                 {{4, 2, 3, 2, 2}, {4, 2, 3, 2, 2, int = true}}},
  Upsample = {function()
      return nn.Upsample {scale_factor = 2, mode = "bilinear"}
    end, {{4, 2, 3, 3}}},
  BatchNorm1d = {function() return nn.BatchNorm1d(3) end, {{4, 3}}},
  BatchNorm2d = {function() return nn.BatchNorm2d(3) end, {{4, 3, 2, 2}}},
  LayerNorm = {function() return nn.LayerNorm(3) end, {{4, 3}}},
  RMSNorm = {function() return nn.RMSNorm(3) end, {{4, 3}}},
  GroupNorm = {function() return nn.GroupNorm(2, 4) end, {{4, 4, 3}}},
  InstanceNorm1d = {function()
      return nn.InstanceNorm1d(3, {affine = true})
    end, {{4, 3, 5}}},
  InstanceNorm2d = {function() return nn.InstanceNorm2d(3) end,
                    {{4, 3, 2, 2}}},
  Embedding = {function() return nn.Embedding(9, 3) end, {{4, 2, int = true}}},
  Dropout = {function() return nn.Dropout(0.5) end, {{4, 3}}},
  Dropout1d = {function() return nn.Dropout1d(0.5) end, {{4, 3, 2}}},
  Dropout2d = {function() return nn.Dropout2d(0.5) end, {{4, 3, 2, 2}}},
  MultiheadAttention = {function()
      return nn.MultiheadAttention(4, 2, {batch_first = true})
    end, {{4, 3, 4}}},
  TransformerEncoderLayer = {function()
      return nn.TransformerEncoderLayer(4, 2, {batch_first = true,
                                               dim_feedforward = 8})
    end, {{4, 3, 4}}},
  TransformerDecoderLayer = {function()
      return nn.TransformerDecoderLayer(4, 2, {batch_first = true,
                                               dim_feedforward = 8})
    end, {{4, 3, 4}, {4, 5, 4}}},
  CosineSimilarity = {function() return nn.CosineSimilarity() end,
                      {{4, 3}, {4, 3}}},
  PairwiseDistance = {function() return nn.PairwiseDistance() end,
                      {{4, 3}, {4, 3}}},
  -- The mean of no losses is NaN, their sum 0.
  MSELoss = {function() return nn.MSELoss() end, {{4, 3}, {4, 3}}},
  L1Loss = {function() return nn.L1Loss() end, {{4, 3}, {4, 3}}},
  HuberLoss = {function() return nn.HuberLoss() end, {{4, 3}, {4, 3}}},
  SmoothL1Loss = {function() return nn.SmoothL1Loss() end, {{4, 3}, {4, 3}}},
  BCELoss = {function() return nn.BCELoss {reduction = "sum"} end,
             {{4, 3}, {4, 3}}},
  BCEWithLogitsLoss = {function()
      return nn.BCEWithLogitsLoss {reduction = "none"}
    end, {{4, 3}, {4, 3}}},
  KLDivLoss = {function() return nn.KLDivLoss() end, {{4, 3}, {4, 3}}},
  NLLLoss = {function() return nn.NLLLoss() end, {{4, 3}, {4, int = true}}},
  CrossEntropyLoss = {function() return nn.CrossEntropyLoss() end,
                      {{4, 3}, {4, int = true}}},
  Threshold = {function() return nn.Threshold(0.5, 2) end, {{4, 3}}},
  Unflatten = {function() return nn.Unflatten(2, {3, 2}) end, {{4, 6}}},
  Normalize = {function() return nn.Normalize {mean = 1, std = 2} end,
               {{4, 3}}},
}

-- Made of others, or not of rows.
local elsewhere = {
  Module = true, Sequential = true, ModuleList = true, ModuleDict = true,
  TransformerEncoder = true, TransformerDecoder = true,
}

local function inputs(shapes, rows, dev)
  local list = {}
  for i, s in ipairs(shapes) do
    local size = {unpack(s)}
    size[1] = rows
    local r = U.random(i)
    local data = {}
    for k = 1, U.numel(size) do data[k] = s.int and 1 + k % 3 or r() end
    if rows == 0 then
      list[i] = limn.zeros(size, s.int and int64 or {}):to(dev)
    else
      list[i] = U.tensor(data, size, s.int and "int64" or "float32", dev)
    end
  end
  return list
end

local function shape_for(y, rows)
  local s = {unpack(y.shape)}
  if #s > 0 then s[1] = rows end
  return s
end

describe("With no rows", function()
  local names = {}
  for name, v in pairs(nn) do
    if type(v) == "table" and rawget(v, "class_name") and not elsewhere[name]
    then
      names[#names + 1] = name
    end
  end
  table.sort(names)

  it("every layer is looked at", function()
    local missing = {}
    for _, name in ipairs(names) do
      -- Activations need no options.
      if not cases[name] and not rawget(activation, name) then
        missing[#missing + 1] = name
      end
    end
    assert.are.same({}, missing)
  end)

  for _, name in ipairs(names) do
    it(name .. " gives no rows", function()
      local case = cases[name]
        or {function() return nn[name]() end, {{4, 6}}}
      U.each_device(function(dev)
        local m = case[1]()
        local some, none = inputs(case[2], 4, dev), inputs(case[2], 0, dev)
        local function f(...)
          local y = m(...)
          return y
        end
        local g = limn.trace(f, unpack(some))
        local want = shape_for(g(unpack(some)), 0)
        U.shape(f(unpack(none)), want)
        U.shape(g(unpack(none)), want)
        if next(m:parameters()) then
          local grads = select(2, limn.value_and_grad(function(...)
            local y = f(...):sum()
            return y
          end, m, {unused = "zeros"})(unpack(none)))
          for key, d in pairs(grads) do
            U.equal(d, U.flat(d:zeros_like()), key)
          end
        end
      end)
    end)
  end

  it("every layer names itself where it is given no tensor", function()
    for _, name in ipairs(names) do
      local m = cases[name] and cases[name][1]() or nn[name]()
      for _, bad in ipairs {"nil", "3", "'x'", "{1, 2}"} do
        if name ~= "Identity" then
          local f = assert(loadstring("local m = ... local y = m(" .. bad
            .. ")", "=user"))
          local ok, e = pcall(f, m)
          assert.is_false(ok, name .. " of " .. bad)
          e = tostring(e)
          assert.is_truthy(e:find("user:1: " .. name .. ": ", 1, true), e)
          assert.is_truthy(e:find("must be a tensor, not", 1, true), e)
        end
      end
    end
  end)

  it("every function that takes a tensor names itself without one", function()
    local function refused(name, ...)
      local f = assert(loadstring("local f = ... local y = f(select(2, ...))",
                                  "=user"))
      local ok, e = pcall(f, nn[name], ...)
      assert.is_false(ok, name)
      assert.is_truthy(tostring(e):find("user:1: " .. name, 1, true), e)
    end
    local n = 0
    for name, f in pairs(nn) do
      if type(f) == "function" and name:find "^%l"
        and name ~= "binary_cross_entropy_with_logits" then
        n = n + 1
        refused(name)
        refused(name, {})
        refused(name, "x")
      end
    end
    assert.is_true(n > 50)
  end)

  it("every layer refuses arguments that it has no place for", function()
    for _, name in ipairs(names) do
      local places = rawget(nn[name], "own_places")
      if places and places < 8 then
        local args = {}
        for i = 1, places + 1 do args[i] = 1 end
        U.message(function() nn[name](unpack(args)) end,
                  name .. " has no place for argument " .. places + 1)
      end
    end
  end)

  it("functions of layers give no rows", function()
    U.each_device(function(dev)
      local x = limn.zeros(0, 8, 9):to(dev)
      local y = nn.fold(x, {4, 4}, 2)
      U.shape(y, {0, 2, 4, 4})
      U.shape(nn.unfold(limn.zeros(0, 2, 4, 4):to(dev), 2), {0, 8, 9})
      U.shape(nn.interpolate(limn.zeros(0, 2, 4):to(dev), {size = 7}),
              {0, 2, 7})
      U.shape(nn.scaled_dot_product_attention(x, x, x), {0, 8, 9})
      U.shape(limn.zeros(0, 3):to(dev):pad({1, 1}, {mode = "reflect"}), {0, 5})
      U.shape(limn.zeros(0, 3):to(dev):cumsum(2), {0, 3})
      U.shape((limn.zeros(0, 3):to(dev):sort(2)), {0, 3})
      U.shape((limn.zeros(0, 3):to(dev):topk(2, 2)), {0, 2})
      U.shape(limn.einsum("bij,bjk->bik", x, x:transpose(2, 3)), {0, 8, 8})
    end)
  end)
end)

describe("Batch norm in training", function()
  local function state(m)
    return {U.flat(m.running_mean), U.flat(m.running_var),
            U.flat(m.num_batches_tracked)}
  end

  it("leaves the running statistics alone when there are no rows", function()
    U.each_device(function(dev)
      local m = nn.BatchNorm2d(3)
      local x = limn.randn(4, 3, 2, 2):to(dev)
      local g = limn.trace(m, x)
      m(x)
      local before = state(m)
      m(limn.zeros(0, 3, 2, 2):to(dev))
      assert.are.same(before, state(m))
      g(limn.zeros(0, 3, 2, 2):to(dev))
      assert.are.same(before, state(m))
      g(x)
      assert.are_not.same(before, state(m))
    end)
  end)

  it("refuses one value per channel, eager and when a plan is made, and "
     .. "updates nothing", function()
    U.each_device(function(dev)
      local Net = nn.Module:extend "Net"
      function Net:init() self.bn = nn.BatchNorm1d(3) end
      function Net:forward(x)
        local y = self.bn(x)
        return y
      end
      local m = Net()
      local x, one = limn.randn(4, 3):to(dev), limn.randn(1, 3):to(dev)
      local g, j = limn.trace(m, x), limn.jit(m)
      j(x)
      local before = state(m.bn)
      U.message(function() m(one) end, "more than 1 value per channel", "bn")
      U.message(function() g(one) end, "more than 1 value per channel", "bn",
                "%[1, 3%]")
      U.message(function() j(one) end, "more than 1 value per channel")
      U.message(function() limn.trace(m, one) end, "more than 1 value")
      assert.are.same(before, state(m.bn))
      m:eval()
      U.close(g(one), m(one), 1e-6)
      U.message(function() nn.batch_norm(one, {training = true}) end,
                "more than 1 value per channel")
      local plain = nn.BatchNorm1d(3, {track_running_stats = false})
      U.message(function() plain(one) end, "more than 1 value per channel")
    end)
  end)
end)

describe("A margin made of x", function()
  it("is measured by the size of each run, not of the example", function()
    U.each_device(function(dev)
      for mode, most in pairs {reflect = 2, circular = 3} do
        local function f(x)
          local y = x:pad({most, 0}, {mode = mode})
          return y
        end
        local g = limn.trace(f, limn.randn(2, 7):to(dev))
        local x = limn.randn(2, 3):to(dev)
        U.equal(g(x), U.flat(f(x)))
        local short = limn.randn(2, 2):to(dev)
        U.message(function() f(short) end, mode, "dim 2")
        U.message(function() g(short) end, mode, "dim 2", "%[2, 2%]")
      end
    end)
  end)
end)
