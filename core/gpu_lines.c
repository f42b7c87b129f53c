/* Steps that go along lines on a GPU: argmax, softmax, running sums, norms. */
#include "gpu_job.h"

/* How many work-items share an output of a line of n elements: enough to keep
 * the device busy, as long as each has some elements of its own. */
int limn_gpu_lanes(const limn_gpu *g, int64_t lines, int64_t n, bool side) {
  int64_t want = g->units * 512;
  int lanes = 1;
  if (g->cpu) return 1;
  while (lanes < (int)g->local && (int64_t)lanes * 8 <= n &&
         lines * lanes < want)
    lanes *= 2;
  /* Neighbours on a GPU should read neighbours. */
  if (side)
    while (lanes < 32 && lanes < (int)g->local && lanes * 2 <= n) lanes *= 2;
  return lanes;
}

size_t limn_gpu_line_groups(const limn_gpu *g, int64_t lines, int lanes) {
  int64_t across = g->local / (uint32_t)lanes;
  return (size_t)((lines + across - 1) / across);
}

int limn_gpu_lines(gpu_job *j, const char *name, int nums) {
  const limn_step *s = j->s;
  const int64_t *d = s->in[0].v.d;
  int64_t lines = d[0] * d[2], n = d[1];
  limn_gpu_launch *l;
  int lanes;
  bool apart = d[2] > 1;
  if (lines == 0 || (n == 0 && s->kind != LIMN_STEP_ARG)) return 0;
  lanes = limn_gpu_lanes(j->g, lines, n, !apart && s->kind != LIMN_STEP_CUM);
  LIMN_TRY(step_text(j, name, nums));
  LIMN_TRY(step_launch(j, &l));
  step_slot(l, &s->out[0]);
  step_slot(l, &s->in[0]);
  limn_gpu_num(&l->args, lines);
  limn_gpu_num(&l->args, n);
  limn_gpu_num(&l->args, d[2]);
  limn_gpu_num(&l->args, lanes);
  limn_gpu_num(&l->args, apart);
  if (s->kind == LIMN_STEP_ARG) limn_gpu_num(&l->args, s->base);
  step_offset(l, &s->out[0]);
  step_offset(l, &s->in[0]);
  if (s->kind == LIMN_STEP_CUM) {
    limn_gpu_num(&l->args, s->flag);
    limn_gpu_num(&l->args, (n + lanes - 1) / lanes);
  }
  l->groups[0] = limn_gpu_line_groups(j->g, lines, lanes);
  return step_kernel(j, l, name);
}

/* Bits of a real number in which a kernel of dtype reads it. */
static int64_t lines_bits(int dtype, double v) {
  int64_t bits = 0;
  float f = (float)v;
  if (dtype == LIMN_F64) memcpy(&bits, &v, sizeof v);
  else memcpy(&bits, &f, sizeof f);
  return bits;
}

/* Where the kernel has a pointer that the step does not, x stands in. */
int limn_gpu_norm(gpu_job *j) {
  const limn_step *s = j->s;
  const limn_operand *in[3] = {&s->in[0], &s->in[0], &s->in[0]};
  const int64_t *d = s->in[0].v.d;
  bool back = s->op == OP_layer_norm_back || s->op == OP_rms_norm_back;
  limn_gpu_launch *l;
  int lanes = limn_gpu_lanes(j->g, d[0], d[1], true), at = 1, i;
  if (d[0] * d[1] == 0) return 0;
  if (back || s->flag) in[1] = &s->in[at++];
  if (back ? s->flag : s->bias) in[2] = &s->in[at];
  LIMN_TRY(step_text(j, "norm", 8));
  LIMN_TRY(step_launch(j, &l));
  step_slot(l, &s->out[0]);
  for (i = 0; i < 3; i++) step_slot(l, in[i]);
  limn_gpu_num(&l->args, d[0]);
  limn_gpu_num(&l->args, d[1]);
  limn_gpu_num(&l->args, lanes);
  limn_gpu_num(&l->args, lines_bits(s->in[0].dtype, s->eps));
  step_offset(l, &s->out[0]);
  for (i = 0; i < 3; i++) step_offset(l, in[i]);
  l->groups[0] = limn_gpu_line_groups(j->g, d[0], lanes);
  return step_kernel(j, l, "normalise");
}
