/* The list of profiles (profile.h), and what decisions take from one (issuer.h). */
#include <string.h>

#include "common/core/issuer/issuer.h"
#include "common/lib/config/config_value.h"

const struct issuer_profile *const issuer_profiles[] = {
    &issuer_generic, &issuer_stripe, &issuer_lithic, &issuer_marqeta, &issuer_increase, &issuer_adyen, NULL,
};

const struct issuer_profile *issuer_profile_find(const char *name)
{
    for (const struct issuer_profile *const *profile = issuer_profiles; *profile; profile++)
        if (strcmp((*profile)->name, name) == 0)
            return *profile;
    return NULL;
}

const struct issuer_profile *issuer_profile_of(const struct config *config)
{
    static struct issuer_profile keyless;
    const struct issuer_profile *profile = issuer_profile_find(config->issuer.profile);
    if (profile != &issuer_generic || config->issuer.keys == ISSUER_KEYS_HONOURED)
        return profile;
    keyless = issuer_generic;
    /* guard: a key that the issuer ignores is not trusted */
    keyless.key_is_trusted = false;
    return &keyless;
}

static bool ends_with(const char *url, const char *end, size_t length)
{
    size_t url_length = strlen(url);
    return url_length > length && strncmp(url + url_length - length, end, length) == 0;
}

bool issuer_url_check(const struct issuer_profile *profile, const char *url, struct err *err)
{
    const char *path = profile->calls[ISSUER_CREATE].path;
    char twice[64];
    if (strcmp(profile->name, issuer_generic.name) == 0 || config_value_url_is_loopback(url))
        return true;
    for (size_t length = 0; path[length];) {
        length += 1 + strcspn(path + length + 1, "/");
        /* guard: what a path begins with, such as its version, is not in issuer.url too */
        if (ends_with(url, path, length))
            return err_set(err, ERR_CONFIG, "issuer.url must end before %.*s, with which the paths of %s begin",
                           (int)length, path, profile->name);
    }
    if (profile->url_end && !ends_with(url, profile->url_end, strlen(profile->url_end)))
        return err_set(err, ERR_CONFIG, "issuer.url must end with %s, as every address of %s does", profile->url_end,
                       profile->name);
    if (!profile->url_end)
        return true;
    snprintf(twice, sizeof(twice), "%s%s", profile->url_end, profile->url_end);
    return !ends_with(url, twice, strlen(twice)) ||
           err_set(err, ERR_CONFIG, "issuer.url must end with %s once", profile->url_end);
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
        .keeps_unnumbered = config->card.number_refused == NUMBER_REFUSED_KEEP,
        .keeps_refused_link = config->core.on_link_refused == LINK_REFUSED_KEEP,
        /* guard: explain announces the look-up before a repeat */
        .looks_first = profile && profile->looks_first,
        .makes_inactive = profile && profile->makes_inactive,
        .key_is_trusted = profile && profile->key_is_trusted,
        .activates = profile && issuer_profile_has(profile, ISSUER_ACTIVATE),
        .reveals = profile && issuer_profile_has(profile, ISSUER_REVEAL),
        .retires = profile && issuer_profile_has(profile, ISSUER_RETIRE),
        .verifies = profile && issuer_profile_has(profile, ISSUER_RETRIEVE),
    };
}
