/* Models in memory: what they hold, under which names, and access for hosts. */
#include "model.h"

#include <stdio.h>

/* -- Life -- */

int limn_model_new(limn_context *c, limn_model **out) {
  limn_model *m = limn_alloc(c, sizeof *m);
  *out = m;
  if (!m) return LIMN_EMEM;
  m->refs = 1;
  m->c = c;
  limn_context_retain(c);
  return 0;
}

void limn_model_retain(limn_model *m) { m->refs++; }

static void model_free_text(limn_context *c, char *s) {
  if (s) limn_free(c, s, strlen(s) + 1);
}

void limn_model_release(limn_model *m) {
  limn_context *c;
  if (!m || --m->refs > 0) return;
  c = m->c;
  for (uint32_t i = 0; i < m->ngraph; i++) {
    model_free_text(c, m->graph[i].name);
    limn_graph_release(m->graph[i].graph);
  }
  for (uint32_t i = 0; i < m->nvar; i++) {
    model_free_text(c, m->var[i].name);
    limn_cell_release(m->var[i].cell);
    limn_tensor_release(m->var[i].tensor);
  }
  for (uint32_t i = 0; i < m->nmode; i++) {
    model_free_text(c, m->mode[i].name);
    limn_mode_release(m->mode[i].mode, c);
  }
  for (uint32_t i = 0; i < m->nalias; i++) model_free_text(c, m->alias[i].name);
  limn_free(c, m->graph, m->graph_cap * sizeof *m->graph);
  limn_free(c, m->var, m->var_cap * sizeof *m->var);
  limn_free(c, m->mode, m->mode_cap * sizeof *m->mode);
  limn_free(c, m->alias, m->alias_cap * sizeof *m->alias);
  limn_map_free(c, &m->names);
  limn_map_free(c, &m->objects);
  limn_free(c, m, sizeof *m);
  limn_context_release(c);
}

/* -- Tables -- */

static uintptr_t model_object(const limn_model *m, const void *object) {
  return (uintptr_t)limn_map_get(&m->objects, &object, sizeof object);
}

static int model_note_object(limn_model *m, const void *object, uintptr_t i) {
  return limn_map_put(m->c, &m->objects, &object, sizeof object, (void *)i);
}

static uintptr_t model_named(const limn_model *m, const char *name) {
  return (uintptr_t)limn_map_get(&m->names, name, strlen(name));
}

static int model_note_name(limn_model *m, const char *name, uint32_t var) {
  return limn_map_put(m->c, &m->names, name, strlen(name),
                      (void *)((uintptr_t)var + 1));
}

limn_var *limn_model_var(limn_model *m, const char *name) {
  uintptr_t i = model_named(m, name);
  return i ? &m->var[i - 1] : NULL;
}

limn_graph *limn_model_graph(limn_model *m, const char *name) {
  for (uint32_t i = 0; i < m->ngraph; i++)
    if (!strcmp(m->graph[i].name, name)) return m->graph[i].graph;
  return NULL;
}

limn_mode *limn_model_mode(limn_model *m, const char *name) {
  for (uint32_t i = 0; i < m->nmode; i++)
    if (!strcmp(m->mode[i].name, name)) return m->mode[i].mode;
  return NULL;
}

const char *limn_model_name_of(const limn_model *m, const void *object) {
  uintptr_t i = model_object(m, object);
  if (!i) return NULL;
  if (i <= m->nvar &&
      (m->var[i - 1].cell == object || m->var[i - 1].tensor == object))
    return m->var[i - 1].name;
  return i <= m->nmode ? m->mode[i - 1].name : NULL;
}

/* -- Adding -- */

/* A new var, whose name is free. */
static int model_add_var(limn_model *m, const char *name, limn_cell *cell,
                         limn_tensor *t) {
  limn_var *v = NULL;
  const void *object = cell ? (const void *)cell : (const void *)t;
  LIMN_TRY(limn_grow(m->c, &m->var, &m->var_cap, m->nvar + 1, sizeof *v));
  LIMN_TRY(model_note_object(m, object, (uintptr_t)m->nvar + 1));
  v = &m->var[m->nvar];
  *v = (limn_var){limn_strdup(m->c, name), cell, t};
  if (!v->name || model_note_name(m, name, m->nvar) < 0) {
    model_free_text(m->c, v->name);
    limn_map_remove(m->c, &m->objects, &object, sizeof object);
    return LIMN_EMEM;
  }
  if (cell) limn_cell_retain(cell);
  if (t) limn_tensor_retain(t);
  m->nvar++;
  return 0;
}

/* Call fn(m, name, user) with `name`, or with the first of name.2, name.3, ...
 * that no var or alias has. */
static int model_unique(limn_model *m, const char *name,
                        int (*fn)(limn_model *m, const char *name, void *user),
                        void *user) {
  limn_str s;
  int rc = 0;
  limn_str_init(&s, m->c);
  limn_str_add(&s, name);
  for (unsigned i = 2; s.rc >= 0 && model_named(m, s.s); i++) {
    s.len = 0;
    limn_str_addf(&s, "%s.%u", name, i);
  }
  rc = s.rc < 0 ? s.rc : fn(m, s.s, user);
  limn_str_free(&s);
  return rc;
}

static int model_put_tensor(limn_model *m, const char *name, void *t) {
  return model_add_var(m, name, NULL, t);
}

int limn_model_add_tensor(limn_model *m, const char *name, limn_tensor *t) {
  if (model_object(m, t)) return 0;
  return model_unique(m, name, model_put_tensor, t);
}

static int model_rename(limn_model *m, const char *name, void *user) {
  limn_var *v = user;
  char *copy = limn_strdup(m->c, name);
  if (!copy) return LIMN_EMEM;
  model_free_text(m->c, v->name);
  v->name = copy;
  return model_note_name(m, name, (uint32_t)(v - m->var));
}

static const char *model_cell_text(char *buf, size_t n, const limn_cell *c) {
  static const char *const kinds[] = {"parameter", "buffer", "state"};
  char shape[200];
  snprintf(buf, n, "the %s %s %s", kinds[c->kind], limn_dtype_name(c->dtype),
           limn_shape_text(shape, sizeof shape, c->shape.ndim, c->shape.d));
  return buf;
}

static int model_clash(limn_model *m, const char *name, const limn_cell *a,
                       const limn_cell *b) {
  char ta[256], tb[256];
  limn_fail(m->c, LIMN_ENAME,
            "two cells are called \"%.200s\": %s (%.200s) and %s (%.200s)",
            name, model_cell_text(ta, sizeof ta, a),
            a->name ? a->name : "without a name of its own",
            model_cell_text(tb, sizeof tb, b),
            b->name ? b->name : "without a name of its own");
  return limn_hint(m->c, LIMN_ENAME,
                   "give their modules keys of their own in limn.save's table");
}

int limn_model_add_cell(limn_model *m, const char *name, limn_cell *cell) {
  uintptr_t own = model_object(m, cell);
  limn_var *v = limn_model_var(m, name);
  if (own && v == &m->var[own - 1]) return 0;
  if (v && v->cell) return model_clash(m, name, v->cell, cell);
  if (v) { /* constants give way */
    void *was = limn_map_get(&m->names, name, strlen(name));
    int rc = model_unique(m, name, model_rename, v);
    if (rc < 0) return rc;
    if (limn_map_get(&m->names, name, strlen(name)) == was)
      limn_map_remove(m->c, &m->names, name, strlen(name));
  }
  if (own) return limn_model_alias(m, name, m->var[own - 1].name);
  return model_add_var(m, name, cell, NULL);
}

int limn_model_alias(limn_model *m, const char *other, const char *name) {
  uintptr_t i = model_named(m, name), taken = model_named(m, other);
  limn_model_alias_of *a;
  if (!i)
    return limn_fail(m->c, LIMN_ENAME,
                     "\"%.200s\" cannot stand for "
                     "\"%.200s\", which does not exist",
                     other, name);
  if (taken == i) return 0;
  if (taken)
    return limn_fail(m->c, LIMN_ENAME,
                     "\"%.200s\" and \"%.200s\" are not the "
                     "same",
                     other, name);
  LIMN_TRY(limn_grow(m->c, &m->alias, &m->alias_cap, m->nalias + 1, sizeof *a));
  a = &m->alias[m->nalias];
  *a = (limn_model_alias_of){limn_strdup(m->c, other), (uint32_t)i - 1};
  if (!a->name) return LIMN_EMEM;
  m->nalias++;
  return model_note_name(m, other, (uint32_t)i - 1);
}

/* Two modules of one path are told apart by ".2" and so on. */
int limn_model_add_mode(limn_model *m, const char *name, limn_mode *mode) {
  limn_str s;
  limn_model_mode_of *e;
  int rc;
  if (model_object(m, mode)) return 0;
  limn_str_init(&s, m->c);
  limn_str_add(&s, name);
  for (unsigned i = 2; s.rc >= 0 && limn_model_mode(m, s.s); i++) {
    s.len = 0;
    limn_str_addf(&s, "%s.%u", name, i);
  }
  LIMN_GO(s.rc);
  LIMN_GO(limn_grow(m->c, &m->mode, &m->mode_cap, m->nmode + 1, sizeof *e));
  LIMN_GO(model_note_object(m, mode, (uintptr_t)m->nmode + 1));
  e = &m->mode[m->nmode];
  *e = (limn_model_mode_of){limn_strdup(m->c, s.s), mode};
  if (!e->name) LIMN_GO(LIMN_EMEM);
  mode->refs++;
  m->nmode++;
bail:
  limn_str_free(&s);
  return rc;
}

/* What a graph, which the file calls `as`, and its regions use. */
static int model_collect(limn_model *m, const limn_graph *g, const char *as) {
  for (uint32_t i = 0; i < g->ncell; i++) {
    const limn_graph_cell *gc = &g->cell[i];
    const char *name = gc->name         ? limn_graph_text(g, gc->name)
                       : gc->cell->name ? gc->cell->name
                                        : NULL;
    if (model_object(m, gc->cell)) continue;
    if (!name || !*name) {
      limn_fail(m->c, LIMN_ENAME, "graph %.100s uses a cell that has no name",
                as);
      return limn_hint(m->c, LIMN_ENAME, "save it under a key of its own "
                       "beside the graph, or set cell.name");
    }
    LIMN_TRY(limn_model_add_cell(m, name, gc->cell));
  }
  for (uint32_t i = 0; i < g->nconst; i++)
    LIMN_TRY(limn_model_add_tensor(m, limn_graph_text(g, g->konst[i].name),
                                   g->konst[i].value));
  for (uint32_t i = 0; i < g->nmode; i++)
    LIMN_TRY(limn_model_add_mode(m, limn_graph_text(g, g->mode[i].name),
                                 g->mode[i].mode));
  for (uint32_t i = 0; i < g->nregion; i++)
    LIMN_TRY(model_collect(m, g->region[i], as));
  return 0;
}

int limn_model_add_graph(limn_model *m, const char *name, limn_graph *g) {
  limn_model_graph_of *e;
  if (limn_model_graph(m, name))
    return limn_fail(m->c, LIMN_ENAME, "two graphs are called \"%.200s\"",
                     name);
  LIMN_TRY(model_collect(m, g, name));
  LIMN_TRY(limn_grow(m->c, &m->graph, &m->graph_cap, m->ngraph + 1, sizeof *e));
  e = &m->graph[m->ngraph];
  *e = (limn_model_graph_of){limn_strdup(m->c, name), g};
  if (!e->name) return LIMN_EMEM;
  limn_graph_retain(g);
  m->ngraph++;
  return 0;
}

/* -- For hosts -- */

int limn_model_no_graph(limn_model *m, const char *name) {
  char have[512] = "";
  size_t n = 0;
  for (uint32_t i = 0; i < m->ngraph && n < sizeof have; i++)
    n += (size_t)snprintf(have + n, sizeof have - n, "%s%s", i ? ", " : "",
                          m->graph[i].name);
  limn_fail(m->c, LIMN_ENAME, "the model has no graph \"%.200s\"", name);
  return limn_hint(m->c, LIMN_ENAME, m->ngraph ? "it has: %s" : "it has none%s",
                   have);
}

void limn_model_set_mode(limn_model *m, int training) {
  for (uint32_t i = 0; m && i < m->nmode; i++)
    m->mode[i].mode->training = training != 0;
}

const char *limn_model_graph_name(limn_model *m, int i) {
  return m && i >= 0 && (uint32_t)i < m->ngraph ? m->graph[i].name : NULL;
}

int limn_model_var_find(limn_model *m, const char *name) {
  uintptr_t i = m && name ? model_named(m, name) : 0;
  const char *near = NULL;
  int best = 4;
  if (!m) return LIMN_EARG;
  limn_error_clear(m->c);
  if (i) return (int)i - 1;
  for (uint32_t k = 0; name && k < m->nvar; k++) {
    int d = limn_str_distance(name, m->var[k].name);
    if (d < best) best = d, near = m->var[k].name;
  }
  limn_fail(m->c, LIMN_ENAME, "the model has no cell \"%.200s\"",
            name ? name : "");
  if (near)
    return limn_hint(m->c, LIMN_ENAME, "did you mean \"%.200s\"?", near);
  return LIMN_ENAME;
}

static int model_var_at(limn_model *m, int i, limn_var **out) {
  if (!m) return LIMN_EARG;
  limn_error_clear(m->c);
  if (i < 0 || (uint32_t)i >= m->nvar)
    return limn_fail(m->c, LIMN_EINDEX, "variable %d of a model with %u", i,
                     m->nvar);
  *out = &m->var[i];
  return 0;
}

static limn_shape model_var_shape(const limn_var *v) {
  return v->cell ? v->cell->shape : limn_tensor_shape(v->tensor);
}

static int model_var_dtype(const limn_var *v) {
  return v->cell ? v->cell->dtype : v->tensor->dtype;
}

void limn_info_give(limn_info *out, const limn_info *info) {
  size_t n = out->size;
  if (n < offsetof(limn_info, name) || n > sizeof *info) n = sizeof *info;
  memcpy(out, info, n);
  out->size = n;
}

int limn_model_var_info(limn_model *m, int i, limn_info *out) {
  static const int kinds[] = {LIMN_KIND_PARAM, LIMN_KIND_BUFFER,
                              LIMN_KIND_STATE};
  limn_info info = {0};
  limn_shape s;
  limn_var *v = NULL;
  LIMN_TRY(model_var_at(m, i, &v));
  if (!out) return limn_fail(m->c, LIMN_EARG, "the result has no place");
  s = model_var_shape(v);
  info.size = sizeof info;
  info.kind = v->cell ? kinds[v->cell->kind] : LIMN_KIND_BUFFER;
  info.dtype = model_var_dtype(v);
  info.ndim = s.ndim;
  info.name = v->name;
  memcpy(info.shape, s.d, sizeof info.shape);
  limn_info_give(out, &info);
  return 0;
}

/* The host's array must be just like the var: dense, in host memory. */
static int model_check_array(limn_model *m, const limn_var *v,
                             const limn_array *a) {
  limn_shape s = model_var_shape(v), got = {0};
  char want[200], text[200];
  int64_t step = 1;
  if (!a || a->size < offsetof(limn_array, stride) || !a->data || a->ndim < 0 ||
      a->ndim > LIMN_MAXDIM)
    return limn_fail(m->c, LIMN_EARG, "the array for %.200s is not filled in",
                     v->name);
  if (a->device && strcmp(a->device, "cpu"))
    return limn_fail(m->c, LIMN_EDEVICE,
                     "the array for %.200s must be in host "
                     "memory, not on %.40s",
                     v->name, a->device);
  got.ndim = a->ndim;
  memcpy(got.d, a->shape, (size_t)a->ndim * sizeof *got.d);
  if (a->dtype != model_var_dtype(v))
    return limn_fail(m->c, LIMN_EDTYPE, "%.200s is %s, the array is %s",
                     v->name, limn_dtype_name(model_var_dtype(v)),
                     limn_dtype_name(a->dtype));
  if (!limn_shape_eq(&s, &got))
    return limn_fail(m->c, LIMN_ESHAPE, "%.200s has shape %s, the array %s",
                     v->name, limn_shape_text(want, sizeof want, s.ndim, s.d),
                     limn_shape_text(text, sizeof text, got.ndim, got.d));
  for (int i = a->ndim - 1; i >= 0 && a->size >= sizeof *a; i--) {
    if (a->stride[i] && a->stride[i] != step && a->shape[i] > 1)
      return limn_fail(m->c, LIMN_EARG, "the array for %.200s is not dense",
                       v->name);
    step *= a->shape[i];
  }
  return 0;
}

int limn_model_var_read(limn_model *m, int i, const limn_array *a) {
  limn_var *v = NULL;
  limn_tensor *t;
  LIMN_TRY(model_var_at(m, i, &v));
  LIMN_TRY(model_check_array(m, v, a));
  t = v->tensor;
  if (v->cell) LIMN_TRY(limn_cell_get(v->cell, NULL, &t));
  return limn_tensor_read(
      t, a->data,
      (size_t)limn_tensor_numel(t) * (size_t)limn_dtype_size(t->dtype));
}

int limn_model_var_write(limn_model *m, int i, const limn_array *a) {
  limn_shape s;
  limn_tensor *t;
  limn_var *v = NULL;
  int rc;
  LIMN_TRY(model_var_at(m, i, &v));
  LIMN_TRY(model_check_array(m, v, a));
  if (!v->cell)
    return limn_fail(m->c, LIMN_EARG, "%.200s is a constant of the model",
                     v->name);
  s = v->cell->shape;
  LIMN_TRY(limn_tensor_new(m->c, m->c->devices[0], a->dtype, &s, &t));
  rc = limn_tensor_write(
      t, a->data,
      (size_t)limn_tensor_numel(t) * (size_t)limn_dtype_size(t->dtype));
  if (rc >= 0) rc = limn_cell_assign(v->cell, t);
  limn_tensor_release(t);
  return rc;
}
