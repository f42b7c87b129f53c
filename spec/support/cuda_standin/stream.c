/* Streams, whose work waits until something waits for it; events, copies and
 * launches, which are put there. */
#include "standin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct cu_stream *stream_all[256];
static int stream_count;

STANDIN_API int cuStreamCreate(cu_stream *out, unsigned flags) {
  struct cu_context *c;
  int rc;
  ENTER(cuStreamCreate);
  rc = standin_current(&c);
  if (rc) return rc;
  if (flags != CU_STREAM_OWN_ORDER)
    return standin_bad(SI_INVALID_VALUE, "flags %u: the NULL stream's order is "
                       "not stood in for", flags);
  if (stream_count == 256) return CU_E_OUT_OF_MEMORY;
  *out = standin_object_new(SI_STREAM, sizeof **out, c);
  (*out)->last = &(*out)->first;
  stream_all[stream_count++] = *out;
  return 0;
}

STANDIN_API int cuStreamDestroy_v2(cu_stream s) {
  int i, rc;
  ENTER(cuStreamDestroy_v2);
  CHECK(s, SI_STREAM);
  if (s->capture) standin_bad(0, "the stream is being captured");
  rc = standin_drain(s, UINT64_MAX);
  for (i = 0; i < stream_count; i++)
    if (stream_all[i] == s) stream_all[i] = stream_all[--stream_count];
  standin_object_end(s);
  return rc;
}

/* -- Operations ------------------------------------------------------------ */

standin_op *standin_op_new(int kind) {
  standin_op *op = standin_new(sizeof *op);
  op->kind = kind;
  return op;
}

void standin_op_free(standin_op *op) {
  if (op->own) free((void *)(uintptr_t)op->host);
  free(op->launch.param);
  free(op->gemm);
  free(op->dnn);
  free(op);
}

static size_t stream_param_bytes(const standin_entry *e) {
  size_t n = (size_t)(e->nparam + 1) * sizeof(void *);
  int i;
  for (i = 0; i < e->nparam; i++) n += (e->size[i] + 15u) / 16 * 16;
  return n + 16;
}

/* Values follow the pointers to them, each at a multiple of 16. */
static void **stream_params(const standin_entry *e, void *const *from) {
  void **p = standin_new(stream_param_bytes(e));
  size_t at = ((size_t)(e->nparam + 1) * sizeof(void *) + 15) / 16 * 16;
  int i;
  for (i = 0; i < e->nparam; i++) {
    p[i] = (char *)p + at;
    memcpy(p[i], from[i], e->size[i]);
    at += (e->size[i] + 15u) / 16 * 16;
  }
  return p;
}

standin_op *standin_op_copy(const standin_op *from) {
  standin_op *op = standin_new(sizeof *op);
  *op = *from;
  op->next = NULL;
  if (op->launch.param)
    op->launch.param = stream_params(op->launch.f->entry, from->launch.param);
  if (op->gemm) {
    op->gemm = standin_new(sizeof *op->gemm);
    *op->gemm = *from->gemm;
  }
  if (op->dnn) {
    op->dnn = standin_new(sizeof *op->dnn);
    *op->dnn = *from->dnn;
  }
  return op;
}

int standin_launch_fill(standin_launch *l, const cu_node_params *p) {
  const standin_entry *e;
  int i;
  CHECK(p->func, SI_FUNCTION);
  CHECK(p->func->module, SI_MODULE);
  e = p->func->entry;
  l->f = p->func;
  l->grid = (standin_dim){p->grid[0], p->grid[1], p->grid[2]};
  l->block = (standin_dim){p->block[0], p->block[1], p->block[2]};
  l->shared = p->shared;
  if (p->extra)
    return standin_bad(SI_INVALID_VALUE, "%s: extra is not stood in for",
                       e->name);
  for (i = 0; i < e->nparam; i++)
    if (!p->params || !p->params[i])
      return standin_bad(SI_INVALID_VALUE, "%s: parameter %d of %d is missing",
                         e->name, i + 1, e->nparam);
  /* More than a driver asks for: the list must end where the kernel's does. */
  if (e->call && p->params && p->params[e->nparam])
    return standin_bad(SI_INVALID_VALUE, "%s: more than %d parameters", e->name,
                       e->nparam);
  l->param = stream_params(e, p->params);
  return 0;
}

static int stream_run(standin_op *op, struct cu_context *c) {
  int rc = 0;
  switch (op->kind) {
  case SI_OP_KERNEL:
    rc = standin_launch_check(c, &op->launch, false);
    return rc ? rc : standin_run(&op->launch);
  case SI_OP_UP:
    rc = standin_range(c, op->to, op->bytes, false, "a copy's destination");
    if (rc) return rc;
    if (op->sum && standin_hash(1, op->host, op->bytes) != op->sum)
      standin_bad(0, "pinned memory changed before it was copied");
    memcpy(standin_real(op->to), op->host, op->bytes);
    return 0;
  case SI_OP_DOWN:
    rc = standin_range(c, op->from, op->bytes, false, "a copy's source");
    if (!rc) memcpy(op->host_to, standin_real(op->from), op->bytes);
    return rc;
  case SI_OP_COPY: /* both ends were checked; either may be a peer's */
    if (!standin_block_of(op->to) || !standin_block_of(op->from))
      return standin_bad(SI_INVALID_VALUE, "a copy's memory was freed");
    memmove(standin_real(op->to), standin_real(op->from), op->bytes);
    return 0;
  case SI_OP_FREE:
    return standin_memory_free(op->to);
  case SI_OP_WAIT:
    return standin_drain(op->stream, op->mark);
  case SI_OP_GEMM:
    rc = standin_gemm_check(c, op->gemm, false);
    if (!rc) standin_gemm_run(op->gemm);
    return rc;
  case SI_OP_DNN:
    rc = standin_dnn_check(c, op->dnn, false);
    if (!rc) standin_dnn_run(op->dnn);
    return rc;
  default:
    return 0;
  }
}

/* Errors of what runs stay with the context, as on a device. */
int standin_drain(struct cu_stream *s, uint64_t until) {
  struct cu_context *c = s->o.owner;
  while (s->first && s->done < until) {
    standin_op *op = s->first;
    int rc;
    s->first = op->next;
    if (!s->first) s->last = &s->first;
    s->done++;
    rc = c->sticky ? 0 : stream_run(op, c);
    if (rc) c->sticky = rc;
    standin_op_free(op);
  }
  return c->sticky;
}

int standin_drain_all(struct cu_context *c) {
  int i;
  for (i = 0; i < stream_count; i++)
    if (stream_all[i]->o.owner == c) standin_drain(stream_all[i], UINT64_MAX);
  return c->sticky;
}

int standin_not_capturing(struct cu_stream *s, const char *what) {
  if (!s->capture) return 0;
  s->spoilt = true;
  return standin_bad(SI_CAPTURE_UNSUPPORTED, "%s while the stream is captured",
                     what);
}

int standin_unsafe(const char *what) {
  int i;
  for (i = 0; i < stream_count; i++)
    if (stream_all[i]->capture && stream_all[i]->mode != CU_CAPTURE_RELAXED)
      return standin_not_capturing(stream_all[i], what);
  return 0;
}

enum { STREAM_LIMIT = 4096 }; /* operations that may wait */

int standin_queue(struct cu_stream *s, standin_op *op) {
  if (s->capture) {
    standin_graph_add(s->capture, op);
    return 0;
  }
  *s->last = op;
  s->last = &op->next;
  s->queued++;
  if (s->queued - s->done < STREAM_LIMIT) return 0;
  return standin_drain(s, s->queued - STREAM_LIMIT / 2);
}

STANDIN_API int cuStreamSynchronize(cu_stream s) {
  int rc;
  ENTER(cuStreamSynchronize);
  CHECK(s, SI_STREAM);
  rc = standin_not_capturing(s, "a wait");
  return rc ? rc : standin_drain(s, UINT64_MAX);
}

/* -- Copies ---------------------------------------------------------------- */

/* From pinned memory the copy is made later, so what is there must stay. From
 * other memory the driver stages it before it returns. */
STANDIN_API int cuMemcpyHtoDAsync_v2(cu_ptr to, const void *from, size_t bytes,
                                     cu_stream s) {
  standin_op *op;
  bool pinned;
  int rc;
  ENTER(cuMemcpyHtoDAsync_v2);
  CHECK(s, SI_STREAM);
  rc = standin_range(s->o.owner, to, bytes, true, "the destination");
  if (rc) return rc;
  pinned = standin_pinned(from, bytes);
  if (!pinned && s->capture)
    return standin_not_capturing(s, "a copy from memory that is not pinned");
  op = standin_op_new(SI_OP_UP);
  op->to = to;
  op->bytes = bytes;
  if (pinned) {
    op->host = from;
    op->sum = s->capture ? 0 : standin_hash(1, from, bytes);
  } else {
    op->own = true;
    op->host = memcpy(standin_new(bytes), from, bytes);
  }
  return standin_queue(s, op);
}

/* To pinned memory the copy is made later, and what is there until then is
 * rubbish. To other memory the driver waits. */
STANDIN_API int cuMemcpyDtoHAsync_v2(void *to, cu_ptr from, size_t bytes,
                                     cu_stream s) {
  standin_op *op;
  int rc;
  ENTER(cuMemcpyDtoHAsync_v2);
  CHECK(s, SI_STREAM);
  rc = standin_range(s->o.owner, from, bytes, true, "the source");
  if (rc) return rc;
  if (!standin_pinned(to, bytes)) {
    rc = standin_not_capturing(s, "a copy to memory that is not pinned");
    if (rc) return rc;
  }
  op = standin_op_new(SI_OP_DOWN);
  op->from = from;
  op->host_to = to;
  op->bytes = bytes;
  rc = standin_queue(s, op);
  if (rc || s->capture) return rc;
  if (!standin_pinned(to, bytes)) return standin_drain(s, UINT64_MAX);
  memset(to, 0xd5, bytes);
  return 0;
}

STANDIN_API int cuMemcpyPeerAsync(cu_ptr to, cu_context to_c, cu_ptr from,
                                  cu_context from_c, size_t bytes,
                                  cu_stream s) {
  standin_op *op;
  int rc;
  ENTER(cuMemcpyPeerAsync);
  CHECK(s, SI_STREAM);
  CHECK(to_c, SI_CONTEXT);
  CHECK(from_c, SI_CONTEXT);
  rc = standin_not_capturing(s, "a copy between devices");
  if (!rc) rc = standin_range(to_c, to, bytes, true, "the destination");
  if (!rc) rc = standin_range(from_c, from, bytes, true, "the source");
  if (rc) return rc;
  /* A pool's memory is mapped where its access says so, and nowhere else. */
  if (!standin_reaches(s->o.owner, from) || !standin_reaches(s->o.owner, to))
    return SI_NO_PEERS;
  op = standin_op_new(SI_OP_COPY);
  op->to = to;
  op->from = from;
  op->bytes = bytes;
  return standin_queue(s, op);
}

/* What the benchmark uses beside cuda_api.h. */
STANDIN_API int cuMemcpyHtoD_v2(cu_ptr to, const void *from, size_t bytes);
STANDIN_API int cuMemcpyDtoDAsync_v2(cu_ptr to, cu_ptr from, size_t bytes,
                                     cu_stream s);

STANDIN_API int cuMemcpyHtoD_v2(cu_ptr to, const void *from, size_t bytes) {
  struct cu_context *c;
  int rc;
  ENTER(cuMemcpyHtoD_v2);
  rc = standin_current(&c);
  if (!rc) rc = standin_range(c, to, bytes, true, "the destination");
  if (!rc) rc = standin_drain_all(c);
  if (!rc) memcpy(standin_real(to), from, bytes);
  return rc;
}

STANDIN_API int cuMemcpyDtoDAsync_v2(cu_ptr to, cu_ptr from, size_t bytes,
                                     cu_stream s) {
  standin_op *op;
  int rc;
  ENTER(cuMemcpyDtoDAsync_v2);
  CHECK(s, SI_STREAM);
  rc = standin_range(s->o.owner, to, bytes, true, "the destination");
  if (!rc) rc = standin_range(s->o.owner, from, bytes, true, "the source");
  if (rc) return rc;
  op = standin_op_new(SI_OP_COPY);
  op->to = to;
  op->from = from;
  op->bytes = bytes;
  return standin_queue(s, op);
}

/* -- Events ---------------------------------------------------------------- */

struct cu_event {
  standin_object o;
  struct cu_stream *stream; /* where it was recorded last, or NULL */
  uint64_t mark;
};

STANDIN_API int cuEventCreate(cu_event *out, unsigned flags) {
  struct cu_context *c;
  int rc;
  ENTER(cuEventCreate);
  (void)flags;
  rc = standin_current(&c);
  if (rc) return rc;
  *out = standin_object_new(SI_EVENT, sizeof **out, c);
  return 0;
}

STANDIN_API int cuEventDestroy_v2(cu_event e) {
  ENTER(cuEventDestroy_v2);
  CHECK(e, SI_EVENT);
  standin_object_end(e);
  return 0;
}

STANDIN_API int cuEventRecord(cu_event e, cu_stream s) {
  int rc;
  ENTER(cuEventRecord);
  CHECK(e, SI_EVENT);
  CHECK(s, SI_STREAM);
  rc = standin_not_capturing(s, "an event");
  if (rc) return rc;
  e->stream = s;
  e->mark = s->queued;
  return s->o.owner->sticky;
}

STANDIN_API int cuEventSynchronize(cu_event e) {
  ENTER(cuEventSynchronize);
  CHECK(e, SI_EVENT);
  return e->stream ? standin_drain(e->stream, e->mark) : 0;
}

/* The event may be another device's. */
STANDIN_API int cuStreamWaitEvent(cu_stream s, cu_event e, unsigned flags) {
  standin_op *op;
  int rc;
  ENTER(cuStreamWaitEvent);
  CHECK(s, SI_STREAM);
  if (!e || e->o.kind != SI_EVENT || !e->o.live || flags)
    return standin_bad(SI_INVALID_HANDLE, "no event that lives");
  rc = standin_not_capturing(s, "a wait for an event");
  if (rc || !e->stream) return rc;
  op = standin_op_new(SI_OP_WAIT);
  op->stream = e->stream;
  op->mark = e->mark;
  return standin_queue(s, op);
}

/* -- Launches -------------------------------------------------------------- */

int standin_launch_check(struct cu_context *c, const standin_launch *l,
                         bool queued) {
  const standin_entry *e = l->f->entry;
  const standin_code *code = l->f->module->code;
  size_t threads = (size_t)l->block.x * l->block.y * l->block.z;
  size_t shared = (size_t)(code->shared_end - code->shared) + l->shared;
  char what[96];
  int i, rc;
  if (l->f->o.owner != c)
    return standin_bad(SI_INVALID_CONTEXT, "%s is of another context", e->name);
  if (!l->grid.x || !l->grid.y || !l->grid.z || l->grid.x > 0x7fffffffu ||
      l->grid.y > 65535 || l->grid.z > 65535)
    return standin_bad(SI_INVALID_VALUE, "%s: a grid of %u x %u x %u", e->name,
                       l->grid.x, l->grid.y, l->grid.z);
  if (!threads || threads > 1024 || l->block.z > 64 ||
      (e->max_threads && threads > (size_t)e->max_threads))
    return standin_bad(SI_INVALID_VALUE, "%s: a block of %u x %u x %u", e->name,
                       l->block.x, l->block.y, l->block.z);
  if (shared > 48 * 1024 + 16)
    return standin_bad(SI_INVALID_VALUE, "%s: %zu bytes of shared memory",
                       e->name, shared);
  for (i = 0; i < e->nparam; i++) {
    cu_ptr p;
    if (!e->pointer[i]) continue;
    memcpy(&p, l->param[i], sizeof p);
    if (!p) continue; /* an absent operand: reading it faults */
    snprintf(what, sizeof what, "%s: parameter %d", e->name, i + 1);
    rc = standin_range(c, p, 0, queued, what);
    if (rc) return rc;
  }
  return 0;
}

STANDIN_API int cuLaunchKernel(cu_function f, unsigned gx, unsigned gy,
                               unsigned gz, unsigned bx, unsigned by,
                               unsigned bz, unsigned shared, cu_stream s,
                               void **params, void **extra) {
  cu_node_params p = {f, {gx, gy, gz}, {bx, by, bz}, shared, params, extra};
  standin_op *op;
  int rc;
  ENTER(cuLaunchKernel);
  CHECK(s, SI_STREAM);
  op = standin_op_new(SI_OP_KERNEL);
  rc = standin_launch_fill(&op->launch, &p);
  if (!rc) rc = standin_launch_check(s->o.owner, &op->launch, true);
  if (!rc) return standin_queue(s, op);
  standin_op_free(op);
  return rc;
}
