/* Dims and tokens: cdata that stand for sizes, dtypes and the device of a
 * trace. They are known by a weak table, never by their bytes. */
#include "lua_core.h"

#include <stdio.h>

limn_handle *limn_lua_dim(limn_lua *st, lua_State *L, int i) {
  limn_handle *h;
  if (lua_type(L, i) != LIMN_TCDATA) return NULL;
  if (i < 0 && i > LUA_REGISTRYINDEX) i = lua_gettop(L) + 1 + i;
  lua_rawgeti(L, LUA_REGISTRYINDEX, st->ref_dims);
  lua_pushvalue(L, i);
  lua_rawget(L, -2);
  h = lua_touserdata(L, -1); /* the table keeps it as long as the cdata */
  lua_pop(L, 2);
  return h;
}

void limn_lua_push_dim(limn_lua *st, lua_State *L, limn_trace *t,
                       limn_ref ref) {
  bool scope = st->scope;
  limn_handle *h;
  if (st->ref_maker == LUA_NOREF)
    limn_lua_fail(st, L, NULL, "tracing needs LuaJIT's ffi library");
  lua_rawgeti(L, LUA_REGISTRYINDEX, st->ref_maker);
  lua_call(L, 0, 1);
  lua_rawgeti(L, LUA_REGISTRYINDEX, st->ref_dims);
  lua_pushvalue(L, -2);
  st->scope = false;
  h = limn_lua_new_tensor(st, L);
  st->scope = scope;
  h->trace = t, h->ref = ref;
  limn_trace_retain(t);
  lua_rawset(L, -3);
  lua_pop(L, 1);
}

/* set_shape(metatable): of the lists that x.shape gives */
static int dim_set_shape(lua_State *L) {
  return limn_lua_keep(L, LUA_TTABLE, &limn_lua_state(L)->ref_shape);
}

/* set_maker(function): makes a fresh cdata */
static int dim_set_maker(lua_State *L) {
  return limn_lua_keep(L, LUA_TFUNCTION, &limn_lua_state(L)->ref_maker);
}

static int dim_kind(const limn_value *v) {
  return v->tag == LIMN_X_TRACED
             ? limn_graph_node(v->trace->g, v->ref)->kind : LIMN_V_NONE;
}

/* kind(dim): "int", "real", "bool", "dtype" or "device" */
static int dim_kind_of(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_handle *h = limn_lua_dim(st, L, 1);
  if (!h || !h->trace || h->trace->ended) return 0;
  switch (limn_graph_node(h->trace->g, h->ref)->kind) {
    case LIMN_V_INT: lua_pushliteral(L, "int"); break;
    case LIMN_V_REAL: lua_pushliteral(L, "real"); break;
    case LIMN_V_BOOL: lua_pushliteral(L, "bool"); break;
    case LIMN_V_DTYPE: lua_pushliteral(L, "dtype"); break;
    default: lua_pushliteral(L, "device");
  }
  return 1;
}

/* Record that `op(a, b)` is what the hint says; returns what it says. */
static bool dim_decide(limn_lua *st, lua_State *L, int op, int otherwise,
                         const limn_arg *a, int n) {
  limn_trace *t = st->c->trace;
  const limn_type *hint;
  limn_ref r, not;
  limn_arg x;
  bool yes;
  limn_lua_check(st, L, limn_trace_op(t, op, a, n, &r));
  hint = limn_trace_hint(t, r);
  if (!hint) limn_lua_raise(st, L);
  yes = hint->i != 0;
  if (!yes && otherwise == OP_logical_not) {
    x = limn_aref(r);
    limn_lua_check(st, L, limn_trace_op(t, otherwise, &x, 1, &not));
    r = not;
  } else if (!yes) {
    limn_lua_check(st, L, limn_trace_op(t, otherwise, a, n, &r));
  }
  limn_lua_check(st, L, limn_trace_guard(t, limn_aref(r)));
  return yes;
}

static bool dim_both(limn_lua *st, lua_State *L, limn_value *v) {
  return limn_lua_value(st, L, 1, &v[0]) && limn_lua_value(st, L, 2, &v[1]);
}

static bool dim_dtype_arg(limn_value *v) {
  int d;
  if (v->tag != LIMN_A_STR) return dim_kind(v) == LIMN_V_DTYPE;
  d = limn_dtype_find(v->s);
  if (d < 0) return false;
  *v = limn_vint(d);
  v->tag = LIMN_A_DTYPE;
  return true;
}

static int dim_mirror(int op) {
  switch (op) {
    case OP_lt: return OP_gt;
    case OP_le: return OP_ge;
    case OP_gt: return OP_lt;
    case OP_ge: return OP_le;
    default: return op;
  }
}

/* ==, < and <= of Dims and tokens: upvalue 2 is the op, 3 its opposite */
static int dim_compare(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  int op = (int)lua_tointeger(L, lua_upvalueindex(2));
  int opposite = (int)lua_tointeger(L, lua_upvalueindex(3));
  limn_trace *t = limn_lua_tracing(st);
  limn_value v[2];
  limn_arg a[2];
  bool none = lua_isnoneornil(L, 1) || lua_isnoneornil(L, 2);
  if (op == OP_eq && (none || !dim_both(st, L, v))) {
    lua_pushboolean(L, 0);
    return 1;
  }
  if (none || (op != OP_eq && !dim_both(st, L, v)))
    return limn_lua_fail(st, L, NULL, "a size is compared with %s",
                         luaL_typename(L, lua_isnil(L, 1) ? 1 : 2));
  if (dim_kind(&v[0]) == LIMN_V_DEVICE || dim_kind(&v[1]) == LIMN_V_DEVICE)
    return limn_lua_fail(st, L, "limn.by_device {cpu = f, gpu = g} records "
                         "code for both",
                         "the device of a trace cannot be compared: it is "
                         "known when the graph runs");
  if (!t)
    return limn_lua_fail(st, L, "return it from the traced function",
                         "a size of a trace is used outside it");
  if (dim_kind(&v[0]) == LIMN_V_DTYPE || dim_kind(&v[1]) == LIMN_V_DTYPE) {
    if (op != OP_eq || !dim_dtype_arg(&v[0]) || !dim_dtype_arg(&v[1])) {
      lua_pushboolean(L, 0);
      return 1;
    }
    op = OP_is, opposite = OP_logical_not;
  } else if (dim_kind(&v[0]) == LIMN_V_TENSOR ||
             dim_kind(&v[1]) == LIMN_V_TENSOR || v[0].tag == LIMN_X_TENSOR ||
             v[1].tag == LIMN_X_TENSOR) {
    return limn_lua_fail(st, L, NULL, "a size and a tensor are compared by "
                         "x:eq(n), x:lt(n), ...");
  } else if (op == OP_eq &&
             (v[0].tag == LIMN_A_STR || v[1].tag == LIMN_A_STR)) {
    lua_pushboolean(L, 0);
    return 1;
  }
  for (int k = 0; k < 2; k++)
    limn_lua_check(st, L, limn_trace_arg(t, &v[k], &a[k]));
  if (a[0].tag != LIMN_A_REF) { /* Lua turns n > 2 round to 2 < n */
    limn_arg swap = a[0];
    a[0] = a[1], a[1] = swap;
    op = dim_mirror(op), opposite = dim_mirror(opposite);
  }
  lua_pushboolean(L, dim_decide(st, L, op, opposite, a, 2));
  return 1;
}

/* Of what is no size: a tensor's item, all else as it is. */
static int dim_item(limn_lua *st, lua_State *L) {
  lua_settop(L, 1);
  if (!limn_lua_to(st, L, 1, LIMN_U_TENSOR) &&
      !limn_lua_to(st, L, 1, LIMN_U_CELL))
    return 1;
  lua_getfield(L, 1, "item");
  lua_pushvalue(L, 1);
  lua_call(L, 1, 1);
  return 1;
}

/* value(n): the number (or dtype, boolean) itself, with a guard in a trace */
static int dim_value(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_trace *t = limn_lua_tracing(st);
  limn_value v;
  limn_arg a[2];
  const limn_type *hint;
  limn_type known;
  if (!limn_lua_dim(st, L, 1)) return dim_item(st, L);
  limn_lua_value(st, L, 1, &v);
  if (!t || v.trace != t)
    return limn_lua_fail(st, L, NULL, "a size of a trace is used outside it");
  a[0] = limn_aref(v.ref);
  hint = limn_trace_hint(t, v.ref);
  if (!hint) return limn_lua_raise(st, L);
  known = *hint; /* recording may move it */
  switch (known.kind) {
    case LIMN_V_INT:
      a[1] = limn_aint(known.i);
      dim_decide(st, L, OP_eq, OP_ne, a, 2);
      lua_pushnumber(L, (double)known.i);
      return 1;
    case LIMN_V_REAL:
      a[1] = limn_areal(known.f);
      dim_decide(st, L, OP_eq, OP_ne, a, 2);
      lua_pushnumber(L, known.f);
      return 1;
    case LIMN_V_BOOL:
      if (!known.i) {
        limn_ref r;
        limn_lua_check(st, L, limn_trace_op(t, OP_logical_not, a, 1, &r));
        a[0] = limn_aref(r);
      }
      limn_lua_check(st, L, limn_trace_guard(t, a[0]));
      lua_pushboolean(L, known.i != 0);
      return 1;
    case LIMN_V_DTYPE:
      a[1] = limn_adtype(known.dtype);
      dim_decide(st, L, OP_is, OP_logical_not, a, 2);
      lua_pushstring(L, limn_dtype_name(known.dtype));
      return 1;
    default:
      return limn_lua_fail(st, L, NULL, "the device of a trace has no value "
                           "before the graph runs");
  }
}

/* hint(n): what the example says, for messages; no guard */
static int dim_hint(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_handle *h = limn_lua_dim(st, L, 1);
  const limn_type *hint;
  if (!h || h->trace->ended) return 0;
  hint = limn_trace_hint(h->trace, h->ref);
  if (!hint) return 0;
  if (hint->kind == LIMN_V_INT) lua_pushnumber(L, (double)hint->i);
  else if (hint->kind == LIMN_V_REAL) lua_pushnumber(L, hint->f);
  else lua_pushnil(L);
  return 1;
}

/* Arithmetic and functions of sizes: upvalue 2 is the op, 3 how many. */
static int dim_arith(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  int op = (int)lua_tointeger(L, lua_upvalueindex(2));
  int n = (int)lua_tointeger(L, lua_upvalueindex(3));
  limn_value a[3] = {{0}};
  char got[300];
  for (int k = 0; k < n; k++)
    if (!limn_lua_value(st, L, k + 1, &a[k]) || a[k].tag == LIMN_A_STR ||
        dim_kind(&a[k]) == LIMN_V_DTYPE || dim_kind(&a[k]) == LIMN_V_DEVICE)
      return limn_lua_fail(st, L, NULL, "%s of a size and %s",
                           limn_lua_op_name(op),
                           limn_lua_what(st, L, k + 1, got, sizeof got));
  return limn_lua_apply(st, L, op, a, n, NULL);
}

static void dim_symbol(limn_lua *st, lua_State *L, int i) {
  limn_handle *h = limn_lua_dim(st, L, i);
  char name[128];
  limn_node *n;
  if (!h || h->trace->ended) {
    lua_pushstring(L, h ? "a size of an ended trace" : "?");
    return;
  }
  n = limn_graph_node(h->trace->g, h->ref);
  if (n->kind == LIMN_V_DEVICE) {
    lua_pushliteral(L, "device");
    return;
  }
  if (n->op == OP_size || n->op == OP_dtypeof) {
    limn_arg *a = limn_node_args(h->trace->g, h->ref);
    limn_arg_text(h->trace->g, a[0], name, sizeof name);
    if (n->op == OP_size)
      lua_pushfstring(L, "size(%s, %d)", name, (int)a[1].u.i);
    else
      lua_pushfstring(L, "dtype(%s)", name);
    return;
  }
  limn_arg_text(h->trace->g, limn_aref(h->ref), name, sizeof name);
  lua_pushstring(L, name);
}

static int dim_tostring(lua_State *L) {
  dim_symbol(limn_lua_state(L), L, 1);
  return 1;
}

static int dim_concat(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  for (int i = 1; i <= 2; i++) {
    if (lua_isstring(L, i)) {
      lua_pushvalue(L, i);
    } else if (lua_type(L, i) == LIMN_TCDATA) {
      dim_symbol(st, L, i);
    } else {
      lua_getglobal(L, "tostring");
      lua_pushvalue(L, i);
      lua_call(L, 1, 1);
    }
  }
  lua_concat(L, 2);
  return 1;
}

/* The metamethods of the ctype that is made in trace.lua. */
static void dim_meta(limn_lua *st, lua_State *L) {
  static const struct { const char *name; int op, n; } arith[] = {
      {"__add", OP_add, 2}, {"__sub", OP_sub, 2},       {"__mul", OP_mul, 2},
      {"__div", OP_div, 2}, {"__mod", OP_remainder, 2}, {"__pow", OP_pow, 2},
      {"__unm", OP_neg, 1}, {"floor", OP_floor, 1},     {"ceil", OP_ceil, 1},
      {"sqrt", OP_sqrt, 1}, {"min", OP_minimum, 2},     {"max", OP_maximum, 2},
      {"abs", OP_abs, 1},   {"log", OP_log, 1},         {"exp", OP_exp, 1}};
  static const struct { const char *name; int op, not; } compare[] = {
      {"__eq", OP_eq, OP_ne}, {"__lt", OP_lt, OP_ge}, {"__le", OP_le, OP_gt}};
  static const luaL_Reg text[] = {{"__tostring", dim_tostring},
                                  {"__concat", dim_concat},
                                  {NULL, NULL}};
  lua_newtable(L);
  limn_lua_register(st, L, text);
  for (int k = 0; k < LIMN_COUNT(arith) + LIMN_COUNT(compare); k++) {
    bool cmp = k >= LIMN_COUNT(arith);
    int j = cmp ? k - LIMN_COUNT(arith) : k;
    lua_pushlightuserdata(L, st);
    lua_pushinteger(L, cmp ? compare[j].op : arith[j].op);
    lua_pushinteger(L, cmp ? compare[j].not : arith[j].n);
    lua_pushcclosure(L, cmp ? dim_compare : dim_arith, 3);
    lua_setfield(L, -2, cmp ? compare[j].name : arith[j].name);
  }
  lua_setfield(L, -2, "dim_meta");
}

static const luaL_Reg dim_functions[] = {{"set_maker", dim_set_maker},
                                         {"set_shape", dim_set_shape},
                                         {"kind", dim_kind_of},
                                         {"value", dim_value},
                                         {"hint", dim_hint},
                                         {NULL, NULL}};

void limn_lua_open_dim(limn_lua *st, lua_State *L) {
  limn_lua_register(st, L, dim_functions);
  dim_meta(st, L);
}
