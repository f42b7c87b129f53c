/* Inside the CUDA device: what dev_cuda.c and cuda_*.c share. */
#ifndef LIMN_DEV_CUDA_H
#define LIMN_DEV_CUDA_H

#include "cuda_api.h"
#include "gpu.h"

/* The loaded libraries, shared by the devices that one context opens. */
typedef struct {
  int refs;
  void *lib, *rtc_lib, *blas_lib, *dnn_lib;
  cu_api f;
  bool pools, graphs; /* whether the driver has all their functions */
  nvrtc_api rtc;
  int rtc_version[2];
  int arch[64], narch; /* architectures that NVRTC compiles for, ascending */
  bool blas_tried;
  cublas_api blas; /* where blas_lib is there */
  bool has_lt;
  cublaslt_api lt;
  bool dnn_tried;
  cudnn_api dnn; /* where dnn_lib is there */
} cuda_libs;

/* Pinned memory through which transfers go, part after part. A part is used
 * again when the copies to or from it are done. */
enum { CUDA_PARTS = 8, CUDA_PART = 1 << 20 };
typedef struct {
  char *mem; /* CUDA_PARTS parts, or NULL: none could be had */
  cu_event done[CUDA_PARTS];
  bool tried, left[CUDA_PARTS]; /* left: done has been recorded */
  int part;
  size_t at; /* bytes of the part that are taken */
} cuda_ring;

typedef struct {
  limn_gpu gpu; /* first: a limn_gpu is also this */
  cuda_libs *l;
  cu_device id;
  int arch; /* 90: compute capability 9.0 */
  /* Made when the device is first used. */
  cu_context context;
  cu_stream stream;
  cu_pool pool;     /* or NULL: plain allocations */
  cu_event crossed; /* recorded after a copy from another device */
  uint64_t peers;   /* bits of devices whose memory was asked for access to */
  cuda_ring ring;
  cublas_handle blas;
  cublaslt_handle lt;
  cudnn_handle dnn;
  bool blas_failed, dnn_failed; /* it does not start */
  void *workspace; /* of cuBLAS: its own would be allocated in a capture */
  size_t workspace_size;
} cuda_dev;

static inline cuda_dev *cuda_of(limn_gpu *g) { return (cuda_dev *)(void *)g; }
static inline cu_ptr cuda_ptr(const void *mem) {
  return (cu_ptr)(uintptr_t)mem;
}
/* Where an operand of a call begins. */
static inline cu_ptr cuda_operand(const limn_gpu_call *call, const void *mem,
                                  int64_t off) {
  return cuda_ptr(mem) + (cu_ptr)(off * limn_dtype_size(call->dtype));
}

/* dev_cuda.c */
/* Make the device's context current, opening it when first used; what was
 * current before comes back with cuda_leave. */
int cuda_enter(cuda_dev *d);
void cuda_leave(cuda_dev *d);
/* "CUDA: cuLaunchKernel failed: CUDA_ERROR_... (its meaning)". */
int cuda_fail(cuda_dev *d, int code, const char *what);
/* Fill an interface from a library; the first missing symbol, or NULL. The
 * list ends with a NULL symbol. */
typedef struct {
  const char *symbol;
  size_t at; /* of the pointer, in the interface */
} cuda_symbol;
const char *cuda_load(void *lib, void *api, const cuda_symbol *list);
/* Where the toolkit installs. */
#define CUDA_FOLDER "/usr/local/cuda/lib64/"
/* Load the first of the names, each also where the toolkit installs, from
 * names[first] on and around; `named`, if not empty, is the only one tried. */
void *cuda_open_library(const char *named, const char *const *names, int n,
                        int first);
/* The names are of releases 13, 12, 11 and any; one that is newer than the
 * driver, which may not run what it makes, is tried last. */
void *cuda_open_release(const cuda_libs *l, const char *named,
                        const char *const *names, int n);
/* Make a library's handle; false, with a note, where that fails twice. The
 * context is current. */
bool cuda_library_start(cuda_dev *d, const char *name,
                        int (*start)(cuda_dev *d));
/* Whether so many multiplications are worth a call of a library. `tiles`: they
 * fill those of tensor cores. */
bool cuda_worth(const cuda_dev *d, int dtype, double work, bool tiles);

/* cuda_memory.c: entries of the driver. */
int cuda_mem_new(limn_gpu *g, size_t bytes, void **mem);
void cuda_mem_del(limn_gpu *g, void *mem);
/* All that is kept for reuse goes back to the driver, which wants it itself;
 * the context is current. */
void cuda_mem_trim(cuda_dev *d);
int cuda_write(limn_gpu *g, void *mem, size_t off, const void *src, size_t n);
int cuda_read(limn_gpu *g, void *mem, size_t off, void *dst, size_t n);
int cuda_finish(limn_gpu *g);
int cuda_cross(limn_device *dev, void *mem, limn_device *from, void *src,
               size_t off, size_t n);
void cuda_ring_free(cuda_dev *d);

/* cuda_compile.c */
/* Load NVRTC; on failure the reason is noted and rtc_lib is NULL. */
void cuda_compiler_load(limn_context *c, cuda_libs *l);
/* Whether it can compile for this architecture, by cubin or by PTX. */
bool cuda_compiler_knows(const cuda_libs *l, int arch);
int cuda_build(limn_gpu *g, const char *src, void **program);
void cuda_unbuild(limn_gpu *g, void *program);
int cuda_kernel(limn_gpu *g, void *program, const char *name, void **kernel);
void cuda_unkernel(limn_gpu *g, void *kernel);
/* cuda_cache.c: compiled programs on the disk. */
typedef struct {
  uint64_t w[2];
} cuda_key;
/* *size 0: not there. The caller frees. */
int cuda_cache_get(limn_context *c, const cuda_key *key, char **data,
                   size_t *size);
void cuda_cache_put(limn_context *c, const cuda_key *key, const char *data,
                    size_t size);
void cuda_cache_drop(limn_context *c, const cuda_key *key);

/* cuda_gemm.c, cuda_conv.c: a library is loaded once; on failure the reason is
 * noted. */
void cuda_blas_load(limn_context *c, cuda_libs *l);
void cuda_dnn_load(limn_context *c, cuda_libs *l);
bool cuda_gemm_worth(limn_gpu *g, limn_gpu_call *call);
void cuda_blas_close(cuda_dev *d);
bool cuda_conv_worth(limn_gpu *g, const limn_step *s, limn_gpu_call *call,
                     size_t *workspace);
void cuda_dnn_close(cuda_dev *d);

/* cuda_graph.c: launches that are recorded once and then replayed. */
int cuda_record(limn_gpu *g);
int cuda_node(limn_gpu *g, void **node);
int cuda_recorded(limn_gpu *g, void **replay);
int cuda_rebind(limn_gpu *g, void *replay, void *node,
                const limn_gpu_launch *l, void *const *mem,
                const int64_t *num);
int cuda_replay(limn_gpu *g, void *replay);
void cuda_unreplay(limn_gpu *g, void *replay);

/* Parameters of a kernel: its pointers, then the numbers by value. A NULL ends
 * the list, for who checks it. */
typedef struct {
  cu_ptr ptr[LIMN_GPU_MEMS];
  void *list[LIMN_GPU_MEMS + 2];
} cuda_params;
void cuda_params_set(cuda_params *p, void *const *mem, int nmem,
                     const void *num);

#endif
