/* CUDA programs: source by NVRTC to machine code for the device's own
 * architecture (PTX where the device is newer than NVRTC), by way of the cache
 * on the disk. */
#include <stdio.h>
#include <stdlib.h>

#include "dev_cuda.h"

/* -- NVRTC ----------------------------------------------------------------- */

#define COMPILE_SYMBOL(name, symbol, args) {#symbol, offsetof(nvrtc_api, name)},
static const cuda_symbol compile_symbols[] = {
    NVRTC_FUNCTIONS(COMPILE_SYMBOL){NULL, 0}};
#undef COMPILE_SYMBOL

static const char *compile_find(limn_context *c, cuda_libs *l) {
  static const char *const names[] = {"libnvrtc.so.13", "libnvrtc.so.12",
                                      "libnvrtc.so.11.2", "libnvrtc.so"};
  const char *named = c->flags.nvrtc_lib;
  l->rtc_lib = cuda_open_release(l, named, names, LIMN_COUNT(names));
  if (l->rtc_lib) return cuda_load(l->rtc_lib, &l->rtc, compile_symbols);
  limn_device_note(c,
                   "cuda: cannot load %s, the compiler for kernels; install "
                   "CUDA's NVRTC or name it by LIMN_NVRTC_LIB",
                   named[0] ? named : "libnvrtc.so.13, .12 or .11.2");
  return NULL;
}

void cuda_compiler_load(limn_context *c, cuda_libs *l) {
  const char *missing = compile_find(c, l);
  int n = 0, code;
  if (!l->rtc_lib) return;
  if (missing) {
    limn_device_note(c, "cuda: NVRTC lacks %s; 11.2 or newer is needed",
                     missing);
  } else {
    code = l->rtc.Version(&l->rtc_version[0], &l->rtc_version[1]);
    if (!code) code = l->rtc.GetNumSupportedArchs(&n);
    if (!code && n > 0 && n <= LIMN_COUNT(l->arch))
      code = l->rtc.GetSupportedArchs(l->arch);
    if (!code && n > 0 && n <= LIMN_COUNT(l->arch)) {
      l->narch = n;
      return;
    }
    limn_device_note(c, "cuda: NVRTC does not start (error %d)", code);
  }
  l->rtc_lib = NULL;
}

/* The architecture to compile for: the device's, or the newest before it. */
static int compile_arch(const cuda_libs *l, int arch) {
  int i, best = 0;
  for (i = 0; i < l->narch; i++)
    if (l->arch[i] <= arch && l->arch[i] > best) best = l->arch[i];
  return best;
}

bool cuda_compiler_knows(const cuda_libs *l, int arch) {
  return compile_arch(l, arch) > 0;
}

/* -- One program ----------------------------------------------------------- */

typedef struct {
  cuda_dev *d;
  limn_context *c;
  const char *text; /* whole source */
  const char *option[4];
  int noption;
  char arch[40];
  bool cubin; /* else PTX */
  char *data;
  size_t size;
} compile_job;

static void compile_options(compile_job *j) {
  int arch = compile_arch(j->d->l, j->d->arch);
  j->cubin = arch == j->d->arch;
  snprintf(j->arch, sizeof j->arch, "--gpu-architecture=%s_%d",
           j->cubin ? "sm" : "compute", arch);
  j->option[j->noption++] = j->arch;
  j->option[j->noption++] = "--fmad=false"; /* fused only where MAD_* asks */
  j->option[j->noption++] = "--std=c++17";
}

static int compile_fail(compile_job *j, nvrtc_program p, int code) {
  const nvrtc_api *f = &j->d->l->rtc;
  char *log = NULL;
  size_t n = 0;
  if (!f->GetProgramLogSize(p, &n) && n > 1) log = limn_alloc(j->c, n);
  if (log && f->GetProgramLog(p, log)) log[0] = 0;
  code = limn_fail(j->c, LIMN_EDEVICE,
                   "CUDA: a kernel did not compile (NVRTC error %d): %.1500s",
                   code, log ? log : "");
  if (log) limn_free(j->c, log, n);
  return code;
}

/* The result of a compiled program. */
static int compile_take(compile_job *j, nvrtc_program p) {
  const nvrtc_api *f = &j->d->l->rtc;
  int code = j->cubin ? f->GetCUBINSize(p, &j->size)
                      : f->GetPTXSize(p, &j->size);
  if (code || !j->size) return compile_fail(j, p, code);
  j->data = limn_alloc(j->c, j->size);
  if (!j->data) return LIMN_EMEM;
  code = j->cubin ? f->GetCUBIN(p, j->data) : f->GetPTX(p, j->data);
  return code ? compile_fail(j, p, code) : 0;
}

static int compile_source(compile_job *j) {
  const nvrtc_api *f = &j->d->l->rtc;
  nvrtc_program p = NULL;
  int rc, code = f->CreateProgram(&p, j->text, "limn.cu", 0, NULL, NULL);
  if (code)
    return limn_fail(j->c, code == 1 ? LIMN_EMEM : LIMN_EDEVICE,
                     "CUDA: nvrtcCreateProgram failed with error %d", code);
  code = f->CompileProgram(p, j->noption, j->option);
  rc = code ? compile_fail(j, p, code) : compile_take(j, p);
  f->DestroyProgram(&p);
  return rc;
}

static void compile_forget(compile_job *j) {
  if (j->data) limn_free(j->c, j->data, j->size);
  j->data = NULL;
  j->size = 0;
}

/* All that decides what comes out: two hashes, of different beginnings. */
static int compile_key(const compile_job *j, cuda_key *key) {
  limn_str s;
  int i, rc;
  limn_str_init(&s, j->c);
  limn_str_addf(&s, " %d.%d", j->d->l->rtc_version[0],
                j->d->l->rtc_version[1]);
  for (i = 0; i < j->noption; i++) limn_str_addf(&s, " %s", j->option[i]);
  limn_str_addf(&s, "\n%s", j->text);
  rc = s.rc;
  if (rc == 0) {
    key->w[0] = limn_hash(s.s, s.len);
    s.s[0] = '2';
    key->w[1] = limn_hash(s.s, s.len);
  }
  limn_str_free(&s);
  return rc;
}

/* 0, the driver's error, or a negative error of our own. */
static int compile_load(compile_job *j, cu_module *module) {
  int code;
  LIMN_TRY(cuda_enter(j->d));
  code = j->d->l->f.ModuleLoadData(module, j->data);
  if (code == CU_E_OUT_OF_MEMORY) {
    cuda_mem_trim(j->d);
    code = j->d->l->f.ModuleLoadData(module, j->data);
  }
  cuda_leave(j->d);
  return code;
}

static int compile_load_fail(compile_job *j, int code) {
  const int *v = j->d->l->rtc_version;
  int rc = cuda_fail(j->d, code, "cuModuleLoadData");
  if (code != CU_E_PTX_TOO_NEW && code != CU_E_INVALID_IMAGE &&
      code != CU_E_NO_BINARY)
    return rc;
  return limn_hint(j->c, rc,
                   "NVRTC %d.%d may be newer than the driver: install a newer "
                   "driver, or name an older one by LIMN_NVRTC_LIB",
                   v[0], v[1]);
}

/* From the cache, or compiled and put there. */
static int compile_module(compile_job *j, cu_module *module) {
  cuda_key key;
  int code = 0;
  LIMN_TRY(compile_key(j, &key));
  LIMN_TRY(cuda_cache_get(j->c, &key, &j->data, &j->size));
  if (j->data) {
    code = compile_load(j, module);
    if (code <= 0) return code;
    if (code == CU_E_OUT_OF_MEMORY) return compile_load_fail(j, code);
    cuda_cache_drop(j->c, &key); /* another driver may have written it */
    compile_forget(j);
  }
  LIMN_TRY(compile_source(j));
  cuda_cache_put(j->c, &key, j->data, j->size);
  code = compile_load(j, module);
  return code <= 0 ? code : compile_load_fail(j, code);
}

int cuda_build(limn_gpu *g, const char *src, void **program) {
  compile_job j = {.d = cuda_of(g), .c = g->c};
  size_t head = limn_gpu_heading(src);
  cu_module module = NULL;
  limn_str text;
  int rc;
  limn_str_init(&text, g->c);
  limn_str_add(&text, "#define USE_ATOM64\n"); /* the heading asks for it */
  limn_str_addn(&text, src, head);
  limn_str_add(&text, limn_gpu_text("prelude_cuda"));
  limn_str_add(&text, limn_gpu_text("dialect"));
  limn_str_add(&text, src + head);
  rc = text.rc;
  if (rc == 0) {
    j.text = text.s;
    compile_options(&j);
    rc = compile_module(&j, &module);
  }
  compile_forget(&j);
  limn_str_free(&text);
  if (rc == 0) *program = module;
  return rc;
}

void cuda_unbuild(limn_gpu *g, void *program) {
  cuda_dev *d = cuda_of(g);
  if (cuda_enter(d) < 0) return;
  d->l->f.ModuleUnload(program);
  cuda_leave(d);
}

int cuda_kernel(limn_gpu *g, void *program, const char *name, void **kernel) {
  cuda_dev *d = cuda_of(g);
  cu_function f = NULL;
  int code;
  LIMN_TRY(cuda_enter(d));
  code = d->l->f.ModuleGetFunction(&f, program, name);
  cuda_leave(d);
  if (code) return cuda_fail(d, code, "cuModuleGetFunction");
  *kernel = f;
  return 0;
}

/* A function lives as long as its module. */
void cuda_unkernel(limn_gpu *g, void *kernel) { (void)g, (void)kernel; }
