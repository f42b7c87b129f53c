/* Compiled CUDA programs on the disk: one file each, named by the hash of all
 * that it was made from. Files are written under another name and then
 * renamed, so that readers see whole ones only; one that is damaged is
 * removed. Nothing here fails but for want of memory: without a cache all is
 * compiled. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dev_cuda.h"

enum { CACHE_MOST = 64 << 20 }; /* bytes of one program */

typedef struct {
  char magic[8];
  cuda_key key;
  uint64_t size, check; /* of the data that follow */
} cache_header;

static const char cache_magic[8] = {'l', 'i', 'm', 'n', 'c', 'u', '1', '\n'};

static bool cache_path(limn_context *c, const cuda_key *key, char *path,
                       size_t n) {
  int len = snprintf(path, n, "%s/%016llx%016llx.cubin", c->flags.cache,
                     (unsigned long long)key->w[0],
                     (unsigned long long)key->w[1]);
  return c->flags.cache[0] && len > 0 && (size_t)len < n;
}

static bool cache_read(int fd, void *to, size_t n) {
  char *p = to;
  while (n) {
    ssize_t k = read(fd, p, n);
    if (k < 0 && errno == EINTR) continue;
    if (k <= 0) return false;
    p += k, n -= (size_t)k;
  }
  return true;
}

static bool cache_write(int fd, const void *from, size_t n) {
  const char *p = from;
  while (n) {
    ssize_t k = write(fd, p, n);
    if (k < 0 && errno == EINTR) continue;
    if (k <= 0) return false;
    p += k, n -= (size_t)k;
  }
  return true;
}

static bool cache_header_right(const cache_header *h, const cuda_key *key) {
  return !memcmp(h->magic, cache_magic, sizeof h->magic) &&
         !memcmp(&h->key, key, sizeof *key) && h->size > 0 &&
         h->size <= CACHE_MOST;
}

int cuda_cache_get(limn_context *c, const cuda_key *key, char **data,
                   size_t *size) {
  char path[700], *p = NULL;
  cache_header h;
  bool whole;
  int fd;
  *data = NULL;
  *size = 0;
  if (!cache_path(c, key, path, sizeof path)) return 0;
  fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  whole = cache_read(fd, &h, sizeof h) && cache_header_right(&h, key);
  if (whole && !(p = limn_alloc(c, (size_t)h.size))) {
    close(fd);
    return LIMN_EMEM;
  }
  whole = whole && cache_read(fd, p, (size_t)h.size) &&
          limn_hash(p, (size_t)h.size) == h.check;
  close(fd);
  if (whole) {
    *data = p;
    *size = (size_t)h.size;
    return 0;
  }
  if (p) limn_free(c, p, (size_t)h.size);
  unlink(path);
  return 0;
}

void cuda_cache_drop(limn_context *c, const cuda_key *key) {
  char path[700];
  if (cache_path(c, key, path, sizeof path)) unlink(path);
}

/* The folder and those above it. */
static void cache_folder(const char *folder) {
  char path[600];
  char *p;
  snprintf(path, sizeof path, "%s", folder);
  for (p = path + 1; *p; p++) {
    if (*p != '/') continue;
    *p = 0;
    mkdir(path, 0777);
    *p = '/';
  }
  mkdir(path, 0777);
}

/* A new file beside `path`, whose name goes to tmp. */
static int cache_create(limn_context *c, const char *path, char *tmp,
                        size_t n) {
  int fd = -1, i;
  for (i = 0; i < 8 && fd < 0; i++) {
    snprintf(tmp, n, "%s.%ld.%d.tmp", path, (long)getpid(), i);
    fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0 && errno == ENOENT) cache_folder(c->flags.cache);
    else if (fd < 0 && errno != EEXIST) break;
  }
  return fd;
}

void cuda_cache_put(limn_context *c, const cuda_key *key, const char *data,
                    size_t size) {
  cache_header h;
  char path[700], tmp[760];
  bool done;
  int fd;
  if (size > CACHE_MOST || !cache_path(c, key, path, sizeof path)) return;
  memset(&h, 0, sizeof h);
  memcpy(h.magic, cache_magic, sizeof h.magic);
  h.key = *key;
  h.size = size;
  h.check = limn_hash(data, size);
  fd = cache_create(c, path, tmp, sizeof tmp);
  if (fd < 0) return;
  done = cache_write(fd, &h, sizeof h) && cache_write(fd, data, size);
  done = close(fd) == 0 && done;
  if (!done || rename(tmp, path) < 0) unlink(tmp);
}
