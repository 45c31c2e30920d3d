/* What a program needs of its options, and how options relate to each other.
 *
 * Invariants: each rule is one function and names its options; the first broken rule is reported. No rule applies to a
 * program that does not use its options, so that one file can serve all programs.
 * Left out: what a single value must look like (config.c has refused it already). */
#include <inttypes.h>
#include <string.h>
#include <strings.h>

#include "common/base/backoff.h"
#include "common/base/ip_address.h"
#include "common/config/config.h"
#include "common/config/config_value.h"

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
    char host[CONFIG_HOST_SIZE], admin_host[CONFIG_HOST_SIZE];
    int port, admin_port;

    if (!config_value_address(config->api.listen, host, &port, err) ||
        !config_value_address(config->api.admin_listen, admin_host, &admin_port, err))
        return false;
    if (port == 0 || port != admin_port)
        return true;
    if (strcasecmp(host, admin_host) == 0 || is_wildcard(host) || is_wildcard(admin_host))
        return err_set(err, ERR_CONFIG, "api.listen and api.admin_listen are the same address (port %d)", port);
    return true;
}

static bool check_client_address_header(const char *name, struct err *err)
{
    size_t length = strlen(name);
    if (length > 64 || strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") != length)
        return err_set(err, ERR_CONFIG, "api.client_address_header is no name of a header");
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
 * target ends no event without evidence from other events (worker/target.h), whatever opens a breaker, and however many
 * workers run. */
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

static bool check_client_pair(const char *section, const char *cert_file, const char *key_file, struct err *err)
{
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

bool config_check(const struct config *config, enum config_program program, struct err *err)
{
    switch (program) {
    case CONFIG_API:
        return check_key_source(config, err) && check_listen(config, err) && check_proxies(config, err) &&
               check_retention(config, err);
    case CONFIG_WORKER:
        return check_target("issuer", config->issuer.url, config->issuer.allow_http, err) &&
               check_target("core", config->core.url, config->core.allow_http, err) &&
               check_client_pair("issuer", config->issuer.client_cert_file, config->issuer.client_key_file, err) &&
               check_client_pair("core", config->core.client_cert_file, config->core.client_key_file, err) &&
               check_issuer(config, err) && check_lease(config, err) && check_retention(config, err) &&
               check_card_keys(config, err);
    case CONFIG_CTL:
        return true;
    }
    return true;
}
