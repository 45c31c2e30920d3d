/* The story: the database's clock steps by a year and back. Rows that expired by the step alone stay, and no partition
 * of another year is made: the housekeeping has a clock that moves only by the time between its passes. */
#include "tests/db/housekeeping_calls.h"

#include "tests/support/suite.h"

/* The database's clock jumps ahead by a year, for a moment or for hours: rows that have expired by it alone stay,
 * nothing becomes settled, and no partition of next year is made. */
TEST(a_clock_that_jumps_ahead_drops_and_makes_nothing)
{
    ck_assert_int_eq(passes(&usual), 4);
    add_partition("outbox_events", 420, 410);
    add_partition("idempotency_keys", 420, 410);
    settle("365 days 1 min"); /* all that was settled just before the jump */
    add_partition("outbox_events", 400, 390);
    /* Partitions end a year before the time of the clock. */
    database_run(owner, "DO $$ DECLARE p text; BEGIN FOR p IN SELECT name FROM partitions WHERE to_at > now() AND "
                        "parent <> 'operator_actions' LOOP EXECUTE "
                        "format('DROP TABLE %I', p); DELETE FROM partitions WHERE name = p; END LOOP; END $$");
    add_partition("outbox_events", 366, 305);
    add_partition("rate_limit_log", 366, 364);
    database_run(owner,
                 "SELECT issuing.partition_add('idempotency_keys', now() - interval '365 days 1 h', now() - interval "
                 "'364 days'); INSERT INTO idempotency_keys SELECT gen_random_uuid(), now() - interval '365 days "
                 "2 h', 'u', 'k', ''");
    int64_t before = database_int(owner, "SELECT count(*) FROM partitions");
    set_clock("365 days", "400 days", "365 days");
    for (int i = 0; i < 3; i++) { /* the first pass after the jump, and two more */
        expect_pass("");
        ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM partitions"), before);
    }
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM idempotency_keys_default"), 1);
    /* Three hours of passes: three hours, and no more, have passed. */
    database_run(owner,
                 "UPDATE housekeeping_clock SET clock_at = clock_at + interval '3 h', steady_from = now() - interval "
                 "'3 h'");
    bool has_more = true;
    while (has_more)
        ck_assert_ptr_null(strstr(pass_of(worker, &usual, &has_more), "dropped"));
    /* After a day of passes without a step the clock is believed. */
    database_run(owner, "UPDATE housekeeping_clock SET steady_from = now() - interval '25 h'");
    ck_assert_int_gt(passes(&usual), 2);
    ck_assert_int_eq(partition_count("idempotency_keys"),
                     2); /* the one whose retention was never counted, and a new one */
}

TEST(a_clock_that_was_ahead_leaves_nothing_that_is_in_the_way)
{
    ck_assert_int_eq(passes(&usual), 4);
    /* The clock was a year ahead for a day: there are partitions of next year, and one of now was settled next year. */
    for (int i = 0; i < 3; i++)
        add_partition(i == 0 ? "outbox_events" : i == 1 ? "idempotency_keys" : "rate_limit_log", -365, -375);
    add_partition("rate_limit_log", 9, 8);
    database_run(owner, "UPDATE partitions SET settled_at = now() + interval '365 days' WHERE to_at < now()");
    set_clock("-365 days", "-364 days", "-365 days");
    expect_pass("");
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM partitions WHERE settled_at <= now()"), 1);
    settle("25 h");
    expect_pass("dropped rate_limit_log 0"); /* its retention is counted from when it was settled anew */
    /* The next partitions are made as usual, up to those of next year. */
    database_run(owner,
                 "DO $$ DECLARE p text; BEGIN FOR p IN SELECT name FROM partitions WHERE from_at < now() + interval "
                 "'100 days' AND parent <> 'operator_actions' LOOP EXECUTE format('DROP TABLE %I', p); DELETE FROM "
                 "partitions WHERE name = p; END "
                 "LOOP; END $$");
    expect_pass(""); /* not before passes over five minutes agree about the time */
    set_clock("0 s", "6 min", "0 s");
    ck_assert_int_eq(passes(&usual), 3);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM partitions WHERE from_at < now() + interval '2 min'"),
                     5);
    expect_list_is_true();
}

TEST(the_housekeeping_clock_moves_by_passes_only)
{
    static const char believed[] =
        "SELECT round(extract(epoch FROM now() - clock_at) / 3600)::int FROM housekeeping_clock";
    static const struct {
        const char *passed_ago, *steady_for, *clock_ago;
        int hours_behind;
    } cases[] = {
        {"30 s", "1 h", "30 s", 0},     {"10 h", "20 h", "10 h", 10}, /* a step, or a pause */
        {"30 s", "1 h", "10 h", 10},    {"30 s", "25 h", "10 h", 0},  /* a day without a step */
        {"-10 h", "1 h", "-10 h", -10}, {"-1 s", "1 h", "0 s", 0},
    };
    database_run(owner, "UPDATE housekeeping_clock SET passed_at = NULL, steady_from = NULL, clock_at = NULL");
    ck_assert_int_eq(database_int(owner, "SELECT issuing.retention_now('2001-01-01') = '2001-01-01'"), 1);
    (void)pass(); /* the first one of an installation */
    ck_assert_int_eq(database_int(owner, "%s", believed), 0);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        set_clock(cases[i].passed_ago, cases[i].steady_for, cases[i].clock_ago);
        (void)pass();
        ck_assert_int_eq(database_int(owner, "%s", believed), cases[i].hours_behind);
        ck_assert_int_eq(database_int(owner, "SELECT issuing.retention_now(now()) <= now()"), 1);
        ck_assert_int_eq(database_int(owner, "SELECT now() - passed_at < interval '1 min' FROM housekeeping_clock"), 1);
    }
}

TESTS_BETWEEN(housekeeping_clock, set_up, tear_down)
