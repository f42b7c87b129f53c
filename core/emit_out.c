/* What leaves a run: its results, the new values of cells, and which of these
 * may appear in the old one's memory. */
#include "emit.h"

static bool emit_slot_is(const emitter *e, const limn_operand *o, int kind,
                         uint32_t index) {
  const limn_slot_info *i = &e->p->info[o->slot];
  return i->kind == kind && i->index == index;
}

static bool emit_whole(const emitter *e, const limn_operand *o) {
  const limn_slot_info *i = &e->p->info[o->slot];
  return limn_view_is_dense(&o->v) && o->v.offset == 0 &&
         limn_numel(o->v.ndim, o->v.d) == limn_numel(i->shape.ndim, i->shape.d);
}

int emit_result(emitter *e, uint32_t k, limn_operand *out) {
  const limn_type *t = emit_type(e, emit_canon(e, e->g->out[k]));
  out->dtype = t->dtype;
  LIMN_TRY(emit_slot(e, LIMN_SLOT_OUT, k, t->dtype, &t->shape, &out->slot));
  limn_view_dense(&out->v, t->shape.ndim, t->shape.d);
  return 0;
}

static int emit_out_tensor(emitter *e, uint32_t k, limn_out_info *out) {
  limn_ref r = emit_canon(e, e->g->out[k]);
  const limn_type *t = emit_type(e, r);
  limn_operand o, to;
  int kind;
  out->kind = LIMN_V_TENSOR;
  if (e->given[k]) {
    out->slot = (uint16_t)(e->given[k] - 1);
    out->dtype = t->dtype;
    out->whole = true;
    limn_view_dense(&out->v, t->shape.ndim, t->shape.d);
    return 0;
  }
  LIMN_TRY(emit_memory(e, r, &o));
  kind = e->p->info[o.slot].kind;
  if (kind == LIMN_SLOT_TEMP ||
      (e->p->inner && !(emit_slot_is(e, &o, LIMN_SLOT_OUT, k) &&
                        emit_whole(e, &o))) ||
      ((kind == LIMN_SLOT_WRITE || kind == LIMN_SLOT_OUT) &&
       !emit_whole(e, &o))) {
    /* Scratch never leaves a run; a part does not keep the whole alive; the
     * results of an inner plan go where its step says. */
    LIMN_TRY(emit_result(e, k, &to));
    LIMN_TRY(emit_copy(e, &o, &to, r));
    o = to;
  }
  out->whole = emit_slot_is(e, &o, LIMN_SLOT_OUT, k) &&
               limn_shape_eq(&e->p->info[o.slot].shape, &t->shape);
  out->slot = o.slot;
  out->dtype = o.dtype;
  out->v = o.v;
  return 0;
}

static int emit_results(emitter *e) {
  limn_graph *g = e->g;
  for (uint32_t k = 0; k < g->nout; k++) {
    limn_out_info *out = &e->p->out[k];
    limn_arg a = g->out[k];
    out->value = -1;
    if (emit_is_tensor(e, a)) {
      LIMN_TRY(emit_out_tensor(e, k, out));
      continue;
    }
    if (a.tag == LIMN_A_REF) {
      out->k = *emit_type(e, a.u.ref);
      out->value = out->k.known ? -1 : e->host_of[a.u.ref - 1];
      out->kind = out->k.kind;
      continue;
    }
    LIMN_TRY(limn_infer_args(e->I, &a, 1, &out->k, NULL, 0));
    out->kind = out->k.kind;
  }
  return 0;
}

static int emit_write(emitter *e, uint32_t ci) {
  limn_graph_cell *gc = &e->g->cell[ci];
  limn_write_info *w = &e->p->write[e->p->nwrite];
  limn_ref r = emit_canon(e, gc->write);
  const limn_type *t = emit_type(e, r);
  limn_operand o, to;
  int kind;
  if (gc->ref && e->f->canon[gc->ref - 1] == r) return 0; /* no change */
  if (!limn_shape_eq(&t->shape, &gc->cell->shape)) {
    char was[200], now[200];
    const limn_shape *s = &gc->cell->shape;
    return limn_fail(
        e->c, LIMN_ESHAPE, "%s: @%s has shape %s and cannot be assigned %s",
        limn_graph_text(e->g, gc->line),
        gc->cell->name ? gc->cell->name : "cell",
        limn_shape_text(was, sizeof was, s->ndim, s->d),
        limn_shape_text(now, sizeof now, t->shape.ndim, t->shape.d));
  }
  LIMN_TRY(emit_memory(e, r, &o));
  kind = e->p->info[o.slot].kind;
  if (!emit_slot_is(e, &o, LIMN_SLOT_WRITE, ci) &&
      (kind == LIMN_SLOT_TEMP || kind == LIMN_SLOT_WRITE ||
       !emit_whole(e, &o) || o.dtype != gc->cell->dtype)) {
    to.dtype = (uint8_t)gc->cell->dtype;
    LIMN_TRY(emit_slot(e, LIMN_SLOT_WRITE, ci, to.dtype, &t->shape, &to.slot));
    limn_view_dense(&to.v, t->shape.ndim, t->shape.d);
    LIMN_TRY(emit_copy(e, &o, &to, r));
    o = to;
  }
  w->cell = ci;
  w->slot = o.slot;
  w->v = o.v;
  w->dtype = o.dtype;
  e->p->nwrite++;
  return 0;
}

/* Whether a step reads of slot `from` only the element that it writes of slot
 * `to` at the same time. */
static bool emit_elementwise(const limn_step *s, uint32_t from, uint32_t to) {
  const limn_view *w = NULL;
  if (s->kind != LIMN_STEP_GROUP) return false;
  for (int k = 0; k < s->nout; k++)
    if (s->out[k].slot == to) w = &s->out[k].v;
  if (!w || !limn_view_is_dense(w)) return false;
  for (int k = 0; k < s->nin; k++) {
    const limn_view *v = &s->in[k].v;
    if (s->in[k].slot == from &&
        (!limn_view_is_dense(v) || v->offset != w->offset))
      return false;
  }
  return true;
}

/* A cell may be written in its own memory when nothing reads the old value
 * after, or while, the new one appears: readers come before the writing step,
 * or are that step itself and read the same element that it writes. */
static void emit_inplace(emitter *e, uint32_t at) {
  limn_plan *p = e->p;
  limn_slot_info *w = &p->info[at];
  for (uint32_t i = 0; i < p->nslot; i++) {
    limn_slot_info *s = &p->info[i];
    if (s->kind != LIMN_SLOT_CELL || s->index != w->index) continue;
    for (uint32_t k = 0; k < e->g->nout; k++)
      if (p->out[k].kind == LIMN_V_TENSOR && p->out[k].slot == i) return;
    for (uint32_t k = 0; k < p->nwrite; k++)
      if (p->write[k].slot == i) return;
    if (s->last > w->first) return;
    if (s->last >= 0 && s->last == w->first &&
        !emit_elementwise(&p->step[w->first], i, at))
      return;
  }
  w->inplace = true;
}

int emit_outs(emitter *e) {
  LIMN_TRY(emit_results(e));
  for (uint32_t i = 0; i < e->g->ncell; i++)
    if (e->g->cell[i].write.tag == LIMN_A_REF) LIMN_TRY(emit_write(e, i));
  for (uint32_t i = 0; i < e->p->nslot; i++)
    if (e->p->info[i].kind == LIMN_SLOT_WRITE) emit_inplace(e, i);
  return 0;
}
