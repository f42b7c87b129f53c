/* Layer 4: models, any number of graphs over one set of weights.
 *
 * To save: make a model, add cells under the names that the file shall use,
 * add graphs (which bring what else they use), write it. A loaded model holds
 * its tensors on the CPU; its graphs share its cells and modes. */
#ifndef LIMN_MODEL_H
#define LIMN_MODEL_H

#include "graph.h"

/* A named tensor of the file: a cell, or a constant (cell is NULL). */
typedef struct limn_var {
  char *name;
  limn_cell *cell;     /* retained */
  limn_tensor *tensor; /* retained */
} limn_var;
typedef struct {
  char *name; /* another path of ... */
  uint32_t var;
} limn_model_alias_of;
typedef struct {
  char *name;
  limn_graph *graph; /* retained */
} limn_model_graph_of;
typedef struct {
  char *name;
  limn_mode *mode; /* retained */
} limn_model_mode_of;

struct limn_model {
  int refs;
  limn_context *c;
  limn_var *var;
  uint32_t nvar, var_cap;
  limn_model_alias_of *alias;
  uint32_t nalias, alias_cap;
  limn_model_graph_of *graph;
  uint32_t ngraph, graph_cap;
  limn_model_mode_of *mode;
  uint32_t nmode, mode_cap;
  limn_map names;   /* of vars and aliases -> index of the var + 1 */
  limn_map objects; /* cell or tensor -> var + 1; mode -> index + 1 */
};

int limn_model_new(limn_context *c, limn_model **out);
void limn_model_retain(limn_model *m);

/* Everything added is retained. */
/* A cell that is there already gets `name` as an alias. A different cell of
 * that name: LIMN_ENAME. */
int limn_model_add_cell(limn_model *m, const char *name, limn_cell *cell);
/* A constant; the name is made unique by ".2" and so on. */
int limn_model_add_tensor(limn_model *m, const char *name, limn_tensor *t);
int limn_model_add_mode(limn_model *m, const char *name, limn_mode *mode);
/* With its cells, constants and modes, regions' too. Cells that the model has
 * under another name keep that one. Two graphs of one name: LIMN_ENAME. */
int limn_model_add_graph(limn_model *m, const char *name, limn_graph *g);
/* `other` is another path of the var `name`. */
int limn_model_alias(limn_model *m, const char *other, const char *name);

/* Borrowed; NULL, without a message, when there is none. */
limn_graph *limn_model_graph(limn_model *m, const char *name);
limn_var *limn_model_var(limn_model *m, const char *name); /* aliases too */
limn_mode *limn_model_mode(limn_model *m, const char *name);
/* What the model calls a cell, tensor or mode; NULL: it does not hold it. */
const char *limn_model_name_of(const limn_model *m, const void *object);
/* LIMN_ENAME with the names there are, for a graph that is not. */
int limn_model_no_graph(limn_model *m, const char *name);
/* Copy `info` to the caller's struct, which may be of another version. */
void limn_info_give(limn_info *out, const limn_info *info);

/* -- model_save.c, model_load.c -- */
extern const char *const limn_cell_words[3]; /* "param", ... by LIMN_CELL_* */
#define LIMN_GRAPH_KEY "limn.graph." /* of the metadata, before the name */
/* LIMN_EIO: "cannot <what> <path>: <errno's text>". */
int limn_file_errno(limn_context *c, const char *what, const char *path);
/* Append the file's bytes; `lines` keeps source lines in graphs. The same
 * model gives the same bytes. */
int limn_model_write(limn_model *m, limn_str *out, bool lines);
int limn_model_save_file(limn_model *m, const char *path, bool lines);
int limn_model_load_file(limn_context *c, const char *path, limn_model **out);

#endif
