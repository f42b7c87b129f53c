/* Making tensors: from tables and strings, and the generators. */
#include "lua_core.h"

#include <math.h>
#include <stdio.h>

static int make_dtype(const limn_place *p, int def) {
  return p->dtype.tag == LIMN_A_DTYPE ? (int)p->dtype.i : def;
}

/* Reads places from argument i to the top; anything else is an error. */
static void make_places(limn_lua *st, lua_State *L, int i, const char *who,
                        limn_place *p) {
  char got[300];
  int top = lua_gettop(L);
  for (; i <= top; i++)
    if (!lua_isnil(L, i) && !limn_lua_place(st, L, i, who, p) &&
        !(lua_istable(L, i) && lua_objlen(L, i) == 0))
      limn_lua_fail(st, L, "options are dtype and device",
                    "%s has no place for %s", who,
                    limn_lua_what(st, L, i, got, sizeof got));
}

void limn_lua_holds(limn_lua *st, lua_State *L, const char *who,
                    const limn_value *v, int dtype) {
  if (v->tag != LIMN_A_INT || !limn_dtype_int(dtype) ||
      limn_dtype_holds(dtype, v->i))
    return;
  limn_lua_fail(st, L, "a wider dtype holds it", "%s: %lld does not fit %s",
                who, (long long)v->i, limn_dtype_name(dtype));
}

/* -- limn.tensor -- */

/* Shape of the nested table at i, by its first elements; what[0] is 'b' when
 * the first element is a bool, else 'n'. */
static void make_shape(limn_lua *st, lua_State *L, int i, limn_shape *s,
                       char *what) {
  int top = lua_gettop(L);
  s->ndim = 0;
  lua_pushvalue(L, i);
  while (lua_istable(L, -1)) {
    if (s->ndim == LIMN_MAXDIM)
      limn_lua_fail(st, L, NULL, "tensor: tables are nested more than %d deep",
                    LIMN_MAXDIM);
    if (limn_lua_has_keys(L, -1))
      limn_lua_fail(st, L, NULL, "tensor: a table with names is no list");
    s->d[s->ndim++] = (int64_t)lua_objlen(L, -1);
    luaL_checkstack(L, 4, "tensor");
    lua_rawgeti(L, -1, 1);
  }
  *what = lua_isboolean(L, -1) ? 'b' : 'n';
  lua_settop(L, top);
}

typedef struct {
  limn_lua *st;
  const limn_shape *s;
  double *at;
  char what;
} make_fill;

/* The list on the top must have n entries and nothing else: # may stop at a
 * hole. */
static void make_whole(limn_lua *st, lua_State *L, int64_t n) {
  int64_t have = 0;
  lua_pushnil(L);
  while (lua_next(L, -2)) lua_pop(L, 1), have++;
  if (have != n)
    limn_lua_fail(st, L, NULL, "tensor: a list has a hole or other keys: %lld "
                  "entries, of which 1..%lld are in a row", (long long)have,
                  (long long)n);
}

static void make_values(make_fill *f, lua_State *L, int dim) {
  char got[300];
  if (dim == f->s->ndim) {
    if (f->what == 'b' ? lua_isboolean(L, -1)
                       : lua_type(L, -1) == LUA_TNUMBER) {
      *f->at++ = f->what == 'b' ? lua_toboolean(L, -1) : lua_tonumber(L, -1);
      return;
    }
    if (f->what == 'n' && limn_lua_to(f->st, L, -1, LIMN_U_TENSOR)) {
      limn_tensor *t = limn_lua_eager(f->st, L, -1, "tensor");
      int64_t buf = 0;
      if (limn_tensor_numel(t) == 1) {
        limn_lua_check(f->st, L, limn_tensor_element(t, 0, &buf));
        *f->at++ = limn_load_real(t->dtype, &buf);
        return;
      }
    }
    limn_lua_fail(f->st, L, lua_type(L, -1) == LUA_TUSERDATA
                  ? "limn.stack({a, b}, 1) joins tensors" : NULL,
                  "tensor: %s stands where %s is wanted",
                  limn_lua_what(f->st, L, -1, got, sizeof got),
                  f->what == 'b' ? "a boolean" : "a number");
  }
  if (!lua_istable(L, -1) ||
      (int64_t)lua_objlen(L, -1) != f->s->d[dim])
    limn_lua_fail(f->st, L, NULL, "tensor: the table is ragged: dim %d has %lld"
                  " entries in one place and %s in another", dim + 1,
                  (long long)f->s->d[dim],
                  lua_istable(L, -1) ? "others" : "none");
  luaL_checkstack(L, 4, "tensor");
  make_whole(f->st, L, f->s->d[dim]);
  for (int i = 1; i <= (int)f->s->d[dim]; i++) {
    lua_rawgeti(L, -1, i);
    make_values(f, L, dim + 1);
    lua_pop(L, 1);
  }
}

/* Pushes a new CPU tensor handle. */
static limn_handle *make_new(limn_lua *st, lua_State *L, int dtype,
                             const limn_shape *s) {
  limn_handle *h = limn_lua_new_tensor(st, L);
  limn_lua_check(st, L, limn_tensor_new(st->c, limn_device_cpu(st->c), dtype,
                                        s, &h->t));
  limn_lua_press(st, L);
  return h;
}

/* The tensor on the top to p's device, if one is given. */
static int make_send(limn_lua *st, lua_State *L, const limn_place *p) {
  limn_handle *h = limn_lua_to(st, L, -1, LIMN_U_TENSOR), *far;
  limn_device *dev = p->dev ? p->dev : st->dev;
  if (!dev || dev == h->t->st->dev) return 1;
  far = limn_lua_new_tensor(st, L);
  limn_lua_check(st, L, limn_tensor_to(h->t, dev, h->t->dtype, &far->t));
  return 1;
}

/* Whole numbers are held by an int dtype; reals are kept to its range. */
static void make_held(limn_lua *st, lua_State *L, int dtype, const double *v,
                      int64_t n) {
  for (int64_t i = 0; limn_dtype_int(dtype) && i < n; i++) {
    limn_value x = limn_vnum(v[i]);
    limn_lua_holds(st, L, "tensor", &x, dtype);
  }
}

/* tensor(table | number | bool | tensor [, dtype] [, device]) */
static int make_tensor(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_place p = {0};
  limn_shape s = {0};
  limn_handle *h;
  make_fill f;
  double *buf;
  int64_t n;
  int dtype;
  char got[300];
  make_places(st, L, 2, "tensor", &p);
  if (limn_lua_to(st, L, 1, LIMN_U_TENSOR) ||
      limn_lua_to(st, L, 1, LIMN_U_CELL)) {
    limn_tensor *t = limn_lua_eager(st, L, 1, "tensor");
    h = limn_lua_new_tensor(st, L);
    limn_lua_check(st, L, limn_tensor_to(t, p.dev ? p.dev : t->st->dev,
                                         make_dtype(&p, t->dtype), &h->t));
    return 1;
  }
  if (!lua_istable(L, 1) && !lua_isboolean(L, 1) &&
      lua_type(L, 1) != LUA_TNUMBER)
    return limn_lua_fail(st, L, limn_lua_dim(st, L, 1)
                         ? "limn.full({}, n) makes a tensor of a size" : NULL,
                         "tensor: a table, a number or a boolean is wanted, "
                         "not %s", limn_lua_what(st, L, 1, got, sizeof got));
  make_shape(st, L, 1, &s, &f.what);
  dtype = make_dtype(&p, f.what == 'b' ? LIMN_BOOL : LIMN_F32);
  n = (int64_t)sizeof *buf;
  for (int i = 0; i < s.ndim; i++)
    limn_lua_check(st, L, limn_mul(st->c, n, s.d[i], &n));
  n /= (int64_t)sizeof *buf;
  buf = lua_newuserdata(L, (size_t)n * sizeof *buf + 8);
  f.st = st, f.s = &s, f.at = buf;
  lua_pushvalue(L, 1);
  make_values(&f, L, 0);
  make_held(st, L, dtype, buf, n);
  h = make_new(st, L, dtype, &s);
  limn_store_reals(dtype, h->t->st->mem, limn_dtype_size(dtype), n, buf);
  return make_send(st, L, &p);
}

/* from_string(bytes, dtype [, shape] [, device]): native byte order */
static int make_from_string(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  size_t len;
  const char *bytes = lua_type(L, 1) == LUA_TSTRING ? lua_tolstring(L, 1, &len)
                                                    : NULL;
  limn_place p = {0};
  limn_shape s = {0};
  limn_args a;
  limn_value size = {0};
  limn_handle *h;
  int top, dtype, unit;
  bool shaped = false;
  char got[300];
  if (!bytes)
    return limn_lua_fail(st, L, NULL, "from_string: a string is wanted, not %s",
                         limn_lua_what(st, L, 1, got, sizeof got));
  for (int i = 2; i <= lua_gettop(L) && i < 6; i++) {
    if (lua_istable(L, i) && !limn_lua_has_keys(L, i)) {
      a.npool = 0;
      limn_args_ints(st, L, i, "from_string", "shape", &a, &size);
      shaped = true;
      lua_pushnil(L);
      lua_replace(L, i);
    }
  }
  top = lua_gettop(L);
  lua_settop(L, LIMN_MIN(top, 5));
  make_places(st, L, 2, "from_string", &p);
  dtype = make_dtype(&p, LIMN_U8);
  unit = limn_dtype_size(dtype);
  s.ndim = 1, s.d[0] = (int64_t)len / unit;
  if (shaped) {
    s.ndim = LIMN_MIN(size.n, LIMN_MAXDIM);
    for (int k = 0; k < s.ndim; k++) s.d[k] = size.list[k].i;
  }
  if ((int64_t)len != limn_numel(s.ndim, s.d) * unit)
    return limn_lua_fail(st, L, NULL, "from_string: %d bytes are no %s tensor "
                         "of that shape", (int)len, limn_dtype_name(dtype));
  h = make_new(st, L, dtype, &s);
  memcpy(h->t->st->mem, bytes, len);
  if (dtype == LIMN_BOOL)
    for (size_t i = 0; i < len; i++)
      ((uint8_t *)h->t->st->mem)[i] = bytes[i] != 0;
  return make_send(st, L, &p);
}

/* -- Generators -- */

typedef struct {
  limn_args args;
  limn_value size;
  limn_place place;
} make_call;

/* Sizes (a list, or numbers) from argument i, then places. */
static void make_parse(limn_lua *st, lua_State *L, int i, const char *who,
                       make_call *m) {
  int n = 0, top = lua_gettop(L);
  char got[40];
  memset(&m->place, 0, sizeof m->place);
  m->args.npool = 0;
  memset(&m->size, 0, sizeof m->size);
  m->size.tag = LIMN_A_LIST;
  if (i <= top && lua_istable(L, i) &&
      (lua_objlen(L, i) > 0 || !limn_lua_has_keys(L, i))) {
    limn_args_ints(st, L, i, who, "size", &m->args, &m->size);
    if (!limn_lua_has_keys(L, i)) i++; /* else a list with options */
  } else {
    while (i + n <= top) {
      limn_value v;
      int t = lua_type(L, i + n);
      if (t != LUA_TNUMBER && t != LIMN_TCDATA) break;
      if (!limn_lua_value(st, L, i + n, &v)) break;
      if (v.tag == LIMN_X_TRACED) {
        int kind = limn_graph_node(v.trace->g, v.ref)->kind;
        if (kind == LIMN_V_DTYPE || kind == LIMN_V_DEVICE) break;
      } else if (v.tag != LIMN_A_INT) {
        limn_real_text(got, sizeof got, 'g', 14, v.f);
        limn_lua_fail(st, L, "limn.floor makes it whole",
                      "%s: the size %s is not a whole number", who, got);
      }
      n++;
    }
    if (n > LIMN_MAXDIM)
      limn_lua_fail(st, L, NULL, "%s: at most %d dims", who, LIMN_MAXDIM);
    m->size.list = limn_args_list(&m->args, L, n);
    m->size.n = n;
    for (int k = 0; k < n; k++)
      limn_lua_value(st, L, i + k, &m->size.list[k]);
    i += n;
  }
  make_places(st, L, i, who, &m->place);
}

static limn_value make_y(const limn_place *p, int def) {
  limn_value v = limn_vint(def);
  v.tag = LIMN_A_DTYPE;
  return p->dtype.tag ? p->dtype : v;
}

static limn_device *make_dev(const limn_lua *st, const limn_place *p) {
  return p->dev ? p->dev : limn_lua_tracing(st) ? NULL : st->dev;
}

static int make_full_of(limn_lua *st, lua_State *L, const char *who,
                        make_call *m, limn_value value, int def) {
  limn_value a[3];
  limn_lua_holds(st, L, who, &value, make_dtype(&m->place, def));
  a[0] = m->size, a[1] = value, a[2] = make_y(&m->place, def);
  return limn_lua_apply(st, L, OP_full, a, 3, make_dev(st, &m->place));
}

/* zeros, ones, empty: upvalue 2 is the value, upvalue 3 the name */
static int make_zeros(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  const char *who = lua_tostring(L, lua_upvalueindex(3));
  make_call m;
  make_parse(st, L, 1, who, &m);
  return make_full_of(st, L, who, &m,
                      limn_vnum(lua_tonumber(L, lua_upvalueindex(2))),
                      LIMN_F32);
}

/* full(size, value [, places]) */
static int make_full(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  make_call m;
  limn_value v;
  char got[300];
  int top = lua_gettop(L);
  if (top < 2 || !limn_lua_value(st, L, 2, &v) || v.tag == LIMN_A_STR)
    return limn_lua_fail(st, L, "write limn.full({2, 3}, 7)",
                         "full: the second argument is a number, not %s",
                         limn_lua_what(st, L, 2, got, sizeof got));
  lua_pushvalue(L, 1);
  lua_remove(L, 1);
  lua_remove(L, 1);
  lua_insert(L, 1); /* size places... */
  make_parse(st, L, 1, "full", &m);
  return make_full_of(st, L, "full", &m, v,
                      v.tag == LIMN_A_BOOL ? LIMN_BOOL : LIMN_F32);
}

/* rand, randn: upvalue 2 is the op */
static int make_rand(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  int op = (int)lua_tointeger(L, lua_upvalueindex(2));
  make_call m;
  limn_value a[3] = {{0}};
  make_parse(st, L, 1, limn_lua_op_name(op), &m);
  a[0] = m.size;
  if (op != OP_rand_bits) a[1] = make_y(&m.place, LIMN_F32);
  return limn_lua_apply(st, L, op, a, st->nparam[op], make_dev(st, &m.place));
}

/* randint(low, high [, size...] [, places]); randint(high) is 1..high */
static int make_randint(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  make_call m;
  limn_value a[5] = {{0}};
  char got[300];
  for (int k = 0; k < 2; k++)
    if (!limn_lua_value(st, L, k + 1, &a[k]) || a[k].tag == LIMN_A_STR)
      return limn_lua_fail(st, L, NULL, "randint(low, high, size...): %s is no "
                           "number",
                           limn_lua_what(st, L, k + 1, got, sizeof got));
  make_parse(st, L, 3, "randint", &m);
  for (int k = 0; k < 2; k++) {
    if (a[k].tag == LIMN_A_REAL)
      return limn_lua_fail(st, L, "limn.floor makes it whole", "randint: a "
                           "bound is a whole number, not %s",
                           limn_lua_what(st, L, k + 1, got, sizeof got));
    limn_lua_holds(st, L, "randint", &a[k], make_dtype(&m.place, LIMN_I64));
  }
  if (a[0].tag == LIMN_A_INT && a[1].tag == LIMN_A_INT && a[0].i > a[1].i)
    return limn_lua_fail(st, L, NULL, "randint: low is %lld and high only "
                         "%lld", (long long)a[0].i, (long long)a[1].i);
  a[2] = m.size, a[3] = make_y(&m.place, LIMN_I64);
  return limn_lua_apply(st, L, OP_randint, a, 5, make_dev(st, &m.place));
}

/* arange(n) | arange(first, last [, step]) [, places] */
static int make_arange(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_value a[4], v;
  limn_place p = {0};
  int n = 0, top = lua_gettop(L);
  while (n < 3 && n < top) {
    int t = lua_type(L, n + 1);
    if ((t != LUA_TNUMBER && t != LIMN_TCDATA && t != LUA_TUSERDATA) ||
        !limn_lua_value(st, L, n + 1, &v))
      break;
    if (v.tag == LIMN_X_TRACED) {
      int kind = limn_graph_node(v.trace->g, v.ref)->kind;
      if (kind == LIMN_V_DTYPE || kind == LIMN_V_DEVICE) break;
    }
    a[n++] = v;
  }
  if (n == 0)
    return limn_lua_fail(st, L, NULL, "arange(n) or arange(first, last, step) "
                         "wants numbers");
  make_places(st, L, n + 1, "arange", &p);
  if (n == 1) a[1] = a[0], a[0] = limn_vint(1);
  if (n < 3) a[2] = limn_vint(1);
  a[3] = make_y(&p, LIMN_F32);
  return limn_lua_apply(st, L, OP_arange, a, 4, make_dev(st, &p));
}

/* eye(n [, m] [, places]) */
static int make_eye(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  make_call m;
  limn_value a[3] = {{0}};
  make_parse(st, L, 1, "eye", &m);
  if (m.size.n < 1 || m.size.n > 2)
    return limn_lua_fail(st, L, NULL, "eye(n) or eye(n, m)");
  a[0] = m.size.list[0];
  if (m.size.n == 2) a[1] = m.size.list[1];
  a[2] = make_y(&m.place, LIMN_F32);
  return limn_lua_apply(st, L, OP_eye, a, 3, make_dev(st, &m.place));
}

/* -- As another tensor -- */

/* zeros_like, ones_like, empty_like (upvalue 2: the value), full_like */
static int make_like(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  bool full = lua_isnil(L, lua_upvalueindex(2));
  const char *who = lua_tostring(L, lua_upvalueindex(3));
  limn_value a[3] = {{0}};
  limn_place p = {0};
  limn_lua_operand(st, L, 1, who, "x", &a[0]);
  if (!full) {
    a[1] = limn_vnum(lua_tonumber(L, lua_upvalueindex(2)));
  } else if (!limn_lua_value(st, L, 2, &a[1]) || a[1].tag == LIMN_A_STR) {
    return limn_lua_fail(st, L, NULL, "full_like(x, value): the value must be "
                         "a number");
  }
  make_places(st, L, full ? 3 : 2, who, &p);
  a[2] = p.dtype;
  if (p.dtype.tag == LIMN_A_DTYPE || a[0].tag == LIMN_X_TENSOR)
    limn_lua_holds(st, L, who, &a[1],
                   make_dtype(&p, a[0].tag == LIMN_X_TENSOR ? a[0].t->dtype
                                                            : LIMN_F32));
  limn_lua_apply(st, L, OP_full_like, a, 3, p.dev);
  if (!limn_lua_tracing(st) && p.dev) make_send(st, L, &p);
  return 1;
}

/* x:new_zeros(size...), new_ones, new_full(size, value): x's dtype, device */
static int make_new_zeros(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  bool full = lua_isnil(L, lua_upvalueindex(2));
  const char *who = lua_tostring(L, lua_upvalueindex(3));
  limn_value x, value;
  make_call m;
  limn_lua_operand(st, L, 1, who, "x", &x);
  if (full) {
    if (!limn_lua_value(st, L, 3, &value) || value.tag == LIMN_A_STR)
      return limn_lua_fail(st, L, NULL, "new_full(size, value): the value must "
                           "be a number");
    lua_remove(L, 3);
  } else {
    value = limn_vnum(lua_tonumber(L, lua_upvalueindex(2)));
  }
  make_parse(st, L, 2, who, &m);
  if (!m.place.dtype.tag) {
    if (x.tag == LIMN_X_TRACED)
      limn_lua_check(st, L, limn_apply(st->c, OP_dtypeof, &x, 1, NULL,
                                       &m.place.dtype));
    else
      m.place.dtype = limn_vint(x.tag == LIMN_X_CELL ? x.cell->dtype
                                                     : x.t->dtype),
      m.place.dtype.tag = LIMN_A_DTYPE;
  }
  if (!m.place.has_dev && x.tag == LIMN_X_TENSOR && !limn_lua_tracing(st))
    m.place.dev = x.t->st->dev;
  return make_full_of(st, L, who, &m, value, LIMN_F32);
}

static const luaL_Reg make_functions[] = {
    {"tensor", make_tensor},     {"from_string", make_from_string},
    {"full", make_full},         {"randint", make_randint},
    {"arange", make_arange},     {"eye", make_eye},
    {NULL, NULL}};

/* A closure with a value (or nil) and its own name. */
static void make_closure(limn_lua *st, lua_State *L, lua_CFunction f,
                         double value, bool full, const char *name) {
  lua_pushlightuserdata(L, st);
  if (full) lua_pushnil(L);
  else lua_pushnumber(L, value);
  lua_pushstring(L, name);
  lua_pushcclosure(L, f, 3);
  lua_setfield(L, -2, name);
}

void limn_lua_open_make(limn_lua *st, lua_State *L) {
  static const struct { const char *name; int op; } rands[] = {
      {"rand", OP_rand}, {"randn", OP_randn}, {"rand_bits", OP_rand_bits}};
  limn_lua_register(st, L, make_functions);
  lua_getfield(L, -1, "tensor");
  lua_setfield(L, LUA_REGISTRYINDEX, "limn.make");
  make_closure(st, L, make_zeros, 0, false, "zeros");
  make_closure(st, L, make_zeros, 1, false, "ones");
  make_closure(st, L, make_zeros, 0, false, "empty");
  for (int k = 0; k < LIMN_COUNT(rands); k++) {
    lua_pushlightuserdata(L, st);
    lua_pushinteger(L, rands[k].op);
    lua_pushcclosure(L, make_rand, 2);
    lua_setfield(L, -2, rands[k].name);
  }
  lua_rawgeti(L, LUA_REGISTRYINDEX, st->ref_methods);
  make_closure(st, L, make_like, 0, false, "zeros_like");
  make_closure(st, L, make_like, 1, false, "ones_like");
  make_closure(st, L, make_like, 0, false, "empty_like");
  make_closure(st, L, make_like, 0, true, "full_like");
  make_closure(st, L, make_new_zeros, 0, false, "new_zeros");
  make_closure(st, L, make_new_zeros, 1, false, "new_ones");
  make_closure(st, L, make_new_zeros, 0, false, "new_empty");
  make_closure(st, L, make_new_zeros, 0, true, "new_full");
  lua_pop(L, 1);
}
