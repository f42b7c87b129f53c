/* Indexing: x[i], x[{{a, b}, c}], x[tensor], and assignment to such parts. */
#include "lua_core.h"

#include <stdio.h>

/* A parsed key: a range per dim, the dims that vanish, and perhaps one tensor
 * of positions. Entries are host values (Dims in traces). */
typedef struct {
  limn_value first[LIMN_MAXDIM], last[LIMN_MAXDIM], step[LIMN_MAXDIM];
  limn_value drop[LIMN_MAXDIM];
  int rank, ndrop;
  bool traced; /* some entry is a Dim */
  bool all;    /* every range is the whole dim */
  limn_value by; /* tensor of positions or a mask; tag NONE: none */
  int by_dim;    /* 1-based */
} index_key;

static int index_rank(const limn_value *x) {
  if (x->tag == LIMN_X_TENSOR) return x->t->v.ndim;
  if (x->tag == LIMN_X_CELL) return x->cell->shape.ndim;
  return limn_graph_node(x->trace->g, x->ref)->rank;
}

/* The number or Dim at i. */
static limn_value index_number(limn_lua *st, lua_State *L, int i, int dim,
                               index_key *k) {
  limn_value v;
  char got[300];
  bool ok = limn_lua_value(st, L, i, &v);
  if (ok && v.tag == LIMN_A_INT) return v;
  if (ok && v.tag == LIMN_X_TRACED &&
      limn_graph_node(v.trace->g, v.ref)->kind != LIMN_V_TENSOR) {
    k->traced = true;
    return v;
  }
  limn_lua_fail(st, L, "an index is i, {first, last[, step]}, {} for all, or "
                "an int64 or bool tensor", "%s cannot index dim %d",
                limn_lua_what(st, L, i, got, sizeof got), dim);
  return v;
}

static void index_range(limn_lua *st, lua_State *L, int i, int dim,
                        index_key *k) {
  int n = (int)lua_objlen(L, i), d = dim - 1;
  if (n > 3)
    limn_lua_fail(st, L, NULL, "a range has {first, last, step}, not %d "
                  "entries", n);
  if (limn_lua_has_keys(L, i))
    limn_lua_fail(st, L, NULL, "a range has no names");
  if (n == 0) return;
  k->all = false;
  lua_rawgeti(L, i, 1);
  k->first[d] = k->last[d] = index_number(st, L, -1, dim, k);
  lua_rawgeti(L, i, 2);
  if (n > 1) k->last[d] = index_number(st, L, -1, dim, k);
  lua_rawgeti(L, i, 3);
  if (n > 2) k->step[d] = index_number(st, L, -1, dim, k);
  lua_pop(L, 3);
}

static void index_entry(limn_lua *st, lua_State *L, int i, int dim,
                        index_key *k) {
  if (dim > k->rank)
    limn_lua_fail(st, L, NULL, "%d indices for a tensor with %d dims", dim,
                  k->rank);
  if (lua_istable(L, i)) {
    index_range(st, L, i, dim, k);
    return;
  }
  if (lua_type(L, i) == LUA_TUSERDATA) {
    if (k->by.tag)
      limn_lua_fail(st, L, "index twice", "one tensor of positions at a time");
    limn_lua_operand(st, L, i, "indexing", "the index", &k->by);
    k->by_dim = dim;
    return;
  }
  k->first[dim - 1] = k->last[dim - 1] = index_number(st, L, i, dim, k);
  k->drop[k->ndrop++] = limn_vint(dim);
  k->all = false;
}

static void index_parse(limn_lua *st, lua_State *L, int i,
                        const limn_value *x, index_key *k) {
  memset(k, 0, sizeof *k);
  k->rank = index_rank(x);
  k->all = true;
  for (int d = 0; d < k->rank; d++) {
    k->first[d] = k->step[d] = limn_vint(1);
    k->last[d] = limn_vint(-1);
  }
  if (!lua_istable(L, i)) {
    index_entry(st, L, i, 1, k);
    return;
  }
  if (limn_lua_has_keys(L, i))
    limn_lua_fail(st, L, NULL, "an index is a list, not a table with names");
  for (int n = 1; n <= (int)lua_objlen(L, i); n++) {
    lua_rawgeti(L, i, n);
    index_entry(st, L, lua_gettop(L), n, k);
    lua_pop(L, 1); /* the table keeps it */
  }
}

/* -- Views of eager values -- */

/* The part of v that k names. */
static int index_view(limn_context *c, const limn_view *v,
                      const index_key *k, limn_view *out) {
  int at = 0, dropped = 0;
  *out = *v;
  for (int d = 0; d < v->ndim; d++) {
    int64_t start, count, n = v->d[d], first = k->first[d].i;
    bool drop = dropped < k->ndrop && k->drop[dropped].i == d + 1;
    if (drop) {
      dropped++;
      start = first < 0 ? first + n : first - 1;
      if (first == 0 || start < 0 || start >= n)
        return limn_fail(c, LIMN_EINDEX,
                         "index %lld is out of range 1..%lld in dim %d",
                         (long long)first, (long long)n, d + 1);
      out->offset += start * v->s[d];
      continue;
    }
    LIMN_TRY(limn_range(c, n, first, k->last[d].i, k->step[d].i, d + 1,
                        &start, &count));
    out->offset += start * v->s[d];
    out->d[at] = count;
    out->s[at++] = v->s[d] * k->step[d].i;
  }
  out->ndim = at;
  return 0;
}

/* The part of x, or an error that shows x. */
static int index_part(const limn_tensor *x, const index_key *k,
                      limn_view *out) {
  char text[160];
  int rc = index_view(x->c, &x->v, k, out);
  if (rc < 0)
    limn_error_append(x->c, "\n  x: %s",
                      limn_tensor_text(text, sizeof text, x));
  return rc;
}

static int index_slice_args(const index_key *k, const limn_value *x,
                            limn_value *a) {
  memset(a, 0, 6 * sizeof *a);
  a[0] = *x;
  for (int j = 1; j <= 4; j++) a[j].tag = LIMN_A_LIST, a[j].n = k->rank;
  a[1].list = (limn_value *)k->first;
  a[2].list = (limn_value *)k->last;
  a[3].list = (limn_value *)k->step;
  a[4].list = (limn_value *)k->drop;
  a[4].n = k->ndrop;
  return 5;
}

/* -- Tensors as indices -- */

/* Is the index a mask? In a trace the answer is guarded. */
static bool index_is_mask(limn_lua *st, lua_State *L, const limn_value *by) {
  limn_trace *t = st->c->trace;
  limn_value a[2], is = {0};
  limn_arg cond;
  if (by->tag == LIMN_X_TENSOR) return by->t->dtype == LIMN_BOOL;
  if (by->tag == LIMN_X_CELL) return by->cell->dtype == LIMN_BOOL;
  const limn_type *hint = limn_trace_hint(by->trace, by->ref);
  if (!hint) limn_lua_raise(st, L);
  if (hint->dtype == LIMN_BOOL) return true;
  limn_lua_check(st, L, limn_apply(st->c, OP_dtypeof, by, 1, NULL, &a[0]));
  a[1] = limn_vint(LIMN_BOOL), a[1].tag = LIMN_A_DTYPE;
  limn_lua_check(st, L, limn_apply(st->c, OP_is, a, 2, NULL, &is));
  if (is.tag != LIMN_X_TRACED) return false;
  a[0] = is;
  limn_lua_check(st, L, limn_apply(st->c, OP_logical_not, a, 1, NULL, &is));
  if (is.tag != LIMN_X_TRACED) return false;
  limn_lua_check(st, L, limn_trace_arg(t, &is, &cond));
  limn_lua_check(st, L, limn_trace_guard(t, cond));
  return false;
}

/* Pushes the 1-based positions where the mask holds, as int64 [count]. */
static limn_tensor *index_positions(limn_lua *st, lua_State *L,
                                    limn_tensor *mask) {
  int64_t n = limn_tensor_numel(mask), count = 0;
  uint8_t *m = lua_newuserdata(L, (size_t)n + 8);
  limn_handle *h = limn_lua_new_tensor(st, L);
  limn_shape s = {1, {0}};
  int64_t *p;
  limn_lua_check(st, L, limn_tensor_read(mask, m, (size_t)n));
  for (int64_t i = 0; i < n; i++) count += m[i] != 0;
  s.d[0] = count;
  limn_lua_check(st, L, limn_tensor_new(st->c, limn_device_cpu(st->c),
                                        LIMN_I64, &s, &h->t));
  p = h->t->st->mem;
  for (int64_t i = 0; i < n; i++)
    if (m[i]) *p++ = i + 1;
  if (mask->st->dev != h->t->st->dev) {
    limn_handle *far = limn_lua_new_tensor(st, L);
    limn_lua_check(st, L, limn_tensor_to(h->t, mask->st->dev, LIMN_I64,
                                         &far->t));
    return far->t;
  }
  return h->t;
}

/* Pushes the elements (or rows) of x where the mask holds. */
static int index_select_mask(limn_lua *st, lua_State *L, const limn_value *x,
                             const limn_value *by) {
  limn_value a[5] = {{0}}, size[LIMN_MAXDIM];
  limn_shape s;
  limn_tensor *mask = by->t, *t = x->t;
  char t1[200], t2[200];
  int m, n = 0;
  if (limn_lua_tracing(st) || by->tag != LIMN_X_TENSOR ||
      x->tag != LIMN_X_TENSOR)
    return limn_lua_fail(st, L, "masked_fill and where keep the shape",
                         "the size of what a mask selects depends on data, "
                         "which a trace cannot have");
  m = mask->v.ndim;
  for (int d = 0; d < m; d++)
    if (m > t->v.ndim || mask->v.d[d] != t->v.d[d])
      return limn_lua_fail(
          st, L, NULL, "a mask of shape %s does not fit a tensor of shape %s",
          limn_shape_text(t1, sizeof t1, m, mask->v.d),
          limn_shape_text(t2, sizeof t2, t->v.ndim, t->v.d));
  a[2].tag = LIMN_X_TENSOR;
  a[2].t = index_positions(st, L, mask);
  s = limn_tensor_shape(mask);
  size[n++] = limn_vint(limn_numel(s.ndim, s.d));
  for (int d = m; d < t->v.ndim; d++) size[n++] = limn_vint(t->v.d[d]);
  a[0] = *x;
  a[1].tag = LIMN_A_LIST, a[1].list = size, a[1].n = n;
  limn_lua_apply(st, L, OP_reshape, a, 2, NULL);
  limn_lua_value(st, L, -1, &a[0]);
  a[1] = limn_vint(1);
  return limn_lua_apply(st, L, OP_index_select, a, 3, NULL);
}

/* -- x[key] -- */

static int index_mark(limn_lua *st, lua_State *L) {
  limn_handle *h = limn_lua_to(st, L, -1, LIMN_U_TENSOR);
  if (h) h->flags |= LIMN_H_ROW;
  return 1;
}

int limn_lua_index(limn_lua *st, lua_State *L) {
  limn_value x, a[6];
  index_key k;
  int n, dim, before = 0;
  limn_lua_operand(st, L, 1, "indexing", "x", &x);
  index_parse(st, L, 2, &x, &k);
  if (k.by.tag && index_is_mask(st, L, &k.by)) {
    if (!k.all || k.by_dim != 1)
      return limn_lua_fail(st, L, "index by the mask alone",
                           "a mask cannot stand among other indices");
    index_select_mask(st, L, &x, &k.by);
    return index_mark(st, L);
  }
  if (x.tag == LIMN_X_TENSOR && !st->c->trace && !k.by.tag) {
    limn_handle *h = limn_lua_new_tensor(st, L);
    limn_view v;
    h->flags |= LIMN_H_ROW;
    limn_lua_check(st, L, index_part(x.t, &k, &v));
    limn_lua_check(st, L, limn_tensor_view(x.t, &v, &h->t));
    return 1;
  }
  if (!k.all || !k.by.tag) {
    n = index_slice_args(&k, &x, a);
    limn_lua_apply(st, L, OP_slice, a, n, NULL);
    if (!k.by.tag) return index_mark(st, L);
    limn_lua_value(st, L, -1, &x);
  }
  for (int d = 0; d < k.ndrop; d++) before += k.drop[d].i < k.by_dim;
  dim = k.by_dim - before;
  memset(a, 0, sizeof a);
  a[0] = x, a[1] = limn_vint(dim), a[2] = k.by;
  limn_lua_apply(st, L, OP_index_select, a, 3, NULL);
  return index_mark(st, L);
}

/* -- x[key] = v -- */

/* Pushes what is to be written (at 3): a number stays, tables become tensors
 * of x's dtype. */
static void index_new_part(limn_lua *st, lua_State *L, const limn_value *x,
                           limn_value *v) {
  char got[300];
  if (lua_istable(L, 3)) {
    lua_getfield(L, LUA_REGISTRYINDEX, "limn.make"); /* core.tensor */
    lua_pushvalue(L, 3);
    if (x->tag == LIMN_X_TRACED) lua_pushnil(L);
    else lua_pushstring(L, limn_dtype_name(x->tag == LIMN_X_CELL
                                               ? x->cell->dtype
                                               : x->t->dtype));
    if (x->tag == LIMN_X_TENSOR)
      lua_pushstring(L, limn_dev_name(x->t->st->dev));
    else
      lua_pushnil(L);
    lua_call(L, 3, 1);
    lua_replace(L, 3);
  }
  if (!limn_lua_value(st, L, 3, v) || v->tag == LIMN_A_STR)
    limn_lua_fail(st, L, NULL, "%s cannot be put into a tensor",
                  limn_lua_what(st, L, 3, got, sizeof got));
}

/* May x's memory be written without anyone seeing it? */
static bool index_alone(const limn_lua *st, const limn_value *x) {
  return !st->c->trace && x->tag == LIMN_X_TENSOR && x->t->refs == 1 &&
         x->t->st->refs == 1 && !x->t->st->borrowed &&
         limn_dev_is_host(x->t->st->dev) && limn_view_distinct(&x->t->v);
}

/* Write v into the part `to` of the host tensor t. */
static int index_write(limn_tensor *t, const limn_view *to,
                       const limn_value *v) {
  limn_view from = {0};
  limn_shape s = {0}, whole, both;
  double f = v->tag == LIMN_A_REAL ? v->f : (double)v->i;
  const void *src = &f;
  int dtype = LIMN_F64;
  char t1[200], t2[200];
  s.ndim = to->ndim;
  memcpy(s.d, to->d, sizeof s.d);
  if (v->tag == LIMN_X_TENSOR) {
    from = v->t->v, src = v->t->st->mem, dtype = v->t->dtype;
    while (from.ndim > s.ndim && from.d[0] == 1) { /* leading dims of 1 */
      from.ndim--;
      memmove(from.d, from.d + 1, (size_t)from.ndim * sizeof *from.d);
      memmove(from.s, from.s + 1, (size_t)from.ndim * sizeof *from.s);
    }
    whole.ndim = from.ndim;
    memcpy(whole.d, from.d, sizeof whole.d);
    if (from.ndim > s.ndim ||
        limn_shape_broadcast(t->c, &s, &whole, &both) < 0 ||
        !limn_shape_eq(&both, &s))
      return limn_fail(t->c, LIMN_ESHAPE,
                       "a value of shape %s does not fit a part of shape %s",
                       limn_shape_text(t1, sizeof t1, v->t->v.ndim, v->t->v.d),
                       limn_shape_text(t2, sizeof t2, s.ndim, s.d));
  }
  limn_view_broadcast(&from, &s, &from);
  limn_host_copy(t->dtype, t->st->mem, to, dtype, src, &from);
  return 0;
}

/* x with v where the mask holds: where(mask, v, x) in x's dtype. */
static void index_assign_mask(limn_lua *st, lua_State *L, const limn_value *x,
                              const limn_value *by, const limn_value *v) {
  limn_value a[3] = {{0}};
  int rank = index_rank(x), m = index_rank(by);
  a[0] = *by;
  for (; m < rank; m++) { /* a mask of rows: dims of 1 behind it */
    a[1] = limn_vint(-1);
    limn_lua_apply(st, L, OP_unsqueeze, a, 2, NULL);
    limn_lua_value(st, L, -1, &a[0]);
  }
  a[1] = *v, a[2] = *x;
  limn_lua_apply(st, L, OP_where, a, 3, NULL);
  if (v->tag != LIMN_X_TENSOR && v->tag != LIMN_X_TRACED) return;
  limn_lua_value(st, L, -1, &a[0]);
  if (x->tag == LIMN_X_TENSOR && a[0].tag == LIMN_X_TENSOR &&
      x->t->dtype == a[0].t->dtype)
    return;
  if (x->tag == LIMN_X_TRACED)
    limn_lua_check(st, L, limn_apply(st->c, OP_dtypeof, x, 1, NULL, &a[1]));
  else
    a[1] = limn_vint(x->tag == LIMN_X_CELL ? x->cell->dtype : x->t->dtype),
    a[1].tag = LIMN_A_DTYPE;
  limn_lua_apply(st, L, OP_convert, a, 2, NULL);
}

/* x with v at the positions of an int tensor along a dim of the part that the
 * rest of the key selects. */
static void index_assign_at(limn_lua *st, lua_State *L, const limn_value *x,
                            const index_key *k, const limn_value *v) {
  limn_value a[6] = {{0}}, args[6] = {{0}};
  int before = 0, n = 0;
  for (int d = 0; d < k->ndrop; d++) before += k->drop[d].i < k->by_dim;
  args[0] = *x;
  if (!k->all) {
    n = index_slice_args(k, x, a);
    limn_lua_apply(st, L, OP_slice, a, n, NULL);
    limn_lua_value(st, L, -1, &args[0]);
  }
  args[1] = limn_vint(k->by_dim - before), args[2] = k->by, args[3] = *v;
  args[4] = limn_vint(1);
  limn_lua_apply(st, L, OP_index_copy, args, 5, NULL);
  if (k->all) return;
  args[0] = *x;
  limn_lua_value(st, L, -1, &args[1]);
  for (int j = 1; j < n; j++) args[j + 1] = a[j];
  limn_lua_apply(st, L, OP_update, args, 6, NULL);
}

void limn_lua_update(limn_lua *st, lua_State *L, const limn_value *x) {
  limn_value v, a[6], args[6];
  index_key k;
  int n;
  index_parse(st, L, 2, x, &k);
  index_new_part(st, L, x, &v);
  if (x->tag != LIMN_X_TRACED)
    limn_lua_holds(st, L, "an assignment", &v,
                   x->tag == LIMN_X_CELL ? x->cell->dtype : x->t->dtype);
  if (k.by.tag && index_is_mask(st, L, &k.by)) {
    index_assign_mask(st, L, x, &k.by, &v);
    return;
  }
  if (k.by.tag) {
    index_assign_at(st, L, x, &k, &v);
    return;
  }
  if (index_alone(st, x) &&
      (v.tag != LIMN_X_TENSOR || limn_dev_is_host(v.t->st->dev)) &&
      v.tag != LIMN_X_CELL) {
    limn_view to;
    limn_lua_check(st, L, index_part(x->t, &k, &to));
    limn_lua_check(st, L, index_write(x->t, &to, &v));
    lua_pushnil(L); /* in place */
    return;
  }
  n = index_slice_args(&k, x, a);
  args[0] = *x, args[1] = v;
  for (int j = 1; j < n; j++) args[j + 1] = a[j];
  limn_lua_apply(st, L, OP_update, args, 6, NULL);
}

/* masked_select(x, mask) */
static int index_masked_select(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_value x, by;
  limn_lua_operand(st, L, 1, "masked_select", "x", &x);
  limn_lua_operand(st, L, 2, "masked_select", "mask", &by);
  if (by.tag == LIMN_X_TENSOR && by.t->dtype != LIMN_BOOL)
    return limn_lua_fail(st, L, NULL, "masked_select: the mask must be bool");
  return index_select_mask(st, L, &x, &by);
}

/* positions(mask): 1-based row-major positions of what is true */
static int index_m_positions(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_tensor *t = limn_lua_eager(st, L, 1, "positions");
  if (t->dtype != LIMN_BOOL)
    return limn_lua_fail(st, L, NULL, "positions: the mask must be bool");
  index_positions(st, L, t);
  return 1;
}

static const luaL_Reg index_methods[] = {
    {"masked_select", index_masked_select},
    {"positions", index_m_positions},
    {NULL, NULL}};

void limn_lua_open_index(limn_lua *st, lua_State *L) {
  lua_rawgeti(L, LUA_REGISTRYINDEX, st->ref_methods);
  limn_lua_register(st, L, index_methods);
  lua_pop(L, 1);
}
