/* Chooses the matrix product kernels that fit the CPU. */
#include "cpu_gemm.h"
#include "cpu_isa.h"

extern const limn_gemm_kernels limn_gemm_base;
#if defined(__x86_64__) && defined(__GNUC__)
extern const limn_gemm_kernels limn_gemm_avx2, limn_gemm_avx512;
#else /* only base is compiled, and limn_cpu_isa says so */
#define limn_gemm_avx2 limn_gemm_base
#define limn_gemm_avx512 limn_gemm_base
#endif

const limn_gemm_kernels *limn_gemm_select(int isa) {
  static const limn_gemm_kernels *const by_isa[] = {
      &limn_gemm_base, &limn_gemm_avx2, &limn_gemm_avx512};
  return by_isa[limn_cpu_isa(isa) - 1];
}
