/* What a plan looks like in words. */
#include <stdio.h>

#include "planner.h"

/* -- Plans -- */

static const char *const explain_kinds[] = {
    "group", "reduce", "matmul", "arg", "row", "norm", "cum", "select",
    "gather", "index_add", "scatter_add", "sort", "pool", "conv3", "linalg",
    "print", "cond", "while", "scan"};
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
