/* softmax, log_softmax and their gradients on the CPU: [outer, n, inner],
 * along n.
 *
 * Rows (inner = 1) are kept in L1 from pass to pass; else a block of columns
 * is walked row by row. float16 and bfloat16 are converted a piece at a time
 * and their exponentials taken twice, which needs no memory for a row. A row
 * of -inf alone, or with a NaN, gives NaN. */
#include <math.h>

#include "cpu_kernels.h"

enum { PIECE = 1024, COLUMNS = 256, TILE = 16384 };

typedef struct {
  const limn_cpu_loops *loops;
  int dtype;
  int64_t size, n, inner;
  bool log, back; /* back: the gradient, of a result y and its gradient g */
  size_t ahead, out_ahead; /* bytes that memory brings in early */
  size_t first, again; /* of x, when it is read first and when once more */
} row_kernel;

/* -- rows -- */

/* Piece number i of a row as floats: in place, or converted into buf. */
static const float *row_read(const row_kernel *k, const char *x, int64_t i,
                             int64_t n, float *buf) {
  const void *p = x + i * k->size;
  if (k->dtype == LIMN_F32) return p;
  k->loops->load[CPU_F32](k->dtype, p, 1, n, buf);
  return buf;
}

static void row_write(const row_kernel *k, const float *x, float m,
                      float total, char *out, int64_t n) {
  float buf[PIECE], *to = buf;
  bool half = k->dtype != LIMN_F32;
  if (!half) to = (float *)(void *)out;
  if (k->log) {
    k->loops->shift(x, m, logf(total), to, n);
  } else {
    k->loops->exp_row(x, m, to, n, 0, 0);
    k->loops->scale(to, 1 / total, n);
  }
  if (half) k->loops->store(k->dtype, out, to, n);
}

static void row_one(const row_kernel *k, const char *x, char *out) {
  float buf[PIECE], e[PIECE], m = -HUGE_VALF, total;
  double sum = 0;
  int64_t i, n;
  const float *p;
  for (i = 0; i < k->n; i += n) {
    float most;
    n = LIMN_MIN(PIECE, k->n - i);
    most = k->loops->peak(row_read(k, x, i, n, buf), n, k->first);
    m = LIMN_MAX(m, most);
  }
  /* Exponentials go straight to the result where they fit. */
  if (k->dtype == LIMN_F32 && !k->log) {
    float *to = (float *)(void *)out;
    total = k->loops->exp_row((const float *)(const void *)x, m, to, k->n,
                              k->again, k->out_ahead);
    k->loops->scale(to, 1 / total, k->n);
    return;
  }
  for (i = 0; i < k->n; i += n) {
    n = LIMN_MIN(PIECE, k->n - i);
    p = row_read(k, x, i, n, buf);
    sum += (double)k->loops->exp_row(p, m, e, n, k->again, 0);
  }
  for (i = 0; i < k->n; i += n) {
    n = LIMN_MIN(PIECE, k->n - i);
    p = row_read(k, x, i, n, buf);
    row_write(k, p, m, (float)sum, out + i * k->size, n);
  }
}

static void row_one_back(const row_kernel *k, const char *y, const char *g,
                         char *out) {
  float buf[PIECE], gbuf[PIECE], to[PIECE];
  double sum = 0;
  int64_t i, n;
  const float *p, *q;
  for (i = 0; i < k->n; i += n) {
    n = LIMN_MIN(PIECE, k->n - i);
    q = row_read(k, g, i, n, gbuf);
    if (k->log)
      k->loops->fold[CPU_F32][CPU_SUM].each(q, 0, 1, n, &sum);
    else
      sum += k->loops->dot(row_read(k, y, i, n, buf), q, n, k->ahead);
  }
  for (i = 0; i < k->n; i += n) {
    char *at = out + i * k->size;
    bool half = k->dtype != LIMN_F32;
    n = LIMN_MIN(PIECE, k->n - i);
    p = row_read(k, y, i, n, buf);
    q = row_read(k, g, i, n, gbuf);
    k->loops->row_back(p, q, (float)sum, k->log,
                       half ? to : (float *)(void *)at, n, k->out_ahead);
    if (half) k->loops->store(k->dtype, at, to, n);
  }
}

/* -- columns -- */

static void row_columns(const row_kernel *k, const char *x, char *out,
                        int64_t w) {
  float m[COLUMNS], sum[COLUMNS], buf[COLUMNS], to[COLUMNS];
  int64_t step = k->inner * k->size, i, j;
  bool keeps = k->dtype == LIMN_F32 && !k->log; /* exponentials, in out */
  const float *p;
  k->loops->fold[CPU_F32][CPU_MAX].clear(m, w);
  for (i = 0; i < k->n; i++) {
    p = row_read(k, x + i * step, 0, w, buf);
    k->loops->fold[CPU_F32][CPU_MAX].rows(p, 0, 1, w, m);
  }
  memset(sum, 0, sizeof sum);
  for (i = 0; i < k->n; i++) {
    float *e = keeps ? (float *)(void *)(out + i * step) : NULL;
    p = row_read(k, x + i * step, 0, w, buf);
    k->loops->exp_columns(p, m, e, sum, w);
  }
  for (j = 0; j < w; j++) sum[j] = k->log ? logf(sum[j]) : 1 / sum[j];
  for (i = 0; i < k->n; i++) {
    if (keeps) {
      float *e = (float *)(void *)(out + i * step);
      for (j = 0; j < w; j++) e[j] *= sum[j];
      continue;
    }
    p = row_read(k, x + i * step, 0, w, buf);
    if (k->log) {
      for (j = 0; j < w; j++) to[j] = p[j] - m[j] - sum[j];
    } else {
      float skip[COLUMNS] = {0};
      k->loops->exp_columns(p, m, to, skip, w);
      for (j = 0; j < w; j++) to[j] *= sum[j];
    }
    k->loops->store(k->dtype, out + i * step, to, w);
  }
}

static void row_columns_back(const row_kernel *k, const char *y, const char *g,
                             char *out, int64_t w) {
  float sum[COLUMNS] = {0}, buf[COLUMNS], gbuf[COLUMNS], e[COLUMNS];
  float zero[COLUMNS] = {0}, skip[COLUMNS] = {0};
  int64_t step = k->inner * k->size, i, j;
  for (i = 0; i < k->n; i++) {
    const float *q = row_read(k, g + i * step, 0, w, gbuf), *p;
    if (k->log) {
      for (j = 0; j < w; j++) sum[j] += q[j];
      continue;
    }
    p = row_read(k, y + i * step, 0, w, buf);
    for (j = 0; j < w; j++) sum[j] += p[j] * q[j];
  }
  for (i = 0; i < k->n; i++) {
    const float *p = row_read(k, y + i * step, 0, w, buf);
    const float *q = row_read(k, g + i * step, 0, w, gbuf);
    if (k->log) {
      k->loops->exp_columns(p, zero, e, skip, w);
      for (j = 0; j < w; j++) e[j] = q[j] - e[j] * sum[j];
    } else {
      for (j = 0; j < w; j++) e[j] = p[j] * (q[j] - sum[j]);
    }
    k->loops->store(k->dtype, out + i * step, e, w);
  }
}

/* -- float64 -- */

static void row_double(const row_kernel *k, const char *from, char *to) {
  const double *x = (const double *)(const void *)from;
  double *out = (double *)(void *)to, m = -HUGE_VAL, sum = 0, by;
  int64_t i, step = k->inner, end = k->n * step;
  for (i = 0; i < end; i += step)
    if (x[i] > m || x[i] != x[i]) m = x[i];
  for (i = 0; i < end; i += step) sum += exp(x[i] - m);
  by = k->log ? log(sum) : 1 / sum;
  for (i = 0; i < end; i += step)
    out[i] = k->log ? x[i] - m - by : exp(x[i] - m) * by;
}

static void row_double_back(const row_kernel *k, const char *from,
                            const char *grad, char *to) {
  const double *y = (const double *)(const void *)from;
  const double *g = (const double *)(const void *)grad;
  double *out = (double *)(void *)to, sum = 0;
  int64_t i, step = k->inner, end = k->n * step;
  for (i = 0; i < end; i += step) sum += k->log ? g[i] : y[i] * g[i];
  for (i = 0; i < end; i += step)
    out[i] = k->log ? g[i] - exp(y[i]) * sum : y[i] * (g[i] - sum);
}

/* -- tiles -- */

static int64_t row_per_tile(int64_t n, int64_t inner) {
  if (inner > 1) return 1;
  return n >= TILE ? 1 : TILE / LIMN_MAX(n, 1);
}

static int64_t row_blocks(int64_t inner) {
  return (inner + COLUMNS - 1) / COLUMNS;
}

/* w results from `at` on, in one row or one block of columns. */
static void row_part(const row_kernel *k, const char *x, const char *g,
                     char *out, int64_t at, int64_t w) {
  int64_t i;
  x += at, g += at, out += at;
  if (k->dtype == LIMN_F64)
    for (i = 0; i < w; i++, x += 8, g += 8, out += 8)
      if (k->back) row_double_back(k, x, g, out);
      else row_double(k, x, out);
  else if (k->back && k->inner == 1)
    row_one_back(k, x, g, out);
  else if (k->back)
    row_columns_back(k, x, g, out, w);
  else if (k->inner == 1)
    row_one(k, x, out);
  else
    row_columns(k, x, out, w);
}

/* How far ahead `outer` rows are fetched. */
static void row_fetch(row_kernel *k, int64_t outer) {
  int64_t row = k->n * k->size, all = outer * row * (k->back ? 3 : 2);
  if (k->dtype != LIMN_F32 || k->inner != 1) return;
  k->ahead = limn_cpu_ahead(row, all);
  k->first = row > CPU_LONG ? k->ahead : 0;
  k->again = k->first ? 0 : k->ahead;
  k->out_ahead = all < LIMN_CPU_LARGE ? 0 : LIMN_CPU_AHEAD;
}

/* Tile t is rows of inner = 1, or one block of columns. */
static void row_run(const limn_step *s, const limn_bind *b, int64_t t0,
                    int64_t t1) {
  const limn_view *v = &s->in[0].v;
  bool back = s->op == OP_softmax_back || s->op == OP_log_softmax_back;
  bool logs = s->op == OP_log_softmax || s->op == OP_log_softmax_back;
  row_kernel k = {limn_cpu_bound(b)->loops, s->in[0].dtype, 0, v->d[1],
                  v->d[2], logs, back, 0, 0, 0, 0};
  const char *x = limn_cpu_at(b, &s->in[0]);
  const char *g = back ? limn_cpu_at(b, &s->in[1]) : x;
  char *out = limn_cpu_at(b, &s->out[0]);
  int64_t per = row_per_tile(k.n, k.inner), blocks = row_blocks(k.inner);
  k.size = limn_dtype_size(k.dtype);
  row_fetch(&k, v->d[0]);
  for (; t0 < t1; t0++) {
    int64_t o = t0 / blocks * per, end = LIMN_MIN(o + per, v->d[0]);
    int64_t j = t0 % blocks * COLUMNS, w = LIMN_MIN(COLUMNS, k.inner - j);
    for (; o < end; o++)
      row_part(&k, x, g, out, (o * k.n * k.inner + j) * k.size, w);
  }
}

int limn_cpu_row_prepare(limn_device *d, limn_step *s) {
  const limn_view *v = &s->in[0].v;
  int64_t outer = v->d[0], n = v->d[1], inner = v->d[2], per;
  if (!limn_dtype_float(s->in[0].dtype) || s->in[0].dtype != s->out[0].dtype)
    return limn_fail(d->c, LIMN_EUNSUPPORTED, "%s is for floats, not %s",
                     limn_op_get(s->op)->name,
                     limn_dtype_name(s->in[0].dtype));
  per = row_per_tile(n, inner);
  s->run = row_run;
  s->ntiles = (outer + per - 1) / per * row_blocks(inner);
  if (n == 0) s->ntiles = 0;
  s->cost_ns = (double)outer * (double)n * (double)inner *
               (s->in[0].dtype == LIMN_F64 ? 12 : 0.6);
  return 0;
}
