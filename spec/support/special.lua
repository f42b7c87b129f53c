-- Views, generators and special ops: how to call each, on what, and what comes
-- out in plain doubles. A row without an entry here (or in `elsewhere`) fails
-- ops_spec.lua.
local limn = require "limn"
local core = require "limn.core"
local R = require "support.reference"

local S = {}

-- An array of a shape whose element at the 0-based position is f(at).
local function build(shape, f)
  local out = {shape = shape, data = {}}
  for k = 0, R.numel(shape) - 1 do
    out.data[k + 1] = f(R.position(shape, k))
  end
  return out
end

local function get(a, ...) return a.data[R.offset(a.shape, {...})] end

-- Apply f to every line of a along dim; f(list) gives a list.
local function lines(a, dim, f, size)
  local shape = {}
  for d = 1, #a.shape do shape[d] = a.shape[d] end
  local n = shape[dim]
  if size then shape[dim] = size(n) end
  local cache = {}
  return build(shape, function(at)
    local key, p = {}, {}
    for d = 1, #shape do p[d], key[d] = at[d], d == dim and "" or at[d] end
    key = table.concat(key, ",")
    if not cache[key] then
      local line = {}
      for i = 0, n - 1 do
        p[dim] = i
        line[i + 1] = a.data[R.offset(a.shape, p)]
      end
      cache[key] = f(line)
    end
    return cache[key][at[dim] + 1]
  end)
end

local function drop(a, dim)
  local shape = {}
  for d = 1, #a.shape do
    if d ~= dim then shape[#shape + 1] = a.shape[d] end
  end
  return {shape = shape, data = a.data}
end

local function one() return 1 end
local function fold(f) -- a reduction of lines along dim 2
  return function(a) return drop(lines(a, 2, function(l)
    return {f(l)}
  end, one), 2) end
end
local function running(f) -- f of all so far, along dim 2
  return function(a)
    return lines(a, 2, function(l)
      local out = {}
      for i, v in ipairs(l) do out[i] = i == 1 and v or f(out[i - 1], v) end
      return out
    end)
  end
end
local function sum(l)
  local s = 0
  for _, v in ipairs(l) do s = s + v end
  return s
end
local function variance(l, less)
  local m, s = sum(l) / #l, 0
  for _, v in ipairs(l) do s = s + (v - m) ^ 2 end
  return s / (#l - less)
end
local function logsumexp(l)
  local m, s = -math.huge, 0
  for _, v in ipairs(l) do m = math.max(m, v) end
  for _, v in ipairs(l) do s = s + math.exp(v - m) end
  return m + math.log(s)
end
local function best(l, sign)
  local at = 1
  for i, v in ipairs(l) do if sign * v > sign * l[at] then at = i end end
  return at
end

local function product(a, b, n, k, m)
  return build({n, m}, function(at)
    local s = 0
    for i = 0, k - 1 do s = s + get(a, at[1], i) * get(b, i, at[2]) end
    return s
  end)
end

local function int(shape, data)
  return {shape = shape, data = data, int = true}
end
local function bool(shape, data)
  return {shape = shape, data = data, bool = true}
end

-- For composed.lua.
S.build, S.get, S.lines, S.int = build, get, lines, int

-- call: the op; on: lists of inputs (shapes, or arrays), all of equal ranks;
-- want: the reference; grad = false: not differentiable.
S.cases = {
  reshape = {call = function(a) return a:reshape(a:size(2), -1) end,
    on = {{{2, 6}}, {{3, 4}}, {{1, 1}}},
    want = function(a)
      return {shape = {a.shape[2], a.shape[1]}, data = a.data}
    end},
  reshape_like = {call = function(a, b) return a:reshape_like(b) end,
    on = {{{2, 6}, {3, 4}}, {{4, 1}, {2, 2}}, {{0, 2}, {3, 0}}},
    want = function(a, b) return {shape = b.shape, data = a.data} end,
    still = {[2] = true}},
  flatten = {call = function(a) return a:flatten(2) end,
    on = {{{2, 3, 4}}, {{1, 2, 1}}, {{0, 3, 2}}},
    want = function(a)
      local s = a.shape
      return {shape = {s[1], s[2] * s[3]}, data = a.data}
    end},
  permute = {call = function(a) return a:permute(3, 1, 2) end,
    on = {{{2, 3, 4}}, {{1, 5, 2}}, {{2, 0, 2}}},
    want = function(a)
      local s = a.shape
      return build({s[3], s[1], s[2]}, function(at)
        return get(a, at[2], at[3], at[1])
      end)
    end},
  transpose = {call = function(a) return a:transpose(1, 2) end,
    on = {{{2, 3}}, {{5, 1}}, {{0, 3}}},
    want = function(a)
      return build({a.shape[2], a.shape[1]}, function(at)
        return get(a, at[2], at[1])
      end)
    end},
  expand = {call = function(a) return a:expand(2, -1, 3) end,
    on = {{{4, 1}}, {{1, 1}}, {{0, 1}}},
    want = function(a)
      return build({2, a.shape[1], 3}, function(at) return get(a, at[2], 0) end)
    end},
  expand_like = {call = function(a, b) return a:expand_like(b) end,
    on = {{{1, 3}, {4, 3}}, {{2, 1}, {2, 5}}, {{1, 1}, {0, 2}}},
    want = function(a, b)
      return build(b.shape, function(at) return get(a, at[1], at[2]) end)
    end,
    still = {[2] = true}},
  squeeze = {call = function(a) return a:squeeze(2) end,
    on = {{{3, 1, 2}}, {{1, 1, 1}}, {{0, 1, 2}}},
    want = function(a) return drop(a, 2) end},
  unsqueeze = {call = function(a) return a:unsqueeze(2) end,
    on = {{{3, 2}}, {{1, 1}}, {{0, 2}}},
    want = function(a)
      return {shape = {a.shape[1], 1, a.shape[2]}, data = a.data}
    end},
  slice = {call = function(a) return a[{2, {1, -1, 2}}] end,
    on = {{{3, 5}}, {{2, 2}}, {{4, 1}}},
    want = function(a)
      return build({math.ceil(a.shape[2] / 2)}, function(at)
        return get(a, 1, 2 * at[1])
      end)
    end},
  flip = {call = function(a) return a:flip(2) end,
    on = {{{2, 5}}, {{1, 1}}, {{3, 0}}},
    want = function(a)
      return build(a.shape, function(at)
        return get(a, at[1], a.shape[2] - 1 - at[2])
      end)
    end},
  full = {call = function(a)
      return limn.full({a:size(1), 2}, 1.5, {dtype = a.dtype,
                                             device = a.device})
    end,
    on = {{{3}}, {{1}}, {{0}}}, grad = false,
    want = function(a)
      return build({a.shape[1], 2}, function() return 1.5 end)
    end},
  full_like = {call = function(a) return a:full_like(-2) end,
    on = {{{3, 2}}, {{1, 1}}, {{0, 2}}}, grad = false,
    want = function(a) return build(a.shape, function() return -2 end) end},
  arange = {call = function(a)
      return limn.arange(0, a:size(1), 0.5, {dtype = a.dtype,
                                             device = a.device})
    end,
    on = {{{3}}, {{1}}, {{0}}}, grad = false,
    want = function(a)
      return build({2 * a.shape[1] + 1}, function(at) return at[1] / 2 end)
    end},
  convert = {call = function(a) return a:to "float64":to(a.dtype) end,
    on = {{{3, 2}}, {{1, 1}}, {{0, 2}}}, want = function(a) return a end},
  expect = {call = function(a) return core.ops.expect(a, true, "never") end,
    on = {{{3, 2}}, {{1, 1}}, {{0, 2}}}, want = function(a) return a end},
  widen = {call = function(a) return core.ops.widen(a):to(a.dtype) end,
    on = {{{3, 2}}, {{1, 1}}, {{0, 2}}}, want = function(a) return a end},
  unwiden = {call = function(a)
      return core.ops.unwiden(core.ops.widen(a), {a, a})
    end,
    on = {{{3, 2}}, {{1, 1}}, {{0, 2}}}, want = function(a) return a end},
  fold_like = {call = function(a, b) return core.ops.fold_like(a, b) end,
    on = {{{4, 3}, {1, 3}}, {{2, 5}, {2, 1}}, {{2, 2}, {2, 2}}},
    want = function(a, b)
      local dims = {}
      for d = 1, 2 do
        if b.shape[d] == 1 and a.shape[d] ~= 1 then dims[#dims + 1] = d end
      end
      if #dims == 0 then return a end
      return R.reduce("sum", a, dims, true)
    end,
    still = {[2] = true}},
  detach = {call = function(a) return a:detach() end, grad = false,
    on = {{{3, 2}}, {{1, 1}}, {{0, 2}}}, want = function(a) return a end},
  mean = {call = function(a) return a:mean(2) end,
    on = {{{2, 5}}, {{3, 1}}, {{0, 4}}},
    want = fold(function(l) return sum(l) / #l end)},
  var = {call = function(a) return a:var(2) end,
    on = {{{2, 5}}, {{3, 2}}, {{0, 4}}},
    want = fold(function(l) return variance(l, 1) end)},
  std = {call = function(a) return a:std {dim = 2, unbiased = false} end,
    on = {{{2, 5}}, {{3, 2}}, {{0, 4}}},
    want = fold(function(l) return math.sqrt(variance(l, 0)) end)},
  logsumexp = {call = function(a) return a:logsumexp(2) end,
    on = {{{2, 5}}, {{3, 1}}, {{0, 4}}}, want = fold(logsumexp)},
  norm = {call = function(a) return a:norm {dim = 2} end,
    on = {{{2, 5}}, {{3, 1}}, {{0, 4}}},
    want = fold(function(l)
      local s = 0
      for _, v in ipairs(l) do s = s + v * v end
      return math.sqrt(s)
    end)},
  argmax = {call = function(a) return a:argmax(2) end, grad = false,
    on = {{{2, 5}}, {{3, 1}}, {{0, 4}}}, dtype = "int64",
    want = fold(function(l) return best(l, 1) end)},
  argmin = {call = function(a) return a:argmin(2) end, grad = false,
    on = {{{2, 5}}, {{3, 1}}, {{0, 4}}}, dtype = "int64",
    want = fold(function(l) return best(l, -1) end)},
  softmax = {call = function(a) return a:softmax(2) end,
    on = {{{2, 5}}, {{3, 1}}, {{0, 4}}},
    want = function(a)
      return lines(a, 2, function(l)
        local s, out = logsumexp(l), {}
        for i, v in ipairs(l) do out[i] = math.exp(v - s) end
        return out
      end)
    end},
  layer_norm = {
    call = function(a) return a:layer_norm {first = 2, eps = 0.1} end,
    on = {{{2, 5}}, {{3, 1}}, {{0, 4}}},
    want = function(a)
      return lines(a, 2, function(l)
        local m, v, out = sum(l) / #l, 0, {}
        for _, x in ipairs(l) do v = v + (x - m) ^ 2 / #l end
        for i, x in ipairs(l) do out[i] = (x - m) / math.sqrt(v + 0.1) end
        return out
      end)
    end},
  rms_norm = {call = function(a) return a:rms_norm {first = 2, eps = 0.1} end,
    on = {{{2, 5}}, {{3, 1}}, {{0, 4}}},
    want = function(a)
      return lines(a, 2, function(l)
        local v, out = 0, {}
        for _, x in ipairs(l) do v = v + x * x / #l end
        for i, x in ipairs(l) do out[i] = x / math.sqrt(v + 0.1) end
        return out
      end)
    end},
  log_softmax = {call = function(a) return a:log_softmax(1) end,
    on = {{{4, 3}}, {{1, 2}}, {{3, 0}}},
    want = function(a)
      return lines(a, 1, function(l)
        local s, out = logsumexp(l), {}
        for i, v in ipairs(l) do out[i] = v - s end
        return out
      end)
    end},
  cumsum = {call = function(a) return a:cumsum(2) end,
    on = {{{2, 5}}, {{3, 1}}, {{2, 0}}},
    want = function(a)
      return lines(a, 2, function(l)
        local s, out = 0, {}
        for i, v in ipairs(l) do
          s = s + v
          out[i] = s
        end
        return out
      end)
    end},
  cummax = {call = function(a) return core.ops.cummax(a, 2) end,
    on = {{{2, 5}}, {{3, 1}}, {{2, 0}}}, grad = false,
    want = running(math.max)},
  cummin = {call = function(a) return core.ops.cummin(a, -1) end,
    on = {{{2, 5}}, {{3, 1}}, {{2, 0}}}, grad = false,
    want = running(math.min)},
  logcumsumexp = {call = function(a) return a:logcumsumexp(2) end,
    on = {{{2, 5}}, {{3, 1}}, {{2, 0}}}, want = running(function(s, v)
      return math.log(math.exp(s) + math.exp(v))
    end)},
  cumprod = {call = function(a) return a:cumprod(1) end,
    on = {{{4, 2}}, {{1, 3}}, {{0, 2}}},
    want = function(a)
      return lines(a, 1, function(l)
        local s, out = 1, {}
        for i, v in ipairs(l) do
          s = s * v
          out[i] = s
        end
        return out
      end)
    end},
  matmul = {call = function(a, b) return a:matmul(b) end,
    on = {{{3, 4}, {4, 5}}, {{1, 1}, {1, 1}}, {{20, 33}, {33, 17}},
          {{0, 2}, {2, 3}}, {{2, 0}, {0, 3}}},
    want = function(a, b)
      return product(a, b, a.shape[1], a.shape[2], b.shape[2])
    end},
  outer = {call = function(a, b) return a:outer(b) end,
    on = {{{3}, {4}}, {{1}, {1}}, {{0}, {2}}},
    want = function(a, b)
      return build({a.shape[1], b.shape[1]}, function(at)
        return a.data[at[1] + 1] * b.data[at[2] + 1]
      end)
    end},
  cat = {call = function(a, b) return limn.cat({a, b, a}, 2) end,
    on = {{{2, 3}, {2, 1}}, {{1, 1}, {1, 4}}, {{2, 0}, {2, 2}}},
    want = function(a, b)
      local n, m = a.shape[2], b.shape[2]
      return build({a.shape[1], 2 * n + m}, function(at)
        local i, j = at[1], at[2]
        if j < n then return get(a, i, j) end
        if j < n + m then return get(b, i, j - n) end
        return get(a, i, j - n - m)
      end)
    end},
  stack = {call = function(a, b) return limn.stack({a, b}, 2) end,
    on = {{{3}, {3}}, {{1}, {1}}, {{0}, {0}}},
    want = function(a, b)
      return build({a.shape[1], 2}, function(at)
        return (at[2] == 0 and a or b).data[at[1] + 1]
      end)
    end},
  pad = {call = function(a) return a:pad({1, 2, 0, 1}, {value = 0.5}) end,
    on = {{{2, 3}}, {{1, 1}}, {{0, 2}}},
    want = function(a)
      local n, m = a.shape[1], a.shape[2]
      return build({n + 1, m + 3}, function(at)
        local j = at[2] - 1
        return (at[1] < n and j >= 0 and j < m) and get(a, at[1], j) or 0.5
      end)
    end},
  windows = {call = function(a) return a:windows({2, 2}, {1, 2}, {2, 1}) end,
    on = {{{1, 4, 5}}, {{2, 3, 2}}, {{0, 3, 3}}},
    want = function(a)
      local s = a.shape
      local h, w = s[2] - 2, math.floor((s[3] - 2) / 2) + 1
      return build({s[1], h, w, 2, 2}, function(at)
        return get(a, at[1], at[2] + 2 * at[4], 2 * at[3] + at[5])
      end)
    end},
  conv = {call = function(a, w)
      return limn.conv(a, w, {2, 1}, {1, 0}, {1, 2}, {groups = 2})
    end,
    on = {{{2, 4, 4, 5}, {2, 2, 2, 3}}, {{1, 2, 1, 5}, {4, 1, 3, 1}},
          {{0, 2, 2, 3}, {2, 1, 2, 2}}},
    want = function(a, w)
      local s, k = a.shape, w.shape
      local h = math.floor((s[3] + 2 - k[3]) / 2) + 1
      return build({s[1], k[1], h, s[4] - 2 * (k[4] - 1)}, function(at)
        local g, v = math.floor(at[2] / (k[1] / 2)) * k[2], 0
        for c = 0, k[2] - 1 do
          for i = 0, k[3] - 1 do
            for j = 0, k[4] - 1 do
              local y = 2 * at[3] + i - 1
              if y >= 0 and y < s[3] then
                v = v + get(w, at[2], c, i, j)
                  * get(a, at[1], g + c, y, at[4] + 2 * j)
              end
            end
          end
        end
        return v
      end)
    end},
  conv_transpose = {call = function(a, w)
      return limn.conv_transpose(a, w, {2}, {1}, {1}, {2}, {groups = 2})
    end,
    on = {{{2, 4, 3}, {4, 2, 3}}, {{1, 2, 1}, {2, 1, 2}},
          {{0, 2, 3}, {2, 1, 1}}},
    want = function(a, w)
      local s, k = a.shape, w.shape
      local n = 2 * (s[3] - 1) - 2 + 2 * (k[3] - 1) + 2
      return build({s[1], 2 * k[2], n}, function(at)
        local g, v = math.floor(at[2] / k[2]), 0
        for c = g * s[2] / 2, (g + 1) * s[2] / 2 - 1 do
          for i = 0, s[3] - 1 do
            for j = 0, k[3] - 1 do
              if 2 * i + 2 * j - 1 == at[3] then
                v = v + get(a, at[1], c, i) * get(w, c, at[2] % k[2], j)
              end
            end
          end
        end
        return v
      end)
    end},
  conv_weights = {call = function(a, g)
      local w = a:new_zeros(g:size(2), limn.floor(a:size(2) / 2), 2)
      return limn.conv_weights(a, g, w, {2}, {1}, {2}, {groups = 2})
    end,
    on = {{{2, 4, 5}, {2, 2, 3}}, {{1, 2, 1}, {1, 4, 1}},
          {{0, 2, 4}, {0, 2, 2}}},
    want = function(a, y)
      local s, p = a.shape, y.shape
      local k = {p[2], s[2] / 2, 2}
      return build(k, function(at)
        local c, v = math.floor(at[1] / (k[1] / 2)) * k[2] + at[2], 0
        for n = 0, s[1] - 1 do
          for i = 0, p[3] - 1 do
            local x = 2 * i + 2 * at[3] - 1
            if x >= 0 and x < s[3] then
              v = v + get(a, n, c, x) * get(y, n, at[1], i)
            end
          end
        end
        return v
      end)
    end},
  pool = {call = function(a) return a:pool(2, 3, 2, 1, "max") end,
    on = {{{2, 6, 2}}, {{1, 3, 1}}, {{0, 4, 2}}},
    want = function(a)
      local s = a.shape
      return build({s[1], math.floor((s[2] - 3) / 2) + 1, s[3]}, function(at)
        local v = -math.huge
        for j = 0, 2 do
          v = math.max(v, get(a, at[1], 2 * at[2] + j, at[3]))
        end
        return v
      end)
    end},
  max_pool2 = {call = function(a)
      return a:max_pool2(2, 3, 1, 2)
    end,
    on = {{{2, 5, 7}}, {{1, 3, 3}}, {{0, 4, 4}}},
    want = function(a)
      local s = a.shape
      return build({s[1], s[2] - 1, math.floor((s[3] - 3) / 2) + 1},
                   function(at)
        local v = -math.huge
        for i = 0, 1 do
          for j = 0, 2 do
            v = math.max(v, get(a, at[1], at[2] + i, 2 * at[3] + j))
          end
        end
        return v
      end)
    end},
  tile = {call = function(a) return a:tile(2, 3) end,
    on = {{{2, 2}}, {{1, 1}}, {{0, 2}}},
    want = function(a)
      local n, m = a.shape[1], a.shape[2]
      return build({2 * n, 3 * m}, function(at)
        return get(a, at[1] % n, at[2] % m)
      end)
    end},
  update = {call = function(a, b)
      local x = a * 1
      x[{2, {1, 2}}] = b
      return x
    end,
    on = {{{3, 4}, {2}}, {{2, 2}, {2}}, {{2, 3}, {1}}},
    want = function(a, b)
      return build(a.shape, function(at)
        if at[1] == 1 and at[2] < 2 then
          return b.data[b.shape[1] == 1 and 1 or at[2] + 1]
        end
        return get(a, at[1], at[2])
      end)
    end},
  index_select = {call = function(a, i) return a:index_select(2, i) end,
    on = {{{2, 5}, int({3}, {5, 1, 1})}, {{3, 1}, int({2}, {1, 1})},
          {{2, 3}, int({0}, {})}},
    want = function(a, i)
      return build({a.shape[1], i.shape[1]}, function(at)
        return get(a, at[1], i.data[at[2] + 1] - 1)
      end)
    end},
  gather = {call = function(a, i) return a:gather(2, i) end,
    on = {{{2, 5}, int({2, 3}, {5, 1, 1, 2, 2, 3})},
          {{3, 1}, int({3, 1}, {1, 1, 1})}, {{2, 3}, int({2, 0}, {})}},
    want = function(a, i)
      return build(i.shape, function(at)
        return get(a, at[1], get(i, at[1], at[2]) - 1)
      end)
    end},
  index_add = {call = function(a, i, v) return a:index_add(1, i, v) end,
    on = {{{4, 2}, int({3}, {4, 1, 4}), {3, 2}},
          {{1, 3}, int({2}, {1, 1}), {2, 3}}, {{2, 2}, int({0}, {}), {0, 2}}},
    want = function(a, i, v)
      return build(a.shape, function(at)
        local s = get(a, at[1], at[2])
        for k = 1, i.shape[1] do
          if i.data[k] == at[1] + 1 then s = s + get(v, k - 1, at[2]) end
        end
        return s
      end)
    end},
  index_copy = {call = function(a, i, v) return a:index_copy(1, i, v) end,
    on = {{{4, 2}, int({3}, {4, 1, 2}), {3, 2}},
          {{3, 2}, int({2}, {3, 1}), {2, 2}},
          {{2, 2}, int({0}, {}), {0, 2}}},
    want = function(a, i, v)
      return build(a.shape, function(at)
        local s = get(a, at[1], at[2])
        for k = 1, #i.data do
          if i.data[k] == at[1] + 1 then s = v.data[(k - 1) * 2 + at[2] + 1] end
        end
        return s
      end)
    end},
  scatter_add = {call = function(a, i, v) return a:scatter_add(1, i, v) end,
    on = {{{3, 2}, int({3, 2}, {1, 1, 1, 3, 1, 3}), {3, 2}},
          {{1, 2}, int({2, 2}, {1, 1, 1, 1}), {2, 2}},
          {{2, 2}, int({1, 2}, {2, 1}), {1, 2}}},
    want = function(a, i, v)
      return build(a.shape, function(at)
        local s = get(a, at[1], at[2])
        for k = 0, i.shape[1] - 1 do
          if get(i, k, at[2]) == at[1] + 1 then s = s + get(v, k, at[2]) end
        end
        return s
      end)
    end},
  scatter = {call = function(a, i, v) return core.ops.scatter(a, 1, i, v) end,
    on = {{{3, 2}, int({3, 2}, {1, 1, 1, 3, 1, 3}), {3, 2}},
          {{1, 2}, int({2, 2}, {1, 1, 1, 1}), {2, 2}},
          {{2, 2}, int({1, 2}, {2, 1}), {1, 2}},
          {{2, 2}, int({0, 2}, {}), {0, 2}}},
    want = function(a, i, v)
      return build(a.shape, function(at)
        local s = get(a, at[1], at[2])
        for k = 0, i.shape[1] - 1 do
          if get(i, k, at[2]) == at[1] + 1 then s = get(v, k, at[2]) end
        end
        return s
      end)
    end},
  argsort = {call = function(a) return a:argsort(2, true) end, grad = false,
    on = {{{2, 5}}, {{3, 1}}, {{0, 4}}, {{2, 0}}, {{3, 300}}},
    dtype = "int64",
    want = function(a)
      return lines(a, 2, function(l)
        local at = {}
        for i = 1, #l do at[i] = i end
        table.sort(at, function(i, j)
          if l[i] == l[j] then return i < j end
          return l[i] > l[j]
        end)
        return at
      end)
    end},
  one_hot = {call = function(i) return limn.one_hot(i, 4) end, grad = false,
    on = {{int({3}, {4, 1, 2})}, {int({1}, {2})}, {int({0}, {})}},
    dtype = "int64",
    want = function(i)
      return build({i.shape[1], 4}, function(at)
        return i.data[at[1] + 1] == at[2] + 1 and 1 or 0
      end)
    end},
  eye = {call = function(a)
      return limn.eye(a:size(1), 3, {dtype = a.dtype, device = a.device})
    end,
    on = {{{3}}, {{1}}, {{0}}}, grad = false,
    want = function(a)
      return build({a.shape[1], 3}, function(at)
        return at[1] == at[2] and 1 or 0
      end)
    end},
  tril = {call = function(a) return a:tril(-1) end,
    on = {{{3, 4}}, {{1, 1}}, {{0, 2}}},
    want = function(a)
      return build(a.shape, function(at)
        return at[2] - at[1] <= -1 and get(a, at[1], at[2]) or 0
      end)
    end},
  triu = {call = function(a) return a:triu(1) end,
    on = {{{3, 4}}, {{1, 1}}, {{0, 2}}},
    want = function(a)
      return build(a.shape, function(at)
        return at[2] - at[1] >= 1 and get(a, at[1], at[2]) or 0
      end)
    end},
  masked_fill = {call = function(a, m) return a:masked_fill(m, 9) end,
    on = {{{2, 2}, bool({2, 2}, {1, 0, 0, 1})}, {{1, 1}, bool({1, 1}, {1})},
          {{0, 2}, bool({0, 2}, {})}},
    want = function(a, m)
      return build(a.shape, function(at)
        return get(m, at[1], at[2]) ~= 0 and 9 or get(a, at[1], at[2])
      end)
    end},
}

-- Rows that a spec of their own checks.
S.elsewhere = {
  cholesky = "linalg_spec.lua", solve = "linalg_spec.lua",
  solve_triangular = "linalg_spec.lua", lu_parts = "linalg_spec.lua",
  eigh_parts = "linalg_spec.lua", svd_parts = "linalg_spec.lua",
  qr_parts = "linalg_spec.lua", pinv = "linalg_spec.lua",
  max_pool2_back = "conv_spec.lua",
  max_pool2_f32 = "conv_spec.lua", max_pool2_f32_back = "conv_spec.lua",
  rand = "random_spec.lua", randn = "random_spec.lua",
  randint = "random_spec.lua", rand_bits = "random_spec.lua",
  rand_like = "random_spec.lua", randn_like = "random_spec.lua",
  layer_norm_back = "norm_spec.lua", rms_norm_back = "norm_spec.lua",
  layer_norm_sums = "norm_spec.lua", rms_norm_sums = "norm_spec.lua",
  softmax_back = "norm_spec.lua", log_softmax_back = "norm_spec.lua",
  batch_norm = "norm_spec.lua", batch_norm_stats = "norm_spec.lua",
  batch_norm_sums = "norm_spec.lua",
}

return S
