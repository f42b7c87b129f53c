/* Matrix products for x86-64 with AVX-512; compiled for x86-64-v4. */
#ifdef __AVX512F__
#define GEMM_TABLE limn_gemm_avx512
#define GEMM_NAME "avx512"
#define GEMM_VL 16
#define GEMM_MR 14 /* 28 sums, 2 of B, 1 of A: 31 of 32 registers */
#define GEMM_KC 256
#define GEMM_NC 512
#include "cpu_gemm_isa.h"
#else
typedef int limn_gemm_no_avx512; /* a file may not be empty */
#endif
