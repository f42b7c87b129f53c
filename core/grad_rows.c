/* Gradients of the op table's reductions, views and special ops. */
#include <math.h>

#include "pass.h"

#define ADD(x, y) limn_calc2(b, OP_add, x, y)
#define SUB(x, y) limn_calc2(b, OP_sub, x, y)
#define MUL(x, y) limn_calc2(b, OP_mul, x, y)
#define DIV(x, y) limn_calc2(b, OP_div, x, y)
#define EQ(x, y) limn_calc2(b, OP_eq, x, y)
#define AND(x, y) limn_calc2(b, OP_logical_and, x, y)
#define WHERE(x, y, z) limn_calc3(b, OP_where, x, y, z)
#define EXP(x) limn_calc1(b, OP_exp, x)
#define SUM(x, dims) limn_build_reduce(b, OP_sum, x, dims, true)
#define RESTORE(r) limn_build_restore(b, r, x, dims, keep)

/* -- Reductions. In all of them x is what was reduced. -- */

limn_arg grad_spread(limn_builder *b, limn_arg x, limn_arg g, limn_arg dims,
                     limn_arg keep) {
  if (limn_arg_rank(b, x) == 0) return g;
  return limn_build2(b, OP_expand_like, RESTORE(g), x);
}

/* The product of the others: y / x, but right where x is 0. With p the
 * product of what is not 0: no zeros: p / x; one zero: p there, else 0; more:
 * 0 everywhere. */
limn_arg grad_prod(limn_builder *b, limn_arg x, limn_arg y, limn_arg g,
                   limn_arg dims, limn_arg keep) {
  limn_arg zero = EQ(x, limn_aint(0)), count = SUM(zero, dims);
  limn_arg safe = WHERE(zero, limn_aint(1), x), gp, none, single;
  limn_arg p = limn_build_reduce(b, OP_prod, safe, dims, true);
  (void)y;
  gp = RESTORE(g);
  gp = MUL(gp, p);
  single = AND(zero, EQ(count, limn_aint(1)));
  single = WHERE(single, gp, limn_areal(0));
  none = EQ(count, limn_aint(0));
  return WHERE(none, DIV(gp, safe), single);
}

/* Shared evenly among equals, as PyTorch's amax. */
limn_arg grad_extreme(limn_builder *b, limn_arg x, limn_arg y, limn_arg g,
                      limn_arg dims, limn_arg keep) {
  limn_arg best = RESTORE(y), count, share;
  best = EQ(x, best);
  count = SUM(best, dims);
  share = RESTORE(g);
  share = WHERE(best, share, limn_areal(0));
  return DIV(share, count);
}

/* var = sum((x - m)^2) / n: 2 (x - m) / n. The mean's own part is 0. A
 * tensor is divided, not a number: n may be 0. Arguments x dim unbiased
 * keepdim. */
void grad_var(limn_builder *b, const limn_arg *a, limn_arg y, limn_arg g,
              limn_arg *out) {
  limn_arg x = a[0], dims = a[1], keep = a[3], d, n, less = a[2];
  (void)y;
  d = limn_build3(b, OP_mean, x, dims, limn_abool(true));
  d = MUL(SUB(x, d), limn_areal(2));
  n = limn_build_count(b, x, dims);
  if (less.tag == LIMN_A_BOOL) less = limn_aint(less.u.i);
  if (!limn_arg_is(less, 0)) n = SUB(n, less);
  d = DIV(d, n);
  out[0] = MUL(RESTORE(g), d);
}

/* g (x - m) / ((n - 1) y), and 0 where y is 0. */
void grad_std(limn_builder *b, const limn_arg *a, limn_arg y, limn_arg g,
              limn_arg *out) {
  limn_arg zero = limn_areal(0);
  g = DIV(g, MUL(y, limn_areal(2)));
  g = WHERE(EQ(y, limn_aint(0)), zero, g);
  grad_var(b, a, y, g, out);
}

/* g exp(x - y): the softmax. Where y is -inf, x - 0 keeps exp at 0. */
void grad_logsumexp(limn_builder *b, const limn_arg *a, limn_arg y, limn_arg g,
                    limn_arg *out) {
  limn_arg x = a[0], dims = a[1], keep = a[2], e;
  e = EQ(y, limn_areal(-INFINITY));
  e = WHERE(e, limn_areal(0), y);
  e = RESTORE(e);
  e = EXP(SUB(x, e));
  out[0] = MUL(RESTORE(g), e);
}

/* sign(x) |x|^(p-1) / y^(p-1), and 0 where x or y is 0. */
static limn_arg grad_norm_p(limn_builder *b, limn_arg x, limn_arg p, limn_arg y,
                            limn_arg g) {
  limn_arg q = SUB(p, limn_aint(1)), r, zero = limn_areal(0);
  r = DIV(limn_calc1(b, OP_abs, x), y);
  r = limn_calc2(b, OP_pow, r, q);
  r = MUL(r, limn_calc1(b, OP_sign, x));
  r = MUL(g, r);
  return WHERE(EQ(x, limn_aint(0)), zero, r);
}

static limn_arg grad_norm_peak(limn_builder *b, limn_arg x, limn_arg y,
                               limn_arg g, limn_arg dims) {
  limn_arg best = EQ(limn_calc1(b, OP_abs, x), y), count = SUM(best, dims);
  g = WHERE(best, MUL(g, limn_calc1(b, OP_sign, x)), limn_areal(0));
  return DIV(g, count);
}

/* Arguments x p dim keepdim. */
void grad_norm(limn_builder *b, const limn_arg *a, limn_arg y, limn_arg g,
               limn_arg *out) {
  limn_arg x = a[0], p = a[1], dims = a[2], keep = a[3], r, zero;
  y = RESTORE(y);
  g = RESTORE(g);
  zero = limn_areal(0);
  if (limn_arg_is(p, 2)) {
    r = MUL(g, DIV(x, y));
    r = WHERE(EQ(y, limn_aint(0)), zero, r);
  } else if (limn_arg_is(p, 1)) {
    r = MUL(g, limn_calc1(b, OP_sign, x));
  } else if (limn_arg_is(p, INFINITY) || limn_arg_is(p, -INFINITY)) {
    r = grad_norm_peak(b, x, y, g, dims);
  } else if (limn_arg_is(p, 0)) {
    r = limn_build_zeros(b, x);
  } else {
    r = grad_norm_p(b, x, p, y, g);
  }
  out[0] = r;
}

/* -- Views -- */

limn_arg grad_permute(limn_builder *b, const limn_arg *args, limn_arg g) {
  limn_arg back[LIMN_MAXDIM];
  int n = (int)LIMN_MIN(args[1].n, LIMN_MAXDIM);
  if (args[1].tag != LIMN_A_LIST) return g;
  for (int i = 0; i < n; i++) back[i] = limn_aint(i + 1);
  for (int i = 0; i < n; i++) {
    int64_t d = b->g->args[args[1].u.at + (uint32_t)i].u.i;
    if (d < 0) d += n + 1;
    if (d >= 1 && d <= n) back[d - 1] = limn_aint(i + 1);
  }
  return limn_build2(b, OP_permute, g, limn_build_list(b, back, n));
}

static limn_arg grad_place(limn_builder *b, limn_arg x, limn_arg v,
                           const limn_arg *region) {
  limn_arg a[6] = {x, v, region[0], region[1], region[2], region[3]};
  return limn_build(b, OP_update, a, 6);
}

/* Arguments x first last step drop. */
limn_arg grad_slice(limn_builder *b, const limn_arg *args, limn_arg g) {
  return grad_place(b, limn_build_zeros(b, args[0]), g, args + 1);
}

/* Whether two regions, as arguments of update, have no element in common for
 * every size: in some dim one ends before the other begins. */
static bool grad_apart(const limn_builder *b, const limn_arg *x,
                       const limn_arg *y) {
  const limn_arg *pool = b->g->args;
  uint32_t n = LIMN_MIN(x[2].n, y[2].n);
  for (uint32_t d = 0; d < n; d++) {
    limn_arg f[2] = {pool[x[2].u.at + d], pool[y[2].u.at + d]};
    limn_arg l[2] = {pool[x[3].u.at + d], pool[y[3].u.at + d]};
    for (int i = 0; i < 2; i++)
      if (l[i].tag == LIMN_A_INT && f[1 - i].tag == LIMN_A_INT &&
          l[i].u.i > 0 && l[i].u.i < f[1 - i].u.i)
        return true;
  }
  return false;
}

/* sum + g where both are zeros with parts put in: all into the same zeros. It
 * is what the gradient of a tensor is of which all parts were used. */
bool limn_grad_join(limn_builder *b, limn_arg *sum, limn_arg g) {
  limn_arg a[6], x = *sum;
  if (b->rc || !limn_arg_tensor(b, g) || !limn_arg_tensor(b, x) ||
      limn_graph_node(b->g, g.u.ref)->op != OP_update)
    return false;
  memcpy(a, limn_node_args(b->g, g.u.ref), sizeof a);
  for (int depth = 0; limn_arg_tensor(b, x); depth++) {
    const limn_arg *y = limn_node_args(b->g, x.u.ref);
    int op = limn_graph_node(b->g, x.u.ref)->op;
    if (op == OP_full_like && depth && limn_arg_is(y[1], 0)) break;
    if (op != OP_update || !grad_apart(b, a, y)) return false;
    x = y[0];
  }
  if (!limn_arg_tensor(b, a[0]) ||
      limn_graph_node(b->g, a[0].u.ref)->op != OP_full_like ||
      !limn_arg_is(limn_node_args(b->g, a[0].u.ref)[1], 0))
    return false;
  a[0] = *sum;
  *sum = limn_build(b, OP_update, a, 6);
  return true;
}

/* Arguments x v first last step drop. */
void grad_update(limn_builder *b, const limn_arg *a, limn_arg y, limn_arg g,
                 limn_arg *out) {
  (void)y;
  if (limn_grad_wants(&out[0])) out[0] = grad_place(b, g, limn_areal(0), a + 2);
  if (limn_grad_wants(&out[1])) {
    limn_arg s[5] = {g, a[2], a[3], a[4], a[5]};
    out[1] = limn_fold_like(b, limn_build(b, OP_slice, s, 5), a[1]);
  }
}

/* -- Dtype and broadcasting -- */

void grad_like(limn_builder *b, const limn_arg *a, limn_arg y, limn_arg g,
               limn_arg *out) {
  (void)y;
  out[0] = limn_fold_like(b, g, a[0]);
}

void grad_fold_like(limn_builder *b, const limn_arg *a, limn_arg y, limn_arg g,
                    limn_arg *out) {
  (void)y;
  g = limn_build2(b, OP_expand_like, g, a[0]);
  out[0] = limn_build_convert(b, g, a[0]);
}

/* -- Along one dim -- */

/* Arguments x dim. */
void grad_softmax(limn_builder *b, const limn_arg *a, limn_arg y, limn_arg g,
                  limn_arg *out) {
  out[0] = limn_build3(b, OP_softmax_back, y, g, a[1]);
}

void grad_log_softmax(limn_builder *b, const limn_arg *a, limn_arg y,
                      limn_arg g, limn_arg *out) {
  out[0] = limn_build3(b, OP_log_softmax_back, y, g, a[1]);
}

static limn_arg grad_run_sum(limn_builder *b, limn_arg x, limn_arg dim,
                             bool reverse) {
  return limn_build3(b, OP_cumsum, x, dim, limn_abool(reverse));
}

/* Arguments x dim reverse. */
void grad_cumsum(limn_builder *b, const limn_arg *a, limn_arg y, limn_arg g,
                 limn_arg *out) {
  (void)y;
  limn_arg back = limn_calc1(b, OP_logical_not, a[2]);
  if (a[2].tag == LIMN_A_NONE) back = limn_abool(true);
  out[0] = limn_build3(b, OP_cumsum, g, a[1], back);
}

/* What the positive (or, with the sign turned, the negative) part of g gives:
 * exp(x + logcumsumexp from the other end of log(g) - y), which does not
 * overflow. Where y is -inf all so far has no weight. */
static limn_arg grad_run_exp(limn_builder *b, const limn_arg *a, limn_arg y,
                             limn_arg g, limn_arg back) {
  limn_arg none = limn_areal(-INFINITY), some, r;
  some = AND(limn_calc2(b, OP_gt, g, limn_aint(0)),
             limn_calc2(b, OP_gt, y, none));
  r = limn_calc1(b, OP_log, WHERE(some, g, limn_aint(1)));
  r = WHERE(some, SUB(r, y), none);
  r = limn_build3(b, OP_logcumsumexp, r, a[1], back);
  return EXP(ADD(r, a[0]));
}

/* Arguments x dim reverse. */
void grad_logcumsumexp(limn_builder *b, const limn_arg *a, limn_arg y,
                       limn_arg g, limn_arg *out) {
  limn_arg back = limn_calc1(b, OP_logical_not, a[2]), up, down;
  if (a[2].tag == LIMN_A_NONE) back = limn_abool(true);
  up = grad_run_exp(b, a, y, g, back);
  down = limn_calc1(b, OP_neg, g);
  down = grad_run_exp(b, a, y, down, back);
  out[0] = SUB(up, down);
}

/* Before the first zero: (reverse running sum of g y) / x. At it: the same
 * sum without dividing, with that zero taken for a 1. After it: 0, for every
 * product there holds the zero. */
void grad_cumprod(limn_builder *b, const limn_arg *a, limn_arg y, limn_arg g,
                  limn_arg *out) {
  limn_arg x = a[0], dim = a[1], zero = EQ(x, limn_aint(0));
  limn_arg seen = grad_run_sum(b, zero, dim, false), first, y1, at, before;
  first = AND(zero, EQ(seen, limn_aint(1)));
  y1 = limn_build2(b, OP_cumprod, WHERE(first, limn_aint(1), x), dim);
  at = MUL(g, y1);
  at = grad_run_sum(b, at, dim, true);
  before = MUL(g, y);
  before = grad_run_sum(b, before, dim, true);
  before = DIV(before, x);
  seen = limn_calc2(b, OP_gt, seen, limn_aint(0));
  before = WHERE(seen, limn_areal(0), before);
  out[0] = WHERE(first, at, before);
}

/* Arguments xs dim: each gets its part, at running offsets. */
void grad_cat(limn_builder *b, const limn_arg *a, limn_arg y, limn_arg g,
              limn_arg *out) {
  int rank = limn_arg_rank(b, y), dim = (int)a[1].u.i;
  limn_arg first[LIMN_MAXDIM], last[LIMN_MAXDIM], step[LIMN_MAXDIM];
  limn_arg off = limn_aint(0);
  if (dim < 0) dim += rank + 1;
  if (dim < 1 || dim > rank || a[0].tag != LIMN_A_LIST) return;
  for (int i = 0; i < rank; i++)
    first[i] = limn_aint(1), last[i] = limn_aint(-1), step[i] = limn_aint(1);
  for (uint32_t i = 0; i < a[0].n && !b->rc; i++) {
    limn_arg x = b->g->args[a[0].u.at + i], s[5];
    first[dim - 1] = ADD(off, limn_aint(1));
    off = limn_arg_is(off, 0) ? limn_build_size(b, x, dim)
                              : ADD(off, limn_build_size(b, x, dim));
    last[dim - 1] = off;
    if (!limn_grad_wants(&out[i])) continue;
    s[0] = g;
    s[1] = limn_build_list(b, first, rank);
    s[2] = limn_build_list(b, last, rank);
    s[3] = limn_build_list(b, step, rank);
    s[4] = limn_build_list(b, NULL, 0);
    out[i] = limn_fold_like(b, limn_build(b, OP_slice, s, 5), x);
  }
}

/* Arguments x pads value mode; pads are {before, after} of the last dim, then
 * of the one before it. The margins are constant. */
void grad_pad(limn_builder *b, const limn_arg *a, limn_arg y, limn_arg g,
              limn_arg *out) {
  limn_arg x = a[0], s[5], v[3][LIMN_MAXDIM];
  int rank = limn_arg_rank(b, x);
  int n =
      a[1].tag == LIMN_A_LIST ? (int)LIMN_MIN(a[1].n / 2, (uint32_t)rank) : 0;
  (void)y;
  for (int i = 0; i < rank; i++)
    v[0][i] = limn_aint(1), v[1][i] = limn_aint(-1), v[2][i] = limn_aint(1);
  for (int i = 0; i < n; i++) {
    limn_arg before = b->g->args[a[1].u.at + 2 * (uint32_t)i];
    limn_arg size = limn_build_size(b, x, rank - i);
    v[0][rank - i - 1] = ADD(before, limn_aint(1));
    v[1][rank - i - 1] = ADD(before, size);
  }
  s[0] = g;
  for (int i = 0; i < 3; i++) s[i + 1] = limn_build_list(b, v[i], rank);
  s[4] = limn_build_list(b, NULL, 0);
  out[0] = limn_build(b, OP_slice, s, 5);
}

/* -- Positions in a tensor -- */

/* index_add wants a list of positions: those of a table are laid out in one
 * row, and the dims that stood for them in v merged. */
static limn_arg grad_add_at(limn_builder *b, limn_arg x, limn_arg dim,
                            limn_arg index, limn_arg v, limn_arg base) {
  limn_arg a[5] = {x, dim, index, v, base};
  int rank = limn_arg_rank(b, index);
  limn_arg end = limn_aint(dim.u.i + rank - 1);
  if (rank != 1) a[2] = limn_build_flat(b, index);
  if (rank == 0) a[3] = limn_build2(b, OP_unsqueeze, v, dim);
  if (rank > 1) a[3] = limn_build3(b, OP_flatten, v, dim, end);
  return limn_build(b, OP_index_add, a, 5);
}

/* Arguments x dim index base what. */
void grad_index_select(limn_builder *b, const limn_arg *a, limn_arg y,
                       limn_arg g, limn_arg *out) {
  limn_arg dim = a[1];
  (void)y;
  if (!limn_grad_wants(&out[0])) return;
  if (dim.u.i < 0) dim.u.i += limn_arg_rank(b, a[0]) + 1;
  out[0] = grad_add_at(b, limn_build_zeros(b, a[0]), dim, a[2], g, a[3]);
}

void grad_gather(limn_builder *b, const limn_arg *a, limn_arg y, limn_arg g,
                 limn_arg *out) {
  limn_arg s[5] = {a[0], a[1], a[2], g, a[3]};
  (void)y;
  if (!limn_grad_wants(&out[0])) return;
  s[0] = limn_build_zeros(b, a[0]);
  out[0] = limn_build(b, OP_scatter_add, s, 5);
}

/* Arguments x dim index v base: x passes, v gets what was added. */
static void grad_added(limn_builder *b, int op, const limn_arg *a, limn_arg g,
                       limn_arg *out) {
  limn_arg s[5] = {g, a[1], a[2], a[4], limn_none()};
  if (limn_grad_wants(&out[0])) out[0] = limn_fold_like(b, g, a[0]);
  if (!limn_grad_wants(&out[3])) return;
  s[4] = limn_build_str(b, "index");
  out[3] = limn_fold_like(b, limn_build(b, op, s, 5), a[3]);
}

void grad_index_add(limn_builder *b, const limn_arg *a, limn_arg y, limn_arg g,
                    limn_arg *out) {
  (void)y;
  grad_added(b, OP_index_select, a, g, out);
}

void grad_scatter_add(limn_builder *b, const limn_arg *a, limn_arg y,
                      limn_arg g, limn_arg *out) {
  (void)y;
  grad_added(b, OP_gather, a, g, out);
}

/* -- Matrix product -- */

static limn_arg grad_mm(limn_builder *b, limn_arg x, limn_arg y, bool tx,
                        bool ty) {
  limn_arg a[4] = {x, y, limn_abool(tx), limn_abool(ty)};
  return limn_build(b, OP_matmul, a, 4);
}

/* The products of every element of column u and row v. */
static limn_arg grad_outer(limn_builder *b, limn_arg u, limn_arg v) {
  u = limn_build2(b, OP_unsqueeze, u, limn_aint(2));
  return MUL(u, v);
}

/* All dims but the last merged. */
static limn_arg grad_rows(limn_builder *b, limn_arg x) {
  int rank = limn_arg_rank(b, x);
  if (rank <= 2) return x;
  return limn_build3(b, OP_flatten, x, limn_aint(1), limn_aint(rank - 1));
}

/* Both with two or more dims: z = X Y, where X is x or its transpose. */
static void grad_matrices(limn_builder *b, limn_arg x, limn_arg y, bool tx,
                          bool ty, limn_arg g, limn_arg *out) {
  if (limn_grad_wants(&out[0]))
    out[0] = tx ? grad_mm(b, y, g, ty, true) : grad_mm(b, g, y, false, !ty);
  if (!limn_grad_wants(&out[1])) return;
  if (limn_arg_rank(b, y) == 2 && !tx) {
    /* Weights: one product over all rows, not one per matrix and a sum. */
    x = grad_rows(b, x);
    g = grad_rows(b, g);
  }
  out[1] = ty ? grad_mm(b, g, x, true, tx) : grad_mm(b, x, g, !tx, false);
}

/* A vector and a matrix, or two vectors. False: neither is the case. */
static bool grad_vectors(limn_builder *b, limn_arg x, limn_arg y, bool tx,
                         bool ty, limn_arg g, limn_arg *out) {
  int rx = limn_arg_rank(b, x), ry = limn_arg_rank(b, y);
  bool wx = limn_grad_wants(&out[0]), wy = limn_grad_wants(&out[1]);
  if (rx == 1 && ry == 1) {
    if (wx) out[0] = MUL(g, y);
    if (wy) out[1] = MUL(g, x);
  } else if (rx == 2 && ry == 1) { /* z = X y */
    if (wx) out[0] = tx ? grad_outer(b, y, g) : grad_outer(b, g, y);
    if (wy) out[1] = grad_mm(b, x, g, !tx, false);
  } else if (rx == 1 && ry == 2) { /* z = Y' x */
    if (wx) out[0] = grad_mm(b, y, g, ty, false);
    if (wy) out[1] = ty ? grad_outer(b, g, x) : grad_outer(b, x, g);
  } else {
    return false;
  }
  return true;
}

/* Arguments x y trans_x trans_y. A vector with a batch of matrices takes part
 * as one row or one column. */
void grad_matmul(limn_builder *b, const limn_arg *a, limn_arg z, limn_arg g,
                 limn_arg *out) {
  limn_arg x = a[0], y = a[1];
  bool wx = limn_grad_wants(&out[0]), wy = limn_grad_wants(&out[1]);
  int rx = limn_arg_rank(b, x), ry = limn_arg_rank(b, y);
  int rz = limn_arg_rank(b, z);
  bool tx = limn_arg_true(a[2]) && rx > 1, ty = limn_arg_true(a[3]) && ry > 1;
  if (!grad_vectors(b, x, y, tx, ty, g, out)) {
    if (rx == 1) {
      x = limn_build2(b, OP_unsqueeze, x, limn_aint(1));
      g = limn_build2(b, OP_unsqueeze, g, limn_aint(rz));
    }
    if (ry == 1) {
      y = limn_build2(b, OP_unsqueeze, y, limn_aint(2));
      g = limn_build2(b, OP_unsqueeze, g, limn_aint(rz + 1));
    }
    grad_matrices(b, x, y, tx, ty, g, out);
    if (ry == 1 && wy) { /* [..., k, 1] sums to [k] */
      limn_arg d = limn_aint(limn_arg_rank(b, out[1]));
      out[1] = limn_build2(b, OP_squeeze, out[1], limn_build_list(b, &d, 1));
    }
  }
  if (wx) out[0] = limn_fold_like(b, out[0], a[0]);
  if (wy) out[1] = limn_fold_like(b, out[1], a[1]);
}
