/* What a plan depends on, and what differed where there was none.
 *
 * A key is a list of 64-bit words and all that a plan may read: device and
 * policy, mode bits, and per input a word of dtype, rank and layout, its sizes,
 * and its strides when it is not dense; for a number input its bits, if the
 * graph uses it as a size. */
#include <stdio.h>

#include "planner.h"

uint32_t limn_plan_policy(const limn_context *c) {
  return c->flags.passes | (uint32_t)c->precise << 16 |
         (uint32_t)c->deterministic << 17 | (uint32_t)c->tf32 << 18;
}

static bool key_mode(const limn_graph *g, uint32_t i) {
  return g->mode_override < 0 ? g->mode[i].mode->training
                              : g->mode_override == 1;
}

/* Strides count only where they move between elements. */
bool limn_plan_dense(const limn_view *v) {
  int64_t want = 1;
  for (int d = v->ndim - 1; d >= 0; d--) {
    if (v->d[d] != 1 && v->s[d] != want) return false;
    want *= v->d[d];
  }
  return true;
}

uint32_t limn_plan_key(limn_graph *g, limn_planner *n, limn_device *dev,
                       const limn_run_arg *in) {
  uint64_t *k = n->keybuf;
  uint32_t at = 0;
  k[at++] = (uint64_t)dev->index << 32 | limn_plan_policy(g->c);
  for (uint32_t i = 0; i < g->nmode; i += 64) {
    uint64_t bits = 0;
    for (uint32_t j = i; j < g->nmode && j < i + 64; j++)
      bits |= (uint64_t)key_mode(g, j) << (j - i);
    k[at++] = bits;
  }
  for (uint32_t i = 0; i < g->nin; i++) {
    const limn_tensor *t = in[i].t;
    bool dense;
    if (g->in[i].number) {
      k[at] = 0;
      if (n->size_number[i]) memcpy(&k[at], &in[i].number, 8);
      at++;
      continue;
    }
    dense = limn_plan_dense(&t->v);
    k[at++] = (uint64_t)t->dtype | (uint64_t)t->v.ndim << 8 |
              (uint64_t)dense << 16;
    for (int d = 0; d < t->v.ndim; d++) k[at++] = (uint64_t)t->v.d[d];
    for (int d = 0; !dense && d < t->v.ndim; d++)
      k[at++] = (uint64_t)t->v.s[d];
  }
  return at;
}

static void key_miss_policy(limn_context *c, uint64_t was, char *m,
                             size_t n) {
  uint64_t bits = (was ^ limn_plan_policy(c)) & 0xffffffff;
  snprintf(m, n, "policy: %s", bits >> 17 ? "deterministic"
                               : bits >> 16 ? "precise" : "LIMN_OPT");
}

/* True if a mode differs. */
static bool key_miss_mode(const limn_graph *g, const limn_planner *n,
                           const limn_plan *p, char *m, size_t size) {
  for (uint32_t i = 0; i < g->nmode; i++) {
    uint64_t bit = (uint64_t)1 << i % 64;
    bool was = p->key[1 + i / 64] & bit, is = n->keybuf[1 + i / 64] & bit;
    const char *name = limn_graph_text(g, g->mode[i].name);
    if (was == is) continue;
    snprintf(m, size, "mode of %.48s: %s -> %s", *name ? name : "the module",
             was ? "training" : "evaluating", is ? "training" : "evaluating");
    return true;
  }
  return false;
}

/* True if input i differs. */
static bool key_miss_input(const limn_graph *g, const limn_planner *n,
                            const limn_plan *p, const limn_run_arg *in,
                            uint32_t i, char *m, size_t size) {
  const limn_type *was = &p->in_type[i];
  const char *name = limn_graph_text(g, g->in[i].name);
  const limn_tensor *t = in[i].t;
  if (g->in[i].number) {
    if (!n->size_number[i] || was->f == in[i].number) return false;
    snprintf(m, size, "number %%%.40s: %g -> %g", name, was->f, in[i].number);
    return true;
  }
  if (was->dtype != t->dtype) {
    snprintf(m, size, "dtype of %%%.40s: %s -> %s", name,
             limn_dtype_name(was->dtype), limn_dtype_name(t->dtype));
    return true;
  }
  for (int d = 0; d < was->shape.ndim; d++)
    if (was->shape.d[d] != t->v.d[d]) {
      snprintf(m, size, "size %d of %%%.40s: %lld -> %lld", d + 1, name,
               (long long)was->shape.d[d], (long long)t->v.d[d]);
      return true;
    }
  if (limn_plan_dense(&t->v) == limn_plan_dense(&p->in_view[i]) &&
      (limn_plan_dense(&t->v) ||
       !memcmp(t->v.s, p->in_view[i].s, 8 * (size_t)t->v.ndim)))
    return false;
  snprintf(m, size, "layout of %%%.40s: %s -> %s", name,
           limn_plan_dense(&p->in_view[i]) ? "dense" : "strided",
           limn_plan_dense(&t->v) ? "dense" : "strided");
  return true;
}

/* Which field made this a miss, compared with the latest plan. */
void limn_plan_miss(limn_graph *g, limn_planner *n, limn_device *dev,
                    const limn_run_arg *in) {
  limn_graph_stats *s = &n->stats;
  const limn_plan *p = n->first;
  const size_t size = sizeof s->miss[0];
  char *m;
  memmove(s->miss[1], s->miss[0], size * 7);
  m = s->miss[0];
  s->nmiss = LIMN_MIN(s->nmiss + 1, 8u);
  snprintf(m, size, "first run");
  if (!p) return;
  if (p->dev != dev) {
    snprintf(m, size, "device: %s -> %s", p->dev->name, dev->name);
    return;
  }
  for (uint32_t i = 0; i < g->nin; i++)
    if (key_miss_input(g, n, p, in, i, m, size)) return;
  if (!key_miss_mode(g, n, p, m, size)) key_miss_policy(g->c, p->key[0], m,
                                                          size);
}
