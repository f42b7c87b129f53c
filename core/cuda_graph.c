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

int cuda_recorded(limn_gpu *g, void **replay) {
  cuda_dev *d = cuda_of(g);
  const cu_api *f = &d->l->f;
  cuda_graph *made = replay ? limn_alloc(g->c, sizeof *made) : NULL;
  cu_graph graph = NULL;
  cu_exec exec = NULL;
  int code, rc = cuda_enter(d);
  if (rc < 0) goto bail;
  code = f->StreamEndCapture(d->stream, &graph);
  if (!code && made) code = f->GraphInstantiate(&exec, graph, 0);
  if (graph && (code || !made)) f->GraphDestroy(graph);
  cuda_leave(d);
  if (code) rc = cuda_fail(d, code, "cuGraphInstantiate");
  else if (replay && !made) rc = LIMN_EMEM;
bail:
  if (rc == 0 && made) {
    *made = (cuda_graph){graph, exec};
    *replay = made;
  } else if (made) {
    limn_free(g->c, made, sizeof *made);
  }
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

/* It may still run. */
void cuda_unreplay(limn_gpu *g, void *replay) {
  cuda_dev *d = cuda_of(g);
  cuda_graph *made = replay;
  if (cuda_enter(d) == 0) {
    d->l->f.StreamSynchronize(d->stream);
    d->l->f.GraphExecDestroy(made->exec);
    d->l->f.GraphDestroy(made->graph);
    cuda_leave(d);
  }
  limn_free(g->c, made, sizeof *made);
}
