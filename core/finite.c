/* limn.debug {nan = true}: the first step that makes NaN or infinity out of
 * finite operands fails, with its line, path, the place in the result and the
 * ranges of the operands. Runs are planned without fusing then, so that a step
 * is an op. Numbers that are not finite themselves (a mask's -inf) excuse what
 * comes out of them. */
#include <math.h>
#include <stdio.h>

#include "planner.h"

typedef struct {
  double low, high;
  int64_t bad, n; /* how many are not finite, of how many */
  int64_t first;  /* the first of these, in row-major order */
  double value;   /* what is there */
} finite_range;

/* -- What a step reads or writes -- */

/* The bytes that a view covers; *lo: the first element of them. */
static int finite_fetch(const limn_plan *p, const limn_operand *o, char **buf,
                        size_t *bytes, int64_t *lo) {
  const limn_slot *s = &p->slot[o->slot];
  int64_t hi;
  size_t size = (size_t)limn_dtype_size(o->dtype), from;
  limn_view_extent(&o->v, lo, &hi);
  *bytes = (size_t)(hi - *lo + 1) * size;
  *buf = limn_alloc(p->c, *bytes + 1);
  if (!*buf) return LIMN_EMEM;
  from = (size_t)(s->off + *lo * (int64_t)size);
  if (*bytes == 0) return 0;
  if (!p->dev->ops->host)
    return p->dev->ops->download(p->dev, s->mem, from, *buf, *bytes);
  memcpy(*buf, (const char *)s->mem + from, *bytes);
  return 0;
}

static void finite_note(finite_range *r, double v, int64_t at) {
  if (isfinite(v)) {
    if (v < r->low) r->low = v;
    if (v > r->high) r->high = v;
  } else if (r->bad++ == 0) {
    r->first = at, r->value = v;
  }
}

static int finite_look(const limn_plan *p, const limn_operand *o,
                       finite_range *r) {
  int64_t at[LIMN_MAXDIM] = {0}, lo, where = 0;
  int size = limn_dtype_size(o->dtype);
  size_t bytes = 0;
  char *buf = NULL;
  int rc = finite_fetch(p, o, &buf, &bytes, &lo);
  *r = (finite_range){INFINITY, -INFINITY, 0, limn_numel(o->v.ndim, o->v.d), 0,
                      0};
  for (int64_t i = 0; rc == 0 && i < r->n; i++) {
    int d = o->v.ndim - 1;
    finite_note(r, limn_load_real(o->dtype, buf + (o->v.offset + where - lo) *
                                                      size), i);
    for (; d >= 0; d--) { /* the next element in row-major order */
      where += o->v.s[d];
      if (++at[d] < o->v.d[d]) break;
      where -= at[d] * o->v.s[d];
      at[d] = 0;
    }
  }
  limn_free(p->c, buf, bytes + 1);
  return rc;
}

/* -- The sentence -- */

static const char *finite_hint(int op) {
  switch (op) {
    case OP_log: case OP_log2: case OP_log10:
      return "log is -inf at 0 and NaN below: clamp(1e-6) first, or "
             "log_softmax for probabilities";
    case OP_div: case OP_reciprocal:
      return "a divisor is 0: add a small number to it";
    case OP_sqrt: case OP_rsqrt: case OP_pow:
      return "a root of a negative number, or a power of 0: clamp first";
    case OP_exp: case OP_exp2: case OP_expm1: case OP_cosh: case OP_sinh:
      return "e^x overflows: subtract the largest first, as softmax and "
             "logsumexp do";
    default:
      return "limn.print shows values; a smaller learning rate, or clipped "
             "gradients, keep them small";
  }
}

static void finite_place(const limn_view *v, int64_t i, char *buf, size_t n) {
  limn_shape s = {v->ndim, {0}};
  for (int d = v->ndim - 1; d >= 0; d--) {
    s.d[d] = i % v->d[d] + 1;
    i /= v->d[d];
  }
  limn_shape_text(buf, n, s.ndim, s.d);
}

static int finite_fail(const limn_plan *p, const limn_step *s,
                       const limn_operand *o, const finite_range *r,
                       const limn_turn *turn) {
  limn_context *c = p->c;
  const limn_node *n = limn_graph_node(p->expanded, s->node);
  const char *line = limn_graph_text(p->expanded, n->line);
  const char *path = limn_graph_text(p->expanded, n->path);
  char at[96], shape[96];
  finite_range in;
  finite_place(&o->v, r->first, at, sizeof at);
  limn_fail(c, LIMN_EVALUE, "%s%s%s makes %s out of finite operands, at %s "
            "(%lld of %lld elements)", line, *line ? ": " : "",
            limn_op_get(n->op)->name, r->value != r->value ? "NaN"
            : r->value > 0 ? "infinity" : "-infinity", at, (long long)r->bad,
            (long long)r->n);
  for (int i = 0; i < s->nin && i < 8; i++) {
    const limn_operand *x = &s->in[i];
    if (!limn_step_reads(s, i)) continue;
    LIMN_TRY(finite_look(p, x, &in));
    limn_error_append(c, "\n  operand %d: %s %s on %s", i + 1,
                      limn_dtype_name(x->dtype),
                      limn_shape_text(shape, sizeof shape, x->v.ndim, x->v.d),
                      p->dev->name);
    if (in.low <= in.high)
      limn_error_append(c, ", from %g to %g", in.low, in.high);
  }
  limn_turn_append(c, limn_turn_pack(turn));
  if (*path) limn_error_append(c, "\n  in %s", path);
  return limn_hint(c, LIMN_EVALUE, "%s", finite_hint(n->op));
}

/* -- A step -- */

/* A number that is not finite is an operand of the step. */
static bool finite_is_excused(const limn_step *s, const limn_bind *b) {
  for (int i = 0; s->group && i < s->group->ncode; i++)
    if (s->group->code[i].op == LIMN_I_IMM &&
        !isfinite(b->imm[s->group->code[i].arg].f))
      return true;
  return false;
}

int limn_finite_check(limn_plan *p, const limn_step *s, const limn_bind *b) {
  finite_range r;
  if (limn_step_host(s)) return 0; /* what is inside is checked */
  for (int i = 0; i < s->nout; i++) {
    bool excused = false;
    if (!limn_dtype_float(s->out[i].dtype)) continue;
    LIMN_TRY(finite_look(p, &s->out[i], &r));
    if (r.bad == 0) continue;
    excused = finite_is_excused(s, b);
    for (int k = 0; k < s->nin && !excused; k++) {
      finite_range x;
      if (!limn_step_reads(s, k)) continue;
      if (!limn_dtype_float(s->in[k].dtype)) continue;
      LIMN_TRY(finite_look(p, &s->in[k], &x));
      excused = x.bad > 0;
    }
    if (!excused) return finite_fail(p, s, &s->out[i], &r, b->turn);
  }
  return 0;
}
