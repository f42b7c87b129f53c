/* What the graph passes share: builders of expressions, and renumbering. */
#ifndef LIMN_PASS_H
#define LIMN_PASS_H

#include "op_rules.h"

/* -- expand.c: builders. An operand that is NONE gives NONE. -- */

/* An elementwise op; of literals only it is computed at once. */
limn_arg limn_calc1(limn_builder *b, int op, limn_arg x);
limn_arg limn_calc2(limn_builder *b, int op, limn_arg x, limn_arg y);
limn_arg limn_calc3(limn_builder *b, int op, limn_arg x, limn_arg y,
                    limn_arg z);
/* Whether `a` is a node with elements, not a number or plan value. */
bool limn_arg_tensor(const limn_builder *b, limn_arg a);
/* Whether `a` is the literal number v, of any kind. */
bool limn_arg_is(limn_arg a, double v);
/* The literal bool `a`; absent or a plan value: false. */
bool limn_arg_true(limn_arg a);
limn_arg limn_build_str(limn_builder *b, const char *s);
limn_arg limn_build_size(limn_builder *b, limn_arg x, int dim);
/* Which dims (0-based) of a tensor of that rank are named; absent: all. */
int limn_dims_of(const limn_builder *b, limn_arg dims, int rank,
                 bool mask[LIMN_MAXDIM]);
/* Number of elements along dims, a plan value. */
limn_arg limn_build_count(limn_builder *b, limn_arg x, limn_arg dims);
limn_arg limn_build_reduce(limn_builder *b, int op, limn_arg x, limn_arg dims,
                           bool keep);
/* A reduction's result with its dims back as 1, so that it broadcasts with
 * x. Leading reduced dims are left out: broadcasting supplies them. */
limn_arg limn_build_restore(limn_builder *b, limn_arg r, limn_arg x,
                            limn_arg dims, limn_arg keep);
limn_arg limn_build_zeros(limn_builder *b, limn_arg like);
/* All dims merged into one. */
limn_arg limn_build_flat(limn_builder *b, limn_arg x);
limn_arg limn_build_convert(limn_builder *b, limn_arg x, limn_arg like);
limn_arg limn_build_arange(limn_builder *b, limn_arg first, limn_arg last);
/* Composites of halves compute in float32 and round once, at the end: whether
 * this row does; its tensor arguments so; and its expansion. */
bool limn_op_widens(int op);
void limn_widen_args(limn_builder *b, limn_arg *a, int n);
limn_arg limn_expand(limn_builder *b, int op, const limn_arg *a, int n);

/* -- grad.c: names of the gradient column of R and V rows -- */
/* On entry of a gradient function out[i] is BOOL: whether it is wanted. */
static inline bool limn_grad_wants(const limn_arg *out) {
  return out->tag == LIMN_A_BOOL && out->u.i;
}
limn_arg limn_fold_like(limn_builder *b, limn_arg g, limn_arg x);
limn_arg grad_spread(limn_builder *b, limn_arg a, limn_arg g, limn_arg dims,
                     limn_arg keep);
limn_arg grad_prod(limn_builder *b, limn_arg a, limn_arg y, limn_arg g,
                   limn_arg dims, limn_arg keep);
limn_arg grad_extreme(limn_builder *b, limn_arg a, limn_arg y, limn_arg g,
                      limn_arg dims, limn_arg keep);
limn_arg grad_permute(limn_builder *b, const limn_arg *args, limn_arg g);
limn_arg grad_slice(limn_builder *b, const limn_arg *args, limn_arg g);
bool limn_grad_join(limn_builder *b, limn_arg *sum, limn_arg g);
limn_arg grad_windows(limn_builder *b, const limn_arg *args, limn_arg g);

/* Whether a gradient goes through a node at all. */
bool limn_grad_passes(const limn_graph *g, limn_ref r);
/* Append to g what y[ny] with the gradients gy give for wrt[n]. */
int limn_gradient_back(limn_graph *g, const limn_arg *y, const limn_arg *gy,
                       int ny, const limn_ref *wrt, int n, limn_arg *out);

/* -- grad_region.c, grad_scan.c -- */
/* A node with regions that is differentiated. */
typedef struct {
  limn_ref r;
  limn_arg a[LIMN_MAXARGS]; /* its arguments */
  const limn_arg *x, *g;    /* operands, list by list; gradients of results,
                               or NONE */
  uint32_t n, ng;
  limn_arg *out; /* of the operands: BOOL (wanted) on entry; then gradients */
} limn_region_call;
void limn_grad_region(limn_builder *b, limn_region_call *k);
void limn_grad_scan(limn_builder *b, limn_region_call *k);
/* Result number i (from 0) of node r: what reads it already, or a new node. */
limn_arg limn_region_pick(limn_builder *b, limn_ref r, uint32_t i);
/* Makes a region's copy ready for other inputs, results and no effects. */
void limn_region_strip(limn_graph *g);
/* Names for all inputs. */
int limn_region_rename(limn_graph *g);

/* -- prune.c -- */
/* Drop what is dead in regions of a graph that the caller owns alone. */
int limn_prune(limn_graph *g, bool *changed);

/* -- compact.c -- */
/* Nodes first, first + 1, ... are now called map[0], map[1], ...: says so to
 * everything that refers to them. Each argument is mapped once, so that lists
 * shared by nodes stay right. */
void limn_graph_remap(limn_graph *g, limn_ref first, const limn_ref *map);

#endif
