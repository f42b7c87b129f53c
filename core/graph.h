/* Layer 2: the graph, its ops, the tracer, gradients and the text form.
 *
 * A graph is an arena of pure SSA nodes in topological order: a node refers
 * to earlier nodes only. There is nowhere to write a device, a size or a dtype
 * of an example. What is known before a run but not while tracing (sizes,
 * number inputs, modes, dtypes) is a node of the same arena with a host kind,
 * and may stand wherever an attribute or a number operand may. */
#ifndef LIMN_GRAPH_H
#define LIMN_GRAPH_H

#include "tensor.h"

typedef uint32_t limn_ref; /* index of a node + 1; 0 is none or failed */

/* The private enum of ops, in the order of ops.h. */
typedef enum {
  LIMN_OP_NONE,
#define E1(name, ...) OP_##name,
#define E2(name, ...) OP_##name,
#define E3(name, ...) OP_##name,
#define R(name, ...) OP_##name,
#define V(name, ...) OP_##name,
#define G(name, ...) OP_##name,
#define S(name, ...) OP_##name,
#define H(name, ...) OP_##name,
#include "ops.h"
  LIMN_NOP
} limn_op;

/* What a node or a resolved argument is. */
enum {
  LIMN_V_NONE, LIMN_V_TENSOR, LIMN_V_INT, LIMN_V_REAL, LIMN_V_BOOL,
  LIMN_V_DTYPE, LIMN_V_DEVICE, LIMN_V_STR, LIMN_V_LIST
};

/* One argument of a node as stored: an operand or an attribute. */
enum { LIMN_A_NONE, LIMN_A_REF, LIMN_A_INT, LIMN_A_REAL, LIMN_A_BOOL,
       LIMN_A_DTYPE, LIMN_A_STR, LIMN_A_LIST };
typedef struct {
  uint8_t tag;
  uint32_t n; /* LIST: number of elements */
  union {
    int64_t i; /* INT, BOOL, DTYPE */
    double f;
    limn_ref ref;
    uint32_t str; /* STR: offset in graph->text */
    uint32_t at;  /* LIST: index of the first element in graph->args */
  } u;
} limn_arg;

#define LIMN_MAXARGS 8

enum { LIMN_N_USER = 1 }; /* called for by the user, not by a gradient */
typedef struct {
  uint16_t op;
  uint8_t kind;   /* LIMN_V_* */
  int8_t rank;    /* of a tensor; fixed while tracing */
  uint8_t nargs;  /* in the order of the op's signature */
  uint8_t flags;  /* LIMN_N_* */
  uint16_t nresult; /* 1; of region ops any number (read by `pick`) */
  uint32_t args;  /* first in graph->args */
  uint32_t line;  /* text offset of "net.lua:14", 0: none */
  uint32_t path;  /* text offset of "policy.head", 0: none */
} limn_node;
struct limn_graph;

/* -- op.c: the rows at run time -- */
enum { LIMN_ROW_H, LIMN_ROW_E, LIMN_ROW_R, LIMN_ROW_V, LIMN_ROW_G, LIMN_ROW_S };
enum { LIMN_RULE_NUM, LIMN_RULE_FLT, LIMN_RULE_CMP, LIMN_RULE_TST,
       LIMN_RULE_LOG, LIMN_RULE_SEL, LIMN_RULE_SUM, LIMN_RULE_BIT };

typedef struct {
  char name[16];
  char type;   /* T S i r b s y d D L e */
  bool list;   /* "*" */
  bool may;    /* "?": may be absent */
  bool has_default;
  limn_arg def; /* of a scalar default; for `e` the name is def_text */
  char def_text[12];
} limn_param;

struct limn_type;
struct limn_builder;
typedef struct {
  const char *name, *meta, *domain, *sig, *expr, *doc;
  uint8_t row;   /* LIMN_ROW_* */
  uint8_t rule;  /* LIMN_RULE_*, for E, R, G */
  uint8_t arity; /* E: 1..3 */
  /* Shape, dtype (or host value) of the result from resolved arguments. */
  int (*infer)(limn_context *c, const struct limn_type *a,
               struct limn_type *out);
  /* V rows: where the result lies. 1: elements must move first (reshape). */
  int (*view)(limn_context *c, const struct limn_type *a, const limn_view *in,
              limn_view *out);
  /* S rows: the same in terms of other rows, or NULL. */
  limn_arg (*expand)(struct limn_builder *b, const limn_arg *a);
  /* Gradients of the operands into out[param]; NULL: not differentiable. For a
   * list operand out[0..n) are its elements'. `y` is the result. */
  void (*grad)(struct limn_builder *b, const limn_arg *a, limn_arg y,
               limn_arg g, limn_arg *out);
} limn_op_row;

const limn_op_row *limn_op_get(int op); /* never NULL for a valid op */
int limn_op_find(const char *name);  /* 0 when unknown */
/* Parse a row's signature into out[LIMN_MAXARGS]; returns the count. */
int limn_op_params(int op, limn_param *out);
/* Name nearest to `name` among the ops, or NULL. */
const char *limn_op_near(const char *name);
int limn_op_like(int op); /* the operand whose shape the result has, or -1 */
bool limn_op_random(int op); /* takes a draw */
/* Which parameters of a region op are its regions: their number, from *first
 * on. The results of one of them, that at parameter limn_op_body(op), are the
 * node's: of both branches of a cond the first, of a loop its body. */
int limn_op_regions(int op, int *first);
int limn_op_body(int op); /* -1: not a region op */
/* Kind (LIMN_V_*) and rank of a result from stored arguments, while tracing.
 * An elementwise op of host values only is a host value. limn_op_rank is 0 for
 * host values and a negative LIMN_E* when the arguments cannot have a rank. */
int limn_op_kind(const struct limn_graph *g, int op, const limn_arg *a,
                 int nargs);
int limn_op_rank(const struct limn_graph *g, int op, const limn_arg *a,
                 int nargs);

/* -- graph.c -- */
/* Nested structure of arguments and results, in preorder: a leaf, or a list
 * of n children, or a table with n string keys in sorted order. */
enum { LIMN_T_LEAF, LIMN_T_LIST, LIMN_T_DICT };
typedef struct {
  uint8_t tag;
  uint32_t n;   /* children */
  uint32_t key; /* text offset of this entry's key in a DICT parent, or 0 */
} limn_tree;

typedef struct {
  limn_ref ref;
  uint32_t name;             /* text offset */
  bool number;               /* a limn.number input */
  uint32_t dim[LIMN_MAXDIM]; /* named sizes, text offsets or 0 */
} limn_graph_input;
typedef struct {
  limn_cell *cell; /* retained */
  uint32_t name;   /* how this graph calls it */
  limn_ref ref;    /* its value on entry, 0 when only written */
  limn_arg write;  /* NONE, or its value on exit */
  uint32_t line;   /* of the write */
} limn_graph_cell;
typedef struct limn_watch { /* tells a graph that a captured handle moved on */
  int refs;
  bool changed;
} limn_watch;
typedef struct {
  limn_tensor *value; /* retained */
  uint32_t name;
  limn_ref ref;
  uint32_t line;
  limn_watch *watch; /* or NULL */
} limn_graph_const;
/* The training flag of a module, shared by the module and its graphs. */
typedef struct limn_mode {
  int refs;
  bool training;
} limn_mode;
typedef struct {
  limn_mode *mode; /* retained */
  uint32_t name;
} limn_graph_mode;
typedef struct {
  limn_arg cond; /* a bool plan value that must be true */
  uint32_t line;
} limn_guard;

/* Draws of a region that was inlined (rewrite.c): n from `first` on, which
 * count from 0 under the key that `parent`, an earlier one, gives. */
typedef struct {
  uint32_t first, n, parent;
} limn_draws;

typedef struct limn_graph {
  int refs;
  limn_context *c;
  char *name;
  limn_node *node;
  uint32_t nnode, node_cap;
  limn_arg *args;
  uint32_t nargs, args_cap;
  char *text; /* NUL-terminated strings; offset 0 is "" */
  uint32_t ntext, text_cap;
  limn_map strings; /* text -> offset */
  limn_graph_input *in;
  uint32_t nin, in_cap;
  limn_tree *in_tree; /* of the argument list: a LIST of arguments */
  uint32_t nin_tree, in_tree_cap;
  limn_arg *out; /* leaves: REF, INT, REAL, BOOL, STR or NONE (nil) */
  uint32_t nout, out_cap;
  limn_tree *out_tree; /* of the result list: a LIST of results */
  uint32_t nout_tree, out_tree_cap;
  limn_arg *statics; /* static arguments: leaves of in_tree that are values */
  uint32_t nstatic, static_cap; /* n == leaves of in_tree; REF: an input */
  limn_graph_cell *cell;
  uint32_t ncell, cell_cap;
  limn_graph_const *konst;
  uint32_t nconst, const_cap;
  limn_graph_mode *mode;
  uint32_t nmode, mode_cap;
  bool eager; /* one op, or a tape's backward graph: see eager.c */
  int mode_override; /* -1 none, 0 eval, 1 train; set by g:train() */
  limn_guard *guard;
  uint32_t nguard, guard_cap;
  limn_ref *effect; /* print nodes, in order */
  uint32_t neffect, effect_cap;
  struct limn_graph **region;
  uint32_t nregion, region_cap;
  uint32_t draws; /* random ops recorded: a run takes as many draws */
  limn_draws *inlined; /* of draws that no run takes, at the end */
  uint32_t ninlined, inlined_cap;
  /* Owned by plan.c: plans of this graph and what is derived from it. */
  struct limn_planner *planner;
  void (*planner_free)(struct limn_graph *g);
} limn_graph;

int limn_graph_new(limn_context *c, const char *name, limn_graph **out);
void limn_graph_retain(limn_graph *g);
void limn_graph_release(limn_graph *g);
/* A deep copy that shares cells, consts and modes; no plans. */
int limn_graph_clone(const limn_graph *g, limn_graph **out);
uint32_t limn_graph_str(limn_graph *g, const char *s); /* 0 on failure or "" */
int limn_graph_str_arg(limn_graph *g, const char *s, limn_arg *out);
static inline const char *limn_graph_text(const limn_graph *g, uint32_t at) {
  return at ? g->text + at : "";
}
static inline limn_node *limn_graph_node(const limn_graph *g, limn_ref r) {
  return &g->node[r - 1];
}
static inline limn_arg *limn_node_args(const limn_graph *g, limn_ref r) {
  return g->args + g->node[r - 1].args;
}
/* Copy `n` args into the pool; 0 and LIMN_EMEM on failure via *rc. */
int limn_graph_push_args(limn_graph *g, const limn_arg *a, uint32_t n,
                         uint32_t *at);
/* Append a node; kind and rank follow from the op and its operands. Checks
 * argument tags against the signature but no shapes. 0 on failure. */
limn_ref limn_graph_add(limn_graph *g, int op, const limn_arg *a, int nargs,
                        uint32_t line, uint32_t path);
int limn_graph_add_input(limn_graph *g, const char *name, int rank,
                         limn_ref *out); /* rank -1: a number input */
int limn_graph_add_cell(limn_graph *g, limn_cell *cell, const char *name,
                        uint32_t *index); /* finds it if already there */
int limn_graph_add_const(limn_graph *g, limn_tensor *t, const char *name,
                         uint32_t *index);
int limn_graph_add_mode(limn_graph *g, limn_mode *m, const char *name,
                        uint32_t *index);
int limn_graph_add_guard(limn_graph *g, limn_arg cond, uint32_t line);
int limn_graph_add_out(limn_graph *g, limn_arg a);
int limn_graph_add_effect(limn_graph *g, limn_ref r);
int limn_graph_add_region(limn_graph *g, limn_graph *r, uint32_t *index);
/* Input i becomes number to[i], or is dropped where that is -1 (nothing may
 * use it). */
int limn_graph_arrange(limn_graph *g, const int32_t *to, uint32_t n);
int limn_tree_push(limn_context *c, limn_tree **t, uint32_t *n, uint32_t *cap,
                   int tag, uint32_t children, uint32_t key);
/* Region number a->u.i, or NULL. */
struct limn_graph *limn_graph_region(const limn_graph *g, limn_arg a);
/* Whether node r prints, itself or in its regions: it stays, in order. */
bool limn_node_effect(const limn_graph *g, limn_ref r);
/* Call fn(arg*, user) for every REF in the node's arguments, lists too. */
void limn_node_refs(const limn_graph *g, limn_ref r,
                    void (*fn)(limn_ref ref, void *user), void *user);
/* How an argument is called in messages: "%x", "@w", "%3", "0.5". */
const char *limn_arg_text(const limn_graph *g, limn_arg a, char *buf,
                          size_t n);
void limn_mode_release(limn_mode *m, limn_context *c);
void limn_watch_release(limn_watch *w, limn_context *c);

static inline limn_arg limn_none(void) { return (limn_arg){0}; }
static inline limn_arg limn_aref(limn_ref r) {
  limn_arg a = {0};
  a.tag = LIMN_A_REF, a.u.ref = r;
  return a;
}
static inline limn_arg limn_aint(int64_t i) {
  limn_arg a = {0};
  a.tag = LIMN_A_INT, a.u.i = i;
  return a;
}
static inline limn_arg limn_areal(double f) {
  limn_arg a = {0};
  a.tag = LIMN_A_REAL, a.u.f = f;
  return a;
}
static inline limn_arg limn_abool(bool b) {
  limn_arg a = {0};
  a.tag = LIMN_A_BOOL, a.u.i = b;
  return a;
}
static inline limn_arg limn_adtype(int d) {
  limn_arg a = {0};
  a.tag = LIMN_A_DTYPE, a.u.i = d;
  return a;
}

/* -- infer.c: what is known of values once inputs are -- */
typedef struct limn_type {
  uint8_t kind; /* LIMN_V_* */
  bool known;   /* host kinds: the value below is known */
  uint8_t dtype; /* TENSOR: dtype; DTYPE: the value */
  bool weak;    /* TENSOR: never set; host numbers are weak by kind */
  limn_shape shape; /* TENSOR */
  int64_t i;        /* INT, BOOL, DTYPE */
  double f;         /* REAL */
  const char *s;    /* STR */
  const struct limn_type *list; /* LIST */
  int n;
} limn_type;

/* Types of all nodes of a graph for given inputs, filled on demand. */
typedef struct limn_infer {
  limn_context *c;
  limn_graph *g;
  limn_type *t; /* t[ref - 1] */
  uint32_t n, cap;
  const limn_type *in; /* per graph input */
  int on_gpu; /* the run's device kind for `on`; -1: unknown (tracing) */
  const char *device; /* its name for messages, or NULL */
} limn_infer;
/* Failures have their place already (limn_locate); node n + 1 failed. */
int limn_infer_upto(limn_infer *I, limn_ref r);
void limn_infer_free(limn_infer *I);
/* Resolve stored arguments to types; lists go to `pool` (of pool_n). */
int limn_infer_args(limn_infer *I, const limn_arg *a, int n, limn_type *out,
                    limn_type *pool, int pool_n);
/* What a convolution over the last n dims is made with. */
typedef struct {
  int n;
  int64_t stride[LIMN_MAXDIM], padding[LIMN_MAXDIM], dilation[LIMN_MAXDIM];
  int64_t groups;
} limn_conv;
/* One op from resolved arguments: dtype and shape rules, located by caller. */
int limn_infer_op(limn_context *c, int op, const limn_type *a, int n,
                  limn_type *out);
/* Value of a host op; all operands known. LIMN_ESIZE on overflow etc. */
int limn_host_eval(limn_context *c, int op, const limn_type *a, int n,
                   limn_type *out);
/* Computing dtype of an elementwise op's operands (after promotion). */
int limn_promote(const limn_type *a, int n, int rule, int *result,
                 int *operand);
limn_type limn_type_of(const limn_tensor *t);
/* Dims list of a reduce-like op as a 0/1 mask; absent: all. */
int limn_dims_mask(limn_context *c, const limn_type *dims, int ndim,
                   bool *mask);
/* first..last by step of one dim of size n as (start, count), 0-based. */
int limn_range(limn_context *c, int64_t n, int64_t first, int64_t last,
               int64_t step, int dim, int64_t *start, int64_t *count);
/* Dress an error of node r: line, op, operands with name, shape, dtype and
 * (device) text, module path. Returns code. */
int limn_locate(limn_infer *I, limn_ref r, int code, const char *device);

/* -- guard.c -- */
/* LIMN_EGUARD, with its place and words, for the first guard of I->g that is
 * known not to hold. Comes before all else: what was recorded for another size
 * may not even have shapes. */
int limn_guards_check(limn_infer *I);

/* -- build.c -- */
/* Builder: appends nodes; failure is sticky (returns NONE args). */
typedef struct limn_builder {
  limn_context *c;
  limn_graph *g;
  uint32_t line, path; /* given to new nodes */
  int rc;
} limn_builder;
limn_arg limn_build(limn_builder *b, int op, const limn_arg *a, int n);
limn_arg limn_build1(limn_builder *b, int op, limn_arg x);
limn_arg limn_build2(limn_builder *b, int op, limn_arg x, limn_arg y);
limn_arg limn_build3(limn_builder *b, int op, limn_arg x, limn_arg y,
                     limn_arg z);
limn_arg limn_build_list(limn_builder *b, const limn_arg *a, int n);
int limn_arg_rank(const limn_builder *b, limn_arg a); /* 0 for numbers */

/* -- trace.c, region.c -- */
/* What a region's input stands for: a value of the outer trace, or what a cell
 * holds when the region starts, which a loop's body may change. */
typedef struct {
  limn_arg outer;
  struct limn_cell *cell; /* or NULL */
} limn_capture;
typedef struct {
  struct limn_cell *cell; /* retained */
  limn_arg now;
} limn_region_cell;

/* A recording in progress. A `tape` records while eager code runs (values
 * exist); a trace records placeholders only. */
typedef struct limn_trace {
  int refs;
  limn_context *c;
  struct limn_trace *outer;
  limn_graph *g;
  bool tape, ended, strict;
  uint64_t id;
  char *what;       /* name of the traced function, for messages */
  limn_infer hints; /* types from the examples; never reach the graph */
  limn_type *in;    /* hint per input */
  uint32_t nin, in_cap;
  limn_tensor **value; /* tape: value[ref - 1], or NULL */
  uint32_t nvalue, value_cap;
  limn_map tensors;    /* tensor pointer -> const index / tape ref */
  bool region;         /* body of a region op: see limn_trace_arg */
  bool left;           /* region: its body has run, it is no trace any more */
  limn_capture *captured; /* region: what its last inputs are */
  uint32_t ncaptured, captured_cap;
  limn_region_cell *wrote; /* region: cells that it has assigned to */
  uint32_t nwrote, wrote_cap;
  /* Once it has ended: where each node was made, for values that were kept. */
  uint32_t *old_line, nold; /* offsets in old_text */
  char *old_text;
  uint32_t nold_text;
} limn_trace;

/* What an op is called with and gives: a host value, a tensor, a cell, or a
 * value of the innermost trace. */
typedef struct limn_value {
  uint8_t tag; /* LIMN_A_* for host values, or one of these */
  int64_t i;
  double f;
  const char *s;
  limn_tensor *t;
  limn_cell *cell;
  limn_trace *trace; /* with ref */
  limn_ref ref;
  struct limn_value *list;
  int n;
  limn_watch *watch;  /* of the handle the tensor came from */
  const char *name;   /* upvalue or field name for captures, or NULL */
} limn_value;
enum { LIMN_X_TENSOR = 16, LIMN_X_CELL, LIMN_X_TRACED };

/* Push a new innermost trace. region: a body whose outside values (tensors,
 * cells, values of the outer trace) become extra inputs after its own. */
int limn_trace_begin(limn_context *c, const char *name, bool tape, bool region,
                     limn_trace **out);
/* A tensor input with the example's type as its hint; rank from it. */
int limn_trace_input(limn_trace *t, const char *name, const limn_type *hint,
                     limn_ref *out);
int limn_trace_number(limn_trace *t, const char *name, double hint,
                      limn_ref *out);
/* Record op with one arg per parameter of its signature (NONE: absent), dims
 * of any sign; infers the hint, so that shape errors are raised here, with the
 * user's line. A random op's draw is filled in. */
int limn_trace_op(limn_trace *t, int op, const limn_arg *a, int n,
                  limn_ref *out);
/* A value as an argument of the trace's graph: captures tensors, reads cells,
 * copies lists. */
int limn_trace_arg(limn_trace *t, const limn_value *v, limn_arg *out);
int limn_trace_cell_read(limn_trace *t, limn_cell *cell, limn_arg *out);
int limn_trace_cell_write(limn_trace *t, limn_cell *cell, limn_arg v);
/* The training flag of a module as a plan value. */
int limn_trace_mode(limn_trace *t, limn_mode *m, const char *name,
                    limn_ref *out);
int limn_trace_guard(limn_trace *t, limn_arg cond);
const limn_type *limn_trace_hint(limn_trace *t, limn_ref r); /* NULL: failed */
/* End it: drops dead nodes, names cells, checks. The graph (+1) to *out. */
int limn_trace_end(limn_trace *t, limn_graph **out);
void limn_trace_abort(limn_trace *t); /* after an error; pops it */
/* Tape: remember that node r has this value (retained). */
int limn_trace_value(limn_trace *t, limn_ref r, limn_tensor *value);
/* Tape: a result that is the value of another node already, as a run returns
 * arguments that pass unchanged, becomes a tensor of its own. */
int limn_trace_apart(limn_trace *t, limn_tensor **value);
/* Fails: a value of an ended trace (or NULL) is used. */
int limn_trace_stale(limn_context *c, const limn_trace *t, limn_ref r);
/* "net.lua:14" of node r of an ended trace, or "". */
const char *limn_trace_old_line(const limn_trace *t, limn_ref r);
void limn_trace_retain(limn_trace *t);
void limn_trace_release(limn_trace *t);

/* A region op, from traces of its bodies. A body is begun as a region, given
 * inputs for what a loop carries, then for the rows that a scan takes, left
 * when its code has run, and given its results (`like`: a dtype or a tensor of
 * the region, for a number, which becomes a tensor). What else it uses of the
 * outer trace becomes further inputs; cells that it assigns become further
 * results, which the outer trace assigns. The results that were given come
 * first among the node's (of a scan: the carried, then those of `cells`
 * assigned cells, then the stacked). */
int limn_region_leave(limn_trace *t);
int limn_region_give(limn_trace *t, const limn_value *v, limn_arg like);
/* region_dtype.c: the dtype that value v of a region will have, for the trace
 * around it; `real`: beside a real number. own[i] is, there, what the region's
 * own input i starts as. */
int limn_region_dtype(limn_trace *t, limn_arg v, bool real,
                      const limn_arg *own, uint32_t nown, limn_arg *out);
int limn_region_cond(limn_trace *outer, limn_arg pred, limn_trace *f,
                     limn_trace *g, limn_ref *out);
int limn_region_while(limn_trace *outer, const limn_arg *carry, int n,
                      limn_trace *test, limn_trace *body, limn_ref *out);
int limn_region_scan(limn_trace *outer, const limn_arg *carry, int n,
                     const limn_arg *xs, int nx, limn_trace *body,
                     bool reverse, limn_ref *out, int *cells);

/* f has the inputs of xs, vjp a gradient and a result before those. */
int limn_region_custom(limn_trace *outer, const limn_arg *xs, int n,
                       limn_trace *f, limn_trace *vjp, limn_ref *out);

/* -- grad.c -- */
/* Append to g the gradient of `loss` (0-dim) with respect to wrt[n]; nodes
 * made before `start` are constants. out[i] is NONE when not reached. */
int limn_gradient(limn_graph *g, limn_ref start, limn_arg loss,
                  const limn_ref *wrt, int n, limn_arg *out);
/* The first op without a gradient through which y depends on x, or 0. */
limn_ref limn_gradient_stop(const limn_graph *g, limn_ref y, limn_ref x);

/* The body of a scan of nc carried and nx stepped values, with what its
 * gradient will need as further results. */
int limn_scan_widen(const limn_graph *body, uint32_t nc, uint32_t nx,
                    limn_graph **out);

/* -- simplify.c -- on graphs that the caller owns alone. */
/* Common subexpressions, dead code, shape algebra true for every dtype and
 * size. Keeps inputs, cells, draws and effects. */
int limn_simplify(limn_graph *g);
/* Drop nodes that nothing needs and renumber. */
int limn_graph_compact(limn_graph *g);
/* Append a copy of `from` to `to`: inputs[i] stands for input i; results to
 * out[from->nout]; cells and consts are shared; draws are renumbered. */
int limn_graph_inline(limn_graph *to, const limn_graph *from,
                      const limn_arg *inputs, limn_arg *out);

/* -- verify.c dump.c parse.c -- */
int limn_graph_verify(limn_graph *g); /* LIMN_EFORMAT with node and reason */
void limn_graph_dump(const limn_graph *g, limn_str *out, bool lines);
/* Parse one or more graphs. `find` gives the cell / const for a declared name
 * (retained), or fails. */
typedef struct {
  void *user;
  int (*cell)(void *user, const char *name, int kind, int dtype,
              const limn_shape *s, limn_cell **out);
  int (*konst)(void *user, const char *name, int dtype, const limn_shape *s,
               limn_tensor **out);
  int (*mode)(void *user, const char *name, limn_mode **out);
} limn_parse_env;
int limn_graph_parse(limn_context *c, const char *text, size_t n,
                     const limn_parse_env *env, limn_graph **out);

#endif
