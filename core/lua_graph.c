/* Graphs in Lua: calls, plans, and what a graph says of itself. */
#include "lua_core.h"

#include <stdio.h>

#define GRAPH_FEW 16 /* inputs or outputs that need no memory of their own */

limn_lua_graph *limn_lua_check_graph(limn_lua *st, lua_State *L, int i) {
  limn_lua_graph *u = limn_lua_to(st, L, i, LIMN_U_GRAPH);
  if (!u || !u->g) limn_lua_fail(st, L, NULL, "a graph is wanted");
  return u;
}

void limn_lua_push_graph(limn_lua *st, lua_State *L, limn_graph *g) {
  limn_lua_graph *u = limn_lua_new(st, L, LIMN_U_GRAPH, sizeof *u);
  u->g = g;
  lua_newtable(L); /* static objects, the traced function, ... */
  lua_setfenv(L, -2);
}

/* -- Arguments -- */

typedef struct {
  limn_lua *st;
  limn_lua_graph *u;
  limn_run_arg *in;   /* of the graph's inputs */
  limn_value *value;  /* the same as values, for inlining; or NULL */
  uint32_t at, leaf, next; /* in the tree, the leaves, the inputs */
  int arg;    /* number of the argument that is looked at */
  bool soft;  /* a misfit is reported in `why`, not raised */
  bool bad;
  char why[256];
} graph_call;

static void graph_misfit(graph_call *k, lua_State *L, const char *hint,
                         const char *fmt, ...) LIMN_PRINTF(4, 5);
static void graph_misfit(graph_call *k, lua_State *L, const char *hint,
                         const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(k->why, sizeof k->why, fmt, ap);
  va_end(ap);
  k->bad = true;
  if (!k->soft) limn_lua_fail(k->st, L, hint, "%s", k->why);
}

/* " of NAME" for a graph with a name, else "". */
static const char *graph_of(const limn_graph *g, char buf[100]) {
  bool named = *g->name && strcmp(g->name, "function");
  snprintf(buf, 100, "%s%.90s", named ? " of " : "", named ? g->name : "");
  return buf;
}

static void graph_tensor_arg(graph_call *k, lua_State *L, int i,
                             uint32_t input) {
  limn_graph *g = k->u->g;
  limn_handle *h = limn_lua_to(k->st, L, i, LIMN_U_TENSOR);
  char got[300], name[100];
  limn_value v;
  limn_tensor *t;
  if (h && h->t) {
    k->in[input].t = h->t;
  } else if (!h && limn_lua_to(k->st, L, i, LIMN_U_CELL)) {
    limn_lua_value(k->st, L, i, &v);
    limn_lua_check(k->st, L, limn_cell_get(v.cell, NULL, &t));
    k->in[input].t = t;
  } else if (!h || !k->value) {
    if (h) limn_lua_value(k->st, L, i, &v); /* raises: stale */
    graph_misfit(k, L, NULL, "argument %s%s must be a tensor, not %s",
                 limn_graph_text(g, g->in[input].name), graph_of(g, name),
                 limn_lua_what(k->st, L, i, got, sizeof got));
    return;
  }
  if (k->value) limn_lua_value(k->st, L, i, &k->value[input]);
}

static void graph_number_arg(graph_call *k, lua_State *L, int i,
                             uint32_t input) {
  limn_graph *g = k->u->g;
  char got[300], name[100];
  int kind = limn_graph_node(g, g->in[input].ref)->kind;
  limn_value v;
  if (lua_type(L, i) == LUA_TNUMBER) {
    double x = lua_tonumber(L, i);
    k->in[input].number = x;
    if (k->value)
      k->value[input] = kind == LIMN_V_REAL ? limn_vreal(x) : limn_vnum(x);
    return;
  }
  if (k->value && (limn_lua_dim(k->st, L, i) || kind != LIMN_V_REAL) &&
      limn_lua_value(k->st, L, i, &v)) {
    if (kind == LIMN_V_DTYPE && v.tag == LIMN_A_STR) {
      v.i = limn_dtype_find(v.s);
      v.tag = LIMN_A_DTYPE;
    }
    k->value[input] = v; /* inside a gradient a region has its inputs so */
    return;
  }
  if (lua_istable(L, i) && luaL_getmetafield(L, i, "limn_number")) {
    lua_getfield(L, i, "v"); /* limn.number(v) at a call: v */
    graph_number_arg(k, L, lua_gettop(L), input);
    lua_pop(L, 2);
    return;
  }
  graph_misfit(k, L, NULL, "argument %s%s must be a number, not %s",
               limn_graph_text(g, g->in[input].name), graph_of(g, name),
               limn_lua_what(k->st, L, i, got, sizeof got));
}

static bool graph_same_static(graph_call *k, lua_State *L, int i,
                              const limn_arg *a, uint32_t leaf) {
  limn_graph *g = k->u->g;
  bool same;
  switch (a->tag) {
    case LIMN_A_INT:
      return lua_type(L, i) == LUA_TNUMBER &&
             lua_tonumber(L, i) == (double)a->u.i;
    case LIMN_A_REAL:
      return lua_type(L, i) == LUA_TNUMBER &&
             (lua_tonumber(L, i) == a->u.f ||
              (a->u.f != a->u.f && lua_tonumber(L, i) != lua_tonumber(L, i)));
    case LIMN_A_BOOL:
      return lua_isboolean(L, i) && lua_toboolean(L, i) == (int)a->u.i;
    case LIMN_A_STR:
      return lua_type(L, i) == LUA_TSTRING &&
             !strcmp(lua_tostring(L, i), limn_graph_text(g, a->u.str));
    default: break;
  }
  lua_getfenv(L, 1); /* the graph */
  if (lua_istable(L, -1)) lua_getfield(L, -1, "statics");
  else lua_pushnil(L);
  if (!lua_istable(L, -1)) {
    lua_pop(L, 2);
    return lua_isnoneornil(L, i);
  }
  lua_rawgeti(L, -1, (int)leaf + 1);
  same = lua_isnil(L, -1) ? lua_isnoneornil(L, i) : lua_rawequal(L, -1, i);
  if (!same && limn_lua_to(k->st, L, i, LIMN_U_CELL)) {
    limn_cell **a1 = limn_lua_to(k->st, L, -1, LIMN_U_CELL);
    limn_cell **b1 = limn_lua_to(k->st, L, i, LIMN_U_CELL);
    same = a1 && b1 && *a1 == *b1;
  }
  lua_pop(L, 3);
  return same;
}

static void graph_leaf(graph_call *k, lua_State *L, int i) {
  limn_graph *g = k->u->g;
  uint32_t leaf = k->leaf++;
  const limn_arg *a = &g->statics[leaf];
  const char *quote = a->tag == LIMN_A_STR ? "'" : "";
  char was[100], got[300], name[100];
  if (a->tag == LIMN_A_REF) {
    uint32_t input = k->next++;
    if (g->in[input].number) graph_number_arg(k, L, i, input);
    else graph_tensor_arg(k, L, i, input);
    return;
  }
  if (graph_same_static(k, L, i, a, leaf)) return;
  limn_arg_text(g, *a, was, sizeof was);
  graph_misfit(k, L, a->tag == LIMN_A_STR || lua_type(L, i) != LUA_TNUMBER
               ? "limn.jit traces again for each value"
               : "limn.number(v) as the example makes a number an input; "
                 "limn.jit traces again for each value",
               "argument %d%s was %s%s%s in the trace and is %s here", k->arg,
               graph_of(g, name), quote,
               a->tag == LIMN_A_NONE ? "nil or another object" : was, quote,
               limn_lua_what(k->st, L, i, got, sizeof got));
}

/* A DICT key of digits is a position of a table with a list part. */
static void graph_get_key(lua_State *L, int i, const char *key) {
  int64_t n;
  const char *end;
  lua_pushstring(L, key);
  lua_rawget(L, i);
  if (!lua_isnil(L, -1)) return;
  end = limn_read_int(key, &n);
  if (!end || *end) return;
  lua_pop(L, 1);
  lua_rawgeti(L, i, (int)n);
}

static void graph_tree(graph_call *k, lua_State *L, int i);

static void graph_children(graph_call *k, lua_State *L, int i,
                           const limn_tree *node) {
  limn_graph *g = k->u->g;
  luaL_checkstack(L, 8, "nested arguments");
  for (uint32_t n = 0; n < node->n && !k->bad; n++) {
    const char *key = limn_graph_text(g, g->in_tree[k->at].key);
    if (node->tag == LIMN_T_DICT) graph_get_key(L, i, key);
    else lua_rawgeti(L, i, (int)n + 1);
    graph_tree(k, L, lua_gettop(L));
    lua_pop(L, 1); /* the table keeps it */
  }
}

static void graph_tree(graph_call *k, lua_State *L, int i) {
  limn_graph *g = k->u->g;
  const limn_tree *node = &g->in_tree[k->at++];
  char got[300];
  uint32_t size = 0;
  if (node->tag == LIMN_T_LEAF) {
    graph_leaf(k, L, i);
    return;
  }
  if (!lua_istable(L, i)) {
    graph_misfit(k, L, NULL, "%s takes a table with %u entries here, not %s",
                 g->name, node->n, limn_lua_what(k->st, L, i, got, sizeof got));
    return;
  }
  lua_pushnil(L);
  while (lua_next(L, i)) lua_pop(L, 1), size++;
  if (size > node->n)
    graph_misfit(k, L, NULL, "%s was traced with %u entries in a table that "
                 "has %u now", g->name, node->n, size);
  if (!k->bad) graph_children(k, L, i, node);
}

/* Ranks that differ from the trace's are a misfit too, where that is soft. */
static void graph_ranks(graph_call *k, lua_State *L) {
  limn_graph *g = k->u->g;
  for (uint32_t i = 0; i < g->nin && !k->bad; i++)
    if (!g->in[i].number &&
        k->in[i].t->v.ndim != limn_graph_node(g, g->in[i].ref)->rank)
      graph_misfit(k, L, NULL, "argument %s: %d dim%s -> %d",
                   limn_graph_text(g, g->in[i].name),
                   limn_graph_node(g, g->in[i].ref)->rank,
                   limn_graph_node(g, g->in[i].ref)->rank == 1 ? "" : "s",
                   k->in[i].t->v.ndim);
}

/* Arguments from stack index `first` to the top. */
static void graph_args(graph_call *k, lua_State *L, int first) {
  limn_graph *g = k->u->g;
  const limn_tree *root = g->in_tree;
  int n = lua_gettop(L) - first + 1;
  while (n > 0 && root && n > (int)root->n && lua_isnil(L, first + n - 1)) n--;
  if (!root || n > (int)root->n) {
    graph_misfit(k, L, NULL, "%s takes %u argument%s, not %d",
                 *g->name ? g->name : "the graph", root ? root->n : 0,
                 root && root->n == 1 ? "" : "s", n);
    return;
  }
  k->at = 1;
  for (uint32_t a = 0; a < root->n && !k->bad; a++) {
    k->arg = (int)a + 1;
    if ((int)a >= n) {
      lua_pushnil(L);
      graph_tree(k, L, lua_gettop(L));
      lua_pop(L, 1);
    } else {
      graph_tree(k, L, first + (int)a);
    }
  }
}

/* -- Results -- */

static bool graph_out_tensor(const limn_graph *g, uint32_t k) {
  return g->out[k].tag == LIMN_A_REF &&
         limn_graph_node(g, g->out[k].u.ref)->kind == LIMN_V_TENSOR;
}

static void graph_push_host(lua_State *L, const limn_result *r) {
  switch (r->kind) {
    case LIMN_V_INT: lua_pushnumber(L, (double)r->i); break;
    case LIMN_V_REAL: lua_pushnumber(L, r->f); break;
    case LIMN_V_BOOL: lua_pushboolean(L, r->i != 0); break;
    case LIMN_V_DTYPE: lua_pushstring(L, limn_dtype_name((int)r->i)); break;
    case LIMN_V_STR: lua_pushstring(L, r->s ? r->s : ""); break;
    default: lua_pushnil(L);
  }
}

/* -- A run -- */

/* Runs with the arguments in k; pushes results, returns their number or a
 * negative LIMN_E*. into: NULL or a tensor per output, whose handles are in
 * the table at `outs`. */
static int graph_run(graph_call *k, lua_State *L, limn_tensor *const *into,
                     int outs) {
  limn_graph *g = k->u->g;
  limn_result few[GRAPH_FEW], *out = few;
  limn_handle *few_h[GRAPH_FEW], **h = few_h;
  limn_device *dev = k->u->dev ? k->u->dev : g->nin ? NULL : k->st->dev;
  int base, rc;
  luaL_checkstack(L, (int)g->nout + 16, "results");
  if (g->nout > GRAPH_FEW) {
    out = lua_newuserdata(L, g->nout * sizeof *out);
    h = lua_newuserdata(L, g->nout * sizeof(limn_handle *));
  }
  base = lua_gettop(L) + 1;
  for (uint32_t i = 0; i < g->nout; i++) {
    h[i] = NULL;
    if (graph_out_tensor(g, i)) h[i] = limn_lua_new_tensor(k->st, L);
    else lua_pushnil(L);
  }
  rc = limn_graph_run(g, dev, k->in, into, out);
  if (rc < 0) return rc;
  for (uint32_t i = 0; i < g->nout; i++)
    if (h[i]) h[i]->t = out[i].t;
  for (uint32_t i = 0; into && i < g->nout; i++) {
    if (!h[i] || out[i].t != into[i]) continue;
    lua_rawgeti(L, outs, (int)i + 1); /* no second handle to the memory, */
    lua_replace(L, base + (int)i);    /* or the next run could not use it */
    h[i]->t = NULL;
    limn_tensor_release(out[i].t);
  }
  for (uint32_t i = 0; i < g->nout; i++) {
    if (h[i]) continue;
    graph_push_host(L, &out[i]);
    lua_replace(L, base + (int)i);
  }
  limn_lua_press(k->st, L);
  return limn_lua_results(g, L, base);
}

/* Call setup: memory for many inputs; fills k->in. */
static void graph_setup(limn_lua *st, lua_State *L, limn_lua_graph *u,
                        graph_call *k, limn_run_arg *few) {
  memset(k, 0, offsetof(graph_call, why));
  k->why[0] = 0;
  k->st = st;
  k->u = u;
  k->in = few;
  if (u->g->nin > GRAPH_FEW) {
    k->in = lua_newuserdata(L, u->g->nin * sizeof *k->in);
    lua_insert(L, 2); /* below the arguments */
  }
}

static int graph_inline_call(limn_lua *st, lua_State *L, limn_lua_graph *u,
                             int first) {
  limn_run_arg few[GRAPH_FEW] = {{0}};
  graph_call k;
  graph_setup(st, L, u, &k, few);
  if (u->g->nin > GRAPH_FEW) first++;
  k.value = lua_newuserdata(L, (u->g->nin + 1) * sizeof *k.value);
  memset(k.value, 0, (u->g->nin + 1) * sizeof *k.value);
  lua_insert(L, first++);
  graph_args(&k, L, first);
  return limn_lua_inline(st, L, u->g, k.value);
}

/* run(graph, ...): a call that no tape records */
static int graph_direct(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_lua_graph *u = limn_lua_check_graph(st, L, 1);
  limn_run_arg few[GRAPH_FEW];
  graph_call k;
  int n, first = 2 + (u->g->nin > GRAPH_FEW);
  graph_setup(st, L, u, &k, few);
  graph_args(&k, L, first);
  n = graph_run(&k, L, NULL, 0);
  return n < 0 ? limn_lua_raise(st, L) : n;
}

static int graph_m_call(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  if (st->c->trace)
    return graph_inline_call(st, L, limn_lua_check_graph(st, L, 1), 2);
  return graph_direct(L);
}

/* try(graph, ...): true and the results; or false, why it does not fit, and
 * whether it never will. Other errors are raised. */
static int graph_try(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_lua_graph *u = limn_lua_check_graph(st, L, 1);
  limn_run_arg few[GRAPH_FEW];
  graph_call k;
  int n, first = 2 + (u->g->nin > GRAPH_FEW);
  graph_setup(st, L, u, &k, few);
  k.soft = true;
  graph_args(&k, L, first);
  graph_ranks(&k, L);
  if (k.bad) {
    lua_pushboolean(L, 0);
    lua_pushstring(L, k.why);
    return 2;
  }
  lua_pushboolean(L, 1);
  n = graph_run(&k, L, NULL, 0);
  if (n == LIMN_EGUARD || n == LIMN_ETRACE) {
    lua_pushboolean(L, 0);
    lua_pushstring(L, st->c->error);
    lua_pushboolean(L, n == LIMN_ETRACE); /* it will never fit again */
    return 3;
  }
  if (n < 0) return limn_lua_raise(st, L);
  lua_pushboolean(L, 1);
  lua_insert(L, -n - 1);
  return n + 1;
}

/* fits(graph, ...): could it be called with these? Else also why not. */
static int graph_fits(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_lua_graph *u = limn_lua_check_graph(st, L, 1);
  limn_run_arg few[GRAPH_FEW];
  graph_call k;
  graph_setup(st, L, u, &k, few);
  k.soft = true;
  graph_args(&k, L, 2 + (u->g->nin > GRAPH_FEW));
  graph_ranks(&k, L);
  lua_pushboolean(L, !k.bad);
  lua_pushstring(L, k.why);
  return 2;
}

/* Do the upvalues of the jit function's own function hold what they held when
 * it was traced? jit.ups is {index, value, index, value, ...}; a negative index
 * stands for one that held nil. */
static bool graph_jit_same(lua_State *L) {
  int top = lua_gettop(L), n;
  bool same = true;
  lua_pushliteral(L, "ups");
  lua_rawget(L, 1);
  if (!lua_istable(L, -1)) {
    lua_settop(L, top);
    return true;
  }
  n = (int)lua_objlen(L, -1);
  lua_pushliteral(L, "f");
  lua_rawget(L, 1);
  for (int i = 1; i < n && same; i += 2) {
    int up;
    lua_rawgeti(L, top + 1, i);
    up = (int)lua_tointeger(L, -1);
    if (up < 0) lua_pushnil(L); /* it held nil */
    else lua_rawgeti(L, top + 1, i + 1);
    if (!lua_getupvalue(L, top + 2, up < 0 ? -up : up)) lua_pushnil(L);
    same = lua_rawequal(L, -1, -2);
    lua_settop(L, top + 2);
  }
  lua_settop(L, top);
  return same;
}

/* Far more frames than a program has; C's stack holds a multiple of them. */
#define GRAPH_DEEP 2000

/* jit.__call: the first trace that fits runs, else jit:slow(...); while
 * something records, the function itself is called. */
static int graph_jit(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  int nargs = lua_gettop(L) - 1;
  lua_Debug deep;
  luaL_checktype(L, 1, LUA_TTABLE);
  if (!st->c->trace && graph_jit_same(L)) {
    for (int i = 1;; i++) {
      int top = lua_gettop(L);
      lua_rawgeti(L, 1, i);
      if (lua_isnil(L, -1)) {
        lua_settop(L, top);
        break;
      }
      limn_lua_graph *u = limn_lua_check_graph(st, L, -1);
      limn_run_arg few[GRAPH_FEW];
      graph_call k;
      int n = LIMN_EGUARD;
      lua_pop(L, 1);
      if (u->g->nin > GRAPH_FEW) goto slow; /* jit.slow handles it */
      lua_rawgeti(L, 1, i);
      lua_insert(L, 1); /* graph, jit, arguments */
      graph_setup(st, L, u, &k, few);
      k.soft = true;
      graph_args(&k, L, 3);
      graph_ranks(&k, L);
      if (!k.bad) n = graph_run(&k, L, NULL, 0);
      if (n >= 0) return n;
      if (!k.bad && n != LIMN_EGUARD && n != LIMN_ETRACE)
        return limn_lua_raise(st, L);
      lua_remove(L, 1);
      lua_settop(L, top);
    }
  }
slow:
  if (st->c->trace && lua_getstack(L, GRAPH_DEEP, &deep))
    return limn_lua_fail(st, L, "a jit function may call itself without end",
                         "jit functions are nested too deep");
  lua_pushstring(L, st->c->trace ? "f" : "slow");
  lua_rawget(L, 1);
  if (st->c->trace) {
    lua_replace(L, 1);
  } else {
    lua_insert(L, 1);
    nargs++;
  }
  lua_call(L, nargs, LUA_MULTRET);
  return lua_gettop(L);
}

/* Where output i of run_into goes: the handle's own memory, or where something
 * else holds that (and no argument, which the run refuses), new memory, which
 * a handle on the stack owns until the run has succeeded. */
static limn_tensor *graph_target(graph_call *k, lua_State *L, int outs,
                                 uint32_t i, limn_tensor *const *into) {
  limn_lua *st = k->st;
  limn_graph *g = k->u->g;
  limn_handle *h, *fresh;
  limn_shape s;
  char got[300];
  lua_rawgeti(L, outs, (int)i + 1);
  h = limn_lua_to(st, L, -1, LIMN_U_TENSOR);
  if (!h || !h->t)
    limn_lua_fail(st, L, NULL, "run_into: output %u needs a tensor, not %s",
                  i + 1, limn_lua_what(st, L, -1, got, sizeof got));
  if (h->flags & LIMN_H_ROW)
    limn_lua_fail(st, L, "give it a tensor of its own, then x[i] = y",
                  "run_into: output %u is a part that was taken out of a "
                  "tensor; the result would be lost", i + 1);
  lua_pop(L, 1);
  if (h->t->refs == 1 && h->t->st->refs == 1 && !h->t->st->borrowed)
    return h->t;
  for (uint32_t j = 0; j < g->nin; j++)
    if (!g->in[j].number && k->in[j].t->st == h->t->st) return h->t;
  for (uint32_t j = 0; j < i; j++)
    if (into[j] && into[j]->st == h->t->st) return h->t;
  luaL_checkstack(L, 4, "run_into");
  fresh = limn_lua_new_tensor(st, L);
  s = limn_tensor_shape(h->t);
  limn_lua_check(st, L, limn_tensor_new(st->c, h->t->st->dev, h->t->dtype, &s,
                                        &fresh->t));
  return fresh->t;
}

/* The run has succeeded: the handles have their new values. */
static void graph_settle(graph_call *k, lua_State *L, int outs,
                         limn_tensor *const *into) {
  for (uint32_t i = 0; i < k->u->g->nout; i++) {
    limn_handle *h;
    if (!into[i]) continue;
    lua_rawgeti(L, outs, (int)i + 1);
    h = limn_lua_to(k->st, L, -1, LIMN_U_TENSOR);
    lua_pop(L, 1);
    limn_lua_moved(k->st, h);
    if (h->t == into[i]) continue;
    limn_tensor_retain(into[i]);
    limn_tensor_release(h->t);
    h->t = into[i];
  }
}

/* graph:run_into({outs}, ...): the tensors get the results as their values, in
 * their own memory where nothing else holds it; unchanged if the run fails. */
static int graph_m_run_into(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_lua_graph *u = limn_lua_check_graph(st, L, 1);
  limn_graph *g = u->g;
  limn_run_arg few[GRAPH_FEW];
  limn_tensor *few_t[GRAPH_FEW], **into = few_t;
  graph_call k;
  int n, outs = 2;
  if (st->c->trace)
    return limn_lua_fail(st, L, "call the graph", "run_into writes to "
                         "tensors, which nothing can record");
  luaL_checktype(L, 2, LUA_TTABLE);
  if (g->nout > GRAPH_FEW) {
    into = lua_newuserdata(L, g->nout * sizeof(limn_tensor *));
    lua_insert(L, 2);
    outs = 3;
  }
  graph_setup(st, L, u, &k, few);
  if (g->nin > GRAPH_FEW) outs++;
  graph_args(&k, L, outs + 1);
  if (lua_objlen(L, outs) > g->nout)
    return limn_lua_fail(st, L, NULL, "run_into: %d tensors for %d result%s",
                         (int)lua_objlen(L, outs), (int)g->nout,
                         g->nout == 1 ? "" : "s");
  for (uint32_t i = 0; i < g->nout; i++)
    into[i] = graph_out_tensor(g, i) ? graph_target(&k, L, outs, i, into)
                                     : NULL;
  n = graph_run(&k, L, into, outs);
  if (n < 0) return limn_lua_raise(st, L);
  graph_settle(&k, L, outs, into);
  return n;
}

static int graph_gc(lua_State *L) {
  limn_lua_graph *u = lua_touserdata(L, 1);
  limn_graph *g = u->g;
  u->g = NULL;
  limn_graph_release(g);
  return 0;
}

static int graph_prepare(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_lua_graph *u = limn_lua_check_graph(st, L, 1);
  limn_run_arg few[GRAPH_FEW];
  graph_call k;
  graph_setup(st, L, u, &k, few);
  graph_args(&k, L, 2 + (u->g->nin > GRAPH_FEW));
  limn_lua_check(st, L, limn_graph_prepare(u->g, u->dev, k.in));
  lua_settop(L, 1);
  return 1;
}

static int graph_explain(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_lua_graph *u = limn_lua_check_graph(st, L, 1);
  limn_run_arg few[GRAPH_FEW];
  graph_call k;
  limn_str s;
  int rc;
  graph_setup(st, L, u, &k, few);
  graph_args(&k, L, 2 + (u->g->nin > GRAPH_FEW));
  limn_str_init(&s, st->c);
  rc = limn_graph_explain(u->g, u->dev, k.in, &s);
  if (rc >= 0) lua_pushlstring(L, s.s ? s.s : "", s.len);
  limn_str_free(&s);
  limn_lua_check(st, L, rc);
  return 1;
}

static const luaL_Reg graph_methods[] = {{"run_into", graph_m_run_into},
                                         {"prepare", graph_prepare},
                                         {"explain", graph_explain},
                                         {NULL, NULL}};
static const luaL_Reg graph_meta[] = {
    {"__call", graph_m_call}, {"__gc", graph_gc}, {NULL, NULL}};
static const luaL_Reg graph_functions[] = {
    {"try", graph_try}, {"jit", graph_jit}, {"run", graph_direct},
    {"fits", graph_fits},
    {NULL, NULL}};

void limn_lua_open_graph(limn_lua *st, lua_State *L) {
  limn_lua_register(st, L, graph_functions);
  lua_rawgeti(L, LUA_REGISTRYINDEX, st->ref_mt[LIMN_U_GRAPH]);
  limn_lua_register(st, L, graph_meta);
  lua_newtable(L);
  limn_lua_register(st, L, graph_methods);
  lua_setfield(L, -2, "__index");
  lua_pop(L, 1);
  limn_lua_open_info(st, L);
}
