/* Control flow in traces: what lua/limn/control.lua calls. */
#include "lua_core.h"
#include "op_rules.h"

/* region_input(region, name, value, row): a placeholder like the value, or
 * like a row of it */
static int region_input(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_trace *t = limn_lua_check_trace(st, L, 1);
  const char *name = luaL_checkstring(L, 2);
  limn_type hint;
  limn_shape *s = &hint.shape;
  limn_lua_hint(st, L, 3, "control flow", name, &hint);
  if (lua_toboolean(L, 4)) {
    memmove(s->d, s->d + 1, sizeof s->d - sizeof *s->d);
    s->ndim--; /* control.lua has seen that there are rows */
  }
  return limn_lua_push_input(st, L, t, name, &hint);
}

/* The list at i, of tensors or (any) plan values too, as arguments of trace t,
 * in a userdata. */
static limn_arg *region_args(limn_lua *st, lua_State *L, int i, limn_trace *t,
                             bool any, int *n) {
  limn_arg *a;
  limn_value v;
  *n = (int)lua_objlen(L, i);
  a = lua_newuserdata(L, ((size_t)*n + 1) * sizeof *a);
  for (int k = 0; k < *n; k++) {
    lua_rawgeti(L, i, k + 1);
    if (!any || !limn_lua_value(st, L, -1, &v))
      limn_lua_operand(st, L, -1, "control flow", "the value", &v);
    limn_lua_check(st, L, limn_trace_arg(t, &v, &a[k]));
    lua_pop(L, 1);
  }
  return a;
}

/* region_leave(region): the body has run */
static int region_leave(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_lua_check(st, L, limn_region_leave(limn_lua_check_trace(st, L, 1)));
  return 0;
}

/* region_give(region, {results}, {likes}): the results of a region that was
 * left; for each false, a dtype (a plan value of the trace around it, too), or
 * (a number) a placeholder that it is like */
static int region_give(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_trace *t = limn_lua_check_trace(st, L, 1);
  int n = (int)lua_objlen(L, 2);
  for (int k = 1; k <= n; k++) {
    limn_value v, like;
    limn_arg a = limn_none();
    lua_settop(L, 3);
    lua_rawgeti(L, 2, k);
    lua_rawgeti(L, 3, k);
    if (lua_type(L, 4) == LUA_TBOOLEAN && lua_isnil(L, 5)) { /* none */
      limn_lua_check(st, L, limn_graph_add_out(t->g, limn_none()));
      continue;
    }
    if (!limn_lua_value(st, L, 4, &v))
      return limn_lua_fail(st, L, NULL, "result %d is no tensor", k);
    if (lua_type(L, 5) == LUA_TSTRING)
      a = limn_adtype(limn_dtype_find(lua_tostring(L, 5)));
    else if (limn_lua_value(st, L, 5, &like) && like.tag == LIMN_X_TRACED)
      limn_lua_check(st, L, limn_trace_arg(t, &like, &a));
    limn_lua_check(st, L, limn_region_give(t, &v, a));
  }
  return 0;
}

/* region_dtype(region, value, real, {own values}): the dtype that a value of a
 * region that was left will have, a string or a token: limn_region_dtype */
static int region_dtype(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_trace *t = limn_lua_check_trace(st, L, 1);
  limn_value v;
  limn_arg x, out, *own;
  int n;
  if (!t->outer || !limn_lua_value(st, L, 2, &v))
    return limn_lua_fail(st, L, NULL, "a value of a region is wanted");
  lua_settop(L, 4);
  own = region_args(st, L, 4, t->outer, true, &n);
  limn_lua_check(st, L, limn_trace_arg(t, &v, &x));
  limn_lua_check(st, L, limn_region_dtype(t, x, lua_toboolean(L, 3), own,
                                          (uint32_t)n, &out));
  if (out.tag == LIMN_A_REF) limn_lua_push_dim(st, L, t->outer, out.u.ref);
  else lua_pushstring(L, limn_dtype_name((int)out.u.i));
  return 1;
}

/* Push results [from, from + n) of node r, appended to the list on the top,
 * which has `at` already. */
static void region_picks(limn_lua *st, lua_State *L, limn_trace *t, limn_ref r,
                         int from, int n, int at) {
  limn_arg pick[2];
  for (int k = 0; k < n; k++) {
    limn_value v = {0};
    pick[0] = limn_aref(r);
    pick[1] = limn_aint(from + k + 1);
    limn_lua_check(st, L, limn_trace_op(t, OP_pick, pick, 2, &v.ref));
    v.tag = LIMN_X_TRACED, v.trace = t;
    limn_lua_push(st, L, &v);
    lua_rawseti(L, -2, at + k + 1);
  }
}

static limn_trace *region_outer(limn_lua *st, lua_State *L) {
  limn_trace *t = limn_lua_tracing(st);
  if (!t) limn_lua_fail(st, L, NULL, "a region needs a trace");
  return t;
}

/* cond_node(predicate, f, g): the results */
static int region_cond(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_trace *t = region_outer(st, L), *f = limn_lua_check_trace(st, L, 2);
  limn_trace *g = limn_lua_check_trace(st, L, 3);
  int n = (int)f->g->nout;
  limn_value v;
  limn_arg pred;
  limn_ref r;
  if (!limn_lua_value(st, L, 1, &v))
    return limn_lua_fail(st, L, NULL, "cond: no condition");
  limn_lua_check(st, L, limn_trace_arg(t, &v, &pred));
  limn_lua_check(st, L, limn_region_cond(t, pred, f, g, &r));
  lua_createtable(L, n, 0);
  region_picks(st, L, t, r, 0, n, 0);
  return 1;
}

/* while_node({carry}, test, body): the results */
static int region_while(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_trace *t = region_outer(st, L), *test = limn_lua_check_trace(st, L, 2);
  limn_trace *body = limn_lua_check_trace(st, L, 3);
  limn_ref r;
  int n;
  limn_arg *carry = region_args(st, L, 1, t, false, &n);
  limn_lua_check(st, L, limn_region_while(t, carry, n, test, body, &r));
  lua_createtable(L, n, 0);
  region_picks(st, L, t, r, 0, n, 0);
  return 1;
}

/* scan_node({carry}, {xs}, body, reverse): the last carry, then the stacked */
static int region_scan(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_trace *t = region_outer(st, L), *body = limn_lua_check_trace(st, L, 3);
  limn_ref r;
  int n, nx, ny, cells;
  limn_arg *carry = region_args(st, L, 1, t, false, &n);
  limn_arg *xs = region_args(st, L, 2, t, false, &nx);
  ny = (int)body->g->nout - n;
  limn_lua_check(st, L, limn_region_scan(t, carry, n, xs, nx, body,
                                         lua_toboolean(L, 4), &r, &cells));
  lua_createtable(L, n + ny, 0);
  region_picks(st, L, t, r, 0, n, 0);
  region_picks(st, L, t, r, n + cells, ny, n);
  return 1;
}

/* On a tape: what node r, of a custom function, gives. Values are there for
 * all its operands, cells' on the device of the others. */
static int region_value(limn_trace *t, limn_ref r, limn_device *dev,
                        limn_run_arg *in, limn_result *out) {
  limn_graph *g = t->g, *f;
  limn_context *c = t->c;
  uint64_t seed = c->seed, draw = c->draws;
  limn_arg xs = limn_node_args(g, r)[0];
  int rc;
  f = limn_graph_region(g, limn_node_args(g, r)[1]);
  for (uint32_t i = 0; i < f->nin; i++) {
    limn_arg x = g->args[xs.u.at + i];
    const limn_node *nd =
        x.tag == LIMN_A_REF ? limn_graph_node(g, x.u.ref) : NULL;
    in[i].number = x.tag == LIMN_A_REAL ? x.u.f : nd ? 0 : (double)x.u.i;
    if (!nd) continue;
    in[i].t = x.u.ref <= t->nvalue ? t->value[x.u.ref - 1] : NULL;
    if (!in[i].t)
      return limn_fail(c, LIMN_ETRACE, "custom: operand %u has no value",
                       i + 1);
    if (nd->op == OP_cell && in[i].t->st->dev != dev)
      LIMN_TRY(limn_cell_get(g->cell[g->args[nd->args].u.i].cell, dev,
                             &in[i].t));
  }
  c->seed = limn_random_key(seed, 0, draw);
  c->draws = 0;
  rc = limn_graph_run(f, NULL, in, NULL, out);
  c->seed = seed;
  c->draws = draw + 1;
  return rc;
}

/* Push the value of node r on a tape, which notes it. */
static void region_push_value(limn_lua *st, lua_State *L, limn_trace *t,
                              limn_ref r, limn_device *dev) {
  limn_graph *f = limn_graph_region(t->g, limn_node_args(t->g, r)[1]);
  size_t n = (f->nin + 1u) * sizeof(limn_run_arg);
  limn_run_arg *in = lua_newuserdata(L, n);
  limn_result out = {0};
  limn_handle *h;
  memset(in, 0, n);
  h = limn_lua_new_tensor(st, L);
  limn_lua_check(st, L, region_value(t, r, dev, in, &out));
  h->t = out.t;
  limn_lua_check(st, L, limn_trace_apart(t, &h->t));
  limn_lua_check(st, L, limn_trace_value(t, r, h->t));
}

/* custom_node({values}, f, vjp): a node with a gradient of its own; f and vjp
 * are regions that were left, or those of such a node */
static int region_custom(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_trace *t = st->c->trace;
  limn_lua_graph *f = limn_lua_to(st, L, 2, LIMN_U_GRAPH);
  limn_value out = {0};
  limn_device *dev = NULL;
  limn_ref r;
  int n;
  limn_arg *xs, a[4] = {{0}};
  if (!t) return limn_lua_fail(st, L, NULL, "custom needs a recording");
  for (int k = 1; k <= (int)lua_objlen(L, 1) && !dev; k++) {
    limn_handle *h;
    lua_rawgeti(L, 1, k);
    h = limn_lua_to(st, L, -1, LIMN_U_TENSOR);
    if (h && h->t && h->t->v.ndim) dev = h->t->st->dev;
    lua_pop(L, 1);
  }
  xs = region_args(st, L, 1, t, f != NULL, &n);
  if (f) {
    uint32_t at[2];
    limn_lua_graph *vjp = limn_lua_check_graph(st, L, 3);
    limn_lua_check(st, L, limn_graph_add_region(t->g, f->g, &at[0]));
    limn_lua_check(st, L, limn_graph_add_region(t->g, vjp->g, &at[1]));
    a[0].tag = LIMN_A_LIST, a[0].n = (uint32_t)n;
    limn_lua_check(st, L, limn_graph_push_args(t->g, xs, a[0].n, &a[0].u.at));
    a[1] = limn_aint(at[0]), a[2] = limn_aint(at[1]);
    limn_lua_check(st, L, limn_trace_op(t, OP_custom, a, 4, &r));
  } else {
    limn_lua_check(st, L, limn_region_custom(
        t, xs, n, limn_lua_check_trace(st, L, 2),
        limn_lua_check_trace(st, L, 3), &r));
  }
  if (t->tape) {
    region_push_value(st, L, t, r, dev ? dev : limn_device_cpu(st->c));
    return 1;
  }
  out.tag = LIMN_X_TRACED, out.trace = t, out.ref = r;
  limn_lua_push(st, L, &out);
  return 1;
}

/* on_node(kind): whether the run's device is of that kind ("cpu" or "gpu"), as
 * a plan value */
static int region_on(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_trace *t = region_outer(st, L);
  limn_arg kind;
  limn_ref r;
  limn_lua_check(st, L, limn_graph_str_arg(t->g, luaL_checkstring(L, 1),
                                           &kind));
  limn_lua_check(st, L, limn_trace_op(t, OP_on, &kind, 1, &r));
  limn_lua_push_dim(st, L, t, r);
  return 1;
}

/* on_guard(kind): the graph is for devices of that kind */
static int region_on_guard(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_value v;
  limn_arg a;
  region_on(L);
  limn_lua_value(st, L, -1, &v);
  limn_lua_check(st, L, limn_trace_arg(st->c->trace, &v, &a));
  limn_lua_check(st, L, limn_trace_guard(st->c->trace, a));
  return 0;
}

/* -- In eager code -- */

/* kind_of(...): "cpu" or "gpu": where the first tensor is that decides, else
 * where limn.on says */
static int region_kind_of(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_device *dev = st->dev;
  for (int i = 1; i <= lua_gettop(L); i++) {
    const limn_handle *h = limn_lua_to(st, L, i, LIMN_U_TENSOR);
    if (!h || !h->t || (h->t->v.ndim == 0 && h->t->st->dev->ops->host))
      continue;
    dev = h->t->st->dev;
    break;
  }
  lua_pushstring(L, dev && !dev->ops->host ? "gpu" : "cpu");
  return 1;
}

/* Random numbers inside: each step has a key of its own, made of the key
 * outside, the draw that the whole took, and the number of the step. */

/* region_run(f, ...): f's results; one draw is taken, and step 0 begins */
static int region_run(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  limn_context *c = st->c;
  uint64_t seed = c->seed, draw = c->draws;
  uint64_t outer_seed = st->region_seed, outer_draw = st->region_draw;
  limn_turn turn = {c->turn, 0}, *outer_turn = st->region_turn;
  int rc;
  st->region_seed = seed, st->region_draw = draw;
  st->region_turn = &turn;
  c->seed = limn_random_key(seed, 0, draw);
  c->draws = 0;
  rc = lua_pcall(L, lua_gettop(L) - 1, LUA_MULTRET, 0);
  st->region_seed = outer_seed, st->region_draw = outer_draw;
  st->region_turn = outer_turn;
  c->turn = turn.outer;
  c->seed = seed;
  c->draws = draw + 1;
  return rc ? lua_error(L) : lua_gettop(L);
}

/* chose(): eager code left a branch out, which a trace would record */
static int region_chose(lua_State *L) {
  limn_lua_state(L)->choices++;
  return 0;
}

/* choices(): how many there were so far */
static int region_choices(lua_State *L) {
  lua_pushnumber(L, limn_lua_state(L)->choices);
  return 1;
}

/* region_step(t): step t (from 0) of the loop that runs begins */
static int region_step(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  uint64_t t = (uint64_t)luaL_checknumber(L, 1);
  if (!st->region_turn) return 0;
  st->region_turn->step = (int64_t)t;
  st->c->turn = st->region_turn;
  st->c->seed = limn_random_key(st->region_seed, t, st->region_draw);
  st->c->draws = 0;
  return 0;
}

/* region_same(who, was, now): a carried value keeps its shape and dtype */
static int region_same(lua_State *L) {
  limn_lua *st = limn_lua_state(L);
  const char *who = luaL_checkstring(L, 1);
  limn_type was, now;
  char text[2][160];
  limn_lua_hint(st, L, 2, who, "the carried value", &was);
  limn_lua_hint(st, L, 3, who, "the carried value", &now);
  if (was.dtype == now.dtype && limn_shape_eq(&was.shape, &now.shape)) return 0;
  return limn_lua_fail(
      st, L, "a loop carries values of one shape and dtype",
      "%s: a carried value is %s and becomes %s", who,
      limn_type_text(text[0], sizeof text[0], &was),
      limn_type_text(text[1], sizeof text[1], &now));
}

/* set_replay(function): runs a node with regions on a tape (lua_inline.c) */
static int region_set_replay(lua_State *L) {
  luaL_checktype(L, 1, LUA_TFUNCTION);
  lua_settop(L, 1);
  lua_setfield(L, LUA_REGISTRYINDEX, "limn.replay");
  return 0;
}

static const luaL_Reg region_functions[] = {
    {"region_input", region_input}, {"region_leave", region_leave},
    {"region_give", region_give},   {"region_run", region_run},
    {"region_step", region_step},   {"region_same", region_same},
    {"region_dtype", region_dtype}, {"chose", region_chose},
    {"choices", region_choices},
    {"custom_node", region_custom},
    {"on_node", region_on},         {"on_guard", region_on_guard},
    {"kind_of", region_kind_of},    {"set_replay", region_set_replay},
    {"cond_node", region_cond},     {"while_node", region_while},
    {"scan_node", region_scan},     {NULL, NULL}};

void limn_lua_open_region(limn_lua *st, lua_State *L) {
  limn_lua_register(st, L, region_functions);
}
