/* Emission of groups: the straight-line code of fused elementwise nodes, as a
 * step of its own or before a reduction; emit_product.c has what comes after a
 * product. */
#include "emit_code.h"

/* -- Instructions -- */

int code_push(coder *k, limn_instr i, int *at) {
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

int code_store(coder *k, int x, const limn_operand *o) {
  limn_instr i = {LIMN_I_STORE, o->dtype, 0, (uint16_t)x, 0, 0,
                  (uint16_t)k->nout};
  int at = 0;
  k->out[k->nout++] = *o;
  return code_push(k, i, &at);
}

int code_members(coder *k, limn_ref skip) {
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

int code_init(coder *k, emitter *e, int32_t gi) {
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

int code_finish(coder *k, limn_step *s) {
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

/* Kept dims come first in the order of the iteration; how many they are. */
static int reduce_order(coder *k, const bool *mask, int nd) {
  int nkeep = 0;
  k->permute = true;
  for (int d = 0; d < nd; d++)
    if (!mask[d]) k->order[nkeep++] = d;
  for (int d = 0, j = nkeep; d < nd; d++)
    if (mask[d]) k->order[j++] = d;
  return nkeep;
}

/* The operand: as memory, or else *at is the instruction that gives it. */
static int reduce_input(coder *k, limn_ref root, int *at) {
  emitter *e = k->e;
  limn_arg x = limn_node_args(e->g, root)[0];
  limn_ref xr = emit_canon(e, x);
  *at = -1;
  if (e->f->group[xr - 1] != k->gi && !e->f->again[xr - 1]) {
    LIMN_TRY(emit_operand(e, x, &k->in[0]));
    k->nin = 1;
    return code_spread(k, &k->in[0], xr);
  }
  LIMN_TRY(code_members(k, root));
  LIMN_TRY(code_operand(k, x, emit_type(e, xr)->dtype, at));
  return k->nin == 0 ? reduce_shape_input(k) : 0;
}

/* The step, whose result lies dense with the kept dims alone. at: the operand's
 * instruction, where it is no memory, else -1. */
static int reduce_step(coder *k, limn_ref root, int nkeep, int at,
                       const limn_operand *sum) {
  emitter *e = k->e;
  int op = limn_graph_node(e->g, root)->op;
  limn_ref x = emit_canon(e, limn_node_args(e->g, root)[0]);
  const limn_type *xt = emit_type(e, x);
  limn_operand out = *sum;
  int64_t kept[LIMN_MAXDIM];
  limn_step *s;
  LIMN_TRY(emit_step(e, LIMN_STEP_REDUCE, op == OP_fold_like ? OP_sum : op,
                     k->nin, 1, root, &s));
  s->nkeep = (uint8_t)nkeep;
  if (at >= 0) {
    limn_instr store = {LIMN_I_STORE, xt->dtype, 0, (uint16_t)at, 0, 0, 0};
    LIMN_TRY(code_push(k, store, &at));
    LIMN_TRY(code_finish(k, s));
  }
  for (int i = 0; i < k->nin; i++) emit_set(e, s, false, i, &k->in[i]);
  for (int d = 0; d < nkeep; d++) kept[d] = xt->shape.d[k->order[d]];
  limn_view_dense(&out.v, nkeep, kept);
  emit_set(e, s, true, 0, &out);
  return 0;
}

static int emit_reduction(emitter *e, int32_t gi) {
  coder k;
  limn_operand out, sum;
  limn_ref root = e->f->groups[gi].root;
  const limn_node *n = limn_graph_node(e->g, root);
  const limn_type *t = emit_type(e, root);
  const limn_type *xt =
      emit_type(e, emit_canon(e, limn_node_args(e->g, root)[0]));
  bool mask[LIMN_MAXDIM];
  int nkeep, at, acc = n->op == OP_fold_like ? xt->dtype : t->dtype;
  LIMN_TRY(code_init(&k, e, gi));
  LIMN_TRY(reduce_mask(e, root, mask));
  nkeep = reduce_order(&k, mask, xt->shape.ndim);
  LIMN_TRY(reduce_input(&k, root, &at));
  if (acc == t->dtype)
    LIMN_TRY(emit_dest(e, root, &sum));
  else
    LIMN_TRY(emit_temp(e, acc, &t->shape, &sum));
  if (limn_numel(t->shape.ndim, t->shape.d) > 0)
    LIMN_TRY(reduce_step(&k, root, nkeep, at, &sum));
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
