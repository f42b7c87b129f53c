/* Captured graphs: capture, instantiation, new parameters, launch. */
#include "standin.h"

#include <stdlib.h>
#include <string.h>

struct cu_exec {
  standin_object o;
  standin_op *first, **last;
  int count;
  struct cu_graph *from; /* whose nodes name those of the copy */
};

void standin_graph_add(struct cu_graph *g, standin_op *op) {
  struct cu_node *n = standin_object_new(SI_NODE, sizeof *n, g->o.owner);
  n->graph = g;
  g->tail = op->node = n;
  *g->last = op;
  g->last = &op->next;
  g->count++;
}

static void graph_drop(standin_op *op) {
  while (op) {
    standin_op *next = op->next;
    standin_op_free(op);
    op = next;
  }
}

STANDIN_API int cuStreamBeginCapture_v2(cu_stream s, int mode) {
  static uint64_t id;
  ENTER(cuStreamBeginCapture_v2);
  CHECK(s, SI_STREAM);
  if (s->capture || mode < 0 || mode > CU_CAPTURE_RELAXED)
    return standin_bad(SI_INVALID_VALUE, "captured already, or mode %d", mode);
  s->capture = standin_object_new(SI_GRAPH, sizeof *s->capture, s->o.owner);
  s->capture->last = &s->capture->first;
  s->mode = mode;
  s->capture_id = ++id;
  s->spoilt = false;
  return 0;
}

/* It ends the capture even when it fails. */
STANDIN_API int cuStreamEndCapture(cu_stream s, cu_graph *out) {
  struct cu_graph *g;
  ENTER_ANYHOW(cuStreamEndCapture);
  *out = NULL;
  CHECK(s, SI_STREAM);
  g = s->capture;
  if (!g) return standin_bad(SI_INVALID_VALUE, "nothing is captured");
  s->capture = NULL;
  if (s->spoilt || failed_) {
    graph_drop(g->first);
    standin_object_end(g);
    return failed_ ? failed_ : SI_CAPTURE_INVALIDATED;
  }
  *out = g;
  return 0;
}

STANDIN_API int cuStreamGetCaptureInfo_v2(cu_stream s, int *status,
                                          uint64_t *id, cu_graph *graph,
                                          const cu_node **nodes, size_t *n) {
  ENTER(cuStreamGetCaptureInfo_v2);
  CHECK(s, SI_STREAM);
  *status = s->spoilt ? 2 : s->capture ? CU_CAPTURE_ACTIVE : 0;
  if (!s->capture) return 0;
  if (id) *id = s->capture_id;
  if (graph) *graph = s->capture;
  if (nodes) *nodes = &s->capture->tail;
  if (n) *n = s->capture->tail ? 1 : 0;
  return 0;
}

STANDIN_API int cuGraphDestroy(cu_graph g) {
  ENTER(cuGraphDestroy);
  CHECK(g, SI_GRAPH);
  graph_drop(g->first);
  standin_object_end(g);
  return 0;
}

STANDIN_API int cuGraphInstantiateWithFlags(cu_exec *out, cu_graph g,
                                            unsigned long long flags) {
  const standin_op *op;
  struct cu_exec *x;
  ENTER(cuGraphInstantiateWithFlags);
  CHECK(g, SI_GRAPH);
  if (flags) return standin_bad(SI_INVALID_VALUE, "flags %llu", flags);
  x = standin_object_new(SI_EXEC, sizeof *x, g->o.owner);
  x->from = g;
  x->last = &x->first;
  for (op = g->first; op; op = op->next) {
    *x->last = standin_op_copy(op);
    x->last = &(*x->last)->next;
    x->count++;
  }
  *out = x;
  return 0;
}

STANDIN_API int cuGraphExecDestroy(cu_exec x) {
  ENTER(cuGraphExecDestroy);
  CHECK(x, SI_EXEC);
  graph_drop(x->first);
  standin_object_end(x);
  return 0;
}

STANDIN_API int cuGraphExecKernelNodeSetParams(cu_exec x, cu_node node,
                                               const cu_node_params *p) {
  standin_launch l = {0};
  standin_op *op;
  int rc;
  ENTER(cuGraphExecKernelNodeSetParams);
  CHECK(x, SI_EXEC);
  CHECK(node, SI_NODE);
  CHECK(node->graph, SI_GRAPH);
  for (op = x->first; op && op->node != node; op = op->next) {}
  if (!op || op->kind != SI_OP_KERNEL)
    return standin_bad(SI_INVALID_VALUE, "no kernel's node of this graph");
  rc = standin_launch_fill(&l, p);
  if (!rc) rc = standin_launch_check(x->o.owner, &l, true);
  if (rc) {
    free(l.param);
    return rc;
  }
  free(op->launch.param);
  op->launch = l;
  return 0;
}

static int graph_nodes;

/* Nodes of the graphs that were launched so far. */
STANDIN_API int standin_graph_nodes(void) { return graph_nodes; }

/* What is launched is a copy: later changes to the graph come too late. */
STANDIN_API int cuGraphLaunch(cu_exec x, cu_stream s) {
  const standin_op *from;
  int rc;
  ENTER(cuGraphLaunch);
  CHECK(x, SI_EXEC);
  CHECK(s, SI_STREAM);
  rc = standin_not_capturing(s, "a graph");
  graph_nodes += x->count;
  for (from = x->first; from && !rc; from = from->next) {
    if (from->kind == SI_OP_KERNEL)
      rc = standin_launch_check(s->o.owner, &from->launch, true);
    else if (from->kind == SI_OP_GEMM)
      rc = standin_gemm_check(s->o.owner, from->gemm, true);
    else if (from->kind == SI_OP_DNN)
      rc = standin_dnn_check(s->o.owner, from->dnn, true);
    if (!rc) rc = standin_queue(s, standin_op_copy(from));
  }
  return rc;
}
