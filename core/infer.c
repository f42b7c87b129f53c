/* Inference: shapes, dtypes and plan values of a graph's nodes once its inputs
 * are known, and the sentence for the node where that fails. */
#include <stdio.h>

#include "op_rules.h"

#define TEXT 256

/* -- One op -- */

/* The row's arguments in full: absent ones are NONE or their default. */
static int infer_fill(limn_context *c, int op, const limn_type *a, int n,
                      limn_type *out) {
  limn_param p[LIMN_MAXARGS];
  int np = limn_op_params(op, p);
  if (n > np)
    return limn_fail(c, LIMN_EARG, "%d arguments; it takes %d", n, np);
  memset(out, 0, LIMN_MAXARGS * sizeof *out);
  for (int i = 0; i < np; i++) {
    if (i < n) out[i] = a[i];
    if (out[i].kind != LIMN_V_NONE || !p[i].has_default) continue;
    out[i].known = true;
    out[i].i = p[i].def.u.i;
    switch (p[i].def.tag) {
      case LIMN_A_INT: out[i].kind = LIMN_V_INT; break;
      case LIMN_A_BOOL: out[i].kind = LIMN_V_BOOL; break;
      case LIMN_A_REAL:
        out[i].kind = LIMN_V_REAL;
        out[i].f = p[i].def.u.f;
        break;
      default: out[i].known = false; /* a word: its rule knows the default */
    }
  }
  return 0;
}

static int infer_elementwise(limn_context *c, int op, const limn_type *a,
                             limn_type *out) {
  int arity = limn_op_get(op)->arity, kinds[3];
  bool host = true, known = true;
  limn_type t;
  for (int i = 0; i < arity; i++) {
    kinds[i] = a[i].kind;
    host &= a[i].kind != LIMN_V_TENSOR;
    known &= a[i].known || a[i].kind == LIMN_V_NONE;
  }
  LIMN_TRY(limn_rule_elementwise(c, op, a, &t)); /* checks operands, too */
  if (!host) {
    *out = t;
    return 0;
  }
  if (known) return limn_host_eval(c, op, a, arity, out);
  memset(out, 0, sizeof *out);
  out->kind = (uint8_t)limn_host_kind(op, kinds, arity);
  return 0;
}

static int infer_view(limn_context *c, const limn_op_row *row,
                      const limn_type *a, limn_type *out) {
  limn_type x;
  limn_view v;
  limn_shape s;
  LIMN_TRY(limn_rule_tensor(c, &a[0], "x", &x));
  limn_view_dense(&v, x.shape.ndim, x.shape.d);
  LIMN_TRY(row->view(c, a, &v, &v));
  s.ndim = v.ndim;
  memcpy(s.d, v.d, sizeof s.d);
  return limn_rule_result(c, x.dtype, &s, out);
}

static void infer_host(limn_type *out, int kind, bool known, int64_t i) {
  memset(out, 0, sizeof *out);
  out->kind = (uint8_t)kind;
  out->known = known;
  out->i = i;
  if (kind == LIMN_V_DTYPE) out->dtype = (uint8_t)i;
}

/* Structure rows that follow from their arguments alone. */
static int infer_structure(limn_context *c, int op, const limn_type *a,
                           limn_type *out) {
  int dim, x, y;
  if (op != OP_is && a[0].kind != LIMN_V_TENSOR)
    return limn_fail(c, LIMN_EARG, "x must be a tensor");
  switch (op) {
    case OP_size:
      LIMN_TRY(limn_rule_dim(c, &a[1], LIMN_MUST, a[0].shape.ndim, &dim));
      infer_host(out, LIMN_V_INT, true, a[0].shape.d[dim]);
      return 0;
    case OP_dtypeof:
      infer_host(out, LIMN_V_DTYPE, true, a[0].dtype);
      return 0;
    default:
      LIMN_TRY(limn_rule_dtype(c, &a[0], -1, &x));
      LIMN_TRY(limn_rule_dtype(c, &a[1], -1, &y));
      infer_host(out, LIMN_V_BOOL, true, x == y);
      return 0;
  }
}

/* Elementwise rows take numbers for tensors. These read memory, which a number
 * has not. */
static int infer_memory(limn_context *c, int op, const limn_type *x) {
  const limn_op_row *row = limn_op_get(op);
  bool expands = row->row == LIMN_ROW_S && row->expand && op != OP_eye;
  char text[100];
  if (row->row != LIMN_ROW_R && row->row != LIMN_ROW_V && !expands &&
      op != OP_argmax && op != OP_argmin)
    return 0;
  if (x->kind == LIMN_V_LIST) return 0; /* stack: its rule looks at each */
  if (x->kind == LIMN_V_TENSOR || x->kind == LIMN_V_NONE) return 0;
  return limn_fail(c, LIMN_EARG, "x must be a tensor, not %s",
                   limn_type_text(text, sizeof text, x));
}

int limn_infer_op(limn_context *c, int op, const limn_type *a, int n,
                  limn_type *out) {
  const limn_op_row *row = limn_op_get(op);
  limn_type full[LIMN_MAXARGS];
  LIMN_TRY(infer_fill(c, op, a, n, full));
  LIMN_TRY(infer_memory(c, op, &full[0]));
  switch (row->row) {
    case LIMN_ROW_E: return infer_elementwise(c, op, full, out);
    case LIMN_ROW_R: return limn_rule_reduction(c, op, full, out);
    case LIMN_ROW_V: return infer_view(c, row, full, out);
    case LIMN_ROW_G: return limn_rule_generator(c, op, full, out);
    case LIMN_ROW_S: return row->infer(c, full, out);
    default: break;
  }
  if (op == OP_size || op == OP_dtypeof || op == OP_is)
    return infer_structure(c, op, full, out);
  return limn_fail(c, LIMN_EARG, "%s depends on its graph", row->name);
}

/* -- Arguments of a node -- */

typedef struct { /* where lists of one node's arguments go */
  limn_type *t;
  int n, cap;
} infer_pool;

/* Nodes refer to earlier nodes only, so what is not inferred is a fault of
 * the graph, which may come from a file. */
static int infer_ref(limn_infer *I, limn_ref r, limn_type *out) {
  if (!r || r > I->n)
    return limn_fail(I->c, LIMN_EFORMAT, "a value is used before it is made");
  *out = I->t[r - 1];
  out->list = NULL, out->n = 0; /* the results of a region stay there */
  return 0;
}

static int infer_resolve(limn_infer *I, const limn_arg *a, limn_type *out,
                         infer_pool *pool) {
  limn_type *list;
  memset(out, 0, sizeof *out);
  out->known = true;
  switch (a->tag) {
    case LIMN_A_REF: return infer_ref(I, a->u.ref, out);
    case LIMN_A_INT: infer_host(out, LIMN_V_INT, true, a->u.i); return 0;
    case LIMN_A_BOOL: infer_host(out, LIMN_V_BOOL, true, a->u.i); return 0;
    case LIMN_A_DTYPE: infer_host(out, LIMN_V_DTYPE, true, a->u.i); return 0;
    case LIMN_A_REAL:
      out->kind = LIMN_V_REAL;
      out->f = a->u.f;
      return 0;
    case LIMN_A_STR:
      out->kind = LIMN_V_STR;
      out->s = limn_graph_text(I->g, a->u.str);
      return 0;
    case LIMN_A_LIST: break;
    default: out->known = false; return 0;
  }
  if (!pool || pool->cap - pool->n < (int64_t)a->n)
    return limn_fail(I->c, LIMN_EFORMAT, "a list inside a list");
  list = pool->t + pool->n;
  pool->n += (int)a->n;
  out->kind = LIMN_V_LIST;
  out->list = list;
  out->n = (int)a->n;
  for (uint32_t i = 0; i < a->n; i++)
    LIMN_TRY(infer_resolve(I, I->g->args + a->u.at + i, &list[i], NULL));
  return 0;
}

static limn_ref infer_last_ref(const limn_graph *g, const limn_arg *a, int n) {
  limn_ref last = 0;
  for (int i = 0; i < n; i++) {
    if (a[i].tag == LIMN_A_REF) last = LIMN_MAX(last, a[i].u.ref);
    if (a[i].tag == LIMN_A_LIST)
      for (uint32_t k = 0; k < a[i].n; k++) {
        const limn_arg *e = g->args + a[i].u.at + k;
        if (e->tag == LIMN_A_REF) last = LIMN_MAX(last, e->u.ref);
      }
  }
  return last;
}

int limn_infer_args(limn_infer *I, const limn_arg *a, int n, limn_type *out,
                    limn_type *pool, int pool_n) {
  infer_pool p = {pool, 0, pool_n};
  limn_ref last = infer_last_ref(I->g, a, n);
  if (last > I->n) LIMN_TRY(limn_infer_upto(I, last));
  for (int i = 0; i < n; i++) LIMN_TRY(infer_resolve(I, &a[i], &out[i], &p));
  return 0;
}

/* -- Structure rows that need the graph -- */

static int infer_index(limn_infer *I, const limn_type *a, uint32_t n,
                       uint32_t *out) {
  *out = 0;
  if (a->kind != LIMN_V_INT || a->i < 0 || a->i >= n)
    return limn_fail(I->c, LIMN_EFORMAT, "there is no number %lld",
                     (long long)a->i);
  *out = (uint32_t)a->i;
  return 0;
}

static int infer_input(limn_infer *I, const limn_node *nd, const limn_type *a,
                       limn_type *out) {
  char text[TEXT];
  uint32_t i;
  LIMN_TRY(infer_index(I, a, I->g->nin, &i));
  if (!I->in || I->in[i].kind != LIMN_V_TENSOR)
    return limn_fail(I->c, LIMN_EARG, "input %s must be a tensor",
                     limn_graph_text(I->g, I->g->in[i].name));
  if (I->in[i].shape.ndim != nd->rank)
    return limn_fail(I->c, LIMN_ESHAPE, "input %s is %s: the graph was made "
                     "for %d dim%s",
                     limn_graph_text(I->g, I->g->in[i].name),
                     limn_type_text(text, sizeof text, &I->in[i]), nd->rank,
                     nd->rank == 1 ? "" : "s");
  return limn_rule_result(I->c, I->in[i].dtype, &I->in[i].shape, out);
}

/* A number input is a real whatever its value, so that dtypes do not hang on
 * the value; eager ops and regions have inputs of other kinds. */
static int infer_number(limn_infer *I, const limn_node *nd, const limn_type *a,
                        limn_type *out) {
  uint32_t i;
  LIMN_TRY(infer_index(I, a, I->g->nin, &i));
  infer_host(out, nd->kind, false, 0);
  if (!I->in || !I->in[i].known) return 0;
  out->known = true;
  out->i = I->in[i].i;
  out->f = I->in[i].kind == LIMN_V_REAL ? I->in[i].f : (double)I->in[i].i;
  if (nd->kind == LIMN_V_DTYPE) out->dtype = (uint8_t)out->i;
  return 0;
}

static int infer_mode(limn_infer *I, const limn_type *a, limn_type *out) {
  uint32_t i;
  bool training;
  LIMN_TRY(infer_index(I, a, I->g->nmode, &i));
  training = I->g->mode_override < 0 ? I->g->mode[i].mode->training
                                     : I->g->mode_override == 1;
  infer_host(out, LIMN_V_BOOL, true, training);
  return 0;
}

static int infer_on(limn_infer *I, const limn_type *a, limn_type *out) {
  bool gpu = a->kind == LIMN_V_STR && !strcmp(a->s, "gpu");
  if (!gpu && (a->kind != LIMN_V_STR || strcmp(a->s, "cpu")))
    return limn_fail(I->c, LIMN_EARG, "kind must be cpu or gpu");
  infer_host(out, LIMN_V_BOOL, I->on_gpu >= 0, gpu == (I->on_gpu == 1));
  return 0;
}

static int infer_again(limn_infer *I, limn_ref r);

static int infer_pick(limn_infer *I, const limn_arg *arg, const limn_type *a,
                      limn_type *out) {
  const limn_type *node;
  if (arg[0].tag != LIMN_A_REF)
    return limn_fail(I->c, LIMN_EFORMAT, "x must be a node");
  node = &I->t[arg[0].u.ref - 1];
  if (node->n < limn_graph_node(I->g, arg[0].u.ref)->nresult)
    LIMN_TRY(infer_again(I, arg[0].u.ref));
  if (!node->list || a[1].kind != LIMN_V_INT || a[1].i < 1 ||
      a[1].i > node->n)
    return limn_fail(I->c, LIMN_EFORMAT, "there is no result number %lld",
                     (long long)a[1].i);
  *out = node->list[a[1].i - 1];
  return 0;
}

static int infer_graph_op(limn_infer *I, const limn_node *nd,
                          const limn_arg *arg, const limn_type *a,
                          limn_type *out, bool *inside) {
  uint32_t i;
  switch (nd->op) {
    case OP_input: return infer_input(I, nd, a, out);
    case OP_number: return infer_number(I, nd, a, out);
    case OP_mode: return infer_mode(I, a, out);
    case OP_on: return infer_on(I, a, out);
    case OP_custom: case OP_cond: case OP_while: case OP_scan:
      return limn_infer_region(I, nd, arg, a, out, inside);
    case OP_pick: return infer_pick(I, arg, a, out);
    case OP_cell:
      LIMN_TRY(infer_index(I, a, I->g->ncell, &i));
      return limn_rule_result(I->c, I->g->cell[i].cell->dtype,
                              &I->g->cell[i].cell->shape, out);
    case OP_const:
      LIMN_TRY(infer_index(I, a, I->g->nconst, &i));
      *out = limn_type_of(I->g->konst[i].value);
      return 0;
    case OP_print: infer_host(out, LIMN_V_NONE, false, 0); return 0;
    case OP_device: infer_host(out, LIMN_V_DEVICE, false, 0); return 0;
    default: return limn_infer_op(I->c, nd->op, a, nd->nargs, out);
  }
}

/* -- Nodes in order -- */

/* What tracing said and what the rule says must agree. */
static int infer_agrees(limn_infer *I, const limn_node *nd,
                        const limn_type *t) {
  bool tensor = t->kind == LIMN_V_TENSOR;
  if (nd->op == OP_custom || nd->kind == LIMN_V_LIST) return 0;
  if (tensor != (nd->kind == LIMN_V_TENSOR))
    return limn_fail(I->c, LIMN_EFORMAT, "a tensor and a number are confused");
  if (tensor && nd->rank != t->shape.ndim)
    return limn_fail(I->c, LIMN_EFORMAT, "the result has %d dims here, but "
                     "%d when it was traced", t->shape.ndim, nd->rank);
  return 0;
}

static int infer_pool_size(const limn_arg *a, int n) {
  uint64_t size = 0;
  for (int i = 0; i < n; i++)
    if (a[i].tag == LIMN_A_LIST) size += a[i].n;
  return (int)LIMN_MIN(size, (uint64_t)INT32_MAX);
}

static int infer_node(limn_infer *I, limn_ref r, limn_type *out,
                      bool *inside) {
  const limn_node *nd = limn_graph_node(I->g, r);
  const limn_arg *arg = I->g->args + nd->args;
  limn_type a[LIMN_MAXARGS] = {{0}}, few[24], *pool = few;
  int need = infer_pool_size(arg, nd->nargs), rc = 0;
  infer_pool p = {NULL, 0, need};
  if (need > LIMN_COUNT(few)) {
    pool = limn_alloc(I->c, (size_t)need * sizeof *pool);
    if (!pool) return LIMN_EMEM;
  }
  p.t = pool;
  for (int i = 0; i < nd->nargs; i++)
    LIMN_GO(infer_resolve(I, &arg[i], &a[i], &p));
  LIMN_GO(infer_graph_op(I, nd, arg, a, out, inside));
  LIMN_GO(infer_agrees(I, nd, out));
bail:
  if (pool != few) limn_free(I->c, pool, (size_t)need * sizeof *pool);
  return rc;
}

/* A known int out of an argument. */
static bool infer_known_int(const limn_infer *I, const limn_arg *a,
                            int64_t *out) {
  const limn_type *t;
  if (a->tag == LIMN_A_INT) {
    *out = a->u.i;
    return true;
  }
  if (a->tag != LIMN_A_REF || !a->u.ref || a->u.ref > I->n) return false;
  t = &I->t[a->u.ref - 1];
  *out = t->i;
  return t->known && t->kind == LIMN_V_INT;
}

static bool infer_quick_size(const limn_infer *I, const limn_arg *a,
                             int64_t *out) {
  const limn_type *x;
  if (a[0].tag != LIMN_A_REF || !a[0].u.ref || a[0].u.ref > I->n ||
      a[1].tag != LIMN_A_INT)
    return false;
  x = &I->t[a[0].u.ref - 1];
  if (x->kind != LIMN_V_TENSOR || a[1].u.i < 1 || a[1].u.i > x->shape.ndim)
    return false;
  *out = x->shape.d[a[1].u.i - 1];
  return true;
}

/* Sizes, and what guards are made of: most plan values by far, without the
 * general way's detours. False: that way, which also tells what is wrong. */
static bool infer_quick(const limn_infer *I, const limn_node *nd,
                        limn_type *out) {
  const limn_arg *a = I->g->args + nd->args;
  int64_t x, y;
  if (nd->nargs != 2) return false;
  if (nd->op == OP_size) {
    if (!infer_quick_size(I, a, &out->i)) return false;
  } else if (nd->kind != LIMN_V_INT && nd->kind != LIMN_V_BOOL) {
    return false;
  } else {
    if (!infer_known_int(I, &a[0], &x) || !infer_known_int(I, &a[1], &y))
      return false;
    switch (nd->op) {
      case OP_eq: out->i = x == y; break;
      case OP_ne: out->i = x != y; break;
      case OP_lt: out->i = x < y; break;
      case OP_le: out->i = x <= y; break;
      case OP_gt: out->i = x > y; break;
      case OP_ge: out->i = x >= y; break;
      case OP_add:
        if (__builtin_add_overflow(x, y, &out->i)) return false;
        break;
      case OP_sub:
        if (__builtin_sub_overflow(x, y, &out->i)) return false;
        break;
      case OP_mul:
        if (__builtin_mul_overflow(x, y, &out->i)) return false;
        break;
      default: return false;
    }
  }
  out->kind = nd->kind;
  out->known = true;
  return true;
}

static void infer_drop(limn_infer *I, limn_type *t) {
  if (t->list && t->n) /* a region's results */
    limn_free(I->c, (void *)(uintptr_t)t->list, (size_t)t->n * sizeof *t->list);
}

/* A gradient has given node r, a scan, further results. */
static int infer_again(limn_infer *I, limn_ref r) {
  limn_type t = {0};
  bool inside = false;
  int rc = infer_node(I, r, &t, &inside);
  infer_drop(I, rc < 0 ? &t : &I->t[r - 1]);
  if (rc == 0) I->t[r - 1] = t;
  return rc;
}

int limn_infer_upto(limn_infer *I, limn_ref r) {
  if (r > I->g->nnode)
    return limn_fail(I->c, LIMN_EFORMAT, "there is no node %u", r);
  LIMN_TRY(limn_grow(I->c, &I->t, &I->cap, r, sizeof *I->t));
  while (I->n < r) {
    limn_type t;
    bool inside = false;
    int rc;
    memset(&I->t[I->n], 0, sizeof t);
    if (infer_quick(I, limn_graph_node(I->g, I->n + 1), &I->t[I->n])) {
      I->n++;
      continue;
    }
    memset(&t, 0, sizeof t);
    rc = infer_node(I, I->n + 1, &t, &inside);
    if (rc < 0) {
      infer_drop(I, &t);
      return inside ? rc : limn_locate(I, I->n + 1, rc, I->device);
    }
    I->t[I->n++] = t;
  }
  return 0;
}

void limn_infer_free(limn_infer *I) {
  for (uint32_t i = 0; i < I->n; i++) infer_drop(I, &I->t[i]);
  if (I->t) limn_free(I->c, I->t, (size_t)I->cap * sizeof *I->t);
  I->t = NULL;
  I->n = I->cap = 0;
}

/* -- Errors with their place -- */

/* "\n  x: %x float32 [8, 64] on cuda:0", or "%3 = 5" for a plan value. */
static void locate_operand(limn_infer *I, const char *name, int at,
                           const limn_arg *a, const char *device) {
  char what[96], text[TEXT], sub[16] = "";
  limn_type t = {0};
  bool tensor;
  if (at) snprintf(sub, sizeof sub, "[%d]", at);
  limn_arg_text(I->g, *a, what, sizeof what);
  if (a->tag != LIMN_A_REF || !a->u.ref || a->u.ref > I->n) {
    limn_error_append(I->c, "\n  %s%s: %s", name, sub, what);
    return;
  }
  t = I->t[a->u.ref - 1];
  tensor = t.kind == LIMN_V_TENSOR;
  limn_type_text(text, sizeof text, &t);
  if (I->g->eager) { /* its inputs' names are not the user's */
    if (tensor || t.known)
      limn_error_append(I->c, "\n  %s%s: %s%s%s", name, sub, text,
                        device && tensor ? " on " : "",
                        device && tensor ? device : "");
    return;
  }
  limn_error_append(I->c, "\n  %s%s: %s%s%s%s%s", name, sub, what,
                    tensor ? " " : t.known ? " = " : ": ", text,
                    device && tensor ? " on " : "",
                    device && tensor ? device : "");
}

/* Long lists of tensors show their first eight. */
static void locate_list(limn_infer *I, const char *name, const limn_arg *a,
                        const char *device) {
  const limn_arg *e = I->g->args + a->u.at;
  for (uint32_t i = 0; i < a->n && i < 8; i++)
    locate_operand(I, name, (int)i + 1, &e[i], device);
  if (a->n > 8) limn_error_append(I->c, "\n  ... %u in all", a->n);
}

static bool locate_has_ref(const limn_graph *g, const limn_arg *a) {
  return infer_last_ref(g, a, 1) != 0;
}

/* Operands, and attributes that come from plan values; of an eager op not the
 * positions and sizes, which stand at the user's line. */
static void locate_args(limn_infer *I, const limn_node *nd,
                        const char *device) {
  const limn_arg *a = I->g->args + nd->args;
  limn_param p[LIMN_MAXARGS];
  int n = limn_op_params(nd->op, p);
  for (int i = 0; i < n && i < nd->nargs; i++) {
    bool operand = p[i].type == 'T' || p[i].type == 'S';
    if (a[i].tag == LIMN_A_NONE) continue;
    if (!operand && (nd->op == OP_expect || !locate_has_ref(I->g, &a[i]) ||
                     (I->g->eager && a[i].tag == LIMN_A_LIST)))
      continue;
    if (a[i].tag == LIMN_A_LIST)
      locate_list(I, p[i].name, &a[i], device);
    else
      locate_operand(I, p[i].name, 0, &a[i], device);
  }
}

int limn_locate(limn_infer *I, limn_ref r, int code, const char *device) {
  const limn_node *nd = limn_graph_node(I->g, r);
  const char *line = limn_graph_text(I->g, nd->line);
  const char *path = limn_graph_text(I->g, nd->path);
  const char *op = limn_op_get(nd->op)->name;
  size_t n = strlen(op); /* "lu_parts" and its like have no name to users */
  bool named = nd->op == OP_input || nd->op == OP_expect ||
               (n > 6 && !strcmp(op + n - 6, "_parts"));
  int module;
  const char *called = limn_path_called(path, &module);
  if (!named) limn_error_prepend(I->c, "%s: ", op);
  if (!limn_error_says(I->c->error, called))
    limn_error_prepend(I->c, "%s: ", called);
  if (*line) limn_error_prepend(I->c, "%s: ", line);
  locate_args(I, nd, device);
  if (module) limn_error_append(I->c, "\n  in %.*s", module, path);
  if (*limn_hint_text(I->c)) {
    limn_error_append(I->c, "\n  hint: %s", limn_hint_text(I->c));
    limn_hint(I->c, code, "%s", ""); /* shown once */
  }
  return code;
}
