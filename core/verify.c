/* Checks everything about a graph that does not depend on sizes, as if it came
 * from an enemy: what passes can be planned without further care. */
#include "op_rules.h"
#include "verify.h"

#include <stdio.h>

int verify_fail(const verify *v, const char *fmt, ...) {
  char text[512];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(text, sizeof text, fmt, ap);
  va_end(ap);
  return limn_fail(v->g->c, LIMN_EFORMAT, "%s: %s", limn_op_get(v->op)->name,
                   text);
}

/* -- Kinds -- */

enum {
  VK_TENSOR = 1 << LIMN_V_TENSOR,
  VK_INT = 1 << LIMN_V_INT,
  VK_REAL = 1 << LIMN_V_REAL,
  VK_BOOL = 1 << LIMN_V_BOOL,
  VK_DTYPE = 1 << LIMN_V_DTYPE,
  VK_STR = 1 << LIMN_V_STR,
  VK_NUMBER = VK_INT | VK_REAL
};

/* A node with several results may only be picked from; one with a single
 * result stands for it if that is a tensor. */
static bool verify_usable(const limn_graph *g, const limn_node *n) {
  const limn_graph *f;
  if (n->op != OP_custom) return true;
  f = limn_graph_region(g, g->args[n->args + 1]);
  return f && f->nout == 1 && f->out[0].tag == LIMN_A_REF && f->out[0].u.ref &&
         f->out[0].u.ref <= f->nnode &&
         limn_graph_node(f, f->out[0].u.ref)->kind == LIMN_V_TENSOR;
}

int verify_kind(const limn_graph *g, limn_ref at, const limn_arg *a) {
  switch (a->tag) {
  case LIMN_A_REF: {
    const limn_node *n;
    if (!a->u.ref || a->u.ref > at) return -1;
    n = limn_graph_node(g, a->u.ref);
    if (n->kind == LIMN_V_NONE || !verify_usable(g, n)) return -1;
    return n->kind;
  }
  case LIMN_A_INT:
    return LIMN_V_INT;
  case LIMN_A_REAL:
    return LIMN_V_REAL;
  case LIMN_A_BOOL:
    return a->u.i == 0 || a->u.i == 1 ? LIMN_V_BOOL : -1;
  case LIMN_A_DTYPE:
    return a->u.i >= 0 && a->u.i < LIMN_NDTYPE ? LIMN_V_DTYPE : -1;
  case LIMN_A_STR:
    return a->u.str < LIMN_MAX(g->ntext, 1) ? LIMN_V_STR : -1;
  default:
    return -1;
  }
}

/* What may stand for each type letter of a signature. */
static int verify_allowed(char type) {
  switch (type) {
  case 'T':
    return VK_TENSOR | VK_NUMBER | VK_BOOL;
  case 'S':
    return VK_TENSOR;
  case 'b':
    return VK_BOOL;
  case 's':
  case 'e':
    return VK_STR;
  case 'y':
    return VK_DTYPE;
  default:
    return VK_NUMBER; /* i r d D L: whole reals count */
  }
}

/* Numbers that shape the graph itself may not be plan values. */
static bool verify_literal(const limn_param *p) {
  static const char *const names[] = {"index", "draw", "keepdim", "drop",
                                      "kernel", "f", "g", "vjp", "test",
                                      "body", "reverse"};
  if (p->type == 'd' || p->type == 'D') return true;
  if (p->type == 'T' || p->type == 'L') return !strcmp(p->name, "drop");
  for (int i = 0; i < LIMN_COUNT(names); i++)
    if (!strcmp(p->name, names[i])) return true;
  return false;
}

static const char *verify_want(char type) {
  switch (type) {
  case 'T':
    return "a tensor or a number";
  case 'S':
    return "a tensor";
  case 'b':
    return "true or false";
  case 's':
  case 'e':
    return "a string";
  case 'y':
    return "a dtype";
  case 'r':
    return "a number";
  default:
    return "a whole number";
  }
}

static int verify_scalar(const verify *v, const limn_param *p,
                         const limn_arg *a) {
  int kind = verify_kind(v->g, v->at, a), allowed = verify_allowed(p->type);
  if (p->list && limn_op_body(v->op) >= 0) allowed |= VK_DTYPE;
  if (v->op == OP_pick && a == v->a && a->tag == LIMN_A_REF && a->u.ref &&
      a->u.ref <= v->at &&
      limn_op_body(limn_graph_node(v->g, a->u.ref)->op) >= 0)
    return 0;
  if (kind < 0 || !(allowed >> kind & 1))
    return verify_fail(v, "%s must be %s", p->name, verify_want(p->type));
  if (a->tag == LIMN_A_REF ? verify_literal(p)
                           : verify_literal(p) && a->tag == LIMN_A_REAL)
    return verify_fail(v, "%s must be written out", p->name);
  return 0;
}

static bool verify_is_list(const limn_param *p) {
  return p->list || p->type == 'D' || p->type == 'L';
}

/* Positions may be left open at either end. */
static bool verify_holes(int op, const limn_param *p) {
  return (op == OP_slice || op == OP_update) && strcmp(p->name, "drop");
}

static int verify_list(const verify *v, const limn_param *p,
                       const limn_arg *a) {
  const limn_graph *g = v->g;
  if (!verify_is_list(p))
    return verify_fail(v, "%s must not be a list", p->name);
  if (a->n > g->nargs || a->u.at > g->nargs - a->n)
    return verify_fail(v, "%s lies outside of the graph", p->name);
  if (!p->list && a->n > 2 * LIMN_MAXDIM)
    return verify_fail(v, "%s has %u entries; %d are possible", p->name, a->n,
                       2 * LIMN_MAXDIM);
  for (uint32_t i = 0; i < a->n; i++) {
    const limn_arg *e = g->args + a->u.at + i;
    if (e->tag == LIMN_A_NONE && verify_holes(v->op, p)) continue;
    LIMN_TRY(verify_scalar(v, p, e));
  }
  return 0;
}

/* -- Values of single ops -- */

static int verify_rank(const verify *v, int i) {
  const limn_arg *a = &v->a[i];
  const limn_node *n;
  if (a->tag == LIMN_A_LIST && a->n) a = v->g->args + a->u.at;
  if (a->tag != LIMN_A_REF) return 0;
  n = limn_graph_node(v->g, a->u.ref);
  return n->kind == LIMN_V_TENSOR ? n->rank : 0;
}

static const limn_arg *verify_items(const verify *v, const limn_arg *a,
                                    uint32_t *n) {
  *n = a->tag == LIMN_A_LIST ? a->n : a->tag == LIMN_A_NONE ? 0 : 1;
  return a->tag == LIMN_A_LIST ? v->g->args + a->u.at : a;
}

/* Dims are 1..rank, each at most once. A number that is not in a list may
 * count from the end. */
static int verify_dims(const verify *v, const limn_param *p, const limn_arg *a,
                       int rank) {
  uint32_t n, seen = 0;
  const limn_arg *d = verify_items(v, a, &n);
  for (uint32_t i = 0; i < n; i++) {
    int64_t k = d[i].u.i;
    if (p->type == 'D' && a->tag == LIMN_A_INT && k < 0) k += rank + 1;
    if (k < 1 || k > rank)
      return verify_fail(v, "%s %lld of a tensor with %d dims", p->name,
                         (long long)d[i].u.i, rank);
    if (seen >> k & 1)
      return verify_fail(v, "%s has %lld twice", p->name, (long long)k);
    seen |= 1u << k;
  }
  if (v->op == OP_permute && n != (uint32_t)rank)
    return verify_fail(v, "%s has %u entries for %d dims", p->name, n, rank);
  return 0;
}

static int verify_all_dims(const verify *v, const limn_param *p) {
  int rank = verify_rank(v, 0);
  if (v->op == OP_unsqueeze || v->op == OP_stack) rank++;
  if (v->op == OP_flatten && rank == 0) rank = 1;
  for (int i = 0; i < v->n; i++)
    if (p[i].type == 'd' || p[i].type == 'D')
      LIMN_TRY(verify_dims(v, &p[i], &v->a[i], rank));
  return 0;
}

/* slice(x, first, last, step, drop), update(x, v, first, last, step, drop) */
static int verify_slice(const verify *v, const limn_param *p) {
  int rank = verify_rank(v, 0), at = v->op == OP_update ? 2 : 1;
  for (int i = at; i < at + 3; i++)
    if (v->a[i].tag != LIMN_A_LIST || v->a[i].n != (uint32_t)rank)
      return verify_fail(v, "%s needs an entry for each of %d dims", p[i].name,
                         rank);
  return verify_dims(v, &p[at + 3], &v->a[at + 3], rank);
}

static int verify_word(const verify *v, const limn_param *p,
                       const limn_arg *a) {
  static const struct {
    const char *name, *words;
  } sets[] = {{"mode", " constant reflect replicate circular "},
              {"what", " index class label row position element "},
              {"kind", " cpu gpu "}};
  char key[32];
  if (a->tag != LIMN_A_STR) return 0;
  snprintf(key, sizeof key, " %s ", limn_graph_text(v->g, a->u.str));
  for (int i = 0; i < LIMN_COUNT(sets); i++)
    if (!strcmp(p->name, sets[i].name) && !strstr(sets[i].words, key))
      return verify_fail(v, "%s cannot be%s: it is one of%s", p->name, key,
                         sets[i].words);
  return 0;
}

int verify_index(const verify *v, int i, int64_t first, int64_t count,
                 const char *what) {
  int64_t k = v->a[i].u.i;
  if (k >= first && k < first + count) return 0;
  return verify_fail(v, "there is no %s %lld", what, (long long)k);
}

static int verify_pick(const verify *v) {
  const limn_node *n;
  if (v->a[0].tag != LIMN_A_REF ||
      limn_op_body((n = limn_graph_node(v->g, v->a[0].u.ref))->op) < 0)
    return verify_fail(v, "it picks from something with one result");
  return verify_index(v, 1, 1, n->nresult, "result");
}

static int verify_op(const verify *v, const limn_param *p) {
  const limn_graph *g = v->g;
  switch (v->op) {
  case OP_input:
  case OP_number:
    return verify_index(v, 0, 0, g->nin, "input");
  case OP_cell:
    return verify_index(v, 0, 0, g->ncell, "cell");
  case OP_const:
    return verify_index(v, 0, 0, g->nconst, "constant");
  case OP_mode:
    return verify_index(v, 0, 0, g->nmode, "mode");
  case OP_slice:
  case OP_update:
    return verify_slice(v, p);
  case OP_custom:
  case OP_cond:
  case OP_while:
  case OP_scan:
    return verify_region(v);
  case OP_pick:
    return verify_pick(v);
  case OP_cat:
  case OP_stack:
    if (v->a[0].n) return 0;
    return verify_fail(v, "there is nothing to join");
  default:
    return 0;
  }
}

int limn_node_check(const limn_graph *g, limn_ref at, int op, const limn_arg *a,
                    int n) {
  verify v = {g, at, op, a, n};
  limn_param p[LIMN_MAXARGS];
  int np = limn_op_params(op, p);
  if (n != np) return verify_fail(&v, "%d arguments where there are %d", n, np);
  for (int i = 0; i < n; i++) {
    if (a[i].tag == LIMN_A_NONE) {
      if (!p[i].may) return verify_fail(&v, "%s is missing", p[i].name);
    } else if (a[i].tag == LIMN_A_LIST) {
      LIMN_TRY(verify_list(&v, &p[i], &a[i]));
    } else if (p[i].list) {
      return verify_fail(&v, "%s must be a list", p[i].name);
    } else {
      LIMN_TRY(verify_scalar(&v, &p[i], &a[i]));
    }
    LIMN_TRY(verify_word(&v, &p[i], &a[i]));
    if (!strcmp(p[i].name, "draw"))
      LIMN_TRY(verify_index(&v, i, 0, g->draws, "draw"));
  }
  LIMN_TRY(verify_all_dims(&v, p));
  return verify_op(&v, p);
}

/* -- Nodes -- */

/* The one node that stands for input, cell or constant `index`. */
static int verify_leaf(const limn_graph *g, limn_ref r, const limn_node *n) {
  int64_t i = g->args[n->args].u.i;
  verify v = {g, r, n->op, NULL, 0};
  limn_ref home;
  int rank;
  switch (n->op) {
  case OP_input:
  case OP_number:
    home = g->in[i].ref;
    rank = n->op == OP_number ? 0 : LIMN_MAX(0, n->rank);
    if (g->in[i].number != (n->op == OP_number))
      return verify_fail(&v, "input %lld is of the other kind", (long long)i);
    break;
  case OP_cell:
    home = g->cell[i].ref;
    rank = g->cell[i].cell->shape.ndim;
    break;
  case OP_const:
    home = g->konst[i].ref;
    rank = g->konst[i].value->v.ndim;
    break;
  default:
    return 0;
  }
  if (home != r)
    return verify_fail(&v, "number %lld has another node", (long long)i);
  if (n->rank != rank || rank > LIMN_MAXDIM)
    return verify_fail(&v, "it has %d dims, not %d", rank, n->rank);
  return 0;
}

static bool verify_is_input(int op) {
  return op == OP_input || op == OP_number;
}

static uint32_t verify_results_of(const limn_graph *g, const limn_node *n) {
  int body = limn_op_body(n->op);
  return body < 0 ? 1 : g->region[g->args[n->args + (uint32_t)body].u.i]->nout;
}

/* Number inputs are reals; a region's may be any plan value. */
static bool verify_is_kind(const limn_node *n, int kind) {
  if (n->op != OP_number) return n->kind == kind;
  return n->kind == LIMN_V_REAL || n->kind == LIMN_V_INT ||
         n->kind == LIMN_V_BOOL || n->kind == LIMN_V_DTYPE;
}

static int verify_node(const limn_graph *g, limn_ref r) {
  const limn_node *n = limn_graph_node(g, r);
  const limn_arg *a = g->args + n->args;
  verify v = {g, r - 1, n->op, a, n->nargs};
  int kind, rank;
  if (n->op == 0 || n->op >= LIMN_NOP)
    return limn_fail(g->c, LIMN_EFORMAT, "there is no op number %d", n->op);
  if (n->nargs > LIMN_MAXARGS || n->args > g->nargs ||
      n->nargs > g->nargs - n->args)
    return verify_fail(&v, "its arguments lie outside of the graph");
  if (n->line >= LIMN_MAX(g->ntext, 1) || n->path >= LIMN_MAX(g->ntext, 1))
    return verify_fail(&v, "its line lies outside of the graph");
  LIMN_TRY(limn_node_check(g, r - 1, n->op, a, n->nargs));
  LIMN_TRY(verify_leaf(g, r, n));
  kind = limn_op_kind(g, n->op, a, n->nargs);
  if (!verify_is_kind(n, kind) || (kind == LIMN_V_NONE) != (n->op == OP_print))
    return verify_fail(&v, "its operands do not give such a value");
  rank = limn_op_rank(g, n->op, a, n->nargs);
  if (rank < 0) return LIMN_EFORMAT; /* with the rank rule's words */
  if (!verify_is_input(n->op) && n->rank != rank)
    return verify_fail(&v, "it has %d dims, not %d", rank, n->rank);
  if (n->nresult != verify_results_of(g, n))
    return verify_fail(&v, "it does not have %d results", n->nresult);
  return 0;
}

/* -- Structures -- */

/* Steps over the entry at *at; counts its leaves. */
static int verify_tree(const limn_graph *g, const limn_tree *t, uint32_t n,
                       uint32_t *at, uint32_t *leaves, int depth) {
  const limn_tree *e = &t[*at];
  const char *last = NULL;
  if (*at >= n || e->tag > LIMN_T_DICT || depth > LIMN_TEXT_DEPTH)
    return limn_fail(g->c, LIMN_EFORMAT, "its structure is %s",
                     depth > LIMN_TEXT_DEPTH ? "too deep" : "cut off");
  (*at)++;
  if (e->tag == LIMN_T_LEAF) {
    (*leaves)++;
    return 0;
  }
  for (uint32_t i = 0; i < e->n; i++) {
    uint32_t key = *at < n ? t[*at].key : 0;
    if (key >= LIMN_MAX(g->ntext, 1))
      return limn_fail(g->c, LIMN_EFORMAT, "a key lies outside of the graph");
    if (e->tag == LIMN_T_DICT) {
      const char *s = limn_graph_text(g, key);
      if (last && strcmp(last, s) >= 0)
        return limn_fail(g->c, LIMN_EFORMAT,
                         "the keys of a table are not in order at \"%.100s\"",
                         s);
      last = s;
    }
    LIMN_TRY(verify_tree(g, t, n, at, leaves, depth + 1));
  }
  return 0;
}

/* No tree at all stands for a plain list. */
static int verify_trees(const limn_graph *g, const limn_tree *t, uint32_t n,
                        uint32_t want, const char *what) {
  uint32_t at = 0, leaves = 0;
  if (n == 0) return 0;
  if (t[0].tag != LIMN_T_LIST)
    return limn_fail(g->c, LIMN_EFORMAT, "%s are not a list", what);
  LIMN_TRY(verify_tree(g, t, n, &at, &leaves, 0));
  if (at == n && leaves == want) return 0;
  return limn_fail(g->c, LIMN_EFORMAT,
                   "the structure of %s has %u leaves for %u values", what,
                   leaves, want);
}

/* The inputs among the leaves of the arguments are all inputs, in order. */
static int verify_statics(const limn_graph *g) {
  uint32_t next = 0;
  for (uint32_t i = 0; i < g->nstatic; i++) {
    limn_arg a = g->statics[i];
    bool input = a.tag == LIMN_A_REF;
    if (input ? next == g->nin || a.u.ref != g->in[next++].ref
              : a.tag != LIMN_A_NONE && verify_kind(g, 0, &a) < 0)
      return limn_fail(g->c, LIMN_EFORMAT, "argument %u is not possible",
                       i + 1);
  }
  if (next == g->nin) return 0;
  return limn_fail(g->c, LIMN_EFORMAT, "%u arguments for %u inputs", next,
                   g->nin);
}

static int verify_inputs(const limn_graph *g) {
  for (uint32_t i = 0; i < g->nin; i++) {
    const limn_graph_input *in = &g->in[i];
    const limn_node *n =
        in->ref && in->ref <= g->nnode ? limn_graph_node(g, in->ref) : NULL;
    if (!n || !verify_is_input(n->op) || !n->nargs || n->args >= g->nargs ||
        g->args[n->args].u.i != i)
      return limn_fail(g->c, LIMN_EFORMAT, "input %u has no node", i + 1);
    if (n->op == OP_input && (n->rank < 0 || n->rank > LIMN_MAXDIM))
      return limn_fail(g->c, LIMN_EFORMAT, "input %u has %d dims", i + 1,
                       n->rank);
    if (in->name == 0 || in->name >= g->ntext)
      return limn_fail(g->c, LIMN_EFORMAT, "input %u has no name", i + 1);
    for (int k = 0; k < LIMN_MAXDIM; k++)
      if (in->dim[k] >= LIMN_MAX(g->ntext, 1))
        return limn_fail(g->c, LIMN_EFORMAT, "input %u has no such size",
                         i + 1);
  }
  LIMN_TRY(
      verify_trees(g, g->in_tree, g->nin_tree, g->nstatic, "the arguments"));
  return g->nin_tree ? verify_statics(g) : 0;
}

static int verify_cells(const limn_graph *g) {
  for (uint32_t i = 0; i < g->ncell; i++) {
    const limn_graph_cell *gc = &g->cell[i];
    const char *name =
        gc->name && gc->name < g->ntext ? limn_graph_text(g, gc->name) : "?";
    int kind = verify_kind(g, g->nnode, &gc->write);
    if (gc->ref > g->nnode ||
        (gc->ref && limn_graph_node(g, gc->ref)->op != OP_cell))
      return limn_fail(g->c, LIMN_EFORMAT, "@%s has no node", name);
    if (gc->write.tag == LIMN_A_NONE) continue;
    if (kind != LIMN_V_TENSOR)
      return limn_fail(g->c, LIMN_EFORMAT, "@%s is given no tensor", name);
    if (limn_graph_node(g, gc->write.u.ref)->rank != gc->cell->shape.ndim)
      return limn_fail(g->c, LIMN_EFORMAT,
                       "@%s has %d dims, but is given a value with %d", name,
                       gc->cell->shape.ndim,
                       limn_graph_node(g, gc->write.u.ref)->rank);
  }
  for (uint32_t i = 0; i < g->nconst; i++) {
    limn_ref r = g->konst[i].ref;
    if (r > g->nnode || (r && limn_graph_node(g, r)->op != OP_const))
      return limn_fail(g->c, LIMN_EFORMAT, "constant %u has no node", i + 1);
  }
  return 0;
}

static int verify_results(const limn_graph *g) {
  for (uint32_t i = 0; i < g->nout; i++)
    if (g->out[i].tag != LIMN_A_NONE &&
        verify_kind(g, g->nnode, &g->out[i]) < 0)
      return limn_fail(g->c, LIMN_EFORMAT, "result %u is not possible", i + 1);
  return verify_trees(g, g->out_tree, g->nout_tree, g->nout, "the results");
}

/* Prints and regions that print happen in order, each once. */
static int verify_effects(const limn_graph *g) {
  uint32_t k = 0;
  for (limn_ref r = 1; r <= g->nnode; r++) {
    if (!limn_node_effect(g, r)) continue;
    if (k >= g->neffect || g->effect[k++] != r) k = g->neffect + 1;
  }
  if (k == g->neffect) return 0;
  return limn_fail(g->c, LIMN_EFORMAT, "its prints are not in order");
}

/* -- Graphs -- */

/* A region has all from its inputs; the graph's own number inputs are reals,
 * as a caller's numbers are. */
static int verify_closed(const limn_graph *g, bool region) {
  if (region && (g->ncell || g->nconst || g->nmode))
    return limn_fail(g->c, LIMN_EFORMAT,
                     "a region with cells, constants or modes of its own");
  for (uint32_t i = 0; i < g->nin && !region && !g->eager; i++)
    if (g->in[i].number && limn_graph_node(g, g->in[i].ref)->kind !=
                               LIMN_V_REAL)
      return limn_fail(g->c, LIMN_EFORMAT, "input %u is a plan value", i + 1);
  return 0;
}

static int verify_graph(limn_graph *g, int depth) {
  if (depth > LIMN_TEXT_DEPTH)
    return limn_fail(g->c, LIMN_EFORMAT, "regions are nested too deeply");
  for (uint32_t i = 0; i < g->nregion; i++)
    LIMN_TRY(verify_graph(g->region[i], depth + 1));
  LIMN_TRY(verify_inputs(g));
  for (limn_ref r = 1; r <= g->nnode; r++) {
    int rc = verify_node(g, r);
    const limn_node *n = limn_graph_node(g, r);
    if (rc >= 0) continue;
    if (n->line && n->line < g->ntext)
      limn_error_prepend(g->c, "%s: ", limn_graph_text(g, n->line));
    else
      limn_error_prepend(g->c, "node %u: ", r);
    return rc;
  }
  LIMN_TRY(verify_closed(g, depth > 0));
  LIMN_TRY(verify_cells(g));
  for (uint32_t i = 0; i < g->nguard; i++)
    if (verify_kind(g, g->nnode, &g->guard[i].cond) != LIMN_V_BOOL)
      return limn_fail(g->c, LIMN_EFORMAT, "guard %u is neither true nor false",
                       i + 1);
  LIMN_TRY(verify_results(g));
  return verify_effects(g);
}

int limn_graph_verify(limn_graph *g) {
  int rc = verify_graph(g, 0);
  if (rc < 0 && rc != LIMN_EMEM) {
    limn_error_prepend(g->c, "graph %.100s: ", g->name);
    return LIMN_EFORMAT;
  }
  return rc;
}
