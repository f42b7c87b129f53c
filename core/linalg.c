/* Linear algebra: shape rules and gradients. Matrices are the last two dims.
 *
 * A row has one result, so a factorisation with several lays them out in one
 * tensor; lua/limn/linalg.lua takes the parts as views. Gradients follow Giles
 * 2008, "Collected matrix derivative results"; Murray 2016 for cholesky;
 * Townsend 2016 for svd; Walter and Lehmann 2010 for qr. */
#include "pass.h"

#define ADD(x, y) limn_calc2(b, OP_add, x, y)
#define SUB(x, y) limn_calc2(b, OP_sub, x, y)
#define MUL(x, y) limn_calc2(b, OP_mul, x, y)
#define DIV(x, y) limn_calc2(b, OP_div, x, y)
#define NEG(x) limn_calc1(b, OP_neg, x)
#define WHERE(c, x, y) limn_calc3(b, OP_where, c, x, y)
#define INT(i) limn_aint(i)

/* -- Shapes -- */

static int la_matrix(limn_context *c, const limn_type *t, const char *what,
                     limn_type *out) {
  char text[100];
  LIMN_TRY(limn_rule_tensor(c, t, what, out));
  if (!limn_dtype_float(out->dtype)) out->dtype = LIMN_F32;
  if (limn_dtype_half(out->dtype)) {
    limn_fail(c, LIMN_EDTYPE, "%s is %s; matrices are float32 or float64", what,
              limn_dtype_name(out->dtype));
    return limn_hint(c, LIMN_EDTYPE, "convert it: x:to \"float32\"");
  }
  if (out->shape.ndim >= 2) return 0;
  return limn_fail(c, LIMN_ESHAPE, "%s must be a matrix, not %s", what,
                   limn_shape_text(text, sizeof text, out->shape.ndim,
                                   out->shape.d));
}

static int la_square(limn_context *c, const limn_type *t, const char *what,
                     limn_type *out) {
  const int64_t *d;
  LIMN_TRY(la_matrix(c, t, what, out));
  d = out->shape.d + out->shape.ndim - 2;
  if (d[0] == d[1]) return 0;
  return limn_fail(c, LIMN_ESHAPE, "%s must be square, not %lld by %lld", what,
                   (long long)d[0], (long long)d[1]);
}

int infer_square(limn_context *c, const limn_type *a, limn_type *out) {
  LIMN_TRY(la_square(c, &a[0], "x", out));
  return limn_rule_result(c, out->dtype, &out->shape, out);
}

/* Arguments a b. Batches broadcast. */
int infer_solve(limn_context *c, const limn_type *a, limn_type *out) {
  limn_type x, y, both[2];
  limn_shape s;
  int64_t n, m, rows;
  int dtype, operand;
  LIMN_TRY(la_square(c, &a[0], "a", &x));
  LIMN_TRY(la_matrix(c, &a[1], "b", &y));
  both[0] = x, both[1] = y;
  LIMN_TRY(limn_promote(both, 2, LIMN_RULE_FLT, &dtype, &operand));
  n = x.shape.d[x.shape.ndim - 1];
  rows = y.shape.d[y.shape.ndim - 2], m = y.shape.d[y.shape.ndim - 1];
  if (rows != n)
    return limn_fail(c, LIMN_ESHAPE, "a is %lld by %lld, but b has %lld rows",
                     (long long)n, (long long)n, (long long)rows);
  x.shape.ndim -= 2, y.shape.ndim -= 2;
  LIMN_TRY(limn_shape_broadcast(c, &x.shape, &y.shape, &s));
  s.d[s.ndim] = n, s.d[s.ndim + 1] = m;
  s.ndim += 2;
  return limn_rule_result(c, dtype, &s, out);
}

/* x with its last two dims now rows and columns. */
static int la_result(limn_context *c, int64_t rows, int64_t columns,
                     limn_type *out) {
  out->shape.d[out->shape.ndim - 2] = rows;
  out->shape.d[out->shape.ndim - 1] = columns;
  return limn_rule_result(c, out->dtype, &out->shape, out);
}

int infer_lu_parts(limn_context *c, const limn_type *a, limn_type *out) {
  LIMN_TRY(la_square(c, &a[0], "x", out));
  return la_result(c, 1, 3, out);
}

int infer_eigh_parts(limn_context *c, const limn_type *a, limn_type *out) {
  int64_t n;
  LIMN_TRY(la_square(c, &a[0], "x", out));
  n = out->shape.d[out->shape.ndim - 1];
  return la_result(c, n + 1, n, out);
}

/* k (m + n) elements, and `more` for each of the k. */
static int la_flat(limn_context *c, const limn_type *a, int64_t more,
                   limn_type *out) {
  int64_t m, n, k, size;
  LIMN_TRY(la_matrix(c, &a[0], "x", out));
  m = out->shape.d[out->shape.ndim - 2], n = out->shape.d[out->shape.ndim - 1];
  k = LIMN_MIN(m, n);
  if (__builtin_mul_overflow(k, m + n + more, &size))
    return limn_fail(c, LIMN_ESIZE, "the matrix is too large");
  return la_result(c, 1, size, out);
}

int infer_svd_parts(limn_context *c, const limn_type *a, limn_type *out) {
  return la_flat(c, a, 1, out);
}

int infer_qr_parts(limn_context *c, const limn_type *a, limn_type *out) {
  return la_flat(c, a, 0, out);
}

/* -- Builders -- */

static limn_arg la_mm(limn_builder *b, limn_arg x, limn_arg y, bool tx,
                      bool ty) {
  limn_arg a[4] = {x, y, limn_abool(tx), limn_abool(ty)};
  return limn_build(b, OP_matmul, a, 4);
}

static limn_arg la_t(limn_builder *b, limn_arg x) {
  int rank = limn_arg_rank(b, x);
  return limn_build3(b, OP_transpose, x, INT(rank - 1), INT(rank));
}

/* (x + x') / 2 */
static limn_arg la_symmetric(limn_builder *b, limn_arg x) {
  return MUL(ADD(x, la_t(b, x)), limn_areal(0.5));
}

static limn_arg la_triangle(limn_builder *b, int op, limn_arg x, int k) {
  return limn_build2(b, op, x, INT(k));
}

/* Positions first..last of the last dim, or the one before it (from = 1). */
static limn_arg la_part(limn_builder *b, limn_arg x, int from, limn_arg first,
                        limn_arg last) {
  limn_arg l[3][LIMN_MAXDIM], a[5];
  int rank = limn_arg_rank(b, x);
  for (int i = 0; i < rank; i++)
    l[0][i] = INT(1), l[1][i] = INT(-1), l[2][i] = INT(1);
  if (rank > from) l[0][rank - 1 - from] = first, l[1][rank - 1 - from] = last;
  a[0] = x;
  for (int i = 0; i < 3; i++) a[i + 1] = limn_build_list(b, l[i], rank);
  a[4] = limn_build_list(b, NULL, 0);
  return limn_build(b, OP_slice, a, 5);
}

/* [n, n] of bools, true on the diagonal. */
static limn_arg la_eye(limn_builder *b, limn_arg n) {
  return limn_build3(b, OP_eye, n, limn_none(), limn_adtype(LIMN_BOOL));
}

/* w [1, n] on the diagonal of [n, n]. */
static limn_arg la_diagonal(limn_builder *b, limn_arg w, limn_arg n) {
  return WHERE(la_eye(b, n), w, limn_areal(0));
}

/* p over w_j - w_i, for w [1, n], and 0 on the diagonal. Equal w have vectors
 * that are not their own: a gradient that depends on these is infinite. */
static limn_arg la_over_gaps(limn_builder *b, limn_arg p, limn_arg w,
                             limn_arg n) {
  limn_arg none = limn_calc2(b, OP_eq, p, INT(0));
  limn_arg d = SUB(w, la_t(b, w));
  none = limn_calc2(b, OP_logical_or, none, la_eye(b, n));
  d = WHERE(none, limn_areal(1), d);
  return WHERE(none, limn_areal(0), DIV(p, d));
}

static limn_arg la_triangular(limn_builder *b, limn_arg a, limn_arg x,
                              bool upper) {
  return limn_build3(b, OP_solve_triangular, a, x, limn_abool(upper));
}

/* -- Gradients -- */

/* With x = L L': L^-T P L^-1, made symmetric, where P is the lower triangle of
 * L' g with half of its diagonal. */
void grad_cholesky(limn_builder *b, const limn_arg *a, limn_arg y, limn_arg g,
                   limn_arg *out) {
  int rank = limn_arg_rank(b, y);
  limn_arg p, half, upper;
  if (limn_arg_true(a[1])) y = la_t(b, y), g = la_t(b, g);
  p = la_triangle(b, OP_tril, la_mm(b, y, g, true, false), 0);
  half = la_eye(b, limn_build_size(b, y, rank));
  p = MUL(p, WHERE(half, limn_areal(0.5), limn_areal(1)));
  upper = la_t(b, y);
  p = la_triangular(b, upper, p, true);
  p = la_triangular(b, upper, la_t(b, p), true);
  out[0] = la_symmetric(b, p);
}

/* b gets d = a^-T g, and a gets -d x'. */
static void la_solved(limn_builder *b, const limn_arg *a, limn_arg d,
                      limn_arg x, limn_arg *out, int triangle) {
  limn_arg da;
  if (limn_grad_wants(&out[1])) out[1] = limn_fold_like(b, d, a[1]);
  if (!limn_grad_wants(&out[0])) return;
  da = NEG(la_mm(b, d, x, false, true));
  if (triangle) da = la_triangle(b, triangle, da, 0);
  out[0] = limn_fold_like(b, da, a[0]);
}

void grad_solve(limn_builder *b, const limn_arg *a, limn_arg y, limn_arg g,
                limn_arg *out) {
  limn_arg d = limn_build2(b, OP_solve, la_t(b, a[0]), g);
  la_solved(b, a, d, y, out, 0);
}

/* Arguments a b upper. */
void grad_solve_triangular(limn_builder *b, const limn_arg *a, limn_arg y,
                           limn_arg g, limn_arg *out) {
  bool upper = limn_arg_true(a[2]);
  limn_arg d = la_triangular(b, la_t(b, a[0]), g, !upper);
  la_solved(b, a, d, y, out, upper ? OP_triu : OP_tril);
}

/* x^-T times the gradient of log |det|, which that of det is once it is
 * multiplied by det. */
void grad_lu_parts(limn_builder *b, const limn_arg *a, limn_arg y, limn_arg g,
                   limn_arg *out) {
  limn_arg x = a[0], n = limn_build_size(b, x, limn_arg_rank(b, x)), eye;
  limn_arg det = la_part(b, y, 0, INT(3), INT(3));
  limn_arg d = MUL(la_part(b, g, 0, INT(3), INT(3)), det);
  d = ADD(d, la_part(b, g, 0, INT(2), INT(2)));
  eye = limn_build2(b, OP_convert, la_eye(b, n),
                    limn_build1(b, OP_dtypeof, y));
  out[0] = MUL(d, limn_build2(b, OP_solve, la_t(b, x), eye));
}

/* With the vectors as rows of W, and F as above: W' (diag(gw) + F o (W gW'))
 * W. */
void grad_eigh_parts(limn_builder *b, const limn_arg *a, limn_arg y, limn_arg g,
                     limn_arg *out) {
  limn_arg one = INT(1), two = INT(2), last = INT(-1);
  limn_arg n = limn_build_size(b, a[0], limn_arg_rank(b, a[0]));
  limn_arg w = la_part(b, y, 1, one, one), v = la_part(b, y, 1, two, last);
  limn_arg gw = la_part(b, g, 1, one, one), gv = la_part(b, g, 1, two, last);
  limn_arg inner = la_mm(b, v, gv, false, true);
  inner = la_over_gaps(b, inner, w, n);
  inner = ADD(inner, la_diagonal(b, gw, n));
  inner = la_mm(b, v, la_mm(b, inner, v, false, false), true, false);
  out[0] = la_symmetric(b, inner);
}

/* Elements first + 1 .. first + rows * columns of the flat parts of x's
 * factorisation, as a matrix; *first moves on. */
static limn_arg la_matrix_part(limn_builder *b, limn_arg parts, limn_arg x,
                               limn_arg *first, limn_arg rows,
                               limn_arg columns) {
  limn_arg size[LIMN_MAXDIM], last = ADD(*first, MUL(rows, columns)), y;
  int rank = limn_arg_rank(b, x);
  y = la_part(b, parts, 0, ADD(*first, INT(1)), last);
  *first = last;
  for (int i = 0; i < rank - 2; i++) size[i] = limn_build_size(b, x, i + 1);
  size[rank - 2] = rows, size[rank - 1] = columns;
  return limn_build2(b, OP_reshape, y, limn_build_list(b, size, rank));
}

typedef struct {
  limn_arg m, n, k;
} la_sizes;

static la_sizes la_sizes_of(limn_builder *b, limn_arg x) {
  int rank = limn_arg_rank(b, x);
  la_sizes z;
  z.m = limn_build_size(b, x, rank - 1), z.n = limn_build_size(b, x, rank);
  z.k = limn_calc2(b, OP_minimum, z.m, z.n);
  return z;
}

/* U g' V with P = F o (U' gU - gU' U), Q = F o (V' gV - gV' V):
 *   U (P S + S Q + gS) V' + (1 - U U') gU S^-1 V' + U S^-1 gV' (1 - V V')
 * where S multiplies columns from the right and rows from the left. */
static limn_arg la_svd_turn(limn_builder *b, limn_arg u, limn_arg gu,
                            bool rows, limn_arg squares, limn_arg k) {
  limn_arg p = la_mm(b, u, gu, !rows, rows);
  return la_over_gaps(b, SUB(p, la_t(b, p)), squares, k);
}

void grad_svd_parts(limn_builder *b, const limn_arg *a, limn_arg y, limn_arg g,
                    limn_arg *out) {
  la_sizes z = la_sizes_of(b, a[0]);
  limn_arg at = INT(0), one = INT(1), u, s, v, gu, gs, gv, f, st, p, d, w, t;
  u = la_matrix_part(b, y, a[0], &at, z.m, z.k);
  s = la_matrix_part(b, y, a[0], &at, one, z.k);
  v = la_matrix_part(b, y, a[0], &at, z.k, z.n);
  at = INT(0);
  gu = la_matrix_part(b, g, a[0], &at, z.m, z.k);
  gs = la_matrix_part(b, g, a[0], &at, one, z.k);
  gv = la_matrix_part(b, g, a[0], &at, z.k, z.n);
  f = limn_calc1(b, OP_square, s);
  st = la_t(b, s);
  p = MUL(la_svd_turn(b, u, gu, false, f, z.k), s);
  d = ADD(p, MUL(st, la_svd_turn(b, v, gv, true, f, z.k)));
  d = ADD(d, la_diagonal(b, gs, z.k));
  d = la_mm(b, la_mm(b, u, d, false, false), v, false, false);
  /* What of gU and gV lies beside U and V. */
  w = DIV(SUB(gu, la_mm(b, u, la_mm(b, u, gu, true, false), false, false)), s);
  d = ADD(d, la_mm(b, w, v, false, false));
  t = la_mm(b, la_mm(b, gv, v, false, true), v, false, false);
  t = DIV(SUB(gv, t), st);
  out[0] = ADD(d, la_mm(b, u, t, false, false));
}

/* (gQ + Q C) R^-T, where C is M = R gR' - gQ' Q with its lower triangle in
 * place of the upper; for matrices that are not wider than high. */
void grad_qr_parts(limn_builder *b, const limn_arg *a, limn_arg y, limn_arg g,
                   limn_arg *out) {
  la_sizes z = la_sizes_of(b, a[0]);
  limn_arg at = INT(0), q, r, gq, gr, m, s[3];
  s[0] = y;
  s[1] = limn_calc2(b, OP_ge, z.m, z.n);
  s[2] = limn_build_str(b, "qr of a matrix that is wider than high has no "
                           "gradient");
  y = limn_build(b, OP_expect, s, 3);
  q = la_matrix_part(b, y, a[0], &at, z.m, z.k);
  r = la_matrix_part(b, y, a[0], &at, z.k, z.n);
  at = INT(0);
  gq = la_matrix_part(b, g, a[0], &at, z.m, z.k);
  gr = la_matrix_part(b, g, a[0], &at, z.k, z.n);
  m = SUB(la_mm(b, r, gr, false, true), la_mm(b, gq, q, true, false));
  m = ADD(la_triangle(b, OP_tril, m, 0),
          la_t(b, la_triangle(b, OP_tril, m, -1)));
  m = ADD(gq, la_mm(b, q, m, false, false));
  /* X R' = m, so R X' = m'. */
  out[0] = la_t(b, la_triangular(b, r, la_t(b, m), true));
}

/* -- The pseudo-inverse -- */

/* V S^+ U'. Singular values up to rtol times the largest count as 0; rtol below
 * 0: the larger size times the dtype's rounding, which is |3 (4/3 - 1) - 1|
 * (Moler). */
limn_arg expand_pinv(limn_builder *b, const limn_arg *a) {
  la_sizes z = la_sizes_of(b, a[0]);
  limn_arg y = limn_build1(b, OP_svd_parts, a[0]), at = INT(0), one = INT(1);
  limn_arg u, s, v, most, rtol = a[1], keep;
  u = la_matrix_part(b, y, a[0], &at, z.m, z.k);
  s = la_matrix_part(b, y, a[0], &at, one, z.k);
  v = la_matrix_part(b, y, a[0], &at, z.k, z.n);
  most = la_part(b, s, 0, one, limn_calc2(b, OP_minimum, one, z.k));
  if (rtol.tag == LIMN_A_NONE || (rtol.tag == LIMN_A_REAL && rtol.u.f < 0)) {
    rtol = limn_build3(b, OP_full_like, most, limn_areal(4.0 / 3), limn_none());
    rtol = SUB(MUL(SUB(rtol, one), INT(3)), one);
    rtol = MUL(limn_calc1(b, OP_abs, rtol),
               limn_calc2(b, OP_maximum, z.m, z.n));
  }
  keep = limn_calc2(b, OP_gt, s, MUL(most, rtol));
  s = DIV(limn_areal(1), WHERE(keep, s, limn_areal(1)));
  s = WHERE(keep, s, limn_areal(0));
  return la_mm(b, MUL(la_t(b, v), s), u, false, true);
}

/* x [m, n] gives [n, m]. */
int infer_pinv(limn_context *c, const limn_type *a, limn_type *out) {
  int nd;
  LIMN_TRY(la_matrix(c, &a[0], "x", out));
  nd = out->shape.ndim;
  return la_result(c, out->shape.d[nd - 1], out->shape.d[nd - 2], out);
}

/* -P' g P' + (1 - x P) g' P P' + P' P g' (1 - P x), for P of any rank that
 * stays the same nearby (Golub and Pereyra 1973). */
void grad_pinv(limn_builder *b, const limn_arg *a, limn_arg y, limn_arg g,
               limn_arg *out) {
  limn_arg x = a[0], left, right, d;
  left = la_mm(b, g, la_mm(b, y, y, false, true), true, false);
  left = SUB(left, la_mm(b, x, la_mm(b, y, left, false, false), false, false));
  right = la_mm(b, la_mm(b, y, y, true, false), g, false, true);
  right = SUB(right, la_mm(b, la_mm(b, right, y, false, false), x, false,
                           false));
  d = la_mm(b, y, la_mm(b, g, y, false, true), true, false);
  out[0] = SUB(ADD(left, right), d);
}
