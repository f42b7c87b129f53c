/* Normalisation over the last dims: shape rule, expansion and gradient. */
#include "pass.h"

#define ADD(x, y) limn_calc2(b, OP_add, x, y)
#define SUB(x, y) limn_calc2(b, OP_sub, x, y)
#define MUL(x, y) limn_calc2(b, OP_mul, x, y)
#define SQUARE(x) limn_calc1(b, OP_square, x)
#define RSQRT(x) limn_calc1(b, OP_rsqrt, x)
#define MEAN(x) limn_build_reduce(b, OP_mean, x, dims, true)

/* Arguments x first eps. */
int infer_layer_norm(limn_context *c, const limn_type *a, limn_type *out) {
  int dim, dtype;
  LIMN_TRY(limn_rule_tensor(c, &a[0], "x", out));
  LIMN_TRY(limn_rule_dim(c, &a[1], -1, out->shape.ndim, &dim));
  dtype = limn_dtype_float(out->dtype) ? out->dtype : LIMN_F32;
  return limn_rule_result(c, dtype, &out->shape, out);
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

limn_arg expand_layer_norm(limn_builder *b, const limn_arg *a) {
  limn_arg dims = norm_dims(b, a[0], a[1]), d = norm_centre(b, a[0], dims), r;
  r = norm_scale(b, d, dims, a[2]);
  return MUL(d, r);
}

limn_arg expand_rms_norm(limn_builder *b, const limn_arg *a) {
  limn_arg dims = norm_dims(b, a[0], a[1]), x, r;
  x = MUL(a[0], limn_areal(1)); /* makes floats of ints */
  r = norm_scale(b, x, dims, a[2]);
  return MUL(x, r);
}

/* With y = r d: r (g - mean(g) - y mean(g y)); without the second term where
 * no mean was taken off. Ba, Kiros and Hinton 2016. */
static limn_arg norm_back(limn_builder *b, limn_arg r, limn_arg dims,
                          limn_arg y, limn_arg g, bool centred) {
  limn_arg k = MUL(g, y);
  k = MEAN(k);
  k = SUB(g, MUL(y, k));
  if (centred) k = SUB(k, MEAN(g));
  return MUL(k, r);
}

void grad_layer_norm(limn_builder *b, const limn_arg *a, limn_arg y,
                     limn_arg g, limn_arg *out) {
  limn_arg dims = norm_dims(b, a[0], a[1]), r;
  r = norm_scale(b, norm_centre(b, a[0], dims), dims, a[2]);
  out[0] = norm_back(b, r, dims, y, g, true);
}

void grad_rms_norm(limn_builder *b, const limn_arg *a, limn_arg y, limn_arg g,
                   limn_arg *out) {
  limn_arg dims = norm_dims(b, a[0], a[1]), r;
  r = norm_scale(b, a[0], dims, a[2]);
  out[0] = norm_back(b, r, dims, y, g, false);
}
