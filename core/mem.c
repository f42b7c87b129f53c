/* Memory: the host's allocator, counted and limited. */
#include <stdlib.h>
#ifdef __linux__
#include <sys/mman.h>
#endif

#include "base.h"

/* What malloc gives already; larger alignments need memory of their own. */
#define MEM_ALIGN 16
/* The system's large pages; blocks of as much ask for them. A kernel that goes
 * through many small ones waits for the processor to look each of them up. */
#define MEM_PAGE ((size_t)2 << 20)

/* The C library's allocator in the form of limn_options.realloc. It has no
 * aligned realloc, so aligned blocks move when they are resized. */
static void *mem_default(void *p, size_t osize, size_t nsize, size_t align) {
  void *q;
  if (!nsize) {
    free(p);
    return NULL;
  }
  if (align <= MEM_ALIGN) return realloc(p, nsize);
  if (nsize >= MEM_PAGE) align = LIMN_MAX(align, MEM_PAGE);
  if (nsize > PTRDIFF_MAX - align) return NULL;
  q = aligned_alloc(align, (nsize + align - 1) / align * align);
  if (!q) return NULL;
#ifdef MADV_HUGEPAGE /* only a wish: never mind if it is not granted */
  if (nsize >= MEM_PAGE)
    madvise(q, nsize / MEM_PAGE * MEM_PAGE, MADV_HUGEPAGE);
#endif
  if (p) memcpy(q, p, LIMN_MIN(osize, nsize));
  free(p);
  return q;
}

static void *mem_host(limn_context *c, void *p, size_t osize, size_t nsize,
                      size_t align) {
  if (c->opt.realloc)
    return c->opt.realloc(c->opt.user, p, osize, nsize, align);
  return mem_default(p, osize, nsize, align);
}

static bool mem_fits(const limn_context *c, size_t osize, size_t nsize) {
  size_t max = c->opt.max_bytes, others = c->bytes - osize;
  return !max || nsize <= osize || (others <= max && nsize <= max - others);
}

/* One try; shrinking and freeing always fit. */
static void *mem_try(limn_context *c, void *p, size_t osize, size_t nsize,
                     size_t align) {
  void *q;
  if (!mem_fits(c, osize, nsize)) return NULL;
  q = mem_host(c, p, osize, nsize, align);
  if (!q) return NULL;
  c->count.allocs++;
  c->bytes = c->bytes - osize + nsize;
  c->peak_bytes = LIMN_MAX(c->peak_bytes, c->bytes);
  return q;
}

void *limn_realloc(limn_context *c, void *p, size_t osize, size_t nsize,
                   size_t align) {
  void *q;
  bool freed;
  if (!p) osize = 0;
  if (!nsize) {
    if (p) mem_host(c, p, osize, 0, align);
    c->bytes -= osize;
    return NULL;
  }
  align = LIMN_MAX(align, MEM_ALIGN);
  q = mem_try(c, p, osize, nsize, align);
  /* What reclaim runs may itself run short; it must not call itself. */
  if (q || !c->reclaim || c->reclaiming) return q;
  c->reclaiming = true;
  freed = c->reclaim(c->reclaim_user);
  c->reclaiming = false;
  return freed ? mem_try(c, p, osize, nsize, align) : NULL;
}

static int mem_fail(limn_context *c, size_t size) {
  if (c->opt.max_bytes)
    return limn_fail(c, LIMN_EMEM,
                     "out of memory: %zu more bytes wanted, %zu in use, the "
                     "limit is %zu", size, c->bytes, c->opt.max_bytes);
  return limn_fail(c, LIMN_EMEM,
                   "out of memory: %zu more bytes wanted, %zu in use", size,
                   c->bytes);
}

/* Blocks of 0 bytes are blocks of 1, so that NULL always means failure. */
void *limn_alloc(limn_context *c, size_t size) {
  void *p = limn_realloc(c, NULL, 0, LIMN_MAX(size, 1), MEM_ALIGN);
  if (!p) {
    mem_fail(c, size);
    return NULL;
  }
  return memset(p, 0, LIMN_MAX(size, 1));
}

void limn_free(limn_context *c, void *p, size_t size) {
  if (p) limn_realloc(c, p, LIMN_MAX(size, 1), 0, MEM_ALIGN);
}

char *limn_strdup(limn_context *c, const char *s) {
  size_t n = strlen(s) + 1;
  char *p = limn_alloc(c, n);
  if (p) memcpy(p, s, n);
  return p;
}

/* New items are zeroed. `array_ptr` is the address of a pointer of any type,
 * which memcpy may read and write. */
int limn_grow(limn_context *c, void *array_ptr, uint32_t *cap, uint32_t need,
              size_t elem) {
  uint64_t n = *cap ? *cap : 8;
  size_t old = (size_t)*cap * elem;
  char *p;
  if (need <= *cap) return 0;
  while (n < need) n *= 2;
  if (n > UINT32_MAX || n > (size_t)PTRDIFF_MAX / elem)
    return limn_fail(c, LIMN_ESIZE, "an array would grow to %llu items",
                     (unsigned long long)n);
  memcpy(&p, array_ptr, sizeof p);
  p = limn_realloc(c, p, old, (size_t)n * elem, MEM_ALIGN);
  if (!p) return mem_fail(c, (size_t)n * elem - old);
  memset(p + old, 0, (size_t)n * elem - old);
  memcpy(array_ptr, &p, sizeof p);
  *cap = (uint32_t)n;
  return 0;
}

int limn_mul(limn_context *c, int64_t a, int64_t b, int64_t *out) {
  if (a < 0 || b < 0 || __builtin_mul_overflow(a, b, out))
    return limn_fail(c, LIMN_ESIZE, "%lld * %lld is no possible size",
                     (long long)a, (long long)b);
  return 0;
}
