/* cuBLAS and what cublasLt shares with it: OpenBLAS makes the products, which
 * run in the stream as kernels do. */
#include "standin.h"

#include <cblas.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BLAS_NOT_INITIALIZED = 1, BLAS_INVALID = 7, BLAS_FAILED = 13,
       BLAS_UNSUPPORTED = 15 };

static size_t blas_size(int type) {
  return type == CUBLAS_R_64F ? 8 : type == CUBLAS_R_32F ? 4 : 2;
}

static bool blas_type(int type) {
  return type == CUBLAS_R_32F || type == CUBLAS_R_64F ||
         type == CUBLAS_R_16F || type == CUBLAS_R_16BF;
}

/* -- Elements -------------------------------------------------------------- */

static float blas_bits(uint32_t u) {
  float f;
  memcpy(&f, &u, sizeof f);
  return f;
}

static double blas_half(uint16_t h) {
  int e = h >> 10 & 31, m = h & 0x3ff;
  double v = e == 31  ? (m ? NAN : INFINITY)
             : e == 0 ? ldexp(m, -24)
                      : ldexp(m + 1024, e - 25);
  return h & 0x8000 ? -v : v;
}

/* Rounds to even at 11 bits, by the arithmetic of doubles. */
static uint16_t blas_to_half(float f) {
  double a = fabs((double)f), q;
  uint16_t sign = signbit(f) ? 0x8000 : 0;
  int e;
  if (f != f) return sign | 0x7e00;
  if (a >= 65520) return sign | 0x7c00;
  if (a < ldexp(1, -14)) return sign | (uint16_t)rint(ldexp(a, 24));
  frexp(a, &e);
  q = rint(ldexp(a, 11 - e)); /* 1024 to 2048: 2048 carries by itself */
  return sign | (uint16_t)((uint32_t)(e + 13) * 1024 + (uint32_t)q);
}

double standin_load(const void *p, int64_t i, int type) {
  switch (type) {
  case CUBLAS_R_64F: return ((const double *)p)[i];
  case CUBLAS_R_32F: return ((const float *)p)[i];
  case CUBLAS_R_16F: return blas_half(((const uint16_t *)p)[i]);
  default: return blas_bits((uint32_t)((const uint16_t *)p)[i] << 16);
  }
}

static uint16_t blas_to_bf16(float f) {
  uint32_t x;
  memcpy(&x, &f, sizeof x);
  if ((x & 0x7fffffff) > 0x7f800000u) return (uint16_t)(x >> 16 | 0x40);
  return (uint16_t)((x + 0x7fff + (x >> 16 & 1)) >> 16);
}

void standin_store(void *p, int64_t i, int type, double v) {
  switch (type) {
  case CUBLAS_R_64F: ((double *)p)[i] = v; break;
  case CUBLAS_R_32F: ((float *)p)[i] = (float)v; break;
  case CUBLAS_R_16F: ((uint16_t *)p)[i] = blas_to_half((float)v); break;
  default: ((uint16_t *)p)[i] = blas_to_bf16((float)v); break;
  }
}

/* As many bits as TF32 keeps. */
double standin_tf32(double v) {
  float f = (float)v;
  uint32_t x;
  memcpy(&x, &f, sizeof x);
  return blas_bits((x + 0xfff + (x >> 13 & 1)) & ~0x1fffu);
}

/* -- Products -------------------------------------------------------------- */

/* Whether a matrix can be read where it lies: no conversion is wanted. */
static bool blas_as_is(const standin_gemm *g, int type) {
  return g->by != CUBLAS_BY_TF32 &&
         type == (g->by == CUBLAS_BY_64F ? CUBLAS_R_64F : CUBLAS_R_32F);
}

/* A matrix of `rows` x `cols` as floats, column after column without gaps. */
static float *blas_pack(const standin_gemm *g, const char *p, int type,
                        int64_t ld, int64_t rows, int64_t cols) {
  float *out = standin_new(sizeof *out * (size_t)(rows * cols));
  int64_t i, j;
  for (j = 0; j < cols; j++)
    for (i = 0; i < rows; i++) {
      double v = standin_load(p, i + j * ld, type);
      if (g->by == CUBLAS_BY_TF32) v = standin_tf32(v);
      out[i + j * rows] = (float)v;
    }
  return out;
}

/* sum[m, n] = a[m, k] b[k, n] */
static void blas_product(const standin_gemm *g, void *sum, const void *a,
                         int64_t lda, const void *b, int64_t ldb) {
  int ta = g->ta ? CblasTrans : CblasNoTrans;
  int tb = g->tb ? CblasTrans : CblasNoTrans;
  int m = (int)g->m, n = (int)g->n, k = (int)g->k;
  if (g->by == CUBLAS_BY_64F)
    cblas_dgemm(CblasColMajor, ta, tb, m, n, k, 1, a, (int)lda, b, (int)ldb, 0,
                sum, m);
  else
    cblas_sgemm(CblasColMajor, ta, tb, m, n, k, 1, a, (int)lda, b, (int)ldb, 0,
                sum, m);
}

/* One entry of the batch: its product as doubles or floats, in new memory. */
static void *blas_one(const standin_gemm *g, const char *a, const char *b) {
  int64_t ra = g->ta ? g->k : g->m, ca = g->ta ? g->m : g->k;
  int64_t rb = g->tb ? g->n : g->k, cb = g->tb ? g->k : g->n;
  size_t size = g->by == CUBLAS_BY_64F ? sizeof(double) : sizeof(float);
  void *sum = standin_new(size * (size_t)(g->m * g->n));
  void *x = NULL, *y = NULL;
  int64_t lda = g->lda, ldb = g->ldb;
  if (!blas_as_is(g, g->type[0]))
    x = blas_pack(g, a, g->type[0], lda, ra, ca), lda = ra;
  if (!blas_as_is(g, g->type[1]))
    y = blas_pack(g, b, g->type[1], ldb, rb, cb), ldb = rb;
  if (g->m && g->n && g->k)
    blas_product(g, sum, x ? x : (const void *)a, lda,
                 y ? y : (const void *)b, ldb);
  free(x);
  free(y);
  return sum;
}

static const char *blas_at(cu_ptr p, int64_t elements, int type) {
  return (const char *)standin_real(p) + elements * (int64_t)blas_size(type);
}

void standin_gemm_run(const standin_gemm *g) {
  bool wide = g->by == CUBLAS_BY_64F;
  int64_t e, i, j;
  for (e = 0; e < g->batch; e++) {
    void *sum = blas_one(g, blas_at(g->a, e * g->sa, g->type[0]),
                         blas_at(g->b, e * g->sb, g->type[1]));
    char *c = (char *)(uintptr_t)blas_at(g->c, e * g->sc, g->type[2]);
    for (j = 0; j < g->n; j++)
      for (i = 0; i < g->m; i++) {
        int64_t at = i + j * g->m;
        double v = wide ? ((double *)sum)[at] : (double)((float *)sum)[at];
        v *= g->alpha;
        if (g->beta != 0)
          v += g->beta * standin_load(c, i + j * g->ldc, g->type[2]);
        if (g->bias)
          v += standin_load(standin_real(g->bias), i, g->bias_type);
        standin_store(c, i + j * g->ldc, g->type[2], v);
      }
    free(sum);
  }
}

/* Elements from a matrix's first to the one after its last. */
static size_t blas_extent(int64_t rows, int64_t cols, int64_t ld, int64_t batch,
                          int64_t stride) {
  if (!rows || !cols || !batch) return 0;
  return (size_t)((batch - 1) * stride + (cols - 1) * ld + rows);
}

int standin_gemm_check(struct cu_context *c, const standin_gemm *g,
                       bool queued) {
  int64_t ra = g->ta ? g->k : g->m, ca = g->ta ? g->m : g->k;
  int64_t rb = g->tb ? g->n : g->k, cb = g->tb ? g->k : g->n;
  int rc = 0;
  if (g->m < 0 || g->n < 0 || g->k < 0 || g->batch < 0 ||
      g->lda < (ra > 1 ? ra : 1) || g->ldb < (rb > 1 ? rb : 1) ||
      g->ldc < (g->m > 1 ? g->m : 1))
    return standin_bad(BLAS_INVALID, "sizes or leading dimensions");
  rc = standin_range(c, g->a, blas_size(g->type[0]) *
                     blas_extent(ra, ca, g->lda, g->batch, g->sa), queued, "A");
  if (!rc)
    rc = standin_range(c, g->b, blas_size(g->type[1]) *
                       blas_extent(rb, cb, g->ldb, g->batch, g->sb), queued,
                       "B");
  if (!rc)
    rc = standin_range(c, g->c, blas_size(g->type[2]) *
                       blas_extent(g->m, g->n, g->ldc, g->batch, g->sc), queued,
                       "C");
  if (!rc && g->bias)
    rc = standin_range(c, g->bias, blas_size(g->bias_type) * (size_t)g->m,
                       queued, "the bias");
  return rc ? BLAS_INVALID : 0;
}

double standin_scalar(const void *p, int by) {
  return by == CUBLAS_BY_64F ? *(const double *)p : *(const float *)p;
}

void standin_other_nodes(struct cu_stream *s) {
  static unsigned count;
  unsigned n = s->capture ? count++ % 3 : 0;
  while (n--) standin_queue(s, standin_op_new(SI_OP_MARK));
}

int standin_gemm_queue(struct cu_context *c, struct cu_stream *s,
                       const standin_gemm *g) {
  standin_op *op;
  bool wide = g->by == CUBLAS_BY_64F;
  int rc, i;
  for (i = 0; i < 3; i++)
    if (!blas_type(g->type[i]) || (g->type[i] == CUBLAS_R_64F) != wide)
      return standin_bad(BLAS_UNSUPPORTED, "type %d computed in %d", g->type[i],
                         g->by);
  if (g->type[0] != g->type[1])
    return standin_bad(BLAS_UNSUPPORTED, "A and B of two types");
  if (g->type[0] == CUBLAS_R_16BF && standin_arch(c->device) < 80)
    return BLAS_UNSUPPORTED; /* an honest question, as the benchmark's */
  if (!s) return standin_bad(BLAS_INVALID, "no stream was set");
  rc = standin_gemm_check(c, g, true);
  if (rc) return rc;
  standin_other_nodes(s);
  op = standin_op_new(SI_OP_GEMM);
  op->gemm = standin_new(sizeof *g);
  *op->gemm = *g;
  return standin_queue(s, op) ? BLAS_FAILED : 0;
}

/* -- cuBLAS ---------------------------------------------------------------- */

struct cublas_handle {
  standin_object o;
  struct cu_stream *stream;
  size_t workspace; /* bytes that it was given for this stream */
  int math;
};
#define HANDLE(h, kind)                                         \
  do {                                                          \
    if (standin_check(h, kind)) return BLAS_NOT_INITIALIZED;    \
  } while (0)

STANDIN_API int cublasCreate_v2(cublas_handle *out) {
  struct cu_context *c;
  ENTER(cublasCreate_v2);
  if (standin_current(&c)) return BLAS_NOT_INITIALIZED;
  *out = standin_object_new(SI_BLAS, sizeof **out, c);
  return 0;
}

STANDIN_API int cublasDestroy_v2(cublas_handle h) {
  ENTER(cublasDestroy_v2);
  HANDLE(h, SI_BLAS);
  standin_object_end(h);
  return 0;
}

STANDIN_API int cublasGetVersion_v2(cublas_handle h, int *version) {
  ENTER(cublasGetVersion_v2);
  (void)h;
  *version = 130000;
  return 0;
}

STANDIN_API int cublasSetStream_v2(cublas_handle h, cu_stream s) {
  ENTER(cublasSetStream_v2);
  HANDLE(h, SI_BLAS);
  HANDLE(s, SI_STREAM);
  h->stream = s;
  h->workspace = 0; /* as documented: the default one is in use again */
  return 0;
}

STANDIN_API int cublasSetWorkspace_v2(cublas_handle h, void *p, size_t bytes) {
  ENTER(cublasSetWorkspace_v2);
  HANDLE(h, SI_BLAS);
  if ((uintptr_t)p % 256)
    return standin_bad(BLAS_INVALID, "the workspace must be aligned to 256");
  if (standin_range(h->o.owner, (cu_ptr)(uintptr_t)p, bytes, true,
                    "the workspace"))
    return BLAS_INVALID;
  h->workspace = bytes;
  return 0;
}

STANDIN_API int cublasSetMathMode(cublas_handle h, int mode) {
  ENTER(cublasSetMathMode);
  HANDLE(h, SI_BLAS);
  h->math = mode;
  return 0;
}

/* Without a workspace the library takes memory when it likes. */
static int blas_queue(cublas_handle h, const standin_gemm *g) {
  if (h->stream && h->stream->capture && !h->workspace) {
    h->stream->spoilt = true;
    return standin_bad(BLAS_FAILED, "a product is captured without workspace");
  }
  return standin_gemm_queue(h->o.owner, h->stream, g);
}

STANDIN_API int cublasGemmStridedBatchedEx(
    cublas_handle h, int ta, int tb, int m, int n, int k, const void *alpha,
    const void *a, int at, int lda, long long sa, const void *b, int bt,
    int ldb, long long sb, const void *beta, void *c, int ct, int ldc,
    long long sc, int batch, int by, int algo) {
  standin_gemm g = {{at, bt, ct}, by, ta != CUBLAS_NO, tb != CUBLAS_NO, m, n, k,
                    batch, lda, ldb, ldc, sa, sb, sc, 0, 0, 0, 0, 0, 0, 0};
  ENTER(cublasGemmStridedBatchedEx);
  (void)algo;
  HANDLE(h, SI_BLAS);
  g.alpha = standin_scalar(alpha, by);
  g.beta = standin_scalar(beta, by);
  g.a = (cu_ptr)(uintptr_t)a;
  g.b = (cu_ptr)(uintptr_t)b;
  g.c = (cu_ptr)(uintptr_t)c;
  return blas_queue(h, &g);
}

STANDIN_API int cublasGemmEx(cublas_handle h, int ta, int tb, int m, int n,
                             int k, const void *alpha, const void *a, int at,
                             int lda, const void *b, int bt, int ldb,
                             const void *beta, void *c, int ct, int ldc, int by,
                             int algo) {
  standin_gemm g = {{at, bt, ct}, by, ta != CUBLAS_NO, tb != CUBLAS_NO, m, n, k,
                    1, lda, ldb, ldc, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  ENTER(cublasGemmEx);
  (void)algo;
  HANDLE(h, SI_BLAS);
  g.alpha = standin_scalar(alpha, by);
  g.beta = standin_scalar(beta, by);
  g.a = (cu_ptr)(uintptr_t)a;
  g.b = (cu_ptr)(uintptr_t)b;
  g.c = (cu_ptr)(uintptr_t)c;
  return blas_queue(h, &g);
}
