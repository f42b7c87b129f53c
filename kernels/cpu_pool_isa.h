/* A plane's windows for cpu_pool.c: v is a view [planes, down, across, kernel
 * down, kernel across] of x. NaN is larger than all. */

/* The largest of each window's rows, `width` dense floats for each. */
static void pool_down(const limn_view *v, const float *x, int64_t width,
                      float *rows) {
  for (int64_t i = 0; i < v->d[1]; i++, x += v->s[1], rows += width) {
    const float *low = x + (v->d[3] > 1 ? v->s[3] : 0);
    for (int64_t j = 0; j < width; j++) rows[j] = FOLD_max(x[j], low[j]);
    for (int64_t k = 2; k < v->d[3]; k++) {
      low = x + k * v->s[3];
      for (int64_t j = 0; j < width; j++) rows[j] = FOLD_max(rows[j], low[j]);
    }
  }
}

static void loops_pool(const limn_view *v, const float *x,
                       float *restrict rows, float *restrict out) {
  int64_t w = v->d[2], step = v->s[2], n = v->d[4];
  int64_t width = (w - 1) * step + n;
  pool_down(v, x, width, rows);
  if (step == 2 && n == 2) { /* rows of pairs, without rests */
    for (int64_t j = 0; j < v->d[1] * w; j++)
      out[j] = FOLD_max(rows[2 * j], rows[2 * j + 1]);
    return;
  }
  for (int64_t i = 0; i < v->d[1]; i++, rows += width, out += w) {
    for (int64_t j = 0; j < w; j++) out[j] = rows[j * step];
    for (int64_t k = 1; k < n; k++)
      for (int64_t j = 0; j < w; j++)
        out[j] = FOLD_max(out[j], rows[j * step + k]);
  }
}

/* Windows of 2 x 2 that do not overlap, in two rows. */
static void pool_back_pairs(const float *a, const float *b, const float *y,
                            const float *g, int64_t n, float *restrict top,
                            float *restrict low) {
  for (int64_t j = 0; j < n; j++) {
    float m = y[j], d = g[j];
    bool is1 = a[2 * j] == m, is2 = a[2 * j + 1] == m, is3 = b[2 * j] == m;
    bool is4 = b[2 * j + 1] == m;
    top[2 * j] = is1 ? d : 0;
    top[2 * j + 1] = is2 & !is1 ? d : 0;
    low[2 * j] = is3 & !(is1 | is2) ? d : 0;
    low[2 * j + 1] = is4 & !(is1 | is2 | is3) ? d : 0;
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
        if (x[p] == y[j]) break;
      }
      if (k < n) out[p] += g[j];
    }
  }
}
