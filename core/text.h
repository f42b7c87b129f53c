/* The text form of graphs: what dump.c, parse.c, verify.c and model.c share. */
#ifndef LIMN_TEXT_H
#define LIMN_TEXT_H

#include "graph.h"

enum {
  LIMN_TEXT_FORMAT = 1, /* in "limn 1" and in files */
  LIMN_TEXT_DEPTH = 64, /* deepest nesting that is read */
  LIMN_TEXT_INLINE = 24 /* a plan value of more nodes gets a line of its own */
};

/* What to call cells, consts and modes in place of the graph's names: `object`
 * is the limn_cell, limn_tensor or limn_mode. May return NULL. */
typedef struct {
  void *user;
  const char *(*name)(void *user, const void *object);
} limn_dump_names;
/* limn_graph_dump with names, which may be NULL. */
void limn_graph_write(const limn_graph *g, limn_str *out, bool lines,
                      const limn_dump_names *names);

/* -- text.c: tokens, written -- */
/* What an input of this kind (REAL INT BOOL DTYPE) is called. */
const char *limn_text_host(int kind);
bool limn_text_ident(const char *s); /* a name that needs no quotes */
/* Always quoted: JSON, and \xNN for bytes that are not valid UTF-8, so that
 * the text itself always is. */
void limn_text_quote(limn_str *out, const char *s);
void limn_text_name(limn_str *out, const char *s);  /* quoted if need be */
void limn_text_place(limn_str *out, const char *s); /* a word of a comment */

/* -- text.c: tokens, read -- */
typedef struct {
  limn_context *c;
  const char *start, *s, *end; /* *end is 0, and no other byte is */
  limn_str tok;                /* the last name or string */
} limn_lex;
/* "3:14: <fmt>", the line and column of l->s. */
int limn_lex_fail(const limn_lex *l, const char *fmt, ...) LIMN_PRINTF(2, 3);
/* As above, of the form "expected <what>, found <what is there>". */
int limn_lex_expected(const limn_lex *l, const char *what);
/* Put the position of `at` before the current message, and return EFORMAT
 * (out of memory stays what it is). */
int limn_lex_locate(const limn_lex *l, const char *at, int rc);
void limn_lex_blanks(limn_lex *l); /* and comments */
/* Step over this punctuation or word if it comes next. "=" is not taken from
 * "==" or "=>", nor "<" from "<=" or "<-". */
bool limn_lex_accept(limn_lex *l, const char *what);
int limn_lex_expect(limn_lex *l, const char *what);
bool limn_lex_is_ident(limn_lex *l);
int limn_lex_ident(limn_lex *l);  /* to tok */
int limn_lex_string(limn_lex *l); /* to tok */
int limn_lex_name(limn_lex *l);   /* identifier or string; to tok */
int limn_lex_int(limn_lex *l, int64_t min, int64_t max, int64_t *out);
/* INT or REAL, told apart by a point, an exponent, inf or nan. */
int limn_lex_number(limn_lex *l, limn_arg *out);
bool limn_lex_is_number(limn_lex *l);
/* The comment on the rest of this line as place and module path. */
int limn_lex_place(limn_lex *l, limn_graph *g, uint32_t *line, uint32_t *path);

/* -- verify.c -- */
/* Check the arguments of a node of `op` to be placed after node number `at`:
 * tags and kinds against the signature, references backwards, indices and dims
 * in range. Afterwards limn_op_kind and limn_op_rank are safe to call. */
int limn_node_check(const limn_graph *g, limn_ref at, int op, const limn_arg *a,
                    int n);

#endif
