/* Shapes and views: sizes, broadcasting, and the algebra of strides. */
#include <stdio.h>

#include "tensor.h"

int64_t limn_numel(int ndim, const int64_t *d) {
  int64_t n = 1;
  int i;
  for (i = 0; i < ndim; i++) n *= d[i];
  return n;
}

/* Dims of 0 count as 1 in the check, so that strides fit int64 as well. */
int limn_shape_bytes(limn_context *c, const limn_shape *s, int dtype,
                     int64_t *numel, int64_t *bytes) {
  int64_t n = 1, size = 0;
  bool empty = false, over = false;
  char text[256];
  int i;
  for (i = 0; i < s->ndim; i++) {
    if (s->d[i] < 0)
      return limn_fail(c, LIMN_ESIZE, "dim %d of %s is negative", i + 1,
                       limn_shape_text(text, sizeof text, s->ndim, s->d));
    empty |= s->d[i] == 0;
    over |= __builtin_mul_overflow(n, LIMN_MAX(s->d[i], 1), &n);
  }
  over |= __builtin_mul_overflow(n, (int64_t)limn_dtype_size(dtype), &size);
  if (over || size > PTRDIFF_MAX)
    return limn_fail(c, LIMN_ESIZE, "a %s tensor of shape %s is too large",
                     limn_dtype_name(dtype),
                     limn_shape_text(text, sizeof text, s->ndim, s->d));
  *numel = empty ? 0 : n;
  *bytes = empty ? 0 : size;
  return 0;
}

bool limn_shape_eq(const limn_shape *a, const limn_shape *b) {
  int i;
  if (a->ndim != b->ndim) return false;
  for (i = 0; i < a->ndim; i++)
    if (a->d[i] != b->d[i]) return false;
  return true;
}

/* Size of the dim that is the i-th of n when s is padded on the left. */
static int64_t shape_dim(const limn_shape *s, int n, int i) {
  int k = i - (n - s->ndim);
  return k < 0 ? 1 : s->d[k];
}

int limn_shape_broadcast(limn_context *c, const limn_shape *a,
                         const limn_shape *b, limn_shape *out) {
  limn_shape r;
  char ta[256], tb[256];
  int i;
  r.ndim = LIMN_MAX(a->ndim, b->ndim);
  for (i = 0; i < r.ndim; i++) {
    int64_t x = shape_dim(a, r.ndim, i), y = shape_dim(b, r.ndim, i);
    if (x != y && x != 1 && y != 1)
      return limn_fail(c, LIMN_ESHAPE,
                       "shapes %s and %s do not fit: %lld and %lld in dim %d",
                       limn_shape_text(ta, sizeof ta, a->ndim, a->d),
                       limn_shape_text(tb, sizeof tb, b->ndim, b->d),
                       (long long)x, (long long)y, i - r.ndim);
    r.d[i] = x == 1 ? y : x;
  }
  *out = r;
  return 0;
}

void limn_view_dense(limn_view *v, int ndim, const int64_t *d) {
  int64_t step = 1;
  int i;
  v->ndim = ndim;
  v->offset = 0;
  for (i = ndim - 1; i >= 0; i--) {
    v->d[i] = d[i];
    v->s[i] = step;
    step *= LIMN_MAX(d[i], 1);
  }
}

/* The stride of a dim of 1 is never used, and an empty view is dense. */
bool limn_view_is_dense(const limn_view *v) {
  int64_t step = 1;
  bool dense = true;
  int i;
  for (i = v->ndim - 1; i >= 0; i--) {
    if (v->d[i] == 0) return true;
    if (v->d[i] != 1 && v->s[i] != step) dense = false;
    step *= v->d[i];
  }
  return dense;
}

/* 1. Merge what is contiguous in v, so that its dims are maximal runs.
 * 2. Walk both from the last dim: a new dim must lie within one run.
 * 3. Where a run is used up, go to the next one. */
bool limn_view_reshape(const limn_view *v, const limn_shape *s,
                       limn_view *out) {
  limn_view runs = *v, *one = &runs, r;
  int64_t left = 1, step = 1; /* of the current run */
  int i, k;
  if (limn_numel(v->ndim, v->d) != limn_numel(s->ndim, s->d)) return false;
  limn_view_dense(&r, s->ndim, s->d);
  r.offset = v->offset;
  if (limn_numel(s->ndim, s->d) > 0) {
    limn_view_collapse(&one, 1);
    for (i = s->ndim - 1, k = runs.ndim; i >= 0; i--) {
      if (s->d[i] == 1) continue;
      if (left == 1) {
        left = runs.d[--k];
        step = runs.s[k];
      }
      if (left % s->d[i]) return false;
      r.s[i] = step;
      left /= s->d[i];
      step *= s->d[i];
    }
  }
  *out = r;
  return true;
}

void limn_view_broadcast(const limn_view *v, const limn_shape *s,
                         limn_view *out) {
  limn_view r;
  int i;
  r.ndim = s->ndim;
  r.offset = v->offset;
  for (i = 0; i < s->ndim; i++) {
    int k = i - (s->ndim - v->ndim);
    r.d[i] = s->d[i];
    r.s[i] = k < 0 || (v->d[k] == 1 && s->d[i] != 1) ? 0 : v->s[k];
  }
  *out = r;
}

/* The dims by rising stride: each must step over all that the others reach. */
bool limn_view_distinct(const limn_view *v) {
  bool done[LIMN_MAXDIM] = {0};
  int64_t span = 0; /* how far the dims with smaller strides reach */
  for (int k = 0; k < v->ndim; k++) {
    int64_t step = INT64_MAX;
    int at = -1;
    for (int i = 0; i < v->ndim; i++) {
      int64_t s = v->s[i] < 0 ? -v->s[i] : v->s[i];
      if (!done[i] && v->d[i] > 1 && s < step) step = s, at = i;
    }
    if (at < 0) break;
    if (step <= span) return false;
    span += (v->d[at] - 1) * step;
    done[at] = true;
  }
  return true;
}

/* An empty view touches nothing: hi is lo - 1. */
void limn_view_extent(const limn_view *v, int64_t *lo, int64_t *hi) {
  int i;
  *lo = *hi = v->offset;
  for (i = 0; i < v->ndim; i++) {
    int64_t span = (v->d[i] - 1) * v->s[i];
    if (v->d[i] == 0) {
      *lo = v->offset;
      *hi = v->offset - 1;
      return;
    }
    if (span < 0)
      *lo += span;
    else
      *hi += span;
  }
}

/* May dim k (already final) swallow dim i behind it, in every view? */
static bool view_merges(limn_view **views, int n, int k, int i) {
  int j;
  for (j = 0; j < n; j++)
    if (views[j]->s[k] != views[j]->s[i] * views[j]->d[i]) return false;
  return true;
}

void limn_view_collapse(limn_view **views, int n) {
  int ndim = n ? views[0]->ndim : 0, k = 0, i, j; /* k: dims kept so far */
  for (i = 0; i < ndim; i++) {
    bool merge;
    if (views[0]->d[i] == 1) continue;
    merge = k > 0 && view_merges(views, n, k - 1, i);
    for (j = 0; j < n; j++) {
      limn_view *v = views[j];
      v->d[k - merge] = v->d[i] * (merge ? v->d[k - 1] : 1);
      v->s[k - merge] = v->s[i];
    }
    k += !merge;
  }
  for (j = 0; j < n; j++) views[j]->ndim = k;
}

/* A text that does not fit is cut. */
const char *limn_shape_text(char *buf, size_t n, int ndim, const int64_t *d) {
  size_t len = 0;
  int i;
  if (n) buf[0] = 0;
  for (i = 0; i <= ndim && len < n; i++) {
    if (i < ndim)
      len += (size_t)snprintf(buf + len, n - len, i ? ", %lld" : "[%lld",
                              (long long)d[i]);
    else
      len += (size_t)snprintf(buf + len, n - len, i ? "]" : "[]");
  }
  return buf;
}
