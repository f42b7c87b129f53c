/* Generators: arange and the random rows, whose rules are in philox.h. */
typedef uint32_t limn_u32;
typedef uint64_t limn_u64;
typedef int64_t limn_i64;
#define LIMN_FN INLINE
#define LIMN_HAVE_F64
#define LIMN_LOG elem_logf
#define LIMN_SQRT elem_sqrtf
#define LIMN_COS elem_cosf
#define LIMN_LOG64 elem_log
#define LIMN_SQRT64 elem_sqrt
#define LIMN_COS64 elem_cos
#include "philox.h"

enum { RANDOM_STEP = 64 }; /* elements at a time, a multiple of 16 */

/* At least n words from word `first` on, n <= 2 * RANDOM_STEP; returns where
 * in `out` they begin. */
#define RANDOM_WORDS (2 * RANDOM_STEP + 64)
static const uint32_t *random_fill(uint32_t *out, const limn_elem_gen *g,
                                   uint64_t first, int64_t n) {
  const uint64_t block = first / 4, seed = g->seed, draw = g->draw;
  const int64_t skip = (int64_t)(first % 4);
  const int64_t blocks = ((skip + n + 3) / 4 + 15) / 16 * 16;
#pragma omp simd
  for (int64_t i = 0; i < blocks; i++) {
    uint64_t k = block + (uint64_t)i;
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    uint32_t a = (uint32_t)k, b = (uint32_t)(k >> 32);
    uint32_t c = (uint32_t)draw, d = (uint32_t)(draw >> 32);
    LIMN_PHILOX(a, b, c, d, k0, k1)
    out[4 * i] = a;
    out[4 * i + 1] = b;
    out[4 * i + 2] = c;
    out[4 * i + 3] = d;
  }
  return out + skip;
}

/* Element i of a step from w (one word each) or w and 2i (two words each). */
#define RANDOM(fn, O, words, expr)                                         \
  KERNEL(fn) {                                                             \
    mem_##O *o = o_;                                                       \
    const limn_elem_gen *g = c_;                                           \
    UNUSED;                                                                \
    for (int64_t at = 0; at < n; at += RANDOM_STEP, o += RANDOM_STEP) {    \
      const int64_t m = n - at < RANDOM_STEP ? n - at : RANDOM_STEP;       \
      const uint64_t first = (uint64_t)(g->first + at) * (words);          \
      uint32_t buffer[RANDOM_WORDS];                                       \
      const uint32_t *w = random_fill(buffer, g, first, m * (words));      \
      _Pragma("omp simd") for (int64_t i = 0; i < (m & -16); i++)          \
        o[i] = (val_##O)(expr);                                            \
    }                                                                      \
  }
#define WORD w[i]
#define TWO_WORDS ((uint64_t)w[2 * i] << 32 | w[2 * i + 1])
RANDOM(rand_bits, i64, 1, WORD)
RANDOM(rand_f32, f32, 1, limn_uniform_f32(WORD))
RANDOM(rand_f16, f32, 1, limn_uniform_f16(WORD))
RANDOM(rand_bf16, f32, 1, limn_uniform_bf16(WORD))
RANDOM(rand_f64, f64, 2, limn_uniform_f64(TWO_WORDS))
RANDOM(randn_f32, f32, 2, limn_normal_f32(w[2 * i], w[2 * i + 1]))
RANDOM(randn_f64, f64, 2, limn_normal_f64(w[2 * i], w[2 * i + 1]))

/* A bound of randint as an integer: truncated, kept within int64. */
INLINE int64_t random_bound(double a) { return TO_I64; }
#define RANDINT(ts, bound)                                               \
  KERNEL(randint_##ts) {                                                 \
    mem_##ts *o = o_;                                                    \
    const val_##ts lo_ = *(const mem_##ts *)a_, hi_ = *(const mem_##ts *)b_; \
    const int64_t lo = bound(lo_), hi = bound(hi_);                      \
    const limn_elem_gen *g = c_;                                         \
    for (int64_t at = 0; at < n; at += RANDOM_STEP, o += RANDOM_STEP) {  \
      const int64_t m = n - at < RANDOM_STEP ? n - at : RANDOM_STEP;     \
      uint32_t buffer[RANDOM_WORDS];                                     \
      const uint32_t *w =                                                \
          random_fill(buffer, g, (uint64_t)(g->first + at) * 2, m * 2);  \
      _Pragma("omp simd") for (int64_t i = 0; i < (m & -16); i++)        \
        o[i] = (val_##ts)limn_randint(TWO_WORDS, lo, hi);                \
    }                                                                    \
  }
RANDINT(f32, random_bound)
RANDINT(f64, random_bound)
RANDINT(i32, (int64_t))
RANDINT(i64, (int64_t))
RANDINT(b8, (int64_t))

/* first + i * step; floats in double, rounded once. */
#define ARANGE(ts, wide)                                             \
  KERNEL(arange_##ts) {                                              \
    mem_##ts *o = o_;                                                \
    const wide first = (wide) * (const mem_##ts *)a_,                \
               step = (wide) * (const mem_##ts *)b_;                 \
    const int64_t at = ((const limn_elem_gen *)c_)->first;           \
    EACH o[i] = (val_##ts)(first + (wide)(at + i) * step);           \
  }
ARANGE(f32, double)
ARANGE(f64, double)
ARANGE(i32, int64_t)
ARANGE(i64, int64_t)
KERNEL(arange_b8) {
  mem_b8 *o = o_;
  const mem_b8 *first = a_, *step = b_;
  const int64_t at = ((const limn_elem_gen *)c_)->first;
  EACH o[i] = *first + (at + i) * *step != 0;
}

#define RANDOM_TABLE                                                    \
  .arange = {arange_f32, arange_f64, arange_i32, arange_i64, arange_b8}, \
  .rand_bits = rand_bits,                                               \
  .rand = {[LIMN_F32] = rand_f32, [LIMN_F64] = rand_f64,                \
           [LIMN_F16] = rand_f16, [LIMN_BF16] = rand_bf16},             \
  .randn = {randn_f32, randn_f64},                                      \
  .randint = {randint_f32, randint_f64, randint_i32, randint_i64,       \
              randint_b8}
