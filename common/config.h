/* Every option of every program in one table: section, key, type, default, limits, help (CONTRACT 6).
 *
 * Precedence: --section.key=value, then ISSUING_SECTION_KEY, then the INI file, then the default. Unknown options
 * anywhere are errors that name the nearest one. The table also makes --help, --show-config and the manual page. */
#ifndef ISSUING_CONFIG_H
#define ISSUING_CONFIG_H

#include <stdio.h>

#include "common/base.h"
#include "common/err.h"
#include "common/log.h"

#define CONFIG_DEFAULT_PATH "/etc/issuing/issuing.conf"

enum config_program { CONFIG_API = 1, CONFIG_WORKER = 2, CONFIG_CTL = 4 };
enum config_limit_counts { LIMIT_COUNTS_ACCEPTED, LIMIT_COUNTS_ATTEMPTS };
enum config_link_refused { LINK_REFUSED_CANCEL, LINK_REFUSED_KEEP };
enum config_card_store { CARD_STORE_ENCRYPTED, CARD_STORE_NEVER };

/* Texts are owned by the config; an unset text is NULL. Durations in milliseconds. */
struct config {
    struct {
        char *url;
        int64_t connections;
    } database;
    struct {
        char *listen;
        char *admin_listen;
        int64_t max_connections;
    } api;
    struct {
        char *hs256_secret_file;
        char *jwks_file;
        char *issuer;
        char *audience;
    } auth;
    struct {
        int64_t count;
        int64_t window_ms;
        int64_t counts; /* enum config_limit_counts */
    } limit;
    struct {
        int64_t retention_ms;
    } idempotency;
    struct {
        int64_t retention_ms;
    } outbox;
    struct {
        int64_t poll_interval_ms;
        int64_t max_in_flight;
        int64_t lease_ms;
        char *admin_listen;
    } worker;
    struct {
        int64_t max_attempts;
        int64_t base_ms;
        int64_t cap_ms;
    } retry;
    struct {
        char *profile;
        char *url;
        char *credential_file;
        int64_t timeout_ms;
        int64_t key_lifetime_ms;
        int64_t settle_time_ms;
        int64_t max_concurrency;
        bool allow_http;
    } issuer;
    struct {
        char *url;
        char *credential_file;
        int64_t timeout_ms;
        int64_t max_concurrency;
        bool allow_http;
        int64_t on_link_refused; /* enum */
    } core;
    struct {
        char *ca_file;
    } tls;
    struct {
        int64_t failures;
        int64_t probe_interval_ms;
    } breaker;
    struct {
        int64_t store; /* enum config_card_store */
        char *keys_file;
    } card;
    struct {
        int64_t level;  /* enum log_level */
        int64_t format; /* enum log_format; default by isatty(2) */
    } log;
    /* Arguments that are no options, in order; borrowed from argv. */
    char **arguments;
    int argument_count;
    bool check_only;                /* --check-config was given */
    bool show;                      /* --show-config */
    bool help;                      /* --help or -h */
    bool version;                   /* --version */
    struct config_origins *origins; /* private: where each value came from */
};

/* Options of this program that are no configuration: "--json", "--status S", ... (ctl). They are left in `arguments`,
 * in order, with
 * their values, unless they look like --section.key=value. Daemons allow none: an unknown flag is an error there. */
must_check bool config_load(struct config *ret_config, enum config_program program, int argc, char **argv,
                            struct err *err);
/* What only this program needs: a key source for the api, urls for the worker, ranges between options (retention
 * against the
 * longest retry schedule, the lease against the timeouts, http:// only to loopback). Kind ERR_CONFIG. */
must_check bool config_check(const struct config *config, enum config_program program, struct err *err);
void config_done(struct config *config);
/* One line an option: `section.key = value  # origin`; secrets (a password inside database.url) masked. */
void config_show(const struct config *config, FILE *out);
/* The options of this program with defaults and help, for --help. */
void config_help(enum config_program program, FILE *out);
/* Rows for docs and their check: "section.key<TAB>default<TAB>programs<TAB>help". */
void config_list(FILE *out);

/* systemd credentials: where $CREDENTIALS_DIRECTORY/<name> exists and the *_file option is unset, config_load fills the
 * option with that
 * path: hs256_secret, jwks, issuer_credential, core_credential, card_keys. */

#endif
