/* argsort on a GPU: one launch that sorts short runs, then merges that double
 * their width, between the result and a temporary by turns. */
#include "gpu_job.h"

enum { SORT_RUN = 8, SORT_NUMS = 8 }; /* as RUN in kernels/sort.k */

/* Where a pass reads or writes: the result, or the temporary. */
static void sort_ptr(limn_gpu_launch *l, const limn_step *s, bool temp) {
  if (temp) limn_gpu_ptr(&l->args, LIMN_GPU_TEMP, 0);
  else step_slot(l, &s->out[0]);
}

static void sort_offset(limn_gpu_launch *l, const limn_step *s, bool temp) {
  if (temp) limn_gpu_num(&l->args, 0);
  else step_offset(l, &s->out[0]);
}

/* width: of the runs that are there, 0: none yet. left: passes that follow. */
static int sort_pass(gpu_job *j, int64_t width, int left) {
  const limn_step *s = j->s;
  const int64_t *d = s->in[0].v.d;
  int64_t lines = d[0] * d[2], n = d[1];
  bool temp = left & 1;
  limn_gpu_launch *l;
  LIMN_TRY(step_launch(j, &l));
  sort_ptr(l, s, temp);
  if (width) sort_ptr(l, s, !temp);
  step_slot(l, &s->in[0]);
  limn_gpu_num(&l->args, lines * n);
  limn_gpu_num(&l->args, n);
  limn_gpu_num(&l->args, d[2]);
  limn_gpu_num(&l->args, width);
  limn_gpu_num(&l->args, left ? 0 : s->base);
  sort_offset(l, s, temp);
  sort_offset(l, s, !temp);
  step_offset(l, &s->in[0]);
  step_items(l, j->g->local,
             width ? lines * n : lines * ((n + SORT_RUN - 1) / SORT_RUN));
  return step_kernel(j, l, width ? "sort_merge" : "sort_runs");
}

int limn_gpu_sort(gpu_job *j) {
  const int64_t *d = j->s->in[0].v.d;
  int64_t n = d[1], width;
  int left = 0;
  if (d[0] * n * d[2] == 0) return 0;
  for (width = SORT_RUN; width < n; width *= 2) left++;
  if (left) j->code->temp[0] = (size_t)(d[0] * n * d[2]) * sizeof(int64_t);
  LIMN_TRY(step_text(j, "sort", SORT_NUMS));
  LIMN_TRY(sort_pass(j, 0, left));
  for (width = SORT_RUN; left > 0; width *= 2)
    LIMN_TRY(sort_pass(j, width, --left));
  return 0;
}
