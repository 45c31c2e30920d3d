/* See watch.h. */
#include "worker/watch.h"

#include "common/lib/base/backoff.h"
#include "common/lib/base/clock.h"
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
    struct job job;
    struct watch_options options;
    struct buf types; /* its parameter */
    bool is_poll;     /* it is about events and marks too */
    int64_t poll_due_ms, sent_us;
};

enum { COL_WHAT, COL_COST, COL_NOW, COL_IS_ASKED };

static int64_t every_ms(const struct watch *watch)
{
    int64_t poll_ms = watch->job.env->config->worker.poll_interval_ms;
    return poll_ms < EVERY_MOST_MS ? poll_ms : EVERY_MOST_MS;
}

/* The pauses differ, so that a worker does not look forever just before events are due that another one takes. */
static void wait_for_next(struct watch *watch)
{
    int64_t pause_ms = every_ms(watch);
    pause_ms -= (int64_t)(backoff_random() % (uint64_t)(pause_ms / 8 + 1));
    job_wait(&watch->job, pause_ms);
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

static void on_answered(struct job *job, const struct pg_query_result *result)
{
    struct watch *watch = container_of(job, struct watch, job);
    if (job->is_stopped)
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

static void on_due(struct job *job)
{
    struct watch *watch = container_of(job, struct watch, job);
    const struct watch_options *options = &watch->options;
    int64_t now_ms = clock_mono_ms();
    wait_for_next(watch);
    bool is_poll = now_ms >= watch->poll_due_ms;
    if (is_poll) /* a little earlier, so that it falls together with a question */
        watch->poll_due_ms = now_ms + watch->job.env->config->worker.poll_interval_ms - every_ms(watch);
    if (job->is_busy) {
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
    job->query.params[0] = pg_array_param(&types);
    if (watch->types.failed) {
        wake_all(watch, is_poll);
        return;
    }
    watch->sent_us = clock_mono_us();
    job_send(job, &sql_what_waits, QUERY_TIMEOUT_MS, on_answered);
}

static void release(struct job *job)
{
    buf_done(&container_of(job, struct watch, job)->types);
}

bool watch_open(const struct watch_options *options, const struct worker_env *env, struct err *err)
{
    static const struct job_kind kind = {.name = "the polls", .on_due = on_due, .release = release};
    struct watch *watch = job_new(&kind, env, sizeof(*watch), err);
    if (!watch)
        return false;
    watch->options = *options;
    buf_init(&watch->types, TYPES_BYTES_MAX);
    job_wait(&watch->job, 1);
    return true;
}
