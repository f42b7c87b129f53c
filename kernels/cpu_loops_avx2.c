/* Folds, conversions and exponentials for x86-64-v3 (AVX2). */
#ifdef __AVX2__
#define LOOPS_TABLE limn_loops_avx2
#include "cpu_loops_isa.h"
#else
typedef int limn_loops_no_avx2; /* a file may not be empty */
#endif
