/* A strict JSON reader (RFC 8259) that hands out values as they come. */
#include "json.h"

#include <stdio.h>

enum { JSON_DEPTH = 64 };

void limn_json_init(limn_json *j, limn_context *c, const char *what,
                    const char *text, size_t n) {
  *j = (limn_json){c, what, text, text, text + n, 0};
}

int limn_json_fail(const limn_json *j, const char *fmt, ...) {
  char text[512];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  return limn_fail(j->c, LIMN_EFORMAT, "%s, byte %zu: %s", j->what,
                   (size_t)(j->p - j->start) + 1, text);
}

static void json_blanks(limn_json *j) {
  while (j->p < j->end &&
         (*j->p == ' ' || *j->p == '\t' || *j->p == '\n' || *j->p == '\r'))
    j->p++;
}

/* The next byte after blanks, or 0 at the end. */
static char json_peek(limn_json *j) {
  json_blanks(j);
  return j->p < j->end ? *j->p : 0;
}

static int json_want(limn_json *j, char ch) {
  if (json_peek(j) != ch || j->p >= j->end)
    return limn_json_fail(
        j, j->p < j->end ? "'%c' is missing" : "it ends where '%c' should be",
        ch);
  j->p++;
  return 0;
}

int limn_json_open(limn_json *j, char open) {
  LIMN_TRY(json_want(j, open));
  if (++j->depth > JSON_DEPTH)
    return limn_json_fail(j, "nested more than %d deep", JSON_DEPTH);
  return 0;
}

int limn_json_more(limn_json *j, char close, int64_t *n) {
  if (json_peek(j) == close) {
    j->p++;
    j->depth--;
    return 0;
  }
  if ((*n)++ > 0) {
    LIMN_TRY(json_want(j, ','));
    if (json_peek(j) == close)
      return limn_json_fail(j, "a value is missing after ','");
  }
  return 1;
}

/* -- strings -- */

size_t limn_utf8_length(const char *s, const char *end) {
  const unsigned char *p = (const unsigned char *)s;
  size_t left = (size_t)(end - s), n, i;
  uint32_t u;
  if (!left) return 0;
  if (p[0] < 0x80) return 1;
  n = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
  if (p[0] < 0xc2 || p[0] > 0xf4 || left < n) return 0;
  u = p[0] & (0x7fu >> n);
  for (i = 1; i < n; i++) {
    if ((p[i] & 0xc0) != 0x80) return 0;
    u = u << 6 | (p[i] & 0x3f);
  }
  /* Not longer than needed, no surrogates, not beyond Unicode. */
  if (n == 3 && (u < 0x800 || (u >= 0xd800 && u < 0xe000))) return 0;
  if (n == 4 && (u < 0x10000 || u > 0x10ffff)) return 0;
  return n;
}

bool limn_utf8_valid(const char *s) {
  const char *end = s + strlen(s);
  size_t n;
  for (; s < end; s += n)
    if (!(n = limn_utf8_length(s, end))) return false;
  return true;
}

void limn_utf8_add(limn_str *out, uint32_t u) {
  char b[4];
  size_t n = u < 0x80 ? 1 : u < 0x800 ? 2 : u < 0x10000 ? 3 : 4, i;
  static const unsigned char lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
  for (i = n - 1; i > 0; i--, u >>= 6) b[i] = (char)(0x80 | (u & 0x3f));
  b[0] = (char)(lead[n] | u);
  limn_str_addn(out, b, n);
}

/* Four hex digits after \u. */
static int json_hex(limn_json *j, uint32_t *out) {
  uint32_t u = 0;
  int i;
  if (j->end - j->p < 4) return limn_json_fail(j, "a \\u escape is cut off");
  for (i = 0; i < 4; i++) {
    char ch = *j->p++;
    int v = ch >= '0' && ch <= '9'   ? ch - '0'
            : ch >= 'a' && ch <= 'f' ? ch - 'a' + 10
            : ch >= 'A' && ch <= 'F' ? ch - 'A' + 10
                                     : -1;
    if (v < 0) return limn_json_fail(j, "a \\u escape needs 4 hex digits");
    u = u << 4 | (uint32_t)v;
  }
  *out = u;
  return 0;
}

/* \uXXXX, or two of them for a code point beyond 0xffff. */
static int json_unicode(limn_json *j, limn_str *out) {
  uint32_t u, low;
  LIMN_TRY(json_hex(j, &u));
  if (u == 0) return limn_json_fail(j, "\\u0000 in a string");
  if (u >= 0xd800 && u < 0xe000) {
    if (u >= 0xdc00 || j->end - j->p < 2 || j->p[0] != '\\' || j->p[1] != 'u')
      return limn_json_fail(j, "half of a \\u pair");
    j->p += 2;
    LIMN_TRY(json_hex(j, &low));
    if (low < 0xdc00 || low >= 0xe000)
      return limn_json_fail(j, "half of a \\u pair");
    u = 0x10000 + ((u - 0xd800) << 10) + (low - 0xdc00);
  }
  limn_utf8_add(out, u);
  return 0;
}

static int json_escape(limn_json *j, limn_str *out) {
  static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
  const char *e;
  if (++j->p >= j->end) return limn_json_fail(j, "a string is cut off");
  if (*j->p == 'u') {
    j->p++;
    return json_unicode(j, out);
  }
  e = *j->p ? strchr(from, *j->p) : NULL;
  if (!e) return limn_json_fail(j, "an unknown escape in a string");
  j->p++;
  limn_str_addn(out, &to[e - from], 1);
  return 0;
}

int limn_json_string(limn_json *j, limn_str *out) {
  out->len = 0;
  limn_str_add(out, ""); /* never NULL */
  if (json_peek(j) != '"') return limn_json_fail(j, "a string is missing");
  j->p++;
  for (;;) {
    size_t n;
    if (j->p >= j->end) return limn_json_fail(j, "a string is cut off");
    if (*j->p == '"') break;
    if (*j->p == '\\') {
      LIMN_TRY(json_escape(j, out));
      continue;
    }
    if ((unsigned char)*j->p < 32)
      return limn_json_fail(j, "a control character in a string");
    n = limn_utf8_length(j->p, j->end);
    if (!n) return limn_json_fail(j, "a string is not valid UTF-8");
    limn_str_addn(out, j->p, n);
    j->p += n;
  }
  j->p++;
  return out->rc;
}

int limn_json_key(limn_json *j, limn_str *out) {
  LIMN_TRY(limn_json_string(j, out));
  return json_want(j, ':');
}

/* -- other values -- */

static bool json_digit(const limn_json *j) {
  return j->p < j->end && *j->p >= '0' && *j->p <= '9';
}

int limn_json_size(limn_json *j, int64_t *out) {
  int64_t v = 0;
  const char *from;
  json_blanks(j);
  from = j->p;
  if (!json_digit(j))
    return limn_json_fail(j, "a whole number, not below 0, is missing");
  for (; json_digit(j); j->p++)
    if (__builtin_mul_overflow(v, 10, &v) ||
        __builtin_add_overflow(v, *j->p - '0', &v))
      return limn_json_fail(j, "a number is too large");
  if (*from == '0' && j->p - from > 1)
    return limn_json_fail(j, "a number starts with 0");
  if (j->p < j->end && (*j->p == '.' || *j->p == 'e' || *j->p == 'E'))
    return limn_json_fail(j, "a number is not whole");
  *out = v;
  return 0;
}

static bool json_word(limn_json *j, const char *word) {
  size_t n = strlen(word);
  if ((size_t)(j->end - j->p) < n || memcmp(j->p, word, n)) return false;
  j->p += n;
  return true;
}

int limn_json_bool(limn_json *j, bool *out) {
  json_blanks(j);
  *out = json_word(j, "true");
  if (*out || json_word(j, "false")) return 0;
  return limn_json_fail(j, "true or false is missing");
}

/* -? int frac? exp?, only to step over it. */
static int json_skip_number(limn_json *j) {
  if (j->p < j->end && *j->p == '-') j->p++;
  if (!json_digit(j)) return limn_json_fail(j, "a value is missing");
  if (*j->p == '0')
    j->p++;
  else
    while (json_digit(j)) j->p++;
  if (j->p < j->end && *j->p == '.') {
    j->p++;
    if (!json_digit(j)) return limn_json_fail(j, "a digit is missing");
    while (json_digit(j)) j->p++;
  }
  if (j->p < j->end && (*j->p == 'e' || *j->p == 'E')) {
    j->p++;
    if (j->p < j->end && (*j->p == '-' || *j->p == '+')) j->p++;
    if (!json_digit(j)) return limn_json_fail(j, "a digit is missing");
    while (json_digit(j)) j->p++;
  }
  return 0;
}

static int json_skip_in(limn_json *j, limn_str *tmp) {
  char ch = json_peek(j);
  int64_t n = 0;
  int rc;
  if (ch == '"') return limn_json_string(j, tmp);
  if (ch != '{' && ch != '[')
    return json_word(j, "true") || json_word(j, "false") || json_word(j, "null")
               ? 0
               : json_skip_number(j);
  LIMN_TRY(limn_json_open(j, ch));
  while ((rc = limn_json_more(j, ch == '{' ? '}' : ']', &n)) > 0) {
    if (ch == '{') LIMN_TRY(limn_json_key(j, tmp));
    LIMN_TRY(json_skip_in(j, tmp)); /* depth is limited by open */
  }
  return rc;
}

int limn_json_skip(limn_json *j) {
  limn_str tmp;
  int rc;
  limn_str_init(&tmp, j->c);
  rc = json_skip_in(j, &tmp);
  limn_str_free(&tmp);
  return rc;
}

int limn_json_end(limn_json *j) {
  json_blanks(j);
  if (j->p == j->end) return 0;
  return limn_json_fail(j, "something follows the end");
}
