-- Linear algebra: factorisations put together again, determinants, batches,
-- gradients against finite differences, and matrices that have no result. The
-- parts of lu_parts, eigh_parts, svd_parts and qr_parts are looked at together.
local U = require "support.util"
local limn = U.limn
local la = limn.linalg

local function random(shape, dtype, seed)
  local r, data = U.random(seed or 1), {}
  for i = 1, U.numel(shape) do data[i] = 2 * r() - 1 end
  return U.tensor(data, shape, dtype or "float64")
end

local function t(x) return x:transpose(-1, -2) end

-- Symmetric and positive definite.
local function definite(shape, dtype, seed)
  local x = random(shape, dtype, seed)
  local n = shape[#shape]
  return x:matmul(t(x)) + limn.eye(n, {dtype = dtype or "float64"}) * n
end

local tolerance = {float64 = 1e-12, float32 = 1e-5}

-- f on CPU tensors, eager and from a graph that was traced on another shape.
local function both(f, example, x, check)
  check(f(unpack(x)))
  check(limn.trace(f, unpack(example))(unpack(x)))
end

-- Analytic gradients of f, weighted, against central differences in float64.
local function check_gradient(f, x, what)
  local function loss(v)
    local out, sum = {f(v)}, 0
    for i, y in ipairs(out) do
      local w = random(y.shape, "float64", 40 + i)
      sum = sum + (y * w):sum()
    end
    return sum
  end
  local got = U.flat(limn.grad(loss)(x))
  local flat, h = U.flat(x), 1e-6
  local want = {}
  for i = 1, #flat do
    local keep = flat[i]
    flat[i] = keep + h
    local up = loss(U.tensor(flat, x.shape, "float64")):item()
    flat[i] = keep - h
    local down = loss(U.tensor(flat, x.shape, "float64")):item()
    flat[i] = keep
    want[i] = (up - down) / (2 * h)
  end
  U.close(got, want, 1e-6, "max", what)
end

describe("Linear algebra", function()
  for dtype, tol in pairs(tolerance) do
    it("of " .. dtype .. ": factors multiply to the matrix", function()
      local function close(y, x) U.close(y, x, tol * 10, "max") end
      for _, shape in ipairs {{1, 1}, {3, 3}, {17, 17}, {2, 3, 4, 4}} do
        local a = definite(shape, dtype)
        both(function(x) return (la.cholesky(x)) end, {definite({2, 2}, dtype)
          :expand(#shape == 4 and {1, 1, 2, 2} or {2, 2})}, {a}, function(l)
          close(l:matmul(t(l)), a)
          close(l:tril(), l)
          assert.are.equal(dtype, l.dtype)
        end)
        local up = la.cholesky(a, {upper = true})
        close(t(up):matmul(up), a)
        U.equal(a:cholesky(true), U.flat(up))
        local w, v = la.eigh(a)
        close((v * w:unsqueeze(-2)):matmul(t(v)), a)
        U.close(la.eigvalsh(a), w, tol)
        close(v:matmul(t(v)), limn.eye(shape[#shape]):expand(shape))
        U.equal(w, U.flat((w:sort(-1))))
        close(la.inv(a):matmul(a), limn.eye(shape[#shape]):expand(shape))
      end
      for _, shape in ipairs {{5, 3}, {3, 5}, {4, 4}, {1, 6}, {2, 5, 3},
                              {2, 3, 5}} do
        local a = random(shape, dtype)
        local u, s, v = la.svd(a)
        close((u * s:unsqueeze(-2)):matmul(v), a)
        U.close(la.svdvals(a), s, tol)
        U.equal(s, U.flat((s:sort {dim = -1, descending = true})))
        local q, r = la.qr(a)
        close(q:matmul(r), a)
        close(r:triu(), r)
        close(t(q):matmul(q), limn.eye(q:size(-1)):expand(t(q):matmul(q).shape))
        local p = la.pinv(a)
        close(a:matmul(p):matmul(a), a)
        close(p:matmul(a):matmul(p), p)
      end
    end)
  end

  it("runs traced with every size, batched too", function()
    local function f(x, b)
      local u, s, v = la.svd(x)
      local q, r = la.qr(x)
      local m = t(x):matmul(x) + limn.eye(x:size(-1), {dtype = x.dtype})
      local w, e = la.eigh(m)
      return (u * s:unsqueeze(-2)):matmul(v) - x, q:matmul(r) - x,
        (e * w:unsqueeze(-2)):matmul(t(e)) - m,
        m:matmul(la.solve(m, t(b))) - t(b),
        la.det(m) - w:prod(-1), la.pinv(x):matmul(x):matmul(la.pinv(x))
          - la.pinv(x)
    end
    local g = limn.trace(f, random {2, 4, 3}, random {2, 4, 3})
    for _, shape in ipairs {{2, 4, 3}, {5, 3, 6}, {1, 1, 1}} do
      local x, b = random(shape), random(shape, "float64", 5)
      for i, d in ipairs {g(x, b)} do
        U.close(d:abs():max(), {0}, 1e-10, 1, "result " .. i)
      end
    end
  end)

  it("solves for columns and vectors, of one matrix or of a batch", function()
    local a = limn.tensor({{3, 1}, {1, 2}}, "float64")
    U.close(la.solve(a, limn.tensor({9, 8}, "float64")), {2, 3}, 1e-14)
    U.close(la.solve(a, limn.tensor({{9, 3}, {8, 1}}, "float64")),
            {2, 1, 3, 0}, 1e-14)
    local many = random {4, 1, 3, 3} + limn.eye(3, {dtype = "float64"}) * 3
    local b = random({5, 3, 2}, "float64", 3)
    local x = la.solve(many, b)
    U.shape(x, {4, 5, 3, 2})
    U.close(many:matmul(x), b:expand(4, 5, 3, 2), 1e-12)
    local low = random({3, 3}):tril() + limn.eye(3, {dtype = "float64"}) * 2
    local y = la.solve_triangular(low, b, {upper = false})
    U.close(low:matmul(y), b, 1e-12)
    U.close(t(low):matmul(la.solve_triangular(t(low), b, {upper = true})), b,
            1e-12)
    -- The other triangle is not read.
    U.close(la.solve_triangular(low + random({3, 3}):triu(1), b,
                                {upper = false}), y, 1e-14)
    -- Strided operands, and pivots that exchange rows.
    local p = limn.tensor({{0, 1, 0}, {0, 0, 2}, {4, 0, 0}}, "float64")
    U.close(la.inv(p), {0, 0, 0.25, 1, 0, 0, 0, 0.5, 0}, 1e-15)
    U.close(la.inv(t(p)), t(la.inv(p)), 1e-15)
  end)

  it("takes determinants, and keeps those that overflow", function()
    local a = limn.tensor({{2, 1}, {5, 3}}, "float64")
    U.close(a:det(), {1}, 1e-14)
    U.close(limn.tensor({{0, 1}, {1, 0}}, "float64"):det(), {-1}, 1e-14)
    U.close(limn.zeros(2, 2):det(), {0})
    local sign, log = limn.slogdet(limn.eye(400, {dtype = "float32"}) * -1e3)
    U.equal(sign, {1})
    U.close(log, {400 * math.log(1e3)}, 1e-6)
    U.close(limn.logdet(a), {0}, 1e-13, 1)
    U.close(limn.logdet(limn.tensor {{0, 1}, {1, 0}}), {0 / 0})
    U.close(random({3, 2, 2}):det(), U.flat((function()
      local x = random({3, 2, 2})
      return x[{{}, 1, 1}] * x[{{}, 2, 2}] - x[{{}, 1, 2}] * x[{{}, 2, 1}]
    end)()), 1e-14)
    U.equal(limn.zeros(0, 0):det(), {1})
    U.shape(limn.zeros(0, 3, 3):det(), {0})
  end)

  it("has least squares of high, wide and deficient matrices", function()
    local a = limn.tensor({{1, 1}, {1, 2}, {1, 3}}, "float64")
    U.close(la.lstsq(a, limn.tensor({1, 2, 2}, "float64")), {2 / 3, 0.5}, 1e-13)
    local flat = limn.tensor({{1, 1}, {1, 1}}, "float64")
    U.close(la.lstsq(flat, limn.tensor({2, 2}, "float64")), {1, 1}, 1e-13)
    U.close(la.pinv(flat), {0.25, 0.25, 0.25, 0.25}, 1e-13)
    U.close(la.pinv(limn.tensor({{1, 0}, {0, 1e-3}}, "float64"), {rtol = 0.1}),
            {1, 0, 0, 0}, 1e-13)
    U.close(limn.zeros(2, 3):pinverse(), limn.zeros(3, 2))
  end)

  it("takes ints as float32, no rows, and refuses halves", function()
    assert.are.equal("float32", la.inv(limn.tensor({{2, 0}, {0, 4}}, "int64"))
      .dtype)
    U.shape(la.cholesky(limn.zeros(0, 3, 3)), {0, 3, 3})
    U.shape((la.svd(limn.zeros(0, 4, 3))), {0, 4, 3})
    U.message(function() la.inv(limn.eye(2):to "float16") end, "float16",
              "float32 or float64", "hint:")
    U.message(function() la.cholesky(limn.ones(2, 3)) end, "cholesky",
              "square, not 2 by 3")
    U.message(function() la.solve(limn.eye(2), limn.ones(3, 1)) end, "solve",
              "3 rows")
    U.message(function() la.det(limn.ones(3)) end, "det", "a matrix")
  end)
end)

describe("The gradient of", function()
  local a = definite {3, 3}
  local x = random {4, 3}
  local batch = definite({2, 3, 3}, "float64", 7)
  local function lower(v) return (v + t(v)) / 2 end
  local cases = {
    cholesky = {function(v) return (la.cholesky(lower(v))) end, batch},
    ["cholesky, upper"] = {function(v)
      return (la.cholesky(lower(v), {upper = true}))
    end, a},
    inv = {function(v) return (la.inv(v)) end, batch},
    solve = {function(v) return (la.solve(v, x:t())) end, a},
    ["solve, right side"] = {function(v) return (la.solve(a, v)) end,
                             random {3, 2}},
    ["solve, broadcast"] = {function(v)
      local m = batch:unsqueeze(2) -- [2, 1, 3, 3]
      return la.solve(m, v), la.solve(v:matmul(v:t()) + a, x:t()[{{}, 1}])
    end, random {3, 2}},
    ["solve_triangular"] = {function(v)
      return la.solve_triangular(v, x:t(), {upper = true}),
        la.solve_triangular(v, x:t(), {upper = false})
    end, a},
    det = {function(v) return (la.det(v)) end, batch},
    slogdet = {function(v) return (select(2, la.slogdet(v))) end, batch},
    eigh = {function(v)
      local w, e = la.eigh(lower(v))
      return w, e:square() -- a vector's sign is not its own
    end, batch},
    eigvalsh = {function(v) return (la.eigvalsh(lower(v))) end, a},
    ["svd, high"] = {function(v)
      local u, s, w = la.svd(v)
      return u:square(), s, w:square(), (u * s):matmul(w)
    end, x},
    ["svd, wide"] = {function(v)
      local u, s, w = la.svd(v)
      return u:square(), s, w:square()
    end, random {2, 3, 5}},
    qr = {function(v) return la.qr(v) end, random {2, 4, 3}},
    pinv = {function(v) return (la.pinv(v)) end, x},
    ["pinv, wide"] = {function(v) return (la.pinv(v)) end, random {2, 3, 5}},
    lstsq = {function(v) return (la.lstsq(v, x:t()[1]:detach())) end,
             random({3, 3}) + limn.eye(3, {dtype = "float64"})},
  }
  cases.lstsq[1] = function(v)
    return (la.lstsq(v, random({5}, "float64", 9)))
  end
  cases.lstsq[2] = random {5, 3}
  for name, case in pairs(cases) do
    it(name .. " is that of finite differences", function()
      check_gradient(case[1], case[2], name)
    end)
  end

  it("a second derivative is right too", function()
    local function f(v)
      local inner = limn.grad(function(z) return la.det(z):sum() end)
      return (inner(v) * limn.arange(9):reshape(3, 3)):sum()
    end
    local function direct(v)
      local s = la.det(v) * la.inv(v):t() * limn.arange(9):reshape(3, 3)
      return s:sum()
    end
    U.close(limn.grad(f)(a), limn.grad(direct)(a), 1e-9, "max")
  end)

  it("pinv of equal singular values is finite, of eigenvectors is not",
     function()
    local one = limn.eye(2, {dtype = "float64"})
    U.close(limn.grad(function(v) return la.pinv(v):sum() end)(one),
            {-1, -1, -1, -1}, 1e-12)
    U.close(limn.grad(function(v) return la.eigvalsh(v):sum() end)(one),
            {1, 0, 0, 1}, 1e-12)
    local g = limn.grad(function(v)
      local _, e = la.eigh(v)
      return e[1]:sum()
    end)(one)
    assert.is_false(g:isfinite():all():item())
  end)

  it("qr of a wide matrix says that there is none", function()
    U.message(function()
      limn.grad(function(v) return (la.qr(v)):sum() end)(limn.randn(2, 4))
    end, "qr", "wider than high")
  end)
end)

describe("A matrix without a result", function()
  local function fails(f, good, bad, ...)
    local parts = {...}
    U.message(function() f(bad) end, "linalg_spec.lua:%d+", unpack(parts))
    local g = limn.trace(f, good)
    U.message(function() g(bad) end, "linalg_spec.lua:%d+", unpack(parts))
  end

  it("is an error at the line, which says why and in a batch which", function()
    local one = limn.eye(2)
    local singular = limn.tensor {{1, 2}, {2, 4}}
    local many = limn.stack {one, one, singular, one}
    local fine = limn.stack {one, one}
    local function inv(v)
      local y = la.inv(v)
      return y
    end
    local function chol(v)
      local y = la.cholesky(v)
      return y
    end
    fails(inv, one, singular, "inv", "the matrix is singular", "pivot 2")
    fails(inv, fine, many, "inv", "matrix 3 of 4 is singular", "hint:")
    fails(chol, one, -one, "cholesky", "not positive definite", "pivot 1")
    fails(chol, fine, many * limn.tensor {1, -1, 1, 1}:reshape(4, 1, 1),
          "matrix 2 of 4", "not positive definite")
    fails(chol, one, one * (0 / 0), "not positive definite")
    fails(function(v)
      local y = la.solve_triangular(v, limn.ones(2, 1), {upper = true})
      return y
    end, one, limn.tensor {{1, 2}, {0, 0}}, "singular")
    fails(function(v)
      local y = la.svdvals(v)
      return y
    end, one, one / 0, "holds NaN or infinity")
    fails(function(v)
      local y = la.eigvalsh(v)
      return y
    end, one, one * (0 / 0), "holds NaN or infinity")
  end)

  it("and a device without LAPACK are refused in words", function()
    local other = U.other()
    if not other then return end
    local x = limn.eye(2):to(other)
    for name, f in pairs {inv = la.inv, cholesky = la.cholesky, svd = la.svd,
                          det = la.det, eigh = la.eigh, qr = la.qr} do
      U.message(function() f(x) end, name, "runs on the CPU, not on " .. other,
                'x:to "cpu"')
    end
    local g = limn.trace(function(v)
      local y = la.inv(v)
      return y
    end, limn.eye(2))
    U.message(function() g(x) end, "linalg_spec.lua:%d+", "inv", other)
    U.close(g(limn.eye(2)), limn.eye(2))
  end)
end)
