/* The mathematical functions that the elementwise kernels call, each in a form
 * that vectorises: elem_<name>f of float, elem_<name> of double.
 *
 * With gcc and glibc (2.35 or newer, x86-64) a declaration that promises
 * vector versions makes loops call those of libmvec, which honour NaN,
 * infinities and signed zeros. Elsewhere floats have functions of our own and
 * doubles are the C library's. */
#include <stddef.h>
#include <stdint.h>
#if defined(__linux__)
#include <features.h> /* __GLIBC__ */
#endif
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && \
    defined(__GLIBC__)
#if __GLIBC_PREREQ(2, 35)
#define ELEM_MVEC 1
#endif
#endif

#ifdef ELEM_MVEC
#define MVEC1(name)                                             \
  __attribute__((simd("notinbranch"))) double name(double);     \
  __attribute__((simd("notinbranch"))) float name##f(float);
#define MVEC2(name)                                                \
  __attribute__((simd("notinbranch"))) double name(double, double); \
  __attribute__((simd("notinbranch"))) float name##f(float, float);
MVEC1(exp) MVEC1(exp2) MVEC1(expm1) MVEC1(log) MVEC1(log2) MVEC1(log10)
MVEC1(log1p) MVEC1(sin) MVEC1(cos) MVEC1(tan) MVEC1(asin) MVEC1(acos)
MVEC1(atan) MVEC1(sinh) MVEC1(cosh) MVEC1(tanh) MVEC1(asinh) MVEC1(acosh)
MVEC1(atanh) MVEC1(erf) MVEC2(pow) MVEC2(atan2)
#endif
#include <math.h>

#define ELEM_LIBM(name) \
  static inline double elem_##name(double a) { return name(a); }
#define ELEM_LIBMF(name) \
  static inline float elem_##name##f(float a) { return name##f(a); }
#define ELEM_BOTH(X) \
  X(exp) X(exp2) X(expm1) X(log) X(log2) X(log10) X(log1p) X(sin) X(cos) \
  X(tan) X(asin) X(acos) X(atan) X(sinh) X(cosh) X(tanh) X(asinh) X(acosh) \
  X(atanh) X(erf)
ELEM_BOTH(ELEM_LIBM)
ELEM_LIBM(sqrt) ELEM_LIBMF(sqrt)
static inline double elem_hypot(double a, double b) { return hypot(a, b); }
static inline float elem_hypotf(float a, float b) { return hypotf(a, b); }
/* lgamma itself writes a global. */
double lgamma_r(double, int *);
static inline double elem_lgamma(double a) {
  int sign;
  return lgamma_r(a, &sign);
}
static inline float elem_lgammaf(float a) { return (float)elem_lgamma(a); }
static inline double elem_pow(double a, double b) { return pow(a, b); }
static inline double elem_atan2(double a, double b) { return atan2(a, b); }
static inline float elem_powf(float a, float b) { return powf(a, b); }
static inline float elem_atan2f(float a, float b) { return atan2f(a, b); }
#ifdef ELEM_MVEC
ELEM_BOTH(ELEM_LIBMF)
#else
#include "cpu_elem_mathf.h"
ELEM_LIBMF(log2) ELEM_LIBMF(log10) ELEM_LIBMF(sin) ELEM_LIBMF(cos)
ELEM_LIBMF(tan) ELEM_LIBMF(asin) ELEM_LIBMF(acos) ELEM_LIBMF(atan)
ELEM_LIBMF(sinh) ELEM_LIBMF(cosh) ELEM_LIBMF(asinh) ELEM_LIBMF(acosh)
ELEM_LIBMF(atanh)
#endif
