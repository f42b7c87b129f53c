/* What verify.c (graphs and nodes) and verify_region.c share. */
#ifndef LIMN_VERIFY_H
#define LIMN_VERIFY_H

#include "text.h"

/* Arguments under test: of a node of `op` after node number `at`. */
typedef struct {
  const limn_graph *g;
  limn_ref at;
  int op;
  const limn_arg *a;
  int n;
} verify;

int verify_fail(const verify *v, const char *fmt, ...) LIMN_PRINTF(2, 3);
/* Kind of a scalar argument, or -1 when it is not a legal one. */
int verify_kind(const limn_graph *g, limn_ref at, const limn_arg *a);
/* Argument i is one of `count` from `first` on. */
int verify_index(const verify *v, int i, int64_t first, int64_t count,
                 const char *what);

/* verify_region.c: regions exist and fit the operands of their node. The
 * regions are checked themselves before: verify_graph starts with them, and
 * the parser with the innermost. */
int verify_region(const verify *v);

#endif
