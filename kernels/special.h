/* Special functions without counterpart in the mathematical libraries of all
 * devices: one definition, for C, OpenCL C and CUDA C alike.
 *
 * SPECIAL(FN, t, T, LOG, EXP, POW, TAN, SIN, FLOOR, ERF, SQRT) defines them
 * for the type T, with its functions; FN opens an inline function, and names
 * end in t. INFINITY must exist. */
#ifndef LIMN_SPECIAL_H
#define LIMN_SPECIAL_H

/* Giles, "Approximating the erfinv function", 2010, which is exact to float;
 * for double two steps of Newton's method (`more`) follow. */
#define SPECIAL_ERFINV(FN, t, T, LOG, EXP, ERF, SQRT, more)                 \
  FN T ERFINV_##t(T y) {                                                    \
    T w = -LOG(((T)1 - y) * ((T)1 + y)), p, x;                              \
    int i;                                                                  \
    if (!(w < (T)INFINITY)) /* at -1 and 1, beyond them, NaN */             \
      return y == (T)1 || y == (T)-1 ? y * (T)INFINITY                      \
                                     : (T)INFINITY - (T)INFINITY;           \
    if (w < (T)5) {                                                         \
      w -= (T)2.5;                                                          \
      p = (T)2.81022636e-08;                                                \
      p = (T)3.43273939e-07 + p * w;                                        \
      p = (T)-3.5233877e-06 + p * w;                                        \
      p = (T)-4.39150654e-06 + p * w;                                       \
      p = (T)0.00021858087 + p * w;                                         \
      p = (T)-0.00125372503 + p * w;                                        \
      p = (T)-0.00417768164 + p * w;                                        \
      p = (T)0.246640727 + p * w;                                           \
      p = (T)1.50140941 + p * w;                                            \
    } else {                                                                \
      w = SQRT(w) - (T)3;                                                   \
      p = (T)-0.000200214257;                                               \
      p = (T)0.000100950558 + p * w;                                        \
      p = (T)0.00134934322 + p * w;                                         \
      p = (T)-0.00367342844 + p * w;                                        \
      p = (T)0.00573950773 + p * w;                                         \
      p = (T)-0.0076224613 + p * w;                                         \
      p = (T)0.00943887047 + p * w;                                         \
      p = (T)1.00167406 + p * w;                                            \
      p = (T)2.83297682 + p * w;                                            \
    }                                                                       \
    x = p * y;                                                              \
    for (i = 0; i < (more); i++)                                            \
      x -= (ERF(x) - y) * (T)0.88622692545275801365 * EXP(x * x);           \
    return x;                                                               \
  }

/* Bernardo, "Algorithm AS 103", 1976: upwards by psi(x) = psi(x + 1) - 1 / x,
 * then the asymptotic series; below 0 by reflection. */
#define SPECIAL_DIGAMMA(FN, t, T, LOG, TAN, FLOOR)                          \
  FN T DIGAMMA_##t(T x) {                                                   \
    T r = (T)0, z, pi = (T)3.14159265358979323846;                          \
    if (x == (T)0) return (T)-1 / x; /* its sign */                         \
    if (!(x > -(T)INFINITY)) return (T)INFINITY - (T)INFINITY;              \
    if (x < (T)0) {                                                         \
      if (x == FLOOR(x)) return (T)INFINITY - (T)INFINITY;                  \
      r = -pi / TAN(pi * (x - FLOOR(x + (T)0.5))); /* exact near poles */   \
      x = (T)1 - x;                                                         \
    }                                                                       \
    for (; x < (T)10; x += (T)1) r -= (T)1 / x;                             \
    z = (T)1 / (x * x);                                                     \
    z *= (T)1 / (T)12 - z * ((T)1 / (T)120 - z * ((T)1 / (T)252 -           \
         z * ((T)1 / (T)240 - z * ((T)1 / (T)132 - z * ((T)691 / (T)32760 - \
         z / (T)12)))));                                                    \
    return r + LOG(x) - (T)0.5 / x - z;                                     \
  }

/* (-1)^(n + 1) n! zeta(n + 1, x), and of order 0 digamma. Hurwitz's zeta is
 * the sum of (x + k)^-(n + 1): the first ones as they are, the rest by Euler's
 * and Maclaurin's formula. Of order 1 also below 0, by reflection. */
#define SPECIAL_POLYGAMMA(FN, t, T, POW, SIN, FLOOR)                        \
  FN T POLYGAMMA_##t(T n, T x) {                                            \
    T s = n + (T)1, sum = (T)0, plus = (T)0, term, f = (T)1, k;             \
    T nan = (T)INFINITY - (T)INFINITY;                                      \
    T pi = (T)3.14159265358979323846, ratio, j;                             \
    if (n == (T)0) return DIGAMMA_##t(x);                                   \
    if (!(n > (T)0) || n != FLOOR(n) || x != x) return nan;                 \
    for (k = (T)2; k <= n && k < (T)200; k += (T)1) f *= k;                 \
    f *= n == (T)2 * FLOOR(n / (T)2) ? (T)-1 : (T)1;                        \
    if (x <= (T)0 && x == FLOOR(x)) return f * (T)INFINITY;                 \
    if (x < (T)0) {                                                         \
      if (n != (T)1) return nan;                                            \
      plus = pi / SIN(pi * (x - FLOOR(x + (T)0.5)));                        \
      plus *= plus;                                                         \
      x = (T)1 - x;                                                         \
    }                                                                       \
    if (x == (T)INFINITY) return (T)0;                                      \
    for (; x < (T)12; x += (T)1) sum += POW(x, -s);                         \
    term = POW(x, -s);                                                      \
    ratio = sum + term * x / n + (T)0.5 * term;                             \
    /* B(2) / 2! s x^-(s + 1) + B(4) / 4! s (s + 1) (s + 2) x^-(s + 3) ... */ \
    j = term * s / x;                                                       \
    ratio += j / (T)12;                                                     \
    j *= (s + (T)1) * (s + (T)2) / (x * x);                                 \
    ratio -= j / (T)720;                                                    \
    j *= (s + (T)3) * (s + (T)4) / (x * x);                                 \
    ratio += j / (T)30240;                                                  \
    j *= (s + (T)5) * (s + (T)6) / (x * x);                                 \
    ratio -= j / (T)1209600;                                                \
    j *= (s + (T)7) * (s + (T)8) / (x * x);                                 \
    ratio += j / (T)47900160;                                               \
    j *= (s + (T)9) * (s + (T)10) / (x * x);                                \
    ratio -= j * (T)5.28419013868749e-10;                                   \
    j *= (s + (T)11) * (s + (T)12) / (x * x);                               \
    ratio += j * (T)1.33825365306846788e-11;                                \
    return x != x ? x : plus > (T)0 ? plus - f * ratio : f * ratio;         \
  }

#define SPECIAL(FN, t, T, LOG, EXP, POW, TAN, SIN, FLOOR, ERF, SQRT, more) \
  SPECIAL_ERFINV(FN, t, T, LOG, EXP, ERF, SQRT, more)                      \
  SPECIAL_DIGAMMA(FN, t, T, LOG, TAN, FLOOR)                               \
  SPECIAL_POLYGAMMA(FN, t, T, POW, SIN, FLOOR)

#endif
