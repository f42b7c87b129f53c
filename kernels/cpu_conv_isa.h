/* The body of the convolutions' kernels, included once per instruction set; the
 * includer defines CONV_TABLE.
 *
 * Windows are gathered a vector of positions at a time: loads under a mask, of
 * which the processor never faults what is masked, so that margins cost
 * nothing.
 *
 * Winograd's transforms are for windows of 3 x 3 in tiles of 2 x 2 results
 * (Winograd 1980; Lavin and Gray 2016, F(2x2, 3x3)). With the matrices of that
 * paper: results = A' [(G g G') * (B' d B)] A, where g is a window of weights,
 * d the 4 x 4 input of a tile and * goes element by element, so that sums over
 * channels are 16 products of matrices. */
#include "cpu_conv.h"
#if defined(__AVX__)
#include <immintrin.h>
#endif

#define INLINE static inline __attribute__((always_inline))
/* Unrolled loops keep arrays of vectors in registers. */
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

/* CONV_LANES tiles are worked on at once: even and odd lanes of two vectors,
 * and two vectors with their lanes alternating. */
#if defined(__AVX512F__)
#define CONV_LANES 16
#define CONV_EVEN 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30
#define CONV_ODD 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31
#define CONV_LOW 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define CONV_HIGH 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#elif defined(__AVX__)
#define CONV_LANES 8
#define CONV_EVEN 0, 2, 4, 6, 8, 10, 12, 14
#define CONV_ODD 1, 3, 5, 7, 9, 11, 13, 15
#define CONV_LOW 0, 8, 1, 9, 2, 10, 3, 11
#define CONV_HIGH 4, 12, 5, 13, 6, 14, 7, 15
#else
#define CONV_LANES 4
#define CONV_EVEN 0, 2, 4, 6
#define CONV_ODD 1, 3, 5, 7
#define CONV_LOW 0, 4, 1, 5
#define CONV_HIGH 2, 6, 3, 7
#endif

typedef float conv_vec __attribute__((vector_size(4 * CONV_LANES)));
typedef float conv_at
    __attribute__((vector_size(4 * CONV_LANES), aligned(4), may_alias));

typedef int conv_bits __attribute__((vector_size(4 * CONV_LANES)));

INLINE conv_vec conv_load(const float *p) {
  return *(const conv_at *)p;
}

INLINE void conv_store(float *p, conv_vec v) { *(conv_at *)p = v; }

/* -- Windows -- */

/* Lanes whose bits are set from p, others 0; these are not read. */
INLINE conv_vec conv_masked(const float *p, uint32_t m) {
#if defined(__AVX512F__)
  return (conv_vec)_mm512_maskz_loadu_ps((__mmask16)m, p);
#elif defined(__AVX2__)
  const __m256i bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  __m256i all = _mm256_and_si256(_mm256_set1_epi32((int)m), bit);
  return (conv_vec)_mm256_maskload_ps(p, _mm256_cmpeq_epi32(all, bit));
#else
  conv_vec v = {0};
  for (int i = 0; i < CONV_LANES; i++)
    if (m >> i & 1) v[i] = p[i];
  return v;
#endif
}

INLINE conv_vec conv_read(const float *src, const limn_conv_part *p,
                          int64_t step) {
  const float *at = src + p->off;
  if (step == 1) return conv_masked(at, p->mask);
  if (step == 2) {
    conv_vec a = conv_masked(at, p->mask & ((1u << CONV_LANES) - 1));
    conv_vec b = conv_masked(at + CONV_LANES, p->mask >> CONV_LANES);
    return __builtin_shufflevector(a, b, CONV_EVEN);
  }
  conv_vec v = {0};
  for (int i = 0; i < CONV_LANES; i++)
    if (p->mask >> i & 1) v[i] = at[i * step];
  return v;
}

/* `parts` and `step` are constants here, but for the last case. Parts have no
 * lane in common, and elsewhere they are 0: their bits are put together. */
INLINE void conv_gather_by(const limn_conv_gather *g, int64_t parts,
                           int64_t step) {
  const float *src = g->src;
  float *dst = g->dst;
  for (int64_t c = 0; c < g->channels; c++, src += g->cstep) {
    const limn_conv_part *p = g->part;
    for (int64_t t = 0; t < g->taps; t++, p += parts, dst += g->dstep) {
      conv_bits v = (conv_bits)conv_read(src, p, step);
      for (int64_t i = 1; i < parts; i++)
        v |= (conv_bits)conv_read(src, p + i, step);
      conv_store(dst, (conv_vec)v);
    }
  }
}

static void conv_gather(const limn_conv_gather *g) {
  if (g->step == 1 && g->parts == 1) conv_gather_by(g, 1, 1);
  else if (g->step == 1 && g->parts == 2) conv_gather_by(g, 2, 1);
  else if (g->step == 1) conv_gather_by(g, g->parts, 1);
  else if (g->step == 2) conv_gather_by(g, g->parts, 2);
  else conv_gather_by(g, g->parts, g->step);
}

/* -- Direct -- */

/* The first n lanes to p, `step` apart. */
INLINE void conv_write(float *p, conv_vec v, int64_t n, int64_t step) {
  if (step != 1) {
    float lane[CONV_LANES];
    conv_store(lane, v);
    for (int i = 0; i < n; i++) p[i * step] = lane[i];
    return;
  }
  if (n == CONV_LANES) {
    conv_store(p, v);
    return;
  }
#if defined(__AVX512F__)
  _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), (__m512)v);
#else
  for (int i = 0; i < n; i++) p[i] = v[i];
#endif
}

/* `some` results of a group for `nv` vectors of a run from number v on; some,
 * nv and step are constants here. */
INLINE void conv_direct_some(const limn_conv_direct *d, int some, int nv,
                             int64_t step, int64_t run, int64_t v,
                             const float *src, const float *w, float *out) {
  const int64_t *line = d->line + run * d->outer;
  const int64_t *tap = d->tap + run * d->outer;
  const limn_conv_part *part = d->part + v * d->taps;
  conv_vec sum[8] = {{0}};
  for (int64_t c = 0; c < d->channels; c++, src += d->cstep, w += d->wstep)
    for (int64_t u = 0; u < d->lines[run]; u++) {
      const float *from = src + line[u], *at = w + tap[u];
      for (int64_t t = 0; t < d->taps; t++)
        UNROLL for (int i = 0; i < nv; i++) {
          conv_vec x = conv_read(from, &part[i * d->taps + t], step);
          UNROLL for (int j = 0; j < some; j++)
            sum[j * nv + i] += at[j * d->wrow + t] * x;
        }
    }
  out += d->target[run] + v * CONV_LANES * d->pstep;
  UNROLL for (int i = 0; i < nv; i++) {
    int64_t n = d->n - (v + i) * CONV_LANES;
    if (n > CONV_LANES) n = CONV_LANES;
    UNROLL for (int j = 0; j < some; j++)
      conv_write(out + j * d->ostep + i * CONV_LANES * d->pstep,
                 sum[j * nv + i], n, d->pstep);
  }
}

INLINE void conv_direct_run(const limn_conv_direct *d, int some, int64_t step,
                            int64_t run, const float *src, const float *w,
                            float *out) {
  int64_t vectors = (d->n + CONV_LANES - 1) / CONV_LANES, v = 0;
  if (some == 1)
    for (; v + 4 <= vectors; v += 4)
      conv_direct_some(d, some, 4, step, run, v, src, w, out);
  for (; v + 2 <= vectors; v += 2)
    conv_direct_some(d, some, 2, step, run, v, src, w, out);
  if (v < vectors) conv_direct_some(d, some, 1, step, run, v, src, w, out);
}

INLINE void conv_direct_by(const limn_conv_direct *d, int64_t step) {
  const float *src = d->src, *w = d->w;
  float *out = d->out;
  for (int64_t g = 0; g < d->groups; g++, src += d->channels * d->cstep) {
    int64_t r = 0;
    for (; r + 4 <= d->results; r += 4, w += 4 * d->wrow, out += 4 * d->ostep)
      for (int64_t i = 0; i < d->runs; i++)
        conv_direct_run(d, 4, step, i, src, w, out);
    for (; r < d->results; r++, w += d->wrow, out += d->ostep)
      for (int64_t i = 0; i < d->runs; i++)
        conv_direct_run(d, 1, step, i, src, w, out);
  }
}

static void conv_direct(const limn_conv_direct *d) {
  if (d->step == 1) conv_direct_by(d, 1);
  else if (d->step == 2) conv_direct_by(d, 2);
  else conv_direct_by(d, d->step);
}

INLINE float conv_total(conv_vec v) {
  float lane[CONV_LANES], s = 0;
  conv_store(lane, v);
  for (int i = 0; i < CONV_LANES; i++) s += lane[i];
  return s;
}

/* Of one channel and result, `some` taps of line number u of each run; some and
 * step are constants here. Two sets of sums take turns. */
INLINE void conv_sum_some(const limn_conv_direct *d, int some, int64_t step,
                          int64_t u, int64_t t, const float *src,
                          const float *y, float *out) {
  conv_vec sum[8] = {{0}};
  int64_t vectors = (d->n + CONV_LANES - 1) / CONV_LANES;
  int64_t tail = d->n - (vectors - 1) * CONV_LANES;
  uint32_t ends = (uint32_t)(((uint64_t)1 << tail) - 1);
  for (int64_t i = 0; i < d->runs; i++) {
    const float *from = src + d->line[i * d->outer + u];
    const float *at = y + d->target[i];
    const limn_conv_part *part = d->part + t;
    if (d->line[i * d->outer + u] < 0) continue;
    for (int64_t v = 0; v + 1 < vectors; v++, part += d->taps) {
      conv_vec g = conv_load(at + v * CONV_LANES);
      UNROLL for (int j = 0; j < some; j++)
        sum[j] += g * conv_read(from, part + j, step);
    }
    conv_vec g = conv_masked(at + (vectors - 1) * CONV_LANES, ends);
    UNROLL for (int j = 0; j < some; j++)
      sum[4 + j] += g * conv_read(from, part + j, step);
  }
  for (int j = 0; j < some; j++)
    out[j * d->results] += conv_total(sum[j] + sum[4 + j]);
}

INLINE void conv_sum_by(const limn_conv_direct *d, int64_t step) {
  const float *src = d->src, *y = d->w;
  float *out = d->out;
  for (int64_t g = 0; g < d->groups; g++, y += d->results * d->ostep)
    for (int64_t c = 0; c < d->channels; c++, src += d->cstep)
      for (int64_t u = 0; u < d->outer; u++)
        for (int64_t t = 0, some; t < d->taps;
             t += some, out += some * d->results) {
          some = d->taps - t < 4 ? d->taps - t : 4;
          for (int64_t r = 0; r < d->results; r++) {
            const float *at = y + r * d->ostep;
            float *to = out + r;
            if (some == 4) conv_sum_some(d, 4, step, u, t, src, at, to);
            else if (some == 3) conv_sum_some(d, 3, step, u, t, src, at, to);
            else if (some == 2) conv_sum_some(d, 2, step, u, t, src, at, to);
            else conv_sum_some(d, 1, step, u, t, src, at, to);
          }
        }
}

static void conv_sum(const limn_conv_direct *d) {
  if (d->step == 1) conv_sum_by(d, 1);
  else if (d->step == 2) conv_sum_by(d, 2);
  else conv_sum_by(d, d->step);
}

/* -- Winograd -- */

/* Four values for each tile of a line: d[0] and d[1], then the next tile's. */
INLINE void conv_part(const float *line, conv_vec d[4]) {
  for (int i = 0; i < 4; i += 2, line += 2) {
    conv_vec a = conv_load(line), b = conv_load(line + CONV_LANES);
    d[i] = __builtin_shufflevector(a, b, CONV_EVEN);
    d[i + 1] = __builtin_shufflevector(a, b, CONV_ODD);
  }
}

/* One row of `tiles` tiles, whose input is rows[i][j], j < 2 * tiles + 2. The
 * value of tile t in matrix k goes to v[k * step + t]. Tiles up to the next
 * multiple of CONV_LANES are read and written as well. */
static void conv_input(const float *const rows[4], int64_t tiles, float *v,
                       int64_t step) {
  for (int64_t t = 0; t < tiles; t += CONV_LANES, v += CONV_LANES) {
    conv_vec d[4][4], e[4];
    for (int i = 0; i < 4; i++) conv_part(rows[i] + 2 * t, d[i]);
    for (int i = 0; i < 4; i++) {
      float *to = v + 4 * i * step;
      for (int j = 0; j < 4; j++)
        e[j] = i == 0   ? d[0][j] - d[2][j]
               : i == 1 ? d[1][j] + d[2][j]
               : i == 2 ? d[2][j] - d[1][j]
                        : d[1][j] - d[3][j];
      conv_store(to, e[0] - e[2]);
      conv_store(to + step, e[1] + e[2]);
      conv_store(to + 2 * step, e[2] - e[1]);
      conv_store(to + 3 * step, e[1] - e[3]);
    }
  }
}

/* The reverse: two rows of 2 * tiles results, and spare ones too. */
static void conv_output(const float *m, int64_t step, int64_t tiles,
                        float *top, float *low) {
  for (int64_t t = 0; t < tiles; t += CONV_LANES, m += CONV_LANES) {
    conv_vec s[2][4];
    for (int j = 0; j < 4; j++) {
      conv_vec a = conv_load(m + j * step), b = conv_load(m + (4 + j) * step);
      conv_vec c = conv_load(m + (8 + j) * step);
      conv_vec d = conv_load(m + (12 + j) * step);
      s[0][j] = a + b + c;
      s[1][j] = b - c - d;
    }
    for (int i = 0; i < 2; i++) {
      float *out = (i ? low : top) + 2 * t;
      conv_vec x = s[i][0] + s[i][1] + s[i][2];
      conv_vec y = s[i][1] - s[i][2] - s[i][3];
      conv_store(out, __builtin_shufflevector(x, y, CONV_LOW));
      conv_store(out + CONV_LANES, __builtin_shufflevector(x, y, CONV_HIGH));
    }
  }
}

/* Windows [i0, i1) of n of weights, 9 floats each: number o * channels + c at
 * o * os + c * cs, turned by 180 degrees if `turn`. Window i goes to
 * u[k * n + i]. */
static void conv_weights(const float *w, int64_t os, int64_t cs,
                         int64_t channels, bool turn, int64_t i0, int64_t i1,
                         int64_t n, float *u) {
  enum { SOME = 64 };
  float g[9][SOME], h[4][3][SOME];
  for (int64_t at = i0; at < i1; at += SOME) {
    int64_t some = i1 - at < SOME ? i1 - at : SOME, i;
    for (i = 0; i < some; i++) {
      int64_t o = (at + i) / channels, c = (at + i) % channels;
      const float *from = w + o * os + c * cs;
      for (int k = 0; k < 9; k++) g[k][i] = from[turn ? 8 - k : k];
    }
    for (int k = 0; k < 3; k++)
      for (i = 0; i < some; i++) {
        float a = g[k][i], b = g[3 + k][i], c = g[6 + k][i];
        h[0][k][i] = a;
        h[1][k][i] = 0.5f * (a + b + c);
        h[2][k][i] = 0.5f * (a - b + c);
        h[3][k][i] = c;
      }
    for (int k = 0; k < 4; k++) {
      float *to = u + 4 * k * n + at;
      for (i = 0; i < some; i++) {
        float a = h[k][0][i], b = h[k][1][i], c = h[k][2][i];
        to[i] = a;
        to[n + i] = 0.5f * (a + b + c);
        to[2 * n + i] = 0.5f * (a - b + c);
        to[3 * n + i] = c;
      }
    }
  }
}

const limn_conv_kernels CONV_TABLE;
const limn_conv_kernels CONV_TABLE = {
    CONV_LANES, conv_gather, conv_direct,  conv_sum,
    conv_input, conv_output, conv_weights,
};
