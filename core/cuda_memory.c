/* Memory of a CUDA device, and copies through pinned memory. */
#include "dev_cuda.h"

/* -- Device memory --------------------------------------------------------- */

static int memory_alloc(cuda_dev *d, size_t bytes, cu_ptr *p) {
  const cu_api *f = &d->l->f;
  return d->pool ? f->MemAllocFromPool(p, bytes, d->pool, d->stream)
                 : f->MemAlloc(p, bytes);
}

/* What is free but not yet given back to the driver. */
static void memory_trim(cuda_dev *d) {
  if (!d->pool) return;
  d->l->f.StreamSynchronize(d->stream);
  d->l->f.MemPoolTrimTo(d->pool, 0);
}

void cuda_mem_trim(cuda_dev *d) {
  limn_gpu_trim(&d->gpu);
  memory_trim(d);
}

int cuda_mem_new(limn_gpu *g, size_t bytes, void **mem) {
  cuda_dev *d = cuda_of(g);
  cu_ptr p = 0;
  int code;
  *mem = NULL;
  LIMN_TRY(cuda_enter(d));
  code = memory_alloc(d, bytes, &p);
  if (code == CU_E_OUT_OF_MEMORY && d->pool) {
    memory_trim(d);
    code = memory_alloc(d, bytes, &p);
  }
  cuda_leave(d);
  if (code == CU_E_OUT_OF_MEMORY) return LIMN_EMEM;
  if (code) return cuda_fail(d, code, "cuMemAlloc");
  *mem = (void *)(uintptr_t)p;
  return 0;
}

/* cuMemFree waits for what uses the memory, cuMemFreeAsync comes after it. */
void cuda_mem_del(limn_gpu *g, void *mem) {
  cuda_dev *d = cuda_of(g);
  if (cuda_enter(d) < 0) return;
  if (d->pool)
    d->l->f.MemFreeAsync(cuda_ptr(mem), d->stream);
  else
    d->l->f.MemFree(cuda_ptr(mem));
  cuda_leave(d);
}

/* -- Pinned memory --------------------------------------------------------- */

static void ring_open(cuda_dev *d) {
  const cu_api *f = &d->l->f;
  cuda_ring *r = &d->ring;
  void *mem = NULL;
  int i;
  if (r->tried) return;
  r->tried = true;
  if (f->MemAllocHost(&mem, (size_t)CUDA_PARTS * CUDA_PART)) return;
  for (i = 0; i < CUDA_PARTS; i++)
    if (f->EventCreate(&r->done[i], CU_EVENT_NO_TIMING)) break;
  if (i == CUDA_PARTS) {
    r->mem = mem;
    return;
  }
  while (i-- > 0) f->EventDestroy(r->done[i]);
  f->MemFreeHost(mem);
}

void cuda_ring_free(cuda_dev *d) {
  cuda_ring *r = &d->ring;
  int i;
  if (r->mem) {
    for (i = 0; i < CUDA_PARTS; i++) d->l->f.EventDestroy(r->done[i]);
    d->l->f.MemFreeHost(r->mem);
  }
  memset(r, 0, sizeof *r);
}

/* n bytes, at most a part, in `part`. The copies that use them are to be put
 * on the stream before the next call. */
static int ring_take(cuda_dev *d, size_t n, char **out, int *part) {
  const cu_api *f = &d->l->f;
  cuda_ring *r = &d->ring;
  int code = 0;
  if (r->at + n > CUDA_PART) {
    code = f->EventRecord(r->done[r->part], d->stream);
    if (code) return cuda_fail(d, code, "cuEventRecord");
    r->left[r->part] = true;
    r->part = (r->part + 1) % CUDA_PARTS;
    r->at = 0;
    if (r->left[r->part]) code = f->EventSynchronize(r->done[r->part]);
    if (code) return cuda_fail(d, code, "cuEventSynchronize");
    r->left[r->part] = false;
  }
  *out = r->mem + (size_t)r->part * CUDA_PART + r->at;
  *part = r->part;
  r->at += (n + 63) & ~(size_t)63;
  return 0;
}

/* -- Copies ---------------------------------------------------------------- */

static int copy_wait(cuda_dev *d) {
  int code = d->l->f.StreamSynchronize(d->stream);
  return code ? cuda_fail(d, code, "cuStreamSynchronize") : 0;
}

static int copy_in(cuda_dev *d, cu_ptr to, const char *src, size_t n) {
  while (n) {
    size_t some = LIMN_MIN(n, (size_t)CUDA_PART);
    char *at;
    int part, code;
    LIMN_TRY(ring_take(d, some, &at, &part));
    memcpy(at, src, some);
    code = d->l->f.MemcpyHtoDAsync(to, at, some, d->stream);
    if (code) return cuda_fail(d, code, "cuMemcpyHtoDAsync");
    to += some, src += some, n -= some;
  }
  return 0;
}

/* Each part is emptied while the next one fills. */
static int copy_out(cuda_dev *d, cu_ptr from, char *dst, size_t n) {
  char *at, *last = NULL;
  size_t some, had = 0;
  int part, before = 0, code = 0;
  while (n) {
    some = LIMN_MIN(n, (size_t)CUDA_PART);
    LIMN_TRY(ring_take(d, some, &at, &part));
    code = d->l->f.MemcpyDtoHAsync(at, from, some, d->stream);
    if (code) return cuda_fail(d, code, "cuMemcpyDtoHAsync");
    if (last) {
      code = d->l->f.EventSynchronize(d->ring.done[before]);
      if (code) return cuda_fail(d, code, "cuEventSynchronize");
      memcpy(dst, last, had);
      dst += had;
    }
    last = at, had = some, before = part;
    from += some, n -= some;
  }
  LIMN_TRY(copy_wait(d));
  if (last) memcpy(dst, last, had);
  return 0;
}

/* Without pinned memory the driver stages: correct, and slower. */
static int copy_plain(cuda_dev *d, cu_ptr at, const void *src, void *dst,
                      size_t n) {
  int code = src ? d->l->f.MemcpyHtoDAsync(at, src, n, d->stream)
                 : d->l->f.MemcpyDtoHAsync(dst, at, n, d->stream);
  if (code) return cuda_fail(d, code, src ? "cuMemcpyHtoDAsync"
                                          : "cuMemcpyDtoHAsync");
  return copy_wait(d);
}

int cuda_write(limn_gpu *g, void *mem, size_t off, const void *src, size_t n) {
  cuda_dev *d = cuda_of(g);
  cu_ptr to = cuda_ptr(mem) + off;
  int rc;
  LIMN_TRY(cuda_enter(d));
  ring_open(d);
  rc = d->ring.mem ? copy_in(d, to, src, n) : copy_plain(d, to, src, NULL, n);
  cuda_leave(d);
  return rc;
}

int cuda_read(limn_gpu *g, void *mem, size_t off, void *dst, size_t n) {
  cuda_dev *d = cuda_of(g);
  cu_ptr from = cuda_ptr(mem) + off;
  int rc;
  LIMN_TRY(cuda_enter(d));
  ring_open(d);
  rc = d->ring.mem ? copy_out(d, from, dst, n)
                   : copy_plain(d, from, NULL, dst, n);
  cuda_leave(d);
  return rc;
}

/* Lets d reach the memory of another device, so that copies need not go by way
 * of the host: a pool says itself who may, else contexts are made peers. Where
 * that fails copies are slower, or are made by the host. */
static void cross_open(cuda_dev *d, const cuda_dev *other) {
  const cu_api *f = &d->l->f;
  cu_access access = {{CU_LOCATION_DEVICE, d->id}, CU_ACCESS_BOTH};
  uint64_t bit = (uint64_t)1 << (other->id & 63);
  int can = 0;
  if (d->peers & bit) return;
  d->peers |= bit;
  if (f->DeviceCanAccessPeer(&can, d->id, other->id) || !can) return;
  if (other->pool)
    f->MemPoolSetAccess(other->pool, &access, 1);
  else
    f->CtxEnablePeerAccess(other->context, 0);
}

/* The copy is in this device's order; the other must not write or free what is
 * read before it is done. 0: the driver does not copy between these two. */
static int cross_copy(cuda_dev *d, cuda_dev *other, cu_ptr to, cu_ptr from,
                      size_t n) {
  const cu_api *f = &d->l->f;
  int code = 0;
  if (!d->crossed) code = f->EventCreate(&d->crossed, CU_EVENT_NO_TIMING);
  if (code) return cuda_fail(d, code, "cuEventCreate");
  cross_open(d, other);
  code = f->MemcpyPeerAsync(to, d->context, from, other->context, n, d->stream);
  if (code) return 0;
  code = f->EventRecord(d->crossed, d->stream);
  return code ? cuda_fail(d, code, "cuEventRecord") : 1;
}

int cuda_cross(limn_device *dev, void *mem, limn_device *from, void *src,
               size_t off, size_t n) {
  cuda_dev *d = dev->impl, *other = from->impl;
  int rc, code;
  LIMN_TRY(cuda_enter(d));
  rc = cross_copy(d, other, cuda_ptr(mem), cuda_ptr(src) + off, n);
  cuda_leave(d);
  if (rc <= 0) return rc;
  LIMN_TRY(cuda_enter(other));
  code = d->l->f.StreamWaitEvent(other->stream, d->crossed, 0);
  cuda_leave(other);
  return code ? cuda_fail(other, code, "cuStreamWaitEvent") : 1;
}

int cuda_finish(limn_gpu *g) {
  cuda_dev *d = cuda_of(g);
  int rc;
  if (!d->context) return 0; /* nothing was ever launched */
  LIMN_TRY(cuda_enter(d));
  rc = copy_wait(d);
  cuda_leave(d);
  return rc;
}
