/* The story: a user froze a card at the issuer, and the api showed it as active for ever. An event of the issuer is a
 * hint: it brings a look-up forward, and what the look-up shows becomes the card's status and is told. */
#include "tests/db/database.h"

#include "tests/support/suite.h"

static struct pg_sync *owner, *api, *worker;

#define EVENT "00000000-0000-7000-9000-000000000001"
#define OTHER "00000000-0000-7000-9000-000000000002"
#define CARD "00000000-0000-4000-8000-00000000000a"
#define TOKEN "00000000-0000-4000-8000-000000000001"
#define ROUTE "INSERT INTO routes VALUES ('CARD_STATUS_CHANGED', false, false, 1, 1, false, 'w', now()); "
#define DIGEST(digit) "decode(repeat('" digit "', 64), 'hex')"

static void set_up(void)
{
    owner = database_open(NULL);
    api = database_open("issuing_api");
    worker = database_open("issuing_worker");
    database_run(owner, "SET search_path = pg_catalog, issuing, pg_temp; TRUNCATE outbox_events, cards, marks, "
                        "operator_actions, issuer_events, routes, statistics_changes");
    database_run(owner,
                 "INSERT INTO outbox_events (id, user_id, payload, status, first_sent_at, completed_at) VALUES ('" EVENT
                 "', 'alice', '{\"kind\": \"new\"}', 'COMPLETED', now(), now()); INSERT INTO cards (id, request_id, "
                 "exp_month, exp_year, user_id, issuer_card_id, last4) VALUES ('" CARD "', '" EVENT
                 "', 1, 2040, 'alice', 'ic_1', '1111')");
}

static void tear_down(void)
{
    pg_sync_closep(&owner);
    pg_sync_closep(&api);
    pg_sync_closep(&worker);
}

static void notes(const char *digest, const char *reference, const char *card, const char *result)
{
    char text[400];
    snprintf(text, sizeof(text), "SELECT issuing.note_issuer_event(%s, %s%s%s, '%s')", digest, reference ? "'" : "",
             reference ? reference : "NULL", reference ? "'" : "", card);
    char *actual = database_text(api, text);
    ck_assert_str_eq(actual, result);
    free(actual);
}

static int64_t count(const char *of)
{
    return database_int(owner, "SELECT count(*) FROM %s", of);
}

/* A worker takes the mark and ends it so. */
static void look_shows(const char *result)
{
    char text[300];
    ck_assert_int_eq(
        database_int(worker, "SELECT count(*) FROM issuing.take_marks('" TOKEN "', 10, 60000, 'w', '{CARD_ISSUE}')"),
        1);
    snprintf(text, sizeof(text),
             "SELECT issuing.end_mark(p.id, '" TOKEN
             "', (extract(epoch FROM e.updated_at) * 1000000)::int8, '%s', NULL) "
             "FROM issuing.marks p LEFT JOIN issuing.outbox_events e ON e.id = p.event_id WHERE p.finished_at IS NULL",
             result);
    char *ended = database_text(owner, text);
    ck_assert_str_eq(ended, "done");
    free(ended);
}

static void card_is(const char *status)
{
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM cards WHERE status = '%s'", status), 1);
}

TEST(an_event_of_the_issuer_is_found_by_reference_or_card_and_noted_once)
{
    notes(DIGEST("1"), EVENT, "", "noted");
    notes(DIGEST("1"), EVENT, "ic_1", "repeated");
    notes(DIGEST("1"), NULL, "ic_1", "repeated");
    notes(DIGEST("2"), NULL, "ic_1", "noted");
    notes(DIGEST("3"), OTHER, "ic_2", "unknown");
    notes(DIGEST("3"), NULL, "", "unknown");
    ck_assert_int_eq(count("marks"), 1);
    ck_assert_int_eq(count("issuer_events"), 2);
}

/* A worker has seen the card before the event came: what it saw may be older. */
TEST(a_look_that_is_under_way_begins_anew)
{
    notes(DIGEST("1"), EVENT, "", "noted");
    (void)database_int(worker, "SELECT count(*) FROM issuing.take_marks('" TOKEN "', 10, 60000, 'w', '{CARD_ISSUE}')");
    notes(DIGEST("2"), EVENT, "", "noted");
    ck_assert_int_eq(count("marks WHERE lease_token IS NULL AND due_at <= now()"), 1);
}

TEST(an_unknown_outcome_is_brought_forward_and_nothing_else_is)
{
    database_run(owner, "DELETE FROM cards; UPDATE outbox_events SET status = 'PENDING', completed_at = NULL, "
                        "next_attempt_at = now() + interval '1 h'");
    notes(DIGEST("1"), EVENT, "", "noted");
    ck_assert_int_eq(count("outbox_events WHERE next_attempt_at <= clock_timestamp()"), 1);
    database_run(owner, "UPDATE outbox_events SET first_sent_at = NULL, next_attempt_at = now() + interval '1 h'");
    notes(DIGEST("2"), EVENT, "", "noted");
    ck_assert_int_eq(count("outbox_events WHERE next_attempt_at > now() + interval '59 min'"), 1);
    ck_assert_int_eq(count("marks"), 0);
}

TEST(a_mark_waits_for_the_attempt_that_is_under_way)
{
    database_run(owner, "UPDATE outbox_events SET status = 'PROCESSING', lease_token = '" TOKEN
                        "', lease_until = now() + interval '1 h', completed_at = NULL");
    notes(DIGEST("1"), EVENT, "", "noted");
    ck_assert_int_eq(
        database_int(worker, "SELECT count(*) FROM issuing.take_marks('" TOKEN "', 10, 60000, 'w', '{CARD_ISSUE}')"),
        0);
    database_run(owner, "UPDATE outbox_events SET status = 'COMPLETED', lease_token = NULL, lease_until = NULL");
    look_shows("frozen");
    card_is("frozen");
}

TEST(a_card_follows_what_look_ups_show_and_each_change_is_told)
{
    static const struct {
        const char *result, *status;
        int notifications;
    } rows[] = {{"frozen", "frozen", 1},  {"frozen", "frozen", 1},    {"ok", "active", 2},
                {"missing", "active", 2}, {"duplicate", "active", 2}, {"cancelled_at_issuer", "cancelled", 3},
                {"ok", "cancelled", 3}};
    database_run(owner, ROUTE);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        char digest[80];
        snprintf(digest, sizeof(digest), "decode(repeat('%zu', 64), 'hex')", i);
        notes(digest, EVENT, "", "noted");
        look_shows(rows[i].result);
        card_is(rows[i].status);
        ck_assert_int_eq(count("outbox_events WHERE event_type = 'CARD_STATUS_CHANGED'"), rows[i].notifications);
    }
    ck_assert_int_eq(count("operator_actions WHERE action = 'card_status'"), 3);
    char *actual = database_text(
        owner, "SELECT string_agg(concat_ws(' ', payload ->> 'type', payload #>> '{data,id}', payload #>> "
               "'{data,previous_status}', payload #>> '{data,status}', user_id), ',' ORDER BY id) FROM "
               "outbox_events WHERE event_type = 'CARD_STATUS_CHANGED'");
    ck_assert_str_eq(actual, "card.status_changed " CARD " active frozen alice,card.status_changed " CARD
                             " frozen active alice,card.status_changed " CARD " active cancelled alice");
    free(actual);
}

TEST(without_a_route_or_a_completed_request_nothing_is_told)
{
    database_run(owner, "UPDATE cards SET status = 'frozen'");
    ck_assert_int_eq(count("outbox_events"), 1);
    database_run(
        owner,
        ROUTE "UPDATE outbox_events SET status = 'REJECTED', reason_code = 'x'; UPDATE cards SET status = 'cancelled'");
    ck_assert_int_eq(count("outbox_events"), 1);
}

/* The time of one change is not before that of the one before, whatever the clock does. */
TEST(the_ids_of_one_card_rise_when_the_clock_is_set_back)
{
    database_run(owner,
                 ROUTE "SET session_replication_role = replica; "
                       "INSERT INTO outbox_events (id, event_type, user_id, payload) "
                       "SELECT uuid7_of((date_part('epoch', now() + interval '1 h') * 1000000)::int8), "
                       "'CARD_STATUS_CHANGED', 'alice', jsonb_build_object('data', jsonb_build_object('id', '" CARD
                       "')); RESET session_replication_role; UPDATE cards SET status = 'frozen'");
    ck_assert_int_eq(database_int(owner,
                                  "SELECT (SELECT payload #>> '{data,status}' FROM outbox_events WHERE event_type = "
                                  "'CARD_STATUS_CHANGED' ORDER BY id DESC LIMIT 1) = 'frozen'"),
                     1);
}

TEST(a_replaced_card_and_one_whose_event_is_gone)
{
    database_run(owner, "UPDATE cards SET status = 'replaced'");
    notes(DIGEST("1"), EVENT, "", "noted");
    look_shows("ok");
    card_is("replaced");
    database_run(owner, "UPDATE cards SET status = 'active'; DELETE FROM outbox_events");
    notes(DIGEST("2"), NULL, "ic_1", "noted");
    char *row = database_text(worker, "SELECT concat_ws(' ', status, user_id, card_status, issuer_card_id) FROM "
                                      "issuing.take_marks('" TOKEN "', 10, 60000, 'w', '{CARD_ISSUE}')");
    ck_assert_str_eq(row, "COMPLETED alice active ic_1");
    free(row);
    database_run(owner, "UPDATE marks SET due_at = now() WHERE finished_at IS NULL");
    look_shows("cancelled_at_issuer");
    card_is("cancelled");
}

TEST(what_is_a_day_old_is_forgotten)
{
    notes(DIGEST("1"), EVENT, "", "noted");
    notes(DIGEST("2"), EVENT, "", "noted");
    database_run(owner, "UPDATE issuer_events SET at = now() - interval '25 h' WHERE digest = " DIGEST("1"));
    database_run(owner, "SELECT expire_default('issuer_events', 'r.at < $1', now() - interval '1 day')");
    ck_assert_int_eq(count("issuer_events"), 1);
}

TESTS_BETWEEN(issuer_events, set_up, tear_down)
