/* What the benchmark's programs share: rounds of two jobs in turn, and saved
 * graphs through the C API. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "model.h"
#include "planner.h"

#include <cblas.h> /* last: its complex.h defines I */

void openblas_set_num_threads(int n);

#define ROUNDS 15

/* With one thread its own time counts, and not what else the machine does. */
static clockid_t bench_clock = CLOCK_THREAD_CPUTIME_ID;

static inline double now(void) {
  struct timespec t;
  clock_gettime(bench_clock, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static inline int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

typedef int (*job)(void *);

static inline double once(job f, void *arg, int n) {
  double t = now();
  for (int i = 0; i < n; i++)
    if (f(arg) < 0) {
      fprintf(stderr, "a run failed\n");
      exit(1);
    }
  return (now() - t) / n;
}

/* Medians of alternating rounds of about `ms` each. */
static inline void compare(const char *name, job ours, void *a, job ref, void *b,
                    double ms, double limit) {
  double x[ROUNDS], y[ROUNDS], one;
  int na, nb;
  once(ours, a, 3);
  one = once(ours, a, 3);
  na = (int)fmax(1, ms * 1e6 / one);
  once(ref, b, 3);
  one = once(ref, b, 3);
  nb = (int)fmax(1, ms * 1e6 / one);
  for (int i = 0; i < ROUNDS; i++) {
    x[i] = once(ours, a, na);
    y[i] = once(ref, b, nb);
  }
  qsort(x, ROUNDS, sizeof *x, by_value);
  qsort(y, ROUNDS, sizeof *y, by_value);
  printf("%s\t%.1f\t%.1f\t%g\n", name, x[ROUNDS / 2], y[ROUNDS / 2], limit);
  fflush(stdout);
}

/* As compare, against a time that is given. */
static inline void bound(const char *name, job ours, void *a, double limit_ns) {
  double x[ROUNDS], one = (once(ours, a, 3), once(ours, a, 3));
  for (int i = 0; i < ROUNDS; i++) x[i] = once(ours, a, (int)(1e6 / one) + 1);
  qsort(x, ROUNDS, sizeof *x, by_value);
  printf("%s\t%.1f\t%.1f\t1\n", name, x[ROUNDS / 2], limit_ns);
  fflush(stdout);
}

static limn_context *ctx;

static inline void die(const char *what) {
  fprintf(stderr, "%s: %s %s\n", what, limn_error(ctx), limn_hint_text(ctx));
  exit(1);
}

static inline float *floats(size_t n, float scale) {
  float *p = aligned_alloc(64, (n * sizeof(float) + 63) / 64 * 64);
  unsigned s = 1;
  for (size_t i = 0; i < n; i++) {
    s = s * 1664525u + 1013904223u;
    p[i] = ((float)(s >> 8) / (1 << 24) * 2 - 1) * scale;
  }
  return p;
}

static inline limn_model *load(const char *folder, const char *file) {
  char path[512];
  limn_model *m;
  FILE *f;
  long n;
  char *bytes;
  snprintf(path, sizeof path, "%s/%s", folder, file);
  f = fopen(path, "rb");
  if (!f) die(path);
  fseek(f, 0, SEEK_END);
  n = ftell(f);
  rewind(f);
  bytes = malloc((size_t)n);
  if (fread(bytes, 1, (size_t)n, f) != (size_t)n) die(path);
  fclose(f);
  if (limn_model_load(ctx, bytes, (size_t)n, 0, &m) < 0) die(path);
  free(bytes);
  return m;
}

static inline limn_call *call(limn_model *m, const char *graph, limn_array *in,
                       int nin, limn_array *out) {
  limn_call *k;
  if (limn_call_new(m, graph, NULL, &k) < 0) die(graph);
  for (int i = 0; i < nin; i++)
    if (limn_call_bind(k, LIMN_IN, i, &in[i]) < 0) die(graph);
  if (out && limn_call_bind(k, LIMN_OUT, 0, out) < 0) die(graph);
  if (limn_call_prepare(k, NULL, 0) < 0) die(graph);
  return k;
}

static inline int run(void *k) { return limn_call_run(k); }
