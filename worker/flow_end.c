/* How an attempt ends: see flow_internal.h. Every end is a write that names the lease token.
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

void flow_end_retry(struct flow *flow, const struct flow_verdict *verdict)
{
    const struct config *config = flow->worker->config;
    if (flow->attempt >= config->retry.max_attempts) {
        exhausted(flow);
        return;
    }
    int64_t delay_ms = backoff_delay_ms(flow->attempt, config->retry.base_ms, config->retry.cap_ms, backoff_random());
    end_pending(flow, "retry", verdict->code, delay_ms > verdict->wait_ms ? delay_ms : verdict->wait_ms, false);
}

/* Where the peer does not say how long: soon for what is ours; half as long again as it has lasted for a 409 that
 * stays. */
static int64_t deferral_ms(const struct flow *flow, bool in_progress)
{
    const struct config *config = flow->worker->config;
    int64_t most_ms = config->retry.base_ms;
    if (in_progress && flow->deferred_age_ms > most_ms)
        most_ms = flow->deferred_age_ms < config->retry.cap_ms ? flow->deferred_age_ms : config->retry.cap_ms;
    return most_ms / 2 + (int64_t)(backoff_random() % (uint64_t)(most_ms / 2 + 1));
}

void flow_end_defer(struct flow *flow, const struct flow_verdict *verdict)
{
    const struct config *config = flow->worker->config;
    if (verdict->in_progress && flow->deferred_age_ms >= config->issuer.key_lifetime_ms) {
        exhausted(flow);
        return;
    }
    worker_count(flow->worker, WORKER_METRIC_DEFERRALS, verdict->code, NULL);
    int64_t delay_ms = verdict->wait_ms;
    if (delay_ms < 0)
        delay_ms = deferral_ms(flow, verdict->in_progress);
    /* A deferral of our own (breaker, drain) says nothing about the peer's row of 409s: it goes on. */
    bool row_goes_on = verdict->in_progress || (flow->outcome.code[0] == '\0' && flow->deferred_age_ms >= 0);
    end_pending(flow, "deferred", verdict->code, delay_ms > DEFER_LEAST_MS ? delay_ms : DEFER_LEAST_MS, row_goes_on);
}
