/* Times layers that real models are made of, inference and training, on one
 * thread and two. Their references: the matrix products alone, by OpenBLAS on
 * one thread, or a copy of as many bytes as have to move.
 *
 *   layers FOLDER [PART [THREADS]]
 *
 * FOLDER holds the files that layers.lua makes; PART is in the names wanted. */
#include <unistd.h>

#include "bench.h"

typedef struct {
  int ta, tb, m, n, k, times;
} product;

typedef struct {
  const char *name, *file, *graph;
  const product *p; /* ends with m = 0; NULL: a copy */
  double copies;    /* of the first input */
  int nin;
  struct {
    int ndim, d[4];
  } in[3];      /* of floats; ndim 0: class labels for the rows before */
  double limit; /* on one thread */
} bench_case;

/* 3 x 3 windows from 1 to 32 and to 64 channels, and a linear layer. */
static const product cnn_infer[] = {{0, 0, 32, 25088, 9, 1},
                                    {0, 0, 64, 6272, 288, 1},
                                    {0, 1, 32, 10, 3136, 1},
                                    {0}};
static const product cnn_step[] = {
    {0, 0, 32, 25088, 9, 1},  {0, 0, 64, 6272, 288, 1},
    {0, 1, 32, 10, 3136, 1},  {1, 0, 10, 3136, 32, 1}, /* back from here */
    {0, 0, 32, 3136, 10, 1},  {0, 1, 64, 288, 6272, 1},
    {0, 0, 32, 6272, 576, 1}, {0, 1, 32, 9, 25088, 1},
    {0}};

/* Attention of 4 heads over 128 tokens of 256 values, and 1024 hidden units,
 * for one row and for 8. */
#define BLOCK(rows)                                                   \
  {0, 1, rows * 128, 768, 256, 1}, {0, 1, 128, 128, 64, rows * 4},    \
      {0, 0, 128, 64, 128, rows * 4}, {0, 1, rows * 128, 256, 256, 1}, \
      {0, 1, rows * 128, 1024, 256, 1}, {0, 1, rows * 128, 256, 1024, 1}
static const product block_1[] = {BLOCK(1), {0}};
static const product block_8[] = {BLOCK(8), {0}};
static const product block_step[] = {
    BLOCK(8),
    {0, 0, 1024, 256, 768, 1}, {1, 0, 768, 256, 1024, 1},
    {0, 0, 128, 64, 128, 32},  {1, 0, 128, 64, 128, 32},
    {0, 1, 128, 128, 64, 32},  {1, 0, 128, 64, 128, 32},
    {0, 0, 1024, 256, 256, 1}, {1, 0, 256, 256, 1024, 1},
    {0, 0, 1024, 256, 1024, 1}, {1, 0, 1024, 256, 1024, 1},
    {0, 0, 1024, 1024, 256, 1}, {1, 0, 256, 1024, 1024, 1},
    {0}};

/* 64 steps from 128 values to 256: one product for all inputs, one a step; back
 * from there one a step, and one for each of the weights. */
#define LSTM(rows) \
  {0, 1, 64 * rows, 1024, 128, 1}, {0, 1, rows, 1024, 256, 64}
#define LSTM_BACK(rows)                                                     \
  {0, 0, rows, 256, 1024, 64}, {1, 0, 1024, 256, 64 * rows, 1},             \
      {1, 0, 1024, 128, 64 * rows, 1}
static const product lstm_1[] = {LSTM(1), {0}};
static const product lstm_32[] = {LSTM(32), {0}};
static const product lstm_step_1[] = {LSTM(1), LSTM_BACK(1), {0}};
static const product lstm_step_32[] = {LSTM(32), LSTM_BACK(32), {0}};

#define ROWS_OF_1024 {2, {4096, 1024}}
#define IMAGES {4, {64, 64, 32, 32}}
static const bench_case cases[] = {
    {"CNN, batch 32", "cnn", "infer", cnn_infer, 0, 1, {{4, {32, 1, 28, 28}}},
     1.2},
    {"CNN, batch 32, training step", "cnn", "step", cnn_step, 0, 2,
     {{4, {32, 1, 28, 28}}, {0, {32}}}, 1.5},
    {"transformer block, batch 1", "block", "infer", block_1, 0, 1,
     {{3, {1, 128, 256}}}, 1.3},
    {"transformer block, batch 8", "block", "infer", block_8, 0, 1,
     {{3, {8, 128, 256}}}, 1.3},
    {"transformer block, batch 8, training step", "block", "step", block_step,
     0, 2, {{3, {8, 128, 256}}, {3, {8, 128, 256}}}, 1.3},
    {"LSTM, 64 steps, batch 1", "lstm", "infer", lstm_1, 0, 1,
     {{3, {64, 1, 128}}}, 1.2},
    {"LSTM, 64 steps, batch 32", "lstm", "infer", lstm_32, 0, 1,
     {{3, {64, 32, 128}}}, 1.2},
    {"LSTM, 64 steps, batch 1, training step", "lstm", "step", lstm_step_1, 0,
     2, {{3, {64, 1, 128}}, {3, {64, 1, 256}}}, 1.6},
    {"LSTM, 64 steps, batch 32, training step", "lstm", "step", lstm_step_32,
     0, 2, {{3, {64, 32, 128}}, {3, {64, 32, 256}}}, 1.4},
    {"softmax, 4 M", "softmax", "forward", NULL, 1, 1, {ROWS_OF_1024}, 2},
    {"softmax, 4 M, gradient", "softmax", "back", NULL, 1.5, 2,
     {ROWS_OF_1024, ROWS_OF_1024}, 2.5},
    {"layer norm, 4 M", "layer_norm", "forward", NULL, 1, 2,
     {ROWS_OF_1024, {2, {2, 1024}}}, 1.5},
    {"layer norm, 4 M, gradient", "layer_norm", "back", NULL, 1.5, 3,
     {ROWS_OF_1024, ROWS_OF_1024, {2, {2, 1024}}}, 2},
    {"batch norm, 4 M", "batch_norm", "forward", NULL, 1.5, 2,
     {IMAGES, {2, {2, 64}}}, 1.5},
    {"batch norm, 4 M, gradient", "batch_norm", "back", NULL, 2.5, 3,
     {IMAGES, IMAGES, {2, {2, 64}}}, 1.5},
};

/* -- References -- */

typedef struct {
  const product *p;
  size_t bytes;
} reference;

static float *ref_a, *ref_b, *ref_c; /* 64 MiB each: more than any needs */

/* One row is faster as a matrix times a vector. */
static void multiply_once(const product *p) {
  int rows = p->tb ? p->n : p->k, columns = p->tb ? p->k : p->n;
  if (p->m == 1 && !p->ta)
    cblas_sgemv(CblasRowMajor, p->tb ? CblasNoTrans : CblasTrans, rows, columns,
                1, ref_b, columns, ref_a, 1, 0, ref_c, 1);
  else
    cblas_sgemm(CblasRowMajor, p->ta ? CblasTrans : CblasNoTrans,
                p->tb ? CblasTrans : CblasNoTrans, p->m, p->n, p->k, 1, ref_a,
                p->ta ? p->m : p->k, ref_b, p->tb ? p->k : p->n, 0, ref_c,
                p->n);
}

static int multiply(void *arg) {
  reference *r = arg;
  for (const product *p = r->p; p->m; p++)
    for (int i = 0; i < p->times; i++) multiply_once(p);
  return 0;
}

static int copy(void *arg) {
  reference *r = arg;
  memcpy(ref_c, ref_a, r->bytes);
  return 0;
}

/* -- Ours -- */

static size_t bind(const bench_case *k, int i, limn_array *out) {
  size_t n = 1;
  limn_array a = {sizeof a, LIMN_F32, k->in[i].ndim, NULL, NULL, {0}, {0}, 0};
  if (a.ndim) {
    for (int d = 0; d < a.ndim; d++) a.shape[d] = k->in[i].d[d];
    for (int d = 0; d < a.ndim; d++) n *= (size_t)a.shape[d];
    a.data = floats(n, 1);
  } else {
    int64_t *t;
    n = (size_t)k->in[i].d[0];
    t = malloc(n * sizeof *t);
    for (size_t j = 0; j < n; j++) t[j] = (int64_t)j % 10 + 1;
    a.data = t, a.dtype = LIMN_I64, a.ndim = 1, a.shape[0] = (int64_t)n;
  }
  *out = a;
  return n;
}

static void measure(const char *folder, const bench_case *k, int threads) {
  char name[128], file[64];
  limn_array in[3];
  limn_model *m;
  limn_call *c;
  size_t most = 0;
  reference r = {k->p, 0};
  for (int i = 0; i < k->nin; i++)
    most = LIMN_MAX(most, bind(k, i, &in[i]));
  r.bytes = (size_t)((double)(most * sizeof(float)) * k->copies);
  snprintf(file, sizeof file, "%s.limn", k->file);
  snprintf(name, sizeof name, "%s%s", k->name,
           threads > 1 ? ", 2 threads" : "");
  m = load(folder, file);
  limn_model_set_mode(m, !strcmp(k->graph, "step"));
  c = call(m, k->graph, in, k->nin, NULL);
  compare(name, run, c, k->p ? multiply : copy, &r, 20,
          threads > 1 ? k->limit * 0.65 : k->limit);
  limn_call_release(c);
  limn_model_release(m);
  for (int i = 0; i < k->nin; i++) free(in[i].data);
}

int main(int argc, char **argv) {
  int most = sysconf(_SC_NPROCESSORS_ONLN) > 1 ? 2 : 1;
  if (argc > 3) most = atoi(argv[3]);
  if (argc < 2) return 1;
  openblas_set_num_threads(1);
  ref_a = floats(1 << 24, 1);
  ref_b = floats(1 << 24, 1);
  ref_c = floats(1 << 24, 1);
  for (int threads = 1; threads <= most; threads++) {
    limn_options o = LIMN_OPTIONS;
    o.threads = threads;
    if (limn_open(&o, &ctx) < 0) return 1;
    if (threads > 1) bench_clock = CLOCK_MONOTONIC;
    for (int i = 0; i < LIMN_COUNT(cases); i++)
      if (argc < 3 || strstr(cases[i].name, argv[2]))
        measure(argv[1], &cases[i], threads);
    limn_close(ctx);
  }
  return 0;
}
