/* What a graph says of itself: text, inputs, cells, captures, statistics. */
#include "lua_core.h"

#include <stdio.h>

/* graph:text([lines]): the printed form */
static int info_text(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_lua_graph *u = limn_lua_check_graph(st, L, 1);
  limn_str s;
  int rc;
  limn_str_init(&s, st->c);
  limn_graph_dump(u->g, &s, lua_isnoneornil(L, 2) || lua_toboolean(L, 2));
  rc = s.rc;
  if (rc >= 0) lua_pushlstring(L, s.s ? s.s : "", s.len);
  limn_str_free(&s);
  limn_lua_check(st, L, rc);
  return 1;
}

/* graph:on(device): the same graph, run there */
static int info_on(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_lua_graph *u = limn_lua_check_graph(st, L, 1), *other;
  limn_device *dev;
  if (limn_lua_tracing(st))
    return limn_lua_fail(st, L, NULL, "on(device) would write a device into "
                         "the trace");
  limn_lua_check(st, L, limn_device_find(st->c, luaL_checkstring(L, 2), &dev));
  other = limn_lua_new(st, L, LIMN_U_GRAPH, sizeof *other);
  limn_graph_retain(u->g);
  other->g = u->g, other->dev = dev;
  lua_getfenv(L, 1);
  lua_setfenv(L, -2);
  return 1;
}

static int info_mode(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_lua_graph *u = limn_lua_check_graph(st, L, 1);
  u->g->mode_override = (int)lua_tointeger(L, lua_upvalueindex(2));
  lua_settop(L, 1);
  return 1;
}

/* data(graph): the table that goes with it */
static int info_data(lua_State *L) {
  limn_lua_check_graph(limn_lua_state(L), L, 1);
  lua_getfenv(L, 1);
  return 1;
}

static int info_name(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  lua_pushstring(L, limn_lua_check_graph(st, L, 1)->g->name);
  return 1;
}

static void info_set_string(lua_State *L, const char *key, const char *s) {
  lua_pushstring(L, s ? s : "");
  lua_setfield(L, -2, key);
}

/* graph:captures(): list of {name, value, where} */
static int info_captures(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_graph *g = limn_lua_check_graph(st, L, 1)->g;
  lua_newtable(L);
  for (uint32_t i = 0; i < g->nconst; i++) {
    limn_handle *h;
    lua_newtable(L);
    info_set_string(L, "name", limn_graph_text(g, g->konst[i].name));
    info_set_string(L, "where", limn_graph_text(g, g->konst[i].line));
    h = limn_lua_new_tensor(st, L);
    h->t = g->konst[i].value;
    limn_tensor_retain(h->t);
    lua_setfield(L, -2, "value");
    lua_pushboolean(L, g->konst[i].watch && g->konst[i].watch->changed);
    lua_setfield(L, -2, "changed");
    lua_rawseti(L, -2, (int)i + 1);
  }
  return 1;
}

/* graph:inputs(): list of {name, rank, number, dims} */
static int info_inputs(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_graph *g = limn_lua_check_graph(st, L, 1)->g;
  lua_newtable(L);
  for (uint32_t i = 0; i < g->nin; i++) {
    int rank = limn_graph_node(g, g->in[i].ref)->rank;
    lua_newtable(L);
    info_set_string(L, "name", limn_graph_text(g, g->in[i].name));
    lua_pushinteger(L, rank);
    lua_setfield(L, -2, "rank");
    lua_pushboolean(L, g->in[i].number);
    lua_setfield(L, -2, "number");
    lua_newtable(L);
    for (int d = 0; d < rank; d++) {
      if (g->in[i].dim[d])
        lua_pushstring(L, limn_graph_text(g, g->in[i].dim[d]));
      else
        lua_pushboolean(L, 0);
      lua_rawseti(L, -2, d + 1);
    }
    lua_setfield(L, -2, "dims");
    lua_rawseti(L, -2, (int)i + 1);
  }
  return 1;
}

/* graph_cells(graph): list of {name, cell, written} in the graph's order */
static int info_cells(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_graph *g = limn_lua_check_graph(st, L, 1)->g;
  lua_newtable(L);
  for (uint32_t i = 0; i < g->ncell; i++) {
    limn_cell **p;
    const char *name = limn_graph_text(g, g->cell[i].name);
    if (!*name && g->cell[i].cell->name) name = g->cell[i].cell->name;
    lua_newtable(L);
    info_set_string(L, "name", name);
    p = limn_lua_new(st, L, LIMN_U_CELL, sizeof *p);
    *p = g->cell[i].cell;
    limn_cell_retain(*p);
    lua_setfield(L, -2, "cell");
    lua_pushboolean(L, g->cell[i].write.tag != LIMN_A_NONE);
    lua_setfield(L, -2, "written");
    lua_rawseti(L, -2, (int)i + 1);
  }
  return 1;
}

static void info_set_number(lua_State *L, const char *key, double v) {
  lua_pushnumber(L, v);
  lua_setfield(L, -2, key);
}

/* graph:stats() */
static int info_stats(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_graph *g = limn_lua_check_graph(st, L, 1)->g;
  limn_graph_stats s = {0};
  limn_graph_stats_get(g, &s);
  lua_newtable(L);
  info_set_number(L, "runs", (double)s.runs);
  info_set_number(L, "plans", (double)s.plans);
  info_set_number(L, "hits", (double)s.hits);
  info_set_number(L, "evicted", (double)s.evicted);
  info_set_number(L, "entries", s.entries);
  info_set_number(L, "bytes", (double)s.bytes);
  info_set_number(L, "nodes", g->nnode);
  info_set_number(L, "guards", g->nguard);
  lua_newtable(L);
  for (uint32_t i = 0; i < LIMN_MIN(s.nmiss, 8); i++) {
    lua_pushstring(L, s.miss[i]);
    lua_rawseti(L, -2, (int)i + 1);
  }
  lua_setfield(L, -2, "misses");
  return 1;
}

/* graph_kept(graph): the values of limn.debug {keep = true} by name */
static int info_kept(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_graph *g = limn_lua_check_graph(st, L, 1)->g;
  lua_newtable(L);
  for (uint32_t i = 0;; i++) {
    limn_tensor *t;
    const char *name = limn_graph_kept(g, i, &t);
    limn_handle *h;
    if (!name) return 1;
    if (!t) continue;
    h = limn_lua_new_tensor(st, L);
    h->t = t;
    limn_tensor_retain(t);
    lua_setfield(L, -2, name);
  }
}

static int info_forget(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_graph_forget(limn_lua_check_graph(st, L, 1)->g);
  lua_settop(L, 1);
  return 1;
}

static int info_verify(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_lua_check(st, L, limn_graph_verify(limn_lua_check_graph(st, L, 1)->g));
  lua_settop(L, 1);
  return 1;
}

/* counters(): what the context has counted */
static int info_counters(lua_State *L) {
  limn_context *c = limn_lua_state(L)->c;
  lua_newtable(L);
  info_set_number(L, "plans", (double)c->count.plans);
  info_set_number(L, "plan_hits", (double)c->count.plan_hits);
  info_set_number(L, "compiles", (double)c->count.compiles);
  info_set_number(L, "records", (double)c->count.records);
  info_set_number(L, "replays", (double)c->count.replays);
  info_set_number(L, "uploads", (double)c->count.uploads);
  info_set_number(L, "downloads", (double)c->count.downloads);
  info_set_number(L, "kernels", (double)c->count.kernels);
  info_set_number(L, "copies", (double)c->count.copies);
  info_set_number(L, "allocs", (double)c->count.allocs);
  info_set_number(L, "bytes", (double)c->bytes);
  info_set_number(L, "device_bytes", (double)c->device_bytes);
  info_set_number(L, "draws", (double)c->draws);
  return 1;
}

/* whole(x): whether x, or the example it stands for, has an integer dtype */
static int info_whole(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_value v;
  const limn_type *hint;
  int dtype = -1;
  if (limn_lua_value(st, L, 1, &v)) {
    if (v.tag == LIMN_X_TENSOR) dtype = v.t->dtype;
    if (v.tag == LIMN_X_CELL) dtype = v.cell->dtype;
    if (v.tag == LIMN_X_TRACED && (hint = limn_trace_hint(v.trace, v.ref)))
      dtype = hint->dtype;
  }
  lua_pushboolean(L, dtype >= 0 && limn_dtype_int(dtype));
  return 1;
}

static const luaL_Reg info_methods[] = {
    {"text", info_text},     {"on", info_on},
    {"captures", info_captures}, {"inputs", info_inputs},
    {"stats", info_stats},   {"forget", info_forget},
    {"verify", info_verify}, {NULL, NULL}};
/* set_instead(table): hints by name for methods that tensors have not */
static int info_set_instead(lua_State *L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_settop(L, 1);
  lua_setfield(L, LUA_REGISTRYINDEX, "limn.instead");
  return 0;
}

static const luaL_Reg info_functions[] = {
    {"graph_cells", info_cells}, {"graph_name", info_name},
    {"graph_kept", info_kept},   {"graph_data", info_data},
    {"counters", info_counters}, {"whole", info_whole},
    {"set_instead", info_set_instead},
    {NULL, NULL}};

void limn_lua_open_info(limn_lua *st, lua_State *L) {
  limn_lua_register(st, L, info_functions);
  lua_rawgeti(L, LUA_REGISTRYINDEX, st->ref_mt[LIMN_U_GRAPH]);
  lua_getfield(L, -1, "__index");
  limn_lua_register(st, L, info_methods);
  for (int k = 0; k < 2; k++) {
    lua_pushlightuserdata(L, st);
    lua_pushinteger(L, k);
    lua_pushcclosure(L, info_mode, 2);
    lua_setfield(L, -2, k ? "train" : "eval");
  }
  lua_pop(L, 1);
  lua_pushlightuserdata(L, st);
  lua_pushcclosure(L, info_text, 1);
  lua_setfield(L, -2, "__tostring");
  lua_pop(L, 1);
}
