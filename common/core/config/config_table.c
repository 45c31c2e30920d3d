/* Every option there is: the only list of them.
 *
 * Invariants: a default is written as a person would write it and is read like any other value; every range is bounded.
 * Left out: reading (config.c), rules between options (config_check.c), printing (config_show.c). */
#include "common/core/config/config_table.h"

#include <assert.h>
#include <string.h>

#include "common/core/issuer_profiles.h"
#include "common/lib/config/config_value.h"

#define SECOND INT64_C(1000)
#define MINUTE (60 * SECOND)
#define HOUR (60 * MINUTE)
#define DAY (24 * HOUR)

/* In the order of the enums in config.h and log.h. */
static const char *const words_counts[] = {"accepted", "attempts", NULL};
static const char *const words_issuer_keys[] = {"honoured", "ignored", NULL};
static const char *const words_link_refused[] = {"cancel", "keep", NULL};
static const char *const words_number_refused[] = {"fail", "keep", NULL};
static const char *const words_proxy_protocol[] = {"off", "v2", NULL};
static const char *const words_store[] = {"encrypted", "never", NULL};
static const char *const words_level[] = {"debug", "info", "warning", "error", NULL};
static const char *const words_format[] = {"text", "json", NULL};

#define NAME(name, timeout, lease, settle_time, key_lifetime) #name,
#define TIMEOUT(name, timeout, lease, settle_time, key_lifetime) timeout,
#define LEASE(name, timeout, lease, settle_time, key_lifetime) lease,
#define SETTLE_TIME(name, timeout, lease, settle_time, key_lifetime) settle_time,
#define KEY_LIFETIME(name, timeout, lease, settle_time, key_lifetime) key_lifetime,

const char *const config_profiles[] = {ISSUER_PROFILES(NAME) NULL};
static const char *const timeouts[] = {ISSUER_PROFILES(TIMEOUT)};
static const char *const leases[] = {ISSUER_PROFILES(LEASE)};
static const char *const settle_times[] = {ISSUER_PROFILES(SETTLE_TIME)};
static const char *const key_lifetimes[] = {ISSUER_PROFILES(KEY_LIFETIME)};

#define API CONFIG_API
#define WORKER CONFIG_WORKER
#define CTL CONFIG_CTL
#define TO(member) .offset = offsetof(struct config, member)
#define RANGE(least, most) .min = (least), .max = (most)

const struct config_option config_options[] = {
    {"database", "url", OPTION_CONNINFO, TO(database.url), .note = "libpq's own environment",
     .programs = API | WORKER | CTL, .help = "Where PostgreSQL is: a libpq conninfo or URI."},
    {"database", "connections", OPTION_INTEGER, TO(database.connections), .default_text = "4", RANGE(1, 256),
     .programs = API | WORKER, .help = "Connections to PostgreSQL of one process."},
    {"database", "allow_insecure", OPTION_BOOL, TO(database.allow_insecure), .default_text = "false",
     .programs = API | WORKER | CTL,
     .help = "Whether PostgreSQL may be on another machine without sslmode=verify-full."},
    {"database", "places", OPTION_INTEGER, TO(database.places), .default_text = "1", RANGE(1, CONFIG_PLACES_MAX),
     .programs = API | WORKER | CTL,
     .help = "The databases over which users are divided, for ever; more than one need {place} in database.url."},
    {"database", "place", OPTION_INTEGER, TO(database.place), RANGE(0, CONFIG_PLACES_MAX - 1), .programs = WORKER | CTL,
     .help = "Which of several places this program works in, the first is 0. A worker needs it."},

    {"api", "listen", OPTION_ADDRESS, TO(api.listen), .default_text = "127.0.0.1:8080", .programs = API,
     .help = "Where clients are served."},
    {"api", "admin_listen", OPTION_ADDRESS, TO(api.admin_listen), .default_text = "127.0.0.1:8081", .programs = API,
     .help = "Where the api answers /livez, /readyz and /metrics."},
    {"api", "issuer_events_listen", OPTION_ADDRESS, TO(api.issuer_events_listen), .programs = API,
     .help = "Where the issuer may send its events: POST /v1/issuer-events."},
    {"api", "issuer_events_secret_file", OPTION_FILE, TO(api.issuer_events_secret_file),
     .credential = "issuer_events_secret", .programs = API,
     .help =
         "The secret that the issuer signs its events with: one line, or two, in the form that issuer.profile takes."},
    {"api", "max_connections", OPTION_INTEGER, TO(api.max_connections), .default_text = "10000", RANGE(1, 1000000),
     .programs = API, .help = "Client connections at once."},
    {"api", "max_connections_per_address", OPTION_INTEGER, TO(api.max_connections_per_address), .default_text = "0",
     RANGE(0, 1000000), .programs = API,
     .help = "Connections of one client address at once; 0 = any number. Trusted proxies have no limit."},
    {"api", "idle_timeout", OPTION_DURATION, TO(api.idle_timeout_ms), .default_text = "75s", RANGE(1000, DAY),
     .programs = API,
     .help = "How long a client's connection may be idle; Keep-Alive states it. Set it longer than a load balancer in "
             "front keeps an idle connection."},
    {"api", "trusted_proxies", OPTION_TEXT, TO(api.trusted_proxies), .programs = API,
     .help = "Addresses and networks of the proxies that may state a client's address."},
    {"api", "proxy_protocol", OPTION_CHOICE, TO(api.proxy_protocol), .default_text = "off",
     .words = words_proxy_protocol, .programs = API,
     .help = "Whether each connection of a trusted proxy begins with a PROXY header of version 2."},
    {"api", "client_address_header", OPTION_TEXT, TO(api.client_address_header), .programs = API,
     .help = "The header in which a trusted proxy states the client's address of each request: X-Forwarded-For."},

    {"auth", "hs256_secret_file", OPTION_FILE, TO(auth.hs256_secret_file), .credential = "hs256_secret",
     .programs = API, .help = "The secret that HS256 tokens are checked with, 32 bytes or more."},
    {"auth", "jwks_file", OPTION_FILE, TO(auth.jwks_file), .credential = "jwks", .programs = API,
     .help = "The key set that RS256, ES256 and EdDSA tokens are checked with."},
    {"auth", "issuer", OPTION_TEXT, TO(auth.issuer), .programs = API, .help = "What the iss claim of a token must be."},
    {"auth", "audience", OPTION_TEXT, TO(auth.audience), .programs = API,
     .help = "What the aud claim of a token must be or contain."},
    {"auth", "require_kid", OPTION_BOOL, TO(auth.require_kid), .default_text = "false", .programs = API,
     .help = "Whether a token that names no key (kid) is refused; else all keys of its algorithm are tried."},
    {"auth", "max_lifetime", OPTION_DURATION, TO(auth.max_lifetime_ms), .default_text = "0s", RANGE(0, 36600 * DAY),
     .programs = API, .help = "How far in the future exp of a token may be; 0s = any time."},

    {"limit", "count", OPTION_INTEGER, TO(limit.count), .default_text = "1", RANGE(1, 1000000), .programs = API | CTL,
     .help = "Requests of one user that are accepted within limit.window."},
    {"limit", "window", OPTION_DURATION, TO(limit.window_ms), .default_text = "10s", RANGE(100, 366 * DAY),
     .programs = API | CTL, .help = "The sliding window in which limit.count requests are accepted."},
    {"limit", "counts", OPTION_CHOICE, TO(limit.counts), .default_text = "accepted", .words = words_counts,
     .programs = API | CTL,
     .help = "Which requests the limit counts: the accepted ones only, or the refused ones too."},

    {"idempotency", "retention", OPTION_DURATION, TO(idempotency.retention_ms), .default_text = "24h",
     RANGE(1 * SECOND, 3660 * DAY), .programs = API | WORKER,
     .help = "How long a key is kept after its request is final; not below the longest retry schedule."},

    {"outbox", "retention", OPTION_DURATION, TO(outbox.retention_ms), .default_text = "365d",
     RANGE(SECOND, 36600 * DAY), .programs = WORKER,
     .help = "How long a finished event and its attempts are kept at least; never shorter than its key is kept."},

    {"worker", "poll_interval", OPTION_DURATION, TO(worker.poll_interval_ms), .default_text = "1s", RANGE(10, HOUR),
     .programs = WORKER, .help = "How often a worker looks for events when nothing wakes it."},
    {"worker", "max_in_flight", OPTION_INTEGER, TO(worker.max_in_flight), .default_text = "128", RANGE(1, 10000),
     .programs = WORKER, .help = "Events that one worker holds at once."},
    {"worker", "lease", OPTION_DURATION, TO(worker.lease_ms), .by_profile = leases, RANGE(100, DAY), .programs = WORKER,
     .help =
         "How long a worker holds an event before another may take it; at least 2 x (issuer.timeout + core.timeout)."},
    {"worker", "admin_listen", OPTION_ADDRESS, TO(worker.admin_listen), .default_text = "127.0.0.1:8091",
     .programs = WORKER, .help = "Where the worker answers /livez, /readyz and /metrics. 8090+12 is port 8102."},

    {"retry", "max_attempts", OPTION_INTEGER, TO(retry.max_attempts), .default_text = "10", RANGE(1, 1000),
     .programs = API | WORKER | CTL, .help = "Attempts of an event."},
    {"retry", "base", OPTION_DURATION, TO(retry.base_ms), .default_text = "1s", RANGE(1, DAY),
     .programs = API | WORKER | CTL,
     .help = "The longest wait after the first attempt; it doubles with each attempt (full jitter)."},
    {"retry", "cap", OPTION_DURATION, TO(retry.cap_ms), .default_text = "5m", RANGE(1, 30 * DAY),
     .programs = API | WORKER | CTL, .help = "The longest wait after any attempt."},

    {"issuer", "profile", OPTION_WORD, TO(issuer.profile), .default_text = "generic", .words = config_profiles,
     .programs = API | WORKER | CTL, .must_agree = true,
     .help = "The issuer's API; generic is our own. Defaults of other options depend on it."},
    {"issuer", "parameters", OPTION_TEXT, TO(issuer.parameters), .programs = WORKER, .must_agree = true,
     .help =
         "The values that the issuer needs with every card: name=value, or name=\"value with blanks\", separated by "
         "blanks; the names depend on issuer.profile."},
    {"issuer", "url", OPTION_URL, TO(issuer.url), .programs = WORKER, .must_agree = true,
     .help = "Where the issuer is. Required by the worker."},
    {"issuer", "account", OPTION_TEXT, TO(issuer.account), .programs = WORKER, .must_agree = true,
     .help = "A name for our account at the issuer, if one address serves several accounts: with another name it is "
             "another issuer. Keep the name when the account gets a new credential."},
    {"issuer", "proxy", OPTION_URL, TO(issuer.proxy), .programs = WORKER,
     .help = "The HTTP proxy, http://HOST:PORT, through which the worker connects to the issuer, by CONNECT."},
    {"issuer", "credential_file", OPTION_FILE, TO(issuer.credential_file), .credential = "issuer_credential",
     .programs = WORKER, .help = "Our credential at the issuer, in the form that issuer.profile takes."},
    {"issuer", "client_cert_file", OPTION_FILE, TO(issuer.client_cert_file), .credential = "issuer_client_cert",
     .programs = WORKER, .help = "Our certificate for the issuer and its chain, PEM; with issuer.client_key_file."},
    {"issuer", "client_key_file", OPTION_FILE, TO(issuer.client_key_file), .credential = "issuer_client_key",
     .programs = WORKER, .help = "The private key of issuer.client_cert_file, PEM, without a passphrase."},
    {"issuer", "timeout", OPTION_DURATION, TO(issuer.timeout_ms), .by_profile = timeouts, RANGE(10, 10 * MINUTE),
     .programs = WORKER | CTL, .help = "Time of one call to the issuer."},
    {"issuer", "keys", OPTION_CHOICE, TO(issuer.keys), .default_text = "honoured", .words = words_issuer_keys,
     .programs = WORKER | CTL, .must_agree = true,
     .help =
         "Whether the issuer honours idempotency keys; only for the profile generic. With `ignored` no create is sent "
         "a second time before a look-up has found nothing and issuer.settle_time has passed."},
    {"issuer", "key_lifetime", OPTION_DURATION, TO(issuer.key_lifetime_ms), .by_profile = key_lifetimes,
     RANGE(100, 3660 * DAY), .programs = WORKER | CTL, .must_agree = true,
     .help = "How long the issuer honours an idempotency key; 3660d = for ever."},
    {"issuer", "settle_time", OPTION_DURATION, TO(issuer.settle_time_ms), .by_profile = settle_times, RANGE(20, DAY),
     .programs = WORKER | CTL, .must_agree = true,
     .help = "How long after its send a create may still arrive at the issuer. Until then a look-up that finds no card "
             "decides nothing. At least 2 x issuer.timeout."},
    {"issuer", "reconcile_every", OPTION_DURATION, TO(issuer.reconcile_every_ms), .default_text = "0s",
     RANGE(0, 30 * DAY), .programs = WORKER,
     .help = "How often the issuer's own list of its cards is compared with ours, as by reconcile --from-issuer; 0s = "
             "never, 24h = every day."},
    {"issuer", "max_concurrency", OPTION_INTEGER, TO(issuer.max_concurrency), .default_text = "64", RANGE(1, 10000),
     .programs = WORKER, .help = "Calls to the issuer by one worker at once."},
    {"issuer", "connection_age", OPTION_DURATION, TO(issuer.connection_age_ms), .default_text = "5m", RANGE(1000, DAY),
     .programs = WORKER,
     .help = "How old a connection to the issuer may become; then a new one is made, to the address that the name has "
             "at that time."},
    {"issuer", "allow_http", OPTION_BOOL, TO(issuer.allow_http), .default_text = "false", .programs = WORKER,
     .help = "Whether issuer.url may be http:// to another machine."},

    {"core", "url", OPTION_URL, TO(core.url), .programs = WORKER, .must_agree = true,
     .help = "Where core-api is. Required by the worker."},
    {"core", "credential_file", OPTION_FILE, TO(core.credential_file), .credential = "core_credential",
     .programs = WORKER, .help = "The bearer token for core-api."},
    {"core", "client_cert_file", OPTION_FILE, TO(core.client_cert_file), .credential = "core_client_cert",
     .programs = WORKER, .help = "Our certificate for core-api and its chain, PEM; with core.client_key_file."},
    {"core", "client_key_file", OPTION_FILE, TO(core.client_key_file), .credential = "core_client_key",
     .programs = WORKER, .help = "The private key of core.client_cert_file, PEM, without a passphrase."},
    {"core", "timeout", OPTION_DURATION, TO(core.timeout_ms), .default_text = "3s", RANGE(10, 10 * MINUTE),
     .programs = WORKER, .help = "Time of one call to core-api."},
    {"core", "max_concurrency", OPTION_INTEGER, TO(core.max_concurrency), .default_text = "64", RANGE(1, 10000),
     .programs = WORKER, .help = "Calls to core-api by one worker at once."},
    {"core", "connection_age", OPTION_DURATION, TO(core.connection_age_ms), .default_text = "5m", RANGE(1000, DAY),
     .programs = WORKER,
     .help = "How old a connection to core-api may become; then a new one is made, to the address that the name has at "
             "that time."},
    {"core", "allow_http", OPTION_BOOL, TO(core.allow_http), .default_text = "false", .programs = WORKER,
     .help = "Whether core.url may be http:// to another machine."},
    {"core", "on_link_refused", OPTION_CHOICE, TO(core.on_link_refused), .default_text = "cancel",
     .words = words_link_refused, .programs = WORKER, .must_agree = true,
     .help = "Whether a card that core-api refuses to link is cancelled at the issuer, or kept."},

    {"tls", "ca_file", OPTION_FILE, TO(tls.ca_file), .note = "the system's", .programs = WORKER,
     .help = "The authorities that https to the issuer and core-api trusts, PEM; with a CRL, revocation is checked."},

    {"breaker", "failures", OPTION_INTEGER, TO(breaker.failures), .default_text = "5", RANGE(1, 1000),
     .programs = WORKER, .help = "Failures in a row that open the breaker of a target."},
    {"breaker", "probe_interval", OPTION_DURATION, TO(breaker.probe_interval_ms), .default_text = "2s",
     RANGE(10, 30 * SECOND), .programs = WORKER,
     .help = "How long an open breaker waits before its first probe; the wait doubles up to 30s."},

    {"card", "store", OPTION_CHOICE, TO(card.store), .default_text = "encrypted", .words = words_store,
     .programs = API | WORKER | CTL, .must_agree = true, .help = "Whether card numbers are stored."},
    {"card", "keys_file", OPTION_FILE, TO(card.keys_file), .credential = "card_keys", .programs = API | WORKER | CTL,
     .help =
         "The keys of stored card numbers, made by issuing-ctl keys generate. Required by the worker when encrypted."},
    {"card", "number_refused", OPTION_CHOICE, TO(card.number_refused), .default_text = "fail",
     .words = words_number_refused, .programs = WORKER, .must_agree = true,
     .help =
         "If the issuer refuses to show a card number: whether the request fails, or the card is stored without it."},
    {"card", "number_retention", OPTION_DURATION, TO(card.number_retention_ms), .default_text = "36600d",
     RANGE(7 * DAY, 36600 * DAY), .programs = WORKER | CTL, .must_agree = true,
     .help = "How long a stored number is kept after its card was closed or expired; then it is erased. 36600d = for "
             "ever. The database keeps the longest time that a worker had, until its owner shortens it."},
    {"card", "reveal_limit", OPTION_INTEGER, TO(card.reveal_limit), .default_text = "10", RANGE(0, 1000),
     .programs = API,
     .help = "Card numbers shown to one user within a minute; 0 = none. Never more than the database's ceiling."},

    {"trace", "link", OPTION_TEXT, TO(trace.link), .programs = CTL,
     .help = "The page of a trace in a tracing backend, with {trace_id} in it; explain and the console link to it."},
    {"trace", "endpoint", OPTION_URL, TO(trace.endpoint), .note = "OTEL_EXPORTER_OTLP_*, or none",
     .programs = API | WORKER,
     .help = "The receiver of spans, OTLP over HTTP in JSON; they are posted to <endpoint>/v1/traces."},
    {"trace", "headers_file", OPTION_FILE, TO(trace.headers_file), .note = "OTEL_EXPORTER_OTLP_HEADERS, or none",
     .programs = API | WORKER,
     .help = "Headers of every request to that receiver, one \"Name: value\" a line: an API key, a tenant."},
    {"trace", "ca_file", OPTION_FILE, TO(trace.ca_file), .note = "the system's", .programs = API | WORKER,
     .help = "The authorities that https to that receiver trusts, PEM."},
    {"trace", "sample", OPTION_SHARE, TO(trace.sample_millionths), .default_text = "1", .programs = API | WORKER,
     .help = "The share of the events without a traceparent of a client whose spans are sent, 0 to 1; a client's own "
             "flag is obeyed."},

    {"log", "level", OPTION_CHOICE, TO(log.level), .default_text = "info", .words = words_level,
     .synonym = {"warn", LOG_WARNING}, .programs = API | WORKER | CTL,
     .help = "The least important lines that are written."},
    {"log", "format", OPTION_CHOICE, TO(log.format), .note = "text on a terminal, else json", .words = words_format,
     .programs = API | WORKER | CTL, .help = "How lines are written to standard error."},
};

const size_t config_option_count = ARRAY_SIZE(config_options);
static_assert(ARRAY_SIZE(config_options) <= CONFIG_OPTIONS_MAX, "raise CONFIG_OPTIONS_MAX in config_table.h");

/* ---- settings ---- */

struct config_setting config_setting_of(const struct config *config, const struct config_option *option)
{
    return (struct config_setting){
        .option = option,
        .type = "",
        .key = option->key,
        .value = (char *)(uintptr_t)config + option->offset,
        .source = config->origins ? &config->origins->of[option - config_options] : NULL,
    };
}

struct config_setting config_setting_of_route(const struct config *config, int route,
                                              const struct config_option *option)
{
    return (struct config_setting){
        .option = option,
        .type = config->routes[route].type,
        .key = option->key,
        .value = (char *)(uintptr_t)&config->routes[route] + option->offset,
        .source = config->origins ? &config->origins->routes[route].of[option - config_route_options] : NULL,
    };
}

static struct config_setting setting_of_member(const struct config_member *member)
{
    static const struct config_option option = {"issuer", NULL, OPTION_TEXT, .programs = WORKER, .must_agree = true};
    struct config_member *place = (struct config_member *)(uintptr_t)member;
    return (struct config_setting){&option, "create", member->path, &place->value, &place->source};
}

bool config_setting_at(const struct config *config, size_t index, struct config_setting *ret_setting)
{
    size_t members = (size_t)config->issuer.member_count;
    if (index < config_option_count) {
        *ret_setting = config_setting_of(config, &config_options[index]);
        return true;
    }
    index -= config_option_count;
    if (index < members) {
        *ret_setting = setting_of_member(&config->issuer.members[index]);
        return true;
    }
    index -= members;
    if (index >= (size_t)config->route_count * config_route_option_count)
        return false;
    *ret_setting = config_setting_of_route(config, (int)(index / config_route_option_count),
                                           &config_route_options[index % config_route_option_count]);
    return true;
}

/* ---- names ---- */

void config_to_upper(char *text)
{
    for (; *text; text++)
        if (*text >= 'a' && *text <= 'z')
            *text = (char)(*text - 'a' + 'A');
}

void config_setting_name(const struct config_setting *setting, char ret_name[CONFIG_NAME_SIZE])
{
    snprintf(ret_name, CONFIG_NAME_SIZE, "%s.%s%s%s", setting->option->section, setting->type,
             setting->type[0] ? "." : "", setting->key);
}

void config_setting_variable(const struct config_setting *setting, char ret_name[CONFIG_NAME_SIZE])
{
    snprintf(ret_name, CONFIG_NAME_SIZE, "ISSUING_%s_%s%s%s", setting->option->section, setting->type,
             setting->type[0] ? "_" : "", setting->key);
    config_to_upper(ret_name);
}

void config_option_name(const struct config_option *option, char ret_name[CONFIG_NAME_SIZE])
{
    snprintf(ret_name, CONFIG_NAME_SIZE, "%s.%s", option->section, option->key);
}

void config_option_variable(const struct config_option *option, char ret_name[CONFIG_NAME_SIZE])
{
    snprintf(ret_name, CONFIG_NAME_SIZE, "ISSUING_%s_%s", option->section, option->key);
    config_to_upper(ret_name);
}

void config_option_section(const struct config_option *option, char ret_name[CONFIG_NAME_SIZE])
{
    snprintf(ret_name, CONFIG_NAME_SIZE, "%s", option->section);
}

void config_option_key(const struct config_option *option, char ret_name[CONFIG_NAME_SIZE])
{
    snprintf(ret_name, CONFIG_NAME_SIZE, "%s", option->key);
}

const struct config_option *config_find_option(const struct config_option *options, size_t count, const char *name,
                                               void (*name_of)(const struct config_option *, char[CONFIG_NAME_SIZE]),
                                               char ret_nearest[CONFIG_NAME_SIZE])
{
    size_t least = SIZE_MAX;

    for (size_t i = 0; i < count; i++) {
        char candidate[CONFIG_NAME_SIZE];
        size_t distance;
        name_of(&options[i], candidate);
        if (strcmp(candidate, name) == 0)
            return &options[i];
        distance = config_value_distance(candidate, name);
        if (distance < least) {
            least = distance;
            memcpy(ret_nearest, candidate, CONFIG_NAME_SIZE);
        }
    }
    return NULL;
}

const char *config_default_of(const struct config_option *option)
{
    return option->by_profile ? option->by_profile[0] : option->default_text;
}

bool config_is_text(const struct config_option *option)
{
    return option->type <= OPTION_URL;
}
