/* The body of the CPU's folds, conversions and exponentials, included once per
 * instruction set; the includer defines LOOPS_TABLE.
 *
 * Everything is plain C that compilers vectorise at -O3 -fopenmp-simd. The
 * order of every fold is fixed by the source, and -ffp-contract=off keeps it
 * the same for all instruction sets; only exponentials round less often where
 * there is FMA. */
#include <string.h>

#include "cpu_kernels.h"
#if defined(__F16C__) && defined(__AVX__)
#include <immintrin.h>
#endif

#define INLINE static inline __attribute__((always_inline))

/* -- conversions -- */

INLINE float loops_bf16(uint16_t h) {
  uint32_t x = (uint32_t)h << 16;
  float f;
  memcpy(&f, &x, sizeof f);
  return f;
}

/* As limn_float_to_bf16, without branches. */
INLINE uint16_t loops_to_bf16(float f) {
  uint32_t x, even, nan;
  memcpy(&x, &f, sizeof x);
  even = (x + 0x7fff + (x >> 16 & 1)) >> 16;
  nan = x >> 16 | 0x40;
  return (uint16_t)((x & 0x7fffffff) > 0x7f800000 ? nan : even);
}

static void loops_load_half(const uint16_t *s, int64_t stride, int64_t n,
                            float *out) {
  int64_t i = 0;
#if defined(__F16C__) && defined(__AVX__)
  if (stride == 1)
    for (; i + 8 <= n; i += 8)
      _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128(
                                    (const __m128i *)(const void *)(s + i))));
#endif
  for (; i < n; i++) out[i] = limn_half_to_float(s[i * stride]);
}

static void loops_store_half(uint16_t *d, const float *v, int64_t n) {
  int64_t i = 0;
#if defined(__F16C__) && defined(__AVX__)
  for (; i + 8 <= n; i += 8)
    _mm_storeu_si128((__m128i *)(void *)(d + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(v + i), 0));
#endif
  for (; i < n; i++) d[i] = limn_float_to_half(v[i]);
}

/* Contiguous elements are worth a loop of their own. */
#define LOOPS_LOAD(tag, S, value)                                \
  case tag: {                                                    \
    const S *s = p;                                              \
    if (stride == 1)                                             \
      for (int64_t i = 0; i < n; i++) out[i] = value(s[i]);      \
    else                                                         \
      for (int64_t i = 0; i < n; i++) out[i] = value(s[i * stride]); \
    break;                                                       \
  }
#define LOOPS_SAME(x) (x)
#define LOOPS_ONE(x) ((x) != 0 ? 1.0f : 0.0f)
/* Halves are zero when all but the sign is. */
#define LOOPS_HALF_ONE(x) (((x) & 0x7fff) != 0 ? 1.0f : 0.0f)

static void loops_load_f32(int dtype, const void *p, int64_t stride,
                           int64_t n, void *to) {
  float *out = to;
  switch (dtype) {
    LOOPS_LOAD(LIMN_F32, float, LOOPS_SAME)
    LOOPS_LOAD(LIMN_BF16, uint16_t, loops_bf16)
    case LIMN_F16: loops_load_half(p, stride, n, out); break;
  }
}

static void loops_load_f64(int dtype, const void *p, int64_t stride,
                           int64_t n, void *to) {
  double *out = to;
  switch (dtype) { LOOPS_LOAD(LIMN_F64, double, LOOPS_SAME) }
}

static void loops_load_i64(int dtype, const void *p, int64_t stride,
                           int64_t n, void *to) {
  int64_t *out = to;
  switch (dtype) {
    LOOPS_LOAD(LIMN_I64, int64_t, LOOPS_SAME)
    LOOPS_LOAD(LIMN_I32, int32_t, LOOPS_SAME)
    LOOPS_LOAD(LIMN_I8, int8_t, LOOPS_SAME)
    LOOPS_LOAD(LIMN_U8, uint8_t, LOOPS_SAME)
    LOOPS_LOAD(LIMN_BOOL, uint8_t, !!)
  }
}

static void loops_test(int dtype, const void *p, int64_t stride, int64_t n,
                       float *out) {
  switch (dtype) {
    LOOPS_LOAD(LIMN_F64, double, LOOPS_ONE)
    LOOPS_LOAD(LIMN_F32, float, LOOPS_ONE)
    LOOPS_LOAD(LIMN_F16, uint16_t, LOOPS_HALF_ONE)
    LOOPS_LOAD(LIMN_BF16, uint16_t, LOOPS_HALF_ONE)
    LOOPS_LOAD(LIMN_I64, int64_t, LOOPS_ONE)
    LOOPS_LOAD(LIMN_I32, int32_t, LOOPS_ONE)
    LOOPS_LOAD(LIMN_I8, int8_t, LOOPS_ONE)
    LOOPS_LOAD(LIMN_U8, uint8_t, LOOPS_ONE)
    LOOPS_LOAD(LIMN_BOOL, uint8_t, LOOPS_ONE)
  }
}

static void loops_store(int dtype, void *p, const float *v, int64_t n) {
  uint16_t *d = p;
  switch (dtype) {
    case LIMN_F32: memcpy(p, v, (size_t)n * sizeof *v); break;
    case LIMN_F16: loops_store_half(d, v, n); break;
    case LIMN_BF16:
      for (int64_t i = 0; i < n; i++) d[i] = loops_to_bf16(v[i]);
      break;
  }
}

/* -- folds -- */

/* Sums of int64 wrap, as unsigned ones do. A NaN on either side stays. */
#define FOLD_sum(a, x) ((a) + (x))
#define FOLD_prod(a, x) ((a) * (x))
#define FOLD_max(a, x) ((x) != (x) ? (x) : (x) > (a) ? (x) : (a))
#define FOLD_min(a, x) ((x) != (x) ? (x) : (x) < (a) ? (x) : (a))
#define FOLD_isum(a, x) ((int64_t)((uint64_t)(a) + (uint64_t)(x)))
#define FOLD_iprod(a, x) ((int64_t)((uint64_t)(a) * (uint64_t)(x)))

enum {
  LANES = 64,
  SHORT = 256,  /* rows up to this are folded by the compiler's reduction */
  PIECE = 4096  /* elements that gather before they widen */
};

#define SIMD(clauses) SIMD_(omp simd clauses)
#define SIMD_(x) _Pragma(#x)
/* Folds of short rows: B is an int as wide as T, which notes NaN. */
#define SHORT_ADD(name, T, B, sign, first)                        \
  INLINE T fold_short_##name(const T *x, int64_t n) {             \
    T a = first;                                                  \
    SIMD(reduction(sign : a)) for (int64_t j = 0; j < n; j++)     \
      a = a sign x[j];                                            \
    return a;                                                     \
  }
/* Compilers may start from the lowest finite number instead of -infinity; a
 * result no better than that, or a NaN, is computed again, exactly. */
#define SHORT_BEST(name, T, B, which, sign, first, edge, op)      \
  INLINE T fold_short_##name(const T *x, int64_t n) {             \
    T a = first;                                                  \
    B bad = 0;                                                    \
    SIMD(reduction(which : a) reduction(| : bad))                 \
    for (int64_t j = 0; j < n; j++) {                             \
      a = x[j] sign a ? x[j] : a;                                 \
      bad |= x[j] != x[j];                                        \
    }                                                             \
    if (!bad && a sign edge) return a;                            \
    a = first;                                                    \
    for (int64_t j = 0; j < n; j++) a = op(a, x[j]);              \
    return a;                                                     \
  }
SHORT_ADD(f32_sum, float, int32_t, +, 0)
SHORT_ADD(f32_prod, float, int32_t, *, 1)
SHORT_BEST(f32_max, float, int32_t, max, >, -__builtin_inff(), -__FLT_MAX__,
           FOLD_max)
SHORT_BEST(f32_min, float, int32_t, min, <, __builtin_inff(), __FLT_MAX__,
           FOLD_min)
SHORT_ADD(f64_sum, double, int64_t, +, 0)
SHORT_ADD(f64_prod, double, int64_t, *, 1)
SHORT_BEST(f64_max, double, int64_t, max, >, -__builtin_inf(), -__DBL_MAX__,
           FOLD_max)
SHORT_BEST(f64_min, double, int64_t, min, <, __builtin_inf(), __DBL_MAX__,
           FOLD_min)
SHORT_ADD(u64_sum, uint64_t, int64_t, +, 0)
SHORT_ADD(u64_prod, uint64_t, int64_t, *, 1)
SHORT_BEST(i64_max, int64_t, int64_t, max, >, INT64_MIN, INT64_MIN, FOLD_max)
SHORT_BEST(i64_min, int64_t, int64_t, min, <, INT64_MAX, INT64_MAX, FOLD_min)
INLINE int64_t fold_short_i64_sum(const int64_t *x, int64_t n) {
  return (int64_t)fold_short_u64_sum((const uint64_t *)x, n);
}
INLINE int64_t fold_short_i64_prod(const int64_t *x, int64_t n) {
  return (int64_t)fold_short_u64_prod((const uint64_t *)x, n);
}

/* Four rows at a time, added to each other first: that halves the traffic of
 * acc and makes the chains of rounding errors shorter. `each` cuts a row in
 * pieces of PIECE and folds a piece as rows of 64 lanes. */
#define FOLD(name, T, W, op, first)                                          \
  INLINE void rows_##name(const T *restrict x, int64_t rs, int64_t rows,     \
                          int64_t n, T *restrict acc) {                      \
    int64_t r = 0;                                                           \
    for (; r + 4 <= rows; r += 4, x += 4 * rs) {                             \
      const T *x1 = x + rs, *x2 = x1 + rs, *x3 = x2 + rs;                    \
      _Pragma("omp simd") for (int64_t j = 0; j < n; j++) {                  \
        T a = op(x[j], x1[j]), b = op(x2[j], x3[j]), c = op(a, b);           \
        acc[j] = op(acc[j], c);                                              \
      }                                                                      \
    }                                                                        \
    for (; r < rows; r++, x += rs)                                           \
      _Pragma("omp simd") for (int64_t j = 0; j < n; j++)                    \
        acc[j] = op(acc[j], x[j]);                                           \
  }                                                                          \
  static void fold_rows_##name(const void *x, int64_t rs, int64_t rows,      \
                               int64_t n, void *acc) {                       \
    rows_##name(x, rs, rows, n, acc);                                        \
  }                                                                          \
  static void fold_flush_##name(const void *part, int64_t n, void *wide) {   \
    const T *restrict p = part;                                              \
    W *restrict w = wide;                                                    \
    for (int64_t j = 0; j < n; j++) w[j] = op(w[j], (W)p[j]);                \
  }                                                                          \
  static void fold_clear_##name(void *acc, int64_t n) {                      \
    T *a = acc;                                                              \
    for (int64_t j = 0; j < n; j++) a[j] = first;                            \
  }                                                                          \
  static void fold_clear_wide_##name(void *wide, int64_t n) {                \
    W *w = wide;                                                             \
    for (int64_t j = 0; j < n; j++) w[j] = first;                            \
  }                                                                          \
  INLINE T fold_piece_##name(const T *x, int64_t n) {                        \
    T lane[LANES], a;                                                        \
    int64_t j = n / LANES * LANES;                                           \
    if (n < 16) { /* too short for vectors */                                \
      for (a = first, j = 0; j < n; j++) a = op(a, x[j]);                    \
      return a;                                                              \
    }                                                                        \
    if (n <= SHORT) return fold_short_##name(x, n);                          \
    for (int k = 0; k < LANES; k++) lane[k] = first;                         \
    rows_##name(x, LANES, n / LANES, LANES, lane);                           \
    for (int k = 0; k < 32; k++) lane[k] = op(lane[k], lane[k + 32]);        \
    for (int k = 0; k < 16; k++) lane[k] = op(lane[k], lane[k + 16]);        \
    for (int k = 0; k < 8; k++) lane[k] = op(lane[k], lane[k + 8]);          \
    a = fold_short_##name(lane, 8);                                          \
    if (j == n) return a;                                                    \
    return op(a, fold_short_##name(x + j, n - j));                           \
  }                                                                          \
  static void fold_each_##name(const void *from, int64_t rs, int64_t rows,   \
                               int64_t n, void *wide) {                      \
    W *w = wide;                                                             \
    for (int64_t r = 0; r < rows; r++) {                                     \
      const T *x = (const T *)from + r * rs;                                 \
      W a = w[r];                                                            \
      for (int64_t i = 0; i < n; i += PIECE) {                               \
        W part = fold_piece_##name(x + i, n - i < PIECE ? n - i : PIECE);    \
        a = op(a, part);                                                     \
      }                                                                      \
      w[r] = a;                                                              \
    }                                                                        \
  }
#define FOLD_TABLE(name)                                               \
  {fold_rows_##name, fold_flush_##name, fold_each_##name,              \
   fold_clear_##name, fold_clear_wide_##name}

FOLD(f32_sum, float, double, FOLD_sum, 0)
FOLD(f32_prod, float, double, FOLD_prod, 1)
FOLD(f32_max, float, double, FOLD_max, -__builtin_inff())
FOLD(f32_min, float, double, FOLD_min, __builtin_inff())
FOLD(f64_sum, double, double, FOLD_sum, 0)
FOLD(f64_prod, double, double, FOLD_prod, 1)
FOLD(f64_max, double, double, FOLD_max, -__builtin_inf())
FOLD(f64_min, double, double, FOLD_min, __builtin_inf())
FOLD(i64_sum, int64_t, int64_t, FOLD_isum, 0)
FOLD(i64_prod, int64_t, int64_t, FOLD_iprod, 1)
FOLD(i64_max, int64_t, int64_t, FOLD_max, INT64_MIN)
FOLD(i64_min, int64_t, int64_t, FOLD_min, INT64_MAX)

/* -- exponentials -- */

/* Rounded once where that is one instruction. */
#ifdef __FMA__
#define LOOPS_FMA(a, b, c) __builtin_fmaf(a, b, c)
#else
#define LOOPS_FMA(a, b, c) ((a) * (b) + (c))
#endif

/* e^x for x <= 0 or NaN, to about one unit in the last place: x = k ln 2 + r,
 * a polynomial in r (coefficients from Moshier, "Methods and Programs for
 * Mathematical Functions", 1989) and 2^k as 2^(k + 63) times 2^-63, because
 * 2^k may be subnormal. Adding 1.5 * 2^23 rounds and leaves k in the low bits.
 * NaN stays NaN, with whatever k: hence unsigned arithmetic. */
INLINE float loops_exp(float x) {
  const float magic = 12582912.0f;
  float k, r, p, scale;
  uint32_t bits;
  x = -105.0f > x ? -105.0f : x; /* where the result is 0; keeps NaN */
  k = LOOPS_FMA(x, 1.44269504f, magic);
  memcpy(&bits, &k, sizeof bits);
  k -= magic;
  r = LOOPS_FMA(k, -0.693359375f, x);
  r = LOOPS_FMA(k, 2.12194440e-4f, r);
  p = 1.9875691500e-4f;
  p = LOOPS_FMA(p, r, 1.3981999507e-3f);
  p = LOOPS_FMA(p, r, 8.3334519073e-3f);
  p = LOOPS_FMA(p, r, 4.1665795894e-2f);
  p = LOOPS_FMA(p, r, 1.6666665459e-1f);
  p = LOOPS_FMA(p, r, 5.0000001201e-1f);
  p = LOOPS_FMA(p, r * r, r) + 1.0f;
  bits = (bits - 0x4b400000 + 127 + 63) << 23;
  memcpy(&scale, &bits, sizeof scale);
  return p * scale * 0x1p-63f;
}

/* Asks the memory for LANES floats `ahead` bytes on; 0: for nothing. */
INLINE void loops_fetch(const float *p, size_t ahead) {
  for (int k = 0; ahead && k < LANES; k += 16) /* lines of 64 bytes */
    __builtin_prefetch((const void *)((uintptr_t)(p + k) + ahead));
}

#define LOOPS_MOST(a, b) ((b) > (a) ? (b) : (a))
static float loops_peak(const float *x, int64_t n, size_t ahead) {
  float lane[LANES];
  int64_t j = 0;
  for (int k = 0; k < LANES; k++) lane[k] = -__builtin_inff();
  for (; j + LANES <= n; j += LANES) {
    loops_fetch(x + j, ahead);
    _Pragma("omp simd") for (int k = 0; k < LANES; k++)
      lane[k] = LOOPS_MOST(lane[k], x[j + k]);
  }
  for (; j < n; j++) lane[0] = LOOPS_MOST(lane[0], x[j]);
  for (int w = LANES / 2; w >= 8; w /= 2)
    for (int k = 0; k < w; k++) lane[k] = LOOPS_MOST(lane[k], lane[k + w]);
  for (int k = 1; k < 8; k++) lane[0] = LOOPS_MOST(lane[0], lane[k]);
  return lane[0];
}

/* As loops_exp_row, of a multiple of LANES up to PIECE: LANES sums by turns. */
INLINE float loops_exp_lanes(const float *x, float m, float *out, int64_t n,
                             size_t x_ahead, size_t out_ahead) {
  float lane[LANES] = {0};
  for (int64_t j = 0; j < n; j += LANES) {
    loops_fetch(x + j, x_ahead);
    loops_fetch(out + j, out_ahead);
    _Pragma("omp simd") for (int k = 0; k < LANES; k++) {
      float e = loops_exp(x[j + k] - m);
      out[j + k] = e;
      lane[k] += e;
    }
  }
  return fold_piece_f32_sum(lane, LANES);
}

static float loops_exp_row(const float *x, float m, float *out, int64_t n,
                           size_t x_ahead, size_t out_ahead) {
  double total = 0;
  int64_t end = n / LANES * LANES, some;
  for (int64_t i = 0; i < end; i += some) {
    some = end - i < PIECE ? end - i : PIECE;
    total += (double)loops_exp_lanes(x + i, m, out + i, some, x_ahead,
                                     out_ahead);
  }
  _Pragma("omp simd") for (int64_t j = end; j < n; j++)
    out[j] = loops_exp(x[j] - m);
  total += (double)fold_piece_f32_sum(out + end, n - end);
  return (float)total;
}

static void loops_exp_columns(const float *x, const float *m, float *out,
                              float *sum, int64_t n) {
  if (!out) {
    _Pragma("omp simd") for (int64_t j = 0; j < n; j++)
      sum[j] += loops_exp(x[j] - m[j]);
    return;
  }
  _Pragma("omp simd") for (int64_t j = 0; j < n; j++) {
    float e = loops_exp(x[j] - m[j]);
    out[j] = e;
    sum[j] += e;
  }
}

static void loops_scale(float *x, float by, int64_t n) {
  for (int64_t j = 0; j < n; j++) x[j] *= by;
}

static void loops_shift(const float *x, float m, float l, float *out,
                        int64_t n) {
  _Pragma("omp simd") for (int64_t j = 0; j < n; j++) out[j] = x[j] - m - l;
}

/* Loops that add up: WIDTH sums by turns, so that additions need not wait for
 * each other; those of each piece are joined in double. */
enum { WIDTH = 32 };

#define LOOPS_JOIN(T, name)                              \
  INLINE double loops_join_##name(T *acc) {              \
    for (int k = 0; k < 16; k++) acc[k] += acc[k + 16];  \
    for (int k = 0; k < 8; k++) acc[k] += acc[k + 8];    \
    for (int k = 0; k < 4; k++) acc[k] += acc[k + 4];    \
    return (double)(acc[0] + acc[1] + (acc[2] + acc[3])); \
  }
LOOPS_JOIN(float, f32)
LOOPS_JOIN(double, f64)

static double loops_sum(const float *x, int64_t n, size_t ahead) {
  double total = 0;
  for (int64_t i = 0; i < n; i += PIECE) {
    const float *s = x + i;
    int64_t some = n - i < PIECE ? n - i : PIECE, j = 0;
    float acc[WIDTH] = {0};
    for (; j + WIDTH <= some; j += WIDTH) {
      if (j % LANES == 0) loops_fetch(s + j, ahead);
      _Pragma("omp simd") for (int k = 0; k < WIDTH; k++) acc[k] += s[j + k];
    }
    for (; j < some; j++) acc[j % WIDTH] += s[j];
    total += loops_join_f32(acc);
  }
  return total;
}

static double loops_squares(const float *x, float m, int64_t n,
                            size_t ahead) {
  double total = 0;
  for (int64_t i = 0; i < n; i += PIECE) {
    const float *s = x + i;
    int64_t some = n - i < PIECE ? n - i : PIECE, j = 0;
    float acc[WIDTH] = {0};
    for (; j + WIDTH <= some; j += WIDTH) {
      if (j % LANES == 0) loops_fetch(s + j, ahead);
      _Pragma("omp simd") for (int k = 0; k < WIDTH; k++)
        acc[k] += (s[j + k] - m) * (s[j + k] - m);
    }
    for (; j < some; j++) acc[j % WIDTH] += (s[j] - m) * (s[j] - m);
    total += loops_join_f32(acc);
  }
  return total;
}

/* Values in a loop by themselves, so that out may be where any of them is. */
#define NORM_LOOP(value)                                                 \
  {                                                                      \
    int64_t i = 0;                                                       \
    for (; i + LANES <= n; i += LANES) {                                 \
      loops_fetch(out + i, ahead);                                       \
      _Pragma("omp simd") for (int64_t j = i; j < i + LANES; j++)        \
        out[j] = (value);                                                \
    }                                                                    \
    _Pragma("omp simd") for (int64_t j = i; j < n; j++) out[j] = (value); \
  }

static void loops_norm(const float *x, float m, float r, const float *w,
                       const float *b, float *out, int64_t n, size_t ahead) {
  if (w && b)
    NORM_LOOP((x[j] - m) * r * w[j] + b[j])
  else if (w)
    NORM_LOOP((x[j] - m) * r * w[j])
  else if (b)
    NORM_LOOP((x[j] - m) * r + b[j])
  else
    NORM_LOOP((x[j] - m) * r)
}

INLINE void loops_sums(const float *x, const float *g, const float *w, float m,
                       int64_t n, bool has, size_t ahead, double sum[2]) {
  float a[WIDTH] = {0}, c[WIDTH] = {0};
  int64_t j = 0;
  for (; j + WIDTH <= n; j += WIDTH) {
    if (j % LANES == 0) loops_fetch(g + j, ahead);
    _Pragma("omp simd") for (int k = 0; k < WIDTH; k++) {
      float h = has ? g[j + k] * w[j + k] : g[j + k];
      a[k] += h;
      c[k] += h * (x[j + k] - m);
    }
  }
  for (; j < n; j++) {
    float h = has ? g[j] * w[j] : g[j];
    a[j % WIDTH] += h;
    c[j % WIDTH] += h * (x[j] - m);
  }
  sum[0] += loops_join_f32(a);
  sum[1] += loops_join_f32(c);
}

static void loops_norm_sums(const float *x, const float *g, const float *w,
                            float m, int64_t n, size_t ahead, double sum[2]) {
  for (int64_t i = 0; i < n; i += PIECE) {
    int64_t some = n - i < PIECE ? n - i : PIECE;
    if (w)
      loops_sums(x + i, g + i, w + i, m, some, true, ahead, sum);
    else
      loops_sums(x + i, g + i, w, m, some, false, ahead, sum);
  }
}

static void loops_norm_back(const float *x, const float *g, const float *w,
                            const float p[4], float *out, int64_t n,
                            size_t ahead) {
  float m = p[0], r = p[1], mean = p[2], k = p[3];
  if (w)
    NORM_LOOP(r * (g[j] * w[j] - mean - (x[j] - m) * k))
  else
    NORM_LOOP(r * (g[j] - mean - (x[j] - m) * k))
}

static void loops_norm_add(const float *x, const float *g, float m, float r,
                           float *restrict w, float *restrict b, int64_t n,
                           size_t ahead) {
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES) {
    loops_fetch(g + i, ahead);
    for (int64_t j = i; j < i + LANES; j++) {
      w[j] += g[j] * ((x[j] - m) * r);
      b[j] += g[j];
    }
  }
  for (; i < n; i++) {
    w[i] += g[i] * ((x[i] - m) * r);
    b[i] += g[i];
  }
}

/* -- rows' gradients -- */

static double loops_dot(const float *x, const float *y, int64_t n,
                        size_t ahead) {
  double total = 0;
  for (int64_t i = 0; i < n; i += PIECE) {
    int64_t some = n - i < PIECE ? n - i : PIECE, j = 0;
    float acc[WIDTH] = {0};
    for (; j + WIDTH <= some; j += WIDTH) {
      if (j % LANES == 0) loops_fetch(x + i + j, ahead);
      if (j % LANES == 0) loops_fetch(y + i + j, ahead);
      _Pragma("omp simd") for (int k = 0; k < WIDTH; k++)
        acc[k] += x[i + j + k] * y[i + j + k];
    }
    for (; j < some; j++) acc[j % WIDTH] += x[i + j] * y[i + j];
    total += loops_join_f32(acc);
  }
  return total;
}

static void loops_row_back(const float *y, const float *g, float s, bool log,
                           float *out, int64_t n, size_t ahead) {
  if (log)
    NORM_LOOP(g[j] - loops_exp(y[j]) * s)
  else
    NORM_LOOP(y[j] * (g[j] - s))
}

#include "cpu_batch_isa.h"
#include "cpu_pool_isa.h"

const limn_cpu_loops LOOPS_TABLE = {
    {loops_load_f32, loops_load_f64, loops_load_i64},
    loops_test,
    loops_store,
    {{FOLD_TABLE(f32_sum), FOLD_TABLE(f32_prod), FOLD_TABLE(f32_max),
      FOLD_TABLE(f32_min)},
     {FOLD_TABLE(f64_sum), FOLD_TABLE(f64_prod), FOLD_TABLE(f64_max),
      FOLD_TABLE(f64_min)},
     {FOLD_TABLE(i64_sum), FOLD_TABLE(i64_prod), FOLD_TABLE(i64_max),
      FOLD_TABLE(i64_min)}},
    loops_peak,
    loops_exp_row,
    loops_exp_columns,
    loops_scale,
    loops_shift,
    loops_sum,
    loops_squares,
    loops_norm,
    loops_norm_sums,
    loops_norm_back,
    loops_norm_add,
    loops_dot,
    loops_row_back,
    {BATCH_TABLE(f32), BATCH_TABLE(f64)},
    loops_pool,
    loops_pool_back,
};
