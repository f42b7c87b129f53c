/* A plane's windows for cpu_pool.c: v is a view [planes, down, across, kernel
 * down, kernel across] of x. NaN is larger than all. */

/* The largest of each window's rows, `width` dense floats for each. */
INLINE void pool_row(const float *restrict x, const float *restrict low,
                     int64_t n, float *restrict out) {
  for (int64_t j = 0; j < n; j++) out[j] = FOLD_max(x[j], low[j]);
}

static void pool_down(const limn_view *v, const float *x, int64_t width,
                      float *rows) {
  int64_t step = v->s[1], next = v->s[3], n = v->d[1], tall = v->d[3];
  for (int64_t i = 0; i < n; i++, x += step, rows += width) {
    if (tall == 1) {
      memcpy(rows, x, (size_t)width * sizeof *rows);
      continue;
    }
    pool_row(x, x + next, width, rows);
    for (int64_t k = 2; k < tall; k++)
      for (int64_t j = 0; j < width; j++)
        rows[j] = FOLD_max(rows[j], x[k * next + j]);
  }
}

/* The larger of each pair, which are parted first. */
static void pool_pairs(const float *restrict x, int64_t n,
                       float *restrict out) {
  enum { SOME = 256 };
  float even[SOME], odd[SOME];
  for (int64_t at = 0; at < n; at += SOME) {
    int64_t some = n - at < SOME ? n - at : SOME;
    const float *from = x + 2 * at;
    for (int64_t j = 0; j < some; j++) even[j] = from[2 * j];
    for (int64_t j = 0; j < some; j++) odd[j] = from[2 * j + 1];
    pool_row(even, odd, some, out + at);
  }
}

static void loops_pool(const limn_view *v, const float *x,
                       float *restrict rows, float *restrict out) {
  int64_t w = v->d[2], step = v->s[2], n = v->d[4];
  int64_t width = (w - 1) * step + n;
  pool_down(v, x, width, rows);
  if (step == 2 && n == 2) { /* rows of pairs, without rests */
    pool_pairs(rows, v->d[1] * w, out);
    return;
  }
  for (int64_t i = 0; i < v->d[1]; i++, rows += width, out += w) {
    for (int64_t j = 0; j < w; j++) out[j] = rows[j * step];
    for (int64_t k = 1; k < n; k++)
      for (int64_t j = 0; j < w; j++)
        out[j] = FOLD_max(out[j], rows[j * step + k]);
  }
}

/* Whether x is the largest, m, of its window: NaN is larger than all. */
#define POOL_IS(x, m) ((x) == (m) || (x) != (x))

/* Windows of 2 x 2 that do not overlap, in two rows: `d` is what is left of the
 * gradient after each place. */
static void pool_back_pairs(const float *restrict a, const float *restrict b,
                            const float *restrict y, const float *restrict g,
                            int64_t n, float *restrict top,
                            float *restrict low) {
  enum { SOME = 64 };
  float part[4][SOME], to[4][SOME];
  for (int64_t at = 0; at < n; at += SOME) {
    int64_t some = n - at < SOME ? n - at : SOME, j;
    const float *p = a + 2 * at, *q = b + 2 * at;
    float *t = top + 2 * at, *l = low + 2 * at;
    for (j = 0; j < some; j++) part[0][j] = p[2 * j];
    for (j = 0; j < some; j++) part[1][j] = p[2 * j + 1];
    for (j = 0; j < some; j++) part[2][j] = q[2 * j];
    for (j = 0; j < some; j++) part[3][j] = q[2 * j + 1];
    for (j = 0; j < some; j++) {
      float m = y[at + j], d = g[at + j], d1, d2, d3;
      to[0][j] = POOL_IS(part[0][j], m) ? d : 0;
      d1 = POOL_IS(part[0][j], m) ? 0 : d;
      to[1][j] = POOL_IS(part[1][j], m) ? d1 : 0;
      d2 = POOL_IS(part[1][j], m) ? 0 : d1;
      to[2][j] = POOL_IS(part[2][j], m) ? d2 : 0;
      d3 = POOL_IS(part[2][j], m) ? 0 : d2;
      to[3][j] = POOL_IS(part[3][j], m) ? d3 : 0;
    }
    for (j = 0; j < some; j++) t[2 * j] = to[0][j], t[2 * j + 1] = to[1][j];
    for (j = 0; j < some; j++) l[2 * j] = to[2][j], l[2 * j + 1] = to[3][j];
  }
}

/* out is zero, and lies as x does. */
static void loops_pool_back(const limn_view *v, const float *x, const float *y,
                            const float *g, float *out) {
  int64_t w = v->d[2];
  bool pairs = v->d[3] == 2 && v->d[4] == 2 && v->s[2] == 2 &&
               v->s[1] == 2 * v->s[3];
  for (int64_t i = 0; i < v->d[1]; i++, y += w, g += w) {
    int64_t at = i * v->s[1];
    if (pairs) {
      pool_back_pairs(x + at, x + at + v->s[3], y, g, w, out + at,
                      out + at + v->s[3]);
      continue;
    }
    for (int64_t j = 0; j < w; j++) {
      int64_t k = 0, n = v->d[3] * v->d[4], from = at + j * v->s[2], p = from;
      for (; k < n; k++) {
        p = from + k / v->d[4] * v->s[3] + k % v->d[4];
        if (POOL_IS(x[p], y[j])) break;
      }
      if (k < n) out[p] += g[j];
    }
  }
}
