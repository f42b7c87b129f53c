/* Chooses the matrix product kernels that fit the CPU. */
#include "cpu_gemm.h"

extern const limn_gemm_kernels limn_gemm_base;

#if defined(__x86_64__) && defined(__GNUC__)
extern const limn_gemm_kernels limn_gemm_avx2, limn_gemm_avx512;

/* The answer covers the operating system too: it must save the registers. */
static int gemm_best(void) {
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
      !__builtin_cpu_supports("bmi") || !__builtin_cpu_supports("bmi2"))
    return 1;
  if (!__builtin_cpu_supports("avx512f") ||
      !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512cd") ||
      !__builtin_cpu_supports("avx512dq") ||
      !__builtin_cpu_supports("avx512vl"))
    return 2;
  return 3;
}

const limn_gemm_kernels *limn_gemm_select(int isa) {
  int best = gemm_best();
  if (isa <= 0 || isa > best) isa = best;
  return isa == 3   ? &limn_gemm_avx512
         : isa == 2 ? &limn_gemm_avx2
                    : &limn_gemm_base;
}
#else
const limn_gemm_kernels *limn_gemm_select(int isa) {
  (void)isa;
  return &limn_gemm_base;
}
#endif
