/* See flow_before.h. */
#include "worker/flow_before.h"

#define CLOCK_STEP_US 1000000 /* how far our two clocks may drift apart during an attempt */

static struct flow_verdict go(enum flow_step step)
{
    return (struct flow_verdict){.kind = FLOW_GO, .step = step};
}

/* The age of the first send comes from the database's clock, which may have been set back since. A UUIDv7 as the
 * event's id contains the time of another clock. If the event is younger by that clock than a key may be, the key is
 * alive whatever the database's clock shows. False as well if the id contains no time. */
static bool may_be_older(const struct flow *flow, int64_t wall_us)
{
    struct flow_limits limits = flow_limits(flow);
    int64_t made_ms;
    return uuid7_time_ms(&flow->event_id, &made_ms) &&
           flow_key_expired(wall_us / 1000 - made_ms, limits.key_lifetime_ms, limits.timeout_ms, limits.settle_time_ms);
}

/* An unknown outcome is looked up before its create or delivery is repeated. LOOKUP_NONE: it need not be, or cannot:
 * then only the database's clock tells the age of the key. */
static enum lookup_reason reason_to_look(const struct flow *flow, int64_t wall_us)
{
    const struct issuer_profile *profile = flow->env->parameters->profile;
    bool is_card = flow_kind(flow)->send == STEP_ISSUE;
    if (!flow->unknown || flow->is_looked_up || !flow_has_lookup(flow))
        return LOOKUP_NONE;
    if (may_be_older(flow, wall_us) || (is_card && !profile->key_is_trusted))
        return LOOKUP_BEFORE_SENDING;
    return is_card && profile->looks_first ? LOOKUP_FIRST : LOOKUP_NONE;
}

/* The card's create is next, unless core-api must be asked, or parameters kept, first. */
static struct flow_verdict before_create(const struct flow *flow, int64_t now_ms)
{
    /* The check is too old: the user may have been blocked meanwhile. */
    if (now_ms - flow->checked_ms > flow_limits(flow).timeout_ms)
        return go(STEP_CHECK);
    return go(event_parameters_must_keep(&flow->parameters, flow->env->parameters) ? STEP_KEEP : STEP_ISSUE);
}

struct flow_verdict flow_before_send(const struct flow *flow, int64_t now_ms, int64_t wall_us)
{
    const struct flow_kind *kind = flow_kind(flow);
    int64_t drift_us = wall_us - now_ms * 1000 - flow->wall_offset_us;
    /* One of our clocks was set, or stopped while the machine was suspended: the lease may be over. */
    if (drift_us > CLOCK_STEP_US || drift_us < -CLOCK_STEP_US)
        return (struct flow_verdict){.kind = FLOW_DEFER, .code = outbox_cause_name(OUTBOX_CAUSE_CLOCK_STEPPED)};
    /* Past its lifetime the key may be forgotten, and the same request would be executed again: look up, never send. */
    if (flow->unknown && flow_is_expired(flow, now_ms))
        return flow_look_up(flow, flow->deferred_age_ms >= 0 ? LOOKUP_EXHAUSTED : LOOKUP_KEY_EXPIRED, NULL);
    if (flow->attempt > flow_limits(flow).max_attempts) /* its last attempt was lost with its worker */
        return flow_look_up(flow, LOOKUP_EXHAUSTED, NULL);
    enum lookup_reason reason = reason_to_look(flow, wall_us);
    if (reason != LOOKUP_NONE)
        return flow_look_up(flow, reason, NULL);
    return kind->send == STEP_ISSUE ? before_create(flow, now_ms) : go(kind->send);
}

/* The create is next, and what it is built from must be kept first. */
static bool keeps_first(const struct flow *flow, int64_t now_ms, int64_t wall_us)
{
    if (flow->step != STEP_ISSUE)
        return false;
    struct flow_verdict verdict = flow_before_send(flow, now_ms, wall_us);
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
    /* The look-up cannot be built: after so long it is a question for a person, also where the key lives for ever. */
    if (flow->step == STEP_LOOKUP && flow_is_long_unknown(flow, now_ms))
        return (struct flow_verdict){.kind = FLOW_FAIL, .code = "outcome_unknown"};
    return (struct flow_verdict){.kind = FLOW_RETRY, .code = ret_outcome->code, .wait_ms = -1};
}
