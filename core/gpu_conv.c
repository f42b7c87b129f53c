/* Convolutions on a GPU: the numbers of kernels/conv.k, and which of its tiles
 * suit. */
#include "gpu_job.h"

enum { CONV_NUMS = 21, CONV_DIM_NUMS = 10 }; /* of conv.k; for each dim */
enum { CONV_PARTS = 64 << 20 }; /* bytes that sums in parts may take */

static int64_t conv_size(const limn_operand *o) {
  return limn_numel(o->v.ndim - 2, o->v.d + 2);
}

typedef struct {
  const limn_conv *how;
  const limn_operand *x, *w, *y; /* as conv has them */
  const limn_operand *a, *b, *out;
  bool back, weights; /* conv_transpose, conv_weights */
  int64_t in, outs;   /* channels of a group of x, of y */
  int64_t m, n, k, phases;
  int64_t positions[LIMN_MAXDIM], step[LIMN_MAXDIM];
} conv_form;

static int64_t conv_gcd(int64_t a, int64_t b) {
  while (b) {
    int64_t rest = a % b;
    a = b, b = rest;
  }
  return a;
}

/* Elements by phase: those of one lie `stride` apart. */
static void conv_phases(conv_form *f) {
  int64_t places = 1, elements = 1;
  for (int i = 0; i < f->how->n; i++) {
    int64_t stride = f->how->stride[i], size = f->x->v.d[i + 2];
    f->positions[i] = (size - 1) / stride + 1;
    f->phases *= LIMN_MIN(stride, size);
    elements *= f->positions[i];
    places *= (f->w->v.d[i + 2] - 1) / f->step[i] + 1;
  }
  f->n = f->b->v.d[0] * elements;
  f->k = f->outs * places;
}

static void conv_read(const limn_step *s, conv_form *f) {
  memset(f, 0, sizeof *f);
  f->how = s->conv;
  f->back = s->op == OP_conv_transpose;
  f->weights = s->op == OP_conv_weights;
  f->out = &s->out[0];
  f->b = &s->in[0];
  f->a = &s->in[1];
  f->x = f->back ? f->out : f->b;
  f->y = f->back ? f->b : f->weights ? f->a : f->out;
  f->w = f->weights ? f->out : f->a;
  f->in = f->w->v.d[1];
  f->outs = f->w->v.d[0] / f->how->groups;
  f->m = f->back ? f->in : f->outs;
  f->phases = 1;
  for (int i = 0; i < f->how->n; i++) {
    f->positions[i] = f->y->v.d[i + 2];
    f->step[i] = f->how->stride[i] /
                 conv_gcd(f->how->stride[i], f->how->dilation[i]);
  }
  f->n = f->x->v.d[0] * conv_size(f->y);
  f->k = f->in * conv_size(f->w);
  if (f->weights) {
    int64_t rows = f->n;
    f->n = f->k, f->k = rows;
  }
  if (f->back) conv_phases(f);
}

bool limn_gpu_conv_wide(const limn_step *s) {
  conv_form f;
  double most;
  conv_read(s, &f);
  most = (double)LIMN_MAX(f.n, f.k);
  for (int i = 0; i < 3; i++) {
    const limn_view *v = &(i == 0 ? f.x : i == 1 ? f.w : f.y)->v;
    most = LIMN_MAX(most, (double)limn_numel(v->ndim, v->d));
  }
  for (int i = 0; i < f.how->n; i++) { /* what coordinates are made of */
    double stride = (double)f.how->stride[i];
    double dilation = (double)f.how->dilation[i];
    double reach = ((double)f.positions[i] + 1) * stride +
                   ((double)f.w->v.d[i + 2] + 1) * dilation +
                   (double)f.how->padding[i] + (double)f.x->v.d[i + 2] +
                   (double)f.y->v.d[i + 2];
    most = LIMN_MAX(most, reach);
  }
  return most > INT32_MAX - 4096;
}

/* -- Tiles ----------------------------------------------------------------- */

/* The kernels of conv.k, and what a product takes there: what is loaded counts
 * for many, and each load of a local copy. */
typedef struct {
  const char *name;
  int64_t m, n, deep;
  uint32_t items;
  double cost;
} conv_tile;
static const conv_tile conv_tiles[2][3] = {
    {{"conv_many", 64, 128, 8, 256, 1.8},
     {"conv_few", 16, 128, 8, 128, 2.5},
     {"conv_thin", 4, 128, 8, 128, 6.0}},
    {{"conv_many", 64, 128, 8, 256, 1.8}, /* of conv_weights */
     {"conv_few", 16, 16, 16, 64, 4.0},
     {"conv_thin", 4, 16, 16, 64, 7.5}}};

static int64_t conv_cut(int64_t n, int64_t by) { return (n + by - 1) / by; }

static const conv_tile *conv_choose(const conv_form *f) {
  const conv_tile *best = NULL;
  double least = 0;
  for (int i = 0; i < 3; i++) {
    const conv_tile *t = &conv_tiles[f->weights][i];
    double all = (double)(conv_cut(f->m, t->m) * t->m) *
                 (double)(conv_cut(f->n, t->n) * t->n) * t->cost;
    if (best && all >= least) continue;
    best = t;
    least = all;
  }
  return best;
}

/* Into how many parts the sums go, so that there are groups enough; *chunk: of
 * k, in each. */
static int64_t conv_splits(const limn_gpu *g, const conv_form *f,
                           const conv_tile *t, int64_t groups,
                           int64_t *chunk) {
  int64_t want = g->units * 256 / t->items / LIMN_MAX(groups, 1), splits;
  int64_t size = limn_dtype_size(limn_dtype_compute(f->out->dtype));
  splits = LIMN_MIN(want, f->k / (t->deep * 8));
  splits = LIMN_MIN(splits, CONV_PARTS / (size * limn_numel(f->out->v.ndim,
                                                            f->out->v.d)));
  if (splits < 2) {
    *chunk = f->k;
    return 1;
  }
  *chunk = conv_cut(conv_cut(f->k, splits), t->deep) * t->deep;
  return conv_cut(f->k, *chunk);
}

/* -- Launches -------------------------------------------------------------- */

static void conv_strides(limn_gpu_args *a, const conv_form *f) {
  int64_t x = conv_size(f->x), y = conv_size(f->y), w = conv_size(f->w);
  int64_t ws = f->outs * f->in * w; /* of a group */
  int64_t xr = f->x->v.d[1] * x, yr = f->y->v.d[1] * y;
  int64_t rows[3][9] = {
      {f->in * w, 0, ws, xr, x, f->in * x, y, yr, f->outs * y},
      {w, f->in * w, ws, yr, y, f->outs * y, x, xr, f->in * x},
      {y, yr, f->outs * y, xr, x, f->in * x, f->in * w, 0, ws}};
  for (int i = 0; i < 9; i++)
    limn_gpu_num(a, rows[f->weights ? 2 : f->back][i]);
}

static void conv_dims(limn_gpu_args *a, const conv_form *f) {
  const limn_conv *h = f->how;
  for (int i = 0; i < h->n; i++) {
    const limn_view *b = &f->b->v;
    limn_gpu_num(a, b->d[i + 2]);
    limn_gpu_num(a, b->s[i + 2]);
    limn_gpu_num(a, h->stride[i]);
    limn_gpu_num(a, h->dilation[i]);
    limn_gpu_num(a, h->padding[i]);
    limn_gpu_num(a, f->w->v.d[i + 2]);
    limn_gpu_num(a, f->positions[i]);
    limn_gpu_num(a, f->out->v.d[i + 2]);
    limn_gpu_num(a, f->step[i]);
    limn_gpu_num(a, h->dilation[i] / conv_gcd(h->stride[i], h->dilation[i]));
  }
}

static int conv_launch(gpu_job *j, const conv_form *f, const conv_tile *t,
                       int64_t splits, int64_t chunk, limn_gpu_launch **out) {
  int64_t across = conv_cut(f->n, t->n), tiles = across * conv_cut(f->m, t->m);
  limn_gpu_launch *l;
  limn_gpu_args *a;
  LIMN_TRY(step_launch(j, &l));
  a = &l->args;
  step_slot(l, f->out), step_slot(l, f->a), step_slot(l, f->b);
  if (splits > 1)
    limn_gpu_ptr(a, LIMN_GPU_TEMP, 0);
  else
    step_slot(l, f->out); /* stands in */
  limn_gpu_num(a, f->m), limn_gpu_num(a, f->n);
  limn_gpu_num(a, f->back ? f->outs : f->k);
  limn_gpu_num(a, across), limn_gpu_num(a, tiles);
  limn_gpu_num(a, splits), limn_gpu_num(a, chunk);
  limn_gpu_num(a, f->phases);
  limn_gpu_num(a, limn_numel(f->out->v.ndim, f->out->v.d));
  step_offset(l, f->out), step_offset(l, f->a), step_offset(l, f->b);
  conv_strides(a, f);
  conv_dims(a, f);
  l->local = t->items;
  l->groups[0] = (size_t)(tiles * splits * f->phases * f->how->groups);
  *out = l;
  return a->rc;
}

static int conv_library(gpu_job *j, const limn_gpu_call *call,
                        size_t workspace) {
  const limn_step *s = j->s;
  const limn_operand *o[3] = {&s->out[0], &s->in[0], &s->in[1]};
  LIMN_TRY(limn_gpu_library(j, call, o, 3));
  if (!workspace) return 0;
  j->code->temp[0] = workspace;
  limn_gpu_ptr(&j->code->last->args, LIMN_GPU_TEMP, 0);
  return 0;
}

int limn_gpu_conv(gpu_job *j) {
  const limn_gpu_driver *drv = j->g->drv;
  limn_gpu_call call = {0};
  size_t workspace = 0;
  conv_form f;
  const conv_tile *t;
  limn_gpu_launch *l;
  int64_t total = limn_numel(j->s->out[0].v.ndim, j->s->out[0].v.d);
  int64_t splits, chunk, groups;
  if (total == 0) return 0;
  if (drv->conv_worth && drv->conv_worth(j->g, j->s, &call, &workspace))
    return conv_library(j, &call, workspace);
  conv_read(j->s, &f);
  t = conv_choose(&f);
  groups = conv_cut(f.n, t->n) * conv_cut(f.m, t->m) * f.phases *
           f.how->groups;
  splits = conv_splits(j->g, &f, t, groups, &chunk);
  if (groups * splits > INT32_MAX)
    return limn_fail(j->c, LIMN_EUNSUPPORTED, "a convolution in %lld parts",
                     (long long)(groups * splits));
  LIMN_TRY(step_text(j, "conv", CONV_NUMS + CONV_DIM_NUMS * f.how->n));
  LIMN_TRY(conv_launch(j, &f, t, splits, chunk, &l));
  LIMN_TRY(step_kernel(j, l, t->name));
  if (splits == 1) return 0;
  j->code->temp[0] = (size_t)(splits * total) *
                     (size_t)limn_dtype_size(limn_dtype_compute(
                         f.out->dtype));
  LIMN_TRY(conv_launch(j, &f, t, splits, chunk, &l));
  step_items(l, j->g->local, total);
  return step_kernel(j, l, "conv_sum");
}
