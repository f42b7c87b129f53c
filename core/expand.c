/* Composite ops in terms of other rows, and the builders used for it. */
#include <math.h>

#include "pass.h"

/* -- Builders -- */

bool limn_arg_tensor(const limn_builder *b, limn_arg a) {
  return a.tag == LIMN_A_REF && a.u.ref &&
         limn_graph_node(b->g, a.u.ref)->kind == LIMN_V_TENSOR;
}

bool limn_arg_is(limn_arg a, double v) {
  if (a.tag == LIMN_A_REAL) return a.u.f == v;
  return (a.tag == LIMN_A_INT || a.tag == LIMN_A_BOOL) && (double)a.u.i == v;
}

bool limn_arg_true(limn_arg a) { return a.tag == LIMN_A_BOOL && a.u.i; }

/* A literal number as a type; false for anything else. */
static bool expand_literal(limn_arg a, limn_type *t) {
  memset(t, 0, sizeof *t);
  t->known = true;
  switch (a.tag) {
  case LIMN_A_INT:
    t->kind = LIMN_V_INT;
    break;
  case LIMN_A_BOOL:
    t->kind = LIMN_V_BOOL;
    break;
  case LIMN_A_REAL:
    t->kind = LIMN_V_REAL, t->f = a.u.f;
    return true;
  default:
    return false;
  }
  t->i = a.u.i;
  return true;
}

/* A result that cannot be computed (1 / 0) is left to the plan, which has a
 * line for the message. */
static bool expand_fold(limn_builder *b, int op, const limn_arg *a, int n,
                        limn_arg *out) {
  limn_type t[3], r;
  for (int i = 0; i < n; i++)
    if (!expand_literal(a[i], &t[i])) return false;
  if (limn_host_eval(b->c, op, t, n, &r) < 0) {
    limn_error_clear(b->c);
    return false;
  }
  *out = r.kind == LIMN_V_REAL   ? limn_areal(r.f)
         : r.kind == LIMN_V_BOOL ? limn_abool(r.i != 0)
                                 : limn_aint(r.i);
  return true;
}

static limn_arg expand_calc(limn_builder *b, int op, const limn_arg *a, int n) {
  limn_arg out;
  for (int i = 0; i < n; i++)
    if (a[i].tag == LIMN_A_NONE) return limn_none();
  if (!b->rc && expand_fold(b, op, a, n, &out)) return out;
  return limn_build(b, op, a, n);
}

limn_arg limn_calc1(limn_builder *b, int op, limn_arg x) {
  return expand_calc(b, op, &x, 1);
}

limn_arg limn_calc2(limn_builder *b, int op, limn_arg x, limn_arg y) {
  limn_arg a[2] = {x, y};
  return expand_calc(b, op, a, 2);
}

limn_arg limn_calc3(limn_builder *b, int op, limn_arg x, limn_arg y,
                    limn_arg z) {
  limn_arg a[3] = {x, y, z};
  return expand_calc(b, op, a, 3);
}

limn_arg limn_build_str(limn_builder *b, const char *s) {
  limn_arg a = limn_none();
  a.tag = LIMN_A_STR;
  a.u.str = limn_graph_str(b->g, s);
  if (!a.u.str && !b->rc) b->rc = LIMN_EMEM;
  return a;
}

limn_arg limn_build_size(limn_builder *b, limn_arg x, int dim) {
  return limn_build2(b, OP_size, x, limn_aint(dim));
}

static void expand_mark_dim(limn_arg d, int rank, bool *mask) {
  int64_t i = d.tag == LIMN_A_INT ? d.u.i : 0;
  if (i < 0) i += rank + 1;
  if (i >= 1 && i <= rank) mask[i - 1] = true;
}

int limn_dims_of(const limn_builder *b, limn_arg dims, int rank,
                 bool mask[LIMN_MAXDIM]) {
  int n = 0;
  for (int i = 0; i < LIMN_MAXDIM; i++)
    mask[i] = dims.tag == LIMN_A_NONE && i < rank;
  if (dims.tag == LIMN_A_LIST)
    for (uint32_t i = 0; i < dims.n; i++)
      expand_mark_dim(b->g->args[dims.u.at + i], rank, mask);
  else
    expand_mark_dim(dims, rank, mask);
  for (int i = 0; i < rank; i++) n += mask[i];
  return n;
}

limn_arg limn_build_count(limn_builder *b, limn_arg x, limn_arg dims) {
  bool mask[LIMN_MAXDIM];
  int rank = limn_arg_rank(b, x);
  limn_arg n = limn_none();
  limn_dims_of(b, dims, rank, mask);
  for (int i = 0; i < rank; i++) {
    if (!mask[i]) continue;
    limn_arg s = limn_build_size(b, x, i + 1);
    n = n.tag == LIMN_A_NONE ? s : limn_calc2(b, OP_mul, n, s);
  }
  return n.tag == LIMN_A_NONE ? limn_aint(1) : n;
}

limn_arg limn_build_reduce(limn_builder *b, int op, limn_arg x, limn_arg dims,
                           bool keep) {
  return limn_build3(b, op, x, dims, limn_abool(keep));
}

limn_arg limn_build_restore(limn_builder *b, limn_arg r, limn_arg x,
                            limn_arg dims, limn_arg keep) {
  bool mask[LIMN_MAXDIM];
  int rank = limn_arg_rank(b, x), lead = 0;
  limn_dims_of(b, dims, rank, mask);
  if (limn_arg_true(keep)) return r;
  while (lead < rank && mask[lead]) lead++;
  for (int i = lead; i < rank; i++)
    if (mask[i]) r = limn_build2(b, OP_unsqueeze, r, limn_aint(i + 1 - lead));
  return r;
}

limn_arg limn_build_zeros(limn_builder *b, limn_arg like) {
  return limn_build3(b, OP_full_like, like, limn_areal(0), limn_none());
}

limn_arg limn_build_flat(limn_builder *b, limn_arg x) {
  int rank = limn_arg_rank(b, x);
  return limn_build3(b, OP_flatten, x, limn_aint(1),
                     limn_aint(LIMN_MAX(rank, 1)));
}

limn_arg limn_build_convert(limn_builder *b, limn_arg x, limn_arg like) {
  return limn_build2(b, OP_convert, x, limn_build1(b, OP_dtypeof, like));
}

/* int64 numbers first..last. */
limn_arg limn_build_arange(limn_builder *b, limn_arg first, limn_arg last) {
  limn_arg a[4] = {first, last, limn_aint(1), limn_adtype(LIMN_I64)};
  return limn_build(b, OP_arange, a, 4);
}

/* -- Shorthands: x, y, z are arguments, b the builder -- */
#define ADD(x, y) limn_calc2(b, OP_add, x, y)
#define SUB(x, y) limn_calc2(b, OP_sub, x, y)
#define MUL(x, y) limn_calc2(b, OP_mul, x, y)
#define DIV(x, y) limn_calc2(b, OP_div, x, y)
#define EXP(x) limn_calc1(b, OP_exp, x)
#define LOG(x) limn_calc1(b, OP_log, x)
#define WHERE(x, y, z) limn_calc3(b, OP_where, x, y, z)
#define REDUCE(op, x, dims, keep) limn_build_reduce(b, OP_##op, x, dims, keep)
#define UNSQUEEZE(x, dim) limn_build2(b, OP_unsqueeze, x, limn_aint(dim))

/* -- Reductions -- */

/* The division is of a tensor by a number, never of two numbers: a mean of
 * nothing is NaN, not an error. */
limn_arg expand_mean(limn_builder *b, const limn_arg *a) {
  limn_arg sum = limn_build3(b, OP_sum, a[0], a[1], a[2]);
  return DIV(sum, limn_build_count(b, a[0], a[1]));
}

/* sum((x - mean)^2) / (n - 1), in two passes so that nothing cancels; n = 1
 * gives 0 / 0. */
limn_arg expand_var(limn_builder *b, const limn_arg *a) {
  limn_arg mean = limn_build3(b, OP_mean, a[0], a[1], limn_abool(true));
  limn_arg d = SUB(a[0], mean), n = limn_build_count(b, a[0], a[1]);
  limn_arg less = a[2].tag == LIMN_A_BOOL ? limn_aint(a[2].u.i) : a[2];
  limn_arg sum =
      limn_build3(b, OP_sum, limn_calc1(b, OP_square, d), a[1], a[3]);
  if (!limn_arg_is(less, 0))
    n = limn_calc2(b, OP_maximum, SUB(n, less), limn_aint(0));
  return DIV(sum, n);
}

limn_arg expand_std(limn_builder *b, const limn_arg *a) {
  return limn_calc1(b, OP_sqrt, limn_build(b, OP_var, a, 4));
}

/* Dims of a keepdim result dropped again, unless they are to stay. */
static limn_arg expand_drop(limn_builder *b, limn_arg y, limn_arg dims,
                            limn_arg keep) {
  bool mask[LIMN_MAXDIM];
  limn_arg d[LIMN_MAXDIM];
  int rank = limn_arg_rank(b, y), n = 0;
  if (limn_arg_true(keep) || limn_dims_of(b, dims, rank, mask) == 0) return y;
  for (int i = 0; i < rank; i++)
    if (mask[i]) d[n++] = limn_aint(i + 1);
  return limn_build2(b, OP_squeeze, y, limn_build_list(b, d, n));
}

/* m + log(sum(exp(x - m))). An infinite m counts as 0: inf - inf is NaN. Of
 * nothing it is log(0). */
limn_arg expand_logsumexp(limn_builder *b, const limn_arg *a) {
  limn_arg m = REDUCE(peak, a[0], a[1], true);
  m = WHERE(limn_calc1(b, OP_isfinite, m), m, limn_abool(false));
  limn_arg sum = REDUCE(sum, EXP(SUB(a[0], m)), a[1], true);
  return expand_drop(b, ADD(LOG(sum), m), a[1], a[2]);
}

/* Arguments x p dim keepdim; the usual p have their own, exact, forms. The
 * product makes floats of ints and changes no float. */
limn_arg expand_norm(limn_builder *b, const limn_arg *a) {
  limn_arg x = MUL(a[0], limn_areal(1)), p = a[1], s;
  if (limn_arg_is(p, 2)) {
    s = limn_build3(b, OP_sum, limn_calc1(b, OP_square, x), a[2], a[3]);
    return limn_calc1(b, OP_sqrt, s);
  }
  s = limn_calc1(b, OP_abs, x);
  if (limn_arg_is(p, 0)) /* how many are not 0 */
    s = limn_calc1(b, OP_sign, s);
  if (limn_arg_is(p, 0) || limn_arg_is(p, 1))
    return limn_build3(b, OP_sum, s, a[2], a[3]);
  if (limn_arg_is(p, INFINITY)) return limn_build3(b, OP_max, s, a[2], a[3]);
  if (limn_arg_is(p, -INFINITY)) return limn_build3(b, OP_min, s, a[2], a[3]);
  s = limn_build3(b, OP_sum, limn_calc2(b, OP_pow, s, p), a[2], a[3]);
  return limn_calc2(b, OP_pow, s, DIV(limn_areal(1), p));
}

/* -- Softmax -- */

static limn_arg expand_dim_list(limn_builder *b, limn_arg dim) {
  return limn_build_list(b, &dim, 1);
}

limn_arg expand_softmax(limn_builder *b, const limn_arg *a) {
  limn_arg dims = expand_dim_list(b, a[1]);
  limn_arg e = EXP(SUB(a[0], REDUCE(max, a[0], dims, true)));
  return DIV(e, REDUCE(sum, e, dims, true));
}

limn_arg expand_log_softmax(limn_builder *b, const limn_arg *a) {
  limn_arg dims = expand_dim_list(b, a[1]);
  limn_arg d = SUB(a[0], REDUCE(max, a[0], dims, true));
  return SUB(d, LOG(REDUCE(sum, EXP(d), dims, true)));
}

limn_arg expand_softmax_back(limn_builder *b, const limn_arg *a) {
  limn_arg dims = expand_dim_list(b, a[2]);
  limn_arg s = REDUCE(sum, MUL(a[0], a[1]), dims, true);
  return MUL(a[0], SUB(a[1], s));
}

limn_arg expand_log_softmax_back(limn_builder *b, const limn_arg *a) {
  limn_arg s = REDUCE(sum, a[1], expand_dim_list(b, a[2]), true);
  return SUB(a[1], MUL(EXP(a[0]), s));
}

/* -- Shapes -- */

limn_arg expand_outer(limn_builder *b, const limn_arg *a) {
  limn_arg column = UNSQUEEZE(a[0], 2);
  return MUL(column, a[1]);
}

/* Arguments xs dim. */
limn_arg expand_stack(limn_builder *b, const limn_arg *a) {
  uint32_t n = a[0].tag == LIMN_A_LIST ? a[0].n : 0;
  size_t bytes = (n + 1) * sizeof(limn_arg);
  limn_arg *xs, list;
  if (b->rc) return limn_none();
  xs = limn_alloc(b->c, bytes);
  if (!xs) {
    b->rc = LIMN_EMEM;
    return limn_none();
  }
  for (uint32_t i = 0; i < n; i++)
    xs[i] = limn_build2(b, OP_unsqueeze, b->g->args[a[0].u.at + i], a[1]);
  list = limn_build_list(b, xs, (int)n);
  limn_free(b->c, xs, bytes);
  return limn_build2(b, OP_cat, list, a[1]);
}

/* x repeated along one dim: a new dim before it, expanded, merged. */
static limn_arg expand_repeat(limn_builder *b, limn_arg x, int dim,
                              limn_arg count) {
  limn_arg size[LIMN_MAXDIM];
  int rank = limn_arg_rank(b, x);
  if (b->rc) return limn_none();
  if (rank >= LIMN_MAXDIM) {
    b->rc = limn_fail(b->c, LIMN_ESHAPE,
                      "tile: a tensor with %d dims can only be repeated "
                      "along new ones",
                      rank);
    return limn_none();
  }
  for (int i = 0; i <= rank; i++) size[i] = limn_aint(-1);
  size[dim - 1] = count;
  x = UNSQUEEZE(x, dim);
  x = limn_build2(b, OP_expand, x, limn_build_list(b, size, rank + 1));
  return limn_build3(b, OP_flatten, x, limn_aint(dim), limn_aint(dim + 1));
}

/* Arguments x counts. Missing counts are 1; counts without a dim make one.
 * From the last dim, so that the copies are small as long as possible. */
limn_arg expand_tile(limn_builder *b, const limn_arg *a) {
  limn_arg count[LIMN_MAXDIM], x = a[0];
  int n = a[1].tag == LIMN_A_LIST ? (int)LIMN_MIN(a[1].n, LIMN_MAXDIM) : 1;
  int lead;
  for (int i = 0; i < n; i++)
    count[i] = a[1].tag == LIMN_A_LIST ? b->g->args[a[1].u.at + i] : a[1];
  for (int r = limn_arg_rank(b, x); r < n; r++) x = UNSQUEEZE(x, 1);
  lead = limn_arg_rank(b, x) - n;
  for (int i = n - 1; i >= 0; i--)
    if (!limn_arg_is(count[i], 1))
      x = expand_repeat(b, x, lead + i + 1, count[i]);
  return x;
}

/* Arguments x dim index v base: a scatter of v, broadcast to the slices, with
 * the positions laid out in one row. */
limn_arg expand_index_copy(limn_builder *b, const limn_arg *a) {
  limn_arg s[5] = {a[0], a[1], a[2], a[4], limn_none()}, n[LIMN_MAXDIM], part;
  int rank = limn_arg_rank(b, a[0]), many = limn_arg_rank(b, a[2]);
  int dim = (int)a[1].u.i < 0 ? (int)a[1].u.i + rank + 1 : (int)a[1].u.i;
  limn_arg at = limn_aint(dim), end = limn_aint(dim + many - 1);
  s[4] = limn_build_str(b, "index");
  part = limn_build(b, OP_index_select, s, 5); /* for its shape alone */
  part = limn_arg_tensor(b, a[3])
             ? limn_build2(b, OP_expand_like,
                           limn_build_convert(b, a[3], a[0]), part)
             : limn_build3(b, OP_full_like, part, a[3], limn_none());
  if (many == 0) part = limn_build2(b, OP_unsqueeze, part, at);
  if (many > 1) part = limn_build3(b, OP_flatten, part, at, end);
  for (int i = 0; i < rank; i++) n[i] = limn_aint(i == dim - 1 ? -1 : 1);
  /* Bad positions are reported where they stand in the index as given. */
  s[0] = limn_build_arange(b, limn_aint(1), limn_build_size(b, a[0], dim));
  s[1] = limn_aint(1), s[2] = a[2];
  s[2] = limn_build(b, OP_index_select, s, 5);
  s[2] = limn_build2(b, OP_reshape, s[2], limn_build_list(b, n, rank));
  s[2] = limn_build2(b, OP_expand_like, s[2], part);
  s[0] = a[0], s[1] = at, s[3] = part, s[4] = limn_aint(1);
  return limn_build(b, OP_scatter, s, 5);
}

/* -- Matrices of 0 and 1 -- */

/* Arguments x classes base. The labels go through index_select first, which
 * reports bad ones; comparing alone would give rows of zeros. */
limn_arg expand_one_hot(limn_builder *b, const limn_arg *a) {
  limn_arg last = SUB(a[1], limn_aint(1));
  limn_arg all = limn_build_arange(b, limn_aint(0), last);
  limn_arg s[5] = {all, limn_aint(1), a[0], a[2], limn_none()};
  s[4] = limn_build_str(b, "label");
  limn_arg label = limn_build(b, OP_index_select, s, 5);
  label = UNSQUEEZE(label, limn_arg_rank(b, label) + 1);
  label = limn_calc2(b, OP_eq, label, all);
  return limn_build2(b, OP_convert, label, limn_adtype(LIMN_I64));
}

/* Arguments n m dtype. */
limn_arg expand_eye(limn_builder *b, const limn_arg *a) {
  limn_arg one = limn_aint(1), m = a[1].tag == LIMN_A_NONE ? a[0] : a[1];
  limn_arg row = limn_build_arange(b, one, a[0]);
  row = UNSQUEEZE(row, 2);
  limn_arg eq = limn_calc2(b, OP_eq, row, limn_build_arange(b, one, m));
  return limn_build2(b, OP_convert, eq,
                     a[2].tag == LIMN_A_NONE ? limn_adtype(LIMN_F32) : a[2]);
}

/* x where column `op` row + k, else 0 (false, the number that changes no
 * dtype). */
static limn_arg expand_triangle(limn_builder *b, const limn_arg *a, int op) {
  limn_arg one = limn_aint(1), x = a[0];
  int rank = limn_arg_rank(b, x);
  limn_arg row = limn_build_arange(b, one, limn_build_size(b, x, rank - 1));
  row = ADD(UNSQUEEZE(row, 2), a[1]);
  limn_arg col = limn_build_arange(b, one, limn_build_size(b, x, rank));
  return WHERE(limn_calc2(b, op, col, row), x, limn_abool(false));
}

limn_arg expand_tril(limn_builder *b, const limn_arg *a) {
  return expand_triangle(b, a, OP_le);
}

limn_arg expand_triu(limn_builder *b, const limn_arg *a) {
  return expand_triangle(b, a, OP_ge);
}

/* Arguments x mask value. */
limn_arg expand_masked_fill(limn_builder *b, const limn_arg *a) {
  return WHERE(a[1], a[2], a[0]);
}

/* -- Random numbers: the same draw, with the sizes as plan values -- */

static limn_arg expand_random(limn_builder *b, const limn_arg *a, int op) {
  limn_arg size[LIMN_MAXDIM];
  int rank = limn_arg_rank(b, a[0]);
  for (int i = 0; i < rank; i++) size[i] = limn_build_size(b, a[0], i + 1);
  limn_arg list = limn_build_list(b, size, rank);
  return limn_build3(b, op, list, limn_build1(b, OP_dtypeof, a[0]), a[1]);
}

limn_arg expand_rand_like(limn_builder *b, const limn_arg *a) {
  return expand_random(b, a, OP_rand);
}

limn_arg expand_randn_like(limn_builder *b, const limn_arg *a) {
  return expand_random(b, a, OP_randn);
}

/* -- Halves -- */

bool limn_op_widens(int op) {
  switch (op) {
  case OP_mean:
  case OP_var:
  case OP_std:
  case OP_logsumexp:
  case OP_norm:
  case OP_softmax:
  case OP_log_softmax:
  case OP_softmax_back:
  case OP_log_softmax_back:
  case OP_layer_norm:
  case OP_rms_norm:
  case OP_layer_norm_back:
  case OP_rms_norm_back:
  case OP_layer_norm_sums:
  case OP_rms_norm_sums:
  case OP_batch_norm:
  case OP_pool:
  case OP_max_pool2_back:
  case OP_prod:
  case OP_cumprod:
  case OP_logcumsumexp:
    return true;
  default:
    return false;
  }
}

void limn_widen_args(limn_builder *b, limn_arg *a, int n) {
  for (int i = 0; i < n; i++)
    if (limn_arg_tensor(b, a[i])) a[i] = limn_build1(b, OP_widen, a[i]);
}

limn_arg limn_expand(limn_builder *b, int op, const limn_arg *a, int n) {
  limn_arg wide[LIMN_MAXARGS] = {{0}}, like[LIMN_MAXARGS], y;
  int k = 0;
  if (!limn_op_widens(op)) return limn_op_get(op)->expand(b, a);
  for (int i = 0; i < n; i++) {
    wide[i] = a[i];
    if (limn_arg_tensor(b, a[i])) like[k++] = a[i];
  }
  limn_widen_args(b, wide, n);
  y = limn_op_get(op)->expand(b, wide);
  return limn_build2(b, OP_unwiden, y, limn_build_list(b, like, k));
}
