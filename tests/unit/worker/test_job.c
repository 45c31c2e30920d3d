/* What the jobs of a worker have in common, and reports of lost creates as one of them: a statement that fails is
 * repeated after a poll, nothing begins after a stop, and the worker ends once no statement is in flight. */
#include <check.h>
#include <uv.h>

#include "tests/support/suite.h"
#include "worker/base/job.h"
#include "worker/questions/lost_creates.h"

enum { POLL_MS = 5 };

static uv_loop_t loop;
static struct config config;
static struct jobs jobs;
static const struct worker_env env = {.loop = &loop, .config = &config, .jobs = &jobs};
static struct pg_query *in_flight;
static int sent;
static struct err err;

void __wrap_pg_pool_submit(struct pg_pool *pool, struct pg_query *query);
void __wrap_pg_pool_submit(struct pg_pool *pool, struct pg_query *query)
{
    (void)pool;
    ck_assert_ptr_null(in_flight);
    in_flight = query;
    sent++;
}

static void answer(enum pg_kind kind)
{
    const struct pg_query_result result = {.kind = kind};
    struct pg_query *query = in_flight;
    in_flight = NULL;
    query->on_result(query, &result);
}

static int due_count;

static void begin(void)
{
    sent = due_count = 0;
    config.worker.poll_interval_ms = POLL_MS;
    ck_assert_int_eq(uv_loop_init(&loop), 0);
}

static struct lost_creates *open_reports(void)
{
    struct lost_creates *lost;
    begin();
    ck_assert(lost_creates_open(&env, &lost, &err));
    return lost;
}

/* Until no timer is left. */
static void run(void)
{
    ck_assert_int_eq(uv_run(&loop, UV_RUN_DEFAULT), 0);
}

static void close_all(void)
{
    struct closing closing;
    closing_start(&closing, NULL, NULL, NULL, NULL);
    jobs_close(&jobs, &closing);
    closing_end(&closing);
    run();
    jobs_free(&jobs);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}

static void add(struct lost_creates *lost)
{
    const struct uuid event_id = uuid7_make();
    lost_creates_add(lost, &event_id);
}

TEST(a_report_that_failed_is_repeated_until_it_is_answered)
{
    static const enum pg_kind failures[] = {PG_NOT_SENT, PG_UNKNOWN, PG_REFUSED};
    struct lost_creates *lost = open_reports();
    add(lost);
    for (int i = 0; i < (int)ARRAY_SIZE(failures); i++) {
        ck_assert_int_eq(sent, i + 1);
        answer(failures[i]);
        ck_assert_int_eq(sent, i + 1);
        run();
    }
    answer(PG_DONE);
    run();
    ck_assert_int_eq(sent, (int)ARRAY_SIZE(failures) + 1);
    close_all();
}

TEST(what_comes_while_a_repeat_waits_is_sent_with_it)
{
    struct lost_creates *lost = open_reports();
    add(lost);
    answer(PG_NOT_SENT);
    add(lost);
    ck_assert_int_eq(sent, 2);
    run(); /* the timer runs out while the report is under way */
    ck_assert_int_eq(sent, 2);
    answer(PG_NOT_SENT);
    run();
    ck_assert_int_eq(sent, 3);
    answer(PG_DONE);
    run();
    ck_assert_int_eq(sent, 3);
    close_all();
}

TEST(a_worker_that_drains_still_reports_and_waits_for_the_answer)
{
    struct lost_creates *lost = open_reports();
    jobs_stop(&jobs);
    ck_assert(jobs_are_idle(&jobs, NULL));
    add(lost);
    ck_assert_int_eq(sent, 1);
    ck_assert(!jobs_are_idle(&jobs, NULL));
    answer(PG_NOT_SENT);
    run();
    ck_assert(jobs_are_idle(&jobs, NULL));
    ck_assert_int_eq(sent, 1);
    close_all();
}

static void on_due(struct job *job)
{
    if (++due_count < 10)
        job_wait(job, 1);
}

TEST(a_job_that_was_stopped_begins_nothing)
{
    static const struct job_kind kind = {.name = "a job", .on_due = on_due};
    begin();
    struct job *job = job_new(&kind, &env, sizeof(*job), &err);
    ck_assert_ptr_nonnull(job);
    job_wait(job, 0);
    while (due_count < 3)
        uv_run(&loop, UV_RUN_ONCE);
    jobs_stop(&jobs);
    run();
    job_wait(job, 0);
    run();
    ck_assert_int_eq(due_count, 3);
    close_all();
}

static bool is_idle(const struct job *job)
{
    return job->is_stopped;
}

TEST(a_worker_is_idle_once_each_of_its_jobs_is)
{
    static const struct job_kind kinds[] = {{.name = "the first", .on_due = on_due},
                                            {.name = "the second", .on_due = on_due, .is_idle = is_idle}};
    begin();
    struct job *first = job_new(&kinds[0], &env, sizeof(*first), &err);
    struct job *second = job_new(&kinds[1], &env, sizeof(*second), &err);
    ck_assert(first && second);
    ck_assert(!jobs_are_idle(&jobs, NULL));
    ck_assert(jobs_are_idle(&jobs, second));
    first->is_busy = true;
    ck_assert(!jobs_are_idle(&jobs, second));
    jobs_stop(&jobs);
    ck_assert(!jobs_are_idle(&jobs, NULL));
    first->is_busy = false;
    ck_assert(jobs_are_idle(&jobs, NULL));
    close_all();
}

TESTS(job)
