/* Convolution: the products of windows with weights, and their gradients. n is
 * the number of dims a window extends over.
 *
 * Where a device has no kernel for it, a convolution becomes one matrix product
 * here: the windows of all rows are laid out as the columns of a matrix
 * [channels * window, rows * positions] ("im2col", Chellapilla et al. 2006). */
#include "pass.h"

#define ADD(x, y) limn_calc2(b, OP_add, x, y)
#define SUB(x, y) limn_calc2(b, OP_sub, x, y)
#define MUL(x, y) limn_calc2(b, OP_mul, x, y)

typedef limn_arg conv_list[LIMN_MAXDIM];

/* A list's elements, copied: the graph's own move as it grows. */
static int conv_items(limn_builder *b, limn_arg l, limn_arg *out) {
  int n = l.tag == LIMN_A_LIST ? (int)LIMN_MIN(l.n, LIMN_MAXDIM) : 1;
  for (int i = 0; i < n; i++)
    out[i] = l.tag == LIMN_A_LIST ? b->g->args[l.u.at + (uint32_t)i] : l;
  return n;
}

static limn_arg conv_same(limn_builder *b, int64_t v, int n) {
  conv_list l;
  for (int i = 0; i < n; i++) l[i] = limn_aint(v);
  return limn_build_list(b, l, n);
}

/* Positions first..last by step of the n last dims, as slice (v NONE) and
 * update take them. */
static limn_arg conv_region(limn_builder *b, limn_arg x, limn_arg v, int n,
                            const limn_arg *first, const limn_arg *last,
                            const limn_arg *step) {
  conv_list l[3];
  limn_arg a[6];
  int rank = limn_arg_rank(b, x), k = 0, lead = rank - n;
  if (b->rc || lead < 0) return limn_none();
  for (int i = 0; i < rank; i++) {
    l[0][i] = i < lead ? limn_aint(1) : first[i - lead];
    l[1][i] = i < lead ? limn_aint(-1) : last[i - lead];
    l[2][i] = i < lead || !step ? limn_aint(1) : step[i - lead];
  }
  a[k++] = x;
  if (v.tag != LIMN_A_NONE) a[k++] = v;
  for (int i = 0; i < 3; i++) a[k++] = limn_build_list(b, l[i], rank);
  a[k++] = limn_build_list(b, NULL, 0);
  return limn_build(b, k == 6 ? OP_update : OP_slice, a, k);
}

/* Margins of p before and after each of the n last dims. */
static limn_arg conv_pad(limn_builder *b, limn_arg x, const limn_arg *p,
                         int n) {
  limn_arg l[2 * LIMN_MAXDIM], a[4];
  bool none = true;
  for (int i = 0; i < n; i++) {
    none &= limn_arg_is(p[i], 0);
    l[2 * (n - 1 - i)] = l[2 * (n - 1 - i) + 1] = p[i];
  }
  if (none) return x;
  a[0] = x;
  a[1] = limn_build_list(b, l, 2 * n);
  a[2] = limn_areal(0);
  a[3] = limn_build_str(b, "constant");
  return limn_build(b, OP_pad, a, 4);
}

/* size(x, first) * ... * size(x, last). */
static limn_arg conv_product(limn_builder *b, limn_arg x, int first,
                             int last) {
  limn_arg n = limn_build_size(b, x, first);
  for (int i = first + 1; i <= last; i++) {
    limn_arg s = limn_build_size(b, x, i);
    n = MUL(n, s);
  }
  return n;
}

/* x as [a, b], or as [groups, a / groups, b]. */
static limn_arg conv_matrix(limn_builder *b, limn_arg x, limn_arg rows,
                            limn_arg cols, limn_arg groups) {
  limn_arg d[3] = {groups, rows, cols};
  bool one = limn_arg_is(groups, 1);
  if (!one) d[1] = limn_calc2(b, OP_floor_div, rows, groups);
  d[0] = limn_build_list(b, one ? d + 1 : d, one ? 2 : 3);
  return limn_build2(b, OP_reshape, x, d[0]);
}

/* Dims in the order given by `count` pieces {first, last}. */
static limn_arg conv_order(limn_builder *b, limn_arg x, const int *piece,
                           int count) {
  limn_arg d[LIMN_MAXDIM];
  int n = 0;
  for (int i = 0; i < count; i++)
    for (int k = piece[2 * i]; k <= piece[2 * i + 1] && n < LIMN_MAXDIM; k++)
      d[n++] = limn_aint(k);
  return limn_build2(b, OP_permute, x, limn_build_list(b, d, n));
}

/* The windows of x [rows, channels, size...] as columns: [channels * window,
 * rows * positions], and with groups one such matrix for each. */
static limn_arg conv_columns(limn_builder *b, limn_arg win, limn_arg groups,
                             int n) {
  const int piece[] = {2, 2, n + 3, 2 * n + 2, 1, 1, 3, n + 2};
  limn_arg rows = conv_product(b, win, n + 3, 2 * n + 2), cols, t;
  t = limn_build_size(b, win, 2);
  rows = MUL(t, rows);
  cols = conv_product(b, win, 3, n + 2);
  t = limn_build_size(b, win, 1);
  cols = MUL(t, cols);
  win = conv_order(b, win, piece, 4);
  return conv_matrix(b, win, rows, cols, groups);
}

static limn_arg conv_windows(limn_builder *b, limn_arg x, limn_arg w,
                             limn_arg stride, limn_arg dilation, int n) {
  conv_list k;
  limn_arg a[4] = {x, limn_none(), stride, dilation};
  for (int i = 0; i < n; i++) k[i] = limn_build_size(b, w, i + 3);
  a[1] = limn_build_list(b, k, n);
  return limn_build(b, OP_windows, a, 4);
}

/* Rows (dim 1) and channels exchanged, and all but channels merged. */
static limn_arg conv_channel_rows(limn_builder *b, limn_arg x, limn_arg groups,
                                  int n) {
  const int piece[] = {2, 2, 1, 1, 3, n + 2};
  limn_arg rows = limn_build_size(b, x, 2), cols = limn_build_size(b, x, 1);
  limn_arg t = conv_product(b, x, 3, n + 2);
  cols = MUL(cols, t);
  x = conv_order(b, x, piece, 3);
  return conv_matrix(b, x, rows, cols, groups);
}

/* Arguments x w stride padding dilation groups. The product is [out, rows *
 * positions]; rows come first again by a view. */
limn_arg expand_conv(limn_builder *b, const limn_arg *a) {
  limn_arg w = a[1], groups = a[5], win, cols, rows, y;
  limn_arg m[4], size[LIMN_MAXDIM];
  conv_list p;
  int n = conv_items(b, a[3], p);
  const int back[] = {2, 2, 1, 1, 3, n + 2};
  win = conv_windows(b, conv_pad(b, a[0], p, n), w, a[2], a[4], n);
  cols = conv_columns(b, win, groups, n);
  rows = limn_build_size(b, w, 1);
  m[0] = conv_matrix(b, w, rows, conv_product(b, w, 2, n + 2), groups);
  m[1] = cols, m[2] = m[3] = limn_abool(false);
  y = limn_build(b, OP_matmul, m, 4);
  size[0] = rows;
  size[1] = limn_build_size(b, win, 1);
  for (int i = 0; i < n; i++) size[i + 2] = limn_build_size(b, win, i + 3);
  y = limn_build2(b, OP_reshape, y, limn_build_list(b, size, n + 2));
  return conv_order(b, y, back, 3);
}

/* w [A, B, k...] as [groups * B, A / groups, k...], turned by 180 degrees: what
 * runs a convolution backwards. */
static limn_arg conv_turned(limn_builder *b, limn_arg w, limn_arg groups,
                            int n) {
  limn_arg size[LIMN_MAXDIM], d[LIMN_MAXDIM], A, B;
  const int swap[] = {1, 1, 3, 3, 2, 2, 4, n + 3};
  for (int i = 0; i < n; i++) d[i] = limn_aint(i + 3);
  if (limn_arg_is(groups, 1)) {
    w = limn_build3(b, OP_transpose, w, limn_aint(1), limn_aint(2));
    return limn_build2(b, OP_flip, w, limn_build_list(b, d, n));
  }
  A = limn_build_size(b, w, 1);
  A = limn_calc2(b, OP_floor_div, A, groups);
  B = limn_build_size(b, w, 2);
  size[0] = groups, size[1] = A, size[2] = B;
  for (int i = 0; i < n; i++) size[i + 3] = limn_build_size(b, w, i + 3);
  w = limn_build2(b, OP_reshape, w, limn_build_list(b, size, n + 3));
  w = conv_order(b, w, swap, 4);
  size[1] = MUL(groups, B), size[2] = A;
  w = limn_build2(b, OP_reshape, w, limn_build_list(b, size + 1, n + 2));
  return limn_build2(b, OP_flip, w, limn_build_list(b, d, n));
}

/* x laid out `stride` apart with margins of kernel - 1 (dilated), then
 * convolved with the turned w: the transpose of the convolution with w. Of the
 * result, whose dims are (size - 1) * stride + span + more[i] long, p[i] go at
 * the front and `keep[i]` stay. */
static limn_arg conv_backwards(limn_builder *b, limn_arg x, limn_arg w,
                               limn_arg stride, limn_arg dilation,
                               limn_arg groups, const limn_arg *p,
                               const limn_arg *keep, int n) {
  conv_list s, d, first, last, to, from;
  limn_arg size[LIMN_MAXDIM], z, a[6], one = limn_aint(1);
  conv_items(b, stride, s);
  conv_items(b, dilation, d);
  size[0] = limn_build_size(b, x, 1);
  size[1] = limn_build_size(b, x, 2);
  for (int i = 0; i < n; i++) {
    limn_arg e = limn_build_size(b, w, i + 3), len, end;
    e = MUL(SUB(e, one), d[i]); /* span - 1 */
    first[i] = ADD(e, one);
    len = limn_build_size(b, x, i + 3);
    last[i] = MUL(SUB(len, one), s[i]);
    last[i] = ADD(last[i], first[i]);
    from[i] = ADD(p[i], one);
    to[i] = ADD(keep[i], e);
    to[i] = ADD(to[i], p[i]);
    /* Long enough for what is put in and for what is taken. */
    end = ADD(last[i], e);
    size[i + 2] = limn_calc2(b, OP_maximum, end, to[i]);
  }
  z = limn_build_list(b, size, n + 2);
  z = limn_build3(b, OP_full, z, limn_areal(0),
                  limn_build1(b, OP_dtypeof, x));
  z = conv_region(b, z, x, n, first, last, s);
  a[0] = conv_region(b, z, limn_none(), n, from, to, NULL);
  a[1] = conv_turned(b, w, groups, n);
  a[2] = conv_same(b, 1, n);
  a[3] = conv_same(b, 0, n);
  a[4] = dilation;
  a[5] = groups;
  return limn_build(b, OP_conv, a, 6);
}

/* Arguments x g w stride padding dilation groups. */
limn_arg expand_conv_weights(limn_builder *b, const limn_arg *a) {
  conv_list p;
  limn_arg m[4], win, y;
  int n = conv_items(b, a[4], p);
  win = conv_windows(b, conv_pad(b, a[0], p, n), a[2], a[3], a[5], n);
  m[1] = conv_columns(b, win, a[6], n);
  m[0] = conv_channel_rows(b, a[1], a[6], n);
  m[2] = limn_abool(false);
  m[3] = limn_abool(true);
  y = limn_build(b, OP_matmul, m, 4);
  return limn_build2(b, OP_reshape_like, y, a[2]);
}

/* How long dim i + 3 of x becomes in conv_transpose with w, without
 * output_padding: (size - 1) * stride + (kernel - 1) * dilation + 1 less
 * 2 * padding. */
static limn_arg conv_grown(limn_builder *b, limn_arg x, limn_arg w, int i,
                           limn_arg stride, limn_arg padding,
                           limn_arg dilation) {
  limn_arg one = limn_aint(1), len = limn_build_size(b, x, i + 3), span;
  len = MUL(SUB(len, one), stride);
  span = limn_build_size(b, w, i + 3);
  span = MUL(SUB(span, one), dilation);
  len = ADD(ADD(len, span), one);
  return SUB(len, MUL(padding, limn_aint(2)));
}

/* What conv with w takes from `like` to g, taken back from g. */
static limn_arg conv_undo(limn_builder *b, limn_arg g, limn_arg w,
                          limn_arg like, limn_arg stride, limn_arg padding,
                          limn_arg dilation, limn_arg groups) {
  conv_list p, s, d, more;
  limn_arg a[7] = {g, w, stride, padding, limn_none(), dilation, groups};
  int n = conv_items(b, padding, p);
  conv_items(b, stride, s);
  conv_items(b, dilation, d);
  for (int i = 0; i < n; i++) {
    limn_arg size = limn_build_size(b, like, i + 3);
    more[i] = SUB(size, conv_grown(b, g, w, i, s[i], p[i], d[i]));
  }
  a[4] = limn_build_list(b, more, n);
  return limn_fold_like(b, limn_build(b, OP_conv_transpose, a, 7), like);
}

/* conv, conv_transpose and conv_weights are the three faces of one form, linear
 * in x, in w and in the result's gradient; so the gradients of each are the
 * other two. */
void grad_conv(limn_builder *b, const limn_arg *a, limn_arg y, limn_arg g,
               limn_arg *out) {
  limn_arg k[7] = {a[0], g, a[1], a[2], a[3], a[4], a[5]};
  (void)y;
  if (limn_grad_wants(&out[0]))
    out[0] = conv_undo(b, g, a[1], a[0], a[2], a[3], a[4], a[5]);
  if (limn_grad_wants(&out[1]))
    out[1] = limn_fold_like(b, limn_build(b, OP_conv_weights, k, 7), a[1]);
}

/* Arguments x g w stride padding dilation groups; of w the shape counts. */
void grad_conv_weights(limn_builder *b, const limn_arg *a, limn_arg y,
                       limn_arg g, limn_arg *out) {
  limn_arg k[6] = {a[0], g, a[3], a[4], a[5], a[6]};
  (void)y;
  if (limn_grad_wants(&out[0]))
    out[0] = conv_undo(b, a[1], g, a[0], a[3], a[4], a[5], a[6]);
  if (limn_grad_wants(&out[1]))
    out[1] = limn_fold_like(b, limn_build(b, OP_conv, k, 6), a[1]);
}

/* Arguments x w stride padding output_padding dilation groups. */
limn_arg expand_conv_transpose(limn_builder *b, const limn_arg *a) {
  conv_list p, s, d, more, keep;
  int n = conv_items(b, a[3], p);
  conv_items(b, a[2], s);
  conv_items(b, a[4], more);
  conv_items(b, a[5], d);
  for (int i = 0; i < n; i++)
    keep[i] = ADD(conv_grown(b, a[0], a[1], i, s[i], p[i], d[i]), more[i]);
  return conv_backwards(b, a[0], a[1], a[2], a[5], a[6], p, keep, n);
}

/* Whether each output_padding is a number below the stride: then conv with the
 * same w, stride and padding has as many positions as x. */
static bool conv_exact(limn_builder *b, limn_arg more, limn_arg stride) {
  conv_list m, s;
  int n = conv_items(b, more, m);
  conv_items(b, stride, s);
  for (int i = 0; i < n; i++)
    if (m[i].tag != LIMN_A_INT || s[i].tag != LIMN_A_INT ||
        m[i].u.i >= s[i].u.i)
      return false;
  return true;
}

/* The part of g, with its margins, that x's positions reach. */
static limn_arg conv_reached(limn_builder *b, limn_arg g, const limn_arg *a) {
  conv_list p, s, d, first, last;
  int n = conv_items(b, a[3], p);
  conv_items(b, a[2], s);
  conv_items(b, a[5], d);
  for (int i = 0; i < n; i++) {
    first[i] = limn_aint(1);
    last[i] = conv_grown(b, a[0], a[1], i, s[i], limn_aint(0), d[i]);
  }
  g = conv_pad(b, g, p, n);
  return conv_region(b, g, limn_none(), n, first, last, NULL);
}

/* The convolution with w takes the result's gradient back to x. Of what
 * output_padding added nothing comes. */
void grad_conv_transpose(limn_builder *b, const limn_arg *a, limn_arg y,
                         limn_arg g, limn_arg *out) {
  limn_arg padding = a[3], k[7];
  conv_list p;
  (void)y;
  if (!conv_exact(b, a[4], a[2])) {
    g = conv_reached(b, g, a);
    padding = conv_same(b, 0, conv_items(b, a[3], p));
  }
  if (limn_grad_wants(&out[0])) {
    k[0] = g, k[1] = a[1], k[2] = a[2], k[3] = padding;
    k[4] = a[5], k[5] = a[6];
    out[0] = limn_fold_like(b, limn_build(b, OP_conv, k, 6), a[0]);
  }
  if (limn_grad_wants(&out[1])) {
    k[0] = g, k[1] = a[0], k[2] = a[1], k[3] = a[2], k[4] = padding;
    k[5] = a[5], k[6] = a[6];
    out[1] = limn_fold_like(b, limn_build(b, OP_conv_weights, k, 7), a[1]);
  }
}

/* Every position adds up what the windows over it have. The windows of the
 * positions' numbers say where each element of g belongs. */
limn_arg grad_windows(limn_builder *b, const limn_arg *args, limn_arg g) {
  limn_arg x = args[0], one = limn_aint(1), numel, at, a[5], flat;
  numel = limn_build_count(b, x, limn_none());
  at = limn_build_arange(b, one, numel);
  at = limn_build2(b, OP_reshape_like, at, x);
  a[0] = at, a[1] = args[1], a[2] = args[2], a[3] = args[3];
  at = limn_build(b, OP_windows, a, 4);
  flat = limn_build_flat(b, limn_build_zeros(b, x));
  a[0] = flat, a[1] = one;
  a[2] = limn_build_flat(b, at);
  a[3] = limn_build_flat(b, g);
  a[4] = one;
  at = limn_build(b, OP_index_add, a, 5);
  return limn_build2(b, OP_reshape_like, at, x);
}
