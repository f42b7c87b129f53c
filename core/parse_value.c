/* Reads the values of the text form: names, lists and calls. */
#include "parse.h"

#include "op_rules.h"

int limn_parse_deeper(limn_parser *p) {
  if (++p->depth <= LIMN_TEXT_DEPTH) return 0;
  return limn_lex_fail(&p->l, "nested more than %d deep", LIMN_TEXT_DEPTH);
}

int limn_parse_intern(limn_parser *p, uint32_t *out) {
  *out = limn_graph_str(p->in->g, p->l.tok.s);
  return *out || !*p->l.tok.s ? 0 : LIMN_EMEM;
}

/* -- Tables of names -- */

uintptr_t limn_parse_find(limn_parser *p, const limn_map *m) {
  return (uintptr_t)limn_map_get(m, p->l.tok.s, p->l.tok.len);
}

/* -- Nodes -- */

int limn_parse_add(limn_parser *p, const char *at, int op, const limn_arg *a,
                   int n, limn_ref *out) {
  limn_graph *g = p->in->g;
  LIMN_TRY(limn_lex_locate(&p->l, at, limn_node_check(g, g->nnode, op, a, n)));
  LIMN_TRY(limn_lex_locate(&p->l, at, limn_op_rank(g, op, a, n)));
  *out = limn_graph_add(g, op, a, n, 0, 0);
  return *out ? 0 : LIMN_EMEM;
}

int limn_parse_add_plan(limn_parser *p, const char *at, int op,
                        const limn_arg *a, int n, limn_ref *out) {
  struct {
    int64_t op;
    int64_t a[LIMN_MAXARGS][2];
  } key;
  uintptr_t known;
  bool lists = false;
  memset(&key, 0, sizeof key);
  key.op = op;
  for (int i = 0; i < n; i++) {
    key.a[i][0] = a[i].tag;
    if (a[i].tag == LIMN_A_REF)
      key.a[i][1] = a[i].u.ref;
    else if (a[i].tag == LIMN_A_STR)
      key.a[i][1] = a[i].u.str;
    else if (a[i].tag != LIMN_A_NONE)
      key.a[i][1] = a[i].u.i; /* a real's bits */
    lists |= a[i].tag == LIMN_A_LIST;
  }
  known = (uintptr_t)limn_map_get(&p->in->plans, &key, sizeof key);
  *out = (limn_ref)known;
  if (known && !lists) return 0;
  LIMN_TRY(limn_parse_add(p, at, op, a, n, out));
  if (lists) return 0;
  return limn_map_put(p->l.c, &p->in->plans, &key, sizeof key,
                      (void *)(uintptr_t)*out);
}

/* -- Names of values -- */

static int parse_numbered(limn_parser *p, limn_arg *out) {
  limn_parse_scope *s = p->in;
  uint32_t lo = 0, hi = s->nnumber;
  const char *at = p->l.s;
  int64_t id;
  LIMN_TRY(limn_lex_int(&p->l, 1, UINT32_MAX, &id));
  while (lo < hi) {
    uint32_t mid = lo + (hi - lo) / 2;
    if (s->number[mid].id < id)
      lo = mid + 1;
    else
      hi = mid;
  }
  if (lo < s->nnumber && s->number[lo].id == id) {
    *out = limn_aref(s->number[lo].ref);
    return 0;
  }
  p->l.s = at;
  return limn_lex_fail(&p->l, "there is no %%%lld here", (long long)id);
}

/* After '%'. */
static int parse_percent(limn_parser *p, limn_arg *out) {
  uintptr_t ref;
  if (*p->l.s >= '0' && *p->l.s <= '9') return parse_numbered(p, out);
  LIMN_TRY(limn_lex_name(&p->l));
  ref = limn_parse_find(p, &p->in->inputs);
  if (!ref)
    return limn_lex_fail(&p->l, "there is no %%%.100s here", p->l.tok.s);
  *out = limn_aref((limn_ref)ref);
  return 0;
}

/* After '@': which cell or constant. */
int limn_parse_var(limn_parser *p, bool *konst, uint32_t *index) {
  uintptr_t v;
  LIMN_TRY(limn_lex_name(&p->l));
  v = limn_parse_find(p, &p->in->vars);
  if (!v) return limn_lex_fail(&p->l, "@%.100s is not declared", p->l.tok.s);
  *konst = v & 1;
  *index = (uint32_t)(v / 2 - 1);
  return 0;
}

static int parse_at(limn_parser *p, limn_arg *out) {
  limn_graph *g = p->in->g;
  limn_ref *ref, r;
  bool konst = false;
  uint32_t i = 0;
  limn_arg a;
  LIMN_TRY(limn_parse_var(p, &konst, &i));
  ref = konst ? &g->konst[i].ref : &g->cell[i].ref;
  if (!*ref) {
    a = limn_aint(i);
    LIMN_TRY(limn_parse_add(p, p->l.s, konst ? OP_const : OP_cell, &a, 1, &r));
    limn_graph_node(g, r)->rank = (int8_t)(konst ? g->konst[i].value->v.ndim
                                                 : g->cell[i].cell->shape.ndim);
    *ref = r;
  }
  *out = limn_aref(*ref);
  return 0;
}

/* -- Calls -- */

int limn_parse_op(limn_parser *p, int *out) {
  const char *name = p->l.tok.s, *near;
  *out = limn_op_find(name);
  if (*out == OP_input || *out == OP_number || *out == OP_cell ||
      *out == OP_const)
    return limn_lex_fail(&p->l, "%s is not written as a call", name);
  if (*out) return 0;
  near = limn_op_near(name);
  limn_lex_fail(&p->l,
                "unknown op '%.60s'%s%s%s; this file may need a newer "
                "limn",
                name, near ? " (near: " : "", near ? near : "",
                near ? ")" : "");
  return LIMN_EFORMAT;
}

/* The parameter that comes next: operands first, then the others. Regions are
 * `given`, as they have a place of their own. */
static int parse_next_param(const limn_param *q, int n, const bool *given) {
  for (int i = 0; i < n; i++)
    if (!given[i] && (q[i].type == 'T' || q[i].type == 'S')) return i;
  for (int i = 0; i < n; i++)
    if (!given[i]) return i;
  return -1;
}

/* [attribute "="]: which parameter the value is for. */
static int parse_param(limn_parser *p, int op, const limn_param *q, int n,
                       const bool *given, int *out) {
  const char *from;
  limn_lex_blanks(&p->l);
  from = p->l.s;
  *out = -1;
  if (limn_lex_is_ident(&p->l)) {
    LIMN_TRY(limn_lex_ident(&p->l));
    if (limn_lex_accept(&p->l, "=")) {
      *out = limn_op_param(op, p->l.tok.s);
      if (*out < 0)
        return limn_lex_fail(&p->l,
                             "%s has no attribute '%.60s'; this file "
                             "may need a newer limn",
                             limn_op_get(op)->name, p->l.tok.s);
      if (given[*out])
        return limn_lex_fail(&p->l, "%s is given twice", q[*out].name);
      return 0;
    }
    p->l.s = from;
  }
  *out = parse_next_param(q, n, given);
  if (*out < 0)
    return limn_lex_fail(&p->l, "too many arguments for %s",
                         limn_op_get(op)->name);
  return 0;
}

static int parse_default(limn_parser *p, const limn_param *q, limn_arg *out) {
  *out = q->def;
  if (!q->has_default || (q->type != 'e' && q->type != 's')) return 0;
  out->tag = LIMN_A_STR;
  out->u.str = limn_graph_str(p->in->g, q->def_text);
  return out->u.str ? 0 : LIMN_EMEM;
}

static int parse_mode_name(limn_parser *p, limn_arg *out) {
  uintptr_t known;
  LIMN_TRY(limn_lex_string(&p->l));
  known = limn_parse_find(p, &p->in->modes);
  if (!known)
    return limn_lex_fail(&p->l, "mode \"%.100s\" is not declared", p->l.tok.s);
  *out = limn_aint((int64_t)known - 1);
  return 0;
}

/* After the arguments; the gradient of a custom function may be missing. */
static int parse_regions(limn_parser *p, int op, limn_arg *a) {
  int first, count = limn_op_regions(op, &first);
  const char *end;
  for (int i = first; i < first + count; i++) {
    end = p->l.s;
    limn_lex_blanks(&p->l);
    if (op == OP_custom && i > first && *p->l.s != '{') {
      p->l.s = end; /* the comment is still to be read */
      a[i] = limn_aint(-1);
      continue;
    }
    LIMN_TRY(limn_parse_region(p, &a[i]));
  }
  return 0;
}

int limn_parse_args(limn_parser *p, int op, limn_arg *a, int *n) {
  limn_param q[LIMN_MAXARGS];
  bool given[LIMN_MAXARGS] = {false};
  int i, region, regions = limn_op_regions(op, &region);
  *n = limn_op_params(op, q);
  for (i = 0; i < *n; i++) LIMN_TRY(parse_default(p, &q[i], &a[i]));
  for (i = region; i < region + regions; i++) given[i] = true;
  LIMN_TRY(limn_lex_expect(&p->l, "("));
  if (op == OP_mode) {
    LIMN_TRY(parse_mode_name(p, &a[0]));
    return limn_lex_expect(&p->l, ")");
  }
  for (int k = 0; !limn_lex_accept(&p->l, ")"); k++) {
    if (k) LIMN_TRY(limn_lex_expect(&p->l, ","));
    LIMN_TRY(parse_param(p, op, q, *n, given, &i));
    LIMN_TRY(limn_parse_value(p, q[i].type, &a[i]));
    given[i] = true;
  }
  return parse_regions(p, op, a);
}

/* op(...) as a value: a plan value. */
static int parse_plan_call(limn_parser *p, const char *at, limn_arg *out) {
  limn_arg a[LIMN_MAXARGS];
  int op, n, kind;
  limn_ref r;
  LIMN_TRY(limn_parse_op(p, &op));
  if (limn_op_body(op) >= 0)
    return limn_lex_fail(&p->l, "%s needs a line of its own",
                         limn_op_get(op)->name);
  LIMN_TRY(limn_parse_args(p, op, a, &n));
  LIMN_TRY(limn_lex_locate(
      &p->l, at, limn_node_check(p->in->g, p->in->g->nnode, op, a, n)));
  kind = limn_op_kind(p->in->g, op, a, n);
  if (kind == LIMN_V_TENSOR || kind == LIMN_V_NONE) {
    p->l.s = at;
    return limn_lex_fail(&p->l,
                         "%s gives no plan value; it needs a line of "
                         "its own",
                         limn_op_get(op)->name);
  }
  LIMN_TRY(limn_parse_add_plan(p, at, op, a, n, &r));
  *out = limn_aref(r);
  return 0;
}

/* -- Values -- */

static int parse_list(limn_parser *p, char type, limn_arg *out) {
  uint32_t base = p->nstack;
  limn_arg a;
  for (int k = 0; !limn_lex_accept(&p->l, "]"); k++) {
    if (k) LIMN_TRY(limn_lex_expect(&p->l, ","));
    LIMN_TRY(limn_parse_value(p, type, &a));
    if (a.tag == LIMN_A_LIST)
      return limn_lex_fail(&p->l, "a list inside a list");
    LIMN_TRY(limn_grow(p->l.c, &p->stack, &p->stack_cap, p->nstack + 1,
                       sizeof *p->stack));
    p->stack[p->nstack++] = a;
  }
  *out = limn_none();
  out->tag = LIMN_A_LIST;
  out->n = p->nstack - base;
  LIMN_TRY(limn_graph_push_args(p->in->g, p->stack + base, out->n, &out->u.at));
  p->nstack = base;
  return 0;
}

static int parse_string_value(limn_parser *p, limn_arg *out) {
  *out = limn_none();
  out->tag = LIMN_A_STR;
  return limn_parse_intern(p, &out->u.str);
}

/* true, false, nil, a dtype, an enum's word or a call. */
static int parse_word(limn_parser *p, char type, limn_arg *out) {
  const char *at = p->l.s, *name;
  int dtype;
  LIMN_TRY(limn_lex_ident(&p->l));
  name = p->l.tok.s;
  *out = limn_none();
  if (!strcmp(name, "nil")) return 0;
  if (type == 'e') return parse_string_value(p, out);
  if (*p->l.s == '(') return parse_plan_call(p, at, out);
  if (!strcmp(name, "true") || !strcmp(name, "false")) {
    *out = limn_abool(*name == 't');
    return 0;
  }
  dtype = limn_dtype_find(name);
  if (dtype >= 0) {
    *out = limn_adtype(dtype);
    return 0;
  }
  p->l.s = at;
  return limn_lex_expected(&p->l, "a value");
}

static int parse_value_in(limn_parser *p, char type, limn_arg *out) {
  limn_lex_blanks(&p->l);
  if (limn_lex_accept(&p->l, "%")) return parse_percent(p, out);
  if (limn_lex_accept(&p->l, "@")) return parse_at(p, out);
  if (limn_lex_accept(&p->l, "[")) return parse_list(p, type, out);
  if (limn_lex_is_number(&p->l)) return limn_lex_number(&p->l, out);
  if (*p->l.s == '"') {
    LIMN_TRY(limn_lex_string(&p->l));
    return parse_string_value(p, out);
  }
  if (limn_lex_is_ident(&p->l)) return parse_word(p, type, out);
  return limn_lex_expected(&p->l, "a value");
}

int limn_parse_value(limn_parser *p, char type, limn_arg *out) {
  LIMN_TRY(limn_parse_deeper(p));
  LIMN_TRY(parse_value_in(p, type, out));
  p->depth--;
  return 0;
}
