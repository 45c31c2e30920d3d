/* See reconcile.h. */
#include "worker/questions/reconcile.h"

#include <assert.h>

#include "common/lib/base/clock.h"
#include "statements.h"
#include "worker/questions/mark.h"

#define MARKS_MAX 4   /* at a time */
#define TIDY_MS 60000 /* a take also removes what is over */
#define TYPES_BYTES_MAX 4096

struct reconcile {
    struct job job;
    int64_t tidied_ms;
    struct question question; /* that takes marks; it has no id */
    struct buf types;         /* its parameter: what this worker can look up now */
    bool is_taking;
    int taking_count; /* how many may be taken */
    bool is_due;      /* there may be marks: somebody said so, or the last take was filled */
    struct mark_env env;
    struct mark marks[MARKS_MAX];
    int busy_count;
};

static struct mark *free_mark(struct reconcile *reconcile)
{
    for (int i = 0; i < MARKS_MAX; i++)
        if (!reconcile->marks[i].flow.is_busy)
            return &reconcile->marks[i];
    return NULL;
}

static void take(struct reconcile *reconcile);

static void on_taken(struct pg_query *query, const struct pg_query_result *result)
{
    struct reconcile *reconcile = container_of(query, struct reconcile, question.query);
    int count = result->kind == PG_DONE ? pg_rows_count(result->rows) : 0; /* leases that may be there run out */
    reconcile->is_taking = false;
    reconcile->is_due = count > 0 && count == reconcile->taking_count;
    for (int row = 0; row < count; row++) {
        struct mark *mark = free_mark(reconcile);
        assert(mark); /* the limit was the free ones, and only a take fills them */
        reconcile->busy_count++;
        mark_start(mark, &reconcile->question.token, result->rows, row);
    }
    take(reconcile);
}

static void take(struct reconcile *reconcile)
{
    const struct worker_env *env = reconcile->job.env;
    struct pg_param *params = reconcile->question.query.params;
    if (!reconcile->is_due || reconcile->is_taking || reconcile->job.is_stopped || reconcile->busy_count >= MARKS_MAX)
        return;
    /* Every mark begins with a look-up. */
    if (!question_targets(env, OUTBOX_EVENT_TYPE, true, &reconcile->types, &params[4]))
        return;
    reconcile->is_taking = true;
    reconcile->is_due = false;
    reconcile->taking_count = MARKS_MAX - reconcile->busy_count;
    params[3] = pg_param_int8(reconcile->taking_count);
    params[5] = pg_param_string(env->config->issuer.profile);
    params[6] = pg_param_string(env->peers->issuer_address);
    question_take(&reconcile->question, &sql_reconcile_take, env->config->worker.lease_ms, on_taken);
}

static void on_mark_released(void *context)
{
    struct reconcile *reconcile = context;
    reconcile->busy_count--;
    assert(reconcile->busy_count >= 0);
    take(reconcile);
}

static void on_due(struct job *job)
{
    struct reconcile *reconcile = container_of(job, struct reconcile, job);
    int64_t now_ms = clock_mono_ms();
    job_wait(job, job->env->config->worker.poll_interval_ms);
    if (now_ms - reconcile->tidied_ms < TIDY_MS)
        return;
    reconcile->tidied_ms = now_ms;
    reconcile_wake(reconcile);
}

void reconcile_wake(struct reconcile *reconcile)
{
    if (!reconcile->is_taking) /* else it is looked at now */
        reconcile->is_due = true;
    take(reconcile);
}

/* ---- open, drain, close ---- */

static void on_stop(struct job *job)
{
    container_of(job, struct reconcile, job)->env.flow.is_draining = true;
}

static bool is_idle(const struct job *job)
{
    const struct reconcile *reconcile = container_of(job, const struct reconcile, job);
    return reconcile->busy_count == 0 && !reconcile->is_taking;
}

static void release(struct job *job)
{
    struct reconcile *reconcile = container_of(job, struct reconcile, job);
    for (int i = 0; i < MARKS_MAX; i++)
        mark_done(&reconcile->marks[i]);
    buf_done(&reconcile->types);
}

bool reconcile_open(const struct worker_env *env, void (*on_result)(void *context), void *context,
                    struct reconcile **ret_reconcile, struct err *err)
{
    static const struct job_kind kind = {
        .name = "the marks", .on_due = on_due, .on_stop = on_stop, .is_idle = is_idle, .release = release};
    struct reconcile *reconcile = job_new(&kind, env, sizeof(*reconcile), err);
    if (!reconcile)
        return false;
    reconcile->question.env = env;
    reconcile->env = (struct mark_env){
        .flow = {.worker = env},
        .on_result = on_result,
        .result_context = context,
        .on_released = on_mark_released,
        .context = reconcile,
    };
    mark_env_init(&reconcile->env);
    buf_init(&reconcile->types, TYPES_BYTES_MAX);
    for (int i = 0; i < MARKS_MAX; i++)
        mark_init(&reconcile->marks[i], &reconcile->env);
    job_wait(&reconcile->job, env->config->worker.poll_interval_ms);
    *ret_reconcile = reconcile;
    return true;
}
