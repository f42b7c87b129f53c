/* Launches recorded as a CUDA graph, whose kernels take new parameters. */
#include "dev_cuda.h"

typedef struct {
  cu_graph graph; /* its nodes name those of exec */
  cu_exec exec;
} cuda_graph;

/* Relaxed: cuBLAS may do what other modes of capture forbid. */
int cuda_record(limn_gpu *g) {
  cuda_dev *d = cuda_of(g);
  int code;
  LIMN_TRY(cuda_enter(d));
  code = d->l->f.StreamBeginCapture(d->stream, CU_CAPTURE_RELAXED);
  cuda_leave(d);
  return code ? cuda_fail(d, code, "cuStreamBeginCapture") : 0;
}

/* On one stream what comes next depends on what came last, and only on that. */
int cuda_node(limn_gpu *g, void **node) {
  cuda_dev *d = cuda_of(g);
  const cu_node *last = NULL;
  cu_graph graph;
  uint64_t id;
  size_t n = 0;
  int status = 0, code;
  LIMN_TRY(cuda_enter(d));
  code = d->l->f.StreamGetCaptureInfo(d->stream, &status, &id, &graph, &last,
                                      &n);
  *node = !code && status == CU_CAPTURE_ACTIVE && n == 1 ? last[0] : NULL;
  cuda_leave(d);
  if (*node) return 0;
  return cuda_fail(d, code ? code : CU_E_NOT_SUPPORTED,
                   "cuStreamGetCaptureInfo");
}

static void graph_free(cuda_dev *d, cuda_graph *made) {
  /* It may still run. */
  d->l->f.StreamSynchronize(d->stream);
  d->l->f.GraphExecDestroy(made->exec);
  d->l->f.GraphDestroy(made->graph);
}

/* An executable graph of its own, in the place of an older one. The older is
 * never updated: cuBLAS launches as many kernels as it likes, so that a handle
 * could then name another kernel than the one that it was noted for. */
static int graph_make(cuda_dev *d, cuda_graph **made, cu_graph graph) {
  cuda_graph *m = *made;
  cu_exec exec = NULL;
  int code;
  if (!m && !(m = limn_alloc(d->gpu.c, sizeof *m))) {
    d->l->f.GraphDestroy(graph);
    return LIMN_EMEM;
  }
  code = d->l->f.GraphInstantiate(&exec, graph, 0);
  if (*made) graph_free(d, *made);
  *made = m;
  if (!code) {
    *m = (cuda_graph){graph, exec};
    return 0;
  }
  d->l->f.GraphDestroy(graph);
  limn_free(d->gpu.c, m, sizeof *m);
  *made = NULL;
  return cuda_fail(d, code, "cuGraphInstantiate");
}

int cuda_recorded(limn_gpu *g, void **replay) {
  cuda_dev *d = cuda_of(g);
  cuda_graph *made = replay ? *replay : NULL;
  cu_graph graph = NULL;
  int code, rc;
  LIMN_TRY(cuda_enter(d));
  code = d->l->f.StreamEndCapture(d->stream, &graph);
  if (code) {
    rc = cuda_fail(d, code, "cuStreamEndCapture");
  } else if (!replay) {
    rc = 0;
    d->l->f.GraphDestroy(graph);
  } else {
    rc = graph_make(d, &made, graph);
    *replay = made;
  }
  cuda_leave(d);
  return rc;
}

int cuda_rebind(limn_gpu *g, void *replay, void *node,
                const limn_gpu_launch *l, void *const *mem,
                const int64_t *num) {
  cuda_dev *d = cuda_of(g);
  cuda_graph *made = replay;
  cuda_params p;
  cu_node_params to = {.func = l->kernel, .block = {l->local, 1, 1}};
  int i, code;
  cuda_params_set(&p, mem, (int)l->args.nmem, num);
  for (i = 0; i < 3; i++) to.grid[i] = (unsigned)l->groups[i];
  to.params = p.list;
  LIMN_TRY(cuda_enter(d));
  code = d->l->f.GraphSetParams(made->exec, node, &to);
  cuda_leave(d);
  return code ? cuda_fail(d, code, "cuGraphExecKernelNodeSetParams") : 0;
}

int cuda_replay(limn_gpu *g, void *replay) {
  cuda_dev *d = cuda_of(g);
  cuda_graph *made = replay;
  int code;
  LIMN_TRY(cuda_enter(d));
  code = d->l->f.GraphLaunch(made->exec, d->stream);
  cuda_leave(d);
  return code ? cuda_fail(d, code, "cuGraphLaunch") : 0;
}

void cuda_unreplay(limn_gpu *g, void *replay) {
  cuda_dev *d = cuda_of(g);
  cuda_graph *made = replay;
  if (cuda_enter(d) == 0) {
    graph_free(d, made);
    cuda_leave(d);
  }
  limn_free(g->c, made, sizeof *made);
}
