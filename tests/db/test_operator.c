/* The story: two operators, a worker and a client's card number. An operator's statement may act on a row once, in the
 * state in which it was chosen, together with its audit row, and never on an event whose request may have left. The
 * operator's role cannot read card numbers. Needs a migrated database: its conninfo (keyword=value) in
 * ISSUING_TEST_DATABASE, as a superuser; the role issuing_operator may log in. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/lib/pg/pg_sync.h"
#include "ctl/event.h"
#include "migrations.h"
#include "statements.h"
#include "tests/support/suite.h"

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
    ck_assert_msg(pg_sync_exec(owner,
                               "TRUNCATE outbox_events, cards, card_reissues, outbox_attempts, operator_actions, "
                               "marks, event_reissues",
                               &err),
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
    ck_assert_msg(pg_sync_query(owner, &statement, NULL, &rows, &err), "%s", err.message);
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

/* Why the last action was refused; "" = it was done, "no row" = there was no such event. */
static char refused[64];

/* 1 = it was done. */
static int act(struct pg_sync *db, const struct sql_statement *statement, const struct pg_param *params,
               struct event *ret_event)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    ck_assert_msg(pg_sync_query(db, statement, params, &rows, &err), "%s", err.message);
    ck_assert_int_le(pg_rows_count(rows), 1);
    snprintf(refused, sizeof(refused), "no row");
    if (pg_rows_count(rows) == 0)
        return 0;
    const char *why = pg_bytes(rows, 0, EVENT_REFUSED_COLUMN).bytes;
    snprintf(refused, sizeof(refused), "%s", why ? why : "");
    if (ret_event) {
        ck_assert_msg(event_read(rows, 0, ret_event, &err), "%s", err.message);
        ret_event->reason_code = ret_event->reason_code ? "some" : NULL; /* the rows end here */
    }
    return why ? 0 : 1;
}

#define OLGA(reason) \
    pg_param_text("olga", 4), pg_param_text("root", 4), pg_param_text("olga", 4), pg_param_string(reason)

/* Of a bulk action; NULL = of none. */
static const char *batch;

static int replay(struct pg_sync *db, int64_t seen_us, struct event *ret_event)
{
    const struct pg_param params[] = {pg_param_uuid(&id), seen_us ? pg_param_int8(seen_us) : pg_param_null(),
                                      OLGA("issuer is back"), pg_param_string(batch)};
    return act(db, &sql_operator_replay, params, ret_event);
}

static int cancel(struct pg_sync *db)
{
    const struct pg_param params[] = {pg_param_uuid(&id), pg_param_null(), OLGA("asked for"), pg_param_string(batch),
                                      pg_param_text("Gone.", 5)};
    return act(db, &sql_operator_cancel, params, NULL);
}

/* route_settle_ms: of a CHARGE; every other route settles in other_settle_ms. */
static int resolve_any(bool no_card, int64_t settle_ms, bool not_executed, int64_t route_settle_ms,
                       int64_t other_settle_ms)
{
    struct buf type_buf, settle_buf;
    struct pg_array types, settles;
    buf_init(&type_buf, 1024);
    buf_init(&settle_buf, 1024);
    pg_array_start(&types, &type_buf, PG_TEXT);
    pg_array_add(&types, "CHARGE", 6);
    pg_array_start(&settles, &settle_buf, PG_INT8);
    pg_array_add_int8(&settles, route_settle_ms);
    const struct pg_param params[] = {pg_param_uuid(&id),
                                      pg_param_null(),
                                      OLGA("the bank said no"),
                                      pg_param_string(batch),
                                      pg_param_bool(no_card),
                                      pg_param_int8(settle_ms),
                                      pg_param_text("Ended.", 6),
                                      pg_param_bool(not_executed),
                                      pg_array_param(&types),
                                      pg_array_param(&settles),
                                      pg_param_int8(other_settle_ms),
                                      pg_param_text("Not executed.", 13)};
    int done = act(operator, & sql_operator_resolve, params, NULL);
    buf_done(&type_buf);
    buf_done(&settle_buf);
    return done;
}

static int resolve(bool confirmed, int64_t settle_ms)
{
    return resolve_any(confirmed, settle_ms, !confirmed, 0, 0);
}

static void insert_card(const char *status)
{
    char text[400];
    snprintf(text, sizeof(text),
             "INSERT INTO cards (id, request_id, exp_month, exp_year, user_id, issuer_card_id, last4, status)"
             " SELECT gen_random_uuid(), id, 1, 2030, user_id, 'ic', '4242', '%s' FROM outbox_events",
             status);
    change(text);
}

TEST(a_replay_starts_the_tries_again_and_keeps_the_age_of_the_issuer_key)
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

/* The story: an event that was tried alone because it had cost its worker before, or that was deferred again and again,
 * was replayed, and was set aside again at once because of the counts from before. */
TEST(a_replay_forgets_what_was_counted_and_not_when_something_was_sent)
{
    insert_failed();
    change("UPDATE outbox_events SET lost_count = 3, deferral_count = 7, deferral_code = 'issuer_http_404',"
           " last_sent_at = first_sent_at + interval '1 minute', updated_at = now() + interval '1 hour',"
           " next_attempt_at = now() + interval '1 hour'"); /* and the clock stepped back by an hour */
    ck_assert_int_eq(replay(operator, 0, NULL), 1);
    ck_assert_int_eq(number("SELECT count(*) FROM outbox_events WHERE lost_count = 0 AND deferral_count = 0 AND"
                            " deferral_code = 'operator_replayed' AND deferred_since IS NULL AND"
                            " last_sent_at = first_sent_at + interval '1 minute' AND due_at <= now()"),
                     1);
}

/* The flow looks up where held_end says so; and a card that a mark found need not be the one that is left. */
TEST(a_replay_after_two_cards_begins_at_the_look_up)
{
    static const struct {
        const char *values, *is_held;
    } rows[] = {
        {"reason_code = 'issuer_duplicate', first_sent_at = NULL",
         "held_end = 'duplicate' AND first_sent_at = created_at"},
        {"reason_code = 'core_http_418', held_end = 'duplicate'", "held_end = 'duplicate'"},
        {"reason_code = 'core_http_418', held_end = 'exhausted'", "held_end IS NULL"},
        {"reason_code = 'issuer_duplicate', event_type = 'ORDER'", "held_end IS NULL"}, /* a receiver's own code */
    };
    char text[300];
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        change("TRUNCATE outbox_events");
        insert_failed();
        snprintf(text, sizeof(text), "UPDATE outbox_events SET %s", rows[i].values);
        change(text);
        ck_assert_int_eq(replay(operator, 0, NULL), 1);
        snprintf(text, sizeof(text), "SELECT count(*) FROM outbox_events WHERE status = 'PENDING' AND %s",
                 rows[i].is_held);
        ck_assert_int_eq(number(text), 1);
    }
}

TEST(a_replay_leaves_who_why_before_and_after)
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
    ck_assert_int_eq(number("SELECT count(*) FROM operator_actions WHERE db_role = 'issuing_operator' AND"
                            " os_user = 'root' AND sudo_user = 'olga'"),
                     1);
}

#define BATCH_ID "019a9bd2-7a00-7000-8000-0000000000b1"

/* Behind a pooler the session is the next program's. */
TEST(a_bulk_action_names_its_own_rows_and_none_after_them)
{
    insert_failed();
    batch = BATCH_ID " 2 events: --status FAILED";
    ck_assert_int_eq(replay(operator, 0, NULL), 1);
    batch = NULL;
    ck_assert_int_eq(cancel(operator), 0); /* it was sent */
    id = uuid7_make();
    insert("next_attempt_at", "now()");
    ck_assert_int_eq(cancel(operator), 1);
    ck_assert_int_eq(number("SELECT count(*) FROM operator_actions WHERE action = 'replay' AND batch = '" BATCH_ID
                            "' AND batch_scope = '2 events: --status FAILED'"),
                     1);
    ck_assert_int_eq(number("SELECT count(*) FROM operator_actions WHERE action = 'cancel' AND batch IS NULL AND "
                            "batch_scope IS NULL"),
                     1);
}

TEST(a_setting_that_is_no_batch_stops_no_action)
{
    insert("next_attempt_at", "now()");
    batch = "'; no id";
    ck_assert_int_eq(cancel(operator), 1);
    ck_assert_int_eq(number("SELECT count(*) FROM operator_actions WHERE batch IS NULL"), 1);
    batch = NULL;
}

TEST(only_a_failed_event_is_replayed)
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

TEST(an_event_that_is_too_large_to_be_claimed_is_not_replayed)
{
    insert_failed();
    change("UPDATE outbox_events SET payload = jsonb_build_object('kind', 'new', 'memo', repeat('x', 70000))");
    ck_assert_int_eq(replay(operator, 0, NULL), 0);
    ck_assert_str_eq(refused, "out_of_range");
}

TEST(an_event_that_failed_again_after_it_was_chosen_is_left_alone)
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

TEST(cancel_ends_what_was_never_sent)
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

TEST(cancel_refuses_what_may_have_been_sent)
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

/* The story (of the protocol review): a reissue FAILED `issuer_key_expired`; replay led to the same end, cancel was
 * refused, and the user's next request for the same card was refused for ever. */
TEST(resolve_ends_a_failed_reissue_and_its_card_can_be_reissued_again)
{
    static const char *const again = "INSERT INTO outbox_events (user_id, payload) VALUES ('alice', '{\"kind\": "
                                     "\"reissue\", \"replaces\": \"0190b5a8-7c1e-7cc3-98c4-dc0c0c07398f\"}')";
    change(again);
    change("UPDATE outbox_events SET status = 'FAILED', reason_code = 'issuer_key_expired', first_sent_at = now() - "
           "interval '2 d', completed_at = now()");
    id = (struct uuid){0};
    pg_rows_scope struct pg_rows *rows = NULL;
    const struct sql_statement which = {.name = "which", .text = "SELECT id FROM outbox_events", .shape = SQL_ONE};
    ck_assert(pg_sync_query(owner, &which, NULL, &rows, &err));
    id = pg_uuid(rows, 0, 0);
    ck_assert(!pg_sync_exec(owner, again, &err));
    ck_assert_int_eq(resolve(false, 1000), 0);
    ck_assert_str_eq(refused, "unknown");
    ck_assert_int_eq(resolve(true, 3 * 24 * 3600 * 1000), 0);
    ck_assert_str_eq(refused, "settling");
    ck_assert(!pg_sync_exec(owner, again, &err));
    ck_assert_int_eq(number("SELECT count(*) FROM operator_actions"), 0);
    ck_assert_int_eq(resolve(true, 1000), 1);
    ck_assert_int_eq(number("SELECT count(*) FROM outbox_events WHERE status = 'REJECTED' AND reason_code = 'resolved'"
                            " AND reason_detail = 'Ended.' AND completed_at IS NOT NULL"),
                     1);
    ck_assert_int_eq(number("SELECT count(*) FROM operator_actions WHERE action = 'resolve' AND before ->> 'status' ="
                            " 'FAILED' AND after ->> 'reason_code' = 'resolved' AND after ->> 'no_card_confirmed' ="
                            " 'true'"),
                     1);
    change(again);
    ck_assert_int_eq(resolve(true, 1000), 0);
    ck_assert_str_eq(refused, "not_failed");
}

TEST(resolve_never_ends_over_a_card_that_may_be_used)
{
    insert_failed();
    insert_card("active");
    ck_assert_int_eq(resolve(true, 0), 0);
    ck_assert_str_eq(refused, "card");
    change("UPDATE cards SET status = 'cancelled'");
    ck_assert_int_eq(resolve(true, 0), 1);
}

TEST(what_was_surely_not_sent_needs_no_confirmation)
{
    insert("status, reason_code, completed_at", "'FAILED', 'payload_invalid', now()");
    ck_assert_int_eq(resolve(false, 30000), 1);
}

/* The story: "there is no card" was taken as "the charge was not executed", and the settling time of the issuer for
 * that of the receiver. */
TEST(an_event_of_a_route_has_a_confirmation_and_a_settling_time_of_its_own)
{
    insert("event_type, status, reason_code, first_sent_at, completed_at",
           "'CHARGE', 'FAILED', 'route_key_expired', now() - interval '1 minute', now()");
    ck_assert_int_eq(resolve_any(true, 0, false, 0, 0), 0);
    ck_assert_str_eq(refused, "unknown");
    ck_assert_int_eq(resolve_any(false, 0, true, 3600000, 0), 0);
    ck_assert_str_eq(refused, "settling");
    change("UPDATE outbox_events SET event_type = 'NOTE'"); /* which the configuration does not have */
    ck_assert_int_eq(resolve_any(false, 0, true, 0, 3600000), 0);
    ck_assert_str_eq(refused, "settling");
    ck_assert_int_eq(resolve_any(false, 3600000, true, 3600000, 30000), 1);
    ck_assert_int_eq(number("SELECT count(*) FROM outbox_events WHERE reason_detail = 'Not executed.'"), 1);
}

/* The story: a reissue whose payload could not be used left its card to another; corrected and replayed, it would have
 * made a second live reissue of the card. */
TEST(a_replay_is_refused_while_another_event_has_the_place_of_its_card)
{
#define REISSUE "'{\"kind\": \"reissue\", \"replaces\": \"0190b5a8-7c1e-7cc3-98c4-dc0c0c07398f\"}'"
    char text[400], id_text[UUID_TEXT_SIZE];
    uuid_format(&id, id_text);
    snprintf(text, sizeof(text),
             "INSERT INTO outbox_events (id, user_id, payload, status, reason_code) VALUES ('%s', 'alice', " REISSUE
             ", 'FAILED', 'payload_invalid')",
             id_text);
    change(text);
    ck_assert_int_eq(number("SELECT count(*) FROM card_reissues"), 1);
    change("INSERT INTO outbox_events (user_id, payload) VALUES ('alice', " REISSUE ")");
    ck_assert_int_eq(replay(operator, 0, NULL), 0);
    ck_assert_str_eq(refused, "place_taken");
    ck_assert_int_eq(number("SELECT count(*) FROM operator_actions"), 0);
    change("DELETE FROM card_reissues"); /* the card is free: the replay takes it */
    ck_assert_int_eq(replay(operator, 0, NULL), 1);
    ck_assert_int_eq(number("SELECT count(*) FROM card_reissues r JOIN outbox_events e ON e.id = r.event_id"
                            " WHERE e.retry_count = 0 AND e.status = 'PENDING'"),
                     1);
}

/* ---- marks ------------------------------------------------------------------------------------------------------- */

static struct pg_sync *worker; /* issuing_worker */
static struct uuid mark, token;
static int64_t seen_us;

static void open_worker(void)
{
    char text[1000];
    snprintf(text, sizeof(text), "%s user=issuing_worker", getenv("ISSUING_TEST_DATABASE"));
    ck_assert_msg(pg_sync_open(text, "test_operator", &worker, &err), "%s", err.message);
}

/* Leaves a mark for the event `id`; why it was refused, "" = it was left. because: of a reissue, NULL = as before. */
static const char *leave_mark_because(const struct sql_statement *statement, const char *because)
{
    struct buf buf;
    struct pg_array array;
    buf_init(&buf, 100);
    pg_array_start(&array, &buf, PG_UUID);
    pg_array_add_uuid(&array, &id);
    bool is_reissue = statement == &sql_operator_ask_reissue;
    const struct pg_param params[] = {is_reissue ? pg_param_uuid(&id) : pg_array_param(&array), pg_param_int8(60000),
                                      OLGA("who knows"),
                                      !is_reissue ? pg_param_string(batch)
                                      : because   ? pg_param_string(because)
                                                  : pg_param_null()};
    pg_rows_scope struct pg_rows *rows = NULL;
    ck_assert_msg(pg_sync_query(operator, statement, params, &rows, &err), "%s", err.message);
    buf_done(&buf);
    const char *why = pg_bytes(rows, 0, is_reissue ? 1 : 2).bytes;
    snprintf(refused, sizeof(refused), "%s", why ? why : "");
    return refused;
}

static const char *leave_mark(const struct sql_statement *statement)
{
    return leave_mark_because(statement, NULL);
}

/* The number of marks that the worker gets; the first one is stored in mark, token and seen_us. */
static int take(void)
{
    token = uuid4_make();
    static const char *const types[] = {"CARD_ISSUE", "SHOUT"};
    struct buf buf;
    struct pg_array array;
    buf_init(&buf, 100);
    pg_array_start(&array, &buf, PG_TEXT);
    for (size_t i = 0; i < ARRAY_SIZE(types); i++)
        pg_array_add_string(&array, types[i]);
    const struct pg_param params[] = {pg_param_uuid(&token), pg_param_int8(30000),   pg_param_text("w1", 2),
                                      pg_param_int8(4),      pg_array_param(&array), pg_param_null(),
                                      pg_param_null()};
    pg_rows_scope struct pg_rows *rows = NULL;
    ck_assert_msg(pg_sync_query(worker, &sql_reconcile_take, params, &rows, &err), "%s", err.message);
    buf_done(&buf);
    if (pg_rows_count(rows) > 0) {
        mark = pg_uuid(rows, 0, 0);
        seen_us = pg_int8(rows, 0, 7);
    }
    return pg_rows_count(rows);
}

static char came_to[64];

static const char *end_mark(const char *result)
{
    const struct pg_param params[] = {pg_param_uuid(&mark), pg_param_uuid(&token), pg_param_int8(seen_us),
                                      pg_param_string(result), pg_param_text("Why:", 4)};
    pg_rows_scope struct pg_rows *rows = NULL;
    ck_assert_msg(pg_sync_query(worker, &sql_reconcile_end, params, &rows, &err), "%s", err.message);
    snprintf(came_to, sizeof(came_to), "%s", pg_bytes(rows, 0, 0).bytes);
    return came_to;
}

static void lease_runs_out(void)
{
    change("UPDATE marks SET due_at = now() - interval '1 second'");
}

TEST(a_mark_is_one_workers_at_a_time_and_its_end_is_written_once)
{
    struct uuid first;
    open_worker();
    insert_failed();
    ck_assert_str_eq(leave_mark_because(&sql_operator_ask_reissue, "stolen"), "replaces_none");
    ck_assert_str_eq(leave_mark(&sql_operator_ask_reissue), "");
    ck_assert_str_eq(leave_mark(&sql_operator_ask_reissue), "busy");
    ck_assert_str_eq(leave_mark(&sql_operator_ask_reconcile), "busy");
    ck_assert_int_eq(number("SELECT count(*) FROM marks"), 1);
    ck_assert_int_eq(take(), 1);
    first = token;
    ck_assert_int_eq(take(), 0);
    token = first;
    lease_runs_out();
    ck_assert_int_eq(take(), 1);
    struct uuid second = token;
    token = first;
    ck_assert_str_eq(end_mark("reissued"), "fenced");
    ck_assert_int_eq(number("SELECT count(*) FROM outbox_events"), 1);
    token = second;
    ck_assert_str_eq(end_mark("reissued"), "done");
    ck_assert_str_eq(end_mark("reissued"), "fenced");
    ck_assert_int_eq(
        number("SELECT count(*) FROM outbox_events o JOIN event_reissues r ON r.old_id = o.id JOIN outbox_events n ON"
               " n.id = r.new_id WHERE o.status = 'REJECTED' AND o.reason_code = 'reissued' AND"
               " o.reason_detail = 'Why: ' || n.id AND n.status = 'PENDING' AND n.first_sent_at IS NULL AND"
               " n.user_id = o.user_id AND n.payload = o.payload AND n.retry_count = 0"),
        1);
    ck_assert_int_eq(
        number("SELECT count(*) FROM operator_actions o JOIN event_reissues r ON r.old_id = o.event_id WHERE"
               " action = 'reissue' AND after ->> 'new_id' = r.new_id::text AND db_role = 'issuing_operator'"),
        1);
    ck_assert_str_eq(leave_mark(&sql_operator_ask_reissue), "reissued");
    pg_sync_closep(&worker);
}

/* The story: a worker puts a mark back for a few seconds while the database's clock is six hours ahead; the clock is
 * set right, and nobody looks at the mark for six hours. The card that it is about stays live. */
TEST(a_mark_put_back_by_a_clock_that_was_ahead_is_due_as_it_was_meant)
{
    open_worker();
    insert_failed();
    ck_assert_str_eq(leave_mark(&sql_operator_ask_reconcile), "");
    ck_assert_int_eq(take(), 1);
    for (int held = 0; held < 2; held++) { /* it waits; a worker that is gone has it */
        if (!held) {
            const struct pg_param params[] = {pg_param_uuid(&mark), pg_param_uuid(&token), pg_param_int8(20000),
                                              pg_param_text("settling", 8)};
            ck_assert_msg(pg_sync_query(worker, &sql_reconcile_put_back, params, NULL, &err), "%s", err.message);
        }
        change("UPDATE marks SET due_at = due_at + interval '6 h', due_set_at = due_set_at + interval '6 h'");
        ck_assert_int_eq(take(), 0);
        ck_assert_int_eq(number("SELECT count(*) FROM marks WHERE due_at BETWEEN now() AND now() + interval '1 min'"
                                " AND due_set_at <= now()"),
                         1);
        lease_runs_out();
        ck_assert_int_eq(take(), 1);
    }
    change("UPDATE marks SET due_at = now() + interval '6 h'"); /* by a clock that was right */
    ck_assert_int_eq(take(), 0);
    ck_assert_int_eq(number("SELECT count(*) FROM marks WHERE due_at > now() + interval '5 h'"), 1);
    pg_sync_closep(&worker);
}

TEST(a_withdrawn_mark_changes_nothing_any_more)
{
    open_worker();
    insert_failed();
    ck_assert_str_eq(leave_mark(&sql_operator_ask_reissue), "");
    ck_assert_int_eq(take(), 1);
    const struct pg_param params[] = {pg_param_uuid(&mark)};
    pg_rows_scope struct pg_rows *rows = NULL;
    ck_assert(pg_sync_query(operator, & sql_operator_withdraw_mark, params, &rows, &err));
    ck_assert_str_eq(pg_bytes(rows, 0, 0).bytes, "withdrawn");
    ck_assert_str_eq(end_mark("reissued"), "fenced");
    ck_assert_int_eq(number("SELECT count(*) FROM outbox_events WHERE status = 'FAILED'"), 1);
    ck_assert_int_eq(number("SELECT count(*) FROM operator_actions"), 0);
    pg_sync_closep(&worker);
}

/* The story: between the look-up and its end another operator replays the event, a worker sends again, and the event
 * fails again: the earlier look-up proves nothing about it. */
TEST(a_mark_is_not_ended_over_an_event_that_changed_after_it_was_judged)
{
    static const char *const ends[] = {"found", "cancelled_at_issuer", "duplicate"};
    open_worker();
    insert_failed();
    for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
        ck_assert_str_eq(leave_mark(&sql_operator_ask_reconcile), "");
        ck_assert_int_eq(take(), 1);
        change("UPDATE outbox_events SET updated_at = clock_timestamp()");
        ck_assert_str_eq(end_mark(ends[i]), "changed");
        ck_assert_int_eq(number("SELECT count(*) FROM outbox_events WHERE status = 'FAILED' AND reason_code ="
                                " 'attempts_exhausted'"),
                         1);
        ck_assert_int_eq(number("SELECT count(*) FROM marks WHERE finished_at IS NULL AND due_at <= now()"), 1);
    }
    ck_assert_int_eq(take(), 1);
    ck_assert_str_eq(end_mark("found"), "done");
    ck_assert_int_eq(number("SELECT count(*) FROM outbox_events WHERE status = 'PENDING'"), 1);
    pg_sync_closep(&worker);
}

/* The story: a card is found for an event that the row calls "surely not sent"; the flow would send it anew, and past
 * the lifetime of the issuer's key that makes a second card. */
static void report(void)
{
    char text[200], id_text[UUID_TEXT_SIZE];
    uuid_format(&id, id_text);
    snprintf(text, sizeof(text), "SELECT issuing.add_mark('%s', 'a late create')", id_text);
    ck_assert_msg(pg_sync_exec(worker, text, &err), "%s", err.message);
}

/* A worker reports a create that it sent after its lease. A look-up that judged the event before does not know of the
 * card. */
TEST(a_mark_begins_anew_when_a_late_create_is_reported)
{
    open_worker();
    insert("status, reason_code, first_sent_at, last_sent_at, completed_at",
           "'REJECTED', 'user_blocked', now() - interval '1 hour', now() - interval '1 hour', now()");
    ck_assert_str_eq(leave_mark(&sql_operator_ask_reconcile), "");
    ck_assert_int_eq(take(), 1);
    report();
    ck_assert_str_eq(end_mark("ok"), "fenced");
    ck_assert_int_eq(number("SELECT count(*) FROM outbox_events WHERE last_sent_at > now() - interval '1 minute'"), 1);
    ck_assert_int_eq(number("SELECT count(*) FROM marks WHERE deadline_at > now() + interval '1 hour'"), 1);
    ck_assert_int_eq(take(), 2); /* and the worker's own look */
    ck_assert_str_eq(end_mark("ok"), "done");
    pg_sync_closep(&worker);
}

TEST(a_look_begins_anew_when_another_late_create_is_reported)
{
    open_worker();
    insert("status, reason_code, first_sent_at, last_sent_at, completed_at",
           "'REJECTED', 'user_blocked', now() - interval '1 hour', now() - interval '1 hour', now()");
    report();
    ck_assert_int_eq(take(), 1);
    report();
    ck_assert_str_eq(end_mark("ok"), "fenced");
    ck_assert_int_eq(take(), 1);
    ck_assert_str_eq(end_mark("ok"), "done");
    pg_sync_closep(&worker);
}

TEST(a_mark_waits_for_the_end_of_an_attempt_that_a_late_create_was_reported_in)
{
    open_worker();
    insert("status, lease_token, lease_until, first_sent_at, last_sent_at",
           "'PROCESSING', gen_random_uuid(), now() + interval '1 minute', now() - interval '1 hour', now() - interval "
           "'1 hour'");
    ck_assert_str_eq(leave_mark(&sql_operator_ask_reconcile), "");
    ck_assert_int_eq(take(), 1);
    ck_assert_str_eq(end_mark("open"), "done"); /* its end is the attempt's business */
    report();
    ck_assert_int_eq(take(), 0);
    change("UPDATE outbox_events SET status = 'REJECTED', lease_token = NULL, lease_until = NULL, updated_at = "
           "clock_timestamp()");
    ck_assert_int_eq(take(), 1);
    pg_sync_closep(&worker);
}

/* A bulk reconcile leaves thousands of marks; each claim of four must not look at the events of all. */
TEST(taking_marks_visits_the_events_of_those_that_are_taken)
{
    change("INSERT INTO outbox_events (user_id, payload, status, first_sent_at) SELECT 'bulk', '{}', 'REJECTED', now() "
           "FROM generate_series(1, 500)");
    change("INSERT INTO marks (event_id, deadline_at, action, actor) SELECT id, now() + interval '1 hour', "
           "'reconcile', 'bulk' FROM outbox_events WHERE user_id = 'bulk'");
    change("ANALYZE outbox_events");
    change("ANALYZE marks");
    static const char visited[] = "SELECT sum(coalesce(idx_tup_fetch, 0) + seq_tup_read)::int8 FROM "
                                  "pg_stat_xact_user_tables WHERE relname LIKE 'outbox_events%'";
    change("BEGIN"); /* the statistics of former transactions do not move meanwhile */
    int64_t before = number(visited);
    ck_assert_int_eq(
        number("SELECT count(*) FROM issuing.take_marks(gen_random_uuid(), 4, 30000, 'w', '{CARD_ISSUE}')"), 4);
    ck_assert_int_lt(number(visited) - before, 50);
    change("ROLLBACK");
    change("DELETE FROM marks");
    change("DELETE FROM outbox_events WHERE user_id = 'bulk'");
}

TEST(an_event_whose_card_was_found_counts_as_sent)
{
    open_worker();
    insert("status, reason_code, completed_at, created_at", "'FAILED', 'core_http_418', now(), now() - interval '3 d'");
    ck_assert_str_eq(leave_mark(&sql_operator_ask_reconcile), "");
    ck_assert_int_eq(take(), 1);
    ck_assert_str_eq(end_mark("found"), "done");
    ck_assert_int_eq(
        number("SELECT count(*) FROM outbox_events WHERE status = 'PENDING' AND first_sent_at = created_at"), 1);
    pg_sync_closep(&worker);
}

TEST(the_place_of_a_card_moves_to_the_event_that_a_reissue_makes)
{
    char text[400], id_text[UUID_TEXT_SIZE];
    open_worker();
    uuid_format(&id, id_text);
    snprintf(text, sizeof(text),
             "INSERT INTO outbox_events (id, user_id, payload, status, reason_code, completed_at) VALUES ('%s', "
             "'alice', " REISSUE ", 'FAILED', 'issuer_key_expired', now())",
             id_text);
    change(text);
    ck_assert_str_eq(leave_mark(&sql_operator_ask_reissue), "");
    ck_assert_int_eq(take(), 1);
    ck_assert_str_eq(end_mark("reissued"), "done");
    ck_assert_int_eq(number("SELECT count(*) FROM card_reissues c JOIN event_reissues r ON r.new_id = c.event_id"), 1);
    ck_assert(!pg_sync_exec(owner, "INSERT INTO outbox_events (user_id, payload) VALUES ('alice', " REISSUE ")", &err));
    pg_sync_closep(&worker);
}

TEST(a_card_that_was_found_does_not_open_an_event_whose_place_is_taken)
{
    char text[400], id_text[UUID_TEXT_SIZE];
    open_worker();
    uuid_format(&id, id_text);
    snprintf(text, sizeof(text),
             "INSERT INTO outbox_events (id, user_id, payload, status, reason_code, completed_at) VALUES ('%s', "
             "'alice', " REISSUE ", 'FAILED', 'payload_invalid', now())",
             id_text);
    change(text);
    change("INSERT INTO outbox_events (user_id, payload) VALUES ('alice', " REISSUE ")");
    ck_assert_str_eq(leave_mark(&sql_operator_ask_reconcile), "");
    ck_assert_int_eq(take(), 1);
    ck_assert_str_eq(end_mark("found"), "done");
    ck_assert_int_eq(number("SELECT count(*) FROM marks WHERE result = 'refused' AND detail = 'place_taken'"), 1);
    ck_assert_int_eq(number("SELECT count(*) FROM outbox_events WHERE status = 'FAILED'"), 1);
    ck_assert_int_eq(number("SELECT count(*) FROM operator_actions"), 0);
    pg_sync_closep(&worker);
}

TEST(a_reconcile_cannot_end_as_a_reissue)
{
    open_worker();
    insert_failed();
    ck_assert_str_eq(leave_mark(&sql_operator_ask_reconcile), "");
    ck_assert_int_eq(take(), 1);
    const struct pg_param params[] = {pg_param_uuid(&mark), pg_param_uuid(&token), pg_param_int8(seen_us),
                                      pg_param_text("reissued", 8), pg_param_null()};
    ck_assert(!pg_sync_query(worker, &sql_reconcile_end, params, NULL, &err));
    ck_assert_int_eq(number("SELECT count(*) FROM outbox_events WHERE status = 'FAILED'"), 1);
    pg_sync_closep(&worker);
}

/* ---- marks of events that routes deliver ---- */

static const char *end_executed(const char *answer)
{
    const struct pg_param params[] = {pg_param_uuid(&mark), pg_param_uuid(&token), pg_param_int8(seen_us),
                                      pg_param_string("executed"), pg_param_string(answer)};
    pg_rows_scope struct pg_rows *rows = NULL;
    ck_assert_msg(pg_sync_query(worker, &sql_reconcile_end, params, &rows, &err), "%s", err.message);
    snprintf(came_to, sizeof(came_to), "%s", pg_bytes(rows, 0, 0).bytes);
    return came_to;
}

static void insert_shout(const char *status)
{
    char values[200];
    snprintf(values, sizeof(values), "'SHOUT', '%s', 'route_key_expired', now() - interval '1 hour', now()", status);
    insert("event_type, status, reason_code, first_sent_at, completed_at", values);
}

TEST(an_event_that_its_receiver_has_executed_is_completed_once)
{
    open_worker();
    change("INSERT INTO routes VALUES ('SHOUT', true, true, 86400000, 10, false, 'w1', now())");
    insert_shout("FAILED");
    batch = BATCH_ID " 1 event";
    ck_assert_str_eq(leave_mark(&sql_operator_ask_reconcile), "");
    batch = NULL;
    ck_assert_int_eq(take(), 1);
    change("INSERT INTO outbox_events (event_type, user_id, payload, held_behind, next_attempt_at) "
           "SELECT 'SHOUT', 'alice', '{}', id, now() + interval '1 hour' FROM outbox_events");
    ck_assert_str_eq(end_executed("{\"id\": 7}"), "done");
    ck_assert_int_eq(number("SELECT count(*) FROM outbox_events WHERE status = 'COMPLETED' AND reason_code IS NULL AND "
                            "result = '{\"id\": 7}' AND first_sent_at IS NOT NULL"),
                     1);
    ck_assert_int_eq(number("SELECT count(*) FROM outbox_events WHERE held_behind IS NULL AND next_attempt_at <= "
                            "clock_timestamp() AND status = 'PENDING'"),
                     1); /* what waited behind it */
    ck_assert_int_eq(
        number("SELECT count(*) FROM operator_actions WHERE action = 'reconcile' AND batch = '" BATCH_ID "'"), 1);
    ck_assert_int_eq(number("SELECT count(*) FROM marks WHERE result = 'executed'"), 1);
    ck_assert_str_eq(end_executed(NULL), "fenced");
    change("DELETE FROM routes");
    pg_sync_closep(&worker);
}

START_TEST(an_event_that_changed_meanwhile_or_is_rejected_is_not_completed)
{
    open_worker();
    change("INSERT INTO routes VALUES ('SHOUT', false, true, 86400000, 10, false, 'w1', now())");
    insert_shout(_i ? "REJECTED" : "FAILED");
    ck_assert_str_eq(leave_mark(&sql_operator_ask_reconcile), "");
    ck_assert_int_eq(take(), 1);
    if (!_i)
        change("UPDATE outbox_events SET updated_at = clock_timestamp()");
    ck_assert_str_eq(end_executed("{}"), _i ? "done" : "changed");
    ck_assert_int_eq(number("SELECT count(*) FROM outbox_events WHERE status = 'COMPLETED'"), 0);
    ck_assert_int_eq(number("SELECT count(*) FROM marks WHERE result = 'executed'"), _i);
    change("DELETE FROM routes");
    pg_sync_closep(&worker);
}

TEST(only_a_reconcile_ends_as_executed)
{
    open_worker();
    change("INSERT INTO routes VALUES ('SHOUT', false, true, 86400000, 10, false, 'w1', now())");
    insert_shout("FAILED");
    ck_assert_str_eq(leave_mark(&sql_operator_ask_reconcile), "");
    ck_assert_int_eq(take(), 1);
    change("UPDATE marks SET action = 'look'");
    ck_assert_str_eq(end_executed("{}"), "fenced");
    change("UPDATE marks SET action = 'reissue'");
    ck_assert_str_eq(end_executed("{}"), "fenced");
    ck_assert_int_eq(number("SELECT count(*) FROM outbox_events WHERE status = 'FAILED'"), 1);
    ck_assert_int_eq(number("SELECT count(*) FROM marks WHERE finished_at IS NULL AND lease_token IS NOT NULL"), 1);
    ck_assert_int_eq(number("SELECT count(*) FROM operator_actions"), 0);
    change("DELETE FROM routes");
    pg_sync_closep(&worker);
}

TEST(a_mark_waits_for_a_worker_that_can_look_its_event_up)
{
    open_worker();
    insert_shout("FAILED");
    ck_assert_str_eq(leave_mark(&sql_operator_ask_reconcile), "other_type");
    change("INSERT INTO routes VALUES ('SHOUT', false, false, 86400000, 10, false, 'w1', now())");
    ck_assert_str_eq(leave_mark(&sql_operator_ask_reconcile), "other_type");
    change("UPDATE routes SET has_lookup = true");
    ck_assert_str_eq(leave_mark(&sql_operator_ask_reconcile), "");
    static const char others[] =
        "SELECT count(*) FROM issuing.take_marks(gen_random_uuid(), 4, 30000, 'w', '{CARD_ISSUE}')";
    ck_assert_int_eq(number(others), 0); /* a worker without the route */
    change("UPDATE marks SET deadline_at = now()");
    ck_assert_int_eq(number(others), 0);
    ck_assert_int_eq(number("SELECT count(*) FROM marks WHERE result = 'undecided'"), 1);
    change("DELETE FROM routes");
    pg_sync_closep(&worker);
}

TEST(a_mark_ends_at_its_deadline_and_an_old_one_is_removed)
{
    open_worker();
    insert_failed();
    ck_assert_str_eq(leave_mark(&sql_operator_ask_reconcile), "");
    change("UPDATE marks SET deadline_at = now()");
    ck_assert_int_eq(take(), 0);
    ck_assert_int_eq(number("SELECT count(*) FROM marks WHERE result = 'undecided'"), 1);
    ck_assert_str_eq(leave_mark(&sql_operator_ask_reconcile), "");
    change("UPDATE marks SET finished_at = now() - interval '8 d' WHERE finished_at IS NOT NULL");
    ck_assert_int_eq(take(), 1);
    ck_assert_int_eq(number("SELECT count(*) FROM marks"), 1);
    pg_sync_closep(&worker);
}

TEST(an_action_without_an_actor_or_a_reason_is_no_action)
{
    static const char *const tries[] = {"SELECT issuing.replay(id, NULL, 'olga', NULL, NULL, ' ') FROM outbox_events",
                                        "SELECT issuing.replay(id, NULL, '', NULL, NULL, 'x') FROM outbox_events",
                                        "SELECT issuing.replay(id, NULL, NULL, NULL, NULL, NULL) FROM outbox_events",
                                        "SELECT issuing.resolve(id, NULL, true, 0, 'd', 'olga', NULL, NULL, NULL) FROM "
                                        "outbox_events",
                                        "SELECT issuing.ask_reconcile(id, 1000, 'olga', NULL, NULL, '') FROM "
                                        "outbox_events"};
    insert_failed();
    for (size_t i = 0; i < ARRAY_SIZE(tries); i++)
        ck_assert_msg(!pg_sync_exec(operator, tries[i], &err), "%s", tries[i]);
    ck_assert_int_eq(number("SELECT count(*) FROM outbox_events WHERE status = 'FAILED'"), 1);
    ck_assert_int_eq(number("SELECT count(*) FROM operator_actions"), 0);
}

TEST(the_operator_sees_the_card_and_never_its_number)
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
    ck_assert(!pg_sync_query(operator, & number_record, NULL, NULL, &err));
    ck_assert_str_eq(err.sqlstate, "42501");
}

TEST(the_operator_cannot_rewrite_what_was_done)
{
    static const char *const crimes[] = {"DELETE FROM operator_actions",
                                         "UPDATE operator_actions SET actor = 'nobody'",
                                         "UPDATE outbox_events SET first_sent_at = NULL",
                                         "UPDATE outbox_events SET payload = '{}'",
                                         "UPDATE outbox_events SET status = 'PENDING'",
                                         "INSERT INTO operator_actions (actor, action) VALUES ('a', 'b')",
                                         "SELECT issuing.reopen(e, false) FROM outbox_events e",
                                         "SELECT issuing.reject(e, 'cancelled', '') FROM outbox_events e",
                                         "DELETE FROM outbox_events",
                                         "INSERT INTO operator_actions (at, actor, action) VALUES (now(), 'a', 'b')"};
    insert_failed();
    ck_assert_int_eq(replay(operator, 0, NULL), 1);
    for (size_t i = 0; i < ARRAY_SIZE(crimes); i++) {
        ck_assert_msg(!pg_sync_exec(operator, crimes[i], &err), "%s was allowed", crimes[i]);
        ck_assert_str_eq(err.sqlstate, "42501");
    }
}

TEST(doctor_finds_the_rights_as_granted_and_sees_one_that_is_missing_or_too_many)
{
    pg_rows_scope struct pg_rows *good = NULL, *bad = NULL;
    const struct pg_param list[] = {pg_param_string(schema_rights)};
    ck_assert_msg(pg_sync_query(operator, & sql_operator_rights, list, &good, &err), "%s", err.message);
    ck_assert_int_eq(pg_rows_count(good), 0);
    change("GRANT SELECT ON cards TO issuing_operator");
    change("REVOKE INSERT ON outbox_attempts FROM issuing_worker");
    bool asked = pg_sync_query(operator, & sql_operator_rights, list, &bad, &err);
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

SUITE(operator)
{
    TCase *cases = tcase_create("operator");
    tcase_add_checked_fixture(cases, set_up, tear_down);
    ADD_TESTS(cases);
    tcase_add_loop_test(cases, an_event_that_changed_meanwhile_or_is_rejected_is_not_completed, 0, 2);
    suite_add_tcase(suite, cases);
}
