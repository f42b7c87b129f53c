/* Loads, plans and runs a model with an allocator whose Nth call fails, for
 * every N: alloc MODEL ROWS COLUMNS. Prints the number of calls that a whole
 * pass makes; exits with 1 and a sentence when memory leaks, a failure is not
 * reported as one, a pass after a failure differs from the first, or a run of a
 * prepared call allocates. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

typedef struct {
  long calls, fail_at; /* fail_at 0: never; from then on if `always` */
  int always;
  long live;
  size_t bytes;
} heap;

static void die(const char *what, long n) {
  fprintf(stderr, "allocation %ld: %s\n", n, what);
  exit(1);
}

static void *heap_realloc(void *user, void *p, size_t osize, size_t nsize,
                          size_t align) {
  heap *h = user;
  void *q = NULL;
  if (nsize == 0) {
    if (p) h->live--, h->bytes -= osize;
    free(p);
    return NULL;
  }
  /* Giving back may not fail; all else may. */
  h->calls++;
  if (h->fail_at && (h->calls == h->fail_at ||
                     (h->always && h->calls > h->fail_at)))
    return NULL;
  if (align < sizeof(void *)) align = sizeof(void *);
  if (posix_memalign(&q, align, nsize)) return NULL;
  if (p) memcpy(q, p, osize < nsize ? osize : nsize);
  if (p) free(p);
  else h->live++;
  h->bytes += nsize - (p ? osize : 0);
  return q;
}

static unsigned char *file;
static size_t file_size;
static int rows, columns;

static void read_file(const char *path) {
  FILE *f = fopen(path, "rb");
  long n;
  if (!f || fseek(f, 0, SEEK_END) || (n = ftell(f)) < 0) exit(2);
  rewind(f);
  file = malloc((size_t)n + 1);
  file_size = (size_t)n;
  if (!file || fread(file, 1, file_size, f) != file_size) exit(2);
  fclose(f);
}

/* A run of a prepared call takes no memory. The first may copy the weights to
 * the form that its kernels want, and later ones try again if that failed. */
static int run(limn_call *c, const heap *h, int first) {
  long calls = h->calls;
  int rc = limn_call_run(c);
  if (!h->fail_at && !first && h->calls != calls) die("a run allocates", calls);
  return rc;
}

/* One graph: bind, plan, run; the results of the second run to out[0..). */
static int use(heap *h, limn_model *m, const char *graph, float *out, int n) {
  limn_call *c = NULL;
  float x[1024];
  int64_t t[64];
  int rc, i;
  limn_array in = LIMN_ARRAY(x, LIMN_F32, 2, rows, columns);
  limn_array labels = LIMN_ARRAY(t, LIMN_I64, 1, rows);
  limn_array got;
  for (i = 0; i < rows * columns; i++) x[i] = (float)(i % 7) / 4 - 1;
  for (i = 0; i < rows; i++) t[i] = i % 2 + 1;
  rc = limn_call_new(m, graph, NULL, &c);
  if (rc >= 0) rc = limn_call_bind(c, LIMN_IN, 0, &in);
  if (rc >= 0 && !strcmp(graph, "step"))
    rc = limn_call_bind(c, LIMN_IN, 1, &labels);
  if (rc >= 0) rc = limn_call_prepare(c, NULL, 0);
  for (i = 0; i < 3 && rc >= 0; i++) {
    rc = run(c, h, i == 0);
    if (rc < 0 || i != 1) continue;
    rc = limn_call_output(c, 0, &got);
    if (rc >= 0) memcpy(out, got.data, (size_t)n * sizeof *out);
  }
  if (c) limn_call_release(c);
  return rc;
}

/* The gradient of graph "loss" by its first input and its cells. */
static int differentiate(limn_model *m) {
  limn_graph *g = limn_model_graph(m, "loss"), *copy;
  limn_ref wrt[8] = {0};
  limn_arg out[8];
  int n = 1, rc = limn_graph_clone(g, &copy);
  if (rc < 0) return rc;
  wrt[0] = g->in[0].ref;
  for (uint32_t i = 0; i < g->ncell && n < 8; i++) wrt[n++] = g->cell[i].ref;
  rc = limn_gradient(copy, 1, copy->out[0], wrt, n, out);
  for (int i = 0; i < n && rc >= 0; i++)
    if (out[i].tag != LIMN_A_NONE) rc = limn_graph_add_out(copy, out[i]);
  if (rc >= 0 && copy->nout != (uint32_t)n + 1) rc = -102;
  copy->nin_tree = copy->nout_tree = copy->nstatic = 0;
  if (rc >= 0) rc = limn_graph_compact(copy);
  if (rc >= 0) rc = limn_graph_verify(copy);
  limn_graph_release(copy);
  return rc;
}

/* All of it; *h counts. Results to out. */
static int pass(heap *h, float *out) {
  limn_options o = LIMN_OPTIONS;
  limn_context *ctx = NULL;
  limn_model *m = NULL;
  int rc, had_message = 1;
  o.user = h;
  o.realloc = heap_realloc;
  rc = limn_open(&o, &ctx);
  if (rc < 0 || !ctx) return rc < 0 ? rc : -100;
  rc = limn_model_load(ctx, file, file_size, 0, &m);
  if (rc >= 0) rc = use(h, m, "step", out, 1);
  if (rc >= 0) rc = use(h, m, "infer", out + 1, 2 * rows);
  if (rc >= 0) rc = differentiate(m);
  if (rc < 0) had_message = *limn_error(ctx) != 0;
  if (m) limn_model_release(m);
  limn_close(ctx);
  return had_message ? rc : -101;
}

/* Equal up to rounding: without memory to prepare weights in, products take
 * another kernel. */
static int same(const float *a, const float *b, int n) {
  for (int i = 0; i < n; i++)
    if (!(fabsf(a[i] - b[i]) <= 1e-5f)) return 0;
  return 1;
}

int main(int argc, char **argv) {
  float want[256], got[256];
  heap h = {0, 0, 0, 0, 0};
  long n, total;
  int always, rc;
  if (argc != 4) return 2;
  read_file(argv[1]);
  rows = atoi(argv[2]), columns = atoi(argv[3]);
  memset(want, 0, sizeof want);
  rc = pass(&h, want);
  if (rc < 0) die(limn_strerror(rc), 0);
  if (h.live || h.bytes) die("memory leaks without any failure", h.live);
  total = h.calls;
  for (always = 0; always < 2; always++) {
    for (n = 1; n <= total; n++) {
      memset(&h, 0, sizeof h);
      memset(got, 0, sizeof got);
      h.fail_at = n;
      h.always = always;
      rc = pass(&h, got);
      if (h.live || h.bytes) die("memory leaks after it failed", n);
      if (rc == -101) die("there is no message", n);
      if (rc < 0 && rc != LIMN_EMEM) die(limn_strerror(rc), n);
      /* Some failures are survived: a cache that stays empty. */
      if (rc >= 0 && !same(want, got, 256)) die("results differ", n);
      if (rc >= 0 && always && n < total / 2)
        die("success though nothing could be allocated", n);
    }
  }
  printf("%ld allocations\n", total);
  free(file);
  return 0;
}
