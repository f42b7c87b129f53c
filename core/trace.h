/* What trace.c and region.c share: the life of regions. */
#ifndef LIMN_TRACE_H
#define LIMN_TRACE_H

#include "graph.h"

/* A number input of any host kind. */
int limn_trace_host(limn_trace *t, const char *name, const limn_type *hint,
                    limn_ref *out);
/* Checks and compacts the graph of a trace whose code has run. */
int limn_trace_finish(limn_trace *t);
void limn_trace_drop(limn_trace *t);
/* A region is taken off the context but stays open; and closed for good. */
void limn_trace_leave(limn_trace *t);
void limn_trace_close(limn_trace *t);

/* region.c: values from outside. */
int limn_region_capture(limn_trace *t, limn_arg outer, limn_cell *cell,
                        limn_arg *out);
int limn_region_read(limn_trace *t, limn_cell *cell, limn_arg *out);
int limn_region_write(limn_trace *t, limn_cell *cell, limn_arg v);

#endif
