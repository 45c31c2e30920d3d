/* The configuration of every program: options from one table (config_table.h), which also makes --help and
 * --show-config.
 *
 * Precedence: --section.key=value, then ISSUING_SECTION_KEY, then the INI file, then systemd credentials, then the
 * default. An unknown option, wherever it is given, is an error that names the nearest known one. */
#ifndef ISSUING_CONFIG_H
#define ISSUING_CONFIG_H

#include <stdio.h>

#include "common/lib/base/base.h"
#include "common/lib/base/err.h"
#include "common/lib/base/log.h"

#define CONFIG_ACCOUNT_MAX 64
#define CONFIG_DEFAULT_PATH "/etc/issuing/issuing.conf"

enum config_program { CONFIG_API = 1, CONFIG_WORKER = 2, CONFIG_CTL = 4 };
enum config_limit_counts { LIMIT_COUNTS_ACCEPTED, LIMIT_COUNTS_ATTEMPTS };
enum config_link_refused { LINK_REFUSED_CANCEL, LINK_REFUSED_KEEP };
enum config_issuer_keys { ISSUER_KEYS_HONOURED, ISSUER_KEYS_IGNORED };
enum config_number_refused { NUMBER_REFUSED_FAIL, NUMBER_REFUSED_KEEP };
enum config_proxy_protocol { PROXY_PROTOCOL_OFF, PROXY_PROTOCOL_V2 };
enum config_card_store { CARD_STORE_ENCRYPTED, CARD_STORE_NEVER };

#define CONFIG_ROUTES_MAX 32
#define CONFIG_ROUTE_TYPE_SIZE 65 /* [A-Z][A-Z0-9_]{0,63} */

/* What becomes of an event whose receiver refuses it. */
#define CONFIG_MEMBERS_MAX 12
#define CONFIG_MEMBER_PATH_MAX 63

/* Where a value comes from. Private: of this folder. */
enum config_origin {
    ORIGIN_DEFAULT, /* also that of the profile generic */
    ORIGIN_PROFILE, /* the default of another profile */
    ORIGIN_FILE,
    ORIGIN_ENVIRONMENT,
    ORIGIN_FLAG,
    ORIGIN_CREDENTIAL,
};

struct config_source {
    enum config_origin origin;
    int line; /* in the file; 0 = not in it */
};

/* issuer.create.PATH = value */
struct config_member {
    char path[CONFIG_MEMBER_PATH_MAX + 1];
    char *value;
    struct config_source source;
};

enum config_on_refused { ON_REFUSED_REJECT, ON_REFUSED_QUESTION };

/* One section [route.TYPE]: how events of another type than CARD_ISSUE are delivered. */
struct config_route {
    char type[CONFIG_ROUTE_TYPE_SIZE];
    char *url;    /* required; may contain "{id}" once */
    char *method; /* "POST" or "PUT"; never NULL */
    char *credential_file;
    int64_t timeout_ms;
    int64_t key_lifetime_ms;
    int64_t max_concurrency;
    int64_t connection_age_ms;
    int64_t max_attempts;                /* default: retry.max_attempts */
    int64_t retry_base_ms, retry_cap_ms; /* defaults: those of retry */
    int64_t retry_for_ms; /* attempts continue for this time, also beyond max_attempts; 0 = they do not */
    char *lookup_url;     /* contains "{id}" once; NULL = there is no look-up */
    bool ordered;
    char *sign_secret_file;
    char *headers_file;
    bool keep_result;
    bool allow_http;
    int64_t on_refused; /* enum config_on_refused; default by sign_secret_file */
};

#define CONFIG_PLACES_MAX 64
#define CONFIG_NO_PLACE (-1)

/* Texts are owned by the configuration; an unset text is NULL. Durations are in milliseconds. */
struct config {
    struct {
        char *url; /* with {place} in it where there are several places */
        int64_t connections;
        bool allow_insecure;
        int64_t places;
        int64_t place; /* CONFIG_NO_PLACE = none is named */
    } database;
    struct {
        char *listen;
        char *admin_listen;
        char *issuer_events_listen; /* NULL: events of the issuer are not taken */
        char *issuer_events_secret_file;
        int64_t max_connections;
        int64_t max_connections_per_address; /* 0 = any number */
        int64_t idle_timeout_ms;
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
        char *account; /* NULL = none is named */
        char *proxy;
        char *credential_file;
        char *client_cert_file;
        char *client_key_file;
        int64_t timeout_ms;
        int64_t keys; /* enum config_issuer_keys */
        int64_t key_lifetime_ms;
        int64_t settle_time_ms;
        int64_t reconcile_every_ms; /* 0 = never */
        int64_t max_concurrency;
        int64_t connection_age_ms;
        bool allow_http;
        struct config_member
            members[CONFIG_MEMBERS_MAX]; /* member_count of them, in the order in which they were given */
        int member_count;
    } issuer;
    struct {
        char *url;
        char *credential_file;
        char *client_cert_file;
        char *client_key_file;
        int64_t timeout_ms;
        int64_t max_concurrency;
        int64_t connection_age_ms;
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
        int64_t number_refused; /* enum config_number_refused */
        int64_t number_retention_ms;
    } card;
    struct config_route routes[CONFIG_ROUTES_MAX]; /* route_count of them, ordered by type */
    int route_count;
    char *place_urls[CONFIG_PLACES_MAX]; /* private: database.url for each of several places */
    struct {
        char *link;     /* http or https, with {trace_id} once */
        char *endpoint; /* spans go to <endpoint>/v1/traces; NULL = as OpenTelemetry's own variables say */
        char *headers_file;
        char *ca_file;
        int64_t sample_millionths;
    } trace;
    struct {
        int64_t level;  /* enum log_level */
        int64_t format; /* enum log_format; default by isatty(2) */
    } log;
    /* Arguments that are not options, in order; borrowed from argv. */
    char **arguments;
    int argument_count;
    bool check_only;                /* --check-config was given */
    bool show;                      /* --show-config */
    bool help;                      /* --help or -h */
    bool version;                   /* --version */
    int passed_over;                /* variables that Kubernetes sets for Services named like our programs */
    struct config_origins *origins; /* private: where each value came from */
};

/* Reads all sources. Arguments that are not options ("--json", "--status S", ...) are left in `arguments`, in order,
 * for ctl; the daemons allow none, so an unknown flag is an error there. argv must live as long as the configuration.
 * ERR_USAGE for the command line, ERR_CONFIG for the other sources. */
must_check bool config_load(struct config *ret_config, enum config_program program, int argc, char **argv,
                            struct err *err);
/* What this program needs beyond single values: a source of keys for the api, URLs for the worker, relations between
 * options (retention and the longest retry schedule, lease and timeouts, http:// only to the loopback). Opens no file.
 * ERR_CONFIG. */
must_check bool config_check(const struct config *config, enum config_program program, struct err *err);
void config_done(struct config *config);
/* As issuer.account: at most CONFIG_ACCOUNT_MAX letters, digits, '_', '.', ':' and '-'. */
bool config_is_account(const char *text);
/* The url of the database of a place: database.url, with the number instead of {place}. NULL = libpq's own environment.
 * Borrowed. */
const char *config_database_url(const struct config *config, int place);
/* One line an option: `section.key = value  # origin`; a password inside a url of a database is masked. */
void config_show(const struct config *config, FILE *out);
/* Whether anything but the default gives this option ("api.listen") its value. */
bool config_is_set(const struct config *config, const char *name);
/* Calls on_difference with the name of each option of this program that differs between the two, those of routes
 * excepted. */
void config_compare(const struct config *left, const struct config *right, enum config_program program,
                    void (*on_difference)(void *context, const char *name), void *context);
/* The same for the routes; one that only one of the two has is named as a whole. */
void config_compare_routes(const struct config *left, const struct config *right,
                           void (*on_difference)(void *context, const char *name), void *context);
/* Calls on_option for each option that all workers of one database must have alike, each issuer.create.* among them.
 * false: out of memory. */
must_check bool config_each_agreed(const struct config *config,
                                   void (*on_option)(void *context, const char *name, const char *value),
                                   void *context);
/* Swaps the routes; each configuration then owns the texts of those that it got. */
void config_swap_routes(struct config *one, struct config *other);
/* The options of this program with defaults and help, for --help. */
void config_help(enum config_program program, FILE *out);

/* The name of the systemd credential that this file is: a copy in $CREDENTIALS_DIRECTORY that systemd made when the
 * unit started. NULL = it is not such a copy. Borrowed from path, which may be NULL. */
const char *config_credential_of(const char *path);
/* Calls on_file with each file that the options of this program name, the worker's routes among them. */
void config_each_file(const struct config *config, enum config_program program,
                      void (*on_file)(void *context, const char *name, const char *path), void *context);

/* systemd credentials: where $CREDENTIALS_DIRECTORY/<credential> exists and its option is unset, config_load() sets the
 * option to that path. The option table has the names. */

#endif
