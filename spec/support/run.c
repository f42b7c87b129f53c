/* Runs one graph of a file in a process without Lua and prints its results:
 * run FILE GRAPH DEVICE ROWS COLUMNS MODE. The inputs are float32 [ROWS,
 * COLUMNS], filled with ((17 i) mod 7) / 4 - 3 / 4; MODE is train or eval.
 * Prints each number of each output on a line of its own, twice: two runs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "limn.h"

static limn_context *ctx;

static void check(int rc) {
  if (rc >= 0) return;
  printf("%s\n", limn_error(ctx));
  exit(1);
}

static unsigned char *file_read(const char *path, size_t *size) {
  FILE *f = fopen(path, "rb");
  unsigned char *bytes;
  long n;
  if (!f || fseek(f, 0, SEEK_END) || (n = ftell(f)) < 0) exit(2);
  rewind(f);
  bytes = malloc((size_t)n + 1);
  *size = (size_t)n;
  if (!bytes || fread(bytes, 1, *size, f) != *size) exit(2);
  fclose(f);
  return bytes;
}

static void show(const limn_array *a) {
  int64_t n = 1;
  for (int d = 0; d < a->ndim; d++) n *= a->shape[d];
  for (int64_t i = 0; i < n; i++) {
    if (a->dtype == LIMN_F32) printf("%.9g\n", ((const float *)a->data)[i]);
    else if (a->dtype == LIMN_F64)
      printf("%.17g\n", ((const double *)a->data)[i]);
    else
      printf("%lld\n", (long long)((const int64_t *)a->data)[i]);
  }
}

int main(int argc, char **argv) {
  static float x[4096], y[16][4096];
  limn_options o = LIMN_OPTIONS;
  limn_model *m;
  limn_call *k;
  limn_info info = {0};
  size_t size;
  unsigned char *bytes;
  int rows, columns, n = 0;
  if (argc != 7) return 2;
  rows = atoi(argv[4]), columns = atoi(argv[5]);
  bytes = file_read(argv[1], &size);
  if (limn_open(&o, &ctx) < 0) return 2;
  check(limn_model_load(ctx, bytes, size, 0, &m));
  limn_model_set_mode(m, !strcmp(argv[6], "train"));
  check(limn_call_new(m, argv[2], argv[3], &k));
  for (int i = 0; i < rows * columns; i++) x[i] = (float)(17 * i % 7 - 3) / 4;
  for (int i = 0; limn_call_info(k, LIMN_IN, i, &info) >= 0; i++) {
    limn_array in = LIMN_ARRAY(x, LIMN_F32, 2, rows, columns);
    check(limn_call_bind(k, LIMN_IN, i, &in));
  }
  check(limn_call_prepare(k, NULL, 0));
  for (int i = 0; limn_call_info(k, LIMN_OUT, i, &info) >= 0; i++, n++) {
    limn_array out = LIMN_ARRAY(y[i], info.dtype, info.ndim, 0);
    memcpy(out.shape, info.shape, sizeof out.shape);
    check(limn_call_bind(k, LIMN_OUT, i, &out));
  }
  check(limn_call_prepare(k, NULL, 0));
  for (int run = 0; run < 2; run++) {
    check(limn_call_run(k));
    for (int i = 0; i < n; i++) {
      limn_array out = LIMN_ARRAY(y[i], LIMN_F32, 0, 0);
      check(limn_call_info(k, LIMN_OUT, i, &info));
      out.dtype = info.dtype, out.ndim = info.ndim;
      memcpy(out.shape, info.shape, sizeof out.shape);
      show(&out);
    }
  }
  limn_call_release(k);
  limn_model_release(m);
  limn_close(ctx);
  free(bytes);
  return 0;
}
