/* Tensors in Lua: fields, reading elements, moving, and metamethods. */
#include "lua_core.h"

#include <stdio.h>

/* -- What is behind an argument -- */

/* The value of the handle at i, or NULL. */
static limn_tensor *tensor_known(limn_lua *st, lua_State *L, int i) {
  limn_handle *h = limn_lua_to(st, L, i, LIMN_U_TENSOR);
  return h ? h->t : NULL;
}

/* Shape and dtype where they are known: eager values and cells. */
static bool tensor_shape(limn_lua *st, lua_State *L, int i, limn_shape *s,
                         int *dtype) {
  limn_tensor *t = tensor_known(st, L, i);
  limn_cell **cell;
  if (t) {
    *s = limn_tensor_shape(t);
    *dtype = t->dtype;
    return true;
  }
  cell = limn_lua_to(st, L, i, LIMN_U_CELL);
  if (!cell) return false;
  *s = (*cell)->shape;
  *dtype = (*cell)->dtype;
  return true;
}

limn_tensor *limn_lua_eager(limn_lua *st, lua_State *L, int i,
                            const char *who) {
  limn_value v;
  limn_tensor *t;
  limn_lua_operand(st, L, i, who, "the argument", &v);
  if (v.tag == LIMN_X_TRACED || limn_lua_tracing(st))
    limn_lua_fail(st, L, "limn.script(f) lets `if` and loops depend on values; "
                  "limn.print(x) shows them in each run",
                  "%s would read a value, but a trace has none: it records "
                  "what each run will compute", who);
  if (v.tag == LIMN_X_TENSOR) return v.t;
  limn_lua_check(st, L, limn_cell_get(v.cell, NULL, &t));
  return t;
}

/* -- Sizes -- */

/* Pushes size dim (1-based or negative) of the tensor at 1. */
static int tensor_size(limn_lua *st, lua_State *L, int64_t dim) {
  limn_shape s;
  limn_value a[2];
  int dtype, rank;
  if (tensor_shape(st, L, 1, &s, &dtype)) {
    rank = s.ndim;
    if (dim < 0) dim += rank + 1;
    if (dim < 1 || dim > rank)
      return limn_lua_fail(st, L, NULL, "size: there is no dim %lld in a "
                           "tensor with %d dims", (long long)dim, rank);
    lua_pushnumber(L, (double)s.d[dim - 1]);
    return 1;
  }
  limn_lua_operand(st, L, 1, "size", "x", &a[0]);
  rank = limn_graph_node(a[0].trace->g, a[0].ref)->rank;
  if (dim < 0) dim += rank + 1;
  if (dim < 1 || dim > rank)
    return limn_lua_fail(st, L, NULL, "size: there is no dim %lld in a "
                         "tensor with %d dims", (long long)dim, rank);
  a[1] = limn_vint(dim);
  return limn_lua_apply(st, L, OP_size, a, 2, NULL);
}

static int tensor_rank(limn_lua *st, lua_State *L, int i) {
  limn_shape s;
  limn_value v;
  int dtype;
  if (tensor_shape(st, L, i, &s, &dtype)) return s.ndim;
  limn_lua_operand(st, L, i, "dim", "x", &v);
  return limn_graph_node(v.trace->g, v.ref)->rank;
}

static int tensor_sizes(limn_lua *st, lua_State *L) {
  int rank = tensor_rank(st, L, 1);
  lua_createtable(L, rank, 0);
  for (int k = 1; k <= rank; k++) {
    tensor_size(st, L, k);
    lua_rawseti(L, -2, k);
  }
  lua_rawgeti(L, LUA_REGISTRYINDEX, st->ref_shape);
  if (lua_istable(L, -1)) lua_setmetatable(L, -2);
  else lua_pop(L, 1);
  return 1;
}

static int tensor_m_size(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  if (lua_isnoneornil(L, 2)) return tensor_sizes(st, L);
  if (!lua_isnumber(L, 2))
    return limn_lua_fail(st, L, NULL, "size: a dim must be a number");
  return tensor_size(st, L, (int64_t)lua_tonumber(L, 2));
}

static int tensor_m_dim(lua_State *L) {
  lua_pushinteger(L, tensor_rank(limn_lua_state(L), L, 1));
  return 1;
}

static int tensor_m_numel(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_shape s;
  int dtype, rank;
  if (tensor_shape(st, L, 1, &s, &dtype)) {
    lua_pushnumber(L, (double)limn_numel(s.ndim, s.d));
    return 1;
  }
  rank = tensor_rank(st, L, 1);
  if (rank == 0) lua_pushinteger(L, 1);
  for (int k = 1; k <= rank; k++) {
    limn_value a[2];
    tensor_size(st, L, k);
    if (k == 1) continue;
    limn_lua_value(st, L, -2, &a[0]);
    limn_lua_value(st, L, -1, &a[1]);
    limn_lua_apply(st, L, OP_mul, a, 2, NULL);
    lua_replace(L, -3);
    lua_pop(L, 1);
  }
  return 1;
}

static int tensor_m_len(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  lua_settop(L, 1);
  return tensor_size(st, L, 1);
}

static int tensor_dtype(limn_lua *st, lua_State *L) {
  limn_shape s;
  limn_value v;
  int dtype;
  if (tensor_shape(st, L, 1, &s, &dtype)) {
    lua_pushstring(L, limn_dtype_name(dtype));
    return 1;
  }
  limn_lua_operand(st, L, 1, "dtype", "x", &v);
  return limn_lua_apply(st, L, OP_dtypeof, &v, 1, NULL);
}

static int tensor_device(limn_lua *st, lua_State *L) {
  limn_tensor *t = tensor_known(st, L, 1);
  if (limn_lua_tracing(st))
    return limn_lua_apply(st, L, OP_device, NULL, 0, NULL);
  if (!t) t = limn_lua_eager(st, L, 1, "device");
  lua_pushstring(L, limn_dev_name(t->st->dev));
  return 1;
}

/* -- Elements -- */

void limn_lua_push_element(limn_lua *st, lua_State *L, int dtype,
                           const void *p) {
  int64_t i;
  if (dtype == LIMN_BOOL) {
    lua_pushboolean(L, *(const uint8_t *)p != 0);
  } else if (limn_dtype_float(dtype)) {
    lua_pushnumber(L, limn_load_real(dtype, p));
  } else {
    i = limn_load_int(dtype, p);
    if (i > (int64_t)1 << 53 || i < -((int64_t)1 << 53))
      limn_lua_fail(st, L, NULL, "%lld does not fit a Lua number exactly "
                    "(beyond 2^53)", (long long)i);
    lua_pushnumber(L, (double)i);
  }
}

static int tensor_m_item(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_tensor *t = limn_lua_eager(st, L, 1, "item");
  char text[300];
  int64_t buf = 0;
  if (limn_tensor_numel(t) != 1)
    return limn_lua_fail(st, L, "use :at(i, j) or :totable()",
                         "item needs a tensor with one element, not %s",
                         limn_tensor_text(text, sizeof text, t));
  limn_lua_check(st, L, limn_tensor_element(t, 0, &buf));
  limn_lua_push_element(st, L, t->dtype, &buf);
  return 1;
}

static int tensor_m_at(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_tensor *t = limn_lua_eager(st, L, 1, "at");
  int64_t at = 0, buf = 0;
  char text[300];
  if (lua_gettop(L) - 1 != t->v.ndim)
    return limn_lua_fail(st, L, NULL, "at: %d positions for %s",
                         lua_gettop(L) - 1,
                         limn_tensor_text(text, sizeof text, t));
  for (int k = 0; k < t->v.ndim; k++) {
    limn_value v;
    if (!limn_lua_value(st, L, k + 2, &v) || v.tag != LIMN_A_INT)
      return limn_lua_fail(st, L, NULL, "at: a position is a whole number, not "
                           "%s", limn_lua_what(st, L, k + 2, text,
                                               sizeof text));
    int64_t i = v.i, n = t->v.d[k];
    int64_t p = i < 0 ? i + n : i - 1;
    if (i == 0 || p < 0 || p >= n)
      return limn_lua_fail(st, L, NULL, "at: position %lld in dim %d is out of "
                           "range 1..%lld", (long long)i, k + 1, (long long)n);
    at = at * n + p;
  }
  limn_lua_check(st, L, limn_tensor_element(t, at, &buf));
  limn_lua_push_element(st, L, t->dtype, &buf);
  return 1;
}

/* A table of dim k from dense host memory at *p. */
static void tensor_table(limn_lua *st, lua_State *L, const limn_tensor *t,
                         int k, const char **p) {
  int64_t n = t->v.d[k];
  luaL_checkstack(L, 4, "too many dims");
  lua_createtable(L, (int)n, 0);
  for (int64_t i = 0; i < n; i++) {
    if (k + 1 < t->v.ndim) {
      tensor_table(st, L, t, k + 1, p);
    } else {
      limn_lua_push_element(st, L, t->dtype, *p);
      *p += limn_dtype_size(t->dtype);
    }
    lua_rawseti(L, -2, (int)i + 1);
  }
}

static int tensor_m_totable(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_tensor *t = limn_lua_eager(st, L, 1, "totable");
  size_t n = (size_t)(limn_tensor_numel(t) * limn_dtype_size(t->dtype));
  char *buf = lua_newuserdata(L, n + 8);
  const char *p = buf;
  limn_lua_check(st, L, limn_tensor_read(t, buf, n));
  if (t->v.ndim) tensor_table(st, L, t, 0, &p);
  else limn_lua_push_element(st, L, t->dtype, buf);
  return 1;
}

/* tostring_bytes: the elements as a string of raw, row-major bytes */
static int tensor_m_bytes(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_tensor *t = limn_lua_eager(st, L, 1, "bytes");
  size_t n = (size_t)(limn_tensor_numel(t) * limn_dtype_size(t->dtype));
  char *buf = lua_newuserdata(L, n + 8);
  limn_lua_check(st, L, limn_tensor_read(t, buf, n));
  lua_pushlstring(L, buf, n);
  return 1;
}

/* pointer(): the memory of a dense CPU tensor, its number of elements */
static int tensor_m_pointer(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_tensor *t = limn_lua_eager(st, L, 1, "data");
  char text[300];
  if (!limn_dev_is_host(t->st->dev) || !limn_tensor_is_dense(t))
    return limn_lua_fail(st, L, ":to \"cpu\" and :contiguous() make it so",
                         "data needs a dense tensor on the CPU, not %s",
                         limn_tensor_text(text, sizeof text, t));
  lua_pushlightuserdata(L, (char *)t->st->mem +
                               t->v.offset * limn_dtype_size(t->dtype));
  lua_pushnumber(L, (double)limn_tensor_numel(t));
  return 2;
}

/* -- Copies -- */

/* Pushes a handle to a value of a trace: captures and cells are read. */
static int tensor_traced(limn_lua *st, lua_State *L, const limn_value *v) {
  limn_handle *h = limn_lua_new_tensor(st, L);
  limn_trace *t = st->c->trace;
  limn_arg a;
  limn_lua_check(st, L, limn_trace_arg(t, v, &a));
  h->trace = t, h->ref = a.u.ref;
  limn_trace_retain(t);
  return 1;
}

/* A handle of its own to the same value. */
static int tensor_m_clone(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_handle *h;
  limn_value v;
  limn_tensor *t;
  limn_lua_operand(st, L, 1, "clone", "x", &v);
  if (limn_lua_tracing(st)) return tensor_traced(st, L, &v);
  if (v.tag == LIMN_X_CELL) {
    if (st->c->trace) { /* a tape: the value as recorded */
      limn_arg a;
      limn_lua_check(st, L, limn_trace_arg(st->c->trace, &v, &a));
    }
    limn_lua_check(st, L, limn_cell_get(v.cell, NULL, &t));
  } else {
    t = v.t;
  }
  h = limn_lua_new_tensor(st, L);
  limn_tensor_retain(t);
  h->t = t;
  return 1;
}

static int tensor_m_contiguous(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_tensor *t = tensor_known(st, L, 1);
  if (!t || st->c->trace || limn_tensor_is_dense(t)) return tensor_m_clone(L);
  limn_handle *h = limn_lua_new_tensor(st, L);
  limn_lua_check(st, L, limn_tensor_contiguous(t, &h->t));
  limn_lua_press(st, L);
  return 1;
}

/* to(dtype | device | options | tensor, ...) */
static int tensor_m_to(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_place p = {0};
  limn_value a[2];
  limn_handle *h;
  limn_device *dev;
  int top = lua_gettop(L), dtype;
  char got[300];
  limn_lua_operand(st, L, 1, "to", "x", &a[0]);
  if (top < 2)
    return limn_lua_fail(st, L, NULL, "to needs a dtype or a device");
  for (int i = 2; i <= top; i++) {
    limn_shape s;
    if (lua_isnil(L, i) || limn_lua_place(st, L, i, "to", &p)) continue;
    if (tensor_shape(st, L, i, &s, &dtype)) { /* like another tensor */
      limn_tensor *like = tensor_known(st, L, i);
      p.dtype = limn_vint(dtype), p.dtype.tag = LIMN_A_DTYPE;
      if (like && !limn_lua_tracing(st)) p.dev = like->st->dev;
      continue;
    }
    return limn_lua_fail(st, L, NULL, "to: %s is neither a dtype nor a "
                         "device", limn_lua_what(st, L, i, got, sizeof got));
  }
  if (limn_lua_tracing(st)) {
    if (!p.dtype.tag) return tensor_traced(st, L, &a[0]);
    a[1] = p.dtype;
    return limn_lua_apply(st, L, OP_convert, a, 2, NULL);
  }
  if (a[0].tag == LIMN_X_CELL) {
    tensor_m_clone(L);
    limn_lua_value(st, L, -1, &a[0]);
  }
  dev = p.dev ? p.dev : a[0].t->st->dev;
  dtype = p.dtype.tag ? (int)p.dtype.i : a[0].t->dtype;
  if (st->c->trace && dev != a[0].t->st->dev && a[0].t->v.ndim)
    return limn_lua_fail(st, L, "move the arguments before the call",
                         "to: a gradient does not follow a tensor to another "
                         "device");
  if (st->c->trace && dtype != a[0].t->dtype) {
    a[1] = p.dtype;
    return limn_lua_apply(st, L, OP_convert, a, 2, NULL);
  }
  h = limn_lua_new_tensor(st, L);
  limn_lua_check(st, L, limn_tensor_to(a[0].t, dev, dtype, &h->t));
  limn_lua_press(st, L);
  return 1;
}

void limn_lua_moved(limn_lua *st, limn_handle *h) {
  if (!h->watch) return;
  h->watch->changed = true;
  limn_watch_release(h->watch, st->c);
  h->watch = NULL;
}

/* No trace can record that a value from outside changes. */
static void tensor_check_lost(limn_lua *st, lua_State *L,
                              const limn_handle *h) {
  if (limn_lua_tracing(st) && (h->t || h->flags & LIMN_H_ARG))
    limn_lua_fail(st, L, "x = x:clone() first, then assign to it and return it",
                  "assigning to %s inside a trace would be lost",
                  h->t ? "a captured tensor" : "an argument");
}

/* copy_from(src): the handle takes src's elements; shape, dtype and device
 * stay. In place where nothing else holds the storage. */
static int tensor_m_copy_from(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_handle *h = limn_lua_to(st, L, 1, LIMN_U_TENSOR);
  limn_tensor *src, *made = NULL;
  limn_shape s, d;
  char t1[200], t2[200];
  if (h) tensor_check_lost(st, L, h);
  if (h && h->trace)
    return limn_lua_fail(st, L, "write x[{}] = src",
                         "copy_from works on values, which a trace does not "
                         "have");
  if (!h || !h->t)
    return limn_lua_fail(st, L, "write cell:assign(t) for a cell",
                         "copy_from needs a tensor with a value");
  if (h->flags & LIMN_H_ROW)
    return limn_lua_fail(st, L, "write x[{1, {2, 3}}] = src",
                         "copying into a part that was taken out of a tensor "
                         "would be lost");
  src = limn_lua_eager(st, L, 2, "copy_from");
  s = limn_tensor_shape(src), d = limn_tensor_shape(h->t);
  if (!limn_shape_eq(&s, &d))
    return limn_lua_fail(st, L, NULL, "copy_from: shape %s is wanted, not %s",
                         limn_shape_text(t1, sizeof t1, d.ndim, d.d),
                         limn_shape_text(t2, sizeof t2, s.ndim, s.d));
  if (h->t->refs == 1 && h->t->st->refs == 1 && !h->t->st->borrowed &&
      limn_dev_is_host(h->t->st->dev) && limn_dev_is_host(src->st->dev) &&
      limn_view_distinct(&h->t->v)) {
    limn_host_copy(h->t->dtype, h->t->st->mem, &h->t->v, src->dtype,
                   src->st->mem, &src->v);
  } else {
    limn_lua_check(st, L, limn_tensor_to(src, h->t->st->dev, h->t->dtype,
                                         &made));
    limn_tensor_release(h->t);
    h->t = made;
  }
  limn_lua_moved(st, h);
  lua_settop(L, 1);
  return 1;
}

/* -- Metamethods -- */

static int tensor_index(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  const char *key;
  char near[200];
  if (lua_type(L, 2) != LUA_TSTRING) return limn_lua_index(st, L);
  lua_pushvalue(L, 2);
  lua_rawget(L, lua_upvalueindex(2));
  if (!lua_isnil(L, -1)) return 1;
  key = lua_tostring(L, 2);
  if (!strcmp(key, "shape")) return tensor_sizes(st, L);
  if (!strcmp(key, "dtype")) return tensor_dtype(st, L);
  if (!strcmp(key, "device")) return tensor_device(st, L);
  lua_getfield(L, LUA_REGISTRYINDEX, "limn.instead"); /* instead.lua */
  if (lua_istable(L, -1)) lua_getfield(L, -1, key);
  if (lua_type(L, -1) == LUA_TSTRING)
    return limn_lua_fail(st, L, lua_tostring(L, -1),
                         "tensors have no method '%s'", key);
  limn_lua_near(L, key, lua_upvalueindex(2), near, sizeof near);
  return limn_lua_fail(st, L, NULL, "tensors have no method '%s'%s", key, near);
}

static int tensor_newindex(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_handle *h = limn_lua_to(st, L, 1, LIMN_U_TENSOR), *made;
  limn_value x = {0};
  if (lua_type(L, 2) == LUA_TSTRING)
    return limn_lua_fail(st, L, NULL, "a tensor has no field '%s' to assign",
                         lua_tostring(L, 2));
  if (h->flags & LIMN_H_ROW)
    return limn_lua_fail(st, L, "write x[{1, 2}] = v to assign to x, or "
                         ":clone() the part first to change a copy",
                         "assigning to a part that was taken out of a tensor "
                         "would be lost");
  tensor_check_lost(st, L, h);
  limn_lua_value(st, L, 1, &x);
  limn_lua_update(st, L, &x); /* pushes the new value, or nil if in place */
  made = limn_lua_to(st, L, -1, LIMN_U_TENSOR);
  limn_lua_moved(st, h);
  if (!made) return 0;
  limn_tensor *t = h->t;
  limn_trace *trace = h->trace;
  h->t = made->t, h->trace = made->trace, h->ref = made->ref;
  made->t = NULL, made->trace = NULL;
  limn_tensor_release(t);
  if (trace) limn_trace_release(trace);
  return 0;
}

static int tensor_compare(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  const char *op = lua_tostring(L, lua_upvalueindex(2));
  static const char *const names[][2] = {
      {"==", "eq"}, {"<", "lt"}, {"<=", "le"}};
  int k = 0;
  while (k < 2 && strcmp(names[k][0], op)) k++;
  return limn_lua_fail(st, L, limn_lua_tracing(st)
                       ? "limn.script(f) lets an `if` depend on values"
                       : "x:item() gives a number to decide on",
                       "%s between tensors has no single answer: write "
                       "x:%s(y) for a tensor of answers", op, names[k][1]);
}

static int tensor_unm(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_value v;
  limn_lua_operand(st, L, 1, "neg", "x", &v);
  return limn_lua_apply(st, L, OP_neg, &v, 1, NULL);
}

/* Symbolic text of a traced value: "%x: [_, _]". */
static void tensor_symbol(lua_State *L, const limn_value *v) {
  char name[128], dims[64] = "";
  const limn_node *n = limn_graph_node(v->trace->g, v->ref);
  limn_arg_text(v->trace->g, limn_aref(v->ref), name, sizeof name);
  if (n->kind != LIMN_V_TENSOR) {
    lua_pushstring(L, name);
    return;
  }
  for (int k = 0; k < n->rank; k++) strcat(dims, k ? ", _" : "_");
  lua_pushfstring(L, "%s: [%s]", name, dims);
}

static int tensor_tostring(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_handle *h = limn_lua_to(st, L, 1, LIMN_U_TENSOR);
  limn_str b;
  limn_value v;
  int rc;
  if (h && (h->flags & LIMN_H_FREED || (h->trace && h->trace->ended))) {
    lua_pushstring(L, h->flags & LIMN_H_FREED ? "a freed tensor"
                                              : "a value of an ended trace");
    return 1;
  }
  limn_lua_value(st, L, 1, &v);
  if (v.tag == LIMN_X_TRACED) {
    tensor_symbol(L, &v);
    return 1;
  }
  limn_str_init(&b, st->c);
  rc = limn_tensor_format(v.t, &b);
  if (rc >= 0) lua_pushlstring(L, b.s ? b.s : "", b.len);
  limn_str_free(&b);
  limn_lua_check(st, L, rc);
  return 1;
}

/* A 0-dim tensor in a string is its number, as Lua writes numbers. */
static int tensor_concat(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  lua_settop(L, 2);
  for (int i = 1; i <= 2; i++) {
    limn_value v;
    limn_tensor *t;
    int64_t buf = 0;
    if (lua_type(L, i) == LUA_TSTRING || lua_type(L, i) == LUA_TNUMBER) {
      lua_pushvalue(L, i);
      continue;
    }
    if (!limn_lua_value(st, L, i, &v))
      return limn_lua_fail(st, L, NULL, "a tensor and a %s cannot be joined",
                           luaL_typename(L, i));
    if (v.tag == LIMN_X_TRACED) {
      tensor_symbol(L, &v);
      continue;
    }
    t = v.t;
    if (v.tag == LIMN_X_CELL)
      limn_lua_check(st, L, limn_cell_get(v.cell, NULL, &t));
    if (t->v.ndim) {
      char text[300];
      lua_pushstring(L, limn_tensor_text(text, sizeof text, t));
      continue;
    }
    limn_lua_check(st, L, limn_tensor_element(t, 0, &buf));
    limn_lua_push_element(st, L, t->dtype, &buf);
    if (!lua_isboolean(L, -1)) continue;
    lua_pushstring(L, lua_toboolean(L, -1) ? "true" : "false");
    lua_replace(L, -2);
  }
  lua_concat(L, 2);
  return 1;
}

static int tensor_gc(lua_State *L) {
  limn_handle *h = lua_touserdata(L, 1);
  limn_lua_drop(h, false);
  return 0;
}

static const luaL_Reg tensor_methods[] = {
    {"size", tensor_m_size},           {"dim", tensor_m_dim},
    {"numel", tensor_m_numel},         {"item", tensor_m_item},
    {"at", tensor_m_at},               {"totable", tensor_m_totable},
    {"bytes", tensor_m_bytes},         {"pointer", tensor_m_pointer},
    {"clone", tensor_m_clone},         {"contiguous", tensor_m_contiguous},
    {"to", tensor_m_to},               {"copy_from", tensor_m_copy_from},
    {NULL, NULL}};

static const luaL_Reg tensor_meta[] = {
    {"__newindex", tensor_newindex}, {"__tostring", tensor_tostring},
    {"__gc", tensor_gc},             {NULL, NULL}};

/* Shared by tensors and cells. */
static const luaL_Reg tensor_both[] = {
    {"__len", tensor_m_len}, {"__unm", tensor_unm},
    {"__concat", tensor_concat}, {NULL, NULL}};

static void tensor_open_compare(limn_lua *st, lua_State *L) {
  static const char *const ops[][2] = {
      {"__eq", "=="}, {"__lt", "<"}, {"__le", "<="}};
  for (int k = 0; k < 3; k++) {
    lua_pushlightuserdata(L, st);
    lua_pushstring(L, ops[k][1]);
    lua_pushcclosure(L, tensor_compare, 2);
    for (int m = 0; m < 2; m++) {
      lua_rawgeti(L, LUA_REGISTRYINDEX,
                  st->ref_mt[m ? LIMN_U_CELL : LIMN_U_TENSOR]);
      lua_pushvalue(L, -2);
      lua_setfield(L, -2, ops[k][0]);
      lua_pop(L, 1);
    }
    lua_pop(L, 1);
  }
}

void limn_lua_open_tensor(limn_lua *st, lua_State *L) {
  lua_rawgeti(L, LUA_REGISTRYINDEX, st->ref_methods);
  limn_lua_register(st, L, tensor_methods);
  lua_pop(L, 1);
  for (int m = 0; m < 2; m++) {
    lua_rawgeti(L, LUA_REGISTRYINDEX,
                st->ref_mt[m ? LIMN_U_CELL : LIMN_U_TENSOR]);
    limn_lua_register(st, L, tensor_both);
    lua_pop(L, 1);
  }
  lua_rawgeti(L, LUA_REGISTRYINDEX, st->ref_mt[LIMN_U_TENSOR]);
  limn_lua_register(st, L, tensor_meta);
  lua_pushlightuserdata(L, st);
  lua_rawgeti(L, LUA_REGISTRYINDEX, st->ref_methods);
  lua_pushcclosure(L, tensor_index, 2);
  lua_setfield(L, -2, "__index");
  lua_pushliteral(L, "limn.tensor");
  lua_setfield(L, -2, "__metatable");
  lua_pop(L, 1);
  tensor_open_compare(st, L);
}
