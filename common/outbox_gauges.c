/* See outbox_gauges.h. Two questions with a pace of their own, so that a slow count does not delay the other: the events,
 * and the workers with their targets and the lag of the statistics. Each has at most one statement in flight.
 *
 * The count starts at a bookmark, the oldest due time of what was open at the last count. What is behind the bookmark
 * should not be there, which is what a gauge is for: it is counted now and then, and the figure stays in between. */
#include "common/outbox_gauges.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/closing.h"
#include "common/daemon_metrics.h"
#include "common/pg/sql/statements.h"

#define FIRST_MS 200
#define INTERVAL_MS 5000
#define COST_FACTOR 50 /* a backlog is walked to be counted: no more than two per cent of the time */
#define QUERY_TIMEOUT_MS 5000
#define ONLY_CONNECTION_TIMEOUT_MS 500
#define QUICK_PART 5 /* of the timeout: a count that takes less may go over more rows */
#define ROWS_MOST 1000000
#define ROWS_LEAST 1000
#define ROWS_STEP 8       /* when a count is late; when it is quick they double */
#define SLACK_US 10000000 /* a transaction may become visible so long after its time */
#define BEHIND_EVERY 12   /* counts; doubled by each that is not answered in time */
#define BEHIND_EVERY_MOST 1536

/* The rows of outbox_gauges. */
enum part { PART_FRONT, PART_BEHIND, PART_FAILED, PART_NOW, PART_COUNT };

struct count {
    int64_t pending, processing, failed, unknown;
    int64_t oldest_ms, unknown_oldest_ms; /* 0 = there is none */
    int64_t due_us;
};

/* One question, asked again and again. */
struct question {
    struct outbox_gauges *gauges;
    uv_timer_t timer;
    struct pg_query query;
    int64_t sent_ms, answered_ms; /* answered_ms: when it was last answered well */
};

struct outbox_gauges {
    struct outbox_gauges_options options;
    struct question events, workers;
    int64_t timeout_ms;  /* of a statement */
    int64_t bookmark_us; /* -1 = not known */
    int64_t rows;        /* of a part */
    int until_behind;    /* so many counts, then what lies behind the bookmark is counted again */
    int behind_every;
    bool counts_behind;  /* the count in flight does it */
    bool is_counted;     /* at least once */
    struct count behind; /* when it was last counted */
    int64_t behind_counted_ms;
    bool is_stopped;
    struct closing closing;
};

static void set(struct outbox_gauges *gauges, enum daemon_metric metric, const char *label, double value)
{
    metric_set(metrics_series(gauges->options.metrics, metric, label, NULL), value);
}

static void ask_after(struct question *question, int64_t wait_ms, void (*on_timer)(uv_timer_t *timer))
{
    if (!question->gauges->is_stopped)
        (void)uv_timer_start(&question->timer, on_timer, (uint64_t)wait_ms, 0);
}

static void ask(struct question *question, const struct sql_statement *statement,
                void (*on_result)(struct pg_query *query, const struct pg_query_result *result))
{
    question->sent_ms = clock_mono_ms();
    question->query.statement = statement;
    question->query.timeout_ms = question->gauges->timeout_ms;
    question->query.is_slow = true;
    question->query.yields = true; /* a connection is left to the work */
    question->query.on_result = on_result;
    pg_pool_submit(question->gauges->options.pool, &question->query);
}

/* When the next one is due, by what this one has cost. */
static int64_t pause_ms(const struct question *question)
{
    int64_t cost_ms = (clock_mono_ms() - question->sent_ms) * COST_FACTOR;
    return cost_ms > INTERVAL_MS ? cost_ms : INTERVAL_MS;
}

/* ---- events ---- */

static enum part part_of(const char *word)
{
    static const char *const words[PART_COUNT] = {"front", "behind", "failed", "now"};
    int part = PART_FRONT;
    while (part < PART_NOW && strcmp(word, words[part]) != 0)
        part++;
    return (enum part)part;
}

static void read_counts(const struct pg_rows *rows, struct count counts[PART_COUNT])
{
    for (int row = 0; row < pg_rows_count(rows); row++)
        counts[part_of(pg_bytes(rows, row, 0).bytes)] = (struct count){
            .pending = pg_int8(rows, row, 1),
            .processing = pg_int8(rows, row, 2),
            .failed = pg_int8(rows, row, 3),
            .oldest_ms = pg_int8(rows, row, 4),
            .unknown = pg_int8(rows, row, 5),
            .unknown_oldest_ms = pg_int8(rows, row, 6),
            .due_us = pg_is_null(rows, row, 7) ? 0 : pg_int8(rows, row, 7),
        };
}

static bool is_any(const struct count *count)
{
    return count->pending > 0 || count->processing > 0;
}

/* Behind a snapshot that another session holds open the index is long: what cannot be counted in time is counted less
 * often. counts: NULL = it was not counted. */
static void note_behind(struct outbox_gauges *gauges, const struct count *counts, bool was_sent)
{
    if (counts) {
        gauges->behind = counts[PART_BEHIND];
        gauges->behind_counted_ms = clock_mono_ms();
        gauges->behind_every = BEHIND_EVERY;
    } else if (was_sent && gauges->behind_every < BEHIND_EVERY_MOST) {
        gauges->behind_every *= 2;
    }
    /* While something is there, it is counted each time. */
    gauges->until_behind = counts && is_any(&gauges->behind) ? 0 : gauges->behind_every;
}

static double oldest_s(int64_t front_ms, int64_t behind_ms, int64_t failed_ms)
{
    int64_t oldest_ms = front_ms > behind_ms ? front_ms : behind_ms;
    return (double)(oldest_ms > failed_ms ? oldest_ms : failed_ms) / 1e3;
}

static void show_counts(struct outbox_gauges *gauges, const struct count counts[PART_COUNT])
{
    const struct count *front = &counts[PART_FRONT], *failed = &counts[PART_FAILED], *behind = &gauges->behind;
    int64_t since_ms = clock_mono_ms() - gauges->behind_counted_ms;
    set(gauges, DAEMON_METRIC_OUTBOX_EVENTS, "PENDING", (double)(front->pending + behind->pending));
    set(gauges, DAEMON_METRIC_OUTBOX_EVENTS, "PROCESSING", (double)(front->processing + behind->processing));
    set(gauges, DAEMON_METRIC_OUTBOX_EVENTS, "FAILED", (double)failed->failed);
    set(gauges, DAEMON_METRIC_OLDEST_PENDING, NULL,
        oldest_s(front->oldest_ms, behind->pending > 0 ? behind->oldest_ms + since_ms : 0, 0));
    set(gauges, DAEMON_METRIC_OUTCOME_UNKNOWN, NULL, (double)(front->unknown + behind->unknown + failed->unknown));
    set(gauges, DAEMON_METRIC_UNKNOWN_OLDEST, NULL,
        oldest_s(front->unknown_oldest_ms, behind->unknown > 0 ? behind->unknown_oldest_ms + since_ms : 0,
                 failed->unknown_oldest_ms));
}

bool outbox_gauges_backlog(const struct outbox_gauges *gauges, int64_t *ret_pending, int64_t *ret_oldest_ms)
{
    struct metrics *metrics = gauges->options.metrics;
    if (!gauges->is_counted)
        return false;
    *ret_pending = (int64_t)metric_value(metrics_series(metrics, DAEMON_METRIC_OUTBOX_EVENTS, "PENDING", NULL));
    *ret_oldest_ms = (int64_t)(metric_value(metrics_series(metrics, DAEMON_METRIC_OLDEST_PENDING, NULL, NULL)) * 1e3);
    return true;
}

/* Where the next count begins: at the oldest that is open now, or at this moment. */
static void move_bookmark(struct outbox_gauges *gauges, const struct count counts[PART_COUNT])
{
    bool has_front = is_any(&counts[PART_FRONT]);
    gauges->bookmark_us = counts[has_front ? PART_FRONT : PART_NOW].due_us - SLACK_US;
}

static void adapt_rows(struct outbox_gauges *gauges, bool is_done)
{
    int64_t took_ms = clock_mono_ms() - gauges->events.sent_ms;
    if (!is_done && took_ms >= gauges->timeout_ms)
        gauges->rows = gauges->rows / ROWS_STEP > ROWS_LEAST ? gauges->rows / ROWS_STEP : ROWS_LEAST;
    else if (is_done && took_ms < gauges->timeout_ms / QUICK_PART)
        gauges->rows = gauges->rows * 2 < ROWS_MOST ? gauges->rows * 2 : ROWS_MOST;
}

static void on_events_timer(uv_timer_t *timer);

static void on_events(struct pg_query *query, const struct pg_query_result *result)
{
    struct question *question = container_of(query, struct question, query);
    struct outbox_gauges *gauges = question->gauges;
    bool is_done = result->kind == PG_DONE;
    struct count counts[PART_COUNT] = {{0}};
    if (is_done)
        read_counts(result->rows, counts);
    adapt_rows(gauges, is_done);
    if (gauges->counts_behind)
        note_behind(gauges, is_done ? counts : NULL, result->kind != PG_NOT_SENT);
    if (is_done) {
        show_counts(gauges, counts);
        gauges->is_counted = true;
        move_bookmark(gauges, counts);
        question->answered_ms = clock_mono_ms();
    }
    ask_after(question, pause_ms(question), on_events_timer);
}

static void on_events_timer(uv_timer_t *timer)
{
    struct question *question = container_of(timer, struct question, timer);
    struct outbox_gauges *gauges = question->gauges;
    gauges->counts_behind = gauges->until_behind-- <= 0;
    question->query.params[0] = gauges->bookmark_us >= 0 ? pg_param_int8(gauges->bookmark_us) : pg_param_null();
    question->query.params[1] = pg_param_bool(gauges->counts_behind);
    question->query.params[2] = pg_param_int8(gauges->rows);
    ask(question, &sql_outbox_gauges, on_events);
}

/* ---- workers and targets ---- */

/* A target that no living worker calls has no state: its gauge is NaN, on which no alert fires. */
static void show_targets(struct outbox_gauges *gauges, const struct pg_rows *rows)
{
    for (int row = 0; row < pg_rows_count(rows); row++) {
        if (pg_is_null(rows, row, 0)) {
            set(gauges, DAEMON_METRIC_WORKERS_ALIVE, NULL, (double)pg_int8(rows, row, 1));
            set(gauges, DAEMON_METRIC_STATISTICS_LAG, NULL, (double)pg_int8(rows, row, 3) / 1e3);
            continue;
        }
        const char *target = pg_bytes(rows, row, 0).bytes;
        set(gauges, DAEMON_METRIC_TARGET_PAUSED, target, pg_bool(rows, row, 2));
        if (gauges->options.has_breaker_states && !pg_is_null(rows, row, 1))
            set(gauges, DAEMON_METRIC_BREAKER_STATE, target, (double)pg_int8(rows, row, 1));
    }
}

/* What is not in the rows any more. */
static void forget_targets(struct outbox_gauges *gauges)
{
    metrics_set_all(gauges->options.metrics, DAEMON_METRIC_TARGET_PAUSED, 0);
    if (gauges->options.has_breaker_states)
        metrics_set_all(gauges->options.metrics, DAEMON_METRIC_BREAKER_STATE, NAN);
}

static void on_workers_timer(uv_timer_t *timer);

static void on_workers(struct pg_query *query, const struct pg_query_result *result)
{
    struct question *question = container_of(query, struct question, query);
    if (result->kind == PG_DONE) {
        forget_targets(question->gauges);
        show_targets(question->gauges, result->rows);
        question->answered_ms = clock_mono_ms();
    }
    ask_after(question, pause_ms(question), on_workers_timer);
}

static void on_workers_timer(uv_timer_t *timer)
{
    ask(container_of(timer, struct question, timer), &sql_worker_gauges, on_workers);
}

/* ---- open, stop, close ---- */

static void open_question(struct outbox_gauges *gauges, struct question *question, void (*on_timer)(uv_timer_t *timer))
{
    question->gauges = gauges;
    question->answered_ms = clock_mono_ms();
    (void)uv_timer_init(gauges->options.loop, &question->timer);
    ask_after(question, FIRST_MS, on_timer);
}

bool outbox_gauges_open(const struct outbox_gauges_options *options, struct outbox_gauges **ret_gauges, struct err *err)
{
    struct outbox_gauges *gauges = calloc(1, sizeof(*gauges));
    if (!gauges)
        return err_set(err, ERR_MEMORY, "no memory for the gauges");
    gauges->options = *options;
    gauges->timeout_ms = options->has_one_connection ? ONLY_CONNECTION_TIMEOUT_MS : QUERY_TIMEOUT_MS;
    gauges->bookmark_us = -1;
    gauges->rows = ROWS_MOST;
    gauges->behind_every = BEHIND_EVERY;
    set(gauges, DAEMON_METRIC_TARGET_PAUSED, "issuer", 0);
    set(gauges, DAEMON_METRIC_TARGET_PAUSED, "core", 0);
    open_question(gauges, &gauges->events, on_events_timer);
    open_question(gauges, &gauges->workers, on_workers_timer);
    *ret_gauges = gauges;
    return true;
}

void outbox_gauges_update_age(struct outbox_gauges *gauges)
{
    int64_t events_ms = gauges->events.answered_ms, workers_ms = gauges->workers.answered_ms;
    set(gauges, DAEMON_METRIC_GAUGES_AGE, NULL,
        (double)(clock_mono_ms() - (events_ms < workers_ms ? events_ms : workers_ms)) / 1e3);
}

void outbox_gauges_stop(struct outbox_gauges *gauges)
{
    gauges->is_stopped = true;
    (void)uv_timer_stop(&gauges->events.timer);
    (void)uv_timer_stop(&gauges->workers.timer);
}

void outbox_gauges_close(struct outbox_gauges *gauges, void (*on_closed)(void *context), void *context)
{
    assert(gauges->is_stopped);
    closing_start(&gauges->closing, free, gauges, on_closed, context);
    closing_handle(&gauges->closing, &gauges->events.timer);
    closing_handle(&gauges->closing, &gauges->workers.timer);
    closing_end(&gauges->closing);
}
