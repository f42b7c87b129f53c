/* The CPU's executor of fused groups over views of any strides.
 *
 * Elements are numbered row-major and worked through in tiles of consecutive
 * numbers. Dense operands are used where they are; the others are brought in
 * per tile: as one element where it does not change within the tile, as a
 * pointer where they are dense within it, as a repeated pattern (short rows
 * that repeat), else gathered. An operand that lies transposed turns 16 rows
 * of a tile's length at once; tiles are then visited in blocks of 16 rows. */
#include "cpu_prog.h"

enum {
  GROUP_ROWS = 16,      /* rows of a block when an operand is turned */
  GROUP_BUFFER = 32768, /* bytes on the stack for what is brought in */
  GROUP_TURNED = 2      /* operands turned at once */
};

enum { ARG_DENSE, ARG_ONE, ARG_PERIOD, ARG_RUNS, ARG_CONST, ARG_ANY, ARG_TURN };

typedef struct {
  uint8_t how, log2, nd;
  uint16_t slot;
  uint32_t at;     /* in the buffer */
  int64_t offset;  /* bytes from the slot's start to element 0 */
  int64_t lo, hi;  /* bytes from the slot's start that may be touched */
  int64_t run;     /* length of the innermost dim */
  int64_t d[LIMN_MAXDIM], s[LIMN_MAXDIM]; /* merged; strides in elements */
  int64_t outer[LIMN_MAXDIM]; /* ARG_TURN: strides in the joint dims */
} group_arg;

typedef struct {
  limn_cpu_prog *prog;
  size_t bytes;
  int64_t n, chunk;  /* elements in all; elements (or blocks) per step tile */
  int64_t tile, row; /* row: tiles do not cross multiples of it, 0: they may */
  uint32_t buffer;   /* bytes used of the buffer */
  int nd, turn;      /* joint dims; the dim that turned operands run along */
  int64_t d[LIMN_MAXDIM];
  int64_t blocks, seg; /* turned: blocks in all; elements of a block's row */
  int64_t ahead; /* elements to what is fetched early, or 0 */
  group_arg *in, *out;
} group_code;

/* -- Running -- */

typedef struct {
  prog_frame f;
  _Alignas(64) char buffer[GROUP_BUFFER];
  char *in[LIMN_STEP_IN], *out[LIMN_STEP_OUT]; /* element 0 */
} group_run;

/* Position of element `at` in an operand: indices, and bytes from its start. */
static int64_t group_seek(const group_arg *a, int64_t at, int64_t *idx) {
  int64_t off = 0;
  int k;
  for (k = a->nd - 1; k >= 0; k--) {
    idx[k] = k ? at % a->d[k] : at;
    at = k ? at / a->d[k] : 0;
    off += idx[k] * a->s[k];
  }
  return off * (1 << a->log2); /* may be negative */
}

/* Add n to an index whose last dim it does not exceed, carrying. */
static void group_advance(const group_arg *a, int64_t *idx, int k, int64_t n) {
  for (idx[k] += n; k > 0 && idx[k] == a->d[k]; k--) idx[k] = 0, idx[k - 1]++;
}

/* One piece of [idx, idx + m) that has two regular dims: rows x len. */
static int64_t group_piece(const group_arg *a, const int64_t *idx, int64_t m,
                           int64_t *rows, int64_t *len) {
  int l = a->nd - 1;
  *rows = 1;
  if (idx[l] || m < a->d[l] || l == 0) {
    *len = LIMN_MIN(m, a->d[l] - idx[l]);
  } else {
    *len = a->d[l];
    *rows = LIMN_MIN(m / *len, a->d[l - 1] - idx[l - 1]);
  }
  return *rows * *len;
}

static void group_step(const group_arg *a, int64_t *idx, int64_t rows,
                       int64_t len) {
  int l = a->nd - 1;
  if (rows > 1)
    group_advance(a, idx, l - 1, rows);
  else
    group_advance(a, idx, l, len);
}

static int64_t group_offset(const group_arg *a, const int64_t *idx) {
  int64_t off = 0;
  int k;
  for (k = 0; k < a->nd; k++) off += idx[k] * a->s[k];
  return off * (1 << a->log2); /* may be negative */
}

static void group_gather(const limn_elem_kernels *k, const group_arg *a,
                         const char *base, int64_t at, int64_t m, char *dst) {
  int64_t idx[LIMN_MAXDIM], rows, len;
  group_seek(a, at, idx);
  while (m > 0) {
    int64_t n = group_piece(a, idx, m, &rows, &len);
    k->gather[a->log2](dst, base + group_offset(a, idx), rows,
                       a->nd > 1 ? a->s[a->nd - 2] : 0, len, a->s[a->nd - 1]);
    group_step(a, idx, rows, len);
    dst += n << a->log2;
    m -= n;
  }
}

static void group_put(char *dst, int64_t stride, const char *src, int64_t n,
                      int log2) {
  int64_t i;
  if (stride == 1) {
    memcpy(dst, src, (size_t)(n << log2));
    return;
  }
  for (i = 0; i < n; i++) {
    char *d = dst + i * stride * (1 << log2);
    switch (log2) {
      case 0: *d = src[i]; break;
      case 1: memcpy(d, src + 2 * i, 2); break;
      case 2: memcpy(d, src + 4 * i, 4); break;
      default: memcpy(d, src + 8 * i, 8);
    }
  }
}

static void group_scatter(const group_arg *a, char *base, int64_t at,
                          int64_t m, const char *src) {
  int64_t idx[LIMN_MAXDIM];
  group_seek(a, at, idx);
  while (m > 0) {
    int l = a->nd - 1;
    int64_t n = LIMN_MIN(m, a->d[l] - idx[l]);
    group_put(base + group_offset(a, idx), a->s[l], src, n, a->log2);
    group_advance(a, idx, l, n);
    src += n << a->log2;
    m -= n;
  }
}

/* Set input k for the tile of m elements at `at`. */
static void group_input(const group_code *g, group_run *r, int k, int64_t at,
                        int64_t m) {
  const group_arg *a = &g->in[k];
  char *base = r->in[k], *buffer = r->buffer + a->at;
  int64_t idx[LIMN_MAXDIM];
  r->f.one[1 + k] = 0;
  switch (a->how) {
    case ARG_DENSE: r->f.p[1 + k] = base + (at << a->log2); return;
    case ARG_PERIOD:
      r->f.p[1 + k] = buffer + ((at % a->run) << a->log2);
      return;
    case ARG_RUNS: case ARG_CONST:
      if (at % a->run + m > a->run) break;
      base += group_seek(a, at, idx);
      r->f.p[1 + k] = base;
      if (a->how == ARG_CONST) limn_prog_one(g->prog, &r->f, k, base);
      return;
  }
  group_gather(g->prog->k, a, base, at, m, buffer);
  r->f.p[1 + k] = buffer;
}

/* Set output k; true when the tile must be scattered from the buffer. */
static bool group_output(const group_code *g, group_run *r, int k, int64_t at,
                         int64_t m) {
  const group_arg *a = &g->out[k];
  char **p = (char **)&r->f.p[1 + g->prog->nin + k];
  int64_t idx[LIMN_MAXDIM];
  if (a->how == ARG_DENSE) {
    *p = r->out[k] + (at << a->log2);
    return false;
  }
  if (a->how == ARG_RUNS && at % a->run + m <= a->run) {
    *p = r->out[k] + group_seek(a, at, idx);
    return false;
  }
  *p = r->buffer + a->at;
  return true;
}

static void group_tile(const group_code *g, group_run *r, int64_t at,
                       int64_t m) {
  const limn_cpu_prog *p = g->prog;
  uint32_t scatter = 0;
  int k;
  for (k = 0; k < p->nout; k++)
    scatter |= (uint32_t)group_output(g, r, k, at, m) << k;
  limn_prog_tile(p, &r->f, m, at);
  for (k = 0; scatter; k++, scatter >>= 1)
    if (scatter & 1)
      group_scatter(&g->out[k], r->out[k], at, m, r->buffer + g->out[k].at);
}

/* What holds for the whole run: addresses, numbers, repeated patterns. */
static void group_begin(const limn_step *s, const group_code *g, group_run *r,
                        const limn_bind *b) {
  int k;
  for (k = 0; k < s->nout; k++) {
    const limn_slot *slot = &b->slot[g->out[k].slot];
    r->out[k] = (char *)slot->mem + slot->off + g->out[k].offset;
  }
  for (k = 0; k < s->nin; k++) {
    const group_arg *a = &g->in[k];
    const limn_slot *slot = &b->slot[a->slot];
    r->in[k] = (char *)slot->mem + slot->off + a->offset;
    if (a->how == ARG_ONE) limn_prog_one(g->prog, &r->f, k, r->in[k]);
    if (a->how == ARG_PERIOD) {
      int64_t n = LIMN_MIN(a->run + g->tile, g->n) / a->run;
      int64_t rest = LIMN_MIN(a->run + g->tile, g->n) % a->run;
      char *d = r->buffer + a->at;
      g->prog->k->gather[a->log2](d, r->in[k], n, 0, a->run, 1);
      memcpy(d + ((n * a->run) << a->log2), r->in[k],
             (size_t)(rest << a->log2));
    }
  }
  limn_prog_begin(g->prog, b, &r->f);
}

static bool group_overlap(const limn_bind *b, const group_arg *x,
                          const group_arg *y) {
  const limn_slot *sx = &b->slot[x->slot], *sy = &b->slot[y->slot];
  uintptr_t px = (uintptr_t)sx->mem + (uintptr_t)sx->off;
  uintptr_t py = (uintptr_t)sy->mem + (uintptr_t)sy->off;
  return px + (uintptr_t)x->lo < py + (uintptr_t)y->hi &&
         py + (uintptr_t)y->lo < px + (uintptr_t)x->hi;
}

/* An output that is (part of) the memory of an input read later. */
static bool group_aliased(const group_code *g, const limn_bind *b) {
  const limn_cpu_prog *p = g->prog;
  int k, i;
  for (k = 0; k < p->nout; k++)
    for (i = 0; i < p->nin; i++)
      if (p->late[k] >> i & 1 && group_overlap(b, &g->in[i], &g->out[k]))
        return true;
  return false;
}

/* Asks the memory for m elements of each dense operand. */
static void group_fetch(const group_code *g, const group_run *r, int64_t at,
                        int64_t m) {
  int k, nin = g->prog->nin;
  for (k = 0; k < nin + g->prog->nout; k++) {
    const char *p = k < nin ? r->in[k] : r->out[k - nin];
    uintptr_t from = (uintptr_t)p + ((uintptr_t)at << g->in[k].log2);
    uintptr_t end = from + ((uintptr_t)m << g->in[k].log2);
    if (g->in[k].how != ARG_DENSE) continue;
    for (; from < end; from += 64) __builtin_prefetch((const void *)from);
  }
}

static void group_flat(const group_code *g, group_run *r, int64_t at,
                       int64_t end) {
  int k;
  while (at < end) {
    int64_t m = LIMN_MIN(g->tile, end - at);
    if (g->row) m = LIMN_MIN(m, g->row - at % g->row);
    if (m > LIMN_ELEM_PAD) m &= -LIMN_ELEM_PAD;
    for (k = 0; k < g->prog->nin; k++)
      if (g->in[k].how != ARG_ONE) group_input(g, r, k, at, m);
    if (g->ahead) group_fetch(g, r, at + g->ahead, m);
    group_tile(g, r, at, m);
    at += m;
  }
}

/* Block number `block`: up to 16 positions of dim `turn` times up to `seg` of
 * the last dim; the former vary fastest from block to block. */
static void group_block(const group_code *g, group_run *r, int64_t block) {
  int64_t nt = (g->d[g->turn] + GROUP_ROWS - 1) / GROUP_ROWS;
  int64_t nl = (g->d[g->nd - 1] + g->seg - 1) / g->seg;
  int64_t idx[LIMN_MAXDIM], at = 0, step = 1, rows, m;
  int k, j, i;
  idx[g->turn] = block % nt * GROUP_ROWS;
  block /= nt;
  idx[g->nd - 1] = block % nl * g->seg;
  block /= nl;
  for (k = g->nd - 2; k >= 0; k--) {
    if (k == g->turn) continue;
    idx[k] = block % g->d[k];
    block /= g->d[k];
  }
  for (k = 0; k < g->nd; k++) at = at * g->d[k] + idx[k];
  for (k = g->turn + 1; k < g->nd; k++) step *= g->d[k];
  rows = LIMN_MIN(GROUP_ROWS, g->d[g->turn] - idx[g->turn]);
  m = LIMN_MIN(g->seg, g->d[g->nd - 1] - idx[g->nd - 1]);
  for (k = 0; k < g->prog->nin; k++) {
    const group_arg *a = &g->in[k];
    int64_t off = 0;
    if (a->how != ARG_TURN) continue;
    for (i = 0; i < g->nd; i++) off += idx[i] * a->outer[i];
    g->prog->k->turn[a->log2](r->buffer + a->at, g->seg,
                              r->in[k] + off * (1 << a->log2),
                              a->outer[g->nd - 1], (int)rows, m);
  }
  for (j = 0; j < rows; j++, at += step) {
    int64_t from = 0, n;
    for (; from < m; from += n) { /* at most a tile and a tail */
      n = m - from > LIMN_ELEM_PAD ? (m - from) & -LIMN_ELEM_PAD : m - from;
      for (k = 0; k < g->prog->nin; k++) {
        const group_arg *a = &g->in[k];
        if (a->how == ARG_TURN) {
          r->f.one[1 + k] = 0;
          r->f.p[1 + k] = r->buffer + a->at + ((j * g->seg + from) << a->log2);
        } else if (a->how != ARG_ONE) {
          group_input(g, r, k, at + from, n);
        }
      }
      group_tile(g, r, at + from, n);
    }
  }
}

static void group_step_run(const limn_step *s, const limn_bind *b, int64_t t0,
                           int64_t t1) {
  const group_code *code = s->code;
  group_code safe;
  group_run r;
  int64_t i, end;
  if (code->prog->safe && group_aliased(code, b)) {
    safe = *code;
    safe.prog = code->prog->safe;
    code = &safe;
  }
  group_begin(s, code, &r, b);
  if (!code->blocks) {
    group_flat(code, &r, t0 * code->chunk,
               LIMN_MIN(code->n, t1 * code->chunk));
    return;
  }
  end = LIMN_MIN(code->blocks, t1 * code->chunk);
  for (i = t0 * code->chunk; i < end; i++) group_block(code, &r, i);
}

/* -- Preparing -- */

/* Views of all operands, merged as far as all allow. */
static void group_views(const limn_step *s, limn_view *v) {
  limn_view *p[LIMN_STEP_IN + LIMN_STEP_OUT];
  int k, n = s->nin + s->nout;
  for (k = 0; k < n; k++) {
    v[k] = k < s->nin ? s->in[k].v : s->out[k - s->nin].v;
    p[k] = &v[k];
  }
  limn_view_collapse(p, n);
}

/* The dim along which v is contiguous when that is not the last one. */
static int group_turned(const limn_view *v) {
  int64_t last = v->ndim ? v->s[v->ndim - 1] : 1;
  int k;
  if (v->ndim < 2 || (last >= -1 && last <= 1) || v->d[v->ndim - 1] < 64)
    return -1;
  for (k = 0; k < v->ndim - 1; k++)
    if (v->s[k] == 1 && v->d[k] >= 4) return k;
  return -1;
}

static void group_classify(group_arg *a, const limn_view *joint, int dtype,
                           int slot) {
  limn_view v = *joint, *one = &v;
  int k, size = limn_dtype_size(dtype);
  a->log2 = (uint8_t)prog_log2(size);
  a->slot = (uint16_t)slot;
  a->offset = v.offset * size;
  limn_view_extent(&v, &a->lo, &a->hi);
  a->lo *= size;
  a->hi = (a->hi + 1) * size;
  for (k = 0; k < v.ndim; k++) a->outer[k] = v.s[k];
  limn_view_collapse(&one, 1);
  a->nd = (uint8_t)v.ndim;
  for (k = 0; k < v.ndim; k++) a->d[k] = v.d[k], a->s[k] = v.s[k];
  if (!v.ndim) a->nd = 1, a->d[0] = 1, a->s[0] = 0;
  a->run = a->d[a->nd - 1];
  a->how = a->nd > 1 || (a->s[0] != 1 && a->s[0] != 0) ? ARG_ANY
           : a->s[0] ? ARG_DENSE : ARG_ONE;
  if (a->how != ARG_ANY || a->nd < 2) return;
  if (a->s[a->nd - 1] == 1)
    a->how = a->nd == 2 && !a->s[0] && a->run < PROG_TILE ? ARG_PERIOD
                                                          : ARG_RUNS;
  if (a->s[a->nd - 1] == 0) a->how = ARG_CONST;
}

/* Bytes of buffer that an operand needs with the group's tile. */
static int64_t group_needs(const group_code *g, const group_arg *a) {
  if (a->how == ARG_DENSE || a->how == ARG_ONE) return 0;
  if (a->how == ARG_PERIOD) return (a->run + g->tile) << a->log2;
  if (a->how == ARG_TURN) return (GROUP_ROWS * g->seg) << a->log2;
  return g->tile << a->log2;
}

static int64_t group_room(group_code *g, int nin, int nout) {
  int64_t at = 0;
  int k;
  for (k = 0; k < nin + nout; k++) {
    group_arg *a = k < nin ? &g->in[k] : &g->out[k - nin];
    a->at = (uint32_t)at;
    at += (group_needs(g, a) + 63) & -64;
  }
  return at;
}

/* Shrinks tiles, then gives up turning and patterns, until all fits. */
static void group_fit(group_code *g, int nin, int nout) {
  int k;
  while (group_room(g, nin, nout) > GROUP_BUFFER) {
    if (g->seg > 64) {
      g->seg = (g->seg / 2 + 15) & -16;
    } else if (g->tile > 4 * LIMN_ELEM_PAD) {
      g->tile = (g->tile / 2 + 15) & -16;
    } else {
      g->tile = LIMN_ELEM_PAD;
      g->turn = -1;
      for (k = 0; k < nin; k++)
        if (g->in[k].how == ARG_TURN || g->in[k].how == ARG_PERIOD)
          g->in[k].how = ARG_ANY;
    }
  }
}

/* Tiles that divide the rows evenly, where rows are whole vectors. */
static void group_rows(group_code *g) {
  int64_t row = g->nd > 1 ? g->d[g->nd - 1] : 0, parts;
  if (row < 128 || row % LIMN_ELEM_PAD) return;
  parts = (row + g->tile - 1) / g->tile;
  g->row = row;
  g->tile = (row + parts - 1) / parts;
  g->tile = (g->tile + LIMN_ELEM_PAD - 1) & -LIMN_ELEM_PAD;
}

/* Which operands are turned; nothing when dims are small. */
static void group_turns(group_code *g, const limn_view *v, int nin) {
  int k, n = 0;
  g->turn = -1;
  for (k = 0; k < nin && g->n; k++) {
    int t = group_turned(&v[k]);
    if (t < 0 || (g->turn >= 0 && t != g->turn) || n == GROUP_TURNED) continue;
    g->turn = t;
    g->in[k].how = ARG_TURN;
    n++;
  }
  if (g->turn < 0) return;
  g->row = 0;
  g->seg = LIMN_MIN(g->tile, (g->d[g->nd - 1] + 15) & -16);
}

/* Two tiles: the next one is on its way when its turn comes. */
static void group_far(group_code *g, int nin, int nout) {
  int64_t bytes = 0;
  int k;
  for (k = 0; k < nin + nout; k++)
    if (g->in[k].how == ARG_DENSE) bytes += g->n << g->in[k].log2;
  if (bytes >= LIMN_CPU_LARGE) g->ahead = 2 * g->tile;
}

/* Step tiles of 2 to 50 us, about 16 of them. */
static void group_chunks(limn_step *s, group_code *g, double each) {
  double ns;
  int64_t elements;
  s->cost_ns = each * (double)g->n + 30;
  ns = LIMN_MIN(LIMN_MAX(s->cost_ns / 16, 2000.0), 50000.0);
  elements = (int64_t)LIMN_MIN(ns / each, 1e15);
  if (g->turn >= 0) {
    int64_t nl = (g->d[g->nd - 1] + g->seg - 1) / g->seg;
    g->blocks = (g->d[g->turn] + GROUP_ROWS - 1) / GROUP_ROWS * nl *
                (g->n / g->d[g->turn] / g->d[g->nd - 1]);
    g->chunk = LIMN_MAX(elements / (GROUP_ROWS * g->seg), 1);
    s->ntiles = (g->blocks + g->chunk - 1) / g->chunk;
  } else {
    g->chunk = LIMN_MAX((elements + g->tile - 1) / g->tile, 1) * g->tile;
    s->ntiles = (g->n + g->chunk - 1) / g->chunk;
  }
}

static double group_cost(const group_code *g, int nin, int nout) {
  double each = limn_cpu_prog_cost(g->prog);
  int k;
  for (k = 0; k < nin; k++)
    if (g->in[k].how == ARG_ANY || g->in[k].how == ARG_TURN) each += 0.4;
  for (k = 0; k < nout; k++)
    if (g->out[k].how != ARG_DENSE) each += 0.2;
  return each;
}

static int group_compile(limn_context *c, const limn_step *s,
                         group_code *g) {
  uint8_t in[LIMN_STEP_IN], out[LIMN_STEP_OUT];
  uint32_t ones = 0;
  int k;
  for (k = 0; k < s->nin; k++) {
    in[k] = s->in[k].dtype;
    ones |= (uint32_t)(g->in[k].how == ARG_ONE) << k;
  }
  for (k = 0; k < s->nout; k++) out[k] = s->out[k].dtype;
  return limn_prog_new(c, s->group, in, s->nin, out, s->nout, ones, &g->prog);
}

int limn_cpu_group_prepare(limn_context *c, limn_step *s) {
  limn_view v[LIMN_STEP_IN + LIMN_STEP_OUT];
  size_t args = (size_t)(s->nin + s->nout) * sizeof(group_arg);
  size_t bytes = sizeof(group_code) + args;
  group_code *g;
  int k, n = s->nin + s->nout, rc = 0;
  if (s->nin > LIMN_STEP_IN || s->nout > LIMN_STEP_OUT || !s->nout)
    return limn_fail(c, LIMN_EUNSUPPORTED, "a fused group has %d inputs and "
                     "%d outputs", s->nin, s->nout);
  if (!(g = limn_alloc(c, bytes))) return LIMN_EMEM;
  g->bytes = bytes;
  g->in = (group_arg *)(g + 1);
  g->out = g->in + s->nin;
  group_views(s, v);
  g->nd = v[0].ndim;
  g->n = limn_numel(v[0].ndim, v[0].d);
  for (k = 0; k < g->nd; k++) g->d[k] = v[0].d[k];
  for (k = 0; k < n; k++) {
    const limn_operand *o = k < s->nin ? &s->in[k] : &s->out[k - s->nin];
    group_classify(&g->in[k], &v[k], o->dtype, o->slot);
    if (k >= s->nin && g->in[k].how == ARG_ONE) g->in[k].how = ARG_DENSE;
  }
  LIMN_GO(group_compile(c, s, g));
  g->tile = g->prog->tile;
  if (g->prog->safe) g->tile = LIMN_MIN(g->tile, g->prog->safe->tile);
  group_rows(g);
  group_turns(g, v, s->nin);
  group_fit(g, s->nin, s->nout);
  group_far(g, s->nin, s->nout);
  group_chunks(s, g, group_cost(g, s->nin, s->nout));
  s->code = g;
  s->run = group_step_run;
  return 0;
bail:
  limn_free(c, g, bytes);
  return rc;
}

void limn_cpu_group_discard(limn_context *c, limn_step *s) {
  group_code *g = s->code;
  if (!g) return;
  limn_cpu_prog_free(c, g->prog);
  limn_free(c, g, g->bytes);
  s->code = NULL;
}
