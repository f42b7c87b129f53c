/* Gradients of nodes with regions.
 *
 * custom brings its own. The gradient of a cond is a cond with the same
 * predicate and the same draw, whose branches compute again what they need.
 * That of a scan is a scan: grad_scan.c. How often a while runs is known after
 * the run only, so it has none. */
#include <stdio.h>

#include "pass.h"

/* -- Shared -- */

limn_arg limn_region_pick(limn_builder *b, limn_ref r, uint32_t i) {
  for (limn_ref p = r + 1; p <= b->g->nnode && !b->rc; p++) {
    const limn_arg *a = limn_node_args(b->g, p);
    if (limn_graph_node(b->g, p)->op == OP_pick && a[0].u.ref == r &&
        a[1].u.i == (int64_t)i + 1)
      return limn_aref(p); /* on a tape, only this one has the value */
  }
  return limn_build2(b, OP_pick, limn_aref(r), limn_aint((int64_t)i + 1));
}

static void *region_alloc(limn_builder *b, size_t n) {
  void *p = b->rc ? NULL : limn_alloc(b->c, n);
  if (!p && !b->rc) b->rc = LIMN_EMEM;
  return p;
}

/* -- Custom functions -- */

/* The tensor results of f as values of the graph, and their gradients. */
static uint32_t region_results(limn_builder *b, const limn_region_call *k,
                               const limn_graph *f, limn_arg *gs,
                               limn_arg *ys) {
  limn_builder region = {b->c, (limn_graph *)f, 0, 0, 0};
  uint32_t n = 0;
  for (uint32_t i = 0; i < f->nout; i++) {
    if (!limn_arg_tensor(&region, f->out[i])) continue;
    ys[n] = f->nout == 1 ? limn_aref(k->r) : limn_region_pick(b, k->r, i);
    gs[n] = i < k->ng ? k->g[i] : limn_none();
    if (gs[n].tag == LIMN_A_NONE) gs[n] = limn_build_zeros(b, ys[n]);
    n++;
  }
  return n;
}

/* Operands of a custom node are f's own arguments, what f captured, what vjp
 * captured. vjp takes a gradient and a result for each tensor result of f,
 * then f's own arguments; it returns a gradient (or nil) for each of these. */
static void region_custom_in(limn_builder *b, limn_region_call *k,
                             limn_graph *f, limn_graph *v, limn_arg *tmp) {
  limn_arg *in = tmp, *gs = in + v->nin + 1, *ys = gs + f->nout;
  limn_arg *out = ys + f->nout;
  uint32_t nr = region_results(b, k, f, gs, ys), at = 0;
  int64_t own = (int64_t)f->nin + v->nin - 2 * (int64_t)nr - k->n;
  if (own < 0 || own > f->nin || 2 * nr + own > v->nin) {
    if (!b->rc)
      b->rc = limn_fail(b->c, LIMN_ETRACE,
                        "the gradient of a custom function "
                        "takes g, y and the function's arguments");
    return;
  }
  for (uint32_t i = 0; i < nr; i++) in[at++] = gs[i];
  for (uint32_t i = 0; i < nr; i++) in[at++] = ys[i];
  for (uint32_t i = 0; i < own; i++) in[at++] = k->x[i];
  for (uint32_t i = f->nin; i < k->n; i++) in[at++] = k->x[i];
  if (!b->rc) b->rc = limn_graph_inline(b->g, v, in, out);
  for (uint32_t i = 0; i < k->n && !b->rc; i++) {
    bool any = limn_grad_wants(&k->out[i]) && i < own && i < v->nout;
    k->out[i] = any && limn_arg_tensor(b, out[i])
                    ? limn_fold_like(b, out[i], k->x[i])
                    : limn_none();
  }
}

static void region_custom(limn_builder *b, limn_region_call *k) {
  limn_graph *f = limn_graph_region(b->g, k->a[1]);
  limn_graph *v = limn_graph_region(b->g, k->a[2]);
  limn_arg *tmp;
  size_t bytes;
  if (!f || !v) return;
  bytes = (v->nin + v->nout + 2 * (size_t)f->nout + 1) * sizeof(limn_arg);
  tmp = region_alloc(b, bytes);
  if (!tmp) return;
  region_custom_in(b, k, f, v, tmp);
  limn_free(b->c, tmp, bytes);
}

/* -- Cond -- */

/* A gradient's region has no structure, prints and guards: those of the region
 * that it comes from have had their say. */
void limn_region_strip(limn_graph *g) {
  g->nout = g->nin_tree = g->nout_tree = g->nstatic = 0;
  g->neffect = g->nguard = 0;
}

int limn_region_rename(limn_graph *g) {
  char name[16];
  for (uint32_t i = 0; i < g->nin; i++) {
    snprintf(name, sizeof name, "v%u", i + 1);
    g->in[i].name = limn_graph_str(g, name);
    memset(g->in[i].dim, 0, sizeof g->in[i].dim);
    if (!g->in[i].name) return LIMN_EMEM;
  }
  return 0;
}

/* A branch's copy `g`, made into its gradient: the branch's inputs and a
 * gradient for each result that has one, to gradients of the wanted inputs. */
static int region_branch_in(limn_graph *g, const limn_region_call *k,
                            limn_arg *tmp, limn_ref *wrt) {
  limn_builder b = {g->c, g, 0, 0, 0};
  limn_arg *y = tmp, *gy = y + k->ng, *out = gy + k->ng;
  uint32_t n = k->n, ny = 0, at = 0, own = g->nin;
  for (uint32_t i = 0; i < k->ng && i < g->nout; i++) {
    limn_ref r;
    if (k->g[i].tag == LIMN_A_NONE) continue;
    LIMN_TRY(limn_graph_add_input(g, "g", limn_arg_rank(&b, g->out[i]), &r));
    if (!limn_arg_tensor(&b, g->out[i])) continue;
    y[ny] = g->out[i], gy[ny++] = limn_aref(r);
  }
  for (uint32_t i = 0; i < n && i < own; i++)
    wrt[i] = limn_grad_wants(&k->out[i]) ? g->in[i].ref : 0;
  LIMN_TRY(limn_gradient_back(g, y, gy, (int)ny, wrt, (int)n, out));
  limn_region_strip(g);
  for (uint32_t i = 0; i < n; i++) {
    limn_arg x = limn_aref(wrt[i]);
    if (!wrt[i]) continue;
    out[at++] = out[i].tag == LIMN_A_NONE ? limn_build_zeros(&b, x)
                                          : limn_fold_like(&b, out[i], x);
  }
  LIMN_TRY(b.rc);
  for (uint32_t i = 0; i < at; i++) LIMN_TRY(limn_graph_add_out(g, out[i]));
  LIMN_TRY(limn_region_rename(g));
  return limn_graph_compact(g);
}

/* Puts the gradient of branch *a into the graph, and its number into *a. */
static void region_branch(limn_builder *b, const limn_region_call *k,
                          limn_arg *a) {
  limn_graph *f = limn_graph_region(b->g, *a), *g = NULL;
  size_t bytes = (2 * (size_t)k->ng + k->n + 1) * sizeof(limn_arg);
  limn_arg *tmp = region_alloc(b, bytes);
  limn_ref *wrt = region_alloc(b, (k->n + 1) * sizeof *wrt);
  uint32_t index = 0;
  int rc = b->rc;
  if (rc == 0 && (!f || f->nin != k->n))
    rc = limn_fail(b->c, LIMN_EFORMAT, "a branch that takes other values");
  LIMN_GO(rc);
  LIMN_GO(limn_graph_clone(f, &g));
  LIMN_GO(region_branch_in(g, k, tmp, wrt));
  LIMN_GO(limn_graph_add_region(b->g, g, &index));
  *a = limn_aint(index);
bail:
  limn_graph_release(g);
  if (tmp) limn_free(b->c, tmp, bytes);
  if (wrt) limn_free(b->c, wrt, (k->n + 1) * sizeof *wrt);
  if (!b->rc) b->rc = rc;
}

/* Arguments pred xs f g draw. */
static void region_cond(limn_builder *b, limn_region_call *k) {
  uint32_t n = k->n, at = 0;
  size_t bytes = ((size_t)n + k->ng + 1) * sizeof(limn_arg);
  limn_arg a[LIMN_MAXARGS], *xs = region_alloc(b, bytes);
  limn_ref r;
  if (!xs) return;
  memcpy(a, k->a, sizeof a);
  memcpy(xs, k->x, n * sizeof *xs);
  for (uint32_t i = 0; i < k->ng; i++)
    if (k->g[i].tag != LIMN_A_NONE) xs[n++] = k->g[i];
  a[1] = limn_build_list(b, xs, (int)n);
  limn_free(b->c, xs, bytes);
  region_branch(b, k, &a[2]);
  region_branch(b, k, &a[3]);
  r = limn_build(b, OP_cond, a, limn_graph_node(b->g, k->r)->nargs).u.ref;
  for (uint32_t i = 0; i < k->n && !b->rc; i++)
    k->out[i] = limn_grad_wants(&k->out[i]) ? limn_region_pick(b, r, at++)
                                            : limn_none();
}

/* -- Every one -- */

static int region_lacks(limn_builder *b) {
  const char *line = limn_graph_text(b->g, b->line);
  return limn_hint(b->c,
                   limn_fail(b->c, LIMN_ETRACE,
                             "%s%swhile_loop has no gradient: how often it "
                             "runs is known after the run only",
                             line, *line ? ": " : ""),
                   "limn.while_at_most(n, test, body, ...) has one: n turns "
                   "at most; limn.scan runs once for each row of xs");
}

void limn_grad_region(limn_builder *b, limn_region_call *k) {
  bool any = false;
  for (uint32_t i = 0; i < k->n; i++) any |= limn_grad_wants(&k->out[i]);
  switch (any ? limn_graph_node(b->g, k->r)->op : OP_print) {
  case OP_custom:
    region_custom(b, k);
    break;
  case OP_cond:
    region_cond(b, k);
    break;
  case OP_scan:
    limn_grad_scan(b, k);
    break;
  case OP_while:
    if (!b->rc) b->rc = region_lacks(b);
    break;
  default:
    break;
  }
  for (uint32_t i = 0; i < k->n; i++)
    if (k->out[i].tag == LIMN_A_BOOL) k->out[i] = limn_none();
}
