/* Conversions between computing types and to and from narrow storage, by the
 * rules of tensor.h. */
#define T_LOOP(fn, O, A, expr)       \
  KERNEL(fn) {                       \
    mem_##O *o = o_;                 \
    const mem_##A *p1 = a_;          \
    UNUSED;                          \
    EACH {                           \
      const val_##A a = p1[i];       \
      o[i] = (val_##O)(expr);        \
    }                                \
  }
typedef int8_t val_i8;
typedef uint16_t val_u16;

/* Truncated, kept within [lo, hi], which `below` and `above` (the first value
 * that is too large, exact in the float type) stand for; NaN is 0. */
#define TRUNC_TO(I, lo, hi, below, above) \
  (a != a ? 0 : a <= (below) ? (lo) : a >= (above) ? (hi) : (I)a)
#define TO_I32 TRUNC_TO(int32_t, INT32_MIN, INT32_MAX, -0x1p31f, 0x1p31f)
#define TO_I64 TRUNC_TO(int64_t, INT64_MIN, INT64_MAX, -0x1p63f, 0x1p63f)
#define TO_I8 TRUNC_TO(int32_t, INT8_MIN, INT8_MAX, -128, 127)
#define TO_U8 TRUNC_TO(int32_t, 0, UINT8_MAX, 0, 255)

T_LOOP(f32_to_f64, f64, f32, a)
T_LOOP(f32_to_i32, i32, f32, TO_I32)
T_LOOP(f32_to_i64, i64, f32, TO_I64)
T_LOOP(f32_to_b8, b8, f32, a != 0)
T_LOOP(f64_to_f32, f32, f64, a)
T_LOOP(f64_to_i32, i32, f64, TO_I32)
T_LOOP(f64_to_i64, i64, f64, TO_I64)
T_LOOP(f64_to_b8, b8, f64, a != 0)
T_LOOP(i32_to_f32, f32, i32, a)
T_LOOP(i32_to_f64, f64, i32, a)
T_LOOP(i32_to_i64, i64, i32, a)
T_LOOP(i32_to_b8, b8, i32, a != 0)
T_LOOP(i64_to_f32, f32, i64, a)
T_LOOP(i64_to_f64, f64, i64, a)
T_LOOP(i64_to_i32, i32, i64, a)
T_LOOP(i64_to_b8, b8, i64, a != 0)
T_LOOP(b8_to_f32, f32, b8, a)
T_LOOP(b8_to_f64, f64, b8, a)
T_LOOP(b8_to_i32, i32, b8, a)
T_LOOP(b8_to_i64, i64, b8, a)
T_LOOP(f32_clip_i8, i32, f32, TO_I8)
T_LOOP(f32_clip_u8, i32, f32, TO_U8)
T_LOOP(f64_clip_i8, i32, f64, TO_I8)
T_LOOP(f64_clip_u8, i32, f64, TO_U8)

INLINE uint32_t float_bits(float f) {
  union { float f; uint32_t u; } x = {f};
  return x.u;
}
INLINE float bits_float(uint32_t u) {
  union { uint32_t u; float f; } x = {u};
  return x.f;
}

INLINE float bf16_widen(uint16_t h) { return bits_float((uint32_t)h << 16); }
INLINE uint16_t bf16_narrow(float f) { /* to even; NaN made quiet */
  uint32_t x = float_bits(f), r = (x + 0x7fff + (x >> 16 & 1)) >> 16;
  return (uint16_t)((x & 0x7fffffff) > 0x7f800000 ? x >> 16 | 0x40 : r);
}
T_LOOP(load_bf16, f32, u16, bf16_widen(a))
T_LOOP(store_bf16, u16, f32, bf16_narrow(a))
T_LOOP(round_bf16, f32, f32, bf16_widen(bf16_narrow(a)))
T_LOOP(load_i8, i32, i8, a)
T_LOOP(store_i8, i8, i32, a)
T_LOOP(round_i8, i32, i32, (int8_t)a)
T_LOOP(load_u8, i32, b8, a)
T_LOOP(store_u8, b8, i32, a)
T_LOOP(round_u8, i32, i32, (uint8_t)a)

#if defined(__AVX512F__) && defined(__F16C__)
#define HALF_STEP 16
#define HALF_LOAD(p) _mm512_cvtph_ps(_mm256_loadu_si256((const void *)(p)))
#define HALF_TURN(v) _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT)
#define HALF_STORE(p, h) _mm256_storeu_si256((void *)(p), h)
#define HALF_WIDEN(h) _mm512_cvtph_ps(h)
#define FLOAT_LOAD(p) _mm512_loadu_ps((const void *)(p))
#define FLOAT_STORE(p, v) _mm512_storeu_ps((void *)(p), v)
#elif defined(__F16C__)
#define HALF_STEP 8
#define HALF_LOAD(p) _mm256_cvtph_ps(_mm_loadu_si128((const void *)(p)))
#define HALF_TURN(v) _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT)
#define HALF_STORE(p, h) _mm_storeu_si128((void *)(p), h)
#define HALF_WIDEN(h) _mm256_cvtph_ps(h)
#define FLOAT_LOAD(p) _mm256_loadu_ps((const void *)(p))
#define FLOAT_STORE(p, v) _mm256_storeu_ps((void *)(p), v)
#endif
#ifdef HALF_STEP
KERNEL(load_f16) {
  mem_f32 *o = o_;
  const mem_u16 *a = a_;
  UNUSED;
  for (int64_t i = 0; i < n; i += HALF_STEP)
    FLOAT_STORE(o + i, HALF_LOAD(a + i));
}
KERNEL(store_f16) {
  mem_u16 *o = o_;
  const mem_f32 *a = a_;
  UNUSED;
  for (int64_t i = 0; i < n; i += HALF_STEP)
    HALF_STORE(o + i, HALF_TURN(FLOAT_LOAD(a + i)));
}
KERNEL(round_f16) {
  mem_f32 *o = o_;
  const mem_f32 *a = a_;
  UNUSED;
  for (int64_t i = 0; i < n; i += HALF_STEP)
    FLOAT_STORE(o + i, HALF_WIDEN(HALF_TURN(FLOAT_LOAD(a + i))));
}
#else
/* Exponents are rebiased by a multiplication, which also makes subnormal
 * halves normal. */
INLINE float half_widen(uint16_t h) {
  uint32_t sign = (uint32_t)(h & 0x8000) << 16;
  uint32_t m = (uint32_t)(h & 0x7fff) << 13;
  uint32_t x = float_bits(bits_float(m) * 0x1p112f);
  return bits_float(sign | (m >= 0xf800000 ? m | 0x7f800000 : x));
}
/* Below 2^-14 the sum with 1/2, whose last bit is 2^-24, does the rounding. */
INLINE uint16_t half_narrow(float f) {
  uint32_t b = float_bits(f), sign = b >> 16 & 0x8000, x = b & 0x7fffffff;
  uint32_t tiny = float_bits(bits_float(x) + 0.5f) - 0x3f000000;
  uint32_t normal = (x + 0xfff + (x >> 13 & 1) - 0x38000000) >> 13;
  uint32_t h = x < 0x38800000 ? tiny : x >= 0x477ff000 ? 0x7c00 : normal;
  return (uint16_t)(sign | (x > 0x7f800000 ? 0x7e00 | (x >> 13 & 0x1ff) : h));
}
T_LOOP(load_f16, f32, u16, half_widen(a))
T_LOOP(store_f16, u16, f32, half_narrow(a))
T_LOOP(round_f16, f32, f32, half_widen(half_narrow(a)))
#endif

/* Copies, and fills from one element. */
#define COPY(bits, U)                          \
  KERNEL(copy_##bits) {                        \
    mem_##U *o = o_;                           \
    const mem_##U *a = a_;                     \
    UNUSED;                                    \
    EACH o[i] = a[i];                          \
  }                                            \
  KERNEL(fill_##bits) {                        \
    mem_##U *o = o_;                           \
    const mem_##U *a = a_, v = *a;             \
    UNUSED;                                    \
    EACH o[i] = v;                             \
  }
COPY(8, b8)
COPY(16, u16)
COPY(32, i32)
COPY(64, i64)

#define CONVERT_TABLE                                                       \
  .cast =                                                                   \
      {[LIMN_ET_F32] = {NULL, f32_to_f64, f32_to_i32, f32_to_i64,           \
                        f32_to_b8},                                       \
       [LIMN_ET_F64] = {f64_to_f32, NULL, f64_to_i32, f64_to_i64,           \
                        f64_to_b8},                                       \
       [LIMN_ET_I32] = {i32_to_f32, i32_to_f64, NULL, i32_to_i64,           \
                        i32_to_b8},                                       \
       [LIMN_ET_I64] = {i64_to_f32, i64_to_f64, i64_to_i32, NULL,           \
                        i64_to_b8},                                       \
       [LIMN_ET_BOOL] = {b8_to_f32, b8_to_f64, b8_to_i32, b8_to_i64, \
                         NULL}},                                            \
  .clip = {{f32_clip_i8, f32_clip_u8}, {f64_clip_i8, f64_clip_u8}},         \
  .load = {[LIMN_F16] = load_f16, [LIMN_BF16] = load_bf16,                  \
           [LIMN_I8] = load_i8, [LIMN_U8] = load_u8},                       \
  .store = {[LIMN_F16] = store_f16, [LIMN_BF16] = store_bf16,               \
            [LIMN_I8] = store_i8, [LIMN_U8] = store_u8},                    \
  .round = {[LIMN_F16] = round_f16, [LIMN_BF16] = round_bf16,               \
            [LIMN_I8] = round_i8, [LIMN_U8] = round_u8},                    \
  .copy = {{copy_8, fill_8}, {copy_16, fill_16}, {copy_32, fill_32},        \
           {copy_64, fill_64}}
