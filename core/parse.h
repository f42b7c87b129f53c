/* The parser's state, shared by parse.c (graphs) and parse_value.c. */
#ifndef LIMN_PARSE_H
#define LIMN_PARSE_H

#include "text.h"

/* A numbered node: numbers rise, so that they can be searched. */
typedef struct {
  int64_t id;
  limn_ref ref;
} limn_parse_number;

/* One graph or region in the making. */
typedef struct {
  limn_graph *g;
  limn_map inputs; /* name -> ref */
  limn_map vars;   /* name -> cell: index * 2 + 2, const: index * 2 + 3 */
  limn_map modes;  /* name -> index + 1 */
  limn_map plans;  /* op and arguments of a plan value -> ref */
  limn_parse_number *number;
  uint32_t nnumber, number_cap;
} limn_parse_scope;

typedef struct {
  limn_lex l;
  const limn_parse_env *env;
  limn_parse_scope *in;
  limn_arg *stack; /* elements of lists that are being read */
  uint32_t nstack, stack_cap;
  int depth;
  int64_t last; /* highest number of a node so far */
} limn_parser;

/* -- parse_value.c -- */
int limn_parse_deeper(limn_parser *p); /* one more level of nesting */
/* The last name or string as text of the graph; empty is 0. */
int limn_parse_intern(limn_parser *p, uint32_t *out);
uintptr_t limn_parse_find(limn_parser *p, const limn_map *m); /* likewise */
/* Check a node, then append it; `at` is where to point if it is wrong. */
int limn_parse_add(limn_parser *p, const char *at, int op, const limn_arg *a,
                   int n, limn_ref *out);
/* The same for plan values, of which equal ones are one node. */
int limn_parse_add_plan(limn_parser *p, const char *at, int op,
                        const limn_arg *a, int n, limn_ref *out);
int limn_parse_var(limn_parser *p, bool *konst, uint32_t *index); /* after @ */
int limn_parse_op(limn_parser *p, int *out); /* the last name as an op */
/* After the op's name: arguments in the signature's order. */
int limn_parse_args(limn_parser *p, int op, limn_arg *a, int *n);
int limn_parse_value(limn_parser *p, char type, limn_arg *out);

/* -- parse.c -- */
int limn_parse_region(limn_parser *p, limn_arg *out); /* its index */

#endif
