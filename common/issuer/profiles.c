/* The list of profiles (profile.h), and what decisions take from one (issuer.h). */
#include <string.h>

#include "common/issuer/issuer.h"

const struct issuer_profile *const issuer_profiles[] = {
    &issuer_generic, &issuer_stripe, &issuer_lithic, &issuer_marqeta, &issuer_adyen, NULL,
};

const struct issuer_profile *issuer_profile_find(const char *name)
{
    for (const struct issuer_profile *const *profile = issuer_profiles; *profile; profile++)
        if (strcmp((*profile)->name, name) == 0)
            return *profile;
    return NULL;
}

struct attempt_rules issuer_attempt_rules(const struct config *config, const struct issuer_profile *profile)
{
    return (struct attempt_rules){
        .first = STEP_CHECK,
        .send = STEP_ISSUE,
        .lookup = STEP_LOOKUP,
        .key_expired = "issuer_key_expired",
        .unreadable = OUTBOX_CAUSE_ISSUER_UNREADABLE,
        .key_lifetime_ms = config->issuer.key_lifetime_ms,
        .timeout_ms = config->issuer.timeout_ms,
        .settle_time_ms = config->issuer.settle_time_ms,
        .max_attempts = config->retry.max_attempts,
        .retry_base_ms = config->retry.base_ms,
        .retry_cap_ms = config->retry.cap_ms,
        .lease_ms = config->worker.lease_ms,
        .stores_numbers = config->card.store == CARD_STORE_ENCRYPTED,
        .keeps_refused_link = config->core.on_link_refused == LINK_REFUSED_KEEP,
        /* guard: explain announces the look-up before a repeat */
        .looks_first = profile && profile->looks_first,
        .key_is_trusted = profile && profile->key_is_trusted,
        .activates = profile && issuer_profile_has(profile, ISSUER_ACTIVATE),
        .reveals = profile && issuer_profile_has(profile, ISSUER_REVEAL),
        .retires = profile && issuer_profile_has(profile, ISSUER_RETIRE),
        .verifies = profile && issuer_profile_has(profile, ISSUER_RETRIEVE),
    };
}
