// Compiles only where core/cuda_api.h says what CUDA's own headers say: as many
// parameters of the same sizes and kinds, and the same constants.
#include <cstddef>
#include <cstdint>
#include <type_traits>

#define __CUDA_API_VERSION_INTERNAL // old versions of functions as well
#include <cuda.h>
#include <nvrtc.h>
#undef __cplusplus // C++ would overload two functions
#include <cublasLt.h>
#include <cublas_v2.h>
#define __cplusplus 201703L
#if __has_include(<cudnn.h>)
#define HAS_CUDNN
#include <cudnn.h>
#endif
namespace own {
#include "cuda_api.h"
}

// Handles, enums and structs have names of their own; what a call passes is
// alike when sizes are, and pointers stand for pointers.
template <class A, class B> constexpr bool alike() {
  return std::is_pointer<A>::value == std::is_pointer<B>::value &&
         std::is_floating_point<A>::value == std::is_floating_point<B>::value &&
         sizeof(A) == sizeof(B);
}
template <class A, class B> struct fits {
  static constexpr bool value = false;
};
template <class R, class... A, class... B>
struct fits<R(A...), int(B...)> {
  static constexpr bool all() {
    if constexpr (sizeof...(A) != sizeof...(B))
      return false;
    else
      return (alike<A, B>() && ...) && sizeof(R) == sizeof(int);
  }
  static constexpr bool value = all();
};

namespace own {
#define CHECK(name, symbol, args) \
  static_assert(fits<decltype(::symbol), int args>::value, #symbol);
CU_FUNCTIONS(CHECK)
CU_POOL_FUNCTIONS(CHECK)
CU_GRAPH_FUNCTIONS(CHECK)
NVRTC_FUNCTIONS(CHECK)
CUBLAS_FUNCTIONS(CHECK)
CUBLASLT_FUNCTIONS(CHECK)
#ifdef HAS_CUDNN
CUDNN_FUNCTIONS(CHECK)
#endif
} // namespace own

#define SAME(ours, theirs) \
  static_assert((int)own::ours == (int)(theirs), #ours)
SAME(CU_OK, CUDA_SUCCESS);
SAME(CU_E_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
SAME(CU_E_NO_DEVICE, CUDA_ERROR_NO_DEVICE);
SAME(CU_E_INVALID_IMAGE, CUDA_ERROR_INVALID_IMAGE);
SAME(CU_E_PTX_TOO_NEW, CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
SAME(CU_E_ECC, CUDA_ERROR_ECC_UNCORRECTABLE);
SAME(CU_E_ILLEGAL_ADDRESS, CUDA_ERROR_ILLEGAL_ADDRESS);
SAME(CU_E_TIMEOUT, CUDA_ERROR_LAUNCH_TIMEOUT);
SAME(CU_E_ASSERT, CUDA_ERROR_ASSERT);
SAME(CU_E_KERNEL_FIRST, CUDA_ERROR_HARDWARE_STACK_ERROR);
SAME(CU_E_KERNEL_LAST, CUDA_ERROR_INVALID_PC);
SAME(CU_E_LAUNCH_FAILED, CUDA_ERROR_LAUNCH_FAILED);
SAME(CU_ACCESS_BOTH, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
SAME(CU_E_NO_BINARY, CUDA_ERROR_NO_BINARY_FOR_GPU);
SAME(CU_E_NOT_SUPPORTED, CUDA_ERROR_NOT_SUPPORTED);
SAME(CU_MAX_THREADS_PER_BLOCK, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
SAME(CU_MULTIPROCESSORS, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
SAME(CU_COMPUTE_MODE, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE);
SAME(CU_CLOCK_MEMORY, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE);
SAME(CU_BUS_WIDTH, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
SAME(CU_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME(CU_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME(CU_POOLS, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED);
SAME(CU_MODE_PROHIBITED, CU_COMPUTEMODE_PROHIBITED);
SAME(CU_STREAM_OWN_ORDER, CU_STREAM_NON_BLOCKING);
SAME(CU_EVENT_NO_TIMING, CU_EVENT_DISABLE_TIMING);
SAME(CU_CAPTURE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED);
SAME(CU_CAPTURE_ACTIVE, CU_STREAM_CAPTURE_STATUS_ACTIVE);
SAME(CU_POOL_RELEASE_THRESHOLD, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD);
SAME(CU_ALLOCATION_PINNED, CU_MEM_ALLOCATION_TYPE_PINNED);
SAME(CU_LOCATION_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE);
SAME(CUBLAS_OK, CUBLAS_STATUS_SUCCESS);
SAME(CUBLAS_NO, CUBLAS_OP_N);
SAME(CUBLAS_YES, CUBLAS_OP_T);
SAME(CUBLAS_R_32F, CUDA_R_32F);
SAME(CUBLAS_R_64F, CUDA_R_64F);
SAME(CUBLAS_R_16F, CUDA_R_16F);
SAME(CUBLAS_R_16BF, CUDA_R_16BF);
SAME(CUBLAS_BY_32F, CUBLAS_COMPUTE_32F);
SAME(CUBLAS_BY_64F, CUBLAS_COMPUTE_64F);
SAME(CUBLAS_BY_TF32, CUBLAS_COMPUTE_32F_FAST_TF32);
SAME(CUBLAS_ALGO_DEFAULT, CUBLAS_GEMM_DEFAULT);
SAME(CUBLAS_FULL_SUMS, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
SAME(CUBLASLT_TRANSA, CUBLASLT_MATMUL_DESC_TRANSA);
SAME(CUBLASLT_TRANSB, CUBLASLT_MATMUL_DESC_TRANSB);
SAME(CUBLASLT_EPILOGUE, CUBLASLT_MATMUL_DESC_EPILOGUE);
SAME(CUBLASLT_BIAS, CUBLASLT_MATMUL_DESC_BIAS_POINTER);
SAME(CUBLASLT_BIAS_TYPE, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE);
SAME(CUBLASLT_ADD_BIAS, CUBLASLT_EPILOGUE_BIAS);
SAME(CUBLASLT_BATCH, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT);
SAME(CUBLASLT_BATCH_STRIDE, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
SAME(CUBLASLT_WORKSPACE, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
SAME(CUBLASLT_REDUCTIONS, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK);
SAME(CUBLASLT_BY_COMPUTE, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
SAME(CUBLASLT_ALIGN_A, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);

#define PLACED(Ours, field, Theirs, other)                              \
  static_assert(offsetof(own::Ours, field) == offsetof(Theirs, other), \
                #Ours "." #field)
static_assert(sizeof(own::cu_pool_props) == sizeof(CUmemPoolProps), "props");
PLACED(cu_pool_props, location, CUmemPoolProps, location);
PLACED(cu_pool_props, security, CUmemPoolProps, win32SecurityAttributes);
static_assert(sizeof(own::cu_access) == sizeof(CUmemAccessDesc), "access");
PLACED(cu_access, flags, CUmemAccessDesc, flags);
static_assert(sizeof(own::cu_node_params) == sizeof(CUDA_KERNEL_NODE_PARAMS_v1),
              "node");
PLACED(cu_node_params, block, CUDA_KERNEL_NODE_PARAMS_v1, blockDimX);
PLACED(cu_node_params, shared, CUDA_KERNEL_NODE_PARAMS_v1, sharedMemBytes);
PLACED(cu_node_params, params, CUDA_KERNEL_NODE_PARAMS_v1, kernelParams);
static_assert(sizeof(own::cublaslt_found) ==
                  sizeof(cublasLtMatmulHeuristicResult_t), "found");
PLACED(cublaslt_found, workspace, cublasLtMatmulHeuristicResult_t,
       workspaceSize);
PLACED(cublaslt_found, state, cublasLtMatmulHeuristicResult_t, state);
#ifdef HAS_CUDNN
SAME(CUDNN_F32, CUDNN_DATA_FLOAT);
SAME(CUDNN_F64, CUDNN_DATA_DOUBLE);
SAME(CUDNN_F16, CUDNN_DATA_HALF);
SAME(CUDNN_BF16, CUDNN_DATA_BFLOAT16);
SAME(CUDNN_NCHW, CUDNN_TENSOR_NCHW);
SAME(CUDNN_CORRELATION, CUDNN_CROSS_CORRELATION);
SAME(CUDNN_DETERMINISTIC, ::CUDNN_DETERMINISTIC);
SAME(CUDNN_DEFAULT_MATH, ::CUDNN_DEFAULT_MATH);
SAME(CUDNN_TENSOR_MATH, CUDNN_TENSOR_OP_MATH);
SAME(CUDNN_FMA_MATH, ::CUDNN_FMA_MATH);
SAME(CUDNN_OK, CUDNN_STATUS_SUCCESS);
#define FOUND(Theirs)                                               \
  static_assert(sizeof(own::cudnn_found) == sizeof(Theirs), #Theirs); \
  PLACED(cudnn_found, algo, Theirs, algo);                          \
  PLACED(cudnn_found, status, Theirs, status);                      \
  PLACED(cudnn_found, memory, Theirs, memory);                      \
  PLACED(cudnn_found, determinism, Theirs, determinism);            \
  PLACED(cudnn_found, math, Theirs, mathType)
FOUND(cudnnConvolutionFwdAlgoPerf_t);
FOUND(cudnnConvolutionBwdDataAlgoPerf_t);
FOUND(cudnnConvolutionBwdFilterAlgoPerf_t);
#endif
