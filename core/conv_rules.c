/* Shape rules of windows and convolutions: what fits, and how many windows
 * there are. */
#include "op_rules.h"

#define TEXT 256

/* n ints of at least `least` from a list, or the error. */
static int conv_ints(limn_context *c, const limn_type *t, const char *what,
                     int n, int64_t least, int64_t *out) {
  int64_t v[2 * LIMN_MAXDIM];
  int have;
  LIMN_TRY(limn_rule_ints(c, t, what, v, &have));
  if (have != n)
    return limn_fail(c, LIMN_ESHAPE, "%s has %d entries for %d dims", what,
                     have, n);
  for (int i = 0; i < n; i++) {
    if (v[i] < least)
      return limn_fail(c, LIMN_ESIZE, "%s is %lld; it is at least %lld", what,
                       (long long)v[i], (long long)least);
    out[i] = v[i];
  }
  return 0;
}

/* Positions that lie under a window: (kernel - 1) * dilation + 1. */
static int conv_span(limn_context *c, int64_t kernel, int64_t dilation,
                     int64_t *span) {
  if (!__builtin_mul_overflow(kernel - 1, dilation, span) &&
      *span < INT64_MAX / 4) {
    ++*span;
    return 0;
  }
  return limn_fail(c, LIMN_ESIZE, "a window of %lld with dilation %lld is too "
                   "long", (long long)kernel, (long long)dilation);
}

/* How many windows fit into `size` positions. */
static int conv_count(limn_context *c, int64_t size, int64_t kernel,
                      int64_t stride, int64_t dilation, int dim, bool padded,
                      int64_t *out) {
  int64_t span;
  LIMN_TRY(conv_span(c, kernel, dilation, &span));
  if (span <= size) {
    *out = (size - span) / stride + 1;
    return 0;
  }
  limn_fail(c, LIMN_ESHAPE, "a window of %lld does not fit into dim %d, whose "
            "size is %lld%s", (long long)span, dim + 1, (long long)size,
            padded ? " with its margins" : "");
  return limn_hint(c, LIMN_ESHAPE, dilation > 1
                   ? "a smaller kernel or dilation, or a larger input"
                   : "a smaller kernel, more padding, or a larger input");
}

/* Arguments x kernel stride dilation: [..., n counts, n kernels]. */
int view_windows(limn_context *c, const limn_type *a, const limn_view *in,
                 limn_view *out) {
  int64_t k[2 * LIMN_MAXDIM], s[LIMN_MAXDIM], d[LIMN_MAXDIM];
  limn_view r = *in;
  int n, at;
  LIMN_TRY(limn_rule_ints(c, &a[1], "kernel", k, &n));
  if (n < 1 || n > in->ndim || n + in->ndim > LIMN_MAXDIM)
    return limn_fail(c, LIMN_ESHAPE, "windows over %d dims of a tensor with "
                     "%d; at most %d dims in all are possible", n, in->ndim,
                     LIMN_MAXDIM);
  LIMN_TRY(conv_ints(c, &a[1], "kernel", n, 1, k));
  LIMN_TRY(conv_ints(c, &a[2], "stride", n, 1, s));
  LIMN_TRY(conv_ints(c, &a[3], "dilation", n, 1, d));
  at = in->ndim - n;
  r.ndim += n;
  for (int i = 0; i < n; i++, at++) {
    LIMN_TRY(conv_count(c, in->d[at], k[i], s[i], d[i], at, false, &r.d[at]));
    /* A stride that is never taken may not fit. */
    if (r.d[at] > 1) r.s[at] = in->s[at] * s[i];
    r.d[in->ndim + i] = k[i];
    r.s[in->ndim + i] = k[i] > 1 ? in->s[at] * d[i] : in->s[at];
  }
  *out = r;
  return 0;
}

typedef struct {
  limn_conv how;
  limn_type x, w;
} conv_call;

static int conv_ranks(limn_context *c, const conv_call *k) {
  char tx[TEXT], tw[TEXT];
  int n = k->how.n;
  if (n >= 1 && k->x.shape.ndim == n + 2 && k->w.shape.ndim == n + 2) return 0;
  return limn_fail(c, LIMN_ESHAPE, "x and w must have %d dims, rows and "
                   "channels first: x is %s, w is %s", n + 2,
                   limn_shape_text(tx, TEXT, k->x.shape.ndim, k->x.shape.d),
                   limn_shape_text(tw, TEXT, k->w.shape.ndim, k->w.shape.d));
}

/* x has `in` channels where w has `takes`; w's dim 1 and those are shared out
 * among the groups. */
static int conv_channels(limn_context *c, const conv_call *k, int64_t takes) {
  int64_t in = k->x.shape.d[1], first = k->w.shape.d[0];
  int64_t groups = k->how.groups;
  char tx[TEXT], tw[TEXT];
  limn_shape_text(tx, TEXT, k->x.shape.ndim, k->x.shape.d);
  limn_shape_text(tw, TEXT, k->w.shape.ndim, k->w.shape.d);
  if (in % groups || first % groups) {
    int64_t odd = in % groups ? in : first;
    return limn_fail(c, LIMN_ESHAPE, "%lld channels cannot be shared out "
                     "among %lld groups: x is %s, w is %s", (long long)odd,
                     (long long)groups, tx, tw);
  }
  if (in == takes) return 0;
  limn_fail(c, LIMN_ESHAPE, "x has %lld channels where w takes %lld: x is %s, "
            "w is %s", (long long)in, (long long)takes, tx, tw);
  return limn_hint(c, LIMN_ESHAPE, "channels are dim 2 of x; permute moves "
                   "them there");
}

int limn_rule_conv(limn_context *c, int op, const limn_type *a,
                   limn_conv *k) {
  const limn_type *stride = &a[limn_op_param(op, "stride")], *padding;
  const limn_type *dilation = &a[limn_op_param(op, "dilation")];
  int64_t v[2 * LIMN_MAXDIM];
  padding = stride + 1;
  LIMN_TRY(limn_rule_ints(c, stride, "stride", v, &k->n));
  k->n = LIMN_MIN(k->n, LIMN_MAXDIM);
  LIMN_TRY(conv_ints(c, stride, "stride", k->n, 1, k->stride));
  LIMN_TRY(conv_ints(c, padding, "padding", k->n, 0, k->padding));
  LIMN_TRY(conv_ints(c, dilation, "dilation", k->n, 1, k->dilation));
  LIMN_TRY(limn_rule_int(c, dilation + 1, "groups", 1, &k->groups));
  for (int i = 0; i < k->n; i++)
    if (k->padding[i] > INT64_MAX / 8)
      return limn_fail(c, LIMN_ESIZE, "padding is too large");
  if (k->groups >= 1) return 0;
  return limn_fail(c, LIMN_ESIZE, "groups is %lld; it is at least 1",
                   (long long)k->groups);
}

static int conv_call_read(limn_context *c, int op, const limn_type *a,
                          conv_call *k) {
  int64_t v[2 * LIMN_MAXDIM];
  LIMN_TRY(limn_rule_tensor(c, &a[0], "x", &k->x));
  LIMN_TRY(limn_rule_tensor(c, &a[1], "w", &k->w));
  LIMN_TRY(limn_rule_ints(c, &a[2], "stride", v, &k->how.n));
  LIMN_TRY(conv_ranks(c, k));
  return limn_rule_conv(c, op, a, &k->how);
}

static int conv_result(limn_context *c, const conv_call *k,
                       const limn_shape *s, limn_type *out) {
  limn_type t[2] = {k->x, k->w};
  int dtype, operand;
  LIMN_TRY(limn_promote(t, 2, LIMN_RULE_NUM, &dtype, &operand));
  if (dtype == LIMN_BOOL) {
    limn_fail(c, LIMN_EDTYPE, "no convolution of bools");
    return limn_hint(c, LIMN_EDTYPE, "convert one with :to \"float32\"");
  }
  return limn_rule_result(c, dtype, s, out);
}

static int conv_kernel(limn_context *c, int64_t size, int i) {
  if (size >= 1) return 0;
  return limn_fail(c, LIMN_ESHAPE, "dim %d of w has size 0", i + 3);
}

/* Arguments x w stride padding dilation groups; w is [out, in / groups,
 * kernel...]. */
int infer_conv(limn_context *c, const limn_type *a, limn_type *out) {
  conv_call k;
  limn_shape s;
  int64_t takes;
  LIMN_TRY(conv_call_read(c, OP_conv, a, &k));
  if (__builtin_mul_overflow(k.w.shape.d[1], k.how.groups, &takes))
    return limn_fail(c, LIMN_ESIZE, "groups is too large");
  LIMN_TRY(conv_channels(c, &k, takes));
  s.ndim = k.how.n + 2;
  s.d[0] = k.x.shape.d[0], s.d[1] = k.w.shape.d[0];
  for (int i = 0; i < k.how.n; i++) {
    int64_t size = k.x.shape.d[i + 2], kernel = k.w.shape.d[i + 2];
    LIMN_TRY(conv_kernel(c, kernel, i));
    LIMN_TRY(conv_count(c, size + 2 * k.how.padding[i], kernel,
                        k.how.stride[i], k.how.dilation[i], i + 2, true,
                        &s.d[i + 2]));
  }
  return conv_result(c, &k, &s, out);
}

/* Arguments x g w stride padding dilation groups: as conv of x and w, whose
 * result has g's shape. */
int infer_conv_weights(limn_context *c, const limn_type *a, limn_type *out) {
  limn_type conv[6], g;
  conv_call k = {.w = a[2]};
  conv[0] = a[0], conv[1] = a[2];
  for (int i = 2; i < 6; i++) conv[i] = a[i + 1];
  LIMN_TRY(limn_rule_tensor(c, &a[1], "g", &g));
  LIMN_TRY(limn_rule_tensor(c, &a[0], "x", &k.x));
  LIMN_TRY(infer_conv(c, conv, out));
  if (!limn_shape_eq(&g.shape, &out->shape)) {
    char tg[TEXT], ty[TEXT];
    return limn_fail(c, LIMN_ESHAPE, "g is %s where conv gives %s",
                     limn_shape_text(tg, TEXT, g.shape.ndim, g.shape.d),
                     limn_shape_text(ty, TEXT, out->shape.ndim,
                                     out->shape.d));
  }
  k.w.dtype = g.dtype;
  return conv_result(c, &k, &a[2].shape, out);
}

/* (size - 1) * stride - 2 * padding + span + output_padding. */
static int conv_grown(limn_context *c, const conv_call *k, int i, int64_t more,
                      int64_t *out) {
  int64_t size = k->x.shape.d[i + 2], kernel = k->w.shape.d[i + 2], span, n;
  LIMN_TRY(conv_kernel(c, kernel, i));
  LIMN_TRY(conv_span(c, kernel, k->how.dilation[i], &span));
  if (more >= LIMN_MAX(k->how.stride[i], k->how.dilation[i]))
    return limn_fail(c, LIMN_ESIZE, "output_padding is %lld; it is less than "
                     "the stride or the dilation", (long long)more);
  if (size < 1)
    return limn_fail(c, LIMN_ESHAPE, "dim %d of x has size 0", i + 3);
  if (__builtin_mul_overflow(size - 1, k->how.stride[i], &n) ||
      n > INT64_MAX / 4)
    return limn_fail(c, LIMN_ESIZE, "dim %d gets too long", i + 3);
  *out = n - 2 * k->how.padding[i] + span + more;
  if (*out >= 1) return 0;
  return limn_fail(c, LIMN_ESHAPE, "padding of %lld leaves nothing of dim %d",
                   (long long)k->how.padding[i], i + 3);
}

/* Arguments x w stride padding output_padding dilation groups; w is [in,
 * out / groups, kernel...]. */
int infer_conv_transpose(limn_context *c, const limn_type *a,
                         limn_type *out) {
  conv_call k;
  limn_shape s;
  int64_t more[LIMN_MAXDIM];
  LIMN_TRY(conv_call_read(c, OP_conv_transpose, a, &k));
  LIMN_TRY(conv_ints(c, &a[4], "output_padding", k.how.n, 0, more));
  LIMN_TRY(conv_channels(c, &k, k.w.shape.d[0]));
  s.ndim = k.how.n + 2;
  s.d[0] = k.x.shape.d[0];
  if (__builtin_mul_overflow(k.w.shape.d[1], k.how.groups, &s.d[1]))
    return limn_fail(c, LIMN_ESIZE, "groups is too large");
  for (int i = 0; i < k.how.n; i++)
    LIMN_TRY(conv_grown(c, &k, i, more[i], &s.d[i + 2]));
  return conv_result(c, &k, &s, out);
}
