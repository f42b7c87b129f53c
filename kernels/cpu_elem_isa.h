/* The body of the elementwise kernels, included once per instruction set; the
 * includer defines ELEM_TABLE and ELEM_NAME.
 *
 * Every loop is plain C that the compiler vectorises. n is a multiple of 16,
 * so there are no remainder loops, whose libm calls would round differently
 * from the vector ones. Compile with -O3 -fno-math-errno -fno-trapping-math
 * -ffp-contract=off -fwrapv -fopenmp-simd. */
#if defined(__GNUC__) && !defined(__clang__)
/* In case the build forgot: conditional arms must be computed for all lanes,
 * integers wrap, and one pass must round as two do. */
#pragma GCC optimize("no-trapping-math", "wrapv", "no-math-errno", \
                     "no-thread-jumps")
#pragma GCC diagnostic ignored "-Wtype-limits"
#pragma GCC diagnostic ignored "-Wint-in-bool-context"
#pragma GCC diagnostic ignored "-Wbool-operation"
#elif defined(__clang__)
#pragma clang diagnostic ignored "-Wpass-failed" /* rows that are scalar */
#pragma clang diagnostic ignored "-Wtautological-constant-out-of-range-compare"
#endif

#include "cpu_elem_math.h"
#include "cpu_elem_kernels.h"

#if defined(__F16C__)
#include <immintrin.h>
#endif

/* How memory is read: any alignment, any declared type. */
#define ELEM_MEM __attribute__((aligned(1), may_alias))
typedef float ELEM_MEM mem_f32;
typedef double ELEM_MEM mem_f64;
typedef int32_t ELEM_MEM mem_i32;
typedef int64_t ELEM_MEM mem_i64;
typedef uint8_t ELEM_MEM mem_b8;
typedef int8_t ELEM_MEM mem_i8;
typedef uint16_t ELEM_MEM mem_u16;
typedef uint32_t ELEM_MEM mem_u32;
typedef uint64_t ELEM_MEM mem_u64;

#define CAT_(a, b) a##b
#define CAT(a, b) CAT_(a, b)
#define INLINE static inline __attribute__((always_inline))
#define KERNEL(name)                                                        \
  static void name(void *o_, const void *a_, const void *b_, const void *c_, \
                   int64_t n)
#define UNUSED (void)a_, (void)b_, (void)c_
/* o may be an operand: each iteration reads before it writes. */
#define EACH                         \
  n &= -(int64_t)LIMN_ELEM_PAD;      \
  _Pragma("omp simd") for (int64_t i = 0; i < n; i++)

/* Loops of 1, 2 and 3 operands; ARR reads an array, FIX one element. */
#define ARR(k) p##k[i]
#define FIX(k) s##k
#define LOOP1(fn, O, A, expr)                              \
  KERNEL(fn) {                                             \
    mem_##O *o = o_;                                       \
    const mem_##A *p1 = a_;                                \
    UNUSED;                                                \
    EACH {                                                 \
      const T a = p1[i];                                   \
      o[i] = ELEM_OUT(expr);                               \
    }                                                      \
  }
#define LOOP3(fn, O, A, B, X1, X2, X3, used, expr)             \
  KERNEL(fn) {                                                 \
    mem_##O *o = o_;                                           \
    const mem_##A *p1 = a_;                                    \
    const mem_##B *p2 = b_, *p3 = (used) == 3 ? c_ : b_;       \
    const ELEM_A s1 = *p1;                                     \
    const T s2 = *p2, s3 = *p3;                                \
    UNUSED, (void)s1, (void)s2, (void)s3;                      \
    EACH {                                                     \
      const ELEM_A a = X1(1);                                  \
      const T b = X2(2), c = X3(3);                            \
      (void)c;                                                 \
      o[i] = ELEM_OUT(expr);                                   \
    }                                                          \
  }

#include "cpu_elem_dialect.h"

#define forms_remainder_f32 forms_remainder_f32_plain /* faster ones below */
#define TS f32
#define ET LIMN_ET_F32
#include "cpu_elem_rows.h"
#undef forms_remainder_f32
#define TS f64
#define ET LIMN_ET_F64
#include "cpu_elem_rows.h"
#define TS i32
#define ET LIMN_ET_I32
#include "cpu_elem_rows.h"
#define TS i64
#define ET LIMN_ET_I64
#include "cpu_elem_rows.h"
#define TS b8
#define ET LIMN_ET_BOOL
#include "cpu_elem_rows.h"

#include "cpu_elem_remainder.h"
#include "cpu_elem_pairs.h"
#include "cpu_elem_convert.h"
#include "cpu_elem_random.h"
#include "cpu_elem_move.h"

/* A row's forms in one type, or nothing where the rule has no such type. */
#define FORMS(name, TS, ET) [ET] = forms_##name##_##TS,
#define FLOATS(name) FORMS(name, f32, LIMN_ET_F32) FORMS(name, f64, LIMN_ET_F64)
#define INTS(name) FORMS(name, i32, LIMN_ET_I32) FORMS(name, i64, LIMN_ET_I64)
#define BOOLS(name) FORMS(name, b8, LIMN_ET_BOOL)
#define HAS_NUM(name) FLOATS(name) INTS(name) BOOLS(name)
#define HAS_FLT(name) FLOATS(name)
#define HAS_TST(name) FLOATS(name)
#define HAS_CMP(name) FLOATS(name) INTS(name) BOOLS(name)
#define HAS_SEL(name) FLOATS(name) INTS(name) BOOLS(name)
#define HAS_LOG(name) BOOLS(name)
#define HAS_BIT(name) INTS(name) BOOLS(name)

const limn_elem_kernels ELEM_TABLE;
const limn_elem_kernels ELEM_TABLE = {
    .name = ELEM_NAME,
    .row = {
#define E1(name, meta, rule, ...) [LIMN_ELEM_##name] = {HAS_##rule(name)},
#define E2(name, meta, rule, ...) [LIMN_ELEM_##name] = {HAS_##rule(name)},
#define E3(name, meta, rule, ...) [LIMN_ELEM_##name] = {HAS_##rule(name)},
#include "ops.h"
    },
    CONVERT_TABLE,
    RANDOM_TABLE,
    PAIR_TABLE,
    MOVE_TABLE,
};
