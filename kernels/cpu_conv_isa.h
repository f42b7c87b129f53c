/* Transforms of the convolution by 3 x 3 windows in tiles of 2 x 2 results
 * (Winograd 1980; Lavin and Gray 2016, F(2x2, 3x3)), for cpu_conv.c.
 *
 * With the matrices of that paper: results = A' [(G g G') * (B' d B)] A, where
 * g is a window of weights, d the 4 x 4 input of a tile and * goes element by
 * element, so that sums over channels are 16 products of matrices. */

enum { CONV_ROW = 2048 }; /* floats of a row that are worked on at once */

/* One row of `tiles` tiles: rows[i][j], j < 2 * tiles + 2, are its input. The
 * value of tile t in matrix k goes to v[k * step + t]. */
static void conv_input(const float *const rows[4], int64_t tiles, float *v,
                       int64_t step) {
  float line[CONV_ROW], even[CONV_ROW / 2], odd[CONV_ROW / 2];
  int64_t n = 2 * tiles + 2, j;
  for (int i = 0; i < 4; i++, v += 4 * step) {
    const float *a = rows[i == 0 ? 0 : i == 2 ? 2 : 1];
    const float *b = rows[i == 0 ? 2 : i == 1 ? 2 : i == 2 ? 1 : 3];
    float *v1 = v + step, *v2 = v1 + step, *v3 = v2 + step;
    if (i == 1)
      for (j = 0; j < n; j++) line[j] = a[j] + b[j];
    else
      for (j = 0; j < n; j++) line[j] = a[j] - b[j];
    for (j = 0; j <= tiles; j++) {
      even[j] = line[2 * j];
      odd[j] = line[2 * j + 1];
    }
    for (j = 0; j < tiles; j++) {
      v[j] = even[j] - even[j + 1];
      v1[j] = odd[j] + even[j + 1];
      v2[j] = even[j + 1] - odd[j];
      v3[j] = odd[j] - odd[j + 1];
    }
  }
}

/* The reverse: two rows of 2 * tiles results. */
static void conv_output(const float *m, int64_t step, int64_t tiles,
                        float *top, float *low) {
  float s[2][4][CONV_ROW / 2];
  int64_t t;
  for (int j = 0; j < 4; j++) {
    const float *a = m + j * step, *b = a + 4 * step, *c = b + 4 * step;
    const float *d = c + 4 * step;
    for (t = 0; t < tiles; t++) {
      s[0][j][t] = a[t] + b[t] + c[t];
      s[1][j][t] = b[t] - c[t] - d[t];
    }
  }
  for (int i = 0; i < 2; i++) {
    float *out = i ? low : top;
    for (t = 0; t < tiles; t++) {
      out[2 * t] = s[i][0][t] + s[i][1][t] + s[i][2][t];
      out[2 * t + 1] = s[i][1][t] - s[i][2][t] - s[i][3][t];
    }
  }
}

/* n windows of weights, 9 floats each: window i goes to u[k * n + i]. */
static void conv_weights(const float *w, int64_t n, float *u) {
  enum { SOME = 64 };
  float g[9][SOME], h[4][3][SOME];
  for (int64_t at = 0; at < n; at += SOME) {
    int64_t some = n - at < SOME ? n - at : SOME, i;
    for (i = 0; i < some; i++)
      for (int k = 0; k < 9; k++) g[k][i] = w[(at + i) * 9 + k];
    for (int k = 0; k < 3; k++)
      for (i = 0; i < some; i++) {
        float a = g[k][i], b = g[3 + k][i], c = g[6 + k][i];
        h[0][k][i] = a;
        h[1][k][i] = 0.5f * (a + b + c);
        h[2][k][i] = 0.5f * (a - b + c);
        h[3][k][i] = c;
      }
    for (int k = 0; k < 4; k++) {
      float *to = u + 4 * k * n + at;
      for (i = 0; i < some; i++) {
        float a = h[k][0][i], b = h[k][1][i], c = h[k][2][i];
        to[i] = a;
        to[n + i] = 0.5f * (a + b + c);
        to[2 * n + i] = 0.5f * (a - b + c);
        to[3 * n + i] = c;
      }
    }
  }
}
