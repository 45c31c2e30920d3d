/* The checks of doctor that look at the configuration and at its own connection (doctor.h). */
#include <inttypes.h>
#include <time.h>

#include "common/core/keyring.h"
#include "common/lib/pg/pg_conninfo.h"
#include "ctl/doctor/doctor.h"

static void check_keys(struct doctor *doctor)
{
    const char *path = doctor->ctl->config->card.keys_file;
    struct keyring *keyring = NULL;
    struct err err;
    if (!path) {
        doctor_report(doctor, "keys", true, NULL, "card.keys_file is not set here, nothing to check");
        return;
    }
    if (!keyring_load(path, &keyring, &err)) {
        doctor_report(doctor, "keys", false,
                      "point card.keys_file to a file made by issuing-ctl keys generate, readable by this user", "%s",
                      err.message);
        return;
    }
    struct keyring_entry active = {0};
    for (size_t i = 0; i < keyring_count(keyring) && active.id != keyring_active_id(keyring); i++)
        active = keyring_entry(keyring, i);
    if (keyring_is_old(&active, time(NULL)))
        doctor_warn(doctor, "keys", "issuing-ctl keys rotate, and what follows it (docs/run.md)",
                    "%s: key %" PRIu32 " encrypts card numbers since %s, for more than a year", path, active.id,
                    active.made_at);
    else
        doctor_report(doctor, "keys", true, NULL, "%s, active key %" PRIu32, path, active.id);
    keyring_free(keyring);
}

/* What the api accepts, where this configuration is the api's. */
static void check_tokens(struct doctor *doctor)
{
    const struct config *config = doctor->ctl->config;
    if (!config->auth.hs256_secret_file && !config->auth.jwks_file) {
        doctor_note(doctor, "tokens", "neither auth.hs256_secret_file nor auth.jwks_file is set here: not checked");
        return;
    }
    if (!config->auth.audience)
        doctor_warn(doctor, "tokens", "set auth.audience to the name that the issuer of the tokens gives this service",
                    "auth.audience is not set: a token that was issued for another service is accepted");
    if (config->auth.max_lifetime_ms == 0)
        doctor_warn(doctor, "tokens", "set auth.max_lifetime to the longest time that the issuer of the tokens gives",
                    "auth.max_lifetime is not set: a stolen token is good until its own exp, however late");
    if (config->auth.audience && config->auth.max_lifetime_ms > 0)
        doctor_report(doctor, "tokens", true, NULL, "for %s, of a bounded lifetime", config->auth.audience);
}

void doctor_check_setup(struct doctor *doctor)
{
    const struct ctl *ctl = doctor->ctl;
    char text[PG_EXPOSED_SIZE];
    if (ctl->config->database.allow_insecure && pg_conninfo_is_exposed(config_database_url(ctl->config, 0), text))
        doctor_warn(doctor, "transport", "set sslmode=verify-full and sslrootcert in database.url of all programs",
                    "database.allow_insecure permits it: %s", text);
    check_keys(doctor);
    check_tokens(doctor);
}
