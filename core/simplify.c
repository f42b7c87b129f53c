/* Simplification: common subexpressions, dead code and shape algebra.
 *
 * One pass forward. Each node's arguments are replaced by what stands for
 * them, rules are tried until none holds, and what is left is looked up among
 * the nodes before it. Rules:
 *  1. A rule is true for every dtype, size and value, NaN and -0 included, and
 *     gives the same bits. What needs a dtype or a size is for the planner.
 *  2. A rule makes no node: it names an older value, or changes the node.
 *  3. Prints, inputs and custom functions stay as they are; so do random
 *     numbers, as no two have one draw, but where a branch is run again.
 *  4. A node keeps its line; of equal nodes the first stays. */
#include "simplify.h"

typedef struct {
  limn_graph *g;
  limn_arg *rep; /* what stands for each node; itself, or final */
  limn_map seen; /* op and arguments -> ref */
  unsigned char *key;
  uint32_t nkey, key_cap;
  int rc;
} simp;

/* -- Plan values -- */

static bool simp_literal(limn_arg a, limn_type *t) {
  memset(t, 0, sizeof *t);
  t->known = true;
  t->kind = a.tag == LIMN_A_INT    ? LIMN_V_INT
            : a.tag == LIMN_A_REAL ? LIMN_V_REAL
            : a.tag == LIMN_A_BOOL ? LIMN_V_BOOL
                                   : LIMN_V_NONE;
  if (t->kind == LIMN_V_REAL)
    t->f = a.u.f;
  else
    t->i = a.u.i;
  return t->kind != LIMN_V_NONE || a.tag == LIMN_A_NONE;
}

static bool simp_int(const limn_graph *g, limn_arg a) {
  const limn_node *n = simp_node(g, a);
  return n && n->kind == LIMN_V_INT;
}

/* x op x, and what leaves an int as it is. */
static int simp_host_same(const limn_graph *g, int op, const limn_arg *a,
                          limn_arg *out) {
  bool x = simp_int(g, a[0]), same = x && simp_same(g, a[0], a[1]);
  *out = a[0];
  switch (op) {
  case OP_add:
  case OP_sub:
    if (x && simp_is_int(a[1], 0)) return SIMP_REPLACED;
    break;
  case OP_mul:
  case OP_floor_div:
    if (x && simp_is_int(a[1], 1)) return SIMP_REPLACED;
    break;
  case OP_eq:
  case OP_le:
  case OP_ge:
    *out = limn_abool(true);
    return same ? SIMP_REPLACED : SIMP_KEEP;
  case OP_ne:
  case OP_lt:
  case OP_gt:
    *out = limn_abool(false);
    return same ? SIMP_REPLACED : SIMP_KEEP;
  case OP_maximum:
  case OP_minimum:
    return same ? SIMP_REPLACED : SIMP_KEEP;
  default:
    return SIMP_KEEP;
  }
  if (op == OP_sub || op == OP_floor_div) return SIMP_KEEP;
  *out = a[1];
  return simp_int(g, a[1]) && simp_is_int(a[0], op == OP_mul) ? SIMP_REPLACED
                                                              : SIMP_KEEP;
}

/* Literals only: computed now. An error stays for the plan, which has the
 * line for it. */
static int simp_host(const limn_graph *g, const limn_node *n, const limn_arg *a,
                     limn_arg *out) {
  limn_type t[3], r;
  bool literal = true;
  if (n->nargs > 3) return SIMP_KEEP;
  for (int i = 0; i < n->nargs; i++) literal &= simp_literal(a[i], &t[i]);
  if (!literal) {
    if (n->nargs == 2) return simp_host_same(g, n->op, a, out);
    *out = a[0];
    return simp_int(g, a[0]) && n->nargs == 1 &&
                   (n->op == OP_floor || n->op == OP_ceil ||
                    n->op == OP_round || n->op == OP_trunc)
               ? SIMP_REPLACED
               : SIMP_KEEP;
  }
  if (limn_host_eval(g->c, n->op, t, n->nargs, &r) < 0) {
    limn_error_clear(g->c);
    return SIMP_KEEP;
  }
  *out = r.kind == LIMN_V_REAL   ? limn_areal(r.f)
         : r.kind == LIMN_V_BOOL ? limn_abool(r.i != 0)
                                 : limn_aint(r.i);
  return SIMP_REPLACED;
}

static int simp_is_dtype(const limn_graph *g, const limn_arg *a,
                         limn_arg *out) {
  bool same = simp_same(g, a[0], a[1]);
  if (!same && (a[0].tag != LIMN_A_DTYPE || a[1].tag != LIMN_A_DTYPE))
    return SIMP_KEEP;
  *out = limn_abool(same);
  return SIMP_REPLACED;
}

/* -- Views -- */

static bool simp_reshapes(int op) {
  return op == OP_reshape || op == OP_reshape_like || op == OP_flatten ||
         op == OP_squeeze || op == OP_unsqueeze;
}

/* All elements of a list are the int v. */
static bool simp_all(const limn_graph *g, limn_arg list, int64_t v) {
  if (list.tag != LIMN_A_LIST) return false;
  for (uint32_t i = 0; i < list.n; i++)
    if (!simp_is_int(simp_item(g, list, i), v)) return false;
  return true;
}

static bool simp_is_transposed(const limn_graph *g, const limn_arg *a) {
  const limn_arg *x = simp_is(g, a[0], OP_transpose);
  return x && ((simp_same(g, a[1], x[1]) && simp_same(g, a[2], x[2])) ||
               (simp_same(g, a[1], x[2]) && simp_same(g, a[2], x[1])));
}

/* permute(permute(x, p), q) is permute(x, p[q]); in order it is x. */
static int simp_permute(simp *s, limn_ref r, limn_arg *out) {
  limn_arg *a = limn_node_args(s->g, r), l = a[1], p[LIMN_MAXDIM];
  const limn_arg *x = simp_is(s->g, a[0], OP_permute);
  int rank = simp_rank(s->g, a[0]);
  bool order = true;
  if (l.tag != LIMN_A_LIST || (int)l.n != rank) return SIMP_KEEP;
  for (int i = 0; i < rank; i++) {
    int d = simp_dim(simp_item(s->g, l, (uint32_t)i), rank);
    if (d < 0) return SIMP_KEEP;
    order &= d == i;
    if (x && x[1].tag == LIMN_A_LIST && (int)x[1].n == rank)
      p[i] = simp_item(s->g, x[1], (uint32_t)d);
    else
      x = NULL;
  }
  *out = a[0];
  if (order) return SIMP_REPLACED;
  if (!x) return SIMP_KEEP;
  a[0] = x[0]; /* before the pool may move */
  s->rc = limn_graph_push_args(s->g, p, (uint32_t)rank, &l.u.at);
  if (!s->rc) limn_node_args(s->g, r)[1] = l;
  return s->rc ? SIMP_KEEP : SIMP_CHANGED;
}

/* squeeze(unsqueeze(x, d), {d}) and the other way round. */
static int simp_squeeze(const limn_graph *g, int op, const limn_arg *a,
                        limn_arg *out) {
  bool back = op == OP_unsqueeze;
  const limn_arg *x = simp_is(g, a[0], back ? OP_squeeze : OP_unsqueeze);
  limn_arg list = back && x ? x[1] : a[1];
  if (!x) return SIMP_KEEP;
  if (list.tag != LIMN_A_LIST || list.n != 1) return SIMP_KEEP;
  if (!simp_same(g, simp_item(g, list, 0), back ? a[1] : x[1]))
    return SIMP_KEEP;
  *out = x[0];
  return SIMP_REPLACED;
}

static bool simp_slice_all(const limn_graph *g, const limn_arg *a) {
  return simp_all(g, a[1], 1) && simp_all(g, a[2], -1) &&
         simp_all(g, a[3], 1) && a[4].tag == LIMN_A_LIST && a[4].n == 0;
}

/* The position from 1 of a slice that takes only that one of dim `dim`, and all
 * of the others; else 0. */
static int64_t simp_position(const limn_graph *g, const limn_arg *a, int rank,
                             int dim) {
  int64_t at = 0;
  if (a[1].tag != LIMN_A_LIST || a[2].tag != LIMN_A_LIST || dim < 0 ||
      (int)a[1].n != rank || (int)a[2].n != rank || !simp_all(g, a[3], 1) ||
      a[4].tag != LIMN_A_LIST || a[4].n > 0)
    return 0;
  for (int i = 0; i < rank; i++) {
    limn_arg first = simp_item(g, a[1], (uint32_t)i);
    limn_arg last = simp_item(g, a[2], (uint32_t)i);
    if (i == dim && simp_same(g, first, last) && first.tag == LIMN_A_INT)
      at = first.u.i;
    else if (!simp_is_int(first, 1) || !simp_is_int(last, -1))
      return 0;
  }
  return LIMN_MAX(at, 0);
}

/* One of the values that cat joins, each of which has size 1 there; they are of
 * one dtype. */
static int simp_part(const limn_graph *g, const limn_arg *a, limn_arg *out) {
  const limn_arg *cat = simp_is(g, a[0], OP_cat);
  int rank = simp_rank(g, a[0]), dim = cat ? simp_dim(cat[1], rank) : -1;
  int64_t at = simp_position(g, a, rank, dim);
  if (!at || cat[0].tag != LIMN_A_LIST || at > cat[0].n) return SIMP_KEEP;
  for (uint32_t i = 0; i < cat[0].n; i++) {
    limn_arg x[2] = {simp_item(g, cat[0], i), limn_aint(dim + 1)}, size;
    int did = SIMP_CHANGED;
    if (!limn_simp_dtype_eq(g, x[0], simp_item(g, cat[0], 0)))
      return SIMP_KEEP;
    while (did == SIMP_CHANGED) did = limn_simp_size(g, x, &size);
    if (did != SIMP_REPLACED || !simp_is_int(size, 1)) return SIMP_KEEP;
  }
  *out = simp_item(g, cat[0], (uint32_t)at - 1);
  return SIMP_REPLACED;
}

/* A view that is the view of something older, or nothing at all. */
static int simp_view(simp *s, limn_ref r, int op, limn_arg *a, limn_arg *out) {
  const limn_arg *x = NULL;
  *out = a[0];
  switch (op) {
  case OP_transpose:
    if (simp_same(s->g, a[1], a[2])) return SIMP_REPLACED;
    if (!simp_is_transposed(s->g, a)) return SIMP_KEEP;
    *out = simp_is(s->g, a[0], OP_transpose)[0];
    return SIMP_REPLACED;
  case OP_permute:
    return simp_permute(s, r, out);
  case OP_reshape_like:
    if (limn_simp_shape_eq(s->g, a[0], a[1])) return SIMP_REPLACED;
    break;
  case OP_expand_like:
    if (limn_simp_shape_eq(s->g, a[0], a[1])) return SIMP_REPLACED;
    x = simp_is(s->g, a[0], OP_expand_like);
    break;
  case OP_expand:
    if (simp_all(s->g, a[1], -1) && (int)a[1].n == simp_rank(s->g, a[0]))
      return SIMP_REPLACED;
    return SIMP_KEEP;
  case OP_flip:
    x = simp_is(s->g, a[0], OP_flip);
    if (!x || !simp_same(s->g, a[1], x[1])) return SIMP_KEEP;
    *out = x[0];
    return SIMP_REPLACED;
  case OP_squeeze:
  case OP_unsqueeze:
    return simp_squeeze(s->g, op, a, out);
  case OP_slice:
    if (simp_slice_all(s->g, a)) return SIMP_REPLACED;
    return simp_part(s->g, a, out);
  default:
    break;
  }
  if ((op == OP_reshape || op == OP_reshape_like) && simp_tensor(s->g, a[0]) &&
      simp_reshapes(simp_node(s->g, a[0])->op))
    x = s->g->args + simp_node(s->g, a[0])->args;
  if (!x) return SIMP_KEEP;
  a[0] = x[0];
  return SIMP_CHANGED;
}

/* -- Tensors -- */

static int simp_convert(const limn_graph *g, limn_arg *a, limn_arg *out) {
  const limn_arg *of = simp_is(g, a[1], OP_dtypeof);
  const limn_arg *x = simp_is(g, a[0], OP_convert);
  *out = a[0];
  if (of && limn_simp_dtype_eq(g, a[0], of[0])) return SIMP_REPLACED;
  return x && simp_same(g, x[1], a[1]) ? SIMP_REPLACED : SIMP_KEEP;
}

/* `like` in terms of the oldest value that says the same. */
static int simp_like(limn_arg *like, limn_arg older) {
  if (like->tag != LIMN_A_REF || older.u.ref == like->u.ref) return SIMP_KEEP;
  *like = older;
  return SIMP_CHANGED;
}

static int simp_elem(const limn_graph *g, int op, const limn_arg *a,
                     limn_arg *out) {
  const limn_arg *x = simp_is(g, a[0], op);
  if (!x) return SIMP_KEEP;
  switch (op) {
  case OP_neg:
    *out = x[0];
    return SIMP_REPLACED;
  case OP_abs:
  case OP_relu:
  case OP_floor:
  case OP_ceil:
  case OP_round:
  case OP_trunc:
  case OP_sign:
    *out = a[0];
    return SIMP_REPLACED;
  default:
    return SIMP_KEEP;
  }
}

static int simp_special(const limn_graph *g, int op, limn_arg *a,
                        limn_arg *out) {
  *out = a[0];
  switch (op) {
  case OP_size:
    return limn_simp_size(g, a, out);
  case OP_dtypeof:
    return simp_like(&a[0], limn_simp_dtype(g, a[0]));
  case OP_is:
    return simp_is_dtype(g, a, out);
  case OP_convert:
    return simp_convert(g, a, out);
  case OP_detach:
  case OP_widen:
    return simp_is(g, a[0], op) ? SIMP_REPLACED : SIMP_KEEP;
  case OP_fold_like:
    if (limn_simp_shape_eq(g, a[0], a[1]) && limn_simp_dtype_eq(g, a[0], a[1]))
      return SIMP_REPLACED;
    return simp_like(&a[1], limn_simp_both(g, a[1]));
  case OP_full_like:
    return simp_like(&a[0], a[2].tag == LIMN_A_NONE ? limn_simp_both(g, a[0])
                                                    : limn_simp_shape(g, a[0]));
  case OP_rand_like:
  case OP_randn_like:
    return simp_like(&a[0], limn_simp_both(g, a[0]));
  case OP_cat:
    if (a[0].tag != LIMN_A_LIST || a[0].n != 1) return SIMP_KEEP;
    *out = simp_item(g, a[0], 0);
    return simp_tensor(g, *out) ? SIMP_REPLACED : SIMP_KEEP;
  default:
    return SIMP_KEEP;
  }
}

static int simp_rules(simp *s, limn_ref r, limn_arg *out) {
  const limn_node *n = limn_graph_node(s->g, r);
  const limn_op_row *row = limn_op_get(n->op);
  limn_arg *a = limn_node_args(s->g, r);
  int did;
  if (row->row == LIMN_ROW_E && n->kind != LIMN_V_TENSOR)
    return simp_host(s->g, n, a, out);
  if (row->row == LIMN_ROW_E) return simp_elem(s->g, n->op, a, out);
  if (row->row == LIMN_ROW_V) {
    did = simp_view(s, r, n->op, a, out);
    if (did != SIMP_KEEP ||
        (n->op != OP_reshape_like && n->op != OP_expand_like))
      return did;
    return simp_like(&a[1], limn_simp_shape(s->g, a[1]));
  }
  return simp_special(s->g, n->op, a, out);
}

/* -- Equal nodes -- */

static void simp_put(simp *s, const void *p, uint32_t n) {
  if (s->rc) return;
  s->rc = limn_grow(s->g->c, &s->key, &s->key_cap, s->nkey + n, 1);
  if (s->rc) return;
  memcpy(s->key + s->nkey, p, n);
  s->nkey += n;
}

static void simp_put_arg(simp *s, limn_arg a) {
  uint64_t v = (uint64_t)a.u.i;
  if (a.tag == LIMN_A_NONE) v = 0;
  if (a.tag == LIMN_A_REF) v = a.u.ref;
  if (a.tag == LIMN_A_STR) v = a.u.str;
  if (a.tag == LIMN_A_LIST) v = a.n;
  simp_put(s, &a.tag, 1);
  simp_put(s, &v, sizeof v);
  if (a.tag != LIMN_A_LIST) return;
  for (uint32_t i = 0; i < a.n; i++) simp_put_arg(s, simp_item(s->g, a, i));
}

static bool simp_unique(int op) {
  switch (op) {
  case OP_input:
  case OP_number:
  case OP_cell:
  case OP_const:
  case OP_custom:
  case OP_print:
    return true;
  default:
    return false;
  }
}

/* An equal node before r stands for it. */
static void simp_find(simp *s, limn_ref r) {
  const limn_node *n = limn_graph_node(s->g, r);
  uintptr_t old;
  if (simp_unique(n->op)) return;
  s->nkey = 0;
  simp_put(s, &n->op, sizeof n->op);
  for (int i = 0; i < n->nargs; i++)
    simp_put_arg(s, limn_node_args(s->g, r)[i]);
  if (s->rc) return;
  old = (uintptr_t)limn_map_get(&s->seen, s->key, s->nkey);
  if (old)
    s->rep[r - 1] = limn_aref((limn_ref)old);
  else
    s->rc =
        limn_map_put(s->g->c, &s->seen, s->key, s->nkey, (void *)(uintptr_t)r);
}

/* -- The pass -- */

/* Lists may be shared by nodes: replacing twice changes nothing, because what
 * stands for a node stands for itself. */
static void simp_replace(simp *s, limn_arg *a) {
  if (a->tag == LIMN_A_REF) *a = s->rep[a->u.ref - 1];
  if (a->tag != LIMN_A_LIST) return;
  for (uint32_t i = 0; i < a->n; i++) simp_replace(s, &s->g->args[a->u.at + i]);
}

static void simp_visit(simp *s, limn_ref r) {
  const limn_node *n = limn_graph_node(s->g, r);
  s->rep[r - 1] = limn_aref(r);
  for (int i = 0; i < n->nargs; i++)
    simp_replace(s, &limn_node_args(s->g, r)[i]);
  /* Rules go to older values only, so this ends. */
  for (;;) {
    limn_arg out = limn_none();
    int did = s->rc ? SIMP_KEEP : simp_rules(s, r, &out);
    if (did == SIMP_KEEP) break;
    if (did == SIMP_CHANGED) continue;
    s->rep[r - 1] = out;
    return;
  }
  if (!s->rc) simp_find(s, r);
}

/* A guard that holds, or is there already, says nothing. */
static void simp_guards(simp *s) {
  limn_graph *g = s->g;
  uint32_t n = 0, k;
  for (uint32_t i = 0; i < g->nguard; i++) {
    limn_guard q = g->guard[i];
    simp_replace(s, &q.cond);
    if (limn_arg_true(q.cond)) continue;
    for (k = 0; k < n && !simp_same(s->g, g->guard[k].cond, q.cond);) k++;
    if (k == n) g->guard[n++] = q;
  }
  g->nguard = n;
}

/* A write of the value read is no write. */
static void simp_holders(simp *s) {
  limn_graph *g = s->g;
  for (uint32_t i = 0; i < g->nout; i++) simp_replace(s, &g->out[i]);
  for (uint32_t i = 0; i < g->ncell; i++) {
    limn_arg *w = &g->cell[i].write;
    simp_replace(s, w);
    if (w->tag == LIMN_A_REF && w->u.ref == g->cell[i].ref) *w = limn_none();
  }
  simp_guards(s);
}

int limn_simplify(limn_graph *g) {
  simp s = {0};
  size_t bytes = (g->nnode + 1u) * sizeof *s.rep;
  s.g = g;
  s.rep = limn_alloc(g->c, bytes);
  if (!s.rep) return LIMN_EMEM;
  for (limn_ref r = 1; r <= g->nnode && !s.rc; r++) simp_visit(&s, r);
  if (!s.rc) simp_holders(&s);
  limn_map_free(g->c, &s.seen);
  limn_free(g->c, s.key, s.key_cap);
  limn_free(g->c, s.rep, bytes);
  return s.rc ? s.rc : limn_graph_compact(g);
}
