/* Layer 5: what the files of the Lua module `limn.core` share.
 *
 * The classic Lua C API only. A binding's state hangs off the registry and is
 * upvalue 1 of every C function. Rules: userdata are pushed first and filled
 * after; a Lua error is raised only when no C temporary is held (temporaries
 * that may be alive then are userdata too). */
#ifndef LIMN_LUA_CORE_H
#define LIMN_LUA_CORE_H

#include <lauxlib.h>
#include <lua.h>

#include "plan.h"

#define LIMN_TCDATA 10 /* lua_type of a LuaJIT cdata */

enum { /* kinds of userdata */
  LIMN_U_TENSOR, LIMN_U_CELL, LIMN_U_GRAPH, LIMN_U_TRACE, LIMN_U_MODE,
  LIMN_NU
};

#define LIMN_MAXPATH 64
typedef struct { /* one entered module of the module path */
  const char *name;  /* kept alive by the table `ref_path` */
  char range[96];    /* "net.lua:8-12" of its forward */
  int depth;         /* of the Lua stack when it was entered */
} limn_lua_path;

typedef struct limn_lua {
  limn_context *c;
  lua_State *L;   /* the coroutine that called last */
  bool owned;     /* the context is closed with the Lua state */
  lua_State *tracer; /* the coroutine whose function is traced, or NULL */
  int ref_tracer;    /* keeps it alive */
  int ref_left;      /* a function to call when it has yielded */
  const void *mt[LIMN_NU]; /* metatables, as lua_topointer gives them */
  int ref_mt[LIMN_NU];
  int ref_methods, ref_cell_methods; /* tables behind __index */
  int ref_dims;   /* weak table: cdata -> userdata of its node */
  int ref_shape;  /* metatable of x.shape, or LUA_NOREF */
  int ref_maker;  /* function that makes a Dim's cdata, or LUA_NOREF */
  int ref_scope;  /* list of the handles of the innermost limn.scope */
  int ref_path;
  int ref_called; /* weak table: limn's Lua functions -> their names */
  bool scope;
  limn_device *dev; /* limn.on: where generators work; NULL: the CPU */
  uint64_t region_seed, region_draw; /* of the running cond or loop */
  limn_turn *region_turn;
  uint32_t choices; /* that data or modes made in eager code */
  char capture[128]; /* name of the tensor that is being captured */
  size_t live;    /* C bytes after the last full collection */
  char prefix[512]; /* "@.../lua/limn/": sources that are limn's own */
  char cwd[1024];   /* with a final slash */
  limn_lua_path path[LIMN_MAXPATH];
  int npath;
  limn_param param[LIMN_NOP][LIMN_MAXARGS];
  uint8_t nparam[LIMN_NOP], nuser[LIMN_NOP]; /* without `draw` */
} limn_lua;

/* A Lua tensor: a handle to a value, or a value of a trace. The node behind a
 * Dim has the same form. */
enum { LIMN_H_ROW = 1, LIMN_H_ARG = 2, LIMN_H_FREED = 4 };
typedef struct {
  limn_tensor *t;
  limn_trace *trace; /* retained; with ref */
  limn_ref ref;
  uint8_t flags;     /* LIMN_H_* */
  limn_watch *watch; /* made when a trace captures the handle */
} limn_handle;

typedef struct {
  limn_graph *g;
  limn_device *dev;  /* graph:on(device), or NULL */
  bool named_dims;   /* some input has named sizes to compare */
} limn_lua_graph;

typedef struct {
  limn_mode *mode;
  limn_context *c;
  char name[96];
} limn_lua_mode;

/* -- lua_core.c -- */
/* lua_trace.c: end the trace of a coroutine that yielded in the middle. */
void limn_lua_left(limn_lua *st);
static inline limn_lua *limn_lua_state(lua_State *L) {
  limn_lua *st = lua_touserdata(L, lua_upvalueindex(1));
  st->L = L;
  if (st->tracer && st->tracer != L) limn_lua_left(st);
  return st;
}
/* The userdata at i if it is of that kind, else NULL. */
void *limn_lua_to(limn_lua *st, lua_State *L, int i, int kind);
/* Push a zeroed userdata of that kind. */
void *limn_lua_new(limn_lua *st, lua_State *L, int kind, size_t size);
limn_handle *limn_lua_new_tensor(limn_lua *st, lua_State *L);
/* Raise the context's error (located, with its hint). */
int limn_lua_raise(limn_lua *st, lua_State *L);
int limn_lua_fail(limn_lua *st, lua_State *L, const char *hint,
                  const char *fmt, ...) LIMN_PRINTF(4, 5);
static inline void limn_lua_check(limn_lua *st, lua_State *L, int rc) {
  if (rc < 0) limn_lua_raise(st, L);
}
/* Collect garbage when handles hold much C memory that Lua cannot see. */
void limn_lua_press(limn_lua *st, lua_State *L);
/* "net.lua:14" of the innermost user frame (at most n bytes); false if none.
 * As messages want it: with the path as Lua shows it. */
bool limn_lua_where(limn_lua *st, lua_State *L, char *buf, size_t n);
/* The level of the innermost Lua frame outside limn, or -1; its depth counted
 * from the bottom; and which of limn's functions it called, "" if that is an
 * op. */
int limn_lua_user_frame(limn_lua *st, lua_State *L, lua_Debug *ar, int *depth,
                        const char **called);
/* A setter's work: its argument, of that Lua type, takes the place of what *ref
 * names in the registry. */
int limn_lua_keep(lua_State *L, int type, int *ref);
/* Register functions with upvalue 1 in the table on the top. */
void limn_lua_register(limn_lua *st, lua_State *L, const luaL_Reg *f);
/* ", did you mean 'a' or 'b'?" for the string keys of the table at i. */
void limn_lua_near(lua_State *L, const char *word, int i, char *buf,
                   size_t n);
/* What is at i, in words: "a table", "tensor float32 [2, 3] on cpu". */
const char *limn_lua_what(limn_lua *st, lua_State *L, int i, char *buf,
                          size_t n);

/* -- lua_args.c -- */
#define LIMN_POOL 24
typedef struct {
  limn_value a[LIMN_MAXARGS];
  limn_value pool[LIMN_POOL]; /* elements of short lists */
  int npool;
} limn_args;
/* Is a trace (not a tape) recording? */
static inline limn_trace *limn_lua_tracing(const limn_lua *st) {
  return st->c->trace && !st->c->trace->tape ? st->c->trace : NULL;
}
/* The value at i: a tensor, cell, Dim, token, number, bool or string. False if
 * it is none; raises when it is stale. */
bool limn_lua_value(limn_lua *st, lua_State *L, int i, limn_value *v);
/* The tensor-like value at i, or an error that names `who` and `what`. */
void limn_lua_operand(limn_lua *st, lua_State *L, int i, const char *who,
                      const char *what, limn_value *v);
limn_value limn_vint(int64_t i);
limn_value limn_vreal(double f);
limn_value limn_vnum(double f); /* an int when whole */
/* n elements of a list, from the pool or a userdata pushed on the stack. */
limn_value *limn_args_list(limn_args *a, lua_State *L, int n);
/* Ints (or Dims) of a list at i; raises for anything else. */
void limn_args_ints(limn_lua *st, lua_State *L, int i, const char *who,
                    const char *what, limn_args *a, limn_value *out);
bool limn_lua_has_keys(lua_State *L, int i); /* a table with string keys */
/* A dtype or a device where options stand. trace tokens: dtype values, or the
 * run's device. `dtype` is left alone when none is given. */
typedef struct {
  limn_value dtype;
  limn_device *dev;
  bool has_dev; /* given, perhaps as the trace's token (dev NULL) */
} limn_place;
/* Reads arguments from i on; false at the first that is neither. */
bool limn_lua_place(limn_lua *st, lua_State *L, int i, const char *who,
                    limn_place *p);
/* Parse the Lua arguments from `first` on by op's signature. */
void limn_args_parse(limn_lua *st, lua_State *L, int op, int first,
                     limn_args *out);
/* Apply op and push its result; 1. */
int limn_lua_apply(limn_lua *st, lua_State *L, int op, const limn_value *a,
                   int n, limn_device *dev);
/* An error of `who` where v is a whole number that an int dtype lacks. */
void limn_lua_holds(limn_lua *st, lua_State *L, const char *who,
                    const limn_value *v, int dtype);
/* Push a result of limn_apply and the like (takes its references). */
void limn_lua_push(limn_lua *st, lua_State *L, limn_value *v);
int limn_lua_op(lua_State *L); /* the closure of an op: upvalue 2 */
void limn_lua_ops(limn_lua *st, lua_State *L); /* push {name = function} */
const char *limn_lua_op_name(int op);

/* -- lua_error.c, lua_tensor.c, lua_index.c, lua_make.c, lua_cell.c, lua_dim.c,
 * lua_trace.c, lua_region.c, lua_graph.c, lua_info.c, lua_grad.c, lua_device.c,
 * lua_model.c: functions for `limn.core` and metatables -- */
void limn_lua_open_error(limn_lua *st, lua_State *L);
void limn_lua_open_tensor(limn_lua *st, lua_State *L);
void limn_lua_open_index(limn_lua *st, lua_State *L);
void limn_lua_open_make(limn_lua *st, lua_State *L);
void limn_lua_open_cell(limn_lua *st, lua_State *L);
void limn_lua_open_dim(limn_lua *st, lua_State *L);
void limn_lua_open_trace(limn_lua *st, lua_State *L);
void limn_lua_open_region(limn_lua *st, lua_State *L);
void limn_lua_open_graph(limn_lua *st, lua_State *L);
void limn_lua_open_info(limn_lua *st, lua_State *L);
void limn_lua_open_grad(limn_lua *st, lua_State *L);
void limn_lua_open_device(limn_lua *st, lua_State *L);
void limn_lua_open_model(limn_lua *st, lua_State *L);
void limn_lua_open_scan(limn_lua *st, lua_State *L);

/* The tensor at i as an eager value: of a handle, or of a cell (borrowed);
 * raises for traced values with what to do instead. */
limn_tensor *limn_lua_eager(limn_lua *st, lua_State *L, int i,
                            const char *who);
/* Index the tensor at 1 with the key at 2; pushes the result. */
int limn_lua_index(limn_lua *st, lua_State *L);
/* Assign the value at 3 to part (key at 2) of the tensor or cell value `x`;
 * pushes the new value. */
void limn_lua_update(limn_lua *st, lua_State *L, const limn_value *x);
/* The Lua value of one element; raises for int64 beyond 2^53. */
void limn_lua_push_element(limn_lua *st, lua_State *L, int dtype,
                           const void *p);
/* What is known of the tensor-like value at i; raises for other values. */
void limn_lua_hint(limn_lua *st, lua_State *L, int i, const char *who,
                   const char *what, limn_type *out);
limn_trace *limn_lua_check_trace(limn_lua *st, lua_State *L, int i);
/* Push a placeholder: a new tensor input of the trace. */
int limn_lua_push_input(limn_lua *st, lua_State *L, limn_trace *t,
                        const char *name, const limn_type *hint);
/* Push a new Dim (or token) for a host node. */
void limn_lua_push_dim(limn_lua *st, lua_State *L, limn_trace *t,
                       limn_ref ref);
/* The node of the Dim or token at i, or NULL. */
limn_handle *limn_lua_dim(limn_lua *st, lua_State *L, int i);
/* Forget the capture of a handle that gets another value. */
void limn_lua_moved(limn_lua *st, limn_handle *h);
/* Push the graph as an object (takes the reference). */
void limn_lua_push_graph(limn_lua *st, lua_State *L, limn_graph *g);
limn_lua_graph *limn_lua_check_graph(limn_lua *st, lua_State *L, int i);
/* Push the results of g, whose leaves stand at stack index base and on; gives
 * their number. */
int limn_lua_results(limn_graph *g, lua_State *L, int base);
/* Apply g's ops to one value per input; pushes the results. */
int limn_lua_inline(limn_lua *st, lua_State *L, limn_graph *g,
                    const limn_value *in);
/* Node n of g, which has regions, on a tape: of its operands' values, per node
 * in of[], its results come into the table at `keep`, as a list at n. */
void limn_lua_replay(limn_lua *st, lua_State *L, limn_graph *g, limn_value *of,
                     limn_value *pool, int keep, limn_device *dev, limn_ref n);
/* Whether an op with these arguments has no tensor to follow. */
bool limn_lua_places(const limn_value *a, int n);
/* Push one of the results that limn_lua_replay keeps. */
void limn_lua_picked(lua_State *L, int keep, limn_ref n, int64_t index);
/* Release what a handle holds; it is FREED afterwards if `freed`. */
void limn_lua_drop(limn_handle *h, bool freed);

#endif
