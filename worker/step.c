/* See step.h. */
#include "worker/step.h"

#include <assert.h>
#include <stdio.h>

#include "common/base/clock.h"
#include "common/base/trace.h"

#define KEPT_MAX 4096 /* as outbox_events.issuer_parameters */

const struct flow_step_row flow_steps[STEP_COUNT] = {
#define X(name, word, text, peer, call, write) [STEP_##name] = {step_##word##_prepare, step_##word##_read},
    FLOW_STEPS(X)
#undef X
};

struct flow_verdict step_go(enum flow_step step)
{
    return (struct flow_verdict){.kind = FLOW_GO, .step = step};
}

struct flow_verdict step_end(enum flow_verdict_kind kind, const char *code)
{
    return (struct flow_verdict){.kind = kind, .code = code};
}

/* What "not found" means for this reason must hold also when a create or a delivery arrives later. */
static bool must_settle(enum lookup_reason reason)
{
    return reason != LOOKUP_CARD_SEEN && reason != LOOKUP_IN_OUTAGE && reason != LOOKUP_FIRST &&
           reason != LOOKUP_BY_ANSWER && reason != LOOKUP_AFTER_REPEAT;
}

/* What was looked for is not there, and will not come. */
static struct flow_verdict settled_not_found(struct flow *flow)
{
    const struct attempt_rules rules = flow_rules(flow);
    enum lookup_reason reason = flow->attempt.lookup_reason;
    switch (reason) {
    case LOOKUP_EXHAUSTED:
    case LOOKUP_KEY_EXPIRED:
    case LOOKUP_UNFORESEEN:
    case LOOKUP_WORKER_LOST:
        return step_end(FLOW_FAIL, decide_end_code(&rules, reason, flow->attempt.pending_code));
    case LOOKUP_INELIGIBLE:
    case LOOKUP_REFUSED:
        return step_end(FLOW_REJECT, decide_end_code(&rules, reason, flow->attempt.pending_code));
    case LOOKUP_BEFORE_SENDING:
    case LOOKUP_FIRST:
        flow->attempt.lookup_reason = LOOKUP_NONE;
        flow->attempt.is_looked_up = true;
        flow->attempt.end_is_held = false; /* of an event that was adopted */
        return step_go(reason == LOOKUP_FIRST ? rules.send : rules.first);
    case LOOKUP_BY_ANSWER:
        return (struct flow_verdict){.kind = FLOW_RETRY, .code = flow->attempt.pending_code, .wait_ms = -1};
    case LOOKUP_IN_OUTAGE:
        return (struct flow_verdict){.kind = FLOW_DEFER, .code = flow->attempt.pending_code, .wait_ms = -1};
    case LOOKUP_NONE:
    case LOOKUP_DUPLICATE:
    case LOOKUP_CONTRADICTION:
    case LOOKUP_CARD_SEEN:
    case LOOKUP_AFTER_REPEAT:
    case LOOKUP_REASONS:
        return (struct flow_verdict){.kind = FLOW_RETRY, .code = outbox_cause_name(rules.unreadable), .wait_ms = -1};
    }
    assert(!"reasons are covered above");
    return step_end(FLOW_FAIL, "attempts_exhausted");
}

struct flow_verdict step_not_found(struct flow *flow)
{
    const struct view view = flow_view(flow, clock_mono_ms(), clock_wall_us());
    int64_t unsettled_ms = attempt_unsettled_ms(&flow->attempt, &view);
    if (unsettled_ms == 0 || !must_settle(flow->attempt.lookup_reason))
        return settled_not_found(flow);
    /* A send may still be on its way, and would be executed behind any end. */
    flow->attempt.end_is_held |=
        flow->attempt.lookup_reason != LOOKUP_BEFORE_SENDING && lookup_reason_name(flow->attempt.lookup_reason);
    return (struct flow_verdict){
        .kind = FLOW_DEFER, .code = outbox_cause_name(OUTBOX_CAUSE_SETTLING), .wait_ms = unsettled_ms};
}

struct flow_verdict step_retry_or_defer(const struct outcome *outcome)
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

struct flow_verdict step_read_write(struct flow *flow, enum flow_step next, struct outcome *ret_outcome)
{
    *ret_outcome = (struct outcome){0};
    switch (flow->write_result) {
    case WRITE_DONE:
        ret_outcome->kind = OUTCOME_EXECUTED;
        return step_go(next);
    case WRITE_FENCED:
        ret_outcome->kind = OUTCOME_REFUSED;
        return (struct flow_verdict){.kind = FLOW_DROP};
    case WRITE_GIVEN_UP:
        ret_outcome->kind = OUTCOME_UNKNOWN;
        snprintf(ret_outcome->code, sizeof(ret_outcome->code), "%s", outbox_cause_name(OUTBOX_CAUSE_WRITE_FAILED));
        return (struct flow_verdict){.kind = FLOW_RETRY, .code = ret_outcome->code, .wait_ms = -1};
    }
    assert(!"write results are covered above");
    return (struct flow_verdict){.kind = FLOW_DROP};
}

bool step_write_parameters(struct flow *flow)
{
    buf_init(&flow->kept, KEPT_MAX);
    return event_parameters_write(&flow->parameters, flow->env->parameters, &flow->kept);
}

const struct issuer_profile *step_profile(const struct flow *flow)
{
    return flow->env->parameters->profile;
}

bool step_has_call(const struct flow *flow, enum issuer_call call)
{
    return issuer_profile_has(step_profile(flow), call);
}

bool step_with_trace(struct flow *flow, bool is_made)
{
    if (!is_made)
        return false;
    char trace[TRACE_SIZE];
    trace_make_child(flow->traceparent, trace);
    http_call_header(&flow->call, "traceparent", trace);
    return http_call_is_made(&flow->call);
}

bool step_prepare_issuer_call(struct flow *flow)
{
    const struct issuer_profile *profile = step_profile(flow);
    bool is_of_old_card = attempt_purpose(&flow->attempt) == STEP_RETIRE;
    const struct issuer_subject subject = {
        .base = flow_peer(flow)->url,
        .event_id = flow->attempt.event_id,
        .user_id = flow->user_id,
        .payload = &flow->payload,
        .replaces = flow->payload.is_reissue ? flow->replaces_issuer_id : NULL,
        .card_id = is_of_old_card ? flow->replaces_issuer_id : flow->card.id,
        .attempt = flow->attempt.number,
        .since_ms = flow_lookup_since_ms(&flow->attempt.event_id, flow->made_ms),
        .parameters = &flow->parameters.values,
        .lookup = &flow->lookup,
    };
    bool is_made = issuer_build(profile, flow_step_call(flow->attempt.step), &subject, &flow->call);
    flow->call.must_not_resend = flow->attempt.step == STEP_ISSUE && !profile->key_is_trusted;
    return profile->sends_trace ? step_with_trace(flow, is_made) : is_made;
}
