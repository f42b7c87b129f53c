/* From CUDA C++ to a shared object: the C++ compiler with builtins.h, and a
 * table of the kernels at the end. What was compiled is kept by its hash. */
#include "standin.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* FNV-1a of 64 bits (Fowler, Noll, Vo), eight bytes a step where it can. */
uint64_t standin_hash(uint64_t h, const void *p, size_t n) {
  const unsigned char *s = p;
  uint64_t w;
  h ^= 0xcbf29ce484222325u;
  for (; n >= 8; n -= 8, s += 8) {
    memcpy(&w, s, 8);
    h = (h ^ w) * 0x100000001b3u;
    h ^= h >> 29;
  }
  for (; n; n--) h = (h ^ *s++) * 0x100000001b3u;
  return h ? h : 1;
}

static const char *compile_setting(const char *name, const char *otherwise) {
  const char *s = getenv(name);
  return s && *s ? s : otherwise;
}

bool standin_dry(void) { return compile_setting("STANDIN_DRY", NULL) != NULL; }

/* -- Text ------------------------------------------------------------------ */

typedef struct {
  char *s;
  size_t n, cap;
} compile_text;

static void compile_add(compile_text *t, const char *s, size_t n) {
  if (t->n + n + 1 > t->cap) {
    t->cap = (t->n + n + 1) * 2;
    t->s = realloc(t->s, t->cap);
    if (!t->s) abort();
  }
  memcpy(t->s + t->n, s, n);
  t->n += n;
  t->s[t->n] = 0;
}
static void compile_adds(compile_text *t, const char *s) {
  compile_add(t, s, strlen(s));
}

static char *compile_read(const char *path, size_t *n) {
  compile_text t = {0};
  char buf[4096];
  ssize_t got;
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  compile_adds(&t, "");
  if (fd >= 0) {
    while ((got = read(fd, buf, sizeof buf)) > 0)
      compile_add(&t, buf, (size_t)got);
    close(fd);
  }
  if (n) *n = t.n;
  return t.s;
}

/* -- Kernels' names -------------------------------------------------------- */

static bool compile_word(const char *p, const char *word) {
  size_t n = strlen(word);
  return !strncmp(p, word, n) && !isalnum((unsigned char)p[n]) && p[n] != '_';
}

static const char *compile_blank(const char *p) {
  return p + strspn(p, " \t\r\n");
}

/* After KERNEL or __global__: the name before the parameters. */
static size_t compile_name(const char *p, const char **name) {
  for (;;) {
    p = compile_blank(p);
    if (compile_word(p, "void")) {
      p += 4;
    } else if (compile_word(p, "__launch_bounds__")) {
      p = strchr(p, ')');
      if (!p) return 0;
      p++;
    } else {
      break;
    }
  }
  *name = p;
  while (isalnum((unsigned char)*p) || *p == '_') p++;
  return *compile_blank(p) == '(' ? (size_t)(p - *name) : 0;
}

/* f(arg, name, length) for each kernel that the text defines outside of
 * macros. Not all need be there: conditions may leave some out. */
static void compile_kernels(const char *src, const char *fmt,
                            compile_text *out) {
  const char *p = src, *name;
  bool start = true, macro = false, comment = false;
  char line[300];
  for (; *p; p++) {
    if (comment) {
      if (p[0] == '*' && p[1] == '/') comment = false;
    } else if (p[0] == '/' && p[1] == '*') {
      comment = true;
    } else if (p[0] == '/' && p[1] == '/') {
      p += strcspn(p, "\n") - 1;
    } else if (*p == '\n') {
      macro = macro && p > src && p[-1] == '\\';
      start = true;
    } else if (*p == '#' && start) {
      macro = true;
    } else if (!macro && (compile_word(p, "KERNEL") ||
                          compile_word(p, "__global__")) &&
               (p == src || (!isalnum((unsigned char)p[-1]) && p[-1] != '_'))) {
      size_t n = compile_name(p + strcspn(p, " \n"), &name);
      if (n && n < 100) {
        snprintf(line, sizeof line, fmt, (int)n, name);
        compile_adds(out, line);
      }
    }
    if (*p != '\n' && !isspace((unsigned char)*p)) start = false;
  }
}

static char *compile_whole(const char *source) {
  compile_text t = {0};
  compile_adds(&t, "#line 1 \"kernel\"\n");
  compile_adds(&t, source);
  compile_adds(&t, "\n#line 1 \"table\"\nnamespace standin_fallback {\n");
  compile_kernels(source, "static void %.*s(standin_none) {}\n", &t);
  compile_adds(&t,
               "}\nusing namespace standin_fallback;\n"
               "static const standin_entry standin_entries[] = {\n");
  compile_kernels(source, "STANDIN_ENTRY(%.*s)\n", &t);
  compile_adds(&t,
               "{0, 0, 0, 0, 0, 0}};\n"
               "extern \"C\" __attribute__((visibility(\"default\")))\n"
               "const standin_code " STANDIN_SYMBOL " = {&standin_here, "
               "standin_entries, __start_standin_shared, "
               "__stop_standin_shared};\n");
  return t.s;
}

/* -- Files ----------------------------------------------------------------- */

static void compile_folder(const char *path) {
  char part[1024];
  const char *p = path;
  while (*p && (size_t)(p - path) < sizeof part) {
    p += strcspn(p + 1, "/") + 1;
    snprintf(part, sizeof part, "%.*s", (int)(p - path), path);
    mkdir(part, 0777);
  }
}

/* Through a file of another name, so that nobody sees half of it. */
static bool compile_write(const char *path, const char *text) {
  char temp[1200];
  FILE *f;
  snprintf(temp, sizeof temp, "%s.%d", path, (int)getpid());
  f = fopen(temp, "wb");
  if (!f) return false;
  fputs(text, f);
  return !fclose(f) && !rename(temp, path);
}

static void compile_dump(const char *source, uint64_t hash) {
  const char *folder = compile_setting("STANDIN_SOURCES", NULL);
  char path[1024];
  if (!folder) return;
  compile_folder(folder);
  snprintf(path, sizeof path, "%s/%016llx.cu", folder,
           (unsigned long long)hash);
  if (access(path, F_OK)) compile_write(path, source);
}

/* Our environment without what is loaded into our own process: a sanitizer
 * would look for leaks in the compiler. */
static char **compile_environment(void) {
  char **list;
  size_t n = 0, i, k = 0;
  while (environ[n]) n++;
  list = standin_new((n + 1) * sizeof *list);
  for (i = 0; i < n; i++)
    if (strncmp(environ[i], "LD_PRELOAD=", 11)) list[k++] = environ[i];
  return list;
}

/* -O1 is where compiling and running together take least; fmaf as a call would
 * take most of a product. */
#if defined(__x86_64__)
#define COMPILE_FMA (__builtin_cpu_supports("fma") ? "-mfma" : "-O1")
#else
#define COMPILE_FMA "-O1"
#endif
#define COMPILE_FLAGS                                                        \
  "-x", "c++", "-std=c++17", "-O1", COMPILE_FMA, "-w", "-shared", "-fPIC",   \
      "-fvisibility=hidden", "-ffp-contract=off", "-fno-exceptions",         \
      "-fno-rtti", "-fno-strict-aliasing", "-fwrapv", "-fno-math-errno",     \
      "-fsanitize=alignment", "-fsanitize-undefined-trap-on-error",          \
      "-nostdlib", "-Wl,-Bsymbolic", "-include", STANDIN_FOLDER "/builtins.h"

/* All that decides what a source becomes. */
static uint64_t compile_setup(void) {
  const char *const flags[] = {COMPILE_FLAGS};
  const char *files[] = {STANDIN_FOLDER "/builtins.h", STANDIN_FOLDER "/abi.h"};
  const char *cxx = compile_setting("STANDIN_CXX", "g++");
  uint64_t h = standin_hash(2, cxx, strlen(cxx));
  size_t i, n;
  for (i = 0; i < sizeof flags / sizeof flags[0]; i++)
    h = standin_hash(h, flags[i], strlen(flags[i]));
  for (i = 0; i < 2; i++) {
    char *text = compile_read(files[i], &n);
    h = standin_hash(h, text, n);
    free(text);
  }
  return h;
}

/* Runs the compiler; its words go to the log. */
static int compile_call(const char *from, const char *to, const char *log) {
  const char *cxx = compile_setting("STANDIN_CXX", "g++");
  const char *argv[] = {cxx, COMPILE_FLAGS, "-o", to, from, "-lm", "-lc",
                        NULL};
  posix_spawn_file_actions_t files;
  char **env = compile_environment();
  pid_t pid;
  int status = -1, rc;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 1, log,
                                   O_WRONLY | O_CREAT | O_TRUNC, 0666);
  posix_spawn_file_actions_adddup2(&files, 1, 2);
  rc = posix_spawnp(&pid, cxx, &files, NULL, (char **)(uintptr_t)argv, env);
  posix_spawn_file_actions_destroy(&files);
  free(env);
  if (rc) {
    compile_write(log, "the C++ compiler cannot be started");
    return rc;
  }
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
  return status;
}

int standin_compile(const char *source, char **path, char **log) {
  static uint64_t setup;
  const char *folder = compile_setting("STANDIN_CACHE", STANDIN_BUILD "/cache");
  char *whole, base[1024], from[1100], to[1100], words[1100];
  uint64_t hash;
  int rc = 0;
  if (!setup) setup = compile_setup();
  hash = standin_hash(setup, source, strlen(source));
  compile_dump(source, hash);
  *log = NULL;
  *path = NULL;
  if (standin_dry()) return 0;
  compile_folder(folder);
  snprintf(base, sizeof base, "%s/%016llx", folder, (unsigned long long)hash);
  if (asprintf(path, "%s.so", base) < 0) abort();
  if (!access(*path, R_OK)) return 0;
  snprintf(from, sizeof from, "%s.%d.cc", base, (int)getpid());
  snprintf(to, sizeof to, "%s.%d.so", base, (int)getpid());
  snprintf(words, sizeof words, "%s.%d.log", base, (int)getpid());
  whole = compile_whole(source);
  rc = compile_write(from, whole) ? compile_call(from, to, words) : -1;
  free(whole);
  if (rc || rename(to, *path)) {
    *log = compile_read(words, NULL);
    rc = -1;
  }
  unlink(from);
  unlink(to);
  unlink(words);
  return rc;
}
