/* batch_norm_stats and batch_norm_sums on the CPU: two numbers per channel of
 * [rows, channels, size], in one pass over memory.
 *
 * 1. Elements come in chunks that fit the L1 cache. Each has a mean and a sum
 *    of squares from there, found in two passes; those of chunks are joined in
 *    double (Chan, Golub and LeVeque 1979). Nothing cancels.
 * 2. Where a channel's elements are together in long rows, a chunk is some of
 *    its rows, or a piece of one.
 * 3. Else a chunk is some rows of several channels, whose elements are columns
 *    next to each other, each with numbers of its own until the end. Narrow
 *    rows are taken several at a time, as one.
 * 4. What is cut into which chunks and parts follows from the shape. */
#include <math.h>

#include "cpu_kernels.h"

enum {
  CHUNK = 4096,  /* elements, at most */
  LONG = 128,    /* elements of a row that are worth a loop of their own */
  PART = 65536,  /* elements of a part, at least */
  FEW = 16       /* tiles that are enough */
};

typedef struct {
  double n, a, b; /* how many; mean and squares, or sum(g d) and sum(g) */
} batch_acc;

typedef struct {
  const limn_cpu_batch *loops;
  const limn_cpu_loops *convert;
  bool stats, wide; /* wide: a chunk is columns of several channels */
  int dtype, size;  /* of x and g, and bytes of what it is computed in */
  int64_t rows, channels, inner;
  int64_t joined;   /* wide: rows taken as one; their number is `rows` */
  int64_t rest;     /* and rows after the last of those */
  int64_t some;     /* rows of a chunk */
  int64_t pieces;   /* of a row: chunks, when a row is more than one */
  int64_t group;    /* wide: channels of a block; else 1 */
  int64_t chunks, blocks, parts;
  size_t ahead;
  batch_acc *partial; /* [parts][channels] */
  int64_t done;       /* tiles, atomic */
} batch_code;

/* -- Joining -- */

static void batch_meet(const batch_code *k, batch_acc *to,
                       const batch_acc *from) {
  double n = to->n + from->n, d = from->a - to->a;
  if (from->n == 0) return;
  if (!k->stats) {
    to->a += from->a;
    to->b += from->b;
  } else if (to->n == 0) {
    to->a = from->a;
    to->b = from->b;
  } else {
    to->a += d * (from->n / n);
    to->b += from->b + d * d * (to->n * from->n / n);
  }
  to->n = n;
}

/* The same of m columns with n elements each, to columns that have `had`. */
static void batch_meet_all(const batch_code *k, double had, double n,
                           const double *a, const double *b, int64_t m,
                           double *to_a, double *to_b) {
  double part = n / (had + n), both = had * part;
  for (int64_t j = 0; j < m; j++) {
    double d = a[j] - to_a[j];
    to_a[j] += k->stats ? d * part : a[j];
    to_b[j] += k->stats ? b[j] + d * d * both : b[j];
  }
}

/* -- Chunks -- */

typedef struct {
  const batch_code *k;
  const char *x, *g;
  const char *mean; /* of all channels, or NULL; float or double as computed */
  float xbuf[CHUNK], gbuf[CHUNK];
} batch_run;

static double batch_mean(const batch_run *r, int64_t c) {
  const void *p = r->mean;
  return r->k->size == 8 ? ((const double *)p)[c]
                         : (double)((const float *)p)[c];
}

/* rows x n elements from number `at` on, `step` apart: where they are, or
 * converted. */
static const void *batch_read(const batch_run *r, const char *p, int64_t at,
                              int64_t *step, int64_t rows, int64_t n,
                              float *buf) {
  int64_t size = limn_dtype_size(r->k->dtype);
  p += at * size;
  if (size == r->k->size) return p;
  for (int64_t i = 0; i < rows; i++)
    r->k->convert->load[CPU_F32](r->k->dtype, p + i * *step * size, 1, n,
                                 buf + i * n);
  *step = n;
  return buf;
}

/* Chunk i of channel c. */
static void batch_row(batch_run *r, int64_t c, int64_t i, batch_acc *acc) {
  const batch_code *k = r->k;
  int64_t row = i / k->pieces * k->some, piece = i % k->pieces * CHUNK;
  int64_t rows = LIMN_MIN(k->some, k->rows - row), n = k->inner - piece;
  int64_t at = (row * k->channels + c) * k->inner + piece;
  int64_t step = k->channels * k->inner, gstep = step;
  double two[2] = {0, 0};
  const void *x, *g;
  batch_acc one = {0, 0, 0};
  if (k->pieces > 1) n = LIMN_MIN(n, CHUNK);
  x = batch_read(r, r->x, at, &step, rows, n, r->xbuf);
  if (k->stats) {
    k->loops->moments(x, step, rows, n, k->ahead, two);
  } else {
    g = batch_read(r, r->g, at, &gstep, rows, n, r->gbuf);
    k->loops->cross(x, g, step, rows, n, batch_mean(r, c), k->ahead,
                    two);
  }
  one.n = (double)(rows * n), one.a = two[0], one.b = two[1];
  batch_meet(k, acc, &one);
}

/* What w columns of n elements each have gives the channels from acc on; a
 * channel's columns lie together, `inner` of them, in each joined row. */
static void batch_fold(const batch_code *k, const double *a, const double *b,
                       double n, int64_t w, batch_acc *acc) {
  int64_t each = k->group * k->inner, many = (w + each - 1) / each, i, j;
  int64_t channels = LIMN_MIN(w / k->inner, k->group);
  double columns = (double)(many * k->inner);
  for (int64_t c = 0; c < channels; c++) {
    batch_acc one = {n * columns, 0, 0};
    for (i = c * k->inner; i < w; i += each)
      for (j = i; j < i + k->inner; j++) one.a += a[j], one.b += b[j];
    if (k->stats) one.a /= columns;
    for (i = c * k->inner; k->stats && i < w; i += each)
      for (j = i; j < i + k->inner; j++)
        one.b += n * (a[j] - one.a) * (a[j] - one.a);
    batch_meet(k, &acc[c], &one);
  }
}

/* The means of w columns, which begin with channel c, in the same order. */
static void batch_means(const batch_run *r, int64_t c, int64_t w,
                        double *mean) {
  const batch_code *k = r->k;
  for (int64_t j = 0, i = 0; j < w; i++, i = i < k->group ? i : 0)
    for (int64_t end = j + k->inner; j < end; j++)
      mean[j] = batch_mean(r, c + i);
}

/* Rows [row, end) of w columns from number `at` on, which begin with channel c;
 * adds to acc, which does so too. */
static void batch_columns(batch_run *r, int64_t at, int64_t step, int64_t row,
                          int64_t end, int64_t w, int64_t c, batch_acc *acc) {
  const batch_code *k = r->k;
  double a[BATCH_COLUMNS], b[BATCH_COLUMNS], had = 0;
  double one[BATCH_COLUMNS], two[BATCH_COLUMNS], mean[BATCH_COLUMNS];
  int64_t rows;
  memset(a, 0, (size_t)w * sizeof *a);
  memset(b, 0, (size_t)w * sizeof *b);
  if (!k->stats) batch_means(r, c, w, mean);
  for (; row < end; row += rows) {
    int64_t xs = step, gs = step;
    const void *x, *g;
    rows = LIMN_MIN(k->some, end - row);
    x = batch_read(r, r->x, at + row * step, &xs, rows, w, r->xbuf);
    if (k->stats) {
      k->loops->columns(x, xs, rows, w, k->ahead, one, two);
    } else {
      g = batch_read(r, r->g, at + row * step, &gs, rows, w, r->gbuf);
      k->loops->crosses(x, g, xs, rows, w, mean, k->ahead, one, two);
    }
    batch_meet_all(k, had, (double)rows, one, two, w, a, b);
    had += (double)rows;
  }
  batch_fold(k, a, b, had, w, acc);
}

/* -- Tiles -- */

/* Chunks [i, end) of block `block` of channels into acc. */
static void batch_block(batch_run *r, int64_t block, int64_t i, int64_t end,
                        batch_acc *acc) {
  const batch_code *k = r->k;
  int64_t c = block * k->group, w, step, last = end == k->chunks;
  if (!k->wide) {
    for (; i < end; i++) batch_row(r, c, i, acc);
    return;
  }
  step = k->channels * k->inner;
  w = LIMN_MIN(k->group, k->channels - c) * k->inner;
  batch_columns(r, c * k->inner, step * k->joined, i * k->some,
                LIMN_MIN(end * k->some, k->rows), w * k->joined, c, acc);
  if (last && k->rest)
    batch_columns(r, k->rows * k->joined * step, step, 0, k->rest, w, c, acc);
}

/* All parts are there: they meet in their order. */
static void batch_end(const batch_code *k, const limn_step *s,
                      const limn_bind *b) {
  char *out = limn_cpu_at(b, &s->out[0]);
  double *d = (double *)(void *)out;
  float *f = (float *)(void *)out;
  for (int64_t c = 0; c < k->channels; c++) {
    batch_acc all = {0, 0, 0};
    for (int64_t p = 0; p < k->parts; p++)
      batch_meet(k, &all, &k->partial[p * k->channels + c]);
    if (k->stats && all.n == 0) all.a = all.b = NAN;
    if (k->stats && all.n > 0) all.b /= all.n;
    if (s->out[0].dtype == LIMN_F64)
      d[c] = all.a, d[k->channels + c] = all.b;
    else
      f[c] = (float)all.a, f[k->channels + c] = (float)all.b;
  }
}

/* A tile is a part of a block. */
static void batch_step_run(const limn_step *s, const limn_bind *b, int64_t t0,
                           int64_t t1) {
  batch_code *k = s->code;
  batch_run r;
  r.k = k;
  r.x = limn_cpu_at(b, &s->in[0]);
  r.g = k->stats ? NULL : limn_cpu_at(b, &s->in[1]);
  r.mean = k->stats ? NULL : limn_cpu_at(b, &s->in[2]);
  for (int64_t t = t0; t < t1; t++) {
    int64_t p = t % k->parts, block = t / k->parts;
    batch_acc *acc = k->partial + p * k->channels + block * k->group;
    memset(acc, 0, (size_t)LIMN_MIN(k->group, k->channels - block * k->group) *
                       sizeof *acc);
    batch_block(&r, block, k->chunks * p / k->parts,
                k->chunks * (p + 1) / k->parts, acc);
  }
  if (__atomic_add_fetch(&k->done, t1 - t0, __ATOMIC_ACQ_REL) != s->ntiles)
    return;
  __atomic_store_n(&k->done, 0, __ATOMIC_RELAXED);
  batch_end(k, s, b);
}

/* -- Preparing -- */

static void batch_cut(batch_code *k) {
  int64_t across = k->channels * k->inner, all = k->rows * across;
  k->wide = k->inner < LONG;
  k->joined = k->pieces = k->group = 1;
  if (!k->wide) {
    k->pieces = (k->inner + CHUNK - 1) / CHUNK;
    k->some = LIMN_MAX(CHUNK / k->inner, 1);
    k->chunks = (k->rows + k->some - 1) / k->some * k->pieces;
  } else {
    k->group = LIMN_MIN(BATCH_COLUMNS / k->inner, k->channels);
    if (across <= BATCH_COLUMNS / 2)
      k->joined = LIMN_MAX(LIMN_MIN(BATCH_COLUMNS / across, k->rows), 1);
    k->rest = k->rows % k->joined;
    k->rows /= k->joined;
    k->some = CHUNK / (k->group * k->inner * k->joined);
    k->chunks = (k->rows + k->some - 1) / k->some;
  }
  k->blocks = (k->channels + k->group - 1) / k->group;
  k->parts = LIMN_MIN(all / k->blocks / PART,
                      (FEW + k->blocks - 1) / k->blocks);
  k->parts = LIMN_MAX(LIMN_MIN(k->parts, k->chunks), 1);
  if (all * k->size * (k->stats ? 1 : 2) >= LIMN_CPU_LARGE)
    k->ahead = (size_t)((k->pieces > 1 ? CHUNK
                                       : k->some * across * k->joined) *
                        k->size);
}

int limn_cpu_batch_prepare(limn_device *d, limn_step *s) {
  const limn_view *v = &s->in[0].v;
  limn_context *c = d->c;
  batch_code *k = limn_alloc(c, sizeof *k);
  if (!k) return LIMN_EMEM;
  s->code = k;
  k->convert = limn_cpu_of(d)->loops;
  k->stats = s->op == OP_batch_norm_stats;
  k->dtype = s->in[0].dtype;
  k->size = k->dtype == LIMN_F64 ? 8 : 4;
  k->loops = &k->convert->batch[k->dtype == LIMN_F64];
  k->rows = v->d[0], k->channels = v->d[1], k->inner = v->d[2];
  s->cost_ns = (double)(k->rows * k->channels) * (double)k->inner * 0.1 *
               (k->stats ? 1 : 2);
  if (k->inner == 0) k->rows = 0, k->inner = 1; /* nothing, all the same */
  batch_cut(k);
  if (k->dtype != LIMN_F32 && k->dtype != LIMN_F64) k->ahead = 0;
  k->partial = limn_alloc(c, (size_t)(k->parts * k->channels) *
                                 sizeof *k->partial);
  if (!k->partial) {
    limn_free(c, k, sizeof *k);
    s->code = NULL;
    return LIMN_EMEM;
  }
  s->run = batch_step_run;
  s->ntiles = k->blocks * k->parts;
  return 0;
}

void limn_cpu_batch_discard(limn_device *d, limn_step *s) {
  batch_code *k = s->code;
  if (!k) return;
  limn_free(d->c, k->partial, (size_t)(k->parts * k->channels) *
                                  sizeof *k->partial);
  limn_free(d->c, k, sizeof *k);
}
