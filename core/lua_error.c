/* Errors in Lua: the user's line, what was called there, the module's path;
 * near names of misspelt ones; options that do not exist. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>

#include "lua_core.h"

/* Where the text goes on after "file:12: " or "file:8-12: "; itself without. */
static const char *error_sentence(const char *s) {
  const char *p = s;
  while ((p = strchr(p, ':'))) {
    const char *q = p + 1, *nl = memchr(s, '\n', (size_t)(p - s));
    if (nl || p - s > 200) return s;
    while ((*q >= '0' && *q <= '9') || *q == '-') q++;
    if (q > p + 1 && *q == ':' && p > s) return q[1] == ' ' ? q + 2 : q + 1;
    p++;
  }
  return s;
}

/* "in body.2", before the hint. */
static void error_add_path(limn_context *c, const char *path) {
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
 * is an error: the innermost call of a module (see error_modules). */
static void error_add_module(limn_lua *st, lua_State *L) {
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
        error_add_path(st->c, lua_tostring(L, -1));
      break;
    }
    lua_pop(L, 1);
  }
  lua_settop(L, top);
}

/* modules(call, name): the function that calls a module's forward, whose first
 * local is the module, and one that gives a module's path. */
static int error_modules(lua_State *L) {
  luaL_checktype(L, 1, LUA_TFUNCTION);
  luaL_checktype(L, 2, LUA_TFUNCTION);
  lua_settop(L, 2);
  lua_setfield(L, LUA_REGISTRYINDEX, "limn.module_name");
  lua_setfield(L, LUA_REGISTRYINDEX, "limn.module_call");
  return 0;
}

/* The class of the innermost layer of limn's that the frame at `user` called,
 * "" without one: it says more than the op inside that failed. */
static const char *error_layer(lua_State *L, int user) {
  int top = lua_gettop(L);
  const char *name = "";
  lua_Debug ar;
  if (!lua_checkstack(L, 8)) return "";
  lua_getfield(L, LUA_REGISTRYINDEX, "limn.module_call");
  for (int i = 0; i < user && lua_getstack(L, i, &ar); i++) {
    lua_settop(L, top + 1);
    lua_getinfo(L, "f", &ar);
    if (!lua_rawequal(L, -1, top + 1) || !lua_isfunction(L, -1)) continue;
    if (!lua_getlocal(L, &ar, 1) || !lua_getmetatable(L, -1)) break;
    lua_pushliteral(L, "class_name");
    lua_rawget(L, -2);
    if (lua_isstring(L, -1)) name = lua_tostring(L, -1); /* the class has it */
    break;
  }
  lua_settop(L, top);
  return name;
}

/* "net.lua:14: " to `where`, unless msg has a line; and what was called there,
 * a layer or a function, unless msg names it. */
static const char *error_called(limn_lua *st, lua_State *L, const char *msg,
                                char *where, size_t n) {
  lua_Debug ar;
  const char *called = "", *layer;
  int user = limn_lua_user_frame(st, L, &ar, NULL, &called);
  *where = 0;
  if (user < 0) return "";
  layer = error_layer(L, user);
  if (*layer) called = layer;
  if (error_sentence(msg) == msg)
    snprintf(where, n, "%s:%d: ", ar.short_src, ar.currentline);
  else if (!*layer || !limn_lua_tracing(st))
    return ""; /* a run's error knows more than its caller */
  return limn_error_says(msg, called) ? "" : called;
}

/* What follows "max_pool2: " where that is how `called`, MaxPool2d, begins but
 * for capitals and underscores; else the text itself. */
static const char *error_beyond(const char *text, const char *called) {
  const char *s = text;
  for (; *s && *s != ':'; s++) {
    if (*s == '_') continue;
    while (*called == '_') called++;
    if (!*called || tolower((unsigned char)*s) !=
                        tolower((unsigned char)*called++))
      return text;
  }
  return s > text && s[0] == ':' && s[1] == ' ' ? s + 2 : text;
}

int limn_lua_raise(limn_lua *st, lua_State *L) {
  char where[LUA_IDSIZE + 96];
  limn_context *c = st->c;
  const char *msg, *rest, *called;
  error_add_module(st, L);
  msg = *c->error ? c->error : limn_strerror(c->last);
  called = error_called(st, L, msg, where, sizeof where);
  rest = error_sentence(msg);
  lua_pushstring(L, where);
  lua_pushlstring(L, msg, (size_t)(rest - msg)); /* its own line */
  if (*called) rest = error_beyond(rest, called);
  lua_pushfstring(L, "%s%s%s%s%s", called, *called ? ": " : "", rest,
                  *c->hint ? "\nhint: " : "", c->hint);
  lua_concat(L, 3);
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
static int error_fail(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  const char *msg = luaL_checkstring(L, 1);
  return limn_lua_fail(st, L, lua_tostring(L, 2), "%s", msg);
}

/* located(message): the message with the user's line, if it has none */
static int error_located(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  char where[LUA_IDSIZE + 32];
  const char *msg = luaL_checkstring(L, 1);
  if (error_sentence(msg) != msg || !limn_lua_where(st, L, where, sizeof where))
    lua_pushvalue(L, 1);
  else
    lua_pushfstring(L, "%s: %s", where, msg);
  return 1;
}

void limn_lua_near(lua_State *L, const char *word, int i, char *buf,
                   size_t n) {
  const char *best[3] = {0};
  int far[3], most = (int)strlen(word) / 3 + 1, k, m;
  size_t at = 0;
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
static int error_near(lua_State *L) {
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
  limn_lua_near(L, word, 3, buf, sizeof buf);
  lua_pushstring(L, buf);
  return 1;
}

/* options(given, allowed list, who): refuse unknown keys */
static int error_options(lua_State *L) {
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
    limn_lua_near(L, key, 4, buf, sizeof buf);
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

static const luaL_Reg error_functions[] = {
    {"fail", error_fail},       {"located", error_located},
    {"near", error_near},       {"options", error_options},
    {"modules", error_modules}, {NULL, NULL}};

void limn_lua_open_error(limn_lua *st, lua_State *L) {
  limn_lua_register(st, L, error_functions);
}
