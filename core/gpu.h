/* Layer 3: what the OpenCL and CUDA devices share.
 *
 * A driver (dev_opencl.c, dev_cuda.c) knows how to hold memory, build source
 * and launch a kernel; gpu.c has the caches of memory and programs, and
 * gpu_step.c turns steps into launches. A kernel takes pointers, then one
 * block of int64 numbers, in which everything that may change from run to run
 * or from size to size arrives, so that neither ever compiles. */
#ifndef LIMN_GPU_H
#define LIMN_GPU_H

#include "device.h"

typedef struct limn_gpu limn_gpu;

/* -- Launches -------------------------------------------------------------- */
/* What a kernel's pointer stands for. */
enum { LIMN_GPU_SLOT, LIMN_GPU_TEMP, LIMN_GPU_FAULT };
typedef struct {
  uint8_t kind;
  uint16_t at; /* SLOT: of the plan; TEMP: 0 or 1, of the launch list */
} limn_gpu_mem;

/* A number that is known only when a run starts. */
enum {
  LIMN_GPU_OFFSET, /* adds the slot's offset, in elements of dtype */
  LIMN_GPU_IMM,    /* the bits of imm[arg] as dtype */
  LIMN_GPU_SEED, /* of draw[arg] */
  LIMN_GPU_DRAW,
  LIMN_GPU_SERIAL,
  LIMN_GPU_SITE /* the run's own site, if it has one; above it the turn */
};
#define LIMN_GPU_SITE_BITS 16
typedef struct {
  uint8_t kind, dtype;
  uint16_t at, arg; /* index of the number; slot, imm or draw */
} limn_gpu_patch;

#define LIMN_GPU_MEMS (LIMN_STEP_IN + LIMN_STEP_OUT + 2)
/* Arguments of one launch, in the order that its kernel reads them. */
typedef struct {
  limn_context *c;
  int rc; /* sticky */
  uint32_t bytes; /* that a kernel's arguments may have in all */
  uint32_t nmem, nnum, npatch, num_cap, patch_cap;
  limn_gpu_mem mem[LIMN_GPU_MEMS];
  int64_t *num;
  limn_gpu_patch *patch;
} limn_gpu_args;
void limn_gpu_args_free(limn_gpu_args *a);
/* Append a number and return its index. */
int limn_gpu_num(limn_gpu_args *a, int64_t v);
int limn_gpu_num_patch(limn_gpu_args *a, int kind, int dtype, int arg,
                       int64_t v);
void limn_gpu_ptr(limn_gpu_args *a, int kind, int at);
/* Whether the numbers travel in a buffer: more than a kernel can take. */
bool limn_gpu_table(const limn_gpu_args *a);

/* A product for the vendor's library: row-major out[m, n] = a b (+ bias[n]),
 * where the matrices of each batch entry lie `stride` elements after the one
 * before. */
typedef struct {
  int dtype;
  int64_t m, n, k, batch;
  bool ta, tb;              /* stored transposed */
  int64_t lda, ldb, sa, sb; /* leading dims, batch strides */
  bool bias, tf32;          /* tf32: float32 may be rounded to TensorFloat-32 */
} limn_gpu_gemm;

/* Where an operand of a recorded call lies, if it moves otherwise. */
typedef struct {
  void *mem, *code; /* code: copies it there, or from there */
  size_t bytes;
} limn_gpu_still;

/* A call of the vendor's library in the place of a kernel. Its operands are
 * the launch's pointers, the result first, and its numbers their offsets, in
 * elements; temporaries come last. */
#define LIMN_GPU_OPERANDS 4
typedef struct limn_gpu_call {
  int (*run)(limn_gpu *g, const struct limn_gpu_call *call, void *const *mem,
             const int64_t *off);
  void (*end)(limn_gpu *g, const struct limn_gpu_call *call); /* frees plan */
  void *plan; /* the driver's, or NULL */
  limn_gpu_gemm gemm; /* of products */
  int dtype, n;       /* of the operands, of which there are n */
  int64_t extent[LIMN_GPU_OPERANDS]; /* elements from its first to its last */
  uint8_t moved[LIMN_GPU_OPERANDS]; /* recordings that each has cost lately */
  limn_gpu_still still[LIMN_GPU_OPERANDS]; /* see gpu_replay.c */
} limn_gpu_call;

typedef struct limn_gpu_launch {
  struct limn_gpu_launch *next;
  void *kernel;
  size_t groups[3];
  uint32_t local; /* work-items in a group, along the first dim */
  limn_gpu_args args;
  limn_gpu_call *call; /* or NULL: a kernel */
} limn_gpu_launch;
typedef struct { /* step->code */
  limn_gpu_launch *first, *last;
  size_t temp[2]; /* bytes; taken for a launch, or held by a replay */
  struct limn_gpu_replay *replay; /* of the steps that begin here, or NULL */
} limn_gpu_code;

/* -- Devices --------------------------------------------------------------- */
typedef struct limn_gpu_driver {
  /* A kernel's memory. LIMN_EMEM without message when there is none. */
  int (*mem_new)(limn_gpu *g, size_t bytes, void **mem);
  void (*mem_del)(limn_gpu *g, void *mem);
  /* Copies are ordered with launches. write: src is free on return. read
   * waits. */
  int (*write)(limn_gpu *g, void *mem, size_t off, const void *src, size_t n);
  int (*read)(limn_gpu *g, void *mem, size_t off, void *dst, size_t n);
  int (*finish)(limn_gpu *g);
  /* Source without prelude -> program -> kernel by name. */
  int (*build)(limn_gpu *g, const char *src, void **program);
  void (*unbuild)(limn_gpu *g, void *program);
  int (*kernel)(limn_gpu *g, void *program, const char *name, void **kernel);
  void (*unkernel)(limn_gpu *g, void *kernel);
  /* Start a kernel with these pointers and numbers. */
  int (*start)(limn_gpu *g, const limn_gpu_launch *l, void *const *mem,
               const int64_t *num);
  /* Whether a product (call->gemm) or a CONV step is for the vendor's library;
   * then `call` gets what runs it. NULL: never. gemm_worth clears gemm.bias
   * where that has to be added apart; a convolution may want a workspace, as
   * its last pointer. */
  bool (*gemm_worth)(limn_gpu *g, limn_gpu_call *call);
  bool (*conv_worth)(limn_gpu *g, const limn_step *s, limn_gpu_call *call,
                     size_t *workspace);
  /* Replays, where g->replays. Between record and recorded what is started is
   * noted, not run; node gives the handle of what was started last. recorded
   * makes a replay of it in the place of the one that is there (NULL: give up
   * and forget). rebind gives a kernel of a replay other pointers and numbers.
   */
  int (*record)(limn_gpu *g);
  int (*node)(limn_gpu *g, void **node);
  int (*recorded)(limn_gpu *g, void **replay);
  int (*rebind)(limn_gpu *g, void *replay, void *node,
                const limn_gpu_launch *l, void *const *mem,
                const int64_t *num);
  int (*replay)(limn_gpu *g, void *replay);
  void (*unreplay)(limn_gpu *g, void *replay);
} limn_gpu_driver;

#define LIMN_GPU_CLASSES 192
struct limn_gpu {
  limn_context *c;
  const limn_gpu_driver *drv;
  void *impl;
  bool fp64, atom64; /* what the device can */
  bool cpu;          /* a CPU that plays GPU: other kernels are good */
  bool warps;        /* 32 lanes can exchange values without memory */
  bool vectors;      /* one access of 16 bytes is better than many */
  bool replays;      /* the driver can record and replay launches */
  uint32_t arg_bytes; /* of a kernel's arguments, at most */
  uint32_t local;    /* usual work-items in a group, a power of two */
  uint32_t max_local;
  int64_t units; /* groups that keep the device busy */
  /* Free memory by size class, for reuse. */
  struct limn_gpu_block *free_list[LIMN_GPU_CLASSES];
  size_t cached, cache_limit;
  limn_map programs; /* source -> limn_gpu_program */
  void *fault;       /* device memory of one noted fault */
  bool fault_dirty;  /* a kernel that may note one has been launched */
  struct limn_gpu_replay *first_replay; /* of all that there are */
};

/* gpu.c: made by open() of a driver, which fills c, drv, impl and what the
 * device can; closed by limn_gpu_close before impl is. */
void limn_gpu_close(limn_gpu *g);
/* Give back what is cached, and what replays hold. */
void limn_gpu_trim(limn_gpu *g);
int limn_gpu_take(limn_gpu *g, size_t bytes, void **mem);
void limn_gpu_give(limn_gpu *g, void *mem, size_t bytes);
/* The kernel `name` of a program, from the cache or built. */
int limn_gpu_kernel(limn_gpu *g, const char *src, const char *name,
                    void **kernel);
/* Text of kernels/<name>, NULL if there is none; "prelude_opencl". */
const char *limn_gpu_text(const char *name);
/* Length of the # lines that source starts with: there the prelude and
 * "dialect" go. */
size_t limn_gpu_heading(const char *src);

/* gpu.c, gpu_launch.c, gpu_replay.c: entries of limn_device_ops; dev->impl is
 * a limn_gpu. */
int limn_gpu_alloc(limn_device *d, size_t bytes, void **mem);
void limn_gpu_free(limn_device *d, void *mem, size_t bytes);
int limn_gpu_upload(limn_device *d, void *mem, size_t off, const void *src,
                    size_t n);
int limn_gpu_download(limn_device *d, void *mem, size_t off, void *dst,
                      size_t n);
int limn_gpu_wait(limn_device *d);
int limn_gpu_fault(limn_device *d, limn_fault *out);
int limn_gpu_launch_step(limn_device *d, const limn_step *s,
                         const limn_bind *b);
int limn_gpu_launch_all(limn_device *d, const limn_step *s, uint32_t n,
                        const limn_bind *b, uint32_t *failed);
int limn_gpu_fault_memory(limn_gpu *g);
void limn_gpu_forget(limn_gpu *g, limn_gpu_code *code); /* its replay */
/* Replays but for the one that is under way give up their recordings and
 * memory, to be recorded again; false: none had any. */
bool limn_gpu_replays_release(limn_gpu *g);
void limn_gpu_still_free(limn_device *d, limn_gpu_call *call);
/* gpu_step.c */
int limn_gpu_prepare(limn_device *d, limn_step *s);
void limn_gpu_discard(limn_device *d, limn_step *s);
bool limn_gpu_supports(limn_device *d, int op, int dtype);

/* -- codegen.c -- source with its arguments. */
/* Rank, sizes and strides of several views of one shape after adjacent dims
 * were joined where every view allows it. */
#define LIMN_GPU_VIEWS (LIMN_STEP_IN + LIMN_STEP_OUT)
typedef struct {
  int nd, nview;
  int64_t d[LIMN_MAXDIM], s[LIMN_GPU_VIEWS][LIMN_MAXDIM];
} limn_gpu_dims;
/* From dims [lo, hi) of the views. */
void limn_gpu_collapse(limn_gpu_dims *o, const limn_operand *const *v,
                       int nview, int lo, int hi);
/* A fused group over all its elements; a work-item has *width of them, more
 * than one only if `several` allows it. */
int limn_codegen_group(limn_context *c, const limn_step *s, bool several,
                       int *width, limn_str *out, limn_gpu_args *args);
/* Kernels "k" (value and reduction; to partial results in temp 0 if there
 * are `splits` > 1) and "k2" (their reduction). */
typedef struct {
  int64_t nout, nred, splits, chunk;
  int lanes;  /* work-items that share one output, a power of two */
  bool apart; /* lanes of one output lie apart: neighbours read neighbours */
  bool solo;  /* lanes is always 1: no local memory */
} limn_gpu_reduce;
int limn_codegen_reduce(limn_context *c, const limn_step *s, int local,
                        const limn_gpu_reduce *r, limn_str *out,
                        limn_gpu_args *k, limn_gpu_args *k2);
/* Computing dtype of the accumulator of a REDUCE step. */
int limn_codegen_acc(const limn_step *s);
/* codegen_fixed.c: the kernels of kernels/<name>.k for a step: defines, then
 * the text. nums: how many numbers they declare. */
int limn_codegen_fixed(limn_context *c, const limn_step *s, int local,
                       bool solo, const char *name, int nums, limn_str *out);
bool limn_codegen_f64(const limn_step *s); /* whether it needs float64 */
/* Whether the step reads input j: it may have one for its shape alone. */
bool limn_codegen_loads(const limn_step *s, int j);
/* gpu_conv.c: whether a CONV step's kernel has to count in 64 bits. */
bool limn_gpu_conv_wide(const limn_step *s);
/* Whether add_atomic exists for a dtype. */
bool limn_codegen_atomic(const limn_gpu *g, int dtype);

/* codegen_expr.c */
const char *limn_codegen_type(int dtype); /* C type of its computing type */
/* A row's expression in computing type ctype. names: of a, b, c, acc. */
void limn_codegen_expr(limn_str *o, const char *e, int ctype,
                       const char *const names[4]);
/* `name`, of computing type `from`, converted to dtype (and narrowed, if that
 * is narrower than its computing type). */
void limn_codegen_cast(limn_str *o, const char *name, int from, int dtype);

#endif
