/* Elementwise kernels for x86-64 with AVX-512; for x86-64-v4. */
#ifdef __AVX512F__
#define ELEM_TABLE limn_elem_avx512
#define ELEM_NAME "avx512"
#include "cpu_elem_isa.h"
#else
typedef int limn_elem_no_avx512; /* a file may not be empty */
#endif
