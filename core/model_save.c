/* Writes models as files: safetensors with the graphs as text in the metadata.
 *
 *   limn.format        "1"
 *   limn.graph.NAME    the graph's text
 *   limn.cells         [{"name": ..., "kind": "param", "frozen": false}, ...]
 *                      in order of definition; other tensors are constants
 *   limn.alias         {"another path": "name", ...}
 *
 * A file without limn.format is a plain set of tensors. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "json.h"
#include "model.h"
#include "safetensors.h"
#include "text.h"

const char *const limn_cell_words[3] = {"param", "buffer", "state"};

int limn_file_errno(limn_context *c, const char *what, const char *path) {
  return limn_fail(c, LIMN_EIO, "cannot %s %.1000s: %s", what, path,
                   strerror(errno));
}

/* -- Sinks -- */

static int save_sink_str(void *user, const void *bytes, size_t n) {
  limn_str *out = user;
  limn_str_addn(out, bytes, n);
  return out->rc;
}

typedef struct {
  limn_context *c;
  const char *path;
  int fd;
} save_out;

static int save_sink_fd(void *user, const void *bytes, size_t n) {
  save_out *f = user;
  const char *p = bytes;
  while (n > 0) {
    /* Some systems write at most 2 GiB at once. */
    ssize_t k = write(f->fd, p, LIMN_MIN(n, (size_t)1 << 30));
    if (k < 0 && errno == EINTR) continue;
    if (k <= 0) return limn_file_errno(f->c, "write", f->path);
    p += k;
    n -= (size_t)k;
  }
  return 0;
}

/* A new file beside `path`; its name goes to *tmp. */
static int save_create(limn_context *c, const char *path, limn_str *tmp,
                       int *fd) {
  struct stat old;
  *fd = -1;
  for (unsigned i = 0; i < 100 && *fd < 0; i++) {
    tmp->len = 0;
    limn_str_addf(tmp, "%s.%ld.%u.tmp", path, (long)getpid(), i);
    LIMN_TRY(tmp->rc);
    *fd = open(tmp->s, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (*fd < 0 && errno != EEXIST) break;
  }
  if (*fd < 0) return limn_file_errno(c, "create", path);
  if (stat(path, &old) == 0 && fchmod(*fd, old.st_mode & 07777) < 0)
    errno = 0; /* the old file's permissions are kept where possible */
  return 0;
}

/* The rename itself is on the disk only once the folder is. */
static void save_sync_folder(limn_context *c, const char *path) {
  const char *slash = strrchr(path, '/');
  char *folder = limn_strdup(c, slash ? path : ".");
  int fd;
  if (!folder) return;
  if (slash) folder[slash == path ? 1 : slash - path] = 0;
  fd = open(folder, O_RDONLY | O_CLOEXEC);
  if (fd >= 0) {
    fsync(fd);
    close(fd);
  }
  limn_free(c, folder, strlen(slash ? path : ".") + 1);
}

/* Everything by way of a temporary file, so that `path` is always whole. */
static int save_replace(limn_context *c, const char *path,
                        int (*put)(void *user, limn_st_sink *sink, void *out),
                        void *user) {
  save_out f = {c, path, -1};
  limn_str tmp;
  int rc;
  limn_str_init(&tmp, c);
  LIMN_GO(save_create(c, path, &tmp, &f.fd));
  rc = put(user, save_sink_fd, &f);
  if (rc >= 0 && fsync(f.fd) < 0) rc = limn_file_errno(c, "write", path);
  if (close(f.fd) < 0 && rc >= 0) rc = limn_file_errno(c, "write", path);
  if (rc >= 0 && rename(tmp.s, path) < 0)
    rc = limn_file_errno(c, "replace", path);
  if (rc < 0)
    unlink(tmp.s);
  else
    save_sync_folder(c, path);
bail:
  limn_str_free(&tmp);
  return rc;
}

/* -- Writing models -- */

static const char *save_name_of(void *user, const void *object) {
  return limn_model_name_of(user, object);
}

static void save_put_cells(const limn_model *m, limn_str *out) {
  const char *comma = "";
  limn_str_add(out, "[");
  for (uint32_t i = 0; i < m->nvar; i++) {
    const limn_cell *cell = m->var[i].cell;
    if (!cell) continue;
    limn_str_addf(out, "%s{\"name\": ", comma);
    limn_str_json(out, m->var[i].name);
    limn_str_addf(out, ", \"kind\": \"%s\", \"frozen\": %s}",
                  limn_cell_words[cell->kind], cell->frozen ? "true" : "false");
    comma = ", ";
  }
  limn_str_add(out, "]");
}

static void save_put_aliases(const limn_model *m, limn_str *out) {
  limn_str_add(out, "{");
  for (uint32_t i = 0; i < m->nalias; i++) {
    if (i) limn_str_add(out, ", ");
    limn_str_json(out, m->alias[i].name);
    limn_str_add(out, ": ");
    limn_str_json(out, m->var[m->alias[i].var].name);
  }
  limn_str_add(out, "}");
}

/* Names become JSON and must be text. */
static int save_check_names(const limn_model *m) {
  const char *bad = NULL;
  for (uint32_t i = 0; i < m->nalias; i++)
    if (!limn_utf8_valid(m->alias[i].name)) bad = m->alias[i].name;
  for (uint32_t i = 0; i < m->nvar; i++)
    if (!limn_utf8_valid(m->var[i].name)) bad = m->var[i].name;
  for (uint32_t i = 0; i < m->ngraph; i++)
    if (!limn_utf8_valid(m->graph[i].name)) bad = m->graph[i].name;
  if (!bad) return 0;
  return limn_fail(m->c, LIMN_ENAME, "the name \"%.100s\" is not valid UTF-8",
                   bad);
}

enum { SAVE_FORMAT, SAVE_CELLS, SAVE_ALIAS, SAVE_FIXED };

/* Texts of the metadata: key in text[2 * i], value in text[2 * i + 1]. */
static int save_put_meta(limn_model *m, bool lines, limn_str *text,
                         limn_st_meta *meta) {
  limn_dump_names names = {m, save_name_of};
  static const char *const keys[] = {"limn.format", "limn.cells", "limn.alias"};
  for (uint32_t i = 0; i < SAVE_FIXED; i++) limn_str_add(&text[2 * i], keys[i]);
  limn_str_addf(&text[2 * SAVE_FORMAT + 1], "%d", LIMN_TEXT_FORMAT);
  save_put_cells(m, &text[2 * SAVE_CELLS + 1]);
  save_put_aliases(m, &text[2 * SAVE_ALIAS + 1]);
  for (uint32_t i = 0; i < m->ngraph; i++) {
    limn_str *t = &text[2 * (SAVE_FIXED + i)];
    limn_str_addf(&t[0], "%s%s", LIMN_GRAPH_KEY, m->graph[i].name);
    limn_graph_write(m->graph[i].graph, &t[1], lines, &names);
  }
  for (uint32_t i = 0; i < SAVE_FIXED + m->ngraph; i++) {
    LIMN_TRY(text[2 * i].rc);
    LIMN_TRY(text[2 * i + 1].rc);
    meta[i] = (limn_st_meta){text[2 * i].s, text[2 * i + 1].s};
  }
  return 0;
}

/* Values as they are now; a void cell cannot be saved. */
static int save_put_items(limn_model *m, limn_st_item *item) {
  for (uint32_t i = 0; i < m->nvar; i++) {
    item[i] = (limn_st_item){m->var[i].name, m->var[i].tensor};
    if (m->var[i].cell)
      LIMN_TRY(limn_cell_get(m->var[i].cell, NULL, &item[i].tensor));
  }
  return 0;
}

typedef struct {
  limn_model *m;
  bool lines;
} save_model;

static int save_put_model(void *user, limn_st_sink *sink, void *out) {
  const save_model *f = user;
  limn_model *m = f->m;
  limn_context *c = m->c;
  uint32_t nmeta = SAVE_FIXED + m->ngraph;
  size_t items = ((size_t)m->nvar + 1) * sizeof(limn_st_item);
  size_t metas = nmeta * sizeof(limn_st_meta);
  size_t texts = 2 * (size_t)nmeta * sizeof(limn_str);
  limn_st_item *item = limn_alloc(c, items);
  limn_st_meta *meta = limn_alloc(c, metas);
  limn_str *text = limn_alloc(c, texts);
  int rc = item && meta && text ? 0 : LIMN_EMEM;
  for (uint32_t i = 0; text && i < 2 * nmeta; i++) limn_str_init(&text[i], c);
  if (rc >= 0) rc = save_check_names(m);
  if (rc >= 0) rc = save_put_items(m, item);
  if (rc >= 0) rc = save_put_meta(m, f->lines, text, meta);
  if (rc >= 0) rc = limn_st_write(c, item, m->nvar, meta, nmeta, sink, out);
  for (uint32_t i = 0; text && i < 2 * nmeta; i++) limn_str_free(&text[i]);
  if (text) limn_free(c, text, texts);
  if (meta) limn_free(c, meta, metas);
  if (item) limn_free(c, item, items);
  return rc;
}

int limn_model_write(limn_model *m, limn_str *out, bool lines) {
  save_model f = {m, lines};
  return save_put_model(&f, save_sink_str, out);
}

int limn_model_save_file(limn_model *m, const char *path, bool lines) {
  save_model f = {m, lines};
  return save_replace(m->c, path, save_put_model, &f);
}

int limn_model_save(limn_model *m, const char *path) {
  if (!m) return LIMN_EARG;
  limn_error_clear(m->c);
  if (!path) return limn_fail(m->c, LIMN_EARG, "a path is wanted");
  return limn_model_save_file(m, path, true);
}
