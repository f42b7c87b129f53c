/* limn: run traced models from C, with no Lua in the process.
 *
 * A model file holds graphs and one set of weights and names no device. Load
 * it from bytes, make a call (one graph on one device with memory bound to
 * its inputs and outputs), prepare it, and run it as often as you like:
 *
 *   limn_options o = LIMN_OPTIONS;
 *   limn_context *ctx;
 *   limn_model *m;
 *   limn_call *c;
 *   float obs[24], act[6];
 *   limn_array in = LIMN_ARRAY(obs, LIMN_F32, 2, 1, 24);
 *   limn_array out = LIMN_ARRAY(act, LIMN_F32, 2, 1, 6);
 *   size_t ws;
 *   if (limn_open(&o, &ctx)) return 1;
 *   if (limn_model_load(ctx, bytes, size, 0, &m) ||
 *       limn_call_new(m, "policy", NULL, &c) ||
 *       limn_call_bind(c, LIMN_IN, limn_call_find(c, LIMN_IN, "obs"), &in) ||
 *       limn_call_bind(c, LIMN_OUT, 0, &out) ||
 *       limn_call_workspace(c, &ws) ||
 *       limn_call_prepare(c, malloc(ws), ws))
 *     die(limn_error(ctx));
 *   for (;;) { sense(obs); if (limn_call_run(c)) fail_safe(); drive(act); }
 *
 * Results are 0 or a negative LIMN_E* code; the sentence that goes with it is
 * limn_error(ctx) until the next call on that context. Out-parameters of
 * *_new, *_load and *_open give the caller one reference, to be given back
 * with the matching *_release (limn_close); arguments are borrowed. A context
 * and all that was made from it is used by one thread at a time; contexts are
 * independent of each other. The library never prints, exits or aborts. GPU
 * drivers are opened when a device other than "cpu" is first asked for. */
#ifndef LIMN_H
#define LIMN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define LIMN_API __attribute__((visibility("default")))
#else
#define LIMN_API
#endif

#define LIMN_VERSION "0.1.0"
#define LIMN_ABI 1
#define LIMN_MAXDIM 8

enum { /* dtypes */
  LIMN_F64, LIMN_F32, LIMN_F16, LIMN_BF16,
  LIMN_I64, LIMN_I32, LIMN_I8, LIMN_U8, LIMN_BOOL,
  LIMN_NDTYPE
};

enum { /* results */
  LIMN_OK = 0,
  LIMN_EARG = -1,     /* a wrong argument */
  LIMN_EMEM = -2,     /* out of memory */
  LIMN_ESHAPE = -3,   /* shapes do not fit */
  LIMN_EDTYPE = -4,   /* dtypes do not fit */
  LIMN_EDEVICE = -5,  /* a missing, wrong or failing device */
  LIMN_ESIZE = -6,    /* a size is negative or overflows */
  LIMN_EINDEX = -7,   /* an index is out of range */
  LIMN_EFORMAT = -8,  /* a corrupt, truncated or newer file */
  LIMN_ENAME = -9,    /* no such graph, cell, input or op */
  LIMN_EGUARD = -10,  /* a guard of the graph does not hold */
  LIMN_EPLAN = -11,   /* shapes changed since limn_call_prepare */
  LIMN_ETRACE = -12,  /* not possible while tracing */
  LIMN_EVOID = -13,   /* a cell whose last write failed */
  LIMN_EUNSUPPORTED = -14, /* this op, dtype or device is not supported */
  LIMN_EIO = -15,     /* the operating system said no */
  LIMN_EVALUE = -16   /* values without a result, as a singular matrix has */
};

typedef struct limn_context limn_context;
typedef struct limn_model limn_model;
typedef struct limn_call limn_call;

/* How a host runs the library; zero is always the default, and fields are only
 * appended. Copied by limn_open. */
typedef struct limn_options {
  size_t size; /* sizeof(limn_options) */
  int abi;     /* LIMN_ABI */
  void *user;  /* handed to every callback */
  /* Lua's allocator with an alignment: resize `p` from osize to nsize bytes;
   * nsize 0 frees; NULL on failure. Default: the C library's. */
  void *(*realloc)(void *user, void *p, size_t osize, size_t nsize,
                   size_t align);
  /* One line of text without newline; level is 'p' for limn.print, 'v' for
   * dumps, 'w' for warnings. Default: dropped. */
  void (*log)(void *user, char level, const char *text);
  /* Run fn(arg, i) for i in [0, n), in any order, on the host's threads, and
   * return when all are done. Default: limn's own pool, if threads > 1. */
  void (*parallel_for)(void *user, int64_t n,
                       void (*fn)(void *arg, int64_t i), void *arg);
  uint64_t (*now_ns)(void *user); /* a monotonic clock */
  int threads;                    /* 0 and 1: the caller's thread only */
  uint32_t flags;
  size_t max_bytes;      /* host memory limit; 0: none */
  uint64_t seed;         /* of random numbers; 0: a fixed default */
  const char *cache_dir; /* kernel binaries; NULL: none kept on disk */
} limn_options;
#define LIMN_OPTIONS {sizeof(limn_options), LIMN_ABI, NULL, NULL, NULL, NULL, \
                      NULL, 0, 0, 0, 0, NULL}

/* Memory that the host owns. Strides in elements; LIMN_ARRAY leaves them 0,
 * which means dense and row-major. */
typedef struct limn_array {
  size_t size;
  int dtype, ndim;
  const char *device; /* NULL: host memory */
  void *data;
  int64_t shape[LIMN_MAXDIM], stride[LIMN_MAXDIM];
  uint32_t flags;
} limn_array;
#define LIMN_ARRAY(data_, dtype_, ndim_, ...) \
  {sizeof(limn_array), dtype_, ndim_, NULL, data_, {__VA_ARGS__}, {0}, 0}

enum { LIMN_KIND_INPUT, LIMN_KIND_OUTPUT, LIMN_KIND_PARAM, LIMN_KIND_BUFFER,
       LIMN_KIND_STATE, LIMN_KIND_NUMBER };
/* What an input, output or cell is. Sizes that vary are -1 in `shape`; `dim`
 * then holds the name of a named size, or NULL. Strings live as long as the
 * object that was asked. */
typedef struct limn_info {
  size_t size;
  int kind, dtype, ndim; /* dtype -1 and ndim known where any dtype does */
  const char *name;
  int64_t shape[LIMN_MAXDIM];
  const char *dim[LIMN_MAXDIM];
} limn_info;

/* -- Context -- */
LIMN_API int limn_open(const limn_options *o, limn_context **out);
LIMN_API void limn_close(limn_context *ctx);
LIMN_API const char *limn_error(const limn_context *ctx); /* "" if none */
LIMN_API const char *limn_strerror(int code);             /* "out of memory" */
LIMN_API const char *limn_version(void);
/* The i-th device ("cpu", "opencl:0", ...), or NULL past the last. */
LIMN_API const char *limn_device_name(limn_context *ctx, int i);
LIMN_API void limn_seed(limn_context *ctx, uint64_t seed);

/* -- Model -- */
enum { LIMN_BORROW = 1 }; /* limn_model_load: bytes outlive the model */
LIMN_API int limn_model_load(limn_context *ctx, const void *bytes, size_t size,
                             uint32_t flags, limn_model **out);
/* Write the model to `path`, through a temporary file that is renamed. */
LIMN_API int limn_model_save(limn_model *m, const char *path);
LIMN_API void limn_model_set_mode(limn_model *m, int training);
LIMN_API const char *limn_model_graph_name(limn_model *m, int i); /* or NULL */
LIMN_API int limn_model_var_find(limn_model *m, const char *name);
LIMN_API int limn_model_var_info(limn_model *m, int i, limn_info *out);
/* Copy a cell out of / into the host's dense array of equal dtype, shape. */
LIMN_API int limn_model_var_read(limn_model *m, int i, const limn_array *a);
LIMN_API int limn_model_var_write(limn_model *m, int i, const limn_array *a);
LIMN_API void limn_model_release(limn_model *m);

/* -- Call -- */
enum { LIMN_IN, LIMN_OUT };
/* `device` NULL: the CPU. The call keeps the model alive. */
LIMN_API int limn_call_new(limn_model *m, const char *graph,
                           const char *device, limn_call **out);
LIMN_API int limn_call_find(limn_call *c, int side, const char *name);
LIMN_API int limn_call_info(limn_call *c, int side, int i, limn_info *out);
/* The array is copied, its data is borrowed until the next bind or release.
 * Unbound outputs get memory of the library's own. */
LIMN_API int limn_call_bind(limn_call *c, int side, int i,
                            const limn_array *a);
/* Set a number input (limn.number); takes effect at the next run. */
LIMN_API int limn_call_number(limn_call *c, int i, double v);
/* Bytes of scratch the call needs, aligned to 64; plans the graph. */
LIMN_API int limn_call_workspace(limn_call *c, size_t *bytes);
/* memory NULL: the library allocates. Everything is ready afterwards. */
LIMN_API int limn_call_prepare(limn_call *c, void *memory, size_t bytes);
/* On the CPU, on one thread, no malloc, lock or system call. LIMN_EPLAN, having
 * done nothing, when a bound array's shape or dtype, a number that decides a
 * size, or the model's mode changed since prepare. */
LIMN_API int limn_call_run(limn_call *c);
/* The i-th output as it lies in memory (data borrowed until the next run); of
 * no dims where it is a number (float64, int64) or a boolean (int64), the bytes
 * where it is a string (uint8; a zero follows). */
LIMN_API int limn_call_output(limn_call *c, int i, limn_array *out);
LIMN_API void limn_call_release(limn_call *c);

#ifdef __cplusplus
}
#endif
#endif
