/* limn.debug {keep = true}: a graph keeps what each module path and each line
 * gave last. It runs as a copy with these values as further results, so that
 * passes and devices need not know. */
#include "planner.h"


/* The ends of "policy.head.out": that, "policy.head" and "policy". */
static int keep_note(limn_graph *k, limn_map *names, const char *text,
                     limn_ref r, bool path) {
  size_t n = strlen(text);
  while (n > 0) {
    LIMN_TRY(limn_map_put(k->c, names, text, n, (void *)(uintptr_t)r));
    if (!path) return 0;
    for (n--; n > 0 && text[n] != '.';) n--;
  }
  return 0;
}

/* The last value of each path and line. */
static int keep_names(limn_graph *k, limn_map *names) {
  for (limn_ref r = 1; r <= k->nnode; r++) {
    const limn_node *n = limn_graph_node(k, r);
    if (n->kind != LIMN_V_TENSOR || n->nresult > 1 ||
        !(n->flags & LIMN_N_USER))
      continue;
    LIMN_TRY(keep_note(k, names, limn_graph_text(k, n->path), r, true));
    LIMN_TRY(keep_note(k, names, limn_graph_text(k, n->line), r, false));
  }
  return 0;
}

static int keep_make(limn_graph *g, limn_planner *n) {
  limn_map names = {0};
  limn_graph *k;
  int rc = 0;
  LIMN_TRY(limn_graph_clone(g, &k));
  n->keep = k;
  LIMN_GO(keep_names(k, &names));
  n->kept = limn_alloc(g->c, (names.n + 1u) * sizeof(limn_kept));
  if (!n->kept) LIMN_GO(LIMN_EMEM);
  n->kept_cap = names.n + 1u;
  for (uint32_t i = 0; i < names.cap; i++) {
    const limn_map_entry *e = &names.e[i];
    char *name;
    if (!e->key) continue;
    name = limn_alloc(g->c, e->klen + 1u);
    if (!name) LIMN_GO(LIMN_EMEM);
    memcpy(name, e->key, e->klen);
    n->kept[n->nkept++].name = name;
    LIMN_GO(limn_graph_add_out(k, limn_aref((limn_ref)(uintptr_t)e->value)));
  }
bail:
  limn_map_free(g->c, &names);
  if (rc < 0) limn_keep_free(g);
  return rc;
}

void limn_keep_free(limn_graph *g) {
  limn_planner *n = g->planner;
  for (uint32_t i = 0; i < n->nkept; i++) {
    limn_tensor_release(n->kept[i].value);
    limn_free(g->c, n->kept[i].name, strlen(n->kept[i].name) + 1);
  }
  limn_free(g->c, n->kept, n->kept_cap * sizeof *n->kept);
  limn_graph_release(n->keep);
  n->kept = NULL, n->keep = NULL;
  n->nkept = n->kept_cap = 0;
}

/* Results of the copy: first the graph's own, then what is kept. */
static int keep_run(limn_graph *g, limn_device *dev, const limn_run_arg *in,
                    limn_tensor *const *into, limn_result *all,
                    limn_tensor **to) {
  limn_graph *k = g->planner->keep;
  limn_plan *p;
  if (into) memcpy(to, into, g->nout * sizeof *to);
  LIMN_TRY(limn_plan_get(k, dev, in, &p));
  return limn_plan_run(p, in, into ? to : NULL, NULL, all);
}

int limn_keep_run(limn_graph *g, limn_device *dev, const limn_run_arg *in,
                  limn_tensor *const *into, limn_result *out) {
  limn_planner *n;
  limn_result *all;
  limn_tensor **to;
  size_t count;
  int rc;
  LIMN_TRY(limn_planner_get(g, &n));
  if (!n->keep) LIMN_TRY(keep_make(g, n));
  n->keep->mode_override = g->mode_override;
  n->stats.runs++;
  count = n->keep->nout + 1u;
  all = limn_alloc(g->c, count * sizeof *all);
  to = limn_alloc(g->c, count * sizeof *to);
  rc = all && to ? keep_run(g, dev, in, into, all, to) : LIMN_EMEM;
  if (rc == 0) memcpy(out, all, g->nout * sizeof *out);
  for (uint32_t i = 0; rc == 0 && i < n->nkept; i++) {
    limn_tensor_release(n->kept[i].value);
    n->kept[i].value = all[g->nout + i].t;
  }
  limn_free(g->c, all, count * sizeof *all);
  limn_free(g->c, to, count * sizeof *to);
  return rc;
}

const char *limn_graph_kept(limn_graph *g, uint32_t i, limn_tensor **out) {
  *out = NULL;
  if (!g->planner || i >= g->planner->nkept) return NULL;
  *out = g->planner->kept[i].value;
  return g->planner->kept[i].name;
}
