/* See step.h. */
#include "worker/flow/step.h"

#include <assert.h>
#include <stdio.h>

#include "common/lib/base/clock.h"

#define KEPT_MAX 4000 /* as JSON; outbox_events.issuer_parameters takes 4096 bytes, in the form of the database */

const struct flow_step_row flow_steps[STEP_COUNT] = {
#define X(name, word, text, peer, call, write) [STEP_##name] = {STEP_PREPARE_##peer(word), step_##word##_read},
    FLOW_STEPS(X)
#undef X
};

struct flow_verdict step_decide(struct flow *flow, const struct outcome *outcome, struct shown shown)
{
    if (flow->env->mark)
        return flow->env->mark->decide(flow, outcome, &shown);
    const struct view view = flow_view(flow, clock_mono_ms(), clock_wall_us());
    flow->attempt.is_reissue = flow->payload.is_reissue;
    return decide_answer(&flow->attempt, &view, outcome, &shown);
}

struct flow_verdict step_read_write(struct flow *flow, enum flow_step next, struct outcome *ret_outcome)
{
    *ret_outcome = (struct outcome){0};
    switch (flow->write_result) {
    case WRITE_DONE:
        ret_outcome->kind = OUTCOME_EXECUTED;
        return verdict_go(next);
    case WRITE_FENCED:
        ret_outcome->kind = OUTCOME_REFUSED;
        return (struct flow_verdict){.kind = FLOW_DROP};
    case WRITE_GIVEN_UP:
        ret_outcome->kind = OUTCOME_UNKNOWN;
        snprintf(ret_outcome->code, sizeof(ret_outcome->code), "%s", outbox_cause_name(OUTBOX_CAUSE_WRITE_FAILED));
        return verdict_wait(FLOW_RETRY, ret_outcome->code, -1);
    }
    assert(!"write results are covered above");
    return (struct flow_verdict){.kind = FLOW_DROP};
}

bool step_write_parameters(struct flow *flow)
{
    buf_init(&flow->kept, KEPT_MAX);
    return event_parameters_write(&flow->parameters, flow->env->worker->parameters, &flow->kept);
}

const struct issuer_profile *step_profile(const struct flow *flow)
{
    return flow->env->worker->parameters->profile;
}

bool step_with_trace(struct flow *flow, bool is_made)
{
    if (!is_made)
        return false;
    http_call_trace(&flow->call, &flow->trace);
    return http_call_is_made(&flow->call);
}

bool step_prepare_issuer_call(struct flow *flow)
{
    const struct issuer_profile *profile = step_profile(flow);
    enum flow_step purpose = attempt_purpose(&flow->attempt);
    bool is_of_old_card = purpose == STEP_RETIRE || purpose == STEP_REVIEW;
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
    return profile->sends_trace ? step_with_trace(flow, is_made) : is_made;
}
