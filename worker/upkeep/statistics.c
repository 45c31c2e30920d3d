/* See statistics.h. */
#include "worker/upkeep/statistics.h"

#include "common/lib/base/clock.h"
#include "common/lib/base/log.h"
#include "statements.h"

#define FOLD_GAP_MS 500 /* between two, so that frequent polls do not multiply them */
#define FOLD_CONTINUES_MS 50
#define CHANGES_MOST 1000 /* of one fold: some milliseconds */
#define QUERY_TIMEOUT_MS 10000

struct statistics {
    struct job job;
    bool is_failing; /* the last fold was refused, and this was logged */
    int64_t folded_ms;
};

enum { COL_FOLDED, COL_REFUSED, COL_HAS_MORE };

/* Logged once, not every second: the statistics are late, and nothing else is wrong. */
static void note_failure(struct statistics *statistics, const struct pg_query_result *result)
{
    bool is_refused = result->kind == PG_REFUSED && !pg_sqlstate_is_moved(result->sqlstate);
    if (is_refused && !statistics->is_failing)
        log_warning("the statistics cannot follow the events", LOG_TEXT("sqlstate", result->sqlstate),
                    LOG_TEXT("why", result->message));
    statistics->is_failing = is_refused;
}

static void on_folded(struct job *job, const struct pg_query_result *result)
{
    struct statistics *statistics = container_of(job, struct statistics, job);
    note_failure(statistics, result);
    statistics->folded_ms = clock_mono_ms();
    if (result->kind != PG_DONE)
        return;
    if (pg_int8(result->rows, 0, COL_REFUSED) > 0)
        log_warning("changes were left out of the statistics: see statistics_changes.refused",
                    LOG_NUMBER("changes", pg_int8(result->rows, 0, COL_REFUSED)));
    if (pg_bool(result->rows, 0, COL_HAS_MORE))
        job_wait(job, FOLD_CONTINUES_MS);
}

static void on_due(struct job *job)
{
    if (job->is_busy)
        return;
    job->query.params[0] = pg_param_int8(CHANGES_MOST);
    job->query.yields = true; /* a connection is left to the work */
    job_send(job, &sql_statistics_fold, QUERY_TIMEOUT_MS, on_folded);
}

void statistics_wake(struct statistics *statistics)
{
    if (!statistics->job.is_stopped && clock_mono_ms() - statistics->folded_ms >= FOLD_GAP_MS)
        on_due(&statistics->job);
}

bool statistics_open(const struct worker_env *env, struct statistics **ret_statistics, struct err *err)
{
    static const struct job_kind kind = {.name = "the statistics", .on_due = on_due};
    struct statistics *statistics = job_new(&kind, env, sizeof(*statistics), err);
    if (statistics)
        *ret_statistics = statistics;
    return statistics;
}
