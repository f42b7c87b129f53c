/* Sums over the elements of one channel, or over columns of which several make
 * a channel, for cpu_batch.c; once for float and once for double.
 *
 * A chunk is at most PIECE elements, so that its second pass finds it in the L1
 * cache; meanwhile the next chunk can come from memory, `ahead` bytes on. */

#define BATCH_LOOPS(T, name)                                                  \
  INLINE double batch_sum_##name(const T *x, int64_t n) {                     \
    T acc[WIDTH] = {0};                                                       \
    int64_t j = 0;                                                            \
    for (; j + WIDTH <= n; j += WIDTH)                                        \
      SIMD() for (int k = 0; k < WIDTH; k++) acc[k] += x[j + k];              \
    for (; j < n; j++) acc[j % WIDTH] += x[j];                                \
    return loops_join_##name(acc);                                            \
  }                                                                           \
  INLINE double batch_squares_##name(const T *x, T m, int64_t n,              \
                                     size_t ahead) {                          \
    T acc[WIDTH] = {0};                                                       \
    int64_t j = 0;                                                            \
    for (; j + WIDTH <= n; j += WIDTH) {                                      \
      batch_fetch(x + j, WIDTH * sizeof(T), ahead);                           \
      SIMD() for (int k = 0; k < WIDTH; k++)                                  \
        acc[k] += (x[j + k] - m) * (x[j + k] - m);                            \
    }                                                                         \
    for (; j < n; j++) acc[j % WIDTH] += (x[j] - m) * (x[j] - m);             \
    return loops_join_##name(acc);                                            \
  }                                                                           \
  /* The mean may not be a T: what is off counts in each square. */           \
  static void batch_moments_##name(const void *from, int64_t rs,              \
                                   int64_t rows, int64_t n, size_t ahead,     \
                                   double out[2]) {                           \
    const T *x = from;                                                        \
    double sum = 0, squares = 0, count = (double)(rows * n), off;             \
    T m;                                                                      \
    for (int64_t r = 0; r < rows; r++)                                        \
      sum += batch_sum_##name(x + r * rs, n);                                 \
    m = (T)(sum / count);                                                     \
    for (int64_t r = 0; r < rows; r++)                                        \
      squares += batch_squares_##name(x + r * rs, m, n, ahead);               \
    off = sum / count - (double)m;                                            \
    squares -= count * off * off;                                             \
    out[0] = sum / count;                                                     \
    out[1] = LIMN_MAX(0.0, squares);                                          \
  }                                                                           \
  static void batch_cross_##name(const void *xs, const void *gs, int64_t rs,  \
                                 int64_t rows, int64_t n, double mean,        \
                                 size_t ahead, double out[2]) {               \
    T m = (T)mean;                                                            \
    for (int64_t r = 0; r < rows; r++) {                                      \
      const T *x = (const T *)xs + r * rs, *g = (const T *)gs + r * rs;       \
      T a[WIDTH] = {0}, b[WIDTH] = {0};                                       \
      int64_t j = 0;                                                          \
      for (; j + WIDTH <= n; j += WIDTH) {                                    \
        batch_fetch(x + j, WIDTH * sizeof(T), ahead);                         \
        batch_fetch(g + j, WIDTH * sizeof(T), ahead);                         \
        SIMD() for (int k = 0; k < WIDTH; k++) {                              \
          a[k] += g[j + k] * (x[j + k] - m);                                  \
          b[k] += g[j + k];                                                   \
        }                                                                     \
      }                                                                       \
      for (; j < n; j++) {                                                    \
        a[j % WIDTH] += g[j] * (x[j] - m);                                    \
        b[j % WIDTH] += g[j];                                                 \
      }                                                                       \
      out[0] += loops_join_##name(a);                                         \
      out[1] += loops_join_##name(b);                                         \
    }                                                                         \
  }                                                                           \
  static void batch_columns_##name(const void *from, int64_t rs,              \
                                   int64_t rows, int64_t n, size_t ahead,     \
                                   double *mean, double *square) {            \
    T m[BATCH_COLUMNS] = {0}, acc[BATCH_COLUMNS] = {0};                       \
    const T *x = from;                                                        \
    rows_##name##_sum(x, rs, rows, n, m);                                     \
    for (int64_t j = 0; j < n; j++) m[j] /= (T)rows;                          \
    for (int64_t r = 0; r < rows; r++, x += rs) {                             \
      batch_fetch(x, (size_t)n * sizeof(T), ahead);                           \
      SIMD() for (int64_t j = 0; j < n; j++)                                  \
        acc[j] += (x[j] - m[j]) * (x[j] - m[j]);                              \
    }                                                                         \
    for (int64_t j = 0; j < n; j++)                                           \
      mean[j] = (double)m[j], square[j] = (double)acc[j];                     \
  }                                                                           \
  static void batch_crosses_##name(const void *xs, const void *gs,            \
                                   int64_t rs, int64_t rows, int64_t n,       \
                                   const double *mean, size_t ahead,          \
                                   double *by, double *sum) {                 \
    T m[BATCH_COLUMNS], a[BATCH_COLUMNS] = {0}, b[BATCH_COLUMNS] = {0};       \
    const T *x = xs, *g = gs;                                                 \
    for (int64_t j = 0; j < n; j++) m[j] = (T)mean[j];                        \
    for (int64_t r = 0; r < rows; r++, x += rs, g += rs) {                    \
      batch_fetch(x, (size_t)n * sizeof(T), ahead);                           \
      batch_fetch(g, (size_t)n * sizeof(T), ahead);                           \
      SIMD() for (int64_t j = 0; j < n; j++) {                                \
        a[j] += g[j] * (x[j] - m[j]);                                         \
        b[j] += g[j];                                                         \
      }                                                                       \
    }                                                                         \
    for (int64_t j = 0; j < n; j++)                                           \
      by[j] = (double)a[j], sum[j] = (double)b[j];                            \
  }
#define BATCH_TABLE(name)                                                 \
  {batch_moments_##name, batch_cross_##name, batch_columns_##name,        \
   batch_crosses_##name}

INLINE void batch_fetch(const void *p, size_t bytes, size_t ahead) {
  for (size_t k = 0; ahead && k < bytes; k += 64)
    __builtin_prefetch((const void *)((uintptr_t)p + k + ahead));
}

BATCH_LOOPS(float, f32)
BATCH_LOOPS(double, f64)
