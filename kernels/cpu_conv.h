/* Convolutions on the CPU: what the files of kernels/cpu_conv*.c share.
 *
 * All three ops walk a grid of positions, each of which reads its source
 * through a window of taps:
 *   conv            positions of y read x: index j * stride + k * dilation -
 *                   padding of each dim, for tap k
 *   conv_weights    the same; what is read meets y's gradient
 *   conv_transpose  positions of x read y: where q + padding - k * dilation is
 *                   a whole number of strides. The q of one remainder use the
 *                   same taps, next ones read neighbours: each remainder is a
 *                   grid of its own, a `pass`, and there are no zeros between.
 * No padded copy is made: what lies outside the source is masked where it is
 * read. */
#ifndef LIMN_CPU_CONV_H
#define LIMN_CPU_CONV_H

#include "cpu_kernels.h"

/* -- Kernels, one table per instruction set (cpu_conv_isa.h) -- */

/* Of a vector of positions, those whose bits are set read src[off + lane *
 * step]. With a step of 2, bit 2 * lane stands for a lane. */
typedef struct {
  int64_t off;
  uint32_t mask, pad;
} limn_conv_part;

/* What a vector of positions reads of each channel: one vector per tap, put
 * together from `parts` parts. Rows follow each other in dst by channel, then
 * tap, dstep floats apart. */
typedef struct {
  const limn_conv_part *part; /* [taps][parts] */
  int64_t taps, parts, step, channels;
  const float *src;
  int64_t cstep; /* floats from channel to channel */
  float *dst;
  int64_t dstep;
} limn_conv_gather;

/* Runs of n positions each, for all results of some groups, straight from the
 * source. All use the taps of the last dim alike, on lines of their own. */
typedef struct {
  /* Of each run: how many lines there are, where its first result goes, and in
   * `outer` places where each line begins and the number of its first tap. */
  int64_t runs, outer;
  const int64_t *lines, *target, *line, *tap;
  bool spread; /* for `sum` */
  const limn_conv_part *part; /* [vectors of a run][taps], from the line on */
  int64_t taps, step, n;
  int64_t groups, channels, results; /* of a group: channels and results */
  const float *src, *w;
  int64_t cstep, wstep, wrow; /* of the source; of w by channel, by result */
  float *out;
  int64_t ostep, pstep; /* by result, by position */
} limn_conv_direct;

typedef struct limn_conv_kernels {
  int lanes; /* positions of a vector, as many as the products' */
  void (*gather)(const limn_conv_gather *g);
  void (*direct)(const limn_conv_direct *d);
  /* The gradient of the weights likewise, [groups][channels][outer][taps]
   * [results] floats of it, which are added to: w is the gradient of the
   * result, `line` has a place for each outer tap, or -1, and lines and tap
   * mean nothing. */
  void (*sum)(const limn_conv_direct *d);
  /* Winograd's transforms. */
  void (*input)(const float *const rows[4], int64_t tiles, float *v,
                int64_t step);
  void (*output)(const float *m, int64_t step, int64_t tiles, float *top,
                 float *low);
  /* Windows [i0, i1) of n; see cpu_conv_isa.h. */
  void (*weights)(const float *w, int64_t os, int64_t cs, int64_t channels,
                  bool turn, int64_t i0, int64_t i1, int64_t n, float *u);
} limn_conv_kernels;
const limn_conv_kernels *limn_conv_select(int isa); /* as limn_gemm_select */

/* -- Grids -- */

/* One dim of the positions of a pass, and of the source. */
typedef struct {
  int64_t size, grid; /* elements of the source; positions */
  int64_t step;       /* elements from position to position */
  int64_t stride;     /* of the source, in elements */
  int64_t n;          /* taps */
  /* Of each: off, lo, hi, number. Position j reads index j * step + off, which
   * is in the source for lo <= j < hi; number: its place in the weights. */
  const int64_t *tap;
} conv_dim;
enum { CONV_TAP = 4 };

typedef struct {
  int nd;
  conv_dim d[LIMN_MAXDIM];
  int64_t taps, positions;
  int64_t image; /* elements of the source from row to row */
  int64_t first; /* taps of the passes before */
} conv_grid;

/* Positions of one line: `len` of them from at on, of row `row`. */
typedef struct {
  int64_t row, len;
  int64_t at[LIMN_MAXDIM];
} conv_span;

/* Where the result of a pass lies: position j of a dim at j * step + first. */
typedef struct {
  int64_t step[LIMN_MAXDIM], first[LIMN_MAXDIM], size[LIMN_MAXDIM];
} conv_place;

/* What weights in another form are made of; stands before a copy of them. */
typedef struct {
  int64_t form; /* the way that wants them */
  int64_t op, n, O, c, G, offset;
  int64_t stride[LIMN_MAXDIM], padding[LIMN_MAXDIM], dilation[LIMN_MAXDIM];
  int64_t kernel[LIMN_MAXDIM], rests[LIMN_MAXDIM];
  int64_t pad;
} conv_head;
_Static_assert(sizeof(conv_head) % 64 == 0, "keeps the copy aligned");

enum { CONV_PRODUCT = 1, CONV_DIRECT, CONV_WINOGRAD };

enum {
  CONV_COLUMNS = 256, /* positions of a block, at most */
  CONV_FEW = 64       /* and from which blocks stay within a row */
};
/* How many of size `each` hold n; of nothing one. */
static inline int64_t conv_ceil(int64_t n, int64_t each) {
  return LIMN_MAX((n + each - 1) / each, 1);
}
static inline size_t conv_round(size_t bytes) { return (bytes + 63) / 64 * 64; }

typedef struct conv_plan conv_plan;
typedef void conv_tiles(const conv_plan *k, const limn_step *s,
                        const limn_bind *b, int64_t t0, int64_t t1);
struct conv_plan {
  const limn_gemm_kernels *gemm;
  const limn_cpu_loops *loops;
  const limn_conv_kernels *kernels;
  int op, how, dtype, size;
  int type, wide;  /* what it computes in: CPU_F32..., and its bytes */
  bool own;        /* float32, read where it is */
  bool keeps;      /* formed weights, with their cell */
  bool plain;      /* a window of one: the source is the matrix of windows */
  /* N rows; C channels of the source and O of the result in G groups of c and
   * o; S and P elements of a plane of them. Of conv_weights the source is x,
   * the result y. */
  int64_t N, C, O, G, c, o, S, P;
  int nd;
  int64_t kernel[LIMN_MAXDIM], grid[LIMN_MAXDIM]; /* of the whole result */
  int64_t rests[LIMN_MAXDIM], stride[LIMN_MAXDIM]; /* passes of each dim */
  int64_t at[LIMN_MAXDIM]; /* of each dim's in the table */
  int64_t taps, passes;
  int64_t *table; /* of the dims, one after the other */
  size_t ntable;
  /* A tile is `per` of `units` positions (of several passes: rows of dim 1) of
   * one row or, if they `cross`, of all, in `blocks` ranges, times one of
   * mparts ranges of mb results of `groups` groups. It takes `columns`
   * positions and `channels` channels at a time. Of conv_weights it is one of
   * `parts` of all positions times one of `chunks` of channels or groups. */
  int64_t tiles, units, per, blocks, mparts, mb, groups, columns, channels;
  int64_t parts, chunks;
  bool cross;
  /* Weights in another form: made before the tiles, of `shared` bytes; of
   * conv_weights the sums of the parts. */
  size_t shared, scratch;
  conv_tiles *begin, *run, *end; /* of nbegin, ntiles, nend tiles */
  int64_t nbegin, nend;
  double begin_ns, end_ns, cost_ns;
  limn_cpu_epilogue after;
  conv_head head;
};

/* Multiplications of a tile, about; fewer where there is no product. */
static inline double conv_work(const conv_plan *k) {
  return k->how == CONV_DIRECT ? 500000 : 3000000;
}

/* -- cpu_conv_grid.c -- */
int limn_conv_tables(limn_context *c, conv_plan *k, const limn_step *s);
void limn_conv_pass(const conv_plan *k, int64_t pass, conv_grid *g,
                    conv_place *at);
/* Bytes that limn_conv_rows needs beside its result. */
size_t limn_conv_parts_size(const conv_plan *k);
/* The lines that r reads: where each begins, and its first tap; how many. */
int64_t limn_conv_lines(const conv_grid *g, const conv_span *r, int64_t *line,
                        int64_t *tap);
/* What a vector of r's positions, from number `first` on, reads of a line by
 * tap t. */
limn_conv_part limn_conv_part_of(const conv_grid *g, const conv_span *r,
                                 int64_t first, int64_t lanes, int64_t t);
/* The windows of positions [f, f + n) of `channels` channels from src on, as
 * rows by channel, then tap. `panels`: as products have them packed (float32
 * only), else rows ld apart, in the type computed in. f counts on from one row
 * of the source to the next. */
void limn_conv_rows(const conv_plan *k, const conv_grid *g, const char *src,
                    int64_t channels, int64_t f, int64_t n, bool panels,
                    int64_t ld, void *parts, void *dst);
void limn_conv_seek(const conv_grid *g, int64_t f, conv_span *r); /* len: 0 */
void limn_conv_next(const conv_grid *g, int64_t most, conv_span *r);

/* -- cpu_conv_product.c, cpu_conv_direct.c, cpu_conv_wino.c,
 *    cpu_conv_weights.c -- */
/* A tile of conv or conv_transpose, or what a pass has of it. */
typedef struct {
  const conv_plan *k;
  conv_grid g;
  conv_place at;
  int64_t group, groups, m0, m1; /* the first; result channels from there on */
  const char *src, *w; /* of the group; w at row m0, `wrow` elements a row */
  int64_t wrow;
  char *out; /* of the step */
  char *windows, *sums, *parts, *rest; /* scratch */
} conv_tile;
/* Where the first position of r goes, of the result's channel 0. */
int64_t limn_conv_target(const conv_tile *t, const conv_span *r);
/* Positions [f0, f1) of a pass, counted on from row to row. */
void limn_conv_direct_block(const conv_tile *t, int64_t f0, int64_t f1);
bool limn_conv_direct_suits(const conv_plan *k);
size_t limn_conv_direct_scratch(const conv_plan *k);
/* Likewise of conv_weights, added to out. */
void limn_conv_direct_sum(const conv_tile *t, const char *y, void *out,
                          int64_t f0, int64_t f1);
void limn_conv_product_prepare(conv_plan *k);
bool limn_conv_wino_suits(const conv_plan *k, const limn_step *s);
void limn_conv_wino_prepare(conv_plan *k, const limn_step *s);
void limn_conv_weights_prepare(conv_plan *k);
/* C [m, n] (+)= A [m, K] B [K, n] in the type computed in; A's columns are 1
 * apart. scratch: the gemm's. */
void limn_conv_multiply(const conv_plan *k, int64_t m, int64_t n, int64_t K,
                        const void *a, int64_t ars, const void *b, int64_t brs,
                        int64_t bcs, void *c, int64_t ldc, bool acc,
                        void *scratch);
double limn_conv_cost(const conv_plan *k, double work); /* in ns */
/* n elements of the type computed in to the step's dtype. */
void limn_conv_store(const conv_plan *k, const void *v, int64_t n, char *out);

/* What follows the convolution, for positions [p0, p1) of channels [o0, o1) of
 * a row: once they are complete, and while they are in cache. */
void limn_conv_after(const conv_plan *k, const limn_step *s,
                     const limn_bind *b, int64_t row, int64_t o0, int64_t o1,
                     int64_t p0, int64_t p1);

/* Where the prepared weights, or the sums of the parts, are in this run. */
void *limn_conv_shared(const conv_plan *k, const limn_bind *b,
                       const limn_step *s);

#endif
