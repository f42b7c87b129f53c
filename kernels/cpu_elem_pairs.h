/* Pairs of float32 rows in one pass: halves the loads and stores of chains of
 * cheap operations. The expressions are the op table's own, so that a pair
 * gives the bits of its two rows. */
#define T val_f32
#define TS f32
#define IF_NUM(x) x
#define IF_FLT(x) x
#define IF_CMP(x)
#define IF_TST(x)
#define IF_LOG(x)
#define IF_BIT(x)
#define IF_SEL(x)
#define E1(name, meta, rule, domain, sig, expr, ga, doc) \
  IF_##rule(INLINE float one_##name(float a) { return expr; })
#define E2(name, meta, rule, domain, sig, expr, ga, gb, doc) \
  IF_##rule(INLINE float two_##name(float a, float b) { return expr; })
#include "ops.h"
#undef T
#undef TS

#define PAIR(fn, used, X1, X2, X3, expr)                             \
  KERNEL(fn) {                                                       \
    mem_f32 *o = o_;                                                 \
    const mem_f32 *p1 = a_, *p2 = b_, *p3 = (used) == 3 ? c_ : b_;   \
    const float s1 = *p1, s2 = *p2, s3 = *p3;                        \
    UNUSED, (void)s1, (void)s2, (void)s3;                            \
    EACH o[i] = expr;                                                \
  }
/* The first result is operand 1 (_l) or 2 (_r) of the second row. */
#define BB_FORM(x, y, f, X1, X2, X3)                                       \
  PAIR(x##_##y##_l##f, 3, X1, X2, X3, two_##y(two_##x(X1(1), X2(2)), X3(3)))  \
  PAIR(x##_##y##_r##f, 3, X1, X2, X3, two_##y(X3(3), two_##x(X1(1), X2(2))))
#define BB_LIST(x, y, s) \
  {x##_##y##_##s##0, x##_##y##_##s##1, x##_##y##_##s##2, NULL, \
   x##_##y##_##s##4, x##_##y##_##s##5, x##_##y##_##s##6, NULL}
#define BB(x, y)                    \
  BB_FORM(x, y, 0, ARR, ARR, ARR)         \
  BB_FORM(x, y, 1, FIX, ARR, ARR)         \
  BB_FORM(x, y, 2, ARR, FIX, ARR)         \
  BB_FORM(x, y, 4, ARR, ARR, FIX)         \
  BB_FORM(x, y, 5, FIX, ARR, FIX)         \
  BB_FORM(x, y, 6, ARR, FIX, FIX)         \
  static limn_elem_forms x##_##y##_l[8] = BB_LIST(x, y, l); \
  static limn_elem_forms x##_##y##_r[8] = BB_LIST(x, y, r);
#define BB_ROW(x) BB(x, add) BB(x, sub) BB(x, mul) BB(x, maximum) BB(x, minimum)
LIMN_PAIR_BINARY(BB_ROW)

#define UB(x)                                                     \
  PAIR(x##_mul_0, 2, ARR, ARR, ARR, one_##x(ARR(1)) * ARR(2))                  \
  PAIR(x##_mul_2, 2, ARR, FIX, FIX, one_##x(ARR(1)) * FIX(2))                  \
  static limn_elem_forms x##_mul[4] = {x##_mul_0, NULL, x##_mul_2};
LIMN_PAIR_UNARY(UB)

#define BU(x, y)                                                  \
  PAIR(x##_##y##_0, 2, ARR, ARR, ARR, one_##y(two_##x(ARR(1), ARR(2))))        \
  PAIR(x##_##y##_1, 2, FIX, ARR, ARR, one_##y(two_##x(FIX(1), ARR(2))))        \
  PAIR(x##_##y##_2, 2, ARR, FIX, FIX, one_##y(two_##x(ARR(1), FIX(2))))        \
  static limn_elem_forms x##_##y[4] = {x##_##y##_0, x##_##y##_1, \
                                       x##_##y##_2};
#define BU_ADD(y) BU(add, y)
#define BU_SUB(y) BU(sub, y)
#define BU_MUL(y) BU(mul, y)
LIMN_PAIR_UNARY(BU_ADD)
LIMN_PAIR_UNARY(BU_SUB)
LIMN_PAIR_UNARY(BU_MUL)

#define BB_ENTRY(x, y) [LIMN_PB_##y] = {x##_##y##_l, x##_##y##_r},
#define BB_ENTRIES(x)                                               \
  [LIMN_PB_##x] = {BB_ENTRY(x, add) BB_ENTRY(x, sub) BB_ENTRY(x, mul) \
                       BB_ENTRY(x, maximum) BB_ENTRY(x, minimum)},
#define UB_ENTRY(x) [LIMN_PU_##x] = x##_mul,
#define BU_ENTRY_ADD(y) [LIMN_PU_##y] = add_##y,
#define BU_ENTRY_SUB(y) [LIMN_PU_##y] = sub_##y,
#define BU_ENTRY_MUL(y) [LIMN_PU_##y] = mul_##y,
#define PAIR_TABLE                                           \
  .pair_bb = {LIMN_PAIR_BINARY(BB_ENTRIES)},                 \
  .pair_ub = {LIMN_PAIR_UNARY(UB_ENTRY)},                    \
  .pair_bu = {[LIMN_PF_add] = {LIMN_PAIR_UNARY(BU_ENTRY_ADD)}, \
              [LIMN_PF_sub] = {LIMN_PAIR_UNARY(BU_ENTRY_SUB)}, \
              [LIMN_PF_mul] = {LIMN_PAIR_UNARY(BU_ENTRY_MUL)}}
