/* See watch.h. */
#include "worker/watch.h"

#include <assert.h>
#include <stdlib.h>

#include "common/lib/base/backoff.h"
#include "common/lib/base/clock.h"
#include "common/lib/base/closing.h"
#include "common/lib/base/log.h"
#include "statements.h"
#include "worker/flow/claims.h"
#include "worker/questions/issuer_check.h"
#include "worker/questions/issuer_listing.h"
#include "worker/questions/reconcile.h"
#include "worker/upkeep/statistics.h"

#define EVERY_MOST_MS 1000
#define COST_MOST_MS 20
#define QUERY_TIMEOUT_MS 5000
#define TYPES_BYTES_MAX 8192

struct watch {
    struct watch_options options;
    uv_timer_t timer;
    struct pg_query query;
    struct buf types; /* its parameter */
    bool is_in_flight;
    bool is_poll; /* it is about events and marks too */
    int64_t poll_due_ms, sent_us;
    bool is_stopped;
    struct closing closing;
};

enum { COL_WHAT, COL_COST, COL_NOW, COL_IS_ASKED };

static void on_timer(uv_timer_t *timer);

static int64_t every_ms(const struct watch *watch)
{
    int64_t poll_ms = watch->options.poll_interval_ms;
    return poll_ms < EVERY_MOST_MS ? poll_ms : EVERY_MOST_MS;
}

/* The pauses differ, so that a worker does not look forever just before events are due that another one takes. */
static void wait_for_next(struct watch *watch)
{
    int64_t pause_ms = every_ms(watch);
    pause_ms -= (int64_t)(backoff_random() % (uint64_t)(pause_ms / 8 + 1));
    uv_timer_start(&watch->timer, on_timer, (uint64_t)pause_ms, 0);
}

static void wake_what_was_asked(struct watch *watch)
{
    issuer_check_wake(watch->options.issuer_check);
    issuer_listing_wake(watch->options.issuer_listing);
}

/* There may be anything. */
static void wake_all(struct watch *watch, bool is_poll)
{
    const struct watch_options *options = &watch->options;
    claims_unwatch(options->claims);
    if (is_poll) {
        claims_poll(options->claims, (struct slice){.bytes = NULL});
        reconcile_wake(options->reconcile);
    }
    statistics_wake(options->statistics);
    wake_what_was_asked(watch);
}

static void wake(struct watch *watch, struct slice what)
{
    if (slice_is(what, "changes"))
        statistics_wake(watch->options.statistics);
    else if (!watch->is_poll)
        return;
    else if (slice_is(what, "marks"))
        reconcile_wake(watch->options.reconcile);
    else
        claims_poll(watch->options.claims, what);
}

static void read_answer(struct watch *watch, const struct pg_rows *rows)
{
    int last = pg_rows_count(rows) - 1;
    /* guard: the database's clock is looked at while nothing is claimed */
    claims_note_clock(watch->options.claims, pg_int8(rows, last, COL_NOW), watch->sent_us);
    for (int row = 0; row < last; row++)
        wake(watch, pg_bytes(rows, row, COL_WHAT));
    if (pg_bool(rows, last, COL_IS_ASKED))
        wake_what_was_asked(watch);
    if (pg_int8(rows, last, COL_COST) > COST_MOST_MS)
        claims_unwatch(watch->options.claims);
}

static void on_answered(struct pg_query *query, const struct pg_query_result *result)
{
    struct watch *watch = container_of(query, struct watch, query);
    watch->is_in_flight = false;
    if (watch->is_stopped)
        return;
    if (result->kind != PG_DONE) {
        if (result->kind == PG_REFUSED && !pg_sqlstate_is_moved(result->sqlstate))
            log_warning("what there is to do cannot be asked", LOG_TEXT("sqlstate", result->sqlstate),
                        LOG_TEXT("why", result->message));
        /* guard: a question that is refused stops nothing */
        wake_all(watch, watch->is_poll);
        return;
    }
    read_answer(watch, result->rows);
}

static void ask(struct watch *watch)
{
    struct pg_query *query = &watch->query;
    watch->is_in_flight = true;
    watch->sent_us = clock_mono_us();
    query->statement = &sql_what_waits;
    query->timeout_ms = QUERY_TIMEOUT_MS;
    query->is_slow = true;
    query->on_result = on_answered;
    pg_pool_submit(watch->options.pool, query);
}

static void on_timer(uv_timer_t *timer)
{
    struct watch *watch = container_of(timer, struct watch, timer);
    const struct watch_options *options = &watch->options;
    int64_t now_ms = clock_mono_ms();
    wait_for_next(watch);
    bool is_poll = now_ms >= watch->poll_due_ms;
    if (is_poll) /* a little earlier, so that it falls together with a question */
        watch->poll_due_ms = now_ms + options->poll_interval_ms - every_ms(watch);
    if (watch->is_in_flight) {
        /* One that hangs stops nothing, and its time is longer than a poll. */
        wake_all(watch, is_poll);
        return;
    }
    struct pg_array types;
    watch->is_poll = is_poll;
    pg_array_start(&types, &watch->types, PG_TEXT);
    if (is_poll) {
        claims_add_watched(options->claims, &types);
        claims_poll(options->claims, (struct slice){.bytes = NULL});
    }
    watch->query.params[0] = pg_array_param(&types);
    if (watch->types.failed)
        wake_all(watch, is_poll);
    else
        ask(watch);
}

bool watch_open(const struct watch_options *options, struct watch **ret_watch, struct err *err)
{
    struct watch *watch = calloc(1, sizeof(*watch));
    if (!watch)
        return err_set(err, ERR_MEMORY, "no memory for the polls");
    watch->options = *options;
    buf_init(&watch->types, TYPES_BYTES_MAX);
    uv_timer_init(options->loop, &watch->timer);
    uv_timer_start(&watch->timer, on_timer, 1, 0);
    *ret_watch = watch;
    return true;
}

void watch_stop(struct watch *watch)
{
    watch->is_stopped = true;
    uv_timer_stop(&watch->timer);
}

bool watch_is_idle(const struct watch *watch)
{
    return !watch->is_in_flight;
}

static void release(void *module)
{
    struct watch *watch = module;
    buf_done(&watch->types);
    free(watch);
}

void watch_close(struct watch *watch, void (*on_closed)(void *context), void *context)
{
    assert(watch_is_idle(watch));
    closing_start(&watch->closing, release, watch, on_closed, context);
    closing_handle(&watch->closing, &watch->timer);
    closing_end(&watch->closing);
}
