/* Emission of what normalises: rows over their last dims, and channels. */
#include "emit.h"
#include "pass.h"
#include "simplify.h"

static double norm_eps(const limn_type *a) {
  if (a->kind == LIMN_V_NONE) return 1e-5;
  return a->kind == LIMN_V_REAL ? a->f : (double)a->i;
}

static bool norm_is_back(int op) {
  return op == OP_layer_norm_back || op == OP_rms_norm_back;
}

static int norm_twin_op(int op) {
  switch (op) {
    case OP_layer_norm_back: return OP_layer_norm_sums;
    case OP_layer_norm_sums: return OP_layer_norm_back;
    case OP_rms_norm_back: return OP_rms_norm_sums;
    default: return OP_rms_norm_back;
  }
}

/* The gradient of x that belongs to sums r for the gradients of a weight and a
 * bias, or the other way round; 0: none, or it is there already. One step then
 * computes both. */
static limn_ref norm_twin(emitter *e, limn_ref r) {
  int op = limn_graph_node(e->g, r)->op, twin = norm_twin_op(op);
  const limn_arg *a = limn_node_args(e->g, r), *b;
  const limn_arg *opts = a + (norm_is_back(op) ? 3 : 2);
  for (limn_ref k = 1; k <= e->g->nnode; k++) {
    if (limn_graph_node(e->g, k)->op != twin || !e->f->needed[k - 1] ||
        e->f->canon[k - 1] != k || e->val[k - 1].state != EMIT_NONE)
      continue;
    b = limn_node_args(e->g, k);
    if (emit_canon(e, a[0]) == emit_canon(e, b[0]) &&
        emit_canon(e, a[1]) == emit_canon(e, b[1]) &&
        simp_same(e->g, opts[0], b[norm_is_back(twin) ? 3 : 2]) &&
        simp_same(e->g, opts[1], b[norm_is_back(twin) ? 4 : 3]) &&
        emit_type(e, r)->dtype == emit_type(e, k)->dtype)
      return k;
  }
  return 0;
}

/* Dense operand `x` of step-to-be r, as the rows d, or one of them. */
static int norm_operand(emitter *e, limn_ref r, limn_arg x, bool rows,
                        const int64_t d[2], limn_operand *in) {
  LIMN_TRY(emit_operand(e, x, in));
  LIMN_TRY(emit_dense(e, in, emit_type(e, r)->dtype, r));
  emit_reshape(in, rows ? 2 : 1, rows ? d : d + 1);
  return 0;
}

/* Where parts of the rows add up for sums r; how many follows from the shape,
 * so that threads change nothing: enough for all threads, and each short enough
 * to share out. Halves add up in float32. */
static int norm_parts(emitter *e, limn_ref r, int64_t rows,
                      limn_operand *part) {
  const limn_type *t = emit_type(e, r);
  limn_shape s = {3, {1, 2, t->shape.d[1]}};
  s.d[0] = LIMN_MAX(16, rows * t->shape.d[1] / (1 << 17));
  s.d[0] = LIMN_MAX(LIMN_MIN(rows / 64, s.d[0]), 1);
  return emit_temp(e, t->dtype == LIMN_F64 ? LIMN_F64 : LIMN_F32, &s, part);
}

/* The sum over the parts: the value of r. */
static int norm_join(emitter *e, limn_ref r, const limn_operand *part) {
  const limn_type *t = emit_type(e, r);
  limn_operand in = *part, sum, flat, out;
  int64_t len = 2 * t->shape.d[1];
  limn_step *s;
  LIMN_TRY(emit_dest(e, r, &out));
  sum = out;
  if (in.dtype != t->dtype)
    LIMN_TRY(emit_temp(e, in.dtype, &t->shape, &sum));
  LIMN_TRY(emit_step(e, LIMN_STEP_REDUCE, OP_sum, 1, 1, r, &s));
  s->nkeep = 1;
  in.v.ndim = 2;
  in.v.d[0] = len, in.v.s[0] = 1;
  in.v.d[1] = part->v.d[0], in.v.s[1] = len;
  emit_set(e, s, false, 0, &in);
  flat = sum;
  emit_reshape(&flat, 1, &len);
  emit_set(e, s, true, 0, &flat);
  return in.dtype == t->dtype ? 0 : emit_copy(e, &sum, &out, r);
}

/* layer_norm, rms_norm: arguments x weight bias first eps; their gradients: x g
 * weight first eps. */
int emit_norm(emitter *e, limn_ref r, const limn_type *a) {
  const limn_arg *args = limn_node_args(e->g, r);
  const limn_type *t = emit_type(e, r);
  limn_operand in[3], out, part;
  limn_step *s;
  int op = limn_graph_node(e->g, r)->op;
  bool back = norm_is_back(op);
  bool has[3] = {true, a[1].kind != LIMN_V_NONE, a[2].kind != LIMN_V_NONE};
  int dim = a[3].kind == LIMN_V_INT ? emit_dim(&a[3], t->shape.ndim)
                                    : t->shape.ndim - 1;
  limn_ref sums;
  int nin = 0;
  int64_t d[2] = {1, 1};
  if (e->val[r - 1].state != EMIT_NONE) return 0; /* with its sums */
  for (int i = 0; i < t->shape.ndim; i++) d[i >= dim] *= t->shape.d[i];
  for (int i = 0; i < 3; i++)
    if (has[i])
      LIMN_TRY(norm_operand(e, r, args[i], i == 0 || (back && i == 1), d,
                            &in[nin++]));
  LIMN_TRY(emit_dest(e, r, &out));
  if (limn_numel(t->shape.ndim, t->shape.d) == 0) return 0;
  limn_view_dense(&out.v, 2, d);
  sums = back ? norm_twin(e, r) : 0;
  if (sums) LIMN_TRY(norm_parts(e, sums, d[0], &part));
  LIMN_TRY(emit_step(e, LIMN_STEP_NORM, op, nin, sums ? 2 : 1, r, &s));
  s->flag = back ? has[2] : has[1];
  s->bias = !back && has[2];
  s->eps = norm_eps(&a[4]);
  for (int i = 0; i < nin; i++) emit_set(e, s, false, i, &in[i]);
  emit_set(e, s, true, 0, &out);
  if (!sums) return 0;
  emit_set(e, s, true, 1, &part);
  return norm_join(e, sums, &part);
}

/* The gradient of x, whose step gives these sums too, if its weight is there
 * yet. */
static int norm_before(emitter *e, limn_ref r) {
  limn_ref back = norm_twin(e, r), w;
  limn_type a[LIMN_MAXARGS];
  if (!back) return 0;
  if (emit_is_tensor(e, limn_node_args(e->g, back)[2])) {
    w = emit_canon(e, limn_node_args(e->g, back)[2]);
    if (e->val[w - 1].state == EMIT_NONE) return 0;
  }
  LIMN_TRY(emit_args(e, back, a, e->pool));
  return emit_norm(e, back, a);
}

/* The gradients of a weight and a bias: arguments x g first eps. */
int emit_norm_sums(emitter *e, limn_ref r, const limn_type *a) {
  const limn_node *n = limn_graph_node(e->g, r);
  limn_arg xa = limn_node_args(e->g, r)[0];
  const limn_type *xt = emit_type(e, xa.u.ref);
  int64_t d[2] = {1, emit_type(e, r)->shape.d[1]};
  int dim = a[2].kind == LIMN_V_INT ? emit_dim(&a[2], xt->shape.ndim)
                                    : xt->shape.ndim - 1;
  double eps = norm_eps(&a[3]);
  limn_operand in[2], part;
  limn_step *s;
  if (d[1] == 0) return emit_dest(e, r, &part);
  LIMN_TRY(norm_before(e, r));
  if (e->val[r - 1].state != EMIT_NONE) return 0;
  d[0] = limn_numel(dim, xt->shape.d);
  for (int i = 0; i < 2; i++)
    LIMN_TRY(norm_operand(e, r, limn_node_args(e->g, r)[i], true, d, &in[i]));
  LIMN_TRY(norm_parts(e, r, d[0], &part));
  LIMN_TRY(emit_step(e, LIMN_STEP_NORM, n->op, 2, 1, r, &s));
  s->eps = eps;
  for (int i = 0; i < 2; i++) emit_set(e, s, false, i, &in[i]);
  emit_set(e, s, true, 0, &part);
  return norm_join(e, r, &part);
}

/* The view of x in memory where channels come last, as [rows, channels]. */
static bool batch_last(const limn_view *v) {
  limn_view p = *v;
  for (int i = 1; i + 1 < v->ndim; i++)
    p.d[i] = v->d[i + 1], p.s[i] = v->s[i + 1];
  p.d[v->ndim - 1] = v->d[1], p.s[v->ndim - 1] = v->s[1];
  return limn_view_is_dense(&p);
}

/* batch_norm_stats: x; batch_norm_sums: x, g and the channels' mean. They are
 * read in their own dtype where that is a float and one, and with channels last
 * where they lie so. */
int emit_batch(emitter *e, limn_ref r) {
  const limn_node *n = limn_graph_node(e->g, r);
  const limn_arg *args = limn_node_args(e->g, r);
  const limn_type *t = emit_type(e, r), *xt = emit_type(e, args[0].u.ref);
  int nin = n->op == OP_batch_norm_sums ? 2 : 1, dtype = xt->dtype;
  int64_t d[3] = {xt->shape.d[0], xt->shape.d[1], 1};
  limn_operand in[3], out;
  limn_step *s;
  bool last = true;
  for (int i = 0; i < nin; i++) {
    LIMN_TRY(emit_operand(e, args[i], &in[i]));
    last = last && batch_last(&in[i].v);
    if (in[i].dtype != dtype) dtype = t->dtype;
  }
  if (t->dtype == LIMN_F64 || !limn_dtype_float(dtype)) dtype = t->dtype;
  last = last && dtype == in[0].dtype;
  for (int i = 2; i < xt->shape.ndim; i++) d[last ? 0 : 2] *= xt->shape.d[i];
  for (int i = 0; i < nin; i++) {
    if (!last) LIMN_TRY(emit_dense(e, &in[i], dtype, r));
    emit_reshape(&in[i], 3, d);
  }
  if (nin == 2) {
    LIMN_TRY(emit_operand(e, args[2], &in[2]));
    LIMN_TRY(emit_dense(e, &in[2], t->dtype, r));
    emit_reshape(&in[2], 1, d + 1);
  }
  LIMN_TRY(emit_dest(e, r, &out));
  if (d[1] == 0) return 0;
  if (nin == 2) nin = 3;
  LIMN_TRY(emit_step(e, LIMN_STEP_BATCH, n->op, nin, 1, r, &s));
  for (int i = 0; i < nin; i++) emit_set(e, s, false, i, &in[i]);
  emit_set(e, s, true, 0, &out);
  return 0;
}
