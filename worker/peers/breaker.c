/* See breaker.h. Pure: the caller brings the time. */
#include "worker/peers/breaker.h"

#include <assert.h>
#include <stdio.h>

#define RAMP_LIMIT 16 /* the calls at a time of a peer that can be reached, and takes calls again */

const char *breaker_state_name(enum breaker_state state)
{
    static const char *const names[] = {
        [BREAKER_CLOSED] = "closed", [BREAKER_HALF_OPEN] = "half_open", [BREAKER_OPEN] = "open"};
    return names[state];
}

void breaker_init(struct breaker *breaker, int failures_max, int64_t probe_interval_ms, int limit_max, int64_t now_ms)
{
    *breaker = (struct breaker){
        .state = BREAKER_CLOSED,
        .failures_max = failures_max,
        .limit = limit_max,
        .limit_max = limit_max,
        .quick_up_to = limit_max,
        .probe_interval_ms = probe_interval_ms,
        .probe_interval_first_ms = probe_interval_ms,
        .since_ms = now_ms,
    };
}

int breaker_capacity(const struct breaker *breaker, int64_t now_ms)
{
    switch (breaker->state) {
    case BREAKER_CLOSED:
        if (breaker->limit <= breaker->in_flight)
            return 0;
        if (breaker->is_doubted)
            return breaker->in_epoch == 0 ? 1 : 0;
        return breaker->limit - breaker->in_flight;
    case BREAKER_HALF_OPEN:
        return 0;
    case BREAKER_OPEN:
        return now_ms >= breaker->probe_at_ms ? 1 : 0;
    }
    assert(!"breaker states are covered above");
    return 0;
}

bool breaker_rejects(const struct breaker *breaker, int64_t now_ms)
{
    return breaker->state == BREAKER_HALF_OPEN || (breaker->state == BREAKER_OPEN && now_ms < breaker->probe_at_ms);
}

static void begin_epoch(struct breaker *breaker)
{
    breaker->epoch++;
    breaker->in_epoch = 0;
}

uint32_t breaker_start(struct breaker *breaker, int64_t now_ms)
{
    assert(breaker_capacity(breaker, now_ms) > 0);
    if (breaker->state == BREAKER_OPEN) {
        breaker->state = BREAKER_HALF_OPEN;
        begin_epoch(breaker);
    }
    breaker->in_flight++;
    breaker->in_epoch++;
    return breaker->epoch;
}

uint32_t breaker_start_beside(struct breaker *breaker)
{
    /* guard: a question is not a probe of an open breaker */
    bool counts = breaker->state == BREAKER_CLOSED;
    breaker->in_flight++;
    breaker->in_epoch += counts ? 1 : 0;
    return counts ? breaker->epoch : breaker->epoch - 1;
}

static void trip(struct breaker *breaker, const char *cause, int64_t now_ms)
{
    if (breaker->state == BREAKER_CLOSED)
        breaker->since_ms = now_ms;
    snprintf(breaker->cause, sizeof(breaker->cause), "%s", cause ? cause : "");
    breaker->state = BREAKER_OPEN;
    begin_epoch(breaker);
    breaker->failures = 0;
    breaker->is_doubted = false;
    breaker->probe_at_ms = now_ms + breaker->probe_interval_ms;
}

static void close_after_probe(struct breaker *breaker, int64_t now_ms)
{
    breaker->state = BREAKER_CLOSED;
    breaker->since_ms = now_ms;
    breaker->cause[0] = '\0';
    begin_epoch(breaker);
    breaker->failures = 0;
    breaker->limit = 1;
    breaker->quick_up_to = breaker->limit_max;
    breaker->successes = 0;
    breaker->probe_interval_ms = breaker->probe_interval_first_ms;
}

static void slow_down(struct breaker *breaker)
{
    /* guard: calls in flight together halve the limit once */
    begin_epoch(breaker);
    breaker->failures = 0;
    breaker->limit = breaker->limit > 1 ? breaker->limit / 2 : 1;
    breaker->quick_up_to = breaker->limit;
    breaker->successes = 0;
    breaker->is_doubted = true;
}

static void speed_up(struct breaker *breaker)
{
    if (breaker->limit >= breaker->limit_max)
        return;
    if (breaker->limit >= breaker->quick_up_to && ++breaker->successes < breaker->limit)
        return;
    breaker->successes = 0;
    breaker->limit++;
}

static void end_probe(struct breaker *breaker, enum breaker_result result, const char *cause, int64_t now_ms)
{
    switch (result) {
    case BREAKER_GOOD:
    case BREAKER_ANSWERED:
    case BREAKER_REFUSED:
        close_after_probe(breaker, now_ms);
        return;
    case BREAKER_BUSY: /* it can be reached, but must be called less */
        close_after_probe(breaker, now_ms);
        slow_down(breaker);
        return;
    case BREAKER_GONE:
        trip(breaker, cause, now_ms);
        return;
    case BREAKER_BAD:
        breaker->probe_interval_ms *= 2;
        if (breaker->probe_interval_ms > BREAKER_PROBE_INTERVAL_MAX_MS)
            breaker->probe_interval_ms = BREAKER_PROBE_INTERVAL_MAX_MS;
        trip(breaker, cause, now_ms);
        return;
    case BREAKER_NOTHING: /* the probe was not sent: the next one may start at once */
        breaker->state = BREAKER_OPEN;
        begin_epoch(breaker);
        breaker->probe_at_ms = now_ms;
        return;
    }
    assert(!"breaker results are covered above");
}

static void end_in_closed(struct breaker *breaker, enum breaker_result result, const char *cause, int64_t now_ms)
{
    if (result != BREAKER_NOTHING)
        breaker->is_doubted = false;
    switch (result) {
    case BREAKER_GOOD:
    case BREAKER_ANSWERED:
    case BREAKER_REFUSED:
        breaker->failures = 0;
        speed_up(breaker);
        return;
    case BREAKER_BAD:
        /* guard: enough failures in a row open the breaker */
        if (++breaker->failures >= breaker->failures_max)
            trip(breaker, cause, now_ms);
        return;
    case BREAKER_GONE:
        trip(breaker, cause, now_ms);
        return;
    case BREAKER_BUSY:
        slow_down(breaker);
        return;
    case BREAKER_NOTHING:
        return;
    }
    assert(!"breaker results are covered above");
}

void breaker_end(struct breaker *breaker, uint32_t epoch, enum breaker_result result, const char *cause, int64_t now_ms)
{
    assert(breaker->in_flight > 0);
    breaker->in_flight--;
    if (epoch != breaker->epoch)
        return;
    assert(breaker->in_epoch > 0);
    breaker->in_epoch--;
    if (breaker->state == BREAKER_HALF_OPEN)
        end_probe(breaker, result, cause, now_ms);
    else if (breaker->state == BREAKER_CLOSED)
        end_in_closed(breaker, result, cause, now_ms);
}

void breaker_hasten(struct breaker *breaker, int64_t now_ms)
{
    if (breaker->state == BREAKER_OPEN && breaker->probe_at_ms > now_ms)
        breaker->probe_at_ms = now_ms;
}

void breaker_ramp(struct breaker *breaker, int64_t now_ms)
{
    if (breaker->state != BREAKER_CLOSED)
        return;
    breaker->since_ms = now_ms;
    if (breaker->quick_up_to < breaker->limit)
        breaker->quick_up_to = breaker->limit;
    if (breaker->limit > RAMP_LIMIT)
        breaker->limit = RAMP_LIMIT;
    breaker->successes = 0;
}
