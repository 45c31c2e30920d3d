/* See slots.h. */
#include "worker/slots.h"

#include <assert.h>
#include <stdlib.h>

#define CLAIM_THRESHOLD_MAX 32
#define CLAIM_THRESHOLD_PART 8 /* of the slots */

bool slots_init(struct slots *slots, int count, const struct flow_env *env, struct err *err)
{
    *slots = (struct slots){0};
    slots->flows = calloc((size_t)count, sizeof(*slots->flows));
    if (!slots->flows)
        return err_set(err, ERR_MEMORY, "no memory for %d slots", count);
    slots->count = count;
    for (int i = count; i-- > 0;) {
        flow_init(&slots->flows[i], env);
        slots->flows[i].next = slots->free;
        slots->free = &slots->flows[i];
    }
    return true;
}

void slots_done(struct slots *slots)
{
    for (int i = 0; i < slots->count; i++)
        flow_done(&slots->flows[i]);
    free(slots->flows);
    *slots = (struct slots){0};
}

struct flow *slots_take(struct slots *slots)
{
    struct flow *flow = slots->free;
    if (flow) {
        slots->free = flow->next;
        slots->in_flight++;
    }
    return flow;
}

void slots_give_back(struct slots *slots, struct flow *flow)
{
    flow->next = slots->free;
    slots->free = flow;
    slots->in_flight--;
    assert(slots->in_flight >= 0);
}

/* While the peer recovers, no more events than it is offered calls; while it is away, one for the probe, and only when
 * that is due; while it rests or is paused, none, and after a rest one. */
static int peer_capacity(const struct target *target, int in_flight, int64_t now_ms)
{
    const struct breaker *breaker = &target->breaker;
    if (target->is_paused || target_rest_ms(target, now_ms) > 0)
        return 0;
    switch (breaker->state) {
    case BREAKER_CLOSED:
        if (breaker->is_doubted)
            return 1 - in_flight;
        return (breaker->limit < breaker->limit_max ? breaker->limit : 2 * breaker->limit) - in_flight;
    case BREAKER_HALF_OPEN:
        return 0;
    case BREAKER_OPEN:
        return breaker_capacity(breaker, now_ms) - in_flight;
    }
    assert(!"breaker states are covered above");
    return 0;
}

int slots_capacity(const struct slots *slots, const struct peers *peers, int64_t now_ms)
{
    int capacity = slots->count - slots->in_flight;
    int issuer = peer_capacity(&peers->issuer.target, slots->in_flight, now_ms);
    int core = peer_capacity(&peers->core.target, slots->in_flight, now_ms);
    if (issuer < capacity)
        capacity = issuer;
    if (core < capacity)
        capacity = core;
    return capacity > 0 ? capacity : 0;
}

int slots_claim_threshold(const struct slots *slots, const struct peers *peers)
{
    const struct breaker *issuer = &peers->issuer.target.breaker, *core = &peers->core.target.breaker;
    if (issuer->limit < issuer->limit_max || core->limit < core->limit_max)
        return 1; /* recovering: the limit of calls, not the slots, bounds the claim */
    int threshold = slots->count / CLAIM_THRESHOLD_PART;
    return threshold > CLAIM_THRESHOLD_MAX ? CLAIM_THRESHOLD_MAX : threshold > 1 ? threshold : 1;
}
