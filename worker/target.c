/* See target.h. */
#include "worker/target.h"

#include <assert.h>

#include "common/clock.h"

void target_init(struct target *target, const char *name, int failures_max, int64_t probe_interval_ms,
                 int concurrency_max, void (*on_change)(struct target *target))
{
    *target = (struct target){.name = name, .on_change = on_change};
    breaker_init(&target->breaker, failures_max, probe_interval_ms, concurrency_max);
}

static struct target_ticket *take_first(struct target *target)
{
    struct target_ticket *ticket = target->first;
    if (ticket) {
        target->first = ticket->next;
        if (!target->first)
            target->last = NULL;
        ticket->next = NULL;
        ticket->is_waiting = false;
    }
    return ticket;
}

enum target_entry target_enter(struct target *target, struct target_ticket *ticket)
{
    assert(!ticket->is_waiting);
    int64_t now_ms = clock_mono_ms();
    if (breaker_is_shut(&target->breaker, now_ms))
        return TARGET_SHUT;
    if (!target->first && breaker_room(&target->breaker, now_ms) > 0) {
        ticket->epoch = breaker_start(&target->breaker, now_ms);
        return TARGET_GO;
    }
    ticket->next = NULL;
    ticket->is_waiting = true;
    if (target->last)
        target->last->next = ticket;
    else
        target->first = ticket;
    target->last = ticket;
    return TARGET_WAIT;
}

void target_leave(struct target *target, struct target_ticket *ticket, enum breaker_result result)
{
    int64_t now_ms = clock_mono_ms();
    breaker_end(&target->breaker, ticket->epoch, result, now_ms);
    if (target->is_calling)
        return; /* below one of the calls of the loop underneath, which looks again */
    target->is_calling = true;
    while (target->first) {
        if (breaker_is_shut(&target->breaker, now_ms)) {
            struct target_ticket *next = take_first(target);
            next->on_turn(next, TARGET_SHUT);
        } else if (breaker_room(&target->breaker, now_ms) > 0) {
            struct target_ticket *next = take_first(target);
            next->epoch = breaker_start(&target->breaker, now_ms);
            next->on_turn(next, TARGET_GO);
        } else {
            break;
        }
    }
    target->is_calling = false;
    target->on_change(target);
}
