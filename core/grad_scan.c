/* The gradient of a scan is a scan in the opposite direction.
 *
 * 1. The body is copied and differentiated. Its gradient takes the gradients
 *    of what the body gave (seeds), and values that the body had made.
 * 2. The gradient of a matrix that was multiplied in every step is a sum of
 *    products. Their factors are stacked instead and multiplied once, after
 *    the scan. So are sums over the rows of a factor, the gradient of a bias.
 *    What else `outer` gets is summed up in further carried values.
 * 3. Where the gradient needs only the shape of a value, and for views and
 *    constants, it makes it again. Any other value becomes a residual: one
 *    more stacked result of the scan, whose node is given the wider body.
 * 4. What is left of the copy is the body of the gradient's scan: carried are
 *    gradients of the carry and sums for `outer`, stepped are residuals, xs
 *    and gradients of ys; it gives gradients of xs and stacked factors.
 *
 * The draw is the forward scan's, so that a cond in the body, whose gradient
 * computes it again, sees the same random numbers. */
#include "grad_scan.h"

#define SCAN_SPLIT 64 /* sums nested deeper are not taken apart */

static limn_node *scan_node(const scan_grad *s, limn_ref r) {
  return limn_graph_node(s->w.g, r);
}

/* Number of the input that node r is, or -1. */
static int64_t scan_input(const scan_grad *s, limn_ref r) {
  const limn_node *n = scan_node(s, r);
  if (n->op != OP_input && n->op != OP_number) return -1;
  return limn_node_args(s->w.g, r)[0].u.i;
}

/* -- Which gradients there are -- */

typedef struct {
  const bool *on;
  bool any;
} scan_seek;

static void scan_seek_ref(limn_ref r, void *user) {
  scan_seek *k = user;
  k->any |= k->on[r - 1];
}

static void scan_spread(const scan_grad *s, bool *node) {
  const limn_graph *g = s->w.g;
  for (uint32_t i = 0; i < s->nin; i++) node[g->in[i].ref - 1] = s->on[i];
  for (limn_ref r = 1; r <= g->nnode; r++) {
    scan_seek k = {node, false};
    if (node[r - 1] || !limn_grad_passes(g, r)) continue;
    limn_node_refs(g, r, scan_seek_ref, &k);
    node[r - 1] = k.any;
  }
}

/* A carried value depends on what is wanted if it does in any step. */
static int scan_mark(scan_grad *s) {
  const limn_graph *g = s->w.g;
  bool *node = limn_alloc(s->c, g->nnode + 1u), more = true;
  if (!node) return LIMN_EMEM;
  while (more) {
    more = false;
    scan_spread(s, node);
    for (uint32_t i = 0; i < s->nc; i++) {
      limn_arg y = g->out[i];
      if (s->on[i] || y.tag != LIMN_A_REF || !node[y.u.ref - 1]) continue;
      s->on[i] = more = true;
    }
  }
  limn_free(s->c, node, g->nnode + 1u);
  return 0;
}

static int scan_new_input(scan_grad *s, int rank, limn_arg *out) {
  limn_ref r;
  LIMN_TRY(limn_graph_add_input(s->w.g, "v", rank, &r));
  *out = limn_aref(r);
  return 0;
}

/* `given`: per result, whether it has a gradient. */
static int scan_seeds(scan_grad *s, const bool *given) {
  for (uint32_t i = 0; i < s->ny; i++) {
    limn_arg y = s->w.g->out[i];
    bool on = i < s->nc ? s->on[i] : given[i];
    s->seed[i] = limn_none();
    if (!on || !limn_arg_tensor(&s->w, y)) continue;
    LIMN_TRY(scan_new_input(s, limn_arg_rank(&s->w, y), &s->seed[i]));
  }
  return 0;
}

static int scan_differentiate(scan_grad *s) {
  limn_graph *g = s->w.g;
  size_t bytes = (2 * (size_t)s->ny + 1) * sizeof(limn_arg);
  size_t size = (s->nin + 1) * sizeof(limn_ref);
  limn_arg *y = limn_alloc(s->c, bytes), *gy = y ? y + s->ny : NULL;
  limn_ref *wrt = limn_alloc(s->c, size);
  int n = 0, rc = y && wrt ? 0 : LIMN_EMEM;
  for (uint32_t i = 0; rc == 0 && i < s->ny; i++)
    if (s->seed[i].tag == LIMN_A_REF) y[n] = g->out[i], gy[n++] = s->seed[i];
  for (uint32_t i = 0; rc == 0 && i < s->nin; i++)
    wrt[i] = s->on[i] ? g->in[i].ref : 0;
  if (rc == 0)
    rc = limn_gradient_back(g, y, gy, n, wrt, (int)s->nin, s->grad);
  limn_free(s->c, y, bytes);
  limn_free(s->c, wrt, size);
  return rc;
}

/* -- Sums over all steps -- */

static int scan_add_term(scan_grad *s, uint32_t at, limn_ref r) {
  LIMN_TRY(limn_grow(s->c, &s->term, &s->term_cap, s->nterm + 1,
                     sizeof *s->term));
  s->term[s->nterm++] = (scan_term){at, 0, 0, r};
  return 0;
}

/* Whether a summand has the shape of the sum for sure: products, views and
 * folded ones do; those of elements may be broadcast. */
static bool scan_whole(const scan_grad *s, limn_arg x) {
  int op;
  if (!limn_arg_tensor(&s->w, x)) return false;
  op = scan_node(s, x.u.ref)->op;
  return op == OP_add || limn_op_get(op)->row != LIMN_ROW_E;
}

static int scan_split(scan_grad *s, uint32_t at, limn_arg x, int depth) {
  limn_arg a[2];
  if (depth < SCAN_SPLIT && x.u.ref > s->nf &&
      scan_node(s, x.u.ref)->op == OP_add) {
    memcpy(a, limn_node_args(s->w.g, x.u.ref), sizeof a);
    if (scan_whole(s, a[0]) && scan_whole(s, a[1])) {
      LIMN_TRY(scan_split(s, at, a[0], depth + 1));
      return scan_split(s, at, a[1], depth + 1);
    }
  }
  return scan_add_term(s, at, x.u.ref);
}

/* Whether a value can be stacked: it has a value of its own in each step. */
static bool scan_stacks(const scan_grad *s, limn_arg x) {
  int64_t i;
  if (!limn_arg_tensor(&s->w, x)) return false;
  i = scan_input(s, x.u.ref);
  return i < s->nc + s->nx || i >= s->nin;
}

/* x, or its transpose, as a factor [k, n]. */
static limn_ref scan_factor(scan_grad *s, limn_arg x, bool across) {
  limn_arg a[3] = {x, limn_aint(1), limn_aint(2)};
  return across ? limn_build(&s->w, OP_transpose, a, 3).u.ref : x.u.ref;
}

/* The rest of t is a product of two matrices, perhaps folded or transposed:
 * (a' b)' is b' a. */
static void scan_product(scan_grad *s, scan_term *t) {
  limn_ref r = t->rest, x;
  limn_arg a[4];
  bool turned = false;
  int op;
  while ((op = scan_node(s, r)->op) == OP_fold_like || op == OP_transpose) {
    limn_arg y = limn_node_args(s->w.g, r)[0];
    if (r <= s->nf || limn_arg_rank(&s->w, y) != 2) return;
    turned ^= op == OP_transpose;
    r = y.u.ref;
  }
  if (r <= s->nf || op != OP_matmul) return;
  memcpy(a, limn_node_args(s->w.g, r), sizeof a);
  for (int i = 0; i < 2; i++)
    if (!scan_stacks(s, a[i]) || limn_arg_rank(&s->w, a[i]) != 2) return;
  t->a = scan_factor(s, a[0], !limn_arg_true(a[2]));
  t->b = scan_factor(s, a[1], limn_arg_true(a[3]));
  if (!turned) return;
  x = t->a, t->a = t->b, t->b = x;
}

/* The rest of t is the sum over the rows of what is stacked anyway. */
static void scan_rows(scan_grad *s, scan_term *t) {
  limn_arg x = limn_node_args(s->w.g, t->rest)[0];
  if (scan_node(s, t->rest)->op != OP_fold_like || t->rest <= s->nf) return;
  for (uint32_t i = 0; i < s->nterm && x.tag == LIMN_A_REF; i++)
    if (s->term[i].b && (s->term[i].a == x.u.ref || s->term[i].b == x.u.ref))
      t->a = x.u.ref;
}

static int scan_terms(scan_grad *s) {
  for (uint32_t i = s->nc + s->nx; i < s->nin; i++)
    if (s->grad[i].tag == LIMN_A_REF)
      LIMN_TRY(scan_split(s, i, s->grad[i], 0));
  for (uint32_t i = 0; i < s->nterm; i++) scan_product(s, &s->term[i]);
  for (uint32_t i = 0; i < s->nterm; i++)
    if (!s->term[i].a) scan_rows(s, &s->term[i]);
  return s->w.rc;
}

/* -- Results of the gradient's body -- */

static int scan_result(scan_grad *s, limn_arg x) {
  LIMN_TRY(s->w.rc);
  LIMN_TRY(limn_grow(s->c, &s->out, &s->out_cap, s->nout + 1, sizeof x));
  s->out[s->nout++] = x;
  return 0;
}

int64_t scan_find(const scan_grad *s, limn_ref r) {
  for (uint32_t i = s->ncarry; i < s->nout; i++)
    if (s->out[i].u.ref == r) return i;
  return -1;
}

/* Whether the stack of r is at hand without the gradient's scan: xs, residuals
 * and gradients of ys. */
static bool scan_at_hand(const scan_grad *s, limn_ref r) {
  int64_t i = scan_input(s, r);
  if (r <= s->nf) return true;
  for (uint32_t y = s->nc; y < s->ny && i >= 0; y++)
    if (s->seed[y].tag == LIMN_A_REF && s->seed[y].u.ref == r) return true;
  return false;
}

static int scan_carry(scan_grad *s) {
  for (uint32_t i = 0; i < s->nc; i++) {
    limn_arg g = s->grad[i], like = s->seed[i];
    if (!s->on[i]) continue;
    if (like.tag != LIMN_A_REF)
      return limn_fail(s->c, LIMN_EFORMAT, "a carried value is no tensor");
    g = g.tag == LIMN_A_REF ? limn_fold_like(&s->w, g, like)
                            : limn_build_zeros(&s->w, like);
    LIMN_TRY(scan_result(s, g));
  }
  return 0;
}

/* What is left of the gradients of `outer` is added up step by step. */
static int scan_sums(scan_grad *s) {
  for (uint32_t i = 0; i < s->nin; i++) s->sum[i] = limn_none();
  for (uint32_t k = 0; k < s->nterm; k++) {
    const scan_term *t = &s->term[k];
    limn_arg *sum = &s->sum[t->at];
    if (t->a) continue;
    *sum = sum->tag == LIMN_A_NONE
               ? limn_aref(t->rest)
               : limn_build2(&s->w, OP_add, *sum, limn_aref(t->rest));
  }
  for (uint32_t i = 0; i < s->nin; i++) {
    limn_arg rest = s->sum[i];
    int rank = limn_arg_rank(&s->w, limn_aref(s->input[i]));
    if (rest.tag != LIMN_A_REF) continue;
    LIMN_TRY(scan_new_input(s, rank, &s->sum[i]));
    rest = limn_fold_like(&s->w, rest, s->sum[i]);
    LIMN_TRY(scan_result(s, limn_build2(&s->w, OP_add, s->sum[i], rest)));
  }
  return 0;
}

static int scan_results(scan_grad *s) {
  LIMN_TRY(scan_carry(s));
  LIMN_TRY(scan_sums(s));
  s->ncarry = s->nout;
  for (uint32_t i = s->nc; i < s->nc + s->nx; i++)
    if (s->grad[i].tag == LIMN_A_REF && scan_find(s, s->grad[i].u.ref) < 0)
      LIMN_TRY(scan_result(s, s->grad[i]));
  for (uint32_t k = 0; k < s->nterm; k++) {
    limn_ref r[2] = {s->term[k].a, s->term[k].b};
    for (int i = 0; i < 2; i++)
      if (r[i] && !scan_at_hand(s, r[i]) && scan_find(s, r[i]) < 0)
        LIMN_TRY(scan_result(s, limn_aref(r[i])));
  }
  return 0;
}

/* -- What it needs of the forward pass -- */

static void scan_need_arg(scan_grad *s, limn_arg a, int need) {
  if (a.tag == LIMN_A_LIST)
    for (uint32_t i = 0; i < a.n; i++)
      scan_need_arg(s, s->w.g->args[a.u.at + i], need);
  if (a.tag != LIMN_A_REF) return;
  if (scan_node(s, a.u.ref)->kind != LIMN_V_TENSOR) need = SCAN_VALUE;
  s->need[a.u.ref - 1] |= (uint8_t)need;
}

static void scan_need_operands(scan_grad *s, limn_ref r) {
  const limn_node *n = scan_node(s, r);
  const limn_arg *a = limn_node_args(s->w.g, r);
  limn_param p[LIMN_MAXARGS];
  int np = limn_op_params(n->op, p), need = s->need[r - 1];
  if (n->op == OP_pick || limn_op_body(n->op) >= 0) need = SCAN_VALUE;
  for (int i = 0; i < np && i < n->nargs; i++)
    scan_need_arg(s, a[i], p[i].type == 'S' ? SCAN_SHAPE : need & 3);
}

/* A value of the forward pass, which may pick from a scan in the body that
 * was given more results. */
static bool scan_is_forward(const scan_grad *s, limn_ref r) {
  if (r <= s->nf) return true;
  return scan_node(s, r)->op == OP_pick &&
         limn_node_args(s->w.g, r)[0].u.ref <= s->nf;
}

/* Rule 3, for a value that is needed. */
static bool scan_keeps(const scan_grad *s, limn_ref r) {
  const limn_node *n = scan_node(s, r);
  bool value = s->need[r - 1] & SCAN_VALUE;
  int row = limn_op_get(n->op)->row;
  int64_t i = scan_input(s, r);
  if (n->kind != LIMN_V_TENSOR || !scan_is_forward(s, r)) return false;
  if (i >= 0) return value && i < s->nc;
  if (n->op == OP_pick || limn_op_body(n->op) >= 0 || limn_op_random(n->op))
    return true;
  return value && row != LIMN_ROW_V && row != LIMN_ROW_G && n->op != OP_detach;
}

static int scan_keep(scan_grad *s, limn_ref r) {
  s->need[r - 1] |= SCAN_KEPT;
  LIMN_TRY(limn_grow(s->c, &s->kept, &s->kept_cap, s->nkept + 1,
                     sizeof *s->kept));
  s->kept[s->nkept++] = r;
  return 0;
}

/* A factor that is a forward value is kept even if only the product after the
 * scan needs it; `need` tells the two apart. */
static int scan_keep_factors(scan_grad *s) {
  for (uint32_t k = 0; k < s->nterm; k++) {
    limn_ref r[2] = {s->term[k].a, s->term[k].b};
    for (int i = 0; i < 2; i++) {
      int64_t in = r[i] ? scan_input(s, r[i]) : -1;
      bool known = in >= (int64_t)s->nc;
      if (!r[i] || known || !scan_at_hand(s, r[i])) continue;
      for (uint32_t j = 0; j < s->nkept; j++) known |= s->kept[j] == r[i];
      if (known) continue;
      LIMN_TRY(limn_grow(s->c, &s->kept, &s->kept_cap, s->nkept + 1,
                         sizeof *s->kept));
      s->kept[s->nkept++] = r[i];
    }
  }
  return 0;
}

static int scan_needs(scan_grad *s) {
  s->nneed = s->w.g->nnode + 1u;
  s->need = limn_alloc(s->c, s->nneed);
  if (!s->need) return LIMN_EMEM;
  for (uint32_t i = 0; i < s->nout; i++)
    scan_need_arg(s, s->out[i], SCAN_VALUE);
  for (limn_ref r = s->w.g->nnode; r >= 1; r--) {
    if (!s->need[r - 1]) continue;
    if (scan_keeps(s, r)) LIMN_TRY(scan_keep(s, r));
    else if (scan_input(s, r) < 0) scan_need_operands(s, r);
  }
  return scan_keep_factors(s);
}

/* Number of the stacked result that is r, or of a new one. */
static int scan_place(limn_graph *g, uint32_t nc, limn_ref r, uint32_t *at) {
  for (*at = nc; *at < g->nout; ++*at)
    if (g->out[*at].tag == LIMN_A_REF && g->out[*at].u.ref == r) return 0;
  return limn_graph_add_out(g, limn_aref(r));
}

int scan_wider(const scan_grad *s, uint32_t *at, limn_graph **out) {
  limn_graph *g;
  int rc = 0;
  *out = NULL;
  LIMN_TRY(limn_graph_clone(s->w.g, &g));
  g->nin = s->nin;
  g->nin_tree = g->nout_tree = g->nstatic = 0;
  for (uint32_t i = 0; i < s->nkept; i++)
    LIMN_GO(scan_place(g, s->nc, s->kept[i], &at[i]));
  if (g->nout > UINT16_MAX)
    LIMN_GO(limn_hint(s->c,
                      limn_fail(s->c, LIMN_ETRACE,
                                "the gradient of a scan would keep %u values "
                                "of each step; %d at most",
                                g->nout, UINT16_MAX),
                      "put parts of the body into functions of limn.custom, "
                      "or make it smaller"));
  LIMN_GO(limn_graph_compact(g));
  *out = g;
  return 0;
bail:
  limn_graph_release(g);
  return rc;
}

/* -- All of it, for a body alone -- */

int scan_begin(scan_grad *s, const limn_graph *body, uint32_t nc,
                      uint32_t nx) {
  limn_graph *g;
  memset(s, 0, sizeof *s);
  s->c = body->c;
  LIMN_TRY(limn_graph_clone(body, &g));
  s->w = (limn_builder){s->c, g, 0, 0, 0};
  s->nf = g->nnode;
  s->nc = nc, s->nx = nx, s->nin = g->nin, s->ny = g->nout;
  s->on = limn_alloc(s->c, s->nin + 1u);
  s->grad = limn_alloc(s->c, (s->nin + 1u) * sizeof *s->grad);
  s->sum = limn_alloc(s->c, (s->nin + 1u) * sizeof *s->sum);
  s->input = limn_alloc(s->c, (s->nin + 1u) * sizeof *s->input);
  s->seed = limn_alloc(s->c, (s->ny + 1u) * sizeof *s->seed);
  if (!s->on || !s->grad || !s->sum || !s->input || !s->seed) return LIMN_EMEM;
  for (uint32_t i = 0; i < s->nin; i++) s->input[i] = g->in[i].ref;
  if (nc + nx > s->nin || nc > s->ny)
    return limn_fail(s->c, LIMN_EFORMAT, "a scan over another kind of body");
  return 0;
}

void scan_end(scan_grad *s) {
  limn_context *c = s->c;
  limn_graph_release(s->w.g);
  limn_free(c, s->on, s->nin + 1u);
  limn_free(c, s->grad, (s->nin + 1u) * sizeof *s->grad);
  limn_free(c, s->sum, (s->nin + 1u) * sizeof *s->sum);
  limn_free(c, s->input, (s->nin + 1u) * sizeof *s->input);
  limn_free(c, s->seed, (s->ny + 1u) * sizeof *s->seed);
  limn_free(c, s->term, s->term_cap * sizeof *s->term);
  limn_free(c, s->out, s->out_cap * sizeof *s->out);
  limn_free(c, s->need, s->nneed);
  limn_free(c, s->kept, s->kept_cap * sizeof *s->kept);
}

int scan_body(scan_grad *s, const bool *given) {
  LIMN_TRY(scan_mark(s));
  LIMN_TRY(scan_seeds(s, given));
  LIMN_TRY(scan_differentiate(s));
  LIMN_TRY(scan_terms(s));
  LIMN_TRY(scan_results(s));
  return scan_needs(s);
}

int limn_scan_widen(const limn_graph *body, uint32_t nc, uint32_t nx,
                    limn_graph **out) {
  scan_grad s;
  uint32_t *at = NULL, n = 0;
  bool *given = limn_alloc(body->c, body->nout + 1u);
  int rc;
  *out = NULL;
  if (!given) return LIMN_EMEM;
  LIMN_GO(scan_begin(&s, body, nc, nx));
  for (uint32_t i = 0; i < s.nin; i++)
    s.on[i] = scan_node(&s, s.w.g->in[i].ref)->kind == LIMN_V_TENSOR;
  for (uint32_t i = 0; i < s.ny; i++) given[i] = true;
  LIMN_GO(scan_body(&s, given));
  n = s.nkept;
  at = limn_alloc(s.c, (n + 1u) * sizeof *at);
  rc = at ? scan_wider(&s, at, out) : LIMN_EMEM;
bail:
  limn_free(body->c, at, (n + 1u) * sizeof *at);
  limn_free(body->c, given, body->nout + 1u);
  scan_end(&s);
  return rc;
}
