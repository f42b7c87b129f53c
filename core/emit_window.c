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
    LIMN_TRY(emit_operand(e, limn_node_args(e->g, r)[i], &in[i]));
    LIMN_TRY(emit_dense(e, &in[i], t->dtype, r));
    emit_reshape(&in[i], 3, d);
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

/* Operands in the order of the row. */
int emit_conv(emitter *e, limn_ref r, int32_t gi) {
  const limn_node *n = limn_graph_node(e->g, r);
  const limn_type *t = emit_type(e, r);
  limn_type a[LIMN_MAXARGS];
  limn_operand in[2];
  limn_step *s;
  limn_conv *conv = limn_arena_alloc(e->a, sizeof *conv);
  if (!conv) return LIMN_EMEM;
  LIMN_TRY(emit_args(e, r, a, e->pool));
  LIMN_TRY(limn_rule_conv(e->c, n->op, a, conv));
  for (int i = 0; i < 2; i++) {
    LIMN_TRY(emit_operand(e, limn_node_args(e->g, r)[i], &in[i]));
    LIMN_TRY(emit_dense(e, &in[i], t->dtype, r));
  }
  LIMN_TRY(emit_product(e, r, gi, LIMN_STEP_CONV, &in[0], &in[1], &t->shape,
                        false, &s));
  if (s) s->conv = conv;
  return 0;
}
