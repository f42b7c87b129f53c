/* Gradients and effects: what Lua code that is recorded calls. */
#include "lua_core.h"
#include "planner.h"

#include <stdio.h>

/* The node of the value at i in the running recording; 0 if it is none. */
static limn_ref grad_ref(limn_lua *st, lua_State *L, int i) {
  limn_value v;
  limn_arg a;
  limn_lua_operand(st, L, i, "gradient", "the value", &v);
  limn_lua_check(st, L, limn_trace_arg(st->c->trace, &v, &a));
  return a.tag == LIMN_A_REF ? a.u.ref : 0;
}

static void grad_need(limn_lua *st, lua_State *L) {
  if (!st->c->trace)
    limn_lua_fail(st, L, NULL, "a gradient needs a recording");
}

/* grad_watch({values}): their nodes as a list of numbers, and the number of
 * nodes so far: what comes later is differentiated */
static int grad_watch(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  int n = (int)lua_objlen(L, 1);
  grad_need(st, L);
  lua_createtable(L, n, 0);
  for (int k = 1; k <= n; k++) {
    lua_rawgeti(L, 1, k);
    lua_pushinteger(L, (lua_Integer)grad_ref(st, L, -1));
    lua_rawseti(L, -3, k);
    lua_pop(L, 1);
  }
  lua_pushinteger(L, (lua_Integer)st->c->trace->g->nnode + 1);
  return 2;
}

/* grad_stop(loss, node): name and line of the op that stops the gradient */
static int grad_stop(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_graph *g = st->c->trace ? st->c->trace->g : NULL;
  limn_ref r;
  grad_need(st, L);
  r = limn_gradient_stop(g, grad_ref(st, L, 1), (limn_ref)lua_tointeger(L, 2));
  if (!r) return 0;
  lua_pushstring(L, limn_lua_op_name(limn_graph_node(g, r)->op));
  lua_pushstring(L, limn_graph_text(g, limn_graph_node(g, r)->line));
  return 2;
}

/* In a trace the gradient's nodes join the graph. */
static int grad_traced(limn_lua *st, lua_State *L, limn_ref start,
                       limn_ref loss, const limn_ref *wrt, int n,
                       limn_arg *out) {
  limn_trace *t = st->c->trace;
  limn_lua_check(st, L, limn_gradient(t->g, start, limn_aref(loss), wrt, n,
                                      out));
  for (int k = 0; k < n; k++) {
    limn_value v = {0};
    if (out[k].tag == LIMN_A_REF) {
      v.tag = LIMN_X_TRACED, v.trace = t, v.ref = out[k].u.ref;
      limn_lua_push(st, L, &v);
    } else {
      lua_pushboolean(L, 0);
    }
    lua_rawseti(L, -2, k + 1);
  }
  return 1;
}

/* On a tape inside a tape: the gradient's nodes are made on a copy and applied
 * one by one, so that the outer tape records them too. */
typedef struct {
  limn_graph *g; /* released by the userdata's __gc */
} grad_copy;

static int grad_copy_gc(lua_State *L) {
  grad_copy *u = lua_touserdata(L, 1);
  limn_graph *g = u->g;
  u->g = NULL;
  limn_graph_release(g);
  return 0;
}

/* A cell that holds what the tape read follows the run's device. */
static bool grad_cell(const limn_trace *t, const limn_graph *g, limn_ref r,
                      limn_value *out) {
  const limn_node *n = limn_graph_node(g, r);
  limn_cell *cell;
  limn_tensor *now;
  if (n->op != OP_cell) return false;
  cell = g->cell[g->args[n->args].u.i].cell;
  if (limn_cell_get(cell, NULL, &now) < 0 || now != t->value[r - 1])
    return false;
  memset(out, 0, sizeof *out);
  out->tag = LIMN_X_CELL, out->cell = cell;
  return true;
}

static limn_value grad_value(limn_lua *st, lua_State *L, limn_graph *g,
                             limn_value *of, limn_arg a, limn_value *pool,
                             uint32_t *npool) {
  limn_value v = {0};
  limn_trace *t = st->c->trace;
  v.tag = a.tag;
  switch (a.tag) {
    case LIMN_A_REF:
      if (of[a.u.ref - 1].tag) return of[a.u.ref - 1];
      if (a.u.ref <= t->nvalue && t->value[a.u.ref - 1]) {
        if (grad_cell(t, g, a.u.ref, &v)) return v;
        v.tag = LIMN_X_TENSOR, v.t = t->value[a.u.ref - 1];
        return v;
      }
      if (limn_graph_node(g, a.u.ref)->op == OP_number) {
        double x = t->in[limn_node_args(g, a.u.ref)[0].u.i].f;
        return limn_graph_node(g, a.u.ref)->kind == LIMN_V_INT
                   ? limn_vnum(x) : limn_vreal(x);
      }
      limn_lua_fail(st, L, NULL, "a gradient of a gradient needs a value that "
                    "was not recorded (%%%u)", a.u.ref);
      return v;
    case LIMN_A_REAL: v.f = a.u.f; break;
    case LIMN_A_STR: v.s = limn_graph_text(g, a.u.str); break;
    case LIMN_A_LIST:
      v.n = (int)a.n, v.list = pool + *npool;
      *npool += a.n;
      for (uint32_t i = 0; i < a.n; i++)
        v.list[i] = grad_value(st, L, g, of, g->args[a.u.at + i], pool, npool);
      break;
    default: v.i = a.u.i, v.f = (double)a.u.i;
  }
  return v;
}

/* A scan of the gradient: its results as a list. Handles in the list at `keep`
 * hold them. It takes no draw: the scan that it is of has taken it. */
static void grad_scan(limn_lua *st, lua_State *L, limn_graph *g,
                      const limn_value *a, int keep, limn_value *out) {
  limn_arg at = limn_aint(a[3].i);
  limn_graph *body = limn_graph_region(g, at);
  uint32_t n = body ? body->nout : 0;
  limn_tensor **t = lua_newuserdata(L, (n + 1u) * sizeof *t);
  limn_handle **h = lua_newuserdata(L, (n + 1u) * sizeof *h);
  uint64_t draws = st->c->draws;
  memset(out, 0, sizeof *out);
  out->tag = LIMN_A_LIST, out->n = (int)n;
  out->list = lua_newuserdata(L, (n + 1u) * sizeof *out->list);
  luaL_ref(L, keep);
  for (uint32_t i = 0; i < n; i++) {
    h[i] = limn_lua_new_tensor(st, L);
    luaL_ref(L, keep);
  }
  if (!body) limn_lua_fail(st, L, NULL, "a scan without a body");
  limn_lua_check(st, L, limn_eager_scan(st->c, body, a, a[4].i != 0, t));
  st->c->draws = draws;
  for (uint32_t i = 0; i < n; i++) {
    memset(&out->list[i], 0, sizeof *out->list);
    out->list[i].tag = LIMN_X_TENSOR;
    out->list[i].t = h[i]->t = t[i];
  }
  lua_pop(L, 2);
}

/* What the gradient's nodes are made of, on the copy. */
typedef struct {
  limn_lua *st;
  lua_State *L;
  limn_graph *g;
  limn_value *of, *pool;
} grad_nodes;

static void grad_operand(limn_ref r, void *user) {
  grad_nodes *k = user;
  uint32_t np = 0;
  k->of[r - 1] = grad_value(k->st, k->L, k->g, k->of, limn_aref(r), k->pool,
                            &np);
}

/* Another node with regions: from a function of limn.custom. */
static void grad_replay(grad_nodes *k, int keep, limn_device *dev,
                        limn_ref r) {
  limn_context *c = k->st->c;
  uint64_t draws = c->draws;
  limn_node_refs(k->g, r, grad_operand, k);
  limn_lua_replay(k->st, k->L, k->g, k->of, k->pool, keep, dev, r);
  c->draws = draws;
}

static int grad_nested(limn_lua *st, lua_State *L, limn_ref start,
                       limn_ref loss, const limn_ref *wrt, int n,
                       limn_arg *out) {
  limn_trace *t = st->c->trace;
  limn_graph *g;
  limn_value *of, *pool;
  uint32_t before = t->g->nnode;
  limn_device *dev = loss <= t->nvalue && t->value[loss - 1]
                         ? t->value[loss - 1]->st->dev
                         : limn_device_cpu(st->c);
  grad_copy *u = lua_newuserdata(L, sizeof *u);
  int keep, lists;
  u->g = NULL;
  lua_newtable(L);
  lua_pushcfunction(L, grad_copy_gc);
  lua_setfield(L, -2, "__gc");
  lua_setmetatable(L, -2);
  limn_lua_check(st, L, limn_graph_clone(t->g, &u->g));
  g = u->g;
  limn_lua_check(st, L, limn_gradient(g, start, limn_aref(loss), wrt, n, out));
  of = lua_newuserdata(L, (g->nnode + 1) * sizeof *of);
  memset(of, 0, (g->nnode + 1) * sizeof *of);
  pool = lua_newuserdata(L, (g->nargs + 1) * sizeof *pool);
  lua_newtable(L);
  keep = lua_gettop(L);
  lua_newtable(L);
  lists = lua_gettop(L);
  for (limn_ref r = before + 1; r <= g->nnode; r++) {
    const limn_node *nd = limn_graph_node(g, r);
    limn_value a[LIMN_MAXARGS] = {{0}};
    uint32_t np = 0;
    limn_handle *h;
    int rc;
    if (nd->op != OP_scan && limn_op_body(nd->op) >= 0) {
      grad_nodes nodes = {st, L, g, of, pool};
      grad_replay(&nodes, keep, dev, r);
      continue;
    }
    const limn_arg *pick = limn_node_args(g, r);
    if (nd->op == OP_pick && pick[0].u.ref > before &&
        !of[pick[0].u.ref - 1].list) { /* of one that was replayed */
      limn_lua_picked(L, keep, pick[0].u.ref, pick[1].u.i);
      limn_lua_value(st, L, -1, &of[r - 1]);
      lua_pop(L, 1);
      continue;
    }
    for (int k = 0; k < nd->nargs; k++)
      a[k] = grad_value(st, L, g, of, limn_node_args(g, r)[k], pool, &np);
    if (nd->op == OP_scan) {
      grad_scan(st, L, g, a, lists, &of[r - 1]);
      continue;
    }
    if (nd->op == OP_pick) {
      of[r - 1] = a[0].list[a[1].i - 1];
      continue;
    }
    h = limn_lua_new_tensor(st, L);
    rc = limn_apply(st->c, nd->op, a, nd->nargs,
                    limn_lua_places(a, nd->nargs) ? dev : NULL, &of[r - 1]);
    if (rc >= 0 && of[r - 1].tag == LIMN_X_TENSOR) h->t = of[r - 1].t;
    lua_rawseti(L, keep, (int)r);
    limn_lua_check(st, L, rc);
  }
  lua_createtable(L, n, 0);
  for (int k = 0; k < n; k++) {
    uint32_t np = 0;
    limn_value v = {0};
    if (out[k].tag == LIMN_A_NONE) {
      lua_pushboolean(L, 0);
    } else {
      v = grad_value(st, L, g, of, out[k], pool, &np);
      if (v.tag == LIMN_X_TENSOR) limn_tensor_retain(v.t);
      limn_lua_push(st, L, &v);
    }
    lua_rawseti(L, -2, k + 1);
  }
  return 1;
}

static int grad_tape(limn_lua *st, lua_State *L, limn_ref loss,
                     const limn_ref *wrt, int n) {
  limn_tensor **out = lua_newuserdata(L, ((size_t)n + 1) * sizeof(void *));
  limn_handle **h = lua_newuserdata(L, ((size_t)n + 1) * sizeof(void *));
  lua_createtable(L, n, 0);
  for (int k = 0; k < n; k++) {
    h[k] = limn_lua_new_tensor(st, L);
    lua_rawseti(L, -2, k + 1);
  }
  limn_lua_check(st, L, limn_tape_gradient(st->c->trace, loss, wrt, n, out));
  for (int k = 0; k < n; k++) h[k]->t = out[k];
  for (int k = 0; k < n; k++) {
    if (out[k]) continue;
    lua_pushboolean(L, 0); /* not reached */
    lua_rawseti(L, -2, k + 1);
  }
  limn_lua_press(st, L);
  return 1;
}

/* Gradients are of floats with respect to floats. */
static void grad_check(limn_lua *st, lua_State *L, limn_ref r,
                       const char *what) {
  const limn_type *t = r ? limn_trace_hint(st->c->trace, r) : NULL;
  if (!t || limn_dtype_float(t->dtype)) return;
  limn_lua_fail(st, L, "convert it first: :to \"float32\"",
                "%s is %s; only floats have gradients", what,
                limn_dtype_name(t->dtype));
}

/* gradient(loss, {nodes}, start, nested): a list of tensors, false where the
 * loss does not reach */
static int grad_gradient(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  int n = (int)lua_objlen(L, 2);
  limn_ref start = (limn_ref)luaL_checkinteger(L, 3), loss;
  bool nested = lua_toboolean(L, 4);
  limn_ref *wrt = lua_newuserdata(L, ((size_t)n + 1) * sizeof *wrt);
  limn_arg *out = lua_newuserdata(L, ((size_t)n + 1) * sizeof *out);
  grad_need(st, L);
  loss = grad_ref(st, L, 1);
  grad_check(st, L, loss, "the loss");
  for (int k = 0; k < n; k++) {
    lua_rawgeti(L, 2, k + 1);
    wrt[k] = (limn_ref)lua_tointeger(L, -1);
    lua_pop(L, 1);
    grad_check(st, L, wrt[k], "what is differentiated by");
  }
  memset(out, 0, ((size_t)n + 1) * sizeof *out);
  if (!st->c->trace->tape) {
    lua_createtable(L, n, 0);
    return grad_traced(st, L, start, loss, wrt, n, out);
  }
  return nested ? grad_nested(st, L, start, loss, wrt, n, out)
                : grad_tape(st, L, loss, wrt, n);
}

/* fresh(tensor): a value of its own, so that a gradient with respect to it is
 * of this use alone; traced values stay what they are */
static int grad_fresh(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_handle *h = limn_lua_to(st, L, 1, LIMN_U_TENSOR), *own;
  if (!h || !h->t) {
    lua_settop(L, 1);
    return 1;
  }
  own = limn_lua_new_tensor(st, L);
  limn_lua_check(st, L, limn_tensor_view(h->t, &h->t->v, &own->t));
  return 1;
}

/* detach(x): in eager code a value that no tape knows */
static int grad_detach(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_value v;
  limn_handle *own;
  limn_tensor *t;
  lua_settop(L, 1);
  limn_lua_operand(st, L, 1, "detach", "x", &v);
  if (v.tag == LIMN_X_TRACED || limn_lua_tracing(st))
    return limn_lua_apply(st, L, OP_detach, &v, 1, NULL);
  t = v.t;
  if (v.tag == LIMN_X_CELL)
    limn_lua_check(st, L, limn_cell_get(v.cell, NULL, &t));
  own = limn_lua_new_tensor(st, L);
  limn_lua_check(st, L, limn_tensor_view(t, &t->v, &own->t));
  return 1;
}

/* The node of a print as an effect of the graph, once. */
static void grad_effect(limn_lua *st, lua_State *L, limn_trace *t,
                        limn_ref r) {
  for (uint32_t i = 0; i < t->g->neffect; i++)
    if (t->g->effect[i] == r) return;
  limn_lua_check(st, L, limn_graph_add_effect(t->g, r));
}

/* print_node(text, {values}): a node of the running trace; text has one {}
 * for each value */
static int grad_print(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_trace *t = limn_lua_tracing(st);
  limn_value v, list = {0};
  limn_arg a[2];
  limn_ref r;
  int n = (int)lua_objlen(L, 2);
  limn_value *vs = lua_newuserdata(L, ((size_t)n + 1) * sizeof *vs);
  if (!t) return limn_lua_fail(st, L, NULL, "print_node needs a trace");
  for (int k = 0; k < n; k++) {
    lua_rawgeti(L, 2, k + 1);
    if (!limn_lua_value(st, L, -1, &vs[k]))
      return limn_lua_fail(st, L, NULL, "print: value %d cannot be shown by a "
                           "graph", k + 1);
    lua_pop(L, 1);
  }
  list.tag = LIMN_A_LIST, list.list = vs, list.n = n;
  memset(&v, 0, sizeof v);
  v.tag = LIMN_A_STR, v.s = luaL_checkstring(L, 1);
  limn_lua_check(st, L, limn_trace_arg(t, &list, &a[0]));
  limn_lua_check(st, L, limn_trace_arg(t, &v, &a[1]));
  limn_lua_check(st, L, limn_trace_op(t, OP_print, a, 2, &r));
  grad_effect(st, L, t, r);
  return 0;
}

static const luaL_Reg grad_functions[] = {
    {"grad_watch", grad_watch}, {"grad_stop", grad_stop},
    {"gradient", grad_gradient},
    {"fresh", grad_fresh},      {"detach", grad_detach},
    {"print_node", grad_print},
    {NULL, NULL}};

void limn_lua_open_grad(limn_lua *st, lua_State *L) {
  limn_lua_register(st, L, grad_functions);
}
