/* What GPU devices share: reuse of memory, and programs by their source. */
#include "gpu.h"

#include "kernels_gen.h"

/* -- Texts of kernels/ ----------------------------------------------------- */

static const struct {
  const char *name, *text;
} gpu_texts[] = {
    {"prelude_opencl", limn_k_prelude_opencl},
    {"prelude_cuda", limn_k_prelude_cuda},
    {"dialect", limn_k_dialect},
    {"philox", limn_k_philox},
    {"special", limn_k_special},
    {"random", limn_k_random},
    {"gemm_args", limn_k_gemm_args},
    {"gemm", limn_k_gemm},
    {"gemm_cpu", limn_k_gemm_cpu},
    {"conv", limn_k_conv},
    {"arg", limn_k_arg},
    {"row", limn_k_row},
    {"norm", limn_k_norm},
    {"cum", limn_k_cum},
    {"sort", limn_k_sort},
    {"index", limn_k_index},
    {"add", limn_k_add},
};

const char *limn_gpu_text(const char *name) {
  int i;
  for (i = 0; i < LIMN_COUNT(gpu_texts); i++)
    if (!strcmp(gpu_texts[i].name, name)) return gpu_texts[i].text;
  return NULL;
}

size_t limn_gpu_heading(const char *src) {
  const char *p = src;
  while (*p == '#') {
    p = strchr(p, '\n');
    if (!p) return strlen(src);
    p++;
  }
  return (size_t)(p - src);
}

/* -- Arguments ------------------------------------------------------------- */

int limn_gpu_num(limn_gpu_args *a, int64_t v) {
  if (!a->rc)
    a->rc = limn_grow(a->c, &a->num, &a->num_cap, a->nnum + 1, sizeof *a->num);
  if (a->rc) return 0;
  a->num[a->nnum] = v;
  return (int)a->nnum++;
}

int limn_gpu_num_patch(limn_gpu_args *a, int kind, int dtype, int arg,
                       int64_t v) {
  int at = limn_gpu_num(a, v);
  if (!a->rc)
    a->rc = limn_grow(a->c, &a->patch, &a->patch_cap, a->npatch + 1,
                      sizeof *a->patch);
  if (a->rc) return 0;
  a->patch[a->npatch++] = (limn_gpu_patch){(uint8_t)kind, (uint8_t)dtype,
                                           (uint16_t)at, (uint16_t)arg};
  return at;
}

void limn_gpu_ptr(limn_gpu_args *a, int kind, int at) {
  if (a->nmem == LIMN_GPU_MEMS) {
    if (!a->rc)
      a->rc = limn_fail(a->c, LIMN_EUNSUPPORTED,
                        "a kernel with more than %d tensors", LIMN_GPU_MEMS);
    return;
  }
  a->mem[a->nmem++] = (limn_gpu_mem){(uint8_t)kind, (uint16_t)at};
}

bool limn_gpu_table(const limn_gpu_args *a) {
  return (a->nnum + a->nmem) * 8 > a->bytes;
}

void limn_gpu_args_free(limn_gpu_args *a) {
  limn_free(a->c, a->num, a->num_cap * sizeof *a->num);
  limn_free(a->c, a->patch, a->patch_cap * sizeof *a->patch);
  a->num = NULL;
  a->patch = NULL;
  a->num_cap = a->patch_cap = a->nnum = a->npatch = a->nmem = 0;
}

/* -- Memory ---------------------------------------------------------------- */

/* Free blocks are kept by size class, eight classes an octave, and reused at
 * once: everything on a device is done in order, so whoever gets the block
 * comes after whoever gave it. */
typedef struct limn_gpu_block {
  struct limn_gpu_block *next;
  void *mem;
} limn_gpu_block;

static void gpu_trim_free(limn_gpu *g) {
  int k;
  for (k = 0; k < LIMN_GPU_CLASSES; k++)
    while (g->free_list[k]) {
      limn_gpu_block *b = g->free_list[k];
      g->free_list[k] = b->next;
      g->drv->mem_del(g, b->mem);
      limn_free(g->c, b, sizeof *b);
    }
  g->cached = 0;
}

void limn_gpu_trim(limn_gpu *g) {
  limn_gpu_replays_release(g);
  gpu_trim_free(g);
}

/* Class of a size, and the size that all blocks of the class have. */
static int gpu_class(size_t bytes, size_t *size) {
  size_t n = (bytes + 255) / 256; /* in units of 256 bytes */
  int octave = 0, step;
  if (n <= 8) {
    *size = (n ? n : 1) * 256;
    return (int)(n ? n - 1 : 0);
  }
  while ((n - 1) >> (octave + 4)) octave++;
  step = (int)((n - 1) >> (octave + 0)) - 8; /* 0..7 within the octave */
  *size = (size_t)(step + 9) * 256 << octave;
  return (octave + 1) * 8 + step;
}

int limn_gpu_take(limn_gpu *g, size_t bytes, void **mem) {
  size_t size;
  int k = gpu_class(bytes, &size);
  limn_gpu_block *b = k < LIMN_GPU_CLASSES ? g->free_list[k] : NULL;
  int rc;
  if (b) {
    *mem = b->mem;
    g->free_list[k] = b->next;
    g->cached -= size;
    limn_free(g->c, b, sizeof *b);
    return 0;
  }
  rc = g->drv->mem_new(g, size, mem);
  if (rc == LIMN_EMEM && g->cached) {
    gpu_trim_free(g);
    rc = g->drv->mem_new(g, size, mem);
  }
  if (rc == LIMN_EMEM && limn_gpu_replays_release(g)) {
    gpu_trim_free(g);
    rc = g->drv->mem_new(g, size, mem);
  }
  if (rc == LIMN_EMEM)
    return limn_fail(g->c, LIMN_EMEM,
                     "out of device memory: %zu bytes wanted, %zu in use",
                     bytes, g->c->device_bytes);
  return rc;
}

void limn_gpu_give(limn_gpu *g, void *mem, size_t bytes) {
  size_t size;
  int k = gpu_class(bytes, &size);
  limn_gpu_block *b = NULL;
  if (k < LIMN_GPU_CLASSES && g->cached + size <= g->cache_limit)
    b = limn_realloc(g->c, NULL, 0, sizeof *b, 16);
  if (!b) {
    g->drv->mem_del(g, mem);
    return;
  }
  b->mem = mem;
  b->next = g->free_list[k];
  g->free_list[k] = b;
  g->cached += size;
}

/* -- Programs -------------------------------------------------------------- */

#define GPU_KERNELS 6 /* kernels of one program */
typedef struct {
  void *program;
  int n;
  char name[GPU_KERNELS][16];
  void *kernel[GPU_KERNELS];
} gpu_program;

static void gpu_program_free(limn_gpu *g, gpu_program *p) {
  int i;
  for (i = 0; i < p->n; i++) g->drv->unkernel(g, p->kernel[i]);
  if (p->program) g->drv->unbuild(g, p->program);
  limn_free(g->c, p, sizeof *p);
}

static int gpu_program_new(limn_gpu *g, const char *src, gpu_program **out) {
  gpu_program *p = limn_alloc(g->c, sizeof *p);
  int rc;
  if (!p) return LIMN_EMEM;
  if (limn_dumps(g->c, 'k')) limn_log(g->c, 'v', "%s", src);
  LIMN_GO(g->drv->build(g, src, &p->program));
  g->c->count.compiles++;
  LIMN_GO(limn_map_put(g->c, &g->programs, src, strlen(src), p));
  *out = p;
  return 0;
bail:
  gpu_program_free(g, p);
  return rc;
}

int limn_gpu_kernel(limn_gpu *g, const char *src, const char *name,
                    void **kernel) {
  gpu_program *p = limn_map_get(&g->programs, src, strlen(src));
  int i;
  if (!p) LIMN_TRY(gpu_program_new(g, src, &p));
  for (i = 0; i < p->n; i++)
    if (!strcmp(p->name[i], name)) {
      *kernel = p->kernel[i];
      return 0;
    }
  if (p->n == GPU_KERNELS || strlen(name) >= sizeof p->name[0])
    return limn_fail(g->c, LIMN_EARG, "too many kernels in a program");
  LIMN_TRY(g->drv->kernel(g, p->program, name, kernel));
  strcpy(p->name[p->n], name);
  p->kernel[p->n++] = *kernel;
  return 0;
}

void limn_gpu_close(limn_gpu *g) {
  uint32_t i;
  for (i = 0; i < g->programs.cap; i++)
    if (g->programs.e[i].key && g->programs.e[i].value)
      gpu_program_free(g, g->programs.e[i].value);
  limn_map_free(g->c, &g->programs);
  if (g->fault) g->drv->mem_del(g, g->fault);
  g->fault = NULL;
  limn_gpu_trim(g);
}

/* -- The device's memory and order ----------------------------------------- */

int limn_gpu_alloc(limn_device *d, size_t bytes, void **mem) {
  return limn_gpu_take(d->impl, bytes, mem);
}

void limn_gpu_free(limn_device *d, void *mem, size_t bytes) {
  limn_gpu_give(d->impl, mem, bytes);
}

int limn_gpu_upload(limn_device *d, void *mem, size_t off, const void *src,
                    size_t n) {
  limn_gpu *g = d->impl;
  return g->drv->write(g, mem, off, src, n);
}

int limn_gpu_download(limn_device *d, void *mem, size_t off, void *dst,
                      size_t n) {
  limn_gpu *g = d->impl;
  return g->drv->read(g, mem, off, dst, n);
}

int limn_gpu_wait(limn_device *d) {
  limn_gpu *g = d->impl;
  return g->drv->finish(g);
}

/* The fault buffer: a claim word, then site and turn, serial, value, limit,
 * base and position, as CHECK of dialect.k writes them. It is read only after
 * kernels that can note a fault. */
#define GPU_FAULT_WORDS 8

int limn_gpu_fault_memory(limn_gpu *g) {
  static const int64_t none[GPU_FAULT_WORDS];
  if (g->fault) return 0;
  LIMN_TRY(limn_gpu_take(g, sizeof none, &g->fault));
  return g->drv->write(g, g->fault, 0, none, sizeof none);
}

int limn_gpu_fault(limn_device *d, limn_fault *out) {
  static const int64_t none[GPU_FAULT_WORDS];
  limn_gpu *g = d->impl;
  int64_t w[GPU_FAULT_WORDS];
  memset(out, 0, sizeof *out);
  if (!g->fault_dirty) return 0;
  LIMN_TRY(g->drv->read(g, g->fault, 0, w, sizeof w));
  g->fault_dirty = false;
  if (!w[0]) return 0;
  LIMN_TRY(g->drv->write(g, g->fault, 0, none, sizeof none));
  out->turn = (uint64_t)w[1] >> LIMN_GPU_SITE_BITS;
  out->site = (uint32_t)w[1] & ((1u << LIMN_GPU_SITE_BITS) - 1);
  if (!out->site) out->site = UINT32_MAX;
  out->code = LIMN_EINDEX;
  out->serial = (uint64_t)w[2];
  out->value = w[3];
  out->limit = w[4];
  out->base = w[5];
  out->at = w[6];
  return 0;
}
