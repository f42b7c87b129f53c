/* What a plan looks like in words. */
#include <stdio.h>

#include "planner.h"

/* -- Plans -- */

static const char *const explain_kinds[] = {
    "group", "reduce", "matmul", "arg", "row", "norm", "batch", "cum", "select",
    "gather", "index_add", "scatter_add", "sort", "pool", "conv",
    "linalg", "print", "cond", "while", "scan"};
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

/* Bytes that a step writes. */
static int64_t explain_bytes(const limn_step *st) {
  int64_t n = 0;
  for (int k = 0; k < st->nout; k++)
    n += limn_numel(st->out[k].v.ndim, st->out[k].v.d) *
         limn_dtype_size(st->out[k].dtype);
  return n;
}

static void explain_region(const limn_region_plan *r, int indent, limn_str *s);

/* ns: the steps' times, or NULL */
static void explain_steps(const limn_plan *p, const uint64_t *ns, int indent,
                          limn_str *s) {
  for (uint32_t i = 0; i < p->nstep; i++) {
    const limn_step *st = &p->step[i];
    const limn_node *n = limn_graph_node(p->expanded, st->node);
    if (ns)
      limn_str_addf(s, "%9.1f us %9.1f KB ", (double)ns[i] / 1e3,
                    (double)explain_bytes(st) / 1024);
    limn_str_addf(s, "%*s%2u %s", indent, "", i + 1, explain_kinds[st->kind]);
    if (st->kind != LIMN_STEP_GROUP && !limn_step_host(st))
      limn_str_addf(s, " %s", limn_op_get(st->op)->name);
    for (int k = 0; k < st->nout; k++) explain_operand(p, &st->out[k], s);
    limn_str_add(s, " <-");
    for (int k = 0; k < st->nin; k++)
      if (limn_step_reads(st, k))
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
    explain_steps(r->in[i].p, NULL, indent, s);
  }
}

static void explain_plan(const limn_plan *p, const uint64_t *ns,
                         limn_str *s) {
  limn_str_addf(s, "plan %s on %s: %u steps, %zu bytes of scratch\n",
                p->g->name, p->dev->name, p->nstep, p->scratch);
  explain_steps(p, ns, 2, s);
}

/* -- Where the time goes -- */

typedef struct {
  const char *name;
  uint64_t ns;
  int64_t bytes;
} explain_sum;

/* Sums of the steps by line or by module path, the dearest first. */
static int explain_sums(const limn_plan *p, const uint64_t *ns, bool path,
                        limn_str *s) {
  size_t size = (p->nstep + 1u) * sizeof(explain_sum);
  explain_sum *sum = limn_alloc(p->c, size), best;
  uint32_t count = 0;
  if (!sum) return LIMN_EMEM;
  for (uint32_t i = 0; i < p->nstep; i++) {
    const limn_node *n = limn_graph_node(p->expanded, p->step[i].node);
    const char *name = limn_graph_text(p->expanded, path ? n->path : n->line);
    uint32_t k = 0;
    while (k < count && strcmp(sum[k].name, name)) k++;
    if (k == count) sum[count++] = (explain_sum){name, 0, 0};
    sum[k].ns += ns[i];
    sum[k].bytes += explain_bytes(&p->step[i]);
  }
  if (count > 1 || (count == 1 && *sum[0].name))
    limn_str_addf(s, "by %s:\n", path ? "module" : "line");
  else
    count = 0; /* no step has a path */
  for (uint32_t i = 0; i < count; i++) {
    for (uint32_t k = i + 1; k < count; k++)
      if (sum[k].ns > sum[i].ns) best = sum[i], sum[i] = sum[k], sum[k] = best;
    limn_str_addf(s, "%9.1f us %9.1f KB  %s\n", (double)sum[i].ns / 1e3,
                  (double)sum[i].bytes / 1024,
                  *sum[i].name ? sum[i].name : "the rest");
  }
  limn_free(p->c, sum, size);
  return 0;
}

/* A run that changes nothing, for its times: no cell is written, no draw is
 * taken, no write happens in place. */
static int explain_run(limn_plan *p, const limn_run_arg *in) {
  limn_context *c = p->c;
  size_t size = (p->g->nout + 1u) * sizeof(limn_result);
  limn_result *out = limn_alloc(c, size);
  uint32_t passes = c->flags.passes;
  uint64_t draws = c->draws;
  int rc;
  if (!out) return LIMN_EMEM;
  c->flags.passes &= ~(uint32_t)LIMN_PASS_INPLACE;
  p->dry = true;
  rc = limn_plan_run(p, in, NULL, NULL, out);
  p->dry = false;
  c->flags.passes = passes;
  c->draws = draws;
  if (rc == 0) limn_results_release(p->g, out);
  limn_free(c, out, size);
  return rc;
}

static int explain_measured(limn_plan *p, const limn_run_arg *in,
                            limn_str *out) {
  size_t size = (p->nstep + 1u) * sizeof(uint64_t);
  uint64_t *ns = limn_alloc(p->c, size);
  int rc = ns ? explain_run(p, in) : LIMN_EMEM; /* to warm up */
  if (rc == 0) rc = p->dev->ops->wait(p->dev);
  if (rc == 0) {
    p->step_ns = ns;
    rc = explain_run(p, in);
    p->step_ns = NULL;
  }
  if (rc == 0) explain_plan(p, ns, out);
  if (rc == 0) rc = explain_sums(p, ns, false, out);
  if (rc == 0) rc = explain_sums(p, ns, true, out);
  limn_free(p->c, ns, size);
  return rc;
}

/* Graphs that print are not run for it. */
int limn_graph_explain(limn_graph *g, limn_device *dev, const limn_run_arg *in,
                       limn_str *out) {
  limn_plan *p;
  LIMN_TRY(limn_graph_prepare(g, dev, in));
  if (!dev) dev = g->planner->first->dev;
  LIMN_TRY(limn_plan_find(g, dev, in, &p));
  if (g->neffect) explain_plan(p, NULL, out);
  else LIMN_TRY(explain_measured(p, in, out));
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
    explain_plan(p, NULL, &s);
    limn_log(c, 'v', "%s", s.s ? s.s : "");
  }
  limn_str_free(&s);
}
