/* View rules: how V rows map shape, strides and offset. A rule reads only
 * in->ndim, d, s and offset, so it serves inference (on a dense view) and
 * eager views alike. `in` and `out` may be the same. */
#include "op_rules.h"

#define TEXT 256

static const char *view_text(char *buf, int ndim, const int64_t *d) {
  return limn_shape_text(buf, TEXT, ndim, d);
}

/* -- Shapes of the same elements -- */

/* 0 as a view, 1 when elements must move: *out is then dense. */
static int view_to_shape(const limn_view *in, const limn_shape *s,
                         limn_view *out) {
  limn_view r;
  if (limn_view_reshape(in, s, &r)) {
    *out = r;
    return 0;
  }
  limn_view_dense(out, s->ndim, s->d);
  return 1;
}

static int view_misfit(limn_context *c, const limn_view *in,
                       const limn_shape *s, int64_t want) {
  char a[TEXT], b[TEXT];
  return limn_fail(c, LIMN_ESHAPE,
                   "cannot view %s (%lld elements) as %s (%lld elements)",
                   view_text(a, in->ndim, in->d),
                   (long long)limn_numel(in->ndim, in->d),
                   view_text(b, s->ndim, s->d), (long long)want);
}

/* Number of elements of s without its -1 (whose place goes to *hole). Strides
 * must fit as well, so the check for overflow counts dims of 0 as 1. */
static int view_count(limn_context *c, const limn_shape *s, int *hole,
                      int64_t *n) {
  char text[TEXT];
  int64_t span = 1;
  *hole = -1, *n = 1;
  for (int i = 0; i < s->ndim; i++) {
    if (s->d[i] == -1 && *hole >= 0)
      return limn_fail(c, LIMN_ESHAPE, "%s has more than one -1",
                       view_text(text, s->ndim, s->d));
    if (s->d[i] < -1)
      return limn_fail(c, LIMN_ESIZE, "size %lld of dim %d is negative",
                       (long long)s->d[i], i + 1);
    if (s->d[i] == -1) {
      *hole = i;
      continue;
    }
    if (__builtin_mul_overflow(span, LIMN_MAX(s->d[i], 1), &span))
      return limn_fail(c, LIMN_ESIZE, "a tensor of %s has more elements than "
                       "fit", view_text(text, s->ndim, s->d));
    *n *= s->d[i]; /* at most span */
  }
  return 0;
}

/* The size of the -1, if there is one, and the check that the shape fits. */
static int view_fill(limn_context *c, const limn_view *in, limn_shape *s) {
  int64_t have = limn_numel(in->ndim, in->d), n;
  char a[TEXT], b[TEXT];
  int hole;
  LIMN_TRY(view_count(c, s, &hole, &n));
  if (hole < 0) return n == have ? 0 : view_misfit(c, in, s, n);
  if (n == 0)
    return limn_fail(c, LIMN_ESHAPE, "cannot tell what -1 stands for in %s",
                     view_text(b, s->ndim, s->d));
  if (have % n)
    return limn_fail(c, LIMN_ESHAPE, "cannot view %s (%lld elements) as %s: "
                     "%lld is not a multiple of %lld",
                     view_text(a, in->ndim, in->d), (long long)have,
                     view_text(b, s->ndim, s->d), (long long)have,
                     (long long)n);
  s->d[hole] = have / n;
  return 0;
}

int view_reshape(limn_context *c, const limn_type *a, const limn_view *in,
                 limn_view *out) {
  limn_shape s;
  LIMN_TRY(limn_rule_shape(c, &a[1], &s));
  LIMN_TRY(view_fill(c, in, &s));
  return view_to_shape(in, &s, out);
}

int view_reshape_like(limn_context *c, const limn_type *a,
                      const limn_view *in, limn_view *out) {
  limn_type like;
  int64_t n;
  LIMN_TRY(limn_rule_tensor(c, &a[1], "like", &like));
  n = limn_numel(like.shape.ndim, like.shape.d);
  if (n != limn_numel(in->ndim, in->d))
    return view_misfit(c, in, &like.shape, n);
  return view_to_shape(in, &like.shape, out);
}

/* A 0-dim tensor becomes one of one element. */
int view_flatten(limn_context *c, const limn_type *a, const limn_view *in,
                 limn_view *out) {
  limn_shape s = {1, {1}};
  int first, last;
  if (in->ndim == 0) return view_to_shape(in, &s, out);
  LIMN_TRY(limn_rule_dim(c, &a[1], 1, in->ndim, &first));
  LIMN_TRY(limn_rule_dim(c, &a[2], -1, in->ndim, &last));
  if (first > last)
    return limn_fail(c, LIMN_ESHAPE, "first dim %d comes after last dim %d",
                     first + 1, last + 1);
  s.ndim = 0;
  for (int i = 0; i < in->ndim; i++) {
    if (i > first && i <= last)
      s.d[s.ndim - 1] *= in->d[i];
    else
      s.d[s.ndim++] = in->d[i];
  }
  return view_to_shape(in, &s, out);
}

/* -- Dims moved, added, dropped -- */

int view_permute(limn_context *c, const limn_type *a, const limn_view *in,
                 limn_view *out) {
  limn_view r = *in;
  int d[2 * LIMN_MAXDIM], n;
  LIMN_TRY(limn_rule_dims(c, &a[1], in->ndim, d, &n));
  if (n != in->ndim) {
    limn_fail(c, LIMN_ESHAPE, "%d dims named of a tensor with %d", n,
              in->ndim);
    return limn_hint(c, LIMN_ESHAPE, "permute names every dim once; transpose "
                     "exchanges two");
  }
  for (int i = 0; i < n; i++) {
    r.d[i] = in->d[d[i]];
    r.s[i] = in->s[d[i]];
  }
  *out = r;
  return 0;
}

int view_transpose(limn_context *c, const limn_type *a, const limn_view *in,
                   limn_view *out) {
  limn_view r = *in;
  int i, j;
  LIMN_TRY(limn_rule_dim(c, &a[1], LIMN_MUST, in->ndim, &i));
  LIMN_TRY(limn_rule_dim(c, &a[2], LIMN_MUST, in->ndim, &j));
  r.d[i] = in->d[j], r.s[i] = in->s[j];
  r.d[j] = in->d[i], r.s[j] = in->s[i];
  *out = r;
  return 0;
}

/* Drops the dims in mask. */
static void view_drop(const limn_view *in, const bool *mask, limn_view *out) {
  limn_view r = *in;
  r.ndim = 0;
  for (int i = 0; i < in->ndim; i++) {
    if (mask[i]) continue;
    r.d[r.ndim] = in->d[i];
    r.s[r.ndim++] = in->s[i];
  }
  *out = r;
}

int view_squeeze(limn_context *c, const limn_type *a, const limn_view *in,
                 limn_view *out) {
  bool mask[LIMN_MAXDIM] = {0};
  int d[2 * LIMN_MAXDIM], n;
  char text[TEXT];
  LIMN_TRY(limn_rule_dims(c, &a[1], in->ndim, d, &n));
  for (int i = 0; i < n; i++) {
    mask[d[i]] = true;
    if (in->d[d[i]] == 1) continue;
    limn_fail(c, LIMN_ESHAPE, "dim %d of %s has size %lld, not 1", d[i] + 1,
              view_text(text, in->ndim, in->d), (long long)in->d[d[i]]);
    return limn_hint(c, LIMN_ESHAPE, "only dims of size 1 can be dropped; "
                     "select one position, or flatten");
  }
  view_drop(in, mask, out);
  return 0;
}

/* The new dim's stride is that of a dense tensor. */
int view_unsqueeze(limn_context *c, const limn_type *a, const limn_view *in,
                   limn_view *out) {
  limn_view r = *in;
  int k;
  if (in->ndim == LIMN_MAXDIM)
    return limn_fail(c, LIMN_ESHAPE, "tensors have at most %d dims",
                     LIMN_MAXDIM);
  LIMN_TRY(limn_rule_dim(c, &a[1], LIMN_MUST, in->ndim + 1, &k));
  for (int i = in->ndim; i > k; i--) {
    r.d[i] = in->d[i - 1];
    r.s[i] = in->s[i - 1];
  }
  r.ndim = in->ndim + 1;
  r.s[k] = k < in->ndim ? in->s[k] * LIMN_MAX(in->d[k], 1) : 1;
  r.d[k] = 1;
  *out = r;
  return 0;
}

int view_flip(limn_context *c, const limn_type *a, const limn_view *in,
              limn_view *out) {
  int d[2 * LIMN_MAXDIM], n;
  LIMN_TRY(limn_rule_dims(c, &a[1], in->ndim, d, &n));
  *out = *in;
  for (int i = 0; i < n; i++) {
    if (in->d[d[i]] > 0) out->offset += (in->d[d[i]] - 1) * out->s[d[i]];
    out->s[d[i]] = -out->s[d[i]];
  }
  return 0;
}

/* -- Repeated dims -- */

static int view_no_expand(limn_context *c, const limn_view *in,
                          const limn_shape *s, int i) {
  char a[TEXT], b[TEXT];
  int k = i - (s->ndim - in->ndim);
  limn_fail(c, LIMN_ESHAPE, "cannot expand %s to %s: dim %d has size %lld, "
            "not 1", view_text(a, in->ndim, in->d),
            view_text(b, s->ndim, s->d), k + 1, (long long)in->d[k]);
  return limn_hint(c, LIMN_ESHAPE, "only dims of size 1 are repeated; tile "
                   "repeats others");
}

static int view_expand_to(limn_context *c, const limn_view *in, limn_shape *s,
                          limn_view *out) {
  int new = s->ndim - in->ndim; /* dims added in front */
  char a[TEXT], b[TEXT];
  limn_type checked;
  if (new < 0)
    return limn_fail(c, LIMN_ESHAPE, "cannot expand %s to %s, which has fewer "
                     "dims", view_text(a, in->ndim, in->d),
                     view_text(b, s->ndim, s->d));
  for (int i = 0; i < s->ndim; i++) {
    if (s->d[i] == -1 && i >= new) s->d[i] = in->d[i - new];
    if (s->d[i] < 0)
      return limn_fail(c, LIMN_ESIZE, "size %lld of dim %d is negative",
                       (long long)s->d[i], i + 1);
    if (i >= new && in->d[i - new] != 1 && in->d[i - new] != s->d[i])
      return view_no_expand(c, in, s, i);
  }
  /* As float64, because the dtype may become any. */
  LIMN_TRY(limn_rule_result(c, LIMN_F64, s, &checked));
  limn_view_broadcast(in, s, out);
  return 0;
}

int view_expand(limn_context *c, const limn_type *a, const limn_view *in,
                limn_view *out) {
  limn_shape s;
  LIMN_TRY(limn_rule_shape(c, &a[1], &s));
  return view_expand_to(c, in, &s, out);
}

int view_expand_like(limn_context *c, const limn_type *a, const limn_view *in,
                     limn_view *out) {
  limn_type like;
  LIMN_TRY(limn_rule_tensor(c, &a[1], "like", &like));
  return view_expand_to(c, in, &like.shape, out);
}

/* -- Ranges -- */

static int view_range_fail(limn_context *c, int64_t n, int64_t first,
                           int64_t last, int dim) {
  if (first == last)
    limn_fail(c, LIMN_EINDEX, "position %lld is out of range: dim %d has "
              "size %lld", (long long)first, dim, (long long)n);
  else
    limn_fail(c, LIMN_EINDEX, "range {%lld, %lld} is out of range: dim %d has "
              "size %lld", (long long)first, (long long)last, dim,
              (long long)n);
  if (first == 0)
    return limn_hint(c, LIMN_EINDEX, "positions count from 1; -1 is the last");
  return LIMN_EINDEX;
}

/* Positions of a dim of size n, from 1; negative ones count from the end, and
 * {k + 1, k} is empty for every k from 0 to n. */
int limn_range(limn_context *c, int64_t n, int64_t first, int64_t last,
               int64_t step, int dim, int64_t *start, int64_t *count) {
  int64_t f = first < 0 ? first + n + 1 : first;
  int64_t l = last < 0 ? last + n + 1 : last;
  *start = *count = 0;
  if (step < 1) {
    limn_fail(c, LIMN_EARG, "step %lld in dim %d: a step is at least 1",
              (long long)step, dim);
    return limn_hint(c, LIMN_EARG, "flip the dim to go backwards");
  }
  if (f < 1 || f > n + 1 || l < 0 || l > n)
    return view_range_fail(c, n, first, last, dim);
  if (l < f - 1) {
    limn_fail(c, LIMN_EINDEX, "range {%lld, %lld} runs backwards in dim %d "
              "of size %lld", (long long)first, (long long)last, dim,
              (long long)n);
    return limn_hint(c, LIMN_EINDEX, "{k + 1, k} is the empty range");
  }
  if (l == f - 1) return 0;
  *start = f - 1;
  *count = (l - f) / step + 1;
  return 0;
}

/* Fewer entries than dims leave the rest whole. */
static int view_range_list(limn_context *c, const limn_type *t,
                           const char *what, int64_t rest, int ndim,
                           int64_t *out) {
  int64_t v[2 * LIMN_MAXDIM];
  int n = 0;
  if (t->kind != LIMN_V_NONE) LIMN_TRY(limn_rule_ints(c, t, what, v, &n));
  if (n > ndim)
    return limn_fail(c, LIMN_ESHAPE, "%d positions for a tensor with %d dim%s",
                     n, ndim, ndim == 1 ? "" : "s");
  for (int i = 0; i < ndim; i++) out[i] = i < n ? v[i] : rest;
  return 0;
}

int limn_rule_slice(limn_context *c, const limn_type *first,
                    const limn_type *last, const limn_type *step,
                    const limn_type *drop, const limn_view *in,
                    limn_view *out) {
  int64_t f[LIMN_MAXDIM], l[LIMN_MAXDIM], s[LIMN_MAXDIM], start, count;
  bool mask[LIMN_MAXDIM] = {0};
  limn_view r = *in;
  LIMN_TRY(view_range_list(c, first, "first", 1, in->ndim, f));
  LIMN_TRY(view_range_list(c, last, "last", -1, in->ndim, l));
  LIMN_TRY(view_range_list(c, step, "step", 1, in->ndim, s));
  if (drop->kind != LIMN_V_NONE)
    LIMN_TRY(limn_dims_mask(c, drop, in->ndim, mask));
  for (int i = 0; i < in->ndim; i++) {
    LIMN_TRY(limn_range(c, in->d[i], f[i], l[i], s[i], i + 1, &start,
                        &count));
    if (mask[i] && count != 1)
      return f[i] == l[i] ? view_range_fail(c, in->d[i], f[i], l[i], i + 1)
                          : limn_fail(c, LIMN_ESHAPE, "range {%lld, %lld} of "
                                      "dim %d is not one position",
                                      (long long)f[i], (long long)l[i], i + 1);
    r.offset += start * in->s[i];
    r.d[i] = count;
    if (count > 1) r.s[i] = in->s[i] * s[i];
  }
  view_drop(&r, mask, out);
  return 0;
}

int view_slice(limn_context *c, const limn_type *a, const limn_view *in,
               limn_view *out) {
  return limn_rule_slice(c, &a[1], &a[2], &a[3], &a[4], in, out);
}
