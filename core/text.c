/* The tokens of the text form: names, strings, numbers and comments. */
#include "text.h"

#include <stdio.h>

#include "json.h"

/* -- Written -- */

static bool text_letter(char ch) {
  return (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || ch == '_';
}

static bool text_digit(char ch) { return ch >= '0' && ch <= '9'; }

static bool text_inner(char ch) {
  return text_letter(ch) || text_digit(ch) || ch == '.';
}

const char *limn_text_host(int kind) {
  switch (kind) {
  case LIMN_V_INT:
    return "int";
  case LIMN_V_BOOL:
    return "bool";
  case LIMN_V_DTYPE:
    return "dtype";
  default:
    return "number";
  }
}

bool limn_text_ident(const char *s) {
  if (!text_letter(*s)) return false;
  while (text_inner(*s)) s++;
  return !*s;
}

void limn_text_quote(limn_str *out, const char *s) {
  static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
  const char *end = s + strlen(s);
  limn_str_add(out, "\"");
  while (s < end) {
    size_t n = limn_utf8_length(s, end);
    const char *e = strchr(from, *s);
    if (e)
      limn_str_addf(out, "\\%c", to[e - from]);
    else if ((unsigned char)*s < 32)
      limn_str_addf(out, "\\u%04x", (unsigned)(unsigned char)*s);
    else if (n)
      limn_str_addn(out, s, n);
    else
      limn_str_addf(out, "\\x%02x", (unsigned)(unsigned char)*s);
    s += n ? n : 1;
  }
  limn_str_add(out, "\"");
}

void limn_text_name(limn_str *out, const char *s) {
  if (limn_text_ident(s))
    limn_str_add(out, s);
  else
    limn_text_quote(out, s);
}

/* A bare word of a comment: visible ASCII that does not start a string. */
static bool text_visible(char ch) { return ch > 32 && ch < 127; }

void limn_text_place(limn_str *out, const char *s) {
  const char *p = s;
  limn_str_add(out, " ");
  while (text_visible(*p)) p++;
  if (*p || !*s || *s == '"')
    limn_text_quote(out, s);
  else
    limn_str_add(out, s);
}

/* -- Failures -- */

/* Counts lines and bytes up to `at`; only done when something is wrong. */
static void lex_position(const limn_lex *l, const char *at, char *buf,
                         size_t n) {
  size_t line = 1, column = 1;
  for (const char *s = l->start; s < at; s++) {
    column++;
    if (*s == '\n') line++, column = 1;
  }
  snprintf(buf, n, "%zu:%zu: ", line, column);
}

int limn_lex_fail(const limn_lex *l, const char *fmt, ...) {
  char text[512], at[48];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  lex_position(l, l->s, at, sizeof at);
  return limn_fail(l->c, LIMN_EFORMAT, "%s%s", at, text);
}

int limn_lex_expected(const limn_lex *l, const char *what) {
  char found[24];
  size_t n = 0;
  while (n < sizeof found - 1 && text_visible(l->s[n])) {
    found[n] = l->s[n];
    if (!text_inner(found[n++])) break; /* one sign, or one word */
  }
  found[n] = 0;
  if (l->s >= l->end)
    return limn_lex_fail(l, "expected %s, but the text ends", what);
  if (n == 0)
    return limn_lex_fail(l, "expected %s, found byte %d", what,
                         (unsigned char)*l->s);
  return limn_lex_fail(l, "expected %s, found '%s'", what, found);
}

int limn_lex_locate(const limn_lex *l, const char *at, int rc) {
  char text[48];
  if (rc >= 0 || rc == LIMN_EMEM) return rc;
  lex_position(l, at, text, sizeof text);
  limn_error_prepend(l->c, "%s", text);
  return LIMN_EFORMAT;
}

/* -- Read -- */

void limn_lex_blanks(limn_lex *l) {
  for (;;) {
    while (*l->s == ' ' || *l->s == '\n' || *l->s == '\t' || *l->s == '\r')
      l->s++;
    if (*l->s != '#') return;
    while (*l->s && *l->s != '\n') l->s++;
  }
}

bool limn_lex_accept(limn_lex *l, const char *what) {
  size_t n = strlen(what);
  limn_lex_blanks(l);
  if (strncmp(l->s, what, n)) return false; /* stops at the end's 0 */
  if (text_letter(*what) && text_inner(l->s[n])) return false;
  if (n == 1 && *what == '=' && (l->s[1] == '=' || l->s[1] == '>'))
    return false;
  if (n == 1 && *what == '<' && (l->s[1] == '=' || l->s[1] == '-'))
    return false;
  if (n == 1 && *what == '>' && l->s[1] == '=') return false;
  l->s += n;
  return true;
}

int limn_lex_expect(limn_lex *l, const char *what) {
  char text[32];
  if (limn_lex_accept(l, what)) return 0;
  snprintf(text, sizeof text, "'%s'", what);
  return limn_lex_expected(l, text);
}

bool limn_lex_is_ident(limn_lex *l) {
  limn_lex_blanks(l);
  return text_letter(*l->s);
}

int limn_lex_ident(limn_lex *l) {
  const char *from;
  if (!limn_lex_is_ident(l)) return limn_lex_expected(l, "a name");
  from = l->s;
  while (text_inner(*l->s)) l->s++;
  l->tok.len = 0;
  limn_str_addn(&l->tok, from, (size_t)(l->s - from));
  return l->tok.rc;
}

/* Digits of \xNN and \uNNNN. */
static int lex_hex(limn_lex *l, int n, uint32_t *out) {
  *out = 0;
  for (; n > 0; n--, l->s++) {
    char ch = *l->s;
    int v = text_digit(ch)           ? ch - '0'
            : ch >= 'a' && ch <= 'f' ? ch - 'a' + 10
            : ch >= 'A' && ch <= 'F' ? ch - 'A' + 10
                                     : -1;
    if (v < 0) return limn_lex_expected(l, "a hex digit");
    *out = *out << 4 | (uint32_t)v;
  }
  if (*out == 0) return limn_lex_fail(l, "a zero byte in a string");
  return 0;
}

static int lex_unicode(limn_lex *l) {
  uint32_t u, low;
  LIMN_TRY(lex_hex(l, 4, &u));
  if (u >= 0xd800 && u < 0xdc00 && l->s[0] == '\\' && l->s[1] == 'u') {
    l->s += 2;
    LIMN_TRY(lex_hex(l, 4, &low));
    if (low >= 0xdc00 && low < 0xe000)
      u = 0x10000 + ((u - 0xd800) << 10) + (low - 0xdc00);
  }
  if (u >= 0xd800 && u < 0xe000) return limn_lex_fail(l, "half of a \\u pair");
  limn_utf8_add(&l->tok, u);
  return 0;
}

static int lex_escape(limn_lex *l) {
  static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
  const char *e;
  uint32_t u;
  char ch = *++l->s;
  l->s += ch != 0;
  if (ch == 'u') return lex_unicode(l);
  if (ch == 'x') {
    LIMN_TRY(lex_hex(l, 2, &u));
    ch = (char)u;
    limn_str_addn(&l->tok, &ch, 1);
    return 0;
  }
  e = ch ? strchr(from, ch) : NULL;
  if (!e) return limn_lex_fail(l, "an unknown escape in a string");
  limn_str_addn(&l->tok, &to[e - from], 1);
  return 0;
}

int limn_lex_string(limn_lex *l) {
  limn_lex_blanks(l);
  if (*l->s != '"') return limn_lex_expected(l, "a string");
  l->s++;
  l->tok.len = 0;
  limn_str_add(&l->tok, ""); /* never NULL */
  while (*l->s != '"') {
    size_t n = limn_utf8_length(l->s, l->end);
    if (*l->s == '\\') {
      LIMN_TRY(lex_escape(l));
      continue;
    }
    if (!n || (unsigned char)*l->s < 32)
      return limn_lex_fail(l, l->s >= l->end ? "a string is cut off"
                              : n            ? "a control character in a string"
                                             : "a string is not valid UTF-8");
    limn_str_addn(&l->tok, l->s, n);
    l->s += n;
  }
  l->s++;
  return l->tok.rc;
}

int limn_lex_name(limn_lex *l) {
  limn_lex_blanks(l);
  return *l->s == '"' ? limn_lex_string(l) : limn_lex_ident(l);
}

int limn_lex_int(limn_lex *l, int64_t min, int64_t max, int64_t *out) {
  const char *e;
  limn_lex_blanks(l);
  e = limn_read_int(l->s, out);
  if (!e) return limn_lex_expected(l, "a whole number");
  if (*out < min || *out > max)
    return limn_lex_fail(l, "expected a number from %lld to %lld, found %lld",
                         (long long)min, (long long)max, (long long)*out);
  l->s = e;
  return 0;
}

bool limn_lex_is_number(limn_lex *l) {
  const char *s;
  limn_lex_blanks(l);
  s = l->s + (*l->s == '-');
  return text_digit(*s) || (!strncmp(s, "inf", 3) && !text_inner(s[3])) ||
         (!strncmp(s, "nan", 3) && !text_inner(s[3]));
}

int limn_lex_number(limn_lex *l, limn_arg *out) {
  int64_t i;
  double f;
  const char *e = limn_read_int(l->s, &i), *r = limn_read_real(l->s, &f);
  if (!r) return limn_lex_expected(l, "a number");
  /* What reads further as a real is one; an int that is too large is none. */
  if (e != r && !e) {
    const char *s = l->s + (*l->s == '-');
    while (text_digit(*s)) s++;
    if (s == r) return limn_lex_fail(l, "a whole number beyond 64 bits");
  }
  *out = e == r ? limn_aint(i) : limn_areal(f);
  l->s = r;
  if (text_inner(*r)) return limn_lex_expected(l, "the end of a number");
  return 0;
}

static int lex_place_word(limn_lex *l, limn_graph *g, uint32_t *out) {
  const char *from;
  while (*l->s == ' ' || *l->s == '\t') l->s++;
  if (*l->s == '"') {
    LIMN_TRY(limn_lex_string(l));
  } else {
    for (from = l->s; text_visible(*l->s);) l->s++;
    if (l->s == from) return 0;
    l->tok.len = 0;
    limn_str_addn(&l->tok, from, (size_t)(l->s - from));
    LIMN_TRY(l->tok.rc);
  }
  *out = limn_graph_str(g, l->tok.s);
  return *out || !*l->tok.s ? 0 : LIMN_EMEM;
}

int limn_lex_place(limn_lex *l, limn_graph *g, uint32_t *line, uint32_t *path) {
  *line = *path = 0;
  while (*l->s == ' ' || *l->s == '\t') l->s++;
  if (*l->s != '#') return 0;
  l->s++;
  LIMN_TRY(lex_place_word(l, g, line));
  LIMN_TRY(lex_place_word(l, g, path));
  while (*l->s && *l->s != '\n') l->s++; /* what else it says is free */
  return 0;
}
