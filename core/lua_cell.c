/* Cells (parameters, buffers, optimizer state) and modes in Lua. */
#include "lua_core.h"

#include <stdio.h>

static const char *const cell_kinds[] = {"param", "buffer", "state", NULL};

static limn_cell *cell_check(limn_lua *st, lua_State *L, int i) {
  limn_cell **p = limn_lua_to(st, L, i, LIMN_U_CELL);
  char got[300];
  if (!p || !*p)
    limn_lua_fail(st, L, NULL, "a cell is wanted, not %s",
                  limn_lua_what(st, L, i, got, sizeof got));
  return *p;
}

/* cell(kind, tensor [, name]) */
static int cell_new(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  int kind = luaL_checkoption(L, 1, NULL, cell_kinds);
  limn_tensor *t;
  limn_cell **p;
  char got[300];
  if (limn_lua_tracing(st))
    return limn_lua_fail(st, L,
                         "make it before, in the module's init for instance",
                         "a %s cannot be made while a trace records",
                         kind == LIMN_CELL_PARAM ? "parameter" : "cell");
  if (!limn_lua_to(st, L, 2, LIMN_U_TENSOR) &&
      !limn_lua_to(st, L, 2, LIMN_U_CELL))
    return limn_lua_fail(st, L, NULL, "a %s is made of a tensor, not %s",
                         kind == LIMN_CELL_PARAM ? "parameter" : "buffer",
                         limn_lua_what(st, L, 2, got, sizeof got));
  t = limn_lua_eager(st, L, 2, "cell");
  p = limn_lua_new(st, L, LIMN_U_CELL, sizeof *p);
  limn_lua_check(st, L, limn_cell_new(st->c, kind, t, p));
  if (lua_isstring(L, 3))
    limn_lua_check(st, L, limn_cell_set_name(*p, lua_tostring(L, 3)));
  return 1;
}

/* Give the cell a new value: recorded in a trace, at once in eager code. */
static void cell_set(limn_lua *st, lua_State *L, limn_cell *cell,
                     const limn_value *v) {
  limn_trace *t = limn_lua_tracing(st);
  limn_arg a;
  if (t) {
    limn_lua_check(st, L, limn_trace_arg(t, v, &a));
    limn_lua_check(st, L, limn_trace_cell_write(t, cell, a));
    return;
  }
  limn_lua_check(st, L, limn_assign(st->c, cell, v));
}

/* cell:assign(tensor or number) */
static int cell_assign(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_cell *cell = cell_check(st, L, 1);
  limn_value v, a[3];
  if (!limn_lua_value(st, L, 2, &v))
    limn_lua_operand(st, L, 2, "assign", "the value", &v);
  if (v.tag < LIMN_X_TENSOR ||
      (v.tag == LIMN_X_TRACED &&
       limn_graph_node(v.trace->g, v.ref)->kind != LIMN_V_TENSOR)) {
    memset(a, 0, sizeof a); /* a number: a tensor full of it */
    a[0].tag = LIMN_X_CELL, a[0].cell = cell;
    a[1] = v;
    limn_lua_apply(st, L, OP_full_like, a, 3, NULL);
    limn_lua_value(st, L, -1, &v);
  }
  cell_set(st, L, cell, &v);
  lua_settop(L, 1);
  return 1;
}

/* cell:value(): the value as a tensor */
static int cell_value(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  cell_check(st, L, 1);
  lua_getfield(L, 1, "clone");
  lua_pushvalue(L, 1);
  lua_call(L, 1, 1);
  return 1;
}

static int cell_index(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_cell *cell;
  const char *key;
  if (lua_type(L, 2) != LUA_TSTRING) return limn_lua_index(st, L);
  lua_pushvalue(L, 2);
  lua_rawget(L, lua_upvalueindex(2));
  if (!lua_isnil(L, -1)) return 1;
  cell = cell_check(st, L, 1);
  key = lua_tostring(L, 2);
  if (!strcmp(key, "name")) {
    if (cell->name) lua_pushstring(L, cell->name);
    else lua_pushnil(L);
    return 1;
  }
  if (!strcmp(key, "kind")) {
    lua_pushstring(L, cell_kinds[cell->kind]);
    return 1;
  }
  if (!strcmp(key, "frozen")) {
    lua_pushboolean(L, cell->frozen);
    return 1;
  }
  if (!strcmp(key, "version")) {
    lua_pushnumber(L, (double)cell->version);
    return 1;
  }
  if (!strcmp(key, "id")) { /* two handles of one cell have one id */
    lua_pushlightuserdata(L, cell);
    return 1;
  }
  lua_pushvalue(L, lua_upvalueindex(3)); /* as a tensor answers */
  lua_pushvalue(L, 1);
  lua_pushvalue(L, 2);
  lua_call(L, 2, 1);
  return 1;
}

static int cell_newindex(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_cell *cell = cell_check(st, L, 1);
  limn_value x = {0}, v;
  const char *key;
  if (lua_type(L, 2) == LUA_TSTRING) {
    key = lua_tostring(L, 2);
    if (!strcmp(key, "name")) {
      limn_lua_check(st, L, limn_cell_set_name(cell, lua_tostring(L, 3)));
    } else if (!strcmp(key, "frozen")) {
      cell->frozen = lua_toboolean(L, 3);
    } else {
      return limn_lua_fail(st, L, "cell:assign(t) gives it a value; name and "
                           "frozen can be set", "a cell has no field '%s'",
                           key);
    }
    return 0;
  }
  x.tag = LIMN_X_CELL, x.cell = cell;
  limn_lua_update(st, L, &x);
  limn_lua_value(st, L, -1, &v);
  cell_set(st, L, cell, &v);
  return 0;
}

static int cell_tostring(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_cell *cell = cell_check(st, L, 1);
  char shape[200];
  lua_pushfstring(L, "%s %s: %s %s%s", cell_kinds[cell->kind],
                  cell->name ? cell->name : "(no name)",
                  limn_dtype_name(cell->dtype),
                  limn_shape_text(shape, sizeof shape, cell->shape.ndim,
                                  cell->shape.d),
                  cell->frozen ? ", frozen" : "");
  return 1;
}

static int cell_gc(lua_State *L) {
  limn_cell **p = lua_touserdata(L, 1), *cell = *p;
  *p = NULL;
  limn_cell_release(cell);
  return 0;
}

/* same(a, b): are they the same cell? */
static int cell_same(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_cell **a = limn_lua_to(st, L, 1, LIMN_U_CELL);
  limn_cell **b = limn_lua_to(st, L, 2, LIMN_U_CELL);
  lua_pushboolean(L, a && b && *a == *b);
  return 1;
}

/* -- Modes -- */

/* mode([training [, name]]) */
static int mode_new(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_lua_mode *m = limn_lua_new(st, L, LIMN_U_MODE, sizeof *m);
  m->mode = limn_alloc(st->c, sizeof *m->mode);
  if (!m->mode) return limn_lua_raise(st, L);
  m->c = st->c;
  limn_context_retain(st->c);
  m->mode->refs = 1;
  m->mode->training = lua_toboolean(L, 1);
  snprintf(m->name, sizeof m->name, "%s",
           lua_type(L, 2) == LUA_TSTRING ? lua_tostring(L, 2) : "");
  return 1;
}

static limn_lua_mode *mode_check(limn_lua *st, lua_State *L) {
  limn_lua_mode *m = limn_lua_to(st, L, 1, LIMN_U_MODE);
  if (!m) limn_lua_fail(st, L, NULL, "a mode is wanted");
  return m;
}

/* The mode as a node of the trace. */
static limn_ref mode_node(limn_lua *st, lua_State *L, limn_trace *t,
                          limn_lua_mode *m) {
  limn_trace *root = t;
  limn_ref r;
  char name[32];
  bool taken = false; /* the root's mode has no path */
  while (root->region) root = root->outer;
  for (uint32_t k = 0; k < root->g->nmode; k++)
    taken |= !strcmp(limn_graph_text(root->g, root->g->mode[k].name), "self") &&
             root->g->mode[k].mode != m->mode;
  snprintf(name, sizeof name, taken ? "self%u" : "self", root->g->nmode + 1);
  limn_lua_check(st, L, limn_trace_mode(t, m->mode, *m->name ? m->name : name,
                                        &r));
  return r;
}

/* mode:get(): a boolean; in a trace with a guard */
static int mode_get(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_lua_mode *m = mode_check(st, L);
  limn_trace *t = limn_lua_tracing(st);
  limn_ref r;
  limn_arg a;
  lua_pushboolean(L, m->mode->training);
  if (!t) return 1;
  r = mode_node(st, L, t, m);
  if (!m->mode->training) {
    a = limn_aref(r);
    limn_lua_check(st, L, limn_trace_op(t, OP_logical_not, &a, 1, &r));
  }
  limn_lua_check(st, L, limn_trace_guard(t, limn_aref(r)));
  return 1;
}

/* mode:read(): a boolean, or the plan value of a trace */
static int mode_read(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_lua_mode *m = mode_check(st, L);
  limn_trace *t = limn_lua_tracing(st);
  if (t) limn_lua_push_dim(st, L, t, mode_node(st, L, t, m));
  else lua_pushboolean(L, m->mode->training);
  return 1;
}

static int mode_set(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  mode_check(st, L)->mode->training = lua_toboolean(L, 2);
  lua_settop(L, 1);
  return 1;
}

static int mode_index(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_lua_mode *m = mode_check(st, L);
  lua_pushvalue(L, 2);
  lua_rawget(L, lua_upvalueindex(2));
  if (!lua_isnil(L, -1) || lua_type(L, 2) != LUA_TSTRING) return 1;
  if (!strcmp(lua_tostring(L, 2), "name")) lua_pushstring(L, m->name);
  return 1;
}

static int mode_newindex(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_lua_mode *m = mode_check(st, L);
  if (lua_type(L, 2) != LUA_TSTRING || strcmp(lua_tostring(L, 2), "name"))
    return limn_lua_fail(st, L, NULL, "of a mode only the name can be set");
  snprintf(m->name, sizeof m->name, "%s", luaL_checkstring(L, 3));
  return 0;
}

static int mode_gc(lua_State *L) {
  limn_lua_mode *m = lua_touserdata(L, 1);
  limn_mode *mode = m->mode;
  m->mode = NULL;
  if (!mode) return 0;
  limn_mode_release(mode, m->c);
  limn_context_release(m->c);
  return 0;
}

static const luaL_Reg cell_functions[] = {
    {"cell", cell_new}, {"same", cell_same}, {"mode", mode_new}, {NULL, NULL}};
static const luaL_Reg cell_methods[] = {
    {"assign", cell_assign}, {"value", cell_value}, {NULL, NULL}};
static const luaL_Reg cell_meta[] = {{"__newindex", cell_newindex},
                                     {"__tostring", cell_tostring},
                                     {"__gc", cell_gc},
                                     {NULL, NULL}};
static const luaL_Reg mode_methods[] = {
    {"get", mode_get}, {"read", mode_read}, {"set", mode_set}, {NULL, NULL}};
static const luaL_Reg mode_meta[] = {
    {"__newindex", mode_newindex}, {"__gc", mode_gc}, {NULL, NULL}};

void limn_lua_open_cell(limn_lua *st, lua_State *L) {
  limn_lua_register(st, L, cell_functions);
  lua_rawgeti(L, LUA_REGISTRYINDEX, st->ref_cell_methods);
  limn_lua_register(st, L, cell_methods);
  lua_pop(L, 1);
  lua_rawgeti(L, LUA_REGISTRYINDEX, st->ref_mt[LIMN_U_CELL]);
  limn_lua_register(st, L, cell_meta);
  lua_pushlightuserdata(L, st);
  lua_rawgeti(L, LUA_REGISTRYINDEX, st->ref_cell_methods);
  lua_rawgeti(L, LUA_REGISTRYINDEX, st->ref_mt[LIMN_U_TENSOR]);
  lua_getfield(L, -1, "__index");
  lua_remove(L, -2);
  lua_pushcclosure(L, cell_index, 3);
  lua_setfield(L, -2, "__index");
  lua_pushliteral(L, "limn.cell");
  lua_setfield(L, -2, "__metatable");
  lua_pop(L, 1);
  lua_rawgeti(L, LUA_REGISTRYINDEX, st->ref_mt[LIMN_U_MODE]);
  limn_lua_register(st, L, mode_meta);
  lua_pushlightuserdata(L, st);
  lua_newtable(L);
  limn_lua_register(st, L, mode_methods);
  lua_pushcclosure(L, mode_index, 2);
  lua_setfield(L, -2, "__index");
  lua_pushliteral(L, "limn.mode");
  lua_setfield(L, -2, "__metatable");
  lua_pop(L, 1);
}
