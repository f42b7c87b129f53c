/* Inside the planner: what rewrite.c, fuse.c, emit.c, plan.c and exec.c share.
 *
 *   graph --rewrite--> expanded graph      once per graph and kind of device
 *         --infer----> types               per key, as all that follows
 *         --fuse-----> groups
 *         --emit-----> steps and slots
 *         --plan-----> scratch offsets, prepared steps
 *         --exec-----> binds slots (bind.c) and launches, every run          */
#ifndef LIMN_PLANNER_H
#define LIMN_PLANNER_H

#include "plan.h"

/* Blocks freed together. */
typedef struct limn_arena {
  limn_context *c;
  struct limn_arena_block *first;
  size_t bytes;
} limn_arena;
void *limn_arena_alloc(limn_arena *a, size_t n); /* zeroed; sets LIMN_EMEM */
void limn_arena_free(limn_arena *a);

/* What a slot of a plan stands for. */
enum {
  LIMN_SLOT_INPUT,   /* index: graph input */
  LIMN_SLOT_CELL,    /* the cell's value on entry */
  LIMN_SLOT_CONST,
  LIMN_SLOT_OUT,     /* index: graph output, freshly allocated */
  LIMN_SLOT_WRITE,   /* index: cell; its value on exit */
  LIMN_SLOT_TEMP     /* scratch */
};
typedef struct {
  uint8_t kind;
  uint8_t dtype;
  bool inplace;   /* WRITE: may be the cell's own memory */
  uint32_t index;
  limn_shape shape; /* OUT, WRITE */
  size_t bytes;
  int32_t first, last; /* steps that first and last touch it; -1: none */
  int64_t off;         /* TEMP: in scratch */
} limn_slot_info;

/* A number operand of the run: constant, or number `value` of the host
 * program. */
typedef struct {
  int32_t value; /* -1: constant */
  limn_imm k;
} limn_imm_source;

/* Host values that depend on number inputs, evaluated at every run. */
typedef struct {
  uint16_t op;
  uint8_t nargs;
  int32_t input;         /* OP_number: which */
  limn_type arg[3];      /* known operands */
  int32_t from[3];       /* or index of an earlier host value; -1 */
} limn_host_step;

typedef struct {
  uint8_t kind; /* LIMN_V_* of the result */
  uint8_t dtype;
  uint16_t slot;
  bool whole;    /* OUT slot of its own as it is; else a view of the slot */
  limn_view v;
  int32_t value; /* host result: index of the host program, or -1: `k` */
  limn_type k;
} limn_out_info;

typedef struct {
  uint32_t cell;
  uint16_t slot; /* WRITE: commit; else share a view of that slot */
  limn_view v;
  uint8_t dtype;
} limn_write_info;

/* -- Control flow: the plans in a step, and where their slots lie -- */
enum { /* a slot of an inner plan; `at`: which operand or carried value */
  LIMN_INNER_IN,    /* the step's input */
  LIMN_INNER_OUT,   /* the step's output */
  LIMN_INNER_TEST,  /* where a loop's test tells its result */
  LIMN_INNER_FIXED, /* from here on they move from step to step */
  LIMN_INNER_ROW = LIMN_INNER_FIXED, /* a row of the step's input */
  LIMN_INNER_STACK, /* a row of the step's output */
  LIMN_INNER_CARRY, /* what is carried, before and after this step */
  LIMN_INNER_NEXT
};
typedef struct {
  uint8_t kind;
  uint16_t slot, at;
  int64_t stride; /* bytes from row to row */
} limn_inner_slot;
typedef struct {
  struct limn_plan *p;
  limn_inner_slot *slot; /* the fixed ones first; temporaries are not here */
  uint32_t nslot, nfixed;
  limn_loop_value *loop; /* per fixed slot */
  limn_run_arg *arg; /* per input: numbers */
  int32_t *number;   /* per input: host value of the outer plan, or -1 */
  void *scratch;     /* what its temporaries are bound to */
  int64_t scratch_at;
} limn_inner;
/* step->code of COND, WHILE and SCAN. The step's inputs: a cond's predicate
 * (unless `pred` is a host value), then what the regions take; its outputs are
 * the node's results. Carried values alternate between their result and
 * `spare`. */
typedef struct limn_region_plan {
  struct limn_region_plan *next; /* of the outer plan */
  limn_inner in[2]; /* cond: both branches; while: test, body; scan: body */
  int n;
  int32_t pred;   /* host value of the outer plan, or -1 */
  uint32_t draw;  /* of the outer plan */
  int64_t steps;  /* of a scan */
  bool reverse;
  uint32_t ncarry, first; /* the step's input of the first carried value */
  limn_operand *spare;    /* per carried value */
  limn_operand test;      /* a bool */
  int32_t scratch;        /* slot, -1: none */
  limn_step *fix[2]; /* while: the carried values to the results, from where
                        the loop starts and from `spare` */
  uint32_t nfix[2], nprepared[2];
} limn_region_plan;

typedef struct limn_plan {
  limn_context *c;
  limn_graph *g; /* the graph it belongs to; not retained */
  limn_device *dev;
  limn_arena mem;
  struct limn_plan *next;        /* in the planner, most recent first */
  struct limn_plan *lru_prev, *lru_next;
  limn_graph *expanded; /* retained: what the steps' nodes are in */
  const limn_type *in_type; /* per graph input */
  const limn_view *in_view;
  size_t bytes;
  int pins; /* calls that hold it: not evicted */
  uint64_t *key;
  uint32_t nkey;
  limn_step *step;
  uint32_t nstep, step_cap;
  limn_slot_info *info;
  limn_slot *slot; /* bound at each run */
  uint32_t nslot, slot_cap;
  limn_imm_source *imm_from;
  limn_imm *imm;
  uint32_t nimm, imm_cap;
  limn_host_step *host;
  limn_type *host_value;
  uint32_t nhost, host_cap;
  limn_draw *draw; /* of the run, per draw of `expanded` */
  bool random;     /* some step, here or further in, reads them */
  bool inner;      /* in a step of another plan: results go where it says */
  limn_region_plan *regions;
  limn_out_info *out;
  limn_write_info *write;
  uint16_t *bind;        /* slots that every run binds: all but TEMP */
  uint32_t nbind;
  void *bound_scratch;   /* what the TEMP slots are bound to */
  limn_tensor **written; /* per slot: memory made for this run, or NULL */
  limn_tensor **spare;   /* per WRITE slot of a pinned plan: what the cell had
                            before, for the next run to write to */
  limn_tensor **commit;  /* per write: the value to commit */
  limn_tensor **held;    /* per input: a copy on the device, or NULL */
  uint32_t nwrite, nstep_prepared;
  size_t scratch;
  double cost_ns;
  bool busy;
  uint64_t *step_ns; /* per step, where its time is wanted, or NULL */
  bool dry; /* a check: writes are not committed but given to `kept` */
  limn_tensor **kept; /* per write, +1 */
} limn_plan;

typedef struct { /* what a module path or line gave last */
  char *name;
  limn_tensor *value; /* +1, or NULL before the first run */
} limn_kept;

typedef struct { /* a key for which a guard did not hold, and what it said */
  uint64_t *key;
  uint32_t nkey;
  char *error, *hint;
} limn_refusal;

typedef struct limn_planner {
  limn_graph *expanded[8]; /* per device index, made when first needed */
  uint32_t expanded_policy[8];
  limn_plan *first;
  limn_cell **konst; /* captured tensors follow the run like cells */
  uint32_t konst_cap;
  uint8_t *size_number; /* number inputs that are used as sizes */
  uint8_t *reads;       /* tensor inputs of which not only the type is used */
  limn_graph_stats stats;
  uint64_t *keybuf;
  uint32_t keycap;
  limn_graph *shadow; /* for LIMN_VERIFY */
  limn_graph *keep;   /* for LIMN_DEBUG_KEEP: a copy with more results */
  limn_kept *kept;
  uint32_t nkept, kept_cap;
  limn_refusal refused[8]; /* the latest, so that limn.jit asks cheaply */
  uint32_t nrefused;       /* so far */
} limn_planner;

int limn_planner_get(limn_graph *g, limn_planner **out); /* marks.c */
/* Whether a region of node r reads element i of its lists of operands. */
bool limn_region_reads(const limn_graph *g, limn_ref r, uint32_t i);
void limn_planner_free(limn_graph *g);

/* rewrite.c: g with everything expanded for which dev has no kernel. */
int limn_rewrite(limn_graph *g, limn_device *dev, limn_graph **out);
/* I->g with the branches inlined that I knows to be taken; NULL: none. */
int limn_rewrite_known(limn_infer *I, limn_device *dev, limn_graph **out);

/* fuse.c: which nodes share a step. */
typedef struct {
  limn_ref root;   /* last member; where the step is placed */
  limn_ref product; /* this group is the epilogue of that product, or 0 */
  uint32_t nmember, nin, nout;
  limn_shape shape; /* iteration space */
  bool reduce;      /* root reduces the value of the others */
} limn_fuse_group;
typedef struct {
  limn_infer *I;
  limn_ref *canon;  /* per node: what it is the same value as (itself) */
  int32_t *group;   /* per node, -1: none */
  uint8_t *stored;  /* per node: its value must be in memory */
  uint8_t *again;   /* per node: computed in each group that uses it */
  uint8_t *needed;
  limn_fuse_group *groups;
  uint32_t ngroup;
  limn_ref *chain; /* per update: the last one of its chain, see rule 6 */
  uint8_t *late;   /* per update: whether it is done with the last one */
} limn_fused;
/* Arrays live in the arena. */
int limn_fuse(limn_infer *I, limn_device *dev, limn_arena *a,
              limn_fused *out);
/* Elementwise: element i of the result needs element i of the operands. */
bool limn_fuse_like(const limn_infer *I, limn_ref r);
bool limn_fold_reduces(const limn_infer *I, limn_ref r);
int limn_op_types(int op, char *out); /* letters of [LIMN_MAXARGS] params */

/* emit.c: steps and slots of the plan. */
int limn_emit(limn_plan *p, limn_infer *I, limn_fused *f, limn_arena *tmp);

/* eager.c: the cache of graphs by key. `find` borrows; `keep` takes g. */
limn_graph *limn_eager_find(limn_context *c, const void *key, size_t n);
int limn_eager_keep(limn_context *c, const void *key, size_t n, limn_graph *g);
/* limn_apply outside and on a tape. */
int limn_eager_apply(limn_context *c, int op, const limn_value *a, int n,
                     limn_device *dev, limn_value *out);
int limn_tape_apply(limn_trace *t, int op, const limn_value *a, int n,
                    limn_device *dev, limn_value *out);
/* eager_region.c: a scan in eager code, on a tape too. list[3]: carry, xs,
 * outer. out[body->nout] is +1. */
int limn_eager_scan(limn_context *c, limn_graph *body, const limn_value *list,
                    bool reverse, limn_tensor **out);

/* tape.c: whether a region draws numbers, itself or in its regions. */
bool limn_region_draws(const limn_graph *f);

/* plan.c */
int64_t limn_saturate(double f); /* NaN is 0 */
int limn_plan_find(limn_graph *g, limn_device *dev, const limn_run_arg *in,
                   limn_plan **out); /* from the cache, or made */
void limn_plan_free(limn_plan *p);
/* A plan for a region, in a step of `outer`. */
int limn_plan_inner(limn_plan *outer, limn_graph *region, const limn_type *in,
                    const limn_view *view, limn_plan **out);
/* A pinned plan is not evicted and runs without allocating. */
void limn_plan_pin(limn_plan *p);
void limn_plan_unpin(limn_plan *p);

/* plan_key.c: the key of a call in n->keybuf; its length. */
uint32_t limn_plan_key(limn_graph *g, limn_planner *n, limn_device *dev,
                       const limn_run_arg *in);
uint32_t limn_plan_policy(const limn_context *c);
bool limn_plan_dense(const limn_view *v); /* but for dims of one element */
/* Note in n->stats which field of the key differs from the latest plan's. */
void limn_plan_miss(limn_graph *g, limn_planner *n, limn_device *dev,
                    const limn_run_arg *in);

/* exec.c: check the arguments and find their plan. */
int limn_plan_get(limn_graph *g, limn_device *dev, const limn_run_arg *in,
                  limn_plan **out);
/* Run a plan found for these arguments. scratch NULL: the device's. */
int limn_plan_run(limn_plan *p, const limn_run_arg *in,
                  limn_tensor *const *into, void *scratch, limn_result *out);

/* bind.c: in the order of a run. Outputs given by the caller overlap nothing;
 * all memory is there; inputs stay as long as the run; slots let go again. */
int limn_plan_check_into(limn_plan *p, const limn_run_arg *in,
                         limn_tensor *const *into, uint32_t k);
int limn_plan_bind(limn_plan *p, const limn_run_arg *in,
                   limn_tensor *const *into, void *scratch);
void limn_plan_hold(limn_plan *p, const limn_run_arg *in);
void limn_plan_unbind(limn_plan *p, const limn_run_arg *in);
int limn_plan_scratch(limn_plan *p); /* as large as this plan needs */
/* Nobody else holds it, so that its memory may be written. */
bool limn_tensor_is_free(const limn_tensor *t);
/* What number inputs decide, and what the draws are, in a run with this key. */
int limn_plan_numbers(limn_plan *p, const limn_run_arg *in);
void limn_plan_draws(limn_plan *p, uint64_t seed, uint64_t draw0);
int limn_plan_steps(limn_plan *p, const limn_bind *b, bool *started);
int limn_plan_step(limn_plan *p, const limn_step *s, const limn_bind *b);
/* exec_region.c: a COND, WHILE or SCAN step. */
int limn_plan_region(limn_plan *p, const limn_step *s, const limn_bind *b);
/* finite.c: after a step, where LIMN_DEBUG_NAN is set. */
int limn_finite_check(limn_plan *p, const limn_step *s, const limn_bind *b);
/* keep.c: run, and keep what each path and line gave last. */
int limn_keep_run(limn_graph *g, limn_device *dev, const limn_run_arg *in,
                  limn_tensor *const *into, limn_result *out);
void limn_keep_free(limn_graph *g);
/* plan_verify.c: run, and compare with the graph unfused (LIMN_VERIFY=1). */
int limn_plan_verify(limn_plan *p, const limn_run_arg *in,
                     limn_tensor *const *into, limn_result *out);
/* print.c: a LIMN_STEP_PRINT of a running plan. */
int limn_plan_print(limn_plan *p, const limn_step *st);
void limn_plan_dump(const limn_plan *p); /* as LIMN_DUMP asks */
void limn_results_release(limn_graph *g, limn_result *out);
/* site.c: the number of an op's place in the code; 0: no memory. */
uint32_t limn_error_site(limn_context *c, int op, const char *line,
                         const char *path, bool label);

#endif
