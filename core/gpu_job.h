/* Inside gpu_step.c, gpu_lines.c, gpu_sort.c and gpu_conv.c: one step on its
 * way to launches. */
#ifndef LIMN_GPU_JOB_H
#define LIMN_GPU_JOB_H

#include "gpu.h"

typedef struct {
  limn_gpu *g;
  limn_context *c;
  const limn_step *s;
  limn_gpu_code *code;
  limn_str src;
} gpu_job;

static inline int step_launch(gpu_job *j, limn_gpu_launch **out) {
  limn_gpu_launch *l = limn_alloc(j->c, sizeof *l);
  if (!l) return LIMN_EMEM;
  l->args.c = j->c;
  l->args.bytes = j->g->arg_bytes;
  l->local = j->g->local;
  l->groups[0] = l->groups[1] = l->groups[2] = 1;
  if (j->code->last)
    j->code->last->next = l;
  else
    j->code->first = l;
  j->code->last = l;
  *out = l;
  return 0;
}

/* One work-item for each of n. */
static inline void step_items(limn_gpu_launch *l, uint32_t local, int64_t n) {
  l->local = local;
  l->groups[0] = (size_t)((n + local - 1) / local);
}

static inline int step_kernel(gpu_job *j, limn_gpu_launch *l,
                              const char *name) {
  if (j->src.rc) return j->src.rc;
  if (l->args.rc) return l->args.rc;
  return limn_gpu_kernel(j->g, j->src.s, name, &l->kernel);
}

static inline int step_text(gpu_job *j, const char *name, int nums) {
  return limn_codegen_fixed(j->c, j->s, (int)j->g->local, j->g->cpu, name, nums,
                            &j->src);
}

static inline void step_slot(limn_gpu_launch *l, const limn_operand *o) {
  limn_gpu_ptr(&l->args, LIMN_GPU_SLOT, o->slot);
}

static inline void step_offset(limn_gpu_launch *l, const limn_operand *o) {
  limn_gpu_num_patch(&l->args, LIMN_GPU_OFFSET, o->dtype, o->slot, o->v.offset);
}

/* gpu_step.c: a launch of the vendor's library. The call's plan is the launch's
 * from then on, or has ended. */
int limn_gpu_library(gpu_job *j, const limn_gpu_call *call,
                     const limn_operand *const *operand, int n);
/* gpu_lines.c: how many work-items share a line of n elements, and how many
 * groups that makes. */
int limn_gpu_lanes(const limn_gpu *g, int64_t lines, int64_t n, bool side);
size_t limn_gpu_line_groups(const limn_gpu *g, int64_t lines, int lanes);
int limn_gpu_lines(gpu_job *j, const char *name, int nums);
int limn_gpu_norm(gpu_job *j);
/* gpu_sort.c */
int limn_gpu_sort(gpu_job *j);
/* gpu_conv.c */
int limn_gpu_conv(gpu_job *j);

#endif
