/* Inside grad_scan*.c: a scan's body, differentiated. */
#ifndef LIMN_GRAD_SCAN_H
#define LIMN_GRAD_SCAN_H

#include "pass.h"

enum { SCAN_SHAPE = 1, SCAN_VALUE = 2, SCAN_KEPT = 4 };

/* A part of the gradient of input `at`: fold(a' b) summed over all steps; b 0:
 * the rows of a summed; a 0: `rest`, to be carried. */
typedef struct {
  uint32_t at;
  limn_ref a, b, rest;
} scan_term;

typedef struct {
  limn_context *c;
  limn_builder w;          /* of the copy of the body */
  limn_ref nf;             /* its last forward node */
  uint32_t nc, nx, nin, ny; /* carried, stepped, all inputs; results */
  bool *on;                /* per input: its gradient is needed */
  limn_arg *grad;          /* per input: NONE or what it gets */
  limn_arg *sum;           /* per input: carried sum before this step */
  limn_ref *input;         /* per input: its node in the copy */
  limn_arg *seed;          /* per result: NONE or an input of the copy */
  scan_term *term;
  uint32_t nterm, term_cap;
  limn_arg *out;           /* results of the gradient's body */
  uint32_t nout, out_cap, ncarry;
  uint8_t *need;           /* per node */
  uint32_t nneed;
  limn_ref *kept;          /* residuals */
  uint32_t nkept, kept_cap;
} scan_grad;

/* A copy of the body, to be differentiated; s->on is to be filled. */
int scan_begin(scan_grad *s, const limn_graph *body, uint32_t nc, uint32_t nx);
void scan_end(scan_grad *s);
/* Differentiate it. given: which results have a gradient. */
int scan_body(scan_grad *s, const bool *given);
/* The body with the residuals as further results. `at`: their numbers. */
int scan_wider(const scan_grad *s, uint32_t *at, limn_graph **out);
/* Where a stacked result of the gradient's body is, or -1. */
int64_t scan_find(const scan_grad *s, limn_ref r);

#endif
