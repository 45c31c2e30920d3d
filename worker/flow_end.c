/* How an attempt ends: see flow_internal.h. Every end is a write that names the lease token.
 *
 * Whether a failure or a refusal is the event's or the target's is decided by evidence: by what the target answered to
 * other events in the same kind of call, as far as this worker saw it (target.h). Without evidence nothing ends: the
 * attempt is deferred, and the delay grows.
 *
 * Invariants: no end state is written over an unknown outcome without a look-up (flow_end_final asserts it); a deferral
 * gives the attempt back; what provably sent nothing says so (clear_sent). */
#include "worker/flow_internal.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "common/backoff.h"
#include "common/clock.h"
#include "common/log.h"
#include "worker/worker.h"

#define DEFER_LEAST_MS 50
#define DEFERRALS_PROVE 3 /* so many in a row for one cause, while others are answered well, are the event's fault */

static void on_end_written(struct write_op *op, enum write_result result, const char *why)
{
    struct flow *flow = container_of(op, struct flow, write);
    switch (result) {
    case WRITE_DONE:
        worker_count(flow->worker, WORKER_METRIC_ATTEMPTS, flow->end.outcome, NULL);
        flow_leave(flow);
        return;
    case WRITE_FENCED:
        flow_lease_lost(flow, "end");
        return;
    case WRITE_GIVEN_UP: /* the lease ends by itself, and the attempt is written down by whoever takes the event over */
        log_error("an attempt's end could not be written; its lease will run out",
                  LOG_TEXT("event_id", flow->event_text), LOG_TEXT("why", why));
        flow_leave(flow);
        return;
    }
}

static void log_end(const struct flow *flow)
{
    const struct write_end *end = &flow->end;
    bool is_news = end->status == OUTBOX_FAILED;
    bool is_usual = end->status == OUTBOX_COMPLETED || end->status == OUTBOX_REJECTED;
    log_at(is_news    ? LOG_WARNING
           : is_usual ? LOG_DEBUG
                      : LOG_INFO,
           "attempt ended", LOG_TEXT("event_id", flow->event_text), LOG_NUMBER("attempt", flow->attempt),
           LOG_TEXT("step", end->step), LOG_TEXT("outcome", end->outcome),
           LOG_TEXT("status", outbox_status_name(end->status)),
           LOG_TEXT("code", end->reason_code[0] ? end->reason_code : end->cause), LOG_TEXT("detail", end->detail),
           LOG_NUMBER("delay_ms", end->delay_ms), LOG_NUMBER("unknown", end->unknown));
}

static void put_end(struct flow *flow)
{
    struct write_end *end = &flow->end;
    end->step = flow_step_name(flow->step);
    end->unknown = flow->unknown && !flow->is_saved;
    if (end->status == OUTBOX_PENDING && flow->is_held) {
        end->held_end = flow_question_name(flow->question);
        snprintf(end->held_end_code, sizeof end->held_end_code, "%s", flow->held_code);
    }
    end->took_ms = clock_mono_ms() - flow->claimed_ms;
    end->card_status = flow->is_saved && flow->was_cancelled ? "cancelled" : NULL;
    snprintf(end->detail, sizeof end->detail, "%s", flow->outcome.detail);
    if (end->status != OUTBOX_COMPLETED) {
        const char *code = end->cause[0] ? end->cause : end->reason_code;
        snprintf(end->last_error, sizeof end->last_error, "%s: %s%s%s", end->step, code, end->detail[0] ? ": " : "",
                 end->detail);
    }
    log_end(flow);
    flow->write = (struct write_op){
        .kind = WRITE_END,
        .event_id = flow->event_id,
        .token = flow->token,
        .deadline_ms = flow->lease_until_ms,
        .end = end,
        .on_written = on_end_written,
    };
    writer_put(flow->worker->writer, &flow->write);
}

void flow_end_final(struct flow *flow, enum outbox_status status, const char *outcome, const char *code)
{
    /* The question was put to the issuer, or nothing can be (a payload that cannot be read was never sent). */
    assert(!flow->unknown || flow->is_saved || flow->question != ASKED_NOTHING || !flow->is_readable);
    flow->end = (struct write_end){.status = status, .outcome = outcome, .may_arrive = flow->may_arrive};
    if (code)
        snprintf(flow->end.reason_code, sizeof flow->end.reason_code, "%s", code);
    if (flow->outcome.code[0] && (!code || strcmp(code, flow->outcome.code) != 0))
        snprintf(flow->end.cause, sizeof flow->end.cause, "%s", flow->outcome.code);
    flow->end.clear_sent = !flow->unknown && !flow->is_saved;
    if (status == OUTBOX_COMPLETED && flow->payload.is_reissue)
        flow->end.replaces = uuid_parse(flow->payload.replaces, strlen(flow->payload.replaces), &flow->end.replaced);
    put_end(flow);
}

static void end_pending(struct flow *flow, const char *outcome, const char *cause, int64_t delay_ms, bool in_progress)
{
    flow->end = (struct write_end){
        .status = OUTBOX_PENDING,
        .outcome = outcome,
        .delay_ms = delay_ms,
        .give_back = strcmp(outcome, "deferred") == 0,
        .clear_sent = !flow->unknown && !flow->is_saved,
        .may_arrive = flow->may_arrive,
        .deferred = in_progress,
    };
    snprintf(flow->end.cause, sizeof flow->end.cause, "%s", cause);
    put_end(flow);
}

static struct target *target_of(const struct flow *flow)
{
    return flow_steps[flow->step].target ? flow_steps[flow->step].target(flow->worker) : NULL;
}

/* ---- how long a deferral lasts ---- */

/* Which deferral in a row for this answer of the peer the coming one is; 1 = the first. */
static int deferral_number(const struct flow *flow)
{
    bool is_same = flow->outcome.code[0] && strcmp(flow->deferral_code, flow->outcome.code) == 0;
    return is_same ? flow->deferral_count + 1 : 1;
}

/* Between half and all of it. */
static int64_t jitter_ms(int64_t most_ms)
{
    return most_ms / 2 + (int64_t)(backoff_random() % (uint64_t)(most_ms / 2 + 1));
}

/* As the number-th of a row; never so short that the event which has just failed a probe is the next probe while
 * another event is due, nor that it comes back while the target rests. */
static int64_t grown_ms(const struct flow *flow, int number)
{
    const struct config *config = flow->worker->config;
    const struct target *target = target_of(flow);
    int64_t now_ms = clock_mono_ms(),
            delay_ms = jitter_ms(backoff_ceiling_ms(number, config->retry.base_ms, config->retry.cap_ms));
    if (!target)
        return delay_ms;
    int64_t closed_ms = target_rest_ms(target, now_ms);
    if (target->breaker.state == BREAKER_OPEN && target->breaker.probe_at_ms - now_ms > closed_ms)
        closed_ms = target->breaker.probe_at_ms - now_ms;
    int64_t least_ms = closed_ms > 0 ? closed_ms + jitter_ms(config->retry.base_ms) : 0;
    return delay_ms > least_ms ? delay_ms : least_ms;
}

/* What is ours: soon again, or half as long again as it has lasted for a 409 that stays. */
static int64_t soon_ms(const struct flow *flow, bool in_progress)
{
    const struct config *config = flow->worker->config;
    int64_t most_ms = config->retry.base_ms;
    if (in_progress && flow->deferred_age_ms > most_ms)
        most_ms = flow->deferred_age_ms < config->retry.cap_ms ? flow->deferred_age_ms : config->retry.cap_ms;
    return jitter_ms(most_ms);
}

static void put_deferral(struct flow *flow, const char *code, int64_t delay_ms, bool row_goes_on)
{
    worker_count(flow->worker, WORKER_METRIC_DEFERRALS, code, NULL);
    end_pending(flow, "deferred", code, delay_ms > DEFER_LEAST_MS ? delay_ms : DEFER_LEAST_MS, row_goes_on);
}

/* ---- evidence ---- */

/* This is at least the third answer of this kind in a row, and another event was answered well since the one before.
 * kind: of call, or -1 = any. The event's last change is its last answer, whichever worker got it. */
static bool is_third_beside_good_ones(const struct flow *flow, int kind)
{
    return deferral_number(flow) >= DEFERRALS_PROVE &&
           target_answers_others(target_of(flow), kind, &flow->event_id, flow->claimed_ms - flow->changed_age_ms);
}

/* A failure that is the target's health ends nothing, however long it lasts, unless another event was answered well
 * during this attempt; or, where events are rare, between three such failures in a row. */
static bool others_fare_better(const struct flow *flow)
{
    return target_answers_others(target_of(flow), (int)flow->step, &flow->event_id, flow->claimed_ms) ||
           is_third_beside_good_ones(flow, (int)flow->step);
}

/* Where a look-up is refused again and again while the issuer answers others, and the key is past its lifetime: nobody
 * will ever tell, so it is a question for a person. */
static bool lookup_gave_up(const struct flow *flow)
{
    return flow->step == STEP_LOOKUP && flow->unknown && flow_is_expired(flow) && is_third_beside_good_ones(flow, -1);
}

/* 401, 403, 404, 405, 3xx for this event alone: what an unforeseen refusal is. False: nothing is proved yet. */
static bool end_refused(struct flow *flow)
{
    if (flow->step == STEP_LOOKUP) {
        if (!lookup_gave_up(flow))
            return false;
        flow_end_final(flow, OUTBOX_FAILED, "failed", "outcome_unknown");
        return true;
    }
    if (!is_third_beside_good_ones(flow, (int)flow->step))
        return false;
    char code[OUTBOX_REASON_CODE_SIZE];
    snprintf(code, sizeof code, "%s", flow->step == STEP_CANCEL ? "cancel_failed" : flow->outcome.code);
    if (flow->unknown && !flow->is_saved && flow->step != STEP_CANCEL) {
        flow->question = ASKED_UNFORESEEN;
        snprintf(flow->held_code, sizeof flow->held_code, "%s", code);
        flow_act(flow, (struct flow_verdict){.kind = FLOW_GO, .step = STEP_LOOKUP});
    } else {
        flow_end_final(flow, OUTBOX_FAILED, "failed", code);
    }
    return true;
}

/* ---- ends that are none ---- */

/* No more attempts: an unknown outcome is a question for the issuer first, then for a person. */
static void exhausted(struct flow *flow)
{
    bool is_open = flow->unknown && !flow->is_saved;
    if (is_open && flow->step == STEP_LOOKUP && flow_is_expired(flow) && flow->outcome.health != BREAKER_BAD) {
        /* Nobody can say what came of it, and no key settles it any more: a question for a person. */
        flow_end_final(flow, OUTBOX_FAILED, "failed", "outcome_unknown");
    } else if (is_open &&
               flow->step ==
                   STEP_LOOKUP) { /* the look-up itself gave no answer: no end state over an unknown outcome */
        const struct config *config = flow->worker->config;
        int64_t delay_ms =
            backoff_delay_ms(flow->attempt, config->retry.base_ms, config->retry.cap_ms, backoff_random());
        end_pending(flow, "retry", flow->outcome.code, delay_ms, false);
    } else if (is_open && flow->step != STEP_CANCEL && flow->step != STEP_MARK &&
               flow->question != ASKED_EXHAUSTED) { /* else it was looked up, and found, just now */
        flow->question = ASKED_EXHAUSTED;
        flow_act(flow, (struct flow_verdict){.kind = FLOW_GO, .step = STEP_LOOKUP});
    } else {
        flow_end_final(flow, OUTBOX_FAILED, "failed", "attempts_exhausted");
    }
}

/* No attempts left, and no evidence against the event: it goes on as deferrals. A card that it may have made is looked
 * for all the same. */
static void hold(struct flow *flow)
{
    if (flow->step == STEP_ISSUE && flow->unknown && flow->question == ASKED_NOTHING) {
        flow->question = ASKED_IN_OUTAGE;
        snprintf(flow->held_code, sizeof flow->held_code, "%s", flow->outcome.code);
        flow_act(flow, (struct flow_verdict){.kind = FLOW_GO, .step = STEP_LOOKUP});
        return;
    }
    put_deferral(flow, flow->outcome.code, grown_ms(flow, flow->attempt + deferral_number(flow)), false);
}

void flow_end_retry(struct flow *flow, const struct flow_verdict *verdict)
{
    const struct config *config = flow->worker->config;
    if (flow->attempt >= config->retry.max_attempts) {
        /* A last look-up is made again until it is answered, as exhausted() says. */
        bool is_last_question = flow->step == STEP_LOOKUP && flow->question != ASKED_IN_OUTAGE;
        if (flow->outcome.health == BREAKER_BAD && !is_last_question && !others_fare_better(flow))
            hold(flow);
        else
            exhausted(flow);
        return;
    }
    int64_t delay_ms = backoff_delay_ms(flow->attempt, config->retry.base_ms, config->retry.cap_ms, backoff_random());
    end_pending(flow, "retry", verdict->code, delay_ms > verdict->wait_ms ? delay_ms : verdict->wait_ms, false);
}

void flow_end_defer(struct flow *flow, const struct flow_verdict *verdict)
{
    const struct config *config = flow->worker->config;
    if (flow->question == ASKED_IN_OUTAGE && flow->outcome.kind == OUTCOME_EXECUTED) { /* looked for, and not found */
        snprintf(flow->outcome.code, sizeof flow->outcome.code, "%s", flow->held_code);
        hold(flow);
        return;
    }
    bool is_ours = flow->outcome.code[0] == '\0'; /* breaker, rest, drain: nothing was asked */
    if (verdict->in_progress && flow->deferred_age_ms >= config->issuer.key_lifetime_ms) {
        exhausted(flow);
        return;
    }
    if (flow->outcome.advice == ADVICE_CONFIGURATION && end_refused(flow))
        return;
    int64_t delay_ms = verdict->wait_ms;
    if (verdict->in_progress || is_ours) {
        if (delay_ms < 0)
            delay_ms = soon_ms(flow, verdict->in_progress);
        int64_t now_ms = clock_mono_ms(), rest_ms = target_rest_ms(&flow->worker->issuer, now_ms);
        int64_t core_ms = target_rest_ms(&flow->worker->core, now_ms);
        if (is_ours)
            delay_ms += rest_ms > core_ms ? rest_ms : core_ms;
    } else {
        /* A failed probe (BAD) is no news of the event; what it is answered itself is, and its delays grow. */
        int64_t grown = grown_ms(flow, flow->outcome.health == BREAKER_BAD ? 1 : deferral_number(flow));
        delay_ms = delay_ms > grown ? delay_ms : grown;
    }
    /* A deferral of our own says nothing about the peer's row of 409s: it goes on. */
    bool row_goes_on = verdict->in_progress || (is_ours && flow->deferred_age_ms >= 0);
    put_deferral(flow, verdict->code, delay_ms, row_goes_on);
}
