/* The results of a graph in their structure; and a graph called inside a trace
 * or a tape: its ops are applied one by one, and so are recorded. */
#include "lua_core.h"
#include "planner.h"

/* -- Results -- */

typedef struct {
  limn_graph *g;
  int base; /* stack index of the first leaf */
  uint32_t at, leaf;
} inline_build;

static void inline_push_tree(inline_build *b, lua_State *L) {
  const limn_tree *node = &b->g->out_tree[b->at++];
  if (node->tag == LIMN_T_LEAF) {
    lua_pushvalue(L, b->base + (int)b->leaf++);
    return;
  }
  luaL_checkstack(L, 8, "nested results");
  if (node->tag == LIMN_T_LIST) lua_createtable(L, (int)node->n, 0);
  else lua_createtable(L, 0, (int)node->n);
  for (uint32_t n = 0; n < node->n; n++) {
    const char *key = limn_graph_text(b->g, b->g->out_tree[b->at].key);
    int64_t i;
    const char *end;
    inline_push_tree(b, L);
    if (node->tag == LIMN_T_LIST) {
      lua_rawseti(L, -2, (int)n + 1);
    } else if ((end = limn_read_int(key, &i)) && !*end) {
      lua_rawseti(L, -2, (int)i);
    } else {
      lua_setfield(L, -2, key);
    }
  }
}

int limn_lua_results(limn_graph *g, lua_State *L, int base) {
  inline_build b = {g, base, 1, 0};
  uint32_t n = g->nout_tree ? g->out_tree[0].n : 0;
  if (!g->nout_tree) { /* a graph without a tree: its leaves */
    for (uint32_t k = 0; k < g->nout; k++) lua_pushvalue(L, base + (int)k);
    return (int)g->nout;
  }
  luaL_checkstack(L, (int)n + 8, "results");
  for (uint32_t k = 0; k < n; k++) inline_push_tree(&b, L);
  return (int)n;
}

/* -- Inlining -- */

typedef struct {
  limn_lua *st;
  limn_graph *g;
  limn_value *of;   /* per node */
  limn_value *pool; /* elements of lists */
  uint32_t npool;
  int keep;         /* stack index of the table that holds the results */
  limn_device *dev; /* on a tape: where the inputs are */
} inline_state;

static limn_value inline_arg(inline_state *r, limn_arg a) {
  limn_value v = {0};
  v.tag = a.tag;
  switch (a.tag) {
    case LIMN_A_REF: return r->of[a.u.ref - 1];
    case LIMN_A_INT: case LIMN_A_BOOL: case LIMN_A_DTYPE:
      v.i = a.u.i, v.f = (double)a.u.i;
      break;
    case LIMN_A_REAL: v.f = a.u.f; break;
    case LIMN_A_STR: v.s = limn_graph_text(r->g, a.u.str); break;
    case LIMN_A_LIST:
      v.n = (int)a.n;
      v.list = r->pool + r->npool;
      r->npool += a.n;
      for (uint32_t i = 0; i < a.n; i++)
        v.list[i] = inline_arg(r, r->g->args[a.u.at + i]);
      break;
    default: break;
  }
  return v;
}

static void inline_mode(inline_state *r, lua_State *L, uint32_t index,
                              limn_value *out) {
  limn_graph_mode *m = &r->g->mode[index];
  limn_trace *t = r->st->c->trace;
  limn_ref ref;
  if (t->tape || r->g->mode_override >= 0) {
    out->tag = LIMN_A_BOOL;
    out->i = r->g->mode_override >= 0 ? r->g->mode_override
                                      : m->mode->training;
    return;
  }
  limn_lua_check(r->st, L,
                 limn_trace_mode(t, m->mode, limn_graph_text(r->g, m->name),
                                 &ref));
  out->tag = LIMN_X_TRACED, out->trace = t, out->ref = ref;
}

/* A cell's value taken before this graph writes to it. */
static void inline_fix_cell(inline_state *r, lua_State *L, limn_value *v) {
  limn_trace *t = r->st->c->trace;
  limn_arg a;
  limn_tensor *now;
  if (v->tag != LIMN_X_CELL) return;
  limn_lua_check(r->st, L, limn_trace_arg(t, v, &a));
  if (t->tape) {
    limn_lua_check(r->st, L, limn_cell_get(v->cell, NULL, &now));
    limn_tensor_retain(now);
    v->tag = LIMN_X_TENSOR, v->t = now;
    limn_handle *h = limn_lua_new_tensor(r->st, L);
    h->t = now;
    luaL_ref(L, r->keep);
  } else {
    v->tag = LIMN_X_TRACED, v->trace = t, v->ref = a.u.ref;
  }
}

/* A node with regions, or a print, in a trace: as it is. */
static void inline_region(inline_state *r, lua_State *L, limn_ref n) {
  const limn_node *nd = limn_graph_node(r->g, n);
  limn_trace *t = r->st->c->trace;
  limn_value *out = &r->of[n - 1];
  limn_arg a[LIMN_MAXARGS] = {{0}};
  int first, count = limn_op_regions(nd->op, &first);
  r->npool = 0;
  for (int i = 0; i < nd->nargs; i++) {
    limn_arg x = limn_node_args(r->g, n)[i];
    limn_graph *f = i >= first && i < first + count
                        ? limn_graph_region(r->g, x) : NULL;
    limn_value v = inline_arg(r, x);
    uint32_t at;
    limn_lua_check(r->st, L, limn_trace_arg(t, &v, &a[i]));
    if (!f) continue;
    limn_lua_check(r->st, L, limn_graph_add_region(t->g, f, &at));
    a[i] = limn_aint(at);
  }
  limn_lua_check(r->st, L, limn_trace_op(t, nd->op, a, nd->nargs, &out->ref));
  out->tag = LIMN_X_TRACED, out->trace = t;
  if (limn_node_effect(t->g, out->ref))
    limn_lua_check(r->st, L, limn_graph_add_effect(t->g, out->ref));
}

static void inline_push(inline_state *r, lua_State *L, limn_arg a) {
  limn_value v;
  if (a.tag == LIMN_A_REF) inline_fix_cell(r, L, &r->of[a.u.ref - 1]);
  v = inline_arg(r, a);
  if (v.tag == LIMN_X_TENSOR) limn_tensor_retain(v.t);
  limn_lua_push(r->st, L, &v);
}

/* The same on a tape: control.lua calls the regions, so that what they do is
 * recorded. Pushes replay, the device, the op's name, and for each argument a
 * list of values, a graph, or the value; `keep` keeps the list of results. */
static void inline_replay(inline_state *r, lua_State *L, limn_ref n) {
  const limn_node *nd = limn_graph_node(r->g, n);
  int first, count = limn_op_regions(nd->op, &first);
  luaL_checkstack(L, LIMN_MAXARGS + 8, "regions");
  lua_getfield(L, LUA_REGISTRYINDEX, "limn.replay");
  lua_pushstring(L, r->dev->name);
  lua_pushstring(L, limn_op_get(nd->op)->name);
  for (int i = 0; i < nd->nargs; i++) {
    limn_arg x = limn_node_args(r->g, n)[i];
    limn_graph *f = limn_graph_region(r->g, x);
    if (i >= first && i < first + count && f) {
      limn_graph_retain(f);
      limn_lua_push_graph(r->st, L, f);
    } else if (x.tag == LIMN_A_LIST) {
      lua_createtable(L, (int)x.n, 0);
      for (uint32_t k = 0; k < x.n; k++) {
        inline_push(r, L, r->g->args[x.u.at + k]);
        lua_rawseti(L, -2, (int)k + 1);
      }
    } else {
      inline_push(r, L, x);
    }
  }
  lua_call(L, nd->nargs + 2, 1);
  r->of[n - 1].tag = LIMN_A_LIST;
  lua_pushvalue(L, -1);
  lua_rawseti(L, r->keep, (int)n);
  if (nd->op == OP_custom) { /* it stands for its first result */
    lua_rawgeti(L, -1, 1);
    limn_lua_value(r->st, L, -1, &r->of[n - 1]);
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
}

void limn_lua_replay(limn_lua *st, lua_State *L, limn_graph *g, limn_value *of,
                     limn_value *pool, int keep, limn_device *dev, limn_ref n) {
  inline_state r = {st, g, of, pool, 0, keep, dev};
  inline_replay(&r, L, n);
}

void limn_lua_picked(lua_State *L, int keep, limn_ref n, int64_t index) {
  lua_rawgeti(L, keep, (int)n);
  lua_rawgeti(L, -1, (int)index);
  lua_remove(L, -2); /* the list keeps it */
}

/* A scan on a tape as one node, whose body gives what its gradient needs, too.
 * False where its steps have to be recorded: a loop in it has no gradient
 * otherwise, or a branch draws. */
static bool inline_scan(inline_state *r, lua_State *L, limn_ref n) {
  const limn_arg *a = limn_node_args(r->g, n);
  limn_graph *f = limn_graph_region(r->g, a[3]), *wide;
  limn_value list[3];
  limn_tensor **t;
  int rc;
  for (uint32_t i = 0; f && i < f->nregion; i++)
    if (limn_region_draws(f->region[i])) return false;
  if (!f || limn_scan_widen(f, a[0].n, a[1].n, &wide) < 0) {
    limn_error_clear(r->st->c);
    return false;
  }
  luaL_checkstack(L, 8, "a scan");
  limn_lua_push_graph(r->st, L, wide);
  r->npool = 0;
  for (int i = 0; i < 3; i++) list[i] = inline_arg(r, a[i]);
  t = lua_newuserdata(L, (wide->nout + 1u) * sizeof *t);
  lua_createtable(L, (int)wide->nout, 0);
  for (uint32_t i = 0; i < wide->nout; i++) {
    limn_lua_new_tensor(r->st, L);
    lua_rawseti(L, -2, (int)i + 1);
  }
  rc = limn_eager_scan(r->st->c, wide, list, a[4].u.i != 0, t);
  for (uint32_t i = 0; i < wide->nout && rc == 0; i++) {
    lua_rawgeti(L, -1, (int)i + 1);
    ((limn_handle *)lua_touserdata(L, -1))->t = t[i];
    lua_pop(L, 1);
  }
  lua_rawseti(L, r->keep, (int)n);
  lua_pop(L, 2);
  limn_lua_check(r->st, L, rc);
  r->of[n - 1].tag = LIMN_A_LIST;
  return true;
}

static void inline_picked(inline_state *r, lua_State *L, limn_ref n) {
  const limn_arg *a = limn_node_args(r->g, n);
  limn_lua_picked(L, r->keep, a[0].u.ref, a[1].u.i);
  limn_lua_value(r->st, L, -1, &r->of[n - 1]);
  lua_pop(L, 1);
}

static bool inline_holds(const limn_value *v) {
  if (v->tag == LIMN_A_LIST) return v->n && inline_holds(&v->list[0]);
  return v->tag >= LIMN_X_TENSOR && v->tag != LIMN_X_CELL;
}

bool limn_lua_places(const limn_value *a, int n) {
  for (int i = 0; i < n; i++)
    if (inline_holds(&a[i])) return false;
  return true;
}

static limn_device *inline_device(limn_lua *st, const limn_graph *g,
                                  const limn_value *in) {
  for (uint32_t i = 0; i < g->nin; i++)
    if (in[i].tag == LIMN_X_TENSOR &&
        (in[i].t->v.ndim || !in[i].t->st->dev->ops->host))
      return in[i].t->st->dev;
  return st->dev ? st->dev : limn_device_cpu(st->c);
}

/* The value of node n (1-based); op results are kept by the table. */
static void inline_node(inline_state *r, lua_State *L, limn_ref n,
                              const limn_value *in) {
  const limn_node *nd = limn_graph_node(r->g, n);
  const limn_arg *args = limn_node_args(r->g, n);
  limn_value a[LIMN_MAXARGS] = {{0}}, *out = &r->of[n - 1];
  uint32_t index = nd->nargs ? (uint32_t)args[0].u.i : 0, k;
  memset(out, 0, sizeof *out);
  switch (nd->op) {
    case OP_input: case OP_number: *out = in[index]; return;
    case OP_cell:
      out->tag = LIMN_X_CELL, out->cell = r->g->cell[index].cell;
      return;
    case OP_const:
      out->tag = LIMN_X_TENSOR, out->t = r->g->konst[index].value;
      out->watch = r->g->konst[index].watch;
      return;
    case OP_mode: inline_mode(r, L, index, out); return;
    case OP_custom: case OP_cond: case OP_while: case OP_scan: case OP_print:
      if (!r->st->c->trace->tape) inline_region(r, L, n);
      else if (nd->op != OP_scan || !inline_scan(r, L, n))
        inline_replay(r, L, n);
      return;
    case OP_pick:
      if (!r->st->c->trace->tape) break;
      inline_picked(r, L, n);
      return;
    default: break;
  }
  r->npool = 0;
  for (k = 0; k < nd->nargs; k++) a[k] = inline_arg(r, args[k]);
  if (limn_op_random(nd->op)) memset(&a[nd->nargs - 1], 0, sizeof *a);
  limn_handle *h = limn_lua_new_tensor(r->st, L);
  int rc = limn_apply(r->st->c, nd->op, a, nd->nargs,
                      limn_lua_places(a, nd->nargs) ? r->dev : NULL, out);
  if (rc >= 0 && out->tag == LIMN_X_TENSOR) h->t = out->t;
  lua_rawseti(L, r->keep, (int)n);
  limn_lua_check(r->st, L, rc);
}

static void inline_guards(inline_state *r, lua_State *L) {
  limn_trace *t = r->st->c->trace;
  for (uint32_t i = 0; i < r->g->nguard; i++) {
    limn_value v = inline_arg(r, r->g->guard[i].cond);
    limn_arg a;
    if (v.tag == LIMN_X_TRACED) {
      limn_lua_check(r->st, L, limn_trace_arg(t, &v, &a));
      limn_lua_check(r->st, L, limn_trace_guard(t, a));
    } else if (v.tag == LIMN_A_BOOL && !v.i) {
      limn_lua_fail(r->st, L, NULL, "a guard of %s at %s does not hold",
                    r->g->name, limn_graph_text(r->g, r->g->guard[i].line));
    }
  }
}

static void inline_writes(inline_state *r, lua_State *L) {
  limn_trace *t = r->st->c->trace;
  for (uint32_t i = 0; i < r->g->ncell; i++) {
    limn_graph_cell *gc = &r->g->cell[i];
    limn_value v;
    limn_arg a;
    if (gc->write.tag == LIMN_A_NONE) continue;
    v = inline_arg(r, gc->write);
    if (t->tape) {
      limn_lua_check(r->st, L, limn_assign(r->st->c, gc->cell, &v));
    } else {
      limn_lua_check(r->st, L, limn_trace_arg(t, &v, &a));
      limn_lua_check(r->st, L, limn_trace_cell_write(t, gc->cell, a));
    }
  }
}

int limn_lua_inline(limn_lua *st, lua_State *L, limn_graph *g,
                        const limn_value *in) {
  inline_state r = {st, g, NULL, NULL, 0, 0, NULL};
  int base;
  r.dev = st->c->trace->tape ? inline_device(st, g, in) : NULL;
  r.of = lua_newuserdata(L, (g->nnode + 1) * sizeof *r.of);
  r.pool = lua_newuserdata(L, (g->nargs + 1) * sizeof *r.pool);
  lua_newtable(L);
  r.keep = lua_gettop(L);
  luaL_checkstack(L, (int)g->nout + 16, "results");
  for (limn_ref n = 1; n <= g->nnode; n++) inline_node(&r, L, n, in);
  inline_guards(&r, L);
  base = lua_gettop(L) + 1;
  for (uint32_t i = 0; i < g->nout; i++) inline_push(&r, L, g->out[i]);
  inline_writes(&r, L);
  return limn_lua_results(g, L, base);
}
