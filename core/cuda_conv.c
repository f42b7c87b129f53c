/* Convolutions by cuDNN: loaded when a plan has the first one that is worth it.
 * The interface with descriptors is used, which versions 8 and 9 both have. A
 * convolution of one dim is one of two, the first of which has size 1. */
#include <limits.h>
#include <stdio.h>

#include "dev_cuda.h"

enum { DNN_DIMS = 5, DNN_ALGOS = 10 };

/* What a launch keeps. */
typedef struct {
  int op;
  cudnn_tensor x, y;
  cudnn_filter w;
  cudnn_conv conv;
  int algo;
  size_t workspace;
} dnn_plan;

/* -- Opening --------------------------------------------------------------- */

#define DNN_SYMBOL(name, symbol, args) {#symbol, offsetof(cudnn_api, name)},
static const cuda_symbol dnn_symbols[] = {CUDNN_FUNCTIONS(DNN_SYMBOL){NULL, 0}};
#undef DNN_SYMBOL

/* cuDNN is in parts. Its library loads one when something in it is first
 * called, and ends the process where that fails: so all that convolutions need
 * are loaded beforehand, from beside the library or from where others lie. */
static const char *const dnn_parts8[] = {
    "libcudnn_ops_infer.so.8", "libcudnn_cnn_infer.so.8",
    "libcudnn_ops_train.so.8", "libcudnn_cnn_train.so.8", NULL};
static const char *const dnn_parts9[] = {
    "libcudnn_graph.so.9", "libcudnn_ops.so.9", "libcudnn_cnn.so.9", NULL};

/* The first part that cannot be loaded. What has a name of its own has none. */
static const char *dnn_missing(void *lib, const char *path) {
  const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
  bool nine = limn_dl_sym(lib, "cudnnGetLastErrorString"); /* new in 9 */
  const char *const *part = nine ? dnn_parts9 : dnn_parts8;
  if (strncmp(name, "libcudnn.so", 11)) return NULL;
  for (; *part; part++) {
    char beside[1024];
    const char *names[2] = {beside, *part};
    snprintf(beside, sizeof beside, "%.*s%s", (int)(name - path), path, *part);
    if (!limn_dl_open(names, 2)) return *part;
  }
  return NULL;
}

/* Whether this one will do; the first reason why one does not is kept. */
static bool dnn_load_one(cuda_libs *l, const char *path, char *why, size_t n) {
  void *lib = limn_dl_open(&path, 1);
  const char *lacks, *part;
  if (!lib) return false;
  lacks = cuda_load(lib, &l->dnn, dnn_symbols);
  part = lacks ? NULL : dnn_missing(lib, path);
  if (!lacks && !part) {
    l->dnn_lib = lib;
    return true;
  }
  if (why[0]) return false;
  if (lacks)
    snprintf(why, n, "cuDNN lacks %s; 8 or 9 is needed", lacks);
  else
    snprintf(why, n, "cannot load %s of cuDNN, convolutions are slower without",
             part);
  return false;
}

void cuda_dnn_load(limn_context *c, cuda_libs *l) {
  static const char *const names[] = {
      "libcudnn.so.9", "libcudnn.so.8", CUDA_FOLDER "libcudnn.so.9",
      CUDA_FOLDER "libcudnn.so.8"};
  const char *named = c->flags.cudnn_lib;
  const char *const *list = named[0] ? &named : names;
  int n = named[0] ? 1 : LIMN_COUNT(names);
  char why[160] = "";
  if (l->dnn_tried) return;
  l->dnn_tried = true;
  if (!strcmp(named, "off")) return;
  for (int i = 0; i < n; i++)
    if (dnn_load_one(l, list[i], why, sizeof why)) return;
  if (why[0])
    limn_device_note(c, "cuda: %s", why);
  else
    limn_device_note(c, "cuda: cannot load %s, convolutions are slower without",
                     named[0] ? named : "libcudnn.so.9 or .8");
}

static int dnn_start(cuda_dev *d) {
  const cudnn_api *f = &d->l->dnn;
  int code = f->Create(&d->dnn);
  if (code) {
    d->dnn = NULL;
    return code;
  }
  code = f->SetStream(d->dnn, d->stream);
  if (code) cuda_dnn_close(d);
  return code;
}

static bool dnn_open(cuda_dev *d) {
  cuda_dnn_load(d->gpu.c, d->l);
  if (d->dnn || !d->l->dnn_lib || d->dnn_failed) return d->dnn != NULL;
  d->dnn_failed = !cuda_library_start(d, "cuDNN", dnn_start);
  return !d->dnn_failed;
}

void cuda_dnn_close(cuda_dev *d) {
  if (d->dnn) d->l->dnn.Destroy(d->dnn);
  d->dnn = NULL;
}

/* -- Descriptions ---------------------------------------------------------- */

static int dnn_type(int dtype) {
  return dtype == LIMN_F64   ? CUDNN_F64
         : dtype == LIMN_F32 ? CUDNN_F32
         : dtype == LIMN_F16 ? CUDNN_F16
                             : CUDNN_BF16;
}

/* Sizes as cuDNN takes them: ints, of two dims at least after the first two. */
static int dnn_dims(const limn_view *v, int *dim) {
  int nd = 0;
  for (int i = 0; i < v->ndim; i++) {
    if (i == 2 && v->ndim == 3) dim[nd++] = 1;
    dim[nd++] = (int)v->d[i];
  }
  return nd;
}

static int dnn_tensor(const cudnn_api *f, cudnn_tensor *t, int type,
                      const limn_view *v) {
  int dim[DNN_DIMS], stride[DNN_DIMS], nd = dnn_dims(v, dim), code;
  stride[nd - 1] = 1;
  for (int i = nd - 1; i > 0; i--) stride[i - 1] = stride[i] * dim[i];
  code = f->CreateTensor(t);
  return code ? code : f->SetTensor(*t, type, nd, dim, stride);
}

static int dnn_filter(const cudnn_api *f, cudnn_filter *w, int type,
                      const limn_view *v) {
  int dim[DNN_DIMS], nd = dnn_dims(v, dim), code;
  code = f->CreateFilter(w);
  return code ? code : f->SetFilter(*w, type, CUDNN_NCHW, nd, dim);
}

static int dnn_conv(const cudnn_api *f, cudnn_conv *conv, int dtype, int math,
                    const limn_conv *how) {
  int pad[DNN_DIMS] = {0}, stride[DNN_DIMS], dilation[DNN_DIMS], n = 0, code;
  if (how->n == 1) stride[0] = dilation[0] = 1, n = 1;
  for (int i = 0; i < how->n; i++, n++) {
    pad[n] = (int)how->padding[i];
    stride[n] = (int)how->stride[i];
    dilation[n] = (int)how->dilation[i];
  }
  code = f->CreateConv(conv);
  if (!code)
    code = f->SetConv(*conv, n, pad, stride, dilation, CUDNN_CORRELATION,
                      dtype == LIMN_F64 ? CUDNN_F64 : CUDNN_F32);
  if (!code) code = f->SetGroups(*conv, (int)how->groups);
  return code ? code : f->SetMath(*conv, math);
}

/* -- Algorithms ------------------------------------------------------------ */

/* What may compute: tensor cores for halves, which add up in float32; for
 * float32 only where TensorFloat-32 is allowed. */
static int dnn_math(const limn_context *c, int dtype) {
  if (dtype == LIMN_F32) return c->tf32 ? CUDNN_DEFAULT_MATH : CUDNN_FMA_MATH;
  return dtype == LIMN_F64 ? CUDNN_DEFAULT_MATH : CUDNN_TENSOR_MATH;
}

static int dnn_heuristic(cuda_dev *d, const dnn_plan *p, cudnn_found *found,
                         int *n) {
  const cudnn_api *f = &d->l->dnn;
  if (p->op == OP_conv)
    return f->FindForward(d->dnn, p->x, p->w, p->conv, p->y, DNN_ALGOS, n,
                          found);
  if (p->op == OP_conv_transpose)
    return f->FindData(d->dnn, p->w, p->y, p->conv, p->x, DNN_ALGOS, n, found);
  return f->FindFilter(d->dnn, p->x, p->y, p->conv, p->w, DNN_ALGOS, n, found);
}

static int dnn_workspace(cuda_dev *d, dnn_plan *p) {
  const cudnn_api *f = &d->l->dnn;
  if (p->op == OP_conv)
    return f->ForwardSpace(d->dnn, p->x, p->w, p->conv, p->y, p->algo,
                           &p->workspace);
  if (p->op == OP_conv_transpose)
    return f->DataSpace(d->dnn, p->w, p->y, p->conv, p->x, p->algo,
                        &p->workspace);
  return f->FilterSpace(d->dnn, p->x, p->y, p->conv, p->w, p->algo,
                        &p->workspace);
}

/* The first of what cuDNN recommends that keeps within our bounds. */
static bool dnn_choose(cuda_dev *d, dnn_plan *p, int math) {
  cudnn_found found[DNN_ALGOS];
  size_t most = 256 << 20, memory = 0;
  int n = 0;
  if (!d->l->f.DeviceTotalMem(&memory, d->id) && memory / 16 < most)
    most = memory / 16;
  if (dnn_heuristic(d, p, found, &n)) return false;
  for (int i = 0; i < n; i++) {
    const cudnn_found *a = &found[i];
    if (a->status || a->memory > most) continue;
    if (d->gpu.c->deterministic && a->determinism != CUDNN_DETERMINISTIC)
      continue;
    if (math == CUDNN_FMA_MATH) {
      if (a->math != math && a->math != CUDNN_DEFAULT_MATH) continue;
    } else if (d->l->dnn.SetMath(p->conv, a->math)) {
      continue;
    }
    p->algo = a->algo;
    if (!dnn_workspace(d, p) && p->workspace <= most) return true;
  }
  return false;
}

/* -- Plans ----------------------------------------------------------------- */

static void dnn_free(cuda_dev *d, dnn_plan *p) {
  const cudnn_api *f = &d->l->dnn;
  if (p->conv) f->DestroyConv(p->conv);
  if (p->w) f->DestroyFilter(p->w);
  if (p->y) f->DestroyTensor(p->y);
  if (p->x) f->DestroyTensor(p->x);
  limn_free(d->gpu.c, p, sizeof *p);
}

static void dnn_end(limn_gpu *g, const limn_gpu_call *call) {
  cuda_dev *d = cuda_of(g);
  if (cuda_enter(d) == 0) {
    dnn_free(d, call->plan);
    cuda_leave(d);
  }
}

static const void *dnn_scale(int dtype, bool one) {
  static const double wide[2] = {0, 1};
  static const float narrow[2] = {0, 1};
  return dtype == LIMN_F64 ? (const void *)&wide[one] : &narrow[one];
}

/* Operands: the result, two inputs, and the workspace if there is one. */
static int dnn_run(limn_gpu *g, const limn_gpu_call *call, void *const *mem,
                   const int64_t *off) {
  cuda_dev *d = cuda_of(g);
  const cudnn_api *f = &d->l->dnn;
  const dnn_plan *p = call->plan;
  const void *one = dnn_scale(call->dtype, true);
  const void *zero = dnn_scale(call->dtype, false);
  void *at[3], *space = p->workspace ? mem[3] : NULL;
  int code;
  for (int i = 0; i < 3; i++)
    at[i] = (void *)(uintptr_t)cuda_operand(call, mem[i], off[i]);
  LIMN_TRY(cuda_enter(d));
  if (p->op == OP_conv)
    code = f->Forward(d->dnn, one, p->x, at[1], p->w, at[2], p->conv, p->algo,
                      space, p->workspace, zero, p->y, at[0]);
  else if (p->op == OP_conv_transpose)
    code = f->Data(d->dnn, one, p->w, at[2], p->y, at[1], p->conv, p->algo,
                   space, p->workspace, zero, p->x, at[0]);
  else
    code = f->Filter(d->dnn, one, p->x, at[1], p->y, at[2], p->conv, p->algo,
                     space, p->workspace, zero, p->w, at[0]);
  cuda_leave(d);
  if (!code) return 0;
  return limn_fail(g->c, LIMN_EDEVICE, "CUDA: cuDNN failed with error %d",
                   code);
}

/* All sizes as ints, and none of 0, which an input may have; and y has as many
 * positions as cuDNN makes of x, which output_padding may exceed. */
static bool dnn_fits(const limn_step *s, const limn_view *x, const limn_view *w,
                     const limn_view *y) {
  const limn_conv *h = s->conv;
  const limn_view *all[3] = {x, w, y};
  if (h->n > 3) return false;
  for (int i = 0; i < 3; i++) {
    int64_t n = limn_numel(all[i]->ndim, all[i]->d);
    if (n == 0 || n > INT_MAX) return false;
  }
  for (int i = 0; i < h->n; i++) {
    int64_t most = LIMN_MAX(h->padding[i], h->stride[i]), span;
    if (LIMN_MAX(most, h->dilation[i]) > INT_MAX / 4) return false;
    span = (w->d[i + 2] - 1) * h->dilation[i] + 1;
    if ((x->d[i + 2] + 2 * h->padding[i] - span) / h->stride[i] + 1 !=
        y->d[i + 2])
      return false;
  }
  return true;
}

static dnn_plan *dnn_make(cuda_dev *d, const limn_step *s, const limn_view *x,
                          const limn_view *w, const limn_view *y) {
  const cudnn_api *f = &d->l->dnn;
  int dtype = s->out[0].dtype, type = dnn_type(dtype), code;
  int math = dnn_math(d->gpu.c, dtype);
  dnn_plan *p = limn_alloc(d->gpu.c, sizeof *p);
  if (!p) {
    limn_error_clear(d->gpu.c);
    return NULL;
  }
  p->op = s->op;
  code = dnn_tensor(f, &p->x, type, x);
  if (!code) code = dnn_tensor(f, &p->y, type, y);
  if (!code) code = dnn_filter(f, &p->w, type, w);
  if (!code) code = dnn_conv(f, &p->conv, dtype, math, s->conv);
  if (!code && dnn_choose(d, p, math)) return p;
  dnn_free(d, p);
  return NULL;
}

bool cuda_conv_worth(limn_gpu *g, const limn_step *s, limn_gpu_call *call,
                     size_t *workspace) {
  cuda_dev *d = cuda_of(g);
  bool back = s->op == OP_conv_transpose, weights = s->op == OP_conv_weights;
  const limn_view *x = back ? &s->out[0].v : &s->in[0].v;
  const limn_view *y = back      ? &s->in[0].v
                       : weights ? &s->in[1].v
                                 : &s->out[0].v;
  const limn_view *w = weights ? &s->out[0].v : &s->in[1].v;
  dnn_plan *p;
  double work = (double)limn_numel(y->ndim, y->d) *
                (double)limn_numel(w->ndim - 1, w->d + 1);
  if (!cuda_worth(d, s->out[0].dtype, work, true) || !dnn_fits(s, x, w, y))
    return false;
  if (cuda_enter(d) < 0) {
    limn_error_clear(g->c);
    return false;
  }
  p = dnn_open(d) ? dnn_make(d, s, x, w, y) : NULL;
  cuda_leave(d);
  if (!p) return false;
  call->plan = p;
  call->run = dnn_run;
  call->end = dnn_end;
  *workspace = p->workspace;
  return true;
}
