--- Linear algebra by PyTorch's names: matrices are the last two dims, dims
-- before them are a batch. Float32 and float64, on the CPU.
local core = require "limn.core"
local D = require "limn.dims"

local ops, methods, fail = core.ops, core.raw "methods", core.fail
local linalg = {}

local function matrix(x, who)
  D.tensor(x, who)
  if x:dim() < 2 then
    fail(("%s: a matrix is wanted, not %d dim%s"):format(who, x:dim(),
      x:dim() == 1 and "" or "s"))
  end
end

-- The part of a row of parts that is [rows, columns], and where it ends.
local function take(parts, x, first, rows, columns)
  local rank = x:dim()
  local last = first + rows * columns
  local size = {}
  for d = 1, rank - 2 do size[d] = x:size(d) end
  size[rank - 1], size[rank] = rows, columns
  local y = D.part(parts, rank, first + 1, last):reshape(size)
  return y, last
end

local function sizes(x)
  local m, n = x:size(-2), x:size(-1)
  return m, n, D.limn.min(m, n)
end

--- linalg.cholesky(x [, {upper = false}]): the lower triangular L of x = L L'
-- for a symmetric positive definite x, of which the lower triangle is read;
-- upper: L'. Another x is an error.
function linalg.cholesky(x, ...)
  local a = D.args("cholesky", {"upper"}, ...)
  matrix(x, "cholesky")
  local y = ops.cholesky(x, a.upper or false)
  return y
end

-- Whether b, of one dim less than a, has the sizes of a but the last: a guard
-- in a trace, because the rank of the result depends on it.
local function vectors(a, b)
  if b:dim() ~= a:dim() - 1 then return false end
  for d = 1, b:dim() do
    if a:size(d) ~= b:size(d) then return false end
  end
  return true
end

-- b as matrices, and whether it was a vector, or a batch of them.
local function columns(a, b, who)
  matrix(a, who)
  D.tensor(b, who)
  local vector = b:dim() == 1 or b:dim() > 1 and vectors(a, b)
  if vector then b = b:unsqueeze(-1) end
  return b, vector
end

--- linalg.solve(a, b): x of a x = b for a square a; b holds columns, or is a
-- vector, or a batch of vectors if its sizes are all of a's but the last. A
-- singular a is an error.
function linalg.solve(a, b)
  local right, vector = columns(a, b, "solve")
  local y = ops.solve(a, right)
  if vector then y = y:squeeze(-1) end
  return y
end

--- linalg.solve_triangular(a, b, {upper}): x of a x = b, where only one
-- triangle of a is read.
function linalg.solve_triangular(a, b, options)
  core.options(options, {"upper"}, "solve_triangular")
  matrix(a, "solve_triangular")
  matrix(b, "solve_triangular")
  if not options or options.upper == nil then
    fail("solve_triangular: upper is missing",
         "linalg.solve_triangular(a, b, {upper = false})")
  end
  local y = ops.solve_triangular(a, b, options.upper)
  return y
end

--- linalg.inv(x), x:inverse(): the inverse; linalg.solve(x, b) is more exact
-- and cheaper than inv(x) times b. A singular x is an error.
function linalg.inv(x)
  matrix(x, "inv")
  local one = core.eye(x:size(-1), {dtype = x.dtype, device = x.device})
  local y = ops.solve(x, one)
  return y
end

local function determinant(x, who, k)
  matrix(x, who)
  local y = D.part(ops.lu_parts(x), x:dim(), k, k):squeeze {-2, -1}
  return y
end

--- linalg.det(x), x:det(): the determinant.
function linalg.det(x)
  local y = determinant(x, "det", 3)
  return y
end

--- linalg.slogdet(x), x:slogdet() -> sign, log: the determinant's sign and the
-- logarithm of its size, which do not overflow.
function linalg.slogdet(x)
  local sign = determinant(x, "slogdet", 1)
  local log = determinant(x, "slogdet", 2)
  return sign, log
end

--- x:logdet(): the logarithm of the determinant; NaN where that is below 0.
function methods.logdet(x)
  local sign, log = linalg.slogdet(x)
  local y = ops.where(ops.lt(sign, 0), 0 / 0, log)
  return y
end

--- linalg.eigh(x) -> values, vectors: of a symmetric x, of which the lower
-- triangle is read: the eigenvalues in rising order, the vectors as columns.
function linalg.eigh(x)
  matrix(x, "eigh")
  local parts, rank = ops.eigh_parts(x), x:dim()
  local w = D.part(parts, rank - 1, 1, 1):squeeze(-2)
  local v = D.part(parts, rank - 1, 2, -1):transpose(-2, -1)
  return w, v
end

--- linalg.eigvalsh(x): the eigenvalues of a symmetric x in rising order.
function linalg.eigvalsh(x)
  matrix(x, "eigvalsh")
  local y = D.part(ops.eigh_parts(x), x:dim() - 1, 1, 1):squeeze(-2)
  return y
end

--- linalg.svd(x) -> U, S, V': x = U diag(S) V' with min(m, n) columns in U,
-- rows in V' and values in S, in falling order (PyTorch's full_matrices =
-- false).
function linalg.svd(x)
  matrix(x, "svd")
  local m, n, k = sizes(x)
  local parts = ops.svd_parts(x)
  local u, s, v, at
  u, at = take(parts, x, 0, m, k)
  s, at = take(parts, x, at, 1, k)
  v = take(parts, x, at, k, n)
  return u, s:squeeze(-2), v
end

--- linalg.svdvals(x): the singular values in falling order.
function linalg.svdvals(x)
  local _, s = linalg.svd(x)
  return s
end

--- linalg.qr(x) -> Q, R: x = Q R with orthogonal columns in Q and an upper
-- triangular R, of min(m, n) columns and rows.
function linalg.qr(x)
  matrix(x, "qr")
  local m, n, k = sizes(x)
  local parts = ops.qr_parts(x)
  local q, at = take(parts, x, 0, m, k)
  local r = take(parts, x, at, k, n)
  return q, r
end

--- linalg.pinv(x [, {rtol}]), x:pinverse(): the pseudo-inverse by Moore and
-- Penrose: singular values up to rtol (max(m, n) times the dtype's rounding)
-- times the largest count as 0.
function linalg.pinv(x, options)
  core.options(options, {"rtol"}, "pinv")
  matrix(x, "pinv")
  local y = ops.pinv(x, options and options.rtol)
  return y
end

--- linalg.lstsq(a, b): x for which the squares of a x - b have the least sum,
-- and x itself the least length; b holds columns, or is a vector.
function linalg.lstsq(a, b)
  local right, vector = columns(a, b, "lstsq")
  local y = ops.matmul(linalg.pinv(a), right)
  if vector then y = y:squeeze(-1) end
  return y
end

--- linalg.trace(x): the sum of the diagonal.
function linalg.trace(x)
  matrix(x, "trace")
  local y = x:diagonal(0, -2, -1):sum(-1)
  return y
end

-- -- Norms ----------------------------------------------------------------

-- The largest or smallest sum of absolute values along `sum`, over `over`.
local function most(x, sum, over, largest)
  local y = ops.sum(ops.abs(x), sum, true)
  y = (largest and ops.max or ops.min)(y, over, true)
  return y
end

-- Of the singular values.
local function of_values(x, op)
  local y = op(linalg.svdvals(x), -1, true):unsqueeze(-1)
  return y
end

-- Norms of matrices whose dims are the last two; both dims stay.
local matrix_norms = {
  fro = function(x) return ops.norm(x, 2, {-2, -1}, true) end,
  [1] = function(x) return most(x, -2, -1, true) end,
  [-1] = function(x) return most(x, -2, -1, false) end,
  [math.huge] = function(x) return most(x, -1, -2, true) end,
  [-math.huge] = function(x) return most(x, -1, -2, false) end,
  [2] = function(x) return of_values(x, ops.max) end,
  [-2] = function(x) return of_values(x, ops.min) end,
  nuc = function(x) return of_values(x, ops.sum) end,
}

local function matrix_norm(x, ord, dims, keep)
  local d1, d2 = D.whole(x, dims[1], "norm"), D.whole(x, dims[2], "norm")
  local f = matrix_norms[ord or "fro"]
  if not f then
    fail(("norm: matrices have no norm '%s': 'fro', 'nuc', 1, -1, 2, -2, "
      .. "math.huge, -math.huge"):format(tostring(ord)))
  elseif d1 == d2 then
    fail "norm: the two dims are the same"
  end
  local y = f(methods.movedim(x, {d1, d2}, {-2, -1}))
  if keep then
    y = methods.movedim(y, {-2, -1}, {d1, d2})
  else
    y = ops.squeeze(y, {-2, -1})
  end
  return y
end

--- linalg.norm(x [, ord [, {dim, keepdim = false}]]): the norm of the matrices
-- in two dims {a, b} ('fro', 'nuc', 1, -1, 2, -2, math.huge, -math.huge), or of
-- the vectors in one (any number; 0 counts what is not 0). Without dim x is a
-- matrix or a vector; without ord all elements are one vector.
function linalg.norm(x, ...)
  local a = D.args("norm", {"ord", "dim", "keepdim"}, ...)
  local ord, dim, keep = a.ord, a.dim, a.keepdim or false
  D.tensor(x, "norm")
  if dim == nil and ord ~= nil then
    if x:dim() < 1 or x:dim() > 2 then
      fail(("norm: of %d dims; which is the vector's or are the matrix's is "
        .. "to be said"):format(x:dim()), "linalg.norm(x, 2, {dim = -1})")
    end
    dim = x:dim() == 1 and 1 or {1, 2}
  end
  if type(dim) == "table" and #dim == 1 then dim = dim[1] end
  local y
  if type(dim) == "table" and #dim == 2 then
    y = matrix_norm(x, ord, dim, keep)
  elseif type(dim) == "table" then
    fail(("norm: one dim or two are wanted, not %d"):format(#dim))
  elseif ord ~= nil and type(ord) ~= "number" then
    fail(("norm: the norm of a vector is a number, not '%s'"):format(
      tostring(ord)))
  else
    y = ops.norm(x, ord or 2, dim, keep)
  end
  return y
end

methods.det, methods.slogdet = linalg.det, linalg.slogdet
methods.inverse, methods.pinverse = linalg.inv, linalg.pinv
methods.cholesky = linalg.cholesky

return setmetatable(linalg, {__index = function(t, key)
  if type(key) ~= "string" then return nil end
  fail("linalg has no '" .. key .. "'" .. core.near(key, t))
end})
