/* Asks the CPU, and the operating system, which must save the registers. */
#include "cpu_isa.h"

#if defined(__x86_64__) && defined(__GNUC__)
static int isa_best(void) {
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

int limn_cpu_isa(int want) {
  int best = isa_best();
  return want <= 0 || want > best ? best : want;
}
#else
int limn_cpu_isa(int want) {
  (void)want;
  return 1;
}
#endif
