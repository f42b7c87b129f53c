/* Chooses the elementwise kernels that fit the CPU. */
#include "cpu_elem_kernels.h"

extern const limn_elem_kernels limn_elem_base;

#if defined(__x86_64__) && defined(__GNUC__)
extern const limn_elem_kernels limn_elem_avx2, limn_elem_avx512;

static int elem_best(void) {
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
      !__builtin_cpu_supports("bmi") || !__builtin_cpu_supports("bmi2"))
    return 1; /* every CPU with AVX2 has F16C */
  if (!__builtin_cpu_supports("avx512f") ||
      !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512cd") ||
      !__builtin_cpu_supports("avx512dq") ||
      !__builtin_cpu_supports("avx512vl"))
    return 2;
  return 3;
}

const limn_elem_kernels *limn_elem_select(int isa) {
  int best = elem_best();
  if (isa <= 0 || isa > best) isa = best;
  return isa == 3   ? &limn_elem_avx512
         : isa == 2 ? &limn_elem_avx2
                    : &limn_elem_base;
}
#else
const limn_elem_kernels *limn_elem_select(int isa) {
  (void)isa;
  return &limn_elem_base;
}
#endif
