/* Shape rules: dtype and shape of the result of each S row, and every check of
 * its arguments. A rule says only the reason; limn_locate adds the rest. */
#include "op_rules.h"

#define TEXT 256

static const char *shape_text(char *buf, const limn_shape *s) {
  return limn_shape_text(buf, TEXT, s->ndim, s->d);
}

/* The dtype of x for ops that give floats. */
static int shape_float(int dtype) {
  return limn_dtype_float(dtype) ? dtype : LIMN_F32;
}

/* -- The shape of x -- */

int infer_convert(limn_context *c, const limn_type *a, limn_type *out) {
  limn_type x;
  int dtype;
  LIMN_TRY(limn_rule_tensor(c, &a[0], "x", &x));
  LIMN_TRY(limn_rule_dtype(c, &a[1], -1, &dtype));
  return limn_rule_result(c, dtype, &x.shape, out);
}

int infer_expect(limn_context *c, const limn_type *a, limn_type *out) {
  bool ok;
  LIMN_TRY(limn_rule_tensor(c, &a[0], "x", out));
  if (a[1].kind == LIMN_V_BOOL && !a[1].known) return 0; /* while tracing */
  LIMN_TRY(limn_rule_bool(c, &a[1], "ok", true, &ok));
  if (ok) return 0;
  return limn_fail(c, LIMN_ESHAPE, "%s",
                   a[2].kind == LIMN_V_STR ? a[2].s : "this cannot run");
}

int infer_widen(limn_context *c, const limn_type *a, limn_type *out) {
  limn_type x;
  LIMN_TRY(limn_rule_tensor(c, &a[0], "x", &x));
  return limn_rule_result(c, limn_dtype_half(x.dtype) ? LIMN_F32 : x.dtype,
                          &x.shape, out);
}

int infer_unwiden(limn_context *c, const limn_type *a, limn_type *out) {
  limn_type x;
  int dtype, operand;
  LIMN_TRY(limn_rule_tensor(c, &a[0], "x", &x));
  if (x.dtype == LIMN_F32 && a[1].n &&
      limn_promote(a[1].list, a[1].n, LIMN_RULE_NUM, &dtype, &operand) == 0 &&
      limn_dtype_half(dtype))
    x.dtype = (uint8_t)dtype;
  return limn_rule_result(c, x.dtype, &x.shape, out);
}

int infer_same(limn_context *c, const limn_type *a, limn_type *out) {
  return limn_rule_tensor(c, &a[0], "x", out);
}

int infer_float_same(limn_context *c, const limn_type *a, limn_type *out) {
  int dim;
  LIMN_TRY(limn_rule_tensor(c, &a[0], "x", out));
  LIMN_TRY(limn_rule_dim(c, &a[1], LIMN_MUST, out->shape.ndim, &dim));
  return limn_rule_result(c, shape_float(out->dtype), &out->shape, out);
}

/* As sum: ints and bools add up in int64. */
int infer_cum(limn_context *c, const limn_type *a, limn_type *out) {
  int dim;
  LIMN_TRY(limn_rule_tensor(c, &a[0], "x", out));
  LIMN_TRY(limn_rule_dim(c, &a[1], LIMN_MUST, out->shape.ndim, &dim));
  if (!limn_dtype_float(out->dtype)) out->dtype = LIMN_I64;
  return limn_rule_result(c, out->dtype, &out->shape, out);
}

int infer_cum_same(limn_context *c, const limn_type *a, limn_type *out) {
  int dim;
  LIMN_TRY(limn_rule_tensor(c, &a[0], "x", out));
  return limn_rule_dim(c, &a[1], LIMN_MUST, out->shape.ndim, &dim);
}

int infer_tri(limn_context *c, const limn_type *a, limn_type *out) {
  int64_t k;
  char text[TEXT];
  LIMN_TRY(limn_rule_tensor(c, &a[0], "x", out));
  LIMN_TRY(limn_rule_int(c, &a[1], "k", 0, &k));
  if (out->shape.ndim >= 2) return 0;
  return limn_fail(c, LIMN_ESHAPE, "a diagonal needs at least two dims, not "
                   "%s", shape_text(text, &out->shape));
}

int infer_rand_like(limn_context *c, const limn_type *a, limn_type *out) {
  LIMN_TRY(limn_rule_tensor(c, &a[0], "like", out));
  if (limn_dtype_float(out->dtype)) return 0;
  limn_fail(c, LIMN_EDTYPE, "random reals cannot be %s",
            limn_dtype_name(out->dtype));
  return limn_hint(c, LIMN_EDTYPE, "randint makes whole numbers");
}

/* The operand's shape came about by broadcasting that of `like`. */
int infer_fold_like(limn_context *c, const limn_type *a, limn_type *out) {
  limn_type x, like;
  limn_shape s;
  char tx[TEXT], tl[TEXT];
  LIMN_TRY(limn_rule_tensor(c, &a[0], "x", &x));
  LIMN_TRY(limn_rule_tensor(c, &a[1], "like", &like));
  if (limn_shape_broadcast(c, &x.shape, &like.shape, &s) < 0 ||
      !limn_shape_eq(&s, &x.shape))
    return limn_fail(c, LIMN_ESHAPE, "%s is not a broadcast of %s",
                     shape_text(tx, &x.shape), shape_text(tl, &like.shape));
  *out = like;
  return 0;
}

/* -- Reductions -- */

/* dims and keepdim are arguments number d and k. */
static int shape_reduce(limn_context *c, const limn_type *a, int d, int k,
                        limn_type *out, int64_t *count) {
  limn_type x;
  limn_shape s;
  LIMN_TRY(limn_rule_tensor(c, &a[0], "x", &x));
  LIMN_TRY(limn_rule_reduce(c, &x.shape, &a[d], &a[k], &s, count));
  return limn_rule_result(c, shape_float(x.dtype), &s, out);
}

int infer_reduce_flt(limn_context *c, const limn_type *a, limn_type *out) {
  int64_t count;
  return shape_reduce(c, a, 1, 2, out, &count);
}

int infer_var(limn_context *c, const limn_type *a, limn_type *out) {
  int64_t count;
  bool unbiased;
  LIMN_TRY(limn_rule_bool(c, &a[2], "unbiased", true, &unbiased));
  return shape_reduce(c, a, 1, 3, out, &count);
}

int infer_norm(limn_context *c, const limn_type *a, limn_type *out) {
  int64_t count;
  if (a[1].kind != LIMN_V_NONE && a[1].kind != LIMN_V_INT &&
      a[1].kind != LIMN_V_REAL)
    return limn_fail(c, LIMN_EARG, "p must be a number");
  return shape_reduce(c, a, 2, 3, out, &count);
}

/* argmax: one dim, or all taken as one row. */
int infer_arg(limn_context *c, const limn_type *a, limn_type *out) {
  int64_t count, base;
  char text[TEXT];
  limn_type x;
  LIMN_TRY(limn_rule_tensor(c, &a[0], "x", &x));
  LIMN_TRY(limn_rule_int(c, &a[3], "base", 1, &base));
  if (a[1].kind == LIMN_V_LIST && a[1].n != 1)
    return limn_fail(c, LIMN_EARG, "one dim is needed, not %d", a[1].n);
  LIMN_TRY(shape_reduce(c, a, 1, 2, out, &count));
  if (count == 0 && limn_numel(out->shape.ndim, out->shape.d) > 0)
    return limn_fail(c, LIMN_ESHAPE, "no elements to choose from in %s",
                     shape_text(text, &x.shape));
  out->dtype = LIMN_I64;
  return limn_rule_result(c, LIMN_I64, &out->shape, out);
}

/* -- Products -- */

typedef struct { /* an operand of matmul as batches of matrices */
  limn_shape batch;
  int64_t rows, cols;
  bool vector;
} shape_matrix;

/* A vector is a row on the left (`right` false), a column on the right. */
static int shape_as_matrix(limn_context *c, const limn_type *t,
                           const limn_type *trans, bool right,
                           shape_matrix *m) {
  int n = t->shape.ndim;
  const int64_t *d = t->shape.d;
  bool swap;
  LIMN_TRY(limn_rule_bool(c, trans, right ? "trans_y" : "trans_x", false,
                          &swap));
  if (n == 0) {
    limn_fail(c, LIMN_ESHAPE, "a 0-dim operand");
    return limn_hint(c, LIMN_ESHAPE, "* multiplies by numbers");
  }
  m->vector = n == 1;
  m->batch = t->shape;
  m->batch.ndim = n > 2 ? n - 2 : 0;
  m->rows = n == 1 ? (right ? d[0] : 1) : d[n - 2];
  m->cols = n == 1 ? (right ? 1 : d[0]) : d[n - 1];
  if (swap && n > 1) {
    m->rows = d[n - 1];
    m->cols = d[n - 2];
  }
  return 0;
}

/* The one suggestion that fits: a transpose when that would do. */
static int shape_inner(limn_context *c, const shape_matrix *x,
                       const shape_matrix *y) {
  limn_fail(c, LIMN_ESHAPE, "the inner sizes differ: %lld and %lld",
            (long long)x->cols, (long long)y->rows);
  if (!y->vector && x->cols == y->cols)
    return limn_hint(c, LIMN_ESHAPE, "y:t() would fit");
  if (!x->vector && x->rows == y->rows)
    return limn_hint(c, LIMN_ESHAPE, "x:t() would fit");
  return limn_hint(c, LIMN_ESHAPE, "each row of x needs as many values as y "
                   "has rows");
}

static int shape_promote(limn_context *c, const limn_type *a, int n,
                         int *dtype) {
  int operand;
  if (limn_promote(a, n, LIMN_RULE_NUM, dtype, &operand) == 0) return 0;
  return limn_fail(c, LIMN_EARG, "no operand is a tensor or a number");
}

int infer_matmul(limn_context *c, const limn_type *a, limn_type *out) {
  limn_type t[2];
  shape_matrix x, y;
  limn_shape s;
  int dtype;
  LIMN_TRY(limn_rule_tensor(c, &a[0], "x", &t[0]));
  LIMN_TRY(limn_rule_tensor(c, &a[1], "y", &t[1]));
  LIMN_TRY(shape_as_matrix(c, &t[0], &a[2], false, &x));
  LIMN_TRY(shape_as_matrix(c, &t[1], &a[3], true, &y));
  if (x.cols != y.rows) return shape_inner(c, &x, &y);
  if (limn_shape_broadcast(c, &x.batch, &y.batch, &s) < 0)
    return limn_hint(c, LIMN_ESHAPE, "these are the dims before the last two; "
                     "sizes must be equal or 1");
  if (!x.vector) s.d[s.ndim++] = x.rows; /* at most 6 batch dims */
  if (!y.vector) s.d[s.ndim++] = y.cols;
  LIMN_TRY(shape_promote(c, t, 2, &dtype));
  if (dtype == LIMN_BOOL) {
    limn_fail(c, LIMN_EDTYPE, "no matrix product of bools");
    return limn_hint(c, LIMN_EDTYPE, "convert one with :to \"float32\"");
  }
  return limn_rule_result(c, dtype, &s, out);
}

int infer_outer(limn_context *c, const limn_type *a, limn_type *out) {
  limn_type t[2];
  limn_shape s = {2, {0}};
  char text[TEXT];
  int dtype;
  for (int i = 0; i < 2; i++) {
    const char *name = i ? "y" : "x";
    LIMN_TRY(limn_rule_tensor(c, &a[i], name, &t[i]));
    if (t[i].shape.ndim != 1)
      return limn_fail(c, LIMN_ESHAPE, "%s must be a vector, not %s", name,
                       shape_text(text, &t[i].shape));
    s.d[i] = t[i].shape.d[0];
  }
  LIMN_TRY(shape_promote(c, t, 2, &dtype));
  return limn_rule_result(c, dtype, &s, out);
}

/* -- Joined tensors -- */

static int shape_xs(limn_context *c, const limn_type *xs, limn_type *first) {
  if (xs->kind != LIMN_V_LIST)
    return limn_fail(c, LIMN_EARG, "a list of tensors is needed");
  if (xs->n == 0)
    return limn_fail(c, LIMN_EARG, "the list of tensors is empty");
  return limn_rule_tensor(c, &xs->list[0], "xs[1]", first);
}

/* Equal but for dim `free` (-1: none). */
static int shape_alike(limn_context *c, const limn_shape *a,
                       const limn_shape *b, int i, int free) {
  bool same = a->ndim == b->ndim;
  char ta[TEXT], tb[TEXT];
  for (int k = 0; same && k < a->ndim; k++)
    same = k == free || a->d[k] == b->d[k];
  if (same) return 0;
  if (free < 0)
    return limn_fail(c, LIMN_ESHAPE, "shapes differ: tensor 1 is %s, tensor "
                     "%d is %s", shape_text(ta, a), i + 1, shape_text(tb, b));
  return limn_fail(c, LIMN_ESHAPE, "shapes differ outside dim %d: tensor 1 is "
                   "%s, tensor %d is %s", free + 1, shape_text(ta, a), i + 1,
                   shape_text(tb, b));
}

int infer_cat(limn_context *c, const limn_type *a, limn_type *out) {
  limn_type first, x;
  int dim, dtype;
  LIMN_TRY(shape_xs(c, &a[0], &first));
  if (first.shape.ndim == 0) {
    limn_fail(c, LIMN_ESHAPE, "0-dim tensors have no dim to join along");
    return limn_hint(c, LIMN_ESHAPE, "stack joins them along a new dim");
  }
  LIMN_TRY(limn_rule_dim(c, &a[1], 1, first.shape.ndim, &dim));
  for (int i = 1; i < a[0].n; i++) {
    LIMN_TRY(limn_rule_tensor(c, &a[0].list[i], "an element of xs", &x));
    LIMN_TRY(shape_alike(c, &first.shape, &x.shape, i, dim));
    if (__builtin_add_overflow(first.shape.d[dim], x.shape.d[dim],
                               &first.shape.d[dim]))
      return limn_fail(c, LIMN_ESIZE, "dim %d gets too long", dim + 1);
  }
  LIMN_TRY(shape_promote(c, a[0].list, a[0].n, &dtype));
  return limn_rule_result(c, dtype, &first.shape, out);
}

/* s with a dim of size n put in at k. */
static int shape_insert(limn_context *c, limn_shape *s, int k, int64_t n) {
  if (s->ndim == LIMN_MAXDIM)
    return limn_fail(c, LIMN_ESHAPE, "tensors have at most %d dims",
                     LIMN_MAXDIM);
  memmove(s->d + k + 1, s->d + k, (size_t)(s->ndim - k) * sizeof s->d[0]);
  s->d[k] = n;
  s->ndim++;
  return 0;
}

int infer_stack(limn_context *c, const limn_type *a, limn_type *out) {
  limn_type first, x;
  int dim, dtype;
  LIMN_TRY(shape_xs(c, &a[0], &first));
  LIMN_TRY(limn_rule_dim(c, &a[1], 1, first.shape.ndim + 1, &dim));
  for (int i = 1; i < a[0].n; i++) {
    LIMN_TRY(limn_rule_tensor(c, &a[0].list[i], "an element of xs", &x));
    LIMN_TRY(shape_alike(c, &first.shape, &x.shape, i, -1));
  }
  LIMN_TRY(shape_insert(c, &first.shape, dim, a[0].n));
  LIMN_TRY(shape_promote(c, a[0].list, a[0].n, &dtype));
  return limn_rule_result(c, dtype, &first.shape, out);
}

/* -- Margins and repeats -- */

static int shape_grow(limn_context *c, limn_shape *s, int dim, int64_t by) {
  if (by < 0) {
    limn_fail(c, LIMN_ESIZE, "a margin of %lld", (long long)by);
    return limn_hint(c, LIMN_ESIZE, "cut with a range: x[{{2, -2}}]");
  }
  if (__builtin_add_overflow(s->d[dim], by, &s->d[dim]))
    return limn_fail(c, LIMN_ESIZE, "dim %d gets too long", dim + 1);
  return 0;
}

int infer_pad(limn_context *c, const limn_type *a, limn_type *out) {
  int64_t pads[2 * LIMN_MAXDIM];
  limn_type x;
  int n;
  LIMN_TRY(limn_rule_tensor(c, &a[0], "x", &x));
  LIMN_TRY(limn_rule_ints(c, &a[1], "pads", pads, &n));
  if (n % 2 || n > 2 * x.shape.ndim) {
    limn_fail(c, LIMN_ESHAPE, "%d margins for a tensor with %d dims", n,
              x.shape.ndim);
    return limn_hint(c, LIMN_ESHAPE, "give {before, after} of the last dim, "
                     "then of the one before it, and so on");
  }
  if (a[2].kind != LIMN_V_NONE && a[2].kind != LIMN_V_REAL &&
      a[2].kind != LIMN_V_INT)
    return limn_fail(c, LIMN_EARG, "value must be a number");
  if (a[3].kind == LIMN_V_STR && strcmp(a[3].s, "constant"))
    return limn_fail(c, LIMN_EARG, "there is no mode \"%s\": constant",
                     a[3].s);
  for (int i = 0; i < n; i++)
    LIMN_TRY(shape_grow(c, &x.shape, x.shape.ndim - 1 - i / 2, pads[i]));
  return limn_rule_result(c, x.dtype, &x.shape, out);
}

/* Missing counts or dims, at the front, are 1. */
int infer_tile(limn_context *c, const limn_type *a, limn_type *out) {
  limn_shape counts;
  limn_type x;
  LIMN_TRY(limn_rule_tensor(c, &a[0], "x", &x));
  LIMN_TRY(limn_rule_shape(c, &a[1], &counts));
  while (x.shape.ndim < counts.ndim)
    LIMN_TRY(shape_insert(c, &x.shape, 0, 1));
  for (int i = 0; i < counts.ndim; i++) {
    int64_t *d = &x.shape.d[x.shape.ndim - counts.ndim + i];
    if (counts.d[i] < 0)
      return limn_fail(c, LIMN_ESIZE, "a count of %lld",
                       (long long)counts.d[i]);
    if (__builtin_mul_overflow(*d, counts.d[i], d))
      return limn_fail(c, LIMN_ESIZE, "the result has more elements than fit");
  }
  return limn_rule_result(c, x.dtype, &x.shape, out);
}

/* -- Parts of x -- */

/* v must broadcast to s as it stands: leading dims of 1 are fine. */
static int shape_goes_into(limn_context *c, const limn_type *v,
                           const limn_shape *s) {
  limn_shape r = v->shape;
  char tv[TEXT], ts[TEXT];
  bool fits;
  while (r.ndim > s->ndim && r.d[0] == 1)
    memmove(r.d, r.d + 1, (size_t)--r.ndim * sizeof r.d[0]);
  fits = r.ndim <= s->ndim;
  for (int i = 0; fits && i < r.ndim; i++) {
    int64_t d = s->d[s->ndim - r.ndim + i];
    fits = r.d[i] == d || r.d[i] == 1;
  }
  if (fits) return 0;
  limn_fail(c, LIMN_ESHAPE, "a value of shape %s does not fit a part of "
            "shape %s", shape_text(tv, &v->shape), shape_text(ts, s));
  return limn_hint(c, LIMN_ESHAPE, "sizes must be equal or 1, counted from the "
                   "last dim");
}

int infer_update(limn_context *c, const limn_type *a, limn_type *out) {
  limn_type x, v;
  limn_view part;
  limn_shape s;
  LIMN_TRY(limn_rule_tensor(c, &a[0], "x", &x));
  LIMN_TRY(limn_rule_tensor(c, &a[1], "v", &v));
  limn_view_dense(&part, x.shape.ndim, x.shape.d);
  LIMN_TRY(limn_rule_slice(c, &a[2], &a[3], &a[4], &a[5], &part, &part));
  s.ndim = part.ndim;
  memcpy(s.d, part.d, sizeof s.d);
  LIMN_TRY(shape_goes_into(c, &v, &s));
  LIMN_TRY(limn_rule_holds(c, &a[1], x.dtype));
  *out = x;
  return 0;
}

/* x's shape with `dim` replaced by the dims of index. */
static int shape_indexed(limn_context *c, const limn_type *x, int dim,
                         const limn_type *index, limn_shape *out) {
  int n = x->shape.ndim, m = index->shape.ndim, k = 0;
  if (n - 1 + m > LIMN_MAXDIM)
    return limn_fail(c, LIMN_ESHAPE, "the result would have %d dims; %d are "
                     "possible", n - 1 + m, LIMN_MAXDIM);
  for (int i = 0; i < n; i++) {
    if (i != dim) out->d[k++] = x->shape.d[i];
    for (int j = 0; i == dim && j < m; j++) out->d[k++] = index->shape.d[j];
  }
  out->ndim = k;
  return 0;
}

/* x, dim and index of the four ops that take them in this order. */
static int shape_x_dim_index(limn_context *c, const limn_type *a, int base,
                             limn_type *x, int *dim, limn_type *index) {
  LIMN_TRY(limn_rule_tensor(c, &a[0], "x", x));
  LIMN_TRY(limn_rule_dim(c, &a[1], LIMN_MUST, x->shape.ndim, dim));
  return limn_rule_index(c, &a[2], &a[base], index);
}

/* What an index is called when it is out of range. */
static int shape_what(limn_context *c, const limn_type *t) {
  static const char *const names[] = {"index", "class", "label",
                                      "row", "position", "element"};
  if (t->kind != LIMN_V_STR) return 0;
  for (int i = 0; i < LIMN_COUNT(names); i++)
    if (!strcmp(t->s, names[i])) return 0;
  return limn_fail(c, LIMN_EARG, "what must be index, class, label, row, "
                   "position or element, not \"%s\"", t->s);
}

static int shape_some(limn_context *c, const limn_type *x, int dim,
                      const limn_type *index) {
  char text[TEXT];
  if (x->shape.d[dim] > 0 ||
      limn_numel(index->shape.ndim, index->shape.d) == 0)
    return 0;
  return limn_fail(c, LIMN_EINDEX, "dim %d of %s has no positions to take",
                   dim + 1, shape_text(text, &x->shape));
}

int infer_index_select(limn_context *c, const limn_type *a, limn_type *out) {
  limn_type x, index;
  limn_shape s;
  int dim;
  LIMN_TRY(shape_x_dim_index(c, a, 3, &x, &dim, &index));
  LIMN_TRY(shape_what(c, &a[4]));
  LIMN_TRY(shape_indexed(c, &x, dim, &index, &s));
  return limn_rule_result(c, x.dtype, &s, out);
}

/* index has x's dims and, outside `dim`, at most its sizes. */
static int shape_within(limn_context *c, const limn_type *x, int dim,
                        const limn_type *index) {
  char tx[TEXT], ti[TEXT];
  shape_text(tx, &x->shape);
  shape_text(ti, &index->shape);
  if (x->shape.ndim != index->shape.ndim)
    return limn_fail(c, LIMN_ESHAPE, "index %s must have as many dims as x %s",
                     ti, tx);
  for (int i = 0; i < x->shape.ndim; i++)
    if (i != dim && index->shape.d[i] > x->shape.d[i])
      return limn_fail(c, LIMN_ESHAPE, "index %s is larger than x %s in dim "
                       "%d", ti, tx, i + 1);
  return 0;
}

int infer_gather(limn_context *c, const limn_type *a, limn_type *out) {
  limn_type x, index;
  int dim;
  LIMN_TRY(shape_x_dim_index(c, a, 3, &x, &dim, &index));
  LIMN_TRY(shape_what(c, &a[4]));
  LIMN_TRY(shape_within(c, &x, dim, &index));
  return limn_rule_result(c, x.dtype, &index.shape, out);
}

static int shape_must_be(limn_context *c, const limn_type *v,
                         const limn_shape *want) {
  char tv[TEXT], tw[TEXT];
  if (limn_shape_eq(&v->shape, want)) return 0;
  return limn_fail(c, LIMN_ESHAPE, "v must have shape %s, not %s",
                   shape_text(tw, want), shape_text(tv, &v->shape));
}

int infer_index_add(limn_context *c, const limn_type *a, limn_type *out) {
  limn_type x, index, v;
  limn_shape s;
  int dim;
  LIMN_TRY(shape_x_dim_index(c, a, 4, &x, &dim, &index));
  LIMN_TRY(limn_rule_tensor(c, &a[3], "v", &v));
  LIMN_TRY(shape_some(c, &x, dim, &index));
  LIMN_TRY(shape_indexed(c, &x, dim, &index, &s));
  LIMN_TRY(shape_must_be(c, &v, &s));
  *out = x;
  return 0;
}

int infer_index_copy(limn_context *c, const limn_type *a, limn_type *out) {
  char tv[TEXT], ts[TEXT];
  limn_type x, index, v;
  limn_shape s, both;
  int dim;
  LIMN_TRY(shape_x_dim_index(c, a, 4, &x, &dim, &index));
  LIMN_TRY(limn_rule_tensor(c, &a[3], "v", &v));
  LIMN_TRY(shape_some(c, &x, dim, &index));
  LIMN_TRY(shape_indexed(c, &x, dim, &index, &s));
  if (v.shape.ndim > s.ndim ||
      limn_shape_broadcast(c, &s, &v.shape, &both) < 0 ||
      !limn_shape_eq(&both, &s))
    return limn_fail(c, LIMN_ESHAPE, "v of shape %s does not fit a part of "
                     "shape %s", shape_text(tv, &v.shape), shape_text(ts, &s));
  *out = x;
  return 0;
}

int infer_scatter(limn_context *c, const limn_type *a, limn_type *out) {
  limn_type x, index, v;
  int dim;
  LIMN_TRY(shape_x_dim_index(c, a, 4, &x, &dim, &index));
  LIMN_TRY(limn_rule_tensor(c, &a[3], "v", &v));
  LIMN_TRY(shape_within(c, &x, dim, &index));
  LIMN_TRY(shape_must_be(c, &v, &index.shape));
  *out = x;
  return 0;
}

/* -- Others -- */

int infer_one_hot(limn_context *c, const limn_type *a, limn_type *out) {
  limn_type x;
  int64_t n;
  LIMN_TRY(limn_rule_index(c, &a[0], &a[2], &x));
  LIMN_TRY(limn_rule_int(c, &a[1], "classes", LIMN_MUST, &n));
  LIMN_TRY(shape_insert(c, &x.shape, x.shape.ndim, n));
  return limn_rule_result(c, LIMN_I64, &x.shape, out);
}

int infer_eye(limn_context *c, const limn_type *a, limn_type *out) {
  limn_shape s = {2, {0}};
  int dtype;
  LIMN_TRY(limn_rule_int(c, &a[0], "n", LIMN_MUST, &s.d[0]));
  LIMN_TRY(limn_rule_int(c, &a[1], "m", s.d[0], &s.d[1]));
  LIMN_TRY(limn_rule_dtype(c, &a[2], LIMN_F32, &dtype));
  return limn_rule_result(c, dtype, &s, out);
}

int infer_masked_fill(limn_context *c, const limn_type *a, limn_type *out) {
  limn_type t[2], mask;
  limn_shape s;
  int dtype;
  LIMN_TRY(limn_rule_tensor(c, &a[0], "x", &t[0]));
  LIMN_TRY(limn_rule_tensor(c, &a[1], "mask", &mask));
  LIMN_TRY(limn_rule_tensor(c, &a[2], "value", &t[1]));
  if (mask.dtype != LIMN_BOOL) {
    limn_fail(c, LIMN_EDTYPE, "mask must be bool, not %s",
              limn_dtype_name(mask.dtype));
    return limn_hint(c, LIMN_EDTYPE, "compare: mask:ne(0)");
  }
  if (t[1].shape.ndim)
    return limn_fail(c, LIMN_ESHAPE, "value must be a number or a 0-dim "
                     "tensor");
  LIMN_TRY(limn_shape_broadcast(c, &t[0].shape, &mask.shape, &s));
  t[0] = a[0], t[1] = a[2]; /* numbers stay weak */
  LIMN_TRY(shape_promote(c, t, 2, &dtype));
  LIMN_TRY(limn_rule_holds(c, &a[2], dtype));
  return limn_rule_result(c, dtype, &s, out);
}
