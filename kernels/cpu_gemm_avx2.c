/* Matrix products for x86-64 with AVX2 and FMA; compiled for x86-64-v3. */
#ifdef __AVX2__
#define GEMM_TABLE limn_gemm_avx2
#define GEMM_NAME "avx2"
#define GEMM_VL 8
#define GEMM_MR 6
#define GEMM_KC 256
#define GEMM_NC 256
#include "cpu_gemm_isa.h"
#else
typedef int limn_gemm_no_avx2; /* a file may not be empty */
#endif
