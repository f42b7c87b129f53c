/* Expansion: composite rows become primitive ones where a device has no kernel
 * for them; custom functions, and branches that the plan has decided on, are
 * inlined. The user's graph is not touched. */
#include "pass.h"
#include "planner.h"

typedef struct {
  limn_graph *from, *to;
  limn_arg *map;     /* per node of `from` */
  limn_arg **picks;  /* per inlined node: its results */
  uint32_t *npicks;
  const limn_infer *known; /* what decides on branches, or NULL */
  limn_device *dev;
  bool again; /* something that was put in must itself be expanded */
} rewriter;

/* An argument of `from` in terms of `to`. */
static int rewrite_arg(rewriter *w, limn_arg a, limn_arg *out) {
  limn_arg small[32], *l = small;
  int rc = 0;
  *out = a;
  if (a.tag == LIMN_A_REF) *out = w->map[a.u.ref - 1];
  if (a.tag != LIMN_A_LIST) return 0;
  if (a.n > LIMN_COUNT(small)) {
    l = limn_alloc(w->to->c, a.n * sizeof *l);
    if (!l) return LIMN_EMEM;
  }
  for (uint32_t i = 0; i < a.n; i++)
    LIMN_GO(rewrite_arg(w, w->from->args[a.u.at + i], &l[i]));
  rc = limn_graph_push_args(w->to, l, a.n, &out->u.at);
bail:
  if (l != small) limn_free(w->to->c, l, a.n * sizeof *l);
  return rc;
}

/* The dtype decides whether there is a kernel; halves compute in float32. */
static bool rewrite_expands(rewriter *w, const limn_op_row *row, int op) {
  if (row->row != LIMN_ROW_S || !row->expand) return false;
  return !w->dev->ops->supports(w->dev, op, LIMN_F32);
}

static bool rewrite_is_composite(rewriter *w, int op) {
  return op == OP_custom || rewrite_expands(w, limn_op_get(op), op);
}

/* The draws of what is inlined next are those of node r's region, from *first
 * on. A gradient that runs a region again has the draw of the first run, and
 * so the same numbers. */
static int rewrite_draws(rewriter *w, limn_ref r, const limn_graph *region,
                         uint32_t *first) {
  limn_graph *t = w->to;
  const limn_node *n = limn_graph_node(w->from, r);
  limn_arg draw = limn_node_args(w->from, r)[n->nargs - 1];
  *first = t->draws;
  if (region->draws == 0) return 0;
  for (uint32_t i = 0; i < t->ninlined; i++) {
    if (t->inlined[i].parent != draw.u.i || t->inlined[i].n != region->draws)
      continue;
    *first = t->inlined[i].first;
    return 0;
  }
  LIMN_TRY(limn_grow(t->c, &t->inlined, &t->inlined_cap, t->ninlined + 1,
                     sizeof *t->inlined));
  t->inlined[t->ninlined++] =
      (limn_draws){t->draws, region->draws, (uint32_t)draw.u.i};
  return 0;
}

/* Region number i in place of node r, whose operands are list `xs`. */
static int rewrite_inline(rewriter *w, limn_ref r, limn_arg i, limn_arg xs) {
  const limn_graph *region = limn_graph_region(w->from, i);
  limn_context *c = w->to->c;
  size_t n = region->nout + 1u, nx = xs.n + 1u;
  limn_arg *out = limn_alloc(c, n * sizeof *out);
  limn_arg *x = limn_alloc(c, nx * sizeof *x); /* the pool moves as it grows */
  uint32_t draws = w->to->draws, first = 0;
  int rc = out && x ? rewrite_draws(w, r, region, &first) : LIMN_EMEM;
  if (rc == 0 && xs.n) memcpy(x, w->to->args + xs.u.at, xs.n * sizeof *x);
  w->to->draws = first;
  if (rc == 0) rc = limn_graph_inline(w->to, region, x, out);
  w->to->draws = LIMN_MAX(w->to->draws, draws);
  if (rc == 0) w->map[r - 1] = n > 1 ? out[0] : limn_none();
  w->picks[r - 1] = out;
  w->npicks[r - 1] = (uint32_t)n;
  limn_free(c, x, nx * sizeof *x);
  return rc;
}

/* The branch that node r leaves, if the plan knows; else NONE. */
static limn_arg rewrite_branch(const rewriter *w, limn_ref r) {
  const limn_arg *a = limn_node_args(w->from, r);
  const limn_type *t;
  if (limn_graph_node(w->from, r)->op != OP_cond) return limn_none();
  if (a[0].tag == LIMN_A_BOOL) return a[a[0].u.i ? 2 : 3];
  if (!w->known || a[0].tag != LIMN_A_REF) return limn_none();
  t = &w->known->t[a[0].u.ref - 1];
  if (t->kind != LIMN_V_BOOL || !t->known) return limn_none();
  return a[t->i ? 2 : 3];
}

/* The results of the inlined node that a pick is of, or NULL. */
static limn_arg *rewrite_picks(const rewriter *w, const limn_node *pick) {
  return w->picks[w->from->args[pick->args].u.ref - 1];
}

static int rewrite_node(rewriter *w, limn_ref r) {
  const limn_node *n = limn_graph_node(w->from, r);
  const limn_op_row *row = limn_op_get(n->op);
  limn_builder b = {w->to->c, w->to, n->line, n->path, 0};
  limn_arg a[LIMN_MAXARGS];
  uint32_t before = w->to->nnode;
  limn_arg *picks, branch = rewrite_branch(w, r);
  limn_node *made;
  int nargs = n->nargs;
  for (int i = 0; i < nargs; i++)
    LIMN_TRY(rewrite_arg(w, w->from->args[n->args + (uint32_t)i], &a[i]));
  if (n->op == OP_custom) {
    LIMN_TRY(rewrite_inline(w, r, a[1], a[0]));
  } else if (branch.tag != LIMN_A_NONE) {
    LIMN_TRY(rewrite_inline(w, r, branch, a[1]));
  } else if (n->op == OP_pick && (picks = rewrite_picks(w, n))) {
    w->map[r - 1] = picks[a[1].u.i - 1];
    return 0;
  } else if (rewrite_expands(w, row, n->op)) {
    w->map[r - 1] = limn_expand(&b, n->op, a, nargs);
    LIMN_TRY(b.rc);
  } else {
    w->map[r - 1] = limn_build(&b, n->op, a, nargs);
    LIMN_TRY(b.rc);
    made = limn_graph_node(w->to, w->map[r - 1].u.ref);
    made->rank = n->rank, made->kind = n->kind;
    made->flags = n->flags;
    return 0;
  }
  for (limn_ref k = before + 1; k <= w->to->nnode; k++)
    if (rewrite_is_composite(w, limn_graph_node(w->to, k)->op)) w->again = true;
  return 0;
}

/* Regions that are inlined add guards, effects, consts and cells of their own,
 * so those of the copy start without references to nodes. */
static void rewrite_behead(limn_graph *t) {
  t->nnode = t->nguard = t->neffect = 0;
  for (uint32_t i = 0; i < t->nconst; i++) t->konst[i].ref = 0;
  for (uint32_t i = 0; i < t->ncell; i++) {
    t->cell[i].ref = 0;
    t->cell[i].write = limn_none();
  }
}

static limn_arg rewrite_mapped(const rewriter *w, limn_arg a) {
  return a.tag == LIMN_A_REF ? w->map[a.u.ref - 1] : a;
}

static limn_ref rewrite_ref(const rewriter *w, limn_ref r) {
  return r && w->map[r - 1].tag == LIMN_A_REF ? w->map[r - 1].u.ref : 0;
}

/* Everything of the graph that held references means the new nodes now. */
static int rewrite_heads(rewriter *w) {
  const limn_graph *f = w->from;
  limn_graph *t = w->to;
  for (uint32_t i = 0; i < f->nin; i++)
    t->in[i].ref = rewrite_ref(w, f->in[i].ref);
  for (uint32_t i = 0; i < f->nconst; i++)
    t->konst[i].ref = rewrite_ref(w, f->konst[i].ref);
  for (uint32_t i = 0; i < f->ncell; i++) {
    t->cell[i].ref = rewrite_ref(w, f->cell[i].ref);
    t->cell[i].write = rewrite_mapped(w, f->cell[i].write);
  }
  for (uint32_t i = 0; i < f->nout; i++)
    t->out[i] = rewrite_mapped(w, f->out[i]);
  for (uint32_t i = 0; i < f->neffect; i++)
    if (!w->picks[f->effect[i] - 1]) /* else it has brought its own */
      LIMN_TRY(limn_graph_add_effect(t, rewrite_ref(w, f->effect[i])));
  return 0;
}

static int rewrite_pass(limn_graph *g, limn_device *dev,
                        const limn_infer *known, limn_graph **out,
                        bool *again) {
  limn_context *c = g->c;
  rewriter w = {g, NULL, NULL, NULL, NULL, known, dev, false};
  size_t n = g->nnode + 1u;
  int rc = 0;
  LIMN_TRY(limn_graph_clone(g, &w.to));
  rewrite_behead(w.to);
  w.map = limn_alloc(c, n * sizeof *w.map);
  w.picks = limn_alloc(c, n * sizeof *w.picks);
  w.npicks = limn_alloc(c, n * sizeof *w.npicks);
  if (!w.map || !w.picks || !w.npicks) LIMN_GO(LIMN_EMEM);
  for (limn_ref r = 1; r <= g->nnode; r++) LIMN_GO(rewrite_node(&w, r));
  LIMN_GO(rewrite_heads(&w));
bail:
  for (limn_ref r = 1; w.picks && w.npicks && r <= g->nnode; r++)
    limn_free(c, w.picks[r - 1], w.npicks[r - 1] * sizeof(limn_arg));
  limn_free(c, w.npicks, n * sizeof *w.npicks);
  limn_free(c, w.picks, n * sizeof *w.picks);
  limn_free(c, w.map, n * sizeof *w.map);
  if (rc < 0) limn_graph_release(w.to);
  *out = rc < 0 ? NULL : w.to;
  *again = w.again;
  return rc;
}

/* What a region needs no more may have been all that another was there for. */
static int rewrite_simplify(limn_graph *g) {
  bool more = true;
  LIMN_TRY(limn_simplify(g));
  while (more) LIMN_TRY(limn_prune(g, &more));
  return 0;
}

/* Expansions are a few levels deep; the bound is against a faulty table. */
static int rewrite_all(limn_graph *g, limn_device *dev,
                       const limn_infer *known, limn_graph **out) {
  limn_graph *now = NULL, *next;
  bool again = true;
  int rc = 0;
  *out = NULL;
  for (int depth = 0; again && depth < 64; depth++) {
    rc = rewrite_pass(now ? now : g, dev, known, &next, &again);
    known = NULL; /* it says nothing of the new nodes */
    limn_graph_release(now);
    if (rc < 0) return rc;
    now = next;
  }
  now->nguard = 0; /* checked on the graph as recorded, through its regions */
  if (g->c->flags.passes & LIMN_PASS_SIMPLIFY) rc = rewrite_simplify(now);
  if (rc < 0) {
    limn_graph_release(now);
    return rc;
  }
  *out = now;
  return 0;
}

int limn_rewrite(limn_graph *g, limn_device *dev, limn_graph **out) {
  return rewrite_all(g, dev, NULL, out);
}

int limn_rewrite_known(limn_infer *I, limn_device *dev, limn_graph **out) {
  rewriter w = {I->g, NULL, NULL, NULL, NULL, I, dev, false};
  *out = NULL;
  for (limn_ref r = 1; r <= I->g->nnode; r++)
    if (rewrite_branch(&w, r).tag != LIMN_A_NONE)
      return rewrite_all(I->g, dev, I, out);
  return 0;
}
