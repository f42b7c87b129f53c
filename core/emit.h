/* Inside emit*.c: from fused groups to steps, slots and number operands. */
#ifndef LIMN_EMIT_H
#define LIMN_EMIT_H

#include "planner.h"

/* Where a node's value is: in a slot, or one number for all elements. */
enum { EMIT_NONE, EMIT_MEM, EMIT_NUMBER };
typedef struct {
  uint8_t state, dtype;
  uint16_t slot;
  limn_view v;
  limn_arg number; /* EMIT_NUMBER: a host value of the graph */
} emit_value;

/* Where a node's value is to be made: as a part of another's; and, of the last
 * update of a chain, whether its parts are all there is. */
typedef struct {
  limn_ref home; /* 0: in memory of its own */
  limn_view v;   /* of home's memory */
  bool covered;
} emit_place;

typedef struct {
  limn_context *c;
  limn_plan *p;
  limn_infer *I;
  limn_graph *g;
  limn_fused *f;
  limn_arena *a;       /* lives with the plan */
  limn_arena *tmp;     /* until the plan is made */
  limn_type *pool;     /* EMIT_POOL list elements, for one op at a time */
  emit_value *val;     /* per node */
  limn_ref *member;    /* per node: next member of its group, 0: last */
  limn_ref *head;      /* per group: first member */
  uint8_t *deferred;   /* products emitted with their epilogue */
  int32_t *out_of;     /* per node: graph output that it becomes, or -1 */
  int32_t *write_of;   /* per node: cell that it becomes, or -1 */
  uint16_t *given;     /* per output: 1 + the slot where a group stored it */
  int32_t *host_of;    /* per node: index in the host program, or -1 */
  int32_t *instr;      /* per node: instruction in the group being emitted */
  int32_t *instr_stamp;
  int32_t stamp;
  emit_place *place;   /* per node */
} emitter;

/* emit.c */
const limn_type *emit_type(const emitter *e, limn_ref r);
limn_ref emit_canon(const emitter *e, limn_arg a);
/* Note where node r's value is. */
void emit_known(emitter *e, limn_ref r, const limn_operand *o);
int emit_slot(emitter *e, int kind, uint32_t index, int dtype,
              const limn_shape *s, uint16_t *slot);
int emit_temp(emitter *e, int dtype, const limn_shape *s, limn_operand *out);
/* Memory for the value of node r: an output, a cell's write, scratch (dense all
 * of them), or its place in another's; notes it as the node's value. */
int emit_dest(emitter *e, limn_ref r, limn_operand *out);
/* The same for a node that others are parts of, which may have it already. */
int emit_home(emitter *e, limn_ref r, limn_operand *out);
int emit_step(emitter *e, int kind, int op, int nin, int nout, limn_ref r,
              limn_step **out);
void emit_set(emitter *e, limn_step *s, bool output, int i,
              const limn_operand *o); /* an operand, noting its lifetime */
void emit_touch(emitter *e, const limn_step *s, uint16_t slot);
/* Where node r's value is; a number is filled into memory. */
int emit_memory(emitter *e, limn_ref r, limn_operand *out);
/* The memory of a tensor argument (canonical); fills a number into memory. */
int emit_operand(emitter *e, limn_arg a, limn_operand *out);
int emit_copy(emitter *e, const limn_operand *from, const limn_operand *to,
              limn_ref r);
int emit_fill_region(emitter *e, limn_arg number, const limn_operand *to,
                     limn_ref r);
/* o dense and of that dtype, copied if need be. */
int emit_dense(emitter *e, limn_operand *o, int dtype, limn_ref r);
/* o, which is dense, seen in another shape. */
static inline void emit_reshape(limn_operand *o, int ndim, const int64_t *d) {
  int64_t at = o->v.offset;
  limn_view_dense(&o->v, ndim, d);
  o->v.offset = at;
}
int emit_args(emitter *e, limn_ref r, limn_type *out, limn_type *pool);
int emit_imm(emitter *e, limn_arg a, uint16_t *out);
int emit_imm_const(emitter *e, double f, int64_t i, uint16_t *out);
bool emit_is_tensor(const emitter *e, limn_arg a);
int emit_site(emitter *e, limn_ref r, const char *what, uint32_t *site);

#define EMIT_POOL 256 /* list elements of one op's resolved arguments */

/* emit_place.c: which values are made in their place. */
int emit_places(emitter *e);

/* emit_out.c: results, writes of cells, and what may be done in place. */
int emit_outs(emitter *e);
/* Memory for output k alone. */
int emit_result(emitter *e, uint32_t k, limn_operand *out);

/* emit_group.c */
int emit_group(emitter *e, int32_t gi);

/* emit_product.c */
int emit_matmul(emitter *e, limn_ref r, int32_t gi); /* gi -1: no epilogue */
/* A step with what follows the product r of x and y, whose result is seen as of
 * shape s (`flat`: with its batch dims as rows). *st NULL: nothing to do. */
int emit_product(emitter *e, limn_ref r, int32_t gi, int kind,
                 const limn_operand *x, const limn_operand *y,
                 const limn_shape *s, bool flat, limn_step **st);

/* emit_region.c: control flow, with the picks of its results */
int emit_region(emitter *e, limn_ref r);

/* emit_ops.c: S rows that have kernels, and print. */
int emit_special(emitter *e, limn_ref r);
int emit_dim(const limn_type *a, int ndim); /* 0-based */

/* emit_norm.c: those that normalise, with their resolved arguments */
int emit_norm(emitter *e, limn_ref r, const limn_type *a);
int emit_norm_sums(emitter *e, limn_ref r, const limn_type *a);
int emit_batch(emitter *e, limn_ref r);

/* emit_window.c: pools and convolutions */
int emit_pool(emitter *e, limn_ref r, const limn_type *a);
int emit_conv(emitter *e, limn_ref r, int32_t gi); /* as emit_matmul */

#endif
