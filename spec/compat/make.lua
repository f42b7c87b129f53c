-- Makes spec/compat/unreleased.*: a file of graphs over nearly all rows of the
-- op table (.limn), what they give (.values) and the list of the rows (.rows).
--
--   make compat
--
-- A release renames the three to its version. Nothing changes them from then
-- on: each later one has to load the file, give the same, and keep the rows in
-- the list as they are; spec/compat_spec.lua checks that.
package.path = "spec/?.lua;" .. package.path
local C = require "support.compat"
local T = require "support.optable"
local U = require "support.util"
local limn = U.limn
local nn, optim, linalg = limn.nn, limn.optim, limn.linalg
local ops = limn.core.ops

local path = arg[1] or "spec/compat/unreleased"
local graphs, cases = {}, {}

-- A graph that has been made, and what it gives for these arguments. Options:
-- cpu (it runs there only), train (in that mode), seed, times.
local function case(name, g, args, options)
  local c = options or {}
  graphs[name] = g
  c.graph, c.args = name, args
  cases[#cases + 1] = c
end

local function graph(name, f, args, options)
  local t = {f, unpack(args)}
  t.name = name
  case(name, limn.trace(t), args, options)
end

-- -- Elementwise rows and reductions ----------------------------------------

local x = limn.tensor {{0.15, 0.3, 0.45}, {0.6, 0.75, 0.9}}
local y = limn.tensor {{0.5, -1.5, 2}, {1.25, 0.75, -0.25}}
local whole = limn.tensor({{7, -3, 0}, {2, 5, -6}}, "int64")
local other = limn.tensor({{2, 2, 3}, {-3, 1, 4}}, "int64")

graph("unary", function(a, b, m)
  local out = {}
  for row in T.each "E" do
    if row.arity == 1 then
      local v = row.domain == "GE1" and a + 1 or row.domain == "REAL" and b or a
      if row.rule == "BIT" then v = m end
      out[row.name] = ops[row.name](v)
    end
  end
  return out
end, {x, y, whole})

graph("binary", function(a, b, m, n)
  local out = {}
  for row in T.each "E" do
    if row.name == "polygamma" then
      out[row.name] = limn.polygamma(2, a)
    elseif row.arity == 2 then
      if row.rule ~= "BIT" then
        out[row.name] = ops[row.name](a, b:abs())
        out[row.name .. "_number"] = ops[row.name](a, 0.5)
      end
      if row.rule ~= "FLT" and row.name ~= "pow" then
        out[row.name .. "_whole"] = ops[row.name](m, n)
      end
    end
  end
  out.where, out.clamp = limn.where(b:gt(0), a, b), b:clamp(-1, 1)
  out.above, out.below = b:clamp {min = 0}, b:clamp {max = 0.5}
  return out
end, {x, y, whole, other})

graph("reductions", function(a, b)
  local out = {}
  for row in T.each "R" do
    out[row.name] = ops[row.name](b)
    out[row.name .. "_dim"] = ops[row.name](a, 2, {keepdim = true})
  end
  for _, name in ipairs {"mean", "var", "std", "logsumexp", "norm"} do
    out[name], out[name .. "_dim"] = ops[name](b), ops[name](b, {dim = 1})
  end
  out.biased, out.norm1 = b:var {unbiased = false}, b:norm {p = 1, dim = 2}
  out.argmax, out.argmin = b:argmax(2), b:argmin(1)
  out.cumsum, out.back = b:cumsum(2), b:cumsum(1, {reverse = true})
  out.cumprod = b:cumprod(1)
  out.cummax, out.cummax_at = b:cummax(2)
  out.cummin, out.cummin_at = b:cummin(1)
  out.logcumsumexp = b:logcumsumexp(2)
  out.ahead = b:logcumsumexp {dim = 1, reverse = true}
  out.softmax, out.log_softmax = b:softmax(2), b:log_softmax(1)
  return out
end, {x, y})

-- -- Shapes, positions, generators ------------------------------------------

graph("shapes", function(a, b)
  local n = a:size(1)
  local up = a:unsqueeze(2)
  return {reshape = a:reshape(n * 3), like = b:reshape_like(a),
    flatten = up:flatten(1, 2), permute = up:permute {3, 1, 2},
    transpose = a:transpose(1, 2), expand = up:expand(n, 2, 3),
    expand_like = a[1]:expand_like(b), squeeze = up:squeeze(2),
    slice = a[{{1, n}, 2}], flip = a:flip(2),
    windows = ops.windows(a, {2}, {1}, {1}),
    cat = limn.cat({a, b}, 2), stack = limn.stack({a, b}, 1),
    pad = a:pad {1, 2}, reflect = a:pad({1, 1}, {mode = "reflect"}),
    tile = a:tile {1, 2}, outer = a[1]:outer(b[1]), tril = a:tril(),
    triu = a:triu(1), matmul = a:matmul(b:t()), scaled = a / n,
    sizes = {n, a:size(2) * 2}}
end, {x, y})

local rows = limn.tensor({2, 1}, "int64")
local cells = limn.tensor({{3, 1, 2}, {2, 1, 3}}, "int64")
graph("positions", function(a, b, i, j)
  local v = b:clone()
  v[{{1, 1}, {2, 3}}] = 7
  return {select = a[i], gather = a:gather(2, j), update = v,
    index_add = a:index_add(1, i, b), scatter_add = a:scatter_add(2, j, b),
    index_copy = a:index_copy(1, i, b), scatter = a:scatter(2, j, b),
    argsort = b:argsort(2, {descending = true}), one_hot = i:one_hot(3),
    masked_fill = a:masked_fill(b:gt(0), -1)}
end, {x, y, rows, cells})

graph("generators", function(a)
  return {full = limn.full({a:size(1)}, 0.25), like = limn.full_like(a, 2),
    arange = limn.arange(0, a:size(2), 0.5), eye = limn.eye(2, 3),
    bits = ops.rand_bits {3}, rand = limn.rand(3), randn = limn.randn(2, 2),
    randint = limn.randint(1, 6, {5}), rand_like = a:rand_like(),
    randn_like = a:randn_like(), detach = a:detach() * 2}
end, {x}, {seed = 7})

graph("dtypes", function(a, h, i, b)
  return {promoted = a + h, half = (h * 3):mean(), rest = i % 4,
    bool = b:logical_or(i:gt(0)), to = a:to "float64", as = i:to(h.dtype),
    div = i / 2, norm = h:softmax(1), any = b:any(), wrap = i * 2147483647,
    third = a:to "bfloat16" / 3, byte = i:to "uint8", small = i:to "int8"}
end, {limn.tensor {1.5, -2}, limn.tensor({0.5, 3}, "float16"),
  limn.tensor({7, -3}, "int32"), limn.tensor {true, false}})

-- -- Layers, with their gradients --------------------------------------------

local function slopes(f)
  return function(...)
    local args = {...}
    local loss, grads = limn.value_and_grad(function()
      local v = f(unpack(args))
      return (v * v):sum()
    end, args)()
    return loss, grads
  end
end

local image = limn.arange(0, 1, 1 / 63):reshape(1, 1, 8, 8)
local kernel = limn.arange(-1, 1, 0.25):reshape(1, 1, 3, 3)
graph("conv", slopes(function(a, w)
  local v = nn.conv2d(a, w, nil, {padding = 1})
  return nn.conv_transpose2d(v, w, nil, {stride = 2})
end), {image, kernel})
graph("conv_second", function(a, w)
  local _, g = slopes(function(b)
    local _, d = slopes(function(c) return nn.conv2d(b, c) end)(w)
    return d[1]
  end)(a)
  return g[1]
end, {image, kernel})
graph("pools", slopes(function(a)
  return nn.max_pool2d(a, 2) + nn.max_pool2d(a, 3, {stride = 2, padding = 1})
    + nn.avg_pool2d(a, 2)
end), {image})
graph("inner", function(a)
  local v = ops.max_pool2_f32(a, 2, 2, 2, 2)
  return {pool2 = v,
    back = ops.max_pool2_f32_back(a, v, v, 2, 2, 2, 2)}
end, {image})

local weight, bias = limn.tensor {1, 0.5, 2}, limn.tensor {0.1, 0, -0.1}
graph("norms", slopes(function(a, w, b)
  local v = nn.layer_norm(a, {weight = w, bias = b})
    + nn.rms_norm(a, {weight = w})
  return v:softmax(2) + v:log_softmax(2)
end), {y, weight, bias})
graph("batch", slopes(function(a, w, b)
  return nn.batch_norm(a, {weight = w, bias = b, training = true})
end), {y, weight, bias})
graph("attention", slopes(function(q, k, v)
  return nn.scaled_dot_product_attention(q, k, v, {causal = true})
end), {x, y, x + y})
graph("loss", slopes(function(a)
  local t = limn.tensor({2, 3}, "int64")
  return nn.cross_entropy(a, t) + nn.huber_loss(a, a:detach() + 2)
end), {y})

local square = limn.tensor {{4, 1, 0.5}, {1, 3, 0.25}, {0.5, 0.25, 2}}
graph("linalg", slopes(function(a, b)
  local l, q = linalg.cholesky(a), {linalg.qr(a)}
  local u, s = linalg.svd(a)
  local sign, size = linalg.slogdet(a)
  local v = linalg.eigh(a)
  return l + linalg.solve(a, b) + linalg.inv(a) + linalg.pinv(a)
    + linalg.solve_triangular(l, b, {upper = false}) + q[1]:abs()
    + u:abs() * s + sign * size + v + linalg.det(a)
end), {square, square + 1}, {cpu = true})

-- -- Control flow, custom functions, random numbers ------------------------

local twice = limn.custom(function(v) return v * 2 end,
                          function(g, _, v) return g * 2 + v * 0 end)

graph("control", function(a, k)
  local h, all = limn.scan(function(h, row)
    h = (h * 0.9 + row * k):tanh()
    return h, h:sum()
  end, a:new_zeros(a:size(2)), a)
  local n, v = limn.while_loop(function(_, v) return v:sum():lt(50) end,
    function(n, v)
      local w = limn.cond(v:max():gt(3), function() return v * 3 end,
                          function() return twice(v) + k end)
      return n + 1, w
    end, 0, a)
  local back = limn.scan(function(c, row) return c * 0.5 + row end,
    a:new_zeros(3), a, {reverse = true})
  local m = limn.map(function(r) return {r:sum(), r * 2} end, a)
  local kept = limn.cond(limn.gt(k, 1), function() return a end,
                         function() return a * k end)
  local where = limn.by_device({cpu = function(w) return w + 1 end,
    gpu = function(w) return w + 1 end}, a)
  local quiet = limn.cond(v:sum():lt(0), function()
    limn.print("not shown {{}", v)
    return v
  end, function() return -v end)
  return {h, all, n, v, back, m, kept, where, quiet}
end, {x, limn.number(0.5)})

graph("curves", function(a, b)
  local function loss(v, w)
    local h = limn.scan(function(c, row)
      local d = limn.cond(c:sum():gt(1), function() return c * row:sin() end,
                          function() return twice(c) + row * w end)
      return d
    end, w * 0 + 0.1, v)
    return (limn.while_at_most(3, function(u) return u:sum():lt(9) end,
      function(u) return u * u + w end, h)):sum()
  end
  local first = limn.grad(loss)(a, b)
  local second = limn.grad(function(w)
    return (limn.grad(loss)(a, w) * a):sum()
  end)(b)
  return loss(a, b), first, second
end, {x, limn.tensor {0.3, 0.2, 0.6}})

graph("script", limn.script(function(a)
  local s, p = 0, 1
  for i = 1, a:size(1) do
    if a[i]:sum() > 1 then s = s + a[i]:sum() else p = p * 2 end
    if s > 100 then break end
  end
  return s, p
end), {x})

graph("noise", function(a)
  local ys = limn.map(function(row)
    return nn.dropout(row, 0.5) + limn.randn(3)
  end, a)
  return ys, limn.rand(2)
end, {x}, {seed = 11})

-- -- Training: cells, modes, number inputs, named sizes, guards --------------

local Net = nn.Module:extend "Net"
function Net:init()
  self.embed = nn.Embedding(5, 3)
  self.body = nn.LSTM(3, 4)
  self.norm = nn.BatchNorm1d(4)
  self.drop = nn.Dropout(0.25)
  self.out = nn.Linear(4, 2)
end
function Net:forward(ids)
  local h = self.body(self.embed(ids))
  return self.out(self.drop(self.norm(h[{{}, -1}])))
end

limn.manual_seed(1)
local net = Net()
local opt = optim.Adam(net, {lr = 0.01})
local loss = limn.value_and_grad(function(ids, t)
  return nn.cross_entropy(net(ids), t)
end, net)
local ids = limn.tensor({{1, 2, 3}, {5, 4, 1}, {2, 2, 2}, {3, 1, 5}}, "int64")
local labels = limn.tensor({1, 2, 2, 1}, "int64")
local step = limn.trace {function(i, t, scale)
  local l, grads = loss(i, t)
  grads = optim.clip_grad_norm(grads, 1)
  opt:step(grads)
  return l * scale
end, limn.spec({"batch", "length"}, "int64"), limn.spec({"batch"}, "int64"),
  limn.number(2), name = "step"}
case("infer", limn.trace {net, ids, name = "infer"}, {ids})
case("step", step, {ids, labels, 0.5}, {train = true, seed = 3, times = 3})
case("infer", graphs.infer, {ids}) -- with what was learnt

-- -- The three files ---------------------------------------------------------

local function write(name, text)
  local f = assert(io.open(name, "wb"))
  f:write(text)
  f:close()
end

graphs.net, graphs.opt = net, opt
limn.save(path .. ".limn", graphs, {lines = false})
local packed = {}
for i, c in ipairs(cases) do packed[i] = C.case(c) end
C.run(limn.load(path .. ".limn"), packed, "cpu", function(c, results)
  c.results = results
end)
write(path .. ".values", ("-- What the graphs of the file give; made by "
  .. "`make compat`, with %s.\nreturn %s\n"):format(limn._VERSION,
  table.concat(C.write(packed, {}, ""))))
write(path .. ".rows", table.concat(C.rows(), "\n") .. "\n")

local named, missing = C.named(limn.load(path .. ".limn")), {}
for _, row in ipairs(T.order) do
  if not named[row.name] then missing[#missing + 1] = row.name end
end
print(("%s: %d cases; rows in no graph: %s"):format(path, #packed,
  #missing == 0 and "none" or table.concat(missing, " ")))
