/* Launching prepared steps on a GPU, one by one. */
#include "gpu_launch.h"

/* -- What a launch reads --------------------------------------------------- */

/* The bits in which a kernel reads a number operand of dtype: rounded or
 * wrapped to it, then its computing type. */
static int64_t launch_imm_bits(int dtype, const limn_imm *m) {
  int64_t bits = 0, item = 0;
  float f;
  double v;
  if (!limn_dtype_float(dtype)) {
    if (dtype == LIMN_BOOL) return m->f != 0;
    if (dtype == LIMN_I32) /* beyond its range: the nearest */
      limn_store_real(dtype, &item, (double)m->i);
    else if (dtype == LIMN_I64 || (double)m->i == m->f)
      limn_store_int(dtype, &item, m->i);
    else /* ints wrap, reals are kept to the range */
      limn_store_real(dtype, &item, m->f);
    return limn_load_int(dtype, &item);
  }
  limn_store_real(dtype, &item, m->f);
  v = limn_load_real(dtype, &item);
  f = (float)v;
  if (dtype == LIMN_F64)
    memcpy(&bits, &v, sizeof v);
  else
    memcpy(&bits, &f, sizeof f);
  return bits;
}

/* The launch's numbers with those of this run put in. */
static void launch_patch(const limn_gpu_args *a, const limn_bind *b,
                      int64_t *num) {
  uint32_t i;
  memcpy(num, a->num, a->nnum * sizeof *num);
  for (i = 0; i < a->npatch; i++) {
    const limn_gpu_patch *p = &a->patch[i];
    int64_t *n = &num[p->at];
    switch (p->kind) {
    case LIMN_GPU_OFFSET:
      *n += b->slot[p->arg].off / limn_dtype_size(p->dtype);
      break;
    case LIMN_GPU_IMM:
      *n = launch_imm_bits(p->dtype, &b->imm[p->arg]);
      break;
    case LIMN_GPU_SEED:
      *n = (int64_t)b->draw[p->arg].seed;
      break;
    case LIMN_GPU_DRAW:
      *n = (int64_t)b->draw[p->arg].draw;
      break;
    case LIMN_GPU_SERIAL:
      *n = (int64_t)b->serial;
      break;
    case LIMN_GPU_SITE:
      if (b->site) *n = b->site;
      *n |= (int64_t)(limn_turn_pack(b->turn) << LIMN_GPU_SITE_BITS);
      break;
    }
  }
}

int limn_gpu_launch_read(limn_gpu *g, const limn_gpu_launch *l,
                         const limn_bind *b, void *const temp[2],
                         limn_gpu_run *a) {
  uint32_t i;
  if (l->args.nnum > LIMN_GPU_NUMS)
    return limn_fail(g->c, LIMN_EUNSUPPORTED, "a kernel with %u numbers",
                     l->args.nnum);
  for (i = 0; i < l->args.nmem; i++) {
    const limn_gpu_mem *m = &l->args.mem[i];
    a->mem[i] = m->kind == LIMN_GPU_SLOT   ? b->slot[m->at].mem
                : m->kind == LIMN_GPU_TEMP ? temp[m->at]
                                           : g->fault;
    if (m->kind == LIMN_GPU_FAULT) g->fault_dirty = true;
  }
  launch_patch(&l->args, b, a->num);
  return 0;
}

int limn_gpu_launch_start(limn_gpu *g, const limn_gpu_launch *l,
                          const limn_gpu_run *a) {
  g->c->count.kernels++;
  return l->call ? l->call->run(g, l->call, a->mem, a->num)
                 : g->drv->start(g, l, a->mem, a->num);
}

/* -- One by one ------------------------------------------------------------ */

int limn_gpu_launch_step(limn_device *d, const limn_step *s,
                         const limn_bind *b) {
  limn_gpu *g = d->impl;
  const limn_gpu_code *code = s->code;
  const limn_gpu_launch *l;
  limn_gpu_run a;
  void *temp[2] = {NULL, NULL};
  int rc = 0, i;
  if (!code) return 0;
  LIMN_TRY(limn_gpu_fault_memory(g));
  for (i = 0; i < 2; i++) {
    if (code->temp[i])
      LIMN_GO(limn_gpu_take(g, code->temp[i], &temp[i]));
  }
  for (l = code->first; l; l = l->next) {
    LIMN_GO(limn_gpu_launch_read(g, l, b, temp, &a));
    LIMN_GO(limn_gpu_launch_start(g, l, &a));
  }
bail:
  for (i = 0; i < 2; i++)
    if (temp[i]) limn_gpu_give(g, temp[i], code->temp[i]);
  return rc;
}
