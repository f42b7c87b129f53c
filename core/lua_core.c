/* The Lua module `limn.core`: its state, the line of the user's that a node
 * belongs to, and pressure on the collector. */
#include "lua_core.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char core_key[] = "limn.core", core_context_key[] = "limn.context";

/* -- Userdata -- */

void *limn_lua_to(limn_lua *st, lua_State *L, int i, int kind) {
  bool same;
  if (lua_type(L, i) != LUA_TUSERDATA || !lua_getmetatable(L, i)) return NULL;
  same = lua_topointer(L, -1) == st->mt[kind];
  lua_pop(L, 1);
  return same ? lua_touserdata(L, i) : NULL;
}

void *limn_lua_new(limn_lua *st, lua_State *L, int kind, size_t size) {
  void *p = lua_newuserdata(L, size);
  memset(p, 0, size);
  lua_rawgeti(L, LUA_REGISTRYINDEX, st->ref_mt[kind]);
  lua_setmetatable(L, -2);
  return p;
}

limn_handle *limn_lua_new_tensor(limn_lua *st, lua_State *L) {
  limn_handle *h = limn_lua_new(st, L, LIMN_U_TENSOR, sizeof *h);
  if (st->scope) { /* limn.scope frees what is made inside it */
    lua_rawgeti(L, LUA_REGISTRYINDEX, st->ref_scope);
    lua_pushvalue(L, -2);
    lua_rawseti(L, -2, (int)lua_objlen(L, -2) + 1);
    lua_pop(L, 1);
  }
  return h;
}

void limn_lua_drop(limn_handle *h, bool freed) {
  limn_tensor *t = h->t;
  limn_trace *trace = h->trace;
  limn_watch *w = h->watch;
  limn_context *c = t ? t->c : trace ? trace->c : NULL;
  h->t = NULL, h->trace = NULL, h->watch = NULL, h->ref = 0;
  if (freed) h->flags |= LIMN_H_FREED;
  if (w && c) limn_watch_release(w, c);
  if (t) limn_tensor_release(t);
  if (trace) limn_trace_release(trace);
}

int limn_lua_keep(lua_State *L, int type, int *ref) {
  luaL_checktype(L, 1, type);
  lua_settop(L, 1);
  luaL_unref(L, LUA_REGISTRYINDEX, *ref);
  *ref = luaL_ref(L, LUA_REGISTRYINDEX);
  return 0;
}

/* -- Lines -- */

static bool core_own(const limn_lua *st, const char *source) {
  size_t n = strlen(st->prefix);
  return n && !strncmp(source, st->prefix, n);
}

/* The name of the function at that level if it is one of limn's, else "". The
 * table of names keeps the string alive. */
static const char *core_function(limn_lua *st, lua_State *L, int level) {
  lua_Debug ar;
  const char *name;
  if (level < 0 || !lua_getstack(L, level, &ar)) return "";
  lua_rawgeti(L, LUA_REGISTRYINDEX, st->ref_called);
  lua_getinfo(L, "Sf", &ar);
  if (ar.what[0] == 'C') { /* an op: errors name it by themselves */
    lua_pop(L, 2);
    return "";
  }
  lua_rawget(L, -2);
  name = lua_tostring(L, -1);
  lua_pop(L, 2);
  return name ? name : "";
}

int limn_lua_user_frame(limn_lua *st, lua_State *L, lua_Debug *ar, int *depth,
                        const char **called) {
  lua_Debug below;
  int level = 0, n;
  for (;; level++) {
    if (!lua_getstack(L, level, ar)) return -1;
    lua_getinfo(L, "S", ar);
    if (ar->what[0] == 'C' || core_own(st, ar->source)) continue;
    break;
  }
  lua_getinfo(L, "l", ar);
  *called = core_function(st, L, level - 1);
  if (!depth) return level;
  for (n = level; lua_getstack(L, n, &below);) n++;
  *depth = n - level;
  return level;
}

/* A source as graphs show it: relative to the working directory, or the base
 * name; code from strings as Lua shows it. */
static const char *core_file(const limn_lua *st, const lua_Debug *ar) {
  const char *s = ar->source, *slash;
  size_t n = strlen(st->cwd);
  if (*s != '@') return ar->short_src;
  s++;
  while (!strncmp(s, "./", 2)) s += 2;
  if (n && !strncmp(s, st->cwd, n)) return s + n;
  slash = strrchr(s, '/');
  return *s == '/' && slash ? slash + 1 : s;
}

/* limn_context.where: a frame that a tail call dropped is replaced by the
 * range of the function that was entered last. */
static void core_where(void *user, char *line, size_t nline, char *path,
                       size_t npath) {
  limn_lua *st = user;
  lua_Debug ar;
  int depth = 0;
  size_t at = 0;
  limn_lua_path *top = NULL; /* innermost module with a user's forward */
  const char *called = "";
  bool found;
  for (int i = st->npath - 1; i >= 0 && !top; i--)
    if (st->path[i].range[0]) top = &st->path[i];
  found = limn_lua_user_frame(st, st->L, &ar, top ? &depth : NULL,
                              &called) >= 0;
  *line = *path = 0;
  if (top && (!found || depth <= top->depth))
    snprintf(line, nline, "%s", top->range);
  else if (found)
    snprintf(line, nline, "%s:%d", core_file(st, &ar), ar.currentline);
  /* The traced function has no name; a path starts below its root. */
  for (int i = st->npath && !*st->path[0].name ? 2 : 1;
       i < st->npath && at < npath; i++)
    at += (size_t)snprintf(path + at, npath - at, "%s%s", at ? "." : "",
                           st->path[i].name);
  if (*called && at < npath) snprintf(path + at, npath - at, ":%s", called);
}

bool limn_lua_where(limn_lua *st, lua_State *L, char *buf, size_t n) {
  lua_Debug ar;
  const char *called;
  *buf = 0;
  if (limn_lua_user_frame(st, L, &ar, NULL, &called) < 0) return false;
  snprintf(buf, n, "%s:%d", ar.short_src, ar.currentline);
  return true;
}

/* path_push(name, function, module): a module is entered */
static int core_path_push(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_lua_path *p;
  lua_Debug ar;
  int n = 0;
  if (st->npath == LIMN_MAXPATH)
    return limn_lua_fail(st, L, "a module may call itself without end",
                         "modules are nested more than %d deep", LIMN_MAXPATH);
  while (lua_getstack(L, n, &ar)) n++;
  p = &st->path[st->npath];
  lua_rawgeti(L, LUA_REGISTRYINDEX, st->ref_path);
  lua_pushvalue(L, 1);
  lua_rawseti(L, -2, st->npath + 1); /* keeps the string alive */
  lua_pop(L, 1);
  p->name = lua_isstring(L, 1) ? lua_tostring(L, 1) : "?";
  p->depth = n - 1; /* without this function: the caller's depth */
  p->range[0] = 0;
  if (lua_isfunction(L, 2) && !lua_iscfunction(L, 2)) {
    lua_pushvalue(L, 2);
    lua_getinfo(L, ">S", &ar);
    if (!core_own(st, ar.source) && ar.linedefined == ar.lastlinedefined)
      snprintf(p->range, sizeof p->range, "%s:%d", core_file(st, &ar),
               ar.linedefined);
    else if (!core_own(st, ar.source))
      snprintf(p->range, sizeof p->range, "%s:%d-%d", core_file(st, &ar),
               ar.linedefined, ar.lastlinedefined);
  }
  st->npath++;
  if (!lua_istable(L, 3)) return 0;
  lua_getfield(L, LUA_REGISTRYINDEX, "limn.modules"); /* see trace.lua */
  if (!lua_istable(L, -1)) return 0;
  lua_pushvalue(L, 3);
  lua_pushvalue(L, 1);
  lua_rawset(L, -3);
  return 0;
}

static int core_path_pop(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  if (st->npath) st->npath--;
  return 0;
}

/* path_reset(n): back to n entries; returns how many there were */
static int core_path_reset(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  int n = (int)luaL_optinteger(L, 1, st->npath);
  lua_pushinteger(L, st->npath);
  if (n >= 0 && n < st->npath) st->npath = n;
  return 1;
}

/* -- The collector -- */

void limn_lua_press(limn_lua *st, lua_State *L) {
  size_t now = st->c->bytes + st->c->device_bytes;
  size_t room = LIMN_MAX((size_t)64 << 20, st->live);
  if (now < st->live) st->live = now;
  if (now - st->live <= room) return;
  lua_gc(L, LUA_GCCOLLECT, 0);
  st->live = st->c->bytes + st->c->device_bytes;
}

static bool core_reclaim(void *user) {
  limn_lua *st = user;
  size_t before = st->c->bytes + st->c->device_bytes;
  lua_gc(st->L, LUA_GCCOLLECT, 0);
  st->live = st->c->bytes + st->c->device_bytes;
  return st->live < before;
}

/* -- The log: print for limn.print, standard error for the rest -- */

static void core_log(void *user, char level, const char *text) {
  limn_lua *st = user;
  lua_State *L = st->L;
  if (level != 'p' || !L || !lua_checkstack(L, 6)) {
    fprintf(stderr, "%s\n", text);
    return;
  }
  lua_pushliteral(L, "print");
  lua_rawget(L, LUA_GLOBALSINDEX);
  lua_pushstring(L, text);
  lua_pcall(L, 1, 0, 0) ? lua_pop(L, 1) : (void)0;
}

/* -- The state -- */

/* After the state is gone: what outlives it may still have something to say. */
static void core_log_late(void *user, char level, const char *text) {
  (void)user;
  (void)level;
  fprintf(stderr, "%s\n", text);
}

static int core_gc(lua_State *L) {
  limn_lua *st = lua_touserdata(L, 1);
  limn_context *c = st->c;
  if (!c) return 0;
  st->c = NULL;
  c->reclaim = NULL;
  c->where = NULL;
  if (st->owned) {
    c->opt.log = core_log_late;
    limn_close(c);
  }
  return 0;
}

static void core_open_context(limn_lua *st, lua_State *L) {
  limn_options o = LIMN_OPTIONS;
  int rc;
  lua_getfield(L, LUA_REGISTRYINDEX, core_context_key);
  if (lua_islightuserdata(L, -1)) {
    st->c = lua_touserdata(L, -1);
  } else {
    o.log = core_log;
    o.user = st;
    rc = limn_open(&o, &st->c);
    if (rc < 0) {
      st->c = NULL;
      luaL_error(L, "limn cannot start: %s", limn_strerror(rc));
    }
    st->owned = true;
  }
  lua_pop(L, 1);
  st->c->reclaim = core_reclaim;
  st->c->reclaim_user = st;
  st->c->where = core_where;
  st->c->where_user = st;
}

static void core_params(limn_lua *st) {
  for (int op = 1; op < LIMN_NOP; op++) {
    int n = limn_op_params(op, st->param[op]);
    st->nparam[op] = st->nuser[op] = (uint8_t)n;
    if (n && !strcmp(st->param[op][n - 1].name, "draw")) st->nuser[op]--;
  }
}

static int core_ref_table(lua_State *L, const char *mode) {
  lua_newtable(L);
  if (mode) {
    lua_newtable(L);
    lua_pushstring(L, mode);
    lua_setfield(L, -2, "__mode");
    lua_setmetatable(L, -2);
  }
  return luaL_ref(L, LUA_REGISTRYINDEX);
}

static limn_lua *core_new_state(lua_State *L) {
  limn_lua *st = lua_newuserdata(L, sizeof *st);
  memset(st, 0, sizeof *st);
  st->L = L;
  st->ref_maker = st->ref_shape = LUA_NOREF;
  st->ref_tracer = st->ref_left = LUA_NOREF;
  lua_newtable(L);
  lua_pushcfunction(L, core_gc);
  lua_setfield(L, -2, "__gc");
  lua_setmetatable(L, -2);
  core_open_context(st, L);
  lua_setfield(L, LUA_REGISTRYINDEX, core_key);
  core_params(st);
  if (getcwd(st->cwd, sizeof st->cwd - 1)) strcat(st->cwd, "/");
  else st->cwd[0] = 0;
  for (int k = 0; k < LIMN_NU; k++) {
    lua_newtable(L);
    st->mt[k] = lua_topointer(L, -1);
    st->ref_mt[k] = luaL_ref(L, LUA_REGISTRYINDEX);
  }
  st->ref_methods = core_ref_table(L, NULL);
  st->ref_cell_methods = core_ref_table(L, NULL);
  st->ref_path = core_ref_table(L, NULL);
  st->ref_called = core_ref_table(L, "k");
  st->ref_dims = core_ref_table(L, "k");
  st->ref_scope = LUA_NOREF;
  return st;
}

void limn_lua_register(limn_lua *st, lua_State *L, const luaL_Reg *f) {
  for (; f->name; f++) {
    lua_pushlightuserdata(L, st);
    lua_pushcclosure(L, f->func, 1);
    lua_setfield(L, -2, f->name);
  }
}

/* setup(prefix): sources that begin with it are limn's own */
static int core_setup(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  snprintf(st->prefix, sizeof st->prefix, "%s", luaL_checkstring(L, 1));
  return 0;
}

static int core_type(lua_State *L) {
  static const char *const names[] = {"tensor", "cell", "graph", "trace",
                                      "mode"};
  limn_lua *st = limn_lua_state(L);
  limn_handle *h;
  for (int k = 0; k < LIMN_NU; k++)
    if (limn_lua_to(st, L, 1, k)) {
      lua_pushstring(L, names[k]);
      return 1;
    }
  h = limn_lua_dim(st, L, 1);
  if (!h) return 0;
  switch (h->trace->ended ? LIMN_V_INT
                          : limn_graph_node(h->trace->g, h->ref)->kind) {
    case LIMN_V_DTYPE: lua_pushliteral(L, "dtype"); break;
    case LIMN_V_DEVICE: lua_pushliteral(L, "device"); break;
    default: lua_pushliteral(L, "dim");
  }
  return 1;
}

/* raw(kind): a metatable, or the methods of tensors or cells, for Lua */
static int core_raw(lua_State *L) {
  static const char *const names[] = {"tensor", "cell", "graph", "methods",
                                      "cell_methods", "called", NULL};
  limn_lua *st = limn_lua_state(L);
  int k = luaL_checkoption(L, 1, NULL, names);
  int ref = k == 0 ? st->ref_mt[LIMN_U_TENSOR]
          : k == 1 ? st->ref_mt[LIMN_U_CELL]
          : k == 2 ? st->ref_mt[LIMN_U_GRAPH]
          : k == 3 ? st->ref_methods
          : k == 4 ? st->ref_cell_methods : st->ref_called;
  lua_rawgeti(L, LUA_REGISTRYINDEX, ref);
  return 1;
}

static const luaL_Reg core_functions[] = {
    {"setup", core_setup},         {"type", core_type},
    {"raw", core_raw},             {"path_push", core_path_push},
    {"path_pop", core_path_pop},   {"path_reset", core_path_reset},
    {NULL, NULL}};

LIMN_API int luaopen_limn_core(lua_State *L);
int luaopen_limn_core(lua_State *L) {
  limn_lua *st;
  bool fresh;
  lua_getfield(L, LUA_REGISTRYINDEX, core_key);
  st = lua_touserdata(L, -1);
  lua_pop(L, 1);
  fresh = !st;
  if (fresh) st = core_new_state(L);
  lua_newtable(L);
  limn_lua_register(st, L, core_functions);
  limn_lua_open_error(st, L);
  limn_lua_ops(st, L);
  lua_setfield(L, -2, "ops");
  limn_lua_open_tensor(st, L);
  limn_lua_open_index(st, L);
  limn_lua_open_make(st, L);
  limn_lua_open_cell(st, L);
  limn_lua_open_dim(st, L);
  limn_lua_open_trace(st, L);
  limn_lua_open_region(st, L);
  limn_lua_open_graph(st, L);
  limn_lua_open_grad(st, L);
  limn_lua_open_device(st, L);
  limn_lua_open_model(st, L);
  limn_lua_open_scan(st, L);
  return 1;
}
