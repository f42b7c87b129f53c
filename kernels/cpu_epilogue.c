/* What follows a product on the CPU, element by element, in place and part by
 * part while the product is in cache. */
#include "cpu_kernels.h"

int limn_cpu_epilogue_new(limn_context *c, const limn_step *s,
                          const limn_group *g, limn_cpu_epilogue *e) {
  uint8_t in[LIMN_STEP_IN], out = s->out[0].dtype;
  limn_view *views[LIMN_STEP_IN + 1];
  size_t size = (size_t)g->ncode * sizeof *g->code;
  limn_group own = {g->ncode, limn_alloc(c, size)};
  int rc, i;
  if (!own.code) return LIMN_EMEM;
  memcpy(own.code, g->code, size);
  /* LOADs name the step's inputs: 0 the product, the rest from 3 on. The
   * program has them side by side. */
  for (i = 0; i < own.ncode; i++)
    if (own.code[i].op == LIMN_I_LOAD && own.code[i].arg)
      own.code[i].arg = (uint16_t)(own.code[i].arg - 2);
  e->nextra = LIMN_MAX(s->nin - 3, 0);
  e->out = s->out[0].v;
  views[0] = &e->out;
  in[0] = s->in[0].dtype;
  for (i = 0; i < e->nextra; i++) {
    e->extra[i] = s->in[3 + i].v;
    e->extra[i].offset = 0; /* limn_cpu_at has it */
    views[i + 1] = &e->extra[i];
    in[i + 1] = s->in[3 + i].dtype;
  }
  limn_view_collapse(views, e->nextra + 1);
  rc = limn_cpu_prog_new(c, &own, in, e->nextra + 1, &out, 1, &e->prog);
  limn_free(c, own.code, size);
  return rc;
}

void limn_cpu_epilogue_free(limn_context *c, limn_cpu_epilogue *e) {
  if (e->prog) limn_cpu_prog_free(c, e->prog);
  e->prog = NULL;
}

void limn_cpu_epilogue_run(const limn_cpu_epilogue *e, const limn_step *s,
                           const limn_bind *b, int64_t lo, int64_t hi) {
  const void *in[LIMN_STEP_IN];
  int64_t stride[LIMN_STEP_IN], n;
  char *c = limn_cpu_at(b, &s->out[0]);
  int last = e->out.ndim - 1, i, d;
  for (; lo < hi; lo += n) {
    int64_t rest = lo, at[LIMN_MAXDIM] = {0};
    void *out = c + lo * limn_dtype_size(s->out[0].dtype);
    n = hi - lo;
    for (d = last; d > 0; d--) at[d] = rest % e->out.d[d], rest /= e->out.d[d];
    at[0] = rest;
    if (last >= 0) n = LIMN_MIN(n, e->out.d[last] - at[last]);
    in[0] = out;
    stride[0] = 1;
    for (i = 0; i < e->nextra; i++) {
      const limn_view *v = &e->extra[i];
      int64_t off = 0;
      for (d = 0; d <= last; d++) off += at[d] * v->s[d];
      in[i + 1] = limn_cpu_at(b, &s->in[3 + i]) +
                  off * limn_dtype_size(s->in[3 + i].dtype);
      stride[i + 1] = last >= 0 ? v->s[last] : 0;
    }
    limn_cpu_prog_run(e->prog, b, in, stride, &out, n, lo);
  }
}
