/* The gradient of a convolution's weights on the CPU: the windows of x times
 * the gradient of y, summed over all positions of all rows.
 *
 * A tile is a range of channels of x in a group and a part of the positions,
 * which it takes block by block. How many parts there are follows from the
 * shape; their sums, [parts][G][c * taps][o], are added up in the end, in
 * order. */
#include "cpu_conv.h"

enum {
  BLOCK = 1 << 18, /* elements of a channel's windows, to which blocks keep */
  ROWS = 288,      /* rows of windows of a tile, about */
  PARTS = 16,      /* at most */
  SUMS = 1 << 20,  /* of all parts, at most, if there are several */
  GROUPS = 64,     /* of a tile, at most, where there is no product */
  SUM = 8,         /* rows of sums that are added up at a time */
  SOME = 64        /* and columns */
};

typedef struct {
  const conv_plan *k;
  const conv_grid *g;
  int64_t group, c0, channels;
  const char *x, *y; /* of the group and, of x, its channels */
  char *windows, *copy, *parts, *rest; /* scratch */
  char *sums;
} weights_tile;

/* Spare floats let rows fall on different sets of the cache. */
static int64_t weights_ld(const conv_plan *k) { return k->columns + 16; }

/* A block of y's gradient, converted, or put together from several rows. */
static void weights_copy(const weights_tile *t, int64_t f, int64_t n) {
  const conv_plan *k = t->k;
  int64_t ld = weights_ld(k), some;
  for (int64_t at = 0; at < n; at += some) {
    int64_t row = (f + at) / k->P, p = (f + at) % k->P;
    some = LIMN_MIN(n - at, k->P - p);
    for (int64_t o = 0; o < k->o; o++)
      k->loops->load[k->type](
          k->dtype, t->y + ((row * k->O + o) * k->P + p) * k->size, 1, some,
          t->copy + (o * ld + at) * k->wide);
  }
}

static void weights_block(const weights_tile *t, int64_t f, int64_t n,
                          bool acc) {
  const conv_plan *k = t->k;
  int64_t row = f / k->P, p = f % k->P, ars = weights_ld(k), bcs = ars;
  const char *a = t->windows, *b = t->copy;
  if (k->own && !k->cross && k->plain) {
    a = t->x + (row * k->C * k->S + p) * k->size;
    ars = k->S;
  } else {
    limn_conv_rows(k, t->g, t->x, t->channels, f, n, false, ars, t->parts,
                   t->windows);
  }
  if (k->own && !k->cross) {
    b = t->y + (row * k->O * k->P + p) * k->size;
    bcs = k->P;
  } else {
    weights_copy(t, f, n);
  }
  limn_conv_multiply(k, t->channels * k->taps, k->o, n, a, ars, b, 1, bcs,
                     t->sums, k->o, acc, t->rest);
}

static void weights_part(const weights_tile *t, int64_t f0, int64_t f1) {
  const conv_plan *k = t->k;
  if (f0 == f1)
    memset(t->sums, 0,
           (size_t)(t->channels * k->taps * k->o * k->wide));
  for (int64_t f = f0, n; f < f1; f += n) {
    n = LIMN_MIN(k->columns, f1 - f);
    if (!k->cross) n = LIMN_MIN(n, k->P - f % k->P);
    weights_block(t, f, n, f > f0);
  }
}

static size_t weights_windows_size(const conv_plan *k) {
  if (k->how == CONV_DIRECT)
    return conv_round(limn_conv_direct_scratch(k));
  return conv_round(
      (size_t)(k->channels * k->taps * weights_ld(k) * k->wide));
}

static size_t weights_copy_size(const conv_plan *k) {
  if (k->own && !k->cross) return 0;
  return conv_round((size_t)(k->o * weights_ld(k) * k->wide));
}

/* Part number `part` of some groups; a part is so many whole lines. */
static void weights_direct(const conv_plan *k, conv_tile *t, const char *x,
                           const char *y, float *sums, int64_t part) {
  int64_t each = k->c * k->taps * k->o, line = t->g.d[t->g.nd - 1].grid;
  int64_t lines = k->N * k->P / line;
  float *out = sums + (part * k->G + t->group) * each;
  memset(out, 0, (size_t)(t->groups * each) * sizeof *out);
  t->src = x + t->group * k->c * k->S * k->size;
  limn_conv_direct_sum(t, y + t->group * k->o * k->P * k->size, out,
                       lines * part / k->parts * line,
                       lines * (part + 1) / k->parts * line);
}

static void weights_run_direct(const conv_plan *k, const limn_step *s,
                               const limn_bind *b, int64_t t0, int64_t t1) {
  limn_cpu *cpu = limn_cpu_bound(b);
  int slot;
  conv_tile t = {.k = k, .windows = limn_cpu_take(cpu, &slot)};
  limn_conv_pass(k, 0, &t.g, &t.at);
  for (; t0 < t1; t0++) {
    t.group = t0 % k->chunks * k->groups;
    t.groups = LIMN_MIN(k->groups, k->G - t.group);
    weights_direct(k, &t, limn_cpu_at(b, &s->in[0]), limn_cpu_at(b, &s->in[1]),
                   limn_conv_shared(k, b, s), t0 / k->chunks);
  }
  limn_cpu_give(cpu, slot);
}

static void weights_run(const conv_plan *k, const limn_step *s,
                        const limn_bind *b, int64_t t0, int64_t t1) {
  limn_cpu *cpu = limn_cpu_bound(b);
  char *sums = limn_conv_shared(k, b, s);
  int64_t F = k->N * k->P;
  conv_grid g;
  conv_place at;
  int slot;
  weights_tile t = {.k = k, .g = &g, .windows = limn_cpu_take(cpu, &slot)};
  t.copy = t.windows + weights_windows_size(k);
  t.parts = t.copy + weights_copy_size(k);
  t.rest = t.parts + conv_round(limn_conv_parts_size(k));
  limn_conv_pass(k, 0, &g, &at);
  for (; t0 < t1; t0++) {
    int64_t chunk = t0 % k->chunks, part = t0 / k->chunks / k->G, c;
    t.group = t0 / k->chunks % k->G;
    t.c0 = chunk * k->channels;
    t.channels = LIMN_MIN(k->channels, k->c - t.c0);
    c = t.group * k->c + t.c0;
    t.x = limn_cpu_at(b, &s->in[0]) + c * k->S * k->size;
    t.y = limn_cpu_at(b, &s->in[1]) + t.group * k->o * k->P * k->size;
    t.sums = sums + ((part * k->G + t.group) * k->c + t.c0) * k->taps * k->o *
                        k->wide;
    weights_part(&t, F * part / k->parts, F * (part + 1) / k->parts);
  }
  limn_cpu_give(cpu, slot);
}

/* -- Adding up -- */

#define ADD(name, T, W)                                                     \
  /* sum[i][r] of rows r < n, columns i < some, of all parts. */            \
  static void weights_add_##name(const T *v, int64_t parts, int64_t step,   \
                                 int64_t o, int64_t n, int64_t some,        \
                                 T sum[SOME][SUM]) {                        \
    for (int64_t r = 0; r < n; r++, v += o) {                               \
      T line[SOME];                                                         \
      memcpy(line, v, (size_t)some * sizeof *v);                            \
      for (int64_t p = 1; p < parts; p++)                                   \
        for (int64_t i = 0; i < some; i++)                                  \
          line[i] = (T)((W)line[i] + (W)v[p * step + i]);                   \
      for (int64_t i = 0; i < some; i++) sum[i][r] = line[i];               \
    }                                                                       \
  }
ADD(f32, float, float)
ADD(f64, double, double)
ADD(i64, int64_t, uint64_t)

/* Rows [r, r + n) of a group, columns [i, i + some). */
static void weights_end_block(const conv_plan *k, const char *sums, char *out,
                              int64_t group, int64_t r, int64_t n, int64_t i,
                              int64_t some) {
  int64_t rows = k->c * k->taps, step = k->G * rows * k->o;
  const void *v = sums + ((group * rows + r) * k->o + i) * k->wide;
  union {
    float f32[SOME][SUM];
    double f64[SOME][SUM];
    int64_t i64[SOME][SUM];
  } sum;
  const char *from = (const char *)&sum;
  if (k->type == CPU_F32)
    weights_add_f32(v, k->parts, step, k->o, n, some, sum.f32);
  else if (k->type == CPU_F64)
    weights_add_f64(v, k->parts, step, k->o, n, some, sum.f64);
  else
    weights_add_i64(v, k->parts, step, k->o, n, some, sum.i64);
  for (int64_t j = 0; j < some; j++)
    limn_conv_store(k, from + j * SUM * k->wide, n,
                    out + ((group * k->o + i + j) * rows + r) * k->size);
}

/* A tile is up to SUM rows of a group. */
static void weights_end(const conv_plan *k, const limn_step *s,
                        const limn_bind *b, int64_t t0, int64_t t1) {
  const char *sums = limn_conv_shared(k, b, s);
  char *out = limn_cpu_at(b, &s->out[0]);
  int64_t rows = k->c * k->taps, each = conv_ceil(rows, SUM);
  for (; t0 < t1; t0++) {
    int64_t r = t0 % each * SUM, n = LIMN_MIN(SUM, rows - r);
    for (int64_t i = 0; i < k->o; i += SOME)
      weights_end_block(k, sums, out, t0 / each, r, n, i,
                        LIMN_MIN(SOME, k->o - i));
  }
}

/* -- Preparing -- */

/* Tiles of each part. */
static void weights_cut(conv_plan *k) {
  if (k->how == CONV_DIRECT) {
    k->groups = LIMN_MIN(k->G, GROUPS);
    k->chunks = k->tiles = conv_ceil(k->G, k->groups);
    return;
  }
  k->cross = k->P < CONV_FEW && k->N > 1;
  k->columns = LIMN_MIN(BLOCK / k->taps, CONV_COLUMNS);
  k->columns = LIMN_MAX(k->columns, k->gemm->lanes);
  k->columns = k->columns / k->gemm->lanes * k->gemm->lanes;
  k->channels = LIMN_MIN(LIMN_MAX(ROWS / k->taps, 1), k->c);
  k->chunks = conv_ceil(k->c, k->channels);
  k->channels = conv_ceil(k->c, k->chunks);
  k->chunks = conv_ceil(k->c, k->channels);
  k->tiles = k->chunks * k->G;
}

void limn_conv_weights_prepare(conv_plan *k) {
  int64_t rows = k->c * k->taps, all = k->G * rows * k->o;
  double F = (double)k->N * (double)k->P, work = F * (double)all;
  k->how = limn_conv_direct_suits(k) ? CONV_DIRECT : CONV_PRODUCT;
  weights_cut(k);
  k->parts = (int64_t)LIMN_MIN(work / conv_work(k) / (double)k->tiles, PARTS);
  k->parts = LIMN_MAX(LIMN_MIN(k->parts, SUMS / all), 1);
  k->tiles *= k->parts;
  k->shared = (size_t)(k->parts * all * k->wide);
  k->run = k->how == CONV_DIRECT ? weights_run_direct : weights_run;
  k->end = weights_end;
  k->nend = k->G * (conv_ceil(rows, SUM));
  k->end_ns = (double)k->parts * (double)all * 0.5;
  k->scratch = weights_windows_size(k) + weights_copy_size(k) +
               conv_round(limn_conv_parts_size(k)) +
               (size_t)k->gemm->scratch_size(CONV_COLUMNS, k->o) *
                   sizeof(float);
  k->cost_ns = limn_conv_cost(k, work);
}
