/* Running a plan: bind slots to memory, launch the steps, commit the writes.
 *
 * Up to the first step a run changes nothing: guards, shapes, devices, cells
 * and all memory come first. Writes of cells are committed together at the
 * end; when a run fails after its first step, the cells that it was to write
 * are void. */
#include <stdio.h>

#include "planner.h"

#define EXEC_IN_FLIGHT 64 /* runs on one accelerator before a wait */

/* -- Where a run happens -- */

static int exec_mixed(limn_graph *g, const limn_run_arg *in) {
  char text[160];
  limn_context *c = g->c;
  limn_fail(c, LIMN_EDEVICE, "the arguments are on different devices");
  for (uint32_t i = 0; i < g->nin; i++)
    if (!g->in[i].number)
      limn_error_append(c, "\n  %s: %s", limn_graph_text(g, g->in[i].name),
                        limn_tensor_text(text, sizeof text, in[i].t));
  return limn_hint(c, LIMN_EDEVICE, "move one with :to(...)");
}

/* The device of the arguments. 0-dim CPU tensors mix with any. */
static int exec_device(limn_graph *g, const limn_run_arg *in,
                       limn_device **dev) {
  limn_device *want = *dev, *found = NULL;
  for (uint32_t i = 0; i < g->nin; i++) {
    const limn_tensor *t = in[i].t;
    if (g->in[i].number) continue;
    if (t->v.ndim == 0 && t->st->dev->ops->host) continue;
    if (found && t->st->dev != found) return exec_mixed(g, in);
    found = t->st->dev;
  }
  if (want && found && want != found) {
    limn_fail(g->c, LIMN_EDEVICE, "the run is on %s, but its arguments are on "
              "%s", want->name, found->name);
    return LIMN_EDEVICE;
  }
  if (!want) *dev = found ? found : limn_device_cpu(g->c);
  return 0;
}

static int exec_ranks(limn_graph *g, const limn_run_arg *in) {
  char text[160];
  for (uint32_t i = 0; i < g->nin; i++) {
    int rank;
    if (g->in[i].number) continue;
    rank = limn_graph_node(g, g->in[i].ref)->rank;
    if (in[i].t->v.ndim == rank) continue;
    return limn_hint(
        g->c,
        limn_fail(g->c, LIMN_ESHAPE,
                  "argument %s has %d dim%s, the graph was traced for %d\n  "
                  "%s: %s",
                  limn_graph_text(g, g->in[i].name), in[i].t->v.ndim,
                  in[i].t->v.ndim == 1 ? "" : "s", rank,
                  limn_graph_text(g, g->in[i].name),
                  limn_tensor_text(text, sizeof text, in[i].t)),
        "sizes may differ from the example's, the number of dims may not");
  }
  return 0;
}

/* Sizes with one name agree across the inputs. */
static int exec_names(limn_graph *g, const limn_run_arg *in) {
  for (uint32_t i = 0; i < g->nin; i++)
    for (int d = 0; !g->in[i].number && d < in[i].t->v.ndim; d++) {
      uint32_t name = g->in[i].dim[d];
      if (!name) continue;
      for (uint32_t j = 0; j <= i; j++)
        for (int k = 0; !g->in[j].number && k < in[j].t->v.ndim; k++)
          if (g->in[j].dim[k] == name && in[j].t->v.d[k] != in[i].t->v.d[d])
            return limn_fail(
                g->c, LIMN_ESHAPE,
                "size %s is %lld in %s (dim %d) but %lld in %s (dim %d)",
                limn_graph_text(g, name), (long long)in[j].t->v.d[k],
                limn_graph_text(g, g->in[j].name), k + 1,
                (long long)in[i].t->v.d[d],
                limn_graph_text(g, g->in[i].name), d + 1);
    }
  return 0;
}

static int exec_captures(limn_graph *g) {
  for (uint32_t i = 0; i < g->nconst; i++)
    if (g->konst[i].watch && g->konst[i].watch->changed)
      return limn_hint(
          g->c,
          limn_fail(g->c, LIMN_ETRACE,
                    "the captured tensor %s (%s) was given another value "
                    "after the trace",
                    limn_graph_text(g, g->konst[i].name),
                    limn_graph_text(g, g->konst[i].line)),
          "pass it as an argument, make it an nn.Buffer, or trace again");
  return 0;
}

/* -- Binding -- */

static void exec_bind_tensor(limn_slot *s, const limn_tensor *t) {
  s->mem = t->st->mem;
  s->off = t->v.offset * limn_dtype_size(t->dtype);
  s->cell = NULL;
}

static int exec_bind_input(limn_plan *p, limn_slot *s, uint32_t i,
                           const limn_run_arg *in) {
  limn_tensor *t = in[i].t;
  if (t->st->dev != p->dev) { /* a 0-dim CPU tensor */
    if (!p->held[i])
      LIMN_TRY(limn_tensor_to(t, p->dev, t->dtype, &p->held[i]));
    t = p->held[i];
  }
  exec_bind_tensor(s, t);
  return 0;
}

static int exec_bind_const(limn_plan *p, limn_slot *s, uint32_t i) {
  limn_planner *n = p->g->planner;
  limn_graph_const *k = &p->g->konst[i];
  limn_tensor *t;
  if (!n->konst[i]) {
    LIMN_TRY(limn_cell_new(p->c, LIMN_CELL_BUFFER, k->value, &n->konst[i]));
  }
  LIMN_TRY(limn_cell_get(n->konst[i], p->dev, &t));
  exec_bind_tensor(s, t);
  s->cell = n->konst[i];
  return 0;
}

/* Memory for a cell's next value: its own when nobody can see it. */
static int exec_bind_write(limn_plan *p, uint32_t at) {
  const limn_slot_info *info = &p->info[at];
  limn_cell *cell = p->expanded->cell[info->index].cell;
  limn_tensor *t = NULL;
  bool own = info->inplace && (p->c->flags.passes & LIMN_PASS_INPLACE);
  if (own && p->dev->index < cell->nrep) {
    limn_replica *r = &cell->rep[p->dev->index];
    t = r->value && r->version == cell->version ? r->value : NULL;
    if (t && (t->refs > 1 || t->st->refs > 1 || t->st->borrowed ||
              t->v.offset != 0 || !limn_tensor_is_dense(t)))
      t = NULL;
  }
  if (t)
    limn_tensor_retain(t);
  else
    LIMN_TRY(limn_tensor_new(p->c, p->dev, info->dtype, &info->shape, &t));
  p->written[at] = t;
  exec_bind_tensor(&p->slot[at], t);
  return 0;
}

static bool exec_overlaps(const limn_tensor *a, const limn_tensor *b) {
  return a && b && a->st == b->st;
}

static int exec_check_into(limn_plan *p, const limn_run_arg *in,
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
    if (!p->g->in[i].number && exec_overlaps(t, in[i].t))
      return limn_hint(p->c,
                       limn_fail(p->c, LIMN_EARG, "output %u shares memory "
                                 "with argument %s", k + 1,
                                 limn_graph_text(p->g, p->g->in[i].name)),
                       "give it memory of its own: limn.zeros_like(...)");
  for (uint32_t i = 0; i < k; i++)
    if (exec_overlaps(t, into[i]))
      return limn_fail(p->c, LIMN_EARG, "outputs %u and %u share memory",
                       i + 1, k + 1);
  return 0;
}

static int exec_bind_out(limn_plan *p, uint32_t at, limn_tensor *const *into) {
  const limn_slot_info *info = &p->info[at];
  limn_tensor *t = into ? into[info->index] : NULL;
  if (t) limn_tensor_retain(t);
  else
    LIMN_TRY(limn_tensor_new(p->c, p->dev, info->dtype, &info->shape, &t));
  p->written[at] = t;
  exec_bind_tensor(&p->slot[at], t);
  return 0;
}

static int exec_scratch(limn_plan *p) {
  limn_device *d = p->dev;
  void *mem;
  if (p->scratch <= d->scratch_size) return 0;
  LIMN_TRY(limn_dev_alloc(d, p->scratch, &mem));
  if (d->scratch) limn_dev_free(d, d->scratch, d->scratch_size);
  d->scratch = mem;
  d->scratch_size = p->scratch;
  return 0;
}

static int exec_bind(limn_plan *p, const limn_run_arg *in,
                     limn_tensor *const *into, void *scratch) {
  limn_tensor *t;
  if (!scratch) {
    LIMN_TRY(exec_scratch(p));
    scratch = p->dev->scratch;
  }
  for (uint32_t i = 0; i < p->nslot; i++) {
    const limn_slot_info *info = &p->info[i];
    limn_slot *s = &p->slot[i];
    switch (info->kind) {
      case LIMN_SLOT_INPUT:
        LIMN_TRY(exec_bind_input(p, s, info->index, in));
        break;
      case LIMN_SLOT_CELL:
        s->cell = p->expanded->cell[info->index].cell;
        LIMN_TRY(limn_cell_get(s->cell, p->dev, &t));
        s->mem = t->st->mem;
        s->off = t->v.offset * limn_dtype_size(t->dtype);
        break;
      case LIMN_SLOT_CONST:
        LIMN_TRY(exec_bind_const(p, s, info->index));
        break;
      case LIMN_SLOT_OUT: LIMN_TRY(exec_bind_out(p, i, into)); break;
      case LIMN_SLOT_WRITE: LIMN_TRY(exec_bind_write(p, i)); break;
      default: s->mem = scratch, s->off = info->off;
    }
  }
  return 0;
}

/* Number operands that depend on the run's number inputs. */
static int exec_numbers(limn_plan *p, const limn_run_arg *in) {
  for (uint32_t i = 0; i < p->nhost; i++) {
    limn_host_step *h = &p->host[i];
    limn_type *v = &p->host_value[i];
    if (h->op == OP_number) {
      memset(v, 0, sizeof *v);
      v->kind = h->arg[0].kind;
      v->known = true;
      v->f = in[h->input].number;
      v->i = (int64_t)in[h->input].number;
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
    p->imm[i].i = v->kind != LIMN_V_REAL ? v->i
                  : v->f != v->f ? 0
                  : v->f >= 9.2e18 ? INT64_MAX
                  : v->f <= -9.2e18 ? INT64_MIN : (int64_t)v->f;
  }
  return 0;
}

static void exec_unbind(limn_plan *p) {
  for (uint32_t i = 0; i < p->nslot; i++) {
    limn_tensor_release(p->written[i]);
    p->written[i] = NULL;
  }
  for (uint32_t i = 0; i < p->g->nin; i++) {
    limn_tensor_release(p->held[i]);
    p->held[i] = NULL;
  }
}

/* -- print -- */

static int exec_print_tensor(limn_plan *p, const limn_operand *o,
                             limn_str *s) {
  limn_slot *slot = &p->slot[o->slot];
  limn_shape shape = {o->v.ndim, {0}};
  limn_view from = o->v;
  limn_tensor *t;
  int rc;
  memcpy(shape.d, o->v.d, sizeof shape.d);
  from.offset += slot->off / limn_dtype_size(o->dtype);
  LIMN_TRY(limn_tensor_new(p->c, p->dev, o->dtype, &shape, &t));
  rc = limn_dev_copy(p->dev, o->dtype, t->st->mem, &t->v, o->dtype, slot->mem,
                     &from);
  if (rc == 0) rc = limn_tensor_format(t, s);
  limn_tensor_release(t);
  return rc;
}

static int exec_print_value(limn_plan *p, const limn_step *st, limn_arg a,
                            int *tensor, limn_str *s) {
  char buf[64];
  const limn_node *n;
  if (a.tag != LIMN_A_REF) {
    limn_str_add(s, limn_arg_text(p->expanded, a, buf, sizeof buf));
    return 0;
  }
  n = limn_graph_node(p->expanded, a.u.ref);
  if (n->kind == LIMN_V_TENSOR)
    return exec_print_tensor(p, &st->in[(*tensor)++], s);
  if (n->kind == LIMN_V_DEVICE) limn_str_add(s, p->dev->name);
  return 0;
}

/* text has one {} for each value. */
static int exec_print(limn_plan *p, const limn_step *st) {
  const limn_graph *g = p->expanded;
  const limn_arg *a = limn_node_args(g, st->node);
  const char *text = limn_graph_text(g, a[1].u.str);
  uint32_t at = 0;
  int tensor = 0, rc = 0;
  limn_str s;
  limn_str_init(&s, p->c);
  for (; *text && rc == 0; text++) {
    if (text[0] == '{' && text[1] == '}' && at < a[0].n) {
      limn_arg x = g->args[a[0].u.at + at];
      const limn_type *host = (const limn_type *)st->code + at;
      if (host->kind != LIMN_V_NONE && !host->known)
        host = &p->host_value[host->i];
      if (host->kind != LIMN_V_NONE) {
        if (host->kind == LIMN_V_REAL) limn_str_real(&s, host->f);
        else if (host->kind == LIMN_V_BOOL)
          limn_str_add(&s, host->i ? "true" : "false");
        else if (host->kind == LIMN_V_DTYPE)
          limn_str_add(&s, limn_dtype_name(host->dtype));
        else limn_str_addf(&s, "%lld", (long long)host->i);
      } else {
        rc = exec_print_value(p, st, x, &tensor, &s);
      }
      at++, text++;
    } else {
      limn_str_addn(&s, text, 1);
    }
  }
  if (rc == 0) rc = s.rc;
  if (rc == 0 && p->c->opt.log)
    p->c->opt.log(p->c->opt.user, 'p', s.s ? s.s : "");
  limn_str_free(&s);
  return rc;
}

/* -- Steps -- */

static void exec_time(limn_plan *p, const limn_step *s, uint64_t ns) {
  const limn_node *n = limn_graph_node(p->expanded, s->node);
  limn_log(p->c, 'v', "%8.1f us  %-12s %s %s", (double)ns / 1e3,
           limn_op_get(n->op)->name, limn_graph_text(p->expanded, n->line),
           limn_graph_text(p->expanded, n->path));
}

static int exec_steps(limn_plan *p, const limn_bind *b, bool *started) {
  limn_device *d = p->dev;
  bool timed = limn_dumps(p->c, 'x') && p->c->opt.now_ns;
  for (uint32_t i = 0; i < p->nstep; i++) {
    const limn_step *s = &p->step[i];
    uint64_t t0 = timed ? p->c->opt.now_ns(p->c->opt.user) : 0;
    *started = true;
    if (s->kind == LIMN_STEP_PRINT)
      LIMN_TRY(exec_print(p, s));
    else
      LIMN_TRY(d->ops->launch(d, s, b));
    if (!timed) continue;
    LIMN_TRY(d->ops->wait(d));
    exec_time(p, s, p->c->opt.now_ns(p->c->opt.user) - t0);
  }
  d->launches += p->nstep;
  return 0;
}

/* -- Commit -- */

static int exec_write_tensor(limn_plan *p, const limn_write_info *w,
                             const limn_run_arg *in, limn_tensor **out) {
  const limn_slot_info *info = &p->info[w->slot];
  limn_tensor *t = p->written[w->slot];
  if (info->kind == LIMN_SLOT_INPUT)
    t = p->held[info->index] ? p->held[info->index] : in[info->index].t;
  if (info->kind == LIMN_SLOT_CELL)
    LIMN_TRY(limn_cell_get(p->expanded->cell[info->index].cell, p->dev, &t));
  if (info->kind == LIMN_SLOT_CONST)
    LIMN_TRY(limn_cell_get(p->g->planner->konst[info->index], p->dev, &t));
  limn_tensor_retain(t);
  *out = t;
  return 0;
}

/* All cells change together: first everything that may fail, then the rest. */
static int exec_commit(limn_plan *p, const limn_bind *b,
                       const limn_run_arg *in) {
  limn_tensor *few[16], **t = few;
  uint32_t n = p->nwrite, got = 0;
  int rc = 0;
  if (n == 0) return 0;
  if (n > LIMN_COUNT(few)) {
    t = limn_alloc(p->c, n * sizeof(limn_tensor *));
    if (!t) return LIMN_EMEM;
  }
  for (; got < n; got++)
    LIMN_GO(exec_write_tensor(p, &p->write[got], in, &t[got]));
  for (uint32_t i = 0; i < n; i++) {
    limn_cell *cell = p->expanded->cell[p->write[i].cell].cell;
    int r = limn_cell_commit(cell, t[i]);
    if (r < 0) rc = r;
    cell->run_serial = b->serial;
    cell->run_dev = p->dev;
  }
bail:
  for (uint32_t i = 0; i < got; i++) limn_tensor_release(t[i]);
  if (t != few) limn_free(p->c, t, n * sizeof(limn_tensor *));
  return rc;
}

static void exec_void(limn_plan *p) {
  for (uint32_t i = 0; i < p->nwrite; i++)
    limn_cell_void(p->expanded->cell[p->write[i].cell].cell, p->c->error);
}

/* -- Results -- */

static int exec_out_tensor(limn_plan *p, const limn_out_info *o, uint32_t k,
                           const limn_run_arg *in, limn_tensor *const *into,
                           limn_tensor **out) {
  const limn_slot_info *info = &p->info[o->slot];
  limn_tensor *t = p->written[o->slot];
  limn_view v = o->v;
  if (!o->whole) {
    limn_write_info w = {0, o->slot, o->v, o->dtype};
    LIMN_TRY(exec_write_tensor(p, &w, in, &t));
    if (info->kind == LIMN_SLOT_INPUT && t->v.ndim == v.ndim &&
        v.offset == 0 && !memcmp(t->v.d, v.d, 8 * (size_t)v.ndim) &&
        (into == NULL || !into[k])) {
      bool same = true;
      for (int d = 0; d < v.ndim; d++)
        same &= v.d[d] == 1 || t->v.s[d] == v.s[d];
      if (same) { /* an argument returned unchanged is the same tensor */
        *out = t;
        return 0;
      }
    }
    v.offset += t->v.offset;
    if (into && into[k]) {
      int rc = limn_dev_copy(p->dev, o->dtype, into[k]->st->mem, &into[k]->v,
                             o->dtype, t->st->mem, &v);
      limn_tensor_release(t);
      t = into[k];
      limn_tensor_retain(t);
      *out = t;
      return rc;
    }
    int rc = limn_tensor_view(t, &v, out);
    limn_tensor_release(t);
    return rc;
  }
  if (into && into[k] && into[k] != t) { /* one value for two outputs */
    limn_view to = into[k]->v;
    LIMN_TRY(limn_dev_copy(p->dev, o->dtype, into[k]->st->mem, &to, o->dtype,
                           t->st->mem, &t->v));
    t = into[k];
  }
  limn_tensor_retain(t);
  *out = t;
  return 0;
}

static int exec_results(limn_plan *p, const limn_run_arg *in,
                        limn_tensor *const *into, limn_result *out) {
  for (uint32_t k = 0; k < p->g->nout; k++) {
    const limn_out_info *o = &p->out[k];
    const limn_type *v = o->value < 0 ? &o->k : &p->host_value[o->value];
    out[k].kind = o->kind;
    out[k].i = v->i;
    out[k].f = v->kind == LIMN_V_REAL ? v->f : (double)v->i;
    out[k].s = o->kind == LIMN_V_STR
                   ? limn_graph_text(p->g, p->g->out[k].u.str) : NULL;
    if (o->kind == LIMN_V_TENSOR)
      LIMN_TRY(exec_out_tensor(p, o, k, in, into, &out[k].t));
  }
  return 0;
}

void limn_results_release(limn_graph *g, limn_result *out) {
  for (uint32_t k = 0; k < g->nout; k++) {
    limn_tensor_release(out[k].t);
    out[k].t = NULL;
  }
}

/* -- A run -- */

static int exec_fault(limn_plan *p, const limn_fault *f) {
  if (f->site == 0) return 0;
  return limn_fault_fail(p->c, f);
}

static int exec_pace(limn_device *d) {
  if (d->ops->host || ++d->in_flight < EXEC_IN_FLIGHT) return 0;
  return limn_device_wait(d);
}

int limn_plan_run(limn_plan *p, const limn_run_arg *in,
                  limn_tensor *const *into, void *scratch, limn_result *out) {
  limn_fault fault = {0};
  limn_bind b = {0};
  bool started = false;
  int rc = 0;
  if (p->busy)
    return limn_fail(p->c, LIMN_EARG, "this graph is already running");
  memset(out, 0, p->g->nout * sizeof *out);
  p->busy = true;
  for (uint32_t k = 0; into && k < p->g->nout; k++)
    if (into[k]) LIMN_GO(exec_check_into(p, in, into, k));
  LIMN_GO(exec_numbers(p, in));
  LIMN_GO(exec_bind(p, in, into, scratch));
  LIMN_GO(exec_pace(p->dev));
  b.slot = p->slot;
  b.imm = p->imm;
  b.seed = p->c->seed;
  b.draw0 = p->c->draws;
  b.serial = ++p->c->serial;
  b.fault = &fault;
  b.c = p->c;
  p->c->draws += p->g->draws;
  LIMN_GO(exec_steps(p, &b, &started));
  LIMN_GO(exec_fault(p, &fault));
  LIMN_GO(exec_results(p, in, into, out));
  if (!p->dry) LIMN_GO(exec_commit(p, &b, in));
bail:
  if (rc < 0 && started && !p->dry) exec_void(p);
  if (rc < 0) limn_results_release(p->g, out);
  exec_unbind(p);
  p->busy = false;
  return rc;
}

static int exec_check(limn_graph *g, limn_device **dev,
                      const limn_run_arg *in) {
  LIMN_TRY(exec_captures(g));
  LIMN_TRY(exec_ranks(g, in));
  LIMN_TRY(exec_names(g, in));
  return exec_device(g, in, dev);
}

int limn_graph_run(limn_graph *g, limn_device *dev, const limn_run_arg *in,
                   limn_tensor *const *into, limn_result *out) {
  limn_plan *p;
  LIMN_TRY(exec_check(g, &dev, in));
  LIMN_TRY(limn_plan_find(g, dev, in, &p));
  p->g->planner->stats.runs++;
  if (g->c->flags.verify) return limn_plan_verify(p, in, into, out);
  return limn_plan_run(p, in, into, NULL, out);
}

int limn_graph_prepare(limn_graph *g, limn_device *dev,
                       const limn_run_arg *in) {
  limn_plan *p;
  LIMN_TRY(exec_check(g, &dev, in));
  LIMN_TRY(limn_plan_find(g, dev, in, &p));
  return exec_scratch(p);
}
