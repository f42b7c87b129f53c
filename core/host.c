/* Arithmetic on plan values: elementwise ops on host ints, reals and bools.
 *
 * Reals are computed by the expressions of the op table with T = double; ints
 * by checked int64 arithmetic, because sizes must never wrap. */
#include <math.h>
#include <stdio.h>

#include "op_rules.h"
#include "special.h"

/* -- The op table's dialect, for doubles -- */
#define T double
#define K(x) ((double)(x))
#define ABS(a) fabs(a)
#define MAX(a, b) host_max(a, b)
#define MIN(a, b) host_min(a, b)
#define POW(a, b) pow(a, b)
#define REM(a, b) host_rem(a, b)
#define FDIV(a, b) floor((a) / (b))
#define ATAN2(a, b) atan2(a, b)
#define RSQRT(a) (1.0 / sqrt(a))
#define FMOD(a, b) fmod(a, b)
#define LOGADD(a, b) host_logadd(a, b)
#define ERFINV(a) ERFINV_host(a)
#define DIGAMMA(a) DIGAMMA_host(a)
#define POLYGAMMA(a, b) POLYGAMMA_host(a, b)
#define BNOT(a) 0 /* these of ints only: host_int_over */
#define BAND(a, b) 0
#define BOR(a, b) 0
#define BXOR(a, b) 0
#define SHL(a, b) 0
#define SHR(a, b) 0

SPECIAL(static, host, double, log, exp, pow, tan, sin, floor, erf, sqrt, 2)

static double host_max(double a, double b) {
  return a != a || a > b ? a : b;
}

static double host_min(double a, double b) {
  return a != a || a < b ? a : b;
}

/* The divisor's sign, as Lua's %. */
static double host_rem(double a, double b) {
  double r = fmod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

static double host_logadd(double a, double b) {
  if (a == b) return a + log(2.0);
  return host_max(a, b) + log1p(exp(-fabs(a - b)));
}

typedef double host_fn(double a, double b, double c);
#define HOST_FN(name, expr)                                 \
  static double host_##name(double a, double b, double c) { \
    (void)a, (void)b, (void)c;                              \
    return (double)(expr);                                  \
  }
#define E1(name, meta, rule, domain, sig, expr, ga, doc) HOST_FN(name, expr)
#define E2(name, meta, rule, domain, sig, expr, ga, gb, doc) \
  HOST_FN(name, expr)
#define E3(name, meta, rule, domain, sig, expr, ga, gb, gc, doc) \
  HOST_FN(name, expr)
#include "ops.h"

static host_fn *const host_fns[LIMN_NOP] = {
#define E1(name, ...) [OP_##name] = host_##name,
#define E2(name, ...) [OP_##name] = host_##name,
#define E3(name, ...) [OP_##name] = host_##name,
#include "ops.h"
};

/* -- Kinds -- */

/* Ops that give an int whatever they are given. */
static bool host_rounds(int op) {
  return op == OP_floor || op == OP_ceil || op == OP_round || op == OP_trunc;
}

/* ^ of ints may be negative or large: always a real. */
int limn_host_kind(int op, const int *kinds, int n) {
  const limn_op_row *row = limn_op_get(op);
  bool real = false, number = false;
  int i;
  for (i = row->rule == LIMN_RULE_SEL; i < n; i++) {
    real |= kinds[i] == LIMN_V_REAL;
    number |= kinds[i] == LIMN_V_REAL || kinds[i] == LIMN_V_INT;
  }
  switch (row->rule) {
    case LIMN_RULE_CMP: case LIMN_RULE_TST: case LIMN_RULE_LOG:
      return LIMN_V_BOOL;
    case LIMN_RULE_FLT: return LIMN_V_REAL;
    case LIMN_RULE_SEL:
      return real ? LIMN_V_REAL : number ? LIMN_V_INT : LIMN_V_BOOL;
    default:
      if (host_rounds(op)) return LIMN_V_INT;
      return real || op == OP_pow ? LIMN_V_REAL : LIMN_V_INT;
  }
}

/* -- Values -- */

static bool host_is_int(const limn_type *t) {
  return t->kind == LIMN_V_INT || t->kind == LIMN_V_BOOL;
}

static double host_real(const limn_type *t) {
  return t->kind == LIMN_V_REAL ? t->f : (double)t->i;
}

static bool host_true(const limn_type *t) {
  return t->kind == LIMN_V_REAL ? t->f != 0 : t->i != 0;
}

/* floor(a / b) of ints; b is not 0. */
static bool host_floor_div_over(int64_t a, int64_t b, int64_t *out) {
  if (a == INT64_MIN && b == -1) return true;
  *out = a / b - (a % b != 0 && (a < 0) != (b < 0));
  return false;
}

/* a * 2^b; 0 for a shift by more than there are bits, as of a tensor. */
static bool host_shift_over(int64_t a, int64_t b, int64_t *out) {
  if (b < 0 || b > 63) return false;
  *out = (int64_t)((uint64_t)a << b);
  return *out >> b != a;
}

/* Ints in, int out. True when the result does not fit. */
static bool host_int_over(int op, int64_t a, int64_t b, int64_t c,
                          int64_t *out) {
  *out = 0;
  switch (op) {
    case OP_add: return __builtin_add_overflow(a, b, out);
    case OP_sub: return __builtin_sub_overflow(a, b, out);
    case OP_mul: return __builtin_mul_overflow(a, b, out);
    case OP_square: return __builtin_mul_overflow(a, a, out);
    case OP_neg: return __builtin_sub_overflow((int64_t)0, a, out);
    case OP_abs:
      if (a < 0) return __builtin_sub_overflow((int64_t)0, a, out);
      break;
    case OP_floor_div: return host_floor_div_over(a, b, out);
    case OP_remainder:
      *out = b == -1 ? 0 : a % b;
      if (*out && (*out < 0) != (b < 0)) *out += b;
      return false;
    case OP_fmod: *out = b == -1 ? 0 : a % b; return false;
    case OP_frac: return false;
    case OP_bitwise_not: *out = ~a; return false;
    case OP_bitwise_and: *out = a & b; return false;
    case OP_bitwise_or: *out = a | b; return false;
    case OP_bitwise_xor: *out = a ^ b; return false;
    case OP_bitwise_left_shift: return host_shift_over(a, b, out);
    case OP_bitwise_right_shift:
      *out = b < 0 || b > 63 ? -(a < 0) : a >> b;
      return false;
    case OP_maximum: *out = LIMN_MAX(a, b); return false;
    case OP_minimum: *out = LIMN_MIN(a, b); return false;
    case OP_clamp: *out = LIMN_MIN(LIMN_MAX(a, b), c); return false;
    case OP_relu: *out = LIMN_MAX(a, 0); return false;
    case OP_sign: *out = (a > 0) - (a < 0); return false;
    default: break; /* floor and its like: unchanged */
  }
  *out = a;
  return false;
}

static int host_overflow(limn_context *c, int op, const limn_type *a, int n) {
  char x[48], y[48] = "";
  snprintf(x, sizeof x, "%lld", (long long)a[0].i);
  if (n > 1) snprintf(y, sizeof y, " and %lld", (long long)a[1].i);
  return limn_fail(c, LIMN_ESIZE, "%s of %s%s does not fit 64 bits",
                   limn_op_get(op)->name, x, y);
}

static int host_ints(limn_context *c, int op, const limn_type *a, int n,
                     limn_type *out) {
  int64_t v[3] = {0, INT64_MIN, INT64_MAX}; /* clamp without a bound */
  int i;
  for (i = 0; i < n && i < 3; i++)
    if (a[i].kind != LIMN_V_NONE) v[i] = a[i].i;
  if (op == OP_floor_div || op == OP_remainder || op == OP_fmod)
    if (v[1] == 0)
      return limn_fail(c, LIMN_ESIZE, "%lld divided by 0", (long long)v[0]);
  if (host_int_over(op, v[0], v[1], v[2], &out->i))
    return host_overflow(c, op, a, n);
  return 0;
}

/* Compared as ints where both are: doubles hold ints only up to 2^53. */
static bool host_compare(int op, const limn_type *a) {
  int64_t x = a[0].i, y = a[1].i;
  double fx = host_real(a), fy = host_real(a + 1);
  bool i = host_is_int(a) && host_is_int(a + 1);
  switch (op) {
    case OP_lt: return i ? x < y : fx < fy;
    case OP_le: return i ? x <= y : fx <= fy;
    case OP_gt: return i ? x > y : fx > fy;
    case OP_ge: return i ? x >= y : fx >= fy;
    case OP_eq: return i ? x == y : fx == fy;
    default: return i ? x != y : fx != fy;
  }
}

/* A whole number out of a real one: the result of floor and its like. */
static int host_whole(limn_context *c, int op, double v, limn_type *out) {
  char text[40];
  if (v >= -0x1p63 && v < 0x1p63) {
    out->i = (int64_t)v;
    return 0;
  }
  limn_real_text(text, sizeof text, 'g', 6, v);
  return limn_fail(c, LIMN_ESIZE, "%s gives %s, which is not a whole number "
                   "of 64 bits", limn_op_get(op)->name, text);
}

static int host_reals(limn_context *c, int op, const limn_type *a, int n,
                      limn_type *out) {
  double v[3] = {0, -INFINITY, INFINITY}, r; /* clamp without a bound */
  int i;
  for (i = 0; i < n && i < 3; i++)
    if (a[i].kind != LIMN_V_NONE) v[i] = host_real(&a[i]);
  if (op == OP_div && host_is_int(a) && host_is_int(a + 1) && a[1].i == 0)
    return limn_fail(c, LIMN_ESIZE, "%lld divided by 0", (long long)a[0].i);
  r = host_fns[op](v[0], v[1], v[2]);
  if (out->kind == LIMN_V_INT) return host_whole(c, op, r, out);
  out->f = r;
  return 0;
}

static void host_select(const limn_type *a, limn_type *out) {
  const limn_type *v = host_true(a) ? a + 1 : a + 2;
  if (out->kind == LIMN_V_REAL)
    out->f = host_real(v);
  else
    out->i = v->i;
}

int limn_host_eval(limn_context *c, int op, const limn_type *a, int n,
                   limn_type *out) {
  const limn_op_row *row = limn_op_get(op);
  int kinds[LIMN_MAXARGS], i;
  bool ints = true;
  if (row->row != LIMN_ROW_E) return limn_infer_op(c, op, a, n, out);
  if (n < row->arity)
    return limn_fail(c, LIMN_EARG, "%s takes %d operands", row->name,
                     row->arity);
  for (i = 0; i < n; i++) {
    kinds[i] = a[i].kind;
    ints &= host_is_int(&a[i]) || a[i].kind == LIMN_V_NONE;
  }
  memset(out, 0, sizeof *out);
  out->kind = (uint8_t)limn_host_kind(op, kinds, n);
  out->known = true;
  if (row->rule == LIMN_RULE_CMP)
    out->i = host_compare(op, a);
  else if (row->rule == LIMN_RULE_SEL)
    host_select(a, out);
  else if (out->kind == LIMN_V_INT && ints)
    return host_ints(c, op, a, n, out);
  else if (out->kind == LIMN_V_BOOL)
    out->i = host_fns[op](host_real(a), n > 1 ? host_real(a + 1) : 0, 0) != 0;
  else if (row->rule == LIMN_RULE_BIT)
    return limn_fail(c, LIMN_EARG, "%s takes whole numbers", row->name);
  else
    return host_reals(c, op, a, n, out);
  return 0;
}
