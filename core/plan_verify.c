/* LIMN_VERIFY=1: each run is computed a second time and compared.
 *
 * The second time is a shadow of the graph, with plans of its own that nothing
 * is fused in, run first and without committing, so that neither plans nor
 * counters nor cells of the real run know of it. Where results differ by more
 * than rounding, the shadow runs again on inputs that were changed in their
 * last bits: what these changes move just as far is noise to begin with (a bias
 * before a BatchNorm has the gradient 0, which Adam divides by itself), and no
 * error of the planner's. */
#include <math.h>
#include <stdio.h>

#include "planner.h"

enum { VERIFY_TRIES = 4 };

typedef struct {
  limn_context *c;
  limn_plan *p, *plain; /* of the graph and of its shadow */
  uint32_t n;           /* values: results, then writes */
  limn_result *ref;     /* of the shadow, per result */
  double *moved;        /* per value: what the last bits of inputs move */
  bool tried;
} verify;

static double verify_tolerance(int dtype) {
  switch (dtype) {
    case LIMN_F64: return 1e-9;
    case LIMN_F32: return 1e-3;
    case LIMN_F16: return 2e-2;
    case LIMN_BF16: return 1e-1;
    default: return 0;
  }
}

/* -- Reading -- */

/* The elements as reals, in memory of the caller's. */
static int verify_read(limn_context *c, limn_tensor *t, double **out,
                       int64_t *n) {
  size_t size = (size_t)limn_dtype_size(t->dtype);
  char *raw;
  int rc;
  *n = limn_tensor_numel(t);
  *out = limn_alloc(c, (size_t)(*n + 1) * sizeof **out);
  raw = limn_alloc(c, (size_t)*n * size + 1);
  rc = *out && raw ? limn_tensor_read(t, raw, (size_t)*n * size) : LIMN_EMEM;
  for (int64_t i = 0; rc == 0 && i < *n; i++)
    (*out)[i] = limn_load_real(t->dtype, raw + (size_t)i * size);
  limn_free(c, raw, (size_t)*n * size + 1);
  return rc;
}

static void verify_done(limn_context *c, double *x, int64_t n) {
  limn_free(c, x, (size_t)(n + 1) * sizeof *x);
}

/* The largest |a - b| to *far, where equal means both NaN too; its place to
 * *at; and the largest finite |b|, at least 1, to *scale. */
static int verify_far(limn_context *c, limn_tensor *a, limn_tensor *b,
                      double *far, int64_t *at, double *scale,
                      double pair[2]) {
  double *x = NULL, *y = NULL;
  int64_t n = 0, m = 0;
  int rc = 0;
  *far = 0, *at = 0, *scale = 1;
  LIMN_GO(verify_read(c, a, &x, &n));
  LIMN_GO(verify_read(c, b, &y, &m));
  for (int64_t i = 0; i < n && i < m; i++) {
    double d = fabs(x[i] - y[i]), v = fabs(y[i]);
    if (v > *scale && v < 1e300) *scale = v;
    if (x[i] == y[i] || (x[i] != x[i] && y[i] != y[i])) continue;
    if (d != d) d = INFINITY;
    if (d <= *far) continue;
    *far = d, *at = i, pair[0] = x[i], pair[1] = y[i];
  }
bail:
  verify_done(c, x, n);
  verify_done(c, y, m);
  return rc;
}

/* -- The shadow's runs -- */

static int verify_shadow(limn_graph *g, limn_graph **out) {
  limn_planner *n = g->planner;
  if (!n->shadow) LIMN_TRY(limn_graph_clone(g, &n->shadow));
  n->shadow->eager = true; /* its plans stand in the list of eager ones */
  n->shadow->mode_override = g->mode_override;
  *out = n->shadow;
  return 0;
}

static int verify_dry(const verify *v, const limn_run_arg *in,
                      limn_result *ref, limn_tensor **kept) {
  limn_context *c = v->c;
  uint32_t passes = c->flags.passes;
  uint64_t draws = c->draws;
  int rc;
  c->flags.passes = 0; /* no write in place: it is not to be kept */
  v->plain->dry = true;
  v->plain->kept = kept;
  rc = limn_plan_run(v->plain, in, NULL, NULL, ref);
  v->plain->dry = false;
  v->plain->kept = NULL;
  c->flags.passes = passes;
  c->draws = draws;
  return rc;
}

/* A copy of t with its last bits changed, one way or the other. */
static int verify_stir(limn_context *c, limn_tensor *t, uint64_t salt,
                       limn_tensor **out) {
  int size = limn_dtype_size(t->dtype);
  double by = t->dtype == LIMN_F64   ? 0x1p-46
              : t->dtype == LIMN_F32 ? 0x1p-21
              : t->dtype == LIMN_F16 ? 0x1p-9 : 0x1p-6;
  limn_shape s = limn_tensor_shape(t);
  int64_t n = limn_tensor_numel(t);
  size_t bytes = (size_t)n * (size_t)size;
  char *raw = limn_alloc(c, bytes + 1);
  int rc = raw ? limn_tensor_read(t, raw, bytes) : LIMN_EMEM;
  for (int64_t i = 0; rc == 0 && i < n; i++) {
    uint64_t key[2] = {salt, (uint64_t)i};
    double sign = limn_hash(key, sizeof key) & 1 ? by : -by;
    double x = limn_load_real(t->dtype, raw + i * size);
    limn_store_real(t->dtype, raw + i * size, x + x * sign);
  }
  if (rc == 0) rc = limn_tensor_new(c, t->st->dev, t->dtype, &s, out);
  if (rc == 0) rc = limn_tensor_write(*out, raw, bytes);
  limn_free(c, raw, bytes + 1);
  return rc;
}

static void verify_drop(verify *v, limn_result *ref, limn_tensor **kept) {
  size_t nkept = v->plain->nwrite + 1u;
  if (ref) limn_results_release(v->p->g, ref);
  for (uint32_t i = 0; kept && i < v->plain->nwrite; i++)
    limn_tensor_release(kept[i]);
  limn_free(v->c, ref, (v->p->g->nout + 1u) * sizeof *ref);
  limn_free(v->c, kept, nkept * sizeof *kept);
}

static int verify_make(verify *v, limn_result **ref, limn_tensor ***kept) {
  *ref = limn_alloc(v->c, (v->p->g->nout + 1u) * sizeof **ref);
  *kept = limn_alloc(v->c, (v->plain->nwrite + 1u) * sizeof **kept);
  return *ref && *kept ? 0 : LIMN_EMEM;
}

/* One run on stirred inputs: how far each value moves. */
static int verify_try(verify *v, const limn_run_arg *in,
                      limn_tensor *const *kept, uint64_t salt) {
  limn_graph *g = v->p->g;
  size_t size = (g->nin + 1u) * sizeof(limn_run_arg);
  limn_run_arg *stirred = limn_alloc(v->c, size);
  limn_result *ref = NULL;
  limn_tensor **moved = NULL, *t;
  double far, scale, pair[2];
  int64_t at;
  uint32_t made = 0;
  int rc = stirred ? verify_make(v, &ref, &moved) : LIMN_EMEM;
  for (; rc == 0 && made < g->nin; made++) {
    stirred[made] = in[made];
    if (g->in[made].number) continue;
    t = in[made].t;
    if (limn_dtype_float(t->dtype))
      rc = verify_stir(v->c, t, salt * 1000 + made, &stirred[made].t);
    else
      limn_tensor_retain(t);
  }
  if (rc == 0) rc = verify_dry(v, stirred, ref, moved);
  for (uint32_t k = 0; rc == 0 && k < v->n; k++) {
    limn_tensor *a = k < g->nout ? ref[k].t : moved[k - g->nout];
    limn_tensor *b = k < g->nout ? v->ref[k].t : kept[k - g->nout];
    if (!a) continue;
    rc = verify_far(v->c, a, b, &far, &at, &scale, pair);
    if (far > v->moved[k]) v->moved[k] = far;
  }
  for (uint32_t i = 0; stirred && i < made; i++)
    if (!g->in[i].number) limn_tensor_release(stirred[i].t);
  limn_free(v->c, stirred, size);
  verify_drop(v, ref, moved);
  return rc;
}

/* -- Comparing -- */

static int verify_value(verify *v, const limn_run_arg *in,
                        limn_tensor *const *kept, uint32_t k, limn_tensor *a,
                        limn_tensor *b, const char *what) {
  double far, scale, pair[2];
  int64_t at;
  LIMN_TRY(verify_far(v->c, a, b, &far, &at, &scale, pair));
  if (far <= verify_tolerance(a->dtype) * scale) return 0;
  for (uint64_t i = 0; !v->tried && i < VERIFY_TRIES; i++)
    LIMN_TRY(verify_try(v, in, kept, i + 1));
  v->tried = true;
  if (far <= 2 * v->moved[k]) return 0;
  return limn_fail(v->c, LIMN_EARG, "LIMN_VERIFY: %s of %s differs at element "
                   "%lld: %g fused, %g unfused", what, v->p->g->name,
                   (long long)at + 1, pair[0], pair[1]);
}

static int verify_compare(verify *v, const limn_run_arg *in,
                          limn_tensor *const *kept, const limn_result *out) {
  const limn_graph *g = v->p->g;
  for (uint32_t k = 0; k < g->nout; k++)
    if (out[k].t)
      LIMN_TRY(verify_value(v, in, kept, k, out[k].t, v->ref[k].t, "result"));
  for (uint32_t i = 0; i < v->plain->nwrite; i++) {
    limn_cell *cell = v->plain->expanded->cell[v->plain->write[i].cell].cell;
    limn_tensor *now;
    LIMN_TRY(limn_cell_get(cell, v->p->dev, &now));
    LIMN_TRY(verify_value(v, in, kept, g->nout + i, now, kept[i],
                          cell->name ? cell->name : "a cell"));
  }
  return 0;
}

static int verify_run(verify *v, const limn_run_arg *in,
                      limn_tensor *const *into, limn_result *out) {
  limn_context *c = v->c;
  uint64_t launches = v->p->dev->launches;
  limn_counters count = c->count;
  limn_tensor **kept = NULL;
  int rc;
  v->n = v->p->g->nout + v->plain->nwrite;
  v->moved = limn_alloc(c, (v->n + 1u) * sizeof *v->moved);
  rc = v->moved ? verify_make(v, &v->ref, &kept) : LIMN_EMEM;
  if (rc == 0) rc = verify_dry(v, in, v->ref, kept);
  c->count = count;
  v->p->dev->launches = launches;
  if (rc == 0) rc = limn_plan_run(v->p, in, into, NULL, out);
  count = c->count;
  launches = v->p->dev->launches;
  if (rc == 0) {
    rc = verify_compare(v, in, kept, out);
    if (rc < 0) limn_results_release(v->p->g, out);
  }
  verify_drop(v, v->ref, kept);
  limn_free(c, v->moved, (v->n + 1u) * sizeof *v->moved);
  c->count = count;
  v->p->dev->launches = launches;
  return rc;
}

/* Graphs that print run once: they would print twice. */
int limn_plan_verify(limn_plan *p, const limn_run_arg *in,
                     limn_tensor *const *into, limn_result *out) {
  limn_context *c = p->c;
  verify v = {c, p, NULL, 0, NULL, NULL, false};
  uint32_t passes = c->flags.passes;
  limn_counters count = c->count;
  limn_graph *shadow;
  char dump = c->flags.dump[0];
  int rc;
  if (p->g->neffect) return limn_plan_run(p, in, into, NULL, out);
  limn_plan_pin(p);
  rc = verify_shadow(p->g, &shadow);
  c->flags.passes = 0;
  c->flags.dump[0] = 0;
  if (rc == 0) rc = limn_plan_find(shadow, p->dev, in, &v.plain);
  c->flags.passes = passes;
  c->flags.dump[0] = dump;
  c->count = count;
  if (rc == 0) {
    limn_plan_pin(v.plain);
    rc = verify_run(&v, in, into, out);
    limn_plan_unpin(v.plain);
  }
  limn_plan_unpin(p);
  return rc;
}
