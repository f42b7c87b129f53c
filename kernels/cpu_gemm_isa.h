/* The body of the matrix products, included once per instruction set.
 *
 * The includer defines GEMM_TABLE and GEMM_NAME, GEMM_VL (floats per vector),
 * GEMM_MR (a tile is MR rows of two vectors and stays in registers), GEMM_KC
 * and GEMM_NC (a block of B is KC x NC floats and stays in L2).
 *
 * The scheme is Goto and van de Geijn's ("Anatomy of high-performance matrix
 * multiplication", 2008) turned round: a sliver of A (MR rows of KC) stays in
 * L1 while it sweeps over the panels of a block of B that stays in L2.
 *
 * Packed B is a row of panels NR columns wide, each [K][NR]; the last one is
 * as wide as its columns rounded up to a vector. Panel n/NR starts at n*K. */
#include <stddef.h>

#include "cpu_gemm.h"

enum {
  VL = GEMM_VL,
  MR = GEMM_MR,
  NV = 2,
  NR = NV * VL,
  KC = GEMM_KC,
  NC = GEMM_NC,
  PACK_ROWS = 8,
  AS = (MR + VL - 1) / VL * VL /* row stride of a packed sliver of A */
};
_Static_assert(LIMN_GEMM_SPLIT % (2 * GEMM_VL) == 0, "panel width");
_Static_assert(GEMM_NC % LIMN_GEMM_SPLIT == 0, "whole panels per block");

/* vec lives in registers, uvec is how memory is read: any alignment. */
typedef float vec __attribute__((vector_size(GEMM_VL * 4)));
typedef float uvec
    __attribute__((vector_size(GEMM_VL * 4), aligned(4), may_alias));
#define INLINE static inline __attribute__((always_inline))
/* Unrolled loops keep arrays of vectors in registers. */
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

INLINE vec load(const float *p) { return *(const uvec *)p; }
INLINE void store(float *p, vec v) { *(uvec *)p = v; }
INLINE int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
INLINE int64_t round_up(int64_t n, int64_t to) {
  return (n + to - 1) / to * to;
}

/* Copy n < NR floats without a call or reading past them. */
INLINE void copy_few(float *d, const float *s, int64_t n) {
  for (; n >= VL; n -= VL, d += VL, s += VL) store(d, load(s));
  if (VL > 8 && n >= 8) {
    __builtin_memcpy(d, s, 32);
    n -= 8, d += 8, s += 8;
  }
  if (VL > 4 && n >= 4) {
    __builtin_memcpy(d, s, 16);
    n -= 4, d += 4, s += 4;
  }
  for (; n > 0; n--) *d++ = *s++;
}

/* ---- packing ---- */

/* Transpose VL x VL: for each bit s of the index, swap the two off-diagonal
 * quarters of every 2s x 2s block (Eklundh 1972). */
#define LOW(s, e) ((e) & (s) ? VL + (e) - (s) : (e))
#define HIGH(s, e) ((e) & (s) ? VL + (e) : (e) + (s))
#define FOUR(f, s, e) f(s, e), f(s, e + 1), f(s, e + 2), f(s, e + 3)
#if GEMM_VL == 4
#define LANES(f, s) FOUR(f, s, 0)
#elif GEMM_VL == 8
#define LANES(f, s) FOUR(f, s, 0), FOUR(f, s, 4)
#else
#define LANES(f, s) FOUR(f, s, 0), FOUR(f, s, 4), FOUR(f, s, 8), FOUR(f, s, 12)
#endif
#define SWAP(s)                                                 \
  UNROLL for (int i = 0; i < VL; i++) {                         \
    if (i & (s)) continue;                                      \
    vec x = r[i], y = r[i + (s)];                               \
    r[i] = __builtin_shufflevector(x, y, LANES(LOW, s));        \
    r[i + (s)] = __builtin_shufflevector(x, y, LANES(HIGH, s)); \
  }

INLINE void transpose(vec *r) {
#if GEMM_VL > 8
  SWAP(8)
#endif
#if GEMM_VL > 4
  SWAP(4)
#endif
  SWAP(2)
  SWAP(1)
}

/* The packers write d[k*ds + j] = s[k*ks + j*ws] for j < n <= VL, and fill up
 * to VL with values that are computed with but never reach C. */

/* ks = 1: columns are contiguous. The last one fills up. */
static void pack_turned(int64_t K, int n, const float *s, int64_t ws, float *d,
                        int64_t ds) {
  int64_t k = 0;
  for (; k + VL <= K; k += VL, s += VL, d += VL * ds) {
    vec r[VL];
    UNROLL for (int j = 0; j < VL; j++)
      r[j] = load(s + (j < n ? j : n - 1) * ws);
    transpose(r);
    UNROLL for (int j = 0; j < VL; j++) store(d + j * ds, r[j]);
  }
  for (; k < K; k++, s++, d += ds)
    for (int j = 0; j < VL; j++) d[j] = s[(j < n ? j : n - 1) * ws];
}

/* ws = 1: rows are contiguous. */
static void pack_straight(int64_t K, int n, const float *s, int64_t ks,
                          float *d, int64_t ds) {
  if (n == VL) {
    for (int64_t k = 0; k < K; k++) store(d + k * ds, load(s + k * ks));
    return;
  }
  for (int64_t k = 0; k < K; k++, d += ds) {
    store(d, (vec){0});
    copy_few(d, s + k * ks, n);
  }
}

static void pack_any(int64_t K, int n, const float *s, int64_t ks, int64_t ws,
                     float *d, int64_t ds) {
  for (int64_t k = 0; k < K; k++, d += ds)
    for (int j = 0; j < VL; j++) d[j] = j < n ? s[k * ks + j * ws] : 0;
}

/* K x n to rows of `width` floats, n rounded up to whole vectors. */
static void pack_panel(int64_t K, int64_t n, const float *s, int64_t ks,
                       int64_t ws, float *d, int64_t width) {
  for (int64_t j = 0; j < n; j += VL, s += VL * ws, d += VL) {
    int few = (int)min64(n - j, VL);
    if (ws == 1)
      pack_straight(K, few, s, ks, d, width);
    else if (ks == 1)
      pack_turned(K, few, s, ws, d, width);
    else
      pack_any(K, few, s, ks, ws, d, width);
  }
}

static void pack(int64_t K, int64_t N, const float *b, int64_t brs, int64_t bcs,
                 float *packed) {
  /* A few rows at a time when they are contiguous: memory likes long reads. */
  int64_t step = bcs == 1 ? PACK_ROWS : K;
  for (int64_t k = 0; k < K; k += step) {
    int64_t some = min64(K - k, step);
    for (int64_t n = 0; n < N; n += NR) {
      int64_t w = min64(N - n, NR), width = round_up(w, VL);
      pack_panel(some, w, b + k * brs + n * bcs, brs, bcs,
                 packed + n * K + k * width, width);
    }
  }
}

/* A single column is also kept as it is, for dot products. */
static void pack_all(int64_t K, int64_t N, const float *b, int64_t brs,
                     int64_t bcs, float *packed) {
  pack(K, N, b, brs, bcs, packed);
  if (N == 1)
    for (int64_t k = 0; k < K; k++) packed[K * VL + k] = b[k * brs];
}

static int64_t packed_size(int64_t K, int64_t N) {
  return K * round_up(N, VL) + (N == 1 ? K : 0);
}

/* ---- tiles ---- */

typedef struct {
  int64_t K;
  const float *a, *b; /* at the tile's first row / column */
  int64_t as, bs;     /* stride of A between rows or ks (see tile); of B */
  float *c;
  int64_t cs;
  const float *bias; /* at the tile's column, or NULL */
  bool acc;
} gemm_tile;

/* The products of one k: a column of A by a row of B, added to the sums. */
INLINE void tile_step(int mr, int nv, bool plain, vec *sum, const float *a,
                      int64_t as, const float *b) {
  vec bv[NV];
  UNROLL for (int v = 0; v < nv; v++) bv[v] = load(b + v * VL);
  UNROLL for (int i = 0; i < mr; i++) {
    const float x = plain ? a[i * as] : a[i];
    UNROLL for (int v = 0; v < nv; v++) sum[i * nv + v] += x * bv[v];
  }
}

/* mr rows x nv vectors of C, all constants here. `plain`: A is read at
 * row*as + k, else at k*as + row. With few rows, several sets of sums take
 * turns over k: an addition takes 4 cycles, and two may begin in each. */
INLINE void tile(int mr, int nv, bool plain, const gemm_tile *t) {
  const int sets = mr * nv >= 8 ? 1 : mr * nv >= 4 ? 2 : 4;
  const int64_t as = t->as, bs = t->bs, K = t->K, cs = t->cs;
  const int64_t ak = plain ? 1 : as;
  const float *a = t->a, *b = t->b;
  vec sum[MR * NV < 16 ? 16 : MR * NV];
  UNROLL for (int i = 0; i < sets * mr * nv; i++) sum[i] = (vec){0};
  int64_t k = 0;
  if (sets > 1)
    for (; k + sets <= K; k += sets)
      UNROLL for (int u = 0; u < sets; u++, a += ak, b += bs)
        tile_step(mr, nv, plain, sum + u * mr * nv, a, as, b);
  for (; k < K; k++, a += ak, b += bs)
    tile_step(mr, nv, plain, sum, a, as, b);
  UNROLL for (int u = 1; u < sets; u++)
    UNROLL for (int i = 0; i < mr * nv; i++) sum[i] += sum[u * mr * nv + i];
  if (t->bias)
    UNROLL for (int i = 0; i < mr; i++)
      UNROLL for (int v = 0; v < nv; v++)
        sum[i * nv + v] += load(t->bias + v * VL);
  if (t->acc)
    UNROLL for (int i = 0; i < mr; i++)
      UNROLL for (int v = 0; v < nv; v++)
        sum[i * nv + v] += load(t->c + i * cs + v * VL);
  UNROLL for (int i = 0; i < mr; i++)
    UNROLL for (int v = 0; v < nv; v++)
      store(t->c + i * cs + v * VL, sum[i * nv + v]);
}

/* One function per shape, in tables by rows and vectors. */
#define TILE_NV(x, plain, mr) TILE(x, plain, mr, 1) TILE(x, plain, mr, 2)
#define NAME_NV(x, mr) {tile_##x##mr##_1, tile_##x##mr##_2},
#define TILE(x, plain, mr, nv)                          \
  static void tile_##x##mr##_##nv(const gemm_tile *t) { \
    tile(mr, nv, plain, t);                             \
  }
#define TILES(mr) TILE_NV(p, true, mr) TILE_NV(t, false, mr)
#define PLAIN(mr) NAME_NV(p, mr)
#define TURNED(mr) NAME_NV(t, mr)

#if GEMM_MR > 4
#define ROWS6(f) f(5) f(6)
#else
#define ROWS6(f)
#endif
#if GEMM_MR > 6
#define ROWS8(f) f(7) f(8)
#else
#define ROWS8(f)
#endif
#if GEMM_MR > 8
#define ROWS12(f) f(9) f(10) f(11) f(12)
#else
#define ROWS12(f)
#endif
#if GEMM_MR > 12
#define ROWS14(f) f(13) f(14)
#else
#define ROWS14(f)
#endif
#define ROWS(f) f(1) f(2) f(3) f(4) ROWS6(f) ROWS8(f) ROWS12(f) ROWS14(f)

ROWS(TILES)
typedef void tile_fn(const gemm_tile *);
static tile_fn *const tile_plain[MR][NV] = {ROWS(PLAIN)};
static tile_fn *const tile_turned[MR][NV] = {ROWS(TURNED)};

/* ---- sweeps ---- */

/* What one call multiplies: rows of A by a block of B that is KC deep. */
typedef struct {
  int64_t m0, m1, n0, n1; /* the part of C */
  int64_t ars, acs, ldc;
  const float *a; /* at row 0, the block's first k */
  const float *b; /* at column n0 */
  int64_t K, k0;  /* depth of this block; rows of the panels before it */
  /* Panel at column n begins at b + (n - n0) * bpanel. Its rows are its width
   * apart when packed, else bs. */
  bool packed;
  int64_t bpanel, bs;
  float *c;
  const float *bias;
  bool acc;
} gemm_part;

/* Columns that do not fill their last vector: the tile works on a copy. */
static void part_edge(tile_fn *fn, gemm_tile *t, int64_t mr, int64_t n) {
  float c[MR * NR], bias[NR];
  gemm_tile e = *t;
  e.c = c;
  e.cs = round_up(n, VL);
  if (t->bias) {
    store(bias + e.cs - VL, (vec){0});
    copy_few(bias, t->bias, n);
    e.bias = bias;
  }
  for (int64_t i = 0; i < mr; i++) {
    store(c + (i + 1) * e.cs - VL, (vec){0});
    if (t->acc) copy_few(c + i * e.cs, t->c + i * t->cs, n);
  }
  fn(&e);
  for (int64_t i = 0; i < mr; i++)
    copy_few(t->c + i * t->cs, c + i * e.cs, n);
}

/* One sliver: mr rows from m, against every panel. */
static void part_sliver(const gemm_part *p, int64_t m, int64_t mr,
                        tile_fn *const *fn, const float *a, int64_t as) {
  gemm_tile t = {.K = p->K, .a = a, .as = as, .cs = p->ldc, .acc = p->acc};
  for (int64_t n = p->n0; n < p->n1; n += NR) {
    int64_t w = min64(p->n1 - n, NR), nv = (w + VL - 1) / VL;
    t.bs = p->packed ? nv * VL : p->bs;
    t.b = p->b + (n - p->n0) * p->bpanel + p->k0 * t.bs;
    t.c = p->c + m * p->ldc + n;
    t.bias = p->bias ? p->bias + n : NULL;
    if (nv * VL == w)
      fn[nv - 1](&t);
    else
      part_edge(fn[nv - 1], &t, mr, w);
  }
}

/* Rows a multiple of this many bytes apart fall on few sets of L1. */
enum { PACK_BYTES = 1024 };

/* Copying a sliver of A pays when it is read often and badly placed. */
static bool part_copies(const gemm_part *p) {
  if (p->m1 - p->m0 == 1) return false;
  if (p->acs != 1 && p->ars != 1) return true;
  if (p->n1 - p->n0 < 4 * NR) return false;
  return p->acs != 1 || p->ars * 4 % PACK_BYTES == 0;
}

static void part_run(const gemm_part *p) {
  float copy[KC * AS] __attribute__((aligned(64)));
  int64_t rows = p->m1 - p->m0, parts = (rows + MR - 1) / MR;
  bool copies = p->K <= KC && part_copies(p);
  for (int64_t i = 0; i < parts; i++) { /* heights differ by at most one */
    int64_t m = p->m0 + rows * i / parts;
    int64_t mr = p->m0 + rows * (i + 1) / parts - m;
    const float *a = p->a + m * p->ars;
    if (copies) {
      /* Whole vectors while there are rows, though the tile needs fewer. */
      pack_panel(p->K, min64(p->m1 - m, AS), a, p->acs, p->ars, copy, AS);
      part_sliver(p, m, mr, tile_turned[mr - 1], copy, AS);
    } else if (p->acs == 1) {
      part_sliver(p, m, mr, tile_plain[mr - 1], a, p->ars);
    } else {
      part_sliver(p, m, mr, tile_turned[mr - 1], a, p->acs);
    }
  }
}

/* The i-th of the blocks that cut the depth evenly, at most KC deep each. */
static int64_t part_blocks(int64_t K) { return K > KC ? (K + KC - 1) / KC : 1; }

static void part_depth(gemm_part *p, const float *a, int64_t K, int64_t i,
                       const float *bias, bool acc) {
  int64_t blocks = part_blocks(K), k = K * i / blocks;
  p->K = K * (i + 1) / blocks - k;
  p->a = a + k * p->acs;
  p->k0 = k;
  p->bias = i ? NULL : bias; /* later blocks add to what the first wrote */
  p->acc = acc || i;
}

/* ---- dot products ----
 * For B^T with few rows of A, where turning B would cost more than
 * multiplying, and for one column: row i of x times row j of y, contiguous
 * along K, goes to c[i*ci + j*cj], with bias[i*bi + j*bj]. */
typedef struct {
  int64_t K;
  const float *x, *y;
  int64_t xs, ys;
  float *c;
  int64_t ci, cj;
  const float *bias;
  int64_t bi, bj;
  bool acc;
} gemm_dots;

/* The sums of the lanes of four vectors, as four lanes repeated. */
INLINE vec dots_fold(const vec *s) {
  vec x = __builtin_shufflevector(s[0], s[1], LANES(LOW, 1)) +
          __builtin_shufflevector(s[0], s[1], LANES(HIGH, 1));
  vec y = __builtin_shufflevector(s[2], s[3], LANES(LOW, 1)) +
          __builtin_shufflevector(s[2], s[3], LANES(HIGH, 1));
  x = __builtin_shufflevector(x, y, LANES(LOW, 2)) +
      __builtin_shufflevector(x, y, LANES(HIGH, 2));
#if GEMM_VL > 4
  x += __builtin_shufflevector(x, x, LANES(HIGH, 4));
#endif
#if GEMM_VL > 8
  x += __builtin_shufflevector(x, x, LANES(HIGH, 8));
#endif
  return x;
}

/* ni x nj of them at once, both constants, nj up to 4. */
INLINE void dots_tile(int ni, int nj, const gemm_dots *d, int64_t i0,
                      int64_t j0) {
  const float *x = d->x + i0 * d->xs, *y = d->y + j0 * d->ys;
  vec sum[2][4] = {{{0}}};
  int64_t k = 0;
  for (; k + VL <= d->K; k += VL) {
    UNROLL for (int j = 0; j < nj; j++) {
      vec yv = load(y + j * d->ys + k);
      UNROLL for (int i = 0; i < ni; i++)
        sum[i][j] += load(x + i * d->xs + k) * yv;
    }
  }
  UNROLL for (int i = 0; i < ni; i++) {
    float lanes[VL], *c = d->c + (i0 + i) * d->ci + j0 * d->cj;
    store(lanes, dots_fold(sum[i]));
    for (int64_t q = k; q < d->K; q++)
      for (int j = 0; j < nj; j++)
        lanes[j] += x[i * d->xs + q] * y[j * d->ys + q];
    for (int j = 0; j < nj; j++, c += d->cj) {
      float s = lanes[j];
      if (d->bias) s += d->bias[(i0 + i) * d->bi + (j0 + j) * d->bj];
      *c = d->acc ? *c + s : s;
    }
  }
}

static void dots_run(const gemm_dots *d, int64_t I, int64_t J) {
  int64_t j = 0;
  for (; j + 4 <= J; j += 4) {
    int64_t i = 0;
    for (; i + 2 <= I; i += 2) dots_tile(2, 4, d, i, j);
    if (i < I) dots_tile(1, 4, d, i, j);
  }
  for (; j < J; j++)
    for (int64_t i = 0; i < I; i++) dots_tile(1, 1, d, i, j);
}

/* c (rows x 1) = A * b; bias is one number. */
static void dots_column(int64_t rows, int64_t K, const float *a, int64_t ars,
                        const float *b, float *c, int64_t ldc,
                        const float *bias, bool acc) {
  gemm_dots d = {.K = K, .x = b, .y = a, .ys = ars, .c = c, .cj = ldc,
                 .bias = bias, .acc = acc};
  dots_run(&d, 1, rows);
}

/* c (rows x columns) = A * B, with column n of B at b + n*bcs. */
static void dots_rows(int64_t rows, int64_t columns, int64_t K, const float *a,
                      int64_t ars, const float *b, int64_t bcs, float *c,
                      int64_t ldc, const float *bias, bool acc) {
  gemm_dots d = {.K = K, .x = a, .y = b, .xs = ars, .ys = bcs, .c = c,
                 .ci = ldc, .cj = 1, .bias = bias, .bj = 1, .acc = acc};
  dots_run(&d, rows, columns);
}

/* ---- B packed ---- */

static void run_packed(int64_t m0, int64_t m1, int64_t n0, int64_t n1,
                       int64_t K, int64_t N, const float *a, int64_t ars,
                       int64_t acs, const float *packed, float *c, int64_t ldc,
                       const float *bias, bool acc) {
  if (m0 >= m1 || n0 >= n1) return;
  if (N == 1 && acs == 1) {
    dots_column(m1 - m0, K, a + m0 * ars, ars, packed + K * VL, c + m0 * ldc,
                ldc, bias, acc);
    return;
  }
  gemm_part p = {.m0 = m0, .m1 = m1, .ars = ars, .acs = acs, .ldc = ldc,
                 .c = c, .packed = true, .bpanel = K};
  for (p.n0 = n0; p.n0 < n1; p.n0 = p.n1) {
    p.n1 = min64(n1, p.n0 + NC);
    p.b = packed + p.n0 * K;
    for (int64_t i = 0; i < part_blocks(K); i++) {
      part_depth(&p, a, K, i, bias, acc);
      part_run(&p);
    }
  }
}

/* ---- B as it is ---- */

static int64_t scratch_size(int64_t K, int64_t N) {
  return min64(K, KC) * round_up(min64(N, NC), VL);
}

/* One row of A against a wide B with contiguous rows: eight of them at a time
 * are added to C from end to end, which reads B as the memory likes it. */
INLINE void axpy_rows(int rows, int64_t N, const float *a, int64_t acs,
                      const float *b, int64_t brs, float *c) {
  float x[8] = {0};
  for (int r = 0; r < rows; r++) x[r] = a[r * acs];
  int64_t n = 0;
  for (; n + VL <= N; n += VL) {
    vec s = load(c + n), z = {0}; /* two sums, to wait less */
    UNROLL for (int r = 0; r < rows; r += 2) s += x[r] * load(b + r * brs + n);
    UNROLL for (int r = 1; r < rows; r += 2) z += x[r] * load(b + r * brs + n);
    store(c + n, s + z);
  }
  for (; n < N; n++)
    for (int r = 0; r < rows; r++) c[n] += x[r] * b[r * brs + n];
}

static void axpy_run(int64_t N, int64_t K, const float *a, int64_t acs,
                     const float *b, int64_t brs, float *c, const float *bias,
                     bool acc) {
  int64_t k = 0;
  for (int64_t n = 0; n < N; n++)
    c[n] = (acc ? c[n] : 0) + (bias ? bias[n] : 0);
  for (; k + 8 <= K; k += 8)
    axpy_rows(8, N, a + k * acs, acs, b + k * brs, brs, c);
  for (; k < K; k++) axpy_rows(1, N, a + k * acs, acs, b + k * brs, brs, c);
}

/* Rows few enough, or B small enough and its rows not on few sets of L1, that
 * packing B would not pay. */
static bool direct_pays(int64_t rows, int64_t columns, int64_t K, int64_t brs) {
  return rows <= 4 * MR || (K * columns <= 2 * KC * NC && brs % 512 != 0);
}

enum { AXPY_N = 256, DOTS_M = 4 };

/* Whole vectors of columns are read from B where it is, the rest is packed. */
static void run_direct(gemm_part *p, int64_t K, const float *a, const float *b,
                       int64_t brs, const float *bias, bool acc,
                       float *scratch) {
  int64_t columns = p->n1, whole = columns / VL * VL;
  p->bs = brs;
  p->bpanel = 1;
  for (int64_t i = 0; i < part_blocks(K); i++) {
    part_depth(p, a, K, i, bias, acc);
    p->n0 = 0, p->n1 = whole, p->b = b, p->packed = false;
    if (whole) part_run(p);
    if (whole == columns) continue;
    pack_panel(p->K, columns - whole, b + p->k0 * brs + whole, brs, 1, scratch,
               VL);
    p->n0 = whole, p->n1 = columns, p->b = scratch, p->packed = true;
    p->k0 = 0;
    part_run(p);
  }
}

/* B is packed a block at a time. */
static void run_blocks(gemm_part *p, int64_t K, const float *a, const float *b,
                       int64_t brs, int64_t bcs, const float *bias, bool acc,
                       float *scratch) {
  int64_t end = p->n1;
  p->b = scratch;
  p->packed = true;
  for (; p->n0 < end; p->n0 = p->n1) {
    p->n1 = min64(end, p->n0 + NC);
    for (int64_t i = 0; i < part_blocks(K); i++) {
      part_depth(p, a, K, i, bias, acc);
      pack(p->K, p->n1 - p->n0, b + p->k0 * brs + p->n0 * bcs, brs, bcs,
           scratch);
      p->bpanel = p->K;
      p->k0 = 0;
      part_run(p);
    }
  }
}

static void run(int64_t m0, int64_t m1, int64_t n0, int64_t n1, int64_t K,
                int64_t N, const float *a, int64_t ars, int64_t acs,
                const float *b, int64_t brs, int64_t bcs, float *c, int64_t ldc,
                const float *bias, bool acc, float *scratch) {
  int64_t rows = m1 - m0, columns = n1 - n0;
  (void)N;
  if (rows <= 0 || columns <= 0) return;
  /* From here on the part is the whole. */
  a += m0 * ars, b += n0 * bcs, c += m0 * ldc + n0;
  if (bias) bias += n0;
  if (acs == 1 && brs == 1 && columns == 1) {
    dots_column(rows, K, a, ars, b, c, ldc, bias, acc);
  } else if (acs == 1 && brs == 1 && rows <= DOTS_M) {
    dots_rows(rows, columns, K, a, ars, b, bcs, c, ldc, bias, acc);
  } else if (rows == 1 && bcs == 1 && columns >= AXPY_N) {
    axpy_run(columns, K, a, acs, b, brs, c, bias, acc);
  } else {
    gemm_part p = {.m1 = rows, .n1 = columns, .ars = ars, .acs = acs,
                   .ldc = ldc, .c = c};
    if (bcs == 1 && direct_pays(rows, columns, K, brs))
      run_direct(&p, K, a, b, brs, bias, acc, scratch);
    else
      run_blocks(&p, K, a, b, brs, bcs, bias, acc, scratch);
  }
}

const limn_gemm_kernels GEMM_TABLE;
const limn_gemm_kernels GEMM_TABLE = {
    GEMM_NAME, LIMN_GEMM_SPLIT, packed_size, pack_all,
    run_packed, scratch_size, run,
};
