/* Rows that order elements or put them at positions: shapes and gradients. */
#include "pass.h"

/* Arguments x dim descending base. */
int infer_argsort(limn_context *c, const limn_type *a, limn_type *out) {
  limn_type x;
  bool descending;
  int64_t base;
  int dim;
  LIMN_TRY(limn_rule_tensor(c, &a[0], "x", &x));
  LIMN_TRY(limn_rule_dim(c, &a[1], -1, x.shape.ndim, &dim));
  LIMN_TRY(limn_rule_bool(c, &a[2], "descending", false, &descending));
  LIMN_TRY(limn_rule_int(c, &a[3], "base", 1, &base));
  return limn_rule_result(c, LIMN_I64, &x.shape, out);
}

/* Whether each element of v is the one that stayed in its place: the number
 * of each along dim, put and read again. Repeated positions would otherwise
 * give every v the gradient of the last. */
static limn_arg order_stays(limn_builder *b, const limn_arg *a) {
  limn_arg s[5] = {a[0], a[1], a[2], a[3], a[4]}, n[LIMN_MAXDIM], number;
  int rank = limn_arg_rank(b, a[2]), dim = (int)a[1].u.i;
  if (dim < 0) dim += rank + 1;
  for (int i = 0; i < rank; i++) n[i] = limn_aint(i == dim - 1 ? -1 : 1);
  number = limn_build_size(b, a[2], dim);
  number = limn_build_arange(b, limn_aint(1), number);
  number = limn_build2(b, OP_reshape, number, limn_build_list(b, n, rank));
  number = limn_build2(b, OP_expand_like, number, a[2]);
  s[0] = limn_build3(b, OP_full_like, a[0], limn_aint(0),
                     limn_adtype(LIMN_I64));
  s[3] = number;
  s[0] = limn_build(b, OP_scatter, s, 5);
  s[3] = a[4]; /* gather: x dim index base what */
  s[4] = limn_build_str(b, "index");
  return limn_calc2(b, OP_eq, limn_build(b, OP_gather, s, 5), number);
}

/* Arguments x dim index v base: what was overwritten counts no more. */
void grad_scatter(limn_builder *b, const limn_arg *a, limn_arg y, limn_arg g,
                  limn_arg *out) {
  limn_arg s[5] = {g, a[1], a[2], limn_none(), a[4]};
  (void)y;
  if (limn_grad_wants(&out[0])) {
    s[3] = limn_build3(b, OP_full_like, a[3], limn_aint(0), limn_none());
    out[0] = limn_fold_like(b, limn_build(b, OP_scatter, s, 5), a[0]);
  }
  if (!limn_grad_wants(&out[3])) return;
  s[3] = a[4];
  s[4] = limn_build_str(b, "index");
  g = limn_build(b, OP_gather, s, 5);
  g = limn_calc3(b, OP_where, order_stays(b, a), g, limn_areal(0));
  out[3] = limn_fold_like(b, g, a[3]);
}
