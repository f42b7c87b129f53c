/* The Lua module `limn.core`: its state, its errors, the line of the user's
 * that a node belongs to, and pressure on the collector. */
#include "lua_core.h"

#include <math.h>
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

void limn_lua_drop(limn_lua *st, limn_handle *h, bool freed) {
  (void)st;
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

/* The innermost Lua frame outside limn; its depth counted from the bottom; and
 * which of limn's functions it called, "" if that is an op. */
static bool core_user_frame(limn_lua *st, lua_State *L, lua_Debug *ar,
                            int *depth, const char **called) {
  lua_Debug below;
  int level = 0, n;
  for (;; level++) {
    if (!lua_getstack(L, level, ar)) return false;
    lua_getinfo(L, "S", ar);
    if (ar->what[0] == 'C' || core_own(st, ar->source)) continue;
    break;
  }
  lua_getinfo(L, "l", ar);
  *called = core_function(st, L, level - 1);
  if (!depth) return true;
  for (n = level; lua_getstack(L, n, &below);) n++;
  *depth = n - level;
  return true;
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
  found = core_user_frame(st, st->L, &ar, top ? &depth : NULL, &called);
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

/* "net.lua:14: ", and the function called there unless msg names it. */
static bool core_prefix(limn_lua *st, lua_State *L, const char *msg, char *buf,
                        size_t n) {
  lua_Debug ar;
  const char *called;
  *buf = 0;
  if (!core_user_frame(st, L, &ar, NULL, &called)) return false;
  if (limn_error_says(msg, called)) called = "";
  snprintf(buf, n, "%s:%d: %s%s", ar.short_src, ar.currentline, called,
           *called ? ": " : "");
  return true;
}

bool limn_lua_where(limn_lua *st, lua_State *L, char *buf, size_t n) {
  lua_Debug ar;
  const char *called;
  *buf = 0;
  if (!core_user_frame(st, L, &ar, NULL, &called)) return false;
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

/* -- Errors -- */

/* Does the text begin with "file:12: " or "file:8-12: "? */
static bool core_located(const char *s) {
  const char *p = s;
  while ((p = strchr(p, ':'))) {
    const char *q = p + 1, *nl = memchr(s, '\n', (size_t)(p - s));
    if (nl || p - s > 200) return false;
    while ((*q >= '0' && *q <= '9') || *q == '-') q++;
    if (q > p + 1 && *q == ':' && p > s) return true;
    p++;
  }
  return false;
}

/* "in body.2", before the hint. */
static void core_add_path(limn_context *c, const char *path) {
  char hint[sizeof c->error];
  char *at = strstr(c->error, "\n  hint: ");
  hint[0] = 0;
  if (at) {
    memcpy(hint, at, strlen(at) + 1);
    *at = 0;
  }
  limn_error_append(c, "\n  in %s%s", path, hint);
}

/* In eager code nothing notes which module runs; the stack tells, once there
 * is an error: the innermost call of a module (see core_modules). */
static void core_add_module(limn_lua *st, lua_State *L) {
  int top = lua_gettop(L);
  lua_Debug ar;
  if (limn_lua_tracing(st) || strstr(st->c->error, "\n  in ") ||
      !lua_checkstack(L, 8))
    return;
  lua_getfield(L, LUA_REGISTRYINDEX, "limn.module_call");
  for (int i = 0; lua_isfunction(L, top + 1) && lua_getstack(L, i, &ar); i++) {
    lua_getinfo(L, "f", &ar);
    if (lua_rawequal(L, -1, top + 1)) {
      lua_getfield(L, LUA_REGISTRYINDEX, "limn.module_name");
      if (lua_getlocal(L, &ar, 1) && lua_pcall(L, 1, 1, 0) == 0 &&
          lua_isstring(L, -1))
        core_add_path(st->c, lua_tostring(L, -1));
      break;
    }
    lua_pop(L, 1);
  }
  lua_settop(L, top);
}

/* modules(call, name): the function that calls a module's forward, whose first
 * local is the module, and one that gives a module's path. */
static int core_modules(lua_State *L) {
  luaL_checktype(L, 1, LUA_TFUNCTION);
  luaL_checktype(L, 2, LUA_TFUNCTION);
  lua_settop(L, 2);
  lua_setfield(L, LUA_REGISTRYINDEX, "limn.module_name");
  lua_setfield(L, LUA_REGISTRYINDEX, "limn.module_call");
  return 0;
}

int limn_lua_raise(limn_lua *st, lua_State *L) {
  char where[LUA_IDSIZE + 96];
  limn_context *c = st->c;
  core_add_module(st, L);
  const char *msg = *c->error ? c->error : limn_strerror(c->last);
  bool has = !core_located(msg) && core_prefix(st, L, msg, where, sizeof where);
  lua_pushfstring(L, "%s%s%s%s", has ? where : "", msg,
                  *c->hint ? "\nhint: " : "", c->hint);
  return lua_error(L);
}

int limn_lua_fail(limn_lua *st, lua_State *L, const char *hint,
                  const char *fmt, ...) {
  char text[2048];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  limn_fail(st->c, LIMN_EARG, "%s", text);
  if (hint) limn_hint(st->c, LIMN_EARG, "%s", hint);
  return limn_lua_raise(st, L);
}

/* fail(message [, hint]) */
static int core_fail(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  const char *msg = luaL_checkstring(L, 1);
  return limn_lua_fail(st, L, lua_tostring(L, 2), "%s", msg);
}

/* located(message): the message with the user's line, if it has none */
static int core_located_text(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  char where[LUA_IDSIZE + 32];
  const char *msg = luaL_checkstring(L, 1);
  if (core_located(msg) || !limn_lua_where(st, L, where, sizeof where))
    lua_pushvalue(L, 1);
  else
    lua_pushfstring(L, "%s: %s", where, msg);
  return 1;
}

void limn_lua_near(limn_lua *st, lua_State *L, const char *word, int i,
                   char *buf, size_t n) {
  const char *best[3] = {0};
  int far[3], most = (int)strlen(word) / 3 + 1, k, m;
  size_t at = 0;
  (void)st;
  *buf = 0;
  if (strlen(word) > 48) return;
  if (i < 0 && i > LUA_REGISTRYINDEX) i = lua_gettop(L) + 1 + i;
  for (k = 0; k < 3; k++) far[k] = most + 1;
  lua_pushnil(L);
  while (lua_next(L, i)) {
    lua_pop(L, 1);
    if (lua_type(L, -1) != LUA_TSTRING) continue;
    const char *s = lua_tostring(L, -1);
    if (strlen(s) > 48 || s[0] == '_') continue;
    int d = limn_str_distance(word, s);
    for (k = 0; k < 3; k++) {
      if (d > most || d > far[k] ||
          (d == far[k] && best[k] && strcmp(s, best[k]) > 0))
        continue;
      for (m = 2; m > k; m--) best[m] = best[m - 1], far[m] = far[m - 1];
      best[k] = s, far[k] = d;
      break;
    }
  }
  for (k = 0; k < 3 && best[k] && at < n; k++)
    at += (size_t)snprintf(buf + at, n - at, "%s'%s'",
                           k ? " or " : ", did you mean ", best[k]);
  if (at && at < n) snprintf(buf + at, n - at, "?");
}

/* near(word, list of words): text for a message */
static int core_near(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  const char *word = luaL_checkstring(L, 1);
  char buf[200];
  luaL_checktype(L, 2, LUA_TTABLE);
  lua_newtable(L); /* the words as keys, and those that are keys already */
  lua_pushnil(L);
  while (lua_next(L, 2)) {
    lua_pushvalue(L, lua_type(L, -1) == LUA_TSTRING ? -1 : -2);
    lua_pushboolean(L, 1);
    lua_rawset(L, 3);
    lua_pop(L, 1);
  }
  limn_lua_near(st, L, word, 3, buf, sizeof buf);
  lua_pushstring(L, buf);
  return 1;
}

/* options(given, allowed list, who): refuse unknown keys */
static int core_options(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  const char *who = lua_tostring(L, 3);
  char buf[200];
  if (lua_isnoneornil(L, 1)) return 0;
  if (!lua_istable(L, 1))
    return limn_lua_fail(st, L, NULL, "%s: options must be a table",
                         who ? who : "?");
  lua_settop(L, 3);
  lua_newtable(L);
  for (int k = 1; k <= (int)lua_objlen(L, 2); k++) {
    lua_rawgeti(L, 2, k);
    lua_pushboolean(L, 1);
    lua_rawset(L, 4);
  }
  lua_pushnil(L);
  while (lua_next(L, 1)) {
    lua_pop(L, 1);
    if (lua_type(L, -1) != LUA_TSTRING) continue;
    lua_pushvalue(L, -1);
    lua_rawget(L, 4);
    if (lua_toboolean(L, -1)) {
      lua_pop(L, 1);
      continue;
    }
    const char *key = lua_tostring(L, -2);
    limn_lua_near(st, L, key, 4, buf, sizeof buf);
    return limn_lua_fail(st, L, NULL, "%s has no option '%s'%s",
                         who ? who : "this", key, buf);
  }
  return 0;
}

const char *limn_lua_what(limn_lua *st, lua_State *L, int i, char *buf,
                          size_t n) {
  limn_handle *h = limn_lua_to(st, L, i, LIMN_U_TENSOR);
  if (h && h->t) {
    snprintf(buf, n, "a tensor ");
    limn_tensor_text(buf + 9, n - 9, h->t);
  } else if (h) {
    snprintf(buf, n, h->trace ? "a traced tensor" : "a freed tensor");
  } else if (limn_lua_to(st, L, i, LIMN_U_CELL)) {
    snprintf(buf, n, "a cell");
  } else if (limn_lua_dim(st, L, i)) {
    snprintf(buf, n, "a traced size or token");
  } else if (lua_type(L, i) == LUA_TSTRING) {
    snprintf(buf, n, "the string '%.60s'", lua_tostring(L, i));
  } else if (lua_type(L, i) == LUA_TNUMBER) {
    double v = lua_tonumber(L, i);
    snprintf(buf, n, "the number %.0f", v);
    if (v != floor(v) || fabs(v) >= 1e15)
      limn_real_text(buf + 11, n - 11, 'g', 14, v);
  } else if (lua_isboolean(L, i)) {
    snprintf(buf, n, "%s", lua_toboolean(L, i) ? "true" : "false");
  } else if (lua_isnoneornil(L, i)) {
    snprintf(buf, n, "nil");
  } else {
    snprintf(buf, n, "a %s", luaL_typename(L, i));
  }
  return buf;
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
    {"raw", core_raw},             {"fail", core_fail},
    {"located", core_located_text}, {"near", core_near},
    {"options", core_options},     {"modules", core_modules},
    {"path_push", core_path_push},
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
