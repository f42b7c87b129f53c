/* Traces of the bodies of control flow, and the nodes that are made of them.
 *
 * A region is closed: whatever its code takes from outside becomes an input.
 * A cell that it assigns is a value like others: what it holds when the region
 * starts is an input (carried, in a loop), what it holds at the end a result,
 * which the outer trace assigns. */
#include <stdio.h>

#include "trace.h"

/* -- Values from outside -- */

/* What the outer trace calls a value, or "o3". */
static void region_name(const limn_trace *t, limn_arg outer, char *buf,
                        size_t n) {
  const limn_graph *g = t->outer->g;
  const limn_node *nd = limn_graph_node(g, outer.u.ref);
  int64_t i = nd->nargs ? g->args[nd->args].u.i : 0;
  switch (nd->op) {
    case OP_input: case OP_number: case OP_cell: case OP_const:
      limn_arg_text(g, outer, buf, n);
      memmove(buf, buf + 1, strlen(buf)); /* without % or @ */
      break;
    case OP_mode:
      snprintf(buf, n, "%s.training", limn_graph_text(g, g->mode[i].name));
      break;
    default: snprintf(buf, n, "o%u", t->ncaptured + 1);
  }
}

/* The input that stands for this outer value, or for this cell's. */
static limn_ref region_known(const limn_trace *t, limn_arg outer,
                             const limn_cell *cell) {
  uint32_t own = t->g->nin - t->ncaptured;
  for (uint32_t i = 0; i < t->ncaptured; i++) {
    const limn_capture *k = &t->captured[i];
    if (k->cell == cell && (cell || k->outer.u.ref == outer.u.ref))
      return t->g->in[own + i].ref;
  }
  return 0;
}

int limn_region_capture(limn_trace *t, limn_arg outer, limn_cell *cell,
                        limn_arg *out) {
  char name[128];
  const limn_type *hint;
  limn_ref r;
  *out = outer;
  if (outer.tag != LIMN_A_REF) return 0;
  if ((r = region_known(t, outer, cell)) != 0) {
    *out = limn_aref(r);
    return 0;
  }
  hint = limn_trace_hint(t->outer, outer.u.ref);
  if (!hint) return t->c->last;
  if (hint->kind == LIMN_V_DEVICE) { /* the run's, here as there */
    LIMN_TRY(limn_trace_op(t, OP_device, NULL, 0, &r));
    *out = limn_aref(r);
    return 0;
  }
  LIMN_TRY(limn_grow(t->c, &t->captured, &t->captured_cap, t->ncaptured + 1,
                     sizeof *t->captured));
  region_name(t, outer, name, sizeof name);
  if (hint->kind == LIMN_V_TENSOR)
    LIMN_TRY(limn_trace_input(t, name, hint, &r));
  else
    LIMN_TRY(limn_trace_host(t, name, hint, &r));
  t->captured[t->ncaptured++] = (limn_capture){outer, cell};
  *out = limn_aref(r);
  return 0;
}

static limn_region_cell *region_wrote(const limn_trace *t,
                                      const limn_cell *cell) {
  for (uint32_t i = 0; i < t->nwrote; i++)
    if (t->wrote[i].cell == cell) return &t->wrote[i];
  return NULL;
}

/* What the cell holds when the region starts. */
static int region_entry(limn_trace *t, limn_cell *cell, limn_arg *out) {
  limn_arg outer;
  LIMN_TRY(limn_trace_cell_read(t->outer, cell, &outer));
  return limn_region_capture(t, outer, cell, out);
}

int limn_region_read(limn_trace *t, limn_cell *cell, limn_arg *out) {
  const limn_region_cell *w = region_wrote(t, cell);
  if (!w) return region_entry(t, cell, out);
  *out = w->now;
  return 0;
}

int limn_region_write(limn_trace *t, limn_cell *cell, limn_arg v) {
  limn_region_cell *w = region_wrote(t, cell);
  if (!w) {
    LIMN_TRY(limn_grow(t->c, &t->wrote, &t->wrote_cap, t->nwrote + 1,
                       sizeof *t->wrote));
    w = &t->wrote[t->nwrote++];
    w->cell = cell;
    limn_cell_retain(cell);
  }
  w->now = v;
  return 0;
}

int limn_region_leave(limn_trace *t) {
  if (!t->region || t->c->trace != t)
    return limn_fail(t->c, LIMN_ETRACE, "a region is left that is not running");
  limn_trace_leave(t);
  return 0;
}

static bool region_is_tensor(const limn_graph *g, limn_arg a) {
  return a.tag == LIMN_A_REF &&
         limn_graph_node(g, a.u.ref)->kind == LIMN_V_TENSOR;
}

/* A number becomes a tensor: like `like`, or of a dtype and 0 dims. A tensor is
 * converted to a dtype where one is given. */
int limn_region_give(limn_trace *t, const limn_value *v, limn_arg like) {
  limn_arg x, a[3] = {{0}};
  limn_ref r;
  bool tensor = region_is_tensor(t->g, like);
  int op = tensor ? OP_full_like : OP_full;
  LIMN_TRY(limn_trace_arg(t, v, &x));
  if (region_is_tensor(t->g, x)) {
    if (tensor || like.tag == LIMN_A_NONE) return limn_graph_add_out(t->g, x);
    a[0] = x, a[1] = like;
    LIMN_TRY(limn_trace_op(t, OP_convert, a, 2, &r));
    return limn_graph_add_out(t->g, limn_aref(r));
  }
  a[1] = x;
  if (op == OP_full_like) a[0] = like;
  else a[0].tag = LIMN_A_LIST, a[2] = like;
  LIMN_TRY(limn_trace_op(t, op, a, 3, &r));
  return limn_graph_add_out(t->g, limn_aref(r));
}

/* -- Regions that belong together -- */

enum { REGION_MOST = 2 };
typedef struct {
  limn_trace *outer;
  limn_trace *t[REGION_MOST];
  int n;
  uint32_t own;      /* inputs that are not captures */
  limn_cell **cell;  /* that any of them assigns; borrowed from the traces */
  uint32_t ncell, cell_cap;
  limn_arg *operand; /* what the captures are that remain */
  uint32_t noperand, operand_cap;
} region_set;

static int region_open(region_set *s) {
  for (int i = 0; i < s->n; i++)
    if (!s->t[i]->left || s->t[i]->ended || s->t[i]->outer != s->outer)
      return limn_fail(s->outer->c, LIMN_ETRACE,
                       "the bodies belong to another trace");
  return 0;
}

static void region_close(region_set *s) {
  limn_context *c = s->outer->c;
  for (int i = 0; i < s->n; i++)
    if (!s->t[i]->ended) limn_trace_close(s->t[i]);
  limn_free(c, s->cell, s->cell_cap * sizeof(limn_cell *));
  limn_free(c, s->operand, s->operand_cap * sizeof *s->operand);
}

static bool region_has(const region_set *s, const limn_cell *cell) {
  for (uint32_t i = 0; i < s->ncell; i++)
    if (s->cell[i] == cell) return true;
  return false;
}

/* Cells in the order of their first assignment. */
static int region_cells(region_set *s) {
  for (int i = 0; i < s->n; i++)
    for (uint32_t k = 0; k < s->t[i]->nwrote; k++) {
      limn_cell *cell = s->t[i]->wrote[k].cell;
      if (region_has(s, cell)) continue;
      LIMN_TRY(limn_grow(s->outer->c, &s->cell, &s->cell_cap, s->ncell + 1,
                         sizeof(limn_cell *)));
      s->cell[s->ncell++] = cell;
    }
  return 0;
}

/* Every region gets the captures of the others, and the cells on entry if
 * `entry`. The list may grow while it is gone through. */
static int region_unite(region_set *s, bool entry) {
  limn_arg a;
  for (int i = 0; i < s->n; i++)
    for (uint32_t k = 0; k < s->ncell && entry; k++)
      LIMN_TRY(region_entry(s->t[i], s->cell[k], &a));
  for (int i = 0; i < s->n; i++)
    for (int j = 0; j < s->n; j++)
      for (uint32_t k = 0; i != j && k < s->t[i]->ncaptured; k++) {
        limn_capture x = s->t[i]->captured[k];
        LIMN_TRY(limn_region_capture(s->t[j], x.outer, x.cell, &a));
      }
  return 0;
}

/* What each region says the cells hold at its end, as results before number
 * `at`. */
static int region_give_cells(region_set *s, limn_trace *t, uint32_t at) {
  limn_graph *g = t->g;
  uint32_t rest = g->nout - at;
  for (uint32_t k = 0; k < s->ncell; k++)
    LIMN_TRY(limn_graph_add_out(g, limn_none()));
  if (rest) memmove(g->out + at + s->ncell, g->out + at, rest * sizeof *g->out);
  for (uint32_t k = 0; k < s->ncell; k++)
    LIMN_TRY(limn_region_read(t, s->cell[k], &g->out[at + k]));
  return 0;
}

static void region_mark(limn_ref r, void *used) {
  ((uint8_t *)used)[r - 1] = 1;
}

/* Whether input i of a finished graph is used. */
static bool region_uses(const limn_graph *g, const uint8_t *used, uint32_t i) {
  for (uint32_t k = 0; k < g->nout; k++)
    if (g->out[k].tag == LIMN_A_REF && g->out[k].u.ref == g->in[i].ref)
      return true;
  for (uint32_t k = 0; k < g->nguard; k++)
    if (g->guard[k].cond.tag == LIMN_A_REF &&
        g->guard[k].cond.u.ref == g->in[i].ref)
      return true;
  return used[g->in[i].ref - 1];
}

/* Which captures (by their order in t[0]) are used by any region: keep[]. */
static int region_keep(region_set *s, uint8_t *keep) {
  for (int i = 0; i < s->n; i++) {
    limn_trace *t = s->t[i];
    uint8_t *used = limn_alloc(t->c, t->g->nnode + 1u);
    if (!used) return LIMN_EMEM;
    for (limn_ref r = 1; r <= t->g->nnode; r++)
      limn_node_refs(t->g, r, region_mark, used);
    for (uint32_t k = 0; k < s->t[0]->ncaptured; k++) {
      limn_capture x = s->t[0]->captured[k];
      limn_ref r = region_known(t, x.outer, x.cell);
      for (uint32_t j = s->own; j < t->g->nin; j++)
        if (t->g->in[j].ref == r) keep[k] |= region_uses(t->g, used, j);
    }
    limn_free(t->c, used, t->g->nnode + 1u);
  }
  return 0;
}

/* Where the captures of t go: those of assigned cells in a loop at `cells`,
 * the others from `rest` on, in t[0]'s order. */
static int region_place(region_set *s, limn_trace *t, const uint8_t *keep,
                        uint32_t cells, uint32_t ncells, uint32_t rest,
                        int32_t *to) {
  for (uint32_t k = 0; k < s->t[0]->ncaptured; k++) {
    limn_capture x = s->t[0]->captured[k];
    limn_ref r = region_known(t, x.outer, x.cell);
    int32_t at = -1;
    for (uint32_t j = 0; j < ncells; j++)
      if (s->cell[j] == x.cell) at = (int32_t)(cells + j);
    if (at < 0 && keep[k]) at = (int32_t)rest++;
    for (uint32_t j = s->own; j < t->g->nin; j++)
      if (t->g->in[j].ref == r) to[j] = at;
  }
  return limn_graph_arrange(t->g, to, rest);
}

/* Inputs of every region in the same order: `carry` own ones, the cells that a
 * loop carries, the other own ones, captures. */
static int region_arrange(region_set *s, uint32_t carry, uint32_t ncells) {
  limn_context *c = s->outer->c;
  limn_trace *t0 = s->t[0];
  size_t n = t0->ncaptured + 1u, nto = (t0->g->nin + 1u) * sizeof(int32_t);
  uint8_t *keep = limn_alloc(c, n);
  int32_t *to = limn_alloc(c, nto);
  int rc = keep && to ? 0 : LIMN_EMEM;
  if (rc == 0) rc = region_keep(s, keep);
  for (uint32_t k = 0; k < t0->ncaptured && rc == 0; k++) {
    bool carried = ncells && region_has(s, t0->captured[k].cell);
    if (!keep[k] || carried) continue;
    rc = limn_grow(c, &s->operand, &s->operand_cap, s->noperand + 1,
                   sizeof *s->operand);
    if (rc == 0) s->operand[s->noperand++] = t0->captured[k].outer;
  }
  for (int i = 0; i < s->n && rc == 0; i++) {
    for (uint32_t j = 0; j < s->own; j++)
      to[j] = (int32_t)(j < carry ? j : j + ncells);
    rc = region_place(s, s->t[i], keep, carry, ncells, s->own + ncells, to);
  }
  limn_free(c, keep, n);
  limn_free(c, to, nto);
  return rc;
}

/* Inputs and results as plain lists: a region can be called like a graph. */
static int region_trees(limn_graph *g) {
  limn_context *c = g->c;
  LIMN_TRY(limn_tree_push(c, &g->in_tree, &g->nin_tree, &g->in_tree_cap,
                          LIMN_T_LIST, g->nin, 0));
  for (uint32_t i = 0; i < g->nin; i++) {
    LIMN_TRY(limn_tree_push(c, &g->in_tree, &g->nin_tree, &g->in_tree_cap,
                            LIMN_T_LEAF, 0, 0));
    LIMN_TRY(limn_grow(c, &g->statics, &g->static_cap, i + 1,
                       sizeof *g->statics));
    g->statics[g->nstatic++] = limn_aref(g->in[i].ref);
  }
  LIMN_TRY(limn_tree_push(c, &g->out_tree, &g->nout_tree, &g->out_tree_cap,
                          LIMN_T_LIST, g->nout, 0));
  for (uint32_t i = 0; i < g->nout; i++)
    LIMN_TRY(limn_tree_push(c, &g->out_tree, &g->nout_tree, &g->out_tree_cap,
                            LIMN_T_LEAF, 0, 0));
  return 0;
}

static int region_finish(region_set *s) {
  for (int i = 0; i < s->n; i++) LIMN_TRY(limn_trace_finish(s->t[i]));
  return 0;
}

/* -- Nodes -- */

static int region_list(limn_graph *g, const limn_arg *a, uint32_t n,
                       limn_arg *out) {
  *out = limn_none();
  out->tag = LIMN_A_LIST;
  out->n = n;
  return limn_graph_push_args(g, a, n, &out->u.at);
}

static int region_add(region_set *s, limn_trace *t, limn_arg *out) {
  uint32_t at;
  LIMN_TRY(region_trees(t->g));
  LIMN_TRY(limn_graph_add_region(s->outer->g, t->g, &at));
  *out = limn_aint(at);
  return 0;
}

/* The node, and the assignments of its results from number `first` (from 1)
 * on; a region that prints is an effect. */
static int region_node(region_set *s, int op, const limn_arg *a, int n,
                       uint32_t first, limn_ref *out) {
  limn_trace *t = s->outer;
  limn_arg pick[2];
  limn_ref r;
  LIMN_TRY(limn_trace_op(t, op, a, n, out));
  if (limn_node_effect(t->g, *out))
    LIMN_TRY(limn_graph_add_effect(t->g, *out));
  for (uint32_t k = 0; k < s->ncell; k++) {
    pick[0] = limn_aref(*out);
    pick[1] = limn_aint(first + k);
    LIMN_TRY(limn_trace_op(t, OP_pick, pick, 2, &r));
    LIMN_TRY(limn_trace_cell_write(t, s->cell[k], limn_aref(r)));
  }
  return 0;
}

int limn_region_cond(limn_trace *outer, limn_arg pred, limn_trace *f,
                     limn_trace *g, limn_ref *out) {
  region_set s = {outer, {f, g}, 2, 0, NULL, 0, 0, NULL, 0, 0};
  uint32_t n = f->g->nout;
  limn_arg a[5] = {pred};
  int rc = region_open(&s);
  if (rc < 0) return rc;
  LIMN_GO(region_cells(&s));
  for (int i = 0; i < 2; i++) LIMN_GO(region_give_cells(&s, s.t[i], n));
  LIMN_GO(region_unite(&s, false));
  LIMN_GO(region_finish(&s));
  LIMN_GO(region_arrange(&s, 0, 0));
  LIMN_GO(region_list(outer->g, s.operand, s.noperand, &a[1]));
  LIMN_GO(region_add(&s, f, &a[2]));
  LIMN_GO(region_add(&s, g, &a[3]));
  LIMN_GO(region_node(&s, OP_cond, a, 5, n + 1, out));
bail:
  region_close(&s);
  return rc;
}

/* Carried values: those given, then what the cells hold now. */
static int region_carry(region_set *s, const limn_arg *carry, uint32_t n,
                        limn_arg *out) {
  limn_context *c = s->outer->c;
  size_t bytes = (n + s->ncell + 1u) * sizeof *carry;
  limn_arg *all = limn_alloc(c, bytes);
  int rc = all ? 0 : LIMN_EMEM;
  if (rc == 0 && n) memcpy(all, carry, n * sizeof *carry);
  for (uint32_t k = 0; k < s->ncell && rc == 0; k++)
    rc = limn_trace_cell_read(s->outer, s->cell[k], &all[n + k]);
  if (rc == 0) rc = region_list(s->outer->g, all, n + s->ncell, out);
  limn_free(c, all, bytes);
  return rc;
}

/* Within a turn the body's random numbers come after the test's. */
static void region_follow(limn_graph *body, uint32_t draws) {
  for (limn_ref r = 1; r <= body->nnode; r++) {
    const limn_node *n = limn_graph_node(body, r);
    if (limn_op_random(n->op))
      limn_node_args(body, r)[n->nargs - 1].u.i += draws;
  }
  body->draws += draws;
}

int limn_region_while(limn_trace *outer, const limn_arg *carry, int n,
                      limn_trace *test, limn_trace *body, limn_ref *out) {
  region_set s = {outer, {test, body}, 2, (uint32_t)n, NULL, 0, 0, NULL, 0, 0};
  limn_arg a[5];
  int rc = region_open(&s);
  if (rc < 0) return rc;
  if (test->nwrote)
    LIMN_GO(limn_fail(outer->c, LIMN_ETRACE, "the test of a loop assigns to "
                      "%s; only its body may", test->wrote[0].cell->name
                      ? test->wrote[0].cell->name : "a cell"));
  LIMN_GO(region_cells(&s));
  LIMN_GO(region_unite(&s, true));
  LIMN_GO(region_give_cells(&s, body, (uint32_t)n));
  LIMN_GO(region_finish(&s));
  LIMN_GO(region_arrange(&s, (uint32_t)n, s.ncell));
  region_follow(body->g, test->g->draws);
  LIMN_GO(region_carry(&s, carry, (uint32_t)n, &a[0]));
  LIMN_GO(region_list(outer->g, s.operand, s.noperand, &a[1]));
  LIMN_GO(region_add(&s, test, &a[2]));
  LIMN_GO(region_add(&s, body, &a[3]));
  LIMN_GO(region_node(&s, OP_while, a, 5, (uint32_t)n + 1, out));
bail:
  region_close(&s);
  return rc;
}

int limn_region_scan(limn_trace *outer, const limn_arg *carry, int n,
                     const limn_arg *xs, int nx, limn_trace *body,
                     bool reverse, limn_ref *out, int *cells) {
  region_set s = {outer, {body}, 1, (uint32_t)(n + nx), NULL, 0, 0, NULL, 0,
                  0};
  limn_arg a[6];
  int rc = region_open(&s);
  if (rc < 0) return rc;
  LIMN_GO(region_cells(&s));
  LIMN_GO(region_unite(&s, true));
  LIMN_GO(region_give_cells(&s, body, (uint32_t)n));
  LIMN_GO(region_finish(&s));
  LIMN_GO(region_arrange(&s, (uint32_t)n, s.ncell));
  LIMN_GO(region_carry(&s, carry, (uint32_t)n, &a[0]));
  LIMN_GO(region_list(outer->g, xs, (uint32_t)nx, &a[1]));
  LIMN_GO(region_list(outer->g, s.operand, s.noperand, &a[2]));
  LIMN_GO(region_add(&s, body, &a[3]));
  a[4] = limn_abool(reverse);
  LIMN_GO(region_node(&s, OP_scan, a, 6, (uint32_t)n + 1, out));
  *cells = (int)s.ncell;
bail:
  region_close(&s);
  return rc;
}

/* The operands of a custom node are f's own, then what f captured, then what
 * its gradient did. */
static int region_joined(limn_trace *outer, const limn_arg *xs, uint32_t n,
                         const region_set s[2], limn_arg *out) {
  uint32_t all = n + s[0].noperand + s[1].noperand;
  size_t bytes = (all + 1u) * sizeof *xs;
  limn_arg *a = limn_alloc(outer->c, bytes);
  int rc;
  if (!a) return LIMN_EMEM;
  if (n) memcpy(a, xs, n * sizeof *a);
  for (int i = 0; i < 2; n += s[i++].noperand)
    if (s[i].noperand)
      memcpy(a + n, s[i].operand, s[i].noperand * sizeof *a);
  rc = region_list(outer->g, a, all, out);
  limn_free(outer->c, a, bytes);
  return rc;
}

int limn_region_custom(limn_trace *outer, const limn_arg *xs, int n,
                       limn_trace *f, limn_trace *vjp, limn_ref *out) {
  region_set s[2] = {
      {outer, {f}, 1, (uint32_t)n, NULL, 0, 0, NULL, 0, 0},
      {outer, {vjp}, 1, (uint32_t)n + 2, NULL, 0, 0, NULL, 0, 0}};
  limn_arg a[4] = {{0}};
  int rc = 0;
  for (int i = 0; i < 2; i++) {
    limn_trace *t = s[i].t[0];
    LIMN_GO(region_open(&s[i]));
    if (t->nwrote)
      LIMN_GO(limn_fail(outer->c, LIMN_ETRACE,
                        "a custom function cannot assign to %s",
                        t->wrote[0].cell->name ? t->wrote[0].cell->name
                                               : "a cell"));
    LIMN_GO(region_finish(&s[i]));
    LIMN_GO(region_arrange(&s[i], s[i].own, 0));
    LIMN_GO(region_add(&s[i], t, &a[1 + i]));
  }
  LIMN_GO(region_joined(outer, xs, (uint32_t)n, s, &a[0]));
  LIMN_GO(limn_trace_op(outer, OP_custom, a, 4, out));
bail:
  for (int i = 0; i < 2; i++) region_close(&s[i]);
  return rc;
}
