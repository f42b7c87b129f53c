/* Reads and writes safetensors files; a reader trusts nothing. */
#include "safetensors.h"

#include <stdio.h>

#include "json.h"

/* What other readers accept at most. */
#define ST_HEADER_MAX 100000000u

static const struct {
  const char *name;
  int dtype;
} st_dtypes[] = {{"F64", LIMN_F64},   {"F32", LIMN_F32}, {"F16", LIMN_F16},
                 {"BF16", LIMN_BF16}, {"I64", LIMN_I64}, {"I32", LIMN_I32},
                 {"I8", LIMN_I8},     {"U8", LIMN_U8},   {"BOOL", LIMN_BOOL}};

static const char *st_dtype_name(int dtype) {
  for (int i = 0; i < LIMN_COUNT(st_dtypes); i++)
    if (st_dtypes[i].dtype == dtype) return st_dtypes[i].name;
  return "?";
}

/* -- Reading -- */

int limn_st_header(limn_context *c, const void *prefix, uint64_t size,
                   uint64_t *length) {
  const unsigned char *b = prefix;
  uint64_t n = 0;
  if (size < LIMN_ST_PREFIX)
    return limn_fail(c, LIMN_EFORMAT,
                     "a file of %llu bytes is too short: it is truncated or "
                     "no safetensors file",
                     (unsigned long long)size);
  for (int i = 7; i >= 0; i--) n = n << 8 | b[i];
  if (n > ST_HEADER_MAX)
    return limn_fail(c, LIMN_EFORMAT,
                     "this is no safetensors file: its header would have "
                     "%llu bytes",
                     (unsigned long long)n);
  if (n > size - LIMN_ST_PREFIX)
    return limn_fail(c, LIMN_EFORMAT,
                     "the file is truncated: its header has %llu bytes, but "
                     "only %llu follow",
                     (unsigned long long)n,
                     (unsigned long long)(size - LIMN_ST_PREFIX));
  *length = n;
  return 0;
}

/* "F32" in tmp as a dtype. */
static int st_dtype(limn_context *c, const char *name, const char *text,
                    int *out) {
  for (int i = 0; i < LIMN_COUNT(st_dtypes); i++)
    if (!strcmp(st_dtypes[i].name, text)) {
      *out = st_dtypes[i].dtype;
      return 0;
    }
  return limn_fail(c, LIMN_EUNSUPPORTED,
                   "tensor \"%.100s\" has the dtype %.20s, which limn does "
                   "not have",
                   name, text);
}

static int st_shape(limn_json *j, limn_st_tensor *t) {
  int64_t n = 0;
  int rc;
  LIMN_TRY(limn_json_open(j, '['));
  while ((rc = limn_json_more(j, ']', &n)) > 0) {
    if (t->shape.ndim == LIMN_MAXDIM)
      return limn_fail(j->c, LIMN_EUNSUPPORTED,
                       "tensor \"%.100s\" has more than %d dims", t->name,
                       LIMN_MAXDIM);
    LIMN_TRY(limn_json_size(j, &t->shape.d[t->shape.ndim++]));
  }
  return rc;
}

/* [begin, end] */
static int st_offsets(limn_json *j, limn_st_tensor *t) {
  int64_t n = 0, v[2];
  int rc;
  LIMN_TRY(limn_json_open(j, '['));
  while ((rc = limn_json_more(j, ']', &n)) > 0) {
    if (n > 2) break;
    LIMN_TRY(limn_json_size(j, &v[n - 1]));
  }
  LIMN_TRY(rc);
  if (n != 2 || v[1] < v[0])
    return limn_json_fail(j, "data_offsets must be [begin, end]");
  t->at = (uint64_t)v[0];
  t->bytes = (uint64_t)(v[1] - v[0]);
  return 0;
}

static int st_tensor(limn_json *j, limn_st_tensor *t, limn_str *tmp) {
  static const char *const keys[] = {"dtype", "shape", "data_offsets"};
  int64_t n = 0;
  unsigned seen = 0;
  int rc, k;
  LIMN_TRY(limn_json_open(j, '{'));
  while ((rc = limn_json_more(j, '}', &n)) > 0) {
    LIMN_TRY(limn_json_key(j, tmp));
    for (k = 0; k < 3 && strcmp(keys[k], tmp->s);) k++;
    if (k == 3)
      return limn_json_fail(j,
                            "tensor \"%.100s\" has an unknown entry "
                            "\"%.40s\"",
                            t->name, tmp->s);
    if (seen >> k & 1)
      return limn_json_fail(j, "tensor \"%.100s\" has two entries \"%s\"",
                            t->name, keys[k]);
    seen |= 1u << k;
    if (k == 0) {
      LIMN_TRY(limn_json_string(j, tmp));
      LIMN_TRY(st_dtype(j->c, t->name, tmp->s, &t->dtype));
    }
    if (k == 1) LIMN_TRY(st_shape(j, t));
    if (k == 2) LIMN_TRY(st_offsets(j, t));
  }
  LIMN_TRY(rc);
  if (seen == 7) return 0;
  return limn_json_fail(j,
                        "tensor \"%.100s\" lacks dtype, shape or "
                        "data_offsets",
                        t->name);
}

/* dtype x shape = bytes, within the data. */
static int st_check_size(limn_context *c, const limn_st_tensor *t,
                         uint64_t data) {
  int64_t numel, bytes;
  char text[256];
  int rc = limn_shape_bytes(c, &t->shape, t->dtype, &numel, &bytes);
  if (rc < 0)
    return limn_fail(c, LIMN_EFORMAT, "tensor \"%.100s\" is impossibly large",
                     t->name);
  if ((uint64_t)bytes != t->bytes)
    return limn_fail(
        c, LIMN_EFORMAT,
        "tensor \"%.100s\" has %llu bytes, but %s %s takes %lld", t->name,
        (unsigned long long)t->bytes, limn_dtype_name(t->dtype),
        limn_shape_text(text, sizeof text, t->shape.ndim, t->shape.d),
        (long long)bytes);
  if (t->at > data || t->bytes > data - t->at)
    return limn_fail(c, LIMN_EFORMAT,
                     "the file is truncated: tensor \"%.100s\" ends at byte "
                     "%llu of the data, which have %llu",
                     t->name, (unsigned long long)(t->at + t->bytes),
                     (unsigned long long)data);
  return 0;
}

static int st_name(limn_st *st, limn_map *names, const limn_str *name) {
  limn_st_tensor *t;
  if (limn_map_get(names, name->s, name->len))
    return limn_fail(st->c, LIMN_EFORMAT, "two tensors are called \"%.100s\"",
                     name->s);
  LIMN_TRY(limn_map_put(st->c, names, name->s, name->len, st));
  LIMN_TRY(limn_grow(st->c, &st->tensor, &st->tensor_cap, st->ntensor + 1,
                     sizeof *st->tensor));
  t = &st->tensor[st->ntensor];
  memset(t, 0, sizeof *t);
  t->name = limn_strdup(st->c, name->s);
  if (!t->name) return LIMN_EMEM;
  st->ntensor++;
  return 0;
}

/* {"key": "value", ...} */
static int st_meta(limn_st *st, limn_json *j, limn_str *tmp) {
  limn_map keys = {0};
  int64_t n = 0;
  int rc;
  LIMN_GO(limn_json_open(j, '{'));
  while ((rc = limn_json_more(j, '}', &n)) > 0) {
    limn_st_meta *m;
    LIMN_GO(limn_json_key(j, tmp));
    if (limn_map_get(&keys, tmp->s, tmp->len))
      LIMN_GO(limn_json_fail(j, "__metadata__ has \"%.100s\" twice", tmp->s));
    LIMN_GO(limn_map_put(st->c, &keys, tmp->s, tmp->len, st));
    LIMN_GO(limn_grow(st->c, &st->meta, &st->meta_cap, st->nmeta + 1,
                      sizeof *st->meta));
    m = &st->meta[st->nmeta];
    *m = (limn_st_meta){limn_strdup(st->c, tmp->s), NULL};
    if (!m->key) LIMN_GO(LIMN_EMEM);
    st->nmeta++;
    LIMN_GO(limn_json_string(j, tmp));
    m->value = limn_strdup(st->c, tmp->s);
    if (!m->value) LIMN_GO(LIMN_EMEM);
  }
bail:
  limn_map_free(st->c, &keys);
  return rc;
}

static int st_entries(limn_st *st, limn_json *j, limn_map *names,
                      limn_str *tmp) {
  int64_t n = 0;
  bool meta = false;
  int rc;
  LIMN_TRY(limn_json_open(j, '{'));
  while ((rc = limn_json_more(j, '}', &n)) > 0) {
    LIMN_TRY(limn_json_key(j, tmp));
    if (!strcmp(tmp->s, "__metadata__")) {
      if (meta) return limn_json_fail(j, "there are two \"__metadata__\"");
      meta = true;
      LIMN_TRY(st_meta(st, j, tmp));
    } else {
      LIMN_TRY(st_name(st, names, tmp));
      LIMN_TRY(st_tensor(j, &st->tensor[st->ntensor - 1], tmp));
    }
  }
  LIMN_TRY(rc);
  return limn_json_end(j);
}

/* -- Order -- */

typedef int st_less(const void *a, const void *b);

/* Heapsort (Williams 1964): no memory of its own, n log n for any input. */
static void st_sort(void *base, uint32_t n, size_t size, st_less *less) {
  char *b = base, tmp[sizeof(limn_st_tensor)];
  uint32_t end = n, root = n / 2, i, k;
  while (end > 1) {
    if (root > 0) {
      memcpy(tmp, b + --root * size, size);
    } else { /* the largest goes behind the heap */
      memcpy(tmp, b + --end * size, size);
      memcpy(b + end * size, b, size);
    }
    for (i = root; (k = 2 * i + 1) < end; i = k) {
      if (k + 1 < end && less(b + k * size, b + (k + 1) * size)) k++;
      if (!less(tmp, b + k * size)) break;
      memcpy(b + i * size, b + k * size, size);
    }
    memcpy(b + i * size, tmp, size);
  }
}

static int st_less_offset(const void *a, const void *b) {
  const limn_st_tensor *x = a, *y = b;
  return x->at < y->at || (x->at == y->at && x->bytes < y->bytes);
}

/* Sorted, each tensor starts where the one before it ends. */
static int st_check_layout(limn_st *st, uint64_t data) {
  uint64_t at = 0;
  st_sort(st->tensor, st->ntensor, sizeof *st->tensor, st_less_offset);
  for (uint32_t i = 0; i < st->ntensor; i++) {
    const limn_st_tensor *t = &st->tensor[i];
    if (t->at < at)
      return limn_fail(st->c, LIMN_EFORMAT,
                       "tensors \"%.100s\" and \"%.100s\" overlap",
                       st->tensor[i - 1].name, t->name);
    if (t->at > at)
      return limn_fail(st->c, LIMN_EFORMAT,
                       "there is a hole of %llu bytes before tensor "
                       "\"%.100s\"",
                       (unsigned long long)(t->at - at), t->name);
    at += t->bytes;
  }
  if (at == data) return 0;
  return limn_fail(st->c, LIMN_EFORMAT,
                   "%llu bytes of data belong to no tensor",
                   (unsigned long long)(data - at));
}

int limn_st_read(limn_context *c, const char *header, size_t n, uint64_t data,
                 limn_st *out) {
  limn_map names = {0};
  limn_json j;
  limn_str tmp;
  int rc;
  memset(out, 0, sizeof *out);
  out->c = c;
  limn_str_init(&tmp, c);
  limn_json_init(&j, c, "the file's header", header, n);
  LIMN_GO(st_entries(out, &j, &names, &tmp));
  for (uint32_t i = 0; i < out->ntensor; i++)
    LIMN_GO(st_check_size(c, &out->tensor[i], data));
  LIMN_GO(st_check_layout(out, data));
bail:
  limn_str_free(&tmp);
  limn_map_free(c, &names);
  if (rc < 0) limn_st_free(out);
  return rc;
}

static void st_free_text(limn_context *c, char *s) {
  if (s) limn_free(c, s, strlen(s) + 1);
}

void limn_st_free(limn_st *st) {
  limn_context *c = st->c;
  for (uint32_t i = 0; i < st->ntensor; i++)
    st_free_text(c, st->tensor[i].name);
  for (uint32_t i = 0; i < st->nmeta; i++) {
    st_free_text(c, st->meta[i].key);
    st_free_text(c, st->meta[i].value);
  }
  limn_free(c, st->tensor, st->tensor_cap * sizeof *st->tensor);
  limn_free(c, st->meta, st->meta_cap * sizeof *st->meta);
  memset(st, 0, sizeof *st);
  st->c = c;
}

const char *limn_st_find(const limn_st *st, const char *key) {
  for (uint32_t i = 0; i < st->nmeta; i++)
    if (!strcmp(st->meta[i].key, key)) return st->meta[i].value;
  return NULL;
}

/* -- Writing -- */

static int st_less_item(const void *a, const void *b) {
  const limn_st_item *x = a, *y = b;
  int sx = limn_dtype_size(x->tensor->dtype);
  int sy = limn_dtype_size(y->tensor->dtype);
  return sx != sy ? sx > sy : strcmp(x->name, y->name) < 0;
}

static int st_less_meta(const void *a, const void *b) {
  const limn_st_meta *x = a, *y = b;
  return strcmp(x->key, y->key) < 0;
}

static int st_check_names(limn_context *c, const limn_st_item *item,
                          uint32_t n) {
  limn_map names = {0};
  int rc = 0;
  for (uint32_t i = 0; i < n; i++) {
    const char *s = item[i].name;
    if (!limn_utf8_valid(s) || !strcmp(s, "__metadata__"))
      LIMN_GO(limn_fail(c, LIMN_ENAME,
                        "a tensor in a file cannot be called \"%.100s\"%s", s,
                        limn_utf8_valid(s) ? "" : ": it is not valid UTF-8"));
    if (limn_map_get(&names, s, strlen(s)))
      LIMN_GO(limn_fail(c, LIMN_ENAME, "two tensors are called \"%.100s\"", s));
    LIMN_GO(limn_map_put(c, &names, s, strlen(s), &names));
  }
bail:
  limn_map_free(c, &names);
  return rc;
}

static uint64_t st_bytes(const limn_tensor *t) {
  return (uint64_t)limn_tensor_numel(t) * (uint64_t)limn_dtype_size(t->dtype);
}

static void st_put_tensor(limn_str *h, const limn_st_item *item, uint64_t at) {
  const limn_tensor *t = item->tensor;
  limn_str_json(h, item->name);
  limn_str_addf(h, ":{\"dtype\":\"%s\",\"shape\":[", st_dtype_name(t->dtype));
  for (int i = 0; i < t->v.ndim; i++)
    limn_str_addf(h, i ? ",%lld" : "%lld", (long long)t->v.d[i]);
  limn_str_addf(h, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)at,
                (unsigned long long)(at + st_bytes(t)));
}

/* The first 8 bytes hold the length, filled in when it is known. */
static int st_put_header(limn_str *h, const limn_st_item *item, uint32_t n,
                         const limn_st_meta *meta, uint32_t nmeta) {
  uint64_t at = 0, length;
  limn_str_addn(h, "\0\0\0\0\0\0\0\0{", LIMN_ST_PREFIX + 1);
  if (nmeta) limn_str_add(h, "\"__metadata__\":{");
  for (uint32_t i = 0; i < nmeta; i++) {
    if (i) limn_str_add(h, ",");
    limn_str_json(h, meta[i].key);
    limn_str_add(h, ":");
    limn_str_json(h, meta[i].value);
  }
  if (nmeta) limn_str_add(h, "}");
  for (uint32_t i = 0; i < n; i++) {
    if (i || nmeta) limn_str_add(h, ",");
    st_put_tensor(h, &item[i], at);
    at += st_bytes(item[i].tensor);
  }
  limn_str_add(h, "}");
  while (h->rc >= 0 && h->len % 64) limn_str_add(h, " ");
  LIMN_TRY(h->rc);
  length = h->len - LIMN_ST_PREFIX;
  if (length > ST_HEADER_MAX)
    return limn_fail(h->c, LIMN_ESIZE,
                     "the graphs and names of this model are too long for a "
                     "file: %llu bytes",
                     (unsigned long long)length);
  for (int i = 0; i < 8; i++) h->s[i] = (char)(length >> 8 * i);
  return 0;
}

/* Dense tensors in host memory go out as they lie there. */
static int st_put_data(limn_context *c, limn_tensor *t, limn_st_sink *sink,
                       void *user) {
  size_t n = (size_t)st_bytes(t);
  char *copy;
  int rc;
  if (n == 0) return 0;
  if (limn_dev_is_host(t->st->dev) && limn_tensor_is_dense(t))
    return sink(
        user, (char *)t->st->mem + t->v.offset * limn_dtype_size(t->dtype), n);
  copy = limn_alloc(c, n);
  if (!copy) return LIMN_EMEM;
  rc = limn_tensor_read(t, copy, n);
  if (rc >= 0) rc = sink(user, copy, n);
  limn_free(c, copy, n);
  return rc;
}

int limn_st_write(limn_context *c, limn_st_item *item, uint32_t n,
                  limn_st_meta *meta, uint32_t nmeta, limn_st_sink *sink,
                  void *user) {
  limn_str h;
  int rc;
  limn_str_init(&h, c);
  st_sort(item, n, sizeof *item, st_less_item);
  st_sort(meta, nmeta, sizeof *meta, st_less_meta);
  LIMN_GO(st_check_names(c, item, n));
  LIMN_GO(st_put_header(&h, item, n, meta, nmeta));
  LIMN_GO(sink(user, h.s, h.len));
  for (uint32_t i = 0; i < n; i++)
    LIMN_GO(st_put_data(c, item[i].tensor, sink, user));
bail:
  limn_str_free(&h);
  return rc;
}
