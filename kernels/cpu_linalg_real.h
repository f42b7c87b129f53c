/* Factorisations of one matrix in REAL, by LAPACK; included by cpu_linalg.c
 * once for each of its two types. NAME(x) names a function here, LAPACK(x) one
 * of Fortran's, BLAS(x) one of C's.
 *
 * LAPACK takes memory by columns and limn gives it by rows, so it sees the
 * transpose: the factorisations are chosen such that nothing need be turned.
 * Each returns 0, or a reason and in *at which pivot (counted from 1). */

/* Work memory for an [m, n] matrix, in REALs; ints lie behind. */
static int64_t NAME(work)(int op, int64_t m, int64_t n) {
  int64_t k = LIMN_MIN(m, n), l = LIMN_MAX(m, n);
  switch (op) {
  case OP_eigh_parts: return 1 + 6 * n + 2 * n * n + 64 * n;
  case OP_svd_parts:
    return 3 * k + LIMN_MAX(l, 4 * k * k + 7 * k) + 64 * (k + l);
  case OP_qr_parts: return k + 64 * l;
  default: return 0;
  }
}

static void NAME(copy)(REAL *to, const REAL *from, int64_t n) {
  memcpy(to, from, (size_t)n * sizeof *to);
}

static bool NAME(finite)(const REAL *x, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    if (!(x[i] - x[i] == 0)) return false;
  return true;
}

/* The lower triangle by rows is the upper by columns; the other is 0. */
static int NAME(cholesky)(const linalg_job *j, const REAL *x, REAL *out,
                          int *at) {
  int n = (int)j->n, info = 0;
  NAME(copy)(out, x, j->n * j->n);
  LAPACK(potrf)(j->upper ? "L" : "U", &n, out, &n, &info, 1);
  for (int i = 0; i < n; i++) {
    for (int k = 0; k < n; k++)
      if (j->upper ? k < i : k > i) out[(int64_t)i * n + k] = 0;
    /* A NaN is no pivot either. */
    if (!info && !(out[(int64_t)i * n + i] > 0)) info = i + 1;
  }
  *at = info;
  return info ? LINALG_INDEFINITE : 0;
}

/* What LAPACK factors, the transpose of a, is P L U: a is U' L' P', whose
 * factors lie by rows where L and U lie by columns. */
static int NAME(solve)(const linalg_job *j, const REAL *x, const REAL *b,
                       REAL *out, REAL *work, int *pivot, int *at) {
  int n = (int)j->n, m = (int)j->cols, info = 0;
  NAME(copy)(work, x, j->n * j->n);
  LAPACK(getrf)(&n, &n, work, &n, pivot, &info);
  *at = info;
  if (info) return LINALG_SINGULAR;
  NAME(copy)(out, b, j->n * j->cols);
  BLAS(trsm)(CblasRowMajor, CblasLeft, CblasLower, CblasNoTrans, CblasNonUnit,
             n, m, 1, work, n, out, m);
  BLAS(trsm)(CblasRowMajor, CblasLeft, CblasUpper, CblasNoTrans, CblasUnit, n,
             m, 1, work, n, out, m);
  for (int i = n - 1; i >= 0; i--) {
    REAL *p = out + (int64_t)i * m, *q = out + (int64_t)(pivot[i] - 1) * m;
    for (int k = 0; p != q && k < m; k++) {
      REAL t = p[k];
      p[k] = q[k], q[k] = t;
    }
  }
  return 0;
}

static int NAME(triangular)(const linalg_job *j, const REAL *x, const REAL *b,
                            REAL *out, int *at) {
  int n = (int)j->n, m = (int)j->cols;
  for (int i = 0; i < n; i++)
    if (x[(int64_t)i * n + i] == 0) {
      *at = i + 1;
      return LINALG_SINGULAR;
    }
  NAME(copy)(out, b, j->n * j->cols);
  BLAS(trsm)(CblasRowMajor, CblasLeft, j->upper ? CblasUpper : CblasLower,
             CblasNoTrans, CblasNonUnit, n, m, 1, x, n, out, m);
  return 0;
}

/* Sign, logarithm and value of the determinant; that of a singular matrix
 * is 0, which is no error. */
static int NAME(lu)(const linalg_job *j, const REAL *x, REAL *out, REAL *work,
                    int *pivot) {
  int n = (int)j->n, info = 0;
  double sign = 1, log_of = 0, det = 1;
  NAME(copy)(work, x, j->n * j->n);
  if (n) LAPACK(getrf)(&n, &n, work, &n, pivot, &info);
  for (int i = 0; i < n; i++) {
    double u = (double)work[(int64_t)i * n + i];
    if (pivot[i] != i + 1) sign = -sign, det = -det;
    if (u < 0) sign = -sign;
    log_of += log(fabs(u));
    det *= u;
  }
  if (info > 0) sign = 0, det = 0;
  out[0] = (REAL)sign, out[1] = (REAL)log_of, out[2] = (REAL)det;
  return 0;
}

/* Eigenvalues in rising order, then the vectors as rows. The lower triangle of
 * x counts. */
static int NAME(eigh)(const linalg_job *j, const REAL *x, REAL *out,
                      REAL *work, int *iwork, int *at) {
  int n = (int)j->n, info = 0;
  int lwork = (int)NAME(work)(j->op, n, n), liwork = 3 + 5 * n;
  if (!NAME(finite)(x, j->n * j->n)) return LINALG_NAN;
  NAME(copy)(out + n, x, j->n * j->n);
  LAPACK(syevd)("V", "U", &n, out + n, &n, out, work, &lwork, iwork, &liwork,
                &info, 1, 1);
  *at = info;
  return info ? LINALG_STUCK : 0;
}

/* x = U S V': of the transpose that LAPACK sees, U and V' change places. */
static int NAME(svd)(const linalg_job *j, const REAL *x, REAL *out, REAL *a,
                     REAL *work, int *iwork, int *at) {
  int m = (int)j->m, n = (int)j->n, k = (int)j->k, info = 0;
  int lwork = (int)NAME(work)(j->op, m, n);
  REAL *u = out, *s = u + j->m * j->k, *v = s + j->k;
  if (!NAME(finite)(x, j->m * j->n)) return LINALG_NAN;
  NAME(copy)(a, x, j->m * j->n);
  LAPACK(gesdd)("S", &n, &m, a, &n, s, v, &n, u, &k, work, &lwork, iwork, &info,
                1);
  *at = info;
  return info ? LINALG_STUCK : 0;
}

/* x = Q R: LAPACK sees x' = R' Q', a product of a lower and a row-wise
 * orthogonal matrix. */
static int NAME(qr)(const linalg_job *j, const REAL *x, REAL *out, REAL *a,
                    REAL *work) {
  int m = (int)j->m, n = (int)j->n, k = (int)j->k, info = 0;
  int lwork = (int)(NAME(work)(j->op, m, n) - k);
  REAL *q = out, *r = q + j->m * j->k, *tau = work + lwork;
  NAME(copy)(a, x, j->m * j->n);
  LAPACK(gelqf)(&n, &m, a, &n, tau, work, &lwork, &info);
  for (int64_t i = 0; i < k; i++)
    for (int64_t c = 0; c < n; c++) r[i * n + c] = c < i ? 0 : a[i * n + c];
  LAPACK(orglq)(&k, &m, &k, a, &n, tau, work, &lwork, &info);
  for (int64_t i = 0; i < m; i++) NAME(copy)(q + i * k, a + i * n, k);
  return 0;
}

static int NAME(one)(const linalg_job *j, int64_t at, const void *in,
                     const void *right, void *to, char *scratch, int *pivot) {
  const REAL *x = (const REAL *)in + at * j->m * j->n;
  const REAL *b = right ? (const REAL *)right + at * j->n * j->cols : NULL;
  REAL *out = (REAL *)to + at * j->size, *a = (REAL *)(void *)scratch;
  REAL *work = a + j->m * j->n;
  int *ints = (int *)(void *)(work + NAME(work)(j->op, j->m, j->n));
  switch (j->op) {
  case OP_cholesky: return NAME(cholesky)(j, x, out, pivot);
  case OP_solve: return NAME(solve)(j, x, b, out, a, ints, pivot);
  case OP_solve_triangular: return NAME(triangular)(j, x, b, out, pivot);
  case OP_lu_parts: return NAME(lu)(j, x, out, a, ints);
  case OP_eigh_parts: return NAME(eigh)(j, x, out, work, ints, pivot);
  case OP_svd_parts: return NAME(svd)(j, x, out, a, work, ints, pivot);
  default: return NAME(qr)(j, x, out, a, work);
  }
}
