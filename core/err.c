/* The error message, the hint and the log of a context. */
#include <stdio.h>

#include "base.h"

/* Formats into buf; text that does not fit ends in "..." */
static void err_format(char *buf, size_t n, const char *fmt, va_list ap) {
  int len = vsnprintf(buf, n, fmt, ap);
  if (len < 0) buf[0] = 0;
  if (len >= (int)n && n > 4) memcpy(buf + n - 4, "...", 4);
}

/* Arguments may point into the message that is being replaced, so all of
 * these format into a buffer of their own first. */
int limn_fail(limn_context *c, int code, const char *fmt, ...) {
  char text[sizeof c->error];
  va_list ap;
  if (!c) return code;
  va_start(ap, fmt);
  err_format(text, sizeof text, fmt, ap);
  va_end(ap);
  memcpy(c->error, text, strlen(text) + 1);
  c->hint[0] = 0;
  c->last = code;
  return code;
}

/* c->error = a .. b, cut to fit. */
static void err_join(limn_context *c, const char *a, const char *b) {
  char text[sizeof c->error];
  size_t na = LIMN_MIN(strlen(a), sizeof text - 1);
  size_t nb = LIMN_MIN(strlen(b), sizeof text - 1 - na);
  memcpy(text, a, na);
  memcpy(text + na, b, nb);
  text[na + nb] = 0;
  memcpy(c->error, text, na + nb + 1);
}

void limn_error_prepend(limn_context *c, const char *fmt, ...) {
  char text[sizeof c->error];
  va_list ap;
  va_start(ap, fmt);
  err_format(text, sizeof text, fmt, ap);
  va_end(ap);
  err_join(c, text, c->error);
}

void limn_error_append(limn_context *c, const char *fmt, ...) {
  char text[sizeof c->error];
  va_list ap;
  va_start(ap, fmt);
  err_format(text, sizeof text, fmt, ap);
  va_end(ap);
  err_join(c, c->error, text);
}

bool limn_error_says(const char *msg, const char *name) {
  size_t line = strcspn(msg, "\n"), n = strlen(name);
  for (size_t i = 0; i + n <= line; i++)
    if (!memcmp(msg + i, name, n)) return true;
  return false;
}

const char *limn_path_called(const char *path, int *n) {
  const char *colon = strrchr(path, ':');
  *n = colon ? (int)(colon - path) : (int)strlen(path);
  return colon ? colon + 1 : "";
}

int limn_hint(limn_context *c, int code, const char *fmt, ...) {
  char text[sizeof c->hint];
  va_list ap;
  if (!c) return code;
  va_start(ap, fmt);
  err_format(text, sizeof text, fmt, ap);
  va_end(ap);
  memcpy(c->hint, text, strlen(text) + 1);
  return code;
}

const char *limn_hint_text(const limn_context *c) {
  return c->hint;
}

void limn_error_clear(limn_context *c) {
  c->error[0] = c->hint[0] = 0;
  c->last = 0;
}

/* The host gets one line at a time; cuts `text` up. */
static void err_lines(limn_context *c, char level, char *text) {
  char *end;
  for (; (end = strchr(text, '\n')); text = end + 1) {
    *end = 0;
    c->opt.log(c->opt.user, level, text);
  }
  if (*text) c->opt.log(c->opt.user, level, text);
}

void limn_log(limn_context *c, char level, const char *fmt, ...) {
  char small[512], *text = small;
  va_list ap;
  int n;
  if (!c->opt.log) return;
  va_start(ap, fmt);
  n = vsnprintf(small, sizeof small, fmt, ap);
  va_end(ap);
  if (n < 0) return;
  if (n >= (int)sizeof small) {
    text = limn_realloc(c, NULL, 0, (size_t)n + 1, 16);
    if (!text) text = small; /* a log is no reason to fail: cut it */
    va_start(ap, fmt);
    if (text != small) vsnprintf(text, (size_t)n + 1, fmt, ap);
    va_end(ap);
  }
  if (!n) c->opt.log(c->opt.user, level, "");
  err_lines(c, level, text);
  if (text != small) limn_free(c, text, (size_t)n + 1);
}
