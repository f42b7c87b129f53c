/* The LIMN_* environment variables, all of them, read once by limn_open.
 *
 *   LIMN_OPT          passes to switch off or on, applied left to right:
 *                     "-fuse,+simplify". Names: simplify fuse inplace gemm
 *                     prepack pairs winograd, and all. Default: all are on.
 *   LIMN_DUMP         letters of what to write to the log at level 'v':
 *                     g graphs as recorded, f the same as planned (expanded
 *                     and simplified), p plans with their fused steps, k
 *                     kernel sources, x execution times
 *   LIMN_DEBUG        what limn.debug sets, "nan,keep,trace": nan lets the
 *                     first op fail that makes NaN or infinity, keep lets
 *                     graphs keep what each path and line gave, trace writes a
 *                     line for each trace and plan
 *   LIMN_VERIFY=1     compute each run a second time, unfused, and compare
 *   LIMN_ISA          instruction set of CPU kernels: base, avx2, avx512.
 *                     Default: the best that the machine has.
 *   LIMN_DEVICES      the kinds of devices to open, "cpu,opencl"; the CPU is
 *                     always there. Default: cpu,cuda,opencl.
 *   LIMN_THREADS      threads on the CPU, where the host's options leave it
 *                     open. Default: 1.
 *   LIMN_OPENCL_LIB   path of the OpenCL loader or driver
 *   LIMN_OPENCL_GPU=1 use OpenCL devices that are CPUs as GPUs: other kernels,
 *                     slower there. For tests without a GPU.
 *   LIMN_CLBLAST_LIB  path of CLBlast
 *   LIMN_CUDA_LIB     path of the CUDA driver, libcuda.so.1
 *   LIMN_NVRTC_LIB    path of NVRTC, CUDA's compiler for kernels
 *   LIMN_CUBLAS_LIB   path of cuBLAS, for products; "off": own kernels
 *   LIMN_CUDNN_LIB    path of cuDNN, for convolutions; "off": own kernels
 *   LIMN_CACHE        folder for compiled CUDA kernels, which may be removed at
 *                     any time; "off" or "": none is kept. Default: limn in
 *                     $XDG_CACHE_HOME or in ~/.cache
 *
 * Unknown names are ignored: a variable set for a newer release must not stop
 * an older one. */
#include <stdio.h>
#include <stdlib.h>

#include "base.h"

/* The next word of a list that commas or blanks separate; NULL at its end. */
static const char *flags_word(const char *s, size_t *n) {
  s += strspn(s, ", \t");
  *n = strcspn(s, ", \t");
  return *n ? s : NULL;
}

static bool flags_is(const char *s, size_t n, const char *word) {
  return strlen(word) == n && !memcmp(s, word, n);
}

static uint32_t flags_debug(const char *s) {
  static const char *const names[] = {"nan", "keep", "trace"};
  uint32_t bits = 0;
  size_t n;
  for (; (s = flags_word(s, &n)); s += n)
    for (int i = 0; i < LIMN_COUNT(names); i++)
      if (flags_is(s, n, names[i])) bits |= 1u << i;
  return bits;
}

static uint32_t flags_pass(const char *s, size_t n) {
  static const char *const names[] = {"simplify", "fuse",  "inplace", "gemm",
                                      "prepack",  "pairs", "winograd"};
  int i;
  for (i = 0; i < LIMN_COUNT(names); i++)
    if (flags_is(s, n, names[i])) return 1u << i;
  return flags_is(s, n, "all") ? LIMN_PASS_ALL : 0;
}

uint32_t limn_flags_passes(const char *s) {
  uint32_t on = LIMN_PASS_ALL;
  size_t n;
  for (; (s = flags_word(s, &n)); s += n) {
    bool sign = *s == '-' || *s == '+';
    uint32_t bits = flags_pass(s + sign, n - sign);
    on = *s == '-' ? on & ~bits : on | bits;
  }
  return on;
}

static int flags_isa(const char *s) {
  static const char *const names[] = {"base", "avx2", "avx512"};
  int i;
  for (i = 0; i < LIMN_COUNT(names); i++)
    if (!strcmp(s, names[i])) return i + 1;
  return 0;
}

/* A missing LIMN_DEVICES allows all kinds; one that is set only those named. */
static bool flags_denies(const char *s, const char *kind) {
  size_t n;
  if (!s) return false;
  for (; (s = flags_word(s, &n)); s += n)
    if (flags_is(s, n, kind)) return false;
  return true;
}

static const char *flags_env(const char *name) {
  const char *s = getenv(name);
  return s ? s : "";
}

static void flags_path(char *out, size_t n, const char *name) {
  snprintf(out, n, "%s", flags_env(name));
}

/* A relative folder would be another one in every directory. */
static void flags_cache(char *out, size_t n) {
  const char *named = getenv("LIMN_CACHE");
  const char *xdg = flags_env("XDG_CACHE_HOME"), *home = flags_env("HOME");
  int len = 0;
  out[0] = 0;
  if (named && (!named[0] || !strcmp(named, "off"))) return;
  if (named)
    len = snprintf(out, n, "%s", named);
  else if (xdg[0] == '/')
    len = snprintf(out, n, "%s/limn", xdg);
  else if (home[0] == '/')
    len = snprintf(out, n, "%s/.cache/limn", home);
  if ((size_t)len >= n) out[0] = 0;
}

void limn_flags_read(limn_flags *f) {
  const char *devices = getenv("LIMN_DEVICES");
  memset(f, 0, sizeof *f);
  f->passes = limn_flags_passes(flags_env("LIMN_OPT"));
  snprintf(f->dump, sizeof f->dump, "%s", flags_env("LIMN_DUMP"));
  f->debug = flags_debug(flags_env("LIMN_DEBUG"));
  f->verify = !strcmp(flags_env("LIMN_VERIFY"), "1");
  f->isa = flags_isa(flags_env("LIMN_ISA"));
  f->threads = atoi(flags_env("LIMN_THREADS"));
  f->no_opencl = flags_denies(devices, "opencl");
  f->no_cuda = flags_denies(devices, "cuda");
  flags_path(f->opencl_lib, sizeof f->opencl_lib, "LIMN_OPENCL_LIB");
  f->opencl_gpu = !strcmp(flags_env("LIMN_OPENCL_GPU"), "1");
  flags_path(f->clblast_lib, sizeof f->clblast_lib, "LIMN_CLBLAST_LIB");
  flags_path(f->cuda_lib, sizeof f->cuda_lib, "LIMN_CUDA_LIB");
  flags_path(f->nvrtc_lib, sizeof f->nvrtc_lib, "LIMN_NVRTC_LIB");
  flags_path(f->cublas_lib, sizeof f->cublas_lib, "LIMN_CUBLAS_LIB");
  flags_path(f->cudnn_lib, sizeof f->cudnn_lib, "LIMN_CUDNN_LIB");
  flags_cache(f->cache, sizeof f->cache);
}

bool limn_dumps(const limn_context *c, char letter) {
  return letter && strchr(c->flags.dump, letter);
}
