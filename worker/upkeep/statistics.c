/* See statistics.h. */
#include "worker/upkeep/statistics.h"

#include <assert.h>
#include <stdlib.h>

#include "common/lib/base/clock.h"
#include "common/lib/base/closing.h"
#include "common/lib/base/log.h"
#include "statements.h"

#define FOLD_GAP_MS 500 /* between two, so that frequent polls do not multiply them */
#define FOLD_CONTINUES_MS 50
#define CHANGES_MOST 1000 /* of one fold: some milliseconds */
#define QUERY_TIMEOUT_MS 10000

struct statistics {
    struct statistics_options options;
    uv_timer_t timer;
    struct pg_query query;
    bool is_folding;
    bool is_failing; /* the last fold was refused, and this was logged */
    int64_t folded_ms;
    bool is_stopped;
    struct closing closing;
};

enum { COL_FOLDED, COL_REFUSED, COL_HAS_MORE };

static void fold(struct statistics *statistics);

static void on_timer(uv_timer_t *timer)
{
    struct statistics *statistics = container_of(timer, struct statistics, timer);
    if (!statistics->is_folding)
        fold(statistics);
}

/* Logged once, not every second: the statistics are late, and nothing else is wrong. */
static void note_failure(struct statistics *statistics, const struct pg_query_result *result)
{
    bool is_refused = result->kind == PG_REFUSED && !pg_sqlstate_is_moved(result->sqlstate);
    if (is_refused && !statistics->is_failing)
        log_warning("the statistics cannot follow the events", LOG_TEXT("sqlstate", result->sqlstate),
                    LOG_TEXT("why", result->message));
    statistics->is_failing = is_refused;
}

static void on_folded(struct pg_query *query, const struct pg_query_result *result)
{
    struct statistics *statistics = container_of(query, struct statistics, query);
    bool has_more = false;
    note_failure(statistics, result);
    if (result->kind == PG_DONE) {
        has_more = pg_bool(result->rows, 0, COL_HAS_MORE);
        if (pg_int8(result->rows, 0, COL_REFUSED) > 0)
            log_warning("changes were left out of the statistics: see statistics_changes.refused",
                        LOG_NUMBER("changes", pg_int8(result->rows, 0, COL_REFUSED)));
    }
    statistics->is_folding = false;
    statistics->folded_ms = clock_mono_ms();
    if (has_more && !statistics->is_stopped)
        (void)uv_timer_start(&statistics->timer, on_timer, FOLD_CONTINUES_MS, 0);
}

static void fold(struct statistics *statistics)
{
    struct pg_query *query = &statistics->query;
    statistics->is_folding = true;
    query->statement = &sql_statistics_fold;
    query->params[0] = pg_param_int8(CHANGES_MOST);
    query->timeout_ms = QUERY_TIMEOUT_MS;
    query->is_slow = true;
    query->yields = true; /* a connection is left to the work */
    query->on_result = on_folded;
    pg_pool_submit(statistics->options.pool, query);
}

void statistics_wake(struct statistics *statistics)
{
    if (!statistics->is_folding && !statistics->is_stopped && clock_mono_ms() - statistics->folded_ms >= FOLD_GAP_MS)
        fold(statistics);
}

bool statistics_open(const struct statistics_options *options, struct statistics **ret_statistics, struct err *err)
{
    struct statistics *statistics = calloc(1, sizeof(*statistics));
    if (!statistics)
        return err_set(err, ERR_MEMORY, "no memory for the statistics");
    statistics->options = *options;
    (void)uv_timer_init(options->loop, &statistics->timer);
    *ret_statistics = statistics;
    return true;
}

void statistics_stop(struct statistics *statistics)
{
    statistics->is_stopped = true;
    (void)uv_timer_stop(&statistics->timer);
}

bool statistics_is_idle(const struct statistics *statistics)
{
    return !statistics->is_folding;
}

void statistics_close(struct statistics *statistics, void (*on_closed)(void *context), void *context)
{
    assert(statistics_is_idle(statistics));
    closing_start(&statistics->closing, free, statistics, on_closed, context);
    closing_handle(&statistics->closing, &statistics->timer);
    closing_end(&statistics->closing);
}
