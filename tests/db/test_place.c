/* The story: two databases that both take the requests of a user would make two cards of one, and count half of the
 * limit each. So a database takes the users of its own place only, and a server writes only what it is the home of,
 * whoever writes and by whichever way. Each test is one transaction that is rolled back. */
#include <check.h>
#include <string.h>

#include "common/core/place.h"
#include "common/lib/pg/pg_place.h"
#include "database.h"
#include "tests/support/suite.h"

#define IDS 10000
#define WHO "'me', NULL, NULL, 'a test'"

static struct pg_sync *db;

static void set_up(void)
{
    db = database_open(NULL);
    database_run(db,
                 "SET search_path = pg_catalog, issuing, pg_temp; BEGIN; DELETE FROM outbox_events; DELETE FROM cards;"
                 "DELETE FROM idempotency_keys");
}

static void tear_down(void)
{
    database_run(db, "ROLLBACK");
    pg_sync_close(db);
}

/* expected NULL = done. */
static void assert_refused(const char *text, const char *sqlstate, const char *expected)
{
    struct err err = {.kind = ERR_NONE};
    database_run(db, "SAVEPOINT before");
    bool is_done = pg_sync_exec(db, text, &err);
    ck_assert_msg(expected ? !is_done && err_is_sqlstate(&err, sqlstate) && strstr(err.message, expected) : is_done,
                  "%s: %s %s", text, is_done ? "done" : err.sqlstate, is_done ? "" : err.message);
    database_run(db, "ROLLBACK TO before");
}

static void assert_answer(const char *text, const char *expected)
{
    char *why = database_text(db, text);
    ck_assert_msg(expected ? why && strstr(why, expected) : !why, "%s: \"%s\"", text, why ? why : "done");
    free(why);
}

static void become(int place, int places)
{
    char text[80];
    snprintf(text, sizeof(text), "SELECT become_place(%d, %d)", place, places);
    assert_answer(text, NULL);
}

/* 1 to 128 bytes of UTF-8, backslashes and quotes among them. */
static size_t make_id(int number, char *ret_id)
{
    static const char *const pieces[] = {"a",       "\\", "'", "7", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x92\xb3",
                                         "\\\\x41", "-"};
    unsigned seed = (unsigned)number;
    size_t length = (size_t)sprintf(ret_id, "%d", number), most = (size_t)(number % 120);
    while (length < most) {
        seed = seed * 1103515245 + 12345;
        length += (size_t)sprintf(ret_id + length, "%s", pieces[seed / 65536 % ARRAY_SIZE(pieces)]);
    }
    return length;
}

TEST(the_api_and_the_database_find_the_same_place)
{
    static const struct sql_statement statement = {.name = "of_a_test",
                                                   .text = "SELECT issuing.place_of(u, $2::int8::int4)::int8 FROM "
                                                           "unnest($1::text[]) WITH ORDINALITY x (u, n) ORDER BY n",
                                                   .shape = SQL_MANY,
                                                   .parameters = 2};
    static const int counts[] = {1, 2, 3, 8, 60, 64};
    struct buf buf;
    struct pg_array ids;
    char id[200];
    buf_init(&buf, 4 * 1024 * 1024);
    pg_array_start(&ids, &buf, PG_TEXT);
    for (int i = 0; i < IDS; i++)
        pg_array_add(&ids, id, make_id(i, id));
    for (size_t at = 0; at < ARRAY_SIZE(counts); at++) {
        const struct pg_param params[] = {pg_array_param(&ids), pg_param_int8(counts[at])};
        struct pg_rows *rows = database_query(db, &statement, params);
        ck_assert_int_eq(pg_rows_count(rows), IDS);
        for (int i = 0; i < IDS; i++)
            ck_assert_int_eq(pg_int8(rows, i, 0), place_of_user(id, make_id(i, id), counts[at]));
        pg_rows_free(rows);
    }
    buf_done(&buf);
}

/* user-1 is of place 2. */
TEST(a_place_takes_no_request_of_a_user_of_another_place)
{
    become(1, 4);
    assert_refused("SELECT accept(ARRAY[gen_random_uuid()], ARRAY['user-1'], ARRAY['k'], ARRAY[sha256('')], "
                   "ARRAY['{\"kind\": \"new\"}'], ARRAY[NULL], ARRAY[NULL], 1, '1 s', true, '1 h')",
                   "ISUSR", "this is place 1 of 4, and the user is one of place 2");
    assert_answer("SELECT try_accept()", NULL);
}

TEST(a_place_takes_the_requests_of_its_own_users)
{
    become(2, 4);
    assert_refused("SELECT accept(ARRAY[gen_random_uuid()], ARRAY['user-1'], ARRAY['k'], ARRAY[sha256('')], "
                   "ARRAY['{\"kind\": \"new\"}'], ARRAY[NULL], ARRAY[NULL], 1, '1 s', true, '1 h')",
                   "", NULL);
    assert_answer("SELECT try_accept()", NULL);
}

TEST(a_database_is_one_place_for_ever)
{
    become(1, 4);
    become(1, 4);
    assert_answer("SELECT become_place(2, 4)", "this database is place 1 of 4 for ever");
    assert_answer("SELECT become_place(1, 8)", "this database is place 1 of 4 for ever");
    assert_answer("SELECT become_place(0, 1)", "this database is place 1 of 4 for ever");
    ck_assert_int_eq(database_int(db, "SELECT count(*) FROM place WHERE number = 1 AND places = 4"), 1);
}

TEST(a_database_with_users_stays_the_only_place)
{
    database_run(db, "INSERT INTO outbox_events (user_id, payload) VALUES ('u', '{\"kind\": \"new\"}')");
    assert_answer("SELECT become_place(0, 2)", "this database has users already");
    become(0, 1);
    ck_assert_int_eq(database_int(db, "SELECT count(*) FROM place"), 0);
}

/* A table that is new and forgotten would be a hole in the fence. */
TEST(every_table_of_a_place_is_fenced)
{
    become(0, 2);
    database_run(db, "CREATE TABLE issuing.one_more (n int)");
    become(0, 2);
    assert_answer("SELECT string_agg(c.relname, ' ' ORDER BY c.relname) FROM pg_class c "
                  "WHERE c.relnamespace = 'issuing'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition "
                  "AND NOT EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = c.oid AND t.tgname = 'at_home')",
                  "place schema_migration");
    database_run(db, "UPDATE place SET home = 'east'");
    assert_refused("INSERT INTO issuing.one_more VALUES (1)", "ISPLC", "place 0 is served by \"east\"");
}

/* Each is a way by which something of a place is written. */
static const char *const doors[] = {
    "SELECT accept(ARRAY[gen_random_uuid()], ARRAY['user-1'], ARRAY['k'], ARRAY[sha256('')], ARRAY['{\"kind\": "
    "\"new\"}'], "
    "ARRAY[NULL], ARRAY[NULL], 1, '1 s', false, '1 h')",
    "SELECT claim(gen_random_uuid(), 5, 30000, 'w', NULL, 100, false, 'CARD_ISSUE', false, 'generic', 'https://i', "
    "'oldest', NULL, NULL)",
    "SELECT save(ARRAY[gen_random_uuid()], ARRAY[gen_random_uuid()], ARRAY[gen_random_uuid()], ARRAY['i'], "
    "ARRAY['1111'], "
    "ARRAY[1], ARRAY[2030], ARRAY[NULL]::bytea[], ARRAY[NULL]::uuid[])",
    "SELECT complete(ARRAY[gen_random_uuid()], ARRAY[gen_random_uuid()], 'w', ARRAY[1], 'link', ARRAY[NULL])",
    "SELECT end_attempts(ARRAY[]::attempt_end[], 'w')",
    "UPDATE outbox_events SET lease_token = NULL WHERE false",
    "SELECT fold_statistics(10)",
    "SELECT take_marks(gen_random_uuid(), 5, 1000, 'w', ARRAY['CARD_ISSUE'])",
    "SELECT cancel('01900000-0000-7000-8000-000000000001', NULL, 'x', " WHO ")",
    "SELECT enqueue('PAYMENT_FENCE', 'user-1', '{}')",
    "SELECT enqueue_many('PAYMENT_FENCE', '{user-1}', ARRAY['{}']::jsonb[])",
    "INSERT INTO outbox_events (user_id, payload) VALUES ('user-1', '{\"kind\": \"new\"}')",
    "UPDATE cards SET updated_at = now()",
    "DELETE FROM cards",
    "TRUNCATE marks",
    "INSERT INTO operator_actions (actor, action) VALUES ('a', 'b')",
};

START_TEST(a_server_that_is_not_the_home_writes_by_no_way)
{
    database_run(db, "INSERT INTO senders (event_type, role, role_oid) VALUES ('PAYMENT_FENCE', CURRENT_USER, "
                     "CURRENT_USER::regrole)");
    become(2, 4);
    database_run(db, "INSERT INTO outbox_events (id, user_id, payload) VALUES "
                     "('01900000-0000-7000-8000-000000000001', 'user-1', '{\"kind\": \"new\"}');"
                     "INSERT INTO statistics_changes (ended_at, event_type, status, reason_code, created_ats, count) "
                     "VALUES (now(), 'X', 'COMPLETED', '', ARRAY[now()], 1)");
    assert_refused(doors[_i], "", NULL);
    database_run(db, "UPDATE place SET home = 'east'");
    assert_refused(doors[_i], "ISPLC", "place 2 is served by \"east\"");
}

/* What a program does with it. */
TEST(a_session_knows_which_place_it_has)
{
    char text[PG_FAULT_SIZE];
    struct pg_rows *rows = database_query(db, &sql_schema_version, NULL);
    ck_assert_int_eq(pg_place_check(rows, 0, 1, text), PG_PLACE_FITS);
    ck_assert_int_eq(pg_place_check(rows, 0, 4, text), PG_PLACE_WRONG);
    ck_assert_str_eq(text, "the database is place 0 of 1, and not place 0 of 4: see database.url and database.places");
    pg_rows_free(rows);
    become(2, 4);
    rows = database_query(db, &sql_schema_version, NULL);
    ck_assert_int_eq(pg_place_check(rows, 2, 4, text), PG_PLACE_FITS);
    ck_assert_int_eq(pg_place_check(rows, 1, 4, text), PG_PLACE_WRONG);
    ck_assert_int_eq(pg_place_check(rows, 2, 8, text), PG_PLACE_WRONG);
    ck_assert_int_eq(pg_place_check(rows, 0, 1, text), PG_PLACE_WRONG);
    pg_rows_free(rows);
    database_run(db, "UPDATE place SET home = 'east'");
    rows = database_query(db, &sql_schema_version, NULL);
    ck_assert_int_eq(pg_place_check(rows, 2, 4, text), PG_PLACE_ELSEWHERE);
    ck_assert_ptr_nonnull(strstr(text, "place 2 is served by \"east\""));
    pg_rows_free(rows);
}

TEST(a_place_moves_to_a_server_that_can_be_told_apart)
{
    assert_answer("SELECT move_place('east', NULL, " WHO ")", "this database is the only place");
    become(2, 4);
    assert_answer("SELECT move_place('', NULL, " WHO ")", "cluster_name tells servers apart");
    assert_answer("SELECT move_place(current_setting('cluster_name'), NULL, " WHO ")",
                  "cluster_name tells servers apart");
    assert_answer("SELECT move_place('east', NULL, " WHO ")", NULL);
    assert_answer("SELECT move_place('east', NULL, " WHO ")", NULL);
    assert_answer("SELECT move_place('north', NULL, " WHO ")", "place 2 is served by \"east\"");
    assert_answer("SELECT take_place_back(true, " WHO ")", "place 2 has a home, \"east\"");
    assert_answer("SELECT take_place_back(false, " WHO ")", NULL);
    assert_refused("DELETE FROM cards", "ISPLC", "place 2 is served by \"\"");
    assert_answer("SELECT take_place_back(true, " WHO ")", NULL);
    assert_answer("SELECT take_place_back(false, " WHO ")", "did not leave");
    ck_assert_int_eq(database_int(db, "SELECT count(*) FROM operator_actions WHERE action IN ('move_place', "
                                      "'take_place_back')"),
                     2);
    ck_assert_int_eq(database_int(db, "SELECT home = current_setting('cluster_name') FROM place"), 1);
}

SUITE(place)
{
    TCase *tcase = tcase_create("place");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    ADD_TESTS(tcase);
    tcase_add_loop_test(tcase, a_server_that_is_not_the_home_writes_by_no_way, 0, ARRAY_SIZE(doors));
    suite_add_tcase(suite, tcase);
}
