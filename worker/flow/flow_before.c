/* See flow_before.h. */
#include "worker/flow/flow_before.h"

#include "worker/flow/step.h"

struct flow_verdict flow_before_send(const struct flow *flow, int64_t now_ms, int64_t wall_us)
{
    const struct view view = flow_view(flow, now_ms, wall_us);
    return decide_before_send(&flow->attempt, &view,
                              event_parameters_must_keep(&flow->parameters, flow->env->worker->parameters));
}

/* The create is next, and what it is built from must be kept first. */
static bool keeps_first(const struct flow *flow, int64_t now_ms, int64_t wall_us)
{
    if (flow->attempt.step != STEP_ISSUE ||
        !event_parameters_must_keep(&flow->parameters, flow->env->worker->parameters))
        return false;
    struct flow_verdict verdict = flow_before_send(flow, now_ms, wall_us);
    return verdict.kind == FLOW_GO && verdict.step == STEP_KEEP;
}

struct flow_verdict flow_before_call(const struct flow *flow, int64_t now_ms, int64_t wall_us,
                                     struct outcome *ret_outcome)
{
    const struct parameters_env *env = flow->env->worker->parameters;
    enum issuer_call call = flow_step_call(flow->attempt.step);
    if (event_parameters_must_ask(&flow->parameters, env, call))
        return verdict_go(STEP_CHECK);
    const char *missing = issuer_parameters_missing_for(env->profile, &flow->parameters.values, call);
    if (!missing)
        return verdict_go(keeps_first(flow, now_ms, wall_us) ? STEP_KEEP : flow->attempt.step);
    event_parameters_missing(missing, ret_outcome);
    /* The look-up cannot be built: after so long it is a question for a person, also where the key lives for ever. */
    const struct view view = flow_view(flow, now_ms, wall_us);
    /* guard: a look-up without its holder is a question also where keys live for ever */
    if (flow->attempt.step == STEP_LOOKUP && attempt_is_long_unknown(&flow->attempt, &view))
        return verdict_end(FLOW_FAIL, "outcome_unknown");
    return verdict_wait(FLOW_RETRY, ret_outcome->code, -1);
}
