/* The print step: shows values and devices of this run through the host's log
 * callback, waiting for the device first. */
#include "planner.h"

static int print_tensor(limn_plan *p, const limn_operand *o, limn_str *s) {
  limn_slot *slot = &p->slot[o->slot];
  limn_shape shape = {o->v.ndim, {0}};
  limn_view from = o->v;
  limn_tensor *t;
  int rc;
  memcpy(shape.d, o->v.d, sizeof shape.d);
  from.offset += slot->off / limn_dtype_size(o->dtype);
  LIMN_TRY(limn_tensor_new(p->c, p->dev, o->dtype, &shape, &t));
  rc = limn_dev_copy(p->dev, o->dtype, t->st->mem, &t->v, o->dtype, slot->mem,
                     &from);
  if (rc == 0) rc = limn_tensor_format(t, s);
  limn_tensor_release(t);
  return rc;
}

static int print_value(limn_plan *p, const limn_step *st, limn_arg a,
                       int *tensor, limn_str *s) {
  char buf[64];
  const limn_node *n;
  if (a.tag != LIMN_A_REF) {
    limn_str_add(s, limn_arg_text(p->expanded, a, buf, sizeof buf));
    return 0;
  }
  n = limn_graph_node(p->expanded, a.u.ref);
  if (n->kind == LIMN_V_TENSOR) return print_tensor(p, &st->in[(*tensor)++], s);
  if (n->kind == LIMN_V_DEVICE) limn_str_add(s, p->dev->name);
  return 0;
}

/* text has one {} for each value; {{ is a brace. */
int limn_plan_print(limn_plan *p, const limn_step *st) {
  const limn_graph *g = p->expanded;
  const limn_arg *a = limn_node_args(g, st->node);
  const char *text = limn_graph_text(g, a[1].u.str);
  uint32_t at = 0;
  int tensor = 0, rc = 0;
  limn_str s;
  limn_str_init(&s, p->c);
  for (; *text && rc == 0; text++) {
    if (text[0] == '{' && text[1] == '}' && at < a[0].n) {
      limn_arg x = g->args[a[0].u.at + at];
      const limn_type *host = (const limn_type *)st->code + at;
      if (host->kind != LIMN_V_NONE && !host->known)
        host = &p->host_value[host->i];
      if (host->kind != LIMN_V_NONE) {
        if (host->kind == LIMN_V_REAL)
          limn_str_real(&s, host->f);
        else if (host->kind == LIMN_V_BOOL)
          limn_str_add(&s, host->i ? "true" : "false");
        else if (host->kind == LIMN_V_DTYPE)
          limn_str_add(&s, limn_dtype_name(host->dtype));
        else
          limn_str_addf(&s, "%lld", (long long)host->i);
      } else {
        rc = print_value(p, st, x, &tensor, &s);
      }
      at++, text++;
    } else {
      if (text[0] == '{' && text[1] == '{') text++;
      limn_str_addn(&s, text, 1);
    }
  }
  if (rc == 0) rc = s.rc;
  if (rc == 0 && p->c->opt.log)
    p->c->opt.log(p->c->opt.user, 'p', s.s ? s.s : "");
  limn_str_free(&s);
  return rc;
}
