/* The part of CUDA that limn uses: driver, NVRTC, cuBLAS, cublasLt and cuDNN as
 * types, constants and one line per function, from which pointers are declared
 * and loaded. No CUDA header or library is needed to build. Names and numbers
 * are those of the documented C interfaces, CUDA 11.0, cuDNN 8 and later. */
#ifndef LIMN_CUDA_API_H
#define LIMN_CUDA_API_H

#include <stddef.h>
#include <stdint.h>

#ifdef _WIN32
#define CU_CALL __stdcall
#else
#define CU_CALL
#endif

typedef int cu_device;
typedef uint64_t cu_ptr; /* an address in a device's memory */
typedef struct cu_context *cu_context;
typedef struct cu_stream *cu_stream;
typedef struct cu_event *cu_event;
typedef struct cu_module *cu_module;
typedef struct cu_function *cu_function;
typedef struct cu_pool *cu_pool;
typedef struct cu_graph *cu_graph;
typedef struct cu_node *cu_node;
typedef struct cu_exec *cu_exec;
typedef struct nvrtc_program *nvrtc_program;
typedef struct cublas_handle *cublas_handle;
typedef struct cublaslt_handle *cublaslt_handle;
typedef struct cublaslt_desc *cublaslt_desc;     /* of a product */
typedef struct cublaslt_layout *cublaslt_layout; /* of a matrix */
typedef struct cublaslt_pref *cublaslt_pref;
typedef struct cudnn_handle *cudnn_handle;
typedef struct cudnn_tensor *cudnn_tensor; /* descriptions */
typedef struct cudnn_filter *cudnn_filter;
typedef struct cudnn_conv *cudnn_conv;

enum { /* results of the driver */
  CU_OK = 0,
  CU_E_OUT_OF_MEMORY = 2,
  CU_E_NO_DEVICE = 100,
  CU_E_INVALID_IMAGE = 200,
  CU_E_NO_BINARY = 209,
  CU_E_PTX_TOO_NEW = 222, /* the driver is older than what made it */
  CU_E_ECC = 214,
  CU_E_ILLEGAL_ADDRESS = 700,
  CU_E_TIMEOUT = 702,
  CU_E_ASSERT = 710,
  CU_E_KERNEL_FIRST = 714, /* stack, instruction, alignment, address, pc */
  CU_E_KERNEL_LAST = 718,
  CU_E_LAUNCH_FAILED = 719,
  CU_E_NOT_SUPPORTED = 801,
  /* device attributes */
  CU_MAX_THREADS_PER_BLOCK = 1,
  CU_MULTIPROCESSORS = 16,
  CU_COMPUTE_MODE = 20,
  CU_CLOCK_MEMORY = 36, /* kHz */
  CU_BUS_WIDTH = 37,    /* bits */
  CU_MAJOR = 75,
  CU_MINOR = 76,
  CU_POOLS = 115, /* stream-ordered memory pools */
  CU_MODE_PROHIBITED = 2,
  /* flags */
  CU_STREAM_OWN_ORDER = 1,
  CU_EVENT_NO_TIMING = 2,
  CU_CAPTURE_RELAXED = 2,
  CU_CAPTURE_ACTIVE = 1,
  CU_POOL_RELEASE_THRESHOLD = 4, /* uint64_t: bytes that are kept */
  CU_ALLOCATION_PINNED = 1,
  CU_LOCATION_DEVICE = 1,
  CU_ACCESS_BOTH = 3 /* reading and writing */
};

typedef struct {
  int type, handle_types;
  struct {
    int type, id;
  } location;
  void *security;
  size_t max_size;
  unsigned char reserved[56];
} cu_pool_props;

typedef struct { /* who may use a pool's memory beside its own device */
  struct {
    int type, id;
  } location;
  int flags;
} cu_access;

typedef struct {
  cu_function func;
  unsigned grid[3], block[3], shared;
  void **params;
  void **extra;
} cu_node_params; /* CUDA_KERNEL_NODE_PARAMS_v1 */

/* Field, exported symbol, parameters. All return int, 0 when well. */
#define CU_FUNCTIONS(F)                                                     \
  F(Init, cuInit, (unsigned))                                               \
  F(DriverGetVersion, cuDriverGetVersion, (int *))                          \
  F(GetErrorName, cuGetErrorName, (int, const char **))                     \
  F(GetErrorString, cuGetErrorString, (int, const char **))                 \
  F(DeviceGetCount, cuDeviceGetCount, (int *))                              \
  F(DeviceGet, cuDeviceGet, (cu_device *, int))                             \
  F(DeviceGetName, cuDeviceGetName, (char *, int, cu_device))               \
  F(DeviceGetAttribute, cuDeviceGetAttribute, (int *, int, cu_device))      \
  F(DeviceTotalMem, cuDeviceTotalMem_v2, (size_t *, cu_device))             \
  F(PrimaryRetain, cuDevicePrimaryCtxRetain, (cu_context *, cu_device))     \
  F(PrimaryRelease, cuDevicePrimaryCtxRelease_v2, (cu_device))              \
  F(CtxPush, cuCtxPushCurrent_v2, (cu_context))                             \
  F(CtxPop, cuCtxPopCurrent_v2, (cu_context *))                             \
  F(StreamCreate, cuStreamCreate, (cu_stream *, unsigned))                  \
  F(StreamDestroy, cuStreamDestroy_v2, (cu_stream))                         \
  F(StreamSynchronize, cuStreamSynchronize, (cu_stream))                    \
  F(EventCreate, cuEventCreate, (cu_event *, unsigned))                     \
  F(EventRecord, cuEventRecord, (cu_event, cu_stream))                      \
  F(EventSynchronize, cuEventSynchronize, (cu_event))                       \
  F(EventDestroy, cuEventDestroy_v2, (cu_event))                            \
  F(MemAlloc, cuMemAlloc_v2, (cu_ptr *, size_t))                            \
  F(MemFree, cuMemFree_v2, (cu_ptr))                                        \
  F(MemAllocHost, cuMemAllocHost_v2, (void **, size_t))                     \
  F(MemFreeHost, cuMemFreeHost, (void *))                                   \
  F(MemcpyHtoDAsync, cuMemcpyHtoDAsync_v2,                                  \
    (cu_ptr, const void *, size_t, cu_stream))                              \
  F(MemcpyDtoHAsync, cuMemcpyDtoHAsync_v2,                                  \
    (void *, cu_ptr, size_t, cu_stream))                                    \
  F(MemcpyPeerAsync, cuMemcpyPeerAsync,                                     \
    (cu_ptr, cu_context, cu_ptr, cu_context, size_t, cu_stream))            \
  F(StreamWaitEvent, cuStreamWaitEvent, (cu_stream, cu_event, unsigned))    \
  F(DeviceCanAccessPeer, cuDeviceCanAccessPeer,                             \
    (int *, cu_device, cu_device))                                          \
  F(CtxEnablePeerAccess, cuCtxEnablePeerAccess, (cu_context, unsigned))     \
  F(ModuleLoadData, cuModuleLoadData, (cu_module *, const void *))          \
  F(ModuleUnload, cuModuleUnload, (cu_module))                              \
  F(ModuleGetFunction, cuModuleGetFunction,                                 \
    (cu_function *, cu_module, const char *))                               \
  F(LaunchKernel, cuLaunchKernel,                                           \
    (cu_function, unsigned, unsigned, unsigned, unsigned, unsigned,         \
     unsigned, unsigned, cu_stream, void **, void **))

/* Stream-ordered memory: CUDA 11.2. All or none is used. */
#define CU_POOL_FUNCTIONS(F)                                                \
  F(MemPoolCreate, cuMemPoolCreate, (cu_pool *, const cu_pool_props *))     \
  F(MemPoolDestroy, cuMemPoolDestroy, (cu_pool))                            \
  F(MemPoolSetAttribute, cuMemPoolSetAttribute, (cu_pool, int, void *))     \
  F(MemPoolSetAccess, cuMemPoolSetAccess,                                   \
    (cu_pool, const cu_access *, size_t))                                   \
  F(MemPoolTrimTo, cuMemPoolTrimTo, (cu_pool, size_t))                      \
  F(MemAllocFromPool, cuMemAllocFromPoolAsync,                              \
    (cu_ptr *, size_t, cu_pool, cu_stream))                                 \
  F(MemFreeAsync, cuMemFreeAsync, (cu_ptr, cu_stream))

/* Graphs whose kernel nodes take new parameters: CUDA 11.4. All or none. */
#define CU_GRAPH_FUNCTIONS(F)                                               \
  F(StreamBeginCapture, cuStreamBeginCapture_v2, (cu_stream, int))          \
  F(StreamEndCapture, cuStreamEndCapture, (cu_stream, cu_graph *))          \
  F(StreamGetCaptureInfo, cuStreamGetCaptureInfo_v2,                        \
    (cu_stream, int *, uint64_t *, cu_graph *, const cu_node **, size_t *)) \
  F(GraphInstantiate, cuGraphInstantiateWithFlags,                          \
    (cu_exec *, cu_graph, unsigned long long))                              \
  F(GraphSetParams, cuGraphExecKernelNodeSetParams,                         \
    (cu_exec, cu_node, const cu_node_params *))                             \
  F(GraphLaunch, cuGraphLaunch, (cu_exec, cu_stream))                       \
  F(GraphExecDestroy, cuGraphExecDestroy, (cu_exec))                        \
  F(GraphDestroy, cuGraphDestroy, (cu_graph))

#define NVRTC_FUNCTIONS(F)                                                  \
  F(Version, nvrtcVersion, (int *, int *))                                  \
  F(CreateProgram, nvrtcCreateProgram,                                      \
    (nvrtc_program *, const char *, const char *, int, const char *const *, \
     const char *const *))                                                  \
  F(CompileProgram, nvrtcCompileProgram,                                    \
    (nvrtc_program, int, const char *const *))                              \
  F(DestroyProgram, nvrtcDestroyProgram, (nvrtc_program *))                 \
  F(GetProgramLogSize, nvrtcGetProgramLogSize, (nvrtc_program, size_t *))   \
  F(GetProgramLog, nvrtcGetProgramLog, (nvrtc_program, char *))             \
  F(GetPTXSize, nvrtcGetPTXSize, (nvrtc_program, size_t *))                 \
  F(GetPTX, nvrtcGetPTX, (nvrtc_program, char *))                           \
  F(GetCUBINSize, nvrtcGetCUBINSize, (nvrtc_program, size_t *))             \
  F(GetCUBIN, nvrtcGetCUBIN, (nvrtc_program, char *))                       \
  F(GetNumSupportedArchs, nvrtcGetNumSupportedArchs, (int *))               \
  F(GetSupportedArchs, nvrtcGetSupportedArchs, (int *))

enum {
  CUBLAS_OK = 0,
  CUBLAS_NO = 0, /* not transposed */
  CUBLAS_YES = 1,
  CUBLAS_R_32F = 0,
  CUBLAS_R_64F = 1,
  CUBLAS_R_16F = 2,
  CUBLAS_R_16BF = 14,
  CUBLAS_BY_32F = 68, /* computed in */
  CUBLAS_BY_64F = 70,
  CUBLAS_BY_TF32 = 77,
  CUBLAS_ALGO_DEFAULT = -1,
  CUBLAS_FULL_SUMS = 16, /* math mode: no sums in 16 bits */
  CUBLASLT_TRANSA = 3,
  CUBLASLT_TRANSB = 4,
  CUBLASLT_EPILOGUE = 7,
  CUBLASLT_BIAS = 8,       /* pointer */
  CUBLASLT_BIAS_TYPE = 26, /* int: CUBLAS_R_* */
  CUBLASLT_ADD_BIAS = 4, /* value of the epilogue */
  CUBLASLT_BATCH = 5,        /* of a layout: int */
  CUBLASLT_BATCH_STRIDE = 6, /* int64_t */
  CUBLASLT_WORKSPACE = 1,    /* of a preference: size_t */
  CUBLASLT_REDUCTIONS = 3,   /* uint32_t: mask of how parts may be added up */
  CUBLASLT_BY_COMPUTE = 2,   /* as numbers of the computing type */
  CUBLASLT_ALIGN_A = 5       /* uint32_t: bytes; then of b, c and d */
};

/* alpha and beta lie in host memory, their type is the computing type. */
#define CUBLAS_FUNCTIONS(F)                                                 \
  F(Create, cublasCreate_v2, (cublas_handle *))                             \
  F(Destroy, cublasDestroy_v2, (cublas_handle))                             \
  F(GetVersion, cublasGetVersion_v2, (cublas_handle, int *))                \
  F(SetStream, cublasSetStream_v2, (cublas_handle, cu_stream))              \
  F(SetWorkspace, cublasSetWorkspace_v2, (cublas_handle, void *, size_t))   \
  F(SetMathMode, cublasSetMathMode, (cublas_handle, int))                   \
  F(Gemm, cublasGemmEx,                                                     \
    (cublas_handle, int, int, int, int, int, const void *, const void *,    \
     int, int, const void *, int, int, const void *, void *, int, int, int, \
     int))                                                                  \
  F(GemmBatched, cublasGemmStridedBatchedEx,                                \
    (cublas_handle, int, int, int, int, int, const void *, const void *,    \
     int, int, long long, const void *, int, int, long long, const void *,  \
     void *, int, int, long long, int, int, int))

typedef struct { /* what the heuristic found */
  uint64_t algo[8];
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
} cublaslt_found;

#define CUBLASLT_FUNCTIONS(F)                                               \
  F(Create, cublasLtCreate, (cublaslt_handle *))                            \
  F(Destroy, cublasLtDestroy, (cublaslt_handle))                            \
  F(DescCreate, cublasLtMatmulDescCreate, (cublaslt_desc *, int, int))      \
  F(DescDestroy, cublasLtMatmulDescDestroy, (cublaslt_desc))                \
  F(DescSet, cublasLtMatmulDescSetAttribute,                                \
    (cublaslt_desc, int, const void *, size_t))                             \
  F(LayoutCreate, cublasLtMatrixLayoutCreate,                               \
    (cublaslt_layout *, int, uint64_t, uint64_t, int64_t))                  \
  F(LayoutDestroy, cublasLtMatrixLayoutDestroy, (cublaslt_layout))          \
  F(LayoutSet, cublasLtMatrixLayoutSetAttribute,                            \
    (cublaslt_layout, int, const void *, size_t))                           \
  F(PrefCreate, cublasLtMatmulPreferenceCreate, (cublaslt_pref *))          \
  F(PrefDestroy, cublasLtMatmulPreferenceDestroy, (cublaslt_pref))          \
  F(PrefSet, cublasLtMatmulPreferenceSetAttribute,                          \
    (cublaslt_pref, int, const void *, size_t))                             \
  F(Heuristic, cublasLtMatmulAlgoGetHeuristic,                              \
    (cublaslt_handle, cublaslt_desc, cublaslt_layout, cublaslt_layout,      \
     cublaslt_layout, cublaslt_layout, cublaslt_pref, int,                  \
     cublaslt_found *, int *))                                              \
  F(Matmul, cublasLtMatmul,                                                 \
    (cublaslt_handle, cublaslt_desc, const void *, const void *,            \
     cublaslt_layout, const void *, cublaslt_layout, const void *,          \
     const void *, cublaslt_layout, void *, cublaslt_layout,                \
     const uint64_t *, void *, size_t, cu_stream))

enum {
  CUDNN_OK = 0,
  CUDNN_F32 = 0,
  CUDNN_F64 = 1,
  CUDNN_F16 = 2,
  CUDNN_BF16 = 9,
  CUDNN_NCHW = 0,
  CUDNN_CORRELATION = 1, /* the window is not turned */
  CUDNN_DETERMINISTIC = 1,
  CUDNN_DEFAULT_MATH = 0,
  CUDNN_TENSOR_MATH = 1,
  CUDNN_FMA_MATH = 3 /* no TensorFloat-32 */
};

typedef struct { /* an algorithm, as the heuristics rate it */
  int algo, status;
  float time;
  size_t memory; /* of its workspace */
  int determinism, math;
  int reserved[3];
} cudnn_found;

/* alpha and beta lie in host memory: float, or double for double. Data is the
 * gradient of x, Filter that of w. */
#define CUDNN_FUNCTIONS(F)                                                  \
  F(Create, cudnnCreate, (cudnn_handle *))                                  \
  F(Destroy, cudnnDestroy, (cudnn_handle))                                  \
  F(SetStream, cudnnSetStream, (cudnn_handle, cu_stream))                   \
  F(CreateTensor, cudnnCreateTensorDescriptor, (cudnn_tensor *))            \
  F(DestroyTensor, cudnnDestroyTensorDescriptor, (cudnn_tensor))            \
  F(SetTensor, cudnnSetTensorNdDescriptor,                                  \
    (cudnn_tensor, int, int, const int *, const int *))                     \
  F(CreateFilter, cudnnCreateFilterDescriptor, (cudnn_filter *))            \
  F(DestroyFilter, cudnnDestroyFilterDescriptor, (cudnn_filter))            \
  F(SetFilter, cudnnSetFilterNdDescriptor,                                  \
    (cudnn_filter, int, int, int, const int *))                             \
  F(CreateConv, cudnnCreateConvolutionDescriptor, (cudnn_conv *))           \
  F(DestroyConv, cudnnDestroyConvolutionDescriptor, (cudnn_conv))           \
  F(SetConv, cudnnSetConvolutionNdDescriptor,                               \
    (cudnn_conv, int, const int *, const int *, const int *, int, int))     \
  F(SetGroups, cudnnSetConvolutionGroupCount, (cudnn_conv, int))            \
  F(SetMath, cudnnSetConvolutionMathType, (cudnn_conv, int))                \
  F(FindForward, cudnnGetConvolutionForwardAlgorithm_v7,                    \
    (cudnn_handle, cudnn_tensor, cudnn_filter, cudnn_conv, cudnn_tensor,    \
     int, int *, cudnn_found *))                                            \
  F(FindData, cudnnGetConvolutionBackwardDataAlgorithm_v7,                  \
    (cudnn_handle, cudnn_filter, cudnn_tensor, cudnn_conv, cudnn_tensor,    \
     int, int *, cudnn_found *))                                            \
  F(FindFilter, cudnnGetConvolutionBackwardFilterAlgorithm_v7,              \
    (cudnn_handle, cudnn_tensor, cudnn_tensor, cudnn_conv, cudnn_filter,    \
     int, int *, cudnn_found *))                                            \
  F(ForwardSpace, cudnnGetConvolutionForwardWorkspaceSize,                  \
    (cudnn_handle, cudnn_tensor, cudnn_filter, cudnn_conv, cudnn_tensor,    \
     int, size_t *))                                                        \
  F(DataSpace, cudnnGetConvolutionBackwardDataWorkspaceSize,                \
    (cudnn_handle, cudnn_filter, cudnn_tensor, cudnn_conv, cudnn_tensor,    \
     int, size_t *))                                                        \
  F(FilterSpace, cudnnGetConvolutionBackwardFilterWorkspaceSize,            \
    (cudnn_handle, cudnn_tensor, cudnn_tensor, cudnn_conv, cudnn_filter,    \
     int, size_t *))                                                        \
  F(Forward, cudnnConvolutionForward,                                       \
    (cudnn_handle, const void *, cudnn_tensor, const void *, cudnn_filter,  \
     const void *, cudnn_conv, int, void *, size_t, const void *,           \
     cudnn_tensor, void *))                                                 \
  F(Data, cudnnConvolutionBackwardData,                                     \
    (cudnn_handle, const void *, cudnn_filter, const void *, cudnn_tensor,  \
     const void *, cudnn_conv, int, void *, size_t, const void *,           \
     cudnn_tensor, void *))                                                 \
  F(Filter, cudnnConvolutionBackwardFilter,                                 \
    (cudnn_handle, const void *, cudnn_tensor, const void *, cudnn_tensor,  \
     const void *, cudnn_conv, int, void *, size_t, const void *,           \
     cudnn_filter, void *))

#define CU_POINTER(name, symbol, args) int(CU_CALL *name) args;
typedef struct {
  CU_FUNCTIONS(CU_POINTER)
  CU_POOL_FUNCTIONS(CU_POINTER)
  CU_GRAPH_FUNCTIONS(CU_POINTER)
} cu_api;
typedef struct {
  NVRTC_FUNCTIONS(CU_POINTER)
} nvrtc_api;
typedef struct {
  CUBLAS_FUNCTIONS(CU_POINTER)
} cublas_api;
typedef struct {
  CUBLASLT_FUNCTIONS(CU_POINTER)
} cublaslt_api;
typedef struct {
  CUDNN_FUNCTIONS(CU_POINTER)
} cudnn_api;
#undef CU_POINTER

#endif
