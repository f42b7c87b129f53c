/* Guards: whether they hold, and how they read when they do not. */
#include <stdio.h>

#include "op_rules.h"

static const char *guard_sign(int op) {
  switch (op) {
    case OP_eq: case OP_is: return "==";
    case OP_ne: return "~=";
    case OP_lt: return "<";
    case OP_le: return "<=";
    case OP_gt: return ">";
    case OP_ge: return ">=";
    case OP_add: return "+";
    case OP_sub: return "-";
    case OP_mul: return "*";
    case OP_div: return "/";
    case OP_remainder: return "%";
    default: return NULL;
  }
}

/* A plan value as the user would write it; depth-limited. */
static void guard_host(const limn_graph *g, limn_arg a, int depth,
                         limn_str *s) {
  char buf[128];
  const limn_node *n;
  const limn_arg *x;
  const char *sign;
  if (a.tag != LIMN_A_REF || depth > 16) {
    limn_str_add(s, limn_arg_text(g, a, buf, sizeof buf));
    return;
  }
  n = limn_graph_node(g, a.u.ref);
  x = limn_node_args(g, a.u.ref);
  sign = guard_sign(n->op);
  if (n->op == OP_mode) {
    uint32_t name = g->mode[x[0].u.i].name;
    limn_str_addf(s, "%s.training", name ? limn_graph_text(g, name) : "module");
  } else if (n->kind == LIMN_V_TENSOR || n->op == OP_number) {
    const char *name = limn_arg_text(g, a, buf, sizeof buf);
    limn_str_add(s, n->kind == LIMN_V_BOOL ? name + 1 : name); /* a mode */
  } else if (sign && n->nargs == 2) {
    guard_host(g, x[0], depth + 1, s);
    limn_str_addf(s, " %s ", sign);
    guard_host(g, x[1], depth + 1, s);
  } else {
    limn_str_addf(s, "%s(", limn_op_get(n->op)->name);
    for (int i = 0; i < n->nargs; i++) {
      if (i) limn_str_add(s, ", ");
      guard_host(g, x[i], depth + 1, s);
    }
    limn_str_add(s, ")");
  }
}

static void guard_value(const limn_infer *I, limn_ref r, limn_str *s) {
  const limn_type *t = r <= I->n ? &I->t[r - 1] : NULL;
  if (!t || !t->known) limn_str_add(s, "unknown");
  else if (t->kind == LIMN_V_REAL) limn_str_real(s, t->f);
  else if (t->kind == LIMN_V_DTYPE) limn_str_add(s, limn_dtype_name(t->dtype));
  else limn_str_addf(s, "%lld", (long long)t->i);
}

/* "size(%x, 2) == 64 (it is 32)" */
static void guard_text(const limn_infer *I, limn_ref r, char *buf, size_t n) {
  const limn_graph *g = I->g;
  const limn_node *nd = limn_graph_node(g, r);
  const limn_arg *x = limn_node_args(g, r);
  limn_str s;
  limn_str_init(&s, g->c);
  guard_host(g, limn_aref(r), 0, &s);
  if (nd->nargs == 2 && x[0].tag == LIMN_A_REF) {
    bool two = x[1].tag == LIMN_A_REF;
    limn_str_add(&s, two ? " (they are " : " (it is ");
    guard_value(I, x[0].u.ref, &s);
    if (two) limn_str_add(&s, " and ");
    if (two) guard_value(I, x[1].u.ref, &s);
    limn_str_add(&s, ")");
  }
  snprintf(buf, n, "%s", s.s ? s.s : "?");
  limn_str_free(&s);
}

/* limn.by_device has a branch for one kind of device only. */
static int guard_device(const limn_infer *I, limn_ref r, const char *line) {
  limn_arg kind = limn_node_args(I->g, r)[0];
  bool cpu = !strcmp(limn_graph_text(I->g, kind.u.str), "cpu");
  return limn_hint(
      I->c,
      limn_fail(I->c, LIMN_EGUARD, "%s%sthis run is on %s, for which "
                "limn.by_device has nothing", line, *line ? ": " : "",
                I->device ? I->device : cpu ? "a GPU" : "the CPU"),
      "give it %s = function(...) ... end, too", cpu ? "gpu" : "cpu");
}

int limn_guards_check(limn_infer *I) {
  limn_graph *g = I->g;
  char text[160];
  for (uint32_t i = 0; i < g->nguard; i++) {
    const limn_type *t;
    limn_arg a = g->guard[i].cond;
    const char *line = limn_graph_text(g, g->guard[i].line);
    if (a.tag != LIMN_A_REF) continue;
    LIMN_TRY(limn_infer_upto(I, a.u.ref));
    t = &I->t[a.u.ref - 1];
    if (!t->known || t->i) continue;
    if (limn_graph_node(g, a.u.ref)->op == OP_on)
      return guard_device(I, a.u.ref, line);
    guard_text(I, a.u.ref, text, sizeof text);
    return limn_hint(
        g->c,
        limn_fail(g->c, LIMN_EGUARD,
                  "%s%sthe graph was traced for %s, which does not hold in "
                  "this run", line, *line ? ": " : "", text),
        "trace again for this case, or use limn.jit, which does so by itself");
  }
  return 0;
}
