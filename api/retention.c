/* See retention.h. */
#include "api/retention.h"

#include <assert.h>

#include "common/lib/base/clock.h"
#include "common/lib/base/log.h"
#include "statements.h"

#define AGAIN_MS 250
#define TIMEOUT_MS 5000
#define LOG_GAP_MS 10000

/* Columns of promise_retentions. */
enum { COL_KEYS_BEFORE, COL_KEYS };

static void log_failure(struct retention *retention, const char *why)
{
    int64_t now_ms = clock_mono_ms();
    if (retention->logged_ms != 0 && now_ms - retention->logged_ms < LOG_GAP_MS)
        return;
    retention->logged_ms = now_ms;
    log_warning("the database has not yet stored how long keys are honoured", LOG_TEXT("why", why));
}

static void on_promised(struct pg_query *query, const struct pg_query_result *result)
{
    struct retention *retention = container_of(query, struct retention, query);
    retention->is_in_flight = false;
    if (result->kind != PG_DONE) { /* to say it again does no harm */
        log_failure(retention, result->message);
        return;
    }
    int64_t before_ms = pg_int8(result->rows, 0, COL_KEYS_BEFORE), keys_ms = pg_int8(result->rows, 0, COL_KEYS);
    retention->is_noted = true;
    uv_timer_stop(&retention->timer);
    if (keys_ms > before_ms)
        log_info("idempotency.retention was raised; keys that were older than the former retention are already deleted",
                 LOG_NUMBER("before_s", before_ms / 1000), LOG_NUMBER("now_s", keys_ms / 1000));
}

static void on_timer(uv_timer_t *timer)
{
    struct retention *retention = container_of(timer, struct retention, timer);
    if (retention->is_in_flight || !pg_pool_ready(retention->pool))
        return;
    retention->is_in_flight = true;
    retention->query = (struct pg_query){
        .statement = &sql_promise_retentions,
        .params = {pg_param_int8(retention->config->idempotency.retention_ms),
                   pg_param_int8(retention->config->limit.window_ms)},
        .timeout_ms = TIMEOUT_MS,
        .on_result = on_promised,
    };
    pg_pool_submit(retention->pool, &retention->query);
}

void retention_open(struct retention *retention, uv_loop_t *loop, struct pg_pool *pool, const struct config *config)
{
    *retention = (struct retention){.pool = pool, .config = config};
    uv_timer_init(loop, &retention->timer);
}

void retention_tell(struct retention *retention)
{
    if (!retention->is_stopped)
        uv_timer_start(&retention->timer, on_timer, 0, AGAIN_MS);
}

const char *retention_why_not_ready(const struct retention *retention)
{
    return retention->is_noted ? "" : "the database has not noted yet for how long keys are honoured";
}

void retention_stop(struct retention *retention)
{
    retention->is_stopped = true;
    uv_timer_stop(&retention->timer);
}

bool retention_is_idle(const struct retention *retention)
{
    return !retention->is_in_flight;
}

void retention_close(struct retention *retention, struct closing *closing)
{
    assert(retention_is_idle(retention));
    closing_handle(closing, &retention->timer);
}
