/* A program without Lua that classifies digits with a model file.
 *
 *   make build/host
 *   luajit examples/digits.lua --file /tmp/digits.limn
 *   build/host /tmp/digits.limn examples/data [device]
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "limn.h"

enum { HEADER_IMAGES = 16, HEADER_LABELS = 8, PIXELS = 64, CLASSES = 10 };

static void die(const char *what, const char *why) {
  fprintf(stderr, "%s: %s\n", what, why);
  exit(1);
}

/* The whole file, in malloc'ed memory. */
static unsigned char *read_file(const char *path, size_t *size) {
  FILE *f = fopen(path, "rb");
  unsigned char *p;
  long n;
  if (!f) die(path, "cannot be opened");
  if (fseek(f, 0, SEEK_END) || (n = ftell(f)) < 0 || fseek(f, 0, SEEK_SET))
    die(path, "cannot be read");
  p = malloc((size_t)n + 1);
  if (!p || fread(p, 1, (size_t)n, f) != (size_t)n)
    die(path, "cannot be read");
  fclose(f);
  *size = (size_t)n;
  return p;
}

static unsigned char *read_data(const char *dir, const char *name,
                                size_t *size) {
  char path[1024];
  snprintf(path, sizeof path, "%s/%s", dir, name);
  return read_file(path, size);
}

static void check(limn_context *ctx, int rc) {
  if (rc < 0) die(limn_strerror(rc), limn_error(ctx));
}

/* The position of the largest of n values. */
static int largest(const float *x, int n) {
  int i, best = 0;
  for (i = 1; i < n; i++)
    if (x[i] > x[best]) best = i;
  return best;
}

int main(int argc, char **argv) {
  limn_options options = LIMN_OPTIONS;
  limn_context *ctx;
  limn_model *model;
  limn_call *call;
  size_t size, image_size, label_size, workspace;
  unsigned char *bytes, *images, *labels;
  float *scores;
  void *memory;
  int64_t i, n, right = 0;

  if (argc < 3) die("usage", "host MODEL DATA_DIR [DEVICE]");
  bytes = read_file(argv[1], &size);
  images = read_data(argv[2], "test-images-idx3-ubyte", &image_size);
  labels = read_data(argv[2], "test-labels-idx1-ubyte", &label_size);
  if (image_size < HEADER_IMAGES || label_size < HEADER_LABELS)
    die(argv[2], "too short");
  n = (int64_t)(image_size - HEADER_IMAGES) / PIXELS;
  if ((int64_t)(label_size - HEADER_LABELS) != n) die(argv[2], "do not fit");

  if (limn_open(&options, &ctx)) die("limn", "cannot be opened");
  check(ctx, limn_model_load(ctx, bytes, size, 0, &model));
  free(bytes); /* copied: LIMN_BORROW would keep it in use */
  check(ctx, limn_call_new(model, "infer", argc > 3 ? argv[3] : NULL, &call));

  /* Bound memory is used where it lies; here n images at once. */
  scores = malloc(sizeof(float) * (size_t)n * CLASSES + 1);
  if (!scores) die("scores", "out of memory");
  {
    limn_array in = LIMN_ARRAY(images + HEADER_IMAGES, LIMN_U8, 3, n, 8, 8);
    limn_array out = LIMN_ARRAY(scores, LIMN_F32, 2, n, CLASSES);
    check(ctx, limn_call_bind(call, LIMN_IN, 0, &in));
    check(ctx, limn_call_bind(call, LIMN_OUT, 0, &out));
  }
  check(ctx, limn_call_workspace(call, &workspace));
  memory = aligned_alloc(64, (workspace + 63) / 64 * 64 + 64);
  if (!memory) die("workspace", "out of memory");
  check(ctx, limn_call_prepare(call, memory, workspace));
  check(ctx, limn_call_run(call));

  for (i = 0; i < n; i++) /* idx labels count from 0, as C does */
    right += largest(scores + i * CLASSES, CLASSES) ==
             labels[HEADER_LABELS + i];
  printf("%.1f %% of %lld digits right\n", 100.0 * (double)right / (double)n,
         (long long)n);

  limn_call_release(call);
  limn_model_release(model);
  limn_close(ctx);
  free(memory);
  free(scores);
  free(labels);
  free(images);
  return right * 10 >= n * 8 ? 0 : 1;
}
