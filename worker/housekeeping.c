/* See housekeeping.h. At most two statements are in flight, the gauges and one statement of the pass; each has its own
 * pace. A pass is three statements, each a transaction, so that one that fails does not undo the others. */
#include "worker/housekeeping.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/closing.h"
#include "common/base/log.h"
#include "common/pg/sql/statements.h"
#include "worker/worker_metrics.h"

#define GAUGES_INTERVAL_MS 5000
#define GAUGES_COST_FACTOR 50 /* a backlog is walked to be counted: no more than two per cent of the time */
#define PASS_INTERVAL_MS 30000
#define PASS_CONTINUES_MS 200
#define PASS_STATEMENTS 3
#define PARTITION_LEAST_MS 3600000
#define QUERY_TIMEOUT_MS 10000
#define CHECK_TIMEOUT_MS 16000 /* the server ends it before, after the role's statement_timeout */
#define BEHIND_EVERY 12        /* gauges; doubled by each that is not answered in time */
#define BEHIND_EVERY_MOST 1536

/* Open events behind the bookmark, when they were last counted; 0 where nothing is amiss. */
struct behind {
    int64_t pending, processing, unknown;
    int64_t oldest_ms, counted_ms;
};

struct housekeeping {
    struct housekeeping_options options;
    uv_timer_t gauges_timer, pass_timer;
    struct pg_query gauges_query, pass_query;
    int64_t gauges_sent_ms, pass_started_us;
    bool gauges_are_in_flight, pass_is_running;
    int until_behind; /* so many gauges, then what lies behind the bookmark is counted again */
    int behind_every;
    bool counts_behind; /* the gauges in flight count it */
    struct behind behind;
    bool is_counted; /* the two below are from the last gauges */
    int64_t pending, oldest_ms;
    int statement; /* of this pass: which of the three is in flight */
    bool has_more; /* one of them has more to do */
    bool is_stopped;
    struct closing closing;
};

/* Columns of keep_rows, keep_house, check_rest: the statements of a pass, in this order. */
enum { COL_ACTION, COL_TABLE, COL_AMOUNT, COL_DETAIL, COL_HAS_MORE };

static void set_gauge(struct metrics *metrics, enum worker_metric metric, const char *label, double value)
{
    metric_set(metrics_series(metrics, metric, label, NULL), value);
}

static void on_gauges_timer(uv_timer_t *timer);

/* Behind a snapshot that another session holds open the index is long: what cannot be counted in time is counted less
 * often. */
static void note_behind(struct housekeeping *housekeeping, const struct pg_query_result *result)
{
    if (result->kind == PG_DONE) {
        housekeeping->behind = (struct behind){
            .pending = pg_int8(result->rows, 0, 5),
            .processing = pg_int8(result->rows, 0, 6),
            .oldest_ms = pg_int8(result->rows, 0, 7),
            .unknown = pg_int8(result->rows, 0, 8),
            .counted_ms = clock_mono_ms(),
        };
        housekeeping->behind_every = BEHIND_EVERY;
    } else if (result->kind != PG_NOT_SENT && housekeeping->behind_every < BEHIND_EVERY_MOST) {
        housekeeping->behind_every *= 2;
    }
    /* While something is there, it is counted each time. */
    const struct behind *behind = &housekeeping->behind;
    bool is_amiss = behind->pending > 0 || behind->processing > 0;
    housekeeping->until_behind = result->kind == PG_DONE && is_amiss ? 0 : housekeeping->behind_every;
}

static void on_gauges(struct pg_query *query, const struct pg_query_result *result)
{
    struct housekeeping *housekeeping = container_of(query, struct housekeeping, gauges_query);
    struct metrics *metrics = housekeeping->options.metrics;
    housekeeping->gauges_are_in_flight = false;
    int64_t cost_ms = (clock_mono_ms() - housekeeping->gauges_sent_ms) * GAUGES_COST_FACTOR;
    if (!housekeeping->is_stopped)
        uv_timer_start(&housekeeping->gauges_timer, on_gauges_timer,
                       (uint64_t)(cost_ms > GAUGES_INTERVAL_MS ? cost_ms : GAUGES_INTERVAL_MS), 0);
    if (housekeeping->counts_behind)
        note_behind(housekeeping, result);
    if (result->kind != PG_DONE)
        return;
    const struct behind *behind = &housekeeping->behind;
    int64_t oldest_ms = behind->pending > 0 ? behind->oldest_ms + clock_mono_ms() - behind->counted_ms : 0;
    if (pg_int8(result->rows, 0, 3) > oldest_ms)
        oldest_ms = pg_int8(result->rows, 0, 3);
    housekeeping->is_counted = true;
    housekeeping->pending = pg_int8(result->rows, 0, 0) + behind->pending;
    housekeeping->oldest_ms = oldest_ms;
    set_gauge(metrics, WORKER_METRIC_OUTBOX_EVENTS, "PENDING", (double)housekeeping->pending);
    set_gauge(metrics, WORKER_METRIC_OUTBOX_EVENTS, "PROCESSING",
              (double)(pg_int8(result->rows, 0, 1) + behind->processing));
    set_gauge(metrics, WORKER_METRIC_OUTBOX_EVENTS, "FAILED", (double)pg_int8(result->rows, 0, 2));
    set_gauge(metrics, WORKER_METRIC_OLDEST_PENDING, NULL, (double)oldest_ms / 1e3);
    set_gauge(metrics, WORKER_METRIC_OUTCOME_UNKNOWN, NULL, (double)(pg_int8(result->rows, 0, 4) + behind->unknown));
}

bool housekeeping_backlog(const struct housekeeping *housekeeping, int64_t *ret_pending, int64_t *ret_oldest_ms)
{
    if (!housekeeping->is_counted)
        return false;
    *ret_pending = housekeeping->pending;
    *ret_oldest_ms = housekeeping->oldest_ms;
    return true;
}

static void on_gauges_timer(uv_timer_t *timer)
{
    struct housekeeping *housekeeping = container_of(timer, struct housekeeping, gauges_timer);
    housekeeping->gauges_are_in_flight = true;
    housekeeping->gauges_sent_ms = clock_mono_ms();
    /* Behind the bookmark are the events at work, for a lease at most. What is further behind should not be there,
     * which is what a gauge is for: it is counted now and then, and the figure stays in between. */
    int64_t bookmark_us = claim_bookmark_us(housekeeping->options.claim);
    housekeeping->counts_behind = housekeeping->until_behind-- <= 0;
    housekeeping->gauges_query.statement = &sql_outbox_gauges;
    housekeeping->gauges_query.params[0] =
        bookmark_us >= 0 ? pg_param_int8(bookmark_us - housekeeping->options.config->worker.lease_ms * 1000)
                         : pg_param_null();
    housekeeping->gauges_query.params[1] = pg_param_bool(housekeeping->counts_behind);
    housekeeping->gauges_query.timeout_ms = QUERY_TIMEOUT_MS;
    housekeeping->gauges_query.is_slow = true;
    housekeeping->gauges_query.on_result = on_gauges;
    pg_pool_submit(housekeeping->options.pool, &housekeeping->gauges_query);
}

/* What one statement did, a row each: counted, and logged where an operator would want to know. Returns whether there
 * is more to do. */
static bool note_pass(struct housekeeping *housekeeping, const struct pg_rows *rows)
{
    struct metrics *metrics = housekeeping->options.metrics;
    bool has_more = false;
    for (int row = 0; row < pg_rows_count(rows); row++) {
        const char *action = pg_bytes(rows, row, COL_ACTION).bytes, *table = pg_bytes(rows, row, COL_TABLE).bytes;
        const char *detail = pg_bytes(rows, row, COL_DETAIL).bytes;
        has_more |= pg_bool(rows, row, COL_HAS_MORE);
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
    return has_more;
}

static void on_pass_timer(uv_timer_t *timer);

static void send_statement(struct housekeeping *housekeeping);

/* A statement that was refused, or was not answered in time, did nothing or did all of it; the next one follows either
 * way. */
static void on_statement_done(struct pg_query *query, const struct pg_query_result *result)
{
    struct housekeeping *housekeeping = container_of(query, struct housekeeping, pass_query);
    struct metrics *metrics = housekeeping->options.metrics;
    if (result->kind == PG_DONE) {
        housekeeping->has_more |= note_pass(housekeeping, result->rows);
    } else if (result->kind == PG_REFUSED || result->kind == PG_UNKNOWN) {
        bool is_refused = result->kind == PG_REFUSED;
        metric_add(metrics_series(metrics, WORKER_METRIC_HOUSEKEEPING_FAILURES, "all", NULL), 1);
        log_warning("housekeeping failed", LOG_TEXT("statement", query->statement->name),
                    LOG_TEXT("sqlstate", is_refused ? result->sqlstate : ""),
                    LOG_TEXT("why", is_refused ? result->message : "no answer in time, or the connection was lost"));
    }
    housekeeping->statement++;
    if (result->kind != PG_NOT_SENT && housekeeping->statement < PASS_STATEMENTS && !housekeeping->is_stopped) {
        send_statement(housekeeping);
        return;
    }
    housekeeping->pass_is_running = false;
    metric_observe(metrics_series(metrics, WORKER_METRIC_HOUSEKEEPING_SECONDS, NULL, NULL),
                   (double)(clock_mono_us() - housekeeping->pass_started_us) / 1e6);
    if (!housekeeping->is_stopped)
        uv_timer_start(&housekeeping->pass_timer, on_pass_timer,
                       housekeeping->has_more ? PASS_CONTINUES_MS : PASS_INTERVAL_MS, 0);
}

static int64_t longer_ms(int64_t left_ms, int64_t right_ms)
{
    return left_ms > right_ms ? left_ms : right_ms;
}

static void send_statement(struct housekeeping *housekeeping)
{
    static const struct sql_statement *const calls[PASS_STATEMENTS] = {&sql_keep_rows, &sql_keep_house,
                                                                       &sql_check_rest};
    const struct config *config = housekeeping->options.config;
    int64_t keys_ms = config->idempotency.retention_ms;
    struct pg_query *query = &housekeeping->pass_query;
    query->statement = calls[housekeeping->statement];
    query->params[0] = pg_param_int8(keys_ms);
    /* The api may run with a longer window than this worker knows: the retention is a second bound. */
    query->params[1] = pg_param_int8(longer_ms(config->limit.window_ms, keys_ms));
    /* A key that is still honoured leads to its event. */
    query->params[2] = pg_param_int8(longer_ms(config->outbox.retention_ms, keys_ms));
    query->params[3] = pg_param_int8(PARTITION_LEAST_MS);
    query->timeout_ms = query->statement == &sql_check_rest ? CHECK_TIMEOUT_MS : QUERY_TIMEOUT_MS;
    query->is_slow = true;
    query->on_result = on_statement_done;
    pg_pool_submit(housekeeping->options.pool, query);
}

static void on_pass_timer(uv_timer_t *timer)
{
    struct housekeeping *housekeeping = container_of(timer, struct housekeeping, pass_timer);
    housekeeping->pass_is_running = true;
    housekeeping->pass_started_us = clock_mono_us();
    housekeeping->statement = 0;
    housekeeping->has_more = false;
    send_statement(housekeeping);
}

bool housekeeping_open(const struct housekeeping_options *options, struct housekeeping **ret_housekeeping,
                       struct err *err)
{
    struct housekeeping *housekeeping = calloc(1, sizeof(*housekeeping));
    if (!housekeeping)
        return err_set(err, ERR_MEMORY, "no memory for housekeeping");
    housekeeping->options = *options;
    housekeeping->behind_every = BEHIND_EVERY;
    uv_timer_init(options->loop, &housekeeping->gauges_timer);
    uv_timer_init(options->loop, &housekeeping->pass_timer);
    uv_timer_start(&housekeeping->gauges_timer, on_gauges_timer, 500, 0);
    uv_timer_start(&housekeeping->pass_timer, on_pass_timer, 2000, 0);
    *ret_housekeeping = housekeeping;
    return true;
}

void housekeeping_stop(struct housekeeping *housekeeping)
{
    housekeeping->is_stopped = true;
    uv_timer_stop(&housekeeping->gauges_timer);
    uv_timer_stop(&housekeeping->pass_timer);
}

bool housekeeping_is_idle(const struct housekeeping *housekeeping)
{
    return !housekeeping->gauges_are_in_flight && !housekeeping->pass_is_running;
}

void housekeeping_close(struct housekeeping *housekeeping, void (*on_closed)(void *context), void *context)
{
    assert(housekeeping_is_idle(housekeeping));
    closing_start(&housekeeping->closing, free, housekeeping, on_closed, context);
    closing_handle(&housekeeping->closing, &housekeeping->gauges_timer);
    closing_handle(&housekeeping->closing, &housekeeping->pass_timer);
    closing_end(&housekeeping->closing);
}
