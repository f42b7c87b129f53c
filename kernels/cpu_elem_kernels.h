/* The table of elementwise tile kernels, one per instruction set.
 *
 * A kernel computes n elements, n a multiple of LIMN_ELEM_PAD, from dense
 * arrays; every element's value is independent of n and of its place. `o` may
 * be equal to an operand, but may not overlap one otherwise. Memory needs no
 * alignment. Arrays hold the computing types float, double, int32_t, int64_t
 * and uint8_t (bool: 0 or 1) unless said otherwise. Kernels come in forms: in
 * form 1 << k (or sums) operand k is one element and not an array. */
#ifndef LIMN_CPU_ELEM_KERNELS_H
#define LIMN_CPU_ELEM_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "limn.h"

#define LIMN_ELEM_PAD 16

enum { LIMN_ET_F32, LIMN_ET_F64, LIMN_ET_I32, LIMN_ET_I64, LIMN_ET_BOOL,
       LIMN_NET };

enum { /* the E rows */
#define E1(name, ...) LIMN_ELEM_##name,
#define E2(name, ...) LIMN_ELEM_##name,
#define E3(name, ...) LIMN_ELEM_##name,
#include "ops.h"
  LIMN_NELEM
};

typedef void limn_elem_fn(void *o, const void *a, const void *b, const void *c,
                          int64_t n);
typedef limn_elem_fn *const limn_elem_forms; /* by form, NULL where all are */

/* What generators need besides their operands; handed over as `c`. */
typedef struct {
  uint64_t seed, draw;
  int64_t first; /* row-major index of element 0 */
} limn_elem_gen;

/* Pairs of float32 rows in one kernel: r = x(a, b), then y(r, c) or y(c, r),
 * by bits of the form as three operands. Results are those of the two. */
#define LIMN_PAIR_BINARY(X) X(add) X(sub) X(mul) X(maximum) X(minimum)
#define LIMN_PAIR_FIRST(X) X(add) X(sub) X(mul)
#define LIMN_PAIR_UNARY(X)                                            \
  X(neg) X(abs) X(square) X(relu) X(exp) X(sqrt) X(rsqrt) X(reciprocal) \
  X(tanh) X(sigmoid)
enum { /* index of a row within its list above */
#define X(name) LIMN_PB_##name,
  LIMN_PAIR_BINARY(X) LIMN_NPB,
#undef X
#define X(name) LIMN_PF_##name,
  LIMN_PAIR_FIRST(X) LIMN_NPF,
#undef X
#define X(name) LIMN_PU_##name,
  LIMN_PAIR_UNARY(X) LIMN_NPU
#undef X
};

typedef struct limn_elem_kernels {
  const char *name; /* "base", "avx2", "avx512" */
  limn_elem_forms *row[LIMN_NELEM][LIMN_NET]; /* 2, 4 or 8 forms */
  limn_elem_fn *cast[LIMN_NET][LIMN_NET];
  /* float (0) or double (1) to int32_t within the range of int8, uint8 */
  limn_elem_fn *clip[2][2];
  /* By dtype: from storage to the computing type, and back (narrow dtypes);
   * round leaves what storing and loading again would. */
  limn_elem_fn *load[LIMN_NDTYPE], *store[LIMN_NDTYPE], *round[LIMN_NDTYPE];
  /* By log2 of the element size; form 1 fills. */
  limn_elem_fn *copy[4][2];
  /* Generators by computing type; rand and randn only for floats. rand of the
   * halves keeps fewer bits. */
  limn_elem_fn *arange[LIMN_NET], *rand_bits, *rand[LIMN_NDTYPE], *randn[2],
      *randint[LIMN_NET];
  limn_elem_forms *pair_bb[LIMN_NPB][LIMN_NPB][2]; /* [x][y][r is 2nd] */
  limn_elem_forms *pair_ub[LIMN_NPU]; /* mul(x(a), c): operands a, c */
  limn_elem_forms *pair_bu[LIMN_NPF][LIMN_NPU]; /* y(x(a, b)) */
  /* By log2 of the element size, any counts: dst[i*n + j] = src[i*rs + j*cs]
   * for i < m, j < n; strides in elements. */
  void (*gather[4])(void *dst, const void *src, int64_t m, int64_t rs,
                    int64_t n, int64_t cs);
  /* dst[i*ds + j] = src[j*ss + i] for i < 16, j < n: 16 rows of dst. */
  void (*turn[4])(void *dst, int64_t ds, const void *src, int64_t ss, int m,
                  int64_t n);
} limn_elem_kernels;

/* The table for `isa`: 0 the best this CPU has, 1 base, 2 AVX2 with FMA and
 * F16C, 3 AVX-512; a request above what the CPU has gets the best below. */
const limn_elem_kernels *limn_elem_select(int isa);

#endif
