/* What the tests of the pool share: the pool, a connection beside it, and probes, each of which is a query that
 * remembers its results. Needs a database: its conninfo (keyword=value) in ISSUING_TEST_DATABASE. */
#ifndef ISSUING_TEST_POOL_H
#define ISSUING_TEST_POOL_H

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/lib/pg/pg_pool.h"
#include "common/lib/pg/pg_sync.h"

#include "run_until.h"

#define MANY 10000

struct probe {
    struct pg_query query; /* first: a query is its probe */
    int results;
    enum pg_kind kind;
    char sqlstate[6];
    char message[200];
    int64_t value; /* of column 0 */
    int place;     /* so many ended before it */
    bool was_sent;
    int repeats; /* so often it is submitted again from its result */
};

static struct pg_pool *pool;
static struct pg_sync *db; /* beside the pool */
static struct err err;
static struct probe probes[MANY];
static int done_count, errors, states;
static bool inside_submit, ready, closed;
static char reason[256], last_error[6], last_end[256];
static int ends; /* sessions that their server ended */

static const struct sql_statement twice = {
    .name = "twice", .by_name = true, .text = "SELECT $1::int8 * 2", .parameters = 1, .shape = SQL_ONE};
static const struct sql_statement quotient = {
    .name = "quotient", .by_name = true, .text = "SELECT 100 / $1::int8", .parameters = 1, .shape = SQL_ONE};
static const struct sql_statement doze = {
    .name = "doze", .text = "SELECT pg_sleep($1::int8 / 1000.0)::text", .parameters = 1, .shape = SQL_ONE};
static const struct sql_statement backend = {
    .name = "backend", .text = "SELECT pg_backend_pid()::int8", .shape = SQL_ONE};

static inline void on_state(void *context, bool is_ready, const char *error_text)
{
    ck_assert_ptr_eq(context, &loop);
    ck_assert(!inside_submit);
    states++;
    ready = is_ready;
    snprintf(reason, sizeof(reason), "%s", error_text);
}

static inline void on_error(void *context, const char sqlstate[6])
{
    ck_assert_ptr_eq(context, &loop);
    errors++;
    memcpy(last_error, sqlstate, sizeof(last_error));
}

static inline void on_ended(void *context, const char *why)
{
    ck_assert_ptr_eq(context, &loop);
    ends++;
    snprintf(last_end, sizeof(last_end), "%s", why);
}

static inline void submit_probe(struct probe *probe)
{
    ck_assert(!inside_submit);
    inside_submit = true;
    pg_pool_submit(pool, &probe->query);
    inside_submit = false;
}

static inline void on_result(struct pg_query *query, const struct pg_query_result *result)
{
    struct probe *probe = (struct probe *)query;
    ck_assert(!inside_submit);
    probe->results++;
    probe->kind = result->kind;
    probe->was_sent = query->sent;
    probe->place = done_count++;
    memcpy(probe->sqlstate, result->sqlstate, sizeof(probe->sqlstate));
    memcpy(probe->message, result->message, sizeof(probe->message));
    ck_assert_int_eq(result->kind == PG_DONE, result->rows != NULL);
    ck_assert_int_eq(result->kind == PG_REFUSED, result->sqlstate[0] != '\0');
    ck_assert_int_eq(result->kind == PG_DONE, result->message[0] == '\0');
    if (result->rows && pg_rows_count(result->rows) > 0 && pg_bytes(result->rows, 0, 0).length == 8)
        probe->value = pg_int8(result->rows, 0, 0);
    if (probe->repeats > 0) {
        probe->repeats--;
        submit_probe(probe);
    }
}

static inline struct probe *submit(int index, const struct sql_statement *statement, int64_t number, int64_t timeout_ms)
{
    struct probe *probe = &probes[index];
    *probe = (struct probe){.query = {.statement = statement, .timeout_ms = timeout_ms, .on_result = on_result}};
    probe->query.params[0] = pg_param_int8(number);
    submit_probe(probe);
    return probe;
}

static inline const char *conninfo(void)
{
    const char *text = getenv("ISSUING_TEST_DATABASE");
    ck_assert_msg(text != NULL, "ISSUING_TEST_DATABASE is not set");
    return text;
}

static inline void open_pool(const char *extra, struct pg_pool_options options)
{
    char text[1024];
    snprintf(text, sizeof(text), "%s %s", conninfo(), extra);
    options.conninfo = text;
    options.application_name = APPLICATION;
    options.on_state = on_state;
    options.on_error = on_error;
    options.on_ended = on_ended;
    options.context = &loop;
    ck_assert_msg(pg_pool_open(&loop, &options, &pool, &err), "%s", err.message);
    ck_assert_int_eq(states, 0);
    ck_assert(!pg_pool_ready(pool));
}

static inline void open_usual_pool(int connections, int pipeline)
{
    open_pool("", (struct pg_pool_options){.connections = connections, .pipeline = pipeline, .waiting_max = MANY});
    run_until(pg_pool_ready(pool));
    ck_assert(ready);
}

static inline void on_closed(void *context)
{
    ck_assert_ptr_eq(context, &closed);
    closed = true;
    pool = NULL;
}

static inline void close_pool(void)
{
    pg_pool_close(pool, on_closed, &closed);
    ck_assert(!closed);
    run_until(closed);
}

static inline void set_up(void)
{
    err = (struct err){.kind = ERR_NONE};
    memset(probes, 0, sizeof(probes));
    done_count = errors = states = ends = 0;
    inside_submit = ready = closed = false;
    run_until_why = reason;
    reason[0] = last_error[0] = '\0';
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    ck_assert_msg(pg_sync_open(conninfo(), "test_pg_beside", &db, &err), "%s", err.message);
    /* What a test before abandoned may still sleep on the server. */
    ck_assert(pg_sync_exec(
        db, "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = '" APPLICATION "'",
        &err));
}

static inline void tear_down(void)
{
    if (pool)
        close_pool();
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    pg_sync_closep(&db);
}

static inline void execute(const char *text)
{
    ck_assert_msg(pg_sync_exec(db, text, &err), "%s", err.message);
}

static inline int64_t look_up(const char *text)
{
    struct sql_statement statement = {.name = "look_up", .text = text, .shape = SQL_ONE};
    pg_rows_scope struct pg_rows *rows = NULL;
    ck_assert_msg(pg_sync_query(db, &statement, NULL, &rows, &err), "%s", err.message);
    return pg_int8(rows, 0, 0);
}

/* The value of one more query, waited for. */
static inline int64_t value_of(const struct sql_statement *statement, int64_t number)
{
    int before = done_count;
    struct probe *probe = submit(MANY - 1, statement, number, 60000);
    run_until(done_count == before + 1);
    ck_assert_msg(probe->kind == PG_DONE, "%s: %s", probe->sqlstate, probe->message);
    return probe->value;
}

static inline void expect_hundred_values(const struct sql_statement *statement, int64_t factor)
{
    int before = done_count;
    for (int i = 0; i < 100; i++)
        (void)submit(i, statement, i, 60000);
    run_until(done_count == before + 100);
    for (int i = 0; i < 100; i++) {
        ck_assert_int_eq(probes[i].results, 1);
        ck_assert_msg(probes[i].kind == PG_DONE, "%s: %s", probes[i].sqlstate, probes[i].message);
        ck_assert_int_eq(probes[i].value, factor * i);
    }
}

static inline int64_t sessions_of_pool(void)
{
    return look_up("SELECT count(*) FROM pg_stat_activity WHERE application_name = '" APPLICATION "'");
}

static const struct sql_statement wait_for_lock = {.name = "wait_for_lock",
                                                   .text = "SELECT pg_backend_pid()::int8 FROM (SELECT "
                                                           "pg_advisory_xact_lock($1::int8)::text OFFSET 0) AS l",
                                                   .parameters = 1,
                                                   .shape = SQL_ONE};

#define LOCK(number) execute("SELECT pg_advisory_lock(" #number ")")
#define UNLOCK(number) execute("SELECT pg_advisory_unlock(" #number ")")

static inline void add_pool_tests(Suite *suite, TCase *tcase)
{
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    suite_add_tcase(suite, tcase);
}

#endif
