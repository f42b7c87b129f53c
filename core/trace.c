/* The tracer: records ops of running code as nodes, with hints from examples.
 *
 * Hints (the examples' shapes, dtypes and numbers) live here and never reach
 * the graph, so that no pass can fold them. A tape is a trace whose values
 * exist: eager code under a gradient. A region is the body of a region op:
 * what it uses from outside becomes an extra input of it (region.c). */
#include <stdio.h>

#include "trace.h"

#define TRACE_NESTED 32 /* regions in regions */

/* -- Life -- */

int limn_trace_begin(limn_context *c, const char *name, bool tape, bool region,
                     limn_trace **out) {
  limn_trace *t;
  int rc, depth = 0;
  *out = NULL;
  for (t = c->trace; region && t && t->region; t = t->outer) depth++;
  if (depth >= TRACE_NESTED)
    return limn_hint(c, limn_fail(c, LIMN_ETRACE, "control flow is nested more "
                                  "than %d deep", TRACE_NESTED),
                     "a function that calls itself under a condition on values "
                     "never ends here; use a loop");
  t = limn_alloc(c, sizeof *t);
  if (!t) return LIMN_EMEM;
  t->refs = 2; /* the caller's and the context's */
  t->c = c;
  t->tape = tape;
  t->region = region;
  t->id = ++c->serial;
  limn_context_retain(c);
  t->what = limn_strdup(c, name && *name ? name : "function");
  rc = t->what ? limn_graph_new(c, name, &t->g) : LIMN_EMEM;
  if (rc < 0) {
    t->refs = 1;
    limn_trace_release(t);
    return rc;
  }
  t->hints.c = c;
  t->hints.g = t->g;
  t->hints.on_gpu = -1;
  t->outer = c->trace;
  c->trace = t;
  *out = t;
  return 0;
}

void limn_trace_retain(limn_trace *t) { t->refs++; }

/* What only a running trace needs. */
void limn_trace_drop(limn_trace *t) {
  limn_context *c = t->c;
  limn_infer_free(&t->hints);
  for (uint32_t i = 0; i < t->nvalue; i++) limn_tensor_release(t->value[i]);
  limn_free(c, t->value, t->value_cap * sizeof *t->value);
  limn_free(c, t->in, t->in_cap * sizeof *t->in);
  limn_free(c, t->captured, t->captured_cap * sizeof *t->captured);
  for (uint32_t i = 0; i < t->nwrote; i++) limn_cell_release(t->wrote[i].cell);
  limn_free(c, t->wrote, t->wrote_cap * sizeof *t->wrote);
  limn_map_free(c, &t->tensors);
  t->value = NULL, t->nvalue = t->value_cap = 0;
  t->in = NULL, t->nin = t->in_cap = 0;
  t->captured = NULL, t->ncaptured = t->captured_cap = 0;
  t->wrote = NULL, t->nwrote = t->wrote_cap = 0;
}

void limn_trace_release(limn_trace *t) {
  limn_context *c;
  if (!t || --t->refs > 0) return;
  c = t->c;
  limn_trace_drop(t);
  limn_graph_release(t->g);
  limn_free(c, t->old_line, t->nold * sizeof *t->old_line);
  limn_free(c, t->old_text, t->nold_text);
  if (t->what) limn_free(c, t->what, strlen(t->what) + 1);
  limn_free(c, t, sizeof *t);
  limn_context_release(c);
}

/* Take t, and all that was begun inside it, off the context. */
static void trace_pop(limn_trace *t) {
  limn_context *c = t->c;
  for (;;) {
    limn_trace *top = c->trace;
    if (!top) return;
    c->trace = top->outer;
    top->ended = true;
    top->outer = NULL;
    bool last = top == t;
    limn_trace_release(top);
    if (last) return;
  }
}

void limn_trace_abort(limn_trace *t) {
  if (t->ended) return;
  if (t->left) {
    limn_trace_close(t);
    return;
  }
  trace_pop(t);
  limn_trace_drop(t);
}

/* A region that was left: what it kept of the outer trace. */
void limn_trace_close(limn_trace *t) {
  limn_trace *outer = t->outer;
  t->ended = true;
  t->outer = NULL;
  limn_trace_drop(t);
  limn_trace_release(outer);
  limn_trace_release(t);
}

void limn_trace_leave(limn_trace *t) {
  t->c->trace = t->outer;
  t->left = true;
  limn_trace_retain(t->outer);
}

/* -- Inputs -- */

static int trace_push_hint(limn_trace *t, const limn_type *hint) {
  LIMN_TRY(limn_grow(t->c, &t->in, &t->in_cap, t->nin + 1, sizeof *t->in));
  t->in[t->nin++] = *hint;
  t->hints.in = t->in; /* growing may have moved it */
  return 0;
}

int limn_trace_input(limn_trace *t, const char *name, const limn_type *hint,
                     limn_ref *out) {
  LIMN_TRY(trace_push_hint(t, hint));
  return limn_graph_add_input(t->g, name, hint->shape.ndim, out);
}

int limn_trace_host(limn_trace *t, const char *name, const limn_type *hint,
                    limn_ref *out) {
  LIMN_TRY(trace_push_hint(t, hint));
  LIMN_TRY(limn_graph_add_input(t->g, name, -1, out));
  limn_graph_node(t->g, *out)->kind = hint->kind;
  return 0;
}

int limn_trace_number(limn_trace *t, const char *name, double hint,
                      limn_ref *out) {
  limn_type ty = {0};
  ty.kind = LIMN_V_REAL;
  ty.known = true;
  ty.f = hint;
  return limn_trace_host(t, name, &ty, out);
}

const limn_type *limn_trace_hint(limn_trace *t, limn_ref r) {
  if (limn_infer_upto(&t->hints, r) < 0) return NULL;
  return &t->hints.t[r - 1];
}

/* -- Recording ops -- */

/* The user's line and module path, as text of the graph. */
static void trace_where(limn_trace *t, uint32_t *line, uint32_t *path) {
  char l[256] = "", p[256] = "";
  if (t->c->where)
    t->c->where(t->c->where_user, l, sizeof l, p, sizeof p);
  *line = limn_graph_str(t->g, l);
  *path = limn_graph_str(t->g, p);
}

/* A dim counted from the end becomes 1..rank. Dims that put in a new one
 * (unsqueeze, stack) count in the result's rank. */
static void trace_norm_dim(limn_arg *a, int rank) {
  if (a->tag == LIMN_A_INT && a->u.i < 0 && a->u.i >= -rank)
    a->u.i += rank + 1;
}

static int trace_rank(limn_trace *t, int op, const limn_arg *a) {
  limn_builder b = {t->c, t->g, 0, 0, 0};
  limn_arg x = a[0];
  int grows = op == OP_unsqueeze || op == OP_stack;
  if (x.tag == LIMN_A_LIST)
    x = x.n ? t->g->args[x.u.at] : limn_none();
  return limn_arg_rank(&b, x) + grows;
}

/* Dims of every sign become 1..rank; an absent list of dims becomes all. */
static int trace_norm_dims(limn_trace *t, const limn_param *p, int np, int op,
                           limn_arg *a) {
  int rank = trace_rank(t, op, a);
  limn_arg all[LIMN_MAXDIM];
  for (int i = 0; i < np; i++) {
    if (p[i].type == 'd') trace_norm_dim(&a[i], rank);
    if (p[i].type != 'D') continue;
    if (a[i].tag == LIMN_A_LIST)
      for (uint32_t k = 0; k < a[i].n; k++)
        trace_norm_dim(&t->g->args[a[i].u.at + k], rank);
    if (a[i].tag == LIMN_A_NONE && p[i].may) {
      for (int k = 0; k < rank; k++) all[k] = limn_aint(k + 1);
      a[i].tag = LIMN_A_LIST;
      a[i].n = (uint32_t)rank;
      LIMN_TRY(limn_graph_push_args(t->g, all, (uint32_t)rank, &a[i].u.at));
    }
  }
  return 0;
}

int limn_trace_op(limn_trace *t, int op, const limn_arg *args, int n,
                  limn_ref *out) {
  limn_param p[LIMN_MAXARGS];
  limn_arg a[LIMN_MAXARGS] = {{0}};
  uint32_t line, path, nargs = t->g->nargs;
  int np = limn_op_params(op, p), rc;
  *out = 0;
  for (int i = 0; i < np && i < n; i++) a[i] = args[i];
  for (int i = 0; i < np; i++)
    if (a[i].tag == LIMN_A_NONE && p[i].has_default) {
      a[i] = p[i].def;
      if (p[i].type == 'e' || p[i].type == 's')
        LIMN_TRY(limn_graph_str_arg(t->g, p[i].def_text, &a[i]));
    }
  LIMN_TRY(trace_norm_dims(t, p, np, op, a));
  if (limn_op_random(op)) a[np - 1] = limn_aint(t->g->draws);
  trace_where(t, &line, &path);
  *out = limn_graph_add(t->g, op, a, np, line, path);
  if (!*out) return LIMN_EMEM;
  rc = limn_infer_upto(&t->hints, *out);
  if (rc < 0) { /* as if it had not been called */
    t->g->nnode--;
    t->g->nargs = nargs;
    *out = 0;
    return rc;
  }
  t->g->draws += limn_op_random(op);
  limn_graph_node(t->g, *out)->flags |= LIMN_N_USER;
  return 0;
}

int limn_trace_value(limn_trace *t, limn_ref r, limn_tensor *value) {
  LIMN_TRY(limn_grow(t->c, &t->value, &t->value_cap, r, sizeof *t->value));
  while (t->nvalue < r) t->value[t->nvalue++] = NULL;
  if (t->value[r - 1]) return 0;
  t->value[r - 1] = value;
  limn_tensor_retain(value);
  return limn_map_put(t->c, &t->tensors, &value, sizeof value,
                      (void *)(uintptr_t)r);
}

int limn_trace_apart(limn_trace *t, limn_tensor **value) {
  limn_tensor *own;
  if (!limn_map_get(&t->tensors, value, sizeof *value)) return 0;
  LIMN_TRY(limn_tensor_view(*value, &(*value)->v, &own));
  limn_tensor_release(*value);
  *value = own;
  return 0;
}

/* -- Values as arguments -- */

/* A tensor from outside: a named constant of the graph. */
static int trace_const(limn_trace *t, const limn_value *v, limn_arg *out) {
  char name[32];
  uint32_t index, before = t->g->nconst, line, path;
  limn_arg at;
  limn_graph_const *k;
  if (t->strict && !t->tape)
    return limn_hint(
        t->c, limn_fail(t->c, LIMN_ETRACE,
                        "%s%s%s comes from outside the function, which "
                        "strict does not allow", v->name ? "the tensor '" : "",
                        v->name ? v->name : "a tensor", v->name ? "'" : ""),
        "pass it as an argument, or make it an nn.Parameter or nn.Buffer");
  snprintf(name, sizeof name, "c%u", before + 1);
  LIMN_TRY(limn_graph_add_const(t->g, v->t, v->name ? v->name : name, &index));
  k = &t->g->konst[index];
  if (!k->ref) {
    trace_where(t, &line, &path);
    k->line = line;
    at = limn_aint(index);
    k->ref = limn_graph_add(t->g, OP_const, &at, 1, line, path);
    if (!k->ref) return LIMN_EMEM;
    limn_graph_node(t->g, k->ref)->rank = (int8_t)v->t->v.ndim;
  }
  if (v->watch && !k->watch && !t->tape) {
    k->watch = v->watch;
    v->watch->refs++;
  }
  *out = limn_aref(k->ref);
  return t->tape ? limn_trace_value(t, k->ref, v->t) : 0;
}

int limn_trace_cell_read(limn_trace *t, limn_cell *cell, limn_arg *out) {
  uint32_t index;
  limn_arg at;
  limn_graph_cell *gc;
  if (t->region) return limn_region_read(t, cell, out);
  LIMN_TRY(limn_graph_add_cell(t->g, cell, cell->name, &index));
  gc = &t->g->cell[index];
  *out = gc->write;
  if (gc->write.tag != LIMN_A_NONE) return 0;
  if (!gc->ref) {
    at = limn_aint(index);
    gc->ref = limn_graph_add(t->g, OP_cell, &at, 1, 0, 0);
    if (!gc->ref) return LIMN_EMEM;
    limn_graph_node(t->g, gc->ref)->rank = (int8_t)cell->shape.ndim;
  }
  *out = limn_aref(gc->ref);
  if (t->tape) {
    limn_tensor *value;
    LIMN_TRY(limn_cell_get(cell, NULL, &value));
    LIMN_TRY(limn_trace_value(t, gc->ref, value));
  }
  return 0;
}

int limn_trace_cell_write(limn_trace *t, limn_cell *cell, limn_arg v) {
  uint32_t index, line, path;
  const limn_type *hint;
  limn_arg a[2];
  limn_ref r;
  char s1[128], s2[128];
  if (v.tag == LIMN_A_REF &&
      limn_graph_node(t->g, v.u.ref)->kind == LIMN_V_TENSOR) {
    hint = limn_trace_hint(t, v.u.ref);
    if (!hint) return t->c->last;
    if (!limn_shape_eq(&hint->shape, &cell->shape))
      return limn_fail(
          t->c, LIMN_ESHAPE, "%s has shape %s and cannot become %s",
          cell->name ? cell->name : "the cell",
          limn_shape_text(s1, sizeof s1, cell->shape.ndim, cell->shape.d),
          limn_shape_text(s2, sizeof s2, hint->shape.ndim, hint->shape.d));
    if (hint->dtype != cell->dtype) {
      a[0] = v, a[1] = limn_adtype(cell->dtype);
      LIMN_TRY(limn_trace_op(t, OP_convert, a, 2, &r));
      v = limn_aref(r);
    }
  } else {
    return limn_fail(t->c, LIMN_EARG, "a cell takes a tensor");
  }
  if (t->region) return limn_region_write(t, cell, v);
  LIMN_TRY(limn_graph_add_cell(t->g, cell, cell->name, &index));
  trace_where(t, &line, &path);
  t->g->cell[index].write = v;
  t->g->cell[index].line = line;
  return 0;
}

int limn_trace_guard(limn_trace *t, limn_arg cond) {
  uint32_t line, path;
  trace_where(t, &line, &path);
  for (uint32_t i = 0; i < t->g->nguard; i++)
    if (t->g->guard[i].cond.tag == LIMN_A_REF && cond.tag == LIMN_A_REF &&
        t->g->guard[i].cond.u.ref == cond.u.ref)
      return 0;
  return limn_graph_add_guard(t->g, cond, line);
}

int limn_trace_mode(limn_trace *t, limn_mode *m, const char *name,
                    limn_ref *out) {
  uint32_t index;
  limn_arg a;
  if (t->region) {
    LIMN_TRY(limn_trace_mode(t->outer, m, name, out));
    LIMN_TRY(limn_region_capture(t, limn_aref(*out), NULL, &a));
    *out = a.u.ref;
    return 0;
  }
  LIMN_TRY(limn_graph_add_mode(t->g, m, name, &index));
  a = limn_aint(index);
  return limn_trace_op(t, OP_mode, &a, 1, out);
}

int limn_trace_stale(limn_context *c, const limn_trace *t, limn_ref r) {
  const char *line = t ? limn_trace_old_line(t, r) : "";
  bool named = t && strcmp(t->what, "function");
  return limn_hint(
      c, limn_fail(c, LIMN_ETRACE,
                   "this value was made%s%s while %s%s was traced, and that is "
                   "over", *line ? " at " : "", line,
                   named ? "" : "a function", named ? t->what : ""),
      "return it from the traced function instead of keeping it");
}

static bool trace_is_outer(const limn_trace *t, const limn_trace *o) {
  for (t = t->outer; t; t = t->outer)
    if (t == o) return true;
  return false;
}

static int trace_list(limn_trace *t, const limn_value *v, limn_arg *out) {
  limn_arg small[16], *a = small;
  int rc = 0, n = v->n;
  if (n > LIMN_COUNT(small)) {
    a = limn_alloc(t->c, (size_t)n * sizeof *a);
    if (!a) return LIMN_EMEM;
  }
  for (int i = 0; i < n; i++) LIMN_GO(limn_trace_arg(t, &v->list[i], &a[i]));
  *out = limn_none();
  out->tag = LIMN_A_LIST;
  out->n = (uint32_t)n;
  rc = limn_graph_push_args(t->g, a, (uint32_t)n, &out->u.at);
bail:
  if (a != small) limn_free(t->c, a, (size_t)n * sizeof *a);
  return rc;
}

int limn_trace_arg(limn_trace *t, const limn_value *v, limn_arg *out) {
  uintptr_t known;
  limn_arg outer;
  *out = limn_none();
  switch (v->tag) {
    case LIMN_A_NONE: return 0;
    case LIMN_A_INT: case LIMN_A_BOOL: case LIMN_A_DTYPE:
      out->tag = v->tag, out->u.i = v->i;
      return 0;
    case LIMN_A_REAL: *out = limn_areal(v->f); return 0;
    case LIMN_A_STR: return limn_graph_str_arg(t->g, v->s, out);
    case LIMN_A_LIST: return trace_list(t, v, out);
    case LIMN_X_TRACED:
      if (v->trace->ended) return limn_trace_stale(t->c, v->trace, v->ref);
      if (v->trace == t) {
        *out = limn_aref(v->ref);
        return 0;
      }
      if (!t->region || !trace_is_outer(t, v->trace))
        return limn_fail(t->c, LIMN_ETRACE,
                         "this value belongs to another trace (of %s)",
                         v->trace->what);
      break;
    case LIMN_X_TENSOR:
      known = (uintptr_t)limn_map_get(&t->tensors, &v->t, sizeof v->t);
      if (known) {
        *out = limn_aref((limn_ref)known);
        return 0;
      }
      if (!t->region) return trace_const(t, v, out);
      break;
    case LIMN_X_CELL: return limn_trace_cell_read(t, v->cell, out);
    default: return limn_fail(t->c, LIMN_EARG, "not a value");
  }
  LIMN_TRY(limn_trace_arg(t->outer, v, &outer));
  return limn_region_capture(t, outer, NULL, out);
}

/* -- The end -- */

static void trace_mark(limn_ref r, void *used) { ((uint8_t *)used)[r - 1] = 1; }

static void trace_mark_uses(const limn_graph *g, uint8_t *used) {
  for (limn_ref r = 1; r <= g->nnode; r++)
    limn_node_refs(g, r, trace_mark, used);
  for (uint32_t i = 0; i < g->nout; i++)
    if (g->out[i].tag == LIMN_A_REF) used[g->out[i].u.ref - 1] = 1;
  for (uint32_t i = 0; i < g->ncell; i++)
    if (g->cell[i].write.tag == LIMN_A_REF)
      used[g->cell[i].write.u.ref - 1] = 1;
}

static bool trace_is_test(const limn_node *n) {
  const limn_op_row *row = limn_op_get(n->op);
  if (!(n->flags & LIMN_N_USER) || n->kind != LIMN_V_TENSOR) return false;
  return (row->row == LIMN_ROW_E || row->row == LIMN_ROW_R) &&
         (row->rule == LIMN_RULE_CMP || row->rule == LIMN_RULE_TST ||
          row->rule == LIMN_RULE_LOG);
}

/* A comparison that nothing uses was an `if`: its branch would be frozen. */
static int trace_check_tests(limn_trace *t) {
  limn_graph *g = t->g;
  size_t n = g->nnode + 1;
  uint8_t *used = limn_alloc(t->c, n);
  int rc = 0;
  if (!used) return LIMN_EMEM;
  trace_mark_uses(g, used);
  for (limn_ref r = 1; r <= g->nnode && rc == 0; r++) {
    const limn_node *nd = limn_graph_node(g, r);
    if (used[r - 1] || !trace_is_test(nd)) continue;
    rc = limn_hint(
        t->c,
        limn_fail(t->c, LIMN_ETRACE,
                  "%s%s%s: nothing uses the result of this comparison; an "
                  "`if` or `assert` on it would go the same way in every run",
                  limn_graph_text(g, nd->line), nd->line ? ": " : "",
                  limn_op_get(nd->op)->name),
        "limn.script(f) records both branches; limn.where(c, a, b) chooses "
        "between two values");
  }
  limn_free(t->c, used, n);
  return rc;
}

/* Keep the nodes' lines: compacting drops nodes that somebody may still hold.
 * Without memory for it a later message just lacks the line. */
static void trace_keep_lines(limn_trace *t) {
  const limn_graph *g = t->g;
  t->old_line = limn_alloc(t->c, (g->nnode + 1) * sizeof *t->old_line);
  t->nold = t->old_line ? g->nnode + 1 : 0;
  t->old_text = t->nold ? limn_alloc(t->c, g->ntext + 1) : NULL;
  t->nold_text = t->old_text ? g->ntext + 1 : 0;
  if (!t->old_text) return;
  if (g->ntext) memcpy(t->old_text, g->text, g->ntext);
  for (limn_ref r = 1; r <= g->nnode; r++)
    t->old_line[r] = limn_graph_node(g, r)->line;
}

const char *limn_trace_old_line(const limn_trace *t, limn_ref r) {
  return t->old_text && r < t->nold ? t->old_text + t->old_line[r] : "";
}

int limn_trace_finish(limn_trace *t) {
  trace_keep_lines(t);
  LIMN_TRY(trace_check_tests(t));
  return limn_graph_compact(t->g);
}

int limn_trace_end(limn_trace *t, limn_graph **out) {
  int rc = t->tape ? 0 : limn_trace_finish(t);
  *out = NULL;
  if (rc < 0) {
    limn_trace_abort(t);
    return rc;
  }
  trace_pop(t);
  limn_graph_retain(t->g);
  *out = t->g;
  limn_trace_drop(t);
  return 0;
}
