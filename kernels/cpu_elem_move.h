/* Moving elements of 1, 2, 4 or 8 bytes between strided and dense memory. */
#include <string.h>

/* 16 x 16 in registers: for each bit of the index, swap the off-diagonal
 * quarters (Eklundh 1972). */
#define TURN_PLAIN(bits, U)                                             \
  static void turn_block_##bits(mem_##U *d, int64_t ds, const mem_##U *s, \
                                int64_t ss) {                           \
    for (int i = 0; i < 16; i++)                                        \
      for (int j = 0; j < 16; j++) d[i * ds + j] = s[j * ss + i];       \
  }
TURN_PLAIN(8, b8)
TURN_PLAIN(16, u16)
TURN_PLAIN(64, i64)

typedef uint32_t vec16 __attribute__((vector_size(64)));
typedef uint32_t uvec16 __attribute__((vector_size(64), aligned(4), may_alias));
#define TURN_LOW(s, e) ((e) & (s) ? 16 + (e) - (s) : (e))
#define TURN_HIGH(s, e) ((e) & (s) ? 16 + (e) : (e) + (s))
#define TURN_4(f, s, e) f(s, e), f(s, e + 1), f(s, e + 2), f(s, e + 3)
#define TURN_16(f, s) \
  TURN_4(f, s, 0), TURN_4(f, s, 4), TURN_4(f, s, 8), TURN_4(f, s, 12)
#define TURN_SWAP(s)                                                \
  TURN_UNROLL for (int i = 0; i < 16; i++) if (!(i & (s))) {        \
    vec16 x = r[i], y = r[i + (s)];                                 \
    r[i] = __builtin_shufflevector(x, y, TURN_16(TURN_LOW, s));     \
    r[i + (s)] = __builtin_shufflevector(x, y, TURN_16(TURN_HIGH, s)); \
  }
#if defined(__clang__)
#define TURN_UNROLL
#else
#define TURN_UNROLL _Pragma("GCC unroll 16")
#endif
#ifdef __AVX512F__
static void turn_block_32(mem_u32 *d, int64_t ds, const mem_u32 *s,
                          int64_t ss) {
  vec16 r[16];
  TURN_UNROLL for (int i = 0; i < 16; i++) r[i] = *(const uvec16 *)(s + i * ss);
  TURN_SWAP(8)
  TURN_SWAP(4)
  TURN_SWAP(2)
  TURN_SWAP(1)
  TURN_UNROLL for (int i = 0; i < 16; i++) *(uvec16 *)(d + i * ds) = r[i];
}
#else
TURN_PLAIN(32, u32)
#endif

#define TURN(bits, U)                                                       \
  static void turn_##bits(void *dst, int64_t ds, const void *src,           \
                          int64_t ss, int m, int64_t n) {                   \
    mem_##U *d = dst;                                                       \
    const mem_##U *s = src;                                                 \
    int64_t i, j = 0;                                                       \
    if (m == 16)                                                            \
      for (; j + 16 <= n; j += 16, s += 16 * ss, d += 16)                   \
        turn_block_##bits(d, ds, s, ss);                                    \
    for (; j < n; j++, s += ss, d++)                                        \
      for (i = 0; i < m; i++) d[i * ds] = s[i];                             \
  }
/* Short runs: whole vectors, the last of which may overlap the one before. */
#define RUN(bits, U)                                                        \
  static inline void run_##bits(mem_##U *d, const mem_##U *s, int64_t n) {  \
    int64_t j = 0;                                                          \
    if (n < 8) {                                                            \
      for (; j < n; j++) d[j] = s[j];                                       \
      return;                                                               \
    }                                                                       \
    for (; j + 8 <= n; j += 8) memcpy(d + j, s + j, 8 * sizeof *d);         \
    if (j < n) memcpy(d + n - 8, s + n - 8, 8 * sizeof *d);                 \
  }
/* One element n times, in the same way. */
#define SPREAD(bits, U)                                                     \
  static inline void spread_##bits(mem_##U *d, mem_##U v, int64_t n) {        \
    mem_##U some[8] = {v, v, v, v, v, v, v, v};                             \
    int64_t j = 0;                                                          \
    if (n < 8) {                                                            \
      for (; j < n; j++) d[j] = v;                                          \
      return;                                                               \
    }                                                                       \
    for (; j + 8 <= n; j += 8) memcpy(d + j, some, sizeof some);            \
    if (j < n) memcpy(d + n - 8, some, sizeof some);                        \
  }
/* The longer stride outside, so that reads stay in few cache lines. */
#define GATHER(bits, U)                                                     \
  static void gather_##bits(void *dst, const void *src, int64_t m,          \
                            int64_t rs, int64_t n, int64_t cs) {            \
    mem_##U *d = dst;                                                       \
    const mem_##U *s = src;                                                 \
    int64_t i, j;                                                           \
    for (; rs == 1 && cs != 1 && n >= 16 && m >= 16; m -= 16) {             \
      turn_##bits(d, n, s, cs, 16, n);                                      \
      d += 16 * n;                                                          \
      s += 16;                                                              \
    }                                                                       \
    if (n > 1 && m > 1 && (rs < 0 ? -rs : rs) < (cs < 0 ? -cs : cs) && rs) { \
      for (j = 0; j < n; j++, s += cs)                                      \
        for (i = 0; i < m; i++) d[i * n + j] = s[i * rs];                   \
      return;                                                               \
    }                                                                       \
    for (i = 0; i < m; i++, d += n, s += rs) {                              \
      if (cs == 1) {                                                        \
        run_##bits(d, s, n);                                                \
      } else if (cs == 2) { /* vectorised for a known stride */             \
        for (j = 0; j < n; j++) d[j] = s[2 * j];                            \
      } else if (!cs) {                                                     \
        spread_##bits(d, *s, n);                                              \
      } else {                                                              \
        for (j = 0; j < n; j++) d[j] = s[j * cs];                           \
      }                                                                     \
    }                                                                       \
  }

TURN(8, b8)
TURN(16, u16)
TURN(32, u32)
TURN(64, i64)
RUN(8, b8)
RUN(16, u16)
RUN(32, u32)
RUN(64, i64)
SPREAD(8, b8)
SPREAD(16, u16)
SPREAD(32, u32)
SPREAD(64, i64)
GATHER(8, b8)
GATHER(16, u16)
GATHER(32, u32)
GATHER(64, i64)

#define MOVE_TABLE                                             \
  .gather = {gather_8, gather_16, gather_32, gather_64},       \
  .turn = {turn_8, turn_16, turn_32, turn_64}
