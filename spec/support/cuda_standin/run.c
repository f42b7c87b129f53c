/* Runs a launch: block after block, the threads of a block as fibers that take
 * turns at barriers.
 *
 * Rules. (1) A thread runs until it returns or waits; threads that never wait
 * share one stack. (2) A barrier opens when all threads of the block wait at
 * it; one that returned, or waits elsewhere, is a report. (3) Lanes of a warp
 * that exchange values wait for those that their mask names. (4) The order of
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

enum { RUN_THREADS = 1024, RUN_STACK = 1 << 16 };
enum { RUN_NEW, RUN_READY, RUN_SYNC, RUN_WARP, RUN_DONE };

typedef struct run_fiber {
  struct run_fiber *next; /* of those that are free */
  char *stack;
  void *sp;
  int thread;
} run_fiber;

typedef struct {
  uint8_t state, turn; /* turn: which of the two slots of the warp is next */
  int line;            /* where it waits */
  unsigned mask;       /* of the warp exchange that it waits in */
  run_fiber *fiber;    /* or NULL: not started, or returned */
} run_thread;

static struct {
  const standin_launch *launch;
  void **param; /* with pointers that can be followed */
  standin_now now;
  int threads, started, at; /* at: the thread that runs */
  bool backwards;
  run_thread thread[RUN_THREADS];
  unsigned long long slot[RUN_THREADS / 32][2][32];
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
    "ret\n.size standin_switch, .-standin_switch\n");

/* Six registers, the address to return to, and the stack as a call leaves it:
 * 8 beyond a multiple of 16. */
static void run_prepare(run_fiber *f, void (*main)(void)) {
  void **top = (void **)(void *)(f->stack + RUN_STACK - 16);
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
  f->sp = f->stack + RUN_STACK - 160;
  memset(f->sp, 0, 160);
  ((void **)f->sp)[11] = (void *)main; /* x30 */
}
#else
#error "standin_switch is written for x86-64 and AArch64"
#endif

/* -- Threads --------------------------------------------------------------- */

static void run_place(int t) {
  const standin_dim *b = &run.launch->block;
  unsigned u = (unsigned)t;
  run.at = t;
  run.now.lane = u % 32;
  run.now.thread = (standin_dim){u % b->x, u / b->x % b->y, u / b->x / b->y};
}

/* Thread number i in this block's order. */
static int run_order(int i) {
  return run.backwards ? run.threads - 1 - i : i;
}

/* A fiber runs threads that have not started, one after the other. */
static void run_main(void) {
  for (;;) {
    run_thread *t = &run.thread[run.at];
    run.launch->f->entry->call(run.param);
    t->state = RUN_DONE;
    if (run.started < run.threads) {
      int next = run_order(run.started++);
      run.thread[next].fiber = t->fiber;
      t->fiber = NULL;
      run_place(next);
      continue;
    }
    standin_switch(&t->fiber->sp, run.scheduler);
    /* Taken up again for the next block: the thread was placed. */
  }
}

static run_fiber *run_fiber_new(void) {
  run_fiber *f = run.idle;
  if (f) {
    run.idle = f->next;
    return f;
  }
  f = standin_new(sizeof *f);
  f->stack = mmap(NULL, RUN_STACK, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (f->stack == MAP_FAILED) abort();
  run_prepare(f, run_main);
  return f;
}

/* f is free; where it was no longer matters. */
static void run_fiber_reset(run_fiber *f) {
  run_prepare(f, run_main);
  f->next = run.idle;
  run.idle = f;
}

/* Let thread t go on until it waits or returns. */
static void run_resume(int t) {
  run_thread *h = &run.thread[t];
  if (!h->fiber) h->fiber = run_fiber_new();
  h->state = RUN_READY;
  run_place(t);
  standin_switch(&run.scheduler, h->fiber->sp);
  h = &run.thread[run.at]; /* the fiber may have gone on to another */
  if (h->state == RUN_DONE) {
    h->fiber->next = run.idle;
    run.idle = h->fiber;
    h->fiber = NULL;
  }
}

static void run_fail(int code, const char *why) {
  run.fault_code = code;
  run.why = why;
  siglongjmp(run.fault, 1);
}
static void run_trap(const char *why) { run_fail(SI_LAUNCH_FAILED, why); }

static void run_wait(int state, int line) {
  run_thread *t = &run.thread[run.at];
  t->state = (uint8_t)state;
  t->line = line;
  standin_switch(&t->fiber->sp, run.scheduler);
}

static void run_sync(int line) { run_wait(RUN_SYNC, line); }

static unsigned run_present(void) {
  int first = run.at / 32 * 32, i;
  unsigned bits = 0;
  for (i = 0; i < 32 && first + i < run.threads; i++)
    if (run.thread[first + i].state != RUN_DONE) bits |= 1u << i;
  return bits;
}

/* Two slots in turn: a lane can be at most one exchange ahead of those that
 * still have to read. */
static const unsigned long long *run_exchange(int line, unsigned mask,
                                              unsigned long long value) {
  run_thread *t = &run.thread[run.at];
  unsigned long long *slot = run.slot[run.at / 32][t->turn];
  if (!(mask >> run.now.lane & 1))
    run_fail(SI_LAUNCH_FAILED, "a lane exchanges without being in the mask");
  slot[run.now.lane] = value;
  t->mask = mask;
  t->turn ^= 1;
  run_wait(RUN_WARP, line);
  return slot;
}

/* -- Blocks ---------------------------------------------------------------- */

/* Whether all lanes that t waits for are there; those that returned are not
 * waited for. */
static bool run_warp_ready(int t) {
  const run_thread *h = &run.thread[t];
  int first = t / 32 * 32, i;
  for (i = 0; i < 32 && first + i < run.threads; i++) {
    const run_thread *o = &run.thread[first + i];
    if (!(h->mask >> i & 1) || o->state == RUN_DONE) continue;
    if (o->state != RUN_WARP || o->line != h->line || o->turn != h->turn)
      return false;
    if (o->mask != h->mask)
      run_fail(SI_LAUNCH_FAILED, "lanes of one exchange name other masks");
  }
  return true;
}

static int run_warps(void) {
  int t, i, n = 0;
  for (t = 0; t < run.threads; t++) {
    run_thread *h = &run.thread[t];
    int first = t / 32 * 32;
    unsigned mask = h->mask;
    if (h->state != RUN_WARP || !run_warp_ready(t)) continue;
    for (i = 0; i < 32; i++) {
      run_thread *o = &run.thread[first + i];
      if (first + i >= run.threads || o->state == RUN_DONE)
        run.slot[t / 32][h->turn ^ 1][i] = UINT64_MAX; /* reads as NaN */
      else if ((mask >> i & 1) && o->state == RUN_WARP)
        o->state = RUN_READY, n++;
    }
  }
  return n;
}

/* All wait at one barrier, or the launch fails. */
static void run_barrier(void) {
  int t, line = 0, done = 0;
  for (t = 0; t < run.threads; t++) {
    run_thread *h = &run.thread[t];
    if (h->state == RUN_DONE) {
      done++;
      continue;
    }
    if (h->state == RUN_WARP)
      run_fail(SI_LAUNCH_FAILED, "lanes wait for others that wait elsewhere");
    if (line && h->line != line)
      run_fail(SI_LAUNCH_FAILED, "threads wait at different barriers");
    line = h->line;
    h->state = RUN_READY;
  }
  if (done)
    run_fail(SI_LAUNCH_FAILED, "some threads returned before a barrier");
}

static bool run_any(int state) {
  int t;
  for (t = 0; t < run.threads; t++)
    if (run.thread[t].state == state) return true;
  return false;
}

static void run_block(void) {
  const standin_code *code = run.launch->f->module->code;
  int i;
  memset(code->shared, 0xff, (size_t)(code->shared_end - code->shared));
  memset(run.thread, 0, sizeof run.thread[0] * (size_t)run.threads);
  run.started = 0;
  while (run.started < run.threads) run_resume(run_order(run.started++));
  while (run_any(RUN_SYNC) || run_any(RUN_WARP)) {
    if (!run_warps()) run_barrier();
    run.backwards = !run.backwards;
    for (i = 0; i < run.threads; i++)
      if (run.thread[run_order(i)].state == RUN_READY) run_resume(run_order(i));
  }
}

static void run_blocks(void) {
  const standin_dim *g = &run.launch->grid;
  uint64_t n = (uint64_t)g->x * g->y * g->z, i, at;
  static unsigned count;
  bool backwards = count++ & 1;
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
  run.fault_code = SI_ILLEGAL_ADDRESS;
  run.why = sig == SIGFPE ? "a division of ints by zero" : "an illegal address";
  siglongjmp(run.fault, 1);
}

static const int run_signals[] = {SIGSEGV, SIGBUS, SIGFPE};

static void run_catch(struct sigaction old[3]) {
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
  for (i = 0; i < 3; i++) sigaction(run_signals[i], &a, &old[i]);
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
  struct sigaction old[3];
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
  for (i = 0; i < 3; i++) sigaction(run_signals[i], &old[i], NULL);
  return rc;
}
