/* The driver's start, devices, primary contexts and the stack of those that
 * are current. */
#include "standin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DRIVER_DEVICES = 4, DRIVER_DEPTH = 16 };
static bool driver_started;
static struct cu_context *driver_primary[DRIVER_DEVICES];
static __thread struct cu_context *driver_stack[DRIVER_DEPTH];
static __thread int driver_depth;

static int driver_archs(int out[DRIVER_DEVICES]) {
  const char *s = getenv("STANDIN_DEVICES");
  char *end;
  int n = 0;
  if (!s) s = "75,90";
  for (; n < DRIVER_DEVICES; s = *end ? end + 1 : end) {
    long arch = strtol(s, &end, 10);
    if (end == s) break;
    out[n++] = (int)arch;
  }
  return n;
}

int standin_device_count(void) {
  int archs[DRIVER_DEVICES];
  return driver_archs(archs);
}

int standin_arch(int device) {
  int archs[DRIVER_DEVICES] = {0};
  driver_archs(archs);
  return archs[device];
}

STANDIN_API int cuInit(unsigned flags) {
  ENTER(cuInit);
  if (flags) return standin_bad(SI_INVALID_VALUE, "flags must be 0");
  if (!standin_device_count()) return CU_E_NO_DEVICE;
  driver_started = true;
  return 0;
}

static int driver_ready(int device) {
  if (!driver_started)
    return standin_bad(SI_NOT_INITIALIZED, "cuInit was not called");
  if (device < 0 || device >= standin_device_count())
    return standin_bad(SI_INVALID_DEVICE, "there is no device %d", device);
  return 0;
}
#define READY(device)                 \
  do {                                \
    int rc_ = driver_ready(device);   \
    if (rc_) return rc_;              \
  } while (0)

int standin_version(void) {
  const char *s = getenv("STANDIN_VERSION");
  return s ? atoi(s) : 13000;
}

STANDIN_API int cuDriverGetVersion(int *version) {
  ENTER(cuDriverGetVersion);
  *version = standin_version();
  return 0;
}

static const struct {
  int code;
  const char *name, *text;
} driver_errors[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {200, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU",
     "no kernel image is available for execution on the device"},
    {217, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED",
     "peer access is not supported between these two devices"},
    {222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
     "the provided PTX was compiled with an unsupported toolchain."},
    {400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {600, "CUDA_ERROR_NOT_READY", "device not ready"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS",
     "an illegal memory access was encountered"},
    {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
     "too many resources requested for launch"},
    {704, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED",
     "peer access is already enabled"},
    {716, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

static int driver_error(int code) {
  int i, n = (int)(sizeof driver_errors / sizeof driver_errors[0]);
  for (i = 0; i < n; i++)
    if (driver_errors[i].code == code) return i;
  return -1;
}

STANDIN_API int cuGetErrorName(int code, const char **out) {
  int i = driver_error(code);
  *out = i < 0 ? NULL : driver_errors[i].name;
  return i < 0 ? SI_INVALID_VALUE : 0;
}

STANDIN_API int cuGetErrorString(int code, const char **out) {
  int i = driver_error(code);
  *out = i < 0 ? NULL : driver_errors[i].text;
  return i < 0 ? SI_INVALID_VALUE : 0;
}

/* -- Devices --------------------------------------------------------------- */

STANDIN_API int cuDeviceGetCount(int *count) {
  ENTER(cuDeviceGetCount);
  READY(0);
  *count = standin_device_count();
  return 0;
}

STANDIN_API int cuDeviceGet(cu_device *device, int ordinal) {
  ENTER(cuDeviceGet);
  READY(ordinal);
  *device = ordinal;
  return 0;
}

STANDIN_API int cuDeviceGetName(char *name, int n, cu_device device) {
  ENTER(cuDeviceGetName);
  READY(device);
  snprintf(name, (size_t)n, "stand-in sm_%d", standin_arch(device));
  return 0;
}

STANDIN_API int cuDeviceGetAttribute(int *value, int attribute,
                                     cu_device device) {
  ENTER(cuDeviceGetAttribute);
  READY(device);
  switch (attribute) {
  case CU_MAX_THREADS_PER_BLOCK: *value = 1024; return 0;
  case CU_MULTIPROCESSORS: *value = 4; return 0;
  case CU_COMPUTE_MODE: *value = 0; return 0;
  case CU_CLOCK_MEMORY: *value = 1000000; return 0;
  case CU_BUS_WIDTH: *value = 64; return 0;
  case CU_MAJOR: *value = standin_arch(device) / 10; return 0;
  case CU_MINOR: *value = standin_arch(device) % 10; return 0;
  case CU_POOLS: *value = 1; return 0;
  default:
    return standin_bad(SI_INVALID_VALUE, "attribute %d is not stood in for",
                       attribute);
  }
}

static size_t driver_memory(void) {
  const char *s = getenv("STANDIN_MEMORY");
  return s ? (size_t)strtoull(s, NULL, 10) : (size_t)8 << 30;
}

STANDIN_API int cuDeviceTotalMem_v2(size_t *bytes, cu_device device) {
  ENTER(cuDeviceTotalMem_v2);
  READY(device);
  *bytes = driver_memory();
  return 0;
}

/* -- Contexts -------------------------------------------------------------- */

STANDIN_API int cuDevicePrimaryCtxRetain(cu_context *out, cu_device device) {
  struct cu_context **c = &driver_primary[device];
  ENTER(cuDevicePrimaryCtxRetain);
  READY(device);
  if (!*c) {
    *c = standin_object_new(SI_CONTEXT, sizeof **c, NULL);
    (*c)->device = device;
  }
  (*c)->refs++;
  *out = *c;
  return 0;
}

/* With its last user a context loses all that is in it: what was not freed by
 * then is a leak. */
STANDIN_API int cuDevicePrimaryCtxRelease_v2(cu_device device) {
  struct cu_context **c = &driver_primary[device];
  int i;
  ENTER(cuDevicePrimaryCtxRelease_v2);
  READY(device);
  if (!*c)
    return standin_bad(SI_INVALID_CONTEXT, "device %d has no context", device);
  if (--(*c)->refs) return 0;
  for (i = 0; i < driver_depth; i++)
    if (driver_stack[i] == *c)
      standin_bad(0, "the context is still current while it is destroyed");
  if (standin_live(*c)) standin_bad(0, "the context was destroyed with these");
  standin_object_end(*c);
  *c = NULL;
  return 0;
}

STANDIN_API int cuCtxPushCurrent_v2(cu_context c) {
  ENTER(cuCtxPushCurrent_v2);
  CHECK(c, SI_CONTEXT);
  if (driver_depth == DRIVER_DEPTH)
    return standin_bad(SI_INVALID_CONTEXT, "contexts are pushed, not popped");
  driver_stack[driver_depth++] = c;
  return 0;
}

STANDIN_API int cuCtxPopCurrent_v2(cu_context *out) {
  ENTER(cuCtxPopCurrent_v2);
  if (!driver_depth)
    return standin_bad(SI_INVALID_CONTEXT, "no context is current");
  driver_depth--;
  if (out) *out = driver_stack[driver_depth];
  return 0;
}

/* -- Peers ----------------------------------------------------------------- */

bool standin_peers(int device, int peer) {
  const char *s = getenv("STANDIN_PEERS");
  return device != peer && !(s && *s == '0');
}

STANDIN_API int cuDeviceCanAccessPeer(int *can, cu_device device,
                                      cu_device peer) {
  ENTER(cuDeviceCanAccessPeer);
  READY(device);
  READY(peer);
  *can = standin_peers(device, peer);
  return 0;
}

STANDIN_API int cuCtxEnablePeerAccess(cu_context peer, unsigned flags) {
  struct cu_context *c;
  int rc;
  ENTER(cuCtxEnablePeerAccess);
  rc = standin_current(&c);
  if (rc) return rc;
  if (!peer || peer->o.kind != SI_CONTEXT || !peer->o.live || flags)
    return standin_bad(SI_INVALID_VALUE, "no context that lives");
  if (!standin_peers(c->device, peer->device)) return SI_NO_PEERS;
  if (c->peers >> peer->device & 1) return SI_ALREADY_PEERS;
  c->peers |= 1u << peer->device;
  return 0;
}

int standin_current(struct cu_context **out) {
  *out = driver_depth ? driver_stack[driver_depth - 1] : NULL;
  if (!*out) return standin_bad(SI_INVALID_CONTEXT, "no context is current");
  if (!(*out)->o.live)
    return standin_bad(SI_INVALID_CONTEXT, "the context was destroyed");
  return (*out)->sticky;
}
