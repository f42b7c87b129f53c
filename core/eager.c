/* Eager ops: each is a one-node graph, run through the same planner, so that
 * there is one way to execute.
 *
 * The graph of an op depends on the op, the ranks of its tensors and the kinds
 * of its numbers only: sizes, positions and scalars are number inputs of it,
 * so that a thousand of them make a thousand plans at most, never a graph or a
 * kernel. Views make no plan at all. The same cache keeps the backward graphs
 * of tapes (tape.c), by their structure. */
#include <stdio.h>

#include "planner.h"

#define EAGER_ENTRIES 1024
#define EAGER_INPUTS 64

typedef struct eager_entry {
  struct eager_entry *prev, *next; /* most recent first */
  limn_graph *g;
  void *key;
  size_t nkey;
} eager_entry;

typedef struct limn_eager {
  limn_map map;
  eager_entry *first, *last;
  uint32_t n;
} limn_eager;

/* -- The cache of graphs -- */

static void eager_unlink(limn_eager *E, eager_entry *e) {
  if (e->prev) e->prev->next = e->next;
  else E->first = e->next;
  if (e->next) e->next->prev = e->prev;
  else E->last = e->prev;
  e->prev = e->next = NULL;
}

static void eager_push(limn_eager *E, eager_entry *e) {
  e->next = E->first;
  if (E->first) E->first->prev = e;
  E->first = e;
  if (!E->last) E->last = e;
}

static void eager_drop(limn_context *c, eager_entry *e) {
  limn_eager *E = c->eager;
  eager_unlink(E, e);
  limn_map_remove(c, &E->map, e->key, e->nkey);
  E->n--;
  limn_graph_release(e->g);
  limn_free(c, e->key, e->nkey);
  limn_free(c, e, sizeof *e);
}

void limn_eager_free(limn_context *c) {
  limn_eager *E = c->eager;
  if (!E) return;
  while (E->first) eager_drop(c, E->first);
  limn_map_free(c, &E->map);
  c->eager = NULL;
  limn_free(c, E, sizeof *E);
}

/* The graph for a key, made most recent, or NULL. */
limn_graph *limn_eager_find(limn_context *c, const void *key, size_t n) {
  limn_eager *E = c->eager;
  eager_entry *e = E ? limn_map_get(&E->map, key, n) : NULL;
  if (!e) return NULL;
  if (E->first != e) {
    eager_unlink(E, e);
    eager_push(E, e);
  }
  return e->g;
}

/* Keep g (its reference passes to the cache). */
int limn_eager_keep(limn_context *c, const void *key, size_t n, limn_graph *g) {
  limn_eager *E = c->eager;
  eager_entry *e;
  int rc;
  if (!E) E = c->eager = limn_alloc(c, sizeof *E);
  e = E ? limn_alloc(c, sizeof *e) : NULL;
  if (!e) return LIMN_EMEM;
  e->key = limn_alloc(c, n);
  e->nkey = n;
  e->g = g;
  rc = e->key ? 0 : LIMN_EMEM;
  if (rc == 0) {
    memcpy(e->key, key, n);
    rc = limn_map_put(c, &E->map, key, n, e);
  }
  if (rc < 0) {
    limn_free(c, e->key, n);
    limn_free(c, e, sizeof *e);
    return rc;
  }
  eager_push(E, e);
  if (++E->n > EAGER_ENTRIES) eager_drop(c, E->last);
  return 0;
}

/* -- One op as a graph -- */

typedef struct {
  limn_context *c;
  int op, n;
  limn_param p[LIMN_MAXARGS];
  limn_value a[LIMN_MAXARGS];
  limn_run_arg in[EAGER_INPUTS];
  int nin;
  uint8_t key[1024];
  size_t nkey;
  limn_device *cells; /* where cells are read, or NULL */
} eager_call;

static void eager_key(eager_call *e, const void *p, size_t n) {
  if (e->nkey + n <= sizeof e->key) memcpy(e->key + e->nkey, p, n);
  e->nkey += n;
}

/* Whether a number of this parameter is an input of the graph, so that its
 * value is in no key: operands, sizes, positions, fill values; not what
 * decides how an op is expanded. */
static bool eager_is_input(const eager_call *e, const limn_param *p) {
  if (p->type == 'T' || p->type == 'L') return true;
  if (p->type == 'i')
    return strcmp(p->name, "base") && strcmp(p->name, "draw") &&
           strcmp(p->name, "groups") && e->op != OP_pool &&
           e->op != OP_max_pool2 && e->op != OP_max_pool2_back;
  return p->type == 'r' && e->op == OP_pad;
}

static int eager_add_input(eager_call *e, limn_run_arg in) {
  if (e->nin == EAGER_INPUTS)
    return limn_fail(e->c, LIMN_EARG, "more than %d operands", EAGER_INPUTS);
  e->in[e->nin++] = in;
  return 0;
}

/* Append one argument to the key, and to the inputs if it is one. */
static int eager_scan(eager_call *e, const limn_param *p,
                      const limn_value *v) {
  limn_run_arg in = {NULL, 0};
  uint8_t tag[4] = {v->tag, 0, 0, 0};
  bool number = v->tag == LIMN_A_INT || v->tag == LIMN_A_REAL;
  if (v->tag == LIMN_X_TENSOR) {
    tag[1] = (uint8_t)v->t->v.ndim;
    in.t = v->t;
    LIMN_TRY(eager_add_input(e, in));
  } else if (v->tag == LIMN_A_LIST) {
    tag[1] = (uint8_t)(v->n & 255), tag[2] = (uint8_t)(v->n >> 8);
    eager_key(e, tag, sizeof tag);
    for (int i = 0; i < v->n; i++) LIMN_TRY(eager_scan(e, p, &v->list[i]));
    return 0;
  } else if (number && eager_is_input(e, p)) {
    in.number = v->tag == LIMN_A_INT ? (double)v->i : v->f;
    LIMN_TRY(eager_add_input(e, in));
  } else if (v->tag == LIMN_A_STR) {
    eager_key(e, tag, sizeof tag);
    eager_key(e, v->s, strlen(v->s) + 1);
    return 0;
  } else if (v->tag == LIMN_A_REAL) {
    eager_key(e, &v->f, sizeof v->f);
  } else if (v->tag != LIMN_A_NONE) {
    eager_key(e, &v->i, sizeof v->i);
  }
  eager_key(e, tag, sizeof tag);
  return 0;
}

static int eager_build_arg(eager_call *e, limn_graph *g, const limn_param *p,
                           const limn_value *v, int *at, limn_arg *out) {
  char name[32];
  limn_ref r;
  bool number = v->tag == LIMN_A_INT || v->tag == LIMN_A_REAL;
  *out = limn_none();
  if (v->tag == LIMN_X_TENSOR || (number && eager_is_input(e, p))) {
    if (v->tag == LIMN_X_TENSOR && !p->list)
      snprintf(name, sizeof name, "%s", p->name);
    else
      snprintf(name, sizeof name, "%s%d", p->name, *at + 1);
    LIMN_TRY(limn_graph_add_input(g, name,
                                  number ? -1 : v->t->v.ndim, &r));
    if (v->tag == LIMN_A_INT) limn_graph_node(g, r)->kind = LIMN_V_INT;
    (*at)++;
    *out = limn_aref(r);
    return 0;
  }
  switch (v->tag) {
    case LIMN_A_INT: case LIMN_A_BOOL: case LIMN_A_DTYPE:
      out->tag = v->tag, out->u.i = v->i;
      return 0;
    case LIMN_A_REAL: *out = limn_areal(v->f); return 0;
    case LIMN_A_STR: return limn_graph_str_arg(g, v->s, out);
    default: return 0;
  }
}

static int eager_build_list(eager_call *e, limn_graph *g, const limn_param *p,
                            const limn_value *v, int *at, limn_arg *out) {
  limn_arg l[EAGER_INPUTS];
  if (v->tag != LIMN_A_LIST) return eager_build_arg(e, g, p, v, at, out);
  if (v->n > EAGER_INPUTS)
    return limn_fail(e->c, LIMN_EARG, "a list of more than %d", EAGER_INPUTS);
  for (int i = 0; i < v->n; i++)
    LIMN_TRY(eager_build_arg(e, g, p, &v->list[i], at, &l[i]));
  *out = limn_none();
  out->tag = LIMN_A_LIST;
  out->n = (uint32_t)v->n;
  return limn_graph_push_args(g, l, (uint32_t)v->n, &out->u.at);
}

static int eager_build(eager_call *e, limn_graph **out) {
  limn_graph *g;
  limn_arg a[LIMN_MAXARGS];
  limn_ref r;
  int at = 0, rc = 0;
  LIMN_TRY(limn_graph_new(e->c, limn_op_get(e->op)->name, &g));
  g->eager = true;
  for (int i = 0; i < e->n; i++)
    LIMN_GO(eager_build_list(e, g, &e->p[i], &e->a[i], &at, &a[i]));
  if (limn_op_random(e->op)) a[e->n - 1] = limn_aint(0);
  r = limn_graph_add(g, e->op, a, e->n, 0, 0);
  if (!r) LIMN_GO(LIMN_EMEM);
  g->draws = limn_op_random(e->op);
  LIMN_GO(limn_graph_add_out(g, limn_aref(r)));
  *out = g;
  return 0;
bail:
  limn_graph_release(g);
  return rc;
}

static void eager_seek(const limn_value *v, limn_device **tensor,
                       limn_device **cell) {
  const limn_cell *k = v->tag == LIMN_X_CELL ? v->cell : NULL;
  if (v->tag == LIMN_X_TENSOR && !*tensor &&
      (v->t->v.ndim || !v->t->st->dev->ops->host))
    *tensor = v->t->st->dev;
  for (int i = 0; k && !*cell && k->shape.ndim && i < k->nrep; i++)
    if (k->rep[i].value && k->rep[i].version == k->version)
      *cell = k->rep[i].value->st->dev;
}

/* Where cells are to be read: they follow the tensors of the call, what it
 * asks for, and else the first of them. NULL: each where it is newest. */
static limn_device *eager_device(const limn_value *a, int n,
                                 limn_device *dev) {
  limn_device *tensor = NULL, *cell = NULL;
  for (int i = 0; i < n; i++) {
    eager_seek(&a[i], &tensor, &cell);
    for (int k = 0; a[i].tag == LIMN_A_LIST && k < a[i].n; k++)
      eager_seek(&a[i].list[k], &tensor, &cell);
  }
  return tensor ? tensor : dev ? dev : cell;
}

/* Defaults, cells by their value, numbers' own dims normalised. */
static int eager_args(eager_call *e, const limn_value *a, int n,
                      limn_device *dev) {
  e->n = limn_op_params(e->op, e->p);
  e->cells = eager_device(a, n, dev);
  for (int i = 0; i < e->n; i++) {
    limn_value *v = &e->a[i];
    memset(v, 0, sizeof *v);
    if (i < n) *v = a[i];
    if (v->tag == LIMN_X_CELL) {
      LIMN_TRY(limn_cell_get(v->cell, e->cells, &v->t));
      v->tag = LIMN_X_TENSOR;
    }
    if (v->tag != LIMN_A_NONE || !e->p[i].has_default) continue;
    v->tag = e->p[i].def.tag;
    v->i = e->p[i].def.u.i;
    if (v->tag == LIMN_A_REAL) v->f = e->p[i].def.u.f;
    if (e->p[i].type == 'e' || e->p[i].type == 's')
      v->tag = LIMN_A_STR, v->s = e->p[i].def_text;
  }
  return 0;
}

static void eager_type(const limn_value *v, limn_type *t, limn_type *pool,
                       int *used) {
  memset(t, 0, sizeof *t);
  t->known = true;
  switch (v->tag) {
    case LIMN_X_TENSOR: *t = limn_type_of(v->t); break;
    case LIMN_A_INT: t->kind = LIMN_V_INT, t->i = v->i; break;
    case LIMN_A_REAL: t->kind = LIMN_V_REAL, t->f = v->f; break;
    case LIMN_A_BOOL: t->kind = LIMN_V_BOOL, t->i = v->i; break;
    case LIMN_A_DTYPE:
      t->kind = LIMN_V_DTYPE, t->i = v->i, t->dtype = (uint8_t)v->i;
      break;
    case LIMN_A_STR: t->kind = LIMN_V_STR, t->s = v->s; break;
    case LIMN_A_LIST:
      t->kind = LIMN_V_LIST, t->n = v->n, t->list = pool + *used;
      for (int i = 0; i < v->n; i++)
        eager_type(&v->list[i], &pool[(*used)++], NULL, NULL);
      break;
    default: t->known = false;
  }
}

/* Dress the failure of an eager op: its name, its operands, the hint. */
static int eager_locate(eager_call *e, int rc) {
  limn_context *c = e->c;
  char text[160];
  limn_error_prepend(c, "%s: ", limn_op_get(e->op)->name);
  for (int i = 0; i < e->n; i++)
    if (e->a[i].tag == LIMN_X_TENSOR)
      limn_error_append(c, "\n  %s: %s", e->p[i].name,
                        limn_tensor_text(text, sizeof text, e->a[i].t));
  return rc;
}

/* Views are descriptors: no graph, no plan. */
static int eager_view(eager_call *e, limn_value *out) {
  const limn_op_row *row = limn_op_get(e->op);
  limn_type a[LIMN_MAXARGS], pool[64];
  limn_tensor *x = e->a[0].t, *dense = NULL;
  limn_view v;
  int used = 0, rc;
  for (int i = 0; i < e->n; i++) {
    if (e->a[i].tag == LIMN_A_LIST && used + e->a[i].n > LIMN_COUNT(pool))
      return limn_fail(e->c, LIMN_EARG, "too many dims");
    eager_type(&e->a[i], &a[i], pool, &used);
  }
  if (e->a[0].tag != LIMN_X_TENSOR)
    return limn_fail(e->c, LIMN_EARG, "x must be a tensor");
  LIMN_TRY(rc = row->view(e->c, a, &x->v, &v));
  if (rc > 0) {
    LIMN_TRY(limn_tensor_contiguous(x, &dense));
    x = dense;
    rc = row->view(e->c, a, &x->v, &v);
  }
  if (rc >= 0) rc = limn_tensor_view(x, &v, &out->t);
  limn_tensor_release(dense);
  out->tag = LIMN_X_TENSOR;
  return rc;
}

static int eager_host(eager_call *e, limn_value *out) {
  limn_type a[LIMN_MAXARGS], r, pool[64];
  int used = 0;
  for (int i = 0; i < e->n; i++) eager_type(&e->a[i], &a[i], pool, &used);
  LIMN_TRY(limn_infer_op(e->c, e->op, a, e->n, &r));
  memset(out, 0, sizeof *out);
  out->i = r.i;
  out->f = r.f;
  out->tag = r.kind == LIMN_V_INT ? LIMN_A_INT
             : r.kind == LIMN_V_REAL ? LIMN_A_REAL
             : r.kind == LIMN_V_DTYPE ? LIMN_A_DTYPE : LIMN_A_BOOL;
  return 0;
}

static int eager_check_device(eager_call *e, limn_device *dev) {
  char text[160];
  limn_device *found = dev;
  for (int i = 0; i < e->nin; i++) {
    limn_tensor *t = e->in[i].t;
    if (!t || (t->v.ndim == 0 && t->st->dev->ops->host)) continue;
    if (!found) found = t->st->dev;
    if (found == t->st->dev) continue;
    limn_fail(e->c, LIMN_EDEVICE, "%s: the operands are on different devices",
              limn_op_get(e->op)->name);
    for (int k = 0, at = 0; k < e->n; k++) {
      const limn_value *v = &e->a[k];
      if (v->tag == LIMN_X_TENSOR)
        limn_error_append(e->c, "\n  %s: %s", e->p[k].name,
                          limn_tensor_text(text, sizeof text, v->t));
      for (int j = 0; v->tag == LIMN_A_LIST && j < v->n && at < 8; j++, at++)
        if (v->list[j].tag == LIMN_X_TENSOR)
          limn_error_append(e->c, "\n  %s[%d]: %s", e->p[k].name, j + 1,
                            limn_tensor_text(text, sizeof text, v->list[j].t));
    }
    return limn_hint(e->c, LIMN_EDEVICE, "move one with :to(\"%s\")",
                     found->name);
  }
  return 0;
}

/* An accelerator tells of a bad index later, so the op's own line goes along;
 * the plan is shared by all lines that call the op. */
static uint32_t eager_site(const eager_call *e) {
  limn_context *c = e->c;
  char line[256] = "", path[256] = "";
  bool there = false, label = false, indexes = false;
  for (int i = 0; i < e->n; i++) {
    indexes |= !strcmp(e->p[i].name, "index");
    label |= e->a[i].tag == LIMN_A_STR && !strcmp(e->a[i].s, "label");
  }
  if (!indexes || !c->where) return 0;
  for (int i = 0; i < e->nin; i++)
    there |= e->in[i].t && !e->in[i].t->st->dev->ops->host;
  if (!there) return 0;
  c->where(c->where_user, line, sizeof line, path, sizeof path);
  return limn_error_site(c, e->op, line, "", label);
}

/* A whole number is an input of its graph, whose plan does not look at it: too
 * large a one beside ints is found here. Small ones fit every dtype. */
static int eager_check_numbers(eager_call *e) {
  limn_type a[LIMN_MAXARGS], r;
  bool large = false;
  if (limn_op_get(e->op)->row != LIMN_ROW_E && e->op != OP_masked_fill)
    return 0;
  for (int i = 0; i < e->n; i++)
    large |= e->a[i].tag == LIMN_A_INT && (e->a[i].i < 0 || e->a[i].i > 127);
  if (!large) return 0;
  for (int i = 0; i < e->n; i++) eager_type(&e->a[i], &a[i], NULL, NULL);
  if (limn_infer_op(e->c, e->op, a, e->n, &r) >= 0) return 0;
  return e->c->last == LIMN_EDTYPE ? eager_locate(e, LIMN_EDTYPE) : 0;
}

static int eager_run(eager_call *e, limn_device *dev, limn_value *out) {
  limn_context *c = e->c;
  limn_graph *g;
  limn_result result[1];
  int rc;
  eager_key(e, &e->op, sizeof e->op);
  for (int i = 0; i < e->n; i++) LIMN_TRY(eager_scan(e, &e->p[i], &e->a[i]));
  LIMN_TRY(eager_check_device(e, dev));
  LIMN_TRY(eager_check_numbers(e));
  if (e->nkey > sizeof e->key)
    return limn_fail(c, LIMN_EARG, "too many arguments");
  g = limn_eager_find(c, e->key, e->nkey);
  if (!g) {
    LIMN_TRY(eager_build(e, &g));
    rc = limn_eager_keep(c, e->key, e->nkey, g);
    if (rc < 0) {
      limn_graph_release(g);
      return rc;
    }
  }
  limn_graph_retain(g); /* a callback may empty the cache */
  c->eager_site = eager_site(e);
  rc = limn_graph_run(g, dev, e->in, NULL, result);
  c->eager_site = 0;
  limn_graph_release(g);
  if (rc < 0) return rc;
  out->tag = LIMN_X_TENSOR;
  out->t = result[0].t;
  return 0;
}

/* Lists of cells: their values. */
static int eager_lists(eager_call *e, limn_value *copy, int cap) {
  int used = 0;
  for (int i = 0; i < e->n; i++) {
    limn_value *v = &e->a[i];
    if (v->tag != LIMN_A_LIST) continue;
    if (used + v->n > cap)
      return limn_fail(e->c, LIMN_EARG, "a list of more than %d", cap);
    for (int k = 0; k < v->n; k++) {
      copy[used + k] = v->list[k];
      if (v->list[k].tag != LIMN_X_CELL) continue;
      LIMN_TRY(limn_cell_get(v->list[k].cell, e->cells, &copy[used + k].t));
      copy[used + k].tag = LIMN_X_TENSOR;
    }
    v->list = copy + used;
    used += v->n;
  }
  return 0;
}

static bool eager_has_tensor(const eager_call *e) {
  for (int i = 0; i < e->n; i++) {
    if (e->a[i].tag == LIMN_X_TENSOR) return true;
    if (e->p[i].list) return true;
  }
  return false;
}

/* cat and stack of more tensors than a graph has inputs: in parts, which are
 * then joined. */
static int eager_many(limn_context *c, int op, const limn_value *a, int n,
                      limn_device *dev, limn_value *out) {
  int all = a[0].n, np = (all + EAGER_INPUTS - 1) / EAGER_INPUTS, k = 0;
  size_t size = (size_t)np * sizeof(limn_value);
  limn_value *part = limn_alloc(c, size), args[2] = {a[0], {0}};
  int rc = part ? 0 : LIMN_EMEM;
  if (n > 1) args[1] = a[1];
  for (; rc == 0 && k < np; k++) {
    args[0].list = a[0].list + k * EAGER_INPUTS;
    args[0].n = LIMN_MIN(EAGER_INPUTS, all - k * EAGER_INPUTS);
    rc = limn_eager_apply(c, op, args, 2, dev, &part[k]);
    if (rc < 0) break;
  }
  if (rc == 0) {
    args[0].list = part;
    args[0].n = np;
    rc = limn_eager_apply(c, OP_cat, args, 2, dev, out);
  }
  for (int i = 0; part && i < k; i++) limn_tensor_release(part[i].t);
  limn_free(c, part, size);
  return rc;
}

int limn_eager_apply(limn_context *c, int op, const limn_value *a, int n,
                     limn_device *dev, limn_value *out) {
  eager_call e;
  limn_value copy[EAGER_INPUTS];
  const limn_op_row *row = limn_op_get(op);
  int rc;
  e.c = c;
  e.op = op;
  e.nin = 0;
  e.nkey = 0;
  memset(out, 0, sizeof *out);
  if ((op == OP_cat || op == OP_stack) && n > 0 && a[0].n > EAGER_INPUTS)
    return eager_many(c, op, a, n, dev, out);
  LIMN_TRY(eager_args(&e, a, n, dev));
  LIMN_TRY(eager_lists(&e, copy, EAGER_INPUTS));
  if (row->row == LIMN_ROW_V) {
    rc = eager_view(&e, out);
    return rc < 0 ? eager_locate(&e, rc) : rc;
  }
  if (op == OP_detach && e.a[0].tag == LIMN_X_TENSOR) {
    out->tag = LIMN_X_TENSOR; /* a value of its own: tapes tell them apart */
    return limn_tensor_view(e.a[0].t, &e.a[0].t->v, &out->t);
  }
  if ((row->row == LIMN_ROW_E && !eager_has_tensor(&e)) ||
      row->row == LIMN_ROW_H) {
    rc = eager_host(&e, out);
    return rc < 0 ? eager_locate(&e, rc) : rc;
  }
  return eager_run(&e, dev, out);
}

/* -- Every op -- */

static int traced_apply(limn_trace *t, int op, const limn_value *a, int n,
                        limn_value *out) {
  limn_param p[LIMN_MAXARGS];
  limn_arg args[LIMN_MAXARGS] = {{0}};
  int np = limn_op_params(op, p);
  memset(out, 0, sizeof *out);
  for (int i = 0; i < np && i < n; i++)
    LIMN_TRY(limn_trace_arg(t, &a[i], &args[i]));
  LIMN_TRY(limn_trace_op(t, op, args, np, &out->ref));
  out->tag = LIMN_X_TRACED;
  out->trace = t;
  if (op == OP_print) return limn_graph_add_effect(t->g, out->ref);
  return 0;
}

int limn_apply(limn_context *c, int op, const limn_value *a, int n,
               limn_device *dev, limn_value *out) {
  limn_trace *t = c->trace;
  if (!t) return limn_eager_apply(c, op, a, n, dev, out);
  if (t->tape) return limn_tape_apply(t, op, a, n, dev, out);
  return traced_apply(t, op, a, n, out);
}
