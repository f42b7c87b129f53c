-- What a first user gets wrong: each an error at the user's line, none a crash
-- or a silent wrong result.
local U = require "support.util"
local limn = U.limn
local nn, optim = limn.nn, limn.optim

-- Every {code, pattern...}: the code raises at its own line, with the patterns.
local function raise(cases)
  local env = setmetatable({limn = limn, nn = nn, optim = optim,
                            T = limn.tensor}, {__index = _G})
  for _, case in ipairs(cases) do
    local f = assert(loadstring(case[1], "=user"))
    setfenv(f, env)
    local ok, e = pcall(f)
    assert.is_false(ok, case[1])
    e = tostring(e)
    assert.is_truthy(e:find "^user:1: ", case[1] .. "\n" .. e)
    for i = 2, #case do
      assert.is_truthy(e:find(case[i]), case[1] .. "\n" .. e)
    end
  end
end

describe("Wrong arguments", function()
  it("of creations are named", function()
    raise {
      {"local x = T {1, nil, 3}", "hole"}, {"local x = T {1, 2, x = 3}"},
      {"local x = T({1}, 'int65')", "neither a dtype nor a device"},
      {"local x = limn.randint(6, 1)", "low is 6"},
      {"local x = limn.randperm(2 ^ 61)", "more elements than fit"},
      {"local x = limn.linspace(0, 1, 'a')", "argument 3"},
      {"limn.manual_seed 'x'", "whole number"},
      {"local s = limn.spec {'n', -3}", "no size"},
      {"local x = limn.ones(2)[{n = 1}]", "names"},
    }
    local t = {1} -- more elements than a size can count
    for _ = 1, 7 do
      local u = {}
      for i = 1, 1000 do u[i] = t end
      t = u
    end
    U.message(function() limn.tensor(t) end, "no possible size")
  end)

  it("of ops are named, numbers and bools for tensors too", function()
    raise {
      {"local x = limn.sum(true)", "x must be a tensor"},
      {"local x = limn.argmax(true)", "x must be a tensor"},
      {"local x = limn.transpose(true, 1, 1)", "tensor"},
      {"local x = limn.tile(-1, {})", "tensor"},
      {"local x = limn.dot(3, 4)", "dot"},
      {"local x = limn.ones(2):chunk(0)", "parts"},
      {"local x = limn.ones(2) * limn.number(3)", "argument of graphs"},
    }
  end)

  it("that are no whole numbers, or beyond a dtype, are refused", function()
    raise {
      {"T{1, 2}:at(1.5)", "at: .*1%.5"}, {"T{1, 2}:at(0 / 0)", "nan"},
      {"T{1, 2}:at 'a'", "at: .*'a'"},
      {"limn.randint(1, 0 / 0)", "randint: .*nan"},
      {"limn.randint(1.5, 3)", "randint: .*1%.5"},
      {"limn.randint(1, 300, 2, 'uint8')", "300 does not fit uint8"},
      {"limn.full(2, 300, 'int8')", "full: 300 does not fit int8"},
      {"limn.tensor({1, 300}, 'int8')", "tensor: 300 does not fit int8"},
      {"local x = limn.zeros(2, 'int8'); x[1] = 300", "300 does not fit int8"},
      {"nn.Buffer(limn.zeros(2, 'int8'))[1] = -129", "-129 does not fit int8"},
      {"limn.arange(250, 256, 'uint8')", "256 does not fit uint8"},
      {"limn.linspace(0, 1, 1.5)", "linspace: .*1%.5"},
      {"limn.linspace(0, 1, -1)", "linspace: %-1 values"},
      {"T{1, 2}:split(0 / 0)", "split: .*nan"}, {"T{1}:split(1.5)", "1%.5"},
      {"limn.manual_seed(1 / 0)", "whole number"},
      {"limn.plans_limit(-1, 0)", "entries .*%-1"},
      {"limn.plans_limit(1, 0 / 0)", "bytes .*nan"},
      {"limn.policy {max_bytes = -1}", "max_bytes .*%-1"},
      {"limn.policy {precice = true}", "precise"},
      {"limn.policy {precise = 1}", "true or false"},
      {"limn.zeros(0 / 0)", "the size nan"},
      {"limn.wait {}", "wait: .*table"}, {"limn.from_string(3)", "string"},
    }
    local inf = math.huge
    U.each_device(function(dev)
      U.equal(limn.full(1, inf, {dtype = "int8", device = dev}), {127})
      U.equal(limn.full(1, -300.5, {dtype = "int8", device = dev}), {-128})
      U.equal(limn.full(1, 0 / 0, {dtype = "uint8", device = dev}), {0})
    end)
  end)

  it("of texts that a graph or file cannot hold are refused", function()
    raise {
      {"limn.trace(function(x) return 'a\\0b' end, T{1})", "zero byte"},
      {"limn.trace(function(x, s) return x end, T{1}, 'a\\0b')", "zero byte"},
      {"limn.trace(function(x) return {[''] = x} end, T{1})", "empty"},
      {"limn.trace(function(x) return {['a\\0b'] = x} end, T{1})", "no text"},
      {"limn.trace(function(x) return {x, ['1'] = x} end, T{1})",
       'keys 1 and "1"'},
      {"limn.save_string {['a\\0b'] = T{1}}", "zero byte"},
      {"limn.load 'a\\0b'", "path"}, {"limn.save('a\\0', {x = T{1}})", "path"},
    }
  end)

  it("in assignments are told alike, whether memory is shared or not, without "
     .. "the positions that stand in the line", function()
    local words = "a value of shape %[3%] does not fit a part of shape %[2%]"
    for _, before in ipairs {"", "local row = x[1]; "} do
      raise {{"local x = limn.zeros(3, 2); " .. before .. "x[1] = {1, 2, 3}",
              words}}
    end
    local x = limn.zeros(3, 2)
    local row = x[1]
    local ok, e = pcall(function() x[{{1, 2}, 5}] = 1 end)
    assert.is_false(ok)
    assert.is_truthy(e:find "position 5 is out of range: dim 2 has size 2", e)
    assert.is_nil(e:find("first", 1, true), e)
    U.shape(row, {2})
  end)

  it("of other libraries' names are answered with limn's", function()
    raise {
      {"return T{1}:cpu()", "no method 'cpu'\n", 'x:to "cpu"'},
      {"return T{1}:backward()", "value_and_grad"},
      {"return T{1}.grad", "value_and_grad"}, {"return T{1}.T", "x:t%(%)"},
      {"return T{1}:add_(1)", "x = x:add%("},
      {"return T{1}:nothing_()", "no method 'nothing_'"},
      {"return T{1}:summ()", "did you mean 'sum'"},
      {"return limn.float32", "dtypes are names"},
      {"return limn.pi", "math.pi"}, {"return nn.pad", "it is limn.pad"},
      {"return nn.utils", "clip_grad_norm"},
      {"return optim.lr_scheduler", "optim.schedule"},
      {"optim.SGD(nn.Linear(1, 1)):zero_grad()", "opt:step%(grads%)"},
    }
  end)

  it("of functions that take functions are named", function()
    raise {
      {"limn.scope(3)", "function is wanted"}, {"limn.on 'cpu'", "function"},
      {"limn.on()", "device"}, {"local g = limn.grad('x')", "function"},
      {"local f = limn.value_and_grad(print, T(1), {unused = 'zero'})",
       "zeros"},
      {"local t = {T(1)}; t[2] = t; local g = limn.trace(print, t)", "circle"},
      {"local g = limn.trace(function(x) return x end, T(1)); g:runinto()",
       "run_into"},
    }
  end)

  it("of models, losses and optimizers are named", function()
    raise {
      {"nn.Linear(2, 2):to 'float16'", "dtype", 'dtype = "float16"'},
      {"nn.Linear(2, 2):to 'cuda:0'", "on no device"},
      {"local l = nn.cross_entropy()", "prediction"},
      {"local p = nn.Parameter(T({1}, 'int64'))", "cannot be trained"},
      {"local l = nn.Linear(1, 1):to 'cpu'", "follow"},
      {"nn.Linear(1, 1):load_state_dict(3)", "table"},
      {"local o = optim.Adam(nn.Linear(1, 1), {betas = 3})", "two numbers"},
      {"local o = optim.Adam(nn.Linear(1, 1), {lr = -1})", "below 0"},
      {"local a = nn.Linear(1, 1); local o = optim.SGD {{params = a}, "
       .. "{params = a}}", "two groups"},
      {"local o = optim.SGD {{parms = nn.Linear(1, 1)}}", "no 'params'"},
      {"optim.SGD(nn.Linear(1, 1)):step {weight = 1, bias = 2}", "weight"},
      {"limn.restore()", "path"}, {"limn.restore 'x'", "objects"},
    }
  end)

  it("of layers are looked at when the layer is made", function()
    raise {
      {"nn.LSTM(3, 4, {bias = 1})", "LSTM: bias is true or false, got 1"},
      {"nn.LSTM(3, 4, {batch_first = 'yes'})", "batch_first", "'yes'"},
      {"nn.LSTM(3, 4, {bidirectional = 2})", "bidirectional"},
      {"nn.LSTM(3, 4, {dropout = 'a'})", "LSTM: dropout is a number from 0"},
      {"nn.LSTM(3, 4, {dropout = 2})", "LSTM: dropout"},
      {"nn.LSTM(3, 4, {batchfirst = true})", "did you mean 'batch_first'"},
      {"nn.LSTM(3, 4, {2})", "LSTM: 2 stands without a name"},
      {"nn.LSTM(3, 4, {}, 5)", "LSTM has no place for argument 4"},
      {"nn.GRU(3, 4, {dtype = 'int64'})", "GRU: dtype is float64, float32"},
      {"nn.Linear(3, 4, {bias = 'no'})", "Linear: bias"},
      {"nn.Linear(3, 4, {dtype = 'float33'})", "Linear: dtype", "'float33'"},
      {"nn.Conv2d(3, 4, 3, {stride = 'a'})", "Conv2d: stride"},
      {"nn.Conv2d(3, 4, 3, {stride = 0})", "Conv2d: stride is 0"},
      {"nn.Conv2d(3, 4, 3, {padding = -1})", "Conv2d: padding is %-1"},
      {"nn.Conv2d(3, 4, 3, {padding = 'sam'})", "Conv2d: padding", "'sam'"},
      {"nn.Conv2d(3, 4, 3, {padding_mode = 'mirror'})", "'mirror'"},
      {"nn.MaxPool2d(2, {ceil_mode = 1})", "MaxPool2d: ceil_mode"},
      {"nn.MaxPool2d(0)", "MaxPool2d: kernel is 0"},
      {"nn.MaxPool2d(2, {stride = 1.5})", "MaxPool2d: stride is 1.5"},
      {"nn.AdaptiveAvgPool2d()", "AdaptiveAvgPool2d: size"},
      {"nn.BatchNorm2d(3, {momentum = 'x'})", "BatchNorm2d: momentum"},
      {"nn.BatchNorm2d(3, {eps = 'x'})", "BatchNorm2d: eps"},
      {"nn.GELU {approximate = 'x'}", "GELU: approximate"},
      {"nn.ELU 'a'", "ELU: alpha is a number, not 'a'"},
      {"nn.Softmax 'a'", "Softmax: dim is a whole number"},
      {"nn.Threshold()", "Threshold: a threshold and a value"},
      {"nn.Flatten 'a'", "Flatten: dim"},
      {"nn.PReLU 'a'", "PReLU: the number of slopes"},
      {"nn.MSELoss {reductio = 'sum'}", "MSELoss has no option 'reductio'"},
      {"nn.MSELoss {reduction = 'avg'}", "MSELoss: unknown reduction"},
      {"nn.MSELoss 'sum'", "MSELoss: options must be a table"},
      {"nn.HuberLoss {delta = -1}", "HuberLoss: delta is a number above 0"},
      {"nn.CrossEntropyLoss {label_smoothing = 2}", "label_smoothing"},
      {"nn.TransformerEncoderLayer(4, 2, {activation = 'gelo'})",
       "there is no activation 'gelo', did you mean 'gelu'"},
    }
  end)

  it("of functions of layers are named", function()
    raise {
      {"nn.embedding(limn.ones({2}, {dtype = 'int64'}), limn.ones(3))",
       "embedding: the weight is %[3%]"},
      {"nn.bilinear(limn.ones(2, 3), limn.ones(2, 3), limn.ones(5))",
       "bilinear: the weight is %[5%]"},
      {"local q = limn.ones(2, 3, 4) nn.scaled_dot_product_attention(q, q, q, "
       .. "{mask = true})", "attention: the mask must be a tensor"},
      {"nn.lstm(limn.ones(3, 2, 3), {weight_ih = limn.ones(16, 3), "
       .. "weight_hh = limn.ones(16, 5)})", "lstm: weight_ih is %[16, 3%] and "
       .. "weight_hh %[16, 5%], where %[4 %* width, in%]"},
      {"nn.gru(limn.ones(3, 2, 3), {weight_ih = limn.ones(16, 3), "
       .. "weight_hh = limn.ones(16, 4)})", "gru: weight_ih"},
      {"nn.max_unpool2d(limn.ones(1, 1, 2, 2), limn.ones(1, 1, 2, 2), 2)",
       "max_unpool2d: places are whole numbers"},
    }
  end)

  it("of gradient clipping are named", function()
    raise {
      {"optim.clip_grad_norm(nn.Linear(2, 2), 1)", "got a module",
       "value_and_grad"},
      {"optim.clip_grad_norm(nn.Linear(2, 2):parameters(), 1)",
       "got parameters"},
      {"optim.clip_grad_norm(optim.SGD(nn.Linear(2, 2)), 1)",
       "got an optimizer"},
      {"optim.clip_grad_norm({T({1}, 'int64')}, 1)", "got whole numbers"},
      {"optim.clip_grad_norm(nil, 1)", "got nil"},
      {"optim.clip_grad_norm({T(1)})", "the limit is a number, got nil"},
      {"local x = limn.linalg.dett(T {1})", "linalg has no 'dett'", "'det'"},
    }
  end)

  it("that would lose a result are refused", function()
    raise {
      {"limn.ones(2, 2)[1]:copy_from(limn.ones(2))", "lost"},
      {"local g = limn.trace(function(x) return x + 1 end, T {1}) "
       .. "g:run_into({limn.ones(2, 1)[1]}, T {1})", "lost"},
    }
  end)
end)

describe("A jit function", function()
  it("can be traced as the function that it is", function()
    local f = limn.jit(function(y) return y + 1 end)
    local x = limn.ones(2)
    assert.are.same({2, 2}, limn.trace(f, x)(x):totable())
  end)

  it("that calls itself without end is an error, and the next trace is clean",
     function()
    local f
    f = limn.jit(function(x) local y = f(x) return y + 1 end)
    local x = limn.ones(2)
    for _ = 1, 2 do
      local ok, e = pcall(f, x)
      assert.is_false(ok)
      assert.is_truthy(tostring(e):find("nested too deep", 1, true), e)
      assert.is_false(limn.tracing())
    end
    assert.are.same({2, 2}, limn.jit(function(y) return y + 1 end)(x):totable())
  end)

  it("takes limn.number at a call, and numbers after it", function()
    local f = limn.jit(function(x, k) return x * k end)
    local x = limn.ones(1)
    assert.are.equal(3, f(x, limn.number(3)):item())
    assert.are.equal(4, f(x, 4):item())
    assert.are.equal(5, f(x, limn.number(5)):item())
    assert.are.equal(1, #f:graphs())
  end)

  it("traces again when an upvalue is rebound, not when it changes its own",
     function()
    local n, c, k = 0, limn.ones(1), nil
    local f = limn.jit(function(x)
      n = n + 1
      return x + c + (k or 0)
    end)
    local x = limn.zeros(1)
    for _ = 1, 3 do assert.are.equal(1, f(x):item()) end
    assert.are.equal(1, n)
    c = limn.zeros(1)
    assert.are.equal(0, f(x):item())
    k = 5
    assert.are.equal(5, f(x):item())
    k = nil
    assert.are.equal(0, f(x):item())
    assert.are.equal(3, n)
  end)
end)

describe("A traced function that yields", function()
  local x = limn.ones(2)

  it("is refused; a coroutine that it resumes may yield", function()
    local co = coroutine.wrap(function()
      local g = limn.trace(function(y) coroutine.yield() return y end, x)
      return g
    end)
    U.message(co, "cannot yield", "outside the trace")
    local g = limn.trace(function(y)
      local parts = coroutine.wrap(function()
        coroutine.yield(y * 2)
        coroutine.yield(y * 3)
      end)
      return parts() + parts()
    end, x)
    assert.are.same({5, 5}, g(x):totable())
  end)

  it("by a local copy of yield loses its trace, and nobody else is in one",
     function()
    local yield, clock = coroutine.yield, os.clock
    local co = coroutine.create(function()
      local g = limn.trace(function(y) yield() return y end, x)
      return g
    end)
    assert.is_true(coroutine.resume(co))
    assert.are.same({2, 2}, (x + 1):totable())
    assert.is_false(limn.tracing())
    assert.are.equal(clock, os.clock)
    local g = limn.trace(function(y)
      local ok, e = coroutine.resume(co)
      assert.is_false(ok)
      assert.is_truthy(tostring(e):find "cannot yield", e)
      return y + 1
    end, x)
    assert.are.same({2, 2}, g(x):totable())
    assert.are.equal(clock, os.clock)
  end)
end)

describe("graph:check", function()
  it("names modules, cells and tensors that were replaced", function()
    local net = nn.Linear(1, 1)
    local c = limn.ones(1)
    local g = limn.trace(function(x) return net(x) + c end, limn.ones(1, 1))
    assert.is_true(g:check())
    net.weight = nn.Parameter(limn.ones(1, 1))
    U.message(function() g:check() end, "field Linear.weight")
    net = nn.Linear(1, 1)
    c = limn.zeros(1)
    U.message(function() g:check() end, "upvalue net", "upvalue c")
  end)
end)

describe("limn.custom", function()
  it("may stand in another one's vjp, eager", function()
    for k = 1, 3 do -- a plan kept for one k must not serve another
      local f = limn.custom(function(x) return x * 2 end,
                            function(g) return g * 3 end)
      local h = limn.custom(function(x)
        local y = f(x)
        return y
      end, function(g)
        local y = f(g)
        return y * k
      end)
      local g = limn.grad(function(x)
        local y = h(x):sum()
        return y
      end)
      U.equal(g(limn.ones(2)), {2 * k, 2 * k})
    end
  end)

  it("captures what is around it, in bodies and files too", function()
    local w = limn.nn.Parameter(limn.tensor {1, 2, 3})
    w.name = "w"
    local function f(x, s)
      local n = x:size(1)
      local c = limn.custom(function(v)
        return v * w + s * n + limn.rand(3, v.device)
      end, function(g, y) return g * w * n + y * 0 + s end)
      return c(x) + limn.map(function(r) return c(x) * r end, x):sum(1)
    end
    local x, s = limn.tensor {1, -1, 2}, limn.tensor {3, 4, 5}
    local g = limn.trace(f, x, s)
    local df = limn.grad(function(v, t) return (f(v, t):sum()) end)
    local dg = limn.grad(function(v, t) return (g(v, t):sum()) end)
    local traced = limn.trace(df, x, s)
    local loaded
    U.with_file(function(path)
      limn.save(path, {g = g, traced = traced})
      loaded = limn.load(path)
    end)
    U.each_device(function(dev)
      local a, b = x:to(dev), s:to(dev)
      local function seeded(h)
        limn.manual_seed(1)
        local y = h(a, b)
        return y
      end
      for _, h in ipairs {g, loaded.g} do U.close(seeded(h), seeded(f)) end
      for _, h in ipairs {dg, traced, loaded.traced} do
        U.close(seeded(h), seeded(df))
      end
    end)
    local cell = limn.nn.Buffer(limn.zeros())
    U.message(function()
      limn.trace(limn.custom(function(v)
        cell:assign(v:sum())
        return v
      end, function(g2) return g2 end), x)
    end, "a custom function cannot assign to")
  end)

  it("says what is wrong with a gradient that its vjp gives", function()
    raise {
      {"limn.grad(function(x) return limn.custom(function(x) return x * 2 end, "
         .. "function(g) return g[1] end)(x):sum() end)(limn.ones(3, 2))",
       "argument 1 has 1 dim, the argument has 2", "expand_like"},
      {"limn.grad(function(x) return limn.custom(function(x) return x * 2 end, "
         .. "function() return 5 end)(x):sum() end)(limn.ones(3, 2))",
       "a number as the gradient of argument 1"},
      {"limn.grad(T{1})", "not a tensor"}, {"limn.scope(T{1})", "not a tensor"},
    }
  end)

  it("counts results and gradients", function()
    local two = limn.custom(function(x) return x, x end, print)
    local more = limn.custom(function(x) return x end,
                             function(g) return g, g end)
    local x = limn.ones(1)
    U.message(function()
      limn.grad(function(v) return (two(v)) end)(x)
    end, "one tensor")
    U.message(function()
      limn.grad(function(v) return (more(v):sum()) end)(x)
    end, "2 gradients for 1")
  end)
end)
