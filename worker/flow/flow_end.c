/* See flow_end.h.
 *
 * Invariants: no end is written over an unknown outcome without a look-up, unless the issuer has just shown the card,
 * or nothing can be looked up and the end is FAILED, for a person to decide; only a deferral gives the attempt back; an
 * attempt that certainly sent nothing sets clear_sent. */
#include "worker/flow/flow_end.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* How each verdict that ends an attempt is written. */
static const struct {
    enum outbox_status status;
    enum outbox_attempt attempt;
} ends[] = {
    [FLOW_COMPLETE] = {OUTBOX_COMPLETED, OUTBOX_ATTEMPT_COMPLETED},
    [FLOW_REJECT] = {OUTBOX_REJECTED, OUTBOX_ATTEMPT_REJECTED},
    [FLOW_FAIL] = {OUTBOX_FAILED, OUTBOX_ATTEMPT_FAILED},
    [FLOW_RETRY] = {OUTBOX_PENDING, OUTBOX_ATTEMPT_RETRY},
    [FLOW_DEFER] = {OUTBOX_PENDING, OUTBOX_ATTEMPT_DEFERRED},
};

static void fill_reason(const struct flow *flow, const struct flow_verdict *verdict, struct write_end *end)
{
    snprintf(end->reason_code, sizeof(end->reason_code), "%s", verdict->code);
    /* A replay clears the event's reason; the attempt's row stays. */
    snprintf(end->cause, sizeof(end->cause), "%s",
             /* guard: an attempt that ends an event keeps its code */
             flow->attempt.outcome.code[0] ? flow->attempt.outcome.code : verdict->code);
    snprintf(end->detail, sizeof(end->detail), "%s", flow->attempt.outcome.detail);
    /* A replay looks up first, whichever failure this attempt ended by. */
    /* guard: after two cards a failure of another kind is looked up first too */
    /* guard: what an operator adopted is looked up first after any failure */
    enum lookup_reason reason = flow->attempt.lookup_reason;
    if (flow->attempt.end_is_held && (reason == LOOKUP_DUPLICATE || reason == LOOKUP_BEFORE_SENDING))
        end->held_end = lookup_reason_name(reason);
    if (flow->review.is_on && flow->review.is_gone)
        end->replaces = uuid_parse(flow->payload.replaces, strlen(flow->payload.replaces), &end->replaced);
}

/* A completed event has no reason; its note is the cause in the attempt's row, and the event's last error. */
static void fill_completed(const struct flow *flow, const struct flow_verdict *verdict, struct write_end *end)
{
    const struct outcome *outcome = &flow->attempt.outcome;
    if (verdict->code) {
        snprintf(end->cause, sizeof(end->cause), "%s", verdict->code);
        snprintf(end->detail, sizeof(end->detail), "%s%s%.120s", outcome->code,
                 outcome->code[0] && outcome->detail[0] ? ": " : "", outcome->detail);
    }
    if (flow->payload.is_reissue)
        end->replaces = uuid_parse(flow->payload.replaces, strlen(flow->payload.replaces), &end->replaced);
}

static void fill_pending(const struct flow *flow, const struct flow_verdict *verdict, struct write_end *end)
{
    end->delay_ms = verdict->wait_ms;
    end->give_back = verdict->kind == FLOW_DEFER;
    end->deferred = verdict->keeps_streak;
    snprintf(end->cause, sizeof(end->cause), "%s", verdict->code);
    snprintf(end->detail, sizeof(end->detail), "%s", flow->attempt.outcome.detail);
    /* guard: an end that waits is written down */
    if (flow->attempt.end_is_held) {
        end->held_end = lookup_reason_name(flow->attempt.lookup_reason);
        snprintf(end->held_end_code, sizeof(end->held_end_code), "%s", flow->attempt.pending_code);
    }
}

/* A look-up was made, or none is needed: the issuer has shown the card, or the payload cannot be read, so that nothing
 * was ever sent. */
static bool is_known(const struct flow *flow)
{
    return !flow->attempt.unknown || flow->attempt.is_saved || flow->attempt.lookup_reason != LOOKUP_NONE ||
           flow->attempt.card_is_seen || !flow->attempt.is_readable;
}

/* A route without a look-up: what the receiver has made of an earlier delivery stays unknown, for a person to find
 * out. */
static bool is_question(const struct flow *flow, const struct flow_verdict *verdict)
{
    return verdict->kind == FLOW_FAIL && flow->route && !flow->route->config->lookup_url;
}

struct write_end flow_end_build(const struct flow *flow, const struct flow_verdict *verdict, int64_t now_ms)
{
    assert(verdict->kind != FLOW_GO && verdict->kind != FLOW_DROP);
    assert(ends[verdict->kind].status == OUTBOX_PENDING || is_known(flow) || is_question(flow, verdict));
    struct write_end end = {
        .status = ends[verdict->kind].status,
        .outcome = outbox_attempt_name(ends[verdict->kind].attempt),
        /* guard: UNKNOWN is sticky */
        .clear_sent = !flow->attempt.unknown && !flow->attempt.is_saved && !flow->attempt.is_delivered,
        .may_arrive = flow->attempt.may_arrive,
        .unknown = flow->attempt.unknown && !flow->attempt.is_saved,
        .step = flow_step_name(flow->attempt.step),
        .took_ms = now_ms - flow->attempt.claimed_ms,
        .card_status = flow->attempt.is_saved && flow->attempt.was_cancelled ? "cancelled" : NULL,
    };
    if (end.status == OUTBOX_PENDING)
        fill_pending(flow, verdict, &end);
    else if (end.status == OUTBOX_COMPLETED)
        fill_completed(flow, verdict, &end);
    else
        fill_reason(flow, verdict, &end);
    if (end.status != OUTBOX_COMPLETED || end.cause[0]) {
        const char *code = end.cause[0] ? end.cause : end.reason_code;
        snprintf(end.last_error, sizeof(end.last_error), "%s: %s%s%s", end.step, code, end.detail[0] ? ": " : "",
                 end.detail);
    }
    return end;
}

enum log_level flow_end_level(const struct flow *flow, const struct write_end *end)
{
    switch (end->status) {
    case OUTBOX_FAILED:
        return LOG_WARNING;
    case OUTBOX_COMPLETED:
        return end->cause[0] ? LOG_WARNING : LOG_DEBUG;
    case OUTBOX_REJECTED:
        return LOG_DEBUG;
    case OUTBOX_PENDING:
    case OUTBOX_PROCESSING:
        return flow->attempt.outcome.advice == ADVICE_CONFIGURATION ? LOG_WARNING : LOG_INFO;
    }
    return LOG_INFO;
}
