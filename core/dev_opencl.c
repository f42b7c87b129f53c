/* OpenCL devices: one context and one in-order queue each, memory as cl_mem,
 * products by CLBlast where that is worth it. The libraries are looked for at
 * run time. What is not particular to OpenCL is in gpu.c. */
#include <stdio.h>

#include "cl_api.h"
#include "gpu.h"

/* The loaded libraries, shared by the devices that one context opens. */
typedef struct {
  int refs;
  void *lib, *blas;
  cl_api f;
  cl_blas_sgemm sgemm;
  cl_blas_dgemm dgemm;
} cl_libs;

typedef struct {
  limn_gpu gpu; /* first: a limn_gpu is also this */
  cl_libs *l;
  cl_device id;
  cl_context context;
  cl_queue queue;
  bool rounds; /* divides and roots can be correctly rounded */
  int unsent;  /* launches since the last flush */
} cl_dev;

static cl_dev *cl_of(limn_gpu *g) { return (cl_dev *)(void *)g; }

/* -- Errors ---------------------------------------------------------------- */

static int cl_fail(cl_dev *d, int code, const char *what) {
  return limn_fail(d->gpu.c, LIMN_EDEVICE, "OpenCL: %s failed with error %d",
                   what, code);
}

static bool cl_no_memory(int code) {
  return code == CL_E_MEM_ALLOC || code == CL_E_RESOURCES ||
         code == CL_E_HOST_MEMORY || code == CL_E_BUFFER_SIZE;
}

/* -- Memory ---------------------------------------------------------------- */

static int cl_mem_new(limn_gpu *g, size_t bytes, void **mem) {
  cl_dev *d = cl_of(g);
  int code = 0;
  *mem = d->l->f.CreateBuffer(d->context, CL_MEM_RW, bytes, NULL, &code);
  if (code == CL_OK && *mem) return 0;
  *mem = NULL;
  return cl_no_memory(code) ? LIMN_EMEM : cl_fail(d, code, "clCreateBuffer");
}

/* The driver keeps it until the commands that use it are done. */
static void cl_mem_del(limn_gpu *g, void *mem) {
  cl_of(g)->l->f.ReleaseMemObject(mem);
}

enum { CL_SMALL_WRITE = 1 << 20 };

/* A blocking write would wait for all that was launched before. Up to a
 * mebibyte, a buffer made with the bytes and copied from in order does not. */
static int cl_write(limn_gpu *g, void *mem, size_t off, const void *src,
                    size_t n) {
  cl_dev *d = cl_of(g);
  const cl_api *f = &d->l->f;
  int code = 0;
  if (n <= CL_SMALL_WRITE) {
    cl_mem from = f->CreateBuffer(d->context, CL_MEM_RO | CL_MEM_COPY_HOST, n,
                                  (void *)(uintptr_t)src, &code);
    if (code == CL_OK && from) {
      code =
          f->EnqueueCopyBuffer(d->queue, from, mem, 0, off, n, 0, NULL, NULL);
      f->ReleaseMemObject(from);
      return code ? cl_fail(d, code, "clEnqueueCopyBuffer") : 0;
    }
  }
  code = f->EnqueueWriteBuffer(d->queue, mem, 1, off, n, src, 0, NULL, NULL);
  d->unsent = 0;
  return code ? cl_fail(d, code, "clEnqueueWriteBuffer") : 0;
}

static int cl_read(limn_gpu *g, void *mem, size_t off, void *dst, size_t n) {
  cl_dev *d = cl_of(g);
  int code =
      d->l->f.EnqueueReadBuffer(d->queue, mem, 1, off, n, dst, 0, NULL, NULL);
  d->unsent = 0;
  return code ? cl_fail(d, code, "clEnqueueReadBuffer") : 0;
}

static int cl_finish(limn_gpu *g) {
  cl_dev *d = cl_of(g);
  int code = d->l->f.Finish(d->queue);
  d->unsent = 0;
  return code ? cl_fail(d, code, "clFinish") : 0;
}

/* -- Programs -------------------------------------------------------------- */

static int cl_build_fail(cl_dev *d, cl_program p, int code) {
  char log[1500] = "";
  size_t n = 0;
  if (d->l->f.GetProgramBuildInfo(p, d->id, CL_BUILD_LOG, sizeof log - 1, log,
                                  &n))
    snprintf(log, sizeof log, "(the log is longer than %zu bytes)", sizeof log);
  return limn_fail(d->gpu.c, LIMN_EDEVICE,
                   "OpenCL: a kernel did not compile (error %d): %s", code,
                   log);
}

static int cl_build(limn_gpu *g, const char *src, void **program) {
  cl_dev *d = cl_of(g);
  size_t head = limn_gpu_heading(src);
  const char *text[5] = {g->atom64 ? "#define USE_ATOM64\n" : "", src,
                         limn_gpu_text("prelude_opencl"),
                         limn_gpu_text("dialect"), src + head};
  size_t len[5] = {0, 0, 0, 0, 0}; /* 0: up to the NUL */
  char options[96];
  int code = 0;
  cl_program p;
  len[1] = head;
  if (!head) text[1] = "";
  p = d->l->f.CreateProgramWithSource(d->context, 5, text, len, &code);
  if (!p) return cl_fail(d, code, "clCreateProgramWithSource");
  snprintf(options, sizeof options, "-cl-std=CL1.2 -w%s%s",
           d->rounds ? " -cl-fp32-correctly-rounded-divide-sqrt" : "",
           g->fp64 ? "" : " -cl-single-precision-constant");
  code = d->l->f.BuildProgram(p, 1, &d->id, options, NULL, NULL);
  if (code) {
    code = cl_build_fail(d, p, code);
    d->l->f.ReleaseProgram(p);
    return code;
  }
  *program = p;
  return 0;
}

static void cl_unbuild(limn_gpu *g, void *program) {
  cl_of(g)->l->f.ReleaseProgram(program);
}

static int cl_kernel_of(limn_gpu *g, void *program, const char *name,
                        void **kernel) {
  cl_dev *d = cl_of(g);
  int code = 0;
  *kernel = d->l->f.CreateKernel(program, name, &code);
  return *kernel ? 0 : cl_fail(d, code, "clCreateKernel");
}

static void cl_unkernel(limn_gpu *g, void *kernel) {
  cl_of(g)->l->f.ReleaseKernel(kernel);
}

/* -- Launch ---------------------------------------------------------------- */

enum { CL_FLUSH = 8 }; /* launches that may wait for more */

static int cl_args(cl_dev *d, cl_kernel k, void *const *mem, int nmem,
                   const void *num, size_t size) {
  int i, code;
  for (i = 0; i < nmem; i++) {
    code = d->l->f.SetKernelArg(k, (uint32_t)i, sizeof(cl_mem), &mem[i]);
    if (code) return cl_fail(d, code, "clSetKernelArg");
  }
  code = d->l->f.SetKernelArg(k, (uint32_t)nmem, size, num);
  return code ? cl_fail(d, code, "clSetKernelArg") : 0;
}

static int cl_start(limn_gpu *g, const limn_gpu_launch *l, void *const *mem,
                    const int64_t *num) {
  cl_dev *d = cl_of(g);
  const cl_api *f = &d->l->f;
  size_t size = l->args.nnum * sizeof *num, global[3], in_group[3] = {1, 1, 1};
  cl_mem numbers = NULL;
  bool table = limn_gpu_table(&l->args);
  int code = 0, rc, i, nmem = (int)l->args.nmem;
  for (i = 0; i < 3; i++) {
    if (l->groups[i] == 0) return 0;
    in_group[i] = i ? 1 : l->local;
    global[i] = l->groups[i] * in_group[i];
  }
  if (table) {
    numbers = f->CreateBuffer(d->context, CL_MEM_RO | CL_MEM_COPY_HOST, size,
                              (void *)(uintptr_t)num, &code);
    if (!numbers) return cl_fail(d, code, "clCreateBuffer");
  }
  rc = table ? cl_args(d, l->kernel, mem, nmem, &numbers, sizeof numbers)
             : cl_args(d, l->kernel, mem, nmem, num, size);
  if (!rc) {
    code = f->EnqueueNDRangeKernel(d->queue, l->kernel, 3, NULL, global,
                                   in_group, 0, NULL, NULL);
    if (code) rc = cl_fail(d, code, "clEnqueueNDRangeKernel");
  }
  if (numbers) f->ReleaseMemObject(numbers);
  if (!rc && ++d->unsent >= CL_FLUSH) {
    f->Flush(d->queue);
    d->unsent = 0;
  }
  return rc;
}

/* -- Products by CLBlast --------------------------------------------------- */

static int cl_gemm(limn_gpu *g, const limn_gpu_call *call, void *const *mem,
                   const int64_t *off) {
  cl_dev *d = cl_of(g);
  const limn_gpu_gemm *m = &call->gemm;
  int ta = m->ta ? CL_BLAS_YES : CL_BLAS_NO;
  int tb = m->tb ? CL_BLAS_YES : CL_BLAS_NO;
  size_t M = (size_t)m->m, N = (size_t)m->n, K = (size_t)m->k;
  size_t lda = (size_t)m->lda, ldb = (size_t)m->ldb;
  int code;
  if (m->dtype == LIMN_F32)
    code = d->l->sgemm(
        CL_BLAS_ROW_MAJOR, ta, tb, M, N, K, 1.0f, mem[1], (size_t)off[1], lda,
        (size_t)m->sa, mem[2], (size_t)off[2], ldb, (size_t)m->sb, 0.0f, mem[0],
        (size_t)off[0], N, M * N, (size_t)m->batch, &d->queue, NULL);
  else
    code = d->l->dgemm(
        CL_BLAS_ROW_MAJOR, ta, tb, M, N, K, 1.0, mem[1], (size_t)off[1], lda,
        (size_t)m->sa, mem[2], (size_t)off[2], ldb, (size_t)m->sb, 0.0, mem[0],
        (size_t)off[0], N, M * N, (size_t)m->batch, &d->queue, NULL);
  return code ? cl_fail(d, code, "CLBlast's gemm") : 0;
}

/* CLBlast compiles a routine for seconds at its first call and is tuned for
 * GPUs; on a CPU only if the user named the library, or for huge products. */
static bool cl_gemm_worth(limn_gpu *g, limn_gpu_call *call) {
  cl_dev *d = cl_of(g);
  limn_gpu_gemm *m = &call->gemm;
  double work = (double)m->m * (double)m->n * (double)m->k * (double)m->batch;
  if (m->dtype == LIMN_F32 ? !d->l->sgemm
                           : m->dtype != LIMN_F64 || !d->l->dgemm)
    return false;
  m->bias = false;
  call->run = cl_gemm;
  if (m->m < 8 || m->n < 8) return false;
  if (g->c->flags.clblast_lib[0]) return work >= 1 << 15;
  return !g->cpu && work >= 1 << 21;
}

static const limn_gpu_driver cl_driver = {
    .mem_new = cl_mem_new,
    .mem_del = cl_mem_del,
    .write = cl_write,
    .read = cl_read,
    .finish = cl_finish,
    .build = cl_build,
    .unbuild = cl_unbuild,
    .kernel = cl_kernel_of,
    .unkernel = cl_unkernel,
    .start = cl_start,
    .gemm_worth = cl_gemm_worth,
};

/* -- Opening --------------------------------------------------------------- */

static void cl_libs_release(limn_context *c, cl_libs *l) {
  if (--l->refs > 0) return;
  limn_dl_close(l->blas);
  limn_dl_close(l->lib);
  limn_free(c, l, sizeof *l);
}

/* The name of the first function that the library lacks, or NULL. */
static const char *cl_load(cl_libs *l) {
#define CL_LOAD(type, name, args)                                 \
  *(void **)(void *)&l->f.name = limn_dl_sym(l->lib, "cl" #name); \
  if (!l->f.name) return "cl" #name;
  CL_FUNCTIONS(CL_LOAD)
#undef CL_LOAD
  return NULL;
}

static void cl_load_blas(limn_context *c, cl_libs *l) {
  const char *names[] = {c->flags.clblast_lib, "libclblast.so.1",
                         "libclblast.so", "libclblast.dylib", "clblast.dll"};
  bool named = c->flags.clblast_lib[0];
  l->blas = limn_dl_open(names, named ? 1 : LIMN_COUNT(names));
  if (!l->blas) {
    if (named) limn_device_note(c, "opencl: cannot load %s", names[0]);
    return;
  }
  *(void **)(void *)&l->sgemm =
      limn_dl_sym(l->blas, "CLBlastSgemmStridedBatched");
  *(void **)(void *)&l->dgemm =
      limn_dl_sym(l->blas, "CLBlastDgemmStridedBatched");
}

static int cl_libs_new(limn_context *c, cl_libs **out) {
  const char *names[] = {c->flags.opencl_lib, "libOpenCL.so.1", "libOpenCL.so",
                         "OpenCL.dll",
                         "/System/Library/Frameworks/OpenCL.framework/OpenCL"};
  bool named = c->flags.opencl_lib[0];
  const char *missing;
  cl_libs *l = limn_alloc(c, sizeof *l);
  *out = NULL;
  if (!l) return LIMN_EMEM;
  l->refs = 1;
  l->lib = limn_dl_open(names, named ? 1 : LIMN_COUNT(names));
  if (!l->lib) {
    limn_device_note(c, "opencl: cannot load %s", names[named ? 0 : 1]);
  } else if ((missing = cl_load(l)) != NULL) {
    limn_device_note(c, "opencl: the library lacks %s", missing);
  } else {
    cl_load_blas(c, l);
    *out = l;
    return 0;
  }
  cl_libs_release(c, l);
  return 0;
}

static void cl_close(limn_device *dev) {
  cl_dev *d = dev->impl;
  limn_context *c = d->gpu.c;
  if (d->queue) d->l->f.Finish(d->queue);
  limn_gpu_close(&d->gpu);
  if (d->queue) d->l->f.ReleaseCommandQueue(d->queue);
  if (d->context) d->l->f.ReleaseContext(d->context);
  cl_libs_release(c, d->l);
  limn_free(c, d, sizeof *d);
}

static uint64_t cl_number(cl_dev *d, uint32_t what, size_t size) {
  union {
    uint32_t u32;
    uint64_t u64;
    size_t size;
  } v = {.u64 = 0};
  if (d->l->f.GetDeviceInfo(d->id, what, size, &v, NULL)) return 0;
  return size == 4 ? v.u32 : v.u64;
}

static bool cl_has(const char *extensions, const char *name) {
  const char *at = strstr(extensions, name);
  return at && (at[strlen(name)] == ' ' || !at[strlen(name)]);
}

/* What the device can, and sizes that suit it. */
static void cl_ask(cl_dev *d, char *extensions, size_t n) {
  uint64_t type = cl_number(d, CL_DEVICE_TYPE, 8), memory, most;
  extensions[0] = 0;
  if (d->l->f.GetDeviceInfo(d->id, CL_DEVICE_EXTENSIONS, n, extensions, NULL))
    extensions[0] = 0;
  d->gpu.fp64 = cl_has(extensions, "cl_khr_fp64");
  d->gpu.atom64 = cl_has(extensions, "cl_khr_int64_base_atomics");
  d->gpu.cpu = (type & CL_TYPE_CPU) && !d->gpu.c->flags.opencl_gpu;
  d->rounds = cl_number(d, CL_DEVICE_SINGLE_FP, 8) & CL_FP_DIVIDE_SQRT;
  most = cl_number(d, CL_DEVICE_MAX_GROUP, sizeof(size_t));
  d->gpu.max_local = (uint32_t)LIMN_MIN(LIMN_MAX(most, 1), 1024);
  d->gpu.local = d->gpu.cpu ? 4 : 64;
  while (d->gpu.local > d->gpu.max_local) d->gpu.local /= 2;
  d->gpu.arg_bytes = 1000; /* OpenCL promises 1024 */
  d->gpu.units = (int64_t)LIMN_MAX(cl_number(d, CL_DEVICE_MAX_UNITS, 4), 1);
  if (!d->gpu.cpu) d->gpu.units *= 8;
  memory = cl_number(d, CL_DEVICE_MEMORY, 8);
  d->gpu.cache_limit = (size_t)LIMN_MIN(memory / 8, (uint64_t)1 << 30);
}

/* A device that cannot be opened is noted and left out. */
static bool cl_start_queue(cl_dev *d, const char *name) {
  int code = 0;
  d->context = d->l->f.CreateContext(NULL, 1, &d->id, NULL, NULL, &code);
  if (d->context)
    d->queue = d->l->f.CreateCommandQueue(d->context, d->id, 0, &code);
  if (d->queue) return true;
  limn_device_note(d->gpu.c, "opencl: %s cannot be opened (error %d)", name,
                   code);
  return false;
}

static int cl_add(limn_context *c, cl_libs *l, cl_device id,
                  const char *platform, int index) {
  char device[64] = "device", name[24], description[128], extensions[4096];
  cl_dev *d = limn_alloc(c, sizeof *d);
  limn_device *dev;
  int rc;
  if (!d) return LIMN_EMEM;
  d->gpu.c = c;
  d->gpu.drv = &cl_driver;
  d->l = l;
  d->id = id;
  l->refs++;
  l->f.GetDeviceInfo(id, CL_DEVICE_NAME, sizeof device, device, NULL);
  device[sizeof device - 1] = 0;
  snprintf(name, sizeof name, "opencl:%d", index);
  snprintf(description, sizeof description, "%.60s: %.60s", platform, device);
  cl_ask(d, extensions, sizeof extensions);
  rc = cl_start_queue(d, description) ? 1 : 0;
  if (rc) {
    rc = limn_device_add(c, &limn_opencl_ops, d, name, description, &dev);
    if (rc == 0) return 1;
  }
  if (d->queue) l->f.ReleaseCommandQueue(d->queue);
  if (d->context) l->f.ReleaseContext(d->context);
  l->refs--;
  limn_free(c, d, sizeof *d);
  return rc;
}

enum { CL_MAX = 16 }; /* platforms, and devices of each */

static int cl_open(limn_context *c) {
  cl_platform platform[CL_MAX];
  cl_device device[CL_MAX];
  uint32_t np = 0, nd, i, k;
  cl_libs *l;
  int found = 0, rc;
  LIMN_TRY(cl_libs_new(c, &l));
  if (!l) return 0;
  if (l->f.GetPlatformIDs(CL_MAX, platform, &np)) np = 0;
  for (i = 0; i < LIMN_MIN(np, CL_MAX); i++) {
    char name[64] = "platform";
    l->f.GetPlatformInfo(platform[i], CL_PLATFORM_NAME, sizeof name, name,
                         NULL);
    name[sizeof name - 1] = 0;
    nd = 0;
    if (l->f.GetDeviceIDs(platform[i],
                          CL_TYPE_CPU | CL_TYPE_GPU | CL_TYPE_ACCELERATOR,
                          CL_MAX, device, &nd))
      nd = 0;
    for (k = 0; k < LIMN_MIN(nd, CL_MAX); k++) {
      LIMN_GO(cl_add(c, l, device[k], name, found));
      found += rc;
    }
  }
  if (!found)
    limn_device_note(c, np ? "opencl: no platform has a device"
                           : "opencl: no platform is installed");
  rc = 0;
bail:
  cl_libs_release(c, l);
  return rc;
}

const limn_device_ops limn_opencl_ops = {
    "opencl",          false,
    cl_open,           cl_close,
    limn_gpu_alloc,    limn_gpu_free,
    limn_gpu_upload,   limn_gpu_download,
    limn_gpu_wait,     limn_gpu_prepare,
    limn_gpu_discard,  limn_gpu_launch_step,
    limn_gpu_supports, limn_gpu_fault,
    NULL,              NULL,
    NULL,
};
