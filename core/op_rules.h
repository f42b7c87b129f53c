/* What the rows of the op table name: shape rules, view rules, expansions and
 * gradients, declared from ops.h itself; and helpers that the rules share. */
#ifndef LIMN_OP_RULES_H
#define LIMN_OP_RULES_H

#include "graph.h"

struct limn_builder;

/* A column may say NULL or NONE (there is nothing); OPR_HAS(x) is then 0, else
 * 1. It works on the token alone, so no column is evaluated. */
#define OPR_NULL ~, 0
#define OPR_NONE ~, 0
#define OPR_SECOND(a, b, ...) b
#define OPR_PICK(...) OPR_SECOND(__VA_ARGS__, 1, 0)
#define OPR_HAS(x) OPR_PICK(OPR_##x)
#define OPR_CAT(a, b) a##b
#define OPR_JOIN(a, b) OPR_CAT(a, b)

typedef limn_arg limn_expand_fn(struct limn_builder *b, const limn_arg *a);
typedef void limn_grad_fn(struct limn_builder *b, const limn_arg *a,
                          limn_arg y, limn_arg g, limn_arg *out);

/* -- shape_rules.c: of S rows; view_rules.c: of V rows -- */
#define S(name, sig, infer, rank, expand, grad, doc) \
  int infer(limn_context *c, const limn_type *a, limn_type *out);
#define V(name, sig, view, rank, grad, doc)                               \
  int view(limn_context *c, const limn_type *a, const limn_view *in,      \
           limn_view *out);
#include "ops.h"

/* -- expand.c: of S rows; grad.c: of S rows by their own names, and of E, R
 * and V rows as limn_grad_<op>, made from the row's expressions -- */
#define OPR_EXPAND_0(f)
#define OPR_EXPAND_1(f) limn_expand_fn f;
#define OPR_GRAD_0(f)
#define OPR_GRAD_1(f) limn_grad_fn f;
#define S(name, sig, infer, rank, expand, grad, doc)      \
  OPR_JOIN(OPR_EXPAND_, OPR_PICK(OPR_##expand))(expand)   \
  OPR_JOIN(OPR_GRAD_, OPR_PICK(OPR_##grad))(grad)
#define E1(name, ...) limn_grad_fn limn_grad_##name;
#define E2(name, ...) limn_grad_fn limn_grad_##name;
#define E3(name, ...) limn_grad_fn limn_grad_##name;
#define R(name, ...) limn_grad_fn limn_grad_##name;
#define V(name, ...) limn_grad_fn limn_grad_##name;
#include "ops.h"

/* -- op.c -- */
/* Position of a parameter in the row's signature, or -1. */
int limn_op_param(int op, const char *name);

/* -- op_rules.c: helpers of all rules, and the rules of E, R and G rows. Absent
 * arguments (LIMN_V_NONE) give the default where there is one. `what` names the
 * argument in messages. -- */
#define LIMN_MUST INT64_MIN /* as a default: there is none */
/* A host value as an int: whole reals count, unknown values fail. */
int limn_rule_int(limn_context *c, const limn_type *t, const char *what,
                  int64_t def, int64_t *out);
/* A list of ints of at most LIMN_MAXDIM * 2; one int is a list of one. */
int limn_rule_ints(limn_context *c, const limn_type *t, const char *what,
                   int64_t *out, int *n);
/* A dim of ndim, 1-based or negative, as 0-based. */
int limn_rule_dim(limn_context *c, const limn_type *t, int64_t def, int ndim,
                  int *out);
/* A list of different dims, 0-based. */
int limn_rule_dims(limn_context *c, const limn_type *t, int ndim, int *out,
                   int *n);
int limn_rule_bool(limn_context *c, const limn_type *t, const char *what,
                   bool def, bool *out);
int limn_rule_dtype(limn_context *c, const limn_type *t, int def, int *out);
/* A list of sizes as a shape. */
int limn_rule_shape(limn_context *c, const limn_type *t, limn_shape *out);
/* A tensor operand; a number becomes a 0-dim tensor. */
int limn_rule_tensor(limn_context *c, const limn_type *t, const char *what,
                     limn_type *out);
/* An int tensor of positions along a dim, and their base of 0 or 1. */
int limn_rule_index(limn_context *c, const limn_type *t, const limn_type *base,
                    limn_type *out);
/* *out = a tensor type; LIMN_ESIZE if it cannot be so large. */
int limn_rule_result(limn_context *c, int dtype, const limn_shape *s,
                     limn_type *out);
/* s without its masked dims, or with them as 1; *count is how many elements
 * go into one. */
int limn_rule_reduce(limn_context *c, const limn_shape *s,
                     const limn_type *dims, const limn_type *keep,
                     limn_shape *out, int64_t *count);
/* LIMN_EDTYPE for a whole number that an int dtype does not hold. */
int limn_rule_holds(limn_context *c, const limn_type *t, int dtype);
int limn_rule_elementwise(limn_context *c, int op, const limn_type *a,
                          limn_type *out);
int limn_rule_reduction(limn_context *c, int op, const limn_type *a,
                        limn_type *out);
int limn_rule_generator(limn_context *c, int op, const limn_type *a,
                        limn_type *out);
/* What slice takes from x (view_rules.c). */
int limn_rule_slice(limn_context *c, const limn_type *first,
                    const limn_type *last, const limn_type *step,
                    const limn_type *drop, const limn_view *in,
                    limn_view *out);
const char *limn_type_text(char *buf, size_t n, const limn_type *t);
/* What conv, conv_transpose or conv_weights is called with (conv_rules.c). */
int limn_rule_conv(limn_context *c, int op, const limn_type *a,
                   limn_conv *out);

/* -- infer_region.c -- */
/* The results of a region node as a list; *inside: an error has its place. */
int limn_infer_region(limn_infer *I, const limn_node *nd, const limn_arg *arg,
                      const limn_type *a, limn_type *out, bool *inside);

/* -- host.c -- */
/* The kind of a host value: of an elementwise op on kinds[n]. */
int limn_host_kind(int op, const int *kinds, int n);

#endif
