/* Times saved graphs through the C API against hand-written references, round
 * by round in one process, and prints "name ours_ns reference_ns limit" lines.
 *
 *   engine FOLDER    FOLDER holds policy.limn chain.limn mlp.limn digits.limn
 *                    as bench.lua makes them */
#include "bench.h"

/* glibc's vector versions, as a careful user would get them. */
#if defined(__x86_64__) && !defined(__clang__)
__attribute__((simd("notinbranch"))) float tanhf(float);
#endif

/* -- Policy net 64-64-64-8, tanh, batch 1 -- */

typedef struct {
  const float *w[3], *b[3], *x;
  float h[2][64], y[8];
} policy;

static int policy_ref(void *arg) {
  policy *p = arg;
  const float *x = p->x;
  for (int l = 0; l < 3; l++) {
    int n = l < 2 ? 64 : 8;
    float *y = l < 2 ? p->h[l] : p->y;
    memcpy(y, p->b[l], (size_t)n * sizeof(float));
    cblas_sgemv(CblasRowMajor, CblasNoTrans, n, 64, 1, p->w[l], 64, x, 1, 1, y,
                1);
    if (l < 2)
      for (int i = 0; i < n; i++) y[i] = tanhf(y[i]);
    x = y;
  }
  return 0;
}

static void bench_policy(const char *folder) {
  limn_model *m = load(folder, "policy.limn");
  policy p = {{floats(4096, .1f), floats(4096, .1f), floats(512, .1f)},
              {floats(64, .1f), floats(64, .1f), floats(8, .1f)},
              floats(64, 1), {{0}}, {0}};
  float y[8];
  limn_array in = LIMN_ARRAY((void *)(uintptr_t)p.x, LIMN_F32, 2, 1, 64);
  limn_array out = LIMN_ARRAY(y, LIMN_F32, 2, 1, 8);
  limn_call *k = call(m, "policy", &in, 1, &out);
  compare("policy net, batch 1, C API", run, k, policy_ref, &p, 1, 2);
  limn_call_release(k);
  limn_model_release(m);
}

/* -- tanh(a * b + c) * a over 2^20 floats -- */

typedef struct {
  float *restrict a, *restrict b, *restrict c, *restrict y;
} chain;
#define CHAIN (1 << 20)

static int chain_ref(void *arg) {
  chain *k = arg;
  float *restrict a = k->a, *restrict b = k->b, *restrict c = k->c,
        *restrict y = k->y;
  for (int i = 0; i < CHAIN; i++) y[i] = tanhf(a[i] * b[i] + c[i]) * a[i];
  return 0;
}

static void bench_chain(const char *folder) {
  limn_model *m = load(folder, "chain.limn");
  chain r = {floats(CHAIN, 1), floats(CHAIN, 1), floats(CHAIN, 1),
             floats(CHAIN, 1)};
  limn_array in[3] = {LIMN_ARRAY(r.a, LIMN_F32, 1, CHAIN),
                      LIMN_ARRAY(r.b, LIMN_F32, 1, CHAIN),
                      LIMN_ARRAY(r.c, LIMN_F32, 1, CHAIN)};
  limn_array out = LIMN_ARRAY(floats(CHAIN, 1), LIMN_F32, 1, CHAIN);
  limn_call *k = call(m, "chain", in, 3, &out);
  compare("tanh(a*b+c)*a, 2^20 floats", run, k, chain_ref, &r, 5, 1.4);
  limn_call_release(k);
  limn_model_release(m);
}

/* -- Training step 784-256-256-10, batch 128: its products in OpenBLAS -- */

typedef struct {
  float *x, *w1, *w2, *w3, *h1, *h2, *o, *g3, *g2, *g1;
} mlp;

static int mlp_ref(void *arg) {
  mlp *k = arg;
  enum { B = 128, IN = 784, H = 256, O = 10 };
#define GEMM(ta, tb, m, n, kk, a, lda, b, ldb, c, ldc)                     \
  cblas_sgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans,               \
              tb ? CblasTrans : CblasNoTrans, m, n, kk, 1, a, lda, b, ldb, \
              0, c, ldc)
  GEMM(0, 1, B, H, IN, k->x, IN, k->w1, IN, k->h1, H);  /* forward */
  GEMM(0, 1, B, H, H, k->h1, H, k->w2, H, k->h2, H);
  GEMM(0, 1, B, O, H, k->h2, H, k->w3, H, k->o, O);
  GEMM(1, 0, O, H, B, k->o, O, k->h2, H, k->g3, H);  /* weights */
  GEMM(0, 0, B, H, O, k->o, O, k->w3, H, k->h2, H);  /* inputs */
  GEMM(1, 0, H, H, B, k->h2, H, k->h1, H, k->g2, H);
  GEMM(0, 0, B, H, H, k->h2, H, k->w2, H, k->h1, H);
  GEMM(1, 0, H, IN, B, k->h1, H, k->x, IN, k->g1, IN);
  return 0;
}

static void bench_mlp(const char *folder) {
  limn_model *m = load(folder, "mlp.limn");
  mlp r = {floats(128 * 784, 1), floats(256 * 784, .03f),
           floats(256 * 256, .05f), floats(2560, .05f), floats(128 * 256, 1),
           floats(128 * 256, 1), floats(1280, 1), floats(2560, 1),
           floats(256 * 256, 1), floats(256 * 784, 1)};
  int64_t *t = malloc(128 * sizeof *t);
  limn_array in[2] = {LIMN_ARRAY(r.x, LIMN_F32, 2, 128, 784),
                      LIMN_ARRAY(t, LIMN_I64, 1, 128)};
  limn_call *k;
  for (int i = 0; i < 128; i++) t[i] = i % 10 + 1;
  limn_model_set_mode(m, 1);
  k = call(m, "step", in, 2, NULL);
  compare("training step 784-256-256-10, batch 128", run, k, mlp_ref, &r, 10,
          1.3);
  limn_call_release(k);
  limn_model_release(m);
}

/* -- Plans -- */

typedef struct {
  limn_graph *g;
  limn_tensor *x[512];
  limn_plan *p;
  int at;
} plans;

static int plan_new(void *arg) {
  plans *k = arg;
  limn_run_arg in = {k->x[k->at++ % 512], 0};
  if (k->at % 512 == 0) limn_graph_forget(k->g);
  return limn_plan_find(k->g, limn_device_cpu(ctx), &in, &k->p);
}

static int plan_again(void *arg) {
  plans *k = arg;
  limn_run_arg in = {k->x[7], 0};
  return limn_plan_find(k->g, limn_device_cpu(ctx), &in, &k->p);
}

static void bench_plans(const char *folder) {
  limn_model *m = load(folder, "digits.limn");
  plans k = {limn_model_graph(m, "infer"), {0}, NULL, 0};
  for (int i = 0; i < 512; i++) {
    limn_shape s = {2, {i + 1, 64}};
    if (limn_tensor_new(ctx, limn_device_cpu(ctx), LIMN_F32, &s, &k.x[i]) < 0)
      die("plans");
  }
  bound("a new batch size, against 100 us", plan_new, &k, 100e3);
  limn_graph_forget(k.g);
  bound("a cached plan, against 200 ns", plan_again, &k, 200);
  for (int i = 0; i < 512; i++) limn_tensor_release(k.x[i]);
  limn_model_release(m);
}

int main(int argc, char **argv) {
  limn_options o = LIMN_OPTIONS;
  if (argc < 2 || limn_open(&o, &ctx) < 0) return 1;
  openblas_set_num_threads(1);
  bench_policy(argv[1]);
  bench_chain(argv[1]);
  bench_mlp(argv[1]);
  bench_plans(argv[1]);
  limn_close(ctx);
  return 0;
}
