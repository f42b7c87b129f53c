/* Reverse mode: appends the gradient of a value to its graph.
 *
 * 1. Forward over the nodes: which depend on what is differentiated for.
 * 2. Backward over the same nodes: each node's gradient is complete once all
 *    its users, which come later, have been seen. Its row says what that
 *    means for its operands; what several users give is added.
 * 3. Broadcasting is undone in one place, by fold_like. Sizes are plan values,
 *    so the result is right for every size.
 * 4. The nodes made are put in post-order from the results, because C does not
 *    order the evaluation of arguments; what no result needs falls away. */
#include "pass.h"

/* -- Gradients of E, R and V rows, written as in ops.h -- */

static limn_arg grad_mul(limn_builder *b, limn_arg x, limn_arg y) {
  if (x.tag == LIMN_A_REF && limn_arg_is(y, 1)) return x;
  if (y.tag == LIMN_A_REF && limn_arg_is(x, 1)) return y;
  return limn_calc2(b, OP_mul, x, y);
}

static limn_arg grad_pow(limn_builder *b, limn_arg x, limn_arg y) {
  if (limn_arg_is(y, 1)) return x;
  if (limn_arg_is(y, 2)) return limn_calc1(b, OP_square, x);
  return limn_calc2(b, OP_pow, x, y);
}

/* An absent bound (clamp) holds always. */
static limn_arg grad_and(limn_builder *b, limn_arg x, limn_arg y) {
  if (x.tag == LIMN_A_NONE) return y;
  if (y.tag == LIMN_A_NONE) return x;
  return limn_calc2(b, OP_logical_and, x, y);
}

static limn_arg grad_where(limn_builder *b, limn_arg c, limn_arg x,
                           limn_arg y) {
  if (c.tag == LIMN_A_NONE) return x;
  if (c.tag == LIMN_A_BOOL) return c.u.i ? x : y;
  return limn_calc3(b, OP_where, c, x, y);
}

#define N(x) limn_areal(x)
#define NONE limn_none()
#define ADD(x, y) limn_calc2(B, OP_add, x, y)
#define SUB(x, y) limn_calc2(B, OP_sub, x, y)
#define MUL(x, y) grad_mul(B, x, y)
#define DIV(x, y) limn_calc2(B, OP_div, x, y)
#define FLOOR_DIV(x, y) limn_calc2(B, OP_floor_div, x, y)
#define POW_(x, y) grad_pow(B, x, y)
#define GT(x, y) limn_calc2(B, OP_gt, x, y)
#define LT(x, y) limn_calc2(B, OP_lt, x, y)
#define GE(x, y) limn_calc2(B, OP_ge, x, y)
#define LE(x, y) limn_calc2(B, OP_le, x, y)
#define EQ(x, y) limn_calc2(B, OP_eq, x, y)
#define AND(x, y) grad_and(B, x, y)
#define WHERE(c, x, y) grad_where(B, c, x, y)
#define NEG(x) limn_calc1(B, OP_neg, x)
#define SIGN(x) limn_calc1(B, OP_sign, x)
#define ABS_(x) limn_calc1(B, OP_abs, x)
#define SQUARE(x) limn_calc1(B, OP_square, x)
#define RSQRT(x) limn_calc1(B, OP_rsqrt, x)
#define EXP(x) limn_calc1(B, OP_exp, x)
#define EXPM1(x) limn_calc1(B, OP_expm1, x)
#define LOG(x) limn_calc1(B, OP_log, x)
#define SIN(x) limn_calc1(B, OP_sin, x)
#define COS(x) limn_calc1(B, OP_cos, x)
#define SINH(x) limn_calc1(B, OP_sinh, x)
#define COSH(x) limn_calc1(B, OP_cosh, x)
#define TANH(x) limn_calc1(B, OP_tanh, x)
#define TRUNC(x) limn_calc1(B, OP_trunc, x)
#define DIGAMMA(x) limn_calc1(B, OP_digamma, x)
#define POLYGAMMA(n, x) limn_calc2(B, OP_polygamma, n, x)
#define ERF(x) limn_calc1(B, OP_erf, x)
#define SIGMOID(x) limn_calc1(B, OP_sigmoid, x)
#define SOFTPLUS(x) limn_calc1(B, OP_softplus, x)
#define SPREAD(g) grad_spread(B, a, g, dims, keep)
#define RESHAPE_LIKE(g, a) limn_build2(B, OP_reshape_like, g, a)
#define TRANSPOSE(g, x, y) limn_build3(B, OP_transpose, g, x, y)
#define FLIP(g, dims) limn_build2(B, OP_flip, g, dims)

#define GRAD_OPEN(name)                                                    \
  void limn_grad_##name(limn_builder *B, const limn_arg *args, limn_arg y, \
                        limn_arg g, limn_arg *out) {                       \
    limn_arg a = args[0];                                                  \
    (void)B, (void)a, (void)y, (void)g;
#define GRAD_OUT(i, expr) \
  if (limn_grad_wants(&out[i])) out[i] = expr;

#define E1(name, meta, rule, domain, sig, expr, ga, doc) \
  GRAD_OPEN(name) GRAD_OUT(0, ga)                        \
  }
#define E2(name, meta, rule, domain, sig, expr, ga, gb, doc) \
  GRAD_OPEN(name) limn_arg b = args[1];                      \
  (void)b;                                                   \
  GRAD_OUT(0, ga) GRAD_OUT(1, gb)                            \
  }
#define E3(name, meta, rule, domain, sig, expr, ga, gb, gc, doc) \
  GRAD_OPEN(name) limn_arg b = args[1], c = args[2];             \
  (void)b, (void)c;                                              \
  GRAD_OUT(0, ga) GRAD_OUT(1, gb) GRAD_OUT(2, gc)                \
  }
#define R(name, rule, sig, init, step, grad, doc)          \
  GRAD_OPEN(name) limn_arg dims = args[1], keep = args[2]; \
  (void)dims, (void)keep;                                  \
  GRAD_OUT(0, grad)                                        \
  }
#define V(name, sig, view, rank, grad, doc) \
  GRAD_OPEN(name) GRAD_OUT(0, grad)         \
  }
#include "ops.h"

limn_arg limn_fold_like(limn_builder *b, limn_arg g, limn_arg x) {
  if (g.tag == LIMN_A_NONE) return g;
  return limn_build2(b, OP_fold_like, g, x);
}

/* -- The walk -- */

typedef struct {
  limn_arg g;     /* gradient so far, NONE: none yet */
  uint32_t multi; /* of several results: 1 + first in walk->multi, or 0 */
  bool on;        /* depends on what is differentiated for */
} grad_slot;

/* Nodes lo..hi have a slot each. Of a nested walk (the expansion of a node),
 * the node's operands, which come before lo, have the last `nwrt` slots. */
typedef struct {
  limn_builder *b;
  limn_ref start; /* nodes before it are constants */
  limn_ref lo, hi;
  bool nested;
  const limn_ref *wrt;
  int nwrt;
  grad_slot *slot;
  limn_arg *multi;
  uint32_t nmulti, multi_cap;
} grad_walk;

/* What is differentiated, and the gradient that each of them is given. */
typedef struct {
  const limn_arg *y, *g;
  int n;
} grad_seeds;

static void grad_run(limn_builder *b, limn_ref start, bool nested,
                     const grad_seeds *y, const limn_ref *wrt, int n,
                     limn_arg *out);

static grad_slot *grad_at(const grad_walk *w, limn_ref r) {
  if (r >= w->lo && r <= w->hi) return &w->slot[r - w->lo];
  for (int i = 0; w->nested && i < w->nwrt; i++)
    if (w->wrt[i] == r) return &w->slot[w->hi - w->lo + 1 + (limn_ref)i];
  return NULL;
}

static bool grad_on(const grad_walk *w, limn_arg a) {
  const grad_slot *s = a.tag == LIMN_A_REF ? grad_at(w, a.u.ref) : NULL;
  return s && s->on;
}

/* Whether a gradient goes through a node at all. Integers and bools have
 * none; rows that lack one by mistake are found when it is asked for. */
bool limn_grad_passes(const limn_graph *g, limn_ref r) {
  const limn_node *n = limn_graph_node(g, r);
  const limn_op_row *row = limn_op_get(n->op);
  const limn_arg *a = limn_node_args(g, r);
  if (limn_op_body(n->op) >= 0) return true;
  if (n->kind != LIMN_V_TENSOR) return false;
  switch (n->op) {
  case OP_pick:
    return true;
  case OP_detach:
  case OP_argmax:
  case OP_argmin:
  case OP_argsort:
  case OP_one_hot:
    return false;
  case OP_convert:
    return a[1].tag != LIMN_A_DTYPE || limn_dtype_float((int)a[1].u.i);
  default:
    break;
  }
  if (row->row == LIMN_ROW_H || row->row == LIMN_ROW_G) return false;
  return row->grad || row->row == LIMN_ROW_S;
}

typedef struct {
  const grad_walk *w;
  bool on;
} grad_seek;

static void grad_seek_ref(limn_ref r, void *user) {
  grad_seek *s = user;
  s->on |= grad_on(s->w, limn_aref(r));
}

/* Step 1. */
static void grad_mark(grad_walk *w) {
  for (int i = 0; i < w->nwrt; i++) {
    grad_slot *s = w->wrt[i] ? grad_at(w, w->wrt[i]) : NULL;
    if (s) s->on = limn_graph_node(w->b->g, w->wrt[i])->kind == LIMN_V_TENSOR;
  }
  for (limn_ref r = LIMN_MAX(w->lo, w->start); r <= w->hi; r++) {
    grad_seek s = {w, false};
    if (w->slot[r - w->lo].on || !limn_grad_passes(w->b->g, r)) continue;
    limn_node_refs(w->b->g, r, grad_seek_ref, &s);
    w->slot[r - w->lo].on = s.on;
  }
}

static void grad_sum(limn_builder *b, limn_arg *sum, limn_arg g) {
  if (sum->tag == LIMN_A_NONE) *sum = g;
  else if (!limn_grad_join(b, sum, g)) *sum = limn_calc2(b, OP_add, *sum, g);
}

/* Add g to what x has got. A number stands for a tensor of it. */
static void grad_give(grad_walk *w, limn_arg x, limn_arg g) {
  limn_builder *b = w->b;
  if (g.tag == LIMN_A_NONE || g.tag == LIMN_A_BOOL || b->rc) return;
  if (!limn_arg_tensor(b, g))
    g = limn_build3(b, OP_full_like, x, g, limn_none());
  grad_sum(b, &grad_at(w, x.u.ref)->g, g);
}

/* Memory of the builder's context; failure sticks to the builder. */
static void *grad_alloc(limn_builder *b, size_t n) {
  void *p = b->rc ? NULL : limn_alloc(b->c, n);
  if (!p && !b->rc) b->rc = LIMN_EMEM;
  return p;
}

/* -- One node -- */

/* Whether the gradients of a row's operands may have another shape or dtype
 * than the operands; S rows see to it themselves. */
static bool grad_misfits(const limn_builder *b, int op, const limn_arg *a) {
  limn_ref first = 0;
  if (op == OP_expand || op == OP_expand_like) return true;
  if (limn_op_get(op)->row != LIMN_ROW_E) return false;
  for (int i = 0; i < limn_op_get(op)->arity; i++) {
    if (!limn_arg_tensor(b, a[i])) continue;
    if (first && first != a[i].u.ref) return true;
    first = a[i].u.ref;
  }
  return false;
}

static int grad_lacks(limn_builder *b, int op) {
  const char *line = limn_graph_text(b->g, b->line);
  return limn_hint(b->c,
                   limn_fail(b->c, LIMN_ETRACE, "%s%s%s has no gradient", line,
                             *line ? ": " : "", limn_op_get(op)->name),
                   "detach() its operand if it is meant as a constant");
}

/* An op made of others: through its expansion. */
static void grad_expanded(grad_walk *w, int op, const limn_arg *a, limn_arg g,
                          const limn_arg *x, int n, limn_arg *out) {
  limn_builder *b = w->b;
  size_t bytes = (size_t)(n + 1) * sizeof(limn_ref);
  limn_ref first = b->g->nnode + 1, *wrt;
  limn_arg y;
  if (!limn_op_get(op)->expand) {
    if (!b->rc) b->rc = grad_lacks(b, op);
    return;
  }
  wrt = grad_alloc(b, bytes);
  if (!wrt) return;
  for (int i = 0; i < n; i++)
    wrt[i] = limn_grad_wants(&out[i]) ? x[i].u.ref : 0;
  y = limn_expand(b, op, a, n);
  for (int i = 0; i < n; i++) out[i] = limn_none();
  if (!b->rc && y.tag == LIMN_A_REF && y.u.ref >= first)
    grad_run(b, first, true, &(grad_seeds){&y, &g, 1}, wrt, n, out);
  else /* an operand itself, as x repeated once is */
    for (int i = 0; i < n; i++)
      if (y.tag == LIMN_A_REF && wrt[i] == y.u.ref) {
        out[i] = g;
        break;
      }
  limn_free(b->c, wrt, bytes);
}

/* The row's gradient in float32 for halves, rounded once, by fold_like. What
 * was built in vain falls away in step 4. False: it is one op, which rounds
 * once by itself. */
static bool grad_widened(limn_builder *b, int op, const limn_arg *a, int n,
                         limn_arg y, limn_arg g, limn_arg *out) {
  const limn_op_row *row = limn_op_get(op);
  bool widens = limn_op_widens(op);
  limn_arg wide[LIMN_MAXARGS + 2], wanted[LIMN_MAXARGS];
  uint32_t first = b->g->nnode, ops = 0;
  if (!widens && (row->row != LIMN_ROW_E || row->rule != LIMN_RULE_FLT))
    return false;
  for (int i = 0; i < n; i++) wanted[i] = out[i], wide[i] = a[i];
  for (int i = 0; i < n; i++) ops += limn_grad_wants(&out[i]);
  if (!widens) row->grad(b, a, y, g, out);
  if (!widens && b->g->nnode - first <= ops) return true;
  memcpy(out, wanted, (size_t)n * sizeof *out);
  wide[n] = y, wide[n + 1] = g;
  limn_widen_args(b, wide, n + 2);
  row->grad(b, wide, wide[n], wide[n + 1], out);
  return true;
}

static void grad_plain(grad_walk *w, int op, const limn_arg *a, limn_arg y,
                       limn_arg g, const limn_arg *x, int n, limn_arg *out) {
  bool fold = grad_misfits(w->b, op, a);
  for (int i = 0; i < n; i++) out[i] = limn_abool(grad_on(w, x[i]));
  if (!limn_op_get(op)->grad)
    grad_expanded(w, op, a, g, x, n, out);
  else if (grad_widened(w->b, op, a, n, y, g, out))
    fold = true;
  else
    limn_op_get(op)->grad(w->b, a, y, g, out);
  for (int i = 0; i < n; i++) {
    if (!grad_on(w, x[i])) continue;
    if (fold && limn_arg_tensor(w->b, out[i]))
      out[i] = limn_fold_like(w->b, out[i], x[i]);
    grad_give(w, x[i], out[i]);
  }
}

/* -- Nodes with regions -- */

/* What result number a[1] of a node a[0] gets is kept with the node. */
static void grad_pick(grad_walk *w, const limn_arg *a, limn_arg g) {
  limn_builder *b = w->b;
  grad_slot *s = a[0].tag == LIMN_A_REF ? grad_at(w, a[0].u.ref) : NULL;
  uint32_t n;
  if (!s || !s->on || b->rc) return;
  n = limn_graph_node(b->g, a[0].u.ref)->nresult;
  if (a[1].u.i < 1 || a[1].u.i > n) return;
  if (!s->multi) {
    b->rc = limn_grow(b->c, &w->multi, &w->multi_cap, w->nmulti + n,
                      sizeof *w->multi);
    if (b->rc) return;
    s->multi = w->nmulti + 1;
    for (uint32_t i = 0; i < n; i++) w->multi[w->nmulti++] = limn_none();
  }
  grad_sum(b, &w->multi[s->multi - 1 + (uint32_t)a[1].u.i - 1], g);
}

/* Its lists of operands one after another, and the gradients of its results.
 * `tmp` has room for both and for the operands' gradients. */
static void grad_regions_in(grad_walk *w, limn_region_call *k, limn_arg *tmp) {
  limn_builder *b = w->b;
  const grad_slot *s = grad_at(w, k->r);
  limn_arg *x = tmp, *g = x + k->n, *out = g + k->ng;
  uint32_t at = 0;
  for (int i = 0; i < LIMN_MAXARGS; i++)
    for (uint32_t j = 0; k->a[i].tag == LIMN_A_LIST && j < k->a[i].n; j++)
      x[at++] = b->g->args[k->a[i].u.at + j];
  for (uint32_t i = 0; i < k->ng; i++)
    g[i] = s->multi ? w->multi[s->multi - 1 + i] : limn_none();
  if (s->g.tag != LIMN_A_NONE) grad_sum(b, &g[0], s->g);
  for (uint32_t i = 0; i < k->n; i++) out[i] = limn_abool(grad_on(w, x[i]));
  k->x = x, k->g = g, k->out = out;
  if (!b->rc) limn_grad_region(b, k);
  for (uint32_t i = 0; i < k->n; i++)
    if (grad_on(w, x[i])) grad_give(w, x[i], out[i]);
}

static void grad_regions(grad_walk *w, limn_ref r, const limn_arg *a) {
  limn_region_call k = {0};
  limn_arg *tmp;
  size_t bytes;
  memcpy(k.a, a, sizeof k.a);
  k.r = r;
  k.ng = limn_graph_node(w->b->g, r)->nresult;
  for (int i = 0; i < LIMN_MAXARGS; i++)
    if (a[i].tag == LIMN_A_LIST) k.n += a[i].n;
  bytes = (2 * (size_t)k.n + k.ng + 1) * sizeof *tmp;
  tmp = grad_alloc(w->b, bytes);
  if (!tmp) return;
  grad_regions_in(w, &k, tmp);
  limn_free(w->b->c, tmp, bytes);
}

/* Arguments are copied: the pool moves when nodes are added. */
static void grad_node(grad_walk *w, limn_ref r) {
  limn_builder *b = w->b;
  limn_node nd = *limn_graph_node(b->g, r);
  limn_arg a[LIMN_MAXARGS] = {{0}}, small[LIMN_MAXARGS], *x = small, *out;
  limn_arg g = w->slot[r - w->lo].g;
  uint32_t n = nd.nargs;
  size_t bytes;
  memcpy(a, limn_node_args(b->g, r), n * sizeof *a);
  b->line = nd.line, b->path = nd.path;
  if (nd.op == OP_pick) {
    grad_pick(w, a, g);
    return;
  }
  if (limn_op_body(nd.op) >= 0) {
    grad_regions(w, r, a);
    return;
  }
  if (a[0].tag == LIMN_A_LIST) n = a[0].n;
  bytes = (2 * (size_t)n + LIMN_MAXARGS) * sizeof *x;
  x = grad_alloc(b, bytes);
  if (!x) return;
  out = x + n;
  memcpy(x, a[0].tag == LIMN_A_LIST ? b->g->args + a[0].u.at : a,
         n * sizeof *x);
  grad_plain(w, nd.op, a, limn_aref(r), g, x, (int)n, out);
  limn_free(b->c, x, bytes);
}

/* Step 2. */
static void grad_back(grad_walk *w) {
  for (limn_ref r = w->hi; r >= w->lo && r >= w->start && !w->b->rc; r--) {
    const grad_slot *s = &w->slot[r - w->lo];
    if (s->on && (s->g.tag != LIMN_A_NONE || s->multi) &&
        limn_grad_passes(w->b->g, r))
      grad_node(w, r);
  }
}

static void grad_run(limn_builder *b, limn_ref start, bool nested,
                     const grad_seeds *y, const limn_ref *wrt, int n,
                     limn_arg *out) {
  grad_walk w = {b, start, start, 0, nested, wrt, n, NULL, NULL, 0, 0};
  size_t bytes;
  for (int i = 0; i < n; i++) out[i] = limn_none();
  for (int i = 0; i < n && !nested; i++)
    if (wrt[i] && wrt[i] < w.lo) w.lo = wrt[i];
  for (int i = 0; i < y->n; i++)
    if (limn_arg_tensor(b, y->y[i])) w.hi = LIMN_MAX(w.hi, y->y[i].u.ref);
  if (w.hi < w.lo) return; /* y is a constant */
  bytes = (w.hi - w.lo + 1 + (size_t)n) * sizeof(grad_slot);
  w.slot = grad_alloc(b, bytes);
  if (!w.slot) return;
  grad_mark(&w);
  for (int i = 0; i < y->n; i++)
    if (grad_on(&w, y->y[i]))
      grad_sum(b, &grad_at(&w, y->y[i].u.ref)->g, y->g[i]);
  grad_back(&w);
  for (int i = 0; i < n && !b->rc; i++) {
    const grad_slot *s = wrt[i] ? grad_at(&w, wrt[i]) : NULL;
    if (s && s->on) out[i] = s->g;
  }
  if (nested) /* an operand given twice counts once */
    for (int i = 0; i < n; i++)
      for (int k = 0; k < i; k++)
        if (wrt[k] == wrt[i]) out[i] = limn_none();
  limn_free(b->c, w.multi, w.multi_cap * sizeof *w.multi);
  limn_free(b->c, w.slot, bytes);
}

/* -- Order -- */

enum { GRAD_OPEN_MARK = UINT32_MAX };
#define GRAD_EXIT 0x80000000u
typedef struct {
  limn_graph *g;
  limn_ref first, next; /* next: the new name of the next node done */
  limn_ref *map;        /* 0: not seen; GRAD_OPEN_MARK: being done */
  uint32_t *stack, n, cap;
  int rc;
} grad_order;

static void grad_push(limn_ref r, void *user) {
  grad_order *o = user;
  if (r < o->first || o->map[r - o->first] || o->rc) return;
  o->rc = limn_grow(o->g->c, &o->stack, &o->cap, o->n + 2, sizeof(uint32_t));
  if (!o->rc) o->stack[o->n++] = r;
}

/* Depth first without recursion: a chain may be as long as the graph. */
static void grad_visit(grad_order *o, limn_arg root) {
  if (root.tag == LIMN_A_REF) grad_push(root.u.ref, o);
  while (o->n && !o->rc) {
    uint32_t e = o->stack[--o->n], at;
    limn_ref *m = &o->map[(e & ~GRAD_EXIT) - o->first];
    if (e & GRAD_EXIT) {
      *m = o->next++;
      continue;
    }
    if (*m) continue;
    *m = (limn_ref)GRAD_OPEN_MARK;
    o->stack[o->n++] = e | GRAD_EXIT; /* grad_push left room */
    at = o->n;
    limn_node_refs(o->g, e, grad_push, o);
    for (uint32_t i = at, k = o->n; i + 1 < k; i++) { /* first operand first */
      uint32_t t = o->stack[i];
      o->stack[i] = o->stack[--k];
      o->stack[k] = t;
    }
  }
}

static int grad_move(grad_order *o) {
  limn_graph *g = o->g;
  uint32_t n = g->nnode - (o->first - 1);
  size_t bytes = n * sizeof(limn_node);
  limn_node *old = limn_alloc(g->c, bytes);
  if (!old) return LIMN_EMEM;
  memcpy(old, g->node + o->first - 1, bytes);
  for (uint32_t i = 0; i < n; i++)
    if (o->map[i]) g->node[o->map[i] - 1] = old[i];
  limn_free(g->c, old, bytes);
  limn_graph_remap(g, o->first, o->map);
  g->nnode = o->next - 1;
  return 0;
}

/* Step 4: of the nodes from `first` on. An inlined gradient of a custom
 * function may have added consts, guards, effects and writes. */
static int grad_reorder(limn_graph *g, limn_ref first, limn_arg *out, int n) {
  grad_order o = {g, first, first, NULL, NULL, 0, 0, 0};
  size_t bytes = (g->nnode + 2 - first) * sizeof(limn_ref);
  if (first > g->nnode) return 0;
  o.map = limn_alloc(g->c, bytes);
  if (!o.map) return LIMN_EMEM;
  for (int i = 0; i < n; i++) grad_visit(&o, out[i]);
  for (uint32_t i = 0; i < g->nout; i++) grad_visit(&o, g->out[i]);
  for (uint32_t i = 0; i < g->ncell; i++) {
    if (g->cell[i].ref) grad_visit(&o, limn_aref(g->cell[i].ref));
    grad_visit(&o, g->cell[i].write);
  }
  for (uint32_t i = 0; i < g->nconst; i++)
    if (g->konst[i].ref) grad_visit(&o, limn_aref(g->konst[i].ref));
  for (uint32_t i = 0; i < g->nguard; i++) grad_visit(&o, g->guard[i].cond);
  for (uint32_t i = 0; i < g->neffect; i++)
    grad_visit(&o, limn_aref(g->effect[i]));
  if (!o.rc) o.rc = grad_move(&o);
  for (int i = 0; i < n && !o.rc; i++)
    if (out[i].tag == LIMN_A_REF && out[i].u.ref >= first)
      out[i].u.ref = o.map[out[i].u.ref - first];
  limn_free(g->c, o.stack, o.cap * sizeof *o.stack);
  limn_free(g->c, o.map, bytes);
  return o.rc;
}

/* -- Entry -- */

static int grad_from(limn_builder *b, limn_ref start, limn_ref first,
                     const grad_seeds *y, const limn_ref *wrt, int n,
                     limn_arg *out) {
  if (!b->rc) grad_run(b, LIMN_MAX(start, 1), false, y, wrt, n, out);
  if (!b->rc) return grad_reorder(b->g, first, out, n);
  grad_reorder(b->g, first, NULL, 0); /* take back what was added */
  for (int i = 0; i < n; i++) out[i] = limn_none();
  return b->rc;
}

int limn_gradient(limn_graph *g, limn_ref start, limn_arg loss,
                  const limn_ref *wrt, int n, limn_arg *out) {
  limn_builder b = {g->c, g, 0, 0, 0};
  limn_ref first = g->nnode + 1;
  limn_arg seed;
  for (int i = 0; i < n; i++) out[i] = limn_none();
  if (!limn_arg_tensor(&b, loss)) return 0; /* a number depends on nothing */
  if (limn_arg_rank(&b, loss) != 0)
    return limn_hint(g->c,
                     limn_fail(g->c, LIMN_ESHAPE,
                               "the loss has %d dims; only "
                               "a single number has a gradient",
                               limn_arg_rank(&b, loss)),
                     "reduce it with :mean() or :sum()");
  b.line = limn_graph_node(g, loss.u.ref)->line;
  b.path = limn_graph_node(g, loss.u.ref)->path;
  seed = limn_build3(&b, OP_full_like, loss, limn_areal(1), limn_none());
  return grad_from(&b, start, first, &(grad_seeds){&loss, &seed, 1}, wrt, n,
                   out);
}

int limn_gradient_back(limn_graph *g, const limn_arg *y, const limn_arg *gy,
                       int ny, const limn_ref *wrt, int n, limn_arg *out) {
  limn_builder b = {g->c, g, 0, 0, 0};
  return grad_from(&b, 1, g->nnode + 1, &(grad_seeds){y, gy, ny}, wrt, n, out);
}

/* -- Why there is none -- */

static void grad_flag(limn_ref r, void *flags) { ((uint8_t *)flags)[r] |= 2; }

typedef struct {
  const uint8_t *flags;
  bool on;
} grad_flags;

static void grad_flag_seek(limn_ref r, void *user) {
  grad_flags *f = user;
  f->on |= f->flags[r] & 1;
}

/* Sizes and dtypes of a value do not carry it, detach stops it on purpose. */
static bool grad_carries(const limn_graph *g, limn_ref r) {
  int op = limn_graph_node(g, r)->op;
  if (limn_op_body(op) >= 0 || op == OP_pick) return true;
  return op != OP_detach && limn_op_get(op)->row != LIMN_ROW_H;
}

/* Flag 1: depends on x; flag 2: y depends on it. */
limn_ref limn_gradient_stop(const limn_graph *g, limn_ref y, limn_ref x) {
  uint8_t *flags;
  limn_ref r, found = 0;
  if (!x || y <= x) return 0;
  flags = limn_alloc(g->c, (size_t)y + 1);
  if (!flags) return 0;
  flags[y] = 2;
  for (r = y; r > x; r--)
    if ((flags[r] & 2) && grad_carries(g, r))
      limn_node_refs(g, r, grad_flag, flags);
  flags[x] |= 1;
  for (r = x + 1; r <= y && !found; r++) {
    grad_flags f = {flags, false};
    if (!(flags[r] & 2) || !grad_carries(g, r)) continue;
    limn_node_refs(g, r, grad_flag_seek, &f);
    if (!f.on) continue;
    flags[r] |= 1;
    if (!limn_grad_passes(g, r)) found = r;
  }
  limn_free(g->c, flags, (size_t)y + 1);
  return found;
}
