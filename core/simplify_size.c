/* Shape algebra of the simplify pass: sizes of results as sizes of operands. */
#include "simplify.h"

/* -- Where shapes and dtypes come from -- */

/* The only tensor among the operands of an elementwise op, else NONE. */
static limn_arg simp_only(const limn_graph *g, const limn_node *n) {
  limn_arg one = limn_none();
  for (int i = 0; i < limn_op_get(n->op)->arity && i < n->nargs; i++) {
    limn_arg a = g->args[n->args + (uint32_t)i];
    if (!simp_tensor(g, a)) continue;
    if (one.tag != LIMN_A_NONE && one.u.ref != a.u.ref) return limn_none();
    one = a;
  }
  return one;
}

/* An older value of the same shape, or NONE. */
static limn_arg simp_shape_step(const limn_graph *g, limn_arg x) {
  const limn_node *n = simp_node(g, x);
  const limn_arg *a = g->args + n->args;
  int like;
  if (n->kind != LIMN_V_TENSOR) return limn_none();
  if (limn_op_get(n->op)->row == LIMN_ROW_E) return simp_only(g, n);
  like = limn_op_like(n->op);
  return like < 0 ? limn_none() : a[like];
}

/* An older value of the same dtype, or NONE. */
static limn_arg simp_dtype_step(const limn_graph *g, limn_arg x) {
  const limn_node *n = simp_node(g, x);
  const limn_arg *a = g->args + n->args;
  const limn_op_row *row = limn_op_get(n->op);
  if (n->kind != LIMN_V_TENSOR) return limn_none();
  if (row->row == LIMN_ROW_V) return a[0];
  if (row->row == LIMN_ROW_R && row->rule == LIMN_RULE_NUM) return a[0];
  if (row->row == LIMN_ROW_E && row->arity == 1 && row->rule == LIMN_RULE_NUM)
    return a[0];
  switch (n->op) {
  case OP_detach:
  case OP_expect:
  case OP_index_select:
  case OP_gather:
  case OP_rand_like:
  case OP_randn_like:
    return a[0];
  case OP_full_like:
    return a[2].tag == LIMN_A_NONE ? a[0] : limn_none();
  case OP_convert:
    if (a[1].tag != LIMN_A_REF || simp_node(g, a[1])->op != OP_dtypeof)
      return limn_none();
    return g->args[simp_node(g, a[1])->args];
  case OP_fold_like:
    return a[1];
  default:
    return limn_none();
  }
}

limn_arg limn_simp_shape(const limn_graph *g, limn_arg x) {
  for (limn_arg next = x; next.tag == LIMN_A_REF; next = simp_shape_step(g, x))
    x = next;
  return x;
}

limn_arg limn_simp_dtype(const limn_graph *g, limn_arg x) {
  for (limn_arg next = x; next.tag == LIMN_A_REF; next = simp_dtype_step(g, x))
    x = next;
  return x;
}

/* The oldest value that has both. */
limn_arg limn_simp_both(const limn_graph *g, limn_arg x) {
  while (x.tag == LIMN_A_REF) {
    limn_arg a = simp_shape_step(g, x), b = simp_dtype_step(g, x);
    if (a.tag != LIMN_A_REF || !simp_same(g, a, b)) return x;
    x = a;
  }
  return x;
}

bool limn_simp_shape_eq(const limn_graph *g, limn_arg a, limn_arg b) {
  return simp_same(g, limn_simp_shape(g, a), limn_simp_shape(g, b));
}

bool limn_simp_dtype_eq(const limn_graph *g, limn_arg a, limn_arg b) {
  return simp_same(g, limn_simp_dtype(g, a), limn_simp_dtype(g, b));
}

/* -- Sizes -- */

/* The arguments of the size node are now x, dim (0-based). */
static int simp_size_of(limn_arg *a, limn_arg x, int dim) {
  a[0] = x;
  a[1] = limn_aint(dim + 1);
  return SIMP_CHANGED;
}

/* Element d of a list of sizes, where it is the size for sure: a plan value
 * in a reshape or expand might be -1. */
static int simp_size_list(const limn_graph *g, limn_arg list, int d, bool any,
                          limn_arg *out) {
  if (list.tag != LIMN_A_LIST || (uint32_t)d >= list.n) return SIMP_KEEP;
  *out = simp_item(g, list, (uint32_t)d);
  if (out->tag == LIMN_A_INT && out->u.i >= 0) return SIMP_REPLACED;
  return any && out->tag == LIMN_A_REF && simp_node(g, *out)->kind == LIMN_V_INT
             ? SIMP_REPLACED
             : SIMP_KEEP;
}

static int simp_size_reduce(const limn_graph *g, limn_arg *a, const limn_arg *x,
                            limn_arg dims, bool keep, int d, limn_arg *out) {
  bool mask[LIMN_MAXDIM];
  int rank = simp_rank(g, x[0]), k = 0;
  if (!simp_mask(g, dims, rank, mask)) return SIMP_KEEP;
  if (keep) {
    *out = limn_aint(1);
    return mask[d] ? SIMP_REPLACED : simp_size_of(a, x[0], d);
  }
  for (; k < rank; k++)
    if (!mask[k] && d-- == 0) return simp_size_of(a, x[0], k);
  return SIMP_KEEP;
}

static int simp_size_permute(const limn_graph *g, limn_arg *a,
                             const limn_arg *x, int d) {
  int rank = simp_rank(g, x[0]);
  if (x[1].tag != LIMN_A_LIST || (uint32_t)d >= x[1].n) return SIMP_KEEP;
  d = simp_dim(simp_item(g, x[1], (uint32_t)d), rank);
  return d < 0 ? SIMP_KEEP : simp_size_of(a, x[0], d);
}

static int simp_size_transpose(const limn_graph *g, limn_arg *a,
                               const limn_arg *x, int d) {
  int rank = simp_rank(g, x[0]);
  int i = simp_dim(x[1], rank), k = simp_dim(x[2], rank);
  if (i < 0 || k < 0) return SIMP_KEEP;
  return simp_size_of(a, x[0], d == i ? k : d == k ? i : d);
}

static int simp_size_unsqueeze(const limn_graph *g, limn_arg *a,
                               const limn_arg *x, int d, limn_arg *out) {
  int at = simp_dim(x[1], simp_rank(g, x[0]) + 1);
  if (at < 0) return SIMP_KEEP;
  *out = limn_aint(1);
  return d == at ? SIMP_REPLACED : simp_size_of(a, x[0], d - (d > at));
}

static int simp_size_flatten(const limn_graph *g, limn_arg *a,
                             const limn_arg *x, int d) {
  int rank = simp_rank(g, x[0]);
  int first = simp_dim(x[1], rank), last = simp_dim(x[2], rank);
  if (first < 0 || last < first || d == first) return SIMP_KEEP;
  return simp_size_of(a, x[0], d < first ? d : d + last - first);
}

/* Only of two matrices: in a batch either may be the one repeated. */
static int simp_size_matmul(const limn_graph *g, limn_arg *a, const limn_arg *x,
                            int d) {
  limn_arg m = x[d ? 1 : 0], trans = x[d ? 3 : 2];
  if (simp_rank(g, x[0]) != 2 || simp_rank(g, x[1]) != 2) return SIMP_KEEP;
  if (trans.tag == LIMN_A_REF) return SIMP_KEEP;
  return simp_size_of(a, m, limn_arg_true(trans) ? !d : d);
}

/* `a` are the arguments of a size node; sizes of results in terms of sizes of
 * operands, so that only those are needed. */
int limn_simp_size(const limn_graph *g, limn_arg *a, limn_arg *out) {
  const limn_node *n = simp_node(g, a[0]);
  const limn_arg *x;
  limn_arg step;
  int d;
  if (!simp_tensor(g, a[0])) return SIMP_KEEP;
  d = simp_dim(a[1], n->rank);
  if (d < 0) return SIMP_KEEP;
  step = simp_shape_step(g, a[0]);
  if (step.tag == LIMN_A_REF) return simp_size_of(a, step, d);
  x = g->args + n->args;
  switch (n->op) {
  case OP_full:
  case OP_rand:
  case OP_randn:
  case OP_rand_bits:
    return simp_size_list(g, x[0], d, true, out);
  case OP_randint:
    return simp_size_list(g, x[2], d, true, out);
  case OP_reshape:
  case OP_expand:
    return simp_size_list(g, x[1], d, false, out);
  case OP_sum:
  case OP_prod:
  case OP_max:
  case OP_peak:
  case OP_min:
  case OP_any:
  case OP_all:
  case OP_mean:
  case OP_logsumexp:
    return simp_size_reduce(g, a, x, x[1], limn_arg_true(x[2]), d, out);
  case OP_var:
  case OP_std:
  case OP_norm:
    return simp_size_reduce(g, a, x, x[n->op == OP_norm ? 2 : 1],
                            limn_arg_true(x[3]), d, out);
  case OP_squeeze:
    return simp_size_reduce(g, a, x, x[1], false, d, out);
  case OP_permute:
    return simp_size_permute(g, a, x, d);
  case OP_transpose:
    return simp_size_transpose(g, a, x, d);
  case OP_unsqueeze:
    return simp_size_unsqueeze(g, a, x, d, out);
  case OP_flatten:
    return simp_size_flatten(g, a, x, d);
  case OP_matmul:
    return simp_size_matmul(g, a, x, d);
  default:
    return SIMP_KEEP;
  }
}
