/* Running a plan: bind slots to memory, launch the steps, commit the writes.
 *
 * Up to the first step a run changes nothing: guards, shapes, devices, cells
 * and all memory come first. Writes of cells are committed together at the
 * end; when a run fails after its first step, the cells that it was to write
 * are void. */
#include <stdio.h>
#include <time.h>

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
        for (int k = 0; !g->in[j].number && k < (j < i ? in[j].t->v.ndim : d);
             k++)
          if (g->in[j].dim[k] == name && in[j].t->v.d[k] != in[i].t->v.d[d])
            return limn_hint(
                g->c,
                limn_fail(
                    g->c, LIMN_ESHAPE,
                    "size %s is %lld in %s (dim %d) but %lld in %s (dim %d)",
                    limn_graph_text(g, name), (long long)in[j].t->v.d[k],
                    limn_graph_text(g, g->in[j].name), k + 1,
                    (long long)in[i].t->v.d[d],
                    limn_graph_text(g, g->in[i].name), d + 1),
                "sizes of one name are equal in every run");
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

/* -- Steps -- */

void limn_plan_draws(limn_plan *p, uint64_t seed, uint64_t draw0) {
  const limn_graph *g = p->expanded;
  uint32_t n = g->ninlined ? g->inlined[0].first : g->draws;
  if (!p->random) return;
  for (uint32_t i = 0; i < n; i++) p->draw[i] = (limn_draw){seed, draw0 + i};
  for (uint32_t k = 0; k < g->ninlined; k++) {
    const limn_draws *x = &g->inlined[k];
    const limn_draw *from = &p->draw[x->parent];
    uint64_t key = limn_random_key(from->seed, 0, from->draw);
    for (uint32_t i = 0; i < x->n; i++)
      p->draw[x->first + i] = (limn_draw){key, i};
  }
}

static uint64_t exec_now(limn_context *c) {
  struct timespec t;
  if (c->opt.now_ns) return c->opt.now_ns(c->opt.user);
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void exec_time(limn_plan *p, const limn_step *s, uint64_t ns) {
  const limn_node *n = limn_graph_node(p->expanded, s->node);
  limn_log(p->c, 'v', "%8.1f us  %-12s %s %s", (double)ns / 1e3,
           limn_op_get(n->op)->name, limn_graph_text(p->expanded, n->line),
           limn_graph_text(p->expanded, n->path));
}

/* What fails at a step says at which, unless the step did. */
static int exec_step_failed(const limn_plan *p, const limn_step *s, int rc) {
  const limn_node *n = limn_graph_node(p->expanded, s->node);
  const char *line = limn_graph_text(p->expanded, n->line);
  limn_error_prepend(p->c, "%s%s%s on %s: ", line, *line ? ": " : "",
                     limn_op_get(n->op)->name, p->dev->name);
  return rc;
}

int limn_plan_step(limn_plan *p, const limn_step *s, const limn_bind *b) {
  int rc = 0;
  if (s->kind == LIMN_STEP_PRINT) return limn_plan_print(p, s);
  if (limn_step_host(s)) return limn_plan_region(p, s, b);
  if (!limn_step_idle(s, p->slot)) rc = p->dev->ops->launch(p->dev, s, b);
  return rc < 0 ? exec_step_failed(p, s, rc) : 0;
}

/* Steps from i on that the device can take together: none needs the host. */
static uint32_t exec_stretch(const limn_plan *p, uint32_t i) {
  uint32_t n = 0;
  while (i + n < p->nstep && !limn_step_host(&p->step[i + n])) n++;
  return n;
}

/* Launched as one, n steps fail as one. */
static int exec_all_failed(const limn_plan *p, const limn_step *s, uint32_t n,
                           int rc) {
  const limn_graph *g = p->expanded;
  const limn_node *a = limn_graph_node(g, s[0].node);
  const limn_node *b = limn_graph_node(g, s[n - 1].node);
  const char *from = limn_graph_text(g, a->line);
  const char *to = limn_graph_text(g, b->line);
  limn_error_prepend(p->c, "%s%sone of %u steps, from %s to %s%s%s%s, on %s: ",
                     from, *from ? ": " : "", n, limn_op_get(a->op)->name,
                     limn_op_get(b->op)->name, *to ? " (" : "", to,
                     *to ? ")" : "", p->dev->name);
  return rc;
}

static int exec_many(limn_plan *p, const limn_step *s, uint32_t n,
                     const limn_bind *b) {
  uint32_t failed = 0;
  int rc = p->dev->ops->launch_all(p->dev, s, n, b, &failed);
  if (rc == 0) return 0;
  return failed == n ? exec_all_failed(p, s, n, rc)
                     : exec_step_failed(p, &s[failed], rc);
}

static int exec_timed(limn_plan *p, const limn_step *s, const limn_bind *b) {
  uint64_t t0 = exec_now(p->c);
  LIMN_TRY(limn_plan_step(p, s, b));
  LIMN_TRY(p->dev->ops->wait(p->dev));
  t0 = exec_now(p->c) - t0;
  if (p->step_ns) p->step_ns[s - p->step] = t0;
  else exec_time(p, s, t0);
  return 0;
}

int limn_plan_steps(limn_plan *p, const limn_bind *b, bool *started) {
  bool timed = p->step_ns || limn_dumps(p->c, 'x');
  bool nan = p->c->flags.debug & LIMN_DEBUG_NAN;
  bool many = p->dev->ops->launch_all && !timed && !nan;
  uint32_t n;
  for (uint32_t i = 0; i < p->nstep; i += n) {
    const limn_step *s = &p->step[i];
    *started = true;
    n = many ? exec_stretch(p, i) : 1;
    if (n > 1) LIMN_TRY(exec_many(p, s, n, b));
    else LIMN_TRY(timed ? exec_timed(p, s, b) : limn_plan_step(p, s, b));
    if (nan) LIMN_TRY(limn_finite_check(p, s, b));
    n = LIMN_MAX(n, 1);
  }
  p->dev->launches += p->nstep;
  return 0;
}

/* -- Values -- */

/* The tensor behind a slot, borrowed. */
static int exec_slot_tensor(limn_plan *p, uint32_t slot,
                            const limn_run_arg *in, limn_tensor **out) {
  uint32_t i = p->info[slot].index;
  *out = p->written[slot];
  switch (p->info[slot].kind) {
    case LIMN_SLOT_INPUT: *out = p->held[i] ? p->held[i] : in[i].t; return 0;
    case LIMN_SLOT_CELL:
      return limn_cell_get(p->expanded->cell[i].cell, p->dev, out);
    case LIMN_SLOT_CONST:
      return limn_cell_get(p->g->planner->konst[i], p->dev, out);
    default: return 0;
  }
}

/* Whether the slot is memory that the caller lent for this run, which nothing
 * else may keep: an output's, or an argument's of a call. */
static bool exec_is_lent(const limn_plan *p, uint32_t slot,
                         const limn_tensor *t, limn_tensor *const *into) {
  const limn_slot_info *info = &p->info[slot];
  if (info->kind == LIMN_SLOT_OUT) return into && into[info->index];
  return info->kind == LIMN_SLOT_INPUT && t->st->borrowed && !t->st->release;
}

static bool exec_same_view(const limn_view *a, const limn_view *b) {
  if (a->ndim != b->ndim || a->offset != b->offset) return false;
  for (int d = 0; d < a->ndim; d++)
    if (a->d[d] != b->d[d] || (a->d[d] != 1 && a->s[d] != b->s[d]))
      return false;
  return true;
}

/* View v of a slot as a tensor (+1): what is there, a view of it, or a copy of
 * what is lent. */
static int exec_value(limn_plan *p, uint32_t slot, int dtype, limn_view v,
                      const limn_run_arg *in, limn_tensor *const *into,
                      limn_tensor **out) {
  limn_shape s = {v.ndim, {0}};
  limn_tensor *t;
  int rc;
  *out = NULL;
  LIMN_TRY(exec_slot_tensor(p, slot, in, &t));
  v.offset += t->v.offset;
  if (!exec_is_lent(p, slot, t, into)) {
    if (!exec_same_view(&t->v, &v)) return limn_tensor_view(t, &v, out);
    limn_tensor_retain(t);
    *out = t;
    return 0;
  }
  memcpy(s.d, v.d, sizeof s.d);
  LIMN_TRY(limn_tensor_new(p->c, p->dev, dtype, &s, out));
  rc = limn_dev_copy(p->dev, dtype, (*out)->st->mem, &(*out)->v, dtype,
                     t->st->mem, &v);
  if (rc == 0) return 0;
  limn_tensor_release(*out);
  *out = NULL;
  return rc;
}

/* -- Commit -- */

/* A plan that a call holds takes the cell's last value back as the memory of
 * its next one, so that runs allocate nothing. */
static void exec_keep_spare(limn_plan *p, uint32_t slot, limn_tensor *old) {
  if (p->pins && p->info[slot].kind == LIMN_SLOT_WRITE && !p->spare[slot] &&
      limn_tensor_is_free(old))
    p->spare[slot] = old;
  else
    limn_tensor_release(old);
}

static int exec_commit_cell(limn_plan *p, const limn_write_info *w,
                            limn_tensor *t, const limn_bind *b) {
  limn_cell *cell = p->expanded->cell[w->cell].cell;
  int at = p->dev->index, rc;
  limn_tensor *old = at < cell->nrep ? cell->rep[at].value : NULL;
  if (old) limn_tensor_retain(old);
  rc = limn_cell_commit(cell, t);
  cell->run_serial = b->serial;
  cell->run_dev = p->dev;
  if (old) exec_keep_spare(p, w->slot, old);
  return rc;
}

/* All cells change together: first everything that may fail, then the rest. */
static int exec_commit(limn_plan *p, const limn_bind *b,
                       const limn_run_arg *in, limn_tensor *const *into) {
  uint32_t n = p->nwrite, got = 0;
  int rc = 0;
  for (; got < n; got++) {
    const limn_write_info *w = &p->write[got];
    LIMN_GO(exec_value(p, w->slot, w->dtype, w->v, in, into, &p->commit[got]));
  }
  for (uint32_t i = 0; i < n; i++) {
    int r = exec_commit_cell(p, &p->write[i], p->commit[i], b);
    if (r < 0) rc = r;
  }
bail:
  for (uint32_t i = 0; i < got; i++) limn_tensor_release(p->commit[i]);
  return rc;
}

/* A dry run hands back what it would have written. */
static int exec_keep(limn_plan *p, const limn_run_arg *in) {
  for (uint32_t i = 0; p->kept && i < p->nwrite; i++) {
    const limn_write_info *w = &p->write[i];
    LIMN_TRY(exec_value(p, w->slot, w->dtype, w->v, in, NULL, &p->kept[i]));
  }
  return 0;
}

static void exec_void(limn_plan *p) {
  for (uint32_t i = 0; i < p->nwrite; i++)
    limn_cell_void(p->expanded->cell[p->write[i].cell].cell, p->c->error);
}

/* -- Results -- */

static int exec_out_tensor(limn_plan *p, const limn_out_info *o, uint32_t k,
                           const limn_run_arg *in, limn_tensor *const *into,
                           limn_tensor **out) {
  limn_tensor *t, *to = into ? into[k] : NULL;
  limn_view v = o->v;
  if (!to && !o->whole)
    return exec_value(p, o->slot, o->dtype, v, in, into, out);
  LIMN_TRY(exec_slot_tensor(p, o->slot, in, &t));
  if (to && to != t) {
    v.offset += t->v.offset;
    LIMN_TRY(limn_dev_copy(p->dev, o->dtype, to->st->mem, &to->v, o->dtype,
                           t->st->mem, &v));
    t = to;
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
  if (p->g->nout) memset(out, 0, p->g->nout * sizeof *out);
  p->busy = true;
  limn_plan_hold(p, in);
  for (uint32_t k = 0; into && k < p->g->nout; k++)
    if (into[k]) LIMN_GO(limn_plan_check_into(p, in, into, k));
  LIMN_GO(limn_plan_numbers(p, in));
  LIMN_GO(limn_plan_bind(p, in, into, scratch));
  LIMN_GO(exec_pace(p->dev));
  b.slot = p->slot;
  b.imm = p->imm;
  limn_plan_draws(p, p->c->seed, p->c->draws);
  b.draw = p->draw;
  b.serial = ++p->c->serial;
  b.fault = &fault;
  b.site = p->c->eager_site;
  b.turn = p->c->turn;
  b.c = p->c;
  p->c->draws += p->g->draws;
  LIMN_GO(limn_plan_steps(p, &b, &started));
  LIMN_GO(exec_fault(p, &fault));
  LIMN_GO(exec_results(p, in, into, out));
  LIMN_GO(p->dry ? exec_keep(p, in) : exec_commit(p, &b, in, into));
bail:
  /* Looking for NaN nothing is written in place: all cells are as before. */
  if (rc < 0 && started && !p->dry && !(p->c->flags.debug & LIMN_DEBUG_NAN))
    exec_void(p);
  if (rc < 0) limn_results_release(p->g, out);
  limn_plan_unbind(p, in);
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

int limn_plan_get(limn_graph *g, limn_device *dev, const limn_run_arg *in,
                  limn_plan **out) {
  LIMN_TRY(exec_check(g, &dev, in));
  return limn_plan_find(g, dev, in, out);
}

static int exec_graph(limn_graph *g, limn_device *dev, const limn_run_arg *in,
                      limn_tensor *const *into, limn_result *out) {
  limn_plan *p;
  LIMN_TRY(limn_plan_get(g, dev, in, &p));
  p->g->planner->stats.runs++;
  if (g->c->flags.verify) return limn_plan_verify(p, in, into, out);
  return limn_plan_run(p, in, into, NULL, out);
}

int limn_graph_run(limn_graph *g, limn_device *dev, const limn_run_arg *in,
                   limn_tensor *const *into, limn_result *out) {
  limn_context *c = g->c;
  uint32_t passes = c->flags.passes;
  int rc;
  if (!c->flags.debug) return exec_graph(g, dev, in, into, out);
  if (c->flags.debug & LIMN_DEBUG_NAN) c->flags.passes = 0; /* op by op */
  rc = c->flags.debug & LIMN_DEBUG_KEEP && !g->eager
           ? limn_keep_run(g, dev, in, into, out)
           : exec_graph(g, dev, in, into, out);
  c->flags.passes = passes;
  return rc;
}

int limn_graph_prepare(limn_graph *g, limn_device *dev,
                       const limn_run_arg *in) {
  limn_plan *p;
  LIMN_TRY(limn_plan_get(g, dev, in, &p));
  return limn_plan_scratch(p);
}
