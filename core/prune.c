/* Dead code in regions: results that nothing picks, what only they need, and
 * operands that no region uses. A loop carries a value as long as anything
 * that lives needs it. */
#include "pass.h"

typedef struct {
  limn_graph *g;
  limn_ref r;
  uint32_t nin, nout, ncarry;
  limn_graph *f[2]; /* regions whose results are the node's, or a loop's test */
  bool test[2];
  int n;
  uint8_t *in, *out; /* which live */
  bool changed;
} prune_node;

/* -- What lives -- */

static void prune_mark(limn_ref r, void *map) { ((uint8_t *)map)[r - 1] = 1; }

static void prune_mark_arg(limn_arg a, uint8_t *map) {
  if (a.tag == LIMN_A_REF) map[a.u.ref - 1] = 1;
}

/* Notes in k->in what region i needs for the results that live. */
static int prune_region(prune_node *k, int i) {
  const limn_graph *f = k->f[i];
  uint8_t *map = limn_alloc(f->c, f->nnode + 1u);
  if (!map) return LIMN_EMEM;
  for (uint32_t j = 0; j < f->nout; j++)
    if (k->test[i] || k->out[j]) prune_mark_arg(f->out[j], map);
  for (uint32_t j = 0; j < f->neffect; j++) map[f->effect[j] - 1] = 1;
  for (uint32_t j = 0; j < f->nguard; j++)
    prune_mark_arg(f->guard[j].cond, map);
  for (limn_ref r = f->nnode; r > 0; r--)
    if (map[r - 1]) limn_node_refs(f, r, prune_mark, map);
  for (uint32_t j = 0; j < f->nin; j++) k->in[j] |= map[f->in[j].ref - 1];
  limn_free(f->c, map, f->nnode + 1u);
  return 0;
}

/* What is carried to the next turn is needed if it is read there. */
static int prune_live(prune_node *k) {
  bool more = true;
  while (more) {
    more = false;
    for (int i = 0; i < k->n; i++) LIMN_TRY(prune_region(k, i));
    for (uint32_t j = 0; j < k->ncarry; j++) {
      if (!k->in[j] || k->out[j]) continue;
      k->out[j] = 1;
      more = true;
    }
  }
  for (uint32_t j = 0; j < k->ncarry; j++) k->in[j] |= k->out[j];
  return 0;
}

/* The number of steps comes with the rows: one of them stays. */
static void prune_keep_row(prune_node *k) {
  const limn_arg *a = limn_node_args(k->g, k->r);
  if (limn_graph_node(k->g, k->r)->op != OP_scan) return;
  for (uint32_t j = 0; j < a[1].n; j++)
    if (k->in[k->ncarry + j]) return;
  k->in[k->ncarry] = 1;
}

static bool prune_all(const uint8_t *live, uint32_t n) {
  for (uint32_t j = 0; j < n; j++)
    if (!live[j]) return false;
  return true;
}

/* -- What goes -- */

static int prune_copy(prune_node *k, int i, uint32_t *index) {
  limn_context *c = k->g->c;
  size_t bytes = (k->nin + 1u) * sizeof(int32_t);
  int32_t *to = limn_alloc(c, bytes);
  limn_graph *f = NULL;
  uint32_t n = 0;
  int rc = to ? limn_graph_clone(k->f[i], &f) : LIMN_EMEM;
  if (rc < 0) goto bail;
  f->nin_tree = f->nstatic = f->nout_tree = 0; /* plain lists, now shorter */
  for (uint32_t j = 0; j < k->f[i]->nout; j++)
    if (k->test[i] || k->out[j]) f->out[n++] = f->out[j];
  f->nout = n;
  n = 0;
  for (uint32_t j = 0; j < k->nin; j++) to[j] = k->in[j] ? (int32_t)n++ : -1;
  LIMN_GO(limn_graph_compact(f));
  LIMN_GO(limn_graph_arrange(f, to, n));
  LIMN_GO(limn_graph_add_region(k->g, f, index));
bail:
  limn_graph_release(f);
  limn_free(c, to, bytes);
  return rc;
}

/* The node's lists without the operands that are dead. */
static int prune_operands(prune_node *k) {
  limn_graph *g = k->g;
  uint32_t at = 0, nargs = limn_graph_node(g, k->r)->nargs;
  for (uint32_t i = 0; i < nargs; i++) {
    limn_arg list = limn_node_args(g, k->r)[i], now = list;
    if (list.tag != LIMN_A_LIST) continue;
    now.u.at = g->nargs;
    now.n = 0;
    for (uint32_t j = 0; j < list.n; j++) {
      uint32_t to;
      if (!k->in[at++]) continue;
      LIMN_TRY(limn_graph_push_args(g, &g->args[list.u.at + j], 1, &to));
      now.n++;
    }
    limn_node_args(g, k->r)[i] = now;
  }
  return 0;
}

static void prune_picks(prune_node *k) {
  limn_graph *g = k->g;
  for (limn_ref r = k->r + 1; r <= g->nnode; r++) {
    limn_arg *a = limn_node_args(g, r);
    int64_t gone = 0;
    if (limn_graph_node(g, r)->op != OP_pick || a[0].u.ref != k->r) continue;
    for (int64_t j = 0; j < a[1].u.i; j++) gone += !k->out[j];
    a[1].u.i -= gone;
  }
}

static int prune_apply(prune_node *k, int first) {
  uint32_t index, n = 0;
  for (int i = 0; i < k->n; i++) {
    LIMN_TRY(prune_copy(k, i, &index));
    limn_node_args(k->g, k->r)[first + i] = limn_aint(index);
  }
  LIMN_TRY(prune_operands(k));
  prune_picks(k);
  for (uint32_t j = 0; j < k->nout; j++) n += k->out[j];
  limn_graph_node(k->g, k->r)->nresult = (uint16_t)n;
  k->changed = true;
  return 0;
}

/* -- A node -- */

static int prune_visit(prune_node *k, int first) {
  const limn_graph *g = k->g;
  for (limn_ref r = k->r + 1; r <= g->nnode; r++) {
    const limn_arg *a = limn_node_args(g, r);
    if (limn_graph_node(g, r)->op == OP_pick && a[0].u.ref == k->r)
      k->out[a[1].u.i - 1] = 1;
  }
  LIMN_TRY(prune_live(k));
  prune_keep_row(k);
  if (prune_all(k->in, k->nin) && prune_all(k->out, k->nout)) return 0;
  return prune_apply(k, first);
}

static int prune_start(limn_graph *g, limn_ref r, bool *changed) {
  const limn_node *nd = limn_graph_node(g, r);
  const limn_arg *a = limn_node_args(g, r);
  prune_node k = {g, r, 0, nd->nresult, 0, {0}, {0}, 0, NULL, NULL, false};
  int first, rc;
  k.n = limn_op_regions(nd->op, &first);
  if (nd->op != OP_cond) k.ncarry = a[0].n;
  k.test[0] = nd->op == OP_while;
  for (int i = 0; i < k.n; i++) k.f[i] = limn_graph_region(g, a[first + i]);
  k.nin = k.f[0]->nin;
  k.in = limn_alloc(g->c, k.nin + 1u);
  k.out = limn_alloc(g->c, k.nout + 1u);
  rc = k.in && k.out ? prune_visit(&k, first) : LIMN_EMEM;
  limn_free(g->c, k.in, k.nin + 1u);
  limn_free(g->c, k.out, k.nout + 1u);
  *changed |= k.changed;
  return rc;
}

int limn_prune(limn_graph *g, bool *changed) {
  *changed = false;
  for (limn_ref r = g->nnode; r > 0; r--)
    if (limn_graph_node(g, r)->kind == LIMN_V_LIST)
      LIMN_TRY(prune_start(g, r, changed));
  return *changed ? limn_graph_compact(g) : 0;
}
