/* The story: users are divided over places, and nothing of a user is in two of them. A row in a foreign place would be a
 * second card, a limit that counts half, or an event that no operator finds. Needs a database with several places: its
 * conninfo (keyword=value) in ISSUING_TEST_PLACES. */
#include <check.h>
#include <string.h>

#include "common/lib/pg/pg_place.h"
#include "database.h"
#include "tests/support/suite.h"

static struct pg_sync *db;

/* Users whose places are 0, 1, 2. */
static const char *const users[DATABASE_PLACES] = {"erin", "judy", "alice"};

static void set_up(void)
{
    db = database_open_places(NULL);
    database_run(db, "SET search_path = pg_catalog, issuing, pg_temp");
}

static void tear_down(void)
{
    pg_sync_close(db);
}

TEST(program_and_database_agree_on_the_place_of_every_user)
{
    for (int i = 0; i < 2000; i++) {
        char user[20];
        int length = snprintf(user, sizeof(user), "user-%d", i);
        ck_assert_int_eq(database_int(db, "SELECT issuing.place_of('%s')", user),
                         pg_place_of(user, (size_t)length, DATABASE_PLACES));
    }
    for (int place = 0; place < DATABASE_PLACES; place++)
        ck_assert_int_eq(pg_place_of(users[place], strlen(users[place]), DATABASE_PLACES), place);
}

static const char *const rows_of_a_user[] = {
    "issuing_p%d.outbox_events (user_id, payload) VALUES ('%s', '{\"kind\": \"new\"}')",
    "issuing_p%d.idempotency_keys (event_id, created_at, user_id, key, fingerprint) VALUES (gen_random_uuid(), now(), "
    "'%s', 'k', '')",
    "issuing_p%d.rate_limit_log (at, request_id, accepted, user_id) VALUES (now(), gen_random_uuid(), true, '%s')",
    "issuing_p%d.cards (id, request_id, exp_month, exp_year, user_id, issuer_card_id, last4) VALUES "
    "(gen_random_uuid(), gen_random_uuid(), 1, 2030, '%s', 'i', '1111')",
};

TEST(a_place_takes_no_row_of_a_user_of_another_place)
{
    for (size_t i = 0; i < ARRAY_SIZE(rows_of_a_user); i++)
        for (int place = 0; place < DATABASE_PLACES; place++)
            for (int of_user = 0; of_user < DATABASE_PLACES; of_user++) {
                struct err err = {.kind = ERR_NONE};
                char row[300], text[400];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
                snprintf(row, sizeof(row), rows_of_a_user[i], place, users[of_user]);
#pragma GCC diagnostic pop
                snprintf(text, sizeof(text), "BEGIN; INSERT INTO %s; ROLLBACK", row);
                bool is_done = pg_sync_exec(db, text, &err);
                ck_assert_msg(is_done == (place == of_user), "%s: %s", text, is_done ? "taken" : err.message);
                ck_assert(is_done || err_is_sqlstate(&err, "23514"));
                if (!is_done)
                    database_run(db, "ROLLBACK");
            }
}

TEST(a_check_of_acceptance_finds_a_user_in_each_place)
{
    for (int place = 0; place < DATABASE_PLACES; place++)
        ck_assert_int_eq(database_int(db, "SELECT count(issuing_p%d.try_accept())", place), 0);
}

/* Returns the id, as text for a statement. */
static char *add_event(const char *user)
{
    database_exec(db, "INSERT INTO issuing_p%d.outbox_events (user_id, payload) VALUES ('%s', '{\"kind\": \"new\"}')",
                  pg_place_of(user, strlen(user), DATABASE_PLACES), user);
    char text[200];
    snprintf(text, sizeof(text), "SELECT id::text FROM outbox_events WHERE user_id = '%s' ORDER BY id DESC LIMIT 1",
             user);
    return database_text(db, text);
}

TEST(an_operator_needs_not_know_the_place_of_an_event)
{
    for (int place = 0; place < DATABASE_PLACES; place++) {
        char *id = add_event(users[place]);
        database_exec(db, "SELECT issuing.cancel('%s', NULL, 'not needed', 'me', NULL, NULL, 'a test')", id);
        ck_assert_int_eq(database_int(db,
                                      "SELECT count(*) FROM issuing_p%d.outbox_events WHERE id = '%s' AND status = "
                                      "'REJECTED'",
                                      place, id),
                         1);
        ck_assert_int_eq(database_int(db,
                                      "SELECT count(*) FROM issuing_p%d.operator_actions WHERE event_id = '%s' AND "
                                      "action = 'cancel'",
                                      place, id),
                         1);
        ck_assert_int_eq(database_int(db, "SELECT place FROM outbox_events WHERE id = '%s'", id), place);
        free(id);
    }
}

TEST(a_pause_is_for_all_places_and_in_the_audit_trail_once)
{
    ck_assert_int_eq(database_int(db, "SELECT count(issuing.control_target('pause_target', 'issuer', 'me', NULL, NULL, "
                                      "'a test'))"),
                     0);
    ck_assert_int_eq(database_int(db, "SELECT count(*) FROM operator_actions WHERE action = 'pause_target' AND "
                                      "before ->> 'paused_at' IS NULL AND after ->> 'paused_by' = 'me'"),
                     1);
    ck_assert_int_eq(database_int(db, "SELECT count(*) FROM target_controls WHERE paused_at IS NOT NULL"), 1);
    database_run(db, "SELECT issuing.control_target('resume_target', 'issuer', 'me', NULL, NULL, 'a test')");
}

TEST(events_of_services_go_to_the_places_of_their_users)
{
    database_run(db, "INSERT INTO senders (event_type, role, role_oid) VALUES ('PAYMENT_CHARGE', CURRENT_USER, "
                     "CURRENT_USER::regrole)");
    for (int place = 0; place < DATABASE_PLACES; place++)
        database_exec(db, "SELECT issuing.enqueue('PAYMENT_CHARGE', '%s', '{}')", users[place]);
    char text[400];
    char *ids = database_text(db, "SELECT issuing.enqueue_many('PAYMENT_CHARGE', '{alice,erin,judy,alice}', "
                                  "ARRAY['1', '2', '3', '4']::jsonb[])::text");
    snprintf(text, sizeof(text),
             "SELECT string_agg(e.user_id || ' ' || e.place, ', ' ORDER BY i.n) FROM unnest('%s'::uuid[]) WITH "
             "ORDINALITY AS i (id, n) JOIN outbox_events e ON e.id = i.id AND e.payload = to_jsonb(i.n)",
             ids);
    char *found = database_text(db, text);
    ck_assert_str_eq(found, "alice 2, erin 0, judy 1, alice 2");
    free(found);
    free(ids);
}

/* The same key for users of two places: one of them has it. */
TEST(the_key_of_a_sender_is_one_for_all_places)
{
    struct err err = {.kind = ERR_NONE};
    char text[200];
    database_run(
        db, "INSERT INTO senders (event_type, role, role_oid) VALUES ('REFUND', CURRENT_USER, CURRENT_USER::regrole)");
    char *first = database_text(db, "SELECT issuing.enqueue('REFUND', 'alice', '{}', 'once')::text");
    char *again = database_text(db, "SELECT issuing.enqueue('REFUND', 'alice', '{}', 'once')::text");
    ck_assert_str_eq(first, again);
    snprintf(text, sizeof(text), "SELECT issuing.enqueue('REFUND', 'erin', '{}', 'once')");
    ck_assert(!pg_sync_exec(db, text, &err));
    ck_assert_str_eq(err.sqlstate, "IS422");
    for (int place = 0; place < DATABASE_PLACES;
         place++) /* housekeeping, wherever it runs, keeps a key with an event */
        ck_assert_int_eq(database_int(db, "SELECT count(*) FROM issuing_p%d.forget_keys()", place), 0);
    database_run(db, "UPDATE event_keys SET created_at = now() - interval '10 days'");
    ck_assert_int_eq(database_int(db, "SELECT count(*) FROM issuing_p0.forget_keys()"), 0);
    free(first);
    free(again);
}

TEST(numbers_of_all_places_are_sealed_again_in_one_walk)
{
    for (int place = 0; place < DATABASE_PLACES; place++)
        for (int i = 0; i < 3; i++)
            database_exec(
                db,
                "INSERT INTO issuing_p%d.cards (id, request_id, exp_month, exp_year, user_id, issuer_card_id, "
                "last4, number_record) VALUES (gen_random_uuid(), gen_random_uuid(), 1, 2030, '%s', 'i', "
                "'1111', '\\x0100000007' || decode(repeat('00', 40), 'hex'))",
                place, users[place]);
    ck_assert_int_eq(database_int(db, "SELECT records FROM issuing.number_keys() WHERE key_id = 7"),
                     3 * DATABASE_PLACES);
    int taken = 0, steps = 0;
    char *after = strdup("NULL, NULL");
    while (after) {
        char text[900];
        snprintf(text, sizeof(text),
                 "SELECT count(id)::int8, max(quote_literal(looked_at_user) || ', ' || quote_literal(looked_at_card)), "
                 "issuing.rewrap_put(array_agg(id) FILTER (WHERE id IS NOT NULL), array_agg(user_id) FILTER (WHERE id "
                 "IS NOT NULL), array_agg(number_record) FILTER (WHERE id IS NOT NULL), array_agg(set_byte("
                 "number_record, 4, 9)) FILTER (WHERE id IS NOT NULL), 'test') FROM issuing.rewrap_take(%s, 9, 2)",
                 after);
        struct pg_rows *rows = database_rows(db, text);
        taken += (int)pg_int8(rows, 0, 0);
        ck_assert_int_eq(pg_int8(rows, 0, 2), pg_int8(rows, 0, 0));
        free(after);
        struct slice looked_at = pg_bytes(rows, 0, 1);
        after = looked_at.bytes ? strndup(looked_at.bytes, looked_at.length) : NULL;
        pg_rows_free(rows);
        ck_assert_int_lt(++steps, 30);
    }
    free(after);
    ck_assert_int_eq(taken, 3 * DATABASE_PLACES);
    ck_assert_int_eq(database_int(db, "SELECT records FROM issuing.number_keys() WHERE key_id = 9"),
                     3 * DATABASE_PLACES);
}

TESTS_BETWEEN(places, set_up, tear_down)
