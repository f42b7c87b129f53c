/* From a step to the launches of a GPU: which kernel, its numbers, how many
 * work-items. Kernels of one text are compiled together, so that choosing
 * between them by size compiles nothing. */
#include "gpu_job.h"

static void step_restart(gpu_job *j) {
  limn_str_free(&j->src);
  limn_str_init(&j->src, j->c);
}

static int64_t step_numel(const limn_operand *o) {
  return limn_numel(o->v.ndim, o->v.d);
}

/* -- Groups and reductions ------------------------------------------------- */

static int step_group(gpu_job *j) {
  limn_gpu_launch *l;
  int64_t n = step_numel(&j->s->out[0]);
  int width;
  if (n == 0) return 0;
  LIMN_TRY(step_launch(j, &l));
  LIMN_TRY(limn_codegen_group(j->c, j->s, j->g->vectors, &width, &j->src,
                              &l->args));
  LIMN_TRY(step_kernel(j, l, "k"));
  step_items(l, LIMN_MIN(j->g->max_local, j->g->cpu ? 1024 : 256),
             (n + width - 1) / width);
  return 0;
}

static limn_gpu_reduce step_reduction(const limn_gpu *g, const limn_step *s) {
  const limn_operand *in = &s->in[0];
  limn_gpu_reduce r = {1, 1, 1, 0, 1, false, g->cpu};
  int64_t groups, most, last;
  r.nout = step_numel(&s->out[0]);
  r.nred = limn_numel(in->v.ndim - s->nkeep, in->v.d + s->nkeep);
  last = in->v.ndim > s->nkeep ? in->v.s[in->v.ndim - 1] : 0;
  r.apart = last != 1;
  r.lanes = limn_gpu_lanes(g, r.nout, r.nred, !r.apart);
  groups = (int64_t)limn_gpu_line_groups(g, r.nout, r.lanes);
  /* Too few groups for the device, and long lines: split those. */
  most = LIMN_MIN(r.nred / ((int64_t)r.lanes * 64), 1024);
  if ((g->cpu || r.lanes == (int)g->local) && groups < g->units && most > 1)
    r.splits = LIMN_MIN(most, (g->units + groups - 1) / groups);
  r.chunk = (r.nred + r.splits - 1) / r.splits;
  return r;
}

static int step_reduce(gpu_job *j) {
  const limn_step *s = j->s;
  limn_gpu_reduce r;
  limn_gpu_launch *l;
  limn_gpu_args second = {.c = j->c, .bytes = j->g->arg_bytes};
  int rc;
  if (!s->nin)
    return limn_fail(j->c, LIMN_EUNSUPPORTED, "a reduction without input");
  r = step_reduction(j->g, s);
  if (r.nout == 0) return 0;
  LIMN_GO(step_launch(j, &l));
  LIMN_GO(limn_codegen_reduce(j->c, s, (int)j->g->local, &r, &j->src, &l->args,
                              &second));
  LIMN_GO(step_kernel(j, l, "k"));
  l->groups[0] = limn_gpu_line_groups(j->g, r.nout, r.lanes);
  l->groups[1] = (size_t)r.splits;
  if (r.splits > 1) {
    int acc = limn_codegen_acc(s);
    size_t size = acc == LIMN_BOOL ? 4 : (size_t)limn_dtype_size(acc);
    j->code->temp[0] = (size_t)(r.splits * r.nout) * size;
    LIMN_GO(step_launch(j, &l));
    l->args = second;
    memset(&second, 0, sizeof second);
    second.c = j->c;
    LIMN_GO(step_kernel(j, l, "k2"));
    step_items(l, j->g->local, r.nout);
  }
bail:
  limn_gpu_args_free(&second);
  return rc;
}

/* -- Products -------------------------------------------------------------- */

enum { STEP_ROWS = 6, STEP_GEMM_NUMS = 35 }; /* of gemm_cpu.k */

typedef struct {
  int64_t m, n, k, batch, am, ak, bk, bn;
  limn_gpu_dims d; /* batch dims of a and b */
} step_product;

static void step_product_read(const limn_step *s, step_product *p) {
  const limn_view *a = &s->in[0].v, *b = &s->in[1].v;
  const limn_operand *v[2] = {&s->in[0], &s->in[1]};
  int nd = a->ndim, i;
  p->m = a->d[nd - 2], p->k = a->d[nd - 1], p->n = b->d[nd - 1];
  p->am = a->s[nd - 2], p->ak = a->s[nd - 1];
  p->bk = b->s[nd - 2], p->bn = b->s[nd - 1];
  limn_gpu_collapse(&p->d, v, 2, 0, nd - 2);
  for (p->batch = 1, i = 0; i < p->d.nd; i++) p->batch *= p->d.d[i];
}

static int step_product_launch(gpu_job *j, const step_product *p,
                               limn_gpu_launch **out) {
  const limn_step *s = j->s;
  limn_gpu_launch *l;
  limn_gpu_args *a;
  int i, k;
  LIMN_TRY(step_launch(j, &l));
  a = &l->args;
  for (i = -1; i < 3; i++) /* without a bias any pointer stands in */
    step_slot(l, i < 0 ? &s->out[0] : &s->in[i == 2 && !s->bias ? 0 : i]);
  limn_gpu_num(a, p->m), limn_gpu_num(a, p->n), limn_gpu_num(a, p->k);
  limn_gpu_num(a, p->am), limn_gpu_num(a, p->ak);
  limn_gpu_num(a, p->bk), limn_gpu_num(a, p->bn);
  step_offset(l, &s->out[0]);
  step_offset(l, &s->in[0]);
  step_offset(l, &s->in[1]);
  limn_gpu_num(a, s->bias);
  if (s->bias)
    step_offset(l, &s->in[2]);
  else
    limn_gpu_num(a, 0);
  limn_gpu_num(a, p->d.nd);
  for (k = 0; k < 3; k++) /* sizes, strides of a, of b; innermost first */
    for (i = 0; i < 6; i++) {
      int at = p->d.nd - 1 - i;
      limn_gpu_num(a, at < 0   ? k == 0
                      : k == 0 ? p->d.d[at]
                               : p->d.s[k - 1][at]);
    }
  *out = l;
  return a->rc;
}

/* Two numbers that differ by kernel, then zeros up to what all declare. */
static void step_product_end(limn_gpu_launch *l, int64_t x, int64_t y,
                             int64_t z, int64_t w) {
  limn_gpu_num(&l->args, x), limn_gpu_num(&l->args, y);
  limn_gpu_num(&l->args, z), limn_gpu_num(&l->args, w);
}

/* Few outputs, or few rows: lanes share outputs instead of tiles. */
static int step_product_gpu(gpu_job *j, const step_product *p) {
  limn_gpu *g = j->g;
  limn_gpu_launch *l;
  int64_t groups;
  bool dots = p->m < 8 || p->n < 8 || g->max_local < 256;
  LIMN_TRY(step_text(j, "gemm", STEP_GEMM_NUMS));
  LIMN_TRY(step_product_launch(j, p, &l));
  if (dots) {
    bool apart = p->bn == 1 && p->n > 1;
    int lanes = limn_gpu_lanes(g, p->m * p->n * p->batch, p->k, !apart);
    groups = (int64_t)limn_gpu_line_groups(g, p->m * p->n, lanes);
    step_product_end(l, lanes, apart, groups, 0);
    l->groups[0] = (size_t)(groups * p->batch);
    return step_kernel(j, l, "gemm_dot");
  }
  groups = (p->n + 63) / 64 * ((p->m + 63) / 64);
  step_product_end(l, (p->n + 63) / 64, 0, groups, 0);
  l->local = 256;
  l->groups[0] = (size_t)(groups * p->batch);
  return step_kernel(j, l, "gemm_tile");
}

static int step_product_cpu(gpu_job *j, const step_product *p) {
  limn_gpu *g = j->g;
  limn_gpu_launch *l;
  int acc = limn_dtype_compute(j->s->in[0].dtype);
  int64_t vw = limn_dtype_size(acc) == 8 ? 8 : 16, wide = 2 * vw;
  int64_t panels = (p->n + wide - 1) / wide, packed = panels * wide * p->k;
  int64_t rows = (p->m + STEP_ROWS - 1) / STEP_ROWS, items;
  LIMN_TRY(step_text(j, "gemm_cpu", STEP_GEMM_NUMS));
  if (p->m < STEP_ROWS || p->n < vw) {
    LIMN_TRY(step_product_launch(j, p, &l));
    panels = (p->n + vw - 1) / vw;
    items = panels * p->m * p->batch;
    step_product_end(l, panels, 0, 0, items);
    step_items(l, 4, items);
    return step_kernel(j, l, "gemm_thin");
  }
  j->code->temp[0] = (size_t)(packed * p->batch) * (size_t)limn_dtype_size(acc);
  LIMN_TRY(step_product_launch(j, p, &l));
  limn_gpu_ptr(&l->args, LIMN_GPU_TEMP, 0);
  items = panels * p->k * p->batch;
  step_product_end(l, panels, rows, packed, items);
  step_items(l, g->local, items);
  LIMN_TRY(step_kernel(j, l, "gemm_pack"));
  LIMN_TRY(step_product_launch(j, p, &l));
  limn_gpu_ptr(&l->args, LIMN_GPU_TEMP, 0);
  items = panels * rows * p->batch;
  step_product_end(l, panels, rows, packed, items);
  step_items(l, 4, items);
  return step_kernel(j, l, "gemm_panel");
}

/* A leading dim must reach over a row; with one row it is of no account. */
static bool step_leading(int64_t *ld, int64_t width, int64_t rows) {
  if (rows <= 1) *ld = LIMN_MAX(*ld, width);
  return *ld >= width;
}

/* For the vendor's library: one batch dim at most, real numbers. */
static bool step_product_blas(const gpu_job *j, const step_product *p,
                              limn_gpu_call *call) {
  const limn_gpu_driver *drv = j->g->drv;
  limn_gpu_gemm *m = &call->gemm;
  int dtype = j->s->in[0].dtype;
  if (!drv->gemm_worth || p->d.nd > 1 || !limn_dtype_float(dtype) || p->k == 0)
    return false;
  *m = (limn_gpu_gemm){.dtype = dtype,
                       .m = p->m,
                       .n = p->n,
                       .k = p->k,
                       .batch = p->batch,
                       .lda = p->am,
                       .ldb = p->bk,
                       .bias = j->s->bias,
                       .tf32 = j->c->tf32};
  if (p->ak != 1 && p->k > 1) m->ta = true, m->lda = p->ak;
  if (p->bn != 1 && p->n > 1) m->tb = true, m->ldb = p->bn;
  if (!step_leading(&m->lda, m->ta ? m->m : m->k, m->ta ? m->k : m->m) ||
      !step_leading(&m->ldb, m->tb ? m->k : m->n, m->tb ? m->n : m->k))
    return false;
  if (p->d.nd) m->sa = p->d.s[0][0], m->sb = p->d.s[1][0];
  return drv->gemm_worth(j->g, call);
}

static int64_t step_extent(const limn_view *v) {
  int64_t n = 1;
  int i;
  for (i = 0; i < v->ndim; i++) {
    if (v->d[i] == 0) return 0;
    n += (v->d[i] - 1) * v->s[i];
  }
  return n;
}

int limn_gpu_library(gpu_job *j, const limn_gpu_call *call,
                     const limn_operand *const *operand, int n) {
  limn_gpu_launch *l = NULL;
  int i, rc = step_launch(j, &l);
  if (rc == 0) l->call = limn_alloc(j->c, sizeof *l->call);
  if (rc < 0 || !l->call) {
    if (call->plan) call->end(j->g, call);
    return rc < 0 ? rc : LIMN_EMEM;
  }
  *l->call = *call;
  l->call->dtype = operand[0]->dtype;
  l->call->n = n;
  for (i = 0; i < n; i++) {
    l->call->extent[i] = step_extent(&operand[i]->v);
    step_slot(l, operand[i]);
  }
  for (i = 0; i < n; i++) step_offset(l, operand[i]);
  return l->args.rc;
}

static void step_call_free(limn_device *d, limn_gpu_call *call) {
  limn_gpu_still_free(d, call);
  if (call->plan) call->end(d->impl, call);
  limn_free(d->c, call, sizeof *call);
}

static int step_product_library(gpu_job *j, const limn_gpu_call *call) {
  const limn_step *s = j->s;
  const limn_operand *o[LIMN_GPU_OPERANDS] = {&s->out[0], &s->in[0],
                                              &s->in[1]};
  if (call->gemm.bias) o[3] = &s->in[2];
  return limn_gpu_library(j, call, o, 3 + call->gemm.bias);
}

/* A group in place over the product: input 0 is the output. */
static int step_product_group(gpu_job *j, limn_group *group, limn_operand *in,
                              int nin) {
  limn_step s = {0};
  const limn_step *old = j->s;
  int rc;
  s.kind = LIMN_STEP_GROUP;
  s.nin = (uint8_t)nin;
  s.nout = 1;
  s.in = in;
  s.out = old->out;
  s.group = group;
  step_restart(j);
  j->s = &s;
  rc = step_group(j);
  j->s = old;
  return rc;
}

/* The bias, where the library made the product: a vector broadcast. */
static int step_product_bias(gpu_job *j) {
  uint8_t dtype = j->s->out[0].dtype;
  uint8_t compute = (uint8_t)limn_dtype_compute(dtype);
  limn_instr code[4] = {{LIMN_I_LOAD, dtype, compute, 0, 0, 0, 0},
                        {LIMN_I_LOAD, dtype, compute, 0, 0, 0, 1},
                        {OP_add, dtype, compute, 0, 1, 0, 0},
                        {LIMN_I_STORE, dtype, compute, 2, 0, 0, 0}};
  limn_group group = {4, code};
  limn_operand in[2] = {j->s->out[0], j->s->in[2]};
  int nd = in[0].v.ndim, i;
  in[1].v = in[0].v;
  in[1].v.offset = j->s->in[2].v.offset;
  for (i = 0; i < nd; i++) in[1].v.s[i] = i == nd - 1;
  return step_product_group(j, &group, in, 2);
}

/* LOADs of an epilogue name the step's inputs: 0 the product, the rest from 3
 * on; here those follow the product directly. */
static int step_epilogue(gpu_job *j) {
  const limn_step *s = j->s;
  limn_operand in[LIMN_STEP_IN];
  limn_group group = {s->group->ncode, NULL};
  size_t size = (size_t)group.ncode * sizeof *group.code;
  int i, nin = 1, rc;
  in[0] = s->out[0];
  for (i = 3; i < s->nin; i++) in[nin++] = s->in[i];
  group.code = limn_alloc(j->c, size);
  if (!group.code) return LIMN_EMEM;
  memcpy(group.code, s->group->code, size);
  for (i = 0; i < group.ncode; i++)
    if (group.code[i].op == LIMN_I_LOAD && group.code[i].arg)
      group.code[i].arg = (uint16_t)(group.code[i].arg - 2);
  rc = step_product_group(j, &group, in, nin);
  limn_free(j->c, group.code, size);
  return rc;
}

static int step_matmul(gpu_job *j) {
  step_product p;
  limn_gpu_call call = {0};
  step_product_read(j->s, &p);
  if (p.m * p.n * p.batch == 0) return 0;
  if (step_product_blas(j, &p, &call)) {
    LIMN_TRY(step_product_library(j, &call));
    if (j->s->bias && !call.gemm.bias) LIMN_TRY(step_product_bias(j));
  } else if (j->g->cpu) {
    LIMN_TRY(step_product_cpu(j, &p));
  } else {
    LIMN_TRY(step_product_gpu(j, &p));
  }
  return j->s->group ? step_epilogue(j) : 0;
}

/* -- Positions ------------------------------------------------------------- */

/* What select and gather have in common; inputs are x and index. */
static int step_index(gpu_job *j, int64_t total, int64_t n,
                      limn_gpu_launch **out) {
  const limn_step *s = j->s;
  limn_gpu_launch *l;
  LIMN_TRY(step_text(j, "index", 25));
  LIMN_TRY(step_launch(j, &l));
  step_slot(l, &s->out[0]);
  step_slot(l, &s->in[0]);
  step_slot(l, &s->in[1]);
  limn_gpu_ptr(&l->args, LIMN_GPU_FAULT, 0);
  limn_gpu_num(&l->args, total);
  limn_gpu_num(&l->args, n);
  limn_gpu_num(&l->args, s->base);
  limn_gpu_num_patch(&l->args, LIMN_GPU_SITE, 0, 0, s->site);
  limn_gpu_num_patch(&l->args, LIMN_GPU_SERIAL, 0, 0, 0);
  step_offset(l, &s->out[0]);
  step_offset(l, &s->in[0]);
  step_offset(l, &s->in[1]);
  step_items(l, j->g->local, total);
  *out = l;
  return 0;
}

static int step_select(gpu_job *j) {
  const limn_view *o = &j->s->out[0].v;
  limn_gpu_launch *l;
  int64_t total = step_numel(&j->s->out[0]);
  if (total == 0) return 0;
  LIMN_TRY(step_index(j, total, j->s->in[0].v.d[1], &l));
  limn_gpu_num(&l->args, o->d[1]);
  limn_gpu_num(&l->args, o->d[2]);
  while (l->args.nnum < 25 && !l->args.rc) limn_gpu_num(&l->args, 0);
  return step_kernel(j, l, "select_at");
}

/* Eight sizes or strides, missing dims first; `skip` counts as nothing. */
static void step_eight(limn_gpu_launch *l, int nd, const int64_t *v, int skip,
                       int64_t nothing) {
  int i;
  for (i = nd - LIMN_MAXDIM; i < nd; i++)
    limn_gpu_num(&l->args, i < 0 || i == skip ? nothing : v[i]);
}

static int step_gather(gpu_job *j) {
  const limn_step *s = j->s;
  const limn_view *x = &s->in[0].v, *o = &s->out[0].v;
  limn_gpu_launch *l;
  int64_t total = step_numel(&s->out[0]);
  if (total == 0) return 0;
  LIMN_TRY(step_index(j, total, x->ndim ? x->d[s->dim] : 1, &l));
  limn_gpu_num(&l->args, x->ndim ? x->s[s->dim] : 0);
  step_eight(l, o->ndim, o->d, -1, 1);
  step_eight(l, x->ndim, x->s, s->dim, 0);
  return step_kernel(j, l, "gather_at");
}

/* index_add, scatter_add and scatter. Inputs are index and v. */
static int step_add(gpu_job *j) {
  const limn_step *s = j->s;
  const limn_operand *v = &s->in[1], *o = &s->out[0];
  bool each = s->kind == LIMN_STEP_SCATTER_ADD;
  int nd = v->v.ndim, dim = each ? s->dim : 1;
  int64_t total = step_numel(v), m = nd ? v->v.d[dim] : 1, lines, inner;
  bool atomic;
  limn_gpu_launch *l;
  if (total == 0) return 0;
  lines = total / m;
  inner = nd ? limn_numel(nd - dim - 1, v->v.d + dim + 1) : 1;
  LIMN_TRY(step_text(j, "add", 28));
  LIMN_TRY(step_launch(j, &l));
  step_slot(l, o);
  step_slot(l, v);
  step_slot(l, &s->in[0]);
  limn_gpu_ptr(&l->args, LIMN_GPU_FAULT, 0);
  limn_gpu_num(&l->args, lines);
  limn_gpu_num(&l->args, m);
  limn_gpu_num(&l->args, inner);
  limn_gpu_num(&l->args, nd ? o->v.d[dim] : 1);
  limn_gpu_num(&l->args, nd ? o->v.s[dim] : 0);
  limn_gpu_num(&l->args, s->base);
  limn_gpu_num_patch(&l->args, LIMN_GPU_SITE, 0, 0, s->site);
  limn_gpu_num_patch(&l->args, LIMN_GPU_SERIAL, 0, 0, 0);
  step_offset(l, o);
  step_offset(l, v);
  step_offset(l, &s->in[0]);
  limn_gpu_num(&l->args, each);
  step_eight(l, nd, v->v.d, dim, 1);
  step_eight(l, nd, o->v.s, dim, 0);
  /* One order of additions where that was asked for or is fast enough. */
  atomic = limn_codegen_atomic(j->g, v->dtype) && !j->c->deterministic &&
           s->op != OP_scatter && m > 64 &&
           lines < j->g->units * (j->g->cpu ? 1 : 256);
  step_items(l, j->g->cpu ? 8 : j->g->local, atomic ? total : lines);
  return step_kernel(j, l, atomic ? "add_atomic" : "add_lines");
}

/* -- Entries --------------------------------------------------------------- */

static int step_lower(gpu_job *j) {
  switch (j->s->kind) {
  case LIMN_STEP_GROUP:
    return step_group(j);
  case LIMN_STEP_REDUCE:
    return step_reduce(j);
  case LIMN_STEP_MATMUL:
    return step_matmul(j);
  case LIMN_STEP_ARG:
    return limn_gpu_lines(j, "arg", 8);
  case LIMN_STEP_ROW:
    return limn_gpu_lines(j, "row", 7);
  case LIMN_STEP_NORM:
    return limn_gpu_norm(j);
  case LIMN_STEP_CUM:
    return limn_gpu_lines(j, "cum", 9);
  case LIMN_STEP_SELECT:
    return step_select(j);
  case LIMN_STEP_GATHER:
    return step_gather(j);
  case LIMN_STEP_INDEX_ADD:
  case LIMN_STEP_SCATTER_ADD:
    return step_add(j);
  case LIMN_STEP_SORT:
    return limn_gpu_sort(j);
  case LIMN_STEP_CONV:
    LIMN_TRY(limn_gpu_conv(j));
    return j->s->group ? step_epilogue(j) : 0;
  case LIMN_STEP_PRINT:
    return 0;
  }
  return limn_fail(j->c, LIMN_EUNSUPPORTED, "no kernel for a step of kind %d",
                   j->s->kind);
}

static int step_fp64(limn_device *d, const limn_step *s) {
  limn_gpu *g = d->impl;
  if (g->fp64 || !limn_codegen_f64(s)) return 0;
  limn_fail(d->c, LIMN_EUNSUPPORTED, "%s cannot compute in float64", d->name);
  return limn_hint(d->c, LIMN_EUNSUPPORTED,
                   "convert to float32, or run on the cpu");
}

int limn_gpu_prepare(limn_device *d, limn_step *s) {
  gpu_job j = {.g = d->impl, .c = d->c, .s = s};
  int rc;
  if (s->kind == LIMN_STEP_PRINT) return 0;
  LIMN_TRY(step_fp64(d, s));
  j.code = limn_alloc(d->c, sizeof *j.code);
  if (!j.code) return LIMN_EMEM;
  s->code = j.code;
  limn_str_init(&j.src, d->c);
  rc = step_lower(&j);
  limn_str_free(&j.src);
  if (rc < 0) limn_gpu_discard(d, s);
  return rc;
}

void limn_gpu_discard(limn_device *d, limn_step *s) {
  limn_gpu_code *code = s->code;
  limn_gpu_launch *l, *next;
  if (!code) return;
  limn_gpu_forget(d->impl, code);
  for (l = code->first; l; l = next) {
    next = l->next;
    limn_gpu_args_free(&l->args);
    if (l->call) step_call_free(d, l->call);
    limn_free(d->c, l, sizeof *l);
  }
  limn_free(d->c, code, sizeof *code);
  s->code = NULL;
}

bool limn_gpu_supports(limn_device *d, int op, int dtype) {
  limn_gpu *g = d->impl;
  if (dtype == LIMN_F64 && !g->fp64) return false;
  switch (op) {
  case OP_softmax:
  case OP_log_softmax:
  case OP_layer_norm:
  case OP_rms_norm:
  case OP_layer_norm_back:
  case OP_rms_norm_back:
    return limn_dtype_float(dtype);
  case OP_matmul:
  case OP_cumsum:
  case OP_cumprod:
  case OP_cummax:
  case OP_cummin:
  case OP_logcumsumexp:
  case OP_argmax:
  case OP_argmin:
  case OP_index_select:
  case OP_gather:
  case OP_index_add:
  case OP_scatter_add:
  case OP_scatter:
  case OP_argsort:
    return true;
  case OP_conv:
  case OP_conv_transpose:
  case OP_conv_weights:
    return !g->cpu && g->max_local >= 256;
  }
  return false;
}
