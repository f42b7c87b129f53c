/* Chooses the elementwise kernels that fit the CPU. */
#include "cpu_elem_kernels.h"
#include "cpu_isa.h"

extern const limn_elem_kernels limn_elem_base;
#if defined(__x86_64__) && defined(__GNUC__)
extern const limn_elem_kernels limn_elem_avx2, limn_elem_avx512;
#else /* only base is compiled, and limn_cpu_isa says so */
#define limn_elem_avx2 limn_elem_base
#define limn_elem_avx512 limn_elem_base
#endif

const limn_elem_kernels *limn_elem_select(int isa) {
  static const limn_elem_kernels *const by_isa[] = {
      &limn_elem_base, &limn_elem_avx2, &limn_elem_avx512};
  return by_isa[limn_cpu_isa(isa) - 1];
}
