/* Layer 3, upper part: planning a graph for one key, running it, and eager
 * ops, which are one-node graphs.
 *
 * A plan is made at the first run for a key: the device, the shapes and dtypes
 * (and strides where not dense) of the tensor inputs, the values of number
 * inputs that are used as sizes, the mode bits and the policy word. Running it
 * again plans, compiles and allocates nothing but the outputs. */
#ifndef LIMN_PLAN_H
#define LIMN_PLAN_H

#include "device.h"

/* One argument of a run, in the order of graph->in. */
typedef struct {
  limn_tensor *t; /* tensor inputs; borrowed */
  double number;  /* number inputs */
} limn_run_arg;

/* One result leaf of a run, in the order of graph->out. */
typedef struct {
  uint8_t kind; /* LIMN_V_TENSOR INT REAL BOOL STR, or NONE for nil */
  limn_tensor *t; /* +1 to the caller */
  int64_t i;
  double f;
  const char *s; /* lives as long as the graph */
} limn_result;

typedef struct { /* what graph:stats() tells */
  uint64_t runs, plans, hits, evicted;
  uint32_t entries;
  size_t bytes;
  /* The field of the key that differed from the nearest plan at the last
   * misses, newest first: "size 1 of %x: 8 -> 16". */
  char miss[8][96];
  uint32_t nmiss;
} limn_graph_stats;

/* Run g. dev NULL: the device of the tensor arguments (all on one; 0-dim CPU
 * tensors mix with any), the CPU when there are none. out[g->nout] is filled
 * with +1 tensors. into: NULL, or per output a dense tensor to write to
 * (allocates nothing then); it must have the output's shape and dtype, be on
 * the run's device and overlap nothing. Errors are located; a failed run has
 * changed nothing but voided the cells it was to write, and that only after
 * its first step. */
int limn_graph_run(limn_graph *g, limn_device *dev, const limn_run_arg *in,
                   limn_tensor *const *into, limn_result *out);
/* Plan and warm up without running. */
int limn_graph_prepare(limn_graph *g, limn_device *dev,
                       const limn_run_arg *in);
void limn_graph_stats_get(limn_graph *g, limn_graph_stats *out);
/* Text of the plan for these arguments: time, kernel and memory of each step,
 * and sums by line and by module path. Runs twice, without effects. */
int limn_graph_explain(limn_graph *g, limn_device *dev,
                       const limn_run_arg *in, limn_str *out);
/* What limn.debug {keep = true} has kept: the name of value i, a module path or
 * a line, and the value (borrowed; NULL before the first run); NULL past the
 * last. */
const char *limn_graph_kept(limn_graph *g, uint32_t i, limn_tensor **out);
/* Drop all plans of g (a change of LIMN_OPT, tests). */
void limn_graph_forget(limn_graph *g);

/* Call op with one value per parameter of its signature (NONE: absent; missing
 * ones at the end are NONE). In a trace the op is recorded and *out is
 * LIMN_X_TRACED (or a host value's trace node); else it runs and *out is
 * LIMN_X_TENSOR, +1 (host ops give host values). `dev`: where a generator puts
 * its result; NULL: the CPU, or where the run happens. Views make no plan. */
int limn_apply(limn_context *c, int op, const limn_value *a, int n,
               limn_device *dev, limn_value *out);

/* Give a cell a new value in eager code. On a tape this is recorded, so that
 * later reads are differentiated through it. v: a tensor or a cell. */
int limn_assign(limn_context *c, limn_cell *cell, const limn_value *v);

/* Eager gradients: the gradient of `loss` recorded on tape t with respect to
 * wrt[n] (nodes of t's graph; 0: not recorded at all). out[i] is +1, or NULL
 * where the loss does not reach. The backward graph is cached by structure. */
int limn_tape_gradient(limn_trace *t, limn_ref loss, const limn_ref *wrt,
                       int n, limn_tensor **out);

/* Context-wide bounds of the plan cache: defaults 512 entries, 256 MiB. */
void limn_plans_limit(limn_context *c, uint32_t entries, size_t bytes);

#endif
