/* The CPU as a device: host memory, and steps run as tiles over threads. */
#include "cpu_conv.h"
#include "cpu_kernels.h"

#ifdef LIMN_NO_BLAS
#define CPU_BLAS "no BLAS"
static void cpu_blas_open(void) {}
#else
#include <cblas.h>
#define CPU_BLAS "OpenBLAS"
/* The threads are ours: OpenBLAS would start its own and fight them. This is
 * a setting of the process. */
static void cpu_blas_open(void) { openblas_set_num_threads(1); }
#endif

/* -- scratch of tiles -- */

int limn_cpu_reserve(limn_device *d, size_t bytes) {
  limn_cpu *cpu = d->impl;
  size_t old = cpu->slot_size * (size_t)cpu->nslot;
  size_t want = (bytes + 4095) / 4096 * 4096;
  char *p;
  if (want <= cpu->slot_size) return 0;
  p = limn_realloc(d->c, NULL, 0, want * (size_t)cpu->nslot, 64);
  if (!p)
    return limn_fail(d->c, LIMN_EMEM,
                     "out of memory: %zu bytes of scratch wanted",
                     want * (size_t)cpu->nslot);
  if (cpu->slots) limn_realloc(d->c, cpu->slots, old, 0, 64);
  cpu->slots = p;
  cpu->slot_size = want;
  return 0;
}

int limn_cpu_reserve_shared(limn_device *d, size_t bytes) {
  limn_cpu *cpu = d->impl;
  void *p;
  if (bytes <= cpu->shared_size) return 0;
  p = limn_realloc(d->c, NULL, 0, bytes, 64);
  if (!p)
    return limn_fail(d->c, LIMN_EMEM,
                     "out of memory: %zu bytes of scratch wanted", bytes);
  if (cpu->shared) limn_realloc(d->c, cpu->shared, cpu->shared_size, 0, 64);
  cpu->shared = p;
  cpu->shared_size = bytes;
  return 0;
}

/* A host may bring more threads than it said: those wait for a slot, which a
 * tile holds for some microseconds. */
void *limn_cpu_take(limn_cpu *cpu, int *slot) {
  uint64_t all = cpu->nslot >= 64 ? ~(uint64_t)0
                                  : ((uint64_t)1 << cpu->nslot) - 1;
  uint64_t busy = __atomic_load_n(&cpu->busy, __ATOMIC_RELAXED);
  for (;;) {
    uint64_t open = all & ~busy, bit = open & (~open + 1);
    if (!open) {
#if defined(__x86_64__) || defined(__i386__)
      __builtin_ia32_pause();
#endif
      busy = __atomic_load_n(&cpu->busy, __ATOMIC_RELAXED);
    } else if (__atomic_compare_exchange_n(&cpu->busy, &busy, busy | bit,
                                           true, __ATOMIC_ACQUIRE,
                                           __ATOMIC_RELAXED)) {
      *slot = __builtin_ctzll(bit);
      return cpu->slots + (size_t)*slot * cpu->slot_size;
    }
  }
}

void limn_cpu_give(limn_cpu *cpu, int slot) {
  __atomic_fetch_and(&cpu->busy, ~((uint64_t)1 << slot), __ATOMIC_RELEASE);
}

/* The first to claim the site fills in the rest; the run's end, after all
 * tiles, reads it. NULL: another was first. */
static limn_fault *cpu_claim(const limn_step *s, const limn_bind *b) {
  limn_fault *f = b->fault;
  uint32_t none = 0, site = s->site ? s->site : UINT32_MAX;
  if (!f || !__atomic_compare_exchange_n(&f->site, &none, site, false,
                                         __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
    return NULL;
  f->serial = b->serial;
  f->turn = limn_turn_pack(b->turn);
  return f;
}

void limn_cpu_note(const limn_step *s, const limn_bind *b, int64_t value,
                   int64_t n, int64_t at) {
  limn_fault *f = cpu_claim(s, b);
  if (!f) return;
  f->code = LIMN_EINDEX;
  f->value = value;
  f->limit = n - 1 + s->base;
  f->base = s->base;
  f->at = at;
}

void limn_cpu_note_matrix(const limn_step *s, const limn_bind *b, int why,
                          int64_t pivot, int64_t at, int64_t count) {
  limn_fault *f = cpu_claim(s, b);
  if (!f) return;
  f->code = LIMN_EVALUE;
  f->value = pivot;
  f->limit = count;
  f->base = why;
  f->at = at;
}

/* -- opening -- */

/* -- memory -- */

/* The system clears each page of a large block when it is first touched, which
 * costs more than most ops. So a few are kept for tensors of the same size, but
 * only where memory is neither the host's own nor limited. */
#define CPU_KEEP_LEAST ((size_t)1 << 20)
#define CPU_KEEP_MOST ((size_t)64 << 20) /* all together */

static void cpu_kept_free(limn_device *d, int i) {
  limn_cpu *cpu = d->impl;
  limn_cpu_block b = cpu->kept[i];
  cpu->kept[i] = cpu->kept[--cpu->nkept];
  cpu->kept_bytes -= b.bytes;
  d->c->bytes += b.bytes; /* what is kept is not in use */
  limn_realloc(d->c, b.mem, b.bytes, 0, 64);
}

static bool cpu_keep(limn_device *d, void *mem, size_t bytes) {
  limn_cpu *cpu = d->impl;
  const limn_options *o = &d->c->opt;
  if (o->realloc || o->max_bytes || bytes < CPU_KEEP_LEAST ||
      bytes > CPU_KEEP_MOST / 2)
    return false;
  while (cpu->nkept == LIMN_COUNT(cpu->kept) ||
         cpu->kept_bytes + bytes > CPU_KEEP_MOST)
    cpu_kept_free(d, 0);
  cpu->kept[cpu->nkept++] = (limn_cpu_block){mem, bytes};
  cpu->kept_bytes += bytes;
  d->c->bytes -= bytes;
  return true;
}

static bool cpu_kept_take(limn_device *d, size_t bytes, void **mem) {
  limn_cpu *cpu = d->impl;
  for (int i = 0; i < cpu->nkept; i++) {
    if (cpu->kept[i].bytes != bytes) continue;
    *mem = cpu->kept[i].mem;
    cpu->kept[i] = cpu->kept[--cpu->nkept];
    cpu->kept_bytes -= bytes;
    d->c->bytes += bytes;
    d->c->peak_bytes = LIMN_MAX(d->c->peak_bytes, d->c->bytes);
    return true;
  }
  return false;
}

static void cpu_kept_clear(limn_device *d) {
  limn_cpu *cpu = d->impl;
  while (cpu->nkept) cpu_kept_free(d, cpu->nkept - 1);
}

static int cpu_alloc(struct limn_device *d, size_t bytes, void **mem) {
  limn_cpu *cpu = d->impl;
  if (cpu_kept_take(d, bytes, mem)) return 0;
  *mem = limn_realloc(d->c, NULL, 0, bytes, 64);
  if (!*mem && cpu->nkept) {
    cpu_kept_clear(d);
    *mem = limn_realloc(d->c, NULL, 0, bytes, 64);
  }
  if (*mem) return 0;
  limn_fail(d->c, LIMN_EMEM,
            "out of memory: %zu bytes wanted for a tensor, %zu in use", bytes,
            d->c->bytes);
  if (!d->c->opt.max_bytes) return LIMN_EMEM;
  return limn_hint(d->c, LIMN_EMEM, "the limit set for limn is %zu bytes",
                   d->c->opt.max_bytes);
}

static void cpu_free(struct limn_device *d, void *mem, size_t bytes) {
  if (!cpu_keep(d, mem, bytes)) limn_realloc(d->c, mem, bytes, 0, 64);
}

static int cpu_open(limn_context *c) {
  limn_cpu *cpu = limn_alloc(c, sizeof *cpu);
  limn_device *d;
  char text[64];
  int rc;
  if (!cpu) return LIMN_EMEM;
  cpu->gemm = limn_gemm_select(c->flags.isa);
  cpu->loops = limn_loops_select(c->flags.isa);
  cpu->conv = limn_conv_select(c->flags.isa);
  cpu->nslot = LIMN_MIN(LIMN_MAX(c->opt.threads, 1), CPU_SLOTS);
  cpu_blas_open();
  memcpy(text, "kernels for ", 12);
  strcpy(text + 12, cpu->gemm->name);
  strcat(text, ", " CPU_BLAS);
  rc = limn_device_add(c, &limn_cpu_ops, cpu, "cpu", text, &d);
  if (rc < 0) limn_free(c, cpu, sizeof *cpu);
  return rc;
}

static void cpu_close(struct limn_device *d) {
  limn_cpu *cpu = d->impl;
  size_t size = cpu->slot_size * (size_t)cpu->nslot;
  cpu_kept_clear(d);
  if (cpu->slots) limn_realloc(d->c, cpu->slots, size, 0, 64);
  if (cpu->shared) limn_realloc(d->c, cpu->shared, cpu->shared_size, 0, 64);
  limn_free(d->c, cpu, sizeof *cpu);
}

static int cpu_upload(struct limn_device *d, void *mem, size_t off,
                      const void *src, size_t n) {
  (void)d;
  memcpy((char *)mem + off, src, n);
  return 0;
}

static int cpu_download(struct limn_device *d, void *mem, size_t off,
                        void *dst, size_t n) {
  (void)d;
  memcpy(dst, (char *)mem + off, n);
  return 0;
}

static int cpu_wait(struct limn_device *d) {
  (void)d;
  return 0;
}

/* -- steps -- */

static int cpu_prepare(struct limn_device *d, limn_step *s) {
  switch (s->kind) {
    case LIMN_STEP_GROUP: return limn_cpu_group_prepare(d->c, s);
    case LIMN_STEP_REDUCE: return limn_cpu_reduce_prepare(d, s);
    case LIMN_STEP_MATMUL: return limn_cpu_matmul_prepare(d, s);
    case LIMN_STEP_CONV: return limn_cpu_conv_prepare(d, s);
    case LIMN_STEP_ARG: return limn_cpu_arg_prepare(d, s);
    case LIMN_STEP_ROW: return limn_cpu_row_prepare(d, s);
    case LIMN_STEP_POOL: return limn_cpu_pool_prepare(d, s);
    case LIMN_STEP_NORM: return limn_cpu_norm_prepare(d, s);
    case LIMN_STEP_BATCH: return limn_cpu_batch_prepare(d, s);
    case LIMN_STEP_CUM: return limn_cpu_cum_prepare(d, s);
    case LIMN_STEP_SELECT: return limn_cpu_select_prepare(d, s);
    case LIMN_STEP_GATHER: return limn_cpu_gather_prepare(d, s);
    case LIMN_STEP_INDEX_ADD: return limn_cpu_index_add_prepare(d, s);
    case LIMN_STEP_SCATTER_ADD: return limn_cpu_scatter_add_prepare(d, s);
    case LIMN_STEP_SORT: return limn_cpu_sort_prepare(d, s);
    case LIMN_STEP_LINALG: return limn_cpu_linalg_prepare(d, s);
    case LIMN_STEP_PRINT: return 0;
  }
  return limn_fail(d->c, LIMN_EUNSUPPORTED, "no kernel for a step of kind %d",
                   s->kind);
}

static void cpu_discard(struct limn_device *d, limn_step *s) {
  switch (s->kind) {
    case LIMN_STEP_GROUP: limn_cpu_group_discard(d->c, s); break;
    case LIMN_STEP_REDUCE: limn_cpu_reduce_discard(d, s); break;
    case LIMN_STEP_MATMUL: limn_cpu_matmul_discard(d, s); break;
    case LIMN_STEP_BATCH: limn_cpu_batch_discard(d, s); break;
    case LIMN_STEP_CONV: limn_cpu_conv_discard(d, s); break;
    default: break;
  }
  s->code = NULL;
  s->run = NULL;
}

enum {
  CPU_WORTH = 5000,  /* ns of work below which threads cost more than help */
  CPU_PART = 2000,   /* ns that a job should take at least */
  CPU_SHARE = 8      /* jobs per thread, so that they end together */
};

typedef struct {
  void (*fn)(void *, int64_t t0, int64_t t1);
  void *arg;
  int64_t tiles, n; /* n: jobs that the tiles are dealt to */
} cpu_job;

static void cpu_job_run(void *arg, int64_t i) {
  const cpu_job *j = arg;
  j->fn(j->arg, j->tiles * i / j->n, j->tiles * (i + 1) / j->n);
}

/* How tiles are dealt to jobs has no influence on what they compute. */
int limn_cpu_spread(limn_context *c, int64_t n, double ns,
                    void (*fn)(void *, int64_t t0, int64_t t1), void *arg) {
  cpu_job j = {fn, arg, n, 0};
  int64_t most = (int64_t)(ns / CPU_PART) + 1;
  if (c->opt.threads < 2 || n < 2 || ns < CPU_WORTH) {
    fn(arg, 0, n);
    return 0;
  }
  j.n = LIMN_MIN(n, (int64_t)c->opt.threads * CPU_SHARE);
  j.n = LIMN_MIN(j.n, LIMN_MAX(most, c->opt.threads));
  if (!c->opt.parallel_for) return limn_pool_run(c, j.n, cpu_job_run, &j);
  c->opt.parallel_for(c->opt.user, j.n, cpu_job_run, &j);
  return 0;
}

typedef struct {
  const limn_step *s;
  const limn_bind *b;
} cpu_step;

static void cpu_step_run(void *arg, int64_t t0, int64_t t1) {
  const cpu_step *p = arg;
  p->s->run(p->s, p->b, t0, t1);
}

static int cpu_launch(struct limn_device *d, const limn_step *s,
                      const limn_bind *b) {
  cpu_step p = {s, b};
  if (!s->ntiles) return 0; /* nothing to compute, or a step of exec.c */
  if (s->kind == LIMN_STEP_MATMUL) limn_cpu_matmul_begin(s, b);
  if (s->kind == LIMN_STEP_CONV) LIMN_TRY(limn_cpu_conv_begin(s, b));
  LIMN_TRY(limn_cpu_spread(d->c, s->ntiles, s->cost_ns, cpu_step_run, &p));
  return s->kind == LIMN_STEP_CONV ? limn_cpu_conv_end(s, b) : 0;
}

static bool cpu_supports(struct limn_device *d, int op, int dtype) {
  (void)d;
  switch (op) {
    case OP_softmax: case OP_log_softmax: case OP_softmax_back:
    case OP_log_softmax_back: case OP_layer_norm: case OP_rms_norm:
    case OP_layer_norm_back: case OP_rms_norm_back: case OP_layer_norm_sums:
    case OP_rms_norm_sums: case OP_batch_norm_stats: case OP_batch_norm_sums:
      return limn_dtype_float(dtype);
    case OP_matmul: case OP_cumsum: case OP_cumprod: case OP_cummax:
    case OP_cummin: case OP_logcumsumexp: case OP_argmax: case OP_argmin:
    case OP_index_select: case OP_gather: case OP_index_add:
    case OP_scatter_add: case OP_scatter: case OP_argsort:
    case OP_conv: case OP_conv_transpose: case OP_conv_weights:
    case OP_cholesky: case OP_solve: case OP_solve_triangular:
    case OP_lu_parts: case OP_eigh_parts: case OP_svd_parts: case OP_qr_parts:
    case OP_max_pool2_f32: case OP_max_pool2_f32_back:
      return true;
  }
  return false;
}

/* Faults of the CPU are noted in the run's own limn_bind. */
static int cpu_fault(struct limn_device *d, limn_fault *out) {
  (void)d;
  memset(out, 0, sizeof *out);
  return 0;
}

const limn_device_ops limn_cpu_ops = {
    "cpu",     true,       cpu_open,     cpu_close,   cpu_alloc,
    cpu_free,  cpu_upload, cpu_download, cpu_wait,    cpu_prepare,
    cpu_discard, cpu_launch, cpu_supports, cpu_fault, NULL, NULL, NULL,
};
