/* See slots.h. */
#include "worker/flow/slots.h"

#include <assert.h>
#include <limits.h>
#include <stdlib.h>

#define CLAIM_THRESHOLD_MAX 128
#define CLAIM_THRESHOLD_PART 8 /* of the slots */
#define FIRST_MAX 16           /* events by a claim that may find nothing, or the sure part where that is more */
#define SURE_PART 4            /* of an equal share; and of all slots, what is left free for types without events */

bool slots_init(struct slots *slots, int count, int shares_count, const struct flow_env *env, struct err *err)
{
    *slots = (struct slots){0};
    slots->flows = calloc((size_t)count, sizeof(*slots->flows));
    slots->shares = calloc((size_t)shares_count, sizeof(*slots->shares));
    if (!slots->flows || !slots->shares) {
        slots_done(slots);
        return err_set(err, ERR_MEMORY, "no memory for %d slots", count);
    }
    slots->count = count;
    slots->shares_count = shares_count;
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
    free(slots->shares);
    *slots = (struct slots){0};
}

struct flow *slots_take(struct slots *slots, struct slots_share *share, bool is_probe)
{
    struct flow *flow = slots->free;
    if (flow) {
        slots->free = flow->next;
        slots->in_flight++;
        share->in_flight++;
        share->probes += is_probe;
        flow->share = share;
        flow->is_probe = is_probe;
    }
    return flow;
}

void slots_give_back(struct slots *slots, struct flow *flow)
{
    flow->next = slots->free;
    slots->free = flow;
    slots->in_flight--;
    flow->share->in_flight--;
    flow->share->probes -= flow->is_probe;
    assert(slots->in_flight >= 0 && flow->share->in_flight >= 0);
}

int slots_held(const struct slots_share *share)
{
    return share->in_flight + share->granted;
}

bool slots_are_empty(const struct slots *slots)
{
    /* guard: a claim that is in flight may bring events beside the one that is tried alone */
    return slots->in_flight == 0 && slots->granted == 0;
}

void slots_grant(struct slots *slots, struct slots_share *share, int count)
{
    assert(share->granted == 0 && count > 0 && slots->in_flight + slots->granted + count <= slots->count);
    share->granted = count;
    share->served = ++slots->grants;
    slots->granted += count;
}

void slots_settle(struct slots *slots, struct slots_share *share)
{
    slots->granted -= share->granted;
    share->granted = 0;
}

/* ---- what targets can take ---- */

bool slots_is_probe(const struct slots_share *share)
{
    for (int i = 0; i < SLOTS_TARGETS_MAX && share->targets[i]; i++)
        if (share->targets[i]->suspected > 0)
            return true;
    return false;
}

/* All targets with a suspected kind must agree on the probe, and there is one at a time. */
static enum slots_choice choose_probe(const struct slots_share *share, int64_t now_ms)
{
    bool is_fresh_due = share->probes == 0, is_again_due = share->probes == 0;
    for (int i = 0; i < SLOTS_TARGETS_MAX && share->targets[i]; i++) {
        bool fresh, again;
        target_probes_due(share->targets[i], now_ms, &fresh, &again);
        is_fresh_due &= fresh;
        is_again_due &= again;
    }
    if (is_fresh_due)
        /* guard: a probe is an event that was not refused before */
        return is_again_due ? SLOTS_FRESH_FIRST : SLOTS_FRESH;
    return is_again_due ? SLOTS_REFUSED : SLOTS_NONE;
}

enum slots_choice slots_choose(const struct slots_share *share, int64_t now_ms)
{
    if (slots_is_probe(share))
        return choose_probe(share, now_ms);
    for (int i = 0; i < SLOTS_TARGETS_MAX && share->targets[i]; i++)
        /* guard: behind a suspicion fresh events go first */
        if (target_is_wary(share->targets[i], now_ms))
            return SLOTS_FRESH_FIRST;
    return SLOTS_OLDEST;
}

/* While the target recovers, no more events than it is offered calls; while it is away, one for the probe, and only
 * when that is due; while it rests or is paused, none, and after a rest one. */
static int room_of(const struct target *target, int in_flight, int64_t now_ms)
{
    const struct breaker *breaker = &target->breaker;
    /* guard: nothing is claimed while a target is paused */
    if (target->is_paused || target->is_unusable || target_rest_ms(target, now_ms) > 0)
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

int slots_target_room(const struct slots_share *share, int64_t now_ms)
{
    int least = INT_MAX;
    for (int i = 0; i < SLOTS_TARGETS_MAX && share->targets[i]; i++) {
        int room = room_of(share->targets[i], slots_held(share), now_ms);
        if (room < least)
            least = room;
    }
    if (least > 0 && slots_is_probe(share))
        return slots_choose(share, now_ms) == SLOTS_NONE ? 0 : 1;
    return least > 0 ? least : 0;
}

bool slots_target_is_open(const struct slots_share *share, int64_t now_ms)
{
    if (slots_is_probe(share) && slots_choose(share, now_ms) == SLOTS_NONE)
        return false;
    for (int i = 0; i < SLOTS_TARGETS_MAX && share->targets[i]; i++)
        if (room_of(share->targets[i], 0, now_ms) <= 0)
            return false;
    return true;
}

/* ---- what each type may take ---- */

static int at_least(int number, int least)
{
    return number > least ? number : least;
}

static int at_most(int number, int most)
{
    return number < most ? number : most;
}

static int sure_part(const struct slots *slots)
{
    return at_least(slots->count / slots->shares_count / SURE_PART, 1);
}

/* Of the slots, by the types that have events which can be sent now, this one included. */
static int equal_share(const struct slots *slots, const struct slots_share *share, int64_t now_ms)
{
    int types = 1;
    for (const struct slots_share *other = slots->shares; other < slots->shares + slots->shares_count; other++)
        types +=
            other != share && (slots_held(other) > 0 || (other->is_hungry && slots_target_room(other, now_ms) > 0));
    return at_least(slots->count / types, 1);
}

/* Slots that the others need before this type takes more than ... */
struct needs {
    int first; /* anything: their sure parts, where they were served longer ago */
    int sure;  /* its own sure part: all their sure parts */
    int equal; /* an equal share: the rest of their equal shares */
};

static struct needs needs_of_others(const struct slots *slots, const struct slots_share *share, int equal,
                                    int64_t now_ms)
{
    struct needs needs = {0};
    int sure = sure_part(slots), idle = 0;
    for (const struct slots_share *other = slots->shares; other < slots->shares + slots->shares_count; other++) {
        int held = slots_held(other);
        if (other == share || (held >= sure && !other->is_hungry))
            continue;
        int room = slots_target_room(other, now_ms);
        int to_sure = at_most(at_least(sure - held, 0), room);
        if (!other->is_hungry) {
            idle += to_sure;
            continue;
        }
        needs.sure += to_sure;
        if (other->has_backlog)
            needs.equal += at_most(at_least(equal - held, 0), room) - to_sure;
        /* guard: with fewer slots than types the one that waits longest goes first */
        if (other->served < share->served)
            needs.first += to_sure;
    }
    /* guard: every type is sure of its small part */
    /* guard: a type keeps slots that another one does not get */
    needs.sure += at_most(idle, slots->count / SURE_PART);
    return needs;
}

int slots_capacity(const struct slots *slots, const struct slots_share *share, int64_t now_ms)
{
    int free = slots->count - slots->in_flight - slots->granted;
    int wanted = at_most(slots_target_room(share, now_ms), free);
    if (wanted <= 0 || slots->shares_count == 1)
        return at_least(wanted, 0);
    int sure = sure_part(slots), equal = at_least(equal_share(slots, share, now_ms), sure), held = slots_held(share);
    struct needs needs = needs_of_others(slots, share, equal, now_ms);
    /* guard: a type above its equal share leaves the others theirs */
    int capacity = at_least(free - needs.sure - needs.equal, at_most(equal - held, free - needs.sure));
    capacity = at_least(capacity, at_most(sure - held, free - needs.first));
    /* How many are due is not known before a claim was filled, and a claim that finds nothing keeps them from
     * others. */
    if (!share->has_backlog)
        capacity = at_most(capacity, at_least(sure, FIRST_MAX));
    return at_least(at_most(capacity, wanted), 0);
}

int slots_claim_threshold(const struct slots *slots, const struct slots_share *share, int64_t now_ms)
{
    for (int i = 0; i < SLOTS_TARGETS_MAX && share->targets[i]; i++)
        if (share->targets[i]->suspected > 0 || share->targets[i]->breaker.limit < share->targets[i]->breaker.limit_max)
            return 1; /* a probe, or recovering: the limit of calls, not the slots, bounds the claim */
    int threshold = at_most(slots->count / CLAIM_THRESHOLD_PART, equal_share(slots, share, now_ms) / 2);
    return at_least(at_most(threshold, CLAIM_THRESHOLD_MAX), 1);
}
