/* The part of OpenCL 1.2 and CLBlast that dev_opencl.c uses: types, constants
 * and one line per function, from which pointers are declared and loaded. No
 * OpenCL header or library is needed to build. */
#ifndef LIMN_CL_API_H
#define LIMN_CL_API_H

#include <stddef.h>
#include <stdint.h>

#ifdef _WIN32
#define CL_CALL __stdcall
#else
#define CL_CALL
#endif

typedef struct cl_platform *cl_platform;
typedef struct cl_device *cl_device;
typedef struct cl_context *cl_context;
typedef struct cl_queue *cl_queue;
typedef struct cl_mem *cl_mem;
typedef struct cl_program *cl_program;
typedef struct cl_kernel *cl_kernel;
typedef struct cl_event *cl_event;

enum {
  CL_OK = 0,
  CL_E_DEVICE_NOT_FOUND = -1,
  CL_E_MEM_ALLOC = -4,
  CL_E_RESOURCES = -5,
  CL_E_HOST_MEMORY = -6,
  CL_E_BUILD = -11,
  CL_E_BUFFER_SIZE = -61,
  CL_PLATFORM_NAME = 0x0902,
  CL_DEVICE_TYPE = 0x1000,
  CL_DEVICE_MAX_UNITS = 0x1002,
  CL_DEVICE_MAX_GROUP = 0x1004,
  CL_DEVICE_MEMORY = 0x101F,
  CL_DEVICE_AVAILABLE = 0x1027,
  CL_DEVICE_COMPILER = 0x1028,
  CL_DEVICE_NAME = 0x102B,
  CL_DEVICE_EXTENSIONS = 0x1030,
  CL_DEVICE_SINGLE_FP = 0x101B,
  CL_FP_DIVIDE_SQRT = 1 << 7, /* bit of SINGLE_FP: correctly rounded */
  CL_TYPE_CPU = 2,
  CL_TYPE_GPU = 4,
  CL_TYPE_ACCELERATOR = 8,
  CL_MEM_RW = 1,
  CL_MEM_RO = 4,
  CL_MEM_COPY_HOST = 32,
  CL_BUILD_LOG = 0x1183,
  CL_BLAS_ROW_MAJOR = 101,
  CL_BLAS_NO = 111,
  CL_BLAS_YES = 112
};

/* result, name without "cl", parameters */
#define CL_FUNCTIONS(F)                                                      \
  F(int, GetPlatformIDs, (uint32_t, cl_platform *, uint32_t *))              \
  F(int, GetPlatformInfo, (cl_platform, uint32_t, size_t, void *, size_t *)) \
  F(int, GetDeviceIDs,                                                       \
    (cl_platform, uint64_t, uint32_t, cl_device *, uint32_t *))              \
  F(int, GetDeviceInfo, (cl_device, uint32_t, size_t, void *, size_t *))     \
  F(cl_context, CreateContext,                                               \
    (const intptr_t *, uint32_t, const cl_device *,                          \
     void(CL_CALL *)(const char *, const void *, size_t, void *), void *,    \
     int *))                                                                 \
  F(int, ReleaseContext, (cl_context))                                       \
  F(cl_queue, CreateCommandQueue, (cl_context, cl_device, uint64_t, int *))  \
  F(int, ReleaseCommandQueue, (cl_queue))                                    \
  F(cl_mem, CreateBuffer, (cl_context, uint64_t, size_t, void *, int *))     \
  F(int, ReleaseMemObject, (cl_mem))                                         \
  F(cl_program, CreateProgramWithSource,                                     \
    (cl_context, uint32_t, const char **, const size_t *, int *))            \
  F(int, BuildProgram,                                                       \
    (cl_program, uint32_t, const cl_device *, const char *,                  \
     void(CL_CALL *)(cl_program, void *), void *))                           \
  F(int, GetProgramBuildInfo,                                                \
    (cl_program, cl_device, uint32_t, size_t, void *, size_t *))             \
  F(int, ReleaseProgram, (cl_program))                                       \
  F(cl_kernel, CreateKernel, (cl_program, const char *, int *))              \
  F(int, ReleaseKernel, (cl_kernel))                                         \
  F(int, SetKernelArg, (cl_kernel, uint32_t, size_t, const void *))          \
  F(int, EnqueueNDRangeKernel,                                               \
    (cl_queue, cl_kernel, uint32_t, const size_t *, const size_t *,          \
     const size_t *, uint32_t, const cl_event *, cl_event *))                \
  F(int, EnqueueWriteBuffer,                                                 \
    (cl_queue, cl_mem, uint32_t, size_t, size_t, const void *, uint32_t,     \
     const cl_event *, cl_event *))                                          \
  F(int, EnqueueReadBuffer,                                                  \
    (cl_queue, cl_mem, uint32_t, size_t, size_t, void *, uint32_t,           \
     const cl_event *, cl_event *))                                          \
  F(int, EnqueueCopyBuffer,                                                  \
    (cl_queue, cl_mem, cl_mem, size_t, size_t, size_t, uint32_t,             \
     const cl_event *, cl_event *))                                          \
  F(int, Flush, (cl_queue))                                                  \
  F(int, Finish, (cl_queue))

typedef struct {
#define CL_POINTER(type, name, args) type(CL_CALL *name) args;
  CL_FUNCTIONS(CL_POINTER)
#undef CL_POINTER
} cl_api;

/* CLBlast's C interface: layout, transposes, m, n, k, alpha, a, offset, ld,
 * stride, b, ..., beta, c, offset, ld, stride, batch, queue, event. */
typedef int(CL_CALL *cl_blas_sgemm)(int, int, int, size_t, size_t, size_t,
                                    float, cl_mem, size_t, size_t, size_t,
                                    cl_mem, size_t, size_t, size_t, float,
                                    cl_mem, size_t, size_t, size_t, size_t,
                                    cl_queue *, cl_event *);
typedef int(CL_CALL *cl_blas_dgemm)(int, int, int, size_t, size_t, size_t,
                                    double, cl_mem, size_t, size_t, size_t,
                                    cl_mem, size_t, size_t, size_t, double,
                                    cl_mem, size_t, size_t, size_t, size_t,
                                    cl_queue *, cl_event *);

#endif
