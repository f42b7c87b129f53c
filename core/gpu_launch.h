/* Inside gpu_launch.c and gpu_replay.c: what one launch reads in a run. */
#ifndef LIMN_GPU_LAUNCH_H
#define LIMN_GPU_LAUNCH_H

#include "gpu.h"

#define LIMN_GPU_NUMS 640 /* more than any kernel has */

typedef struct {
  void *mem[LIMN_GPU_MEMS];
  int64_t num[LIMN_GPU_NUMS];
} limn_gpu_run;

int limn_gpu_launch_read(limn_gpu *g, const limn_gpu_launch *l,
                         const limn_bind *b, void *const temp[2],
                         limn_gpu_run *a);
int limn_gpu_launch_start(limn_gpu *g, const limn_gpu_launch *l,
                          const limn_gpu_run *a);

#endif
