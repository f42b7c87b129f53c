/* Normalisation over the last dims: shape rule, expansion and gradient. */
#include "pass.h"

#define ADD(x, y) limn_calc2(b, OP_add, x, y)
#define SUB(x, y) limn_calc2(b, OP_sub, x, y)
#define MUL(x, y) limn_calc2(b, OP_mul, x, y)
#define SQUARE(x) limn_calc1(b, OP_square, x)
#define DIV(x, y) limn_calc2(b, OP_div, x, y)
#define WHERE(c, x, y) limn_calc3(b, OP_where, c, x, y)
#define RSQRT(x) limn_calc1(b, OP_rsqrt, x)
#define MEAN(x) limn_build_reduce(b, OP_mean, x, dims, true)

/* The arguments, and those of the rows for gradients. */
enum { X, WEIGHT, BIAS, FIRST, EPS };
enum { G = 1, SCALE = 2 };

/* A weight or bias has the sizes s; `x` says what of x they are. */
static int norm_affine(limn_context *c, const limn_type *a, const char *what,
                       const char *x, const limn_shape *s, limn_type *out) {
  limn_type w, both[2];
  char is[100], wanted[100];
  int dtype, operand;
  if (a->kind == LIMN_V_NONE) return 0;
  LIMN_TRY(limn_rule_tensor(c, a, what, &w));
  if (!limn_shape_eq(&w.shape, s)) {
    limn_shape_text(is, sizeof is, w.shape.ndim, w.shape.d);
    limn_shape_text(wanted, sizeof wanted, s->ndim, s->d);
    return limn_fail(c, LIMN_ESHAPE, "the %s is %s, but x %s %s", what, is, x,
                     wanted);
  }
  both[0] = *out, both[1] = w;
  LIMN_TRY(limn_promote(both, 2, LIMN_RULE_FLT, &dtype, &operand));
  out->dtype = dtype;
  return 0;
}

/* Of a norm over the dims from `dim` on. */
static int norm_last(limn_context *c, const limn_type *a, const char *what,
                     int dim, limn_type *out) {
  limn_shape s = {out->shape.ndim - dim, {0}};
  int rc;
  memcpy(s.d, out->shape.d + dim, (size_t)s.ndim * sizeof s.d[0]);
  rc = norm_affine(c, a, what, "ends in", &s, out);
  if (rc != LIMN_ESHAPE) return rc;
  return limn_hint(c, rc, "`first` is the first of the dims that are "
                   "normalised");
}

int infer_layer_norm(limn_context *c, const limn_type *a, limn_type *out) {
  int dim;
  LIMN_TRY(limn_rule_tensor(c, &a[X], "x", out));
  LIMN_TRY(limn_rule_dim(c, &a[FIRST], -1, out->shape.ndim, &dim));
  if (!limn_dtype_float(out->dtype)) out->dtype = LIMN_F32;
  LIMN_TRY(norm_last(c, &a[WEIGHT], "weight", dim, out));
  LIMN_TRY(norm_last(c, &a[BIAS], "bias", dim, out));
  return limn_rule_result(c, out->dtype, &out->shape, out);
}

/* Two tensors of one shape, promoted to a float. */
static int norm_pair(limn_context *c, const limn_type *a, const char *x,
                     limn_type *out) {
  limn_type g, both[2];
  int dtype, operand;
  LIMN_TRY(limn_rule_tensor(c, &a[X], x, out));
  LIMN_TRY(limn_rule_tensor(c, &a[G], "g", &g));
  if (!limn_shape_eq(&g.shape, &out->shape))
    return limn_fail(c, LIMN_ESHAPE, "%s and g have different shapes", x);
  both[0] = *out, both[1] = g;
  LIMN_TRY(limn_promote(both, 2, LIMN_RULE_FLT, &dtype, &operand));
  out->dtype = dtype;
  return 0;
}

int infer_norm_back(limn_context *c, const limn_type *a, limn_type *out) {
  int dim;
  LIMN_TRY(norm_pair(c, a, "x", out));
  LIMN_TRY(limn_rule_dim(c, &a[FIRST], -1, out->shape.ndim, &dim));
  LIMN_TRY(norm_last(c, &a[SCALE], "weight", dim, out));
  return limn_rule_result(c, out->dtype, &out->shape, out);
}

int infer_norm_sums(limn_context *c, const limn_type *a, limn_type *out) {
  limn_shape s = {2, {2, 1}};
  int dim;
  LIMN_TRY(norm_pair(c, a, "x", out));
  LIMN_TRY(limn_rule_dim(c, &a[2], -1, out->shape.ndim, &dim));
  s.d[1] = limn_numel(out->shape.ndim - dim, out->shape.d + dim);
  return limn_rule_result(c, out->dtype, &s, out);
}

/* softmax_back, log_softmax_back. */
int infer_row_back(limn_context *c, const limn_type *a, limn_type *out) {
  int dim;
  LIMN_TRY(norm_pair(c, a, "y", out));
  LIMN_TRY(limn_rule_dim(c, &a[2], LIMN_MUST, out->shape.ndim, &dim));
  return limn_rule_result(c, out->dtype, &out->shape, out);
}

/* The list of dims first..last of x. */
static limn_arg norm_dims(limn_builder *b, limn_arg x, limn_arg first) {
  limn_arg d[LIMN_MAXDIM];
  int rank = limn_arg_rank(b, x), n = 0;
  int64_t i = first.tag == LIMN_A_INT ? first.u.i : -1;
  if (i < 0) i += rank + 1;
  for (; i >= 1 && i <= rank; i++) d[n++] = limn_aint(i);
  return limn_build_list(b, d, n);
}

static limn_arg norm_eps(limn_arg eps) {
  return eps.tag == LIMN_A_NONE ? limn_areal(1e-5) : eps;
}

/* 1 / sqrt(mean(x^2) + eps) */
static limn_arg norm_scale(limn_builder *b, limn_arg x, limn_arg dims,
                           limn_arg eps) {
  limn_arg v = SQUARE(x);
  v = MEAN(v);
  v = ADD(v, norm_eps(eps));
  return RSQRT(v);
}

/* x without its mean; two passes, so that nothing cancels. */
static limn_arg norm_centre(limn_builder *b, limn_arg x, limn_arg dims) {
  limn_arg m = MEAN(x);
  return SUB(x, m);
}

static limn_arg norm_times(limn_builder *b, limn_arg y, const limn_arg *a) {
  if (a[WEIGHT].tag != LIMN_A_NONE) y = MUL(y, a[WEIGHT]);
  if (a[BIAS].tag != LIMN_A_NONE) y = ADD(y, a[BIAS]);
  return y;
}

limn_arg expand_layer_norm(limn_builder *b, const limn_arg *a) {
  limn_arg dims = norm_dims(b, a[X], a[FIRST]), d, r;
  d = norm_centre(b, a[X], dims);
  r = norm_scale(b, d, dims, a[EPS]);
  return norm_times(b, MUL(d, r), a);
}

limn_arg expand_rms_norm(limn_builder *b, const limn_arg *a) {
  limn_arg dims = norm_dims(b, a[X], a[FIRST]), x, r;
  x = MUL(a[X], limn_areal(1)); /* makes floats of ints */
  r = norm_scale(b, x, dims, a[EPS]);
  return norm_times(b, MUL(x, r), a);
}

/* With y = r d and g times the weight: r (g - mean(g) - y mean(g y)), without
 * the second term where no mean was taken off. Ba, Kiros and Hinton 2016. */
static limn_arg norm_back(limn_builder *b, const limn_arg *a, bool centred) {
  limn_arg dims = norm_dims(b, a[X], a[FIRST]), d = a[X], g = a[G], r, y, k;
  if (centred) d = norm_centre(b, a[X], dims);
  r = norm_scale(b, d, dims, a[EPS]);
  y = MUL(d, r);
  if (a[SCALE].tag != LIMN_A_NONE) g = MUL(g, a[SCALE]);
  k = MUL(g, y);
  k = MEAN(k);
  k = SUB(g, MUL(y, k));
  if (centred) k = SUB(k, MEAN(g));
  return MUL(k, r);
}

limn_arg expand_layer_norm_back(limn_builder *b, const limn_arg *a) {
  return norm_back(b, a, true);
}

limn_arg expand_rms_norm_back(limn_builder *b, const limn_arg *a) {
  return norm_back(b, a, false);
}

/* Two tensors of size 1 in dim 1 as one, in the first one's dtype. */
static limn_arg norm_join(limn_builder *b, limn_arg x, limn_arg y) {
  limn_arg two[2] = {x, y};
  two[1] = limn_build2(b, OP_convert, y, limn_build1(b, OP_dtypeof, x));
  return limn_build2(b, OP_cat, limn_build_list(b, two, 2), limn_aint(1));
}

/* Number i of what is joined in x. */
static limn_arg norm_part(limn_builder *b, limn_arg x, int i) {
  limn_arg first[LIMN_MAXDIM], last[LIMN_MAXDIM], one[LIMN_MAXDIM];
  int rank = limn_arg_rank(b, x);
  limn_arg a[5] = {x};
  for (int d = 0; d < rank; d++) {
    first[d] = limn_aint(d ? 1 : i);
    last[d] = limn_aint(d ? -1 : i);
    one[d] = limn_aint(1);
  }
  a[1] = limn_build_list(b, first, rank);
  a[2] = limn_build_list(b, last, rank);
  a[3] = limn_build_list(b, one, rank);
  a[4] = limn_build_list(b, NULL, 0);
  return limn_build(b, OP_slice, a, 5);
}

/* The two rows of sums, over the dims before `first`. */
static limn_arg norm_sums(limn_builder *b, const limn_arg *a, bool centred) {
  limn_arg dims = norm_dims(b, a[X], a[2]), d = a[X], two[2], lead, row;
  limn_arg all[LIMN_MAXDIM], sizes[2] = {limn_aint(1), limn_aint(-1)};
  int n = limn_arg_rank(b, a[X]) - (dims.tag == LIMN_A_LIST ? (int)dims.n : 0);
  for (int i = 0; i < n; i++) all[i] = limn_aint(i + 1);
  lead = limn_build_list(b, all, n);
  row = limn_build_list(b, sizes, 2);
  if (centred) d = norm_centre(b, a[X], dims);
  d = MUL(d, norm_scale(b, d, dims, a[3]));
  two[0] = MUL(a[G], d), two[1] = a[G];
  for (int i = 0; i < 2; i++) {
    if (n) two[i] = limn_build_reduce(b, OP_sum, two[i], lead, false);
    two[i] = limn_build2(b, OP_reshape, two[i], row);
  }
  return norm_join(b, two[0], two[1]);
}

limn_arg expand_layer_norm_sums(limn_builder *b, const limn_arg *a) {
  return norm_sums(b, a, true);
}

limn_arg expand_rms_norm_sums(limn_builder *b, const limn_arg *a) {
  return norm_sums(b, a, false);
}

/* Row i of the sums, as the weight or bias that it is the gradient of. */
static limn_arg norm_row(limn_builder *b, limn_arg sums, int i,
                         limn_arg like) {
  sums = limn_build2(b, OP_reshape_like, norm_part(b, sums, i), like);
  return limn_fold_like(b, sums, like);
}

static void norm_grad(limn_builder *b, int op, const limn_arg *a, limn_arg g,
                      limn_arg *out) {
  bool centred = op == OP_layer_norm;
  limn_arg sum[4] = {a[X], g, a[FIRST], a[EPS]}, sums;
  limn_arg back[5] = {a[X], g, a[WEIGHT], a[FIRST], a[EPS]};
  if (limn_grad_wants(&out[WEIGHT])) {
    op = centred ? OP_layer_norm_sums : OP_rms_norm_sums;
    sums = limn_build(b, op, sum, 4);
    out[WEIGHT] = norm_row(b, sums, 1, a[WEIGHT]);
    if (limn_grad_wants(&out[BIAS])) out[BIAS] = norm_row(b, sums, 2, a[BIAS]);
  } else if (limn_grad_wants(&out[BIAS])) {
    out[BIAS] = limn_fold_like(b, g, a[BIAS]);
  }
  if (!limn_grad_wants(&out[X])) return;
  op = centred ? OP_layer_norm_back : OP_rms_norm_back;
  out[X] = limn_fold_like(b, limn_build(b, op, back, 5), a[X]);
}

void grad_layer_norm(limn_builder *b, const limn_arg *a, limn_arg y,
                     limn_arg g, limn_arg *out) {
  (void)y;
  norm_grad(b, OP_layer_norm, a, g, out);
}

void grad_rms_norm(limn_builder *b, const limn_arg *a, limn_arg y, limn_arg g,
                   limn_arg *out) {
  (void)y;
  norm_grad(b, OP_rms_norm, a, g, out);
}

/* -- Over a batch: all dims but dim 2, the channels -- */

/* Arguments of batch_norm. */
enum { BATCH_MEAN = 1, BATCH_VAR, BATCH_WEIGHT, BATCH_BIAS, BATCH_OWN,
       BATCH_EPS };

/* x, which has channels, and its shape with all else 1. */
static int batch_x(limn_context *c, const limn_type *x, limn_shape *each) {
  if (x->shape.ndim < 2)
    return limn_fail(c, LIMN_ESHAPE, "x has %d dims; dim 2 holds the channels",
                     x->shape.ndim);
  each->ndim = x->shape.ndim;
  for (int i = 0; i < each->ndim; i++) each->d[i] = i == 1 ? x->shape.d[1] : 1;
  return 0;
}

/* Two numbers per channel, which are no halves. */
static int batch_two(limn_context *c, limn_shape *each, limn_type *out) {
  each->d[0] = 2;
  return limn_rule_result(c, out->dtype == LIMN_F64 ? LIMN_F64 : LIMN_F32,
                          each, out);
}

int infer_batch_stats(limn_context *c, const limn_type *a, limn_type *out) {
  limn_shape each;
  LIMN_TRY(limn_rule_tensor(c, &a[X], "x", out));
  LIMN_TRY(batch_x(c, out, &each));
  return batch_two(c, &each, out);
}

int infer_batch_sums(limn_context *c, const limn_type *a, limn_type *out) {
  limn_shape each;
  LIMN_TRY(norm_pair(c, a, "x", out));
  LIMN_TRY(batch_x(c, out, &each));
  LIMN_TRY(norm_affine(c, &a[2], "mean", "wants", &each, out));
  return batch_two(c, &each, out);
}

int infer_batch_norm(limn_context *c, const limn_type *a, limn_type *out) {
  limn_shape s = {1, {0}}, each;
  LIMN_TRY(limn_rule_tensor(c, &a[X], "x", out));
  LIMN_TRY(batch_x(c, out, &each));
  if (!limn_dtype_float(out->dtype)) out->dtype = LIMN_F32;
  s.d[0] = out->shape.d[1];
  LIMN_TRY(norm_affine(c, &a[BATCH_MEAN], "mean", "wants", &each, out));
  LIMN_TRY(norm_affine(c, &a[BATCH_VAR], "variance", "wants", &each, out));
  LIMN_TRY(norm_affine(c, &a[BATCH_WEIGHT], "weight", "has channels", &s,
                       out));
  LIMN_TRY(norm_affine(c, &a[BATCH_BIAS], "bias", "has channels", &s, out));
  return limn_rule_result(c, out->dtype, &out->shape, out);
}

static limn_arg batch_dims(limn_builder *b, limn_arg x) {
  limn_arg d[LIMN_MAXDIM] = {limn_aint(1)};
  int n = 1, rank = limn_arg_rank(b, x);
  for (int i = 3; i <= rank; i++) d[n++] = limn_aint(i);
  return limn_build_list(b, d, n);
}

limn_arg expand_batch_norm_stats(limn_builder *b, const limn_arg *a) {
  limn_arg x = limn_build1(b, OP_widen, a[X]), dims = batch_dims(b, x), mean;
  mean = MEAN(x);
  return norm_join(b, mean, MEAN(SQUARE(SUB(x, mean))));
}

limn_arg expand_batch_norm_sums(limn_builder *b, const limn_arg *a) {
  limn_arg x[3] = {a[X], a[G], a[2]}, dims, by, sum;
  limn_widen_args(b, x, 3);
  dims = batch_dims(b, x[0]);
  by = MUL(x[1], SUB(x[0], x[2]));
  by = limn_build_reduce(b, OP_sum, by, dims, true);
  sum = limn_build_reduce(b, OP_sum, x[1], dims, true);
  return norm_join(b, by, sum);
}

/* 1 / sqrt(var + eps), times the weight when that is wanted and there. */
static limn_arg batch_scale(limn_builder *b, const limn_arg *a,
                            bool weighted) {
  limn_arg r = RSQRT(ADD(a[BATCH_VAR], norm_eps(a[BATCH_EPS]))), w;
  if (!weighted || a[BATCH_WEIGHT].tag == LIMN_A_NONE) return r;
  w = limn_build2(b, OP_reshape_like, a[BATCH_WEIGHT], a[BATCH_VAR]);
  return MUL(r, w);
}

/* The batch's own mean is taken off first, as it may be far from 0 and the
 * variance small. Constants become one factor and one term per channel, so that
 * each element costs a multiplication and an addition. */
limn_arg expand_batch_norm(limn_builder *b, const limn_arg *a) {
  limn_arg k = batch_scale(b, a, true), own, constant, w;
  bool biased = a[BATCH_BIAS].tag != LIMN_A_NONE;
  own = MUL(SUB(a[X], a[BATCH_MEAN]), k);
  constant = MUL(a[BATCH_MEAN], k);
  if (biased) {
    w = limn_build2(b, OP_reshape_like, a[BATCH_BIAS], a[BATCH_MEAN]);
    own = ADD(own, w);
    constant = SUB(w, constant);
  }
  if (limn_arg_true(a[BATCH_OWN])) return own;
  w = MUL(a[X], k);
  constant = biased ? ADD(w, constant) : SUB(w, constant);
  if (a[BATCH_OWN].tag == LIMN_A_BOOL) return constant;
  return WHERE(a[BATCH_OWN], own, constant);
}

/* With d = x - mean, r = 1 / sqrt(var + eps), k = r * weight: sum(g),
 * sum(g d) r, and k (g - mean(g) - d r^2 mean(g d)), without the means where
 * mean and var are constants. Ioffe and Szegedy 2015. */
void grad_batch_norm(limn_builder *b, const limn_arg *args, limn_arg y,
                     limn_arg g, limn_arg *out) {
  limn_arg dims = batch_dims(b, args[X]), a[7], d, sums, sum, by, t;
  (void)y;
  memcpy(a, args, sizeof a);
  limn_widen_args(b, a, 5);
  limn_widen_args(b, &g, 1);
  d = SUB(a[X], a[BATCH_MEAN]);
  sums = limn_build3(b, OP_batch_norm_sums, a[X], g, a[BATCH_MEAN]);
  by = norm_part(b, sums, 1);
  sum = norm_part(b, sums, 2);
  if (limn_grad_wants(&out[BATCH_BIAS])) {
    t = limn_build2(b, OP_reshape_like, sum, args[BATCH_BIAS]);
    out[BATCH_BIAS] = limn_fold_like(b, t, args[BATCH_BIAS]);
  }
  if (limn_grad_wants(&out[BATCH_WEIGHT])) {
    t = MUL(by, batch_scale(b, a, false));
    t = limn_build2(b, OP_reshape_like, t, args[BATCH_WEIGHT]);
    out[BATCH_WEIGHT] = limn_fold_like(b, t, args[BATCH_WEIGHT]);
  }
  if (!limn_grad_wants(&out[X])) return;
  t = limn_build_count(b, a[X], dims);
  by = MUL(DIV(by, t), SQUARE(batch_scale(b, a, false)));
  t = SUB(SUB(g, DIV(sum, t)), MUL(d, by));
  if (!limn_arg_true(a[BATCH_OWN])) t = WHERE(a[BATCH_OWN], t, g);
  out[X] = limn_fold_like(b, MUL(t, batch_scale(b, a, true)), args[X]);
}
