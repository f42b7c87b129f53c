/* Traces and tapes from Lua: inputs, structure, begin and end. */
#include "lua_core.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct {
  limn_trace *t;
} trace_ud;

/* -- Begin and end -- */

static trace_ud *trace_check(limn_lua *st, lua_State *L, int i) {
  trace_ud *u = limn_lua_to(st, L, i, LIMN_U_TRACE);
  if (!u || !u->t) limn_lua_fail(st, L, NULL, "a trace is wanted");
  return u;
}

limn_trace *limn_lua_check_trace(limn_lua *st, lua_State *L, int i) {
  return trace_check(st, L, i)->t;
}

/* -- Coroutines --
 *
 * A coroutine that yields while its function is traced may never come back.
 * Whoever calls limn next ends the trace; the coroutine gets an error when it
 * goes on. The main coroutine cannot yield. */

static void trace_note(limn_lua *st, lua_State *L) {
  if (lua_pushthread(L)) {
    lua_pop(L, 1);
    return;
  }
  luaL_unref(L, LUA_REGISTRYINDEX, st->ref_tracer);
  st->ref_tracer = luaL_ref(L, LUA_REGISTRYINDEX);
  st->tracer = L;
}

void limn_lua_left(limn_lua *st) {
  limn_trace *t = st->c->trace;
  lua_State *L = st->L;
  if (lua_status(st->tracer) != LUA_YIELD) return;
  st->tracer = NULL;
  while (t && t->outer) t = t->outer;
  if (t) limn_trace_abort(t);
  luaL_checkstack(L, 4, "limn");
  lua_rawgeti(L, LUA_REGISTRYINDEX, st->ref_left);
  if (lua_isfunction(L, -1)) lua_call(L, 0, 0);
  else lua_pop(L, 1);
}

/* on_left(f): f() is called when a trace was ended like this */
static int trace_on_left(lua_State *L) {
  return limn_lua_keep(L, LUA_TFUNCTION, &limn_lua_state(L)->ref_left);
}

/* trace_begin(name, kind): kind is "trace", "tape" or "region" */
static int trace_begin(lua_State *L) {
  static const char *const kinds[] = {"trace", "tape", "region", NULL};
  limn_lua *st = limn_lua_state(L);
  const char *name = luaL_checkstring(L, 1);
  int kind = luaL_checkoption(L, 2, "trace", kinds);
  trace_ud *u;
  if (kind != 1 && st->ref_maker == LUA_NOREF)
    return limn_lua_fail(st, L, "saved graphs load and run without it",
                         "tracing needs LuaJIT's ffi library, which this host "
                         "does not have");
  u = limn_lua_new(st, L, LIMN_U_TRACE, sizeof *u);
  limn_lua_check(st, L, limn_trace_begin(st->c, name, kind == 1, kind == 2,
                                         &u->t));
  if (kind == 0) trace_note(st, L);
  return 1;
}

static int trace_abort(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_trace_abort(trace_check(st, L, 1)->t);
  if (!limn_lua_tracing(st)) st->tracer = NULL;
  return 0;
}

static int trace_strict(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  trace_check(st, L, 1)->t->strict = lua_toboolean(L, 2);
  return 0;
}

static int trace_gc(lua_State *L) {
  trace_ud *u = lua_touserdata(L, 1);
  limn_trace *t = u->t;
  u->t = NULL;
  if (!t) return 0;
  limn_trace_abort(t);
  limn_trace_release(t);
  return 0;
}

int limn_lua_push_input(limn_lua *st, lua_State *L, limn_trace *t,
                        const char *name, const limn_type *hint) {
  limn_handle *h = limn_lua_new_tensor(st, L);
  limn_ref r;
  limn_lua_check(st, L, limn_trace_input(t, name, hint, &r));
  h->trace = t, h->ref = r, h->flags = LIMN_H_ARG;
  limn_trace_retain(t);
  return 1;
}

void limn_lua_hint(limn_lua *st, lua_State *L, int i, const char *who,
                   const char *what, limn_type *out) {
  limn_value v;
  const limn_type *hint;
  memset(out, 0, sizeof *out);
  limn_lua_operand(st, L, i, who, what, &v);
  if (v.tag == LIMN_X_TRACED) { /* of this trace or an outer one */
    hint = limn_trace_hint(v.trace, v.ref);
    if (!hint) limn_lua_raise(st, L);
    else *out = *hint;
  } else if (v.tag == LIMN_X_TENSOR) {
    *out = limn_type_of(v.t);
  } else {
    out->kind = LIMN_V_TENSOR;
    out->dtype = (uint8_t)v.cell->dtype;
    out->shape = v.cell->shape;
  }
}

/* trace_input(trace, name, example): a placeholder */
static int trace_input(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_trace *t = trace_check(st, L, 1)->t;
  const char *name = luaL_checkstring(L, 2);
  limn_type hint;
  limn_lua_hint(st, L, 3, "trace", name, &hint);
  return limn_lua_push_input(st, L, t, name, &hint);
}

/* trace_spec(trace, name, dtype, sizes, names): names[d] or false */
static int trace_spec(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_trace *t = trace_check(st, L, 1)->t;
  const char *name = luaL_checkstring(L, 2), *dtype = luaL_checkstring(L, 3);
  limn_graph_input *in;
  limn_type hint = {0};
  int d = limn_dtype_find(dtype), n = (int)lua_objlen(L, 4);
  if (d < 0)
    return limn_lua_fail(st, L, NULL, "spec: there is no dtype '%s'", dtype);
  if (n > LIMN_MAXDIM)
    return limn_lua_fail(st, L, NULL, "spec: at most %d dims", LIMN_MAXDIM);
  hint.kind = LIMN_V_TENSOR;
  hint.dtype = (uint8_t)d;
  hint.shape.ndim = n;
  for (int k = 0; k < n; k++) {
    lua_rawgeti(L, 4, k + 1);
    hint.shape.d[k] = (int64_t)lua_tonumber(L, -1);
    lua_pop(L, 1);
  }
  limn_lua_push_input(st, L, t, name, &hint);
  in = &t->g->in[t->g->nin - 1];
  for (int k = 0; k < n; k++) {
    lua_rawgeti(L, 5, k + 1);
    if (lua_type(L, -1) == LUA_TSTRING)
      in->dim[k] = limn_graph_str(t->g, lua_tostring(L, -1));
    lua_pop(L, 1);
  }
  return 1;
}

/* trace_number(trace, name, hint): a number input */
static int trace_number(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_trace *t = trace_check(st, L, 1)->t;
  limn_ref r;
  limn_lua_check(st, L, limn_trace_number(t, luaL_checkstring(L, 2),
                                          luaL_checknumber(L, 3), &r));
  limn_lua_push_dim(st, L, t, r);
  return 1;
}

/* -- Structure -- */

typedef struct {
  limn_lua *st;
  limn_graph *g;
  limn_trace *t;
  bool in;
  int ids; /* stack index of the table of static objects */
  uint32_t leaf;
} trace_walk;

static int trace_cmp(const void *a, const void *b) {
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* A list or table without a metatable, or x.shape. */
static bool trace_plain(limn_lua *st, lua_State *L, int i) {
  bool same;
  if (!lua_istable(L, i)) return false;
  if (!lua_getmetatable(L, i)) return true;
  lua_rawgeti(L, LUA_REGISTRYINDEX, st->ref_shape);
  same = lua_rawequal(L, -1, -2);
  lua_pop(L, 2);
  return same;
}

static void trace_add_leaf(trace_walk *w, lua_State *L, limn_arg a) {
  limn_graph *g = w->g;
  w->leaf++;
  if (!w->in) {
    limn_lua_check(w->st, L, limn_graph_add_out(g, a));
    return;
  }
  limn_lua_check(w->st, L, limn_grow(g->c, &g->statics, &g->static_cap,
                                     g->nstatic + 1, sizeof *g->statics));
  g->statics[g->nstatic++] = a;
}

static void trace_leaf(trace_walk *w, lua_State *L, int i) {
  limn_value v;
  limn_arg a = limn_none();
  char got[300];
  if (lua_isnil(L, i)) {
    trace_add_leaf(w, L, a);
    return;
  }
  if (w->in && limn_lua_to(w->st, L, i, LIMN_U_CELL)) v.tag = LIMN_A_NONE;
  else if (!limn_lua_value(w->st, L, i, &v)) v.tag = LIMN_A_NONE;
  if (v.tag == LIMN_A_NONE) {
    if (!w->in)
      limn_lua_fail(w->st, L, "tensors, numbers, strings, booleans, nil and "
                    "plain tables of them can be returned",
                    "a traced function cannot return %s",
                    limn_lua_what(w->st, L, i, got, sizeof got));
    lua_pushvalue(L, i); /* static by identity */
    lua_rawseti(L, w->ids, (int)w->leaf + 1);
    trace_add_leaf(w, L, a);
    return;
  }
  limn_lua_check(w->st, L, limn_trace_arg(w->t, &v, &a));
  trace_add_leaf(w, L, a);
}

static void trace_tree(trace_walk *w, lua_State *L, int i, uint32_t key);

static void trace_push_tree(trace_walk *w, lua_State *L, int tag, uint32_t n,
                            uint32_t key) {
  limn_graph *g = w->g;
  int rc = w->in ? limn_tree_push(g->c, &g->in_tree, &g->nin_tree,
                                  &g->in_tree_cap, tag, n, key)
                 : limn_tree_push(g->c, &g->out_tree, &g->nout_tree,
                                  &g->out_tree_cap, tag, n, key);
  limn_lua_check(w->st, L, rc);
}

/* A table with string keys: its keys sorted, 1..n among them as digits. */
static void trace_dict(trace_walk *w, lua_State *L, int i, uint32_t key) {
  int n = 0, cap = 0;
  const char **keys;
  lua_pushnil(L);
  while (lua_next(L, i)) lua_pop(L, 1), cap++;
  keys = lua_newuserdata(L, (size_t)cap * sizeof *keys + 8);
  lua_newtable(L); /* anchors the texts; keys of the table by text */
  lua_pushnil(L);
  while (lua_next(L, i)) {
    lua_pop(L, 1);
    if (lua_type(L, -1) != LUA_TSTRING && lua_type(L, -1) != LUA_TNUMBER)
      limn_lua_fail(w->st, L, NULL, "a table with a %s as key cannot go %s a "
                    "trace", luaL_typename(L, -1), w->in ? "into" : "out of");
    lua_pushvalue(L, -1); /* lua_tolstring must not change the key */
    keys[n] = lua_tostring(L, -1);
    if (!*keys[n] || strlen(keys[n]) != lua_objlen(L, -1))
      limn_lua_fail(w->st, L, NULL, "a table with a key that is %s cannot go "
                    "%s a trace", *keys[n] ? "no text" : "empty",
                    w->in ? "into" : "out of");
    lua_pushvalue(L, -2);
    lua_rawset(L, -4);
    n++;
  }
  qsort(keys, (size_t)n, sizeof *keys, trace_cmp);
  for (int k = 1; k < n; k++)
    if (!strcmp(keys[k - 1], keys[k]))
      limn_lua_fail(w->st, L, NULL, "a table with the keys %s and \"%s\" "
                    "cannot go %s a trace", keys[k], keys[k],
                    w->in ? "into" : "out of");
  trace_push_tree(w, L, LIMN_T_DICT, (uint32_t)n, key);
  for (int k = 0; k < n; k++) {
    uint32_t at = limn_graph_str(w->g, keys[k]);
    lua_pushstring(L, keys[k]);
    lua_rawget(L, -2);
    lua_rawget(L, i);
    trace_tree(w, L, lua_gettop(L), at);
    lua_pop(L, 1);
  }
  lua_pop(L, 2);
}

static void trace_tree(trace_walk *w, lua_State *L, int i, uint32_t key) {
  luaL_checkstack(L, 12, "tables are nested too deep");
  if (!trace_plain(w->st, L, i)) {
    trace_push_tree(w, L, LIMN_T_LEAF, 0, key);
    trace_leaf(w, L, i);
    return;
  }
  if (lua_gettop(L) > 800)
    limn_lua_fail(w->st, L, NULL, "tables are nested too deep, or in a circle");
  if (limn_lua_has_keys(L, i)) {
    trace_dict(w, L, i, key);
    return;
  }
  int n = (int)lua_objlen(L, i);
  trace_push_tree(w, L, LIMN_T_LIST, (uint32_t)n, key);
  for (int k = 1; k <= n; k++) {
    lua_rawgeti(L, i, k);
    trace_tree(w, L, lua_gettop(L), 0);
    lua_pop(L, 1);
  }
}

/* The packed list {n = , ...} at i as the root of a tree. */
static void trace_root(trace_walk *w, lua_State *L, int i) {
  int n;
  lua_getfield(L, i, "n");
  n = (int)lua_tointeger(L, -1);
  lua_pop(L, 1);
  trace_push_tree(w, L, LIMN_T_LIST, (uint32_t)n, 0);
  for (int k = 1; k <= n; k++) {
    lua_rawgeti(L, i, k);
    trace_tree(w, L, lua_gettop(L), 0);
    lua_pop(L, 1);
  }
}

/* trace_signature(trace, packed arguments): the table of static objects */
static int trace_signature(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_trace *t = trace_check(st, L, 1)->t;
  trace_walk w = {st, t->g, t, true, 3, 0};
  lua_settop(L, 2);
  lua_newtable(L);
  trace_root(&w, L, 2);
  lua_settop(L, 3);
  return 1;
}

/* trace_end(trace, packed results): the graph */
static int trace_end(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  trace_ud *u = trace_check(st, L, 1);
  limn_graph *g;
  trace_walk w = {st, u->t->g, u->t, false, 0, 0};
  if (u->t->ended)
    return limn_lua_fail(st, L, "yield outside the trace", "a traced function "
                         "cannot yield: it runs once, to be recorded");
  lua_settop(L, 2);
  trace_root(&w, L, 2);
  limn_lua_check(st, L, limn_trace_end(u->t, &g));
  if (!limn_lua_tracing(st)) st->tracer = NULL;
  limn_lua_push_graph(st, L, g);
  return 1;
}

/* trace_lines(tape): list of {line, value} of what it has computed */
static int trace_lines(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_trace *t = trace_check(st, L, 1)->t;
  int n = 0;
  lua_newtable(L);
  for (limn_ref r = 1; r <= t->g->nnode && r <= t->nvalue; r++) {
    const limn_node *nd = limn_graph_node(t->g, r);
    limn_handle *h;
    if (!t->value[r - 1] || !(nd->flags & LIMN_N_USER) || !nd->line) continue;
    lua_newtable(L);
    lua_pushstring(L, limn_graph_text(t->g, nd->line));
    lua_setfield(L, -2, "line");
    h = limn_lua_new_tensor(st, L);
    h->t = t->value[r - 1];
    limn_tensor_retain(h->t);
    lua_setfield(L, -2, "value");
    lua_rawseti(L, -2, ++n);
  }
  return 1;
}

/* tracing(): does a trace record? recording(): "trace", "tape" or nil */
static int trace_tracing(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  lua_pushboolean(L, limn_lua_tracing(st) != NULL);
  return 1;
}

static int trace_recording(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  if (!st->c->trace) return 0;
  lua_pushstring(L, st->c->trace->tape ? "tape" : "trace");
  return 1;
}

/* of_trace(v [, trace]): v is a placeholder (of that trace) */
static int trace_of(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_handle *h = limn_lua_to(st, L, 1, LIMN_U_TENSOR);
  trace_ud *u = limn_lua_to(st, L, 2, LIMN_U_TRACE);
  if (!h) h = limn_lua_dim(st, L, 1);
  lua_pushboolean(L, h && h->trace && (!u || h->trace == u->t));
  return 1;
}

/* is_own(v): v is a tensor of the innermost trace, made while it records */
static int trace_is_own(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_handle *h = limn_lua_to(st, L, 1, LIMN_U_TENSOR);
  lua_pushboolean(L, h && h->trace && h->trace == st->c->trace &&
                         !(h->flags & LIMN_H_ARG));
  return 1;
}

/* hint_of(tensor): dtype and sizes of the example's value */
static int trace_hint_of(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_type ty;
  limn_lua_hint(st, L, 1, "hint", "x", &ty);
  lua_pushstring(L, limn_dtype_name(ty.dtype));
  lua_createtable(L, ty.shape.ndim, 0);
  for (int k = 0; k < ty.shape.ndim; k++) {
    lua_pushnumber(L, (double)ty.shape.d[k]);
    lua_rawseti(L, -2, k + 1);
  }
  return 2;
}

/* trace_modules(table or nil): where path_push notes the modules it meets */
static int trace_modules(lua_State *L) {
  lua_settop(L, 1);
  lua_getfield(L, LUA_REGISTRYINDEX, "limn.modules");
  lua_pushvalue(L, 1);
  lua_setfield(L, LUA_REGISTRYINDEX, "limn.modules");
  return 1;
}

static const luaL_Reg trace_functions[] = {
    {"trace_begin", trace_begin},       {"on_left", trace_on_left},
    {"trace_abort", trace_abort},       {"trace_strict", trace_strict},
    {"trace_input", trace_input},       {"trace_spec", trace_spec},
    {"trace_number", trace_number},     {"trace_signature", trace_signature},
    {"hint_of", trace_hint_of},         {"trace_modules", trace_modules},
    {"trace_lines", trace_lines},
    {"trace_end", trace_end},           {"tracing", trace_tracing},
    {"recording", trace_recording},     {"of_trace", trace_of},
    {"is_own", trace_is_own},
    {NULL, NULL}};

void limn_lua_open_trace(limn_lua *st, lua_State *L) {
  limn_lua_register(st, L, trace_functions);
  lua_rawgeti(L, LUA_REGISTRYINDEX, st->ref_mt[LIMN_U_TRACE]);
  lua_pushlightuserdata(L, st);
  lua_pushcclosure(L, trace_gc, 1);
  lua_setfield(L, -2, "__gc");
  lua_pop(L, 1);
}
