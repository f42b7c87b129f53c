/* The CPU device's insides: what dev_cpu.c and the kernels share. */
#ifndef LIMN_CPU_KERNELS_H
#define LIMN_CPU_KERNELS_H

#include "cpu_elem.h"
#include "cpu_gemm.h"
#include "device.h"

/* -- Loops, one table per instruction set (cpu_loops_isa.h) -- */
enum { CPU_F32, CPU_F64, CPU_I64 };                /* types loops compute in */
enum { CPU_SUM, CPU_PROD, CPU_MAX, CPU_MIN };      /* max, min keep NaN */

/* Folds with one operation over T. Results of many elements gather in `wide`
 * accumulators: double for float, else T itself. */
typedef struct {
  /* acc[j] = acc[j] op x[r * rs + j], r < rows, j < n; acc of T. */
  void (*rows)(const void *x, int64_t rs, int64_t rows, int64_t n, void *acc);
  /* wide[j] = wide[j] op part[j], for parts of T. */
  void (*flush)(const void *part, int64_t n, void *wide);
  /* wide[r] = wide[r] op (all of x[r * rs .. + n]). */
  void (*each)(const void *x, int64_t rs, int64_t rows, int64_t n,
               void *wide);
  void (*clear)(void *acc, int64_t n);     /* acc[j] = identity, of T */
  void (*clear_wide)(void *wide, int64_t n);
} limn_cpu_fold;

/* Of float or of double elements; rows are rs apart, `ahead` as below. */
enum { BATCH_COLUMNS = 256 }; /* at most */
typedef struct {
  /* The mean of rows x n elements, and the squares of what is off it. */
  void (*moments)(const void *x, int64_t rs, int64_t rows, int64_t n,
                  size_t ahead, double out[2]);
  /* out[0] += the sum of g (x - mean), out[1] += that of g. */
  void (*cross)(const void *x, const void *g, int64_t rs, int64_t rows,
                int64_t n, double mean, size_t ahead, double out[2]);
  /* The same for each of n columns; these set their results. */
  void (*columns)(const void *x, int64_t rs, int64_t rows, int64_t n,
                  size_t ahead, double *mean, double *square);
  void (*crosses)(const void *x, const void *g, int64_t rs, int64_t rows,
                  int64_t n, const double *mean, size_t ahead, double *by,
                  double *sum);
} limn_cpu_batch;

typedef struct {
  /* n elements of dtype, `stride` elements apart, as T. F32: from float16,
   * bfloat16 and float32; F64: from float64; I64: from ints and bool. */
  void (*load[3])(int dtype, const void *p, int64_t stride, int64_t n,
                  void *out);
  /* 1 where an element of any dtype is not 0, else 0. */
  void (*test)(int dtype, const void *p, int64_t stride, int64_t n,
               float *out);
  /* n floats to consecutive float32, float16 or bfloat16. */
  void (*store)(int dtype, void *p, const float *v, int64_t n);
  limn_cpu_fold fold[3][4];
  /* Row functions. While they compute, the memory can bring in what lies
   * `ahead` bytes after what they read or write; 0: nothing. */
  /* The largest that is no NaN, or -infinity. */
  float (*peak)(const float *x, int64_t n, size_t ahead);
  /* out[i] = e^(x[i] - m); returns the sum of the results. */
  float (*exp_row)(const float *x, float m, float *out, int64_t n,
                   size_t x_ahead, size_t out_ahead);
  /* The same for n columns with their own m; adds to sum. out may be NULL. */
  void (*exp_columns)(const float *x, const float *m, float *out, float *sum,
                      int64_t n);
  void (*scale)(float *x, float by, int64_t n);
  /* out[i] = x[i] - m - l */
  void (*shift)(const float *x, float m, float l, float *out, int64_t n);
  double (*sum)(const float *x, int64_t n, size_t ahead);
  /* The sum of (x[i] - m)^2; ahead of x. */
  double (*squares)(const float *x, float m, int64_t n, size_t ahead);
  /* out[i] = (x[i] - m) * r * w[i] + b[i]; w, b may be NULL; ahead of out. */
  void (*norm)(const float *x, float m, float r, const float *w,
               const float *b, float *out, int64_t n, size_t ahead);
  /* sum[0] += the sum of h, sum[1] += that of h (x[i] - m); h is g[i] w[i], or
   * g[i] where w is NULL; ahead of g. */
  void (*norm_sums)(const float *x, const float *g, const float *w, float m,
                    int64_t n, size_t ahead, double sum[2]);
  /* out[i] = p[1] (h - p[2] - (x[i] - p[0]) p[3]); ahead of out. */
  void (*norm_back)(const float *x, const float *g, const float *w,
                    const float p[4], float *out, int64_t n, size_t ahead);
  /* w[i] += g[i] (x[i] - m) r, b[i] += g[i]; ahead of g. */
  void (*norm_add)(const float *x, const float *g, float m, float r, float *w,
                   float *b, int64_t n, size_t ahead);
  /* The sum of x[i] y[i]; ahead of both. */
  double (*dot)(const float *x, const float *y, int64_t n, size_t ahead);
  /* out[i] = y[i] (g[i] - s), or with log g[i] - e^y[i] s; ahead of out. */
  void (*row_back)(const float *y, const float *g, float s, bool log,
                   float *out, int64_t n, size_t ahead);
  limn_cpu_batch batch[2]; /* float, double */
  /* A plane's windows, see cpu_pool_isa.h. rows: scratch. */
  void (*pool)(const limn_view *v, const float *x, float *rows, float *out);
  void (*pool_back)(const limn_view *v, const float *x, const float *y,
                    const float *g, float *out);
} limn_cpu_loops;
const limn_cpu_loops *limn_loops_select(int isa); /* as limn_gemm_select */

/* -- The device -- */
enum { CPU_SLOTS = 64 };
typedef struct {
  void *mem;
  size_t bytes;
} limn_cpu_block;
struct limn_conv_kernels;
typedef struct {
  const limn_cpu_loops *loops;
  const limn_gemm_kernels *gemm;
  const struct limn_conv_kernels *conv;
  /* Scratch for tiles: `nslot` pieces of slot_size bytes, of which a tile
   * takes one while it runs. Grown at prepare only, when nothing runs. */
  char *slots;
  size_t slot_size;
  int nslot;
  uint64_t busy; /* one bit per slot, atomic */
  /* What the tiles of a step share and no tensor holds; grown likewise. */
  void *shared;
  size_t shared_size;
  /* Large blocks without a tensor, for the next one of their size. */
  limn_cpu_block kept[8];
  int nkept;
  size_t kept_bytes;
} limn_cpu;

static inline limn_cpu *limn_cpu_of(const limn_device *d) { return d->impl; }
static inline limn_cpu *limn_cpu_bound(const limn_bind *b) {
  return b->c->devices[0]->impl;
}
int limn_cpu_reserve(limn_device *d, size_t bytes);
int limn_cpu_reserve_shared(limn_device *d, size_t bytes);
/* Run fn on tiles [0, n), on all threads where `ns` of work is worth it. */
int limn_cpu_spread(limn_context *c, int64_t n, double ns,
                    void (*fn)(void *, int64_t t0, int64_t t1), void *arg);
/* A piece of scratch, which waits for another tile's when all are taken. */
void *limn_cpu_take(limn_cpu *cpu, int *slot);
void limn_cpu_give(limn_cpu *cpu, int slot);

/* How many bytes ahead the rows of a step with `all` bytes of operands are
 * fetched; 0: not, as a cache has them. Long rows a little before they are read
 * first; the next row, or later ones where rows are very short, when a row is
 * read for the last time: it takes the memory long, and the cache has room. */
enum { CPU_LONG = 8192 };
static inline size_t limn_cpu_ahead(int64_t row, int64_t all) {
  if (all < LIMN_CPU_LARGE || row <= 0) return 0;
  if (row > CPU_LONG) return LIMN_CPU_AHEAD / 2;
  return (size_t)((LIMN_CPU_AHEAD + row - 1) / row * row);
}

static inline char *limn_cpu_at(const limn_bind *b, const limn_operand *o) {
  const limn_slot *s = &b->slot[o->slot];
  return (char *)s->mem + s->off +
         o->v.offset * (int64_t)limn_dtype_size(o->dtype);
}
/* Note that matrix `at` of `count` has no result: why, and at which pivot. */
void limn_cpu_note_matrix(const limn_step *s, const limn_bind *b, int why,
                          int64_t pivot, int64_t at, int64_t count);
/* An index as given to 0-based, noting the first that is out of range (its
 * position: at); then it is 0. */
void limn_cpu_note(const limn_step *s, const limn_bind *b, int64_t value,
                   int64_t n, int64_t at);
static inline int64_t limn_cpu_index(const limn_step *s, const limn_bind *b,
                                     int64_t value, int64_t n, int64_t at) {
  int64_t i = (int64_t)((uint64_t)value - (uint64_t)s->base);
  if ((uint64_t)i < (uint64_t)n) return i;
  limn_cpu_note(s, b, value, n, at);
  return 0;
}

/* A copy of weights in another form (cpu_keep.c): limn_derived's layout, and
 * what it is a copy of, which stands before it. */
enum { CPU_PACKED = 1, CPU_FORMED };
typedef struct {
  int layout;
  const void *head;
  size_t size; /* of the head; keeps the copy aligned */
} limn_cpu_copy;
/* The copy that is valid in this run, or NULL. */
void *limn_cpu_kept(const limn_slot *slot, const limn_cpu_copy *want);
/* Where none is: room for one of so many bytes, to be filled at once. NULL: the
 * value is no cell's and no loop's, or there is no memory or no place. */
void *limn_cpu_keep(limn_context *c, const limn_slot *slot,
                    const limn_cpu_copy *want, size_t bytes);

/* What follows a product: a program, with collapsed views of out and of the
 * inputs from in[3] on. */
typedef struct {
  limn_cpu_prog *prog; /* or NULL */
  int nextra;
  limn_view out, extra[LIMN_STEP_IN];
} limn_cpu_epilogue;
int limn_cpu_epilogue_new(limn_context *c, const limn_step *s,
                          const limn_group *g, limn_cpu_epilogue *e);
void limn_cpu_epilogue_free(limn_context *c, limn_cpu_epilogue *e);
/* Elements [lo, hi) of out, which are consecutive in it. */
void limn_cpu_epilogue_run(const limn_cpu_epilogue *e, const limn_step *s,
                           const limn_bind *b, int64_t lo, int64_t hi);

/* -- Kernels: fill run, ntiles, cost_ns, code -- */
int limn_cpu_matmul_prepare(limn_device *d, limn_step *s);
void limn_cpu_matmul_discard(limn_device *d, limn_step *s);
/* On the caller's thread, before the tiles: keeps weights packed. */
void limn_cpu_matmul_begin(const limn_step *s, const limn_bind *b);
int limn_cpu_reduce_prepare(limn_device *d, limn_step *s);
void limn_cpu_reduce_discard(limn_device *d, limn_step *s);
int limn_cpu_conv_prepare(limn_device *d, limn_step *s);
void limn_cpu_conv_discard(limn_device *d, limn_step *s);
/* Before and after the tiles. */
int limn_cpu_conv_begin(const limn_step *s, const limn_bind *b);
int limn_cpu_conv_end(const limn_step *s, const limn_bind *b);
int limn_cpu_row_prepare(limn_device *d, limn_step *s);
int limn_cpu_norm_prepare(limn_device *d, limn_step *s);
int limn_cpu_batch_prepare(limn_device *d, limn_step *s);
void limn_cpu_batch_discard(limn_device *d, limn_step *s);
int limn_cpu_pool_prepare(limn_device *d, limn_step *s);
int limn_cpu_arg_prepare(limn_device *d, limn_step *s);
int limn_cpu_cum_prepare(limn_device *d, limn_step *s);
int limn_cpu_select_prepare(limn_device *d, limn_step *s);
int limn_cpu_gather_prepare(limn_device *d, limn_step *s);
int limn_cpu_index_add_prepare(limn_device *d, limn_step *s);
int limn_cpu_scatter_add_prepare(limn_device *d, limn_step *s);
int limn_cpu_sort_prepare(limn_device *d, limn_step *s);
int limn_cpu_linalg_prepare(limn_device *d, limn_step *s);

#endif
