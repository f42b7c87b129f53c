/* Devices, random state, and limn.scope in Lua. */
#include "lua_core.h"

#include <stdio.h>

/* devices([look]): names; and a list of {name, description, kind}; and the
 * notes on what is missing, of which `look` finds all */
static int device_list(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_context *c = st->c;
  limn_lua_check(st, L, limn_devices_all(c));
  if (lua_toboolean(L, 1)) limn_devices_look(c);
  lua_newtable(L);
  lua_newtable(L);
  for (int i = 0; i < c->ndevices; i++) {
    limn_device *d = c->devices[i];
    lua_pushstring(L, d->name);
    lua_rawseti(L, -3, i + 1);
    lua_newtable(L);
    lua_pushstring(L, d->name);
    lua_setfield(L, -2, "name");
    lua_pushstring(L, d->description);
    lua_setfield(L, -2, "description");
    lua_pushstring(L, d->ops->kind);
    lua_setfield(L, -2, "kind");
    lua_pushnumber(L, (double)d->bytes);
    lua_setfield(L, -2, "bytes");
    lua_pushnumber(L, (double)d->launches);
    lua_setfield(L, -2, "launches");
    lua_rawseti(L, -2, i + 1);
  }
  lua_pushstring(L, c->device_notes);
  return 3;
}

static limn_device *device_arg(limn_lua *st, lua_State *L, int i) {
  limn_device *d;
  limn_lua_check(st, L, limn_device_find(st->c, luaL_checkstring(L, i), &d));
  return d;
}

/* wait([device]): until what was launched is done */
static int device_wait(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  if (!lua_isnoneornil(L, 1)) {
    limn_lua_check(st, L, limn_device_wait(device_arg(st, L, 1)));
    return 0;
  }
  for (int i = 0; i < st->c->ndevices; i++)
    limn_lua_check(st, L, limn_device_wait(st->c->devices[i]));
  return 0;
}

/* set_device(name or nil): where generators work; the name before */
static int device_set(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_device *d = lua_isnoneornil(L, 1) ? NULL : device_arg(st, L, 1);
  if (st->dev) lua_pushstring(L, st->dev->name);
  else lua_pushnil(L);
  st->dev = d;
  return 1;
}

/* seed(n) */
static int device_seed(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  double n = luaL_checknumber(L, 1);
  if (limn_lua_tracing(st))
    return limn_lua_fail(st, L, "seed before the trace, or before a run",
                         "random numbers cannot be seeded while a trace "
                         "records");
  limn_seed_set(st->c, (uint64_t)(int64_t)n);
  return 0;
}

/* policy{precise =, deterministic =, tf32 =, max_bytes =} */
static int device_policy(lua_State *L) {
  limn_context *c = limn_lua_state(L)->c;
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_getfield(L, 1, "precise");
  if (!lua_isnil(L, -1)) c->precise = lua_toboolean(L, -1);
  lua_getfield(L, 1, "deterministic");
  if (!lua_isnil(L, -1)) c->deterministic = lua_toboolean(L, -1);
  lua_getfield(L, 1, "tf32");
  if (!lua_isnil(L, -1)) c->tf32 = lua_toboolean(L, -1);
  lua_getfield(L, 1, "max_bytes");
  if (!lua_isnil(L, -1)) c->opt.max_bytes = (size_t)lua_tonumber(L, -1);
  return 0;
}

/* passes(text): those of LIMN_OPT from now on, for tests; a number sets what
 * an earlier call gave. Gives what was. */
static int device_passes(lua_State *L) {
  limn_context *c = limn_lua_state(L)->c;
  uint32_t old = c->flags.passes;
  if (lua_type(L, 1) == LUA_TNUMBER)
    c->flags.passes = (uint32_t)lua_tonumber(L, 1);
  else
    c->flags.passes = limn_flags_passes(luaL_checkstring(L, 1));
  lua_pushnumber(L, old);
  return 1;
}

/* draws([n]): the counter of random draws */
static int device_draws(lua_State *L) {
  limn_context *c = limn_lua_state(L)->c;
  lua_pushnumber(L, (double)c->draws);
  if (!lua_isnoneornil(L, 1)) c->draws = (uint64_t)luaL_checknumber(L, 1);
  return 1;
}

/* debug([bits]): LIMN_DEBUG_* from now on; gives what was */
static int device_debug(lua_State *L) {
  limn_context *c = limn_lua_state(L)->c;
  lua_pushnumber(L, c->flags.debug);
  if (!lua_isnoneornil(L, 1)) c->flags.debug = (uint32_t)luaL_checknumber(L, 1);
  return 1;
}

/* plans_limit(entries, bytes) */
static int device_plans_limit(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_plans_limit(st->c, (uint32_t)luaL_checknumber(L, 1),
                   (size_t)luaL_checknumber(L, 2));
  return 0;
}

static int device_version(lua_State *L) {
  lua_pushstring(L, limn_version());
  return 1;
}

/* -- limn.scope -- */

/* scope_enter(list): handles are noted in it from now on; gives what was */
static int device_scope_enter(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  lua_settop(L, 1);
  if (st->scope) {
    lua_rawgeti(L, LUA_REGISTRYINDEX, st->ref_scope);
    luaL_unref(L, LUA_REGISTRYINDEX, st->ref_scope);
  } else {
    lua_pushnil(L);
  }
  lua_pushvalue(L, 1);
  st->scope = !lua_isnil(L, -1);
  st->ref_scope = luaL_ref(L, LUA_REGISTRYINDEX);
  return 1;
}

/* scope_free(list, {[tensor] = true}): frees what is not kept */
static int device_scope_free(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  int n = (int)lua_objlen(L, 1);
  luaL_checktype(L, 1, LUA_TTABLE);
  luaL_checktype(L, 2, LUA_TTABLE);
  for (int k = 1; k <= n; k++) {
    limn_handle *h;
    lua_rawgeti(L, 1, k);
    h = limn_lua_to(st, L, -1, LIMN_U_TENSOR);
    lua_rawget(L, 2);
    if (h && !lua_toboolean(L, -1)) limn_lua_drop(h, true);
    lua_pop(L, 1);
  }
  return 0;
}

/* ops_info(): list of {name, sig, doc, meta, row, domain} of the op table */
static int device_ops(lua_State *L) {
  static const char *const rows[] = {"H", "E", "R", "V", "G", "S"};
  lua_newtable(L);
  for (int op = 1; op < LIMN_NOP; op++) {
    const limn_op_row *r = limn_op_get(op);
    const char *const kv[][2] = {
        {"name", r->name}, {"sig", r->sig}, {"doc", r->doc}, {"meta", r->meta},
        {"row", rows[r->row]}, {"domain", r->domain}};
    lua_newtable(L);
    for (int k = 0; k < LIMN_COUNT(kv); k++) {
      lua_pushstring(L, kv[k][1]);
      lua_setfield(L, -2, kv[k][0]);
    }
    lua_pushboolean(L, r->grad != NULL || r->expand != NULL);
    lua_setfield(L, -2, "grad");
    lua_pushinteger(L, r->arity);
    lua_setfield(L, -2, "arity");
    lua_rawseti(L, -2, op);
  }
  return 1;
}

static const luaL_Reg device_functions[] = {
    {"devices", device_list},       {"wait", device_wait},
    {"set_device", device_set},     {"seed", device_seed},
    {"policy", device_policy},      {"passes", device_passes},
    {"debug", device_debug},       {"draws", device_draws},

         {"plans_limit", device_plans_limit},
    {"version", device_version},    {"scope_enter", device_scope_enter},
    {"scope_free", device_scope_free}, {"ops_info", device_ops},
    {NULL, NULL}};

void limn_lua_open_device(limn_lua *st, lua_State *L) {
  limn_lua_register(st, L, device_functions);
}
