/* See api.h. */
#include "api/api.h"

#include <assert.h>
#include <stdio.h>

#include "api/api_call.h"
#include "api/cards.h"
#include "common/lib/base/log.h"
#include "statements.h"

#define BODY_MAX (1024 * 1024)

/* So that an operator finds out why a key of the set is not used. */
static void log_unused_keys(const struct api *api)
{
    size_t count = auth_unused_keys(api->env.auth);
    if (count > 0)
        log_warning("keys of auth.jwks_file are not for RS256, ES256 or EdDSA signatures and are ignored",
                    LOG_NUMBER("count", (int64_t)count));
}

static bool open_place(struct api_env *env, struct api_place *place, struct err *err)
{
    struct acceptor_options acceptor = {
        .loop = env->loop,
        .pool = place->pool,
        .config = env->config,
        .batch_size = metrics_series(env->metrics, API_METRIC_BATCH_SIZE, NULL, NULL),
        .wakeup = &place->wakeup,
    };
    static const char *const failures[ACCEPTANCE_FAILURES] = {"user_lock", "lock", "schema", "late", "moved", "other"};
    for (size_t i = 0; i < ARRAY_SIZE(failures); i++)
        acceptor.failures[i] = metrics_series(env->metrics, API_METRIC_ACCEPT_FAILURES, failures[i], NULL);
    struct reads_options reads = {
        .loop = env->loop,
        .pool = place->pool,
        .users = &env->users,
        .connections = (int)env->config->database.connections,
        .refused = metrics_series(env->metrics, API_METRIC_READS_REFUSED, NULL, NULL),
    };
    retention_open(&place->retention, env->loop, place->pool, env->config);
    return wakeup_open(&place->wakeup, env->loop, place->pool, &sql_notify_wake, err) &&
           acceptor_open(&acceptor, &place->acceptor, err) && reads_open(&reads, &place->reads, err) &&
           waiters_open(env->loop, place->pool, &env->users, place->url, &place->waiters, err);
}

bool api_open(struct api *api, struct err *err)
{
    buf_init(&api->env.body, BODY_MAX);
    snprintf(api->env.limit_policy, sizeof(api->env.limit_policy), "\"issuance\";q=%lld;w=%lld",
             (long long)api->env.config->limit.count, (long long)((api->env.config->limit.window_ms + 999) / 1000));
    api_series_open(&api->env.series, api->env.metrics);
    api->env.replays = metrics_series(api->env.metrics, API_METRIC_REPLAYS, NULL, NULL);
    api->env.limited = metrics_series(api->env.metrics, API_METRIC_LIMITED, NULL, NULL);
    cards_open(&api->env);
    refusals_open(&api->env.refusals, api->env.loop, api->env.metrics, API_METRIC_AUTH_FAILURES);
    if (!auth_open(api->env.config, &api->env.auth, err))
        return false;
    log_unused_keys(api);
    if (api->env.config->card.keys_file && !keyring_load_over(api->env.config->card.keys_file, &api->env.keyring, err))
        return err_prefix(err, "card.keys_file");
    for (int i = 0; i < api->env.place_count; i++)
        if (!open_place(&api->env, &api->env.places[i], err))
            return false;
    return issuer_events_open(&api->issuer_events, &api->env, err);
}

bool api_check_files(const struct config *config, struct err *err)
{
    struct auth *auth = NULL;
    struct keyring *keyring = NULL;
    bool is_good = auth_open(config, &auth, err);
    if (is_good && config->card.keys_file)
        is_good = keyring_load(config->card.keys_file, &keyring, err) || err_prefix(err, "card.keys_file");
    is_good = is_good && issuer_events_check_file(config, err);
    auth_close(auth);
    keyring_free(keyring);
    return is_good;
}

static void log_unusable(const char *why)
{
    log_error("a file cannot be used, the old one stays in force", LOG_TEXT("why", why));
}

void api_reload(struct api *api)
{
    const char *keys_file = api->env.config->card.keys_file;
    struct err err = {0};
    (void)auth_reload(api->env.auth, api->env.config, log_unusable); /* ignoring: it is logged */
    log_unused_keys(api);
    if (keys_file && !keyring_load_over(keys_file, &api->env.keyring, &err)) {
        err_prefix(&err, "card.keys_file");
        log_unusable(err.message);
    }
    if (!issuer_events_reload(&api->issuer_events, &err))
        log_unusable(err.message);
}

bool api_is_idle(const struct api *api)
{
    for (int i = 0; i < api->env.place_count; i++) {
        const struct api_place *place = &api->env.places[i];
        if (!acceptor_is_idle(place->acceptor) || !waiters_is_idle(place->waiters) || !wakeup_is_idle(&place->wakeup) ||
            !retention_is_idle(&place->retention))
            return false;
    }
    return api->env.busy_count == 0 && issuer_events_is_idle(&api->issuer_events);
}

static void release(void *context)
{
    struct api *api = context;
    api_call_free_unused(&api->env);
    buf_done(&api->env.body);
    for (int i = 0; i < api->env.place_count; i++)
        wakeup_close(&api->env.places[i].wakeup);
    auth_close(api->env.auth);
    keyring_free(api->env.keyring);
}

void api_close(struct api *api, void (*on_closed)(void *context), void *context)
{
    struct closing *closing = &api->closing;
    assert(api_is_idle(api));
    closing_start(closing, release, api, on_closed, context);
    again_close(&api->env.reveals, closing);
    refusals_close(&api->env.refusals, closing);
    issuer_events_close(&api->issuer_events, closing);
    for (int i = 0; i < api->env.place_count; i++) {
        struct api_place *place = &api->env.places[i];
        retention_close(&place->retention, closing);
        acceptor_close(place->acceptor, closing_part_closed, closing_part(closing));
        reads_close(place->reads, closing_part_closed, closing_part(closing));
        waiters_close(place->waiters, closing_part_closed, closing_part(closing));
    }
    closing_end(closing);
}
