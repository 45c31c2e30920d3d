/* A module that works beside the attempts has a timer, and sends one statement at a time. All of them are stopped, are
 * idle, and are closed together, by the worker.
 *
 * A module begins with its struct job, and is allocated by job_new(). Where it needs more than the defaults it says so
 * in its struct job_kind. */
#ifndef ISSUING_JOB_H
#define ISSUING_JOB_H

#include "common/lib/base/closing.h"
#include "common/lib/base/err.h"
#include "worker/base/worker_env.h"

struct job;

struct job_kind {
    const char *name; /* as in "no memory for the statistics" */
    /* The timer has run out. Not after a stop. */
    void (*on_due)(struct job *job);
    /* The timer is stopped, and no work may begin. NULL: that is all. */
    void (*on_stop)(struct job *job);
    /* NULL: it is idle while no statement of job_send() is in flight. */
    bool (*is_idle)(const struct job *job);
    /* Frees what the module owns; the module itself is freed after it. NULL: it owns nothing. */
    void (*release)(struct job *job);
};

typedef void job_on_result(struct job *job, const struct pg_query_result *result);

struct job {
    const struct job_kind *kind;
    const struct worker_env *env;
    struct pg_query query; /* its params, and yields; is_slow is set */
    bool is_busy;          /* the query is in flight */
    bool is_stopped;
    uv_timer_t timer; /* started by job_wait() */
    /* private */
    job_on_result *on_result;
    struct job *next;
};

/* In the order in which they were opened. Starts as all zeros. */
struct jobs {
    struct job *first, *last;
};

/* Allocates a module of this size, with zeros behind its job. It belongs to env->jobs. NULL: out of memory, as *err
 * says. */
must_check void *job_new(const struct job_kind *kind, const struct worker_env *env, size_t size, struct err *err);
/* on_due follows after this time, instead of one that was set before; < 0 = 0. No effect after a stop. */
void job_wait(struct job *job, int64_t ms);
/* No on_due until the next job_wait(). */
void job_rest(struct job *job);
/* Sends the query, whose params are set. on_result follows once, from the loop. Precondition: !is_busy. */
void job_send(struct job *job, const struct sql_statement *statement, int64_t timeout_ms, job_on_result *on_result);

void jobs_stop(struct jobs *jobs);
/* except: is not looked at; NULL = all are. */
bool jobs_are_idle(const struct jobs *jobs, const struct job *except);
/* Precondition: all are idle, or none has begun. Their timers are parts of `closing`; jobs_free() follows once they are
 * closed. */
void jobs_close(struct jobs *jobs, struct closing *closing);
void jobs_free(struct jobs *jobs);

#endif
