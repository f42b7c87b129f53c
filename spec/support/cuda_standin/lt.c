/* cublasLt: products that descriptions say, with a bias. */
#include "standin.h"

#include <string.h>

enum { LT_INVALID = 7, LT_UNSUPPORTED = 15, LT_NOT_INITIALIZED = 1 };

struct cublaslt_handle {
  standin_object o;
};
struct cublaslt_desc {
  standin_object o;
  int by, scale, ta, tb, epilogue, bias_type;
  cu_ptr bias;
};
struct cublaslt_layout {
  standin_object o;
  int type, batch;
  uint64_t rows, cols;
  int64_t ld, stride;
};
struct cublaslt_pref {
  standin_object o;
  size_t workspace;
  uint32_t reductions, align[4]; /* align: of A, B, C and D */
};
#define HANDLE(h, kind)                                    \
  do {                                                     \
    if (standin_check(h, kind)) return LT_INVALID;         \
  } while (0)

STANDIN_API int cublasLtCreate(cublaslt_handle *out) {
  struct cu_context *c;
  ENTER(cublasLtCreate);
  if (standin_current(&c)) return LT_NOT_INITIALIZED;
  *out = standin_object_new(SI_LT, sizeof **out, c);
  return 0;
}

STANDIN_API int cublasLtDestroy(cublaslt_handle h) {
  ENTER(cublasLtDestroy);
  HANDLE(h, SI_LT);
  standin_object_end(h);
  return 0;
}

STANDIN_API int cublasLtMatmulDescCreate(cublaslt_desc *out, int by,
                                         int scale) {
  ENTER(cublasLtMatmulDescCreate);
  *out = standin_object_new(SI_DESC, sizeof **out, NULL);
  (*out)->by = by;
  (*out)->scale = scale;
  (*out)->bias_type = -1; /* as C's */
  return 0;
}

STANDIN_API int cublasLtMatmulDescDestroy(cublaslt_desc d) {
  ENTER(cublasLtMatmulDescDestroy);
  HANDLE(d, SI_DESC);
  standin_object_end(d);
  return 0;
}

static int lt_set(void *field, size_t size, const void *value, size_t bytes) {
  if (size != bytes)
    return standin_bad(LT_INVALID, "an attribute of %zu bytes, not %zu", size,
                       bytes);
  memcpy(field, value, bytes);
  return 0;
}

STANDIN_API int cublasLtMatmulDescSetAttribute(cublaslt_desc d, int what,
                                               const void *value,
                                               size_t bytes) {
  ENTER(cublasLtMatmulDescSetAttribute);
  HANDLE(d, SI_DESC);
  switch (what) {
  case CUBLASLT_TRANSA: return lt_set(&d->ta, sizeof d->ta, value, bytes);
  case CUBLASLT_TRANSB: return lt_set(&d->tb, sizeof d->tb, value, bytes);
  case CUBLASLT_EPILOGUE:
    return lt_set(&d->epilogue, sizeof d->epilogue, value, bytes);
  case CUBLASLT_BIAS: return lt_set(&d->bias, sizeof d->bias, value, bytes);
  case CUBLASLT_BIAS_TYPE:
    return lt_set(&d->bias_type, sizeof d->bias_type, value, bytes);
  default:
    return standin_bad(LT_INVALID, "attribute %d is not stood in for", what);
  }
}

STANDIN_API int cublasLtMatrixLayoutCreate(cublaslt_layout *out, int type,
                                           uint64_t rows, uint64_t cols,
                                           int64_t ld) {
  ENTER(cublasLtMatrixLayoutCreate);
  *out = standin_object_new(SI_LAYOUT, sizeof **out, NULL);
  (*out)->type = type;
  (*out)->rows = rows;
  (*out)->cols = cols;
  (*out)->ld = ld;
  (*out)->batch = 1;
  return 0;
}

STANDIN_API int cublasLtMatrixLayoutDestroy(cublaslt_layout l) {
  ENTER(cublasLtMatrixLayoutDestroy);
  HANDLE(l, SI_LAYOUT);
  standin_object_end(l);
  return 0;
}

STANDIN_API int cublasLtMatrixLayoutSetAttribute(cublaslt_layout l, int what,
                                                 const void *value,
                                                 size_t bytes) {
  ENTER(cublasLtMatrixLayoutSetAttribute);
  HANDLE(l, SI_LAYOUT);
  if (what == CUBLASLT_BATCH)
    return lt_set(&l->batch, sizeof l->batch, value, bytes);
  if (what == CUBLASLT_BATCH_STRIDE)
    return lt_set(&l->stride, sizeof l->stride, value, bytes);
  return standin_bad(LT_INVALID, "attribute %d is not stood in for", what);
}

STANDIN_API int cublasLtMatmulPreferenceCreate(cublaslt_pref *out) {
  ENTER(cublasLtMatmulPreferenceCreate);
  *out = standin_object_new(SI_PREF, sizeof **out, NULL);
  (*out)->reductions = 7;
  return 0;
}

STANDIN_API int cublasLtMatmulPreferenceDestroy(cublaslt_pref p) {
  ENTER(cublasLtMatmulPreferenceDestroy);
  HANDLE(p, SI_PREF);
  standin_object_end(p);
  return 0;
}

STANDIN_API int cublasLtMatmulPreferenceSetAttribute(cublaslt_pref p, int what,
                                                     const void *value,
                                                     size_t bytes) {
  ENTER(cublasLtMatmulPreferenceSetAttribute);
  HANDLE(p, SI_PREF);
  if (what >= CUBLASLT_ALIGN_A && what < CUBLASLT_ALIGN_A + 4)
    return lt_set(&p->align[what - CUBLASLT_ALIGN_A], sizeof p->align[0],
                  value, bytes);
  if (what == CUBLASLT_REDUCTIONS)
    return lt_set(&p->reductions, sizeof p->reductions, value, bytes);
  if (what != CUBLASLT_WORKSPACE)
    return standin_bad(LT_INVALID, "attribute %d is not stood in for", what);
  return lt_set(&p->workspace, sizeof p->workspace, value, bytes);
}

/* Whether the layouts fit each other; fills g but for pointers and scalars. */
static int lt_product(cublaslt_desc d, cublaslt_layout a, cublaslt_layout b,
                      cublaslt_layout c, standin_gemm *g) {
  HANDLE(d, SI_DESC);
  HANDLE(a, SI_LAYOUT);
  HANDLE(b, SI_LAYOUT);
  HANDLE(c, SI_LAYOUT);
  memset(g, 0, sizeof *g);
  g->type[0] = a->type;
  g->type[1] = b->type;
  g->type[2] = c->type;
  g->by = d->by;
  g->ta = d->ta != CUBLAS_NO;
  g->tb = d->tb != CUBLAS_NO;
  g->m = (int64_t)c->rows;
  g->n = (int64_t)c->cols;
  g->k = (int64_t)(g->ta ? a->rows : a->cols);
  g->batch = c->batch;
  g->lda = a->ld;
  g->ldb = b->ld;
  g->ldc = c->ld;
  g->sa = a->stride;
  g->sb = b->stride;
  g->sc = c->stride;
  g->bias_type = d->bias_type < 0 ? c->type : d->bias_type;
  if (d->epilogue == CUBLASLT_ADD_BIAS) g->bias = d->bias;
  if ((g->ta ? a->cols : a->rows) != c->rows ||
      (g->tb ? b->rows : b->cols) != c->cols ||
      (g->tb ? b->cols : b->rows) != (uint64_t)g->k || a->batch != c->batch ||
      b->batch != c->batch)
    return standin_bad(LT_INVALID, "the layouts do not fit each other");
  if (d->epilogue != CUBLASLT_ADD_BIAS && d->epilogue != 0 && d->epilogue != 1)
    return standin_bad(LT_UNSUPPORTED, "epilogue %d", d->epilogue);
  return 0;
}

/* An algorithm: this, the alignment and the workspace that it was found for. */
#define LT_ALGORITHM 0x5a11e571u

/* A half's parts may not be added up as halves. */
static int lt_exact(const struct cublaslt_pref *p, const standin_gemm *g) {
  bool half = g->type[2] == CUBLAS_R_16F || g->type[2] == CUBLAS_R_16BF;
  if (!half || !(p->reductions & ~(uint32_t)CUBLASLT_BY_COMPUTE)) return 0;
  return standin_bad(LT_UNSUPPORTED, "parts may be added up in 16 bits");
}

STANDIN_API int cublasLtMatmulAlgoGetHeuristic(
    cublaslt_handle h, cublaslt_desc d, cublaslt_layout a, cublaslt_layout b,
    cublaslt_layout c, cublaslt_layout out, cublaslt_pref p, int wanted,
    cublaslt_found *found, int *n) {
  standin_gemm g;
  int rc;
  ENTER(cublasLtMatmulAlgoGetHeuristic);
  HANDLE(h, SI_LT);
  HANDLE(p, SI_PREF);
  HANDLE(c, SI_LAYOUT);
  rc = lt_product(d, a, b, out, &g);
  *n = 0;
  if (!rc) rc = lt_exact(p, &g);
  if (rc || wanted < 1) return rc ? rc : LT_INVALID;
  memset(found, 0, sizeof *found);
  found->algo[0] = LT_ALGORITHM;
  found->algo[1] = p->align[0] ? p->align[0] : 256;
  found->workspace = p->workspace < 4096 ? p->workspace : 4096;
  found->algo[2] = found->workspace;
  *n = 1;
  return 0;
}

STANDIN_API int cublasLtMatmul(cublaslt_handle h, cublaslt_desc d,
                               const void *alpha, const void *a,
                               cublaslt_layout la, const void *b,
                               cublaslt_layout lb, const void *beta,
                               const void *c, cublaslt_layout lc, void *out,
                               cublaslt_layout lout, const uint64_t *algo,
                               void *workspace, size_t bytes, cu_stream s) {
  standin_gemm g;
  int rc;
  ENTER(cublasLtMatmul);
  HANDLE(h, SI_LT);
  HANDLE(lc, SI_LAYOUT);
  HANDLE(s, SI_STREAM);
  rc = lt_product(d, la, lb, lout, &g);
  if (rc) return rc;
  if (algo && algo[0] != LT_ALGORITHM)
    return standin_bad(LT_INVALID, "an algorithm that no heuristic found");
  if (algo && (((uintptr_t)a | (uintptr_t)b | (uintptr_t)out) % algo[1] ||
               (g.bias && g.bias % algo[1])))
    return standin_bad(LT_INVALID, "the algorithm wants addresses at multiples "
                       "of %llu", (unsigned long long)algo[1]);
  if (algo && bytes < algo[2])
    return standin_bad(LT_INVALID, "the algorithm wants a workspace of %llu",
                       (unsigned long long)algo[2]);
  if (bytes && standin_range(h->o.owner, (cu_ptr)(uintptr_t)workspace, bytes,
                             true, "the workspace"))
    return LT_INVALID;
  g.alpha = standin_scalar(alpha, g.by);
  g.beta = standin_scalar(beta, g.by);
  if (g.beta != 0 && c != out)
    return standin_bad(LT_UNSUPPORTED, "beta with C apart from D");
  g.a = (cu_ptr)(uintptr_t)a;
  g.b = (cu_ptr)(uintptr_t)b;
  g.c = (cu_ptr)(uintptr_t)out;
  return standin_gemm_queue(h->o.owner, s, &g);
}
