/* See target.h. */
#include "worker/peers/target.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "common/core/outbox.h"
#include "common/lib/base/clock.h"

void target_init(struct target *target, int failures_max, int64_t probe_interval_ms, int concurrency_max,
                 void (*on_change)(struct target *target))
{
    *target = (struct target){.on_change = on_change, .rest_until_ms = INT64_MIN, .pause_ms = TARGET_REST_LEAST_MS};
    TAILQ_INIT(&target->waiting);
    for (int kind = 0; kind < TARGET_KINDS; kind++) {
        target->good[kind].last.at_ms = target->good[kind].other.at_ms = INT64_MIN;
        suspicion_init(&target->suspicions[kind], failures_max, probe_interval_ms);
    }
    breaker_init(&target->breaker, failures_max, probe_interval_ms, concurrency_max, clock_mono_ms());
}

/* ---- evidence ---- */

static void note_good(struct target *target, const struct target_ticket *ticket, int64_t now_ms)
{
    struct target_answer *last = &target->good[ticket->kind].last;
    if (!uuid_equal(&last->event_id, &ticket->event_id)) {
        target->good[ticket->kind].other = *last;
        last->event_id = ticket->event_id;
    }
    last->at_ms = now_ms;
    /* guard: a good answer of one kind of call says nothing about another */
    if (suspicion_note_good(&target->suspicions[ticket->kind], now_ms)) {
        target->suspected--;
        breaker_ramp(&target->breaker, now_ms);
    }
}

static bool answers_others(const struct target *target, int kind, const struct uuid *event_id, int64_t since_ms)
{
    const struct target_answer *answer = &target->good[kind].last;
    /* guard: the event's own answer is not evidence */
    if (uuid_equal(&answer->event_id, event_id))
        answer = &target->good[kind].other;
    return answer->at_ms != INT64_MIN && answer->at_ms >= since_ms;
}

bool target_answers_others(const struct target *target, int kind, const struct uuid *event_id, int64_t since_ms)
{
    assert(kind < TARGET_KINDS);
    if (kind >= 0)
        return answers_others(target, kind, event_id, since_ms);
    for (kind = 0; kind < TARGET_KINDS; kind++)
        if (answers_others(target, kind, event_id, since_ms))
            return true;
    return false;
}

static void note_refused(struct target *target, const struct target_ticket *ticket, const char *cause, int64_t now_ms)
{
    const struct refusal refusal = {
        .event_id = ticket->event_id,
        .is_repeated = ticket->is_repeated,
        .is_probe = ticket->is_probe,
        .is_dear = ticket->is_dear,
        .cause = cause,
    };
    /* guard: refusals of calls aside open nothing */
    if (!ticket->is_aside && suspicion_note_refused(&target->suspicions[ticket->kind], &refusal, now_ms))
        target->suspected++;
}

/* The suspected kind that is so since longest; NULL = there is none. */
static const struct suspicion *suspected(const struct target *target)
{
    const struct suspicion *first = NULL;
    for (int kind = 0; target->suspected > 0 && kind < TARGET_KINDS; kind++) {
        const struct suspicion *suspicion = &target->suspicions[kind];
        if (suspicion->is_suspected && (!first || suspicion->since_ms < first->since_ms))
            first = suspicion;
    }
    return first;
}

void target_probes_due(const struct target *target, int64_t now_ms, bool *ret_fresh, bool *ret_again)
{
    *ret_fresh = *ret_again = true;
    for (int kind = 0; kind < TARGET_KINDS; kind++) {
        const struct suspicion *suspicion = &target->suspicions[kind];
        if (!suspicion->is_suspected)
            continue;
        *ret_fresh &= suspicion_fresh_is_due(suspicion, now_ms);
        *ret_again &= suspicion_again_is_due(suspicion, now_ms);
    }
}

bool target_is_wary(const struct target *target, int64_t now_ms)
{
    for (int kind = 0; kind < TARGET_KINDS; kind++)
        if (target->suspicions[kind].wary_until_ms > now_ms)
            return true;
    return target->suspected > 0;
}

/* ---- pauses of our own ---- */

static void stop(struct target *target, const char *why)
{
    target->is_paused = true;
    snprintf(target->stopped_why, sizeof(target->stopped_why), "%s", why);
}

void target_note_create(struct target *target, const struct uuid *event_id, const char *code)
{
    char why[TARGET_WHY_SIZE];
    target->refused.is_over |= !code;
    if (target->refused.is_over || uuid_equal(&target->refused.last, event_id))
        return;
    if (strcmp(target->refused.code, code) != 0)
        target->refused.count = 0;
    target->refused.last = *event_id;
    snprintf(target->refused.code, sizeof(target->refused.code), "%s", code);
    if (++target->refused.count < TARGET_REFUSALS_MAX)
        return;
    target->refused.count = 0;
    snprintf(why, sizeof(why),
             "%d creates in a row were refused with %s, and none was executed: a setting may be wrong",
             TARGET_REFUSALS_MAX, code);
    /* guard: what is refused to every user stops */
    stop(target, why);
}

/* ---- what operators see ---- */

enum breaker_state target_state(const struct target *target)
{
    const struct suspicion *suspicion = suspected(target);
    if (target->is_unusable)
        return BREAKER_OPEN;
    if (target->breaker.state != BREAKER_CLOSED || !suspicion)
        return target->breaker.state;
    return suspicion->probes > 0 ? BREAKER_HALF_OPEN : BREAKER_OPEN;
}

int64_t target_since_ms(const struct target *target)
{
    const struct suspicion *suspicion = suspected(target);
    return target->breaker.state == BREAKER_CLOSED && suspicion ? suspicion->since_ms : target->breaker.since_ms;
}

const char *target_cause(const struct target *target)
{
    const struct suspicion *suspicion = suspected(target);
    if (target->is_unusable)
        return outbox_cause_name(OUTBOX_CAUSE_FILE_UNUSABLE);
    return target->breaker.state == BREAKER_CLOSED && suspicion ? suspicion->cause : target->breaker.cause;
}

int64_t target_probe_at_ms(const struct target *target)
{
    const struct suspicion *suspicion = suspected(target);
    int64_t at_ms = target->breaker.state != BREAKER_CLOSED ? target->breaker.probe_at_ms : INT64_MIN;
    return suspicion && suspicion->again_at_ms > at_ms ? suspicion->again_at_ms : at_ms;
}

/* ---- rest ---- */

static void rest(struct target *target, int64_t retry_after_ms, int64_t now_ms)
{
    int64_t rest_ms = TARGET_REST_LEAST_MS;
    /* guard: one user's 429 rests the others for a moment only */
    if (!target->breaker.is_doubted) {
        target->pause_ms = TARGET_REST_LEAST_MS;
    } else { /* the second in a row: it is not one user's limit */
        target->pause_ms = target->pause_ms < TARGET_PAUSE_MAX_MS / 2 ? target->pause_ms * 2 : TARGET_PAUSE_MAX_MS;
        rest_ms = retry_after_ms < 0 ? target->pause_ms : retry_after_ms;
    }
    if (rest_ms < TARGET_REST_LEAST_MS)
        rest_ms = TARGET_REST_LEAST_MS;
    if (rest_ms > TARGET_REST_MAX_MS)
        rest_ms = TARGET_REST_MAX_MS;
    if (target->rest_until_ms < now_ms + rest_ms)
        target->rest_until_ms = now_ms + rest_ms;
}

int64_t target_rest_ms(const struct target *target, int64_t now_ms)
{
    return target->rest_until_ms > now_ms ? target->rest_until_ms - now_ms : 0;
}

const char *target_closed_by(const struct target *target, int64_t now_ms)
{
    if (target->is_paused)
        return outbox_cause_name(OUTBOX_CAUSE_TARGET_PAUSED);
    if (target->is_unusable || breaker_rejects(&target->breaker, now_ms))
        return outbox_cause_name(OUTBOX_CAUSE_BREAKER_OPEN);
    return target_rest_ms(target, now_ms) > 0 ? outbox_cause_name(OUTBOX_CAUSE_TARGET_RESTING) : NULL;
}

static int64_t sooner_ms(int64_t next_ms, int64_t at_ms, int64_t now_ms)
{
    return at_ms > now_ms && at_ms < next_ms ? at_ms : next_ms;
}

int64_t target_next_ms(const struct target *target, int64_t now_ms)
{
    int64_t next_ms = sooner_ms(INT64_MAX, target->rest_until_ms, now_ms);
    for (int kind = 0; target->suspected > 0 && kind < TARGET_KINDS; kind++) {
        const struct suspicion *suspicion = &target->suspicions[kind];
        if (suspicion->is_suspected)
            next_ms = sooner_ms(sooner_ms(next_ms, suspicion->fresh_at_ms, now_ms), suspicion->again_at_ms, now_ms);
    }
    return next_ms;
}

/* ---- the queue ---- */

/* The kind is suspected, and the call cannot be a probe now. A call whose event was not claimed as one may be: it is
 * behind the calls that were held back. */
static bool is_suspect(const struct target *target, const struct target_ticket *ticket, int64_t now_ms)
{
    const struct suspicion *suspicion = &target->suspicions[ticket->kind];
    return suspicion->is_suspected &&
           /* guard: calls of a suspected kind go one at a time */
           (suspicion->probes > 0 || (!ticket->may_probe && !suspicion_fresh_is_due(suspicion, now_ms)));
}

static bool rejects(const struct target *target, const struct target_ticket *ticket, int64_t now_ms)
{
    /* guard: no call goes to a paused target */
    return target->is_paused || target->is_unusable || breaker_rejects(&target->breaker, now_ms) ||
           target_rest_ms(target, now_ms) > TARGET_REST_WAIT_MS || is_suspect(target, ticket, now_ms);
}

static void start(struct target *target, struct target_ticket *ticket, int64_t now_ms)
{
    struct suspicion *suspicion = &target->suspicions[ticket->kind];
    ticket->epoch = breaker_start(&target->breaker, now_ms);
    ticket->is_probe = suspicion->is_suspected;
    if (ticket->is_probe)
        suspicion->probes++;
}

static bool has_capacity(const struct target *target, int64_t now_ms)
{
    return target_rest_ms(target, now_ms) == 0 && breaker_capacity(&target->breaker, now_ms) > 0;
}

static void stop_waiting(struct target *target, struct target_ticket *ticket)
{
    TAILQ_REMOVE(&target->waiting, ticket, link);
    ticket->is_waiting = false;
    target->waiting_count--;
}

enum target_entry target_enter(struct target *target, struct target_ticket *ticket)
{
    assert(!ticket->is_waiting && ticket->kind >= 0 && ticket->kind < TARGET_KINDS);
    int64_t now_ms = clock_mono_ms();
    if (rejects(target, ticket, now_ms))
        return TARGET_REJECTED;
    if (TAILQ_EMPTY(&target->waiting) && has_capacity(target, now_ms)) {
        start(target, ticket, now_ms);
        return TARGET_ADMITTED;
    }
    TAILQ_INSERT_TAIL(&target->waiting, ticket, link);
    ticket->is_waiting = true;
    target->waiting_count++;
    return TARGET_QUEUED;
}

const char *target_enter_beside(struct target *target, struct target_ticket *ticket)
{
    /* guard: no question is sent to a paused target, nor while it rests */
    if (target->is_paused)
        return "it is paused";
    if (target->is_unusable)
        return "a file of it cannot be used";
    if (target_rest_ms(target, clock_mono_ms()) > 0)
        return "it answered 429, and rests";
    *ticket = (struct target_ticket){.epoch = breaker_start_beside(&target->breaker)};
    return NULL;
}

static void admit_next(struct target *target, int64_t now_ms)
{
    if (target->is_admitting)
        return; /* called from on_admitted in the loop below, which goes on */
    target->is_admitting = true;
    for (struct target_ticket *next; (next = TAILQ_FIRST(&target->waiting));) {
        if (rejects(target, next, now_ms)) {
            stop_waiting(target, next);
            next->on_admitted(next, TARGET_REJECTED);
        } else if (has_capacity(target, now_ms)) {
            stop_waiting(target, next);
            start(target, next, now_ms);
            next->on_admitted(next, TARGET_ADMITTED);
        } else {
            break;
        }
    }
    target->is_admitting = false;
    target->on_change(target);
}

void target_leave(struct target *target, struct target_ticket *ticket, enum breaker_result result, const char *cause,
                  int64_t retry_after_ms)
{
    int64_t now_ms = clock_mono_ms();
    bool is_old =
        ticket->epoch != target->breaker.epoch; /* it began before the last change of state: does not count now */
    if (ticket->is_probe)
        target->suspicions[ticket->kind].probes--;
    if (result == BREAKER_GOOD)
        note_good(target, ticket, now_ms);
    else if (result == BREAKER_REFUSED)
        note_refused(target, ticket, cause, now_ms);
    else if (result == BREAKER_GONE)
        /* guard: nothing is sent after a 410 */
        stop(target, "its receiver answered 410");
    else if (result == BREAKER_BUSY && !is_old)
        rest(target, retry_after_ms, now_ms);
    breaker_end(&target->breaker, ticket->epoch, result, cause, now_ms);
    admit_next(target, now_ms);
}

void target_wake(struct target *target)
{
    admit_next(target, clock_mono_ms());
}

void target_set_paused(struct target *target, bool is_paused)
{
    target->is_paused = is_paused;
    admit_next(target, clock_mono_ms());
}

void target_set_unusable(struct target *target, bool is_unusable)
{
    target->is_unusable = is_unusable;
    admit_next(target, clock_mono_ms());
}

void target_probe(struct target *target)
{
    int64_t now_ms = clock_mono_ms();
    breaker_hasten(&target->breaker, now_ms);
    for (int kind = 0; kind < TARGET_KINDS; kind++)
        suspicion_hasten(&target->suspicions[kind], now_ms);
    if (target->rest_until_ms > now_ms)
        target->rest_until_ms = now_ms;
    admit_next(target, now_ms);
}
