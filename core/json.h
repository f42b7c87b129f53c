/* Reading JSON as it comes, with no tree in memory: strict, for hostile input.
 *
 * The caller knows what it expects and asks for it; whatever is there instead
 * is LIMN_EFORMAT with the byte where it stands. */
#ifndef LIMN_JSON_H
#define LIMN_JSON_H

#include "base.h"

typedef struct {
  limn_context *c;
  const char *what; /* names the text in messages: "the header" */
  const char *start, *p, *end;
  int depth;
} limn_json;

void limn_json_init(limn_json *j, limn_context *c, const char *what,
                    const char *text, size_t n);
/* Fails with the position: "the header, byte 17: ...". */
int limn_json_fail(const limn_json *j, const char *fmt, ...) LIMN_PRINTF(2, 3);
/* '{' or '[', then for each item more(), until it says 0. `n` counts items and
 * starts at 0. */
int limn_json_open(limn_json *j, char open);
int limn_json_more(limn_json *j, char close, int64_t *n);
/* A string, unescaped, replaces `out`. NUL is refused: names are C strings. */
int limn_json_string(limn_json *j, limn_str *out);
int limn_json_key(limn_json *j, limn_str *out); /* a string and its ':' */
int limn_json_size(limn_json *j, int64_t *out); /* a whole number >= 0 */
int limn_json_bool(limn_json *j, bool *out);
int limn_json_skip(limn_json *j); /* any value */
int limn_json_end(limn_json *j);  /* nothing but blanks is left */

/* Bytes of the UTF-8 sequence at s (before end), or 0 if it is not valid. */
size_t limn_utf8_length(const char *s, const char *end);
bool limn_utf8_valid(const char *s);
/* Append code point `u` as UTF-8. */
void limn_utf8_add(limn_str *out, uint32_t u);

#endif
