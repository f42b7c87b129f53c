/* Fusion: which elementwise nodes share one step.
 *
 * Nodes are visited from last to first. Rules:
 * 1. A group has one iteration shape and a root, its last member, where the
 *    step is placed.
 * 2. A node joins the group of a consumer if it has that shape and every
 *    consumer outside the group comes after the root. Its value is then stored
 *    only if something outside needs it. Because references point backwards,
 *    a consumer after the root cannot lead back into the group, so a group
 *    never waits for itself.
 * 3. A reduction is the root of a group over its operand's shape whose members
 *    have no consumers outside.
 * 4. A group that consumes exactly one product of its own shape (of matrices,
 *    or a convolution), which nothing else needs, becomes that one's epilogue.
 * 5. Simple arithmetic on one tensor, and on numbers or less, that only groups
 *    use but that can join none is computed again in each of them: they read
 *    as much as if it had been stored.
 * 6. An update that only the next update takes is of one chain with it. Where
 *    a chain begins with one number, all of it is done at its end, so that its
 *    parts may be computed together: they join each other's groups, as do the
 *    parts of cat.
 * Only values that are equal bit by bit are ever identified (canon). */
#include "planner.h"

#define FUSE_MEMBERS 64
#define FUSE_INPUTS 24 /* of LIMN_STEP_IN: a product takes three */

typedef struct {
  limn_infer *I;
  limn_graph *g;
  limn_fused *f;
  limn_device *dev;
  uint32_t *use_at, *use; /* consumers of r: use[use_at[r-1] .. use_at[r]) */
  int32_t *part; /* per chain or cat: 1 + the group of a part of it */
  bool on;                /* fusing at all */
} fuser;

static const limn_node *fuse_node(const limn_infer *I, limn_ref r) {
  return limn_graph_node(I->g, r);
}

/* Whether a node takes part in a run: a value, or the results of a region. */
static bool fuse_is_value(const limn_infer *I, limn_ref r) {
  int kind = fuse_node(I, r)->kind;
  return kind == LIMN_V_TENSOR || kind == LIMN_V_LIST;
}

static const limn_arg *fuse_arg(const limn_infer *I, limn_ref r, int i) {
  return limn_node_args(I->g, r) + i;
}

/* -- What is the same value -- */

static bool fuse_same_type(const limn_type *a, const limn_type *b) {
  return a->dtype == b->dtype && limn_shape_eq(&a->shape, &b->shape);
}

/* where() on a plan value keeps one branch; the other is dead code then. */
static limn_ref fuse_branch(const limn_infer *I, limn_ref r) {
  const limn_arg *cond = fuse_arg(I, r, 0), *x;
  const limn_type *t;
  bool yes = cond->u.i != 0;
  if (cond->tag == LIMN_A_REF) {
    t = &I->t[cond->u.ref - 1];
    if (t->kind != LIMN_V_BOOL || !t->known) return 0;
    yes = t->i != 0;
  } else if (cond->tag != LIMN_A_BOOL) {
    return 0;
  }
  x = fuse_arg(I, r, yes ? 1 : 2);
  if (x->tag != LIMN_A_REF || fuse_node(I, x->u.ref)->kind != LIMN_V_TENSOR)
    return 0;
  return fuse_same_type(&I->t[r - 1], &I->t[x->u.ref - 1]) ? x->u.ref : 0;
}

/* Whether the argument is 1 wherever it is broadcast to. */
static bool fuse_is_one(const limn_infer *I, const limn_arg *a) {
  const limn_type *t;
  if (a->tag == LIMN_A_INT) return a->u.i == 1;
  if (a->tag == LIMN_A_REAL) return a->u.f == 1;
  if (a->tag != LIMN_A_REF) return false;
  t = &I->t[a->u.ref - 1];
  if (t->kind == LIMN_V_INT) return t->known && t->i == 1;
  if (t->kind == LIMN_V_REAL) return t->known && t->f == 1;
  switch (fuse_node(I, a->u.ref)->op) {
    case OP_full: case OP_full_like:
      return fuse_is_one(I, fuse_arg(I, a->u.ref, 1));
    case OP_expand: case OP_expand_like: case OP_reshape: case OP_reshape_like:
    case OP_unsqueeze:
      return fuse_is_one(I, fuse_arg(I, a->u.ref, 0));
    default: return false;
  }
}

/* The other operand of x * 1, exactly. */
static limn_ref fuse_times_one(const limn_infer *I, limn_ref r) {
  for (int i = 0; i < 2; i++) {
    const limn_arg *x = fuse_arg(I, r, i);
    if (x->tag == LIMN_A_REF &&
        fuse_node(I, x->u.ref)->kind == LIMN_V_TENSOR &&
        fuse_same_type(&I->t[r - 1], &I->t[x->u.ref - 1]) &&
        fuse_is_one(I, fuse_arg(I, r, 1 - i)))
      return x->u.ref;
  }
  return 0;
}

/* The operand that this node merely passes on, or 0. */
static limn_ref fuse_identity(const limn_infer *I, limn_ref r) {
  const limn_node *n = fuse_node(I, r);
  const limn_arg *x = fuse_arg(I, r, 0);
  bool same;
  if (n->kind != LIMN_V_TENSOR || n->nargs == 0) return 0;
  if (n->op == OP_mul) return fuse_times_one(I, r);
  if (n->op == OP_where) return fuse_branch(I, r);
  if (x->tag != LIMN_A_REF) return 0;
  if (fuse_node(I, x->u.ref)->kind != LIMN_V_TENSOR) return 0;
  same = fuse_same_type(&I->t[r - 1], &I->t[x->u.ref - 1]);
  switch (n->op) {
    case OP_detach: case OP_expect: return x->u.ref;
    case OP_convert: case OP_widen: case OP_unwiden: case OP_fold_like:
    case OP_expand_like: case OP_expand:
    case OP_reshape: case OP_reshape_like: case OP_flatten:
      return same ? x->u.ref : 0;
    default: return 0;
  }
}

bool limn_fold_reduces(const limn_infer *I, limn_ref r) {
  const limn_node *n = fuse_node(I, r);
  const limn_arg *x = fuse_arg(I, r, 0);
  if (n->op != OP_fold_like || x->tag != LIMN_A_REF) return false;
  return !limn_shape_eq(&I->t[r - 1].shape, &I->t[x->u.ref - 1].shape);
}

/* Elementwise: element i of the result needs element i of the operands. */
bool limn_fuse_like(const limn_infer *I, limn_ref r) {
  const limn_node *n = fuse_node(I, r);
  const limn_op_row *row = limn_op_get(n->op);
  if (n->kind != LIMN_V_TENSOR) return false;
  if (n->op == OP_full || n->op == OP_full_like) return false;
  if (row->row == LIMN_ROW_E || row->row == LIMN_ROW_G) return true;
  if (n->op == OP_convert || n->op == OP_widen || n->op == OP_unwiden)
    return true;
  return n->op == OP_fold_like && !limn_fold_reduces(I, r);
}

static bool fuse_reduces(const limn_infer *I, limn_ref r) {
  const limn_node *n = fuse_node(I, r);
  return n->kind == LIMN_V_TENSOR &&
         (limn_op_get(n->op)->row == LIMN_ROW_R || limn_fold_reduces(I, r));
}

/* -- Consumers -- */

typedef struct {
  fuser *z;
  limn_ref user;
  uint32_t *count;
} fuse_visit;

static void fuse_count_use(limn_ref r, void *p) {
  fuse_visit *v = p;
  v->count[v->z->f->canon[r - 1]]++;
}

static void fuse_note_use(limn_ref r, void *p) {
  fuse_visit *v = p;
  limn_ref x = v->z->f->canon[r - 1];
  v->z->use[v->count[x - 1]++] = v->user;
}

/* The type letters of an op's parameters, read off its signature. */
int limn_op_types(int op, char *out) {
  const char *s = limn_op_get(op)->sig;
  int n = 0;
  while (n < LIMN_MAXARGS && (s = strchr(s, ':'))) out[n++] = *++s;
  return n;
}

/* Operands whose shape alone matters are no uses: no memory waits for them;
 * neither are those of regions of which these use no more. */
static void fuse_operands(const limn_infer *I, limn_ref r,
                          void (*fn)(limn_ref, void *), void *p) {
  char type[LIMN_MAXARGS];
  const limn_graph *g = I->g;
  int np = limn_op_types(fuse_node(I, r)->op, type);
  bool region = fuse_node(I, r)->kind == LIMN_V_LIST;
  uint32_t at = 0;
  for (int i = 0; i < np && i < fuse_node(I, r)->nargs; i++) {
    const limn_arg *a = fuse_arg(I, r, i);
    if (type[i] != 'T') continue;
    if (a->tag == LIMN_A_REF && fuse_is_value(I, a->u.ref)) fn(a->u.ref, p);
    for (uint32_t k = 0; a->tag == LIMN_A_LIST && k < a->n; k++, at++) {
      const limn_arg *e = &g->args[a->u.at + k];
      if (e->tag == LIMN_A_REF &&
          fuse_node(I, e->u.ref)->kind == LIMN_V_TENSOR &&
          (!region || limn_region_reads(g, r, at)))
        fn(e->u.ref, p);
    }
  }
}

static void fuse_need(limn_ref r, void *p) {
  fuser *z = p;
  z->f->needed[z->f->canon[r - 1] - 1] = 1;
}

static void fuse_need_head(fuser *z, const limn_arg *a) {
  if (a->tag != LIMN_A_REF) return;
  if (fuse_node(z->I, a->u.ref)->kind != LIMN_V_TENSOR) return;
  fuse_need(a->u.ref, z);
  z->f->stored[z->f->canon[a->u.ref - 1] - 1] = 1;
}

static void fuse_needed(fuser *z) {
  limn_graph *g = z->g;
  for (uint32_t i = 0; i < g->nout; i++) fuse_need_head(z, &g->out[i]);
  for (uint32_t i = 0; i < g->ncell; i++)
    fuse_need_head(z, &g->cell[i].write);
  for (uint32_t i = 0; i < g->neffect; i++) {
    z->f->needed[g->effect[i] - 1] = 1;
  }
  for (limn_ref r = g->nnode; r >= 1; r--)
    if (z->f->needed[r - 1] && z->f->canon[r - 1] == r)
      fuse_operands(z->I, r, fuse_need, z);
}

static int fuse_uses(fuser *z, limn_arena *a) {
  limn_graph *g = z->g;
  fuse_visit v = {z, 0, limn_arena_alloc(a, (g->nnode + 2) * 4)};
  z->use_at = limn_arena_alloc(a, (g->nnode + 2) * 4);
  if (!v.count || !z->use_at) return LIMN_EMEM;
  for (limn_ref r = 1; r <= g->nnode; r++)
    if (z->f->needed[r - 1] && z->f->canon[r - 1] == r)
      fuse_operands(z->I, r, fuse_count_use, &v);
  for (limn_ref r = 1; r <= g->nnode; r++)
    z->use_at[r] = z->use_at[r - 1] + v.count[r];
  z->use = limn_arena_alloc(a, (z->use_at[g->nnode] + 1) * 4);
  if (!z->use) return LIMN_EMEM;
  memcpy(v.count, z->use_at, (g->nnode + 1) * 4);
  for (v.user = 1; v.user <= g->nnode; v.user++)
    if (z->f->needed[v.user - 1] && z->f->canon[v.user - 1] == v.user)
      fuse_operands(z->I, v.user, fuse_note_use, &v);
  return 0;
}

/* -- Groups -- */

static uint32_t fuse_operand_count(const limn_infer *I, limn_ref r) {
  uint32_t n = 0;
  for (int i = 0; i < fuse_node(I, r)->nargs; i++)
    n += fuse_arg(I, r, i)->tag == LIMN_A_REF;
  return n;
}

static void fuse_start(fuser *z, limn_ref r, bool reduce) {
  limn_fuse_group *G = &z->f->groups[z->f->ngroup];
  const limn_arg *x = reduce ? fuse_arg(z->I, r, 0) : NULL;
  G->root = r;
  G->reduce = reduce;
  G->nmember = 1;
  G->nin = fuse_operand_count(z->I, r);
  G->nout = 1;
  G->shape = z->I->t[(reduce ? z->f->canon[x->u.ref - 1] : r) - 1].shape;
  z->f->group[r - 1] = (int32_t)z->f->ngroup++;
  z->f->stored[r - 1] = 1;
}

/* When r is done, as a node. */
static limn_ref fuse_at(const fuser *z, limn_ref r) {
  return z->f->late[r - 1] ? z->f->chain[r - 1] : r;
}

/* Whether r may join G, and whether its value must then be stored. */
static bool fuse_may_join(fuser *z, limn_ref r, int32_t gi, bool *store) {
  limn_fuse_group *G = &z->f->groups[gi];
  bool outside = z->f->stored[r - 1];
  if (!limn_shape_eq(&z->I->t[r - 1].shape, &G->shape)) return false;
  if (G->nmember >= FUSE_MEMBERS) return false;
  /* Generators count elements in row-major order, reductions reorder them. */
  if (G->reduce && limn_op_get(fuse_node(z->I, r)->op)->row == LIMN_ROW_G)
    return false;
  if (G->nin + fuse_operand_count(z->I, r) > FUSE_INPUTS) return false;
  for (uint32_t k = z->use_at[r - 1]; k < z->use_at[r]; k++) {
    limn_ref u = z->use[k];
    if (z->f->group[u - 1] == gi) continue;
    if (fuse_at(z, u) <= G->root) return false;
    outside = true;
  }
  if (outside && (G->reduce || G->product || G->nout >= LIMN_STEP_OUT))
    return false;
  *store = outside;
  return true;
}

/* Whether u is made of parts that are computed at any time before. */
static bool fuse_gathers(const fuser *z, limn_ref u) {
  return z->f->late[u - 1] || fuse_node(z->I, u)->op == OP_cat;
}

static bool fuse_is_product(const fuser *z, limn_ref r) {
  const limn_node *n = fuse_node(z->I, r);
  const limn_type *t = &z->I->t[r - 1];
  if (t->dtype != LIMN_F32 && t->dtype != LIMN_F64) return false;
  if (n->op == OP_conv || n->op == OP_conv_transpose) return true;
  if (n->op != OP_matmul) return false;
  return fuse_node(z->I, fuse_arg(z->I, r, 0)->u.ref)->rank >= 2 &&
         fuse_node(z->I, fuse_arg(z->I, r, 1)->u.ref)->rank >= 2;
}

#define FUSE_DEEP 8

/* Whether r may become the epilogue of a product, which must be a group of one
 * result. */
static bool fuse_ends_product(const fuser *z, limn_ref r, int depth) {
  for (int i = 0; i < fuse_node(z->I, r)->nargs && depth; i++) {
    const limn_arg *a = fuse_arg(z->I, r, i);
    limn_ref x = a->tag == LIMN_A_REF ? z->f->canon[a->u.ref - 1] : 0;
    if (!x || z->use_at[x] - z->use_at[x - 1] != 1) continue;
    if (!limn_shape_eq(&z->I->t[x - 1].shape, &z->I->t[r - 1].shape)) continue;
    if (fuse_is_product(z, x)) return true;
    if (limn_fuse_like(z->I, x) && fuse_ends_product(z, x, depth - 1))
      return true;
  }
  return false;
}

static bool fuse_enter(fuser *z, limn_ref r, int32_t gi) {
  limn_fuse_group *G;
  bool store;
  if (gi < 0 || !fuse_may_join(z, r, gi, &store)) return false;
  G = &z->f->groups[gi];
  z->f->group[r - 1] = gi;
  z->f->stored[r - 1] = store;
  G->nmember++;
  G->nin += fuse_operand_count(z->I, r) - !store;
  G->nout += store;
  return true;
}

static bool fuse_join(fuser *z, limn_ref r) {
  if (!z->on) return false;
  for (uint32_t k = z->use_at[r - 1]; k < z->use_at[r]; k++)
    if (fuse_enter(z, r, z->f->group[z->use[k] - 1])) return true;
  if (fuse_ends_product(z, r, FUSE_DEEP)) return false;
  for (uint32_t k = z->use_at[r - 1]; k < z->use_at[r]; k++) {
    limn_ref u = z->use[k];
    if (fuse_gathers(z, u) && fuse_enter(z, r, z->part[fuse_at(z, u) - 1] - 1))
      return true;
  }
  return false;
}

/* Other parts may join the group of this one. */
static void fuse_note_part(fuser *z, limn_ref r) {
  int32_t gi = z->f->group[r - 1];
  if (gi < 0 || fuse_ends_product(z, r, FUSE_DEEP)) return;
  for (uint32_t k = z->use_at[r - 1]; k < z->use_at[r]; k++)
    if (fuse_gathers(z, z->use[k]))
      z->part[fuse_at(z, z->use[k]) - 1] = gi + 1;
}

/* -- What is computed again -- */

static bool fuse_is_simple(int op) {
  switch (op) {
    case OP_add: case OP_sub: case OP_mul: case OP_neg: case OP_abs:
    case OP_square: case OP_relu: case OP_maximum: case OP_minimum: return true;
    default: return false;
  }
}

/* One operand has r's shape and dtype; others are a quarter of it at most. */
static bool fuse_reads_one(const fuser *z, limn_ref r) {
  const limn_type *t = &z->I->t[r - 1];
  int64_t n = limn_numel(t->shape.ndim, t->shape.d);
  int full = 0;
  for (int i = 0; i < fuse_node(z->I, r)->nargs; i++) {
    const limn_arg *a = fuse_arg(z->I, r, i);
    const limn_type *x;
    if (a->tag != LIMN_A_REF) continue;
    x = &z->I->t[a->u.ref - 1];
    if (x->kind != LIMN_V_TENSOR) continue;
    if (fuse_same_type(x, t)) full++;
    else if (limn_numel(x->shape.ndim, x->shape.d) * 4 > n) return false;
  }
  return full == 1;
}

static bool fuse_again(fuser *z, limn_ref r) {
  uint32_t nin = fuse_operand_count(z->I, r), k;
  if (!z->on || z->f->stored[r - 1] || !fuse_is_simple(fuse_node(z->I, r)->op))
    return false;
  if (!fuse_reads_one(z, r)) return false;
  for (k = z->use_at[r - 1]; k < z->use_at[r]; k++) {
    int32_t gi = z->f->group[z->use[k] - 1];
    if (gi < 0 || z->f->groups[gi].nin + nin > FUSE_INPUTS ||
        z->f->groups[gi].nmember >= FUSE_MEMBERS)
      return false;
  }
  for (k = z->use_at[r - 1]; k < z->use_at[r]; k++) {
    limn_fuse_group *G = &z->f->groups[z->f->group[z->use[k] - 1]];
    G->nin += nin;
    G->nmember++;
  }
  z->f->again[r - 1] = 1;
  return true;
}

/* -- Epilogues -- */

/* r, a product, becomes the head of the only group that uses it. */
static void fuse_epilogue(fuser *z, limn_ref r) {
  int32_t gi = -1;
  limn_fuse_group *G;
  if (!fuse_is_product(z, r) || z->f->stored[r - 1]) return;
  for (uint32_t k = z->use_at[r - 1]; k < z->use_at[r]; k++) {
    int32_t u = z->f->group[z->use[k] - 1];
    if (u < 0 || (gi >= 0 && u != gi)) return;
    gi = u;
  }
  if (gi < 0) return;
  G = &z->f->groups[gi];
  if (G->product || G->reduce || G->nout != 1 ||
      G->nmember >= FUSE_MEMBERS - 1)
    return;
  if (!fuse_same_type(&z->I->t[r - 1], &z->I->t[G->root - 1])) return;
  if (!limn_shape_eq(&z->I->t[r - 1].shape, &G->shape)) return;
  G->product = r;
  z->f->stored[r - 1] = 0;
}

/* -- Chains of updates -- */

#define FUSE_LATE 64 /* parts of a chain that is done at its end */

static bool fuse_is_update(const fuser *z, limn_ref r) {
  return z->f->needed[r - 1] && z->f->canon[r - 1] == r &&
         fuse_node(z->I, r)->op == OP_update;
}

/* What update r changes, or 0. */
static limn_ref fuse_updated(const fuser *z, limn_ref r) {
  const limn_arg *x = fuse_arg(z->I, r, 0);
  if (x->tag != LIMN_A_REF) return 0;
  if (fuse_node(z->I, x->u.ref)->kind != LIMN_V_TENSOR) return 0;
  return z->f->canon[x->u.ref - 1];
}

static void fuse_chain_end(fuser *z, limn_ref r) {
  limn_ref x = r, *chain = z->f->chain;
  int op, n = 0;
  while (x && fuse_is_update(z, x) && chain[x - 1] == r) {
    x = fuse_updated(z, x);
    n++;
  }
  op = x ? fuse_node(z->I, x)->op : 0;
  if ((op != OP_full && op != OP_full_like) || n > FUSE_LATE || !z->on) return;
  for (x = r; fuse_is_update(z, x) && chain[x - 1] == r;
       x = fuse_updated(z, x))
    z->f->late[x - 1] = 1;
}

static void fuse_chains(fuser *z) {
  limn_ref *chain = z->f->chain;
  for (limn_ref r = z->g->nnode; r >= 1; r--) {
    limn_ref x = fuse_is_update(z, r) ? fuse_updated(z, r) : 0;
    if (fuse_is_update(z, r) && !chain[r - 1]) chain[r - 1] = r;
    if (x && fuse_is_update(z, x) && !z->f->stored[x - 1] &&
        z->use_at[x] - z->use_at[x - 1] == 1 &&
        z->I->t[x - 1].dtype == z->I->t[r - 1].dtype)
      chain[x - 1] = chain[r - 1];
  }
  for (limn_ref r = 1; r <= z->g->nnode; r++)
    if (chain[r - 1] == r) fuse_chain_end(z, r);
}

static int fuse_alloc(limn_graph *g, limn_arena *a, limn_fused *f) {
  size_t n = g->nnode + 1;
  f->canon = limn_arena_alloc(a, n * sizeof *f->canon);
  f->group = limn_arena_alloc(a, n * sizeof *f->group);
  f->stored = limn_arena_alloc(a, n);
  f->needed = limn_arena_alloc(a, n);
  f->again = limn_arena_alloc(a, n);
  f->groups = limn_arena_alloc(a, n * sizeof *f->groups);
  f->chain = limn_arena_alloc(a, n * sizeof *f->chain);
  f->late = limn_arena_alloc(a, n);
  f->ngroup = 0;
  if (!f->chain || !f->late) return LIMN_EMEM;
  return f->groups && f->needed && f->again && f->stored && f->group &&
                 f->canon ? 0 : LIMN_EMEM;
}

/* What regions read has to be known before. */
static int fuse_regions(limn_graph *g) {
  limn_planner *n;
  for (uint32_t i = 0; i < g->nregion; i++)
    LIMN_TRY(limn_planner_get(g->region[i], &n));
  return 0;
}

int limn_fuse(limn_infer *I, limn_device *dev, limn_arena *a,
              limn_fused *f) {
  limn_graph *g = I->g;
  fuser z = {I, g, f, dev, NULL, NULL, NULL, false};
  limn_ref x;
  z.on = g->c->flags.passes & LIMN_PASS_FUSE;
  f->I = I;
  LIMN_TRY(fuse_alloc(g, a, f));
  for (limn_ref r = 1; r <= g->nnode; r++) {
    x = fuse_identity(I, r);
    f->canon[r - 1] = x ? f->canon[x - 1] : r;
    f->group[r - 1] = -1;
  }
  LIMN_TRY(fuse_regions(g));
  fuse_needed(&z);
  LIMN_TRY(fuse_uses(&z, a));
  z.part = limn_arena_alloc(a, (g->nnode + 1) * sizeof *z.part);
  if (!z.part) return LIMN_EMEM;
  fuse_chains(&z);
  for (limn_ref r = g->nnode; r >= 1; r--) {
    if (!f->needed[r - 1] || f->canon[r - 1] != r) continue;
    if (fuse_reduces(I, r)) {
      fuse_start(&z, r, true);
    } else if (limn_fuse_like(I, r)) {
      if (!fuse_join(&z, r) && !fuse_again(&z, r)) fuse_start(&z, r, false);
      fuse_note_part(&z, r);
    } else if (z.on) {
      fuse_epilogue(&z, r);
    }
  }
  return 0;
}
