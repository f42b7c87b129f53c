/* Chooses the reductions and row loops that fit the CPU. */
#include "cpu_isa.h"
#include "cpu_kernels.h"

extern const limn_cpu_loops limn_loops_base;
#if defined(__x86_64__) && defined(__GNUC__)
extern const limn_cpu_loops limn_loops_avx2, limn_loops_avx512;
#else /* only base is compiled, and limn_cpu_isa says so */
#define limn_loops_avx2 limn_loops_base
#define limn_loops_avx512 limn_loops_base
#endif

const limn_cpu_loops *limn_loops_select(int isa) {
  static const limn_cpu_loops *const by_isa[] = {
      &limn_loops_base, &limn_loops_avx2, &limn_loops_avx512};
  return by_isa[limn_cpu_isa(isa) - 1];
}
