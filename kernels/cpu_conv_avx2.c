/* Convolutions' kernels for x86-64-v3 (AVX2 with FMA). */
#ifdef __AVX2__
#define CONV_TABLE limn_conv_avx2
#include "cpu_conv_isa.h"
#else
typedef int limn_conv_no_avx2; /* a file may not be empty */
#endif
