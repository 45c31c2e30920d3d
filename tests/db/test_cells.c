/* The story: a cell serves the users whose bucket is there, and nobody else; what each state of a bucket allows is
 * checked for every way to write. Nobody waits for a mover, and events that no claim may take are in nobody's way. */
#include "tests/db/cell_calls.h"

#include "statements.h"
#include "tests/support/suite.h"

/* ---- buckets, cells ---- */

START_TEST(the_bucket_of_a_user_is_that_of_the_router)
{
    static const struct {
        const char *user;
        int bucket; /* sha2(256),bytes(0,2),hex,hex2i,mod(1024) */
    } known[] = {{"alice", 984}, {"bob", 438}, {"a b'c", 107}, {"\\\\x", 286}, {"\xc3\xbc", 116}, {"", 944}};
    for (size_t i = 0; i < ARRAY_SIZE(known); i++)
        ck_assert_msg(bucket_of(known[i].user) == known[i].bucket, "%s: %d", known[i].user, bucket_of(known[i].user));
    struct pg_rows *rows =
        database_rows(one, "EXPLAIN (VERBOSE) SELECT FROM outbox_events e WHERE issuing.bucket_of(e.user_id) = 3");
    for (int i = 0; i < pg_rows_count(rows); i++)
        ck_assert_msg(!strstr(pg_bytes(rows, i, 0).bytes, "bucket_of"), "the function is not inlined");
    pg_rows_free(rows);
}
END_TEST

START_TEST(a_database_that_is_no_cell_serves_everybody_and_has_no_trigger_of_cells)
{
    struct pg_sync *db = database_open("issuing_api");
    database_run(db, "BEGIN");
    expect_verdict(db, "alice", "k", "accepted");
    ck_assert_int_eq(database_int(db, "SELECT issuing.demand_here('alice')"), 1);
    ck_assert_int_eq(database_int(db, "SELECT count(*) FROM pg_trigger WHERE tgname LIKE '%%cell%%'"), 0);
    ck_assert_int_eq(database_int(db, "SELECT count(*) FROM issuing.cell_buckets"), 0);
    database_run(db, "ROLLBACK");
    pg_sync_close(db);
}
END_TEST

START_TEST(a_database_becomes_a_cell_once_and_only_with_the_buckets_of_its_users)
{
    struct pg_sync *db = database_open(NULL);
    database_run(db, "SET search_path = pg_catalog, issuing, pg_temp; TRUNCATE outbox_events, idempotency_keys");
    expect_sqlstate(db, "23514", "SELECT issuing.cell_init('No name', NULL)");
    expect_sqlstate(db, "22023", "SELECT issuing.cell_init('one', '{1024}')");
    expect_verdict(db, "it's", "k", "accepted");
    expect_sqlstate(db, "55000", "SELECT issuing.cell_init('one', '{}')");
    expect_sqlstate(db, "55000", "SELECT issuing.cell_init('one', '{1,2}')");
    database_run(db, "BEGIN");
    ck_assert_int_eq(database_int(db, "SELECT issuing.cell_init('one', ARRAY[3, issuing.bucket_of('it''s')])"), 1);
    ck_assert_int_eq(database_int(db, "SELECT issuing.cell_init('one', NULL)"), 0);
    ck_assert_int_eq(database_int(db, "SELECT count(*) FROM cell_buckets WHERE state = 'here'"), 2);
    ck_assert_int_eq(database_int(db, "SELECT count(*) FROM cell_buckets"), 1024);
    expect_verdict(db, "it's", "k", "replayed");
    expect_verdict(db, "alice", "k", "elsewhere");
    expect_sqlstate(db, "55000", "SELECT issuing.cell_init('two', NULL)");
    database_run(db, "ROLLBACK");
    pg_sync_close(db);
}
END_TEST

/* ---- the states ---- */

/* Of a user with a PENDING, a FAILED and a PROCESSING event, and a mark. */
struct allowed {
    const char *state;
    const char *read, *verdict, *insert; /* SQLSTATE; verdict; SQLSTATE */
    bool claim, touch;
    const char *replay, *ask, *reveal; /* SQLSTATE */
    bool lease;
};

static const struct allowed table[] = {
    {"here", "", "accepted", "", true, true, "", "", "", true},
    {"listing", "", "accepted", "", true, true, "", "", "", true},
    {"draining", "", "accepted", "", false, true, "", "", "", false},
    {"closed", "", "moving", "55P03", false, false, "55P03", "55P03", "IS001", false},
    {"gone", "IS002", "elsewhere", "23514", false, false, "23514", "23514", "IS002", false},
    {"arriving", "IS001", "moving", "55P03", false, false, "55P03", "55P03", "IS001", false},
    {"away", "IS002", "elsewhere", "23514", false, false, "23514", "23514", "IS002", false},
};

static void add_events_of_alice(void)
{
    database_run(one, "INSERT INTO outbox_events (id, user_id, payload, next_attempt_at) VALUES "
                      "(md5('a')::uuid, 'alice', '{\"kind\":\"new\"}', now() - interval '1 s'),"
                      "(md5('b')::uuid, 'alice', '{\"kind\":\"new\"}', now()), "
                      "(md5('c')::uuid, 'alice', '{\"kind\":\"new\"}', now()), "
                      "(md5('d')::uuid, 'alice', '{\"kind\":\"new\"}', now()); "
                      "UPDATE outbox_events SET status = 'FAILED', completed_at = now() WHERE id IN (md5('b')::uuid, "
                      "md5('d')::uuid); "
                      "UPDATE outbox_events SET status = 'PROCESSING', lease_until = now() + interval '1 h', "
                      "lease_token = '" MOVE "' WHERE id = md5('c')::uuid");
    database_run(one, "SELECT issuing.ask_reconcile(md5('d')::uuid, 60000, 'a', NULL, NULL, "
                      "'b')");
}

#define WHO "'actor', NULL, NULL, 'why'"

/* Rows that an UPDATE ... RETURNING changes. */
static int64_t changed(struct pg_sync *db, const char *update)
{
    char text[512];
    snprintf(text, sizeof(text), "WITH u AS (%s) SELECT count(*) FROM u", update);
    struct pg_rows *rows = database_rows(db, text);
    int64_t count = pg_int8(rows, 0, 0);
    pg_rows_free(rows);
    return count;
}

static int64_t claim_cards(void)
{
    return database_int(worker, "SELECT cardinality(events) FROM issuing.claim(gen_random_uuid(), 9, 60000, 'w', NULL, "
                                "100, false, 'CARD_ISSUE', false)");
}

static const struct sql_statement *const reads[] = {&sql_request_get, &sql_request_list, &sql_card_get, &sql_card_list};

/* Of requests and cards that nobody has. */
static void expect_read(const char *sqlstate)
{
    for (size_t i = 0; i < ARRAY_SIZE(reads); i++) {
        struct pg_rows *rows = NULL;
        struct err err = {.kind = ERR_NONE};
        bool is_list = reads[i] == &sql_request_list || reads[i] == &sql_card_list;
        const struct pg_param id = pg_param_uuid(&(struct uuid){{1}}), user = pg_param_text("alice", 5);
        const struct pg_param one_row[] = {id, user}, page[] = {user, pg_param_null(), pg_param_int8(9)};
        bool is_done = pg_sync_query(api, reads[i], is_list ? page : one_row, &rows, &err);
        ck_assert_msg(is_done ? !*sqlstate : *sqlstate && strstr(err.message, sqlstate), "%s: %s", reads[i]->name,
                      is_done ? "no error" : err.message);
        pg_rows_free(rows);
    }
}

static void expect_undone(struct pg_sync *db, const char *sqlstate, const char *text)
{
    database_run(db, "BEGIN");
    expect_sqlstate(db, sqlstate, "%s", text);
    database_run(db, "ROLLBACK");
}

static void expect_allowed(const struct allowed *row, struct pg_sync *ctl)
{
    set_state("alice", row->state);
    expect_read(row->read);
    ck_assert_msg(strcmp(accept_one(api, "alice", row->state), row->verdict) == 0, "%s", row->state);
    expect_undone(api, row->insert, "INSERT INTO outbox_events (user_id, payload) VALUES ('alice', '{}')");
    expect_undone(api, row->reveal, "SELECT issuing.ask_reveal(gen_random_uuid(), 'alice', '{1}', 9)");
    expect_undone(ctl, row->replay, "SELECT issuing.replay(md5('b')::uuid, NULL, " WHO ")");
    expect_undone(ctl, row->replay, "SELECT issuing.cancel(md5('a')::uuid, NULL, 'd', " WHO ")");
    expect_undone(ctl, row->ask, "SELECT issuing.ask_reconcile(md5('b')::uuid, 9, " WHO ")");
    ck_assert_int_eq(
        changed(worker,
                "UPDATE outbox_events SET next_attempt_at = next_attempt_at WHERE id = md5('a')::uuid RETURNING 1"),
        row->touch);
    ck_assert_int_eq(database_int(worker, "SELECT count(*) FROM issuing.take_checks(gen_random_uuid(), 9, 1, 'w', "
                                          "'{CARD_ISSUE}')"),
                     row->lease);
}

START_TEST(what_each_state_of_a_bucket_allows)
{
    struct pg_sync *ctl = cell_open("one", "issuing_operator");
    for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
        database_run(one, "UPDATE cell_buckets SET state = 'here'; "
                          "TRUNCATE outbox_events, outbox_attempts, peer_checks, idempotency_keys, "
                          "rate_limit_log");
        add_events_of_alice();
        expect_allowed(&table[i], ctl);
        char *users = claim_users(worker, "CARD_ISSUE", 1);
        ck_assert_str_eq(users, table[i].claim ? "alice" : "");
        free(users);
        ck_assert_int_eq(claim_cards(), table[i].claim); /* what was accepted */
        /* The end of a running attempt is never refused: the mover awaits it. */
        ck_assert_int_eq(database_int(worker, "SELECT count(*) FROM issuing.complete(ARRAY[md5('c')::uuid::uuid], "
                                              "'{" MOVE "}', 'w', '{1}', 'link', NULL)"),
                         1);
    }
    pg_sync_close(ctl);
}
END_TEST

START_TEST(only_the_user_who_is_not_here_is_refused_and_nothing_of_that_call_stays)
{
    expect_verdict(api, "alice", "k", "accepted");
    set_state("alice", "closed");
    struct pg_rows *rows = database_rows(
        api, "SELECT verdict FROM issuing.accept(ARRAY[gen_random_uuid(), gen_random_uuid(), gen_random_uuid()], "
             "'{alice,bob,carl}', '{new,k,k}', '{\"\\\\x00\",\"\\\\x00\",\"\\\\x00\"}', "
             "ARRAY['{\"kind\":\"new\"}','{\"kind\":\"new\"}','{\"kind\":\"new\"}'], ARRAY[NULL, NULL, NULL], 3, "
             "'1 h', true, '1 day')");
    static const char *const verdicts[] = {"moving", "accepted", "accepted"};
    for (int i = 0; i < 3; i++)
        ck_assert_str_eq(pg_bytes(rows, i, 0).bytes, verdicts[i]);
    pg_rows_free(rows);
    expect_verdict(api, "alice", "k", "moving"); /* also a repeat: its key lives where the bucket lives */
    ck_assert_int_eq(database_int(one, "SELECT count(*) FROM idempotency_keys WHERE user_id = 'alice'"), 1);
    ck_assert_int_eq(database_int(one, "SELECT count(*) FROM rate_limit_log WHERE user_id = 'alice'"), 1);
    ck_assert_int_eq(database_int(one, "SELECT count(*) FROM outbox_events WHERE user_id = 'alice'"), 1);
    set_state("alice", "here");
    expect_verdict(api, "alice", "k", "replayed");
    expect_verdict(api, "alice", "new", "accepted");
}
END_TEST

START_TEST(every_way_to_write_records_the_user_of_a_bucket_that_is_to_be_moved)
{
    static const char *const states[] = {"listing", "draining"};
    for (int i = 0; i < 2; i++) {
        database_run(one, "TRUNCATE cell_users");
        set_state("alice", states[i]);
        set_state("bob", states[i]);
        expect_verdict(api, "alice", states[i], "accepted");
        expect_verdict(api, "carl", states[i], "accepted");
        add_foreign(one, "X", "bob");
        add_foreign(one, "X", "bob");
        char *users = database_text(one, "SELECT string_agg(user_id, ',' ORDER BY user_id) FROM cell_users");
        ck_assert_str_eq(users, "alice,bob");
        free(users);
    }
}
END_TEST

START_TEST(an_event_of_an_end_is_not_refused_and_one_that_another_service_gives_its_type_is)
{
    set_state("alice", "closed");
    expect_sqlstate(one, "55P03",
                    "INSERT INTO outbox_events (event_type, user_id, payload) VALUES "
                    "('CARD_REQUEST_ENDED', 'alice', '{}')");
    expect_sqlstate(one, "",
                    "SET ROLE issuing_owner; INSERT INTO outbox_events (event_type, user_id, payload) VALUES "
                    "('CARD_REQUEST_ENDED', 'alice', '{}'); RESET ROLE");
}
END_TEST

/* ---- claims ---- */

#define CLAIM_OF(type, most, since, ordered)                                                             \
    "issuing.claim(gen_random_uuid(), " most ", 60000, 'w', " since ", 100, false, '" type "', " ordered \
    "), unnest(events)"

START_TEST(events_of_a_bucket_that_moves_hide_no_others)
{
    static const char *const types[] = {"PLAIN", "ORDERED"};
    database_run(worker, "SELECT issuing.note_routes('w', '{ORDERED,PLAIN}', '{t,f}', '{f,f}', '{1,1}', '{5,5}', "
                         "'{f,f}')");
    for (int i = 0; i < 2; i++) {
        for (int n = 0; n < 300; n++)
            database_exec(one,
                          "INSERT INTO outbox_events (event_type, user_id, payload, next_attempt_at) "
                          "VALUES ('%s', 'alice', '{}', now() - interval '1 h')",
                          types[i]);
        add_foreign(one, types[i], "bob");
        set_state("alice", "draining");
        char *users = claim_users(worker, types[i], 2);
        ck_assert_str_eq(users, "bob");
        free(users);
        set_state("alice", "here");
    }
}
END_TEST

START_TEST(an_event_that_is_tried_alone_and_is_parked_hides_no_other)
{
    static const char alone[] = "SELECT cardinality(events), has_lost FROM "
                                "issuing.claim(gen_random_uuid(), 9, 60000, 'w', NULL, 100, true, 'X', false)";
    add_foreign(one, "X", "alice");
    add_foreign(one, "X", "bob");
    database_run(one, "UPDATE outbox_events SET lost_count = 2; INSERT INTO lost_events SELECT id FROM outbox_events");
    set_state("alice", "draining");
    struct pg_rows *rows = database_rows(worker, alone);
    ck_assert_int_eq(pg_int8(rows, 0, 0), 1); /* bob's */
    ck_assert(!pg_bool(rows, 0, 1));          /* alice's counts as not due */
    pg_rows_free(rows);
}
END_TEST

START_TEST(an_event_that_was_left_behind_is_not_claimed_and_moves_no_bookmark_past_others)
{
    database_run(one, "INSERT INTO outbox_events (event_type, user_id, payload, next_attempt_at) VALUES "
                      "('X', 'alice', '{}', now() - interval '30 s'), ('X', 'bob', '{}', now() - interval '20 s'), "
                      "('X', 'carl', '{}', now() - interval '10 s')");
    set_state("alice", "away");
    struct pg_rows *rows =
        database_rows(worker, "SELECT user_id, next_since_us, is_filled FROM " CLAIM_OF("X", "2", "NULL", "false"));
    ck_assert_int_eq(pg_rows_count(rows), 1);
    ck_assert_str_eq(pg_bytes(rows, 0, 0).bytes, "bob");
    ck_assert(pg_bool(rows, 0, 2)); /* there may be more */
    char text[320];
    snprintf(text, sizeof(text), "SELECT user_id FROM " CLAIM_OF("X", "2", "%lld", "false"),
             (long long)pg_int8(rows, 0, 1));
    char *user = database_text(worker, text);
    ck_assert_str_eq(user, "carl");
    free(user);
    pg_rows_free(rows);
    /* The sweep finds what was left out. */
    const struct pg_param params[] = {pg_param_null(),  pg_param_int8(0),      pg_param_null(), pg_param_int8(99),
                                      pg_param_int8(5), pg_param_text("X", 1), pg_param_null()};
    rows = database_query(worker, &sql_outbox_sweep, params);
    ck_assert(!pg_is_null(rows, 0, 1));
    pg_rows_free(rows);
    /* But not while no claim may take it: the bookmark would go back with every sweep. */
    set_state("alice", "gone");
    rows = database_query(worker, &sql_outbox_sweep, params);
    ck_assert(pg_is_null(rows, 0, 1));
    pg_rows_free(rows);
}
END_TEST

START_TEST(a_mark_that_is_parked_hides_no_other)
{
    add_events_of_alice();
    add_foreign(one, "CARD_ISSUE", "bob");
    database_run(one, "UPDATE outbox_events SET status = 'FAILED', completed_at = now() WHERE user_id = 'bob'; "
                      "SELECT issuing.ask_reconcile(id, 60000, 'a', NULL, NULL, 'b') FROM outbox_events WHERE user_id "
                      "= 'bob'");
    set_state("alice", "gone");
    char *user = database_text(worker, "SELECT user_id FROM issuing.take_checks(gen_random_uuid(), 1, 1, 'w', "
                                       "'{CARD_ISSUE}')");
    ck_assert_str_eq(user, "bob");
    free(user);
    /* A late answer for an event that is in another cell stops no report of others. */
    ck_assert_int_eq(database_int(worker, "SELECT count(*) FROM (SELECT issuing.ask_check(id, 'w') AS is_there FROM "
                                          "outbox_events) c WHERE is_there"),
                     1);
}
END_TEST

START_TEST(the_end_of_a_mark_in_a_closed_bucket_changes_nothing)
{
    add_events_of_alice();
    database_run(worker, "SELECT issuing.take_checks('" MOVE "', 9, 0, 'w', '{CARD_ISSUE}')");
    database_run(one, "INSERT INTO cards (id, request_id, exp_month, exp_year, user_id, issuer_card_id, last4) VALUES "
                      "('" MOVE "', md5('d')::uuid, 1, 2030, 'alice', 'i', '1111')");
    set_state("alice", "closed");
    char *id = database_text(one, "SELECT id::text FROM peer_checks");
    expect_sqlstate(worker, "55P03",
                    "SELECT issuing.end_check('%s', '" MOVE "', (SELECT (extract(epoch FROM updated_at) * "
                    "1000000)::int8 FROM issuing.outbox_events WHERE id = md5('d')::uuid), 'cancelled_at_issuer', '')",
                    id);
    ck_assert_int_eq(database_int(one, "SELECT count(*) FROM cards WHERE status = 'active'"), 1);
    ck_assert_int_eq(database_int(one, "SELECT count(*) FROM peer_checks WHERE finished_at IS NULL"), 1);
    free(id);
}
END_TEST

/* ---- rights ---- */

static const char *const forbidden[] = {
    "UPDATE cell_buckets SET state = 'here'",
    "DELETE FROM cell_buckets",
    "INSERT INTO cell (name) VALUES ('x')",
    "INSERT INTO cell_users VALUES (1, 'u')",
    "SELECT * FROM cell_users",
    "TRUNCATE cell_buckets",
    "SELECT issuing.cell_init('x', NULL)",
    "SELECT issuing.cell_list('{1}', 'x', '" MOVE "')",
    "SELECT issuing.cell_list_users('{1}')",
    "SELECT issuing.cell_drain(1, '" MOVE "')",
    "SELECT issuing.cell_busy(1)",
    "SELECT issuing.cell_close(1, '" MOVE "')",
    "SELECT issuing.cell_leave(1, '" MOVE "')",
    "SELECT issuing.cell_open(1, '" MOVE "')",
    "SELECT issuing.cell_expect(1, 'x', '" MOVE "')",
    "SELECT issuing.cell_arrive(1, '" MOVE "')",
    "SELECT issuing.cell_refuse(1, '" MOVE "')",
    "SELECT issuing.cell_empty(1, 1)",
    "SELECT issuing.cell_copy(1)",
    "SELECT issuing.cell_fingerprint(1)",
    "SELECT issuing.cell_all_users()",
    "SELECT issuing.cell_state('u')",
    "SELECT issuing.cell_is_copy('u')",
};

START_TEST(no_program_can_change_where_a_bucket_is)
{
    static const char *const roles[] = {"issuing_api", "issuing_worker", "issuing_operator", "issuing_viewer"};
    for (size_t r = 0; r < ARRAY_SIZE(roles); r++)
        for (size_t i = 0; i < ARRAY_SIZE(forbidden); i++) {
            struct pg_sync *db = cell_open("one", roles[r]);
            expect_sqlstate(db, "42501", "%s", forbidden[i]);
            pg_sync_close(db);
        }
    expect_sqlstate(worker, "42501", "SELECT issuing.cell_gate('{u}')");
}
END_TEST

SUITE(cells)
{
    TCase *tcase = tcase_create("cells");
    tcase_add_unchecked_fixture(tcase, cells_make, NULL);
    tcase_add_checked_fixture(tcase, cells_set_up, cells_tear_down);
    tcase_add_test(tcase, the_bucket_of_a_user_is_that_of_the_router);
    tcase_add_test(tcase, a_database_that_is_no_cell_serves_everybody_and_has_no_trigger_of_cells);
    tcase_add_test(tcase, a_database_becomes_a_cell_once_and_only_with_the_buckets_of_its_users);
    tcase_add_test(tcase, what_each_state_of_a_bucket_allows);
    tcase_add_test(tcase, only_the_user_who_is_not_here_is_refused_and_nothing_of_that_call_stays);
    tcase_add_test(tcase, every_way_to_write_records_the_user_of_a_bucket_that_is_to_be_moved);
    tcase_add_test(tcase, an_event_of_an_end_is_not_refused_and_one_that_another_service_gives_its_type_is);
    tcase_add_test(tcase, events_of_a_bucket_that_moves_hide_no_others);
    tcase_add_test(tcase, an_event_that_is_tried_alone_and_is_parked_hides_no_other);
    tcase_add_test(tcase, an_event_that_was_left_behind_is_not_claimed_and_moves_no_bookmark_past_others);
    tcase_add_test(tcase, a_mark_that_is_parked_hides_no_other);
    tcase_add_test(tcase, the_end_of_a_mark_in_a_closed_bucket_changes_nothing);
    tcase_add_test(tcase, no_program_can_change_where_a_bucket_is);
    suite_add_tcase(suite, tcase);
}
