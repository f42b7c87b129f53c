/* Emission of control flow: inner plans for the regions of a node, and how the
 * slots of these meet the operands and results of its step. */
#include "emit.h"

/* What a region is called with, one by one. */
typedef struct {
  bool tensor;    /* one that is read */
  int32_t host;   /* number: host value of the plan, or -1: its type has it */
  limn_type type; /* of the region's input: of a row, for what is gone over */
  limn_view view;
  limn_operand o; /* tensor: the operand */
  int32_t at;     /* which input of the step it is, -1: no plan reads it */
} region_input;

typedef struct {
  emitter *e;
  limn_ref r;
  const limn_node *n;
  const limn_arg *a;
  limn_region_plan *plan;
  region_input *in;
  uint32_t nin, ncarry, nrow;
  limn_operand *out;  /* per result */
  uint32_t nout;
  limn_operand pred;
} region_emit;

/* -- Operands -- */

static bool region_row(const region_emit *k, uint32_t i) {
  return i >= k->ncarry && i < k->ncarry + k->nrow;
}

static int region_tensor(region_emit *k, uint32_t i, limn_arg a) {
  emitter *e = k->e;
  region_input *x = &k->in[i];
  limn_shape *s = &x->type.shape;
  x->type = *emit_type(e, a.u.ref);
  x->tensor = limn_region_reads(e->g, k->r, i);
  limn_view_dense(&x->o.v, s->ndim, s->d);
  if (x->tensor) LIMN_TRY(emit_operand(e, a, &x->o));
  if (i < k->ncarry) LIMN_TRY(emit_dense(e, &x->o, x->o.dtype, k->r));
  x->view = x->o.v;
  x->view.offset = 0; /* a run binds the first element's address */
  if (!region_row(k, i)) return 0;
  for (int d = 1; d < s->ndim; d++) {
    s->d[d - 1] = s->d[d];
    x->view.d[d - 1] = x->o.v.d[d];
    x->view.s[d - 1] = x->o.v.s[d];
  }
  s->ndim--;
  x->view.ndim--;
  return 0;
}

static int region_add_input(region_emit *k, uint32_t i, limn_arg a) {
  emitter *e = k->e;
  region_input *x = &k->in[i];
  x->host = x->at = -1;
  if (emit_is_tensor(e, a)) return region_tensor(k, i, a);
  LIMN_TRY(limn_infer_args(e->I, &a, 1, &x->type, NULL, 0));
  if (a.tag == LIMN_A_REF && !x->type.known) x->host = e->host_of[a.u.ref - 1];
  return 0;
}

/* The node's lists of operands, one after another. */
static int region_inputs(region_emit *k) {
  emitter *e = k->e;
  uint32_t at = 0;
  bool loop = k->n->op != OP_cond;
  for (int i = 0; i < k->n->nargs; i++)
    if (k->a[i].tag == LIMN_A_LIST) k->nin += k->a[i].n;
  k->ncarry = loop ? k->a[0].n : 0;
  k->nrow = k->n->op == OP_scan ? k->a[1].n : 0;
  k->in = limn_arena_alloc(e->tmp, (k->nin + 1) * sizeof *k->in);
  if (!k->in) return LIMN_EMEM;
  for (int i = 0; i < k->n->nargs; i++)
    for (uint32_t j = 0; k->a[i].tag == LIMN_A_LIST && j < k->a[i].n; j++)
      LIMN_TRY(region_add_input(k, at++, e->g->args[k->a[i].u.at + j]));
  return 0;
}

/* -- Results -- */

static bool region_is_pick(const region_emit *k, limn_ref r, uint32_t i) {
  const limn_arg *a = limn_node_args(k->e->g, r);
  return limn_graph_node(k->e->g, r)->op == OP_pick && a[0].u.ref == k->r &&
         a[1].u.i == (int64_t)i + 1 && k->e->f->needed[r - 1];
}

/* Memory for result i: that of whoever picks it, or scratch. Others that pick
 * it too see the same. */
static int region_result(region_emit *k, uint32_t i) {
  emitter *e = k->e;
  const limn_type *t = &emit_type(e, k->r)->list[i];
  limn_operand *o = &k->out[i];
  limn_shape s = t->shape;
  bool found = false;
  for (limn_ref r = k->r + 1; r <= e->g->nnode; r++) {
    if (!region_is_pick(k, r, i)) continue;
    if (!found) LIMN_TRY(emit_dest(e, r, o));
    else emit_known(e, r, o);
    found = true;
  }
  if (found) return 0;
  if (i >= k->ncarry && k->n->op == OP_scan) s.d[0] = 1; /* one row for all */
  LIMN_TRY(emit_temp(e, t->dtype, &s, o));
  if (i >= k->ncarry && k->n->op == OP_scan) o->v.s[0] = 0;
  return 0;
}

static int region_results(region_emit *k) {
  k->nout = (uint32_t)emit_type(k->e, k->r)->n;
  k->out = limn_arena_alloc(k->e->tmp, (k->nout + 1) * sizeof *k->out);
  if (!k->out) return LIMN_EMEM;
  for (uint32_t i = 0; i < k->nout; i++) LIMN_TRY(region_result(k, i));
  return 0;
}

/* -- Inner plans -- */

static int region_plan_new(region_emit *k) {
  limn_plan *p = k->e->p;
  limn_region_plan *r = limn_arena_alloc(k->e->a, sizeof *r);
  if (!r) return LIMN_EMEM;
  r->next = p->regions;
  p->regions = r; /* from here on the plan frees what is in it */
  r->pred = r->scratch = -1;
  r->draw = (uint32_t)k->a[k->n->nargs - 1].u.i;
  k->plan = r;
  return 0;
}

static int region_inner(region_emit *k, int i, limn_arg region) {
  emitter *e = k->e;
  limn_inner *in = &k->plan->in[i];
  limn_graph *g = limn_graph_region(e->g, region);
  limn_type *t = limn_arena_alloc(e->tmp, (k->nin + 1) * sizeof *t);
  limn_view *v = limn_arena_alloc(e->tmp, (k->nin + 1) * sizeof *v);
  in->arg = limn_arena_alloc(e->a, (k->nin + 1) * sizeof *in->arg);
  in->number = limn_arena_alloc(e->a, (k->nin + 1) * sizeof *in->number);
  if (!t || !v || !in->arg || !in->number) return LIMN_EMEM;
  for (uint32_t j = 0; j < k->nin; j++) {
    t[j] = k->in[j].type;
    v[j] = k->in[j].view;
    in->number[j] = k->in[j].host;
  }
  k->plan->n = i + 1;
  return limn_plan_inner(e->p, g, t, v, &in->p);
}

/* Where slot x of inner plan i lies. */
static void region_slot(const region_emit *k, int i, uint32_t slot,
                        limn_inner_slot *x) {
  const limn_slot_info *info = &k->plan->in[i].p->info[slot];
  uint32_t at = info->index;
  const limn_operand *o;
  bool loop = k->n->op != OP_cond;
  x->slot = (uint16_t)slot;
  x->at = (uint16_t)at;
  if (info->kind == LIMN_SLOT_INPUT) {
    x->kind = at < k->ncarry     ? LIMN_INNER_CARRY
              : region_row(k, at) ? LIMN_INNER_ROW
                                  : LIMN_INNER_IN;
    o = &k->in[at].o;
    if (at >= k->ncarry) x->at = (uint16_t)k->in[at].at;
  } else {
    x->kind = !loop                              ? LIMN_INNER_OUT
              : k->n->op == OP_while && i == 0 ? LIMN_INNER_TEST
              : at < k->ncarry                   ? LIMN_INNER_NEXT
                                                 : LIMN_INNER_STACK;
    o = x->kind == LIMN_INNER_TEST ? &k->plan->test : &k->out[at];
  }
  if (x->kind == LIMN_INNER_ROW || x->kind == LIMN_INNER_STACK)
    x->stride = o->v.s[0] * limn_dtype_size(o->dtype);
}

static int region_slots(region_emit *k, int i) {
  limn_inner *in = &k->plan->in[i];
  const limn_plan *q = in->p;
  limn_inner_slot x;
  in->slot = limn_arena_alloc(k->e->a, (q->nslot + 1) * sizeof *in->slot);
  if (!in->slot) return LIMN_EMEM;
  for (int pass = 0; pass < 2; pass++) {
    for (uint32_t j = 0; j < q->nslot; j++) {
      if (q->info[j].kind == LIMN_SLOT_TEMP) continue;
      memset(&x, 0, sizeof x);
      if (q->info[j].kind == LIMN_SLOT_INPUT &&
          k->in[q->info[j].index].at < 0)
        return limn_fail(k->e->c, LIMN_EFORMAT, "a region reads input %u",
                         q->info[j].index + 1);
      region_slot(k, i, j, &x);
      if ((x.kind >= LIMN_INNER_FIXED) == (pass == 1))
        in->slot[in->nslot++] = x;
    }
    if (pass == 0) in->nfixed = in->nslot;
  }
  in->loop = limn_arena_alloc(k->e->a, (in->nfixed + 1) * sizeof *in->loop);
  return in->loop ? 0 : LIMN_EMEM;
}

/* Tensors that no inner plan reads are no inputs of the step. */
static uint32_t region_count(region_emit *k, uint32_t at) {
  for (int i = 0; i < k->plan->n; i++) {
    const limn_plan *q = k->plan->in[i].p;
    for (uint32_t j = 0; j < q->nslot; j++)
      if (q->info[j].kind == LIMN_SLOT_INPUT &&
          k->in[q->info[j].index].tensor)
        k->in[q->info[j].index].at = 0;
  }
  for (uint32_t i = 0; i < k->nin; i++) {
    if (!k->in[i].tensor) continue;
    /* Where a while starts is its result, if there is no turn. */
    if (i < k->ncarry || k->in[i].at == 0) k->in[i].at = (int32_t)at++;
  }
  return at;
}

/* -- The step -- */

static int region_scratch(region_emit *k) {
  limn_shape s = {1, {0}};
  limn_operand o;
  for (int i = 0; i < k->plan->n; i++)
    s.d[0] = LIMN_MAX(s.d[0], (int64_t)k->plan->in[i].p->scratch);
  if (s.d[0] == 0) return 0;
  LIMN_TRY(emit_temp(k->e, LIMN_U8, &s, &o));
  k->plan->scratch = o.slot;
  return 0;
}

static int region_spare(region_emit *k) {
  limn_region_plan *r = k->plan;
  limn_shape s = {0, {0}};
  r->ncarry = k->ncarry;
  r->spare = limn_arena_alloc(k->e->a, (k->ncarry + 1) * sizeof *r->spare);
  if (!r->spare) return LIMN_EMEM;
  for (uint32_t i = 0; i < k->ncarry; i++)
    LIMN_TRY(emit_temp(k->e, k->in[i].o.dtype, &k->in[i].type.shape,
                       &r->spare[i]));
  if (k->n->op != OP_while) return 0;
  return emit_temp(k->e, LIMN_BOOL, &s, &r->test);
}

/* Copies that a while may need at its end. They are emitted as steps, which
 * gives operands their lifetimes, and then taken out of the plan. */
static int region_fix(region_emit *k, int which) {
  limn_plan *p = k->e->p;
  limn_region_plan *r = k->plan;
  uint32_t at = p->nstep;
  r->fix[which] = limn_arena_alloc(k->e->a,
                                   (k->ncarry + 1) * sizeof(limn_step));
  if (!r->fix[which]) return LIMN_EMEM;
  for (uint32_t i = 0; i < k->ncarry; i++) {
    const limn_operand *from = which ? &r->spare[i] : &k->in[i].o;
    LIMN_TRY(emit_copy(k->e, from, &k->out[i], k->r));
    if (p->nstep == at) continue; /* nothing to copy */
    p->nstep = at;
    r->fix[which][r->nfix[which]++] = p->step[at];
  }
  return 0;
}

static int region_step(region_emit *k, int kind) {
  emitter *e = k->e;
  limn_region_plan *r = k->plan;
  bool pred = k->n->op == OP_cond && r->pred < 0;
  uint32_t n = region_count(k, pred);
  limn_step *s;
  if (n > UINT16_MAX || k->nout > UINT16_MAX)
    return limn_fail(e->c, LIMN_ESIZE, "a region with too many values");
  LIMN_TRY(emit_step(e, kind, k->n->op, (int)n, (int)k->nout, k->r, &s));
  s->code = r;
  if (pred) emit_set(e, s, false, 0, &k->pred);
  for (uint32_t i = 0; i < k->nin; i++)
    if (k->in[i].at >= 0) emit_set(e, s, false, k->in[i].at, &k->in[i].o);
  for (uint32_t i = 0; i < k->nout; i++)
    emit_set(e, s, true, (int)i, &k->out[i]);
  for (uint32_t i = 0; i < r->ncarry; i++) emit_touch(e, s, r->spare[i].slot);
  if (kind == LIMN_STEP_WHILE) emit_touch(e, s, r->test.slot);
  if (r->scratch >= 0) emit_touch(e, s, (uint16_t)r->scratch);
  for (int i = 0; i < r->n; i++) LIMN_TRY(region_slots(k, i));
  return 0;
}

/* -- Ops -- */

static int region_cond(region_emit *k) {
  emitter *e = k->e;
  limn_region_plan *r = k->plan;
  if (emit_is_tensor(e, k->a[0]))
    LIMN_TRY(emit_operand(e, k->a[0], &k->pred));
  else
    r->pred = e->host_of[k->a[0].u.ref - 1];
  for (int i = 0; i < 2; i++) LIMN_TRY(region_inner(k, i, k->a[2 + i]));
  LIMN_TRY(region_results(k));
  LIMN_TRY(region_scratch(k));
  return region_step(k, LIMN_STEP_COND);
}

static int region_while(region_emit *k) {
  for (int i = 0; i < 2; i++) LIMN_TRY(region_inner(k, i, k->a[2 + i]));
  LIMN_TRY(region_results(k));
  LIMN_TRY(region_spare(k));
  for (int i = 0; i < 2; i++) LIMN_TRY(region_fix(k, i));
  LIMN_TRY(region_scratch(k));
  return region_step(k, LIMN_STEP_WHILE);
}

/* No row: what is carried stays what it is, and nothing is stacked. */
static int region_scan_none(region_emit *k) {
  emitter *e = k->e;
  limn_operand o;
  for (uint32_t i = 0; i < (uint32_t)emit_type(e, k->r)->n; i++)
    for (limn_ref r = k->r + 1; r <= e->g->nnode; r++) {
      if (!region_is_pick(k, r, i)) continue;
      if (i < k->ncarry) emit_known(e, r, &k->in[i].o);
      else
        LIMN_TRY(emit_dest(e, r, &o));
    }
  return 0;
}

static int region_scan(region_emit *k) {
  limn_region_plan *r = k->plan;
  r->steps = emit_type(k->e, k->e->g->args[k->a[1].u.at].u.ref)->shape.d[0];
  r->reverse = k->a[4].u.i;
  if (r->steps == 0) return region_scan_none(k);
  LIMN_TRY(region_inner(k, 0, k->a[3]));
  LIMN_TRY(region_results(k));
  LIMN_TRY(region_spare(k));
  LIMN_TRY(region_scratch(k));
  return region_step(k, LIMN_STEP_SCAN);
}

int emit_region(emitter *e, limn_ref r) {
  region_emit k = {0};
  k.e = e;
  k.r = r;
  k.n = limn_graph_node(e->g, r);
  k.a = limn_node_args(e->g, r);
  LIMN_TRY(region_plan_new(&k));
  LIMN_TRY(region_inputs(&k));
  switch (k.n->op) {
    case OP_cond: return region_cond(&k);
    case OP_while: return region_while(&k);
    default: return region_scan(&k);
  }
}
