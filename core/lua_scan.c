/* Scans with a given body, for layers that are scans. */
#include "lua_core.h"
#include "planner.h"

static void scan_list(limn_lua *st, lua_State *L, int i, limn_value *out) {
  int n = (int)lua_objlen(L, i);
  luaL_checktype(L, i, LUA_TTABLE);
  memset(out, 0, sizeof *out);
  out->tag = LIMN_A_LIST, out->n = n;
  out->list = lua_newuserdata(L, ((size_t)n + 1) * sizeof *out->list);
  for (int k = 0; k < n; k++) {
    lua_rawgeti(L, i, k + 1);
    limn_lua_operand(st, L, -1, "scan", "an operand", &out->list[k]);
    lua_pop(L, 1);
  }
}

/* scan_run(body, {carry}, {xs}, {outer}, reverse, n): the first n results of
 * the scan, which runs as one planned node; on a tape it is recorded as one */
static int scan_run(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_lua_graph *body = limn_lua_check_graph(st, L, 1);
  bool reverse = lua_toboolean(L, 5);
  uint32_t all = body->g->nout, n = (uint32_t)luaL_checkinteger(L, 6);
  limn_value list[3];
  limn_tensor **out = lua_newuserdata(L, (all + 1u) * sizeof *out);
  limn_handle **h = lua_newuserdata(L, (all + 1u) * sizeof *h);
  int rc;
  for (int i = 0; i < 3; i++) scan_list(st, L, 2 + i, &list[i]);
  if (n > all) return luaL_error(L, "scan_run: too many results");
  luaL_checkstack(L, (int)all + 8, "results of a scan");
  for (uint32_t i = 0; i < all; i++) h[i] = limn_lua_new_tensor(st, L);
  rc = limn_eager_scan(st->c, body->g, list, reverse, out);
  for (uint32_t i = 0; i < all && rc == 0; i++) h[i]->t = out[i];
  limn_lua_check(st, L, rc);
  limn_lua_press(st, L);
  lua_pop(L, (int)(all - n));
  return (int)n;
}

/* scan_widen(body, carried, stepped): the body with what its gradient needs as
 * further results */
static int scan_widen(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_lua_graph *body = limn_lua_check_graph(st, L, 1);
  limn_graph *wide;
  limn_lua_check(st, L,
                 limn_scan_widen(body->g, (uint32_t)luaL_checkinteger(L, 2),
                                 (uint32_t)luaL_checkinteger(L, 3), &wide));
  limn_lua_push_graph(st, L, wide);
  return 1;
}

static const luaL_Reg scan_functions[] = {
    {"scan_run", scan_run}, {"scan_widen", scan_widen}, {NULL, NULL}};

void limn_lua_open_scan(limn_lua *st, lua_State *L) {
  limn_lua_register(st, L, scan_functions);
}
