/* Steps of a plan on a GPU, recorded once and then replayed as one launch.
 *
 * (1) A replay stands for the steps between two that need the host. The first
 * run starts them one by one, the second is recorded, later ones replay.
 * (2) Kernels whose pointers or numbers differ from the last run's are given
 * the new ones. (3) The vendor's calls take none: an operand that keeps moving
 * is from then on copied to or from a place that stays, by a kernel of our own.
 * (4) What differs otherwise costs a new recording; where that happens often
 * the replay rests. (5) What replays hold goes back where memory runs out. */
#include "gpu_launch.h"

typedef struct {
  const limn_gpu_launch *l;
  void *node;  /* in the replay; NULL: the vendor's, which stays as it is */
  uint32_t at; /* of its words: pointers, then numbers, of the last run */
} replay_launch;

typedef struct limn_gpu_replay {
  struct limn_gpu_replay *next, **link; /* in the device's list */
  const limn_step *s; /* that it stands for; some may have been discarded */
  uint32_t steps;
  void *made; /* the driver's; NULL: not recorded yet */
  replay_launch *l;
  int64_t *word;
  uint32_t n, cap, nword, word_cap;
  void *temp[2]; /* of all launches, one after the other */
  size_t temp_size[2];
  int cost; /* rises with every new recording, falls with every replay */
  uint32_t rest, rested; /* runs that it still rests, and did last time */
  bool off;              /* there is nothing to record */
  bool busy;             /* it is under way: what it holds stays */
} limn_gpu_replay;

enum { REPLAY_AGAIN = 4, REPLAY_MOST = 16 }; /* of cost */
enum { REPLAY_REST = 16, REPLAY_REST_MOST = 1 << 20 }; /* runs */

/* Steps that are launched together. */
typedef struct {
  limn_device *d;
  limn_gpu *g;
  limn_gpu_replay *r;
  const limn_step *s;
  uint32_t n;
  const limn_bind *b;
  bool record; /* else bind to what this run reads */
  bool stale;  /* a call has moved: only a new recording helps */
  uint32_t k;  /* launches so far */
} replay_walk;

/* -- Operands that stay ---------------------------------------------------- */

enum { STILL_MOST = 4 << 20 }; /* bytes; above that launches cost little */
enum { STILL_AFTER = 2 };      /* recordings that an operand has cost */

/* A copy of n elements between what stays, slot 0, and what moves, slot 1. */
static int still_code(limn_device *d, int dtype, int64_t n, bool out,
                      void **code) {
  uint8_t type = (uint8_t)dtype, by = (uint8_t)limn_dtype_compute(dtype);
  limn_instr text[2] = {{LIMN_I_LOAD, type, by, 0, 0, 0, 0},
                        {LIMN_I_STORE, type, by, 0, 0, 0, 0}};
  limn_group group = {2, text};
  limn_operand from = {out ? 0 : 1, type, {0}}, to = {out ? 1 : 0, type, {0}};
  limn_step s = {0};
  limn_view_dense(&from.v, 1, &n);
  to.v = from.v;
  s.kind = LIMN_STEP_GROUP;
  s.nin = s.nout = 1;
  s.in = &from, s.out = &to;
  s.group = &group;
  LIMN_TRY(limn_gpu_prepare(d, &s));
  *code = s.code;
  return 0;
}

/* Operand j of a call gets a place that stays. */
static int still_make(limn_device *d, limn_gpu_call *call, int j) {
  limn_gpu *g = d->impl;
  limn_gpu_still *p = &call->still[j];
  int64_t n = call->extent[j];
  size_t bytes = (size_t)(n * limn_dtype_size(call->dtype));
  if (p->mem || bytes > STILL_MOST) return 0;
  if (!p->code) {
    if (call->moved[j] < STILL_AFTER) return 0;
    LIMN_TRY(still_code(d, call->dtype, n, j == 0, &p->code));
  }
  p->bytes = bytes;
  return limn_gpu_take(g, bytes, &p->mem);
}

static void still_give(limn_gpu *g, limn_gpu_call *call) {
  int j;
  for (j = 0; j < call->n; j++) {
    limn_gpu_still *p = &call->still[j];
    if (p->mem) limn_gpu_give(g, p->mem, p->bytes);
    p->mem = NULL;
  }
}

void limn_gpu_still_free(limn_device *d, limn_gpu_call *call) {
  int j;
  still_give(d->impl, call);
  for (j = 0; j < call->n; j++) {
    limn_step s = {.code = call->still[j].code};
    limn_gpu_discard(d, &s);
  }
}

/* -- One launch ------------------------------------------------------------ */

static int64_t *replay_words(const limn_gpu_replay *r, uint32_t k) {
  return r->word + r->l[k].at;
}

static bool replay_same(const limn_gpu_replay *r, uint32_t k,
                        const limn_gpu_run *a) {
  const limn_gpu_args *args = &r->l[k].l->args;
  const int64_t *w = replay_words(r, k);
  uint32_t i;
  for (i = 0; i < args->nmem; i++)
    if (w[i] != (int64_t)(intptr_t)a->mem[i]) return false;
  return !memcmp(w + args->nmem, a->num, args->nnum * sizeof *w);
}

static void replay_note(limn_gpu_replay *r, uint32_t k, const limn_gpu_run *a) {
  const limn_gpu_args *args = &r->l[k].l->args;
  int64_t *w = replay_words(r, k);
  uint32_t i;
  for (i = 0; i < args->nmem; i++) w[i] = (int64_t)(intptr_t)a->mem[i];
  memcpy(w + args->nmem, a->num, args->nnum * sizeof *w);
}

/* Which operands of a call lie elsewhere than where they were recorded. */
static void replay_moved(const limn_gpu_replay *r, uint32_t k,
                         const limn_gpu_run *a) {
  const limn_gpu_launch *l = r->l[k].l;
  const int64_t *w = replay_words(r, k);
  uint32_t j;
  for (j = 0; j < (uint32_t)l->call->n; j++)
    if (w[j] != (int64_t)(intptr_t)a->mem[j] ||
        w[l->args.nmem + j] != a->num[j])
      l->call->moved[j] += l->call->moved[j] < UINT8_MAX;
}

static int replay_add(replay_walk *w, const limn_gpu_launch *l,
                      const limn_gpu_run *a) {
  limn_gpu_replay *r = w->r;
  limn_gpu *g = w->g;
  uint32_t k = w->k, words = l->args.nmem + l->args.nnum;
  if (k + 1 > r->cap || r->nword + words > r->word_cap)
    return limn_fail(g->c, LIMN_EARG, "a replay has no room for a launch");
  LIMN_TRY(limn_gpu_launch_start(g, l, a));
  r->l[k].l = l;
  r->l[k].node = NULL;
  r->l[k].at = r->nword;
  r->nword += words;
  r->n = k + 1;
  replay_note(r, k, a);
  if (!l->call) LIMN_TRY(g->drv->node(g, &r->l[k].node));
  return 1;
}

/* 1: it will read what this run has, unless the walk turns stale; 0: it stands
 * for other launches. */
static int replay_one(replay_walk *w, const limn_gpu_launch *l,
                      const limn_gpu_run *a) {
  limn_gpu_replay *r = w->r;
  uint32_t k = w->k;
  if (w->record) return replay_add(w, l, a);
  if (k == r->n || r->l[k].l != l) return 0;
  if ((w->stale && r->l[k].node) || replay_same(r, k, a)) return 1;
  if (!r->l[k].node) {
    replay_moved(r, k, a);
    w->stale = true;
    return 1;
  }
  LIMN_TRY(w->g->drv->rebind(w->g, r->made, r->l[k].node, l, a->mem, a->num));
  replay_note(r, k, a);
  return 1;
}

/* -- All launches ---------------------------------------------------------- */

#define WALK(call)             \
  do {                         \
    int walk_ = (call);        \
    if (walk_ <= 0) return walk_; \
    w->k++;                    \
  } while (0)

/* The copy of operand j, which `a` has where it moves. */
static int replay_still(replay_walk *w, const limn_gpu_call *call, int j,
                        const limn_gpu_run *a) {
  const limn_gpu_still *p = &call->still[j];
  const limn_gpu_code *code = p->code;
  int64_t off = a->num[j] * limn_dtype_size(call->dtype);
  limn_slot slot[2] = {{.mem = p->mem}, {.mem = a->mem[j], .off = off}};
  limn_bind b = {.slot = slot, .c = w->g->c};
  limn_gpu_run copy;
  LIMN_TRY(limn_gpu_launch_read(w->g, code->first, &b, w->r->temp, &copy));
  return replay_one(w, code->first, &copy);
}

/* A call, between the copies of what it reads and writes. */
static int replay_call(replay_walk *w, const limn_gpu_launch *l,
                       const limn_gpu_run *moving) {
  const limn_gpu_call *call = l->call;
  limn_gpu_run a = *moving;
  int j;
  for (j = 0; j < call->n; j++) {
    if (!call->still[j].mem) continue;
    if (j > 0) WALK(replay_still(w, call, j, moving));
    a.mem[j] = call->still[j].mem;
    a.num[j] = 0;
  }
  WALK(replay_one(w, l, &a));
  if (call->still[0].mem) WALK(replay_still(w, call, 0, moving));
  return 1;
}

static int replay_all(replay_walk *w) {
  const limn_gpu_launch *l;
  limn_gpu_run a;
  uint32_t i;
  int rc;
  for (i = 0; i < w->n; i++) {
    const limn_gpu_code *code = w->s[i].code;
    if (!code || limn_step_idle(&w->s[i], w->b->slot)) continue;
    for (l = code->first; l; l = l->next) {
      LIMN_TRY(limn_gpu_launch_read(w->g, l, w->b, w->r->temp, &a));
      if (!l->call) {
        WALK(replay_one(w, l, &a));
      } else {
        rc = replay_call(w, l, &a);
        if (rc <= 0) return rc;
      }
    }
  }
  return 1;
}

/* -- Recording ------------------------------------------------------------- */

static void replay_drop(limn_gpu *g, limn_gpu_replay *r) {
  if (r->made) g->drv->unreplay(g, r->made);
  r->made = NULL;
  r->n = r->nword = 0;
}

/* The next recording takes anew what it needs. */
static void replay_release(limn_gpu *g, limn_gpu_replay *r) {
  const limn_gpu_launch *l;
  uint32_t i;
  int k;
  replay_drop(g, r);
  for (k = 0; k < 2; k++)
    if (r->temp[k]) limn_gpu_give(g, r->temp[k], r->temp_size[k]);
  r->temp[0] = r->temp[1] = NULL;
  for (i = 0; i < r->steps; i++) {
    const limn_gpu_code *code = r->s[i].code;
    for (l = code ? code->first : NULL; l; l = l->next)
      if (l->call) still_give(g, l->call);
  }
}

/* Work in flight may use the memory: like all that is given back it is reused
 * and freed in the device's order. */
bool limn_gpu_replays_release(limn_gpu *g) {
  limn_gpu_replay *r;
  bool any = false;
  for (r = g->first_replay; r; r = r->next) {
    if (r->busy || !r->made) continue;
    replay_release(g, r);
    any = true;
  }
  return any;
}

static int replay_new(limn_gpu *g, limn_gpu_replay **out) {
  limn_gpu_replay *r = limn_alloc(g->c, sizeof *r);
  if (!r) return LIMN_EMEM;
  r->next = g->first_replay;
  if (r->next) r->next->link = &r->next;
  r->link = &g->first_replay;
  g->first_replay = r;
  *out = r;
  return 0;
}

void limn_gpu_forget(limn_gpu *g, limn_gpu_code *code) {
  limn_gpu_replay *r = code->replay;
  code->replay = NULL;
  if (!r) return;
  *r->link = r->next;
  if (r->next) r->next->link = r->link;
  replay_release(g, r);
  limn_free(g->c, r->l, r->cap * sizeof *r->l);
  limn_free(g->c, r->word, r->word_cap * sizeof *r->word);
  limn_free(g->c, r, sizeof *r);
}

/* Whether recording may be worth it and can be done: more than one launch, and
 * none that has to bring its numbers to the device. */
static bool replay_fits(const limn_step *s, uint32_t n) {
  const limn_gpu_launch *l;
  int64_t launches = 0;
  uint32_t i;
  for (i = 0; i < n; i++) {
    const limn_gpu_code *code = s[i].code;
    for (l = code ? code->first : NULL; l; l = l->next) {
      launches++;
      if (!l->call && limn_gpu_table(&l->args)) return false;
    }
  }
  return launches > 1;
}

/* Temporaries stay with what is recorded, which would not know others. */
static int replay_temp(const replay_walk *w, int k) {
  limn_gpu_replay *r = w->r;
  uint32_t i;
  if (r->temp[k]) return 0;
  for (i = 0; i < w->n; i++) {
    const limn_gpu_code *code = w->s[i].code;
    if (code) r->temp_size[k] = LIMN_MAX(r->temp_size[k], code->temp[k]);
  }
  if (!r->temp_size[k]) return 0;
  return limn_gpu_take(w->g, r->temp_size[k], &r->temp[k]);
}

/* Memory and kernels that are needed beside the steps' own. */
static int replay_keep(const replay_walk *w) {
  limn_gpu_launch *l;
  uint32_t i;
  int k;
  LIMN_TRY(limn_gpu_fault_memory(w->g));
  for (k = 0; k < 2; k++) LIMN_TRY(replay_temp(w, k));
  for (i = 0; i < w->n; i++) {
    limn_gpu_code *code = w->s[i].code;
    for (l = code ? code->first : NULL; l; l = l->next)
      for (k = 0; l->call && k < l->call->n; k++)
        LIMN_TRY(still_make(w->d, l->call, k));
  }
  return 0;
}

static void replay_count(const limn_gpu_launch *l, uint32_t *launches,
                         uint32_t *words) {
  *launches += 1;
  *words += l->args.nmem + l->args.nnum;
}

/* Room for all that will be recorded. It is made before: want of memory frees
 * what nobody holds, which nothing may while launches are recorded. */
static int replay_room(const replay_walk *w) {
  limn_gpu_replay *r = w->r;
  const limn_gpu_launch *l;
  uint32_t i, n = 0, words = 0;
  int k;
  for (i = 0; i < w->n; i++) {
    const limn_gpu_code *code = w->s[i].code;
    for (l = code ? code->first : NULL; l; l = l->next) {
      replay_count(l, &n, &words);
      for (k = 0; l->call && k < l->call->n; k++)
        if (l->call->still[k].mem)
          replay_count(((limn_gpu_code *)l->call->still[k].code)->first, &n,
                       &words);
    }
  }
  LIMN_TRY(limn_grow(w->g->c, &r->l, &r->cap, n, sizeof *r->l));
  return limn_grow(w->g->c, &r->word, &r->word_cap, words, sizeof *r->word);
}

static int replay_record(replay_walk *w) {
  limn_gpu_replay *r = w->r;
  int rc, end;
  w->record = true;
  w->k = 0;
  LIMN_TRY(replay_keep(w));
  LIMN_TRY(replay_room(w));
  LIMN_TRY(w->g->drv->record(w->g));
  w->g->c->count.records++;
  r->n = r->nword = 0;
  rc = replay_all(w);
  end = w->g->drv->recorded(w->g, rc < 0 ? NULL : &r->made);
  if (rc < 0 || end < 0) return rc < 0 ? rc : end;
  return 1;
}

/* -- Running --------------------------------------------------------------- */

/* Replays have paid for the last recordings: what moved then may stay now. */
static void replay_settle(limn_gpu_replay *r) {
  uint32_t k;
  if (r->cost == 0 || --r->cost > 0) return;
  r->rested = 0;
  for (k = 0; k < r->n; k++) {
    limn_gpu_call *call = r->l[k].l->call;
    if (call) memset(call->moved, 0, sizeof call->moved);
  }
}

/* It does not pay, or cannot be had now: the next try is one recording, and
 * what keeps failing rests twice as long. */
static void replay_rest(limn_gpu *g, limn_gpu_replay *r) {
  replay_release(g, r);
  r->rested = r->rested ? LIMN_MIN(r->rested * 2, REPLAY_REST_MOST)
                        : REPLAY_REST;
  r->rest = r->rested;
  r->cost = REPLAY_MOST - REPLAY_AGAIN;
}

/* 1: it stands for this run; 0: it does not pay. */
static int replay_ready(replay_walk *w) {
  limn_gpu_replay *r = w->r;
  int bound = r->made ? replay_all(w) : 0;
  if (bound > 0 && !w->stale && w->k == r->n) {
    w->g->c->count.kernels += w->k;
    replay_settle(r);
    return 1;
  }
  if (bound < 0 || r->cost >= REPLAY_MOST) return bound < 0 ? bound : 0;
  r->cost += REPLAY_AGAIN;
  return replay_record(w);
}

/* 1: all has been launched; 0: nothing has, and it must be one by one. What
 * fails before the launch is tried without, where it may fail in its place;
 * so is a launch for which the driver has no memory. */
static int replay_run(replay_walk *w) {
  limn_gpu *g = w->g;
  int ready = replay_ready(w), rc = 0;
  if (ready > 0) rc = g->drv->replay(g, w->r->made);
  if (ready > 0 && rc == 0) {
    g->c->count.replays++;
    return 1;
  }
  if (rc < 0 && rc != LIMN_EMEM) return rc;
  if (rc < 0) g->c->count.kernels -= w->k;
  limn_error_clear(g->c);
  replay_rest(g, w->r);
  return 0;
}

/* Whether this run may be a replay. */
static bool replay_awake(limn_gpu_replay *r) {
  if (!r || r->off) return false;
  if (r->rest == 0) return true;
  r->rest--;
  return false;
}

static limn_gpu_code *replay_home(const limn_step *s, uint32_t n) {
  uint32_t i;
  for (i = 0; i < n; i++)
    if (s[i].code) return s[i].code;
  return NULL;
}

static int replay_without(limn_device *d, const limn_step *s, uint32_t n,
                          const limn_bind *b, uint32_t *failed) {
  uint32_t i;
  for (i = 0; i < n; i++) {
    *failed = i;
    if (!limn_step_idle(&s[i], b->slot))
      LIMN_TRY(limn_gpu_launch_step(d, &s[i], b));
  }
  return 0;
}

int limn_gpu_launch_all(limn_device *d, const limn_step *s, uint32_t n,
                        const limn_bind *b, uint32_t *failed) {
  limn_gpu *g = d->impl;
  limn_gpu_code *home = g->replays ? replay_home(s, n) : NULL;
  replay_walk w = {d, g, home ? home->replay : NULL, s, n, b, false, false, 0};
  int rc = 0;
  *failed = n;
  if (replay_awake(w.r)) {
    w.r->s = s, w.r->steps = n;
    w.r->busy = true;
    rc = replay_run(&w);
    w.r->busy = false;
  }
  if (rc != 0) return rc < 0 ? rc : 0;
  LIMN_TRY(replay_without(d, s, n, b, failed));
  if (w.r || !home) return 0;
  if (replay_new(g, &home->replay) < 0)
    limn_error_clear(g->c); /* the next run may try again */
  else
    home->replay->off = !replay_fits(s, n);
  return 0;
}
