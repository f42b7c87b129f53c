/* Fused elementwise groups on the CPU: what dev_cpu.c calls.
 *
 * A group is compiled into a program of tile kernels (cpu_elem_kernels.h);
 * values of a tile of at most 256 elements live in slots that stay in the L1
 * cache. Programs do not change while they run: several threads may run one
 * at once. Running allocates nothing and takes at most 80 KiB of stack. */
#ifndef LIMN_CPU_ELEM_H
#define LIMN_CPU_ELEM_H

#include "device.h"

/* Bytes of operands from which no core's own cache has them. Steps of so many
 * fetch what they touch some KiB ahead: a processor does so by itself only
 * within a page, and late where several operands take turns. */
enum { LIMN_CPU_LARGE = 16 << 20, LIMN_CPU_AHEAD = 4096 };

/* For kind GROUP: sets s->code, s->run, s->ntiles and s->cost_ns. */
int limn_cpu_group_prepare(limn_context *c, limn_step *s);
void limn_cpu_group_discard(limn_context *c, limn_step *s);

/* A bare group for use inside other steps: elements are given by a pointer and
 * a stride per input. */
typedef struct limn_cpu_prog limn_cpu_prog;
int limn_cpu_prog_new(limn_context *c, const limn_group *g,
                      const uint8_t *in_dtype, int nin,
                      const uint8_t *out_dtype, int nout, limn_cpu_prog **out);
void limn_cpu_prog_free(limn_context *c, limn_cpu_prog *p);
/* Run over n elements: in[k] and stride[k] (in elements: 0, 1 or any), out[k]
 * dense. An output may be the very memory of a dense input. `first` is the
 * row-major index of element 0, for generators. */
void limn_cpu_prog_run(const limn_cpu_prog *p, const limn_bind *b,
                       const void *const *in, const int64_t *stride,
                       void *const *out, int64_t n, int64_t first);
/* Rough cost of one element in nanoseconds, without memory traffic. */
double limn_cpu_prog_cost(const limn_cpu_prog *p);

#endif
