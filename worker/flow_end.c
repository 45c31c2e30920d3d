/* See flow_end.h.
 *
 * Invariants: no end is written over an unknown outcome without a look-up; only a deferral gives the attempt back; an
 * attempt that provably sent nothing sets clear_sent. */
#include "worker/flow_end.h"

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

static void fill_final(const struct flow *flow, const struct flow_verdict *verdict, struct write_end *end)
{
    /* A look-up was made, or none is needed: a payload that cannot be read was never sent. */
    assert(!flow->unknown || flow->is_saved || flow->lookup_reason != LOOKUP_NONE || !flow->is_readable);
    const char *code = verdict->code;
    if (code)
        snprintf(end->reason_code, sizeof(end->reason_code), "%s", code);
    /* A replay clears the event's reason; the attempt's row stays. */
    const char *cause = flow->outcome.code[0] ? flow->outcome.code : code;
    if (cause)
        snprintf(end->cause, sizeof(end->cause), "%s", cause);
    if (verdict->kind == FLOW_COMPLETE && flow->payload.is_reissue)
        end->replaces = uuid_parse(flow->payload.replaces, strlen(flow->payload.replaces), &end->replaced);
}

static void fill_pending(const struct flow *flow, const struct flow_verdict *verdict, struct write_end *end)
{
    end->delay_ms = verdict->wait_ms;
    end->give_back = verdict->kind == FLOW_DEFER;
    end->deferred = verdict->keeps_streak;
    snprintf(end->cause, sizeof(end->cause), "%s", verdict->code);
    if (flow->end_is_held) {
        end->held_end = lookup_reason_name(flow->lookup_reason);
        snprintf(end->held_end_code, sizeof(end->held_end_code), "%s", flow->pending_code);
    }
}

struct write_end flow_end_build(const struct flow *flow, const struct flow_verdict *verdict, int64_t now_ms)
{
    assert(verdict->kind != FLOW_GO && verdict->kind != FLOW_DROP);
    struct write_end end = {
        .status = ends[verdict->kind].status,
        .outcome = outbox_attempt_name(ends[verdict->kind].attempt),
        .clear_sent = !flow->unknown && !flow->is_saved,
        .may_arrive = flow->may_arrive,
        .unknown = flow->unknown && !flow->is_saved,
        .step = flow_step_name(flow->step),
        .took_ms = now_ms - flow->claimed_ms,
        .card_status = flow->is_saved && flow->was_cancelled ? "cancelled" : NULL,
    };
    if (end.status == OUTBOX_PENDING)
        fill_pending(flow, verdict, &end);
    else
        fill_final(flow, verdict, &end);
    snprintf(end.detail, sizeof(end.detail), "%s", flow->outcome.detail);
    if (end.status != OUTBOX_COMPLETED) {
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
    case OUTBOX_REJECTED:
        return LOG_DEBUG;
    case OUTBOX_PENDING:
    case OUTBOX_PROCESSING:
        return flow->outcome.advice == ADVICE_CONFIGURATION ? LOG_WARNING : LOG_INFO;
    }
    return LOG_INFO;
}
