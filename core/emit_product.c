/* Emission of products: of matrices, and what convolutions share with them: the
 * group that follows becomes the step's epilogue. */
#include "emit_code.h"

/* An operand as [batch..., rows, cols]: vectors get a dim, `trans` swaps. */
static void matmul_view(limn_view *v, bool left, bool trans) {
  if (v->ndim == 1) {
    int at = left ? 0 : 1;
    v->d[1] = v->d[0], v->s[1] = v->s[0];
    v->d[at] = 1, v->s[at] = 0;
    v->ndim = 2;
    return;
  }
  if (trans) {
    int n = v->ndim;
    int64_t d = v->d[n - 1], s = v->s[n - 1];
    v->d[n - 1] = v->d[n - 2], v->s[n - 1] = v->s[n - 2];
    v->d[n - 2] = d, v->s[n - 2] = s;
  }
}

static bool matmul_unit(const limn_view *v) {
  int n = v->ndim;
  return v->s[n - 1] == 1 || v->s[n - 2] == 1 || v->d[n - 1] == 1 ||
         v->d[n - 2] == 1;
}

/* Batch dims of v broadcast to those of `shape`. */
static void matmul_batch(limn_view *v, const limn_shape *shape, int nbatch) {
  limn_view out = *v;
  int own = v->ndim - 2;
  for (int d = 0; d < nbatch; d++) {
    int from = d - (nbatch - own);
    out.d[d] = shape->d[d];
    out.s[d] = from < 0 || v->d[from] == 1 ? 0 : v->s[from];
  }
  for (int d = 0; d < 2; d++) {
    out.d[nbatch + d] = v->d[own + d];
    out.s[nbatch + d] = v->s[own + d];
  }
  out.ndim = nbatch + 2;
  *v = out;
}

static int matmul_operand(emitter *e, limn_ref r, int i, int dtype, bool left,
                          limn_operand *o) {
  const limn_arg *a = limn_node_args(e->g, r);
  limn_type args[LIMN_MAXARGS];
  LIMN_TRY(emit_operand(e, a[i], o));
  LIMN_TRY(emit_args(e, r, args, e->pool));
  if (o->dtype != dtype) LIMN_TRY(emit_dense(e, o, dtype, r));
  matmul_view(&o->v, left, args[2 + i].i);
  if (matmul_unit(&o->v)) return 0;
  return emit_dense(e, o, dtype, r);
}

/* [batch, M, K] x [K, N] is one product of batch * M rows when x allows. */
static bool matmul_flatten(limn_operand *x, const limn_operand *y,
                           limn_shape *s) {
  limn_view v;
  limn_shape two = {2, {1, 0}};
  int n = x->v.ndim;
  if (s->ndim < 3 || y->v.ndim != 2 || n != s->ndim) return false;
  for (int d = 0; d < n - 1; d++) two.d[0] *= x->v.d[d];
  two.d[1] = x->v.d[n - 1];
  if (!limn_view_reshape(&x->v, &two, &v) || !matmul_unit(&v)) return false;
  x->v = v;
  s->d[1] = s->d[s->ndim - 1];
  s->d[0] = two.d[0];
  s->ndim = 2;
  return true;
}

/* If the product's only use is `product + vector over N`, that is a bias. */
static int matmul_bias(coder *k, limn_ref m, limn_ref first) {
  emitter *e = k->e;
  const limn_node *n = limn_graph_node(e->g, first);
  const limn_arg *a = limn_node_args(e->g, first);
  limn_operand o;
  int64_t width = k->shape.d[k->shape.ndim - 1];
  limn_ref b;
  int at = 0;
  if (n->op != OP_add || !emit_is_tensor(e, a[0]) || !emit_is_tensor(e, a[1]))
    return 0;
  b = emit_canon(e, a[emit_canon(e, a[0]) == m ? 1 : 0]);
  if (emit_canon(e, a[0]) == emit_canon(e, a[1])) return 0;
  if (emit_canon(e, a[0]) != m && emit_canon(e, a[1]) != m) return 0;
  if (e->f->group[b - 1] == k->gi || e->val[b - 1].state != EMIT_MEM) return 0;
  LIMN_TRY(emit_operand(e, limn_aref(b), &o));
  if (o.dtype != emit_type(e, m)->dtype || o.v.ndim < 1) return 0;
  for (int d = 0; d < o.v.ndim - 1; d++)
    if (o.v.d[d] != 1) return 0;
  if (o.v.d[o.v.ndim - 1] != width || (o.v.s[o.v.ndim - 1] != 1 && width > 1))
    return 0;
  o.v.d[0] = width, o.v.s[0] = 1, o.v.ndim = 1;
  k->in[2] = o;
  k->bias = 2;
  at = e->instr[m - 1];
  e->instr[first - 1] = at;
  e->instr_stamp[first - 1] = e->stamp;
  return 0;
}

/* How many members of the group read m, and the last that does. */
static int matmul_users(emitter *e, int32_t gi, limn_ref m, limn_ref *user) {
  int n = 0;
  for (limn_ref r = e->head[gi]; r; r = e->member[r - 1]) {
    const limn_node *nd = limn_graph_node(e->g, r);
    for (int i = 0; i < nd->nargs; i++) {
      limn_arg a = limn_node_args(e->g, r)[i];
      if (emit_is_tensor(e, a) && emit_canon(e, a) == m) n++, *user = r;
    }
  }
  return n;
}

/* A bias is looked for in products of matrices, where it comes as a vector. */
static int product_epilogue(coder *k, emitter *e, limn_ref m, int32_t gi,
                            bool flat, const limn_shape *s) {
  limn_instr load = {LIMN_I_LOAD, emit_type(e, m)->dtype,
                     emit_type(e, m)->dtype, 0, 0, 0, 0};
  limn_ref user = 0;
  int at = 0;
  LIMN_TRY(code_init(k, e, gi));
  k->flat = flat;
  k->shape = *s;
  k->nin = 3; /* x, y and the bias come first */
  LIMN_TRY(code_push(k, load, &at));
  e->instr[m - 1] = at;
  e->instr_stamp[m - 1] = e->stamp;
  if (limn_graph_node(e->g, m)->op == OP_matmul &&
      matmul_users(e, gi, m, &user) == 1)
    LIMN_TRY(matmul_bias(k, m, user));
  return code_members(k, 0);
}

int emit_product(emitter *e, limn_ref r, int32_t gi, int kind,
                 const limn_operand *x, const limn_operand *y,
                 const limn_shape *s, bool flat, limn_step **st) {
  limn_ref root = gi < 0 ? r : e->f->groups[gi].root;
  limn_operand out;
  coder k = {0};
  *st = NULL;
  if (gi >= 0) LIMN_TRY(product_epilogue(&k, e, r, gi, flat, s));
  LIMN_TRY(emit_dest(e, root, &out));
  limn_view_dense(&out.v, s->ndim, s->d);
  if (limn_numel(s->ndim, s->d) == 0) return 0;
  LIMN_TRY(emit_step(e, kind, limn_graph_node(e->g, r)->op,
                     gi < 0 ? 2 : LIMN_MAX(k.nin, 3), 1, root, st));
  emit_set(e, *st, false, 0, x);
  emit_set(e, *st, false, 1, y);
  (*st)->bias = k.bias != 0;
  for (int i = k.bias ? 2 : 3; i < k.nin; i++)
    emit_set(e, *st, false, i, &k.in[i]);
  emit_set(e, *st, true, 0, &out);
  if (gi < 0 || k.n == 1) return 0; /* nothing after the product (and bias) */
  if (e->instr[root - 1] == 0) return 0;
  k.nout = 0;
  LIMN_TRY(code_store(&k, e->instr[root - 1], &out));
  return code_finish(&k, *st);
}

int emit_matmul(emitter *e, limn_ref r, int32_t gi) {
  const limn_type *t = emit_type(e, r);
  limn_operand x, y;
  limn_shape s = t->shape;
  limn_step *st;
  bool flat;
  int nbatch;
  LIMN_TRY(matmul_operand(e, r, 0, t->dtype, true, &x));
  LIMN_TRY(matmul_operand(e, r, 1, t->dtype, false, &y));
  /* The result's shape with the dims that vectors lost. */
  nbatch = LIMN_MAX(x.v.ndim, y.v.ndim) - 2;
  s.d[nbatch] = x.v.d[x.v.ndim - 2];
  s.d[nbatch + 1] = y.v.d[y.v.ndim - 1];
  s.ndim = nbatch + 2;
  flat = matmul_flatten(&x, &y, &s);
  if (flat) nbatch = 0;
  matmul_batch(&x.v, &s, nbatch);
  matmul_batch(&y.v, &s, nbatch);
  return emit_product(e, r, gi, LIMN_STEP_MATMUL, &x, &y, &s, flat, &st);
}
