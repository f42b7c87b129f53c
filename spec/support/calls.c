/* Misuse of the host's calls: "calls FILE DEVICE" prints what went wrong and
 * exits with 1, or prints "ok". FILE holds the graphs `twice` (x * 2 reversed)
 * and `drop` (dropout), both of one dim, `pair` (x + y, whose size `rows` is
 * one) and `guarded` (traced for more than two elements). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "limn.h"

enum { N = 4096 };
static limn_context *ctx;
static int failures;

static void want(int got, int code, const char *what) {
  if (got == code) return;
  printf("%s: %d instead of %d: %s\n", what, got, code, limn_error(ctx));
  failures++;
}

static limn_call *call(limn_model *m, const char *graph, const char *device,
                       float *x) {
  limn_array in = LIMN_ARRAY(x, LIMN_F32, 1, N);
  limn_call *k;
  if (limn_call_new(m, graph, device, &k) < 0 ||
      limn_call_bind(k, LIMN_IN, 0, &in) < 0) {
    printf("%s\n", limn_error(ctx));
    exit(1);
  }
  return k;
}

/* Outputs of another size, dtype or layout are refused on every device. */
static void outputs(limn_model *m, const char *device, float *x, float *y) {
  limn_array small = LIMN_ARRAY(y, LIMN_F32, 1, 2);
  limn_array other = LIMN_ARRAY(y, LIMN_I32, 1, N);
  limn_array apart = LIMN_ARRAY(y, LIMN_F32, 1, N);
  limn_array right = LIMN_ARRAY(y, LIMN_F32, 1, N);
  limn_call *k = call(m, "twice", device, x);
  apart.stride[0] = 2;
  limn_call_bind(k, LIMN_OUT, 0, &small);
  want(limn_call_prepare(k, NULL, 0), LIMN_ESHAPE, "a small output");
  limn_call_bind(k, LIMN_OUT, 0, &other);
  want(limn_call_prepare(k, NULL, 0), LIMN_ESHAPE, "an output of ints");
  limn_call_bind(k, LIMN_OUT, 0, &apart);
  want(limn_call_prepare(k, NULL, 0), LIMN_ESHAPE, "an output with strides");
  want(limn_call_run(k), LIMN_EPLAN, "a run that is not prepared");
  limn_call_bind(k, LIMN_OUT, 0, &right);
  want(limn_call_prepare(k, NULL, 0), 0, "the right output");
  want(limn_call_run(k), 0, "the right output's run");
  for (int i = 0; i < N; i++)
    if (y[i] != 2 * x[N - 1 - i]) failures++;
  limn_call_release(k);
}

/* On the CPU an output that lies over an input is refused. */
static void overlap(limn_model *m, float *x) {
  limn_array over = LIMN_ARRAY(x + 1, LIMN_F32, 1, N);
  limn_call *k = call(m, "twice", NULL, x);
  limn_call_bind(k, LIMN_OUT, 0, &over);
  want(limn_call_prepare(k, NULL, 0), 0, "preparing");
  want(limn_call_run(k), LIMN_EARG, "an output over an input");
  limn_call_release(k);
}

static void unaligned(limn_model *m, float *x) {
  limn_array odd = LIMN_ARRAY((char *)x + 1, LIMN_F32, 1, N);
  limn_call *k = call(m, "twice", NULL, x);
  want(limn_call_bind(k, LIMN_IN, 0, &odd), LIMN_EARG, "unaligned data");
  limn_call_release(k);
}

/* A change of mode is noticed by calls that were prepared before. */
static void mode(limn_model *m, const char *device, float *x, float *y) {
  limn_array out = LIMN_ARRAY(y, LIMN_F32, 1, N);
  limn_call *k = call(m, "drop", device, x);
  int zeros = 0;
  limn_call_bind(k, LIMN_OUT, 0, &out);
  want(limn_call_prepare(k, NULL, 0), 0, "preparing in eval mode");
  want(limn_call_run(k), 0, "a run in eval mode");
  for (int i = 0; i < N; i++) zeros += y[i] == 0;
  want(zeros, 0, "zeros in eval mode");
  limn_model_set_mode(m, 1);
  want(limn_call_run(k), LIMN_EPLAN, "a run after the mode changed");
  want(limn_call_prepare(k, NULL, 0), 0, "preparing in training mode");
  want(limn_call_run(k), 0, "a run in training mode");
  for (int i = 0; i < N; i++) zeros += y[i] == 0;
  if (zeros < N / 4 || zeros > N * 3 / 4) want(zeros, N / 2, "zeros");
  limn_model_set_mode(m, 0);
  limn_call_release(k);
}

/* What a graph was recorded for is checked before a run, and said. */
static void signature(limn_model *m, const char *device, float *x, float *y) {
  limn_array four = LIMN_ARRAY(x, LIMN_F32, 1, 4);
  limn_array two = LIMN_ARRAY(x, LIMN_F32, 1, 2);
  limn_array out = LIMN_ARRAY(y, LIMN_F32, 1, 4);
  limn_call *k;
  if (limn_call_new(m, "pair", device, &k) < 0) exit(2);
  limn_call_bind(k, LIMN_IN, 0, &four);
  limn_call_bind(k, LIMN_IN, 1, &two);
  want(limn_call_prepare(k, NULL, 0), LIMN_ESHAPE, "two sizes of one name");
  want(strcmp(limn_error(ctx), "size rows is 4 in x (dim 1) but 2 in y (dim "
              "1)"), 0, "what it says");
  limn_call_bind(k, LIMN_IN, 1, &four);
  limn_call_bind(k, LIMN_OUT, 0, &out);
  want(limn_call_prepare(k, NULL, 0), 0, "sizes that agree");
  want(limn_call_run(k), 0, "their run");
  limn_call_release(k);
  if (limn_call_new(m, "guarded", device, &k) < 0) exit(2);
  limn_call_bind(k, LIMN_IN, 0, &two);
  want(limn_call_prepare(k, NULL, 0), LIMN_EGUARD, "a guard that fails");
  want(strstr(limn_error(ctx), "size(%x, 1) > 2 (it is 2)") != NULL, 1,
       "how it reads");
  limn_call_bind(k, LIMN_IN, 0, &four);
  limn_call_bind(k, LIMN_OUT, 0, &out);
  want(limn_call_prepare(k, NULL, 0), 0, "a guard that holds");
  want(limn_call_run(k), 0, "its run");
  limn_call_release(k);
}

int main(int argc, char **argv) {
  limn_options o = LIMN_OPTIONS;
  limn_model *m;
  float *x = malloc((N + 1) * sizeof *x), *y = malloc(2 * N * sizeof *y);
  char *bytes = malloc(1 << 20);
  FILE *f = argc == 3 ? fopen(argv[1], "rb") : NULL;
  size_t n;
  if (!f || limn_open(&o, &ctx) < 0) return 2;
  n = fread(bytes, 1, 1 << 20, f);
  fclose(f);
  if (limn_model_load(ctx, bytes, n, 0, &m) < 0) return 2;
  for (int i = 0; i <= N; i++) x[i] = (float)(i + 1);
  outputs(m, argv[2], x, y);
  overlap(m, x);
  unaligned(m, x);
  mode(m, argv[2], x, y);
  signature(m, argv[2], x, y);
  limn_model_release(m);
  limn_close(ctx);
  free(bytes), free(y), free(x);
  if (!failures) puts("ok");
  return failures != 0;
}
