/* Plans: the cache, and making one from a graph. */
#include "planner.h"

#include <stdio.h>
#include <stdlib.h>

#define PLAN_ENTRIES 512
#define PLAN_BYTES ((size_t)256 << 20)
#define PLAN_ALIGN 256 /* of temporaries in scratch; suits every device */

/* -- Arena -- */

struct limn_arena_block {
  struct limn_arena_block *next;
  size_t size, used;
};

void *limn_arena_alloc(limn_arena *a, size_t n) {
  struct limn_arena_block *b = a->first;
  size_t head = (sizeof *b + 15) & ~(size_t)15, size;
  void *p;
  n = (n + 15) & ~(size_t)15;
  if (!b || b->used + n > b->size) {
    size = LIMN_MAX(n + head, (size_t)4096);
    if (b && b->size < 1 << 16) size = LIMN_MAX(size, b->size * 2);
    b = limn_alloc(a->c, size);
    if (!b) return NULL;
    b->size = size;
    b->used = head;
    b->next = a->first;
    a->first = b;
    a->bytes += size;
  }
  p = (char *)b + b->used;
  b->used += n;
  return p;
}

void limn_arena_free(limn_arena *a) {
  while (a->first) {
    struct limn_arena_block *next = a->first->next;
    limn_free(a->c, a->first, a->first->size);
    a->first = next;
  }
  a->bytes = 0;
}

/* -- The cache -- */

static limn_plans *plan_list(const limn_plan *p) {
  return &p->c->plans[p->g->eager];
}

static void plan_unlink_lru(limn_plan *p) {
  limn_plans *l = plan_list(p);
  if (p->lru_prev) p->lru_prev->lru_next = p->lru_next;
  else if (l->first == p) l->first = p->lru_next;
  if (p->lru_next) p->lru_next->lru_prev = p->lru_prev;
  else if (l->last == p) l->last = p->lru_prev;
  p->lru_prev = p->lru_next = NULL;
}

static void plan_link_lru(limn_plan *p) {
  limn_plans *l = plan_list(p);
  p->lru_next = l->first;
  if (l->first) l->first->lru_prev = p;
  l->first = p;
  if (!l->last) l->last = p;
}

static void plan_unlink_graph(limn_plan *p) {
  limn_plan **at = p->g->planner ? &p->g->planner->first : NULL;
  for (; at && *at; at = &(*at)->next)
    if (*at == p) {
      *at = p->next;
      p->g->planner->stats.entries--;
      p->g->planner->stats.bytes -= p->bytes;
      return;
    }
}

#define PLAN_FREE(p, field, n) limn_free((p)->c, (p)->field, \
                                         (size_t)(n) * sizeof *(p)->field)

static void plan_drop_spare(limn_plan *p) {
  for (uint32_t k = 0; p->spare && k < p->nbind; k++) {
    limn_tensor_release(p->spare[p->bind[k]]);
    p->spare[p->bind[k]] = NULL;
  }
}

void limn_plan_pin(limn_plan *p) { p->pins++; }

void limn_plan_unpin(limn_plan *p) {
  if (--p->pins == 0) plan_drop_spare(p);
}

static void plan_free_region(limn_plan *p, limn_region_plan *r) {
  for (int i = 0; i < 2; i++) {
    for (uint32_t k = 0; r->in[i].loop && k < r->in[i].nfixed; k++) {
      limn_derived *d = &r->in[i].loop[k].derived;
      if (d->data) limn_realloc(p->c, d->data, d->size, 0, 64);
    }
    if (r->in[i].p) limn_plan_free(r->in[i].p);
    for (uint32_t k = 0; k < r->nprepared[i]; k++)
      p->dev->ops->discard(p->dev, &r->fix[i][k]);
  }
}

void limn_plan_free(limn_plan *p) {
  limn_context *c = p->c;
  plan_drop_spare(p);
  for (uint32_t i = 0; i < p->nstep_prepared; i++)
    if (!limn_step_host(&p->step[i]))
      p->dev->ops->discard(p->dev, &p->step[i]);
  for (limn_region_plan *r = p->regions; r; r = r->next)
    plan_free_region(p, r);
  limn_graph_release(p->expanded);
  PLAN_FREE(p, step, p->step_cap);
  PLAN_FREE(p, info, p->slot_cap);
  PLAN_FREE(p, imm_from, p->imm_cap);
  PLAN_FREE(p, host, p->host_cap);
  limn_arena_free(&p->mem);
  limn_free(c, p, sizeof *p);
}

static void plan_drop(limn_plan *p) {
  limn_plans *l = plan_list(p);
  plan_unlink_lru(p);
  plan_unlink_graph(p);
  l->n--;
  l->bytes -= p->bytes;
  limn_plan_free(p);
}

/* Keep within bounds; the plan in hand and plans in use stay. */
static void plan_trim(limn_plans *l, const limn_plan *keep) {
  limn_plan *p = l->last, *prev;
  uint32_t entries = l->max ? l->max : PLAN_ENTRIES;
  size_t bytes = l->max_bytes ? l->max_bytes : PLAN_BYTES;
  for (; p && (l->n > entries || l->bytes > bytes); p = prev) {
    prev = p->lru_prev;
    if (p == keep || p->busy || p->pins) continue;
    if (p->g->planner) p->g->planner->stats.evicted++;
    plan_drop(p);
  }
}

void limn_plans_limit(limn_context *c, uint32_t entries, size_t bytes) {
  for (int i = 0; i < LIMN_COUNT(c->plans); i++) {
    c->plans[i].max = entries;
    c->plans[i].max_bytes = bytes;
    plan_trim(&c->plans[i], NULL);
  }
}

void limn_plans_free(limn_context *c) {
  for (int i = 0; i < LIMN_COUNT(c->plans); i++)
    while (c->plans[i].first) plan_drop(c->plans[i].first);
}

/* -- Refusals -- */

static void plan_free_refusal(limn_context *c, limn_refusal *r) {
  limn_free(c, r->key, r->nkey * sizeof *r->key);
  if (r->error) limn_free(c, r->error, strlen(r->error) + 1);
  if (r->hint) limn_free(c, r->hint, strlen(r->hint) + 1);
  memset(r, 0, sizeof *r);
}

/* A copy that is not missed where there is no memory for it. */
static char *plan_text(limn_context *c, const char *s) {
  char *t = limn_realloc(c, NULL, 0, strlen(s) + 1, 16);
  if (t) strcpy(t, s);
  return t;
}

/* Remember that a guard failed for the key in n->keybuf; without memory for it
 * the guards are just checked again. */
static void plan_refuse(limn_context *c, limn_planner *n, uint32_t nkey) {
  limn_refusal *r = &n->refused[n->nrefused++ % LIMN_COUNT(n->refused)];
  plan_free_refusal(c, r);
  r->key = limn_realloc(c, NULL, 0, (nkey + 1) * sizeof *r->key, 16);
  if (!r->key) return;
  r->nkey = nkey + 1;
  memcpy(r->key, n->keybuf, nkey * sizeof *r->key);
  r->key[nkey] = 0;
  r->error = plan_text(c, c->error);
  r->hint = plan_text(c, limn_hint_text(c));
}

static int plan_refused(limn_context *c, const limn_planner *n,
                        uint32_t nkey) {
  for (int i = 0; i < LIMN_COUNT(n->refused); i++) {
    const limn_refusal *r = &n->refused[i];
    if (!r->error || !r->hint || r->nkey != nkey + 1 ||
        memcmp(r->key, n->keybuf, nkey * sizeof *r->key))
      continue;
    limn_fail(c, LIMN_EGUARD, "%s", r->error);
    return limn_hint(c, LIMN_EGUARD, "%s", r->hint);
  }
  return 0;
}

/* Plans that run or that calls hold stay until the graph goes. */
void limn_graph_forget(limn_graph *g) {
  limn_plan *p, *next;
  if (!g->planner) return;
  for (p = g->planner->first; p; p = next) {
    next = p->next;
    if (!p->busy && !p->pins) plan_drop(p);
  }
  for (int i = 0; i < LIMN_COUNT(g->planner->expanded); i++) {
    limn_graph_release(g->planner->expanded[i]);
    g->planner->expanded[i] = NULL;
  }
}

void limn_planner_free(limn_graph *g) {
  limn_planner *n = g->planner;
  if (!n) return;
  limn_graph_forget(g);
  while (n->first) plan_drop(n->first);
  for (uint32_t i = 0; i < n->konst_cap; i++) limn_cell_release(n->konst[i]);
  limn_free(g->c, n->konst, n->konst_cap * sizeof *n->konst);
  limn_graph_release(n->shadow);
  limn_keep_free(g);
  limn_free(g->c, n->size_number, g->nin + 1);
  limn_free(g->c, n->reads, g->nin + 1);
  limn_free(g->c, n->keybuf, n->keycap * sizeof *n->keybuf);
  for (int i = 0; i < LIMN_COUNT(n->refused); i++)
    plan_free_refusal(g->c, &n->refused[i]);
  limn_free(g->c, n, sizeof *n);
  g->planner = NULL;
}

/* -- Making a plan -- */

int64_t limn_saturate(double f) {
  if (f != f) return 0;
  if (f >= 9223372036854775808.0) return INT64_MAX;
  return f < -9223372036854775808.0 ? INT64_MIN : (int64_t)f;
}

static int plan_inputs(limn_plan *p, limn_planner *n, const limn_run_arg *in) {
  limn_graph *g = p->g;
  limn_type *t = limn_arena_alloc(&p->mem, (g->nin + 1) * sizeof *t);
  limn_view *v = limn_arena_alloc(&p->mem, (g->nin + 1) * sizeof *v);
  if (!t || !v) return LIMN_EMEM;
  for (uint32_t i = 0; i < g->nin; i++) {
    if (g->in[i].number) {
      t[i].kind = limn_graph_node(g, g->in[i].ref)->kind;
      t[i].known = n->size_number[i];
      t[i].f = in[i].number;
      t[i].i = limn_saturate(in[i].number);
      continue;
    }
    t[i] = limn_type_of(in[i].t);
    v[i] = in[i].t->v;
    if (limn_plan_dense(&v[i])) limn_view_dense(&v[i], v[i].ndim, v[i].d);
  }
  p->in_type = t;
  p->in_view = v;
  return 0;
}

static int plan_expanded(limn_graph *g, limn_planner *n, limn_device *dev,
                         limn_graph **out) {
  int at = dev->index < LIMN_COUNT(n->expanded) ? dev->index : 0;
  uint32_t policy = limn_plan_policy(g->c) | (uint32_t)dev->index << 24;
  if (n->expanded[at] && n->expanded_policy[at] != policy) {
    limn_graph_release(n->expanded[at]);
    n->expanded[at] = NULL;
  }
  if (!n->expanded[at]) LIMN_TRY(limn_rewrite(g, dev, &n->expanded[at]));
  n->expanded_policy[at] = policy;
  n->expanded[at]->mode_override = g->mode_override;
  *out = n->expanded[at];
  return 0;
}

/* -- Scratch: best fit by size over the steps of a temporary's life -- */

typedef struct {
  int64_t off, size;
  int32_t first, last;
} plan_block;

static int plan_by_size(const void *a, const void *b) {
  const limn_slot_info *x = *(limn_slot_info *const *)a;
  const limn_slot_info *y = *(limn_slot_info *const *)b;
  if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
  return x->first < y->first ? -1 : x->first > y->first;
}

/* Largest first; each goes to the lowest gap among those alive with it. */
static void plan_place(plan_block *b, uint32_t n, plan_block *x) {
  int64_t at = 0;
  bool moved = true;
  while (moved) {
    moved = false;
    for (uint32_t i = 0; i < n; i++) {
      bool alive = b[i].first <= x->last && x->first <= b[i].last;
      if (!alive || b[i].off >= at + x->size || at >= b[i].off + b[i].size)
        continue;
      at = b[i].off + b[i].size;
      moved = true;
    }
  }
  x->off = at;
}

static int plan_scratch(limn_plan *p) {
  limn_slot_info **s;
  plan_block *b;
  uint32_t n = 0;
  s = limn_arena_alloc(&p->mem, (p->nslot + 1) * sizeof(*s));
  b = limn_arena_alloc(&p->mem, (p->nslot + 1) * sizeof *b);
  if (!s || !b) return LIMN_EMEM;
  for (uint32_t i = 0; i < p->nslot; i++)
    if (p->info[i].kind == LIMN_SLOT_TEMP && p->info[i].first >= 0)
      s[n++] = &p->info[i];
  qsort(s, n, sizeof *s, plan_by_size);
  for (uint32_t i = 0; i < n; i++) {
    int64_t size = ((int64_t)s[i]->bytes + PLAN_ALIGN - 1) & ~(PLAN_ALIGN - 1);
    b[i] = (plan_block){0, LIMN_MAX(size, PLAN_ALIGN), s[i]->first, s[i]->last};
    plan_place(b, i, &b[i]);
    s[i]->off = b[i].off;
    p->scratch = LIMN_MAX(p->scratch, (size_t)(b[i].off + b[i].size));
  }
  return 0;
}

static int plan_prepare_step(limn_plan *p, limn_step *s) {
  int rc = limn_step_host(s) ? 0 : p->dev->ops->prepare(p->dev, s);
  if (rc < 0) {
    const limn_node *n = limn_graph_node(p->expanded, s->node);
    const char *line = limn_graph_text(p->expanded, n->line);
    limn_error_prepend(p->c, "%s%s%s: ", line, *line ? ": " : "",
                       p->dev->name);
    return rc;
  }
  p->cost_ns += s->cost_ns;
  for (int i = 0; s->group && i < s->group->ncode; i++)
    p->random |= limn_op_random(s->group->code[i].op);
  return 0;
}

static int plan_prepare(limn_plan *p) {
  p->slot = limn_arena_alloc(&p->mem, (p->nslot + 1) * sizeof *p->slot);
  p->imm = limn_arena_alloc(&p->mem, (p->nimm + 1) * sizeof *p->imm);
  p->host_value = limn_arena_alloc(&p->mem,
                                   (p->nhost + 1) * sizeof *p->host_value);
  p->bind = limn_arena_alloc(&p->mem, (p->nslot + 1) * sizeof *p->bind);
  p->written = limn_arena_alloc(&p->mem, (p->nslot + 1) * sizeof(void *));
  p->spare = limn_arena_alloc(&p->mem, (p->nslot + 1) * sizeof(void *));
  p->commit = limn_arena_alloc(&p->mem, (p->nwrite + 1) * sizeof(void *));
  p->held = limn_arena_alloc(&p->mem, (p->g->nin + 1) * sizeof(void *));
  p->draw = limn_arena_alloc(&p->mem,
                             (p->expanded->draws + 1u) * sizeof *p->draw);
  if (!p->draw || !p->slot || !p->imm || !p->host_value || !p->bind ||
      !p->written || !p->spare || !p->commit || !p->held)
    return LIMN_EMEM;
  for (uint32_t i = 0; i < p->nslot; i++)
    if (p->info[i].kind != LIMN_SLOT_TEMP) p->bind[p->nbind++] = (uint16_t)i;
  for (uint32_t i = 0; i < p->nimm; i++) p->imm[i] = p->imm_from[i].k;
  for (uint32_t i = 0; i < p->nstep; i++) {
    LIMN_TRY(plan_prepare_step(p, &p->step[i]));
    p->nstep_prepared = i + 1;
  }
  for (limn_region_plan *r = p->regions; r; r = r->next)
    for (int i = 0; i < 2; i++)
      for (; r->nprepared[i] < r->nfix[i]; r->nprepared[i]++)
        LIMN_TRY(plan_prepare_step(p, &r->fix[i][r->nprepared[i]]));
  return 0;
}

/* From types to prepared steps; branches that are decided go first. */
static int plan_make(limn_plan *p, limn_infer *I) {
  limn_fused f = {0};
  limn_arena tmp = {p->c, NULL, 0};
  limn_graph *known;
  int rc = 0;
  for (;;) {
    LIMN_GO(limn_infer_upto(I, I->g->nnode));
    LIMN_GO(limn_rewrite_known(I, p->dev, &known));
    if (!known) break;
    limn_infer_free(I);
    limn_graph_release(p->expanded);
    I->g = p->expanded = known;
  }
  LIMN_GO(limn_fuse(I, p->dev, &tmp, &f));
  LIMN_GO(limn_emit(p, I, &f, &tmp));
  LIMN_GO(plan_scratch(p));
  LIMN_GO(plan_prepare(p));
  p->bytes += p->mem.bytes + p->step_cap * sizeof *p->step +
              p->slot_cap * sizeof *p->info;
bail:
  limn_arena_free(&tmp);
  return rc;
}

static void plan_infer(const limn_plan *p, limn_infer *I) {
  memset(I, 0, sizeof *I);
  I->c = p->c, I->g = p->g, I->in = p->in_type;
  I->on_gpu = !p->dev->ops->host;
  I->device = p->dev->name;
}

static int plan_build(limn_plan *p, limn_planner *n, const limn_run_arg *in) {
  limn_graph *e;
  limn_infer I;
  int rc = 0;
  LIMN_TRY(plan_inputs(p, n, in));
  LIMN_TRY(plan_expanded(p->g, n, p->dev, &e));
  p->expanded = e;
  limn_graph_retain(e);
  plan_infer(p, &I); /* guards come first, where the user wrote them */
  LIMN_GO(limn_guards_check(&I));
  if (e != p->g) { /* ops that are made of others check their own rules */
    LIMN_GO(limn_infer_upto(&I, p->g->nnode));
    limn_infer_free(&I);
    I.g = e;
  }
  LIMN_GO(plan_make(p, &I));
bail:
  limn_infer_free(&I);
  return rc;
}

/* The outer plan's inference has been through the region as recorded. */
static int plan_build_inner(limn_plan *p, const limn_type *in,
                            const limn_view *view) {
  limn_graph *g = p->g;
  limn_type *t = limn_arena_alloc(&p->mem, (g->nin + 1) * sizeof *t);
  limn_view *v = limn_arena_alloc(&p->mem, (g->nin + 1) * sizeof *v);
  limn_planner *n;
  limn_infer I;
  int rc;
  if (!t || !v) return LIMN_EMEM;
  p->in_type = t, p->in_view = v;
  for (uint32_t i = 0; i < g->nin; i++) {
    t[i] = in[i], v[i] = view[i];
    if (limn_plan_dense(&v[i])) limn_view_dense(&v[i], v[i].ndim, v[i].d);
  }
  LIMN_TRY(limn_planner_get(g, &n));
  LIMN_TRY(plan_expanded(g, n, p->dev, &p->expanded));
  limn_graph_retain(p->expanded);
  plan_infer(p, &I);
  I.g = p->expanded;
  rc = plan_make(p, &I);
  limn_infer_free(&I);
  return rc;
}

int limn_plan_inner(limn_plan *outer, limn_graph *region, const limn_type *in,
                    const limn_view *view, limn_plan **out) {
  limn_plan *p = limn_alloc(outer->c, sizeof *p);
  int rc;
  *out = NULL;
  if (!p) return LIMN_EMEM;
  p->c = p->mem.c = outer->c;
  p->g = region;
  p->dev = outer->dev;
  p->inner = true;
  rc = plan_build_inner(p, in, view);
  if (rc < 0) {
    limn_plan_free(p);
    return rc;
  }
  outer->bytes += p->bytes;
  outer->cost_ns += p->cost_ns;
  outer->random |= p->random;
  *out = p;
  return 0;
}

static int plan_new(limn_graph *g, limn_planner *n, limn_device *dev,
                    const limn_run_arg *in, uint32_t nkey, limn_plan **out) {
  limn_plan *p = limn_alloc(g->c, sizeof *p);
  int rc;
  if (!p) return LIMN_EMEM;
  p->c = p->mem.c = g->c;
  p->g = g;
  p->dev = dev;
  p->key = limn_arena_alloc(&p->mem, (nkey + 1) * sizeof *p->key);
  rc = p->key ? 0 : LIMN_EMEM;
  if (rc == 0) memcpy(p->key, n->keybuf, nkey * sizeof *p->key);
  p->nkey = nkey;
  if (rc == 0) rc = plan_build(p, n, in);
  if (rc < 0) {
    limn_plan_free(p);
    return rc;
  }
  *out = p;
  return 0;
}

int limn_plan_find(limn_graph *g, limn_device *dev, const limn_run_arg *in,
                   limn_plan **out) {
  limn_planner *n;
  limn_plan **at, *p;
  uint32_t nkey;
  int rc;
  LIMN_TRY(limn_planner_get(g, &n));
  nkey = limn_plan_key(g, n, dev, in);
  for (at = &n->first; *at; at = &(*at)->next) {
    p = *at;
    if (p->nkey != nkey || memcmp(p->key, n->keybuf, nkey * sizeof *p->key))
      continue;
    if (at != &n->first) { /* most recent first */
      *at = p->next;
      p->next = n->first;
      n->first = p;
    }
    if (plan_list(p)->first != p) {
      plan_unlink_lru(p);
      plan_link_lru(p);
    }
    n->stats.hits++;
    g->c->count.plan_hits++;
    *out = p;
    return 0;
  }
  LIMN_TRY(plan_refused(g->c, n, nkey));
  rc = plan_new(g, n, dev, in, nkey, &p);
  if (rc == LIMN_EGUARD) plan_refuse(g->c, n, nkey);
  if (rc < 0) return rc;
  limn_plan_miss(g, n, dev, in);
  if (g->c->flags.dump[0]) limn_plan_dump(p);
  if (g->c->flags.debug & LIMN_DEBUG_TRACE && !g->eager)
    limn_log(g->c, 'v', "limn: plan of %s on %s, %u steps: %s", g->name,
             dev->name, p->nstep, n->stats.miss[0]);
  p->next = n->first;
  n->first = p;
  plan_link_lru(p);
  n->stats.plans++;
  n->stats.entries++;
  n->stats.bytes += p->bytes;
  g->c->count.plans++;
  plan_list(p)->n++;
  plan_list(p)->bytes += p->bytes;
  plan_trim(plan_list(p), p);
  *out = p;
  return 0;
}

void limn_graph_stats_get(limn_graph *g, limn_graph_stats *out) {
  memset(out, 0, sizeof *out);
  if (g->planner) *out = g->planner->stats;
}
