/* Between the stand-in driver (C) and the kernels that it compiles (C++):
 * where the running thread is, and what it may ask of the others. */
#ifndef STANDIN_ABI_H
#define STANDIN_ABI_H

typedef struct {
  unsigned x, y, z;
} standin_dim;

/* One for the process; what runs, runs alone. */
typedef struct {
  standin_dim thread, block, block_dim, grid_dim;
  unsigned lane;
  /* Wait for all threads of the block. Every one must come from `line`. */
  void (*sync)(int line);
  /* Give a value, wait for the lanes in mask, see the values of all 32. They
   * stay until the lane's next call but one. */
  const unsigned long long *(*exchange)(int line, unsigned mask,
                                        unsigned long long value);
  unsigned (*present)(void); /* lanes of the warp that have not returned */
  void (*trap)(const char *why); /* does not return */
} standin_now;

/* A kernel: its parameters as the launch must give them. */
typedef struct {
  const char *name;
  void (*call)(void *const *params);
  int nparam;
  const unsigned *size;
  const unsigned char *pointer; /* whether each is one */
  int max_threads;              /* __launch_bounds__, 0: none */
} standin_entry;

typedef struct {
  standin_now **now;
  const standin_entry *entry; /* up to a NULL name */
  char *shared, *shared_end;  /* __shared__ variables */
} standin_code;

#define STANDIN_SYMBOL "standin_module"
/* Size of the only parameter of a kernel that is not there. */
#define STANDIN_NONE 77777

#endif
