/* See lost_creates.h. */
#include "worker/questions/lost_creates.h"

#include <string.h>

#include "common/lib/base/log.h"
#include "statements.h"

#define QUERY_TIMEOUT_MS 5000
#define LOST_CREATES_MAX 256 /* that wait to be reported */

struct lost_creates {
    struct job job;
    struct uuid event_ids[LOST_CREATES_MAX];
    int count;
    int sent_count; /* so many of the first are in flight to the database */
    struct buf ids; /* its parameter */
};

static void report(struct lost_creates *lost);

static void on_reported(struct job *job, const struct pg_query_result *result)
{
    struct lost_creates *lost = container_of(job, struct lost_creates, job);
    if (result->kind != PG_DONE) {
        /* guard: a report that failed is repeated */
        job_wait(job, job->env->config->worker.poll_interval_ms);
        return;
    }
    lost->count -= lost->sent_count;
    memmove(lost->event_ids, lost->event_ids + lost->sent_count, (size_t)lost->count * sizeof(lost->event_ids[0]));
    /* guard: what came while a report was under way does not wait for the next poll */
    report(lost);
}

static void report(struct lost_creates *lost)
{
    static const char why[] = "a create was sent by an attempt that had lost its lease";
    if (lost->job.is_busy || lost->count == 0)
        return;
    buf_done(&lost->ids);
    lost->job.query.params[0] = pg_array_of_uuids(&lost->ids, lost->event_ids, lost->count);
    if (lost->ids.failed) {
        job_wait(&lost->job, lost->job.env->config->worker.poll_interval_ms);
        return;
    }
    lost->sent_count = lost->count;
    lost->job.query.params[1] = pg_param_string(why);
    job_send(&lost->job, &sql_reconcile_ask, QUERY_TIMEOUT_MS, on_reported);
}

static void log_not_reported(const struct uuid *event_id)
{
    char text[UUID_TEXT_SIZE];
    uuid_format(event_id, text);
    log_error("an event that should be looked up could not be noted: use issuing-ctl reconcile",
              LOG_TEXT("event_id", text));
}

void lost_creates_add(struct lost_creates *lost, const struct uuid *event_id)
{
    if (lost->count == LOST_CREATES_MAX) {
        log_not_reported(event_id);
        return;
    }
    lost->event_ids[lost->count++] = *event_id;
    report(lost);
}

static void on_due(struct job *job)
{
    report(container_of(job, struct lost_creates, job));
}

static void release(struct job *job)
{
    struct lost_creates *lost = container_of(job, struct lost_creates, job);
    for (int i = 0; i < lost->count; i++)
        log_not_reported(&lost->event_ids[i]);
    buf_done(&lost->ids);
}

bool lost_creates_open(const struct worker_env *env, struct lost_creates **ret_lost, struct err *err)
{
    static const struct job_kind kind = {.name = "lost creates", .on_due = on_due, .release = release};
    struct lost_creates *lost = job_new(&kind, env, sizeof(*lost), err);
    if (!lost)
        return false;
    lost->job.query.is_slow = false;
    *ret_lost = lost;
    return true;
}
