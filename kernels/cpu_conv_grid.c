/* The positions of a convolution on the CPU, and the windows that they read. */
#include "cpu_conv.h"

/* -- Tables of taps -- */

typedef struct {
  int64_t size, grid, kernel, stride, dilation, padding;
} conv_axis;

/* A dim whose window is one element is seen as a part of the dim before it,
 * if positions of that are neighbours: lines get longer. */
static int conv_merge(conv_axis *x, int n) {
  for (int i = n - 1; i > 0; i--) {
    conv_axis *a = &x[i - 1], *b = &x[i];
    if (b->kernel != 1 || b->stride != 1 || b->padding || a->stride != 1 ||
        b->size != b->grid)
      continue;
    a->size *= b->size, a->grid *= b->size;
    a->dilation *= b->size, a->padding *= b->size;
    for (int j = i; j + 1 < n; j++) x[j] = x[j + 1];
    n--;
  }
  return n;
}

static int conv_axes(const conv_plan *k, const limn_step *s, conv_axis *x) {
  const int64_t *from = s->in[0].v.d + 2, *w = s->in[1].v.d + 2;
  const int64_t *to = s->out[0].v.d + 2;
  if (k->op == OP_conv_weights) w = s->out[0].v.d + 2, to = s->in[1].v.d + 2;
  for (int i = 0; i < s->conv->n; i++)
    x[i] = (conv_axis){from[i], to[i], w[i], s->conv->stride[i],
                       s->conv->dilation[i], s->conv->padding[i]};
  return conv_merge(x, s->conv->n);
}

/* Positions j of 0 .. grid - 1 whose index j * step + off is within size. */
static void conv_range(int64_t size, int64_t grid, int64_t step, int64_t off,
                       int64_t *lo, int64_t *hi) {
  *lo = off < 0 ? (-off + step - 1) / step : 0;
  *hi = off < size ? (size - off + step - 1) / step : 0;
  *lo = LIMN_MIN(*lo, grid);
  *hi = LIMN_MAX(LIMN_MIN(*hi, grid), *lo);
}

/* Of one dim: [size, then for each remainder grid, first, n; then off, lo, hi
 * and tap of all taps by remainder]. */
enum { TABLE_HEAD = 2, TABLE_REST = 3 };

static int64_t *conv_table(const conv_plan *k, const conv_axis *x,
                           int64_t rests, int64_t *t) {
  bool back = k->op == OP_conv_transpose;
  int64_t n = 0, *rest = t + TABLE_HEAD, *tap = rest + TABLE_REST * rests;
  t[0] = x->size, t[1] = back ? 1 : x->stride;
  for (int64_t r = 0; r < rests; r++, rest += TABLE_REST) {
    int64_t grid = back ? (x->grid - r + x->stride - 1) / x->stride : x->grid;
    rest[0] = grid, rest[1] = n, rest[2] = 0;
    for (int64_t i = 0; i < x->kernel; i++) {
      int64_t off = back ? r + x->padding - i * x->dilation
                         : i * x->dilation - x->padding;
      if (back && off % x->stride) continue;
      if (back) off /= x->stride;
      tap[0] = off, tap[3] = i;
      conv_range(x->size, grid, t[1], off, &tap[1], &tap[2]);
      tap += CONV_TAP;
      rest[2]++, n++;
    }
  }
  return t + TABLE_HEAD + TABLE_REST * rests + CONV_TAP * x->kernel;
}

int limn_conv_tables(limn_context *c, conv_plan *k, const limn_step *s) {
  conv_axis x[LIMN_MAXDIM];
  int64_t n = 0, *t;
  k->nd = conv_axes(k, s, x);
  k->passes = k->taps = 1;
  for (int i = 0; i < k->nd; i++) {
    bool back = k->op == OP_conv_transpose;
    k->rests[i] = back ? LIMN_MIN(x[i].stride, x[i].grid) : 1;
    k->kernel[i] = x[i].kernel;
    k->stride[i] = back ? x[i].stride : 1;
    k->passes *= k->rests[i];
    k->taps *= x[i].kernel;
    n += TABLE_HEAD + TABLE_REST * k->rests[i] + CONV_TAP * x[i].kernel;
  }
  k->ntable = (size_t)n * sizeof *t;
  k->table = t = limn_alloc(c, k->ntable);
  if (!t) return LIMN_EMEM;
  for (int i = 0; i < k->nd; i++) {
    k->grid[i] = x[i].grid;
    k->at[i] = t - k->table;
    t = conv_table(k, &x[i], k->rests[i], t);
  }
  k->plain = k->nd == 1 && k->taps == 1 && x[0].stride == 1 && !x[0].padding &&
             x[0].size == x[0].grid;
  return 0;
}

/* Taps are stored by pass, and within it row by row: those of the passes
 * before follow from their numbers in each dim. */
void limn_conv_pass(const conv_plan *k, int64_t pass, conv_grid *g,
                    conv_place *at) {
  int64_t rest[LIMN_MAXDIM], stride = 1, after = 1;
  g->nd = k->nd;
  g->taps = g->positions = 1;
  g->image = k->C * k->S;
  g->first = 0;
  for (int i = k->nd - 1; i >= 0; i--) {
    rest[i] = pass % k->rests[i];
    pass /= k->rests[i];
  }
  for (int i = k->nd - 1; i >= 0; i--) {
    const int64_t *t = k->table + k->at[i];
    const int64_t *r = t + TABLE_HEAD + TABLE_REST * rest[i];
    conv_dim *d = &g->d[i];
    d->tap = t + TABLE_HEAD + TABLE_REST * k->rests[i] + CONV_TAP * r[1];
    d->size = t[0], d->step = t[1], d->grid = r[0], d->n = r[2];
    d->stride = stride;
    stride *= d->size;
    g->taps *= d->n, g->positions *= d->grid;
    at->step[i] = k->stride[i], at->first[i] = rest[i];
    at->size[i] = k->grid[i];
  }
  for (int i = k->nd - 1; i >= 0; i--) {
    const int64_t *t = k->table + k->at[i] + TABLE_HEAD;
    const int64_t *end = t + TABLE_REST * (k->rests[i] - 1);
    int64_t before = t[TABLE_REST * rest[i] + 1];
    for (int j = 0; j < i; j++) before *= g->d[j].n;
    g->first += before * after;
    after *= end[1] + end[2];
  }
}

/* -- Runs -- */

void limn_conv_seek(const conv_grid *g, int64_t f, conv_span *r) {
  r->row = f / g->positions;
  r->len = 0;
  f %= g->positions;
  for (int i = g->nd - 1; i >= 0; i--) {
    r->at[i] = f % g->d[i].grid;
    f /= g->d[i].grid;
  }
}

/* Go on by r->len, then take up to `most` of the line. */
void limn_conv_next(const conv_grid *g, int64_t most, conv_span *r) {
  int last = g->nd - 1, i = last;
  r->at[last] += r->len;
  for (; i >= 0 && r->at[i] == g->d[i].grid; i--) {
    r->at[i] = 0;
    if (i) r->at[i - 1]++;
    else r->row++;
  }
  r->len = LIMN_MIN(most, g->d[last].grid - r->at[last]);
}

/* -- Windows -- */

/* Where the line that tap `u` of the dims before the last reads begins, or -1
 * where there is none. */
static int64_t conv_line(const conv_grid *g, const conv_span *r, int64_t u) {
  int64_t line = r->row * g->image;
  for (int i = g->nd - 2; i >= 0; i--) {
    const conv_dim *d = &g->d[i];
    const int64_t *t = d->tap + CONV_TAP * (u % d->n);
    u /= d->n;
    if (r->at[i] < t[1] || r->at[i] >= t[2]) return -1;
    line += (r->at[i] * d->step + t[0]) * d->stride;
  }
  return line;
}

/* Bits with a 0 between each two. */
static uint32_t conv_apart(uint32_t m) {
  m = (m | m << 8) & 0x00ff00ff;
  m = (m | m << 4) & 0x0f0f0f0f;
  m = (m | m << 2) & 0x33333333;
  return (m | m << 1) & 0x55555555;
}

/* `len` positions from j on as lanes from `lane` on. */
static limn_conv_part conv_part_of(const conv_dim *d, const int64_t *tap,
                                   int64_t len, int64_t j, int64_t lane,
                                   int64_t line) {
  limn_conv_part p = {0, 0, 0};
  int64_t lo = LIMN_MAX(tap[1] - j, 0), hi = LIMN_MIN(tap[2] - j, len);
  if (line < 0 || lo >= hi) return p;
  p.mask = (uint32_t)(((1u << hi) - (1u << lo)) << lane);
  if (d->step == 2) p.mask = conv_apart(p.mask);
  p.off = line + (j - lane) * d->step + tap[0];
  return p;
}

/* The parts of `n` positions from f on, at most a vector of them. */
static int64_t conv_parts(const conv_grid *g, int64_t f, int64_t n,
                          limn_conv_part *part) {
  enum { MOST = 16 };
  const conv_dim *last = &g->d[g->nd - 1];
  conv_span run[MOST], r;
  int64_t lane[MOST], line[MOST], runs = 0, outer, at = 0;
  limn_conv_seek(g, f, &r);
  for (; at < n; at += r.len, runs++) {
    limn_conv_next(g, n - at, &r);
    run[runs] = r;
    lane[runs] = at;
  }
  outer = last->n ? g->taps / last->n : 0;
  for (int64_t u = 0; u < outer; u++) {
    for (int64_t i = 0; i < runs; i++) line[i] = conv_line(g, &run[i], u);
    for (int64_t t = 0; t < last->n; t++)
      for (int64_t i = 0; i < runs; i++)
        *part++ = conv_part_of(last, last->tap + CONV_TAP * t, run[i].len,
                               run[i].at[g->nd - 1], lane[i], line[i]);
  }
  return runs;
}

int64_t limn_conv_lines(const conv_grid *g, const conv_span *r, int64_t *line,
                        int64_t *tap) {
  int64_t last = g->d[g->nd - 1].n, outer = last ? g->taps / last : 0, n = 0;
  for (int64_t u = 0; u < outer; u++) {
    line[n] = conv_line(g, r, u);
    tap[n] = u * last;
    n += line[n] >= 0;
  }
  return n;
}

limn_conv_part limn_conv_part_of(const conv_grid *g, const conv_span *r,
                                 int64_t first, int64_t lanes, int64_t t) {
  const conv_dim *d = &g->d[g->nd - 1];
  return conv_part_of(d, d->tap + CONV_TAP * t, LIMN_MIN(r->len - first, lanes),
                      r->at[g->nd - 1] + first, 0, 0);
}

size_t limn_conv_parts_size(const conv_plan *k) {
  return (size_t)(k->taps * k->kernels->lanes) * sizeof(limn_conv_part);
}

static void conv_rows_own(const conv_plan *k, const conv_grid *g,
                          const float *src, int64_t channels, int64_t f,
                          int64_t n, bool panels, int64_t ld, void *parts,
                          float *dst) {
  int64_t VL = k->kernels->lanes, NR = k->gemm->panel, rows, at;
  limn_conv_gather w = {.part = parts, .taps = g->taps, .channels = channels,
                        .step = g->d[g->nd - 1].step, .src = src,
                        .cstep = k->S, .dstep = ld};
  rows = channels * g->taps;
  for (at = 0; at < n; at += VL) {
    w.parts = conv_parts(g, f + at, LIMN_MIN(VL, n - at), parts);
    w.dst = dst + at;
    if (panels) {
      int64_t first = at / NR * NR, left = (n - first + VL - 1) / VL * VL;
      w.dst = dst + first * rows + at - first;
      w.dstep = LIMN_MIN(NR, left);
    }
    k->kernels->gather(&w);
  }
}

/* One run of one row of windows, converted. */
static void conv_row_run(const conv_plan *k, const conv_dim *d,
                         const int64_t *tap, const char *line, int64_t j,
                         int64_t len, char *dst) {
  int64_t lo = LIMN_MAX(tap[1] - j, 0), hi = LIMN_MIN(tap[2] - j, len);
  memset(dst, 0, (size_t)(len * k->wide));
  if (line && lo < hi)
    k->loops->load[k->type](k->dtype,
                            line + ((j + lo) * d->step + tap[0]) * k->size,
                            d->step, hi - lo, dst + lo * k->wide);
}

static void conv_rows_other(const conv_plan *k, const conv_grid *g,
                            const char *src, int64_t channels, int64_t f,
                            int64_t n, int64_t ld, char *dst) {
  const conv_dim *last = &g->d[g->nd - 1];
  int64_t outer = last->n ? g->taps / last->n : 0, at;
  conv_span r;
  limn_conv_seek(g, f, &r);
  for (at = 0; at < n; at += r.len) {
    char *row = dst + at * k->wide;
    limn_conv_next(g, n - at, &r);
    for (int64_t c = 0; c < channels; c++)
      for (int64_t u = 0; u < outer; u++) {
        int64_t line = conv_line(g, &r, u);
        const char *from = line < 0 ? NULL : src + (c * k->S + line) * k->size;
        for (int64_t t = 0; t < last->n; t++, row += ld * k->wide)
          conv_row_run(k, last, last->tap + CONV_TAP * t, from,
                       r.at[g->nd - 1], r.len, row);
      }
  }
}

void limn_conv_rows(const conv_plan *k, const conv_grid *g, const char *src,
                    int64_t channels, int64_t f, int64_t n, bool panels,
                    int64_t ld, void *parts, void *dst) {
  if (k->own)
    conv_rows_own(k, g, (const void *)src, channels, f, n, panels, ld, parts,
                  dst);
  else
    conv_rows_other(k, g, src, channels, f, n, ld, dst);
}
