/* Kernels of all rows of the op table in one computing type, included once per
 * type: TS is its short name, ET its number. Defines forms_<row>_<TS>. */
#define T CAT(val_, TS)
#define MEM CAT(mem_, TS)
#if CAT(IS_FLOAT_, TS)
#define IF_FLOAT(...) __VA_ARGS__
#define IF_WHOLE(...)
#else
#define IF_FLOAT(...)
#define IF_WHOLE(...) __VA_ARGS__
#endif
#if CAT(IS_BOOL_, TS)
#define IF_BOOL(...) __VA_ARGS__
#define ELEM_OUT(x) ((x) != 0)
#else
#define IF_BOOL(...)
#define ELEM_OUT(x) (x)
#endif

/* O: type of the result; A: of the first operand, the rest are T. */
#define ONE(name, O, A, expr) ONE_(name, TS, O, A, expr)
#define ONE_(name, ts, O, A, expr) ONE__(name, ts, O, A, expr)
#define ONE__(name, ts, O, A, expr)    \
  LOOP1(name##_##ts, O, A, expr)       \
  static limn_elem_forms forms_##name##_##ts[2] = {name##_##ts};

#define TWO(name, O, A, expr) TWO_(name, TS, O, A, expr)
#define TWO_(name, ts, O, A, expr) TWO__(name, ts, O, A, expr)
#define TWO__(name, ts, O, A, expr)                        \
  LOOP3(name##_##ts##_vv, O, A, A, ARR, ARR, ARR, 2, expr)       \
  LOOP3(name##_##ts##_sv, O, A, A, FIX, ARR, ARR, 2, expr)       \
  LOOP3(name##_##ts##_vs, O, A, A, ARR, FIX, FIX, 2, expr)       \
  static limn_elem_forms forms_##name##_##ts[4] = {        \
      name##_##ts##_vv, name##_##ts##_sv, name##_##ts##_vs};

#define THREE(name, O, A, expr) THREE_(name, TS, O, A, expr)
#define THREE_(name, ts, O, A, expr) THREE__(name, ts, O, A, expr)
#define THREE__(name, ts, O, A, expr)                      \
  LOOP3(name##_##ts##_0, O, A, O, ARR, ARR, ARR, 3, expr)        \
  LOOP3(name##_##ts##_1, O, A, O, FIX, ARR, ARR, 3, expr)        \
  LOOP3(name##_##ts##_2, O, A, O, ARR, FIX, ARR, 3, expr)        \
  LOOP3(name##_##ts##_3, O, A, O, FIX, FIX, ARR, 3, expr)        \
  LOOP3(name##_##ts##_4, O, A, O, ARR, ARR, FIX, 3, expr)        \
  LOOP3(name##_##ts##_5, O, A, O, FIX, ARR, FIX, 3, expr)        \
  LOOP3(name##_##ts##_6, O, A, O, ARR, FIX, FIX, 3, expr)        \
  static limn_elem_forms forms_##name##_##ts[8] = {        \
      name##_##ts##_0, name##_##ts##_1, name##_##ts##_2, name##_##ts##_3, \
      name##_##ts##_4, name##_##ts##_5, name##_##ts##_6};

#define SAME(form, name, expr) form(name, TS, TS, expr)
#define TEST(form, name, expr) form(name, b8, TS, expr)
#define KIND_NUM(form, name, expr) SAME(form, name, expr)
#define KIND_FLT(form, name, expr) IF_FLOAT(SAME(form, name, expr))
#define KIND_TST(form, name, expr) IF_FLOAT(TEST(form, name, expr))
#define KIND_CMP(form, name, expr) TEST(form, name, expr)
#define KIND_LOG(form, name, expr) IF_BOOL(SAME(form, name, expr))
#define KIND_BIT(form, name, expr) IF_WHOLE(SAME(form, name, expr))
#define KIND_SEL(form, name, expr) /* below: its first operand is a b8 */
#define SELECT_NUM(name, expr) SAME(THREE, name, expr)
#define SELECT_SEL(name, expr)

#define ELEM_A T
#define E1(name, meta, rule, domain, sig, expr, ga, doc) \
  KIND_##rule(ONE, name, expr)
#define E2(name, meta, rule, domain, sig, expr, ga, gb, doc) \
  KIND_##rule(TWO, name, expr)
#define E3(name, meta, rule, domain, sig, expr, ga, gb, gc, doc) \
  KIND_##rule(THREE, name, expr)
#include "ops.h"
#undef ELEM_A

#define ELEM_A uint8_t
#define E3(name, meta, rule, domain, sig, expr, ga, gb, gc, doc) \
  ONLY_##rule(name, expr)
#define ONLY_NUM(name, expr)
#define ONLY_SEL(name, expr) THREE(name, TS, b8, expr)
#include "ops.h"
#undef ELEM_A

#undef T
#undef MEM
#undef IF_FLOAT
#undef IF_WHOLE
#undef IF_BOOL
#undef ELEM_OUT
#undef ONE
#undef ONE_
#undef ONE__
#undef TWO
#undef TWO_
#undef TWO__
#undef THREE
#undef THREE_
#undef THREE__
#undef SAME
#undef TEST
#undef KIND_NUM
#undef KIND_FLT
#undef KIND_TST
#undef KIND_CMP
#undef KIND_LOG
#undef KIND_BIT
#undef KIND_SEL
#undef SELECT_NUM
#undef SELECT_SEL
#undef ONLY_NUM
#undef ONLY_SEL
#undef TS
#undef ET
