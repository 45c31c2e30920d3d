/* The story: two databases that both take the requests of a user would make two cards of one, and count half of his
 * limit each. So a place is served by one database at most: what the old one has released it refuses, whoever writes and
 * by whichever way, and the new one serves only what was released for it. Each test is one transaction that is rolled
 * back. Needs a database with several places, whose cluster_name is "issuing-private". */
#include <check.h>
#include <string.h>

#include "database.h"
#include "tests/support/suite.h"

#define WHO "'me', NULL, NULL, 'a test'"

static struct pg_sync *db;

static void set_up(void)
{
    db = database_open_places(NULL);
    database_run(db, "SET search_path = pg_catalog, issuing, pg_temp; SET datestyle = 'ISO'; BEGIN");
    database_run(db, "INSERT INTO issuing.senders (event_type, role, role_oid) VALUES ('PAYMENT_FENCE', CURRENT_USER, "
                     "CURRENT_USER::regrole)");
    database_run(db, "INSERT INTO issuing_p1.outbox_events (id, user_id, payload) VALUES "
                     "('01900000-0000-7000-8000-000000000001', 'judy', '{\"kind\": \"new\"}')");
    for (int place = 0; place < 2; place++) /* something to fold */
        database_exec(db,
                      "INSERT INTO issuing_p%d.statistics_changes (ended_at, event_type, status, reason_code, "
                      "created_ats, count) VALUES (now(), 'X', 'COMPLETED', '', ARRAY[now()], 1)",
                      place);
}

static void tear_down(void)
{
    database_run(db, "ROLLBACK");
    pg_sync_close(db);
}

static void assert_sqlstate(const char *text, const char *sqlstate)
{
    struct err err = {.kind = ERR_NONE};
    database_run(db, "SAVEPOINT before");
    bool is_done = pg_sync_exec(db, text, &err);
    ck_assert_msg(sqlstate ? !is_done && err_is_sqlstate(&err, sqlstate) : is_done, "%s: %s %s", text,
                  is_done ? "done" : err.sqlstate, is_done ? "" : err.message);
    database_run(db, "ROLLBACK TO before");
}

/* "" = done. */
static void assert_told(const char *text, const char *told)
{
    char *why = database_text(db, text);
    ck_assert_msg(told[0] ? strstr(why, told) != NULL : why[0] == '\0', "%s: \"%s\"", text, why);
    free(why);
}

static void release(const char *states)
{
    static const char *const steps[] = {"leaving", "closing", "released"};
    assert_told("SELECT coalesce(release_places(1, 1, 'other', " WHO "), '')", "");
    for (size_t i = 1; i < ARRAY_SIZE(steps) && strcmp(steps[i - 1], states) != 0; i++) {
        char text[200];
        snprintf(text, sizeof(text), "SELECT coalesce(move_places(1, 1, '%s', '%s'), '')", steps[i - 1], steps[i]);
        assert_told(text, "");
    }
    ck_assert_int_eq(database_int(db, "SELECT count(*) FROM place_states WHERE place = 1 AND state = '%s'", states), 1);
}

/* All ways to change what is in a place: SCHEMA, of which USER is one. */
static const char *const ways_to_write[] = {
    "SELECT SCHEMA.accept(ARRAY[gen_random_uuid()], ARRAY['USER'], ARRAY['k'], ARRAY[sha256('')], ARRAY['{\"kind\": "
    "\"new\"}'], ARRAY[NULL], ARRAY[NULL], 1, '1 s', false, '1 h')",
    "SELECT SCHEMA.claim(gen_random_uuid(), 5, 30000, 'w', NULL, 100, false, 'CARD_ISSUE', false, 'generic', "
    "'https://i', 'oldest', NULL, NULL)",
    "SELECT SCHEMA.save(ARRAY[gen_random_uuid()], ARRAY[gen_random_uuid()], ARRAY[gen_random_uuid()], ARRAY['i'], "
    "ARRAY['1111'], ARRAY[1], ARRAY[2030], ARRAY[NULL]::bytea[], ARRAY[NULL]::uuid[])",
    "SELECT SCHEMA.complete(ARRAY[gen_random_uuid()], ARRAY[gen_random_uuid()], 'w', ARRAY[1], 'link', ARRAY[NULL])",
    "SELECT SCHEMA.end_attempts(ARRAY[]::SCHEMA.attempt_end[], 'w')",
    "UPDATE SCHEMA.outbox_events SET lease_token = NULL WHERE false",
    "SELECT SCHEMA.fold_statistics(10)",
    "SELECT SCHEMA.keep_rows('1 h', '1 h', '1 d')",
    "SELECT SCHEMA.run_housekeeping('1 h', '1 h', '1 d', '1 h')",
    "SELECT SCHEMA.take_marks(gen_random_uuid(), 5, 1000, 'w', ARRAY['CARD_ISSUE'])",
    "SELECT SCHEMA.cancel('01900000-0000-7000-8000-000000000001', NULL, 'x', " WHO ")",
    "SELECT SCHEMA.enqueue('PAYMENT_FENCE', 'USER', '{}')",
    "SELECT issuing.enqueue('PAYMENT_FENCE', 'USER', '{}')",
    "SELECT issuing.enqueue_many('PAYMENT_FENCE', '{USER}', ARRAY['{}']::jsonb[])",
    "INSERT INTO SCHEMA.outbox_events (user_id, payload) VALUES ('USER', '{\"kind\": \"new\"}')",
    "UPDATE SCHEMA.cards SET updated_at = now()",
    "DELETE FROM SCHEMA.cards",
    "INSERT INTO SCHEMA.operator_actions (actor, action) VALUES ('a', 'b')",
    "SELECT SCHEMA.check_served()", /* of what is read for a user */
};

static void replace(char *text, size_t size, const char *word, const char *by)
{
    char *at;
    while ((at = strstr(text, word))) {
        char rest[600];
        snprintf(rest, sizeof(rest), "%s", at + strlen(word));
        snprintf(at, size - (size_t)(at - text), "%s%s", by, rest);
    }
}

static void write_all(int place, const char *user, const char *sqlstate)
{
    for (size_t i = 0; i < ARRAY_SIZE(ways_to_write); i++) {
        char schema[20], text[600];
        snprintf(schema, sizeof(schema), "issuing_p%d", place);
        snprintf(text, sizeof(text), "%s", ways_to_write[i]);
        replace(text, sizeof(text), "SCHEMA", schema);
        replace(text, sizeof(text), "USER", user);
        if (!strstr(text, ".cancel(") || (sqlstate && place == 1)) /* the one event is for that */
            assert_sqlstate(text, sqlstate);
    }
}

START_TEST(a_place_that_is_released_is_refused_from_the_first_step_on)
{
    static const char *const states[] = {"leaving", "closing", "released"};
    write_all(1, "judy", NULL);
    release(states[_i]);
    write_all(1, "judy", "ISPLC");
    write_all(0, "erin", NULL);
}

TEST(a_copy_under_another_name_serves_nothing)
{
    release("released");
    database_run(db, "UPDATE place_states SET owner = 'original'");
    write_all(0, "erin", "ISPLC");
    write_all(1, "judy", "ISPLC");
}

/* A table that is new and forgotten would be a hole in the fence. */
TEST(every_table_of_a_place_is_fenced_or_written_with_one_that_is)
{
    char *open = database_text(
        db, "SELECT string_agg(c.relname, ' ' ORDER BY c.relname) FROM pg_class c "
            "WHERE c.relnamespace = 'issuing_p1'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition "
            "AND NOT EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = c.oid AND t.tgname = 'of_this_database')");
    ck_assert_str_eq(
        open, "default_scans housekeeping_clock idempotency_keys job_locks lock_salt outbox_attempts outbox_statistics "
              "partition_plans partitions rate_limit_log statistics_changes");
    free(open);
}

TEST(a_release_names_a_database_that_can_be_told_apart)
{
    assert_told("SELECT release_places(1, 1, '', " WHO ")", "cluster_name");
    assert_told("SELECT release_places(1, 1, current_setting('cluster_name'), " WHO ")", "cluster_name");
    assert_told("SELECT release_places(0, 2, 'other', " WHO ")", "no place would be left here");
    release("released");
    assert_told("SELECT release_places(1, 1, 'third', " WHO ")", "place 1 is released");
    assert_told("SELECT release_places(0, 1, 'third', " WHO ")", "place 1 is released");
    assert_told("SELECT coalesce(release_places(1, 1, 'other', " WHO "), '')", "");
    assert_told("SELECT release_places(0, 2, 'other', " WHO ")", "no place would be left here");
    assert_sqlstate("SELECT release_places(2, 2, 'other', '', NULL, NULL, 'why')", "22023");
}

TEST(a_release_is_taken_back_only_before_it_can_have_been_taken)
{
    assert_told("SELECT coalesce(undo_release(1, 1, " WHO "), '')", "");
    release("leaving");
    assert_told("SELECT coalesce(undo_release(1, 1, " WHO "), '')", "");
    write_all(1, "judy", NULL);
    release("closing");
    assert_told("SELECT undo_release(1, 1, " WHO ")", "may have been taken");
    assert_told("SELECT coalesce(move_places(1, 1, 'closing', 'released'), '')", "");
    assert_told("SELECT undo_release(1, 1, " WHO ")", "may have been taken");
    assert_told("SELECT move_places(0, 0, 'leaving', 'closing')", "place 0 is served");
}

/* As the promoted replica sees it: the rows are the old database's, the name is its own. */
TEST(only_what_was_released_for_this_database_is_taken)
{
    assert_told("SELECT coalesce(take_places(0, 0, " WHO "), '')", "");
    release("leaving");
    database_run(db, "UPDATE place_states SET owner = 'old'; UPDATE place_states SET next_owner = 'issuing-private' "
                     "WHERE place = 1");
    assert_told("SELECT take_places(1, 1, " WHO ")", "only the beginning of its release");
    database_run(db, "UPDATE place_states SET state = 'closing' WHERE place = 1");
    assert_told("SELECT take_places(1, 1, " WHO ")", "only the beginning of its release");
    assert_told("SELECT take_places(0, 0, " WHO ")", "was not released");
    database_run(db, "UPDATE place_states SET state = 'released', next_owner = 'third' WHERE place = 1");
    assert_told("SELECT take_places(1, 1, " WHO ")", "was released for the database \"third\"");
    database_run(db, "UPDATE place_states SET next_owner = 'issuing-private' WHERE place = 1");
    assert_told("SELECT take_places(1, 2, " WHO ")", "place 2 was not released");
    write_all(1, "judy", "ISPLC");
    assert_told("SELECT coalesce(take_places(1, 1, " WHO "), '')", "");
    write_all(1, "judy", NULL);
    write_all(0, "erin", "ISPLC");
    assert_told("SELECT coalesce(take_places(1, 1, " WHO "), '')", "");
    ck_assert_int_eq(database_int(db, "SELECT count(*) FROM issuing_p1.operator_actions WHERE action = 'take_place'"),
                     1);
}

TEST(a_place_that_may_be_served_here_is_not_dropped)
{
    assert_sqlstate("SELECT drop_place(1, " WHO ")", "55000");
    release("closing");
    assert_sqlstate("SELECT drop_place(1, " WHO ")", "55000");
    database_run(db, "SELECT move_places(1, 1, 'closing', 'released')");
    assert_sqlstate("SELECT drop_place(0, " WHO ")", "55000");
}

/* One that has only read may write next. */
TEST(transactions_under_way_are_seen_until_they_end)
{
    struct pg_sync *other = database_open_places("issuing_api");
    database_run(other, "BEGIN; SELECT FROM issuing.place_states");
    char *names = database_text(db, "SELECT array_to_string(transactions_now(), ' ')");
    char text[2000];
    snprintf(text, sizeof(text),
             "SELECT count(*) FROM unnest(transactions_now()) t WHERE t = ANY (string_to_array('%s', ' '))", names);
    ck_assert_int_eq(database_int(db, "%s", text), 1);
    database_run(other, "ROLLBACK; BEGIN");
    ck_assert_int_eq(database_int(db, "%s", text), 0);
    pg_sync_close(other);
    free(names);
}

SUITE(fence)
{
    TCase *tcase = tcase_create("fence");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_loop_test(tcase, a_place_that_is_released_is_refused_from_the_first_step_on, 0, 3);
    ADD_TESTS(tcase);
    suite_add_tcase(suite, tcase);
}
