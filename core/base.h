/* Layer 0: errors, memory, strings, maps and flags of one context.
 *
 * Every fallible function returns 0 or a negative LIMN_E* code and leaves the
 * sentence in the context. Nothing here prints, aborts or keeps globals. */
#ifndef LIMN_BASE_H
#define LIMN_BASE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "limn.h"

#define LIMN_TRY(call)                 \
  do {                                 \
    int limn_rc_ = (call);             \
    if (limn_rc_ < 0) return limn_rc_; \
  } while (0)
/* As LIMN_TRY, for functions with an `int rc` and a `bail:` label. */
#define LIMN_GO(call)            \
  do {                           \
    if ((rc = (call)) < 0) goto bail; \
  } while (0)

#define LIMN_COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))
#define LIMN_MAX(a, b) ((a) > (b) ? (a) : (b))
#define LIMN_MIN(a, b) ((a) < (b) ? (a) : (b))
#if defined(__GNUC__)
#define LIMN_PRINTF(f, a) __attribute__((format(printf, f, a)))
#else
#define LIMN_PRINTF(f, a)
#endif

typedef limn_context C;

/* -- err.c -- */
/* Set the message and return `code` (negative). A later call replaces it. */
int limn_fail(limn_context *c, int code, const char *fmt, ...)
    LIMN_PRINTF(3, 4);
/* Put text before / after the current message (say, "net.lua:9: "). */
void limn_error_prepend(limn_context *c, const char *fmt, ...)
    LIMN_PRINTF(2, 3);
void limn_error_append(limn_context *c, const char *fmt, ...)
    LIMN_PRINTF(2, 3);
/* Whether the first line of a message has that word in it; "" always. */
bool limn_error_says(const char *msg, const char *name);
/* A path is a module's, then ":" and which function of limn was called there,
 * if that is no op: "policy.head:topk". The function; *n: the module's length.
 */
const char *limn_path_called(const char *path, int *n);
/* One suggestion, kept apart from the message until it is shown; cleared by
 * limn_fail. Callers fail first, then hint: returns `code` for chaining. */
int limn_hint(limn_context *c, int code, const char *fmt, ...)
    LIMN_PRINTF(3, 4);
const char *limn_hint_text(const limn_context *c); /* "" when none */
void limn_error_clear(limn_context *c);
/* One line to the host's log callback; level is a letter: e w i v. */
void limn_log(limn_context *c, char level, const char *fmt, ...)
    LIMN_PRINTF(3, 4);

/* -- mem.c -- all memory goes through the host's realloc and is counted. */
/* Resize `p` from `osize` to `nsize` bytes aligned to `align` (a power of two,
 * at least 16). NULL when out of memory or over limn_options.max_bytes (after
 * one try of the reclaim callback); no message is set. nsize 0 frees. */
void *limn_realloc(limn_context *c, void *p, size_t osize, size_t nsize,
                   size_t align);
void *limn_alloc(limn_context *c, size_t size); /* zeroed; sets LIMN_EMEM */
void limn_free(limn_context *c, void *p, size_t size);
char *limn_strdup(limn_context *c, const char *s); /* free: strlen + 1 */
/* Grow an array of `elem`-byte items to hold `need`; doubles. Sets LIMN_EMEM */
int limn_grow(limn_context *c, void *array_ptr, uint32_t *cap, uint32_t need,
              size_t elem);
/* a * b, or LIMN_ESIZE when it does not fit int64 (both must be >= 0). */
int limn_mul(limn_context *c, int64_t a, int64_t b, int64_t *out);

/* -- str.c -- a builder whose failure is sticky: append freely, check once. */
typedef struct {
  limn_context *c;
  char *s; /* NUL-terminated, or NULL while empty */
  size_t len, cap;
  int rc; /* 0, or the first failure */
} limn_str;
void limn_str_init(limn_str *b, limn_context *c);
void limn_str_free(limn_str *b);
void limn_str_add(limn_str *b, const char *s);
void limn_str_addn(limn_str *b, const char *s, size_t n);
void limn_str_addf(limn_str *b, const char *fmt, ...) LIMN_PRINTF(2, 3);
void limn_str_json(limn_str *b, const char *s); /* a JSON string in quotes */
/* Shortest decimal that reads back exactly ("0.1", "1e+30", "inf", "-inf",
 * "nan"; a whole real keeps ".0"), independent of the locale. */
void limn_str_real(limn_str *b, double v);
/* As limn_str_real for a float32 value: shortest that reads back as float. */
void limn_str_float(limn_str *b, float v);
/* printf's %.<digits><kind> of v (kind e, f or g; g keeps ".0") into buf. */
void limn_real_text(char *buf, size_t n, char kind, int digits, double v);
/* Read a number at s, locale-free. Returns the end, or NULL. */
const char *limn_read_real(const char *s, double *out);
const char *limn_read_int(const char *s, int64_t *out); /* NULL if > int64 */
/* Levenshtein distance, for "did you mean"; strings up to 64 bytes. */
int limn_str_distance(const char *a, const char *b);

/* -- map.c -- open addressing, keys are bytes copied into the map. */
typedef struct {
  uint64_t hash;
  void *key;
  uint32_t klen;
  void *value;
} limn_map_entry;
typedef struct {
  limn_map_entry *e;
  uint32_t cap, n; /* cap is 0 or a power of two */
} limn_map;
uint64_t limn_hash(const void *p, size_t n); /* 64 bit, not cryptographic */
void *limn_map_get(const limn_map *m, const void *key, size_t n);
int limn_map_put(limn_context *c, limn_map *m, const void *key, size_t n,
                 void *value); /* replaces */
void *limn_map_remove(limn_context *c, limn_map *m, const void *key,
                      size_t n); /* the value, or NULL */
void limn_map_free(limn_context *c, limn_map *m); /* keys only */

/* -- flags.c -- every LIMN_* environment variable, read once at open. */
enum { /* bits of limn_flags.passes, in the order of LIMN_OPT's names */
  LIMN_PASS_SIMPLIFY = 1,
  LIMN_PASS_FUSE = 2,
  LIMN_PASS_INPLACE = 4, /* write cells in place where it cannot be seen */
  LIMN_PASS_GEMM = 8,    /* own float32 products; off: OpenBLAS */
  LIMN_PASS_PREPACK = 16, /* keep packed weights */
  LIMN_PASS_PAIRS = 32,  /* pair kernels in fused groups on the CPU */
  LIMN_PASS_WINOGRAD = 64, /* convolutions of 3 x 3 by fewer products */
  LIMN_PASS_ALL = 127
};
enum { /* bits of limn_flags.debug, in the order of LIMN_DEBUG's names */
  LIMN_DEBUG_NAN = 1,   /* the first op that makes NaN or infinity fails */
  LIMN_DEBUG_KEEP = 2,  /* graphs keep what each path and line gave */
  LIMN_DEBUG_TRACE = 4  /* a line for each trace and plan */
};
typedef struct {
  uint32_t debug;
  uint32_t passes;
  char dump[16];    /* LIMN_DUMP letters: g f p k x */
  bool verify;      /* LIMN_VERIFY=1: recompute each run unfused, compare */
  int threads;      /* LIMN_THREADS, for hosts that leave it open */
  int isa;          /* LIMN_ISA: 0 best, 1 base, 2 avx2, 3 avx512 */
  bool no_opencl, no_cuda; /* LIMN_DEVICES=cpu[,opencl][,cuda] */
  bool opencl_gpu; /* CPUs run what GPUs do */
  char opencl_lib[256], clblast_lib[256];
  char cuda_lib[256], nvrtc_lib[256], cublas_lib[256], cudnn_lib[256];
  char cache[512]; /* folder of compiled kernels; "": none is kept */
} limn_flags;
void limn_flags_read(limn_flags *f);
uint32_t limn_flags_passes(const char *s); /* of a text as LIMN_OPT's */
bool limn_dumps(const limn_context *c, char letter);

/* -- turn.c -- the loops that a run is in, on the stack of who runs them. */
typedef struct limn_turn {
  const struct limn_turn *outer; /* NULL: the outermost loop */
  int64_t step; /* from 0; of a scan: the row */
} limn_turn;
uint64_t limn_turn_pack(const limn_turn *t); /* in 48 bits; no loop: 0 */
/* "in step 3 of the loop" in a line after the message. */
void limn_turn_append(limn_context *c, uint64_t packed);

/* The context's insides, shared by the layers; each part is used by its own
 * file only. */
struct limn_eager; /* eager.c: plan cache of eager ops */
struct limn_device;
struct limn_trace;
struct limn_plan;
struct limn_cell;

typedef struct { /* LIMN_* counters for stats and tests */
  uint64_t plans, plan_hits, compiles, uploads, downloads, kernels, copies;
  uint64_t records, replays; /* launches of many kernels as one */
  uint64_t allocs; /* limn_realloc calls that allocate */
} limn_counters;

typedef struct {
  struct limn_plan *first, *last; /* most recent first */
  uint32_t n, max; /* max 0: the default */
  size_t bytes, max_bytes;
} limn_plans;

struct limn_context {
  limn_options opt;
  limn_flags flags;
  int refs;
  int last; /* last error code */
  char error[4096], hint[1024];
  size_t bytes, peak_bytes; /* host memory now / at most */
  size_t device_bytes;      /* memory on accelerators now */
  /* Called when memory is short; returns true if something was freed.
   * The Lua binding collects garbage here. */
  bool (*reclaim)(void *user);
  void *reclaim_user;
  bool reclaiming;
  uint64_t seed, draws; /* random state; see random.c */
  bool precise, deterministic, tf32;
  limn_counters count;
  struct limn_device **devices; /* devices[0] is the CPU */
  int ndevices;
  bool all_devices; /* limn_devices_all has been called */
  char device_notes[1024]; /* why the missing devices are missing */
  struct limn_trace *trace; /* innermost trace or tape, or NULL */
  uint64_t serial;          /* numbers traces, runs and versions */
  struct limn_cell *cells;  /* all live cells, a list (cell.c) */
  /* LRUs of plans over all graphs: [0] of traced ones, [1] of eager ops, so
   * that eager traffic evicts no traced plan (plan.c) */
  limn_plans plans[2];
  struct limn_eager *eager;
  limn_map sites;     /* error sites of GPU kernels (exec.c) */
  char **site_text;
  uint32_t nsites, site_cap;
  uint32_t eager_site; /* of the eager op that runs now; 0: none */
  const limn_turn *turn; /* of the loops that eager code is in */
  struct limn_pool *pool;
  void *scratch; /* CPU scratch, as large as the largest plan needs */
  size_t scratch_size;
  /* The binding's hook that names the line a graph node belongs to: the
   * innermost user frame as "net.lua:14" and its module path. */
  void (*where)(void *user, char *line, size_t nline, char *path,
                size_t npath);
  void *where_user;
};

/* -- context.c -- every object retains its context, so the order in which a
 * host releases things does not matter. */
void limn_context_retain(limn_context *c);
void limn_context_release(limn_context *c); /* the last one tears down */

/* Hooks into upper layers. limn_open calls limn_devices_open, which opens the
 * CPU as devices[0]; what it opened before it failed is closed by
 * limn_devices_close. Teardown calls the others in this order; each must
 * accept a context where its part was never made, and be callable twice.
 * limn_close calls limn_eager_free first of all, because cached graphs hold
 * references to the context. */
int limn_devices_open(limn_context *c);
void limn_plans_free(limn_context *c);
void limn_eager_free(limn_context *c);
void limn_devices_close(limn_context *c); /* and frees c->devices */
void limn_pool_free(limn_context *c);

#endif
