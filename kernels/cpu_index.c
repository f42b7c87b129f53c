/* Positions on the CPU: argmax, argmin, what runs along a dim (sums, products,
 * extremes), and reads and writes at positions given by int64 tensors.
 *
 * A position out of range is noted in the run's fault, and position 0 is used
 * instead, so that nothing outside the operands is ever touched. Writes that
 * may meet are made in the order of the index, by one tile. */
#include <math.h>

#include "cpu_kernels.h"

enum { PIECE = 512, COLUMNS = 256, TILE = 16384 };

static int64_t index_ceil(int64_t a, int64_t b) { return (a + b - 1) / b; }

static int index_type(int dtype) {
  if (!limn_dtype_float(dtype)) return CPU_I64;
  return dtype == LIMN_F64 ? CPU_F64 : CPU_F32;
}

/* -- argmax, argmin -- */

typedef struct {
  const limn_cpu_loops *loops;
  int dtype, T;
  bool max;
  int64_t size, n, inner, base;
} arg_kernel;

/* Row elements as T: where they are, or converted into buf. */
static const void *arg_read(const arg_kernel *k, const char *x, int64_t n,
                            void *buf) {
  if (k->dtype == LIMN_F32 || k->dtype == LIMN_F64 || k->dtype == LIMN_I64)
    return x;
  k->loops->load[k->T](k->dtype, x, 1, n, buf);
  return buf;
}

/* Is x more extreme than what was before it? NaN is the most extreme; the
 * first of equals stays. */
#define ARG_BEATS(x, a) \
  ((max ? (x) > (a) : (x) < (a)) || ((x) != (x) && (a) == (a)))
#define ARG_SAME(x, a) ((x) == (a) || ((x) != (x) && (a) != (a)))

/* A piece's extreme is found by a vectorised fold; only when it beats those
 * before it is its position looked for. */
#define ARG(name, T_, W, kind)                                              \
  static int64_t arg_row_##name(const arg_kernel *k, const char *x) {       \
    const limn_cpu_fold *f = &k->loops->fold[kind][k->max ? CPU_MAX         \
                                                          : CPU_MIN];       \
    bool max = k->max;                                                      \
    int64_t best = 0, i, j, n;                                              \
    T_ buf[PIECE], extreme = 0;                                             \
    for (i = 0; i < k->n; i += n) {                                         \
      const T_ *p;                                                          \
      W wide;                                                               \
      T_ got;                                                               \
      n = LIMN_MIN(PIECE, k->n - i);                                        \
      p = arg_read(k, x + i * k->size, n, buf);                             \
      f->clear_wide(&wide, 1);                                              \
      f->each(p, 0, 1, n, &wide);                                           \
      got = (T_)wide;                                                       \
      if (i && !ARG_BEATS(got, extreme)) continue;                          \
      for (j = 0; j < n - 1 && !ARG_SAME(p[j], got);) j++;                  \
      best = i + j;                                                         \
      extreme = got;                                                        \
    }                                                                       \
    return best;                                                            \
  }                                                                         \
  static void arg_columns_##name(const arg_kernel *k, const char *x,        \
                                 int64_t *out, int64_t w) {                 \
    T_ buf[COLUMNS], best[COLUMNS];                                         \
    bool max = k->max;                                                      \
    int64_t i, j;                                                           \
    for (i = 0; i < k->n; i++) {                                            \
      const T_ *p = arg_read(k, x + i * k->inner * k->size, w, buf);        \
      if (!i) memcpy(best, p, (size_t)w * sizeof *best);                    \
      for (j = 0; j < w; j++) {                                             \
        bool beats = ARG_BEATS(p[j], best[j]);                              \
        best[j] = beats ? p[j] : best[j];                                   \
        out[j] = beats || !i ? i + k->base : out[j];                        \
      }                                                                     \
    }                                                                       \
  }

ARG(f32, float, double, CPU_F32)
ARG(f64, double, double, CPU_F64)
ARG(i64, int64_t, int64_t, CPU_I64)

static void arg_block(const arg_kernel *k, const char *x, int64_t *out,
                      int64_t w) {
  if (k->inner == 1)
    *out = k->base + (k->T == CPU_F32   ? arg_row_f32(k, x)
                      : k->T == CPU_F64 ? arg_row_f64(k, x)
                                        : arg_row_i64(k, x));
  else if (k->T == CPU_F32)
    arg_columns_f32(k, x, out, w);
  else if (k->T == CPU_F64)
    arg_columns_f64(k, x, out, w);
  else
    arg_columns_i64(k, x, out, w);
}

static int64_t arg_per_tile(const limn_view *v) {
  return LIMN_MAX(1, TILE / LIMN_MAX(v->d[1] * LIMN_MIN(v->d[2], COLUMNS), 1));
}

/* A tile is some blocks; a block is a row, or up to COLUMNS columns. */
static void arg_run(const limn_step *s, const limn_bind *b, int64_t t0,
                    int64_t t1) {
  const limn_view *v = &s->in[0].v;
  const char *x = limn_cpu_at(b, &s->in[0]);
  int64_t *out = (int64_t *)(void *)limn_cpu_at(b, &s->out[0]);
  int64_t blocks = index_ceil(v->d[2], COLUMNS), per = arg_per_tile(v), i;
  int64_t end = LIMN_MIN(t1 * per, v->d[0] * blocks);
  arg_kernel k = {limn_cpu_bound(b)->loops, s->in[0].dtype,
                  index_type(s->in[0].dtype), s->op == OP_argmax,
                  limn_dtype_size(s->in[0].dtype), v->d[1], v->d[2], s->base};
  for (i = t0 * per; i < end; i++) {
    int64_t o = i / blocks, j = i % blocks * COLUMNS;
    arg_block(&k, x + (o * k.n * k.inner + j) * k.size, out + o * k.inner + j,
              LIMN_MIN(COLUMNS, k.inner - j));
  }
}

int limn_cpu_arg_prepare(limn_device *d, limn_step *s) {
  const limn_view *v = &s->in[0].v;
  (void)d;
  s->run = arg_run;
  s->ntiles =
      index_ceil(v->d[0] * index_ceil(v->d[2], COLUMNS), arg_per_tile(v));
  if (v->d[1] == 0) s->ntiles = 0; /* refused before, unless nothing is out */
  s->cost_ns = (double)limn_numel(v->ndim, v->d) * 0.3;
  return 0;
}

/* -- Running sums, products, extremes -- */

/* The common dtype has loops of its own, which compilers vectorise. */
static void cum_load(int dtype, const void *p, int64_t stride, int64_t n,
                     double *out) {
  const float *x = p;
  if (dtype != LIMN_F32)
    limn_load_reals(dtype, p, stride, n, out);
  else
    for (int64_t j = 0; j < n; j++) out[j] = (double)x[j];
}

static void cum_store(int dtype, void *p, int64_t stride, int64_t n,
                      const double *v) {
  float *to = p;
  if (dtype != LIMN_F32)
    limn_store_reals(dtype, p, stride, n, v);
  else
    for (int64_t j = 0; j < n; j++) to[j] = (float)v[j];
}

/* Floats run in double and round as they are stored; ints wrap in int64. */
#define CUM(name, W, load, store, first, join)                               \
  static void cum_##name(const limn_step *s, const char *x, char *out,       \
                         int64_t n, int64_t inner, int64_t w) {              \
    int di = s->in[0].dtype, dd = s->out[0].dtype;                           \
    int64_t si = limn_dtype_size(di), so = limn_dtype_size(dd);              \
    int64_t i, j, some;                                                      \
    W acc[COLUMNS], buf[PIECE];                                              \
    for (j = 0; j < w; j++) acc[j] = first;                                  \
    for (i = 0; i < n; i += some) {                                          \
      int64_t at, count;                                                     \
      some = inner == 1 ? LIMN_MIN(PIECE, n - i) : 1;                        \
      count = inner == 1 ? some : w;                                         \
      at = (s->flag ? n - i - some : i) * inner;                             \
      load(di, x + at * si, si, count, buf);                                 \
      if (inner > 1) {                                                       \
        for (j = 0; j < w; j++) buf[j] = acc[j] = join(acc[j], buf[j]);      \
      } else {                                                               \
        for (j = 0; j < some; j++) {                                         \
          W *v = &buf[s->flag ? some - 1 - j : j];                           \
          *v = acc[0] = join(acc[0], *v);                                    \
        }                                                                    \
      }                                                                      \
      store(dd, out + at * so, so, count, buf);                              \
    }                                                                        \
  }
#define CUM_REAL(name, first, join) \
  CUM(real_##name, double, cum_load, cum_store, first, join)
#define CUM_INT(name, first, join) \
  CUM(int_##name, int64_t, limn_load_ints, limn_store_ints, first, join)
#define CUM_ADD(a, b) ((a) + (b))
#define CUM_MUL(a, b) ((a) * (b))
#define CUM_WRAP_ADD(a, b) ((int64_t)((uint64_t)(a) + (uint64_t)(b)))
#define CUM_WRAP_MUL(a, b) ((int64_t)((uint64_t)(a) * (uint64_t)(b)))
#define CUM_MAX(a, b) ((a) > (b) || (a) != (a) ? (a) : (b)) /* NaN stays */
#define CUM_MIN(a, b) ((a) < (b) || (a) != (a) ? (a) : (b))
static inline double cum_logadd(double a, double b) {
  if (a == b) return a + 0.69314718055994530942; /* infinities too */
  return CUM_MAX(a, b) + log1p(exp(-fabs(a - b)));
}
CUM_REAL(sum, 0, CUM_ADD)
CUM_REAL(prod, 1, CUM_MUL)
CUM_REAL(max, -INFINITY, CUM_MAX)
CUM_REAL(min, INFINITY, CUM_MIN)
CUM_REAL(logsumexp, -INFINITY, cum_logadd)
CUM_INT(sum, 0, CUM_WRAP_ADD)
CUM_INT(prod, 1, CUM_WRAP_MUL)
CUM_INT(max, INT64_MIN, CUM_MAX)
CUM_INT(min, INT64_MAX, CUM_MIN)

typedef void cum_fn(const limn_step *s, const char *x, char *out, int64_t n,
                    int64_t inner, int64_t w);
static cum_fn *cum_of(int op, bool real) {
  switch (op) {
    case OP_cumsum: return real ? cum_real_sum : cum_int_sum;
    case OP_cumprod: return real ? cum_real_prod : cum_int_prod;
    case OP_cummax: return real ? cum_real_max : cum_int_max;
    case OP_cummin: return real ? cum_real_min : cum_int_min;
    default: return cum_real_logsumexp;
  }
}

static void cum_run(const limn_step *s, const limn_bind *b, int64_t t0,
                    int64_t t1) {
  const limn_view *v = &s->in[0].v;
  const char *x = limn_cpu_at(b, &s->in[0]);
  char *out = limn_cpu_at(b, &s->out[0]);
  int64_t si = limn_dtype_size(s->in[0].dtype), n = v->d[1], inner = v->d[2];
  int64_t so = limn_dtype_size(s->out[0].dtype);
  int64_t blocks = index_ceil(inner, COLUMNS);
  cum_fn *run = cum_of(s->op, limn_dtype_float(s->out[0].dtype));
  for (; t0 < t1; t0++) {
    int64_t j = t0 % blocks * COLUMNS, at = t0 / blocks * n * inner + j;
    int64_t w = LIMN_MIN(COLUMNS, inner - j);
    run(s, x + at * si, out + at * so, n, inner, w);
  }
}

int limn_cpu_cum_prepare(limn_device *d, limn_step *s) {
  const limn_view *v = &s->in[0].v;
  (void)d;
  s->run = cum_run;
  s->ntiles = v->d[0] * index_ceil(v->d[2], COLUMNS);
  s->cost_ns = (double)limn_numel(v->ndim, v->d) *
               (s->op == OP_logcumsumexp ? 30 : 1.5);
  return 0;
}

/* -- index_select -- */

static int64_t select_per_tile(int64_t bytes) {
  return LIMN_MAX(1, 4 * TILE / LIMN_MAX(bytes, 16));
}

/* Rows of one element's size are copied without a call. */
static void select_rows(const limn_step *s, const limn_bind *b,
                        const char *x, char *out, int64_t bytes, int64_t r0,
                        int64_t r1) {
  const int64_t *index =
      (const int64_t *)(const void *)limn_cpu_at(b, &s->in[1]);
  int64_t n = s->in[0].v.d[1], m = s->out[0].v.d[1], r;
  for (r = r0; r < r1; r++) {
    int64_t at = r % m, from;
    char *to = out + r * bytes;
    from = r / m * n + limn_cpu_index(s, b, index[at], n, at);
    if (n == 0) memset(to, 0, (size_t)bytes);
    else if (bytes == 4) memcpy(to, x + from * 4, 4);
    else if (bytes == 8) memcpy(to, x + from * 8, 8);
    else memcpy(to, x + from * bytes, (size_t)bytes);
  }
}

static void select_run(const limn_step *s, const limn_bind *b, int64_t t0,
                       int64_t t1) {
  const limn_view *v = &s->out[0].v;
  int64_t bytes = v->d[2] * limn_dtype_size(s->out[0].dtype);
  int64_t per = select_per_tile(bytes), rows = v->d[0] * v->d[1];
  select_rows(s, b, limn_cpu_at(b, &s->in[0]), limn_cpu_at(b, &s->out[0]),
              bytes, t0 * per, LIMN_MIN(t1 * per, rows));
}

int limn_cpu_select_prepare(limn_device *d, limn_step *s) {
  const limn_view *v = &s->out[0].v;
  int64_t bytes = v->d[2] * limn_dtype_size(s->out[0].dtype);
  int64_t rows = v->d[0] * v->d[1];
  (void)d;
  s->run = select_run;
  s->ntiles = bytes ? index_ceil(rows, select_per_tile(bytes)) : 0;
  s->cost_ns = (double)rows * (5 + 0.06 * (double)bytes);
  return 0;
}

/* -- gather, scatter_add -- */

/* A position in the index tensor, walked in row-major order. */
typedef struct {
  int64_t i[LIMN_MAXDIM];
} index_pos;

static void index_seek(const limn_view *v, index_pos *p, int64_t linear) {
  int d;
  for (d = v->ndim - 1; d >= 0; d--) {
    p->i[d] = linear % v->d[d];
    linear /= v->d[d];
  }
}

/* Offset in `other` of the elements that differ from p along `dim` only. */
static int64_t index_offset(const limn_view *other, const index_pos *p,
                            int dim) {
  int64_t at = 0;
  int d;
  for (d = 0; d < other->ndim; d++)
    if (d != dim) at += p->i[d] * other->s[d];
  return at;
}

/* n elements of one row: x moves on by `across` from one to the next, and by
 * `step` per position along dim. `at` is the first one's number. */
#define GATHER(bytes, T)                                                   \
  static void gather_row_##bytes(const limn_step *s, const limn_bind *b,   \
                                 T *out, const T *x, const int64_t *index, \
                                 int64_t n, int64_t across, int64_t step,  \
                                 int64_t size, int64_t at) {               \
    const uint64_t base = (uint64_t)s->base, end = (uint64_t)size;         \
    for (int64_t j = 0; j < n; j++) {                                      \
      uint64_t i = (uint64_t)index[j] - base;                              \
      if (__builtin_expect(i >= end, 0))                                   \
        i = (uint64_t)limn_cpu_index(s, b, index[j], size, at + j);        \
      out[j] = x[j * across + (int64_t)i * step];                          \
    }                                                                      \
  }
GATHER(1, uint8_t)
GATHER(2, uint16_t)
GATHER(4, uint32_t)
GATHER(8, uint64_t)

static void gather_row(const limn_step *s, const limn_bind *b, void *out,
                       const void *x, const int64_t *index, int64_t n,
                       int64_t across, int64_t step, int64_t size,
                       int64_t at) {
  switch (limn_dtype_size(s->out[0].dtype)) {
    case 1: gather_row_1(s, b, out, x, index, n, across, step, size, at); break;
    case 2: gather_row_2(s, b, out, x, index, n, across, step, size, at); break;
    case 4: gather_row_4(s, b, out, x, index, n, across, step, size, at); break;
    case 8: gather_row_8(s, b, out, x, index, n, across, step, size, at); break;
  }
}

/* Elements [e0, e1) of the result, a row of the last dim at a time. */
static void gather_rows(const limn_step *s, const limn_bind *b, int64_t e0,
                        int64_t e1) {
  const limn_view *v = &s->out[0].v, *xv = &s->in[0].v;
  const int64_t *index =
      (const int64_t *)(const void *)limn_cpu_at(b, &s->in[1]);
  const char *x = limn_cpu_at(b, &s->in[0]);
  char *out = limn_cpu_at(b, &s->out[0]);
  int64_t size = limn_dtype_size(s->out[0].dtype), n = xv->d[s->dim];
  int last = v->ndim - 1;
  int64_t across = s->dim == last ? 0 : xv->s[last], some;
  index_pos p;
  if (n == 0) { /* every position is out of range, and there is none to read */
    limn_cpu_index(s, b, index[e0], n, e0);
    memset(out + e0 * size, 0, (size_t)((e1 - e0) * size));
    return;
  }
  for (; e0 < e1; e0 += some) {
    index_seek(v, &p, e0);
    some = LIMN_MIN(e1 - e0, v->d[last] - p.i[last]);
    gather_row(s, b, out + e0 * size,
               x + index_offset(xv, &p, s->dim) * size, index + e0, some,
               across, xv->s[s->dim], n, e0);
  }
}

static void gather_run(const limn_step *s, const limn_bind *b, int64_t t0,
                       int64_t t1) {
  const limn_view *v = &s->out[0].v;
  int64_t all = limn_numel(v->ndim, v->d);
  if (v->ndim == 0) return;
  gather_rows(s, b, t0 * TILE, LIMN_MIN(t1 * TILE, all));
}

int limn_cpu_gather_prepare(limn_device *d, limn_step *s) {
  const limn_view *v = &s->out[0].v;
  int64_t all = limn_numel(v->ndim, v->d);
  if (v->ndim == 0)
    return limn_fail(d->c, LIMN_EUNSUPPORTED, "gather needs a dim");
  s->run = gather_run;
  s->ntiles = index_ceil(all, TILE);
  s->cost_ns = (double)all * 1.5;
  return 0;
}

/* -- sums at positions -- */

/* to[j] += v[j], rounding or wrapping as the dtype does. */
#define ADD_ROW(tag, T, expr)                          \
  case tag: {                                          \
    T *d = to;                                         \
    const T *x = v;                                    \
    for (j = 0; j < n; j++) d[j] = (T)(expr);          \
    break;                                             \
  }
static void add_row(int dtype, void *to, const void *v, int64_t n) {
  int64_t j;
  switch (dtype) {
    ADD_ROW(LIMN_F64, double, d[j] + x[j])
    ADD_ROW(LIMN_F32, float, d[j] + x[j])
    ADD_ROW(LIMN_F16, uint16_t,
            limn_float_to_half(limn_half_to_float(d[j]) +
                               limn_half_to_float(x[j])))
    ADD_ROW(LIMN_BF16, uint16_t,
            limn_float_to_bf16(limn_bf16_to_float(d[j]) +
                               limn_bf16_to_float(x[j])))
    ADD_ROW(LIMN_I64, int64_t, (uint64_t)d[j] + (uint64_t)x[j])
    ADD_ROW(LIMN_I32, int32_t, (uint32_t)d[j] + (uint32_t)x[j])
    ADD_ROW(LIMN_I8, int8_t, d[j] + x[j])
    ADD_ROW(LIMN_U8, uint8_t, d[j] + x[j])
    ADD_ROW(LIMN_BOOL, uint8_t, d[j] || x[j])
  }
}

static int add_check(limn_device *d, const limn_step *s) {
  if (s->in[1].dtype == s->out[0].dtype) return 0;
  return limn_fail(d->c, LIMN_EDTYPE, "%s adds %s to %s",
                   limn_op_get(s->op)->name, limn_dtype_name(s->in[1].dtype),
                   limn_dtype_name(s->out[0].dtype));
}

/* How many columns a tile takes: they do not meet other columns. */
static int64_t add_width(const limn_view *v) {
  return LIMN_MIN(LIMN_MAX(v->d[2], 1), COLUMNS);
}

static void index_add_run(const limn_step *s, const limn_bind *b, int64_t t0,
                          int64_t t1) {
  const limn_view *v = &s->in[1].v;
  const int64_t *index =
      (const int64_t *)(const void *)limn_cpu_at(b, &s->in[0]);
  int64_t n = s->out[0].v.d[1], m = v->d[1], inner = v->d[2];
  int64_t width = add_width(v), blocks = index_ceil(inner, width), i;
  int64_t size = limn_dtype_size(s->out[0].dtype);
  for (; t0 < t1; t0++) {
    int64_t o = t0 / blocks, j = t0 % blocks * width;
    int64_t w = LIMN_MIN(width, inner - j);
    char *to = limn_cpu_at(b, &s->out[0]) + (o * n * inner + j) * size;
    char *from = limn_cpu_at(b, &s->in[1]) + (o * m * inner + j) * size;
    for (i = 0; i < m; i++) {
      int64_t at = limn_cpu_index(s, b, index[i], n, i);
      if (n)
        add_row(s->out[0].dtype, to + at * inner * size,
                from + i * inner * size, w);
    }
  }
}

int limn_cpu_index_add_prepare(limn_device *d, limn_step *s) {
  const limn_view *v = &s->in[1].v;
  LIMN_TRY(add_check(d, s));
  s->run = index_add_run;
  s->ntiles = v->d[0] * index_ceil(v->d[2], add_width(v));
  s->cost_ns = (double)limn_numel(v->ndim, v->d) * 0.3 +
               (double)(s->ntiles * v->d[1]) * 5;
  return 0;
}

/* What lies under one position of the dims before `dim` meets nothing else. */
static int64_t scatter_slabs(const limn_step *s) {
  return limn_numel(s->dim, s->in[0].v.d);
}

static void scatter_run(const limn_step *s, const limn_bind *b, int64_t t0,
                        int64_t t1) {
  const limn_view *v = &s->in[0].v, *ov = &s->out[0].v;
  const int64_t *index =
      (const int64_t *)(const void *)limn_cpu_at(b, &s->in[0]);
  const char *from = limn_cpu_at(b, &s->in[1]);
  char *out = limn_cpu_at(b, &s->out[0]);
  int64_t size = limn_dtype_size(s->out[0].dtype), n = ov->d[s->dim];
  int64_t all = limn_numel(v->ndim, v->d), slab = all / scatter_slabs(s);
  int64_t e, end = t1 * slab, some, j, across = 0;
  int last = v->ndim - 1;
  bool set = s->op == OP_scatter;
  index_pos p;
  if (s->dim != last) across = ov->s[last];
  for (e = t0 * slab; e < end; e += some) {
    int64_t at;
    index_seek(v, &p, e);
    some = LIMN_MIN(end - e, v->d[last] - p.i[last]);
    at = index_offset(ov, &p, s->dim);
    for (j = e; j < e + some; j++, at += across) {
      int64_t i = limn_cpu_index(s, b, index[j], n, j);
      char *to = out + (at + i * ov->s[s->dim]) * size;
      if (n && set) memcpy(to, from + j * size, (size_t)size);
      else if (n) add_row(s->out[0].dtype, to, from + j * size, 1);
    }
  }
}

int limn_cpu_scatter_add_prepare(limn_device *d, limn_step *s) {
  int64_t all = limn_numel(s->in[0].v.ndim, s->in[0].v.d);
  LIMN_TRY(add_check(d, s));
  if (s->in[0].v.ndim == 0)
    return limn_fail(d->c, LIMN_EUNSUPPORTED, "scatter_add needs a dim");
  s->run = scatter_run;
  s->ntiles = all ? scatter_slabs(s) : 0;
  s->cost_ns = (double)all * 4;
  return 0;
}
