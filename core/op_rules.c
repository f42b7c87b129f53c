/* What shape rules share: arguments as dims, ints and shapes; promotion; and
 * the rules of elementwise, reduce and generator rows. */
#include "op_rules.h"

#include <math.h>
#include <stdio.h>

#define TEXT 256

static const char *rule_shape_text(char *buf, const limn_shape *s) {
  return limn_shape_text(buf, TEXT, s->ndim, s->d);
}

static bool rule_is_number(const limn_type *t) {
  return t->kind == LIMN_V_INT || t->kind == LIMN_V_REAL ||
         t->kind == LIMN_V_BOOL;
}

limn_type limn_type_of(const limn_tensor *t) {
  limn_type r = {0};
  r.kind = LIMN_V_TENSOR;
  r.dtype = (uint8_t)t->dtype;
  r.shape = limn_tensor_shape(t);
  return r;
}

/* "float32 [2, 3]", "3", "a number", ... */
const char *limn_type_text(char *buf, size_t n, const limn_type *t) {
  static const char *const names[] = {
      "nothing", "a tensor", "a whole number", "a number", "a boolean",
      "a dtype", "a device", "a string", "a list"};
  char s[TEXT];
  if (t->kind == LIMN_V_TENSOR)
    snprintf(buf, n, "%s %s", limn_dtype_name(t->dtype),
             rule_shape_text(s, &t->shape));
  else if (t->kind == LIMN_V_INT && t->known)
    snprintf(buf, n, "%lld", (long long)t->i);
  else if (t->kind == LIMN_V_REAL && t->known)
    limn_real_text(buf, n, 'g', 6, t->f);
  else if (t->kind == LIMN_V_BOOL && t->known)
    snprintf(buf, n, "%s", t->i ? "true" : "false");
  else if (t->kind == LIMN_V_DTYPE && t->known)
    snprintf(buf, n, "%s", limn_dtype_name(t->dtype));
  else
    snprintf(buf, n, "%s",
             t->kind < LIMN_COUNT(names) ? names[t->kind] : "?");
  return buf;
}

/* -- Arguments -- */

static int rule_unknown(limn_context *c, const char *what) {
  limn_fail(c, LIMN_ESIZE, "%s is not known before the run", what);
  return limn_hint(c, LIMN_ESIZE, "it may depend on sizes and on numbers given "
                   "to the run, not on what tensors hold");
}

static int rule_real_int(limn_context *c, double f, const char *what,
                         int64_t *out) {
  char text[40];
  if (f == floor(f) && f >= -0x1p63 && f < 0x1p63) {
    *out = (int64_t)f;
    return 0;
  }
  limn_real_text(text, sizeof text, 'g', 6, f);
  limn_fail(c, LIMN_ESIZE, "%s is %s, not a whole number", what, text);
  return limn_hint(c, LIMN_ESIZE, "limn.floor rounds down");
}

int limn_rule_int(limn_context *c, const limn_type *t, const char *what,
                  int64_t def, int64_t *out) {
  char text[TEXT];
  *out = def;
  switch (t->kind) {
    case LIMN_V_NONE:
      if (def != LIMN_MUST) return 0;
      return limn_fail(c, LIMN_EARG, "%s is missing", what);
    case LIMN_V_INT:
      if (!t->known) return rule_unknown(c, what);
      *out = t->i;
      return 0;
    case LIMN_V_REAL:
      if (!t->known) return rule_unknown(c, what);
      return rule_real_int(c, t->f, what, out);
    default:
      limn_fail(c, LIMN_EARG, "%s must be a whole number, not %s", what,
                limn_type_text(text, sizeof text, t));
      return t->kind != LIMN_V_TENSOR
                 ? LIMN_EARG
                 : limn_hint(c, LIMN_EARG, "what a tensor holds is not known "
                             "before the run; x:size(d) is");
  }
}

int limn_rule_ints(limn_context *c, const limn_type *t, const char *what,
                   int64_t *out, int *n) {
  *n = 0;
  if (t->kind == LIMN_V_NONE)
    return limn_fail(c, LIMN_EARG, "%s is missing", what);
  if (t->kind != LIMN_V_LIST) {
    *n = 1;
    return limn_rule_int(c, t, what, LIMN_MUST, out);
  }
  if (t->n > 2 * LIMN_MAXDIM)
    return limn_fail(c, LIMN_ESHAPE, "%s has %d entries; tensors have at most "
                     "%d dims", what, t->n, LIMN_MAXDIM);
  for (int i = 0; i < t->n; i++)
    LIMN_TRY(limn_rule_int(c, &t->list[i], what, LIMN_MUST, &out[i]));
  *n = t->n;
  return 0;
}

static int rule_dim(limn_context *c, int64_t d, int ndim, int *out) {
  int64_t k = d < 0 ? d + ndim : d - 1;
  *out = (int)k;
  if (d != 0 && k >= 0 && k < ndim) return 0;
  if (ndim == 0)
    return limn_fail(c, LIMN_ESHAPE, "dim %lld of a 0-dim tensor: it has none",
                     (long long)d);
  if (d == 0)
    return limn_fail(c, LIMN_ESHAPE, "dim 0: dims count from 1, -1 is the "
                     "last");
  return limn_fail(c, LIMN_ESHAPE, "dim %lld of a tensor with %d dim%s",
                   (long long)d, ndim, ndim == 1 ? "" : "s");
}

int limn_rule_dim(limn_context *c, const limn_type *t, int64_t def, int ndim,
                  int *out) {
  int64_t d;
  LIMN_TRY(limn_rule_int(c, t, "dim", def, &d));
  return rule_dim(c, d, ndim, out);
}

int limn_rule_dims(limn_context *c, const limn_type *t, int ndim, int *out,
                   int *n) {
  int64_t d[2 * LIMN_MAXDIM];
  LIMN_TRY(limn_rule_ints(c, t, "dim", d, n));
  for (int i = 0; i < *n; i++) {
    int k;
    LIMN_TRY(rule_dim(c, d[i], ndim, &k));
    for (int j = 0; j < i; j++)
      if (out[j] == k)
        return limn_fail(c, LIMN_ESHAPE, "dim %d is named twice", k + 1);
    out[i] = k; /* i < ndim: all are different */
  }
  return 0;
}

int limn_rule_bool(limn_context *c, const limn_type *t, const char *what,
                   bool def, bool *out) {
  char text[TEXT];
  *out = def;
  if (t->kind == LIMN_V_NONE) return 0;
  if (t->kind != LIMN_V_BOOL)
    return limn_fail(c, LIMN_EARG, "%s must be true or false, not %s", what,
                     limn_type_text(text, sizeof text, t));
  if (!t->known) return rule_unknown(c, what);
  *out = t->i != 0;
  return 0;
}

int limn_rule_dtype(limn_context *c, const limn_type *t, int def, int *out) {
  char text[TEXT];
  *out = def;
  if (t->kind == LIMN_V_NONE && def >= 0) return 0;
  if (t->kind != LIMN_V_DTYPE)
    return limn_fail(c, LIMN_EARG, "dtype must be a dtype, not %s",
                     limn_type_text(text, sizeof text, t));
  if (!t->known) return rule_unknown(c, "dtype");
  *out = t->dtype ? t->dtype : (int)t->i;
  if (*out >= 0 && *out < LIMN_NDTYPE) return 0;
  return limn_fail(c, LIMN_EDTYPE, "there is no dtype number %d", *out);
}

int limn_rule_shape(limn_context *c, const limn_type *t, limn_shape *out) {
  int64_t d[2 * LIMN_MAXDIM];
  LIMN_TRY(limn_rule_ints(c, t, "size", d, &out->ndim));
  if (out->ndim > LIMN_MAXDIM)
    return limn_fail(c, LIMN_ESHAPE, "a shape of %d dims; %d are possible",
                     out->ndim, LIMN_MAXDIM);
  for (int i = 0; i < out->ndim; i++) out->d[i] = d[i];
  return 0;
}

int limn_rule_tensor(limn_context *c, const limn_type *t, const char *what,
                     limn_type *out) {
  char text[TEXT];
  *out = *t;
  if (t->kind == LIMN_V_TENSOR) return 0;
  if (t->kind == LIMN_V_NONE)
    return limn_fail(c, LIMN_EARG, "%s is missing", what);
  if (!rule_is_number(t))
    return limn_fail(c, LIMN_EARG, "%s must be a tensor, not %s", what,
                     limn_type_text(text, sizeof text, t));
  memset(out, 0, sizeof *out);
  out->kind = LIMN_V_TENSOR;
  out->dtype = t->kind == LIMN_V_REAL  ? LIMN_F32
               : t->kind == LIMN_V_INT ? LIMN_I64
                                       : LIMN_BOOL;
  return 0;
}

int limn_rule_index(limn_context *c, const limn_type *t, const limn_type *base,
                    limn_type *out) {
  int64_t b;
  LIMN_TRY(limn_rule_tensor(c, t, "index", out));
  if (!limn_dtype_int(out->dtype)) {
    limn_fail(c, LIMN_EDTYPE, "index must hold whole numbers, not %s",
              limn_dtype_name(out->dtype));
    return limn_hint(c, LIMN_EDTYPE, "convert it with :to \"int64\"");
  }
  LIMN_TRY(limn_rule_int(c, base, "base", 1, &b));
  if (b == 0 || b == 1) return 0;
  return limn_fail(c, LIMN_EARG, "base must be 0 or 1, not %lld",
                   (long long)b);
}

int limn_rule_result(limn_context *c, int dtype, const limn_shape *s,
                     limn_type *out) {
  int64_t n = limn_dtype_size(dtype);
  char text[TEXT];
  bool over = false;
  limn_shape shape = *s; /* s may lie in *out */
  for (int i = 0; i < shape.ndim; i++) {
    if (shape.d[i] < 0)
      return limn_fail(c, LIMN_ESIZE, "size %lld of dim %d is negative",
                       (long long)shape.d[i], i + 1);
    /* Dims of 0 count as 1, so that strides fit as well. */
    over |= __builtin_mul_overflow(n, LIMN_MAX(shape.d[i], 1), &n);
  }
  if (over)
    return limn_fail(c, LIMN_ESIZE, "a tensor of %s has more elements than "
                     "fit", rule_shape_text(text, &shape));
  memset(out, 0, sizeof *out);
  out->kind = LIMN_V_TENSOR;
  out->dtype = (uint8_t)dtype;
  out->shape = shape;
  return 0;
}

/* -- Promotion -- */

/* The lower standing only matters when its category is higher. */
static int rule_combine(int high, int low) {
  if (high < 0) return low;
  if (low < 0) return high;
  return limn_dtype_category(high) >= limn_dtype_category(low)
             ? high
             : limn_dtype_promote(high, low);
}

static int rule_also(int dtype, int other) {
  return dtype < 0 ? other : limn_dtype_promote(dtype, other);
}

int limn_promote(const limn_type *a, int n, int rule, int *result,
                 int *operand) {
  int dims = -1, zero = -1, number = -1, dt; /* by standing; -1: none */
  bool whole = false;
  for (int i = rule == LIMN_RULE_SEL; i < n; i++) {
    if (a[i].kind == LIMN_V_TENSOR && a[i].shape.ndim)
      dims = rule_also(dims, a[i].dtype);
    else if (a[i].kind == LIMN_V_TENSOR)
      zero = rule_also(zero, a[i].dtype);
    else if (a[i].kind == LIMN_V_REAL)
      number = rule_also(number, LIMN_F32);
    else if (a[i].kind == LIMN_V_INT)
      number = rule_also(number, LIMN_I64), whole = true;
    else if (a[i].kind == LIMN_V_BOOL)
      number = rule_also(number, LIMN_BOOL);
  }
  dt = rule_combine(dims, rule_combine(zero, number));
  if (dt < 0) return LIMN_EARG;
  if ((rule == LIMN_RULE_FLT || rule == LIMN_RULE_TST) &&
      !limn_dtype_float(dt))
    dt = LIMN_F32;
  if (rule == LIMN_RULE_SUM && !limn_dtype_float(dt)) dt = LIMN_I64;
  if (rule == LIMN_RULE_LOG) dt = LIMN_BOOL;
  /* Whole numbers compare as they are, also with dtypes that lack them. */
  *operand = rule == LIMN_RULE_CMP && whole && limn_dtype_int(dt) ? LIMN_I64
                                                                  : dt;
  *result = rule == LIMN_RULE_CMP || rule == LIMN_RULE_TST ? LIMN_BOOL : dt;
  return 0;
}

/* -- Elementwise -- */

static int rule_operand(limn_context *c, int op, const limn_type *t, int i) {
  limn_param p[LIMN_MAXARGS];
  char text[TEXT];
  if (t->kind == LIMN_V_TENSOR || rule_is_number(t)) return 0;
  limn_op_params(op, p);
  if (t->kind == LIMN_V_NONE && p[i].may) return 0;
  if (t->kind == LIMN_V_NONE)
    return limn_fail(c, LIMN_EARG, "%s is missing", p[i].name);
  return limn_fail(c, LIMN_EARG, "%s must be a tensor or a number, not %s",
                   p[i].name, limn_type_text(text, sizeof text, t));
}

int limn_rule_holds(limn_context *c, const limn_type *t, int dtype) {
  if (t->kind != LIMN_V_INT || !t->known || !limn_dtype_int(dtype) ||
      limn_dtype_holds(dtype, t->i))
    return 0;
  limn_fail(c, LIMN_EDTYPE, "%lld does not fit %s", (long long)t->i,
            limn_dtype_name(dtype));
  return limn_hint(c, LIMN_EDTYPE, "convert the tensor to a wider dtype");
}

/* A whole number beside an int dtype that does not hold it. Sums, differences
 * and products wrap, as the dtype's own do; a bound may lie beyond the dtype on
 * the side where it bounds nothing; what is left has no right result. */
static int rule_numbers(limn_context *c, int op, const limn_type *a, int n,
                        int dtype) {
  if (op == OP_add || op == OP_sub || op == OP_mul || !limn_dtype_int(dtype))
    return 0;
  for (int i = 0; i < n; i++) {
    bool low = op == OP_maximum || (op == OP_clamp && i == 1);
    bool high = op == OP_minimum || (op == OP_clamp && i == 2);
    if (a[i].kind != LIMN_V_INT || (low && a[i].i < 0) || (high && a[i].i > 0))
      continue;
    LIMN_TRY(limn_rule_holds(c, &a[i], dtype));
  }
  if (op != OP_pow || a[1].kind != LIMN_V_INT || !a[1].known || a[1].i >= 0)
    return 0;
  limn_fail(c, LIMN_EDTYPE, "whole numbers have no negative powers");
  return limn_hint(c, LIMN_EDTYPE, "convert them first: x:to \"float32\"");
}

static int rule_bits(limn_context *c, int op, int dtype) {
  bool shift = op == OP_bitwise_left_shift || op == OP_bitwise_right_shift;
  if (limn_dtype_int(dtype) || (dtype == LIMN_BOOL && !shift)) return 0;
  limn_fail(c, LIMN_EDTYPE, "whole numbers%s are wanted, not %s",
            shift ? "" : " or bools", limn_dtype_name(dtype));
  return limn_hint(c, LIMN_EDTYPE, "convert what is not: x:to \"int64\"");
}

int limn_rule_elementwise(limn_context *c, int op, const limn_type *a,
                          limn_type *out) {
  const limn_op_row *row = limn_op_get(op);
  limn_shape s = {0};
  int dtype, operand;
  for (int i = 0; i < row->arity; i++) {
    LIMN_TRY(rule_operand(c, op, &a[i], i));
    if (a[i].kind == LIMN_V_TENSOR &&
        limn_shape_broadcast(c, &s, &a[i].shape, &s) < 0)
      return limn_hint(c, LIMN_ESHAPE, "sizes must be equal or 1, counted from "
                       "the last dim; unsqueeze adds a dim of 1");
  }
  if (limn_promote(a, row->arity, row->rule, &dtype, &operand) < 0)
    return limn_fail(c, LIMN_EARG, "no operand is a tensor or a number");
  if (dtype == LIMN_BOOL && (op == OP_sub || op == OP_neg)) {
    limn_fail(c, LIMN_EDTYPE, "bools have no difference or negative");
    return limn_hint(c, LIMN_EDTYPE, op == OP_neg ? "use :logical_not()"
                                                  : "use :logical_xor(y)");
  }
  if (row->rule == LIMN_RULE_BIT) LIMN_TRY(rule_bits(c, op, dtype));
  if (row->rule == LIMN_RULE_NUM || row->rule == LIMN_RULE_SEL ||
      row->rule == LIMN_RULE_BIT)
    LIMN_TRY(rule_numbers(c, op, a, row->arity, dtype));
  return limn_rule_result(c, dtype, &s, out);
}

/* -- Reductions -- */

int limn_dims_mask(limn_context *c, const limn_type *dims, int ndim,
                   bool *mask) {
  int d[2 * LIMN_MAXDIM], n;
  for (int i = 0; i < ndim; i++) mask[i] = dims->kind == LIMN_V_NONE;
  if (dims->kind == LIMN_V_NONE) return 0;
  LIMN_TRY(limn_rule_dims(c, dims, ndim, d, &n));
  for (int i = 0; i < n; i++) mask[d[i]] = true;
  return 0;
}

int limn_rule_reduce(limn_context *c, const limn_shape *s,
                     const limn_type *dims, const limn_type *keep,
                     limn_shape *out, int64_t *count) {
  bool mask[LIMN_MAXDIM], k;
  limn_shape r = {0};
  *count = 1;
  LIMN_TRY(limn_dims_mask(c, dims, s->ndim, mask));
  LIMN_TRY(limn_rule_bool(c, keep, "keepdim", false, &k));
  for (int i = 0; i < s->ndim; i++) {
    if (mask[i]) *count *= s->d[i];
    if (!mask[i] || k) r.d[r.ndim++] = mask[i] ? 1 : s->d[i];
  }
  *out = r;
  return 0;
}

/* max and min have nothing to begin with, unlike the other reductions. */
int limn_rule_reduction(limn_context *c, int op, const limn_type *a,
                        limn_type *out) {
  limn_type x;
  limn_shape s;
  int64_t count;
  int dtype, operand;
  char text[TEXT];
  LIMN_TRY(limn_rule_tensor(c, &a[0], "x", &x));
  LIMN_TRY(limn_rule_reduce(c, &x.shape, &a[1], &a[2], &s, &count));
  limn_promote(&x, 1, limn_op_get(op)->rule, &dtype, &operand);
  if (count == 0 && (op == OP_max || op == OP_min) &&
      limn_numel(s.ndim, s.d) > 0)
    return limn_fail(c, LIMN_ESHAPE, "no elements to choose from in %s",
                     rule_shape_text(text, &x.shape));
  return limn_rule_result(c, dtype, &s, out);
}

/* -- Generators -- */

static int rule_scalar(limn_context *c, const limn_type *t, const char *what) {
  char text[TEXT];
  if (rule_is_number(t)) return 0;
  if (t->kind == LIMN_V_TENSOR && t->shape.ndim == 0) return 0;
  return limn_fail(c, LIMN_EARG,
                   "%s must be a number or a 0-dim tensor, not %s", what,
                   limn_type_text(text, sizeof text, t));
}

static int rule_step_zero(limn_context *c) {
  return limn_fail(c, LIMN_EARG, "step must not be 0");
}

/* Unsigned, because last - first may not fit int64. */
static int rule_arange_ints(limn_context *c, const limn_type *a, int64_t *n) {
  int64_t first = a[0].i, last = a[1].i, step = a[2].i;
  uint64_t span = (uint64_t)last - (uint64_t)first, size = (uint64_t)step;
  *n = 0;
  if (step == 0) return rule_step_zero(c);
  if (step > 0 ? last < first : last > first) return 0;
  if (step < 0) span = 0 - span, size = 0 - size;
  span /= size;
  *n = span >= INT64_MAX ? INT64_MAX : (int64_t)span + 1;
  return 0;
}

/* 0.3 / 0.1 is a little less than 3: a few ulps are forgiven. */
static int rule_arange_reals(limn_context *c, const double *v, int64_t *n) {
  double q = (v[1] - v[0]) / v[2];
  if (v[2] == 0) return rule_step_zero(c);
  if (!isfinite(q) || !isfinite(v[0]))
    return limn_fail(c, LIMN_ESIZE, "first, last and step must be finite");
  q = floor(q + fabs(q) * 0x1p-50);
  *n = q < 0 ? 0 : q >= 0x1p62 ? INT64_MAX : (int64_t)q + 1;
  return 0;
}

static int rule_arange(limn_context *c, const limn_type *a, limn_type *out) {
  static const char *const names[] = {"first", "last", "step"};
  limn_type t[3];
  limn_shape s = {1, {0}};
  double v[3];
  int dtype;
  bool ints = true;
  for (int i = 0; i < 3; i++) {
    t[i] = a[i];
    if (i == 2 && t[i].kind == LIMN_V_NONE)
      t[i] = (limn_type){.kind = LIMN_V_INT, .known = true, .i = 1};
    if (t[i].kind != LIMN_V_INT && t[i].kind != LIMN_V_REAL)
      return limn_fail(c, LIMN_EARG, "%s must be a number", names[i]);
    if (!t[i].known) return rule_unknown(c, names[i]);
    ints &= t[i].kind == LIMN_V_INT;
    v[i] = t[i].kind == LIMN_V_INT ? (double)t[i].i : t[i].f;
  }
  if (ints)
    LIMN_TRY(rule_arange_ints(c, t, &s.d[0]));
  else
    LIMN_TRY(rule_arange_reals(c, v, &s.d[0]));
  LIMN_TRY(limn_rule_dtype(c, &a[3], LIMN_F32, &dtype));
  if (ints && s.d[0] > 0) { /* all lie between the first and the last */
    LIMN_TRY(limn_rule_holds(c, &t[0], dtype));
    t[0].i += (s.d[0] - 1) * t[2].i;
    LIMN_TRY(limn_rule_holds(c, &t[0], dtype));
  }
  return limn_rule_result(c, dtype, &s, out);
}

static int rule_full(limn_context *c, int op, const limn_type *a,
                     limn_type *out) {
  limn_type like;
  int dtype;
  LIMN_TRY(rule_scalar(c, &a[1], "value"));
  if (op == OP_full_like) {
    LIMN_TRY(limn_rule_tensor(c, &a[0], "like", &like));
  } else {
    LIMN_TRY(limn_rule_tensor(c, &a[1], "value", &like));
    if (like.dtype == LIMN_I64 && a[1].kind != LIMN_V_TENSOR)
      like.dtype = LIMN_F32; /* numbers make float32 */
    LIMN_TRY(limn_rule_shape(c, &a[0], &like.shape));
  }
  LIMN_TRY(limn_rule_dtype(c, &a[2], like.dtype, &dtype));
  LIMN_TRY(limn_rule_holds(c, &a[1], dtype));
  return limn_rule_result(c, dtype, &like.shape, out);
}

/* A bound of randint: a whole number that the dtype has. */
static int rule_bound(limn_context *c, const limn_type *t, const char *what,
                      int dtype) {
  char text[40];
  if (t->kind == LIMN_V_REAL && t->known &&
      !(t->f == floor(t->f) && fabs(t->f) < 0x1p63)) {
    limn_real_text(text, sizeof text, 'g', 14, t->f);
    return limn_fail(c, LIMN_EARG, "%s is a whole number, not %s", what, text);
  }
  return limn_rule_holds(c, t, dtype);
}

static int rule_randint(limn_context *c, const limn_type *a, limn_type *out) {
  limn_shape s;
  int dtype;
  LIMN_TRY(rule_scalar(c, &a[0], "low"));
  LIMN_TRY(rule_scalar(c, &a[1], "high"));
  LIMN_TRY(limn_rule_shape(c, &a[2], &s));
  LIMN_TRY(limn_rule_dtype(c, &a[3], LIMN_I64, &dtype));
  LIMN_TRY(rule_bound(c, &a[0], "low", dtype));
  LIMN_TRY(rule_bound(c, &a[1], "high", dtype));
  if (a[0].kind == LIMN_V_INT && a[0].known && a[1].kind == LIMN_V_INT &&
      a[1].known && a[0].i > a[1].i)
    return limn_fail(c, LIMN_EARG, "low is %lld and high only %lld",
                     (long long)a[0].i, (long long)a[1].i);
  return limn_rule_result(c, dtype, &s, out);
}

int limn_rule_generator(limn_context *c, int op, const limn_type *a,
                        limn_type *out) {
  limn_shape s;
  int dtype = LIMN_I64;
  if (op == OP_full || op == OP_full_like) return rule_full(c, op, a, out);
  if (op == OP_arange) return rule_arange(c, a, out);
  if (op == OP_randint) return rule_randint(c, a, out);
  LIMN_TRY(limn_rule_shape(c, &a[0], &s));
  if (op == OP_rand_bits) return limn_rule_result(c, dtype, &s, out);
  LIMN_TRY(limn_rule_dtype(c, &a[1], LIMN_F32, &dtype));
  if (!limn_dtype_float(dtype)) {
    limn_fail(c, LIMN_EDTYPE, "random reals cannot be %s",
              limn_dtype_name(dtype));
    return limn_hint(c, LIMN_EDTYPE, "randint makes whole numbers");
  }
  return limn_rule_result(c, dtype, &s, out);
}
