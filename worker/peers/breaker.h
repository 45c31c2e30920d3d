/* A circuit breaker (pure): decides when one more call may start, by what the last calls showed of the peer's health.
 *
 * CLOSED: calls start up to a limit. OPEN: none, until probe_at_ms. HALF_OPEN: one probe is in flight. A good probe
 * closes it with a limit of 1, which grows by one with every success (so it doubles each round trip) up to the full
 * limit: recovery is gradual. A failed probe doubles the interval, up to 30 s. Results of calls that began before the
 * last change of state do not count for the new state: each call carries an epoch.
 *
 * A peer that answers "too many requests" (BUSY) is not away, so the breaker stays closed, and the limit adapts:
 * additive increase, multiplicative decrease. BUSY halves it and begins a new epoch, so the calls that were in flight
 * at the same moment halve it once. Then calls are sent one at a time until one of them is answered otherwise, and
 * above the halved limit it grows by one only for each `limit` successes. How long the peer rests is target.h's. */
#ifndef ISSUING_BREAKER_H
#define ISSUING_BREAKER_H

#include "common/core/decide/outcome.h"
#include "common/lib/base/base.h"

#define BREAKER_PROBE_INTERVAL_MAX_MS 30000
#define BREAKER_CAUSE_SIZE 65

enum breaker_state {
    BREAKER_CLOSED = 0,
    BREAKER_HALF_OPEN = 1,
    BREAKER_OPEN = 2
}; /* the values of issuing_breaker_state */

struct breaker {
    enum breaker_state state;
    int failures; /* in a row */
    int failures_max;
    int in_flight;
    int limit; /* calls at a time now */
    int limit_max;
    int quick_up_to; /* below this the limit grows by one with every success, above it with every `limit` successes */
    int successes;   /* since it last grew */
    bool is_doubted; /* the last answer was BUSY: one call at a time */
    uint32_t epoch;
    int in_epoch; /* calls in flight that began in this epoch */
    int64_t probe_interval_ms, probe_interval_first_ms;
    int64_t probe_at_ms; /* OPEN: not before */
    int64_t since_ms;    /* CLOSED: since it closed, or began; OPEN, HALF_OPEN: since it opened */
    /* OPEN, HALF_OPEN: the code of the last failure that opened it or kept it open; "" = CLOSED. */
    char cause[BREAKER_CAUSE_SIZE];
};

/* "closed", "half_open" or "open". */
const char *breaker_state_name(enum breaker_state state);
void breaker_init(struct breaker *breaker, int failures_max, int64_t probe_interval_ms, int limit_max, int64_t now_ms);
/* How many more calls may start now: 0 while open or at its limit, 1 for a probe that is due. */
int breaker_capacity(const struct breaker *breaker, int64_t now_ms);
/* OPEN and no probe is due, or a probe is in flight: a call may neither start nor wait. */
bool breaker_rejects(const struct breaker *breaker, int64_t now_ms);
/* Only when breaker_capacity() > 0. Returns the call's epoch for breaker_end. */
uint32_t breaker_start(struct breaker *breaker, int64_t now_ms);
/* A call that starts in any state and at any limit. It counts as in flight; unless the breaker is CLOSED, its end shows
 * nothing. */
uint32_t breaker_start_beside(struct breaker *breaker);
/* cause: the code of the answer, such as "issuer_http_503"; copied where it opens the breaker. NULL = none. */
void breaker_end(struct breaker *breaker, uint32_t epoch, enum breaker_result result, const char *cause,
                 int64_t now_ms);
/* OPEN: the next probe is due now. */
void breaker_hasten(struct breaker *breaker, int64_t now_ms);
/* CLOSED: from now on, and with few calls at a time, whose number doubles each round trip up to what it was. */
void breaker_ramp(struct breaker *breaker, int64_t now_ms);

#endif
