/* Reads models from files and memory, trusting nothing in them. */
#include <fcntl.h>
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "json.h"
#include "model.h"
#include "safetensors.h"
#include "text.h"

/* -- Sources -- */

/* Where a model is read from: memory, or a file if fd >= 0. */
typedef struct {
  limn_context *c;
  const unsigned char *bytes;
  uint64_t size;
  bool borrow;
  const char *path;
  int fd;
} load_source;

static int load_read(const load_source *f, uint64_t at, void *dst, size_t n) {
  char *p = dst;
  if (f->fd < 0) {
    if (n) memcpy(dst, f->bytes + at, n);
    return 0;
  }
  while (n > 0) {
    ssize_t k = pread(f->fd, p, LIMN_MIN(n, (size_t)1 << 30), (off_t)at);
    if (k < 0 && errno == EINTR) continue;
    if (k < 0) return limn_file_errno(f->c, "read", f->path);
    if (k == 0)
      return limn_fail(f->c, LIMN_EFORMAT,
                       "the file became shorter while it "
                       "was read");
    p += k;
    at += (uint64_t)k;
    n -= (size_t)k;
  }
  return 0;
}

/* Bytes other than 0 and 1 would be no bools to a kernel. */
static bool load_clean_bools(unsigned char *p, size_t n, bool mend) {
  bool clean = true;
  for (size_t i = 0; i < n; i++) {
    if (p[i] <= 1) continue;
    clean = false;
    if (!mend) return false;
    p[i] = 1;
  }
  return clean;
}

/* A tensor of the host's own memory, which outlives it. */
static int load_borrow(limn_context *c, const limn_st_tensor *t, void *mem,
                       limn_tensor **out) {
  limn_storage *st;
  limn_tensor whole = {0};
  int rc;
  LIMN_TRY(limn_storage_new(c, c->devices[0], 0, &st));
  limn_dev_free(st->dev, st->mem, 1); /* what an empty storage has */
  st->mem = mem;
  st->bytes = (size_t)t->bytes;
  st->borrowed = true;
  whole.c = c;
  whole.st = st;
  whole.dtype = t->dtype;
  limn_view_dense(&whole.v, t->shape.ndim, t->shape.d);
  rc = limn_tensor_view(&whole, &whole.v, out);
  limn_storage_release(st);
  return rc;
}

/* `data`: where the data start in the source. */
static int load_tensor(const load_source *f, const limn_st_tensor *t,
                       uint64_t data, limn_tensor **out) {
  limn_context *c = f->c;
  size_t n = (size_t)t->bytes;
  unsigned char *mem;
  int rc;
  if (f->borrow && n) {
    mem = (unsigned char *)(uintptr_t)(f->bytes + data + t->at);
    if ((uintptr_t)mem % 64 == 0 &&
        (t->dtype != LIMN_BOOL || load_clean_bools(mem, n, false)))
      return load_borrow(c, t, mem, out);
  }
  LIMN_TRY(limn_tensor_new(c, c->devices[0], t->dtype, &t->shape, out));
  rc = load_read(f, data + t->at, (*out)->st->mem, n);
  if (rc < 0) {
    limn_tensor_release(*out);
    *out = NULL;
    return rc;
  }
  if (t->dtype == LIMN_BOOL) load_clean_bools((*out)->st->mem, n, true);
  return 0;
}

/* -- Reading models -- */

typedef struct {
  limn_model *m;
  const limn_st *st;
  limn_tensor **value; /* of the file's tensors, NULL once used */
  limn_map index;      /* tensor's name -> index + 1 */
} loader;

static int load_check_shape(limn_context *c, const char *name, int dtype,
                            const limn_shape *s, int got_dtype,
                            const limn_shape *got) {
  char a[200], b[200];
  if (dtype == got_dtype && limn_shape_eq(s, got)) return 0;
  return limn_fail(c, LIMN_EFORMAT,
                   "a graph declares @%.100s as %s %s, but the tensor is %s %s",
                   name, limn_dtype_name(dtype),
                   limn_shape_text(a, sizeof a, s->ndim, s->d),
                   limn_dtype_name(got_dtype),
                   limn_shape_text(b, sizeof b, got->ndim, got->d));
}

static int load_find_cell(void *user, const char *name, int kind, int dtype,
                          const limn_shape *s, limn_cell **out) {
  loader *l = user;
  limn_var *v = limn_model_var(l->m, name);
  if (!v || !v->cell || v->cell->kind != kind)
    return limn_fail(l->m->c, LIMN_EFORMAT,
                     "a graph uses the %s @%.100s, which the file does not "
                     "have",
                     limn_cell_words[kind], name);
  LIMN_TRY(load_check_shape(l->m->c, name, dtype, s, v->cell->dtype,
                            &v->cell->shape));
  limn_cell_retain(v->cell);
  *out = v->cell;
  return 0;
}

static int load_find_const(void *user, const char *name, int dtype,
                           const limn_shape *s, limn_tensor **out) {
  loader *l = user;
  limn_var *v = limn_model_var(l->m, name);
  limn_shape got;
  if (!v || !v->tensor)
    return limn_fail(l->m->c, LIMN_EFORMAT,
                     "a graph uses the constant @%.100s, which the file does "
                     "not have",
                     name);
  got = limn_tensor_shape(v->tensor);
  LIMN_TRY(load_check_shape(l->m->c, name, dtype, s, v->tensor->dtype, &got));
  limn_tensor_retain(v->tensor);
  *out = v->tensor;
  return 0;
}

/* Modes exist once a graph names them; all are off. */
static int load_find_mode(void *user, const char *name, limn_mode **out) {
  loader *l = user;
  limn_context *c = l->m->c;
  limn_mode *mode = limn_model_mode(l->m, name);
  int rc;
  if (!mode) {
    mode = limn_alloc(c, sizeof *mode);
    if (!mode) return LIMN_EMEM;
    mode->refs = 1;
    rc = limn_model_add_mode(l->m, name, mode);
    limn_mode_release(mode, c);
    if (rc < 0) return rc;
  }
  mode->refs++;
  *out = mode;
  return 0;
}

static int load_kind(limn_context *c, const char *text, int *out) {
  for (int i = 0; i < LIMN_COUNT(limn_cell_words); i++)
    if (!strcmp(limn_cell_words[i], text)) {
      *out = i;
      return 0;
    }
  return limn_fail(c, LIMN_EFORMAT, "a cell is of unknown kind \"%.40s\"",
                   text);
}

static int load_make_cell(loader *l, const limn_str *name, int kind,
                          bool frozen) {
  limn_context *c = l->m->c;
  uintptr_t i = (uintptr_t)limn_map_get(&l->index, name->s, name->len);
  limn_cell *cell;
  int rc;
  if (!i || !l->value[i - 1])
    return limn_fail(c, LIMN_EFORMAT,
                     i ? "two cells are called \"%.100s\""
                       : "there is no tensor for the cell \"%.100s\"",
                     name->s);
  LIMN_TRY(limn_cell_new(c, kind, l->value[i - 1], &cell));
  cell->frozen = frozen;
  rc = limn_cell_set_name(cell, name->s);
  if (rc >= 0) rc = limn_model_add_cell(l->m, name->s, cell);
  limn_cell_release(cell);
  limn_tensor_release(l->value[i - 1]);
  l->value[i - 1] = NULL;
  return rc;
}

/* One entry of limn.cells. */
static int load_cell(loader *l, limn_json *j, limn_str *name, limn_str *tmp) {
  int64_t n = 0;
  int rc, kind = -1;
  bool frozen = false;
  name->len = 0;
  LIMN_TRY(limn_json_open(j, '{'));
  while ((rc = limn_json_more(j, '}', &n)) > 0) {
    LIMN_TRY(limn_json_key(j, tmp));
    if (!strcmp(tmp->s, "name")) {
      LIMN_TRY(limn_json_string(j, name));
    } else if (!strcmp(tmp->s, "kind")) {
      LIMN_TRY(limn_json_string(j, tmp));
      LIMN_TRY(load_kind(j->c, tmp->s, &kind));
    } else if (!strcmp(tmp->s, "frozen")) {
      LIMN_TRY(limn_json_bool(j, &frozen));
    } else {
      LIMN_TRY(limn_json_skip(j));
    }
  }
  LIMN_TRY(rc);
  if (!name->len || kind < 0)
    return limn_json_fail(j, "a cell lacks its name or kind");
  return load_make_cell(l, name, kind, frozen);
}

static int load_cells(loader *l, const char *text) {
  limn_context *c = l->m->c;
  limn_str name, tmp;
  limn_json j;
  int64_t n = 0;
  int rc;
  limn_str_init(&name, c);
  limn_str_init(&tmp, c);
  limn_json_init(&j, c, "limn.cells", text, strlen(text));
  LIMN_GO(limn_json_open(&j, '['));
  while ((rc = limn_json_more(&j, ']', &n)) > 0)
    LIMN_GO(load_cell(l, &j, &name, &tmp));
  LIMN_GO(rc);
  rc = limn_json_end(&j);
bail:
  limn_str_free(&name);
  limn_str_free(&tmp);
  return rc;
}

static int load_aliases(loader *l, const char *text) {
  limn_context *c = l->m->c;
  limn_str other, name;
  limn_json j;
  int64_t n = 0;
  int rc;
  limn_str_init(&other, c);
  limn_str_init(&name, c);
  limn_json_init(&j, c, "limn.alias", text, strlen(text));
  LIMN_GO(limn_json_open(&j, '{'));
  while ((rc = limn_json_more(&j, '}', &n)) > 0) {
    LIMN_GO(limn_json_key(&j, &other));
    LIMN_GO(limn_json_string(&j, &name));
    rc = limn_model_alias(l->m, other.s, name.s);
    LIMN_GO(rc == LIMN_ENAME ? LIMN_EFORMAT : rc);
  }
  LIMN_GO(rc);
  rc = limn_json_end(&j);
bail:
  limn_str_free(&other);
  limn_str_free(&name);
  return rc;
}

/* Tensors that are no cells are constants, in the file's order. */
static int load_consts(loader *l) {
  for (uint32_t i = 0; i < l->st->ntensor; i++) {
    if (!l->value[i]) continue;
    LIMN_TRY(limn_model_add_tensor(l->m, l->st->tensor[i].name, l->value[i]));
  }
  return 0;
}

static int load_graphs(loader *l) {
  limn_parse_env env = {l, load_find_cell, load_find_const, load_find_mode};
  size_t prefix = strlen(LIMN_GRAPH_KEY);
  for (uint32_t i = 0; i < l->st->nmeta; i++) {
    const limn_st_meta *e = &l->st->meta[i];
    limn_graph *g;
    int rc;
    if (strncmp(e->key, LIMN_GRAPH_KEY, prefix)) continue;
    rc = limn_graph_parse(l->m->c, e->value, strlen(e->value), &env, &g);
    if (rc < 0) {
      limn_error_prepend(l->m->c, "%.200s, ", e->key);
      return rc;
    }
    rc = limn_model_add_graph(l->m, e->key + prefix, g);
    limn_graph_release(g);
    LIMN_TRY(rc);
  }
  return 0;
}

/* No: a plain file; yes: of a format that is known. */
static int load_format(limn_context *c, const limn_st *st, bool *model) {
  const char *text = limn_st_find(st, "limn.format"), *end;
  int64_t v;
  *model = text != NULL;
  if (!text) return 0;
  end = limn_read_int(text, &v);
  if (!end || *end || v < 1)
    return limn_fail(c, LIMN_EFORMAT, "limn.format is \"%.40s\", no number",
                     text);
  if (v <= LIMN_TEXT_FORMAT) return 0;
  return limn_fail(c, LIMN_EFORMAT,
                   "the file is in format %lld, which needs a newer limn; "
                   "this one (%s) reads formats up to %d",
                   (long long)v, LIMN_VERSION, LIMN_TEXT_FORMAT);
}

static int load_fill(loader *l, const load_source *f, uint64_t data) {
  const limn_st *st = l->st;
  const char *text;
  bool model;
  LIMN_TRY(load_format(f->c, st, &model));
  for (uint32_t i = 0; i < st->ntensor; i++) {
    const limn_st_tensor *t = &st->tensor[i];
    LIMN_TRY(limn_map_put(f->c, &l->index, t->name, strlen(t->name),
                          (void *)((uintptr_t)i + 1)));
    LIMN_TRY(load_tensor(f, t, data, &l->value[i]));
  }
  if (model && (text = limn_st_find(st, "limn.cells")) != NULL)
    LIMN_TRY(load_cells(l, text));
  LIMN_TRY(load_consts(l));
  if (model && (text = limn_st_find(st, "limn.alias")) != NULL)
    LIMN_TRY(load_aliases(l, text));
  return model ? load_graphs(l) : 0;
}

static int load_build(const load_source *f, const limn_st *st, uint64_t data,
                      limn_model **out) {
  limn_context *c = f->c;
  size_t values = ((size_t)st->ntensor + 1) * sizeof(limn_tensor *);
  loader l = {NULL, st, NULL, {0}};
  int rc;
  LIMN_TRY(limn_model_new(c, &l.m));
  l.value = limn_alloc(c, values);
  rc = l.value ? load_fill(&l, f, data) : LIMN_EMEM;
  for (uint32_t i = 0; l.value && i < st->ntensor; i++)
    limn_tensor_release(l.value[i]);
  if (l.value) limn_free(c, l.value, values);
  limn_map_free(c, &l.index);
  if (rc < 0)
    limn_model_release(l.m);
  else
    *out = l.m;
  return rc;
}

static int load_source_model(const load_source *f, limn_model **out) {
  limn_context *c = f->c;
  unsigned char prefix[LIMN_ST_PREFIX];
  uint64_t n, data;
  limn_st st;
  char *header;
  int rc;
  if (f->size >= LIMN_ST_PREFIX)
    LIMN_TRY(load_read(f, 0, prefix, LIMN_ST_PREFIX));
  LIMN_TRY(limn_st_header(c, prefix, f->size, &n));
  data = LIMN_ST_PREFIX + n;
  header = limn_alloc(c, (size_t)n + 1);
  if (!header) return LIMN_EMEM;
  rc = load_read(f, LIMN_ST_PREFIX, header, (size_t)n);
  if (rc >= 0) rc = limn_st_read(c, header, (size_t)n, f->size - data, &st);
  limn_free(c, header, (size_t)n + 1);
  LIMN_TRY(rc);
  rc = load_build(f, &st, data, out);
  limn_st_free(&st);
  return rc;
}

int limn_model_load(limn_context *ctx, const void *bytes, size_t size,
                    uint32_t flags, limn_model **out) {
  load_source f = {ctx, bytes, size, (flags & LIMN_BORROW) != 0, "", -1};
  if (!ctx || !out) return LIMN_EARG;
  limn_error_clear(ctx);
  *out = NULL;
  if (!bytes && size)
    return limn_fail(ctx, LIMN_EARG, "there are no bytes to load");
  return load_source_model(&f, out);
}

int limn_model_load_file(limn_context *c, const char *path, limn_model **out) {
  load_source f = {c, NULL, 0, false, path, -1};
  struct stat s;
  int rc = 0;
  *out = NULL;
  f.fd = open(path, O_RDONLY | O_CLOEXEC);
  if (f.fd < 0) return limn_file_errno(c, "open", path);
  if (fstat(f.fd, &s) < 0)
    rc = limn_file_errno(c, "read", path);
  else if (!S_ISREG(s.st_mode))
    rc = limn_fail(c, LIMN_EIO, "%.1000s is not a file", path);
  f.size = rc < 0 || s.st_size < 0 ? 0 : (uint64_t)s.st_size;
  if (rc >= 0) {
    rc = load_source_model(&f, out);
    if (rc < 0) limn_error_prepend(c, "%.1000s: ", path);
  }
  close(f.fd);
  return rc;
}
