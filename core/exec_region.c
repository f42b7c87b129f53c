/* Running control flow: which inner plan, how often, and on what memory.
 *
 * An inner plan has slots of its own. Those that stay are bound once, when the
 * step starts; rows, and values that a loop carries, at every turn. */
#include "planner.h"

#define REGION_PACKS 8 /* turns from which packing a factor once pays */

typedef struct {
  limn_plan *p; /* the outer plan */
  const limn_step *s;
  limn_region_plan *r;
  const limn_bind *b;
} region_run;

/* -- Memory -- */

static void region_operand(const region_run *k, const limn_operand *o,
                           limn_slot *out) {
  *out = k->p->slot[o->slot];
  if (o->v.offset == 0) return;
  out->off += o->v.offset * limn_dtype_size(o->dtype);
  out->cell = NULL;
  out->loop = NULL;
}

/* A factor of a product in every turn is packed in the first of them, if there
 * are enough for that to pay. */
static void region_loop(const region_run *k, limn_inner *in, uint32_t i) {
  limn_slot *s = &in->p->slot[in->slot[i].slot];
  if (s->loop || k->r->steps < REGION_PACKS) return;
  in->loop[i].version++;
  s->loop = &in->loop[i];
}

/* Temporaries stay bound until the outer scratch moves. */
static void region_scratch(const region_run *k, limn_inner *in) {
  const limn_plan *q = in->p;
  const limn_slot *base;
  if (k->r->scratch < 0) return;
  base = &k->p->slot[k->r->scratch];
  if (in->scratch == base->mem && in->scratch_at == base->off) return;
  for (uint32_t i = 0; i < q->nslot; i++)
    if (q->info[i].kind == LIMN_SLOT_TEMP)
      q->slot[i] =
          (limn_slot){base->mem, base->off + q->info[i].off, NULL, NULL};
  in->scratch = base->mem;
  in->scratch_at = base->off;
}

/* What does not change from turn to turn. */
static int region_fixed(const region_run *k, limn_inner *in) {
  limn_plan *q = in->p;
  for (uint32_t i = 0; i < in->nfixed; i++) {
    const limn_inner_slot *x = &in->slot[i];
    const limn_operand *o = x->kind == LIMN_INNER_IN    ? &k->s->in[x->at]
                            : x->kind == LIMN_INNER_OUT ? &k->s->out[x->at]
                                                        : &k->r->test;
    region_operand(k, o, &q->slot[x->slot]);
    if (x->kind == LIMN_INNER_IN) region_loop(k, in, i);
  }
  region_scratch(k, in);
  if (q->nhost == 0) return 0;
  for (uint32_t i = 0; i < q->g->nin; i++) {
    const limn_type *v;
    if (in->number[i] < 0) continue;
    v = &k->p->host_value[in->number[i]];
    in->arg[i].number = v->kind == LIMN_V_REAL ? v->f : (double)v->i;
  }
  return limn_plan_numbers(q, in->arg);
}

/* Where carried value i lies after turn `turn`; before the first (-1) it is
 * where the loop starts. */
static const limn_operand *region_carried(const region_run *k, uint32_t i,
                                          int64_t turn, bool odd) {
  if (turn < 0) return &k->s->in[k->r->first + i];
  return odd ? &k->r->spare[i] : &k->s->out[i];
}

/* Turn number `turn`, at row t. odd: whether it writes to the spare memory. */
static void region_turn(const region_run *k, limn_inner *in, int64_t turn,
                        int64_t t, bool odd) {
  for (uint32_t i = in->nfixed; i < in->nslot; i++) {
    const limn_inner_slot *x = &in->slot[i];
    limn_slot *to = &in->p->slot[x->slot];
    switch (x->kind) {
      case LIMN_INNER_ROW: region_operand(k, &k->s->in[x->at], to); break;
      case LIMN_INNER_STACK: region_operand(k, &k->s->out[x->at], to); break;
      case LIMN_INNER_CARRY:
        region_operand(k, region_carried(k, x->at, turn - 1, !odd), to);
        break;
      default: region_operand(k, region_carried(k, x->at, turn, odd), to);
    }
    if (x->stride == 0) continue;
    to->off += t * x->stride;
    to->cell = NULL;
    to->loop = NULL;
  }
}

/* -- Steps -- */

/* The inner plan at step t. */
static int region_steps(const region_run *k, const limn_inner *in, int64_t t) {
  limn_plan *q = in->p;
  limn_bind b = *k->b;
  limn_turn turn = {b.turn, t};
  bool started;
  if (q->random) {
    const limn_draw *d = &k->b->draw[k->r->draw];
    limn_plan_draws(q, limn_random_key(d->seed, (uint64_t)t, d->draw), 0);
  }
  b.slot = q->slot;
  b.imm = q->imm;
  b.draw = q->draw;
  if (k->s->kind != LIMN_STEP_COND) b.turn = &turn;
  return limn_plan_steps(q, &b, &started);
}

/* One bool, waited for on an accelerator. */
static int region_read(const region_run *k, const limn_operand *o, bool *out) {
  limn_device *d = k->p->dev;
  uint8_t yes = 0;
  limn_slot at;
  region_operand(k, o, &at);
  if (d->ops->host)
    yes = ((const uint8_t *)at.mem)[at.off];
  else
    LIMN_TRY(d->ops->download(d, at.mem, (size_t)at.off, &yes, 1));
  *out = yes != 0;
  return 0;
}

static int region_cond(const region_run *k) {
  limn_region_plan *r = k->r;
  limn_inner *in;
  bool yes;
  if (r->pred >= 0) yes = k->p->host_value[r->pred].i != 0;
  else
    LIMN_TRY(region_read(k, &k->s->in[0], &yes));
  in = &r->in[yes ? 0 : 1];
  LIMN_TRY(region_fixed(k, in));
  return region_steps(k, in, 0);
}

/* The last turn writes to the results. */
static int region_scan(const region_run *k) {
  limn_region_plan *r = k->r;
  limn_inner *in = &r->in[0];
  LIMN_TRY(region_fixed(k, in));
  for (int64_t i = 0; i < r->steps; i++) {
    int64_t t = r->reverse ? r->steps - 1 - i : i;
    region_turn(k, in, i, t, (r->steps - 1 - i) & 1);
    LIMN_TRY(region_steps(k, in, t));
  }
  return 0;
}

/* How often is not known, so that the last turn may have written to the spare
 * memory, or there was none. */
static int region_while(const region_run *k) {
  limn_region_plan *r = k->r;
  int64_t i;
  bool yes;
  for (int n = 0; n < 2; n++) LIMN_TRY(region_fixed(k, &r->in[n]));
  for (i = 0;; i++) {
    region_turn(k, &r->in[0], i, 0, i & 1);
    LIMN_TRY(region_steps(k, &r->in[0], i));
    LIMN_TRY(region_read(k, &r->test, &yes));
    if (!yes) break;
    region_turn(k, &r->in[1], i, 0, i & 1);
    LIMN_TRY(region_steps(k, &r->in[1], i));
  }
  if (i & 1) return 0;
  for (uint32_t n = 0; n < r->nfix[i != 0]; n++)
    LIMN_TRY(limn_plan_step(k->p, &r->fix[i != 0][n], k->b));
  return 0;
}

int limn_plan_region(limn_plan *p, const limn_step *s, const limn_bind *b) {
  region_run k = {p, s, s->code, b};
  switch (s->kind) {
    case LIMN_STEP_COND: return region_cond(&k);
    case LIMN_STEP_SCAN: return region_scan(&k);
    default: return region_while(&k);
  }
}
