/* The workers of a context: parallel loops over small numbers of chunks.
 *
 * Chunks are claimed one at a time by the caller and the workers through one
 * 64-bit word (epoch, total, next), so the caller never waits for a worker
 * that has claimed nothing: one that is slow to wake costs nothing but its
 * help. Workers spin for a while after a job, so that the steps of a plan find
 * them awake, and then sleep on a condition variable. They avoid the CPU that
 * the caller was on when they started: Linux likes to wake a thread just
 * there. No thread is started before the first job that has use for one. */
#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* sched_getcpu, CPU_SET */
#endif
#include "device.h"

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

enum {
  POOL_MOST = 256,    /* threads */
  POOL_CHUNKS = 32768, /* claims per job; a claim may be several chunks */
  POOL_SPIN = 4000    /* pauses before sleeping: 50 to 200 us */
};

struct limn_pool {
  limn_context *c;
  int threads, started; /* workers wanted and running */
  int spin;
  bool busy; /* a job runs: nested ones are the caller's alone */
  pthread_t *thread;
  pthread_mutex_t lock;
  pthread_cond_t wake;
#ifdef __linux__
  cpu_set_t cpus; /* where workers may run */
  bool placed;
#endif
  /* The job; written by the caller while no claim is open. */
  void (*fn)(void *, int64_t);
  void *arg;
  int64_t n;
  /* Each on a cache line of its own. */
  _Alignas(64) _Atomic uint64_t word; /* epoch << 32 | total << 16 | next */
  _Alignas(64) _Atomic uint32_t seq;  /* counts jobs; workers wait on it */
  _Alignas(64) _Atomic uint32_t asleep;
  _Alignas(64) _Atomic uint32_t done; /* claims finished */
  _Atomic bool quit;
};

static inline void pool_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

/* Claim and run until nothing is left to claim. */
static void pool_work(struct limn_pool *p) {
  for (;;) {
    uint64_t w = atomic_load_explicit(&p->word, memory_order_acquire);
    int64_t total = w >> 16 & 0xffff, k = w & 0xffff, i, end;
    if (k >= total) return;
    if (!atomic_compare_exchange_weak(&p->word, &w, w + 1)) continue;
    end = (k + 1) * p->n / total;
    for (i = k * p->n / total; i < end; i++) p->fn(p->arg, i);
    atomic_fetch_add_explicit(&p->done, 1, memory_order_release);
  }
}

/* Until there is a job newer than `seen`. */
static uint32_t pool_wait(struct limn_pool *p, uint32_t seen) {
  uint32_t seq;
  int i;
  for (i = 0; i < p->spin; i++) {
    seq = atomic_load_explicit(&p->seq, memory_order_acquire);
    if (seq != seen) return seq;
    pool_pause();
  }
  pthread_mutex_lock(&p->lock);
  atomic_fetch_add(&p->asleep, 1); /* before seq is read: see pool_start_job */
  while ((seq = atomic_load(&p->seq)) == seen)
    pthread_cond_wait(&p->wake, &p->lock);
  atomic_fetch_sub(&p->asleep, 1);
  pthread_mutex_unlock(&p->lock);
  return seq;
}

static void *pool_worker(void *user) {
  struct limn_pool *p = user;
  uint32_t seen = 0;
#ifdef __linux__
  if (p->placed) pthread_setaffinity_np(pthread_self(), sizeof p->cpus,
                                        &p->cpus);
#endif
  for (;;) {
    seen = pool_wait(p, seen);
    if (atomic_load(&p->quit)) return NULL;
    pool_work(p);
  }
}

static void pool_wake(struct limn_pool *p) {
  atomic_fetch_add(&p->seq, 1);
  if (!atomic_load(&p->asleep)) return;
  pthread_mutex_lock(&p->lock);
  pthread_cond_broadcast(&p->wake);
  pthread_mutex_unlock(&p->lock);
}

/* Allowed CPUs but the caller's. With fewer than threads, waiting workers
 * would keep the others from working: no spinning then. */
static void pool_place(struct limn_pool *p) {
  long cpus = sysconf(_SC_NPROCESSORS_ONLN);
#ifdef __linux__
  int here = sched_getcpu();
  if (!sched_getaffinity(0, sizeof p->cpus, &p->cpus)) {
    cpus = CPU_COUNT(&p->cpus);
    if (here >= 0 && cpus >= p->threads + 1) {
      CPU_CLR(here, &p->cpus);
      p->placed = true;
    }
  }
#endif
  p->spin = cpus > p->threads ? POOL_SPIN : 0;
}

/* Signals are the host's business: workers take none. */
static void pool_start_threads(struct limn_pool *p) {
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  while (p->started < p->threads &&
         !pthread_create(&p->thread[p->started], NULL, pool_worker, p))
    p->started++;
  pthread_sigmask(SIG_SETMASK, &old, NULL);
}

/* NULL when there is no memory for it; the caller then works alone. */
static struct limn_pool *pool_get(limn_context *c) {
  int threads = LIMN_MIN(c->opt.threads, POOL_MOST) - 1;
  size_t bytes = sizeof(struct limn_pool) +
                 (size_t)threads * sizeof(pthread_t);
  struct limn_pool *p = c->pool;
  if (p) return p;
  p = limn_realloc(c, NULL, 0, bytes, 64);
  if (!p) return NULL;
  memset(p, 0, bytes);
  p->c = c;
  p->threads = threads;
  p->thread = (pthread_t *)(p + 1);
  pthread_mutex_init(&p->lock, NULL);
  pthread_cond_init(&p->wake, NULL);
  pool_place(p);
  c->pool = p;
  pool_start_threads(p);
  return p;
}

void limn_pool_free(limn_context *c) {
  struct limn_pool *p = c->pool;
  int i;
  if (!p) return;
  c->pool = NULL;
  atomic_store(&p->quit, true);
  pool_wake(p);
  for (i = 0; i < p->started; i++) pthread_join(p->thread[i], NULL);
  pthread_cond_destroy(&p->wake);
  pthread_mutex_destroy(&p->lock);
  limn_realloc(c, p, sizeof *p + (size_t)p->threads * sizeof(pthread_t), 0,
               64);
}

static void pool_job(struct limn_pool *p, int64_t n,
                     void (*fn)(void *, int64_t), void *arg) {
  uint64_t total = (uint64_t)LIMN_MIN(n, POOL_CHUNKS);
  uint64_t epoch = (atomic_load(&p->word) >> 32) + 1;
  uint32_t i;
  p->busy = true;
  p->fn = fn;
  p->arg = arg;
  p->n = n;
  atomic_store_explicit(&p->done, 0, memory_order_relaxed);
  atomic_store(&p->word, epoch << 32 | total << 16);
  pool_wake(p);
  pool_work(p);
  for (i = 0; atomic_load_explicit(&p->done, memory_order_acquire) < total;
       i++) {
    if (i < POOL_SPIN)
      pool_pause();
    else
      sched_yield(); /* a worker lost its CPU in the middle of a chunk */
  }
  p->busy = false;
}

static bool pool_run_threads(limn_context *c, int64_t n,
                             void (*fn)(void *, int64_t), void *arg) {
  struct limn_pool *p = pool_get(c);
  if (!p || !p->started || p->busy) return false;
  pool_job(p, n, fn, arg);
  return true;
}
#else
void limn_pool_free(limn_context *c) { (void)c; }
static bool pool_run_threads(limn_context *c, int64_t n,
                             void (*fn)(void *, int64_t), void *arg) {
  return (void)c, (void)n, (void)fn, (void)arg, false;
}
#endif

int limn_pool_run(limn_context *c, int64_t n, void (*fn)(void *, int64_t),
                  void *arg) {
  int64_t i;
  if (n > 1 && c->opt.parallel_for) {
    c->opt.parallel_for(c->opt.user, n, fn, arg);
    return 0;
  }
  if (n > 1 && c->opt.threads > 1 && pool_run_threads(c, n, fn, arg)) return 0;
  for (i = 0; i < n; i++) fn(arg, i);
  return 0;
}
