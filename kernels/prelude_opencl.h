/* The words of the kernel dialect for OpenCL C 1.2; dialect.k follows. */
#pragma OPENCL FP_CONTRACT OFF
#ifdef USE_F64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif
#ifdef USE_ATOM64
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
#endif
#define KERNEL __kernel
#define GLOBAL __global
#define LOCAL __local
#define FN static inline
#define UNROLL
typedef char i8;
typedef uchar u8;
typedef ushort u16;
typedef uint u32;
typedef long i64;
typedef ulong u64;
#define GID get_global_id(0)
#define LID ((int)get_local_id(0))
#define GROUP(d) ((int)get_group_id(d))
#define BARRIER barrier(CLK_LOCAL_MEM_FENCE)
#define BITS_F32(u) as_float((u32)(u))
#define F32_BITS(f) as_uint(f)
#define BITS_F64(u) as_double((u64)(u))
#define CLAIM(p) (atomic_cmpxchg((volatile __global int *)(p), 0, 1) == 0)
#define MULHI(a, b) mul_hi(a, b)
#define MAD_f32(a, b, c) mad(a, b, c)
#define MAD_f64(a, b, c) mad(a, b, c)
/* The numbers of a launch: by value, or in a buffer where too many. */
#ifdef NUM_TABLE
#define NUMBERS __global const i64 *num
#define N_(i) num[i]
#else
typedef struct {
  i64 v[NUMS];
} numbers;
#define NUMBERS const numbers num
#define N_(i) num.v[i]
#endif
/* *p += v for several work-items at once. */
FN void ATOMIC_ADD_i32(__global int *p, int v) {
  atomic_add((volatile __global int *)p, v);
}
FN void ATOMIC_ADD_f32(__global float *p, float v) {
  volatile __global int *q = (volatile __global int *)p;
  int old, seen = *q;
  do {
    old = seen;
    seen = atomic_cmpxchg(q, old, as_int(as_float(old) + v));
  } while (seen != old);
}
#ifdef USE_ATOM64
FN void ATOMIC_ADD_i64(__global i64 *p, i64 v) {
  atom_add((volatile __global long *)p, v);
}
#ifdef USE_F64
FN void ATOMIC_ADD_f64(__global double *p, double v) {
  volatile __global long *q = (volatile __global long *)p;
  long old, seen = *q;
  do {
    old = seen;
    seen = atom_cmpxchg(q, old, as_long(as_double(old) + v));
  } while (seen != old);
}
#endif
#endif
