/* Where data errors happened: kernels note a number, which stands for a text
 * such as "net.lua:14: gather in head". */
#include <stdio.h>

#include "planner.h"

#define SITE_MOST 16384

/* One for each line that indexes. Kernels in flight refer to them, so they
 * stay; code that is made anew without end shares the last. */
static uint32_t site_of_text(limn_context *c, const char *text) {
  size_t n = strlen(text);
  uintptr_t at = n ? (uintptr_t)limn_map_get(&c->sites, text, n) : 0;
  if (at) return (uint32_t)at;
  if (c->nsites == SITE_MOST) text = "indexing", n = strlen(text);
  if (c->nsites > SITE_MOST) return SITE_MOST;
  if (limn_grow(c, &c->site_text, &c->site_cap, c->nsites + 2,
                sizeof *c->site_text) < 0)
    return 0;
  if (c->nsites == 0) c->nsites = 1; /* 0 means no fault */
  c->site_text[c->nsites] = limn_strdup(c, text);
  if (!c->site_text[c->nsites]) return 0;
  if (limn_map_put(c, &c->sites, text, n, (void *)(uintptr_t)c->nsites) < 0) {
    limn_free(c, c->site_text[c->nsites], n + 1);
    return 0;
  }
  return c->nsites++;
}

/* For class labels the sentence starts with what they are (device.c). */
uint32_t limn_error_site(limn_context *c, int op, const char *line,
                         const char *path, bool label) {
  char text[1024];
  int module;
  const char *called = limn_path_called(path, &module);
  if (label) called = "", module = 0;
  snprintf(text, sizeof text, "%s%s%s%s%s%s%.*s", line, *line ? ": " : "",
           called, *called ? ": " : "",
           label ? "class label" : limn_op_get(op)->name,
           module ? " in " : "", module, path);
  return site_of_text(c, text);
}
