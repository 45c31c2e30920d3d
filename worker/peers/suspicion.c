/* See suspicion.h. Pure: the caller brings the time. */
#include "worker/peers/suspicion.h"

#include <stdio.h>

#define FIRST_PART 100 /* of the probe interval: the first pause */
#define MOST_PART 4    /* of it: the longest pause, and the first one of a dear kind */
#define DEAR_FACTOR 4

void suspicion_init(struct suspicion *suspicion, int failures_max, int64_t probe_interval_ms)
{
    *suspicion = (struct suspicion){.failures_max = failures_max,
                                    .probe_interval_ms = probe_interval_ms,
                                    .good_ms = INT64_MIN,
                                    .wary_until_ms = INT64_MIN};
}

bool suspicion_note_good(struct suspicion *suspicion, int64_t now_ms)
{
    bool was_suspected = suspicion->is_suspected;
    suspicion->good_ms = now_ms;
    suspicion->in_a_row = suspicion->event_count = 0;
    if (was_suspected) {
        suspicion->is_suspected = false;
        suspicion->wary_until_ms = now_ms + SUSPICION_WARY_MS;
    }
    return was_suspected;
}

static int64_t at_least_one(int64_t ms)
{
    return ms > 1 ? ms : 1;
}

static void plan_fresh(struct suspicion *suspicion, int64_t now_ms)
{
    int64_t most_ms = at_least_one(suspicion->probe_interval_ms / MOST_PART);
    if (suspicion->is_dear && most_ms < SUSPICION_DEAR_PAUSE_MAX_MS)
        most_ms = SUSPICION_DEAR_PAUSE_MAX_MS;
    suspicion->fresh_at_ms = now_ms + suspicion->pause_ms;
    suspicion->pause_ms *= suspicion->is_dear ? DEAR_FACTOR : 2;
    /* guard: refused probes do not double the interval as outages do */
    if (suspicion->pause_ms > most_ms)
        suspicion->pause_ms = most_ms;
}

static void suspect(struct suspicion *suspicion, bool is_dear, int64_t now_ms)
{
    suspicion->is_suspected = true;
    suspicion->is_dear = is_dear;
    suspicion->since_ms = now_ms;
    suspicion->pause_ms = at_least_one(suspicion->probe_interval_ms / (is_dear ? MOST_PART : FIRST_PART));
    plan_fresh(suspicion, now_ms);
    suspicion->again_at_ms = now_ms + suspicion->probe_interval_ms;
}

static void count(struct suspicion *suspicion, const struct uuid *event_id)
{
    bool is_known = false;
    for (int i = 0; i < suspicion->event_count; i++)
        is_known |= uuid_equal(&suspicion->events[i], event_id);
    if (!is_known && suspicion->event_count < SUSPICION_EVENTS)
        suspicion->events[suspicion->event_count++] = *event_id;
    if (suspicion->in_a_row < suspicion->failures_max * SUSPICION_FACTOR)
        suspicion->in_a_row++;
}

static bool is_proved(const struct suspicion *suspicion, int64_t now_ms)
{
    /* guard: only refusals of different events make a kind of call suspected */
    if (suspicion->in_a_row < suspicion->failures_max || suspicion->event_count < SUSPICION_EVENTS)
        return false;
    bool is_good = suspicion->good_ms != INT64_MIN && now_ms - suspicion->good_ms < SUSPICION_GOOD_MS;
    /* guard: while others are answered well refusals count against their events */
    return !is_good || suspicion->in_a_row >= suspicion->failures_max * SUSPICION_FACTOR;
}

bool suspicion_note_refused(struct suspicion *suspicion, const struct refusal *refusal, int64_t now_ms)
{
    bool was_suspected = suspicion->is_suspected;
    if (was_suspected || now_ms < suspicion->wary_until_ms)
        suspicion->wary_until_ms = now_ms + SUSPICION_WARY_MS;
    if (!was_suspected) {
        count(suspicion, &refusal->event_id);
        if (!is_proved(suspicion, now_ms))
            return false;
        suspect(suspicion, refusal->is_dear, now_ms);
        /* guard: calls that began before a suspicion put no probe off */
    } else if (!refusal->is_probe) { /* it began before: nothing new */
        return false;
    } else {
        /* guard: a refused event that is tried again puts no fresh probe off */
        if (!refusal->is_repeated)
            plan_fresh(suspicion, now_ms);
        suspicion->again_at_ms = now_ms + suspicion->probe_interval_ms;
    }
    snprintf(suspicion->cause, sizeof(suspicion->cause), "%s", refusal->cause ? refusal->cause : "");
    return !was_suspected;
}

bool suspicion_fresh_is_due(const struct suspicion *suspicion, int64_t now_ms)
{
    return suspicion->probes == 0 && now_ms >= suspicion->fresh_at_ms;
}

bool suspicion_again_is_due(const struct suspicion *suspicion, int64_t now_ms)
{
    return suspicion->probes == 0 && now_ms >= suspicion->again_at_ms;
}

void suspicion_hasten(struct suspicion *suspicion, int64_t now_ms)
{
    if (suspicion->fresh_at_ms > now_ms)
        suspicion->fresh_at_ms = now_ms;
    if (suspicion->again_at_ms > now_ms)
        suspicion->again_at_ms = now_ms;
}
