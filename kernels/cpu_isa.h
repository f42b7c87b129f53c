/* Which of the instruction sets that kernels are compiled for the CPU has. */
#ifndef LIMN_CPU_ISA_H
#define LIMN_CPU_ISA_H

/* 1 base, 2 x86-64-v3 (AVX2), 3 x86-64-v4 (AVX-512): `want`, or the best where
 * `want` is 0 or more than there is. Where only base is compiled: 1. */
int limn_cpu_isa(int want);

#endif
