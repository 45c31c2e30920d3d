/* The story: an idle worker sends one statement a poll, which says what there is to do. What it does not name waits
 * until somebody says so, perhaps for ever; so it names everything that one of the statements would take. */
#include "tests/db/database.h"

#include "common/lib/base/buf.h"
#include "common/lib/pg/pg_param.h"
#include "tests/support/suite.h"

static struct pg_sync *owner, *worker;

static void set_up(void)
{
    owner = database_open(NULL);
    worker = database_open("issuing_worker");
    database_run(owner, "TRUNCATE outbox_events, outbox_attempts, marks, end_notifications, statistics_changes, "
                        "issuer_checks, issuer_listings, listed_cards");
}

static void tear_down(void)
{
    database_run(owner, "TRUNCATE outbox_events, marks, end_notifications, statistics_changes, issuer_checks");
    pg_sync_closep(&worker);
    pg_sync_closep(&owner);
}

/* The names, each with a comma behind it; `!`: somebody has asked something. */
static const char *waits(void)
{
    static const char *const types[] = {"CARD_ISSUE", "CARD_REQUEST_ENDED", "ORDER"};
    static char names[200];
    struct buf bytes;
    struct pg_array array;
    buf_init(&bytes, 200);
    pg_array_start(&array, &bytes, PG_TEXT);
    for (size_t i = 0; i < ARRAY_SIZE(types); i++)
        pg_array_add_string(&array, types[i]);
    struct pg_param params[] = {pg_array_param(&array)};
    struct pg_rows *rows = database_query(worker, &sql_what_waits, params);
    int last = pg_rows_count(rows) - 1;
    ck_assert_int_ge(last, 0);
    ck_assert(!pg_is_null(rows, last, 1) && !pg_is_null(rows, last, 2));
    names[0] = '\0';
    for (int row = 0; row < last; row++) {
        struct slice name = pg_bytes(rows, row, 0);
        snprintf(names + strlen(names), sizeof(names) - strlen(names), "%.*s,", (int)name.length, name.bytes);
    }
    if (pg_bool(rows, last, 3))
        snprintf(names + strlen(names), sizeof(names) - strlen(names), "!");
    pg_rows_free(rows);
    buf_done(&bytes);
    return names;
}

static void add_event(const char *type, const char *due_at)
{
    database_exec(owner,
                  "INSERT INTO outbox_events (user_id, payload, event_type, next_attempt_at) VALUES ('w', "
                  "'{\"kind\":\"new\"}', '%s', %s)",
                  type, due_at);
}

TEST(nothing_waits_in_an_empty_database)
{
    ck_assert_str_eq(waits(), "");
}

TEST(an_event_that_is_due_waits_however_old_and_a_later_one_does_not)
{
    add_event("CARD_ISSUE", "now() + interval '1 hour'");
    add_event("OTHER", "now()");
    ck_assert_str_eq(waits(), "");
    add_event("ORDER", "'-infinity'");
    ck_assert_str_eq(waits(), "ORDER,");
    add_event("CARD_ISSUE", "now()");
    database_run(owner, "UPDATE outbox_events SET lost_count = 3 WHERE event_type = 'CARD_ISSUE'");
    ck_assert_str_eq(waits(), "CARD_ISSUE,ORDER,");
}

TEST(a_lease_waits_when_it_has_run_out)
{
    add_event("CARD_ISSUE", "now() - interval '1 hour'");
    database_run(owner, "UPDATE outbox_events SET status = 'PROCESSING', retry_count = 1, lease_token = "
                        "gen_random_uuid(), lease_until = now() + interval '1 hour'");
    ck_assert_str_eq(waits(), "");
    database_run(owner, "UPDATE outbox_events SET lease_until = now() - interval '1 ms'");
    ck_assert_str_eq(waits(), "CARD_ISSUE,");
}

TEST(an_end_that_is_to_be_told_waits)
{
    database_run(owner, "INSERT INTO end_notifications (ended_at, ids) VALUES (now(), ARRAY[gen_random_uuid()])");
    ck_assert_str_eq(waits(), "CARD_REQUEST_ENDED,");
}

static void add_mark(const char *due_at, const char *set_at)
{
    database_exec(owner,
                  "INSERT INTO marks (event_id, deadline_at, due_at, due_set_at, action, actor) VALUES "
                  "(gen_random_uuid(), now() + interval '1 day', %s, %s, 'look', 'test')",
                  due_at, set_at);
}

TEST(a_mark_waits_when_it_is_due_or_was_set_by_a_clock_that_was_ahead)
{
    add_mark("now() + interval '1 hour'", "now()");
    ck_assert_str_eq(waits(), "");
    add_mark("now() + interval '3 hours'", "now() + interval '2 hours'");
    ck_assert_str_eq(waits(), "marks,");
    database_run(owner, "TRUNCATE marks");
    add_mark("now()", "now()");
    ck_assert_str_eq(waits(), "marks,");
}

TEST(a_change_of_the_statistics_waits)
{
    database_run(owner, "INSERT INTO statistics_changes (ended_at, event_type, status, reason_code, count) VALUES "
                        "(now(), 'CARD_ISSUE', 'COMPLETED', '', 1)");
    ck_assert_str_eq(waits(), "changes,");
}

TEST(what_an_operator_asks_waits)
{
    database_run(owner, "INSERT INTO issuer_listings (since, wanted_until) VALUES (now(), now())");
    ck_assert_str_eq(waits(), "");
    database_run(owner, "UPDATE issuer_listings SET wanted_until = now() + interval '1 hour'");
    ck_assert_str_eq(waits(), "!");
    database_run(owner, "TRUNCATE issuer_listings, listed_cards");
    database_run(owner, "INSERT INTO issuer_checks (target, deadline_at, actor) VALUES ('issuer', now(), 'test')");
    ck_assert_str_eq(waits(), "!");
}

TESTS_BETWEEN(waiting, set_up, tear_down)
