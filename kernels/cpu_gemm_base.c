/* Matrix products for any CPU: vectors of four floats. */
#define GEMM_TABLE limn_gemm_base
#define GEMM_NAME "base"
#define GEMM_VL 4
#ifdef __aarch64__ /* 32 registers */
#define GEMM_MR 8
#else
#define GEMM_MR 4
#endif
#define GEMM_KC 256
#define GEMM_NC 256
#include "cpu_gemm_isa.h"
