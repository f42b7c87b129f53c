/* What a plan looks like in words, and the check of a run against the graph
 * unfused (LIMN_VERIFY=1). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "planner.h"

/* -- Plans -- */

static const char *const explain_kinds[] = {
    "group", "reduce", "matmul", "arg", "row", "norm", "cum", "select",
    "gather", "index_add", "scatter_add", "sort", "conv3", "linalg", "print",
    "cond", "while", "scan"};
static const char *const explain_slots[] = {"input", "cell", "const", "out",
                                            "write", "temp"};

static void explain_operand(const limn_plan *p, const limn_operand *o,
                            limn_str *s) {
  char buf[96];
  const limn_slot_info *i = &p->info[o->slot];
  limn_str_addf(s, " %s%u:%s%s", explain_slots[i->kind],
                i->kind == LIMN_SLOT_TEMP ? o->slot : i->index,
                limn_dtype_short(o->dtype),
                limn_shape_text(buf, sizeof buf, o->v.ndim, o->v.d));
  if (i->inplace) limn_str_add(s, " in place");
}

static void explain_code(const limn_group *g, limn_str *s) {
  limn_str_add(s, " {");
  for (int i = 0; i < g->ncode; i++) {
    int op = g->code[i].op;
    limn_str_addf(s, " %s", op == LIMN_I_LOAD ? "load"
                            : op == LIMN_I_IMM ? "number"
                            : op == LIMN_I_CAST ? "cast"
                            : op == LIMN_I_STORE ? "store"
                            : limn_op_get(op)->name);
  }
  limn_str_add(s, " }");
}

static void explain_region(const limn_region_plan *r, int indent, limn_str *s);

static void explain_steps(const limn_plan *p, int indent, limn_str *s) {
  for (uint32_t i = 0; i < p->nstep; i++) {
    const limn_step *st = &p->step[i];
    const limn_node *n = limn_graph_node(p->expanded, st->node);
    limn_str_addf(s, "%*s%2u %s", indent, "", i + 1, explain_kinds[st->kind]);
    if (st->kind != LIMN_STEP_GROUP && !limn_step_host(st))
      limn_str_addf(s, " %s", limn_op_get(st->op)->name);
    for (int k = 0; k < st->nout; k++) explain_operand(p, &st->out[k], s);
    limn_str_add(s, " <-");
    for (int k = 0; k < st->nin; k++)
      if (!(st->kind == LIMN_STEP_MATMUL && k == 2 && !st->bias))
        explain_operand(p, &st->in[k], s);
    if (st->group) explain_code(st->group, s);
    limn_str_addf(s, "  # %s %s\n", limn_graph_text(p->expanded, n->line),
                  limn_graph_text(p->expanded, n->path));
    if (st->kind > LIMN_STEP_PRINT) explain_region(st->code, indent + 5, s);
  }
}

static void explain_region(const limn_region_plan *r, int indent,
                           limn_str *s) {
  for (int i = 0; i < r->n; i++) {
    if (i) limn_str_addf(s, "%*s--\n", indent, "");
    explain_steps(r->in[i].p, indent, s);
  }
}

static void explain_plan(const limn_plan *p, limn_str *s) {
  limn_str_addf(s, "plan %s on %s: %u steps, %zu bytes of scratch\n",
                p->g->name, p->dev->name, p->nstep, p->scratch);
  explain_steps(p, 2, s);
}

int limn_graph_explain(limn_graph *g, limn_device *dev, const limn_run_arg *in,
                       limn_str *out) {
  limn_plan *p;
  LIMN_TRY(limn_graph_prepare(g, dev, in));
  if (!dev) dev = g->planner->first->dev;
  LIMN_TRY(limn_plan_find(g, dev, in, &p));
  explain_plan(p, out);
  return out->rc;
}

void limn_plan_dump(const limn_plan *p) {
  limn_context *c = p->c;
  limn_str s;
  limn_str_init(&s, c);
  if (limn_dumps(c, 'g')) {
    limn_graph_dump(p->g, &s, true);
    limn_log(c, 'v', "%s", s.s ? s.s : "");
  }
  limn_str_free(&s);
  limn_str_init(&s, c);
  if (limn_dumps(c, 'f')) {
    limn_graph_dump(p->expanded, &s, true);
    limn_log(c, 'v', "%s", s.s ? s.s : "");
  }
  limn_str_free(&s);
  limn_str_init(&s, c);
  if (limn_dumps(c, 'p')) {
    explain_plan(p, &s);
    limn_log(c, 'v', "%s", s.s ? s.s : "");
  }
  limn_str_free(&s);
}

/* -- Verify -- */

static double verify_tolerance(int dtype) {
  switch (dtype) {
    case LIMN_F64: return 1e-9;
    case LIMN_F32: return 1e-3;
    case LIMN_F16: return 2e-2;
    case LIMN_BF16: return 1e-1;
    default: return 0;
  }
}

/* Elementwise |a - b| <= tol * (1 + max |b|); NaN equals NaN. */
static int verify_tensor(limn_plan *p, limn_tensor *a, limn_tensor *b,
                         const char *what) {
  limn_context *c = p->c;
  int64_t n = limn_tensor_numel(a);
  int size = limn_dtype_size(a->dtype);
  size_t bytes = (size_t)(n * size) + 1;
  char *x = limn_alloc(c, bytes), *y = limn_alloc(c, bytes);
  double tol = verify_tolerance(a->dtype), scale = 1;
  int rc = x && y ? 0 : LIMN_EMEM;
  if (rc == 0) rc = limn_tensor_read(a, x, (size_t)(n * size));
  if (rc == 0) rc = limn_tensor_read(b, y, (size_t)(n * size));
  for (int64_t i = 0; rc == 0 && i < n; i++) {
    double v = fabs(limn_load_real(a->dtype, y + i * size));
    if (v > scale && v < 1e300) scale = v;
  }
  for (int64_t i = 0; rc == 0 && i < n; i++) {
    double u = limn_load_real(a->dtype, x + i * size);
    double v = limn_load_real(a->dtype, y + i * size);
    bool near = u == v || (u != u && v != v) || fabs(u - v) <= tol * scale;
    if (!memcmp(x + i * size, y + i * size, (size_t)size)) continue;
    if (near && limn_dtype_float(a->dtype)) continue;
    rc = limn_fail(c, LIMN_EARG,
                   "LIMN_VERIFY: %s of %s differs at element %lld: %g fused, "
                   "%g unfused", what, p->g->name, (long long)i + 1, u, v);
  }
  limn_free(c, x, bytes);
  limn_free(c, y, bytes);
  return rc;
}

/* The cells as they are now against what the dry run kept. */
static int verify_writes(limn_plan *p, const limn_plan *plain) {
  for (uint32_t i = 0; i < plain->nwrite; i++) {
    limn_cell *cell = plain->expanded->cell[plain->write[i].cell].cell;
    limn_tensor *now;
    LIMN_TRY(limn_cell_get(cell, p->dev, &now));
    LIMN_TRY(verify_tensor(p, now, plain->kept[i],
                           cell->name ? cell->name : "a cell"));
  }
  return 0;
}

/* Runs `plain`, the same graph unfused, without committing. */
static int verify_dry(limn_plan *plain, const limn_run_arg *in,
                      limn_result *ref) {
  limn_context *c = plain->c;
  uint32_t passes = c->flags.passes;
  int rc;
  c->flags.passes = 0; /* no write in place: it is not to be kept */
  plain->dry = true;
  rc = limn_plan_run(plain, in, NULL, NULL, ref);
  plain->dry = false;
  c->flags.passes = passes;
  return rc;
}

static int verify_compare(limn_plan *p, const limn_plan *plain,
                          const limn_result *out, const limn_result *ref) {
  for (uint32_t k = 0; k < p->g->nout; k++)
    if (out[k].t) LIMN_TRY(verify_tensor(p, out[k].t, ref[k].t, "result"));
  return verify_writes(p, plain);
}

static int verify_run(limn_plan *p, limn_plan *plain, const limn_run_arg *in,
                      limn_tensor *const *into, limn_result *out) {
  limn_context *c = p->c;
  size_t size = (p->g->nout + 1) * sizeof(limn_result);
  size_t kept = (plain->nwrite + 1) * sizeof(limn_tensor *);
  limn_result *ref = limn_alloc(c, size);
  uint64_t draws = c->draws;
  int rc;
  plain->kept = limn_alloc(c, kept);
  rc = ref && plain->kept ? verify_dry(plain, in, ref) : LIMN_EMEM;
  c->draws = draws;
  if (rc == 0) {
    rc = limn_plan_run(p, in, into, NULL, out);
    if (rc == 0) {
      rc = verify_compare(p, plain, out, ref);
      if (rc < 0) limn_results_release(p->g, out);
    }
  }
  if (ref) limn_results_release(p->g, ref);
  for (uint32_t i = 0; plain->kept && i < plain->nwrite; i++)
    limn_tensor_release(plain->kept[i]);
  limn_free(c, plain->kept, kept);
  plain->kept = NULL;
  limn_free(c, ref, size);
  return rc;
}

/* Run unfused first without committing, then as planned, and compare results
 * and writes. Graphs that print run once: they would print twice. */
int limn_plan_verify(limn_plan *p, const limn_run_arg *in,
                     limn_tensor *const *into, limn_result *out) {
  limn_context *c = p->c;
  limn_plan *plain;
  uint32_t passes = c->flags.passes;
  int rc;
  if (p->g->neffect) return limn_plan_run(p, in, into, NULL, out);
  limn_plan_pin(p);
  c->flags.passes = 0;
  rc = limn_plan_find(p->g, p->dev, in, &plain);
  c->flags.passes = passes;
  if (rc == 0) rc = verify_run(p, plain, in, into, out);
  limn_plan_unpin(p);
  return rc;
}
