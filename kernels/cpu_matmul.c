/* Matrix products on the CPU: [batch..., M, K] * [batch..., K, N].
 *
 * float32 goes to limn's own kernels (cpu_gemm.h), float64 and very large
 * float32 products to OpenBLAS, halves are converted block by block, and the
 * rest has a plain loop. A product is cut into tiles by its shape alone, never
 * along K, so that results do not depend on the number of threads. After its
 * product a tile runs the epilogue over its rows while they are in cache.
 *
 * A right operand that is a cell's value is kept packed with the cell from the
 * second run on that sees the same version of it. */
#include "cpu_kernels.h"
#ifndef LIMN_NO_BLAS
#include <cblas.h>
#undef I /* complex.h's */
#endif

enum {
  ONE = 200000,      /* products up to so many multiplications stay whole */
  ROWS = 256,        /* of a tile */
  COLUMNS = 256,
  ENOUGH = 8,        /* tiles that a product is cut into if it can be */
  HALF_ROWS = 96,    /* blocks of halves, converted to float */
  HALF_COLUMNS = 128,
  HALF_DEPTH = 512,
  PACKED = 1         /* cell->derived_layout */
};
static const double matmul_blas = 5e8; /* M*N*K from which OpenBLAS is faster */

enum { BY_GEMM, BY_BLAS, BY_HALF, BY_LOOP };

/* What a packed copy in cell->derived is a copy of; stands before it. */
typedef struct {
  int64_t K, N, brs, bcs, offset;
  const limn_gemm_kernels *gemm;
  char pad[16];
} matmul_head;
_Static_assert(sizeof(matmul_head) == 64, "keeps the copy aligned");

typedef struct {
  const limn_gemm_kernels *gemm;
  const limn_cpu_loops *loops;
  int how, dtype, size;
  int64_t M, N, K, ars, acs, brs, bcs;
  /* Batch dims that are left, outermost first; as, bs: strides. */
  int nb;
  int64_t bd[LIMN_MAXDIM], as[LIMN_MAXDIM], bs[LIMN_MAXDIM], batches;
  int64_t tm, tn, mb, wb; /* tiles per product, their rows and columns */
  /* Right operands that may be kept packed: one for all batches. */
  bool keeps;
  matmul_head head;
  /* Epilogue: collapsed views of out and the inputs from in[3] on. */
  limn_cpu_prog *prog;
  int nextra;
  limn_view out, extra[LIMN_STEP_IN];
  size_t scratch; /* bytes that a tile needs */
} cpu_matmul;

/* One tile: its part of C, and where the operands are. */
typedef struct {
  const cpu_matmul *k;
  const char *a, *b, *bias; /* of the whole product; bias may be NULL */
  const float *packed;      /* or NULL */
  char *c;
  int64_t m0, m1, n0, n1;
} matmul_tile;

/* -- the kinds of product -- */

static void matmul_gemm(const matmul_tile *t, float *scratch) {
  const cpu_matmul *k = t->k;
  const float *a = (const float *)(const void *)t->a;
  const float *bias = (const float *)(const void *)t->bias;
  float *c = (float *)(void *)t->c;
  if (t->packed)
    k->gemm->run_packed(t->m0, t->m1, t->n0, t->n1, k->K, k->N, a, k->ars,
                        k->acs, t->packed, c, k->N, bias, false);
  else
    k->gemm->run(t->m0, t->m1, t->n0, t->n1, k->K, k->N, a, k->ars, k->acs,
                 (const float *)(const void *)t->b, k->brs, k->bcs, c, k->N,
                 bias, false, scratch);
}

/* BLAS wants one stride of 1 and the other, ld, no less than a line: whether
 * the operand is to be taken transposed, or -1 when it does not fit. */
static int matmul_turned(int64_t rows, int64_t cols, int64_t rs, int64_t cs,
                         int64_t *ld) {
  if ((cs == 1 || cols == 1) && (rs >= LIMN_MAX(cols, 1) || rows == 1)) {
    *ld = rows == 1 ? LIMN_MAX(cols, 1) : rs;
    return *ld <= INT32_MAX ? 0 : -1;
  }
  if ((rs == 1 || rows == 1) && (cs >= LIMN_MAX(rows, 1) || cols == 1)) {
    *ld = cols == 1 ? LIMN_MAX(rows, 1) : cs;
    return *ld <= INT32_MAX ? 1 : -1;
  }
  return -1;
}

#ifdef LIMN_NO_BLAS
static void matmul_by_blas(const matmul_tile *t) { (void)t; }
#else
/* C starts as the bias, or is replaced. */
static double matmul_start(const matmul_tile *t) {
  const cpu_matmul *k = t->k;
  int64_t m, w = t->n1 - t->n0;
  if (!t->bias) return 0;
  for (m = t->m0; m < t->m1; m++)
    memcpy(t->c + (m * k->N + t->n0) * k->size, t->bias + t->n0 * k->size,
           (size_t)(w * k->size));
  return 1;
}

static void matmul_by_blas(const matmul_tile *t) {
  const cpu_matmul *k = t->k;
  int64_t lda = 1, ldb = 1;
  CBLAS_TRANSPOSE ta = CblasNoTrans, tb = CblasNoTrans;
  const char *a = t->a + t->m0 * k->ars * k->size;
  const char *b = t->b + t->n0 * k->bcs * k->size;
  char *c = t->c + (t->m0 * k->N + t->n0) * k->size;
  int m = (int)(t->m1 - t->m0), n = (int)(t->n1 - t->n0), depth = (int)k->K;
  double beta = matmul_start(t);
  if (matmul_turned(k->M, k->K, k->ars, k->acs, &lda)) ta = CblasTrans;
  if (matmul_turned(k->K, k->N, k->brs, k->bcs, &ldb)) tb = CblasTrans;
  if (k->dtype == LIMN_F32)
    cblas_sgemm(CblasRowMajor, ta, tb, m, n, depth, 1,
                (const float *)(const void *)a, (int)lda,
                (const float *)(const void *)b, (int)ldb, (float)beta,
                (float *)(void *)c, (int)k->N);
  else if (m == 1)
    cblas_dgemv(CblasRowMajor, tb == CblasTrans ? CblasNoTrans : CblasTrans,
                tb == CblasTrans ? n : depth, tb == CblasTrans ? depth : n, 1,
                (const double *)(const void *)b, (int)ldb,
                (const double *)(const void *)a,
                ta == CblasTrans ? (int)lda : 1, beta,
                (double *)(void *)c, 1);
  else
    cblas_dgemm(CblasRowMajor, ta, tb, m, n, depth, 1,
                (const double *)(const void *)a, (int)lda,
                (const double *)(const void *)b, (int)ldb, beta,
                (double *)(void *)c, (int)k->N);
}
#endif

/* rows x cols of halves to floats, rows `cols` apart, along the dense dim. */
static void matmul_widen(const cpu_matmul *k, const char *p, int64_t rs,
                         int64_t cs, int64_t rows, int64_t cols, float *out) {
  int64_t i;
  for (i = 0; i < rows; i++)
    k->loops->load[CPU_F32](k->dtype, p + i * rs * 2, cs, cols,
                            out + i * cols);
}

/* A block of an operand as floats: keeps its orientation, so that reads are
 * dense. Sets the strides that it has now. */
static void matmul_block(const cpu_matmul *k, const char *p, int64_t rs,
                         int64_t cs, int64_t rows, int64_t cols, float *out,
                         int64_t *ors, int64_t *ocs) {
  if (cs == 1 || rs != 1) {
    matmul_widen(k, p, rs, cs, rows, cols, out);
    *ors = cols, *ocs = 1;
  } else {
    matmul_widen(k, p, cs, rs, cols, rows, out);
    *ors = 1, *ocs = rows;
  }
}

static void matmul_half_tile(const matmul_tile *t, float *scratch) {
  const cpu_matmul *k = t->k;
  float *a = scratch, *b = a + HALF_ROWS * HALF_DEPTH;
  float *c = b + HALF_DEPTH * HALF_COLUMNS;
  float *bias = c + HALF_ROWS * HALF_COLUMNS, *rest = bias + HALF_COLUMNS;
  int64_t m = t->m1 - t->m0, n = t->n1 - t->n0, at = 0, depth, i;
  int64_t ars, acs, brs, bcs;
  if (t->bias)
    k->loops->load[CPU_F32](k->dtype, t->bias + t->n0 * 2, 1, n, bias);
  do {
    depth = LIMN_MIN(k->K - at, HALF_DEPTH);
    matmul_block(k, t->a + (t->m0 * k->ars + at * k->acs) * 2, k->ars, k->acs,
                 m, depth, a, &ars, &acs);
    matmul_block(k, t->b + (at * k->brs + t->n0 * k->bcs) * 2, k->brs, k->bcs,
                 depth, n, b, &brs, &bcs);
    k->gemm->run(0, m, 0, n, depth, n, a, ars, acs, b, brs, bcs, c, n,
                 t->bias && !at ? bias : NULL, at > 0, rest);
    at += depth;
  } while (at < k->K);
  for (i = 0; i < m; i++)
    k->loops->store(k->dtype, t->c + ((t->m0 + i) * k->N + t->n0) * 2,
                    c + i * n, n);
}

/* Everything else. Ints wrap, so they are multiplied unsigned, and a bool is
 * whether any pair of both is true. C is built a row at a time, in B's order
 * when its rows are dense. */
#define LOOP(name, T, W, plus)                                              \
  static void matmul_loop_##name(const matmul_tile *t) {                    \
    const cpu_matmul *k = t->k;                                             \
    const T *a = (const T *)(const void *)t->a;                             \
    const T *b = (const T *)(const void *)t->b;                             \
    const T *bias = (const T *)(const void *)t->bias;                       \
    int64_t m, n, i, n0, w;                                                 \
    W acc[64];                                                              \
    for (m = t->m0; m < t->m1; m++)                                         \
      for (n0 = t->n0; n0 < t->n1; n0 += w) {                               \
        T *c = (T *)(void *)t->c + m * k->N + n0;                           \
        w = LIMN_MIN(64, t->n1 - n0);                                       \
        for (n = 0; n < w; n++) acc[n] = bias ? (W)bias[n0 + n] : 0;        \
        for (i = 0; i < k->K; i++) {                                        \
          W x = (W)a[m * k->ars + i * k->acs];                              \
          const T *y = b + i * k->brs + n0 * k->bcs;                        \
          for (n = 0; n < w; n++) acc[n] = plus(acc[n], x, (W)y[n * k->bcs]); \
        }                                                                   \
        for (n = 0; n < w; n++) c[n] = (T)acc[n];                           \
      }                                                                     \
  }
#define LOOP_PLUS(acc, x, y) ((acc) + (x) * (y))
#define LOOP_OR(acc, x, y) ((acc) | ((x) && (y)))
LOOP(f64, double, double, LOOP_PLUS)
LOOP(f32, float, double, LOOP_PLUS)
LOOP(i64, int64_t, uint64_t, LOOP_PLUS)
LOOP(i32, int32_t, uint32_t, LOOP_PLUS)
LOOP(i8, int8_t, uint32_t, LOOP_PLUS)
LOOP(u8, uint8_t, uint32_t, LOOP_PLUS)
LOOP(bool, uint8_t, uint32_t, LOOP_OR)

static void matmul_by_loop(const matmul_tile *t) {
  switch (t->k->dtype) {
    case LIMN_F64: matmul_loop_f64(t); break;
    case LIMN_F32: matmul_loop_f32(t); break;
    case LIMN_I64: matmul_loop_i64(t); break;
    case LIMN_I32: matmul_loop_i32(t); break;
    case LIMN_I8: matmul_loop_i8(t); break;
    case LIMN_U8: matmul_loop_u8(t); break;
    case LIMN_BOOL: matmul_loop_bool(t); break;
  }
}

/* -- epilogue -- */

/* Elements [lo, hi) of out, which are consecutive in it. */
static void matmul_epilogue_run(const cpu_matmul *k, const limn_step *s,
                                const limn_bind *b, int64_t lo, int64_t hi) {
  const void *in[LIMN_STEP_IN];
  int64_t stride[LIMN_STEP_IN], n;
  char *c = limn_cpu_at(b, &s->out[0]);
  int last = k->out.ndim - 1, i, d;
  for (; lo < hi; lo += n) {
    int64_t rest = lo, at[LIMN_MAXDIM] = {0};
    void *out = c + lo * k->size;
    n = hi - lo;
    for (d = last; d > 0; d--) at[d] = rest % k->out.d[d], rest /= k->out.d[d];
    at[0] = rest;
    if (last >= 0) n = LIMN_MIN(n, k->out.d[last] - at[last]);
    in[0] = out;
    stride[0] = 1;
    for (i = 0; i < k->nextra; i++) {
      const limn_view *v = &k->extra[i];
      int64_t off = 0;
      for (d = 0; d <= last; d++) off += at[d] * v->s[d];
      in[i + 1] = limn_cpu_at(b, &s->in[3 + i]) +
                  off * limn_dtype_size(s->in[3 + i].dtype);
      stride[i + 1] = last >= 0 ? v->s[last] : 0;
    }
    limn_cpu_prog_run(k->prog, b, in, stride, &out, n, lo);
  }
}

static void matmul_epilogue(const matmul_tile *t, const limn_step *s,
                            const limn_bind *b, int64_t batch) {
  const cpu_matmul *k = t->k;
  int64_t row = batch * k->M, m;
  if (t->n0 == 0 && t->n1 == k->N) {
    matmul_epilogue_run(k, s, b, (row + t->m0) * k->N, (row + t->m1) * k->N);
    return;
  }
  for (m = row + t->m0; m < row + t->m1; m++)
    matmul_epilogue_run(k, s, b, m * k->N + t->n0, m * k->N + t->n1);
}

/* -- running -- */

/* The packed copy, if it is of this version and this view. */
static const float *matmul_copy(const cpu_matmul *k, const limn_derived *d,
                                uint64_t version) {
  if (!d->data || d->version != version || d->layout != PACKED) return NULL;
  if (memcmp(d->data, &k->head, sizeof k->head)) return NULL;
  return (const float *)((const char *)d->data + sizeof k->head);
}

static const float *matmul_packed(const cpu_matmul *k, const limn_slot *slot) {
  const limn_cell *cell = slot->cell;
  const limn_loop_value *loop = slot->loop;
  const float *p = NULL;
  if (!k->keeps) return NULL;
  if (cell) p = matmul_copy(k, &cell->derived, cell->version);
  if (!p && loop) p = matmul_copy(k, &loop->derived, loop->version);
  return p;
}

static void matmul_product(const matmul_tile *t, limn_cpu *cpu) {
  const cpu_matmul *k = t->k;
  float *scratch = NULL;
  int slot = 0;
  bool takes = k->scratch && !t->packed;
  if (takes) scratch = limn_cpu_take(cpu, &slot);
  if (k->how == BY_GEMM) matmul_gemm(t, scratch);
  else if (k->how == BY_BLAS) matmul_by_blas(t);
  else if (k->how == BY_HALF) matmul_half_tile(t, scratch);
  else matmul_by_loop(t);
  if (takes) limn_cpu_give(cpu, slot);
}

static void matmul_operands(const cpu_matmul *k, const limn_step *s,
                            const limn_bind *b, matmul_tile *t) {
  t->k = k;
  t->a = limn_cpu_at(b, &s->in[0]);
  t->b = limn_cpu_at(b, &s->in[1]);
  t->c = limn_cpu_at(b, &s->out[0]);
  t->bias = s->bias ? limn_cpu_at(b, &s->in[2]) : NULL;
  t->packed = matmul_packed(k, &b->slot[s->in[1].slot]);
}

static void matmul_run(const limn_step *s, const limn_bind *b, int64_t t0,
                       int64_t t1) {
  const cpu_matmul *k = s->code;
  limn_cpu *cpu = limn_cpu_bound(b);
  int64_t per = k->tm * k->tn, d;
  matmul_tile all;
  matmul_operands(k, s, b, &all);
  for (; t0 < t1; t0++) {
    int64_t batch = t0 / per, i = t0 % per, rest = batch;
    matmul_tile t = all;
    for (d = k->nb - 1; d >= 0; d--) {
      t.a += rest % k->bd[d] * k->as[d] * k->size;
      t.b += rest % k->bd[d] * k->bs[d] * k->size;
      rest /= k->bd[d];
    }
    t.c += batch * k->M * k->N * k->size;
    t.m0 = i / k->tn * k->mb;
    t.m1 = LIMN_MIN(t.m0 + k->mb, k->M);
    t.n0 = i % k->tn * k->wb;
    t.n1 = LIMN_MIN(t.n0 + k->wb, k->N);
    matmul_product(&t, cpu);
    if (k->prog) matmul_epilogue(&t, s, b, batch);
  }
}

/* One tile, which small nets are made of. */
static void matmul_run_one(const limn_step *s, const limn_bind *b, int64_t t0,
                           int64_t t1) {
  const cpu_matmul *k = s->code;
  matmul_tile t;
  if (t0 == t1) return;
  matmul_operands(k, s, b, &t);
  t.m0 = t.n0 = 0;
  t.m1 = k->M, t.n1 = k->N;
  if (t.packed) matmul_gemm(&t, NULL);
  else matmul_product(&t, limn_cpu_bound(b));
  if (k->prog) matmul_epilogue(&t, s, b, 0);
}

/* Without memory the product does without. */
static void matmul_keep(const cpu_matmul *k, const limn_step *s,
                        const limn_bind *b, limn_derived *d, uint64_t version) {
  size_t size = sizeof k->head +
                (size_t)k->gemm->packed_size(k->K, k->N) * sizeof(float);
  char *p = d->data;
  if (p && d->size != size) {
    limn_realloc(b->c, p, d->size, 0, 64);
    d->data = p = NULL;
    d->size = 0;
  }
  if (!p) p = limn_realloc(b->c, NULL, 0, size, 64);
  if (!p) return;
  memcpy(p, &k->head, sizeof k->head);
  k->gemm->pack(k->K, k->N,
                (const float *)(const void *)limn_cpu_at(b, &s->in[1]),
                k->brs, k->bcs, (float *)(void *)(p + sizeof k->head));
  *d = (limn_derived){p, size, version, PACKED};
}

/* A new version is packed at once: packed and unpacked products may differ in
 * the last bits, and a run repeated gives the same ones. A copy that is valid
 * for another view is left alone: two steps would else take turns. */
void limn_cpu_matmul_begin(const limn_step *s, const limn_bind *b) {
  cpu_matmul *k = s->code;
  const limn_slot *slot = &b->slot[s->in[1].slot];
  limn_cell *cell = slot->cell;
  limn_loop_value *loop = slot->loop;
  if (!k->keeps) return;
  if (cell && !(cell->derived.data && cell->derived.version == cell->version))
    matmul_keep(k, s, b, &cell->derived, cell->version);
  if (!loop || matmul_packed(k, slot)) return;
  if (loop->derived.version != loop->version)
    matmul_keep(k, s, b, &loop->derived, loop->version);
}

/* -- preparing -- */

static void matmul_shape(cpu_matmul *k, const limn_step *s) {
  const limn_view *a = &s->in[0].v, *b = &s->in[1].v, *o = &s->out[0].v;
  int n = o->ndim, i, ad = a->ndim - 2, bd = b->ndim - 2;
  k->M = o->d[n - 2], k->N = o->d[n - 1], k->K = a->d[a->ndim - 1];
  k->ars = a->s[ad], k->acs = a->s[ad + 1];
  k->brs = b->s[bd], k->bcs = b->s[bd + 1];
  for (i = 0; i < n - 2; i++) {
    int64_t as, bs;
    if (o->d[i] == 1) continue;
    as = i - (n - 2 - ad) < 0 ? 0 : a->s[i - (n - 2 - ad)];
    bs = i - (n - 2 - bd) < 0 ? 0 : b->s[i - (n - 2 - bd)];
    k->bd[k->nb] = o->d[i], k->as[k->nb] = as, k->bs[k->nb] = bs;
    k->nb++;
  }
}

/* Batches of rows that share the right operand are more rows of it. */
static void matmul_merge(cpu_matmul *k) {
  while (k->nb && k->bs[k->nb - 1] == 0 &&
         (k->M == 1 || k->as[k->nb - 1] == k->M * k->ars)) {
    k->nb--;
    if (k->M == 1) k->ars = k->as[k->nb];
    k->M *= k->bd[k->nb];
  }
  k->batches = limn_numel(k->nb, k->bd);
}

static bool matmul_fits_blas(const cpu_matmul *k) {
  int64_t ld;
#ifdef LIMN_NO_BLAS
  return false;
#endif
  return k->M <= INT32_MAX && k->N <= INT32_MAX && k->K <= INT32_MAX &&
         matmul_turned(k->M, k->K, k->ars, k->acs, &ld) >= 0 &&
         matmul_turned(k->K, k->N, k->brs, k->bcs, &ld) >= 0 && k->K > 0;
}

static int matmul_how(const limn_context *c, const cpu_matmul *k) {
  double work = (double)k->M * (double)k->N * (double)k->K;
  bool blas = matmul_fits_blas(k);
  switch (k->dtype) {
    case LIMN_F32:
      if (blas && (work > matmul_blas || !(c->flags.passes & LIMN_PASS_GEMM)))
        return BY_BLAS;
      return BY_GEMM;
    case LIMN_F64: return blas ? BY_BLAS : BY_LOOP;
    case LIMN_F16: case LIMN_BF16: return BY_HALF;
    default: return BY_LOOP;
  }
}

static int64_t matmul_even(int64_t n, int64_t parts, int64_t unit) {
  int64_t each = (n + parts - 1) / parts;
  return LIMN_MAX((each + unit - 1) / unit * unit, unit);
}

/* Rows are cut when they are many; columns, in panels, until there are tiles
 * enough for threads: each tile packs its own panels of B. One row of A is cut
 * in wide pieces, which the kernel reads B best by. */
static void matmul_cut(cpu_matmul *k) {
  double work = (double)k->M * (double)k->N * (double)k->K;
  int64_t most = (int64_t)(work / ONE) + 1, want, unit = LIMN_GEMM_SPLIT;
  k->mb = LIMN_MAX(k->M, 1), k->wb = LIMN_MAX(k->N, 1);
  if (k->how == BY_HALF) {
    k->mb = LIMN_MIN(k->mb, HALF_ROWS);
    k->wb = LIMN_MIN(k->wb, HALF_COLUMNS);
  } else if (most > 1 && k->batches) {
    if (k->M > ROWS + ROWS / 2)
      k->mb = matmul_even(k->M, (k->M + ROWS - 1) / ROWS, 12);
    k->tm = (k->M + k->mb - 1) / k->mb;
    want = (ENOUGH + k->tm * k->batches - 1) / (k->tm * k->batches);
    want = LIMN_MAX(want, (k->N + COLUMNS - 1) / COLUMNS);
    want = LIMN_MIN(want, most);
    if (k->M == 1) unit = COLUMNS;
    k->wb = LIMN_MIN(k->wb, matmul_even(k->N, want, unit));
  }
  k->tm = (k->M + k->mb - 1) / k->mb;
  k->tn = (k->N + k->wb - 1) / k->wb;
}

/* LOADs name the step's inputs: 0 the product, the rest from 3 on. The
 * program has them side by side. */
static int matmul_epilogue_code(limn_context *c, cpu_matmul *k,
                                const limn_group *g, const uint8_t *in,
                                const uint8_t *out) {
  size_t size = (size_t)g->ncode * sizeof *g->code;
  limn_group own = {g->ncode, limn_alloc(c, size)};
  int rc, i;
  if (!own.code) return LIMN_EMEM;
  memcpy(own.code, g->code, size);
  for (i = 0; i < own.ncode; i++)
    if (own.code[i].op == LIMN_I_LOAD && own.code[i].arg)
      own.code[i].arg = (uint16_t)(own.code[i].arg - 2);
  rc = limn_cpu_prog_new(c, &own, in, k->nextra + 1, out, 1, &k->prog);
  limn_free(c, own.code, size);
  return rc;
}

static int matmul_epilogue_prepare(limn_context *c, cpu_matmul *k,
                                   const limn_step *s) {
  uint8_t in[LIMN_STEP_IN], out = s->out[0].dtype;
  limn_view *views[LIMN_STEP_IN + 1];
  int i;
  if (!s->group) return 0;
  k->nextra = LIMN_MAX(s->nin - 3, 0);
  k->out = s->out[0].v;
  views[0] = &k->out;
  in[0] = s->in[0].dtype;
  for (i = 0; i < k->nextra; i++) {
    k->extra[i] = s->in[3 + i].v;
    k->extra[i].offset = 0; /* limn_cpu_at has it */
    views[i + 1] = &k->extra[i];
    in[i + 1] = s->in[3 + i].dtype;
  }
  limn_view_collapse(views, k->nextra + 1);
  return matmul_epilogue_code(c, k, s->group, in, &out);
}

static int matmul_scratch(limn_device *d, cpu_matmul *k) {
  int64_t floats = 0;
  if (k->how == BY_GEMM)
    floats = k->gemm->scratch_size(k->K, k->N);
  else if (k->how == BY_HALF)
    floats = HALF_ROWS * HALF_DEPTH + HALF_DEPTH * HALF_COLUMNS +
             HALF_ROWS * HALF_COLUMNS + HALF_COLUMNS +
             k->gemm->scratch_size(HALF_DEPTH, HALF_COLUMNS);
  k->scratch = (size_t)floats * sizeof(float);
  return limn_cpu_reserve(d, k->scratch);
}

static double matmul_cost(const cpu_matmul *k) {
  static const double gmacs[] = {50, 25, 40, 1};
  double mn = (double)k->batches * (double)k->M * (double)k->N;
  double cost = mn * (double)k->K / gmacs[k->how] + 10;
  if (k->M == 1) cost *= 2;
  return cost + (k->prog ? mn * 0.5 : 0);
}

int limn_cpu_matmul_prepare(limn_device *d, limn_step *s) {
  cpu_matmul *k;
  int rc, i;
  if (s->in[0].dtype != s->out[0].dtype || s->in[1].dtype != s->out[0].dtype)
    return limn_fail(d->c, LIMN_EDTYPE, "a product of %s and %s into %s",
                     limn_dtype_name(s->in[0].dtype),
                     limn_dtype_name(s->in[1].dtype),
                     limn_dtype_name(s->out[0].dtype));
  k = limn_alloc(d->c, sizeof *k);
  if (!k) return LIMN_EMEM;
  s->code = k;
  k->gemm = limn_cpu_of(d)->gemm;
  k->loops = limn_cpu_of(d)->loops;
  k->dtype = s->out[0].dtype;
  k->size = limn_dtype_size(k->dtype);
  matmul_shape(k, s);
  matmul_merge(k);
  k->how = matmul_how(d->c, k);
  matmul_cut(k);
  k->head = (matmul_head){k->K, k->N, k->brs, k->bcs, s->in[1].v.offset,
                          k->gemm, {0}};
  k->keeps = k->how == BY_GEMM && (d->c->flags.passes & LIMN_PASS_PREPACK) &&
             k->K && k->N;
  for (i = 0; i < k->nb; i++) k->keeps = k->keeps && k->bs[i] == 0;
  LIMN_GO(matmul_scratch(d, k));
  LIMN_GO(matmul_epilogue_prepare(d->c, k, s));
  s->ntiles = k->batches * k->tm * k->tn;
  s->run = s->ntiles == 1 ? matmul_run_one : matmul_run;
  s->cost_ns = matmul_cost(k);
  return 0;
bail:
  limn_cpu_matmul_discard(d, s);
  s->code = NULL;
  return rc;
}

void limn_cpu_matmul_discard(limn_device *d, limn_step *s) {
  cpu_matmul *k = s->code;
  if (!k) return;
  if (k->prog) limn_cpu_prog_free(d->c, k->prog);
  limn_free(d->c, k, sizeof *k);
}
