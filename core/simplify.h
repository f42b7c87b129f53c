/* What the files of the simplify pass share: reading nodes, and where shapes
 * and dtypes come from. See simplify.c. */
#ifndef LIMN_SIMPLIFY_H
#define LIMN_SIMPLIFY_H

#include "pass.h"

/* What a rule did: nothing; it changed the node; another value stands for it */
enum { SIMP_KEEP, SIMP_CHANGED, SIMP_REPLACED };

static inline const limn_node *simp_node(const limn_graph *g, limn_arg a) {
  return a.tag == LIMN_A_REF ? limn_graph_node(g, a.u.ref) : NULL;
}

/* The arguments of `a` if it is a node of this op, else NULL. */
static inline const limn_arg *simp_is(const limn_graph *g, limn_arg a, int op) {
  const limn_node *n = simp_node(g, a);
  return n && n->op == op ? g->args + n->args : NULL;
}

static inline bool simp_tensor(const limn_graph *g, limn_arg a) {
  const limn_node *n = simp_node(g, a);
  return n && n->kind == LIMN_V_TENSOR;
}

static inline int simp_rank(const limn_graph *g, limn_arg a) {
  return simp_tensor(g, a) ? simp_node(g, a)->rank : 0;
}

static inline limn_arg simp_item(const limn_graph *g, limn_arg list,
                                 uint32_t i) {
  return g->args[list.u.at + i];
}

static inline bool simp_same(const limn_graph *g, limn_arg a, limn_arg b) {
  if (a.tag != b.tag) return false;
  switch (a.tag) {
  case LIMN_A_NONE:
    return true;
  case LIMN_A_REF:
    return a.u.ref == b.u.ref;
  case LIMN_A_REAL:
    return !memcmp(&a.u.f, &b.u.f, sizeof a.u.f);
  case LIMN_A_STR:
    return a.u.str == b.u.str;
  case LIMN_A_LIST:
    if (a.n != b.n) return false;
    for (uint32_t i = 0; i < a.n; i++)
      if (!simp_same(g, simp_item(g, a, i), simp_item(g, b, i))) return false;
    return true;
  default:
    return a.u.i == b.u.i;
  }
}

static inline bool simp_is_int(limn_arg a, int64_t v) {
  return a.tag == LIMN_A_INT && a.u.i == v;
}

/* A literal dim as 0-based, or -1. */
static inline int simp_dim(limn_arg a, int rank) {
  int64_t d = a.tag == LIMN_A_INT ? a.u.i : 0;
  if (d < 0) d += rank + 1;
  return d >= 1 && d <= rank ? (int)d - 1 : -1;
}

/* Named dims of a list as a mask; false when one is not a literal in range. */
static inline bool simp_mask(const limn_graph *g, limn_arg dims, int rank,
                             bool *mask) {
  bool list = dims.tag == LIMN_A_LIST;
  for (int i = 0; i < LIMN_MAXDIM; i++)
    mask[i] = dims.tag == LIMN_A_NONE && i < rank;
  if (dims.tag == LIMN_A_NONE) return true;
  for (uint32_t i = 0; i < (list ? dims.n : 1); i++) {
    int d = simp_dim(list ? simp_item(g, dims, i) : dims, rank);
    if (d < 0) return false;
    mask[d] = true;
  }
  return true;
}

/* -- simplify_size.c -- */
/* Whether two values have the same shape or dtype for sure. */
bool limn_simp_shape_eq(const limn_graph *g, limn_arg a, limn_arg b);
bool limn_simp_dtype_eq(const limn_graph *g, limn_arg a, limn_arg b);
/* The oldest value with the same shape, dtype, or both. */
limn_arg limn_simp_shape(const limn_graph *g, limn_arg x);
limn_arg limn_simp_dtype(const limn_graph *g, limn_arg x);
limn_arg limn_simp_both(const limn_graph *g, limn_arg x);
/* A rule of size nodes; `a` are the node's arguments. */
int limn_simp_size(const limn_graph *g, limn_arg *a, limn_arg *out);

#endif
