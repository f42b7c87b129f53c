/* Convolutions' kernels for x86-64-v4 (AVX-512). */
#ifdef __AVX512F__
#define CONV_TABLE limn_conv_avx512
#include "cpu_conv_isa.h"
#else
typedef int limn_conv_no_avx512; /* a file may not be empty */
#endif
