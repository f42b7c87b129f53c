/* Launching prepared steps on a GPU: one by one, or recorded once and then
 * replayed as one launch.
 *
 * A replay stands for the steps of a plan between two that need the host. The
 * first run starts them one by one, the second is recorded, later ones replay:
 * kernels whose pointers or numbers differ from the last run's are given the
 * new ones. The vendor's products take none, so that other operands there
 * cost a new recording; where that happens often the replay is given up. */
#include "gpu.h"

/* -- What a launch reads --------------------------------------------------- */

/* The bits in which a kernel reads a number operand of dtype: rounded or
 * wrapped to it, then its computing type. */
static int64_t launch_imm_bits(int dtype, const limn_imm *m) {
  int64_t bits = 0, item = 0;
  float f;
  double v;
  if (!limn_dtype_float(dtype)) {
    if (dtype == LIMN_BOOL) return m->f != 0;
    if (dtype == LIMN_I32) /* beyond its range: the nearest */
      limn_store_real(dtype, &item, (double)m->i);
    else
      limn_store_int(dtype, &item, m->i);
    return limn_load_int(dtype, &item);
  }
  limn_store_real(dtype, &item, m->f);
  v = limn_load_real(dtype, &item);
  f = (float)v;
  if (dtype == LIMN_F64)
    memcpy(&bits, &v, sizeof v);
  else
    memcpy(&bits, &f, sizeof f);
  return bits;
}

/* The launch's numbers with those of this run put in. */
static void launch_patch(const limn_gpu_args *a, const limn_bind *b,
                      int64_t *num) {
  uint32_t i;
  memcpy(num, a->num, a->nnum * sizeof *num);
  for (i = 0; i < a->npatch; i++) {
    const limn_gpu_patch *p = &a->patch[i];
    int64_t *n = &num[p->at];
    switch (p->kind) {
    case LIMN_GPU_OFFSET:
      *n += b->slot[p->arg].off / limn_dtype_size(p->dtype);
      break;
    case LIMN_GPU_IMM:
      *n = launch_imm_bits(p->dtype, &b->imm[p->arg]);
      break;
    case LIMN_GPU_SEED:
      *n = (int64_t)b->draw[p->arg].seed;
      break;
    case LIMN_GPU_DRAW:
      *n = (int64_t)b->draw[p->arg].draw;
      break;
    case LIMN_GPU_SERIAL:
      *n = (int64_t)b->serial;
      break;
    case LIMN_GPU_SITE:
      if (b->site) *n = b->site;
      break;
    }
  }
}

#define LAUNCH_NUMS 640 /* more than any kernel has */

typedef struct {
  void *mem[LIMN_GPU_MEMS];
  int64_t num[LAUNCH_NUMS];
} launch_args;

static int launch_read(limn_gpu *g, const limn_gpu_launch *l,
                       const limn_bind *b, void *const temp[2],
                       launch_args *a) {
  uint32_t i;
  if (l->args.nnum > LAUNCH_NUMS)
    return limn_fail(g->c, LIMN_EUNSUPPORTED, "a kernel with %u numbers",
                     l->args.nnum);
  for (i = 0; i < l->args.nmem; i++) {
    const limn_gpu_mem *m = &l->args.mem[i];
    a->mem[i] = m->kind == LIMN_GPU_SLOT   ? b->slot[m->at].mem
                : m->kind == LIMN_GPU_TEMP ? temp[m->at]
                                           : g->fault;
    if (m->kind == LIMN_GPU_FAULT) g->fault_dirty = true;
  }
  launch_patch(&l->args, b, a->num);
  return 0;
}

static int launch_start(limn_gpu *g, const limn_gpu_launch *l,
                        const launch_args *a) {
  g->c->count.kernels++;
  return l->gemm ? g->drv->gemm(g, l->gemm, a->mem, a->num)
                 : g->drv->start(g, l, a->mem, a->num);
}

/* -- One by one ------------------------------------------------------------ */

int limn_gpu_launch_step(limn_device *d, const limn_step *s,
                         const limn_bind *b) {
  limn_gpu *g = d->impl;
  const limn_gpu_code *code = s->code;
  const limn_gpu_launch *l;
  launch_args a;
  void *temp[2] = {NULL, NULL};
  int rc = 0, i;
  if (!code) return 0;
  LIMN_TRY(limn_gpu_fault_memory(g));
  for (i = 0; i < 2; i++) {
    temp[i] = code->kept[i];
    if (code->temp[i] && !temp[i])
      LIMN_GO(limn_gpu_take(g, code->temp[i], &temp[i]));
  }
  for (l = code->first; l; l = l->next) {
    LIMN_GO(launch_read(g, l, b, temp, &a));
    LIMN_GO(launch_start(g, l, &a));
  }
bail:
  for (i = 0; i < 2; i++)
    if (temp[i] && !code->kept[i]) limn_gpu_give(g, temp[i], code->temp[i]);
  return rc;
}

static int launch_each(limn_device *d, const limn_step *s, uint32_t n,
                       const limn_bind *b, uint32_t *failed) {
  uint32_t i;
  for (i = 0; i < n; i++) {
    *failed = i;
    if (!limn_step_idle(&s[i], b->slot))
      LIMN_TRY(limn_gpu_launch_step(d, &s[i], b));
  }
  return 0;
}

/* -- Replays --------------------------------------------------------------- */

typedef struct {
  const limn_gpu_launch *l;
  void *node;  /* in the replay; NULL: the vendor's, which stays as it is */
  void *fresh; /* in what was recorded last */
  uint32_t at; /* of its words: pointers, then numbers, of the last run */
} replay_launch;

typedef struct limn_gpu_replay {
  void *made; /* the driver's; NULL: not recorded yet */
  replay_launch *l;
  int64_t *word;
  uint32_t n, cap, nword, word_cap;
  int cost; /* rises with every new recording, falls with every replay */
  bool off; /* given up */
} limn_gpu_replay;

enum { REPLAY_AGAIN = 4, REPLAY_MOST = 16 }; /* of cost */

static limn_gpu_code *replay_home(const limn_step *s, uint32_t n) {
  uint32_t i;
  for (i = 0; i < n; i++)
    if (s[i].code) return s[i].code;
  return NULL;
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
      if (!l->gemm && limn_gpu_table(&l->args)) return false;
    }
  }
  return launches > 1;
}

static void replay_drop(limn_gpu *g, limn_gpu_replay *r) {
  if (r->made) g->drv->unreplay(g, r->made);
  r->made = NULL;
  r->n = r->nword = 0;
}

void limn_gpu_forget(limn_gpu *g, limn_gpu_code *code) {
  limn_gpu_replay *r = code->replay;
  int i;
  if (r) {
    replay_drop(g, r);
    limn_free(g->c, r->l, r->cap * sizeof *r->l);
    limn_free(g->c, r->word, r->word_cap * sizeof *r->word);
    limn_free(g->c, r, sizeof *r);
  }
  code->replay = NULL;
  for (i = 0; i < 2; i++)
    if (code->kept[i]) limn_gpu_give(g, code->kept[i], code->temp[i]);
}

/* The words of launch k, as pointers and numbers of `a`. */
static bool replay_same(const limn_gpu_replay *r, uint32_t k,
                        const launch_args *a) {
  const limn_gpu_args *args = &r->l[k].l->args;
  const int64_t *w = r->word + r->l[k].at;
  uint32_t i;
  for (i = 0; i < args->nmem; i++)
    if (w[i] != (int64_t)(intptr_t)a->mem[i]) return false;
  return !memcmp(w + args->nmem, a->num, args->nnum * sizeof *w);
}

static void replay_note(limn_gpu_replay *r, uint32_t k, const launch_args *a) {
  const limn_gpu_args *args = &r->l[k].l->args;
  int64_t *w = r->word + r->l[k].at;
  uint32_t i;
  for (i = 0; i < args->nmem; i++) w[i] = (int64_t)(intptr_t)a->mem[i];
  memcpy(w + args->nmem, a->num, args->nnum * sizeof *w);
}

/* Launch l was recorded with `a`. */
static int replay_add(limn_gpu *g, limn_gpu_replay *r, const limn_gpu_launch *l,
                      const launch_args *a) {
  uint32_t k = r->n, words = l->args.nmem + l->args.nnum;
  LIMN_TRY(limn_grow(g->c, &r->l, &r->cap, k + 1, sizeof *r->l));
  LIMN_TRY(limn_grow(g->c, &r->word, &r->word_cap, r->nword + words,
                     sizeof *r->word));
  r->l[k].l = l;
  r->l[k].fresh = NULL;
  r->l[k].at = r->nword;
  r->nword += words;
  r->n++;
  replay_note(r, k, a);
  return l->gemm ? 0 : g->drv->node(g, &r->l[k].fresh);
}

/* Temporaries stay with what is recorded: it would not know others. */
static int replay_keep(limn_gpu *g, const limn_step *s, uint32_t n) {
  uint32_t i;
  int k;
  LIMN_TRY(limn_gpu_fault_memory(g));
  for (i = 0; i < n; i++) {
    limn_gpu_code *code = s[i].code;
    for (k = 0; code && k < 2; k++)
      if (code->temp[k] && !code->kept[k])
        LIMN_TRY(limn_gpu_take(g, code->temp[k], &code->kept[k]));
  }
  return 0;
}

static int replay_note_all(limn_gpu *g, limn_gpu_replay *r, const limn_step *s,
                           uint32_t n, const limn_bind *b) {
  const limn_gpu_launch *l;
  launch_args a;
  uint32_t i;
  for (i = 0; i < n; i++) {
    const limn_gpu_code *code = s[i].code;
    if (!code || limn_step_idle(&s[i], b->slot)) continue;
    for (l = code->first; l; l = l->next) {
      LIMN_TRY(launch_read(g, l, b, code->kept, &a));
      LIMN_TRY(launch_start(g, l, &a));
      LIMN_TRY(replay_add(g, r, l, &a));
    }
  }
  return 0;
}

/* A replay that is there takes over what differs where it can, and then keeps
 * its nodes. */
static int replay_record(limn_gpu *g, limn_gpu_replay *r, const limn_step *s,
                         uint32_t n, const limn_bind *b) {
  int rc, end;
  uint32_t k;
  r->n = r->nword = 0;
  LIMN_TRY(replay_keep(g, s, n));
  LIMN_TRY(g->drv->record(g));
  g->c->count.records++;
  rc = replay_note_all(g, r, s, n, b);
  end = g->drv->recorded(g, rc < 0 ? NULL : &r->made);
  if (rc < 0 || end < 0) return rc < 0 ? rc : end;
  for (k = 0; k < r->n && end == 0; k++) r->l[k].node = r->l[k].fresh;
  return 0;
}

/* 1: bound to what this run reads; 0: it has to be recorded anew. */
static int replay_bind(limn_gpu *g, limn_gpu_replay *r, const limn_step *s,
                       uint32_t n, const limn_bind *b) {
  const limn_gpu_launch *l;
  launch_args a;
  uint32_t i, k = 0;
  for (i = 0; i < n; i++) {
    const limn_gpu_code *code = s[i].code;
    if (!code || limn_step_idle(&s[i], b->slot)) continue;
    for (l = code->first; l; l = l->next, k++) {
      if (k == r->n || r->l[k].l != l) {
        replay_drop(g, r);
        return 0;
      }
      LIMN_TRY(launch_read(g, l, b, code->kept, &a));
      if (replay_same(r, k, &a)) continue;
      if (!r->l[k].node) return 0;
      LIMN_TRY(g->drv->rebind(g, r->made, r->l[k].node, l, a.mem, a.num));
      replay_note(r, k, &a);
    }
  }
  g->c->count.kernels += k;
  if (k == r->n) return 1;
  replay_drop(g, r);
  return 0;
}

/* 1: all has been launched; 0: nothing has, and it must be one by one. What
 * fails while recording is tried without, where it may fail in its place. */
static int replay_run(limn_gpu *g, limn_gpu_replay *r, const limn_step *s,
                      uint32_t n, const limn_bind *b) {
  int bound = r->made ? replay_bind(g, r, s, n, b) : 0;
  if (bound > 0) {
    r->cost -= r->cost > 0;
  } else if (bound == 0 && r->cost < REPLAY_MOST) {
    r->cost += REPLAY_AGAIN;
    bound = replay_record(g, r, s, n, b) < 0 ? -1 : 1;
  }
  if (bound > 0) {
    g->c->count.replays++;
    return g->drv->replay(g, r->made) < 0 ? LIMN_EDEVICE : 1;
  }
  limn_error_clear(g->c);
  replay_drop(g, r);
  r->off = true;
  return 0;
}

int limn_gpu_launch_all(limn_device *d, const limn_step *s, uint32_t n,
                        const limn_bind *b, uint32_t *failed) {
  limn_gpu *g = d->impl;
  limn_gpu_code *home = g->replays ? replay_home(s, n) : NULL;
  limn_gpu_replay *r = home ? home->replay : NULL;
  int rc = 0;
  *failed = 0;
  if (r && !r->off) rc = replay_run(g, r, s, n, b);
  if (rc != 0) return rc < 0 ? rc : 0;
  LIMN_TRY(launch_each(d, s, n, b, failed));
  if (r || !home) return 0;
  home->replay = limn_alloc(g->c, sizeof *home->replay);
  if (!home->replay) limn_error_clear(g->c); /* the next run may try again */
  else home->replay->off = !replay_fits(s, n);
  return 0;
}
