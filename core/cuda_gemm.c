/* Products by cuBLAS, with the bias by cublasLt: loaded when a plan has the
 * first product that is worth it. Matrices are row-major here and column-major
 * there, so that the transposed product is asked for: out' = b' a'. */
#include <limits.h>

#include "dev_cuda.h"

/* A product with bias as cublasLt wants it: for operands that all lie at
 * multiples of 16 bytes, and for others. */
enum { LT_LOOSE, LT_ALIGNED, LT_PLANS };
typedef struct {
  cublaslt_desc desc;
  cublaslt_layout a, b, out;
  cublaslt_found found[LT_PLANS];
} lt_plan;

/* -- Opening --------------------------------------------------------------- */

#define GEMM_SYMBOL(name, symbol, args) {#symbol, offsetof(cublas_api, name)},
static const cuda_symbol gemm_symbols[] = {
    CUBLAS_FUNCTIONS(GEMM_SYMBOL){NULL, 0}};
#undef GEMM_SYMBOL
#define GEMM_SYMBOL(name, symbol, args) {#symbol, offsetof(cublaslt_api, name)},
static const cuda_symbol gemm_lt_symbols[] = {
    CUBLASLT_FUNCTIONS(GEMM_SYMBOL){NULL, 0}};
#undef GEMM_SYMBOL

/* cuBLAS depends on cublasLt, whose symbols are found through it. */
void cuda_blas_load(limn_context *c, cuda_libs *l) {
  static const char *const names[] = {"libcublas.so.13", "libcublas.so.12",
                                      "libcublas.so.11", "libcublas.so"};
  const char *named = c->flags.cublas_lib, *missing;
  if (l->blas_tried) return;
  l->blas_tried = true;
  if (!strcmp(named, "off")) return;
  l->blas_lib = cuda_open_release(l, named, names, LIMN_COUNT(names));
  if (!l->blas_lib) {
    limn_device_note(c, "cuda: cannot load %s, products are slower without",
                     named[0] ? named : "libcublas.so.13, .12 or .11");
    return;
  }
  missing = cuda_load(l->blas_lib, &l->blas, gemm_symbols);
  if (missing) {
    limn_device_note(c, "cuda: cuBLAS lacks %s; 11 or newer is needed",
                     missing);
    l->blas_lib = NULL;
    return;
  }
  l->has_lt = !cuda_load(l->blas_lib, &l->lt, gemm_lt_symbols);
}

/* Sums in 16 bits are off: half precision products add up in float32. */
static int gemm_start(cuda_dev *d) {
  const cublas_api *f = &d->l->blas;
  int code = f->Create(&d->blas);
  if (code) {
    d->blas = NULL;
    return code;
  }
  code = f->SetStream(d->blas, d->stream);
  if (!code) code = f->SetWorkspace(d->blas, d->workspace, d->workspace_size);
  if (!code) code = f->SetMathMode(d->blas, CUBLAS_FULL_SUMS);
  if (!code) return 0;
  f->Destroy(d->blas);
  d->blas = NULL;
  return code;
}

/* Sizes that NVIDIA recommends. Without one cuBLAS takes memory of its own,
 * also while a graph is captured. */
static bool gemm_open_workspace(cuda_dev *d) {
  size_t size = (size_t)(d->arch >= 90 ? 32 : 8) << 20;
  if (d->workspace) return true;
  if (limn_gpu_take(&d->gpu, size, &d->workspace) < 0) {
    limn_error_clear(d->gpu.c);
    return false;
  }
  d->workspace_size = size;
  return true;
}

static bool gemm_open(cuda_dev *d) {
  limn_context *c = d->gpu.c;
  cuda_blas_load(c, d->l);
  if (d->blas || !d->l->blas_lib || d->blas_failed) return d->blas != NULL;
  if (cuda_enter(d) < 0) {
    limn_error_clear(c);
    return false;
  }
  if (!gemm_open_workspace(d)) { /* a later plan may have more luck */
    cuda_leave(d);
    return false;
  }
  d->blas_failed = !cuda_library_start(d, "cuBLAS", gemm_start);
  if (d->blas && d->l->has_lt && d->l->lt.Create(&d->lt)) d->lt = NULL;
  cuda_leave(d);
  return !d->blas_failed;
}

void cuda_blas_close(cuda_dev *d) {
  if (d->lt) d->l->lt.Destroy(d->lt);
  if (d->blas) d->l->blas.Destroy(d->blas);
  if (d->workspace) cuda_mem_del(&d->gpu, d->workspace);
  d->lt = NULL;
  d->blas = NULL;
  d->workspace = NULL;
}

/* -- Types ----------------------------------------------------------------- */

static int gemm_type(int dtype) {
  return dtype == LIMN_F64   ? CUBLAS_R_64F
         : dtype == LIMN_F32 ? CUBLAS_R_32F
         : dtype == LIMN_F16 ? CUBLAS_R_16F
                             : CUBLAS_R_16BF;
}

static int gemm_compute(const limn_gpu_gemm *m) {
  return m->dtype == LIMN_F64                ? CUBLAS_BY_64F
         : m->dtype == LIMN_F32 && m->tf32 ? CUBLAS_BY_TF32
                                           : CUBLAS_BY_32F;
}

/* One and nought as alpha and beta of the computing type. */
typedef struct {
  double one64, zero64;
  float one32, zero32;
} gemm_scale;
static const gemm_scale gemm_scales = {1, 0, 1, 0};

static const void *gemm_one(const limn_gpu_gemm *m) {
  return m->dtype == LIMN_F64 ? (const void *)&gemm_scales.one64
                              : &gemm_scales.one32;
}

static const void *gemm_zero(const limn_gpu_gemm *m) {
  return m->dtype == LIMN_F64 ? (const void *)&gemm_scales.zero64
                              : &gemm_scales.zero32;
}

/* -- With bias ------------------------------------------------------------- */

static void lt_free(cuda_dev *d, lt_plan *p) {
  const cublaslt_api *f = &d->l->lt;
  if (p->out) f->LayoutDestroy(p->out);
  if (p->b) f->LayoutDestroy(p->b);
  if (p->a) f->LayoutDestroy(p->a);
  if (p->desc) f->DescDestroy(p->desc);
  limn_free(d->gpu.c, p, sizeof *p);
}

static void lt_end(limn_gpu *g, const limn_gpu_call *call) {
  cuda_dev *d = cuda_of(g);
  if (cuda_enter(d) == 0) {
    lt_free(d, call->plan);
    cuda_leave(d);
  }
}

/* Rows and columns are those of the memory, read column by column. */
static int lt_layout(const cublaslt_api *f, cublaslt_layout *l, int type,
                     bool t, int64_t rows, int64_t cols, int64_t ld) {
  return f->LayoutCreate(l, type, (uint64_t)(t ? rows : cols),
                         (uint64_t)(t ? cols : rows), ld);
}

/* `to` stands for the bias: its alignment decides which kernels will do. */
static int lt_set_bias(const cublaslt_api *f, lt_plan *p, cu_ptr to) {
  return f->DescSet(p->desc, CUBLASLT_BIAS, &to, sizeof to);
}

static int lt_describe(const cublaslt_api *f, lt_plan *p,
                       const limn_gpu_gemm *m) {
  int type = gemm_type(m->dtype), add = CUBLASLT_ADD_BIAS, code;
  int scale = m->dtype == LIMN_F64 ? CUBLAS_R_64F : CUBLAS_R_32F;
  int ta = m->ta ? CUBLAS_YES : CUBLAS_NO, tb = m->tb ? CUBLAS_YES : CUBLAS_NO;
  code = f->DescCreate(&p->desc, gemm_compute(m), scale);
  if (!code) code = f->DescSet(p->desc, CUBLASLT_TRANSA, &tb, sizeof tb);
  if (!code) code = f->DescSet(p->desc, CUBLASLT_TRANSB, &ta, sizeof ta);
  if (!code) code = f->DescSet(p->desc, CUBLASLT_EPILOGUE, &add, sizeof add);
  if (!code) code = lt_layout(f, &p->b, type, m->tb, m->k, m->n, m->ldb);
  if (!code) code = lt_layout(f, &p->a, type, m->ta, m->m, m->k, m->lda);
  if (!code) code = lt_layout(f, &p->out, type, false, m->m, m->n, m->n);
  return code;
}

/* The best algorithm for operands at multiples of `align` bytes. Where it adds
 * up parts, halves must not be what it adds. */
static int lt_search(cuda_dev *d, lt_plan *p, uint32_t align,
                     cublaslt_found *found) {
  const cublaslt_api *f = &d->l->lt;
  cublaslt_pref pref = NULL;
  uint32_t exact = CUBLASLT_BY_COMPUTE;
  int code = f->PrefCreate(&pref), n = 0, i;
  if (code) return code;
  code = f->PrefSet(pref, CUBLASLT_WORKSPACE, &d->workspace_size,
                    sizeof d->workspace_size);
  if (!code) code = f->PrefSet(pref, CUBLASLT_REDUCTIONS, &exact, sizeof exact);
  for (i = 0; i < 4 && !code; i++)
    code = f->PrefSet(pref, CUBLASLT_ALIGN_A + i, &align, sizeof align);
  if (!code) code = lt_set_bias(f, p, align);
  if (!code)
    code = f->Heuristic(d->lt, p->desc, p->b, p->a, p->out, p->out, pref, 1,
                        found, &n);
  f->PrefDestroy(pref);
  return code ? code : n < 1 || found->state;
}

/* NULL where cublasLt cannot or knows no way. */
static lt_plan *lt_make(cuda_dev *d, const limn_gpu_gemm *m) {
  lt_plan *p = limn_alloc(d->gpu.c, sizeof *p);
  int code;
  if (!p) {
    limn_error_clear(d->gpu.c);
    return NULL;
  }
  code = lt_describe(&d->l->lt, p, m);
  if (!code)
    code = lt_search(d, p, (uint32_t)limn_dtype_size(m->dtype),
                     &p->found[LT_LOOSE]);
  if (!code) code = lt_search(d, p, 16, &p->found[LT_ALIGNED]);
  if (!code) return p;
  lt_free(d, p);
  return NULL;
}

static int lt_run(cuda_dev *d, const limn_gpu_call *call, const cu_ptr at[4]) {
  const limn_gpu_gemm *m = &call->gemm;
  lt_plan *p = call->plan;
  const cublaslt_api *f = &d->l->lt;
  bool aligned = ((at[0] | at[1] | at[2] | at[3]) & 15) == 0;
  const cublaslt_found *found = &p->found[aligned ? LT_ALIGNED : LT_LOOSE];
  void *out = (void *)(uintptr_t)at[0];
  int code = lt_set_bias(f, p, at[3]);
  if (code) return code;
  return f->Matmul(d->lt, p->desc, gemm_one(m), (void *)(uintptr_t)at[2], p->b,
                   (void *)(uintptr_t)at[1], p->a, gemm_zero(m), out, p->out,
                   out, p->out, found->algo, d->workspace,
                   d->workspace_size, d->stream);
}

/* -- Products -------------------------------------------------------------- */

static bool gemm_fits(int64_t v) { return v <= INT_MAX; }

static bool gemm_worth(const cuda_dev *d, const limn_gpu_gemm *m) {
  double work = (double)m->m * (double)m->n * (double)m->k * (double)m->batch;
  return cuda_worth(d, m->dtype, work, m->m >= 16 && m->n >= 16) &&
         gemm_fits(m->m) && gemm_fits(m->n) && gemm_fits(m->k) &&
         gemm_fits(m->lda) && gemm_fits(m->ldb) && gemm_fits(m->batch);
}

static int gemm_plain(cuda_dev *d, const limn_gpu_gemm *m, const cu_ptr at[4]) {
  const cublas_api *f = &d->l->blas;
  int type = gemm_type(m->dtype), by = gemm_compute(m);
  int ta = m->ta ? CUBLAS_YES : CUBLAS_NO, tb = m->tb ? CUBLAS_YES : CUBLAS_NO;
  int M = (int)m->m, N = (int)m->n, K = (int)m->k;
  int lda = (int)m->lda, ldb = (int)m->ldb;
  const void *a = (void *)(uintptr_t)at[1], *b = (void *)(uintptr_t)at[2];
  void *out = (void *)(uintptr_t)at[0];
  if (m->batch == 1)
    return f->Gemm(d->blas, tb, ta, N, M, K, gemm_one(m), b, type, ldb, a, type,
                   lda, gemm_zero(m), out, type, N, by, CUBLAS_ALGO_DEFAULT);
  return f->GemmBatched(d->blas, tb, ta, N, M, K, gemm_one(m), b, type, ldb,
                        m->sb, a, type, lda, m->sa, gemm_zero(m), out, type, N,
                        m->m * m->n, (int)m->batch, by, CUBLAS_ALGO_DEFAULT);
}

static int gemm_run(limn_gpu *g, const limn_gpu_call *call, void *const *mem,
                    const int64_t *off) {
  cuda_dev *d = cuda_of(g);
  cu_ptr at[4] = {0, 0, 0, 0};
  int i, code;
  for (i = 0; i < call->n; i++) at[i] = cuda_operand(call, mem[i], off[i]);
  LIMN_TRY(cuda_enter(d));
  code = call->plan ? lt_run(d, call, at) : gemm_plain(d, &call->gemm, at);
  cuda_leave(d);
  if (!code) return 0;
  return limn_fail(g->c, LIMN_EDEVICE, "CUDA: cuBLAS failed with error %d",
                   code);
}

bool cuda_gemm_worth(limn_gpu *g, limn_gpu_call *call) {
  cuda_dev *d = cuda_of(g);
  limn_gpu_gemm *m = &call->gemm;
  if (!gemm_worth(d, m) || !gemm_open(d)) return false;
  if (m->bias && d->lt && m->batch == 1 && cuda_enter(d) == 0) {
    call->plan = lt_make(d, m);
    cuda_leave(d);
  }
  m->bias = call->plan != NULL;
  call->run = gemm_run;
  call->end = lt_end;
  return true;
}
