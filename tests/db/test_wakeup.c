/* The story: the api wakes the workers when a request is recorded, and the workers wake the api when an event ends.
 * Under load there are thousands of reasons a second, and a NOTIFY for each would cost more than the work that it
 * reports; but the NOTIFY for the last reason must not get lost among the others, or a client waits for a poll. Needs a
 * database: its conninfo (keyword=value) in ISSUING_TEST_DATABASE. */
#include <check.h>
#include <stdlib.h>

#include "common/lib/base/clock.h"
#include "common/lib/pg/pg_listen.h"
#include "common/lib/pg/pg_pool.h"
#include "common/lib/pg/wakeup.h"

#include "database.h"
#include "run_until.h"
#include "tests/support/suite.h"

#define APPLICATION "test_wakeup"

static struct pg_pool *pool;
static struct pg_sync *db; /* beside the pool */
static struct pg_listen *listener;
static struct wakeup wakeup;
static struct err err;
static int hints;

static const struct sql_statement notify = {
    .name = "notify", .by_name = true, .text = "SELECT pg_notify('test_wakeup', '')::text", .shape = SQL_ONE};
static const struct sql_statement notify_after_lock = {
    .name = "notify_after_lock",
    .text = "SELECT pg_notify('test_wakeup', '')::text FROM (SELECT pg_advisory_xact_lock_shared(4712) OFFSET 0) AS l",
    .shape = SQL_ONE};

static const struct sql_statement deallocate = {.name = "deallocate", .text = "DEALLOCATE ALL", .shape = SQL_NONE};

static void on_forgotten(struct pg_query *query, const struct pg_query_result *result)
{
    (void)query;
    ck_assert_int_eq(result->kind, PG_DONE);
}

static void on_closed(void *context)
{
    *(bool *)context = true;
}

static void open_pool(int connections)
{
    struct pg_pool_options options = {.conninfo = database_conninfo(),
                                      .application_name = APPLICATION,
                                      .connections = connections,
                                      .pipeline = 4,
                                      .waiting_max = 100};
    ck_assert_msg(pg_pool_open(&loop, &options, &pool, &err), "%s", err.message);
    run_until(pg_pool_ready(pool));
}

static void close_pool(void)
{
    bool is_closed = false;
    pg_pool_close(pool, on_closed, &is_closed);
    run_until(is_closed);
    pool = NULL;
}

static void on_hint(void *context, const char *payload)
{
    (void)payload;
    (void)context;
    hints++;
}

static void open_wakeup(const struct sql_statement *statement)
{
    ck_assert(pg_listen_open(&loop, database_conninfo(), "test_wakeup", on_hint, NULL, &listener, &err));
    run_until(hints == 1); /* the hint that every new connection gives */
    ck_assert(wakeup_open(&wakeup, &loop, pool, statement, &err));
    hints = 0;
}

static void rest(void)
{
    run_until(wakeup_is_idle(&wakeup) && beats_passed(2));
}

/* Notifications come in the order of their commits: after this one, no other is on its way. */
static void expect_hints(int count)
{
    database_run(db, "NOTIFY test_wakeup");
    run_until(hints >= count + 1);
    ck_assert_int_eq(hints, count + 1);
    hints = 0;
}

static void set_up(void)
{
    err = (struct err){.kind = ERR_NONE};
    wakeup = (struct wakeup){0};
    hints = 0;
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    db = database_open(NULL);
}

static void tear_down(void)
{
    bool is_closed = false;
    database_run(db, "SELECT pg_advisory_unlock_all()");
    if (pool)
        close_pool();
    wakeup_close(&wakeup);
    pg_listen_close(listener, on_closed, &is_closed);
    run_until(is_closed);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    pg_sync_closep(&db);
}

TEST(any_number_of_wakeups_become_few_and_the_last_is_not_lost)
{
    open_pool(2);
    open_wakeup(&notify);
    wakeup_send(&wakeup);
    ck_assert_int_eq(pg_pool_in_flight(pool), 1); /* none was sent before, so it goes at once */
    run_until(wakeup_is_idle(&wakeup) && hints == 1);
    for (int round = 0; round < 20; round++) {
        wakeup_send(&wakeup);
        /* Either the first has been sent and one more reports what came after it, or one waits for the end of the
         * gap. */
        int expected = hints + 1 + pg_pool_in_flight(pool);
        for (int i = 0; i < 1000; i++)
            wakeup_send(&wakeup);
        ck_assert_int_le(pg_pool_in_flight(pool), 1);
        run_until(wakeup_is_idle(&wakeup) && hints >= expected);
        if (round % 2 == 0)
            run_until(beats_passed(2));
        ck_assert_int_eq(hints, expected);
    }
}

/* However fast one follows the other. */
TEST(wakeups_are_a_gap_apart)
{
    open_pool(1);
    open_wakeup(&notify);
    int64_t from_ms = clock_mono_ms();
    for (int i = 0; i < 100; i++) {
        wakeup_send(&wakeup);
        run_until(wakeup_is_idle(&wakeup));
    }
    int64_t took_ms = clock_mono_ms() - from_ms;
    run_until(hints > 0);
    ck_assert_int_le(hints, took_ms / WAKEUP_GAP_MS + 2);
}

TEST(what_happens_while_a_wakeup_hangs_gets_one_more)
{
    open_pool(3);
    open_wakeup(&notify_after_lock);
    database_run(db, "SELECT pg_advisory_lock(4712)");
    for (int i = 0; i < 3; i++) {
        wakeup_send(&wakeup);
        run_until(beats_passed(2));
        ck_assert_int_eq(pg_pool_in_flight(pool), 1);
    }
    database_run(db, "SELECT pg_advisory_unlock(4712)");
    rest();
    ck_assert_int_eq(pg_pool_in_flight(pool), 0);
    expect_hints(2);
}

TEST(a_statement_name_that_is_gone_costs_no_wakeup)
{
    open_pool(1);
    open_wakeup(&notify);
    wakeup_send(&wakeup);
    rest();
    expect_hints(1);
    struct pg_query forget = {.statement = &deallocate, .timeout_ms = 60000, .on_result = on_forgotten};
    pg_pool_submit(pool, &forget); /* on the same connection, of which there is only one */
    wakeup_send(&wakeup);
    rest();
    expect_hints(1);
}

TEST(a_wakeup_is_idle_when_its_pool_is_gone)
{
    open_pool(1);
    open_wakeup(&notify_after_lock);
    database_run(db, "SELECT pg_advisory_lock(4712)");
    wakeup_send(&wakeup);
    run_until(database_int(db, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted") == 1);
    ck_assert(!wakeup_is_idle(&wakeup));
    close_pool();
    ck_assert(wakeup_is_idle(&wakeup));
}

TESTS_BETWEEN(wakeup, set_up, tear_down)
