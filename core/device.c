/* Devices: the list of a context, memory, copies, and the errors of runs. */
#include <pthread.h>
#include <stdio.h>

#include "device.h"

/* -- the list -- */

static int device_list(limn_context *c, limn_device *d) {
  size_t one = sizeof *c->devices, old = (size_t)c->ndevices * one;
  limn_device **list = limn_realloc(c, c->devices, old, old + one, 16);
  if (!list)
    return limn_fail(c, LIMN_EMEM, "out of memory: no room for device %s",
                     d->name);
  list[c->ndevices] = d;
  d->index = c->ndevices++;
  c->devices = list;
  return 0;
}

int limn_device_add(limn_context *c, const limn_device_ops *ops, void *impl,
                    const char *name, const char *description,
                    limn_device **out) {
  limn_device *d = limn_alloc(c, sizeof *d);
  int rc;
  *out = NULL;
  if (!d) return LIMN_EMEM;
  d->ops = ops;
  d->c = c;
  d->impl = impl;
  snprintf(d->name, sizeof d->name, "%s", name);
  snprintf(d->description, sizeof d->description, "%s", description);
  if ((rc = device_list(c, d)) < 0) {
    limn_free(c, d, sizeof *d);
    return rc;
  }
  *out = d;
  return 0;
}

limn_device *limn_device_cpu(limn_context *c) { return c->devices[0]; }

const char *limn_device_name(limn_context *ctx, int i) {
  if (!ctx || i < 0 || (i > 0 && limn_devices_all(ctx) < 0)) return NULL;
  return i < ctx->ndevices ? ctx->devices[i]->name : NULL;
}

/* Notes of several kinds stand side by side: "opencl: no driver; cuda: ...".
 * What does not fit is cut. */
void limn_device_note(limn_context *c, const char *fmt, ...) {
  size_t n = strlen(c->device_notes), room = sizeof c->device_notes - n;
  va_list ap;
  if (n && room > 2) {
    memcpy(c->device_notes + n, "; ", 3);
    n += 2, room -= 2;
  }
  va_start(ap, fmt);
  vsnprintf(c->device_notes + n, room, fmt, ap);
  va_end(ap);
}

/* "gpu" is the first accelerator; a kind without a number its first device. */
static bool device_is(const limn_device *d, const char *name) {
  if (!strcmp(name, d->name) || !strcmp(name, d->ops->kind)) return true;
  return !strcmp(name, "gpu") && !d->ops->host;
}

int limn_device_find(limn_context *c, const char *name, limn_device **out) {
  char have[512];
  size_t n = 0;
  int i;
  *out = NULL;
  if (strcmp(name, "cpu")) LIMN_TRY(limn_devices_all(c));
  for (i = 0; i < c->ndevices; i++)
    if (device_is(c->devices[i], name)) {
      *out = c->devices[i];
      return 0;
    }
  have[0] = 0;
  for (i = 0; i < c->ndevices && n < sizeof have; i++)
    n += (size_t)snprintf(have + n, sizeof have - n, "%s%s", i ? ", " : "",
                          c->devices[i]->name);
  limn_fail(c, LIMN_EDEVICE, "there is no device \"%.40s\" here, only %s",
            name, have);
  if (!c->device_notes[0]) return LIMN_EDEVICE;
  return limn_hint(c, LIMN_EDEVICE, "what is missing: %s", c->device_notes);
}

int limn_devices_open(limn_context *c) { return limn_cpu_ops.open(c); }

/* Drivers take long to open, much memory and now and then the process, so who
 * stays on the CPU has nothing to do with them. Some start themselves once for
 * the process and are not ready for two threads at that moment. */
int limn_devices_all(limn_context *c) {
  static pthread_mutex_t drivers_lock = PTHREAD_MUTEX_INITIALIZER;
  int rc = 0;
  if (c->all_devices) return 0;
  c->all_devices = true;
  pthread_mutex_lock(&drivers_lock);
  if (c->flags.no_cuda)
    limn_device_note(c, "cuda: switched off by LIMN_DEVICES");
  else
    rc = limn_cuda_ops.open(c);
  if (c->flags.no_opencl)
    limn_device_note(c, "opencl: switched off by LIMN_DEVICES");
  else if (rc >= 0)
    rc = limn_opencl_ops.open(c);
  pthread_mutex_unlock(&drivers_lock);
  if (rc < 0) limn_device_note(c, "out of memory when devices were opened");
  return rc;
}

void limn_devices_look(limn_context *c) {
  int i;
  for (i = 0; i < c->ndevices; i++)
    if (c->devices[i]->ops->look) c->devices[i]->ops->look(c->devices[i]);
}

/* Last come, first gone: the CPU outlives what may copy to it. */
void limn_devices_close(limn_context *c) {
  size_t size = (size_t)c->ndevices * sizeof *c->devices;
  int i;
  for (i = c->ndevices - 1; i >= 0; i--) {
    limn_device *d = c->devices[i];
    if (d->scratch) limn_dev_free(d, d->scratch, d->scratch_size);
    d->ops->close(d);
    limn_free(c, d, sizeof *d);
  }
  if (c->devices) limn_realloc(c, c->devices, size, 0, 16);
  c->devices = NULL;
  c->ndevices = 0;
}

/* -- memory -- */

static void device_count(limn_device *d, size_t less, size_t more) {
  d->bytes = d->bytes - less + more;
  if (!d->ops->host) d->c->device_bytes = d->c->device_bytes - less + more;
}

int limn_dev_alloc(struct limn_device *dev, size_t bytes, void **mem) {
  limn_context *c = dev->c;
  int rc = dev->ops->alloc(dev, bytes, mem);
  /* Host memory has had its try of the reclaim callback in limn_realloc. */
  if (rc == LIMN_EMEM && !dev->ops->host && c->reclaim && !c->reclaiming) {
    bool freed;
    c->reclaiming = true;
    freed = c->reclaim(c->reclaim_user);
    c->reclaiming = false;
    if (freed) rc = dev->ops->alloc(dev, bytes, mem);
  }
  if (rc < 0) return rc;
  device_count(dev, 0, bytes);
  return 0;
}

void limn_dev_free(struct limn_device *dev, void *mem, size_t bytes) {
  if (!mem) return;
  dev->ops->free(dev, mem, bytes);
  device_count(dev, bytes, 0);
}

int limn_dev_upload(struct limn_device *dev, void *mem, size_t off,
                    const void *src, size_t n) {
  return n ? dev->ops->upload(dev, mem, off, src, n) : 0;
}

int limn_dev_download(struct limn_device *dev, void *mem, size_t off,
                      void *dst, size_t n) {
  if (!n) return 0;
  LIMN_TRY(dev->ops->download(dev, mem, off, dst, n));
  /* It waited: what the runs before it noted has to be raised now. */
  return dev->ops->host ? 0 : limn_device_wait(dev);
}

bool limn_dev_crosses(const struct limn_device *dev,
                      const struct limn_device *from) {
  return dev->ops == from->ops && dev->ops->cross;
}

/* What the runs before noted is raised, as it is where the host reads. */
int limn_dev_cross(struct limn_device *dev, void *mem,
                   struct limn_device *from, void *src, size_t off, size_t n) {
  LIMN_TRY(limn_device_wait(from));
  return dev->ops->cross(dev, mem, from, src, off, n);
}

bool limn_dev_is_host(const struct limn_device *dev) {
  return dev->ops->host;
}

int limn_dev_index(const struct limn_device *dev) { return dev->index; }

const char *limn_dev_name(const struct limn_device *dev) { return dev->name; }

/* A copy on an accelerator is a fused group of one load and one store. */
static void device_copy_code(limn_group *g, int ddtype, int sdtype) {
  limn_instr *load = &g->code[0], *cast = &g->code[1], *store;
  memset(g->code, 0, 3 * sizeof *g->code);
  load->op = LIMN_I_LOAD;
  load->dtype = (uint8_t)sdtype;
  load->ctype = (uint8_t)limn_dtype_compute(sdtype);
  g->ncode = 1;
  if (ddtype != sdtype) {
    cast->op = LIMN_I_CAST;
    cast->dtype = (uint8_t)ddtype;
    cast->ctype = (uint8_t)limn_dtype_compute(ddtype);
    g->ncode = 2;
  }
  store = &g->code[g->ncode];
  store->op = LIMN_I_STORE;
  store->dtype = (uint8_t)ddtype;
  store->ctype = (uint8_t)limn_dtype_compute(ddtype);
  store->a = (uint16_t)(g->ncode - 1);
  g->ncode++;
}

int limn_dev_copy(struct limn_device *dev, int ddtype, void *dmem,
                  const limn_view *dv, int sdtype, void *smem,
                  const limn_view *sv) {
  limn_operand out = {0, (uint8_t)ddtype, *dv};
  limn_operand in = {1, (uint8_t)sdtype, *sv};
  limn_view *views[2];
  limn_slot slot[2] = {{dmem, 0, NULL, NULL}, {smem, 0, NULL, NULL}};
  limn_instr code[3];
  limn_group group = {0, code};
  limn_step s = {0};
  limn_bind b = {0};
  int rc;
  if (limn_numel(dv->ndim, dv->d) == 0) return 0;
  if (dev->ops->host) {
    limn_host_copy(ddtype, dmem, dv, sdtype, smem, sv);
    return 0;
  }
  views[0] = &out.v, views[1] = &in.v;
  limn_view_collapse(views, 2);
  device_copy_code(&group, ddtype, sdtype);
  s.kind = LIMN_STEP_GROUP;
  s.nin = s.nout = 1;
  s.in = &in, s.out = &out;
  s.group = &group;
  b.slot = slot;
  b.c = dev->c;
  LIMN_TRY(dev->ops->prepare(dev, &s));
  rc = dev->ops->launch(dev, &s, &b);
  dev->ops->discard(dev, &s);
  return rc;
}

/* -- data errors of runs -- */

/* "net.lua:3: solve: matrix 2 of 5 is singular: pivot 3 is 0" */
static int fault_matrix(limn_context *c, const limn_fault *f,
                        const char *where) {
  static const char *const why[] = {
      "?", "is singular: pivot %lld is 0",
      "is not positive definite: pivot %lld is not above 0",
      "does not converge (at %lld)", "holds NaN or infinity"};
  static const char *const hints[] = {
      "", "limn.linalg.lstsq and pinv take such matrices",
      "a small number added to the diagonal may help", "", ""};
  int64_t k = f->base > 0 && f->base < LIMN_COUNT(why) ? f->base : 0;
  char text[100];
  snprintf(text, sizeof text, why[k], (long long)f->value);
  if (f->limit > 1)
    limn_fail(c, f->code, "%s: matrix %lld of %lld %s", where,
              (long long)f->at + 1, (long long)f->limit, text);
  else
    limn_fail(c, f->code, "%s: the matrix %s", where, text);
  return *hints[k] ? limn_hint(c, f->code, "%s", hints[k]) : f->code;
}

static int fault_index(limn_context *c, const limn_fault *f,
                       const char *where) {
  int64_t size = f->limit - f->base + 1;
  size_t n = strlen(where);
  if (n >= 11 && !strcmp(where + n - 11, "class label"))
    return limn_fail(
        c, f->code, "%s %lld in row %lld: labels are %lld..%lld%s", where,
        (long long)f->value, (long long)f->at + 1, (long long)f->base,
        (long long)f->limit,
        f->value == f->base - 1 ? "; data that counts from 0: add 1" : "");
  if (f->value < f->base && f->value < 0 && f->value + size >= 0 && size > 0)
    return limn_fail(
        c, f->code,
        "%s: index %lld at position %lld is out of range: the size is %lld, "
        "positions count from %lld, and negative ones do not count from the "
        "end here",
        where, (long long)f->value, (long long)f->at + 1, (long long)size,
        (long long)f->base);
  return limn_fail(c, f->code,
                   "%s: index %lld at position %lld is out of range: the size "
                   "is %lld and positions count from %lld",
                   where, (long long)f->value, (long long)f->at + 1,
                   (long long)size, (long long)f->base);
}

int limn_fault_fail(limn_context *c, const limn_fault *f) {
  const char *where = f->site < c->nsites ? c->site_text[f->site] : NULL;
  if (!where) where = "indexing";
  if (f->code == LIMN_EVALUE) fault_matrix(c, f, where);
  else fault_index(c, f, where);
  limn_turn_append(c, f->turn);
  return f->code;
}

/* Cells hold what the failed run and the runs after it wrote. */
static void device_void(limn_device *d, uint64_t serial) {
  limn_cell *cell;
  for (cell = d->c->cells; cell; cell = cell->next)
    if (cell->run_dev == d && cell->run_serial >= serial)
      limn_cell_void(cell, d->c->error);
}

int limn_device_wait(limn_device *d) {
  limn_fault f;
  memset(&f, 0, sizeof f);
  d->in_flight = 0;
  LIMN_TRY(d->ops->wait(d));
  if (!d->ops->fault) return 0;
  LIMN_TRY(d->ops->fault(d, &f));
  if (!f.site) return 0;
  limn_fault_fail(d->c, &f);
  device_void(d, f.serial);
  return f.code;
}
