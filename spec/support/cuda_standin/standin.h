/* A stand-in for CUDA's driver, NVRTC, cuBLAS and cuDNN, for tests without a
 * GPU.
 *
 * It is strict where the real thing is undefined or merely slow: work waits in
 * its stream until something that must wait for it does; device addresses fault
 * on the host; a wrong context, a double free, memory used after it was freed,
 * a pinned buffer touched too early, threads that part at a barrier, an
 * argument that does not fit are each reported on stderr, answered with an
 * error, and make the process exit with status STANDIN_STATUS.
 *
 * Environment:
 *   STANDIN_DEVICES  architectures of the devices; default "75,90"
 *   STANDIN_MEMORY   bytes of each device; default 8 GiB
 *   STANDIN_VERSION  the driver's release; default 13000, which is 13.0
 *   STANDIN_PEERS=0  no device reaches another one's memory
 *   STANDIN_FAIL     "cuMemAlloc:3": the third call fails, once;
 *                    "cuMemAlloc:3:700": with this error; "cuMemAlloc:3+":
                    and so do all after it
 *   STANDIN_CACHE    folder of compiled kernels
 *   STANDIN_SOURCES  folder that gets every source that is compiled
 *   STANDIN_DRY=1    kernels are neither compiled nor run: only their sources
 *                    are of interest
 *   STANDIN_CXX      the C++ compiler; default g++ */
#ifndef STANDIN_H
#define STANDIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi.h"
#include "cuda_api.h"

#define STANDIN_STATUS 86
#define STANDIN_API __attribute__((visibility("default")))

enum { /* results that the driver's users see, beside those of cuda_api.h */
  SI_INVALID_VALUE = 1,
  SI_NOT_INITIALIZED = 3,
  SI_INVALID_DEVICE = 101,
  SI_INVALID_CONTEXT = 201,
  SI_NO_PEERS = 217,
  SI_INVALID_HANDLE = 400,
  SI_NOT_FOUND = 500,
  SI_NOT_READY = 600,
  SI_ILLEGAL_ADDRESS = 700,
  SI_LAUNCH_RESOURCES = 701,
  SI_ALREADY_PEERS = 704,
  SI_MISALIGNED = 716,
  SI_LAUNCH_FAILED = 719,
  SI_CAPTURE_UNSUPPORTED = 900,
  SI_CAPTURE_INVALIDATED = 901
};

/* -- standin.c: calls, failures, objects ----------------------------------- */

typedef struct standin_call {
  const char *name;
  struct standin_call *next;
  int count;
  bool known;
} standin_call;
/* Every entry: takes the lock until the function returns, counts the call, and
 * lets it fail when that is asked for. */
#define ENTER(symbol)    \
  ENTER_ANYHOW(symbol);  \
  if (failed_) return failed_
#define ENTER_ANYHOW(symbol)                                          \
  static standin_call call_ = {#symbol, NULL, 0, false};              \
  __attribute__((cleanup(standin_leave), unused)) int held_ = 0;      \
  int failed_ = standin_enter(&call_)
int standin_enter(standin_call *call);
void standin_leave(int *held);
/* Report a wrong use; returns code. */
int standin_bad(int code, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void *standin_new(size_t bytes); /* zeroed; never fails */

enum { SI_CONTEXT = 1, SI_STREAM, SI_EVENT, SI_MODULE, SI_FUNCTION, SI_POOL,
       SI_GRAPH, SI_NODE, SI_EXEC, SI_BLAS, SI_LT, SI_DESC, SI_LAYOUT,
       SI_PREF, SI_PROGRAM, SI_DNN, SI_DNN_TENSOR, SI_DNN_FILTER, SI_DNN_CONV,
       SI_KINDS };
/* Every handle starts with this. Objects are never reused, so that a stale
 * handle is always known for what it is. */
typedef struct standin_object {
  uint32_t magic;
  int kind;
  bool live;
  struct cu_context *owner;
  struct standin_object *next;
} standin_object;
void *standin_object_new(int kind, size_t bytes, struct cu_context *owner);
void standin_object_end(void *handle);
/* 0, or the error of a handle that is none of this kind, or dead. With an
 * owner it must be that of the thread's current context. */
int standin_check(const void *handle, int kind);
int standin_live(struct cu_context *owner); /* objects and memory; lists them */
#define CHECK(handle, kind)                    \
  do {                                         \
    int rc_ = standin_check(handle, kind);     \
    if (rc_) return rc_;                       \
  } while (0)

/* -- driver.c: devices and contexts ---------------------------------------- */

struct cu_context {
  standin_object o;
  int device, refs;
  unsigned peers; /* devices whose contexts have been made peers */
  int sticky; /* the error that every later call returns */
};
/* The current context; 0 or an error. */
int standin_current(struct cu_context **out);
int standin_arch(int device); /* 75: sm_75 */
int standin_device_count(void);
bool standin_peers(int device, int peer);
int standin_version(void); /* of the driver: 13000 */

/* -- memory.c -------------------------------------------------------------- */

/* What the host sees of device memory is its address with this bit set: no
 * address that a processor can follow. */
#define STANDIN_DEVICE_BIT ((cu_ptr)1 << 62)
typedef struct {
  cu_ptr at;     /* with the bit */
  size_t bytes;
  char *page;    /* of the first page */
  size_t pages;  /* bytes of all */
  struct cu_context *owner;
  struct cu_pool *pool; /* or NULL */
  bool going;           /* cuMemFreeAsync was called */
} standin_block;
/* The block in which p lies (or ends), or NULL. */
standin_block *standin_block_of(cu_ptr p);
/* 0 if [p, p + bytes) is memory of this context; what: for the report. */
int standin_range(struct cu_context *c, cu_ptr p, size_t bytes, bool queued,
                  const char *what);
static inline void *standin_real(cu_ptr p) {
  return (void *)(uintptr_t)(p & ~STANDIN_DEVICE_BIT);
}
int standin_memory_free(cu_ptr p);
int standin_memory_live(struct cu_context *owner);
bool standin_pinned(const void *p, size_t bytes);
/* Whether a device can use the memory at p, which another one has. */
bool standin_reaches(struct cu_context *c, cu_ptr p);

/* -- stream.c: work that waits --------------------------------------------- */

enum { SI_OP_KERNEL, SI_OP_UP, SI_OP_DOWN, SI_OP_COPY, SI_OP_FREE, SI_OP_WAIT,
       SI_OP_MARK, SI_OP_GEMM, SI_OP_DNN };
typedef struct {
  int type[3]; /* of A, B and C: CUBLAS_R_* */
  int by;      /* CUBLAS_BY_* */
  bool ta, tb;
  int64_t m, n, k, batch, lda, ldb, ldc, sa, sb, sc; /* column-major */
  double alpha, beta;
  cu_ptr a, b, c, bias;
  int bias_type;
} standin_gemm;
typedef struct { /* a convolution of x with w, which gives y */
  int result; /* which of them is computed: 0, 1 or 2 */
  int type;   /* CUDNN_* */
  bool tf32;
  int nd, dim[3][5];
  int pad[5], stride[5], dilation[5], groups;
  cu_ptr at[3], space;
  size_t bytes; /* of the workspace */
} standin_dnn;
typedef struct {
  struct cu_function *f;
  standin_dim grid, block;
  unsigned shared;
  void **param; /* copies, in one block of memory with the pointers */
} standin_launch;
typedef struct standin_op {
  struct standin_op *next;
  int kind;
  cu_ptr to, from;
  const void *host; /* of UP: pinned, or a copy of our own */
  void *host_to;    /* of DOWN */
  size_t bytes;
  uint64_t sum;     /* of pinned memory that must not change meanwhile */
  bool own;         /* host is ours */
  struct cu_stream *stream; /* of WAIT: and the mark there */
  uint64_t mark;
  standin_launch launch;
  standin_gemm *gemm;
  standin_dnn *dnn;
  struct cu_node *node; /* in graphs: what it was captured as */
} standin_op;
struct cu_stream {
  standin_object o;
  standin_op *first, **last;
  uint64_t queued, done;
  struct cu_graph *capture;
  int mode; /* of the capture */
  uint64_t capture_id;
  bool spoilt; /* the capture */
};
/* Append (takes the op over); to the graph where one is being captured. */
int standin_queue(struct cu_stream *s, standin_op *op);
standin_op *standin_op_new(int kind);
void standin_op_free(standin_op *op);
standin_op *standin_op_copy(const standin_op *op);
int standin_drain(struct cu_stream *s, uint64_t until);
int standin_drain_all(struct cu_context *c);
int standin_not_capturing(struct cu_stream *s, const char *what);
/* 0 unless a stream is captured in a mode that forbids such a call, which then
 * spoils the capture. */
int standin_unsafe(const char *what);

/* -- graph.c --------------------------------------------------------------- */
struct cu_node {
  standin_object o;
  struct cu_graph *graph;
};
struct cu_graph {
  standin_object o;
  standin_op *first, **last;
  int count;
  struct cu_node *tail; /* the node that came last */
};
void standin_graph_add(struct cu_graph *g, standin_op *op);

/* -- module.c, compile.c: kernels ------------------------------------------ */
struct cu_module {
  standin_object o;
  void *lib;
  const standin_code *code;
};
struct cu_function {
  standin_object o;
  struct cu_module *module;
  const standin_entry *entry;
};
/* Copies the parameters as the kernel declares them; 0 or an error. */
int standin_launch_fill(standin_launch *l, const cu_node_params *p);
int standin_launch_check(struct cu_context *c, const standin_launch *l,
                         bool queued);
bool standin_dry(void);
/* Source to a shared object at *path (the caller frees it and the log). */
int standin_compile(const char *source, char **path, char **log);
uint64_t standin_hash(uint64_t h, const void *p, size_t n);

/* -- run.c, blas.c --------------------------------------------------------- */
int standin_run(const standin_launch *l);
void standin_gemm_run(const standin_gemm *g);
int standin_gemm_check(struct cu_context *c, const standin_gemm *g,
                       bool queued);
/* Element i, of type CUBLAS_R_*; as many bits of it as TF32 keeps. */
double standin_load(const void *p, int64_t i, int type);
void standin_store(void *p, int64_t i, int type, double v);
double standin_tf32(double v);
/* A library's call is as many launches as it likes: in graphs it has one, two
 * or three nodes. Queues those before the last. */
void standin_other_nodes(struct cu_stream *s);
/* alpha or beta, from host memory. */
double standin_scalar(const void *p, int by);
int standin_gemm_queue(struct cu_context *c, struct cu_stream *s,
                       const standin_gemm *g);

/* dnn.c */
STANDIN_API int standin_dnn_last(void);
void standin_dnn_run(const standin_dnn *d);
int standin_dnn_check(struct cu_context *c, const standin_dnn *d, bool queued);

/* The signatures of all that is stood in for. */
#define STANDIN_DECLARE(name, symbol, args) STANDIN_API int symbol args;
CU_FUNCTIONS(STANDIN_DECLARE)
CU_POOL_FUNCTIONS(STANDIN_DECLARE)
CU_GRAPH_FUNCTIONS(STANDIN_DECLARE)
NVRTC_FUNCTIONS(STANDIN_DECLARE)
CUBLAS_FUNCTIONS(STANDIN_DECLARE)
CUBLASLT_FUNCTIONS(STANDIN_DECLARE)
CUDNN_FUNCTIONS(STANDIN_DECLARE)
#undef STANDIN_DECLARE

#endif
