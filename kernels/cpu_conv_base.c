/* Convolutions' kernels for any CPU. */
#define CONV_TABLE limn_conv_base
#include "cpu_conv_isa.h"
