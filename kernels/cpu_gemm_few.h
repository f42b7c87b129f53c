/* Products of one row or column, or of few rows, which no tile fits: a part of
 * cpu_gemm_isa.h. */

/* ---- dot products ----
 * For B^T with few rows of A, where turning B would cost more than
 * multiplying, and for one column: row i of x times row j of y, contiguous
 * along K, goes to c[i*ci + j*cj], with bias[i*bi + j*bj] and
 * add[i*di + j*dj]. */
typedef struct {
  int64_t K;
  const float *x, *y;
  int64_t xs, ys;
  float *c;
  int64_t ci, cj;
  const float *bias, *add;
  int64_t bi, bj, di, dj;
  bool acc;
} gemm_dots;

/* The sums of the lanes of four vectors, as four lanes repeated. */
INLINE vec dots_fold(const vec *s) {
  vec x = __builtin_shufflevector(s[0], s[1], LANES(LOW, 1)) +
          __builtin_shufflevector(s[0], s[1], LANES(HIGH, 1));
  vec y = __builtin_shufflevector(s[2], s[3], LANES(LOW, 1)) +
          __builtin_shufflevector(s[2], s[3], LANES(HIGH, 1));
  x = __builtin_shufflevector(x, y, LANES(LOW, 2)) +
      __builtin_shufflevector(x, y, LANES(HIGH, 2));
#if GEMM_VL > 4
  x += __builtin_shufflevector(x, x, LANES(HIGH, 4));
#endif
#if GEMM_VL > 8
  x += __builtin_shufflevector(x, x, LANES(HIGH, 8));
#endif
  return x;
}

/* ni x nj of them at once, both constants, nj up to 4. */
INLINE void dots_tile(int ni, int nj, const gemm_dots *d, int64_t i0,
                      int64_t j0) {
  const float *x = d->x + i0 * d->xs, *y = d->y + j0 * d->ys;
  vec sum[2][4] = {{{0}}};
  int64_t k = 0;
  for (; k + VL <= d->K; k += VL) {
    UNROLL for (int j = 0; j < nj; j++) {
      vec yv = load(y + j * d->ys + k);
      UNROLL for (int i = 0; i < ni; i++)
        sum[i][j] += load(x + i * d->xs + k) * yv;
    }
  }
  UNROLL for (int i = 0; i < ni; i++) {
    float lanes[VL], *c = d->c + (i0 + i) * d->ci + j0 * d->cj;
    store(lanes, dots_fold(sum[i]));
    for (int64_t q = k; q < d->K; q++)
      for (int j = 0; j < nj; j++)
        lanes[j] += x[i * d->xs + q] * y[j * d->ys + q];
    for (int j = 0; j < nj; j++, c += d->cj) {
      float s = lanes[j];
      if (d->bias) s += d->bias[(i0 + i) * d->bi + (j0 + j) * d->bj];
      if (d->acc) s += *c;
      if (d->add) s += d->add[(i0 + i) * d->di + (j0 + j) * d->dj];
      *c = s;
    }
  }
}

static void dots_run(const gemm_dots *d, int64_t I, int64_t J) {
  int64_t j = 0;
  for (; j + 4 <= J; j += 4) {
    int64_t i = 0;
    for (; i + 2 <= I; i += 2) dots_tile(2, 4, d, i, j);
    if (i < I) dots_tile(1, 4, d, i, j);
  }
  for (; j < J; j++)
    for (int64_t i = 0; i < I; i++) dots_tile(1, 1, d, i, j);
}

/* C (rows x 1) = A * b; bias is one number. */
static void dots_column(int64_t rows, int64_t K, const float *a, int64_t ars,
                        const float *b, const limn_gemm_out *o) {
  gemm_dots d = {.K = K, .x = b, .y = a, .ys = ars, .c = o->c, .cj = o->ldc,
                 .bias = o->bias, .acc = o->acc, .add = o->add,
                 .dj = o->ldadd};
  dots_run(&d, 1, rows);
}

/* C (rows x columns) = A * B, with column n of B at b + n*bcs. */
static void dots_rows(int64_t rows, int64_t columns, int64_t K, const float *a,
                      int64_t ars, const float *b, int64_t bcs,
                      const limn_gemm_out *o) {
  gemm_dots d = {.K = K, .x = a, .y = b, .xs = ars, .ys = bcs, .c = o->c,
                 .ci = o->ldc, .cj = 1, .bias = o->bias, .bj = 1,
                 .acc = o->acc, .add = o->add, .di = o->ldadd, .dj = 1};
  dots_run(&d, rows, columns);
}

/* ---- sums of rows ---- */

/* One row of A against a wide B with contiguous rows: eight of them at a time
 * are added to C from end to end, which reads B as the memory likes it. */
INLINE void axpy_rows(int rows, int64_t N, const float *a, int64_t acs,
                      const float *b, int64_t brs, float *c) {
  float x[8] = {0};
  for (int r = 0; r < rows; r++) x[r] = a[r * acs];
  int64_t n = 0;
  for (; n + VL <= N; n += VL) {
    vec s = load(c + n), z = {0}; /* two sums, to wait less */
    UNROLL for (int r = 0; r < rows; r += 2) s += x[r] * load(b + r * brs + n);
    UNROLL for (int r = 1; r < rows; r += 2) z += x[r] * load(b + r * brs + n);
    store(c + n, s + z);
  }
  for (; n < N; n++)
    for (int r = 0; r < rows; r++) c[n] += x[r] * b[r * brs + n];
}

static void axpy_run(int64_t N, int64_t K, const float *a, int64_t acs,
                     const float *b, int64_t brs, const limn_gemm_out *o) {
  int64_t k = 0;
  for (int64_t n = 0; n < N; n++)
    o->c[n] = (o->acc ? o->c[n] : 0) + (o->bias ? o->bias[n] : 0);
  for (; k + 8 <= K; k += 8)
    axpy_rows(8, N, a + k * acs, acs, b + k * brs, brs, o->c);
  for (; k < K; k++) axpy_rows(1, N, a + k * acs, acs, b + k * brs, brs, o->c);
  for (int64_t n = 0; o->add && n < N; n++) o->c[n] += o->add[n];
}
