/* What the planner wants to know of a graph before there is any plan: which
 * number inputs decide sizes, and which tensor inputs are read at all, as some
 * only lend their shape or dtype. */
#include "planner.h"

typedef struct {
  limn_planner *n;
  limn_graph *g;
} marks;

static void mark_size(limn_ref r, void *p) {
  marks *m = p;
  const limn_node *nd = limn_graph_node(m->g, r);
  if (nd->kind == LIMN_V_TENSOR || nd->kind == LIMN_V_NONE ||
      nd->kind == LIMN_V_LIST)
    return;
  if (nd->op == OP_number)
    m->n->size_number[limn_node_args(m->g, r)[0].u.i] = 1;
  else
    limn_node_refs(m->g, r, mark_size, m);
}

/* Parameters whose value a kernel takes at run time; all others must be known
 * when the plan is made. */
static bool mark_runtime_param(int op, int i, char type) {
  if (type == 'T') return op != OP_arange;
  return type == 'r' && op == OP_pad && i == 2;
}

/* If that is an input tensor. */
static void mark_read(marks *m, const limn_arg *a) {
  const limn_node *nd =
      a->tag == LIMN_A_REF ? limn_graph_node(m->g, a->u.ref) : NULL;
  if (nd && nd->op == OP_input) m->n->reads[m->g->args[nd->args].u.i] = 1;
}

/* The inputs of region f are the elements of the node's lists, in order. What a
 * loop starts with is read by the loop itself (limn_region_reads). */
static int mark_region(marks *m, const limn_node *nd, limn_graph *f) {
  const limn_arg *a = m->g->args + nd->args;
  limn_planner *n;
  uint32_t input = 0;
  LIMN_TRY(limn_planner_get(f, &n));
  for (int i = 0; i < nd->nargs; i++)
    for (uint32_t k = 0; a[i].tag == LIMN_A_LIST && k < a[i].n; k++, input++) {
      const limn_arg *e = &m->g->args[a[i].u.at + k];
      if (e->tag != LIMN_A_REF || input >= f->nin) continue;
      if (n->size_number[input]) mark_size(e->u.ref, m);
      if (n->reads[input] || (nd->op != OP_cond && i == 0)) mark_read(m, e);
    }
  return 0;
}

/* Operands whose shape alone matters have a type of their own. */
static void mark_reads(marks *m, limn_ref r) {
  char type[LIMN_MAXARGS];
  const limn_node *nd = limn_graph_node(m->g, r);
  int n = limn_op_types(nd->op, type), first;
  bool lists = limn_op_regions(nd->op, &first) == 0;
  for (int i = 0; i < n && i < nd->nargs; i++) {
    const limn_arg *a = limn_node_args(m->g, r) + i;
    if (type[i] != 'T') continue;
    mark_read(m, a);
    for (uint32_t k = 0; lists && a->tag == LIMN_A_LIST && k < a->n; k++)
      mark_read(m, &m->g->args[a->u.at + k]);
  }
}

static int mark_regions(marks *m, const limn_node *nd) {
  int first, count = limn_op_regions(nd->op, &first);
  if (nd->op == OP_custom) count = 1; /* the gradient is no part of a run */
  for (int i = first; i < first + count; i++) {
    limn_graph *f = limn_graph_region(m->g, m->g->args[nd->args + (uint32_t)i]);
    if (f) LIMN_TRY(mark_region(m, nd, f));
  }
  return 0;
}

static void mark_node(marks *m, limn_ref r) {
  char type[LIMN_MAXARGS];
  const limn_node *nd = limn_graph_node(m->g, r);
  int n = limn_op_types(nd->op, type);
  if (nd->kind != LIMN_V_TENSOR) return;
  for (int i = 0; i < n && i < nd->nargs; i++) {
    const limn_arg *a = limn_node_args(m->g, r) + i;
    if (mark_runtime_param(nd->op, i, type[i])) continue;
    if (a->tag == LIMN_A_REF) mark_size(a->u.ref, m);
    for (uint32_t k = 0; a->tag == LIMN_A_LIST && k < a->n; k++) {
      const limn_arg *e = &m->g->args[a->u.at + k];
      if (e->tag == LIMN_A_REF) mark_size(e->u.ref, m);
    }
  }
}

static int mark_all(marks *m) {
  limn_graph *g = m->g;
  for (limn_ref r = 1; r <= g->nnode; r++) {
    mark_node(m, r);
    mark_reads(m, r);
    LIMN_TRY(mark_regions(m, limn_graph_node(g, r)));
  }
  for (uint32_t i = 0; i < g->nout; i++) mark_read(m, &g->out[i]);
  for (uint32_t i = 0; i < g->ncell; i++) mark_read(m, &g->cell[i].write);
  for (uint32_t i = 0; i < g->nguard; i++)
    if (g->guard[i].cond.tag == LIMN_A_REF)
      mark_size(g->guard[i].cond.u.ref, m);
  return 0;
}

int limn_planner_get(limn_graph *g, limn_planner **out) {
  limn_planner *n = g->planner;
  marks m;
  int rc;
  *out = n;
  if (n) return 0;
  n = limn_alloc(g->c, sizeof *n);
  if (!n) return LIMN_EMEM;
  g->planner = n;
  g->planner_free = limn_planner_free;
  n->size_number = limn_alloc(g->c, g->nin + 1);
  n->reads = limn_alloc(g->c, g->nin + 1);
  n->keycap = g->nmode / 64 + 3 + g->nin * (2 * LIMN_MAXDIM + 1);
  n->keybuf = limn_alloc(g->c, n->keycap * sizeof *n->keybuf);
  if (!n->size_number || !n->reads || !n->keybuf) {
    limn_planner_free(g);
    return LIMN_EMEM;
  }
  m.n = n, m.g = g;
  rc = mark_all(&m);
  if (rc < 0) limn_planner_free(g);
  else *out = n;
  return rc;
}

bool limn_region_reads(const limn_graph *g, limn_ref r, uint32_t i) {
  const limn_node *nd = limn_graph_node(g, r);
  int first, count = limn_op_regions(nd->op, &first);
  if (nd->op != OP_cond && i < limn_node_args(g, r)[0].n)
    return true; /* what a loop starts with is its result if it does nothing */
  for (int k = first; k < first + count; k++) {
    const limn_graph *f = limn_graph_region(g, limn_node_args(g, r)[k]);
    /* Without marks, which need memory, it may. */
    if (f && (!f->planner || (i < f->nin && f->planner->reads[i]))) return true;
  }
  return false;
}
