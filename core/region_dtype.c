/* The dtype that a value of a region will have, as a plan value of the trace
 * around it: a number beside that value is made in this dtype.
 *
 * What the value is made of is copied to the outer graph, as far as its dtype
 * depends on it. Nothing of that is computed, since dtypeof reads no data. A
 * choice has the dtype of either branch, and what a loop carries that of what
 * it starts with, so that neither is copied. */
#include "trace.h"

/* A graph whose values are copied, and what its inputs stand for. */
typedef struct dtype_env {
  limn_trace *to;
  limn_graph *g;
  limn_arg *made; /* per node: its copy */
  /* A branch of a cond: its inputs are elements of the list at `xs` in up's
   * graph; a region that is recorded: own values of `to`, then captures. */
  struct dtype_env *up;
  uint32_t xs;
  limn_trace *t;
  const limn_arg *own;
  uint32_t nown;
} dtype_env;

static int dtype_copy(dtype_env *e, limn_arg a, limn_arg *out);
static int dtype_find(dtype_env *e, limn_arg v, bool real, limn_arg *out);

static int dtype_env_open(dtype_env *e) {
  e->made = limn_alloc(e->to->c, (e->g->nnode + 1u) * sizeof *e->made);
  return e->made ? 0 : LIMN_EMEM;
}

static void dtype_env_close(dtype_env *e) {
  limn_free(e->to->c, e->made, (e->g->nnode + 1u) * sizeof *e->made);
}

/* What input i stands for. */
static int dtype_input(dtype_env *e, uint32_t i, limn_arg *out) {
  if (e->up) return dtype_copy(e->up, e->up->g->args[e->xs + i], out);
  *out = i < e->nown ? e->own[i] : e->t->captured[i - e->nown].outer;
  return 0;
}

static limn_ref dtype_add(dtype_env *e, int op, const limn_arg *a, int n,
                          const limn_node *from) {
  limn_graph *g = e->to->g;
  uint32_t line = limn_graph_str(g, limn_graph_text(e->g, from->line));
  uint32_t path = limn_graph_str(g, limn_graph_text(e->g, from->path));
  limn_ref r = limn_graph_add(g, op, a, n, line, path);
  if (!r || limn_infer_upto(&e->to->hints, r) < 0) return 0;
  return r;
}

static int dtype_copy_list(dtype_env *e, limn_arg a, limn_arg *out) {
  size_t bytes = (a.n + 1u) * sizeof *out;
  limn_arg *list = limn_alloc(e->to->c, bytes);
  int rc = list ? 0 : LIMN_EMEM;
  *out = a;
  for (uint32_t i = 0; i < a.n; i++)
    LIMN_GO(dtype_copy(e, e->g->args[a.u.at + i], &list[i]));
  LIMN_GO(limn_graph_push_args(e->to->g, list, a.n, &out->u.at));
bail:
  limn_free(e->to->c, list, bytes);
  return rc;
}

/* Where a number stands for what a loop starts with, only arithmetic takes it
 * as it is. */
static int dtype_number(dtype_env *e, const limn_node *n, limn_arg *x) {
  limn_arg a[3] = {{0}};
  limn_ref r;
  bool number = x->tag == LIMN_A_INT || x->tag == LIMN_A_REAL;
  if (!number || limn_op_get(n->op)->row == LIMN_ROW_E) return 0;
  a[0].tag = LIMN_A_LIST;
  a[1] = *x;
  a[2] = limn_adtype(x->tag == LIMN_A_INT ? LIMN_I64 : LIMN_F32);
  r = dtype_add(e, OP_full, a, 3, n);
  *x = limn_aref(r);
  return r ? 0 : e->to->c->last;
}

/* A node like another one; random ones take no draw. */
static int dtype_copy_node(dtype_env *e, limn_ref r, limn_arg *out) {
  const limn_node *n = limn_graph_node(e->g, r);
  const limn_arg *from = limn_node_args(e->g, r);
  limn_arg a[LIMN_MAXARGS];
  limn_param p[LIMN_MAXARGS];
  int np = limn_op_params(n->op, p), first, regions;
  uint32_t index;
  limn_ref to;
  regions = limn_op_regions(n->op, &first);
  for (int i = 0; i < n->nargs; i++) {
    LIMN_TRY(dtype_copy(e, from[i], &a[i]));
    if (from[i].tag == LIMN_A_REF && i < np && !p[i].list &&
        (p[i].type == 'T' || p[i].type == 'S'))
      LIMN_TRY(dtype_number(e, n, &a[i]));
    if (i < first || i >= first + regions || from[i].u.i < 0) continue;
    LIMN_TRY(limn_graph_add_region(e->to->g, limn_graph_region(e->g, from[i]),
                                   &index));
    a[i] = limn_aint(index);
  }
  if (limn_op_random(n->op)) a[n->nargs - 1] = limn_aint(0);
  to = dtype_add(e, n->op, a, n->nargs, n);
  *out = limn_aref(to);
  return to ? 0 : e->to->c->last;
}

/* What result i of a node with regions takes its dtype from: what a loop starts
 * with, in *to, or the branches of a cond, in branch[] and to[]. How many. */
static int dtype_picked(dtype_env *e, limn_ref r, limn_arg *to,
                        dtype_env *branch) {
  const limn_arg *pick = limn_node_args(e->g, r), *a;
  const limn_node *n;
  uint32_t k;
  if (limn_graph_node(e->g, r)->op != OP_pick) return 0;
  n = limn_graph_node(e->g, pick[0].u.ref);
  a = limn_node_args(e->g, pick[0].u.ref);
  k = (uint32_t)pick[1].u.i - 1;
  if ((n->op == OP_while || n->op == OP_scan) && k < a[0].n) {
    to[0] = e->g->args[a[0].u.at + k];
    return 1;
  }
  if (n->op != OP_cond) return 0;
  for (int i = 0; i < 2; i++) {
    limn_graph *g = limn_graph_region(e->g, a[2 + i]);
    branch[i] = (dtype_env){.to = e->to, .g = g, .up = e, .xs = a[1].u.at};
    to[i] = g->out[k];
  }
  if (branch[1].g->nnode < branch[0].g->nnode) { /* the simpler one first */
    dtype_env b = branch[0];
    limn_arg x = to[0];
    branch[0] = branch[1], branch[1] = b;
    to[0] = to[1], to[1] = x;
  }
  return 2;
}

static bool dtype_is_number(const dtype_env *e, limn_arg a) {
  return a.tag != LIMN_A_REF ||
         limn_graph_node(e->to->g, a.u.ref)->kind != LIMN_V_TENSOR;
}

/* Beside a number, the other branch decides. */
static int dtype_copy_branch(dtype_env *e, dtype_env *branch,
                             const limn_arg *x, limn_arg *out) {
  for (int i = 0; i < 2; i++) {
    limn_arg a;
    int rc = dtype_env_open(&branch[i]);
    if (rc == 0) rc = dtype_copy(&branch[i], x[i], &a);
    dtype_env_close(&branch[i]);
    LIMN_TRY(rc);
    if (i == 0 || !dtype_is_number(e, a)) *out = a;
    if (!dtype_is_number(e, a)) break;
  }
  return 0;
}

static int dtype_copy_ref(dtype_env *e, limn_ref r, limn_arg *out) {
  const limn_node *n = limn_graph_node(e->g, r);
  dtype_env branch[2];
  limn_arg x[2];
  if (n->op == OP_input || n->op == OP_number)
    return dtype_input(e, (uint32_t)limn_node_args(e->g, r)[0].u.i, out);
  if (n->op == OP_dtypeof)
    return dtype_find(e, limn_node_args(e->g, r)[0], false, out);
  switch (dtype_picked(e, r, x, branch)) {
    case 0: return dtype_copy_node(e, r, out);
    case 1: return dtype_copy(e, x[0], out);
    default: return dtype_copy_branch(e, branch, x, out);
  }
}

static int dtype_copy(dtype_env *e, limn_arg a, limn_arg *out) {
  *out = a;
  if (a.tag == LIMN_A_LIST) return dtype_copy_list(e, a, out);
  if (a.tag == LIMN_A_STR)
    return limn_graph_str_arg(e->to->g, limn_graph_text(e->g, a.u.str), out);
  if (a.tag != LIMN_A_REF) return 0;
  if (e->made[a.u.ref - 1].tag == LIMN_A_NONE)
    LIMN_TRY(dtype_copy_ref(e, a.u.ref, &e->made[a.u.ref - 1]));
  *out = e->made[a.u.ref - 1];
  return 0;
}

/* -- Dtypes -- */

static int dtype_of_number(int kind) {
  return kind == LIMN_V_REAL || kind == LIMN_A_REAL ? LIMN_F32
         : kind == LIMN_V_BOOL || kind == LIMN_A_BOOL ? LIMN_BOOL
                                                      : LIMN_I64;
}

/* The argument that gives a node its dtype: an attribute or an operand. */
static int dtype_source(const limn_node *n) {
  if (n->op == OP_full) return 2;
  if (n->op == OP_convert) return 1;
  return limn_op_get(n->op)->row == LIMN_ROW_V ? 0 : -1;
}

/* Of a value of the outer trace; `real`: beside a real number. */
static int dtype_outer(dtype_env *e, limn_arg v, bool real, limn_arg *out) {
  limn_trace *t = e->to;
  limn_arg a[2] = {v, limn_areal(0.5)};
  limn_ref r;
  if (v.tag == LIMN_A_REF && dtype_is_number(e, v))
    v.tag = limn_graph_node(t->g, v.u.ref)->kind == LIMN_V_REAL ? LIMN_A_REAL
                                                                : LIMN_A_INT;
  if (v.tag != LIMN_A_REF) {
    *out = limn_adtype(real ? LIMN_F32 : dtype_of_number(v.tag));
    return 0;
  }
  if (real) {
    LIMN_TRY(limn_trace_op(t, OP_add, a, 2, &r));
    a[0] = limn_aref(r);
  }
  LIMN_TRY(limn_trace_op(t, OP_dtypeof, a, 1, &r));
  *out = limn_aref(r);
  return 0;
}

/* Without a copy, where an operand or an attribute tells: 1. */
static int dtype_find_near(dtype_env *e, limn_ref r, bool real,
                           limn_arg *out) {
  int at = dtype_source(limn_graph_node(e->g, r));
  dtype_env branch[2];
  limn_arg x[2];
  if (dtype_picked(e, r, x, branch) == 1) {
    LIMN_TRY(dtype_find(e, x[0], real, out));
    return 1;
  }
  if (at < 0 || (at > 0 && real)) return 0;
  x[0] = limn_node_args(e->g, r)[at];
  LIMN_TRY(at ? dtype_copy(e, x[0], out) : dtype_find(e, x[0], real, out));
  return 1;
}

static int dtype_find(dtype_env *e, limn_arg v, bool real, limn_arg *out) {
  limn_arg x;
  int found = v.tag == LIMN_A_REF ? dtype_find_near(e, v.u.ref, real, out) : 0;
  if (found) return found < 0 ? found : 0;
  LIMN_TRY(dtype_copy(e, v, &x));
  return dtype_outer(e, x, real, out);
}

int limn_region_dtype(limn_trace *t, limn_arg v, bool real,
                      const limn_arg *own, uint32_t nown, limn_arg *out) {
  dtype_env e = {.to = t->outer, .g = t->g, .t = t, .own = own, .nown = nown};
  int rc;
  LIMN_TRY(dtype_env_open(&e));
  rc = dtype_find(&e, v, real, out);
  dtype_env_close(&e);
  return rc;
}
