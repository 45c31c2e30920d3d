/* The configuration of every program: options from one table (config_table.h), which also makes --help and
 * --show-config.
 *
 * Precedence: --section.key=value, then ISSUING_SECTION_KEY, then the INI file, then systemd credentials, then the
 * default. An unknown option, wherever it is given, is an error that names the nearest known one. */
#ifndef ISSUING_CONFIG_H
#define ISSUING_CONFIG_H

#include <stdio.h>

#include "common/base/base.h"
#include "common/base/err.h"
#include "common/base/log.h"

#define CONFIG_DEFAULT_PATH "/etc/issuing/issuing.conf"

enum config_program { CONFIG_API = 1, CONFIG_WORKER = 2, CONFIG_CTL = 4 };
enum config_limit_counts { LIMIT_COUNTS_ACCEPTED, LIMIT_COUNTS_ATTEMPTS };
enum config_link_refused { LINK_REFUSED_CANCEL, LINK_REFUSED_KEEP };
enum config_proxy_protocol { PROXY_PROTOCOL_OFF, PROXY_PROTOCOL_V2 };
enum config_card_store { CARD_STORE_ENCRYPTED, CARD_STORE_NEVER };

#define CONFIG_ROUTES_MAX 32
#define CONFIG_ROUTE_TYPE_SIZE 65 /* [A-Z][A-Z0-9_]{0,63} */

/* One section [route.TYPE]: how events of another type than CARD_ISSUE are delivered. */
struct config_route {
    char type[CONFIG_ROUTE_TYPE_SIZE];
    char *url;    /* required */
    char *method; /* "POST" or "PUT"; never NULL */
    char *credential_file;
    int64_t timeout_ms;
    int64_t key_lifetime_ms;
    int64_t max_concurrency;
    int64_t max_attempts; /* default: retry.max_attempts */
    char *lookup_url;     /* contains "{id}" once; NULL = there is no look-up */
    bool ordered;
    char *sign_secret_file;
    bool keep_result;
    bool allow_http;
};

/* Texts are owned by the configuration; an unset text is NULL. Durations are in milliseconds. */
struct config {
    struct {
        char *url;
        int64_t connections;
    } database;
    struct {
        char *listen;
        char *admin_listen;
        int64_t max_connections;
        int64_t max_connections_per_address; /* 0 = any number */
        char *trusted_proxies;
        int64_t proxy_protocol; /* enum config_proxy_protocol */
        char *client_address_header;
    } api;
    struct {
        char *hs256_secret_file;
        char *jwks_file;
        char *issuer;
        char *audience;
        bool require_kid;
        int64_t max_lifetime_ms; /* 0 = any */
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
        char *profile; /* one of config_profiles (config_table.h); never NULL */
        char *parameters;
        char *url;
        char *proxy;
        char *credential_file;
        char *client_cert_file;
        char *client_key_file;
        int64_t timeout_ms;
        int64_t key_lifetime_ms;
        int64_t settle_time_ms;
        int64_t max_concurrency;
        bool allow_http;
    } issuer;
    struct {
        char *url;
        char *credential_file;
        char *client_cert_file;
        char *client_key_file;
        int64_t timeout_ms;
        int64_t max_concurrency;
        bool allow_http;
        int64_t on_link_refused; /* enum config_link_refused */
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
        int64_t reveal_limit;
    } card;
    struct config_route routes[CONFIG_ROUTES_MAX]; /* route_count of them, ordered by type */
    int route_count;
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

/* Reads all sources. Arguments that are no options ("--json", "--status S", ...) are left in `arguments`, in order, for
 * ctl; the daemons allow none, so an unknown flag is an error there. argv must live as long as the configuration.
 * ERR_USAGE for the command line, ERR_CONFIG for the other sources. */
must_check bool config_load(struct config *ret_config, enum config_program program, int argc, char **argv,
                            struct err *err);
/* What this program needs beyond single values: a source of keys for the api, URLs for the worker, relations between
 * options (retention and the longest retry schedule, lease and timeouts, http:// only to the loopback). Opens no file.
 * ERR_CONFIG. */
must_check bool config_check(const struct config *config, enum config_program program, struct err *err);
void config_done(struct config *config);
/* One line an option: `section.key = value  # origin`; a password inside a url of a database is masked. */
void config_show(const struct config *config, FILE *out);
/* Whether anything but the default gives this option ("api.listen") its value. */
bool config_is_set(const struct config *config, const char *name);
/* Calls on_difference with the name of each option of this program that differs between the two. */
void config_compare(const struct config *left, const struct config *right, enum config_program program,
                    void (*on_difference)(void *context, const char *name), void *context);
/* The options of this program with defaults and help, for --help. */
void config_help(enum config_program program, FILE *out);

/* systemd credentials: where $CREDENTIALS_DIRECTORY/<credential> exists and its option is unset, config_load() sets the
 * option to that path. The option table has the names. */

#endif
