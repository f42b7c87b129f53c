/* The builder: appends nodes to a graph; the first failure sticks. */
#include "graph.h"

limn_arg limn_build(limn_builder *b, int op, const limn_arg *a, int n) {
  limn_ref r;
  if (b->rc) return limn_none();
  r = limn_graph_add(b->g, op, a, n, b->line, b->path);
  if (r) return limn_aref(r);
  b->rc = LIMN_EMEM;
  return limn_none();
}

limn_arg limn_build1(limn_builder *b, int op, limn_arg x) {
  return limn_build(b, op, &x, 1);
}

limn_arg limn_build2(limn_builder *b, int op, limn_arg x, limn_arg y) {
  limn_arg a[2] = {x, y};
  return limn_build(b, op, a, 2);
}

limn_arg limn_build3(limn_builder *b, int op, limn_arg x, limn_arg y,
                     limn_arg z) {
  limn_arg a[3] = {x, y, z};
  return limn_build(b, op, a, 3);
}

limn_arg limn_build_list(limn_builder *b, const limn_arg *a, int n) {
  limn_arg l = {0};
  if (b->rc) return l;
  l.tag = LIMN_A_LIST;
  l.n = (uint32_t)n;
  b->rc = limn_graph_push_args(b->g, a, (uint32_t)n, &l.u.at);
  return b->rc ? limn_none() : l;
}

int limn_arg_rank(const limn_builder *b, limn_arg a) {
  const limn_node *n;
  if (a.tag != LIMN_A_REF || !a.u.ref) return 0;
  n = limn_graph_node(b->g, a.u.ref);
  return n->kind == LIMN_V_TENSOR ? n->rank : 0;
}
