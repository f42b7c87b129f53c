/* Inside emit_group.c and emit_product.c: the straight-line code of a group on
 * its way into a step. */
#ifndef LIMN_EMIT_CODE_H
#define LIMN_EMIT_CODE_H

#include "emit.h"

/* The group being emitted. */
typedef struct {
  emitter *e;
  limn_fuse_group *G;
  int32_t gi;
  limn_shape shape; /* of the iteration; a product's may be flattened */
  bool flat;        /* [batch, M, N] seen as [batch * M, N] */
  bool permute;     /* reduction: kept dims come first */
  int order[LIMN_MAXDIM];
  limn_instr *code;
  int n, cap;
  limn_operand in[LIMN_STEP_IN];
  limn_ref in_of[LIMN_STEP_IN];
  int16_t in_instr[LIMN_STEP_IN];
  int nin;
  limn_operand out[LIMN_STEP_OUT];
  int nout;
  int bias; /* index in `in` of a product's bias: 2, or 0 for none */
} coder;

int code_init(coder *k, emitter *e, int32_t gi);
int code_push(coder *k, limn_instr i, int *at);
/* All members but a reducing root. A product's bias was put aside already. */
int code_members(coder *k, limn_ref skip);
int code_store(coder *k, int x, const limn_operand *o);
int code_finish(coder *k, limn_step *s); /* becomes the step's */

#endif
