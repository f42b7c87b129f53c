/* Elementwise kernels for x86-64 with AVX2 and F16C; for x86-64-v3. */
#ifdef __AVX2__
#define ELEM_TABLE limn_elem_avx2
#define ELEM_NAME "avx2"
#include "cpu_elem_isa.h"
#else
typedef int limn_elem_no_avx2; /* a file may not be empty */
#endif
