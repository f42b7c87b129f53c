/* From fused groups to steps: slots, values and views. */
#include "emit.h"

const limn_type *emit_type(const emitter *e, limn_ref r) {
  return &e->I->t[r - 1];
}

bool emit_is_tensor(const emitter *e, limn_arg a) {
  return a.tag == LIMN_A_REF &&
         limn_graph_node(e->g, a.u.ref)->kind == LIMN_V_TENSOR;
}

limn_ref emit_canon(const emitter *e, limn_arg a) {
  return e->f->canon[a.u.ref - 1];
}

/* -- Slots and steps -- */

int emit_slot(emitter *e, int kind, uint32_t index, int dtype,
              const limn_shape *s, uint16_t *slot) {
  limn_plan *p = e->p;
  limn_slot_info *info;
  int64_t numel, bytes;
  LIMN_TRY(limn_shape_bytes(e->c, s, dtype, &numel, &bytes));
  if (p->nslot >= UINT16_MAX)
    return limn_fail(e->c, LIMN_ESIZE, "the graph needs too many buffers");
  LIMN_TRY(limn_grow(e->c, &p->info, &p->slot_cap, p->nslot + 1,
                     sizeof *p->info));
  info = &p->info[p->nslot];
  memset(info, 0, sizeof *info);
  info->kind = (uint8_t)kind;
  info->dtype = (uint8_t)dtype;
  info->index = index;
  info->shape = *s;
  info->bytes = (size_t)bytes;
  info->first = info->last = -1;
  *slot = (uint16_t)p->nslot++;
  return 0;
}

int emit_temp(emitter *e, int dtype, const limn_shape *s, limn_operand *out) {
  LIMN_TRY(emit_slot(e, LIMN_SLOT_TEMP, 0, dtype, s, &out->slot));
  out->dtype = (uint8_t)dtype;
  limn_view_dense(&out->v, s->ndim, s->d);
  return 0;
}

void emit_known(emitter *e, limn_ref r, const limn_operand *o) {
  emit_value *v = &e->val[r - 1];
  v->state = EMIT_MEM;
  v->dtype = o->dtype;
  v->slot = o->slot;
  v->v = o->v;
}

/* The memory of a node that others are parts of. */
int emit_home(emitter *e, limn_ref r, limn_operand *out) {
  if (e->val[r - 1].state == EMIT_MEM) return emit_memory(e, r, out);
  return emit_dest(e, r, out);
}

int emit_dest(emitter *e, limn_ref r, limn_operand *out) {
  const limn_type *t = emit_type(e, r);
  const emit_place *place = &e->place[r - 1];
  int kind = LIMN_SLOT_TEMP;
  int32_t index = 0;
  if (place->home) {
    LIMN_TRY(emit_home(e, place->home, out));
    out->v = place->v;
    emit_known(e, r, out);
    return 0;
  }
  /* A result that is a cell's value too is a view of the cell's memory. */
  if (e->write_of[r - 1] >= 0) {
    kind = LIMN_SLOT_WRITE, index = e->write_of[r - 1];
  } else if (e->out_of[r - 1] >= 0) {
    kind = LIMN_SLOT_OUT, index = e->out_of[r - 1];
  }
  LIMN_TRY(emit_slot(e, kind, (uint32_t)index, t->dtype, &t->shape,
                     &out->slot));
  out->dtype = t->dtype;
  limn_view_dense(&out->v, t->shape.ndim, t->shape.d);
  emit_known(e, r, out);
  return 0;
}

int emit_step(emitter *e, int kind, int op, int nin, int nout, limn_ref r,
              limn_step **out) {
  limn_plan *p = e->p;
  limn_step *s;
  LIMN_TRY(limn_grow(e->c, &p->step, &p->step_cap, p->nstep + 1,
                     sizeof *p->step));
  s = &p->step[p->nstep];
  memset(s, 0, sizeof *s);
  s->kind = (uint8_t)kind;
  s->op = (uint16_t)op;
  s->nin = (uint16_t)nin;
  s->nout = (uint16_t)nout;
  s->node = r;
  s->in = limn_arena_alloc(e->a, ((size_t)nin + 1) * sizeof *s->in);
  s->out = limn_arena_alloc(e->a, ((size_t)nout + 1) * sizeof *s->out);
  if (!s->in || !s->out) return LIMN_EMEM;
  p->nstep++;
  *out = s;
  return 0;
}

void emit_touch(emitter *e, const limn_step *s, uint16_t slot) {
  limn_slot_info *info = &e->p->info[slot];
  int32_t at = (int32_t)(s - e->p->step);
  if (info->first < 0) info->first = at;
  info->last = LIMN_MAX(info->last, at);
}

void emit_set(emitter *e, limn_step *s, bool output, int i,
              const limn_operand *o) {
  if (output) s->out[i] = *o;
  else s->in[i] = *o;
  emit_touch(e, s, o->slot);
}

/* -- Number operands -- */

static int emit_imm_push(emitter *e, limn_imm_source src, uint16_t *out) {
  limn_plan *p = e->p;
  for (uint32_t i = 0; i < p->nimm; i++)
    if (!memcmp(&p->imm_from[i], &src, sizeof src)) {
      *out = (uint16_t)i;
      return 0;
    }
  LIMN_TRY(limn_grow(e->c, &p->imm_from, &p->imm_cap, p->nimm + 1,
                     sizeof src));
  p->imm_from[p->nimm] = src;
  *out = (uint16_t)p->nimm++;
  return 0;
}

int emit_imm_const(emitter *e, double f, int64_t i, uint16_t *out) {
  limn_imm_source src;
  memset(&src, 0, sizeof src);
  src.value = -1;
  src.k.f = f;
  src.k.i = i;
  return emit_imm_push(e, src, out);
}

int emit_imm(emitter *e, limn_arg a, uint16_t *out) {
  limn_imm_source src;
  memset(&src, 0, sizeof src);
  switch (a.tag) {
    case LIMN_A_INT: case LIMN_A_BOOL:
      return emit_imm_const(e, (double)a.u.i, a.u.i, out);
    case LIMN_A_REAL:
      return emit_imm_const(e, a.u.f, limn_saturate(a.u.f), out);
    case LIMN_A_REF: {
      const limn_type *t = emit_type(e, a.u.ref);
      if (t->known && t->kind == LIMN_V_REAL)
        return emit_imm_const(e, t->f, limn_saturate(t->f), out);
      if (t->known) return emit_imm_const(e, (double)t->i, t->i, out);
      src.value = e->host_of[a.u.ref - 1];
      if (src.value < 0) break;
      return emit_imm_push(e, src, out);
    }
    default: break;
  }
  return limn_fail(e->c, LIMN_EARG, "a number operand has no value");
}

/* -- Values -- */

int emit_copy(emitter *e, const limn_operand *from, const limn_operand *to,
              limn_ref r) {
  limn_step *s;
  limn_instr *code;
  int n = 0;
  if (limn_numel(to->v.ndim, to->v.d) == 0) return 0;
  LIMN_TRY(emit_step(e, LIMN_STEP_GROUP, 0, 1, 1, r, &s));
  s->group = limn_arena_alloc(e->a, sizeof *s->group);
  code = limn_arena_alloc(e->a, 3 * sizeof *code);
  if (!s->group || !code) return LIMN_EMEM;
  code[n++] = (limn_instr){LIMN_I_LOAD, from->dtype,
                           (uint8_t)limn_dtype_compute(from->dtype),
                           0, 0, 0, 0};
  if (from->dtype != to->dtype)
    code[n++] = (limn_instr){LIMN_I_CAST, to->dtype,
                             (uint8_t)limn_dtype_compute(to->dtype),
                             0, 0, 0, 0};
  code[n] = (limn_instr){LIMN_I_STORE, to->dtype, 0, (uint16_t)(n - 1), 0, 0,
                         0};
  s->group->ncode = n + 1;
  s->group->code = code;
  s->flag = n == 1 && limn_view_is_dense(&from->v) &&
            limn_view_is_dense(&to->v) && from->v.offset == to->v.offset;
  emit_set(e, s, false, 0, from);
  emit_set(e, s, true, 0, to);
  return 0;
}

/* Write one number into all elements of `to`. */
static int emit_fill(emitter *e, limn_arg number, const limn_operand *to,
                     limn_ref r) {
  limn_step *s;
  limn_instr *code;
  uint16_t imm;
  if (limn_numel(to->v.ndim, to->v.d) == 0) return 0;
  LIMN_TRY(emit_imm(e, number, &imm));
  LIMN_TRY(emit_step(e, LIMN_STEP_GROUP, 0, 0, 1, r, &s));
  s->group = limn_arena_alloc(e->a, sizeof *s->group);
  code = limn_arena_alloc(e->a, 2 * sizeof *code);
  if (!s->group || !code) return LIMN_EMEM;
  code[0] = (limn_instr){LIMN_I_IMM, to->dtype,
                         (uint8_t)limn_dtype_compute(to->dtype), 0, 0, 0, imm};
  code[1] = (limn_instr){LIMN_I_STORE, to->dtype, 0, 0, 0, 0, 0};
  s->group->ncode = 2;
  s->group->code = code;
  emit_set(e, s, true, 0, to);
  return 0;
}

int emit_fill_region(emitter *e, limn_arg number, const limn_operand *to,
                     limn_ref r) {
  return emit_fill(e, number, to, r);
}

int emit_memory(emitter *e, limn_ref r, limn_operand *out) {
  emit_value *v = &e->val[r - 1];
  limn_arg number;
  if (v->state == EMIT_NUMBER) {
    number = v->number;
    LIMN_TRY(emit_dest(e, r, out));
    return emit_fill(e, number, out, r);
  }
  if (v->state != EMIT_MEM)
    return limn_fail(e->c, LIMN_EARG, "value %%%u was never computed (%s)", r,
                     limn_op_get(limn_graph_node(e->g, r)->op)->name);
  out->slot = v->slot;
  out->dtype = v->dtype;
  out->v = v->v;
  return 0;
}

int emit_operand(emitter *e, limn_arg a, limn_operand *out) {
  if (!emit_is_tensor(e, a))
    return limn_fail(e->c, LIMN_EARG, "a tensor is needed here");
  return emit_memory(e, emit_canon(e, a), out);
}

int emit_dense(emitter *e, limn_operand *o, int dtype, limn_ref r) {
  limn_operand to;
  limn_shape s;
  if (limn_view_is_dense(&o->v) && o->dtype == dtype) return 0;
  s.ndim = o->v.ndim;
  memcpy(s.d, o->v.d, sizeof s.d);
  LIMN_TRY(emit_temp(e, dtype, &s, &to));
  LIMN_TRY(emit_copy(e, o, &to, r));
  *o = to;
  return 0;
}

/* The rule has taken a real that is whole for an int: so it is one. */
static void emit_whole(limn_type *t) {
  if (t->kind != LIMN_V_REAL || !t->known) return;
  t->kind = LIMN_V_INT;
  t->i = limn_saturate(t->f);
}

int emit_args(emitter *e, limn_ref r, limn_type *out, limn_type *pool) {
  const limn_node *n = limn_graph_node(e->g, r);
  char type[LIMN_MAXARGS];
  int np = limn_op_types(n->op, type), in_pool = 0;
  memset(out, 0, LIMN_MAXARGS * sizeof *out);
  LIMN_TRY(limn_infer_args(e->I, e->g->args + n->args, n->nargs, out, pool,
                           EMIT_POOL));
  for (int i = 0; i < np && i < n->nargs; i++) {
    limn_type *list = pool + in_pool;
    bool whole = strchr("idDL", type[i]);
    if (out[i].kind == LIMN_V_LIST) in_pool += out[i].n;
    for (int k = 0; whole && out[i].kind == LIMN_V_LIST && k < out[i].n; k++)
      emit_whole(&list[k]);
    if (whole) emit_whole(&out[i]);
  }
  return 0;
}

int emit_site(emitter *e, limn_ref r, const char *what, uint32_t *site) {
  const limn_node *n = limn_graph_node(e->g, r);
  *site = limn_error_site(e->c, n->op, limn_graph_text(e->g, n->line),
                          limn_graph_text(e->g, n->path),
                          !strcmp(what, "label"));
  return *site ? 0 : LIMN_EMEM; /* site 0 would be no error */
}

/* -- Nodes that move nothing -- */

static int emit_view(emitter *e, limn_ref r) {
  const limn_op_row *row = limn_op_get(limn_graph_node(e->g, r)->op);
  const limn_type *t = emit_type(e, r);
  limn_arg x = limn_node_args(e->g, r)[0];
  emit_value *from = &e->val[emit_canon(e, x) - 1], *to = &e->val[r - 1];
  limn_type a[LIMN_MAXARGS];
  limn_operand o;
  limn_view v;
  int rc;
  if (from->state == EMIT_NUMBER) { /* the same number under another shape */
    *to = *from;
    to->dtype = t->dtype;
    return 0;
  }
  LIMN_TRY(emit_operand(e, x, &o));
  LIMN_TRY(emit_args(e, r, a, e->pool));
  LIMN_TRY(rc = row->view(e->c, a, &o.v, &v));
  if (rc > 0) {
    LIMN_TRY(emit_dense(e, &o, o.dtype, r));
    LIMN_TRY(rc = row->view(e->c, a, &o.v, &v));
  }
  o.v = v;
  emit_known(e, r, &o);
  return 0;
}

/* full: one number, or one 0-dim tensor seen under the shape. */
static int emit_full(emitter *e, limn_ref r) {
  limn_arg x = limn_node_args(e->g, r)[1];
  const limn_type *t = emit_type(e, r);
  emit_value *v = &e->val[r - 1];
  limn_operand o;
  limn_view wide;
  if (!emit_is_tensor(e, x)) {
    v->state = EMIT_NUMBER;
    v->dtype = t->dtype;
    v->number = x;
    return 0;
  }
  LIMN_TRY(emit_operand(e, x, &o));
  if (o.dtype != t->dtype) LIMN_TRY(emit_dense(e, &o, t->dtype, r));
  limn_view_broadcast(&o.v, &t->shape, &wide);
  o.v = wide;
  emit_known(e, r, &o);
  return 0;
}

static int emit_source(emitter *e, limn_ref r, int kind) {
  const limn_type *t = emit_type(e, r);
  uint32_t index = (uint32_t)limn_node_args(e->g, r)[0].u.i;
  limn_operand o;
  o.dtype = t->dtype;
  LIMN_TRY(emit_slot(e, kind, index, t->dtype, &t->shape, &o.slot));
  limn_view_dense(&o.v, t->shape.ndim, t->shape.d);
  if (kind == LIMN_SLOT_INPUT && e->p->in_view) {
    o.v = e->p->in_view[index];
    o.v.offset = 0; /* the run binds the first element's address */
  }
  emit_known(e, r, &o);
  return 0;
}

static int emit_node(emitter *e, limn_ref r) {
  const limn_node *n = limn_graph_node(e->g, r);
  const limn_op_row *row = limn_op_get(n->op);
  int32_t gi = e->f->group[r - 1];
  if (gi >= 0)
    return e->f->groups[gi].root == r ? emit_group(e, gi) : 0;
  if (e->f->again[r - 1] || e->deferred[r - 1]) return 0;
  switch (n->op) {
    case OP_input: return emit_source(e, r, LIMN_SLOT_INPUT);
    case OP_cell: return emit_source(e, r, LIMN_SLOT_CELL);
    case OP_const: return emit_source(e, r, LIMN_SLOT_CONST);
    case OP_full: case OP_full_like: return emit_full(e, r);
    case OP_cond: case OP_while: case OP_scan: return emit_region(e, r);
    case OP_pick: return 0; /* known with the node that it is of */
    case OP_matmul: return emit_matmul(e, r, -1);
    default:
      return row->row == LIMN_ROW_V ? emit_view(e, r) : emit_special(e, r);
  }
}

/* -- The host program -- */

/* Host values that depend on number inputs, in order; the rest are known. */
static int emit_host(emitter *e) {
  limn_plan *p = e->p;
  for (limn_ref r = 1; r <= e->g->nnode; r++) {
    const limn_node *n = limn_graph_node(e->g, r);
    const limn_type *t = emit_type(e, r);
    limn_type a[LIMN_MAXARGS] = {{0}}, pool[8];
    limn_host_step h;
    e->host_of[r - 1] = -1;
    memset(a, 0, sizeof a);
    if (n->kind != LIMN_V_INT && n->kind != LIMN_V_REAL &&
        n->kind != LIMN_V_BOOL)
      continue;
    if (t->known) continue;
    memset(&h, 0, sizeof h);
    h.op = n->op;
    h.nargs = (uint8_t)LIMN_MIN(n->nargs, 3);
    if (n->op == OP_number) {
      h.input = (int32_t)limn_node_args(e->g, r)[0].u.i;
      h.arg[0].kind = t->kind;
    } else {
      LIMN_TRY(limn_infer_args(e->I, limn_node_args(e->g, r), h.nargs, a, pool,
                               8));
      for (int i = 0; i < h.nargs; i++) {
        limn_arg x = limn_node_args(e->g, r)[i];
        h.arg[i] = a[i];
        h.from[i] = x.tag == LIMN_A_REF ? e->host_of[x.u.ref - 1] : -1;
      }
    }
    LIMN_TRY(limn_grow(e->c, &p->host, &p->host_cap, p->nhost + 1, sizeof h));
    e->host_of[r - 1] = (int32_t)p->nhost;
    p->host[p->nhost++] = h;
  }
  return 0;
}

/* -- All of it -- */

static int emit_init(emitter *e) {
  size_t n = e->g->nnode + 1;
  int32_t **ints[] = {&e->out_of, &e->write_of, &e->host_of, &e->instr,
                      &e->instr_stamp};
  e->val = limn_arena_alloc(e->tmp, n * sizeof *e->val);
  e->member = limn_arena_alloc(e->tmp, n * sizeof *e->member);
  e->head = limn_arena_alloc(e->tmp, n * sizeof *e->head);
  e->deferred = limn_arena_alloc(e->tmp, n);
  e->pool = limn_arena_alloc(e->tmp, EMIT_POOL * sizeof *e->pool);
  e->given = limn_arena_alloc(e->tmp, (e->g->nout + 1) * sizeof *e->given);
  e->place = limn_arena_alloc(e->tmp, n * sizeof *e->place);
  for (int i = 0; i < LIMN_COUNT(ints); i++) {
    *ints[i] = limn_arena_alloc(e->tmp, n * sizeof(int32_t));
    if (!*ints[i]) return LIMN_EMEM;
  }
  e->p->out = limn_arena_alloc(&e->p->mem,
                               (e->g->nout + 1) * sizeof *e->p->out);
  e->p->write = limn_arena_alloc(&e->p->mem,
                                 (e->g->ncell + 1) * sizeof *e->p->write);
  if (!e->place || !e->pool || !e->given) return LIMN_EMEM;
  return e->val && e->member && e->head && e->deferred && e->p->out &&
                 e->p->write ? 0 : LIMN_EMEM;
}

/* Whether the node is x in the same order under another shape. */
static bool emit_reshapes(int op) {
  return op == OP_reshape || op == OP_reshape_like || op == OP_flatten ||
         op == OP_squeeze || op == OP_unsqueeze;
}

/* What a result is merely a reshape of lies in the result's memory. */
static void emit_index_reshapes(emitter *e) {
  for (limn_ref r = e->g->nnode; r >= 1; r--) {
    limn_arg x;
    limn_ref s;
    if (e->out_of[r - 1] < 0 || e->f->canon[r - 1] != r ||
        !emit_reshapes(limn_graph_node(e->g, r)->op))
      continue;
    x = limn_node_args(e->g, r)[0];
    s = emit_canon(e, x);
    if (e->out_of[s - 1] < 0) e->out_of[s - 1] = e->out_of[r - 1];
  }
}

static void emit_index(emitter *e) {
  limn_graph *g = e->g;
  for (uint32_t r = 0; r < g->nnode; r++) e->out_of[r] = e->write_of[r] = -1;
  for (uint32_t k = g->nout; k-- > 0;)
    if (emit_is_tensor(e, g->out[k]))
      e->out_of[emit_canon(e, g->out[k]) - 1] = (int32_t)k;
  emit_index_reshapes(e);
  for (uint32_t i = 0; i < g->ncell; i++) {
    limn_cell *cell = g->cell[i].cell;
    const limn_type *t;
    if (!emit_is_tensor(e, g->cell[i].write)) continue;
    t = emit_type(e, g->cell[i].write.u.ref);
    if (t->dtype == cell->dtype && limn_shape_eq(&t->shape, &cell->shape))
      e->write_of[emit_canon(e, g->cell[i].write) - 1] = (int32_t)i;
  }
  for (limn_ref r = g->nnode; r >= 1; r--) {
    int32_t gi = e->f->group[r - 1];
    if (gi < 0) continue;
    e->member[r - 1] = e->head[gi];
    e->head[gi] = r;
  }
  for (uint32_t i = 0; i < e->f->ngroup; i++)
    if (e->f->groups[i].product)
      e->deferred[e->f->groups[i].product - 1] = 1;
}

int limn_emit(limn_plan *p, limn_infer *I, limn_fused *f, limn_arena *tmp) {
  emitter e = {0};
  e.c = p->c, e.p = p, e.I = I, e.g = I->g, e.f = f, e.a = &p->mem;
  e.tmp = tmp;
  LIMN_TRY(emit_init(&e));
  emit_index(&e);
  LIMN_TRY(emit_host(&e));
  LIMN_TRY(emit_places(&e));
  for (limn_ref r = 1; r <= e.g->nnode; r++) {
    if (!f->needed[r - 1] || f->canon[r - 1] != r) continue;
    int rc = emit_node(&e, r);
    if (rc < 0) return limn_locate(I, r, rc, p->dev->name);
  }
  return emit_outs(&e);
}
