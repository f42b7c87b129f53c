/* Convolutions on the CPU: which way each is computed, and what surrounds its
 * tiles. Weights that a way wants in another form are kept with their cell, by
 * version, else made anew in each run, in memory that all steps share. */
#include "cpu_conv.h"

#include "cpu_isa.h"

extern const limn_conv_kernels limn_conv_base;
#if defined(__x86_64__) && defined(__GNUC__)
extern const limn_conv_kernels limn_conv_avx2, limn_conv_avx512;
#else /* only base is compiled, and limn_cpu_isa says so */
#define limn_conv_avx2 limn_conv_base
#define limn_conv_avx512 limn_conv_base
#endif

const limn_conv_kernels *limn_conv_select(int isa) {
  static const limn_conv_kernels *const by_isa[] = {
      &limn_conv_base, &limn_conv_avx2, &limn_conv_avx512};
  return by_isa[limn_cpu_isa(isa) - 1];
}

/* -- Weights in another form -- */

static limn_cpu_copy conv_copy(const conv_plan *k) {
  return (limn_cpu_copy){CPU_FORMED, &k->head, sizeof k->head};
}

void *limn_conv_shared(const conv_plan *k, const limn_bind *b,
                       const limn_step *s) {
  limn_cpu_copy copy = conv_copy(k);
  void *p = NULL;
  if (k->keeps) p = limn_cpu_kept(&b->slot[s->in[1].slot], &copy);
  return p ? p : limn_cpu_bound(b)->shared;
}

/* -- What surrounds the tiles -- */

typedef struct {
  const conv_plan *k;
  const limn_step *s;
  const limn_bind *b;
  conv_tiles *fn;
} conv_job;

static void conv_job_run(void *arg, int64_t t0, int64_t t1) {
  const conv_job *j = arg;
  j->fn(j->k, j->s, j->b, t0, t1);
}

int limn_cpu_conv_begin(const limn_step *s, const limn_bind *b) {
  const conv_plan *k = s->code;
  const limn_slot *slot = &b->slot[s->in[1].slot];
  limn_cpu_copy copy = conv_copy(k);
  conv_job j = {k, s, b, k->begin};
  if (!k->begin || (k->keeps && limn_cpu_kept(slot, &copy))) return 0;
  if (k->keeps) limn_cpu_keep(b->c, slot, &copy, k->shared);
  return limn_cpu_spread(b->c, k->nbegin, k->begin_ns, conv_job_run, &j);
}

int limn_cpu_conv_end(const limn_step *s, const limn_bind *b) {
  const conv_plan *k = s->code;
  conv_job j = {k, s, b, k->end};
  if (!k->end) return 0;
  return limn_cpu_spread(b->c, k->nend, k->end_ns, conv_job_run, &j);
}

void limn_conv_after(const conv_plan *k, const limn_step *s,
                     const limn_bind *b, int64_t row, int64_t o0, int64_t o1,
                     int64_t p0, int64_t p1) {
  int64_t at = (row * k->O + o0) * k->P, i;
  if (!k->after.prog) return;
  if (p0 == 0 && p1 == k->P) {
    limn_cpu_epilogue_run(&k->after, s, b, at, at + (o1 - o0) * k->P);
    return;
  }
  for (i = o0; i < o1; i++, at += k->P)
    limn_cpu_epilogue_run(&k->after, s, b, at + p0, at + p1);
}

static void conv_run(const limn_step *s, const limn_bind *b, int64_t t0,
                     int64_t t1) {
  const conv_plan *k = s->code;
  if (t0 < t1) k->run(k, s, b, t0, t1);
}

/* -- Preparing -- */

static void conv_sizes(conv_plan *k, const limn_step *s) {
  bool weights = k->op == OP_conv_weights;
  const limn_view *x = &s->in[0].v, *y = weights ? &s->in[1].v : &s->out[0].v;
  k->N = x->d[0], k->C = x->d[1], k->O = y->d[1];
  k->G = s->conv->groups;
  k->c = k->C / k->G, k->o = k->O / k->G;
  k->S = limn_numel(x->ndim - 2, x->d + 2);
  k->P = limn_numel(y->ndim - 2, y->d + 2);
}

static void conv_types(conv_plan *k, const limn_step *s) {
  k->dtype = s->out[0].dtype;
  k->size = limn_dtype_size(k->dtype);
  k->own = k->dtype == LIMN_F32;
  k->type = k->dtype == LIMN_F64 ? CPU_F64
            : limn_dtype_float(k->dtype) ? CPU_F32 : CPU_I64;
  k->wide = k->type == CPU_F32 ? 4 : 8;
}

static void conv_choose(limn_context *c, conv_plan *k, const limn_step *s) {
  if (k->op == OP_conv_weights) {
    limn_conv_weights_prepare(k);
    return;
  }
  if ((c->flags.passes & LIMN_PASS_WINOGRAD) && limn_conv_wino_suits(k, s))
    limn_conv_wino_prepare(k, s);
  else
    limn_conv_product_prepare(k);
  k->keeps = k->begin && (c->flags.passes & LIMN_PASS_PREPACK);
}

static void conv_head_fill(conv_plan *k, const limn_step *s) {
  conv_head *h = &k->head;
  h->form = k->how == CONV_WINOGRAD, h->op = k->op, h->n = s->conv->n;
  h->O = k->O, h->c = k->c, h->G = k->G, h->offset = s->in[1].v.offset;
  for (int i = 0; i < s->conv->n; i++) {
    h->stride[i] = s->conv->stride[i];
    h->padding[i] = s->conv->padding[i];
    h->dilation[i] = s->conv->dilation[i];
  }
  for (int i = 0; i < k->nd; i++)
    h->kernel[i] = k->kernel[i], h->rests[i] = k->rests[i];
}

int limn_cpu_conv_prepare(limn_device *d, limn_step *s) {
  conv_plan *k = limn_alloc(d->c, sizeof *k);
  int rc;
  if (!k) return LIMN_EMEM;
  s->code = k;
  k->gemm = limn_cpu_of(d)->gemm;
  k->loops = limn_cpu_of(d)->loops;
  k->kernels = limn_cpu_of(d)->conv;
  k->op = s->op;
  conv_sizes(k, s);
  conv_types(k, s);
  LIMN_GO(limn_conv_tables(d->c, k, s));
  conv_choose(d->c, k, s);
  conv_head_fill(k, s);
  if (s->group) LIMN_GO(limn_cpu_epilogue_new(d->c, s, s->group, &k->after));
  LIMN_GO(limn_cpu_reserve(d, k->scratch));
  LIMN_GO(limn_cpu_reserve_shared(d, k->shared));
  s->run = conv_run;
  s->ntiles = k->tiles;
  s->cost_ns = k->cost_ns + 100;
  if (s->group) s->cost_ns += (double)(k->N * k->O * k->P) * 0.5;
  return 0;
bail:
  limn_cpu_conv_discard(d, s);
  s->code = NULL;
  return rc;
}

void limn_cpu_conv_discard(limn_device *d, limn_step *s) {
  conv_plan *k = s->code;
  if (!k) return;
  limn_cpu_epilogue_free(d->c, &k->after);
  limn_free(d->c, k->table, k->ntable);
  limn_free(d->c, k, sizeof *k);
}
