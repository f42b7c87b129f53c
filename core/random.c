/* Random words: Philox4x32-10, a function of seed, draw and index alone. */
#include "tensor.h"

/* Ten rounds; constants are those of the paper named in tensor.h. */
void limn_philox(const uint32_t key[2], const uint32_t ctr[4],
                 uint32_t out[4]) {
  uint32_t k0 = key[0], k1 = key[1];
  uint32_t a = ctr[0], b = ctr[1], c = ctr[2], d = ctr[3];
  int round;
  for (round = 0; round < 10; round++) {
    uint64_t p = (uint64_t)0xD2511F53u * a, q = (uint64_t)0xCD9E8D57u * c;
    a = (uint32_t)(q >> 32) ^ b ^ k0;
    c = (uint32_t)(p >> 32) ^ d ^ k1;
    b = (uint32_t)q;
    d = (uint32_t)p;
    k0 += 0x9E3779B9u; /* golden ratio */
    k1 += 0xBB67AE85u; /* sqrt(3) - 1 */
  }
  out[0] = a;
  out[1] = b;
  out[2] = c;
  out[3] = d;
}

/* Word i is word i % 4 of the block with counter (i / 4, draw). */
void limn_random_words(uint64_t seed, uint64_t draw, uint64_t first,
                       uint64_t n, uint32_t *out) {
  const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
  uint32_t ctr[4] = {0, 0, (uint32_t)draw, (uint32_t)(draw >> 32)};
  while (n) {
    uint32_t block[4];
    uint64_t skip = first % 4, take = LIMN_MIN(4 - skip, n);
    ctr[0] = (uint32_t)(first / 4);
    ctr[1] = (uint32_t)(first / 4 >> 32);
    limn_philox(key, ctr, block);
    memcpy(out, block + skip, (size_t)take * sizeof *out);
    out += take;
    first += take;
    n -= take;
  }
}

uint64_t limn_random_key(uint64_t seed, uint64_t step, uint64_t draw) {
  uint32_t w[2];
  limn_random_words(seed, draw, 4 * step, 2, w);
  return w[0] | (uint64_t)w[1] << 32;
}

void limn_seed_set(limn_context *c, uint64_t seed) {
  c->seed = seed;
  c->draws = 0;
}
