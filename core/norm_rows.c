/* Normalisation over the last dims: shape rule, expansion and gradient. */
#include "pass.h"

#define ADD(x, y) limn_calc2(b, OP_add, x, y)
#define SUB(x, y) limn_calc2(b, OP_sub, x, y)
#define MUL(x, y) limn_calc2(b, OP_mul, x, y)
#define SQUARE(x) limn_calc1(b, OP_square, x)
#define RSQRT(x) limn_calc1(b, OP_rsqrt, x)
#define MEAN(x) limn_build_reduce(b, OP_mean, x, dims, true)

/* The arguments, and those of the rows for gradients. */
enum { X, WEIGHT, BIAS, FIRST, EPS };
enum { G = 1, SCALE = 2 };

/* A weight or bias has the sizes of the dims that are normalised. */
static int norm_affine(limn_context *c, const limn_type *a, const char *what,
                       int dim, limn_type *out) {
  limn_type w;
  limn_shape s = {out->shape.ndim - dim, {0}};
  char is[100], wanted[100];
  int dtype, operand;
  bool fits;
  if (a->kind == LIMN_V_NONE) return 0;
  LIMN_TRY(limn_rule_tensor(c, a, what, &w));
  memcpy(s.d, out->shape.d + dim, (size_t)s.ndim * sizeof s.d[0]);
  fits = w.shape.ndim == s.ndim;
  for (int i = 0; fits && i < s.ndim; i++) fits = w.shape.d[i] == s.d[i];
  if (!fits) {
    limn_shape_text(is, sizeof is, w.shape.ndim, w.shape.d);
    limn_shape_text(wanted, sizeof wanted, s.ndim, s.d);
    limn_fail(c, LIMN_ESHAPE, "the %s is %s, but x ends in %s", what, is,
              wanted);
    return limn_hint(c, LIMN_ESHAPE, "`first` is the first of the dims that "
                     "are normalised");
  }
  {
    limn_type both[2] = {*out, w};
    LIMN_TRY(limn_promote(both, 2, LIMN_RULE_FLT, &dtype, &operand));
  }
  out->dtype = dtype;
  return 0;
}

int infer_layer_norm(limn_context *c, const limn_type *a, limn_type *out) {
  int dim;
  LIMN_TRY(limn_rule_tensor(c, &a[X], "x", out));
  LIMN_TRY(limn_rule_dim(c, &a[FIRST], -1, out->shape.ndim, &dim));
  if (!limn_dtype_float(out->dtype)) out->dtype = LIMN_F32;
  LIMN_TRY(norm_affine(c, &a[WEIGHT], "weight", dim, out));
  LIMN_TRY(norm_affine(c, &a[BIAS], "bias", dim, out));
  return limn_rule_result(c, out->dtype, &out->shape, out);
}

int infer_norm_back(limn_context *c, const limn_type *a, limn_type *out) {
  limn_type g, both[2];
  int dim, dtype, operand;
  bool same;
  LIMN_TRY(limn_rule_tensor(c, &a[X], "x", out));
  LIMN_TRY(limn_rule_tensor(c, &a[G], "g", &g));
  LIMN_TRY(limn_rule_dim(c, &a[FIRST], -1, out->shape.ndim, &dim));
  same = g.shape.ndim == out->shape.ndim;
  for (int i = 0; same && i < g.shape.ndim; i++)
    same = g.shape.d[i] == out->shape.d[i];
  if (!same) return limn_fail(c, LIMN_ESHAPE, "x and g have different shapes");
  both[0] = *out, both[1] = g;
  LIMN_TRY(limn_promote(both, 2, LIMN_RULE_FLT, &dtype, &operand));
  out->dtype = dtype;
  LIMN_TRY(norm_affine(c, &a[SCALE], "weight", dim, out));
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

static void norm_grad(limn_builder *b, int op, const limn_arg *a, limn_arg g,
                      limn_arg *out) {
  limn_arg plain[5] = {a[X], limn_none(), limn_none(), a[FIRST], a[EPS]}, y;
  limn_arg back[5] = {a[X], g, a[WEIGHT], a[FIRST], a[EPS]};
  if (limn_grad_wants(&out[BIAS])) out[BIAS] = limn_fold_like(b, g, a[BIAS]);
  if (limn_grad_wants(&out[WEIGHT])) {
    y = limn_build(b, op, plain, 5);
    out[WEIGHT] = limn_fold_like(b, MUL(g, y), a[WEIGHT]);
  }
  if (!limn_grad_wants(&out[X])) return;
  op = op == OP_layer_norm ? OP_layer_norm_back : OP_rms_norm_back;
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
