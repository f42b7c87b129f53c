/* Convolutions on the CPU straight from the source, some lines of positions at
 * a time, channel by channel: where each window is read for a few results only,
 * as in depthwise convolutions, so that to lay it out would cost more than it
 * helps. */
#include "cpu_conv.h"

enum {
  RESULTS = 4, /* of a group, at most */
  VECTORS = 8, /* of a run, at most */
  RUNS = 32    /* at a time */
};

bool limn_conv_direct_suits(const conv_plan *k) {
  return k->own && k->o <= RESULTS && !(k->plain && k->G == 1);
}

/* What varies from run to run is kept in scratch. */
typedef struct {
  limn_conv_part *part;
  int64_t *lines, *target, *line, *tap;
} direct_room;

static void direct_split(const conv_plan *k, char *scratch, direct_room *r) {
  r->part = (void *)scratch;
  r->lines = (void *)(r->part + k->taps * VECTORS);
  r->target = r->lines + RUNS;
  r->line = r->target + RUNS;
  r->tap = r->line + RUNS * k->taps;
}

size_t limn_conv_direct_scratch(const conv_plan *k) {
  return (size_t)k->taps * VECTORS * sizeof(limn_conv_part) +
         (size_t)(2 + 2 * k->taps) * RUNS * sizeof(int64_t);
}

/* From n lines that there are to one for each outer tap. */
static void direct_spread(const limn_conv_direct *d, int64_t n, int64_t *line,
                          const int64_t *tap) {
  for (int64_t u = d->outer - 1; u >= 0; u--)
    line[u] = n && tap[n - 1] == u * d->taps ? line[--n] : -1;
}

/* Run r is one more, if it begins and ends where those before do. */
static bool direct_add(const conv_tile *t, const direct_room *room,
                       const conv_span *r, limn_conv_direct *d, int64_t *at) {
  const conv_plan *k = t->k;
  int64_t lanes = k->kernels->lanes, i = d->runs, n = 0;
  int64_t first = r->at[t->g.nd - 1];
  if (i == RUNS || (i && (first != *at || r->len != d->n))) return false;
  for (int64_t v = 0; i == 0 && v < r->len; v += lanes)
    for (int64_t j = 0; j < d->taps; j++)
      room->part[n++] = limn_conv_part_of(&t->g, r, v, lanes, j);
  *at = first;
  d->n = r->len;
  room->lines[i] = limn_conv_lines(&t->g, r, room->line + i * d->outer,
                                   room->tap + i * d->outer);
  if (d->spread) direct_spread(d, room->lines[i], room->line + i * d->outer,
                               room->tap + i * d->outer);
  room->target[i] = limn_conv_target(t, r);
  d->runs++;
  return true;
}

/* Positions [f0, f1) by runs that are alike. */
static void direct_runs(const conv_tile *t, const direct_room *room,
                        limn_conv_direct *d, int64_t f0, int64_t f1,
                        void (*fn)(const limn_conv_direct *d)) {
  int64_t most = VECTORS * t->k->kernels->lanes, at = 0;
  conv_span r;
  limn_conv_seek(&t->g, f0, &r);
  for (; f0 < f1; f0 += r.len) {
    limn_conv_next(&t->g, LIMN_MIN(f1 - f0, most), &r);
    if (direct_add(t, room, &r, d, &at)) continue;
    fn(d);
    d->runs = 0;
    direct_add(t, room, &r, d, &at);
  }
  if (d->runs) fn(d);
}

static void direct_fill(const conv_tile *t, direct_room *room,
                        limn_conv_direct *d) {
  const conv_plan *k = t->k;
  const conv_dim *last = &t->g.d[t->g.nd - 1];
  direct_split(k, t->windows, room);
  *d = (limn_conv_direct){
      .lines = room->lines, .target = room->target, .line = room->line,
      .tap = room->tap, .part = room->part, .taps = last->n,
      .outer = last->n ? t->g.taps / last->n : 0, .step = last->step,
      .groups = t->groups, .channels = k->c, .results = k->o,
      .src = (const void *)t->src, .cstep = k->S, .ostep = k->P};
}

void limn_conv_direct_block(const conv_tile *t, int64_t f0, int64_t f1) {
  const conv_plan *k = t->k;
  direct_room room;
  limn_conv_direct d;
  direct_fill(t, &room, &d);
  d.w = (const void *)t->w;
  d.wstep = t->g.taps, d.wrow = t->wrow;
  d.out = (float *)(void *)t->out + t->group * k->o * k->P;
  d.pstep = t->at.step[t->g.nd - 1];
  direct_runs(t, &room, &d, f0, f1, k->kernels->direct);
}

void limn_conv_direct_sum(const conv_tile *t, const char *y, void *out,
                          int64_t f0, int64_t f1) {
  direct_room room;
  limn_conv_direct d;
  direct_fill(t, &room, &d);
  d.w = (const void *)y;
  d.out = out;
  d.spread = true;
  direct_runs(t, &room, &d, f0, f1, t->k->kernels->sum);
}
