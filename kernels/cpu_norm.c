/* layer_norm, rms_norm and their gradients on the CPU: rows of n elements, each
 * read from memory once and kept in the cache for the sums and the result. A
 * weight's and a bias's gradients are sums over rows, one pair for each tile.
 *
 * float16 and bfloat16 are converted a piece at a time, with a weight and bias
 * of their own dtype. Sums are taken in two passes, so that a large mean does
 * not cancel. */
#include <math.h>

#include "cpu_kernels.h"

enum { PIECE = 1024, TILE = 16384 };

typedef struct {
  const limn_cpu_loops *loops;
  int dtype;
  int64_t size, n;
  double eps;
  bool centred, back; /* layer_norm; a gradient */
  const char *weight, *bias; /* or NULL */
  size_t ahead, out_ahead; /* bytes that memory brings in early */
  size_t first, again; /* of x, when it is read first and when once more */
} norm_kernel;

/* Elements i .. i + n of p as floats: in place, or converted into buf. */
static const float *norm_read(const norm_kernel *k, const char *p, int64_t i,
                              int64_t n, float *buf) {
  const void *at = p ? p + i * k->size : NULL;
  if (!at || k->dtype == LIMN_F32) return at;
  k->loops->load[CPU_F32](k->dtype, at, 1, n, buf);
  return buf;
}

/* The mean, or 0, and 1 / the deviation. */
static void norm_moments(const norm_kernel *k, const char *x, float *m,
                         float *r) {
  float buf[PIECE];
  double sum = 0, squares = 0;
  int64_t i, n;
  for (i = 0; k->centred && i < k->n; i += n) {
    n = LIMN_MIN(PIECE, k->n - i);
    sum += k->loops->sum(norm_read(k, x, i, n, buf), n, k->first);
  }
  *m = (float)(sum / (double)k->n);
  for (i = 0; i < k->n; i += n) {
    n = LIMN_MIN(PIECE, k->n - i);
    squares += k->loops->squares(norm_read(k, x, i, n, buf), *m, n,
                                 k->again);
  }
  *r = (float)(1 / sqrt(squares / (double)k->n + k->eps));
}

static void norm_row(const norm_kernel *k, const char *x, char *out) {
  float buf[PIECE], wbuf[PIECE], bbuf[PIECE], to[PIECE], m, r;
  int64_t i, n;
  norm_moments(k, x, &m, &r);
  for (i = 0; i < k->n; i += n) {
    void *at = out + i * k->size;
    n = LIMN_MIN(PIECE, k->n - i);
    k->loops->norm(norm_read(k, x, i, n, buf), m, r,
                   norm_read(k, k->weight, i, n, wbuf),
                   norm_read(k, k->bias, i, n, bbuf),
                   k->dtype == LIMN_F32 ? at : to, n, k->out_ahead);
    if (k->dtype != LIMN_F32) k->loops->store(k->dtype, at, to, n);
  }
}

/* Of a row with mean m and r = 1 / the deviation. */
static void norm_back(const norm_kernel *k, const char *x, const char *g,
                      float m, float r, char *out) {
  float buf[PIECE], gbuf[PIECE], wbuf[PIECE], to[PIECE], p[4] = {m, r};
  double sum[2] = {0, 0}, n = (double)k->n;
  int64_t i, some;
  for (i = 0; i < k->n; i += some) {
    some = LIMN_MIN(PIECE, k->n - i);
    k->loops->norm_sums(norm_read(k, x, i, some, buf),
                        norm_read(k, g, i, some, gbuf),
                        norm_read(k, k->weight, i, some, wbuf), p[0], some,
                        k->ahead, sum);
  }
  p[2] = k->centred ? (float)(sum[0] / n) : 0;
  p[3] = (float)(sum[1] / n * (double)p[1] * (double)p[1]);
  for (i = 0; i < k->n; i += some) {
    void *at = out + i * k->size;
    some = LIMN_MIN(PIECE, k->n - i);
    k->loops->norm_back(norm_read(k, x, i, some, buf),
                        norm_read(k, g, i, some, gbuf),
                        norm_read(k, k->weight, i, some, wbuf), p,
                        k->dtype == LIMN_F32 ? at : to, some, k->out_ahead);
    if (k->dtype != LIMN_F32) k->loops->store(k->dtype, at, to, some);
  }
}

static void norm_row_back(const norm_kernel *k, const char *x, const char *g,
                          char *out) {
  float m, r;
  norm_moments(k, x, &m, &r);
  norm_back(k, x, g, m, r, out);
}

static void norm_double_moments(const norm_kernel *k, const double *x,
                                double *m, double *r) {
  double sum = 0, squares = 0, n = (double)k->n;
  int64_t i;
  for (i = 0; k->centred && i < k->n; i++) sum += x[i];
  *m = sum / n;
  for (i = 0; i < k->n; i++) squares += (x[i] - *m) * (x[i] - *m);
  *r = 1 / sqrt(squares / n + k->eps);
}

static void norm_double(const norm_kernel *k, const double *x, const double *g,
                        double *out) {
  const double *w = (const double *)(const void *)k->weight;
  const double *b = (const double *)(const void *)k->bias;
  double m, r, mean = 0, by = 0, n = (double)k->n;
  int64_t i;
  norm_double_moments(k, x, &m, &r);
  for (i = 0; !k->back && i < k->n; i++)
    out[i] = (x[i] - m) * r * (w ? w[i] : 1) + (b ? b[i] : 0);
  if (!k->back) return;
  for (i = 0; i < k->n; i++) {
    double h = g[i] * (w ? w[i] : 1);
    mean += h;
    by += h * (x[i] - m);
  }
  mean = k->centred ? mean / n : 0;
  by *= r * r / n;
  for (i = 0; i < k->n; i++)
    out[i] = r * (g[i] * (w ? w[i] : 1) - mean - (x[i] - m) * by);
}

/* Adds what a row gives to w and b, of n elements each. */
static void norm_add(const norm_kernel *k, const char *x, const char *g,
                     float m, float r, float *w, float *b) {
  float buf[PIECE], gbuf[PIECE];
  int64_t i, n;
  for (i = 0; i < k->n; i += n) {
    n = LIMN_MIN(PIECE, k->n - i);
    k->loops->norm_add(norm_read(k, x, i, n, buf), norm_read(k, g, i, n, gbuf),
                       m, r, w + i, b + i, n, k->ahead);
  }
}

static void norm_double_add(const norm_kernel *k, const double *x,
                            const double *g, double *w, double *b) {
  double m, r;
  norm_double_moments(k, x, &m, &r);
  for (int64_t i = 0; i < k->n; i++) {
    w[i] += g[i] * ((x[i] - m) * r);
    b[i] += g[i];
  }
}

/* What a row adds to the sums, and the gradient of x unless out is NULL. */
static void norm_both(const norm_kernel *k, const char *x, const char *g,
                      void *sums, char *out) {
  double *d = sums;
  float *f = sums, m, r;
  if (k->dtype == LIMN_F64) {
    const double *xs = (const void *)x, *gs = (const void *)g;
    norm_double_add(k, xs, gs, d, d + k->n);
    if (out) norm_double(k, xs, gs, (double *)(void *)out);
    return;
  }
  norm_moments(k, x, &m, &r);
  norm_add(k, x, g, m, r, f, f + k->n);
  if (out) norm_back(k, x, g, m, r, out);
}

/* Sizes that follow from the shape: of elements, and how far ahead `rows` rows
 * of each of n tensors are fetched. Halves, which are converted first, rely on
 * the processor for that. */
static void norm_fetch(norm_kernel *k, int64_t rows, int n) {
  int64_t row;
  k->size = limn_dtype_size(k->dtype);
  row = k->n * k->size;
  if (k->dtype != LIMN_F32) return;
  k->ahead = limn_cpu_ahead(row, rows * row * n);
  k->first = row > CPU_LONG && k->centred ? k->ahead : 0;
  k->again = k->first ? 0 : k->ahead;
  k->out_ahead = rows * row * n < LIMN_CPU_LARGE ? 0 : LIMN_CPU_AHEAD;
}

/* Tile t of in[0]'s rows adds up in row t of `part` [tiles, 2, n]. */
static void norm_run_sums(const limn_step *s, const limn_bind *b, int64_t t0,
                          int64_t t1) {
  const limn_view *v = &s->in[0].v;
  bool centred = s->op == OP_layer_norm_sums || s->op == OP_layer_norm_back;
  bool both = s->nout == 2; /* with x's gradient */
  const limn_operand *part = &s->out[both ? 1 : 0];
  norm_kernel k = {limn_cpu_bound(b)->loops, s->in[0].dtype, 0, v->d[1],
                   s->eps, centred, true, NULL, NULL, 0, 0, 0, 0};
  const char *x = limn_cpu_at(b, &s->in[0]), *g = limn_cpu_at(b, &s->in[1]);
  size_t bytes = (size_t)(2 * k.n * limn_dtype_size(part->dtype));
  char *sums = limn_cpu_at(b, part) + (size_t)t0 * bytes;
  char *out = both ? limn_cpu_at(b, &s->out[0]) : NULL;
  norm_fetch(&k, v->d[0], both ? 3 : 2);
  if (s->flag) k.weight = limn_cpu_at(b, &s->in[2]);
  for (; t0 < t1; t0++, sums += bytes) {
    int64_t row = v->d[0] * t0 / s->ntiles;
    int64_t end = v->d[0] * (t0 + 1) / s->ntiles;
    memset(sums, 0, bytes);
    for (; row < end; row++) {
      int64_t at = row * k.n * k.size;
      norm_both(&k, x + at, g + at, sums, both ? out + at : NULL);
    }
  }
}

static int64_t norm_per_tile(int64_t n) {
  return n >= TILE ? 1 : TILE / LIMN_MAX(n, 1);
}

static void norm_run(const limn_step *s, const limn_bind *b, int64_t t0,
                     int64_t t1) {
  const limn_view *v = &s->in[0].v;
  bool back = s->op == OP_layer_norm_back || s->op == OP_rms_norm_back;
  bool centred = s->op == OP_layer_norm || s->op == OP_layer_norm_back;
  norm_kernel k = {limn_cpu_bound(b)->loops, s->in[0].dtype, 0, v->d[1],
                   s->eps, centred, back, NULL, NULL, 0, 0, 0, 0};
  const char *x = limn_cpu_at(b, &s->in[0]);
  const char *g = back ? limn_cpu_at(b, &s->in[1]) : x;
  char *out = limn_cpu_at(b, &s->out[0]);
  int64_t per = norm_per_tile(k.n), row, end = LIMN_MIN(t1 * per, v->d[0]);
  norm_fetch(&k, v->d[0], back ? 3 : 2);
  if (s->flag) k.weight = limn_cpu_at(b, &s->in[back ? 2 : 1]);
  if (s->bias) k.bias = limn_cpu_at(b, &s->in[s->flag ? 2 : 1]);
  for (row = t0 * per; row < end; row++) {
    int64_t at = row * k.n * k.size;
    if (k.dtype == LIMN_F64)
      norm_double(&k, (const double *)(const void *)(x + at),
                  (const double *)(const void *)(g + at),
                  (double *)(void *)(out + at));
    else if (back)
      norm_row_back(&k, x + at, g + at, out + at);
    else
      norm_row(&k, x + at, out + at);
  }
}

int limn_cpu_norm_prepare(limn_device *d, limn_step *s) {
  const limn_view *v = &s->in[0].v;
  int64_t per = norm_per_tile(v->d[1]);
  (void)d;
  if (s->nout == 2 || s->op == OP_layer_norm_sums ||
      s->op == OP_rms_norm_sums) {
    s->run = norm_run_sums;
    s->ntiles = s->out[s->nout - 1].v.d[0];
    s->cost_ns = (double)v->d[0] * (double)v->d[1] * s->nout *
                 (s->in[0].dtype == LIMN_F64 ? 2 : 0.4);
    return 0;
  }
  s->run = norm_run;
  s->ntiles = (v->d[0] + per - 1) / per;
  if (v->d[1] == 0) s->ntiles = 0;
  s->cost_ns = (double)v->d[0] * (double)v->d[1] *
               (s->in[0].dtype == LIMN_F64 ? 2 : 0.4);
  return 0;
}
