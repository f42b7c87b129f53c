/* Tapes: eager code under a gradient is recorded while it runs, and its
 * gradient is a graph of its own over the values that the forward pass left.
 * That backward graph is planned once per structure: it is kept in the cache
 * of eager graphs under all that it is made of but sizes and numbers. */
#include <stdio.h>

#include "planner.h"

/* -- Recording -- */

/* Numbers of operands are number inputs of the tape too, so that the backward
 * graph is the same for all of them. */
static int tape_arg(limn_trace *t, const limn_param *p, const limn_value *v,
                    limn_arg *out) {
  char name[32];
  limn_ref r;
  double x = v->tag == LIMN_A_INT ? (double)v->i : v->f;
  bool number = v->tag == LIMN_A_INT || v->tag == LIMN_A_REAL;
  if (!number || p->type != 'T') return limn_trace_arg(t, v, out);
  snprintf(name, sizeof name, "n%u", t->g->nin + 1);
  LIMN_TRY(limn_trace_number(t, name, x, &r));
  if (v->tag == LIMN_A_INT) {
    limn_graph_node(t->g, r)->kind = LIMN_V_INT;
    t->in[t->nin - 1].i = v->i;
  }
  *out = limn_aref(r);
  return 0;
}

int limn_tape_apply(limn_trace *t, int op, const limn_value *a, int n,
                    limn_device *dev, limn_value *out) {
  limn_param p[LIMN_MAXARGS];
  limn_arg args[LIMN_MAXARGS] = {{0}};
  int np = limn_op_params(op, p), rc = 0;
  limn_ref r;
  LIMN_TRY(limn_eager_apply(t->c, op, a, n, dev, out));
  if (out->tag != LIMN_X_TENSOR) return 0;
  for (int i = 0; i < np && i < n; i++)
    LIMN_GO(tape_arg(t, &p[i], &a[i], &args[i]));
  LIMN_GO(limn_trace_op(t, op, args, np, &r));
  LIMN_GO(limn_trace_value(t, r, out->t));
bail:
  if (rc < 0) {
    limn_tensor_release(out->t);
    out->t = NULL;
  }
  return rc;
}

static int tape_assign(limn_trace *t, limn_cell *cell, const limn_value *v,
                       limn_tensor *now) {
  limn_value x[2] = {*v, {0}}, made = {0};
  limn_arg a;
  int rc = 0;
  if (now->dtype != cell->dtype) {
    x[1].tag = LIMN_A_DTYPE;
    x[1].i = cell->dtype;
    LIMN_TRY(limn_tape_apply(t, OP_convert, x, 2, NULL, &made));
    x[0] = made;
    now = made.t;
  }
  LIMN_GO(limn_cell_assign(cell, now));
  LIMN_GO(limn_trace_arg(t, &x[0], &a));
  LIMN_GO(limn_trace_cell_write(t, cell, a));
bail:
  limn_tensor_release(made.t);
  return rc;
}

int limn_assign(limn_context *c, limn_cell *cell, const limn_value *v) {
  limn_trace *t = c->trace && c->trace->tape ? c->trace : NULL;
  limn_tensor *now = v->t;
  limn_arg before;
  int rc;
  if (v->tag == LIMN_X_CELL) LIMN_TRY(limn_cell_get(v->cell, NULL, &now));
  /* The tape keeps the value on entry, if it has not seen the cell yet. */
  if (t) LIMN_TRY(limn_trace_cell_read(t, cell, &before));
  limn_tensor_retain(now); /* assigning may drop the cell's own */
  rc = t ? tape_assign(t, cell, v, now) : limn_cell_assign(cell, now);
  limn_tensor_release(now);
  return rc;
}

/* -- Gradients -- */

typedef struct {
  limn_context *c;
  limn_trace *t;
  limn_graph *g, *bg; /* the tape's, the backward graph */
  limn_device *dev;   /* of the loss */
  limn_ref nf;        /* last forward node */
  uint8_t *need;
  limn_arg *map;
  limn_run_arg *in;
  uint32_t nin, in_cap;
  limn_str key;
} backward;

/* Forward tensors are inputs; what lies behind them is not needed. */
static bool backward_is_leaf(const backward *b, limn_ref r) {
  const limn_node *n = limn_graph_node(b->g, r);
  return r <= b->nf && (n->kind == LIMN_V_TENSOR || n->op == OP_number);
}

static void backward_need(limn_ref r, void *p) {
  backward *b = p;
  b->need[r - 1] = 1;
}

/* A cell that was read elsewhere follows the loss, unless it moved on. */
static int backward_cell(backward *b, limn_ref r, limn_tensor **t) {
  limn_cell *cell = b->g->cell[limn_node_args(b->g, r)[0].u.i].cell;
  if ((*t)->st->dev == b->dev) return 0;
  for (int i = 0; i < cell->nrep; i++)
    if (cell->rep[i].value == *t && cell->rep[i].version == cell->version)
      return limn_cell_get(cell, b->dev, t);
  return 0;
}

/* The forward value of node r on the loss's device, +1. A value that was made
 * of cells alone may lie elsewhere. */
static int backward_value(backward *b, limn_ref r, limn_tensor **out) {
  const limn_node *n = limn_graph_node(b->g, r);
  limn_tensor *t = r <= b->t->nvalue ? b->t->value[r - 1] : NULL;
  if (!t)
    return limn_fail(b->c, LIMN_ETRACE,
                     "a value of the forward pass (%s) was "
                     "not kept",
                     limn_op_get(n->op)->name);
  if (n->op == OP_cell) LIMN_TRY(backward_cell(b, r, &t));
  if (b->dev && t->st->dev != b->dev && t->v.ndim > 0)
    return limn_tensor_to(t, b->dev, t->dtype, out);
  limn_tensor_retain(t);
  *out = t;
  return 0;
}

static int backward_leaf(backward *b, limn_ref r) {
  const limn_node *n = limn_graph_node(b->g, r);
  limn_run_arg in = {NULL, 0};
  char name[16];
  limn_ref x;
  int rank = -1, kind = n->kind;
  LIMN_TRY(limn_grow(b->c, &b->in, &b->in_cap, b->nin + 1, sizeof in));
  if (n->op == OP_number) {
    in.number = b->t->in[limn_node_args(b->g, r)[0].u.i].f;
  } else {
    LIMN_TRY(backward_value(b, r, &in.t));
    rank = in.t->v.ndim;
  }
  b->in[b->nin++] = in;
  snprintf(name, sizeof name, "v%u", b->nin);
  LIMN_TRY(limn_graph_add_input(b->bg, name, rank, &x));
  limn_graph_node(b->bg, x)->kind = (uint8_t)kind;
  b->map[r - 1] = limn_aref(x);
  limn_str_addf(&b->key, "i%d,%d;", rank, kind);
  return 0;
}

static void backward_key_arg(backward *b, limn_arg a, const char *text) {
  limn_str_addn(&b->key, (const char *)&a.tag, 1);
  if (a.tag == LIMN_A_STR)
    limn_str_addf(&b->key, "%s;", text + a.u.str);
  else
    limn_str_addn(&b->key, (const char *)&a.u, sizeof a.u);
}

static int backward_arg(backward *b, limn_arg a, limn_arg *out);

static int backward_list(backward *b, limn_arg a, limn_arg *out) {
  limn_arg few[16], *l = few;
  int rc = 0;
  if (a.n > LIMN_COUNT(few)) l = limn_alloc(b->c, a.n * sizeof *l);
  if (!l) return LIMN_EMEM;
  limn_str_addf(&b->key, "[%u", a.n);
  for (uint32_t i = 0; i < a.n; i++)
    LIMN_GO(backward_arg(b, b->g->args[a.u.at + i], &l[i]));
  rc = limn_graph_push_args(b->bg, l, a.n, &out->u.at);
bail:
  if (l != few) limn_free(b->c, l, a.n * sizeof *l);
  return rc;
}

static int backward_arg(backward *b, limn_arg a, limn_arg *out) {
  *out = a;
  if (a.tag == LIMN_A_LIST) return backward_list(b, a, out);
  if (a.tag == LIMN_A_REF) *out = b->map[a.u.ref - 1];
  if (a.tag == LIMN_A_STR)
    LIMN_TRY(limn_graph_str_arg(b->bg, limn_graph_text(b->g, a.u.str), out));
  backward_key_arg(b, *out, b->bg->text);
  return 0;
}

/* -- Regions -- */

static void key_arg(limn_str *key, const limn_graph *f, limn_arg a) {
  limn_str_addn(key, (const char *)&a.tag, 1);
  if (a.tag == LIMN_A_STR)
    limn_str_addf(key, "%s;", limn_graph_text(f, a.u.str));
  else if (a.tag == LIMN_A_LIST)
    limn_str_addf(key, "[%u", a.n);
  else
    limn_str_addn(key, (const char *)&a.u, sizeof a.u);
  for (uint32_t i = 0; a.tag == LIMN_A_LIST && i < a.n; i++)
    key_arg(key, f, f->args[a.u.at + i]);
}

/* All that a region is made of: gradients make theirs anew each time. What it
 * captured counts by its address, as a kept graph holds it. */
static void key_region(limn_str *key, const limn_graph *f) {
  limn_str_addf(key, "r%u,%u,%u(", f->nnode, f->nin, f->nout);
  for (limn_ref r = 1; r <= f->nnode; r++) {
    const limn_node *n = limn_graph_node(f, r);
    limn_str_addf(key, "o%u,%u,%u;", n->op, n->kind, n->nargs);
    for (int i = 0; i < n->nargs; i++)
      key_arg(key, f, f->args[n->args + (uint32_t)i]);
  }
  for (uint32_t i = 0; i < f->nin; i++)
    limn_str_addn(key, (const char *)&f->in[i].ref, sizeof f->in[i].ref);
  for (uint32_t i = 0; i < f->nout; i++) key_arg(key, f, f->out[i]);
  for (uint32_t i = 0; i < f->ncell; i++)
    limn_str_addn(key, (const char *)&f->cell[i].cell, sizeof(void *));
  for (uint32_t i = 0; i < f->nconst; i++)
    limn_str_addn(key, (const char *)&f->konst[i].value, sizeof(void *));
  for (uint32_t i = 0; i < f->nmode; i++)
    limn_str_addn(key, (const char *)&f->mode[i].mode, sizeof(void *));
  for (uint32_t i = 0; i < f->nregion; i++) key_region(key, f->region[i]);
}

/* Such numbers would not be those of the forward pass, which took its draws
 * before. */
bool limn_region_draws(const limn_graph *f) {
  for (limn_ref r = 1; r <= f->nnode; r++) {
    int op = limn_graph_node(f, r)->op;
    if (limn_op_random(op) && limn_op_body(op) < 0) return true;
  }
  for (uint32_t i = 0; i < f->nregion; i++)
    if (limn_region_draws(f->region[i])) return true;
  return false;
}

static int backward_region(backward *b, int op, limn_arg *a) {
  limn_graph *region = limn_graph_region(b->g, *a);
  uint32_t at;
  if (!region)
    return limn_fail(b->c, LIMN_EFORMAT, "a region node without its region");
  if (op == OP_scan && limn_region_draws(region))
    return limn_hint(b->c,
                     limn_fail(b->c, LIMN_ETRACE,
                               "the gradient of random numbers in a branch "
                               "inside a scan needs a trace"),
                     "call it through limn.jit");
  LIMN_TRY(limn_graph_add_region(b->bg, region, &at));
  key_region(&b->key, region);
  *a = limn_aint(at);
  return 0;
}

static int backward_node(backward *b, limn_ref r) {
  const limn_node *n = limn_graph_node(b->g, r);
  limn_arg a[LIMN_MAXARGS];
  limn_ref x;
  int nargs = n->nargs, first, regions = limn_op_regions(n->op, &first);
  uint32_t at = n->args;
  limn_str_addf(&b->key, "o%u,%u;", n->op, n->nargs);
  for (int i = 0; i < nargs; i++)
    LIMN_TRY(backward_arg(b, b->g->args[at + (uint32_t)i], &a[i]));
  for (int i = first; i < first + regions; i++)
    LIMN_TRY(backward_region(b, n->op, &a[i]));
  x = limn_graph_add(b->bg, n->op, a, nargs, 0, 0);
  if (!x) return LIMN_EMEM;
  if (limn_op_get(n->op)->row == LIMN_ROW_H)
    limn_graph_node(b->bg, x)->rank = n->rank;
  b->map[r - 1] = limn_aref(x);
  return 0;
}

static int backward_build(backward *b, const limn_arg *grad, int n) {
  for (int i = 0; i < n; i++)
    if (grad[i].tag == LIMN_A_REF) b->need[grad[i].u.ref - 1] = 1;
  for (limn_ref r = b->g->nnode; r >= 1; r--)
    if (b->need[r - 1] && !backward_is_leaf(b, r))
      limn_node_refs(b->g, r, backward_need, b);
  for (limn_ref r = 1; r <= b->g->nnode; r++) {
    if (!b->need[r - 1]) continue;
    if (backward_is_leaf(b, r))
      LIMN_TRY(backward_leaf(b, r));
    else
      LIMN_TRY(backward_node(b, r));
  }
  for (int i = 0; i < n; i++) {
    limn_arg o;
    if (grad[i].tag == LIMN_A_NONE) continue;
    LIMN_TRY(backward_arg(b, grad[i], &o));
    LIMN_TRY(limn_graph_add_out(b->bg, o));
  }
  return b->key.rc;
}

static int backward_run(backward *b, const limn_arg *grad, int n,
                        limn_tensor **out) {
  limn_graph *g = limn_eager_find(b->c, b->key.s, b->key.len);
  limn_result *res;
  size_t size;
  int rc = 0, k = 0;
  if (!g) {
    limn_graph_retain(b->bg);
    rc = limn_eager_keep(b->c, b->key.s, b->key.len, b->bg);
    if (rc < 0) limn_graph_release(b->bg);
    if (rc < 0) return rc;
    g = b->bg;
  }
  size = (g->nout + 1) * sizeof *res;
  res = limn_alloc(b->c, size);
  if (!res) return LIMN_EMEM;
  limn_graph_retain(g);
  rc = limn_graph_run(g, NULL, b->in, NULL, res);
  limn_graph_release(g);
  for (int i = 0; i < n && rc == 0; i++)
    out[i] = grad[i].tag == LIMN_A_NONE ? NULL : res[k++].t;
  limn_free(b->c, res, size);
  return rc;
}

int limn_tape_gradient(limn_trace *t, limn_ref loss, const limn_ref *wrt, int n,
                       limn_tensor **out) {
  limn_context *c = t->c;
  backward b = {0};
  limn_arg *grad = limn_alloc(c, ((size_t)n + 1) * sizeof *grad);
  size_t nodes = 0;
  int rc = grad ? 0 : LIMN_EMEM;
  b.c = c, b.t = t, b.g = t->g, b.nf = t->g->nnode;
  if (loss <= t->nvalue && t->value[loss - 1])
    b.dev = t->value[loss - 1]->st->dev;
  limn_str_init(&b.key, c);
  limn_str_add(&b.key, "tape:");
  if (rc == 0) rc = limn_gradient(t->g, 1, limn_aref(loss), wrt, n, grad);
  if (rc == 0) {
    nodes = t->g->nnode + 1;
    b.need = limn_alloc(c, nodes);
    b.map = limn_alloc(c, nodes * sizeof *b.map);
    rc = b.need && b.map ? limn_graph_new(c, "backward", &b.bg) : LIMN_EMEM;
  }
  if (rc == 0) b.bg->eager = true;
  if (rc == 0) rc = backward_build(&b, grad, n);
  if (rc == 0) rc = backward_run(&b, grad, n, out);
  limn_graph_release(b.bg);
  limn_str_free(&b.key);
  limn_free(c, b.need, nodes);
  limn_free(c, b.map, nodes * sizeof *b.map);
  for (uint32_t i = 0; i < b.nin; i++) limn_tensor_release(b.in[i].t);
  limn_free(c, b.in, b.in_cap * sizeof *b.in);
  limn_free(c, grad, ((size_t)n + 1) * sizeof *grad);
  return rc;
}
