/* A scan with a given body in eager code: a graph of one node, like any eager
 * op's, kept under the body's address. It is how recurrent layers run where
 * there is no trace: as a plan, for every number of steps. On a tape it is one
 * node too. */
#include <stdio.h>

#include "planner.h"

typedef struct {
  limn_context *c;
  limn_graph *body;
  const limn_value *list; /* carry, xs, outer: three lists of tensors, cells */
  bool reverse;
  limn_device *dev; /* where the run is */
  limn_run_arg *in;
  uint32_t n;
} region_call;

/* Where the first tensor is; 0-dim ones of the CPU are anywhere. */
static void region_place(region_call *k) {
  for (int l = 0; l < 3; l++)
    for (int i = 0; i < k->list[l].n && !k->dev; i++) {
      const limn_value *v = &k->list[l].list[i];
      const limn_tensor *t = v->tag == LIMN_X_TENSOR ? v->t : NULL;
      if (t && (t->v.ndim || !t->st->dev->ops->host)) k->dev = t->st->dev;
    }
}

/* Cells follow it. */
static int region_values(region_call *k) {
  uint32_t at = 0;
  region_place(k);
  for (int l = 0; l < 3; l++)
    for (int i = 0; i < k->list[l].n; i++, at++) {
      const limn_value *v = &k->list[l].list[i];
      if (v->tag == LIMN_X_CELL)
        LIMN_TRY(limn_cell_get(v->cell, k->dev, &k->in[at].t));
      else if (v->tag == LIMN_X_TENSOR)
        k->in[at].t = v->t;
      else
        return limn_fail(k->c, LIMN_EARG, "a scan goes over tensors");
    }
  return 0;
}

static int region_operands(region_call *k, limn_graph *g, int l, uint32_t *at,
                           limn_arg *out) {
  char name[16];
  size_t bytes = ((size_t)k->list[l].n + 1) * sizeof *out;
  limn_arg *a = limn_alloc(k->c, bytes);
  limn_ref r;
  int rc = a ? 0 : LIMN_EMEM;
  for (int i = 0; i < k->list[l].n; i++, ++*at) {
    snprintf(name, sizeof name, "v%u", *at + 1);
    LIMN_GO(limn_graph_add_input(g, name, k->in[*at].t->v.ndim, &r));
    a[i] = limn_aref(r);
  }
  *out = limn_none();
  out->tag = LIMN_A_LIST;
  out->n = (uint32_t)k->list[l].n;
  LIMN_GO(limn_graph_push_args(g, a, out->n, &out->u.at));
bail:
  limn_free(k->c, a, bytes);
  return rc;
}

static int region_build(region_call *k, limn_graph **out) {
  limn_graph *g;
  limn_arg a[6], pick[2];
  limn_ref r, p;
  uint32_t at = 0, index;
  int rc = 0;
  *out = NULL;
  LIMN_TRY(limn_graph_new(k->c, "scan", &g));
  g->eager = true;
  for (int l = 0; l < 3; l++) LIMN_GO(region_operands(k, g, l, &at, &a[l]));
  LIMN_GO(limn_graph_add_region(g, k->body, &index));
  a[3] = limn_aint(index), a[4] = limn_abool(k->reverse), a[5] = limn_aint(0);
  r = limn_graph_add(g, OP_scan, a, 6, 0, 0);
  if (!r) LIMN_GO(LIMN_EMEM);
  g->draws = 1;
  for (uint32_t i = 0; i < k->body->nout; i++) {
    pick[0] = limn_aref(r), pick[1] = limn_aint(i + 1);
    p = limn_graph_add(g, OP_pick, pick, 2, 0, 0);
    LIMN_GO(p ? limn_graph_add_out(g, limn_aref(p)) : LIMN_EMEM);
  }
  *out = g;
  return 0;
bail:
  limn_graph_release(g);
  return rc;
}

/* The graph holds its body, so no other body has its address. */
static int region_graph(region_call *k, limn_graph **out) {
  struct {
    char what[8];
    limn_graph *body;
    int n[3];
    int reverse;
  } key;
  int rc;
  memset(&key, 0, sizeof key);
  memcpy(key.what, "scan", 5);
  key.body = k->body, key.reverse = k->reverse;
  for (int l = 0; l < 3; l++) key.n[l] = k->list[l].n;
  *out = limn_eager_find(k->c, &key, sizeof key);
  if (*out) return 0;
  LIMN_TRY(region_build(k, out));
  rc = limn_eager_keep(k->c, &key, sizeof key, *out);
  if (rc < 0) limn_graph_release(*out);
  return rc;
}

static int region_run(region_call *k, limn_tensor **out) {
  uint32_t n = k->body->nout;
  size_t bytes = (n + 1u) * sizeof(limn_result);
  limn_graph *g = NULL;
  limn_result *res;
  int rc = region_graph(k, &g);
  if (rc < 0) return rc;
  res = limn_alloc(k->c, bytes);
  if (!res) return LIMN_EMEM;
  limn_graph_retain(g); /* a callback may empty the cache */
  rc = limn_graph_run(g, k->dev, k->in, NULL, res);
  limn_graph_release(g);
  for (uint32_t i = 0; i < n && rc == 0; i++) out[i] = res[i].t;
  limn_free(k->c, res, bytes);
  return rc;
}

/* The node and what picks its results, with their values. */
static int region_record(limn_trace *t, const region_call *k,
                         limn_tensor **value) {
  limn_arg a[6], pick[2];
  limn_ref r, p;
  uint32_t index;
  for (int l = 0; l < 3; l++)
    LIMN_TRY(limn_trace_arg(t, &k->list[l], &a[l]));
  LIMN_TRY(limn_graph_add_region(t->g, k->body, &index));
  a[3] = limn_aint(index), a[4] = limn_abool(k->reverse), a[5] = limn_aint(0);
  LIMN_TRY(limn_trace_op(t, OP_scan, a, 6, &r));
  for (uint32_t i = 0; i < k->body->nout; i++) {
    pick[0] = limn_aref(r), pick[1] = limn_aint(i + 1);
    LIMN_TRY(limn_trace_op(t, OP_pick, pick, 2, &p));
    LIMN_TRY(limn_trace_apart(t, &value[i]));
    LIMN_TRY(limn_trace_value(t, p, value[i]));
  }
  return 0;
}

int limn_eager_scan(limn_context *c, limn_graph *body, const limn_value *list,
                    bool reverse, limn_tensor **out) {
  region_call k = {c, body, list, reverse, NULL, NULL, 0};
  limn_trace *t = c->trace;
  size_t bytes;
  int rc = 0;
  for (uint32_t i = 0; i < body->nout; i++) out[i] = NULL;
  for (int l = 0; l < 3; l++) k.n += (uint32_t)list[l].n;
  if (k.n != body->nin || (t && !t->tape))
    return limn_fail(c, LIMN_EARG, "a scan over another kind of body");
  bytes = (k.n + 1u) * sizeof *k.in;
  k.in = limn_alloc(c, bytes);
  if (!k.in) return LIMN_EMEM;
  LIMN_GO(region_values(&k));
  LIMN_GO(region_run(&k, out));
  if (t) LIMN_GO(region_record(t, &k, out));
bail:
  limn_free(c, k.in, bytes);
  for (uint32_t i = 0; i < body->nout && rc < 0; i++) {
    limn_tensor_release(out[i]);
    out[i] = NULL;
  }
  return rc;
}
