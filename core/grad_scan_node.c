/* The gradient of a scan, as nodes: the forward scan gets its wider body, the
 * gradient's scan its operands; then come the products and sums of what it
 * stacked. See grad_scan.c. */
#include "grad_scan.h"

/* -- The scan -- */

/* Operands of the new scan, and the inputs of its body in the same order. */
typedef struct {
  limn_ref *ref;
  limn_arg *x;
  uint32_t n;
} scan_inputs;

typedef struct {
  limn_builder *b; /* of the graph that holds the scan */
  limn_region_call *k;
  scan_grad s;
  uint32_t *at;    /* per residual: which result of the forward scan */
  scan_inputs in;
  limn_ref back;   /* the new scan */
} scan_call;

static void scan_take(scan_call *c, limn_arg in, limn_arg x) {
  c->in.ref[c->in.n] = in.u.ref;
  c->in.x[c->in.n++] = x;
}

/* The stack of a kept value of the forward scan. */
static limn_arg scan_residual(scan_call *c, limn_ref r) {
  for (uint32_t i = 0; i < c->s.nkept; i++)
    if (c->s.kept[i] == r)
      return limn_region_pick(c->b, c->k->r, c->at[i]);
  return limn_none();
}

static limn_arg scan_list(scan_call *c, uint32_t from) {
  return limn_build_list(c->b, c->in.x + from, (int)(c->in.n - from));
}

static void scan_take_carry(scan_call *c) {
  const scan_grad *s = &c->s;
  for (uint32_t i = 0; i < s->nc; i++) {
    limn_arg g = i < c->k->ng ? c->k->g[i] : limn_none();
    if (!s->on[i]) continue;
    if (g.tag == LIMN_A_NONE) g = limn_build_zeros(c->b, c->k->x[i]);
    scan_take(c, s->seed[i], g);
  }
  for (uint32_t i = 0; i < s->nin; i++)
    if (s->sum[i].tag == LIMN_A_REF)
      scan_take(c, s->sum[i], limn_build_zeros(c->b, c->k->x[i]));
}

static void scan_take_xs(scan_call *c) {
  const scan_grad *s = &c->s;
  uint32_t from = c->in.n;
  for (uint32_t i = 0; i < s->nkept; i++)
    if (s->need[s->kept[i] - 1] & SCAN_KEPT)
      scan_take(c, limn_aref(s->kept[i]), scan_residual(c, s->kept[i]));
  for (uint32_t i = s->nc; i < s->nc + s->nx; i++)
    if (s->need[s->input[i] - 1])
      scan_take(c, limn_aref(s->input[i]), c->k->x[i]);
  for (uint32_t i = s->nc; i < s->ny; i++)
    if (s->seed[i].tag == LIMN_A_REF && s->need[s->seed[i].u.ref - 1])
      scan_take(c, s->seed[i], c->k->g[i]);
  if (c->in.n == from) /* the number of steps has to come from something */
    scan_take(c, limn_aref(s->input[s->nc]), c->k->x[s->nc]);
}

/* Of a carried value that was not kept, only the shape is needed, which all
 * of them share with the first. */
static void scan_take_outer(scan_call *c) {
  const scan_grad *s = &c->s;
  for (uint32_t i = 0; i < s->nin; i++) {
    limn_ref r = s->input[i];
    bool here = i < s->nc ? !(s->need[r - 1] & SCAN_KEPT) : i >= s->nc + s->nx;
    if (here && s->need[r - 1]) scan_take(c, limn_aref(r), c->k->x[i]);
  }
}

/* Node r of the copy becomes its input number i. */
static int scan_make_input(limn_graph *g, limn_ref r, uint32_t i) {
  limn_node *n = limn_graph_node(g, r);
  limn_arg a = limn_aint(i);
  uint32_t at;
  bool number = n->op == OP_number;
  LIMN_TRY(limn_graph_push_args(g, &a, 1, &at));
  n->op = number ? OP_number : OP_input;
  n->nargs = n->nresult = 1;
  n->flags = 0;
  n->args = at, n->line = n->path = 0;
  memset(&g->in[i], 0, sizeof *g->in);
  g->in[i].ref = r, g->in[i].number = number;
  return 0;
}

/* The copy, cut off from the forward pass. */
static int scan_cut(scan_call *c) {
  limn_graph *g = c->s.w.g;
  limn_region_strip(g);
  LIMN_TRY(limn_grow(g->c, &g->in, &g->in_cap, c->in.n + 1, sizeof *g->in));
  g->nin = c->in.n;
  for (uint32_t i = 0; i < c->in.n; i++)
    LIMN_TRY(scan_make_input(g, c->in.ref[i], i));
  LIMN_TRY(limn_region_rename(g));
  for (uint32_t i = 0; i < c->s.nout; i++)
    LIMN_TRY(limn_graph_add_out(g, c->s.out[i]));
  if (g->nout > UINT16_MAX)
    return limn_fail(g->c, LIMN_ETRACE, "the gradient of a scan has %u results"
                     "; %d at most", g->nout, UINT16_MAX);
  return limn_graph_compact(g);
}

/* Gives the forward scan its wider body. */
static int scan_widen_node(scan_call *c) {
  limn_graph *g = c->b->g, *wide;
  limn_node *n;
  uint32_t index;
  int rc;
  c->at = limn_alloc(g->c, (c->s.nkept + 1u) * sizeof *c->at);
  if (!c->at) return LIMN_EMEM;
  LIMN_TRY(scan_wider(&c->s, c->at, &wide));
  n = limn_graph_node(g, c->k->r);
  if (wide->nout == n->nresult) { /* it was made for a gradient already */
    limn_graph_release(wide);
    return 0;
  }
  n->nresult = (uint16_t)wide->nout;
  rc = limn_graph_add_region(g, wide, &index);
  limn_graph_release(wide);
  if (rc == 0) limn_node_args(g, c->k->r)[3] = limn_aint(index);
  return rc;
}

/* Arguments carry xs outer body reverse draw. */
static int scan_build(scan_call *c) {
  limn_arg a[LIMN_MAXARGS];
  uint32_t index, from = 0;
  memcpy(a, c->k->a, sizeof a);
  scan_take_carry(c);
  a[0] = scan_list(c, from), from = c->in.n;
  scan_take_xs(c);
  a[1] = scan_list(c, from), from = c->in.n;
  scan_take_outer(c);
  a[2] = scan_list(c, from);
  LIMN_TRY(c->b->rc);
  LIMN_TRY(scan_cut(c));
  LIMN_TRY(limn_graph_add_region(c->b->g, c->s.w.g, &index));
  a[3] = limn_aint(index);
  a[4] = limn_abool(!limn_arg_true(a[4]));
  c->back = limn_build(c->b, OP_scan, a,
                       limn_graph_node(c->b->g, c->k->r)->nargs).u.ref;
  return c->b->rc;
}

/* -- Gradients of the operands -- */

/* The values that r had in all steps, as [steps * rows, columns] if `flat`. */
static limn_arg scan_stack(scan_call *c, limn_ref r, bool flat) {
  const scan_grad *s = &c->s;
  int64_t at = scan_find(s, r);
  limn_arg x = limn_none();
  if (at >= 0) x = limn_region_pick(c->b, c->back, (uint32_t)at);
  for (uint32_t i = s->nc; i < s->nc + s->nx && at < 0; i++)
    if (s->input[i] == r) x = c->k->x[i];
  for (uint32_t i = s->nc; i < s->ny && at < 0; i++)
    if (s->seed[i].tag == LIMN_A_REF && s->seed[i].u.ref == r) x = c->k->g[i];
  if (x.tag == LIMN_A_NONE) x = scan_residual(c, r);
  if (!flat) return x;
  return limn_build3(c->b, OP_flatten, x, limn_aint(1), limn_aint(2));
}

static limn_arg scan_term_value(scan_call *c, const scan_term *t) {
  limn_arg a[4], x = c->k->x[t->at];
  if (!t->b) return limn_fold_like(c->b, scan_stack(c, t->a, false), x);
  a[0] = scan_stack(c, t->a, true);
  a[1] = scan_stack(c, t->b, true);
  a[2] = limn_abool(true), a[3] = limn_abool(false);
  return limn_fold_like(c->b, limn_build(c->b, OP_matmul, a, 4), x);
}

static void scan_add(limn_builder *b, limn_arg *sum, limn_arg g) {
  *sum = sum->tag == LIMN_A_NONE ? g : limn_calc2(b, OP_add, *sum, g);
}

/* In the order of scan_results. */
static void scan_deliver(scan_call *c) {
  const scan_grad *s = &c->s;
  uint32_t at = 0;
  for (uint32_t i = 0; i < s->nin; i++) {
    bool wanted = limn_grad_wants(&c->k->out[i]);
    limn_arg *out = &c->k->out[i];
    *out = limn_none();
    if (i < s->nc) {
      if (s->on[i] && wanted) *out = limn_region_pick(c->b, c->back, at);
      at += s->on[i];
    } else if (i < s->nc + s->nx) {
      if (wanted && s->grad[i].tag == LIMN_A_REF)
        *out = limn_region_pick(c->b, c->back,
                                (uint32_t)scan_find(s, s->grad[i].u.ref));
    } else if (s->sum[i].tag == LIMN_A_REF) {
      *out = limn_region_pick(c->b, c->back, at++);
    }
  }
  for (uint32_t k = 0; k < s->nterm; k++)
    if (s->term[k].a)
      scan_add(c->b, &c->k->out[s->term[k].at],
               scan_term_value(c, &s->term[k]));
}

static int scan_run(scan_call *c, const limn_graph *body, bool *given) {
  const limn_region_call *k = c->k;
  size_t n;
  int rc;
  LIMN_TRY(scan_begin(&c->s, body, k->a[0].n, k->a[1].n));
  if (c->s.nin != k->n || c->s.ny != k->ng)
    return limn_fail(c->b->c, LIMN_EFORMAT, "a scan over another kind of body");
  for (uint32_t i = 0; i < k->n; i++)
    c->s.on[i] = limn_grad_wants(&k->out[i]);
  for (uint32_t i = 0; i < k->ng; i++)
    given[i] = k->g[i].tag != LIMN_A_NONE;
  LIMN_TRY(scan_body(&c->s, given));
  LIMN_TRY(scan_widen_node(c));
  n = 2 * (size_t)c->s.nin + c->s.ny + c->s.nkept + 1;
  c->in.ref = limn_alloc(c->b->c, n * sizeof *c->in.ref);
  c->in.x = limn_alloc(c->b->c, n * sizeof *c->in.x);
  rc = c->in.ref && c->in.x ? scan_build(c) : LIMN_EMEM;
  if (rc == 0) scan_deliver(c);
  limn_free(c->b->c, c->in.ref, n * sizeof *c->in.ref);
  limn_free(c->b->c, c->in.x, n * sizeof *c->in.x);
  return rc ? rc : c->b->rc;
}

void limn_grad_scan(limn_builder *b, limn_region_call *k) {
  limn_graph *body = limn_graph_region(b->g, k->a[3]);
  bool *given = limn_alloc(b->c, k->ng + 1u);
  scan_call c = {0};
  int rc = 0;
  c.b = b, c.k = k, c.s.c = b->c;
  if (!given) rc = LIMN_EMEM;
  else if (!body) rc = limn_fail(b->c, LIMN_EFORMAT, "a scan without a body");
  else rc = scan_run(&c, body, given);
  limn_free(b->c, given, k->ng + 1u);
  limn_free(b->c, c.at, (c.s.nkept + 1u) * sizeof *c.at);
  scan_end(&c.s);
  if (!b->rc) b->rc = rc;
}
