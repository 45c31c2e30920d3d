/* What a program needs of its options, and how options relate to each other.
 *
 * Invariants: each rule is one function and names its options; the first broken rule is reported. No rule applies to a
 * program that does not use its options, so that one file can serve all programs.
 * Left out: what a single value must look like (config.c has refused it already). */
#include <string.h>
#include <strings.h>

#include "common/core/config/config_table.h"
#include "common/lib/base/backoff.h"
#include "common/lib/base/ip_address.h"
#include "common/lib/config/config_value.h"

static bool check_key_source(const struct config *config, struct err *err)
{
    return config->auth.hs256_secret_file || config->auth.jwks_file ||
           err_set(err, ERR_CONFIG, "the api needs auth.hs256_secret_file or auth.jwks_file to check tokens with");
}

static bool is_wildcard(const char *host)
{
    return strcmp(host, "*") == 0 || strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0;
}

static bool check_listen(const struct config *config, struct err *err)
{
    static const char *const names[] = {"api.listen", "api.admin_listen", "api.issuer_events_listen"};
    const char *const values[] = {config->api.listen, config->api.admin_listen, config->api.issuer_events_listen};
    char hosts[ARRAY_SIZE(names)][CONFIG_HOST_SIZE];
    int ports[ARRAY_SIZE(names)];

    if (values[2] && !config->api.issuer_events_secret_file)
        return err_set(err, ERR_CONFIG, "api.issuer_events_listen needs api.issuer_events_secret_file");
    for (size_t i = 0; i < ARRAY_SIZE(names) && values[i]; i++) {
        if (!config_value_address(values[i], hosts[i], &ports[i], err))
            return false;
        for (size_t j = 0; j < i; j++)
            if (ports[i] != 0 && ports[i] == ports[j] &&
                (strcasecmp(hosts[i], hosts[j]) == 0 || is_wildcard(hosts[i]) || is_wildcard(hosts[j])))
                return err_set(err, ERR_CONFIG, "%s and %s are the same address (port %d)", names[j], names[i],
                               ports[i]);
    }
    return true;
}

static bool check_client_address_header(const char *name, struct err *err)
{
    size_t length = strlen(name);
    if (length > 64 || strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") != length)
        return err_set(err, ERR_CONFIG, "api.client_address_header is not the name of a header");
    /* RFC 7239 has a form of its own. */
    return strcasecmp(name, "Forwarded") != 0 ||
           err_set(err, ERR_CONFIG,
                   "api.client_address_header: Forwarded is not read; let the proxy set X-Forwarded-For");
}

static bool check_proxies(const struct config *config, struct err *err)
{
    struct ip_networks networks;
    const char *header = config->api.client_address_header;

    if (config->api.trusted_proxies && !ip_networks_parse(config->api.trusted_proxies, &networks, err))
        return err_prefix(err, "api.trusted_proxies");
    if (!config->api.trusted_proxies && (header || config->api.proxy_protocol != PROXY_PROTOCOL_OFF))
        return err_set(err, ERR_CONFIG, "%s needs api.trusted_proxies: who may say for whom a connection is",
                       header ? "api.client_address_header" : "api.proxy_protocol");
    if (header && config->api.proxy_protocol != PROXY_PROTOCOL_OFF)
        return err_set(err, ERR_CONFIG,
                       "api.proxy_protocol and api.client_address_header both tell the client's address; set one");
    return !header || check_client_address_header(header, err);
}

/* No relation between breaker.failures and retry.max_attempts is needed: a failure that comes from the health of a
 * target ends no event without evidence from other events (worker/peers/target.h), whatever opens a breaker, and
 * however many workers run. */
static bool check_retention(const struct config *config, struct err *err)
{
    int64_t longest_ms = 0;
    char needed[CONFIG_VALUE_SIZE], given[CONFIG_VALUE_SIZE];

    if (config->retry.base_ms > config->retry.cap_ms)
        return err_set(err, ERR_CONFIG, "retry.base is longer than retry.cap");
    for (int attempt = 1; attempt <= config->retry.max_attempts; attempt++)
        longest_ms += backoff_ceiling_ms(attempt, config->retry.base_ms, config->retry.cap_ms);
    if (config->idempotency.retention_ms >= longest_ms)
        return true;
    config_value_write_duration(longest_ms, needed);
    config_value_write_duration(config->idempotency.retention_ms, given);
    return err_set(
        err, ERR_CONFIG,
        "idempotency.retention is %s, below the longest retry schedule (%s by retry.max_attempts, base and cap)", given,
        needed);
}

static bool check_target(const char *section, const char *url, bool allow_http, struct err *err)
{
    if (!url)
        return err_set(err, ERR_CONFIG, "the worker needs %s.url", section);
    if (config_value_url_is_https(url) || config_value_url_is_loopback(url) || allow_http)
        return true;
    return err_set(err, ERR_CONFIG, "%s.url is http:// to another machine; use https:// or set %s.allow_http = true",
                   section, section);
}

/* TLS is spoken with the issuer, through the proxy. */
static bool check_proxy(const char *url, struct err *err)
{
    if (!url || !config_value_url_is_https(url))
        return true;
    return err_set(err, ERR_CONFIG, "issuer.proxy is https://; a proxy is http://HOST:PORT");
}

/* ---- routes ---- */

static struct config_setting setting_of(const struct config *config, int index, const char *key)
{
    char nearest[CONFIG_NAME_SIZE];
    return config_setting_of_route(
        config, index,
        config_find_option(config_route_options, config_route_option_count, key, config_option_key, nearest));
}

/* Puts before the message where a route's option comes from: its line in the file, or the source that has none. The
 * line of an option that no source has set is that of its section. */
static bool fail_route(const struct config *config, int index, const char *key, struct err *err)
{
    const struct config_setting setting = setting_of(config, index, key);
    enum config_origin origin = setting.source->origin;
    int line = setting.source->line;
    char name[CONFIG_NAME_SIZE];

    if (origin == ORIGIN_DEFAULT)
        line = config->origins->routes[index].section_line;
    if ((origin == ORIGIN_FILE || origin == ORIGIN_DEFAULT) && line > 0)
        return err_prefix(err, "%.150s:%d", config->origins->path, line);
    if (origin == ORIGIN_ENVIRONMENT) {
        config_setting_variable(&setting, name);
        return err_prefix(err, "%s", name);
    }
    config_setting_name(&setting, name);
    return origin == ORIGIN_FLAG && err_prefix(err, "--%s", name);
}

static bool is_set(const struct config *config, int index, const char *key)
{
    return setting_of(config, index, key).source->origin != ORIGIN_DEFAULT;
}

static bool check_route_url(const struct config *config, int index, const char *key, const char *url, struct err *err)
{
    const struct config_route *route = &config->routes[index];

    if (config_value_url_is_https(url) || config_value_url_is_loopback(url) || route->allow_http)
        return true;
    (void)err_set(err, ERR_CONFIG,
                  "route.%s.%s is http:// to another machine; use https:// or set route.%s.allow_http = true",
                  route->type, key, route->type);
    return fail_route(config, index, key, err);
}

static bool check_route_times(const struct config *config, int index, struct err *err)
{
    const struct config_route *route = &config->routes[index];
    char lifetime[CONFIG_VALUE_SIZE], least[CONFIG_VALUE_SIZE], lease[CONFIG_VALUE_SIZE];

    if (route->key_lifetime_ms < 4 * route->timeout_ms) {
        config_value_write_duration(route->key_lifetime_ms, lifetime);
        config_value_write_duration(4 * route->timeout_ms, least);
        (void)err_set(err, ERR_CONFIG, "route.%s.key_lifetime is %s, below 4 x route.%s.timeout = %s", route->type,
                      lifetime, route->type, least);
        return fail_route(config, index, is_set(config, index, "key_lifetime") ? "key_lifetime" : "timeout", err);
    }
    if (route->retry_base_ms > route->retry_cap_ms) {
        (void)err_set(err, ERR_CONFIG, "route.%s.retry_base is longer than route.%s.retry_cap", route->type,
                      route->type);
        return fail_route(config, index, is_set(config, index, "retry_base") ? "retry_base" : "retry_cap", err);
    }
    if (config->worker.lease_ms >= 2 * route->timeout_ms)
        return true;
    config_value_write_duration(config->worker.lease_ms, lease);
    config_value_write_duration(2 * route->timeout_ms, least);
    (void)err_set(err, ERR_CONFIG, "worker.lease is %s, below 2 x route.%s.timeout = %s; issuer.profile is %s", lease,
                  route->type, least, config->issuer.profile);
    return fail_route(config, index, "timeout", err);
}

static bool check_routes(const struct config *config, struct err *err)
{
    for (int i = 0; i < config->route_count; i++) {
        const struct config_route *route = &config->routes[i];
        if (!route->url) {
            (void)err_set(err, ERR_CONFIG, "the worker needs route.%s.url", route->type);
            return fail_route(config, i, "url", err);
        }
        if (!check_route_url(config, i, "url", route->url, err) ||
            (route->lookup_url && !check_route_url(config, i, "lookup_url", route->lookup_url, err)) ||
            !check_route_times(config, i, err))
            return false;
    }
    return true;
}

/* ---- peers ---- */

static bool check_client_pair(const char *section, const char *cert_file, const char *key_file, struct err *err)
{
    /* guard: a certificate without its key is reported at the start */
    if (!cert_file == !key_file)
        return true;
    return err_set(err, ERR_CONFIG, "%s.client_cert_file and %s.client_key_file go together; %s is missing", section,
                   section, cert_file ? "the key" : "the certificate");
}

static bool check_lease(const struct config *config, struct err *err)
{
    int64_t least_ms = 2 * (config->issuer.timeout_ms + config->core.timeout_ms);
    char least[CONFIG_VALUE_SIZE], given[CONFIG_VALUE_SIZE], issuer[CONFIG_VALUE_SIZE], core[CONFIG_VALUE_SIZE];

    if (config->worker.lease_ms >= least_ms)
        return true;
    config_value_write_duration(least_ms, least);
    config_value_write_duration(config->worker.lease_ms, given);
    config_value_write_duration(config->issuer.timeout_ms, issuer);
    config_value_write_duration(config->core.timeout_ms, core);
    return err_set(err, ERR_CONFIG,
                   "worker.lease is %s, below 2 x (issuer.timeout + core.timeout) = 2 x (%s + %s) = %s; issuer.profile "
                   "is %s",
                   given, issuer, core, least, config->issuer.profile);
}

/* Whether keys are honoured is a part of every other profile. */
static bool check_keys(const struct config *config, struct err *err)
{
    return !config_is_set(config, "issuer.keys") || strcmp(config->issuer.profile, "generic") == 0 ||
           err_set(err, ERR_CONFIG, "issuer.keys is an option of the profile generic only; issuer.profile is %s",
                   config->issuer.profile);
}

bool config_is_account(const char *text)
{
    static const char bytes[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.:-";
    size_t length = strlen(text);
    return length <= CONFIG_ACCOUNT_MAX && strspn(text, bytes) == length;
}

static bool check_account(const char *account, struct err *err)
{
    return !account || config_is_account(account) ||
           err_set(err, ERR_CONFIG, "issuer.account has at most %d letters, digits, '_', '.', ':' and '-'",
                   CONFIG_ACCOUNT_MAX);
}

static bool check_issuer(const struct config *config, struct err *err)
{
    char settle[CONFIG_VALUE_SIZE], lifetime[CONFIG_VALUE_SIZE], least[CONFIG_VALUE_SIZE];

    if (config->issuer.timeout_ms >= config->issuer.key_lifetime_ms)
        return err_set(err, ERR_CONFIG, "issuer.timeout must be shorter than issuer.key_lifetime");
    config_value_write_duration(config->issuer.settle_time_ms, settle);
    config_value_write_duration(config->issuer.key_lifetime_ms, lifetime);
    config_value_write_duration(2 * config->issuer.timeout_ms, least);
    if (config->issuer.settle_time_ms < 2 * config->issuer.timeout_ms)
        return err_set(err, ERR_CONFIG, "issuer.settle_time is %s, below 2 x issuer.timeout = %s; issuer.profile is %s",
                       settle, least, config->issuer.profile);
    if (config->issuer.settle_time_ms >= config->issuer.key_lifetime_ms)
        return err_set(err, ERR_CONFIG,
                       "issuer.settle_time is %s, and must be shorter than issuer.key_lifetime = %s; issuer.profile is "
                       "%s",
                       settle, lifetime, config->issuer.profile);
    return true;
}

static bool check_card_keys(const struct config *config, struct err *err)
{
    return config->card.store == CARD_STORE_NEVER || config->card.keys_file ||
           err_set(err, ERR_CONFIG,
                   "card.store = encrypted needs card.keys_file (issuing-ctl keys generate FILE makes one)");
}

/* It becomes a link of a page, so it has no byte that a URL cannot have. */
static bool check_trace_link(const char *link, struct err *err)
{
    const char *place = link ? strstr(link, "{trace_id}") : NULL;
    bool is_url = link && (strncmp(link, "https://", 8) == 0 || strncmp(link, "http://", 7) == 0);
    for (const char *at = link; is_url && *at; at++)
        is_url = *at > ' ' && *at <= '~' && !strchr("\"<>\\^`", *at);
    return !link || (is_url && place && !strstr(place + 1, "{trace_id}")) ||
           err_set(err, ERR_CONFIG, "trace.link is not an http:// or https:// address with {trace_id} once");
}

/* A user whose place is looked for in the wrong database would get no card, or a second one's worth of tries; so what
 * is unclear is refused. The databases know their numbers as well. */
static bool check_places(const struct config *config, enum config_program program, struct err *err)
{
    long long places = config->database.places, place = config->database.place;
    bool has_mark = config->database.url && strstr(config->database.url, "{place}");
    if (places > 1 && !has_mark)
        return err_set(err, ERR_CONFIG,
                       "database.places is %lld, and database.url has no {place}: each place is a "
                       "database of its own",
                       places);
    if (places == 1 && has_mark)
        return err_set(err, ERR_CONFIG, "database.url has {place}, and database.places is 1");
    if (place >= places)
        return err_set(err, ERR_CONFIG, "database.place is %lld, and database.places is %lld: the last one is %lld",
                       place, places, places - 1);
    if (program == CONFIG_WORKER && places > 1 && place < 0)
        return err_set(err, ERR_CONFIG,
                       "database.places is %lld, and a worker works in one of them: database.place is "
                       "missing",
                       places);
    return true;
}

bool config_check(const struct config *config, enum config_program program, struct err *err)
{
    if (!check_places(config, program, err))
        return false;
    switch (program) {
    case CONFIG_API:
        return check_key_source(config, err) && check_listen(config, err) && check_proxies(config, err) &&
               check_retention(config, err);
    case CONFIG_WORKER:
        return check_target("issuer", config->issuer.url, config->issuer.allow_http, err) &&
               check_proxy(config->issuer.proxy, err) &&
               check_target("core", config->core.url, config->core.allow_http, err) &&
               check_client_pair("issuer", config->issuer.client_cert_file, config->issuer.client_key_file, err) &&
               check_client_pair("core", config->core.client_cert_file, config->core.client_key_file, err) &&
               check_keys(config, err) && check_account(config->issuer.account, err) && check_issuer(config, err) &&
               check_lease(config, err) && check_retention(config, err) && check_card_keys(config, err) &&
               check_routes(config, err);
    case CONFIG_CTL:
        return check_trace_link(config->trace.link, err);
    }
    return true;
}
