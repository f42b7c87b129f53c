/* What every entry of the stand-in shares: the lock, counted calls that can be
 * told to fail, reports of wrong use, and objects that are never forgotten. */
#include "standin.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t standin_lock = PTHREAD_MUTEX_INITIALIZER;
static standin_call *standin_calls_made;
static const standin_call *standin_in; /* for reports */
static int standin_wrong;
static standin_object *standin_objects;
#define STANDIN_MAGIC 0x57a4d1b5u

/* -- Failures on demand ---------------------------------------------------- */

static struct {
  char name[64];
  int nth, code;
  bool set, on; /* on: later calls fail, too */
} standin_failure;

/* cuMemAlloc_v2 is cuMemAlloc, too. */
static bool standin_named(const char *symbol, const char *name) {
  size_t n = strlen(name);
  return !strncmp(symbol, name, n) &&
         (!symbol[n] || !strncmp(symbol + n, "_v", 2));
}

/* Let call number nth (from 1, counted from now on) of a function return code;
 * nth 0: none. */
STANDIN_API void standin_fail(const char *name, int nth, int code) {
  snprintf(standin_failure.name, sizeof standin_failure.name, "%s", name);
  standin_failure.nth = nth;
  standin_failure.code = code;
  standin_failure.on = false;
}

/* How often a function has been called. */
STANDIN_API int standin_calls(const char *name) {
  const standin_call *c;
  for (c = standin_calls_made; c; c = c->next)
    if (standin_named(c->name, name)) return c->count;
  return 0;
}

/* The names of all functions that have been called, one a line. */
STANDIN_API const char *standin_called(void) {
  static char text[8192];
  const standin_call *c;
  size_t n = 0;
  text[0] = 0;
  for (c = standin_calls_made; c; c = c->next)
    n += (size_t)snprintf(text + n, sizeof text - n, "%s\n", c->name);
  return text;
}

/* Wrong uses so far. */
STANDIN_API int standin_reports(void) { return standin_wrong; }

static void standin_read_failure(void) {
  const char *s = getenv("STANDIN_FAIL"), *colon = s ? strchr(s, ':') : NULL;
  const char *code = colon ? strchr(colon + 1, ':') : NULL;
  char name[64];
  standin_failure.set = true;
  if (!colon) return;
  snprintf(name, sizeof name, "%.*s", (int)(colon - s), s);
  standin_fail(name, atoi(colon + 1), code ? atoi(code + 1) : 0);
  standin_failure.on = strchr(colon, '+') != NULL;
}

static int standin_default_code(const char *name) {
  if (strstr(name, "Alloc") && !strncmp(name, "cu", 2))
    return CU_E_OUT_OF_MEMORY;
  return !strncmp(name, "nvrtc", 5)    ? 11 /* internal error */
         : !strncmp(name, "cublas", 6) ? 14 /* internal error */
         : !strncmp(name, "cudnn", 5)  ? 4000
                                       : 999;
}

int standin_enter(standin_call *call) {
  pthread_mutex_lock(&standin_lock);
  standin_in = call;
  if (!standin_failure.set) standin_read_failure();
  if (!call->known) {
    call->known = true;
    call->next = standin_calls_made;
    standin_calls_made = call;
  }
  call->count++;
  if (!standin_failure.nth || !standin_named(call->name, standin_failure.name))
    return 0;
  if (--standin_failure.nth) return 0;
  if (standin_failure.on) standin_failure.nth = 1;
  return standin_failure.code ? standin_failure.code
                              : standin_default_code(call->name);
}

void standin_leave(int *held) {
  (void)held;
  pthread_mutex_unlock(&standin_lock);
}

/* -- Reports --------------------------------------------------------------- */

int standin_bad(int code, const char *fmt, ...) {
  va_list ap;
  fflush(stdout);
  fprintf(stderr, "standin: %s: ", standin_in ? standin_in->name : "?");
  va_start(ap, fmt);
  vfprintf(stderr, fmt, ap);
  va_end(ap);
  fputc('\n', stderr);
  standin_wrong++;
  return code;
}

/* The library stays loaded (-z nodelete), so this is the process's end. */
__attribute__((destructor)) static void standin_end(void) {
  if (!standin_wrong) return;
  fflush(NULL);
  fprintf(stderr, "standin: CUDA was used wrongly %d times\n", standin_wrong);
  _exit(STANDIN_STATUS);
}

/* -- Objects --------------------------------------------------------------- */

void *standin_new(size_t bytes) {
  void *p = calloc(1, bytes ? bytes : 1);
  if (p) return p;
  fputs("standin: out of memory\n", stderr);
  abort();
}

static const char *standin_kind(int kind) {
  static const char *const names[SI_KINDS] = {
      "",         "context",    "stream",   "event",  "module",
      "function", "pool",       "graph",    "node",   "executable graph",
      "cuBLAS",   "cublasLt",   "matmul description", "matrix layout",
      "matmul preference", "program", "cuDNN", "tensor description",
      "filter description", "convolution description"};
  return names[kind];
}

void *standin_object_new(int kind, size_t bytes, struct cu_context *owner) {
  standin_object *o = standin_new(bytes);
  o->magic = STANDIN_MAGIC;
  o->kind = kind;
  o->live = true;
  o->owner = owner;
  o->next = standin_objects;
  standin_objects = o;
  return o;
}

void standin_object_end(void *handle) {
  ((standin_object *)handle)->live = false;
}

int standin_check(const void *handle, int kind) {
  const standin_object *o = handle;
  struct cu_context *c;
  if (!o)
    return standin_bad(SI_INVALID_HANDLE, "the %s is NULL", standin_kind(kind));
  if (o->magic != STANDIN_MAGIC || o->kind != kind)
    return standin_bad(SI_INVALID_HANDLE, "%p is no %s", handle,
                       standin_kind(kind));
  if (!o->live)
    return standin_bad(SI_INVALID_HANDLE, "the %s was destroyed before",
                       standin_kind(kind));
  if (!o->owner) return 0;
  if (standin_current(&c)) return SI_INVALID_CONTEXT;
  if (c == o->owner) return 0;
  return standin_bad(SI_INVALID_CONTEXT, "the %s is of another context",
                     standin_kind(kind));
}

int standin_live(struct cu_context *owner) {
  const standin_object *o;
  int n = 0;
  for (o = standin_objects; o; o = o->next)
    if (o->live && o->owner == owner && o->kind != SI_NODE &&
        o->kind != SI_FUNCTION) {
      n++;
      standin_bad(0, "the %s was not destroyed", standin_kind(o->kind));
    }
  return n + standin_memory_live(owner);
}

/* All of cuda_api.h, so that one that is missing does not link. */
STANDIN_API int (*const standin_all[])(void) = {
#define STANDIN_ADDRESS(name, symbol, args) (int (*)(void))(void *)symbol,
    CU_FUNCTIONS(STANDIN_ADDRESS) CU_POOL_FUNCTIONS(STANDIN_ADDRESS)
        CU_GRAPH_FUNCTIONS(STANDIN_ADDRESS)
            NVRTC_FUNCTIONS(STANDIN_ADDRESS) CUBLAS_FUNCTIONS(STANDIN_ADDRESS)
                CUBLASLT_FUNCTIONS(STANDIN_ADDRESS)
                    CUDNN_FUNCTIONS(STANDIN_ADDRESS)
#undef STANDIN_ADDRESS
};
