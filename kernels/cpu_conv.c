/* Convolution by 3 x 3 windows on the CPU, in float32: Winograd's tiles of
 * 2 x 2 results (cpu_conv_isa.h), which need 16 multiplications for 36.
 *
 * A step with `flag` makes the 16 matrices of weights; the next takes blocks of
 * rows of tiles, transforms them, multiplies, and transforms back. Each block
 * is one tile of the step, so threads change nothing in the results. */
#include "cpu_kernels.h"

enum {
  BLOCK = 128, /* tiles of results in a tile of the step */
  SPARE = 16   /* transforms go on to the next multiple of it */
};

typedef struct {
  int64_t N, C, O, H, W, OH, OW, top, left;
  int64_t th, tw, rows, per; /* tiles: down, across; rows in all, per block */
  int64_t T;                 /* room for a block's tiles, with spare ones */
  int64_t vstep, mstep;      /* from matrix to matrix, in unlike cache sets */
  size_t v, m, line, pair;   /* floats of scratch; pair: results of a block */
} conv_shape;

static int64_t conv_round(int64_t n) { return (n + SPARE - 1) / SPARE * SPARE; }

/* The margins follow from the sizes. */
static void conv_read(const limn_step *s, conv_shape *k) {
  const int64_t *x = s->in[0].v.d, *y = s->out[0].v.d;
  k->N = x[0], k->C = x[1], k->H = x[2], k->W = x[3];
  k->O = y[1], k->OH = y[2], k->OW = y[3];
  k->top = (k->OH + 2 - k->H) / 2;
  k->left = (k->OW + 2 - k->W) / 2;
  k->th = (k->OH + 1) / 2;
  k->tw = (k->OW + 1) / 2;
  k->rows = k->N * k->th;
  k->per = LIMN_MIN(LIMN_MAX(BLOCK / k->tw, 1), k->rows);
  k->T = conv_round(k->per * k->tw) + SPARE;
  k->vstep = k->C * k->T + SPARE;
  k->mstep = k->O * k->T + SPARE;
  k->v = (size_t)(16 * k->vstep);
  k->m = (size_t)(16 * k->mstep);
  k->line = (size_t)(2 * conv_round(k->tw) + SPARE);
  k->pair = (size_t)(4 * k->T);
}

/* One row of the input between its margins, which are 0 already. */
static void conv_line(const conv_shape *k, const float *plane, int64_t y,
                      float *line) {
  int64_t w = LIMN_MIN(k->W, 2 * k->tw + 2 - k->left);
  if (y < 0 || y >= k->H)
    memset(line, 0, k->line * sizeof *line);
  else if (w > 0)
    memcpy(line + k->left, plane + y * k->W, (size_t)w * sizeof *line);
}

/* Rows of tiles [r0, r1) of all channels. Neighbours share two lines; spare
 * tiles of a row lie where its next goes. */
static void conv_into(const conv_shape *k, const limn_cpu_loops *loops,
                      const float *x, int64_t r0, int64_t r1, float *v,
                      float *lines) {
  memset(lines, 0, 4 * k->line * sizeof *lines);
  for (int64_t c = 0; c < k->C; c++) {
    const float *rows[4];
    int64_t image = -1;
    for (int64_t r = r0; r < r1; r++) {
      int64_t y = r % k->th * 2 - k->top, first = r / k->th == image ? 2 : 0;
      const float *plane;
      image = r / k->th;
      plane = x + (image * k->C + c) * k->H * k->W;
      for (int64_t i = 0; i < 4; i++) {
        float *line = lines + ((r * 2 + i) & 3) * (int64_t)k->line;
        if (i >= first) conv_line(k, plane, y + i, line);
        rows[i] = line;
      }
      loops->conv_input(rows, k->tw, v + c * k->T + (r - r0) * k->tw,
                        k->vstep);
    }
  }
}

/* Columns [n, end) of all matrices are 0. */
static void conv_clear(const conv_shape *k, int64_t n, int64_t end, float *v) {
  if (n == end) return;
  for (int64_t i = 0; i < 16; i++)
    for (int64_t c = 0; c < k->C; c++)
      memset(v + i * k->vstep + c * k->T + n, 0,
             (size_t)(end - n) * sizeof *v);
}

/* Rows are short: no call is worth it. */
static void conv_copy(float *to, const float *from, int64_t n) {
  enum { SOME = 8 };
  int64_t i = 0;
  for (; i + SOME <= n; i += SOME) memcpy(to + i, from + i, SOME * sizeof *to);
  if (i < n && n >= SOME)
    memcpy(to + n - SOME, from + n - SOME, SOME * sizeof *to);
  else
    for (; i < n; i++) to[i] = from[i];
}

static void conv_out(const conv_shape *k, const limn_cpu_loops *loops,
                     const float *m, int64_t r0, int64_t r1, float *out,
                     float *pair) {
  const float *top = pair, *low = pair + 2 * k->T;
  for (int64_t o = 0; o < k->O; o++) {
    loops->conv_output(m + o * k->T, k->mstep, (r1 - r0) * k->tw, pair,
                       pair + 2 * k->T);
    for (int64_t r = r0; r < r1; r++) {
      int64_t y = r % k->th * 2, at = (r - r0) * 2 * k->tw;
      float *to = out + ((r / k->th * k->O + o) * k->OH + y) * k->OW;
      conv_copy(to, top + at, k->OW);
      if (y + 1 < k->OH) conv_copy(to + k->OW, low + at, k->OW);
    }
  }
}

static void conv_run(const limn_step *s, const limn_bind *b, int64_t t0,
                     int64_t t1) {
  limn_cpu *cpu = limn_cpu_bound(b);
  const float *x = (const void *)limn_cpu_at(b, &s->in[0]);
  const float *u = (const void *)limn_cpu_at(b, &s->in[1]);
  float *out = (void *)limn_cpu_at(b, &s->out[0]), *v, *m, *lines, *rest;
  conv_shape k;
  int slot;
  conv_read(s, &k);
  v = limn_cpu_take(cpu, &slot);
  m = v + k.v, lines = m + k.m, rest = lines + 4 * k.line + k.pair;
  for (; t0 < t1; t0++) {
    int64_t r0 = t0 * k.per, r1 = LIMN_MIN(r0 + k.per, k.rows);
    int64_t n = conv_round((r1 - r0) * k.tw);
    conv_into(&k, cpu->loops, x, r0, r1, v, lines);
    conv_clear(&k, (r1 - r0) * k.tw, n, v);
    for (int64_t i = 0; i < 16; i++)
      cpu->gemm->run(0, k.O, 0, n, k.C, n, u + i * k.O * k.C, k.C, 1,
                     v + i * k.vstep, k.T, 1,
                     &(limn_gemm_out){.c = m + i * k.mstep, .ldc = k.T}, rest);
    conv_out(&k, cpu->loops, m, r0, r1, out, lines + 4 * k.line);
  }
  limn_cpu_give(cpu, slot);
}

static void conv_run_weights(const limn_step *s, const limn_bind *b,
                             int64_t t0, int64_t t1) {
  const int64_t *d = s->in[0].v.d;
  if (t0 < t1)
    limn_cpu_bound(b)->loops->conv_weights(
        (const void *)limn_cpu_at(b, &s->in[0]), d[0] * d[1],
        (void *)limn_cpu_at(b, &s->out[0]));
}

int limn_cpu_conv_prepare(limn_device *d, limn_step *s) {
  conv_shape k;
  size_t floats;
  if (s->flag) {
    const int64_t *w = s->in[0].v.d;
    s->run = conv_run_weights;
    s->ntiles = 1;
    s->cost_ns = (double)(w[0] * w[1]) * 10;
    return 0;
  }
  conv_read(s, &k);
  s->run = conv_run;
  s->ntiles = (k.rows + k.per - 1) / k.per;
  s->cost_ns = (double)k.N * (double)k.O * (double)k.C * (double)k.OH *
               (double)k.OW * 0.08;
  floats = k.v + k.m + 4 * k.line + k.pair +
           (size_t)limn_cpu_of(d)->gemm->scratch_size(k.C, k.T);
  return limn_cpu_reserve(d, floats * sizeof(float));
}
