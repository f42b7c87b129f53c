/* Inference through regions: their results for the operands of a node, and
 * what has to agree (the branches of a cond, what a loop carries). */
#include <stdio.h>

#include "op_rules.h"

#define TEXT 160

/* The node whose region is looked at, and what it is called with. */
typedef struct {
  limn_infer *I;
  const limn_node *nd;
  const limn_arg *arg;
  const limn_type *a;
  bool *inside; /* the error has its place already */
} region_call;

static int region_fail(const region_call *k, const char *what) {
  return limn_fail(k->I->c, LIMN_EFORMAT, "%s", what);
}

static void region_free(limn_context *c, limn_type *t, int n) {
  if (t && n) limn_free(c, t, (size_t)n * sizeof *t);
}

/* The results of region `f` for inputs of types `in`, as an array that the
 * caller owns. */
static int region_results(const region_call *k, limn_graph *f,
                          const limn_type *in, int nin, limn_type **out) {
  limn_context *c = k->I->c;
  limn_infer R = {0};
  int n = (int)f->nout, rc;
  *out = NULL;
  if (nin != (int)f->nin)
    return limn_fail(c, LIMN_EFORMAT, "%d values for a region of %u", nin,
                     f->nin);
  R.c = c;
  R.g = f;
  R.on_gpu = k->I->on_gpu;
  R.device = k->I->device;
  R.in = in;
  rc = limn_guards_check(&R);
  if (rc == 0) rc = limn_infer_upto(&R, f->nnode);
  *k->inside = rc < 0;
  if (rc == 0 && n) {
    *out = limn_alloc(c, (size_t)n * sizeof **out);
    rc = *out ? limn_infer_args(&R, f->out, n, *out, NULL, 0) : LIMN_EMEM;
  }
  if (rc < 0) {
    region_free(c, *out, n);
    *out = NULL;
  }
  limn_infer_free(&R);
  return rc;
}

/* The results become the node's list, for `pick`. */
static void region_give(limn_type *out, limn_type *results, int n) {
  memset(out, 0, sizeof *out);
  out->kind = LIMN_V_LIST;
  out->list = results;
  out->n = results ? n : 0;
}

/* custom(xs, f, vjp): it stands for its first result, too. Operands after those
 * of f are for its gradient. */
static int region_custom(const region_call *k, limn_type *out) {
  limn_graph *f = limn_graph_region(k->I->g, k->arg[1]);
  limn_type *results;
  if (!f || k->a[0].kind != LIMN_V_LIST)
    return region_fail(k, "there is no region");
  LIMN_TRY(region_results(k, f, k->a[0].list,
                          LIMN_MIN(k->a[0].n, (int)f->nin), &results));
  region_give(out, results, (int)f->nout);
  if (!results) return 0;
  *out = results[0];
  out->list = results;
  out->n = (int)f->nout;
  return 0;
}

/* -- Cond -- */

static bool region_same(const limn_type *a, const limn_type *b) {
  if (a->kind != LIMN_V_TENSOR || b->kind != LIMN_V_TENSOR) return false;
  return a->dtype == b->dtype && limn_shape_eq(&a->shape, &b->shape);
}

static int region_agree(const region_call *k, const limn_type *f,
                        const limn_type *g, int n) {
  char was[TEXT], now[TEXT];
  for (int i = 0; i < n; i++)
    if (!region_same(&f[i], &g[i]))
      return limn_hint(
          k->I->c,
          limn_fail(k->I->c, LIMN_ESHAPE,
                    "result %d is %s in one branch and %s in the other", i + 1,
                    limn_type_text(was, sizeof was, &f[i]),
                    limn_type_text(now, sizeof now, &g[i])),
          "both branches must give the same shape and dtype, because the data "
          "decides which one runs");
  return 0;
}

/* A predicate that the plan knows leaves one branch. One that is not a tensor
 * may be known later (the device, while tracing). */
static int region_cond(const region_call *k, limn_type *out) {
  const limn_type *p = &k->a[0], *xs = &k->a[1];
  limn_graph *f = limn_graph_region(k->I->g, k->arg[2]);
  limn_graph *g = limn_graph_region(k->I->g, k->arg[3]);
  limn_type *rf, *rg;
  int n, rc;
  if (!f || !g || f->nout != g->nout || xs->kind != LIMN_V_LIST)
    return region_fail(k, "its branches do not belong together");
  if (p->kind != LIMN_V_BOOL &&
      (p->kind != LIMN_V_TENSOR || p->shape.ndim || p->dtype != LIMN_BOOL)) {
    char text[TEXT];
    return limn_hint(k->I->c,
                     limn_fail(k->I->c, LIMN_ESHAPE,
                               "the condition is %s; one bool is wanted",
                               limn_type_text(text, sizeof text, p)),
                     "compare, and reduce with :any() or :all()");
  }
  n = (int)f->nout;
  if (p->kind == LIMN_V_BOOL && p->known && !p->i) f = g;
  LIMN_TRY(region_results(k, f, xs->list, xs->n, &rf));
  if (p->kind != LIMN_V_BOOL || (!p->known && k->I->on_gpu >= 0)) {
    rc = region_results(k, g, xs->list, xs->n, &rg);
    if (rc == 0) rc = region_agree(k, rf, rg, n);
    region_free(k->I->c, rg, n);
    if (rc < 0) {
      region_free(k->I->c, rf, n);
      return rc;
    }
  }
  region_give(out, rf, n);
  return 0;
}

/* -- Loops -- */

/* The inputs of a loop's body: carried values, rows, what it captured. */
static int region_loop_inputs(const region_call *k, const limn_type *xs,
                              limn_type **out, int *n) {
  const limn_type *carry = &k->a[0], *outer = xs ? &k->a[2] : &k->a[1];
  int at = 0;
  if (carry->kind != LIMN_V_LIST || outer->kind != LIMN_V_LIST ||
      (xs && xs->kind != LIMN_V_LIST))
    return region_fail(k, "its operands are no lists");
  *n = carry->n + (xs ? xs->n : 0) + outer->n;
  *out = limn_alloc(k->I->c, (size_t)(*n + 1) * sizeof **out);
  if (!*out) return LIMN_EMEM;
  for (int i = 0; i < carry->n; i++) (*out)[at++] = carry->list[i];
  for (int i = 0; xs && i < xs->n; i++) {
    limn_type t = xs->list[i];
    if (t.shape.ndim > 0)
      memmove(t.shape.d, t.shape.d + 1, sizeof t.shape.d - sizeof *t.shape.d);
    if (t.shape.ndim > 0) t.shape.ndim--;
    (*out)[at++] = t;
  }
  for (int i = 0; i < outer->n; i++) (*out)[at++] = outer->list[i];
  return 0;
}

/* What is carried keeps its shape and dtype. */
static int region_carried(const region_call *k, const limn_graph *body,
                          const limn_type *now) {
  const limn_type *was = &k->a[0];
  char text[2][TEXT];
  for (int i = 0; i < was->n; i++) {
    const char *line = "", *own = limn_graph_text(k->I->g, k->nd->line);
    if (region_same(&was->list[i], &now[i])) continue;
    if (body->out[i].tag == LIMN_A_REF)
      line = limn_graph_text(
          body, limn_graph_node(body, body->out[i].u.ref)->line);
    return limn_hint(
        k->I->c,
        limn_fail(k->I->c, LIMN_ESHAPE,
                  "the carried value %%%s is %s and becomes %s%s%s",
                  limn_graph_text(body, body->in[i].name),
                  limn_type_text(text[0], sizeof text[0], &was->list[i]),
                  limn_type_text(text[1], sizeof text[1], &now[i]),
                  *line && strcmp(line, own) ? " at " : "",
                  strcmp(line, own) ? line : ""),
        "a loop carries values of one shape and dtype");
  }
  return 0;
}

static int region_while(const region_call *k, limn_type *out) {
  limn_context *c = k->I->c;
  limn_graph *test = limn_graph_region(k->I->g, k->arg[2]);
  limn_graph *body = limn_graph_region(k->I->g, k->arg[3]);
  limn_type *in = NULL, *go = NULL, *now = NULL;
  char text[TEXT];
  int nin = 0, nc = k->a[0].n, rc = 0;
  if (!test || !body || test->nout != 1 || (int)body->nout != nc)
    return region_fail(k, "its regions do not belong together");
  LIMN_GO(region_loop_inputs(k, NULL, &in, &nin));
  LIMN_GO(region_results(k, test, in, nin, &go));
  if (go->kind != LIMN_V_TENSOR || go->shape.ndim || go->dtype != LIMN_BOOL)
    LIMN_GO(limn_hint(
        c, limn_fail(c, LIMN_ESHAPE, "the test gives %s; one bool is wanted",
                     limn_type_text(text, sizeof text, go)),
        "compare, and reduce with :any() or :all()"));
  LIMN_GO(region_results(k, body, in, nin, &now));
  LIMN_GO(region_carried(k, body, now));
  region_give(out, now, nc);
bail:
  region_free(c, go, 1);
  region_free(c, in, in ? nin + 1 : 0);
  if (rc < 0) region_free(c, now, nc);
  return rc;
}

/* The number of steps: the rows of every one of xs. */
static int region_steps(const region_call *k, int64_t *steps) {
  const limn_type *xs = &k->a[1];
  char text[2][TEXT];
  if (xs->n == 0) return region_fail(k, "there is nothing to go over");
  for (int i = 0; i < xs->n; i++) {
    const limn_type *t = &xs->list[i];
    if (t->kind != LIMN_V_TENSOR || t->shape.ndim == 0)
      return limn_fail(k->I->c, LIMN_ESHAPE,
                       "it goes over the rows of %s, which has none",
                       limn_type_text(text[0], sizeof text[0], t));
    if (t->shape.d[0] != xs->list[0].shape.d[0])
      return limn_fail(k->I->c, LIMN_ESHAPE,
                       "it goes over %lld rows of %s and %lld of %s",
                       (long long)xs->list[0].shape.d[0],
                       limn_type_text(text[0], sizeof text[0], &xs->list[0]),
                       (long long)t->shape.d[0],
                       limn_type_text(text[1], sizeof text[1], t));
  }
  *steps = xs->list[0].shape.d[0];
  return 0;
}

/* Results after the carried ones are stacked. */
static int region_stack(const region_call *k, limn_type *t, int from, int n,
                        int64_t steps) {
  for (int i = from; i < n; i++) {
    limn_shape *s = &t[i].shape;
    int64_t numel, bytes;
    if (t[i].kind != LIMN_V_TENSOR)
      return region_fail(k, "a step gives no tensor");
    if (s->ndim == LIMN_MAXDIM)
      return limn_fail(k->I->c, LIMN_ESHAPE, "what is stacked has %d dims "
                       "already", LIMN_MAXDIM);
    memmove(s->d + 1, s->d, (size_t)s->ndim * sizeof *s->d);
    s->d[0] = steps;
    s->ndim++;
    LIMN_TRY(limn_shape_bytes(k->I->c, s, t[i].dtype, &numel, &bytes));
  }
  return 0;
}

/* Without a step, what is carried stays what it is: the body, which may be
 * none for the sizes of this run, is not looked at. */
static int region_scan_none(const region_call *k, limn_type *out) {
  const limn_type *carry = &k->a[0];
  limn_type *now = limn_alloc(k->I->c, (size_t)carry->n * sizeof *now);
  if (!now) return LIMN_EMEM;
  memcpy(now, carry->list, (size_t)carry->n * sizeof *now);
  region_give(out, now, carry->n);
  return 0;
}

static int region_scan(const region_call *k, limn_type *out) {
  limn_context *c = k->I->c;
  limn_graph *body = limn_graph_region(k->I->g, k->arg[3]);
  limn_type *in = NULL, *now = NULL;
  int64_t steps = 0;
  int nin = 0, nc = k->a[0].n, n, rc = 0;
  if (!body || (int)body->nout < nc || k->a[1].kind != LIMN_V_LIST)
    return region_fail(k, "its body does not belong to it");
  n = (int)body->nout;
  LIMN_TRY(region_steps(k, &steps));
  if (steps == 0 && n == nc && n > 0 && k->a[0].kind == LIMN_V_LIST)
    return region_scan_none(k, out);
  LIMN_GO(region_loop_inputs(k, &k->a[1], &in, &nin));
  LIMN_GO(region_results(k, body, in, nin, &now));
  LIMN_GO(region_carried(k, body, now));
  LIMN_GO(region_stack(k, now, nc, n, steps));
  region_give(out, now, n);
bail:
  region_free(c, in, in ? nin + 1 : 0);
  if (rc < 0) region_free(c, now, n);
  return rc;
}

int limn_infer_region(limn_infer *I, const limn_node *nd, const limn_arg *arg,
                      const limn_type *a, limn_type *out, bool *inside) {
  region_call k = {I, nd, arg, a, inside};
  switch (nd->op) {
    case OP_custom: return region_custom(&k, out);
    case OP_cond: return region_cond(&k, out);
    case OP_while: return region_while(&k, out);
    default: return region_scan(&k, out);
  }
}
