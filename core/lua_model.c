/* Files in Lua: writing models, and what a loaded one holds. */
#include "lua_core.h"

#include <stdio.h>

#include "model.h"

typedef struct {
  limn_model *m;
} model_ud;

static const char model_key[] = "limn.model";

static int model_gc(lua_State *L) {
  model_ud *u = lua_touserdata(L, 1);
  limn_model *m = u->m;
  u->m = NULL;
  if (m) limn_model_release(m);
  return 0;
}

static model_ud *model_push(lua_State *L) {
  model_ud *u = lua_newuserdata(L, sizeof *u);
  u->m = NULL;
  if (luaL_newmetatable(L, model_key)) {
    lua_pushcfunction(L, model_gc);
    lua_setfield(L, -2, "__gc");
  }
  lua_setmetatable(L, -2);
  return u;
}

static limn_model *model_check(lua_State *L, int i) {
  model_ud *u = luaL_checkudata(L, i, model_key);
  return u->m;
}

static int model_new(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  model_ud *u = model_push(L);
  limn_lua_check(st, L, limn_model_new(st->c, &u->m));
  return 1;
}

/* model_add(model, name, cell | tensor | mode | graph) */
static int model_add(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_model *m = model_check(L, 1);
  const char *name = luaL_checkstring(L, 2);
  limn_cell **cell = limn_lua_to(st, L, 3, LIMN_U_CELL);
  limn_lua_mode *mode = limn_lua_to(st, L, 3, LIMN_U_MODE);
  limn_lua_graph *g = limn_lua_to(st, L, 3, LIMN_U_GRAPH);
  limn_tensor *t;
  if (cell) {
    limn_lua_check(st, L, limn_model_add_cell(m, name, *cell));
  } else if (mode) {
    limn_lua_check(st, L, limn_model_add_mode(m, name, mode->mode));
  } else if (g) {
    limn_lua_check(st, L, limn_model_add_graph(m, name, g->g));
  } else {
    t = limn_lua_eager(st, L, 3, "save");
    limn_lua_check(st, L, limn_model_add_tensor(m, name, t));
  }
  return 0;
}

static int model_alias(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_lua_check(st, L, limn_model_alias(model_check(L, 1),
                                         luaL_checkstring(L, 2),
                                         luaL_checkstring(L, 3)));
  return 0;
}

/* model_save(model, path, lines) */
static int model_save(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_lua_check(st, L, limn_model_save_file(model_check(L, 1),
                                             luaL_checkstring(L, 2),
                                             lua_toboolean(L, 3)));
  return 0;
}

/* model_write(model, lines): the file's bytes */
static int model_write(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_str s;
  int rc;
  limn_str_init(&s, st->c);
  rc = limn_model_write(model_check(L, 1), &s, lua_toboolean(L, 2));
  if (rc >= 0) lua_pushlstring(L, s.s ? s.s : "", s.len);
  limn_str_free(&s);
  limn_lua_check(st, L, rc);
  return 1;
}

/* model_load(path, false) or model_load(bytes, true) */
static int model_load(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  size_t n;
  const char *s = luaL_checklstring(L, 1, &n);
  model_ud *u = model_push(L);
  if (lua_toboolean(L, 2))
    limn_lua_check(st, L, limn_model_load(st->c, s, n, 0, &u->m));
  else
    limn_lua_check(st, L, limn_model_load_file(st->c, s, &u->m));
  return 1;
}

/* model_parts(model): {graphs = , vars = , modes = , aliases = }, lists of
 * {name, value} in the file's order; an alias' value is a name */
static int model_parts(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_model *m = model_check(L, 1);
  static const char *const keys[] = {"graphs", "vars", "modes", "aliases"};
  uint32_t count[4] = {m->ngraph, m->nvar, m->nmode, m->nalias};
  lua_newtable(L);
  for (int part = 0; part < 4; part++) {
    lua_newtable(L);
    for (uint32_t i = 0; i < count[part]; i++) {
      lua_createtable(L, 2, 0);
      lua_pushstring(L, part == 0 ? m->graph[i].name
                        : part == 1 ? m->var[i].name
                        : part == 2 ? m->mode[i].name : m->alias[i].name);
      lua_rawseti(L, -2, 1);
      if (part == 0) {
        limn_graph_retain(m->graph[i].graph);
        limn_lua_push_graph(st, L, m->graph[i].graph);
      } else if (part == 1 && m->var[i].cell) {
        limn_cell **p = limn_lua_new(st, L, LIMN_U_CELL, sizeof *p);
        *p = m->var[i].cell;
        limn_cell_retain(*p);
      } else if (part == 1) {
        limn_handle *h = limn_lua_new_tensor(st, L);
        h->t = m->var[i].tensor;
        limn_tensor_retain(h->t);
      } else if (part == 2) {
        limn_lua_mode *u = limn_lua_new(st, L, LIMN_U_MODE, sizeof *u);
        u->mode = m->mode[i].mode;
        u->mode->refs++;
        u->c = st->c;
        limn_context_retain(st->c);
        snprintf(u->name, sizeof u->name, "%s", m->mode[i].name);
      } else {
        lua_pushstring(L, m->var[m->alias[i].var].name);
      }
      lua_rawseti(L, -2, 2);
      lua_rawseti(L, -2, (int)i + 1);
    }
    lua_setfield(L, -2, keys[part]);
  }
  return 1;
}

/* graph_parse(text): a graph without cells and constants, for tests */
static int model_parse(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  size_t n;
  const char *s = luaL_checklstring(L, 1, &n);
  limn_parse_env env = {0};
  limn_graph *g;
  limn_lua_check(st, L, limn_graph_parse(st->c, s, n, &env, &g));
  limn_lua_push_graph(st, L, g);
  return 1;
}

static const luaL_Reg model_functions[] = {
    {"model_new", model_new},     {"model_add", model_add},
    {"model_alias", model_alias}, {"model_save", model_save},
    {"model_write", model_write}, {"model_load", model_load},
    {"model_parts", model_parts}, {"graph_parse", model_parse},
    {NULL, NULL}};

void limn_lua_open_model(limn_lua *st, lua_State *L) {
  limn_lua_register(st, L, model_functions);
}
