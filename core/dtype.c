/* Dtypes: names, promotion, and the conversion of single elements and rows. */
#include "tensor.h"

static const struct {
  const char *name, *brief;
  int size, category;
} dtype_table[LIMN_NDTYPE] = {
    [LIMN_F64] = {"float64", "f64", 8, 2},
    [LIMN_F32] = {"float32", "f32", 4, 2},
    [LIMN_F16] = {"float16", "f16", 2, 2},
    [LIMN_BF16] = {"bfloat16", "bf16", 2, 2},
    [LIMN_I64] = {"int64", "i64", 8, 1},
    [LIMN_I32] = {"int32", "i32", 4, 1},
    [LIMN_I8] = {"int8", "i8", 1, 1},
    [LIMN_U8] = {"uint8", "u8", 1, 1},
    [LIMN_BOOL] = {"bool", "bool", 1, 0},
};

static bool dtype_ok(int dtype) {
  return dtype >= 0 && dtype < LIMN_NDTYPE;
}

int limn_dtype_size(int dtype) {
  return dtype_ok(dtype) ? dtype_table[dtype].size : 0;
}

const char *limn_dtype_name(int dtype) {
  return dtype_ok(dtype) ? dtype_table[dtype].name : "?";
}

const char *limn_dtype_short(int dtype) {
  return dtype_ok(dtype) ? dtype_table[dtype].brief : "?";
}

int limn_dtype_find(const char *name) {
  int i;
  for (i = 0; i < LIMN_NDTYPE; i++)
    if (!strcmp(name, dtype_table[i].name) ||
        !strcmp(name, dtype_table[i].brief))
      return i;
  return -1;
}

bool limn_dtype_float(int dtype) {
  return limn_dtype_category(dtype) == 2;
}

bool limn_dtype_half(int dtype) {
  return dtype == LIMN_F16 || dtype == LIMN_BF16;
}

bool limn_dtype_int(int dtype) {
  return limn_dtype_category(dtype) == 1;
}

bool limn_dtype_holds(int dtype, int64_t v) {
  uint8_t item[8];
  if (dtype == LIMN_I64) return true;
  limn_store_int(dtype, item, v);
  return limn_load_int(dtype, item) == v;
}

int limn_dtype_category(int dtype) {
  return dtype_ok(dtype) ? dtype_table[dtype].category : -1;
}

/* The higher category wins; within one the wider type, and where two types of
 * one width differ, the next that holds both: float16 with bfloat16 is
 * float32. There is no int16, so uint8 with int8 is int32. */
int limn_dtype_promote(int a, int b) {
  int ca = limn_dtype_category(a), cb = limn_dtype_category(b);
  int sa = limn_dtype_size(a), sb = limn_dtype_size(b);
  if (a == b) return a;
  if (ca != cb) return ca > cb ? a : b;
  if (sa != sb) return sa > sb ? a : b;
  return ca == 2 ? LIMN_F32 : LIMN_I32;
}

int limn_dtype_compute(int dtype) {
  switch (dtype) {
    case LIMN_F16: case LIMN_BF16: return LIMN_F32;
    case LIMN_I8: case LIMN_U8: return LIMN_I32;
    default: return dtype;
  }
}

static uint32_t dtype_bits(float f) {
  uint32_t x;
  memcpy(&x, &f, sizeof x);
  return x;
}

static float dtype_float(uint32_t x) {
  float f;
  memcpy(&f, &x, sizeof f);
  return f;
}

float limn_half_to_float(uint16_t h) {
  uint32_t sign = (uint32_t)(h & 0x8000) << 16, exp = h >> 10 & 31;
  uint32_t frac = h & 0x3ff;
  float f;
  if (exp == 31) return dtype_float(sign | 0x7f800000 | frac << 13);
  if (exp) return dtype_float(sign | (exp + 112) << 23 | frac << 13);
  f = (float)frac * 0x1p-24f; /* zero or subnormal: exact */
  return sign ? -f : f;
}

uint16_t limn_float_to_half(float f) {
  uint32_t x = dtype_bits(f), sign = x >> 16 & 0x8000, shift, h, rest;
  x &= 0x7fffffff;
  if (x > 0x7f800000) /* NaN: quiet, with what fits of its payload */
    return (uint16_t)(sign | 0x7e00 | (x >> 13 & 0x1ff));
  if (x >= 0x477ff000) return (uint16_t)(sign | 0x7c00); /* from 65520 on */
  if (x >= 0x38800000) { /* normal, from 2^-14 on: round, rebias */
    x += 0xfff + (x >> 13 & 1);
    return (uint16_t)(sign | (x - 0x38000000) >> 13);
  }
  if (x < 0x33000000) return (uint16_t)sign; /* below 2^-25 */
  shift = 126 - (x >> 23); /* 14..24: the result counts in 2^-24 */
  x = (x & 0x7fffff) | 0x800000;
  h = x >> shift;
  rest = x & ((1u << shift) - 1);
  h += rest > 1u << (shift - 1) || (rest == 1u << (shift - 1) && (h & 1));
  return (uint16_t)(sign | h);
}

float limn_bf16_to_float(uint16_t h) {
  return dtype_float((uint32_t)h << 16);
}

uint16_t limn_float_to_bf16(float f) {
  uint32_t x = dtype_bits(f);
  if ((x & 0x7fffffff) > 0x7f800000) return (uint16_t)(x >> 16 | 0x40);
  return (uint16_t)((x + 0x7fff + (x >> 16 & 1)) >> 16);
}

/* Truncates; what lies outside [lo, hi] becomes lo or hi, NaN 0. The double
 * of INT64_MAX is 2^63, so >= is the exact test there too. */
static int64_t dtype_trunc(double v, int64_t lo, int64_t hi) {
  if (v != v) return 0;
  if (v <= (double)lo) return lo;
  if (v >= (double)hi) return hi;
  return (int64_t)v;
}

/* Loops over elements of type T; x is the element. Memory of a host may be
 * unaligned, hence memcpy, which compiles to a plain load or store. */
#define DTYPE_LOAD(tag, T, value)                        \
  case tag:                                              \
    for (i = 0; i < n; i++, s += stride) {               \
      T x;                                               \
      memcpy(&x, s, sizeof x);                           \
      out[i] = value;                                    \
    }                                                    \
    break;
#define DTYPE_STORE(tag, T, value)                       \
  case tag:                                              \
    for (i = 0; i < n; i++, d += stride) {               \
      T x = (T)(value);                                  \
      memcpy(d, &x, sizeof x);                           \
    }                                                    \
    break;

void limn_load_reals(int dtype, const void *p, int64_t stride, int64_t n,
                     double *out) {
  const char *s = p;
  int64_t i;
  switch (dtype) {
    DTYPE_LOAD(LIMN_F64, double, x)
    DTYPE_LOAD(LIMN_F32, float, (double)x)
    DTYPE_LOAD(LIMN_F16, uint16_t, (double)limn_half_to_float(x))
    DTYPE_LOAD(LIMN_BF16, uint16_t, (double)limn_bf16_to_float(x))
    DTYPE_LOAD(LIMN_I64, int64_t, (double)x)
    DTYPE_LOAD(LIMN_I32, int32_t, x)
    DTYPE_LOAD(LIMN_I8, int8_t, x)
    DTYPE_LOAD(LIMN_U8, uint8_t, x)
    DTYPE_LOAD(LIMN_BOOL, uint8_t, x != 0)
  }
}

#define DTYPE_TO_INT(v) dtype_trunc(v, INT64_MIN, INT64_MAX)

void limn_load_ints(int dtype, const void *p, int64_t stride, int64_t n,
                    int64_t *out) {
  const char *s = p;
  int64_t i;
  switch (dtype) {
    DTYPE_LOAD(LIMN_F64, double, DTYPE_TO_INT(x))
    DTYPE_LOAD(LIMN_F32, float, DTYPE_TO_INT((double)x))
    DTYPE_LOAD(LIMN_F16, uint16_t, DTYPE_TO_INT((double)limn_half_to_float(x)))
    DTYPE_LOAD(LIMN_BF16, uint16_t,
               DTYPE_TO_INT((double)limn_bf16_to_float(x)))
    DTYPE_LOAD(LIMN_I64, int64_t, x)
    DTYPE_LOAD(LIMN_I32, int32_t, x)
    DTYPE_LOAD(LIMN_I8, int8_t, x)
    DTYPE_LOAD(LIMN_U8, uint8_t, x)
    DTYPE_LOAD(LIMN_BOOL, uint8_t, x != 0)
  }
}

/* float64 goes to the halves through float32, the type they compute in. */
void limn_store_reals(int dtype, void *p, int64_t stride, int64_t n,
                      const double *v) {
  char *d = p;
  int64_t i;
  switch (dtype) {
    DTYPE_STORE(LIMN_F64, double, v[i])
    DTYPE_STORE(LIMN_F32, float, v[i])
    DTYPE_STORE(LIMN_F16, uint16_t, limn_float_to_half((float)v[i]))
    DTYPE_STORE(LIMN_BF16, uint16_t, limn_float_to_bf16((float)v[i]))
    DTYPE_STORE(LIMN_I64, int64_t, dtype_trunc(v[i], INT64_MIN, INT64_MAX))
    DTYPE_STORE(LIMN_I32, int32_t, dtype_trunc(v[i], INT32_MIN, INT32_MAX))
    DTYPE_STORE(LIMN_I8, int8_t, dtype_trunc(v[i], INT8_MIN, INT8_MAX))
    DTYPE_STORE(LIMN_U8, uint8_t, dtype_trunc(v[i], 0, UINT8_MAX))
    DTYPE_STORE(LIMN_BOOL, uint8_t, v[i] != 0)
  }
}

/* int64 to float32 rounds once: never through double. */
void limn_store_ints(int dtype, void *p, int64_t stride, int64_t n,
                     const int64_t *v) {
  char *d = p;
  int64_t i;
  switch (dtype) {
    DTYPE_STORE(LIMN_F64, double, v[i])
    DTYPE_STORE(LIMN_F32, float, v[i])
    DTYPE_STORE(LIMN_F16, uint16_t, limn_float_to_half((float)v[i]))
    DTYPE_STORE(LIMN_BF16, uint16_t, limn_float_to_bf16((float)v[i]))
    DTYPE_STORE(LIMN_I64, int64_t, v[i])
    DTYPE_STORE(LIMN_I32, int32_t, v[i])
    DTYPE_STORE(LIMN_I8, int8_t, v[i])
    DTYPE_STORE(LIMN_U8, uint8_t, v[i])
    DTYPE_STORE(LIMN_BOOL, uint8_t, v[i] != 0)
  }
}

double limn_load_real(int dtype, const void *p) {
  double v = 0;
  limn_load_reals(dtype, p, 0, 1, &v);
  return v;
}

int64_t limn_load_int(int dtype, const void *p) {
  int64_t v = 0;
  limn_load_ints(dtype, p, 0, 1, &v);
  return v;
}

void limn_store_real(int dtype, void *p, double v) {
  limn_store_reals(dtype, p, 0, 1, &v);
}

void limn_store_int(int dtype, void *p, int64_t v) {
  limn_store_ints(dtype, p, 0, 1, &v);
}
