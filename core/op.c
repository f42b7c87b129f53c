/* The op table at run time: rows, names, signatures, and the kind and rank
 * that a result has already while tracing. */
#include "op_rules.h"

/* -- Rows -- */

/* A gradient function, or NULL where no operand has one. */
#define OP_GRAD(has, f) (has) ? (f) : NULL

#define E1(name, meta, rule, domain, sig, expr, ga, doc)                  \
  {#name, meta, #domain, sig, #expr, doc, LIMN_ROW_E, LIMN_RULE_##rule, 1, \
   NULL, NULL, NULL, OP_GRAD(OPR_PICK(OPR_##ga), limn_grad_##name)},
#define E2(name, meta, rule, domain, sig, expr, ga, gb, doc)              \
  {#name, meta, #domain, sig, #expr, doc, LIMN_ROW_E, LIMN_RULE_##rule, 2, \
   NULL, NULL, NULL,                                                      \
   OP_GRAD(OPR_PICK(OPR_##ga) | OPR_PICK(OPR_##gb), limn_grad_##name)},
#define E3(name, meta, rule, domain, sig, expr, ga, gb, gc, doc)          \
  {#name, meta, #domain, sig, #expr, doc, LIMN_ROW_E, LIMN_RULE_##rule, 3, \
   NULL, NULL, NULL,                                                      \
   OP_GRAD(OPR_PICK(OPR_##ga) | OPR_PICK(OPR_##gb) | OPR_PICK(OPR_##gc),  \
           limn_grad_##name)},
#define R(name, rule, sig, init, step, grad, doc)                         \
  {#name, "", "REAL", sig, #step, doc, LIMN_ROW_R, LIMN_RULE_##rule, 1,   \
   NULL, NULL, NULL, OP_GRAD(OPR_PICK(OPR_##grad), limn_grad_##name)},
#define V(name, sig, view, rank, grad, doc)                               \
  {#name, "", "REAL", sig, "", doc, LIMN_ROW_V, LIMN_RULE_NUM, 1,         \
   NULL, view, NULL, OP_GRAD(OPR_PICK(OPR_##grad), limn_grad_##name)},
#define G(name, rule, sig, expr, doc)                                     \
  {#name, "", "", sig, #expr, doc, LIMN_ROW_G, LIMN_RULE_##rule, 0, NULL, \
   NULL, NULL, NULL},
#define S(name, sig, infer, rank, expand, grad, doc)                      \
  {#name, "", "REAL", sig, "", doc, LIMN_ROW_S, LIMN_RULE_NUM, 0, infer,  \
   NULL, expand, grad},
#define H(name, sig, kind, doc)                                           \
  {#name, "", "", sig, "", doc, LIMN_ROW_H, LIMN_RULE_NUM, 0, NULL, NULL, \
   NULL, NULL},
static const limn_op_row op_rows[LIMN_NOP] = {
    {"none", "", "", "", "", "", LIMN_ROW_H, 0, 0, NULL, NULL, NULL, NULL},
#include "ops.h"
};

const limn_op_row *limn_op_get(int op) {
  return &op_rows[op > 0 && op < LIMN_NOP ? op : 0];
}

int limn_op_find(const char *name) {
  for (int op = 1; op < LIMN_NOP; op++)
    if (!strcmp(op_rows[op].name, name)) return op;
  return 0;
}

/* Near is at most a third of the letters wrong. */
const char *limn_op_near(const char *name) {
  int best = (int)strlen(name) / 3 + 1;
  const char *near = NULL;
  if (strlen(name) > 32) return NULL;
  for (int op = 1; op < LIMN_NOP; op++) {
    int d = limn_str_distance(name, op_rows[op].name);
    if (d <= best) {
      near = op_rows[op].name;
      best = d - 1; /* the first of equals stays */
    }
  }
  return near;
}

bool limn_op_random(int op) {
  return limn_op_param(op, "draw") >= 0;
}

/* -- Signatures -- */

/* Copies up to any of the characters in `end`; returns the rest. */
static const char *op_word(char *to, size_t n, const char *s,
                           const char *end) {
  size_t len = strcspn(s, end), keep = LIMN_MIN(len, n - 1);
  memcpy(to, s, keep);
  to[keep] = 0;
  return s + len;
}

static void op_default(limn_param *p, const char *text) {
  double f = 0;
  int64_t i = 0;
  p->has_default = true;
  if (p->type == 'b')
    p->def = limn_abool(!strcmp(text, "true"));
  else if ((p->type == 'r' || p->type == 'T') && limn_read_real(text, &f))
    p->def = limn_areal(f);
  else if (p->type != 'e' && limn_read_int(text, &i))
    p->def = limn_aint(i);
}

/* name:type, then any of "?", "*", "=default". */
static const char *op_param(const char *s, limn_param *p) {
  memset(p, 0, sizeof *p);
  s = op_word(p->name, sizeof p->name, s, ":");
  if (*s == ':') s++;
  if (*s) p->type = *s++;
  for (; *s && *s != ' '; s++) {
    if (*s == '?') p->may = true;
    if (*s == '*') p->list = true;
    if (*s != '=') continue;
    s = op_word(p->def_text, sizeof p->def_text, s + 1, " ");
    op_default(p, p->def_text);
    break;
  }
  while (*s == ' ') s++;
  return s;
}

int limn_op_params(int op, limn_param *out) {
  const char *s = limn_op_get(op)->sig;
  int n = 0;
  while (*s && n < LIMN_MAXARGS) s = op_param(s, &out[n++]);
  return n;
}

/* Reads the signature's text: called for every node, so nothing is copied. */
int limn_op_param(int op, const char *name) {
  const char *s = limn_op_get(op)->sig;
  size_t len = strlen(name);
  for (int i = 0; *s; i++) {
    if (!strncmp(s, name, len) && s[len] == ':') return i;
    s += strcspn(s, " ");
    s += strspn(s, " ");
  }
  return -1;
}

/* -- Regions -- */

int limn_op_regions(int op, int *first) {
  *first = op == OP_custom ? 1 : op == OP_scan ? 3 : 2;
  switch (op) {
    case OP_custom: case OP_cond: case OP_while: return 2;
    case OP_scan: return 1;
    default: return 0;
  }
}

int limn_op_body(int op) {
  switch (op) {
    case OP_custom: return 1;
    case OP_cond: return 2;
    case OP_while: case OP_scan: return 3;
    default: return -1;
  }
}

/* -- Kind -- */

/* Result number `index` (from 1) of a region node, or NONE. */
static limn_arg op_region_out(const limn_graph *g, limn_ref r, int64_t index,
                              const limn_graph **region) {
  const limn_node *n = limn_graph_node(g, r);
  int body = limn_op_body(n->op);
  *region = NULL;
  if (body < 0 || body >= n->nargs) return limn_none();
  *region = limn_graph_region(g, g->args[n->args + (uint32_t)body]);
  if (!*region || index < 1 || index > (*region)->nout) return limn_none();
  return (*region)->out[index - 1];
}

static int op_arg_kind(const limn_graph *g, const limn_arg *a) {
  switch (a->tag) {
    case LIMN_A_REF:
      return a->u.ref && a->u.ref <= g->nnode
                 ? limn_graph_node(g, a->u.ref)->kind
                 : LIMN_V_NONE;
    case LIMN_A_INT: return LIMN_V_INT;
    case LIMN_A_REAL: return LIMN_V_REAL;
    case LIMN_A_BOOL: return LIMN_V_BOOL;
    case LIMN_A_DTYPE: return LIMN_V_DTYPE;
    case LIMN_A_STR: return LIMN_V_STR;
    case LIMN_A_LIST: return LIMN_V_LIST;
    default: return LIMN_V_NONE;
  }
}

/* The kind column of H rows; tensors for all others. */
static const uint8_t op_kinds[LIMN_NOP] = {
#define H(name, sig, kind, doc) [OP_##name] = LIMN_V_##kind,
#define E1(name, ...) [OP_##name] = LIMN_V_TENSOR,
#define E2(name, ...) [OP_##name] = LIMN_V_TENSOR,
#define E3(name, ...) [OP_##name] = LIMN_V_TENSOR,
#define R(name, ...) [OP_##name] = LIMN_V_TENSOR,
#define V(name, ...) [OP_##name] = LIMN_V_TENSOR,
#define G(name, ...) [OP_##name] = LIMN_V_TENSOR,
#define S(name, ...) [OP_##name] = LIMN_V_TENSOR,
#include "ops.h"
};

/* The picked result of a region node, or what is picked from. */
static limn_arg op_picked(const limn_graph *g, const limn_arg *a, int nargs,
                          const limn_graph **home) {
  *home = NULL;
  if (nargs < 2 || a[0].tag != LIMN_A_REF || !a[0].u.ref ||
      a[0].u.ref > g->nnode)
    return limn_none();
  return op_region_out(g, a[0].u.ref, a[1].u.i, home);
}

int limn_op_kind(const limn_graph *g, int op, const limn_arg *a, int nargs) {
  int kinds[LIMN_MAXARGS];
  if (op == OP_pick) {
    const limn_graph *home;
    limn_arg out = op_picked(g, a, nargs, &home);
    return home ? op_arg_kind(home, &out) : LIMN_V_TENSOR;
  }
  if (limn_op_get(op)->row != LIMN_ROW_E)
    return op > 0 && op < LIMN_NOP ? op_kinds[op] : LIMN_V_NONE;
  for (int i = 0; i < nargs; i++) {
    kinds[i] = op_arg_kind(g, &a[i]);
    if (kinds[i] == LIMN_V_TENSOR) return LIMN_V_TENSOR;
  }
  return limn_host_kind(op, kinds, nargs);
}

/* -- Rank -- */

enum { OPK_ELEM, OPK_GEN, OPK_HOST, OPK_LIST1, OPK_A_, OPK_B_, OPK_C_,
       OPK_X_, OPK_FLAT, OPK_SQZ, OPK_PLUS1, OPK_SLICE, OPK_REDUCE, OPK_ARG,
       OPK_MATMUL, OPK_TWO, OPK_TILE, OPK_INDEX, OPK_MAX2, OPK_WINDOWS };
static const uint8_t op_rank_rules[LIMN_NOP] = {
#define E1(name, ...) [OP_##name] = OPK_ELEM,
#define E2(name, ...) [OP_##name] = OPK_ELEM,
#define E3(name, ...) [OP_##name] = OPK_ELEM,
#define R(name, ...) [OP_##name] = OPK_REDUCE,
#define V(name, sig, view, rank, grad, doc) [OP_##name] = OPK_##rank,
#define G(name, ...) [OP_##name] = OPK_GEN,
#define S(name, sig, infer, rank, expand, grad, doc) [OP_##name] = OPK_##rank,
#define H(name, ...) [OP_##name] = OPK_HOST,
#include "ops.h"
};

/* Rank of an argument: of a list's first element; 0 for numbers. */
static int op_arg_rank(const limn_graph *g, const limn_arg *a, int n, int i) {
  if (i >= n) return 0;
  a += i;
  if (a->tag == LIMN_A_LIST && a->n) a = g->args + a->u.at;
  if (a->tag != LIMN_A_REF || !a->u.ref || a->u.ref > g->nnode) return 0;
  return limn_graph_node(g, a->u.ref)->kind == LIMN_V_TENSOR
             ? limn_graph_node(g, a->u.ref)->rank
             : 0;
}

/* Number of elements of a list argument; of one number 1, absent `none`. */
static int op_arg_len(const limn_arg *a, int n, int i, int none) {
  if (i < 0 || i >= n || a[i].tag == LIMN_A_NONE) return none;
  if (a[i].tag != LIMN_A_LIST) return 1;
  return (int)LIMN_MIN(a[i].n, 1000u); /* refused below */
}

static int op_rank_reduce(const limn_graph *g, int op, const limn_arg *a,
                          int n) {
  int x = op_arg_rank(g, a, n, 0), k = limn_op_param(op, "keepdim");
  bool keep = k < n && a[k].tag == LIMN_A_BOOL && a[k].u.i;
  if (k < n && a[k].tag == LIMN_A_REF)
    return limn_fail(g->c, LIMN_EARG,
                     "keepdim must be true or false while tracing");
  return keep ? x : x - op_arg_len(a, n, limn_op_param(op, "dim"), x);
}

/* A dim attribute as 0-based; out of range ones are left to the shape rule. */
static int op_rank_dim(const limn_arg *a, int n, int i, int64_t def,
                       int rank) {
  int64_t d = i < n && a[i].tag == LIMN_A_INT ? a[i].u.i : def;
  return (int)(d < 0 ? d + rank : d - 1);
}

static int op_rank_flat(const limn_graph *g, const limn_arg *a, int n) {
  int x = op_arg_rank(g, a, n, 0);
  int first = op_rank_dim(a, n, 1, 1, x), last = op_rank_dim(a, n, 2, -1, x);
  if (x == 0) return 1;
  if (first < 0 || last >= x || first > last)
    return limn_fail(g->c, LIMN_ESHAPE,
                     "dims %d to %d of a tensor with %d dims do not exist",
                     first + 1, last + 1, x);
  return x - (last - first);
}

/* Vectors take part as one row or one column, which the result drops. */
static int op_rank_matmul(const limn_graph *g, const limn_arg *a, int n) {
  int x = op_arg_rank(g, a, n, 0), y = op_arg_rank(g, a, n, 1);
  if (x == 0 || y == 0)
    return limn_fail(g->c, LIMN_ESHAPE,
                     "a matrix product needs vectors or matrices, not numbers");
  return LIMN_MAX(LIMN_MAX(x, 2), LIMN_MAX(y, 2)) - (x == 1) - (y == 1);
}

static int op_rank_elem(const limn_graph *g, int op, const limn_arg *a,
                        int n) {
  int rank = 0;
  for (int i = 0; i < LIMN_MIN(n, limn_op_get(op)->arity); i++)
    rank = LIMN_MAX(rank, op_arg_rank(g, a, n, i));
  return rank;
}

/* What a scan gives at each step is stacked: a dim more than in its body. */
static int op_stacked(const limn_graph *g, const limn_arg *a) {
  const limn_node *n = limn_graph_node(g, a[0].u.ref);
  return n->op == OP_scan && a[1].u.i > g->args[n->args].n;
}

static int op_rank_host(const limn_graph *g, int op, const limn_arg *a,
                        int n) {
  int64_t i = n && a[0].tag == LIMN_A_INT ? a[0].u.i : -1;
  if (op == OP_cell && i >= 0 && i < g->ncell)
    return g->cell[i].cell->shape.ndim;
  if (op == OP_const && i >= 0 && i < g->nconst)
    return g->konst[i].value->v.ndim;
  if (op == OP_pick) {
    const limn_graph *home;
    limn_arg out = op_picked(g, a, n, &home);
    return home ? op_arg_rank(home, &out, 1, 0) + op_stacked(g, a) : 0;
  }
  if (op == OP_custom && n > 1 && a[1].tag == LIMN_A_INT && a[1].u.i >= 0 &&
      a[1].u.i < g->nregion && g->region[a[1].u.i]->nout)
    return op_arg_rank(g->region[a[1].u.i], g->region[a[1].u.i]->out, 1, 0);
  return 0; /* inputs and captures: set by whoever adds them */
}

static int op_rank(const limn_graph *g, int op, const limn_arg *a, int n) {
  int x = op_arg_rank(g, a, n, 0);
  switch (op_rank_rules[op]) {
    case OPK_ELEM: return op_rank_elem(g, op, a, n);
    case OPK_GEN:
      if (op == OP_arange) return 1;
      return op == OP_full_like
                 ? x
                 : op_arg_len(a, n, limn_op_param(op, "size"), 0);
    case OPK_HOST: return op_rank_host(g, op, a, n);
    case OPK_LIST1: return op_arg_len(a, n, 1, 0);
    case OPK_B_: return op_arg_rank(g, a, n, 1);
    case OPK_C_: return op_arg_rank(g, a, n, 2);
    case OPK_FLAT: return op_rank_flat(g, a, n);
    case OPK_SQZ: return x - op_arg_len(a, n, 1, 0);
    case OPK_WINDOWS: return x + op_arg_len(a, n, 1, 0);
    case OPK_PLUS1: return x + 1;
    case OPK_SLICE: return x - op_arg_len(a, n, 4, 0);
    case OPK_REDUCE: case OPK_ARG: return op_rank_reduce(g, op, a, n);
    case OPK_MATMUL: return op_rank_matmul(g, a, n);
    case OPK_TWO: return 2;
    case OPK_TILE: return LIMN_MAX(x, op_arg_len(a, n, 1, 0));
    case OPK_INDEX: return x - 1 + op_arg_rank(g, a, n, 2);
    case OPK_MAX2: return LIMN_MAX(x, op_arg_rank(g, a, n, 1));
    default: return x;
  }
}

int limn_op_like(int op) {
  int rule = op_rank_rules[op];
  if (op == OP_full_like) return 0;
  return rule >= OPK_A_ && rule <= OPK_C_ ? rule - OPK_A_ : -1;
}

int limn_op_rank(const limn_graph *g, int op, const limn_arg *a, int nargs) {
  int r;
  if (op <= 0 || op >= LIMN_NOP) return 0;
  r = op_rank(g, op, a, nargs);
  if (r > LIMN_MAXDIM)
    return limn_fail(g->c, LIMN_ESHAPE,
                     "%s: the result would have %d dims; %d are possible",
                     op_rows[op].name, r, LIMN_MAXDIM);
  if (r < 0 && op_rank_rules[op] != OPK_FLAT &&
      op_rank_rules[op] != OPK_MATMUL && limn_op_param(op, "keepdim") < 0)
    return limn_fail(g->c, LIMN_ESHAPE, "%s: more dims named than there are",
                     op_rows[op].name);
  return r;
}
