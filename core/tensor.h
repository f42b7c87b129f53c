/* Layer 1: dtypes, shapes, tensor values, cells and random words. */
#ifndef LIMN_TENSOR_H
#define LIMN_TENSOR_H

#include "base.h"

struct limn_device;

/* -- device.c -- the little of layer 3 that values need. `mem` is what
 * limn_dev_alloc gave; offsets and sizes are bytes. Copies are ordered with
 * the device's runs. Failures leave their message in the context. */
int limn_dev_alloc(struct limn_device *dev, size_t bytes, void **mem);
void limn_dev_free(struct limn_device *dev, void *mem, size_t bytes);
int limn_dev_upload(struct limn_device *dev, void *mem, size_t off,
                    const void *src, size_t n); /* src is free on return */
int limn_dev_download(struct limn_device *dev, void *mem, size_t off,
                      void *dst, size_t n); /* waits */
/* Copy from another accelerator without the host: 1, or 0 where it is needed;
 * the first says whether to ask. */
bool limn_dev_crosses(const struct limn_device *dev,
                      const struct limn_device *from);
int limn_dev_cross(struct limn_device *dev, void *mem,
                   struct limn_device *from, void *src, size_t off, size_t n);
bool limn_dev_is_host(const struct limn_device *dev);
int limn_dev_index(const struct limn_device *dev); /* in c->devices */
const char *limn_dev_name(const struct limn_device *dev);

/* -- dtype.c -- */
int limn_dtype_size(int dtype);          /* bytes per element */
const char *limn_dtype_name(int dtype);  /* "float32" */
const char *limn_dtype_short(int dtype); /* "f32", as graphs and files say */
int limn_dtype_find(const char *name);   /* either form; -1 if unknown */
bool limn_dtype_float(int dtype);
bool limn_dtype_half(int dtype); /* float16 or bfloat16 */
bool limn_dtype_int(int dtype); /* an integer, not bool */
/* 0 bool, 1 int, 2 float: PyTorch's promotion categories. */
int limn_dtype_category(int dtype);
/* PyTorch's promotion of two dtypes of equal standing; uint8 with int8, which
 * is int16 there, is int32 here. */
int limn_dtype_promote(int a, int b);
/* Whether v is among the values of an int dtype. */
bool limn_dtype_holds(int dtype, int64_t v);
/* The type that kernels compute in: float16, bfloat16, float32 -> float32;
 * float64; int64; int32, int8, uint8 -> int32; bool -> bool. */
int limn_dtype_compute(int dtype);
/* Element conversions, defined for every value: float to int truncates,
 * saturates, NaN is 0; int to narrower int wraps; anything to bool is != 0;
 * float to half rounds to even. */
double limn_load_real(int dtype, const void *p);
int64_t limn_load_int(int dtype, const void *p);
void limn_store_real(int dtype, void *p, double v);
void limn_store_int(int dtype, void *p, int64_t v);
/* The same for n elements `stride` bytes apart, to and from an array. */
void limn_load_reals(int dtype, const void *p, int64_t stride, int64_t n,
                     double *out);
void limn_load_ints(int dtype, const void *p, int64_t stride, int64_t n,
                    int64_t *out);
void limn_store_reals(int dtype, void *p, int64_t stride, int64_t n,
                      const double *v);
void limn_store_ints(int dtype, void *p, int64_t stride, int64_t n,
                     const int64_t *v);
float limn_half_to_float(uint16_t h);
uint16_t limn_float_to_half(float f);
float limn_bf16_to_float(uint16_t h);
uint16_t limn_float_to_bf16(float f);

/* -- shape.c -- */
typedef struct {
  int ndim;
  int64_t d[LIMN_MAXDIM];
} limn_shape;
/* Where elements lie: shape, strides and offset, both in elements. Strides
 * may be 0 (expanded) or negative (flipped). */
typedef struct {
  int ndim;
  int64_t d[LIMN_MAXDIM], s[LIMN_MAXDIM];
  int64_t offset;
} limn_view;

/* Strided copy with conversion between memory of one device (device.c). */
int limn_dev_copy(struct limn_device *dev, int ddtype, void *dmem,
                  const limn_view *dv, int sdtype, void *smem,
                  const limn_view *sv);

int64_t limn_numel(int ndim, const int64_t *d); /* assumes it fits */
/* Number of elements and bytes, checked: LIMN_ESIZE on overflow or a
 * negative dim. */
int limn_shape_bytes(limn_context *c, const limn_shape *s, int dtype,
                     int64_t *numel, int64_t *bytes);
bool limn_shape_eq(const limn_shape *a, const limn_shape *b);
/* NumPy broadcasting; LIMN_ESHAPE with both shapes when it fails. */
int limn_shape_broadcast(limn_context *c, const limn_shape *a,
                         const limn_shape *b, limn_shape *out);
void limn_view_dense(limn_view *v, int ndim, const int64_t *d); /* offset 0 */
bool limn_view_is_dense(const limn_view *v); /* row-major; any offset */
/* v seen with shape s (same number of elements) as a view: true, or false
 * when elements would have to move. */
bool limn_view_reshape(const limn_view *v, const limn_shape *s,
                       limn_view *out);
/* Strides of v when broadcast to shape s (0 where a dim of 1 is repeated). */
void limn_view_broadcast(const limn_view *v, const limn_shape *s,
                         limn_view *out);
/* Whether no two elements lie in the same place; false when in doubt. */
bool limn_view_distinct(const limn_view *v);
/* Lowest and highest element index touched, relative to the storage. */
void limn_view_extent(const limn_view *v, int64_t *lo, int64_t *hi);
/* Merge neighbouring dims that are contiguous in all n views at once (they
 * have equal shapes) and drop dims of size 1. ndim may become 0. */
void limn_view_collapse(limn_view **views, int n);
/* "[2, 3]" into buf; returns buf. */
const char *limn_shape_text(char *buf, size_t n, int ndim, const int64_t *d);

/* -- copy.c -- */
/* Host-side strided copy with conversion between two CPU views of equal
 * shape; src may not overlap dst. */
void limn_host_copy(int ddtype, void *dst, const limn_view *dv, int sdtype,
                    const void *src, const limn_view *sv);

/* -- tensor.c -- */
/* Memory on one device. `mem` is a host pointer on the CPU (64-byte aligned),
 * the device's own handle elsewhere. */
typedef struct limn_storage {
  int refs;
  struct limn_device *dev;
  void *mem;
  size_t bytes;
  bool borrowed; /* the host's memory: freed by `release`, never by us */
  void (*release)(void *user, void *mem);
  void *release_user;
  limn_context *c;
} limn_storage;

/* A tensor value: never changes once a second reference to it exists. */
typedef struct limn_tensor {
  int refs;
  int dtype;
  limn_view v; /* offset counts from the storage's start */
  limn_storage *st;
  limn_context *c;
} limn_tensor;

int limn_storage_new(limn_context *c, struct limn_device *dev, size_t bytes,
                     limn_storage **out);
void limn_storage_retain(limn_storage *s);
void limn_storage_release(limn_storage *s);
/* A dense tensor with undefined elements. */
int limn_tensor_new(limn_context *c, struct limn_device *dev, int dtype,
                    const limn_shape *s, limn_tensor **out);
/* Another view of the same storage (retained). */
int limn_tensor_view(limn_tensor *t, const limn_view *v, limn_tensor **out);
void limn_tensor_retain(limn_tensor *t);
void limn_tensor_release(limn_tensor *t); /* NULL is fine */
limn_shape limn_tensor_shape(const limn_tensor *t);
int64_t limn_tensor_numel(const limn_tensor *t);
bool limn_tensor_is_dense(const limn_tensor *t);
/* Upload n = numel * size bytes of row-major data / download them; waits for
 * the device. A strided tensor on an accelerator is packed there first. */
int limn_tensor_write(limn_tensor *t, const void *data, size_t n);
int limn_tensor_read(limn_tensor *t, void *data, size_t n);
/* One element by linear row-major index, as raw bytes of its dtype. */
int limn_tensor_element(limn_tensor *t, int64_t index, void *out);
/* The same values on another device and/or with another dtype; t itself,
 * retained, when nothing changes. Dense when it copies. */
int limn_tensor_to(limn_tensor *t, struct limn_device *dev, int dtype,
                   limn_tensor **out);
int limn_tensor_contiguous(limn_tensor *t, limn_tensor **out);
/* Elements as text: large tensors show 3 edge items a dim and only those are
 * copied from a device; ends with "float32 [2, 3] on cpu". */
int limn_tensor_format(limn_tensor *t, limn_str *out);
const char *limn_tensor_text(char *buf, size_t n,
                             const limn_tensor *t); /* that last line */

/* -- cell.c -- a named, mutable tensor that follows the run. */
enum { LIMN_CELL_PARAM, LIMN_CELL_BUFFER, LIMN_CELL_STATE };
typedef struct {
  limn_tensor *value; /* or NULL */
  uint64_t version;   /* which version of the cell this is */
} limn_replica;
/* A copy of a value in another layout (packed for products), made by a kernel
 * from that version of it. */
typedef struct {
  void *data;
  size_t size;
  uint64_t version;
  int layout;
} limn_derived;

typedef struct limn_cell {
  int refs;
  limn_context *c;
  char *name; /* may be NULL until an owner is found */
  int kind, dtype;
  limn_shape shape;
  uint64_t version;    /* counts assignments */
  uint64_t since;      /* run count at the last change; see prepack */
  limn_replica *rep;   /* one per device index */
  int nrep;
  bool frozen;
  limn_derived derived; /* freed with the cell */
  char *voided;        /* why the cell is void, or NULL */
  uint64_t run_serial; /* serial of the accelerator run that wrote it */
  struct limn_device *run_dev;
  struct limn_cell *prev, *next; /* in c->cells: all that live */
} limn_cell;
/* Takes no reference to `t`'s handle: the cell shares its storage until one
 * of them is written. */
int limn_cell_new(limn_context *c, int kind, limn_tensor *t, limn_cell **out);
void limn_cell_retain(limn_cell *cell);
void limn_cell_release(limn_cell *cell);
int limn_cell_set_name(limn_cell *cell, const char *name);
/* The newest value on `dev` (borrowed), copying it there first if need be.
 * dev NULL: wherever the newest is. Fails with the void message. */
int limn_cell_get(limn_cell *cell, struct limn_device *dev, limn_tensor **out);
/* New value: the shape must match, the dtype is converted. Clears void. */
int limn_cell_assign(limn_cell *cell, limn_tensor *t);
/* As assign, without checks, for a run's commit: t is dense, right dtype. */
int limn_cell_commit(limn_cell *cell, limn_tensor *t);
void limn_cell_void(limn_cell *cell, const char *why);

/* -- random.c -- Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random
 * numbers: as easy as 1, 2, 3", SC 2011). */
void limn_philox(const uint32_t key[2], const uint32_t ctr[4],
                 uint32_t out[4]);
/* Words [first, first + n) of draw `draw` under `seed`. */
void limn_random_words(uint64_t seed, uint64_t draw, uint64_t first,
                       uint64_t n, uint32_t *out);
/* The key inside a region op that took `draw`, at step `step`: the first words
 * of the block with counter (step, draw). */
uint64_t limn_random_key(uint64_t seed, uint64_t step, uint64_t draw);
void limn_seed_set(limn_context *c, uint64_t seed); /* draws = 0 */

#endif
