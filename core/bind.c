/* Binding: which memory each slot of a plan stands for in one run.
 *
 * Nothing that others see changes here, so that a run which fails up to its
 * first step has changed nothing. */
#include "planner.h"

static void bind_tensor(limn_slot *s, const limn_tensor *t) {
  s->mem = t->st->mem;
  s->off = t->v.offset ? t->v.offset * limn_dtype_size(t->dtype) : 0;
  s->cell = NULL;
}

/* The cell's value on the plan's device: most often it is there already. */
static int bind_cell(limn_plan *p, limn_slot *s, limn_cell *cell) {
  int at = p->dev->index;
  limn_tensor *t = at < cell->nrep ? cell->rep[at].value : NULL;
  if (!t || cell->voided || cell->rep[at].version != cell->version)
    LIMN_TRY(limn_cell_get(cell, p->dev, &t));
  bind_tensor(s, t);
  s->cell = cell;
  return 0;
}

static int bind_input(limn_plan *p, limn_slot *s, uint32_t i,
                      const limn_run_arg *in) {
  limn_tensor *t = in[i].t;
  if (t->st->dev != p->dev) { /* a 0-dim CPU tensor */
    if (!p->held[i])
      LIMN_TRY(limn_tensor_to(t, p->dev, t->dtype, &p->held[i]));
    t = p->held[i];
  }
  bind_tensor(s, t);
  return 0;
}

/* Expansion may add consts of regions, always the same ones. */
static int bind_const(limn_plan *p, limn_slot *s, uint32_t i) {
  limn_planner *n = p->g->planner;
  limn_graph_const *k = &p->expanded->konst[i];
  LIMN_TRY(limn_grow(p->c, &n->konst, &n->konst_cap, i + 1,
                     sizeof(limn_cell *)));
  if (!n->konst[i])
    LIMN_TRY(limn_cell_new(p->c, LIMN_CELL_BUFFER, k->value, &n->konst[i]));
  return bind_cell(p, s, n->konst[i]);
}

/* Whether nobody else sees this memory, which is all of its storage. */
bool limn_tensor_is_free(const limn_tensor *t) {
  return t->refs == 1 && t->st->refs == 1 && !t->st->borrowed &&
         t->v.offset == 0 && limn_tensor_is_dense(t);
}

/* Memory for a cell's next value: its own when nobody can see it. */
static int bind_write(limn_plan *p, uint32_t at) {
  const limn_slot_info *info = &p->info[at];
  limn_cell *cell = p->expanded->cell[info->index].cell;
  limn_tensor *t = NULL;
  bool own = info->inplace && (p->c->flags.passes & LIMN_PASS_INPLACE);
  if (own && p->dev->index < cell->nrep) {
    limn_replica *r = &cell->rep[p->dev->index];
    t = r->value && r->version == cell->version ? r->value : NULL;
    if (t && !limn_tensor_is_free(t)) t = NULL;
  }
  if (t) {
    limn_tensor_retain(t);
  } else if (p->spare[at] && limn_tensor_is_free(p->spare[at])) {
    t = p->spare[at];
    p->spare[at] = NULL;
  } else {
    LIMN_TRY(limn_tensor_new(p->c, p->dev, info->dtype, &info->shape, &t));
  }
  p->written[at] = t;
  bind_tensor(&p->slot[at], t);
  return 0;
}

/* Memory of the host may be known by several storages: there bytes count. */
static bool bind_overlaps(const limn_tensor *a, const limn_tensor *b) {
  const limn_tensor *t[2] = {a, b};
  uintptr_t lo[2], hi[2];
  if (!a || !b) return false;
  if (a->st == b->st) return true;
  if (!a->st->dev->ops->host || !b->st->dev->ops->host) return false;
  for (int i = 0; i < 2; i++) {
    int64_t first, last, size = limn_dtype_size(t[i]->dtype);
    limn_view_extent(&t[i]->v, &first, &last);
    lo[i] = (uintptr_t)t[i]->st->mem + (uintptr_t)(first * size);
    hi[i] = (uintptr_t)t[i]->st->mem + (uintptr_t)((last + 1) * size);
  }
  return lo[0] < hi[1] && lo[1] < hi[0];
}

int limn_plan_check_into(limn_plan *p, const limn_run_arg *in,
                         limn_tensor *const *into, uint32_t k) {
  const limn_out_info *o = &p->out[k];
  limn_tensor *t = into[k];
  char text[160], want[96];
  if (t->st->dev != p->dev || t->dtype != o->dtype ||
      t->v.ndim != o->v.ndim || memcmp(t->v.d, o->v.d, 8 * (size_t)o->v.ndim))
    return limn_fail(
        p->c, LIMN_ESHAPE,
        "output %u is %s, but the run gives %s %s on %s", k + 1,
        limn_tensor_text(text, sizeof text, t), limn_dtype_name(o->dtype),
        limn_shape_text(want, sizeof want, o->v.ndim, o->v.d), p->dev->name);
  if (!limn_tensor_is_dense(t))
    return limn_fail(p->c, LIMN_ESHAPE, "output %u is not dense", k + 1);
  for (uint32_t i = 0; i < p->g->nin; i++)
    if (!p->g->in[i].number && bind_overlaps(t, in[i].t))
      return limn_hint(p->c,
                       limn_fail(p->c, LIMN_EARG, "output %u shares memory "
                                 "with argument %s", k + 1,
                                 limn_graph_text(p->g, p->g->in[i].name)),
                       "give it memory of its own: limn.zeros_like(...)");
  for (uint32_t i = 0; i < k; i++)
    if (bind_overlaps(t, into[i]))
      return limn_fail(p->c, LIMN_EARG, "outputs %u and %u share memory",
                       i + 1, k + 1);
  return 0;
}

static int bind_out(limn_plan *p, uint32_t at, limn_tensor *const *into) {
  const limn_slot_info *info = &p->info[at];
  limn_tensor *t = into ? into[info->index] : NULL;
  if (t) limn_tensor_retain(t);
  else
    LIMN_TRY(limn_tensor_new(p->c, p->dev, info->dtype, &info->shape, &t));
  p->written[at] = t;
  bind_tensor(&p->slot[at], t);
  return 0;
}

int limn_plan_scratch(limn_plan *p) {
  limn_device *d = p->dev;
  void *mem;
  if (p->scratch <= d->scratch_size) return 0;
  LIMN_TRY(limn_dev_alloc(d, p->scratch, &mem));
  if (d->scratch) limn_dev_free(d, d->scratch, d->scratch_size);
  d->scratch = mem;
  d->scratch_size = p->scratch;
  return 0;
}

static int bind_slot(limn_plan *p, uint32_t at, const limn_run_arg *in,
                     limn_tensor *const *into) {
  uint32_t index = p->info[at].index;
  limn_slot *s = &p->slot[at];
  limn_graph_cell *gc;
  switch (p->info[at].kind) {
    case LIMN_SLOT_INPUT: return bind_input(p, s, index, in);
    case LIMN_SLOT_CONST: return bind_const(p, s, index);
    case LIMN_SLOT_OUT: return bind_out(p, at, into);
    case LIMN_SLOT_WRITE: return bind_write(p, at);
    default:
      gc = &p->expanded->cell[index];
      LIMN_TRY(bind_cell(p, s, gc->cell));
      /* A derived copy of what this run changes would not be used again. */
      if (gc->write.tag != LIMN_A_NONE) s->cell = NULL;
      return 0;
  }
}

/* Temporaries stay bound until the scratch moves; what allocates comes first,
 * as running short of memory may run other graphs, which may move it. */
int limn_plan_bind(limn_plan *p, const limn_run_arg *in,
                   limn_tensor *const *into, void *scratch) {
  for (uint32_t k = 0; k < p->nbind; k++)
    LIMN_TRY(bind_slot(p, p->bind[k], in, into));
  if (p->scratch == 0) return 0;
  if (!scratch) {
    LIMN_TRY(limn_plan_scratch(p));
    scratch = p->dev->scratch;
  }
  if (scratch == p->bound_scratch) return 0;
  for (uint32_t i = 0; i < p->nslot; i++)
    if (p->info[i].kind == LIMN_SLOT_TEMP)
      p->slot[i] = (limn_slot){scratch, p->info[i].off, NULL, NULL};
  p->bound_scratch = scratch;
  return 0;
}

/* Arguments are held while they are in use, so that a cell's value among them
 * is not written in place. */
void limn_plan_hold(limn_plan *p, const limn_run_arg *in) {
  for (uint32_t i = 0; i < p->g->nin; i++)
    if (!p->g->in[i].number) limn_tensor_retain(in[i].t);
}

/* Number operands that depend on the run's number inputs. */
int limn_plan_numbers(limn_plan *p, const limn_run_arg *in) {
  if (p->nhost == 0) return 0;
  for (uint32_t i = 0; i < p->nhost; i++) {
    limn_host_step *h = &p->host[i];
    limn_type *v = &p->host_value[i];
    if (h->op == OP_number) {
      memset(v, 0, sizeof *v);
      v->kind = h->arg[0].kind;
      v->known = true;
      v->f = in[h->input].number;
      v->i = limn_saturate(in[h->input].number);
      continue;
    }
    for (int k = 0; k < h->nargs; k++)
      if (h->from[k] >= 0) h->arg[k] = p->host_value[h->from[k]];
    LIMN_TRY(limn_host_eval(p->c, h->op, h->arg, h->nargs, v));
  }
  for (uint32_t i = 0; i < p->nimm; i++) {
    int32_t from = p->imm_from[i].value;
    const limn_type *v;
    if (from < 0) continue;
    v = &p->host_value[from];
    p->imm[i].f = v->kind == LIMN_V_REAL ? v->f : (double)v->i;
    p->imm[i].i = v->kind == LIMN_V_REAL ? limn_saturate(v->f) : v->i;
  }
  return 0;
}

void limn_plan_unbind(limn_plan *p, const limn_run_arg *in) {
  for (uint32_t k = 0; k < p->nbind; k++) {
    uint32_t i = p->bind[k];
    if (!p->written[i]) continue;
    limn_tensor_release(p->written[i]);
    p->written[i] = NULL;
  }
  for (uint32_t i = 0; i < p->g->nin; i++) {
    if (p->g->in[i].number) continue;
    limn_tensor_release(in[i].t);
    limn_tensor_release(p->held[i]);
    p->held[i] = NULL;
  }
}
