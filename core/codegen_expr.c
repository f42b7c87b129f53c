/* The dialect's expressions with their types put in: the text of a row of
 * ops.h becomes the text of a kernel. */
#include "gpu.h"

const char *limn_codegen_type(int dtype) {
  switch (limn_dtype_compute(dtype)) {
  case LIMN_F64:
    return "double";
  case LIMN_F32:
    return "float";
  case LIMN_I64:
    return "i64";
  default:
    return "int"; /* bool too */
  }
}

static const char *expr_short(int dtype) {
  return limn_dtype_short(limn_dtype_compute(dtype));
}

static bool expr_word(char ch) {
  return (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || ch == '_' ||
         (ch >= '0' && ch <= '9');
}

static bool expr_is(const char *s, size_t n, const char *word) {
  return strlen(word) == n && !memcmp(s, word, n);
}

/* Only + - * of operands: whole numbers then must wrap, not overflow. */
static bool expr_arithmetic(const char *e) {
  for (; *e; e++)
    if (!strchr("abc +-*()", *e)) return false;
  return true;
}

/* One word of an expression: operands by name, T, and functions with their
 * type ("MAX" -> "MAX_f32"); rounding a whole number keeps it. */
static void expr_emit_word(limn_str *o, const char *s, size_t n, int ctype,
                           const char *const names[4], const char *wrap) {
  static const char *const rounding[] = {"floor", "ceil", "rint", "trunc"};
  const char *name = expr_is(s, n, "a")     ? names[0]
                     : expr_is(s, n, "b")   ? names[1]
                     : expr_is(s, n, "c")   ? names[2]
                     : expr_is(s, n, "acc") ? names[3]
                                            : NULL;
  int i;
  if (name) {
    limn_str_addf(o, "%s%s", wrap, name);
    return;
  }
  for (i = 0; i < LIMN_COUNT(rounding) && !limn_dtype_float(ctype); i++)
    if (expr_is(s, n, rounding[i])) {
      limn_str_add(o, "KEEP");
      return;
    }
  if (expr_is(s, n, "T")) {
    limn_str_add(o, limn_codegen_type(ctype));
    return;
  }
  limn_str_addn(o, s, n);
  if (s[0] >= 'A' && s[0] <= 'Z') limn_str_addf(o, "_%s", expr_short(ctype));
}

void limn_codegen_expr(limn_str *o, const char *e, int ctype,
                       const char *const names[4]) {
  bool wraps =
      !limn_dtype_float(ctype) && ctype != LIMN_BOOL && expr_arithmetic(e);
  const char *wrap = !wraps ? "" : ctype == LIMN_I64 ? "(u64)" : "(u32)";
  limn_str_addf(o, "%s(", wraps ? (ctype == LIMN_I64 ? "(i64)" : "(int)") : "");
  while (*e) {
    size_t n = 0;
    if (*e >= '0' && *e <= '9') { /* a literal, with its point */
      while (expr_word(e[n]) || e[n] == '.') n++;
      limn_str_addn(o, e, n);
    } else if (expr_word(*e)) {
      while (expr_word(e[n])) n++;
      expr_emit_word(o, e, n, ctype, names, wrap);
    } else {
      limn_str_addn(o, e, n = 1);
    }
    e += n;
  }
  limn_str_add(o, ")");
}

void limn_codegen_cast(limn_str *o, const char *name, int from, int dtype) {
  int to = limn_dtype_compute(dtype);
  const char *brief = limn_dtype_short(dtype);
  if (dtype == LIMN_BOOL)
    limn_str_addf(o, "(%s != 0)", name);
  else if (limn_dtype_float(dtype) && dtype != to)
    limn_str_addf(o, "RND_%s((float)%s)", brief, name);
  else if (limn_dtype_float(dtype))
    limn_str_addf(o, "(%s)%s", limn_codegen_type(dtype), name);
  else if (limn_dtype_float(from))
    limn_str_addf(o, "SAT_%s_%s(%s)", brief, expr_short(from), name);
  else if (dtype != to)
    limn_str_addf(o, "RND_%s(%s)", brief, name);
  else
    limn_str_addf(o, "(%s)%s", limn_codegen_type(dtype), name);
}
