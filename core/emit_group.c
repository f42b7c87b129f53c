/* Emission of groups: the straight-line code of fused elementwise nodes, as a
 * step of its own, before a reduction, or after a matrix product. */
#include "emit.h"

/* The group being emitted. */
typedef struct {
  emitter *e;
  limn_fuse_group *G;
  int32_t gi;
  limn_shape shape; /* of the iteration; a product's may be flattened */
  bool flat;        /* [batch, M, N] seen as [batch * M, N] */
  bool permute;     /* reduction: kept dims come first */
  int order[LIMN_MAXDIM];
  limn_instr *code;
  int n, cap;
  limn_operand in[LIMN_STEP_IN];
  limn_ref in_of[LIMN_STEP_IN];
  int16_t in_instr[LIMN_STEP_IN];
  int nin;
  limn_operand out[LIMN_STEP_OUT];
  int nout;
  int bias; /* index in `in` of a product's bias: 2, or 0 for none */
} coder;

/* -- Instructions -- */

static int code_push(coder *k, limn_instr i, int *at) {
  if (k->n == k->cap)
    return limn_fail(k->e->c, LIMN_ESIZE, "a fused group grew too large");
  *at = k->n;
  k->code[k->n++] = i;
  return 0;
}

static int code_cast(coder *k, int x, int dtype, int *at) {
  limn_instr i = {LIMN_I_CAST, (uint8_t)dtype,
                  (uint8_t)limn_dtype_compute(dtype), (uint16_t)x, 0, 0, 0};
  if (k->code[x].dtype == dtype) {
    *at = x;
    return 0;
  }
  return code_push(k, i, at);
}

static int code_imm(coder *k, limn_arg a, int dtype, int *at) {
  limn_instr i = {LIMN_I_IMM, (uint8_t)dtype,
                  (uint8_t)limn_dtype_compute(dtype), 0, 0, 0, 0};
  LIMN_TRY(emit_imm(k->e, a, &i.arg));
  for (int j = 0; j < k->n; j++)
    if (!memcmp(&k->code[j], &i, sizeof i)) {
      *at = j;
      return 0;
    }
  return code_push(k, i, at);
}

/* The operand's view under the iteration shape, in the iteration's order. */
static int code_spread(coder *k, limn_operand *o, limn_ref r) {
  limn_view wide, v;
  limn_view_broadcast(&o->v, &k->G->shape, &wide);
  v = wide;
  for (int d = 0; k->permute && d < wide.ndim; d++) {
    v.d[d] = wide.d[k->order[d]];
    v.s[d] = wide.s[k->order[d]];
  }
  if (k->flat && !limn_view_reshape(&wide, &k->shape, &v)) {
    limn_operand dense = *o;
    dense.v = wide;
    LIMN_TRY(emit_dense(k->e, &dense, dense.dtype, r));
    *o = dense;
    wide = dense.v;
    limn_view_reshape(&wide, &k->shape, &v);
  }
  o->v = v;
  return 0;
}

/* An outside tensor: a number, or a load that is made once. */
static int code_load(coder *k, limn_ref r, int *at) {
  emit_value *v = &k->e->val[r - 1];
  limn_instr i = {LIMN_I_LOAD, v->dtype, (uint8_t)limn_dtype_compute(v->dtype),
                  0, 0, 0, (uint16_t)k->nin};
  limn_arg a = limn_aref(r);
  limn_operand *o = &k->in[k->nin];
  if (v->state == EMIT_NUMBER) return code_imm(k, v->number, v->dtype, at);
  for (int j = 0; j < k->nin; j++)
    if (k->in_of[j] == r) {
      *at = k->in_instr[j];
      return 0;
    }
  if (k->nin == LIMN_STEP_IN)
    return limn_fail(k->e->c, LIMN_ESIZE, "a fused group has too many inputs");
  LIMN_TRY(emit_operand(k->e, a, o));
  i.dtype = o->dtype;
  LIMN_TRY(code_spread(k, o, r));
  LIMN_TRY(code_push(k, i, at));
  k->in_of[k->nin] = r;
  k->in_instr[k->nin++] = (int16_t)*at;
  return 0;
}

/* Argument a as a value of that dtype. A number keeps the computing type's
 * precision and range: uint8 x < 300 holds, and x + 300 wraps in the end. */
static int code_node(coder *k, limn_ref r, int *at);
static int code_operand(coder *k, limn_arg a, int dtype, int *at) {
  limn_ref r;
  int x = 0;
  if (!emit_is_tensor(k->e, a))
    return code_imm(k, a, limn_dtype_compute(dtype), at);
  r = emit_canon(k->e, a);
  if (k->e->instr_stamp[r - 1] == k->e->stamp) {
    x = k->e->instr[r - 1];
  } else if (k->e->f->again[r - 1]) {
    LIMN_TRY(code_node(k, r, &x));
    k->e->instr[r - 1] = x;
    k->e->instr_stamp[r - 1] = k->e->stamp;
  } else {
    LIMN_TRY(code_load(k, r, &x));
  }
  return code_cast(k, x, dtype, at);
}

/* A number beyond int32 wraps in sums, differences and products, as results
 * of them do; elsewhere the nearest int32 stands for it, which bounds and
 * compares alike. */
static bool code_wraps(const coder *k, int op, limn_arg a, int dtype) {
  return (op == OP_add || op == OP_sub || op == OP_mul) &&
         limn_dtype_compute(dtype) == LIMN_I32 && !emit_is_tensor(k->e, a);
}

static int code_wrapped(coder *k, limn_arg a, int *at) {
  int x = 0;
  LIMN_TRY(code_imm(k, a, LIMN_I64, &x));
  return code_cast(k, x, LIMN_I32, at);
}

/* -- One node -- */

/* clamp without a bound: the extreme of the dtype. */
static int code_bound(coder *k, bool low, int dtype, int *at) {
  limn_instr i = {LIMN_I_IMM, (uint8_t)limn_dtype_compute(dtype),
                  (uint8_t)limn_dtype_compute(dtype), 0, 0, 0, 0};
  double inf = low ? -1e308 * 10 : 1e308 * 10;
  int64_t top = limn_dtype_compute(dtype) == LIMN_I32 ? INT32_MAX : INT64_MAX;
  LIMN_TRY(emit_imm_const(k->e, inf, low ? -top - 1 : top, &i.arg));
  return code_push(k, i, at);
}

/* The dtypes an E row works in: of its result and of its operands. Bools add
 * and compare as int32. */
static int code_dtypes(coder *k, limn_ref r, int rule, int *result,
                       int *operand, bool *back) {
  limn_type a[LIMN_MAXARGS];
  LIMN_TRY(emit_args(k->e, r, a, k->e->pool));
  if (limn_promote(a, limn_graph_node(k->e->g, r)->nargs, rule, result,
                   operand) < 0)
    return limn_fail(k->e->c, LIMN_EARG, "no operand is a tensor or a number");
  *back = false;
  if (*operand == LIMN_BOOL && rule != LIMN_RULE_LOG &&
      rule != LIMN_RULE_SEL && rule != LIMN_RULE_BIT) {
    *operand = LIMN_I32;
    *back = *result == LIMN_BOOL && rule == LIMN_RULE_NUM;
  }
  return 0;
}

static int code_elementwise(coder *k, limn_ref r, int *at) {
  const limn_node *n = limn_graph_node(k->e->g, r);
  const limn_op_row *row = limn_op_get(n->op);
  const limn_arg *args = limn_node_args(k->e->g, r);
  int result, operand, x[3] = {0, 0, 0};
  bool back;
  limn_instr i = {n->op, 0, 0, 0, 0, 0, 0};
  LIMN_TRY(code_dtypes(k, r, row->rule, &result, &operand, &back));
  for (int j = 0; j < n->nargs && j < 3; j++) {
    int want = row->rule == LIMN_RULE_SEL && j == 0 ? LIMN_BOOL : operand;
    if (args[j].tag == LIMN_A_NONE)
      LIMN_TRY(code_bound(k, j == 1, operand, &x[j]));
    else if (code_wraps(k, n->op, args[j], want))
      LIMN_TRY(code_wrapped(k, args[j], &x[j]));
    else
      LIMN_TRY(code_operand(k, args[j], want, &x[j]));
  }
  i.dtype = (uint8_t)(back ? LIMN_I32 : result);
  i.ctype = (uint8_t)limn_dtype_compute(operand);
  i.a = (uint16_t)x[0], i.b = (uint16_t)x[1], i.c = (uint16_t)x[2];
  LIMN_TRY(code_push(k, i, at));
  return back ? code_cast(k, *at, LIMN_BOOL, at) : 0;
}

static int code_generator(coder *k, limn_ref r, int *at) {
  const limn_node *n = limn_graph_node(k->e->g, r);
  const limn_arg *args = limn_node_args(k->e->g, r);
  int dtype = emit_type(k->e, r)->dtype, a = 0, b = 0;
  limn_instr i = {n->op, (uint8_t)dtype, (uint8_t)limn_dtype_compute(dtype),
                  0, 0, 0, 0};
  if (n->op == OP_arange) {
    LIMN_TRY(code_imm(k, args[0], dtype, &a));
    LIMN_TRY(code_imm(k, args[2], dtype, &b));
  } else {
    if (n->op == OP_randint) {
      /* The bounds are whole numbers whatever the result's dtype. */
      LIMN_TRY(code_imm(k, args[0], LIMN_I64, &a));
      LIMN_TRY(code_imm(k, args[1], LIMN_I64, &b));
    }
    if (args[n->nargs - 1].u.i > UINT16_MAX)
      return limn_fail(k->e->c, LIMN_ESIZE, "the graph draws too often");
    i.arg = (uint16_t)args[n->nargs - 1].u.i;
  }
  i.a = (uint16_t)a, i.b = (uint16_t)b;
  return code_push(k, i, at);
}

static int code_node(coder *k, limn_ref r, int *at) {
  const limn_node *n = limn_graph_node(k->e->g, r);
  if (n->op == OP_convert || n->op == OP_widen || n->op == OP_unwiden ||
      n->op == OP_fold_like)
    return code_operand(k, limn_node_args(k->e->g, r)[0],
                        emit_type(k->e, r)->dtype, at);
  if (limn_op_get(n->op)->row == LIMN_ROW_G) return code_generator(k, r, at);
  return code_elementwise(k, r, at);
}

static int code_store(coder *k, int x, const limn_operand *o) {
  limn_instr i = {LIMN_I_STORE, o->dtype, 0, (uint16_t)x, 0, 0,
                  (uint16_t)k->nout};
  int at = 0;
  k->out[k->nout++] = *o;
  return code_push(k, i, &at);
}

/* All members but a reducing root. A product's bias was put aside already. */
static int code_members(coder *k, limn_ref skip) {
  emitter *e = k->e;
  int x = 0;
  for (limn_ref r = e->head[k->gi]; r; r = e->member[r - 1]) {
    if (r == skip || e->instr_stamp[r - 1] == e->stamp) continue;
    LIMN_TRY(code_node(k, r, &x));
    e->instr[r - 1] = x;
    e->instr_stamp[r - 1] = e->stamp;
  }
  return 0;
}

static int code_init(coder *k, emitter *e, int32_t gi) {
  memset(k, 0, sizeof *k);
  k->e = e;
  k->gi = gi;
  k->G = &e->f->groups[gi];
  k->shape = k->G->shape;
  k->cap = (int)k->G->nmember * 8 + 2 * LIMN_STEP_IN + 4 * LIMN_STEP_OUT + 16;
  k->code = limn_arena_alloc(e->a, (size_t)k->cap * sizeof *k->code);
  e->stamp++;
  return k->code ? 0 : LIMN_EMEM;
}

static int code_finish(coder *k, limn_step *s) {
  s->group = limn_arena_alloc(k->e->a, sizeof *s->group);
  if (!s->group) return LIMN_EMEM;
  s->group->code = k->code;
  s->group->ncode = k->n;
  return 0;
}

/* Stores come last, so that memory shared by an input and an output is read
 * before it is written. */
static int code_stores(coder *k) {
  emitter *e = k->e;
  for (limn_ref r = e->head[k->gi]; r; r = e->member[r - 1]) {
    limn_operand o;
    if (!e->f->stored[r - 1]) continue;
    LIMN_TRY(emit_dest(e, r, &o));
    LIMN_TRY(code_store(k, e->instr[r - 1], &o));
  }
  return 0;
}

/* The instruction whose value is result r of an inner plan, if the group has
 * it or can just pass it on; else -1. */
static int code_result(coder *k, limn_ref r, int *x) {
  emitter *e = k->e;
  const limn_type *t = emit_type(e, r);
  *x = -1;
  if (e->f->group[r - 1] == k->gi) {
    if (e->f->stored[r - 1]) *x = e->instr[r - 1];
  } else if (limn_graph_node(e->g, r)->op == OP_input &&
             e->val[r - 1].state == EMIT_MEM && /* not further down */
             k->nin < LIMN_STEP_IN && limn_shape_eq(&t->shape, &k->shape)) {
    return code_operand(k, limn_aref(r), t->dtype, x);
  }
  return 0;
}

/* Results of an inner plan have memory of their own, each of them: a value that
 * is several of them is stored several times, instead of being copied later,
 * and so is an input that is one. */
static int code_results(coder *k) {
  emitter *e = k->e;
  for (uint32_t i = 0; i < e->g->nout && k->nout < LIMN_STEP_OUT; i++) {
    limn_operand o;
    limn_ref r;
    int x;
    if (e->given[i] || !emit_is_tensor(e, e->g->out[i])) continue;
    r = emit_canon(e, e->g->out[i]);
    if (e->f->group[r - 1] >= 0 && e->out_of[r - 1] == (int32_t)i) continue;
    LIMN_TRY(code_result(k, r, &x));
    if (x < 0) continue;
    LIMN_TRY(emit_result(e, i, &o));
    LIMN_TRY(code_store(k, x, &o));
    e->given[i] = (uint16_t)(o.slot + 1);
  }
  return 0;
}

static int emit_plain_group(emitter *e, int32_t gi) {
  coder k;
  limn_step *s;
  limn_ref root = e->f->groups[gi].root;
  LIMN_TRY(code_init(&k, e, gi));
  LIMN_TRY(code_members(&k, 0));
  LIMN_TRY(code_stores(&k));
  if (e->p->inner) LIMN_TRY(code_results(&k));
  if (limn_numel(k.shape.ndim, k.shape.d) == 0) return 0;
  LIMN_TRY(emit_step(e, LIMN_STEP_GROUP, 0, k.nin, k.nout, root, &s));
  LIMN_TRY(code_finish(&k, s));
  for (int i = 0; i < k.nin; i++) emit_set(e, s, false, i, &k.in[i]);
  for (int i = 0; i < k.nout; i++) emit_set(e, s, true, i, &k.out[i]);
  return 0;
}

/* -- Reductions -- */

/* The iteration shape comes with the inputs, so a value made of numbers alone
 * gets an input that nothing loads. */
static int reduce_shape_input(coder *k) {
  limn_shape one = {0, {0}};
  LIMN_TRY(emit_temp(k->e, LIMN_F32, &one, &k->in[0]));
  k->nin = 1;
  return code_spread(k, &k->in[0], 0);
}

/* Which dims of the operand the root reduces. */
static int reduce_mask(emitter *e, limn_ref root, bool *mask) {
  const limn_node *n = limn_graph_node(e->g, root);
  const limn_type *x = emit_type(e, limn_node_args(e->g, root)[0].u.ref);
  const limn_type *t = emit_type(e, root);
  limn_type a[LIMN_MAXARGS];
  if (n->op != OP_fold_like) {
    LIMN_TRY(emit_args(e, root, a, e->pool));
    return limn_dims_mask(e->c, &a[1], x->shape.ndim, mask);
  }
  for (int d = 0; d < x->shape.ndim; d++) {
    int lead = x->shape.ndim - t->shape.ndim;
    mask[d] = d < lead || (t->shape.d[d - lead] == 1 && x->shape.d[d] != 1);
  }
  return 0;
}

static int emit_reduction(emitter *e, int32_t gi) {
  coder k;
  limn_step *s;
  limn_operand out, sum;
  limn_ref root = e->f->groups[gi].root;
  limn_arg x = limn_node_args(e->g, root)[0];
  limn_ref xr = emit_canon(e, x);
  const limn_node *n = limn_graph_node(e->g, root);
  const limn_type *xt = emit_type(e, xr), *t = emit_type(e, root);
  bool fused = e->f->group[xr - 1] == gi || e->f->again[xr - 1];
  bool mask[LIMN_MAXDIM];
  int nkeep = 0, nd = xt->shape.ndim, at = 0;
  int acc = n->op == OP_fold_like ? xt->dtype : t->dtype;
  LIMN_TRY(code_init(&k, e, gi));
  LIMN_TRY(reduce_mask(e, root, mask));
  k.permute = true;
  for (int d = 0; d < nd; d++)
    if (!mask[d]) k.order[nkeep++] = d;
  for (int d = 0, j = nkeep; d < nd; d++)
    if (mask[d]) k.order[j++] = d;
  if (fused) {
    LIMN_TRY(code_members(&k, root));
    LIMN_TRY(code_operand(&k, x, xt->dtype, &at));
    if (k.nin == 0) LIMN_TRY(reduce_shape_input(&k));
  } else {
    LIMN_TRY(emit_operand(e, x, &k.in[0]));
    LIMN_TRY(code_spread(&k, &k.in[0], xr));
    k.nin = 1;
  }
  if (acc == t->dtype) {
    LIMN_TRY(emit_dest(e, root, &out));
    sum = out;
  } else {
    LIMN_TRY(emit_temp(e, acc, &t->shape, &sum));
  }
  if (limn_numel(t->shape.ndim, t->shape.d) > 0) {
    limn_instr store = {LIMN_I_STORE, 0, 0, 0, 0, 0, 0};
    LIMN_TRY(emit_step(e, LIMN_STEP_REDUCE,
                       n->op == OP_fold_like ? OP_sum : n->op, k.nin, 1, root,
                       &s));
    s->nkeep = (uint8_t)nkeep;
    if (fused) {
      int pos;
      store.a = (uint16_t)at;
      store.dtype = xt->dtype;
      LIMN_TRY(code_push(&k, store, &pos));
      LIMN_TRY(code_finish(&k, s));
    }
    for (int i = 0; i < k.nin; i++) emit_set(e, s, false, i, &k.in[i]);
    /* The result lies dense with the kept dims alone. */
    limn_operand o = sum;
    limn_shape kept = {nkeep, {0}};
    for (int d = 0; d < nkeep; d++) kept.d[d] = xt->shape.d[k.order[d]];
    limn_view_dense(&o.v, kept.ndim, kept.d);
    emit_set(e, s, true, 0, &o);
  }
  if (acc == t->dtype) return 0;
  LIMN_TRY(emit_dest(e, root, &out));
  return emit_copy(e, &sum, &out, root);
}

int emit_group(emitter *e, int32_t gi) {
  limn_fuse_group *G = &e->f->groups[gi];
  if (G->reduce) return emit_reduction(e, gi);
  if (G->product && limn_graph_node(e->g, G->product)->op == OP_matmul)
    return emit_matmul(e, G->product, gi);
  if (G->product) return emit_conv(e, G->product, gi);
  return emit_plain_group(e, gi);
}

/* -- Matrix products -- */

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
