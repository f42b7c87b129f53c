/* Arguments of ops: Lua values as limn values, the calling grammar, and the
 * closures that are the ops' methods and functions. */
#include "lua_core.h"

#include <math.h>
#include <stdio.h>

/* -- Values -- */

limn_value limn_vint(int64_t i) {
  limn_value v = {0};
  v.tag = LIMN_A_INT, v.i = i, v.f = (double)i;
  return v;
}

limn_value limn_vreal(double f) {
  limn_value v = {0};
  v.tag = LIMN_A_REAL, v.f = f;
  return v;
}

limn_value limn_vnum(double f) {
  if (f >= -0x1p63 && f < 0x1p63 && f == (double)(int64_t)f)
    return limn_vint((int64_t)f);
  return limn_vreal(f);
}

static int args_stale(limn_lua *st, lua_State *L, const limn_handle *h) {
  if (h->flags & LIMN_H_FREED)
    return limn_lua_fail(st, L, "return it from the function, assign it to a "
                         "cell, or give it to limn.keep",
                         "this tensor was freed by limn.scope");
  limn_lua_check(st, L, limn_trace_stale(st->c, h->trace, h->ref));
  return 0;
}

/* The name of the upvalue of the function on the top that is p, or NULL. */
static const char *args_upvalue(lua_State *L, const void *p) {
  for (int k = 1;; k++) {
    const char *name = lua_getupvalue(L, -1, k);
    bool same;
    if (!name) return NULL;
    same = lua_topointer(L, -1) == p;
    lua_pop(L, 1);
    if (same && *name) return name;
  }
}

/* The key under which the table on the top holds p: one of the first 64. */
static const char *args_key(lua_State *L, const void *p) {
  const char *name = NULL;
  lua_pushnil(L);
  for (int k = 0; k < 64; k++) {
    if (!lua_next(L, -2)) return name;
    if (!name && lua_topointer(L, -1) == p && lua_type(L, -2) == LUA_TSTRING)
      name = lua_tostring(L, -2);
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
  return name;
}

/* How the frame's function reaches p: an upvalue, or a field of a local, which
 * is `self` most often. */
static bool args_reach(limn_lua *st, lua_State *L, lua_Debug *ar,
                       const void *p, char *buf, size_t n) {
  const char *name;
  size_t at = 0;
  lua_getinfo(L, "f", ar);
  name = args_upvalue(L, p);
  lua_pop(L, 1);
  if (name) {
    snprintf(buf, n, "%s", name);
    return true;
  }
  for (int k = 1; lua_getlocal(L, ar, k); k++) {
    name = lua_istable(L, -1) ? args_key(L, p) : NULL;
    lua_pop(L, 1);
    if (!name) continue;
    for (int i = 1; i < st->npath && at < n; i++)
      at += (size_t)snprintf(buf + at, n - at, "%s.", st->path[i].name);
    if (at < n) snprintf(buf + at, n - at, "%s", name);
    return true;
  }
  return false;
}

/* The name under which user code reaches the handle at i, or NULL. */
static const char *args_name(limn_lua *st, lua_State *L, int i, char *buf,
                             size_t n) {
  lua_Debug ar;
  const void *p = lua_topointer(L, i);
  for (int level = 1; lua_getstack(L, level, &ar); level++) {
    lua_getinfo(L, "S", &ar);
    if (ar.what[0] == 'C' ||
        !strncmp(ar.source, st->prefix, strlen(st->prefix)))
      continue;
    if (args_reach(st, L, &ar, p, buf, n)) return buf;
  }
  return NULL;
}

/* A tensor from outside that a trace captures: watch its handle, name it. */
static void args_capture(limn_lua *st, lua_State *L, int i, limn_handle *h,
                         limn_value *v) {
  limn_trace *t = st->c->trace;
  if (!h->watch) {
    h->watch = limn_alloc(st->c, sizeof *h->watch);
    if (!h->watch) limn_lua_raise(st, L);
    h->watch->refs = 1;
  }
  v->watch = h->watch;
  if (limn_map_get(&t->tensors, &h->t, sizeof h->t)) return;
  v->name = args_name(st, L, i < 0 ? lua_gettop(L) + 1 + i : i,
                      st->capture, sizeof st->capture);
  for (uint32_t k = 0; v->name && k < t->g->nconst; k++)
    if (t->g->konst[k].value != h->t &&
        !strcmp(limn_graph_text(t->g, t->g->konst[k].name), v->name))
      v->name = NULL; /* taken: it gets a number */
}

static bool args_handle(limn_lua *st, lua_State *L, int i, limn_handle *h,
                        limn_value *v) {
  if (h->t) {
    v->tag = LIMN_X_TENSOR, v->t = h->t;
    if (st->c->trace && !st->c->trace->tape) args_capture(st, L, i, h, v);
    return true;
  }
  if (!h->trace || h->trace->ended) args_stale(st, L, h);
  v->tag = LIMN_X_TRACED, v->trace = h->trace, v->ref = h->ref;
  return true;
}

bool limn_lua_value(limn_lua *st, lua_State *L, int i, limn_value *v) {
  void *p;
  memset(v, 0, sizeof *v);
  switch (lua_type(L, i)) {
    case LUA_TNUMBER: *v = limn_vnum(lua_tonumber(L, i)); return true;
    case LUA_TBOOLEAN: v->tag = LIMN_A_BOOL, v->i = lua_toboolean(L, i);
      return true;
    case LUA_TSTRING:
      v->tag = LIMN_A_STR, v->s = lua_tostring(L, i);
      if (strlen(v->s) != lua_objlen(L, i))
        limn_lua_fail(st, L, "limn.from_string(s, \"uint8\") makes it a tensor",
                      "a string with a zero byte cannot stand here");
      return true;
    case LUA_TUSERDATA:
      if ((p = limn_lua_to(st, L, i, LIMN_U_TENSOR)))
        return args_handle(st, L, i, p, v);
      if ((p = limn_lua_to(st, L, i, LIMN_U_CELL))) {
        v->tag = LIMN_X_CELL, v->cell = *(limn_cell **)p;
        return true;
      }
      return false;
    case LIMN_TCDATA:
      if ((p = limn_lua_dim(st, L, i))) return args_handle(st, L, i, p, v);
      return false;
    default: return false;
  }
}

static bool args_is_tensor(const limn_value *v) {
  return v->tag == LIMN_X_TENSOR || v->tag == LIMN_X_CELL ||
         (v->tag == LIMN_X_TRACED &&
          limn_graph_node(v->trace->g, v->ref)->kind == LIMN_V_TENSOR);
}

void limn_lua_operand(limn_lua *st, lua_State *L, int i, const char *who,
                      const char *what, limn_value *v) {
  char got[300];
  if (limn_lua_value(st, L, i, v) && args_is_tensor(v)) return;
  limn_lua_fail(st, L, NULL, "%s: %s must be a tensor, not %s", who, what,
                limn_lua_what(st, L, i, got, sizeof got));
}

bool limn_lua_has_keys(lua_State *L, int i) {
  bool found = false;
  if (!lua_istable(L, i)) return false;
  i = i < 0 ? lua_gettop(L) + 1 + i : i;
  lua_pushnil(L);
  while (!found && lua_next(L, i)) {
    lua_pop(L, 1);
    found = lua_type(L, -1) == LUA_TSTRING;
  }
  if (found) lua_pop(L, 1);
  return found;
}

/* -- Lists -- */

limn_value *limn_args_list(limn_args *a, lua_State *L, int n) {
  limn_value *v;
  if (a->npool + n <= LIMN_POOL) {
    v = a->pool + a->npool;
    a->npool += n;
    return v;
  }
  luaL_checkstack(L, 4, "too many arguments");
  return lua_newuserdata(L, (size_t)n * sizeof *v); /* stays on the stack */
}

static void args_int(limn_lua *st, lua_State *L, int i, const char *who,
                     const char *what, limn_value *v) {
  char got[300];
  if (limn_lua_value(st, L, i, v)) {
    if (v->tag == LIMN_A_INT) return;
    if (v->tag == LIMN_X_TRACED && !args_is_tensor(v)) return;
  }
  limn_lua_fail(st, L, v->tag == LIMN_A_REAL ? "limn.floor makes it whole"
                                             : NULL,
                "%s: %s must be a whole number, not %s", who, what,
                limn_lua_what(st, L, i, got, sizeof got));
}

/* The elements of the table at i, or n values of the stack from i on. */
static void args_ints_of(limn_lua *st, lua_State *L, int i, int n,
                         const char *who, const char *what, limn_args *a,
                         limn_value *out) {
  bool table = lua_istable(L, i);
  memset(out, 0, sizeof *out);
  if (table) n = (int)lua_objlen(L, i);
  out->tag = LIMN_A_LIST;
  out->n = n;
  out->list = limn_args_list(a, L, n);
  for (int k = 0; k < n; k++) {
    if (table) lua_rawgeti(L, i, k + 1);
    args_int(st, L, table ? -1 : i + k, who, what, &out->list[k]);
    if (table) lua_pop(L, 1);
  }
}

void limn_args_ints(limn_lua *st, lua_State *L, int i, const char *who,
                    const char *what, limn_args *a, limn_value *out) {
  args_ints_of(st, L, i, 1, who, what, a, out);
}

static void args_tensors(limn_lua *st, lua_State *L, int i, const char *who,
                         const char *what, limn_args *a, limn_value *out) {
  char buf[300];
  int n;
  if (!lua_istable(L, i))
    limn_lua_fail(st, L, NULL, "%s: %s must be a list of tensors, not %s",
                  who, what, limn_lua_what(st, L, i, buf, sizeof buf));
  n = (int)lua_objlen(L, i);
  memset(out, 0, sizeof *out);
  out->tag = LIMN_A_LIST;
  out->n = n;
  out->list = limn_args_list(a, L, n);
  for (int k = 0; k < n; k++) {
    lua_rawgeti(L, i, k + 1);
    snprintf(buf, sizeof buf, "%s[%d]", what, k + 1);
    limn_lua_operand(st, L, -1, who, buf, &out->list[k]);
    lua_pop(L, 1); /* the table keeps it alive */
  }
}

/* -- Parameters by type -- */

static void args_dtype(limn_lua *st, lua_State *L, int i, const char *who,
                       limn_value *v) {
  char got[300];
  int d;
  if (lua_type(L, i) == LUA_TSTRING) {
    d = limn_dtype_find(lua_tostring(L, i));
    if (d < 0)
      limn_lua_fail(st, L, "dtypes are float64 float32 float16 bfloat16 int64 "
                    "int32 int8 uint8 bool", "%s: there is no dtype '%s'",
                    who, lua_tostring(L, i));
    memset(v, 0, sizeof *v);
    v->tag = LIMN_A_DTYPE, v->i = d;
    return;
  }
  if (limn_lua_value(st, L, i, v) && v->tag == LIMN_X_TRACED &&
      limn_graph_node(v->trace->g, v->ref)->kind == LIMN_V_DTYPE)
    return;
  limn_lua_fail(st, L, NULL, "%s: a dtype must be a string, not %s", who,
                limn_lua_what(st, L, i, got, sizeof got));
}

static void args_bad(limn_lua *st, lua_State *L, int i, const char *who,
                     const limn_param *p, const char *want) {
  char got[300];
  limn_lua_fail(st, L, lua_istable(L, i) && p->type == 'T'
                           ? "limn.tensor {...} makes a tensor of a table"
                           : NULL,
                "%s: %s must be %s, not %s", who, p->name, want,
                limn_lua_what(st, L, i, got, sizeof got));
}

/* A value of the trace that is true or false before the run. */
static bool args_plan_bool(const limn_value *v) {
  return v->tag == LIMN_X_TRACED &&
         limn_graph_node(v->trace->g, v->ref)->kind == LIMN_V_BOOL;
}

/* One argument at i for parameter p; lists only from tables. */
static void args_param(limn_lua *st, lua_State *L, int i, const char *who,
                       const limn_param *p, limn_args *a, limn_value *v) {
  if (p->list) {
    args_tensors(st, L, i, who, p->name, a, v);
    return;
  }
  switch (p->type) {
    case 'T':
      if (!limn_lua_value(st, L, i, v) || v->tag == LIMN_A_STR)
        args_bad(st, L, i, who, p, "a tensor or a number");
      return;
    case 'S': limn_lua_operand(st, L, i, who, p->name, v); return;
    case 'i': case 'd': args_int(st, L, i, who, p->name, v); return;
    case 'r':
      if (!limn_lua_value(st, L, i, v) ||
          (v->tag != LIMN_A_INT && v->tag != LIMN_A_REAL &&
           (v->tag != LIMN_X_TRACED || args_is_tensor(v))))
        args_bad(st, L, i, who, p, "a number");
      if (v->tag == LIMN_A_INT) *v = limn_vreal(v->f);
      return;
    case 'b':
      if (!limn_lua_value(st, L, i, v) ||
          (v->tag != LIMN_A_BOOL && !args_plan_bool(v)))
        args_bad(st, L, i, who, p, "true or false");
      return;
    case 's': case 'e':
      if (!limn_lua_value(st, L, i, v) || v->tag != LIMN_A_STR)
        args_bad(st, L, i, who, p, "a string");
      return;
    case 'y': args_dtype(st, L, i, who, v); return;
    default: args_ints_of(st, L, i, 1, who, p->name, a, v);
  }
}

/* -- The grammar: positional arguments, then one table of options -- */

static int args_surplus(limn_lua *st, lua_State *L, int op, int i) {
  char list[300] = "", got[300];
  size_t at = 0;
  for (int k = 0; k < st->nuser[op]; k++)
    at += (size_t)snprintf(list + at, sizeof list - at, "%s%s", k ? ", " : "",
                           st->param[op][k].name);
  return limn_lua_fail(st, L, NULL, "%s has no place for argument %d, %s: it "
                       "takes (%s)", limn_lua_op_name(op), i,
                       limn_lua_what(st, L, i, got, sizeof got), list);
}

static int args_unknown(limn_lua *st, lua_State *L, int op, const char *key) {
  char near[200];
  lua_newtable(L);
  for (int k = 0; k < st->nuser[op]; k++) {
    lua_pushboolean(L, 1);
    lua_setfield(L, -2, st->param[op][k].name);
  }
  limn_lua_near(L, key, -1, near, sizeof near);
  return limn_lua_fail(st, L, NULL, "%s has no option '%s'%s",
                       limn_lua_op_name(op), key, near);
}

/* The option values stay on the stack, and so may userdata with lists. */
static void args_options(limn_lua *st, lua_State *L, int op, int i,
                         limn_args *a) {
  const char *who = limn_lua_op_name(op);
  limn_param *p = st->param[op];
  int left = 0, k;
  lua_pushnil(L);
  while (lua_next(L, i)) { /* numbers: the list part of a mixed table */
    lua_pop(L, 1);
    left += lua_type(L, -1) == LUA_TSTRING;
  }
  luaL_checkstack(L, 3 * LIMN_MAXARGS, "options");
  for (k = 0; k < st->nuser[op]; k++) {
    lua_getfield(L, i, p[k].name);
    if (lua_isnil(L, -1)) {
      lua_pop(L, 1);
      continue;
    }
    left--;
    if (a->a[k].tag)
      limn_lua_fail(st, L, NULL, "%s: %s is given twice", who, p[k].name);
    args_param(st, L, lua_gettop(L), who, &p[k], a, &a->a[k]);
  }
  if (!left) return;
  lua_pushnil(L);
  while (lua_next(L, i)) {
    lua_pop(L, 1);
    if (lua_type(L, -1) != LUA_TSTRING) continue;
    for (k = 0; k < st->nuser[op]; k++)
      if (!strcmp(p[k].name, lua_tostring(L, -1))) break;
    if (k == st->nuser[op]) args_unknown(st, L, op, lua_tostring(L, -1));
  }
}

void limn_args_parse(limn_lua *st, lua_State *L, int op, int first,
                     limn_args *out) {
  const char *who = limn_lua_op_name(op);
  limn_param *p = st->param[op];
  int n = st->nuser[op], k = 0, i = first, top = lua_gettop(L);
  memset(out->a, 0, sizeof out->a);
  out->npool = 0;
  while (i <= top) {
    if (i == top && limn_lua_has_keys(L, i)) {
      if (luaL_getmetafield(L, i, "limn_number"))
        limn_lua_fail(st, L, "write the number itself, or pass limn.number(v) "
                      "to the traced function", "%s: limn.number(v) is an "
                      "argument of graphs, not of ops", who);
      bool mixed = k < n && (p[k].type == 'L' || p[k].type == 'D') &&
                   lua_objlen(L, i) > 0;
      if (mixed) args_ints_of(st, L, i, 1, who, p[k].name, out, &out->a[k]);
      args_options(st, L, op, i, out);
      break;
    }
    if (k >= n) {
      if (lua_isnil(L, i) || (i == top && lua_istable(L, i) &&
                              lua_objlen(L, i) == 0)) {
        i++; /* no options */
        continue;
      }
      args_surplus(st, L, op, i);
    }
    if (lua_isnil(L, i)) {
      i++, k++;
      continue;
    }
    if ((p[k].type == 'L' || p[k].type == 'D') && !lua_istable(L, i)) {
      int m = 0;
      while (i + m <= top && (lua_type(L, i + m) == LUA_TNUMBER ||
                              lua_type(L, i + m) == LIMN_TCDATA))
        m++;
      if (!m) args_bad(st, L, i, who, &p[k], "whole numbers or a list of them");
      args_ints_of(st, L, i, m, who, p[k].name, out, &out->a[k]);
      i += m, k++;
      continue;
    }
    args_param(st, L, i, who, &p[k], out, &out->a[k]);
    i++, k++;
  }
  for (k = 0; k < n; k++)
    if (!out->a[k].tag && !p[k].may && !p[k].has_default &&
        p[k].def_text[0] == 0)
      limn_lua_fail(st, L, NULL, "%s: argument %s is missing", who, p[k].name);
}

/* -- Dtypes and devices -- */

static void args_device(limn_lua *st, lua_State *L, int i, const char *who,
                        limn_place *p) {
  limn_value v;
  p->has_dev = true;
  if (lua_type(L, i) == LUA_TSTRING) {
    const char *name = lua_tostring(L, i);
    if (limn_lua_tracing(st))
      limn_lua_fail(st, L, "write x.device for the device where this runs; "
                    "with no device given the run decides",
                    "%s: the device '%s' would be written into the graph, "
                    "which is to run on any", who, name);
    limn_lua_check(st, L, limn_device_find(st->c, name, &p->dev));
    return;
  }
  limn_lua_value(st, L, i, &v);
  p->dev = NULL;
}

/* Could the name be one of a device, here or elsewhere? */
static bool args_device_like(const char *s) {
  size_t n = strcspn(s, ":");
  static const char *const kinds[] = {"cpu", "gpu", "cuda", "opencl"};
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
    if (strlen(kinds[k]) == n && !strncmp(kinds[k], s, n)) return true;
  return s[n] == ':';
}

bool limn_lua_place(limn_lua *st, lua_State *L, int i, const char *who,
                    limn_place *p) {
  limn_handle *h;
  if (lua_type(L, i) == LUA_TSTRING) {
    if (limn_dtype_find(lua_tostring(L, i)) < 0 &&
        !args_device_like(lua_tostring(L, i)))
      limn_lua_fail(st, L, "dtypes are float64 float32 float16 bfloat16 int64 "
                    "int32 int8 uint8 bool; limn.devices() lists devices",
                    "%s: '%.40s' is neither a dtype nor a device", who,
                    lua_tostring(L, i));
    if (limn_dtype_find(lua_tostring(L, i)) >= 0)
      args_dtype(st, L, i, who, &p->dtype);
    else
      args_device(st, L, i, who, p);
    return true;
  }
  h = limn_lua_dim(st, L, i);
  if (h && !h->trace->ended) {
    int kind = limn_graph_node(h->trace->g, h->ref)->kind;
    if (kind == LIMN_V_DTYPE) args_dtype(st, L, i, who, &p->dtype);
    else if (kind == LIMN_V_DEVICE) args_device(st, L, i, who, p);
    return kind == LIMN_V_DTYPE || kind == LIMN_V_DEVICE;
  }
  if (!limn_lua_has_keys(L, i)) return false;
  lua_getfield(L, i, "dtype");
  if (!lua_isnil(L, -1))
    args_dtype(st, L, lua_gettop(L), who, &p->dtype);
  lua_getfield(L, i, "device");
  if (!lua_isnil(L, -1)) args_device(st, L, lua_gettop(L), who, p);
  lua_pop(L, 2);
  lua_pushnil(L);
  while (lua_next(L, i)) {
    const char *key;
    lua_pop(L, 1);
    key = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "dtype";
    if (strcmp(key, "dtype") && strcmp(key, "device"))
      limn_lua_fail(st, L, "dtype and device are the options here",
                    "%s has no option '%s'", who, key);
  }
  return true;
}

/* -- Calling ops -- */

void limn_lua_push(limn_lua *st, lua_State *L, limn_value *v) {
  limn_handle *h;
  switch (v->tag) {
    case LIMN_A_INT: lua_pushnumber(L, (double)v->i); return;
    case LIMN_A_REAL: lua_pushnumber(L, v->f); return;
    case LIMN_A_BOOL: lua_pushboolean(L, v->i != 0); return;
    case LIMN_A_DTYPE: lua_pushstring(L, limn_dtype_name((int)v->i)); return;
    case LIMN_A_STR: lua_pushstring(L, v->s ? v->s : ""); return;
    case LIMN_X_TRACED:
      if (limn_graph_node(v->trace->g, v->ref)->kind != LIMN_V_TENSOR) {
        limn_lua_push_dim(st, L, v->trace, v->ref);
        return;
      }
      h = limn_lua_new_tensor(st, L);
      h->trace = v->trace, h->ref = v->ref;
      limn_trace_retain(v->trace);
      return;
    case LIMN_X_TENSOR: /* only where there is no way to fail before */
      h = limn_lua_new_tensor(st, L);
      h->t = v->t;
      return;
    default: lua_pushnil(L);
  }
}

int limn_lua_apply(limn_lua *st, lua_State *L, int op, const limn_value *a,
                   int n, limn_device *dev) {
  limn_handle *h = limn_lua_new_tensor(st, L); /* filled below */
  limn_value out = {0};
  int rc = limn_apply(st->c, op, a, n, dev, &out);
  if (rc < 0) {
    lua_pop(L, 1);
    return limn_lua_raise(st, L);
  }
  if (out.tag == LIMN_X_TENSOR) {
    h->t = out.t;
    limn_lua_press(st, L);
    return 1;
  }
  lua_pop(L, 1);
  limn_lua_push(st, L, &out);
  return 1;
}

int limn_lua_op(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  int op = (int)lua_tointeger(L, lua_upvalueindex(2));
  limn_args a;
  limn_args_parse(st, L, op, 1, &a);
  return limn_lua_apply(st, L, op, a.a, st->nparam[op], NULL);
}

const char *limn_lua_op_name(int op) { return limn_op_get(op)->name; }

void limn_lua_ops(limn_lua *st, lua_State *L) {
  lua_newtable(L);
  for (int op = 1; op < LIMN_NOP; op++) {
    const limn_op_row *row = limn_op_get(op);
    if (row->row == LIMN_ROW_H) continue;
    lua_pushlightuserdata(L, st);
    lua_pushinteger(L, op);
    lua_pushcclosure(L, limn_lua_op, 2);
    if (row->meta[0] && strcmp(row->meta, "__unm")) {
      for (int k = 0; k < 2; k++) { /* operators of tensors and of cells */
        lua_rawgeti(L, LUA_REGISTRYINDEX,
                    st->ref_mt[k ? LIMN_U_CELL : LIMN_U_TENSOR]);
        lua_pushvalue(L, -2);
        lua_setfield(L, -2, row->meta);
        lua_pop(L, 1);
      }
    }
    lua_setfield(L, -2, row->name);
  }
}
