/* Values that are made in their place: what cat joins, and what a chain of
 * updates puts together, is computed there instead of being copied there.
 *
 * 1. An update whose result only the next update takes (a chain: fuse.c) shares
 *    that one's memory: nothing but its own part is written.
 * 2. Where the parts of a chain that begins with one number cover everything
 *    and do not overlap, nothing is filled in before; where they are computed
 *    by fused groups, which can write to any view, they are computed there.
 *    The gradient of slices is such a chain.
 * 3. So are the parts of cat. */
#include "emit.h"

#define PLACE_PARTS 64 /* of a chain; longer ones are filled and copied */

static const limn_arg *place_args(const emitter *e, limn_ref r) {
  return limn_node_args(e->g, r);
}

static bool place_live(const emitter *e, limn_ref r) {
  return e->f->needed[r - 1] && e->f->canon[r - 1] == r;
}

static bool place_leaves(const emitter *e, limn_ref r) {
  return e->out_of[r - 1] >= 0 || e->write_of[r - 1] >= 0;
}

/* Value x, of a fused group, is to be made as part `v` of home. */
static void place_part(emitter *e, limn_arg x, limn_ref home,
                       const limn_view *v) {
  limn_ref r = emit_is_tensor(e, x) ? emit_canon(e, x) : 0;
  const limn_type *t = r ? emit_type(e, r) : NULL;
  int32_t gi = r ? e->f->group[r - 1] : -1;
  if (gi < 0 || e->f->groups[gi].product || e->f->groups[gi].reduce) return;
  if (!e->f->stored[r - 1] || place_leaves(e, r) || e->place[r - 1].home)
    return;
  if (t->dtype != emit_type(e, home)->dtype || t->shape.ndim != v->ndim ||
      memcmp(t->shape.d, v->d, (size_t)v->ndim * sizeof *v->d))
    return;
  e->place[r - 1].home = home;
  e->place[r - 1].v = *v;
}

static void place_cat(emitter *e, limn_ref r) {
  const limn_arg *list = place_args(e, r), dim = list[1];
  const limn_type *t = emit_type(e, r);
  int d = dim.tag == LIMN_A_INT ? (int)dim.u.i - 1 : -1;
  limn_view all, v;
  int64_t at = 0;
  if (d < 0 || d >= t->shape.ndim) return;
  limn_view_dense(&all, t->shape.ndim, t->shape.d);
  for (uint32_t i = 0; i < list->n; i++) {
    limn_arg x = e->g->args[list->u.at + i];
    v = all;
    v.d[d] = emit_type(e, x.u.ref)->shape.d[d];
    v.offset = at * all.s[d];
    at += v.d[d];
    place_part(e, x, r, &v);
  }
}

/* -- Updates -- */

/* Positions first..last of each dim, 0-based; a step counts as 1. */
typedef struct {
  int64_t first[LIMN_MAXDIM], last[LIMN_MAXDIM], numel;
  limn_view v;
  limn_arg x;
} place_box;

static int place_region(emitter *e, limn_ref r, place_box *b) {
  const limn_type *t = emit_type(e, r);
  limn_type a[LIMN_MAXARGS], s[LIMN_MAXARGS];
  limn_view all;
  memset(s, 0, sizeof s);
  LIMN_TRY(emit_args(e, r, a, e->pool));
  for (int d = 0; d < t->shape.ndim; d++) {
    int64_t n;
    LIMN_TRY(limn_range(e->c, t->shape.d[d], a[2].list[d].i, a[3].list[d].i,
                        a[4].list[d].i, d + 1, &b->first[d], &n));
    b->last[d] = b->first[d] + (n - 1) * a[4].list[d].i;
  }
  s[0] = a[0];
  for (int i = 1; i < 5; i++) s[i] = a[i + 1];
  limn_view_dense(&all, t->shape.ndim, t->shape.d);
  LIMN_TRY(limn_op_get(OP_slice)->view(e->c, s, &all, &b->v));
  b->numel = limn_numel(b->v.ndim, b->v.d);
  b->x = place_args(e, r)[1];
  return 0;
}

static bool place_apart(const place_box *a, const place_box *b, int ndim) {
  for (int d = 0; d < ndim; d++)
    if (a->last[d] < b->first[d] || b->last[d] < a->first[d]) return true;
  return false;
}

/* Rule 2, for the chain that ends in r. */
static int place_chain(emitter *e, limn_ref r) {
  const limn_type *t = emit_type(e, r);
  place_box *box = limn_arena_alloc(e->tmp, PLACE_PARTS * sizeof *box);
  int64_t numel = 0;
  limn_ref x = r;
  int n = 0, op;
  if (!box) return LIMN_EMEM;
  for (; e->f->chain[x - 1] == r; x = emit_canon(e, place_args(e, x)[0])) {
    if (n == PLACE_PARTS) return 0;
    LIMN_TRY(place_region(e, x, &box[n]));
    numel += box[n++].numel;
  }
  op = limn_graph_node(e->g, x)->op;
  if ((op != OP_full && op != OP_full_like) ||
      emit_is_tensor(e, place_args(e, x)[1]))
    return 0;
  for (int i = 0; i < n; i++)
    for (int k = 0; k < i; k++)
      if (!place_apart(&box[i], &box[k], t->shape.ndim)) return 0;
  if (numel != limn_numel(t->shape.ndim, t->shape.d)) return 0;
  e->place[r - 1].covered = true;
  for (int i = 0; i < n; i++) place_part(e, box[i].x, r, &box[i].v);
  return 0;
}

int emit_places(emitter *e) {
  for (limn_ref r = 1; r <= e->g->nnode; r++)
    if (limn_graph_node(e->g, r)->op == OP_cat && place_live(e, r))
      place_cat(e, r);
  for (limn_ref r = 1; r <= e->g->nnode; r++) {
    /* A chain that is not done at its end is filled in after its parts. */
    int rc = e->f->chain[r - 1] == r && e->f->late[r - 1] &&
                     !e->place[r - 1].home
                 ? place_chain(e, r) : 0;
    if (rc < 0) return limn_locate(e->I, r, rc, e->p->dev->name);
  }
  return 0;
}
