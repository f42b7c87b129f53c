/* A hash map from byte strings to pointers: open addressing, linear probing.
 *
 * An entry is free when its key is NULL. Removal moves later entries of the
 * same run back (Knuth, vol. 3, algorithm 6.4R), so there are no tombstones. */
#include "base.h"

static uint64_t map_mix(uint64_t h) {
  h ^= h >> 32;
  h *= 0x9e3779b97f4a7c15u; /* 2^64 / golden ratio */
  return h ^ h >> 29;
}

/* Eight bytes at a time, each folded in by a multiplication. */
uint64_t limn_hash(const void *p, size_t n) {
  const unsigned char *s = p;
  uint64_t h = map_mix(n + 1), w;
  for (; n >= 8; s += 8, n -= 8) {
    memcpy(&w, s, 8);
    h = map_mix(h ^ w) * 0xd6e8feb86659fd93u;
  }
  w = 0;
  if (n) memcpy(&w, s, n);
  return map_mix(map_mix(h ^ w));
}

/* The entry of the key, or the free one where it belongs; cap > n. */
static limn_map_entry *map_find(const limn_map *m, uint64_t hash,
                                const void *key, size_t n) {
  uint32_t i = (uint32_t)hash & (m->cap - 1);
  for (;; i = (i + 1) & (m->cap - 1)) {
    limn_map_entry *e = &m->e[i];
    if (!e->key) return e;
    if (e->hash == hash && e->klen == n && (!n || !memcmp(e->key, key, n)))
      return e;
  }
}

void *limn_map_get(const limn_map *m, const void *key, size_t n) {
  return m->n ? map_find(m, limn_hash(key, n), key, n)->value : NULL;
}

/* Keeps at least a quarter of the entries free. */
static int map_room(limn_context *c, limn_map *m) {
  limn_map bigger = {NULL, m->cap ? m->cap * 2 : 8, m->n};
  uint32_t i;
  if (m->cap && m->n + 1 <= m->cap / 4 * 3) return 0;
  if (bigger.cap < m->cap)
    return limn_fail(c, LIMN_ESIZE, "a map grows too large");
  bigger.e = limn_alloc(c, (size_t)bigger.cap * sizeof *bigger.e);
  if (!bigger.e) return LIMN_EMEM;
  for (i = 0; i < m->cap; i++) {
    limn_map_entry *e = &m->e[i];
    if (e->key) *map_find(&bigger, e->hash, e->key, e->klen) = *e;
  }
  limn_free(c, m->e, (size_t)m->cap * sizeof *m->e);
  *m = bigger;
  return 0;
}

int limn_map_put(limn_context *c, limn_map *m, const void *key, size_t n,
                 void *value) {
  uint64_t hash = limn_hash(key, n);
  limn_map_entry *e = m->n ? map_find(m, hash, key, n) : NULL;
  void *copy;
  if (e && e->key) {
    e->value = value;
    return 0;
  }
  if (n > UINT32_MAX) return limn_fail(c, LIMN_ESIZE, "a key is too long");
  LIMN_TRY(map_room(c, m));
  copy = limn_alloc(c, n);
  if (!copy) return LIMN_EMEM;
  if (n) memcpy(copy, key, n);
  e = map_find(m, hash, key, n);
  *e = (limn_map_entry){hash, copy, (uint32_t)n, value};
  m->n++;
  return 0;
}

void *limn_map_remove(limn_context *c, limn_map *m, const void *key,
                      size_t n) {
  limn_map_entry *e = m->n ? map_find(m, limn_hash(key, n), key, n) : NULL;
  uint32_t mask = m->cap - 1, hole, i, home;
  void *value;
  if (!e || !e->key) return NULL;
  value = e->value;
  limn_free(c, e->key, e->klen);
  hole = (uint32_t)(e - m->e);
  for (i = (hole + 1) & mask; m->e[i].key; i = (i + 1) & mask) {
    /* An entry may move back to the hole unless its home lies behind it. */
    home = (uint32_t)m->e[i].hash & mask;
    if (((i - home) & mask) < ((i - hole) & mask)) continue;
    m->e[hole] = m->e[i];
    hole = i;
  }
  memset(&m->e[hole], 0, sizeof m->e[hole]);
  m->n--;
  return value;
}

void limn_map_free(limn_context *c, limn_map *m) {
  uint32_t i;
  for (i = 0; i < m->cap; i++) limn_free(c, m->e[i].key, m->e[i].klen);
  limn_free(c, m->e, (size_t)m->cap * sizeof *m->e);
  memset(m, 0, sizeof *m);
}
