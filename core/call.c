/* The host's calls: one graph on one device with memory bound to its inputs
 * and outputs. Bound arrays become tensors that borrow the host's memory when
 * the call is prepared; a run then walks a pinned plan. */
#include <stdio.h>

#include "model.h"
#include "planner.h"

typedef struct {
  bool bound;
  limn_array a;    /* as given; what was prepared is in `t` */
  limn_tensor *t;  /* borrows a.data, or memory of the library's own */
} call_slot;

struct limn_call {
  int refs;
  limn_context *c;
  limn_model *m;
  const char *name; /* the model's for the graph */
  limn_graph *g;
  limn_device *dev;
  call_slot *in, *out;
  limn_run_arg *arg;
  limn_tensor **into;
  limn_result *result;
  limn_plan *plan; /* pinned while prepared */
  void *scratch;   /* the host's workspace, or NULL */
  void *own;       /* workspace of the library's */
  size_t own_size;
  uint64_t modes; /* of the graph's modules when the call was prepared */
  bool prepared;
};

/* -- Life -- */

static int call_alloc(limn_call *k) {
  limn_graph *g = k->g;
  k->in = limn_alloc(k->c, (g->nin + 1) * sizeof *k->in);
  k->out = limn_alloc(k->c, (g->nout + 1) * sizeof *k->out);
  k->arg = limn_alloc(k->c, (g->nin + 1) * sizeof *k->arg);
  k->into = limn_alloc(k->c, (g->nout + 1) * sizeof(limn_tensor *));
  k->result = limn_alloc(k->c, (g->nout + 1) * sizeof *k->result);
  return k->in && k->out && k->arg && k->into && k->result ? 0 : LIMN_EMEM;
}

int limn_call_new(limn_model *m, const char *graph, const char *device,
                  limn_call **out) {
  limn_context *c;
  limn_device *dev;
  limn_graph *g;
  limn_call *k;
  int rc;
  if (!m || !out) return LIMN_EARG;
  *out = NULL;
  c = m->c;
  limn_error_clear(c);
  if (!graph) return limn_fail(c, LIMN_EARG, "a graph's name is wanted");
  dev = limn_device_cpu(c);
  g = limn_model_graph(m, graph);
  if (!g) return limn_model_no_graph(m, graph);
  if (device) LIMN_TRY(limn_device_find(c, device, &dev));
  k = limn_alloc(c, sizeof *k);
  if (!k) return LIMN_EMEM;
  k->refs = 1;
  k->c = c;
  k->m = m;
  for (uint32_t i = 0; i < m->ngraph; i++) /* the caller's text may go */
    if (!strcmp(m->graph[i].name, graph)) k->name = m->graph[i].name;
  k->g = g;
  k->dev = dev;
  limn_context_retain(c);
  limn_model_retain(m);
  limn_graph_retain(g);
  rc = call_alloc(k);
  if (rc < 0) {
    limn_call_release(k);
    return rc;
  }
  *out = k;
  return 0;
}

static void call_unprepare(limn_call *k) {
  if (k->plan) limn_plan_unpin(k->plan);
  k->plan = NULL;
  k->prepared = false;
  for (uint32_t i = 0; i < k->g->nin; i++) {
    limn_tensor_release(k->in[i].t);
    k->in[i].t = NULL;
  }
  for (uint32_t i = 0; i < k->g->nout; i++) {
    limn_tensor_release(k->result[i].t);
    k->result[i].t = NULL;
    limn_tensor_release(k->out[i].t);
    k->out[i].t = NULL;
  }
  if (k->own) limn_dev_free(k->dev, k->own, k->own_size);
  k->own = k->scratch = NULL;
  k->own_size = 0;
}

void limn_call_release(limn_call *k) {
  limn_context *c;
  limn_graph *g;
  if (!k || --k->refs > 0) return;
  c = k->c;
  g = k->g;
  if (k->in && k->out && k->result) call_unprepare(k);
  limn_free(c, k->in, (g->nin + 1) * sizeof *k->in);
  limn_free(c, k->out, (g->nout + 1) * sizeof *k->out);
  limn_free(c, k->arg, (g->nin + 1) * sizeof *k->arg);
  limn_free(c, k->into, (g->nout + 1) * sizeof(limn_tensor *));
  limn_free(c, k->result, (g->nout + 1) * sizeof *k->result);
  limn_graph_release(g);
  limn_model_release(k->m);
  limn_free(c, k, sizeof *k);
  limn_context_release(c);
}

/* -- Description -- */

/* Name of output i: its key path in the result, such as "loss" or "1". */
static void call_out_name(const limn_graph *g, uint32_t want, char *buf,
                          size_t n) {
  uint32_t leaf = 0, child[32] = {0}, size[32];
  int depth = 0;
  char path[256] = "";
  size_t len[33] = {0};
  snprintf(buf, n, "%u", want + 1);
  for (uint32_t i = 0; i < g->nout_tree; i++) {
    const limn_tree *t = &g->out_tree[i];
    if (depth > 0) {
      int d = depth - 1;
      path[len[d]] = 0;
      child[d]++;
      if (t->key)
        snprintf(path + len[d], sizeof path - len[d], "%s%s",
                 len[d] ? "." : "", limn_graph_text(g, t->key));
      else
        snprintf(path + len[d], sizeof path - len[d], "%s%u",
                 len[d] ? "." : "", child[d]);
    }
    if (t->tag == LIMN_T_LEAF) {
      if (leaf++ == want) snprintf(buf, n, "%s", path);
    } else if (depth < 32) {
      size[depth] = t->n;
      child[depth] = 0;
      len[depth] = strlen(path);
      /* The list of results itself has no name; a single table's keys do. */
      if (depth == 1 && g->out_tree[0].n == 1) len[depth] = 0;
      depth++;
    }
    while (depth > 0 && child[depth - 1] >= size[depth - 1]) depth--;
  }
}

int limn_call_find(limn_call *k, int side, const char *name) {
  char buf[256];
  limn_graph *g;
  if (!k) return LIMN_EARG;
  g = k->g;
  limn_error_clear(k->c);
  if (!name) return limn_fail(k->c, LIMN_EARG, "a name is wanted");
  if (side == LIMN_IN)
    for (uint32_t i = 0; i < g->nin; i++)
      if (!strcmp(limn_graph_text(g, g->in[i].name), name)) return (int)i;
  for (uint32_t i = 0; side == LIMN_OUT && i < g->nout; i++) {
    call_out_name(g, i, buf, sizeof buf);
    if (!strcmp(buf, name)) return (int)i;
  }
  limn_fail(k->c, LIMN_ENAME, "graph %s has no %s \"%.80s\"; it has", k->name,
            side == LIMN_IN ? "input" : "output", name);
  for (uint32_t i = 0; i < (side == LIMN_IN ? g->nin : g->nout); i++) {
    if (side == LIMN_IN)
      snprintf(buf, sizeof buf, "%s", limn_graph_text(g, g->in[i].name));
    else
      call_out_name(g, i, buf, sizeof buf);
    limn_error_append(k->c, "%s %s", i ? "," : "", buf);
  }
  return LIMN_ENAME;
}

static int call_check_index(limn_call *k, int side, int i) {
  uint32_t n;
  if (!k) return LIMN_EARG;
  n = side == LIMN_IN ? k->g->nin : k->g->nout;
  limn_error_clear(k->c);
  if ((side == LIMN_IN || side == LIMN_OUT) && i >= 0 && (uint32_t)i < n)
    return 0;
  return limn_fail(k->c, LIMN_EARG, "graph %s has %u %s, there is no number %d",
                   k->name, n, side == LIMN_IN ? "inputs" : "outputs", i);
}

static const char *call_keep(limn_call *k, const char *s) {
  return limn_graph_text(k->g, limn_graph_str(k->g, s));
}

int limn_call_info(limn_call *k, int side, int i, limn_info *out) {
  limn_info info = {0};
  limn_graph *g;
  char name[256];
  LIMN_TRY(call_check_index(k, side, i));
  if (!out) return limn_fail(k->c, LIMN_EARG, "the result has no place");
  g = k->g;
  info.size = sizeof info;
  info.dtype = -1;
  for (int d = 0; d < LIMN_MAXDIM; d++) info.shape[d] = -1;
  if (side == LIMN_IN) {
    const limn_graph_input *in = &g->in[i];
    info.kind = in->number ? LIMN_KIND_NUMBER : LIMN_KIND_INPUT;
    info.name = limn_graph_text(g, in->name);
    info.ndim = in->number ? 0 : limn_graph_node(g, in->ref)->rank;
    for (int d = 0; d < info.ndim; d++)
      info.dim[d] = in->dim[d] ? limn_graph_text(g, in->dim[d]) : NULL;
  } else {
    const limn_arg *o = &g->out[i];
    info.kind = LIMN_KIND_OUTPUT;
    call_out_name(g, (uint32_t)i, name, sizeof name);
    info.name = call_keep(k, name);
    if (o->tag == LIMN_A_REF)
      info.ndim = limn_graph_node(g, o->u.ref)->rank;
    if (k->plan) {
      const limn_out_info *p = &k->plan->out[i];
      info.dtype = p->kind == LIMN_V_TENSOR ? p->dtype : -1;
      info.ndim = p->v.ndim;
      memcpy(info.shape, p->v.d, sizeof info.shape);
    }
  }
  limn_info_give(out, &info);
  return 0;
}

/* -- Binding -- */

static int call_check_array(limn_call *k, const limn_array *a) {
  bool empty = false;
  if (!a || a->size < sizeof *a)
    return limn_hint(k->c, limn_fail(k->c, LIMN_EARG, "the array to bind is "
                                     "not filled in"),
                     "LIMN_ARRAY fills it in, `size` too");
  if (a->dtype < 0 || a->dtype >= LIMN_NDTYPE)
    return limn_fail(k->c, LIMN_EDTYPE, "there is no dtype number %d",
                     a->dtype);
  if (a->ndim < 0 || a->ndim > LIMN_MAXDIM)
    return limn_fail(k->c, LIMN_ESHAPE, "an array has 0 to %d dims, not %d",
                     LIMN_MAXDIM, a->ndim);
  if (a->device && strcmp(a->device, "cpu"))
    return limn_fail(k->c, LIMN_EUNSUPPORTED,
                     "arrays in the memory of %s cannot be bound; leave device "
                     "NULL", a->device);
  for (int d = 0; d < a->ndim; d++) empty |= a->shape[d] == 0;
  if (!a->data && !empty)
    return limn_fail(k->c, LIMN_EARG, "the array has no data");
  if ((uintptr_t)a->data % (uintptr_t)limn_dtype_size(a->dtype))
    return limn_fail(k->c, LIMN_EARG, "the array's data is not aligned to its "
                     "%d-byte elements", limn_dtype_size(a->dtype));
  return 0;
}

static bool call_same_layout(const limn_array *a, const limn_array *b) {
  size_t n = (size_t)a->ndim * sizeof *a->shape;
  return a->dtype == b->dtype && a->ndim == b->ndim &&
         !memcmp(a->shape, b->shape, n) && !memcmp(a->stride, b->stride, n);
}

int limn_call_bind(limn_call *k, int side, int i, const limn_array *a) {
  call_slot *s;
  if (i < 0) return i; /* limn_call_find's error passes through */
  LIMN_TRY(call_check_index(k, side, i));
  if (side == LIMN_IN && k->g->in[i].number)
    return limn_fail(k->c, LIMN_EARG, "input %s is a number: limn_call_number",
                     limn_graph_text(k->g, k->g->in[i].name));
  LIMN_TRY(call_check_array(k, a));
  s = side == LIMN_IN ? &k->in[i] : &k->out[i];
  /* New memory of the same shape keeps the call prepared. */
  if (k->prepared && s->bound && s->t && call_same_layout(a, &s->a)) {
    s->a = *a; /* an accelerator copies from and to it */
    if (s->t->st->borrowed) s->t->st->mem = a->data;
    return 0;
  }
  s->a = *a;
  s->bound = true;
  k->prepared = false;
  return 0;
}

int limn_call_number(limn_call *k, int i, double v) {
  if (i < 0) return i;
  LIMN_TRY(call_check_index(k, LIMN_IN, i));
  if (!k->g->in[i].number)
    return limn_fail(k->c, LIMN_EARG, "input %s is a tensor: limn_call_bind",
                     limn_graph_text(k->g, k->g->in[i].name));
  if (k->prepared && k->g->planner->size_number[i] && k->arg[i].number != v)
    k->prepared = false; /* it decides sizes */
  k->arg[i].number = v;
  k->in[i].bound = true;
  return 0;
}

static bool call_is_dense(const limn_array *a) {
  for (int d = 0; d < a->ndim; d++)
    if (a->stride[d] != 0) return false;
  return true;
}

static int call_borrow(limn_call *k, const limn_array *a, limn_tensor **out) {
  limn_shape s = {a->ndim, {0}};
  limn_view v;
  limn_storage *st;
  limn_tensor *t;
  int64_t numel, bytes, lo, hi;
  memcpy(s.d, a->shape, sizeof s.d);
  LIMN_TRY(limn_shape_bytes(k->c, &s, a->dtype, &numel, &bytes));
  limn_view_dense(&v, s.ndim, s.d);
  if (!call_is_dense(a)) memcpy(v.s, a->stride, sizeof v.s);
  limn_view_extent(&v, &lo, &hi);
  if (lo < 0 && numel > 0)
    return limn_fail(k->c, LIMN_ESHAPE, "negative strides cannot be bound");
  st = limn_alloc(k->c, sizeof *st);
  t = limn_alloc(k->c, sizeof *t);
  if (!st || !t) {
    limn_free(k->c, st, sizeof *st);
    limn_free(k->c, t, sizeof *t);
    return LIMN_EMEM;
  }
  st->refs = 1;
  st->dev = limn_device_cpu(k->c);
  st->mem = a->data;
  st->bytes = (size_t)bytes;
  st->borrowed = true;
  st->c = k->c;
  t->refs = 1;
  t->dtype = a->dtype;
  t->v = v;
  t->st = st;
  t->c = k->c;
  limn_context_retain(k->c);
  limn_context_retain(k->c);
  *out = t;
  return 0;
}

/* Inputs as tensors on the call's device. */
static int call_inputs(limn_call *k) {
  for (uint32_t i = 0; i < k->g->nin; i++) {
    call_slot *s = &k->in[i];
    if (k->g->in[i].number) continue;
    if (!s->bound)
      return limn_fail(k->c, LIMN_EARG, "input %s is not bound",
                       limn_graph_text(k->g, k->g->in[i].name));
    limn_tensor_release(s->t);
    s->t = NULL;
    LIMN_TRY(call_borrow(k, &s->a, &s->t));
    k->arg[i].t = s->t;
    if (!k->dev->ops->host) {
      limn_tensor *there;
      LIMN_TRY(limn_tensor_to(s->t, k->dev, s->t->dtype, &there));
      limn_tensor_release(s->t);
      s->t = there;
      k->arg[i].t = there;
    }
  }
  return 0;
}

static int call_plan(limn_call *k) {
  limn_plan *p;
  call_unprepare(k);
  LIMN_TRY(call_inputs(k));
  LIMN_TRY(limn_plan_get(k->g, k->dev, k->arg, &p));
  limn_plan_pin(p);
  k->plan = p;
  return 0;
}

int limn_call_workspace(limn_call *k, size_t *bytes) {
  if (!k || !bytes) return LIMN_EARG;
  limn_error_clear(k->c);
  LIMN_TRY(call_plan(k));
  /* With room to align what malloc gives. */
  *bytes = k->dev->ops->host && k->plan->scratch ? k->plan->scratch + 63 : 0;
  return 0;
}

static int call_check_output(limn_call *k, uint32_t i) {
  const limn_out_info *o = &k->plan->out[i];
  const limn_array *a = &k->out[i].a;
  char want[96], got[96];
  if (a->dtype == o->dtype && a->ndim == o->v.ndim &&
      !memcmp(a->shape, o->v.d, sizeof *a->shape * (size_t)a->ndim) &&
      call_is_dense(a))
    return 0;
  return limn_fail(k->c, LIMN_ESHAPE,
                   "output %u is %s %s; it was bound to %s %s%s", i + 1,
                   limn_dtype_name(o->dtype),
                   limn_shape_text(want, sizeof want, o->v.ndim, o->v.d),
                   limn_dtype_name(a->dtype),
                   limn_shape_text(got, sizeof got, a->ndim, a->shape),
                   call_is_dense(a) ? "" : " with strides");
}

/* Bound outputs on the CPU are written in place; others get memory, which an
 * accelerator's run copies to what is bound. */
static int call_output(limn_call *k, uint32_t i) {
  const limn_out_info *o = &k->plan->out[i];
  call_slot *s = &k->out[i];
  limn_shape shape = {o->v.ndim, {0}};
  if (o->kind != LIMN_V_TENSOR) return 0;
  memcpy(shape.d, o->v.d, sizeof shape.d);
  if (s->bound) LIMN_TRY(call_check_output(k, i));
  if (s->bound && k->dev->ops->host)
    LIMN_TRY(call_borrow(k, &s->a, &s->t));
  else
    LIMN_TRY(limn_tensor_new(k->c, k->dev, o->dtype, &shape, &s->t));
  k->into[i] = s->t;
  return 0;
}

/* The modes that the plan was made for, in a few bits. */
static uint64_t call_modes(const limn_graph *g) {
  uint64_t bits = (uint64_t)(g->mode_override + 1);
  for (uint32_t i = 0; i < g->nmode; i++)
    bits = bits * 2654435761u + g->mode[i].mode->training + 1;
  return bits;
}

int limn_call_prepare(limn_call *k, void *memory, size_t bytes) {
  if (!k) return LIMN_EARG;
  limn_error_clear(k->c);
  LIMN_TRY(call_plan(k));
  for (uint32_t i = 0; i < k->g->nout; i++) {
    k->into[i] = NULL;
    LIMN_TRY(call_output(k, i));
  }
  if (memory && k->dev->ops->host) {
    size_t skip = (64 - ((uintptr_t)memory & 63)) & 63;
    if (k->plan->scratch && (bytes < skip ||
                             bytes - skip < k->plan->scratch))
      return limn_fail(k->c, LIMN_EMEM, "the workspace has %zu bytes, the call "
                       "needs %zu aligned to 64", bytes, k->plan->scratch);
    k->scratch = (char *)memory + skip;
  } else if (k->dev->ops->host && k->plan->scratch) {
    LIMN_TRY(limn_dev_alloc(k->dev, k->plan->scratch, &k->own));
    k->own_size = k->plan->scratch;
    k->scratch = k->own;
  }
  k->modes = call_modes(k->g);
  k->prepared = true;
  return 0;
}

/* -- Running -- */

static int call_upload(limn_call *k) {
  for (uint32_t i = 0; i < k->g->nin; i++) {
    call_slot *s = &k->in[i];
    limn_tensor *host = NULL, *dense = NULL;
    int rc;
    if (k->g->in[i].number) continue;
    LIMN_TRY(call_borrow(k, &s->a, &host));
    rc = limn_tensor_contiguous(host, &dense);
    if (rc == 0)
      rc = limn_tensor_write(s->t, dense->st->mem,
                             (size_t)(limn_tensor_numel(dense) *
                                      limn_dtype_size(dense->dtype)));
    limn_tensor_release(dense);
    limn_tensor_release(host);
    LIMN_TRY(rc);
  }
  return 0;
}

static int call_download(limn_call *k) {
  for (uint32_t i = 0; i < k->g->nout; i++) {
    call_slot *s = &k->out[i];
    if (!s->bound || !k->result[i].t) continue;
    LIMN_TRY(limn_tensor_read(k->result[i].t, s->a.data,
                              (size_t)(limn_tensor_numel(k->result[i].t) *
                                       limn_dtype_size(s->a.dtype))));
  }
  return 0;
}

int limn_call_run(limn_call *k) {
  bool host;
  if (!k) return LIMN_EARG;
  host = k->dev->ops->host;
  if (k->c->last) limn_error_clear(k->c);
  if (!k->prepared || k->modes != call_modes(k->g))
    return limn_fail(k->c, LIMN_EPLAN, "%s: call limn_call_prepare first; what "
                     "is bound, or the mode, has changed", k->name);
  limn_results_release(k->g, k->result);
  if (!host) LIMN_TRY(call_upload(k));
  LIMN_TRY(limn_plan_run(k->plan, k->arg, k->into, k->scratch, k->result));
  return host ? 0 : call_download(k);
}

/* A result that is no tensor: a number, a boolean, a string. */
static int call_plain(limn_call *k, limn_result *r, limn_array *out) {
  if (r->kind == LIMN_V_NONE)
    return limn_fail(k->c, LIMN_EPLAN, "%s has not run yet, or gives nothing "
                     "here", k->name);
  out->dtype = r->kind == LIMN_V_REAL  ? LIMN_F64
               : r->kind == LIMN_V_STR ? LIMN_U8
                                       : LIMN_I64;
  out->data = r->kind == LIMN_V_REAL ? (void *)&r->f : (void *)&r->i;
  if (r->kind == LIMN_V_STR) {
    out->ndim = 1;
    out->shape[0] = (int64_t)strlen(r->s);
    out->stride[0] = 1;
    out->data = (void *)(uintptr_t)r->s; /* only to be read */
  }
  return 0;
}

int limn_call_output(limn_call *k, int i, limn_array *out) {
  limn_tensor *t;
  limn_result *r;
  LIMN_TRY(call_check_index(k, LIMN_OUT, i));
  if (!out) return limn_fail(k->c, LIMN_EARG, "the result has no place");
  r = &k->result[i];
  memset(out, 0, sizeof *out);
  out->size = sizeof *out;
  t = r->t;
  if (!t) return call_plain(k, r, out);
  out->dtype = t->dtype;
  out->ndim = t->v.ndim;
  out->device = k->dev->ops->host ? NULL : k->dev->name;
  out->data = k->dev->ops->host
                  ? (char *)t->st->mem +
                        t->v.offset * limn_dtype_size(t->dtype)
                  : t->st->mem;
  memcpy(out->shape, t->v.d, sizeof out->shape);
  memcpy(out->stride, t->v.s, sizeof out->stride);
  return 0;
}
