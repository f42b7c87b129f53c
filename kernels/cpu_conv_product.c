/* Convolutions on the CPU as products ("implicit gemm"): for a block of
 * positions the windows are gathered in the form that the micro-kernel reads,
 * and multiplied by the weights while they are in cache. So memory is bounded
 * by the block, whatever the sizes.
 *
 * A tile is a range of positions times a range of result channels of a group.
 * Of several passes it is the same rows of dim 1 of all of them, so that a tile
 * completes what it writes. */
#include "cpu_conv.h"
#ifndef LIMN_NO_BLAS
#include <cblas.h>
#undef I /* complex.h's */
#endif

enum {
  DEPTH = 384,     /* rows of windows multiplied at a time, about */
  BLOCK = 1 << 18, /* elements of windows, to which blocks keep */
  ENOUGH = 8,      /* tiles that a step is cut into if it can be */
  GROUPS = 256,    /* of a tile, at most, where there is no product */
  ROWS = 32        /* result channels of a tile, at least, if it is cut */
};

/* -- Products -- */

#define MULTIPLY(name, T, S)                                               \
  static void conv_multiply_##name(int64_t m, int64_t n, int64_t K,        \
                                   const S *a, int64_t ars, const S *b,    \
                                   int64_t brs, int64_t bcs, S *c,         \
                                   int64_t ldc, bool acc) {                \
    for (; m > 0; m--, a += ars, c += ldc) {                               \
      if (!acc) memset(c, 0, (size_t)n * sizeof *c);                       \
      for (int64_t k = 0; k < K; k++)                                      \
        for (int64_t i = 0; i < n; i++)                                    \
          c[i] = (S)((T)c[i] + (T)a[k] * (T)b[k * brs + i * bcs]);         \
    }                                                                      \
  }
MULTIPLY(i64, uint64_t, int64_t) /* wraps */
#ifdef LIMN_NO_BLAS
MULTIPLY(f64, double, double)
#else
static void conv_multiply_f64(int64_t m, int64_t n, int64_t K, const double *a,
                              int64_t ars, const double *b, int64_t brs,
                              int64_t bcs, double *c, int64_t ldc, bool acc) {
  bool turn = bcs != 1;
  if (m == 0 || n == 0) return;
  if (K == 0) {
    for (; !acc && m > 0; m--, c += ldc) memset(c, 0, (size_t)n * sizeof *c);
    return;
  }
  cblas_dgemm(CblasRowMajor, CblasNoTrans, turn ? CblasTrans : CblasNoTrans,
              (int)m, (int)n, (int)K, 1, a, (int)LIMN_MAX(ars, K), b,
              (int)(turn ? bcs : brs), acc, c, (int)ldc);
}
#endif

void limn_conv_multiply(const conv_plan *k, int64_t m, int64_t n, int64_t K,
                        const void *a, int64_t ars, const void *b, int64_t brs,
                        int64_t bcs, void *c, int64_t ldc, bool acc,
                        void *scratch) {
  if (k->type == CPU_F32)
    k->gemm->run(0, m, 0, n, K, n, a, ars, 1, b, brs, bcs,
                 &(limn_gemm_out){.c = c, .ldc = ldc, .acc = acc}, scratch);
  else if (k->type == CPU_F64)
    conv_multiply_f64(m, n, K, a, ars, b, brs, bcs, c, ldc, acc);
  else
    conv_multiply_i64(m, n, K, a, ars, b, brs, bcs, c, ldc, acc);
}

/* Multiplications in a ns: 40 of floats by vectors, ints one by one. */
double limn_conv_cost(const conv_plan *k, double work) {
  return work / (k->type == CPU_F32 ? 40 : k->type == CPU_F64 ? 20 : 0.5);
}

#define STORE(T) \
  for (int64_t i = 0; i < n; i++) ((T *)(void *)out)[i] = (T)w[i]

void limn_conv_store(const conv_plan *k, const void *v, int64_t n, char *out) {
  const int64_t *w = v;
  switch (k->dtype) {
    case LIMN_F32: case LIMN_F16: case LIMN_BF16:
      k->loops->store(k->dtype, out, v, n);
      break;
    case LIMN_I32: STORE(int32_t); break;
    case LIMN_I8: STORE(int8_t); break;
    case LIMN_U8: STORE(uint8_t); break;
    default: memcpy(out, v, (size_t)(n * k->size)); break;
  }
}

/* -- Weights by pass: [passes][G][o][c][taps of the pass] -- */

/* The place in the weights of tap t of a pass. */
static int64_t conv_number(const conv_plan *k, const conv_grid *g, int64_t t) {
  int64_t at = 0, stride = 1;
  for (int i = g->nd - 1; i >= 0; i--) {
    at += g->d[i].tap[CONV_TAP * (t % g->d[i].n) + 3] * stride;
    t /= g->d[i].n;
    stride *= k->kernel[i];
  }
  return at;
}

/* Those of result channel r, in the type computed in. number: of the pass's
 * taps. tmp: one window. */
static void conv_form(const conv_plan *k, const conv_grid *g,
                      const int64_t *number, const char *w, int64_t r,
                      char *out, char *tmp) {
  bool back = k->op == OP_conv_transpose;
  int64_t group = r / k->o, o = r % k->o, size = k->wide;
  out += (g->first * k->O + r * g->taps) * k->c * size;
  for (int64_t c = 0; c < k->c; c++) {
    int64_t at = back ? (group * k->c + c) * k->o + o : r * k->c + c;
    const char *from = w + at * k->taps * k->size;
    if (!k->own) {
      k->loops->load[k->type](k->dtype, from, 1, k->taps, tmp);
      from = tmp;
    }
    if (size == 4)
      for (int64_t t = 0; t < g->taps; t++)
        memcpy(out + t * 4, from + number[t] * 4, 4);
    else
      for (int64_t t = 0; t < g->taps; t++)
        memcpy(out + t * 8, from + number[t] * 8, 8);
    out += g->taps * size;
  }
}

static void conv_begin(const conv_plan *k, const limn_step *s,
                       const limn_bind *b, int64_t t0, int64_t t1) {
  limn_cpu *cpu = limn_cpu_bound(b);
  const char *w = limn_cpu_at(b, &s->in[1]);
  char *out = limn_conv_shared(k, b, s), *tmp;
  int64_t *number;
  conv_grid g;
  conv_place at;
  int slot;
  number = limn_cpu_take(cpu, &slot);
  tmp = (char *)(number + k->taps);
  for (int64_t pass = 0; pass < k->passes; pass++) {
    limn_conv_pass(k, pass, &g, &at);
    for (int64_t t = 0; t < g.taps; t++) number[t] = conv_number(k, &g, t);
    for (int64_t r = t0; r < t1; r++) conv_form(k, &g, number, w, r, out, tmp);
  }
  limn_cpu_give(cpu, slot);
}

/* -- Blocks -- */

int64_t limn_conv_target(const conv_tile *t, const conv_span *r) {
  int64_t at = 0;
  for (int i = 0; i < t->g.nd; i++)
    at = at * t->at.size[i] + r->at[i] * t->at.step[i] + t->at.first[i];
  return r->row * t->k->O * t->k->P + at;
}

/* The sums of a block to where they belong. */
static void conv_scatter(const conv_tile *t, int64_t f, int64_t n,
                         int64_t ld) {
  const conv_plan *k = t->k;
  int last = t->g.nd - 1;
  char tmp[CONV_COLUMNS * 8];
  conv_span r;
  limn_conv_seek(&t->g, f, &r);
  for (int64_t at = 0; at < n; at += r.len) {
    int64_t line, step = t->at.step[last];
    limn_conv_next(&t->g, n - at, &r);
    line = limn_conv_target(t, &r) + t->group * k->o * k->P;
    for (int64_t m = t->m0; m < t->m1; m++) {
      const char *v = t->sums + ((m - t->m0) * ld + at) * k->wide;
      char *out = t->out + (line + m * k->P) * k->size;
      if (k->own) {
        const float *from = (const void *)v;
        for (int64_t i = 0; i < r.len; i++)
          ((float *)(void *)out)[i * step] = from[i];
        continue;
      }
      limn_conv_store(k, v, r.len, step == 1 ? out : tmp);
      for (int64_t i = 0; step != 1 && i < r.len; i++)
        memcpy(out + i * step * k->size, tmp + i * k->size, (size_t)k->size);
    }
  }
}

/* The windows of some channels, multiplied and added. Where there is room for
 * `whole` columns, a multiple of a vector, so many are: that is faster. */
static void conv_depth(const conv_tile *t, int64_t c, int64_t channels,
                       int64_t f, int64_t n, int64_t whole, char *sums,
                       int64_t ld) {
  const conv_plan *k = t->k;
  int64_t K = channels * t->g.taps, m = t->m1 - t->m0;
  const char *src = t->src + c * k->S * k->size;
  const char *w = t->w + c * t->g.taps * k->wide;
  if (k->own && k->plain && !k->cross) {
    src += (f / k->P * k->C * k->S + f % k->P) * k->size;
    limn_conv_multiply(k, m, n, K, w, t->wrow, src, k->S, 1, sums, ld, c > 0,
                       t->rest);
    return;
  }
  limn_conv_rows(k, &t->g, src, channels, f, n, k->own, k->columns, t->parts,
                 t->windows);
  if (!k->own)
    limn_conv_multiply(k, m, n, K, w, t->wrow, t->windows, k->columns, 1, sums,
                       ld, c > 0, t->rest);
  else /* one column would be expected to be there twice */
    k->gemm->run_packed(0, m, 0, whole, K, LIMN_MAX(whole, 2), (const void *)w,
                        t->wrow, 1, (const void *)t->windows,
                        &(limn_gemm_out){.c = (void *)sums, .ldc = ld,
                                         .acc = c > 0});
}

static void conv_block(const conv_tile *t, int64_t f0, int64_t f1) {
  const conv_plan *k = t->k;
  bool straight = k->own && k->passes == 1 && !k->cross;
  int64_t lanes = k->gemm->lanes;
  for (int64_t f = f0, n, whole; f < f1; f += n) {
    char *sums = t->sums;
    int64_t ld = k->columns, c = 0;
    n = LIMN_MIN(k->columns, f1 - f);
    whole = (n + lanes - 1) / lanes * lanes;
    if (straight) {
      int64_t o = f / k->P * k->O + t->group * k->o + t->m0;
      sums = t->out + (o * k->P + f % k->P) * k->size;
      ld = k->P;
    }
    do {
      int64_t channels = LIMN_MIN(k->channels, k->c - c);
      conv_depth(t, c, channels, f, n, straight ? n : whole, sums, ld);
      c += channels;
    } while (c < k->c);
    if (!straight) conv_scatter(t, f, n, ld);
  }
}

/* Units [u0, u1) of a row: positions, or of several passes rows of dim 1. */
static void conv_pass_run(conv_tile *t, int64_t row, int64_t u0, int64_t u1) {
  int64_t all = t->g.positions, first = t->g.d[0].grid, each = 1;
  if (t->k->passes > 1) {
    each = all / first; /* what of the pass lies behind a position of dim 1 */
    u0 = LIMN_MIN(u0, first), u1 = LIMN_MIN(u1, first);
  }
  u0 = row * all + u0 * each, u1 = row * all + u1 * each;
  if (t->k->how == CONV_DIRECT) limn_conv_direct_block(t, u0, u1);
  else conv_block(t, u0, u1);
}

/* What follows, for the positions that the units make. */
static void conv_after(const conv_tile *t, const limn_step *s,
                       const limn_bind *b, int64_t row, int64_t u0,
                       int64_t u1) {
  const conv_plan *k = t->k;
  int64_t o = t->group * k->o, each = 1, p0, p1;
  if (k->passes > 1) each = k->P / k->grid[0] * k->stride[0];
  p0 = u0 * each, p1 = u1 * each;
  if (!k->cross) p1 = LIMN_MIN(p1, k->P);
  for (; p0 < p1; p0 = (p0 / k->P + 1) * k->P) {
    int64_t at = p0 / k->P * k->P;
    limn_conv_after(k, s, b, row + p0 / k->P, o + t->m0, o + t->m1, p0 - at,
                    LIMN_MIN(p1 - at, k->P));
  }
}

static void conv_run_tile(conv_tile *t, const limn_step *s, const limn_bind *b,
                          const char *w, int64_t i) {
  const conv_plan *k = t->k;
  int64_t part = i % k->mparts, gparts = conv_ceil(k->G, k->groups);
  int64_t range = i / k->mparts / gparts;
  int64_t row = range / k->blocks, u0 = range % k->blocks * k->per;
  int64_t u1 = LIMN_MIN(u0 + k->per, k->units);
  t->group = i / k->mparts % gparts * k->groups;
  t->groups = LIMN_MIN(k->groups, k->G - t->group);
  t->m0 = part * k->mb;
  t->m1 = LIMN_MIN(t->m0 + k->mb, t->groups * k->o);
  t->src += t->group * k->c * k->S * k->size;
  for (int64_t pass = 0; pass < k->passes; pass++) {
    limn_conv_pass(k, pass, &t->g, &t->at);
    t->wrow = k->c * t->g.taps;
    t->w = w + (t->g.first * k->O * k->c +
                (t->group * k->o + t->m0) * t->wrow) * k->wide;
    conv_pass_run(t, row, u0, u1);
  }
  if (k->after.prog) conv_after(t, s, b, row, u0, u1);
}

static size_t conv_windows_size(const conv_plan *k) {
  if (k->how == CONV_DIRECT) return 0;
  if (k->own && k->plain && !k->cross) return 0;
  return conv_round((size_t)(k->channels * k->taps * k->columns * k->wide));
}

static size_t conv_sums_size(const conv_plan *k) {
  if (k->how == CONV_DIRECT) return 0;
  if (k->own && k->passes == 1 && !k->cross) return 0;
  return conv_round((size_t)(k->mb * k->columns * k->wide));
}

static void conv_run_tiles(const conv_plan *k, const limn_step *s,
                           const limn_bind *b, int64_t t0, int64_t t1) {
  limn_cpu *cpu = limn_cpu_bound(b);
  const char *w = k->shared ? limn_conv_shared(k, b, s)
                            : limn_cpu_at(b, &s->in[1]);
  int slot;
  char *scratch = limn_cpu_take(cpu, &slot);
  conv_tile all = {.k = k, .src = limn_cpu_at(b, &s->in[0]),
                   .out = limn_cpu_at(b, &s->out[0]), .windows = scratch};
  all.sums = all.windows + conv_windows_size(k);
  all.parts = all.sums + conv_sums_size(k);
  all.rest = all.parts + conv_round(limn_conv_parts_size(k));
  for (; t0 < t1; t0++) {
    conv_tile t = all;
    conv_run_tile(&t, s, b, w, t0);
  }
  limn_cpu_give(cpu, slot);
}

/* -- Preparing -- */

/* Positions of a tile: of one pass any, of several whole rows of dim 1. */
static void conv_cut(conv_plan *k) {
  double each = (double)(k->groups * k->o) * (double)k->c *
                ((double)k->taps / (double)k->passes);
  double want = LIMN_MIN(LIMN_MAX(conv_work(k) / LIMN_MAX(each, 1), 96), 4096);
  int64_t units = k->P, n = (int64_t)want, unit = k->gemm->lanes;
  k->cross = k->passes == 1 && k->P < CONV_FEW && k->N > 1;
  if (k->cross) units = k->N * k->P;
  if (k->passes > 1) {
    units = conv_ceil(k->grid[0], k->stride[0]);
    n = LIMN_MAX(n / LIMN_MAX(k->P / k->passes / units, 1), 1);
    unit = 1;
  }
  if (k->how == CONV_DIRECT && k->passes == 1) unit = k->grid[k->nd - 1];
  k->per = conv_ceil(conv_ceil(units, conv_ceil(units, n)), unit) * unit;
  k->units = units;
  k->blocks = conv_ceil(units, k->per);
  k->tiles = k->blocks * (k->cross ? 1 : k->N) * conv_ceil(k->G, k->groups);
}

/* Result channels of a tile: each range of them gathers the windows anew. */
static void conv_cut_rows(conv_plan *k) {
  double work = (double)k->o * (double)k->c * (double)k->taps *
                (double)LIMN_MIN(k->per, CONV_COLUMNS);
  int64_t parts = (int64_t)(work / (8 * conv_work(k))) + 1;
  int64_t total =
      (int64_t)LIMN_MIN(work * (double)k->tiles / conv_work(k), ENOUGH);
  parts = LIMN_MAX(parts, total / LIMN_MAX(k->tiles, 1));
  parts = LIMN_MIN(parts, LIMN_MAX(k->o / ROWS, 1));
  if (k->how == CONV_DIRECT) parts = 1;
  k->mb = conv_ceil(k->groups * k->o, parts);
  k->mparts = conv_ceil(k->groups * k->o, k->mb);
}

void limn_conv_product_prepare(conv_plan *k) {
  double work = (double)k->N * (double)k->O * (double)k->P * (double)k->c *
                (double)k->taps;
  int64_t columns = k->P, parts;
  k->how = limn_conv_direct_suits(k) ? CONV_DIRECT : CONV_PRODUCT;
  k->groups = k->how == CONV_DIRECT ? LIMN_MIN(k->G, GROUPS) : 1;
  conv_cut(k);
  conv_cut_rows(k);
  if (k->passes == 1) columns = k->per;
  parts = conv_ceil(k->c * k->taps, DEPTH);
  k->channels = conv_ceil(k->c, parts);
  columns = LIMN_MIN(columns, BLOCK / (k->channels * k->taps));
  columns = conv_ceil(columns, k->gemm->lanes) * k->gemm->lanes;
  k->columns = LIMN_MIN(columns, CONV_COLUMNS);
  k->run = conv_run_tiles;
  k->tiles *= k->mparts;
  if (!k->own || k->op == OP_conv_transpose) {
    k->shared = (size_t)(k->O * k->c * k->taps * k->wide);
    k->begin = conv_begin;
    k->nbegin = k->O;
    k->begin_ns = (double)k->shared / 8;
  }
  k->scratch = conv_windows_size(k) + conv_sums_size(k) +
               conv_round(limn_conv_parts_size(k));
  if (!k->own || k->plain)
    k->scratch += (size_t)k->gemm->scratch_size(
                      k->own ? k->c : k->channels * k->taps, k->columns) *
                  sizeof(float);
  k->scratch = LIMN_MAX(k->scratch, (size_t)(k->taps * (8 + k->wide)));
  k->scratch = LIMN_MAX(k->scratch, limn_conv_direct_scratch(k));
  k->cost_ns = limn_conv_cost(k, work);
}
