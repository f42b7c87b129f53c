/* Linear algebra on the CPU: LAPACK's routines, which OpenBLAS brings along,
 * for one matrix after another of a batch. A tile is one matrix. */
#include "cpu_kernels.h"

#ifdef LIMN_NO_BLAS
int limn_cpu_linalg_prepare(limn_device *d, limn_step *s) {
  (void)s;
  return limn_fail(d->c, LIMN_EUNSUPPORTED,
                   "this build has no LAPACK: linear algebra needs OpenBLAS");
}
#else
#include <cblas.h>
#include <math.h>

/* Why a matrix has no result; limn_fault_fail has the words. */
enum { LINALG_SINGULAR = LIMN_FAULT_SINGULAR,
       LINALG_INDEFINITE = LIMN_FAULT_INDEFINITE,
       LINALG_STUCK = LIMN_FAULT_STUCK,
       LINALG_NAN = LIMN_FAULT_NAN };

typedef struct {
  int op;
  int64_t m, n, k, cols; /* x is [m, n], k the smaller; b is [n, cols] */
  int64_t size;          /* of one result */
  bool upper;
} linalg_job;

/* Fortran passes the lengths of strings last. */
#define LINALG_DECLARE(R, potrf, getrf, syevd, gesdd, gelqf, orglq)          \
  void potrf(const char *uplo, const int *n, R *a, const int *lda,           \
             int *info, size_t l1);                                          \
  void getrf(const int *m, const int *n, R *a, const int *lda, int *ipiv,    \
             int *info);                                                     \
  void syevd(const char *jobz, const char *uplo, const int *n, R *a,         \
             const int *lda, R *w, R *work, const int *lwork, int *iwork,    \
             const int *liwork, int *info, size_t l1, size_t l2);            \
  void gesdd(const char *jobz, const int *m, const int *n, R *a,             \
             const int *lda, R *s, R *u, const int *ldu, R *vt,              \
             const int *ldvt, R *work, const int *lwork, int *iwork,         \
             int *info, size_t l1);                                          \
  void gelqf(const int *m, const int *n, R *a, const int *lda, R *tau,       \
             R *work, const int *lwork, int *info);                          \
  void orglq(const int *m, const int *n, const int *k, R *a, const int *lda, \
             const R *tau, R *work, const int *lwork, int *info);
LINALG_DECLARE(float, spotrf_, sgetrf_, ssyevd_, sgesdd_, sgelqf_, sorglq_)
LINALG_DECLARE(double, dpotrf_, dgetrf_, dsyevd_, dgesdd_, dgelqf_, dorglq_)

#define REAL float
#define NAME(x) linalg_s_##x
#define LAPACK(x) s##x##_
#define BLAS(x) cblas_s##x
#include "cpu_linalg_real.h"
#undef REAL
#undef NAME
#undef LAPACK
#undef BLAS
#define REAL double
#define NAME(x) linalg_d_##x
#define LAPACK(x) d##x##_
#define BLAS(x) cblas_d##x
#include "cpu_linalg_real.h"

static linalg_job linalg_job_of(const limn_step *s) {
  const limn_view *x = &s->in[0].v;
  linalg_job j = {s->op, x->d[1], x->d[2], 0, 0, 0, s->flag};
  j.k = LIMN_MIN(j.m, j.n);
  if (s->nin > 1) j.cols = s->in[1].v.d[2];
  j.size = s->out[0].v.d[1] * s->out[0].v.d[2];
  return j;
}

static void linalg_run(const limn_step *s, const limn_bind *b, int64_t t0,
                       int64_t t1) {
  limn_cpu *cpu = limn_cpu_bound(b);
  linalg_job j = linalg_job_of(s);
  const void *x = limn_cpu_at(b, &s->in[0]);
  const void *y = s->nin > 1 ? limn_cpu_at(b, &s->in[1]) : NULL;
  void *out = limn_cpu_at(b, &s->out[0]);
  int slot;
  char *work = limn_cpu_take(cpu, &slot);
  for (int64_t t = t0; t < t1; t++) {
    int pivot = 0;
    int why = s->in[0].dtype == LIMN_F64
                  ? linalg_d_one(&j, t, x, y, out, work, &pivot)
                  : linalg_s_one(&j, t, x, y, out, work, &pivot);
    if (why) limn_cpu_note_matrix(s, b, why, pivot, t, s->in[0].v.d[0]);
  }
  limn_cpu_give(cpu, slot);
}

int limn_cpu_linalg_prepare(limn_device *d, limn_step *s) {
  linalg_job j = linalg_job_of(s);
  int64_t most = LIMN_MAX(LIMN_MAX(j.m, j.n), j.cols), reals, bytes;
  /* Work for svd is 4 n^2, and LAPACK counts it in ints. */
  if (most > 20000 && s->op != OP_solve && s->op != OP_solve_triangular &&
      s->op != OP_cholesky && s->op != OP_lu_parts)
    return limn_fail(d->c, LIMN_ESIZE, "a matrix with a size of %lld; up to "
                     "20000 are possible", (long long)most);
  if (most > INT32_MAX / 8)
    return limn_fail(d->c, LIMN_ESIZE, "a matrix with a size of %lld is too "
                     "large", (long long)most);
  LIMN_TRY(limn_mul(d->c, j.m, j.n, &reals));
  reals += linalg_d_work(s->op, j.m, j.n);
  LIMN_TRY(limn_mul(d->c, reals, limn_dtype_size(s->in[0].dtype), &bytes));
  LIMN_TRY(limn_cpu_reserve(d, (size_t)bytes +
                                   (size_t)(16 * most + 64) * sizeof(int)));
  s->run = linalg_run;
  s->ntiles = s->in[0].v.d[0];
  s->cost_ns = (double)s->ntiles * (double)j.m * (double)j.n *
               (double)LIMN_MAX(j.k, j.cols);
  return 0;
}
#endif
