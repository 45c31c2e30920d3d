/* See sweep.h. One statement is in flight at a time. Each look is at the young events or the next piece of a pass. */
#include "worker/flow/sweep.h"

#include "common/lib/base/clock.h"
#include "common/lib/base/log.h"
#include "statements.h"
#include "worker/flow/flow.h"
#include "worker/flow/sweep_pace.h"

#define FREED_MAX 500      /* leases taken back by one statement */
#define REBASE_LOOKS 10000 /* rows that a rebase reads a poll */
#define NOWHERE INT64_MAX
#define SWEEP_TIMEOUT_MS 10000
#define CHEAP_MS 20 /* of a look at everything */
#define TURN_MS 20  /* until it asks again whether the sweeps of other types leave it a statement */

/* A statement that began before the clock was set back may commit old times after the first rebase. So the rebase is
 * repeated until every such statement is over (the roles' statement_timeout). */
static const int64_t REBASE_REPEAT_MS[] = {1000, 4000, 15000};

struct sweep {
    struct job job;
    struct sweep_options options;
    bool is_young;       /* the look is at the young events */
    int64_t rest_us;     /* where the last look of the pass ended; NOWHERE = it went over all it was to look at */
    int64_t rebased_us;  /* likewise of the rebase */
    bool rebase_pending; /* the database's clock was set back, or may have been */
    int64_t rebase_due_ms;
    int rebase_repeats; /* of REBASE_REPEAT_MS */
    int64_t sent_ms;
    int64_t young_due_ms, old_due_ms;
    struct sweep_pace pace;
    bool is_cheap; /* the last look of a pass */
    bool is_watched;
    int64_t awake_until_ms; /* so long it looks although it is watched */
};

/* Columns of outbox_sweep. */
enum { COL_FREED, COL_LATE, COL_COST, COL_ENDED, COL_REST, COL_LOOKED };
/* Columns of outbox_rebase. */
enum { COL_MOVED, COL_REBASE_REST, COL_REBASE_LOOKED };

static void wait_for_next(struct sweep *sweep, int64_t now_ms)
{
    int64_t due_ms = sweep->young_due_ms < sweep->old_due_ms ? sweep->young_due_ms : sweep->old_due_ms;
    if (sweep->is_watched && now_ms >= sweep->awake_until_ms) {
        job_rest(&sweep->job);
        if (!sweep->rebase_pending)
            return;
        due_ms = sweep->rebase_due_ms;
    }
    job_wait(&sweep->job, due_ms - now_ms);
}

static void send_statement(struct sweep *sweep, const struct sql_statement *statement, job_on_result *on_result)
{
    ++*sweep->options.in_flight;
    job_send(&sweep->job, statement, SWEEP_TIMEOUT_MS, on_result);
}

static int64_t time_of(const struct pg_rows *rows, int column)
{
    return pg_is_null(rows, 0, column) ? NOWHERE : pg_int8(rows, 0, column);
}

/* Takes the result of a look. Returns whether there may be more in its range: rows, or leases that it had to leave. */
static bool note_look(struct sweep *sweep, const struct pg_rows *rows)
{
    struct claim *claim = sweep->options.claim;
    int64_t freed = pg_int8(rows, 0, COL_FREED), ended = pg_int8(rows, 0, COL_ENDED);
    if (freed > 0) {
        log_warning("leases ran out; their events are PENDING again", LOG_TEXT("type", sweep->options.event_type),
                    LOG_NUMBER("events", freed));
        claim_wake(claim);
    }
    if (!pg_is_null(rows, 0, COL_LATE))
        claim_go_back(claim, sweep->options.source, pg_int8(rows, 0, COL_LATE));
    for (int64_t i = 0; i < ended; i++)
        worker_series_count_end(sweep->job.env->series, sweep->options.event_type, OUTBOX_FAILED, "worker_lost", -1);
    if (ended > 0)
        log_warning("events that lost their worker again and again are FAILED worker_lost",
                    LOG_TEXT("type", sweep->options.event_type), LOG_NUMBER("events", ended));
    if (freed == FREED_MAX)
        return true;
    if (!sweep->is_young) /* what was left of the young ones ages, and the pass comes to it */
        sweep->rest_us = time_of(rows, COL_REST);
    return !sweep->is_young && sweep->rest_us != NOWHERE;
}

static void on_looked(struct job *job, const struct pg_query_result *result)
{
    struct sweep *sweep = container_of(job, struct sweep, job);
    int64_t now_ms = clock_mono_ms(), poll_ms = sweep->pace.poll_interval_ms;
    bool is_done = result->kind == PG_DONE;
    int64_t cost_ms = is_done ? pg_int8(result->rows, 0, COL_COST) : 0;
    --*sweep->options.in_flight;
    bool was_full = is_done && note_look(sweep, result->rows);
    /* Too many entries to look through, or no database: the look did not happen. (PG_NOT_SENT, after waiting for a
     * connection, proves nothing about the width.) */
    bool is_late = result->kind == PG_UNKNOWN && now_ms - sweep->sent_ms >= SWEEP_TIMEOUT_MS;
    if (!sweep->is_young)
        sweep->is_cheap = is_done && !was_full && cost_ms < CHEAP_MS && sweep->pace.width_ms == SWEEP_UNBOUNDED;
    if (sweep->is_young)
        sweep->young_due_ms = is_done ? sweep_pace_young(&sweep->pace, now_ms, cost_ms) : now_ms + poll_ms;
    else if (is_done)
        sweep->old_due_ms =
            sweep_pace_old(&sweep->pace, now_ms, cost_ms, pg_int8(result->rows, 0, COL_LOOKED), was_full);
    else if (is_late)
        sweep->old_due_ms = sweep_pace_late(&sweep->pace, now_ms, SWEEP_TIMEOUT_MS);
    else
        sweep->old_due_ms = now_ms + poll_ms;
    wait_for_next(sweep, now_ms);
}

/* Behind the rows that were looked at there may be more; else the rebase is repeated. */
static void go_on_with_rebase(struct sweep *sweep, const struct pg_rows *rows, int64_t now_ms)
{
    sweep->rebased_us = time_of(rows, COL_REBASE_REST);
    sweep->rebase_due_ms = now_ms + sweep->pace.poll_interval_ms * pg_int8(rows, 0, COL_REBASE_LOOKED) / REBASE_LOOKS;
    sweep->rebase_pending = true;
    if (sweep->rebased_us != NOWHERE)
        return;
    sweep->rebase_pending = sweep->rebase_repeats < (int)ARRAY_SIZE(REBASE_REPEAT_MS);
    if (sweep->rebase_pending)
        sweep->rebase_due_ms += REBASE_REPEAT_MS[sweep->rebase_repeats++];
}

static void on_rebased(struct job *job, const struct pg_query_result *result)
{
    struct sweep *sweep = container_of(job, struct sweep, job);
    --*sweep->options.in_flight;
    bool is_done = result->kind == PG_DONE;
    int64_t moved = is_done ? pg_int8(result->rows, 0, COL_MOVED) : 0;
    int64_t now_ms = clock_mono_ms();
    if (!is_done)
        sweep->rebase_due_ms = now_ms + sweep->job.env->config->worker.poll_interval_ms;
    else if (moved < FREED_MAX && !sweep->rebase_pending)
        go_on_with_rebase(sweep, result->rows, now_ms);
    sweep->rebase_pending |= !is_done || moved == FREED_MAX;
    if (moved > 0) {
        log_warning("events bore times of a clock that was ahead; their waits begin now",
                    LOG_TEXT("type", sweep->options.event_type), LOG_NUMBER("events", moved));
        claim_go_back(sweep->options.claim, sweep->options.source, -1);
    }
    wait_for_next(sweep, now_ms);
}

static void rebase(struct sweep *sweep)
{
    struct pg_param *params = sweep->job.query.params;
    sweep->rebase_pending = false;
    params[0] = pg_param_int8(FREED_MAX);
    params[1] = pg_param_string(sweep->options.event_type);
    params[2] = claim_source_param(sweep->options.route, sweep->options.source);
    params[3] = sweep->rebased_us != NOWHERE ? pg_param_int8(sweep->rebased_us) : pg_param_null();
    params[4] = pg_param_int8(REBASE_LOOKS);
    send_statement(sweep, &sql_outbox_rebase, on_rebased);
}

void sweep_rebase(struct sweep *sweep)
{
    sweep->rebase_pending = true;
    sweep->rebased_us = NOWHERE;
    sweep->rebase_due_ms = 0;
    sweep->rebase_repeats = 0;
    if (!sweep->job.is_busy)
        job_wait(&sweep->job, 0);
}

void sweep_watch(struct sweep *sweep, bool is_watched)
{
    bool was_watched = sweep->is_watched;
    sweep->is_watched = is_watched;
    if (was_watched && !is_watched && !sweep->job.is_busy)
        wait_for_next(sweep, clock_mono_ms());
}

void sweep_wake(struct sweep *sweep)
{
    int64_t now_ms = clock_mono_ms();
    /* Long enough for a look at the young and one at the old. */
    sweep->awake_until_ms = now_ms + sweep->pace.poll_interval_ms * 3 / 2;
    if (!sweep->job.is_busy && sweep->is_watched)
        wait_for_next(sweep, now_ms);
}

bool sweep_is_cheap(const struct sweep *sweep)
{
    return sweep->is_cheap;
}

static void look(struct sweep *sweep, int64_t now_ms)
{
    int64_t bookmark_us = claim_bookmark_us(sweep->options.claim, sweep->options.source);
    int64_t until_us = bookmark_us >= 0 ? bookmark_us : NOWHERE;
    int64_t to_ms = sweep->is_young ? 0 : sweep->pace.age_ms;
    bool is_last = !sweep->is_young && sweep->pace.width_ms == SWEEP_UNBOUNDED;
    struct pg_param *params = sweep->job.query.params;
    /* guard: the looks of a pass go on where the last one ended */
    if (!sweep->is_young && sweep->rest_us < until_us)
        until_us = sweep->rest_us;
    sweep->sent_ms = now_ms;
    params[0] =
        is_last ? pg_param_null() : pg_param_int8(sweep->is_young ? SWEEP_YOUNG_MS : to_ms + sweep->pace.width_ms);
    params[1] = pg_param_int8(to_ms);
    params[2] = until_us != NOWHERE ? pg_param_int8(until_us) : pg_param_null();
    params[3] = pg_param_int8(FREED_MAX);
    params[4] = pg_param_int8(OUTBOX_LOST_MAX);
    params[5] = pg_param_string(sweep->options.event_type);
    params[6] = claim_source_param(sweep->options.route, sweep->options.source);
    params[7] = pg_param_int8(SWEEP_LOOKS);
    send_statement(sweep, &sql_outbox_sweep, on_looked);
}

static void on_due(struct job *job)
{
    struct sweep *sweep = container_of(job, struct sweep, job);
    int64_t now_ms = clock_mono_ms();
    if (job->is_busy)
        return;
    if (*sweep->options.in_flight >= SWEEP_MOST) {
        job_wait(job, TURN_MS);
        return;
    }
    if (sweep->rebase_pending && sweep->rebase_due_ms <= now_ms) {
        rebase(sweep);
        return;
    }
    sweep->is_young = sweep->young_due_ms <= now_ms;
    if (sweep->is_young || sweep->old_due_ms <= now_ms)
        look(sweep, now_ms);
    else
        wait_for_next(sweep, now_ms);
}

bool sweep_open(const struct sweep_options *options, const struct worker_env *env, struct sweep **ret_sweep,
                struct err *err)
{
    static const struct job_kind kind = {.name = "the sweep", .on_due = on_due};
    struct sweep *sweep = job_new(&kind, env, sizeof(*sweep), err);
    if (!sweep)
        return false;
    int64_t poll_ms = env->config->worker.poll_interval_ms;
    sweep->options = *options;
    sweep->rest_us = sweep->rebased_us = NOWHERE;
    sweep_pace_init(&sweep->pace, poll_ms > SWEEP_EVERY_MS ? poll_ms : SWEEP_EVERY_MS, clock_mono_ms());
    job_wait(&sweep->job, options->first_ms);
    *ret_sweep = sweep;
    return true;
}
