/* float functions in plain arithmetic, for compilers and C libraries without
 * vector versions: within 3 units in the last place of float (erf: 2e-7),
 * with NaN, infinities and signed zeros kept. No branches, so loops over them
 * vectorise; no contraction is relied on. */
#include <string.h>

#define MATHF static inline __attribute__((always_inline))

MATHF uint32_t mathf_bits(float x) {
  uint32_t u;
  memcpy(&u, &x, 4);
  return u;
}
MATHF float mathf_float(uint32_t u) {
  float x;
  memcpy(&x, &u, 4);
  return x;
}
/* Nearest whole number of |x| < 2^22: adding 1.5 * 2^23 leaves no fraction. */
MATHF float mathf_rint(float x) {
  return (x + 12582912.0f) - 12582912.0f;
}
MATHF float mathf_pow2(float n) { /* n whole, -126..127 */
  return mathf_float((uint32_t)((int32_t)n + 127) << 23);
}
MATHF float mathf_sign(float x, float sign) { /* copysign */
  return mathf_float((mathf_bits(x) & 0x7fffffff) |
                     (mathf_bits(sign) & 0x80000000));
}

/* e^r - 1 for |r| <= ln(2)/2: the Taylor series, next term below 6e-9. */
MATHF float mathf_expm1_part(float r) {
  float p = 1.0f / 5040;
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  return r + r * r * p;
}
/* x = n ln(2) + r; ln(2) in two parts, the first with 9 trailing zero bits. */
MATHF float mathf_reduce(float x, float n) {
  return (x - n * 0.693359375f) - n * -2.12194440e-4f;
}
/* 2^n in two factors: results may be subnormal or overflow. */
MATHF float mathf_scale(float p, float n) {
  float half = mathf_rint(n * 0.5f);
  return (p + 1) * mathf_pow2(half) * mathf_pow2(n - half);
}
MATHF float mathf_clip(float x, float lo, float hi) { /* keeps NaN */
  x = x < lo ? lo : x;
  return x > hi ? hi : x;
}

MATHF float elem_expf(float a) {
  float x = mathf_clip(a, -105, 90), n;
  x = x != x ? 0 : x; /* a NaN must not become an int */
  n = mathf_rint(x * 1.44269504f);
  x = mathf_scale(mathf_expm1_part(mathf_reduce(x, n)), n);
  return a != a ? a : x;
}
MATHF float elem_exp2f(float a) {
  float x = mathf_clip(a, -151, 129), n;
  x = x != x ? 0 : x;
  n = mathf_rint(x);
  x = mathf_scale(mathf_expm1_part((x - n) * 0.693147181f), n);
  return a != a ? a : x;
}
/* 2^n p + 2^n - 1, halved so that 2^n does not overflow first. */
MATHF float elem_expm1f(float a) {
  float x = mathf_clip(a, -30, 90), n, s;
  x = x != x ? 0 : x;
  n = mathf_rint(x * 1.44269504f);
  n = n > 128 ? 128 : n;
  s = mathf_pow2(n - 1);
  x = 2 * (mathf_expm1_part(mathf_reduce(x, n)) * s + (s - 0.5f));
  x = a > 88.8f ? a * 1e38f : x;
  return a != a || a == 0 ? a : x;
}
/* m in [sqrt(1/2), sqrt(2)), log m = 2 artanh((m - 1) / (m + 1)). */
MATHF float elem_logf(float a) {
  float x = a < 1.17549435e-38f ? a * 8388608.0f : a;
  uint32_t u = mathf_bits(x) - 0x3f3504f3;
  float n = (float)((int32_t)u >> 23) - (a < 1.17549435e-38f ? 23.0f : 0.0f);
  float f = mathf_float((u & 0x7fffff) + 0x3f3504f3) - 1, s = f / (2 + f);
  float z = s * s, p = 1.0f / 11, r;
  p = p * z + 1.0f / 9;
  p = p * z + 1.0f / 7;
  p = p * z + 1.0f / 5;
  p = p * z + 1.0f / 3;
  /* f - s * (f - 2 z p): the largest part, f, is exact */
  r = n * 0.693359375f + (f - s * (f - 2 * z * p) + n * -2.12194440e-4f);
  r = a == 0 ? -INFINITY : a < 0 ? NAN : r;
  return a == INFINITY || a != a ? a : r;
}
/* log of the rounded sum, and what the rounding lost (Kahan). */
MATHF float elem_log1pf(float a) {
  float u = 1 + a, r = elem_logf(u) + (a - (u - 1)) / u;
  r = u == 0 ? -INFINITY : r;
  return u == INFINITY || a == 0 ? a : r;
}
MATHF float elem_tanhf(float a) {
  float x = mathf_float(mathf_bits(a) & 0x7fffffff), t;
  t = elem_expm1f(2 * (x > 10 ? 10 : x));
  return mathf_sign(t / (t + 2), a);
}
/* Below 1 the Taylor series, above formula 7.1.26 of Abramowitz and Stegun,
 * "Handbook of Mathematical Functions". */
MATHF float elem_erff(float a) {
  float x = mathf_float(mathf_bits(a) & 0x7fffffff), z, p, t, q;
  z = x < 1 ? x * x : 1;
  p = -1.0f / 918086400; /* (-1)^n / (n! (2n + 1)), n = 11 .. 0 */
  p = p * z + 1.0f / 76204800;
  p = p * z - 1.0f / 6894720;
  p = p * z + 1.0f / 685440;
  p = p * z - 1.0f / 75600;
  p = p * z + 1.0f / 9360;
  p = p * z - 1.0f / 1320;
  p = p * z + 1.0f / 216;
  p = p * z - 1.0f / 42;
  p = p * z + 1.0f / 10;
  p = p * z - 1.0f / 3;
  p = (x + x * (p * z)) * 1.12837917f;
  t = x > 6 ? 6 : x;
  z = 1 / (1 + 0.3275911f * t);
  q = 1.061405429f;
  q = q * z - 1.453152027f;
  q = q * z + 1.421413741f;
  q = q * z - 0.284496736f;
  q = q * z + 0.254829592f;
  q = 1 - q * z * elem_expf(-t * t);
  return a != a ? a : mathf_sign(x < 1 ? p : q, a);
}
