/* Groups of elementwise instructions as programs of tile kernels: running. */
#include "cpu_prog.h"

/* All operands are one element: so is the result, unless it is an output. */
static void prog_run_one(const limn_cpu_prog *p, prog_frame *f,
                         const prog_op *o, int64_t n) {
  void *dst = o->fill ? f->spare : f->p[o->o];
  o->fn[0](dst, f->p[o->a], f->p[o->b], f->p[o->c], LIMN_ELEM_PAD);
  f->one[o->o] = !o->fill;
  if (o->fill) p->k->copy[o->fill - 1][1](f->p[o->o], dst, NULL, NULL, n);
}

/* A pair whose first result is one element, while its third operand is an
 * array: row by row. */
static void prog_run_apart(prog_frame *f, const prog_op *o, int64_t n) {
  bool unary = o->all == 3; /* operands are a and, of the second row, b */
  const void *third = f->p[unary ? o->b : o->c];
  o->x[0](f->spare, f->p[o->a], f->p[o->b], NULL, LIMN_ELEM_PAD);
  if (o->right)
    o->y[2](f->p[o->o], third, f->spare, NULL, n);
  else
    o->y[1](f->p[o->o], f->spare, third, NULL, n);
}

static void prog_run_gen(prog_frame *f, const prog_op *o, int64_t n,
                         int64_t first) {
  const limn_draw *d = &f->draw[o->arg];
  limn_elem_gen g = {d->seed, d->draw, first};
  o->fn[0](f->p[o->o], f->p[o->a], f->p[o->b], &g, n);
  f->one[o->o] = 0;
}

static inline void prog_exec(const limn_cpu_prog *p, prog_frame *f,
                             const prog_op *o, int count, int64_t n,
                             int64_t first) {
  const prog_op *end = o + count;
  for (; o < end; o++) {
    int form = f->one[o->a] | f->one[o->b] << 1 | f->one[o->c] << 2;
    if (o->gen) {
      prog_run_gen(f, o, n, first);
    } else if (form == o->all) {
      prog_run_one(p, f, o, n);
    } else {
      f->one[o->o] = 0;
      if (o->fn[form])
        o->fn[form](f->p[o->o], f->p[o->a], f->p[o->b], f->p[o->c], n);
      else
        prog_run_apart(f, o, n);
    }
  }
}

#define PROG_SPLAT(T)                                                    \
  {                                                                      \
    T v;                                                                 \
    memcpy(&v, src, sizeof v);                                           \
    for (i = 0; i < LIMN_ELEM_PAD; i++)                                  \
      memcpy(d + i * sizeof v, &v, sizeof v);                            \
    break;                                                               \
  }
static void prog_splat(void *dst, const void *src, int log2) {
  char *d = dst;
  size_t i;
  switch (log2) {
    case 0: PROG_SPLAT(uint8_t)
    case 1: PROG_SPLAT(uint16_t)
    case 2: PROG_SPLAT(uint32_t)
    default: PROG_SPLAT(uint64_t)
  }
}

/* A number operand in the computing type of its dtype, rounded to the dtype. */
static void prog_number(int dtype, const limn_imm *imm, void *out) {
  char narrow[8];
  switch (dtype) {
    case LIMN_F64: memcpy(out, &imm->f, 8); return;
    case LIMN_F32: limn_store_real(LIMN_F32, out, imm->f); return;
    case LIMN_F16: case LIMN_BF16:
      limn_store_real(dtype, narrow, imm->f);
      limn_store_real(LIMN_F32, out, limn_load_real(dtype, narrow));
      return;
    case LIMN_I64: memcpy(out, &imm->i, 8); return;
    case LIMN_BOOL: *(uint8_t *)out = imm->i != 0 || imm->f != 0; return;
    case LIMN_I32: /* beyond its range: the nearest */
      limn_store_real(LIMN_I32, out, (double)imm->i);
      return;
    default: /* ints wrap, reals are kept to the range */
      if ((double)imm->i == imm->f)
        limn_store_int(dtype, narrow, imm->i);
      else
        limn_store_real(dtype, narrow, imm->f);
      limn_store_int(LIMN_I32, out, limn_load_int(dtype, narrow));
  }
}

void limn_prog_begin(const limn_cpu_prog *p, const limn_bind *b,
                     prog_frame *f) {
  int i;
  f->p[0] = NULL;
  f->one[0] = 0;
  f->draw = b->draw;
  for (i = 1 + p->nin + p->nout; i < p->nloc; i++)
    f->p[i] = f->scratch + p->at[i];
  for (i = 0; i < p->nimm; i++) {
    const prog_imm *m = &p->imm[i];
    char value[8];
    prog_number(m->dtype, &b->imm[m->arg], value);
    prog_splat(f->p[m->loc], value,
               prog_log2(limn_dtype_size(limn_dtype_compute(m->dtype))));
    f->one[m->loc] = 1;
  }
  if (p->npre) prog_exec(p, f, p->op, p->npre, LIMN_ELEM_PAD, 0);
}

void limn_prog_one(const limn_cpu_prog *p, prog_frame *f, int k,
                   const void *src) {
  prog_splat(f->pad[k], src, p->in_size[k]);
  f->p[1 + k] = f->pad[k];
  f->one[1 + k] = 1;
}

/* n elements, then the last one repeated up to LIMN_ELEM_PAD. */
static void prog_pad(char *d, const char *s, size_t n, int log2) {
  size_t i;
  switch (log2) {
    case 0:
      for (i = 0; i < LIMN_ELEM_PAD; i++) d[i] = s[i < n ? i : n - 1];
      break;
    case 1:
      for (i = 0; i < LIMN_ELEM_PAD; i++)
        memcpy(d + 2 * i, s + 2 * (i < n ? i : n - 1), 2);
      break;
    case 2:
      for (i = 0; i < LIMN_ELEM_PAD; i++)
        memcpy(d + 4 * i, s + 4 * (i < n ? i : n - 1), 4);
      break;
    default:
      for (i = 0; i < LIMN_ELEM_PAD; i++)
        memcpy(d + 8 * i, s + 8 * (i < n ? i : n - 1), 8);
  }
}

static void prog_unpad(char *d, const char *s, size_t n, int log2) {
  size_t i;
  if (log2 == 2)
    for (i = 0; i < n; i++) memcpy(d + 4 * i, s + 4 * i, 4);
  else
    memcpy(d, s, n << log2);
}

/* n < LIMN_ELEM_PAD: inputs move to padded copies (the last element repeated,
 * so that no kernel meets strange values), outputs come back from them. */
static void prog_tail(const limn_cpu_prog *p, prog_frame *f, size_t n,
                      int64_t first) {
  void *out[LIMN_STEP_OUT];
  int k;
  for (k = 0; k < p->nin; k++) {
    if (f->one[1 + k]) continue;
    prog_pad(f->pad[k], f->p[1 + k], n, p->in_size[k]);
    f->p[1 + k] = f->pad[k];
  }
  for (k = 0; k < p->nout; k++) {
    out[k] = f->p[1 + p->nin + k];
    f->p[1 + p->nin + k] = f->pad[LIMN_STEP_IN + k];
  }
  prog_exec(p, f, p->op + p->npre, p->nop, LIMN_ELEM_PAD, first);
  for (k = 0; k < p->nout; k++)
    prog_unpad(out[k], f->pad[LIMN_STEP_IN + k], n, p->out_size[k]);
}

void limn_prog_tile(const limn_cpu_prog *p, prog_frame *f, int64_t n,
                    int64_t first) {
  if (n % LIMN_ELEM_PAD)
    prog_tail(p, f, (size_t)n, first);
  else
    prog_exec(p, f, p->op + p->npre, p->nop, n, first);
}

/* -- Runs over pointers and strides -- */

static bool prog_overlap(const char *a, int64_t na, const char *b,
                         int64_t nb) {
  return (uintptr_t)a < (uintptr_t)b + (uint64_t)nb &&
         (uintptr_t)b < (uintptr_t)a + (uint64_t)na;
}

/* Whether an output is memory that is still to be read when it is written. */
static bool prog_aliased(const limn_cpu_prog *p, const void *const *in,
                         const int64_t *stride, void *const *out, int64_t n) {
  int k, i;
  for (k = 0; k < p->nout; k++) {
    for (i = 0; i < p->nin; i++) {
      int64_t size = (int64_t)1 << p->in_size[i];
      int64_t span = (n - 1) * stride[i] * size;
      const char *lo = (const char *)in[i] + (span < 0 ? span : 0);
      if (p->late[k] >> i & 1 &&
          prog_overlap(out[k], n << p->out_size[k], lo,
                       (span < 0 ? -span : span) + size))
        return true;
    }
  }
  return false;
}

/* Set the inputs of the tile at `at`; strided ones are gathered. */
static void prog_inputs(const limn_cpu_prog *p, prog_frame *f,
                        const void *const *in, const int64_t *stride,
                        char *buffer, int64_t tile, int64_t at, int64_t m) {
  int k;
  for (k = 0; k < p->nin; k++) {
    int lg = p->in_size[k];
    const char *src = (const char *)in[k] + at * stride[k] * (1 << lg);
    if (!stride[k]) continue;
    f->one[1 + k] = 0;
    f->p[1 + k] = (void *)(uintptr_t)src; /* only ever read */
    if (stride[k] == 1) continue;
    p->k->gather[lg](buffer, src, 1, 0, m, stride[k]);
    f->p[1 + k] = buffer;
    buffer += tile << lg;
  }
}

void limn_cpu_prog_run(const limn_cpu_prog *p, const limn_bind *b,
                       const void *const *in, const int64_t *stride,
                       void *const *out, int64_t n, int64_t first) {
  _Alignas(64) char buffer[16384]; /* strided inputs */
  prog_frame f;
  int64_t tile = p->tile, at, m, each = 0;
  int k;
  if (n <= 0) return;
  if (p->safe && prog_aliased(p, in, stride, out, n)) p = p->safe;
  for (k = 0; k < p->nin; k++) {
    if (!stride[k]) limn_prog_one(p, &f, k, in[k]);
    if (stride[k] && stride[k] != 1) each += 1 << p->in_size[k];
  }
  while (each * tile > (int64_t)sizeof buffer) tile /= 2;
  tile = LIMN_MAX(tile & -LIMN_ELEM_PAD, LIMN_ELEM_PAD);
  limn_prog_begin(p, b, &f);
  for (at = 0; at < n; at += m) {
    m = LIMN_MIN(tile, n - at);
    if (m > LIMN_ELEM_PAD) m &= -LIMN_ELEM_PAD;
    prog_inputs(p, &f, in, stride, buffer, tile, at, m);
    for (k = 0; k < p->nout; k++)
      f.p[1 + p->nin + k] = (char *)out[k] + (at << p->out_size[k]);
    limn_prog_tile(p, &f, m, first + at);
  }
}

/* Rough nanoseconds per element of a row in float32, AVX-512. */
double limn_prog_row_cost(int op) {
  switch (op) {
    case OP_exp: case OP_exp2: case OP_log2: case OP_log: case OP_sqrt:
    case OP_rsqrt: case OP_div: case OP_reciprocal: return 0.15;
    case OP_sigmoid: case OP_silu: case OP_expm1: case OP_log1p:
    case OP_log10: case OP_sin: case OP_cos: case OP_erf: case OP_tanh:
    case OP_gelu: case OP_elu: case OP_selu: case OP_atan: return 0.3;
    case OP_pow: case OP_atan2: case OP_tan: case OP_asin: case OP_acos:
    case OP_sinh: case OP_cosh: case OP_asinh: case OP_acosh: case OP_atanh:
    case OP_softplus: case OP_logsigmoid: case OP_gelu_tanh:
    case OP_xlogy: return 0.8;
    case OP_mish: case OP_floor_div: case OP_remainder:
    case OP_logaddexp: return 1;
    case OP_fmod: case OP_hypot: case OP_erfinv: return 5;
    case OP_lgamma: case OP_digamma: case OP_polygamma: return 30;
    case OP_rand: case OP_rand_bits: return 1;
    case OP_randn: case OP_randint: return 2;
    default: return 0.04;
  }
}

double limn_cpu_prog_cost(const limn_cpu_prog *p) { return p->cost; }
