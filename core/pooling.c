/* Pooling: the largest, or the sum, of each window along one dim. Windows over
 * more dims are pooled along one after another, but for max_pool2, which has a
 * kernel on the CPU. */
#include "pass.h"

#define ADD(x, y) limn_calc2(b, OP_add, x, y)
#define SUB(x, y) limn_calc2(b, OP_sub, x, y)
#define WHERE(x, y, z) limn_calc3(b, OP_where, x, y, z)

enum { POOL_WIDEST = 4096 }; /* a pool is as many nodes as its window is wide */

static int pool_sum(limn_context *c, const limn_type *t, bool *sum) {
  *sum = t->kind == LIMN_V_STR && !strcmp(t->s, "sum");
  if (*sum || t->kind != LIMN_V_STR || !strcmp(t->s, "max")) return 0;
  return limn_fail(c, LIMN_EARG, "how must be max or sum, not \"%s\"", t->s);
}

static int pool_int(limn_context *c, const limn_type *t, const char *what,
                    int64_t *out) {
  LIMN_TRY(limn_rule_int(c, t, what, 1, out));
  if (*out >= 1 && *out <= INT32_MAX) return 0;
  return limn_fail(c, LIMN_ESIZE, "%s is %lld; it is from 1 to %d", what,
                   (long long)*out, INT32_MAX);
}

/* Arguments x dim kernel stride dilation how. */
int infer_pooled(limn_context *c, const limn_type *a, limn_type *out) {
  int64_t kernel, stride, dilation, span;
  int dim;
  bool sum;
  LIMN_TRY(limn_rule_tensor(c, &a[0], "x", out));
  LIMN_TRY(limn_rule_dim(c, &a[1], LIMN_MUST, out->shape.ndim, &dim));
  LIMN_TRY(pool_int(c, &a[2], "kernel", &kernel));
  LIMN_TRY(pool_int(c, &a[3], "stride", &stride));
  LIMN_TRY(pool_int(c, &a[4], "dilation", &dilation));
  LIMN_TRY(pool_sum(c, &a[5], &sum));
  span = (kernel - 1) * dilation + 1;
  if (span > out->shape.d[dim]) {
    limn_fail(c, LIMN_ESHAPE, "a window of %lld does not fit into dim %d, "
              "whose size is %lld with its margins", (long long)span, dim + 1,
              (long long)out->shape.d[dim]);
    return limn_hint(c, LIMN_ESHAPE, "a smaller kernel, more padding, or a "
                     "larger input");
  }
  out->shape.d[dim] = (out->shape.d[dim] - span) / stride + 1;
  return limn_rule_result(c, out->dtype, &out->shape, out);
}

typedef struct {
  limn_builder *b;
  limn_arg x, stride, dilation;
  int dim, rank;
  int64_t kernel;
  bool sum;
} pool_call;

/* False, and the builder has failed, when the kernel is not a literal. */
static bool pool_read(limn_builder *b, const limn_arg *a, pool_call *p) {
  *p = (pool_call){b, a[0], a[3], a[4], 0, limn_arg_rank(b, a[0]), 0, false};
  p->dim = a[1].tag == LIMN_A_INT ? (int)a[1].u.i : 0;
  if (p->dim < 0) p->dim += p->rank + 1;
  p->kernel = a[2].tag == LIMN_A_INT ? a[2].u.i : 0;
  p->sum = a[5].tag == LIMN_A_STR &&
           !strcmp(limn_graph_text(b->g, a[5].u.str), "sum");
  if (b->rc) return false;
  if (p->kernel >= 1 && p->kernel <= POOL_WIDEST) return true;
  b->rc = limn_fail(b->c, LIMN_EARG, "pool: the kernel must be a number from "
                    "1 to %d that is known while tracing", POOL_WIDEST);
  return false;
}

/* The j-th element of every window: positions 1 + j * dilation onwards, by the
 * stride, up to as far before the end as leaves room for the others. */
static limn_arg pool_part(const pool_call *p, int64_t j, limn_arg v) {
  limn_builder *b = p->b;
  limn_arg l[3][LIMN_MAXDIM], a[6], first, last;
  int k = 0, at = p->dim - 1;
  for (int i = 0; i < p->rank; i++)
    l[0][i] = limn_aint(1), l[1][i] = limn_aint(-1), l[2][i] = limn_aint(1);
  first = limn_calc2(b, OP_mul, p->dilation, limn_aint(j));
  last = limn_calc2(b, OP_mul, p->dilation, limn_aint(p->kernel - 1 - j));
  l[0][at] = ADD(first, limn_aint(1));
  l[1][at] = limn_build_size(b, p->x, p->dim);
  l[1][at] = SUB(l[1][at], last);
  l[2][at] = p->stride;
  a[k++] = v.tag == LIMN_A_NONE ? p->x : limn_build_zeros(b, p->x);
  if (v.tag != LIMN_A_NONE) a[k++] = v;
  for (int i = 0; i < 3; i++) a[k++] = limn_build_list(b, l[i], p->rank);
  a[k++] = limn_build_list(b, NULL, 0);
  return limn_build(b, k == 6 ? OP_update : OP_slice, a, k);
}

limn_arg expand_pool(limn_builder *b, const limn_arg *a) {
  pool_call p;
  limn_arg y;
  if (!pool_read(b, a, &p)) return limn_none();
  y = pool_part(&p, 0, limn_none());
  for (int64_t j = 1; j < p.kernel && !b->rc; j++) {
    limn_arg part = pool_part(&p, j, limn_none());
    y = limn_calc2(b, p.sum ? OP_add : OP_maximum, y, part);
  }
  return y;
}

/* Windows that follow one another without a gap: their parts interleave to x,
 * but for what is left over at the end. */
static limn_arg pool_weave(const pool_call *p, const limn_arg *part) {
  limn_builder *b = p->b;
  limn_arg l = limn_build_list(b, part, (int)p->kernel), dim, rest, a[4];
  limn_arg pads[2 * LIMN_MAXDIM];
  int n = p->rank - p->dim + 1;
  dim = limn_aint(p->dim);
  l = limn_build2(b, OP_stack, l, limn_aint(p->dim + 1));
  l = limn_build3(b, OP_flatten, l, dim, limn_aint(p->dim + 1));
  rest = limn_build_size(b, p->x, p->dim);
  rest = SUB(rest, limn_build_size(b, l, p->dim));
  for (int i = 0; i < 2 * n; i++) pads[i] = limn_aint(0);
  pads[2 * n - 1] = rest;
  a[0] = l;
  a[1] = limn_build_list(b, pads, 2 * n);
  a[2] = limn_areal(0);
  a[3] = limn_build_str(b, "constant");
  return limn_build(b, OP_pad, a, 4);
}

static limn_arg pool_spread(const pool_call *p, const limn_arg *part) {
  limn_arg sum = limn_none();
  for (int64_t j = 0; j < p->kernel && !p->b->rc; j++) {
    limn_arg g = pool_part(p, j, part[j]);
    sum = j ? limn_calc2(p->b, OP_add, sum, g) : g;
  }
  return sum;
}

/* What each part of the windows gets: all of g, or where it is the first of
 * the largest, which is NaN where there is one. */
static void pool_parts(const pool_call *p, limn_arg y, limn_arg g,
                       limn_arg *part) {
  limn_builder *b = p->b;
  limn_arg taken = limn_none(), zero = limn_areal(0);
  for (int64_t j = 0; j < p->kernel && !b->rc; j++) {
    limn_arg x, best;
    part[j] = g;
    if (p->sum) continue;
    x = pool_part(p, j, limn_none());
    best = limn_calc2(b, OP_ne, x, x);
    x = limn_calc2(b, OP_eq, x, y);
    best = limn_calc2(b, OP_logical_or, x, best);
    part[j] = WHERE(best, g, zero);
    if (j) part[j] = WHERE(taken, zero, part[j]);
    taken = j ? limn_calc2(b, OP_logical_or, taken, best) : best;
  }
}

static limn_arg pool_back(limn_builder *b, const limn_arg *a, limn_arg y,
                          limn_arg g) {
  pool_call p;
  limn_arg *part, x;
  size_t bytes;
  if (!pool_read(b, a, &p)) return limn_none();
  bytes = (size_t)p.kernel * sizeof *part;
  part = limn_alloc(b->c, bytes);
  if (!part) {
    b->rc = LIMN_EMEM;
    return limn_none();
  }
  pool_parts(&p, y, g, part);
  if (limn_arg_is(p.stride, (double)p.kernel) && limn_arg_is(p.dilation, 1) &&
      p.rank < LIMN_MAXDIM)
    x = pool_weave(&p, part);
  else
    x = pool_spread(&p, part);
  limn_free(b->c, part, bytes);
  return x;
}

void grad_pool(limn_builder *b, const limn_arg *a, limn_arg y, limn_arg g,
               limn_arg *out) {
  if (limn_grad_wants(&out[0])) out[0] = pool_back(b, a, y, g);
}

/* -- Over the last two dims -- */

/* Kernels and strides, two each, come after the tensors. */
enum { POOL2_INTS = 4 };

int infer_max_pool2(limn_context *c, const limn_type *a, limn_type *out) {
  LIMN_TRY(limn_rule_tensor(c, &a[0], "x", out));
  if (out->shape.ndim < 2)
    return limn_fail(c, LIMN_ESHAPE, "x has %d dims; windows need two",
                     out->shape.ndim);
  for (int i = 0; i < 2; i++) {
    limn_type one[6] = {*out, {0}, a[1 + i], a[3 + i], {0}, {0}};
    one[1].kind = one[4].kind = LIMN_V_INT;
    one[1].known = one[4].known = true, one[1].i = i - 2, one[4].i = 1;
    one[5].kind = LIMN_V_STR, one[5].known = true, one[5].s = "max";
    LIMN_TRY(infer_pooled(c, one, out));
  }
  return 0;
}

int infer_max_pool2_back(limn_context *c, const limn_type *a,
                         limn_type *out) {
  limn_type like[1 + POOL2_INTS] = {a[0]}, y, g;
  memcpy(like + 1, a + 3, POOL2_INTS * sizeof *like);
  LIMN_TRY(infer_max_pool2(c, like, out));
  LIMN_TRY(limn_rule_tensor(c, &a[1], "y", &y));
  LIMN_TRY(limn_rule_tensor(c, &a[2], "g", &g));
  if (!limn_shape_eq(&y.shape, &out->shape) ||
      !limn_shape_eq(&g.shape, &out->shape))
    return limn_fail(c, LIMN_ESHAPE, "y and g have the windows' shape");
  return limn_rule_result(c, g.dtype, &a[0].shape, out);
}

/* The arguments of pool for dim i - 2, from those of max_pool2. */
static void pool2_args(limn_builder *b, limn_arg x, const limn_arg *ints,
                       int i, limn_arg *out) {
  out[0] = x;
  out[1] = limn_aint(i - 2);
  out[2] = ints[i], out[3] = ints[2 + i];
  out[4] = limn_aint(1);
  out[5] = limn_build_str(b, "max");
}

limn_arg expand_max_pool2_f32(limn_builder *b, const limn_arg *a) {
  limn_arg one[6], x = a[0];
  for (int i = 1; i >= 0; i--) {
    pool2_args(b, x, a + 1, i, one);
    x = limn_build(b, OP_pool, one, 6);
  }
  return x;
}

limn_arg expand_max_pool2_f32_back(limn_builder *b, const limn_arg *a) {
  limn_arg last[6], one[6], rows, g;
  pool2_args(b, a[0], a + 3, 1, last);
  rows = limn_build(b, OP_pool, last, 6);
  pool2_args(b, rows, a + 3, 0, one);
  g = pool_back(b, one, a[1], a[2]);
  return pool_back(b, last, rows, g);
}

/* The kernel's row where all n tensors are float32; the plan keeps one. */
static limn_arg pool2_choose(limn_builder *b, int op, const limn_arg *a, int n,
                             limn_arg other) {
  limn_arg ok = limn_abool(true), t;
  for (int i = 0; i < n; i++) {
    t = limn_build1(b, OP_dtypeof, a[i]);
    t = limn_build2(b, OP_is, t, limn_adtype(LIMN_F32));
    ok = limn_calc2(b, OP_logical_and, ok, t);
  }
  return WHERE(ok, limn_build(b, op, a, n + POOL2_INTS), other);
}

limn_arg expand_max_pool2(limn_builder *b, const limn_arg *a) {
  return pool2_choose(b, OP_max_pool2_f32, a, 1, expand_max_pool2_f32(b, a));
}

limn_arg expand_max_pool2_back(limn_builder *b, const limn_arg *a) {
  return pool2_choose(b, OP_max_pool2_f32_back, a, 3,
                      expand_max_pool2_f32_back(b, a));
}

void grad_max_pool2(limn_builder *b, const limn_arg *a, limn_arg y, limn_arg g,
                    limn_arg *out) {
  limn_arg back[3 + POOL2_INTS] = {a[0], y, g};
  if (!limn_grad_wants(&out[0])) return;
  memcpy(back + 3, a + 1, POOL2_INTS * sizeof *back);
  g = limn_build(b, OP_max_pool2_back, back, 3 + POOL2_INTS);
  out[0] = limn_fold_like(b, g, a[0]);
}
