/* The kinds of matrix product on the CPU: a tile of each. */
#include "cpu_matmul.h"
#ifndef LIMN_NO_BLAS
#include <cblas.h>
#undef I /* complex.h's */
#endif

static void matmul_gemm(const matmul_tile *t, float *scratch) {
  const cpu_matmul *k = t->k;
  const float *a = (const float *)(const void *)t->a;
  limn_gemm_out out = {(float *)(void *)t->c, k->N,
                       (const float *)(const void *)t->bias, false,
                       (const float *)(const void *)t->add, k->ldadd};
  if (t->packed)
    k->gemm->run_packed(t->m0, t->m1, t->n0, t->n1, k->K, k->N, a, k->ars,
                        k->acs, t->packed, &out);
  else
    k->gemm->run(t->m0, t->m1, t->n0, t->n1, k->K, k->N, a, k->ars, k->acs,
                 (const float *)(const void *)t->b, k->brs, k->bcs, &out,
                 scratch);
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
    k->gemm->run(0, m, 0, n, depth, n, a, ars, acs, b, brs, bcs,
                 &(limn_gemm_out){.c = c, .ldc = n, .acc = at > 0,
                                  .bias = t->bias && !at ? bias : NULL},
                 rest);
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

void limn_matmul_tile(const matmul_tile *t, float *scratch) {
  switch (t->k->how) {
    case BY_GEMM: matmul_gemm(t, scratch); break;
    case BY_BLAS: matmul_by_blas(t); break;
    case BY_HALF: matmul_half_tile(t, scratch); break;
    default: matmul_by_loop(t);
  }
}

int64_t limn_matmul_scratch(const cpu_matmul *k) {
  if (k->how == BY_GEMM) return k->gemm->scratch_size(k->K, k->N);
  if (k->how != BY_HALF) return 0;
  return HALF_ROWS * HALF_DEPTH + HALF_DEPTH * HALF_COLUMNS +
         HALF_ROWS * HALF_COLUMNS + HALF_COLUMNS +
         k->gemm->scratch_size(HALF_DEPTH, HALF_COLUMNS);
}

bool limn_matmul_fits_blas(const cpu_matmul *k) {
  int64_t ld;
#ifdef LIMN_NO_BLAS
  return false;
#endif
  return k->M <= INT32_MAX && k->N <= INT32_MAX && k->K <= INT32_MAX &&
         matmul_turned(k->M, k->K, k->ars, k->acs, &ld) >= 0 &&
         matmul_turned(k->K, k->N, k->brs, k->bcs, &ld) >= 0 && k->K > 0;
}
