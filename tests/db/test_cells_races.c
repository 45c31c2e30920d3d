/* The story: whoever writes and whoever moves a bucket meet at any moment, in both orders, and no row is left behind in
 * a cell that the bucket has left. Nobody who writes waits for the mover. */
#include "tests/db/cell_calls.h"

#include <pthread.h>
#include <unistd.h>

#include "tests/support/suite.h"

static struct pg_sync *mover;

static void set_up(void)
{
    cells_set_up();
    mover = cell_open("one", NULL);
    database_run(mover, "SET lock_timeout = '200ms'");
}

static void tear_down(void)
{
    pg_sync_closep(&mover);
    cells_tear_down();
}

static void drain(const char *user)
{
    list_bucket(user);
    ck_assert_int_eq(step(one, "drain", user), 1);
}

static void expect_no_close(const char *user)
{
    expect_sqlstate(mover, "55P03", "SELECT issuing.cell_close(%d, '" MOVE "')", bucket_of(user));
}

/* Who writes, in this transaction that is still open, passes the gate before the bucket is closed. */
static void expect_close_waits_for(struct pg_sync *db, const char *text)
{
    drain("alice");
    database_run(db, "BEGIN");
    database_run(db, text);
    expect_no_close("alice");
    database_run(db, "COMMIT");
    ck_assert_int_eq(step(mover, "close", "alice"), 1);
    ck_assert_int_ge(database_int(one, "SELECT rows FROM issuing.cell_fingerprint(%d) WHERE name = 'outbox_events'",
                                  bucket_of("alice")),
                     1);
}

START_TEST(an_acceptance_before_the_close_is_waited_for)
{
    expect_close_waits_for(api, "SELECT issuing.accept('{" MOVE "}', '{alice}', '{k}', '{\"\\\\x00\"}', "
                                "ARRAY['{\"kind\":\"new\"}'], ARRAY[NULL], 3, '1 h', true, '1 day')");
}
END_TEST

START_TEST(an_insert_of_another_service_before_the_close_is_waited_for)
{
    expect_close_waits_for(one, "INSERT INTO outbox_events (event_type, user_id, payload) VALUES ('X', 'alice', '{}')");
}
END_TEST

START_TEST(nobody_waits_for_a_mover_who_has_the_lock)
{
    drain("alice");
    add_foreign(one, "X", "alice");
    database_run(mover, "BEGIN");
    ck_assert_int_eq(step(mover, "close", "alice"), 1); /* not committed */
    database_run(api, "SET statement_timeout = '5s'");
    database_run(one, "SET lock_timeout = '5s'");
    expect_verdict(api, "alice", "k", "moving");
    expect_verdict(api, "bob", "k", "accepted");
    expect_sqlstate(api, "", "SELECT issuing.demand_here('alice')");
    expect_sqlstate(one, "55P03",
                    "INSERT INTO outbox_events (event_type, user_id, payload) VALUES ('X', 'alice', '{}')");
    char *users = claim_users(worker, "X", 9);
    ck_assert_str_eq(users, "");
    free(users);
    database_run(mover, "COMMIT");
    expect_verdict(api, "alice", "k", "moving");
}
END_TEST

struct waiter {
    pthread_t thread;
    struct pg_sync *db;
    const char *text;
    int64_t result;
};

static void *run(void *context)
{
    struct waiter *waiter = context;
    waiter->result = database_int(waiter->db, "%s", waiter->text);
    return NULL;
}

static void start(struct waiter *waiter, struct pg_sync *db, const char *text)
{
    *waiter = (struct waiter){.db = db, .text = text, .result = -2};
    ck_assert_int_eq(pthread_create(&waiter->thread, NULL, run, waiter), 0);
}

static void await_one(const char *query)
{
    for (int i = 0; i < 2000 && database_int(one, "%s", query) != 1; i++)
        usleep(5000);
    ck_assert_int_eq(database_int(one, "%s", query), 1);
}

START_TEST(nobody_waits_for_a_mover_who_waits)
{
    struct waiter closing;
    char text[128];
    drain("alice");
    database_run(one, "BEGIN");
    add_foreign(one, "X", "alice");
    snprintf(text, sizeof(text), "SELECT issuing.cell_close(%d, '" MOVE "')", bucket_of("alice"));
    database_run(mover, "SET lock_timeout = '20s'");
    start(&closing, mover, text);
    await_one("SELECT count(*) FROM pg_locks WHERE classid = 4713 AND NOT granted");
    expect_verdict(api, "alice", "k", "moving");
    ck_assert_int_eq(closing.result, -2);
    database_run(one, "COMMIT");
    pthread_join(closing.thread, NULL);
    ck_assert_int_eq(closing.result, 1);
    expect_side(one, "alice", "closed");
}
END_TEST

START_TEST(a_claim_before_the_drain_is_waited_for_and_its_attempt_too)
{
    add_foreign(one, "X", "alice");
    list_bucket("alice");
    database_run(worker, "BEGIN");
    char *users = claim_users(worker, "X", 9);
    ck_assert_str_eq(users, "alice");
    free(users);
    ck_assert_int_eq(database_int(mover, "SELECT issuing.cell_busy(%d)", bucket_of("alice")), 0); /* not yet visible */
    expect_sqlstate(mover, "55P03", "SELECT issuing.cell_drain(%d, '" MOVE "')", bucket_of("alice"));
    database_run(worker, "COMMIT");
    ck_assert_int_eq(step(mover, "drain", "alice"), 1);
    ck_assert_int_eq(step(mover, "close", "alice"), 0);
    expect_side(one, "alice", "draining");
    ck_assert_int_eq(database_int(mover, "SELECT issuing.cell_busy(%d)", bucket_of("alice")), 1);
    database_run(worker, "SELECT issuing.complete(ARRAY(SELECT id FROM outbox_events), ARRAY(SELECT lease_token FROM "
                         "outbox_events), 'w', '{1}', 'deliver', NULL)");
    ck_assert_int_eq(step(mover, "close", "alice"), 1);
}
END_TEST

/* The claim began, and has waited, while the bucket was not yet parked for it. */
static void expect_nothing_claimed_behind_the_drain(const char *claim)
{
    struct waiter claiming;
    database_run(one, "UPDATE cell_buckets SET state = 'here', move_id = NULL");
    list_bucket("alice");
    database_run(mover, "BEGIN");
    ck_assert_int_eq(step(mover, "drain", "alice"), 1);
    start(&claiming, worker, claim);
    await_one("SELECT count(*) FROM pg_locks WHERE classid = 4713 AND NOT granted");
    database_run(mover, "COMMIT");
    pthread_join(claiming.thread, NULL);
    ck_assert_int_eq(claiming.result, 0);
    ck_assert_int_eq(step(mover, "close", "alice"), 1);
}

START_TEST(a_claim_behind_the_drain_waits_for_it_and_takes_nothing)
{
    static const char *const claims[] = {
        "SELECT cardinality(events) FROM issuing.claim(gen_random_uuid(), 9, 60000, 'w', NULL, 100, false, 'X', false)",
        "SELECT cardinality(events) FROM issuing.claim(gen_random_uuid(), 9, 60000, 'w', NULL, 100, false, 'X', true)",
        "SELECT cardinality(events) FROM issuing.claim(gen_random_uuid(), 9, 60000, 'w', NULL, 100, true, 'Y', false)",
    };
    add_foreign(one, "X", "alice");
    add_foreign(one, "Y", "alice");
    add_foreign(one, "CARD_ISSUE", "alice");
    database_run(one, "UPDATE outbox_events SET lost_count = 2 WHERE event_type = 'Y'; "
                      "INSERT INTO lost_events SELECT id FROM outbox_events WHERE event_type = 'Y'");
    for (size_t i = 0; i < ARRAY_SIZE(claims); i++)
        expect_nothing_claimed_behind_the_drain(claims[i]);
}
END_TEST

START_TEST(a_claim_with_an_old_snapshot_takes_nothing)
{
    add_foreign(one, "X", "alice");
    list_bucket("alice");
    database_run(worker, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT issuing.cell_parked()");
    ck_assert_int_eq(step(mover, "drain", "alice"), 1);
    expect_sqlstate(worker, "25001",
                    "SELECT issuing.claim(gen_random_uuid(), 9, 60000, 'w', NULL, 100, false, 'X', "
                    "false)");
    database_run(worker, "ROLLBACK");
    ck_assert_int_eq(step(mover, "close", "alice"), 1);
}
END_TEST

START_TEST(an_attempt_behind_a_backlog_is_awaited)
{
    char *users;
    add_foreign(one, "X", "alice");
    database_run(one, "INSERT INTO outbox_events (event_type, user_id, payload) "
                      "SELECT 'Y', 'bob', '{}' FROM generate_series(1, 3000)");
    users = claim_users(worker, "X", 9);
    ck_assert_str_eq(users, "alice");
    free(users);
    drain("alice");
    ck_assert_int_eq(database_int(mover, "SELECT issuing.cell_busy(%d)", bucket_of("alice")), 1);
    ck_assert_int_eq(step(mover, "close", "alice"), 0);
    ck_assert_int_eq(database_int(mover, "SELECT issuing.cell_busy(%d)", bucket_of("bob")), 0);
}
END_TEST

START_TEST(a_mark_that_a_worker_has_is_waited_for)
{
    database_run(one, "INSERT INTO outbox_events (id, user_id, payload) VALUES ('" MOVE "', 'alice', '{}'); "
                      "UPDATE outbox_events SET status = 'FAILED', completed_at = now(); "
                      "SELECT issuing.ask_reconcile('" MOVE "', 60000, 'a', NULL, NULL, 'b')");
    ck_assert_int_eq(database_int(worker, "SELECT count(*) FROM issuing.take_checks('" MOVE "', 9, 60000, 'w', "
                                          "'{CARD_ISSUE}')"),
                     1);
    drain("alice");
    ck_assert_int_eq(step(mover, "close", "alice"), 0);
    database_run(one, "UPDATE peer_checks SET due_at = now() - interval '1 s'"); /* the worker is dead */
    ck_assert_int_eq(step(mover, "close", "alice"), 1);
}
END_TEST

START_TEST(an_old_snapshot_passes_no_gate)
{
    list_bucket("alice");
    database_run(one, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM outbox_events");
    ck_assert_int_eq(step(mover, "drain", "alice"), 1);
    ck_assert_int_eq(step(mover, "close", "alice"), 1);
    expect_sqlstate(one, "40001",
                    "INSERT INTO outbox_events (event_type, user_id, payload) VALUES ('X', 'alice', '{}')");
    database_run(one, "ROLLBACK; BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT count(*) FROM outbox_events");
    expect_sqlstate(one, "55P03",
                    "INSERT INTO outbox_events (event_type, user_id, payload) VALUES ('X', 'alice', '{}')");
    database_run(one, "ROLLBACK");
}
END_TEST

START_TEST(an_insert_with_an_old_snapshot_before_the_close_is_waited_for)
{
    expect_close_waits_for(one, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; INSERT INTO outbox_events "
                                "(event_type, user_id, payload) VALUES ('X', 'alice', '{}')");
}
END_TEST

START_TEST(a_transaction_from_before_the_cell_passes_no_gate)
{
    struct pg_sync *old = database_open(NULL), *db = database_open(NULL);
    database_run(old, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM issuing.schema_migration");
    database_run(db, "SELECT issuing.cell_init('one', '{}')");
    expect_sqlstate(old, "40001",
                    "INSERT INTO issuing.outbox_events (event_type, user_id, payload) VALUES ('X', 'alice', '{}')");
    pg_sync_close(old);
    pg_sync_close(db);
}
END_TEST

START_TEST(a_writer_who_passed_before_the_list_is_waited_for_and_found)
{
    struct waiter scan;
    char text[128];
    database_run(one, "BEGIN");
    add_foreign(one, "X", "alice"); /* in the state `here`: records nobody */
    ck_assert_int_eq(
        database_int(mover, "SELECT count(*) FROM issuing.cell_list('{%d}', 'two', '" MOVE "')", bucket_of("alice")),
        1);
    snprintf(text, sizeof(text), "SELECT issuing.cell_list_users('{%d}')", bucket_of("alice"));
    start(&scan, mover, text);
    /* it looks again and again whether the writer has ended */
    await_one("SELECT count(*) FROM pg_stat_clear_snapshot(), pg_stat_activity "
              "WHERE wait_event = 'PgSleep' AND query LIKE '%cell_list_users%'");
    ck_assert_int_eq(scan.result, -2);
    expect_verdict(api, "alice", "k", "accepted"); /* and nobody else waits meanwhile */
    database_run(one, "COMMIT");
    pthread_join(scan.thread, NULL);
    ck_assert_int_ge(scan.result, 0);
    ck_assert_int_ge(database_int(one, "SELECT count(*) FROM cell_users WHERE user_id = 'alice'"), 1);
}
END_TEST

START_TEST(a_scan_that_is_not_committed_is_in_nobodys_way)
{
    add_foreign(one, "X", "alice");
    database_exec(mover,
                  "SELECT issuing.cell_list('{%d}', 'two', '" MOVE "'); BEGIN; SELECT "
                  "issuing.cell_list_users('{%d}')",
                  bucket_of("alice"), bucket_of("alice"));
    database_run(api, "SET statement_timeout = '5s'");
    expect_verdict(api, "alice", "k", "accepted");
    database_run(mover, "COMMIT");
}
END_TEST

START_TEST(a_second_mover_and_one_that_wakes_up_do_no_harm)
{
    int bucket = bucket_of("alice");
    close_bucket("alice");
    ck_assert_int_eq(
        database_int(one, "SELECT count(*) FROM issuing.cell_list('{%d}', 'two', '" OTHER_MOVE "')", bucket), 0);
    static const char *const steps[] = {"drain", "close", "leave", "open", "arrive", "refuse"};
    for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
        expect_sqlstate(one, "IS003", "SELECT issuing.cell_%s(%d, '" OTHER_MOVE "')", steps[i], bucket);
        expect_sqlstate(two, "IS003", "SELECT issuing.cell_%s(%d, '" OTHER_MOVE "')", steps[i], bucket);
    }
    /* Undone by one while the other is about to leave: the source decides. */
    ck_assert_int_eq(step(one, "open", "alice"), 1);
    expect_sqlstate(one, "IS003", "SELECT issuing.cell_leave(%d, '" MOVE "')", bucket);
    expect_sqlstate(one, "IS003", "SELECT issuing.cell_empty(%d, 1)", bucket);
    ck_assert_int_eq(step(two, "refuse", "alice"), 1);
    expect_sqlstate(two, "IS003", "SELECT issuing.cell_arrive(%d, '" MOVE "')", bucket);
    expect_side(one, "alice", "here");
    expect_side(two, "alice", "away");
}
END_TEST

SUITE(cells_races)
{
    TCase *tcase = tcase_create("cells_races");
    tcase_add_unchecked_fixture(tcase, cells_make, NULL);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, an_acceptance_before_the_close_is_waited_for);
    tcase_add_test(tcase, an_insert_of_another_service_before_the_close_is_waited_for);
    tcase_add_test(tcase, nobody_waits_for_a_mover_who_has_the_lock);
    tcase_add_test(tcase, nobody_waits_for_a_mover_who_waits);
    tcase_add_test(tcase, a_claim_before_the_drain_is_waited_for_and_its_attempt_too);
    tcase_add_test(tcase, a_claim_behind_the_drain_waits_for_it_and_takes_nothing);
    tcase_add_test(tcase, a_claim_with_an_old_snapshot_takes_nothing);
    tcase_add_test(tcase, an_attempt_behind_a_backlog_is_awaited);
    tcase_add_test(tcase, a_mark_that_a_worker_has_is_waited_for);
    tcase_add_test(tcase, an_old_snapshot_passes_no_gate);
    tcase_add_test(tcase, an_insert_with_an_old_snapshot_before_the_close_is_waited_for);
    tcase_add_test(tcase, a_transaction_from_before_the_cell_passes_no_gate);
    tcase_add_test(tcase, a_writer_who_passed_before_the_list_is_waited_for_and_found);
    tcase_add_test(tcase, a_scan_that_is_not_committed_is_in_nobodys_way);
    tcase_add_test(tcase, a_second_mover_and_one_that_wakes_up_do_no_harm);
    suite_add_tcase(suite, tcase);
}
