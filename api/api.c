/* The api's rooms, opened and closed together (api.h). */
#include "api/api.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/log.h"
#include "common/sql/statements.h"

#define SCRATCH_MAX (1024 * 1024)

bool api_open(struct api *api, struct err *err)
{
    buf_init(&api->scratch, SCRATCH_MAX);
    snprintf(api->limit_policy, sizeof api->limit_policy, "\"issuance\";q=%lld;w=%lld",
             (long long)api->config->limit.count, (long long)((api->config->limit.window_ms + 999) / 1000));
    api->replays = metrics_series(api->metrics, API_METRIC_REPLAYS, NULL, NULL);
    api->limited = metrics_series(api->metrics, API_METRIC_LIMITED, NULL, NULL);
    (void)metrics_series(api->metrics, API_METRIC_UNREADABLE, NULL, NULL); /* there from the start */
    if (!nudge_open(&api->wake_nudge, api->loop, api->pool, &sql_notify_wake, err) ||
        !auth_open(api->config, &api->auth, err))
        return false;
    if (api->config->card.keys_file && !keyring_load_over(api->config->card.keys_file, &api->keyring, err))
        return err_prefix(err, "card.keys_file");
    struct acceptor_options acceptor = {
        .loop = api->loop,
        .pool = api->pool,
        .config = api->config,
        .batch_size = metrics_series(api->metrics, API_METRIC_BATCH_SIZE, NULL, NULL),
        .wake = &api->wake_nudge,
    };
    return acceptor_open(&acceptor, &api->acceptor, err) &&
           waiters_open(api->loop, api->pool, api->config->database.url, &api->waiters, err);
}

static void log_unusable(const char *why)
{
    log_error("a file cannot be used, the old one stays in force", LOG_TEXT("why", why));
}

void api_reload(struct api *api)
{
    const char *keys_file = api->config->card.keys_file;
    struct err err = {0};
    (void)auth_reload(api->auth, api->config, log_unusable); /* ignoring: it is logged */
    if (keys_file && !keyring_load_over(keys_file, &api->keyring, &err)) {
        err_prefix(&err, "card.keys_file");
        log_unusable(err.message);
    }
}

bool api_is_idle(const struct api *api)
{
    return api->busy_count == 0 && acceptor_is_idle(api->acceptor) && waiters_is_idle(api->waiters) &&
           nudge_is_idle(&api->wake_nudge);
}

struct closing {
    struct api *api;
    int open_rooms;
    void (*on_closed)(void *context);
    void *context;
};

static void on_room_closed(void *context)
{
    struct exchange *exchange;
    struct closing *closing = context;
    if (--closing->open_rooms > 0)
        return;
    struct api *api = closing->api;
    while ((exchange = api->free_exchanges)) {
        api->free_exchanges = exchange->next;
        buf_done(&exchange->payload);
        free(exchange);
    }
    buf_done(&api->scratch);
    nudge_close(&api->wake_nudge);
    auth_close(api->auth);
    keyring_free(api->keyring);
    closing->on_closed(closing->context);
}

void api_close(struct api *api, void (*on_closed)(void *context), void *context)
{
    static struct closing closing; /* one api a process */
    assert(api_is_idle(api));
    closing = (struct closing){.api = api, .open_rooms = 2, .on_closed = on_closed, .context = context};
    acceptor_close(api->acceptor, on_room_closed, &closing);
    waiters_close(api->waiters, on_room_closed, &closing);
}
