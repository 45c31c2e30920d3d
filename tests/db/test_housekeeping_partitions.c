/* The story: partitions are made before their time comes, one a pass and without a gap. Rows that are already in
 * `_default` prevent no partition, whatever their number, and no session waits while they are read. */
#include "tests/db/housekeeping_calls.h"

#include <stdlib.h>
#include <string.h>

#include "common/lib/base/log.h"
#include "statements.h"
#include "tests/support/suite.h"

TEST(partitions_are_made_ahead_and_without_a_gap)
{
    bool has_more;
    struct retention longer = usual;
    ck_assert_str_eq(pass_of(worker, &usual, &has_more), "created outbox_events 0");
    ck_assert(has_more);
    ck_assert_int_eq(passes(&usual), 3); /* one partition a pass */
    expect_pass("");
    ck_assert_int_eq(partition_count("outbox_events"), 1);
    ck_assert_int_eq(partition_count("outbox_attempts"), 1);
    ck_assert_int_eq(partition_count("idempotency_keys"), 1);
    ck_assert_int_eq(partition_count("rate_limit_log"), 1);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM partitions WHERE to_at < now() + CASE WHEN parent LIKE "
                                         "'outbox%%' THEN interval '15 days' ELSE interval '1 day' END"),
                     0);
    for (int i = 1; i <= 3;
         i++) { /* the last partitions end too early: here because longer retentions need more of them */
        longer.keys_ms *= 3;
        longer.limits_ms *= 3;
        longer.events_ms *= 3;
        ck_assert_int_eq(passes(&longer), 3);
        ck_assert_int_eq(partition_count("outbox_events"), 1 + i);
    }
    ck_assert_int_eq(passes(&longer), 0);
    ck_assert_int_eq(gaps(), 0);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM partitions"), 17);
    expect_list_is_true();
}

/* Its digits alone would pass as a card number, and a log would not say which partition could not be dropped. */
TEST(a_name_of_a_partition_is_whole_in_every_log)
{
    database_run(owner, "SELECT partition_add('rate_limit_log', '2020-01-01 00:00:00+00', '2020-01-02 00:00:00+00')");
    char *name = database_text(owner, "SELECT name FROM partitions"), *logged = strdup(name);
    log_redact(logged);
    ck_assert_str_eq(logged, name);
    log_redact_strictly(logged);
    ck_assert_str_eq(logged, name);
    free(logged);
    free(name);
}

TEST(two_workers_never_make_the_same_partition)
{
    bool has_more;
    database_run(other, "BEGIN");
    ck_assert_str_eq(pass_of(other, &usual, &has_more), "created outbox_events 0");
    ck_assert_str_eq(pass_of(worker, &usual, &has_more), "busy all 0; busy - 0");
    ck_assert(!has_more);
    database_run(other, "ROLLBACK"); /* it died */
    expect_pass("created outbox_events 0");
    database_run(other, "BEGIN");
    ck_assert_str_eq(pass_of(other, &usual, &has_more), "created idempotency_keys 0");
    ck_assert_str_eq(pass_of(worker, &usual, &has_more), "busy all 0; busy - 0");
    database_run(other, "COMMIT");
    expect_pass("created rate_limit_log 0");
    expect_pass("created operator_actions 0");
    expect_pass("");
    expect_list_is_true();
}

/* A worker frozen in the middle of a pass, or a session of the owner: the passes of all others do nothing. */
TEST(a_lock_that_somebody_keeps_is_a_failure_after_three_passes)
{
    bool has_more;
    char text[200];
    database_run(owner, "BEGIN; SELECT issuing.take_job_lock('housekeeping')");
    ck_assert_str_eq(pass_of(worker, &usual, &has_more), "busy all 0; busy - 0");
    database_run(owner, "COMMIT");
    set_clock("91 s", "1 h", "91 s");
    database_run(owner, "BEGIN; SELECT issuing.take_job_lock('housekeeping')");
    ck_assert_str_eq(pass_of(worker, &usual, &has_more), "failed all 0; busy - 0");
    snprintf(text, sizeof(text),
             "SELECT (detail LIKE '%%process ' || %lld || ', role %%')::text FROM issuing.keep_rows('1 d', '1 d', "
             "'90 d')",
             (long long)database_int(owner, "SELECT pg_backend_pid()"));
    char *names_it = database_text(worker, text);
    ck_assert_str_eq(names_it, "true");
    free(names_it);
    database_run(owner, "ROLLBACK");
    expect_pass("created outbox_events 0");
}

/* Advisory locks belong to everybody who may connect. */
TEST(no_advisory_lock_of_another_role_stops_the_housekeeping)
{
    database_run(other, "SELECT pg_advisory_lock(4711, n) FROM generate_series(1, 10) n");
    expect_pass("created outbox_events 0");
}

/* `11:00 IST` is India's time when it is written and Israel's when it is read. */
TEST(no_setting_of_a_session_moves_a_partition)
{
    static const char *const styles[] = {"SQL, DMY", "German", "Postgres, MDY"};
    for (size_t i = 0; i < ARRAY_SIZE(styles); i++) {
        database_exec(worker, "SET datestyle = '%s'; SET timezone = 'Asia/Kolkata'; SET intervalstyle = 'sql_standard'",
                      styles[i]);
        ck_assert_int_eq(passes(&(struct retention){
                             .keys_ms = DAY_MS << i, .limits_ms = DAY_MS << i, .events_ms = (90 * DAY_MS) << i}) > 0,
                         1);
    }
    ck_assert_int_eq(gaps(), 0);
    ck_assert_int_eq(database_int(owner,
                                  "SELECT count(*) FROM partitions p JOIN pg_class c ON c.relname = p.name "
                                  "WHERE p.parent IN ('idempotency_keys', 'rate_limit_log') "
                                  "AND substring(pg_get_expr(c.relpartbound, c.oid) FROM $$FROM \\('(.*)'\\) TO$$)"
                                  "::timestamptz <> p.from_at"),
                     0);
    ck_assert_int_ge(partition_count("rate_limit_log"), 2);
    database_run(worker,
                 "RESET ROLE; SELECT issuing.default_promise('rate_limit_log_default', '2030-01-01 00:00:00+00', "
                 "'2030-01-02 00:00:00+00')");
    expect_text("SELECT (pg_get_constraintdef(c.oid) LIKE '%2030-01-01 00:00:00+00%')::text FROM pg_constraint c "
                "WHERE c.conname = 'default_promise'",
                "true");
    database_run(owner, "ALTER TABLE rate_limit_log_default DROP CONSTRAINT default_promise");
}

TEST(after_a_long_pause_what_was_written_meanwhile_is_not_in_the_way)
{
    (void)add_event("of-now", 0, "PENDING", "0 s");
    (void)add_event("of-yesterday", 1, "COMPLETED", "1 h");
    database_run(owner, "INSERT INTO rate_limit_log VALUES (now(), gen_random_uuid(), true, 'of-now')");
    ck_assert_int_eq(passes(&usual), 4);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM partitions WHERE from_at < now()"), 0);
    expect_list_is_true();
    expect_text("SELECT string_agg(user_id, ' ' ORDER BY user_id) FROM outbox_events_default", "of-now of-yesterday");
    expect_verdict("of-now", "replayed");
    expect_verdict("of-yesterday", "replayed");
    expect_verdict("somebody-new", "accepted");
}

TEST(an_id_of_another_kind_is_cut_around)
{
    /* Three ids with times in the future, two of them close together, for which there is only `_default`. */
    database_run(owner, "INSERT INTO outbox_events (id, user_id, payload) "
                        "SELECT issuing.uuid7_least(now() + d), 'v4', '{}' FROM unnest(ARRAY[interval '5 days', "
                        "'5 days 10 minutes', '9 days']) AS d");
    (void)passes(&usual);
    ck_assert_int_ge(database_int(owner, "SELECT count(*) FROM partitions WHERE parent = 'outbox_events'"), 3);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM partitions p JOIN outbox_events_default e "
                                         "ON p.parent = 'outbox_events' AND issuing.uuid7_time(e.id) >= p.from_at "
                                         "AND issuing.uuid7_time(e.id) < p.to_at"),
                     0);
    ck_assert_int_eq(database_int(owner, "SELECT max(to_at) >= now() + interval '15 days' FROM partitions "
                                         "WHERE parent = 'outbox_events'"),
                     1);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM outbox_events WHERE user_id = 'v4'"), 3);
}

TEST(a_partition_that_cannot_be_made_at_once_is_made_later)
{
    database_run(other, "BEGIN; SELECT count(*) FROM outbox_events");
    expect_pass("failed outbox_events 0; created idempotency_keys 0");
    ck_assert_int_eq(partition_count("outbox_events") + partition_count("outbox_attempts"), 0);
    expect_list_is_true();
    database_run(other, "ROLLBACK");
    expect_pass("created outbox_events 0");
    expect_list_is_true();
}

static int64_t rest_reads(void)
{
    return database_int(worker, "SELECT pg_stat_get_xact_numscans('outbox_events_default'::regclass) + "
                                "pg_stat_get_xact_numscans('outbox_attempts_default'::regclass)");
}

/* The number of times that the call reads all of a `_default` of events. The transaction stays open, because the counts
 * exist only within it. */
static int64_t whole_reads(const struct sql_statement *call)
{
    struct pg_param params[] = {pg_param_int8(usual.keys_ms), pg_param_int8(usual.limits_ms),
                                pg_param_int8(usual.events_ms), pg_param_int8(HOUR_MS)};
    database_run(worker, "BEGIN");
    int64_t before = rest_reads();
    pg_rows_free(database_query(worker, call, params));
    return rest_reads() - before;
}

/* A `_default` that is too large to be read under a lock. An autovacuum of it would hold the lock that a plan takes,
 * and the plan would be postponed. */
static void fill_rest(void)
{
    database_run(owner, "ALTER TABLE outbox_events_default SET (autovacuum_enabled = false)");
    database_run(owner, "INSERT INTO outbox_events (user_id, payload, status, id) SELECT 'v4', '{}', 'COMPLETED', "
                        "('f' || substr(gen_random_uuid()::text, 2))::uuid FROM generate_series(1, 100000)");
}

/* A service with ids of its own filled `_default`. A new partition beside it is announced, then `_default` is checked
 * under a lock that no other session waits for, and the ATTACH, which holds the lock that every session waits for,
 * reads nothing. */
TEST(a_large_rest_is_not_read_under_the_lock_that_all_wait_for)
{
    bool has_more;
    fill_rest();
    ck_assert_int_gt(database_int(owner, "SELECT pg_relation_size('outbox_events_default') / 1024"), 8192);
    ck_assert_int_eq(whole_reads(&sql_run_housekeeping), 0);
    database_run(worker, "COMMIT");
    ck_assert_int_eq(partition_count("outbox_events"), 0);
    ck_assert_int_eq(
        database_int(owner, "SELECT count(*) FROM partition_plans WHERE from_at > now() + interval '1 day'"), 1);
    (void)add_event("meanwhile", 0, "PENDING", "0 s"); /* rows of now are not in its range */
    ck_assert_int_eq(whole_reads(&sql_check_default_partitions), 2);
    ck_assert_int_eq(database_int(owner,
                                  "SELECT count(*) FROM pg_locks WHERE relation = 'outbox_events_default'::regclass "
                                  "AND mode IN ('AccessExclusiveLock', 'ExclusiveLock', 'ShareRowExclusiveLock', "
                                  "'ShareLock')"),
                     0);
    database_run(other, "BEGIN; SELECT count(*) FROM outbox_events; UPDATE outbox_events SET last_error = 'x' WHERE "
                        "user_id = 'meanwhile'; ROLLBACK"); /* during the check */
    database_run(worker, "COMMIT");
    ck_assert_int_eq(whole_reads(&sql_run_housekeeping), 0);
    database_run(worker, "COMMIT");
    ck_assert_int_eq(partition_count("outbox_events"), 1);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM pg_constraint WHERE conname = 'default_promise'"), 0);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM partition_plans"), 0);
    ck_assert_str_eq(pass_of(worker, &usual, &has_more), "created idempotency_keys 0");
    expect_list_is_true();
}

/* A plan that is never completed would refuse rows when its time comes. */
TEST(a_plan_that_is_not_done_in_time_is_taken_back)
{
    fill_rest();
    static const char *const late[] = {"planned_at = planned_at - interval '11 min'",
                                       "from_at = now() + interval '1 min'", "planned_at = now() + interval '1 h'"};
    for (size_t i = 0; i < ARRAY_SIZE(late); i++) {
        struct pg_param params[] = {pg_param_int8(usual.keys_ms), pg_param_int8(usual.limits_ms),
                                    pg_param_int8(usual.events_ms), pg_param_int8(HOUR_MS)};
        pg_rows_free(database_query(worker, &sql_run_housekeeping, params));
        ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM pg_constraint WHERE conname = 'default_promise'"),
                         2);
        database_exec(owner, "UPDATE partition_plans SET %s", late[i]);
        database_run(other,
                     "BEGIN; SELECT count(*) FROM outbox_events"); /* it can be taken back, but nothing planned */
        database_run(other, "COMMIT");
        struct pg_rows *rows = database_query(worker, &sql_run_housekeeping, params);
        ck_assert_str_eq(pg_bytes(rows, 0, 0).bytes, "failed");
        pg_rows_free(rows);
        ck_assert_int_eq(
            database_int(owner, "SELECT count(*) FROM partition_plans WHERE planned_at > now() - interval '1 min' AND "
                                "planned_at <= now() AND from_at > now() + interval '2 min'"),
            1); /* and is planned anew */
        database_run(owner,
                     "DELETE FROM partition_plans; ALTER TABLE outbox_events_default DROP CONSTRAINT default_promise; "
                     "ALTER TABLE outbox_attempts_default DROP CONSTRAINT default_promise");
    }
}

/* A row of the range that was inserted between the choice and the constraint: the check finds it, this plan is
 * removed, and the next one avoids the row. */
TEST(a_row_in_the_way_of_a_plan_is_gone_around)
{
    fill_rest();
    struct pg_param params[] = {pg_param_int8(usual.keys_ms), pg_param_int8(usual.limits_ms),
                                pg_param_int8(usual.events_ms), pg_param_int8(HOUR_MS)};
    pg_rows_free(database_query(worker, &sql_run_housekeeping, params));
    database_run(
        owner, "ALTER TABLE outbox_events_default DROP CONSTRAINT default_promise; INSERT INTO outbox_events (user_id, "
               "payload, id) VALUES ('v4', '{}', issuing.uuid7_least(now() + interval '5 days')); "
               "SELECT issuing.default_promise('outbox_events_default', from_at, to_at) FROM partition_plans");
    struct pg_rows *rows = database_query(worker, &sql_check_default_partitions, NULL);
    ck_assert_str_eq(pg_bytes(rows, 0, 0).bytes, "failed");
    pg_rows_free(rows);
    ck_assert_int_ge(passes(&usual), 4);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM partition_plans"), 0);
    ck_assert_int_ge(partition_count("outbox_events"), 2);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM pg_constraint WHERE conname = 'default_promise'"), 0);
}

/* An attacker controls a worker: a partition of a thousand years would never settle, and nothing in it would ever
 * leave. */
TEST(no_caller_makes_a_partition_longer_than_a_year)
{
    bool has_more;
    database_run(worker, "SELECT issuing.keep_rows('5000 years', '5000 years', '5000 years'); "
                         "SELECT issuing.run_housekeeping('5000 years', '5000 years', '5000 years', '5000 years'); "
                         "SELECT issuing.run_housekeeping('5000 years', '5000 years', '5000 years', '5000 years'); "
                         "SELECT issuing.run_housekeeping('5000 years', '5000 years', '5000 years', '5000 years'); "
                         "SELECT issuing.run_housekeeping('5000 years', '5000 years', '5000 years', '5000 years')");
    (void)pass_of(worker, &usual, &has_more);
    ck_assert_int_ge(partition_count("outbox_events"), 1);
    ck_assert_int_ge(partition_count("idempotency_keys"), 1);
    ck_assert_int_ge(partition_count("rate_limit_log"), 1);
    ck_assert_int_eq(
        database_int(owner, "SELECT count(*) FROM partitions WHERE to_at - from_at > interval '366 days' OR to_at > "
                            "now() + interval '800 days'"),
        0);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM retentions WHERE kept > interval '36600 days'"), 0);
    database_run(owner, "SELECT issuing.set_retention('keys', '1 d'), issuing.set_retention('limits', '1 d'), "
                        "issuing.set_retention('events', '90 d')");
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM retentions WHERE kept > interval '400 days'"), 0);
}

TESTS_BETWEEN(housekeeping_partitions, set_up, tear_down)
