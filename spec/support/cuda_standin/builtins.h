/* CUDA C++'s built-in words for a C++ compiler, as far as the dialect uses
 * them: included before a kernel's source, when the stand-in compiles it.
 * A block's threads take turns (run.c), one at a time: shared memory can be
 * static, atomics plain, and a kernel is a function. */
#include "abi.h"

#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __restrict__ __restrict
#define __align__(n) __attribute__((aligned(n)))
#define __constant__ static
#define __shared__ static __attribute__((section("standin_shared")))
#define __global__ __attribute__((visibility("hidden")))
#define __launch_bounds__(...)
#define __grid_constant__

#define threadIdx (standin_here->thread)
#define blockIdx (standin_here->block)
#define blockDim (standin_here->block_dim)
#define gridDim (standin_here->grid_dim)
#define warpSize 32
#define __syncthreads() standin_here->sync(__LINE__)
#define __syncwarp(...) standin_sync_warp(__LINE__, ##__VA_ARGS__)
#define __shfl_sync(...) standin_shfl(__LINE__, __VA_ARGS__)
#define __shfl_xor_sync(...) standin_shfl_xor(__LINE__, __VA_ARGS__)
#define __shfl_down_sync(...) standin_shfl_down(__LINE__, __VA_ARGS__)
#define __shfl_up_sync(...) standin_shfl_up(__LINE__, __VA_ARGS__)
#define __ballot_sync(...) standin_ballot(__LINE__, __VA_ARGS__)
#define __any_sync(...) (standin_ballot(__LINE__, __VA_ARGS__) != 0)
#define __all_sync(mask, p) (standin_ballot(__LINE__, mask, !(p)) == 0)
#define __trap() standin_here->trap("__trap()")
#define assert(x) ((x) ? (void)0 : standin_here->trap("assert(" #x ")"))

typedef __SIZE_TYPE__ size_t;
static standin_now *standin_here;
/* There is always one, so that the linker knows where they are. */
static __attribute__((section("standin_shared"), used)) char standin_any[16];
extern "C" char __attribute__((visibility("hidden"))) __start_standin_shared[],
    __attribute__((visibility("hidden"))) __stop_standin_shared[];

/* -- Bits ------------------------------------------------------------------ */

template <class To, class From> static inline To standin_bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "as many bits");
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}
static inline float __uint_as_float(unsigned u) {
  return standin_bits<float>(u);
}
static inline float __int_as_float(int i) { return standin_bits<float>(i); }
static inline unsigned __float_as_uint(float f) {
  return standin_bits<unsigned>(f);
}
static inline int __float_as_int(float f) { return standin_bits<int>(f); }
static inline double __longlong_as_double(long long i) {
  return standin_bits<double>(i);
}
static inline long long __double_as_longlong(double d) {
  return standin_bits<long long>(d);
}
static inline unsigned __umulhi(unsigned a, unsigned b) {
  return (unsigned)((unsigned long long)a * b >> 32);
}
static inline unsigned long long __umul64hi(unsigned long long a,
                                            unsigned long long b) {
  return (unsigned long long)((unsigned __int128)a * b >> 64);
}
static inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __ffs(int x) { return __builtin_ffs(x); }

/* -- Arithmetic ------------------------------------------------------------ */

#define STANDIN_REAL1(name)                                            \
  static inline float name(float a) { return __builtin_##name##f(a); } \
  static inline double name(double a) { return __builtin_##name(a); }
#define STANDIN_REAL2(name)                                             \
  static inline float name(float a, float b) {                          \
    return __builtin_##name##f(a, b);                                   \
  }                                                                     \
  static inline double name(double a, double b) {                       \
    return __builtin_##name(a, b);                                      \
  }
STANDIN_REAL1(exp) STANDIN_REAL1(exp2) STANDIN_REAL1(exp10)
STANDIN_REAL1(expm1) STANDIN_REAL1(log) STANDIN_REAL1(log2)
STANDIN_REAL1(log10) STANDIN_REAL1(log1p) STANDIN_REAL1(sqrt)
STANDIN_REAL1(cbrt) STANDIN_REAL1(sin) STANDIN_REAL1(cos) STANDIN_REAL1(tan)
STANDIN_REAL1(asin) STANDIN_REAL1(acos) STANDIN_REAL1(atan)
STANDIN_REAL1(sinh) STANDIN_REAL1(cosh) STANDIN_REAL1(tanh)
STANDIN_REAL1(asinh) STANDIN_REAL1(acosh) STANDIN_REAL1(atanh)
STANDIN_REAL1(erf) STANDIN_REAL1(erfc) STANDIN_REAL1(lgamma)
STANDIN_REAL1(tgamma) STANDIN_REAL1(floor) STANDIN_REAL1(ceil)
STANDIN_REAL1(rint) STANDIN_REAL1(round) STANDIN_REAL1(trunc)
STANDIN_REAL1(fabs)
STANDIN_REAL2(pow) STANDIN_REAL2(fmod) STANDIN_REAL2(atan2)
STANDIN_REAL2(fmin) STANDIN_REAL2(fmax) STANDIN_REAL2(copysign)
STANDIN_REAL2(hypot)
static inline float rsqrt(float a) { return 1.0f / __builtin_sqrtf(a); }
static inline double rsqrt(double a) { return 1.0 / __builtin_sqrt(a); }
static inline float fmaf(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}
static inline float fma(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}
static inline double fma(double a, double b, double c) {
  return __builtin_fma(a, b, c);
}

template <class T> static inline T min(T a, T b) { return b < a ? b : a; }
template <class T> static inline T max(T a, T b) { return a < b ? b : a; }
/* Functions of CUDA's whose names a kernel cannot have. */
extern "C" double norm(int, const double *), rnorm(int, const double *),
    norm3d(double, double, double), norm4d(double, double, double, double),
    erfinv(double), normcdf(double), sinpi(double), cospi(double),
    rcbrt(double);

/* -- Atomics --------------------------------------------------------------- */

template <class T, class V> static inline T atomicAdd(T *p, V v) {
  T old = *p;
  *p = (T)(old + (T)v);
  return old;
}
template <class T, class V> static inline T atomicMax(T *p, V v) {
  T old = *p;
  if ((T)v > old) *p = (T)v;
  return old;
}
template <class T, class V> static inline T atomicMin(T *p, V v) {
  T old = *p;
  if ((T)v < old) *p = (T)v;
  return old;
}
template <class T, class V> static inline T atomicExch(T *p, V v) {
  T old = *p;
  *p = (T)v;
  return old;
}
template <class T, class A, class V>
static inline T atomicCAS(T *p, A seen, V v) {
  T old = *p;
  if (old == (T)seen) *p = (T)v;
  return old;
}
static inline void __threadfence() {}
static inline void __threadfence_block() {}

/* -- Vectors --------------------------------------------------------------- */

#define STANDIN_VECTOR(T, name, n)                        \
  struct __attribute__((aligned(n * sizeof(T)))) name##2 { \
    T x, y;                                               \
  };                                                      \
  struct __attribute__((aligned(2 * n * sizeof(T)))) name##4 { \
    T x, y, z, w;                                         \
  };
STANDIN_VECTOR(float, float, 2)
STANDIN_VECTOR(int, int, 2)
STANDIN_VECTOR(unsigned, uint, 2)
STANDIN_VECTOR(unsigned short, ushort, 2)
STANDIN_VECTOR(unsigned char, uchar, 2)
struct __attribute__((aligned(16))) double2 {
  double x, y;
};
struct __attribute__((aligned(16))) longlong2 {
  long long x, y;
};
struct __attribute__((aligned(16))) ulonglong2 {
  unsigned long long x, y;
};
template <class T> static inline T __ldg(const T *p) { return *p; }

/* -- Warps ----------------------------------------------------------------- */

static inline void standin_sync_warp(int line, unsigned mask = 0xffffffffu) {
  standin_here->exchange(line, mask, 0);
}
template <class T>
static inline T standin_from(int line, unsigned mask, T v, int lane) {
  static_assert(sizeof(T) <= 8, "shuffles move at most 8 bytes");
  unsigned long long bits = 0;
  __builtin_memcpy(&bits, &v, sizeof v);
  bits = standin_here->exchange(line, mask, bits)[lane];
  __builtin_memcpy(&v, &bits, sizeof v);
  return v;
}
/* `lane` stays within segments of `width` lanes, else the own value is kept. */
static inline int standin_lane(int lane, int lowest, int highest) {
  return lane < lowest || lane > highest ? (int)standin_here->lane : lane;
}
template <class T>
static inline T standin_shfl(int line, unsigned mask, T v, int lane,
                             int width = 32) {
  int first = (int)standin_here->lane / width * width;
  return standin_from(line, mask, v, first + (lane & (width - 1)));
}
template <class T>
static inline T standin_shfl_xor(int line, unsigned mask, T v, int bits,
                                 int width = 32) {
  int own = (int)standin_here->lane, last = own / width * width + width - 1;
  return standin_from(line, mask, v, standin_lane(own ^ bits, 0, last));
}
template <class T>
static inline T standin_shfl_down(int line, unsigned mask, T v, unsigned by,
                                  int width = 32) {
  int own = (int)standin_here->lane, last = own / width * width + width - 1;
  return standin_from(line, mask, v, standin_lane(own + (int)by, 0, last));
}
template <class T>
static inline T standin_shfl_up(int line, unsigned mask, T v, unsigned by,
                                int width = 32) {
  int own = (int)standin_here->lane, first = own / width * width;
  return standin_from(line, mask, v, standin_lane(own - (int)by, first, 31));
}
static inline unsigned standin_ballot(int line, unsigned mask, int holds) {
  const unsigned long long *v =
      standin_here->exchange(line, mask, holds ? 1 : 0);
  unsigned bits = 0;
  int i;
  for (i = 0; i < 32; i++)
    if ((mask >> i & 1) && v[i] == 1) bits |= 1u << i;
  return bits;
}
static inline unsigned __activemask() { return standin_here->present(); }

/* -- The table of kernels, which follows the source ------------------------ */

template <class T> struct standin_is_pointer {
  enum { value = 0 };
};
template <class T> struct standin_is_pointer<T *> {
  enum { value = 1 };
};
template <int... I> struct standin_list {};
/* What the launch's parameters must be, and the call with them. */
template <class... A> struct standin_kernel {
  static constexpr unsigned size[] = {sizeof(A)..., 0};
  static constexpr unsigned char pointer[] = {standin_is_pointer<A>::value...,
                                              0};
  template <void (*f)(A...), int... I>
  static void spread(void *const *p, standin_list<I...>) {
    f(*(A *)p[I]...);
  }
  template <void (*f)(A...)> static void call(void *const *p) {
    spread<f>(p, standin_list<__integer_pack(sizeof...(A))...>());
  }
};
template <class... A> struct standin_kernel<A...> standin_of(void (*)(A...));
struct standin_none {
  char none[STANDIN_NONE];
};
#define STANDIN_ENTRY(f)                                                    \
  {#f, decltype(standin_of(&::f))::template call<&::f>,                     \
   (int)sizeof(decltype(standin_of(&::f))::pointer) - 1,                    \
   decltype(standin_of(&::f))::size, decltype(standin_of(&::f))::pointer, 0},
