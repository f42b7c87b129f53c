/* GPU source of a step's kernel: fused groups and reductions are written out
 * in the dialect of kernels/dialect.k, other kinds take a text of kernels/.
 *
 * Rules: (1) source depends on ops, dtypes, layout classes and the number of
 * dims only; every size, stride, offset, number operand and random state is
 * appended to the arguments while the text that reads it is written, as N_(i),
 * so that both always agree. (2) An operand's pointer is moved to its first
 * element at the start, so that indices need 32 bits only where the elements
 * of one view spread further. (3) Lines that start with # come first: the
 * driver puts the prelude after them. */
#include <stdio.h>

#include "gpu.h"

enum { CG_DENSE, CG_SCALAR, CG_STRIDED }; /* layout classes */

typedef struct {
  const limn_step *s;
  limn_str body, sig, moves; /* parameters, and lines that move them */
  limn_str *o;               /* the body */
  limn_gpu_args *a;
  bool wide, random; /* 64-bit indices; random words are used */
  bool special;      /* functions of special.h are */
  int outs;          /* operands before the inputs in `d` */
  int width;         /* elements of a work-item; above 1, dense operands are
                        read to e<j> and written from r<j> all at once */
  uint8_t layout[LIMN_GPU_VIEWS];
  limn_gpu_dims d;
} cg;

static const struct {
  uint16_t op;
  const char *init, *step;
} cg_reductions[] = {
#define R(name, rule, sig, init, step, grad, doc) {OP_##name, #init, #step},
#include "ops.h"
};

/* -- Views ----------------------------------------------------------------- */

/* Ranks that have source of their own: fewer kernels for few more divisions. */
static void cg_pad(limn_gpu_dims *o) {
  int want = o->nd < 1 ? 1 : o->nd <= 4 ? o->nd : LIMN_MAXDIM;
  int add = want - o->nd, j;
  memmove(o->d + add, o->d, (size_t)o->nd * sizeof o->d[0]);
  for (j = 0; j < add; j++) o->d[j] = 1;
  for (j = 0; j < o->nview; j++) {
    memmove(o->s[j] + add, o->s[j], (size_t)o->nd * sizeof o->s[j][0]);
    memset(o->s[j], 0, (size_t)add * sizeof o->s[j][0]);
  }
  o->nd = want;
}

static bool cg_dense(const limn_gpu_dims *o, int j) {
  int64_t n = 1;
  int i;
  for (i = o->nd - 1; i >= 0; i--) {
    if (o->d[i] != 1 && o->s[j][i] != n) return false;
    n *= o->d[i];
  }
  return true;
}

/* A stride of 0 everywhere, also where a size of 1 makes it dense as well:
 * so the class of a broadcast number does not change with the size. */
static bool cg_scalar(const limn_gpu_dims *o, int j, const limn_operand *v) {
  int i, n = 0;
  for (i = 0; i < o->nd; i++) n += o->d[i] != 1 && o->s[j][i] == 0;
  if (n == o->nd) return true;
  for (i = 0; i < v->v.ndim; i++)
    if (v->v.s[i]) return false;
  return v->v.ndim > 0;
}

static bool cg_spreads(const limn_operand *v) {
  int64_t lo = 0, hi = 0, n = 1;
  int i;
  for (i = 0; i < v->v.ndim; i++) {
    int64_t e = (v->v.d[i] - 1) * v->v.s[i];
    *(e < 0 ? &lo : &hi) += e;
    n *= v->v.d[i];
  }
  return hi >= INT32_MAX || lo <= INT32_MIN || n >= INT32_MAX - 4096;
}

/* -- Instructions ---------------------------------------------------------- */

/* Random state: the number of the seed; that of the draw comes next. */
static int cg_seed(cg *g, const limn_instr *q) {
  int seed = limn_gpu_num_patch(g->a, LIMN_GPU_SEED, 0, q->arg, 0);
  g->random = true;
  limn_gpu_num_patch(g->a, LIMN_GPU_DRAW, 0, q->arg, 0);
  return seed;
}

static void cg_generate(cg *g, const limn_instr *q, const char *name) {
  const char *type = limn_codegen_type(q->dtype);
  const char *brief = limn_dtype_short(q->dtype);
  const char *cut = !limn_dtype_float(q->dtype) ? "(i64)"
                    : q->dtype == LIMN_F64      ? "SAT_i64_f64"
                                                : "SAT_i64_f32";
  int seed;
  if (q->op == OP_arange) {
    if (limn_dtype_float(q->dtype))
      limn_str_addf(g->o, "%s %s = v%d + (%s)i * v%d;\n", type, name, q->a,
                    type, q->b);
    else
      limn_str_addf(g->o, "%s %s = (%s)((u64)v%d + (u64)i * (u64)v%d);\n", type,
                    name, type, q->a, q->b);
    return;
  }
  seed = cg_seed(g, q);
  limn_str_addf(g->o, "%s %s = (%s)", type, name, type);
  if (q->op == OP_randint)
    limn_str_addf(g->o, "WHOLE(N_(%d), N_(%d), (u64)i, %s(v%d), %s(v%d));\n",
                  seed, seed + 1, cut, q->a, cut, q->b);
  else if (q->op == OP_rand_bits)
    limn_str_addf(g->o, "WORD(N_(%d), N_(%d), (u64)i);\n", seed, seed + 1);
  else
    limn_str_addf(g->o, "%s_%s(N_(%d), N_(%d), (u64)i);\n",
                  q->op == OP_rand ? "UNIFORM" : "NORMAL", brief, seed,
                  seed + 1);
}

/* Values narrower than their computing type are rounded in place. */
static void cg_narrow(cg *g, const limn_instr *q, const char *name) {
  if (q->dtype == LIMN_BOOL || limn_dtype_compute(q->dtype) == q->dtype) return;
  limn_str_addf(g->o, "%s = RND_%s(%s);\n", name, limn_dtype_short(q->dtype),
                name);
}

static void cg_element(cg *g, const limn_instr *q, const char *name) {
  char a[16], b[16], c[16];
  const char *names[4] = {a, b, c, "acc"};
  g->special |= q->op == OP_erfinv || q->op == OP_digamma ||
                q->op == OP_polygamma;
  snprintf(a, sizeof a, "v%d", q->a);
  snprintf(b, sizeof b, "v%d", q->b);
  snprintf(c, sizeof c, "v%d", q->c);
  limn_str_addf(g->o, "%s %s = ", limn_codegen_type(q->dtype), name);
  limn_codegen_expr(g->o, limn_op_get(q->op)->expr, q->ctype, names);
  limn_str_add(g->o, q->dtype == LIMN_BOOL ? " != 0;\n" : ";\n");
}

static void cg_imm(cg *g, const limn_instr *q, const char *name) {
  int k = limn_gpu_num_patch(g->a, LIMN_GPU_IMM, q->dtype, q->arg, 0);
  int type = limn_dtype_compute(q->dtype);
  limn_str_addf(g->o, "%s %s = ", limn_codegen_type(type), name);
  if (limn_dtype_float(type))
    limn_str_addf(g->o, "BITS_%s(N_(%d));\n", type == LIMN_F64 ? "F64" : "F32",
                  k);
  else
    limn_str_addf(g->o, "(%s)N_(%d);\n", limn_codegen_type(type), k);
}

/* Store value q->a, which is of another dtype than the output at times. */
static void cg_store(cg *g, const limn_instr *q, const char *name) {
  const limn_instr *v = &g->s->group->code[q->a];
  int from = limn_dtype_compute(v->dtype), to = g->s->out[q->arg].dtype;
  char a[16];
  snprintf(a, sizeof a, "v%d", q->a);
  limn_str_addf(g->o, "%s %s = ", limn_codegen_type(to), name);
  if (from == limn_dtype_compute(to))
    limn_str_add(g->o, a);
  else
    limn_codegen_cast(g->o, a, from, to);
  limn_str_add(g->o, ";\n");
}

/* Instruction k; loads read input j at x<j>. */
static void cg_instr(cg *g, int k) {
  const limn_instr *q = &g->s->group->code[k];
  char name[16], a[16];
  int from;
  snprintf(name, sizeof name, "v%d", k);
  switch (q->op) {
  case LIMN_I_LOAD:
    limn_str_addf(g->o, "%s %s = LD_%s(", limn_codegen_type(q->dtype), name,
                  limn_dtype_short(g->s->in[q->arg].dtype));
    if (g->width > 1 && g->layout[g->outs + q->arg] == CG_DENSE)
      limn_str_addf(g->o, "e%d, e);\n", q->arg);
    else
      limn_str_addf(g->o, "i%d, x%d);\n", q->arg, q->arg);
    return;
  case LIMN_I_IMM:
    cg_imm(g, q, name);
    return;
  case LIMN_I_CAST:
    snprintf(a, sizeof a, "v%d", q->a);
    limn_str_addf(g->o, "%s %s = ", limn_codegen_type(q->dtype), name);
    from = limn_dtype_compute(g->s->group->code[q->a].dtype);
    limn_codegen_cast(g->o, a, from, q->dtype);
    limn_str_add(g->o, ";\n");
    return;
  case LIMN_I_STORE:
    cg_store(g, q, name);
    return;
  default:
    break;
  }
  if (limn_op_get(q->op)->row == LIMN_ROW_G)
    cg_generate(g, q, name);
  else
    cg_element(g, q, name);
  cg_narrow(g, q, name);
}

/* -- Source ---------------------------------------------------------------- */

/* The lines that come before the prelude. */
static void cg_heading(const limn_step *s, limn_str *out,
                       const limn_gpu_args *a) {
  if (limn_codegen_f64(s)) limn_str_add(out, "#define USE_F64\n");
  if (!a) return;
  if (limn_gpu_table(a))
    limn_str_add(out, "#define NUM_TABLE\n");
  else
    limn_str_addf(out, "#define NUMS %u\n", a->nnum);
}

static void cg_open(cg *g, limn_context *c, const limn_step *s,
                    limn_gpu_args *a) {
  memset(g, 0, sizeof *g);
  g->s = s;
  g->a = a;
  g->o = &g->body;
  limn_str_init(&g->body, c);
  limn_str_init(&g->sig, c);
  limn_str_init(&g->moves, c);
}

/* The first failure of all that was appended to. */
static int cg_close(cg *g, const limn_str *out) {
  int rc = g->body.rc ? g->body.rc : g->sig.rc ? g->sig.rc : g->moves.rc;
  limn_str_free(&g->body);
  limn_str_free(&g->sig);
  limn_str_free(&g->moves);
  return rc ? rc : g->a->rc ? g->a->rc : out->rc;
}

static const char *cg_text(const limn_str *s) { return s->s ? s->s : ""; }

/* Pointer parameter `name` of operand v, and the line that moves it. */
static void cg_pointer(cg *g, bool konst, const char *name,
                       const limn_operand *v) {
  int k;
  limn_str_addf(&g->sig, "GLOBAL %sEL_%s *%s, ", konst ? "const " : "",
                limn_dtype_short(v->dtype), name);
  limn_gpu_ptr(g->a, LIMN_GPU_SLOT, v->slot);
  k = limn_gpu_num_patch(g->a, LIMN_GPU_OFFSET, v->dtype, v->slot, v->v.offset);
  limn_str_addf(&g->moves, "%s += N_(%d);\n", name, k);
}

/* The multiplier and the shift by which any n < 2^31 is divided by d: n * m >>
 * s (Granlund and Montgomery, "Division by invariant integers using
 * multiplication", PLDI 1994, theorem 4.2 with N = 31). */
static void cg_divisor(cg *g, int64_t d) {
  int bits = 0;
  if (d < 1) d = 1;
  while (((int64_t)1 << bits) < d) bits++;
  limn_gpu_num(g->a,
               (int64_t)((((uint64_t)1 << (31 + bits)) + (uint64_t)d - 1) /
                         (uint64_t)d));
  limn_gpu_num(g->a, 31 + bits);
}

/* Coordinates c0.. of linear index `from` in g->d; sizes become numbers. */
static void cg_coordinates(cg *g, const char *from, char letter) {
  const char *U = g->wide ? "u64" : "u32", *I = g->wide ? "i64" : "int";
  int i, k;
  limn_str_addf(g->o, "%s t%c = (%s)%s;\n", U, letter, U, from);
  for (i = g->d.nd - 1; i > 0; i--) {
    k = limn_gpu_num(g->a, g->d.d[i]);
    if (!g->wide) cg_divisor(g, g->d.d[i]);
    if (g->wide)
      limn_str_addf(g->o,
                    "i64 %c%d = (i64)(t%c %% (u64)N_(%d)); t%c /= "
                    "(u64)N_(%d);\n",
                    letter, i, letter, k, letter, k);
    else
      limn_str_addf(g->o,
                    "int %c%d; DIVIDE(%c%d, t%c, N_(%d), N_(%d), "
                    "N_(%d))\n",
                    letter, i, letter, i, letter, k, k + 1, k + 2);
  }
  limn_str_addf(g->o, "%s %c0 = (%s)t%c;\n", I, letter, I, letter);
}

/* " + c0 * stride0 + ..." of view j. */
static void cg_strides(cg *g, int j, char letter) {
  int i;
  for (i = 0; i < g->d.nd; i++)
    limn_str_addf(g->o, " + %c%d * (%s)N_(%d)", letter, i,
                  g->wide ? "i64" : "int", limn_gpu_num(g->a, g->d.s[j][i]));
}

/* Index of view j: x<n> for inputs, y<n> for outputs. */
static void cg_index(cg *g, int j) {
  limn_str_addf(g->o, "%s %c%d = ", g->wide ? "i64" : "int",
                j < g->outs ? 'y' : 'x', j < g->outs ? j : j - g->outs);
  if (g->layout[j] == CG_DENSE)
    limn_str_add(g->o, "i");
  else if (g->layout[j] == CG_SCALAR)
    limn_str_add(g->o, "0");
  else {
    limn_str_add(g->o, "0");
    cg_strides(g, j, 'c');
  }
  limn_str_add(g->o, ";\n");
}

/* Functions that few kernels need. */
static void cg_extra_text(const cg *g, limn_str *out) {
  if (g->special) {
    const char *one = "SPECIAL(FN, %s, %s, log, exp, pow, tan, sin, floor, "
                      "erf, sqrt, %d)\n";
    limn_str_add(out, limn_gpu_text("special"));
    limn_str_addf(out, one, "f32", "float", 0);
    limn_str_add(out, "#ifdef USE_F64\n");
    limn_str_addf(out, one, "f64", "double", 2);
    limn_str_add(out, "#endif\n");
  }
  if (!g->random) return;
  limn_str_add(out, limn_gpu_text("random"));
  limn_str_add(out, limn_gpu_text("philox"));
}

/* Rank, classes and index width of the operands of a group. */
static void cg_plan_group(cg *g) {
  const limn_operand *v[LIMN_GPU_VIEWS];
  int j, n = 0;
  for (j = 0; j < g->s->nout; j++) v[n++] = &g->s->out[j];
  for (j = 0; j < g->s->nin; j++) v[n++] = &g->s->in[j];
  g->outs = g->s->nout;
  limn_gpu_collapse(&g->d, v, n, 0, v[0]->v.ndim);
  cg_pad(&g->d);
  for (j = 0; j < n; j++) {
    g->layout[j] = cg_scalar(&g->d, j, v[j]) ? CG_SCALAR
                   : cg_dense(&g->d, j)      ? CG_DENSE
                                             : CG_STRIDED;
    if (j < g->outs && g->layout[j] == CG_SCALAR) g->layout[j] = CG_DENSE;
    g->wide = g->wide || cg_spreads(v[j]);
  }
}

/* How many elements a work-item may take: such that the widest fills 16 bytes,
 * where all lie side by side and few enough are held at once. */
static int cg_width(const cg *g) {
  int j, n = g->s->nout + g->s->nin, size = 1;
  for (j = 0; j < n; j++) {
    const limn_operand *v = j < g->outs ? &g->s->out[j]
                                        : &g->s->in[j - g->outs];
    if (g->layout[j] == CG_STRIDED) return 1;
    size = LIMN_MAX(size, limn_dtype_size(v->dtype));
  }
  if (n > 10) return 1;
  return LIMN_MIN(16 / size, 8);
}

/* Whether an instruction wants to know which element it makes. */
static bool cg_generates(const limn_step *s) {
  int k;
  for (k = 0; s->group && k < s->group->ncode; k++) {
    int op = s->group->code[k].op;
    if (op < LIMN_NOP && limn_op_get(op)->row == LIMN_ROW_G) return true;
  }
  return false;
}

static void cg_body(cg *g) {
  const limn_step *s = g->s;
  int k;
  for (k = 0; k < s->group->ncode; k++) {
    const limn_instr *q = &s->group->code[k];
    cg_instr(g, k);
    if (q->op == LIMN_I_STORE && g->width > 1)
      limn_str_addf(g->o, "ST_%s(r%d, e, v%d);\n",
                    limn_dtype_short(s->out[q->arg].dtype), q->arg, k);
    else if (q->op == LIMN_I_STORE)
      limn_str_addf(g->o, "ST_%s(o%d, y%d, v%d);\n",
                    limn_dtype_short(s->out[q->arg].dtype), q->arg, q->arg, k);
  }
}

/* One element for each work-item: i. */
static void cg_single(cg *g) {
  bool strided = false;
  int j, n = g->s->nout + g->s->nin;
  for (j = 0; j < n; j++) strided = strided || g->layout[j] == CG_STRIDED;
  if (strided) cg_coordinates(g, "i", 'c');
  for (j = 0; j < n; j++) cg_index(g, j);
  cg_body(g);
}

/* Elements i .. i + width. */
static void cg_several(cg *g) {
  const limn_step *s = g->s;
  const char *I = g->wide ? "i64" : "int";
  int j;
  for (j = 0; j < s->nin; j++)
    if (g->layout[g->outs + j] == CG_DENSE)
      limn_str_addf(g->o, "SEVERAL(EL_%s, e%d, %d);\nFETCH(e%d, i%d + at, left)"
                    ";\n", limn_dtype_short(s->in[j].dtype), j, g->width, j,
                    j);
  for (j = 0; j < s->nout; j++)
    limn_str_addf(g->o, "SEVERAL(EL_%s, r%d, %d);\n",
                  limn_dtype_short(s->out[j].dtype), j, g->width);
  limn_str_addf(g->o, "UNROLL for (int e = 0; e < %d; e++) {\n", g->width);
  if (cg_generates(s)) limn_str_addf(g->o, "%s i = at + e;\n", I);
  for (j = g->outs; j < g->outs + s->nin; j++)
    if (g->layout[j] == CG_SCALAR) cg_index(g, j);
  cg_body(g);
  limn_str_add(g->o, "}\n");
  for (j = 0; j < s->nout; j++)
    limn_str_addf(g->o, "PUT(o%d + at, r%d, left);\n", j, j);
}

int limn_codegen_group(limn_context *c, const limn_step *s, bool several,
                       int *width, limn_str *out, limn_gpu_args *args) {
  cg g;
  const char *I;
  char name[16];
  int j, n = s->nout + s->nin;
  cg_open(&g, c, s, args);
  cg_plan_group(&g);
  *width = g.width = several ? cg_width(&g) : 1;
  I = g.wide ? "i64" : "int";
  limn_gpu_num(args, limn_numel(s->out[0].v.ndim, s->out[0].v.d));
  for (j = 0; j < n; j++) {
    bool in = j >= s->nout;
    int at = in ? j - s->nout : j;
    snprintf(name, sizeof name, "%c%d", in ? 'i' : 'o', at);
    cg_pointer(&g, in, name, in ? &s->in[at] : &s->out[at]);
  }
  if (g.width > 1) cg_several(&g);
  else cg_single(&g);
  cg_heading(s, out, args);
  cg_extra_text(&g, out);
  limn_str_addf(out, "KERNEL void k(%sNUMBERS) {\n", cg_text(&g.sig));
  if (g.width > 1)
    limn_str_addf(out, "%s at = (%s)GID * %d, left = (%s)N_(0) - at;\n"
                  "if (left <= 0) return;\n", I, I, g.width, I);
  else
    limn_str_addf(out, "%s i = (%s)GID;\nif (i >= (%s)N_(0)) return;\n", I, I,
                  I);
  limn_str_addf(out, "%s%s}\n", cg_text(&g.moves), cg_text(&g.body));
  return cg_close(&g, out);
}

/* -- Reductions ------------------------------------------------------------ */

/* STEP(acc, a), INIT and the accumulator's type. */
static void cg_reduction(const limn_step *s, limn_str *out) {
  static const char *const names[4] = {"a", "b", "c", "acc"};
  int acc = limn_codegen_acc(s), i;
  const char *type = limn_codegen_type(acc);
  for (i = 0; i < LIMN_COUNT(cg_reductions); i++)
    if (cg_reductions[i].op == s->op) break;
  if (i == LIMN_COUNT(cg_reductions)) return;
  limn_str_addf(out, "FN %s STEP(%s acc, %s a) {\nreturn ", type, type, type);
  limn_codegen_expr(out, cg_reductions[i].step, acc, names);
  limn_str_add(out, ";\n}\n#define INIT ");
  limn_codegen_expr(out, cg_reductions[i].init, acc, names);
  limn_str_addf(out, "\n#define AT %s\n", type);
}

/* Base of view j over the kept dims, b<j>; the reduced dims come later. */
static void cg_reduce_base(cg *g, int j) {
  limn_str_addf(g->o, "%s b%d = 0", g->wide ? "i64" : "int", j);
  cg_strides(g, j, 'c');
  limn_str_add(g->o, ";\n");
}

/* The value of element (kept c.., reduced r) in the accumulator's type. */
static void cg_reduce_value(cg *g) {
  const limn_step *s = g->s;
  int acc = limn_codegen_acc(s), k, last = 0, from = s->in[0].dtype;
  bool logic = s->op == OP_any || s->op == OP_all;
  char name[16];
  if (!s->group) {
    limn_str_addf(g->o, "%s v0 = LD_%s(i0, x0);\n", limn_codegen_type(from),
                  limn_dtype_short(from));
  } else {
    for (k = 0; k < s->group->ncode; k++) {
      if (s->group->code[k].op != LIMN_I_STORE)
        cg_instr(g, k);
      else
        last = s->group->code[k].a;
    }
    /* A store in a prologue names no output: the value keeps its dtype. */
    from = s->group->code[last].dtype;
  }
  snprintf(name, sizeof name, "v%d", last);
  limn_str_add(g->o, "AT value = ");
  limn_codegen_cast(g->o, name, limn_dtype_compute(from),
                    logic ? LIMN_BOOL : acc);
  limn_str_add(g->o, ";\n");
}

/* The loop over this work-item's part of the reduced elements. Sums are made
 * of blocks of 128, so that rounding grows with the number of blocks. */
static void cg_reduce_loop(cg *g, const limn_operand *const *v) {
  const char *I = g->wide ? "i64" : "int";
  int j, n = g->s->nin;
  bool loads = false;
  for (j = 0; j < n; j++) loads = loads || limn_codegen_loads(g->s, j);
  limn_gpu_collapse(&g->d, v, n, 0, g->s->nkeep);
  cg_pad(&g->d);
  limn_str_add(g->o, "if (o < nout) {\n");
  if (loads) cg_coordinates(g, "o", 'c');
  for (j = 0; j < n; j++)
    if (limn_codegen_loads(g->s, j)) cg_reduce_base(g, j);
  limn_gpu_collapse(&g->d, v, n, g->s->nkeep, v[0]->v.ndim);
  cg_pad(&g->d);
  limn_str_addf(g->o,
                "%s r = r0 + (%s)lane;\nwhile (r < r1) {\n"
                "AT part = INIT;\n"
                "%s end = r1 - r > (%s)(128 * lanes) ? r + (%s)(128 * lanes) : "
                "r1;\nfor (; r < end; r += (%s)lanes) {\n",
                I, I, I, I, I, I);
  if (loads) cg_coordinates(g, "r", 'q');
  if (cg_generates(g->s))
    limn_str_add(g->o, "u64 i = (u64)o * (u64)nred + (u64)r;\n");
  for (j = 0; j < n; j++) {
    if (!limn_codegen_loads(g->s, j)) continue;
    limn_str_addf(g->o, "%s x%d = b%d", I, j, j);
    cg_strides(g, j, 'q');
    limn_str_add(g->o, ";\n");
  }
  cg_reduce_value(g);
  limn_str_add(g->o,
               "part = STEP(part, value);\n}\n"
               "acc = STEP(acc, part);\n}\n}\n");
}

/* Lanes share an output: see LANES in dialect.k. Their results meet in a
 * tree. */
static void cg_reduce_main(cg *g, const limn_gpu_reduce *r) {
  const char *I = g->wide ? "i64" : "int";
  const limn_operand *v[LIMN_GPU_VIEWS];
  int j, nums[6];
  nums[0] = limn_gpu_num(g->a, r->nout);
  nums[1] = limn_gpu_num(g->a, r->nred);
  nums[2] = limn_gpu_num(g->a, r->lanes);
  nums[3] = limn_gpu_num(g->a, r->apart);
  nums[4] = limn_gpu_num(g->a, r->splits);
  nums[5] = limn_gpu_num(g->a, r->chunk);
  for (j = 0; j < g->s->nin; j++) v[j] = &g->s->in[j];
  limn_str_addf(g->o, "SHARED(AT, tree);\nLANES(N_(%d), N_(%d))\n", nums[2],
                nums[3]);
  limn_str_addf(g->o,
                "%s nout = (%s)N_(%d), nred = (%s)N_(%d);\n"
                "%s o = (%s)GROUP(0) * across + slot, r0 = (%s)(GROUP(1) * "
                "N_(%d));\n%s r1 = r0 + (%s)N_(%d);\n"
                "AT acc = INIT;\nif (r1 > nred) r1 = nred;\n",
                I, I, nums[0], I, nums[1], I, I, I, nums[5], I, I, nums[5]);
  limn_str_add(g->o, cg_text(&g->moves));
  cg_reduce_loop(g, v);
  limn_str_addf(g->o,
                "MERGE(tree, acc, STEP)\n"
                "if (lane == 0 && o < nout) {\n"
                "if (N_(%d) > 1) parts[(i64)GROUP(1) * nout + o] = acc;\n"
                "else ST_%s(out, o, acc);\n}\n",
                nums[4], limn_dtype_short(g->s->out[0].dtype));
}

/* Second kernel: each work-item sums up the parts of its output. */
static void cg_reduce_second(const limn_step *s, const limn_gpu_reduce *r,
                             limn_str *out, limn_gpu_args *a) {
  int off, nout, splits;
  limn_gpu_ptr(a, LIMN_GPU_SLOT, s->out[0].slot);
  limn_gpu_ptr(a, r->splits > 1 ? LIMN_GPU_TEMP : LIMN_GPU_SLOT,
               r->splits > 1 ? 0 : s->out[0].slot);
  off = limn_gpu_num_patch(a, LIMN_GPU_OFFSET, s->out[0].dtype, s->out[0].slot,
                           s->out[0].v.offset);
  nout = limn_gpu_num(a, r->nout);
  splits = limn_gpu_num(a, r->splits);
  limn_str_addf(out,
                "KERNEL void k2(GLOBAL EL_%s *out, GLOBAL AT *parts, "
                "NUMBERS) {\ni64 o = GID, n = N_(%d), j;\nAT acc = INIT;\n"
                "if (o >= n) return;\nout += N_(%d);\n"
                "for (j = 0; j < N_(%d); j++) acc = STEP(acc, parts[j * n + "
                "o]);\nST_%s(out, o, acc);\n}\n",
                limn_dtype_short(s->out[0].dtype), nout, off, splits,
                limn_dtype_short(s->out[0].dtype));
}

int limn_codegen_reduce(limn_context *c, const limn_step *s, int local,
                        const limn_gpu_reduce *r, limn_str *out,
                        limn_gpu_args *k, limn_gpu_args *k2) {
  cg g;
  char name[16];
  int j, rc;
  cg_open(&g, c, s, k);
  cg_pointer(&g, false, "out", &s->out[0]);
  limn_str_add(&g.sig, "GLOBAL AT *parts, ");
  limn_gpu_ptr(k, r->splits > 1 ? LIMN_GPU_TEMP : LIMN_GPU_SLOT,
               r->splits > 1 ? 0 : s->out[0].slot);
  for (j = 0; j < s->nin; j++) {
    snprintf(name, sizeof name, "i%d", j);
    cg_pointer(&g, true, name, &s->in[j]);
    g.wide = g.wide || cg_spreads(&s->in[j]);
  }
  cg_reduce_main(&g, r);
  cg_heading(s, out, k);
  limn_str_addf(out, "%s#define WIDTH %d\n", r->solo ? "#define SOLO\n" : "",
                local);
  cg_reduction(s, out);
  cg_extra_text(&g, out);
  limn_str_addf(out, "KERNEL void k(%sNUMBERS) {\n%s}\n", cg_text(&g.sig),
                cg_text(&g.body));
  cg_reduce_second(s, r, out, k2);
  rc = cg_close(&g, out);
  return rc ? rc : k2->rc;
}
