/* Emission of S rows that have kernels of their own, and of print. */
#include "emit.h"
#include "pass.h"

#include <stdio.h>

/* o, dense and of shape s but for n along one dim (0-based), seen as [outer, n,
 * inner] around it. */
static void ops_three(limn_operand *o, const limn_shape *s, int dim,
                      int64_t n) {
  int64_t outer = 1, inner = 1, d[3];
  for (int i = 0; i < dim; i++) outer *= s->d[i];
  for (int i = dim + 1; i < s->ndim; i++) inner *= s->d[i];
  d[0] = outer, d[1] = n, d[2] = inner;
  emit_reshape(o, 3, d);
}

int emit_dim(const limn_type *a, int ndim) {
  if (a->kind != LIMN_V_INT) return 0;
  return (int)(a->i < 0 ? a->i + ndim : a->i - 1);
}

static const char *ops_what(const limn_type *a) {
  return a->kind == LIMN_V_STR && !strcmp(a->s, "label") ? "label" : "";
}

/* Row ops: softmax, log_softmax, the running ones, and the first two's
 * gradients, whose dim comes after a second operand. */
static int ops_row(emitter *e, limn_ref r, const limn_type *a, int kind) {
  const limn_node *n = limn_graph_node(e->g, r);
  const limn_type *t = emit_type(e, r);
  limn_operand in[2], out;
  limn_step *s;
  int nin = n->op == OP_softmax_back || n->op == OP_log_softmax_back ? 2 : 1;
  int dim = emit_dim(&a[nin], t->shape.ndim);
  int64_t len = t->shape.ndim ? t->shape.d[dim] : 1;
  for (int i = 0; i < nin; i++) {
    LIMN_TRY(emit_operand(e, limn_node_args(e->g, r)[i], &in[i]));
    LIMN_TRY(emit_dense(e, &in[i], t->dtype, r));
    ops_three(&in[i], &t->shape, dim, len);
  }
  LIMN_TRY(emit_dest(e, r, &out));
  if (limn_numel(t->shape.ndim, t->shape.d) == 0) return 0;
  LIMN_TRY(emit_step(e, kind, n->op, nin, 1, r, &s));
  ops_three(&out, &t->shape, dim, len);
  s->flag = (n->op == OP_cumsum || n->op == OP_logcumsumexp) && a[2].i;
  for (int i = 0; i < nin; i++) emit_set(e, s, false, i, &in[i]);
  emit_set(e, s, true, 0, &out);
  return 0;
}

/* argmax, argmin: over one dim, or over all as one row. */
static int ops_arg(emitter *e, limn_ref r, const limn_type *a) {
  const limn_node *n = limn_graph_node(e->g, r);
  limn_arg xa = limn_node_args(e->g, r)[0];
  const limn_type *xt = emit_type(e, xa.u.ref), *t = emit_type(e, r);
  limn_operand x, out;
  limn_step *s;
  bool all = a[1].kind != LIMN_V_INT;
  int dim = all ? 0 : emit_dim(&a[1], xt->shape.ndim);
  int64_t numel = limn_numel(xt->shape.ndim, xt->shape.d);
  limn_shape one = {1, {numel}};
  const limn_shape *xs = all ? &one : &xt->shape;
  int64_t len = xs->ndim ? xs->d[dim] : 1;
  LIMN_TRY(emit_operand(e, xa, &x));
  LIMN_TRY(emit_dense(e, &x, x.dtype, r));
  LIMN_TRY(emit_dest(e, r, &out));
  if (limn_numel(t->shape.ndim, t->shape.d) == 0) return 0;
  LIMN_TRY(emit_step(e, LIMN_STEP_ARG, n->op, 1, 1, r, &s));
  ops_three(&x, xs, dim, len);
  {
    limn_view v = x.v;
    int64_t d[2] = {v.d[0], v.d[2]};
    limn_view_dense(&out.v, 2, d);
  }
  s->base = a[3].i;
  emit_set(e, s, false, 0, &x);
  emit_set(e, s, true, 0, &out);
  return 0;
}

/* argsort: along one dim; the positions have x's shape. */
static int ops_sort(emitter *e, limn_ref r, const limn_type *a) {
  limn_arg xa = limn_node_args(e->g, r)[0];
  const limn_type *t = emit_type(e, r);
  limn_operand x, out;
  limn_step *s;
  int dim = emit_dim(&a[1], t->shape.ndim);
  LIMN_TRY(emit_operand(e, xa, &x));
  LIMN_TRY(emit_dense(e, &x, x.dtype, r));
  LIMN_TRY(emit_dest(e, r, &out));
  if (limn_numel(t->shape.ndim, t->shape.d) == 0) return 0;
  LIMN_TRY(emit_step(e, LIMN_STEP_SORT, OP_argsort, 1, 1, r, &s));
  ops_three(&x, &t->shape, dim, t->shape.d[dim]);
  ops_three(&out, &t->shape, dim, t->shape.d[dim]);
  s->flag = a[2].i;
  s->base = a[3].i;
  emit_set(e, s, false, 0, &x);
  emit_set(e, s, true, 0, &out);
  return 0;
}

/* x with its batch dims as one: [count, rows, columns]. */
static void ops_batch(limn_operand *o) {
  const limn_view *v = &o->v;
  int64_t d[3] = {1, v->d[v->ndim - 2], v->d[v->ndim - 1]}, off = v->offset;
  for (int i = 0; i < v->ndim - 2; i++) d[0] *= v->d[i];
  limn_view_dense(&o->v, 3, d);
  o->v.offset = off;
}

/* A matrix operand, dense, of the result's dtype and batch. */
static int ops_matrix(emitter *e, limn_arg a, limn_ref r, limn_operand *o) {
  const limn_type *t = emit_type(e, r);
  limn_shape s = t->shape;
  limn_view wide;
  LIMN_TRY(emit_operand(e, a, o));
  s.d[s.ndim - 2] = o->v.d[o->v.ndim - 2];
  s.d[s.ndim - 1] = o->v.d[o->v.ndim - 1];
  limn_view_broadcast(&o->v, &s, &wide);
  o->v = wide;
  LIMN_TRY(emit_dense(e, o, t->dtype, r));
  ops_batch(o);
  return 0;
}

static int ops_linalg(emitter *e, limn_ref r, const limn_type *a) {
  const limn_node *n = limn_graph_node(e->g, r);
  limn_operand in[2], out;
  bool two = n->op == OP_solve || n->op == OP_solve_triangular;
  limn_device *dev = e->p->dev;
  limn_step *s;
  if (!dev->ops->supports(dev, n->op, emit_type(e, r)->dtype)) {
    limn_fail(e->c, LIMN_EUNSUPPORTED, "linear algebra runs on the CPU, not on "
              "%s", dev->name);
    return limn_hint(e->c, LIMN_EUNSUPPORTED, "compute it from x:to \"cpu\", "
                     "and move the result back");
  }
  for (int i = 0; i <= two; i++)
    LIMN_TRY(ops_matrix(e, limn_node_args(e->g, r)[i], r, &in[i]));
  LIMN_TRY(emit_dest(e, r, &out));
  if (limn_numel(out.v.ndim, out.v.d) == 0) return 0;
  ops_batch(&out);
  LIMN_TRY(emit_step(e, LIMN_STEP_LINALG, n->op, 1 + two, 1, r, &s));
  s->flag = (n->op == OP_cholesky && a[1].i) ||
            (n->op == OP_solve_triangular && a[2].i);
  LIMN_TRY(emit_site(e, r, "matrix", &s->site));
  for (int i = 0; i <= two; i++) emit_set(e, s, false, i, &in[i]);
  emit_set(e, s, true, 0, &out);
  return 0;
}

/* An index argument: int64, dense. */
static int ops_index(emitter *e, limn_arg a, limn_ref r, limn_operand *o) {
  LIMN_TRY(emit_operand(e, a, o));
  return emit_dense(e, o, LIMN_I64, r);
}

static int ops_select(emitter *e, limn_ref r, const limn_type *a) {
  const limn_arg *args = limn_node_args(e->g, r);
  const limn_type *xt = emit_type(e, args[0].u.ref), *t = emit_type(e, r);
  limn_operand x, index, out;
  limn_step *s;
  int dim = emit_dim(&a[1], xt->shape.ndim);
  int64_t m;
  LIMN_TRY(emit_operand(e, args[0], &x));
  LIMN_TRY(emit_dense(e, &x, x.dtype, r));
  LIMN_TRY(ops_index(e, args[2], r, &index));
  LIMN_TRY(emit_dest(e, r, &out));
  if (limn_numel(t->shape.ndim, t->shape.d) == 0) return 0;
  m = limn_numel(index.v.ndim, index.v.d);
  LIMN_TRY(emit_step(e, LIMN_STEP_SELECT, OP_index_select, 2, 1, r, &s));
  ops_three(&x, &xt->shape, dim, xt->shape.d[dim]);
  ops_three(&out, &xt->shape, dim, m);
  emit_reshape(&index, 1, &m);
  s->base = a[3].i;
  LIMN_TRY(emit_site(e, r, ops_what(&a[4]), &s->site));
  emit_set(e, s, false, 0, &x);
  emit_set(e, s, false, 1, &index);
  emit_set(e, s, true, 0, &out);
  return 0;
}

static int ops_gather(emitter *e, limn_ref r, const limn_type *a) {
  const limn_arg *args = limn_node_args(e->g, r);
  const limn_type *t = emit_type(e, r);
  limn_operand x, index, out;
  limn_step *s;
  LIMN_TRY(emit_operand(e, args[0], &x));
  LIMN_TRY(ops_index(e, args[2], r, &index));
  LIMN_TRY(emit_dest(e, r, &out));
  if (limn_numel(t->shape.ndim, t->shape.d) == 0) return 0;
  LIMN_TRY(emit_step(e, LIMN_STEP_GATHER, OP_gather, 2, 1, r, &s));
  s->dim = (uint8_t)emit_dim(&a[1], t->shape.ndim);
  s->base = a[3].i;
  LIMN_TRY(emit_site(e, r, ops_what(&a[4]), &s->site));
  emit_set(e, s, false, 0, &x);
  emit_set(e, s, false, 1, &index);
  emit_set(e, s, true, 0, &out);
  return 0;
}

/* index_add, scatter_add and scatter: x is copied to the result, then changed
 * there. */
static int ops_add(emitter *e, limn_ref r, const limn_type *a, int kind) {
  const limn_node *n = limn_graph_node(e->g, r);
  const limn_arg *args = limn_node_args(e->g, r);
  const limn_type *t = emit_type(e, r);
  limn_operand index, v, out, target;
  limn_step *s;
  int dim = emit_dim(&a[1], t->shape.ndim);
  LIMN_TRY(ops_index(e, args[2], r, &index));
  LIMN_TRY(emit_operand(e, args[3], &v));
  LIMN_TRY(emit_dense(e, &v, t->dtype, r));
  LIMN_TRY(emit_dest(e, r, &out));
  target = out;
  if (e->val[emit_canon(e, args[0]) - 1].state == EMIT_NUMBER) {
    LIMN_TRY(emit_fill_region(
        e, e->val[emit_canon(e, args[0]) - 1].number, &out, r));
  } else {
    limn_operand x;
    LIMN_TRY(emit_operand(e, args[0], &x));
    LIMN_TRY(emit_copy(e, &x, &out, r));
  }
  if (limn_numel(v.v.ndim, v.v.d) == 0 ||
      limn_numel(t->shape.ndim, t->shape.d) == 0)
    return 0;
  LIMN_TRY(emit_step(e, kind, n->op, 2, 1, r, &s));
  s->dim = (uint8_t)dim;
  s->base = a[4].i;
  LIMN_TRY(emit_site(e, r, "", &s->site));
  if (kind == LIMN_STEP_INDEX_ADD) {
    int64_t m = limn_numel(index.v.ndim, index.v.d);
    ops_three(&target, &t->shape, dim, t->shape.d[dim]);
    ops_three(&v, &t->shape, dim, m);
    emit_reshape(&index, 1, &m);
  }
  emit_set(e, s, false, 0, &index);
  emit_set(e, s, false, 1, &v);
  emit_set(e, s, true, 0, &target);
  return 0;
}

/* Copy tensor or number argument a, broadcast, into the region `to`. */
static int ops_into(emitter *e, limn_arg a, const limn_operand *to,
                    limn_ref r) {
  limn_operand x;
  limn_shape s = {to->v.ndim, {0}};
  const emit_value *v;
  limn_view wide;
  if (!emit_is_tensor(e, a)) return emit_fill_region(e, a, to, r);
  v = &e->val[emit_canon(e, a) - 1];
  if (v->state == EMIT_NUMBER && v->dtype == to->dtype)
    return emit_fill_region(e, v->number, to, r);
  memcpy(s.d, to->v.d, sizeof s.d);
  LIMN_TRY(emit_operand(e, a, &x));
  limn_view_broadcast(&x.v, &s, &wide);
  x.v = wide;
  return emit_copy(e, &x, to, r);
}

/* Whether a was made there. */
static bool ops_there(const emitter *e, limn_arg a, const limn_operand *to) {
  const emit_value *v;
  if (!emit_is_tensor(e, a)) return false;
  v = &e->val[emit_canon(e, a) - 1];
  if (v->state != EMIT_MEM || v->slot != to->slot || v->dtype != to->dtype ||
      v->v.ndim != to->v.ndim || v->v.offset != to->v.offset)
    return false;
  for (int d = 0; d < to->v.ndim; d++)
    if (v->v.d[d] != to->v.d[d] || (to->v.d[d] > 1 && v->v.s[d] != to->v.s[d]))
      return false;
  return true;
}

static int ops_cat(emitter *e, limn_ref r, const limn_type *a) {
  const limn_arg *list = &limn_node_args(e->g, r)[0];
  const limn_type *t = emit_type(e, r);
  limn_operand out, part;
  int dim = emit_dim(&a[1], t->shape.ndim);
  int64_t at = 0;
  LIMN_TRY(emit_home(e, r, &out));
  for (uint32_t i = 0; i < list->n; i++) {
    limn_arg x = e->g->args[list->u.at + i];
    int64_t n = emit_type(e, x.u.ref)->shape.d[dim];
    part = out;
    part.v.d[dim] = n;
    part.v.offset += at * part.v.s[dim];
    at += n;
    if (!ops_there(e, x, &part)) LIMN_TRY(ops_into(e, x, &part, r));
  }
  return 0;
}

static int ops_pad(emitter *e, limn_ref r, const limn_type *a) {
  const limn_arg *args = limn_node_args(e->g, r);
  const limn_type *t = emit_type(e, r), *xt = emit_type(e, args[0].u.ref);
  limn_operand out, part;
  const emit_value *x = &e->val[emit_canon(e, args[0]) - 1];
  if (limn_shape_eq(&t->shape, &xt->shape) && x->state != EMIT_NONE &&
      x->dtype == t->dtype) { /* no margins */
    e->val[r - 1] = *x;
    return 0;
  }
  LIMN_TRY(emit_dest(e, r, &out));
  LIMN_TRY(emit_fill_region(e, args[2], &out, r));
  part = out;
  for (int i = 0; i * 2 < a[1].n; i++) {
    int d = t->shape.ndim - 1 - i;
    part.v.offset += a[1].list[2 * i].i * part.v.s[d];
  }
  for (int d = 0; d < t->shape.ndim; d++) part.v.d[d] = xt->shape.d[d];
  return ops_into(e, args[0], &part, r);
}

/* The part of an update in the memory of its chain; its region is the view that
 * slice would give of it. */
static int ops_update_part(emitter *e, limn_ref r, const limn_operand *out) {
  limn_type a[LIMN_MAXARGS], s[LIMN_MAXARGS];
  limn_operand part = *out;
  limn_arg v = limn_node_args(e->g, r)[1];
  LIMN_TRY(emit_args(e, r, a, e->pool));
  memset(s, 0, sizeof s);
  s[0] = a[0];
  for (int i = 1; i < 5; i++) s[i] = a[i + 1];
  LIMN_TRY(limn_op_get(OP_slice)->view(e->c, s, &out->v, &part.v));
  return ops_there(e, v, &part) ? 0 : ops_into(e, v, &part, r);
}

/* A whole chain, from what it begins with on. */
static int ops_update_chain(emitter *e, limn_ref r, const limn_operand *out) {
  limn_ref x = r, *list;
  limn_arg base;
  int n = 0;
  do {
    base = limn_node_args(e->g, x)[0];
    x = emit_canon(e, base);
    n++;
  } while (e->f->chain[x - 1] == r);
  if (!e->place[r - 1].covered) LIMN_TRY(ops_into(e, base, out, r));
  list = limn_arena_alloc(e->tmp, (size_t)n * sizeof *list);
  if (!list) return LIMN_EMEM;
  for (int i = n; i > 0; i--) {
    list[i - 1] = i == n ? r : emit_canon(e, limn_node_args(e->g, list[i])[0]);
  }
  for (int i = 0; i < n; i++) LIMN_TRY(ops_update_part(e, list[i], out));
  return 0;
}

static int ops_update(emitter *e, limn_ref r) {
  limn_ref last = e->f->chain[r - 1];
  limn_arg x = limn_node_args(e->g, r)[0];
  limn_operand out;
  if (e->f->late[r - 1] && r != last) return 0;
  LIMN_TRY(emit_home(e, last, &out));
  if (e->f->late[r - 1]) return ops_update_chain(e, r, &out);
  if (r != last) emit_known(e, r, &out);
  if (!ops_there(e, x, &out)) LIMN_TRY(ops_into(e, x, &out, r));
  return ops_update_part(e, r, &out);
}

/* Tensors are the step's inputs, in the order of the text's {}. Host values go
 * along as the step's code: known ones as they are, others by their index in
 * the host program. */
static int ops_print(emitter *e, limn_ref r) {
  const limn_arg *list = &limn_node_args(e->g, r)[0];
  limn_operand in[LIMN_STEP_IN];
  limn_type *host = limn_arena_alloc(e->a, (list->n + 1) * sizeof *host);
  limn_step *s;
  int n = 0;
  if (!host) return LIMN_EMEM;
  for (uint32_t i = 0; i < list->n; i++) {
    limn_arg x = e->g->args[list->u.at + i];
    if (x.tag == LIMN_A_REF && e->host_of[x.u.ref - 1] >= 0) {
      host[i].kind = emit_type(e, x.u.ref)->kind;
      host[i].i = e->host_of[x.u.ref - 1];
    } else if (x.tag == LIMN_A_REF && emit_type(e, x.u.ref)->known) {
      host[i] = *emit_type(e, x.u.ref);
    }
    if (!emit_is_tensor(e, x)) continue;
    if (n == LIMN_STEP_IN)
      return limn_fail(e->c, LIMN_EARG, "print shows at most %d tensors",
                       LIMN_STEP_IN);
    LIMN_TRY(emit_operand(e, x, &in[n++]));
  }
  LIMN_TRY(emit_step(e, LIMN_STEP_PRINT, OP_print, n, 0, r, &s));
  for (int i = 0; i < n; i++) emit_set(e, s, false, i, &in[i]);
  s->code = host;
  return 0;
}

int emit_special(emitter *e, limn_ref r) {
  const limn_node *n = limn_graph_node(e->g, r);
  limn_type a[LIMN_MAXARGS];
  if (n->op == OP_print) return ops_print(e, r);
  if (n->kind != LIMN_V_TENSOR) return 0; /* host values are no steps */
  if (n->op == OP_cat) { /* its list may be longer than the pool */
    const limn_arg *dim = &limn_node_args(e->g, r)[1];
    memset(a, 0, sizeof a);
    LIMN_TRY(limn_infer_args(e->I, dim, 1, &a[1], e->pool, EMIT_POOL));
    return ops_cat(e, r, a);
  }
  LIMN_TRY(emit_args(e, r, a, e->pool));
  switch (n->op) {
    case OP_softmax: case OP_log_softmax: case OP_softmax_back:
    case OP_log_softmax_back: return ops_row(e, r, a, LIMN_STEP_ROW);
    case OP_layer_norm: case OP_rms_norm: case OP_layer_norm_back:
    case OP_rms_norm_back: return emit_norm(e, r, a);
    case OP_max_pool2_f32: case OP_max_pool2_f32_back:
      return emit_pool(e, r, a);
    case OP_layer_norm_sums: case OP_rms_norm_sums:
      return emit_norm_sums(e, r, a);
    case OP_batch_norm_stats: case OP_batch_norm_sums:
      return emit_batch(e, r);
    case OP_cumsum: case OP_cumprod: case OP_cummax: case OP_cummin:
    case OP_logcumsumexp: return ops_row(e, r, a, LIMN_STEP_CUM);
    case OP_argmax: case OP_argmin: return ops_arg(e, r, a);
    case OP_index_select: return ops_select(e, r, a);
    case OP_gather: return ops_gather(e, r, a);
    case OP_index_add: return ops_add(e, r, a, LIMN_STEP_INDEX_ADD);
    case OP_argsort: return ops_sort(e, r, a);
    case OP_cholesky: case OP_solve: case OP_solve_triangular:
    case OP_lu_parts: case OP_eigh_parts: case OP_svd_parts: case OP_qr_parts:
      return ops_linalg(e, r, a);
    case OP_scatter:
    case OP_scatter_add: return ops_add(e, r, a, LIMN_STEP_SCATTER_ADD);
    case OP_conv: case OP_conv_transpose: case OP_conv_weights:
      return emit_conv(e, r, -1);
    case OP_pad: return ops_pad(e, r, a);
    case OP_update: return ops_update(e, r);
    default:
      return limn_fail(e->c, LIMN_EUNSUPPORTED, "%s has no kernel on %s",
                       limn_op_get(n->op)->name, e->p->dev->name);
  }
}
