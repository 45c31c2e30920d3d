/* Items that could not be done because something else held what they need, and are tried again after a delay that
 * grows. Between the tries nothing but the item is held. */
#ifndef ISSUING_AGAIN_H
#define ISSUING_AGAIN_H

#include <uv.h>

#include "common/lib/base/base.h"
#include "common/lib/base/closing.h"

struct again_item {
    int count; /* how often it has waited; 0 before the first time */
    /* private */
    int64_t due_ms;
    struct again_item *next;
};

struct again {
    /* in */
    int64_t base_ms, cap_ms; /* of the delay */
    void (*on_due)(void *context, struct again_item *item);
    void *context;
    /* private */
    struct again_item *first;
    uv_timer_t tick; /* runs while something waits */
};

void again_open(struct again *again, uv_loop_t *loop);
/* on_due once, from the loop; the item must live until then. */
void again_add(struct again *again, struct again_item *item);
/* What waits is forgotten. The handle is a part of `closing`. */
void again_close(struct again *again, struct closing *closing);

#endif
