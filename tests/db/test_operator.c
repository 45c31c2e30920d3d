/* The story: two operators, a worker and a client's card number. An operator's statement may act on a row once, in the
 * state it was chosen in, together with its audit row, and never on one that a request for may have left; and the
 * operator's role cannot read what it should not.
 * Needs a migrated database: its conninfo (keyword=value) in ISSUING_TEST_DATABASE, as a superuser; the role
 * issuing_operator may log in. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/pg_sync.h"
#include "ctl/event.h"
#include "ctl/filter.h"
#include "migrations.h"
#include "statements.h"

static struct pg_sync *owner, *operator; /* superuser; issuing_operator */
static struct err err;
static struct uuid id;

static void set_up(void)
{
    const char *conninfo = getenv("ISSUING_TEST_DATABASE");
    char text[1000];
    ck_assert_msg(conninfo != NULL, "ISSUING_TEST_DATABASE is not set");
    ck_assert_int_lt(snprintf(text, sizeof(text), "%s user=issuing_operator", conninfo), (int)sizeof(text));
    ck_assert_msg(pg_sync_open(conninfo, "test_operator", &owner, &err), "%s", err.message);
    ck_assert_msg(pg_sync_open(text, "test_operator", &operator, & err), "%s", err.message);
    ck_assert_msg(
        pg_sync_exec(owner, "TRUNCATE outbox_events, cards, card_reissues, outbox_attempts, operator_actions", &err),
        "%s", err.message);
    id = uuid7_make();
}

static void tear_down(void)
{
    pg_sync_closep(&owner);
    pg_sync_closep(&operator);
}

static void change(const char *text)
{
    ck_assert_msg(pg_sync_exec(owner, text, &err), "%s: %s", text, err.message);
}

/* One number out of the database. */
static int64_t number(const char *text)
{
    const struct sql_statement statement = {.name = "number", .text = text, .shape = SQL_ONE};
    pg_rows_scope struct pg_rows *rows = NULL;
    ck_assert_msg(pg_sync_ask(owner, &statement, NULL, &rows, &err), "%s", err.message);
    return pg_int8(rows, 0, 0);
}

static void insert(const char *columns, const char *values)
{
    char text[1000], id_text[UUID_TEXT_SIZE];
    uuid_format(&id, id_text);
    snprintf(text, sizeof(text),
             "INSERT INTO outbox_events (id, user_id, payload, %s) VALUES ('%s', 'alice', '{\"kind\": \"new\"}', %s)",
             columns, id_text, values);
    change(text);
}

static void insert_failed(void)
{
    insert("status, retry_count, reason_code, reason_detail, last_error, first_sent_at, completed_at, deferred_since",
           "'FAILED', 10, 'attempts_exhausted', 'sorry', 'issue: issuer_http_503', now() - interval '1 hour', now(), "
           "now()");
}

/* Rows that the replay changed: 0 or 1. */
static int replay(struct pg_sync *db, int64_t seen_us, struct event *ret_event)
{
    const struct pg_param params[] = {pg_param_uuid(&id), seen_us ? pg_param_int8(seen_us) : pg_param_null(),
                                      pg_param_text("olga", 4), pg_param_text("issuer is back", 14)};
    pg_rows_scope struct pg_rows *rows = NULL;
    ck_assert_msg(pg_sync_ask(db, &sql_operator_replay, params, &rows, &err), "%s", err.message);
    if (pg_rows_count(rows) == 1 && ret_event)
        ck_assert_msg(event_read(rows, 0, ret_event, &err), "%s", err.message);
    return pg_rows_count(rows);
}

static int cancel(struct pg_sync *db)
{
    const struct pg_param params[] = {pg_param_uuid(&id), pg_param_text("olga", 4), pg_param_text("asked for", 9),
                                      pg_param_text("Gone.", 5)};
    pg_rows_scope struct pg_rows *rows = NULL;
    ck_assert_msg(pg_sync_ask(db, &sql_operator_cancel, params, &rows, &err), "%s", err.message);
    return pg_rows_count(rows);
}

START_TEST(a_replay_starts_the_tries_again_and_keeps_the_age_of_the_issuer_key)
{
    struct event event;
    insert_failed();
    ck_assert_int_eq(replay(operator, 0, &event), 1);
    ck_assert_int_eq(event.status, OUTBOX_PENDING);
    ck_assert_int_eq(event.retry_count, 0);
    ck_assert(event.outcome_unknown);
    ck_assert_ptr_null(event.reason_code);
    ck_assert_int_eq(event.completed_us, 0);
    ck_assert_int_eq(event.deferred_since_us, 0);
    ck_assert_int_eq(event.now_us - event.first_sent_us > INT64_C(3599) * 1000000, 1);
    ck_assert_int_eq(number("SELECT count(*) FROM outbox_events WHERE next_attempt_at <= clock_timestamp()"), 1);
}
END_TEST

START_TEST(a_replay_leaves_who_why_before_and_after)
{
    insert_failed();
    ck_assert_int_eq(replay(operator, 0, NULL), 1);
    ck_assert_int_eq(number("SELECT count(*) FROM operator_actions"), 1);
    ck_assert_int_eq(number("SELECT count(*) FROM operator_actions o JOIN outbox_events e ON e.id = o.event_id"
                            " WHERE actor = 'olga' AND action = 'replay' AND reason = 'issuer is back' AND before ->> "
                            "'status' = 'FAILED'"
                            " AND before ->> 'reason_code' = 'attempts_exhausted' AND before ->> 'retry_count' = '10'"
                            " AND after ->> 'status' = 'PENDING' AND after ->> 'retry_count' = '0'"),
                     1);
}
END_TEST

START_TEST(only_a_failed_event_is_replayed)
{
    static const char *const others[] = {"'PENDING', NULL, NULL", "'COMPLETED', NULL, NULL", "'REJECTED', NULL, NULL",
                                         "'PROCESSING', gen_random_uuid(), now()"};
    for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
        id = uuid7_make();
        insert("status, lease_token, lease_until", others[i]);
        ck_assert_msg(replay(operator, 0, NULL) == 0, "%s was replayed", others[i]);
    }
    ck_assert_int_eq(number("SELECT count(*) FROM operator_actions"), 0);
}
END_TEST

START_TEST(an_event_that_failed_again_after_it_was_chosen_is_left_alone)
{
    insert_failed();
    int64_t seen_us = number("SELECT (extract(epoch FROM updated_at) * 1000000)::int8 FROM outbox_events");
    ck_assert_int_eq(replay(operator, seen_us, NULL), 1);
    /* a worker was quick */
    change("UPDATE outbox_events SET status = 'FAILED', reason_code = 'attempts_exhausted', updated_at = "
           "clock_timestamp()");
    ck_assert_int_eq(replay(operator, seen_us, NULL), 0);
    ck_assert_int_eq(number("SELECT count(*) FROM operator_actions"), 1);
    ck_assert_int_eq(replay(operator, 0, NULL), 1);
}
END_TEST

static int page(const struct filter *filter, int64_t horizon_us, const struct uuid *after, struct uuid *ret_first)
{
    struct pg_param params[FILTER_PARAMS + 3];
    pg_rows_scope struct pg_rows *rows = NULL;
    filter_params(filter, params);
    params[FILTER_PARAMS] = pg_param_int8(horizon_us);
    params[FILTER_PARAMS + 1] = after ? pg_param_uuid(after) : pg_param_null();
    params[FILTER_PARAMS + 2] = pg_param_int8(10);
    ck_assert_msg(pg_sync_ask(operator, & sql_operator_replay_page, params, &rows, &err), "%s", err.message);
    if (pg_rows_count(rows) > 0)
        *ret_first = pg_uuid(rows, 0, 0);
    return pg_rows_count(rows);
}

START_TEST(a_bulk_replay_walks_oldest_first_and_stops_at_its_horizon)
{
    struct uuid first = id, second, found;
    const struct filter all = {0}, none = {.user = "bob"},
                        by_code = {.code = "attempts_exhausted", .since_us = 1000000, .since = "1s"};
    insert_failed();
    second = id = uuid7_make();
    insert_failed();
    int64_t horizon_us = number("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::int8");
    id = uuid7_make();
    insert_failed(); /* news */
    ck_assert_int_eq(page(&all, horizon_us, NULL, &found), 2);
    ck_assert(uuid_equal(&found, &first));
    ck_assert_int_eq(page(&all, horizon_us, &first, &found), 1);
    ck_assert(uuid_equal(&found, &second));
    ck_assert_int_eq(page(&all, horizon_us, &second, &found), 0);
    ck_assert_int_eq(page(&none, horizon_us, NULL, &found), 0);
    change("UPDATE outbox_events SET created_at = now() - interval '1 hour', updated_at = now() - interval '1 hour'");
    ck_assert_int_eq(page(&all, horizon_us, NULL, &found), 3);
    ck_assert_int_eq(page(&by_code, horizon_us, NULL, &found), 0);
}
END_TEST

START_TEST(cancel_ends_what_was_never_sent)
{
    insert("next_attempt_at", "now()");
    ck_assert_int_eq(cancel(operator), 1);
    ck_assert_int_eq(number("SELECT count(*) FROM outbox_events WHERE status = 'REJECTED' AND reason_code = 'cancelled'"
                            " AND reason_detail = 'Gone.' AND completed_at IS NOT NULL"),
                     1);
    ck_assert_int_eq(number("SELECT count(*) FROM operator_actions WHERE action = 'cancel' AND actor = 'olga' AND "
                            "before ->> 'status' = 'PENDING'"),
                     1);
    ck_assert_int_eq(cancel(operator), 0);
    ck_assert_int_eq(number("SELECT count(*) FROM operator_actions"), 1);
}
END_TEST

START_TEST(cancel_refuses_what_may_have_been_sent)
{
    insert("first_sent_at", "now()");
    ck_assert_int_eq(cancel(operator), 0);
    change("UPDATE outbox_events SET first_sent_at = NULL, status = 'PROCESSING', lease_token = gen_random_uuid(), "
           "lease_until = now()");
    ck_assert_int_eq(cancel(operator), 0);
    change("UPDATE outbox_events SET status = 'PENDING', lease_token = NULL, lease_until = NULL");
    change("INSERT INTO cards (id, request_id, exp_month, exp_year, user_id, issuer_card_id, last4)"
           " SELECT gen_random_uuid(), id, 1, 2030, user_id, 'ic', '4242' FROM outbox_events");
    ck_assert_int_eq(cancel(operator), 0);
    ck_assert_int_eq(number("SELECT count(*) FROM operator_actions"), 0);
    change("DELETE FROM cards");
    ck_assert_int_eq(cancel(operator), 1);
}
END_TEST

START_TEST(the_operator_sees_the_card_and_never_its_number)
{
    static const struct sql_statement number_record = {
        .name = "number_record", .text = "SELECT number_record FROM cards", .shape = SQL_MANY};
    struct event event;
    insert_failed();
    change("INSERT INTO cards (id, request_id, exp_month, exp_year, user_id, issuer_card_id, last4, number_record)"
           " SELECT gen_random_uuid(), id, 1, 2030, user_id, 'ic', '4242', '\\x01' FROM outbox_events");
    pg_rows_scope struct pg_rows *rows = NULL;
    ck_assert_msg(event_find(operator, & id, &rows, &event, &err), "%s", err.message);
    ck_assert(event.has_card);
    ck_assert_str_eq(event.last4, "4242");
    ck_assert(!event.outcome_unknown);
    ck_assert(!pg_sync_ask(operator, & number_record, NULL, NULL, &err));
    ck_assert_str_eq(pg_sync_sqlstate(operator), "42501");
}
END_TEST

START_TEST(the_operator_cannot_rewrite_what_was_done)
{
    static const char *const crimes[] = {"DELETE FROM operator_actions",
                                         "UPDATE operator_actions SET actor = 'nobody'",
                                         "UPDATE outbox_events SET first_sent_at = NULL",
                                         "UPDATE outbox_events SET payload = '{}'",
                                         "DELETE FROM outbox_events",
                                         "INSERT INTO operator_actions (at, actor, action) VALUES (now(), 'a', 'b')"};
    insert_failed();
    ck_assert_int_eq(replay(operator, 0, NULL), 1);
    for (size_t i = 0; i < ARRAY_SIZE(crimes); i++) {
        ck_assert_msg(!pg_sync_exec(operator, crimes[i], &err), "%s was allowed", crimes[i]);
        ck_assert_str_eq(pg_sync_sqlstate(operator), "42501");
    }
}
END_TEST

START_TEST(doctor_finds_the_rights_as_granted_and_sees_one_that_is_missing_or_too_many)
{
    pg_rows_scope struct pg_rows *good = NULL, *bad = NULL;
    const struct pg_param list[] = {pg_param_text(migrations_rights, strlen(migrations_rights))};
    ck_assert_msg(pg_sync_ask(operator, & sql_operator_rights, list, &good, &err), "%s", err.message);
    ck_assert_int_eq(pg_rows_count(good), 0);
    change("GRANT SELECT ON cards TO issuing_operator");
    change("REVOKE INSERT ON outbox_attempts FROM issuing_worker");
    bool asked = pg_sync_ask(operator, & sql_operator_rights, list, &bad, &err);
    change("REVOKE SELECT ON cards FROM issuing_operator");
    change("GRANT SELECT (id, request_id, created_at, updated_at, replaces, exp_month, exp_year, user_id, "
           "issuer_card_id, last4, status) ON cards"
           " TO issuing_operator");
    change("GRANT INSERT ON outbox_attempts TO issuing_worker");
    ck_assert_msg(asked, "%s", err.message);
    ck_assert_int_eq(pg_rows_count(bad), 2);
    ck_assert_str_eq(pg_bytes(bad, 0, 0).bytes, "issuing_operator");
    ck_assert_str_eq(pg_bytes(bad, 0, 3).bytes, "SELECT");
    ck_assert(pg_is_null(bad, 0, 2)); /* the whole table */
    ck_assert(!pg_bool(bad, 0, 4));
    ck_assert_str_eq(pg_bytes(bad, 1, 0).bytes, "issuing_worker");
    ck_assert(pg_bool(bad, 1, 4));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("operator");
    TCase *cases = tcase_create("operator");
    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_add_test(cases, a_replay_starts_the_tries_again_and_keeps_the_age_of_the_issuer_key);
    tcase_add_test(cases, a_replay_leaves_who_why_before_and_after);
    tcase_add_test(cases, only_a_failed_event_is_replayed);
    tcase_add_test(cases, an_event_that_failed_again_after_it_was_chosen_is_left_alone);
    tcase_add_test(cases, a_bulk_replay_walks_oldest_first_and_stops_at_its_horizon);
    tcase_add_test(cases, cancel_ends_what_was_never_sent);
    tcase_add_test(cases, cancel_refuses_what_may_have_been_sent);
    tcase_add_test(cases, the_operator_sees_the_card_and_never_its_number);
    tcase_add_test(cases, the_operator_cannot_rewrite_what_was_done);
    tcase_add_test(cases, doctor_finds_the_rights_as_granted_and_sees_one_that_is_missing_or_too_many);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
