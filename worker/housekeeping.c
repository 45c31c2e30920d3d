/* See housekeeping.h. Two statements at most are in flight, the gauges and one call of the pass; each has its own pace. A
 * pass is three calls, each a transaction, so that one that fails takes nothing of the others with it. */
#include "worker/housekeeping.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/sql/statements.h"
#include "worker/claim.h"
#include "worker/worker.h"

#define GAUGES_EVERY_MS 5000
#define GAUGES_COST_FACTOR 50 /* a backlog is walked to be counted: no more than two per cent of the time */
#define PASS_EVERY_MS 30000
#define PASS_AGAIN_MS 200
#define PASS_CALLS 3
#define PARTITION_LEAST_MS 3600000
#define ASK_TIMEOUT_MS 10000
#define CHECK_TIMEOUT_MS 16000 /* the server ends it before, after the role's statement_timeout */
#define BEHIND_EVERY 12        /* asks; doubled by each that is not answered in time */
#define BEHIND_EVERY_MOST 1536

/* Open events behind the bookmark, when they were last counted; 0 where nothing is amiss. */
struct behind {
    int64_t pending, processing, unknown;
    int64_t oldest_ms, counted_ms;
};

struct housekeeping {
    struct worker *worker;
    uv_timer_t gauges_timer, pass_timer;
    int open_handles;
    struct pg_ask gauges_ask, pass_ask;
    int64_t gauges_asked_ms, pass_asked_us;
    bool is_gauging, is_passing;
    int asks_to_behind; /* until what lies behind the bookmark is counted again */
    int behind_every;
    bool is_behind; /* the ask counts it */
    struct behind behind;
    int call;   /* of this pass: which of the three is asked */
    bool again; /* one of them has more to do */
    bool is_stopped;
    void (*on_closed)(void *context);
    void *closed_context;
};

/* Columns of keep_rows, keep_house, check_rest: the calls of a pass, in this order. */
enum { COL_ACTION, COL_TABLE, COL_AMOUNT, COL_DETAIL, COL_AGAIN };

static void set_gauge(struct worker *worker, enum worker_metric metric, const char *label, double value)
{
    metric_set(metrics_series(worker->metrics, metric, label, NULL), value);
}

static void on_gauges_timer(uv_timer_t *timer);

/* Behind a snapshot that somebody holds open the index is long: what cannot be counted in time is asked for less often. */
static void note_behind(struct housekeeping *keeping, const struct pg_answer *answer)
{
    if (answer->kind == PG_DONE) {
        keeping->behind = (struct behind){
            .pending = pg_int8(answer->rows, 0, 5),
            .processing = pg_int8(answer->rows, 0, 6),
            .oldest_ms = pg_int8(answer->rows, 0, 7),
            .unknown = pg_int8(answer->rows, 0, 8),
            .counted_ms = clock_mono_ms(),
        };
        keeping->behind_every = BEHIND_EVERY;
    } else if (answer->kind != PG_NOT_SENT && keeping->behind_every < BEHIND_EVERY_MOST) {
        keeping->behind_every *= 2;
    }
    /* What is there is followed closely. */
    const struct behind *behind = &keeping->behind;
    bool is_amiss = behind->pending > 0 || behind->processing > 0;
    keeping->asks_to_behind = answer->kind == PG_DONE && is_amiss ? 0 : keeping->behind_every;
}

static void on_gauges(struct pg_ask *ask, const struct pg_answer *answer)
{
    struct housekeeping *keeping = container_of(ask, struct housekeeping, gauges_ask);
    struct worker *worker = keeping->worker;
    keeping->is_gauging = false;
    int64_t cost_ms = (clock_mono_ms() - keeping->gauges_asked_ms) * GAUGES_COST_FACTOR;
    if (!keeping->is_stopped)
        uv_timer_start(&keeping->gauges_timer, on_gauges_timer,
                       (uint64_t)(cost_ms > GAUGES_EVERY_MS ? cost_ms : GAUGES_EVERY_MS), 0);
    if (keeping->is_behind)
        note_behind(keeping, answer);
    if (answer->kind != PG_DONE)
        return;
    const struct behind *behind = &keeping->behind;
    int64_t oldest_ms = behind->pending > 0 ? behind->oldest_ms + clock_mono_ms() - behind->counted_ms : 0;
    if (pg_int8(answer->rows, 0, 3) > oldest_ms)
        oldest_ms = pg_int8(answer->rows, 0, 3);
    set_gauge(worker, WORKER_METRIC_OUTBOX_EVENTS, "PENDING", (double)(pg_int8(answer->rows, 0, 0) + behind->pending));
    set_gauge(worker, WORKER_METRIC_OUTBOX_EVENTS, "PROCESSING",
              (double)(pg_int8(answer->rows, 0, 1) + behind->processing));
    set_gauge(worker, WORKER_METRIC_OUTBOX_EVENTS, "FAILED", (double)pg_int8(answer->rows, 0, 2));
    set_gauge(worker, WORKER_METRIC_OLDEST_PENDING, NULL, (double)oldest_ms / 1e3);
    set_gauge(worker, WORKER_METRIC_OUTCOME_UNKNOWN, NULL, (double)(pg_int8(answer->rows, 0, 4) + behind->unknown));
}

static void on_gauges_timer(uv_timer_t *timer)
{
    struct housekeeping *keeping = container_of(timer, struct housekeeping, gauges_timer);
    keeping->is_gauging = true;
    keeping->gauges_asked_ms = clock_mono_ms();
    /* Behind the bookmark are the events at work, for a lease at most. What is further behind should not be there, which
     * is what a gauge is for: it is counted now and then, and kept in between. */
    int64_t bookmark_us = claim_bookmark_us(keeping->worker->claim);
    keeping->is_behind = keeping->asks_to_behind-- <= 0;
    keeping->gauges_ask.statement = &sql_outbox_gauges;
    keeping->gauges_ask.params[0] = bookmark_us >= 0
                                        ? pg_param_int8(bookmark_us - keeping->worker->config->worker.lease_ms * 1000)
                                        : pg_param_null();
    keeping->gauges_ask.params[1] = pg_param_bool(keeping->is_behind);
    keeping->gauges_ask.timeout_ms = ASK_TIMEOUT_MS;
    keeping->gauges_ask.is_slow = true;
    keeping->gauges_ask.on_answer = on_gauges;
    pg_pool_ask(keeping->worker->pool, &keeping->gauges_ask);
}

/* What one pass did, a row each: counted, and said where an operator would want to know. Returns whether there is more to do. */
static bool note_pass(struct housekeeping *keeping, const struct pg_rows *rows)
{
    struct metrics *metrics = keeping->worker->metrics;
    bool again = false;
    for (int row = 0; row < pg_rows_count(rows); row++) {
        const char *action = pg_bytes(rows, row, COL_ACTION).bytes, *table = pg_bytes(rows, row, COL_TABLE).bytes;
        const char *detail = pg_bytes(rows, row, COL_DETAIL).bytes;
        again |= pg_bool(rows, row, COL_AGAIN);
        if (strcmp(action, "busy") == 0)
            continue;
        if (strcmp(action, "expired") == 0) {
            metric_add(metrics_series(metrics, WORKER_METRIC_EXPIRED, table, NULL),
                       (double)pg_int8(rows, row, COL_AMOUNT));
            continue;
        }
        if (strcmp(action, "failed") == 0) {
            metric_add(metrics_series(metrics, WORKER_METRIC_HOUSEKEEPING_FAILURES, table, NULL), 1);
            log_warning("housekeeping of a table failed", LOG_TEXT("table", table),
                        LOG_TEXT("why", detail ? detail : ""));
            continue;
        }
        metric_add(metrics_series(metrics, WORKER_METRIC_PARTITIONS, table, action), 1);
        log_at(strcmp(action, "postponed") == 0 ? LOG_WARNING : LOG_INFO, "partition", LOG_TEXT("action", action),
               LOG_TEXT("table", table), LOG_TEXT("detail", detail ? detail : ""),
               LOG_NUMBER("rows_kept", pg_int8(rows, row, COL_AMOUNT)));
    }
    return again;
}

static void on_pass_timer(uv_timer_t *timer);

static void ask_call(struct housekeeping *keeping);

/* A call that was refused, or was not answered in time, did nothing or did all of it; the next one goes on either way. */
static void on_called(struct pg_ask *ask, const struct pg_answer *answer)
{
    struct housekeeping *keeping = container_of(ask, struct housekeeping, pass_ask);
    struct metrics *metrics = keeping->worker->metrics;
    if (answer->kind == PG_DONE) {
        keeping->again |= note_pass(keeping, answer->rows);
    } else if (answer->kind == PG_REFUSED || answer->kind == PG_UNKNOWN) {
        bool is_refused = answer->kind == PG_REFUSED;
        metric_add(metrics_series(metrics, WORKER_METRIC_HOUSEKEEPING_FAILURES, "all", NULL), 1);
        log_warning("housekeeping failed", LOG_TEXT("statement", ask->statement->name),
                    LOG_TEXT("sqlstate", is_refused ? answer->sqlstate : ""),
                    LOG_TEXT("why", is_refused ? answer->message : "no answer in time, or the connection was lost"));
    }
    keeping->call++;
    if (answer->kind != PG_NOT_SENT && keeping->call < PASS_CALLS && !keeping->is_stopped) {
        ask_call(keeping);
        return;
    }
    keeping->is_passing = false;
    metric_observe(metrics_series(metrics, WORKER_METRIC_HOUSEKEEPING_SECONDS, NULL, NULL),
                   (double)(clock_mono_us() - keeping->pass_asked_us) / 1e6);
    if (!keeping->is_stopped)
        uv_timer_start(&keeping->pass_timer, on_pass_timer, keeping->again ? PASS_AGAIN_MS : PASS_EVERY_MS, 0);
}

static int64_t longer(int64_t left_ms, int64_t right_ms)
{
    return left_ms > right_ms ? left_ms : right_ms;
}

static void ask_call(struct housekeeping *keeping)
{
    static const struct sql_statement *const calls[PASS_CALLS] = {&sql_keep_rows, &sql_keep_house, &sql_check_rest};
    const struct config *config = keeping->worker->config;
    int64_t keys_ms = config->idempotency.retention_ms;
    struct pg_ask *ask = &keeping->pass_ask;
    ask->statement = calls[keeping->call];
    ask->params[0] = pg_param_int8(keys_ms);
    /* The api may run with a longer window than this worker knows: the retention is a second bound. */
    ask->params[1] = pg_param_int8(longer(config->limit.window_ms, keys_ms));
    /* A key that is still honoured leads to its event. */
    ask->params[2] = pg_param_int8(longer(config->outbox.retention_ms, keys_ms));
    ask->params[3] = pg_param_int8(PARTITION_LEAST_MS);
    ask->timeout_ms = ask->statement == &sql_check_rest ? CHECK_TIMEOUT_MS : ASK_TIMEOUT_MS;
    ask->is_slow = true;
    ask->on_answer = on_called;
    pg_pool_ask(keeping->worker->pool, ask);
}

static void on_pass_timer(uv_timer_t *timer)
{
    struct housekeeping *keeping = container_of(timer, struct housekeeping, pass_timer);
    keeping->is_passing = true;
    keeping->pass_asked_us = clock_mono_us();
    keeping->call = 0;
    keeping->again = false;
    ask_call(keeping);
}

bool housekeeping_open(struct worker *worker, struct housekeeping **ret_housekeeping, struct err *err)
{
    struct housekeeping *keeping = calloc(1, sizeof *keeping);
    if (!keeping)
        return err_set(err, ERR_MEMORY, "no memory for housekeeping");
    keeping->worker = worker;
    keeping->behind_every = BEHIND_EVERY;
    uv_timer_init(worker->loop, &keeping->gauges_timer);
    uv_timer_init(worker->loop, &keeping->pass_timer);
    keeping->open_handles = 2;
    uv_timer_start(&keeping->gauges_timer, on_gauges_timer, 500, 0);
    uv_timer_start(&keeping->pass_timer, on_pass_timer, 2000, 0);
    *ret_housekeeping = keeping;
    return true;
}

void housekeeping_stop(struct housekeeping *keeping)
{
    keeping->is_stopped = true;
    uv_timer_stop(&keeping->gauges_timer);
    uv_timer_stop(&keeping->pass_timer);
}

bool housekeeping_is_idle(const struct housekeeping *keeping)
{
    return !keeping->is_gauging && !keeping->is_passing;
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

static void on_pass_closed(uv_handle_t *handle)
{
    handle_closed(container_of((uv_timer_t *)handle, struct housekeeping, pass_timer));
}

void housekeeping_close(struct housekeeping *keeping, void (*on_closed)(void *context), void *context)
{
    assert(housekeeping_is_idle(keeping));
    keeping->on_closed = on_closed;
    keeping->closed_context = context;
    uv_close((uv_handle_t *)&keeping->gauges_timer, on_gauges_closed);
    uv_close((uv_handle_t *)&keeping->pass_timer, on_pass_closed);
}
