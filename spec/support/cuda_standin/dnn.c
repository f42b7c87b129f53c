/* cuDNN's convolutions by their definition, which run in the stream as kernels
 * do. What limn cannot ask for without a mistake is reported; what cuDNN may
 * refuse is not. */
#include "standin.h"

#include <stdlib.h>
#include <string.h>

enum { DNN_NOT_INITIALIZED = 1001, DNN_INVALID = 2000, DNN_UNSUPPORTED = 3000,
       DNN_FAILED = 5000 };
enum { DNN_MOST = 5, DNN_SMALL = 4096 };
enum { DNN_FAST = 1, DNN_STEADY = 0, DNN_MISSING = 6 }; /* algorithms */

struct cudnn_handle {
  standin_object o;
  struct cu_stream *stream;
};
struct cudnn_tensor {
  standin_object o;
  int type, nd, dim[DNN_MOST]; /* nd 0: nothing was set */
};
struct cudnn_filter {
  standin_object o;
  int type, nd, dim[DNN_MOST];
};
struct cudnn_conv {
  standin_object o;
  int n, pad[DNN_MOST], stride[DNN_MOST], dilation[DNN_MOST], type, groups,
      math;
};
#define HANDLE(h, kind)                                   \
  do {                                                    \
    if (standin_check(h, kind)) return DNN_INVALID;       \
  } while (0)

/* -- Handles and descriptions ---------------------------------------------- */

STANDIN_API int cudnnCreate(cudnn_handle *out) {
  struct cu_context *c;
  ENTER(cudnnCreate);
  if (standin_current(&c) || standin_unsafe("cudnnCreate"))
    return DNN_NOT_INITIALIZED;
  *out = standin_object_new(SI_DNN, sizeof **out, c);
  return 0;
}

STANDIN_API int cudnnDestroy(cudnn_handle h) {
  ENTER(cudnnDestroy);
  HANDLE(h, SI_DNN);
  standin_object_end(h);
  return 0;
}

STANDIN_API int cudnnSetStream(cudnn_handle h, cu_stream s) {
  ENTER(cudnnSetStream);
  HANDLE(h, SI_DNN);
  HANDLE(s, SI_STREAM);
  h->stream = s;
  return 0;
}

/* Descriptions belong to no context; that they count to one finds those that
 * were never destroyed. */
#define DNN_OBJECT(what, type, kind)                                   \
  STANDIN_API int cudnnCreate##what##Descriptor(type *out) {           \
    struct cu_context *c;                                              \
    ENTER(cudnnCreate##what##Descriptor);                              \
    if (standin_current(&c)) return DNN_NOT_INITIALIZED;               \
    *out = standin_object_new(kind, sizeof **out, c);                  \
    return 0;                                                          \
  }                                                                    \
  STANDIN_API int cudnnDestroy##what##Descriptor(type t) {             \
    ENTER(cudnnDestroy##what##Descriptor);                             \
    HANDLE(t, kind);                                                   \
    standin_object_end(t);                                             \
    return 0;                                                          \
  }
DNN_OBJECT(Tensor, cudnn_tensor, SI_DNN_TENSOR)
DNN_OBJECT(Filter, cudnn_filter, SI_DNN_FILTER)
DNN_OBJECT(Convolution, cudnn_conv, SI_DNN_CONV)

static int dnn_blas(int type) {
  return type == CUDNN_F64   ? CUBLAS_R_64F
         : type == CUDNN_F32 ? CUBLAS_R_32F
         : type == CUDNN_F16 ? CUBLAS_R_16F
                             : CUBLAS_R_16BF;
}

static int dnn_size(int type) {
  return type == CUDNN_F64 ? 8 : type == CUDNN_F32 ? 4 : 2;
}

static int dnn_dims(int type, int nd, const int *from, int *dim) {
  int64_t all = 1;
  int i;
  if (type != CUDNN_F64 && type != CUDNN_F32 && type != CUDNN_F16 &&
      type != CUDNN_BF16)
    return standin_bad(DNN_INVALID, "type %d", type);
  if (nd < 4 || nd > DNN_MOST)
    return standin_bad(DNN_INVALID, "%d dims", nd);
  for (i = 0; i < nd; i++) {
    if (from[i] < 1 || (all *= from[i]) > INT32_MAX)
      return standin_bad(DNN_INVALID, "a size of %d", from[i]);
    dim[i] = from[i];
  }
  return 0;
}

STANDIN_API int cudnnSetTensorNdDescriptor(cudnn_tensor t, int type, int nd,
                                           const int *dim, const int *stride) {
  int i, rc, next = 1;
  ENTER(cudnnSetTensorNdDescriptor);
  HANDLE(t, SI_DNN_TENSOR);
  rc = dnn_dims(type, nd, dim, t->dim);
  if (rc) return rc;
  for (i = nd - 1; i >= 0; next *= dim[i--])
    if (stride[i] != next)
      return standin_bad(DNN_INVALID, "strides are not stood in for");
  t->type = type;
  t->nd = nd;
  return 0;
}

STANDIN_API int cudnnSetFilterNdDescriptor(cudnn_filter w, int type, int format,
                                           int nd, const int *dim) {
  int rc;
  ENTER(cudnnSetFilterNdDescriptor);
  HANDLE(w, SI_DNN_FILTER);
  if (format != CUDNN_NCHW) return standin_bad(DNN_INVALID, "a format");
  rc = dnn_dims(type, nd, dim, w->dim);
  if (rc) return rc;
  w->type = type;
  w->nd = nd;
  return 0;
}

STANDIN_API int cudnnSetConvolutionNdDescriptor(cudnn_conv v, int n,
                                                const int *pad,
                                                const int *stride,
                                                const int *dilation, int mode,
                                                int type) {
  int i;
  ENTER(cudnnSetConvolutionNdDescriptor);
  HANDLE(v, SI_DNN_CONV);
  if (n < 2 || n > DNN_MOST - 2 || mode != CUDNN_CORRELATION)
    return standin_bad(DNN_INVALID, "%d dims in mode %d", n, mode);
  for (i = 0; i < n; i++) {
    if (pad[i] < 0 || stride[i] < 1 || dilation[i] < 1)
      return standin_bad(DNN_INVALID, "padding %d, stride %d, dilation %d",
                         pad[i], stride[i], dilation[i]);
    v->pad[i] = pad[i];
    v->stride[i] = stride[i];
    v->dilation[i] = dilation[i];
  }
  v->n = n;
  v->type = type;
  v->groups = 1;
  return 0;
}

STANDIN_API int cudnnSetConvolutionGroupCount(cudnn_conv v, int groups) {
  ENTER(cudnnSetConvolutionGroupCount);
  HANDLE(v, SI_DNN_CONV);
  if (groups < 1) return standin_bad(DNN_INVALID, "%d groups", groups);
  v->groups = groups;
  return 0;
}

STANDIN_API int cudnnSetConvolutionMathType(cudnn_conv v, int math) {
  ENTER(cudnnSetConvolutionMathType);
  HANDLE(v, SI_DNN_CONV);
  if (math < 0 || math > CUDNN_FMA_MATH)
    return standin_bad(DNN_INVALID, "math type %d", math);
  v->math = math;
  return 0;
}

/* -- What fits together ---------------------------------------------------- */

static int dnn_fits(cudnn_handle h, cudnn_tensor x, cudnn_filter w,
                    cudnn_conv v, cudnn_tensor y) {
  int i;
  HANDLE(h, SI_DNN);
  HANDLE(x, SI_DNN_TENSOR);
  HANDLE(w, SI_DNN_FILTER);
  HANDLE(v, SI_DNN_CONV);
  HANDLE(y, SI_DNN_TENSOR);
  if (!x->nd || x->nd != y->nd || x->nd != w->nd || x->nd != v->n + 2)
    return standin_bad(DNN_INVALID, "%d, %d, %d and %d dims", x->nd, w->nd,
                       y->nd, v->n);
  if (x->type != y->type || x->type != w->type ||
      v->type != (x->type == CUDNN_F64 ? CUDNN_F64 : CUDNN_F32))
    return standin_bad(DNN_INVALID, "types %d, %d, %d computed in %d", x->type,
                       w->type, y->type, v->type);
  if (x->type == CUDNN_BF16 && standin_arch(h->o.owner->device) < 80)
    return standin_bad(DNN_INVALID, "bfloat16 before sm_80");
  if (x->dim[0] != y->dim[0] || x->dim[1] != w->dim[1] * v->groups ||
      y->dim[1] != w->dim[0] || w->dim[0] % v->groups)
    return standin_bad(DNN_INVALID, "rows or channels do not fit");
  for (i = 0; i < v->n; i++) {
    int span = (w->dim[i + 2] - 1) * v->dilation[i] + 1;
    int room = x->dim[i + 2] + 2 * v->pad[i] - span;
    if (room < 0 || y->dim[i + 2] != room / v->stride[i] + 1)
      return standin_bad(DNN_INVALID, "dim %d: %d positions of %d in %d", i + 1,
                         y->dim[i + 2], span, x->dim[i + 2] + 2 * v->pad[i]);
  }
  return 0;
}

/* The fast algorithm lays the windows of one row out. */
static size_t dnn_space(cudnn_filter w, cudnn_tensor y, int algo) {
  size_t n = (size_t)dnn_size(y->type);
  int i;
  if (algo != DNN_FAST) return DNN_SMALL;
  for (i = 1; i < w->nd; i++) n *= (size_t)w->dim[i];
  for (i = 2; i < y->nd; i++) n *= (size_t)y->dim[i];
  return n;
}

/* One that does not work, one that is fast, one that is the same each time. */
static int dnn_find(cudnn_filter w, cudnn_conv v, cudnn_tensor y, int wanted,
                    int *n, cudnn_found *found) {
  cudnn_found all[3] = {
      {.algo = DNN_MISSING, .status = DNN_UNSUPPORTED, .time = -1},
      {.algo = DNN_FAST, .memory = dnn_space(w, y, DNN_FAST)},
      {.algo = DNN_STEADY, .memory = DNN_SMALL,
       .determinism = CUDNN_DETERMINISTIC}};
  int i;
  if (wanted < 1) return standin_bad(DNN_INVALID, "no algorithm is wanted");
  *n = wanted < 3 ? wanted : 3;
  for (i = 0; i < *n; i++) {
    found[i] = all[i];
    found[i].math = v->math;
  }
  return 0;
}

static int dnn_space_of(cudnn_filter w, cudnn_tensor y, int algo,
                        size_t *bytes) {
  if (algo != DNN_FAST && algo != DNN_STEADY)
    return standin_bad(DNN_INVALID, "algorithm %d", algo);
  *bytes = dnn_space(w, y, algo);
  return 0;
}

/* The three directions differ in the order of their arguments. */
#define DNN_ASK(find, space, A, a, B, b, C, c)                            \
  STANDIN_API int find(cudnn_handle h, A a, B b, cudnn_conv v, C c,       \
                       int wanted, int *n, cudnn_found *found) {          \
    int rc;                                                               \
    ENTER(find);                                                          \
    rc = dnn_fits(h, x, w, v, y);                                         \
    return rc ? rc : dnn_find(w, v, y, wanted, n, found);                 \
  }                                                                       \
  STANDIN_API int space(cudnn_handle h, A a, B b, cudnn_conv v, C c,      \
                        int algo, size_t *bytes) {                        \
    int rc;                                                               \
    ENTER(space);                                                         \
    rc = dnn_fits(h, x, w, v, y);                                         \
    return rc ? rc : dnn_space_of(w, y, algo, bytes);                     \
  }
DNN_ASK(cudnnGetConvolutionForwardAlgorithm_v7,
        cudnnGetConvolutionForwardWorkspaceSize, cudnn_tensor, x, cudnn_filter,
        w, cudnn_tensor, y)
DNN_ASK(cudnnGetConvolutionBackwardDataAlgorithm_v7,
        cudnnGetConvolutionBackwardDataWorkspaceSize, cudnn_filter, w,
        cudnn_tensor, y, cudnn_tensor, x)
DNN_ASK(cudnnGetConvolutionBackwardFilterAlgorithm_v7,
        cudnnGetConvolutionBackwardFilterWorkspaceSize, cudnn_tensor, x,
        cudnn_tensor, y, cudnn_filter, w)

/* -- Running --------------------------------------------------------------- */

static int64_t dnn_count(int nd, const int *dim) {
  int64_t n = 1;
  int i;
  for (i = 0; i < nd; i++) n *= dim[i];
  return n;
}

int standin_dnn_check(struct cu_context *c, const standin_dnn *d, bool queued) {
  static const char *const names[] = {"x", "w", "y"};
  int size = dnn_size(d->type), i, rc;
  for (i = 0; i < 3; i++) {
    int64_t n = dnn_count(d->nd, d->dim[i]);
    if (d->at[i] % (unsigned)size)
      return standin_bad(DNN_INVALID, "%s is not aligned", names[i]);
    rc = standin_range(c, d->at[i], (size_t)(n * size), queued, names[i]);
    if (rc) return DNN_INVALID;
  }
  if (d->space % 16) return standin_bad(DNN_INVALID, "a misaligned workspace");
  rc = standin_range(c, d->space, d->bytes, queued, "the workspace");
  return rc ? DNN_INVALID : 0;
}

static double *dnn_load(const standin_dnn *d, int which) {
  int64_t n = dnn_count(d->nd, d->dim[which]), i;
  double *out = standin_new(sizeof *out * (size_t)n);
  for (i = 0; which != d->result && i < n; i++) {
    double v = standin_load(standin_real(d->at[which]), i, dnn_blas(d->type));
    out[i] = d->tf32 ? standin_tf32(v) : v;
  }
  return out;
}

/* The terms along the last dim: n of them, s apart in x. */
static void dnn_line(int result, double *x, double *w, double *y, int64_t n,
                     int64_t s) {
  double sum = 0, v = *w;
  int64_t i;
  if (result == 0)
    for (i = 0; i < n; i++) x[i * s] += v * y[i];
  else if (result == 2)
    for (i = 0; i < n; i++) y[i] += v * x[i * s];
  else
    for (i = 0; i < n; i++) sum += x[i * s] * y[i];
  *w += sum;
}

/* All terms of one plane of x, one of y and one of w: for each place of the
 * window and each line of positions. */
static void dnn_planes(const standin_dnn *d, double *x, double *w, double *y) {
  int n = d->nd - 2, last = n - 1, i;
  const int *xd = d->dim[0] + 2, *wd = d->dim[1] + 2, *yd = d->dim[2] + 2;
  int64_t places = dnn_count(n, wd), lines = dnn_count(last, yd), k, p;
  for (k = 0; k < places; k++) {
    for (p = 0; p < lines; p++) {
      int64_t rest = p, at = 0, run = xd[last], t = k, first, least, most;
      bool in = true;
      int64_t s = d->stride[last];
      first = t % wd[last] * d->dilation[last] - d->pad[last];
      t /= wd[last];
      for (i = last - 1; i >= 0; i--) {
        int64_t c = rest % yd[i] * d->stride[i] +
                    t % wd[i] * d->dilation[i] - d->pad[i];
        rest /= yd[i];
        t /= wd[i];
        in = in && c >= 0 && c < xd[i];
        at += c * run;
        run *= xd[i];
      }
      least = first < 0 ? (-first + s - 1) / s : 0;
      most = first < xd[last] ? (xd[last] - 1 - first) / s + 1 : 0;
      if (most > yd[last]) most = yd[last];
      if (in && least < most)
        dnn_line(d->result, x + at + first + least * s, w + k,
                 y + p * yd[last] + least, most - least, s);
    }
  }
}

void standin_dnn_run(const standin_dnn *d) {
  double *x = dnn_load(d, 0), *w = dnn_load(d, 1), *y = dnn_load(d, 2);
  double *all[3];
  const int *xd = d->dim[0], *wd = d->dim[1], *yd = d->dim[2];
  int64_t xs = dnn_count(d->nd - 2, xd + 2), ys = dnn_count(d->nd - 2, yd + 2);
  int64_t ws = dnn_count(d->nd - 2, wd + 2), row, o, i;
  int outs = wd[0] / d->groups;
  for (row = 0; row < xd[0]; row++)
    for (o = 0; o < wd[0]; o++)
      for (i = 0; i < wd[1]; i++)
        dnn_planes(d, x + (row * xd[1] + o / outs * wd[1] + i) * xs,
                   w + (o * wd[1] + i) * ws, y + (row * yd[1] + o) * ys);
  all[0] = x, all[1] = w, all[2] = y;
  for (i = 0; i < dnn_count(d->nd, d->dim[d->result]); i++)
    standin_store(standin_real(d->at[d->result]), i, dnn_blas(d->type),
                  all[d->result][i]);
  /* What others kept there is gone. */
  memset(standin_real(d->space), 0xff, d->bytes);
  free(x);
  free(w);
  free(y);
}

static int dnn_last_algorithm = -1;

/* What the last convolution was asked to use: -1 none, 0 the one that is the
 * same each time, 1 the fast one. */
STANDIN_API int standin_dnn_last(void) { return dnn_last_algorithm; }

static bool dnn_scales(const void *alpha, const void *beta, int type) {
  return type == CUDNN_F64
             ? *(const double *)alpha == 1 && *(const double *)beta == 0
             : *(const float *)alpha == 1 && *(const float *)beta == 0;
}

static int dnn_queue(cudnn_handle h, cudnn_tensor x, cudnn_filter w,
                     cudnn_conv v, cudnn_tensor y, int result, const void *xp,
                     const void *wp, const void *yp, int algo, void *space,
                     size_t bytes, const void *alpha, const void *beta) {
  standin_dnn *d;
  standin_op *op;
  size_t need = 0;
  int i, rc = dnn_fits(h, x, w, v, y);
  if (!rc) rc = dnn_space_of(w, y, algo, &need);
  if (rc) return rc;
  if (bytes < need)
    return standin_bad(DNN_INVALID, "a workspace of %zu bytes, not %zu", bytes,
                       need);
  if (!dnn_scales(alpha, beta, x->type))
    return standin_bad(DNN_INVALID, "alpha and beta are not stood in for");
  HANDLE(h->stream, SI_STREAM);
  dnn_last_algorithm = algo;
  op = standin_op_new(SI_OP_DNN);
  d = op->dnn = standin_new(sizeof *d);
  d->result = result;
  d->type = x->type;
  d->nd = x->nd;
  d->groups = v->groups;
  d->tf32 = x->type == CUDNN_F32 && v->math != CUDNN_FMA_MATH &&
            standin_arch(h->o.owner->device) >= 80;
  for (i = 0; i < x->nd; i++) {
    d->dim[0][i] = x->dim[i];
    d->dim[1][i] = w->dim[i];
    d->dim[2][i] = y->dim[i];
  }
  memcpy(d->pad, v->pad, sizeof v->pad);
  memcpy(d->stride, v->stride, sizeof v->stride);
  memcpy(d->dilation, v->dilation, sizeof v->dilation);
  d->at[0] = (cu_ptr)(uintptr_t)xp;
  d->at[1] = (cu_ptr)(uintptr_t)wp;
  d->at[2] = (cu_ptr)(uintptr_t)yp;
  d->space = (cu_ptr)(uintptr_t)space;
  d->bytes = bytes;
  rc = standin_dnn_check(h->o.owner, d, true);
  if (rc) {
    standin_op_free(op);
    return rc;
  }
  standin_other_nodes(h->stream);
  return standin_queue(h->stream, op) ? DNN_FAILED : 0;
}

STANDIN_API int cudnnConvolutionForward(
    cudnn_handle h, const void *alpha, cudnn_tensor x, const void *xp,
    cudnn_filter w, const void *wp, cudnn_conv v, int algo, void *space,
    size_t bytes, const void *beta, cudnn_tensor y, void *yp) {
  ENTER(cudnnConvolutionForward);
  return dnn_queue(h, x, w, v, y, 2, xp, wp, yp, algo, space, bytes, alpha,
                   beta);
}

STANDIN_API int cudnnConvolutionBackwardData(
    cudnn_handle h, const void *alpha, cudnn_filter w, const void *wp,
    cudnn_tensor y, const void *yp, cudnn_conv v, int algo, void *space,
    size_t bytes, const void *beta, cudnn_tensor x, void *xp) {
  ENTER(cudnnConvolutionBackwardData);
  return dnn_queue(h, x, w, v, y, 0, xp, wp, yp, algo, space, bytes, alpha,
                   beta);
}

STANDIN_API int cudnnConvolutionBackwardFilter(
    cudnn_handle h, const void *alpha, cudnn_tensor x, const void *xp,
    cudnn_tensor y, const void *yp, cudnn_conv v, int algo, void *space,
    size_t bytes, const void *beta, cudnn_filter w, void *wp) {
  ENTER(cudnnConvolutionBackwardFilter);
  return dnn_queue(h, x, w, v, y, 1, xp, wp, yp, algo, space, bytes, alpha,
                   beta);
}
