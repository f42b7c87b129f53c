/* Emission of what moves windows over its operand: pools and convolutions. */
#include "emit.h"
#include "pass.h"

/* max_pool2_f32 and its gradient: four ints come after the tensors. */
int emit_pool(emitter *e, limn_ref r, const limn_type *a) {
  const limn_node *n = limn_graph_node(e->g, r);
  limn_arg xa = limn_node_args(e->g, r)[0];
  const limn_type *t = emit_type(e, r), *xt = emit_type(e, xa.u.ref);
  int nin = n->op == OP_max_pool2_f32_back ? 3 : 1, last = xt->shape.ndim - 1;
  const limn_type *kernel = &a[nin], *stride = kernel + 2;
  const int64_t *y = (nin == 1 ? t : &a[1])->shape.d + last - 1;
  int64_t h = xt->shape.d[last - 1], w = xt->shape.d[last], d[3];
  limn_operand in[3], out;
  limn_view v = {5, {0}, {0}, 0};
  limn_step *s;
  if (t->dtype != LIMN_F32)
    return limn_fail(e->c, LIMN_EUNSUPPORTED, "%s is for float32, not %s",
                     limn_op_get(n->op)->name, limn_dtype_name(t->dtype));
  d[0] = limn_numel(last - 1, xt->shape.d), d[1] = y[0], d[2] = y[1];
  for (int i = 0; i < nin; i++) {
    int64_t off;
    LIMN_TRY(emit_operand(e, limn_node_args(e->g, r)[i], &in[i]));
    LIMN_TRY(emit_dense(e, &in[i], t->dtype, r));
    off = in[i].v.offset;
    limn_view_dense(&in[i].v, 3, d);
    in[i].v.offset = off;
  }
  LIMN_TRY(emit_dest(e, r, &out));
  if (limn_numel(t->shape.ndim, t->shape.d) == 0) return 0;
  LIMN_TRY(emit_step(e, LIMN_STEP_POOL, n->op, nin, 1, r, &s));
  v.offset = in[0].v.offset;
  v.d[0] = d[0], v.s[0] = h * w;
  for (int i = 0; i < 2; i++) {
    int64_t row = i ? 1 : w;
    v.d[1 + i] = d[1 + i], v.s[1 + i] = stride[i].i * row;
    v.d[3 + i] = kernel[i].i, v.s[3 + i] = row;
  }
  in[0].v = v;
  if (nin == 3) d[1] = h, d[2] = w;
  limn_view_dense(&out.v, 3, d);
  for (int i = 0; i < nin; i++) emit_set(e, s, false, i, &in[i]);
  emit_set(e, s, true, 0, &out);
  return 0;
}

/* Operands as emit_special finds them, in the order of the row. */
int emit_conv(emitter *e, limn_ref r, const limn_type *a) {
  const limn_node *n = limn_graph_node(e->g, r);
  const limn_type *t = emit_type(e, r);
  limn_operand in[2], out;
  limn_step *s;
  for (int i = 0; i < 2; i++) {
    LIMN_TRY(emit_operand(e, limn_node_args(e->g, r)[i], &in[i]));
    LIMN_TRY(emit_dense(e, &in[i], t->dtype, r));
  }
  LIMN_TRY(emit_dest(e, r, &out));
  if (limn_numel(t->shape.ndim, t->shape.d) == 0) return 0;
  LIMN_TRY(emit_step(e, LIMN_STEP_CONV, n->op, 2, 1, r, &s));
  s->conv = limn_arena_alloc(e->a, sizeof *s->conv);
  if (!s->conv) return LIMN_EMEM;
  LIMN_TRY(limn_rule_conv(e->c, n->op, a, s->conv));
  for (int i = 0; i < 2; i++) emit_set(e, s, false, i, &in[i]);
  emit_set(e, s, true, 0, &out);
  return 0;
}

/* Chosen by expand_conv where it suits. */
int emit_conv3(emitter *e, limn_ref r) {
  const limn_arg *args = limn_node_args(e->g, r);
  const limn_type *t = emit_type(e, r);
  limn_operand x, w, u, out;
  limn_shape s = {3, {16}};
  limn_step *step;
  LIMN_TRY(emit_operand(e, args[0], &x));
  LIMN_TRY(emit_dense(e, &x, LIMN_F32, r));
  LIMN_TRY(emit_operand(e, args[1], &w));
  LIMN_TRY(emit_dense(e, &w, LIMN_F32, r));
  if (t->dtype != LIMN_F32 || t->shape.ndim != 4 || w.v.d[2] != 3 ||
      w.v.d[3] != 3 || t->shape.d[3] > LIMN_CONV3_WIDEST)
    return limn_fail(e->c, LIMN_EUNSUPPORTED, "conv3 is for windows of 3 x 3 "
                     "in float32; conv is for all");
  s.d[1] = w.v.d[0], s.d[2] = w.v.d[1];
  LIMN_TRY(emit_temp(e, LIMN_F32, &s, &u));
  LIMN_TRY(emit_dest(e, r, &out));
  if (limn_numel(t->shape.ndim, t->shape.d) == 0) return 0;
  LIMN_TRY(emit_step(e, LIMN_STEP_CONV3, OP_conv3, 1, 1, r, &step));
  step->flag = true;
  emit_set(e, step, false, 0, &w);
  emit_set(e, step, true, 0, &u);
  LIMN_TRY(emit_step(e, LIMN_STEP_CONV3, OP_conv3, 2, 1, r, &step));
  emit_set(e, step, false, 0, &x);
  emit_set(e, step, false, 1, &u);
  emit_set(e, step, true, 0, &out);
  return 0;
}
