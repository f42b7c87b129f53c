/* Folds, conversions and exponentials for any CPU. */
#define LOOPS_TABLE limn_loops_base
#include "cpu_loops_isa.h"
