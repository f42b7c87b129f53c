/* Folds, conversions and exponentials for x86-64-v4 (AVX-512). */
#ifdef __AVX512F__
#define LOOPS_TABLE limn_loops_avx512
#include "cpu_loops_isa.h"
#else
typedef int limn_loops_no_avx512; /* a file may not be empty */
#endif
