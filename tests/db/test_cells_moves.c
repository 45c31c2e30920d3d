/* The story: a bucket moves from one database to another with all that its users have, by steps of which each may be
 * repeated, and can be undone until it has left. Keys and limits hold before, during and after. */
#include "tests/db/cell_calls.h"

#include "common/base/uuid7.h"
#include "tests/support/suite.h"

#define ALICE "alice"

/* Something in every table: a completed request with its card, attempts, an audit row and a reveal; a reissue of that
 * card that is waiting; a request that failed, was reissued and has a mark; one that lost its workers. */
static void add_everything(void)
{
    expect_verdict(api, ALICE, "before", "accepted");
    database_run(one,
                 "UPDATE outbox_events SET status = 'COMPLETED', completed_at = now(), updated_at = now(); "
                 "SELECT issuing.count_end(e, 1) FROM outbox_events e; "
                 "INSERT INTO cards (id, request_id, exp_month, exp_year, user_id, issuer_card_id, last4, "
                 "number_record) SELECT md5('card')::uuid, id, 1, 2030, 'alice', 'i', '1111', '\\x0102' "
                 "FROM outbox_events; "
                 "INSERT INTO operator_actions (event_id, actor, action) SELECT id, 'a', 'replay' FROM outbox_events; "
                 "INSERT INTO number_reveals VALUES ('alice', now(), NULL, ARRAY[now(), now()])");
    database_run(one,
                 "INSERT INTO outbox_events (id, user_id, payload) VALUES (md5('1')::uuid, 'alice', "
                 "jsonb_build_object('kind', 'reissue', 'replaces', md5('card')::uuid)), "
                 "(md5('2')::uuid, 'alice', '{\"kind\":\"new\", \"n\": 1.50}'), "
                 "(md5('3')::uuid, 'alice', '{}'), (md5('4')::uuid, 'alice', '{}'); "
                 "UPDATE outbox_events SET status = 'FAILED', completed_at = now(), reason_code = 'worker_lost' "
                 "WHERE id = md5('2')::uuid; "
                 "INSERT INTO outbox_attempts (event_id, lease_token, started_at, ended_at, attempt, unknown, user_id, "
                 "step, outcome) SELECT id, gen_random_uuid(), now(), now(), 1, true, 'alice', 'unknown', 'lost' "
                 "FROM outbox_events"); /* whose trigger counts the end */
    database_run(one, "INSERT INTO event_reissues VALUES (md5('3')::uuid, md5('4')::uuid); "
                      "INSERT INTO lost_events (event_id) VALUES (md5('4')::uuid); "
                      "SELECT issuing.ask_reconcile(md5('2')::uuid, 60000, 'a', NULL, NULL, 'b'); "
                      "UPDATE peer_checks SET lease_token = gen_random_uuid(), due_at = now() - interval '1 s'");
}

/* Rows of each table that are not of cell_users. */
static char *counts(struct pg_sync *cell)
{
    return database_text(cell, "SELECT concat_ws(' ', (SELECT count(*) FROM outbox_events), "
                               "(SELECT count(*) FROM outbox_attempts), (SELECT count(*) FROM idempotency_keys), "
                               "(SELECT count(*) FROM rate_limit_log), (SELECT count(*) FROM cards), "
                               "(SELECT count(*) FROM card_reissues), (SELECT count(*) FROM event_reissues), "
                               "(SELECT count(*) FROM number_reveals), (SELECT count(*) FROM lost_events), "
                               "(SELECT count(*) FROM peer_checks), "
                               "(SELECT count(*) FROM operator_actions WHERE event_id IS NOT NULL))");
}

static void expect_counts(struct pg_sync *cell, const char *wanted)
{
    char *found = counts(cell);
    ck_assert_str_eq(found, wanted);
    free(found);
}

#define ALL "5 5 1 1 1 1 1 1 1 1 1"
#define NONE "0 0 0 0 0 0 0 0 0 0 0"

static int64_t ended(struct pg_sync *cell)
{
    return database_int(cell, "SELECT coalesce(sum(count), 0) FROM statistics_waiting");
}

/* What count_events says, and what the statistics say. */
static void expect_true_statistics(struct pg_sync *cell, int64_t wanted)
{
    ck_assert_int_eq(ended(cell), wanted);
    ck_assert_int_eq(database_int(cell, "SELECT coalesce(sum(count), 0) FROM issuing.count_events('-infinity')"),
                     wanted);
    ck_assert_int_eq(database_int(cell, "SELECT count(*) FROM (SELECT hour, event_type, status, reason_code, below_ms, "
                                        "sum(count), sum(sum_ms) FROM statistics_waiting GROUP BY 1, 2, 3, 4, 5 HAVING "
                                        "sum(count) <> 0 EXCEPT SELECT hour, event_type, status, reason_code, "
                                        "below_ms, count, sum_ms FROM issuing.count_events('-infinity')) d"),
                     0);
}

START_TEST(all_rows_of_a_bucket_move_and_no_others)
{
    struct pg_sync *new_api = cell_open("two", "issuing_api"), *new_worker = cell_open("two", "issuing_worker");
    add_everything();
    expect_counts(one, ALL);
    expect_true_statistics(one, 2);
    expect_verdict(api, "bob", "k", "accepted");
    close_bucket(ALICE);
    expect_verdict(api, ALICE, "before", "moving");
    expect_verdict(new_api, ALICE, "before", "moving");
    ck_assert(copy_bucket(ALICE));
    /* Not yet its own: nothing is claimed, counted or read there. */
    char *users = claim_users(new_worker, "CARD_ISSUE", 9);
    ck_assert_str_eq(users, "");
    free(users);
    expect_true_statistics(two, 0);
    expect_sqlstate(new_api, "IS001", "SELECT issuing.demand_here('alice')");
    ck_assert_int_eq(step(one, "leave", ALICE), 1);
    expect_verdict(api, ALICE, "before", "elsewhere");
    expect_verdict(new_api, ALICE, "before", "moving");
    ck_assert_int_eq(step(two, "arrive", ALICE), 1);
    expect_counts(two, ALL);
    expect_true_statistics(two, 2);
    expect_verdict(new_api, ALICE, "before", "replayed");
    expect_verdict(new_api, ALICE, "two", "accepted");
    expect_verdict(new_api, ALICE, "three", "accepted");
    expect_verdict(new_api, ALICE, "four", "limited"); /* three in all */
    expect_verdict(new_api, "bob", "k", "elsewhere");
    /* The place of the card is the same event's. */
    ck_assert_int_eq(database_int(two, "SELECT count(*) FROM card_reissues WHERE event_id = md5('1')::uuid"), 1);
    ck_assert_int_eq(database_int(two, "SELECT issuing.is_replaceable('alice', md5('card')::uuid::text)"), 0);
    /* A mark that a worker of the source had is due. */
    ck_assert_int_eq(database_int(new_worker, "SELECT count(*) FROM issuing.take_checks(gen_random_uuid(), 9, 1, 'w', "
                                              "'{CARD_ISSUE}')"),
                     1);
    users = claim_users(new_worker, "CARD_ISSUE", 9);
    ck_assert_str_eq(users, "alice,alice,alice,alice,alice");
    free(users);
    empty_bucket(ALICE);
    expect_counts(one, "1 0 1 1 0 0 0 0 0 0 0");
    expect_true_statistics(one, 0);
    ck_assert_int_eq(database_int(one, "SELECT count(*) FROM issuing.cell_strays()"), 0);
    ck_assert_int_eq(database_int(one, "SELECT count(*) FROM cell_users"), 0);
    ck_assert_int_eq(database_int(two, "SELECT count(*) FROM operator_actions WHERE action = 'move_bucket' AND "
                                       "after ->> 'step' = 'arrive'"),
                     1);
    ck_assert_int_eq(database_int(one, "SELECT count(*) FROM operator_actions WHERE action = 'move_bucket' AND "
                                       "after ->> 'step' = 'leave'"),
                     1);
    pg_sync_close(new_worker);
    pg_sync_close(new_api);
}
END_TEST

START_TEST(each_step_may_be_repeated)
{
    int bucket = bucket_of(ALICE);
    add_everything();
    for (int i = 0; i < 2; i++)
        list_bucket(ALICE);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(database_int(two, "SELECT issuing.cell_expect(%d, 'one', '" MOVE "')", bucket), 1);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(step(one, "drain", ALICE), 1);
    list_bucket(ALICE); /* a mover that begins anew */
    expect_side(one, ALICE, "draining");
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(step(one, "close", ALICE), 1);
    ck_assert(copy_bucket(ALICE));
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(step(one, "leave", ALICE), 1);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(step(two, "arrive", ALICE), 1);
    expect_true_statistics(two, 2);
    empty_bucket(ALICE);
    ck_assert_int_eq(database_int(one, "SELECT issuing.cell_empty(%d, 9)", bucket), 0);
    expect_true_statistics(one, 0);
    expect_counts(two, ALL);
    expect_counts(one, NONE);
    ck_assert_int_eq(database_int(two, "SELECT count(*) FROM operator_actions WHERE action = 'move_bucket'"), 1);
}
END_TEST

START_TEST(a_second_copy_is_refused_or_unequal)
{
    expect_verdict(api, ALICE, "k", "accepted");
    close_bucket(ALICE);
    database_run(two, "INSERT INTO rate_limit_log (at, request_id, accepted, user_id) VALUES (now(), '" MOVE "', true, "
                      "'alice')");
    ck_assert(!copy_bucket(ALICE));
}
END_TEST

START_TEST(a_move_is_undone_at_every_state)
{
    static const char *const states[] = {"listing", "draining", "closed"};
    add_everything();
    for (int i = 0; i < 3; i++) {
        char *before = counts(one);
        list_bucket(ALICE);
        ck_assert_int_eq(database_int(two, "SELECT issuing.cell_expect(%d, 'one', '" MOVE "')", bucket_of(ALICE)), 1);
        if (i > 0)
            ck_assert_int_eq(step(one, "drain", ALICE), 1);
        if (i > 1) {
            ck_assert_int_eq(step(one, "close", ALICE), 1);
            ck_assert(copy_bucket(ALICE));
        }
        expect_side(one, ALICE, states[i]);
        for (int k = 0; k < 2; k++) {
            ck_assert_int_eq(step(one, "open", ALICE), 1);
            ck_assert_int_eq(step(two, "refuse", ALICE), 1);
        }
        expect_side(one, ALICE, "here");
        expect_side(two, ALICE, "away");
        expect_counts(one, before);
        expect_counts(two, NONE);
        ck_assert_int_eq(database_int(one, "SELECT count(*) FROM cell_users"), 0);
        ck_assert_int_eq(database_int(two, "SELECT count(*) FROM cell_users"), 0);
        expect_true_statistics(one, 2);
        expect_true_statistics(two, 0);
        expect_verdict(api, ALICE, "before", "replayed");
        free(before);
        /* A move has an id of its own. */
        database_run(one, "UPDATE cell_buckets SET move_id = '" OTHER_MOVE "'");
    }
    char *users = claim_users(worker, "CARD_ISSUE", 9);
    ck_assert_str_eq(users, "alice,alice,alice");
    free(users);
}
END_TEST

START_TEST(behind_the_point_of_no_return_nothing_is_undone)
{
    add_everything();
    close_bucket(ALICE);
    ck_assert(copy_bucket(ALICE));
    ck_assert_int_eq(step(one, "leave", ALICE), 1);
    expect_sqlstate(one, "IS003", "SELECT issuing.cell_open(%d, '" MOVE "')", bucket_of(ALICE));
    ck_assert_int_eq(step(two, "arrive", ALICE), 1);
    expect_sqlstate(two, "IS003", "SELECT issuing.cell_refuse(%d, '" MOVE "')", bucket_of(ALICE));
}
END_TEST

START_TEST(a_bucket_without_rows_moves_and_comes_back)
{
    move_bucket(ALICE);
    empty_bucket(ALICE);
    expect_side(two, ALICE, "here");
    expect_verdict(api, ALICE, "k", "elsewhere");
    expect_verdict(two, ALICE, "k", "accepted");
}
END_TEST

START_TEST(users_with_odd_names_move)
{
    static const char *const names[] = {"a b'c", "\\x \"q\"", "\xc3\xbc,{}", "%s;--"};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        expect_verdict(api, names[i], "k", "accepted");
        move_bucket(names[i]);
        empty_bucket(names[i]);
        expect_verdict(two, names[i], "k", "replayed");
        expect_verdict(api, names[i], "k", "elsewhere");
    }
    expect_counts(one, NONE);
}
END_TEST

/* Rows from before the bounds, and rows that triggers would refuse, take a place for, or count. */
START_TEST(rows_that_no_insert_could_make_move_as_they_are)
{
    database_run(
        one,
        "ALTER TABLE outbox_events DISABLE TRIGGER USER; "
        "INSERT INTO outbox_events (user_id, payload, status, completed_at, created_at) VALUES "
        "('alice', jsonb_build_object('x', repeat('y', 70000)), 'FAILED', now(), '-infinity'); "
        "INSERT INTO outbox_events (id, user_id, payload, status, completed_at, reason_code) SELECT "
        "gen_random_uuid(), 'alice', jsonb_build_object('kind', 'reissue', 'replaces', md5('card')::uuid), 'FAILED', "
        "now() + interval '1 h', 'worker_lost' FROM generate_series(1, 3); "
        "ALTER TABLE outbox_events ENABLE TRIGGER USER; "
        "INSERT INTO outbox_attempts (event_id, lease_token, started_at, ended_at, attempt, unknown, "
        "user_id, step, outcome) SELECT id, gen_random_uuid(), now(), now(), 1, true, 'alice', "
        "'unknown', 'lost' FROM outbox_events; TRUNCATE statistics_changes; "
        "SELECT issuing.count_end(e, 1) FROM outbox_events e");
    move_bucket(ALICE);
    ck_assert_int_eq(database_int(two, "SELECT count(*) FROM card_reissues"), 0);
    ck_assert_int_eq(ended(two), 4);
    ck_assert_int_eq(database_int(two, "SELECT count(*) FROM outbox_events"), 4);
    empty_bucket(ALICE);
    ck_assert_int_eq(ended(one), 0);
    /* A row that is not copied is refused as ever. */
    expect_sqlstate(two, "23514",
                    "INSERT INTO outbox_events (user_id, payload) VALUES ('alice', "
                    "jsonb_build_object('x', repeat('y', 70000)))");
}
END_TEST

START_TEST(only_the_owner_copies_into_a_bucket_that_arrives)
{
    static const char insert[] =
        "INSERT INTO issuing.outbox_events (event_type, user_id, payload) VALUES ('X', 'alice', '{}')";
    close_bucket(ALICE);
    database_run(two, "BEGIN; CREATE ROLE of_a_service; GRANT USAGE ON SCHEMA issuing TO of_a_service; "
                      "GRANT INSERT ON issuing.outbox_events TO of_a_service; SET LOCAL ROLE of_a_service");
    expect_sqlstate(two, "55P03", "%s", insert);
    database_run(two, "ROLLBACK; BEGIN; SET LOCAL ROLE issuing_owner");
    expect_sqlstate(two, "", "%s", insert);
    database_run(two, "ROLLBACK");
}
END_TEST

START_TEST(ten_thousand_rows_move)
{
    enum { ROWS = 10000 };
    database_exec(
        one,
        "INSERT INTO outbox_events (user_id, payload, status, completed_at) SELECT CASE WHEN n %% 2 = 0 THEN "
        "'alice' ELSE 'bob' END, '{\"kind\":\"new\"}', 'COMPLETED', now() FROM generate_series(1, %d) n; "
        "INSERT INTO outbox_attempts (event_id, lease_token, started_at, ended_at, attempt, unknown, user_id, "
        "step, outcome) SELECT id, gen_random_uuid(), now(), now(), 1, true, user_id, 'link', 'completed' "
        "FROM outbox_events",
        2 * ROWS);
    move_bucket(ALICE);
    ck_assert_int_eq(database_int(two, "SELECT count(*) FROM outbox_events WHERE user_id = 'alice'"), ROWS);
    ck_assert_int_eq(database_int(two, "SELECT count(*) FROM outbox_attempts"), ROWS);
    while (database_int(one, "SELECT issuing.cell_empty(%d, 3000)", bucket_of(ALICE)) > 0)
        ;
    ck_assert_int_eq(database_int(one, "SELECT count(*) FROM outbox_events"), ROWS);
    ck_assert_int_eq(ended(two), ROWS);
}
END_TEST

START_TEST(a_partition_that_was_settled_is_judged_anew)
{
    expect_verdict(api, ALICE, "k", "accepted");
    database_run(two, "INSERT INTO partitions (from_at, to_at, parent, name, settled_at, still_open) SELECT now() - "
                      "interval '1 h', now() + interval '1 h', p, p || '_of_test', now(), '{" MOVE "}' FROM "
                      "unnest('{outbox_events,idempotency_keys,rate_limit_log}'::text[]) p");
    move_bucket(ALICE);
    char *settled = database_text(two, "SELECT string_agg(parent, ',') FROM partitions WHERE name ~ '_of_test$' AND "
                                       "settled_at IS NOT NULL");
    ck_assert_str_eq(settled, "rate_limit_log");
    free(settled);
    database_run(two, "DELETE FROM partitions WHERE name ~ '_of_test$'");
}
END_TEST

START_TEST(clocks_that_differ_are_refused_and_small_differences_heal)
{
    int bucket = bucket_of(ALICE);
    expect_sqlstate(two, "IS004",
                    "SELECT issuing.cell_expect(%d, 'one', '" MOVE "', clock_timestamp() + interval '2 s')", bucket);
    expect_sqlstate(two, "IS004",
                    "SELECT issuing.cell_expect(%d, 'one', '" MOVE "', clock_timestamp() - interval '2 s')", bucket);
    expect_sqlstate(two, "", "BEGIN; SELECT issuing.cell_expect(%d, 'one', '" MOVE "', clock_timestamp()); ROLLBACK",
                    bucket);
    /* The source's clock was ahead of this one's. */
    expect_verdict(api, ALICE, "k", "accepted");
    database_run(one, "UPDATE outbox_events SET updated_at = now() + interval '900 ms', first_sent_at = now() + "
                      "interval '900 ms'; UPDATE rate_limit_log SET at = now() + interval '900 ms'; UPDATE "
                      "idempotency_keys SET created_at = now() + interval '900 ms'");
    move_bucket(ALICE);
    expect_verdict(two, ALICE, "k", "replayed");
    expect_verdict(two, ALICE, "k2", "accepted");
    expect_verdict(two, ALICE, "k3", "accepted");
    expect_verdict(two, ALICE, "k4", "limited");
    ck_assert_int_eq(
        database_int(two,
                     "SELECT count(*) FROM issuing.claim(gen_random_uuid(), 9, 60000, 'w', NULL, "
                     "100, false, 'CARD_ISSUE', false), unnest(events) WHERE sent_age_ms < 0 OR changed_age_ms < 0"),
        0);
}
END_TEST

START_TEST(users_who_are_not_of_this_cell_are_found)
{
    expect_verdict(api, ALICE, "k", "accepted");
    database_exec(one, "UPDATE cell_buckets SET state = 'away' WHERE bucket = %d", bucket_of(ALICE));
    ck_assert_int_eq(database_int(one, "SELECT users FROM issuing.cell_strays() WHERE bucket = %d", bucket_of(ALICE)),
                     1);
}
END_TEST

SUITE(cells_moves)
{
    TCase *tcase = tcase_create("cells_moves");
    tcase_add_unchecked_fixture(tcase, cells_make, NULL);
    tcase_add_checked_fixture(tcase, cells_set_up, cells_tear_down);
    tcase_add_test(tcase, all_rows_of_a_bucket_move_and_no_others);
    tcase_add_test(tcase, each_step_may_be_repeated);
    tcase_add_test(tcase, a_second_copy_is_refused_or_unequal);
    tcase_add_test(tcase, a_move_is_undone_at_every_state);
    tcase_add_test(tcase, behind_the_point_of_no_return_nothing_is_undone);
    tcase_add_test(tcase, a_bucket_without_rows_moves_and_comes_back);
    tcase_add_test(tcase, users_with_odd_names_move);
    tcase_add_test(tcase, rows_that_no_insert_could_make_move_as_they_are);
    tcase_add_test(tcase, only_the_owner_copies_into_a_bucket_that_arrives);
    tcase_add_test(tcase, ten_thousand_rows_move);
    tcase_add_test(tcase, a_partition_that_was_settled_is_judged_anew);
    tcase_add_test(tcase, clocks_that_differ_are_refused_and_small_differences_heal);
    tcase_add_test(tcase, users_who_are_not_of_this_cell_are_found);
    suite_add_tcase(suite, tcase);
}
