/* Copies of weights in the form that a step wants, kept with their cell, or
 * with what all turns of a loop read, for that version of it. */
#include "cpu_kernels.h"

static bool keep_is(const limn_derived *d, uint64_t version,
                    const limn_cpu_copy *want) {
  return d->data && d->version == version && d->layout == want->layout &&
         !memcmp(d->data, want->head, want->size);
}

void *limn_cpu_kept(const limn_slot *slot, const limn_cpu_copy *want) {
  const limn_cell *cell = slot->cell;
  const limn_loop_value *loop = slot->loop;
  if (cell && keep_is(&cell->derived, cell->version, want))
    return (char *)cell->derived.data + want->size;
  if (loop && keep_is(&loop->derived, loop->version, want))
    return (char *)loop->derived.data + want->size;
  return NULL;
}

/* What is valid but of another form is left alone: two steps would else take
 * turns. */
static void *keep_room(limn_context *c, limn_derived *d, uint64_t version,
                       const limn_cpu_copy *want, size_t bytes) {
  size_t size = want->size + bytes;
  if (d->data && d->version == version) return NULL;
  if (d->data && d->size != size) {
    limn_realloc(c, d->data, d->size, 0, 64);
    d->data = NULL;
    d->size = 0;
  }
  if (!d->data) d->data = limn_realloc(c, NULL, 0, size, 64);
  if (!d->data) return NULL;
  memcpy(d->data, want->head, want->size);
  d->size = size;
  d->version = version;
  d->layout = want->layout;
  return (char *)d->data + want->size;
}

void *limn_cpu_keep(limn_context *c, const limn_slot *slot,
                    const limn_cpu_copy *want, size_t bytes) {
  limn_cell *cell = slot->cell;
  limn_loop_value *loop = slot->loop;
  void *p = NULL;
  if (cell) p = keep_room(c, &cell->derived, cell->version, want, bytes);
  if (!p && loop) p = keep_room(c, &loop->derived, loop->version, want, bytes);
  return p;
}
