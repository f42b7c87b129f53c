/* From seed, draw and element number to random numbers: the one definition,
 * for C, OpenCL C and CUDA C alike.
 *
 * Including files define limn_u32, limn_u64 (unsigned, 32 and 64 bits),
 * limn_i64 and LIMN_FN (what opens an inline function: "static inline"); for
 * the float parts also LIMN_LOG, LIMN_SQRT and LIMN_COS, which are functions
 * of float. Where doubles exist, LIMN_HAVE_F64 and LIMN_LOG64, LIMN_SQRT64,
 * LIMN_COS64 add the double forms. Nothing else is needed.
 *
 * Words. Word i of an op is word i mod 4 of the block that Philox4x32-10
 * (Salmon, Moraes, Dror, Shaw, SC 2011) gives for the key (seed low, seed
 * high) and the counter (i div 4 low, high, draw low, high).
 *
 * Numbers. Element e, row-major in the op's logical shape, is
 *   rand_bits  word e as an int64
 *   rand       f32  (word e >> 8) / 2^24        f16  (word e >> 21) / 2^11
 *              bf16 (word e >> 24) / 2^8
 *              f64  (hi * 2^21 + (lo >> 11)) / 2^53, hi = word 2e,
 *                   lo = word 2e + 1
 *   randn      sqrt(-2 log u) cos(2 pi v), u = (word 2e + 1/2) / 2^32,
 *              v = word 2e+1 / 2^32, in float for f32, f16 and bf16 (then
 *              rounded), in double for f64: the same numbers but for rounding
 *   randint    low + the high 64 bits of x * (high - low + 1), with
 *              x = word 2e * 2^32 + word 2e+1; a range of 2^64 gives low + x;
 *              low when high < low. Float dtypes: low and high are cut to
 *              whole numbers first. */
#ifndef LIMN_PHILOX_H
#define LIMN_PHILOX_H

#define LIMN_PHILOX_ROUND(a, b, c, d, k0, k1)              \
  {                                                        \
    limn_u64 p_ = (limn_u64)0xD2511F53u * (a);             \
    limn_u64 q_ = (limn_u64)0xCD9E8D57u * (c);             \
    limn_u32 b_ = (b), d_ = (d);                           \
    (a) = (limn_u32)(q_ >> 32) ^ b_ ^ (k0);                \
    (c) = (limn_u32)(p_ >> 32) ^ d_ ^ (k1);                \
    (b) = (limn_u32)q_;                                    \
    (d) = (limn_u32)p_;                                    \
    (k0) += 0x9E3779B9u;                                   \
    (k1) += 0xBB67AE85u;                                   \
  }

/* a..d: the counter on entry, the block on exit. All are changed. */
#define LIMN_PHILOX(a, b, c, d, k0, k1)                                    \
  LIMN_PHILOX_ROUND(a, b, c, d, k0, k1) LIMN_PHILOX_ROUND(a, b, c, d, k0, k1) \
  LIMN_PHILOX_ROUND(a, b, c, d, k0, k1) LIMN_PHILOX_ROUND(a, b, c, d, k0, k1) \
  LIMN_PHILOX_ROUND(a, b, c, d, k0, k1) LIMN_PHILOX_ROUND(a, b, c, d, k0, k1) \
  LIMN_PHILOX_ROUND(a, b, c, d, k0, k1) LIMN_PHILOX_ROUND(a, b, c, d, k0, k1) \
  LIMN_PHILOX_ROUND(a, b, c, d, k0, k1) LIMN_PHILOX_ROUND(a, b, c, d, k0, k1)

/* Word i; for GPUs, where each element finds its own. */
LIMN_FN limn_u32 limn_philox_word(limn_u64 seed, limn_u64 draw, limn_u64 i) {
  limn_u32 k0 = (limn_u32)seed, k1 = (limn_u32)(seed >> 32);
  limn_u32 a = (limn_u32)(i >> 2), b = (limn_u32)(i >> 34);
  limn_u32 c = (limn_u32)draw, d = (limn_u32)(draw >> 32);
  limn_u32 which = (limn_u32)i & 3u;
  LIMN_PHILOX(a, b, c, d, k0, k1)
  return which < 2u ? (which == 0u ? a : b) : (which == 2u ? c : d);
}

/* Words 2e (in the upper half) and 2e + 1 as one number. */
LIMN_FN limn_u64 limn_philox_two(limn_u64 seed, limn_u64 draw, limn_u64 e) {
  limn_u64 i = e << 1;
  limn_u32 k0 = (limn_u32)seed, k1 = (limn_u32)(seed >> 32);
  limn_u32 a = (limn_u32)(i >> 2), b = (limn_u32)(i >> 34);
  limn_u32 c = (limn_u32)draw, d = (limn_u32)(draw >> 32);
  LIMN_PHILOX(a, b, c, d, k0, k1)
  return (i & 2u) ? ((limn_u64)c << 32 | d) : ((limn_u64)a << 32 | b);
}

/* Numbers from words; w is one word, x is two as limn_philox_two gives. */
LIMN_FN float limn_uniform_f32(limn_u32 w) {
  return (float)(w >> 8) * 5.9604644775390625e-8f; /* 2^-24 */
}
LIMN_FN float limn_uniform_f16(limn_u32 w) {
  return (float)(w >> 21) * 4.8828125e-4f; /* 2^-11 */
}
LIMN_FN float limn_uniform_bf16(limn_u32 w) {
  return (float)(w >> 24) * 3.90625e-3f; /* 2^-8 */
}
LIMN_FN float limn_normal_f32(limn_u32 w0, limn_u32 w1) {
  float u = (float)w0 * 2.3283064365386963e-10f + 1.1641532182693481e-10f;
  float v = (float)w1 * 2.3283064365386963e-10f;
  return LIMN_SQRT(-2.0f * LIMN_LOG(u)) * LIMN_COS(6.283185307179586f * v);
}
#ifdef LIMN_HAVE_F64
LIMN_FN double limn_uniform_f64(limn_u64 x) {
  return (double)(x >> 11) * 1.1102230246251565e-16; /* 2^-53 */
}
LIMN_FN double limn_normal_f64(limn_u32 w0, limn_u32 w1) {
  double u = ((double)w0 + 0.5) * 2.3283064365386963e-10;
  double v = (double)w1 * 2.3283064365386963e-10;
  return LIMN_SQRT64(-2.0 * LIMN_LOG64(u)) *
         LIMN_COS64(6.283185307179586476925 * v);
}
#endif
/* The high 64 bits of a product. */
LIMN_FN limn_u64 limn_mul_high(limn_u64 x, limn_u64 y) {
  limn_u64 xl = x & 0xffffffffu, xh = x >> 32;
  limn_u64 yl = y & 0xffffffffu, yh = y >> 32;
  limn_u64 mid = xh * yl + (xl * yl >> 32);
  limn_u64 low = xl * yh + (mid & 0xffffffffu);
  return xh * yh + (mid >> 32) + (low >> 32);
}
LIMN_FN limn_i64 limn_randint(limn_u64 x, limn_i64 low, limn_i64 high) {
  limn_u64 range = (limn_u64)high - (limn_u64)low + 1u;
  limn_u64 add = range == 0u ? x : limn_mul_high(x, range);
  return (limn_i64)((limn_u64)low + (high < low ? 0u : add));
}

#endif
