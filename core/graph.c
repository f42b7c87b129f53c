/* The graph arena: nodes, arguments, strings, signature and ownership. */
#include "graph.h"

#include <stdio.h>

/* -- Arrays -- */

/* Make room for one more item in a (pointer, count, cap) triple. */
#define GROW(g, p, n, cap) \
  limn_grow((g)->c, &(p), &(cap), (n) + 1, sizeof(*(p)))

uint32_t limn_graph_str(limn_graph *g, const char *s) {
  size_t n = strlen(s);
  uintptr_t at;
  if (n == 0) return 0;
  at = (uintptr_t)limn_map_get(&g->strings, s, n);
  if (at) return (uint32_t)at;
  if (g->ntext + n + 2 > UINT32_MAX / 2) return 0;
  if (limn_grow(g->c, &g->text, &g->text_cap, g->ntext + (uint32_t)n + 2, 1))
    return 0;
  if (g->ntext == 0) g->text[g->ntext++] = 0; /* offset 0 is "" */
  at = g->ntext;
  if (limn_map_put(g->c, &g->strings, s, n, (void *)at) < 0) return 0;
  memcpy(g->text + at, s, n + 1);
  g->ntext += (uint32_t)n + 1;
  return (uint32_t)at;
}

int limn_graph_str_arg(limn_graph *g, const char *s, limn_arg *out) {
  *out = (limn_arg){0};
  out->tag = LIMN_A_STR;
  out->u.str = limn_graph_str(g, s);
  return *s && !out->u.str ? LIMN_EMEM : 0;
}

int limn_graph_push_args(limn_graph *g, const limn_arg *a, uint32_t n,
                         uint32_t *at) {
  /* `a` may point into the pool, which growing moves. */
  bool inside = g->args && a >= g->args && a < g->args + g->nargs;
  size_t from = inside ? (size_t)(a - g->args) : 0;
  LIMN_TRY(limn_grow(g->c, &g->args, &g->args_cap, g->nargs + n + 1,
                     sizeof(limn_arg)));
  if (inside) a = g->args + from;
  *at = g->nargs;
  if (n) memcpy(g->args + g->nargs, a, n * sizeof *a);
  g->nargs += n;
  return 0;
}

int limn_tree_push(limn_context *c, limn_tree **t, uint32_t *n, uint32_t *cap,
                   int tag, uint32_t children, uint32_t key) {
  LIMN_TRY(limn_grow(c, t, cap, *n + 1, sizeof(limn_tree)));
  (*t)[(*n)++] = (limn_tree){(uint8_t)tag, children, key};
  return 0;
}

/* -- Life -- */

int limn_graph_new(limn_context *c, const char *name, limn_graph **out) {
  limn_graph *g = limn_alloc(c, sizeof *g);
  *out = NULL;
  if (!g) return LIMN_EMEM;
  g->refs = 1;
  g->c = c;
  g->mode_override = -1;
  g->name = limn_strdup(c, name ? name : "");
  if (!g->name) {
    limn_free(c, g, sizeof *g);
    return LIMN_EMEM;
  }
  limn_context_retain(c);
  *out = g;
  return 0;
}

void limn_graph_retain(limn_graph *g) { g->refs++; }

void limn_mode_release(limn_mode *m, limn_context *c) {
  if (m && --m->refs == 0) limn_free(c, m, sizeof *m);
}

void limn_watch_release(limn_watch *w, limn_context *c) {
  if (w && --w->refs == 0) limn_free(c, w, sizeof *w);
}

#define FREE(c, p, cap) limn_free(c, p, (size_t)(cap) * sizeof(*(p)))

static void graph_free_holdings(limn_graph *g) {
  limn_context *c = g->c;
  for (uint32_t i = 0; i < g->ncell; i++) limn_cell_release(g->cell[i].cell);
  for (uint32_t i = 0; i < g->nconst; i++) {
    limn_tensor_release(g->konst[i].value);
    limn_watch_release(g->konst[i].watch, c);
  }
  for (uint32_t i = 0; i < g->nmode; i++) limn_mode_release(g->mode[i].mode, c);
  for (uint32_t i = 0; i < g->nregion; i++) limn_graph_release(g->region[i]);
}

void limn_graph_release(limn_graph *g) {
  limn_context *c;
  if (!g || --g->refs > 0) return;
  c = g->c;
  if (g->planner) g->planner_free(g);
  graph_free_holdings(g);
  FREE(c, g->node, g->node_cap);
  FREE(c, g->args, g->args_cap);
  FREE(c, g->text, g->text_cap);
  FREE(c, g->in, g->in_cap);
  FREE(c, g->in_tree, g->in_tree_cap);
  FREE(c, g->out, g->out_cap);
  FREE(c, g->out_tree, g->out_tree_cap);
  FREE(c, g->statics, g->static_cap);
  FREE(c, g->cell, g->cell_cap);
  FREE(c, g->konst, g->const_cap);
  FREE(c, g->mode, g->mode_cap);
  FREE(c, g->guard, g->guard_cap);
  FREE(c, g->effect, g->effect_cap);
  FREE(c, g->region, g->region_cap);
  FREE(c, g->inlined, g->inlined_cap);
  limn_map_free(c, &g->strings);
  limn_free(c, g->name, strlen(g->name) + 1);
  limn_free(c, g, sizeof *g);
  limn_context_release(c);
}

/* -- Copy -- */

static int graph_dup(limn_context *c, void *to, uint32_t *cap, uint32_t *n,
                     const void *from, uint32_t count, size_t elem) {
  void **p = to;
  *n = 0, *cap = 0, *p = NULL;
  if (count == 0) return 0;
  LIMN_TRY(limn_grow(c, p, cap, count, elem));
  memcpy(*p, from, count * elem);
  *n = count;
  return 0;
}
#define DUP(field, count, cap)                                             \
  LIMN_GO(graph_dup(f->c, &g->field, &g->cap, &g->count, f->field, f->count, \
                    sizeof(*f->field)))


/* The text pool is copied with its offsets, and its map rebuilt. */
static int graph_dup_text(limn_graph *g, const limn_graph *f) {
  int rc = 0;
  DUP(text, ntext, text_cap);
  for (uint32_t i = 0; i < f->strings.cap; i++) {
    const limn_map_entry *e = &f->strings.e[i];
    if (e->value)
      LIMN_GO(limn_map_put(g->c, &g->strings, e->key, e->klen, e->value));
  }
bail:
  return rc;
}

int limn_graph_clone(const limn_graph *f, limn_graph **out) {
  limn_graph *g;
  int rc = 0;
  LIMN_TRY(limn_graph_new(f->c, f->name, &g));
  LIMN_GO(graph_dup_text(g, f));
  DUP(node, nnode, node_cap);
  DUP(args, nargs, args_cap);
  DUP(in, nin, in_cap);
  DUP(in_tree, nin_tree, in_tree_cap);
  DUP(out, nout, out_cap);
  DUP(out_tree, nout_tree, out_tree_cap);
  DUP(statics, nstatic, static_cap);
  DUP(guard, nguard, guard_cap);
  DUP(effect, neffect, effect_cap);
  DUP(cell, ncell, cell_cap);
  for (uint32_t i = 0; i < g->ncell; i++) limn_cell_retain(g->cell[i].cell);
  DUP(konst, nconst, const_cap);
  for (uint32_t i = 0; i < g->nconst; i++) {
    limn_tensor_retain(g->konst[i].value);
    if (g->konst[i].watch) g->konst[i].watch->refs++;
  }
  DUP(mode, nmode, mode_cap);
  for (uint32_t i = 0; i < g->nmode; i++) g->mode[i].mode->refs++;
  DUP(inlined, ninlined, inlined_cap);
  DUP(region, nregion, region_cap);
  for (uint32_t i = 0; i < g->nregion; i++) limn_graph_retain(g->region[i]);
  g->draws = f->draws;
  g->mode_override = f->mode_override;
  *out = g;
  return 0;
bail:
  limn_graph_release(g);
  *out = NULL;
  return rc;
}

/* -- Nodes -- */

limn_graph *limn_graph_region(const limn_graph *g, limn_arg a) {
  bool ok = a.tag == LIMN_A_INT && a.u.i >= 0 && a.u.i < g->nregion;
  return ok ? g->region[a.u.i] : NULL;
}

static uint16_t graph_results(const limn_graph *g, int op, const limn_arg *a,
                              int nargs) {
  int body = limn_op_body(op);
  const limn_graph *f =
      body >= 0 && body < nargs ? limn_graph_region(g, a[body]) : NULL;
  return f ? (uint16_t)LIMN_MIN(f->nout, (uint32_t)UINT16_MAX) : 1;
}

bool limn_node_effect(const limn_graph *g, limn_ref r) {
  const limn_node *n = limn_graph_node(g, r);
  int first, count = limn_op_regions(n->op, &first);
  if (n->op == OP_print) return true;
  for (int i = first; i < first + count; i++) {
    const limn_graph *f = limn_graph_region(g, limn_node_args(g, r)[i]);
    if (f && f->neffect && n->op != OP_custom) return true;
  }
  return false;
}

limn_ref limn_graph_add(limn_graph *g, int op, const limn_arg *a, int nargs,
                        uint32_t line, uint32_t path) {
  limn_node n = {0};
  if (nargs > LIMN_MAXARGS) return 0;
  if (GROW(g, g->node, g->nnode, g->node_cap) < 0) return 0;
  if (limn_graph_push_args(g, a, (uint32_t)nargs, &n.args) < 0) return 0;
  n.op = (uint16_t)op;
  n.nargs = (uint8_t)nargs;
  n.nresult = graph_results(g, op, a, nargs);
  n.line = line;
  n.path = path;
  a = g->args + n.args;
  n.kind = (uint8_t)limn_op_kind(g, op, a, nargs);
  n.rank = (int8_t)limn_op_rank(g, op, a, nargs);
  g->node[g->nnode++] = n;
  return g->nnode;
}

int limn_graph_add_input(limn_graph *g, const char *name, int rank,
                         limn_ref *out) {
  limn_graph_input in = {0};
  limn_arg index = limn_aint(g->nin);
  LIMN_TRY(GROW(g, g->in, g->nin, g->in_cap));
  in.name = limn_graph_str(g, name);
  in.number = rank < 0;
  in.ref = limn_graph_add(g, in.number ? OP_number : OP_input, &index, 1, 0, 0);
  if (!in.name || !in.ref) return LIMN_EMEM;
  limn_graph_node(g, in.ref)->rank = (int8_t)(in.number ? 0 : rank);
  g->in[g->nin++] = in;
  *out = in.ref;
  return 0;
}

int limn_graph_add_cell(limn_graph *g, limn_cell *cell, const char *name,
                        uint32_t *index) {
  limn_graph_cell gc = {0};
  for (uint32_t i = 0; i < g->ncell; i++)
    if (g->cell[i].cell == cell) {
      *index = i;
      return 0;
    }
  LIMN_TRY(GROW(g, g->cell, g->ncell, g->cell_cap));
  gc.cell = cell;
  gc.name = name ? limn_graph_str(g, name) : 0;
  if (name && *name && !gc.name) return LIMN_EMEM;
  limn_cell_retain(cell);
  *index = g->ncell;
  g->cell[g->ncell++] = gc;
  return 0;
}

int limn_graph_add_const(limn_graph *g, limn_tensor *t, const char *name,
                         uint32_t *index) {
  limn_graph_const k = {0};
  for (uint32_t i = 0; i < g->nconst; i++)
    if (g->konst[i].value == t) {
      *index = i;
      return 0;
    }
  LIMN_TRY(GROW(g, g->konst, g->nconst, g->const_cap));
  k.value = t;
  k.name = limn_graph_str(g, name);
  if (!k.name) return LIMN_EMEM;
  limn_tensor_retain(t);
  *index = g->nconst;
  g->konst[g->nconst++] = k;
  return 0;
}

int limn_graph_add_mode(limn_graph *g, limn_mode *m, const char *name,
                        uint32_t *index) {
  for (uint32_t i = 0; i < g->nmode; i++)
    if (g->mode[i].mode == m) {
      *index = i;
      return 0;
    }
  LIMN_TRY(GROW(g, g->mode, g->nmode, g->mode_cap));
  g->mode[g->nmode].name = limn_graph_str(g, name);
  g->mode[g->nmode].mode = m;
  m->refs++;
  *index = g->nmode++;
  return 0;
}

int limn_graph_add_guard(limn_graph *g, limn_arg cond, uint32_t line) {
  LIMN_TRY(GROW(g, g->guard, g->nguard, g->guard_cap));
  g->guard[g->nguard++] = (limn_guard){cond, line};
  return 0;
}

int limn_graph_add_out(limn_graph *g, limn_arg a) {
  LIMN_TRY(GROW(g, g->out, g->nout, g->out_cap));
  g->out[g->nout++] = a;
  return 0;
}

int limn_graph_add_effect(limn_graph *g, limn_ref r) {
  LIMN_TRY(GROW(g, g->effect, g->neffect, g->effect_cap));
  g->effect[g->neffect++] = r;
  return 0;
}

int limn_graph_add_region(limn_graph *g, limn_graph *r, uint32_t *index) {
  LIMN_TRY(GROW(g, g->region, g->nregion, g->region_cap));
  limn_graph_retain(r);
  *index = g->nregion;
  g->region[g->nregion++] = r;
  return 0;
}

int limn_graph_arrange(limn_graph *g, const int32_t *to, uint32_t n) {
  size_t bytes = (size_t)g->nin * sizeof *g->in;
  limn_graph_input *old = limn_alloc(g->c, bytes + 1);
  uint32_t nin = g->nin;
  if (!old) return LIMN_EMEM;
  if (nin) memcpy(old, g->in, bytes);
  for (uint32_t i = 0; i < nin; i++) {
    if (to[i] < 0) continue;
    g->in[to[i]] = old[i];
    limn_node_args(g, old[i].ref)[0] = limn_aint(to[i]);
  }
  g->nin = n;
  limn_free(g->c, old, bytes + 1);
  return n == nin ? 0 : limn_graph_compact(g);
}

static void graph_arg_refs(const limn_graph *g, const limn_arg *a,
                           void (*fn)(limn_ref, void *), void *user) {
  if (a->tag == LIMN_A_REF) fn(a->u.ref, user);
  if (a->tag == LIMN_A_LIST)
    for (uint32_t i = 0; i < a->n; i++)
      graph_arg_refs(g, g->args + a->u.at + i, fn, user);
}

void limn_node_refs(const limn_graph *g, limn_ref r,
                    void (*fn)(limn_ref ref, void *user), void *user) {
  const limn_node *n = limn_graph_node(g, r);
  for (int i = 0; i < n->nargs; i++)
    graph_arg_refs(g, g->args + n->args + i, fn, user);
}

/* -- Names for messages -- */

/* A tensor's number as the printed form has it, where plan values are printed
 * inline. */
static uint32_t graph_number(const limn_graph *g, limn_ref r) {
  uint32_t n = 0;
  for (limn_ref k = 1; k <= r; k++) {
    const limn_node *nd = limn_graph_node(g, k);
    bool leaf = nd->op == OP_input || nd->op == OP_number ||
                nd->op == OP_cell || nd->op == OP_const;
    n += nd->kind == LIMN_V_TENSOR && !leaf;
  }
  return n;
}

static void graph_ref_text(const limn_graph *g, limn_ref r, char *buf,
                           size_t n) {
  const limn_node *nd = limn_graph_node(g, r);
  int64_t i = nd->nargs ? limn_node_args(g, r)[0].u.i : 0;
  if ((nd->op == OP_input || nd->op == OP_number) && i < g->nin)
    snprintf(buf, n, "%%%s", limn_graph_text(g, g->in[i].name));
  else if (nd->op == OP_cell && i < g->ncell)
    snprintf(buf, n, "@%s",
             g->cell[i].name ? limn_graph_text(g, g->cell[i].name)
             : g->cell[i].cell->name ? g->cell[i].cell->name : "cell");
  else if (nd->op == OP_const && i < g->nconst)
    snprintf(buf, n, "@%s", limn_graph_text(g, g->konst[i].name));
  else
    snprintf(buf, n, "%%%u", graph_number(g, r));
}

const char *limn_arg_text(const limn_graph *g, limn_arg a, char *buf,
                          size_t n) {
  limn_str s;
  switch (a.tag) {
    case LIMN_A_REF: graph_ref_text(g, a.u.ref, buf, n); break;
    case LIMN_A_INT: snprintf(buf, n, "%lld", (long long)a.u.i); break;
    case LIMN_A_BOOL: snprintf(buf, n, "%s", a.u.i ? "true" : "false"); break;
    case LIMN_A_DTYPE:
      snprintf(buf, n, "%s", limn_dtype_name((int)a.u.i));
      break;
    case LIMN_A_STR: snprintf(buf, n, "%s", limn_graph_text(g, a.u.str)); break;
    case LIMN_A_REAL:
      limn_str_init(&s, g->c);
      limn_str_real(&s, a.u.f);
      snprintf(buf, n, "%s", s.s ? s.s : "?");
      limn_str_free(&s);
      break;
    case LIMN_A_LIST: snprintf(buf, n, "{...}"); break;
    default: snprintf(buf, n, "nil");
  }
  return buf;
}
