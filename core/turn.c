/* Which turn of which loops a run is in, for messages. Kernels can note one
 * number, so the turns are packed: how many in 3 bits, then each, from the
 * innermost on, in an equal share of the other bits. */
#include "base.h"

enum { TURN_BITS = 48, TURN_MOST = 7 }; /* TURN_BITS: beside a site of 16 */

static int turn_share(int n) { return (TURN_BITS - 3) / n; }

uint64_t limn_turn_pack(const limn_turn *t) {
  int n = 0, at = 3;
  uint64_t packed;
  for (const limn_turn *x = t; x && n < TURN_MOST; x = x->outer) n++;
  packed = (uint64_t)n;
  for (int i = 0; i < n; i++, t = t->outer, at += turn_share(n)) {
    uint64_t most = ((uint64_t)1 << turn_share(n)) - 1;
    packed |= LIMN_MIN((uint64_t)t->step, most) << at;
  }
  return packed;
}

/* A number that did not fit says that it may be more. */
void limn_turn_append(limn_context *c, uint64_t packed) {
  int n = (int)(packed & 7);
  packed >>= 3;
  for (int i = 0; i < n; i++, packed >>= turn_share(n)) {
    uint64_t most = ((uint64_t)1 << turn_share(n)) - 1, step = packed & most;
    limn_error_append(c, "%sin step %llu%s of the loop%s", i ? ", " : "\n  ",
                      (unsigned long long)step + 1,
                      step == most ? " or later" : "",
                      i ? " around it" : "");
  }
}
