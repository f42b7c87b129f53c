/* max_pool2 and its gradient on the CPU, in float32, a plane at a time: the
 * largest of rows first, which lie dense, then of columns. */
#include "cpu_kernels.h"

static void pool_run(const limn_step *s, const limn_bind *b, int64_t t0,
                     int64_t t1) {
  limn_cpu *cpu = limn_cpu_bound(b);
  const limn_view *v = &s->in[0].v;
  const float *x = (const void *)limn_cpu_at(b, &s->in[0]);
  float *out = (void *)limn_cpu_at(b, &s->out[0]);
  int64_t n = v->d[1] * v->d[2];
  int slot;
  float *rows = limn_cpu_take(cpu, &slot);
  for (; t0 < t1; t0++)
    cpu->loops->pool(v, x + t0 * v->s[0], rows, out + t0 * n);
  limn_cpu_give(cpu, slot);
}

static void pool_run_back(const limn_step *s, const limn_bind *b, int64_t t0,
                          int64_t t1) {
  const limn_view *v = &s->in[0].v, *o = &s->out[0].v;
  const float *x = (const void *)limn_cpu_at(b, &s->in[0]);
  const float *y = (const void *)limn_cpu_at(b, &s->in[1]);
  const float *g = (const void *)limn_cpu_at(b, &s->in[2]);
  float *out = (void *)limn_cpu_at(b, &s->out[0]);
  int64_t n = v->d[1] * v->d[2];
  memset(out + t0 * o->s[0], 0, (size_t)((t1 - t0) * o->s[0]) * sizeof *out);
  for (; t0 < t1; t0++)
    limn_cpu_bound(b)->loops->pool_back(v, x + t0 * v->s[0], y + t0 * n,
                                        g + t0 * n, out + t0 * o->s[0]);
}

int limn_cpu_pool_prepare(limn_device *d, limn_step *s) {
  const limn_view *v = &s->in[0].v;
  double window = (double)(v->d[3] * v->d[4]);
  int64_t width = (v->d[2] - 1) * v->s[2] + v->d[4];
  s->run = s->op == OP_max_pool2_f32 ? pool_run : pool_run_back;
  s->ntiles = v->d[0];
  s->cost_ns = (double)v->d[0] * (double)(v->d[1] * v->d[2]) * window * 0.5;
  if (s->op != OP_max_pool2_f32) return 0;
  return limn_cpu_reserve(d, (size_t)(v->d[1] * width) * sizeof(float));
}
