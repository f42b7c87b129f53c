/* Misuse of the host's calls: "calls FILE DEVICE" prints what went wrong and
 * exits with 1, or prints "ok". FILE holds the graphs `twice` (x * 2 reversed)
 * and `drop` (dropout), both of one dim, `pair` (x + y, whose size `rows` is
 * one), `guarded` (traced for more than two elements) and `told` (a string, a
 * size and true). */
#include <pthread.h>
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

/* What is not there is a wrong argument, or nothing. */
static void absent(limn_model *m, float *x) {
  limn_array in = LIMN_ARRAY(x, LIMN_F32, 1, N), bare = {0};
  limn_call *k, *none = NULL;
  limn_model *other;
  limn_info info;
  size_t n;
  want(limn_open(NULL, NULL), LIMN_EARG, "no place for a context");
  want(limn_model_load(ctx, x, 4, 0, NULL), LIMN_EARG, "none for a model");
  want(limn_model_load(NULL, x, 4, 0, &other), LIMN_EARG, "no context");
  want(limn_call_new(NULL, "twice", NULL, &k), LIMN_EARG, "no model");
  want(limn_call_new(m, NULL, NULL, &k), LIMN_EARG, "no graph's name");
  want(limn_model_save(m, NULL), LIMN_EARG, "no path");
  want(limn_model_var_info(m, 0, NULL), LIMN_EINDEX, "no variable");
  want(limn_model_var_find(NULL, "w"), LIMN_EARG, "a variable of no model");
  want(limn_model_graph_name(NULL, 0) == NULL, 1, "a graph of no model");
  want(limn_call_find(none, LIMN_IN, "x"), LIMN_EARG, "finding in no call");
  want(limn_call_info(none, LIMN_IN, 0, &info), LIMN_EARG, "asking no call");
  want(limn_call_bind(none, LIMN_IN, 0, &in), LIMN_EARG, "binding to none");
  want(limn_call_number(none, 0, 1), LIMN_EARG, "a number for none");
  want(limn_call_workspace(none, &n), LIMN_EARG, "the workspace of none");
  want(limn_call_prepare(none, NULL, 0), LIMN_EARG, "preparing none");
  want(limn_call_run(none), LIMN_EARG, "running none");
  k = call(m, "twice", NULL, x);
  want(limn_call_find(k, LIMN_IN, NULL), LIMN_EARG, "an input without name");
  want(limn_call_info(k, LIMN_IN, 0, NULL), LIMN_EARG, "no place for info");
  want(limn_call_bind(k, LIMN_IN, 0, NULL), LIMN_EARG, "no array");
  want(limn_call_bind(k, LIMN_IN, 0, &bare), LIMN_EARG, "an empty array");
  want(limn_call_workspace(k, NULL), LIMN_EARG, "no place for a size");
  want(limn_call_output(k, 0, NULL), LIMN_EARG, "no place for an output");
  want(limn_call_find(k, LIMN_IN, "q"), LIMN_ENAME, "an unknown input");
  want(strcmp(limn_error(ctx), "graph twice has no input \"q\"; it has x"), 0,
       "a message with the name that the file gives the graph");
  want(limn_call_find(k, LIMN_IN, "x"), 0, "a known one");
  want(*limn_error(ctx), 0, "an error that is over");
  limn_call_release(k);
  limn_call_release(NULL);
  limn_model_release(NULL);
  limn_close(NULL);
}

/* Results that are no tensors. */
static void plain(limn_model *m, const char *device, float *x) {
  limn_call *k = call(m, "told", device, x);
  limn_array a;
  want(limn_call_output(k, 0, &a), LIMN_EPLAN, "a result before the run");
  want(limn_call_prepare(k, NULL, 0), 0, "preparing");
  want(limn_call_run(k), 0, "running");
  want(limn_call_output(k, 0, &a), 0, "a string");
  want(a.dtype == LIMN_U8 && a.ndim == 1 && a.shape[0] == 4, 1, "its bytes");
  want(strcmp(a.data, "good"), 0, "its text");
  want(limn_call_output(k, 1, &a), 0, "a size");
  want(a.dtype == LIMN_I64 && *(int64_t *)a.data == N, 1, "its value");
  want(limn_call_output(k, 2, &a), 0, "a boolean");
  want(a.dtype == LIMN_I64 && *(int64_t *)a.data == 1, 1, "its value");
  limn_call_release(k);
}

static int mapped(const char *what) {
  char line[4096];
  FILE *f = fopen("/proc/self/maps", "r");
  int found = 0;
  while (f && fgets(line, sizeof line, f)) found |= strstr(line, what) != NULL;
  if (f) fclose(f);
  return found;
}

static void *lister(void *out) {
  limn_options o = LIMN_OPTIONS;
  limn_context *c;
  int n = 0;
  if (limn_open(&o, &c) < 0) return NULL;
  while (limn_device_name(c, n)) n++;
  limn_close(c);
  *(int *)out = n;
  return NULL;
}

/* Opening a context opens no driver; many may do so at once. */
static void drivers(void) {
  enum { T = 8 };
  pthread_t thread[T];
  int n[T] = {0};
  want(strcmp(limn_device_name(ctx, 0), "cpu"), 0, "the CPU comes first");
  want(mapped("libOpenCL") || mapped("libcuda"), 0, "drivers in the process");
  for (int i = 0; i < T; i++) pthread_create(&thread[i], NULL, lister, &n[i]);
  for (int i = 0; i < T; i++) pthread_join(thread[i], NULL);
  for (int i = 0; i < T; i++) want(n[i] > 0 ? n[i] : -99, n[0], "devices");
}

int main(int argc, char **argv) {
  limn_options o = LIMN_OPTIONS;
  limn_model *m;
  float *x = malloc((N + 1) * sizeof *x), *y = malloc(2 * N * sizeof *y);
  char *bytes = malloc(1 << 20);
  FILE *f = argc == 3 ? fopen(argv[1], "rb") : NULL;
  size_t n;
  if (!f || limn_open(&o, &ctx) < 0) return 2;
  if (!strcmp(argv[2], "cpu")) drivers();
  n = fread(bytes, 1, 1 << 20, f);
  fclose(f);
  if (limn_model_load(ctx, bytes, n, 0, &m) < 0) return 2;
  for (int i = 0; i <= N; i++) x[i] = (float)(i + 1);
  outputs(m, argv[2], x, y);
  overlap(m, x);
  unaligned(m, x);
  mode(m, argv[2], x, y);
  signature(m, argv[2], x, y);
  absent(m, x);
  plain(m, argv[2], x);
  limn_model_release(m);
  limn_close(ctx);
  free(bytes), free(y), free(x);
  if (!failures) puts("ok");
  return failures != 0;
}
