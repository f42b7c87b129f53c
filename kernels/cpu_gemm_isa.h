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
  LINE = 16, /* floats of a cache line */
  AS = (MR + VL - 1) / VL * VL, /* row stride of a packed sliver of A */
  GROUP = 128 / MR              /* slivers that are packed at once */
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
  limn_gemm_out out;  /* at the tile's first row and column */
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

/* What is added in the end is on its way while the tile multiplies: rows that
 * far apart are nothing that the processor foresees. */
INLINE void tile_fetch(int mr, const float *p, int64_t ps) {
  UNROLL for (int i = 0; i < mr; i++)
    UNROLL for (int j = 0; j < NR; j += LINE)
      __builtin_prefetch(p + i * ps + j);
}

INLINE void tile_add(int mr, int nv, vec *sum, const float *p, int64_t ps) {
  UNROLL for (int i = 0; i < mr; i++)
    UNROLL for (int v = 0; v < nv; v++)
      sum[i * nv + v] += load(p + i * ps + v * VL);
}

/* mr rows x nv vectors of C, all constants here. `plain`: A is read at
 * row*as + k, else at k*as + row. With few rows, several sets of sums take
 * turns over k: an addition takes 4 cycles, and two may begin in each. */
INLINE void tile(int mr, int nv, bool plain, const gemm_tile *t) {
  const int sets = mr * nv >= 8 ? 1 : mr * nv >= 4 ? 2 : 4;
  const int64_t as = t->as, bs = t->bs, K = t->K;
  const limn_gemm_out *o = &t->out;
  const int64_t ak = plain ? 1 : as;
  const float *a = t->a, *b = t->b;
  vec sum[MR * NV < 16 ? 16 : MR * NV];
  UNROLL for (int i = 0; i < sets * mr * nv; i++) sum[i] = (vec){0};
  int64_t k = 0;
  if (o->add) tile_fetch(mr, o->add, o->ldadd);
  if (o->acc) tile_fetch(mr, o->c, o->ldc);
  if (sets > 1)
    for (; k + sets <= K; k += sets)
      UNROLL for (int u = 0; u < sets; u++, a += ak, b += bs)
        tile_step(mr, nv, plain, sum + u * mr * nv, a, as, b);
  for (; k < K; k++, a += ak, b += bs)
    tile_step(mr, nv, plain, sum, a, as, b);
  UNROLL for (int u = 1; u < sets; u++)
    UNROLL for (int i = 0; i < mr * nv; i++) sum[i] += sum[u * mr * nv + i];
  if (o->bias)
    UNROLL for (int i = 0; i < mr; i++)
      UNROLL for (int v = 0; v < nv; v++)
        sum[i * nv + v] += load(o->bias + v * VL);
  if (o->acc) tile_add(mr, nv, sum, o->c, o->ldc);
  if (o->add) tile_add(mr, nv, sum, o->add, o->ldadd);
  UNROLL for (int i = 0; i < mr; i++)
    UNROLL for (int v = 0; v < nv; v++)
      store(o->c + i * o->ldc + v * VL, sum[i * nv + v]);
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
  int64_t ars, acs;
  const float *a; /* at row 0, the block's first k */
  const float *b; /* at column n0 */
  int64_t K, k0;  /* depth of this block; rows of the panels before it */
  /* Panel at column n begins at b + (n - n0) * bpanel. Its rows are its width
   * apart when packed, else bs. */
  bool packed;
  int64_t bpanel, bs;
  limn_gemm_out whole, out; /* all of it; of this block of K */
  float *room; /* for GROUP slivers of A, or NULL */
} gemm_part;

/* Columns that do not fill their last vector: the tile works on copies. */
static void part_edge(tile_fn *fn, gemm_tile *t, int64_t mr, int64_t n) {
  float c[MR * NR], add[MR * NR], bias[NR];
  const limn_gemm_out *o = &t->out;
  int64_t wide = round_up(n, VL);
  gemm_tile e = *t;
  e.out.c = c;
  e.out.ldc = e.out.ldadd = wide;
  if (o->bias) {
    store(bias + wide - VL, (vec){0});
    copy_few(bias, o->bias, n);
    e.out.bias = bias;
  }
  if (o->add) e.out.add = add;
  for (int64_t i = 0; i < mr; i++) {
    store(c + (i + 1) * wide - VL, (vec){0});
    if (o->acc) copy_few(c + i * wide, o->c + i * o->ldc, n);
    store(add + (i + 1) * wide - VL, (vec){0});
    if (o->add) copy_few(add + i * wide, o->add + i * o->ldadd, n);
  }
  fn(&e);
  for (int64_t i = 0; i < mr; i++)
    copy_few(o->c + i * o->ldc, c + i * wide, n);
}

/* `o` seen from row m and column n on. */
static limn_gemm_out out_at(const limn_gemm_out *o, int64_t m, int64_t n) {
  limn_gemm_out p = *o;
  p.c += m * p.ldc + n;
  if (p.bias) p.bias += n;
  if (p.add) p.add += m * p.ldadd + n;
  return p;
}

/* One sliver: mr rows from m, against every panel. */
static void part_sliver(const gemm_part *p, int64_t m, int64_t mr,
                        tile_fn *const *fn, const float *a, int64_t as) {
  gemm_tile t = {.K = p->K, .a = a, .as = as};
  for (int64_t n = p->n0; n < p->n1; n += NR) {
    int64_t w = min64(p->n1 - n, NR), nv = (w + VL - 1) / VL;
    t.bs = p->packed ? nv * VL : p->bs;
    t.b = p->b + (n - p->n0) * p->bpanel + p->k0 * t.bs;
    t.out = out_at(&p->out, m, n);
    if (nv * VL == w)
      fn[nv - 1](&t);
    else
      part_edge(fn[nv - 1], &t, mr, w);
  }
}

/* Rows a multiple of this many bytes apart fall on few sets of L1. */
enum { PACK_BYTES = 2048 };

/* Copying a sliver of A pays when it is read often and badly placed. */
static bool part_copies(const gemm_part *p) {
  if (p->m1 - p->m0 == 1) return false;
  if (p->acs != 1 && p->ars != 1) return true;
  if (p->acs != 1) return p->n1 - p->n0 >= 2 * NR;
  return p->n1 - p->n0 >= 8 * NR && p->ars * 4 % PACK_BYTES == 0;
}

/* Sliver i of `parts`: heights differ by at most one. */
static int64_t part_row(const gemm_part *p, int64_t i, int64_t parts) {
  return p->m0 + (p->m1 - p->m0) * i / parts;
}

/* Slivers [i0, i1) of A, one after another. Where a row of them is contiguous
 * they are read together: memory likes long reads. */
static void part_copy(const gemm_part *p, int64_t i0, int64_t i1, int64_t parts,
                      float *copy) {
  int64_t step = i1 - i0 > 1 ? PACK_ROWS : p->K;
  for (int64_t k = 0; k < p->K; k += step)
    for (int64_t i = i0; i < i1; i++) {
      int64_t m = part_row(p, i, parts);
      /* Whole vectors while there are rows, though the tile needs fewer. */
      pack_panel(min64(p->K - k, step), min64(p->m1 - m, AS),
                 p->a + m * p->ars + k * p->acs, p->acs, p->ars,
                 copy + ((i - i0) * p->K + k) * AS, AS);
    }
}

static void part_copied(const gemm_part *p, int64_t parts) {
  float few[KC * AS] __attribute__((aligned(64)));
  bool many = p->room && p->ars == 1;
  float *copy = many ? p->room : few;
  for (int64_t i = 0, end; i < parts; i = end) {
    end = min64(parts, i + (many ? GROUP : 1));
    part_copy(p, i, end, parts, copy);
    for (int64_t j = i; j < end; j++) {
      int64_t m = part_row(p, j, parts), mr = part_row(p, j + 1, parts) - m;
      part_sliver(p, m, mr, tile_turned[mr - 1], copy + (j - i) * p->K * AS,
                  AS);
    }
  }
}

static void part_run(const gemm_part *p) {
  int64_t parts = (p->m1 - p->m0 + MR - 1) / MR;
  if (p->K <= KC && part_copies(p)) {
    part_copied(p, parts);
    return;
  }
  for (int64_t i = 0; i < parts; i++) {
    int64_t m = part_row(p, i, parts), mr = part_row(p, i + 1, parts) - m;
    const float *a = p->a + m * p->ars;
    if (p->acs == 1)
      part_sliver(p, m, mr, tile_plain[mr - 1], a, p->ars);
    else
      part_sliver(p, m, mr, tile_turned[mr - 1], a, p->acs);
  }
}

/* The i-th of the blocks that cut the depth evenly, at most KC deep each. */
static int64_t part_blocks(int64_t K) { return K > KC ? (K + KC - 1) / KC : 1; }

static void part_depth(gemm_part *p, const float *a, int64_t K, int64_t i) {
  int64_t blocks = part_blocks(K), k = K * i / blocks;
  p->K = K * (i + 1) / blocks - k;
  p->a = a + k * p->acs;
  p->k0 = k;
  p->out = p->whole;
  if (i) { /* later blocks add to what the first wrote */
    p->out.bias = NULL;
    p->out.acc = true;
  }
  if (i < blocks - 1) p->out.add = NULL;
}

#include "cpu_gemm_few.h"

/* ---- B packed ---- */

static void run_packed(int64_t m0, int64_t m1, int64_t n0, int64_t n1,
                       int64_t K, int64_t N, const float *a, int64_t ars,
                       int64_t acs, const float *packed,
                       const limn_gemm_out *out) {
  if (m0 >= m1 || n0 >= n1) return;
  if (N == 1 && acs == 1) {
    limn_gemm_out o = out_at(out, m0, 0);
    dots_column(m1 - m0, K, a + m0 * ars, ars, packed + K * VL, &o);
    return;
  }
  gemm_part p = {.m0 = m0, .m1 = m1, .ars = ars, .acs = acs, .whole = *out,
                 .packed = true, .bpanel = K};
  for (p.n0 = n0; p.n0 < n1; p.n0 = p.n1) {
    p.n1 = min64(n1, p.n0 + NC);
    p.b = packed + p.n0 * K;
    for (int64_t i = 0; i < part_blocks(K); i++) {
      part_depth(&p, a, K, i);
      part_run(&p);
    }
  }
}

/* ---- B as it is ---- */

/* A group of slivers of A, then a block of B. */
static int64_t scratch_size(int64_t K, int64_t N) {
  return min64(K, KC) * (GROUP * AS + round_up(min64(N, NC), VL));
}

/* Rows few enough, or B small enough and its rows not on few sets of L1, that
 * packing B would not pay. */
static bool direct_pays(int64_t rows, int64_t columns, int64_t K, int64_t brs) {
  return rows <= 4 * MR || (K * columns <= 2 * KC * NC && brs % 512 != 0);
}

enum { AXPY_N = 256, DOTS_M = 4 };

/* Whole vectors of columns are read from B where it is, the rest is packed. */
static void run_direct(gemm_part *p, int64_t K, const float *a, const float *b,
                       int64_t brs, float *scratch) {
  int64_t columns = p->n1, whole = columns / VL * VL;
  p->bs = brs;
  p->bpanel = 1;
  for (int64_t i = 0; i < part_blocks(K); i++) {
    part_depth(p, a, K, i);
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
                       int64_t brs, int64_t bcs, float *scratch) {
  int64_t end = p->n1;
  p->b = scratch;
  p->packed = true;
  for (; p->n0 < end; p->n0 = p->n1) {
    p->n1 = min64(end, p->n0 + NC);
    for (int64_t i = 0; i < part_blocks(K); i++) {
      part_depth(p, a, K, i);
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
                const float *b, int64_t brs, int64_t bcs,
                const limn_gemm_out *out, float *scratch) {
  int64_t rows = m1 - m0, columns = n1 - n0;
  (void)N;
  if (rows <= 0 || columns <= 0) return;
  /* From here on the part is the whole. */
  limn_gemm_out o = out_at(out, m0, n0);
  a += m0 * ars, b += n0 * bcs;
  if (acs == 1 && brs == 1 && columns == 1) {
    dots_column(rows, K, a, ars, b, &o);
  } else if (acs == 1 && brs == 1 && rows <= DOTS_M) {
    dots_rows(rows, columns, K, a, ars, b, bcs, &o);
  } else if (rows == 1 && bcs == 1 && columns >= AXPY_N) {
    axpy_run(columns, K, a, acs, b, brs, &o);
  } else {
    gemm_part p = {.m1 = rows, .n1 = columns, .ars = ars, .acs = acs,
                   .whole = o, .room = scratch};
    scratch += min64(K, KC) * GROUP * AS;
    if (bcs == 1 && direct_pays(rows, columns, K, brs))
      run_direct(&p, K, a, b, brs, scratch);
    else
      run_blocks(&p, K, a, b, brs, bcs, scratch);
  }
}

const limn_gemm_kernels GEMM_TABLE;
const limn_gemm_kernels GEMM_TABLE = {
    GEMM_NAME, LIMN_GEMM_SPLIT, NR, VL, packed_size, pack_all,
    run_packed, scratch_size, run,
};
