/* Matrix products on the CPU: [batch..., M, K] * [batch..., K, N].
 *
 * float32 goes to limn's own kernels (cpu_gemm.h), float64 and very large
 * float32 products to OpenBLAS, halves are converted block by block, and the
 * rest has a plain loop (cpu_matmul_kinds.c). A product is cut into tiles by
 * its shape alone, never along K, so that results do not depend on the number
 * of threads. What is added to a product is added in the kernel's registers;
 * the rest of the epilogue runs over a tile's rows while they are in cache.
 *
 * A right operand that is a cell's value is kept packed with the cell, by its
 * version (cpu_keep.c). */
#include "cpu_matmul.h"

enum {
  ONE = 200000,      /* products up to so many multiplications stay whole */
  ROWS = 256,        /* of a tile */
  COLUMNS = 256,
  ENOUGH = 8         /* tiles that a product is cut into if it can be */
};
static const double matmul_blas = 1e9; /* M*N*K from which OpenBLAS is faster */

/* -- epilogue -- */

static void matmul_epilogue(const matmul_tile *t, const limn_step *s,
                            const limn_bind *b, int64_t batch) {
  const cpu_matmul *k = t->k;
  int64_t row = batch * k->M, m;
  if (t->n0 == 0 && t->n1 == k->N) {
    limn_cpu_epilogue_run(&k->after, s, b, (row + t->m0) * k->N,
                          (row + t->m1) * k->N);
    return;
  }
  for (m = row + t->m0; m < row + t->m1; m++)
    limn_cpu_epilogue_run(&k->after, s, b, m * k->N + t->n0,
                          m * k->N + t->n1);
}

/* -- running -- */

static limn_cpu_copy matmul_copy(const cpu_matmul *k) {
  return (limn_cpu_copy){CPU_PACKED, &k->head, sizeof k->head};
}

/* The packed copy, if it is of this version and this view. */
static const float *matmul_packed(const cpu_matmul *k, const limn_slot *slot) {
  limn_cpu_copy copy = matmul_copy(k);
  return k->keeps ? limn_cpu_kept(slot, &copy) : NULL;
}

static void matmul_product(const matmul_tile *t, limn_cpu *cpu) {
  const cpu_matmul *k = t->k;
  float *scratch = NULL;
  int slot = 0;
  bool takes = k->scratch && !t->packed;
  if (takes) scratch = limn_cpu_take(cpu, &slot);
  limn_matmul_tile(t, scratch);
  if (takes) limn_cpu_give(cpu, slot);
}

static void matmul_operands(const cpu_matmul *k, const limn_step *s,
                            const limn_bind *b, matmul_tile *t) {
  t->k = k;
  t->a = limn_cpu_at(b, &s->in[0]);
  t->b = limn_cpu_at(b, &s->in[1]);
  t->c = limn_cpu_at(b, &s->out[0]);
  t->bias = s->bias ? limn_cpu_at(b, &s->in[2]) : NULL;
  t->add = k->add ? limn_cpu_at(b, &s->in[k->add]) : NULL;
  t->packed = matmul_packed(k, &b->slot[s->in[1].slot]);
}

/* How many tiles from number i of a product on, at most `most`, are as well
 * one: those side by side with a packed operand, which goes by panels. Their
 * results should still be near when the epilogue reads them. */
static int64_t matmul_join(const cpu_matmul *k, const matmul_tile *t, int64_t i,
                           int64_t most) {
  int64_t n = LIMN_MIN(most, k->tn - i % k->tn);
  if (!t->packed) return 1;
  if (!k->after.prog) return n;
  return LIMN_MAX(1, LIMN_MIN(n, ROWS * COLUMNS / (k->mb * k->wb)));
}

static void matmul_run(const limn_step *s, const limn_bind *b, int64_t t0,
                       int64_t t1) {
  const cpu_matmul *k = s->code;
  limn_cpu *cpu = limn_cpu_bound(b);
  int64_t per = k->tm * k->tn, n, d;
  matmul_tile all;
  matmul_operands(k, s, b, &all);
  for (; t0 < t1; t0 += n) {
    int64_t batch = t0 / per, i = t0 % per, rest = batch;
    matmul_tile t = all;
    for (d = k->nb - 1; d >= 0; d--) {
      t.a += rest % k->bd[d] * k->as[d] * k->size;
      t.b += rest % k->bd[d] * k->bs[d] * k->size;
      rest /= k->bd[d];
    }
    t.c += batch * k->M * k->N * k->size;
    if (t.add) t.add += batch * k->M * k->ldadd * k->size;
    t.m0 = i / k->tn * k->mb;
    t.m1 = LIMN_MIN(t.m0 + k->mb, k->M);
    t.n0 = i % k->tn * k->wb;
    n = matmul_join(k, &all, i, t1 - t0);
    t.n1 = LIMN_MIN(t.n0 + n * k->wb, k->N);
    matmul_product(&t, cpu);
    if (k->after.prog) matmul_epilogue(&t, s, b, batch);
  }
}

/* One tile, which small nets are made of. */
static void matmul_run_one(const limn_step *s, const limn_bind *b, int64_t t0,
                           int64_t t1) {
  const cpu_matmul *k = s->code;
  matmul_tile t;
  if (t0 == t1) return;
  matmul_operands(k, s, b, &t);
  t.m0 = t.n0 = 0;
  t.m1 = k->M, t.n1 = k->N;
  if (t.packed) limn_matmul_tile(&t, NULL);
  else matmul_product(&t, limn_cpu_bound(b));
  if (k->after.prog) matmul_epilogue(&t, s, b, 0);
}

/* A new version is packed at once: packed and unpacked products may differ in
 * the last bits, and a run repeated gives the same ones. */
void limn_cpu_matmul_begin(const limn_step *s, const limn_bind *b) {
  cpu_matmul *k = s->code;
  const limn_slot *slot = &b->slot[s->in[1].slot];
  limn_cpu_copy copy = matmul_copy(k);
  float *p;
  if (!k->keeps || limn_cpu_kept(slot, &copy)) return;
  p = limn_cpu_keep(b->c, slot, &copy,
                    (size_t)k->gemm->packed_size(k->K, k->N) * sizeof *p);
  if (p)
    k->gemm->pack(k->K, k->N,
                  (const float *)(const void *)limn_cpu_at(b, &s->in[1]),
                  k->brs, k->bcs, p);
}

/* -- preparing -- */

static void matmul_shape(cpu_matmul *k, const limn_step *s) {
  const limn_view *a = &s->in[0].v, *b = &s->in[1].v, *o = &s->out[0].v;
  int n = o->ndim, i, ad = a->ndim - 2, bd = b->ndim - 2;
  k->M = o->d[n - 2], k->N = o->d[n - 1], k->K = a->d[a->ndim - 1];
  k->ars = a->s[ad], k->acs = a->s[ad + 1];
  k->brs = b->s[bd], k->bcs = b->s[bd + 1];
  for (i = 0; i < n - 2; i++) {
    int64_t as, bs;
    if (o->d[i] == 1) continue;
    as = i - (n - 2 - ad) < 0 ? 0 : a->s[i - (n - 2 - ad)];
    bs = i - (n - 2 - bd) < 0 ? 0 : b->s[i - (n - 2 - bd)];
    k->bd[k->nb] = o->d[i], k->as[k->nb] = as, k->bs[k->nb] = bs;
    k->nb++;
  }
}

/* Batches of rows that share the right operand are more rows of it. */
static void matmul_merge(cpu_matmul *k) {
  while (k->nb && k->bs[k->nb - 1] == 0 &&
         (k->M == 1 || k->as[k->nb - 1] == k->M * k->ars)) {
    k->nb--;
    if (k->M == 1) k->ars = k->as[k->nb];
    k->M *= k->bd[k->nb];
  }
  k->batches = limn_numel(k->nb, k->bd);
}

static int matmul_how(const limn_context *c, const cpu_matmul *k) {
  double work = (double)k->M * (double)k->N * (double)k->K;
  bool blas = limn_matmul_fits_blas(k);
  switch (k->dtype) {
    case LIMN_F32:
      if (blas && (work > matmul_blas || !(c->flags.passes & LIMN_PASS_GEMM)))
        return BY_BLAS;
      return BY_GEMM;
    case LIMN_F64: return blas ? BY_BLAS : BY_LOOP;
    case LIMN_F16: case LIMN_BF16: return BY_HALF;
    default: return BY_LOOP;
  }
}

static int64_t matmul_even(int64_t n, int64_t parts, int64_t unit) {
  int64_t each = (n + parts - 1) / parts;
  return LIMN_MAX((each + unit - 1) / unit * unit, unit);
}

/* Tiles that a product is still short of, of `most`, when each has `have`. */
static int64_t matmul_short(int64_t have, int64_t most) {
  return LIMN_MIN(most, (ENOUGH + have - 1) / have);
}

/* Rows are cut when they are many; columns, in panels, until there are tiles
 * enough for threads: each tile packs its own panels of B. But where it is A
 * that has to be turned, and B is not, rows are cut in the end. One row of A is
 * cut in wide pieces, which the kernel reads B best by. */
static void matmul_cut_tiles(cpu_matmul *k, int64_t most) {
  int64_t unit = k->M == 1 ? COLUMNS : LIMN_GEMM_SPLIT, rows = 1, columns;
  bool turned = k->acs != 1 && k->bcs == 1;
  if (k->M > ROWS + ROWS / 2) rows = (k->M + ROWS - 1) / ROWS;
  columns = (k->N + COLUMNS - 1) / COLUMNS;
  if (turned && k->M >= 2 * k->N)
    rows *= matmul_short(rows * columns * k->batches, most);
  columns = LIMN_MAX(columns, matmul_short(rows * k->batches, most));
  columns = LIMN_MIN(columns, most);
  if (rows > 1) k->mb = matmul_even(k->M, rows, 12);
  k->wb = LIMN_MIN(k->wb, matmul_even(k->N, columns, unit));
}

static void matmul_cut(cpu_matmul *k) {
  double work = (double)k->M * (double)k->N * (double)k->K;
  int64_t most = (int64_t)(work / ONE) + 1;
  k->mb = LIMN_MAX(k->M, 1), k->wb = LIMN_MAX(k->N, 1);
  if (k->how == BY_HALF) {
    k->mb = LIMN_MIN(k->mb, HALF_ROWS);
    k->wb = LIMN_MIN(k->wb, HALF_COLUMNS);
  } else if (most > 1 && k->batches) {
    matmul_cut_tiles(k, most);
  }
  k->tm = (k->M + k->mb - 1) / k->mb;
  k->tn = (k->N + k->wb - 1) / k->wb;
}

/* Whether an instruction reads the product, which is value 0. */
static bool matmul_reads(const limn_instr *i) {
  int n = i->op < LIMN_NOP ? limn_op_get(i->op)->arity
                           : i->op == LIMN_I_CAST || i->op == LIMN_I_STORE;
  return (n > 0 && i->a == 0) || (n > 1 && i->b == 0) || (n > 2 && i->c == 0);
}

/* The only instruction that reads the product, or 0. */
static int matmul_reader(const limn_group *g) {
  int at = 0, i;
  for (i = 1; i < g->ncode; i++) {
    if (!matmul_reads(&g->code[i])) continue;
    if (at) return 0;
    at = i;
  }
  return at;
}

/* Where the product is but added to an input, it can do that by itself: the sum
 * becomes what the program loads as the product. */
static void matmul_take_sum(cpu_matmul *k, const limn_step *s, limn_group *g) {
  int at = matmul_reader(g);
  limn_instr *sum = &g->code[at];
  const limn_instr *x;
  limn_shape two = {2, {k->batches * k->M, k->N}};
  limn_view v;
  if (k->how != BY_GEMM || !at || sum->op != OP_add || sum->dtype != LIMN_F32)
    return;
  x = &g->code[sum->a ? sum->a : sum->b];
  if (x->op != LIMN_I_LOAD || x->arg < 3) return;
  if (s->in[x->arg].dtype != LIMN_F32 ||
      !limn_view_reshape(&s->in[x->arg].v, &two, &v) || v.s[1] != 1)
    return;
  k->add = x->arg;
  k->ldadd = v.s[0];
  *sum = g->code[0];
}

/* Whether all that is left is to store the product. */
static bool matmul_done(const limn_group *g) {
  const limn_instr *last = &g->code[g->ncode - 1], *x = &g->code[last->a];
  return x->op == LIMN_I_LOAD && x->arg == 0;
}

static int matmul_epilogue_prepare(limn_context *c, cpu_matmul *k,
                                   const limn_step *s) {
  limn_group own = {0, NULL};
  size_t size;
  int rc = 0;
  if (!s->group) return 0;
  own.ncode = s->group->ncode;
  size = (size_t)own.ncode * sizeof *own.code;
  own.code = limn_alloc(c, size);
  if (!own.code) return LIMN_EMEM;
  memcpy(own.code, s->group->code, size);
  matmul_take_sum(k, s, &own);
  if (!matmul_done(&own)) rc = limn_cpu_epilogue_new(c, s, &own, &k->after);
  limn_free(c, own.code, size);
  return rc;
}

static int matmul_scratch(limn_device *d, cpu_matmul *k) {
  k->scratch = (size_t)limn_matmul_scratch(k) * sizeof(float);
  return limn_cpu_reserve(d, k->scratch);
}

static double matmul_cost(const cpu_matmul *k) {
  static const double gmacs[] = {50, 25, 40, 1};
  double mn = (double)k->batches * (double)k->M * (double)k->N;
  double cost = mn * (double)k->K / gmacs[k->how] + 10;
  if (k->M == 1) cost *= 2;
  return cost + (k->after.prog ? mn * 0.5 : 0);
}

int limn_cpu_matmul_prepare(limn_device *d, limn_step *s) {
  cpu_matmul *k;
  int rc, i;
  if (s->in[0].dtype != s->out[0].dtype || s->in[1].dtype != s->out[0].dtype)
    return limn_fail(d->c, LIMN_EDTYPE, "a product of %s and %s into %s",
                     limn_dtype_name(s->in[0].dtype),
                     limn_dtype_name(s->in[1].dtype),
                     limn_dtype_name(s->out[0].dtype));
  k = limn_alloc(d->c, sizeof *k);
  if (!k) return LIMN_EMEM;
  s->code = k;
  k->gemm = limn_cpu_of(d)->gemm;
  k->loops = limn_cpu_of(d)->loops;
  k->dtype = s->out[0].dtype;
  k->size = limn_dtype_size(k->dtype);
  matmul_shape(k, s);
  matmul_merge(k);
  k->how = matmul_how(d->c, k);
  matmul_cut(k);
  k->head = (matmul_head){k->K, k->N, k->brs, k->bcs, s->in[1].v.offset,
                          k->gemm, {0}};
  k->keeps = k->how == BY_GEMM && (d->c->flags.passes & LIMN_PASS_PREPACK) &&
             k->K && k->N;
  for (i = 0; i < k->nb; i++) k->keeps = k->keeps && k->bs[i] == 0;
  LIMN_GO(matmul_scratch(d, k));
  LIMN_GO(matmul_epilogue_prepare(d->c, k, s));
  s->ntiles = k->batches * k->tm * k->tn;
  s->run = s->ntiles == 1 ? matmul_run_one : matmul_run;
  s->cost_ns = matmul_cost(k);
  return 0;
bail:
  limn_cpu_matmul_discard(d, s);
  s->code = NULL;
  return rc;
}

void limn_cpu_matmul_discard(limn_device *d, limn_step *s) {
  cpu_matmul *k = s->code;
  if (!k) return;
  limn_cpu_epilogue_free(d->c, &k->after);
  limn_free(d->c, k, sizeof *k);
}
