/* Elementwise kernels for any CPU. */
#define ELEM_TABLE limn_elem_base
#define ELEM_NAME "base"
#include "cpu_elem_isa.h"
