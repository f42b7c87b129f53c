/* Checks that the regions of a node fit its operands and each other. */
#include "op_rules.h"
#include "verify.h"

static bool region_is_tensor(const limn_graph *g, const limn_arg *a) {
  return a->tag == LIMN_A_REF &&
         limn_graph_node(g, a->u.ref)->kind == LIMN_V_TENSOR;
}

static int region_rank(const limn_graph *g, const limn_arg *a) {
  return region_is_tensor(g, a) ? limn_graph_node(g, a->u.ref)->rank : 0;
}

/* Does a tensor of this rank fit the input of a region? */
static bool region_takes(const limn_graph *f, uint32_t i, int rank) {
  const limn_graph_input *in = &f->in[i];
  return !in->number && limn_graph_node(f, in->ref)->rank == rank;
}

/* Does this operand? Plan values keep their kind; whole numbers are reals. */
static bool region_fits(const verify *v, const limn_graph *f, uint32_t i,
                        const limn_arg *a, int less) {
  const limn_graph_input *in = &f->in[i];
  int kind = verify_kind(v->g, v->at, a), want;
  if (region_is_tensor(v->g, a))
    return region_takes(f, i, region_rank(v->g, a) - less);
  want = limn_graph_node(f, in->ref)->kind;
  if (!in->number || less || kind < 0) return false;
  return kind == want || (kind == LIMN_V_INT && want == LIMN_V_REAL);
}

/* Operands [from, to) of the list at parameter `p` for the inputs of `f` from
 * `in` on; `less`: by how many dims an input has fewer. */
static int region_operands(const verify *v, const limn_graph *f, uint32_t in,
                           int p, uint32_t from, uint32_t to, int less) {
  for (uint32_t i = from; i < to; i++, in++) {
    const limn_arg *a = v->g->args + v->a[p].u.at + i;
    if (in >= f->nin || !region_fits(v, f, in, a, less))
      return verify_fail(v, "operand %u does not fit input %u of a region",
                         i + 1, in + 1);
  }
  return 0;
}

/* -- Custom -- */

/* The gradient's region takes a gradient and a result for each tensor result
 * of f, then f's own arguments, then what it captured; see grad.c. */
static int region_vjp(const verify *v, const limn_graph *f,
                      const limn_graph *w) {
  uint32_t n = v->a[0].n, nr = 0, k = 0;
  int64_t own;
  for (uint32_t i = 0; i < f->nout; i++) nr += region_is_tensor(f, &f->out[i]);
  own = (int64_t)f->nin + w->nin - 2 * (int64_t)nr - n;
  if (own < 0 || own > f->nin || 2 * (int64_t)nr + own > w->nin)
    return verify_fail(v, "%u operands do not fit its gradient", n);
  for (uint32_t i = 0; i < f->nout; i++) {
    int rank;
    if (!region_is_tensor(f, &f->out[i])) continue;
    rank = region_rank(f, &f->out[i]);
    if (!region_takes(w, k, rank) || !region_takes(w, nr + k, rank))
      return verify_fail(v, "result %u does not fit its gradient", i + 1);
    k++;
  }
  LIMN_TRY(region_operands(v, w, 2 * nr, 0, 0, (uint32_t)own, 0));
  return region_operands(v, w, 2 * nr + (uint32_t)own, 0, f->nin, n, 0);
}

static int region_custom(const verify *v) {
  const limn_graph *g = v->g, *f = g->region[v->a[1].u.i];
  bool vjp = v->a[2].u.i != -1;
  if (vjp) LIMN_TRY(verify_index(v, 2, 0, g->nregion, "region"));
  if (v->a[0].n < f->nin || (!vjp && v->a[0].n > f->nin))
    return verify_fail(v, "%u operands for a region with %u inputs", v->a[0].n,
                       f->nin);
  LIMN_TRY(region_operands(v, f, 0, 0, 0, f->nin, 0));
  return vjp ? region_vjp(v, f, g->region[v->a[2].u.i]) : 0;
}

/* -- Control flow -- */

/* Results [from, to) of a region are tensors. */
static int region_tensors(const verify *v, const limn_graph *f, uint32_t to) {
  for (uint32_t i = 0; i < to; i++)
    if (!region_is_tensor(f, &f->out[i]))
      return verify_fail(v, "result %u of a region is no tensor", i + 1);
  return 0;
}

static int region_count(const verify *v, const limn_graph *f, uint32_t n) {
  if (f->nin == n) return 0;
  return verify_fail(v, "%u operands for a region with %u inputs", n, f->nin);
}

static int region_cond(const verify *v) {
  const limn_graph *f[2];
  int kind = verify_kind(v->g, v->at, &v->a[0]);
  if (region_is_tensor(v->g, &v->a[0]) ? region_rank(v->g, &v->a[0]) != 0
                                       : kind != LIMN_V_BOOL)
    return verify_fail(v, "pred must be one bool");
  for (int i = 0; i < 2; i++) {
    f[i] = v->g->region[v->a[2 + i].u.i];
    LIMN_TRY(region_count(v, f[i], v->a[1].n));
    LIMN_TRY(region_operands(v, f[i], 0, 1, 0, v->a[1].n, 0));
    LIMN_TRY(region_tensors(v, f[i], f[i]->nout));
  }
  if (f[0]->nout != f[1]->nout)
    return verify_fail(v, "its branches have %u and %u results", f[0]->nout,
                       f[1]->nout);
  for (uint32_t i = 0; i < f[0]->nout; i++)
    if (region_rank(f[0], &f[0]->out[i]) != region_rank(f[1], &f[1]->out[i]))
      return verify_fail(v, "result %u has %d dims in one branch and %d in the "
                         "other", i + 1, region_rank(f[0], &f[0]->out[i]),
                         region_rank(f[1], &f[1]->out[i]));
  return 0;
}

/* What is carried are tensors, which the body gives back. */
static int region_carry(const verify *v, const limn_graph *body) {
  const limn_graph *g = v->g;
  uint32_t n = v->a[0].n;
  if (body->nout < n)
    return verify_fail(v, "its body gives %u values for %u carried", body->nout,
                       n);
  for (uint32_t i = 0; i < n; i++) {
    const limn_arg *a = g->args + v->a[0].u.at + i;
    if (!region_is_tensor(g, a))
      return verify_fail(v, "carried value %u is no tensor", i + 1);
    if (region_rank(g, a) != region_rank(body, &body->out[i]))
      return verify_fail(v, "carried value %u has %d dims and becomes one with "
                         "%d", i + 1, region_rank(g, a),
                         region_rank(body, &body->out[i]));
  }
  return 0;
}

static int region_while(const verify *v) {
  const limn_graph *test = v->g->region[v->a[2].u.i];
  const limn_graph *body = v->g->region[v->a[3].u.i], *f[2] = {test, body};
  uint32_t nc = v->a[0].n, no = v->a[1].n;
  for (int i = 0; i < 2; i++) {
    LIMN_TRY(region_count(v, f[i], nc + no));
    LIMN_TRY(region_operands(v, f[i], 0, 0, 0, nc, 0));
    LIMN_TRY(region_operands(v, f[i], nc, 1, 0, no, 0));
    LIMN_TRY(region_tensors(v, f[i], f[i]->nout));
  }
  if (test->nout != 1 || region_rank(test, &test->out[0]) != 0)
    return verify_fail(v, "its test must give one bool");
  if (body->nout != nc)
    return verify_fail(v, "its body gives %u values for %u carried",
                       body->nout, nc);
  return region_carry(v, body);
}

static int region_scan(const verify *v) {
  const limn_graph *body = v->g->region[v->a[3].u.i];
  uint32_t nc = v->a[0].n, nx = v->a[1].n, no = v->a[2].n;
  if (nx == 0) return verify_fail(v, "there is nothing to go over");
  LIMN_TRY(region_count(v, body, nc + nx + no));
  LIMN_TRY(region_operands(v, body, 0, 0, 0, nc, 0));
  LIMN_TRY(region_operands(v, body, nc, 1, 0, nx, 1));
  LIMN_TRY(region_operands(v, body, nc + nx, 2, 0, no, 0));
  LIMN_TRY(region_tensors(v, body, body->nout));
  for (uint32_t i = nc; i < body->nout; i++)
    if (region_rank(body, &body->out[i]) == LIMN_MAXDIM)
      return verify_fail(v, "result %u has too many dims to be stacked", i + 1);
  return region_carry(v, body);
}

int verify_region(const verify *v) {
  int first, count = limn_op_regions(v->op, &first);
  if (v->op == OP_custom) count = 1; /* its gradient may be missing */
  for (int i = first; i < first + count; i++) {
    LIMN_TRY(verify_index(v, i, 0, v->g->nregion, "region"));
    if (v->g->region[v->a[i].u.i]->nout > UINT16_MAX)
      return verify_fail(v, "a region with %u results",
                         v->g->region[v->a[i].u.i]->nout);
  }
  switch (v->op) {
  case OP_custom:
    return region_custom(v);
  case OP_cond:
    return region_cond(v);
  case OP_while:
    return region_while(v);
  default:
    return region_scan(v);
  }
}
