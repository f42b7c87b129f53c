/* Cells: named, mutable tensors with one replica per device, by version. */
#include "tensor.h"

/* Stands for a reason that there was no memory for; never freed. */
static const char cell_no_reason[] = "a run that writes it failed";

static void cell_unvoid(limn_cell *cell) {
  if (cell->voided && cell->voided != cell_no_reason)
    limn_free(cell->c, cell->voided, strlen(cell->voided) + 1);
  cell->voided = NULL;
}

static const char *cell_kind(const limn_cell *cell) {
  static const char *const names[] = {"parameter", "buffer", "state"};
  return names[cell->kind];
}

static const char *cell_name(const limn_cell *cell) {
  return cell->name ? cell->name : "without a name";
}

/* The replica that holds the newest version, or NULL. */
static limn_replica *cell_newest(const limn_cell *cell) {
  int i;
  for (i = 0; i < cell->nrep; i++)
    if (cell->rep[i].value && cell->rep[i].version == cell->version)
      return &cell->rep[i];
  return NULL;
}

/* The slot of a device; devices may have been added since the cell was made. */
static int cell_slot(limn_cell *cell, struct limn_device *dev,
                     limn_replica **out) {
  int i = limn_dev_index(dev);
  uint32_t cap = (uint32_t)cell->nrep;
  if (i >= cell->nrep) {
    int want = LIMN_MAX(i + 1, cell->c->ndevices);
    LIMN_TRY(limn_grow(cell->c, &cell->rep, &cap, (uint32_t)want,
                       sizeof *cell->rep));
    cell->nrep = (int)cap;
  }
  *out = &cell->rep[i];
  return 0;
}

/* Makes t, which is retained, the newest value. */
static int cell_install(limn_cell *cell, limn_tensor *t) {
  limn_replica *r;
  LIMN_TRY(cell_slot(cell, t->st->dev, &r));
  limn_tensor_retain(t);
  limn_tensor_release(r->value);
  r->value = t;
  r->version = ++cell->version;
  cell->since = cell->c->serial;
  cell_unvoid(cell);
  return 0;
}

/* As cell_install for a tensor that others hold: dense, of the cell's dtype,
 * in a handle of our own, so that theirs stays alone with its value. */
static int cell_share(limn_cell *cell, limn_tensor *t) {
  limn_tensor *cast = NULL, *dense = NULL, *own = NULL;
  int rc;
  LIMN_GO(limn_tensor_to(t, t->st->dev, cell->dtype, &cast));
  LIMN_GO(limn_tensor_contiguous(cast, &dense));
  LIMN_GO(limn_tensor_view(dense, &dense->v, &own));
  LIMN_GO(cell_install(cell, own));
bail:
  limn_tensor_release(cast);
  limn_tensor_release(dense);
  limn_tensor_release(own);
  return rc;
}

/* The context's list, by which a failed run finds what it wrote. */
static void cell_link(limn_cell *cell) {
  cell->next = cell->c->cells;
  if (cell->next) cell->next->prev = cell;
  cell->c->cells = cell;
}

static void cell_unlink(limn_cell *cell) {
  if (cell->prev) cell->prev->next = cell->next;
  else cell->c->cells = cell->next;
  if (cell->next) cell->next->prev = cell->prev;
}

int limn_cell_new(limn_context *c, int kind, limn_tensor *t, limn_cell **out) {
  limn_cell *cell;
  int rc;
  *out = NULL;
  cell = limn_alloc(c, sizeof *cell);
  if (!cell) return LIMN_EMEM;
  limn_context_retain(c);
  cell->refs = 1;
  cell->c = c;
  cell->kind = kind;
  cell->dtype = t->dtype;
  cell->shape = limn_tensor_shape(t);
  cell_link(cell);
  if ((rc = cell_share(cell, t)) < 0) {
    limn_cell_release(cell);
    return rc;
  }
  *out = cell;
  return 0;
}

void limn_cell_retain(limn_cell *cell) {
  cell->refs++;
}

static void cell_free_name(limn_cell *cell) {
  if (cell->name) limn_free(cell->c, cell->name, strlen(cell->name) + 1);
}

void limn_cell_release(limn_cell *cell) {
  limn_context *c;
  int i;
  if (!cell || --cell->refs > 0) return;
  c = cell->c;
  cell_unlink(cell);
  if (cell->derived.data)
    limn_realloc(c, cell->derived.data, cell->derived.size, 0, 64);
  for (i = 0; i < cell->nrep; i++) limn_tensor_release(cell->rep[i].value);
  limn_free(c, cell->rep, (size_t)cell->nrep * sizeof *cell->rep);
  cell_free_name(cell);
  cell_unvoid(cell);
  limn_free(c, cell, sizeof *cell);
  limn_context_release(c);
}

int limn_cell_set_name(limn_cell *cell, const char *name) {
  char *copy = name ? limn_strdup(cell->c, name) : NULL;
  if (name && !copy) return LIMN_EMEM;
  cell_free_name(cell);
  cell->name = copy;
  return 0;
}

static int cell_check_void(limn_cell *cell) {
  if (!cell->voided) return 0;
  return limn_fail(cell->c, LIMN_EVOID,
                   "%s %s is void: %s; assign it or load a file",
                   cell_kind(cell), cell_name(cell), cell->voided);
}

/* May the memory of an outdated replica be written over? */
static bool cell_reusable(const limn_tensor *t) {
  return t && t->refs == 1 && t->st->refs == 1 && !t->st->borrowed;
}

/* Copies `from` into the outdated `to`; one of them is on the host. */
static int cell_refresh(limn_tensor *from, limn_tensor *to) {
  int64_t size = limn_dtype_size(to->dtype);
  size_t n = (size_t)(limn_tensor_numel(to) * size);
  if (limn_dev_is_host(to->st->dev))
    return limn_tensor_read(from, (char *)to->st->mem + to->v.offset * size,
                            n);
  return limn_tensor_write(
      to, (char *)from->st->mem + from->v.offset * size, n);
}

/* A copy of `from` on dev, in the memory of `old` where possible. */
static int cell_copy(limn_tensor *from, limn_tensor *old,
                     struct limn_device *dev, limn_tensor **out) {
  bool host = limn_dev_is_host(from->st->dev) || limn_dev_is_host(dev);
  int rc;
  if (!host || !cell_reusable(old))
    return limn_tensor_to(from, dev, from->dtype, out);
  limn_tensor_retain(old); /* running short of memory may evict it */
  rc = cell_refresh(from, old);
  if (rc >= 0) *out = old;
  else limn_tensor_release(old);
  return rc;
}

/* Reading from an accelerator waits, and the wait may find that the run which
 * wrote this cell failed: the cell is void then, whatever was copied. */
int limn_cell_get(limn_cell *cell, struct limn_device *dev,
                  limn_tensor **out) {
  limn_replica *newest = cell_newest(cell), *slot = NULL;
  limn_tensor *from, *copy = NULL;
  int rc;
  *out = NULL;
  LIMN_TRY(cell_check_void(cell));
  if (!newest)
    return limn_fail(cell->c, LIMN_EVOID, "%s %s has no value",
                     cell_kind(cell), cell_name(cell));
  from = newest->value;
  if (dev) LIMN_TRY(cell_slot(cell, dev, &slot)); /* may move `newest` */
  if (dev && slot->value && slot->version == cell->version)
    from = slot->value;
  if (!dev || from->st->dev == dev) {
    *out = from;
    return 0;
  }
  limn_tensor_retain(from);
  rc = cell_copy(from, slot->value, dev, &copy);
  limn_tensor_release(from);
  if (rc >= 0) rc = cell_check_void(cell);
  if (rc < 0) {
    limn_tensor_release(copy);
    return rc;
  }
  limn_tensor_release(slot->value);
  slot->value = copy;
  slot->version = cell->version;
  *out = copy;
  return 0;
}

int limn_cell_assign(limn_cell *cell, limn_tensor *t) {
  limn_shape s = limn_tensor_shape(t);
  char want[256], got[256];
  if (!limn_shape_eq(&s, &cell->shape))
    return limn_fail(cell->c, LIMN_ESHAPE,
                     "cannot assign shape %s to %s %s, whose shape is %s",
                     limn_shape_text(got, sizeof got, s.ndim, s.d),
                     cell_kind(cell), cell_name(cell),
                     limn_shape_text(want, sizeof want, cell->shape.ndim,
                                     cell->shape.d));
  LIMN_TRY(cell_share(cell, t));
  cell->run_serial = 0; /* no run in flight matters to it any more */
  cell->run_dev = NULL;
  return 0;
}

int limn_cell_commit(limn_cell *cell, limn_tensor *t) {
  return cell_install(cell, t);
}

void limn_cell_void(limn_cell *cell, const char *why) {
  char *copy = limn_strdup(cell->c, why);
  cell_unvoid(cell);
  cell->voided = copy ? copy : (char *)(uintptr_t)cell_no_reason;
}
