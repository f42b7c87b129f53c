/* GPU source of the kernels that kernels/ holds as text, and what all source
 * needs to know of a step: joined dims, float64, the accumulator. */
#include "gpu.h"

static bool fixed_joins(const limn_gpu_dims *o, int64_t n,
                        const limn_operand *const *v, int at) {
  int j;
  for (j = 0; j < o->nview; j++)
    if (o->s[j][o->nd - 1] != v[j]->v.s[at] * n) return false;
  return true;
}

void limn_gpu_collapse(limn_gpu_dims *o, const limn_operand *const *v,
                       int nview, int lo, int hi) {
  int i, j;
  o->nd = 0;
  o->nview = nview;
  for (i = lo; i < hi; i++) {
    int64_t n = v[0]->v.d[i];
    if (n == 1) continue;
    if (o->nd && fixed_joins(o, n, v, i)) {
      o->d[o->nd - 1] *= n;
    } else {
      o->d[o->nd++] = n;
    }
    for (j = 0; j < nview; j++) o->s[j][o->nd - 1] = v[j]->v.s[i];
  }
}

bool limn_codegen_f64(const limn_step *s) {
  int i;
  for (i = 0; i < s->nin; i++)
    if (s->in[i].dtype == LIMN_F64) return true;
  for (i = 0; i < s->nout; i++)
    if (s->out[i].dtype == LIMN_F64) return true;
  for (i = 0; s->group && i < s->group->ncode; i++) {
    const limn_instr *q = &s->group->code[i];
    if (q->dtype == LIMN_F64) return true;
    if (q->op < LIMN_NOP && limn_op_get(q->op)->row == LIMN_ROW_E &&
        q->ctype == LIMN_F64)
      return true;
  }
  return false;
}

bool limn_codegen_loads(const limn_step *s, int j) {
  int k;
  if (!s->group) return j == 0;
  for (k = 0; k < s->group->ncode; k++)
    if (s->group->code[k].op == LIMN_I_LOAD && s->group->code[k].arg == j)
      return true;
  return false;
}

int limn_codegen_acc(const limn_step *s) {
  return limn_dtype_compute(s->out[0].dtype);
}

bool limn_codegen_atomic(const limn_gpu *g, int dtype) {
  if (dtype == LIMN_F32 || dtype == LIMN_I32) return true;
  return g->atom64 && (dtype == LIMN_F64 || dtype == LIMN_I64);
}

/* -- Texts of kernels/ ----------------------------------------------------- */

/* Element and computing type of `dtype` under the letter L: LD<L> reads, ST<L>
 * writes. */
static void fixed_type(limn_str *o, char letter, int dtype) {
  const char *brief = limn_dtype_short(dtype);
  limn_str_addf(o, "#define E%c EL_%s\n#define C%c %s\n", letter, brief, letter,
                limn_codegen_type(dtype));
  limn_str_addf(o, "#define LD%c LD_%s\n#define ST%c ST_%s\n", letter, brief,
                letter, brief);
}

static void fixed_vector(limn_str *o, int dtype) {
  int c = limn_dtype_compute(dtype), n = limn_dtype_size(c) == 8 ? 8 : 16;
  const char *type = c == LIMN_I64 ? "long" : limn_codegen_type(dtype);
  limn_str_addf(o,
                "#define VW %d\n#define VX %s%d\n#define VLOAD vload%d\n"
                "#define VSTORE vstore%d\n",
                n, type, n, n, n);
  limn_str_addf(o, "#define VMAD(a, b, c) %s\n",
                limn_dtype_float(dtype) ? "mad(a, b, c)" : "((a) * (b) + (c))");
}

static void fixed_norm(const limn_step *s, limn_str *o) {
  bool back = s->op == OP_layer_norm_back || s->op == OP_rms_norm_back;
  bool centred = s->op == OP_layer_norm || s->op == OP_layer_norm_back;
  bool f64 = s->in[0].dtype == LIMN_F64;
  fixed_type(o, 'X', s->in[0].dtype);
  limn_str_addf(o, "#define EPS BITS_%s(N_(3))\n%s%s", f64 ? "F64" : "F32",
                centred ? "#define CENTRED\n" : "",
                back ? "#define BACK\n" : "");
  if (back || s->flag) limn_str_add(o, "#define HAS_P\n");
  if (back ? s->flag : s->bias) limn_str_add(o, "#define HAS_Q\n");
}

/* How a running op goes on from a value, and from where. */
static void fixed_join(const limn_step *s, limn_str *o) {
  const char *brief =
      limn_dtype_short(limn_dtype_compute(s->out[0].dtype));
  switch (s->op) {
  case OP_cumsum:
    limn_str_add(o, "#define START 0\n#define JOIN(a, b) (CY)((a) + (b))\n");
    return;
  case OP_cumprod:
    limn_str_add(o, "#define START 1\n#define JOIN(a, b) (CY)((a) * (b))\n");
    return;
  case OP_logcumsumexp:
    limn_str_addf(o, "#define START K_LOWEST_%s\n#define JOIN LOGADD_%s\n",
                  brief, brief);
    return;
  default:
    limn_str_addf(o, "#define START K_%s_%s\n#define JOIN %s_%s\n",
                  s->op == OP_cummax ? "LOWEST" : "HIGHEST", brief,
                  s->op == OP_cummax ? "MAX" : "MIN", brief);
  }
}

static void fixed_conv(const limn_step *s, limn_str *o) {
  fixed_type(o, 'X', s->in[0].dtype);
  limn_str_addf(o, "#define MAD MAD_%s\n#define DIMS %d\n",
                limn_dtype_short(limn_dtype_compute(s->in[0].dtype)),
                s->conv->n);
  limn_str_addf(o, "#define IX %s\n%s%s",
                limn_gpu_conv_wide(s) ? "u64" : "u32",
                s->op == OP_conv_transpose ? "#define TRANSPOSED\n" : "",
                s->op == OP_conv_weights ? "#define WEIGHTS\n" : "");
}

static void fixed_row(const limn_step *s, limn_str *o) {
  int in = s->in[0].dtype, out = s->out[0].dtype;
  const char *brief = limn_dtype_short(limn_dtype_compute(out));
  limn_str_addf(o, "#define EX EL_%s\n#define LDX LD_%s\n#define CX %s\n",
                limn_dtype_short(in), limn_dtype_short(in),
                limn_codegen_type(out));
  limn_str_addf(o, "#define EY EL_%s\n#define STY ST_%s\n",
                limn_dtype_short(out), limn_dtype_short(out));
  limn_str_addf(o, "#define LOWEST K_LOWEST_%s\n#define MAXX MAX_%s\n", brief,
                brief);
  if (s->op == OP_log_softmax) limn_str_add(o, "#define LOGARITHM\n");
}

static void fixed_cum(const limn_step *s, limn_str *o) {
  int in = s->in[0].dtype, out = s->out[0].dtype;
  fixed_type(o, 'X', in);
  fixed_type(o, 'Y', out);
  limn_str_add(o, "#define CVT(x) (");
  limn_codegen_cast(o, "(x)", limn_dtype_compute(in), limn_dtype_compute(out));
  limn_str_add(o, ")\n");
  fixed_join(s, o);
}

/* Additions and writes at positions. */
static void fixed_add(const limn_step *s, limn_str *o) {
  int out = s->out[0].dtype;
  bool atomic = out != LIMN_BOOL && limn_dtype_compute(out) == out;
  bool wide = out == LIMN_F64 || out == LIMN_I64;
  fixed_type(o, 'X', out);
  limn_str_addf(o, "#define JOIN(a, b) (CX)(%s)\n",
                s->op == OP_scatter ? "b" : "(a) + (b)");
  if (wide) limn_str_add(o, "#ifdef USE_ATOM64\n");
  if (atomic)
    limn_str_addf(o, "#define ATOMIC_ADD ATOMIC_ADD_%s\n",
                  limn_dtype_short(out));
  if (wide) limn_str_add(o, "#endif\n");
}

static void fixed_kind(const limn_step *s, limn_str *o, bool vector) {
  int in = s->in[0].dtype;
  const char *brief = limn_dtype_short(limn_dtype_compute(in));
  switch (s->kind) {
  case LIMN_STEP_MATMUL:
    fixed_type(o, 'X', in);
    limn_str_addf(o, "#define MAD MAD_%s\n",
                  strcmp(brief, "bool") ? brief : "i32");
    if (vector) fixed_vector(o, in);
    return;
  case LIMN_STEP_CONV: fixed_conv(s, o); return;
  case LIMN_STEP_ARG:
    fixed_type(o, 'X', in);
    limn_str_addf(o,
                  "#define BETTER(v, w) ((v) %s (w) || ((v) != (v) && "
                  "(w) == (w)))\n",
                  s->op == OP_argmax ? ">" : "<");
    return;
  case LIMN_STEP_SORT:
    fixed_type(o, 'X', in);
    limn_str_addf(o, "#define BEFORE(a, b) %s\n",
                  s->flag ? "((a) > (b) || ((a) != (a) && (b) == (b)))"
                          : "((a) < (b) || ((b) != (b) && (a) == (a)))");
    return;
  case LIMN_STEP_ROW: fixed_row(s, o); return;
  case LIMN_STEP_NORM: fixed_norm(s, o); return;
  case LIMN_STEP_CUM: fixed_cum(s, o); return;
  case LIMN_STEP_INDEX_ADD:
  case LIMN_STEP_SCATTER_ADD: fixed_add(s, o); return;
  default: return;
  }
}

/* The type that counts elements of steps that read or write at positions. */
static void fixed_count(const limn_step *s, bool index, limn_str *o) {
  const limn_view *v = index ? &s->out[0].v : &s->in[1].v;
  bool wide = limn_numel(v->ndim, v->d) >= INT32_MAX;
  limn_str_addf(o, "#define IX %s\n", wide ? "u64" : "u32");
}

int limn_codegen_fixed(limn_context *c, const limn_step *s, int local,
                       bool solo, const char *name, int nums, limn_str *out) {
  static const char *const bits[] = {"", "u8", "u16", "",   "u32",
                                     "", "",   "",    "i64"};
  bool gemm = !strncmp(name, "gemm", 4), index = !strcmp(name, "index");
  const char *text = limn_gpu_text(name);
  if (!text)
    return limn_fail(c, LIMN_ENAME, "there is no kernel text \"%s\"", name);
  if (!index && limn_codegen_f64(s)) limn_str_add(out, "#define USE_F64\n");
  limn_str_addf(out, "#define NUMS %d\n#define WIDTH %d\n", nums, local);
  if (solo) limn_str_add(out, "#define SOLO\n");
  if (index || !strcmp(name, "add")) fixed_count(s, index, out);
  if (index) /* copies as bits: one kernel for all dtypes of a size */
    limn_str_addf(out, "#define EB %s\n",
                  bits[limn_dtype_size(s->out[0].dtype)]);
  else
    fixed_kind(s, out, !strcmp(name, "gemm_cpu"));
  if (gemm) limn_str_add(out, limn_gpu_text("gemm_args"));
  limn_str_add(out, text);
  return out->rc;
}
