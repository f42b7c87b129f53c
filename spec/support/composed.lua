-- Functions made of ops (lua/limn/order.lua, arrange.lua, einsum.lua): how to
-- call each, on what, and what comes out in plain doubles, as special.lua has
-- it for the rows of the op table.
local limn = require "limn"
local R = require "support.reference"
local S = require "support.special"

local build, get, lines, int = S.build, S.get, S.lines, S.int

-- Positions of a line's values in order.
local function order(l, descending)
  local at = {}
  for i = 1, #l do at[i] = i end
  table.sort(at, function(i, j)
    if l[i] == l[j] then return i < j end
    return (l[i] < l[j]) ~= (descending or false)
  end)
  return at
end

local function taken(l, at)
  local out = {}
  for i, k in ipairs(at) do out[i] = l[k] end
  return out
end

-- Sum over k < n of f(k).
local function sum(n, f)
  local s = 0
  for k = 0, n - 1 do s = s + f(k) end
  return s
end

-- x with `before` and `after` positions around dim 2, from position at(i, n).
local function around(a, before, after, at)
  local n = a.shape[2]
  return build({a.shape[1], n + before + after}, function(p)
    return get(a, p[1], at(p[2] - before, n))
  end)
end

return {
  {name = "sort", call = function(a)
      local y = a:sort(2)
      return y
    end,
    on = {{{2, 5}}, {{3, 1}}, {{0, 4}}, {{2, 0}}, {{2, 100}}},
    want = function(a)
      return lines(a, 2, function(l) return taken(l, order(l)) end)
    end},
  {name = "sort, descending, of the first dim", call = function(a)
      local y = a:sort {dim = 1, descending = true}
      return y
    end,
    on = {{{5, 3}}, {{1, 1}}, {{70, 2}}},
    want = function(a)
      return lines(a, 1, function(l) return taken(l, order(l, true)) end)
    end},
  {name = "topk", call = function(a)
      local y = a:topk(2, 2)
      return y
    end,
    on = {{{2, 5}}, {{3, 2}}, {{0, 4}}},
    want = function(a)
      return lines(a, 2, function(l) return taken(l, order(l, true)) end,
                   function() return 2 end)
    end},
  {name = "topk's positions of the smallest", call = function(a)
      local _, at = a:topk(2, {dim = 1, largest = false})
      return at
    end, grad = false, dtype = "int64",
    on = {{{6, 2}}, {{2, 3}}},
    want = function(a)
      return lines(a, 1, function(l) return order(l) end,
                   function() return 2 end)
    end},
  {name = "scatter of a number", call = function(a, i)
      local y = a:scatter(2, i, -1.5)
      return y
    end,
    on = {{{2, 5}, int({2, 2}, {5, 1, 2, 2})}, {{1, 1}, int({1, 1}, {1})}},
    want = function(a, i)
      return build(a.shape, function(at)
        for k = 0, i.shape[2] - 1 do
          if get(i, at[1], k) == at[2] + 1 then return -1.5 end
        end
        return get(a, at[1], at[2])
      end)
    end},
  {name = "index_fill", call = function(a, i)
      local y = a:index_fill(2, i, 3)
      return y
    end,
    on = {{{2, 4}, int({2}, {4, 1})}, {{3, 1}, int({1}, {1})}},
    want = function(a, i)
      return build(a.shape, function(at)
        for k = 1, i.shape[1] do
          if i.data[k] == at[2] + 1 then return 3 end
        end
        return get(a, at[1], at[2])
      end)
    end},
  {name = "roll", call = function(a)
      local y = a:roll({1, -2}, {1, 2})
      return y
    end,
    on = {{{2, 5}}, {{3, 1}}, {{1, 2}}, {{0, 3}}},
    want = function(a)
      local n, m = a.shape[1], a.shape[2]
      return build(a.shape, function(at)
        return get(a, (at[1] - 1) % n, (at[2] + 2) % m)
      end)
    end},
  {name = "roll of all as one row", call = function(a)
      local y = a:roll(-1)
      return y
    end,
    on = {{{2, 5}}, {{1, 1}}, {{0, 3}}},
    want = function(a)
      local n = R.numel(a.shape)
      local out = {shape = a.shape, data = {}}
      for k = 1, n do out.data[k] = a.data[k % n + 1] end
      return out
    end},
  {name = "diagonal", call = function(a)
      local y = a:diagonal()
      return y
    end,
    on = {{{4, 5}}, {{5, 2}}, {{1, 1}}, {{0, 3}}},
    want = function(a)
      return build({math.min(a.shape[1], a.shape[2])}, function(at)
        return get(a, at[1], at[1])
      end)
    end},
  {name = "diagonal above, of chosen dims", call = function(a)
      local y = a:diagonal {offset = 2, dim1 = 3, dim2 = 1}
      return y
    end,
    on = {{{4, 2, 3}}, {{1, 2, 3}}, {{5, 1, 1}}},
    want = function(a)
      local rows, columns = a.shape[3], math.max(a.shape[1] - 2, 0)
      return build({a.shape[2], math.min(rows, columns)}, function(at)
        return get(a, at[2] + 2, at[1], at[2])
      end)
    end},
  {name = "diagonal below", call = function(a)
      local y = a:diagonal(-1)
      return y
    end,
    on = {{{4, 2}}, {{2, 2}}, {{1, 3}}},
    want = function(a)
      local n = math.min(math.max(a.shape[1] - 1, 0), a.shape[2])
      return build({n}, function(at) return get(a, at[1] + 1, at[1]) end)
    end},
  {name = "diag of a vector", call = function(a)
      local y = limn.diag(a, 1)
      return y
    end,
    on = {{{3}}, {{1}}, {{0}}},
    want = function(a)
      local n = a.shape[1] + 1
      return build({n, n}, function(at)
        return at[2] == at[1] + 1 and a.data[at[1] + 1] or 0
      end)
    end},
  {name = "pad by reflection", call = function(a)
      local y = a:pad({2, 1}, {mode = "reflect"})
      return y
    end,
    on = {{{2, 4}}, {{1, 3}}, {{0, 5}}},
    want = function(a)
      return around(a, 2, 1, function(i, n)
        i = math.abs(i)
        return i < n and i or 2 * (n - 1) - i
      end)
    end},
  {name = "pad by replication", call = function(a)
      local y = a:pad {2, 1, mode = "replicate"}
      return y
    end,
    on = {{{2, 4}}, {{1, 1}}, {{0, 5}}},
    want = function(a)
      return around(a, 2, 1, function(i, n)
        return math.min(math.max(i, 0), n - 1)
      end)
    end},
  {name = "pad in a circle", call = function(a)
      local y = a:pad(2, 1, {mode = "circular"})
      return y
    end,
    on = {{{2, 4}}, {{1, 2}}, {{0, 5}}},
    want = function(a)
      return around(a, 2, 1, function(i, n) return i % n end)
    end},
  {name = "einsum, a batch of products with a transposed result",
    call = function(a, b)
      local y = limn.einsum("nij,njk->kni", a, b)
      return y
    end,
    on = {{{2, 3, 2}, {2, 2, 3}}, {{1, 1, 4}, {1, 4, 2}},
          {{3, 0, 2}, {3, 2, 1}}, {{2, 2, 0}, {2, 0, 2}}},
    want = function(a, b)
      local s = a.shape
      return build({b.shape[3], s[1], s[2]}, function(at)
        return sum(s[3], function(j)
          return get(a, at[2], at[3], j) * get(b, at[2], j, at[1])
        end)
      end)
    end},
  {name = "einsum over two dims, three operands", call = function(a, b, c)
      local y = limn.einsum("ijk,jkl,l->i", a, b, c)
      return y
    end,
    on = {{{2, 3, 2}, {3, 2, 2}, {2}}, {{1, 1, 4}, {1, 4, 2}, {2}}},
    want = function(a, b, c)
      local s = a.shape
      return build({s[1]}, function(at)
        return sum(s[2], function(j)
          return sum(s[3], function(k)
            return sum(b.shape[3], function(l)
              return get(a, at[1], j, k) * get(b, j, k, l) * c.data[l + 1]
            end)
          end)
        end)
      end)
    end},
  {name = "einsum of outer products, several letters a side",
    call = function(a, b)
      local y = limn.einsum("aij,akl->akijl", a, b)
      return y
    end,
    on = {{{2, 2, 1}, {2, 3, 2}}, {{1, 1, 2}, {1, 2, 1}}},
    want = function(a, b)
      local s, t = a.shape, b.shape
      return build({s[1], t[2], s[2], s[3], t[3]}, function(at)
        return get(a, at[1], at[3], at[4]) * get(b, at[1], at[2], at[5])
      end)
    end},
  {name = "einsum with ..., a diagonal and no arrow", call = function(a, b)
      local y = limn.einsum("ii...,j...", a, b)
      return y
    end,
    on = {{{2, 2, 3}, {2, 3}}, {{1, 1, 2}, {3, 2}}},
    want = function(a, b)
      return build({a.shape[3], b.shape[1]}, function(at)
        return sum(a.shape[1], function(i)
          return get(a, i, i, at[1]) * get(b, at[2], at[1])
        end)
      end)
    end},
  {name = "einsum of one operand", call = function(a)
      local y = limn.einsum("ijk->ki", a)
      return y
    end,
    on = {{{2, 3, 2}}, {{1, 4, 1}}, {{2, 0, 2}}},
    want = function(a)
      return build({a.shape[3], a.shape[1]}, function(at)
        return sum(a.shape[2], function(j) return get(a, at[2], j, at[1]) end)
      end)
    end},
  {name = "tensordot", call = function(a, b)
      local y = limn.tensordot(a, b, {{3, 1}, {1, 2}})
      return y
    end,
    on = {{{2, 3, 2}, {2, 2, 2}}, {{1, 2, 3}, {3, 1, 1}}},
    want = function(a, b)
      local s, t = a.shape, b.shape
      return build({s[2], t[3]}, function(at)
        return sum(s[3], function(i)
          return sum(s[1], function(j)
            return get(a, j, at[1], i) * get(b, i, j, at[2])
          end)
        end)
      end)
    end},
  {name = "isclose", call = function(a, b)
      local y = limn.isclose(a, b, {rtol = 0.1, atol = 0})
      return y
    end, grad = false, dtype = "bool",
    on = {{{2, 3}, {2, 3}}, {{1, 1}, {2, 2}}},
    want = function(a, b)
      return R.map(function(x, y)
        return math.abs(x - y) <= 0.1 * math.abs(y) and 1 or 0
      end, {a, b})
    end},
}
