/* Convolutions by windows of 3 x 3 on the CPU, in float32: Winograd's tiles of
 * 2 x 2 results (cpu_conv_isa.h), which need 16 multiplications for 36.
 *
 * The 16 matrices of weights are made first; a tile of the step takes a block
 * of rows of tiles, transforms them, multiplies, and transforms back. A
 * transposed convolution is one with its weights turned. */
#include "cpu_conv.h"

enum {
  LEAST = 16,       /* channels, to pay for the transforms */
  WIDEST = 1000,    /* results in a row, which bounds the scratch */
  BLOCK = 128,      /* tiles of results in a tile of the step, at most */
  BLOCK_LEAST = 32, /* and at least, where channels are many */
  BLOCK_FLOATS = 1 << 18, /* which they take, about, to stay in cache */
  SPARE = 16,       /* transforms go on to the next multiple of it */
  WINDOWS = 1024    /* of weights, in a tile of their transform */
};

typedef struct {
  int64_t N, C, O, H, W, OH, OW, top, left;
  int64_t th, tw, rows, per; /* tiles: down, across; rows in all, per block */
  int64_t T;                 /* room for a block's tiles, with spare ones */
  int64_t vstep, mstep;      /* from matrix to matrix, in unlike cache sets */
  size_t v, m, line, pair;   /* floats of scratch; pair: results of a block */
} wino_shape;

static int64_t wino_round(int64_t n) { return (n + SPARE - 1) / SPARE * SPARE; }

/* The margins follow from the sizes. */
static void wino_read(const limn_step *s, wino_shape *k) {
  const int64_t *x = s->in[0].v.d, *y = s->out[0].v.d;
  int64_t block;
  k->N = x[0], k->C = x[1], k->H = x[2], k->W = x[3];
  k->O = y[1], k->OH = y[2], k->OW = y[3];
  k->top = (k->OH + 2 - k->H) / 2;
  k->left = (k->OW + 2 - k->W) / 2;
  k->th = (k->OH + 1) / 2;
  k->tw = (k->OW + 1) / 2;
  k->rows = k->N * k->th;
  block = BLOCK_FLOATS / (16 * (k->C + k->O));
  block = LIMN_MIN(LIMN_MAX(block, BLOCK_LEAST), BLOCK);
  k->per = LIMN_MIN(LIMN_MAX(block / k->tw, 1), k->rows);
  k->T = wino_round(k->per * k->tw) + SPARE;
  k->vstep = k->C * k->T + SPARE;
  k->mstep = k->O * k->T + SPARE;
  k->v = (size_t)(16 * k->vstep);
  k->m = (size_t)(16 * k->mstep);
  k->line = (size_t)(2 * wino_round(k->tw) + SPARE);
  k->pair = (size_t)(4 * k->T);
}

/* One row of the input between its margins, which are 0 already. */
static void wino_line(const wino_shape *k, const float *plane, int64_t y,
                      float *line) {
  int64_t w = LIMN_MIN(k->W, 2 * k->tw + 2 - k->left);
  if (y < 0 || y >= k->H)
    memset(line, 0, k->line * sizeof *line);
  else if (w > 0)
    memcpy(line + k->left, plane + y * k->W, (size_t)w * sizeof *line);
}

/* Rows of tiles [r0, r1) of all channels. Neighbours share two lines; spare
 * tiles of a row lie where its next goes. */
static void wino_into(const wino_shape *k, const limn_conv_kernels *kernels,
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
        if (i >= first) wino_line(k, plane, y + i, line);
        rows[i] = line;
      }
      kernels->input(rows, k->tw, v + c * k->T + (r - r0) * k->tw, k->vstep);
    }
  }
}

/* Columns [n, end) of all matrices are 0. */
static void wino_clear(const wino_shape *k, int64_t n, int64_t end, float *v) {
  if (n == end) return;
  for (int64_t i = 0; i < 16; i++)
    for (int64_t c = 0; c < k->C; c++)
      memset(v + i * k->vstep + c * k->T + n, 0,
             (size_t)(end - n) * sizeof *v);
}

/* Rows are short: no call is worth it. */
static void wino_copy(float *to, const float *from, int64_t n) {
  enum { SOME = 8 };
  int64_t i = 0;
  for (; i + SOME <= n; i += SOME) memcpy(to + i, from + i, SOME * sizeof *to);
  if (i < n && n >= SOME)
    memcpy(to + n - SOME, from + n - SOME, SOME * sizeof *to);
  else
    for (; i < n; i++) to[i] = from[i];
}

static void wino_out(const wino_shape *k, const limn_conv_kernels *kernels,
                     const float *m, int64_t r0, int64_t r1, float *out,
                     float *pair) {
  const float *top = pair, *low = pair + 2 * k->T;
  for (int64_t o = 0; o < k->O; o++) {
    kernels->output(m + o * k->T, k->mstep, (r1 - r0) * k->tw, pair,
                    pair + 2 * k->T);
    for (int64_t r = r0; r < r1; r++) {
      int64_t y = r % k->th * 2, at = (r - r0) * 2 * k->tw;
      float *to = out + ((r / k->th * k->O + o) * k->OH + y) * k->OW;
      wino_copy(to, top + at, k->OW);
      if (y + 1 < k->OH) wino_copy(to + k->OW, low + at, k->OW);
    }
  }
}

/* Rows of tiles [r0, r1), row by row of the result. */
static void wino_after(const conv_plan *plan, const wino_shape *k,
                       const limn_step *s, const limn_bind *b, int64_t r0,
                       int64_t r1) {
  for (int64_t r = r0, end; r < r1; r = end) {
    int64_t row = r / k->th, y = r % k->th * 2, low;
    end = LIMN_MIN((row + 1) * k->th, r1);
    low = LIMN_MIN(y + (end - r) * 2, k->OH);
    limn_conv_after(plan, s, b, row, 0, k->O, y * k->OW, low * k->OW);
  }
}

static void wino_run(const conv_plan *plan, const limn_step *s,
                     const limn_bind *b, int64_t t0, int64_t t1) {
  limn_cpu *cpu = limn_cpu_bound(b);
  const float *x = (const void *)limn_cpu_at(b, &s->in[0]);
  const float *u = limn_conv_shared(plan, b, s);
  float *out = (void *)limn_cpu_at(b, &s->out[0]), *v, *m, *lines, *rest;
  wino_shape k;
  int slot;
  wino_read(s, &k);
  v = limn_cpu_take(cpu, &slot);
  m = v + k.v, lines = m + k.m, rest = lines + 4 * k.line + k.pair;
  for (; t0 < t1; t0++) {
    int64_t r0 = t0 * k.per, r1 = LIMN_MIN(r0 + k.per, k.rows);
    int64_t n = wino_round((r1 - r0) * k.tw);
    wino_into(&k, plan->kernels, x, r0, r1, v, lines);
    wino_clear(&k, (r1 - r0) * k.tw, n, v);
    for (int64_t i = 0; i < 16; i++)
      plan->gemm->run(0, k.O, 0, n, k.C, n, u + i * k.O * k.C, k.C, 1,
                      v + i * k.vstep, k.T, 1,
                      &(limn_gemm_out){.c = m + i * k.mstep, .ldc = k.T}, rest);
    wino_out(&k, plan->kernels, m, r0, r1, out, lines + 4 * k.line);
    wino_after(plan, &k, s, b, r0, r1);
  }
  limn_cpu_give(cpu, slot);
}

static void wino_begin(const conv_plan *k, const limn_step *s,
                       const limn_bind *b, int64_t t0, int64_t t1) {
  bool turn = k->op == OP_conv_transpose;
  int64_t n = k->O * k->C;
  k->kernels->weights((const void *)limn_cpu_at(b, &s->in[1]),
                      turn ? 9 : 9 * k->C, turn ? 9 * k->O : 9, k->C, turn,
                      t0 * WINDOWS, LIMN_MIN(t1 * WINDOWS, n), n,
                      limn_conv_shared(k, b, s));
}

/* Tiles that are mostly outside the result would gain nothing. */
bool limn_conv_wino_suits(const conv_plan *k, const limn_step *s) {
  wino_shape w;
  if (!k->own || k->nd != 2 || k->passes != 1 || k->G != 1) return false;
  for (int i = 0; i < 2; i++)
    if (k->kernel[i] != 3 || s->conv->stride[i] != 1 ||
        s->conv->dilation[i] != 1)
      return false;
  if (k->C < LEAST || k->O < LEAST || k->S == 0) return false;
  wino_read(s, &w);
  return w.top >= 0 && w.left >= 0 && w.OW <= WIDEST &&
         k->P * 2 >= w.th * w.tw * 4;
}

void limn_conv_wino_prepare(conv_plan *k, const limn_step *s) {
  wino_shape w;
  wino_read(s, &w);
  k->how = CONV_WINOGRAD;
  k->begin = wino_begin;
  k->run = wino_run;
  k->tiles = (w.rows + w.per - 1) / w.per;
  k->nbegin = (k->O * k->C + WINDOWS - 1) / WINDOWS;
  k->begin_ns = (double)(k->O * k->C) * 8;
  k->shared = (size_t)(16 * k->O * k->C) * sizeof(float);
  k->scratch = (w.v + w.m + 4 * w.line + w.pair +
                (size_t)k->gemm->scratch_size(k->C, w.T)) * sizeof(float);
  k->cost_ns = (double)w.rows * (double)w.tw * (double)k->O * (double)k->C *
               16 / 40;
}
