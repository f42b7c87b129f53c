/* CUDA devices: the driver API, NVRTC, cuBLAS and cuDNN, looked for at run
 * time. Each device uses its primary context, which other CUDA code of the
 * process shares, and one stream of its own, on which all is in order. A
 * context is made when the device is first used. What is not particular to CUDA
 * is in gpu.c. */
#include <stdio.h>

#include "dev_cuda.h"

/* -- Errors ---------------------------------------------------------------- */

/* Kernels' own failures, and hardware's: any later call may be the one that
 * tells, and the context is of no use from then on. */
static bool cuda_error_late(int code) {
  static const int codes[] = {CU_E_ECC, CU_E_ILLEGAL_ADDRESS, CU_E_TIMEOUT,
                              CU_E_ASSERT, CU_E_LAUNCH_FAILED};
  int i;
  for (i = 0; i < LIMN_COUNT(codes); i++)
    if (code == codes[i]) return true;
  return code >= CU_E_KERNEL_FIRST && code <= CU_E_KERNEL_LAST;
}

static const char *cuda_error_name(const cuda_libs *l, int code, char *number,
                                   size_t n) {
  const char *name = NULL;
  if (!l->f.GetErrorName(code, &name) && name) return name;
  snprintf(number, n, "error %d", code);
  return number;
}

int cuda_fail(cuda_dev *d, int code, const char *what) {
  const char *text = NULL;
  char number[24];
  limn_context *c = d->gpu.c;
  int rc = code == CU_E_OUT_OF_MEMORY ? LIMN_EMEM : LIMN_EDEVICE;
  d->l->f.GetErrorString(code, &text);
  limn_fail(c, rc, "CUDA: %s failed: %s (%s)", what,
            cuda_error_name(d->l, code, number, sizeof number),
            text ? text : "no description");
  if (cuda_error_late(code) || !strcmp(what, "cuStreamSynchronize"))
    return limn_hint(c, rc,
                     "this may come from any step since the last wait; with "
                     "LIMN_DUMP=x every step is waited for and named");
  return rc;
}

/* -- Contexts -------------------------------------------------------------- */

/* Memory that is handed out in the stream's order, from a pool of our own: the
 * device's default one may have been set up by the host. */
static void cuda_pool_new(cuda_dev *d) {
  cu_pool_props props = {.type = CU_ALLOCATION_PINNED};
  int can = 0;
  uint64_t keep = 0;
  size_t total = 0;
  if (!d->l->pools) return;
  d->l->f.DeviceGetAttribute(&can, CU_POOLS, d->id);
  if (!can) return;
  props.location.type = CU_LOCATION_DEVICE;
  props.location.id = d->id;
  if (d->l->f.MemPoolCreate(&d->pool, &props)) {
    d->pool = NULL;
    return;
  }
  if (!d->l->f.DeviceTotalMem(&total, d->id)) keep = total / 4;
  d->l->f.MemPoolSetAttribute(d->pool, CU_POOL_RELEASE_THRESHOLD, &keep);
  d->gpu.cache_limit = 64 << 20; /* what saves a call, no more */
}

static int cuda_context_new(cuda_dev *d) {
  const cu_api *f = &d->l->f;
  cu_context context = NULL;
  int code = f->PrimaryRetain(&context, d->id);
  if (code) return cuda_fail(d, code, "cuDevicePrimaryCtxRetain");
  code = f->CtxPush(context);
  if (!code) {
    code = f->StreamCreate(&d->stream, CU_STREAM_OWN_ORDER);
    if (!code) cuda_pool_new(d);
    f->CtxPop(&context);
  }
  if (!code) {
    d->context = context;
    return 0;
  }
  d->stream = NULL;
  f->PrimaryRelease(d->id);
  return cuda_fail(d, code, "cuStreamCreate");
}

int cuda_enter(cuda_dev *d) {
  int code;
  if (!d->context) LIMN_TRY(cuda_context_new(d));
  code = d->l->f.CtxPush(d->context);
  return code ? cuda_fail(d, code, "cuCtxPushCurrent") : 0;
}

void cuda_leave(cuda_dev *d) {
  cu_context old;
  d->l->f.CtxPop(&old);
}

static void cuda_context_free(cuda_dev *d) {
  const cu_api *f = &d->l->f;
  bool in = d->context && cuda_enter(d) == 0;
  if (in) f->StreamSynchronize(d->stream);
  limn_gpu_close(&d->gpu);
  if (!in) return;
  cuda_blas_close(d);
  cuda_dnn_close(d);
  cuda_ring_free(d);
  /* What was freed in the stream's order is free once the stream is done. */
  f->StreamSynchronize(d->stream);
  if (d->pool) f->MemPoolDestroy(d->pool);
  if (d->crossed) f->EventDestroy(d->crossed);
  f->StreamDestroy(d->stream);
  cuda_leave(d);
  f->PrimaryRelease(d->id);
  d->context = NULL;
}

/* -- Launch ---------------------------------------------------------------- */

void cuda_params_set(cuda_params *p, void *const *mem, int nmem,
                     const void *num) {
  int i;
  for (i = 0; i < nmem; i++) {
    p->ptr[i] = cuda_ptr(mem[i]);
    p->list[i] = &p->ptr[i];
  }
  p->list[nmem] = (void *)(uintptr_t)num;
  p->list[nmem + 1] = NULL;
}

static int cuda_launch(cuda_dev *d, const limn_gpu_launch *l, void **params) {
  const size_t *n = l->groups;
  int code, i;
  for (i = 0; i < 3; i++)
    if (n[i] == 0) return 0;
  LIMN_TRY(cuda_enter(d));
  code = d->l->f.LaunchKernel(l->kernel, (unsigned)n[0], (unsigned)n[1],
                              (unsigned)n[2], l->local, 1, 1, 0, d->stream,
                              params, NULL);
  cuda_leave(d);
  return code ? cuda_fail(d, code, "cuLaunchKernel") : 0;
}

static int cuda_start(limn_gpu *g, const limn_gpu_launch *l, void *const *mem,
                      const int64_t *num) {
  cuda_dev *d = cuda_of(g);
  cuda_params p;
  size_t size = l->args.nnum * sizeof *num;
  void *table = NULL;
  cu_ptr at;
  int rc;
  cuda_params_set(&p, mem, (int)l->args.nmem, num);
  if (!limn_gpu_table(&l->args)) return cuda_launch(d, l, p.list);
  LIMN_TRY(limn_gpu_take(g, size, &table));
  at = cuda_ptr(table);
  p.list[l->args.nmem] = &at;
  rc = cuda_write(g, table, 0, num, size);
  if (rc == 0) rc = cuda_launch(d, l, p.list);
  limn_gpu_give(g, table, size);
  return rc;
}

static const limn_gpu_driver cuda_driver = {
    .mem_new = cuda_mem_new,
    .mem_del = cuda_mem_del,
    .write = cuda_write,
    .read = cuda_read,
    .finish = cuda_finish,
    .build = cuda_build,
    .unbuild = cuda_unbuild,
    .kernel = cuda_kernel,
    .unkernel = cuda_unkernel,
    .start = cuda_start,
    .gemm_worth = cuda_gemm_worth,
    .conv_worth = cuda_conv_worth,
    .record = cuda_record,
    .node = cuda_node,
    .recorded = cuda_recorded,
    .rebind = cuda_rebind,
    .replay = cuda_replay,
    .unreplay = cuda_unreplay,
};

/* -- Libraries ------------------------------------------------------------- */

const char *cuda_load(void *lib, void *api, const cuda_symbol *list) {
  for (; list->symbol; list++) {
    void *f = limn_dl_sym(lib, list->symbol);
    if (!f) return list->symbol;
    memcpy((char *)api + list->at, &f, sizeof f);
  }
  return NULL;
}

#define CUDA_SYMBOL(name, symbol, args) {#symbol, offsetof(cu_api, name)},
static const cuda_symbol cuda_symbols[] = {CU_FUNCTIONS(CUDA_SYMBOL){NULL, 0}};
static const cuda_symbol cuda_pool_symbols[] = {
    CU_POOL_FUNCTIONS(CUDA_SYMBOL){NULL, 0}};
static const cuda_symbol cuda_graph_symbols[] = {
    CU_GRAPH_FUNCTIONS(CUDA_SYMBOL){NULL, 0}};
#undef CUDA_SYMBOL

void *cuda_open_library(const char *named, const char *const *names, int n,
                        int first) {
  char path[320];
  const char *one = named;
  int i;
  if (named[0]) return limn_dl_open(&one, 1);
  for (i = 0; i < n; i++) {
    const char *name = names[(i + first) % n];
    void *lib = limn_dl_open(&name, 1);
    if (lib) return lib;
    snprintf(path, sizeof path, CUDA_FOLDER "%s", name);
    one = path;
    lib = limn_dl_open(&one, 1);
    if (lib) return lib;
  }
  return NULL;
}

void *cuda_open_release(const cuda_libs *l, const char *named,
                        const char *const *names, int n) {
  int version = 0; /* 12080: release 12.8 */
  if (l->f.DriverGetVersion(&version)) version = 13000;
  return cuda_open_library(named, names, n,
                           LIMN_MIN(LIMN_MAX(13 - version / 1000, 0), 2));
}

/* They want memory, too, which may be what is kept for reuse here. */
bool cuda_library_start(cuda_dev *d, const char *name,
                        int (*start)(cuda_dev *d)) {
  int code = start(d);
  if (!code) return true;
  cuda_mem_trim(d);
  code = start(d);
  if (!code) return true;
  limn_device_note(d->gpu.c, "cuda: %s does not start (error %d)", name, code);
  return false;
}

/* Less is one launch of a kernel of our own, which a replay can bind to other
 * operands; bfloat16 has no tensor cores before compute capability 8.0. */
bool cuda_worth(const cuda_dev *d, int dtype, double work, bool tiles) {
  bool half = dtype == LIMN_F16 || dtype == LIMN_BF16;
  if (!limn_dtype_float(dtype) || (dtype == LIMN_BF16 && d->arch < 80))
    return false;
  return work >= (half && tiles ? 1 << 18 : 1 << 21);
}

/* The libraries stay loaded: they have threads and exit handlers of their own,
 * and others in the process may use them. */
static void cuda_libs_release(limn_context *c, cuda_libs *l) {
  if (--l->refs == 0) limn_free(c, l, sizeof *l);
}

/* The driver; a reason is noted where there is none. */
static bool cuda_driver_load(limn_context *c, cuda_libs *l) {
  static const char *const names[] = {"libcuda.so.1", "nvcuda.dll"};
  const char *named = c->flags.cuda_lib, *missing;
  l->lib = named[0] ? limn_dl_open(&named, 1)
                    : limn_dl_open(names, LIMN_COUNT(names));
  if (!l->lib) {
    limn_device_note(c, "cuda: cannot load %s, the NVIDIA driver",
                     named[0] ? named : names[0]);
    return false;
  }
  missing = cuda_load(l->lib, &l->f, cuda_symbols);
  if (missing) {
    limn_device_note(c, "cuda: the driver lacks %s; CUDA 11 or newer is needed",
                     missing);
    return false;
  }
  l->pools = !cuda_load(l->lib, &l->f, cuda_pool_symbols);
  l->graphs = !cuda_load(l->lib, &l->f, cuda_graph_symbols);
  return true;
}

/* How many devices the driver has; 0 with a note. */
static int cuda_count(limn_context *c, cuda_libs *l) {
  char number[24];
  int n = 0, code = l->f.Init(0);
  if (!code) code = l->f.DeviceGetCount(&n);
  if (code && code != CU_E_NO_DEVICE) {
    limn_device_note(c, "cuda: the driver does not start: %s",
                     cuda_error_name(l, code, number, sizeof number));
    return 0;
  }
  if (code || n <= 0)
    limn_device_note(c, "cuda: the driver finds no GPU");
  return code ? 0 : n;
}

static int cuda_libs_new(limn_context *c, cuda_libs **out, int *count) {
  cuda_libs *l = limn_alloc(c, sizeof *l);
  *out = NULL;
  *count = 0;
  if (!l) return LIMN_EMEM;
  l->refs = 1;
  if (cuda_driver_load(c, l)) *count = cuda_count(c, l);
  if (*count) cuda_compiler_load(c, l);
  if (l->rtc_lib) {
    *out = l;
    return 0;
  }
  *count = 0;
  cuda_libs_release(c, l);
  return 0;
}

/* -- Opening --------------------------------------------------------------- */

static void cuda_close(limn_device *dev) {
  cuda_dev *d = dev->impl;
  limn_context *c = d->gpu.c;
  cuda_context_free(d);
  cuda_libs_release(c, d->l);
  limn_free(c, d, sizeof *d);
}

static int cuda_ask_number(const cuda_dev *d, int what) {
  int v = 0;
  return d->l->f.DeviceGetAttribute(&v, what, d->id) ? 0 : v;
}

/* What the device can, and sizes that suit it. */
static void cuda_ask(cuda_dev *d, size_t *memory) {
  limn_gpu *g = &d->gpu;
  if (d->l->f.DeviceTotalMem(memory, d->id)) *memory = 0;
  d->arch = cuda_ask_number(d, CU_MAJOR) * 10 + cuda_ask_number(d, CU_MINOR);
  g->fp64 = g->atom64 = true;
  g->warps = g->vectors = true;
  g->arg_bytes = 4096;
  g->max_local = (uint32_t)cuda_ask_number(d, CU_MAX_THREADS_PER_BLOCK);
  g->max_local = LIMN_MIN(LIMN_MAX(g->max_local, 32), 1024);
  g->local = LIMN_MIN(g->max_local, 256);
  /* Eight groups of 256 fill a multiprocessor. */
  g->units = LIMN_MAX(cuda_ask_number(d, CU_MULTIPROCESSORS), 1) * 8;
  g->cache_limit = LIMN_MIN(*memory / 8, (size_t)1 << 30);
  g->replays = d->l->graphs;
}

/* Whether it can be used at all; why not is noted. */
static bool cuda_usable(cuda_dev *d, const char *name) {
  limn_context *c = d->gpu.c;
  int mode = cuda_ask_number(d, CU_COMPUTE_MODE);
  if (mode == CU_MODE_PROHIBITED) {
    limn_device_note(c, "cuda: %s is set to prohibit computing", name);
    return false;
  }
  if (cuda_compiler_knows(d->l, d->arch)) return true;
  limn_device_note(c,
                   "cuda: NVRTC %d.%d cannot compile for %s (compute "
                   "capability %d.%d); LIMN_NVRTC_LIB may name an older one",
                   d->l->rtc_version[0], d->l->rtc_version[1], name,
                   d->arch / 10, d->arch % 10);
  return false;
}

/* 1 when the device was added, 0 when it cannot be used. */
static int cuda_add(limn_context *c, cuda_libs *l, int ordinal, int index) {
  char device[80] = "device", name[24], description[128];
  cuda_dev *d = limn_alloc(c, sizeof *d);
  limn_device *dev;
  size_t memory = 0;
  int rc = 0;
  if (!d) return LIMN_EMEM;
  d->gpu.c = c;
  d->gpu.drv = &cuda_driver;
  d->l = l;
  l->refs++;
  if (!l->f.DeviceGet(&d->id, ordinal)) {
    l->f.DeviceGetName(device, (int)sizeof device, d->id);
    device[sizeof device - 1] = 0;
    cuda_ask(d, &memory);
    snprintf(name, sizeof name, "cuda:%d", index);
    snprintf(description, sizeof description, "%.79s, sm_%d, %zu MiB", device,
             d->arch, memory >> 20);
    if (cuda_usable(d, device))
      rc = limn_device_add(c, &limn_cuda_ops, d, name, description, &dev) < 0
               ? LIMN_EMEM
               : 1;
  }
  if (rc == 1) return 1;
  l->refs--;
  limn_free(c, d, sizeof *d);
  return rc;
}

static int cuda_open(limn_context *c) {
  cuda_libs *l;
  int n, i, found = 0, rc = 0;
  LIMN_TRY(cuda_libs_new(c, &l, &n));
  if (!l) return 0;
  for (i = 0; i < n && rc >= 0; i++) {
    rc = cuda_add(c, l, i, found);
    found += rc > 0;
  }
  cuda_libs_release(c, l);
  return rc < 0 ? rc : 0;
}

static void cuda_look(limn_device *dev) {
  cuda_dev *d = dev->impl;
  cuda_blas_load(d->gpu.c, d->l);
  cuda_dnn_load(d->gpu.c, d->l);
}

const limn_device_ops limn_cuda_ops = {
    "cuda",            false,
    cuda_open,         cuda_close,
    limn_gpu_alloc,    limn_gpu_free,
    limn_gpu_upload,   limn_gpu_download,
    limn_gpu_wait,     limn_gpu_prepare,
    limn_gpu_discard,  limn_gpu_launch_step,
    limn_gpu_supports, limn_gpu_fault,
    limn_gpu_launch_all, cuda_cross,
    cuda_look,
};
