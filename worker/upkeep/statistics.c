/* See statistics.h. */
#include "worker/upkeep/statistics.h"

#include <assert.h>
#include <stdlib.h>

#include "common/lib/base/clock.h"
#include "common/lib/base/closing.h"
#include "common/lib/base/log.h"
#include "statements.h"
#include "worker/places.h"

#define FOLD_GAP_MS 500 /* between two, so that frequent polls do not multiply them */
#define FOLD_CONTINUES_MS 50
#define CHANGES_MOST 1000 /* of one fold: some milliseconds */
#define QUERY_TIMEOUT_MS 10000

struct statistics {
    struct statistics_options options;
    uv_timer_t timer;
    struct pg_query query;
    int place; /* that is folded, or is next */
    bool is_folding;
    bool has_more;                  /* one of the places before it has */
    bool is_failing[PG_PLACES_MAX]; /* the last fold of the place was refused, and this was logged */
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
    bool *is_failing = &statistics->is_failing[statistics->place];
    bool is_refused = result->kind == PG_REFUSED && !pg_sqlstate_is_moved(result->sqlstate);
    if (is_refused && !*is_failing)
        log_warning("the statistics cannot follow the events", LOG_NUMBER("place", statistics->place),
                    LOG_TEXT("sqlstate", result->sqlstate), LOG_TEXT("why", result->message));
    *is_failing = is_refused;
}

static void on_folded(struct pg_query *query, const struct pg_query_result *result)
{
    struct statistics *statistics = container_of(query, struct statistics, query);
    note_failure(statistics, result);
    if (result->kind == PG_DONE) {
        statistics->has_more |= pg_bool(result->rows, 0, COL_HAS_MORE);
        if (pg_int8(result->rows, 0, COL_REFUSED) > 0)
            log_warning("changes were left out of the statistics: see statistics_changes.refused",
                        LOG_NUMBER("changes", pg_int8(result->rows, 0, COL_REFUSED)));
    }
    statistics->is_folding = false;
    statistics->place = (statistics->place + 1) % places_count(statistics->options.pool);
    if (statistics->is_stopped)
        return;
    if (statistics->place > 0 && (result->kind != PG_NOT_SENT || pg_pool_databases(statistics->options.pool) > 1)) {
        fold(statistics);
        return;
    }
    statistics->folded_ms = clock_mono_ms();
    if (statistics->has_more)
        (void)uv_timer_start(&statistics->timer, on_timer, FOLD_CONTINUES_MS, 0);
    statistics->has_more = false;
}

static void fold(struct statistics *statistics)
{
    struct pg_query *query = &statistics->query;
    statistics->is_folding = true;
    query->place = statistics->place;
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
