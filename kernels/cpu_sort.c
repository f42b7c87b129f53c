/* argsort on the CPU: stable, by unsigned keys that order as the elements do.
 *
 * Rules: 1. NaN is the largest and all NaN are equal; -0 equals 0. 2. What is
 * equal keeps its order, also when descending. 3. Short lines by insertion,
 * others by the digits of their keys from the lowest (radix exchange with
 * counting: Knuth, TAOCP 3, 5.2.5), digits that are all equal left out. */
#include "cpu_kernels.h"

enum { SHORT = 48, DIGITS = 8, VALUES = 256, WORK = 4096 };

typedef struct {
  uint64_t key;
  int64_t at; /* 0-based position in the line */
} sort_item;

/* Sign and magnitude as one rising number. */
static uint64_t sort_real(double v) {
  uint64_t bits;
  if (v != v) return UINT64_MAX;
  v += 0.0; /* -0 becomes 0 */
  memcpy(&bits, &v, sizeof bits);
  return bits >> 63 ? ~bits : bits | (uint64_t)1 << 63;
}

static uint64_t sort_float(float v) {
  uint32_t bits;
  if (v != v) return UINT32_MAX;
  v += 0.0f;
  memcpy(&bits, &v, sizeof bits);
  return bits >> 31 ? ~bits : bits | (uint32_t)1 << 31;
}

static uint64_t sort_key(int dtype, const void *p) {
  uint16_t h;
  switch (dtype) {
    case LIMN_F64: return sort_real(*(const double *)p);
    case LIMN_F32: return sort_float(*(const float *)p);
    case LIMN_F16:
      memcpy(&h, p, sizeof h);
      return sort_float(limn_half_to_float(h));
    case LIMN_BF16:
      memcpy(&h, p, sizeof h);
      return sort_float(limn_bf16_to_float(h));
    case LIMN_BOOL: return *(const uint8_t *)p != 0;
    default:
      return (uint64_t)limn_load_int(dtype, p) ^ (uint64_t)1 << 63;
  }
}

static void sort_short(sort_item *v, int64_t n) {
  int64_t i, j;
  for (i = 1; i < n; i++) {
    sort_item x = v[i];
    for (j = i; j > 0 && v[j - 1].key > x.key; j--) v[j] = v[j - 1];
    v[j] = x;
  }
}

/* Returns v or other, whichever holds the result. */
static sort_item *sort_long(sort_item *v, sort_item *other, int64_t n) {
  int64_t count[DIGITS][VALUES] = {{0}}, i, sum, some;
  int d, k;
  for (i = 0; i < n; i++)
    for (d = 0; d < DIGITS; d++) count[d][v[i].key >> 8 * d & 255]++;
  for (d = 0; d < DIGITS; d++) {
    sort_item *old = v;
    if (count[d][v[0].key >> 8 * d & 255] == n) continue;
    for (k = 0, sum = 0; k < VALUES; k++, sum += some) {
      some = count[d][k];
      count[d][k] = sum; /* where the next of this digit goes */
    }
    for (i = 0; i < n; i++) other[count[d][v[i].key >> 8 * d & 255]++] = v[i];
    v = other;
    other = old;
  }
  return v;
}

static void sort_line(const limn_step *s, const char *x, int64_t *out,
                      sort_item *v) {
  const limn_view *in = &s->in[0].v;
  int64_t n = in->d[1], inner = in->d[2], i;
  int64_t stride = inner * limn_dtype_size(s->in[0].dtype);
  uint64_t flip = s->flag ? UINT64_MAX : 0;
  for (i = 0; i < n; i++) {
    v[i].key = sort_key(s->in[0].dtype, x + i * stride) ^ flip;
    v[i].at = i;
  }
  if (n <= SHORT) sort_short(v, n);
  else v = sort_long(v, v + n, n);
  for (i = 0; i < n; i++) out[i * inner] = v[i].at + s->base;
}

static int64_t sort_per_tile(const limn_view *v) {
  return LIMN_MAX(1, WORK / LIMN_MAX(v->d[1], 1));
}

/* A tile is some lines. */
static void sort_run(const limn_step *s, const limn_bind *b, int64_t t0,
                     int64_t t1) {
  const limn_view *v = &s->in[0].v;
  limn_cpu *cpu = limn_cpu_bound(b);
  const char *x = limn_cpu_at(b, &s->in[0]);
  int64_t *out = (int64_t *)(void *)limn_cpu_at(b, &s->out[0]);
  int64_t per = sort_per_tile(v), o = t0 * per;
  int64_t end = LIMN_MIN(t1 * per, v->d[0] * v->d[2]);
  int slot;
  sort_item *work = limn_cpu_take(cpu, &slot);
  for (; o < end; o++) {
    int64_t at = o / v->d[2] * v->d[1] * v->d[2] + o % v->d[2];
    sort_line(s, x + at * limn_dtype_size(s->in[0].dtype), out + at, work);
  }
  limn_cpu_give(cpu, slot);
}

int limn_cpu_sort_prepare(limn_device *d, limn_step *s) {
  const limn_view *v = &s->in[0].v;
  int64_t bytes;
  LIMN_TRY(limn_mul(d->c, v->d[1], 2 * (int64_t)sizeof(sort_item), &bytes));
  LIMN_TRY(limn_cpu_reserve(d, (size_t)bytes));
  s->run = sort_run;
  s->ntiles = (v->d[0] * v->d[2] + sort_per_tile(v) - 1) / sort_per_tile(v);
  s->cost_ns = (double)limn_numel(v->ndim, v->d) * 20;
  return 0;
}
