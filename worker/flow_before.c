/* See flow_before.h. */
#include "worker/flow_before.h"

#define CLOCK_STEP_US 1000000 /* our two clocks may drift apart by so much during an attempt */

static struct flow_verdict go(enum flow_step step)
{
    return (struct flow_verdict){.kind = FLOW_GO, .step = step};
}

static struct flow_verdict look_up(enum lookup_reason reason)
{
    return (struct flow_verdict){.kind = FLOW_GO, .step = STEP_LOOKUP, .reason = reason};
}

/* The age of the first send comes from the database's clock, which may have been set back since. The event's id bears
 * the time of another clock: where the event itself is younger than its key may be, the key is alive whatever the
 * database's clock shows. Ids of other kinds bear no time. */
static bool may_be_older(const struct flow *flow, int64_t wall_us)
{
    const struct config *config = flow->env->config;
    int64_t made_ms;
    return uuid7_time_ms(&flow->event_id, &made_ms) &&
           flow_key_expired(wall_us / 1000 - made_ms, config->issuer.key_lifetime_ms, config->issuer.timeout_ms,
                            config->issuer.settle_time_ms);
}

/* An unknown outcome is looked up before its create is repeated. LOOKUP_NONE: it need not be. */
static enum lookup_reason reason_to_look(const struct flow *flow, int64_t wall_us)
{
    const struct issuer_profile *profile = flow->env->parameters->profile;
    if (!flow->unknown || flow->is_looked_up)
        return LOOKUP_NONE;
    if (may_be_older(flow, wall_us) || !profile->key_is_trusted)
        return LOOKUP_BEFORE_SENDING;
    return profile->looks_first ? LOOKUP_FIRST : LOOKUP_NONE;
}

struct flow_verdict flow_before_create(const struct flow *flow, int64_t now_ms, int64_t wall_us)
{
    const struct config *config = flow->env->config;
    int64_t drift_us = wall_us - now_ms * 1000 - flow->wall_offset_us;
    /* One of our clocks was set, or stood still while the machine was suspended: the lease may be over. */
    if (drift_us > CLOCK_STEP_US || drift_us < -CLOCK_STEP_US)
        return (struct flow_verdict){.kind = FLOW_DEFER, .code = outbox_cause_name(OUTBOX_CAUSE_CLOCK_STEPPED)};
    /* Past its lifetime the key may be forgotten, and the same POST would make a second card: look up, never send. */
    if (flow->unknown && flow_is_expired(flow, now_ms))
        return look_up(flow->deferred_age_ms >= 0 ? LOOKUP_EXHAUSTED : LOOKUP_KEY_EXPIRED);
    if (flow->attempt > config->retry.max_attempts) /* its last attempt was lost with its worker */
        return look_up(LOOKUP_EXHAUSTED);
    enum lookup_reason reason = reason_to_look(flow, wall_us);
    if (reason != LOOKUP_NONE)
        return look_up(reason);
    /* It waited too long: the user may have been blocked meanwhile. */
    if (now_ms - flow->checked_ms > config->issuer.timeout_ms)
        return go(STEP_CHECK);
    return go(event_parameters_must_keep(&flow->parameters, flow->env->parameters) ? STEP_KEEP : STEP_ISSUE);
}

/* The create is next, and what it is built from must be kept first. */
static bool keeps_first(const struct flow *flow, int64_t now_ms, int64_t wall_us)
{
    if (flow->step != STEP_ISSUE)
        return false;
    struct flow_verdict verdict = flow_before_create(flow, now_ms, wall_us);
    return verdict.kind == FLOW_GO && verdict.step == STEP_KEEP;
}

struct flow_verdict flow_before_call(const struct flow *flow, int64_t now_ms, int64_t wall_us,
                                     struct outcome *ret_outcome)
{
    const struct parameters_env *env = flow->env->parameters;
    enum issuer_call call = flow_step_call(flow->step);
    if (event_parameters_must_ask(&flow->parameters, env, call))
        return go(STEP_CHECK);
    const char *missing = issuer_parameters_missing_for(env->profile, &flow->parameters.values, call);
    if (!missing)
        return go(keeps_first(flow, now_ms, wall_us) ? STEP_KEEP : flow->step);
    event_parameters_missing(missing, ret_outcome);
    /* Nobody tells whose card it is: after so long a question for a person, also where the key lives for ever. */
    if (flow->step == STEP_LOOKUP && flow_is_long_unknown(flow, now_ms))
        return (struct flow_verdict){.kind = FLOW_FAIL, .code = "outcome_unknown"};
    return (struct flow_verdict){.kind = FLOW_RETRY, .code = ret_outcome->code, .wait_ms = -1};
}
