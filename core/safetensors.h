/* Layer 4: safetensors files, the container of models.
 *
 * 8 bytes little-endian: length of the header; the header, JSON, padded with
 * blanks so that the data start at a multiple of 64; then the tensors' bytes,
 * row-major and little-endian, one right after the other. */
#ifndef LIMN_SAFETENSORS_H
#define LIMN_SAFETENSORS_H

#include "tensor.h"

/* -- Reading -- */
typedef struct {
  char *name;
  int dtype;
  limn_shape shape;
  uint64_t at, bytes; /* in the data */
} limn_st_tensor;
typedef struct {
  char *key, *value;
} limn_st_meta;
typedef struct {
  limn_context *c;
  limn_st_tensor *tensor; /* as they lie in the data */
  uint32_t ntensor, tensor_cap;
  limn_st_meta *meta;
  uint32_t nmeta, meta_cap;
} limn_st;

enum { LIMN_ST_PREFIX = 8 };
/* Length of the header from the first 8 bytes of a file of `size` bytes. */
int limn_st_header(limn_context *c, const void *prefix, uint64_t size,
                   uint64_t *length);
/* Read a header; all is checked against `data` bytes of data: ranges, overlap,
 * holes, dtype x shape, names. Nothing is allocated for tensors. */
int limn_st_read(limn_context *c, const char *header, size_t n, uint64_t data,
                 limn_st *out);
void limn_st_free(limn_st *st);
const char *limn_st_find(const limn_st *st, const char *key); /* or NULL */

/* -- Writing -- */
typedef struct {
  const char *name;
  limn_tensor *tensor; /* on any device, of any layout */
} limn_st_item;
/* Takes n more bytes of the file. */
typedef int limn_st_sink(void *user, const void *bytes, size_t n);
/* Sorts items by falling element size, then by name, and metadata by key, so
 * that equal contents give equal bytes. Names must be unique. */
int limn_st_write(limn_context *c, limn_st_item *item, uint32_t n,
                  limn_st_meta *meta, uint32_t nmeta, limn_st_sink *sink,
                  void *user);

#endif
