/* Story: a service that may send one type of events sends the end of a card request in our name, or cards without a
 * limit; or it sends in the name of another role; or its client repeats a request, and it is charged twice. Needs a
 * database: its conninfo (keyword=value) in ISSUING_TEST_DATABASE. */
#include "tests/db/database.h"

#include "statements.h"
#include "tests/support/suite.h"

#define TAKE "SELECT issuing.enqueue('CHARGE', 'alice', '{\"a\": 1}'"

static struct pg_sync *owner, *shop, *other;

static void set_up(void)
{
    owner = database_open(NULL);
    database_run(owner, "TRUNCATE outbox_events, event_keys, senders, operator_actions; DO $$ BEGIN "
                        "CREATE ROLE enqueue_shop; CREATE ROLE enqueue_other; CREATE ROLE enqueue_group; "
                        "EXCEPTION WHEN duplicate_object THEN NULL; END $$; "
                        "DROP SCHEMA IF EXISTS of_shop CASCADE; CREATE SCHEMA of_shop AUTHORIZATION enqueue_shop; "
                        "SELECT change_sender('add_sender', 'enqueue_shop', 'CHARGE', 'a', 'o', NULL, 'why'), "
                        "change_sender('add_sender', 'enqueue_other', 'MAIL', 'a', 'o', NULL, 'why')");
    shop = database_open("enqueue_shop");
    other = database_open("enqueue_other");
    database_run(other, "SET lock_timeout = '50ms'");
}

static void tear_down(void)
{
    pg_sync_closep(&shop);
    pg_sync_closep(&other);
    database_run(owner, "DROP OWNED BY enqueue_shop, enqueue_other, enqueue_group CASCADE; "
                        "DROP ROLE enqueue_shop, enqueue_other, enqueue_group");
    pg_sync_closep(&owner);
}

/* The statement fails with this SQLSTATE and these words. */
static void expect_refused(struct pg_sync *db, const char *sqlstate, const char *words, const char *text)
{
    struct err err = {.kind = ERR_NONE};
    ck_assert_msg(!pg_sync_exec(db, text, &err), "it is done: %s", text);
    ck_assert_msg(strcmp(err.sqlstate, sqlstate) == 0, "%s: %s\n%s", err.sqlstate, err.message, text);
    ck_assert_msg(strstr(err.message, words) != NULL, "%s\n%s", err.message, text);
}

static int64_t events(const char *condition)
{
    return database_int(owner, "SELECT count(*) FROM outbox_events e WHERE %s", condition);
}

static void expect_same(struct pg_sync *db, const char *first, const char *second, bool is_same)
{
    char *left = database_text(db, first), *right = database_text(db, second);
    ck_assert_msg((strcmp(left, right) == 0) == is_same, "%s and %s", left, right);
    free(left);
    free(right);
}

TEST(a_role_sends_the_types_that_it_was_added_for)
{
    database_run(shop, TAKE ")");
    expect_refused(shop, "42501", "role enqueue_shop may not send events of type MAIL",
                   "SELECT issuing.enqueue('MAIL', 'alice', '{}')");
    expect_refused(shop, "42501", "type CARD_ISSUE",
                   "SELECT issuing.enqueue('CARD_ISSUE', 'a', '{\"kind\": \"new\"}')");
    expect_refused(shop, "42501", "type CARD_REQUEST_ENDED", "SELECT issuing.enqueue('CARD_REQUEST_ENDED', 'a', '{}')");
    /* Which nobody may send: a hint to add the role for it would lead nowhere. */
    expect_refused(shop, "P0001", "only the end of a card request makes",
                   "DO $$ DECLARE hint text; BEGIN PERFORM issuing.enqueue('CARD_REQUEST_ENDED', 'a', '{}');"
                   " EXCEPTION WHEN insufficient_privilege THEN GET STACKED DIAGNOSTICS hint = PG_EXCEPTION_HINT;"
                   " RAISE '%', hint; END $$");
    expect_refused(shop, "42501", "type MAIL", "SELECT issuing.enqueue_many('MAIL', '{a}', ARRAY['{}'::jsonb])");
    expect_refused(shop, "42501", "permission denied",
                   "INSERT INTO issuing.outbox_events (event_type, user_id, payload) VALUES ('CHARGE', 'a', '{}')");
    database_run(owner, "SELECT change_sender('remove_sender', 'enqueue_shop', 'CHARGE', 'a', 'o', NULL, 'why')");
    expect_refused(shop, "42501", "permission denied", TAKE ")");
    ck_assert_int_eq(events("true"), 1);
}

TEST(who_calls_is_the_role_that_the_statement_runs_as)
{
    database_run(owner, "GRANT enqueue_group TO enqueue_other; "
                        "SELECT change_sender('add_sender', 'enqueue_group', 'CHARGE', 'a', 'o', NULL, 'why')");
    database_run(other, TAKE ")"); /* by its group */
    /* Anew, since from PostgreSQL 16 on a grant keeps what the role was when it was made. */
    database_run(owner, "REVOKE enqueue_group FROM enqueue_other; ALTER ROLE enqueue_other NOINHERIT; "
                        "GRANT enqueue_group TO enqueue_other");
    expect_refused(other, "42501", "enqueue_other", TAKE ")");
    database_run(owner, "ALTER ROLE enqueue_other INHERIT; REVOKE enqueue_group FROM enqueue_other");
    /* A function of another owner sends what that owner may send, and nobody else does through it. */
    database_run(shop, "CREATE FUNCTION of_shop.charge() RETURNS uuid LANGUAGE sql SECURITY DEFINER "
                       "BEGIN ATOMIC " TAKE "); END; "
                       "CREATE FUNCTION of_shop.mail() RETURNS uuid LANGUAGE sql SECURITY DEFINER "
                       "BEGIN ATOMIC SELECT issuing.enqueue('MAIL', 'alice', '{}'); END; "
                       "GRANT USAGE ON SCHEMA of_shop TO enqueue_other");
    database_run(other, "SELECT of_shop.charge()");
    expect_refused(other, "42501", "enqueue_shop may not send events of type MAIL", "SELECT of_shop.mail()");
    ck_assert_int_eq(events("true"), 2);
}

TEST(nobody_sends_in_the_name_of_another)
{
    expect_refused(shop, "23514", "caller", "SELECT issuing.enqueue('MAIL', 'a', '{}', caller => 'enqueue_other')");
    expect_refused(shop, "42501", "role null", "SELECT issuing.enqueue('MAIL', 'a', '{}', caller => NULL)");
    expect_refused(shop, "23514", "caller", "SELECT 'enqueue_other'::issuing.caller");
    /* A superuser's maintenance runs the code of whoever owns the table. */
    database_run(shop, "CREATE TABLE of_shop.trap (n int); INSERT INTO of_shop.trap VALUES (1); "
                       "CREATE FUNCTION of_shop.spring(n int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 1'; "
                       "CREATE INDEX ON of_shop.trap (of_shop.spring(n)); "
                       "CREATE OR REPLACE FUNCTION of_shop.spring(n int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS "
                       "$$ BEGIN PERFORM issuing.enqueue('MAIL', 'a', '{}'); RETURN 1; END $$");
    expect_refused(owner, "42501", "role enqueue_shop", "REINDEX TABLE of_shop.trap");
    ck_assert_int_eq(events("true"), 0);
}

TEST(an_unusable_value_is_named_with_its_limit)
{
    static const struct {
        const char *call, *words;
    } cases[] = {
        {"'pay', 'a', '{}'", "event_type 'pay' is not of the form [A-Z][A-Z0-9_]{0,63}"},
        {"E'CHARGE\\n', 'a', '{}'", "is not of the form"},
        {"'', 'a', '{}'", "event_type '' is not of the form"},
        {"NULL, 'a', '{}'", "event_type null is not of the form"},
        {"'CHARGE', '', '{}'", "user_id has 0 bytes, and may have 1 to 128"},
        {"'CHARGE', repeat('a', 129), '{}'", "user_id has 129 bytes, and may have 1 to 128"},
        {"'CHARGE', NULL, '{}'", "user_id is null"},
        {"'CHARGE', 'a', NULL", "payload is null"},
        {"'CHARGE', 'a', to_jsonb(repeat('x', 65535))", "payload has 65537 bytes as text, and may have 65536"},
        {"'CHARGE', 'a', '{}', ''", "key has 0 bytes, and may have 1 to 255"},
        {"'CHARGE', 'a', '{}', repeat('k', 256)", "key has 256 bytes, and may have 1 to 255"},
        {"'CHARGE', 'a', '{}', run_at => 'infinity'", "run_at is infinity, and may be 10 years ahead"},
    };
    char text[200];
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        snprintf(text, sizeof(text), "SELECT issuing.enqueue(%s)", cases[i].call);
        expect_refused(shop, "23514", cases[i].words, text);
    }
    expect_refused(shop, "23514", "1 payloads, 2 user_ids and no keys",
                   "SELECT issuing.enqueue_many('CHARGE', '{a,b}', ARRAY['{}'::jsonb])");
    database_run(shop, "SELECT issuing.enqueue('CHARGE', repeat('a', 128), to_jsonb(repeat('x', 65534)))");
}

/* Of ten thousand events one cannot be sent, and nobody could say which. */
TEST(one_bad_event_of_many_is_named_and_none_is_sent)
{
    static const struct {
        const char *users, *payloads, *keys, *words;
    } cases[] = {
        {"repeat('a', 129)", "'1'", "NULL", "event 7777: user_id has 129 bytes, and may have 1 to 128"},
        {"NULL", "'1'", "NULL", "event 7777: user_id is null"},
        {"'a'", "to_jsonb(repeat('x', 65535))", "NULL", "event 7777: payload has 65537 bytes as text"},
        {"'a'", "'1'", "repeat('k', 256)", "event 7777: key has 256 bytes, and may have 1 to 255"},
        {"'a'", "'1'", "'k7776'", "the key 'k7776' of type CHARGE was used for another event"},
    };
    char text[600];
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        snprintf(text, sizeof(text),
                 "SELECT issuing.enqueue_many('CHARGE', array_agg(CASE n WHEN 7777 THEN %s ELSE 'u' || n END), "
                 "array_agg(CASE n WHEN 7777 THEN %s ELSE to_jsonb(n) END), "
                 "array_agg(CASE n WHEN 7777 THEN %s ELSE 'k' || n END)) FROM generate_series(1, 10000) n",
                 cases[i].users, cases[i].payloads, cases[i].keys);
        expect_refused(shop, i == 4 ? "IS422" : "23514", cases[i].words, text);
    }
    ck_assert_int_eq(events("true"), 0);
}

/* Drivers make an array of two dimensions of a list of rows. As many keys, and none of them counted. */
TEST(an_array_of_another_form_loses_no_key)
{
    static const char *const arrays[] = {
        "'{a,b}', ARRAY['1'::jsonb, '2'], '{{k},{l}}'",
        "'{a,b}', ARRAY['1'::jsonb, '2'], '[0:1]={k,l}'",
        "'[0:1]={a,b}', ARRAY['1'::jsonb, '2'], '[0:1]={k,l}'",
        "'{{a,b}}', ARRAY['1'::jsonb, '2']",
        "'{a,b}', '[2:3]={1,2}'::jsonb[]",
    };
    char text[200];
    for (size_t i = 0; i < ARRAY_SIZE(arrays); i++) {
        snprintf(text, sizeof(text), "SELECT issuing.enqueue_many('CHARGE', %s)", arrays[i]);
        expect_refused(shop, "23514", "each must be [1:2]", text);
    }
}

TEST(a_key_is_one_event)
{
    expect_same(shop, TAKE ", 'k')::text", TAKE ", 'k', run_at => now() + '1 h')::text", true);
    expect_same(shop, TAKE ", 'k')::text", TAKE ", 'K')::text", false);
    expect_same(shop, TAKE ")::text", TAKE ")::text", false);
    ck_assert_int_eq(events("true"), 4);
    expect_refused(shop, "IS422", "the key 'k' of type CHARGE was used for another event",
                   "SELECT issuing.enqueue('CHARGE', 'alice', '{\"a\": 2}', 'k')");
    expect_refused(shop, "IS422", "'k'", "SELECT issuing.enqueue('CHARGE', 'bob', '{\"a\": 1}', 'k')");
    database_run(other, "SELECT issuing.enqueue('MAIL', 'alice', '{}', 'k')"); /* keys are of a type */
    /* What was rolled back is not there, its key neither. */
    database_run(shop, "BEGIN; " TAKE ", 'r'); ROLLBACK");
    database_run(shop, "SELECT issuing.enqueue('CHARGE', 'bob', '2', 'r')");
    ck_assert_int_eq(events("true"), 6);
}

TEST(of_two_transactions_with_a_key_one_waits)
{
    database_run(owner, "SELECT change_sender('add_sender', 'enqueue_other', 'CHARGE', 'a', 'o', NULL, 'why')");
    database_run(shop, "BEGIN; " TAKE ", 'k')");
    expect_refused(other, "55P03", "lock timeout", TAKE ", 'k')");
    database_run(other, TAKE ", 'l')");
    database_run(shop, "ROLLBACK; BEGIN; " TAKE ", 'k')");
    expect_refused(other, "55P03", "lock timeout", TAKE ", 'k')");
    database_run(shop, "COMMIT");
    expect_same(other, TAKE ", 'k')::text", TAKE ", 'k')::text", true);
    ck_assert_int_eq(events("true"), 2);
    /* With a snapshot from before, the answer is to try again. */
    database_run(other, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1");
    database_run(shop, TAKE ", 'm')");
    expect_refused(other, "40001", "could not serialize", TAKE ", 'm')");
    database_run(other, "ROLLBACK");
}

TEST(many_events_have_the_order_of_their_arrays)
{
    database_run(shop, "CREATE TABLE of_shop.sent (id uuid, n int8)");
    expect_refused(shop, "IS422", "'k1'",
                   "SELECT issuing.enqueue_many('CHARGE', '{a,b}', ARRAY['1'::jsonb, '2'], '{k1,k1}')");
    database_run(shop, "INSERT INTO of_shop.sent SELECT * FROM unnest(issuing.enqueue_many('CHARGE', "
                       "ARRAY(SELECT 'u' || n FROM generate_series(1, 50) n), "
                       "ARRAY(SELECT to_jsonb(n) FROM generate_series(1, 50) n), "
                       "ARRAY(SELECT CASE WHEN n < 25 THEN 'k' || 100 - n END FROM generate_series(1, 50) n))) "
                       "WITH ORDINALITY AS s (id, n)");
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM of_shop.sent s JOIN outbox_events e ON e.id = s.id AND "
                                         "e.user_id = 'u' || s.n AND e.payload = to_jsonb(s.n)"),
                     50);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM of_shop.sent s JOIN of_shop.sent t ON t.n = s.n + 1 "
                                         "WHERE t.id <= s.id"),
                     0);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM event_keys"), 24);
}

/* The clock of the database was two hours ahead when alice's last event was made, and is right now. */
START_TEST(a_step_of_the_clock_changes_no_order)
{
    static const char *const statuses[] = {"PENDING", "FAILED", "COMPLETED"};
    bool is_open = _i < 2;
    database_exec(owner,
                  "TRUNCATE routes, route_workers; SELECT note_routes('w', '{CHARGE}', '{%s}', '{f}', '{1}', '{1}', "
                  "'{f}')",
                  _i == 3 ? "f" : "t");
    database_exec(owner,
                  "INSERT INTO outbox_events (id, event_type, user_id, payload, status, reason_code) SELECT "
                  "uuid7_of((date_part('epoch', now()) * 1000000)::int8 + 7200000000), 'CHARGE', 'alice', '1', '%s', "
                  "'x'",
                  statuses[_i % 3]);
    database_run(shop, "CREATE TABLE of_shop.sent (id uuid, n int8); "
                       "INSERT INTO of_shop.sent SELECT issuing.enqueue('CHARGE', 'alice', '2'), 1; "
                       "INSERT INTO of_shop.sent SELECT s.id, s.n + 1 FROM unnest(issuing.enqueue_many('CHARGE', "
                       "'{bob,alice,alice}', ARRAY['3'::jsonb, '4', '5'])) WITH ORDINALITY AS s (id, n)");
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM of_shop.sent s JOIN of_shop.sent t ON t.n = s.n + 1 "
                                         "WHERE t.id <= s.id"),
                     0);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM of_shop.sent s WHERE s.id > (SELECT e.id FROM "
                                         "outbox_events e WHERE e.payload = '1')"),
                     is_open ? 4 : 0); /* what has ended holds nobody back */
    database_run(shop, "DROP TABLE of_shop.sent");
}

TEST(an_event_is_not_due_before_its_time_and_never_behind_the_claims)
{
    database_run(shop, TAKE ", run_at => now() + interval '1 h'); " TAKE ", run_at => '-infinity'); " TAKE ")");
    ck_assert_int_eq(events("e.due_at > now() + interval '59 min' AND e.updated_at <= clock_timestamp()"), 1);
    ck_assert_int_eq(events("e.due_at BETWEEN clock_timestamp() - interval '1 min' AND clock_timestamp()"), 2);
}

/* Nobody was there to take the plan back, and its range has begun. A sender that did so would hold the table until its
 * own transaction ends, and stop everybody. */
TEST(a_sender_is_told_to_try_again_and_locks_no_table_of_ours)
{
    static const char *const calls[] = {TAKE ")", "SELECT issuing.enqueue_many('CHARGE', '{bob}', '{\"{}\"}')"};
    database_run(owner,
                 "DO $$ DECLARE p text; BEGIN FOR p IN SELECT name FROM issuing.partitions LOOP "
                 "EXECUTE format('DROP TABLE issuing.%I', p); END LOOP; DELETE FROM issuing.partitions; END $$; "
                 "INSERT INTO issuing.partition_plans (parent, from_at, to_at, planned_at) VALUES "
                 "('outbox_events', now() - interval '1 min', now() + interval '1 h', now() - interval '1 day'); "
                 "SELECT issuing.default_promise(parent || '_default', from_at, to_at) FROM issuing.partition_plans");
    for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
        database_run(shop, "BEGIN");
        expect_refused(shop, "55P03", "being prepared", calls[i]);
        ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM pg_locks l WHERE l.mode = 'AccessExclusiveLock' AND "
                                             "l.relation = 'issuing.outbox_events_default'::regclass"),
                         0);
        database_run(shop, "ROLLBACK");
    }
    ck_assert_int_eq(events("true"), 0);
    database_run(owner, "SELECT issuing.withdraw_plans('infinity')");
    for (size_t i = 0; i < ARRAY_SIZE(calls); i++)
        database_run(shop, calls[i]);
    ck_assert_int_eq(events("true"), 2);
}

TEST(a_sender_sees_the_ends_of_its_own_events_only)
{
    static const char ends[] = "SELECT count(*)::int8 FROM (SELECT (issuing.end_of(id)).* FROM unnest(ARRAY(SELECT id "
                               "FROM of_shop.ids)) AS u (id)) s WHERE s.status IS NOT NULL";
    database_run(shop, "CREATE TABLE of_shop.ids (id uuid)");
    database_run(shop, "INSERT INTO of_shop.ids " TAKE ")");
    database_run(owner, "GRANT USAGE ON SCHEMA of_shop TO enqueue_other; GRANT SELECT ON of_shop.ids TO enqueue_other");
    ck_assert_int_eq(database_int(shop, "%s", ends), 1);
    ck_assert_int_eq(database_int(other, "%s", ends), 0);
    database_run(owner, "UPDATE outbox_events SET status = 'REJECTED', reason_code = 'no', result = '1'");
    ck_assert_int_eq(database_int(shop, "SELECT count(*) FROM of_shop.ids i, issuing.end_of(i.id) e WHERE e.status = "
                                        "'REJECTED' AND e.reason_code = 'no' AND e.result = '1'"),
                     1);
    /* Not those of clients, of any type. */
    database_run(owner, "SELECT change_sender('add_sender', 'enqueue_shop', 'CARD_ISSUE', 'a', 'o', NULL, 'why'); "
                        "INSERT INTO outbox_events (user_id, payload, idempotency_key) VALUES ('u', '{}', 'k'); "
                        "TRUNCATE of_shop.ids; INSERT INTO of_shop.ids SELECT id FROM outbox_events "
                        "WHERE idempotency_key = 'k'");
    ck_assert_int_eq(database_int(shop, "%s", ends), 0);
}

/* With the right that the documents once named, and more. */
TEST(the_table_itself_refuses_what_is_only_ours_and_what_no_route_can_have)
{
    static const struct {
        const char *values, *words;
    } cases[] = {
        {"('CARD_REQUEST_ENDED', 'a', '{}', NULL)", "event_type CARD_REQUEST_ENDED is only made by"},
        {"('CARD_REQUEST_ENDED', 'a', '{}', 'k')", "event_type CARD_REQUEST_ENDED is only made by"},
        {"('pay', 'a', '{}', NULL)", "event_type 'pay' is not of the form"},
        {"('pay', 'a', '{}', 'k')", "event_type 'pay' is not of the form"},
        {"(repeat('A', 65), 'a', '{}', NULL)", "AAA' is not of the form"},
        {"('CHARGE', repeat('a', 129), '{}', NULL)", "user_id has 129 bytes, and may have 1 to 128"},
        {"('CHARGE', 'a', to_jsonb(repeat('x', 70000)), NULL)", "payload has 70002 bytes as text, and may have 65536"},
    };
    char text[260];
    database_run(owner, "GRANT INSERT ON outbox_events TO enqueue_other");
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        snprintf(text, sizeof(text),
                 "INSERT INTO issuing.outbox_events (event_type, user_id, payload, idempotency_key) VALUES %s",
                 cases[i].values);
        expect_refused(other, "23514", cases[i].words, text);
    }
    expect_refused(other, "23514", "retry_count is 1000001, and may be 1000000",
                   "INSERT INTO issuing.outbox_events (user_id, payload, retry_count) VALUES ('a', '{}', 1000001)");
    /* A superuser is not our function either. */
    expect_refused(owner, "23514", "CARD_REQUEST_ENDED",
                   "INSERT INTO outbox_events (event_type, user_id, payload) VALUES ('CARD_REQUEST_ENDED', 'a', '{}')");
    database_run(owner, "SET ROLE issuing_owner; INSERT INTO outbox_events (event_type, user_id, payload) VALUES "
                        "('CARD_REQUEST_ENDED', 'a', '{}'); RESET ROLE");
    ck_assert_int_eq(events("true"), 1);
    struct pg_rows *rows = database_query(owner, &sql_operator_inserters, NULL);
    ck_assert_int_eq(pg_rows_count(rows), 1);
    ck_assert_str_eq(pg_bytes(rows, 0, 0).bytes, "enqueue_other");
    pg_rows_free(rows);
}

static void expect_change(const char *action, const char *role, const char *type, const char *verdict)
{
    char text[200];
    snprintf(text, sizeof(text), "SELECT change_sender('%s', '%s', '%s', 'a', 'o', NULL, 'why')", action, role, type);
    char *found = database_text(owner, text);
    ck_assert_str_eq(found ? found : "done", verdict);
    free(found);
}

TEST(a_sender_is_added_and_removed_with_an_audit_row)
{
    expect_change("add_sender", "enqueue_nobody", "CHARGE", "no_role");
    expect_change("add_sender", "enqueue_shop", "charge", "bad_type");
    expect_change("add_sender", "enqueue_shop", "CARD_REQUEST_ENDED", "own_type");
    expect_change("add_sender", "issuing_worker", "CHARGE", "own_role");
    expect_change("add_sender", "enqueue_shop", "CHARGE", "known");
    expect_change("remove_sender", "enqueue_shop", "MAIL", "unknown");
    expect_change("add_sender", "enqueue_shop", "MAIL", "done");
    expect_change("remove_sender", "enqueue_shop", "CHARGE", "done");
    database_run(shop, "SELECT issuing.enqueue('MAIL', 'a', '{}')");
    expect_change("remove_sender", "enqueue_shop", "MAIL", "done");
    expect_refused(shop, "42501", "permission denied", "SELECT issuing.enqueue('MAIL', 'a', '{}')");
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM operator_actions WHERE action = 'remove_sender' AND "
                                         "after ->> 'target' LIKE 'enqueue_shop %%' AND reason = 'why'"),
                     2);
    /* A role that was made anew under its old name is another one. */
    expect_change("add_sender", "enqueue_group", "CHARGE", "done");
    database_run(owner, "DROP OWNED BY enqueue_group; DROP ROLE enqueue_group; CREATE ROLE enqueue_group; "
                        "GRANT USAGE ON SCHEMA issuing TO enqueue_group");
    expect_refused(owner, "42501", "permission denied", "SET ROLE enqueue_group; " TAKE ")");
    /* However it may call the function: a grant of its own, or a group. */
    database_run(owner, "RESET ROLE; SELECT issuing.grant_sender('enqueue_group')");
    expect_refused(owner, "42501", "role enqueue_group may not send", "SET ROLE enqueue_group; " TAKE ")");
    database_run(owner, "RESET ROLE");
    expect_change("add_sender", "enqueue_group", "CHARGE", "done");
    expect_change("add_sender", "enqueue_group", "CHARGE", "known");
    database_run(owner, "SET ROLE enqueue_group; " TAKE "); RESET ROLE");
    /* One that is gone stops no other sender of its type. */
    expect_change("add_sender", "enqueue_shop", "CHARGE", "done");
    database_run(owner, "DROP OWNED BY enqueue_group; DROP ROLE enqueue_group");
    database_run(shop, TAKE ")");
    expect_refused(other, "42501", "role enqueue_other may not send events of type CHARGE", TAKE ")");
    expect_refused(shop, "42501", "permission denied",
                   "SELECT issuing.change_sender('add_sender', 'enqueue_shop', 'MAIL', 'a', 'o', NULL, 'why')");
    database_run(owner, "CREATE ROLE enqueue_group");
}

/* Commits that notify wait for each other, so of the transactions of a type that are open one does. */
TEST(one_open_transaction_of_a_type_wakes_the_workers_and_none_waits)
{
    static const char held[] = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = 4716";
    database_run(owner, "SELECT change_sender('add_sender', 'enqueue_other', 'CHARGE', 'a', 'o', NULL, 'why')");
    database_run(shop, "BEGIN; " TAKE "); " TAKE ")");
    database_run(other, "BEGIN; " TAKE ")");
    ck_assert_int_eq(database_int(owner, "%s", held), 1);
    database_run(other, "SELECT issuing.enqueue('MAIL', 'a', '{}')");
    ck_assert_int_eq(database_int(owner, "%s", held), 2);
    database_run(other, "COMMIT");
    database_run(shop, "COMMIT");
    /* What is due later needs no wake-up, and a service may have none: PREPARE TRANSACTION takes no NOTIFY. */
    database_run(shop, "BEGIN; " TAKE ", run_at => now() + interval '1 h'); SET LOCAL issuing.wake = off; " TAKE ")");
    ck_assert_int_eq(database_int(owner, "%s", held), 0);
    database_run(shop, "COMMIT");
    ck_assert_int_eq(events("true"), 6);
}

TEST(a_key_is_forgotten_after_its_event)
{
    database_run(shop, TAKE ", 'gone'); " TAKE ", 'kept'); " TAKE ", 'young')");
    database_run(owner, "UPDATE event_keys SET created_at = '2020-01-01' WHERE key <> 'young'");
    database_run(owner, "DELETE FROM outbox_events USING event_keys k WHERE k.event_id = id AND k.key <> 'kept'");
    database_run(owner, "SET ROLE issuing_worker; SELECT issuing.forget_keys(); RESET ROLE");
    ck_assert_int_eq(
        database_int(owner, "SELECT count(*) FILTER (WHERE key <> 'gone') * 10 + count(*) FROM event_keys"), 22);
    /* A key whose event is gone is worth nothing before that. */
    database_run(shop, "SELECT issuing.enqueue('CHARGE', 'bob', '2', 'young')");
    expect_same(shop, "SELECT issuing.enqueue('CHARGE', 'bob', '2', 'young')::text",
                "SELECT issuing.enqueue('CHARGE', 'bob', '2', 'young')::text", true);
    ck_assert_int_eq(events("e.user_id = 'bob'"), 1);
}

SUITE(enqueue)
{
    TCase *tcase = tcase_create("enqueue");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    ADD_TESTS(tcase);
    tcase_add_loop_test(tcase, a_step_of_the_clock_changes_no_order, 0, 4);
    suite_add_tcase(suite, tcase);
}
