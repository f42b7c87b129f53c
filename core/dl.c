/* Loading of shared libraries at run time; a missing one is no error. */
#include "device.h"

#ifdef _WIN32
#include <windows.h>

void *limn_dl_open(const char *const *names, int n) {
  int i;
  for (i = 0; i < n; i++) {
    void *lib = names[i] && *names[i] ? (void *)LoadLibraryA(names[i]) : NULL;
    if (lib) return lib;
  }
  return NULL;
}

void *limn_dl_sym(void *lib, const char *name) {
  return lib ? (void *)GetProcAddress((HMODULE)lib, name) : NULL;
}

void limn_dl_close(void *lib) {
  if (lib) FreeLibrary((HMODULE)lib);
}
#else
#include <dlfcn.h>

/* RTLD_LOCAL: what a driver exports must not shadow the host's own symbols. */
void *limn_dl_open(const char *const *names, int n) {
  int i;
  for (i = 0; i < n; i++) {
    void *lib = NULL;
    if (names[i] && *names[i]) lib = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (lib) return lib;
  }
  return NULL;
}

void *limn_dl_sym(void *lib, const char *name) {
  return lib ? dlsym(lib, name) : NULL;
}

void limn_dl_close(void *lib) {
  if (lib) dlclose(lib);
}
#endif
