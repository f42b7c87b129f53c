/* NVRTC, whose images hold the source, and the driver's modules, which hold it
 * compiled for this machine. */
#include "standin.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { /* results of NVRTC */
  MODULE_INVALID_INPUT = 3,
  MODULE_INVALID_PROGRAM = 4,
  MODULE_INVALID_OPTION = 5,
  MODULE_COMPILATION = 6
};

/* What stands for a cubin or for PTX. `check` covers all after it. */
typedef struct {
  char magic[8]; /* "SICUBIN" or "SIPTX" */
  uint64_t check;
  uint64_t bytes; /* of the source, NUL counted */
  int arch;
  int pad;
} module_image;

struct nvrtc_program {
  standin_object o;
  char *source, *log;
  module_image *image;
  size_t bytes;
  bool ptx;
};

static const int module_archs[] = {75, 80, 90};
enum { MODULE_ARCHS = 3, MODULE_RELEASE = 13000 };

STANDIN_API int nvrtcVersion(int *major, int *minor) {
  ENTER(nvrtcVersion);
  *major = MODULE_RELEASE / 1000;
  *minor = MODULE_RELEASE % 1000 / 10;
  return 0;
}

STANDIN_API int nvrtcGetNumSupportedArchs(int *n) {
  ENTER(nvrtcGetNumSupportedArchs);
  *n = MODULE_ARCHS;
  return 0;
}

STANDIN_API int nvrtcGetSupportedArchs(int *archs) {
  ENTER(nvrtcGetSupportedArchs);
  memcpy(archs, module_archs, sizeof module_archs);
  return 0;
}

static int module_program(nvrtc_program p) {
  return standin_check(p, SI_PROGRAM) ? MODULE_INVALID_PROGRAM : 0;
}
#define PROGRAM(p)                 \
  do {                             \
    int rc_ = module_program(p);   \
    if (rc_) return rc_;           \
  } while (0)

STANDIN_API int nvrtcCreateProgram(nvrtc_program *out, const char *source,
                                   const char *name, int headers,
                                   const char *const *text,
                                   const char *const *names) {
  ENTER(nvrtcCreateProgram);
  (void)name, (void)text, (void)names;
  if (!source || headers)
    return standin_bad(MODULE_INVALID_INPUT, "no source, or headers");
  *out = standin_object_new(SI_PROGRAM, sizeof **out, NULL);
  (*out)->source = strdup(source);
  (*out)->log = strdup("");
  return 0;
}

STANDIN_API int nvrtcDestroyProgram(nvrtc_program *p) {
  ENTER(nvrtcDestroyProgram);
  PROGRAM(*p);
  free((*p)->source);
  free((*p)->log);
  free((*p)->image);
  standin_object_end(*p);
  *p = NULL;
  return 0;
}

static int module_log(nvrtc_program p, int rc, const char *fmt,
                      const char *arg) {
  size_t n = strlen(fmt) + strlen(arg) + 1;
  free(p->log);
  p->log = standin_new(n);
  snprintf(p->log, n, fmt, arg);
  return rc;
}

/* --gpu-architecture=sm_90 or -arch=compute_90 */
static int module_arch(nvrtc_program p, const char *value) {
  int i, arch;
  p->ptx = !strncmp(value, "compute_", 8);
  if (!p->ptx && strncmp(value, "sm_", 3)) return 0;
  arch = atoi(value + (p->ptx ? 8 : 3));
  for (i = 0; i < MODULE_ARCHS; i++)
    if (module_archs[i] == arch) return arch;
  return 0;
}

/* Options change the arithmetic on a GPU; here they are only checked. */
static int module_options(nvrtc_program p, int n, const char *const *options,
                          int *arch) {
  bool fmad = true;
  int i;
  *arch = 0;
  for (i = 0; i < n; i++) {
    const char *o = options[i], *value = strchr(o, '=');
    size_t k = value ? (size_t)(value - o) : strlen(o);
    if ((k == 18 && !strncmp(o, "--gpu-architecture", k)) ||
        (k == 5 && !strncmp(o, "-arch", k)) ||
        (k == 6 && !strncmp(o, "--arch", k))) {
      *arch = value ? module_arch(p, value + 1) : 0;
      if (!*arch)
        return module_log(p, MODULE_INVALID_OPTION,
                          "error: invalid value for %s", o);
    } else if (!strcmp(o, "--fmad=false")) {
      fmad = false;
    } else if (strncmp(o, "-D", 2) && strncmp(o, "--std=", 6) &&
               strncmp(o, "-std=", 5) && strcmp(o, "--no-source-include") &&
               strcmp(o, "--device-as-default-execution-space") &&
               strcmp(o, "-default-device") && strcmp(o, "-w") &&
               strcmp(o, "--disable-warnings") &&
               strcmp(o, "--extra-device-vectorization")) {
      return module_log(p, MODULE_INVALID_OPTION, "error: unknown option %s",
                        o);
    }
  }
  if (!*arch)
    return standin_bad(MODULE_INVALID_OPTION, "no architecture was given");
  if (fmad)
    return standin_bad(MODULE_INVALID_OPTION,
                       "without --fmad=false results depend on fusion");
  return 0;
}

/* The source with the -D options as lines before it. */
static char *module_source(nvrtc_program p, int n, const char *const *options) {
  size_t bytes = strlen(p->source) + 1, at = 0;
  char *s;
  int i;
  for (i = 0; i < n; i++) bytes += strlen(options[i]) + 16;
  s = standin_new(bytes);
  for (i = 0; i < n; i++) {
    const char *o = options[i] + 2, *value;
    if (strncmp(options[i], "-D", 2)) continue;
    value = strchr(o, '=');
    at += (size_t)snprintf(s + at, bytes - at, "#define %.*s %s\n",
                           (int)(value ? value - o : (long)strlen(o)), o,
                           value ? value + 1 : "1");
  }
  snprintf(s + at, bytes - at, "%s", p->source);
  return s;
}

STANDIN_API int nvrtcCompileProgram(nvrtc_program p, int n,
                                    const char *const *options) {
  char *source, *path, *log;
  module_image *m;
  int rc, arch;
  ENTER(nvrtcCompileProgram);
  PROGRAM(p);
  rc = module_options(p, n, options, &arch);
  if (rc) return rc;
  source = module_source(p, n, options);
  if (standin_compile(source, &path, &log)) {
    rc = module_log(p, MODULE_COMPILATION, "%s", log);
    free(log);
  } else {
    size_t bytes = strlen(source) + 1;
    p->bytes = sizeof *m + bytes;
    p->image = m = standin_new(p->bytes);
    strcpy(m->magic, p->ptx ? "SIPTX" : "SICUBIN");
    m->bytes = bytes;
    m->arch = arch;
    memcpy(m + 1, source, bytes);
    m->check = standin_hash(3, &m->bytes, p->bytes - offsetof(module_image,
                                                              bytes));
  }
  free(path);
  free(source);
  return rc;
}

STANDIN_API int nvrtcGetProgramLogSize(nvrtc_program p, size_t *bytes) {
  ENTER(nvrtcGetProgramLogSize);
  PROGRAM(p);
  *bytes = strlen(p->log) + 1;
  return 0;
}

STANDIN_API int nvrtcGetProgramLog(nvrtc_program p, char *log) {
  ENTER(nvrtcGetProgramLog);
  PROGRAM(p);
  strcpy(log, p->log);
  return 0;
}

static int module_size(nvrtc_program p, bool ptx, size_t *bytes) {
  PROGRAM(p);
  if (!p->image)
    return standin_bad(MODULE_INVALID_PROGRAM, "the program is not compiled");
  *bytes = p->ptx == ptx ? p->bytes : 0;
  return 0;
}

static int module_get(nvrtc_program p, bool ptx, char *out) {
  size_t bytes = 0;
  int rc = module_size(p, ptx, &bytes);
  if (rc) return rc;
  if (!bytes)
    return standin_bad(MODULE_INVALID_PROGRAM,
                       "it was compiled to the other form");
  memcpy(out, p->image, bytes);
  return 0;
}

STANDIN_API int nvrtcGetCUBINSize(nvrtc_program p, size_t *bytes) {
  ENTER(nvrtcGetCUBINSize);
  return module_size(p, false, bytes);
}

STANDIN_API int nvrtcGetCUBIN(nvrtc_program p, char *out) {
  ENTER(nvrtcGetCUBIN);
  return module_get(p, false, out);
}

/* A cubin's source has PTX, too; here, as in callers, one or the other. */
STANDIN_API int nvrtcGetPTXSize(nvrtc_program p, size_t *bytes) {
  ENTER(nvrtcGetPTXSize);
  return module_size(p, true, bytes);
}

STANDIN_API int nvrtcGetPTX(nvrtc_program p, char *out) {
  ENTER(nvrtcGetPTX);
  return module_get(p, true, out);
}

/* -- Modules --------------------------------------------------------------- */

/* Real images tell their length; this one must, before it is believed. */
static int module_image_check(const module_image *m, int arch) {
  bool ptx = !memcmp(m->magic, "SIPTX", 6);
  if (!ptx && memcmp(m->magic, "SICUBIN", 8)) return CU_E_INVALID_IMAGE;
  if (m->bytes > (1 << 24) ||
      m->check != standin_hash(3, &m->bytes,
                               sizeof *m - offsetof(module_image, bytes) +
                                   m->bytes))
    return CU_E_INVALID_IMAGE;
  /* PTX is for drivers that are no older than what made it. */
  if (ptx && standin_version() < MODULE_RELEASE) return CU_E_PTX_TOO_NEW;
  /* A cubin runs on its own architecture and later minor ones; PTX on any
   * that is not older. */
  if (ptx ? m->arch > arch : m->arch / 10 != arch / 10 || m->arch > arch)
    return CU_E_NO_BINARY;
  return 0;
}

/* What all modules are where nothing is compiled: every name is a kernel
 * without parameters. */
static const standin_entry module_dry_entry[2] = {
    {"dry", NULL, 0, NULL, NULL, 0}};
static const standin_code module_dry = {NULL, module_dry_entry, NULL, NULL};

/* A kernel's parameters have 4096 bytes and its block's variables 48 KiB: more
 * does not compile. */
static int module_fits(const standin_code *code) {
  const standin_entry *e;
  size_t shared = (size_t)(code->shared_end - code->shared);
  int i;
  for (e = code->entry; e->name; e++) {
    size_t bytes = 0;
    if (!e->nparam || e->size[0] == STANDIN_NONE) continue;
    for (i = 0; i < e->nparam; i++) bytes += (e->size[i] + 7u) / 8 * 8;
    if (bytes > 4096)
      return standin_bad(CU_E_INVALID_IMAGE, "%s: %zu bytes of parameters",
                         e->name, bytes);
  }
  if (shared > 48 * 1024 + 16)
    return standin_bad(CU_E_INVALID_IMAGE, "%zu bytes of shared memory",
                       shared);
  return 0;
}

STANDIN_API int cuModuleLoadData(cu_module *out, const void *data) {
  struct cu_context *c;
  char *path, *log;
  void *lib;
  int rc;
  ENTER(cuModuleLoadData);
  rc = standin_unsafe("loading a module");
  if (!rc) rc = standin_current(&c);
  if (!rc) rc = module_image_check(data, standin_arch(c->device));
  if (rc) return rc;
  if (standin_compile((const char *)data + sizeof(module_image), &path, &log)) {
    free(log);
    return CU_E_INVALID_IMAGE;
  }
  lib = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
  free(path);
  if (!lib && !standin_dry())
    return standin_bad(CU_E_INVALID_IMAGE, "%s", dlerror());
  *out = standin_object_new(SI_MODULE, sizeof **out, c);
  (*out)->lib = lib;
  (*out)->code = lib ? dlsym(lib, STANDIN_SYMBOL) : &module_dry;
  return module_fits((*out)->code);
}

STANDIN_API int cuModuleUnload(cu_module m) {
  ENTER(cuModuleUnload);
  CHECK(m, SI_MODULE);
  standin_drain_all(m->o.owner);
  standin_object_end(m);
  if (m->lib) dlclose(m->lib);
  return 0;
}

STANDIN_API int cuModuleGetFunction(cu_function *out, cu_module m,
                                    const char *name) {
  const standin_entry *e;
  ENTER(cuModuleGetFunction);
  CHECK(m, SI_MODULE);
  e = m->code->entry;
  if (m->lib)
    while (e->name && strcmp(e->name, name)) e++;
  if (!e->name || (e->nparam == 1 && e->size[0] == STANDIN_NONE))
    return SI_NOT_FOUND;
  *out = standin_object_new(SI_FUNCTION, sizeof **out, m->o.owner);
  (*out)->module = m;
  (*out)->entry = e;
  return 0;
}
