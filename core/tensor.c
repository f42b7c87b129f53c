/* Tensor values: storages, copies between and within devices, and text. */
#include <math.h>
#include <stdio.h>

#include "tensor.h"

/* -- storages -- */

int limn_storage_new(limn_context *c, struct limn_device *dev, size_t bytes,
                     limn_storage **out) {
  limn_storage *s = limn_alloc(c, sizeof *s);
  int rc;
  *out = NULL;
  if (!s) return LIMN_EMEM;
  /* Empty tensors have memory too, so that no pointer is ever NULL. */
  rc = limn_dev_alloc(dev, LIMN_MAX(bytes, 1), &s->mem);
  if (rc < 0) {
    limn_free(c, s, sizeof *s);
    return rc;
  }
  s->refs = 1;
  s->dev = dev;
  s->bytes = bytes;
  s->c = c;
  limn_context_retain(c);
  *out = s;
  return 0;
}

void limn_storage_retain(limn_storage *s) {
  s->refs++;
}

void limn_storage_release(limn_storage *s) {
  limn_context *c;
  if (!s || --s->refs > 0) return;
  c = s->c;
  if (!s->borrowed)
    limn_dev_free(s->dev, s->mem, LIMN_MAX(s->bytes, 1));
  else if (s->release)
    s->release(s->release_user, s->mem);
  limn_free(c, s, sizeof *s);
  limn_context_release(c);
}

/* -- tensors -- */

/* Retains st. */
static int tensor_make(limn_context *c, limn_storage *st, int dtype,
                       const limn_view *v, limn_tensor **out) {
  limn_tensor *t = limn_alloc(c, sizeof *t);
  *out = t;
  if (!t) return LIMN_EMEM;
  t->refs = 1;
  t->dtype = dtype;
  t->v = *v;
  t->st = st;
  t->c = c;
  limn_storage_retain(st);
  limn_context_retain(c);
  return 0;
}

int limn_tensor_new(limn_context *c, struct limn_device *dev, int dtype,
                    const limn_shape *s, limn_tensor **out) {
  limn_storage *st;
  limn_view v;
  int64_t numel, bytes;
  int rc;
  *out = NULL;
  LIMN_TRY(limn_shape_bytes(c, s, dtype, &numel, &bytes));
  LIMN_TRY(limn_storage_new(c, dev, (size_t)bytes, &st));
  limn_view_dense(&v, s->ndim, s->d);
  rc = tensor_make(c, st, dtype, &v, out);
  limn_storage_release(st);
  return rc;
}

int limn_tensor_view(limn_tensor *t, const limn_view *v, limn_tensor **out) {
  return tensor_make(t->c, t->st, t->dtype, v, out);
}

void limn_tensor_retain(limn_tensor *t) {
  t->refs++;
}

void limn_tensor_release(limn_tensor *t) {
  limn_context *c;
  if (!t || --t->refs > 0) return;
  c = t->c;
  limn_storage_release(t->st);
  limn_free(c, t, sizeof *t);
  limn_context_release(c);
}

limn_shape limn_tensor_shape(const limn_tensor *t) {
  limn_shape s = {0};
  s.ndim = t->v.ndim;
  memcpy(s.d, t->v.d, sizeof s.d);
  return s;
}

int64_t limn_tensor_numel(const limn_tensor *t) {
  return limn_numel(t->v.ndim, t->v.d);
}

bool limn_tensor_is_dense(const limn_tensor *t) {
  return limn_view_is_dense(&t->v);
}

/* -- copies -- */

static bool tensor_on_host(const limn_tensor *t) {
  return limn_dev_is_host(t->st->dev);
}

static char *tensor_pointer(const limn_tensor *t) {
  return (char *)t->st->mem + t->v.offset * limn_dtype_size(t->dtype);
}

/* Elements of src, which may have another dtype, to dst on the same device;
 * through views dv and sv of the two. */
static int tensor_copy(limn_tensor *dst, const limn_view *dv, limn_tensor *src,
                       const limn_view *sv) {
  if (limn_numel(dv->ndim, dv->d) == 0) return 0;
  dst->c->count.copies++;
  if (!tensor_on_host(dst))
    return limn_dev_copy(dst->st->dev, dst->dtype, dst->st->mem, dv,
                         src->dtype, src->st->mem, sv);
  limn_host_copy(dst->dtype, dst->st->mem, dv, src->dtype, src->st->mem, sv);
  return 0;
}

/* Between host memory and a dense tensor on an accelerator. */
static int tensor_upload(limn_tensor *t, const void *data, size_t n) {
  size_t off = (size_t)(t->v.offset * limn_dtype_size(t->dtype));
  t->c->count.uploads++;
  return limn_dev_upload(t->st->dev, t->st->mem, off, data, n);
}

static int tensor_download(limn_tensor *t, int64_t offset, void *data,
                           size_t n) {
  size_t off = (size_t)(offset * limn_dtype_size(t->dtype));
  t->c->count.downloads++;
  return limn_dev_download(t->st->dev, t->st->mem, off, data, n);
}

static int tensor_check_size(limn_tensor *t, const char *what, size_t n) {
  size_t size = (size_t)limn_dtype_size(t->dtype), want;
  char text[256];
  want = (size_t)limn_tensor_numel(t) * size;
  if (n == want) return 0;
  return limn_fail(t->c, LIMN_EARG, "%s %zu bytes, but %s has %zu", what, n,
                   limn_tensor_text(text, sizeof text, t), want);
}

int limn_tensor_write(limn_tensor *t, const void *data, size_t n) {
  limn_shape s = limn_tensor_shape(t);
  limn_tensor *tmp;
  limn_view dense;
  int rc;
  LIMN_TRY(tensor_check_size(t, "writing", n));
  if (!n) return 0;
  limn_view_dense(&dense, s.ndim, s.d);
  if (tensor_on_host(t)) {
    limn_host_copy(t->dtype, t->st->mem, &t->v, t->dtype, data, &dense);
    return 0;
  }
  if (limn_tensor_is_dense(t)) return tensor_upload(t, data, n);
  LIMN_TRY(limn_tensor_new(t->c, t->st->dev, t->dtype, &s, &tmp));
  rc = tensor_upload(tmp, data, n);
  if (rc >= 0) rc = tensor_copy(t, &t->v, tmp, &tmp->v);
  limn_tensor_release(tmp);
  return rc;
}

int limn_tensor_read(limn_tensor *t, void *data, size_t n) {
  limn_view dense;
  limn_tensor *tmp;
  int rc;
  LIMN_TRY(tensor_check_size(t, "reading", n));
  if (!n) return 0;
  if (tensor_on_host(t)) {
    limn_view_dense(&dense, t->v.ndim, t->v.d);
    limn_host_copy(t->dtype, data, &dense, t->dtype, t->st->mem, &t->v);
    return 0;
  }
  LIMN_TRY(limn_tensor_contiguous(t, &tmp));
  rc = tensor_download(tmp, tmp->v.offset, data, n);
  limn_tensor_release(tmp);
  return rc;
}

int limn_tensor_element(limn_tensor *t, int64_t index, void *out) {
  int64_t at = t->v.offset, rest = index;
  size_t size = (size_t)limn_dtype_size(t->dtype);
  int i;
  if (index < 0 || index >= limn_tensor_numel(t))
    return limn_fail(t->c, LIMN_EINDEX,
                     "element %lld of a tensor with %lld elements",
                     (long long)index + 1, (long long)limn_tensor_numel(t));
  for (i = t->v.ndim - 1; i >= 0; i--) {
    at += rest % t->v.d[i] * t->v.s[i];
    rest /= t->v.d[i];
  }
  if (!tensor_on_host(t)) return tensor_download(t, at, out, size);
  memcpy(out, (char *)t->st->mem + at * (int64_t)size, size);
  return 0;
}

/* A dense copy on the tensor's own device. */
static int tensor_convert(limn_tensor *t, int dtype, limn_tensor **out) {
  limn_shape s = limn_tensor_shape(t);
  int rc;
  LIMN_TRY(limn_tensor_new(t->c, t->st->dev, dtype, &s, out));
  rc = tensor_copy(*out, &(*out)->v, t, &t->v);
  if (rc >= 0) return 0;
  limn_tensor_release(*out);
  *out = NULL;
  return rc;
}

/* A dense copy on another device; one side is the host. */
static int tensor_move(limn_tensor *t, struct limn_device *dev,
                       limn_tensor **out) {
  limn_shape s = limn_tensor_shape(t);
  size_t n = (size_t)(limn_tensor_numel(t) * limn_dtype_size(t->dtype));
  limn_tensor *dense = NULL;
  int rc;
  LIMN_TRY(limn_tensor_new(t->c, dev, t->dtype, &s, out));
  if (limn_dev_is_host(dev)) {
    LIMN_GO(limn_tensor_read(t, tensor_pointer(*out), n));
  } else {
    LIMN_GO(limn_tensor_contiguous(t, &dense));
    LIMN_GO(limn_tensor_write(*out, tensor_pointer(dense), n));
  }
  limn_tensor_release(dense);
  return 0;
bail:
  limn_tensor_release(dense);
  limn_tensor_release(*out);
  *out = NULL;
  return rc;
}

/* A dense copy on another accelerator of the same kind; none (*out NULL) where
 * the two cannot. */
static int tensor_cross(limn_tensor *t, struct limn_device *dev,
                        limn_tensor **out) {
  limn_shape s = limn_tensor_shape(t);
  limn_tensor *dense;
  size_t size = (size_t)limn_dtype_size(t->dtype);
  size_t n = (size_t)limn_tensor_numel(t) * size;
  int rc;
  LIMN_TRY(limn_tensor_contiguous(t, &dense));
  rc = limn_tensor_new(t->c, dev, t->dtype, &s, out);
  if (rc == 0)
    rc = n == 0 ? 1
                : limn_dev_cross(dev, (*out)->st->mem, dense->st->dev,
                                 dense->st->mem,
                                 (size_t)dense->v.offset * size, n);
  limn_tensor_release(dense);
  if (rc == 1) return 0;
  limn_tensor_release(*out);
  *out = NULL;
  return rc;
}

/* Replaces the reference *t by one to what fn made of it. */
static int tensor_replace(limn_tensor **t, int rc, limn_tensor *made) {
  limn_tensor_release(*t);
  *t = rc < 0 ? NULL : made;
  return rc;
}

/* Accelerators of a kind copy among themselves if they can. Others meet through
 * the host, which also converts; only a change of dtype alone stays on the
 * device. */
int limn_tensor_to(limn_tensor *t, struct limn_device *dev, int dtype,
                   limn_tensor **out) {
  limn_tensor *made = NULL, *cur = t;
  struct limn_device *host = t->c->devices[0];
  int rc;
  *out = NULL;
  limn_tensor_retain(cur);
  if (cur->st->dev != dev && limn_dev_crosses(dev, cur->st->dev)) {
    rc = tensor_cross(cur, dev, &made);
    if (rc < 0 || made) LIMN_TRY(tensor_replace(&cur, rc, made));
  }
  if (cur->st->dev != dev && !tensor_on_host(cur)) {
    rc = tensor_move(cur, host, &made);
    LIMN_TRY(tensor_replace(&cur, rc, made));
  }
  if (cur->dtype != dtype) {
    rc = tensor_convert(cur, dtype, &made);
    LIMN_TRY(tensor_replace(&cur, rc, made));
  }
  if (cur->st->dev != dev) {
    rc = tensor_move(cur, dev, &made);
    LIMN_TRY(tensor_replace(&cur, rc, made));
  }
  *out = cur;
  return 0;
}

int limn_tensor_contiguous(limn_tensor *t, limn_tensor **out) {
  if (!limn_tensor_is_dense(t)) return tensor_convert(t, t->dtype, out);
  limn_tensor_retain(t);
  *out = t;
  return 0;
}

/* -- text -- */

const char *limn_tensor_text(char *buf, size_t n, const limn_tensor *t) {
  char shape[256];
  snprintf(buf, n, "%s %s on %s", limn_dtype_name(t->dtype),
           limn_shape_text(shape, sizeof shape, t->v.ndim, t->v.d),
           limn_dev_name(t->st->dev));
  return buf;
}

enum { TEXT_EDGE = 3, TEXT_WHOLE = 1000, TEXT_COLUMNS = 80, TEXT_ITEM = 48 };

typedef struct {
  limn_str *b;
  const char *at; /* the next element, dense */
  int dtype, ndim, width;
  int64_t d[LIMN_MAXDIM]; /* dims as shown */
  bool cut[LIMN_MAXDIM];  /* the dim shows its edges only */
  char kind;              /* 'f' or 'e' for reals */
  int digits;
} tensor_printer;

static void tensor_item(const tensor_printer *p, const char *at, char *buf) {
  if (p->dtype == LIMN_BOOL)
    snprintf(buf, TEXT_ITEM, "%s", *at ? "true" : "false");
  else if (limn_dtype_float(p->dtype))
    limn_real_text(buf, TEXT_ITEM, p->kind, p->digits,
                   limn_load_real(p->dtype, at));
  else
    snprintf(buf, TEXT_ITEM, "%lld", (long long)limn_load_int(p->dtype, at));
}

/* One format for all elements, so that columns align: whole numbers show
 * ".0", others four digits, and exponents where sizes differ widely. */
static void tensor_style(tensor_printer *p, int64_t n) {
  int64_t size = limn_dtype_size(p->dtype), i;
  double most = 0, least = HUGE_VAL;
  bool whole = true;
  char item[TEXT_ITEM];
  for (i = 0; limn_dtype_float(p->dtype) && i < n; i++) {
    double v = fabs(limn_load_real(p->dtype, p->at + i * size));
    if (!isfinite(v)) continue;
    if (v != floor(v)) whole = false;
    if (v > most) most = v;
    if (v > 0 && v < least) least = v;
  }
  p->kind = most > 1e8 || (!whole && (least < 1e-4 || most / least > 1000))
                ? 'e' : 'f';
  p->digits = whole && p->kind == 'f' ? 1 : 4;
  for (i = 0; i < n; i++) {
    tensor_item(p, p->at + i * size, item);
    p->width = LIMN_MAX(p->width, (int)strlen(item));
  }
}

/* What stands between two entries of dim k: matrices are set apart by empty
 * lines, long rows are broken. */
static void tensor_gap(tensor_printer *p, int k, int64_t i) {
  int lines = p->ndim - 1 - k, room = TEXT_COLUMNS - p->ndim, per;
  per = LIMN_MAX(1, room / (p->width + 2));
  if (!lines && i % per) {
    limn_str_add(p->b, ", ");
    return;
  }
  limn_str_add(p->b, ",\n");
  while (--lines > 0) limn_str_add(p->b, "\n");
  for (; k >= 0; k--) limn_str_add(p->b, " ");
}

static void tensor_dim(tensor_printer *p, int k) {
  char item[TEXT_ITEM];
  int64_t i;
  if (k == p->ndim) {
    tensor_item(p, p->at, item);
    limn_str_addf(p->b, "%*s", p->width, item);
    p->at += limn_dtype_size(p->dtype);
    return;
  }
  limn_str_add(p->b, "[");
  for (i = 0; i < p->d[k] && p->b->rc >= 0; i++) {
    if (i) tensor_gap(p, k, i);
    if (p->cut[k] && i == TEXT_EDGE) {
      limn_str_add(p->b, "...");
      tensor_gap(p, k, i);
    }
    tensor_dim(p, k + 1);
  }
  limn_str_add(p->b, "]");
}

/* Copies the shown elements to `to`, dense: each cut dim has two edges, and
 * each combination of edges is one block. */
static int tensor_edges(limn_tensor *t, const tensor_printer *p,
                        limn_tensor *to) {
  uint32_t block;
  int k;
  for (block = 0; block < 1u << p->ndim; block++) {
    limn_view sv = t->v, dv = to->v;
    for (k = 0; k < p->ndim; k++) {
      bool far = block >> k & 1;
      if (!p->cut[k] && far) break;
      if (!p->cut[k]) continue;
      sv.offset += far ? (sv.d[k] - TEXT_EDGE) * sv.s[k] : 0;
      dv.offset += far ? TEXT_EDGE * dv.s[k] : 0;
      sv.d[k] = dv.d[k] = TEXT_EDGE;
    }
    if (k == p->ndim) LIMN_TRY(tensor_copy(to, &dv, t, &sv));
  }
  return 0;
}

/* A dense host tensor of the elements to show. */
static int tensor_shown(limn_tensor *t, tensor_printer *p, limn_tensor **out) {
  limn_shape s = limn_tensor_shape(t);
  limn_tensor *part = NULL;
  bool large = limn_tensor_numel(t) > TEXT_WHOLE;
  int rc, k;
  for (k = 0; k < s.ndim; k++) {
    p->cut[k] = large && s.d[k] > 2 * TEXT_EDGE;
    if (p->cut[k]) s.d[k] = 2 * TEXT_EDGE;
  }
  memcpy(p->d, s.d, sizeof p->d);
  LIMN_TRY(limn_tensor_new(t->c, t->st->dev, t->dtype, &s, &part));
  rc = tensor_edges(t, p, part);
  if (rc >= 0) rc = limn_tensor_to(part, t->c->devices[0], t->dtype, out);
  limn_tensor_release(part);
  return rc;
}

/* A 0-dim tensor shows its number as exactly as is useful. */
static void tensor_scalar(const tensor_printer *p) {
  char item[TEXT_ITEM];
  double v = limn_load_real(p->dtype, p->at);
  if (p->dtype == LIMN_F64) {
    limn_str_real(p->b, v);
  } else if (p->dtype == LIMN_F32) {
    limn_str_float(p->b, (float)v);
  } else if (limn_dtype_float(p->dtype)) {
    limn_real_text(item, sizeof item, 'g', p->dtype == LIMN_F16 ? 5 : 4, v);
    limn_str_add(p->b, item);
  } else {
    tensor_item(p, p->at, item);
    limn_str_add(p->b, item);
  }
}

int limn_tensor_format(limn_tensor *t, limn_str *out) {
  tensor_printer p = {0};
  limn_tensor *shown;
  char text[400];
  p.b = out;
  p.dtype = t->dtype;
  p.ndim = t->v.ndim;
  limn_tensor_text(text, sizeof text, t);
  if (limn_tensor_numel(t) == 0) {
    limn_str_addf(out, "[] %s", text);
    return out->rc;
  }
  LIMN_TRY(tensor_shown(t, &p, &shown));
  p.at = tensor_pointer(shown);
  if (p.ndim == 0) {
    tensor_scalar(&p);
    limn_str_addf(out, " %s on %s", limn_dtype_name(t->dtype),
                  limn_dev_name(t->st->dev));
  } else {
    tensor_style(&p, limn_tensor_numel(shown));
    tensor_dim(&p, 0);
    limn_str_addf(out, "\n%s", text);
  }
  limn_tensor_release(shown);
  return out->rc;
}
