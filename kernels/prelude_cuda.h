/* The words of the kernel dialect for CUDA (NVRTC); dialect.k follows.
 * Compile with --fmad=false: contraction is asked for by MAD_* only. */
#define KERNEL extern "C" __global__
#define GLOBAL
#define LOCAL __shared__
#define FN __device__ __forceinline__
#define UNROLL _Pragma("unroll")
typedef signed char i8;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;
#define GID ((i64)blockIdx.x * blockDim.x + threadIdx.x)
#define LID ((int)threadIdx.x)
#define GROUP(d) \
  ((int)((d) == 0 ? blockIdx.x : (d) == 1 ? blockIdx.y : blockIdx.z))
#define BARRIER __syncthreads()
#define BITS_F32(u) __uint_as_float((u32)(u))
#define F32_BITS(f) __float_as_uint(f)
#define BITS_F64(u) __longlong_as_double((i64)(u))
#define CLAIM(p) (atomicCAS((int *)(p), 0, 1) == 0)
#define MULHI(a, b) __umulhi(a, b)
#define MAD_f32(a, b, c) fmaf(a, b, c)
#define MAD_f64(a, b, c) fma(a, b, c)
#define INFINITY __int_as_float(0x7f800000)
#ifndef USE_F64
#define USE_F64
#endif
#ifdef NUM_TABLE
#define NUMBERS const i64 *num
#define N_(i) num[i]
#else
typedef struct {
  i64 v[NUMS];
} numbers;
#define NUMBERS const numbers num
#define N_(i) num.v[i]
#endif
FN void ATOMIC_ADD_i32(int *p, int v) {
  atomicAdd(p, v);
}
FN void ATOMIC_ADD_f32(float *p, float v) {
  atomicAdd(p, v);
}
FN void ATOMIC_ADD_f64(double *p, double v) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 600
  u64 *q = (u64 *)p, old, seen = *q;
  do {
    old = seen;
    seen = atomicCAS(q, old, (u64)__double_as_longlong(
                                 __longlong_as_double((i64)old) + v));
  } while (seen != old);
#else
  atomicAdd(p, v);
#endif
}
FN void ATOMIC_ADD_i64(i64 *p, i64 v) {
  atomicAdd((u64 *)p, (u64)v);
}
#ifdef __CUDA_ARCH__
/* Half conversions in hardware; same values as dialect.k's. */
#define OWN_HALF
FN float H2F(u16 h) {
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
  return f;
}
FN u16 F2H(float f) {
  u16 h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
  return h;
}
#endif
/* V elements at once, in accesses of up to 16 bytes where they lie so; `left`:
 * how many there are. */
#define SEVERAL(T, name, V) alignas(16) T name[V]
template <int BYTES>
struct alignas(BYTES) piece {
  u32 w[BYTES / 4];
};
#define PIECE(n) ((n) % 16 == 0 ? 16 : (n) % 8 == 0 ? 8 : (n) % 4 ? 0 : 4)
/* Whether it was possible. */
template <int BYTES>
FN bool WHOLE_PIECES(void *to, const void *from, const void *memory) {
  constexpr int step = PIECE(BYTES);
  if constexpr (step > 0) {
    if ((u64)memory % step) return false;
    UNROLL for (int k = 0; k < BYTES / step; k++)
      ((piece<step> *)to)[k] = ((const piece<step> *)from)[k];
  }
  return step > 0;
}
template <class T, int V>
FN void FETCH(T (&to)[V], const T *from, i64 left) {
  if (left >= V && WHOLE_PIECES<V * sizeof(T)>(to, from, from)) return;
  UNROLL for (int k = 0; k < V; k++) to[k] = k < left ? from[k] : T(0);
}
template <class T, int V>
FN void PUT(T *to, const T (&from)[V], i64 left) {
  if (left >= V && WHOLE_PIECES<V * sizeof(T)>(to, from, to)) return;
  UNROLL for (int k = 0; k < V; k++)
    if (k < left) to[k] = from[k];
}
/* Lanes that lie side by side meet by shuffles: in registers up to 32, above
 * that each 32 leave one value for the first lane. */
#define OWN_MERGE
#define LANES_OF_WARP (lanes < 32 ? lanes : 32)
#define MERGE(tree, acc, JOIN)                                          \
  if (step == 1) {                                                      \
    for (int h = LANES_OF_WARP / 2; h > 0; h /= 2)                      \
      acc = JOIN(acc, __shfl_down_sync(~0u, acc, h, LANES_OF_WARP));    \
    if (lanes > 32) {                                                   \
      if (lane % 32 == 0) tree[FIRST + lane / 32] = acc;                \
      BARRIER;                                                          \
      for (int h = 1; lane == 0 && h < lanes / 32; h++)                 \
        acc = JOIN(acc, tree[FIRST + h]);                               \
    }                                                                   \
  } else {                                                              \
    tree[lid] = acc;                                                    \
    MEET(tree[lid] = JOIN(tree[lid], tree[other]);)                     \
    acc = tree[lid];                                                    \
  }
#define SHARE(tree, acc)                             \
  if (step == 1 && lanes <= 32) {                    \
    acc = __shfl_sync(~0u, acc, 0, lanes);           \
  } else {                                           \
    BARRIER;                                         \
    if (lane == 0) tree[FIRST] = acc;                \
    BARRIER;                                         \
    acc = tree[FIRST];                               \
    BARRIER;                                         \
  }
