/* Reads the text form of graphs (see dump.c) by recursive descent.
 *
 * Hostile text is expected: nesting is limited, memory stays within a constant
 * times the text, every node is checked before it is added and the graph as a
 * whole at the end. An op, an attribute or a default that was published keeps
 * its meaning for ever; when an op has to change, the new one is another row
 * and the old name is translated in limn_parse_op. */
#include "parse.h"

static int parse_not_empty(limn_parser *p) {
  if (*p->l.tok.s) return 0;
  return limn_lex_fail(&p->l, "a name is empty");
}

/* `value` is what the last name stands for from now on. */
static int parse_define(limn_parser *p, limn_map *m, const char *name, size_t n,
                        uintptr_t value) {
  if (limn_map_get(m, name, n))
    return limn_lex_fail(&p->l, "'%.100s' is declared twice", name);
  return limn_map_put(p->l.c, m, name, n, (void *)value);
}

/* -- Structures -- */

static int parse_array(limn_parser *p, int *dtype, limn_shape *s) {
  int64_t numel, bytes;
  const char *at;
  LIMN_TRY(limn_lex_expect(&p->l, ":"));
  LIMN_TRY(limn_lex_ident(&p->l));
  *dtype = limn_dtype_find(p->l.tok.s);
  if (*dtype < 0)
    return limn_lex_fail(&p->l, "there is no dtype '%.60s'", p->l.tok.s);
  at = p->l.s;
  memset(s, 0, sizeof *s);
  LIMN_TRY(limn_lex_expect(&p->l, "["));
  while (!limn_lex_accept(&p->l, "]")) {
    if (s->ndim == LIMN_MAXDIM)
      return limn_lex_fail(&p->l, "more than %d dims", LIMN_MAXDIM);
    if (s->ndim) LIMN_TRY(limn_lex_expect(&p->l, ","));
    LIMN_TRY(limn_lex_int(&p->l, 0, INT64_MAX, &s->d[s->ndim++]));
  }
  return limn_lex_locate(&p->l, at,
                         limn_shape_bytes(p->l.c, s, *dtype, &numel, &bytes));
}

/* "[" ("_" | name),* "]": the rank, -1 for "number" and the like. */
static int parse_type(limn_parser *p, uint32_t *dim, int *rank, int *kind) {
  static const int kinds[] = {LIMN_V_REAL, LIMN_V_INT, LIMN_V_BOOL,
                              LIMN_V_DTYPE};
  *rank = -1;
  for (int i = 0; i < LIMN_COUNT(kinds); i++) {
    *kind = kinds[i];
    if (limn_lex_accept(&p->l, limn_text_host(*kind))) return 0;
  }
  LIMN_TRY(limn_lex_expect(&p->l, "["));
  for (*rank = 0; !limn_lex_accept(&p->l, "]"); ++*rank) {
    bool bare;
    if (*rank == LIMN_MAXDIM)
      return limn_lex_fail(&p->l, "more than %d dims", LIMN_MAXDIM);
    if (*rank) LIMN_TRY(limn_lex_expect(&p->l, ","));
    bare = limn_lex_is_ident(&p->l);
    LIMN_TRY(limn_lex_name(&p->l));
    LIMN_TRY(parse_not_empty(p));
    dim[*rank] = 0;
    if (!bare || strcmp(p->l.tok.s, "_"))
      LIMN_TRY(limn_parse_intern(p, &dim[*rank]));
  }
  return 0;
}

/* After "%" in an argument: a new input. */
static int parse_input(limn_parser *p, limn_arg *out) {
  limn_graph *g = p->in->g;
  uint32_t name, dim[LIMN_MAXDIM];
  const char *text;
  limn_ref ref;
  int rank, kind;
  LIMN_TRY(limn_lex_name(&p->l));
  LIMN_TRY(parse_not_empty(p));
  if (limn_parse_find(p, &p->in->inputs))
    return limn_lex_fail(&p->l, "%%%.100s is declared twice", p->l.tok.s);
  LIMN_TRY(limn_parse_intern(p, &name));
  LIMN_TRY(limn_lex_expect(&p->l, ":"));
  LIMN_TRY(parse_type(p, dim, &rank, &kind));
  text = limn_graph_text(g, name);
  LIMN_TRY(limn_graph_add_input(g, text, rank, &ref));
  if (rank < 0) limn_graph_node(g, ref)->kind = (uint8_t)kind;
  text = limn_graph_text(g, name); /* the pool may have moved */
  for (int i = 0; i < rank; i++) g->in[g->nin - 1].dim[i] = dim[i];
  *out = limn_aref(ref);
  return parse_define(p, &p->in->inputs, text, strlen(text), ref);
}

/* Both trees of a graph, as they are filled. */
typedef struct {
  limn_tree **tree;
  uint32_t *n, *cap;
  limn_arg **leaf;
  uint32_t *nleaf, *leaf_cap;
  bool in;
} parse_tree;

static int parse_leaf(limn_parser *p, parse_tree *t, uint32_t key) {
  limn_arg a;
  if (t->in && limn_lex_accept(&p->l, "%"))
    LIMN_TRY(parse_input(p, &a));
  else
    LIMN_TRY(limn_parse_value(p, 'T', &a));
  LIMN_TRY(limn_grow(p->l.c, t->leaf, t->leaf_cap, *t->nleaf + 1, sizeof a));
  (*t->leaf)[(*t->nleaf)++] = a;
  return limn_tree_push(p->l.c, t->tree, t->n, t->cap, LIMN_T_LEAF, 0, key);
}

/* [name "="]; *found tells whether it was there. */
static int parse_key(limn_parser *p, uint32_t *key, bool *found) {
  const char *from;
  limn_lex_blanks(&p->l);
  from = p->l.s;
  *key = 0;
  *found = false;
  if (*from != '"' && !limn_lex_is_ident(&p->l)) return 0;
  LIMN_TRY(limn_lex_name(&p->l));
  if (!limn_lex_accept(&p->l, "=")) {
    p->l.s = from;
    return 0;
  }
  *found = true;
  return limn_parse_intern(p, key);
}

static int parse_entries(limn_parser *p, parse_tree *t, const char *close,
                         bool root);

static int parse_entry(limn_parser *p, parse_tree *t, uint32_t key) {
  uint32_t at = *t->n;
  if (!limn_lex_accept(&p->l, "{")) return parse_leaf(p, t, key);
  LIMN_TRY(limn_parse_deeper(p));
  LIMN_TRY(limn_tree_push(p->l.c, t->tree, t->n, t->cap, LIMN_T_LIST, 0, key));
  if (limn_lex_accept(&p->l, "=")) {
    (*t->tree)[at].tag = LIMN_T_DICT;
    LIMN_TRY(limn_lex_expect(&p->l, "}"));
  } else {
    LIMN_TRY(parse_entries(p, t, "}", false));
  }
  p->depth--;
  return 0;
}

/* Entries of the list or table that was pushed last, up to `close`. */
static int parse_entries(limn_parser *p, parse_tree *t, const char *close,
                         bool root) {
  uint32_t at = *t->n - 1, n = 0, key;
  bool keyed, first = false;
  while (close ? !limn_lex_accept(&p->l, close)
               : n == 0 || limn_lex_accept(&p->l, ",")) {
    if (close && n) LIMN_TRY(limn_lex_expect(&p->l, ","));
    LIMN_TRY(parse_key(p, &key, &keyed));
    if (n++ == 0) first = keyed;
    if (!root && keyed != first)
      return limn_lex_fail(&p->l, "some entries have keys, others do not");
    LIMN_TRY(parse_entry(p, t, key));
  }
  (*t->tree)[at].n = n;
  if (!root && first) (*t->tree)[at].tag = LIMN_T_DICT;
  return 0;
}

static int parse_inputs(limn_parser *p) {
  limn_graph *g = p->in->g;
  parse_tree t = {&g->in_tree, &g->nin_tree, &g->in_tree_cap,
                  &g->statics, &g->nstatic,  &g->static_cap,
                  true};
  LIMN_TRY(limn_lex_expect(&p->l, "("));
  LIMN_TRY(limn_tree_push(p->l.c, t.tree, t.n, t.cap, LIMN_T_LIST, 0, 0));
  return parse_entries(p, &t, ")", true);
}

static int parse_results(limn_parser *p) {
  limn_graph *g = p->in->g;
  parse_tree t = {&g->out_tree, &g->nout_tree, &g->out_tree_cap,
                  &g->out,      &g->nout,      &g->out_cap,
                  false};
  LIMN_TRY(limn_tree_push(p->l.c, t.tree, t.n, t.cap, LIMN_T_LIST, 0, 0));
  limn_lex_blanks(&p->l);
  if (*p->l.s == '}') return 0;
  return parse_entries(p, &t, NULL, true);
}

/* -- Items of a body -- */

static int parse_cell(limn_parser *p, int kind, const char *name,
                      limn_cell **cell) {
  limn_shape s;
  int dtype;
  LIMN_TRY(parse_array(p, &dtype, &s));
  if (!p->env || !p->env->cell)
    return limn_lex_fail(&p->l, "there is no value for @%.100s", name);
  return p->env->cell(p->env->user, name, kind, dtype, &s, cell);
}

static int parse_const(limn_parser *p, const char *name, limn_tensor **t) {
  limn_shape s;
  int dtype;
  LIMN_TRY(parse_array(p, &dtype, &s));
  if (!p->env || !p->env->konst)
    return limn_lex_fail(&p->l, "there is no value for @%.100s", name);
  return p->env->konst(p->env->user, name, dtype, &s, t);
}

/* After "param", "buffer", "state" (kind) or "const" (-1). */
static int parse_declare_named(limn_parser *p, int kind, const limn_str *name) {
  limn_graph *g = p->in->g;
  limn_cell *cell = NULL;
  limn_tensor *t = NULL;
  uint32_t i, known = kind < 0 ? g->nconst : g->ncell, path;
  int rc;
  if (kind < 0) {
    LIMN_TRY(parse_const(p, name->s, &t));
    rc = limn_graph_add_const(g, t, name->s, &i);
    limn_tensor_release(t);
    LIMN_TRY(rc);
    if (i == known)
      LIMN_TRY(limn_lex_place(&p->l, g, &g->konst[i].line, &path));
  } else {
    LIMN_TRY(parse_cell(p, kind, name->s, &cell));
    rc = limn_graph_add_cell(g, cell, name->s, &i);
    limn_cell_release(cell);
    LIMN_TRY(rc);
  }
  if (i < known)
    return limn_lex_fail(&p->l, "@%.100s has a second name", name->s);
  return parse_define(p, &p->in->vars, name->s, name->len,
                      (uintptr_t)i * 2 + (kind < 0 ? 3 : 2));
}

static int parse_declare(limn_parser *p, int kind) {
  limn_str name;
  int rc;
  limn_str_init(&name, p->l.c);
  LIMN_GO(limn_lex_expect(&p->l, "@"));
  LIMN_GO(limn_lex_name(&p->l));
  LIMN_GO(parse_not_empty(p));
  limn_str_addn(&name, p->l.tok.s, p->l.tok.len);
  LIMN_GO(name.rc);
  rc = parse_declare_named(p, kind, &name);
bail:
  limn_str_free(&name);
  return rc;
}

static int parse_mode(limn_parser *p) {
  limn_graph *g = p->in->g;
  limn_mode *m = NULL;
  uint32_t i, known = g->nmode;
  int rc;
  LIMN_TRY(limn_lex_string(&p->l));
  if (!p->env || !p->env->mode)
    return limn_lex_fail(&p->l, "there is no mode \"%.100s\"", p->l.tok.s);
  LIMN_TRY(p->env->mode(p->env->user, p->l.tok.s, &m));
  rc = limn_graph_add_mode(g, m, p->l.tok.s, &i);
  limn_mode_release(m, p->l.c);
  LIMN_TRY(rc);
  if (i < known) return limn_lex_fail(&p->l, "a mode is declared twice");
  return parse_define(p, &p->in->modes, p->l.tok.s, p->l.tok.len,
                      (uintptr_t)i + 1);
}

static int parse_guard(limn_parser *p) {
  static const struct {
    const char *sign;
    int op;
  } signs[] = {{"==", OP_eq}, {"~=", OP_ne}, {"<=", OP_le},
               {"<", OP_lt},  {">=", OP_ge}, {">", OP_gt}};
  limn_arg a[2];
  uint32_t line, path;
  limn_ref r;
  const char *at = p->l.s, *end;
  LIMN_TRY(limn_parse_value(p, 'T', &a[0]));
  end = p->l.s;
  for (int i = 0; i < LIMN_COUNT(signs); i++) {
    if (!limn_lex_accept(&p->l, signs[i].sign)) {
      p->l.s = end; /* the comment is still to be read */
      continue;
    }
    LIMN_TRY(limn_parse_value(p, 'T', &a[1]));
    LIMN_TRY(limn_parse_add_plan(p, at, signs[i].op, a, 2, &r));
    a[0] = limn_aref(r);
    break;
  }
  LIMN_TRY(limn_lex_place(&p->l, p->in->g, &line, &path));
  return limn_graph_add_guard(p->in->g, a[0], line);
}

/* Nodes that came with a statement get its place; `r` is the first. */
static int parse_place(limn_parser *p, limn_ref r) {
  limn_graph *g = p->in->g;
  uint32_t line, path;
  LIMN_TRY(limn_lex_place(&p->l, g, &line, &path));
  for (; r <= g->nnode; r++) {
    limn_node *n = limn_graph_node(g, r);
    if (n->op == OP_cell) continue;
    n->line = line;
    n->path = path;
  }
  return 0;
}

/* op(...) as a statement. */
static int parse_call(limn_parser *p, limn_ref *out) {
  limn_graph *g = p->in->g;
  limn_arg a[LIMN_MAXARGS];
  limn_ref first = g->nnode + 1;
  const char *at;
  int op, n;
  limn_lex_blanks(&p->l);
  at = p->l.s;
  LIMN_TRY(limn_lex_ident(&p->l));
  LIMN_TRY(limn_parse_op(p, &op));
  LIMN_TRY(limn_parse_args(p, op, a, &n));
  LIMN_TRY(limn_parse_add(p, at, op, a, n, out));
  if ((limn_graph_node(g, *out)->kind == LIMN_V_NONE) != (op == OP_print)) {
    p->l.s = at;
    return limn_lex_fail(&p->l, "%s: its operands give no value",
                         limn_op_get(op)->name);
  }
  if (limn_node_effect(g, *out)) LIMN_TRY(limn_graph_add_effect(g, *out));
  return parse_place(p, first);
}

/* After "%": INT "=" call. */
static int parse_node(limn_parser *p) {
  limn_parse_scope *s = p->in;
  limn_ref r;
  int64_t id;
  LIMN_TRY(limn_lex_int(&p->l, p->last + 1, UINT32_MAX, &id));
  p->last = id;
  LIMN_TRY(limn_lex_expect(&p->l, "="));
  LIMN_TRY(parse_call(p, &r));
  if (limn_graph_node(s->g, r)->kind == LIMN_V_NONE)
    return limn_lex_fail(&p->l, "a print has no number");
  LIMN_TRY(limn_grow(p->l.c, &s->number, &s->number_cap, s->nnumber + 1,
                     sizeof *s->number));
  s->number[s->nnumber++] = (limn_parse_number){id, r};
  return 0;
}

/* After "@": name "<-" value. */
static int parse_write(limn_parser *p) {
  limn_graph *g = p->in->g;
  bool konst = false;
  uint32_t i = 0, path;
  limn_arg v;
  LIMN_TRY(limn_parse_var(p, &konst, &i));
  if (konst || g->cell[i].write.tag != LIMN_A_NONE)
    return limn_lex_fail(
        &p->l,
        konst ? "a constant cannot be written" : "@%.100s is written twice",
        p->l.tok.s);
  LIMN_TRY(limn_lex_expect(&p->l, "<-"));
  LIMN_TRY(limn_parse_value(p, 'T', &v));
  g->cell[i].write = v;
  return limn_lex_place(&p->l, g, &g->cell[i].line, &path);
}

static int parse_draws(limn_parser *p) {
  int64_t n;
  if (p->in->g->draws) return limn_lex_fail(&p->l, "draws are given twice");
  LIMN_TRY(limn_lex_int(&p->l, 1, INT32_MAX, &n));
  p->in->g->draws = (uint32_t)n;
  return 0;
}

static int parse_item(limn_parser *p) {
  static const char *const kinds[] = {"param", "buffer", "state"};
  limn_ref r;
  if (limn_lex_accept(&p->l, "%")) return parse_node(p);
  if (limn_lex_accept(&p->l, "@")) return parse_write(p);
  if (limn_lex_accept(&p->l, "guard")) return parse_guard(p);
  for (int i = 0; i < LIMN_COUNT(kinds); i++)
    if (limn_lex_accept(&p->l, kinds[i])) return parse_declare(p, i);
  if (limn_lex_accept(&p->l, "const")) return parse_declare(p, -1);
  if (limn_lex_accept(&p->l, "mode")) return parse_mode(p);
  if (limn_lex_accept(&p->l, "draws")) return parse_draws(p);
  limn_lex_blanks(&p->l);
  if (!strncmp(p->l.s, "print", 5)) return parse_call(p, &r);
  return limn_lex_expected(&p->l, "a node or a declaration");
}

/* Items up to `word`, the results and the closing brace. */
static int parse_body(limn_parser *p, const char *word) {
  while (!limn_lex_accept(&p->l, word)) LIMN_TRY(parse_item(p));
  LIMN_TRY(parse_results(p));
  return limn_lex_expect(&p->l, "}");
}

/* -- Graphs -- */

static void parse_scope_free(limn_parser *p, limn_parse_scope *s) {
  limn_context *c = p->l.c;
  limn_map_free(c, &s->inputs);
  limn_map_free(c, &s->vars);
  limn_map_free(c, &s->modes);
  limn_map_free(c, &s->plans);
  limn_free(c, s->number, s->number_cap * sizeof *s->number);
  limn_graph_release(s->g);
}

static int parse_region_in(limn_parser *p, limn_parse_scope *outer,
                           limn_arg *out) {
  uint32_t index;
  LIMN_TRY(limn_lex_expect(&p->l, "{"));
  LIMN_TRY(parse_inputs(p));
  LIMN_TRY(limn_lex_expect(&p->l, "=>"));
  LIMN_TRY(parse_body(p, "yield"));
  LIMN_TRY(limn_graph_add_region(outer->g, p->in->g, &index));
  *out = limn_aint(index);
  return 0;
}

int limn_parse_region(limn_parser *p, limn_arg *out) {
  limn_parse_scope in = {0}, *outer = p->in;
  int rc;
  LIMN_TRY(limn_parse_deeper(p));
  LIMN_TRY(limn_graph_new(p->l.c, "region", &in.g));
  p->in = &in;
  rc = parse_region_in(p, outer, out);
  p->in = outer;
  p->depth--;
  parse_scope_free(p, &in);
  return rc;
}

static int parse_version(limn_parser *p) {
  int64_t v;
  if (!limn_lex_accept(&p->l, "limn"))
    return limn_lex_fail(&p->l,
                         "this is no graph: it does not start with "
                         "'limn %d'",
                         LIMN_TEXT_FORMAT);
  LIMN_TRY(limn_lex_int(&p->l, 1, INT32_MAX, &v));
  if (v > LIMN_TEXT_FORMAT)
    return limn_lex_fail(&p->l,
                         "it is in format %lld, which needs a newer "
                         "limn; this one reads formats up to %d",
                         (long long)v, LIMN_TEXT_FORMAT);
  return 0;
}

static int parse_graph(limn_parser *p) {
  LIMN_TRY(parse_version(p));
  LIMN_TRY(limn_lex_expect(&p->l, "graph"));
  LIMN_TRY(limn_lex_name(&p->l));
  LIMN_TRY(limn_graph_new(p->l.c, p->l.tok.s, &p->in->g));
  LIMN_TRY(parse_inputs(p));
  LIMN_TRY(limn_lex_expect(&p->l, "{"));
  LIMN_TRY(parse_body(p, "return"));
  limn_lex_blanks(&p->l);
  if (p->l.s < p->l.end) return limn_lex_expected(&p->l, "the end");
  return limn_graph_verify(p->in->g);
}

/* The copy ends in a 0, which nothing before it is. */
static int parse_copy(limn_parser *p, const char *text, size_t n) {
  const char *zero = n ? memchr(text, 0, n) : NULL;
  char *copy = n < UINT32_MAX / 4 ? limn_alloc(p->l.c, n + 1) : NULL;
  if (!copy) return limn_fail(p->l.c, LIMN_EMEM, "a graph is too long");
  if (n) memcpy(copy, text, n);
  p->l.start = p->l.s = copy;
  p->l.end = copy + n;
  if (!zero) return 0;
  p->l.s = copy + (zero - text);
  return limn_lex_fail(&p->l, "a zero byte");
}

int limn_graph_parse(limn_context *c, const char *text, size_t n,
                     const limn_parse_env *env, limn_graph **out) {
  limn_parse_scope in = {0};
  limn_parser p = {0};
  int rc;
  *out = NULL;
  p.l.c = c;
  p.env = env;
  p.in = &in;
  limn_str_init(&p.l.tok, c);
  limn_str_add(&p.l.tok, "");
  if ((rc = parse_copy(&p, text, n)) >= 0) rc = parse_graph(&p);
  if (rc >= 0) {
    *out = in.g;
    limn_graph_retain(in.g);
  }
  if (p.l.start) limn_free(c, (void *)(uintptr_t)p.l.start, n + 1);
  limn_str_free(&p.l.tok);
  limn_free(c, p.stack, p.stack_cap * sizeof *p.stack);
  parse_scope_free(&p, &in);
  return rc;
}
