/* See housekeeping.h. One statement in flight; a full batch of expired rows is followed by the next after a short
 * pause, so that cleaning never
 * competes with issuing for long. */
#include "worker/housekeeping.h"

#include <assert.h>
#include <stdlib.h>

#include "common/log.h"
#include "common/sql/statements.h"
#include "worker/worker.h"

#define GAUGES_EVERY_MS 5000
#define EXPIRE_EVERY_MS 30000
#define EXPIRE_PAUSE_MS 200
#define EXPIRE_MAX 2000
#define ASK_TIMEOUT_MS 10000

struct housekeeping {
    struct worker *worker;
    uv_timer_t gauges_timer, expire_timer;
    int open_handles;
    struct pg_ask gauges_ask, expire_ask;
    bool is_gauging, is_expiring;
    bool expires_limits; /* which table is next: keys, or limits */
    bool is_stopped;
    void (*on_closed)(void *context);
    void *closed_context;
};

static void set_gauge(struct worker *worker, enum worker_metric metric, const char *label, double value)
{
    metric_set(metrics_series(worker->metrics, metric, label, NULL), value);
}

static void on_gauges(struct pg_ask *ask, const struct pg_answer *answer)
{
    struct housekeeping *keeping = container_of(ask, struct housekeeping, gauges_ask);
    struct worker *worker = keeping->worker;
    keeping->is_gauging = false;
    if (answer->kind != PG_DONE)
        return;
    set_gauge(worker, WORKER_METRIC_OUTBOX_EVENTS, "PENDING", (double)pg_int8(answer->rows, 0, 0));
    set_gauge(worker, WORKER_METRIC_OUTBOX_EVENTS, "PROCESSING", (double)pg_int8(answer->rows, 0, 1));
    set_gauge(worker, WORKER_METRIC_OUTBOX_EVENTS, "FAILED", (double)pg_int8(answer->rows, 0, 2));
    set_gauge(worker, WORKER_METRIC_OLDEST_PENDING, NULL, (double)pg_int8(answer->rows, 0, 3) / 1e3);
    set_gauge(worker, WORKER_METRIC_OUTCOME_UNKNOWN, NULL, (double)pg_int8(answer->rows, 0, 4));
}

static void on_gauges_timer(uv_timer_t *timer)
{
    struct housekeeping *keeping = container_of(timer, struct housekeeping, gauges_timer);
    if (keeping->is_gauging || keeping->is_stopped)
        return;
    keeping->is_gauging = true;
    keeping->gauges_ask.statement = &sql_outbox_gauges;
    keeping->gauges_ask.timeout_ms = ASK_TIMEOUT_MS;
    keeping->gauges_ask.on_answer = on_gauges;
    pg_pool_ask(keeping->worker->pool, &keeping->gauges_ask);
}

static void on_expire_timer(uv_timer_t *timer);

static void on_expired(struct pg_ask *ask, const struct pg_answer *answer)
{
    struct housekeeping *keeping = container_of(ask, struct housekeeping, expire_ask);
    keeping->is_expiring = false;
    int64_t gone = answer->kind == PG_DONE && pg_rows_count(answer->rows) == 1 ? pg_int8(answer->rows, 0, 0) : 0;
    metric_add(metrics_series(keeping->worker->metrics, WORKER_METRIC_EXPIRED,
                              keeping->expires_limits ? "rate_limit_log" : "idempotency_keys", NULL),
               (double)gone);
    if (keeping->is_stopped)
        return;
    bool pass_is_over = gone < EXPIRE_MAX && keeping->expires_limits;
    if (gone < EXPIRE_MAX)
        keeping->expires_limits = !keeping->expires_limits;
    uv_timer_start(&keeping->expire_timer, on_expire_timer, pass_is_over ? EXPIRE_EVERY_MS : EXPIRE_PAUSE_MS, 0);
}

static void on_expire_timer(uv_timer_t *timer)
{
    struct housekeeping *keeping = container_of(timer, struct housekeeping, expire_timer);
    const struct config *config = keeping->worker->config;
    if (keeping->is_stopped)
        return;
    /* The api may run with a longer window than this worker knows: the retention is a second bound. */
    int64_t limits_age_ms = config->limit.window_ms > config->idempotency.retention_ms
                                ? config->limit.window_ms
                                : config->idempotency.retention_ms;
    keeping->is_expiring = true;
    keeping->expire_ask.statement = keeping->expires_limits ? &sql_limits_expire : &sql_keys_expire;
    keeping->expire_ask.params[0] =
        pg_param_int8(keeping->expires_limits ? limits_age_ms : config->idempotency.retention_ms);
    keeping->expire_ask.params[1] = pg_param_int8(EXPIRE_MAX);
    keeping->expire_ask.timeout_ms = ASK_TIMEOUT_MS;
    keeping->expire_ask.on_answer = on_expired;
    pg_pool_ask(keeping->worker->pool, &keeping->expire_ask);
}

bool housekeeping_open(struct worker *worker, struct housekeeping **ret_housekeeping, struct err *err)
{
    struct housekeeping *keeping = calloc(1, sizeof *keeping);
    if (!keeping)
        return err_set(err, ERR_MEMORY, "no memory for housekeeping");
    keeping->worker = worker;
    uv_timer_init(worker->loop, &keeping->gauges_timer);
    uv_timer_init(worker->loop, &keeping->expire_timer);
    keeping->open_handles = 2;
    uv_timer_start(&keeping->gauges_timer, on_gauges_timer, 500, GAUGES_EVERY_MS);
    uv_timer_start(&keeping->expire_timer, on_expire_timer, 2000, 0);
    *ret_housekeeping = keeping;
    return true;
}

void housekeeping_stop(struct housekeeping *keeping)
{
    keeping->is_stopped = true;
    uv_timer_stop(&keeping->gauges_timer);
    uv_timer_stop(&keeping->expire_timer);
}

bool housekeeping_is_idle(const struct housekeeping *keeping)
{
    return !keeping->is_gauging && !keeping->is_expiring;
}

static void handle_closed(struct housekeeping *keeping)
{
    if (--keeping->open_handles > 0)
        return;
    void (*on_closed)(void *context) = keeping->on_closed;
    void *context = keeping->closed_context;
    free(keeping);
    on_closed(context);
}

static void on_gauges_closed(uv_handle_t *handle)
{
    handle_closed(container_of((uv_timer_t *)handle, struct housekeeping, gauges_timer));
}

static void on_expire_closed(uv_handle_t *handle)
{
    handle_closed(container_of((uv_timer_t *)handle, struct housekeeping, expire_timer));
}

void housekeeping_close(struct housekeeping *keeping, void (*on_closed)(void *context), void *context)
{
    assert(housekeeping_is_idle(keeping));
    keeping->on_closed = on_closed;
    keeping->closed_context = context;
    uv_close((uv_handle_t *)&keeping->gauges_timer, on_gauges_closed);
    uv_close((uv_handle_t *)&keeping->expire_timer, on_expire_closed);
}
