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

-- b as matrices, and whether it was a vector.
local function columns(a, b, who)
  matrix(a, who)
  D.tensor(b, who)
  local vector = b:dim() == 1
  if vector then b = b:unsqueeze(-1) end
  return b, vector
end

--- linalg.solve(a, b): x of a x = b for a square a; b holds columns, or is one
-- vector (for a batch of vectors: b:unsqueeze(-1)). A singular a is an error.
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

methods.det, methods.slogdet = linalg.det, linalg.slogdet
methods.inverse, methods.pinverse = linalg.inv, linalg.pinv
methods.cholesky = linalg.cholesky

return linalg
