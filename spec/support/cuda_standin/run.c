/* Runs a launch: block after block, the threads of a block as fibers that take
 * turns at barriers.
 *
 * Rules. (1) A thread runs until it returns or waits; then it hands over to
 * one of its own warp that can run, else to any. Threads that never wait share
 * one stack. (2) A barrier opens when all threads of the block wait at it; one
 * that returned, or waits elsewhere, is a report. (3) Lanes of a warp that
 * exchange values wait for those that their mask names. (4) The order of
 * threads and blocks turns around from one to the next, so that what relies on
 * an order is found out; shared memory starts as NaN. (5) A fault in a kernel
 * ends the launch with the error that a device would give. */
#include "standin.h"

#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { RUN_THREADS = 1024, RUN_WARPS = RUN_THREADS / 32 };
enum { RUN_STACK = 1 << 16 };

typedef struct run_fiber {
  struct run_fiber *next; /* of those that are free */
  char *end;              /* of its stack */
  void *sp;
} run_fiber;

typedef struct {
  standin_dim at;
  int line;         /* where it waits */
  unsigned mask;    /* of the exchange that it waits in */
  run_fiber *fiber; /* or NULL: not started, or returned */
} run_thread;

/* Each lane is in one of these sets, or runs; those that the block does not
 * have are done. */
typedef struct {
  unsigned fresh, ready, synced, waiting, done;
  unsigned turn; /* of each lane: which of the two slots is next */
  unsigned long long slot[2][32];
} run_warp;

static struct {
  const standin_launch *launch;
  void **param; /* with pointers that can be followed */
  standin_now now;
  int threads, warps, at; /* at: the thread that runs */
  int synced, done;       /* threads that wait at a barrier, that returned */
  bool backwards;
  run_thread thread[RUN_THREADS];
  run_warp warp[RUN_WARPS];
  run_fiber *idle;
  void *scheduler; /* its stack pointer */
  sigjmp_buf fault;
  void *fault_at;
  const char *why;
  int fault_code;
} run;

/* -- Switching stacks ------------------------------------------------------ */

#if defined(__x86_64__)
void standin_switch(void **save, void *to);
__asm__(
    ".text\n.globl standin_switch\n.hidden standin_switch\n"
    ".type standin_switch, @function\nstandin_switch:\n"
    "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\n"
    "pushq %r15\nmovq %rsp, (%rdi)\nmovq %rsi, %rsp\n"
    "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\n"
    "popq %rcx\njmp *%rcx\n" /* a return would be predicted wrongly */
    ".size standin_switch, .-standin_switch\n");

/* Six registers, the address to return to, and the stack as a call leaves it:
 * 8 beyond a multiple of 16. */
static void run_prepare(run_fiber *f, void (*main)(void)) {
  void **top = (void **)(void *)(f->end - 16);
  *--top = NULL;
  *--top = (void *)main;
  f->sp = top - 6;
  memset(f->sp, 0, 6 * sizeof *top);
}
#elif defined(__aarch64__)
void standin_switch(void **save, void *to);
__asm__(
    ".text\n.globl standin_switch\n.hidden standin_switch\n"
    ".type standin_switch, %function\nstandin_switch:\n"
    "sub sp, sp, #160\n"
    "stp x19, x20, [sp]\nstp x21, x22, [sp, #16]\nstp x23, x24, [sp, #32]\n"
    "stp x25, x26, [sp, #48]\nstp x27, x28, [sp, #64]\n"
    "stp x29, x30, [sp, #80]\nstp d8, d9, [sp, #96]\n"
    "stp d10, d11, [sp, #112]\nstp d12, d13, [sp, #128]\n"
    "stp d14, d15, [sp, #144]\nmov x9, sp\nstr x9, [x0]\nmov sp, x1\n"
    "ldp x19, x20, [sp]\nldp x21, x22, [sp, #16]\nldp x23, x24, [sp, #32]\n"
    "ldp x25, x26, [sp, #48]\nldp x27, x28, [sp, #64]\n"
    "ldp x29, x30, [sp, #80]\nldp d8, d9, [sp, #96]\n"
    "ldp d10, d11, [sp, #112]\nldp d12, d13, [sp, #128]\n"
    "ldp d14, d15, [sp, #144]\nadd sp, sp, #160\nret\n"
    ".size standin_switch, .-standin_switch\n");

static void run_prepare(run_fiber *f, void (*main)(void)) {
  f->sp = f->end - 160;
  memset(f->sp, 0, 160);
  ((void **)f->sp)[11] = (void *)main; /* x30 */
}
#else
#error "standin_switch is written for x86-64 and AArch64"
#endif

/* -- Threads --------------------------------------------------------------- */

static void run_fail(int code, const char *why) {
  run.fault_code = code;
  run.why = why;
  siglongjmp(run.fault, 1);
}
static void run_trap(const char *why) { run_fail(SI_LAUNCH_FAILED, why); }

static void run_place(int t) {
  run.at = t;
  run.now.lane = (unsigned)t % 32;
  run.now.thread = run.thread[t].at;
}

static int run_first(unsigned lanes) {
  return run.backwards ? 31 - __builtin_clz(lanes) : __builtin_ctz(lanes);
}

/* Takes a lane of warp w that can run, or is -1. */
static int run_take(int w) {
  run_warp *p = &run.warp[w];
  unsigned can = p->fresh | p->ready;
  int lane;
  if (!can) return -1;
  lane = run_first(can);
  p->fresh &= ~(1u << lane);
  p->ready &= ~(1u << lane);
  return w * 32 + lane;
}

/* Lets the lanes that thread t exchanges with go on, if all are there. Lanes
 * that returned are not waited for. */
static bool run_meet(int t) {
  const run_thread *h = &run.thread[t];
  run_warp *p = &run.warp[t / 32];
  unsigned all = h->mask & ~p->done, left, turn = p->turn >> t % 32 & 1;
  if (all & ~p->waiting) return false;
  if ((turn ? ~p->turn : p->turn) & all) return false;
  for (left = all; left; left &= left - 1) {
    const run_thread *o = h - t % 32 + __builtin_ctz(left);
    if (o->line != h->line) return false;
    if (o->mask != h->mask)
      run_fail(SI_LAUNCH_FAILED, "lanes of one exchange name other masks");
  }
  for (left = p->done; left; left &= left - 1) /* reads as NaN */
    p->slot[turn ^ 1][__builtin_ctz(left)] = UINT64_MAX;
  p->waiting &= ~all;
  p->ready |= all;
  return true;
}

/* All wait at one barrier, or the launch fails. */
static void run_barrier(void) {
  int w, t;
  if (run.synced + run.done < run.threads)
    run_fail(SI_LAUNCH_FAILED, "lanes wait for others that wait elsewhere");
  for (t = 1; t < run.threads; t++)
    if (run.thread[t].line != run.thread[0].line && !run.done)
      run_fail(SI_LAUNCH_FAILED, "threads wait at different barriers");
  if (run.done)
    run_fail(SI_LAUNCH_FAILED, "some threads returned before a barrier");
  for (w = 0; w < run.warps; w++) {
    run.warp[w].ready = run.warp[w].synced;
    run.warp[w].synced = 0;
  }
  run.synced = 0;
  run.backwards = !run.backwards;
}

/* The thread that runs next, taken; -1: all have returned. */
static int run_next(void) {
  int i, w, t = run_take(run.at / 32);
  unsigned left;
  for (i = 0; i < run.warps && t < 0; i++)
    t = run_take(run.backwards ? run.warps - 1 - i : i);
  if (t >= 0) return t;
  if (run.done == run.threads) return -1;
  for (w = 0; w < run.warps; w++) /* a lane may have returned meanwhile */
    for (left = run.warp[w].waiting; left; left &= left - 1)
      if (run_meet(w * 32 + __builtin_ctz(left))) return run_next();
  run_barrier();
  return run_next();
}

/* A fiber runs threads that have not started, one after the other. */
static void run_main(void) {
  for (;;) {
    run_thread *t = &run.thread[run.at];
    run_fiber *own;
    void *to;
    int next;
    run.launch->f->entry->call(run.param);
    own = t->fiber;
    run.warp[run.at / 32].done |= 1u << run.at % 32;
    run.done++;
    next = run_next();
    t->fiber = NULL;
    if (next >= 0) {
      t = &run.thread[next];
      run_place(next);
      if (!t->fiber) {
        t->fiber = own;
        continue;
      }
    }
    to = next < 0 ? run.scheduler : t->fiber->sp;
    own->next = run.idle;
    run.idle = own;
    standin_switch(&own->sp, to);
    /* Taken up again for a thread that was placed. */
  }
}

/* Stacks end at places that differ modulo a page and more, or all would want
 * the same lines of the processor's caches. */
static run_fiber *run_fiber_new(void) {
  static size_t made;
  run_fiber *f = run.idle;
  char *stack;
  if (f) {
    run.idle = f->next;
    return f;
  }
  f = standin_new(sizeof *f);
  stack = mmap(NULL, RUN_STACK, PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (stack == MAP_FAILED) abort();
  f->end = stack + RUN_STACK - made++ % 64 * 320;
  run_prepare(f, run_main);
  return f;
}

/* f is free; where it was no longer matters. */
static void run_fiber_reset(run_fiber *f) {
  run_prepare(f, run_main);
  f->next = run.idle;
  run.idle = f;
}

/* From what runs, whose stack pointer goes to *save, to thread t. */
static void run_go(void **save, int t) {
  run_thread *h = &run.thread[t];
  if (!h->fiber) h->fiber = run_fiber_new();
  run_place(t);
  standin_switch(save, h->fiber->sp);
}

/* The thread that runs waits: some other goes on. */
static void run_wait(void) {
  int self = run.at, t = run_next();
  if (t != self) run_go(&run.thread[self].fiber->sp, t);
}

static void run_sync(int line) {
  run.thread[run.at].line = line;
  run.warp[run.at / 32].synced |= 1u << run.at % 32;
  run.synced++;
  run_wait();
}

static unsigned run_present(void) { return ~run.warp[run.at / 32].done; }

/* Two slots in turn: a lane can be at most one exchange ahead of those that
 * still have to read. */
static const unsigned long long *run_exchange(int line, unsigned mask,
                                              unsigned long long value) {
  run_thread *t = &run.thread[run.at];
  run_warp *w = &run.warp[run.at / 32];
  unsigned lane = run.now.lane;
  unsigned long long *slot = w->slot[w->turn >> lane & 1];
  if (!(mask >> lane & 1))
    run_fail(SI_LAUNCH_FAILED, "a lane exchanges without being in the mask");
  slot[lane] = value;
  t->line = line;
  t->mask = mask;
  w->turn ^= 1u << lane;
  w->waiting |= 1u << lane;
  if (run_meet(run.at)) w->ready &= ~(1u << lane);
  else run_wait();
  return slot;
}

/* -- Blocks ---------------------------------------------------------------- */

static void run_block(void) {
  const standin_code *code = run.launch->f->module->code;
  int w;
  memset(code->shared, 0xff, (size_t)(code->shared_end - code->shared));
  for (w = 0; w < run.warps; w++) {
    run_warp *p = &run.warp[w];
    int left = run.threads - w * 32;
    p->fresh = left < 32 ? (1u << left) - 1 : ~0u;
    p->done = ~p->fresh;
    p->ready = p->synced = p->waiting = p->turn = 0;
  }
  run.synced = run.done = 0;
  run.at = run.backwards ? run.threads - 1 : 0;
  run_go(&run.scheduler, run_next());
}

static void run_blocks(void) {
  const standin_dim *g = &run.launch->grid, *b = &run.launch->block;
  uint64_t n = (uint64_t)g->x * g->y * g->z, i, at;
  static unsigned count;
  bool backwards = count++ & 1;
  for (i = 0; i < (uint64_t)run.threads; i++) {
    unsigned t = (unsigned)i;
    run.thread[i] = (run_thread){
        {t % b->x, t / b->x % b->y, t / b->x / b->y}, 0, 0, NULL};
  }
  for (i = 0; i < n; i++) {
    at = backwards ? n - 1 - i : i;
    run.now.block = (standin_dim){(unsigned)(at % g->x),
                                  (unsigned)(at / g->x % g->y),
                                  (unsigned)(at / g->x / g->y)};
    run.backwards = (at ^ count) & 1;
    run_block();
  }
}

/* -- Faults ---------------------------------------------------------------- */

static void run_signal(int sig, siginfo_t *info, void *context) {
  (void)context;
  run.fault_at = info->si_addr;
  run.fault_code = sig == SIGILL ? SI_MISALIGNED : SI_ILLEGAL_ADDRESS;
  run.why = sig == SIGFPE   ? "a division of ints by zero"
            : sig == SIGILL ? "a misaligned address"
                            : "an illegal address";
  siglongjmp(run.fault, 1);
}

/* SIGILL is what -fsanitize=alignment ends in. */
static const int run_signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
enum { RUN_SIGNALS = 4 };

static void run_catch(struct sigaction old[RUN_SIGNALS]) {
  static __thread char *stack; /* the fault may be a full stack */
  struct sigaction a = {0};
  int i;
  if (!stack) {
    stack_t s = {0};
    stack = standin_new(1 << 16);
    s.ss_sp = stack;
    s.ss_size = 1 << 16;
    sigaltstack(&s, NULL);
  }
  a.sa_sigaction = run_signal;
  a.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  for (i = 0; i < RUN_SIGNALS; i++) sigaction(run_signals[i], &a, &old[i]);
}

static int run_report(void) {
  const standin_dim *b = &run.now.block, *t = &run.now.thread;
  int i;
  for (i = 0; i < run.threads; i++)
    if (run.thread[i].fiber) run_fiber_reset(run.thread[i].fiber);
  return standin_bad(run.fault_code,
                     "kernel %s: %s (%p), at block %u %u %u, thread %u %u %u",
                     run.launch->f->entry->name, run.why, run.fault_at, b->x,
                     b->y, b->z, t->x, t->y, t->z);
}

int standin_run(const standin_launch *l) {
  const standin_entry *e = l->f->entry;
  struct sigaction old[RUN_SIGNALS];
  cu_ptr real[64];
  void *param[65];
  int i, rc = 0;
  if (!e->call) return 0;
  for (i = 0; i < e->nparam && i < 64; i++) {
    param[i] = l->param[i];
    if (!e->pointer[i]) continue;
    memcpy(&real[i], l->param[i], sizeof real[i]);
    real[i] &= ~STANDIN_DEVICE_BIT;
    param[i] = &real[i];
  }
  run.launch = l;
  run.param = param;
  run.threads = (int)(l->block.x * l->block.y * l->block.z);
  run.warps = (run.threads + 31) / 32;
  run.now.block_dim = l->block;
  run.now.grid_dim = l->grid;
  run.now.sync = run_sync;
  run.now.exchange = run_exchange;
  run.now.present = run_present;
  run.now.trap = run_trap;
  run.fault_at = NULL;
  *l->f->module->code->now = &run.now;
  run_catch(old);
  if (sigsetjmp(run.fault, 1))
    rc = run_report();
  else
    run_blocks();
  for (i = 0; i < RUN_SIGNALS; i++) sigaction(run_signals[i], &old[i], NULL);
  return rc;
}
