/* The story: with 100,000 PENDING and as many FAILED events, the views of operators read each of them twice, or those
 * of all types to find events that nobody delivers; and a limited count took any events, not the oldest. So the tests
 * count the rows that are read. */
#include "ctl/backlog.h"
#include "tests/db/database.h"
#include "tests/support/suite.h"

#define EVENTS 2000 /* PENDING, as many FAILED, and as many COMPLETED */
#define AROUND 50

static struct pg_sync *owner, *operator, * worker;

static void set_up(void)
{
    owner = database_open(NULL);
    operator= database_open("issuing_operator");
    worker = database_open("issuing_worker");
    database_exec(owner,
                  "TRUNCATE issuing.outbox_events, issuing.routes CASCADE; "
                  "INSERT INTO issuing.routes (event_type, is_ordered, has_lookup, key_lifetime_ms, max_attempts, "
                  "is_signed, worker, seen_at) VALUES ('MAIL', false, false, 1, 1, false, 'w', now()); "
                  "SET session_replication_role = replica; "
                  "INSERT INTO issuing.outbox_events (id, user_id, payload, event_type, status, created_at, "
                  "first_sent_at, completed_at) "
                  "SELECT overlay(issuing.uuid7_least(now() - (9000 - n) * interval '1 s' - interval '1 day')::text "
                  "PLACING lpad(to_hex(s * 10000 + n), 8, '0') FROM 29)::uuid, 'u' || n, '{}', "
                  "CASE WHEN n %% 2 = 0 THEN 'MAIL' ELSE 'CARD_ISSUE' END, "
                  "(ARRAY['PENDING', 'FAILED', 'COMPLETED'])[s], now() - interval '1 day', "
                  "CASE WHEN s = 2 THEN now() - (9000 - n) * interval '1 s' END, now() "
                  "FROM generate_series(%d, 1, -1) n, generate_series(1, 3) s; "
                  "RESET session_replication_role; ANALYZE issuing.outbox_events",
                  EVENTS);
}

static void tear_down(void)
{
    pg_sync_closep(&owner);
    pg_sync_closep(&operator);
    pg_sync_closep(&worker);
}

/* The rows of events that this statement reads. In a table as small as this one the planner would read all of it. */
static int64_t rows_read(struct pg_sync *db, const struct sql_statement *statement, const struct pg_param *params,
                         struct pg_rows **ret_rows)
{
    static const char read[] = "SELECT coalesce(sum(coalesce(idx_tup_fetch, 0) + seq_tup_read), 0)::int8 "
                               "FROM pg_stat_xact_user_tables WHERE relname LIKE 'outbox_events%%'";
    database_run(db, "BEGIN; SET LOCAL enable_seqscan = off");
    int64_t before = database_int(db, read);
    *ret_rows = database_query(db, statement, params);
    int64_t after = database_int(db, read);
    database_run(db, "ROLLBACK");
    return after - before;
}

TEST(each_open_event_is_read_and_counted_once)
{
    struct pg_rows *rows;
    struct backlog_type type;
    int64_t pending = 0;
    const struct pg_param params[] = {pg_param_int8(EVENTS), pg_param_int8(86400000)};
    ck_assert_int_le(rows_read(operator, & sql_operator_open, params, &rows), EVENTS + AROUND);
    for (int row = 0; backlog_next(rows, &row, &type);)
        pending += type.pending;
    ck_assert_int_eq(pending, EVENTS);
    pg_rows_free(rows);
}

TEST(a_limited_count_of_what_failed_has_the_oldest)
{
    struct pg_rows *rows;
    const struct pg_param params[] = {pg_param_int8(10), pg_param_int8(86400000)};
    ck_assert_int_le(rows_read(operator, & sql_operator_failed, params, &rows), EVENTS + AROUND);
    ck_assert_int_eq(backlog_failed(rows), 10);
    int first_s = database_int(owner, "SELECT floor(extract(epoch FROM min(first_sent_at))) FROM issuing.outbox_events "
                                      "WHERE event_type = 'CARD_ISSUE'");
    ck_assert_int_eq(pg_time_us(rows, 0, FAILED_FIRST_SENT) / 1000000, first_s);
    pg_rows_free(rows);
    ck_assert_int_le(rows_read(worker, &sql_outbox_gauges_types, params, &rows), EVENTS + AROUND);
    for (int row = 0; row < pg_rows_count(rows); row++)
        if (strcmp(pg_bytes(rows, row, 0).bytes, "failed") == 0 &&
            strcmp(pg_bytes(rows, row, 1).bytes, "CARD_ISSUE") == 0)
            ck_assert_int_ge(pg_int8(rows, row, 4), INT64_C(8990) * 1000);
    pg_rows_free(rows);
}

/* Nothing was made lately, so nothing is read. */
TEST(the_pace_reads_only_what_was_made_lately)
{
    struct pg_rows *rows;
    const struct pg_param most = pg_param_int8(10); /* so few that a walk from the newest seems cheap */
    ck_assert_int_le(rows_read(operator, & sql_operator_pace, &most, &rows), AROUND);
    pg_rows_free(rows);
}

TESTS_BETWEEN(views, set_up, tear_down)
