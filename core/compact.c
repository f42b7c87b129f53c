/* Dead nodes dropped, nodes renamed, and one graph copied into another. */
#include <stdio.h>

#include "pass.h"

/* -- Renaming -- */

static void compact_map(limn_arg *a, limn_ref first, const limn_ref *map) {
  if (a->tag == LIMN_A_REF && a->u.ref >= first)
    a->u.ref = map[a->u.ref - first];
}

static void compact_map_ref(limn_ref *r, limn_ref first, const limn_ref *map) {
  if (*r >= first) *r = map[*r - first];
}

/* Everything but the nodes' arguments that refers to nodes. */
static void compact_holders(limn_graph *g, limn_ref first,
                            const limn_ref *map) {
  for (uint32_t i = 0; i < g->nin; i++)
    compact_map_ref(&g->in[i].ref, first, map);
  for (uint32_t i = 0; i < g->nout; i++) compact_map(&g->out[i], first, map);
  for (uint32_t i = 0; i < g->nstatic; i++)
    compact_map(&g->statics[i], first, map);
  for (uint32_t i = 0; i < g->ncell; i++) {
    compact_map_ref(&g->cell[i].ref, first, map);
    compact_map(&g->cell[i].write, first, map);
  }
  for (uint32_t i = 0; i < g->nconst; i++)
    compact_map_ref(&g->konst[i].ref, first, map);
  for (uint32_t i = 0; i < g->nguard; i++)
    compact_map(&g->guard[i].cond, first, map);
  for (uint32_t i = 0; i < g->neffect; i++)
    compact_map_ref(&g->effect[i], first, map);
}

void limn_graph_remap(limn_graph *g, limn_ref first, const limn_ref *map) {
  for (uint32_t i = 0; i < g->nargs; i++) compact_map(&g->args[i], first, map);
  compact_holders(g, first, map);
}

/* -- Dead nodes -- */

typedef struct {
  limn_graph *g;
  limn_ref *map; /* new names; 0: dead, 1: needed, until they are given */
  uint32_t *at;  /* arguments of live nodes in the new pool */
  limn_arg *args;
  uint32_t nargs, cap;
} compact_state;

static void compact_need(limn_ref r, void *user) {
  if (r) ((limn_ref *)user)[r - 1] = 1;
}

static void compact_need_arg(limn_arg a, limn_ref *map) {
  if (a.tag == LIMN_A_REF) compact_need(a.u.ref, map);
}

/* Inputs and captures are part of what the graph promises. A cell whose value
 * on entry nothing uses is not read. */
static void compact_mark(const limn_graph *g, limn_ref *map) {
  for (uint32_t i = 0; i < g->nin; i++) compact_need(g->in[i].ref, map);
  for (uint32_t i = 0; i < g->nconst; i++) compact_need(g->konst[i].ref, map);
  for (uint32_t i = 0; i < g->neffect; i++) compact_need(g->effect[i], map);
  for (uint32_t i = 0; i < g->nout; i++) compact_need_arg(g->out[i], map);
  for (uint32_t i = 0; i < g->nguard; i++)
    compact_need_arg(g->guard[i].cond, map);
  for (uint32_t i = 0; i < g->ncell; i++)
    compact_need_arg(g->cell[i].write, map);
  for (limn_ref r = g->nnode; r > 0; r--)
    if (map[r - 1]) limn_node_refs(g, r, compact_need, map);
}

/* n arguments from `from` of the old pool to `to` of the new one, which has
 * room for them; lists follow at its end. */
static int compact_args(compact_state *s, uint32_t from, uint32_t to,
                        uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    limn_arg a = s->g->args[from + i];
    uint32_t at = s->nargs;
    compact_map(&a, 1, s->map);
    if (a.tag == LIMN_A_LIST) {
      LIMN_TRY(
          limn_grow(s->g->c, &s->args, &s->cap, at + a.n + 1, sizeof *s->args));
      s->nargs += a.n;
      LIMN_TRY(compact_args(s, a.u.at, at, a.n));
      a.u.at = at;
    }
    s->args[to + i] = a;
  }
  return 0;
}

static int compact_pool(compact_state *s) {
  limn_graph *g = s->g;
  for (uint32_t i = 0; i < g->nnode; i++) {
    const limn_node *n = &g->node[i];
    if (!s->map[i]) continue;
    s->at[i] = s->nargs;
    LIMN_TRY(limn_grow(g->c, &s->args, &s->cap, s->nargs + n->nargs + 1u,
                       sizeof *s->args));
    s->nargs += n->nargs;
    LIMN_TRY(compact_args(s, n->args, s->at[i], n->nargs));
  }
  return 0;
}

/* Nothing can fail from here on. */
static void compact_commit(compact_state *s) {
  limn_graph *g = s->g;
  uint32_t n = 0;
  for (uint32_t i = 0; i < g->nnode; i++) {
    if (!s->map[i]) continue;
    g->node[n] = g->node[i];
    g->node[n++].args = s->at[i];
  }
  g->nnode = n;
  limn_free(g->c, g->args, g->args_cap * sizeof *g->args);
  g->args = s->args, g->nargs = s->nargs, g->args_cap = s->cap;
  compact_holders(g, 1, s->map);
}

int limn_graph_compact(limn_graph *g) {
  compact_state s = {g, NULL, NULL, NULL, 0, 0};
  size_t bytes = g->nnode * sizeof(uint32_t);
  limn_ref next = 1;
  int rc = 0;
  if (g->nnode == 0) return 0;
  s.map = limn_alloc(g->c, bytes);
  s.at = limn_alloc(g->c, bytes);
  if (!s.map || !s.at) rc = LIMN_EMEM;
  if (rc < 0) goto bail;
  compact_mark(g, s.map);
  for (uint32_t i = 0; i < g->nnode; i++)
    if (s.map[i]) s.map[i] = next++;
  LIMN_GO(compact_pool(&s));
  compact_commit(&s);
bail:
  if (rc < 0) limn_free(g->c, s.args, s.cap * sizeof *s.args);
  limn_free(g->c, s.map, bytes);
  limn_free(g->c, s.at, bytes);
  return rc;
}

/* -- Inlining -- */

typedef struct {
  limn_graph *to;
  const limn_graph *from;
  const limn_arg *inputs;
  limn_arg *map; /* per node of `from` */
} inline_state;

static int inline_args(inline_state *s, uint32_t from, uint32_t n,
                       limn_arg *out);

/* An argument of `from` in terms of `to`. */
static int inline_arg(inline_state *s, limn_arg a, limn_arg *out) {
  limn_arg small[16], *l = small;
  size_t bytes = (size_t)a.n * sizeof *l;
  int rc;
  *out = a;
  if (a.tag == LIMN_A_REF) *out = s->map[a.u.ref - 1];
  if (a.tag == LIMN_A_STR) {
    out->u.str = limn_graph_str(s->to, limn_graph_text(s->from, a.u.str));
    return a.u.str && !out->u.str ? LIMN_EMEM : 0;
  }
  if (a.tag != LIMN_A_LIST) return 0;
  if (a.n > LIMN_COUNT(small)) l = limn_alloc(s->to->c, bytes);
  if (!l) return LIMN_EMEM;
  LIMN_GO(inline_args(s, a.u.at, a.n, l));
  LIMN_GO(limn_graph_push_args(s->to, l, a.n, &out->u.at));
bail:
  if (l != small) limn_free(s->to->c, l, bytes);
  return rc;
}

static int inline_args(inline_state *s, uint32_t from, uint32_t n,
                       limn_arg *out) {
  for (uint32_t i = 0; i < n; i++)
    LIMN_TRY(inline_arg(s, s->from->args[from + i], &out[i]));
  return 0;
}

static int inline_leaf(limn_graph *to, int op, uint32_t index, limn_ref *ref) {
  limn_arg a = limn_aint(index);
  if (!*ref) *ref = limn_graph_add(to, op, &a, 1, 0, 0);
  return *ref ? 0 : LIMN_EMEM;
}

/* The cell's value at this point of `to`: written already, or on entry. */
static int inline_cell(inline_state *s, int64_t i, limn_arg *out) {
  const limn_graph_cell *f = &s->from->cell[i];
  limn_ref r;
  uint32_t at;
  LIMN_TRY(limn_graph_add_cell(s->to, f->cell,
                               limn_graph_text(s->from, f->name), &at));
  *out = s->to->cell[at].write;
  if (out->tag != LIMN_A_NONE) return 0;
  r = s->to->cell[at].ref;
  LIMN_TRY(inline_leaf(s->to, OP_cell, at, &r));
  s->to->cell[at].ref = r;
  *out = limn_aref(r);
  return 0;
}

static bool inline_const_named(const limn_graph *g, const char *name,
                               const limn_tensor *t) {
  for (uint32_t i = 0; i < g->nconst; i++)
    if (g->konst[i].value != t &&
        !strcmp(limn_graph_text(g, g->konst[i].name), name))
      return true;
  return false;
}

/* Names stay where they can; two tensors never share one. */
static int inline_const(inline_state *s, int64_t i, limn_arg *out) {
  const limn_graph_const *f = &s->from->konst[i];
  const char *name = limn_graph_text(s->from, f->name);
  char fresh[32];
  limn_graph_const *k;
  limn_ref r;
  uint32_t at;
  for (uint32_t n = s->to->nconst + 1;
       inline_const_named(s->to, name, f->value); n++) {
    snprintf(fresh, sizeof fresh, "c%u", n);
    name = fresh;
  }
  LIMN_TRY(limn_graph_add_const(s->to, f->value, name, &at));
  r = s->to->konst[at].ref;
  LIMN_TRY(inline_leaf(s->to, OP_const, at, &r));
  k = &s->to->konst[at];
  k->ref = r;
  if (!k->line)
    k->line = limn_graph_str(s->to, limn_graph_text(s->from, f->line));
  if (f->watch && !k->watch) {
    k->watch = f->watch;
    k->watch->refs++;
  }
  *out = limn_aref(r);
  return 0;
}

static int inline_mode(inline_state *s, int64_t i, limn_arg *a) {
  const limn_graph_mode *f = &s->from->mode[i];
  uint32_t at;
  LIMN_TRY(limn_graph_add_mode(s->to, f->mode,
                               limn_graph_text(s->from, f->name), &at));
  *a = limn_aint(at);
  return 0;
}

static int inline_region(inline_state *s, limn_arg *a) {
  limn_graph *r;
  uint32_t at = 0;
  if (a->tag != LIMN_A_INT || a->u.i < 0 || a->u.i >= s->from->nregion)
    return 0;
  r = s->from->region[a->u.i];
  while (at < s->to->nregion && s->to->region[at] != r) at++;
  if (at == s->to->nregion) LIMN_TRY(limn_graph_add_region(s->to, r, &at));
  *a = limn_aint(at);
  return 0;
}

/* Any other node: the same one in `to`. `draws`: taken before by `to`. */
static int inline_node(inline_state *s, limn_ref r, uint32_t draws) {
  const limn_node *n = limn_graph_node(s->from, r);
  limn_arg a[LIMN_MAXARGS];
  uint32_t line, path;
  limn_ref to;
  int first, regions = limn_op_regions(n->op, &first);
  LIMN_TRY(inline_args(s, n->args, n->nargs, a));
  if (n->op == OP_mode) LIMN_TRY(inline_mode(s, a[0].u.i, &a[0]));
  for (int i = first; i < first + regions; i++)
    LIMN_TRY(inline_region(s, &a[i]));
  if (limn_op_random(n->op)) a[n->nargs - 1].u.i += draws;
  line = limn_graph_str(s->to, limn_graph_text(s->from, n->line));
  path = limn_graph_str(s->to, limn_graph_text(s->from, n->path));
  to = limn_graph_add(s->to, n->op, a, n->nargs, line, path);
  if (!to) return LIMN_EMEM;
  s->map[r - 1] = limn_aref(to);
  return 0;
}

static int inline_nodes(inline_state *s) {
  uint32_t draws = s->to->draws;
  for (limn_ref r = 1; r <= s->from->nnode; r++) {
    int op = limn_graph_node(s->from, r)->op;
    const limn_arg *a = limn_node_args(s->from, r);
    limn_arg *m = &s->map[r - 1];
    if (op == OP_input || op == OP_number)
      *m = s->inputs[a[0].u.i];
    else if (op == OP_cell)
      LIMN_TRY(inline_cell(s, a[0].u.i, m));
    else if (op == OP_const)
      LIMN_TRY(inline_const(s, a[0].u.i, m));
    else if (op == OP_mode && s->from->mode_override >= 0)
      *m = limn_abool(s->from->mode_override != 0);
    else
      LIMN_TRY(inline_node(s, r, draws));
  }
  s->to->draws += s->from->draws;
  return 0;
}

static int inline_guard(inline_state *s, const limn_guard *f) {
  limn_arg cond;
  uint32_t line = limn_graph_str(s->to, limn_graph_text(s->from, f->line));
  LIMN_TRY(inline_arg(s, f->cond, &cond));
  if (limn_arg_true(cond)) return 0;
  for (uint32_t i = 0; i < s->to->nguard; i++)
    if (cond.tag == LIMN_A_REF && s->to->guard[i].cond.tag == LIMN_A_REF &&
        s->to->guard[i].cond.u.ref == cond.u.ref)
      return 0;
  return limn_graph_add_guard(s->to, cond, line);
}

/* What happens when `from` ends: results, writes, guards, effects. */
static int inline_end(inline_state *s, limn_arg *out) {
  const limn_graph *f = s->from;
  for (uint32_t i = 0; i < f->nout; i++)
    LIMN_TRY(inline_arg(s, f->out[i], &out[i]));
  for (uint32_t i = 0; i < f->nguard; i++)
    LIMN_TRY(inline_guard(s, &f->guard[i]));
  for (uint32_t i = 0; i < f->neffect; i++)
    LIMN_TRY(limn_graph_add_effect(s->to, s->map[f->effect[i] - 1].u.ref));
  for (uint32_t i = 0; i < f->ncell; i++) {
    uint32_t at;
    limn_arg v;
    if (f->cell[i].write.tag == LIMN_A_NONE) continue;
    LIMN_TRY(limn_graph_add_cell(s->to, f->cell[i].cell,
                                 limn_graph_text(f, f->cell[i].name), &at));
    LIMN_TRY(inline_arg(s, f->cell[i].write, &v));
    s->to->cell[at].write = v;
    s->to->cell[at].line =
        limn_graph_str(s->to, limn_graph_text(f, f->cell[i].line));
  }
  return 0;
}

/* Cells: what `to` has written so far is what `from` reads. */
int limn_graph_inline(limn_graph *to, const limn_graph *from,
                      const limn_arg *inputs, limn_arg *out) {
  inline_state s = {to, from, inputs, NULL};
  size_t bytes = (from->nnode + 1u) * sizeof *s.map;
  int rc;
  s.map = limn_alloc(to->c, bytes);
  if (!s.map) return LIMN_EMEM;
  LIMN_GO(inline_nodes(&s));
  LIMN_GO(inline_end(&s, out));
bail:
  limn_free(to->c, s.map, bytes);
  return rc;
}
