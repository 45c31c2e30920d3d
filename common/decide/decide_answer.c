/* See decide.h: what follows the answer to a step's call. */
#include <assert.h>

#include "common/decide/decide.h"

static struct flow_verdict go(enum flow_step step)
{
    return (struct flow_verdict){.kind = FLOW_GO, .step = step};
}

static struct flow_verdict end(enum flow_verdict_kind kind, const char *code)
{
    return (struct flow_verdict){.kind = kind, .code = code};
}

/* ---- a look-up that found nothing ---- */

/* What "not found" means for this reason must hold also when a create or a delivery arrives later. */
static bool must_settle(enum lookup_reason reason)
{
    return reason != LOOKUP_CARD_SEEN && reason != LOOKUP_IN_OUTAGE && reason != LOOKUP_FIRST &&
           reason != LOOKUP_BY_ANSWER && reason != LOOKUP_AFTER_REPEAT;
}

/* What was looked for is not there, and will not come. */
static struct flow_verdict settled_not_found(struct attempt *attempt, const struct attempt_rules *rules)
{
    enum lookup_reason reason = attempt->lookup_reason;
    switch (reason) {
    case LOOKUP_EXHAUSTED:
    case LOOKUP_KEY_EXPIRED:
    case LOOKUP_UNFORESEEN:
    case LOOKUP_WORKER_LOST:
        return end(FLOW_FAIL, decide_end_code(rules, reason, attempt->pending_code));
    case LOOKUP_INELIGIBLE:
    case LOOKUP_REFUSED:
        return end(FLOW_REJECT, decide_end_code(rules, reason, attempt->pending_code));
    case LOOKUP_BEFORE_SENDING:
    case LOOKUP_FIRST:
        attempt->lookup_reason = LOOKUP_NONE;
        attempt->is_looked_up = true;
        attempt->end_is_held = false; /* of an event that was adopted */
        return go(reason == LOOKUP_FIRST ? rules->send : rules->first);
    case LOOKUP_BY_ANSWER:
        return (struct flow_verdict){.kind = FLOW_RETRY, .code = attempt->pending_code, .wait_ms = -1};
    case LOOKUP_IN_OUTAGE:
        return (struct flow_verdict){.kind = FLOW_DEFER, .code = attempt->pending_code, .wait_ms = -1};
    case LOOKUP_NONE:
    case LOOKUP_DUPLICATE:
    case LOOKUP_CONTRADICTION:
    case LOOKUP_CARD_SEEN:
    case LOOKUP_AFTER_REPEAT:
    case LOOKUP_REASONS:
        return (struct flow_verdict){.kind = FLOW_RETRY, .code = outbox_cause_name(rules->unreadable), .wait_ms = -1};
    }
    assert(!"reasons are covered above");
    return end(FLOW_FAIL, "attempts_exhausted");
}

struct flow_verdict decide_not_found(struct attempt *attempt, const struct view *view)
{
    int64_t unsettled_ms = attempt_unsettled_ms(attempt, view);
    if (unsettled_ms == 0 || !must_settle(attempt->lookup_reason))
        return settled_not_found(attempt, &view->rules);
    /* A send may still be on its way, and would be executed behind any end. */
    attempt->end_is_held |=
        attempt->lookup_reason != LOOKUP_BEFORE_SENDING && lookup_reason_name(attempt->lookup_reason);
    return (struct flow_verdict){
        .kind = FLOW_DEFER, .code = outbox_cause_name(OUTBOX_CAUSE_SETTLING), .wait_ms = unsettled_ms};
}

struct flow_verdict decide_retry_or_defer(const struct outcome *outcome)
{
    switch (outcome->advice) {
    case ADVICE_RETRY:
    case ADVICE_LOOK_UP:
        return (struct flow_verdict){.kind = FLOW_RETRY, .code = outcome->code, .wait_ms = outcome->wait_ms};
    case ADVICE_WAIT:
    case ADVICE_CONFIGURATION:
        return (struct flow_verdict){.kind = FLOW_DEFER, .code = outcome->code, .wait_ms = outcome->wait_ms};
    case ADVICE_WAIT_IN_PROGRESS:
        return (struct flow_verdict){
            .kind = FLOW_DEFER, .code = outcome->code, .wait_ms = outcome->wait_ms, .in_progress = true};
    case ADVICE_NONE:
    case ADVICE_REJECT:
    case ADVICE_FAIL:
        break;
    }
    assert(!"the step must decide on such an outcome");
    return (struct flow_verdict){.kind = FLOW_RETRY, .code = outbox_cause_name(OUTBOX_CAUSE_BUG), .wait_ms = -1};
}
