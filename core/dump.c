/* Writes a graph as text, the form that is printed and stored alike.
 *
 *   limn 1
 *   graph step(%x: [batch, _], %dt: number, k = 3, {a = %a: [_]}) {
 *     draws 1
 *     param @hidden.weight: f32[128, 64]                # or buffer, state
 *     const @c1: f32[3]                                 # net.lua:3
 *     mode "net"
 *     guard size(%x, 2) == 64                           # net.lua:14
 *     %1 = matmul(%x, @hidden.weight, trans_x=false, trans_y=true)
 *     %2 = any(%1, dim=[1, 2], keepdim=false)
 *     %3 = cond(%2, [%1, size(%x, 1)], draw=0) {
 *       (%y: [_, _], %n: int) =>
 *       %4 = neg(%y)                                    # net.lua:9 hidden
 *       yield %4
 *     } {
 *       ...
 *     }
 *     %6 = pick(%3, index=1)
 *     print([%1], text="y {}")
 *     @hidden.weight <- %6                              # net.lua:20
 *     return {list = {%1, size(%x, 1)}, loss = %6}
 *   }
 *
 * Grammar; blanks and line ends only separate, `x,*` is x's with commas:
 *
 *   text    "limn" INT graph
 *   graph   "graph" name "(" arg,* ")" "{" body "return" result,* "}"
 *   region  "{" "(" arg,* ")" "=>" body "yield" result,* "}"
 *   arg     [name "="] ( "%" name ":" type | literal | "{" arg,* "}" )
 *   type    "number" | "int" | "bool" | "dtype"     the last three in regions
 *           | "[" ("_" | name),* "]"                rank, with named sizes
 *   body    item*
 *   item    "draws" INT                             random draws of one run
 *           ("param" | "buffer" | "state" | "const") "@" name ":" array
 *           "mode" string
 *           "guard" value [("==" "~=" "<" "<=" ">" ">=") value]
 *           "%" INT "=" call region*                a node
 *           call                                    print
 *           "@" name "<-" value                     a cell's value on exit
 *   array   dtype "[" INT,* "]"
 *   call    op "(" ([attribute "="] value),* ")"
 *   value   literal | "%" name | "%" INT | "@" name | call | "[" value,* "]"
 *   result  [name "="] ( value | "{" result,* "}" )
 *   literal INT | REAL | "true" | "false" | "nil" | dtype | string
 *
 * Operands stand in the signature's order, then every other argument by name;
 * absent operands are nil, absent attributes left out. Plan values are calls
 * written where they are used, all arguments by position (equal calls are one
 * node again when read); one of more than 24 nodes is a numbered line.
 * Integers have no point; reals have a point or an exponent, or are inf, -inf,
 * nan; dtypes are f32 and so on; names of another form than
 * [A-Za-z_][A-Za-z0-9_.]* are quoted as JSON strings (\xNN is a byte that is
 * not UTF-8). {} is a list, {=} an empty table. Numbers of nodes rise, through
 * regions too; a region sees its own values only.
 * A comment runs to the end of its line; behind a declared const, a guard, a
 * node or a write it is the place in the source and the module path. */
#include "text.h"

enum { DUMP_COLUMN = 54 }; /* where comments start, if there is room */

typedef struct {
  limn_str *b;
  const limn_graph *g;
  bool lines;
  const limn_dump_names *names;
  uint32_t *num;  /* number of node r at [r - 1] once printed, else 0 */
  uint32_t *size; /* nodes in the text of a plan value, 0: not one */
  uint32_t *dep;  /* plan values: the last line that the text refers to */
  limn_map taken; /* names in use, kind first */
  limn_str pool;  /* unique names of inputs, cells, consts and modes */
  uint32_t *name; /* their offsets in pool, in this order */
  uint32_t *next; /* last number given, shared with regions */
  int indent;
  size_t bol; /* where the line starts in b */
} dump;

static void dump_graph(const dump *outer, const limn_graph *g);

/* -- Names -- */

/* Note `want` as a name, made unique within its kind by ".2", ".3", ... */
static int dump_claim(dump *d, char kind, const char *want, uint32_t *out) {
  limn_str key;
  uint32_t i;
  int rc;
  limn_str_init(&key, d->g->c);
  for (i = 1;; i++) {
    key.len = 0;
    limn_str_addf(&key, i > 1 ? "%c%s.%u" : "%c%s", kind, want, i);
    if (key.rc < 0 || !limn_map_get(&d->taken, key.s, key.len)) break;
  }
  LIMN_GO(key.rc);
  LIMN_GO(limn_map_put(d->g->c, &d->taken, key.s, key.len, d));
  *out = (uint32_t)d->pool.len;
  limn_str_addn(&d->pool, key.s + 1, key.len); /* with its NUL */
  rc = d->pool.rc;
bail:
  limn_str_free(&key);
  return rc;
}

static const char *dump_wanted(const dump *d, const void *object, uint32_t text,
                               const char *other) {
  const char *s = d->names ? d->names->name(d->names->user, object) : NULL;
  if (s) return s;
  return text ? limn_graph_text(d->g, text) : other ? other : "unnamed";
}

static int dump_claim_all(dump *d) {
  const limn_graph *g = d->g;
  uint32_t *at = d->name;
  for (uint32_t i = 0; i < g->nin; i++)
    LIMN_TRY(dump_claim(d, '%', limn_graph_text(g, g->in[i].name), at++));
  for (uint32_t i = 0; i < g->ncell; i++)
    LIMN_TRY(dump_claim(
        d, '@',
        dump_wanted(d, g->cell[i].cell, g->cell[i].name, g->cell[i].cell->name),
        at++));
  for (uint32_t i = 0; i < g->nconst; i++)
    LIMN_TRY(dump_claim(
        d, '@', dump_wanted(d, g->konst[i].value, g->konst[i].name, NULL),
        at++));
  for (uint32_t i = 0; i < g->nmode; i++)
    LIMN_TRY(dump_claim(
        d, 'm', dump_wanted(d, g->mode[i].mode, g->mode[i].name, NULL), at++));
  return 0;
}

/* Name number i of all; "?" for an index that does not exist. */
static const char *dump_name(const dump *d, uint32_t first, uint32_t count,
                             int64_t i) {
  if (i < 0 || i >= count) return "?";
  return d->pool.s + d->name[first + i];
}
static const char *dump_input(const dump *d, int64_t i) {
  return dump_name(d, 0, d->g->nin, i);
}
static const char *dump_cell(const dump *d, int64_t i) {
  return dump_name(d, d->g->nin, d->g->ncell, i);
}
static const char *dump_const(const dump *d, int64_t i) {
  return dump_name(d, d->g->nin + d->g->ncell, d->g->nconst, i);
}
static const char *dump_mode(const dump *d, int64_t i) {
  return dump_name(d, d->g->nin + d->g->ncell + d->g->nconst, d->g->nmode, i);
}

/* -- Which nodes get a line -- */

static bool dump_leaf(int op) {
  return op == OP_input || op == OP_number || op == OP_cell || op == OP_const;
}

static bool dump_inline(const dump *d, limn_ref r) {
  return d->size[r - 1] && d->size[r - 1] <= LIMN_TEXT_INLINE;
}

static void dump_measure_arg(dump *d, limn_ref r, const limn_arg *a) {
  limn_ref x = a->u.ref;
  if (a->tag == LIMN_A_LIST)
    for (uint32_t i = 0; i < a->n; i++)
      dump_measure_arg(d, r, d->g->args + a->u.at + i);
  if (a->tag != LIMN_A_REF || !x || x >= r) return;
  if (dump_leaf(limn_graph_node(d->g, x)->op)) {
    d->size[r - 1]++;
  } else if (dump_inline(d, x)) {
    d->size[r - 1] += d->size[x - 1];
    d->dep[r - 1] = LIMN_MAX(d->dep[r - 1], d->dep[x - 1]);
  } else {
    d->size[r - 1]++;
    d->dep[r - 1] = LIMN_MAX(d->dep[r - 1], x);
  }
}

/* Size only depends on the text, never on how nodes are shared, so that what
 * is read back is written the same way. */
static void dump_measure(dump *d) {
  for (limn_ref r = 1; r <= d->g->nnode; r++) {
    const limn_node *n = limn_graph_node(d->g, r);
    if (n->kind == LIMN_V_TENSOR || n->kind == LIMN_V_NONE ||
        n->kind == LIMN_V_LIST || dump_leaf(n->op))
      continue;
    d->size[r - 1] = 1;
    for (int i = 0; i < n->nargs; i++)
      dump_measure_arg(d, r, d->g->args + n->args + i);
  }
}

/* -- Values -- */

static void dump_value(const dump *d, limn_arg a, char type);

static void dump_items(const dump *d, const limn_arg *a, uint32_t n,
                       char type) {
  for (uint32_t i = 0; i < n; i++) {
    if (i) limn_str_add(d->b, ", ");
    dump_value(d, a[i], type);
  }
}

/* A plan value: all arguments by position. */
static void dump_call(const dump *d, limn_ref r) {
  const limn_node *n = limn_graph_node(d->g, r);
  const limn_arg *a = d->g->args + n->args;
  limn_param p[LIMN_MAXARGS];
  int np = limn_op_params(n->op, p);
  limn_str_addf(d->b, "%s(", limn_op_get(n->op)->name);
  if (n->op == OP_mode && n->nargs)
    limn_text_quote(d->b, dump_mode(d, a[0].u.i));
  else
    for (int i = 0; i < n->nargs && i < np; i++) {
      if (i) limn_str_add(d->b, ", ");
      dump_value(d, a[i], p[i].type);
    }
  limn_str_add(d->b, ")");
}

static void dump_ref(const dump *d, limn_ref r) {
  const limn_node *n;
  int64_t i;
  if (!r || r > d->g->nnode) {
    limn_str_add(d->b, "%?");
    return;
  }
  n = limn_graph_node(d->g, r);
  i = n->nargs ? d->g->args[n->args].u.i : -1;
  if (dump_leaf(n->op)) {
    bool in = n->op == OP_input || n->op == OP_number;
    limn_str_add(d->b, in ? "%" : "@");
    limn_text_name(d->b, in                 ? dump_input(d, i)
                         : n->op == OP_cell ? dump_cell(d, i)
                                            : dump_const(d, i));
  } else if (dump_inline(d, r)) {
    dump_call(d, r);
  } else {
    limn_str_addf(d->b, "%%%u", d->num[r - 1]);
  }
}

static void dump_value(const dump *d, limn_arg a, char type) {
  const char *s = a.tag == LIMN_A_STR ? limn_graph_text(d->g, a.u.str) : "";
  switch (a.tag) {
  case LIMN_A_REF:
    dump_ref(d, a.u.ref);
    break;
  case LIMN_A_INT:
    limn_str_addf(d->b, "%lld", (long long)a.u.i);
    break;
  case LIMN_A_REAL:
    limn_str_real(d->b, a.u.f);
    break;
  case LIMN_A_BOOL:
    limn_str_add(d->b, a.u.i ? "true" : "false");
    break;
  case LIMN_A_DTYPE:
    limn_str_add(d->b, limn_dtype_short((int)a.u.i));
    break;
  case LIMN_A_STR:
    if (type == 'e')
      limn_text_name(d->b, s);
    else
      limn_text_quote(d->b, s);
    break;
  case LIMN_A_LIST:
    limn_str_add(d->b, "[");
    dump_items(d, d->g->args + a.u.at, a.n, type);
    limn_str_add(d->b, "]");
    break;
  default:
    limn_str_add(d->b, "nil");
  }
}

/* -- Lines -- */

static void dump_begin(dump *d) {
  d->bol = d->b->len;
  limn_str_addf(d->b, "%*s", d->indent, "");
}

static void dump_end(dump *d, uint32_t line, uint32_t path) {
  size_t len = d->b->len - d->bol;
  if (d->lines && (line || path)) {
    int pad = len + 2 < DUMP_COLUMN ? DUMP_COLUMN - (int)len : 2;
    limn_str_addf(d->b, "%*s#", pad, "");
    limn_text_place(d->b, limn_graph_text(d->g, line));
    if (path) limn_text_place(d->b, limn_graph_text(d->g, path));
  }
  limn_str_add(d->b, "\n");
}

/* Operands first, then the other arguments that are there, by name. */
static void dump_args(const dump *d, const limn_node *n) {
  const limn_arg *a = d->g->args + n->args;
  limn_param p[LIMN_MAXARGS];
  int np = limn_op_params(n->op, p), shown = 0, region;
  int regions = limn_op_regions(n->op, &region);
  for (int pass = 0; pass < 2; pass++)
    for (int i = 0; i < n->nargs && i < np; i++) {
      bool operand = p[i].type == 'T' || p[i].type == 'S';
      if (operand != (pass == 0)) continue;
      if (!operand && a[i].tag == LIMN_A_NONE) continue;
      if (i >= region && i < region + regions) continue; /* they follow */
      if (shown++) limn_str_add(d->b, ", ");
      if (!operand) limn_str_addf(d->b, "%s=", p[i].name);
      dump_value(d, a[i], p[i].type);
    }
}

static void dump_regions(dump *d, const limn_node *n) {
  int first, count = limn_op_regions(n->op, &first);
  for (int i = first; i < n->nargs && i < first + count; i++) {
    const limn_arg *a = d->g->args + n->args + i;
    const limn_graph *f = limn_graph_region(d->g, *a);
    if (!f) continue;
    limn_str_add(d->b, " ");
    dump_graph(d, f);
    d->bol = d->b->len - 1 - (size_t)d->indent; /* at the closing brace */
  }
}

static void dump_node(dump *d, limn_ref r) {
  const limn_node *n = limn_graph_node(d->g, r);
  dump_begin(d);
  if (n->kind != LIMN_V_NONE) {
    d->num[r - 1] = ++*d->next;
    limn_str_addf(d->b, "%%%u = ", d->num[r - 1]);
  }
  if (d->size[r - 1]) {
    dump_call(d, r);
  } else {
    limn_str_addf(d->b, "%s(", limn_op_get(n->op)->name);
    dump_args(d, n);
    limn_str_add(d->b, ")");
    dump_regions(d, n);
  }
  dump_end(d, n->line, n->path);
}

static const char *dump_comparison(const dump *d, limn_arg cond) {
  if (cond.tag != LIMN_A_REF || !dump_inline(d, cond.u.ref)) return NULL;
  switch (limn_graph_node(d->g, cond.u.ref)->op) {
  case OP_eq:
    return "==";
  case OP_ne:
    return "~=";
  case OP_lt:
    return "<";
  case OP_le:
    return "<=";
  case OP_gt:
    return ">";
  case OP_ge:
    return ">=";
  default:
    return NULL;
  }
}

static void dump_guard(dump *d, const limn_guard *guard) {
  const char *sign = dump_comparison(d, guard->cond);
  dump_begin(d);
  limn_str_add(d->b, "guard ");
  if (sign) {
    const limn_node *n = limn_graph_node(d->g, guard->cond.u.ref);
    dump_value(d, d->g->args[n->args], 'T');
    limn_str_addf(d->b, " %s ", sign);
    dump_value(d, d->g->args[n->args + 1], 'T');
  } else {
    dump_value(d, guard->cond, 'b');
  }
  dump_end(d, guard->line, 0);
}

/* The last line that must stand before the guard. */
static limn_ref dump_guard_dep(const dump *d, const limn_guard *guard) {
  limn_ref r = guard->cond.tag == LIMN_A_REF ? guard->cond.u.ref : 0;
  if (!r || r > d->g->nnode || dump_leaf(limn_graph_node(d->g, r)->op))
    return 0;
  return dump_inline(d, r) ? d->dep[r - 1] : r;
}

/* Guards keep their order and stand as early as what they test allows. */
static void dump_nodes(dump *d) {
  const limn_graph *g = d->g;
  uint32_t next = 0;
  for (limn_ref r = 0; r <= g->nnode; r++) {
    if (r && !dump_leaf(limn_graph_node(g, r)->op) && !dump_inline(d, r))
      dump_node(d, r);
    while (next < g->nguard && dump_guard_dep(d, &g->guard[next]) <= r)
      dump_guard(d, &g->guard[next++]);
  }
}

static void dump_array(const dump *d, const char *word, const char *name,
                       int dtype, int ndim, const int64_t *dims) {
  char shape[256];
  limn_str_addf(d->b, "%s @", word);
  limn_text_name(d->b, name);
  limn_str_addf(d->b, ": %s%s", limn_dtype_short(dtype),
                limn_shape_text(shape, sizeof shape, ndim, dims));
}

static void dump_declarations(dump *d) {
  static const char *const words[] = {"param", "buffer", "state"};
  const limn_graph *g = d->g;
  if (g->draws) {
    dump_begin(d);
    limn_str_addf(d->b, "draws %u", g->draws);
    dump_end(d, 0, 0);
  }
  for (uint32_t i = 0; i < g->ncell; i++) {
    const limn_cell *c = g->cell[i].cell;
    dump_begin(d);
    dump_array(d, words[c->kind], dump_cell(d, i), c->dtype, c->shape.ndim,
               c->shape.d);
    dump_end(d, 0, 0);
  }
  for (uint32_t i = 0; i < g->nconst; i++) {
    const limn_tensor *t = g->konst[i].value;
    dump_begin(d);
    dump_array(d, "const", dump_const(d, i), t->dtype, t->v.ndim, t->v.d);
    dump_end(d, g->konst[i].line, 0);
  }
  for (uint32_t i = 0; i < g->nmode; i++) {
    dump_begin(d);
    limn_str_add(d->b, "mode ");
    limn_text_quote(d->b, dump_mode(d, i));
    dump_end(d, 0, 0);
  }
}

static void dump_writes(dump *d) {
  for (uint32_t i = 0; i < d->g->ncell; i++) {
    const limn_graph_cell *c = &d->g->cell[i];
    if (c->write.tag == LIMN_A_NONE) continue;
    dump_begin(d);
    limn_str_add(d->b, "@");
    limn_text_name(d->b, dump_cell(d, i));
    limn_str_add(d->b, " <- ");
    dump_value(d, c->write, 'T');
    dump_end(d, c->line, 0);
  }
}

/* -- Structures -- */

/* A walk over a tree with its leaves, in preorder. */
typedef struct {
  const limn_tree *t;
  uint32_t n, at;
  const limn_arg *leaf;
  uint32_t nleaf, used;
  bool in;        /* leaves that are inputs show their rank, once */
  uint32_t shown; /* inputs declared so far */
} dump_walk;

static void dump_declare(const dump *d, uint32_t i) {
  const limn_graph_input *in = &d->g->in[i];
  limn_str_add(d->b, "%");
  limn_text_name(d->b, dump_input(d, i));
  limn_str_add(d->b, ": ");
  if (in->number) {
    limn_str_add(d->b, limn_text_host(limn_graph_node(d->g, in->ref)->kind));
    return;
  }
  limn_str_add(d->b, "[");
  for (int k = 0; k < limn_graph_node(d->g, in->ref)->rank; k++) {
    const char *dim = limn_graph_text(d->g, in->dim[k]);
    if (k) limn_str_add(d->b, ", ");
    if (!*dim)
      limn_str_add(d->b, "_");
    else if (!strcmp(dim, "_"))
      limn_text_quote(d->b, dim);
    else
      limn_text_name(d->b, dim);
  }
  limn_str_add(d->b, "]");
}

static void dump_leaf_value(const dump *d, dump_walk *w) {
  limn_arg a = w->leaf[w->used++];
  if (w->in && a.tag == LIMN_A_REF && w->shown < d->g->nin &&
      a.u.ref == d->g->in[w->shown].ref)
    dump_declare(d, w->shown++);
  else
    dump_value(d, a, 'T');
}

/* The tree's next entry; `root` lists have no braces. */
static void dump_tree(const dump *d, dump_walk *w, bool root) {
  const limn_tree *t = &w->t[w->at++];
  if (t->key && !root) {
    limn_text_name(d->b, limn_graph_text(d->g, t->key));
    limn_str_add(d->b, " = ");
  }
  if (t->tag == LIMN_T_LEAF) {
    dump_leaf_value(d, w);
    return;
  }
  if (!root) limn_str_add(d->b, "{");
  if (!root && t->tag == LIMN_T_DICT && !t->n) limn_str_add(d->b, "=");
  for (uint32_t i = 0; i < t->n; i++) {
    if (i) limn_str_add(d->b, ", ");
    dump_tree(d, w, false);
  }
  if (!root) limn_str_add(d->b, "}");
}

/* Does the tree hold exactly the leaves, and its inputs in order? */
static bool dump_tree_fits(const dump *d, const dump_walk *w) {
  uint64_t open = 1, leaves = 0;
  uint32_t inputs = 0;
  if (!w->n || w->t[0].tag != LIMN_T_LIST) return false;
  for (uint32_t i = 0; i < w->n; i++) {
    if (!open) return false;
    open = open - 1 + (w->t[i].tag == LIMN_T_LEAF ? 0 : w->t[i].n);
    leaves += w->t[i].tag == LIMN_T_LEAF;
  }
  if (open || leaves != w->nleaf) return false;
  for (uint32_t i = 0; w->in && i < w->nleaf; i++) {
    if (w->leaf[i].tag != LIMN_A_REF) continue;
    if (inputs == d->g->nin || w->leaf[i].u.ref != d->g->in[inputs].ref)
      return false;
    inputs++;
  }
  return !w->in || inputs == d->g->nin;
}

static void dump_inputs(const dump *d) {
  const limn_graph *g = d->g;
  dump_walk w = {g->in_tree, g->nin_tree, 0,    g->statics,
                 g->nstatic, 0,           true, 0};
  limn_str_add(d->b, "(");
  if (dump_tree_fits(d, &w))
    dump_tree(d, &w, true);
  else
    for (uint32_t i = 0; i < g->nin; i++) {
      if (i) limn_str_add(d->b, ", ");
      dump_declare(d, i);
    }
  limn_str_add(d->b, ")");
}

static void dump_results(dump *d, const char *word) {
  const limn_graph *g = d->g;
  dump_walk w = {g->out_tree, g->nout_tree, 0, g->out, g->nout, 0, false, 0};
  dump_begin(d);
  limn_str_add(d->b, word);
  if (g->nout || g->nout_tree > 1) limn_str_add(d->b, " ");
  if (dump_tree_fits(d, &w))
    dump_tree(d, &w, true);
  else
    dump_items(d, g->out, g->nout, 'T');
  dump_end(d, 0, 0);
}

/* -- Graphs -- */

static int dump_open(dump *d) {
  limn_context *c = d->g->c;
  size_t n = d->g->nnode;
  size_t names = (size_t)d->g->nin + d->g->ncell + d->g->nconst + d->g->nmode;
  limn_str_init(&d->pool, c);
  memset(&d->taken, 0, sizeof d->taken);
  d->num = limn_alloc(c, (n + 1) * sizeof *d->num);
  d->size = limn_alloc(c, (n + 1) * sizeof *d->size);
  d->dep = limn_alloc(c, (n + 1) * sizeof *d->dep);
  d->name = limn_alloc(c, (names + 1) * sizeof *d->name);
  if (!d->num || !d->size || !d->dep || !d->name) return LIMN_EMEM;
  LIMN_TRY(dump_claim_all(d));
  dump_measure(d);
  return 0;
}

static void dump_close(dump *d) {
  limn_context *c = d->g->c;
  size_t n = d->g->nnode;
  size_t names = (size_t)d->g->nin + d->g->ncell + d->g->nconst + d->g->nmode;
  limn_free(c, d->num, d->num ? (n + 1) * sizeof *d->num : 0);
  limn_free(c, d->size, d->size ? (n + 1) * sizeof *d->size : 0);
  limn_free(c, d->dep, d->dep ? (n + 1) * sizeof *d->dep : 0);
  limn_free(c, d->name, d->name ? (names + 1) * sizeof *d->name : 0);
  limn_map_free(c, &d->taken);
  limn_str_free(&d->pool);
}

static void dump_body(dump *d, const char *word) {
  d->indent += 2;
  dump_declarations(d);
  dump_nodes(d);
  dump_writes(d);
  dump_results(d, word);
  d->indent -= 2;
  limn_str_addf(d->b, "%*s}", d->indent, "");
}

/* A region of `outer`, or with next at 0 the graph itself. */
static void dump_graph(const dump *outer, const limn_graph *g) {
  dump d = *outer;
  bool region = outer->g != g;
  int rc;
  d.g = g;
  if ((rc = dump_open(&d)) < 0) {
    if (d.b->rc >= 0) d.b->rc = rc;
  } else if (region) {
    limn_str_addf(d.b, "{\n%*s", d.indent + 2, "");
    dump_inputs(&d);
    limn_str_add(d.b, " =>\n");
    dump_body(&d, "yield");
  } else {
    limn_str_addf(d.b, "limn %d\ngraph ", LIMN_TEXT_FORMAT);
    limn_text_name(d.b, g->name);
    dump_inputs(&d);
    limn_str_add(d.b, " {\n");
    dump_body(&d, "return");
    limn_str_add(d.b, "\n");
  }
  dump_close(&d);
}

void limn_graph_write(const limn_graph *g, limn_str *out, bool lines,
                      const limn_dump_names *names) {
  uint32_t next = 0;
  dump d = {0};
  d.b = out;
  d.g = g;
  d.lines = lines;
  d.names = names;
  d.next = &next;
  dump_graph(&d, g);
}

void limn_graph_dump(const limn_graph *g, limn_str *out, bool lines) {
  limn_graph_write(g, out, lines, NULL);
}
