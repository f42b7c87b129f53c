/* The op table's dialect in C: the functions and operators of each computing
 * type. The macros pick the function of the type TS at hand. */
#include "special.h"

typedef float val_f32;
typedef double val_f64;
typedef int32_t val_i32;
typedef int64_t val_i64;
typedef uint8_t val_b8;
#define IS_FLOAT_f32 1
#define IS_FLOAT_f64 1
#define IS_FLOAT_i32 0
#define IS_FLOAT_i64 0
#define IS_FLOAT_b8 0
#define IS_BOOL_f32 0
#define IS_BOOL_f64 0
#define IS_BOOL_i32 0
#define IS_BOOL_i64 0
#define IS_BOOL_b8 1

#define DIALECT_FLOAT(ts, T, f)                                  \
  INLINE T d_max_##ts(T a, T b) {                                \
    T m = a > b ? a : b; /* b when one is NaN */                 \
    return a != a ? a : m;                                       \
  }                                                              \
  INLINE T d_min_##ts(T a, T b) {                                \
    T m = a < b ? a : b;                                         \
    return a != a ? a : m;                                       \
  }                                                              \
  INLINE T d_abs_##ts(T a) { return fabs##f(a); }                \
  INLINE T d_fdiv_##ts(T a, T b) { return floor##f(a / b); }     \
  INLINE T d_pow_##ts(T a, T b) { return elem_pow##f(a, b); }    \
  INLINE T d_floor_##ts(T a) { return floor##f(a); }             \
  INLINE T d_ceil_##ts(T a) { return ceil##f(a); }               \
  INLINE T d_rint_##ts(T a) { return rint##f(a); }               \
  INLINE T d_trunc_##ts(T a) { return trunc##f(a); }             \
  INLINE T d_rem_##ts(T a, T b) {                                \
    T m = fmod##f(a, b);                                         \
    return m != 0 && (b < 0) != (m < 0) ? m + b : m;             \
  }                                                              \
  INLINE T d_fmod_##ts(T a, T b) { return fmod##f(a, b); }       \
  INLINE T d_logadd_##ts(T a, T b) {                             \
    T m = d_max_##ts(a, b);                                      \
    m += elem_log1p##f(elem_exp##f(-fabs##f(a - b)));            \
    return a == b ? a + (T)0.69314718055994530942 : m;           \
  }                                                              \
  SPECIAL(INLINE, ts, T, elem_log##f, elem_exp##f, elem_pow##f,  \
          elem_tan##f, elem_sin##f, floor##f, elem_erf##f,       \
          elem_sqrt##f, sizeof(T) == 8 ? 2 : 0)
DIALECT_FLOAT(f32, float, f)
DIALECT_FLOAT(f64, double, )

/* Shifts by more bits than there are, or fewer than none: all go. */
#define DIALECT_BITS(ts, T, U, bits)                                     \
  INLINE T d_bnot_##ts(T a) { return ~a; }                               \
  INLINE T d_shl_##ts(T a, T b) {                                        \
    return b < 0 || b >= bits ? 0 : (T)((U)a << (b & (bits - 1)));       \
  }                                                                      \
  INLINE T d_shr_##ts(T a, T b) {                                        \
    return a >> (b < 0 || b >= bits ? bits - 1 : b);                     \
  }
DIALECT_BITS(i32, int32_t, uint32_t, 32)
DIALECT_BITS(i64, int64_t, uint64_t, 64)
INLINE uint8_t d_bnot_b8(uint8_t a) { return !a; }
INLINE uint8_t d_shl_b8(uint8_t a, uint8_t b) { return a & !b; }
INLINE uint8_t d_shr_b8(uint8_t a, uint8_t b) { return a & !b; }

/* By zero gives 0; -1 apart, since the lowest number by -1 would trap. */
#define DIALECT_INT(ts, T)                                             \
  INLINE T d_max_##ts(T a, T b) { return a > b ? a : b; }                \
  INLINE T d_min_##ts(T a, T b) { return a < b ? a : b; }                \
  INLINE T d_abs_##ts(T a) { return a < 0 ? -a : a; }                    \
  INLINE T d_floor_##ts(T a) { return a; }                               \
  INLINE T d_ceil_##ts(T a) { return a; }                                \
  INLINE T d_rint_##ts(T a) { return a; }                                \
  INLINE T d_trunc_##ts(T a) { return a; }                               \
  INLINE T d_rem_##ts(T a, T b) { return b ? a - d_fdiv_##ts(a, b) * b : 0; } \
  INLINE T d_fmod_##ts(T a, T b) {                                       \
    return b == 0 || b == -1 ? 0 : a % b;                                \
  }                                                                      \
  INLINE T d_pow_##ts(T a, T b) { /* by squaring */                      \
    T r = 1;                                                           \
    if (b < 0) return a == 1 ? 1 : a == -1 ? (b & 1 ? -1 : 1) : 0;     \
    for (; b; b >>= 1, a *= a)                                         \
      if (b & 1) r *= a;                                               \
    return r;                                                          \
  }
/* The double quotient of 32-bit numbers is off by less than 1 / |b|: exact
 * once rounded down, and it vectorises. */
INLINE int32_t d_fdiv_i32(int32_t a, int32_t b) {
  int32_t d = b == 0 || b == -1 ? 1 : b;
  int32_t q = (int32_t)floor((double)a / (double)d);
  return b == 0 ? 0 : b == -1 ? -a : q;
}
INLINE int64_t d_fdiv_i64(int64_t a, int64_t b) {
  int64_t q;
  if (b == 0 || b == -1) return b ? -a : 0;
  q = a / b;
  return q - (a % b != 0 && (a < 0) != (b < 0));
}
DIALECT_INT(i32, int32_t)
DIALECT_INT(i64, int64_t)

INLINE uint8_t d_max_b8(uint8_t a, uint8_t b) { return a | b; }
INLINE uint8_t d_min_b8(uint8_t a, uint8_t b) { return a & b; }
INLINE uint8_t d_abs_b8(uint8_t a) { return a; }
INLINE uint8_t d_floor_b8(uint8_t a) { return a; }
INLINE uint8_t d_ceil_b8(uint8_t a) { return a; }
INLINE uint8_t d_rint_b8(uint8_t a) { return a; }
INLINE uint8_t d_trunc_b8(uint8_t a) { return a; }
INLINE uint8_t d_fdiv_b8(uint8_t a, uint8_t b) { return a & b; }
INLINE uint8_t d_rem_b8(uint8_t a, uint8_t b) { return (void)a, (void)b, 0; }
INLINE uint8_t d_fmod_b8(uint8_t a, uint8_t b) { return (void)a, (void)b, 0; }
INLINE uint8_t d_pow_b8(uint8_t a, uint8_t b) { return a | !b; }

#define K(x) ((T)(x))
#define MAX(a, b) CAT(d_max_, TS)(a, b)
#define MIN(a, b) CAT(d_min_, TS)(a, b)
#define ABS(a) CAT(d_abs_, TS)(a)
#define FDIV(a, b) CAT(d_fdiv_, TS)(a, b)
#define REM(a, b) CAT(d_rem_, TS)(a, b)
#define FMOD(a, b) CAT(d_fmod_, TS)(a, b)
#define LOGADD(a, b) CAT(d_logadd_, TS)(a, b)
#define ERFINV(a) CAT(ERFINV_, TS)(a)
#define DIGAMMA(a) CAT(DIGAMMA_, TS)(a)
#define POLYGAMMA(a, b) CAT(POLYGAMMA_, TS)(a, b)
#define BNOT(a) CAT(d_bnot_, TS)(a)
#define BAND(a, b) ((a) & (b))
#define BOR(a, b) ((a) | (b))
#define BXOR(a, b) ((a) ^ (b))
#define SHL(a, b) CAT(d_shl_, TS)(a, b)
#define SHR(a, b) CAT(d_shr_, TS)(a, b)
#define POW(a, b) CAT(d_pow_, TS)(a, b)
#define RSQRT(a) (K(1) / sqrt(a))
#define ATAN2(a, b) CAT(elem_atan2, CAT(SUFFIX_, TS))(a, b)
#define SUFFIX_f32 f
#define SUFFIX_f64
#define floor(a) CAT(d_floor_, TS)(a)
#define ceil(a) CAT(d_ceil_, TS)(a)
#define rint(a) CAT(d_rint_, TS)(a)
#define trunc(a) CAT(d_trunc_, TS)(a)
#define ELEM_CALL(name) CAT(elem_##name, CAT(SUFFIX_, TS))
#define exp(a) ELEM_CALL(exp)(a)
#define exp2(a) ELEM_CALL(exp2)(a)
#define expm1(a) ELEM_CALL(expm1)(a)
#define log(a) ELEM_CALL(log)(a)
#define log2(a) ELEM_CALL(log2)(a)
#define log10(a) ELEM_CALL(log10)(a)
#define log1p(a) ELEM_CALL(log1p)(a)
#define sqrt(a) ELEM_CALL(sqrt)(a)
#define sin(a) ELEM_CALL(sin)(a)
#define cos(a) ELEM_CALL(cos)(a)
#define tan(a) ELEM_CALL(tan)(a)
#define asin(a) ELEM_CALL(asin)(a)
#define acos(a) ELEM_CALL(acos)(a)
#define atan(a) ELEM_CALL(atan)(a)
#define sinh(a) ELEM_CALL(sinh)(a)
#define cosh(a) ELEM_CALL(cosh)(a)
#define tanh(a) ELEM_CALL(tanh)(a)
#define asinh(a) ELEM_CALL(asinh)(a)
#define acosh(a) ELEM_CALL(acosh)(a)
#define atanh(a) ELEM_CALL(atanh)(a)
#define erf(a) ELEM_CALL(erf)(a)
#define lgamma(a) ELEM_CALL(lgamma)(a)
#define hypot(a, b) ELEM_CALL(hypot)(a, b)
