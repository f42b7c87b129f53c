/* A context: opening, closing, errors and the seed, as hosts call them. */
#include <stdlib.h>

#include "tensor.h"

enum { CONTEXT_SEED = 1, CONTEXT_TEARDOWN = 1 << 30 };

static const limn_options context_defaults = LIMN_OPTIONS;

/* The context's own memory comes before there is one to count it in. */
static void *context_memory(const limn_options *o, void *p, size_t osize,
                            size_t nsize) {
  if (o->realloc) return o->realloc(o->user, p, osize, nsize, 64);
  if (nsize) return malloc(nsize);
  free(p);
  return NULL;
}

/* A host compiled against an older or newer header has a shorter or longer
 * struct; fields that it lacks keep their defaults. */
static int context_options(const limn_options *o, limn_options *out) {
  *out = context_defaults;
  if (!o) return 0;
  if (o->size < offsetof(limn_options, user) || o->abi != LIMN_ABI)
    return LIMN_EARG;
  memcpy(out, o, LIMN_MIN(o->size, sizeof *out));
  out->size = sizeof *out;
  return 0;
}

int limn_open(const limn_options *o, limn_context **out) {
  limn_options opt;
  limn_context *c;
  int rc;
  if (!out) return LIMN_EARG;
  *out = NULL;
  LIMN_TRY(context_options(o, &opt));
  c = context_memory(&opt, NULL, 0, sizeof *c);
  if (!c) return LIMN_EMEM;
  memset(c, 0, sizeof *c);
  c->opt = opt;
  c->refs = 1;
  limn_flags_read(&c->flags);
  if (c->opt.threads == 0) c->opt.threads = c->flags.threads;
  limn_seed_set(c, opt.seed ? opt.seed : CONTEXT_SEED);
  if ((rc = limn_devices_open(c)) < 0) {
    limn_log(c, 'e', "%s", c->error); /* the host gets no context to ask */
    limn_context_release(c);
    return rc;
  }
  limn_error_clear(c);
  *out = c;
  return 0;
}

void limn_close(limn_context *ctx) {
  if (!ctx) return;
  limn_eager_free(ctx);
  limn_context_release(ctx);
}

void limn_context_retain(limn_context *c) {
  c->refs++;
}

static void context_free_sites(limn_context *c) {
  uint32_t i;
  for (i = 0; i < c->nsites; i++)
    if (c->site_text[i])
      limn_free(c, c->site_text[i], strlen(c->site_text[i]) + 1);
  limn_free(c, c->site_text, c->site_cap * sizeof *c->site_text);
  limn_map_free(c, &c->sites);
}

void limn_context_release(limn_context *c) {
  limn_options opt;
  if (!c || --c->refs > 0) return;
  c->refs = CONTEXT_TEARDOWN; /* what is freed below releases it again */
  c->reclaim = NULL;
  limn_plans_free(c);
  limn_eager_free(c);
  limn_devices_close(c);
  limn_pool_free(c);
  context_free_sites(c);
  if (c->scratch) limn_realloc(c, c->scratch, c->scratch_size, 0, 64);
  if (c->bytes)
    limn_log(c, 'w', "limn: %zu bytes were not freed", c->bytes);
  opt = c->opt;
  context_memory(&opt, c, sizeof *c, 0);
}

const char *limn_error(const limn_context *ctx) {
  return ctx ? ctx->error : "";
}

const char *limn_strerror(int code) {
  static const char *const text[] = {
      "no error",
      "wrong argument",
      "out of memory",
      "shapes do not fit",
      "dtypes do not fit",
      "device missing or failing",
      "impossible size",
      "index out of range",
      "corrupt or newer file",
      "no such name",
      "a guard of the graph does not hold",
      "shapes changed since the call was prepared",
      "not possible while tracing",
      "a cell is void since its last write failed",
      "not supported",
      "input or output failed",
      "a matrix has no result",
  };
  if (code > 0 || code <= -LIMN_COUNT(text)) return "unknown error";
  return text[-code];
}

const char *limn_version(void) {
  return LIMN_VERSION;
}

void limn_seed(limn_context *ctx, uint64_t seed) {
  if (ctx) limn_seed_set(ctx, seed);
}
