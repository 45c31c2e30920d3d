/* The story: rows go from one database into another without a stop in between, and either side may refuse, die or hang.
 * Then neither COPY goes on, a connection that was not lost can still be used, and no message shows a row. Needs a
 * database: its conninfo in ISSUING_TEST_DATABASE. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/pg/pg_sync.h"
#include "tests/support/suite.h"

#define OUT "COPY (SELECT n, repeat('secret', 10) FROM generate_series(1, 20000) AS g (n)) TO STDOUT (FORMAT binary)"
#define IN "COPY copied FROM STDIN (FORMAT binary)"

static struct pg_sync *from, *into;
static struct err err;
static struct pg_copied copied;

static void run(struct pg_sync *db, const char *text)
{
    ck_assert_msg(pg_sync_exec(db, text, &err), "%s", err.message);
}

static void set_up(void)
{
    const char *conninfo = getenv("ISSUING_TEST_DATABASE");
    ck_assert_msg(conninfo != NULL, "ISSUING_TEST_DATABASE is not set");
    err = (struct err){.kind = ERR_NONE};
    copied = (struct pg_copied){.rows = -1};
    ck_assert_msg(pg_sync_open(conninfo, "source", &from, &err), "%s", err.message);
    ck_assert_msg(pg_sync_open(conninfo, "destination", &into, &err), "%s", err.message);
    pg_sync_limit(from, 20000);
    pg_sync_limit(into, 20000);
    run(into, "CREATE TEMPORARY TABLE copied (n int PRIMARY KEY, text text)");
}

static void tear_down(void)
{
    pg_sync_closep(&from);
    pg_sync_closep(&into);
}

static bool copy(const char *out, const char *in, int64_t until_ms)
{
    return pg_sync_copy(from, out, into, in, until_ms, &copied, &err);
}

/* Both connections take the next statement, and no message has shown a row. */
static void check_usable(void)
{
    ck_assert_ptr_null(strstr(err.message, "secret"));
    ck_assert(!pg_sync_is_lost(from) && !pg_sync_is_lost(into));
    run(from, "SELECT 1");
    run(into, "SELECT 1");
}

START_TEST(all_rows_arrive_and_are_counted)
{
    ck_assert_msg(copy(OUT, IN, 0), "%s", err.message);
    ck_assert_int_eq(copied.rows, 20000);
    ck_assert_int_gt(copied.bytes, 20000 * 60);
    check_usable();
    run(into, "DO $$ BEGIN ASSERT (SELECT count(*) = 20000 AND sum(n) = 200010000 FROM copied); END $$");
}
END_TEST

START_TEST(no_row_at_all_is_fine)
{
    ck_assert(copy("COPY (SELECT 1, 'x' WHERE false) TO STDOUT (FORMAT binary)", IN, 0));
    ck_assert_int_eq(copied.rows, 0);
    check_usable();
}
END_TEST

START_TEST(a_destination_that_refuses_a_row_ends_both_and_shows_nothing_of_it)
{
    run(into, "INSERT INTO copied VALUES (19999, 'there')");
    ck_assert(!copy(OUT, IN, 0));
    ck_assert_int_eq(err.kind, ERR_DATABASE);
    ck_assert_ptr_nonnull(strstr(err.message, "the destination"));
    ck_assert_str_eq(err.sqlstate, "23505");
    ck_assert_int_eq(copied.rows, -1);
    check_usable();
    run(into, "DO $$ BEGIN ASSERT (SELECT count(*) = 1 FROM copied); END $$");
}
END_TEST

START_TEST(a_source_that_fails_in_the_middle_leaves_nothing_in_the_destination)
{
    ck_assert(!copy("COPY (SELECT n, (1 / (15000 - n))::text FROM generate_series(1, 20000) AS g (n)) TO STDOUT "
                    "(FORMAT binary)",
                    IN, 0));
    ck_assert_int_eq(err.kind, ERR_DATABASE);
    ck_assert_ptr_nonnull(strstr(err.message, "the source"));
    check_usable();
    run(into, "DO $$ BEGIN ASSERT (SELECT count(*) = 0 FROM copied); END $$");
}
END_TEST

START_TEST(statements_that_are_no_copy_are_refused_on_either_side)
{
    ck_assert(!copy("SELECT 1", IN, 0));
    check_usable();
    ck_assert(!copy(OUT, "SELECT 1", 0));
    check_usable();
    ck_assert(!copy("COPY nothing_of_that_name TO STDOUT", IN, 0));
    check_usable();
    ck_assert(!copy(OUT, "COPY nothing_of_that_name FROM STDIN", 0));
    check_usable();
}
END_TEST

START_TEST(what_is_not_done_in_time_is_ended_on_both_sides)
{
    ck_assert(!copy("COPY (SELECT n, pg_sleep(0.01)::text FROM generate_series(1, 20000) AS g (n)) TO STDOUT "
                    "(FORMAT binary)",
                    IN, clock_mono_ms() + 300));
    ck_assert_int_eq(err.kind, ERR_REFUSED);
    check_usable();
    run(into, "DO $$ BEGIN ASSERT (SELECT count(*) = 0 FROM copied); END $$");
}
END_TEST

START_TEST(a_source_that_is_silent_is_given_up)
{
    pg_sync_limit(from, 200);
    ck_assert(!copy("COPY (SELECT 1, pg_sleep(5)::text) TO STDOUT (FORMAT binary)", IN, 0));
    ck_assert_int_eq(err.kind, ERR_AWAY);
    ck_assert(pg_sync_is_lost(from));
    ck_assert(!pg_sync_is_lost(into));
    run(into, "SELECT 1");
}
END_TEST

START_TEST(a_source_that_dies_leaves_the_destination_usable)
{
    ck_assert(!copy("COPY (SELECT n, CASE WHEN n = 9000 THEN pg_terminate_backend(pg_backend_pid())::text END "
                    "FROM generate_series(1, 20000) AS g (n)) TO STDOUT (FORMAT binary)",
                    IN, 0));
    ck_assert_int_eq(err.kind, ERR_AWAY);
    ck_assert(pg_sync_is_lost(from));
    run(into, "DO $$ BEGIN ASSERT (SELECT count(*) = 0 FROM copied); END $$");
    ck_assert(!copy(OUT, IN, 0));
    ck_assert_int_eq(err.kind, ERR_AWAY);
}
END_TEST

SUITE(pg_sync_copy)
{
    TCase *tests = tcase_create("copies");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_test(tests, all_rows_arrive_and_are_counted);
    tcase_add_test(tests, no_row_at_all_is_fine);
    tcase_add_test(tests, a_destination_that_refuses_a_row_ends_both_and_shows_nothing_of_it);
    tcase_add_test(tests, a_source_that_fails_in_the_middle_leaves_nothing_in_the_destination);
    tcase_add_test(tests, statements_that_are_no_copy_are_refused_on_either_side);
    tcase_add_test(tests, what_is_not_done_in_time_is_ended_on_both_sides);
    tcase_add_test(tests, a_source_that_is_silent_is_given_up);
    tcase_add_test(tests, a_source_that_dies_leaves_the_destination_usable);
    suite_add_tcase(suite, tests);
}
