/* Groups of elementwise instructions as programs of tile kernels: compiling.
 *
 * 1. What depends on numbers only is computed once per run, not per tile.
 * 2. Neighbouring cheap float32 instructions become one kernel (pairs).
 * 3. A store of a value makes the value's own kernel write to the output.
 * 4. Slots are handed out by liveness, one pool per element size. */
#include "cpu_prog.h"

/* The table's index of an E row, and the place in the lists of pairs. */
static const uint16_t compile_row[LIMN_NOP] = {
#define E1(name, ...) [OP_##name] = LIMN_ELEM_##name + 1,
#define E2(name, ...) [OP_##name] = LIMN_ELEM_##name + 1,
#define E3(name, ...) [OP_##name] = LIMN_ELEM_##name + 1,
#include "ops.h"
};
static const uint8_t compile_arity[LIMN_NOP] = {
#define E1(name, ...) [OP_##name] = 1,
#define E2(name, ...) [OP_##name] = 2,
#define E3(name, ...) [OP_##name] = 3,
#include "ops.h"
};
#define X(name) [OP_##name] = 1 + LIMN_PB_##name,
static const uint8_t compile_pb[LIMN_NOP] = {LIMN_PAIR_BINARY(X)};
#undef X
#define X(name) [OP_##name] = 1 + LIMN_PF_##name,
static const uint8_t compile_pf[LIMN_NOP] = {LIMN_PAIR_FIRST(X)};
#undef X
#define X(name) [OP_##name] = 1 + LIMN_PU_##name,
static const uint8_t compile_pu[LIMN_NOP] = {LIMN_PAIR_UNARY(X)};
#undef X

/* What is known of each instruction's value. */
typedef struct {
  uint16_t loc;      /* where it lies, once it has a place */
  uint16_t uses;     /* operands and stores that read it */
  uint16_t absorbs;  /* 1 + the instruction paired into this one */
  bool absorbed;
  bool konst;        /* the same for all elements: computed once */
  bool right;        /* pairs: it is operand b */
  int16_t home;      /* output that it is written to directly, or -1 */
  uint32_t last;     /* last op that reads it */
} compile_value;

typedef struct {
  limn_context *c;
  const limn_group *g;
  const limn_elem_kernels *k;
  const uint8_t *in_dtype, *out_dtype;
  int nin, nout;
  uint32_t ones;
  bool safe;   /* all stores at the end */
  compile_value *v;
  limn_cpu_prog *p; /* operands are instruction numbers + 1 until placed */
  int32_t *from; /* per op: the instruction it computes, -1 - k: output k */
  uint32_t nop;
  int rc;
} compiler;

static int compile_et(int dtype) {
  switch (limn_dtype_compute(dtype)) {
    case LIMN_F32: return LIMN_ET_F32;
    case LIMN_F64: return LIMN_ET_F64;
    case LIMN_I32: return LIMN_ET_I32;
    case LIMN_I64: return LIMN_ET_I64;
    default: return LIMN_ET_BOOL;
  }
}

static int compile_log2(int dtype) { /* of the computing type's size */
  return prog_log2(limn_dtype_size(limn_dtype_compute(dtype)));
}

static bool compile_is_e(int op) { return op < LIMN_NOP && compile_row[op]; }

/* Inputs of a computing type are read where they are. */
static bool compile_in_place(const compiler *x, const limn_instr *load) {
  return !x->safe && !x->k->load[x->in_dtype[load->arg]];
}

/* Operand slots that an instruction reads: their number. */
static int compile_operands(const limn_instr *i, uint16_t *a) {
  a[0] = i->a, a[1] = i->b, a[2] = i->c;
  if (compile_is_e(i->op)) return compile_arity[i->op];
  if (i->op == LIMN_I_CAST || i->op == LIMN_I_STORE) return 1;
  return i->op == OP_arange || i->op == OP_randint ? 2 : 0;
}

/* Constant values and use counts. */
static void compile_scan(compiler *x) {
  int i, k;
  for (i = 0; i < x->g->ncode; i++) {
    const limn_instr *ins = &x->g->code[i];
    compile_value *v = &x->v[i];
    uint16_t a[3];
    int n = compile_operands(ins, a);
    v->home = -1;
    v->konst = ins->op == LIMN_I_IMM ||
               ((compile_is_e(ins->op) || ins->op == LIMN_I_CAST));
    if (ins->op == LIMN_I_LOAD) v->konst = x->ones >> ins->arg & 1;
    for (k = 0; k < n; k++) {
      x->v[a[k]].uses++;
      v->konst &= x->v[a[k]].konst;
    }
  }
}

/* -- Pairs -- */

/* The kernels for row `first` going into operand `right` of `second`. */
static limn_elem_forms *compile_pair(const compiler *x, int first, int second,
                                     bool right) {
  int pb1 = compile_pb[first], pb2 = compile_pb[second];
  bool turn = right && (second == OP_add || second == OP_mul);
  if (pb1 && pb2) return x->k->pair_bb[pb1 - 1][pb2 - 1][right && !turn];
  if (compile_pu[first] && second == OP_mul)
    return x->k->pair_ub[compile_pu[first] - 1];
  if (compile_pf[first] && compile_pu[second] && !right)
    return x->k->pair_bu[compile_pf[first] - 1][compile_pu[second] - 1];
  return NULL;
}

static bool compile_can_absorb(const compiler *x, int i, int j, bool right) {
  const limn_instr *s = &x->g->code[i], *f = &x->g->code[j];
  if (!compile_is_e(f->op) || x->v[j].uses != 1 || x->v[j].absorbs ||
      x->v[j].konst || f->ctype != LIMN_F32 || f->dtype != LIMN_F32)
    return false;
  return compile_pair(x, f->op, s->op, right) != NULL;
}

static void compile_find_pairs(compiler *x) {
  int i, k;
  if (!(x->c->flags.passes & LIMN_PASS_PAIRS)) return;
  for (i = 0; i < x->g->ncode; i++) {
    const limn_instr *ins = &x->g->code[i];
    if (!compile_is_e(ins->op) || ins->ctype != LIMN_F32 || x->v[i].konst)
      continue;
    for (k = 0; k < LIMN_MIN(compile_arity[ins->op], 2); k++) {
      uint16_t j = k ? ins->b : ins->a;
      if (!compile_can_absorb(x, i, j, k)) continue;
      x->v[i].absorbs = (uint16_t)(j + 1);
      x->v[i].right = k;
      x->v[j].absorbed = true;
      break;
    }
  }
}

/* -- Emission -- */

static prog_op *compile_emit(compiler *x, int from) {
  prog_op *o = &x->p->op[x->nop]; /* zeroed; there are two per instruction */
  if (x->rc) return NULL;
  x->from[x->nop++] = from;
  return o;
}

/* A call of one operand. */
static void compile_unary(compiler *x, int from, limn_elem_forms *fn, int a) {
  prog_op *o = compile_emit(x, from);
  if (!o) return;
  o->fn = fn;
  o->a = (uint16_t)(a + 1);
  o->all = 1;
}

/* A single kernel as a list of forms. */
#define COMPILE_FORM(table, at) ((limn_elem_forms *)&x->k->table at)

static void compile_round(compiler *x, int i, int dtype) {
  if (x->k->round[dtype]) compile_unary(x, i, COMPILE_FORM(round, [dtype]), i);
}

static void compile_refuse(compiler *x, const limn_instr *ins) {
  x->rc = limn_fail(
      x->c, LIMN_EUNSUPPORTED, "the CPU has no kernel for %s in %s",
      limn_op_get(ins->op)->name,
      limn_dtype_name(compile_is_e(ins->op) ? ins->ctype : ins->dtype));
}

static void compile_paired(compiler *x, int i) {
  const limn_instr *s = &x->g->code[i], *f;
  const compile_value *v = &x->v[i];
  int j = v->absorbs - 1;
  uint16_t third = v->right ? s->a : s->b;
  prog_op *o = compile_emit(x, i);
  if (!o) return;
  f = &x->g->code[j];
  o->fn = compile_pair(x, f->op, s->op, v->right);
  o->x = x->k->row[compile_row[f->op] - 1][LIMN_ET_F32];
  o->y = x->k->row[compile_row[s->op] - 1][LIMN_ET_F32];
  o->right = v->right && s->op != OP_add && s->op != OP_mul;
  o->a = (uint16_t)(f->a + 1);
  o->all = 3;
  if (compile_pb[f->op] && compile_pb[s->op]) {
    o->b = (uint16_t)(f->b + 1);
    o->c = (uint16_t)(third + 1);
    o->all = 7;
  } else {
    o->b = (uint16_t)((compile_arity[f->op] == 1 ? third : f->b) + 1);
  }
}

static void compile_row_op(compiler *x, int i) {
  const limn_instr *ins = &x->g->code[i];
  int arity = compile_arity[ins->op];
  prog_op *o;
  limn_elem_forms *fn =
      x->k->row[compile_row[ins->op] - 1][compile_et(ins->ctype)];
  if (!fn) {
    compile_refuse(x, ins);
    return;
  }
  if (x->v[i].absorbs) {
    compile_paired(x, i);
    return;
  }
  if (!(o = compile_emit(x, i))) return;
  o->fn = fn;
  o->a = (uint16_t)(ins->a + 1);
  if (arity > 1) o->b = (uint16_t)(ins->b + 1);
  if (arity > 2) o->c = (uint16_t)(ins->c + 1);
  o->all = (uint8_t)((1 << arity) - 1);
}

static void compile_generator(compiler *x, int i) {
  const limn_instr *ins = &x->g->code[i];
  int et = compile_et(ins->dtype);
  limn_elem_forms *fn = NULL;
  prog_op *o;
  switch (ins->op) {
    case OP_arange: fn = COMPILE_FORM(arange, [et]); break;
    case OP_randint: fn = COMPILE_FORM(randint, [et]); break;
    case OP_rand_bits:
      if (et == LIMN_ET_I64) fn = (limn_elem_forms *)&x->k->rand_bits;
      break;
    case OP_rand: fn = COMPILE_FORM(rand, [ins->dtype]); break;
    case OP_randn:
      if (et <= LIMN_ET_F64) fn = COMPILE_FORM(randn, [et]);
      break;
  }
  if (!fn || !*fn) {
    compile_refuse(x, ins);
    return;
  }
  if (!(o = compile_emit(x, i))) return;
  o->fn = fn;
  o->gen = true;
  o->arg = ins->arg;
  if (ins->op != OP_arange && ins->op != OP_randint) return;
  o->a = (uint16_t)(ins->a + 1);
  o->b = (uint16_t)(ins->b + 1);
}

/* Floats to the narrow ints are clipped, ints wrap (in compile_round). */
static void compile_cast(compiler *x, int i) {
  const limn_instr *ins = &x->g->code[i];
  int from = compile_et(x->g->code[ins->a].dtype), to = compile_et(ins->dtype);
  bool narrow = ins->dtype == LIMN_I8 || ins->dtype == LIMN_U8;
  if (from <= LIMN_ET_F64 && narrow) {
    compile_unary(x, i, COMPILE_FORM(clip, [from][ins->dtype == LIMN_U8]),
                  ins->a);
    return;
  }
  if (from == to) { /* rounding alone makes the copy */
    if (x->k->round[ins->dtype])
      compile_unary(x, i, COMPILE_FORM(round, [ins->dtype]), ins->a);
    else
      compile_unary(x, i, x->k->copy[compile_log2(ins->dtype)], ins->a);
    return;
  }
  compile_unary(x, i, COMPILE_FORM(cast, [from][to]), ins->a);
  compile_round(x, i, ins->dtype);
}

static void compile_store(compiler *x, int i) {
  const limn_instr *ins = &x->g->code[i];
  int dtype = x->out_dtype[ins->arg], a = ins->a;
  const limn_instr *value = &x->g->code[a];
  bool plain = !x->k->store[dtype];
  if (compile_et(value->dtype) != compile_et(dtype)) {
    x->rc = limn_fail(x->c, LIMN_EDTYPE, "a group stores %s as %s",
                      limn_dtype_name(value->dtype), limn_dtype_name(dtype));
    return;
  }
  if (plain && !x->safe && x->v[a].home < 0 && !x->v[a].konst &&
      value->op != LIMN_I_LOAD) {
    x->v[a].home = (int16_t)ins->arg;
    return;
  }
  compile_unary(x, -1 - ins->arg,
                plain ? x->k->copy[compile_log2(dtype)]
                      : COMPILE_FORM(store, [dtype]), a);
  if (!x->rc)
    x->p->op[x->nop - 1].fill = (uint8_t)(1 + x->p->out_size[ins->arg]);
}

static void compile_instr(compiler *x, int i) {
  const limn_instr *ins = &x->g->code[i];
  if (x->v[i].absorbed) return;
  if (ins->op == LIMN_I_LOAD) {
    int dtype = x->in_dtype[ins->arg];
    limn_elem_forms *fn = COMPILE_FORM(load, [dtype]);
    if (compile_in_place(x, ins)) return;
    if (!*fn) fn = x->k->copy[compile_log2(dtype)];
    compile_unary(x, i, fn, 0);
    if (!x->rc) x->p->op[x->nop - 1].a = (uint16_t)(0x8000 | ins->arg);
  } else if (ins->op == LIMN_I_CAST) {
    compile_cast(x, i);
  } else if (compile_is_e(ins->op)) {
    compile_row_op(x, i);
    if (!x->rc) compile_round(x, i, ins->dtype);
  } else if (ins->op < LIMN_NOP) {
    compile_generator(x, i);
    if (!x->rc && ins->op != OP_rand) compile_round(x, i, ins->dtype);
  }
}

/* Hoisted ops first, then the rest, then (safe) the stores. */
static int compile_emit_all(compiler *x) {
  int i, pass;
  for (pass = 0; pass < 3; pass++) {
    for (i = 0; i < x->g->ncode && !x->rc; i++) {
      bool store = x->g->code[i].op == LIMN_I_STORE;
      if (store ? pass == (x->safe ? 2 : 1) : pass == !x->v[i].konst) {
        if (store)
          compile_store(x, i);
        else
          compile_instr(x, i);
      }
    }
    if (!pass) x->p->npre = (uint16_t)x->nop;
  }
  return x->rc;
}

/* -- Places -- */

typedef struct {
  uint16_t free[3][PROG_LOCS]; /* slots, by element size 1, 4, 8 */
  int nfree[3];
  int64_t slots, numbers; /* bytes: per element of a tile; once */
} compile_pool;

static int compile_class(int log2) { return log2 == 3 ? 2 : log2 == 2 ? 1 : 0; }

static uint16_t compile_new_loc(compiler *x) {
  if (x->p->nloc == PROG_LOCS && !x->rc)
    x->rc = limn_fail(x->c, LIMN_EUNSUPPORTED,
                      "a fused group of %d instructions has too many values",
                      x->g->ncode);
  return x->rc ? 0 : x->p->nloc++;
}

/* Offsets are kept as bytes << 1 for numbers, as bytes per element << 1 | 1
 * for slots, until the tile is known. */
static uint16_t compile_number_loc(compiler *x, compile_pool *l) {
  uint16_t loc = compile_new_loc(x);
  if (x->rc) return 0;
  x->p->at[loc] = (uint32_t)l->numbers << 1;
  l->numbers += PROG_ONE;
  return loc;
}

static uint16_t compile_slot(compiler *x, compile_pool *l, int log2) {
  int class = compile_class(log2);
  uint16_t loc;
  if (l->nfree[class]) return l->free[class][--l->nfree[class]];
  loc = compile_new_loc(x);
  if (x->rc) return 0;
  x->p->at[loc] = (uint32_t)l->slots << 1 | 1;
  l->slots += 1 << log2;
  return loc;
}

static void compile_last_uses(compiler *x) {
  uint32_t k;
  for (k = 0; k < x->nop; k++) {
    const prog_op *o = &x->p->op[k];
    if (o->a && !(o->a & 0x8000)) x->v[o->a - 1].last = k;
    if (o->b) x->v[o->b - 1].last = k;
    if (o->c) x->v[o->c - 1].last = k;
  }
}

/* The location of an operand; frees its slot after its last use. */
static uint16_t compile_place(compiler *x, compile_pool *l, uint16_t ref,
                              uint32_t k) {
  compile_value *v;
  int i;
  if (!ref) return 0;
  if (ref & 0x8000) return (uint16_t)(1 + (ref & 0x7fff));
  i = ref - 1;
  v = &x->v[i];
  if (v->last == k && !v->konst && v->loc > x->nin + x->nout) {
    int class = compile_class(compile_log2(x->g->code[i].dtype)), n;
    uint16_t *list = l->free[class];
    for (n = 0; n < l->nfree[class]; n++)
      if (list[n] == v->loc) return v->loc; /* a op a: freed already */
    if (x->from[k] != i) list[l->nfree[class]++] = v->loc;
  }
  return v->loc;
}

static void compile_place_op(compiler *x, compile_pool *l, uint32_t k) {
  prog_op *o = &x->p->op[k];
  int i = x->from[k], lg;
  compile_value *v;
  o->a = compile_place(x, l, o->a, k);
  o->b = compile_place(x, l, o->b, k);
  o->c = compile_place(x, l, o->c, k);
  if (i < 0) { /* a store */
    o->o = (uint16_t)(1 + x->nin + (-1 - i));
    return;
  }
  v = &x->v[i];
  lg = compile_log2(x->g->code[i].dtype);
  if (!v->loc)
    v->loc = v->konst       ? compile_number_loc(x, l)
             : v->home >= 0 ? (uint16_t)(1 + x->nin + v->home)
                            : compile_slot(x, l, lg);
  o->o = v->loc;
  if (v->home >= 0) o->fill = (uint8_t)(1 + lg);
}

/* Numbers and inputs read in place have their location before any op. */
static int compile_place_all(compiler *x, compile_pool *l) {
  limn_cpu_prog *p = x->p;
  uint32_t k;
  int i;
  p->nloc = (uint16_t)(1 + x->nin + x->nout);
  for (i = 0; i < x->g->ncode && !x->rc; i++) {
    const limn_instr *ins = &x->g->code[i];
    if (ins->op == LIMN_I_IMM) {
      x->v[i].loc = compile_number_loc(x, l);
      p->imm[p->nimm++] = (prog_imm){ins->arg, x->v[i].loc, ins->dtype};
    } else if (ins->op == LIMN_I_LOAD && compile_in_place(x, ins)) {
      x->v[i].loc = (uint16_t)(1 + ins->arg);
    }
  }
  compile_last_uses(x);
  for (k = 0; k < x->nop && !x->rc; k++) compile_place_op(x, l, k);
  return x->rc;
}

/* The largest tile whose slots fit; half when there are many arrays, whose
 * lines would push each other out of the L1 cache. */
static int compile_tile(compiler *x, const compile_pool *l) {
  limn_cpu_prog *p = x->p;
  int64_t room = PROG_SCRATCH - l->numbers;
  int i;
  p->tile = PROG_TILE;
  if (l->slots / 4 + x->nin + x->nout > 12) p->tile /= 2;
  while (p->tile > LIMN_ELEM_PAD && l->slots * p->tile > room) p->tile /= 2;
  if (l->slots * p->tile > room)
    return limn_fail(x->c, LIMN_EUNSUPPORTED,
                     "a fused group of %d instructions is too large",
                     x->g->ncode);
  for (i = 1 + x->nin + x->nout; i < p->nloc; i++)
    p->at[i] = p->at[i] & 1
                   ? (uint32_t)(l->numbers + (p->at[i] >> 1) * p->tile)
                   : p->at[i] >> 1;
  return 0;
}

/* Rough nanoseconds per element. */
static double compile_cost(const compiler *x) {
  double sum = 0, arrays = 0.03 * (x->nin + x->nout);
  int i;
  for (i = 0; i < x->g->ncode; i++) {
    const limn_instr *ins = &x->g->code[i];
    double c = ins->op < LIMN_NOP ? limn_prog_row_cost(ins->op)
               : ins->op == LIMN_I_CAST ? 0.04 : 0;
    int et = compile_et(ins->ctype);
    if (x->v[i].konst) continue;
    if (compile_is_e(ins->op) && et != LIMN_ET_F32) c *= 2.5;
    if (compile_is_e(ins->op) && et > LIMN_ET_F64 &&
        (ins->op == OP_floor_div || ins->op == OP_remainder ||
         ins->op == OP_pow)) c += 3;
    if (x->k->name[0] == 'b' && c > 0.05) c *= 3; /* base */
    sum += c;
  }
  return sum + arrays;
}

/* Inputs that are read after an output was written directly. */
static bool compile_hazards(compiler *x) {
  uint32_t k, j, any = 0;
  for (k = x->p->npre; k < x->nop; k++) {
    int out = x->p->op[k].o - 1 - x->nin;
    if (out < 0 || out >= x->nout) continue;
    for (j = k + 1; j < x->nop; j++) {
      const prog_op *o = &x->p->op[j];
      uint32_t late = 0;
      if (o->a && o->a <= x->nin) late |= 1u << (o->a - 1);
      if (o->b && o->b <= x->nin) late |= 1u << (o->b - 1);
      if (o->c && o->c <= x->nin) late |= 1u << (o->c - 1);
      x->p->late[out] |= late & ~x->ones;
    }
    any |= x->p->late[out];
  }
  return any != 0;
}

/* -- One program -- */

/* The program with room for the most ops there can be. */
static int compile_alloc(compiler *x) {
  size_t n = (size_t)x->g->ncode + 1, head = sizeof(limn_cpu_prog);
  size_t op = 2 * n * sizeof(prog_op);
  size_t imm = (n * sizeof(prog_imm) + 7) & ~(size_t)7;
  size_t bytes = head + op + imm + PROG_LOCS * sizeof(uint32_t);
  char *m = limn_alloc(x->c, bytes);
  int k;
  if (!m) return LIMN_EMEM;
  x->p = (limn_cpu_prog *)m;
  x->p->bytes = bytes;
  x->p->k = x->k;
  x->p->op = (prog_op *)(m + head);
  x->p->imm = (prog_imm *)(m + head + op);
  x->p->at = (uint32_t *)(m + head + op + imm);
  x->p->nin = (uint8_t)x->nin;
  x->p->nout = (uint8_t)x->nout;
  for (k = 0; k < x->nin; k++)
    x->p->in_size[k] = (uint8_t)prog_log2(limn_dtype_size(x->in_dtype[k]));
  for (k = 0; k < x->nout; k++)
    x->p->out_size[k] = (uint8_t)prog_log2(limn_dtype_size(x->out_dtype[k]));
  return 0;
}

static int compile_run(compiler *x, bool *hazards) {
  compile_pool *l = limn_alloc(x->c, sizeof *l);
  int rc = l ? 0 : LIMN_EMEM;
  if (!rc) {
    compile_scan(x);
    compile_find_pairs(x);
    rc = compile_emit_all(x);
  }
  if (!rc) rc = compile_place_all(x, l);
  if (!rc) rc = compile_tile(x, l);
  if (!rc) {
    x->p->nop = (uint16_t)(x->nop - x->p->npre);
    x->p->cost = compile_cost(x);
    *hazards = compile_hazards(x);
  }
  if (l) limn_free(x->c, l, sizeof *l);
  return rc;
}

/* Compile with stores where they fall, or (safe) at the end. */
static int compile_once(compiler *base, bool safe, limn_cpu_prog **out,
                        bool *hazards) {
  compiler x = *base;
  size_t n = (size_t)x.g->ncode + 1, from = n * sizeof *x.v;
  size_t bytes = from + 2 * n * sizeof *x.from;
  int rc = 0;
  *hazards = false;
  x.safe = safe;
  LIMN_GO(compile_alloc(&x));
  rc = LIMN_EMEM;
  if (!(x.v = limn_alloc(x.c, bytes))) goto bail;
  x.from = (int32_t *)((char *)x.v + from);
  rc = compile_run(&x, hazards);
bail:
  if (x.v) limn_free(x.c, x.v, bytes);
  if (rc < 0 && x.p) limn_free(x.c, x.p, x.p->bytes);
  *out = rc < 0 ? NULL : x.p;
  return rc;
}

int limn_prog_new(limn_context *c, const limn_group *g,
                  const uint8_t *in_dtype, int nin, const uint8_t *out_dtype,
                  int nout, uint32_t ones, limn_cpu_prog **out) {
  compiler x = {.c = c, .g = g, .in_dtype = in_dtype, .out_dtype = out_dtype,
                .nin = nin, .nout = nout, .ones = ones};
  bool hazards;
  int rc;
  *out = NULL;
  if (nin > LIMN_STEP_IN || nout > LIMN_STEP_OUT || g->ncode > 0x7000)
    return limn_fail(c, LIMN_EUNSUPPORTED, "a fused group is too large");
  x.k = limn_elem_select(c->flags.isa);
  LIMN_TRY(compile_once(&x, false, out, &hazards));
  if (!hazards) return 0;
  rc = compile_once(&x, true, &(*out)->safe, &hazards);
  if (rc < 0) limn_cpu_prog_free(c, *out), *out = NULL;
  return rc;
}

int limn_cpu_prog_new(limn_context *c, const limn_group *g,
                      const uint8_t *in_dtype, int nin,
                      const uint8_t *out_dtype, int nout,
                      limn_cpu_prog **out) {
  return limn_prog_new(c, g, in_dtype, nin, out_dtype, nout, 0, out);
}

void limn_cpu_prog_free(limn_context *c, limn_cpu_prog *p) {
  if (!p) return;
  limn_cpu_prog_free(c, p->safe);
  limn_free(c, p, p->bytes);
}
