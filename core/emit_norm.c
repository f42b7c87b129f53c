/* Emission of what normalises: rows over their last dims, and channels. */
#include "emit.h"
#include "pass.h"

static double norm_eps(const limn_type *a) {
  if (a->kind == LIMN_V_NONE) return 1e-5;
  return a->kind == LIMN_V_REAL ? a->f : (double)a->i;
}

/* layer_norm, rms_norm: arguments x weight bias first eps; their gradients: x g
 * weight first eps. */
int emit_norm(emitter *e, limn_ref r, const limn_type *a) {
  const limn_arg *args = limn_node_args(e->g, r);
  const limn_type *t = emit_type(e, r);
  limn_operand in[3], out;
  limn_step *s;
  int op = limn_graph_node(e->g, r)->op;
  bool back = op == OP_layer_norm_back || op == OP_rms_norm_back;
  bool has[3] = {true, a[1].kind != LIMN_V_NONE, a[2].kind != LIMN_V_NONE};
  int dim = a[3].kind == LIMN_V_INT ? emit_dim(&a[3], t->shape.ndim)
                                    : t->shape.ndim - 1;
  int nin = 0;
  int64_t d[2] = {1, 1};
  for (int i = 0; i < t->shape.ndim; i++) d[i >= dim] *= t->shape.d[i];
  for (int i = 0; i < 3; i++) {
    int64_t off;
    bool rows = i == 0 || (back && i == 1);
    if (!has[i]) continue;
    LIMN_TRY(emit_operand(e, args[i], &in[nin]));
    LIMN_TRY(emit_dense(e, &in[nin], t->dtype, r));
    off = in[nin].v.offset;
    limn_view_dense(&in[nin].v, rows ? 2 : 1, rows ? d : d + 1);
    in[nin++].v.offset = off;
  }
  LIMN_TRY(emit_dest(e, r, &out));
  if (limn_numel(t->shape.ndim, t->shape.d) == 0) return 0;
  limn_view_dense(&out.v, 2, d);
  LIMN_TRY(emit_step(e, LIMN_STEP_NORM, op, nin, 1, r, &s));
  s->flag = back ? has[2] : has[1];
  s->bias = !back && has[2];
  s->eps = norm_eps(&a[4]);
  for (int i = 0; i < nin; i++) emit_set(e, s, false, i, &in[i]);
  emit_set(e, s, true, 0, &out);
  return 0;
}

/* Sums over parts of the rows, then over the parts, whose number follows from
 * the shape, so that threads change nothing. Halves add up in float32. */
int emit_norm_sums(emitter *e, limn_ref r, const limn_type *a) {
  const limn_node *n = limn_graph_node(e->g, r);
  const limn_type *t = emit_type(e, r);
  limn_arg xa = limn_node_args(e->g, r)[0];
  const limn_type *xt = emit_type(e, xa.u.ref);
  int acc = t->dtype == LIMN_F64 ? LIMN_F64 : LIMN_F32;
  int64_t len = t->shape.d[1], d[2] = {1, len};
  int dim = a[2].kind == LIMN_V_INT ? emit_dim(&a[2], xt->shape.ndim)
                                    : xt->shape.ndim - 1;
  limn_shape parts = {3, {1, 2, len}};
  limn_operand in[2], part, sum, out;
  limn_step *s;
  LIMN_TRY(emit_dest(e, r, &out));
  if (len == 0) return 0;
  d[0] = limn_numel(dim, xt->shape.d);
  parts.d[0] = LIMN_MAX(LIMN_MIN(d[0] / 64, 16), 1);
  LIMN_TRY(emit_temp(e, acc, &parts, &part));
  for (int i = 0; i < 2; i++) {
    int64_t off;
    LIMN_TRY(emit_operand(e, limn_node_args(e->g, r)[i], &in[i]));
    LIMN_TRY(emit_dense(e, &in[i], t->dtype, r));
    off = in[i].v.offset;
    limn_view_dense(&in[i].v, 2, d);
    in[i].v.offset = off;
  }
  LIMN_TRY(emit_step(e, LIMN_STEP_NORM, n->op, 2, 1, r, &s));
  s->eps = norm_eps(&a[3]);
  for (int i = 0; i < 2; i++) emit_set(e, s, false, i, &in[i]);
  emit_set(e, s, true, 0, &part);
  sum = out;
  if (acc != t->dtype) LIMN_TRY(emit_temp(e, acc, &t->shape, &sum));
  LIMN_TRY(emit_step(e, LIMN_STEP_REDUCE, OP_sum, 1, 1, r, &s));
  s->nkeep = 1;
  part.v.ndim = 2;
  part.v.d[0] = 2 * len, part.v.s[0] = 1;
  part.v.d[1] = parts.d[0], part.v.s[1] = 2 * len;
  emit_set(e, s, false, 0, &part);
  {
    limn_operand flat = sum;
    limn_view_dense(&flat.v, 1, part.v.d);
    flat.v.offset = sum.v.offset;
    emit_set(e, s, true, 0, &flat);
  }
  return acc == t->dtype ? 0 : emit_copy(e, &sum, &out, r);
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
  int64_t d[3] = {xt->shape.d[0], xt->shape.d[1], 1}, off;
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
    off = in[i].v.offset;
    limn_view_dense(&in[i].v, 3, d);
    in[i].v.offset = off;
  }
  if (nin == 2) {
    LIMN_TRY(emit_operand(e, args[2], &in[2]));
    LIMN_TRY(emit_dense(e, &in[2], t->dtype, r));
    off = in[2].v.offset;
    limn_view_dense(&in[2].v, 1, d + 1);
    in[2].v.offset = off;
  }
  LIMN_TRY(emit_dest(e, r, &out));
  if (d[1] == 0) return 0;
  if (nin == 2) nin = 3;
  LIMN_TRY(emit_step(e, LIMN_STEP_BATCH, n->op, nin, 1, r, &s));
  for (int i = 0; i < nin; i++) emit_set(e, s, false, i, &in[i]);
  emit_set(e, s, true, 0, &out);
  return 0;
}
