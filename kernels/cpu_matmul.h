/* Matrix products on the CPU: what a prepared step and its tiles are. */
#ifndef LIMN_CPU_MATMUL_H
#define LIMN_CPU_MATMUL_H

#include "cpu_kernels.h"

enum { BY_GEMM, BY_BLAS, BY_HALF, BY_LOOP };
enum { /* blocks of halves, converted to float */
  HALF_ROWS = 96,
  HALF_COLUMNS = 128,
  HALF_DEPTH = 512
};

/* What a packed copy in cell->derived is a copy of; stands before it. */
typedef struct {
  int64_t K, N, brs, bcs, offset;
  const limn_gemm_kernels *gemm;
  char pad[16];
} matmul_head;
_Static_assert(sizeof(matmul_head) == 64, "keeps the copy aligned");

typedef struct {
  const limn_gemm_kernels *gemm;
  const limn_cpu_loops *loops;
  int how, dtype, size;
  int64_t M, N, K, ars, acs, brs, bcs;
  /* Batch dims that are left, outermost first; as, bs: strides. */
  int nb;
  int64_t bd[LIMN_MAXDIM], as[LIMN_MAXDIM], bs[LIMN_MAXDIM], batches;
  int64_t tm, tn, mb, wb; /* tiles per product, their rows and columns */
  /* Right operands that may be kept packed: one for all batches. */
  bool keeps;
  matmul_head head;
  /* Epilogue. What it adds first the product adds: input `add` (0: none), of
   * out's shape, in rows `ldadd` apart. */
  int add;
  int64_t ldadd;
  limn_cpu_epilogue after; /* what is left of it */
  size_t scratch; /* bytes that a tile needs */
} cpu_matmul;

/* One tile: its part of C, and where the operands are. */
typedef struct {
  const cpu_matmul *k;
  const char *a, *b, *bias; /* of the whole product; bias may be NULL */
  const char *add;          /* likewise, for the product's rows on their own */
  const float *packed;      /* or NULL */
  char *c;
  int64_t m0, m1, n0, n1;
} matmul_tile;

/* -- cpu_matmul_kinds.c -- */
/* The tile's product; scratch: as limn_matmul_scratch says, or NULL for
 * a packed operand. */
void limn_matmul_tile(const matmul_tile *t, float *scratch);
int64_t limn_matmul_scratch(const cpu_matmul *k); /* floats */
bool limn_matmul_fits_blas(const cpu_matmul *k);

#endif
