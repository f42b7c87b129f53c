/* Strings: a builder, numbers that read back exactly in any locale, and edit
 * distance. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base.h"

void limn_str_init(limn_str *b, limn_context *c) {
  memset(b, 0, sizeof *b);
  b->c = c;
}

void limn_str_free(limn_str *b) {
  limn_free(b->c, b->s, b->cap);
  limn_str_init(b, b->c);
}

/* Room for n more bytes and the NUL; false if the builder has failed. */
static bool str_room(limn_str *b, size_t n) {
  size_t need = b->len + n + 1, cap = LIMN_MAX(b->cap, 64);
  char *s;
  if (b->rc < 0) return false;
  if (need <= b->cap) return true;
  if (need <= n || need > SIZE_MAX / 4) {
    b->rc = limn_fail(b->c, LIMN_ESIZE, "a text grows too long");
    return false;
  }
  while (cap < need) cap *= 2;
  s = limn_realloc(b->c, b->s, b->cap, cap, 16);
  if (!s) {
    b->rc = limn_fail(b->c, LIMN_EMEM, "out of memory for %zu bytes of text",
                      cap);
    return false;
  }
  b->s = s;
  b->cap = cap;
  return true;
}

void limn_str_addn(limn_str *b, const char *s, size_t n) {
  if (!str_room(b, n)) return;
  memcpy(b->s + b->len, s, n);
  b->len += n;
  b->s[b->len] = 0;
}

void limn_str_add(limn_str *b, const char *s) {
  limn_str_addn(b, s, strlen(s));
}

void limn_str_addf(limn_str *b, const char *fmt, ...) {
  va_list ap;
  int n;
  va_start(ap, fmt);
  n = vsnprintf(NULL, 0, fmt, ap);
  va_end(ap);
  if (n < 0 || !str_room(b, (size_t)n)) return;
  va_start(ap, fmt);
  vsnprintf(b->s + b->len, (size_t)n + 1, fmt, ap);
  va_end(ap);
  b->len += (size_t)n;
}

/* Bytes above 127 pass as they are: names are UTF-8 already. */
void limn_str_json(limn_str *b, const char *s) {
  static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
  limn_str_add(b, "\"");
  for (; *s; s++) {
    const char *e = strchr(from, *s);
    if (e)
      limn_str_addf(b, "\\%c", to[e - from]);
    else if ((unsigned char)*s < 32)
      limn_str_addf(b, "\\u%04x", (unsigned)(unsigned char)*s);
    else
      limn_str_addn(b, s, 1);
  }
  limn_str_add(b, "\"");
}

static bool str_digit(char c) {
  return c >= '0' && c <= '9';
}

/* printf writes the locale's decimal separator, which may have several bytes:
 * whatever stands between the digits becomes '.'. */
static void str_point(char *s) {
  char *p = s + (*s == '-'), *q;
  while (str_digit(*p)) p++;
  if (!*p || *p == 'e') return;
  for (q = p; *q && *q != 'e' && !str_digit(*q);) q++;
  *p = '.';
  memmove(p + 1, q, strlen(q) + 1);
}

void limn_real_text(char *buf, size_t n, char kind, int digits, double v) {
  char text[400]; /* %f of 1e308 has 309 digits before the point */
  if (v != v || isinf(v)) {
    snprintf(buf, n, v != v ? "nan" : v < 0 ? "-inf" : "inf");
    return;
  }
  digits = LIMN_MAX(0, LIMN_MIN(digits, 40));
  if (kind == 'e')
    snprintf(text, sizeof text, "%.*e", digits, v);
  else if (kind == 'f')
    snprintf(text, sizeof text, "%.*f", digits, v);
  else
    snprintf(text, sizeof text, "%.*g", digits, v);
  str_point(text);
  if (kind == 'g' && !strpbrk(text, ".e")) strcat(text, ".0");
  snprintf(buf, n, "%s", text);
}

/* %.15g shows any decimal of up to 15 digits as it was written, without
 * trailing zeros, so shorter ones need no try; only numbers below the normal
 * range have less precision. 17 digits (9 for floats) always suffice. */
static void str_number(limn_str *b, double v, bool single) {
  char text[64];
  double min = single ? (double)FLT_MIN : DBL_MIN, back;
  int digits = single ? 6 : 15, most = single ? 9 : 17;
  if (fabs(v) < min) digits = 1;
  for (; digits <= most; digits++) {
    limn_real_text(text, sizeof text, 'g', digits, v);
    if (v != v || !limn_read_real(text, &back)) break;
    if (single ? (float)back == (float)v : back == v) break;
  }
  limn_str_add(b, text);
}

void limn_str_real(limn_str *b, double v) {
  str_number(b, v, false);
}

void limn_str_float(limn_str *b, float v) {
  str_number(b, (double)v, true);
}

/* inf or nan as a whole word, or NULL. */
static const char *str_word(const char *s, double *out) {
  bool inf = !strncmp(s, "inf", 3);
  if (!inf && strncmp(s, "nan", 3)) return NULL;
  s += 3;
  if (str_digit(*s) || *s == '_' || (*s >= 'a' && *s <= 'z') ||
      (*s >= 'A' && *s <= 'Z'))
    return NULL;
  *out = inf ? HUGE_VAL : (double)NAN;
  return s;
}

/* The significant digits of a decimal number, without a point. */
enum { STR_DIGITS = 800 };
typedef struct {
  char text[STR_DIGITS + 32];
  int n;       /* digits in text */
  int64_t exp; /* value = text * 10^exp */
  bool any;    /* a digit was seen, be it a leading zero */
} str_decimal;

/* Digits from s on, after the point if `frac`. A double's exact midpoint has
 * at most 768 digits, so of what follows 800 it only matters whether it is
 * zero: the last digit then becomes odd. */
static const char *str_digits(const char *s, str_decimal *d, bool frac) {
  for (; str_digit(*s); s++) {
    d->any = true;
    if (frac) d->exp--;
    if (!d->n && *s == '0') continue;
    if (d->n < STR_DIGITS) {
      d->text[d->n++] = *s;
      continue;
    }
    d->exp++;
    if (*s != '0') d->text[STR_DIGITS - 1] |= 1;
  }
  return s;
}

/* [eE][+-]digits, if it is one; larger exponents than matter saturate. */
static const char *str_exponent(const char *s, str_decimal *d) {
  const char *p = s;
  int64_t e = 0;
  bool neg;
  if (*p != 'e' && *p != 'E') return s;
  neg = *++p == '-';
  if (*p == '-' || *p == '+') p++;
  if (!str_digit(*p)) return s;
  for (; str_digit(*p); p++) e = LIMN_MIN(e * 10 + (*p - '0'), 1000000000);
  d->exp += neg ? -e : e;
  return p;
}

/* The number is given to strtod as digits and an exponent, which read the
 * same in every locale. */
const char *limn_read_real(const char *s, double *out) {
  str_decimal d;
  const char *word;
  bool neg = *s == '-';
  s += *s == '-' || *s == '+';
  if ((word = str_word(s, out))) {
    if (neg) *out = -*out;
    return word;
  }
  d.n = 0;
  d.exp = 0;
  d.any = false;
  s = str_digits(s, &d, false);
  if (*s == '.') s = str_digits(s + 1, &d, true);
  if (!d.any) return NULL;
  s = str_exponent(s, &d);
  d.exp = LIMN_MAX(-100000, LIMN_MIN(d.exp, 100000));
  snprintf(d.text + d.n, 32, "e%d", (int)d.exp);
  *out = d.n ? strtod(d.text, NULL) : 0.0;
  if (neg) *out = -*out;
  return s;
}

const char *limn_read_int(const char *s, int64_t *out) {
  bool neg = *s == '-';
  uint64_t v = 0, max = (uint64_t)INT64_MAX + neg;
  s += *s == '-' || *s == '+';
  if (!str_digit(*s)) return NULL;
  for (; str_digit(*s); s++) {
    unsigned digit = (unsigned)(*s - '0');
    if (v > (max - digit) / 10) return NULL;
    v = v * 10 + digit;
  }
  *out = (int64_t)(neg ? 0 - v : v);
  return s;
}

/* One row of the classic table (Wagner and Fischer, 1974). */
int limn_str_distance(const char *a, const char *b) {
  int row[65], na = (int)strlen(a), nb = (int)strlen(b), i, j;
  if (na > 64 || nb > 64) return LIMN_MAX(na, nb);
  for (j = 0; j <= nb; j++) row[j] = j;
  for (i = 1; i <= na; i++) {
    int diag = row[0]; /* the row above, one to the left */
    row[0] = i;
    for (j = 1; j <= nb; j++) {
      int swap = diag + (a[i - 1] != b[j - 1]);
      diag = row[j];
      row[j] = LIMN_MIN(swap, 1 + LIMN_MIN(row[j], row[j - 1]));
    }
  }
  return row[nb];
}
