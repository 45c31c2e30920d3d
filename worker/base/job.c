/* See job.h. */
#include "worker/base/job.h"

#include <assert.h>
#include <stdlib.h>

void *job_new(const struct job_kind *kind, const struct worker_env *env, size_t size, struct err *err)
{
    struct job *job = calloc(1, size);
    if (!job) {
        (void)err_set(err, ERR_MEMORY, "no memory for %s", kind->name);
        return NULL;
    }
    job->kind = kind;
    job->env = env;
    job->query.is_slow = true;
    uv_timer_init(env->loop, &job->timer);
    if (env->jobs->last)
        env->jobs->last->next = job;
    else
        env->jobs->first = job;
    env->jobs->last = job;
    return job;
}

static void on_timer(uv_timer_t *timer)
{
    struct job *job = container_of(timer, struct job, timer);
    job->kind->on_due(job);
}

void job_wait(struct job *job, int64_t ms)
{
    /* guard: a job that was stopped waits for nothing */
    if (!job->is_stopped)
        uv_timer_start(&job->timer, on_timer, ms > 0 ? (uint64_t)ms : 0, 0);
}

void job_rest(struct job *job)
{
    uv_timer_stop(&job->timer);
}

static void on_answered(struct pg_query *query, const struct pg_query_result *result)
{
    struct job *job = container_of(query, struct job, query);
    job->is_busy = false;
    job->on_result(job, result);
}

void job_send(struct job *job, const struct sql_statement *statement, int64_t timeout_ms, job_on_result *on_result)
{
    assert(!job->is_busy);
    job->is_busy = true;
    job->on_result = on_result;
    job->query.statement = statement;
    job->query.timeout_ms = timeout_ms;
    job->query.on_result = on_answered;
    pg_pool_submit(job->env->pool, &job->query);
}

void jobs_stop(struct jobs *jobs)
{
    for (struct job *job = jobs->first; job; job = job->next) {
        job->is_stopped = true;
        /* guard: a job that is stopped is not due any more */
        uv_timer_stop(&job->timer);
        if (job->kind->on_stop)
            job->kind->on_stop(job);
    }
}

bool jobs_are_idle(const struct jobs *jobs, const struct job *except)
{
    for (const struct job *job = jobs->first; job; job = job->next)
        if (job != except && (job->kind->is_idle ? !job->kind->is_idle(job) : job->is_busy))
            return false;
    return true;
}

void jobs_close(struct jobs *jobs, struct closing *closing)
{
    for (struct job *job = jobs->first; job; job = job->next)
        closing_handle(closing, &job->timer);
}

void jobs_free(struct jobs *jobs)
{
    for (struct job *job = jobs->first, *next; job; job = next) {
        next = job->next;
        if (job->kind->release)
            job->kind->release(job);
        free(job);
    }
    *jobs = (struct jobs){0};
}
