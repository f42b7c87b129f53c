/* Single-precision matrix products on the CPU, one table of kernels per
 * instruction set.
 *
 * C (M x N) = A (M x K) * B (K x N)  [+ bias per column]  [+ C]  [+ D]
 *
 * All matrices are float32 and given as a pointer and strides counted in
 * floats, so transposed operands are only swapped strides:
 *   A  element (m,k) at a[m*ars + k*acs]; either stride may be anything,
 *      fast when one of them is 1 (plain, or transposed as in X^T dY)
 *   B  element (k,n) at b[k*brs + n*bcs]; likewise
 *   C  element (m,n) at c[m*ldc + n]; must not overlap what is read
 *   D  element (m,n) at add[m*ldadd + n]
 *   bias  N floats
 *
 * Nothing here allocates, starts threads or keeps state: the caller owns every
 * buffer and may call from several threads on disjoint parts of C. A part is
 * rows [m0,m1) x columns [n0,n1); the pointers always name the whole matrices
 * (element (0,0)). Pointers need only the alignment of a float; `packed` and
 * `scratch` are fastest on 64 bytes. No element outside the operands is read,
 * and none outside the part is written. M, N or K may be 0: with K = 0 the
 * product is 0.
 *
 * The sum over k runs in an order that depends on the shape of the part's
 * rows, so results agree between splits, and between instruction sets, to
 * rounding only. */
#ifndef LIMN_CPU_GEMM_H
#define LIMN_CPU_GEMM_H

#include <stdbool.h>
#include <stdint.h>

/* Parts of a packed product begin at a multiple of this many columns. */
#define LIMN_GEMM_SPLIT 64

/* C, and what is added to a product before it goes there. */
typedef struct {
  float *c;
  int64_t ldc;
  const float *bias; /* or NULL */
  bool acc;          /* add C as it was */
  const float *add;  /* D, added last; or NULL */
  int64_t ldadd;
} limn_gemm_out;

typedef struct limn_gemm_kernels {
  const char *name; /* "base", "avx2", "avx512" */
  int pack_width;   /* LIMN_GEMM_SPLIT */
  /* A packed operand is a row of panels, `panel` columns wide, each [K][panel]
   * floats; the last is as wide as its columns rounded up to `lanes`. Panel i
   * begins at i * panel * K. */
  int panel, lanes;

  /* Floats in the packed form of a K x N right operand. */
  int64_t (*packed_size)(int64_t K, int64_t N);

  /* Write that form to `packed`. It is only valid for the same table, K and N;
   * it stands for B from then on, which may change or go. */
  void (*pack)(int64_t K, int64_t N, const float *b, int64_t brs, int64_t bcs,
               float *packed);

  /* The part [m0,m1) x [n0,n1) with B packed; n0 a multiple of
   * LIMN_GEMM_SPLIT, n1 another or N. */
  void (*run_packed)(int64_t m0, int64_t m1, int64_t n0, int64_t n1, int64_t K,
                     int64_t N, const float *a, int64_t ars, int64_t acs,
                     const float *packed, const limn_gemm_out *out);

  /* Floats of scratch `run` needs for a part of N columns: at most 1 MiB.
   * Grows with K and N, so the size for a whole serves any of its parts. */
  int64_t (*scratch_size)(int64_t K, int64_t N);

  /* The same with B as it is. n0 and n1 are free. Each call uses its own
   * scratch; what it holds before and after means nothing. */
  void (*run)(int64_t m0, int64_t m1, int64_t n0, int64_t n1, int64_t K,
              int64_t N, const float *a, int64_t ars, int64_t acs,
              const float *b, int64_t brs, int64_t bcs,
              const limn_gemm_out *out, float *scratch);
} limn_gemm_kernels;

/* The table for `isa`: 0 the best this CPU has, 1 base, 2 AVX2 with FMA,
 * 3 AVX-512. A request above what the CPU has gets the best below it. Never
 * NULL. */
const limn_gemm_kernels *limn_gemm_select(int isa);

#endif
