/* Layer 3: what a device is, and the steps that a plan hands to it.
 *
 * The planner turns a graph with known shapes into steps; a device prepares
 * each step once (chooses or compiles a kernel) and launches it at every run.
 * A step holds shapes, strides and dtypes; memory, number operands and random
 * state come with the run in a limn_bind, so that they never compile. */
#ifndef LIMN_DEVICE_H
#define LIMN_DEVICE_H

#include "graph.h"

struct limn_device;

/* Where a step reads or writes: a memory slot of the plan and a view of it
 * (strides and offset in elements of `dtype`, from the slot's start). */
typedef struct {
  uint16_t slot;
  uint8_t dtype;
  limn_view v;
} limn_operand;

/* -- Fused groups ---------------------------------------------------------
 * A group computes, for every element of one iteration space in row-major
 * order, a straight line of instructions in SSA form: instruction k gives
 * value k, operands are earlier ones. Loads convert to the computing type of
 * their dtype (limn_dtype_compute), stores convert back. An instruction whose
 * dtype is narrower than its computing type (float16, bfloat16, int8, uint8)
 * rounds or wraps its value as a store and load would, so that fusing never
 * changes a result. */
enum { /* pseudo ops of groups; other values of `op` are E and G rows */
  LIMN_I_LOAD = LIMN_NOP, /* arg: index of the step's input */
  LIMN_I_IMM,             /* arg: index of the run's number operand */
  LIMN_I_CAST,            /* a converted to dtype */
  LIMN_I_STORE            /* a to output number arg (dtype: the output's) */
};
typedef struct {
  uint16_t op;
  uint8_t dtype; /* of the value (for CMP, TST and LOG rows: bool) */
  uint8_t ctype; /* E rows: the type T that the expression is computed in
                    (f32 f64 i32 i64, LOG: bool); operands have that computing
                    type already, except `where`'s a, which is bool */
  uint16_t a, b, c; /* operand instructions */
  uint16_t arg;     /* LOAD, IMM, STORE: index. G rows: of bind->draw; arange's
                       first and step, randint's low and high are operands
                       a, b */
} limn_instr;
/* G rows in groups: arange(a = first, b = step), rand_bits, rand, randn,
 * randint(a = low, b = high); element number = row-major index in the
 * iteration space before it was collapsed, which collapsing keeps. */
typedef struct {
  int ncode;
  limn_instr *code;
} limn_group;

/* -- Steps ---------------------------------------------------------------- */
enum {
  LIMN_STEP_GROUP,   /* out[], in[]: all views have the iteration shape
                        (inputs broadcast by stride 0), collapsed together */
  LIMN_STEP_REDUCE,  /* op: sum prod max min any all. in[0] is a view of shape
                        [kept..., reduced...] with `nkeep` kept dims; out[0] is
                        dense with the kept dims. No group: plain reduction;
                        with one: its inputs all have in[0]'s shape, the value
                        of its only STORE is reduced */
  LIMN_STEP_MATMUL,  /* out[0] [batch..., M, N] dense; in[0] [batch..., M, K],
                        in[1] [batch..., K, N] with broadcast batch strides;
                        in both the last two dims have a stride of 1 in at
                        least one (or that dim is 1). All three of one dtype.
                        bias: in[2] if `bias`: a vector [N] (stride 1), added.
                        epilogue group (or NULL): LOAD 0 is the product, further
                        loads are in[3..] with out's shape; stores to out[0] */
  LIMN_STEP_ARG,     /* argmax argmin: in[0] [outer, n, inner] dense ->
                        out[0] int64 [outer, inner], position + base */
  LIMN_STEP_ROW,     /* softmax log_softmax: [outer, n, inner] dense both.
                        CPU only: softmax_back log_softmax_back: in[1] too */
  LIMN_STEP_NORM,    /* layer_norm rms_norm: in[0] and out[0] [rows, n] dense,
                        then the weight if `flag` and the bias if `bias`, both
                        dense [n]. layer_norm_back rms_norm_back: x and g
                        [rows, n], the weight if `flag`. One dtype; eps. CPU
                        only: layer_norm_sums rms_norm_sums: x and g ->
                        out[0] [parts, 2, n] in float32 or float64, which may
                        be out[1] of layer_norm_back rms_norm_back, too */
  LIMN_STEP_BATCH,   /* CPU only. in[0] [rows, channels, size] dense -> out[0]
                        [2, channels, 1...]. batch_norm_stats: any float dtype;
                        batch_norm_sums: x and g of one, in[2] [channels] dense
                        in the output's */
  LIMN_STEP_CUM,     /* cumsum logcumsumexp (reverse in flag) cumprod cummax
                        cummin: as ROW; computed in the output's dtype */
  LIMN_STEP_SELECT,  /* index_select: in[0] x [outer, n, inner] dense, in[1]
                        index int64 [m] dense -> out[0] [outer, m, inner] */
  LIMN_STEP_GATHER,  /* gather along `dim`: in[1] int64 and out[0] dense of one
                        shape; in[0] any strides, same ndim */
  LIMN_STEP_INDEX_ADD,   /* out[0] [outer, n, inner] += in[1] [outer, m, inner]
                            at in[0] int64 [m]; out already holds x */
  LIMN_STEP_SCATTER_ADD, /* out[0] dense += in[1] at in[0] (one shape, dense,
                            int64) along dim; out already holds x. Of the op
                            scatter: = instead of += */
  LIMN_STEP_SORT,    /* argsort: in[0] [outer, n, inner] dense -> out[0] int64,
                        positions + base; descending in flag */
  LIMN_STEP_POOL,    /* CPU only. max_pool2_f32: in[0] the windows of x, a view
                        [planes, down, across, kernel...] -> out[0] [planes,
                        down, across] dense. max_pool2_f32_back: y and g like
                        that too -> out[0] [planes, height, width] */
  LIMN_STEP_CONV,    /* conv: x [rows, in, size...], w [out, in / groups,
                        kernel...] -> y [rows, out, positions...].
                        conv_transpose: y, w -> x. conv_weights: x, y -> w.
                        All dense and of one dtype; `conv`. No side is of size
                        0 but rows and, of inputs, channels and sizes: then all
                        elements are 0. An epilogue as MATMUL's, but no bias */
  LIMN_STEP_LINALG,  /* CPU only. in[0] [count, m, n] -> out[0] [count, any,
                        any], all dense; solve, solve_triangular: in[1]
                        [count, n, any]; upper in flag */
  /* The host does these; exec.c, exec_region.c. */
  LIMN_STEP_PRINT,
  LIMN_STEP_COND,    /* in[0], or a number, decides which of two plans runs */
  LIMN_STEP_WHILE,   /* a plan for the test, one for the body */
  LIMN_STEP_SCAN     /* a plan for the body */
};
struct limn_bind;
#define LIMN_STEP_IN 32 /* a group has at most so many inputs, outputs */
#define LIMN_STEP_OUT 12

typedef struct limn_step {
  uint8_t kind;
  uint16_t op, nin, nout;
  uint8_t nkeep, dim; /* dim: 0-based */
  bool bias, flag;
  int64_t base; /* of positions: 1 from Lua */
  double eps;   /* of NORM */
  limn_conv *conv; /* of CONV, or NULL */
  limn_operand *in, *out;
  limn_group *group; /* or NULL */
  uint32_t site;     /* for data errors: see limn_fault */
  limn_ref node;     /* the graph node that it computes, for explain */
  void *code;        /* the device's, set by prepare, freed by discard */
  /* CPU: run tiles [t0, t1) of ntiles; set by prepare. */
  void (*run)(const struct limn_step *s, const struct limn_bind *b,
              int64_t t0, int64_t t1);
  int64_t ntiles;
  double cost_ns; /* rough cost of the whole step, to decide on threads */
} limn_step;

/* The first data error of a run. LIMN_EINDEX: an index out of range; the kernel
 * reads element 1 instead and goes on. LIMN_EVALUE: matrix number `at` of
 * `limit` has no result; `base` says why, `value` at which pivot. */
enum { LIMN_FAULT_SINGULAR = 1, LIMN_FAULT_INDEFINITE, LIMN_FAULT_STUCK,
       LIMN_FAULT_NAN };
typedef struct {
  uint32_t site; /* 0: none */
  int32_t code;
  uint64_t serial; /* of the run */
  int64_t value, limit; /* the index as given, and the largest allowed */
  int64_t base;
  int64_t at; /* linear position in the index tensor, 0-based */
  uint64_t turn; /* packed; in no loop: 0 */
} limn_fault;

typedef struct {
  double f;
  int64_t i; /* both forms of the same number; i saturates */
} limn_imm;
typedef struct {
  void *mem;   /* host pointer, or the device's handle */
  int64_t off; /* bytes */
  limn_cell *cell; /* when the slot is a cell's value: for derived copies */
  struct limn_loop_value *loop; /* or one that stays the same in a loop */
} limn_slot;
/* What all turns of a loop read; its version counts the runs of the loop. */
typedef struct limn_loop_value {
  uint64_t version;
  limn_derived derived;
} limn_loop_value;
typedef struct {
  uint64_t seed, draw; /* key and counter; see random.c */
} limn_draw;
typedef struct limn_bind {
  const limn_slot *slot;
  const limn_imm *imm;
  const limn_draw *draw; /* one for each draw of the graph */
  uint64_t serial;
  uint32_t site; /* for eager ops, whose line is the call's; 0: the step's */
  const limn_turn *turn; /* of the loops around the step */
  limn_fault *fault; /* CPU: where to note the first one */
  limn_context *c;
} limn_bind;

/* -- Devices -------------------------------------------------------------- */
typedef struct limn_device_ops {
  /* Identity */
  const char *kind; /* "cpu", "opencl", "cuda" */
  bool host;        /* memory is host memory */
  /* Find the devices of this kind and append them to c->devices; says why
   * there are none in c->device_notes. Fails only when out of memory. */
  int (*open)(limn_context *c);
  void (*close)(struct limn_device *d);
  /* Memory. 256-byte aligned (CPU: 64). bytes > 0. */
  int (*alloc)(struct limn_device *d, size_t bytes, void **mem);
  void (*free)(struct limn_device *d, void *mem, size_t bytes);
  int (*upload)(struct limn_device *d, void *mem, size_t off, const void *src,
                size_t n); /* src may be reused on return */
  int (*download)(struct limn_device *d, void *mem, size_t off, void *dst,
                  size_t n); /* waits */
  /* Order: wait until all that was launched is done. */
  int (*wait)(struct limn_device *d);
  /* Code. prepare fills step->code (CPU: run, ntiles); discard frees it. */
  int (*prepare)(struct limn_device *d, limn_step *s);
  void (*discard)(struct limn_device *d, limn_step *s);
  int (*launch)(struct limn_device *d, const limn_step *s,
                const limn_bind *b);
  /* Whether there is a kernel for this S row and dtype; else it is expanded
   * or refused at plan time. */
  bool (*supports)(struct limn_device *d, int op, int dtype);
  /* After a wait: take the device's noted fault, if any (site != 0). */
  int (*fault)(struct limn_device *d, limn_fault *out);
  /* Launch n steps, the same ones at every run, none of which needs the host;
   * NULL where that is no better than one after the other. *failed: which, or
   * n if that cannot be told. */
  int (*launch_all)(struct limn_device *d, const limn_step *s, uint32_t n,
                    const limn_bind *b, uint32_t *failed);
  /* Copy n bytes from another device of this kind, which has been waited for,
   * without the host: 1, or 0 where only the host can. NULL: always so. */
  int (*cross)(struct limn_device *d, void *mem, struct limn_device *from,
               void *src, size_t off, size_t n);
  /* Load what it loads at first need, so that what is missing is noted; NULL:
   * nothing is. */
  void (*look)(struct limn_device *d);
} limn_device_ops;

typedef struct limn_device {
  const limn_device_ops *ops;
  limn_context *c;
  int index; /* in c->devices */
  char name[24];        /* "opencl:0" */
  char description[128]; /* "Portable Computing Language: ..." */
  size_t bytes; /* allocated now */
  void *scratch; /* temporaries of plans, grows to the largest */
  size_t scratch_size;
  uint64_t launches; /* steps launched, for tests */
  uint32_t in_flight; /* runs since the last wait */
  void *impl;
} limn_device;

extern const limn_device_ops limn_cpu_ops, limn_cuda_ops, limn_opencl_ops;

/* -- device.c -- */
int limn_device_add(limn_context *c, const limn_device_ops *ops, void *impl,
                    const char *name, const char *description,
                    limn_device **out);
limn_device *limn_device_cpu(limn_context *c);
/* Open the drivers and list all devices; the first call does. */
int limn_devices_all(limn_context *c);
/* Let them load all that they may use, which takes time, and note what is
 * missing. */
void limn_devices_look(limn_context *c);
/* By name, "gpu" / "opencl" meaning the first of its kind; LIMN_EDEVICE with
 * what there is and why the rest is missing. */
int limn_device_find(limn_context *c, const char *name, limn_device **out);
void limn_device_note(limn_context *c, const char *fmt, ...)
    LIMN_PRINTF(2, 3); /* why a kind of device is missing */
/* Wait, then raise the first noted fault as an error and void the cells that
 * the failed run and later ones wrote. */
int limn_device_wait(limn_device *d);
/* Raise a noted fault: "net.lua:14: gather: index 11 ...". Returns its code. */
int limn_fault_fail(limn_context *c, const limn_fault *f);

/* Whether the host does a step, and no device. */
static inline bool limn_step_host(const limn_step *s) {
  return s->kind >= LIMN_STEP_PRINT;
}

/* Whether the step has input i: products leave out their bias. */
static inline bool limn_step_reads(const limn_step *s, int i) {
  bool product = s->kind == LIMN_STEP_MATMUL || s->kind == LIMN_STEP_CONV;
  return !(product && i == 2 && !s->bias);
}

/* A step that would copy a cell to itself, as it is written in place. */
static inline bool limn_step_idle(const limn_step *s, const limn_slot *slot) {
  const limn_slot *to, *from;
  if (s->kind != LIMN_STEP_GROUP || !s->flag) return false;
  to = &slot[s->out[0].slot], from = &slot[s->in[0].slot];
  return to->mem == from->mem && to->off == from->off;
}

/* -- dl.c -- run-time loading; NULL when absent. */
void *limn_dl_open(const char *const *names, int n);
void *limn_dl_sym(void *lib, const char *name);
void limn_dl_close(void *lib);

/* -- pool.c -- the workers of a context. */
/* Run fn(arg, i) for i in [0, n) on the caller and the workers. */
int limn_pool_run(limn_context *c, int64_t n, void (*fn)(void *, int64_t),
                  void *arg);

#endif
