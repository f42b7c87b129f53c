/* Reductions on the CPU: sum prod max min any all over any dims and strides.
 *
 * The space [kept..., reduced...] is walked in runs along its densest dim. If
 * that is a reduced dim, runs are folded to single values ("along": row
 * sums); if it is a kept one, runs are added to each other as rows of
 * accumulators ("across": column sums). Partial results of at most some
 * thousand elements widen to double, so the error of long float32 sums does
 * not grow with their length. What is cut into which pieces depends on shapes
 * and strides only, never on threads. */
#include "cpu_kernels.h"

enum {
  RUN = 1024,          /* elements of a run that is computed or converted */
  TILE = 65536,        /* elements of a tile, roughly */
  FLUSH = 64,          /* rows that gather in T before they widen */
  WIDE = 256,          /* rows narrower than this are joined to about that */
  FEW = 16             /* blocks of outputs from which they are tiles enough */
};

typedef struct {
  const limn_cpu_loops *loops;
  const limn_cpu_fold *fold; /* over T */
  const limn_cpu_fold *meet; /* over wide values */
  int T, size;               /* CPU_F32 ... and its bytes */
  bool test;                 /* any, all: elements count as 0 or 1 */
  int dtype, esize;          /* of what is read: input, or group result */
  bool direct;               /* that is T already */
  limn_cpu_prog *prog;       /* or NULL */
  int nin;
  bool across;
  /* Dims, outermost first: nk kept, then nr reduced; both at least 1. */
  int nk, nr;
  int64_t d[LIMN_MAXDIM + 2], stride[LIMN_STEP_IN][LIMN_MAXDIM + 2];
  int64_t to[LIMN_MAXDIM + 2]; /* strides of out for kept dims */
  int64_t nout, nred;
  int64_t join;   /* across: rows taken as one when they are consecutive */
  int64_t flat;   /* along: rows of one run, when they are consecutive */
  int64_t width;  /* across: outputs per block; along: outputs per tile */
  int64_t blocks, parts, per; /* per: reduced positions per part */
  double *partial;            /* [parts][nout] of wide values, or NULL */
  int64_t done;               /* tiles finished, atomic */
} cpu_reduce;

/* -- reading -- */

typedef struct {
  const cpu_reduce *k;
  const limn_bind *b;
  const char *base[LIMN_STEP_IN];
  int64_t esize[LIMN_STEP_IN];
} reduce_source;

static void reduce_open(const cpu_reduce *k, const limn_step *s,
                        const limn_bind *b, reduce_source *src) {
  int i;
  src->k = k;
  src->b = b;
  for (i = 0; i < k->nin; i++) {
    src->base[i] = limn_cpu_at(b, &s->in[i]);
    src->esize[i] = limn_dtype_size(s->in[i].dtype);
  }
}

/* n elements from element offsets at[] along dim `dim`, as T: where they are,
 * or computed or converted into buf. */
static const void *reduce_read(const reduce_source *src, const int64_t *at,
                               int dim, int64_t n, int64_t first, void *buf) {
  const cpu_reduce *k = src->k;
  const void *p = src->base[0] + at[0] * src->esize[0], *in[LIMN_STEP_IN];
  int64_t step = k->stride[0][dim], stride[LIMN_STEP_IN];
  double raw[RUN];
  void *out = k->direct ? buf : raw;
  int i;
  if (k->prog) {
    for (i = 0; i < k->nin; i++) {
      in[i] = src->base[i] + at[i] * src->esize[i];
      stride[i] = k->stride[i][dim];
    }
    limn_cpu_prog_run(k->prog, src->b, in, stride, &out, n, first);
    p = out;
    step = 1;
  }
  if (k->direct && step == 1) return p;
  if (k->test) k->loops->test(k->dtype, p, step, n, buf);
  else k->loops->load[k->T](k->dtype, p, step, n, buf);
  return buf;
}

/* A position in some of the dims: index per dim, offset per input. */
typedef struct {
  int lo, hi; /* dims [lo, hi) */
  int64_t i[LIMN_MAXDIM + 2], at[LIMN_STEP_IN];
} reduce_pos;

static void reduce_seek(const cpu_reduce *k, reduce_pos *p, int lo, int hi,
                        int64_t linear) {
  int d, i;
  p->lo = lo, p->hi = hi;
  memset(p->at, 0, sizeof p->at);
  for (d = hi - 1; d >= lo; d--) {
    int64_t n = k->d[d];
    p->i[d] = n ? linear % n : 0;
    linear = n ? linear / n : 0;
    for (i = 0; i < k->nin; i++) p->at[i] += p->i[d] * k->stride[i][d];
  }
}

/* On by n along the last dim, which then may carry. */
static void reduce_step(const cpu_reduce *k, reduce_pos *p, int64_t n) {
  int d = p->hi - 1, i;
  p->i[d] += n;
  for (i = 0; i < k->nin; i++) p->at[i] += n * k->stride[i][d];
  while (d > p->lo && p->i[d] >= k->d[d]) {
    for (i = 0; i < k->nin; i++)
      p->at[i] += k->stride[i][d - 1] - k->d[d] * k->stride[i][d];
    p->i[d] = 0;
    p->i[--d]++;
  }
}

static void reduce_join(const cpu_reduce *k, const reduce_pos *a,
                        const reduce_pos *b, int64_t *at) {
  int i;
  for (i = 0; i < k->nin; i++) at[i] = a->at[i] + b->at[i];
}

/* -- folding -- */

/* One output: reduced positions [r0, r1) into *wide. `o` is its number. */
static void reduce_along(const reduce_source *src, const reduce_pos *kept,
                         int64_t o, int64_t r0, int64_t r1, void *wide) {
  const cpu_reduce *k = src->k;
  int last = k->nk + k->nr - 1;
  bool plain = k->direct && !k->prog && k->stride[0][last] == 1;
  int64_t at[LIMN_STEP_IN], buf[RUN], r, n;
  reduce_pos red;
  reduce_seek(k, &red, k->nk, last + 1, r0);
  for (r = r0; r < r1; r += n) {
    n = LIMN_MIN(k->d[last] - red.i[last], r1 - r);
    if (!plain) n = LIMN_MIN(n, RUN);
    reduce_join(k, kept, &red, at);
    k->fold->each(reduce_read(src, at, last, n, o * k->nred + r, buf), 0, 1,
                  n, wide);
    reduce_step(k, &red, n);
  }
}

/* `rows` outputs side by side, whose elements follow each other. */
static void reduce_flat(const reduce_source *src, const reduce_pos *kept,
                        int64_t o, int64_t rows, void *wide) {
  const cpu_reduce *k = src->k;
  int64_t buf[RUN];
  const void *x = reduce_read(src, kept->at, k->nk + k->nr - 1,
                              rows * k->nred, o * k->nred, buf);
  k->fold->each(x, k->nred, rows, k->nred, wide);
}

/* Rows of n outputs each at the reduced positions [r0, r1), into wide[n]. */
static void reduce_across(const reduce_source *src, const reduce_pos *kept,
                          int64_t n, int64_t r0, int64_t r1, void *wide) {
  const cpu_reduce *k = src->k;
  int inner = k->nk - 1, last = k->nk + k->nr - 1;
  bool plain = k->direct && !k->prog && k->stride[0][inner] == 1;
  int64_t at[LIMN_STEP_IN], buf[RUN], acc[RUN], r, rows, held = 0;
  reduce_pos red;
  k->fold->clear(acc, n);
  reduce_seek(k, &red, k->nk, last + 1, r0);
  for (r = r0; r < r1; r += rows) {
    const void *x;
    rows = LIMN_MIN(k->d[last] - red.i[last], r1 - r);
    rows = plain ? LIMN_MIN(rows, FLUSH - held) : 1;
    reduce_join(k, kept, &red, at);
    x = reduce_read(src, at, inner, n, 0, buf);
    k->fold->rows(x, k->stride[0][last], rows, n, acc);
    if ((held += rows) == FLUSH) {
      k->fold->flush(acc, n, wide);
      k->fold->clear(acc, n);
      held = 0;
    }
    reduce_step(k, &red, rows);
  }
  k->fold->flush(acc, n, wide);
}

/* The same where rows follow each other: `join` of them are one wide row. */
static void reduce_joined(const reduce_source *src, const reduce_pos *kept,
                          int64_t n, int64_t r0, int64_t r1, void *wide) {
  const cpu_reduce *k = src->k;
  int last = k->nk + k->nr - 1;
  bool plain = k->direct && !k->prog && k->stride[0][k->nk - 1] == 1;
  int64_t most = n * k->join, all = (r1 - r0) * n, i = 0, some, g;
  int64_t at[LIMN_STEP_IN], buf[RUN], acc[RUN], sum[RUN], held = 0;
  reduce_pos red;
  k->fold->clear(acc, most);
  k->fold->clear_wide(sum, most);
  reduce_seek(k, &red, k->nk, last + 1, r0);
  for (; i < all; i += some) {
    const void *x;
    bool many = plain && all - i >= most;
    int64_t rows = many ? LIMN_MIN((all - i) / most, FLUSH - held) : 1;
    some = many ? rows * most : LIMN_MIN(most, all - i);
    reduce_join(k, kept, &red, at);
    x = reduce_read(src, at, k->nk - 1, LIMN_MIN(some, most), 0, buf);
    k->fold->rows(x, most, rows, LIMN_MIN(some, most), acc);
    if ((held += rows) == FLUSH) {
      k->fold->flush(acc, most, sum);
      k->fold->clear(acc, most);
      held = 0;
    }
    reduce_step(k, &red, some / n);
  }
  k->fold->flush(acc, most, sum);
  for (g = 0; g < k->join; g++) k->meet->flush(sum + g * n, n, wide);
}

/* -- tiles -- */

/* n wide values to out, from output number o on; `step` apart there. */
static void reduce_store(const cpu_reduce *k, const limn_step *s,
                         const limn_bind *b, int64_t at, int64_t step,
                         const void *wide, int64_t n) {
  int dtype = s->out[0].dtype;
  int64_t size = limn_dtype_size(dtype), i;
  char *p = limn_cpu_at(b, &s->out[0]) + at * size;
  const double *v = wide;
  if (k->test) { /* any of nothing is -inf, all of nothing inf */
    for (i = 0; i < n; i++) p[i * step] = v[i] > 0;
  } else if (dtype == LIMN_F32 && step == 1) {
    float *f = (float *)(void *)p;
    for (i = 0; i < n; i++) f[i] = (float)v[i];
  } else if (k->T == CPU_I64) {
    limn_store_ints(dtype, p, step * size, n, wide);
  } else {
    limn_store_reals(dtype, p, step * size, n, wide);
  }
}

/* Where output number o (over the kept dims in our order) lies. */
static int64_t reduce_place(const cpu_reduce *k, const reduce_pos *kept) {
  int64_t at = 0;
  int d;
  for (d = 0; d < k->nk; d++) at += kept->i[d] * k->to[d];
  return at;
}

/* Outputs [o0, o1), all in one row of the innermost kept dim, over the
 * reduced positions of part p. */
static void reduce_block(const reduce_source *src, const limn_step *s,
                         int64_t o, int64_t n, int64_t p) {
  const cpu_reduce *k = src->k;
  int64_t r0 = p * k->per, r1 = LIMN_MIN(r0 + k->per, k->nred), wide[RUN], i;
  reduce_pos kept;
  reduce_seek(k, &kept, 0, k->nk, o);
  i = reduce_place(k, &kept);
  k->meet->clear(wide, n);
  if (k->across && k->join > 1)
    reduce_joined(src, &kept, n, r0, r1, wide);
  else if (k->across)
    reduce_across(src, &kept, n, r0, r1, wide);
  else if (k->flat)
    reduce_flat(src, &kept, o, n, wide);
  else
    reduce_along(src, &kept, o, r0, r1, wide);
  if (k->parts == 1)
    reduce_store(k, s, src->b, i, k->to[k->nk - 1], wide, n);
  else
    memcpy(k->partial + p * k->nout + o, wide, (size_t)n * sizeof *wide);
}

/* All parts are there: they meet in their order. */
static void reduce_meet(const cpu_reduce *k, const limn_step *s,
                        const limn_bind *b) {
  int64_t wide[RUN], o, n, p;
  reduce_pos kept;
  for (o = 0; o < k->nout; o += n) {
    reduce_seek(k, &kept, 0, k->nk, o);
    n = LIMN_MIN(RUN, k->d[k->nk - 1] - kept.i[k->nk - 1]);
    k->meet->clear(wide, n);
    for (p = 0; p < k->parts; p++)
      k->meet->flush(k->partial + p * k->nout + o, n, wide);
    reduce_store(k, s, b, reduce_place(k, &kept), k->to[k->nk - 1], wide, n);
  }
}

/* Along, plain and dense: whole rows of outputs in one call. */
static void reduce_rows(const reduce_source *src, const limn_step *s,
                        int64_t o0, int64_t o1) {
  const cpu_reduce *k = src->k;
  int inner = k->nk - 1;
  int64_t wide[RUN], n, most = k->flat ? k->flat : 1;
  reduce_pos kept;
  bool plain = k->direct && !k->prog && k->nr == 1 &&
               k->stride[0][k->nk] == 1;
  if (plain) most = RUN;
  for (; o0 < o1; o0 += n) {
    reduce_seek(k, &kept, 0, k->nk, o0);
    n = LIMN_MIN(LIMN_MIN(o1 - o0, most), k->d[inner] - kept.i[inner]);
    if (!plain) {
      reduce_block(src, s, o0, n, 0);
      continue;
    }
    k->meet->clear(wide, n);
    k->fold->each(src->base[0] + kept.at[0] * src->esize[0],
                  k->stride[0][inner], n, k->nred, wide);
    reduce_store(k, s, src->b, reduce_place(k, &kept), k->to[inner], wide, n);
  }
}

/* A tile is a part of a block. */
static void reduce_run(const limn_step *s, const limn_bind *b, int64_t t0,
                       int64_t t1) {
  cpu_reduce *k = s->code;
  int64_t t, inner = k->d[k->nk - 1];
  int64_t row = (inner + k->width - 1) / k->width; /* blocks per row */
  reduce_source src;
  reduce_open(k, s, b, &src);
  for (t = t0; t < t1; t++) {
    int64_t block = t / k->parts, p = t % k->parts;
    if (k->across) {
      int64_t j = block % row * k->width;
      reduce_block(&src, s, block / row * inner + j,
                   LIMN_MIN(k->width, inner - j), p);
    } else if (k->parts > 1) {
      reduce_block(&src, s, block, 1, p);
    } else {
      reduce_rows(&src, s, block * k->width,
                  LIMN_MIN((block + 1) * k->width, k->nout));
    }
  }
  if (k->parts == 1) return;
  if (__atomic_add_fetch(&k->done, t1 - t0, __ATOMIC_ACQ_REL) != s->ntiles)
    return;
  __atomic_store_n(&k->done, 0, __ATOMIC_RELAXED);
  reduce_meet(k, s, b);
}

/* -- preparing -- */

/* A dim of 1 where there is none, so that each class has one. */
static void reduce_add_dim(cpu_reduce *k, int at) {
  int n = k->nk + k->nr, i, j;
  for (i = n; i > at; i--) {
    k->d[i] = k->d[i - 1];
    k->to[i] = k->to[i - 1];
    for (j = 0; j < k->nin; j++) k->stride[j][i] = k->stride[j][i - 1];
  }
  k->d[at] = 1;
  k->to[at] = 0;
  for (j = 0; j < k->nin; j++) k->stride[j][at] = 0;
}

static void reduce_drop_dim(cpu_reduce *k, int at) {
  int n = k->nk + k->nr, i, j;
  for (i = at; i < n - 1; i++) {
    k->d[i] = k->d[i + 1];
    k->to[i] = k->to[i + 1];
    for (j = 0; j < k->nin; j++) k->stride[j][i] = k->stride[j][i + 1];
  }
}

static void reduce_swap_dims(cpu_reduce *k, int a, int b) {
  int64_t t;
  int j;
  t = k->d[a], k->d[a] = k->d[b], k->d[b] = t;
  t = k->to[a], k->to[a] = k->to[b], k->to[b] = t;
  for (j = 0; j < k->nin; j++) {
    int64_t *s = k->stride[j];
    t = s[a], s[a] = s[b], s[b] = t;
  }
}

static int64_t reduce_size(int64_t x) { return x < 0 ? -x : x; }

/* How far apart neighbours along dim d are, over all inputs. */
static int64_t reduce_reach(const cpu_reduce *k, int d) {
  int64_t sum = 0;
  int j;
  for (j = 0; j < k->nin; j++) sum += reduce_size(k->stride[j][d]);
  return sum;
}

/* Densest dims last, among [lo, hi). */
static void reduce_sort(cpu_reduce *k, int lo, int hi) {
  int i, j;
  for (i = lo + 1; i < hi; i++)
    for (j = i; j > lo && reduce_reach(k, j - 1) < reduce_reach(k, j); j--)
      reduce_swap_dims(k, j - 1, j);
}

static bool reduce_merges(const cpu_reduce *k, int a) {
  int j;
  if (k->to[a] != k->to[a + 1] * k->d[a + 1]) return false;
  for (j = 0; j < k->nin; j++)
    if (k->stride[j][a] != k->stride[j][a + 1] * k->d[a + 1]) return false;
  return true;
}

/* Drop dims of 1 and merge neighbours among [lo, lo + *n). */
static void reduce_collapse(cpu_reduce *k, int lo, int *n) {
  int i;
  for (i = lo + *n - 1; i >= lo; i--)
    if (k->d[i] == 1) {
      reduce_drop_dim(k, i);
      --*n;
    }
  for (i = lo + *n - 2; i >= lo; i--)
    if (reduce_merges(k, i)) {
      k->d[i + 1] *= k->d[i];
      reduce_drop_dim(k, i);
      --*n;
    }
  if (*n == 0) {
    reduce_add_dim(k, lo);
    ++*n;
  }
}

static bool reduce_ordered(const limn_group *g) {
  int i;
  for (i = 0; g && i < g->ncode; i++)
    if (g->code[i].op < LIMN_NOP &&
        limn_op_get(g->code[i].op)->row == LIMN_ROW_G)
      return true;
  return false;
}

/* Elements of groups with generators must be computed in runs of consecutive
 * numbers: then dims keep their order and runs go along the last one. */
static void reduce_dims(cpu_reduce *k, const limn_step *s) {
  const limn_view *v = &s->in[0].v;
  bool ordered = reduce_ordered(s->group);
  int64_t to = 1;
  int d, j;
  k->nk = s->nkeep;
  k->nr = v->ndim - s->nkeep;
  memcpy(k->d, v->d, (size_t)v->ndim * sizeof *k->d);
  for (j = 0; j < k->nin; j++)
    memcpy(k->stride[j], s->in[j].v.s, (size_t)v->ndim * sizeof *k->d);
  for (d = k->nk - 1; d >= 0; d--) k->to[d] = to, to *= k->d[d];
  k->nout = limn_numel(k->nk, k->d);
  k->nred = limn_numel(k->nr, k->d + k->nk);
  if (!ordered) {
    reduce_sort(k, 0, k->nk);
    reduce_sort(k, k->nk, k->nk + k->nr);
  }
  reduce_collapse(k, k->nk, &k->nr);
  reduce_collapse(k, 0, &k->nk);
  /* A dense inner dim of few elements is no use when the other is long. */
  if (!ordered && k->d[k->nk - 1] > 1)
    k->across = k->d[k->nk + k->nr - 1] == 1 ||
                reduce_reach(k, k->nk - 1) < reduce_reach(k, k->nk + k->nr - 1);
}

/* Are neighbouring rows of the innermost dims a and b consecutive, so that a
 * run may go on from one to the next? */
static bool reduce_follows(const cpu_reduce *k, int a, int b) {
  int j;
  for (j = 0; j < k->nin; j++)
    if (k->stride[j][a] != k->stride[j][b] * k->d[b]) return false;
  return true;
}

static void reduce_cut(cpu_reduce *k) {
  int inner = k->nk - 1, last = k->nk + k->nr - 1;
  int64_t n = k->d[inner], few;
  k->parts = 1;
  k->per = k->nred;
  if (k->across) {
    k->width = LIMN_MIN(n, RUN);
    k->blocks = k->nout / n * ((n + k->width - 1) / k->width);
    if (n <= WIDE / 2 && k->d[last] > 1 && reduce_follows(k, last, inner) &&
        k->nr == 1)
      k->join = WIDE / n;
    few = LIMN_MAX(TILE / k->width, FLUSH) / FLUSH * FLUSH;
  } else {
    k->width = LIMN_MAX(1, TILE / LIMN_MAX(k->nred, 1));
    k->blocks = (k->nout + k->width - 1) / k->width;
    if (k->nr == 1 && k->nred > 0 && k->nred <= RUN / 2 &&
        reduce_follows(k, inner, last))
      k->flat = RUN / k->nred;
    few = TILE;
  }
  if (k->nout && k->blocks < FEW && k->nred >= 2 * few) {
    if (!k->across) k->width = 1, k->blocks = k->nout, k->flat = 0;
    k->parts = (k->nred + few - 1) / few;
    k->per = few;
  }
}

static int reduce_kind(int op) {
  switch (op) {
    case OP_sum: return CPU_SUM;
    case OP_prod: return CPU_PROD;
    case OP_max: case OP_peak: case OP_any: return CPU_MAX;
    default: return CPU_MIN;
  }
}

/* What an input, or the value that a group stores, is computed in. */
static void reduce_types(cpu_reduce *k, const limn_step *s) {
  int kind = reduce_kind(s->op), wide;
  k->test = s->op == OP_any || s->op == OP_all;
  k->esize = limn_dtype_size(k->dtype);
  if (k->test || k->dtype == LIMN_F32 || k->dtype == LIMN_F16 ||
      k->dtype == LIMN_BF16)
    k->T = CPU_F32;
  else
    k->T = k->dtype == LIMN_F64 ? CPU_F64 : CPU_I64;
  k->size = k->T == CPU_F32 ? 4 : 8;
  wide = k->T == CPU_F32 ? CPU_F64 : k->T;
  k->fold = &k->loops->fold[k->T][kind];
  k->meet = &k->loops->fold[wide][kind];
  k->direct = !k->test && (k->dtype == LIMN_F32 || k->dtype == LIMN_F64 ||
                           k->dtype == LIMN_I64);
}

static int reduce_group(limn_context *c, cpu_reduce *k, const limn_step *s) {
  uint8_t in[LIMN_STEP_IN], out = s->in[0].dtype;
  int i;
  k->dtype = s->in[0].dtype;
  if (!s->group) return 0;
  for (i = 0; i < s->nin; i++) in[i] = s->in[i].dtype;
  for (i = 0; i < s->group->ncode; i++)
    if (s->group->code[i].op == LIMN_I_STORE) out = s->group->code[i].dtype;
  k->dtype = out;
  return limn_cpu_prog_new(c, s->group, in, s->nin, &out, 1, &k->prog);
}

int limn_cpu_reduce_prepare(limn_device *d, limn_step *s) {
  limn_context *c = d->c;
  cpu_reduce *k = limn_alloc(c, sizeof *k);
  int rc = 0;
  if (!k) return LIMN_EMEM;
  s->code = k;
  k->loops = limn_cpu_of(d)->loops;
  k->nin = s->group ? s->nin : 1;
  LIMN_GO(reduce_group(c, k, s));
  reduce_types(k, s);
  reduce_dims(k, s);
  if (k->nout) reduce_cut(k);
  if (k->parts > 1) {
    k->partial = limn_alloc(c, (size_t)(k->parts * k->nout) * 8);
    if (!k->partial) LIMN_GO(LIMN_EMEM);
  }
  s->run = reduce_run;
  s->ntiles = k->nout ? k->blocks * k->parts : 0;
  s->cost_ns = (double)k->nout * (double)k->nred *
                   (k->prog ? 1.0 : 0.02 + 0.03 * k->esize) +
               2.0 * (double)k->nout;
  return 0;
bail:
  limn_cpu_reduce_discard(d, s);
  s->code = NULL;
  return rc;
}

void limn_cpu_reduce_discard(limn_device *d, limn_step *s) {
  cpu_reduce *k = s->code;
  if (!k) return;
  if (k->prog) limn_cpu_prog_free(d->c, k->prog);
  limn_free(d->c, k->partial, (size_t)(k->parts * k->nout) * 8);
  limn_free(d->c, k, sizeof *k);
}
