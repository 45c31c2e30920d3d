/* See event_parameters.h. */
#include "worker/peers/event_parameters.h"

#include <stdio.h>
#include <string.h>

#include "common/lib/json/json_strict.h"
#include "common/lib/json/json_value.h"

void event_parameters_start(struct event_parameters *parameters, const struct parameters_env *env, const char *user_id,
                            struct slice kept)
{
    *parameters = (struct event_parameters){.values = env->fixed};
    if (kept.bytes && json_strict_check(kept.bytes, kept.length, NULL)) {
        struct issuer_parameters values = {0};
        if (!issuer_parameters_read(env->profile, json_value_of(kept.bytes, kept.length), &values)) {
            parameters->values = values;
            parameters->is_kept = true;
            return;
        }
    }
    issuer_parameters_default(env->profile, user_id, &parameters->values);
}

/* Only required parameters: if the first request did not have an optional one, its repeat must not have it either. */
static void fill_required(const struct issuer_profile *profile, struct issuer_parameters *into,
                          const struct issuer_parameters *from)
{
    for (int i = 0; profile->parameters && profile->parameters[i]; i++)
        if (!into->values[i][0] && profile->parameters[i][0] != '?')
            memcpy(into->values[i], from->values[i], sizeof(into->values[i]));
}

void event_parameters_take(struct event_parameters *parameters, const struct parameters_env *env, const char *user_id,
                           bool is_eligible, const struct core_eligibility *answer)
{
    struct issuer_parameters now = env->fixed;
    issuer_parameters_merge(&now, &answer->parameters);
    issuer_parameters_default(env->profile, user_id, &now);
    parameters->was_asked = true;
    if (parameters->is_kept) {
        fill_required(env->profile, &parameters->values, &now);
        return;
    }
    parameters->values = now;
    parameters->is_answered =
        /* guard: no parameter that was only guessed is kept */
        (is_eligible || answer->has_parameters) && !issuer_parameters_missing(env->profile, &parameters->values);
}

/* ---- what a call is built from ---- */

bool event_parameters_must_ask(const struct event_parameters *parameters, const struct parameters_env *env,
                               enum issuer_call call)
{
    if (parameters->was_asked)
        return false;
    if (parameters->is_kept)
        return issuer_parameters_missing_for(env->profile, &parameters->values, call) != NULL;
    return issuer_call_has_parameters(env->profile, call);
}

bool event_parameters_must_keep(const struct event_parameters *parameters, const struct parameters_env *env)
{
    /* guard: what a look-up is built from is kept before the create leaves */
    /* guard: what a look-up is built from is kept at an issuer whose key is not trusted */
    return !parameters->is_kept && parameters->is_answered && issuer_call_has_parameters(env->profile, ISSUER_LOOKUP);
}

bool event_parameters_write(const struct event_parameters *parameters, const struct parameters_env *env,
                            struct buf *out)
{
    if (parameters->is_kept || !parameters->is_answered)
        return true;
    if (!issuer_parameters_write(env->profile, &parameters->values, out))
        return false;
    /* Only optional ones, and none of them is given: neither has a repeat. */
    return out->length > 0 || !env->profile->parameters || buf_put_text(out, "{}");
}

void event_parameters_hide(const struct event_parameters *parameters, char *text)
{
    const char *values[ISSUER_PARAMETERS_MAX];
    for (size_t i = 0; i < ARRAY_SIZE(values); i++)
        values[i] = parameters->values.values[i];
    outcome_hide(ARRAY_SIZE(values), values, text);
}

void event_parameters_missing(const char *name, struct outcome *ret_outcome)
{
    outcome_unreadable(&outcome_core, "", ret_outcome);
    snprintf(ret_outcome->detail, sizeof(ret_outcome->detail), "no issuer.%s", name);
}
