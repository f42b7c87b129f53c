/* Compiled groups on the CPU: what cpu_prog.c and cpu_group.c share. */
#ifndef LIMN_CPU_PROG_H
#define LIMN_CPU_PROG_H

#include "cpu_elem.h"
#include "cpu_elem_kernels.h"
#include "device.h"

enum {
  PROG_TILE = 256,     /* elements, at most; a multiple of LIMN_ELEM_PAD */
  PROG_LOCS = 512,     /* locations of a program, at most */
  PROG_SCRATCH = 32768, /* bytes for the slots of a tile */
  PROG_ONE = 128       /* bytes of LIMN_ELEM_PAD copies of one element */
};

/* One kernel call. Operands are locations: 0 is none, then come the inputs as
 * they are stored, the outputs, numbers, and slots. */
typedef struct {
  limn_elem_forms *fn;
  limn_elem_forms *x, *y; /* pairs: the two rows, for forms that fn lacks */
  uint16_t o, a, b, c;
  uint8_t all;   /* the form in which every operand is one element */
  uint8_t fill;  /* o is an output: 1 + log2 of its element size */
  bool right;    /* pairs: the first result is operand 2 of the second row */
  bool gen;      /* a generator: takes a limn_elem_gen as `c` */
  uint16_t arg;  /* its draw */
} prog_op;

typedef struct {
  uint16_t arg, loc;
  uint8_t dtype;
} prog_imm;

struct limn_cpu_prog {
  size_t bytes;
  const limn_elem_kernels *k;
  /* The same program with all stores at its end, for runs where an output is
   * the memory of an input that `late` says is read after it was written. */
  limn_cpu_prog *safe;
  uint32_t late[LIMN_STEP_OUT]; /* bit per input */
  uint8_t nin, nout;
  uint8_t in_size[LIMN_STEP_IN], out_size[LIMN_STEP_OUT]; /* log2 */
  uint16_t nloc, nimm, npre, nop;
  uint16_t tile;
  double cost; /* ns per element */
  prog_op *op;  /* npre run once, then nop per tile */
  prog_imm *imm;
  uint32_t *at; /* by location: offset in frame->scratch */
};

/* The state of one run, on the stack. one[loc]: the value is the same for all
 * elements and p[loc] points to LIMN_ELEM_PAD copies of it. */
typedef struct {
  void *p[PROG_LOCS];
  uint8_t one[PROG_LOCS];
  const limn_draw *draw;
  _Alignas(64) char spare[PROG_ONE];
  char pad[LIMN_STEP_IN + LIMN_STEP_OUT][PROG_ONE]; /* by operand */
  char scratch[PROG_SCRATCH];
} prog_frame;

/* As limn_cpu_prog_new. `ones` marks inputs known to have one element. */
int limn_prog_new(limn_context *c, const limn_group *g,
                  const uint8_t *in_dtype, int nin, const uint8_t *out_dtype,
                  int nout, uint32_t ones, limn_cpu_prog **out);
/* Once per run: numbers and slots. Inputs in `ones` must be set before. */
void limn_prog_begin(const limn_cpu_prog *p, const limn_bind *b,
                     prog_frame *f);
/* LIMN_ELEM_PAD copies of the element at src, as location of operand k. */
void limn_prog_one(const limn_cpu_prog *p, prog_frame *f, int k,
                   const void *src);
/* One tile: all inputs and outputs are set; n <= p->tile. When n is no multiple
 * of LIMN_ELEM_PAD it must be less, and arrays are padded here. */
void limn_prog_tile(const limn_cpu_prog *p, prog_frame *f, int64_t n,
                    int64_t first);

/* Rough nanoseconds per element of a row in float32 with AVX-512. */
double limn_prog_row_cost(int op);

static inline int prog_log2(int size) {
  return size >= 8 ? 3 : size >= 4 ? 2 : size >> 1;
}

#endif
