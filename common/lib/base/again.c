/* See again.h. */
#include "common/lib/base/again.h"

#include "common/lib/base/backoff.h"
#include "common/lib/base/clock.h"

#define TICK_MS 5

static void push(struct again *again, struct again_item *item)
{
    item->next = again->first;
    again->first = item;
}

static void on_tick(uv_timer_t *timer)
{
    struct again *again = container_of(timer, struct again, tick);
    int64_t now_ms = clock_mono_ms();
    struct again_item *next = again->first, *item;
    again->first = NULL;
    while ((item = next)) {
        next = item->next;
        if (item->due_ms > now_ms)
            push(again, item);
        else
            again->on_due(again->context, item);
    }
    if (!again->first)
        (void)uv_timer_stop(timer);
}

void again_open(struct again *again, uv_loop_t *loop)
{
    (void)uv_timer_init(loop, &again->tick); /* cannot fail */
}

void again_add(struct again *again, struct again_item *item)
{
    int64_t delay_ms = backoff_delay_ms(++item->count, again->base_ms, again->cap_ms, backoff_random());
    item->due_ms = clock_mono_ms() + delay_ms;
    if (!again->first)
        (void)uv_timer_start(&again->tick, on_tick, TICK_MS, TICK_MS);
    push(again, item);
}

void again_close(struct again *again, struct closing *closing)
{
    closing_handle(closing, &again->tick);
}
