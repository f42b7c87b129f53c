/* The remainder of floats, vectorised: fmod does one element at a time.
 *
 * While |a / b| < 2^29 the quotient in double, rounded down, is right: a and b
 * have 24 bits, so a quotient that is not whole is further than 2^-25 from a
 * whole number, and the error of the division is below that. Quotient times b
 * and the difference are then exact in 53 bits, and the result is rounded once,
 * as fmod and the adjustment of its sign would. Blocks with a larger quotient,
 * infinities or NaN take the plain way. */
INLINE double remainder_floor(double q) { /* |q| < 2^51, without SSE4.1 too */
  double r = (q + 0x1.8p52) - 0x1.8p52;
  return r - (r > q ? 1.0 : 0.0);
}

#define REMAINDER(fn, X1, X2)                                               \
  KERNEL(fn) {                                                              \
    mem_f32 *o = o_;                                                        \
    const mem_f32 *p1 = a_, *p2 = b_;                                       \
    const float s1 = *p1, s2 = *p2;                                         \
    UNUSED, (void)s1, (void)s2;                                             \
    for (int64_t at = 0; at < n; at += 16) {                                \
      float a[16], b[16], r[16];                                            \
      int bad = 0;                                                          \
      for (int64_t i = at; i < at + 16; i++)                                \
        a[i - at] = X1(1), b[i - at] = X2(2);                               \
      _Pragma("omp simd reduction(|:bad)") for (int i = 0; i < 16; i++) {   \
        double x = a[i], y = b[i], q = x / y;                               \
        double v = x - remainder_floor(q) * y;                              \
        bad |= !(q < 0x1p29 && q > -0x1p29) | (v != v);                     \
        r[i] = (float)v;                                                    \
      }                                                                     \
      if (bad)                                                              \
        for (int i = 0; i < 16; i++) r[i] = d_rem_f32(a[i], b[i]);          \
      for (int i = 0; i < 16; i++) o[at + i] = r[i];                        \
    }                                                                       \
  }
REMAINDER(remainder_f32_fast_vv, ARR, ARR)
REMAINDER(remainder_f32_fast_sv, FIX, ARR)
REMAINDER(remainder_f32_fast_vs, ARR, FIX)
static limn_elem_forms forms_remainder_f32[4] = {
    remainder_f32_fast_vv, remainder_f32_fast_sv, remainder_f32_fast_vs};
