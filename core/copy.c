/* Strided copies on the host, with conversion. */
#include <stdlib.h>

#include "tensor.h"

/* A copy of two innermost dims; strides in bytes. */
typedef struct {
  int ddtype, sdtype, size; /* size: of an element, where dtypes agree */
  int64_t n[2], ds[2], ss[2];
} host_tile;

typedef void host_row(const host_tile *t, char *d, const char *s, int64_t n);

static void host_row_dense(const host_tile *t, char *d, const char *s,
                           int64_t n) {
  memcpy(d, s, (size_t)(n * t->size));
}

/* Elements of one size at any strides; memcpy of a constant size is a move. */
#define HOST_ROW(bytes)                                              \
  static void host_row_##bytes(const host_tile *t, char *d,          \
                               const char *s, int64_t n) {           \
    int64_t i, ds = t->ds[1], ss = t->ss[1];                         \
    for (i = 0; i < n; i++) memcpy(d + i * ds, s + i * ss, bytes);   \
  }
HOST_ROW(1)
HOST_ROW(2)
HOST_ROW(4)
HOST_ROW(8)

/* Integers go through int64, the rest through double; both hold every value
 * of the source exactly. */
static void host_row_convert(const host_tile *t, char *d, const char *s,
                             int64_t n) {
  enum { CHUNK = 128 };
  union {
    double real[CHUNK];
    int64_t whole[CHUNK];
  } buf;
  for (; n > 0; n -= CHUNK) {
    int64_t m = LIMN_MIN(n, CHUNK);
    if (limn_dtype_float(t->sdtype)) {
      limn_load_reals(t->sdtype, s, t->ss[1], m, buf.real);
      limn_store_reals(t->ddtype, d, t->ds[1], m, buf.real);
    } else {
      limn_load_ints(t->sdtype, s, t->ss[1], m, buf.whole);
      limn_store_ints(t->ddtype, d, t->ds[1], m, buf.whole);
    }
    d += m * t->ds[1];
    s += m * t->ss[1];
  }
}

static host_row *host_row_for(const host_tile *t) {
  if (t->ddtype != t->sdtype) return host_row_convert;
  if (t->ds[1] == t->size && t->ss[1] == t->size) return host_row_dense;
  switch (t->size) {
    case 1: return host_row_1;
    case 2: return host_row_2;
    case 4: return host_row_4;
    default: return host_row_8;
  }
}

/* Where the source runs along the other dim, square blocks keep the lines of
 * both sides in the cache. */
static void host_copy_tile(const host_tile *t, host_row *row, char *d,
                           const char *s) {
  enum { BLOCK = 16 };
  bool turn = llabs(t->ss[0]) < llabs(t->ss[1]) && t->ss[0] != 0;
  int64_t bi = turn ? BLOCK : t->n[0], bj = turn ? BLOCK : t->n[1];
  int64_t i0, j0, i;
  for (i0 = 0; i0 < t->n[0]; i0 += bi)
    for (j0 = 0; j0 < t->n[1]; j0 += bj)
      for (i = i0; i < LIMN_MIN(i0 + bi, t->n[0]); i++)
        row(t, d + i * t->ds[0] + j0 * t->ds[1],
            s + i * t->ss[0] + j0 * t->ss[1], LIMN_MIN(bj, t->n[1] - j0));
}

/* Dim `from` moves to place `to`; those between move up or down. */
static void host_move_dim(limn_view *v, int from, int to) {
  int64_t d = v->d[from], s = v->s[from];
  int step = from < to ? 1 : -1;
  for (; from != to; from += step) {
    v->d[from] = v->d[from + step];
    v->s[from] = v->s[from + step];
  }
  v->d[to] = d;
  v->s[to] = s;
}

/* The order of dims is free: the one that dst is densest in goes last, so
 * that writes are sequential; then the one that src is densest in goes next
 * to it. Pads to two dims. */
static void host_order(limn_view *d, limn_view *s) {
  limn_view *both[2];
  int i, k;
  both[0] = d;
  both[1] = s;
  limn_view_collapse(both, 2);
  for (i = 1; i < d->ndim; i++) {
    for (k = i; k > 0 && llabs(d->s[k - 1]) < llabs(d->s[i]);) k--;
    host_move_dim(d, i, k);
    host_move_dim(s, i, k);
  }
  limn_view_collapse(both, 2);
  for (i = k = 0; i < d->ndim - 1; i++)
    if (!s->s[k] || (s->s[i] && llabs(s->s[i]) <= llabs(s->s[k]))) k = i;
  for (i = 0; d->ndim > 2 && i < 2; i++)
    host_move_dim(both[i], k, d->ndim - 2);
  for (; d->ndim < 2; d->ndim = ++s->ndim)
    for (i = 0; i < 2; i++) {
      limn_view *v = both[i];
      v->d[v->ndim] = 1;
      v->s[v->ndim] = 0;
      host_move_dim(v, v->ndim, 0);
    }
}

void limn_host_copy(int ddtype, void *dst, const limn_view *dv, int sdtype,
                    const void *src, const limn_view *sv) {
  limn_view d = *dv, s = *sv;
  int64_t dsize = limn_dtype_size(ddtype), ssize = limn_dtype_size(sdtype);
  int64_t at[LIMN_MAXDIM] = {0};
  char *dp = (char *)dst + d.offset * dsize;
  const char *sp = (const char *)src + s.offset * ssize;
  host_tile t = {ddtype, sdtype, (int)ssize, {0}, {0}, {0}};
  host_row *row;
  int i, outer;
  if (limn_numel(d.ndim, d.d) == 0) return;
  host_order(&d, &s);
  outer = d.ndim - 2;
  for (i = 0; i < 2; i++) {
    t.n[i] = d.d[outer + i];
    t.ds[i] = d.s[outer + i] * dsize;
    t.ss[i] = s.s[outer + i] * ssize;
  }
  row = host_row_for(&t);
  for (;;) { /* an odometer over the outer dims */
    host_copy_tile(&t, row, dp, sp);
    for (i = outer - 1; i >= 0; i--) {
      dp += d.s[i] * dsize;
      sp += s.s[i] * ssize;
      if (++at[i] < d.d[i]) break;
      dp -= d.d[i] * d.s[i] * dsize;
      sp -= d.d[i] * s.s[i] * ssize;
      at[i] = 0;
    }
    if (i < 0) return;
  }
}
