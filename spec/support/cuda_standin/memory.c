/* Device memory with guard pages, whose addresses only the stand-in can
 * follow, and the host's pinned memory. */
#include "standin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* A range of addresses is given out once and never again, so that a pointer
 * kept for too long points nowhere. */
#define MEMORY_RANGE ((size_t)1 << 42)
static char *memory_next, *memory_end;

static standin_block *memory_block; /* by address */
static int memory_blocks, memory_cap;

static int memory_pages(size_t n, char **out) {
  if (!memory_next) {
    memory_next = mmap(NULL, MEMORY_RANGE, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory_next == MAP_FAILED) abort();
    memory_end = memory_next + MEMORY_RANGE;
  }
  if ((size_t)(memory_end - memory_next) < n + 4096) return CU_E_OUT_OF_MEMORY;
  if (mprotect(memory_next, n, PROT_READ | PROT_WRITE))
    return CU_E_OUT_OF_MEMORY;
  *out = memory_next;
  memory_next += n + 4096;
  return 0;
}

static size_t memory_used(const struct cu_context *c) {
  size_t n = 0;
  int i;
  for (i = 0; i < memory_blocks; i++)
    if (memory_block[i].owner == c) n += memory_block[i].bytes;
  return n;
}

static size_t memory_limit(void) {
  const char *s = getenv("STANDIN_MEMORY");
  return s ? (size_t)strtoull(s, NULL, 10) : (size_t)8 << 30;
}

/* Many small blocks share a page: 256 bytes each, with as many between them.
 * The first ones count those that live. */
enum { SMALL = 256, SMALL_STEP = 512 };
static char *small_page;
static size_t small_at;

static int small_new(standin_block *b, char **at) {
  int rc = 0;
  if (!small_page || small_at == 4096) {
    rc = memory_pages(4096, &small_page);
    if (rc) return rc;
    memset(small_page, 0xff, 4096);
    *(int *)(void *)small_page = 0;
    small_at = SMALL_STEP;
  }
  *at = small_page + small_at;
  small_at += SMALL_STEP;
  b->page = small_page;
  b->pages = SMALL_STEP;
  ++*(int *)(void *)small_page;
  return 0;
}

/* A new mapping joins those around it; the old one would not. */
static void memory_unmap(char *page, size_t n) {
  mmap(page, n, PROT_NONE,
       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

static void small_free(char *page) {
  if (--*(int *)(void *)page || page == small_page) return;
  memory_unmap(page, 4096);
}

/* The end of a block lies before a guard page, but for its alignment. */
static int large_new(standin_block *b, size_t whole, char **at) {
  int rc;
  b->pages = (whole + 4095) / 4096 * 4096;
  rc = memory_pages(b->pages, &b->page);
  if (!rc) *at = b->page + b->pages - whole;
  return rc;
}

/* How many blocks start at p or before. */
static int memory_after(cu_ptr p) {
  int lo = 0, hi = memory_blocks;
  while (lo < hi) {
    int mid = (lo + hi) / 2;
    if (memory_block[mid].at <= p)
      lo = mid + 1;
    else
      hi = mid;
  }
  return lo;
}

/* What nobody wrote reads as NaN and -1. */
static int memory_new(size_t bytes, struct cu_pool *pool, cu_ptr *out) {
  enum { EDGE = 1 << 16 };
  standin_block b = {.pool = pool};
  int rc = standin_current(&b.owner);
  size_t whole = (bytes + 255) / 256 * 256;
  char *at = NULL;
  int i;
  if (rc) return rc;
  if (!bytes) return standin_bad(SI_INVALID_VALUE, "0 bytes were asked for");
  if (memory_used(b.owner) + bytes > memory_limit()) return CU_E_OUT_OF_MEMORY;
  b.bytes = bytes;
  rc = whole <= SMALL ? small_new(&b, &at) : large_new(&b, whole, &at);
  if (rc) return rc;
  b.at = (cu_ptr)(uintptr_t)at | STANDIN_DEVICE_BIT;
  memset(at, 0xff, whole < EDGE ? whole : EDGE);
  if (whole > EDGE) memset(at + whole - EDGE, 0xff, EDGE);
  if (memory_blocks == memory_cap) {
    memory_cap = memory_cap ? memory_cap * 2 : 256;
    memory_block = realloc(memory_block, sizeof b * (size_t)memory_cap);
    if (!memory_block) abort();
  }
  i = memory_after(b.at);
  memmove(memory_block + i + 1, memory_block + i,
          sizeof b * (size_t)(memory_blocks++ - i));
  memory_block[i] = b;
  *out = b.at;
  return 0;
}

standin_block *standin_block_of(cu_ptr p) {
  int i = memory_after(p);
  if (!i) return NULL;
  return p <= memory_block[i - 1].at + memory_block[i - 1].bytes
             ? &memory_block[i - 1]
             : NULL;
}

int standin_range(struct cu_context *c, cu_ptr p, size_t bytes, bool queued,
                  const char *what) {
  const standin_block *b;
  if (!(p & STANDIN_DEVICE_BIT))
    return standin_bad(SI_INVALID_VALUE, "%s is no device address: %#llx", what,
                       (unsigned long long)p);
  b = standin_block_of(p);
  if (!b)
    return standin_bad(SI_INVALID_VALUE,
                       "%s points to memory that was freed or never was", what);
  if (queued && b->going)
    return standin_bad(SI_INVALID_VALUE, "%s is used after cuMemFreeAsync",
                       what);
  if (b->owner != c)
    return standin_bad(SI_INVALID_VALUE, "%s is memory of another context",
                       what);
  if (p + bytes > b->at + b->bytes)
    return standin_bad(SI_INVALID_VALUE,
                       "%s: %zu bytes reach past the end of the memory", what,
                       bytes);
  return 0;
}

/* The bytes between what was asked for and what comes next must be as made. */
static void memory_check_slack(const standin_block *b) {
  const unsigned char *end = standin_real(b->at + b->bytes);
  const unsigned char *guard =
      b->pages == SMALL_STEP
          ? (const unsigned char *)standin_real(b->at) + SMALL_STEP
          : (const unsigned char *)b->page + b->pages;
  for (; end < guard; end++)
    if (*end != 0xff) {
      standin_bad(0, "memory of %zu bytes was written past its end", b->bytes);
      return;
    }
}

int standin_memory_free(cu_ptr p) {
  standin_block *b = standin_block_of(p);
  if (!b || b->at != p)
    return standin_bad(SI_INVALID_VALUE, "%#llx is not allocated",
                       (unsigned long long)p);
  memory_check_slack(b);
  if (b->pages == SMALL_STEP)
    small_free(b->page);
  else
    memory_unmap(b->page, b->pages);
  memmove(b, b + 1,
          sizeof *b * (size_t)(--memory_blocks - (int)(b - memory_block)));
  return 0;
}

int standin_memory_live(struct cu_context *owner) {
  int i, n = 0;
  for (i = 0; i < memory_blocks; i++)
    if (memory_block[i].owner == owner) {
      n++;
      standin_bad(0, "memory of %zu bytes was not freed",
                  memory_block[i].bytes);
    }
  return n;
}

/* Blocks of device memory that are allocated, of all devices. */
STANDIN_API int standin_blocks(void) { return memory_blocks; }

STANDIN_API int cuMemAlloc_v2(cu_ptr *out, size_t bytes) {
  int rc;
  ENTER(cuMemAlloc_v2);
  rc = standin_unsafe("an allocation");
  return rc ? rc : memory_new(bytes, NULL, out);
}

/* Waits for the device, as the driver does. */
STANDIN_API int cuMemFree_v2(cu_ptr p) {
  struct cu_context *c;
  standin_block *b;
  int rc;
  ENTER(cuMemFree_v2);
  if (!p) return 0;
  rc = standin_unsafe("a free");
  if (!rc) rc = standin_current(&c);
  if (rc) return rc;
  b = standin_block_of(p);
  if (b && b->going)
    return standin_bad(SI_INVALID_VALUE, "freed after cuMemFreeAsync");
  rc = standin_drain_all(c);
  if (rc) return rc;
  return standin_memory_free(p);
}

/* -- Stream-ordered -------------------------------------------------------- */

struct cu_pool {
  standin_object o;
  unsigned access; /* devices that may use its memory beside its own */
};

bool standin_reaches(struct cu_context *c, cu_ptr p) {
  const standin_block *b = standin_block_of(p);
  if (!b || !b->pool || b->owner == c) return true;
  return b->pool->access >> c->device & 1;
}

STANDIN_API int cuMemPoolCreate(cu_pool *out, const cu_pool_props *props) {
  struct cu_context *c;
  int rc;
  ENTER(cuMemPoolCreate);
  rc = standin_current(&c);
  if (rc) return rc;
  if (props->type != CU_ALLOCATION_PINNED ||
      props->location.type != CU_LOCATION_DEVICE ||
      props->location.id != c->device)
    return standin_bad(SI_INVALID_VALUE, "the properties are of no device");
  *out = standin_object_new(SI_POOL, sizeof(struct cu_pool), c);
  return 0;
}

STANDIN_API int cuMemPoolDestroy(cu_pool pool) {
  ENTER(cuMemPoolDestroy);
  CHECK(pool, SI_POOL);
  standin_object_end(pool);
  return 0;
}

STANDIN_API int cuMemPoolSetAttribute(cu_pool pool, int attribute,
                                      void *value) {
  ENTER(cuMemPoolSetAttribute);
  CHECK(pool, SI_POOL);
  if (attribute != CU_POOL_RELEASE_THRESHOLD || !value)
    return standin_bad(SI_INVALID_VALUE, "attribute %d", attribute);
  return 0;
}

STANDIN_API int cuMemPoolSetAccess(cu_pool pool, const cu_access *list,
                                   size_t n) {
  size_t i;
  int can;
  ENTER(cuMemPoolSetAccess);
  if (!pool || pool->o.kind != SI_POOL || !pool->o.live) /* of any context */
    return standin_bad(SI_INVALID_HANDLE, "no pool that lives");
  for (i = 0; i < n; i++) {
    int id = list[i].location.id;
    if (list[i].location.type != CU_LOCATION_DEVICE || id < 0 ||
        id >= standin_device_count() ||
        (list[i].flags != CU_ACCESS_BOTH && list[i].flags))
      return standin_bad(SI_INVALID_VALUE, "access %zu names no device", i);
    can = standin_peers(id, pool->o.owner->device);
    if (!can) return SI_INVALID_DEVICE;
    pool->access &= ~(1u << id);
    if (list[i].flags) pool->access |= 1u << id;
  }
  return 0;
}

STANDIN_API int cuMemPoolTrimTo(cu_pool pool, size_t keep) {
  ENTER(cuMemPoolTrimTo);
  (void)keep;
  CHECK(pool, SI_POOL);
  return 0;
}

STANDIN_API int cuMemAllocFromPoolAsync(cu_ptr *out, size_t bytes, cu_pool pool,
                                        cu_stream stream) {
  int rc;
  ENTER(cuMemAllocFromPoolAsync);
  CHECK(pool, SI_POOL);
  CHECK(stream, SI_STREAM);
  rc = standin_not_capturing(stream, "an allocation");
  return rc ? rc : memory_new(bytes, pool, out);
}

STANDIN_API int cuMemFreeAsync(cu_ptr p, cu_stream stream) {
  standin_op *op;
  int rc;
  ENTER(cuMemFreeAsync);
  CHECK(stream, SI_STREAM);
  rc = standin_not_capturing(stream, "a free");
  if (!rc) rc = standin_range(stream->o.owner, p, 0, true, "the argument");
  if (rc) return rc;
  if (standin_block_of(p)->at != p)
    return standin_bad(SI_INVALID_VALUE, "not the start of an allocation");
  standin_block_of(p)->going = true;
  op = standin_op_new(SI_OP_FREE);
  op->to = p;
  return standin_queue(stream, op);
}

/* -- The host's pinned memory ---------------------------------------------- */

typedef struct memory_pin {
  struct memory_pin *next;
  char *at;
  size_t bytes;
} memory_pin;
static memory_pin *memory_pins;

bool standin_pinned(const void *p, size_t bytes) {
  const memory_pin *m;
  for (m = memory_pins; m; m = m->next)
    if ((const char *)p >= m->at &&
        (const char *)p + bytes <= m->at + m->bytes)
      return true;
  return false;
}

STANDIN_API int cuMemAllocHost_v2(void **out, size_t bytes) {
  struct cu_context *c;
  memory_pin *m;
  int rc;
  ENTER(cuMemAllocHost_v2);
  rc = standin_unsafe("an allocation of pinned memory");
  if (!rc) rc = standin_current(&c);
  if (rc) return rc;
  m = standin_new(sizeof *m);
  m->at = standin_new(bytes);
  m->bytes = bytes;
  m->next = memory_pins;
  memory_pins = m;
  *out = m->at;
  return 0;
}

STANDIN_API int cuMemFreeHost(void *p) {
  struct cu_context *c;
  memory_pin **m, *gone;
  int rc;
  ENTER(cuMemFreeHost);
  rc = standin_unsafe("a free of pinned memory");
  if (!rc) rc = standin_current(&c);
  if (!rc) rc = standin_drain_all(c);
  if (rc) return rc;
  for (m = &memory_pins; *m; m = &(*m)->next)
    if ((*m)->at == p) {
      gone = *m;
      *m = gone->next;
      free(gone->at);
      free(gone);
      return 0;
    }
  return standin_bad(SI_INVALID_VALUE, "%p is not pinned memory", p);
}

/* Pinned blocks that are allocated. */
STANDIN_API int standin_pins(void) {
  const memory_pin *m;
  int n = 0;
  for (m = memory_pins; m; m = m->next) n++;
  return n;
}
